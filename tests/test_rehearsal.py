"""The paper profile at full length, small: killed, resumed, its tables drawn, all tokens told.

Notebook 09, which asks no LLM in a rehearsal, runs only in ``make rehearsal``.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from lib import cost as needs
from lib.base import paths
from lib.benchmarks import load_benchmark
from lib.benchmarks.base import Benchmark
from lib.corpora import load_passages
from lib.data.medrag import SOURCES
from lib.data.passages import Passage
from lib.data.store import PassageStore
from lib.embed import HashEncoder
from lib.open_retriever import retriever_for
from lib.plots import plot_differences
from lib.plots.figures import plot_methods
from lib.profiles import load_profile
from lib.run import Retriever
from lib.studies.main_tables import experiment
from tests.rehearsal import run as rehearsal
from tests.rehearsal.served import COUNTS, compare
from tests.rehearsal.server import Generated, LogServer, limits
from tools import measure_needs

LETTERS = re.compile(r"\w{1,5}|[^\w\s]")
"""A token of the scripted engine: up to five letters, or a sign."""
SAMPLE = 3
TABLES_OF_09 = ("table1", "table2", "table3")


class Scripted:
    """Writes what kind of reply is asked for, each prompt its own, and counts by its own rule.

    The two requests after each of ``kills`` take half a second, so that they are in flight by then;
    those that are asked all at once take longer, so that a busy machine has sent them by then.
    """

    def __init__(self, kills: Sequence[int] = ()):
        self.asked, self.lock = 0, threading.Lock()
        self.held = {kill + more for kill in kills for more in (1, 2)}
        self.mine = threading.local()

    def count(self, messages: list[dict]) -> int:
        """Asked once a request, by the thread that generates its samples."""
        with self.lock:
            self.asked += 1
            self.mine.held = self.asked in self.held
        return self.tokens(messages)

    def tokens(self, messages: list[dict]) -> int:
        return sum(4 + len(LETTERS.findall(m["content"])) for m in messages)

    def generate(self, body: dict) -> Generated:
        all_at_once = body["max_tokens"] == 1
        if all_at_once:
            time.sleep(0.8)  # less than ``kill_rehearsal`` waits for what is under way
        else:
            time.sleep(0.5 if self.mine.held else 0.03)
        asked = json.dumps([body["messages"], body.get("seed", 0)])
        mark = hashlib.sha256(asked.encode()).hexdigest()
        text = f"A passage on the {mark[:4]} of kidney pain and heart fever."
        if "response_format" in body:
            hypotheses = {"H_plus": f"gout of {mark[:3]}", "H_minus": f"sepsis of {mark[3:6]}"}
            text = json.dumps(hypotheses)
        elif "answer_choice" in asked:
            text = json.dumps({"answer_choice": "ABCD"[int(mark[0], 16) % 4]})
        tokens = len(LETTERS.findall(text))
        return Generated(text, "stop", self.tokens(body["messages"]), tokens)


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A rehearsal's folder, with stand-ins for everything, on ddx-mini's questions.

    It shares the project's vectors, which are named by what they are of: 07 needs those of mini.
    """
    folder = tmp_path_factory.mktemp("rehearsal")
    (folder / "cache").mkdir()
    (folder / "cache" / "vectors").symlink_to(paths.cache("vectors"))
    return rehearsal.prepare(folder, None, sample=SAMPLE)


@pytest.fixture
def inside(here, monkeypatch):
    """This process told what the rehearsal's are told, but for the server."""
    for name, value in here.environment("http://127.0.0.1:9/v1").items():
        monkeypatch.setenv(name, value)
    return here


@pytest.fixture(scope="module")
def performed(here):
    """(what the child told, the log): a whole run, killed at two seeded places and resumed."""
    kills = [62, 96]  # each the first of three that are asked at once: two are under way
    profile = load_profile(str(here.profile))
    with LogServer(Scripted(kills=kills), here.log, *limits(profile)) as server:
        script = Path(__file__).with_name("kill_rehearsal.py")
        run = subprocess.run(
            [sys.executable, script, here.folder, server.url, *map(str, kills)],
            env=os.environ | {"PYTHONPATH": str(paths.ROOT)},
            capture_output=True,
            text=True,
        )
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(run.stdout), pd.read_json(here.log, lines=True)


def test_killed_twice_and_resumed_every_other_table_is_drawn(performed, here):
    told, _ = performed
    assert (told["hit"], told["not_run"]) == (2, 0)
    of_09 = {"nli_quality", *(f"contradiction_{x}" for x in ("heatmap", *TABLES_OF_09))}
    # The texts of its Table 1 are generated: 06 has no others of its own.
    of_06 = {"runs_generated", "retrieval_generated"}
    assert set(told["undrawn"]) == of_09 | of_06
    profile = load_profile(str(here.profile))
    answers = pd.read_csv(here.folder / "out" / "results" / profile.name / "answers.csv")
    chat = [s["name"] for s in profile.answerers if s["kind"] == "chat"]
    assert len(chat) == 3 and {"hyde", "query2doc", "csqe", "thinkqe", "chr"} <= set(told["arms"])
    read = answers.groupby(["reader", "method"])["qid"].size()
    assert {(r, m): n for (r, m), n in read.items() if r in chat} == {
        (r, m): SAMPLE for r in chat for m in told["arms"]
    }
    assert (answers.loc[answers["reader"].isin(chat), "documents_cut"] > 0).any()


