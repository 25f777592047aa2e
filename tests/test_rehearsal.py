"""The paper profile at full length, small: its tables drawn, all tokens counted twice.

Notebook 09, which asks no LLM in a rehearsal, runs only in ``make rehearsal``.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import count

import pandas as pd
import pytest
from IPython.core.pylabtools import retina_figure

from lib import cost as needs
from lib import notebooks, plots
from lib.base import paths
from lib.base.provenance import read_result
from lib.benchmarks import load_benchmark
from lib.benchmarks.base import Benchmark
from lib.corpora import load_passages
from lib.data.medrag import SOURCES, TENTHS, estimate, load_medrag
from lib.data.passages import Passage
from lib.data.store import PassageStore
from lib.embed import HashEncoder
from lib.llm.connect import SET_ASIDE, model_at
from lib.llm.openai_chat import OpenAIChat
from lib.methods import METHODS, Budget
from lib.methods.hyde import HyDE
from lib.open_retriever import retriever_for
from lib.plots.figures import plot_methods
from lib.profiles import load_profile
from lib.run import Retriever
from lib.search.label_tokens import LABEL_TOKENS
from lib.studies.main_tables import experiment
from tests.rehearsal import run as rehearsal
from tests.rehearsal import scale, stand_ins
from tests.rehearsal.server import LogServer, Scripted, limits
from tests.student import only_the_table
from tests.tiny_models import save_pairs, save_t5
from tools import measure_needs

LIMIT = 3
OF_09 = {"nli_quality", "contradiction_heatmap", *(f"contradiction_table{i}" for i in (1, 2, 3))}


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A rehearsal's folder, with stand-ins for everything, on ddx-mini's questions.

    It shares the project's vectors, which are named by what they are of: 07 needs those of mini.
    """
    folder = tmp_path_factory.mktemp("rehearsal")
    (folder / "cache").mkdir()
    (folder / "cache" / "vectors").symlink_to(paths.cache("vectors"))
    log, shipped = rehearsal.Rehearsal(folder).log, load_profile(str(rehearsal.SHIPPED))
    with (
        LogServer(Scripted(pause=True), log, *limits(shipped)) as server,
        pytest.MonkeyPatch.context() as p,
    ):
        made = rehearsal.prepare(folder, None, server.url)
        for name, value in made.environment().items():
            p.setenv(name, value)
        p.delenv(SET_ASIDE, raising=False)
        p.chdir(paths.ROOT / "notebooks")
        yield made


@pytest.fixture(scope="module")
def performed(here):
    """A whole run, with its experiment opened once more at the end."""
    import matplotlib

    matplotlib.use("agg")
    profile = load_profile(str(here.profile), limit=LIMIT)
    every_set = experiment.question_sets

    def one_of_three(names, n):  # of ddx-mini's sets, that of Figure 5: a third of the cells
        return {k: v for k, v in every_set(names, n).items() if not n or k.endswith("medqa")}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment, "question_sets", one_of_three)
        patch.setattr(plots, "save", only_the_table)
        rehearsal.at_once(profile)
        for name in notebooks.ORDER:
            if name != "09_contradictions":
                run_cells(name)
        yield experiment.open_experiment(profile)


def run_cells(name: str) -> None:
    """The code cells of one notebook, in order, in a namespace of their own."""
    import matplotlib.pyplot as plt

    scope: dict = {}
    for cell in json.loads((paths.ROOT / "notebooks" / f"{name}.ipynb").read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), name, "exec"), scope)
            if "parameters" in cell["metadata"].get("tags", []):
                scope |= {"profile": os.environ["CHR_PROFILE"], "limit": LIMIT}
    plt.close("all")


