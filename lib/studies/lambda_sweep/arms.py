"""The arms of the lambda study: what is searched with, each under a name that stays.

An arm's name is a key in every table, made from its way alone: ``chr@0.4``, ``hplus``,
``chr+rotation@1``. What figures and pages call it is decided there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lib.benchmarks.base import Benchmark
from lib.query_spec import SearchSpec
from lib.search.adaptive import (
    Rule,
    attenuated,
    attenuated_linear,
    drift_budget,
    fixed,
    orthogonal,
)

_SAME_AT_ZERO = ("single", "mean", "max", "softmax", "margin", "lda", "csls")
"""Forms that search with H+ alone when lambda is 0."""

SEVERAL = "several"
"""The kind of mimic text that a differential's forms use."""

_OF_SEVERAL = ("mean", "max", "softmax")
"""Forms that are always of several mimics, so that their names need not say so."""


@dataclass(frozen=True)
class Arm:
    """One way to search; with a ``rule`` each question gets its own lambda from its cosine."""

    spec: SearchSpec
    rule: Rule | None = None

    def specs(self, cosines: np.ndarray) -> list[SearchSpec]:
        """The way of each question, given c = cos(h+, h-) of each, shape (n,)."""
        if self.rule is None:
            return [self.spec] * len(cosines)
        return [replace(self.spec, lam=float(lam)) for lam in self.rule(cosines)]

    @property
    def is_control(self) -> bool:
        """Whether chance decides whose mimic it uses, so that its value is a mean over draws."""
        spec = at_zero(self.spec) if self.rule is None else self.spec
        return spec.rotation or spec.mimic == "stranger"

    @property
    def without_mimic(self) -> Arm:
        """The same form at lambda 0: what it finds by itself, before any contrast."""
        return Arm(replace(self.spec, lam=0.0))

    @property
    def name(self) -> str:
        """The key of this arm in every table."""
        if self.rule is not None:
            return f"{family_of(self.spec)}@{self.rule.label}"
        spec = at_zero(self.spec)
        if spec.form in ("question", "random"):
            return spec.form
        if spec.form == "single" and not spec.lam:
            return family_of(spec).replace("chr", "hplus", 1)
        return f"{family_of(spec)}@{spec.lam:g}"


def at_zero(spec: SearchSpec) -> SearchSpec:
    """The same search in its plainest words: at lambda 0 no mimic and no form of it matters."""
    if spec.lam or spec.form not in _SAME_AT_ZERO:
        return spec
    # A form's own parameters go with the form: only the space and the question still matter.
    plain = SearchSpec(question_weight=spec.question_weight, space=spec.space)
    return replace(plain, shrink=spec.shrink) if spec.space == "whitened" else plain


def family_of(spec: SearchSpec) -> str:
    """The name of a curve over lambda: the form, and whatever differs from plain CHR."""
    parts = ["chr" if spec.form == "single" else spec.form]
    if spec.mimic and not (spec.mimic == SEVERAL and spec.form in _OF_SEVERAL):
        parts.append(spec.mimic.replace(" ", "_"))
    if spec.rotation:
        parts.append("rotation")
    if spec.pool:
        parts.append(f"pool{spec.pool}")
    if spec.question_weight:
        parts.append(f"question{spec.question_weight:g}")
    if spec.space == "centred":
        parts.append("centred")
    if spec.space == "whitened":
        parts.append(f"white{spec.shrink:g}")
    if spec.form == "lda":
        parts.append(f"shrink{spec.shrink:g}")
    if spec.form == "softmax":
        parts.append(f"tau{spec.tau:g}")
    if spec.margin:
        parts.append(f"margin{spec.margin:g}")
    return "+".join(parts)


_FINE = ("one mimic", "question added", "maximum of several")
"""Forms whose lambda is chosen among all steps of the profile."""

CONTROL_LAMBDAS = (0.0, 0.2, 0.4, 0.6, 1.0)
"""Where the controls' curves are measured: each point is twenty searches."""

QUESTION, RANDOM = Arm(SearchSpec(form="question")), Arm(SearchSpec(form="random"))


def families(benchmark: Benchmark) -> dict[str, SearchSpec]:
    """Every curve over lambda that the benchmark can show, by name; lambda is still to be set.

    Add a control: one ``SearchSpec`` here. Raises ValueError where two ways have one name.
    """
    specs = [SearchSpec()]
    for kind in benchmark.h_minus:
        if kind != "nearest":
            specs.append(SearchSpec(mimic=kind))
    specs += [
        SearchSpec(mimic="stranger"),
        SearchSpec(rotation=True),
        SearchSpec(pool=100),
        SearchSpec(question_weight=1.0),
        SearchSpec(form="margin"),
        SearchSpec(space="centred"),
    ]
    if benchmark.several:
        specs += [SearchSpec(form="mean", mimic=SEVERAL), SearchSpec(form="max", mimic=SEVERAL)]
    named = {family_of(spec): spec for spec in specs}
    for spec in specs:
        if named[family_of(spec)] != spec:
            raise ValueError(f"two ways have one name: {spec} and {named[family_of(spec)]}")
    return named


def candidates(benchmark: Benchmark, lambdas: Sequence[float]) -> dict[str, list[Arm]]:
    """The arms that dev chooses among, by form: every form with its own parameters.

    In each list smaller lambdas come first, so that the first of equals has the smallest.
    """
    fine = sorted(lambdas)
    # Forms with a parameter of their own, and those that score every passage, take coarser steps.
    coarse = [lam for lam in fine if lam <= 1 and round(10 * lam) % 2 == 0] or fine
    forms: dict[str, list[SearchSpec]] = {
        "one mimic": [SearchSpec()],
        "question added": [SearchSpec(question_weight=1.0)],
        "pool of 100": [SearchSpec(pool=100)],
        "margin": [SearchSpec(form="margin", margin=m) for m in (0.0, 0.05, 0.1)],
        "centred": [SearchSpec(space="centred")],
        "whitened": [SearchSpec(space="whitened", shrink=rho) for rho in (0.1, 0.3, 0.6, 0.9)],
        "LDA": [SearchSpec(form="lda", shrink=rho) for rho in (0.1, 0.3, 0.6, 0.9)],
        "CSLS, no mimic": [SearchSpec(form="csls")],
        "lexical": [SearchSpec(form="lexical")],
        "fused with lexical": [SearchSpec(form="fused")],
    }
    if benchmark.several:
        forms |= {
            "mean of several": [SearchSpec(form="mean", mimic=SEVERAL)],
            "maximum of several": [SearchSpec(form="max", mimic=SEVERAL)],
            "softmax of several": [
                SearchSpec(form="softmax", mimic=SEVERAL, tau=tau) for tau in (0.02, 0.05, 0.2)
            ],
        }
    return {
        form: _at_each(specs, fine if form in _FINE else coarse) for form, specs in forms.items()
    }


def _at_each(specs: Iterable[SearchSpec], lambdas: Sequence[float]) -> list[Arm]:
    specs = list(specs)
    return [Arm(replace(spec, lam=float(lam))) for lam in lambdas for spec in specs]


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
    return {name: [Arm(SearchSpec(), rule) for rule in some] for name, some in made.items()}
