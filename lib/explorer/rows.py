"""The rows behind the explorer: lines in lambda, and what they show of a question or a set.

Every passage is a line in lambda: all forms that are offered score it as height - lambda * slope,
so a few cosines a passage hold every order at every lambda, without an encoder or an index. Of a
question those passages are kept that stand among its ten best at some lambda that a form goes to,
under some form and mimic (see ``lib.explorer.make``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Literal

import numpy as np

from lib.base import paths
from lib.base.files import StaleInput, read_jsonl, read_manifest
from lib.base.parameters import check_k, check_number, one_of
from lib.query_spec import SearchSpec
from lib.search.contrast import rotation, spectrum
from lib.search.lambda_path import holding

DEPTH = 10
"""The rows hold the exact top this deep."""

LAM_MIN, LAM_MAX = -1.0, 2.0
"""Lambda goes from here to here; below 0 the mimic is added. See ``least``."""

CLASSES = ("right", "both", "wrong", "on topic", "neither", "not judged")
"""What a passage is for a question; what that means in a set is in its ``means``."""

GOOD = ("right", "both")
"""Classes that count as found: P@k of ddx and BioASQ, support for the right option on exams."""

COLUMNS = ("plus", "own", "question", "random", "several")
"""Of a score row: cosines of the passage with H+, with the question's own H-, with the question,
with another question's mimic, and the largest with several mimics. NaN where there is no text."""

RECORD = np.dtype([("passage", "<i4"), ("class", "u1"), ("score", "<f4", (len(COLUMNS),))])
"""One record: the place of the passage in ``passages.jsonl.gz``, of its class in ``CLASSES``, and
its cosines (``COLUMNS``)."""

FOLDER = paths.DATA / "explorer"
FILES = ("scores.npy", "questions.jsonl.gz", "passages.jsonl.gz")
"""One record a question and passage (``RECORD``); the sets, then a line a question; a line a
passage, in the order of their ids."""

# lines -------------------------------------------------------------------------------------------

Form = Literal["one mimic", "several mimics", "question added"]
Mimic = Literal["own", "random", "rotation"]

NEEDS: dict[tuple[Form, Mimic], tuple[str, ...]] = {
    ("one mimic", "own"): ("plus", "own"),
    ("one mimic", "random"): ("plus", "own", "random"),
    ("one mimic", "rotation"): ("plus", "own", "random"),
    ("question added", "own"): ("plus", "own", "question"),
    ("question added", "random"): ("plus", "own", "random", "question"),
    ("question added", "rotation"): ("plus", "own", "random", "question"),
    ("several mimics", "own"): ("plus", "several"),
}
"""The pairs of form and mimic that are offered, with the columns that each is made of: several
mimics are always the question's own."""

CHOICES = tuple(NEEDS)


def least(form: Form, low: float = LAM_MIN) -> float:
    """The smallest lambda of a form in rows that go down to ``low``: one mimic alone is also
    added."""
    return low if form == "one mimic" else 0.0


_STEPS = 1e5
"""Scores are compared in steps of 1e-5, as ``lib.search.index`` does."""

SEVERAL = "several"
"""The kind of mimic text that a differential has."""


def spec_of(form: Form, mimic: Mimic, lam: float) -> SearchSpec:
    """How lib/ searches for the same: another question's mimic is the first that was drawn."""
    if form == "several mimics":
        return SearchSpec(form="max", mimic=SEVERAL, lam=lam)
    return SearchSpec(
        lam=lam,
        mimic="stranger" if mimic == "random" else "",
        rotation=mimic == "rotation",
        question_weight=1.0 if form == "question added" else 0.0,
    )


def offered(scores: np.ndarray) -> list[tuple[Form, Mimic]]:
    """The pairs of form and mimic that scores (n, 5) have the columns for."""
    missing = np.isnan(scores).all(axis=0)
    known = {column for column, is_missing in zip(COLUMNS, missing, strict=True) if not is_missing}
    return [choice for choice in CHOICES if known.issuperset(NEEDS[choice])]


