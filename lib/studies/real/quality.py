"""Is the judge an instrument? Agreement of passes, control items, and sets of known truth.

Everything here is read before any result. No verdict is given on judged evidence unless kappa of
*supports* is at least ``LEAST_KAPPA``, and errors on control items, the counterfactuals among them,
are at most ``MOST_ERRORS``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lib.base.files import read_jsonl
from lib.base.paths import DATA
from lib.benchmarks import ddx_mini
from lib.data.judgments import HELPFUL, read_judgments
from lib.data.store import PassageStore
from lib.datasets import Question, Split, load_questions, load_real
from lib.stats import agreement_table, mean_interval
from lib.studies.real.arms import ON_TOPIC, gold_passages

LEAST_KAPPA = 0.6
MOST_ERRORS = 0.05

_AGAIN = 10
"""One silent item in so many was judged again."""

_ALL_ITEMS = "planted: all planted items"

_FILE = DATA / "judgments" / "plants.jsonl.gz"

Row = Mapping
Key = tuple[str, str]


@dataclass(frozen=True)
class ControlItem:
    """One item of known label. ``like`` is the passage whose label it must get, ``supports`` the
    option it must be said to support; with neither it must support nothing."""

    item: str
    kind: str
    qid: str
    text: str
    like: str = ""
    supports: str = ""


def read_control_items() -> list[ControlItem]:
    """The control items that were judged, without their texts."""
    return [ControlItem(text="", **row) for row in read_jsonl(_FILE)]


def agreement(
    rows: Iterable[Row], questions: Mapping[str, Question], other: str = "second"
) -> pd.DataFrame:
    """Cohen's kappa and raw agreement of the first pass with another, label by label.

    Columns: check, label, value, low, high, n. *supports* and *contradicts* are yes or no for each
    item and option, *supports right* and *supports wrong* the same for the right option and the
    others. *Confirmed* is the share of the first pass's labels that the other gave too. Items that
    were silent at first have weight 10: one in ten was judged again. Intervals resample questions.
    """
    first, again = _pass(rows, "first"), _pass(rows, other)
    pairs = []
    for key in sorted(first.keys() & again.keys()):
        one, two = first[key], again[key]
        if one["on_topic"] is None or two["on_topic"] is None or key[1].startswith("plant:"):
            continue
        silent = not (one["supports"] or one["contradicts"])
        item = (key[0], _AGAIN if silent and other == "second" else 1)
        pairs.append(("on_topic", *item, one["on_topic"] >= ON_TOPIC, two["on_topic"] >= ON_TOPIC))
        question = questions[key[0]]
        for letter in sorted(question.options):
            side = "supports right" if letter == question.answer else "supports wrong"
            supports = (letter in one["supports"], letter in two["supports"])
            contradicts = (letter in one["contradicts"], letter in two["contradicts"])
            pairs.append(("supports", *item, *supports))
            pairs.append((side, *item, *supports))
            pairs.append(("contradicts", *item, *contradicts))
    labels = pd.DataFrame(pairs, columns=["label", "group", "weight", "one", "two"])
    confirmed = labels[labels["one"]].assign(
        check=f"confirmed by the {other} pass", value=labels["two"]
    )
    passes = f"first and {other} pass"
    return pd.concat([agreement_table(labels, passes), shares(confirmed, sort=True)])


def _pass(rows: Iterable[Row], judge: str) -> dict[Key, Row]:
    return {(row["qid"], row["pid"]): row for row in rows if row["judge"] == judge}


def shares(table: pd.DataFrame, sort: bool = False) -> pd.DataFrame:
    """The mean of ``value`` by ``check`` and ``label``, as ``agreement`` has it."""
    made = []
    for (check, label), group in table.groupby(["check", "label"], sort=sort):
        value, low, high = mean_interval(group["value"].to_numpy())
        row = {"check": check, "label": label, "value": value, "low": low, "high": high}
        made.append(row | {"n": len(group)})
    return pd.DataFrame(made)


def control_errors(rows: Iterable[Row], items: Sequence[ControlItem]) -> pd.DataFrame:
    """How often a control item did not get the label it must get, over all and by kind.

    ``repeat`` and ``padding`` must support what their original does, ``words`` and ``order``
    nothing, ``counterfactual`` the option it was written for. Unjudged items count as errors.
    """
    first = _pass(rows, "first")
    found = []
    for item in items:
        label = first.get((item.qid, item.item))
        supported = None
        if label is not None and label["on_topic"] is not None:
            supported = set(label["supports"])
        if item.like:
            like = first.get((item.qid, item.like))
            wrong = like is None or supported != set(like["supports"])
        elif item.supports:
            wrong = supported is None or item.supports not in supported
        else:
            wrong = supported is None or bool(supported)
        found.append((f"planted: {item.kind}", "error", float(wrong)))
    table = pd.DataFrame(found, columns=["check", "label", "value"])
    return pd.concat([shares(table.assign(check=_ALL_ITEMS)), shares(table, sort=True)])


def known_truth(
    rows: Iterable[Row],
    questions: Mapping[str, Question],
    classes: Mapping[Key, str],
) -> pd.DataFrame:
    """What the judge says of passages whose class is known, by set and class.

    ``classes`` says of (question id, passage id) what it is: "target", "mimic", "neither"
    (ddx-mini), "expert", "other" (BioASQ). Columns as ``agreement`` has them; labels: on topic,
    speaks (for or against any option), supports right, supports wrong.
    """
    found = []
    for key, row in _pass(rows, "first").items():
        if key not in classes or row["on_topic"] is None:
            continue
        question = questions[key[0]]
        supported = set(row["supports"])
        outcome = {
            "on topic": row["on_topic"] >= ON_TOPIC,
            "speaks": bool(row["supports"] or row["contradicts"]),
            "supports right": question.answer in supported,
            "supports wrong": bool(supported - {question.answer}),
        }
        check = f"{question.dataset}: {classes[key]}"
        found += [(check, label, float(value)) for label, value in outcome.items()]
    return shares(pd.DataFrame(found, columns=["check", "label", "value"]))


def helpful_passages(experts: Mapping[str, frozenset[str]]) -> pd.DataFrame:
    """Are BioASQ's labels complete? What a model calls helpful of what questions find.

    ``experts`` are the passages that experts gave, by question id. Columns as ``agreement`` has
    them: of the passages that experts gave, and of those that they did not.
    """
    table = pd.read_csv(HELPFUL, dtype={"qid": str, "pid": str})
    given = [pid in experts[qid] for qid, pid in zip(table["qid"], table["pid"], strict=True)]
    which = np.where(given, "bioasq: experts' passages", "bioasq: other passages")
    table = table.assign(check=which, label="helpful", value=table["helpful"].astype(float))
    return shares(table, sort=True)


def judge_quality(split: Split, store: PassageStore) -> pd.DataFrame:
    """Everything that tells whether the judge of a half is an instrument.

    Columns: check, label, value, low, high, n. The sets of known truth were judged once, with dev,
    and stand there alone; whether BioASQ's labels are complete stands with test.
    """
    rows, experts = read_judgments(), gold_passages(store)
    of_split = {question.qid: question for question in load_real(split)}
    judged = [row for row in rows if row["qid"] in of_split]
    items = [item for item in read_control_items() if item.qid in of_split]
    alone = agreement(judged, of_split, "single")
    parts = [agreement(judged, of_split), alone, control_errors(judged, items)]
    if split == "test":
        parts.append(helpful_passages(experts))
    else:
        questions = {q.qid: q for q in load_questions("ddx-mini") + load_questions("bioasq")}
        parts.append(known_truth(rows, questions, _classes(rows, questions, experts)))
    return pd.concat(parts, ignore_index=True)


def _classes(
    rows: Iterable[Row],
    questions: Mapping[str, Question],
    experts: Mapping[str, frozenset[str]],
) -> dict[Key, str]:
    """The class of each judged passage for the questions whose passages have known classes."""
    of_mini = {(row["qid"], row["pid"]): row["class"] for row in ddx_mini.read("qrels")}
    classes = {}
    for key in ((row["qid"], row["pid"]) for row in rows if row["qid"] in questions):
        if questions[key[0]].dataset == "bioasq":
            classes[key] = "expert" if key[1] in experts[key[0]] else "other"
        else:
            classes[key] = of_mini.get(key, "neither")
    return classes


def passes_quality_gate(quality: pd.DataFrame) -> bool:
    """Whether verdicts may be given on what was judged (see the module's head)."""
    table = quality.set_index(["check", "label"])["value"]
    kappa = table["kappa of first and second pass", "supports"]
    errors = [table[check, "error"] for check in (_ALL_ITEMS, "planted: counterfactual")]
    return bool(kappa >= LEAST_KAPPA and max(errors) <= MOST_ERRORS)
