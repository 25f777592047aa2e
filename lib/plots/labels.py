"""What figures and tables call things, in which colour and order: the rows of labels.csv.

Tables hold keys: of arms (``chr+rotation@1``), of the main tables (``closed_book``), of methods
(``hyde``). Whatever a reader sees goes through here. One thing has one colour everywhere; the
colours are Okabe and Ito's and Tol's, so that what stands together can be told apart by
colour-blind readers.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from itertools import cycle
from pathlib import Path

import pandas as pd

with open(Path(__file__).with_name("labels.csv"), encoding="utf-8", newline="") as _file:
    LABELS = list(csv.DictReader(_file))
"""Rows of kind, key, label and colour. Rows of one kind are in the order in which they are drawn;
an arm without a label is named after its parts, and what has no row here is called by its key."""

GREY = "#999999"
_OTHER_COLOURS = ("#228833", "#4477AA", "#CCBB44", "#AA3377", "#66CCEE", "#EE6677")


def names_of(*kinds: str) -> dict[str, str]:
    """The labels of some kinds by key, in their order; a key without a label is its own."""
    rows = [row for row in LABELS if row["kind"] in kinds]
    return {row["key"]: row["label"] or row["key"] for row in rows}


def colours_of(*kinds: str) -> dict[str, str]:
    """The colours of some kinds, by key."""
    rows = [row for row in LABELS if row["kind"] in kinds]
    return {row["key"]: row["colour"] for row in rows if row["colour"]}


_WHOLE = {row["key"]: row["label"] for row in LABELS if row["kind"] in ("arm", "other")}
_FORMS, _PARTS, _PARAMETERS = (names_of(kind) for kind in ("form", "part", "parameter"))
ARMS = tuple(names_of("arm"))
"""What is searched with, in the order of every figure; others follow as they come."""
SETS = colours_of("set")
"""Colours of question sets in the paper's order, by the last word of their name."""
COLOURS = colours_of("arm", "other", "series")
"""By key: methods and other arms, parts of a set, classes of passages, verdicts."""
_AT_ONE = ("chr", "chr+rotation", "chr+stranger")
"""Rows of the main tables that are searched at the paper's lambda, 1."""


def label_of(key: str) -> str:
    """The words for an arm, a family of arms, a method or a row of a table.

    ``chr@0.4`` is "CHR, λ = 0.4", ``hplus`` is "H+ alone". What is no key, such as the name of a
    question set or of a form, is returned as it is.
    """
    family, _, rest = key.partition("@")
    at, _, aside = rest.partition("+")
    first = _family_label(family)
    if not first:
        return key
    others = [_lambda_label(at)] if at else []
    if aside:
        others.append(_part_label(aside))
    return ", ".join([first, *others])


def with_labels(table: pd.DataFrame) -> pd.DataFrame:
    """The table with a first column ``label``: what a reader calls each row.

    Rows that compare ``arm`` with ``baseline`` are called by both; else by ``arm``, ``family`` or
    ``method``, whichever the table has. ValueError if it has none of them.
    """
    if {"arm", "baseline"} <= set(table.columns):
        pairs = zip(table["arm"], table["baseline"], strict=True)
        labels = [f"{label_of(arm)} against {label_of(other)}" for arm, other in pairs]
    else:
        keys = [column for column in ("arm", "family", "method") if column in table]
        if not keys:
            raise ValueError("nothing to call the rows by: no column arm, family or method")
        labels = [label_of(key) for key in table[keys[0]]]
    labelled = table.drop(columns="label", errors="ignore")
    labelled.insert(0, "label", labels)
    return labelled


def method_label(method: str, lam: float) -> str:
    """The words for a row of the main tables: ``chr_given`` is CHR at the reader's ``lam``."""
    if method == "chr_given":
        return f"CHR, λ = {lam:g} (yours)"
    return label_of(f"{method}@1" if method in _AT_ONE else method)


