"""The explorer's essay in four steps: what is said at each, in a notebook as on the page.

``steps.json`` has the texts. In braces is what is counted: ``{right own 1}`` is how many of the k
first passages are right at lambda 1 with the question's own mimic, ``{share random here}`` how many
of the set's questions have a right passage at the place's lambda with another question's.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from lib.explorer.rows import CLASSES, GOOD, Explored, Place

STEPS = json.loads(Path(__file__).with_name("steps.json").read_text(encoding="utf-8"))
UNSEEN = "not judged"


def said(explored: Explored, place: Place, step: str) -> str:
    """What a step (a key of ``STEPS``) says at a place."""
    at = {lam for lam in (-1, 0, 1, 2) if abs(place.lam - lam) < 0.005}
    own = (place.form, place.mimic) == ("one mimic", "own")
    told = {
        "predict": "ask" if 0 in at else "late",
        "drag": "told" if own and 1 in at else "ask",
        "swap": {"random": "told", "rotation": "turned"}.get(place.mimic, "ask"),
        "ends": "added" if own and -1 in at else "twice" if own and 2 in at else "ask",
    }
    return STEPS[step][told[step]].format_map(_Counted(explored, place))


class _Counted(dict):
    """What is in the braces of a text."""

    def __init__(self, explored: Explored, place: Place):
        self.explored, self.place = explored, replace(place, form="one mimic", mimic="own")
        before, after = explored.rights(self.place, (0.0, 1.0))
        verdict = "More" if after > before else "Fewer" if after < before else "As many"
        means = explored.set_named(place.set)["means"]["right"]
        n = len(explored.of(place.set))
        super().__init__(verdict=verdict, means=means, n=n, guess="")

    def _likewise(self) -> str:
        """Whether adding and subtracting do to this question what they do to the set."""
        added, subtracted = self.explored.rights(self.place, (-1.0, 1.0))
        _, (all_added, all_subtracted), _ = self.explored.shares(self.place, (-1.0, 1.0))
        if added == subtracted:
            return "both keep as many"
        same = (added > subtracted) == (all_added > all_subtracted)
        return "it is the same" if same else "it is the other way round"

    def __missing__(self, key: str) -> str:
        if key == "likewise":
            return self._likewise()
        what, mimic, at = key.split()
        lam = self.place.lam if at == "here" else float(at)
        count = {"right": right, "share": share}[what]
        return count(self.explored, replace(self.place, mimic=mimic, lam=lam))


def right(explored: Explored, place: Place) -> str:
    """How many of the k best are right; and how many nobody has judged, where some have been."""
    classes = [passage["class"] for passage in explored.list_at(place)]
    unseen = classes.count(UNSEEN) if explored.set_named(place.set)["judged_at"] else 0
    of_k = f"{sum(name in GOOD for name in classes)} of {place.k}"
    return f"{of_k} ({unseen} {UNSEEN})" if unseen else of_k


def could(explored: Explored, place: Place) -> tuple[str, ...]:
    """The classes that may be right: what nobody has judged, too, where judging was by lambda."""
    return (*GOOD, UNSEEN) if explored.set_named(place.set)["judged_at"] else GOOD


def share(explored: Explored, place: Place) -> str:
    """How many questions of the set have a right passage among the k best, in per cent: at least so
    many, where that hangs on passages that nobody has judged."""
    (of_classes,), (found,), _ = explored.shares(place, [place.lam])
    _, (at_most,), _ = explored.shares(place, [place.lam], could(explored, place))
    low, high = f"{100 * found:.0f} %", f"{100 * at_most:.0f} %"
    most = "most" if of_classes[CLASSES.index(UNSEEN)] > 0.5 else "some"
    return low if low == high else f"at least {low} ({most} passages {UNSEEN})"
