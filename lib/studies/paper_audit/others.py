"""The derived claims of the three other papers: RAG², SL-HyDE and the contradiction study."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from itertools import permutations

from lib.studies.paper_audit.printed import (
    CONSISTENT,
    IMPOSSIBLE,
    IN_TENSION,
    MISPRINT,
    Range,
    Row,
    Tables,
    averages,
    compare_all,
    exactly,
    finding,
    first_is_higher,
    holds_for_all,
    judge,
    lines_of,
    mean,
    relative_change,
    total,
)

# RAG² --------------------------------------------------------------------------------------------

_LLAMA = "Llama-3-8B-Instruct"
_MEERKAT = "Meerkat-7B"
_GPT = "GPT-4o"
_MODELS = (_LLAMA, _MEERKAT, _GPT)
_IN_MILLIONS = {"million": Fraction(1), "thousand": Fraction(1, 1000), "count": Fraction(1, 10**6)}
"""Table A1 prints parts in several units, and totals in millions (sizes are all in GB)."""

_QUOTED_GAINS = {
    f"{_LLAMA}, average": ("gain.Llama-3-8B-Instruct", _LLAMA, "Average"),
    f"{_MEERKAT}, average": ("gain.Meerkat-7B", _MEERKAT, "Average"),
    f"{_GPT}, average": ("gain.GPT-4o", _GPT, "Average"),
    f"{_LLAMA}, MMLU-Med": ("mmlu.Llama-3-8B-Instruct", _LLAMA, "MMLU-Med"),
    f"{_MEERKAT}, MMLU-Med": ("mmlu.Meerkat-7B", _MEERKAT, "MMLU-Med"),
}
"""Gains over no retrieval that the text quotes: id of the number, model, data set."""


def _gain(tables: Tables, model: str, dataset: str, over: str = "no retrieval") -> Range:
    """Points that RAG² gains over another row of Table 2."""
    ours, other = (
        tables.number("rag2_table2", model=model, method=method, dataset=dataset)
        for method in ("RAG2", over)
    )
    return ours - other


def _rag2_averages(tables: Tables) -> Iterable[Row]:
    """Is each row's average the mean of its three accuracies?"""
    lines = lines_of(tables.rows("rag2_table2"), ("model", "method"), "dataset")
    yield from compare_all(tables, "rag2.table2.averages", averages(lines, "Average"))


def _rag2_gains(tables: Tables) -> Iterable[Row]:
    """Are the gains that the text quotes those of the tables?"""
    pairs = {
        name: (tables.text_number(f"rag2.{id}"), _gain(tables, model, dataset))
        for name, (id, model, dataset) in _QUOTED_GAINS.items()
    }
    over_medrag = _gain(tables, _LLAMA, "Average", over="MedRAG")
    pairs["over MedRAG, Llama"] = tables.text_number("rag2.medrag"), over_medrag
    for dataset in ("MedQA", "MedMCQA"):
        ours, other = (
            tables.number("rag2_table3", filter=name, dataset=dataset)
            for name in ("Rationale-guided Filtering", "Adaptive-RAG")
        )
        printed = tables.text_number(f"rag2.filter.{dataset}")
        pairs[f"filter over Adaptive-RAG, {dataset}"] = printed, ours - other
    yield from compare_all(tables, "rag2.text.gains", pairs, spec=".1f")


def _order_of_gains(tables: Tables) -> Iterable[Row]:
    """Are three gains given "respectively" in the order of the models they are said of?

    The text on Table 2 names each with its model, so the right gains in a wrong order are a slip.
    """
    models = (_GPT, _LLAMA, _MEERKAT)
    printed = [tables.text_number(f"rag2.order.{model}") for model in models]
    gains = [_gain(tables, model, "Average") for model in models]
    fitting = [
        order
        for order in permutations(gains)
        if all(said.may_equal(gain) for said, gain in zip(printed, order, strict=True))
    ]
    as_printed = tuple(gains) in fitting
    lines = zip(models, printed, gains, strict=True)
    yield finding(
        tables,
        "rag2.text.order",
        printed=", ".join(f"{said:.1f}" for said in printed),
        recomputed=", ".join(f"{gain:.1f}" for gain in gains),
        verdict=CONSISTENT if as_printed else MISPRINT if fitting else IMPOSSIBLE,
        working="; ".join(
            f"{model}: {said} said, {gain:.1f} in Table 2" for model, said, gain in lines
        ),
    )


