"""The skeleton of every study: arms are searched, measured by question, compared, and kept.

A study says what it compares (``Study``); ``run`` does the rest. What is measured, question by
question, is the dear half: it is kept first, and everything else follows from it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pandas as pd

from lib.base.paths import DATA
from lib.base.provenance import make_all_or_reuse, make_or_reuse, read_result
from lib.data.looks import note_look
from lib.limit import makes_real, not_run
from lib.methods.base import Request
from lib.profiles import Profile
from lib.run import RetrievalFailure, Retriever
from lib.stats import Pair, long_values, mean_interval

MADE_BY = "open"
"""The profile whose committed results stand for those that another profile does not make."""

Found = dict[str, list[str]]
"""Passage ids by question id, best first. A question that could not be ranked is missing."""


@dataclass(frozen=True)
class Arm:
    """One thing that is compared, under one key in every table.

    ``request(qid, draw)`` is what a question is searched with, or None where there is nothing to
    search with. Of a control, whose texts chance chooses, the outcome is the mean over ``draws``.
    """

    name: str
    request: Callable[[str, int], Request | None]
    draws: int = 1


def search_arm(arm: Arm, qids: Iterable[str], retriever: Retriever, depth: int) -> list[Found]:
    """What an arm finds, ``depth`` passages a question, by draw. All draws are one search."""
    asked = [
        (draw, qid, request)
        for draw in range(arm.draws)
        for qid in qids
        if (request := arm.request(qid, draw)) is not None
    ]
    hits = retriever.search_many([request for *_, request in asked], depth)
    found: list[Found] = [{} for _ in range(arm.draws)]
    for (draw, qid, _), hit in zip(asked, hits, strict=True):
        if not isinstance(hit, RetrievalFailure):
            found[draw][qid] = hit.ids[0].tolist()
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


# what was declared --------------------------------------------------------------------------------


def primary_tests() -> dict:
    """What ``data/primary_tests.toml`` declares, by test set."""
    return tomllib.loads((DATA / "primary_tests.toml").read_text(encoding="utf-8"))


def errata(test_set: str) -> list[str]:
    """What a declaration says wrongly of its test set, a sentence each, corrected beside it.

    The blocks themselves stay as they were declared (``data/primary_tests_errata.toml``).
    """
    text = (DATA / "primary_tests_errata.toml").read_text(encoding="utf-8")
    return [erratum["what"] for erratum in tomllib.loads(text).get(test_set, [])]


def declared_pairs(test_set: str, chosen: Mapping[str, str]) -> list[Pair]:
    """The primary tests of a test set, empty for one that has none.

    A name in braces is what dev chose: ``chosen`` has the text that takes its place, such as
    {"one mimic:lambda": "0.4"}. A test whose lambda dev chose to be 0 compares a search with
    itself: it is void and left out. Two tests that became the same count once. KeyError for a name
    that ``chosen`` does not have.
    """
    pairs: dict[tuple, Pair] = {}
    for test in primary_tests().get(test_set, {}).get("test", []):
        names = re.findall(r"\{([^}]+)\}", test["arm"] + test["against"])
        if any(name.endswith(":lambda") and chosen[name] == "0" for name in names):
            continue
        arm, baseline = (_filled(test[side], chosen) for side in ("arm", "against"))
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
    """What is compared, on what, and which tables follow.

    ``load`` opens the collection: whatever the other functions need of questions, texts and
    labels. It must have ``qids``, the ``retriever``, and ``data``, the files behind it.
    ``measure(collection, found)`` gives the outcomes of ranked lists (see ``mean_of_draws``).
    ``tables`` are functions of the collection and the outcomes, by the name of their result.
    """

    name: str
    """What the ledger of looks calls it."""
    values: str
    """The result that holds every outcome."""
    code: str
    """The module or package that makes it: a change there makes its results stale."""
    test_set: str
    load: Callable[[Profile], Any]
    arms: Callable[[Any], Sequence[Arm]]
    measure: Callable[[Any, Found], pd.DataFrame]
    tables: Mapping[str, Callable[[Any, pd.DataFrame], pd.DataFrame]]
    depth: int = 10
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Every result of the study, the outcomes first."""
        return (self.values, *self.tables)


def measured(study: Study, collection: Any) -> pd.DataFrame:
    """``arm, qid, metric, value``: every outcome of every arm of a study."""
    qids = list(collection.qids)
    parts = []
    for arm in study.arms(collection):
        found = search_arm(arm, qids, collection.retriever, study.depth)
        table = mean_of_draws(found, partial(study.measure, collection))
        parts.append(long_values(arm.name, table))
    return pd.concat(parts, ignore_index=True)


def run(study: Study, profile: Profile) -> dict[str, pd.DataFrame]:
    """All results of a study by name, kept for the profile; what is stored and holds is reused.

    A profile that does not ask the whole real sample reads those committed for ``MADE_BY``.
    """
    if not makes_real(profile):
        if "real" in profile.questions:
            print(not_run(profile, study.name))
        return {name: read_result(name, MADE_BY, committed=True)[0] for name in study.names}
    collection = study.load(profile)
    origin = {
        "code": [study.code],
        "data": collection.data,
        "encoder": collection.retriever.encoder.fingerprint,
        "limit": profile.limit,
        **study.settings,
    }

    def looked_at() -> pd.DataFrame:
        values = measured(study, collection)
        declared = study.test_set in primary_tests()
        note_look(study.name, study.test_set, values["qid"], profile.name, values["arm"], declared)
        return values

    values = make_or_reuse(looked_at, study.values, profile.name, dear=True, **origin)

    def follow() -> dict[str, pd.DataFrame]:
        return {name: make(collection, values) for name, make in study.tables.items()}

    rest = make_all_or_reuse(follow, [*study.tables], profile.name, **origin)
    return {study.values: values} | rest
