"""The retriever's side of SL-HyDE: MiniLM learns from queries that a small model wrote.

``python -m lib.studies.selflearn.retriever [NAME ...]`` trains what ``TRAININGS`` lists, each into
``data/adapters/<name>``; it may be stopped at any time and comes to the same weights. Beside the
method stand the same on pairs in disorder, on MedQuAD's own questions (what labels would bring),
with random negatives, and on less. At the method's rate pairs in disorder ruin the retriever, so a
pair of trainings has a lower one.

Not as in the paper: a LoRA adapter of a small English encoder, not all weights of BGE-large; one
mined negative a query, not seven; 16 queries a step, not 20; 160 tokens a text, not 512; and so a
higher learning rate, chosen by ``lib.studies.selflearn.rates``. As in the paper: one epoch, linear
decay, temperature .02, in-batch negatives, no labels.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from lib.base import paths
from lib.base.files import read_jsonl
from lib.base.paths import DATA
from lib.data.passages import Passage
from lib.embed import load_encoder
from lib.index_build import build_index, corpus_store
from lib.model_files import ADAPTERS, WEIGHTS, read_card
from lib.search.index import DenseIndex
from lib.studies.selflearn.documents import CORPUS, DOCUMENTS, check_no_leak, sample, unlabelled
from lib.studies.selflearn.pairs import (
    columns,
    hard_negatives,
    one_of_each,
    random_negatives,
    ranked_by,
    shuffled,
)
from lib.train.fit import Plan, fit

QUERIES = "selflearn/queries.jsonl.gz"
TUNED = "selflearn/tuned.jsonl.gz"
"""What the generator wrote, below the data folder."""

PLAN = Plan("minilm", "texts", rank=8, learning_rate=1e-3, batch_size=16, max_tokens=160)
"""What all trainings share; each has its own seed."""

LOW_RATE = 1e-4
"""The learning rate of a control that does not collapse (``lib.studies.selflearn.rates``)."""

NEGATIVES = 1
"""Mined passages beside each query's own."""

_DATA = (
    "MedQuAD passages (CC BY 4.0) on no disease of ddx-real or ddx-fresh, one of each text; "
    "queries: "
)


@dataclass(frozen=True)
class Training:
    """What one adapter is trained on.

    ``asked``: queries "written" by the small model, or MedQuAD's own, which are labels. ``first``:
    how many of the sampled passages; of one text the first alone is kept. ``negatives``: "mined"
    by the base retriever, or "random". ``shuffled``: each query gets another's passage and
    negatives. ``with_passage``: the mean of query and written passage stands for the query. The
    ``seed`` decides the draws, the order and the adapter's first weights; ``learning_rate`` is the
    plan's but for the control that learns slowly.
    """

    asked: Literal["written", "medquad"] = "written"
    first: int = DOCUMENTS
    negatives: Literal["mined", "random"] = "mined"
    shuffled: bool = False
    with_passage: bool = False
    seed: int = 0
    learning_rate: float = PLAN.learning_rate


