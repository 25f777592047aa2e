"""The grid: cells made once, made anew when anything behind them changes, NOT RUN when they must.

One new method, registered like any other, goes all the way to the tables.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from dataclasses import dataclass, replace

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.base import provenance
from lib.base.paths import results
from lib.data.passages import Passage
from lib.data.store import PassageStore
from lib.datasets import Question, load_questions, question_sets, sampled
from lib.embed import HashEncoder
from lib.llm.chat import REFERENCE, ChatModel, Reply, ScriptedChat
from lib.llm.recorder import Recorder
from lib.methods import METHODS, Budget, Expansion, Hypotheses, Sparse, Text
from lib.profiles import load_profile, methods_of
from lib.readers import ChatReader, ChoiceReader, EvidenceReader
from lib.run import Retriever, execute
from lib.search.bm25 import BM25Index
from lib.search.index import DenseIndex
from lib.studies.main_tables.accuracy import accuracy_table, cost_table
from lib.studies.main_tables.cells import DEPTH, NO_RETRIEVAL, RANDOM, Grid
from lib.studies.main_tables.controls import CONTROLS

TEXTS = [f"passage {i} on {'gout' if i % 2 else 'sepsis'} and part number {i}" for i in range(30)]
IDS = [f"{i:03d}" for i in range(30)]
SET = [
    Question(
        f"{i:04d}", f"What helps in case {i}?", {"A": "gout", "B": f"part {i}"}, "AB"[i % 2], "mine"
    )
    for i in range(6)
]
"""Ids of questions and passages that look like numbers, as MedQA's and PubMed's do."""


ARMS = (*METHODS, *CONTROLS, RANDOM, *NO_RETRIEVAL)


class Says(ChatModel):
    """Answers every kind of prompt and counts; the words follow from the question."""

    name = "says"

    def __init__(self, tokens: int | None = 7):
        self.asked, self.tokens, self.broken = Counter(), tokens, ()

    def _say(self, messages, n, options):
        text = "\n".join(m["content"] for m in messages)
        case = next(c for c in (f"case {i}" for i in range(10)) if c in text)
        self.asked[case] += 1
        if options.get("choices"):
            said = json.dumps({c: -float(i) for i, c in enumerate(options["choices"])})
        elif "answer_choice" in text:
            said = json.dumps({"answer_choice": "A"})
        elif options["schema"]:
            keys = options["schema"]["properties"].items()
            fills = {"array": [f"part {case}"], "string": f"of {case}"}
            said = json.dumps({k: fills[v["type"]] for k, v in keys})
            said = said.replace('"H_minus": "of', '"H_minus": "sepsis not')
        else:
            said = f'gout in "{case}" is part of it'
        said = "" if case in self.broken else said
        return [Reply(said, "stop", self.tokens, self.tokens, 0.1, self.name, i) for i in range(n)]


class Asked(HashEncoder):
    """The hash encoder, which counts how often it is asked."""

    calls = 0

    def encode(self, items, tower="query", progress=True):
        self.calls += 1
        return super().encode(items, tower, progress)


@pytest.fixture(autouse=True)
def one_hash_of_the_code(monkeypatch):
    """It takes half a second a cell, and no test here changes the code."""
    monkeypatch.setattr(provenance, "code_hash", lambda roots: "the same")


@pytest.fixture
def make(own_folders):
    """make(**changes) -> a Grid over the same passages, nothing carried over but the files."""
    encoder = HashEncoder(dim=64)
    passages = [Passage(i, f"Title {i}", t, "mine", {}) for i, t in zip(IDS, TEXTS, strict=True)]
    store = PassageStore.build(own_folders / "store.sqlite", passages)
    index = DenseIndex([encoder.encode(TEXTS, "article")], IDS)

    def grid(**changes) -> Grid:
        settings = {
            "profile": "test",
            "sets": {"mine": SET},
            "llm": Says(),
            "k": 3,
            "methods": methods_of(load_profile("mini")),
            "behind": {},
            "data": (),
            "retriever": Retriever(index, Asked(dim=64), store, BM25Index.build(TEXTS, IDS)),
        }
        return Grid(**settings | changes)

    return grid


class Silent:
    """An LLM that must not be asked."""

    name = Says.name

    def generate(self, *_, **__):
        raise AssertionError("an LLM was asked")

    tag = staticmethod(ChatModel.tag)


def readers_of(llm) -> list:
    return [
        EvidenceReader(HashEncoder(dim=64)),
        ChatReader(llm, "chat", max_tokens=64),
        ChoiceReader(llm, "choice", max_tokens=64),
    ]


# the contract of every arm -----------------------------------------------------------------------


def found(arm: str, question: Question) -> int:
    """How many passages a search gives: BM25 only those that share a word with the question."""
    if arm != "bm25":
        return DEPTH
    words = set(re.findall(r"\w+", question.text.lower())) - {"in"}
    return min(DEPTH, sum(bool(words & set(re.findall(r"\w+", t.lower()))) for t in TEXTS))


@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_gives_runs_contexts_and_answers(arm, make):
    grid = make()
    searched = arm not in NO_RETRIEVAL
    contexts = grid.contexts(arm, "mine", SET)
    if searched:
        run = grid.run(arm, "mine")
        assert list(run.columns) == ["dataset", "method", "qid", "rank", "pid", "score"]
        assert set(run["method"]) == {arm} and set(run["dataset"]) == {"mine"}
        for question, context in zip(SET, contexts, strict=True):
            own = run[run["qid"] == question.qid]
            assert list(own["rank"]) == list(range(1, found(arm, question) + 1))
            assert own["pid"].is_unique and own["score"].is_monotonic_decreasing
            assert [p.pid for p in context] == list(own["pid"])[:3]
            assert all(p.text == TEXTS[int(p.pid)] for p in context)
    elif arm == "closed_book":
        assert contexts == [[]] * len(SET)
    else:
        assert [[p.text for p in c] for c in contexts] == [
            [f"of case {i}", f"sepsis not case {i}"] for i in range(6)
        ]
    for reader in readers_of(Says()):
        told = grid.answers(arm, "mine", reader)
        if arm == "closed_book" and not reader.needs_llm:
            assert told is None
            continue
        assert list(told["qid"]) == [q.qid for q in SET]
        assert list(told["gold"]) == [q.answer for q in SET]
        assert set(told["letter"]) <= {"A", "B"} and set(told["reader"]) == {reader.name}
        again = reader.answer_all(SET, contexts)
        assert list(told["letter"]) == [a.letter for a in again]
    assert grid.missing == []


def test_a_larger_k_is_read_whole(make):
    grid = make(k=DEPTH + 4)
    for arm in ("standard", RANDOM):
        assert {len(c) for c in grid.contexts(arm, "mine", SET)} == {DEPTH + 4}
    small = make(k=99)
    assert {len(c) for c in small.contexts(RANDOM, "mine", SET)} == {len(TEXTS)}


def test_random_passages_are_the_questions_own_and_stay_the_same(make):
    one = make().run(RANDOM, "mine")
    two = make(profile="other", sets={"mine": SET[::-1]}).run(RANDOM, "mine")
    columns = ["qid", "rank", "pid"]
    assert one[columns].equals(two[columns].sort_values(["qid", "rank"], ignore_index=True))
    assert len(set(one.groupby("qid")["pid"].agg(tuple))) == len(SET)


# made once ---------------------------------------------------------------------------------------


def test_a_second_grid_reads_its_cells_and_asks_nobody(make):
    grid = make()
    llm = Says()
    first = [grid.run(a, "mine") for a in ("standard", "chr", "csqe", "chr+rotation")]
    first += [grid.expanded("chr", "mine")]
    first += [grid.answers("chr", "mine", reader) for reader in readers_of(llm)]
    again = make(llm=Silent())
    second = [again.run(a, "mine") for a in ("standard", "chr", "csqe", "chr+rotation")]
    second += [again.expanded("chr", "mine")]
    second += [again.answers("chr", "mine", reader) for reader in readers_of(Silent())]
    for a, b in zip(first, second, strict=True):
        pd.testing.assert_frame_equal(a, b)
    assert again.retriever.encoder.calls == 0 and grid.retriever.encoder.calls > 0


class Changed(Says):
    """The same model, which has learnt to say something else."""

    def _say(self, messages, n, options):
        replies = super()._say(messages, n, options)
        return [replace(r, text=r.text.replace("of case", "sepsis, not gout, in")) for r in replies]


RECORDED = ("chr", "hyde", "csqe", "chr+rotation")


def recorded_cells(make, llm: Says, file) -> tuple[list[pd.DataFrame], int]:
    """Cells whose texts and answers are recorded in ``file``, and how often ``llm`` was asked."""
    before = llm.asked.total()
    with Recorder(llm, file) as recorder:
        grid = make(llm=recorder)
        readers = (EvidenceReader(HashEncoder(dim=64)), ChatReader(recorder, "chat"))
        found = [grid.expanded(arm, "mine") for arm in ("chr", "hyde")]
        found += [grid.run(arm, "mine") for arm in RECORDED]
        found += [
            grid.answers(arm, "mine", r) for arm in (*RECORDED, *NO_RETRIEVAL) for r in readers
        ]
    return [table for table in found if table is not None], llm.asked.total() - before


def test_cells_follow_what_is_recorded_and_not_the_name_of_the_model(make, tmp_path):
    file = tmp_path / "live.jsonl"
    first, asked = recorded_cells(make, Says(), file)
    again, asked_again = recorded_cells(make, Says(), file)
    assert asked > 0 == asked_again, "what is recorded is not asked again"
    for a, b in zip(first, again, strict=True):
        pd.testing.assert_frame_equal(a, b)
    file.unlink()
    changed, asked = recorded_cells(make, Changed(), file)
    assert asked > 0 and "sepsis" in changed[0]["H_plus"][0] not in first[0]["H_plus"].tolist()
    assert not first[2].equals(changed[2]), "what CHR found"
    file.unlink()
    back, _ = recorded_cells(make, Says(), file)
    for a, b in zip(first, back, strict=True):
        pd.testing.assert_frame_equal(a, b)


def test_a_recording_that_is_added_to_makes_no_other_cell_anew(make, tmp_path):
    file = tmp_path / "live.jsonl"
    recorded_cells(make, Says(), file)
    with Recorder(Says(), file) as recorder:
        recorder.generate([{"role": "user", "content": "case 1, and something else"}])
        grid = make(llm=recorder)
        grid.run("chr", "mine")
    assert grid.retriever.encoder.calls == 0, "nothing was searched again"


IN_PLACE = {
    "text": {"text": "What harms in case 0?"},
    "options": {"options": {"A": "part 4", "B": "gout"}},
    "answer": {"answer": "B"},
}


@pytest.mark.parametrize("changed", IN_PLACE.values(), ids=IN_PLACE)
def test_a_question_that_is_changed_in_place_makes_its_cells_anew(
    changed, make, monkeypatch, tmp_path
):
    def cells(asked: list[Question]) -> list[pd.DataFrame]:
        grid, reader = make(sets={"mine": asked}), EvidenceReader(HashEncoder(dim=64))
        return [grid.run("standard", "mine"), grid.answers("standard", "mine", reader)]

    edited = [replace(SET[0], **changed), *SET[1:]]
    before, after = cells(SET), cells(edited)
    assert any(not old.equals(new) for old, new in zip(before, after, strict=True))
    monkeypatch.setenv("CHR_OUT", str(tmp_path / "fresh"))  # where nothing was made before
    for new, fresh in zip(after, cells(edited), strict=True):
        pd.testing.assert_frame_equal(new, fresh)


@dataclass(frozen=True)
class Mine:
    """A method of a reader's own, in one file: the question and a few words of advice."""

    name: str = "mine"
    words: tuple[str, ...] = ("gout",)
    weight: float = 0.5
    needs_llm: bool = True
    options_visible: bool = False

    def budget(self) -> Budget:
        """One request for one text."""
        return Budget((("mine", 0),), 1, 256)

    def expand(self, question, llm, search) -> Expansion:
        """Ask for advice and put it beside the question."""
        replies = llm.generate([{"role": "user", "content": question.text}])
        texts = [Text(question.text, 1.0, "query", "question")]
        texts += [Text(w, self.weight) for w in (*self.words, replies[0].text)]
        return Expansion(Hypotheses(tuple(texts)), {"replies": replies})


