"""What figures and pages call things: the one place where a key of a table becomes words.

Keys are made by ``lib.studies.lam.arms`` (``chr+rotation@1``), by the grid (``closed_book``) and by
``lib.methods`` (``hyde``). Tables hold keys; whatever is shown to a reader goes through here.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pandas as pd

from lib.methods import METHODS

_WHOLE = {
    "chr+rotation": "matched rotation",
    "chr+stranger": "another question's mimic",
    "chr_given": "CHR, given λ",
    "bm25": "BM25",
    "rrf": "dense and BM25, fused",
    "fusion": "HyDE, fused",
    "random": "random passages",
    "question": "the question alone",
    "closed_book": "closed book",
    "hypotheses_as_context": "H+ and H− as the passages",
    "hplus_as_passage": "H+ as the only passage",
    "named_option": "the option that H+ names",
    "majority": "always the commonest letter",
    "asked_dense": "the description, dense",
    "asked_bm25": "the description, BM25",
    "asked_rrf": "the description, both fused",
    "noise floor": "HyDE and itself",
    "hyde-options": "HyDE that saw the options",
    "rationale": "a rationale that saw the options",
    "hplus-stem": "H+ alone, options unseen",
    "hplus+hplus-stem": "H+ and an H+ with options unseen",
    "hplus+hyde": "H+ and HyDE's passages",
    "chr-stem": "CHR, options unseen",
}
"""Keys that are called something of their own, whatever they are put together from."""

_FORMS = {
    "chr": "CHR",
    "hplus": "H+",
    "mean": "mean of several mimics",
    "max": "maximum of several mimics",
    "softmax": "softmax of several mimics",
    "margin": "margin for each passage",
    "lda": "LDA contrast",
    "csls": "CSLS, no mimic",
    "lexical": "contrast of words",
    "fused": "vectors and words fused",
}
"""The form of a contrast: what stands first in a key."""

_MORE: dict[str, Callable[[str], str]] = {
    "middle": lambda _: "a mimic of ranks 10 to 50",
    "by_name": lambda _: "the mimic by name",
    "several": lambda _: "several mimics",
    "stranger": lambda _: "another question's mimic",
    "rotation": lambda _: "matched rotation",
    "pool": lambda number: f"pool of {number}",
    "question": lambda weight: "question added" + (f" {weight} times" if weight != "1" else ""),
    "centred": lambda _: "centred",
    "white": lambda rho: f"whitened, ρ = {rho}",
    "shrink": lambda rho: f"ρ = {rho}",
    "tau": lambda tau: f"τ = {tau}",
    "margin": lambda margin: f"m = {margin}",
    "exchanged": lambda share: f"{float(share):.0%} of the pairs exchanged".replace("%", " %"),
}
"""What else a key says after each "+", given its number."""

_PARAMETERS = {"lambda": "λ", "lambda_max": "λ at most", "gamma": "γ", "rho": "ρ", "c0": "c0"}


def label_of(key: str) -> str:
    """The words for an arm, a family of arms, a method or a row of a table.

    ``chr@0.4`` is "CHR, λ = 0.4", ``hplus`` is "H+ alone". What is no key, such as the name of a
    question set or of a form, is returned as it is.
    """
    family, _, rest = key.partition("@")
    at, _, aside = rest.partition("+")
    words = [_family(family)]
    if not words[0]:
        return key
    if at:
        words.append(_lambda(at))
    if aside:
        words.append(_said(aside))
    return ", ".join(words)


def pair_label(arm: str, against: str) -> str:
    """The words for a comparison of two arms."""
    return f"{label_of(arm)} against {label_of(against)}"


def with_labels(table: pd.DataFrame) -> pd.DataFrame:
    """The table with a first column ``label``: what a reader calls each row.

    Rows that compare ``arm`` with ``against`` are called by both; else by ``arm``, ``family`` or
    ``method``, whichever the table has. ValueError if it has none of them.
    """
    if {"arm", "against"} <= set(table.columns):
        pairs = zip(table["arm"], table["against"], strict=True)
        labels = [pair_label(arm, against) for arm, against in pairs]
    else:
        keys = [column for column in ("arm", "family", "method") if column in table]
        if not keys:
            raise ValueError("nothing to call the rows by: no column arm, family or method")
        labels = [label_of(key) for key in table[keys[0]]]
    labelled = table.drop(columns="label", errors="ignore")
    labelled.insert(0, "label", labels)
    return labelled


def grid_label(method: str, lam: float) -> str:
    """The words for a row of the grid, with its lambda: ``chr_given`` is CHR at the reader's."""
    if method == "chr_given":
        return f"CHR, λ = {lam:g} (yours)"
    return label_of(f"{method}@1" if method in _AT_ONE else method)


_AT_ONE = ("chr", "chr+rotation", "chr+stranger")
"""Rows of the grid that are searched at the paper's lambda, 1."""


def _family(family: str) -> str:
    """The words for a key without its lambda, "" where it is none."""
    if family in _WHOLE:
        return _WHOLE[family]
    form, *more = family.split("+")
    if form not in _FORMS:
        # A method that somebody adds brings its name; without one its key is its name.
        return getattr(METHODS.get(family), "paper_name", "") or (
            family if family in METHODS else ""
        )
    first = _FORMS[form]
    if form == "hplus" and all(part.startswith("exchanged") for part in more):
        first = "H+ alone"
    return ", ".join([first, *map(_said, more)])


def _said(part: str) -> str:
    """The words for one part of a key, such as pool100; a part without words is its own."""
    found = re.fullmatch(r"([a-z_]+)([\d.]*)", part)
    if found is None or found[1] not in _MORE:
        # A mimic may be of any kind that its benchmark names.
        return part.replace("_", " ")
    return _MORE[found[1]](found[2])


def _lambda(at: str) -> str:
    """The words for a fixed lambda, or for the rule that finds one for each question."""
    if re.fullmatch(r"-?[\d.]+", at):
        return f"λ = {at}"
    name, _, settings = at.partition(" (")
    if not settings:
        return at
    told = []
    for setting in settings.rstrip(")").split(", "):
        parameter, _, value = setting.partition("=")
        told.append(f"{_PARAMETERS.get(parameter, parameter)} = {float(value):.3g}")
    return f"{name} ({', '.join(told)})"
