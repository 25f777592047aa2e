"""The colour of everything that figures show, by key: one thing has one colour everywhere.

Okabe and Ito's colours, and Tol's: what stands together in a figure can be told apart by
colour-blind readers. H+ alone is black; a colour may return in another family of figures only.
"""

from __future__ import annotations

from collections.abc import Iterable

from lib.methods import METHODS

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
    "one passage alone": _WINE,
    # Contrast at a lambda, where a line is one.
    "λ = 0": "#000000",
    "λ = 1": "#D55E00",
    # What a reader is asked to answer from.
    "all questions": "#000000",
    "a target was found": _BLUE,
    "none was found": _WINE,
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
    "on the topic": "#DDCC77",
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


ARMS = (
    "asked_dense",
    "asked_bm25",
    "asked_rrf",
    "question",
    "standard",
    "bm25",
    "rrf",
    "hyde",
    "query2doc",
    "csqe",
    "thinkqe",
    "fusion",
    "hplus",
    "chr",
    "chr_given",
    "chr+rotation",
    "chr+stranger",
    "chr+by_name",
    "chr+middle",
    "chr+question1",
    "chr+pool100",
    "margin",
    "chr+centred",
    "mean",
    "max",
)
"""What is searched with, in the order of every figure; others follow as they come."""


def in_order_of_arms(names: Iterable[str], given: Iterable[str] = ()) -> list[str]:
    """Names without repetition, those of ``ARMS`` first, the others as they are ``given``."""
    wanted = set(names)
    known = [name for name in ARMS if name in wanted]
    return known + [name for name in dict.fromkeys([*given, *names]) if name in wanted - set(known)]
