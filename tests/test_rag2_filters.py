"""RAG2's filters and re-rankers: one contract for all, lines, leaks, shuffled labels, the T5."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.data.passages import Passage
from lib.data.store import PassageStore
from lib.datasets import Question, question_sets
from lib.embed import HashEncoder
from lib.methods.postprocess import shown as shown_question
from lib.profiles import load_profile, methods_of
from lib.run import Retriever
from lib.search.bm25 import BM25Index
from lib.search.index import DenseIndex
from lib.search.label_tokens import LABEL_TOKENS, LabelTokens, encoded
from lib.search.rerank import load_scorer
from lib.stats import auroc
from lib.studies.rag2 import filters
from lib.studies.rag2.filters import (
    BASELINES,
    RERANKERS,
    SHUFFLED,
    Filter,
    bm25_filter,
    cached_scores,
    card_of,
    features,
    fit_head,
    head_file,
    lines_of,
    load_filter,
    load_rerankers,
    pair_features,
    threshold_key,
)
from lib.studies.rag2.heldout_eval import separation
from lib.studies.rag2.labels import (
    RECIPES,
    Material,
    Recipe,
    labelled,
    read_labels,
    with_differences,
)
from tests.retrieved import run_retrieval
from tests.tiny_models import save_bert, save_causal, save_pairs, save_t5
from tools import flan_t5, label_passages, train_filters
from tools.flan_t5 import Settings, train_flan_t5
from tools.label_passages import Leak
from tools.train_filters import PENALTIES, PLAN, Training, train, validated

GOOD = ("fever", "pain", "heart")
BAD = ("drug", "dose", "test")
OTHER = ("the", "of", "a", "sign", "kidney")


def made_pairs(n: int, seed: int = 0) -> tuple[list[tuple[str, str]], list[bool]]:
    """Pairs whose passage has a good word or a bad one, and whether it is a good one."""
    generator = random.Random(seed)
    pairs, helpful = [], []
    for _ in range(n):
        good = generator.random() < 0.5
        said = [*generator.choices(GOOD if good else BAD, k=6), generator.choice(OTHER)]
        question = " ".join(generator.sample(OTHER, 2))
        pairs.append((question, " ".join(generator.sample(said, len(said)))))
        helpful.append(good)
    return pairs, helpful


# a small world ------------------------------------------------------------------------------------


def made_training(folder: Path, count: int = 160) -> Training:
    """Questions with six passages each; the difference is great where a passage has good words.

    Three questions of four are to train on. The first ten have the model's own rationale too.
    """
    generator = random.Random(5)
    questions, passages, rows, asked = [], [], [], {}
    for i in range(count):
        qid, part = f"q{i:03d}", "held" if i % 4 == 3 else "train"
        text = f"{' '.join(generator.sample(OTHER, 2))} {i}"
        asked["bioasq", qid] = text
        if part == "train":
            about = {"gold_pmids": (f"pm{i}",), "ideal_answer": f"says {i}"}
            questions.append(Question(qid, text, {}, "", "bioasq", **about))
        for rank in range(1, 7):
            ((_, text),), (good,) = made_pairs(1, seed=100 * i + rank)
            passages.append(Passage(f"p{i:03d}-{rank}", "a title", text, "made", {}))
            for kind in ("expert", "own") if i < 10 else ("expert",):
                gain = 3 * good + generator.random()
                right = int(generator.random() < 0.5)
                rows.append((part, qid, passages[-1].pid, kind, -20.0 + gain, right))
    columns = ["part", "qid", "pid", "rationale", "log_p_with", "right_with"]
    labels = pd.DataFrame(rows, columns=columns).assign(dataset="bioasq", tokens=10)
    labels = with_differences(labels.assign(log_p_without=-20.0, right_without=0))
    store = PassageStore.build(folder / "store.sqlite", passages)
    tested = [Question("t", "another thing", {"A": "yes"}, "A", "bioasq", gold_pmids=("pm999",))]
    return Training(Material(labels, asked, store, HashEncoder(64)), "made", questions, tested)


@pytest.fixture(scope="module")
def own_cache(tmp_path_factory) -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setenv("CHR_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@pytest.fixture(scope="module")
def world(own_cache, tmp_path_factory) -> Iterator[Training]:
    """Made questions, and folders of its own for what is trained on it; crosses on a tiny BERT."""
    folder = tmp_path_factory.mktemp("world")
    bert = save_bert(folder / "bert", seed=0)
    patch = pytest.MonkeyPatch()
    patch.setattr(filters, "_FOLDER", folder / "filters")
    patch.setattr(filters, "ADAPTERS", folder / "adapters")
    tiny = replace(PLAN, base=str(bert), epochs=1, rank=2, batch_size=16)
    patch.setattr(train_filters, "PLAN", tiny)
    yield made_training(folder)
    patch.undo()


# the contract -------------------------------------------------------------------------------------

_NAMES = (*BASELINES, "head-ppl-25", "head-shuffled", "cross-ppl-25")


@pytest.fixture(scope="module")
def trained(world) -> dict[str, dict]:
    cards = {name: train(name, world) for name in _NAMES}
    for name in RERANKERS:
        made = given_snippets()
        cards[name] = train_filters.train_reranker(name, made, world.material.encoder, GIVEN_TEXTS)
    return cards


def opened(name: str, world: Training):
    texts = [passage.text for passage in world.material.store]
    return load_filter(name, encoder=world.material.encoder, texts=texts)


def texts_of(world: Training, part: str) -> tuple[pd.DataFrame, list[tuple[str, str]]]:
    pairs = labelled(Recipe("delta_ppl"), world.material.labels, part)
    return pairs, world.material.texts(pairs)


@pytest.mark.parametrize("name", [*_NAMES, "seq2seq", *RERANKERS])
def test_every_model_of_pairs_keeps_the_contract(
    name, world, trained, trained_t5, tmp_path, monkeypatch
):
    """A score is that of its pair, in any company and order."""
    if name == "seq2seq":
        scores = LabelTokens("t5", trained_t5[0], max_tokens=64)
    elif name in RERANKERS:
        scores = load_rerankers(name, world.material.encoder, GIVEN_TEXTS)[0]
    else:
        scores = opened(name, world).scores
    pairs, _ = made_pairs(9, seed=3)
    pairs.append(pairs[0])
    together = scores(pairs)
    assert together.shape == (10,) and together.dtype == float and np.isfinite(together).all()
    assert np.isclose(together[0], together[9], atol=1e-5) and len(set(together.round(5))) > 1
    assert scores([]).shape == (0,)
    monkeypatch.setenv("CHR_CACHE", str(tmp_path / "second"))
    assert np.allclose(together, [scores([pair])[0] for pair in pairs], atol=1e-5)
    assert np.allclose(together[::-1], scores(pairs[::-1]), atol=1e-5)
    if name not in (*BASELINES, *RERANKERS):
        assert ((together >= 0) & (together <= 1)).all()


def test_a_filter_draws_its_line_at_a_half_or_where_its_card_says(world, trained):
    _, texts = texts_of(world, "train")
    for name in _NAMES:
        scores, lines = opened(name, world).scores(texts), lines_of([name])
        assert lines.get((name, "likelier than not"), 0.5) == 0.5
        assert len(lines) == (2 if name in BASELINES else 3)
        for operating_point, share in zip(filters.KEEPS[1:], (0.25, 0.05), strict=True):
            line = lines[name, operating_point]
            assert line == card_of(name)[threshold_key(share, "bioasq")]  # there is no other set
            assert share <= (scores >= line - 1e-9).mean()
            assert (scores > line + 1e-9).mean() < share


@pytest.mark.parametrize(
    ("name", "dim", "error", "says"),
    [
        ("head", 64, ValueError, "no filter 'head'"),
        ("head-ppl-25", 32, ValueError, "was trained on hash"),
        ("head-right", 64, FileNotFoundError, "tools.train_filters head-right"),
        ("head-shuffled", 64, ValueError, "not what its card says"),
    ],
)
def test_what_cannot_be_loaded_is_refused(world, trained, name, dim, error, says):
    file = head_file("head-shuffled")
    whole = file.read_bytes()
    try:
        file.write_bytes(whole + b" ")
        with pytest.raises(error, match=says):
            load_filter(name, encoder=HashEncoder(dim))
    finally:
        file.write_bytes(whole)


def test_scores_are_kept_for_the_filter_and_its_pairs(own_folders):
    asked = []

    def scores(pairs):
        asked.append(list(pairs))
        return np.array([len(text) / 3 for _, text in pairs])

    one, other = Filter("f", "one", scores), Filter("f", "other", scores)
    pairs = [("q", "a"), ("q", "bb")]
    first = cached_scores(one, pairs)
    assert cached_scores(one, pairs).tolist() == first.tolist() == [1 / 3, 2 / 3]
    assert len(asked) == 1
    cached_scores(one, pairs[::-1])
    cached_scores(other, pairs)
    assert asked == [pairs, pairs[::-1], pairs]


# what each reads ----------------------------------------------------------------------------------


def test_bm25_of_a_pair_is_that_of_the_index():
    texts = [text for (_, text), _ in zip(*made_pairs(30, seed=4), strict=True)]
    texts[3] = "fever fever fever kidney"
    ids = [f"p{i:02d}" for i in range(30)]
    index = BM25Index.build(texts, ids)
    one = bm25_filter(texts)
    for question in ("fever kidney", "the heart heart sign", "pain unheardof"):
        hits = index.search([question], 30)
        of_index = dict(zip(hits.ids[0].tolist(), hits.scores[0].tolist(), strict=True))
        expected = [of_index.get(pid, 0.0) for pid in ids]
        assert np.allclose(one.scores([(question, text) for text in texts]), expected, atol=1e-4)
    with pytest.raises(ValueError, match="needs the passages"):
        bm25_filter([])


def test_features_are_products_differences_and_the_cosine(own_cache):
    encoder = HashEncoder(16)
    u = encoder.encode(["fever pain"])[0]
    v = encoder.encode(["heart drug fever"])[0]
    (row,) = features([("fever pain", "heart drug fever")], encoder)
    assert row.dtype == np.float32
    assert np.allclose(row, [*(u * v), *np.abs(u - v), u @ v], atol=1e-6)


# recipes ------------------------------------------------------------------------------------------


def test_recipes_choose_their_rows(world):
    labels = world.material.labels.copy()
    own, same = (labelled(RECIPES[f"head-{kind}"], labels) for kind in ("own", "own-questions"))
    assert own[["qid", "pid"]].equals(same[["qid", "pid"]]) and own["qid"].nunique() == 8
    assert own["is_helpful"].sum() == same["is_helpful"].sum() == 12
    assert not own["is_helpful"].equals(same["is_helpful"])
    for qid, values in (("q000", [1, 1]), ("q001", [0, 1]), ("q002", [np.nan, np.nan])):
        labels.loc[labels["qid"] == qid, ["right_without", "right_with"]] = values
    right, turned = (labelled(RECIPES[f"head-{kind}"], labels) for kind in ("right", "turned"))
    assert "q002" not in set(right["qid"]) and len(right) == len(turned) == 119 * 6
    for qid, expected in (("q000", (6, 0)), ("q001", (6, 6))):
        found = [table.loc[table["qid"] == qid, "is_helpful"].sum() for table in (right, turned)]
        assert tuple(found) == expected


def test_shuffled_labels_destroy_what_a_head_learns(world, trained):
    pairs, texts = texts_of(world, "held")
    found = {
        name: auroc(pairs["is_helpful"].to_numpy(), opened(name, world).scores(texts))
        for name in ("head-ppl-25", "head-shuffled")
    }
    assert found["head-ppl-25"] > 0.7 and found["head-shuffled"] < found["head-ppl-25"] - 0.15
    same = ("C", "examples", "helpful", "label", "share", "encoder")
    assert all(trained["head-ppl-25"][k] == trained["head-shuffled"][k] for k in same)


# heads --------------------------------------------------------------------------------------------


def test_the_penalty_is_chosen_on_questions_that_were_not_seen():
    # Which question it is, says whether its passages help: of no use for another question.
    generator = np.random.default_rng(0)
    questions = np.repeat(np.arange(40), 6)
    rows = np.eye(40)[questions] + 0.01 * generator.standard_normal((240, 40))
    helpful = (generator.random(40) < 0.5)[questions]
    qids = [f"q{i}" for i in questions]
    assert max(validated(rows, helpful, qids, C) for C in PENALTIES) < 0.65
    weight, bias = fit_head(rows, helpful, 1.0)
    assert auroc(helpful, rows @ weight + bias) == 1.0


def test_a_head_is_the_regression_on_standardised_columns():
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    generator = np.random.default_rng(1)
    rows = generator.standard_normal((80, 5)) * [1, 10, 0.1, 1, 1] + 3
    helpful = rows[:, 0] + generator.standard_normal(80) > 3
    weight, bias = fit_head(rows, helpful, 0.1)
    plain = StandardScaler().fit_transform(rows)
    model = LogisticRegression(C=0.1, tol=1e-10, max_iter=10_000).fit(plain, helpful)
    assert np.allclose(rows @ weight + bias, model.decision_function(plain), atol=1e-4)


# leaks --------------------------------------------------------------------------------------------


def with_document(world: Training, qid: str, document: str) -> Training:
    planted = [replace(q, gold_pmids=(document,)) if q.qid == qid else q for q in world.questions]
    return replace(world, questions=planted)


@pytest.mark.parametrize("name", ["head-ppl-25", "cross-ppl-25"])
def test_a_planted_leak_is_caught_before_anything_is_trained(name, world):
    with pytest.raises(Leak, match="q000 shares a document with a test question"):
        train(name, with_document(world, "q000", "pm999"))
    renamed = world.material.labels.replace({"part": {"held": "train"}})
    with pytest.raises(Leak, match="q003 is none to train on"):
        train(name, replace(world, material=replace(world.material, labels=renamed)))


# how well pairs are told apart --------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 4), st.sampled_from("abc")), min_size=4, max_size=25
    )
)
def test_separation_by_brute_force(pairs):
    truth, scores, qids = (np.array(column) for column in zip(*pairs, strict=True))
    everywhere, inside = [], []
    for i in np.flatnonzero(truth):
        for j in np.flatnonzero(~truth):
            won = (scores[i] > scores[j]) + 0.5 * (scores[i] == scores[j])
            everywhere.append(won)
            if qids[i] == qids[j]:
                inside.append(won)
    row = separation(truth, scores.astype(float), qids)
    for value, couples in ((row["value"], everywhere), (row["within"], inside)):
        assert np.isnan(value) if not couples else np.isclose(value, np.mean(couples))
    assert not inside or row["within_low"] <= row["within"] <= row["within_high"]
    assert (row["n"], row["positives"], row["questions"]) == (len(pairs), truth.sum(), len({*qids}))


# the tiny T5 --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def t5(tmp_path_factory) -> Path:
    return save_t5(tmp_path_factory.mktemp("t5") / "tiny-t5", [*GOOD, *BAD, *OTHER])


def settings_of(t5: Path) -> Settings:
    """Steps that come to the same end on every processor: with 0.03 some end in a constant."""
    return Settings(str(t5), learning_rate=0.01, epochs=6, batch_size=16, max_tokens=64)


@pytest.fixture(scope="module")
def trained_t5(world, t5, tmp_path_factory) -> tuple[Path, Path, dict]:
    folder = tmp_path_factory.mktemp("trained-t5")
    card = train_flan_t5(world, folder / "out", settings_of(t5), folder / "work")
    return folder / "out", folder / "work", card


def test_a_tiny_t5_learns_which_passages_help_by_two_tokens_of_its_own(t5, trained_t5):
    import torch
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    out, _, card = trained_t5
    # Of the passages with good words half are called helpful.
    assert card["auroc"] > 0.75 and card["pairs"] + card["validation_pairs"] == 120 * 6
    pairs, is_helpful = made_pairs(40, seed=2)
    scores = LabelTokens("t5", out, max_tokens=64)(pairs)
    assert auroc(np.array(is_helpful), scores) > 0.9
    tokenizer = AutoTokenizer.from_pretrained(out)
    ids = tokenizer.convert_tokens_to_ids(list(LABEL_TOKENS))
    assert ids == [len(tokenizer) - 2, len(tokenizer) - 1]
    model = AutoModelForSeq2SeqLM.from_pretrained(out).eval()
    options = {"max_new_tokens": 1, "output_logits": True, "return_dict_in_generate": True}
    for (question, passage), score in zip(pairs[:6], scores, strict=False):
        prompt = torch.tensor([encoded(tokenizer, question, passage, 64)])
        logits = model.generate(prompt, **options).logits[0]
        helpful, not_helpful = logits[0, ids].double().tolist()
        assert np.isclose(score, 1 / (1 + np.exp(not_helpful - helpful)), atol=1e-5)
    with pytest.raises(ValueError, match=r"does not know \[HELPFUL\]"):
        LabelTokens("t5", t5)


def test_only_the_evidence_is_cut(t5):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(t5)
    question = "the kidney sign"
    bare = len(encoded(tokenizer, question, "", 512))
    passage = " ".join([*GOOD, *BAD] * 20)
    words = tokenizer(passage, add_special_tokens=False)["input_ids"]
    whole = encoded(tokenizer, question, passage, 512)
    assert len(whole) == bare + 120
    start = next(i for i in range(bare) if whole[i : i + 120] == words)
    for room in (1, 7, 60, 119):
        cut = encoded(tokenizer, question, passage, bare + room)
        assert cut == whole[:start] + words[:room] + whole[start + 120 :]
    with pytest.raises(ValueError, match="leaves no room for evidence"):
        encoded(tokenizer, question, passage, bare)


def test_a_stopped_t5_is_resumed_to_the_same_weights(world, t5, trained_t5, tmp_path, monkeypatch):
    calls = []

    def stops_at_the_second(*given):
        calls.append(given)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return auroc(*given)

    settings = settings_of(t5)
    arguments = (world, tmp_path / "out", settings, tmp_path / "work")
    with monkeypatch.context() as patch:
        patch.setattr(flan_t5, "auroc", stops_at_the_second)
        with pytest.raises(KeyboardInterrupt):
            train_flan_t5(*arguments)
    assert not (tmp_path / "out").exists()
    assert train_flan_t5(*arguments) == trained_t5[2]
    for name in ("model.safetensors", "card.json"):
        assert (tmp_path / "out" / name).read_bytes() == (trained_t5[0] / name).read_bytes()
    with pytest.raises(Leak):
        train_flan_t5(with_document(world, "q000", "pm999"), tmp_path / "out", settings)


# re-rankers ---------------------------------------------------------------------------------------

WORDS = [f"word{i}" for i in range(40)]


def given_snippets(seed: int = 0) -> train_filters.Examples:
    """Snippets that share words with their question were given; the others share none."""
    rng = random.Random(seed)
    pairs, given, qids = [], [], []
    for number in range(60):
        asked = rng.sample(WORDS, 3)
        for place in range(8):
            shared = rng.sample(asked, 2) if place in (2, 5) else []
            filler = rng.sample([word for word in WORDS if word not in asked], 4)
            pairs.append((" ".join(asked), " ".join(shared + filler)))
            given.append(place in (2, 5))
            qids.append(f"q{number}")
    return pairs, np.array(given), qids


GIVEN_TEXTS = [passage for _, passage in given_snippets()[0]]


def test_a_reranker_learns_what_experts_give_and_disorder_teaches_nothing(world, trained):
    tuned, shuffled = (trained[name] for name in RERANKERS)
    encoder = world.material.encoder
    unseen, given, _ = given_snippets(seed=9)
    (scorer,) = load_rerankers("reranker", encoder, GIVEN_TEXTS)
    assert auroc(given, scorer(unseen)) > 0.9
    assert tuned["p_at_5"] == pytest.approx(0.4, abs=0.02)  # both of two, in five places
    assert shuffled["p_at_5"] == pytest.approx(shuffled["base_rate"], abs=0.06)
    assert shuffled["cosine_p_at_5"] == tuned["cosine_p_at_5"]
    rows = pair_features(encoder, GIVEN_TEXTS)(unseen)
    scorers = load_rerankers(SHUFFLED, encoder, GIVEN_TEXTS)
    assert len(scorers) == train_filters.DRAWS
    for weights, drawn in zip(shuffled["weights"], scorers, strict=True):
        assert np.allclose(drawn(unseen), rows @ np.array(weights))
    with pytest.raises(ValueError, match="was trained on"):
        load_rerankers("reranker", HashEncoder(dim=32), GIVEN_TEXTS)


def test_the_features_of_a_reranker_are_what_they_are_called():
    pairs = [("word1 word2 word1", "word2 word3"), ("word4", "word5")]
    encoder = HashEncoder(64)
    rows = pair_features(encoder, GIVEN_TEXTS)(pairs)
    vectors = encoder.encode(list(pairs[0]))
    assert rows[0, 0] == pytest.approx(float(vectors[0] @ vectors[1]), abs=1e-5)
    assert rows[0, 1] == bm25_filter(GIVEN_TEXTS).scores(pairs)[0] > 0
    assert rows[:, 2].tolist() == [0.5, 0.0]


# named in a profile -------------------------------------------------------------------------------

RAG2_TOML = """
base = "mini"
[methods.rag2]
file = "lib/methods/rag2.py:RAG2"
query = "question"
sources = ["books", "notes"]
depth = 8
reranker = "hub:{cross}"
judge = "hub:{t5}"
titles = {titles}
"""


@pytest.mark.parametrize("titles", [False, True])
def test_a_profile_names_sources_reranker_and_filter_of_rag2(
    titles, own_folders, trained_t5, tmp_path
):
    from transformers import AutoTokenizer, BertForSequenceClassification

    cross, t5 = save_pairs(tmp_path / "cross"), trained_t5[0]
    profile = tmp_path / "mine.toml"
    profile.write_text(RAG2_TOML.format(cross=cross, t5=t5, titles=str(titles).lower()))
    method = methods_of(load_profile(str(profile)))["rag2"]
    pairs, _ = made_pairs(20, seed=4)
    passages = [
        Passage(f"p{i:02d}", " ".join(BAD[:2]), text, ("books", "notes", "news")[i % 3], {})
        for i, (_, text) in enumerate(pairs)
    ]
    encoder = HashEncoder(16)
    store = PassageStore.build(own_folders / "store.sqlite", passages)
    texts = [passage.text for passage in passages]
    retriever = Retriever(DenseIndex([encoder.encode(texts)], store.ids()), encoder, store)
    question = Question("q1", "fever of the heart", {"A": "a sign", "B": "a dose"}, "A", "mine")

    run, traces = run_retrieval(method, [question], retriever, None, k=3)

    first, second = traces["q1"]["after"]
    by_id = {p.pid: p for p in passages}
    read = {p.pid: f"{p.title}. {p.text}" if titles else p.text for p in passages}
    balanced = [by_id[pid].source for pid in first["given"]]
    assert sorted(balanced) == ["books"] * 4 + ["notes"] * 4
    net = BertForSequenceClassification.from_pretrained(cross).eval()
    tokenizer = AutoTokenizer.from_pretrained(cross)
    for pid, score in zip(first["left"], first["scores"], strict=True):
        asked = tokenizer(question.text, read[pid], return_tensors="pt")
        assert score == pytest.approx(float(net(**asked).logits.detach()), abs=1e-4)
    assert first["scores"] == sorted(first["scores"], reverse=True)
    shown = [(shown_question(question), read[pid]) for pid in second["given"]]
    helpful = LabelTokens("t5", t5)(shown)
    assert second["given"] == first["left"][:3] and np.allclose(second["scores"], helpful)
    kept = [pid for pid, score in zip(second["given"], helpful, strict=True) if score >= 0.5]
    assert run["pid"].tolist() == kept


def test_any_model_labels_any_sets_and_the_papers_filter_learns_from_them(
    own_folders, t5, tmp_path, monkeypatch
):
    """RAG2's way from a training set to a filter that a profile names, by its two commands."""
    leak = next(iter(question_sets(["ddx-mini"], 30).values()))[0]
    tested = [replace(leak, dataset="medqa", text=f" {leak.text.upper()}")]
    monkeypatch.setattr(label_passages, "tested_questions", lambda: tested)
    monkeypatch.setattr(train_filters, "tested_questions", lambda: tested)
    profile = tmp_path / "mine.toml"
    profile.write_text('base = "mini"\nencoder = "hash"\nencoder_options = {}\n')
    model, labels, out = save_causal(tmp_path / "llm"), tmp_path / "labels", tmp_path / "flan"
    asked = ["--model", str(model), "--profile", str(profile), "--sets", "ddx-mini"]
    asked += ["--questions", "30", "--out", str(labels)]
    scored = label_passages.Causal.log_likelihoods

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(label_passages.Causal, "log_likelihoods", stop)
    with pytest.raises(KeyboardInterrupt):
        label_passages.main(asked)
    monkeypatch.setattr(label_passages.Causal, "log_likelihoods", scored)
    monkeypatch.setattr(label_passages.Causal, "write", stop)  # all rationales are there
    label_passages.main(asked)

    table = read_labels(labels)
    assert set(table["rationale"]) == {"own"} and set(table["dataset"]) == {"ddx-mini"}
    assert leak.qid not in set(table["qid"]) and table["qid"].nunique() > 15
    assert table.groupby("qid").size().eq(label_passages.PASSAGES).all()
    flan_t5.main(["--labels", str(labels), "--base", str(t5), "--epochs", "1", "--out", str(out)])
    card = json.loads((out / "card.json").read_text())
    assert card["pairs"] + card["validation_pairs"] == len(table)
    judge = load_scorer(f"hub:{out}")
    assert 0 < judge([("Why?", "because")])[0] < 1