def _every_gain(tables: Tables) -> Iterable[Row]:
    """Does every model gain on every data set, and are the best gains those of Figure 3?"""
    gains = {
        (model, dataset): _gain(tables, model, dataset)
        for model in _MODELS
        for dataset in ("MedQA", "MedMCQA", "MMLU-Med")
    }
    cases = {", ".join(name): (f"{gain:+.1f}", gain.high >= 0) for name, gain in gains.items()}
    yield holds_for_all(tables, "rag2.text.every", cases, IN_TENSION)

    pairs = {
        ", ".join(name): (tables.text_number(f"rag2.figure3.{'.'.join(name)}"), gain)
        for name, gain in gains.items()
        if name[0] != _GPT and name[1] != "MMLU-Med"
    }
    yield from compare_all(tables, "rag2.figure3", pairs, spec=".1f", otherwise=IN_TENSION)


def _balanced(tables: Tables) -> Iterable[Row]:
    """Is balanced retrieval above MedRAG's everywhere?"""
    lines = lines_of(tables.rows("rag2_table4"), ("model", "dataset"), "retrieval")
    pairs = {name: (line["balanced retrieval"], line["MedRAG"]) for name, line in lines.items()}
    yield holds_for_all(tables, "rag2.table4.best", first_is_higher(pairs))


def _corpus_totals(tables: Tables) -> Iterable[Row]:
    """Are Table A1's totals the sums of the corpora?"""
    pairs = {}
    for collection in ("MedCorp", "RAG2 corpus"):
        for metric in ("raw_documents", "chunks", "index_size"):
            keys = {"collection": collection, "metric": metric}
            numbers = tables.numbers("rag2_tableA1", "corpus", **keys)
            printed = numbers.pop("Total")
            units = {row["corpus"]: row["unit"] for row in tables.rows("rag2_tableA1", **keys)}
            parts = [
                number * _IN_MILLIONS.get(units[corpus], 1) for corpus, number in numbers.items()
            ]
            pairs[f"{collection}, {metric}"] = printed, total(parts)
    yield from compare_all(tables, "rag2.tableA1.totals", pairs)


# SL-HyDE -----------------------------------------------------------------------------------------

_TASKS = {
    "Knowledge": ("MedExam", "DuBaike", "DXYDisease"),
    "Consultation": ("MedicalRetrieval", "CmedqaRetrieval", "DXYConsult"),
    "News": ("CovidRetrieval",),
    "Post": ("IIYiPost",),
    "Literature": ("CSLCite", "CSLRel"),
}
"""The tasks, and the data sets of each."""
_DATASETS = [dataset for datasets in _TASKS.values() for dataset in datasets]
_WITH_HYPOTHESES = "with hypothetical documents"
"""The second part of Table 2; the first are the base retrievers."""
_TABLES = {
    "2": (("part", "model"), "dataset"),
    "8": (("model",), "dataset"),
    "12": (("model",), "dataset"),
    "13": (("configuration", "method"), "dataset"),
    "3": (("configuration", "method"), "task"),
    "4": (("configuration", "method"), "task"),
    "5": (("configuration", "method"), "task"),
    "6": (("configuration", "method"), "task"),
}
"""By number of a table with averages: what names its lines, and its columns."""


def _lines(tables: Tables, n: str) -> dict[str, dict[str, Range]]:
    """Table ``n`` as it is printed, without its lines of improvements."""
    rows = tables.rows(f"slhyde_table{n}")
    scores = [row for row in rows if row["metric"] != "relative_improvement"]
    return lines_of(scores, *_TABLES[n])


def _slhyde_averages(tables: Tables) -> Iterable[Row]:
    """Is each average the mean of the data sets?"""
    pairs = {}
    sizes = {task: len(datasets) for task, datasets in _TASKS.items()}
    for n, (_, by) in _TABLES.items():
        lines = _lines(tables, n)
        if by == "dataset":
            found = averages(lines, "Average")
        else:
            found = averages(lines, "Average(All)", sizes)
        pairs |= {f"Table {n}, {name}": pair for name, pair in found.items()}
    yield from compare_all(tables, "slhyde.averages", pairs)


