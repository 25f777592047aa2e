"""The derived numbers of the contradiction study: drops, documents per query, shares over time."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from lib.studies.audit.arithmetic import Range, exactly, mean, relative_change
from lib.studies.audit.reported import (
    IN_TENSION,
    Case,
    Comparison,
    Tables,
    compare_all,
    finding,
    holds_for_all,
    judge,
)

_STATISTICS = "contradiction_table1"
_SCORES = "contradiction_table2"
_FREQUENCIES = "contradiction_table3"
_HEATMAP = "contradiction_fig2_heatmap"

_SIMILAR = "most_similar"
_CONTRADICTORY = "most_contradictory"
_LEAST = "least_contradictory"
"""The three conditions: which documents a model was given."""

_LOW_BINS = ("[0,0.2)", "[0.2,0.4)")
_HIGH_BINS = ("[0.6,0.8)", "[0.8,1]")
_LOWER_IS_BETTER = ("jsd", "kld")
_GPT = "GPT-OSS-20B"


def _scores(tables: Tables, metric: str) -> dict[str, dict[str, Range]]:
    """By model, then by condition: a measure of Table 2."""
    return {
        model: tables.numbers(_SCORES, "retrieval", model=model, metric=metric)
        for model in tables.values(_SCORES, "model")
    }


def _falls(tables: Tables, metric: str) -> dict[str, Range]:
    """By model: how much a measure falls from most similar to most contradictory, in percent."""
    return {
        model: relative_change(scores[_SIMILAR], scores[_CONTRADICTORY]) * -1
        for model, scores in _scores(tables, metric).items()
    }


def _queries(tables: Tables) -> Iterable[dict]:
    """Do medicines, queries and documents of Table 1 fit each other?"""
    count = tables.numbers(_STATISTICS, "statistic", metric="count")
    queries_each = tables.text_number("contra.queries_each").middle
    queries = count["medicines_tga"].middle * queries_each
    yield from compare_all(
        tables,
        "contra.queries",
        [Comparison("", count["queries"], exactly(queries))],
        spec=".0f",
    )

    printed_mean = tables.number(_STATISTICS, metric="mean")
    selected = count["pmids_after_selection"]
    medicines = count["medicines_with_documents"]
    most_per_query = tables.text_number("contra.pool").middle
    most_queries = int(medicines.middle * queries_each)
    least_mean = selected.middle / most_queries
    # Table 3 and Figure 2 count fewer documents than were selected; the mean may count theirs.
    unique = count["unique_pmids"].middle
    kept = {
        place: least_mean * sum(int(row["value"]) for row in tables.rows(name)) / unique
        for place, name in (("Table 3", _FREQUENCIES), ("Figure 2", _HEATMAP))
    }
    fewer = "; ".join(f"{place}'s share of them {float(n):.2f}" for place, n in kept.items())
    in_pool = printed_mean.low <= most_per_query
    yield finding(
        tables,
        "contra.documents",
        printed=printed_mean,
        recomputed=f"{float(least_mean):.2f} or more",
        verdict=judge(
            in_pool and min(kept.values()) <= printed_mean.high,
            strained=least_mean > printed_mean.high,
        ),
        working=f"{medicines} medicines × {queries_each} = {most_queries:,} queries at most, so "
        f"{selected} selected are {float(least_mean):.2f} a query or more ({fewer}); at "
        f"{printed_mean} they would be of {selected / printed_mean:,.0f} queries; over all "
        f"{count['queries']} queries the mean is {float(selected.middle / queries):.2f}; at most "
        f"{most_per_query} a query",
    )


def _years(tables: Tables) -> Iterable[dict]:
    """Do twenty years, three years apart, fit into the span of the abstracts?"""
    first = tables.number(_STATISTICS, statistic="abstract_year_first").middle
    last = tables.number(_STATISTICS, statistic="abstract_year_last").middle
    gap = tables.text_number("contra.gap").middle
    years = tables.text_number("contra.years").middle
    fitting = 1 + (last - first) // gap
    yield finding(
        tables,
        "contra.years",
        printed=f"{years} years, gap {gap}",
        recomputed=f"{fitting} years fit",
        verdict=judge(True, strained=fitting < years),
        working=f"{first} to {last} are {1 + last - first} years; {years} with gap {gap} need "
        f"{1 + (years - 1) * gap}",
    )


def _average_falls(tables: Tables) -> Iterable[dict]:
    """Is the average fall that the text quotes an average of the five models' falls?

    CONSISTENT if it is the mean of the five falls, or the fall of the five models' mean. If it is
    neither, but lies between the smallest and the largest fall, some weighting of the models gives
    it: IN TENSION, for the paper names no weighting. Outside, no weighting does: IMPOSSIBLE.
    """
    for metric in ("rouge1", "bert_cosine"):
        printed = tables.text_number(f"contra.drop.{metric}")
        scores = _scores(tables, metric).values()
        falls = _falls(tables, metric)
        mean_of_falls = mean(list(falls.values()))
        mean_similar = mean([score[_SIMILAR] for score in scores])
        mean_contradictory = mean([score[_CONTRADICTORY] for score in scores])
        fall_of_means = relative_change(mean_similar, mean_contradictory) * -1

        is_plain_mean = printed.may_equal(mean_of_falls) or printed.may_equal(fall_of_means)
        least = min(falls, key=lambda model: falls[model].middle)  # noqa: B023
        most = max(falls, key=lambda model: falls[model].middle)  # noqa: B023
        between = Range(falls[least].low, falls[most].high)
        working = (
            f"rounding leaves {mean_of_falls.span('.1f')} (or {fall_of_means.span('.1f')}): "
            + "; ".join(f"{model} {fall:.1f}" for model, fall in falls.items())
        )
        if not is_plain_mean and printed.may_equal(between):
            working += (
                f". {printed} is not below the fall of {least} nor above that of {most}, so it is "
                "a mean in which some models count more. Or the mean of every query's own fall, "
                "which Table 2 does not fix"
            )
            alone = [model for model, fall in falls.items() if printed.may_equal(fall)]
            if alone:
                working += f". It is the fall of {' and of '.join(alone)} alone"
        yield finding(
            tables,
            "contra.drop.average",
            printed=printed,
            recomputed=f"{mean_of_falls:.1f} (or {fall_of_means:.1f})",
            verdict=judge(printed.may_equal(between), strained=not is_plain_mean),
            working=working,
            name=metric,
            metric=metric,
        )


def _falls_of_models(tables: Tables) -> Iterable[dict]:
    """Are the falls quoted of single models those of Table 2?"""
    falls = _falls(tables, "rouge1")
    comparisons = [
        Comparison(model, tables.text_number(f"contra.drop.{model}"), falls[model])
        for model in ("Mixtral-8x7B", _GPT)
    ]
    yield from compare_all(tables, "contra.drop.models", comparisons, spec=".1f")


def _most_stable(tables: Tables) -> Iterable[dict]:
    """Is GPT-OSS the most consistent model?

    The text quotes its fall of ROUGE-1. CONSISTENT if no model falls less by that measure. IN
    TENSION if one does, but GPT-OSS changes least by another measure of Table 2: the sentence may
    mean that one. IMPOSSIBLE if it changes least by none.
    """
    falls = _falls(tables, "rouge1")
    cases = {
        model: Case(f"{fall:.1f} %", fall.high >= falls[_GPT].low)
        for model, fall in falls.items()
        if model != _GPT
    }
    metrics = tables.values(_SCORES, "metric")
    first_by = [metric for metric in metrics if _changes_least(tables, _GPT, metric)]
    note = f"{_GPT} {falls[_GPT]:.1f} %"
    if first_by:
        by_name = ", ".join(
            f"{model} {fall:.1f}" for model, fall in _falls(tables, first_by[0]).items()
        )
        note = (
            f"by {len(first_by)} of Table 2's {len(metrics)} measures ({', '.join(first_by)}) it "
            f"changes least ({first_by[0]} falls by, in %: {by_name}), so the statement is not "
            f"plainly false. But the number printed beside it is the fall of ROUGE-1: {note}"
        )
    yield holds_for_all(
        tables,
        "contra.most_stable",
        cases,
        otherwise=judge(bool(first_by), strained=True),
        printed=f"{tables.text_number(f'contra.drop.{_GPT}')} %",
        note=note,
    )


def _changes_least(tables: Tables, model: str, metric: str) -> bool:
    """Whether no model's measure changes less, up or down, between the two conditions.

    Of the printed numbers as they stand; rounding is not allowed for.
    """
    change = {name: abs(fall.middle) for name, fall in _falls(tables, metric).items()}
    return change[model] == min(change.values())


def _divergence(tables: Tables) -> Iterable[dict]:
    """Is KLD "consistently" higher with contradictory documents?

    Of every model, it is not. IN TENSION while it holds of the models' mean, as the statement may
    be meant; IMPOSSIBLE if not even that is higher.
    """
    scores = _scores(tables, "kld")
    cases = {
        model: Case(
            f"{score[_SIMILAR]} to {score[_CONTRADICTORY]}",
            score[_CONTRADICTORY].may_exceed(score[_SIMILAR]),
        )
        for model, score in scores.items()
    }
    similar = mean([score[_SIMILAR] for score in scores.values()])
    contradictory = mean([score[_CONTRADICTORY] for score in scores.values()])
    mean_rises = contradictory.may_exceed(similar)
    yield holds_for_all(
        tables,
        "contra.kld",
        cases,
        otherwise=judge(mean_rises, strained=True),
        note=f"mean of the models {similar:.3f} to {contradictory:.3f}: "
        + ("higher, so it holds on average" if mean_rises else "not higher on average either"),
    )


def _other_conditions(tables: Tables) -> Iterable[dict]:
    """Does the third condition lie between the two others, and is Mixtral the best?"""
    cases = {}
    for model, score in _scores(tables, "rouge1").items():
        in_order = score[_SIMILAR].may_exceed(score[_LEAST]) and score[_LEAST].may_exceed(
            score[_CONTRADICTORY]
        )
        numbers = f"{score[_SIMILAR]}, {score[_LEAST]}, {score[_CONTRADICTORY]}"
        cases[model] = Case(numbers, in_order)
    yield holds_for_all(tables, "contra.least", cases)

    cases = {}
    for metric in tables.values(_SCORES, "metric"):
        similar = {model: score[_SIMILAR] for model, score in _scores(tables, metric).items()}
        middles = {model: value.middle for model, value in similar.items()}
        choose = min if metric in _LOWER_IS_BETTER else max
        best = choose(middles, key=middles.__getitem__)
        cases[metric] = Case(f"best {best} {similar[best]}", best == "Mixtral-8x7B")
    yield holds_for_all(tables, "contra.mixtral", cases, IN_TENSION)


def _totals(tables: Tables) -> Iterable[dict]:
    """Do Table 3 and Figure 2 count the same documents, and are these all there are?"""
    bins = tables.values(_FREQUENCIES, "cnt_bin")
    in_table = {cnt_bin: _documents(tables, _FREQUENCIES, cnt_bin) for cnt_bin in bins}
    in_figure = {cnt_bin: _documents(tables, _HEATMAP, cnt_bin) for cnt_bin in bins}
    fewer = [in_table[cnt_bin] - in_figure[cnt_bin] for cnt_bin in bins]
    table_total = sum(in_table.values())
    figure_total = sum(in_figure.values())
    yield finding(
        tables,
        "contra.figure2.total",
        printed=f"{table_total:,}",
        recomputed=f"{figure_total:,}",
        verdict=judge(min(fewer) >= 0, strained=table_total != figure_total),
        working=f"{table_total - figure_total} documents fewer in the figure; by row: "
        f"{', '.join(map(str, fewer))}",
    )

    unique = tables.number(_STATISTICS, statistic="unique_pmids")
    selected = tables.number(_STATISTICS, statistic="pmids_after_selection")
    yield finding(
        tables,
        "contra.table3.unique",
        printed=f"{table_total:,}",
        recomputed=f"{unique} unique, {selected} selected",
        verdict=judge(table_total <= selected.middle, strained=table_total != selected.middle),
        working=f"{unique} less {table_total:,} = {int(unique.middle) - table_total}",
    )


def _documents(tables: Tables, name: str, cnt_bin: str) -> int:
    """How many documents a table has in one bin of the contradiction score."""
    return sum(int(row["value"]) for row in tables.rows(name, cnt_bin=cnt_bin))


def _largest_cell(tables: Tables) -> Iterable[dict]:
    """Is Table 3's largest cell the number that the text calls pairs?"""
    largest = max(tables.rows(_FREQUENCIES), key=lambda row: int(row["value"]))
    documents = int(largest["value"])
    yield from compare_all(
        tables,
        "contra.table3.peak",
        [Comparison("", tables.text_number("contra.peak"), exactly(documents))],
        spec=".0f",
    )

    pairs = tables.text_number("contra.pairs")
    rounds_to_pairs = 0 <= documents - pairs.middle < 100
    yield finding(
        tables,
        "contra.pairs",
        printed=f"over {pairs}",
        recomputed=f"{documents} documents",
        verdict=judge(True, strained=rounds_to_pairs),
        working=f"Table 3's largest cell: CNT {largest['cnt_bin']}, S {largest['score_bin']}",
    )


