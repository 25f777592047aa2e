"""The arms of the lambda study: what is searched with, each under a name that stays.

An arm's name is a key in every table, made from its way alone: ``chr@0.4``, ``hplus``,
``chr+rotation@1``. What figures and pages call it is decided there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lib.benchmarks.base import Benchmark
from lib.search.adaptive import (
    Rule,
    attenuated,
    attenuated_linear,
    drift_budget,
    fixed,
    orthogonal,
)
from lib.ways import Way

_SAME_AT_ZERO = ("single", "mean", "max", "softmax", "margin", "lda", "csls")
"""Forms that search with H+ alone when lambda is 0."""

SEVERAL = "several"
"""The kind of mimic text that a differential's forms use."""

_OF_SEVERAL = ("mean", "max", "softmax")
"""Forms that are always of several mimics, so that their names need not say so."""


@dataclass(frozen=True)
class Arm:
    """One way to search; with a ``rule`` each question gets its own lambda from its cosine."""

    way: Way
    rule: Rule | None = None

    def ways(self, cosines: np.ndarray) -> list[Way]:
        """The way of each question, given c = cos(h+, h-) of each, shape (n,)."""
        if self.rule is None:
            return [self.way] * len(cosines)
        return [replace(self.way, lam=float(lam)) for lam in self.rule(cosines)]

    @property
    def is_control(self) -> bool:
        """Whether chance decides whose mimic it uses, so that its value is a mean over draws."""
        way = at_zero(self.way) if self.rule is None else self.way
        return way.rotation or way.mimic == "stranger"

    @property
    def without_mimic(self) -> Arm:
        """The same form at lambda 0: what it finds by itself, before any contrast."""
        return Arm(replace(self.way, lam=0.0))

    @property
    def name(self) -> str:
        """The key of this arm in every table."""
        if self.rule is not None:
            return f"{family_of(self.way)}@{self.rule.label}"
        way = at_zero(self.way)
        if way.form in ("question", "random"):
            return way.form
        if way.form == "single" and not way.lam:
            return family_of(way).replace("chr", "hplus", 1)
        return f"{family_of(way)}@{way.lam:g}"


def at_zero(way: Way) -> Way:
    """The same search in its plainest words: at lambda 0 no mimic and no form of it matters."""
    if way.lam or way.form not in _SAME_AT_ZERO:
        return way
    # A form's own parameters go with the form: only the space and the question still matter.
    plain = Way(question_weight=way.question_weight, space=way.space)
    return replace(plain, shrink=way.shrink) if way.space == "whitened" else plain


def family_of(way: Way) -> str:
    """The name of a curve over lambda: the form, and whatever differs from plain CHR."""
    parts = ["chr" if way.form == "single" else way.form]
    if way.mimic and not (way.mimic == SEVERAL and way.form in _OF_SEVERAL):
        parts.append(way.mimic.replace(" ", "_"))
    if way.rotation:
        parts.append("rotation")
    if way.pool:
        parts.append(f"pool{way.pool}")
    if way.question_weight:
        parts.append(f"question{way.question_weight:g}")
    if way.space == "centred":
        parts.append("centred")
    if way.space == "whitened":
        parts.append(f"white{way.shrink:g}")
    if way.form == "lda":
        parts.append(f"shrink{way.shrink:g}")
    if way.form == "softmax":
        parts.append(f"tau{way.tau:g}")
    if way.margin:
        parts.append(f"margin{way.margin:g}")
    return "+".join(parts)


_FINE = ("one mimic", "question added", "maximum of several")
"""Forms whose lambda is chosen among all steps of the profile."""

CONTROL_LAMBDAS = (0.0, 0.2, 0.4, 0.6, 1.0)
"""Where the controls' curves are measured: each point is twenty searches."""

QUESTION, RANDOM = Arm(Way(form="question")), Arm(Way(form="random"))


def families(benchmark: Benchmark) -> dict[str, Way]:
    """Every curve over lambda that the benchmark can show, by name; lambda is still to be set.

    Add a control: one ``Way`` here. Raises ValueError where two ways have one name.
    """
    ways = [Way()]
    for kind in benchmark.h_minus:
        if kind != "nearest":
            ways.append(Way(mimic=kind))
    ways += [
        Way(mimic="stranger"),
        Way(rotation=True),
        Way(pool=100),
        Way(question_weight=1.0),
        Way(form="margin"),
        Way(space="centred"),
    ]
    if benchmark.several:
        ways += [Way(form="mean", mimic=SEVERAL), Way(form="max", mimic=SEVERAL)]
    named = {family_of(way): way for way in ways}
    for way in ways:
        if named[family_of(way)] != way:
            raise ValueError(f"two ways have one name: {way} and {named[family_of(way)]}")
    return named


def candidates(benchmark: Benchmark, lambdas: Sequence[float]) -> dict[str, list[Arm]]:
    """The arms that dev chooses among, by form: every form with its own parameters.

    In each list smaller lambdas come first, so that the first of equals has the smallest.
    """
    fine = sorted(lambdas)
    # Forms with a parameter of their own, and those that score every passage, take coarser steps.
    coarse = [lam for lam in fine if lam <= 1 and round(10 * lam) % 2 == 0] or fine
    forms: dict[str, list[Way]] = {
        "one mimic": [Way()],
        "question added": [Way(question_weight=1.0)],
        "pool of 100": [Way(pool=100)],
        "margin": [Way(form="margin", margin=m) for m in (0.0, 0.05, 0.1)],
        "centred": [Way(space="centred")],
        "whitened": [Way(space="whitened", shrink=rho) for rho in (0.1, 0.3, 0.6, 0.9)],
        "LDA": [Way(form="lda", shrink=rho) for rho in (0.1, 0.3, 0.6, 0.9)],
        "CSLS, no mimic": [Way(form="csls")],
        "lexical": [Way(form="lexical")],
        "fused with lexical": [Way(form="fused")],
    }
    if benchmark.several:
        forms |= {
            "mean of several": [Way(form="mean", mimic=SEVERAL)],
            "maximum of several": [Way(form="max", mimic=SEVERAL)],
            "softmax of several": [
                Way(form="softmax", mimic=SEVERAL, tau=tau) for tau in (0.02, 0.05, 0.2)
            ],
        }
    return {form: _at_each(ways, fine if form in _FINE else coarse) for form, ways in forms.items()}


def _at_each(ways: Iterable[Way], lambdas: Sequence[float]) -> list[Arm]:
    ways = list(ways)
    return [Arm(replace(way, lam=float(lam))) for lam in lambdas for way in ways]


def rules(dev_cosines: np.ndarray) -> dict[str, list[Arm]]:
    """The rules that turn c into a lambda for each question, with the parameters dev may choose.

    In each list the weaker contrast comes first, so that the first of equals is the weakest.
    """
    grid = (0.4, 0.6, 0.8, 1.0)
    # The larger gamma is, and the nearer rho is to 1, the smaller is lambda.
    gammas, rhos = (2.0, 1.0, 0.5), (0.98, 0.95, 0.9, 0.85, 0.8, 0.7, 0.5)
    made: Mapping[str, list[Rule]] = {
        "fixed": [fixed(x) for x in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)],
        "L1": [attenuated(m, g, dev_cosines) for m in grid for g in gammas],
        "L1 linear": [attenuated_linear(m, g, dev_cosines) for m in grid for g in gammas],
        "L2": [orthogonal(x) for x in grid],
        "L3": [drift_budget(1.0, r) for r in rhos],
    }
    return {name: [Arm(Way(), rule) for rule in some] for name, some in made.items()}