TRAININGS = {
    "slhyde-query": Training(),
    "slhyde-query-1": Training(seed=1),
    "slhyde-query-2": Training(seed=2),
    "slhyde-shuffled": Training(shuffled=True),
    "slhyde-shuffled-1": Training(shuffled=True, seed=1),
    "slhyde-shuffled-2": Training(shuffled=True, seed=2),
    "slhyde-query-low": Training(learning_rate=LOW_RATE),
    "slhyde-shuffled-low": Training(shuffled=True, learning_rate=LOW_RATE),
    "slhyde-supervised": Training(asked="medquad"),
    "slhyde-supervised-shuffled": Training(asked="medquad", shuffled=True),
    "slhyde-random": Training(negatives="random"),
    "slhyde-half": Training(first=DOCUMENTS // 2),
    "slhyde-quarter": Training(first=DOCUMENTS // 4),
    "slhyde-mean": Training(first=DOCUMENTS // 2, with_passage=True),
}
"""Every adapter by name. The mean is trained on the passages that the tuned generator wrote for:
half of them, so ``slhyde-half`` is what it is to be held against."""


@cache
def _corpus() -> dict[str, Passage]:
    """What may be learnt from, by passage id, in the corpus' order."""
    return {passage.pid: passage for passage in unlabelled()}


@cache
def mined_in() -> DenseIndex:
    """What hard negatives are searched in: the corpus D, as the base retriever reads it."""
    store = corpus_store((CORPUS,))
    index = build_index(store, load_encoder(PLAN.base, precision="float32"))
    return index.subset([pid in _corpus() for pid in index.ids.tolist()])


def queries_of(training: Training) -> dict[str, str]:
    """The queries of a training by the id of their passage, one of each text.

    ValueError where a passage is on a disease that a benchmark tests, or no longer in the corpus.
    """
    if training.asked == "medquad":
        asked = {p.pid: p.meta["question"] for p in sample(_corpus().values())}
    else:
        asked = _written("query")
    return _kept(dict(list(asked.items())[: training.first]), _corpus())


def _kept(asked: Mapping[str, str], corpus: Mapping[str, Passage]) -> dict[str, str]:
    """The queries whose passage is the first of its text; none may be outside the corpus."""
    unknown = sorted(set(asked) - set(corpus))
    if unknown:
        raise ValueError(f"{unknown[0]} may not be learnt from: it is not in the unlabelled corpus")
    check_no_leak(corpus[pid] for pid in asked)
    texts = {pid: corpus[pid].text for pid in asked}
    return {pid: asked[pid] for pid in one_of_each(asked, texts)}


def _written(field: str, file: str = QUERIES) -> dict[str, str]:
    """A field of what the generator wrote, by passage id. FileNotFoundError names the command."""
    path = DATA / file
    if not path.is_file():
        raise FileNotFoundError(
            f"{paths.shown(path)} is missing; how it is made says data/selflearn/README.md"
        )
    return {row["pid"]: row[field] for row in read_jsonl(path)}


def examples_of(training: Training) -> dict[str, list[str]]:
    """The columns that a training reads (see ``lib.studies.selflearn.pairs.columns``)."""
    queries = queries_of(training)
    texts = {pid: passage.text for pid, passage in _corpus().items()}
    seed = training.seed
    if training.negatives == "mined":
        base = load_encoder(PLAN.base, precision="float32")
        ranked = ranked_by(queries, mined_in(), base)
        negatives = hard_negatives(ranked, texts, NEGATIVES, seed)
    else:
        negatives = random_negatives(list(queries), sorted(texts), texts, NEGATIVES, seed)
    written = None
    if training.with_passage:
        passages = _written("passage", TUNED)
        # Where the generator wrote nothing, the query stands alone, as when it is searched with.
        written = {pid: passages[pid].strip() or query for pid, query in queries.items()}
    instead = shuffled(list(queries), seed) if training.shuffled else None
    return columns(queries, negatives, texts, written, instead)


def train(name: str, training: Training | None = None, out: Path | None = None) -> dict[str, Any]:
    """Train one adapter into ``out`` (default: its shipped folder); returns its card.

    ``training`` is by default the one that ``TRAININGS`` has under this name.
    """
    from lib.studies.selflearn.losses import MeanAnchorLoss, query_alone

    training = training or TRAININGS[name]
    loss = MeanAnchorLoss if training.with_passage else query_alone
    whose = "MedQuAD's own" if training.asked == "medquad" else "by SmolLM2-135M-Instruct"
    return fit(
        replace(PLAN, seed=training.seed, learning_rate=training.learning_rate),
        examples_of(training),
        loss,
        out or ADAPTERS / name,
        data=_DATA + whose + (", each with another's passage" if training.shuffled else ""),
        negatives=f"{NEGATIVES} {training.negatives}",
        dropout=0.0,
    )


def cards(names: Sequence[str] = tuple(TRAININGS)) -> pd.DataFrame:
    """What the adapters are and cost, a row each.

    Columns: adapter, examples, negatives (none for the generator), seed, minutes, precision,
    memory_mb (the highest of the process that trained), kilobytes.
    """
    rows = []
    for name in names:
        card = read_card(ADAPTERS / name)
        row = {"adapter": name}
        told = ("examples", "negatives", "seed", "minutes", "precision")
        row |= {key: card.get(key) for key in told}
        row["memory_mb"] = card["peak_memory_mb"]
        row["kilobytes"] = (ADAPTERS / name / WEIGHTS).stat().st_size // 1000
        rows.append(row)
    return pd.DataFrame(rows)


def main() -> None:
    """``python -m lib.studies.selflearn.retriever [NAME ...]``"""
    parser = argparse.ArgumentParser(prog="python -m lib.studies.selflearn.retriever")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(TRAININGS)}; default: all")
    names = parser.parse_args().names or list(TRAININGS)
    unknown = sorted(set(names) - TRAININGS.keys())
    if unknown:
        sys.exit(f"error: no adapter {unknown[0]!r}; there are: {', '.join(TRAININGS)}")
    for number, name in enumerate(names, 1):
        print(f"[{number}/{len(names)}] {name}", flush=True)
        card = train(name)
        cost = f"{card['minutes']} min, {card['peak_memory_mb']} MB of memory"
        print(f"  {card['examples']} pairs, {cost}: {paths.shown(ADAPTERS / name)}", flush=True)


if __name__ == "__main__":
    main()
