"""A slice of real data with real vectors: what contrast does, small enough for every run."""

from __future__ import annotations

import os
import tempfile
from importlib.metadata import version
from pathlib import Path

import pandas as pd
import pytest

from lib.benchmarks.base import Benchmark, neighbour_ranks
from lib.corpora import load_passages
from lib.datasets import load_questions
from lib.embed import load_encoder
from lib.query_spec import SearchSpec
from lib.run import Retriever
from lib.search.index import DenseIndex
from lib.search.vectors import encode_cached, encode_small
from lib.stats import paired
from lib.studies.lambda_sweep.arms import H_PLUS, QUESTION, OpenBenchmark
from lib.studies.lambda_sweep.study import measured, open_benchmark

pytestmark = pytest.mark.mirror

QUESTIONS, PASSAGES = 100, 3000

MEASURED = {
    "question alone": (QUESTION, 0.716, 0.044),
    "H+ alone": (H_PLUS, 0.700, 0.046),
    "0.2": (SearchSpec(lam=0.2), 0.698, 0.018),
    "0.4": (SearchSpec(lam=0.4), 0.690, 0.012),
    "1.0": (SearchSpec(lam=1.0), 0.590, 0.004),
    "0.4, matched rotation": (SearchSpec(lam=0.4, rotation=True), 0.694, 0.044),
}
"""Search, P@5 and the share of the mimic in the top five, measured once."""


def cache() -> Path:
    """Vectors stay in the temporary folder from run to run, for the libraries that made them."""
    makers = "-".join(version(name) for name in ("torch", "transformers", "sentence-transformers"))
    return Path(tempfile.gettempdir()) / f"chr-slice-{os.getuid()}-{makers}"


@pytest.fixture(scope="session")
def study(mirror) -> OpenBenchmark:
    """The first 100 yes/no questions by id; H+ is the ideal answer, H- that of the nearest of them.

    The passages are the gold snippets of all 100, and the shortest others up to 3,000, which are
    encoded fastest.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHR_CACHE", str(cache()))
        encoder = load_encoder("minilm")
        questions = sorted(load_questions("bioasq"), key=lambda q: q.qid)[:QUESTIONS]
        passages = sorted(load_passages("bioasq"), key=lambda p: p.pid)
        of = {
            q.qid: frozenset(p.pid for p in passages if q.qid in p.meta["qids"]) for q in questions
        }
        gold = frozenset().union(*of.values())
        kept = sorted(passages, key=lambda p: (p.pid not in gold, len(p.text)))  # stable: by id
        kept = sorted(kept[:PASSAGES], key=lambda p: p.pid)
        items = [(p.title, p.text) for p in kept]
        shards = encode_cached(items, encoder, "article", progress=False)
        ranks = neighbour_ranks(encode_small([q.text for q in questions], encoder, "query"))
        near = [questions[j] for j in ranks[:, 0]]
        benchmark = Benchmark(
            name="slice",
            title="BioASQ slice",
            corpora=("bioasq",),
            targets=of,
            qids=tuple(q.qid for q in questions),
            questions=tuple(q.text for q in questions),
            h_plus=tuple(q.ideal_answer for q in questions),
            h_minus={"nearest": tuple(m.ideal_answer for m in near)},
            mimics={q.qid: of[m.qid] for q, m in zip(questions, near, strict=True)},
        )
        index = DenseIndex(shards, [p.pid for p in kept])
        yield open_benchmark(benchmark, Retriever(index, encoder))


def at(study: OpenBenchmark, spec: SearchSpec) -> pd.DataFrame:
    table = measured(study, study.arm(spec), study.benchmark.qids)
    assert (len(table), len(study.retriever.index)) == (QUESTIONS, PASSAGES)
    assert (table["unranked"] == 0).all()
    return table


@pytest.mark.parametrize("name", MEASURED)
def test_the_numbers_are_those_measured(study, name):
    spec, p_at_5, mimic = MEASURED[name]
    table = at(study, spec)
    assert table["p_at_5"].mean() == pytest.approx(p_at_5, abs=0.01)
    assert table["mimic_at_5"].mean() == pytest.approx(mimic, abs=0.01)


def test_the_papers_lambda_leaves_the_topic(study):
    """P@5 falls clearly, and what fills the place is on neither topic."""
    zero, one = at(study, H_PLUS), at(study, SearchSpec(lam=1.0))
    lost = paired(one["p_at_5"], zero["p_at_5"])
    assert lost["high"] < -0.05 and lost["p"] < 0.001
    strayed = paired(one["neither_at_5"], zero["neither_at_5"])
    assert strayed["low"] > 0.05 and strayed["p"] < 0.001


@pytest.mark.parametrize("lam", [0.2, 0.4])
def test_a_little_contrast_avoids_the_mimic_and_costs_no_precision(study, lam):
    zero, here = at(study, H_PLUS), at(study, SearchSpec(lam=lam))
    fewer = paired(here["mimic_at_5"], zero["mimic_at_5"])
    assert fewer["high"] < 0 and fewer["p"] < 0.05
    assert abs(paired(here["p_at_5"], zero["p_at_5"])["difference"]) < 0.03


def test_the_same_turn_towards_a_wrong_mimic_does_not_avoid_it(study):
    right = at(study, SearchSpec(lam=0.4))
    wrong = at(study, SearchSpec(lam=0.4, rotation=True))
    fewer = paired(right["mimic_at_5"], wrong["mimic_at_5"])
    assert fewer["high"] < 0 and fewer["p"] < 0.05