def lines_of(
    scores: np.ndarray, form: Form, mimic: Mimic, c_own: np.ndarray, c_random: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Height and slope of every passage, each (..., passages), float64.

    ``scores`` (..., passages, 5) has ``COLUMNS``. ``c_own`` and ``c_random`` (...) are the cosines
    of H+ with the question's own mimic and with another question's: the matched rotation follows
    from them, because it lies in the plane of h+ and that other mimic
    (``lib.search.contrast.matched_rotation``).
    """
    plus, own, question, random, several = np.moveaxis(np.asarray(scores, np.float64), -1, 0)
    height = plus + question if form == "question added" else plus
    if form == "several mimics":
        return height, several
    if mimic == "own":
        return height, own
    if mimic == "random":
        return height, random
    c, x = (np.asarray(value, np.float64)[..., None] for value in (c_own, c_random))
    residual = (random - x * plus) / np.sqrt(1 - x * x)
    return height, c * plus + np.sqrt(1 - c * c) * residual


def order_at(
    height: np.ndarray, slope: np.ndarray, lam: float, k: int, ranks: np.ndarray
) -> np.ndarray:
    """Positions of the k best at a lambda, best first, (..., k): by score in steps of 1e-5, ties by
    ``ranks``, the place of each passage's id in sorted order. A passage without a line (NaN) comes
    after all others.
    """
    score = np.rint((height - lam * slope) * _STEPS)
    score = np.where(np.isnan(score), -np.inf, score)
    return np.lexsort((np.broadcast_to(ranks, score.shape), -score), axis=-1)[..., :k]


def breakpoints(height: np.ndarray, slope: np.ndarray, k: int, lam_min: float = 0.0) -> list[float]:
    """Every lambda in (lam_min, LAM_MAX) at which the set of the k best changes, exactly, in
    order."""
    found = spectrum(height - lam_min * slope, slope, k, LAM_MAX - lam_min)
    return [lam_min + segment.start for segment in found[1:]]


def candidates(
    height: np.ndarray,
    slope: np.ndarray,
    k: int,
    lam_max: float = LAM_MAX,
    lam_min: float = 0.0,
) -> np.ndarray:
    """Positions of a few passages that hold the k best at every lambda in [lam_min, lam_max],
    sorted.

    What every stretch between two lambdas of a grid is proved to hold (``holding``), less what the
    exact spectrum of it then leaves out. Passages that rounding might tie are kept. NaN stays out.
    """
    slack = 2e-5
    scored = np.flatnonzero(~np.isnan(height))
    # Lambda is counted from lam_min on.
    height, slope, lam_max = (height - lam_min * slope)[scored], slope[scored], lam_max - lam_min
    k = min(k, len(scored))
    grid = np.linspace(0, lam_max, 21)[:, None]
    _, kept = holding(height - grid * slope, k, slack)
    scored, height, slope = scored[kept], height[kept], slope[kept]
    inside = np.zeros(len(scored), dtype=bool)
    for segment in spectrum(height, slope, k, lam_max):
        members = list(segment.rows)
        for lam in (segment.start, segment.end):
            score = height - lam * slope
            # The members, and whatever rounding could put in the place of the worst of them.
            inside |= score >= score[members].min() - slack
    return scored[inside]


# looking -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """Where a reader is: a question of a set, a form, a mimic, a lambda and how many passages."""

    set: str
    qid: str
    form: Form = "one mimic"
    mimic: Mimic = "own"
    lam: float = 1.0
    k: int = 5


@dataclass(frozen=True, eq=False)
class Explored:
    """Everything the explorer shows: sets, their questions in the same order (with the place of
    their records), passages in the order of their ids, and records (``RECORD``)."""

    sets: Sequence[Mapping]
    questions: Sequence[Mapping]
    passages: Sequence[Mapping]
    records: np.ndarray

    @cached_property
    def _by_set(self) -> dict[str, dict[str, Mapping]]:
        """The questions by set and id, in order."""
        by_set: dict[str, dict[str, Mapping]] = {described["name"]: {} for described in self.sets}
        for question in self.questions:
            by_set[question["set"]][question["qid"]] = question
        return by_set

    def of(self, name: str) -> list[Mapping]:
        """The questions of a set, in order."""
        return list(self._by_set[name].values())

    def set_named(self, name: str) -> Mapping:
        """A set by its name; ValueError where there is none."""
        return one_of("no set", name, {described["name"]: described for described in self.sets})

    def least(self, place: Place) -> float:
        """The smallest lambda for which the rows hold the lists of a place's set and form. A set
        says how far down it goes (``lam_min``); where it does not, down to 0."""
        return least(place.form, self.set_named(place.set).get("lam_min", 0.0))

    def question(self, place: Place) -> Mapping:
        """The question of a place; ValueError where there is none."""
        questions = one_of("no set", place.set, self._by_set)
        return one_of(f"{place.set} has no question", place.qid, questions)

    def records_of(self, question: Mapping) -> np.ndarray:
        """The records of a question."""
        return self.records[question["start"] : question["start"] + question["length"]]

    def choices_of(self, question: Mapping) -> list[tuple[Form, Mimic]]:
        """The pairs of form and mimic that this question has texts for."""
        return offered(self.records_of(question)["score"])

    def lines(
        self, question: Mapping, form: Form = "one mimic", mimic: Mimic = "own"
    ) -> tuple[np.ndarray, np.ndarray]:
        """Height and slope of each record of a question (see ``lines_of``).

        Without any mimic slopes are 0: H+ alone. ValueError for what it has no texts for.
        """
        scores = self.records_of(question)["score"]
        if not question["mimic"] and (form, mimic) == ("one mimic", "own"):
            return scores[:, 0].astype(np.float64), np.zeros(len(scores))
        offered = self.choices_of(question)
        if (form, mimic) not in offered:
            raise ValueError(
                f"question {question['qid']} has no texts for {form}, {mimic}; there are: {offered}"
            )
        return lines_of(scores, form, mimic, question["c_own"], question["c_random"])

    def start(self, name: str, **changes) -> Place:
        """A set's median question at the paper's lambda, 1."""
        return replace(Place(name, self.median_question(name)), **changes)

    def median_question(self, name: str, k: int = 5) -> str:
        """The question of a set that is shown first, by a rule that looks at nothing else.

        Of the questions for which H+ alone has a passage of ``GOOD`` among its k best, in the order
        of how many such passages are lost at lambda 1, then of how many there were, then of their
        ids: the one in the middle. Where H+ alone finds none for any question, the first question.
        """
        self.set_named(name)
        ordered = []
        for qid in self._by_set[name]:
            before, after = self.rights(Place(name, qid, k=k), (0.0, 1.0))
            if before:
                ordered.append((after - before, before, qid))
        if not ordered:
            return self.of(name)[0]["qid"]
        _, _, middle = sorted(ordered)[(len(ordered) - 1) // 2]
        return middle

    def list_at(self, place: Place, lam: float | None = None) -> list[dict]:
        """The k best at the place's lambda, or at another, best first: of each passage its place
        among the question's records (``record``), its ``score``, its ``class``, and what is kept.

        ValueError for a k above ``DEPTH`` or a lambda that the form does not go to: the rows hold
        no more.
        """
        at = check_number("lam", place.lam if lam is None else lam)
        if not 1 <= check_k(place.k) <= DEPTH or not self.least(place) <= at <= LAM_MAX:
            raise ValueError(
                f"k = {place.k}, lambda = {at}: the rows hold the exact top {DEPTH} for lambda "
                f"from {self.least(place):g} to {LAM_MAX:g}, and no more"
            )
        question = self.question(place)
        records = self.records_of(question)
        height, slope = self.lines(question, place.form, place.mimic)
        found = []
        for record in order_at(height, slope, at, place.k, records["passage"]).tolist():
            passage = dict(self.passages[records["passage"][record]])
            passage["record"] = record
            passage["score"] = float(height[record] - at * slope[record])
            passage["class"] = CLASSES[records["class"][record]]
            found.append(passage)
        return found

    def rights(self, place: Place, lambdas: Sequence[float]) -> list[int]:
        """How many of the k best are of ``GOOD``, at each lambda."""
        lists = (self.list_at(place, lam) for lam in lambdas)
        return [sum(passage["class"] in GOOD for passage in found) for found in lists]

    def changes(self, place: Place) -> list[float]:
        """Every lambda of the form at which the set of the k best changes, exactly, in order."""
        lines = self.lines(self.question(place), place.form, place.mimic)
        return breakpoints(*lines, place.k, self.least(place))

    def turn(self, place: Place) -> tuple[float, float] | None:
        """cos(h+, h-) and the degrees by which the query has turned; None where it is no single
        vector in their plane: with the question added, or with several mimics."""
        if place.form != "one mimic":
            return None
        c = self.question(place)["c_random" if place.mimic == "random" else "c_own"]
        return c, float(rotation(c, place.lam))

    def shares(
        self, place: Place, lambdas: Sequence[float], good: Sequence[str] = GOOD
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Of all questions of the set under the place's form and mimic, at each lambda: the mean
        share of each class among the k best, (lambdas, classes); the share of questions with a
        passage of the classes ``good`` among them, (lambdas,); and how many questions there are.

        A question without texts for this form is left out.
        """
        height, slope, classes, passages = _padded(self, place.set, place.form, place.mimic)
        shares = np.zeros((len(lambdas), len(CLASSES)))
        found = np.zeros(len(lambdas))
        counted = [CLASSES.index(name) for name in good]
        for i, lam in enumerate(lambdas):
            top = order_at(height, slope, float(lam), place.k, passages)
            of_top = np.take_along_axis(classes, top, axis=1)
            shares[i] = [(of_top == c).mean() for c in range(len(CLASSES))]
            found[i] = np.isin(of_top, counted).any(axis=1).mean()
        return shares, found, len(height)


@cache
def _padded(explored: Explored, name: str, form: Form, mimic: Mimic) -> tuple[np.ndarray, ...]:
    """Heights, slopes, classes and passages of a set, each (questions, most passages)."""
    asked = [q for q in explored.of(name) if (form, mimic) in explored.choices_of(q)]
    shape = len(asked), max(question["length"] for question in asked)
    height, slope = np.full(shape, np.nan), np.zeros(shape)
    classes, passages = np.full(shape, -1), np.zeros(shape, np.int64)
    for row, question in enumerate(asked):
        here = slice(0, question["length"])
        records = explored.records_of(question)
        height[row, here], slope[row, here] = explored.lines(question, form, mimic)
        classes[row, here] = records["class"]
        passages[row, here] = records["passage"]
    return height, slope, classes, passages


# files -------------------------------------------------------------------------------------------


def read_rows() -> Explored:
    """What is committed; StaleInput, with the command that makes it, where a file is not whole."""
    broken = [paths.shown(FOLDER / name) for name in FILES if read_manifest(FOLDER / name) is None]
    if broken:
        raise StaleInput(
            f"{', '.join(broken)}: missing, or not what the manifest says; run: git checkout "
            "data/explorer, or with the open data: make explorer"
        )
    scores, asked, texts = (FOLDER / name for name in FILES)
    head, *questions = read_jsonl(asked)
    records = np.load(scores, allow_pickle=False)
    return Explored(head["sets"], questions, list(read_jsonl(texts)), records)


def begins(text: str, letters: int) -> str:
    """How a text begins: at most so many letters, of whole words, then "…"; nothing for 0."""
    if len(text) <= letters:
        return text
    return text[:letters].rsplit(" ", 1)[0] + " …" if letters else ""
