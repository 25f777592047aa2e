"""The grid and the paper's tables on small made-up sets: made once, remade when anything behind
them changes, NOT RUN when they must; and what anyone can count again in what is kept."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, replace
from types import SimpleNamespace

import ir_measures
import numpy as np
import pandas as pd
import pytest

from lib.base import paths, provenance
from lib.benchmarks import ddx_mini
from lib.data.passages import Passage
from lib.data.store import PassageStore
from lib.datasets import Question, dev_of, load_questions
from lib.embed import HashEncoder
from lib.llm.chat import ChatModel, Reply, current_tag
from lib.llm.connect import NotServed
from lib.llm.recorder import Recorder
from lib.methods import (
    METHODS,
    SHIPPED,
    Budget,
    Expansion,
    Hypotheses,
    Sparse,
    Text,
    register,
)
from lib.methods.base import question_alone
from lib.methods.chr import CHR
from lib.pages.readable import by_method
from lib.plots import COLOURS, figures
from lib.plots.labels import GREY
from lib.profiles import load_profile, methods_of
from lib.query_spec import DRAWS
from lib.readers import ChatReader, ChoiceReader, EvidenceReader
from lib.run import Retriever
from lib.search.bm25 import BM25Index
from lib.search.index import DenseIndex
from lib.studies.main_tables import accuracy, again, tables
from lib.studies.main_tables.experiment import (
    CHOSEN,
    CONTROLS,
    DEPTH,
    NAMED,
    NO_RETRIEVAL,
    RANDOM,
    RUN_COLUMNS,
    Experiment,
    open_experiment,
)
from lib.studies.main_tables.tables import COLUMNS
from tests.rocchio import Rocchio

TEXTS = [f"passage {i} on {'gout' if i % 2 else 'sepsis'} and part number {i}" for i in range(30)]
IDS = [f"{i:03d}" for i in range(30)]
"""Ids of questions and passages that look like numbers, as MedQA's and PubMed's do."""
ARMS = (*SHIPPED, CHOSEN, *CONTROLS, RANDOM, *NO_RETRIEVAL)


def cases(n: int, **options) -> list[Question]:
    options = options or {"A": "gout", "B": "sepsis"}
    return [
        Question(f"{i:04d}", f"What in case {i}?", options, "AB"[i % 2], "mine") for i in range(n)
    ]


SET = cases(6)


class Says(ChatModel):
    """Answers every kind of prompt with words of its own for each case, and counts by method.

    On ``sick`` cases it says nothing that can be used; ``said`` is H+ by case where it is given.
    """

    name = "says"

    def __init__(self, tokens: int | None = 5, sick: tuple[str, ...] = (), said=(), word="gout"):
        self.asked, self.tokens, self.sick = Counter(), tokens, sick
        self.said, self.word = dict(said), word

    def _say(self, messages, n, options):
        text = "\n".join(message["content"] for message in messages)
        case = next((c for c in (f"case {i}" for i in range(9)) if c in text), "no case")
        self.asked[current_tag().get("method", "")] += n
        said = f"{self.word} in {case} is part of it"
        if options.get("choices"):
            said = json.dumps({c: -float(i) for i, c in enumerate(options["choices"])})
        elif "answer_choice" in text:
            said = json.dumps({"answer_choice": "AB"[len(text) % 2]})
        elif options["schema"]:
            fills = {"array": [f"part {case}"], "string": f"{self.word} of {case}"}
            keys = {k: fills[v["type"]] for k, v in options["schema"]["properties"].items()}
            if "H_plus" in keys:
                keys |= {"H_plus": self.said.get(case, keys["H_plus"])}
                keys |= {"H_minus": f"sepsis of part {case[-1:]}, not {case}"}
            said = json.dumps(keys)
        if case in self.sick:
            said = ""
        return [Reply(said, "stop", self.tokens, self.tokens, 0.1, self.name, i) for i in range(n)]


class Counted(HashEncoder):
    """The hash encoder, which counts how often it is asked."""

    calls = 0

    def encode(self, items, tower="query", progress=True):
        self.calls += 1
        return super().encode(items, tower, progress)


CODE_HASH = provenance.code_hash


@pytest.fixture(autouse=True)
def one_hash_of_the_code(monkeypatch):
    """It takes half a second a cell, and no test here changes the code."""
    monkeypatch.setattr(provenance, "code_hash", lambda roots: "the same")


@pytest.fixture
def make(own_folders):
    """make(**changes) -> an Experiment on the same passages; nothing is carried over but files."""
    encoder = HashEncoder(dim=64)
    passages = [Passage(i, f"Title {i}", t, "mine", {}) for i, t in zip(IDS, TEXTS, strict=True)]
    store = PassageStore.build(own_folders / "store.sqlite", passages)
    index = DenseIndex([encoder.encode(TEXTS, "article")], IDS)

    def opened(questions=SET, k: int = 3, **changes) -> Experiment:
        profile = replace(load_profile("mini"), name="test", k=k)
        methods = methods_of(profile)
        settings = {
            "profile": profile,
            "sets": {"mine": questions},
            "llm": Says(),
            "methods": methods | {CHOSEN: replace(methods["chr"], name=CHOSEN, lam=0.4)},
            "readers": [EvidenceReader(encoder)],
            "retriever": Retriever(index, Counted(dim=64), store, BM25Index.build(TEXTS, IDS)),
        }
        return Experiment(**settings | changes)

    return opened


def readers_of(llm) -> list:
    return [
        EvidenceReader(HashEncoder(dim=64)),
        ChatReader(llm, "chat", max_tokens=64),
        ChoiceReader(llm, "choice", max_tokens=64),
    ]


# cells -------------------------------------------------------------------------------------------


def test_every_arm_gives_runs_contexts_and_answers(make):
    lab = make()
    assert set(lab.arms) == set(ARMS)
    for arm in ARMS:
        contexts = lab.contexts(arm, "mine", SET)
        if arm == "closed_book":
            assert contexts == [[]] * len(SET)
        elif arm == "hypotheses_as_context":
            texts = [passage.text for passage in contexts[1]]
            assert texts == ["gout of case 1", "sepsis of part 1, not case 1"]
        else:
            run = lab.run_of(arm, "mine")
            assert list(run.columns) == RUN_COLUMNS and set(run["method"]) == {arm}
            for question, context in zip(SET, contexts, strict=True):
                rows = run[run["qid"] == question.qid]
                assert list(rows["rank"]) == list(range(1, len(rows) + 1)), arm
                assert len(rows) == DEPTH or arm == "bm25"  # only what shares a word with it
                assert rows["pid"].is_unique and rows["score"].is_monotonic_decreasing, arm
                assert [p.pid for p in context] == list(rows["pid"])[:3], arm
                assert all(p.text == TEXTS[int(p.pid)] for p in context)
        for reader in readers_of(Says()):
            answers = lab.answers_of(arm, "mine", reader)
            if arm == "closed_book" and not reader.needs_llm:
                assert answers is None
                continue
            assert list(answers["qid"]) == [q.qid for q in SET]
            assert list(answers["gold"]) == [q.answer for q in SET]
            read = reader.answer_all(SET, contexts)
            assert list(answers["letter"]) == [answer.letter for answer in read], arm
    assert lab.missing == {}


def test_a_larger_k_is_read_whole(make):
    lab = make(k=DEPTH + 4)
    for arm in ("standard", RANDOM):
        assert {len(context) for context in lab.contexts(arm, "mine", SET)} == {DEPTH + 4}


def test_a_killed_run_goes_on_where_it_was(make):
    class Killed(Says):
        def _say(self, messages, n, options):
            if self.asked.total() == 20:
                raise KeyboardInterrupt
            return super()._say(messages, n, options)

    model = Killed()
    with pytest.raises(KeyboardInterrupt):
        make(readers=[ChatReader(model, "chat", workers=1)]).answers()
    rest = Says()
    answers = make(readers=[ChatReader(rest, "chat", workers=1)]).answers()
    # Three cells of six questions were whole; the fourth is begun anew.
    assert rest.asked.total() == len(ARMS) * len(SET) - 18 == len(answers) - 18


def recorded_cells(make, llm: Says, file) -> list[pd.DataFrame]:
    """Cells whose texts and answers are recorded in ``file``."""
    with Recorder(llm, file) as recorder:
        lab = make(llm=recorder)
        arms = ("chr", "hyde", "csqe", "chr+rotation")
        made = [lab.run_of(arm, "mine") for arm in arms]
        for arm in (*arms, *NO_RETRIEVAL):
            made += [lab.answers_of(arm, "mine", reader) for reader in readers_of(recorder)[1:]]
    return made


def test_cells_follow_what_is_recorded_and_not_the_name_of_the_model(make, tmp_path):
    file = tmp_path / "live.jsonl"
    first, again_ = Says(), Says()
    made = recorded_cells(make, first, file)
    with Recorder(Says(), file) as recorder:
        recorder.generate([{"role": "user", "content": "case 1, and something else"}])
        lab = make(llm=recorder)
        lab.run_of("chr", "mine")
        assert lab.retriever.encoder.calls == 0, "what was added belongs to no other cell"
    kept = recorded_cells(make, again_, file)
    assert first.asked and not again_.asked, "what is recorded is not asked again"
    file.unlink()
    changed = recorded_cells(make, Says(word="lupus"), file)
    assert not made[0].equals(changed[0])
    for a, b in zip(made, kept, strict=True):
        pd.testing.assert_frame_equal(a, b)


@dataclass(frozen=True)
class Mine:
    """A method of a reader's own, in one file: the question and a few words of advice."""

    name: str = "mine"
    words: tuple[str, ...] = ("gout",)
    weight: float = 0.5
    needs_llm: bool = True
    options_visible: bool = False
    max_tokens: int = 77

    def budget(self) -> Budget:
        """One request for one text."""
        return Budget((("mine", 1),), 1, self.max_tokens)

    def expand(self, question, llm, search) -> Expansion:
        """Look once, ask for advice on what was found, and put it beside the question."""
        hits = search(question_alone(question), 1)
        replies = llm.generate([{"role": "user", "content": f"{question.text} {hits[0][1]}"}])
        texts = [Text(question.text, 1.0, "query", "question")]
        texts += [Text(word, self.weight) for word in (*self.words, replies[0].text)]
        return Expansion(Hypotheses(tuple(texts)), {"replies": replies})


