"""A whole experiment, small: its plan, its tables, its figures, and what a reader can recompute."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

from lib.base import paths, provenance
from lib.benchmarks import ddx_mini
from lib.data.passages import Passage
from lib.data.store import PassageStore
from lib.datasets import Question, load_questions
from lib.embed import HashEncoder
from lib.llm.chat import ChatModel, Reply, ScriptedChat, current_tag
from lib.llm.recorder import Recorder
from lib.methods import METHODS, Budget, Hypotheses, Text
from lib.methods.base import Expansion, question_alone
from lib.methods.chr import CHR
from lib.plots import figures, plot_curves
from lib.plots.labels import colour_of, label_of, method_label
from lib.profiles import load_profile, methods_of
from lib.query_spec import DRAWS
from lib.readers import ChatReader, ChoiceReader, EvidenceReader
from lib.run import Retriever, execute
from lib.search.bm25 import BM25Index
from lib.search.index import DenseIndex
from lib.stats import Pair, claims, long_values
from lib.studies.main_tables import again, controls, paper_setup
from lib.studies.main_tables import tables as paper_tables
from lib.studies.main_tables.again import answer_again, expand_again
from lib.studies.main_tables.cells import NO_RETRIEVAL, RANDOM, Grid
from lib.studies.main_tables.controls import CONTROLS
from lib.studies.main_tables.experiment import CHOSEN, NAMED, Experiment, open_experiment
from lib.studies.main_tables.long_tables import COLUMNS
from lib.studies.main_tables.no_reader import named_letters
from tests.drawn import dots
from tests.fault_server import FaultServer
from tests.shipped import SHIPPED

UNRECORDED = {"csqe", "thinkqe"}
"""Under the hash encoder they are shown other passages than the recorded requests hold."""


@pytest.fixture(autouse=True)
def one_hash_of_the_code(monkeypatch):
    """It takes half a second a cell, and no test here changes the code."""
    monkeypatch.setattr(provenance, "code_hash", lambda roots: "the same")


# what a run asks for -----------------------------------------------------------------------------


def plan_of(profile, sets, lam: float = 0.4) -> dict[str, tuple[int, int]]:
    methods = methods_of(profile)
    methods[CHOSEN] = replace(methods["chr"], name=CHOSEN, lam=lam)
    kinds = {"choice": ChoiceReader, "chat": ChatReader}
    readers = [
        kinds[s["kind"]](None, s["name"], max_tokens=s.get("max_tokens", 1024))
        if s["kind"] in kinds
        else EvidenceReader(None)
        for s in profile.answerers
    ]
    sets = {name: [SimpleNamespace(qid=f"{i}") for i in some] for name, some in sets.items()}
    grid = Grid(profile.name, sets, None, None, 5, methods, {}, (), profile.asked)
    samples = [s.get("sample", 0) for s in profile.answerers]
    table = Experiment(profile, grid, readers, samples, lam).plan()
    assert list(table.columns) == ["who", "generations", "output_tokens_at_most"]
    return {who: (n, most) for who, n, most in table.itertuples(index=False)}


def of_shipped(plan: dict) -> dict:
    """A plan without the methods that a reader has added."""
    others = {f"expand: {name}" for name in METHODS if name not in SHIPPED}
    return {who: asked for who, asked in plan.items() if who not in others}


def test_the_plan_of_mini_is_what_its_settings_ask_for():
    choice = {"kind": "choice", "name": "letters", "sample": 2}
    chat = {"kind": "chat", "name": "JSON", "sample": 2, "max_tokens": 256}
    profile = load_profile("mini")
    profile = replace(profile, answerers=(*profile.answerers, choice, chat))
    sets = {s: range(32) for s in ("medqa", "mmlu", "bioasq")}  # 96 test questions, three styles
    arms = len(METHODS) + 1 + 2 + 1 + 2  # CHOSEN, controls, random, no retrieval
    one, two = 3 * choice["sample"] * arms, 3 * chat["sample"] * arms
    assert of_shipped(plan_of(profile, sets)) == {
        "expand: hyde": (3 * 96, 3 * 96 * 512),
        "expand: query2doc": (96, 96 * 128),
        "expand: csqe": (2 * 96, 2 * 96 * 1024),
        "expand: thinkqe": (3 * 96, 3 * 96 * 512),
        "expand: fusion": (96, 96 * 300),
        "expand: chr": (96, 96 * 512),
        f"answer: {choice['name']}": (one, one),
        f"answer: {chat['name']}": (two, two * chat["max_tokens"]),
    }


def test_what_is_generated_is_planned_by_its_own_settings_and_never_more_than_there_is():
    profile = load_profile("mini")
    few = replace(profile, **profile.generated)
    planned = plan_of(few, {"a": range(2), "b": range(1)})
    assert {w: p for w, p in of_shipped(planned).items() if w.startswith("expand")} == {
        "expand: hyde": (8 * 3, 8 * 3 * 256),
        "expand: query2doc": (3, 3 * 128),
        "expand: csqe": (2 * 2 * 3, 2 * 2 * 3 * 256),
        "expand: thinkqe": (2 * 3 * 3, 2 * 3 * 3 * 256),
        "expand: fusion": (3, 3 * 300),
        "expand: chr": (3, 3 * 512),
    }
    arms = len(METHODS) + 1 + 2 + 1 + 2
    reads = replace(few, answerers=({"kind": "choice", "name": "r", "sample": 2},))
    assert plan_of(reads, {"a": range(2), "b": range(1)})["answer: r"] == (3 * arms, 3 * arms)
    single = replace(few, methods={"csqe": {"mode": "single_call", "samples": 1}})
    assert plan_of(single, {"a": range(3)})["expand: csqe"] == (3, 3 * 1024)


class Counts(ChatModel):
    """Answers every kind of prompt, and counts who asked for how many replies."""

    name = "counts"

    def __init__(self):
        self.asked = Counter()

    def _say(self, messages, n, options):
        self.asked[current_tag()["method"]] += n
        said = f'{{"answer_choice": "{"AB"[len(messages[-1]["content"]) % 2]}"}}'
        if options.get("choices"):
            said = json.dumps(dict.fromkeys(options["choices"], -1.0))
        elif options["schema"]:
            said = json.dumps({"H_plus": "gout of the toe", "H_minus": "sepsis of the blood"})
        return [Reply(said, "stop", 5, 5, 0.1, self.name) for _ in range(n)]


def small(folder, questions, llm, methods, readers, samples=None, k: int = 3) -> Experiment:
    """An experiment on thirty made-up passages, with whatever is to be tried."""
    texts = [f"part {i} on {'gout' if i % 2 else 'sepsis'} in case {i}" for i in range(30)]
    encoder = HashEncoder(dim=64)
    passages = [Passage(f"{i:02d}", f"T{i}", t, "mine", {}) for i, t in enumerate(texts)]
    store = PassageStore.build(folder / "store.sqlite", passages)
    index = DenseIndex([encoder.encode(texts, "article")], [p.pid for p in passages])
    retriever = Retriever(index, encoder, store, BM25Index.build(texts, [p.pid for p in passages]))
    grid = Grid("test", {"mine": questions}, retriever, llm, k, methods, {}, ())
    profile = load_profile("mini")
    return Experiment(profile, grid, readers, samples or [0] * len(readers), 0.4)


def cases(n: int, **options) -> list[Question]:
    options = options or {"A": "gout", "B": "sepsis"}
    return [Question(f"q{i}", f"What in case {i}?", options, "AB"[i % 2], "mine") for i in range(n)]


def test_the_plan_is_what_a_model_is_really_asked(own_folders):
    profile, llm = load_profile("mini"), Distinct()
    methods = methods_of(profile)
    methods[CHOSEN] = replace(methods["chr"], name=CHOSEN, lam=0.4)
    readers = [ChatReader(llm, "chat", max_tokens=9), ChoiceReader(llm, "choice")]
    lab = small(own_folders, cases(4), llm, methods, readers, [0, 3])
    planned = lab.plan().set_index("who")["generations"]
    lab.expanded()
    asked = {f"expand: {m}": n for m, n in llm.asked.items() if m != "hplus"}
    llm.asked.clear()
    lab.runs()  # CHR at the chosen lambda asks what CHR asked: a recording has it
    assert set(llm.asked) == {CHOSEN}
    llm.asked.clear()
    lab.answers()
    asked |= {f"answer: {m}": n for m, n in llm.asked.items()}
    assert asked == planned.to_dict()
    assert lab.not_run().empty


# a small experiment on reference text ------------------------------------------------------------


class Says(ChatModel):
    name = "says"

    def _say(self, messages, n, options):
        return [Reply('{"answer_choice": "B"}', "stop", 9, 9, 0.1, self.name)] * n


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Three ddx-mini questions a style, the hash encoder, two readers; the second heard only the
    closed book. All tables, made once."""
    folder = tmp_path_factory.mktemp("experiment")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHR_CACHE", str(folder / "cache"))
        patch.setenv("CHR_OUT", str(folder / "out"))
        patch.setattr(provenance, "code_hash", lambda roots: "the same")
        heard = {
            "kind": "chat",
            "name": "chat",
            "max_tokens": 64,
            "sample": 2,
            "llm": f"replay:{folder / 'chat.jsonl'}",
        }
        profile = load_profile(
            "mini",
            encoder="hash",
            sample=3,
            answerers=({"kind": "evidence", "name": "evidence reader"}, heard),
        )
        with Recorder(Says(), folder / "chat.jsonl") as recorder:
            asked = load_questions("ddx-mini")
            reader = ChatReader(recorder, "chat", max_tokens=64)
            reader.answer_all(asked, [[] for _ in asked])
        lab = open_experiment(profile, lam=0.4)
        runs, expanded, answers = lab.runs(), lab.expanded(), lab.answers()
        benchmark = ddx_mini.build()
        yield SimpleNamespace(
            lab=lab,
            runs=runs,
            expanded=expanded,
            answers=answers,
            targets=benchmark.targets,
            missing=lab.not_run(),
            table1=paper_tables.table1(lab, answers),
            table2=paper_tables.table2(lab, answers),
            table3=paper_tables.table3(lab),
            claims=paper_tables.claims(lab, answers),
            quality=lab.quality(runs, benchmark.targets, benchmark.mimics),
            figure5=paper_tables.figure5(lab, (0.0, 0.4, 1.0), benchmark.targets),
            out=folder / "out" / "results" / "mini",
        )


