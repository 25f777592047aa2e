"""Training: resumed to the same weights, losses by hand, shipped adapters as planned."""

from __future__ import annotations

import json
import math
import random
import shutil
from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib import model_files
from lib.data.passages import Passage
from lib.embed import HashEncoder, load_encoder
from lib.search.index import DenseIndex
from lib.studies.contradiction.labelled import NEAREST, LabelledPair, findings, scifact
from lib.studies.contradiction.nli import HEAD
from lib.studies.slhyde import tasks
from lib.studies.slhyde.tasks import ADAPTER, NOT_FOUND, TRAININGS, read_texts
from tests.tiny_models import NUMBERED, WORDS, save_bert, save_sentence_model, tiny_causal
from tools import (
    causal,
    slhyde_loop,
    slhyde_retriever,
    slhyde_writer,
    train_contradiction,
    training,
)
from tools.causal import Sampling
from tools.slhyde_loop import STAGES
from tools.slhyde_retriever import RECIPES, MeanAnchorLoss, Training, examples_of, query_alone
from tools.slhyde_writer import Laptop, write_hyde
from tools.training import ByLength, Plan, fit

DOCUMENTS_SHA256 = "55e6c914286f7748c2400538193509226adc09ece3bb796603cb14cd5eea4ae3"
"""Of the 2,000 documents that SmolLM2 wrote about, which are not in the repository."""


@pytest.fixture(scope="module")
def bases(tmp_path_factory) -> dict[str, Path]:
    """A tiny model for each way of reading."""
    folder = tmp_path_factory.mktemp("bases")
    bert = save_bert(folder / "bert", seed=0)
    causal = tiny_causal()
    causal.model.save_pretrained(folder / "llama")
    causal.tokenizer.save_pretrained(folder / "llama")
    sentences = save_sentence_model(folder / "model", bert, {})
    return {"pairs": bert, "texts": sentences, "chats": folder / "llama"}


def job(reads: str, base: Path) -> tuple[Plan, dict[str, list], object]:
    """30 steps or 15, a checkpoint every fifth."""
    plan = Plan(str(base), reads, epochs=2, rank=4, batch_size=4, max_tokens=64, save_steps=5)
    one = [" ".join(WORDS[i % 7 : i % 7 + 1 + i % 3]) for i in range(60)]
    columns = {"one": one, "other": [WORDS[i * 5 % 9] for i in range(60)]}
    if reads == "pairs":
        from sentence_transformers.cross_encoder.losses import CrossEntropyLoss

        labels = {"label": [i % 3 for i in range(60)]}
        return replace(plan, labels=("x", "y", "z")), columns | labels, CrossEntropyLoss
    if reads == "texts":
        from sentence_transformers.sentence_transformer.losses import CoSENTLoss

        return plan, columns | {"label": [float(i * 7 % 5 < 2) for i in range(60)]}, CoSENTLoss
    chats = [[{"role": "user", "content": NUMBERED[i % 9]}] for i in range(30)]
    replies = [" ".join(NUMBERED[i % 5 : i % 5 + 3]) for i in range(30)]
    return (
        replace(plan, log_steps=1, learning_rate=5e-2),
        {"messages": chats, "reply": replies},
        None,
    )


@pytest.fixture(scope="module", params=["pairs", "texts", "chats"])
def trained(request, bases, tmp_path_factory) -> tuple:
    """What a run that nobody kills makes."""
    folder = tmp_path_factory.mktemp(request.param)
    plan, columns, loss = job(request.param, bases[request.param])
    card = fit(plan, columns, folder / "out", loss, folder / "work", data="made")
    return request.param, folder, card, (plan, columns, loss)


def weights(out: Path) -> bytes:
    return (out / model_files.WEIGHTS).read_bytes()


