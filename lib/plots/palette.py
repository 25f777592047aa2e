"""The colour of everything that figures show, by key: one thing has one colour everywhere.

Okabe and Ito's colours, and Tol's: what stands together in a figure can be told apart by
colour-blind readers. H+ alone is black; a colour may return in another family of figures only.
"""

from __future__ import annotations

from collections.abc import Iterable

from lib.methods import METHODS

__all__ = ["COLOURS", "GREY", "SETS", "colour_of", "in_order"]

GREY, _BLUE, _WINE = "#999999", "#0072B2", "#882255"
_OWN = {
    # Arms, and families of arms over lambda.
    "chr_given": "#F4A582",
    "chr+rotation": "#332288",
    "chr+stranger": "#997700",
    "chr+middle": "#7F7FFF",
    "chr+by_name": "#AA4499",
    "chr+question1": _BLUE,
    "chr+pool100": "#56B4E9",
    "chr+centred": "#66AA55",
    "margin": "#225555",
    "mean": "#C9B458",
    "max": "#661100",
    "random": GREY,
    "question": "#6699CC",
    # Parts of a test set.
    "copied text left out": "#88CCEE",
    "shared documents left out": "#E69F00",
    "doubtful targets left out": "#44AA99",
    "known errors left out": "#009E73",
    "hardest tenth": "#CC3311",
    # Classes of passages.
    "target": _BLUE,
    "both": "#56B4E9",
    "mimic": _WINE,
    "neither": GREY,
    # What a test says. What was not declared before it was looked at is grey: nothing is concluded.
    "SUPPORTED": _BLUE,
    "AGAINST": _WINE,
    "p < 0.05 (Holm)": "#225555",
}
_OF_METHODS = {name: getattr(method, "colour", "") for name, method in METHODS.items()}
COLOURS = {name: colour for name, colour in _OF_METHODS.items() if colour} | _OWN
"""By key: methods (each brings its own), arms, parts of a set, classes of passages, verdicts."""

SETS = {
    "mmlu": "#44AA99",
    "medqa": "#B8860B",
    "bioasq": "#117733",
    "ddx-real": "#77AADD",
    "ddx-fresh": "#CC6677",
}
"""Question sets in the paper's order, by the last word of their name."""
_OTHERS = ("#228833", "#4477AA", "#CCBB44", "#AA3377", "#66CCEE", "#EE6677")


def colour_of(key: str, place: int = 0) -> str:
    """The colour of a key; of whatever has none, one by its ``place`` in the figure.

    An arm has the colour of its family, whatever its lambda.
    """
    family = key.partition("@")[0]
    if family in COLOURS:
        return COLOURS[family]
    of_method = getattr(METHODS.get(family), "colour", "")  # one registered since this was read
    if of_method:
        return of_method
    return SETS.get(key.lower().split()[-1], _OTHERS[place % len(_OTHERS)])


def in_order(names: Iterable[str]) -> list[str]:
    """Names of question sets without repetition: in the order of ``SETS``, then any others."""
    return sorted(sorted(set(names)), key=lambda x: [x.endswith(s) for s in SETS], reverse=True)