def test_a_run_of_the_papers_setup_is_judged_and_any_other_is_shown(own_folders):
    """Three small sets stand for the benchmark; everything else is what the paper ran."""
    paper = replace(
        load_profile("mini"),
        name="made-up",
        corpora=("pubmed", "textbooks", "wikipedia", "statpearls"),
        encoder="medcpt",
        methods={},
    )
    expander, llama = Counts(), Counts()
    expander.name, llama.name = "Qwen/Qwen2.5-72B-Instruct", "meta-llama/Meta-Llama-3-8B-Instruct"
    methods = {name: METHODS[name] for name in ("standard", "hyde", "chr")}
    readers = [ChatReader(llama, "Llama-3-8B-Instruct"), EvidenceReader(HashEncoder(dim=64))]
    sizes = {"mmlu": 4, "medqa": 5, "bioasq": 6}
    with pytest.MonkeyPatch.context() as patch:
        for name, n in sizes.items():
            patch.setitem(paper_setup.SIZES, name, n)
        lab = small(own_folders, [], expander, methods, readers, k=5)
        lab.grid.sets = {
            name: [replace(question, qid=f"{name}-{question.qid}") for question in cases(n)]
            for name, n in sizes.items()
        }
        answers = lab.answers()
        told = {}
        for encoder in ("medcpt", "minilm"):
            lab.profile = replace(paper, encoder=encoder)
            paper_tables.table1(lab, answers)
            paper_tables.table2(lab, answers)
            paper_tables.table3(lab)
            told[encoder] = [provenance.read_result(f"table{n}", "test")[0] for n in (1, 2, 3)]
    judged = {"MATCH", "CLOSE", "OFF"}
    one, two, three = told["medcpt"]
    own = one[(one["answerer"] == "Llama-3-8B-Instruct") & one["reported"].notna()]
    assert set(own["dataset"]) == {*sizes, "average"} and set(own["verdict"]) <= judged
    other = one[(one["answerer"] != "Llama-3-8B-Instruct") & one["reported"].notna()]
    assert set(other["verdict"]) == {"DIFFERENT SETUP"}
    own = two[(two["answerer"] == "Llama-3-8B-Instruct") & two["reported"].notna()]
    assert set(own["dataset"]) == {*sizes, "combined"}
    assert set(own["verdict"]) <= judged | {"NOT RUN"}  # of no case there is no overlap
    own = three[three["reported"].notna()]
    assert set(own["dataset"]) == {"mmlu, medqa"} and set(own["verdict"]) <= judged
    assert set(own["metric"]) == {"calls", "output_tokens", "token_reduction"}
    one_call = own[(own["method"] == "chr") & (own["metric"] == "calls")]
    assert one_call["verdict"].tolist() == ["MATCH"]
    for table in told["minilm"]:
        printed = table[table["reported"].notna()]
        assert set(printed["verdict"]) <= {"DIFFERENT SETUP", "NOT RUN"} and len(printed)


