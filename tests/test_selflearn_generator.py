"""SL-HyDE's generator: what is chosen, what may be learnt from, and runs that are killed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.benchmarks import ddx_fresh, ddx_real
from lib.data.passages import Passage
from lib.embed import HashEncoder
from lib.llm.causal import Causal, Sampling, plain_causal
from lib.model_files import adapter_folder, merged, read_card
from lib.search.index import DenseIndex
from lib.studies.selflearn import documents, generator, writing
from lib.studies.selflearn.batches import batches_of, write_all
from lib.studies.selflearn.choosing import (
    COPIED,
    NOT_FOUND,
    best,
    mean_vectors,
    repeats,
    source_ranks,
)
from lib.train import causal as training
from lib.train.causal import CausalPlan, Example, encoded, fit_causal
from tests.kill_labels import WORDS, tiny_causal

"""For what looks at the shipped files: they take an hour to make."""


class Killed(BaseException):
    """Ends a run where it stands, as a kill does: nothing that handles errors catches it."""


@pytest.fixture(scope="module")
def tiny() -> Causal:
    return tiny_causal()


@pytest.fixture(scope="module")
def base(tiny, tmp_path_factory) -> Path:
    """The tiny model and its tokenizer, saved as the hub would store them."""
    folder = tmp_path_factory.mktemp("base")
    tiny.model.save_pretrained(folder)
    tiny.tokenizer.save_pretrained(folder)
    return folder


# the choice --------------------------------------------------------------------------------------

PLACES = st.lists(st.lists(st.integers(-2, 2), min_size=3, max_size=3), min_size=2, max_size=12)


@given(PLACES, st.data())
def test_a_rank_is_that_of_sorting_everything(rows, data):
    """Whole numbers tie often; of equal scores the smaller id comes first."""
    names = data.draw(st.permutations([f"p{i:02d}" for i in range(len(rows))]))
    query = data.draw(st.lists(st.integers(-2, 2), min_size=3, max_size=3).filter(any))
    depth = data.draw(st.integers(1, 14))
    index = DenseIndex([np.array(rows, np.float32)], names)
    scores = {name: float(np.dot(row, query)) for name, row in zip(names, rows, strict=True)}
    ordered = sorted(names, key=lambda name: (-scores[name], name))
    wanted = [min(ordered.index(name) + 1, depth) for name in names]
    vectors = np.tile(np.array(query, np.float32), (len(names), 1))
    assert source_ranks(vectors, names, index, depth).tolist() == wanted


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_the_first_of_the_best_is_chosen(ranks):
    chosen = best(ranks)
    assert all(ranks[chosen] <= rank for rank in ranks)
    assert all(ranks[chosen] < rank for rank in ranks[:chosen])


def test_a_document_that_cannot_be_found_has_the_last_rank():
    index = DenseIndex([np.eye(3, dtype=np.float32)], ["a", "b", "c-with-a-long-name"])
    query = np.array([[1.0, 0.5, 0.1]], np.float32)
    assert source_ranks(query, ["b"], index).tolist() == [2]
    assert source_ranks(query, ["b"], index.subset(np.array([True, False, True]))) == NOT_FOUND
    assert source_ranks(query, ["c-with-a-long-name but another"], index) == NOT_FOUND


def test_the_mean_of_two_vectors_is_not_brought_to_length_one():
    query, passage = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])
    assert mean_vectors(query, passage).tolist() == [[0.5, 0.5]]


def test_rows_have_the_ranks_of_each_passage_and_the_query():
    encoder = HashEncoder()
    texts = {"a": "gout hurts the toe", "b": "a cough that lasts", "c": "fever and a rash"}
    index = DenseIndex([encoder.encode(list(texts.values()), "article")], list(texts))
    queries = [{"pid": "a", "query": "fever"}, {"pid": "b", "query": "cough"}]
    passages = [["fever and a rash", "gout hurts the toe", ""], ["a cough", "a cough", "rash"]]
    first, second = writing.chosen_rows(queries, passages, encoder, index)
    assert first["query_rank"] > 1 and first["ranks"][1] == 1 and first["chosen"] == 1
    assert first["ranks"][2] == NOT_FOUND
    assert first["passages"] == passages[0] and first["pid"] == "a"
    assert second["query_rank"] == 1 and second["ranks"][:2] == [1, 1] and second["chosen"] == 0


# the documents -----------------------------------------------------------------------------------


def passage(pid: str, **meta) -> Passage:
    """A passage on a disease that nothing tests, of a page of its own, unless said otherwise."""
    own = {"cuis": ["C1"], "focus": "Hiccups", "synonyms": [], "subset": "s", "document": pid}
    text = " ".join(f"word{i}" for i in range(documents.LEAST_WORDS))
    own |= meta
    return Passage(pid, own["focus"], own.pop("text", text), "medquad", own)


TESTED = documents.Tested(
    cuis=frozenset({"C9"}),
    names=frozenset({("behcet", "disease")}),
    pids=frozenset({"planted"}),
)

LEAKS = [
    passage("planted"),
    passage("by-concept", cuis=["C1", "C9"]),
    passage("by-title", focus="Behçet's Diseases"),
    passage("by-synonym", synonyms=["Hiccup", "behcet disease"]),
]


@pytest.mark.parametrize("leak", LEAKS, ids=lambda leak: leak.pid)
def test_a_planted_leak_is_refused_and_left_out(leak):
    clean = [passage("one"), passage("two")]
    documents.check_no_leak(clean, TESTED)
    with pytest.raises(ValueError, match=f"{leak.pid} .* a benchmark tests"):
        documents.check_no_leak([*clean, leak], TESTED)
    assert documents.unlabelled([clean[0], leak, clean[1]], TESTED) == clean


def test_the_sample_has_one_long_passage_of_a_page_whatever_the_order():
    pages = [passage(f"p{i}", document=f"page{i // 3}") for i in range(30)]
    short = [passage(f"s{i}", text="too short") for i in range(5)]
    drawn = documents.sample([*pages, *short], 8)
    assert len({p.meta["document"] for p in drawn}) == 8 and not [p for p in short if p in drawn]
    assert documents.sample([*short, *pages[::-1]], 8) == drawn
    assert documents.sample(pages, 10)[:8] == drawn  # a larger sample begins with the smaller
    with pytest.raises(ValueError, match="10 pages"):
        documents.sample(pages, 11)


def test_no_tested_disease_is_learnt_from(mirror):
    benchmarks = [build(HashEncoder()) for build in (ddx_real.build, ddx_fresh.build)]
    tested = documents.tested_in(benchmarks)
    passages = list(documents.load_passages("medquad"))
    kept = documents.unlabelled(passages, tested)
    documents.check_no_leak(kept, tested)
    known = {p.pid for p in kept}
    for benchmark in benchmarks:
        for on_tested in (*benchmark.targets.values(), *benchmark.excluded.values()):
            assert known.isdisjoint(on_tested)
        targets = benchmark.targets[benchmark.qids[0]]
        planted = next(p for p in passages if p.pid in targets)
        with pytest.raises(ValueError, match="a benchmark tests"):
            documents.check_no_leak([*kept[:5], planted], tested)
    assert not [e for e in generator.bank() if tested.covers(passage("x", focus=e["title"]))]


def test_the_queries_are_on_the_sampled_documents(mirror):
    sampled = [p.pid for p in documents.sample(documents.unlabelled())]
    assert [row["pid"] for row in writing.read_texts("queries")] == sampled


@given(st.integers(0, 40), st.integers(0, 6), st.integers(1, 40))
def test_a_copy_is_as_many_words_in_a_row_however_they_are_written(before, at, length):
    document = " ".join(f"word{i}" for i in range(60))
    words = document.split()[at : at + length]
    written = " ".join(["own"] * before) + " " + ", ".join(words).upper() + " own."
    assert repeats(written, document) == (length >= COPIED)
    assert repeats(document, document, least=60) and not repeats(document, document, least=61)


def test_what_is_shipped_repeats_no_document(mirror):
    text_of = {p.pid: p.text for p in documents.unlabelled()}
    rows = writing.read_texts("passages")
    assert not any(repeats(t, text_of[row["pid"]]) for row in rows for t in row["passages"])
    assert any("" in row["passages"] for row in rows)


# writing -----------------------------------------------------------------------------------------

DRAWN = Sampling(6, temperature=1.0, top_p=0.9)
CHATS = [[{"role": "user", "content": " ".join(WORDS[: 1 + i * 7 % 11])}] for i in range(10)]


class Stops(Causal):
    """A writer that is killed after some batches."""

    def __init__(self, other: Causal, batches: int):
        super().__init__(other.name, other.model, other.tokenizer)
        self.left = batches

    def write(self, asked: Sequence, sampling: Sampling, seed: int = 0) -> list[str]:
        if self.left == 0:
            raise Killed
        self.left -= 1
        return super().write(asked, sampling, seed)


@given(st.lists(st.integers(1, 9), max_size=20), st.integers(1, 5))
def test_batches_hold_everything_once_the_longest_first(lengths, size):
    batches = batches_of(lengths, size)
    found = [i for batch in batches for i in batch]
    assert sorted(found) == list(range(len(lengths)))
    assert [lengths[i] for i in found] == sorted(lengths, reverse=True)
    assert all(len(batch) == size for batch in batches[:-1])


@pytest.mark.parametrize("torn", [False, True])
def test_killed_and_resumed_the_same_is_written(torn, tiny, tmp_path):
    whole = write_all(tiny, CHATS, DRAWN, tmp_path / "whole", seed=3, size=4)
    assert len(set(whole)) > 5
    with pytest.raises(Killed):
        write_all(Stops(tiny, 1), CHATS, DRAWN, tmp_path / "killed", seed=3, size=4)
    (file,) = (tmp_path / "killed").iterdir()
    if torn:
        with open(file, "a") as stream:
            stream.write('["half a te')
    rest = Stops(tiny, 2)  # two of three batches are left: a third would be a kill
    assert write_all(rest, CHATS, DRAWN, tmp_path / "killed", seed=3, size=4) == whole
    (before,) = (tmp_path / "whole").iterdir()
    assert file.name == before.name and file.read_bytes() == before.read_bytes()


def test_other_chats_seeds_or_settings_are_not_mixed_up(tiny, tmp_path):
    first = write_all(tiny, CHATS, DRAWN, tmp_path, size=4)
    assert write_all(Stops(tiny, 0), CHATS, DRAWN, tmp_path, size=4) == first
    assert write_all(tiny, CHATS, DRAWN, tmp_path, seed=1, size=4) != first
    write_all(tiny, CHATS[:4], DRAWN, tmp_path, size=4)
    assert len(list(tmp_path.iterdir())) == 3


def test_a_reply_is_cut_after_its_first_question():
    assert generator.one_question("What is\ngout? It is ...", "Gout") == "What is gout?"
    assert generator.one_question("Tell me about gout", "Gout") == "Tell me about gout"
    assert generator.one_question("", "Gout") == "Gout"


def test_the_writer_sees_one_example_and_the_first_words():
    document = passage("x", text="long " * 500)
    asked, answer, last = [turn["content"] for turn in generator.asks_for_query(document)]
    (shown,) = [example for example in generator.bank() if example["question"] == answer]
    assert shown["text"] in asked
    assert last.count("long") == generator.SHOWN_WORDS and "Hiccups" in last
    (alone,) = generator.asks_for_passage("Why do I hiccup?")
    assert "Why do I hiccup?" in alone["content"]


def test_the_stages_follow_each_other_and_are_not_run_twice(tiny, tmp_path, monkeypatch):
    pages = [passage(f"p{i}", text=" ".join(WORDS[i : i + 5])) for i in range(6)]
    encoder = HashEncoder()
    vectors = encoder.encode([p.text for p in pages], "article")
    index = DenseIndex([vectors], [p.pid for p in pages])
    opened = []

    def open_writer(adapter=None):
        opened.append(adapter)
        return tiny

    monkeypatch.setenv("CHR_CACHE", str(tmp_path / "cache"))
    for name, value in {
        "FOLDER": tmp_path / "texts",
        "WITH_PASSAGES": 4,
        "unlabelled": lambda: pages,
        "sample": list,
        "check_no_leak": lambda _: None,
        "open_writer": open_writer,
        "load_encoder": lambda _: encoder,
        "allowed_index": lambda _: index,
        "ANSWERING": DRAWN,
    }.items():
        monkeypatch.setattr(writing, name, value)
    with pytest.raises(FileNotFoundError, match=r"queries.jsonl.gz.*run: python -m lib"):
        writing.read_texts("queries")
    writing.write_queries()
    writing.write_passages()
    rows = writing.read_texts("passages")
    assert [row["pid"] for row in rows] == ["p0", "p1", "p2", "p3"] and len(opened) == 2
    bytes_before = (tmp_path / "texts" / "passages.jsonl.gz").read_bytes()
    writing.write_queries()
    writing.write_passages()
    assert len(opened) == 2
    (tmp_path / "texts" / "passages.jsonl.gz").unlink()
    writing.write_passages()
    assert (tmp_path / "texts" / "passages.jsonl.gz").read_bytes() == bytes_before


# tuning ------------------------------------------------------------------------------------------


def tiny_plan(base: Path, **changes) -> CausalPlan:
    """12 steps, a checkpoint every fourth."""
    own = {"batch_size": 2, "epochs": 3, "learning_rate": 5e-2, "save_steps": 4, "log_steps": 1}
    return CausalPlan(str(base), **(own | changes))


EXAMPLES = [
    Example(({"role": "user", "content": " ".join(WORDS[i : i + 1 + i % 4])},), " ".join(reply))
    for i, reply in enumerate([WORDS[3:6], WORDS[9:10], WORDS[4:9]] * 3)
][:8]


@pytest.fixture(scope="module")
def tuned(base, tmp_path_factory) -> tuple[Path, Path, dict, object]:
    """An undisturbed run: its checkpoints, its adapter, its card, and the model as it was left."""
    folder = tmp_path_factory.mktemp("tuned")
    kept = []

    def write_and_keep(model, out):
        kept.append(model)
        _write(model, out)

    _write = training.write_adapter
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "write_adapter", write_and_keep)
        card = fit_causal(tiny_plan(base), EXAMPLES, folder / "out", folder / "work", data="none")
    return folder / "work", folder / "out", card, kept[0].eval()


def weights_after(work: Path) -> bytes:
    """The float32 weights after the last of 12 steps."""
    (folder,) = work.iterdir()
    return (folder / "checkpoint-12" / "trained.safetensors").read_bytes()


def test_only_the_reply_is_learnt(tiny):
    for example in EXAMPLES:
        row = encoded(example, tiny.tokenizer, 64)
        prompt = tiny.prompt_tokens(example.messages)
        reply = tiny.text_tokens(example.reply)
        assert row["input_ids"] == prompt + reply
        assert row["labels"] == [-100] * len(prompt) + reply
    cut = encoded(EXAMPLES[0], tiny.tokenizer, len(tiny.prompt_tokens(EXAMPLES[0].messages)) + 1)
    assert sum(label != -100 for label in cut["labels"]) == 1
    with pytest.raises(ValueError, match="no token of the reply"):
        encoded(EXAMPLES[0], tiny.tokenizer, 3)


def test_the_first_loss_is_that_of_the_reply_under_the_base(tiny, base, tmp_path):
    """LoRA begins as no change, so the first loss is the base's; padding and prompts are not in
    it."""
    pair = EXAMPLES[1:3]  # of unlike lengths: one of them is padded
    plan = tiny_plan(base, epochs=1)
    card = fit_causal(plan, pair, tmp_path / "out", tmp_path / "work")
    found = tiny.log_likelihoods([(example.messages, example.reply) for example in pair])
    assert len(card["losses"]) == 1
    assert card["losses"][0] == pytest.approx(-found[:, 0].sum() / found[:, 1].sum(), abs=2e-4)


def test_the_loss_falls_and_the_card_says_how(tuned):
    _, out, card, _ = tuned
    assert len(card["losses"]) == 12
    assert np.mean(card["losses"][-4:]) < np.mean(card["losses"][:4]) - 0.2
    written = read_card(adapter_folder(str(out)))  # its hash is checked
    assert written["losses"] == card["losses"] and written["examples"] == len(EXAMPLES)
    assert written["data"] == "none" and written["peak_memory_mb"] > 50


def test_a_killed_run_goes_on_to_the_same_weights(base, tuned, tmp_path, monkeypatch):
    work, out = tmp_path / "work", tmp_path / "out"
    padded, batches = training._padded, []

    def stops(rows):
        batches.append(rows)
        if len(batches) > 9:
            raise Killed
        return padded(rows)

    monkeypatch.setattr(training, "_padded", stops)
    with pytest.raises(Killed):
        fit_causal(tiny_plan(base), EXAMPLES, out, work, data="none")
    assert not out.exists() and list(work.glob("*/checkpoint-8"))
    monkeypatch.setattr(training, "_padded", padded)
    card = fit_causal(tiny_plan(base), EXAMPLES, out, work, data="none")
    assert weights_after(work) == weights_after(tuned[0])
    name = "adapter_model.safetensors"
    assert (out / name).read_bytes() == (tuned[1] / name).read_bytes()
    assert card["losses"] == tuned[2]["losses"]


def test_the_generator_is_tuned_once_for_its_passages(base, tmp_path, monkeypatch):
    from lib.base.files import write_jsonl_gz, write_manifest

    def choose(*words: str) -> None:
        rows = [
            {"pid": f"p{i}", "query": WORDS[i], "passages": [word, ""], "chosen": 0}
            for i, word in enumerate(words)
        ]
        path = tmp_path / "texts" / "passages.jsonl.gz"
        write_jsonl_gz(path, rows)
        write_manifest(path, rows=len(rows), settings={})

    plan = tiny_plan(base, epochs=1)
    monkeypatch.setenv("CHR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(generator, "PLAN", plan)
    for name, value in {
        "FOLDER": tmp_path / "texts",
        "PLAN": plan,
        "ADAPTER": tmp_path / "adapter",
    }.items():
        monkeypatch.setattr(writing, name, value)
    choose(*WORDS[:4])
    writing.tune_generator()
    first = read_card(tmp_path / "adapter")
    assert first["examples"] == 4
    trained = []
    monkeypatch.setattr(writing, "train", lambda rows, *_, **__: trained.append(len(rows)))
    writing.tune_generator()
    assert not trained
    choose(*WORDS[:3])
    writing.tune_generator()
    assert trained == [3]


def test_an_adapter_that_is_read_back_is_the_model_that_was_trained(base, tiny, tuned):
    import torch

    _, out, _, trained = tuned
    again = merged(plain_causal(str(base))[0], out)
    tokens = torch.tensor([tiny.prompt_tokens(EXAMPLES[2].messages)])
    with torch.inference_mode():
        wanted, found = trained(tokens).logits, again(tokens).logits
        plain = plain_causal(str(base))[0](tokens).logits
    assert (wanted - found).abs().max() < 1e-2
    assert (wanted - plain).abs().max() > 0.1


def with_other_weights(source: Path, folder: Path, change: Callable) -> Path:
    """A copy of a folder of weights, every tensor of it changed."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, folder, dirs_exist_ok=True)
    (file,) = folder.glob("*.safetensors")
    changed = {name: change(tensor) for name, tensor in load_file(file).items()}
    save_file(changed, file, {"format": "pt"})
    return folder


