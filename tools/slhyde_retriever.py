"""The retriever's side of SL-HyDE: MiniLM learns from queries that a small model wrote.

    python -m tools.slhyde_retriever [NAME ...]    each of RECIPES into data/adapters
    python -m tools.slhyde_retriever --rates       how the learning rates were chosen
    python -m tools.slhyde_retriever --loop FILE.toml    another loop: tools.slhyde_loop

A killed run goes on, and comes to the same weights. ``lib.studies.slhyde.tasks`` lists what differs
from the paper. Source: Li et al., AutoMIR, arXiv:2410.20050, section 3.3.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MultipleNegativesRankingLoss,
)
from torch import Tensor, nn

from lib.base import paths
from lib.base.provenance import write_result
from lib.data.passages import Passage
from lib.embed import Encoder, load_encoder
from lib.index_build import build_index, corpus_store, files_of
from lib.model_files import ADAPTERS
from lib.search.index import DenseIndex
from lib.search.vectors import encode_small
from lib.stats import mean_interval
from lib.studies.slhyde.tasks import (
    BASE,
    CORPUS,
    DOCUMENTS,
    LOW_RATE,
    Task,
    open_task,
    query_arm,
    read_texts,
    sample,
    task_values,
    unlabelled,
)
from tools.training import Plan, add_names, fit

PLAN = Plan(BASE, "texts", rank=8, learning_rate=1e-3, batch_size=16, max_tokens=160, dropout=0.0)
"""What all trainings share; each has its own seed. On one core dropout takes two fifths of the
time, and one epoch of small adapters leaves little to overfit."""

FIRST_RANK, LAST_RANK = 5, 100
"""Hard negatives are drawn from these ranks of the base retriever, where the search text is the
query without a written passage: what ranks higher may answer the query. (As in the released
code; Eq. 5 of the paper searches with query and passage.)"""

SCALE = 50.0
"""One over the paper's temperature, .02."""

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


