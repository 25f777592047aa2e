"""LIMIT=n, a quick look: what is left of a profile, and that every notebook ends with it."""

from __future__ import annotations

from functools import partial

import nbformat
import pandas as pd
import pytest

from lib import index_build, notebooks, plots, studies, study
from lib.base import paths
from lib.base.files import Unfinished
from lib.benchmarks import ddx_mini, load_benchmark
from lib.datasets import few, question_sets
from lib.embed import HashEncoder
from lib.limit import PASSAGES, labelled, limited, makes_real
from lib.open_retriever import store_of
from lib.profiles import load_profile
from lib.studies.lambda_sweep.study import open_benchmark
from lib.studies.rag2 import results as rag2_results
from tests.made_study import made
from tests.student import only_the_table

ENCODER = HashEncoder()


def mini(limit: int, **changes):
    return load_profile("mini", limit=limit, **changes)


# what is left ------------------------------------------------------------------------------------


def test_few_are_taken_by_the_hash_of_their_ids_and_more_hold_fewer():
    ids = [f"q{i}" for i in range(50)]
    assert few(ids, 5) == few(reversed(ids), 5) == sorted(few(ids, 5)) != ids[:5]
    assert set(few(ids, 4)) < set(few(ids, 5)) and few(ids, 99) == sorted(ids)


def test_a_limited_benchmark_asks_few_of_each_half_and_is_otherwise_itself():
    whole = load_benchmark("ddx-mini")
    some = limited(whole, 3)
    assert (len(some.test), len(some.dev)) == (3, 3) and limited(whole, 0) is whole
    for qid, h_plus, h_minus in zip(some.qids, some.h_plus, some.h_minus["nearest"], strict=True):
        row = whole.qids.index(qid)
        assert (h_plus, h_minus) == (whole.h_plus[row], whole.h_minus["nearest"][row])
        assert some.targets[qid] == whole.targets[qid]
    assert limited(whole, 999).qids == whole.qids
    assert mini(5).per_set == 5 and mini(5, sample=2).per_set == 2 and mini(0).per_set == 0
    assert mini(5).name == "mini-5" and "a quick look: LIMIT=5" in mini(5).title


def test_fewer_passages_by_hash_and_every_labelled_one(own_folders):
    whole, profile = index_build.corpus_store(["ddx-mini"]), mini(1)
    store = store_of(profile, ENCODER)
    asked = [q.qid for questions in question_sets(["ddx-mini"], 1).values() for q in questions]
    asked += limited(load_benchmark("ddx-mini"), 1).qids
    gold = {row["pid"] for row in ddx_mini.read("qrels") if row["qid"] in asked}
    assert gold == labelled(profile, ENCODER) and 0 < len(gold) < PASSAGES
    assert set(store.ids()) == gold | set(few(whole.ids(), PASSAGES))
    assert list(store.ids()) == [pid for pid in whole.ids() if pid in set(store.ids())]
    assert store_of(profile, ENCODER).path == store.path
    assert list(store_of(mini(99), ENCODER).ids()) == list(whole.ids())


def test_few_questions_have_the_strangers_of_the_whole_set(own_folders):
    whole = made(own_folders)
    some = open_benchmark(whole.benchmark, whole.retriever, limit=1)
    assert len(some.benchmark.test) == len(some.benchmark.dev) == 1
    for qid in some.benchmark.qids:
        strangers = whole.hypotheses[qid].of("mimic", "stranger")
        assert some.hypotheses[qid].of("mimic", "stranger") == strangers and strangers
    assert len(some.retriever.hub_queries) == 2


# what is NOT RUN ---------------------------------------------------------------------------------


def test_studies_of_whole_samples_show_what_is_committed_and_say_so(monkeypatch, capsys):
    read = []

    def read_result(name: str, profile: str, *, committed: bool = False):
        read.append((profile, committed))
        return pd.DataFrame(), {}

    monkeypatch.setattr(study, "read_result", read_result)
    few_of_open = load_profile("open", limit=5)
    for show in (partial(study.run, rag2_results.STUDIES), partial(studies.tables, "real")):
        show(few_of_open)
        said = capsys.readouterr().out
        assert "NOT RUN with LIMIT=5" in said and "the same command without LIMIT" in said
        show(load_profile("mini"))
        assert capsys.readouterr().out == ""
    assert set(read) == {("open", True)}
    assert makes_real(load_profile("open")) and not makes_real(few_of_open)


# a long study goes on ---------------------------------------------------------------------------


def test_pieces_are_made_once_and_belong_to_their_settings(own_folders):
    work = Unfinished("some", k=5)
    assert work.piece("a", lambda: [0.1 + 0.2]) == [0.1 + 0.2]
    assert Unfinished("some", k=5).piece("a", lambda: 1 / 0) == [0.1 + 0.2]
    with pytest.raises(ZeroDivisionError):
        Unfinished("some", k=7).piece("a", lambda: 1 / 0)
    work.end()
    assert Unfinished("some", k=5).piece("a", lambda: "anew") == "anew"


# the notebooks -----------------------------------------------------------------------------------


@pytest.fixture
def in_notebooks(monkeypatch, tmp_path):
    """Notebooks write to a folder of the test's own, and of a figure its table alone."""
    monkeypatch.setenv("CHR_OUT", str(tmp_path))
    monkeypatch.chdir(paths.ROOT / "notebooks")
    monkeypatch.setattr(plots, "save", only_the_table)


def executed(name: str, **parameters) -> str:
    """All code of a notebook with other parameters, in this process; the title of its profile."""
    path = paths.ROOT / "notebooks" / f"{notebooks.NOTEBOOKS[int(name)]}.ipynb"
    cells = [c for c in nbformat.read(path, 4).cells if c.cell_type == "code"]
    names: dict = {}
    for cell in cells:
        exec(compile(cell.source, f"{path.name}", "exec"), names)
        if "parameters" in cell.metadata.get("tags", []):
            names |= parameters
    return names["p"].title


GRID = ("02", "03", "04", "05", "06", "07")


def test_every_notebook_of_the_grid_ends_on_two_of_the_bundled_questions(in_notebooks):
    for name in GRID:
        assert "LIMIT=2" in executed(name, profile="mini", limit=2)


def test_questions_that_nobody_recorded_are_not_run(in_notebooks, tmp_path, capsys):
    """As a profile of your own on new questions, before a model was asked."""
    own = tmp_path / "mine.toml"
    own.write_text('base = "mini"\nllm = "replay:data/recordings/contradiction.jsonl"\n')
    for name in GRID:
        executed(name, profile=str(own), limit=1)
    said = capsys.readouterr().out
    assert "NOT RUN, ddx-mini medqa: no reply" in said and "record:" in said


@pytest.mark.mirror
def test_every_notebook_that_asks_real_questions_ends(mirror, in_notebooks, capsys):
    for name in (*GRID, "10", "13", "20"):
        assert "LIMIT=1" in executed(name, profile="open", limit=1)
    executed("04", profile="open", limit=1, k=9)  # not all that is found is judged
    assert "NOT RUN with LIMIT=1" in capsys.readouterr().out
