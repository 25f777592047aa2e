"""Answers from contexts: measures by hand, answerers that say nothing, Table 2."""

from __future__ import annotations

import math
from collections import Counter
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest

from lib.llm.chat import Reply, ScriptedChat
from lib.model_files import minilm_folder
from lib.studies.contradiction import answers
from lib.studies.contradiction.pools import CONDITIONS, MATCHED
from tests.test_contradiction import ENCODER, lab  # noqa: F401

SIMILAR, MOST, LEAST = CONDITIONS


# measures ----------------------------------------------------------------------------------------


def test_divergences_by_hand():
    """p = (1/2, 1/2, 0), q = (1/3, 0, 2/3) over the words a, b, c."""
    got = answers.divergences("a c c", "a b", epsilon=0.5)
    m = [(1 / 2 + 1 / 3) / 2, 1 / 4, 1 / 3]
    half = sum(p * math.log2(p / x) for p, x in zip((1 / 2, 1 / 2), m, strict=False))
    other = 1 / 3 * math.log2(1 / 3 / m[0]) + 2 / 3 * math.log2(2 / 3 / m[2])
    assert got["jsd"] == pytest.approx((half + other) / 2)
    p, q = [1.5 / 3.5, 1.5 / 3.5, 0.5 / 3.5], [1.5 / 4.5, 0.5 / 4.5, 2.5 / 4.5]
    assert got["kld"] == pytest.approx(sum(x * math.log2(x / y) for x, y in zip(p, q, strict=True)))
    turned = answers.divergences("a c c", "a b", epsilon=0.5, direction="answer", base=math.e)
    expected = sum(y * math.log(y / x) for x, y in zip(p, q, strict=True))
    assert turned["kld"] == pytest.approx(expected)
    assert answers.divergences("A b.", "b a") == pytest.approx({"jsd": 0, "kld": 0})
    assert answers.divergences("a", "b")["jsd"] == pytest.approx(1)
    with pytest.raises(ValueError, match="no direction 'both'"):
        answers.divergences("a", "b", direction="both")


def test_vsim_is_cosine_and_dot_product_of_means_over_known_words():
    vectors = {"a": np.array([4.0, 0.0]), "b": np.array([0.0, 4.0])}
    got = answers.vsim("a b", "a x", vectors)
    assert got == pytest.approx({"vsim_cosine": 1 / math.sqrt(2), "vsim_dot": 2 * 4})
    assert all(map(math.isnan, answers.vsim("x", "a", vectors).values()))


def test_vsim_is_gensims_n_similarity_with_our_settings_or_its_own():
    from gensim.models import Word2Vec

    texts = ["the drug lowers blood pressure and the risk of stroke"] * 6
    texts += ["the drug raises blood sugar and not the pressure"] * 6 + ["a rare word"]
    said, wanted = "the drug lowers pressure, unseen", "blood sugar and the risk rare"
    for how in (answers.WORD2VEC, {}):
        vectors = answers.word_vectors(texts, **how)
        corpus = [answers.words(text) for text in texts]
        model = Word2Vec(corpus, seed=0, workers=1, **how)
        got = answers.vsim(said, wanted, vectors)
        one, other = ([w for w in answers.words(t) if w in model.wv] for t in (said, wanted))
        assert got["vsim_cosine"] == pytest.approx(model.wv.n_similarity(one, other), abs=1e-6)
        means = [sum(model.wv[w] for w in ws) / len(ws) for ws in (one, other)]
        dot = sum(float(a) * float(b) for a, b in zip(*means, strict=True))
        assert got["vsim_dot"] == pytest.approx(dot, rel=1e-5)
        assert "rare" not in model.wv, "seen once"
    assert (model.sg, model.min_count, model.epochs) == (0, 5, 5)


def test_bertscore_is_greedy_matching():
    from sentence_transformers import SentenceTransformer

    folder = str(minilm_folder())
    said, wanted = ["the drug works"], ["the drug fails to work"]
    (same,), (got,), (turned,) = (
        answers.bertscore(a, b, folder)
        for a, b in ((wanted, wanted), (said, wanted), (wanted, said))
    )
    assert same == pytest.approx(1, abs=1e-5) and 0 < got < 1 and got == pytest.approx(turned)
    rows = SentenceTransformer(folder, device="cpu").encode(
        ["heart", "tax"], output_value="token_embeddings"
    )
    a, b = (r.numpy()[1] / np.linalg.norm(r.numpy()[1]) for r in rows)  # [CLS] heart [SEP]
    (one_word,) = answers.bertscore(["heart"], ["tax"], folder)
    assert one_word == pytest.approx(float(a @ b), abs=1e-5)