def test_what_the_three_sets_share_together_is_the_papers_combined(whole):
    own = whole.table2[whole.table2["reader"] == "evidence reader"]
    for outcome, rows in own.groupby("outcome"):
        rows = rows.set_index("dataset")
        together, alone = rows.loc["ddx-mini combined"], rows.drop("ddx-mini combined")
        assert len(alone) == 3 and together["n"] == alone["n"].sum(), outcome
        if together["n"]:
            shared = (alone["count"].fillna(0) * alone["n"]).sum() / together["n"]
            assert together["count"] == pytest.approx(shared)
    stored = provenance.read_result("table2", "mini")[0]
    printed = stored[(stored["metric"] == "count") & stored["reported"].notna()]
    papers = pd.read_csv(paths.REPORTED / "chr_table2_overlap.csv")
    papers = papers[papers["metric"] == "mean_overlap"]["value"].tolist()
    assert printed["reported"].tolist() == papers and len(papers) == 4


def accuracy(table: pd.DataFrame, method: str, answerer: str) -> dict[str, float]:
    own = table[(table["metric"] == "accuracy") & (table["method"] == method)]
    return own[own["answerer"] == answerer].set_index("dataset")["value"].to_dict()


def test_what_is_not_recorded_is_not_run_named_and_never_filled_in(whole):
    arms = [*METHODS, CHOSEN, *CONTROLS, RANDOM, *NO_RETRIEVAL]
    assert sorted(whole.lab.arms) == sorted(arms)
    searched = set(arms) - {"closed_book", "hypotheses_as_context"} - UNRECORDED
    assert set(whole.runs["method"]) == searched
    counts = whole.runs.groupby(["dataset", "method"])["qid"].nunique()
    assert len(counts) == 3 * len(searched) and set(counts) == {3}
    told = whole.answers.groupby("reader")["method"].unique()
    assert set(told["evidence reader"]) == searched | {"hypotheses_as_context"}
    assert set(told["chat"]) == {"closed_book"}
    for table in (whole.expanded, whole.table1, whole.table2, whole.table3, whole.quality):
        assert len(table) and UNRECORDED.isdisjoint(table["method"])
    assert set(whole.claims["against"]) == searched & set(METHODS) - {"chr"}
    assert set(whole.claims["arm"]) == {"chr"}
    assert set(whole.claims["status"]) == {"exploratory"}
    assert not [p.name for p in whole.out.rglob("*") if re.search("csqe|thinkqe", p.name)]


def test_every_cell_that_was_not_run_says_which_command_runs_it(whole):
    small_model = "llm = lib.llm.connect('small'), and run this again"
    heard = "llm = lib.llm.connect('record:chat.jsonl=openai:says'), and run this again"
    rows = whole.missing.set_index(["method", "reader"])
    assert set(rows["sets"]) == {3} and rows.index.is_unique
    expected = {
        (m, r): small_model for m in UNRECORDED for r in ("", "expanded", "evidence reader", "chat")
    }
    others = set(whole.lab.arms) - UNRECORDED - {"closed_book"}
    expected |= {(m, "chat"): heard for m in others}
    assert rows["how"].to_dict() == expected


def test_without_any_recording_nothing_has_rows_and_what_would_run_it_is_named(
    own_folders, tmp_path
):
    silent = Recorder(None, tmp_path / "none.jsonl", "replay")
    lab = small(own_folders, cases(2), silent, {"chr": METHODS["chr"]}, [ChatReader(silent, "r")])
    answers = lab.answers()
    tables = (answers, lab.expanded(), paper_tables.table3(lab), paper_tables.claims(lab, answers))
    more = (paper_tables.table2(lab, answers), paper_tables.figure5(lab, (0.0, 1.0), {}))
    assert all(table.empty and len(table.columns) > 3 for table in (*tables, *more))
    assert set(paper_tables.table1(lab, answers)["method"]) == {"majority"}
    assert set(lab.not_run()["how"]) == {
        "llm = lib.llm.connect('record:none.jsonl=small'), and run this again"
    }


def test_tables_are_kept_with_what_they_depend_on(whole):
    for name in ("runs", "answers", "table1", "table2", "table3", "claims", "figure5", "retrieval"):
        table, settings = provenance.read_result(name, "mini")
        assert (
            len(table) == json.loads((whole.out / f"{name}.csv.manifest.json").read_text())["rows"]
        )
        assert (settings["k"], settings["lam"]) == (5, 0.4)
        assert settings["encoder"].startswith("hash|") and "reference.jsonl" in str(settings)


def test_every_stored_table_has_the_same_columns_and_a_value_a_row(whole):
    for name, shown in (
        ("table1", whole.table1),
        ("table2", whole.table2),
        ("table3", whole.table3),
        ("figure5", whole.figure5),
    ):
        stored, _ = provenance.read_result(name, "mini")
        assert tuple(stored)[: len(COLUMNS)] == COLUMNS and stored["setup"].nunique() == 1
        assert stored["setup"][0] == "mini, hash, reference text, k = 5"
        assert (stored["verdict"].notna() == stored["reported"].notna()).all(), name
        inside = stored.dropna(subset=["low"])
        assert len(inside) == 0 or inside["value"].between(inside["low"], inside["high"]).all()
        metrics = stored["metric"].nunique() if name in ("table2", "table3") else 1
        assert len(stored) == len(shown) * metrics
        assert name in ("table2", "figure5") or tuple(stored) == COLUMNS
    count = whole.table2.set_index(["dataset", "method", "reader", "outcome"])["count"]
    stored = provenance.read_result("table2", "mini")[0].fillna({"answerer": ""})
    stored = stored[stored["metric"] == "count"]
    for row in stored.dropna(subset=["value"]).itertuples():
        key = row.dataset, row.method, row.answerer, row.outcome
        assert row.value == pytest.approx(count[key], abs=5e-4)


