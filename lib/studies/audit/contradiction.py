"""The derived numbers of the contradiction study: drops, documents per query, shares over time."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from lib.studies.audit.arithmetic import Range, change, exactly, mean
from lib.studies.audit.reported import IN_TENSION, Tables, family, finding, holds, judge

__all__ = ["CHECKS"]

_T1, _T2, _T3, _FIG2 = (
    f"contradiction_{x}" for x in ("table1", "table2", "table3", "fig2_heatmap")
)
_CONDITIONS = ("most_similar", "most_contradictory", "least_contradictory")
_LOW, _HIGH = ("[0,0.2)", "[0.2,0.4)"), ("[0.6,0.8)", "[0.8,1]")


def _scores(t: Tables, metric: str) -> dict[str, tuple[Range, Range, Range]]:
    """By model: most similar, most contradictory, least contradictory."""
    found = {}
    for m in t.values(_T2, "model"):
        own = t.numbers(_T2, "retrieval", model=m, metric=metric)
        found[m] = tuple(own[c] for c in _CONDITIONS)
    return found


def _queries(t: Tables) -> Iterable[dict]:
    one, each = t.numbers(_T1, "statistic", metric="count"), t.said("contra.queries_each").middle
    asked = one["medicines_tga"].middle * each
    yield from family(t, "contra.queries", [("", one["queries"], exactly(asked))], spec=".0f")
    told, selected = t.number(_T1, metric="mean"), one["pmids_after_selection"]
    some, pool = one["medicines_with_documents"], t.said("contra.pool").middle
    low = selected.middle / (some.middle * each)
    yield finding(
        t,
        "contra.documents",
        told,
        f"{float(low):.2f} or more",
        judge(low <= told.high and told.low <= pool),
        f"{selected} selected ÷ {told} = {selected / told:,.0f} queries, but {some} medicines × "
        f"{each} = {int(some.middle * each):,} at most; over all {one['queries']} queries the mean "
        f"is {float(selected.middle / asked):.2f}; at most {pool} a query",
    )
    first, last = (t.number(_T1, statistic=f"abstract_year_{x}").middle for x in ("first", "last"))
    gap, years = t.said("contra.gap").middle, t.said("contra.years").middle
    fit = 1 + (last - first) // gap
    yield finding(
        t,
        "contra.years",
        f"{years} years, gap {gap}",
        f"{fit} years fit",
        judge(True, fit < years),
        f"{first} to {last} are {1 + last - first} years; {years} with gap {gap} need "
        f"{1 + (years - 1) * gap}",
    )


def _drops(t: Tables) -> Iterable[dict]:
    fall = {}
    for metric in ("rouge1", "bert_cosine"):
        told, own = t.said(f"contra.drop.{metric}"), _scores(t, metric)
        fall[metric] = {m: change(s[0], s[1]) * -1 for m, s in own.items()}
        similar, contrary = (mean([s[i] for s in own.values()]) for i in (0, 1))
        average, whole = mean(list(fall[metric].values())), change(similar, contrary) * -1
        yield finding(
            t,
            "contra.drop.average",
            told,
            f"{average:.1f} (or {whole:.1f})",
            judge(told.meets(average) or told.meets(whole)),
            f"rounding leaves {average.span('.1f')} (or {whole.span('.1f')}): "
            + "; ".join(f"{m} {x:.1f}" for m, x in fall[metric].items()),
            metric,
            metric=metric,
        )
    rouge, gpt = fall["rouge1"], "GPT-OSS-20B"
    members = [(m, t.said(f"contra.drop.{m}"), rouge[m]) for m in ("Mixtral-8x7B", gpt)]
    yield from family(t, "contra.drop.models", members, spec=".1f")
    cases = {m: (f"{x:.1f} %", x.high >= rouge[gpt].low) for m, x in rouge.items() if m != gpt}
    yield holds(
        t,
        "contra.most_stable",
        cases,
        told=f"{t.said(f'contra.drop.{gpt}')} %",
        note=f"{gpt} {rouge[gpt]:.1f} %",
    )


def _conditions(t: Tables) -> Iterable[dict]:
    kld = _scores(t, "kld")
    cases = {m: (f"{ms} to {mc}", mc.may_exceed(ms)) for m, (ms, mc, _) in kld.items()}
    yield holds(t, "contra.kld", cases)
    cases = {
        m: (f"{ms}, {lc}, {mc}", ms.may_exceed(lc) and lc.may_exceed(mc))
        for m, (ms, mc, lc) in _scores(t, "rouge1").items()
    }
    yield holds(t, "contra.least", cases)
    cases = {}
    for metric in t.values(_T2, "metric"):
        similar = {m: s[0] for m, s in _scores(t, metric).items()}
        sign = -1 if metric in ("jsd", "kld") else 1
        best = max(similar, key=lambda m: sign * similar[m].middle)  # noqa: B023
        cases[metric] = (f"best {best} {similar[best]}", best == "Mixtral-8x7B")
    yield holds(t, "contra.mixtral", cases, IN_TENSION)


def _totals(t: Tables) -> Iterable[dict]:
    bins = t.values(_T3, "cnt_bin")
    three, two = (
        {b: sum(int(r["value"]) for r in t.rows(name, cnt_bin=b)) for b in bins}
        for name in (_T3, _FIG2)
    )
    n3, n2, less = sum(three.values()), sum(two.values()), [three[b] - two[b] for b in bins]
    yield finding(
        t,
        "contra.figure2.total",
        f"{n3:,}",
        f"{n2:,}",
        judge(min(less) >= 0, n3 != n2),
        f"{n3 - n2} documents fewer in the figure; by row: {', '.join(map(str, less))}",
    )
    unique, every = (t.number(_T1, statistic=s) for s in ("unique_pmids", "pmids_after_selection"))
    yield finding(
        t,
        "contra.table3.unique",
        f"{n3:,}",
        f"{unique} unique, {every} selected",
        judge(n3 <= every.middle, n3 != every.middle),
        f"{unique} less {n3:,} = {int(unique.middle) - n3}",
    )
    top, pairs = max(t.rows(_T3), key=lambda r: int(r["value"])), t.said("contra.pairs")
    peak = [("", t.said("contra.peak"), exactly(int(top["value"])))]
    yield from family(t, "contra.table3.peak", peak, spec=".0f")
    yield finding(
        t,
        "contra.pairs",
        f"over {pairs}",
        f"{top['value']} documents",
        judge(True, 0 <= int(top["value"]) - pairs.middle < 100),
        f"Table 3's largest cell: CNT {top['cnt_bin']}, S {top['score_bin']}",
    )


def _time(t: Tables) -> Iterable[dict]:
    low, high = {}, {}
    for year in t.values(_FIG2, "year_bin"):
        cells = {b: x.middle for b, x in t.numbers(_FIG2, "cnt_bin", year_bin=year).items()}
        low[year], high[year] = (
            Fraction(100) * sum(cells[b] for b in some) / sum(cells.values())
            for some in (_LOW, _HIGH)
        )
    first, *later = high
    yield finding(
        t,
        "contra.figure2.before",
        "most",
        f"{float(low[first]):.1f} % in the lowest two",
        judge(high[first] < 50, low[first] <= 50),
        f"lowest two {float(low[first]):.1f} %, highest two {float(high[first]):.1f} %, middle "
        f"{float(100 - low[first] - high[first]):.1f} %",
    )
    cases = {
        b: (f"{float(high[b]):.1f} %", high[b] >= high[a])
        for a, b in zip(later, later[1:], strict=False)
    }
    yield holds(t, "contra.figure2.rises", cases, note=f"{later[0]}: {float(high[later[0]]):.1f} %")
    cases = {y: (f"{float(high[y]):.1f} %", high[y] >= 45) for y in later if y >= "2010"}
    yield holds(t, "contra.figure2.half", cases)


CHECKS = [_queries, _drops, _conditions, _totals, _time]