def test_scores_of_answers_and_no_score_without_a_word(own_folders):
    table = pd.DataFrame({"qid": ["x", "y", "z"], "answer": ["one two three four", "...", None]})
    wanted = dict.fromkeys("xyz", "one two three five")
    got = answers.score_answers(table, wanted, ENCODER, {"one": np.array([1.0, 0.0])})
    first = got.iloc[0]
    assert first[["rouge1", "rouge2", "rougeL"]].tolist() == pytest.approx([3 / 4, 2 / 3, 3 / 4])
    assert first["vsim_cosine"] == pytest.approx(1)
    rows = ENCODER.encode(["one two three four", "one two three five"])
    assert first["bert_cosine"] == pytest.approx(float(rows[0] @ rows[1]), abs=1e-6)
    assert np.isnan(first["bertscore"]) and not np.isnan(first["jsd"])
    assert got.loc[1:, list(answers.METRICS)].isna().all(axis=None)
    none = answers.score_answers(table[1:], wanted, ENCODER, {})
    assert none[list(answers.METRICS)].isna().all(axis=None) and len(none) == 2


# answers -----------------------------------------------------------------------------------------


def test_contexts_and_extracts(lab, own_folders):  # noqa: F811
    chosen = answers.contexts(lab, 3)
    assert set(chosen["condition"]) == {*CONDITIONS, *MATCHED} and len(chosen) == 60
    cnt = chosen.pivot(index="qid", columns="condition", values="cnt")
    for most, least in ((MOST, LEAST), MATCHED):
        assert (cnt[most] >= cnt[least]).all()
    said = answers.extracts(lab, chosen, ENCODER, most_words=60)
    for row in said.itertuples():
        whole = " ".join(lab.texts[i] for i in row.ids)
        assert len(row.answer.split()) <= 60 and row.answer[:40] in whole
    table = answers.describe_contexts(lab, chosen).set_index("condition")
    for name, own in chosen.groupby("condition"):
        years = [lab.evidence[i].year for ids in own["ids"] for i in ids]
        assert table.loc[name, "year"] == pytest.approx(np.mean(years))
        percentiles = table.loc[name, ["year_10", "year_50", "year_90"]].tolist()
        assert percentiles == pytest.approx(np.percentile(years, [10, 50, 90]))
    short = answers.extracts(lab, chosen[:2], ENCODER, most_words=1)
    assert (short["answer"].str.split().str.len() > 1).all(), "at least one sentence"


def test_a_chat_answer_and_its_absence(lab, monkeypatch):  # noqa: F811
    chosen = answers.contexts(lab, 2)
    llm = ScriptedChat([{"match": "numbered abstracts", "text": "Said."}])
    monkeypatch.setattr(answers, "connect", {"scripted": llm}.get)
    said = answers.chat_answers(lab, chosen, "scripted", "model")
    headings = Counter((lab.needs[q].medicine, lab.needs[q].heading) for q in said["qid"])
    assert len(headings) == 2 and set(headings.values()) == {5}, "one question a medicine"
    assert set(said["answer"]) == {"Said."} and set(said["how"]) == {""}
    every = answers.chat_answers(lab, chosen, "scripted", "model", every=True)
    assert len(every) == len(chosen) == len(said) * 6
    monkeypatch.undo()
    none = answers.chat_answers(lab, chosen, "replay:data/recordings/none.jsonl", "model")
    assert none["answer"].isna().all() and set(none["kind"]) == {"not run"}
    assert none["how"].str.startswith("llm = lib.llm.connect('record:").all()


def test_what_kind_of_answer_it_is():
    said = {
        ("Aspirin thins the blood.", "stop"): "answer",
        ("Aspirin thins the", "length"): "truncated",
        ("Answer: Why am I using aspirin?", "stop"): "echo",
        ("The answer is: No.", "stop"): "answer",
        ("INSUFFICIENT EVIDENCE", "stop"): "insufficient",
        ("...", "length"): "empty",
        ("There is insufficient evidence that it helps.", "stop"): "answer",
    }
    for (text, finish), kind in said.items():
        assert answers.kind_of_answer(text, "Why am I using aspirin?", finish) == kind, text