CHANGES = {
    "k": {"k": 2},
    "a setting": {"methods": {"mine": Mine(words=("gout", "sepsis"))}},
    "how many questions": {"questions": SET[:5]},
    "its options": {"questions": [replace(SET[0], options={"A": "x", "B": "y"}), *SET[1:]]},
    "its answer": {"questions": [replace(SET[0], answer="B"), *SET[1:]]},
    "what is behind": {"behind": {"encoder": "another"}},
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_cell_is_made_anew_when_anything_behind_it_changes(change, make):
    same, reader = {"methods": {"mine": Mine()}}, ChatReader(Says(), "chat")
    make(**same).answers_of("mine", "mine", reader)
    kept = make(**same)
    reader.llm.asked.clear()
    kept.answers_of("mine", "mine", reader)
    assert kept.llm.asked.total() == reader.llm.asked.total() == 0
    changed = make(**same | CHANGES[change])
    changed.answers_of("mine", "mine", reader)
    asked = len(changed.sets["mine"])
    assert changed.llm.asked.total() == reader.llm.asked.total() == asked


def test_answers_are_made_anew_for_another_model_setting_or_kind_of_reader(make):
    class Other(Says):
        name = "other"

    lab = make()
    readers = [ChatReader(Says(), "r"), ChatReader(Other(), "r")]
    readers += [ChatReader(Says(), "r", max_tokens=9), ChoiceReader(Says(), "r")]
    for reader in readers:
        for wanted in (len(SET), 0):
            reader.llm.asked.clear()
            lab.answers_of("standard", "mine", reader)
            assert reader.llm.asked.total() == wanted


# not run, failed, nothing found ------------------------------------------------------------------


def test_without_a_recording_a_cell_is_not_run_and_its_command_is_named(make, tmp_path):
    silent = Recorder(None, tmp_path / "none.jsonl", "replay")
    lab = make(
        llm=silent,
        methods={"standard": METHODS["standard"], "chr": METHODS["chr"]},
        readers=[ChatReader(silent, "r")],
    )
    assert len(lab.run_of("standard", "mine")) == DEPTH * len(SET)
    answers = lab.answers()
    made = (answers, lab.expanded(), tables.table3(lab), tables.claims(lab, answers))
    more = (tables.table2(lab, answers), tables.figure5(lab, (0.0, 1.0), {}))
    assert all(table.empty and len(table.columns) > 3 for table in (*made, *more))
    assert set(tables.table1(lab, answers)["method"]) == {"majority"}
    how = "llm = lib.llm.connect('record:none.jsonl=small'), and run this again"
    assert set(lab.not_run()["how"]) == {how} and set(lab.not_run()["sets"]) == {1}
    assert {("mine", "chr", ""), ("mine", "standard", "r")} < set(lab.missing)
    assert not list(paths.results("test").glob("cells/*chr*"))
    lab.llm = Says()
    assert lab.run_of("chr", "mine") is not None  # nothing of the failure was kept


@dataclass(frozen=True)
class Unheard(Mine):
    """Looks for words that no passage has, or fails to say anything."""

    def expand(self, question, llm, search) -> Expansion:
        """Every other question fails; the rest find nothing."""
        if int(question.qid) % 2:
            return Expansion(None, {"error": "nothing was said"})
        return Expansion(Sparse("unheard of"))


def test_what_fails_or_finds_nothing_has_a_row_of_rank_0_and_an_empty_context(make):
    methods = {"unheard": Unheard(), "chr": METHODS["chr"]}
    lab = make(methods=methods, llm=Says(sick=("case 2", "case 4")))
    run = lab.run_of("unheard", "mine")
    assert list(run["qid"]) == [q.qid for q in SET]
    assert set(run["rank"]) == {0} and set(run["pid"]) == {""}
    assert lab.contexts("unheard", "mine", SET) == [[]] * len(SET)
    errors = lab.expanded().set_index("method")["error"]
    assert list(errors["unheard"]) == ["", "nothing was said"] * 3
    assert (errors["chr"] != "").sum() == 2
    for arm in ("chr", "chr+stranger"):
        run = lab.run_of(arm, "mine")
        assert list(run[run["rank"] == 0]["qid"]) == ["0002", "0004"]
        assert len(run) == 2 + DEPTH * 4
    for arm, n in (("chr", 3), ("hypotheses_as_context", 2)):
        contexts = lab.contexts(arm, "mine", SET)
        assert [len(context) for context in contexts] == [n, n, 0, n, 0, n]


@pytest.mark.parametrize("tokens", [7, None])
def test_expansions_are_costed_by_what_was_measured_and_never_as_0(tokens, make):
    costs = make(llm=Says(tokens)).expanded().set_index("method")
    for method, replies in (("chr", 1), ("hyde", 3)):
        table = costs.loc[method]
        assert set(table["calls"]) == {replies} and list(table["qid"]) == [q.qid for q in SET]
        if tokens is None:
            assert table[["prompt_tokens", "output_tokens"]].isna().all(axis=None)
        else:
            assert set(table["output_tokens"]) == {7 * replies}


# controls ----------------------------------------------------------------------------------------


def test_random_mimics_come_from_all_sets_and_never_from_the_question_itself(make):
    sets = {"one": SET[:2], "two": SET[2:]}
    lab = make(sets=sets)
    mimics = {f"sepsis of part {i}, not case {i}" for i in range(6)}
    for name in sets:
        for qid, request in lab.requests("chr+stranger", name).items():
            own = f"sepsis of part {int(qid)}, not case {int(qid)}"
            drawn = {text.text for text in request.of("mimic", "stranger")}
            assert drawn == mimics - {own} and request.spec.mimic == "stranger"
            assert own == request.of("mimic")[0].text
    before = {arm: lab.run_of(arm, "one") for arm in ("chr", *CONTROLS)}
    fewer = make(sets=sets | {"two": SET[2:3]})
    for arm in CONTROLS:
        fewer.run_of(arm, "one")
    assert fewer.llm.asked.total() == 3, "a control is made anew when any set changes"
    kept = make(sets=sets)
    assert kept.run_of("chr", "one").equals(before["chr"]) and not kept.llm.asked


def test_a_question_alone_has_no_control_and_that_is_not_run(make):
    """A search that nobody could make is no search that found nothing."""
    lab = make(questions=SET[:1])
    for arm in CONTROLS:
        assert lab.run_of(arm, "mine") is None
    assert lab.missing == {("mine", arm, ""): "ask more questions" for arm in CONTROLS}


def test_a_controls_retrieval_is_the_mean_over_its_draws(make):
    """Each draw by itself: what is published under its name is no single draw's luck."""
    lab = make()
    targets = {q.qid: frozenset({"001", "003", "008"}) for q in SET}
    table = lab.quality(lab.runs(), targets, {}).set_index("method")
    values = provenance.read_result("values_retrieval", "test")[0]
    for arm in CONTROLS:
        requests = lab.requests(arm, "mine")
        shares = np.zeros((DRAWS, len(SET)))
        for draw in range(DRAWS):
            for i, q in enumerate(SET):
                found = lab.retriever.search(requests[q.qid].by(draw=draw), 3)
                shares[draw, i] = len(targets[q.qid] & {pid for pid, _ in found}) / 3
        assert table.loc[arm, "p_at_5"] == pytest.approx(shares.mean())
        rows = values[(values["arm"] == arm) & (values["metric"] == "p_at_5")].set_index("qid")
        measured = rows["value"].reindex(list(targets)).tolist()
        assert measured == pytest.approx(shares.mean(axis=0), abs=6e-4)


def test_other_programs_read_the_runs_and_judgments_of_a_table(make):
    lab = make()
    targets = {q.qid: frozenset({"001", "003", "008"}) for q in SET}
    table = lab.quality(lab.runs(), targets, {}).set_index("method")
    folder = paths.results("test") / "trec" / "retrieval" / "mine"
    qrels = list(ir_measures.read_trec_qrels(str(folder / "qrels.txt")))
    assert {file.stem for file in folder.glob("*.run")} == set(table.index)
    measure = ir_measures.P @ lab.k
    for file in folder.glob("*.run"):
        if file.stem not in CONTROLS:  # whose row is a mean over draws
            run = list(ir_measures.read_trec_run(str(file)))
            found = ir_measures.calc_aggregate([measure], qrels, run)[measure]
            assert table.loc[file.stem, "p_at_5"] == pytest.approx(found, abs=6e-4)


# what a run asks for -----------------------------------------------------------------------------


def test_the_plan_is_what_a_model_is_really_asked(make):
    llm = Says()
    readers = [ChatReader(llm, "chat", max_tokens=9), ChoiceReader(llm, "choice")]
    lab = make(llm=llm, readers=readers)
    plan = lab.plan().set_index("who")
    lab.expanded()
    asked = {f"expand: {m}": n for m, n in llm.asked.items() if m != "hplus"}
    llm.asked.clear()
    lab.runs()  # CHR at the chosen lambda asks what CHR asked: a recording has it
    assert set(llm.asked) == {CHOSEN}
    llm.asked.clear()
    lab.answers()
    asked |= {f"answer: {m}": n for m, n in llm.asked.items()}
    assert asked == plan["generations"].to_dict() and lab.not_run().empty
    most = (plan["output_tokens_at_most"] / plan["generations"]).to_dict()
    assert (most["answer: chat"], most["answer: choice"], most["expand: chr"]) == (9, 1, 512)


def test_what_failed_is_asked_for_again_by_a_command_and_nothing_else_is(make, tmp_path, capsys):
    methods = {name: METHODS[name] for name in ("standard", "query2doc", "hplus", "chr")}

    def opened(llm: Says) -> Experiment:
        recorder = Recorder(llm, tmp_path / "live.jsonl")
        return make(llm=recorder, methods=methods, readers=[ChatReader(recorder, "chat")])

    lab = opened(Says(sick=("case 0", "case 2")))
    lab.answers()
    table = lab.expanded()
    failed = table[table["error"] != ""].groupby("method")["qid"].agg(set).to_dict()
    assert failed == dict.fromkeys(("query2doc", "hplus", "chr"), {"0000", "0002"})
    message = capsys.readouterr().err
    assert "6 texts of says could not be used" in message and "make again" in message
    half = again.expand_again(opened(Says(sick=("case 0",)))).set_index("who")
    assert half.loc["expand: chr"].tolist() == half.loc["expand: query2doc"].tolist() == [2, 1]
    well = Says()
    assert again.expand_again(opened(well))["left"].tolist() == [0, 0]
    assert well.asked == {"chr": 1, "query2doc": 1}
    letters = again.answer_again(opened(well)).set_index("who").loc["answer: chat"]
    assert letters["failed"] > 0 == letters["left"]
    last = Says()
    lab = opened(last)
    assert (lab.answers()["letter"] != "").all() and (lab.expanded()["error"] == "").all()
    assert last.asked.total() == 0 and capsys.readouterr().err == ""


def test_where_everything_is_replayed_nobody_can_be_asked_again(own_folders, monkeypatch):
    monkeypatch.setattr("sys.argv", ["again", "--profile", "mini", "--limit", "2"])
    with pytest.raises(ValueError, match="mini-2 only replays.*docs/profiles.md"):
        again.main()


# tables on reference text ------------------------------------------------------------------------

UNRECORDED = {"csqe", "thinkqe"}
"""Under the hash encoder they are shown other passages than the recorded requests hold."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Three ddx-mini questions a style, the hash encoder, two readers; the second heard only the
    closed book. All tables, made once."""
    folder = tmp_path_factory.mktemp("experiment")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHR_CACHE", str(folder / "cache"))
        patch.setenv("CHR_OUT", str(folder / "out"))
        patch.setattr(provenance, "code_hash", lambda roots: "the same")
        chat = {"kind": "chat", "name": "chat", "max_tokens": 64}
        chat["llm"] = f"replay:{folder / 'chat.jsonl'}"
        answerers = ({"kind": "evidence", "name": "evidence reader"}, chat)
        profile = load_profile("mini", encoder="hash", sample=3, answerers=answerers)
        with Recorder(Says(), folder / "chat.jsonl") as recorder:
            asked = load_questions("ddx-mini")
            ChatReader(recorder, "chat", max_tokens=64).answer_all(asked, [[] for _ in asked])
        lab = open_experiment(profile)
        runs, answers, (targets, mimics) = lab.runs(), lab.answers(), lab.relevance()
        yield SimpleNamespace(
            lab=lab,
            runs=runs,
            answers=answers,
            quality=lab.quality(runs, targets, mimics),
            table1=tables.table1(lab, answers),
            table2=tables.table2(lab, answers),
            table3=tables.table3(lab),
            figure5=tables.figure5(lab, (0.0, 0.4, 1.0), targets),
            claims=tables.claims(lab, answers),
        )


def accuracy_of(table: pd.DataFrame, method: str, answerer: str) -> dict[str, float]:
    own = table[(table["metric"] == "accuracy") & (table["method"] == method)]
    return own[own["answerer"] == answerer].set_index("dataset")["value"].to_dict()


def test_what_is_not_recorded_is_not_run_named_and_never_filled_in(whole):
    searched = set(whole.lab.arms) - {*NO_RETRIEVAL} - UNRECORDED
    counts = whole.runs.groupby(["dataset", "method"])["qid"].nunique()
    assert set(counts.index.get_level_values("method")) == searched
    assert len(counts) == 3 * len(searched) and set(counts) == {3}
    read = whole.answers.groupby("reader")["method"].unique()
    assert set(read["evidence reader"]) == searched | {"hypotheses_as_context"}
    assert set(read["chat"]) == {"closed_book"}
    for table in (whole.table1, whole.table2, whole.table3, whole.quality):
        assert len(table) and UNRECORDED.isdisjoint(table["method"])
    assert set(whole.claims["baseline"]) == searched & set(METHODS) - {"chr"}
    assert set(whole.claims["status"]) == {"exploratory"}
    rows = whole.lab.not_run().set_index(["method", "reader"])
    assert rows.index.is_unique and rows.loc[("csqe", ""), "sets"] == 3
    assert "connect('small')" in rows.loc[("csqe", ""), "how"]
    assert "record:chat.jsonl=openai:says" in rows.loc[("standard", "chat"), "how"]


def test_stored_tables_say_how_they_were_made_and_who_saw_the_options(whole):
    profile = whole.lab.profile.name
    for name in ("table1", "table2", "table3", "figure5"):
        stored, settings = provenance.read_result(name, profile)
        assert tuple(stored)[: len(COLUMNS)] == COLUMNS
        assert set(stored["setup"]) == {f"{profile}, hash, reference text, k = 5"}
        assert (stored["verdict"].notna() == stored["reported"].notna()).all(), name
        inside = stored.dropna(subset=["low"])
        assert inside["value"].between(inside["low"], inside["high"]).all()
        assert (settings["k"], settings["lam"]) == (5, 0.4)
        assert settings["encoder"].startswith("hash|") and "reference.jsonl" in str(settings)
    seen = whole.table1.groupby("method")["options_visible"].agg(lambda x: set(x.dropna()))
    for arm in ("chr", CHOSEN, "hplus", "chr+rotation", NAMED, "hypotheses_as_context"):
        assert seen[arm] == {True}, arm
    for arm in ("standard", "hyde", "query2doc"):
        assert seen[arm] == {False}, arm
    for arm in ("closed_book", RANDOM, "majority"):
        assert seen[arm] == set(), arm
    costs = whole.table3.set_index("method")
    assert set(costs["calls"].drop("hyde")) == {1}  # hyde has three samples
    assert costs[["prompt_tokens", "output_tokens"]].isna().all(axis=None)
    assert costs.loc["chr", "reported_output_tokens"] == 303


def test_table_1_is_what_anyone_counts_in_the_answers(whole):
    majority = accuracy_of(whole.table1, "majority", "no reader")
    for dataset, questions in whole.lab.sets.items():
        counts = Counter(question.answer for question in questions)
        assert majority[dataset] == max(counts.values()) / len(questions)
    right = whole.answers["letter"] == whole.answers["gold"]
    counted = right.groupby([whole.answers[c] for c in ("method", "reader", "dataset")]).mean()
    for (method, reader), own in counted.groupby(level=[0, 1]):
        assert accuracy_of(whole.table1, method, reader) == own.droplevel([0, 1]).to_dict()


def test_figure_5_begins_at_h_plus_and_its_lambda_1_is_chr(whole):
    for lam, method in ((0.0, "hplus"), (0.4, CHOSEN), (1.0, "chr")):
        at = whole.figure5[whole.figure5["lambda"] == lam].set_index(["metric", "series"])
        shown = at.loc["accuracy, evidence reader", "value"].to_dict()
        assert shown == pytest.approx(accuracy_of(whole.table1, method, "evidence reader"))
        own = whole.quality[whole.quality["method"] == method].set_index("dataset")
        assert at.loc["P@k", "value"].to_dict() == pytest.approx(own["p_at_5"].to_dict())
        assert set(at["n"]) == {3}


def top(whole, method: str, qid: str) -> set[str]:
    own = whole.runs[(whole.runs["method"] == method) & (whole.runs["qid"] == qid)]
    return set(own[own["rank"].between(1, 5)]["pid"])


def test_table_2_is_what_anyone_counts_in_the_runs(whole):
    everything = whole.table2[whole.table2["reader"] == ""].set_index(["dataset", "method"])
    by_outcome = whole.table2[whole.table2["reader"] == "evidence reader"]
    by_outcome = by_outcome.set_index(["dataset", "outcome"])
    answers = whole.answers[whole.answers["reader"] == "evidence reader"]
    answers = answers.assign(right=answers["letter"] == answers["gold"])
    right = answers.set_index(["method", "qid"])["right"].to_dict()
    for dataset, questions in whole.lab.sets.items():
        for method in ("standard", "hyde", CHOSEN, RANDOM, "chr+rotation"):
            shared = [len(top(whole, "chr", q.qid) & top(whole, method, q.qid)) for q in questions]
            row = everything.loc[(dataset, method)]
            assert row["count"] == pytest.approx(np.mean(shared)) and row["n"] == 3
            assert row["zero"] == pytest.approx(np.mean([s == 0 for s in shared]))
        both = [(right["chr", q.qid], right["hyde", q.qid]) for q in questions]
        kinds = ((True, True), (True, False), (False, True), (False, False))
        for outcome, kind in zip(accuracy.OUTCOMES[1:], kinds, strict=True):
            assert by_outcome.loc[(dataset, outcome), "n"] == both.count(kind)
    together = by_outcome.loc["ddx-mini combined"]
    assert together["n"].to_dict() == by_outcome["n"].groupby(level=1).sum().div(2).to_dict()


def test_the_noise_floor_is_hyde_from_disjoint_samples(whole):
    written = {row["qid"]: row["hyde"] for row in ddx_mini.read("expansions")}
    floor = whole.table2[whole.table2["method"] == "noise floor"].set_index("dataset")
    for dataset, questions in whole.lab.sets.items():
        shared = []
        for q in questions:
            first, second = (
                Hypotheses((Text(q.text, 1.0, "query"), *(Text(t) for t in some)))
                for some in (written[q.qid][::2], written[q.qid][1::2])
            )
            found = [whole.lab.retriever.search(request, 5) for request in (first, second)]
            shared.append(len({p for p, _ in found[0]} & {p for p, _ in found[1]}))
        assert floor.loc[dataset, "count"] == pytest.approx(np.mean(shared))


# tables on made-up models ------------------------------------------------------------------------


def test_the_expanders_own_answer_is_the_option_that_h_plus_names(make):
    said = {  # H+, and the letter it names; None: what the reader makes of H+ and H-
        "case 0": ("This is acute sepsis of a toe.", "B"),
        "case 1": ("Gout, of the toe.", "A"),
        "case 2": ("Gout is not acute sepsis.", None),
        "case 3": ("Ragout, a dish.", None),
        "case 4": ("Something else in part 4.", None),
        "case 5": ("", ""),  # a failed expansion has no answer
    }
    llm = Says(said={case: h_plus for case, (h_plus, _) in said.items()})
    questions = cases(6, A="gout", B="acute sepsis")
    lab = make(questions, llm=llm, methods={"chr": METHODS["chr"]})
    reader = lab.readers[0]
    by_reader = lab.answers_of("hypotheses_as_context", "mine", reader)["letter"]
    wanted = [by_reader[i] if x is None else x for i, (_, x) in enumerate(said.values())]
    right = np.mean([x == q.answer for x, q in zip(wanted, questions, strict=True)])
    table = tables.table1(lab, lab.answers())
    assert accuracy_of(table, NAMED, "no reader") == {"mine": right}
    own = table[table["method"] == NAMED].set_index("metric")["value"]
    assert own["unparsed"] == pytest.approx(1 / 6)


def test_a_run_of_the_papers_setup_is_judged_and_any_other_is_shown(make, monkeypatch):
    """Three small sets stand for the benchmark; everything else is what the paper ran."""
    expander, llama = Says(), Says()
    expander.name, llama.name = "Qwen/Qwen2.5-72B-Instruct", "meta-llama/Meta-Llama-3-8B-Instruct"
    sizes = {"mmlu": 4, "medqa": 5, "bioasq": 6}
    for name, n in sizes.items():
        monkeypatch.setitem(accuracy.SIZES, name, n)
    lab = make(
        sets={d: [replace(q, qid=f"{d}-{q.qid}") for q in cases(n)] for d, n in sizes.items()},
        k=5,
        llm=expander,
        methods={
            name: methods_of(load_profile("paper"))[name] for name in ("standard", "hyde", "chr")
        },
        readers=[ChatReader(llama, "Llama-3-8B-Instruct"), EvidenceReader(HashEncoder(dim=64))],
    )
    corpora = ("pubmed", "textbooks", "wikipedia", "statpearls")
    own = load_profile("paper").methods
    paper = replace(lab.profile, corpora=corpora, encoder="medcpt", methods=own)
    answers = lab.answers()
    judged = {"MATCH", "CLOSE", "OFF"}
    for encoder, verdicts in (("medcpt", judged), ("minilm", {"DIFFERENT SETUP"})):
        lab.profile = replace(paper, encoder=encoder)
        tables.table1(lab, answers), tables.table2(lab, answers), tables.table3(lab)
        one, two, three = (provenance.read_result(f"table{n}", "test")[0] for n in (1, 2, 3))
        one, two, three = (table[table["reported"].notna()] for table in (one, two, three))
        by_llama = one["answerer"] == "Llama-3-8B-Instruct"
        assert set(one[by_llama]["dataset"]) == {*sizes, "average"}
        assert set(one[by_llama]["verdict"]) <= verdicts
        assert set(one[~by_llama]["verdict"]) == {"DIFFERENT SETUP"}
        rest = two[two["answerer"] == "Llama-3-8B-Instruct"]
        assert set(rest["dataset"]) == {*sizes, "combined"}
        assert set(rest["verdict"]) <= verdicts | {"NOT RUN"}  # of no case there is no overlap
        assert set(three["dataset"]) == {"mmlu, medqa"} and set(three["verdict"]) <= verdicts


# Figure 5 with an answerer ------------------------------------------------------------------------

SWEPT = (0.0, 0.2, 0.4, 0.7, 1.0, 1.4)


class AtLambda(Says):
    """Answers right where the passages that it reads, by their numbers, say so."""

    def _say(self, messages, n, options):
        read = sum(map(int, re.findall(r"part number (\d+)", messages[-1]["content"])))
        said = json.dumps({"answer_choice": "AB"[read % 7 > 2]})
        return [replace(reply, text=said) for reply in super()._say(messages, n, options)]


@pytest.fixture
def swept(make, tmp_path):
    """opened(answerer) -> a grid of nine questions whose chat answerer sweeps lambda, recorded;
    a third of the questions chooses."""

    def opened(llm, **changes) -> Experiment:
        chat = Recorder(llm, tmp_path / "chat.jsonl")
        readers = [EvidenceReader(HashEncoder(dim=64)), ChatReader(chat, "chat")]
        lab = make(cases(9), readers=readers)
        sweep = {"answerer": "chat", "dataset": "mine", "dev": 1 / 3} | changes
        lab.profile = replace(lab.profile, sweep=sweep, lambdas=SWEPT)
        return lab

    return opened


def test_figure_5_is_answered_over_lambda_and_asks_only_for_what_the_grid_has_not(swept):
    llm = AtLambda()
    lab = swept(llm)
    planned = lab.plan().set_index("who")["generations"]
    answers = lab.answers()
    before = llm.asked["chat"]
    assert before <= planned["answer: chat"]
    five = tables.figure5(lab, SWEPT, {})
    asked = llm.asked["chat"] - before
    # Where two lambdas find the same passages, the request is the same.
    assert 0 < asked <= planned["answer over lambda: chat"] == 9 * 3
    shown = five[five["metric"] == "accuracy, chat"].set_index(["series", "lambda"])
    table1 = tables.table1(lab, answers)
    for lam, method in ((0.0, "hplus"), (0.4, CHOSEN), (1.0, "chr")):
        assert accuracy_of(table1, method, "chat") == {"mine": shown.loc[("mine", lam), "value"]}
    for lam in SWEPT:  # by hand: what is found at this lambda, and read
        found = lab.found_at(lam, "chr", "mine")
        read = {q: sum(map(int, pids)) % 7 > 2 for q, pids in found.items()}
        right = {q.qid: "AB"[read[q.qid]] == q.answer for q in lab.sets["mine"]}
        assert shown.loc[("mine", lam), "value"] == pytest.approx(np.mean([*right.values()]))
        dev = {q.qid for q in dev_of(lab.sets["mine"], 1 / 3)}
        for half, own in (("dev", dev), ("test", right.keys() - dev)):
            row = shown.loc[(f"mine, {half}", lam)]
            assert (row["n"], row["value"]) == (len(own), np.mean([right[q] for q in own]))
    assert set(five["metric"]) == {"accuracy, chat", "unparsed, chat", "accuracy, evidence reader"}
    llm.asked.clear()
    again = swept(llm)
    pd.testing.assert_frame_equal(tables.figure5(again, SWEPT, {}), five)
    assert not llm.asked


def test_dev_chooses_lambda_and_the_other_questions_say_what_it_is_worth(swept):
    lab = swept(AtLambda())
    chosen = tables.figure5_choice(lab, SWEPT)
    curve = tables.over_lambda(lab, SWEPT)
    curve["right"] = accuracy.is_right(curve)
    dev, test = (curve[curve["half"] == half] for half in ("dev", "test"))
    means = {lam: dev.loc[dev["lambda"] == lam, "right"].mean() for lam in SWEPT}
    lam = min(at for at in SWEPT if means[at] == max(means.values()))
    assert set(chosen["lambda"]) == {lam} and set(chosen["dev_right"].round(6)) == {
        round(means[lam], 6)
    }
    assert set(chosen["n"]) == {6} and set(chosen["dev_n"]) == {3}
    baselines = {"hplus", "chr@1", "hyde", "standard"} - (
        {"hplus"} if lam == 0 else {f"chr@{lam:g}"}
    )
    assert set(chosen["baseline"]) == baselines and set(chosen["arm"]) == {f"chr@{lam:g}"}
    ours = test[test["lambda"] == lam].set_index("qid")["right"]
    for row in chosen.itertuples():
        if row.baseline == "chr@1":
            theirs = test[test["lambda"] == 1].set_index("qid")["right"]
        else:
            answers = lab.answers_of(row.baseline, "mine", lab.readers[1]).set_index("qid")
            theirs = (answers["letter"] == answers["gold"])[ours.index]
        assert row.difference == pytest.approx(ours.mean() - theirs.mean())
    assert (chosen["status"] == "exploratory").all()


def test_without_its_server_figure_5_is_not_run_by_name_and_nothing_is_chosen(swept, capsys):
    paths.say_once.cache_clear()
    silent = swept(NotServed("org/gemma", "it has no address. Next: write openai:org/gemma@http"))
    five = tables.figure5(silent, SWEPT, {})
    assert set(five["metric"]) == {"accuracy, evidence reader"}
    assert tables.figure5_choice(silent, SWEPT).empty
    said = capsys.readouterr().err
    assert said.count("NOT RUN with chat. Next: write openai:org/gemma@http") == len(SWEPT)
    assert "Figure 5, mine, chr@0.7: NOT RUN" in said
    absent = swept(AtLambda(), dataset="medqa")
    assert set(tables.figure5(absent, SWEPT, {})["metric"]) == {"accuracy, evidence reader"}
    assert "Figure 5: NOT RUN, this profile has no chat or no medqa" in capsys.readouterr().err


def test_the_papers_two_values_of_figure_5_are_judged_in_its_setup(make, monkeypatch):
    gemma, expander = AtLambda(), Says()
    gemma.name, expander.name = "google/gemma-2-9b-it", "Qwen/Qwen2.5-72B-Instruct"
    monkeypatch.setitem(accuracy.SIZES, "medqa", 6)
    lab = make(
        sets={"medqa": cases(6)}, k=5, llm=expander, readers=[ChatReader(gemma, "Gemma-2-9B-It")]
    )
    lab.profile = replace(load_profile("paper"), name="test", lambdas=SWEPT)
    lab.methods = methods_of(lab.profile)
    for encoder, verdicts in (
        ("medcpt", {"MATCH", "CLOSE", "OFF"}),
        ("minilm", {"DIFFERENT SETUP"}),
    ):
        lab.profile = replace(lab.profile, encoder=encoder)
        tables.figure5(lab, SWEPT, {})
        stored = provenance.read_result("figure5", "test")[0]
        printed = stored[stored["reported"].notna()]
        assert set(zip(printed["lambda"], printed["reported"], strict=True)) == {
            (1.0, 0.531),
            (1.4, 0.431),
        }
        assert set(printed["dataset"]) == {"medqa"} and set(printed["verdict"]) <= verdicts


# newcomers ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Milder(CHR):
    """CHR with less of the mimic: a method that has a lambda of its own."""

    name: str = "milder"
    lam: float = 0.7


def test_a_method_of_one_file_and_one_registry_line_is_in_every_table(make, monkeypatch):
    monkeypatch.setitem(METHODS, "mine", Mine())
    monkeypatch.setitem(METHODS, "milder", Milder())
    monkeypatch.setitem(CONTROLS, "chr+pool4", {"mimic": "stranger", "pool": 4})
    lab = make()
    runs, answers = lab.runs(), lab.answers()
    targets = {q.qid: {"001", "003"} for q in SET}
    quality, table1 = lab.quality(runs, targets, {}), tables.table1(lab, answers)
    made = (runs, answers, table1, tables.table2(lab, answers), quality)
    assert all({"mine", "milder", "chr+pool4"} <= set(table["method"]) for table in made)
    assert "mine" in set(tables.accuracy_without_llm(lab)["method"])
    claimed = tables.claims(lab, answers)
    assert {"mine", "hplus"} <= set(claimed["baseline"]) and "chr" not in set(claimed["baseline"])
    assert set(claimed["arm"]) == {"chr", "milder"}
    cost = tables.table3(lab).set_index("method").loc["mine"]
    assert (cost["calls"], cost["retrieval_rounds"], cost["output_tokens"]) == (1, 2, 5)
    assert cost["latency_s"] == pytest.approx(0.1) and pd.isna(cost["reported_calls"])
    assert lab.plan().set_index("who").loc["expand: mine"].tolist() == [6, 6 * 77]
    assert not lab.visible["mine"] and lab.visible["chr+pool4"]
    five = tables.figure5(lab, (0.0, 0.7), {})
    assert set(five["series"]) == {"mine", "mine, milder"}
    at = five[(five["method"] == "milder") & (five["lambda"] == 0.7)]["value"].item()
    right = accuracy_of(table1, "milder", "evidence reader")
    assert right == {"mine": pytest.approx(at)}


def by_register(monkeypatch) -> dict:
    monkeypatch.setitem(METHODS, "rocchio", None)  # so that it is taken out again
    del METHODS["rocchio"]
    register(Rocchio())
    return methods_of(load_profile("mini"))


def by_profile(monkeypatch) -> dict:
    return methods_of(load_profile("mini", methods=["tests/rocchio.py:Rocchio"]))


@pytest.mark.parametrize("joined", [by_register, by_profile])
def test_an_own_method_goes_from_its_expansion_to_a_row_a_curve_and_a_claim(
    joined, make, monkeypatch
):
    methods = joined(monkeypatch)
    lab = make(methods=methods | {CHOSEN: replace(methods["chr"], name=CHOSEN, lam=0.4)})
    index, encoder = lab.retriever.index, lab.retriever.encoder
    asked = encoder.encode([question.text for question in SET], "query")
    first = index.search(asked, 10)

    def found_by_hand(lam: float) -> list[list[str]]:
        near, next_ = (
            index.vectors(first.rows[:, part].ravel()) for part in (slice(5), slice(5, 10))
        )
        means = [part.reshape(len(SET), 5, -1).mean(axis=1) for part in (near, next_)]
        return index.search(asked + 0.75 * means[0] - lam * means[1], 3).ids.tolist()

    # It searches, and readers read what it found.
    assert [lab.found("rocchio", "mine")[q.qid][:3] for q in SET] == found_by_hand(0.15)
    runs, answers = lab.runs(), lab.answers()
    targets = {q.qid: {"001", "003", "004"} for q in SET}
    quality, table1 = lab.quality(runs, targets, {}), tables.table1(lab, answers)
    for table in (runs, answers, table1, tables.table2(lab, answers), quality):
        assert "rocchio" in set(table["method"])
    # Its lambda is swept, and it is compared with what has none, as CHR is.
    five = tables.figure5(lab, (0.0, 0.15, 1.0), targets).set_index(["method", "metric", "lambda"])
    for lam in (0.0, 0.15, 1.0):
        pairs = zip(SET, found_by_hand(lam), strict=True)
        share = np.mean([len(targets[q.qid].intersection(found)) / 3 for q, found in pairs])
        assert five.loc[("rocchio", "P@k", lam), "value"] == pytest.approx(share)
    claimed = tables.claims(lab, answers)
    against = claimed.groupby("arm")["baseline"].agg(set).to_dict()
    assert against == dict.fromkeys(("chr", "rocchio"), set(SHIPPED) - {"chr"})
    # Figures have a row of its name, in a colour that is nobody else's.
    rows = figures.method_rows(quality, lam=0.4).set_index("method")
    colour = rows.loc["rocchio", "colour"]
    assert rows.loc["rocchio", "row"] == "rocchio"
    assert colour not in {GREY, *rows.drop(index="rocchio")["colour"], *COLOURS.values()}
    shown = by_method(quality)["method"].tolist()
    assert shown.index("rocchio") > shown.index("thinkqe")


def test_another_text_of_its_file_is_another_method_and_its_old_cells_are_not_its_new(
    make, tmp_path, monkeypatch
):
    monkeypatch.setattr(provenance, "code_hash", CODE_HASH)
    file = tmp_path / "mine.py"
    text = (paths.ROOT / "tests" / "rocchio.py").read_text(encoding="utf-8")

    def made(text: str) -> tuple[pd.DataFrame, int, str]:
        file.write_text(text)
        methods = methods_of(load_profile("mini", methods=[f"{file}:Rocchio"]))
        lab = make(methods=methods | {CHOSEN: replace(methods["chr"], name=CHOSEN)})
        run = lab.run_of("rocchio", "mine")
        searched = len(lab._expanded)
        lab.run_of("standard", "mine")
        lab.save(run, "a_table")
        return run, searched, provenance.read_result("a_table", "test")[1]["code"]

    first, searched, code = made(text)
    again, kept, same = made(text)
    assert searched and not kept and code == same
    pd.testing.assert_frame_equal(first, again)
    other, searched, changed = made(text.replace("weight=self.beta", "weight=-self.beta"))
    assert searched and not other.equals(first) and changed != code


# the script of docs/reproduce.md -----------------------------------------------------------------


def test_the_published_script_recomputes_means_and_verdicts_from_committed_values():
    """The one in docs/reproduce.md: a recomputation of its own, which must not use what made it."""
    text = (paths.ROOT / "docs/reproduce.md").read_text(encoding="utf-8")
    *_, script = re.findall(r"```python\n(.*?)```", text, re.S)
    assert "lib" not in re.findall(r"^\s*(?:from|import) (\w+)", script, re.M)
    command = [sys.executable, "-I", "-c", script]  # without lib on its path
    run = subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True, check=True)
    # A reader's own results may lie beside the committed ones.
    tested = re.findall(r"^data/results/(?:mini|open)/claims_.*", run.stdout, re.M)
    assert len(tested) > 3 and all(line.endswith(" True True") for line in tested)


