"""The arms of the lambda study: what is searched with, each under a name that stays.

An arm's name is a key in every table, made from its search specification alone: ``chr@0.4``,
``hplus``, ``chr+rotation@1``. Its label in figures and pages comes from ``lib.plots.labels``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from lib.base.paths import say_once
from lib.benchmarks.base import Benchmark
from lib.query_spec import DRAWS, Hypotheses, SearchSpec
from lib.run import Retriever
from lib.search.adaptive import (
    Rule,
    attenuated,
    attenuated_linear,
    drift_budget,
    fixed,
    orthogonal,
)
from lib.stats import Pair
from lib.study import Arm

SEVERAL = "several"
"""The kind of mimic text that a differential's forms use."""

H_PLUS = SearchSpec()
QUESTION = SearchSpec(form="question")
RANDOM = SearchSpec(form="random")

# names --------------------------------------------------------------------------------------------

_SAME_AT_ZERO = ("single", "mean", "max", "softmax", "margin", "lda", "csls")
"""Forms that search with H+ alone when lambda is 0."""

_OF_SEVERAL = ("mean", "max", "softmax")
"""Forms that are always of several mimics, so that their names need not say so."""


def name_of(spec: SearchSpec, rule: Rule | None = None) -> str:
    """The key in every table of a search by ``spec``, its lambda by a ``rule`` if there is one."""
    if rule is not None:
        return f"{family_of(spec)}@{rule.label}"
    spec = at_zero(spec)
    if spec.form in ("question", "random"):
        return spec.form
    if spec.form == "single" and not spec.lam:
        return family_of(spec).replace("chr", "hplus", 1)
    return f"{family_of(spec)}@{spec.lam:g}"


def at_zero(spec: SearchSpec) -> SearchSpec:
    """The simplest equivalent search specification: at lambda 0 mimic and form do not matter."""
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


def is_control(spec: SearchSpec) -> bool:
    """Whether its mimics are drawn at random, so that its value is a mean over draws."""
    spec = at_zero(spec)
    return spec.rotation or spec.mimic == "stranger"


# a benchmark's arms -------------------------------------------------------------------------------


@dataclass(frozen=True)
class SearchArm(Arm):
    """An arm that is a way to search with a question's hypotheses; a rule's has no ``spec``."""

    spec: SearchSpec | None = None


@dataclass(frozen=True)
class OpenBenchmark:
    """A benchmark, the retriever it is searched with, and every question's hypotheses by id.

    It is measured at ``lambdas``. Where it has no dev questions, those of ``tuned_on`` choose, and
    ``chosen`` names the arm that they chose for each form.
    """

    benchmark: Benchmark
    retriever: Retriever
    hypotheses: Mapping[str, Hypotheses]
    k: int = 5
    lambdas: Sequence[float] = ()
    tuned_on: OpenBenchmark | None = None
    chosen: Mapping[str, str] = field(default_factory=dict)

    @property
    def data(self) -> Sequence[str]:
        """The files behind it."""
        return self.benchmark.files

    @cached_property
    def cosines(self) -> Mapping[str, float]:
        """c = cos(h+, h-) by question id."""
        qids = self.benchmark.qids
        found = self.retriever.cosines([self.hypotheses[qid] for qid in qids])
        return dict(zip(qids, found, strict=True))

    @property
    def dev_cosines(self) -> np.ndarray:
        """c of the dev questions that choose, in the order of their ids."""
        bench = self.tuned_on or self
        return np.array([bench.cosines[qid] for qid in sorted(bench.benchmark.dev)])

    def arm(self, spec: SearchSpec, rule: Rule | None = None) -> SearchArm:
        """The search by ``spec``; with a ``rule`` each question gets its own lambda from its c."""

        def request(qid: str, draw: int) -> Hypotheses:
            own = replace(spec, draw=draw)
            if rule is not None:
                own = replace(own, lam=float(rule(np.array([self.cosines[qid]]))[0]))
            return replace(self.hypotheses[qid], spec=own)

        draws = DRAWS if rule is None and is_control(spec) else 1
        return SearchArm(name_of(spec, rule), request, draws, None if rule else spec)