def test_two_adapters_of_one_name_share_no_text(base, tuned, tmp_path, monkeypatch):
    monkeypatch.setattr(generator, "PLAN", tiny_plan(base))
    first = shutil.copytree(tuned[1], tmp_path / "one" / "adapter")
    second = with_other_weights(first, tmp_path / "other" / "adapter", lambda tensor: 3 * tensor)
    texts = [
        write_all(generator.open_writer(folder), CHATS, DRAWN, tmp_path / "texts", size=4)
        for folder in (first, second, None)
    ]
    assert texts[0] != texts[1] and texts[2] not in texts[:2]
    assert len(list((tmp_path / "texts").iterdir())) == 3
    # The same weights, elsewhere: nothing is written again.
    again = generator.open_writer(shutil.copytree(first, tmp_path / "third" / "adapter"))
    resumed = Stops(again, 0)
    assert write_all(resumed, CHATS, DRAWN, tmp_path / "texts", size=4) == texts[0]


def test_two_models_of_one_name_share_no_text(base, tmp_path, monkeypatch):
    folder = shutil.copytree(base, tmp_path / "base")
    monkeypatch.setattr(generator, "PLAN", tiny_plan(folder))
    before = write_all(generator.open_writer(), CHATS, DRAWN, tmp_path / "texts", size=4)
    with_other_weights(base, folder, lambda tensor: tensor.flip(0).contiguous())
    after = write_all(generator.open_writer(), CHATS, DRAWN, tmp_path / "texts", size=4)
    assert before != after and len(list((tmp_path / "texts").iterdir())) == 2


