"""The full real curves (``make test-open``): the independent figures, and the committed results.

Minutes with warm vectors, about an hour of embedding before that on two cores.
"""

from __future__ import annotations

import pandas as pd
import pytest

from lib import corpus_index, paths
from lib.benchmarks import load_benchmark, study, tables
from lib.embed import load_encoder
from lib.profiles import load_profile

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


@pytest.mark.parametrize("name", ["bioasq", "ddx-real"])
def test_committed_curves_regenerate_to_three_decimals(labs, name):
    committed = pd.read_csv(paths.committed("open") / f"{name.replace('-', '_')}_lambda.csv")
    made = tables.all_curves(labs[name], load_profile("open").lambdas)
    assert committed["mode"].tolist() == made["mode"].tolist()
    numbers = made.select_dtypes("number").columns
    assert (committed[numbers] - made[numbers].round(3)).abs().max().max() < 0.00101