RECIPES = {
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
"""How each adapter of ``lib.studies.slhyde.tasks.TRAININGS`` is made."""


# what is learnt from ------------------------------------------------------------------------------


@cache
def _corpus() -> dict[str, Passage]:
    """What may be learnt from, by passage id, in the corpus' order."""
    return {passage.pid: passage for passage in unlabelled()}


@cache
def mined_in() -> DenseIndex:
    """What hard negatives are searched in: the corpus D, as the base retriever reads it."""
    index = build_index(corpus_store((CORPUS,)), load_encoder(BASE, precision="float32"))
    return index.subset([pid in _corpus() for pid in index.ids.tolist()])


def queries_of(training: Training) -> dict[str, str]:
    """The queries of a training by the id of their passage.

    Of passages with one text (MedQuAD repeats paragraphs that explain its tables) the first alone
    is learnt from: in a batch, another's passage is a negative. ValueError where a passage may not
    be learnt from, such as one on a disease that a benchmark tests.
    """
    corpus = _corpus()
    if training.asked == "medquad":
        asked = {p.pid: p.meta["question"] for p in sample(corpus.values())}
    else:
        asked = {row["pid"]: row["query"] for row in read_texts("queries")}
    first: dict[str, str] = {}
    for pid in list(asked)[: training.first]:
        if pid not in corpus:
            raise ValueError(f"{pid} may not be learnt from: it is not in the unlabelled corpus")
        first.setdefault(corpus[pid].text, pid)
    return {pid: asked[pid] for pid in first.values()}


def ranked_by(
    queries: Mapping[str, str], index: DenseIndex, encoder: Encoder, depth: int = LAST_RANK
) -> dict[str, list[str]]:
    """The ``depth`` passages nearest to each query, best first, by the query's key."""
    vectors = encode_small(list(queries.values()), encoder, "query")
    hits = index.search(vectors, depth)
    return {key: hits[i].ids[0].tolist() for i, key in enumerate(queries)}


def examples_of(training: Training) -> dict[str, list[str]]:
    """The columns that ``fit`` takes, a row a query: ``anchor`` (the query), ``written`` where
    passages were written, ``positive`` and ``negative_1``.

    A negative is drawn by the passage's id and the seed, and never has the passage's text. When
    shuffled, a query gets the passage *and the negatives* of the next one, in one cycle through all
    queries: every text is used as often as before, but no pair matches. With its own negatives it
    would learn to avoid its own best results, and such a control is easy to beat.
    """
    queries = queries_of(training)
    texts = {pid: passage.text for pid, passage in _corpus().items()}
    offered: Mapping[str, Sequence[str]] = dict.fromkeys(queries, sorted(texts))
    if training.negatives == "mined":
        ranked = ranked_by(queries, mined_in(), load_encoder(BASE, precision="float32"))
        offered = {pid: found[FIRST_RANK - 1 :] for pid, found in ranked.items()}
    negatives = {}
    for pid in queries:
        others = [other for other in offered[pid] if texts[other] != texts[pid]]
        (drawn,) = random.Random(f"negatives {training.seed} {pid}").sample(others, 1)
        negatives[pid] = texts[drawn]
    source = {pid: pid for pid in queries}
    if training.shuffled:
        order = list(queries)
        random.Random(f"shuffled {training.seed}").shuffle(order)
        source = dict(zip(order, order[1:] + order[:1], strict=True))
    made = {"anchor": list(queries.values())}
    if training.with_passage:
        passages = {row["pid"]: row["passage"] for row in read_texts("tuned")}
        # Where the generator wrote nothing, the query stands alone, as when it is searched with.
        made["written"] = [passages[pid].strip() or query for pid, query in queries.items()]
    made["positive"] = [texts[source[pid]] for pid in queries]
    made["negative_1"] = [negatives[source[pid]] for pid in queries]
    return made


# losses -------------------------------------------------------------------------------------------


def without_dropout(model: nn.Module) -> None:
    """Set every dropout of the model, its adapter's too, to 0."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0


def query_alone(model: Any, dropout: bool = False, at_once: int = 0) -> Any:
    """Equation 6. Columns: query, its passage, negatives.

    Of all passages in a batch, the others' and the mined ones, a query is to be nearest to its own
    by the cosine. The paper trains on (query, written passage; document); its released code has
    that branch commented out and takes the query alone. ``at_once``: texts in memory together.
    """
    if not dropout:
        without_dropout(model)
    if not at_once:
        return MultipleNegativesRankingLoss(model, scale=SCALE)
    return CachedMultipleNegativesRankingLoss(model, scale=SCALE, mini_batch_size=at_once)


class MeanAnchorLoss(nn.Module):
    """Columns: query, written passage, the query's own passage, negatives.

    As Eq. 8 and 9 search at inference: v = (u(query) + u(written)) / 2, where u makes a vector one
    of length 1 and v stays as long as it comes out; the score of a passage d is <v, u(d)>. The loss
    is -log softmax(SCALE <v, u(d)>) of the own passage among all of the batch, averaged.
    """

    def __init__(self, model: Any):
        super().__init__()
        without_dropout(model)
        self.model = model

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor) -> Tensor:
        """The mean loss of the batch; ``labels`` is what trainers hand over, and is not read."""
        columns = [self.model(features)["sentence_embedding"] for features in sentence_features]
        query, written, *passages = [nn.functional.normalize(rows, dim=1) for rows in columns]
        anchors = (query + written) / 2
        scores = SCALE * anchors @ torch.cat(passages).T
        own = torch.arange(len(anchors), device=scores.device)
        return nn.functional.cross_entropy(scores, own)


# training -----------------------------------------------------------------------------------------


def train(training: Training, out: Path) -> dict[str, Any]:
    """Train one adapter into ``out``; returns its card."""
    whose = "MedQuAD's own" if training.asked == "medquad" else "by SmolLM2-135M-Instruct"
    return fit(
        replace(PLAN, seed=training.seed, learning_rate=training.learning_rate),
        examples_of(training),
        out,
        MeanAnchorLoss if training.with_passage else query_alone,
        data=_DATA + whose + (", each with another's passage" if training.shuffled else ""),
        negatives=f"1 {training.negatives}",
    )


RATES = {
    "slhyde_rates": (
        Training(asked="medquad", first=DOCUMENTS // 2),
        (1e-3, 3e-4, 1e-4),
    ),
    "slhyde_rates_disorder": (Training(shuffled=True), (3e-4, 1e-4)),
}
"""What each table of rates learns from, and the rates.

``slhyde_rates``: half of the training passages with MedQuAD's own questions; the rate with the
highest nDCG@10 is the plan's. Two things it cannot tell: the highest rate that was tried won, so
the best may lie beyond it, and it won by little (.709, .702, .693 and .684 untrained, intervals
overlap); and the pool is what the base finds first, so a tuned retriever meets none that its own
training has moved near.
``slhyde_rates_disorder``: up to which learning rate do shuffled pairs not ruin the retriever?
``LOW_RATE`` is the highest of these at which it keeps more than half of the base's nDCG@10.
This rule was chosen after these numbers were seen (.684 untrained, .602 at 1e-4, .013 at 3e-4), and
before the pair was measured on SciFact or BioASQ."""

HELD_OUT = 150
"""Passages that rates are chosen on, one a page; none is trained on."""


def held_out() -> Task:
    """Passages after the sample that is trained on, by their own questions.

    They are searched among the base retriever's first twenty for each. Passages whose text stands
    in the corpus twice are left out: they could not be told apart.
    """
    corpus = unlabelled()
    repeated = Counter(passage.text for passage in corpus)
    further = sample(corpus, DOCUMENTS + 2 * HELD_OUT)[DOCUMENTS:]
    passages = [passage for passage in further if repeated[passage.text] == 1][:HELD_OUT]
    queries = {passage.pid: passage.meta["question"] for passage in passages}
    base = load_encoder(BASE, precision="float32")
    pool = set(queries).union(*ranked_by(queries, mined_in(), base, 20).values())
    return Task(
        "medquad held out",
        queries,
        tuple(passage for passage in corpus if passage.pid in pool),
        {pid: {pid: 1} for pid in queries},
    )


def rate_table(name: str) -> pd.DataFrame:
    """``encoder, learning_rate, ndcg_at_10, low, high, n, passages``: the base, then each rate."""
    training, rates = RATES[name]
    encoders = {np.nan: BASE}
    for rate in rates:
        out = paths.cache("adapters") / f"{name}-{rate:g}"
        train(replace(training, learning_rate=rate), out)
        encoders[rate] = f"{BASE}+{out}"
    task = held_out()
    rows = []
    for rate, encoder in encoders.items():
        opened = open_task(task, load_encoder(encoder, precision="float32"), "float32")
        values = task_values(task, opened, [query_arm(BASE, task)])
        ndcg = values[values["metric"] == "ndcg_at_10"].sort_values("qid")["value"]
        value, low, high = mean_interval(ndcg.to_numpy())
        row = {
            "encoder": BASE if encoder == BASE else "tuned",
            "learning_rate": f"{rate:g}",
            "ndcg_at_10": value,
            "low": low,
            "high": high,
            "n": len(ndcg),
            "passages": len(task.corpus),
        }
        rows.append(row)
    return pd.DataFrame(rows)


def main() -> None:
    """Train the adapters that are named, or all; with ``--rates`` write the tables of rates, with
    ``--loop`` train the retriever of that file's loop."""
    parser = argparse.ArgumentParser(prog="python -m tools.slhyde_retriever")
    add_names(parser, "names", RECIPES)
    parser.add_argument("--rates", action="store_true")
    parser.add_argument("--loop", type=Path, metavar="FILE.toml")
    given = parser.parse_args()
    if given.loop:
        from tools.slhyde_loop import command, train_loop

        print(f"python -m lib.beir cmirb --encoder st:{command(train_loop, given.loop)}")
        return
    if given.rates:
        for name in RATES:
            table = rate_table(name)
            origin = {"code": ["lib.studies.slhyde"], "data": files_of((CORPUS,))}
            write_result(table, name, "open", **origin)
            print(table.to_string(index=False))
        return
    for name in RECIPES if "all" in given.names else given.names:
        card = train(RECIPES[name], ADAPTERS / name)
        cost = f"{card['minutes']} min, {card['peak_memory_mb']} MB of memory"
        print(f"{name}: {card['examples']} pairs, {cost}", flush=True)


if __name__ == "__main__":
    main()
