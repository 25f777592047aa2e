"""The exercises of notebook 17: whether an answer is right.

No answer is stored. What is right is worked out from what the notebook gives an exercise, with the
functions that the project itself uses, so an exercise can be done on another question too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from lib.base.parameters import one_of
from lib.explorer.rows import Explored, Place
from lib.search.contrast import cosine, shifted_query
from lib.stats import judged, mcnemar_p, mean_interval


@dataclass(frozen=True)
class Exercise:
    """``truth`` works out what is right; a number may be off by ``within``; a wrong answer is shown
    the ``hint``."""

    truth: Callable[..., Any]
    hint: str
    within: float = 0.0


def _turn(h_plus: np.ndarray, h_minus: np.ndarray, lam: float) -> float:
    """Degrees between h+ and h+ - lambda h-, from the two vectors and no formula for the turn."""
    query = shifted_query(h_plus[None], h_minus[None], lam)
    return float(np.degrees(np.arccos(cosine(h_plus[None], query / np.linalg.norm(query))[0])))


def _right(explored: Explored, place: Place) -> int:
    """How many of the first passages are right, at the place's lambda."""
    return explored.rights(place, [place.lam])[0]


def _scores(plus: Sequence[float], minus: Sequence[float], lam: float) -> np.ndarray:
    """S(d) of some passages."""
    return np.asarray(plus) - lam * np.asarray(minus)


def _first_change(explored: Explored, place: Place) -> float:
    """The smallest lambda above 0 at which the first passages are no longer the same set."""
    return next(at for at in explored.changes(place) if at > 0)


def _steps(shares: Sequence[float]) -> np.ndarray:
    """Points lost from each share to the next."""
    return -100 * np.diff(shares)


def _verdicts(tests: pd.DataFrame) -> list[str]:
    """The verdict of each row, had its arm been expected to be the better one."""
    return judged(tests).tolist()


def _paired(first: pd.Series, second: pd.Series) -> tuple[float, float, float]:
    """McNemar's exact p of two columns of 0 and 1, and the ends of the difference's interval."""
    difference = (first - second).to_numpy()
    _, low, high = mean_interval(difference)
    return mcnemar_p(int((difference > 0).sum()), int((difference < 0).sum())), low, high


def _largest_mean(printed: Sequence[float]) -> float:
    """The largest mean of numbers that were rounded to one decimal."""
    return float(np.mean(np.asarray(printed) + 0.05))


EXERCISES = {
    "turn": Exercise(
        _turn,
        "Write h− = c·h+ + √(1 − c²)·u, with u at right angles to h+. How much of h+ − λh− lies "
        "along h+, and how much along u? The answer is in degrees.",
        within=0.5,
    ),
    "predict": Exercise(
        _right,
        "explored.list_at(mini) has the first five at λ = 1. Count those whose class is right or "
        "both.",
    ),
    "score": Exercise(
        _scores,
        "S(d) = cos(d, H+) − λ·cos(d, H−), for each row of the table, in its order.",
        within=0.005,
    ),
    "change": Exercise(
        _first_change,
        "Two passages change places where their lines cross: λ = (difference of their cosines "
        "with H+) / (difference of their cosines with H−). Which crossing of one of the first five "
        "with a passage outside comes first?",
        within=0.011,
    ),
    "mimics": Exercise(
        _steps,
        "Subtract each row of the table from the one above it. Three numbers, in points: "
        "0.50 to 0.40 is 10.",
        within=0.06,
    ),
    "verdicts": Exercise(
        _verdicts,
        "First p: from 0.05 on, chance could explain it, and the word is INCONCLUSIVE. Below that "
        "look on which side of 0 the interval lies. CHR was expected to be better.",
    ),
    "paired": Exercise(
        _paired,
        "Only questions count on which the two columns differ. p: how often does a fair coin part "
        "them at least so unevenly, on either side? Interval: draw questions with replacement, "
        "take the mean of first − second each time, and of these means the 2.5th and 97.5th "
        "percentile. Shares, not percent.",
        within=0.01,
    ),
    "average": Exercise(
        _largest_mean,
        "A printed 87.7 was at most 87.75 before it was rounded. Take the mean of the largest "
        "values.",
        within=0.005,
    ),
}
"""By name, in the order of the notebook."""


def check(name: str, answer: Any, **given: Any) -> None:
    """Print whether an answer is right, with a hint where it is not; None is not answered yet.

    ``given`` is what the notebook gives the exercise. ValueError for a name that there is not.
    """
    exercise = one_of("no exercise", name, EXERCISES)
    parts = answer if isinstance(answer, list | tuple) else [answer]
    if any(part is None for part in parts):
        print("Not answered yet.")
    elif _agrees(answer, exercise.truth(**given), exercise.within):
        print("Right.")
    else:
        print(f"Not yet. {exercise.hint}")


def _agrees(answer: Any, truth: Any, within: float) -> bool:
    """Whether an answer is the truth: words but for their capitals, numbers but for ``within``."""
    wanted = np.asarray(truth)
    try:
        given = np.asarray(answer, dtype=str if wanted.dtype.kind == "U" else float)
    except (TypeError, ValueError):  # words where a number is asked for, or lists of other lengths
        return False
    if given.shape != wanted.shape:
        return False
    if wanted.dtype.kind == "U":
        return [word.strip().upper() for word in given.tolist()] == wanted.tolist()
    return np.allclose(given, wanted, rtol=0, atol=within + 1e-9)