def _shares_over_time(tables: Tables) -> Iterable[dict]:
    """Does the share of the highest bins rise as the text says?"""
    low, high = {}, {}
    for period in tables.values(_HEATMAP, "year_bin"):
        low[period] = _share(tables, period, _LOW_BINS)
        high[period] = _share(tables, period, _HIGH_BINS)
    first, *later = high

    middle = 100 - low[first] - high[first]
    yield finding(
        tables,
        "contra.figure2.before",
        printed="most",
        recomputed=f"{float(low[first]):.1f} % in the lowest two",
        verdict=judge(high[first] < 50, strained=low[first] <= 50),
        working=f"lowest two {float(low[first]):.1f} %, highest two {float(high[first]):.1f} %, "
        f"middle {float(middle):.1f} %",
    )

    start = later[0]
    cases = {
        period: Case(f"{float(high[period]):.1f} %", high[period] >= high[before])
        for before, period in zip(later, later[1:], strict=False)
    }
    yield holds_for_all(
        tables,
        "contra.figure2.rises",
        cases,
        IN_TENSION,
        note=f"{first}: {float(high[first]):.1f} %; {start}: {float(high[start]):.1f} %",
    )

    cases = {
        period: Case(f"{float(high[period]):.1f} %", high[period] >= 45)
        for period in later
        if period >= "2010"
    }
    yield holds_for_all(tables, "contra.figure2.half", cases)


def _share(tables: Tables, period: str, bins: Iterable[str]) -> Fraction:
    """Percent of a period's documents that lie in some bins of the contradiction score."""
    documents = {
        cnt_bin: number.middle
        for cnt_bin, number in tables.numbers(_HEATMAP, "cnt_bin", year_bin=period).items()
    }
    in_bins = sum(documents[cnt_bin] for cnt_bin in bins)
    return Fraction(100) * in_bins / sum(documents.values())


CHECKS = [
    _queries,
    _years,
    _average_falls,
    _falls_of_models,
    _most_stable,
    _divergence,
    _other_conditions,
    _totals,
    _largest_cell,
    _shares_over_time,
]