def test_stopped_and_resumed_it_comes_to_the_same_weights(trained, tmp_path, monkeypatch):
    import transformers

    _, folder, _, (plan, columns, loss) = trained
    count = [0]

    def stops(self, *arguments, **options):
        count[0] += 1
        if count[0] > 12:
            raise KeyboardInterrupt
        return step(self, *arguments, **options)

    step = transformers.Trainer.training_step
    with monkeypatch.context() as patch:
        patch.setattr(transformers.Trainer, "training_step", stops)
        with pytest.raises(KeyboardInterrupt):
            fit(plan, columns, tmp_path / "out", loss, tmp_path / "work", data="made")
    assert not (tmp_path / "out").exists()
    (work,) = (tmp_path / "work").iterdir()
    (work / "checkpoint-11").mkdir()  # torn: its state is not there yet
    fit(plan, columns, tmp_path / "out", loss, tmp_path / "work", data="made")
    assert weights(tmp_path / "out") == weights(folder / "out")


@pytest.mark.parametrize("given", [[], ["b"], ["c", "a"], ["d"]])
def test_a_command_without_names_takes_all(given):
    parser = ArgumentParser()
    training.add_names(parser, "names", "abc")
    if given == ["d"]:
        with pytest.raises(SystemExit):
            parser.parse_args(given)
    else:
        names = parser.parse_args(given).names
        assert names == given or (not given and "all" in names)


def test_other_examples_and_a_changed_base_are_other_runs(bases, tmp_path):
    plan, columns, loss = job("pairs", bases["pairs"])
    plan = replace(plan, epochs=0.2)
    moved = tmp_path / "base"
    shutil.copytree(bases["pairs"], moved)
    config = json.loads((moved / "config.json").read_text())
    (moved / "config.json").write_text(json.dumps(config | {"note": "another"}))
    shorter = {name: column[:-1] for name, column in columns.items()}
    runs = [(plan, columns), (plan, shorter), (replace(plan, base=str(moved)), columns)]
    cards = [fit(one, own, tmp_path / "out", loss, tmp_path / "work") for one, own in runs]
    assert cards[0]["base_digest"] == cards[1]["base_digest"] != cards[2]["base_digest"]
    assert len(list((tmp_path / "work").iterdir())) == 3


def test_an_adapter_moves_its_base_and_its_card_says_how_it_was_made(trained, bases):
    from transformers import AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification

    reads, folder, card, (plan, columns, _) = trained
    assert model_files.read_card(folder / "out") == card | {
        "labels": list(plan.labels),
        "sha256": model_files.sha256_file(folder / "out" / model_files.WEIGHTS),
    }
    assert card["examples"] == len(next(iter(columns.values()))) and card["data"] == "made"
    assert card["peak_memory_mb"] > 50 and card["minutes"] >= 0
    opened = {
        "pairs": lambda path: AutoModelForSequenceClassification.from_pretrained(
            path, num_labels=3
        ),
        "texts": AutoModel.from_pretrained,
        "chats": AutoModelForCausalLM.from_pretrained,
    }[reads](bases[reads])
    before = {name: tensor.clone() for name, tensor in opened.state_dict().items()}
    after = model_files.merged(opened, folder / "out").state_dict()
    moved = {name for name in before if not np.array_equal(before[name], after[name])}
    assert any("1" in name for name in moved) and not any("embed" in name for name in moved)
    if reads == "chats":
        assert np.mean(card["losses"][-4:]) < np.mean(card["losses"][:4])


def test_only_the_reply_is_learnt():
    tokenizer = tiny_causal().tokenizer
    chat = [{"role": "user", "content": "word1 word2"}]
    made = training.encoded(chat, "word3 word4", tokenizer, 50)
    assert made["labels"][:-2] == [-100] * (len(made["input_ids"]) - 2)
    assert made["labels"][-2:] == made["input_ids"][-2:]
    with pytest.raises(ValueError, match="no token of the reply"):
        training.encoded(chat, "word3", tokenizer, 4)


class Rows:
    """As much of a dataset as a sampler asks for."""

    column_names = ("one", "other", "label")

    def __init__(self, lengths):
        self.lengths = lengths

    def __getitem__(self, name):
        return ["x" * (n if name == "one" else 1) for n in self.lengths]


