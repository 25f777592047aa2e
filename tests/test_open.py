"""The full real curves (``make test-open``): the independent figures, and the committed results.

Minutes with warm vectors, a quarter of an hour of embedding before that on two cores.
"""

from __future__ import annotations

import pandas as pd
import pytest

from lib.base import paths
from lib.embed import load_encoder
from lib.profiles import load_profile
from lib.query_spec import SearchSpec
from lib.studies.contradiction.cnt import Scorer
from lib.studies.contradiction.labelled import quality_table, quality_values
from lib.studies.contradiction.nli import load_backend
from lib.studies.contradiction.pools import open_pools, with_judged
from lib.studies.contradiction.study import beside, heatmap
from lib.studies.lambda_sweep.arms import QUESTION
from lib.studies.lambda_sweep.study import Benchmarks, measured
from lib.studies.main_tables.experiment import open_experiment
from lib.studies.main_tables.tables import table1

pytestmark = [pytest.mark.open_profile, pytest.mark.mirror]

INDEPENDENT = {0.0: 0.578, 0.2: 0.580, 0.6: 0.544, 1.0: 0.391, 1.4: 0.181}
"""P@5 on BioASQ with the nearest question's ideal answer as H-, measured by another program."""


@pytest.fixture(scope="module")
def benchmarks(mirror, tmp_path_factory):
    """Every study of the open profile, measured afresh: nothing stored is reused."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHR_OUT", str(tmp_path_factory.mktemp("open")))
        profile = load_profile("open")
        yield Benchmarks(profile, load_encoder(profile.encoder, **profile.encoder_options))


def test_bioasq_agrees_with_the_independent_figures(benchmarks):
    study = benchmarks.study("bioasq")
    tested = study.benchmark.test
    assert len(tested) == 618
    alone = measured(study, study.arm(QUESTION), tested)
    assert alone["p_at_5"].mean() == pytest.approx(0.570, abs=0.005)
    assert alone["hit_at_5"].mean() == pytest.approx(0.921, abs=0.005)
    for lam, expected in INDEPENDENT.items():
        here = measured(study, study.arm(SearchSpec(lam=lam)), tested)
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


def test_committed_grid_regenerates(mirror, tmp_path, monkeypatch):
    """Everything is replayed: what every arm retrieves, and what judged evidence makes of it."""
    monkeypatch.setenv("CHR_OUT", str(tmp_path))
    lab = open_experiment(load_profile("open"))
    quality = lab.quality(lab.runs(), *lab.relevance())
    assert set(quality["method"]) == set(lab.searched)
    numbers = ["p_at_5", "p_at_5_low", "p_at_5_high", "hit_at_5", "ndcg_at_10", "n"]
    assert agree("retrieval", quality, ["dataset", "method"], numbers) == len(quality)
    table = table1(lab, lab.answers())
    keys = ["dataset", "answerer", "method", "metric"]
    assert agree("table1", table, keys, ["value", "low", "high", "n"]) == len(table) >= 60


def test_committed_contradictions_regenerate(mirror):
    encoder = load_encoder("minilm")
    backends = [load_backend(name) for name in ("bi", "head", "cosine", "cues", "claim only")]
    made = quality_table(quality_values(backends))
    numbers = ["auroc", "ap", "n", "positives", "mean_p"]
    assert agree("nli_quality", made, ["backend", "set"], numbers) == len(made) == 35
    lab = open_pools("open", encoder, Scorer(backends[0], encoder, "percentile", percentile=90))
    both = with_judged(lab, encoder, {})
    heat = beside({name: heatmap(own) for name, own in both.items()})
    keys = ["contradiction", "cnt_bin", "period"]
    assert agree("contradiction_heatmap", heat, keys, ["documents", "share"]) == len(heat) == 60