def _tasks(tables: Tables) -> Iterable[Row]:
    """Is each task's number the mean of its data sets, which stand in other tables?"""
    table2, table13 = _lines(tables, "2"), _lines(tables, "13")
    pairs = {}
    for n in ("3", "4", "5", "6"):
        for name, line in _lines(tables, n).items():
            if n in ("3", "4"):
                by_dataset = table13.get(name)
            else:
                method = name.split(", ", 1)[1]
                by_dataset = table2.get(f"{_WITH_HYPOTHESES}, {method}")
            if by_dataset is None:  # a variant that no table shows by data set
                continue
            for task, datasets in _TASKS.items():
                again = mean([by_dataset[dataset] for dataset in datasets])
                pairs[f"Table {n}, {name}, {task}"] = line[task], again
    yield from compare_all(tables, "slhyde.tasks", pairs)


def _improvements(tables: Tables) -> Iterable[Row]:
    """Do the relative improvements follow from the scores of HyDE and SL-HyDE?"""
    pairs = {}
    for n in ("2", "3", "4", "13"):
        (group, method), column = _TABLES[n]
        lines = _lines(tables, n)
        for row in tables.rows(f"slhyde_table{n}", metric="relative_improvement"):
            cell = {group: row[group], column: row[column], method: row[method]}
            printed = tables.number(f"slhyde_table{n}", **cell)
            old, new = (lines[f"{row[group]}, {name}"][row[column]] for name in ("HyDE", "SL-HyDE"))
            pairs[f"Table {n}, {row[group]}, {row[column]}"] = printed, relative_change(old, new)
    average = tables.numbers("slhyde_table2", "model", part=_WITH_HYPOTHESES, dataset="Average")
    for model in ("HyDE", "BGE(large)"):
        again = relative_change(average[model], average["SL-HyDE"])
        pairs[f"text, over {model}"] = tables.text_number(f"slhyde.gain.{model}"), again
    yield from compare_all(tables, "slhyde.improvements", pairs)


def _best_retrievers(tables: Tables) -> Iterable[Row]:
    """On how many data sets is each base retriever the best?"""
    winners = [
        _highest(tables.numbers("slhyde_table2", "model", part="base retrievers", dataset=dataset))
        for dataset in _DATASETS
    ]
    prefix = "slhyde.best."
    pairs = {}
    for id in tables.values("claims", "id"):
        if id.startswith(prefix):
            model = id.removeprefix(prefix)
            pairs[model] = tables.text_number(id), exactly(winners.count(model))
    yield from compare_all(tables, "slhyde.best", pairs, spec=".0f")


def _highest(scores: Mapping[str, Range]) -> str:
    return max(scores, key=lambda name: scores[name].middle)


def _above_hyde(tables: Tables) -> Iterable[Row]:
    """Is SL-HyDE above HyDE on every data set?"""
    ours, hyde = (
        tables.numbers("slhyde_table2", "dataset", part=_WITH_HYPOTHESES, model=model)
        for model in ("SL-HyDE", "HyDE")
    )
    improvements = tables.rows("slhyde_table13", metric="relative_improvement")
    by_dataset = [row["value"] for row in improvements if row["dataset"] != "Average"]
    falls = [value for value in by_dataset if value.startswith("-")]
    yield holds_for_all(
        tables,
        "slhyde.every",
        first_is_higher({dataset: (ours[dataset], hyde[dataset]) for dataset in _DATASETS}),
        note=f"with other models (Table 13) lower on {len(falls)} of {len(by_dataset)}, as printed "
        "there",
    )


def _bold(tables: Tables) -> Iterable[Row]:
    """Does Table 12 print the highest number of each column in bold? The numbers say which is."""
    pairs = {}
    for dataset in (*_DATASETS, "Average"):
        column = tables.numbers("slhyde_table12", "model", dataset=dataset)
        in_bold = tables.text_number(f"slhyde.bold.{dataset}")
        pairs[dataset] = in_bold, column[_highest(column)]
    yield from compare_all(tables, "slhyde.table12.bold", pairs, otherwise=MISPRINT)


def fingerprint(text: str) -> str:
    """Two texts have the same fingerprint if they are the same word for word.

    The sha256 of the words (letters and digits, in lower case, one space between them), so that
    line breaks, punctuation and markup do not count. The prompts of ``slhyde_prompts.csv`` are
    known by it: a paper's text may be compared here, but not reprinted.
    """
    words = re.findall(r"[a-z0-9]+", text.lower())
    return hashlib.sha256(" ".join(words).encode()).hexdigest()