_FINE = ("one mimic", "question added", "maximum of several")
"""Forms whose lambda is chosen among all steps of the profile."""

CONTROL_LAMBDAS = (0.0, 0.2, 0.4, 0.6, 1.0)
"""Where the controls' curves are measured: each point is twenty searches."""


def families(bench: OpenBenchmark) -> list[SearchSpec]:
    """Every curve over lambda that the benchmark can show; lambda is still to be set.

    Add a control: one ``SearchSpec`` here.
    """
    benchmark = bench.benchmark
    specs = [SearchSpec()]
    specs += [SearchSpec(mimic=kind) for kind in benchmark.h_minus if kind != "nearest"]
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
    return _that_run(bench, specs)


def _that_run(bench: OpenBenchmark, specs: Iterable[SearchSpec]) -> list[SearchSpec]:
    """Those that the benchmark's index can search with; the others are said to be NOT RUN."""
    left = []
    for spec in specs:
        if bench.retriever.index.approximate and spec.needs_every_passage:
            say_once(
                f"{bench.benchmark.name}, {family_of(spec)}: NOT RUN, it needs every passage, and "
                'codes give candidates only. Next: backend = "torch" in the profile'
            )
        else:
            left.append(spec)
    return left


def steps(spec: SearchSpec, lambdas: Sequence[float]) -> list[SearchSpec]:
    """A family at every lambda that it is measured at: a control's are fewer."""
    if is_control(replace(spec, lam=1.0)):
        lambdas = [lam for lam in lambdas if lam in CONTROL_LAMBDAS]
    return [replace(spec, lam=float(lam)) for lam in lambdas]


def candidates(bench: OpenBenchmark) -> dict[str, list[SearchArm]]:
    """The arms that dev chooses among, by form: every form with its own parameters.

    In each list smaller lambdas come first, so that the first of equals has the smallest. Without
    dev questions there are no rules.
    """
    fine = sorted(bench.lambdas)
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
    if bench.benchmark.several:
        forms |= {
            "mean of several": [SearchSpec(form="mean", mimic=SEVERAL)],
            "maximum of several": [SearchSpec(form="max", mimic=SEVERAL)],
            "softmax of several": [
                SearchSpec(form="softmax", mimic=SEVERAL, tau=tau) for tau in (0.02, 0.05, 0.2)
            ],
        }
    found = {}
    for form, specs in forms.items():
        tried = fine if form in _FINE else coarse
        if left := _that_run(bench, specs):
            found[form] = [bench.arm(replace(s, lam=float(lam))) for lam in tried for s in left]
    return found | (rules(bench) if len(bench.dev_cosines) else {})


def rules(bench: OpenBenchmark) -> dict[str, list[SearchArm]]:
    """The rules that turn c into a lambda for each question, with the parameters dev may choose.

    In each list the weaker contrast comes first, so that the first of equals is the weakest.
    """
    grid = (0.4, 0.6, 0.8, 1.0)
    # The larger gamma is, and the nearer rho is to 1, the smaller is lambda.
    gammas, rhos = (2.0, 1.0, 0.5), (0.98, 0.95, 0.9, 0.85, 0.8, 0.7, 0.5)
    dev_cosines = bench.dev_cosines
    made: Mapping[str, list[Rule]] = {
        "fixed": [fixed(x) for x in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)],
        "L1": [attenuated(m, g, dev_cosines) for m in grid for g in gammas],
        "L1 linear": [attenuated_linear(m, g, dev_cosines) for m in grid for g in gammas],
        "L2": [orthogonal(x) for x in grid],
        "L3": [drift_budget(1.0, r) for r in rhos],
    }
    return {name: [bench.arm(H_PLUS, rule) for rule in group] for name, group in made.items()}