# what ddx-mini's README says ----------------------------------------------------------------------


def test_the_readme_states_the_sweep_and_the_grades_as_they_are():
    text = (paths.DDX_MINI / "README.md").read_text(encoding="utf-8")
    drawn = pd.read_csv(paths.ROOT / "figures" / "mini" / "19_corruption.csv")
    drawn = drawn[drawn["lambda"].isin([0.0, 0.2, 0.4, 1.0])]
    wide = drawn.pivot(index="wrong", columns="lambda", values="p_at_5")
    stated = re.findall(r"^\| (\d+)% \| (.+) \|$", text, re.M)
    assert {int(share) / 100: [*map(float, row.split(" | "))] for share, row in stated} == {
        share: list(row) for share, row in zip(wide.index, wide.to_numpy(), strict=True)
    }
    rows = pd.DataFrame(ddx_mini.read("mimic_grades"))
    text = " ".join(text.split())
    for grade in ("Excellent", "Good", "Poor"):
        stated = re.search(rf"{grade} (\d+) and (\d+)", text).groups()
        assert [int(n) for n in stated] == [(rows[w] == grade).sum() for w in ("first", "second")]
    agree, n = map(int, re.search(r"they agree on (\d+) of (\d+)", text).groups())
    assert (agree, n) == ((rows["first"] == rows["second"]).sum(), len(rows))
