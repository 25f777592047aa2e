"""What the retriever learns from: a query, the passage it was written from, and hard negatives.

A hard negative is drawn from ranks 5 to 100 of the base retriever, searched with the query alone
(the released code of SL-HyDE; the paper's Eq. 5 names query and passage). The source passage is
never one, nor is a passage with the same text. Of passages with one text (MedQuAD repeats
paragraphs that explain its tables) the first alone is learnt from: in a batch, another's passage is
a negative.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence

from lib.embed import Encoder
from lib.search.index import DenseIndex
from lib.search.vectors import encode_small

FIRST_RANK, LAST_RANK = 5, 100
"""Negatives are drawn from these ranks, counted from 1: what ranks higher may answer the query."""

Negatives = Mapping[str, Sequence[str]]
"""The ids of a query's negatives, by the id of its own passage."""


def one_of_each(pids: Iterable[str], texts: Mapping[str, str]) -> list[str]:
    """The first passage of each text, in their order. ``texts`` are by id."""
    first: dict[str, str] = {}
    for pid in pids:
        first.setdefault(texts[pid], pid)
    return list(first.values())


def ranked_by(
    queries: Mapping[str, str], index: DenseIndex, encoder: Encoder, depth: int = LAST_RANK
) -> dict[str, list[str]]:
    """The ``depth`` passages nearest to each query, best first, by the query's key."""
    vectors = encode_small(list(queries.values()), encoder, "query")
    hits = index.search(vectors, depth)
    return {key: hits[i].ids[0].tolist() for i, key in enumerate(queries)}


def hard_negatives(
    ranked: Mapping[str, Sequence[str]], texts: Mapping[str, str], count: int, seed: int
) -> dict[str, list[str]]:
    """``count`` passages for each query, drawn from ranks 5 to 100 of its list.

    ``ranked`` are passage ids, best first, by the id of the query's own passage; ``texts`` the
    passages by id. A query's draw depends on its own list and the seed alone. ValueError where a
    list is too short.
    """
    drawn = {}
    for pid, listed in ranked.items():
        nearby = listed[FIRST_RANK - 1 : LAST_RANK]
        drawn[pid] = _draw(pid, nearby, texts, count, seed)
    return drawn


def random_negatives(
    pids: Sequence[str], pool: Sequence[str], texts: Mapping[str, str], count: int, seed: int
) -> dict[str, list[str]]:
    """``count`` passages for each query, drawn from the whole ``pool``: what mining is held
    against."""
    return {pid: _draw(pid, pool, texts, count, seed) for pid in pids}


def _draw(
    pid: str, offered: Sequence[str], texts: Mapping[str, str], count: int, seed: int
) -> list[str]:
    """Some of the offered passages, none of them the one called ``pid`` or with its text."""
    others = [other for other in offered if texts[other] != texts[pid]]
    if len(others) < count:
        raise ValueError(f"{pid}: {len(others)} passages to draw {count} negatives from")
    # A generator for each query, so that no query's draw depends on another's.
    return random.Random(f"negatives {seed} {pid}").sample(others, count)


def shuffled(pids: Sequence[str], seed: int) -> dict[str, str]:
    """Whose passages each query is given instead of its own: one circle through all of them.

    On a circle no query keeps its own. ValueError for fewer than two.
    """
    if len(pids) < 2:
        raise ValueError("one query alone cannot be given another's passage")
    order = list(pids)
    random.Random(f"shuffled {seed}").shuffle(order)
    return dict(zip(order, order[1:] + order[:1], strict=True))


def columns(
    queries: Mapping[str, str],
    negatives: Negatives,
    texts: Mapping[str, str],
    written: Mapping[str, str] | None = None,
    instead: Mapping[str, str] | None = None,
) -> dict[str, list[str]]:
    """The columns that ``lib.train.fit`` takes, a row a query, in the order of ``queries``.

    ``anchor`` (the query), ``written`` where passages were written, ``positive``, ``negative_1``,
    ... ``queries`` are by the id of their passage. With ``instead`` (see ``shuffled``) a query gets
    the passage *and the negatives* of another: the same texts as often, and nothing to be learnt
    of what belongs together. Were the negatives its own, it would be taught to avoid what it
    found best, which is easy to beat.
    """
    own = instead or {pid: pid for pid in queries}
    made = {"anchor": list(queries.values())}
    if written is not None:
        made["written"] = [written[pid] for pid in queries]
    made["positive"] = [texts[own[pid]] for pid in queries]
    count = min(len(negatives[own[pid]]) for pid in queries)
    for number in range(count):
        rows = [texts[negatives[own[pid]][number]] for pid in queries]
        made[f"negative_{number + 1}"] = rows
    return made