def test_who_saw_the_options_is_said_of_every_arm_that_somebody_wrote_for(whole):
    seen = whole.table1.groupby("method")["options_visible"].agg(lambda x: set(x.dropna()))
    for arm in ("chr", CHOSEN, "hplus", "chr+rotation", NAMED, "hypotheses_as_context"):
        assert seen[arm] == {True}, arm
    for arm in ("standard", "hyde", "query2doc"):
        assert seen[arm] == {False}, arm
    for arm in ("closed_book", RANDOM, "majority"):
        assert seen[arm] == set(), arm
    assert whole.claims["options_visible"].all()
    against = whole.claims.set_index("against")["options_visible_against"]
    assert set(against[against].index) == {"hplus"}


# Table 1 -----------------------------------------------------------------------------------------


def test_the_majoritys_row_is_the_commonest_letter_of_each_set(whole):
    rows = accuracy(whole.table1, "majority", "no reader")
    for d, questions in whole.lab.grid.sets.items():
        counts = Counter(q.answer for q in questions)
        assert rows[d] == max(counts.values()) / len(questions)
    assert set(rows) == set(whole.lab.grid.sets)


def test_a_cell_is_the_share_of_right_letters_and_the_closed_book_is_the_readers_own(whole):
    for method in whole.lab.arms:
        for reader in ("evidence reader", "chat"):
            shown = accuracy(whole.table1, method, reader)
            own = whole.answers[
                (whole.answers["method"] == method) & (whole.answers["reader"] == reader)
            ]
            for d, rows in own.groupby("dataset"):
                right = [a == b for a, b in zip(rows["letter"], rows["gold"], strict=True)]
                assert shown.pop(d) == pytest.approx(np.mean(right))
            assert not shown
    closed = whole.table1[whole.table1["method"] == "closed_book"]
    one_set = closed[closed["metric"] != "average"]
    assert set(closed["answerer"]) == {"chat"} and set(one_set["n"]) <= {0, 2}


def test_the_expanders_own_answer_is_the_option_that_h_plus_names(own_folders):
    options = {"A": "gout", "B": "acute sepsis"}
    said = {  # H+, and the letter it names; None: what the reader makes of H+ and H-
        "case 0": ("This is acute sepsis of a toe.", "B"),
        "case 1": ("Gout, of the toe.", "A"),
        "case 2": ("Gout is not acute sepsis.", None),
        "case 3": ("Ragout, a dish.", None),
        "case 4": ("Something else in part 4.", None),
        "case 5": ("", ""),  # a failed expansion has no answer
    }
    rules = [
        {"match": c, "text": json.dumps({"H_plus": h, "H_minus": "part 7 on sepsis"})}
        for c, (h, _) in said.items()
    ]
    reader = EvidenceReader(HashEncoder(dim=64))
    lab = small(
        own_folders, cases(6, **options), ScriptedChat(rules), {"chr": METHODS["chr"]}, [reader]
    )
    questions = lab.grid.sets["mine"]
    by_reader = lab.grid.answers("hypotheses_as_context", "mine", reader)["letter"]
    assert set(by_reader[2:5]) <= {"A", "B"}
    wanted = [by_reader[i] if x is None else x for i, (_, x) in enumerate(said.values())]
    right = np.mean([x == q.answer for x, q in zip(wanted, questions, strict=True)])
    table = paper_tables.table1(lab, lab.answers())
    assert accuracy(table, NAMED, "no reader") == {"mine": right}
    own = table[table["method"] == NAMED].set_index("metric")["value"]
    assert own["unparsed"] == pytest.approx(1 / 6)


def test_no_is_not_named_by_every_word_that_holds_it(own_folders):
    """Nor by "no fever": in a yes/no question only a statement that begins with it says so."""
    said = [
        "The diagnosis is known.",
        "Yes. The eyes suffer.",
        "No, it is gout.",
        "Gout, no fever.",
    ]
    rules = [
        {"match": f"case {i}", "text": json.dumps({"H_plus": h, "H_minus": "sepsis, known"})}
        for i, h in enumerate(said)
    ]
    reader = EvidenceReader(HashEncoder(dim=64))
    lab = small(
        own_folders,
        cases(4, A="yes", B="no"),
        ScriptedChat(rules),
        {"chr": METHODS["chr"]},
        [reader],
    )
    by_reader = dict.fromkeys(("q0", "q1", "q2", "q3"), "A")
    expansions = lab.grid.expansions("chr", "mine")
    letters = named_letters(lab.grid.sets["mine"], expansions, by_reader)
    assert list(letters.values()) == ["A", "A", "B", "A"]


def test_a_profile_without_a_reader_of_its_own_still_has_every_row(own_folders):
    """As profile paper, whose readers are all LLMs."""
    llm = Counts()
    lab = small(own_folders, cases(4), llm, {"chr": METHODS["chr"]}, [ChatReader(llm, "chat")])
    table = paper_tables.table1(lab, lab.answers())
    assert accuracy(table, NAMED, "no reader") == {"mine": 0.5}
    five = paper_tables.figure5(lab, (0.0, 1.0), {})
    assert set(five["metric"]) == {"accuracy, evidence reader"} and len(five) == 2


# Figure 5 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("generated", [False, True], ids=["Table 1", "what a model generated"])
def test_a_readers_own_server_writes_whatever_the_base_has_recorded(generated, own_folders):
    pair = json.dumps({"H_plus": "Gout is urate.", "H_minus": "Sepsis is an infection."})
    file = own_folders / "mine.toml"
    with FaultServer(text=pair) as server:
        file.write_text(
            f'base = "mini"\nencoder = "hash"\nsample = 3\nskip = ["csqe", "thinkqe"]\n'
            f'llm = "record:{own_folders}/mine.jsonl=openai:org/mine@{server.url}"\n'
        )
        profile = load_profile(str(file))
        lab = open_experiment(profile, generated=generated)
        table = lab.expanded()
    assert "texts by org/mine" in profile.title and lab.grid.llm.name == "org/mine"
    chr_ = table[table["method"] == "chr"]
    assert chr_.groupby("dataset")["qid"].nunique().tolist() == [3, 3, 3]
    assert set(chr_["H_plus"]) == set(table.loc[table["method"] == "hplus", "H_plus"])
    assert set(chr_["H_plus"]) == {"Gout is urate."}
    asked = [body for body in server.bodies if "H_plus" in json.dumps(body["messages"])]
    assert len(asked) == 9, "one request for CHR and H+ alone"