def prompts(tables: Tables) -> Iterable[Row]:
    """Has each step of SL-HyDE's data processing a prompt of its own?"""
    names: dict[str, list[str]] = {}
    for row in tables.rows("slhyde_prompts", metric="fingerprint"):
        names.setdefault(row["value"], []).append(f"{row['prompt']} (Figure {row['figure']})")
    words = tables.numbers("slhyde_prompts", "prompt", metric="words")
    same = [" and ".join(equal) for equal in names.values() if len(equal) > 1]
    working = "number of words: " + "; ".join(f"{name} {n}" for name, n in words.items())
    if same:
        working += f". Word for word the same: {'; '.join(same)}"
    yield finding(
        tables,
        "slhyde.prompts",
        printed=f"{len(words)} prompts",
        recomputed=f"{len(names)} different texts",
        verdict=judge(True, strained=bool(same)),
        working=working,
    )


# the contradiction study -------------------------------------------------------------------------

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
_OSS = "GPT-OSS-20B"
_MIXTRAL = "Mixtral-8x7B"


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


def documents_per_query(tables: Tables) -> Iterable[Row]:
    """Do medicines, queries and documents of Table 1 fit each other?"""
    count = tables.numbers(_STATISTICS, "statistic", metric="count")
    queries_each = tables.text_number("contra.queries_each").middle
    queries = count["medicines_tga"].middle * queries_each
    pairs = {"": (count["queries"], exactly(queries))}
    yield from compare_all(tables, "contra.queries", pairs, spec=".0f")

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


def _years(tables: Tables) -> Iterable[Row]:
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


def _average_falls(tables: Tables) -> Iterable[Row]:
    """Is the average fall that the text quotes an average of the five models' falls?

    CONSISTENT if it is the mean of the five falls, or the fall of the five models' mean. If it is
    neither, but lies between the smallest and the largest fall, some weighting of the models gives
    it: IN TENSION, for the paper names no weighting. Outside, no weighting does: IMPOSSIBLE.
    """
    for metric in ("rouge1", "bert_cosine"):
        printed = tables.text_number(f"contra.drop.{metric}")
        falls = _falls(tables, metric)
        mean_of_falls = mean(falls.values())
        fall_of_means = relative_change(*_means(tables, metric)) * -1
        ordered = sorted(falls, key=lambda model, falls=falls: falls[model].middle)
        least, most = ordered[0], ordered[-1]
        between = printed.may_equal(Range(falls[least].low, falls[most].high))
        is_plain_mean = printed.may_equal(mean_of_falls) or printed.may_equal(fall_of_means)
        working = (
            f"rounding leaves {mean_of_falls.span('.1f')} (or {fall_of_means.span('.1f')}): "
            + "; ".join(f"{model} {fall:.1f}" for model, fall in falls.items())
        )
        if between and not is_plain_mean:
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
            verdict=judge(between, strained=not is_plain_mean),
            working=working,
            name=metric,
            metric=metric,
        )


def _means(tables: Tables, metric: str) -> tuple[Range, Range]:
    """The models' mean of a measure, with the most similar and most contradictory documents."""
    scores = _scores(tables, metric).values()
    similar, contradictory = (
        mean(score[condition] for score in scores) for condition in (_SIMILAR, _CONTRADICTORY)
    )
    return similar, contradictory


def _falls_of_models(tables: Tables) -> Iterable[Row]:
    """Are the falls quoted of single models those of Table 2, and is GPT-OSS the most consistent?

    The text quotes its fall of ROUGE-1. CONSISTENT if no model falls less by that measure. IN
    TENSION if one does, but GPT-OSS changes least by another measure of Table 2: the sentence may
    mean that one. IMPOSSIBLE if it changes least by none.
    """
    falls = _falls(tables, "rouge1")
    quoted = {model: tables.text_number(f"contra.drop.{model}") for model in (_MIXTRAL, _OSS)}
    pairs = {model: (printed, falls[model]) for model, printed in quoted.items()}
    yield from compare_all(tables, "contra.drop.models", pairs, spec=".1f")

    metrics = tables.values(_SCORES, "metric")
    first_by = [metric for metric in metrics if _changes_least(tables, _OSS, metric)]
    note = f"{_OSS} {falls[_OSS]:.1f} %"
    if first_by:
        first_falls = _falls(tables, first_by[0])
        by_name = ", ".join(f"{model} {fall:.1f}" for model, fall in first_falls.items())
        note = (
            f"by {len(first_by)} of Table 2's {len(metrics)} measures ({', '.join(first_by)}) it "
            f"changes least ({first_by[0]} falls by, in %: {by_name}), so the statement is not "
            f"plainly false. But the number printed beside it is the fall of ROUGE-1: {note}"
        )
    yield holds_for_all(
        tables,
        "contra.most_stable",
        {
            model: (f"{fall:.1f} %", fall.high >= falls[_OSS].low)
            for model, fall in falls.items()
            if model != _OSS
        },
        otherwise=judge(bool(first_by), strained=True),
        printed=f"{quoted[_OSS]} %",
        note=note,
    )


