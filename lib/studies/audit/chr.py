"""The derived claims of the CHR paper, but for Table 2 (``overlap``) and single ``margins``."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from lib.studies.audit.arithmetic import counts, exactly, mean
from lib.studies.audit.margins import BASELINES, DATASETS, GENERATORS, accuracy, size
from lib.studies.audit.reported import IN_TENSION, Tables, family, finding, holds, judge

__all__ = ["CHECKS"]

_COST, _RATED, _LAMBDA = "chr_table3_cost", "chr_table4_mimic_quality", "chr_fig5_lambda"
_METHODS = (*BASELINES, "CHR")
_SETTINGS = [(g, d) for g in GENERATORS for d in DATASETS]


def _averages(t: Tables) -> Iterable[dict]:
    members = []
    for g, m in ((g, m) for g in GENERATORS for m in _METHODS):
        told = t.number("chr_table1_accuracy", generator=g, method=m, dataset="Avg.")
        members.append((f"{g}, {m}", told, mean([accuracy(t, g, m, d) for d in DATASETS])))
    # 68.1 is not the mean of the three printed numbers, but may be that of what they stand for.
    yield from family(t, "chr.table1.averages", members, apart=[f"{GENERATORS[-1]}, CHR"])


def _wins(t: Tables) -> Iterable[dict]:
    told, n = t.said("chr.comparisons"), len(_SETTINGS) * len(BASELINES)
    yield finding(
        t,
        "chr.table1.comparisons",
        told,
        n,
        judge(told.meets(exactly(n))),
        f"{len(GENERATORS)} generators × {len(DATASETS)} data sets × {len(BASELINES)} baselines = "
        f"{n}; Table 1 has {len(GENERATORS) * len(_METHODS)} rows, with CHR's own",
    )
    cells = {
        f"{g}, {d}, {b}": (accuracy(t, g, "CHR", d), accuracy(t, g, b, d))
        for g, d in _SETTINGS
        for b in BASELINES
    }
    wins = {k: (f"{a} against {b}", a.may_exceed(b)) for k, (a, b) in cells.items()}
    yield holds(t, "chr.table1.best", wins)
    lead = {}
    for g, d in _SETTINGS:
        best = max((accuracy(t, g, b, d) for b in BASELINES), key=lambda x: x.middle)
        lead[g, d] = accuracy(t, g, "CHR", d) - best
    top = max(lead, key=lambda key: lead[key].middle)
    members = [
        (f"largest: {', '.join(top)}", t.said("chr.gain.best"), lead[top]),
        ("Llama on MedQA", t.said("chr.gain.medqa_llama"), lead[_SETTINGS[1]]),
    ]
    yield from family(t, "chr.text.gains", members, spec=".1f")
    most = {}
    for g in GENERATORS:
        own = {d: lead[g, d] for d in DATASETS}
        beaten = any(x.low > own[DATASETS[-1]].high for x in own.values())
        most[g] = (", ".join(f"{d} {x:.1f}" for d, x in own.items()), not beaten)
    yield holds(t, "chr.text.bioasq", most)


def _bioasq(t: Tables) -> Iterable[dict]:
    d = DATASETS[-1]
    n, yes = size(t, d), t.said(f"yes.{d}")
    always = yes / exactly(n) * 100
    cells = {f"{g}, {m}": accuracy(t, g, m, d) for g in GENERATORS for m in _METHODS}
    ours = {k: x for k, x in cells.items() if k.endswith("CHR")}
    note = f"always yes: {yes} of {n} = {always:.1f} %"
    for id, some, bound in (
        ("yes", cells, always),
        ("yes_chr", ours, always),
        ("half", cells, exactly(50)),
    ):
        cases = {k: (f"{x}", x.may_exceed(bound)) for k, x in some.items()}
        yield holds(t, f"chr.bioasq.{id}", cases, IN_TENSION, note, f"{len(some)} accuracies")
    whole = {}
    for k, x in cells.items():
        near = {c: exactly(Fraction(100 * c, n)) for c in counts(x, n)}
        text = " or ".join(f"{c}/{n} = {share:.2f}" for c, share in near.items())
        whole[k] = (f"{x}: {text}", any(x.meets(share) for share in near.values()))
    yield holds(t, "chr.bioasq.whole", whole, IN_TENSION, told=f"{len(cells)} accuracies")


def _lambda(t: Tables) -> Iterable[dict]:
    told = t.values(_LAMBDA, "kind", series="CHR")
    kinds = {k: t.numbers(_LAMBDA, "lambda", series="CHR", kind=k) for k in told}
    table1, hyde = (accuracy(t, GENERATORS[-1], m, "MedQA-US") for m in ("CHR", "HyDE"))
    low, flat, exact = (kinds.get(k, {}) for k in ("upper_bound", "lower_bound", "exact"))
    yield finding(
        t,
        "chr.lambda.low",
        "no value",
        f"HyDE {hyde}",
        judge(True),
        f"λ = {', '.join(low)}: said to be below HyDE; a bound contradicts nothing",
    )
    cases = {f"λ = {x}": (f"above {v}, HyDE {hyde}", v.high >= hyde.low) for x, v in flat.items()}
    note = (
        "a value between the bound and HyDE is above the one and below the other; as a bound it "
        "contradicts nothing, as the plateau's lowest value it would"
    )
    told = " and ".join(f"above {x}" for x in sorted({f"{v}" for v in flat.values()}))
    yield holds(t, "chr.lambda.plateau", cases, IN_TENSION, note, told)
    peak = max(exact, key=lambda x: exact[x].middle)
    yield finding(
        t,
        "chr.lambda.peak",
        f"{exact[peak]} at λ = {peak}",
        f"{table1} in Table 1",
        judge(exact[peak].meets(table1)),
        f"peak less HyDE: {exact[peak] - hyde:.1f} points",
    )


def _cost(t: Tables) -> Iterable[dict]:
    tokens = t.numbers(_COST, "method", metric="output_tokens")
    told = t.numbers(_COST, "method", metric="token_reduction_vs_hyde", kind="exact")
    members = [(m, x, tokens["HyDE"] / tokens[m]) for m, x in told.items()]
    yield from family(t, "chr.table3.reductions", members)
    cases = {m: (f"{tokens[m]}", tokens[m].may_exceed(tokens["CHR"])) for m in told if m != "CHR"}
    yield holds(t, "chr.table3.cheapest", cases, told=f"{tokens['CHR']}")
    texts, calls = t.said("chr.hyde_texts"), t.number(_COST, metric="llm_calls", method="HyDE")
    yield finding(
        t,
        "chr.table3.hyde",
        f"{texts} text in Table 1",
        f"{calls} calls in Table 3",
        judge(True, not texts.meets(calls)),
        f"one text a call: {texts} and {calls}",
    )


def _quality(t: Tables) -> Iterable[dict]:
    from scipy.stats import fisher_exact

    tiers = {q: t.numbers(_RATED, "metric", quality=q) for q in ("Excellent", "Good", "Poor")}
    sampled, out, rated = (
        t.number(_RATED, quality=q) for q in ("sampled", "excluded", "evaluated")
    )
    members = [(q, x["accuracy"], x["correct"] / x["n"] * 100) for q, x in tiers.items()]
    members += [
        ("rated", rated, exactly(sum(x["n"].middle for x in tiers.values()))),
        ("sampled less excluded", rated, sampled - out),
    ]
    yield from family(t, "chr.table4.sums", members)
    right = {q: (int(x["correct"].middle), int(x["n"].middle)) for q, x in tiers.items()}
    ends = [[a, n - a] for a, n in (right["Excellent"], right["Poor"])]
    p = float(fisher_exact(ends).pvalue)
    yield finding(
        t,
        "chr.table4.trend",
        " > ".join(f"{x['accuracy']}" for x in tiers.values()),
        f"Excellent against Poor p = {p:.2f}",
        judge(True, p > 0.05),
        "; ".join(f"{q} {a} of {n}" for q, (a, n) in right.items())
        + f"; Fisher's exact test p = {p:.3f}",
    )
    three = t.said("chr.generators")
    each, rest = divmod(int(sampled.middle), int(three.middle))
    yield finding(
        t,
        "chr.table4.equal",
        f"{sampled} items",
        f"{each} each and {rest} over",
        judge(True, rest > 0),
        f"{sampled} = {three} × {each} + {rest}",
    )


def _corpus(t: Tables) -> Iterable[dict]:
    said = t.said("chr.chunks")
    whole = t.number("rag2_tableA1", collection="MedCorp", corpus="Total", metric="chunks")
    yield finding(
        t,
        "chr.corpus",
        f"{said} million",
        f"{whole} million (RAG² Table A1)",
        judge(True, not said.meets(whole)),
        f"{whole} ÷ {said} = {whole / said:.1f}",
    )


CHECKS = [_averages, _wins, _bioasq, _lambda, _cost, _quality, _corpus]