def test_table_2_counts_medicines_and_names_what_was_not_run(lab, own_folders, monkeypatch):  # noqa: F811
    replies = iter(["...", "The answer is:", "INSUFFICIENT EVIDENCE"])

    class Model:
        def tag(self, *_):
            return nullcontext()

        def generate(self, messages, max_tokens):
            return [Reply(next(replies, "Words."), "stop", 1, 1, 1.0, "x")]

    monkeypatch.setattr(answers, "connect", lambda spec: Model())
    chosen = answers.contexts(lab, 2)
    chats = [{"name": "Gemma-3", "llm": "x", "workers": 1}]
    scored = answers.measured_answers(lab, chosen, ENCODER, chats)
    own = scored[scored["answerer"] == "Gemma-3"]
    assert Counter(own["kind"]) == {"empty": 1, "echo": 1, "insufficient": 1, "answer": 7}
    assert own["rouge1"].isna().sum() == 1, "what has a word is measured"
    table = answers.table2(scored).set_index(["answerer", "condition", "metric"])
    first = table.loc["Gemma-3", SIMILAR, "rouge1"]
    assert (first["n"], first["answers"]) == (1, 1), "of two medicines one said no word"
    assert table.loc["Gemma-3", MOST, "kld"][["reported", "reported_of"]].tolist() == [
        2.290,
        "Gemma-3",
    ]
    row = table.loc[answers.EXTRACT, SIMILAR, "rouge1"]
    own = scored[(scored["answerer"] == answers.EXTRACT) & (scored["condition"] == SIMILAR)]
    assert row["value"] == pytest.approx(own.groupby("medicine")["rouge1"].mean().mean())
    assert (row["n"], row["answers"]) == (2, 12), "the unit is the medicine"
    assert row["reported"] == pytest.approx(np.mean([0.154, 0.066, 0.114, 0.156, 0.163]))
    assert row["verdict"] == "DIFFERENT SETUP" and row["reported_of"] == "mean of 5"
    not_run = table.loc[answers.EXTRACT].query("value.isna()")
    assert set(not_run["verdict"]) == {"NOT RUN"}
    assert set(not_run["how"]) == {"set measures['bert'] to a folder"}


def invented(medicines: int, **shift: float) -> pd.DataFrame:
    """Measured answers, two questions a medicine; ``shift`` is added to a condition's values."""
    rng, rows = np.random.default_rng(0), []
    for n in range(medicines):
        for q in range(2):
            base = rng.random()
            for condition in (*CONDITIONS, *MATCHED):
                value = base + shift.get(condition, 0) + rng.normal(scale=0.01)
                row = {"answerer": "x", "qid": f"{n}-{q}", "medicine": f"m{n}"}
                rows.append(row | {"condition": condition} | dict.fromkeys(answers.METRICS, value))
    return pd.DataFrame(rows)


def test_what_is_missing_drops_one_pair_and_not_the_measure():
    """Rows are told apart by medicine, in whatever order; both sides keep the same questions."""
    scored = invented(8, most_similar=0.5, least_contradictory=-0.2)
    gone = (scored["medicine"] == "m3") & (scored["condition"] == MOST)
    scored.loc[gone, "vsim_cosine"] = np.nan
    scored.loc[(scored["qid"] == "5-0") & (scored["condition"] == SIMILAR), "vsim_cosine"] = np.nan
    tested = answers.tests(scored.sample(frac=1, random_state=1)).set_index(["metric", "label"])
    label = "most contradictory − most similar"
    first = tested.loc["vsim_cosine", label]
    assert first["n"] == 7 and tested.loc["rouge1", label]["n"] == 8
    wide = scored.pivot(index=["medicine", "qid"], columns="condition", values="vsim_cosine")
    both = wide[[MOST, SIMILAR]].dropna().groupby("medicine").mean()
    assert first["difference"] == pytest.approx((both[MOST] - both[SIMILAR]).mean())
    assert tested.loc["rouge1", label]["claim"] == "lower"
    assert tested.loc["rouge1", label]["high"] < 0
    assert tested.loc["rouge1", "most contradictory − least contradictory"]["low"] > 0
    assert not {"p", "p_holm", "verdict"} & set(tested), "none of these was declared"