def _changes_least(tables: Tables, model: str, metric: str) -> bool:
    """Whether no model's measure changes less, up or down, between the two conditions.

    Of the printed numbers as they stand; rounding is not allowed for.
    """
    change = {name: abs(fall.middle) for name, fall in _falls(tables, metric).items()}
    return change[model] == min(change.values())


def _divergence(tables: Tables) -> Iterable[Row]:
    """Is KLD "consistently" higher with contradictory documents?

    Of every model, it is not. IN TENSION while it holds of the models' mean, as the statement may
    be meant; IMPOSSIBLE if not even that is higher.
    """
    cases = {
        model: (
            f"{score[_SIMILAR]} to {score[_CONTRADICTORY]}",
            score[_CONTRADICTORY].may_exceed(score[_SIMILAR]),
        )
        for model, score in _scores(tables, "kld").items()
    }
    similar, contradictory = _means(tables, "kld")
    mean_rises = contradictory.may_exceed(similar)
    yield holds_for_all(
        tables,
        "contra.kld",
        cases,
        otherwise=judge(mean_rises, strained=True),
        note=f"mean of the models {similar:.3f} to {contradictory:.3f}: "
        + ("higher, so it holds on average" if mean_rises else "not higher on average either"),
    )


def _other_conditions(tables: Tables) -> Iterable[Row]:
    """Does the third condition lie between the two others, and is Mixtral the best?"""
    cases = {}
    for model, score in _scores(tables, "rouge1").items():
        similar, least, contradictory = (score[_SIMILAR], score[_LEAST], score[_CONTRADICTORY])
        in_order = similar.may_exceed(least) and least.may_exceed(contradictory)
        cases[model] = f"{similar}, {least}, {contradictory}", in_order
    yield holds_for_all(tables, "contra.least", cases)

    cases = {}
    for metric in tables.values(_SCORES, "metric"):
        scores = tables.numbers(_SCORES, "model", metric=metric, retrieval=_SIMILAR)
        choose = min if metric in _LOWER_IS_BETTER else max
        best = choose(scores, key=lambda model, scores=scores: scores[model].middle)
        cases[metric] = f"best {best} {scores[best]}", best == _MIXTRAL
    yield holds_for_all(tables, "contra.mixtral", cases, IN_TENSION)


def _totals(tables: Tables) -> Iterable[Row]:
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


def _largest_cell(tables: Tables) -> Iterable[Row]:
    """Is Table 3's largest cell the number that the text calls pairs?"""
    largest = max(tables.rows(_FREQUENCIES), key=lambda row: int(row["value"]))
    documents = int(largest["value"])
    pairs = {"": (tables.text_number("contra.peak"), exactly(documents))}
    yield from compare_all(tables, "contra.table3.peak", pairs, spec=".0f")

    printed = tables.text_number("contra.pairs")
    rounds_to_printed = 0 <= documents - printed.middle < 100
    yield finding(
        tables,
        "contra.pairs",
        printed=f"over {printed}",
        recomputed=f"{documents} documents",
        verdict=judge(True, strained=rounds_to_printed),
        working=f"Table 3's largest cell: CNT {largest['cnt_bin']}, S {largest['score_bin']}",
    )


def _shares_over_time(tables: Tables) -> Iterable[Row]:
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
    shown = {period: f"{float(share):.1f} %" for period, share in high.items()}
    cases = {
        period: (shown[period], high[period] >= high[before])
        for before, period in zip(later, later[1:], strict=False)
    }
    note = f"{first}: {shown[first]}; {start}: {shown[start]}"
    yield holds_for_all(tables, "contra.figure2.rises", cases, IN_TENSION, note=note)

    cases = {period: (shown[period], high[period] >= 45) for period in later if period >= "2010"}
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
    _rag2_averages,
    _rag2_gains,
    _order_of_gains,
    _every_gain,
    _balanced,
    _corpus_totals,
    _slhyde_averages,
    _tasks,
    _improvements,
    _best_retrievers,
    _above_hyde,
    _bold,
    prompts,
    documents_per_query,
    _years,
    _average_falls,
    _falls_of_models,
    _divergence,
    _other_conditions,
    _totals,
    _largest_cell,
    _shares_over_time,
]