class Sick(Counts):
    """A model that fails on some cases until it is mended: nothing, no JSON, or no letter."""

    sick = ("case 0", "case 2")

    def __init__(self):
        super().__init__()
        self.by_case = Counter()

    def _say(self, messages, n, options):
        replies = super()._say(messages, n, options)
        text = "\n".join(message["content"] for message in messages)
        case = next(case for case in (f"case {i}" for i in range(9)) if case in text)
        self.by_case[case] += n
        if case not in self.sick:
            return replies
        return [replace(reply, text="" if case == "case 0" else "Sorry.") for reply in replies]


def test_what_failed_is_asked_for_again_by_a_command_and_nothing_else_is(
    own_folders, capsys, monkeypatch
):
    file = own_folders / "live.jsonl"
    methods = {name: METHODS[name] for name in ("standard", "query2doc", "hplus", "chr")}

    def opened(llm: Sick) -> Experiment:
        recorder = Recorder(llm, file)
        reader = ChatReader(recorder, "chat")
        return small(own_folders, cases(4), recorder, methods, [reader])

    sick = Sick()
    lab = opened(sick)
    lab.runs(), lab.answers()
    table = lab.expanded()
    failed = table[table["error"] != ""].groupby("method")["qid"].agg(set).to_dict()
    assert failed == {"query2doc": {"q0"}, "hplus": {"q0", "q2"}, "chr": {"q0", "q2"}}
    assert "5 texts of counts could not be used" in (said := capsys.readouterr().err)
    assert "make again" in said

    monkeypatch.setattr(Sick, "sick", ("case 0",))
    half = Sick()
    texts = expand_again(opened(half)).set_index("who")
    assert texts.loc["expand: chr"].tolist() == [2, 1]
    assert texts.loc["expand: query2doc"].tolist() == [1, 1] and len(texts) == 2
    # One request mends case 2; case 0 has one a method, and one to repair CHR's JSON.
    assert half.by_case == {"case 0": 3, "case 2": 1}

    monkeypatch.setattr(Sick, "sick", ())
    well = Sick()
    assert expand_again(opened(well))["left"].tolist() == [0, 0]
    letters = answer_again(opened(well)).set_index("who").loc["answer: chat"]
    assert letters["failed"] > 0 == letters["left"]
    last = Sick()
    lab = opened(last)
    assert (lab.answers()["letter"] != "").all() and (lab.expanded()["error"] == "").all()
    assert last.asked.total() == 0 and capsys.readouterr().err == ""


def test_where_everything_is_replayed_nobody_can_be_asked_again(own_folders, monkeypatch):
    monkeypatch.setattr("sys.argv", ["again", "--profile", "mini", "--limit", "2"])
    with pytest.raises(ValueError, match="mini-2 only replays.*docs/profiles.md"):
        again.main()


def test_figure_5_begins_at_h_plus_and_its_lambda_1_is_chr(whole):
    for lam, method in ((0.0, "hplus"), (0.4, CHOSEN), (1.0, "chr")):
        at = whole.figure5[whole.figure5["lambda"] == lam].set_index(["metric", "series"])
        shown = at.loc["accuracy, evidence reader", "value"].to_dict()
        assert shown == pytest.approx(accuracy(whole.table1, method, "evidence reader"))
        own = whole.quality[whole.quality["method"] == method].set_index("dataset")
        assert at.loc["P@k", "value"].to_dict() == pytest.approx(own["p_at_5"].to_dict())
        assert set(at["n"]) == {3}
    values = whole.figure5.pivot(index=["metric", "series"], columns="lambda", values="value")
    assert (values[0.0] != values[1.0]).any()


def test_figure_5_has_no_precision_where_nothing_is_known_to_be_relevant(own_folders):
    llm = Counts()
    lab = small(
        own_folders, cases(4), llm, {"chr": METHODS["chr"]}, [EvidenceReader(HashEncoder(dim=64))]
    )
    table = paper_tables.figure5(lab, (0.0, 1.0), {"q0": frozenset({"01"}), "q1": frozenset()})
    shown = table.set_index(["metric", "lambda"])["n"].to_dict()
    assert shown == {
        ("accuracy, evidence reader", 0.0): 4,
        ("accuracy, evidence reader", 1.0): 4,
        ("P@k", 0.0): 1,
        ("P@k", 1.0): 1,
    }
    table = paper_tables.figure5(lab, (0.0,), {"another set's": frozenset({"01"})})
    assert list(table["metric"]) == ["accuracy, evidence reader"]


# Table 2 -----------------------------------------------------------------------------------------


def top(whole, method: str, qid: str) -> set[str]:
    own = whole.runs[(whole.runs["method"] == method) & (whole.runs["qid"] == qid)]
    return set(own[own["rank"].between(1, 5)]["pid"])


def test_overlap_is_what_anyone_counts_in_the_runs(whole):
    everything = whole.table2[whole.table2["reader"] == ""].set_index(["dataset", "method"])
    for d, questions in whole.lab.grid.sets.items():
        for method in ("standard", "hyde", CHOSEN, RANDOM, "chr+rotation"):
            shared = [len(top(whole, "chr", q.qid) & top(whole, method, q.qid)) for q in questions]
            row = everything.loc[(d, method)]
            assert row["count"] == pytest.approx(np.mean(shared))
            assert row["zero"] == pytest.approx(np.mean([s == 0 for s in shared]))
            assert row["fraction"] == pytest.approx(np.mean(shared) / 5)
            assert row["n"] == 3
        assert "chr" not in everything.loc[d].index


def test_outcomes_part_the_questions_by_who_was_right(whole):
    rows = whole.table2[whole.table2["reader"] == "evidence reader"]
    assert set(rows["method"]) == {"hyde"} and "chat" not in set(whole.table2["reader"])
    for d, questions in whole.lab.grid.sets.items():
        own = whole.answers[
            (whole.answers["dataset"] == d) & (whole.answers["reader"] == "evidence reader")
        ]
        right = {
            m: dict(zip(r["qid"], r["letter"] == r["gold"], strict=True))
            for m, r in own.groupby("method")
        }
        kinds = {
            (True, True): "both right",
            (True, False): "only the first right",
            (False, True): "only the second right",
            (False, False): "both wrong",
        }
        shared = {}
        for q in questions:
            kind = kinds[bool(right["chr"][q.qid]), bool(right["hyde"][q.qid])]
            both = top(whole, "chr", q.qid) & top(whole, "hyde", q.qid)
            shared.setdefault(kind, []).append(len(both))
        table = rows[rows["dataset"] == d].set_index("outcome")
        assert table.loc["all", "n"] == 3
        for kind in kinds.values():
            assert table.loc[kind, "n"] == len(shared.get(kind, []))
            if kind in shared:
                assert table.loc[kind, "count"] == pytest.approx(np.mean(shared[kind]))