def colour_of(key: str, place: int = 0) -> str:
    """The colour of a key; of whatever has none, one by its ``place`` in the figure.

    An arm has the colour of its family, whatever its lambda.
    """
    own = COLOURS.get(key.partition("@")[0])
    return own or SETS.get(
        key.lower().rpartition(" ")[2], _OTHER_COLOURS[place % len(_OTHER_COLOURS)]
    )


def method_colours(methods: Iterable[str]) -> dict[str, str]:
    """A colour for each row of the main tables, by key.

    A row of labels.csv without a colour is grey. What has no row there, such as a method of your
    own, has a colour that no row has.
    """
    known = {row["key"] for row in LABELS}
    methods = list(dict.fromkeys(methods))
    others = [name for name in methods if name not in known]
    own = dict(zip(others, cycle(_OTHER_COLOURS), strict=False))
    return {name: COLOURS.get(name, GREY) for name in methods} | own


def in_order(names: Iterable[str]) -> list[str]:
    """Names of question sets without repetition: in the order of ``SETS``, then any others."""
    rest = sorted(set(names))
    known = [name for one in SETS for name in rest if name.endswith(one)]
    return known + [name for name in rest if name not in known]


def in_order_of_arms(names: Iterable[str]) -> list[str]:
    """Names without repetition, those of ``ARMS`` first, the others as they come."""
    present = list(dict.fromkeys(names))
    known = [name for name in ARMS if name in present]
    return known + [name for name in present if name not in known]


def named_rows(table: pd.DataFrame, column: str, kind: str) -> pd.DataFrame:
    """The rows whose ``column`` has a label of this kind, in its order, with ``row`` and colour."""
    names = names_of(kind)
    order = list(names)
    rows = table[table[column].isin(order)]
    rows = rows.sort_values(column, key=lambda keys: keys.map(order.index), kind="stable")
    return rows.assign(row=rows[column].map(names), colour=rows[column].map(colours_of(kind)))


def arms_in_order(table: pd.DataFrame) -> pd.DataFrame:
    """The rows in the order of all figures: by the family of their ``arm``, then by lambda."""
    parts = table["arm"].str.partition("@")
    families = in_order_of_arms(parts[0])
    order = pd.DataFrame(
        {"family": parts[0].map(families.index), "lam": pd.to_numeric(parts[2], errors="coerce")}
    )
    return table.loc[order.fillna(0).sort_values(["family", "lam"], kind="stable").index]


def _family_label(family: str) -> str:
    """The words for a key without its lambda, "" where it is none."""
    if _WHOLE.get(family):
        return _WHOLE[family]
    form, *parts = family.split("+")
    if form not in _FORMS:
        return ""
    exchanged_only = all(part.startswith("exchanged") for part in parts)
    first = "H+ alone" if form == "hplus" and exchanged_only else _FORMS[form]
    return ", ".join([first, *map(_part_label, parts)])


def _part_label(part: str) -> str:
    """The words for one part of a key, such as pool100; a part without words is its own."""
    if part in _PARTS:
        return _PARTS[part]
    named = re.fullmatch(r"([a-z_]+)([\d.]*)", part)
    if named is None or named[1] not in _PARTS:
        # A mimic may be of any kind that its benchmark names.
        return part.replace("_", " ")
    number = named[2]
    if named[1] == "exchanged":
        number = f"{float(number):.0%}".replace("%", " %")
    return _PARTS[named[1]].format(number)


def _lambda_label(at: str) -> str:
    """The words for a fixed lambda, or for the rule that finds one for each question."""
    if re.fullmatch(r"-?[\d.]+", at):
        return f"λ = {at}"
    name, _, settings = at.partition(" (")
    if not settings:
        return at
    shown = []
    for setting in settings.rstrip(")").split(", "):
        parameter, _, value = setting.partition("=")
        shown.append(f"{_PARAMETERS.get(parameter, parameter)} = {float(value):.3g}")
    return f"{name} ({', '.join(shown)})"
