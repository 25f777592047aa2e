"""The full real curves (``make test-open``): the independent figures, and the committed results.

Minutes with warm vectors, about an hour of embedding before that on two cores.
"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from lib.base import paths
from lib.data import corpus_index, load_benchmark
from lib.profiles import load_profile
from lib.search.embed import load_encoder
from lib.studies.contradiction.study import Scorer, documents, heatmap, open_study
from lib.studies.grid.experiment import open_experiment
from lib.studies.grid.tables import table1
from lib.studies.lam import study, tables
from lib.studies.lam.reading import reading_results
from lib.studies.nli.labelled import SETS, quality
from lib.studies.nli.models import load_backend

pytestmark = [pytest.mark.open_profile, pytest.mark.mirror]

INDEPENDENT = {0.0: 0.578, 0.2: 0.580, 0.6: 0.544, 1.0: 0.391, 1.4: 0.181}
"""P@5 on BioASQ with the nearest question's ideal answer as H-, measured by another program."""


@pytest.fixture(scope="module")
def labs(mirror):
    profile = load_profile("open")
    encoder = load_encoder(profile.encoder, **profile.encoder_options)
    store = corpus_index.corpus_store(profile.corpora)
    whole = corpus_index.build_index(store, encoder)
    made = {}
    for name in profile.benchmarks:
        benchmark = load_benchmark(name, encoder)
        part = corpus_index.only(whole, benchmark.corpora)
        part = corpus_index.without(part, benchmark.excluded_sources)
        made[name] = study.prepare(benchmark, part, encoder)
    return made


def test_bioasq_agrees_with_the_independent_figures(labs):
    lab = labs["bioasq"]
    rows = lab.rows(lab.benchmark.test)
    assert len(rows) == 618
    alone, _ = study.measured(lab, study.Condition(form="question"), 0.0, rows)
    assert alone["p_at_5"].mean() == pytest.approx(0.570, abs=0.005)
    assert alone["hit_at_5"].mean() == pytest.approx(0.921, abs=0.005)
    for lam, expected in INDEPENDENT.items():
        here, _ = study.measured(lab, study.Condition(), lam, rows)
        assert here["p_at_5"].mean() == pytest.approx(expected, abs=0.005), f"lambda {lam}"
        if lam in (0.0, 1.0):
            wanted = {0.0: 0.094, 1.0: 0.007}[lam]
            assert here["mimic_at_5"].mean() == pytest.approx(wanted, abs=0.005)


def agree(name: str, made: pd.DataFrame, keys: list[str], numbers: list[str]) -> int:
    """How many rows of a committed result were made again; they must agree to 3 decimals."""
    committed = pd.read_csv(paths.committed("open") / f"{name}.csv")
    both = committed.merge(made, on=keys, suffixes=("", "_made"), validate="1:1")
    for column in numbers:
        old, new = both[column], both[f"{column}_made"].astype(float).round(3)
        assert ((old - new).abs().fillna(0) < 0.00101).all(), column
        assert (old.isna() == new.isna()).all(), column
    return len(both)


@pytest.mark.parametrize("name", ["bioasq", "ddx-real"])
def test_committed_curves_regenerate_to_three_decimals(labs, name):
    made = tables.all_curves(labs[name], load_profile("open").lambdas)
    numbers = [c for c in made.select_dtypes("number").columns if c != "lambda"]
    keys = ["hypotheses", "mode", "lambda"]
    assert agree(f"{name.replace('-', '_')}_lambda", made, keys, numbers) == len(made)


def test_committed_grid_regenerates_but_for_what_a_model_wrote(mirror, tmp_path, monkeypatch):
    """Everything that asks no LLM: three ways to search, random passages, the evidence reader."""
    monkeypatch.setenv("CHR_OUT", str(tmp_path))
    nothing = "replay:data/recordings/nothing.jsonl"
    reader = {"kind": "evidence", "name": "evidence reader"}
    profile = load_profile("open", llm=nothing, answerers=(reader,))
    lab = open_experiment(profile)
    known = load_benchmark("bioasq", lab.grid.retriever.encoder)
    quality = lab.quality(lab.runs(), known.targets, known.mimics)
    assert set(quality["method"]) == {"standard", "bm25", "rrf", "random passages"}
    numbers = ["p_at_5", "p_at_5_low", "p_at_5_high", "hit_at_5", "ndcg_at_10", "n"]
    assert agree("retrieval", quality, ["dataset", "method"], numbers) == 4
    table = table1(lab, lab.answers())
    keys = ["dataset", "answerer", "method", "metric"]
    made = table[table["method"] != "the expander's own answer"]
    assert agree("table1", made, keys, ["value", "low", "high", "n"]) == len(made) >= 60


def test_committed_reading_of_real_diseases_regenerates(mirror, tmp_path, monkeypatch):
    monkeypatch.setenv("CHR_OUT", str(tmp_path))
    profile = load_profile("open")
    retriever = open_experiment(replace(profile, llm="replay:nothing.jsonl")).grid.retriever
    table, claims = reading_results(profile, retriever)
    assert agree("ddx_real_reading_table", table, ["arm"], ["p_at_5", "accuracy", "low"]) == len(
        table
    )
    assert agree("ddx_real_reading_claims", claims, ["claim"], ["difference", "low"]) == len(claims)


def test_committed_contradictions_regenerate(mirror):
    encoder, backends = (
        load_encoder("minilm"),
        [load_backend(b) for b in ("head", "cosine", "cues")],
    )
    made = pd.DataFrame([quality(b, name) for name in SETS for b in backends])
    assert agree("nli_quality", made, ["backend", "set"], ["auroc", "ap", "n", "positives"]) == 9
    filtered = {"sentence_filter": "percentile", "percentile": 90}
    lab = open_study("open", encoder, Scorer(backends[0], encoder, filtered))
    heat = heatmap(documents(lab))
    keys = ["cnt_bin", "period"]
    assert agree("contradiction_heatmap", heat, keys, ["documents", "share"]) == len(heat) == 30