def test_every_other_table_is_drawn_and_nothing_is_asked_twice(performed, here):
    profile = load_profile(str(here.profile), limit=LIMIT)
    assert set(rehearsal.undrawn(profile)) == OF_09
    log = pd.read_json(here.log, lines=True)
    assert not log["request"].duplicated().any()
    answers = performed.answers()
    chat = {s["name"] for s in profile.answerers if s["kind"] == "chat"}
    assert len(chat) == 3 and {"hyde", "query2doc", "csqe", "thinkqe", "chr"} <= set(performed.arms)
    of_models = answers[answers["reader"].isin(chat)]
    read = of_models.groupby(["reader", "method"])["qid"].size()
    assert set(read) == {LIMIT} and len(read) == 3 * len(performed.arms)
    assert performed.not_run().empty
    # Three budgets of Table 3 have rows of their own, and Gemma answers at every lambda.
    budgets = {f"{method}_table3" for method in ("query2doc", "csqe", "thinkqe")}
    assert budgets <= set(read_result("table3", profile.name)[0]["method"])
    five = read_result("figure5", profile.name)[0]
    swept = five[five["answerer"] == "Gemma-2-9B-It"]
    assert set(swept["dataset"]) == {f"ddx-mini medqa{half}" for half in ("", ", dev", ", test")}
    assert (
        swept.groupby(["dataset", "metric"])["lambda"].agg(list).map(tuple) == profile.lambdas
    ).all()
    chosen = read_result("figure5_choice", profile.name)[0]
    assert set(chosen["n"]) == {2} and set(chosen["dev_n"]) == {1}
    assert len(pd.read_json(here.log, lines=True)) == len(log)


def test_the_ledger_is_what_the_server_served_by_its_own_count(performed, here):
    log, table = pd.read_json(here.log, lines=True), rehearsal.compare(here)
    profile = load_profile(str(here.profile))
    specs = [profile.llm, *(s["llm"] for s in profile.answerers if "llm" in s)]
    assert set(table["model"]) == {model_at(s.rpartition("openai:")[2])[0] for s in specs}
    assert table["equal"].all() and (table[rehearsal.COUNTS] > 0).all(axis=None)
    assert (log["status"] == 200).all()
    for counted in ("prompt_tokens", "output_tokens"):
        assert table[counted].sum() == log[counted].sum()
    # What a model is sent is what it can read, and as many are in flight as the profile says.
    windows, no_system = limits(profile)
    assert no_system == {"google/gemma-2-9b-it"} and len(windows) == 3
    for model, window in windows.items():
        sent = log[log["model"] == model]
        assert (sent["system"] == (model not in no_system)).all() and len(sent)
        assert (sent["prompt_tokens"] + sent["max_tokens"] <= window).all()
    # How many at once depends on how busy this machine is: more than one after the other, at least.
    assert 8 <= log["in_flight"].max() <= load_profile("paper").workers


# RAG2's profile -----------------------------------------------------------------------------------

RAG2 = """
base = "rag2"
title = "rehearsal: rag2 on stand-ins"
questions = ["ddx-mini"]
benchmarks = ["ddx-mini"]
llm = "record:{home}/rag2.jsonl=openai:meta-llama/Meta-Llama-3-8B-Instruct@{url}"
[encoder_options]
query_model = "{here}/query"
article_model = "{here}/article"
[methods.medrag_rrf4]
encoders = ["hash"]
[methods.rag2_unfiltered]
reranker = "hub:{home}/cross"
[methods.rag2_stacked]
reranker = "hub:{home}/cross"
[methods.rag2_unfiltered_k1]
like = "rag2_unfiltered"
read = 1
[methods.rag2]
reranker = "hub:{home}/cross"
judge = "hub:{home}/flan"
[[answerers]]
kind = "chat"
name = "Llama-3-8B-Instruct"
llm = "record:{home}/rag2.jsonl=openai:meta-llama/Meta-Llama-3-8B-Instruct@{url}"
context_tokens = 8192
"""


