"""Which arms are compared: what was declared before its first run, and the rest.

``data/primary_tests.toml`` declares the primary tests of a set. An arm stands there as its name, or
as what dev chose: ``{one mimic}`` is the arm chosen for that form, ``{one mimic:lambda}`` its
lambda.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from lib.stats import Pair
from lib.studies.lambda_sweep.arms import Arm

P = "p_at_5"


def chosen_arms(dev: Mapping[str, Arm]) -> dict[str, str]:
    """What dev chose, as ``lib.study.declared_pairs`` takes it: the arm of each form, and its
    lambda under "<form>:lambda" (a rule has none)."""
    chosen = {form: arm.name for form, arm in dev.items()}
    return chosen | {f"{f}:lambda": f"{a.spec.lam:g}" for f, a in dev.items() if a.rule is None}


def exploratory_pairs(measured: Collection[str], dev: Mapping[str, Arm]) -> list[Pair]:
    """Every comparison that a reader of the study asks for, of arms that were measured.

    Contrast at the lambda dev chose, at 0.4 and at the paper's 1 against H+ alone, the two
    controls, and the question; then every form at what dev chose for it against H+ alone, and
    whatever else was measured at one of these lambdas.
    """
    lambdas = {0.4, 1.0}
    if "one mimic" in dev:
        lambdas.add(dev["one mimic"].spec.lam)
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
