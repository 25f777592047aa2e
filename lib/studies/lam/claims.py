"""Which arms are compared: what was declared before its first run, and the rest.

``data/primary_tests.toml`` declares the primary tests of a set. An arm stands there as its name, or
as what dev chose: ``{one mimic}`` is the arm chosen for that form, ``{one mimic:lambda}`` its
lambda.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping

from lib.base.paths import DATA
from lib.stats import Pair
from lib.studies.lam.arms import Arm

_CHOSEN = re.compile(r"\{([^:}]+)(:lambda)?\}")

P = "p_at_5"


def primary_tests() -> dict:
    """What ``data/primary_tests.toml`` declares, by test set."""
    path = DATA / "primary_tests.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def errata(name: str) -> list[str]:
    """What a declaration says wrongly of its test set, a sentence each, corrected beside it.

    The blocks themselves stay as they were declared (``data/primary_tests_errata.toml``).
    """
    path = DATA / "primary_tests_errata.toml"
    known = tomllib.loads(path.read_text(encoding="utf-8"))
    return [erratum["what"] for erratum in known.get(name, [])]


def declared_pairs(name: str, dev: Mapping[str, Arm]) -> list[Pair]:
    """The primary tests of a test set, empty for one that has none.

    A test whose lambda dev chose to be 0 compares a search with itself: it is void and left out.
    One that names the same two arms as another, because dev chose the paper's lambda, counts once.
    Raises KeyError for a form that dev did not choose for, ValueError for the lambda of a rule.
    """
    pairs = {}
    for test in primary_tests().get(name, {}).get("test", []):
        arm, against = (_resolved(test[side], dev) for side in ("arm", "against"))
        if arm != against:
            pair = Pair(test["statement"], test["metric"], arm, against, primary=True)
            pairs.setdefault((arm, against, test["metric"]), pair)
    return list(pairs.values())


def _resolved(written: str, dev: Mapping[str, Arm]) -> str:
    """An arm's name with what dev chose filled in; every search at lambda 0 is H+ alone."""

    def chosen(match: re.Match) -> str:
        if match[1] not in dev:
            raise KeyError(f"a primary test names the form {match[1]!r}; dev chose for {[*dev]}")
        arm = dev[match[1]]
        if match[2] and arm.rule is not None:
            raise ValueError(f"a primary test names the lambda of {match[1]!r}, which has many")
        return f"{arm.way.lam:g}" if match[2] else arm.name

    name = _CHOSEN.sub(chosen, written)
    return re.sub(r"^chr(\+rotation|\+stranger)?(\+question\S*)?@0$", r"hplus\2", name)


def exploratory_pairs(measured: Collection[str], dev: Mapping[str, Arm]) -> list[Pair]:
    """Every comparison that a reader of the study asks for, of arms that were measured.

    Contrast at the lambda dev chose, at 0.4 and at the paper's 1 against H+ alone, the two
    controls, and the question; then every form at what dev chose for it against H+ alone, and
    whatever else was measured at one of these lambdas.
    """
    lambdas = {0.4, 1.0}
    if "one mimic" in dev:
        lambdas.add(dev["one mimic"].way.lam)
    wanted = []
    for lam in sorted(lambdas - {0.0}):
        contrast = f"chr@{lam:g}"
        wanted += [
            (contrast, "hplus", P),
            (contrast, f"chr+rotation@{lam:g}", P),
            (contrast, f"chr+stranger@{lam:g}", P),
            (contrast, "question", P),
            (f"chr+rotation@{lam:g}", "hplus", P),
            (f"chr+stranger@{lam:g}", "hplus", P),
            (f"chr+question1@{lam:g}", "hplus+question1", P),
            (contrast, "hplus", "mimic_at_5"),
        ]
    wanted += [("hplus", "question", P), ("hplus+question1", "hplus", P)]
    for arm in dev.values():
        # Against H+ alone, and against what the form finds without any contrast.
        wanted += [(arm.name, "hplus", P), (arm.name, arm.without_mimic.name, P)]
    at_these = tuple(f"@{lam:g}" for lam in lambdas)
    wanted += [(arm, "hplus", P) for arm in sorted(measured) if arm.endswith(at_these)]
    pairs = {}
    for arm, against, metric in wanted:
        if arm != against and {arm, against} <= set(measured):
            pairs[arm, against, metric] = Pair(f"{arm} > {against}", metric, arm, against)
    return list(pairs.values())