def test_every_example_comes_once_an_epoch_among_others_of_its_length():
    lengths = random.Random(0).choices(range(1, 500), k=1003)
    sampler = ByLength(Rows(lengths), batch_size=8, drop_last=False, seed=3)
    first, again = list(sampler), list(ByLength(Rows(lengths), 8, False, seed=3))
    assert first == again and len(first) == len(sampler)
    assert sorted(i for batch in first for i in batch) == list(range(1003))
    spread = [np.ptp([lengths[i] for i in batch]) for batch in first]
    assert np.mean(spread) < 40  # at random it would be about 400
    sampler.set_epoch(1)
    assert list(sampler) != first


# the causal model ---------------------------------------------------------------------------------

words = st.lists(st.sampled_from(NUMBERED), min_size=1, max_size=30).map(" ".join)
TINY = tiny_causal()


def chat(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


@settings(max_examples=20, deadline=None)
@given(pairs=st.lists(st.tuples(words, words), min_size=1, max_size=6), budget=st.integers(1, 120))
def test_any_texts_in_any_batches_against_one_pass_each(pairs, budget):
    import torch

    asked = [(chat(question), reply) for question, reply in pairs]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(causal, "_BATCH_TOKENS", budget)
        found = TINY.log_likelihoods(asked)
    for (messages, text), (total, count) in zip(asked, found, strict=True):
        prompt, reply = TINY.prompt_tokens(messages), TINY.text_tokens(text)
        with torch.inference_mode():
            log_p = TINY.model(torch.tensor([prompt + reply])).logits[0].double().log_softmax(-1)
        expected = sum(float(log_p[len(prompt) - 1 + i, t]) for i, t in enumerate(reply))
        assert count == len(reply) and abs(total - expected) < 1e-4 * len(reply)


def test_letters_in_one_pass_are_replies_of_one_token():
    asked = [chat("word1 word2"), chat("word3")]
    found = TINY.next_log_p(asked, list("ABCD"))
    for row, messages in zip(found, asked, strict=True):
        expected = TINY.log_likelihoods([(messages, letter) for letter in "ABCD"])
        assert np.abs(row - expected[:, 0]).max() < 1e-4
    for wrong in (["A", "word1 word2"], ["A", ""], ["A", "B", "A"]):
        with pytest.raises(ValueError, match="not one token each"):
            TINY.next_log_p(asked, wrong)
    with pytest.raises(ValueError, match="without a token"):
        TINY.log_likelihoods([(asked[0], " ")])


def test_what_is_drawn_depends_on_the_seed_alone_and_greedy_on_nothing():
    asked, drawn = [chat("word1 word2"), chat("word3")], Sampling(12, temperature=1.0)
    first = TINY.write(asked, drawn, seed=1)
    assert TINY.write(asked, drawn, seed=1) == first != TINY.write(asked, drawn, seed=2)
    greedy = TINY.write(asked, Sampling(12), seed=1)
    assert greedy == TINY.write(asked, Sampling(12), seed=2)
    assert greedy == [TINY.write([one], Sampling(12))[0] for one in asked]  # also behind padding


# contradiction ------------------------------------------------------------------------------------


def test_a_claim_turned_around_changes_sides():
    pairs = [
        LabelledPair("Drug X does not reduce pain.", "b", "contradiction", "g"),
        LabelledPair("Drug X increases pain.", "b", "entailment", "g"),
        LabelledPair("Drug X increases pain.", "b", "neutral", "g"),
    ]
    turned = train_contradiction.turned_around(pairs)
    assert [(pair.a, pair.label) for pair in turned] == [
        ("Drug X reduce pain.", "entailment"),
        ("Drug X decreases pain.", "contradiction"),
    ]


@pytest.mark.mirror
def test_no_article_and_no_claim_is_on_two_sides(mirror):
    held_out = {finding.article for finding in findings(held_out=True)}
    used = {finding.article for finding in findings(held_out=False)}
    assert 100 < len(held_out) < len(used) and not held_out & used
    fit_on, kept = (train_contradiction.part(calibration) for calibration in (False, True))
    assert not ({p.group for p in fit_on} - {""}) & {p.group for p in kept}
    quotes = {f.sentence for f in findings(held_out=True)} | {p.a for p in scifact(True)}
    assert not {p.a for p in fit_on + kept} & quotes
    learnt = [p for p in fit_on if p.label != "neutral"]
    assert abs(np.mean([p.label == "contradiction" for p in learnt]) - 0.5) < 0.05


@pytest.mark.mirror
def test_the_head_trained_again_is_the_shipped_one(mirror):
    minilm = load_encoder("minilm", precision="float32")
    pairs = scifact(held_out=False)[: train_contradiction.CHECKED_PAIRS]
    weight, _ = train_contradiction.fit_head(pairs, minilm)
    with np.load(HEAD, allow_pickle=False) as shipped:
        # Vectors differ in their last digits with the batch they were encoded in.
        assert np.corrcoef(weight.ravel(), shipped["check"].ravel())[0, 1] > 0.999
    nearest = train_contradiction.nearest(minilm, first=20)
    shipped = pd.read_csv(NEAREST, dtype=str).head(20)
    assert nearest.astype(str).equals(shipped)


def test_a_calibration_recovers_the_weights_that_labels_were_drawn_by():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(20_000, 2)) * [1, 5] + 3
    labels = rng.random(20_000) < 1 / (1 + np.exp(-(rows @ [2, -0.5] - 1)))
    fitted, bias = training.fit_logistic(rows, labels)
    assert np.allclose(fitted, [2, -0.5], atol=0.15) and abs(bias + 1) < 0.5
    alone, _ = training.fit_logistic(rows, labels, used=np.array([0, 1]))
    assert alone[0] == 0 and alone[1] < 0