# what is shipped ---------------------------------------------------------------------------------


def test_what_is_shipped_is_not_written_again(monkeypatch):
    """What names the writer may change; what it wrote holds while its settings do."""

    def refuses(adapter=None):
        raise AssertionError("a writer was opened")

    monkeypatch.setattr(writing, "open_writer", refuses)
    monkeypatch.setattr(writing, "test_queries", lambda dataset: {"q": "asked"})
    writing.write_tuned()
    writing.write_hyde()
    monkeypatch.setattr(writing, "TUNED", Sampling(63))
    with pytest.raises(AssertionError, match="a writer was opened"):
        writing.write_tuned()


def test_the_texts_that_are_shipped_fit_together():
    queries, passages, tuned = map(writing.read_texts, ("queries", "passages", "tuned"))
    assert len(queries) == len({row["pid"] for row in queries}) == documents.DOCUMENTS
    assert all(row["query"] for row in queries)
    assert len(passages) == writing.WITH_PASSAGES and len(tuned) == writing.WITH_TUNED
    for rows in (passages, tuned):
        asked = [{"pid": row["pid"], "query": row["query"]} for row in rows]
        assert asked == queries[: len(rows)]
    for row in passages:
        assert len(row["passages"]) == generator.PASSAGES
        assert row["chosen"] == best(row["ranks"]) and max(row["ranks"]) <= NOT_FOUND
    for dataset in ("scifact", "bioasq"):
        rows = writing.read_texts(f"hyde-{dataset}")
        halves = {name: [r["qid"] for r in rows if r["writer"] == name] for name in _WRITERS}
        assert halves["base"] == halves["tuned"] and len(rows) == 2 * writing.TEST_QUERIES


_WRITERS = ("base", "tuned")


def test_the_shipped_adapter_was_tuned_on_the_shipped_passages():
    card = read_card(adapter_folder(str(generator.ADAPTER)))
    assert card["data_sha256"] == writing._sha256("passages")
    assert card["rank"] == generator.PLAN.rank and card["minutes"] > 0
    losses = card["losses"]
    assert np.mean(losses[-5:]) < np.mean(losses[:5])


def test_what_was_asked_is_what_the_files_are_on(mirror):
    for dataset in ("scifact", "bioasq"):
        rows = writing.read_texts(f"hyde-{dataset}")
        wanted = list(writing.test_queries(dataset))
        assert [row["qid"] for row in rows if row["writer"] == "tuned"] == wanted
