"""CHR's Table 2: what its overlap "ratio" can be, and which questions its n = 587 can be."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from lib.studies.audit.arithmetic import Range, counts, exactly, mcnemar, mean
from lib.studies.audit.margins import GENERATORS, accuracy, more, size
from lib.studies.audit.reported import Tables, family, finding, judge

__all__ = ["CHECKS"]

_SETS = {"MMLU-Med": "MMLU-Med", "MedQA": "MedQA-US", "BioASQ": "BioASQ-Y/N"}
"""Names of Table 2, and of Table 1."""


def _table(t: Tables, metric: str) -> dict[str, Range]:
    return t.numbers("chr_table2_overlap", "dataset", metric=metric)


def _ratio(t: Tables) -> Iterable[dict]:
    k = t.said("chr.top_k").middle
    overlap, zero = _table(t, "mean_overlap"), _table(t, "zero_overlap")
    some = {s: exactly(1) - x * Fraction(1, 100) for s, x in zero.items()}
    ratios = {s: x.low <= some[s].high for s, x in overlap.items()}
    for s, x in overlap.items():
        yield finding(
            t,
            "chr.table2.ratio",
            x,
            f"at most {some[s]:.3f}",
            judge(ratios[s]),
            f"{zero[s]} % of cases share nothing and have ratio 0, the others at most 1: the mean "
            f"is at most 1 − {zero[s]}/100 = {some[s]:.3f} ({some[s].span('.4f')} with rounding); "
            f"{x} stands for {x.span('.3f')}",
            s.split("-")[0],
            set=s,
        )
    fits = [some[s].low <= x.high and x.low <= k * some[s].high for s, x in overlap.items()]
    yield finding(
        t,
        "chr.table2.count",
        "called a ratio",
        "fits" if all(fits) else "does not fit",
        judge(all(fits), not all(ratios.values())),
        f"a case that shares something shares 1 to {k} documents: "
        + "; ".join(
            f"{s} {some[s]:.3f} ≤ {x} ≤ {float(k * some[s].middle):.3f}" for s, x in overlap.items()
        ),
    )


def _combined(t: Tables) -> Iterable[dict]:
    n = {s: x.middle for s, x in _table(t, "n").items()}
    members = [("n", _table(t, "n")["Combined"], exactly(sum(n[s] for s in _SETS)))]
    for metric in ("zero_overlap", "mean_overlap"):
        own = _table(t, metric)
        again = mean([own[s] for s in _SETS], [n[s] for s in _SETS])
        members.append((metric, own["Combined"], again))
    yield from family(t, "chr.table2.combined", members, spec=".3f")


def _cases(t: Tables, generator: str, dataset: str) -> tuple[int, int]:
    """Least and most questions that CHR has right and HyDE wrong: CHR's right answers less HyDE's,
    and what CHR has right or HyDE wrong."""
    n = size(t, dataset)
    ours, theirs = (counts(accuracy(t, generator, m, dataset), n) for m in ("CHR", "HyDE"))
    return max(0, more(t, generator, "HyDE", dataset)[0]), min(ours[-1], n - theirs[0])


def _pool(t: Tables) -> Iterable[dict]:
    told = _table(t, "n")
    bounds = {reading: {} for reading in ("sum", "union", "two", "all", *GENERATORS)}
    for s, d in _SETS.items():
        n, one = size(t, d), {g: _cases(t, g, d) for g in GENERATORS}
        low, high = zip(*one.values(), strict=True)
        bounds["sum"][s] = sum(low), sum(high)
        bounds["union"][s] = max(low), min(n, sum(high))
        bounds["two"][s] = max(0, -((n - sum(low)) // 2)), min(n, sum(high) // 2)
        bounds["all"][s] = max(0, sum(low) - 2 * n), min(high)
        for g in GENERATORS:
            bounds[g][s] = one[g]
    for reading, bound in bounds.items():
        wrong = [s for s, (low, high) in bound.items() if not low <= told[s].middle <= high]
        alone = reading in GENERATORS
        yield finding(
            t,
            "chr.pool.one" if alone else f"chr.pool.{reading}",
            " + ".join(f"{told[s]}" for s in _SETS) + f" = {told['Combined']}",
            f"does not fit {', '.join(wrong)}" if wrong else "fits Table 1",
            judge(not wrong, reading not in ("sum", "union")),
            "cases that Table 1 allows (at least CHR's right answers less HyDE's): "
            + "; ".join(f"{s} {a} to {b}, {told[s]} printed" for s, (a, b) in bound.items()),
            reading.split("-")[0] if alone else "",
            **({"generator": reading} if alone else {}),
        )


def _implied(t: Tables) -> Iterable[dict]:
    """If the cases are one generator's, they are CHR's wins, and so fix the p-value."""
    told = {s: int(_table(t, "n")[s].middle) for s in _SETS}
    for g in GENERATORS:
        gain = {s: more(t, g, "HyDE", d)[1] for s, d in _SETS.items()}
        if any(not gain[s] <= told[s] <= _cases(t, g, d)[1] for s, d in _SETS.items()):
            continue
        p = {s: mcnemar(told[s], told[s] - gain[s]) for s in _SETS}
        yield finding(
            t,
            "chr.pool.p",
            "no test",
            ", ".join(f"{s} p = {x:.2g}" for s, x in p.items()),
            judge(True, max(p.values()) > 0.05),
            "; ".join(f"{s}: {told[s]} wins, {told[s] - gain[s]} losses" for s in _SETS),
            g.split("-")[0],
            generator=g,
        )


CHECKS = [_ratio, _combined, _pool, _implied]