# SL-HyDE: the retriever ---------------------------------------------------------------------------


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def cross_entropy(anchors: np.ndarray, passages: list[np.ndarray]) -> float:
    """-log softmax of the own passage, row by row."""
    everything = np.concatenate([unit(rows) for rows in passages])
    losses = []
    for i, anchor in enumerate(anchors):
        scores = [50 * float(anchor @ passage) for passage in everything]
        total = max(scores) + math.log(sum(math.exp(s - max(scores)) for s in scores))
        losses.append(total - scores[i])
    return float(np.mean(losses))


@pytest.mark.parametrize("negatives", [0, 2])
def test_both_losses_are_what_numpy_makes_of_the_equations(negatives, bases):
    import torch
    from sentence_transformers import SentenceTransformer

    rng = np.random.default_rng(negatives)
    columns = [rng.normal(size=(5, 8)) * 3 for _ in range(3 + negatives)]
    tensors = [torch.from_numpy(rows) for rows in columns]
    query, written, *passages = columns
    model = SentenceTransformer(str(bases["texts"]), device="cpu")
    alone = query_alone(model).compute_loss_from_embeddings([tensors[0], *tensors[2:]], None)
    assert float(alone) == pytest.approx(cross_entropy(unit(query), passages), abs=1e-6)
    assert {m.p for m in model.modules() if isinstance(m, torch.nn.Dropout)} == {0.0}

    class AsGiven(torch.nn.Module):
        def forward(self, vectors):
            return {"sentence_embedding": vectors}

    mean = (unit(query) + unit(written)) / 2
    found = float(MeanAnchorLoss(AsGiven()).forward(tensors, None))
    assert found == pytest.approx(cross_entropy(mean, passages), abs=1e-9)


