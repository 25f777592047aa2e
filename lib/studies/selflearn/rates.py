"""How the retriever's learning rate was chosen: on MedQuAD, never on a measured set.

Half of the training passages with MedQuAD's own questions are learnt from at each rate; then 150
further passages, of pages that nothing is trained on, are searched with their own questions among
the base retriever's first twenty for each of them. ``python -m lib.studies.selflearn.rates`` keeps
the tables; the rate with the highest nDCG@10 is the one in ``retriever.PLAN``.

Two things that this table cannot tell. The highest rate that was tried won, so the best may lie
beyond it; and it won by little: 1e-3 has .709, 3e-4 .702, 1e-4 .693 and the untrained base .684,
and all four intervals overlap. And the pool is what the base finds first: a tuned retriever meets
only distractors that the base would find, none that its own training has moved near.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from lib.base import paths
from lib.base.provenance import write_result
from lib.embed import load_encoder
from lib.index_build import files_of
from lib.stats import mean_interval
from lib.studies.selflearn.cmirb import Task, measure_task
from lib.studies.selflearn.documents import CORPUS, DOCUMENTS, sample, unlabelled
from lib.studies.selflearn.pairs import ranked_by

if TYPE_CHECKING:
    from lib.studies.selflearn.retriever import Training

RATES = (1e-3, 3e-4, 1e-4)
DISORDER_RATES = (3e-4, 1e-4)
HELD_OUT = 150
"""Passages that are searched for, one a page."""

_DEPTH = 20


def held_out() -> Task:
    """Passages after the sample that is trained on, by their own questions.

    Passages whose text stands in the corpus twice are left out: they could not be told apart.
    """
    # Imported here, so that a plan that takes over the rate does not make its own table stale.
    from lib.studies.selflearn.retriever import mined_in

    corpus = unlabelled()
    repeated = Counter(passage.text for passage in corpus)
    further = sample(corpus, DOCUMENTS + 2 * HELD_OUT)[DOCUMENTS:]
    passages = [passage for passage in further if repeated[passage.text] == 1][:HELD_OUT]
    queries = {passage.pid: passage.meta["question"] for passage in passages}
    base = load_encoder("minilm", precision="float32")
    ranked = ranked_by(queries, mined_in(), base, _DEPTH)
    pool = set(queries).union(*ranked.values())
    return Task(
        "medquad held out",
        queries,
        tuple(passage for passage in corpus if passage.pid in pool),
        {pid: {pid: 1} for pid in queries},
    )


def rate_table() -> pd.DataFrame:
    """``encoder, learning_rate, ndcg_at_10, low, high, n, passages``: the base, then each rate."""
    from lib.studies.selflearn.retriever import Training

    half = Training(asked="medquad", first=DOCUMENTS // 2)
    return _table("rate", half, RATES)


def disorder_table() -> pd.DataFrame:
    """The same of the method's pairs in disorder, by ``DISORDER_RATES``: how slowly has a retriever
    to learn that they do not ruin it? The control's rate is the highest of these at which it keeps
    more than half of the base's nDCG@10.

    This rule was chosen after these numbers of the held-out MedQuAD were seen (.684 untrained,
    .602 at 1e-4, .013 at 3e-4), and before the pair was measured on SciFact or BioASQ."""
    from lib.studies.selflearn.retriever import Training

    return _table("disorder", Training(shuffled=True), DISORDER_RATES)


def _table(name: str, training: Training, rates: Sequence[float]) -> pd.DataFrame:
    from lib.studies.selflearn.retriever import train

    task = held_out()
    rows = [_row("minilm", np.nan, task)]
    for rate in rates:
        out = paths.cache("adapters") / f"slhyde-{name}-{rate:g}"
        train(out.name, replace(training, learning_rate=rate), out)
        rows.append(_row(f"minilm+{out}", rate, task))
        print(rows[-1], flush=True)
    return pd.DataFrame(rows)


def _row(name: str, rate: float, task: Task) -> dict[str, object]:
    """How well an encoder finds the passages of a task."""
    from lib.studies.selflearn.evaluate import open_task

    encoder = load_encoder(name, precision="float32")
    index = open_task(task, encoder, "float32").index
    run = ranked_by(task.queries, index, encoder)
    found = measure_task(run, task.qrels)["ndcg_at_10"].sort_index()
    value, low, high = mean_interval(found.to_numpy())
    row = {"encoder": "minilm" if np.isnan(rate) else "tuned", "learning_rate": rate}
    row |= {"ndcg_at_10": value, "low": low, "high": high, "n": len(found)}
    return row | {"passages": len(index)}


_TABLES = {"slhyde_rates": rate_table, "slhyde_rates_disorder": disorder_table}

if __name__ == "__main__":
    for result in sys.argv[1:] or _TABLES:
        made = _TABLES[result]().assign(
            learning_rate=lambda t: t["learning_rate"].map("{:g}".format)
        )
        origin = {"code": ["lib.studies.selflearn"], "data": files_of((CORPUS,))}
        path = write_result(made, result, "open", **origin)
        print(made.to_string(index=False), paths.shown(path), sep="\n")
