"""The skeleton of every study: arms are searched, measured by question, compared, and kept.

A study says what it compares (``Study``); ``run`` does the rest. Measuring, question by question,
is the expensive part: outcomes are stored first, and everything else is computed from them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd

from lib.base.paths import DATA
from lib.base.provenance import make_all_or_reuse, make_or_reuse, read_result
from lib.data.looks import Look, note_look
from lib.limit import makes_real, not_run
from lib.stats import Pair, long_values, mean_interval

if TYPE_CHECKING:
    from lib.profiles import Profile
    from lib.query_spec import Request
    from lib.run import Retriever

MADE_BY = "open"
"""The profile whose committed results stand for those that another profile does not make."""

Found = dict[str, list[str]]
"""Passage ids by question id, best first. A question that could not be ranked is missing."""


@dataclass(frozen=True)
class Arm:
    """One thing that is compared, under one key in every table.

    ``request(qid, draw)`` is what a question is searched with, or None where there is nothing to
    search with. For a control with randomly drawn texts, the outcome is the mean over ``draws``.
    """

    name: str
    request: Callable[[str, int], Request | None]
    draws: int = 1


def search_arm(arm: Arm, qids: Iterable[str], retriever: Retriever, depth: int) -> list[Found]:
    """What an arm finds, ``depth`` passages a question, by draw. All draws are one search."""
    return search_arms([arm], qids, retriever, depth)[arm.name]


def search_arms(
    arms: Iterable[Arm], qids: Iterable[str], retriever: Retriever, depth: int
) -> dict[str, list[Found]]:
    """``search_arm`` of several arms, by name, as one search: arms that differ in lambda alone take
    a few searches together (``lib.search.lambda_path``)."""
    from lib.run import RetrievalFailure

    arms, qids = list(arms), list(qids)
    asked = [
        (arm.name, draw, qid, request)
        for arm in arms
        for draw in range(arm.draws)
        for qid in qids
        if (request := arm.request(qid, draw)) is not None
    ]
    hits = retriever.search_many([request for *_, request in asked], depth)
    found: dict[str, list[Found]] = {arm.name: [{} for _ in range(arm.draws)] for arm in arms}
    for (name, draw, qid, _), hit in zip(asked, hits, strict=True):
        if not isinstance(hit, RetrievalFailure):
            found[name][draw][qid] = hit.ids[0].tolist()
    return found


def mean_of_draws(draws: Iterable[Found], measure: Callable[[Found], pd.DataFrame]) -> pd.DataFrame:
    """What ``measure`` says of each draw, averaged by question: a row a question (index qid), a
    column a metric."""
    tables = pd.concat([measure(found) for found in draws])
    return tables.groupby(level=0, sort=False).mean()


def means(
    values: pd.DataFrame, keys: Sequence[str] = ("dataset", "arm", "metric"), sort: bool = False
) -> pd.DataFrame:
    """The mean of every arm and metric with its 95 % interval: ``keys``, value, low, high, n."""
    rows = []
    for key, group in values.groupby(list(keys), sort=sort):
        # By id: resampling draws by position, so the order of rows would move intervals.
        value, low, high = mean_interval(group.sort_values("qid")["value"].to_numpy())
        row = dict(zip(keys, key, strict=True)) | {"value": value, "low": low, "high": high}
        rows.append(row | {"n": len(group)})
    return pd.DataFrame(rows)


def means_table(values: pd.DataFrame, setup: str) -> pd.DataFrame:
    """``means`` as Table 1 of the paper has them: an arm is a method, and nothing printed stands
    beside it."""
    table = means(values).rename(columns={"arm": "method"})
    table.insert(1, "answerer", "")
    table = table.assign(setup=setup, options_visible=False)
    return table.assign(reported=float("nan"), verdict="")


# what was declared --------------------------------------------------------------------------------


RENAMED = {"hit_right": "supports_correct", "misled": "supports_wrong"}
"""Measures that were declared under another name than they have today."""


DECLARATIONS = ("primary_tests.toml", "primary_tests_masked.toml")
"""Where primary tests are declared, by file of ``data``. What is there stays byte for byte."""


def primary_tests() -> dict:
    """What ``DECLARATIONS`` declare, by test set; measures and columns have today's names here."""
    declared: dict = {}
    for name in DECLARATIONS:
        declared |= tomllib.loads((DATA / name).read_text(encoding="utf-8"))
    for test in (test for block in declared.values() for test in block.get("test", [])):
        test["metric"] = RENAMED.get(test["metric"], test["metric"])
        test["baseline"] = test.pop("against")
    return declared