def test_rag2_runs_from_its_profile_and_goes_on_where_it_was_killed(here, tmp_path, monkeypatch):
    save_pairs(tmp_path / "cross")
    file, asked, answer = tmp_path / "mine.toml", count(), OpenAIChat.generate

    def killed(self, *args, **kwargs):
        if next(asked) >= 4:
            raise KeyboardInterrupt
        return answer(self, *args, **kwargs)

    with LogServer(Scripted(), tmp_path / "served.jsonl") as server:
        file.write_text(RAG2.format(home=tmp_path, here=here.folder, url=server.url))
        profile = load_profile(str(file), limit=LIMIT)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(OpenAIChat, "generate", killed)
            experiment.open_experiment(profile).runs()
        without = experiment.open_experiment(profile)
        assert "rag2_unfiltered" in set(without.runs()["method"])
        lacking = without.not_run()
        assert set(lacking["method"]) == {"rag2"} and "flan" in lacking["how"].iloc[0]
        save_t5(tmp_path / "flan", LABEL_TOKENS)
        done = experiment.open_experiment(profile)
        runs, answers = done.runs(), done.answers()
    assert done.not_run().empty
    rows = {
        "standard",
        "medrag_rrf2",
        "medrag_rrf4",
        "query2doc",
        "medcpt_rationale",
        "rag2_unfiltered",
        "rag2",
        "rag2_unfiltered_k1",
    }
    of_one = runs[runs["method"] == "rag2_unfiltered_k1"]
    assert (of_one["rank"] == 1).all() and len(of_one)
    assert rows <= set(runs["method"]) and rows | {"closed_book"} <= set(answers["method"])
    log = pd.read_json(tmp_path / "served.jsonl", lines=True)
    assert len(log) and not log["request"].duplicated().any()


# the stand-ins -----------------------------------------------------------------------------------


def test_the_stand_in_corpus_is_ddx_mini_in_the_files_of_medcorp(here):
    found = {source: list(load_passages(source)) for source in SOURCES}
    sizes = {"pubmed": 339, "textbooks": 88, "wikipedia": 68, "statpearls": 129}
    assert {source: len(passages) for source, passages in found.items()} == sizes
    texts = [p.text for passages in found.values() for p in passages]
    assert sorted(texts) == sorted(p.text for p in load_passages("ddx-mini"))
    assert all(p.meta["pmids"] for p in found["pubmed"]) and not found["textbooks"][0].meta
    assert all(" -- " in p.title for p in found["statpearls"])


def test_a_tenth_is_one_of_ten_by_their_ids_whatever_their_order(tmp_path):
    rows = dict.fromkeys(SOURCES, 4000) | {"statpearls": 0}
    stand_ins.corpora(tmp_path, (), rows, 3)
    for tenth, source in TENTHS.items():
        whole = list(load_medrag(source, tmp_path / "medrag" / source))
        few = list(load_medrag(tenth, tmp_path / "medrag" / source))
        digest = {p.pid: sha256(p.pid.encode()).hexdigest()[:16] for p in whole}
        assert few == [p for p in whole if int(digest[p.pid], 16) % 10 == 0]
        assert 300 < len(few) < 500
        assert 9.9 < estimate(source).rows / estimate(tenth).rows < 10.1
        assert estimate(source).download_gb == estimate(tenth).download_gb
    parts = ["textbooks", "statpearls", *TENTHS]
    assert 5.75e6 < sum(estimate(name).rows for name in parts) < 5.85e6


def test_a_corpus_of_any_size_is_in_the_publishers_files(tmp_path, monkeypatch):
    rows = dict.fromkeys(SOURCES, 400) | {"textbooks": 0}
    monkeypatch.setattr(stand_ins, "_IN_A_FILE", 150)
    for words in (0, 5):
        stand_ins.corpora(tmp_path, (), rows, words)
        found = {name: list(load_medrag(name, tmp_path / "medrag" / name)) for name in SOURCES}
        assert {name: len(passages) for name, passages in found.items()} == rows | {"textbooks": 88}
        assert len({p.pid for passages in found.values() for p in passages}) == 1288
        assert len(list((tmp_path / "medrag" / "pubmed" / "chunk").iterdir())) == 3
        lengths = {len(p.text.split()) for p in found["wikipedia"][68:]}
        assert lengths == {5} if words else min(lengths) > 10