def test_the_noise_floor_is_hyde_from_disjoint_samples(whole):
    written = {row["qid"]: row["hyde"] for row in ddx_mini.read("expansions")}
    retriever = whole.lab.grid.retriever
    floor = whole.table2[whole.table2["method"] == "noise floor"].set_index("dataset")
    for d, questions in whole.lab.grid.sets.items():
        shared = []
        for q in questions:
            first, second = (
                Hypotheses((Text(q.text, 1.0, "query"), *(Text(t) for t in some)))
                for some in (written[q.qid][::2], written[q.qid][1::2])
            )
            found = [retriever.search(request, 5) for request in (first, second)]
            shared.append(len({p for p, _ in found[0]} & {p for p, _ in found[1]}))
        assert floor.loc[d, "count"] == pytest.approx(np.mean(shared))
        assert floor.loc[d, "n"] == 3


class Varied(Counts):
    """HyDE's second passage is empty for case 1."""

    def _say(self, messages, n, options):
        if n == 1:
            return super()._say(messages, n, options)
        silent = "case 1" in messages[-1]["content"]
        return [
            Reply("" if silent and i else f"gout in case {i}", "stop", 5, 5, 0.1, "counts")
            for i in range(n)
        ]


@pytest.mark.parametrize("samples, n", [(1, 0), (2, 3)])
def test_without_a_second_sample_there_is_no_noise_floor(samples, n, own_folders):
    methods = {"chr": METHODS["chr"], "hyde": replace(METHODS["hyde"], samples=samples)}
    reader = EvidenceReader(HashEncoder(dim=64))
    lab = small(own_folders, cases(4), Varied(), methods, [reader])
    table = paper_tables.table2(lab, lab.answers())
    assert list(table[table["method"] == "noise floor"]["n"]) == ([n] if n else [])


# Table 3 -----------------------------------------------------------------------------------------


def test_reference_text_has_calls_and_no_tokens(whole):
    table = whole.table3.set_index("method")
    assert set(table.index) == {"hyde", "query2doc", "fusion", "hplus", "chr"}
    assert set(table["calls"].drop("hyde")) == {1}  # hyde has three samples
    assert set(table["n"]) == {6} and set(table["failed"]) == {0}
    (sets,) = set(table["dataset"])
    assert set(sets.split(", ")) == {"ddx-mini mmlu", "ddx-mini medqa"}
    assert table[["prompt_tokens", "output_tokens"]].isna().all(axis=None)
    printed = pd.read_csv(paths.REPORTED / "chr_table3_cost.csv")
    chr_row = printed[(printed["method"] == "CHR") & (printed["metric"] == "output_tokens")]
    assert table.loc["chr", "reported_output_tokens"] == float(chr_row["value"].iloc[0])


def test_what_a_model_generated_is_counted(own_folders):
    llm = Counts()
    lab = small(own_folders, cases(3), llm, methods_of(load_profile("mini")), [])
    table = paper_tables.table3(lab).set_index("method")
    assert table["output_tokens"].to_dict() == {
        "hyde": 15,
        "query2doc": 5,
        "csqe": 10,
        "thinkqe": 15,
        "fusion": 5,
        "hplus": 5,
        "chr": 5,
    }
    assert table.loc["csqe", "calls"] == 2 and table.loc["thinkqe", "calls"] == 3


# newcomers ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Advised:
    """A method of a reader's own, in one file: the question, and what a model says to it."""

    name: str = "advised"
    needs_llm: bool = True
    options_visible: bool = False
    max_tokens: int = 77
    colour: ClassVar[str] = "#123456"

    def budget(self) -> Budget:
        """One request for one text."""
        return Budget((("advised", 1),), 1, self.max_tokens)

    def expand(self, question, llm, search) -> Expansion:
        found = search(question_alone(question), 1)
        replies = llm.generate([{"role": "user", "content": found[0][1]}])
        texts = (Text(question.text, 1.0, "query"), Text(replies[0].text, 0.5))
        return Expansion(Hypotheses(texts), {"replies": replies})


class Distinct(Counts):
    """Every case has hypotheses of its own, so that there are strangers."""

    def _say(self, messages, n, options):
        said = super()._say(messages, n, options)
        text = messages[-1]["content"]
        case = next((c for c in (f"case {i}" for i in range(9)) if c in text), "")
        kind = f"in {case} of part {case[-1:]}"
        return [replace(reply, text=reply.text.replace("of the", kind)) for reply in said]


def newcomers_lab(folder) -> Experiment:
    methods = methods_of(load_profile("mini"))
    return small(folder, cases(6), Distinct(), methods, [EvidenceReader(HashEncoder(dim=64))])


def test_a_method_of_one_file_and_one_registry_line_is_in_every_table(own_folders, monkeypatch):
    monkeypatch.setitem(METHODS, "advised", Advised())
    lab = newcomers_lab(own_folders)
    runs, answers = lab.runs(), lab.answers()
    targets = {q.qid: {"01", "03"} for q in lab.grid.sets["mine"]}
    table1 = paper_tables.table1(lab, answers)
    quality = lab.quality(runs, targets, {})
    tables = (
        runs,
        answers,
        table1,
        paper_tables.table2(lab, answers),
        paper_tables.accuracy_without_llm(lab),
        quality,
        provenance.read_result("values_retrieval", "test")[0].rename(columns={"arm": "method"}),
    )
    assert all("advised" in set(table["method"]) for table in tables)
    assert "advised" in set(paper_tables.claims(lab, answers)["against"])
    cost = paper_tables.table3(lab).set_index("method").loc["advised"]
    assert (cost["calls"], cost["retrieval_rounds"], cost["output_tokens"]) == (1, 2, 5)
    assert cost["latency_s"] == pytest.approx(0.1)
    assert pd.isna(cost["reported_calls"])  # no paper prints it
    planned = lab.plan().set_index("who").loc["expand: advised"]
    assert planned.tolist() == [6, 6 * 77]
    assert not lab.visible["advised"] and lab.visible["chr+rotation"]
    assert colour_of("advised") == Advised.colour
    right = table1[table1["metric"] == "accuracy"]
    figure = figures.plot_methods(right, "accuracy", "", 0.4)
    assert "advised" in {t.get_text() for t in figure.axes[0].get_yticklabels()}
    cost = cost_points(lab, quality)
    figure = figures.plot_cost(cost, "output_tokens", "tokens", "P@3", "")
    assert "advised" in {text.get_text() for text in figure.axes[0].texts}