def declared_pairs(test_set: str, chosen: Mapping[str, str]) -> list[Pair]:
    """The primary tests of a test set, empty for one that has none.

    A name in braces is what dev chose: ``chosen`` has the text that takes its place, such as
    {"one mimic:lambda": "0.4"}. A test whose lambda dev chose to be 0 compares a search with
    itself: it is void and left out. Two tests that became the same count once. KeyError for a name
    that ``chosen`` does not have.
    """
    pairs: dict[tuple, Pair] = {}
    for test in primary_tests().get(test_set, {}).get("test", []):
        names = re.findall(r"\{([^}]+)\}", test["arm"] + test["baseline"])
        if any(name.endswith(":lambda") and chosen[name] == "0" for name in names):
            continue
        arm, baseline = (_filled(test[side], chosen) for side in ("arm", "baseline"))
        if arm != baseline:
            sign = test.get("sign", 1)
            pair = Pair(test["statement"], test["metric"], arm, baseline, sign, primary=True)
            pairs.setdefault((arm, baseline, test["metric"]), pair)
    return list(pairs.values())


def _filled(name: str, chosen: Mapping[str, str]) -> str:
    return re.sub(r"\{([^}]+)\}", lambda found: chosen[found[1]], name)


# a study ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Study:
    """What is measured, on what, and which tables follow.

    ``load`` opens the collection: whatever the other functions need of questions, texts, labels
    and retrievers. What it depends on is in its ``data`` (files below ``data/``) and, unless
    ``origin`` says otherwise, its ``retriever``.
    """

    name: str
    """What the ledger of looks calls it."""
    code: str
    """The module or package that makes it: a change there makes its results stale."""
    load: Callable[[Profile], Any]
    values: Mapping[str, Callable[[Any], pd.DataFrame]]
    """The expensive part: by name of a result, a function of the collection that gives every
    outcome, question by question. ``search_and_measure`` makes one for arms that are searched."""
    tables: Sequence[str]
    """The results that follow from the outcomes."""
    follow: Callable[..., Mapping[str, pd.DataFrame]]
    """``follow(collection, *values)`` gives all ``tables`` by name."""
    looks: Callable[[Any, Mapping[str, pd.DataFrame]], Iterable[Look]] | None = None
    """``looks(collection, results)``: the test questions whose labels this opened. Each look gets a
    row in the ledger when the tables are made."""
    origin: Callable[[Any], Mapping[str, Any]] | None = None
    """Further settings that the results depend on, from the collection; None leaves one out."""


def search_and_measure(
    arms: Callable[[Any], Sequence[Arm]],
    measure: Callable[[Any, Found], pd.DataFrame],
    depth: int = 10,
) -> Callable[[Any], pd.DataFrame]:
    """A function that gives ``arm, qid, metric, value``: every outcome of every arm.

    ``arms(collection)`` are searched ``depth`` passages deep for the collection's ``qids`` with its
    ``retriever``; ``measure(collection, found)`` gives outcomes of ranked lists, a row a question.
    """

    def outcomes(collection: Any) -> pd.DataFrame:
        qids = list(collection.qids)
        parts = []
        every = search_arms(arms(collection), qids, collection.retriever, depth)
        for name, found in every.items():
            parts.append(long_values(name, mean_of_draws(found, partial(measure, collection))))
        return pd.concat(parts, ignore_index=True)

    return outcomes


def run(studies: Study | Sequence[Study], profile: Profile) -> dict[str, pd.DataFrame]:
    """The tables of one study, or of several that share a collection, by name.

    They are kept for the profile; what is stored and holds is reused. A profile that does not ask
    the whole real sample reads those committed for ``MADE_BY``.
    """
    studies = [studies] if isinstance(studies, Study) else studies
    names = [name for study in studies for name in study.tables]
    if not makes_real(profile):
        return read_committed(names, profile, studies[0].name)
    collection = studies[0].load(profile)
    made: dict[str, pd.DataFrame] = {}
    for study in studies:
        made |= make(study, profile, collection)
    return {name: made[name] for name in names}


def read_committed(names: Iterable[str], profile: Profile, what: str) -> dict[str, pd.DataFrame]:
    """Tables that are committed for ``MADE_BY``, by name; ``what`` is then said to be NOT RUN where
    the profile asks only a part of the real sample."""
    if "real" in profile.questions:
        print(not_run(profile, what))
    return {name: read_result(name, MADE_BY, committed=True)[0] for name in names}


def make(study: Study, profile: Profile, collection: Any) -> dict[str, pd.DataFrame]:
    """A study's outcomes and tables by name, under any profile, on a collection that is open."""
    origin = {"code": [study.code], "data": collection.data, "limit": profile.limit}
    if hasattr(collection, "retriever"):
        origin["encoder"] = collection.retriever.encoder.fingerprint
    origin |= study.origin(collection) if study.origin else {}
    origin = {name: setting for name, setting in origin.items() if setting is not None}

    values = {}
    for name, outcomes in study.values.items():
        measured = partial(outcomes, collection)
        values[name] = make_or_reuse(measured, name, profile.name, dear=True, **origin)

    def tables() -> Mapping[str, pd.DataFrame]:
        made = study.follow(collection, *values.values())
        for look in study.looks(collection, values | made) if study.looks else ():
            note_look(study.name, profile.name, look)
        return made

    return values | make_all_or_reuse(tables, study.tables, profile.name, **origin)