def test_the_ledger_is_what_the_server_served_by_its_own_count(performed, here):
    _, log = performed
    table = compare(here.recording, here.log)
    profile = load_profile(str(here.profile))
    specs = [profile.llm, *(s["llm"] for s in profile.answerers if "llm" in s)]
    assert set(table["model"]) == {spec.rpartition("openai:")[2] for spec in specs}
    assert table["equal"].all() and (table[COUNTS] > 0).all(axis=None)
    kept = log.drop_duplicates("request", keep="last")
    assert (log["status"] == 200).all()
    for count in ("prompt_tokens", "output_tokens"):
        assert table[count].sum() == kept[count].sum()
    # What a model is sent is what it can read, and as many are in flight as the profile says.
    windows, no_system = limits(profile)
    assert no_system == {"google/gemma-2-9b-it"} and len(windows) == 3
    for model, window in windows.items():
        own = log[log["model"] == model]
        assert (own["system"] == (model not in no_system)).all() and len(own)
        assert (own["prompt_tokens"] + own["max_tokens"] <= window).all()
    assert 32 <= log["in_flight"].max() <= load_profile("paper").workers


def test_nothing_is_answered_twice_but_what_was_in_flight_at_a_kill(performed, here):
    """Lost is what the server had answered and the disk did not have when the client was dead."""
    told, log = performed
    lost = [k["served"] - k["recorded"] for k in told["seen"]]
    again = log[log["request"].duplicated(keep="last")]
    assert 0 < lost[0] < lost[1] == len(again)
    assert lost[0] <= SAMPLE and lost[1] - lost[0] <= SAMPLE, "no cell asks more at once"
    for row in again.itertuples():
        assert any(row.start <= k["at"] and k["at"] - row.end < 5 for k in told["seen"])


# the stand-ins -----------------------------------------------------------------------------------


def test_the_stand_in_corpus_is_ddx_mini_in_the_files_of_medcorp(inside):
    found = {source: list(load_passages(source)) for source in SOURCES}
    assert {source: len(some) for source, some in found.items()} == {
        "pubmed": 339,
        "textbooks": 88,
        "wikipedia": 68,
        "statpearls": 129,
    }
    texts = [p.text for some in found.values() for p in some]
    assert sorted(texts) == sorted(p.text for p in load_passages("ddx-mini"))
    assert all(p.meta["pmids"] for p in found["pubmed"]) and not found["textbooks"][0].meta
    assert all(" -- " in p.title for p in found["statpearls"])


# what the paper profile needed -------------------------------------------------------------------


def test_a_profile_of_ones_own_changes_what_it_names_and_keeps_the_rest(tmp_path):
    (tmp_path / "mine.toml").write_text('base = "paper"\nworkers = 7\n')
    mine, paper = load_profile(str(tmp_path / "mine.toml")), load_profile("paper")
    assert mine == replace(paper, name="mine", workers=7)
    assert load_profile(str(tmp_path / "mine.toml"), limit=9).name == "mine-9"
    with pytest.raises(ValueError, match="there are: mini, open, paper"):
        load_profile(str(tmp_path / "yours.toml"))


def judged() -> Benchmark:
    return Benchmark(
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
    monkeypatch.setattr(experiment, "load_benchmark", lambda name, encoder: judged())
    monkeypatch.setattr(experiment, "load_passages", lambda name: known)
    store = PassageStore.build(tmp_path / "store.sqlite", medcorp)
    retriever = Retriever(None, None, store)
    lab = experiment.Experiment(load_profile("paper"), {}, retriever, None, {})
    targets, mimics = lab.relevance()
    assert targets == {"q1": {"pubmed:a", "pubmed:b", "pubmed:c"}, "q2": set()}
    assert mimics == {"q1": set(), "q2": {"pubmed:a"}}
    assert replace(lab, profile=load_profile("open")).relevance()[0] == judged().targets


def test_a_benchmark_is_searched_where_its_passages_are(own_folders, monkeypatch):
    encoder = HashEncoder(dim=32)
    known = load_benchmark("ddx-mini")
    for corpora in (("ddx-mini",), ("pubmed",)):
        profile = replace(load_profile("mini"), corpora=corpora)
        found = retriever_for(known, profile, encoder)
        assert len(found.store) == len(found.index) == 624
        assert known.targets["medqa-01"] <= set(found.index.ids)


def test_what_nothing_is_known_about_is_said_and_not_drawn_as_zero():
    import matplotlib.pyplot as plt

    columns = ["dataset", "method", "answerer", "metric", "value", "n", "label", "difference"]
    nothing = pd.DataFrame(columns=columns)
    drawn = (plot_methods(nothing, "P@5", "", 0.4), plot_differences(nothing, "P@5"))
    for figure in drawn:
        assert figure.texts[0].get_text() == "P@5: NOT MEASURED" and not figure.axes
        plt.close(figure)


def test_passages_are_measured_at_their_length():
    found = dict(measure_needs.passages(50))
    assert found["bytes of a stored passage"] > measure_needs.PASSAGE_CHARACTERS
    assert min(found.values()) > 0 and len(found) == 3


def test_the_page_states_what_is_printed_and_counted():
    page, told = needs.page(), needs.tokens(load_profile("paper")).set_index("who")
    assert "2,980" in page and "54,227,000" in page and "{" not in page.replace("${", "")
    assert told.loc["expand: hyde", "requests"] == 2980
    printed = 2926 / 8  # Table 3: tokens by calls, as often as HyDE's samples
    assert told.loc["expand: hyde", "output_tokens"] == pytest.approx(2980 * 8 * printed, abs=1)
    assert (told["output_tokens"] <= told["at_most"]).all()
    arms = 14  # eight methods, CHR at the chosen lambda, two controls, random, two without search
    answers = told[told.index.str.startswith("answer")]
    assert (answers["requests"] == 2980 * arms).all() and len(answers) == 3
    spent = needs.hours(load_profile("paper"))
    assert (spent["hours"] < spent["at_most"]).all() and (
        spent["weights_gb"] < 80 * spent["gpus"]
    ).all()