@dataclass(frozen=True)
class Milder(CHR):
    """CHR with less of the mimic: a method that has a lambda of its own."""

    name: str = "milder"
    lam: float = 0.7


def test_a_method_with_a_lambda_has_its_lines_in_figure_5_and_its_claims(own_folders, monkeypatch):
    monkeypatch.setitem(METHODS, "milder", Milder())
    lab = newcomers_lab(own_folders)
    five = paper_tables.figure5(lab, (0.0, 0.7), {})
    assert set(five["method"]) == {"chr", "milder"}
    assert set(five["series"]) == {"mine", "mine, milder"}
    answers = lab.answers()
    at = five[(five["method"] == "milder") & (five["lambda"] == 0.7)]["value"].item()
    right = accuracy(paper_tables.table1(lab, answers), "milder", "evidence reader")
    assert right == {"mine": pytest.approx(at)}
    claimed = paper_tables.claims(lab, answers)
    assert {("milder", "hplus"), ("chr", "hplus")} <= set(
        zip(claimed["arm"], claimed["against"], strict=True)
    )
    assert "chr" not in set(claimed["against"])


def cost_points(lab: Experiment, quality: pd.DataFrame) -> pd.DataFrame:
    cost = paper_tables.table3(lab)
    return cost.assign(value=cost["method"].map(quality.set_index("method")["p_at_5"]))


@pytest.mark.parametrize("settings", [{}, {"max_tokens": 5}])
def test_a_profile_sets_and_skips_a_newcomer_like_any_other(settings, monkeypatch):
    monkeypatch.setitem(METHODS, "advised", Advised())
    profile = load_profile("mini", methods={"advised": settings} if settings else {})
    assert methods_of(profile)["advised"] == Advised(**settings)
    assert "advised" not in methods_of(replace(profile, skip=("advised",)))


def test_a_control_of_one_way_is_in_every_table(own_folders, monkeypatch):
    """One line: CHR in a pool of four, with a stranger's mimic."""
    monkeypatch.setitem(controls.CONTROLS, "chr+pool4", {"mimic": "stranger", "pool": 4})
    lab = newcomers_lab(own_folders)
    runs, answers = lab.runs(), lab.answers()
    targets = {q.qid: {"01", "03"} for q in lab.grid.sets["mine"]}
    tables = (
        runs,
        answers,
        paper_tables.table1(lab, answers),
        paper_tables.table2(lab, answers),
        lab.quality(runs, targets, {}),
    )
    assert all("chr+pool4" in set(table["method"]) for table in tables)
    assert "chr+pool4" in lab.arms and lab.visible["chr+pool4"]
    plan = lab.plan()
    assert not plan["who"].str.contains("pool4").any()  # it asks nobody for anything
    found = runs[runs["method"] == "chr+pool4"].groupby("qid").size()
    assert set(found) == {4} and (runs["rank"] > 0).all()
    right = tables[2][tables[2]["metric"] == "accuracy"]
    figure = figures.plot_methods(right, "accuracy", "", 0.4)
    labels = [t.get_text() for t in figure.axes[0].get_yticklabels()]
    assert len([x for x in labels if "pool of 4" in x]) == 1
    assert label_of("chr+own_idea7") == "CHR, own idea7"  # a control that nobody named


def test_a_controls_retrieval_is_the_mean_over_its_draws(own_folders):
    """Each draw by itself: what is published under its name is no single draw's luck."""
    lab = newcomers_lab(own_folders)
    targets = {q.qid: frozenset({"01", "03", "08"}) for q in lab.grid.sets["mine"]}
    table = lab.quality(lab.runs(), targets, {}).set_index("method")
    values = provenance.read_result("values_retrieval", "test")[0]
    for arm in CONTROLS:
        each = []
        for draw in range(DRAWS):
            made = lab.grid.controlled(arm, "mine", draw)
            run, _ = execute(arm, lab.grid.sets["mine"], made, lab.grid.retriever, 10)
            found = {q: list(r["pid"])[:3] for q, r in run.groupby("qid")}
            each.append([len(targets[q] & set(found[q])) / 3 for q in targets])
        mean = np.mean(each, axis=0)
        assert table.loc[arm, "p_at_5"] == pytest.approx(mean.mean())
        own = values[(values["arm"] == arm) & (values["metric"] == "p_at_5")].set_index("qid")
        assert own["value"].reindex(list(targets)).tolist() == pytest.approx(mean, abs=6e-4)


# the script of docs/reproduce.md -----------------------------------------------------------------


