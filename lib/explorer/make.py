"""How rows of the explorer are made of sets of questions, compared with lib/, and written."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from lib.base.files import atomic_write, write_jsonl_gz, write_manifest
from lib.data.passages import Passage
from lib.explorer.rows import (
    CHOICES,
    CLASSES,
    COLUMNS,
    DEPTH,
    FILES,
    FOLDER,
    LAM_MAX,
    LAM_MIN,
    RECORD,
    SEVERAL,
    Explored,
    Place,
    begins,
    candidates,
    least,
    lines_of,
    offered,
    order_at,
    spec_of,
)
from lib.query_spec import Hypotheses
from lib.run import RetrievalFailure, Retriever
from lib.search.contrast import cosine
from lib.search.index import DenseIndex
from lib.search.lambda_path import rows_on_path


def checked(low: float) -> list[float]:
    """The lambdas from ``low`` on at which the order is compared with that of lib/."""
    return [i / 10 for i in range(round(10 * low), round(10 * LAM_MAX) + 1)]


EXCERPT = 280
"""Characters of a passage that are kept: enough to see what it is about."""

BLOCK = 2**17
"""Passages whose vectors are in memory at a time."""

_TITLES_ONLY = ("openstax:anatomy-and-physiology", "openstax:microbiology")
"""Passages whose licence asks more than a line of credit (CC BY-NC-SA): title and link alone."""


@dataclass(frozen=True)
class QuestionSet:
    """A set of questions with what is searched: its hypotheses by id, in order, and a retriever.

    ``shown`` has what a reader sees of each question (text, options, answer); ``class_of`` says
    what a passage is for a question. ``about`` is what is kept of the set itself: its name, title,
    what each class ``means`` in it, whose texts H+ and the mimics are (``written``), the lambdas at
    which the top fives were judged, where judging was by lambda (``judged_at``), and the lambda
    that dev questions chose for plain contrast (``dev``, None where none chose).
    """

    about: Mapping
    retriever: Retriever
    hypotheses: Mapping[str, Hypotheses]
    shown: Mapping[str, Mapping]
    class_of: Callable[[str, str], str]


def make_explored(
    sets: Iterable[QuestionSet],
    shown: Callable[[Passage], Mapping] | None = None,
    lam_min: float = LAM_MIN,
) -> Explored:
    """Rows of several sets, for lambda from ``lam_min`` on; every passage once, in the order of its
    id, as ``shown`` gives it (default: ``shown_passage``)."""
    shown = shown or shown_passage
    described, questions, found = [], [], []
    passages: dict[str, Mapping] = {}
    for each in sets:
        described.append(dict(each.about) | {"lam_min": lam_min})
        for qid, kept, pids, scores in _rows_of(each.hypotheses, each.retriever, lam_min):
            place = {"set": each.about["name"], "qid": qid, "start": len(found)}
            questions.append(place | {"length": len(pids)} | each.shown[qid] | kept)
            classes = [CLASSES.index(each.class_of(qid, pid)) for pid in pids]
            found += zip(pids, classes, scores, strict=True)
            new = [pid for pid in pids if pid not in passages]
            for passage in each.retriever.store.get_many(new):
                passages[passage.pid] = {"pid": passage.pid} | shown(passage)
    rank = {pid: i for i, pid in enumerate(sorted(passages))}
    records = np.array([(rank[pid], *row) for pid, *row in found], RECORD)
    return Explored(described, questions, [passages[pid] for pid in rank], records)


class _Blocks:
    """The vectors of an index that can be found, some at a time; one block is read once."""

    def __init__(self, index: DenseIndex):
        rows = np.flatnonzero(index.kept)
        self._index, self._rows = index, np.array_split(rows, math.ceil(len(rows) / BLOCK))
        self._only: list[np.ndarray] = []

    def __iter__(self) -> Iterator[np.ndarray]:
        if len(self._rows) == 1:
            self._only = self._only or [self._index.vectors(self._rows[0])]
            yield from self._only
        else:
            yield from map(self._index.vectors, self._rows)


def _products(embedded: Mapping[str, np.ndarray], vectors: np.ndarray) -> np.ndarray:
    return _columns(embedded, lambda texts: vectors @ texts.T)


def _rows_of(
    hypotheses: Mapping[str, Hypotheses], retriever: Retriever, lam_min: float
) -> Iterator[tuple[str, dict, list[str], np.ndarray]]:
    """Of each question its id; its texts and cosines as they are kept; the passages that are
    needed, and their scores (passages, columns), in the order of H+ alone, which most readers look
    at first."""
    index = retriever.index
    texts = {qid: _texts_of(one, retriever) for qid, one in hypotheses.items()}
    # Passages that may not be found are looked up too, and dropped: they are few.
    depth = DEPTH + max(len(one.excluded) for one in hypotheses.values())
    held = _on_paths(index, texts, depth, lam_min)
    blocks = _Blocks(index)
    for qid, (embedded, kept) in texts.items():
        places = held[qid]
        if SEVERAL in embedded:
            # Another mimic is the nearest for every passage, so that no one vector finds them.
            scores = np.concatenate([_products(embedded, vectors) for vectors in blocks])
            lines = lines_of(scores, "several mimics", "own", np.nan, np.nan)
            found = np.flatnonzero(index.kept)
            may = ~np.isin(index.ids[found], list(hypotheses[qid].excluded))
            near = candidates(lines[0][may], lines[1][may], DEPTH)
            places = [*places, found[may][near]]
        rows = np.unique(np.concatenate(places))
        rows = rows[~np.isin(index.ids[rows], list(hypotheses[qid].excluded))]
        # In double precision, as lib/ scores the passages it has found.
        exact = _columns(embedded, lambda vectors, rows=rows: index.score(vectors, rows).T)
        needed = _needed(exact, kept, index.ranks[rows], lam_min)
        yield qid, kept, index.ids[rows[needed]].tolist(), exact[needed]


def _texts_of(hypotheses: Hypotheses, retriever: Retriever) -> tuple[dict, dict]:
    """A question's vectors (texts, d) by column, and its texts and cosines as they are kept."""
    texts = {
        "plus": hypotheses.of("target")[:1],
        "own": hypotheses.of("mimic")[:1],
        "question": hypotheses.of("question")[:1],
        "random": hypotheses.of("mimic", "stranger")[:1],
        "several": hypotheses.of("mimic", SEVERAL),
    }
    known = retriever.vectors(text for group in texts.values() for text in group)
    embedded = {}
    for column, group in texts.items():
        if group:
            embedded[column] = np.stack([known[text.tower, text.text] for text in group])
    kept: dict = {"several": [text.text for text in texts["several"]]}
    for column, name in (("plus", "target"), ("own", "mimic"), ("random", "random")):
        kept[name] = texts[column][0].text if texts[column] else ""
        if name != "target":
            there = column in embedded
            c = cosine(embedded["plus"], embedded[column]).item() if there else None
            kept[f"c_{column}"] = c
    return embedded, kept


