"""The colour of everything that figures show: one table, one colour for one thing everywhere.

Okabe and Ito's colours, and Tol's: what stands together in a figure can be told apart by
colour-blind readers. H+ alone is black; a colour may return in another family of figures only.
"""

from __future__ import annotations

from collections.abc import Iterable

from lib.methods import METHODS

__all__ = ["COLOURS", "GREY", "SETS", "colour_of", "in_order"]

GREY, _BLUE, _WINE, _CHR, _TURNED = "#999999", "#0072B2", "#882255", "#D55E00", "#332288"
COLOURS = {
    "chr, given λ": "#F4A582",
    "chr, matched rotation": _TURNED,
    "matched rotation": _TURNED,
    "nearest": _CHR,
    "CHR, one mimic": _CHR,
    "by name": "#AA4499",
    "middle": "#7F7FFF",
    "random": GREY,
    "no copied text": "#88CCEE",
    "question added": _BLUE,
    "pool of 100": "#56B4E9",
    "margin (L4)": "#225555",
    "mean of 5 mimics": "#C9B458",
    "maximum of 5": "#661100",
    "target": _BLUE,
    "both": "#56B4E9",
    "mimic": _WINE,
    "neither": GREY,
    "SUPPORTED": _BLUE,
    "AGAINST": _WINE,
    "p < 0.05 (Holm)": "#225555",
}
"""By name: mimics and forms of contrast, classes of passages, what a test says. A method brings its
own colour."""
SETS = {"mmlu": "#44AA99", "medqa": "#B8860B", "bioasq": "#117733", "ddx-real": "#77AADD"}
"""Question sets in the paper's order, by the last word of their name."""
_OTHERS = ("#228833", "#4477AA", "#CCBB44", "#AA3377", "#66CCEE", "#EE6677")


def colour_of(name: str, place: int = 0) -> str:
    """The colour of whatever has one; of anything else, one by its ``place`` in the figure.

    A method brings its own colour; one that brings none is coloured by its place.
    """
    of_method = getattr(METHODS.get(name), "colour", "")
    of_set = SETS.get(name.lower().split()[-1], _OTHERS[place % len(_OTHERS)])
    return COLOURS.get(name) or of_method or of_set


def in_order(names: Iterable[str]) -> list[str]:
    """Names of question sets without repetition: in the order of ``SETS``, then any others."""
    return sorted(sorted(set(names)), key=lambda x: [x.endswith(s) for s in SETS], reverse=True)