def published_script() -> str:
    """The one in docs/reproduce.md: a recomputation of its own, which must not use what made it."""
    text = (paths.ROOT / "docs/reproduce.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"```python\n(.*?)```", text, re.S)
    assert "lib" not in re.findall(r"^\s*(?:from|import) (\w+)", script, re.M)
    return script


@pytest.mark.parametrize("kind", ["0/1", "fifths", "means of draws", "no difference"])
def test_the_scripts_p_is_that_of_all_signs(kind):
    functions = {}
    exec(published_script().partition("for path in")[0], functions)
    rng = np.random.default_rng(len(kind))
    choices = {"0/1": [-1, 0, 1, 1], "fifths": np.arange(-3, 6) / 5, "no difference": [0.0]}
    draws = rng.integers(-40, 60, 9) / 100
    d = draws if kind == "means of draws" else rng.choice(choices[kind], 9)
    signs = 1 - 2 * (np.arange(2 ** len(d))[:, None] >> np.arange(len(d)) & 1)
    sums = np.round(signs @ np.abs(d), 9)
    wanted = np.mean(np.abs(sums) >= np.round(abs(d.sum()), 9))
    assert functions["p_value"](d) == pytest.approx(wanted)


def test_the_published_script_recomputes_means_and_verdicts_from_committed_values(whole, tmp_path):
    script = published_script()
    folder = tmp_path / "data" / "results" / "mini"
    folder.mkdir(parents=True)
    (folder / "values_retrieval.csv").write_bytes((whole.out / "values_retrieval.csv").read_bytes())
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"hit_at_5": rng.random(40) < 0.9, "p_at_5": rng.integers(3, 6, 40) / 5})
    more = table.rename_axis("qid").rename(index="q{}".format).astype(float)
    less = more.assign(p_at_5=(more["p_at_5"] - 0.6).clip(0), hit_at_5=0.0)
    values = pd.concat([long_values("chr@1", more), long_values("hplus", less)])
    pairs = [
        Pair("finds more", "p_at_5", "chr@1", "hplus", primary=True),
        Pair("hits more", "hit_at_5", "chr@1", "hplus"),
    ]
    told = claims(values, pairs)
    assert list(told["verdict"]) == ["SUPPORTED", ""]
    for name in ("one", "two"):
        told.to_csv(folder / f"claims_{name}.csv", index=False, float_format="%.3f")
        told["verdict"] = ["AGAINST", ""]  # the second file says what is not so
    values.to_csv(folder / "values_one.csv", index=False)
    values.to_csv(folder / "values_two.csv.xz", index=False)
    run = subprocess.run(
        [sys.executable, "-I", "-c", script],  # without PYTHONPATH: lib cannot be imported
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = run.stdout.splitlines()
    assert "data/results/mini/claims_one.csv True True" in lines
    assert "data/results/mini/claims_two.csv True False" in lines
    printed = {tuple(line.split()) for line in lines}
    for row in whole.quality.itertuples():
        shown = {x[-1] for x in printed if len(x) > 1 and x[-2] == "p_at_5"}
        assert any(abs(float(x) - row.p_at_5) < 6e-4 for x in shown), row.method


# figures -----------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def closed_figures():
    import matplotlib.pyplot as plt

    plt.switch_backend("Agg")
    yield
    plt.close("all")


ROWS = (*METHODS, CHOSEN, *CONTROLS, RANDOM, *NO_RETRIEVAL, "majority", NAMED)
KEYS = {method_label(arm, 0.4): arm for arm in ROWS}
"""Which row is meant by what a figure calls it."""


def test_the_dots_of_the_small_experiment_are_its_table(whole):
    table = whole.table1[whole.table1["metric"] == "accuracy"]
    shown = table[table["answerer"].isin(["evidence reader", "no reader"])]
    figure = figures.plot_methods(shown.assign(answerer="one"), "accuracy", "", 0.4)
    names = [KEYS[t.get_text()] for t in figure.axes[0].get_yticklabels()]
    assert set(names) == set(shown["method"])
    for axis in figure.axes:
        style = axis.get_title(loc="left").split(",")[0].split("\n")[0]
        own = shown[shown["dataset"] == style].set_index("method")["value"]
        drawn = {KEYS[name]: value for name, (value, _) in dots(axis).items()}
        assert drawn == own.to_dict()


def test_accuracy_over_lambda_is_one_line_a_set_and_a_band(whole):
    table = whole.figure5.assign(n=9)
    figure = plot_curves(table, "", panel="metric", line="series", ylabel="mean", lam=0.4)
    for axis, metric in zip(figure.axes, table["metric"].unique(), strict=True):
        own = table[table["metric"] == metric]
        lines = {line.get_label(): line for line in axis.lines}
        bands = iter(axis.collections)
        for name, rows in own.groupby("series", sort=False):
            assert lines[name].get_xdata().tolist() == rows["lambda"].tolist()
            assert lines[name].get_ydata().tolist() == rows["value"].tolist()
            ys = next(bands).get_paths()[0].vertices[:, 1]
            assert (ys.min(), ys.max()) == (rows["low"].min(), rows["high"].max())


# what was written after reading, and how it was graded -------------------------------------------


def test_every_reading_is_in_the_reference_recording_word_for_word():
    rows = ddx_mini.read("readings")
    path = paths.RECORDINGS / "reference.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    said = {line["key"]: line["reply"]["text"] for line in lines}
    assert Counter(row["method"] for row in rows) == {"csqe": 120, "thinkqe": 360}
    assert len({row["key"] for row in rows}) == len(rows) == 480
    asked = Counter((row["method"], row["qid"]) for row in rows)
    assert asked == {
        (m, q.qid): n for q in load_questions("ddx-mini") for m, n in (("csqe", 1), ("thinkqe", 3))
    }
    for row in rows:
        assert said.get(row["key"]) == row["text"], (row["method"], row["qid"])


def test_the_readme_states_the_corruption_sweep_as_it_is_drawn():
    text = (paths.DDX_MINI / "README.md").read_text(encoding="utf-8")
    drawn = pd.read_csv(paths.ROOT / "figures" / "mini" / "08_corruption.csv")
    drawn = drawn[drawn["lambda"].isin([0.0, 0.2, 0.4, 1.0])]
    wide = drawn.pivot(index="wrong", columns="lambda", values="p_at_5")
    told = re.findall(r"^\| (\d+)% \| (.+) \|$", text, re.M)
    assert {int(share) / 100: [*map(float, row.split(" | "))] for share, row in told} == {
        share: list(row) for share, row in zip(wide.index, wide.to_numpy(), strict=True)
    }


def test_the_readme_states_the_grades_that_the_file_holds():
    rows = ddx_mini.read("mimic_grades")
    text = " ".join((paths.DDX_MINI / "README.md").read_text(encoding="utf-8").split())
    for grade in ("Excellent", "Good", "Poor"):
        first, second = map(int, re.search(rf"{grade} (\d+) and (\d+)", text).groups())
        assert [first, second] == [
            sum(r[who] == grade for r in rows) for who in ("first", "second")
        ]
    agree, n = map(int, re.search(r"they agree on (\d+) of (\d+)", text).groups())
    assert (agree, n) == (sum(r["first"] == r["second"] for r in rows), len(rows))
    by_chance = sum(
        sum(r["first"] == g for r in rows) * sum(r["second"] == g for r in rows) / len(rows) ** 2
        for g in {r[who] for r in rows for who in ("first", "second")}
    )
    kappa = (agree / n - by_chance) / (1 - by_chance)
    assert re.search(r"Cohen's kappa (\d\.\d+)", text)[1] == f"{kappa:.2f}"
    right = tuple(map(int, re.search(r"is right in (\d+) of (\d+)", text).groups()))
    assert right == (sum(r["h_plus"] == "right" for r in rows), len(rows))
    assert {r["qid"] for r in rows} == {q.qid for q in load_questions("ddx-mini")}
    for name in ("readings", "mimic_grades"):
        (count,) = re.findall(rf"`{name}\.jsonl` \| (\d+) \|", text)
        assert int(count) == len(ddx_mini.read(name))