@pytest.fixture
def small_corpus(monkeypatch, own_folders):
    """130 passages in place of MedQuAD, hashed words in place of MiniLM, queries for 40 of them."""
    generator, corpus = random.Random(3), {}
    for i in range(130):
        text = " ".join(generator.sample(NUMBERED, 6)) + " "
        pid = f"medquad:{i:03d}"
        corpus[pid] = Passage(pid, "x", text * 7, "medquad", {})
    corpus["medquad:007"] = replace(corpus["medquad:007"], text=corpus["medquad:002"].text)
    encoder = HashEncoder()
    index = DenseIndex([encoder.encode([p.text for p in corpus.values()], "article")], list(corpus))
    queries = {pid: f"about {p.text.split()[0]}" for pid, p in list(corpus.items())[:40]}
    tuned = {pid: f"on {query}" for pid, query in queries.items()} | {"medquad:001": ""}
    written = {
        "queries": [{"pid": pid, "query": query} for pid, query in queries.items()],
        "tuned": [{"pid": pid, "passage": passage} for pid, passage in tuned.items()],
    }
    for name, value in {
        "_corpus": lambda: corpus,
        "mined_in": lambda: index,
        "load_encoder": lambda *_, **__: encoder,
        "read_texts": lambda name: written[name],
    }.items():
        monkeypatch.setattr(slhyde_retriever, name, value)
    return corpus, queries, encoder


def test_examples_are_queries_beside_their_passages_and_mined_negatives(small_corpus):
    corpus, queries, encoder = small_corpus
    made = examples_of(Training())
    kept = [pid for pid in queries if pid != "medquad:007"]  # its text came before
    assert made["anchor"] == [queries[pid] for pid in kept]
    assert made["positive"] == [corpus[pid].text for pid in kept]
    vectors = encoder.encode([p.text for p in corpus.values()], "article")
    for query, positive, negative in zip(*made.values(), strict=True):
        scores = vectors @ encoder.encode([query])[0]
        by_text = {p.text: s for p, s in zip(corpus.values(), scores, strict=True)}
        better = sum(score > by_text[negative] + 1e-5 for score in scores)
        assert negative != positive and better < slhyde_retriever.LAST_RANK
    assert examples_of(Training(seed=1))["negative_1"] != made["negative_1"]
    drawn = examples_of(Training(negatives="random"))
    assert drawn["negative_1"] != made["negative_1"] and drawn["positive"] == made["positive"]
    few = examples_of(Training(first=3, with_passage=True))
    first = list(queries.values())
    assert few["written"] == [f"on {first[0]}", first[1], f"on {first[2]}"]
    other = examples_of(Training(shuffled=True))
    pairs = list(zip(made["positive"], made["negative_1"], strict=True))
    moved = list(zip(other["positive"], other["negative_1"], strict=True))
    assert sorted(pairs) == sorted(moved) and not any(map(tuple.__eq__, pairs, moved))
    del corpus["medquad:003"]  # as if a benchmark tested its disease
    with pytest.raises(ValueError, match="medquad:003 may not be learnt from"):
        examples_of(Training())


# SL-HyDE: the writer ------------------------------------------------------------------------------


def test_the_passage_that_finds_its_document_best_is_chosen():
    encoder = HashEncoder()
    texts = ["fever and pain", "heart", "kidney stones hurt", "drug dose"]
    index = DenseIndex([encoder.encode(texts, "article")], list("abcd"))
    queries = [{"pid": "c", "query": "heart"}, {"pid": "b", "query": "heart"}]
    passages = [["drug", "kidney stones hurt kidney", ""], ["heart", "heart", "drug"]]
    first, second = slhyde_loop.chosen_rows(queries, passages, encoder, index)
    assert first["query_rank"] > 1 and first["ranks"][1] < first["ranks"][0]
    assert first["chosen"] == 1 and first["ranks"][2] == NOT_FOUND
    assert second["query_rank"] == 1 and second["chosen"] == 0


def test_what_is_kept_of_a_reply():
    assert slhyde_loop.one_question("What is\ngout? It is ...", "Gout") == "What is gout?"
    assert slhyde_loop.one_question("", "Gout") == "Gout"
    document = " ".join(f"word{i}" for i in range(60))
    assert slhyde_loop.repeats("It is " + document[7 * 5 :], document, 25)
    assert not slhyde_loop.repeats(" ".join(document.split()[3:27]), document, 25)


