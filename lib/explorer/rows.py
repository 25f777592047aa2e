"""The score rows behind the explorer: which passages of a question are needed, and their cosines.

The passages of a question are those that stand among its ten best at some lambda in [0, 2] under
some form and mimic, and no others are needed: ``check_rows`` compares the order with that of lib/
over the whole corpus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from lib.explorer.lines import CHOICES, COLUMNS, SEVERAL, candidates, lines_of, order_at, way_of
from lib.run import Retriever, Unranked
from lib.search.contrast import cosine
from lib.search.index import DenseIndex
from lib.ways import Hypotheses

DEPTH = 10
"""The rows hold the exact top this deep."""

CHECKED = tuple(i / 10 for i in range(21))
"""The lambdas at which the order is compared with that of lib/."""

CLASSES = ("right", "both", "wrong", "on topic", "neither", "not judged")
"""What a passage is for a question; what that means in a set is in ``QuestionSet.means``."""

RECORD = np.dtype([("passage", "<i4"), ("class", "u1"), ("score", "<f4", (len(COLUMNS),))])
"""One record: the place of the passage in ``passages.jsonl.gz``, of its class in ``CLASSES``, and
its cosines (``COLUMNS``)."""


@dataclass(frozen=True)
class QuestionSet:
    """A set of questions with what is searched: its hypotheses by id, in order, and a retriever.

    ``shown`` has what a reader sees of each question (text, options, answer); ``class_of`` says
    what a passage is for a question, ``means`` what each class is in this set; ``written`` says
    whose texts H+ and the mimics are. ``judged_at`` are the lambdas at which the top fives were
    judged, where judging was by lambda; ``dev`` is the lambda that dev questions chose for plain
    contrast, None where none chose.
    """

    name: str
    title: str
    retriever: Retriever
    hypotheses: Mapping[str, Hypotheses]
    shown: Mapping[str, Mapping]
    class_of: Callable[[str, str], str]
    means: Mapping[str, str]
    written: str = ""
    judged_at: tuple[float, ...] = ()
    dev: float | None = None


@dataclass(frozen=True)
class Explored:
    """Everything the explorer shows: sets, questions (with the place of their records), passages.

    ``order`` (passages,) is the place of each passage's id in sorted order.
    """

    sets: Sequence[Mapping]
    questions: Sequence[Mapping]
    passages: Sequence[Mapping]
    records: np.ndarray
    order: np.ndarray = field(repr=False)

    def of(self, name: str) -> list[Mapping]:
        """The questions of a set, in order."""
        return [question for question in self.questions if question["set"] == name]

    def records_of(self, question: Mapping) -> np.ndarray:
        """The records of a question."""
        return self.records[question["start"] : question["start"] + question["length"]]

    def choices_of(self, question: Mapping) -> list[tuple[str, str]]:
        """The pairs of form and mimic that this question has texts for."""
        known = ~np.isnan(self.records_of(question)["score"]).all(axis=0)
        there = dict(zip(COLUMNS, known.tolist(), strict=True))
        return [choice for choice in CHOICES if all(there[column] for column in _needs(*choice))]


def _needs(form: str, mimic: str) -> tuple[str, ...]:
    """The columns that a form and mimic are made of."""
    if form == "several mimics":
        return ("plus", "several")
    needed = ("plus", "own") if mimic == "own" else ("plus", "own", "random")
    return (*needed, "question") if form == "question added" else needed


# making ------------------------------------------------------------------------------------------


def rows_of(some: QuestionSet) -> tuple[list[dict], list[list[tuple[str, str, np.ndarray]]]]:
    """The questions of a set as they are kept, and for each its (passage id, class, scores)."""
    index = some.retriever.index
    vectors = index.vectors(np.arange(len(index.ids)))
    questions, found = [], []
    for qid, hypotheses in some.hypotheses.items():
        texts = _texts(hypotheses)
        embedded = _embedded(texts, some.retriever)
        cosines = {
            f"c_{column}": _cosine(embedded["plus"], embedded[column])
            for column in ("own", "random")
        }
        places = _needed(embedded, cosines, vectors, hypotheses, index)
        scores = np.full((len(places), len(COLUMNS)), np.nan)
        for at, column in enumerate(COLUMNS):
            if embedded[column] is not None:
                # In double precision, as lib/ scores the passages it has found.
                scores[:, at] = index.score(embedded[column], places).max(axis=0)
        ids = index.ids[places].tolist()
        found.append([(p, some.class_of(qid, p), s) for p, s in zip(ids, scores, strict=True)])
        said = {
            "target": texts["plus"][0].text,
            "mimic": texts["own"][0].text if texts["own"] else "",
            "random": texts["random"][0].text if texts["random"] else "",
            "several": [text.text for text in texts["several"]],
        }
        questions.append({"set": some.name, "qid": qid, **some.shown[qid], **said, **cosines})
    return questions, found


def _embedded(texts: Mapping[str, tuple], retriever: Retriever) -> dict[str, np.ndarray | None]:
    """The vectors (texts, d) behind each column; None where there is no text."""
    known = retriever.vectors(text for group in texts.values() for text in group)
    found = {}
    for column, group in texts.items():
        rows = [known[text.tower, text.text] for text in group]
        found[column] = np.stack(rows) if rows else None
    return found


def _needed(
    embedded: Mapping[str, np.ndarray | None],
    cosines: Mapping[str, float | None],
    vectors: np.ndarray,
    hypotheses: Hypotheses,
    index: DenseIndex,
) -> np.ndarray:
    """Rows of the passages that are needed for one question, in the order of H+ alone, which is
    what most readers look at first."""
    scores = np.full((len(vectors), len(COLUMNS)), np.nan)
    for place, column in enumerate(COLUMNS):
        if embedded[column] is not None:
            scores[:, place] = (vectors @ embedded[column].T).max(axis=1)
    scores[~index.kept] = np.nan
    scores[np.isin(index.ids, list(hypotheses.excluded))] = np.nan
    chosen = np.zeros(len(vectors), dtype=bool)
    for form, mimic in CHOICES:
        if all(embedded[column] is not None for column in _needs(form, mimic)):
            height, slope = lines_of(scores, form, mimic, cosines["c_own"], cosines["c_random"])
            chosen[candidates(height, slope, DEPTH)] = True
    places = np.flatnonzero(chosen)
    return places[np.lexsort((index.ranks[places], -scores[places, 0]))]


def _texts(hypotheses: Hypotheses) -> dict[str, tuple]:
    """The texts behind each column."""
    return {
        "plus": hypotheses.of("target")[:1],
        "own": hypotheses.of("mimic")[:1],
        "question": hypotheses.of("question")[:1],
        "random": hypotheses.of("mimic", "stranger")[:1],
        "several": hypotheses.of("mimic", SEVERAL),
    }


def _cosine(plus: np.ndarray, other: np.ndarray | None) -> float | None:
    return None if other is None else float(cosine(plus[:1], other[:1])[0])


def check_rows(some: QuestionSet, explored: Explored) -> dict[str, int]:
    """The order of every question under every form and mimic at the lambdas ``CHECKED``, compared
    with what lib/ finds in the whole corpus: how many were ``compared``, how many ``differ``.

    Passages whose scores lib/ rounds to neighbouring steps of 1e-5 may change places: those lists
    are counted as ``tied``, and are no difference.
    """
    counts = {"compared": 0, "tied": 0, "differ": 0}
    questions = explored.of(some.name)
    pids = np.array([passage["pid"] for passage in explored.passages])
    for form, mimic in CHOICES:
        asked = [q for q in questions if (form, mimic) in explored.choices_of(q)]
        for lam in CHECKED:
            way = vars(way_of(form, mimic, lam))
            requests = [some.hypotheses[q["qid"]].by(**way) for q in asked]
            for question, hits in zip(
                asked, some.retriever.search_many(requests, DEPTH), strict=True
            ):
                if isinstance(hits, Unranked):
                    continue
                records = explored.records_of(question)
                height, slope = lines_of(
                    records["score"], form, mimic, question["c_own"], question["c_random"]
                )
                ranks = explored.order[records["passage"]]
                top = order_at(height, slope, lam, DEPTH, ranks)
                counts["compared"] += 1
                if pids[records["passage"][top]].tolist() != hits.ids[0].tolist():
                    score = (height - lam * slope)[top]
                    near = np.abs(score - hits.scores[0]).max() < 2e-5
                    counts["tied" if near else "differ"] += 1
    return counts


def put_together(
    sets: Iterable[tuple[QuestionSet, list[dict], list[list[tuple]]]],
    shown_passage: Callable[[str], Mapping],
) -> Explored:
    """Several sets as one: every passage once, in the order of its id."""
    sets = list(sets)
    ids = sorted({pid for _, _, found in sets for rows in found for pid, _, _ in rows})
    place = {pid: i for i, pid in enumerate(ids)}
    questions, records = [], []
    for _, asked, found in sets:
        for question, rows in zip(asked, found, strict=True):
            questions.append(question | {"start": len(records), "length": len(rows)})
            records += [(place[pid], CLASSES.index(name), score) for pid, name, score in rows]
    described = [
        {
            "name": s.name,
            "title": s.title,
            "means": dict(s.means),
            "written": s.written,
            "judged_at": list(s.judged_at),
            "dev": s.dev,
        }
        for s, _, _ in sets
    ]
    passages = [{"pid": pid} | dict(shown_passage(pid)) for pid in ids]
    return Explored(
        described, questions, passages, np.array(records, RECORD), np.arange(len(passages))
    )