CHANGES = {
    "k": {"k": 2},
    "a setting": {"methods": {"mine": Mine(weight=0.7)}},
    "a setting that is a tuple": {"methods": {"mine": Mine(words=("gout", "sepsis"))}},
    "the questions": {"sets": {"mine": SET[:5]}},
    "what is behind": {"behind": {"encoder": "another"}},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_cell_is_made_anew_when_anything_behind_it_changes(change, make):
    same = {"methods": {"mine": Mine()}}
    make(**same).run("mine", "mine")
    kept = make(**same)
    kept.run("mine", "mine")
    assert kept.llm.asked.total() == 0
    changed = make(**same | change)
    changed.run("mine", "mine")
    assert changed.llm.asked.total() == len(changed.sets["mine"])
    for reader in readers_of(Says())[1:]:
        kept.answers("mine", "mine", reader)
        asked = reader.llm.asked.total()
        changed.answers("mine", "mine", reader)
        assert reader.llm.asked.total() == asked + len(changed.sets["mine"]) > asked > 0


class Other(Says):
    """Another model."""

    name = "other"


@pytest.mark.parametrize(
    "other",
    [
        lambda llm: ChatReader(Other(), "r"),
        lambda llm: ChatReader(llm, "r", max_tokens=9),
        lambda llm: ChoiceReader(llm, "r"),
        lambda llm: EvidenceReader(HashEncoder(dim=64), "r"),
    ],
)
def test_answers_are_made_anew_for_another_model_setting_or_kind_of_reader(other, make):
    grid, reader = make(), ChatReader(Says(), "r")
    before = grid.answers("standard", "mine", reader)
    asked = reader.llm.asked.total()
    grid.answers("standard", "mine", replace(reader))
    assert reader.llm.asked.total() == asked == len(SET)
    second = other(reader.llm)
    after = grid.answers("standard", "mine", second)
    assert list(after["rule"]) != list(before["rule"]) or second.llm.asked.total() > 0
    back = grid.answers("standard", "mine", reader)
    assert reader.llm.asked.total() > asked and back.equals(before)


def test_another_encoder_of_the_evidence_reader_makes_the_answers_anew(make):
    grid = make()
    for dim in (64, 64, 32):
        encoder = Asked(dim=dim)
        grid.answers("standard", "mine", EvidenceReader(encoder))
        last = encoder.calls
    assert last > 0


def test_fewer_questions_are_a_cell_of_their_own_and_always_the_same(make):
    grid, reader = make(), EvidenceReader(HashEncoder(dim=64))
    some = grid.answers("standard", "mine", reader, 3)
    backwards = make(profile="other", sets={"mine": SET[::-1]})
    again = backwards.answers("standard", "mine", reader, 3)
    assert len(some) == 3 and list(some["qid"]) == list(again["qid"])


# not run, failed, nothing found ------------------------------------------------------------------


def test_a_miss_is_not_run_with_one_row_and_its_command(make, tmp_path):
    recorder = Recorder(None, tmp_path / "absent.jsonl", "replay")
    grid = make(llm=recorder)
    how = "llm = lib.llm.connect('record:absent.jsonl=small'), and run this again"
    for _ in range(2):
        assert grid.run("chr", "mine") is None
        assert grid.missing == [{"dataset": "mine", "method": "chr", "reader": "", "how": how}]
    assert len(grid.run("standard", "mine")) == DEPTH * len(SET)
    reader = EvidenceReader(HashEncoder(dim=64))
    assert grid.answers("chr+rotation", "mine", reader) is None
    assert grid.answers("hypotheses_as_context", "mine", reader) is None
    assert grid.answers("standard", "mine", ChatReader(recorder, "chat")) is None
    assert {(m["method"], m["reader"]) for m in grid.missing} == {
        ("chr", ""),
        ("chr+rotation", ""),
        ("chr+rotation", "evidence reader"),
        ("hypotheses_as_context", "evidence reader"),
        ("standard", "chat"),
    }
    assert len(grid.missing) == 5 and {m["how"] for m in grid.missing} == {how}
    assert not list(results("test").rglob("*chr*"))
    grid.llm = Says()
    assert grid.run("chr", "mine") is not None  # nothing of the failure was kept


@dataclass(frozen=True)
class Unheard(Mine):
    """Looks for words that no passage has, or fails to say anything."""

    def expand(self, question, llm, search) -> Expansion:
        """Every other question fails; the rest find nothing."""
        if int(question.qid) % 2:
            return Expansion(None, {"error": "nothing was said"})
        return Expansion(Sparse("unheard of"))


def test_what_fails_or_finds_nothing_has_a_row_of_rank_0_and_an_empty_context(make):
    grid = make(methods={"unheard": Unheard(), "chr": METHODS["chr"]})
    run = grid.run("unheard", "mine")
    assert list(run["qid"]) == [q.qid for q in SET]
    assert set(run["rank"]) == {0} and set(run["pid"]) == {""}
    assert grid.contexts("unheard", "mine", SET) == [[]] * len(SET)
    expanded = grid.expanded("unheard", "mine")
    assert list(expanded["error"]) == ["", "nothing was said"] * 3
    grid.llm.broken = ("case 2", "case 4")
    run = grid.run("chr", "mine")
    failed = run[run["rank"] == 0]
    assert list(failed["qid"]) == ["0002", "0004"] and len(run) == 2 + DEPTH * 4
    contexts = dict(zip((q.qid for q in SET), grid.contexts("chr", "mine", SET), strict=True))
    assert {q: len(c) for q, c in contexts.items()} == {
        q.qid: 0 if q.qid in ("0002", "0004") else 3 for q in SET
    }
    hypotheses = grid.contexts("hypotheses_as_context", "mine", SET)
    assert [len(c) for c in hypotheses] == [2, 2, 0, 2, 0, 2]
    control = grid.run("chr+stranger", "mine")
    assert set(control[control["rank"] == 0]["qid"]) == {"0002", "0004"}
    assert (grid.expanded("chr", "mine")["error"] != "").sum() == 2


# what expansions say and cost --------------------------------------------------------------------


def test_expansions_are_costed_by_what_was_measured(make):
    grid = make()
    for arm, calls, tokens in (("standard", 0, 0), ("chr", 1, 7), ("hyde", 1, 21)):
        table = grid.expanded(arm, "mine")
        assert set(table["calls"]) == {calls} and list(table["qid"]) == [q.qid for q in SET]
        assert set(table["output_tokens"]) == set(table["prompt_tokens"]) == {tokens}
    said = grid.expanded("chr", "mine")
    assert list(said["H_plus"]) == [f"of case {i}" for i in range(6)]
    assert set(grid.expanded("hyde", "mine")["H_minus"]) == {""}


@pytest.mark.parametrize(
    "llm",
    [
        Says(None),
        ScriptedChat(
            [{"match": "H_plus", "text": json.dumps({"H_plus": "N/A", "H_minus": "sepsis"})}]
        ),
    ],
)
def test_what_was_not_measured_is_missing_and_never_0(llm, make):
    table = make(llm=llm).expanded("chr", "mine")
    assert table[["prompt_tokens", "output_tokens"]].isna().all(axis=None)
    assert set(table["calls"]) == {1} and set(table["error"]) == {""}
    if llm.name == REFERENCE:
        assert set(table["H_plus"]) == {"N/A"}  # text, whatever pandas would make of it


# question sets -----------------------------------------------------------------------------------


def test_ddx_mini_is_split_by_style_without_dev():
    every = load_questions("ddx-mini")
    sets = question_sets(["ddx-mini"])
    tests = [q for q in every if q.split != "dev"]
    assert len(tests) < len(every)
    assert set(sets) == {f"ddx-mini {q.subset}" for q in every} and len(sets) == 3
    assert sorted(q.qid for some in sets.values() for q in some) == sorted(q.qid for q in tests)
    for label, some in sets.items():
        assert {f"ddx-mini {q.subset}" for q in some} == {label}
        assert [q.qid for q in some] == sorted(q.qid for q in some)
    few = question_sets(["ddx-mini"], 5)
    assert {len(some) for some in few.values()} == {5}


@given(st.permutations(SET), st.integers(0, 8), st.integers(0, 3))
def test_a_sample_depends_on_the_ids_the_number_and_the_seed_alone(questions, n, seed):
    some = sampled(questions, n, seed)
    assert some == sampled(SET, n, seed)
    assert [q.qid for q in some] == sorted({q.qid for q in some})
    assert len(some) == (n if 0 < n < len(SET) else len(SET))
    # What was recorded for a smaller sample serves the larger one.
    assert {q.qid for q in sampled(SET, n - 1, seed)} <= {q.qid for q in some} or n < 2


def test_another_seed_is_another_sample():
    many = [replace(SET[0], qid=f"{i:03d}") for i in range(100)]
    assert sampled(many, 10, 0) != sampled(many, 10, 1)


# controls ----------------------------------------------------------------------------------------


def test_strangers_come_from_all_sets_and_never_from_the_question_itself(make):
    sets = {"one": SET[:2], "two": SET[2:]}
    grid = make(sets=sets)
    mimics = {f"sepsis not case {i}" for i in range(6)}
    for name, questions in sets.items():
        for question, made in zip(questions, grid.controlled("chr+stranger", name), strict=True):
            own = f"sepsis not case {int(question.qid)}"
            drawn = {t.text for t in made.request.of("mimic", "stranger")}
            assert drawn == mimics - {own} and made.request.spec.mimic == "stranger"
            assert made.trace["H_minus"] == own
            (first,) = made.request.of("mimic")
            assert first.text == own
    draws = {
        tuple(grid.run("chr+stranger", "one")["pid"]),
        *(
            tuple(execute("x", sets["one"], made, grid.retriever, DEPTH)[0]["pid"])
            for made in (grid.controlled("chr+stranger", "one", draw) for draw in range(5))
        ),
    }
    assert len(draws) == 5  # the first draw is the run's


def test_a_control_is_made_anew_when_any_set_changes_and_chr_is_not(make):
    sets = {"one": SET[:2], "two": SET[2:]}
    first = make(sets=sets)
    own = {arm: first.run(arm, "one") for arm in ("chr", *CONTROLS)}
    fewer = make(sets=sets | {"two": SET[2:3]})
    for arm in CONTROLS:
        fewer.run(arm, "one")
    assert fewer.llm.asked.total() == 3
    again = make(sets=sets | {"two": SET[2:3]}, llm=Silent())
    assert again.run("chr", "one").equals(own["chr"])
    again.run("chr+stranger", "one")


def test_an_unknown_control_is_refused_with_those_there_are(make):
    with pytest.raises(ValueError, match="no control 'noise'; there are: chr.stranger"):
        make().controlled("noise", "mine")


def test_a_question_alone_has_no_control_and_that_is_not_run(make):
    """A search that nobody could make is no search that found nothing."""
    grid = make(sets={"mine": SET[:1]})
    for arm in CONTROLS:
        assert grid.run(arm, "mine") is None
    assert {row["method"] for row in grid.missing} == set(CONTROLS)
    assert {row["how"] for row in grid.missing} == {"ask more questions"}


# a new method ------------------------------------------------------------------------------------


def test_a_method_that_is_registered_is_in_every_table(make, monkeypatch):
    monkeypatch.setitem(METHODS, "mine", Mine())
    methods = methods_of(load_profile("mini"), mine={"weight": 0.25})
    assert methods["mine"] == Mine(weight=0.25)
    grid = make(methods=methods)
    arms = [a for a in grid.methods if not grid.methods[a].needs_llm or a in ("chr", "mine")]
    assert set(grid.run("mine", "mine")["method"]) == {"mine"}
    answers = pd.concat(
        [grid.answers(a, "mine", r) for a in arms for r in readers_of(Says())[:2]],
        ignore_index=True,
    )
    table = accuracy_table(answers, {a: m.options_visible for a, m in methods.items()})
    own = table[(table["method"] == "mine") & (table["metric"] == "accuracy")]
    assert list(own["answerer"]) == ["evidence reader", "chat"] and set(own["n"]) == {len(SET)}
    assert not own["options_visible"].any()
    costs = cost_table(pd.concat([grid.expanded(a, "mine") for a in arms]))
    mine = costs.set_index("method").loc["mine"]
    assert (mine["calls"], mine["output_tokens"], mine["n"], mine["failed"]) == (1, 7, 6, 0)
    assert pd.isna(mine["reported_calls"])


def test_a_grid_needs_no_chr(make):
    grid = make(methods={"standard": METHODS["standard"]}, llm=None)
    for arm in ("standard", RANDOM):
        assert len(grid.run(arm, "mine")) == DEPTH * len(SET)


def test_accuracy_is_what_anyone_counts_in_the_answers_file(make):
    grid, reader = make(), EvidenceReader(HashEncoder(dim=64))
    answers = pd.concat([grid.answers(a, "mine", reader) for a in ("standard", "chr", "hyde")])
    table = accuracy_table(answers, {})
    for arm in ("standard", "chr", "hyde"):
        (file,) = results("test").glob(f"cells/mine-{arm}-evidence-reader*.csv")
        with open(file, newline="") as stream:
            rows = list(csv.DictReader(stream))
        right = sum(row["letter"] == row["gold"] for row in rows)
        shown = table[(table["method"] == arm) & (table["metric"] == "accuracy")].iloc[0]
        assert (shown["value"], shown["n"]) == (right / len(rows), len(SET))


def test_what_asks_an_llm_is_run_on_a_sample_and_the_rest_on_every_question(make):
    grid = make(asked=2)
    few = {q.qid for q in sampled(SET, 2)}
    for arm in ARMS:
        llm = (
            arm == "hypotheses_as_context"
            or "chr" in arm
            or getattr(METHODS.get(arm), "needs_llm", False)
        )
        wanted = few if llm else {q.qid for q in SET}
        assert {q.qid for q in grid.questions(arm, "mine")} == wanted, arm
        if arm not in NO_RETRIEVAL:
            assert set(grid.run(arm, "mine")["qid"]) == wanted
    reader = readers_of(Says())[0]
    assert set(grid.answers("standard", "mine", reader)["qid"]) == {q.qid for q in SET}
    assert set(grid.answers("chr", "mine", reader)["qid"]) == few
    assert {q.qid for q in grid.questions("standard", "mine", 2)} == few
    assert set(grid.expanded("chr", "mine")["qid"]) == few