# what is shipped ----------------------------------------------------------------------------------


def test_every_adapter_is_shipped_small_whole_and_as_its_plan_says():
    shipped = sorted(
        path.parent.name for path in model_files.ADAPTERS.glob(f"*/{model_files.CARD}")
    )
    assert {*train_contradiction.PLANS, *TRAININGS, ADAPTER.name} <= set(shipped)
    listed = (model_files.ADAPTERS / "README.md").read_text(encoding="utf-8")
    assert sum(p.stat().st_size for p in model_files.ADAPTERS.rglob("*") if p.is_file()) <= 30e6
    for name in shipped:
        card = model_files.read_card(model_files.adapter_folder(name))  # its hash is checked
        assert card["data"] and card["minutes"] > 0 and card["peak_memory_mb"] > 0
        assert f"`{name}`" in listed, f"data/adapters/README.md does not say what {name} is"
        # No hash of its card covers the settings; of them, these say how its changes are added.
        settings = json.loads((model_files.ADAPTERS / name / "adapter_config.json").read_text())
        assert (settings["r"], settings["lora_alpha"]) == (card["rank"], 2 * card["rank"]), name
        others = ("alpha_pattern", "rank_pattern", "use_rslora", "use_dora", "fan_in_fan_out")
        assert not any(settings[it] for it in others), name


def test_a_shipped_retriever_is_what_its_recipe_says():
    assert tuple(RECIPES) == TRAININGS
    for name, recipe in RECIPES.items():
        card = model_files.read_card(model_files.ADAPTERS / name)
        assert card["seed"] == recipe.seed and card["learning_rate"] == recipe.learning_rate
        assert card["max_tokens"] == slhyde_retriever.PLAN.max_tokens
        assert card["examples"] <= recipe.first and card["negatives"] == f"1 {recipe.negatives}"
        assert recipe.shuffled == ("shuffled" in name)


def test_the_texts_that_are_shipped_fit_together_and_are_what_their_settings_say(monkeypatch):
    loop = Laptop().loop
    queries, passages, tuned = map(read_texts, ("queries", "passages", "tuned"))
    assert len({row["pid"] for row in queries}) == len(queries) == tasks.DOCUMENTS == loop.documents
    assert (len(passages), len(tuned)) == (loop.passages.first, loop.tuned.first)
    assert {len(row["passages"]) for row in passages} == {tasks.PASSAGES} == {loop.passages.each}
    for rows in (passages, tuned):
        asked = [{"pid": row["pid"], "query": row["query"]} for row in rows]
        assert asked == queries[: len(rows)]
    assert all(row["chosen"] == int(np.argmin(row["ranks"])) for row in passages)
    for dataset in ("scifact", "bioasq"):
        assert len(read_texts(f"hyde-{dataset}")) == 2 * slhyde_writer.TEST_QUERIES
    # No stage is run again: each file was made with the settings of today.
    few = dict.fromkeys(["x"], slhyde_loop.Document(Passage("x", "", "", "", {}), ""))
    again = []
    monkeypatch.setattr(Laptop, "sample", few)
    monkeypatch.setattr(slhyde_loop, "sha256_bytes", lambda _: DOCUMENTS_SHA256)
    monkeypatch.setattr(slhyde_loop, "write_jsonl_gz", lambda *_: again.append("texts"))
    monkeypatch.setattr(slhyde_loop, "fit", lambda *_, **__: again.append("generator"))
    for name, stage in (*STAGES.items(), ("hyde", write_hyde)):
        stage(Laptop())
        assert not again, name
    card = model_files.read_card(ADAPTER)
    assert card["rank"] == loop.generator.rank
    assert np.mean(card["losses"][-5:]) < np.mean(card["losses"][:5])