def _on_paths(
    index: DenseIndex, texts: Mapping[str, tuple[dict, dict]], k: int, lam_min: float
) -> dict:
    """For each question the rows that hold the k best at every lambda in [lam_min, ``LAM_MAX``],
    for each form and mimic that searches with one vector; without any mimic, by H+ alone."""
    found: dict[str, list] = {qid: [] for qid in texts}
    lines = []
    for qid, (embedded, kept) in texts.items():
        # As lines, the numbers of h+ and the mimics give those of the query: both are sums.
        missing = np.full_like(embedded["plus"][0], np.nan)
        numbers = np.stack([embedded.get(column, [missing])[0] for column in COLUMNS], axis=-1)
        plain = [(numbers[:, 0], np.zeros_like(missing))]
        by_one = [choice for choice in offered(numbers) if choice[0] != "several mimics"]
        of = [lines_of(numbers, *choice, kept["c_own"], kept["c_random"]) for choice in by_one]
        lines += [(qid, *line) for line in of or plain]
    starts, slopes = (np.stack([line[i] for line in lines]) for i in (1, 2))
    # Lambda is counted from lam_min on.
    on_path = rows_on_path(index, starts - lam_min * slopes, slopes, k, LAM_MAX - lam_min)
    for (qid, *_), rows in zip(lines, on_path, strict=True):
        found[qid].append(rows)
    return found


