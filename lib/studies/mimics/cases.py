"""The paper's five worked cases on ddx-mini's passages: which passages cross, and at what lambda.

``data/mimic_cases.jsonl`` holds for each case the ddx-mini question about the same pair, hypotheses
in our own words with what flaws the paper's have, and what the paper prints: of each retrieved
excerpt whether it names the target (as we read it), and whether the answer was right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from lib.base.files import read_jsonl
from lib.base.paths import DATA
from lib.benchmarks.ddx_mini import build
from lib.methods.chr import written_pair
from lib.profiles import load_profile
from lib.query_spec import SearchSpec
from lib.stats import class_of
from lib.studies.main_tables.experiment import Experiment, open_experiment
from lib.studies.mimics.items import expanded

CASES = "mimic_cases.jsonl"
REBUILT, OWN, HYDE, PAPER = "as in the paper", "the set's own", "HyDE", "the paper's excerpts"
"""Pairs of hypotheses of a case: with the paper's flaws, and ddx-mini's; and what stands beside."""


def read_cases() -> list[dict]:
    """The cases: case, paper, qid, author, flaw, H_plus, H_minus, printed, printed_right."""
    return list(read_jsonl(DATA / CASES))


def bundled(lam: float, k: int) -> Experiment:
    """The experiment that the cases are run in, whatever the profile: ddx-mini, all of it."""
    return open_experiment(load_profile("mini", k=k), lam=lam)


def _searches(experiment: Experiment, lambdas: Sequence[float]) -> Iterator[tuple]:
    """(case, pair, question, lambda, request) of every search; lambda is missing for HyDE."""
    questions = {q.qid: q for _, q, _ in expanded(experiment, "chr")}
    by_chr = {q.qid: expansion for _, q, expansion in expanded(experiment, "chr")}
    by_hyde = {q.qid: expansion for _, q, expansion in expanded(experiment, "hyde")}
    for case in read_cases():
        q = questions[case["qid"]]
        yield case["case"], HYDE, q, np.nan, by_hyde[q.qid].request
        for pair, texts in ((REBUILT, case), (OWN, by_chr[q.qid].trace)):
            written = written_pair(q.text, texts["H_plus"], texts["H_minus"], SearchSpec())
            for lam in lambdas:
                yield case["case"], pair, q, lam, written.by(lam=lam)


def case_ranks(experiment: Experiment, lambdas: Sequence[float]) -> pd.DataFrame:
    """Every passage that is in a top k of its case and pair, with its rank at all ``lambdas``.

    case, pair, qid, lambda, rank, pid, class, passage (its title), right (what the evidence reader
    takes from the top k; missing for yes/no questions, which it cannot answer).
    """
    grid, b, rows = experiment.grid, build(), []
    reader = next(r for r in experiment.readers if not r.needs_llm)
    searches = list(_searches(experiment, lambdas))
    found = grid.retriever.search_many([s[-1] for s in searches], len(grid.retriever.index))
    for (case, pair, q, lam, _), hits in zip(searches, found, strict=True):
        ids = [] if isinstance(hits, str) else hits.ids[0].tolist()
        passages = grid.retriever.store.get_many(ids)
        (answer,) = reader.answer_all([q], [passages[: grid.k]])
        right = answer.letter == q.answer if len(q.options) > 2 else None
        for rank, p in enumerate(passages, 1):
            kind = class_of(p.pid, b.targets[q.qid], b.mimics[q.qid])
            rows.append((case, pair, q.qid, lam, rank, p.pid, kind, p.title, right))
    names = ["case", "pair", "qid", "lambda", "rank", "pid", "class", "passage", "right"]
    return crossing(pd.DataFrame(rows, columns=names), grid.k)


def crossing(ranks: pd.DataFrame, k: int, lambdas: Sequence[float] = ()) -> pd.DataFrame:
    """The rows (at ``lambdas``, or all) of the passages that are in the top k in one of them."""
    if lambdas:
        ranks = ranks[ranks["lambda"].isin(lambdas)]
    best = ranks.groupby(["case", "pair", "pid"])["rank"].transform("min")
    return ranks[best <= k].reset_index(drop=True)


def printed() -> pd.DataFrame:
    """What the paper prints: case, source, pair, method, lambda, rank, class, right."""
    rows = [
        {
            "case": c["case"],
            "source": "the paper",
            "pair": PAPER,
            "method": method,
            "rank": rank,
            "lambda": {"hplus": 0.0, "chr": 1.0}.get(method),
            "class": "target" if hit else "",
            "right": c["printed_right"][method],
        }
        for c in read_cases()
        for method, hits in c["printed"].items()
        for rank, hit in enumerate(hits, 1)
    ]
    return pd.DataFrame(rows)
