"""What the explorer shows: one question at one lambda, and a whole set over lambda.

Everything is worked out from the committed rows, exactly, for any lambda in [0, 2].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from lib.explorer.lines import LAM_MAX, Form, Mimic, breakpoints, lines_of, order_at
from lib.explorer.rows import CLASSES, DEPTH, Explored
from lib.search.contrast import rotation

STARTS: Mapping[Form, str] = {
    "one mimic": "H+ alone",
    "question added": "H+, question added",
    "several mimics": "H+ alone",
}
"""What the search with lambda 0 is called, by form."""

GOOD = ("right", "both")
"""Classes that count as found: P@k of ddx and BioASQ, support for the right option on exams."""


@dataclass(frozen=True)
class Place:
    """Where a reader is: a question of a set, a form, a mimic, a lambda and how many passages."""

    set: str
    qid: str
    form: Form = "one mimic"
    mimic: Mimic = "own"
    lam: float = 1.0
    k: int = 5


@dataclass(frozen=True)
class Seen:
    """One ranked list. ``records`` are places among the question's records, best first; ``scores``
    are S(d), ``classes`` names of ``CLASSES``; ``passages`` as they are kept."""

    records: Sequence[int]
    scores: Sequence[float]
    classes: Sequence[str]
    passages: Sequence[Mapping]


@dataclass
class View:
    """Looks into explored rows; what is worked out for a whole set is kept."""

    explored: Explored
    _padded: dict = field(default_factory=dict, repr=False)
    _over: dict = field(default_factory=dict, repr=False)

    @cached_property
    def sets(self) -> dict[str, Mapping]:
        """The sets by name, in order."""
        return {some["name"]: some for some in self.explored.sets}

    @cached_property
    def questions(self) -> dict[tuple[str, str], Mapping]:
        """The questions by set and id, in order."""
        return {(q["set"], q["qid"]): q for q in self.explored.questions}

    def start(self, name: str, **changes) -> Place:
        """A set's median question at the paper's lambda, 1."""
        return replace(Place(name, median_question(self, name)), **changes)

    def question(self, place: Place) -> Mapping:
        """The question of a place; KeyError where there is none."""
        return self.questions[place.set, place.qid]

    def list_at(self, place: Place, lam: float | None = None) -> Seen:
        """The k best at the place's lambda, or at another.

        ValueError for a k above ``DEPTH`` or a lambda outside [0, 2]: the rows hold no more.
        """
        at = place.lam if lam is None else lam
        if not 1 <= place.k <= DEPTH:
            raise ValueError(f"k is {place.k}: the rows hold the exact top {DEPTH} and no more")
        if not 0 <= at <= LAM_MAX:
            raise ValueError(f"lambda is {at}: the rows hold the order from 0 to {LAM_MAX:g}")
        records = self.explored.records_of(self.question(place))
        height, slope = self._lines(place)
        ranks = self.explored.order[records["passage"]]
        top = order_at(height, slope, at, min(place.k, len(records)), ranks)
        score = (height - at * slope)[top]
        return Seen(
            top.tolist(),
            score.tolist(),
            [CLASSES[i] for i in records["class"][top]],
            [self.explored.passages[i] for i in records["passage"][top]],
        )

    def rights(self, place: Place, lambdas: Sequence[float]) -> list[int]:
        """How many of the k best are of ``GOOD``, at each lambda."""
        lists = (self.list_at(place, lam) for lam in lambdas)
        return [sum(one in GOOD for one in seen.classes) for seen in lists]

    def changes(self, place: Place) -> list[float]:
        """Every lambda at which the set of the k best changes, exactly, in order."""
        return breakpoints(*self._lines(place), place.k)

    def turn(self, place: Place) -> tuple[float, float] | None:
        """cos(h+, h-) and the degrees by which the query has turned; None where it is no single
        vector in their plane: with the question added, or with several mimics."""
        if place.form != "one mimic":
            return None
        question = self.question(place)
        c = question["c_random" if place.mimic == "random" else "c_own"]
        return c, float(rotation(c, place.lam))

    def _lines(self, place: Place) -> tuple[np.ndarray, np.ndarray]:
        question = self.question(place)
        scores = self.explored.records_of(question)["score"]
        cosines = question["c_own"], question["c_random"]
        return lines_of(scores, place.form, place.mimic, *cosines)

    # a whole set ---------------------------------------------------------------------------------

    def shares(self, place: Place, lambdas: Sequence[float]) -> tuple[np.ndarray, np.ndarray, int]:
        """Of all questions of the set under the place's form and mimic, at each lambda: the mean
        share of each class among the k best, (lambdas, classes); the share of questions with a
        passage of ``GOOD`` among them, (lambdas,); and how many questions there are.

        A question without texts for this form is left out.
        """
        height, slope, classes, ranks = self._set(place)
        shares = np.zeros((len(lambdas), len(CLASSES)))
        found = np.zeros(len(lambdas))
        good = [CLASSES.index(name) for name in GOOD]
        for i, lam in enumerate(lambdas):
            top = order_at(height, slope, float(lam), place.k, ranks)
            of_top = np.take_along_axis(classes, top, axis=1)
            shares[i] = [(of_top == c).mean() for c in range(len(CLASSES))]
            found[i] = np.isin(of_top, good).any(axis=1).mean()
        return shares, found, len(height)

    def over_lambda(self, place: Place) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
        """Lambdas from 0 to 2 and ``shares`` there; worked out once for each set and form."""
        key = place.set, place.form, place.mimic, place.k
        if key not in self._over:
            lambdas = np.linspace(0, LAM_MAX, 41)
            self._over[key] = (lambdas, *self.shares(place, lambdas))
        return self._over[key]

    def _set(self, place: Place) -> tuple[np.ndarray, ...]:
        """Heights, slopes, classes and ranks of a set, each (questions, most passages)."""
        key = place.set, place.form, place.mimic
        if key not in self._padded:
            choice = place.form, place.mimic
            own = self.explored.of(place.set)
            asked = [q for q in own if choice in self.explored.choices_of(q)]
            if not asked:
                raise ValueError(f"{place.set} has no texts for {place.form}, {place.mimic}")
            shape = len(asked), max(q["length"] for q in asked)
            height, slope = np.full(shape, np.nan), np.zeros(shape)
            classes, ranks = np.full(shape, -1), np.zeros(shape, np.int64)
            for row, question in enumerate(asked):
                here = slice(0, question["length"])
                records = self.explored.records_of(question)
                lines = self._lines(replace(place, qid=question["qid"]))
                height[row, here], slope[row, here] = lines
                classes[row, here] = records["class"]
                ranks[row, here] = self.explored.order[records["passage"]]
            self._padded[key] = height, slope, classes, ranks
        return self._padded[key]


def median_question(view: View, name: str, k: int = 5) -> str:
    """The question of a set that is shown first, by a rule that looks at nothing else.

    Of the questions for which H+ alone has a passage of ``GOOD`` among its k best, in the order of
    how many such passages are lost at lambda 1, then of how many there were, then of their ids: the
    one in the middle. Where H+ alone finds none for any question, the first question.
    """
    ordered = []
    for question in view.explored.of(name):
        place = Place(name, question["qid"], k=k)
        if (place.form, place.mimic) not in view.explored.choices_of(question):
            continue
        before, after = view.rights(place, (0.0, 1.0))
        if before:
            ordered.append((after - before, before, question["qid"]))
    if not ordered:
        return view.explored.of(name)[0]["qid"]
    return sorted(ordered)[(len(ordered) - 1) // 2][2]