STEPS = """
import resource, sys
print("[01_first] running", file=sys.stderr, flush=True)
import time
kept = bytearray(200_000_000)
opened = [open(__file__) for _ in range(100)]
time.sleep(1)
print("[02_second] running", file=sys.stderr, flush=True)
del kept
time.sleep(1)
sys.exit(resource.getrlimit(resource.RLIMIT_NOFILE)[1] != 256)
"""


def test_memory_and_open_files_are_measured_step_by_step(tmp_path, monkeypatch):
    (tmp_path / "in_steps.py").write_text(STEPS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    table = scale.watched(["in_steps"], "before", scale.NOTEBOOK).set_index("step")
    assert table.index.tolist() == ["before", "01_first", "02_second"]
    first, second = table.loc["01_first"], table.loc["02_second"]
    assert first["peak_mb"] > 200 > second["peak_mb"] and first["own_mb"] > 200 > second["own_mb"]
    assert 256 > first["open_files"] > 100 and second["seconds"] > 0.9
    with pytest.raises(RuntimeError, match="ended with 1"):
        scale.watched(["in_no_steps"], "before")


def test_what_was_not_measured_has_the_line_through_what_was():
    rows = [(n, step, 1.0, a + b * n, b * n, 9) for n in (1, 3) for step, a, b in MEMORY]
    table = scale.line(pd.DataFrame(rows, columns=scale.COLUMNS), 10)
    assert table["rows"].tolist() == [10, 10, 10] and table["seconds"].isna().all()
    assert table["peak_mb"].tolist() == pytest.approx([102, 5, 7])
    assert table["own_mb"].tolist() == pytest.approx([20, 0, -2])


MEMORY = (("encode", 82, 2), ("search", 5, 0), ("a step that fell by chance", 9, -1))


# what the paper profile needed -------------------------------------------------------------------

JUDGED = Benchmark(
    name="judged",
    title="",
    corpora=("bioasq",),
    qids=("q1", "q2"),
    questions=("a", "b"),
    h_plus=("a", "b"),
    h_minus={"nearest": ("b", "a")},
    targets={"q1": frozenset({"bioasq:1", "bioasq:2"}), "q2": frozenset({"bioasq:3"})},
    mimics={"q1": frozenset({"bioasq:3"}), "q2": frozenset({"bioasq:1"})},
)


def test_judgments_reach_another_corpus_by_pubmed_id(tmp_path, monkeypatch):
    """Every passage of the same document counts; one of a document without judgment does not."""

    def passages(corpus: str, *rows: tuple[str, list[str]]) -> list[Passage]:
        return [Passage(f"{corpus}:{i}", "", i, corpus, {"pmids": pmids}) for i, pmids in rows]

    known = passages("bioasq", ("1", ["11"]), ("2", ["12", "13"]), ("3", ["14"]), ("4", ["15"]))
    medcorp = passages("pubmed", ("a", ["11"]), ("b", ["13"]), ("c", ["13"]), ("d", ["15"]))
    medcorp += [Passage("wikipedia:1", "", "x", "wikipedia", {})]
    monkeypatch.setattr(experiment, "load_benchmark", lambda name, encoder: JUDGED)
    monkeypatch.setattr(experiment, "load_passages", lambda name: known)
    store = PassageStore.build(tmp_path / "store.sqlite", medcorp)
    lab = experiment.Experiment(load_profile("paper"), {}, Retriever(None, None, store), None, {})
    targets, mimics = lab.relevance()
    assert targets == {"q1": {"pubmed:a", "pubmed:b", "pubmed:c"}, "q2": set()}
    assert mimics == {"q1": set(), "q2": {"pubmed:a"}}
    assert replace(lab, profile=load_profile("open")).relevance()[0] == JUDGED.targets


def test_a_benchmark_is_searched_where_its_passages_are(own_folders):
    known = load_benchmark("ddx-mini")
    for corpora in (("ddx-mini",), ("pubmed",)):
        profile = replace(load_profile("mini"), corpora=corpora)
        found = retriever_for(known, profile, HashEncoder(dim=32))
        assert len(found.store) == len(found.index) == 624
        assert known.targets["medqa-01"] <= set(found.index.ids)


def test_what_nothing_is_known_about_is_said_and_not_drawn_as_zero():
    columns = ["dataset", "method", "answerer", "metric", "value", "n", "label", "difference"]
    nothing = pd.DataFrame(columns=columns)
    for figure in (plot_methods(nothing, "P@5", "", 0.4), plots.plot_differences(nothing, "P@5")):
        assert figure.texts[0].get_text() == "P@5: NOT MEASURED"
        assert not any(axes.has_data() or axes.axison for axes in figure.axes)
        assert retina_figure(figure) is not None  # as a notebook shows it


def test_passages_are_measured_at_their_length():
    found = dict(measure_needs.passages(50))
    assert found["bytes of a stored passage"] > measure_needs.PASSAGE_CHARACTERS
    assert min(found.values()) > 0 and len(found) == 3


@dataclass(frozen=True)
class Mine(HyDE):
    """A method of a reader's own, with a prompt of its own."""

    name: str = "mine"

    def budget(self) -> Budget:
        return Budget((("a prompt of mine", 0),), texts=1, max_tokens=100)


def test_a_prompt_that_nobody_has_counted_is_costed_as_the_longest(monkeypatch):
    before = needs.tokens(load_profile("paper")).set_index("who")
    monkeypatch.setitem(METHODS, "mine", Mine())
    told = needs.tokens(load_profile("paper")).set_index("who")
    others = before[before.index.str.startswith("expand")]
    pd.testing.assert_frame_equal(told.loc[others.index], others)
    row = told.loc["expand: mine"]
    assert (row["requests"], row["at_most"]) == (2980, 298_000)
    once = others[others["requests"] == 2980].drop("expand: csqe_table3")  # it shows passages
    assert row["prompt_tokens"] >= once["prompt_tokens"].max()


def test_the_page_states_what_is_printed_and_counted():
    page, told = needs.page(), needs.tokens(load_profile("paper")).set_index("who")
    assert "2,980" in page and "54,227,000" in page and "{" not in page.replace("${", "")
    assert told.loc["expand: hyde", "requests"] == 2980
    printed = 2926 / 8  # Table 3: tokens by calls, as often as HyDE's samples
    assert told.loc["expand: hyde", "output_tokens"] == pytest.approx(2980 * 8 * printed, abs=1)
    assert (told["output_tokens"] <= told["at_most"]).all()
    # Ten methods, three of them in two budgets, CHR at the chosen lambda, two controls, random,
    # two without search.
    arms = 19
    answers = told[told.index.str.startswith("answer: ")]
    assert (answers["requests"] == 2980 * arms).all() and len(answers) == 3
    # Figure 5: H+ alone, lambda 0.4 and 1 are rows of the grid.
    assert told.loc["answer over λ: Gemma-2-9B-It", "requests"] == 1273 * len(
        (0.2, 0.6, 0.8, 1.2, 1.4)
    )
    spent = needs.hours(load_profile("paper"))
    assert (spent["hours"] <= spent["at_most"]).all()
    assert (spent["hours"] < spent["at_most"]).head(4).all(), "the study's answers are at their cap"
    assert (spent["weights_gb"] < 80 * spent["gpus"]).all()
