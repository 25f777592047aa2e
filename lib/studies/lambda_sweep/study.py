"""A benchmark with an index to search it in, and what any arm retrieves and scores there.

Nothing here needs an LLM: a benchmark brings its hypotheses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from lib import study as skeleton
from lib.benchmarks.base import Benchmark
from lib.limit import limited
from lib.query_spec import DRAWS, Hypotheses, Text, with_random_mimics
from lib.run import Retriever
from lib.stats import METRICS, measure
from lib.studies.lambda_sweep.arms import Arm

DEPTH = 10
"""Passages retrieved for each question, or k if that is more: nDCG and recall look at ten."""


@dataclass(frozen=True)
class Study:
    """A benchmark, the retriever it is searched with, and every question's hypotheses by id."""

    benchmark: Benchmark
    retriever: Retriever
    hypotheses: Mapping[str, Hypotheses]
    k: int = 5

    @property
    def index(self):
        """The passages that are searched."""
        return self.retriever.index

    def cosines(self, qids: Sequence[str]) -> np.ndarray:
        """c = cos(h+, h-) of these questions, shape (n,)."""
        return self.retriever.cosines([self.hypotheses[qid] for qid in qids])


def hypotheses_of(benchmark: Benchmark) -> dict[str, Hypotheses]:
    """Every question's texts, by id: the question, H+, and H- of every kind there is.

    Raises ValueError where the benchmark has no nearest mimic: plain contrast is with that one.
    """
    if "nearest" not in benchmark.h_minus:
        raise ValueError(f"{benchmark.name}: h_minus has no 'nearest', the mimic of plain contrast")
    found = {}
    for i, qid in enumerate(benchmark.qids):
        texts = [
            Text(benchmark.h_plus[i], 1.0, "article", "target"),
            Text(benchmark.h_minus["nearest"][i], 1.0, "article", "mimic"),
            Text(benchmark.questions[i], 0.0, "query", "question"),
        ]
        for kind, mimics in benchmark.h_minus.items():
            if kind != "nearest":
                texts.append(Text(mimics[i], 1.0, "article", "mimic", kind))
        if benchmark.several:
            several = benchmark.several[i]
            texts += [Text(mimic, 1.0, "article", "mimic", "several") for mimic in several]
        found[qid] = Hypotheses(
            tuple(texts),
            excluded=benchmark.excluded.get(qid, frozenset()),
            qid=qid,
            topics=benchmark.topics.get(qid, frozenset()),
        )
    return found


def open_study(benchmark: Benchmark, retriever: Retriever, k: int = 5, limit: int = 0) -> Study:
    """The study of a benchmark on the retriever's index.

    Strangers are drawn among the test questions for test questions, among dev for dev, so that
    nothing of the test set enters a choice. With a ``limit`` few questions are searched
    (``lib.limit``); their strangers are those of the whole set.
    """
    written = hypotheses_of(benchmark)
    drawn = {}
    for part in (benchmark.test, sorted(benchmark.dev)):
        drawn |= with_random_mimics({qid: written[qid] for qid in part})
    asked = limited(benchmark, limit)
    return Study(asked, retriever.with_hub_queries(written[qid] for qid in asked.qids), drawn, k)


def found_by(
    study: Study, arm: Arm, qids: Sequence[str], *, depth: int | None = None, draw: int = 0
) -> dict[str, list[str]]:
    """Passage ids of each question, best first; a question that cannot be ranked is missing."""
    (found,) = found_in_draws(study, arm, qids, [draw], depth=depth)
    return found


def found_in_draws(
    study: Study, arm: Arm, qids: Sequence[str], draws: Sequence[int], *, depth: int | None = None
) -> list[dict[str, list[str]]]:
    """``found_by`` of several draws of a control, in one search: a third of the time of twenty."""
    cosines = study.cosines(qids) if arm.rule is not None else np.zeros(len(qids))
    specs = dict(zip(qids, arm.specs(cosines), strict=True))

    def request(qid: str, number: int) -> Hypotheses:
        return replace(study.hypotheses[qid], spec=replace(specs[qid], draw=draws[number]))

    searched = skeleton.Arm(arm.name, request, len(draws))
    return skeleton.search_arm(searched, qids, study.retriever, depth or max(DEPTH, study.k))


def measured(
    study: Study, arm: Arm, qids: Sequence[str], metrics: Sequence[str] = METRICS
) -> pd.DataFrame:
    """Per-question metrics of one arm, index qid; of a control their mean over ``DRAWS`` draws.

    Mimic passages are those of the nearest mimic, whatever was searched with: at lambda 0 all
    forms are one search, and measure the same. ``unranked`` is 1 where the query was zero or tiny,
    so that nothing was retrieved and every metric is 0.
    """
    draws = range(DRAWS if arm.is_control else 1)
    targets = {qid: study.benchmark.targets[qid] for qid in qids}

    def outcomes(found: skeleton.Found) -> pd.DataFrame:
        table = measure(found, targets, study.benchmark.mimics, study.k)[list(metrics)]
        return table.assign(unranked=[float(qid not in found) for qid in table.index])

    return skeleton.mean_of_draws(found_in_draws(study, arm, qids, draws), outcomes)