def without_mimic(bench: OpenBenchmark, arm: SearchArm) -> SearchArm:
    """The same form at lambda 0: what it finds by itself, before any contrast."""
    return bench.arm(replace(arm.spec, lam=0.0) if arm.spec else H_PLUS)


def arms_on_test(bench: OpenBenchmark, dev: Mapping[str, SearchArm]) -> dict[str, SearchArm]:
    """Every arm that is measured on test questions, by name.

    The question alone, random passages, every family at every lambda, and what dev chose for each
    form, also at lambda 0, with the two controls at the lambda that dev chose for one mimic. Raises
    ValueError where two different searches would stand under one name.
    """
    specs = [QUESTION, RANDOM]
    for family in families(bench):
        specs += steps(family, bench.lambdas)
    if "one mimic" in dev:
        lam = dev["one mimic"].spec.lam
        specs += [SearchSpec(lam=lam, rotation=True), SearchSpec(lam=lam, mimic="stranger")]
    arms = [bench.arm(spec) for spec in specs]
    for arm in dev.values():
        arms += [arm, without_mimic(bench, arm)]
    named: dict[str, SearchArm] = {}
    for arm in arms:
        other = named.setdefault(arm.name, arm)
        if arm.spec and other.spec and at_zero(arm.spec) != at_zero(other.spec):
            raise ValueError(f"two searches have the name {arm.name}: {arm.spec} and {other.spec}")
    return named


# pairs --------------------------------------------------------------------------------------------

_P = "p_at_5"


def chosen_arms(dev: Mapping[str, SearchArm]) -> dict[str, str]:
    """What dev chose, as ``lib.study.declared_pairs`` takes it: the arm of each form, and its
    lambda under "<form>:lambda" (a rule has none)."""
    chosen = {form: arm.name for form, arm in dev.items()}
    return chosen | {f"{f}:lambda": f"{a.spec.lam:g}" for f, a in dev.items() if a.spec}


def exploratory_pairs(
    bench: OpenBenchmark, measured: Collection[str], dev: Mapping[str, SearchArm]
) -> list[Pair]:
    """Every comparison that a reader of the study asks for, of arms that were ``measured``.

    Contrast at the lambda dev chose, at 0.4 and at the paper's 1 against H+ alone, the two
    controls, and the question; then every form at what dev chose for it against H+ alone, and
    whatever else was measured at one of these lambdas.
    """
    lambdas = {0.4, 1.0}
    if "one mimic" in dev:
        lambdas.add(dev["one mimic"].spec.lam)
    wanted = []
    for lam in sorted(lambdas - {0.0}):
        contrast, turned, other = (f"chr{how}@{lam:g}" for how in ("", "+rotation", "+stranger"))
        wanted += [(contrast, arm, _P) for arm in ("hplus", turned, other, "question")]
        wanted += [(turned, "hplus", _P), (other, "hplus", _P)]
        wanted.append((f"chr+question1@{lam:g}", "hplus+question1", _P))
        wanted.append((contrast, "hplus", "mimic_at_5"))
    wanted += [("hplus", "question", _P), ("hplus+question1", "hplus", _P)]
    for arm in dev.values():
        # Against H+ alone, and against what the form finds without any contrast.
        wanted += [(arm.name, "hplus", _P), (arm.name, without_mimic(bench, arm).name, _P)]
    at_these = tuple(f"@{lam:g}" for lam in lambdas)
    wanted += [(arm, "hplus", _P) for arm in sorted(measured) if arm.endswith(at_these)]
    pairs = {}
    for arm, baseline, metric in wanted:
        if arm != baseline and {arm, baseline} <= set(measured):
            pairs[arm, baseline, metric] = Pair(f"{arm} > {baseline}", metric, arm, baseline)
    return list(pairs.values())
