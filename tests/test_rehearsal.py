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

from lib.base import paths
from lib.benchmarks import load_benchmark
from lib.benchmarks.base import Benchmark
from lib.corpora import load_passages
from lib.cost import needs
from lib.cost.ledger import recorded
from lib.data.medrag import SOURCES
from lib.data.passages import Passage
from lib.data.store import PassageStore
from lib.embed import HashEncoder, load_encoder
from lib.llm.chat import LLMError, ledger, tag
from lib.llm.openai_chat import OpenAIChat
from lib.llm.recorder import Recorder
from lib.open_retriever import retriever_for
from lib.plots import plot_differences
from lib.plots.figures import plot_methods
from lib.profiles import load_profile
from lib.studies.main_tables import relevance
from tests.rehearsal import run as rehearsal
from tests.rehearsal import stand_ins
from tests.rehearsal.served import COUNTS, compare, served
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
    With ``together`` none is answered before so many are in flight.
    """

    def __init__(self, together: int = 0, kills: Sequence[int] = ()):
        self.together = threading.Barrier(together) if together else None
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
        if self.together:
            self.together.wait(timeout=60)
        elif all_at_once:
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


def test_what_a_stand_in_says_is_recorded_in_the_rehearsals_folder_alone(performed, here):
    profile = load_profile(str(here.profile))
    specs = [profile.llm, profile.judge, *(s["llm"] for s in profile.answerers if "llm" in s)]
    assert all(spec.startswith(f"record:{here.recording}=") for spec in specs)
    assert "judge of mimics" in set(recorded(here.recording)["method"])


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


def test_nothing_is_answered_twice_but_what_was_in_flight_at_a_kill(performed, here):
    """Lost is what the server had answered and the disk did not have when the client was dead."""
    told, log = performed
    lost = [k["served"] - k["recorded"] for k in told["seen"]]
    again = log[log["request"].duplicated(keep="last")]
    assert 0 < lost[0] < lost[1] == len(again)
    assert lost[0] <= SAMPLE and lost[1] - lost[0] <= SAMPLE, "no cell asks more at once"
    for row in again.itertuples():
        assert any(row.start <= k["at"] and k["at"] - row.end < 5 for k in told["seen"])


def test_what_a_model_is_sent_is_what_it_can_read(performed, here):
    _, log = performed
    windows, no_system = limits(load_profile(str(here.profile)))
    assert no_system == {"google/gemma-2-9b-it"} and len(windows) == 3
    for model, window in windows.items():
        own = log[log["model"] == model]
        assert (own["system"] == (model not in no_system)).all() and len(own)
        assert (own["prompt_tokens"] + own["max_tokens"] <= window).all()


def test_32_requests_are_in_flight_and_more(performed):
    _, log = performed
    assert 32 <= log["in_flight"].max() <= load_profile("paper").workers


def test_a_set_of_32_questions_is_in_flight_as_a_whole(inside, monkeypatch, tmp_path):
    from lib.studies.main_tables.experiment import open_experiment

    with LogServer(Scripted(together=32), tmp_path / "log.jsonl") as server:
        monkeypatch.setenv("CHR_LLM_URL", server.url)
        profile = load_profile(sample=0, asked=0, **_recorded(inside, tmp_path))
        lab = open_experiment(profile)
        (name, questions), *_ = lab.grid.sets.items()
        assert len(lab.grid.expansions("chr", name)) == len(questions) == 32
        reader = next(r for r in lab.readers if r.needs_llm)
        assert len(reader.answer_all(questions, [[]] * 32)) == 32
    log = served(tmp_path / "log.jsonl")
    assert log.groupby("model")["in_flight"].max().tolist() == [32, 32] and log["kept"].all()


def _recorded(here, folder: Path) -> dict:
    """The fields of the rehearsal's profile that name its recording, with one in ``folder``."""
    profile = load_profile(str(here.profile))
    text = json.dumps({"llm": profile.llm, "answerers": list(profile.answerers)})
    return json.loads(text.replace(str(here.recording), str(folder / "recording.jsonl")))


# the server --------------------------------------------------------------------------------------

ASK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is gout?"}]


def test_a_server_refuses_what_the_models_server_would(tmp_path):
    limit = {"small": 30}, {"gemma"}
    with LogServer(Scripted(), tmp_path / "log.jsonl", *limit, author="script") as server:
        (folded,) = OpenAIChat("gemma", server.url).generate(ASK)
        assert "system turn refused" in folded.note
        OpenAIChat("gemma", server.url).generate(ASK[1:])
        room = 30 - Scripted().count(ASK)
        (reply,) = OpenAIChat("small", server.url).generate(ASK, max_tokens=room)
        assert reply.model == "script as small"
        with pytest.raises(LLMError, match="shorten the prompt"):
            OpenAIChat("small", server.url).generate(ASK, max_tokens=room + 1)
    log = pd.read_json(tmp_path / "log.jsonl", lines=True)
    assert log["status"].tolist() == [400, 200, 200, 200, 400]
    assert log.loc[log["status"] == 400, ["prompt_tokens", "output_tokens"]].eq(0).all(axis=None)


