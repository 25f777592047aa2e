"""Is the answerer an instrument? Asked on questions whose passages were judged, before any result.

Conditions: ``closed book`` (all exam questions of the real sample, no passage); and, where options
are entities, five passages of the question's judged pool: ``gold`` (one that both judging passes
say supports the right option, and four silent ones), ``wrong`` (one that supports a wrong option,
and four silent ones) and ``silent`` (five that support nothing). The one that supports names its
option, so that the mask leaves something to read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from lib.base.files import read_jsonl, sha256_bytes
from lib.base.paths import DATA
from lib.data.judgments import Evidence, evidence, read_judgments, shown_text
from lib.data.passages import Passage
from lib.data.store import PassageStore
from lib.datasets import EXAMS, Question, load_real
from lib.llm.chat import ChatModel
from lib.stats import mean_interval
from lib.studies.masked.answering import answer, mask_of, read_code, request
from lib.studies.masked.mask import names_left
from lib.studies.masked.sample import load_masked
from lib.studies.masked.texts import ANSWERED
from lib.study import primary_tests

FIVE = 5

CHANCE = 0.25
"""Of every exam question: it has four options."""


@dataclass(frozen=True)
class Item:
    """One request of the validation; ``letter`` is the option that its passage supports."""

    condition: str
    question: Question
    passages: tuple[Passage, ...] = ()
    letter: str = ""


def items(store: PassageStore) -> Iterator[Item]:
    """Every request of the validation, condition by condition."""
    for question in load_real("test"):
        if question.dataset in EXAMS:
            yield Item("closed book", question)
    pools: dict[str, dict[str, Evidence]] = {}
    for (qid, pid), label in evidence(read_judgments()).items():
        if not pid.startswith("plant:"):
            pools.setdefault(qid, {})[pid] = label
    for condition in ("gold", "wrong", "silent"):
        for question in load_masked("judged"):
            pool = pools.get(question.qid, {})
            silent = _in_order(question, [pid for pid, label in pool.items() if _is_silent(label)])
            if condition == "silent":
                if len(silent) >= FIVE:
                    yield Item(condition, question, _passages(store, silent[:FIVE]))
            elif found := _speaking(question, pool, store, right=condition == "gold"):
                pid, letter = found
                shown = _passages(store, [pid, *silent[: FIVE - 1]])
                yield Item(condition, question, shown, letter)


def _is_silent(label: Evidence) -> bool:
    return not label.supports_any and not label.contradicts


def _in_order(question: Question, pids: Sequence[str]) -> list[str]:
    return sorted(pids, key=lambda pid: sha256_bytes(f"item {question.qid} {pid}".encode()))


def _passages(store: PassageStore, pids: Sequence[str]) -> tuple[Passage, ...]:
    return tuple(store.get_many(pids))


def _speaking(
    question: Question, pool: Mapping[str, Evidence], store: PassageStore, right: bool
) -> tuple[str, str] | None:
    """The first passage that supports the right option alone, or one wrong option alone, and names
    it; with that option's letter."""
    mask = mask_of(question)
    code_of = {letter: code for code, letter in mask.letter_of.items()}
    for pid in _in_order(question, list(pool)):
        supports = pool[pid].supports
        if len(supports) == 1 and (question.answer in supports) == right:
            (letter,) = supports
            (passage,) = store.get_many([pid])
            if code_of[letter] in mask.hide([shown_text(passage)])[0]:
                return pid, letter
    return None


def instrument_values(store: PassageStore, llm: ChatModel) -> pd.DataFrame:
    """Every outcome: condition, qid, metric, value. ``follows``: the answer is the option that the
    passage supports; ``names_left``: names that the mask missed in the request."""
    rows = []
    for item in items(store):
        said = answer(item.question, item.passages, llm)
        values = said.metrics(item.question)
        if item.letter:
            values["follows"] = float(said.letter == item.letter)
        values["names_left"] = unmasked(item.question, item.passages)
        key = (item.condition, item.question.qid)
        rows += [(*key, metric, value) for metric, value in values.items()]
    table = pd.DataFrame(rows, columns=["condition", "qid", "metric", "value"])
    return pd.concat([table, again_values()], ignore_index=True)


def unmasked(question: Question, passages: Sequence[Passage]) -> float:
    """How many names of options the request still has."""
    asked = request(question, passages)[-1]["content"]
    return float(len(names_left(mask_of(question), asked)))


AGAIN = DATA / "masked" / "again.csv"
"""What another role said to 120 requests of the test half, drawn by hash: key and reply."""


def again_values() -> pd.DataFrame:
    """Whether two readings of one request say the same, columns as ``instrument_values``, by key.

    ``same_kind``: both told or both guessed. ``same_option``: the same option, where both told.
    """
    first = {row["key"]: row["reply"]["text"] for row in read_jsonl(ANSWERED)}
    rows = []
    for row in pd.read_csv(AGAIN, dtype=str).itertuples():
        one, other = (read_code(text) for text in (first[row.key], row.reply))
        rows.append(("read again", row.key, "same_kind", float(one[1] == other[1])))
        if one[1] and other[1]:
            rows.append(("read again", row.key, "same_option", float(one[0] == other[0])))
    return pd.DataFrame(rows, columns=["condition", "qid", "metric", "value"])


def instrument_table(values: pd.DataFrame) -> pd.DataFrame:
    """Means with intervals: condition, metric, value, low, high, n, and ``passes``: whether a
    declared requirement holds, empty where nothing is required."""
    wanted = primary_tests()["masked"]["instrument"]
    rows = []
    for (condition, metric), group in values.groupby(["condition", "metric"], sort=False):
        value, low, high = mean_interval(group.sort_values("qid")["value"].to_numpy())
        passes: bool | str = ""
        if (condition, metric) == ("closed book", "right"):
            passes = high <= CHANCE + wanted["closed_book"]
        elif (condition, metric) == ("gold", "accuracy"):
            passes = low >= CHANCE + wanted["gold"]
        elif metric == "names_left":
            passes = value == 0
        row = {"condition": condition, "metric": metric, "value": value, "low": low, "high": high}
        rows.append(row | {"n": len(group), "passes": passes})
    return pd.DataFrame(rows)


def is_instrument(table: pd.DataFrame) -> bool:
    """Whether every requirement holds: without that there are no verdicts."""
    required = table.loc[table["passes"] != "", "passes"]
    return bool(len(required)) and bool((required.astype(str) == "True").all())