def _columns(embedded: Mapping[str, np.ndarray], score: Callable) -> np.ndarray:
    """Scores (passages, columns): the largest over a column's texts, NaN where it has none."""
    scores = {}
    for column, rows in embedded.items():
        scores[column] = score(rows).max(axis=1).astype(np.float64)
    missing = np.full_like(scores["plus"], np.nan)
    return np.stack([scores.get(column, missing) for column in COLUMNS], axis=1)


def _needed(scores: np.ndarray, kept: Mapping, ranks: np.ndarray, lam_min: float) -> np.ndarray:
    """Which passages (rows of scores) are needed for one question, by H+ alone, best first."""
    plus = scores[:, 0]
    # Without a mimic nothing is subtracted: the best by H+ are all that is needed.
    chosen = [order_at(plus, np.zeros_like(plus), 0.0, DEPTH, ranks)]
    for form, mimic in offered(scores):
        lines = lines_of(scores, form, mimic, kept["c_own"], kept["c_random"])
        chosen.append(candidates(*lines, DEPTH, lam_min=least(form, lam_min)))
    places = np.unique(np.concatenate(chosen))
    return places[np.lexsort((ranks[places], -plus[places]))]


def shown_passage(passage: Passage) -> dict:
    """What is kept of a passage: title, how it begins where its licence permits, source, link."""
    only_title = passage.pid.startswith(_TITLES_ONLY)
    source, _, rest = passage.pid.partition(":")
    link = passage.meta.get("url", "")
    if passage.meta.get("pmids"):
        link = f"https://pubmed.ncbi.nlm.nih.gov/{passage.meta['pmids'][0]}/"
    if source == "openstax":
        link = f"https://openstax.org/details/books/{rest.partition('/')[0]}"
    return {
        "title": passage.title,
        "text": begins(passage.text, 0 if only_title else EXCERPT),
        "source": source if rest else "ddx-mini",
        "link": link,
    }


def check_rows(questions: QuestionSet, explored: Explored) -> dict[str, int]:
    """The order of every question under every form and mimic at the lambdas of ``checked``,
    compared with what lib/ finds in the whole corpus: how many were ``compared``, how many
    ``differ``.

    Passages whose scores lib/ rounds to neighbouring steps of 1e-5 may change places: those lists
    are counted as ``tied``, and are no difference.
    """
    counts = {"compared": 0, "tied": 0, "differ": 0}
    pids = np.array([passage["pid"] for passage in explored.passages])
    name = questions.about["name"]
    for form, mimic in CHOICES:
        asked = [q for q in explored.of(name) if (form, mimic) in explored.choices_of(q)]
        # What is no straight line in lambda scores every passage: one lambda at a time.
        together = spec_of(form, mimic, 1.0).is_line
        every = checked(explored.least(Place(name, "", form, mimic)))
        for lambdas in [every] if together else [[lam] for lam in every]:
            pairs = list(product(lambdas, asked))
            requests = [
                questions.hypotheses[question["qid"]].by(**vars(spec_of(form, mimic, lam)))
                for lam, question in pairs
            ]
            found = questions.retriever.search_many(requests, DEPTH)
            for (lam, question), hits in zip(pairs, found, strict=True):
                if isinstance(hits, RetrievalFailure):
                    continue
                places = explored.records_of(question)["passage"]
                height, slope = explored.lines(question, form, mimic)
                top = order_at(height, slope, lam, DEPTH, places)
                counts["compared"] += 1
                if pids[places[top]].tolist() != hits.ids[0].tolist():
                    score = (height - lam * slope)[top]
                    near = np.abs(score - hits.scores[0]).max() < 2e-5
                    counts["tied" if near else "differ"] += 1
    return counts


def write_rows(explored: Explored, settings: Mapping) -> None:
    """Write the three files, each whole, with a manifest that holds ``settings``."""
    scores, questions, passages = (FOLDER / name for name in FILES)
    buffer = io.BytesIO()
    np.save(buffer, explored.records, allow_pickle=False)
    atomic_write(scores, buffer.getvalue())
    write_jsonl_gz(questions, [{"sets": list(explored.sets)}, *explored.questions])
    write_jsonl_gz(passages, explored.passages)
    for path, rows in (
        (scores, explored.records),
        (questions, explored.questions),
        (passages, explored.passages),
    ):
        write_manifest(path, rows=len(rows), settings=dict(settings))