def test_several_replies_are_one_request_whose_prompt_is_read_once(tmp_path):
    with LogServer(Scripted(), tmp_path / "log.jsonl") as server:
        replies = OpenAIChat("m", server.url).generate(ASK, n=3, max_tokens=64)
    assert len({r.text for r in replies}) == 3, "each with its own seed"
    (row,) = served(tmp_path / "log.jsonl").itertuples()
    assert row.prompt_tokens == Scripted().count(ASK) == replies[0].prompt_tokens
    assert row.output_tokens == sum(len(LETTERS.findall(r.text)) for r in replies)


class Boasts(LogServer):
    """Tells the client of one token more than it counts."""

    def answer(self, body: dict):
        status, told, made = super().answer(body)
        told["usage"]["completion_tokens"] += 1
        return status, told, made


@pytest.mark.parametrize(
    ("server", "drop", "equal"),
    [
        (LogServer, 0, True),
        (Boasts, 0, False),
        (LogServer, 1, False),
    ],
)
def test_a_ledger_that_differs_from_the_log_is_seen(server, drop, equal, tmp_path):
    recording, log = tmp_path / "recording.jsonl", tmp_path / "log.jsonl"
    with (
        server(Scripted(), log) as running,
        Recorder(OpenAIChat("m", running.url), recording) as llm,
    ):
        for i in range(3):
            with tag(method="hyde"):
                llm.generate([{"role": "user", "content": f"What is case {i}?"}], n=2)
    lines = recording.read_text().splitlines(keepends=True)
    first = [i for i, line in enumerate(lines) if json.loads(line)["reply"]["choice"] == 0]
    recording.write_text("".join(x for i, x in enumerate(lines) if i not in first[:drop]))
    (row,) = compare(recording, log).itertuples()
    assert (row.equal, row.served_calls) == (equal, 3)
    (own,) = recorded(recording).itertuples()
    assert (own.method, own.calls, own.replies) == ("hyde", 3 - drop, 6 - drop)


def test_the_ledger_of_a_recording_is_that_of_its_replies(tmp_path):
    asks = [[{"role": "user", "content": q}] for q in "ab"]
    with (
        LogServer(Scripted(), tmp_path / "log.jsonl") as server,
        Recorder(OpenAIChat("m", server.url), tmp_path / "r.jsonl") as llm,
        tag(method="chr"),
    ):
        replies = [reply for ask in asks for reply in llm.generate(ask, n=2)]
    costs = ["method", "calls", "replies", "prompt_tokens", "output_tokens", "finish_reasons"]
    pd.testing.assert_frame_equal(recorded(tmp_path / "r.jsonl")[costs], ledger(replies)[costs])


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


def test_the_stand_in_towers_are_two_models_made_the_same_each_time(here, tmp_path):
    encoder = load_encoder("medcpt", **load_profile(str(here.profile)).encoder_options)
    pair = ("Gout", "Uric acid crystals in the joint.")
    article, query = (
        encoder.encode([pair], tower, progress=False) for tower in ("article", "query")
    )
    assert abs(float((article @ query.T).item())) < 0.99
    again = stand_ins.tower(tmp_path / "query", 0)
    same = load_encoder("medcpt", query_model=str(again), article_model=str(again))
    assert same.fingerprints["query"] == encoder.fingerprints["query"]


def test_with_a_mirror_the_questions_are_the_papers_and_their_snippets_are_there(
    mirror, tmp_path, monkeypatch
):
    from lib.datasets import question_sets

    here = rehearsal.prepare(tmp_path, mirror, sample=2)
    for name, value in here.environment("").items():
        monkeypatch.setenv(name, value)
    profile = load_profile()
    assert "the paper's questions" in profile.title and profile.benchmarks == ("ddx-mini",)
    sets = question_sets(profile.questions, profile.sample)
    assert {name: len(some) for name, some in sets.items()} == {"mmlu": 2, "medqa": 2, "bioasq": 2}
    passages = list(load_passages("pubmed"))
    assert len(passages) == 339 + 300
    known = {pmid for p in passages for pmid in p.meta["pmids"]}
    assert all(known & {*q.gold_pmids, *q.snippet_pmids} for q in sets["bioasq"])


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

    own = passages("bioasq", ("1", ["11"]), ("2", ["12", "13"]), ("3", ["14"]), ("4", ["15"]))
    medcorp = passages("pubmed", ("a", ["11"]), ("b", ["13"]), ("c", ["13"]), ("d", ["15"]))
    medcorp += [Passage("wikipedia:1", "", "x", "wikipedia", {})]
    monkeypatch.setattr(relevance, "load_benchmark", lambda name, encoder: judged())
    monkeypatch.setattr(relevance, "load_passages", lambda name: own)
    store = PassageStore.build(tmp_path / "store.sqlite", medcorp)
    targets, mimics = relevance.relevance(load_profile("paper"), None, store)
    assert targets == {"q1": {"pubmed:a", "pubmed:b", "pubmed:c"}, "q2": set()}
    assert mimics == {"q1": set(), "q2": {"pubmed:a"}}
    assert relevance.relevance(load_profile("open"), None, store)[0] == judged().targets


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
