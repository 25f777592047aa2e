"""The derived claims of the three other papers: RAG², SL-HyDE and the contradiction study."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from itertools import permutations, product

from lib.studies.paper_audit.printed import (
    CONSISTENT,
    IMPOSSIBLE,
    IN_TENSION,
    MISPRINT,
    Finding,
    Range,
    Tables,
    averages,
    compare_all,
    exactly,
    first_is_higher,
    formulas,
    holds_for_all,
    judge,
    lines_of,
    mean,
    relative_change,
    total,
)

# RAG² --------------------------------------------------------------------------------------------

_LLAMA, _MEERKAT, _GPT = _MODELS = ("Llama-3-8B-Instruct", "Meerkat-7B", "GPT-4o")
_IN_MILLIONS = {"million": Fraction(1), "thousand": Fraction(1, 1000), "count": Fraction(1, 10**6)}
"""Table A1 prints parts in several units, and totals in millions (sizes are all in GB)."""


def _gain(tables: Tables, model: str, dataset: str) -> Range:
    """Points that RAG² gains over no retrieval in Table 2."""
    line = tables.numbers("rag2_table2", "method", model=model, dataset=dataset)
    return line["RAG2"] - line["no retrieval"]


def _rag2_averages(tables: Tables) -> Iterator[Finding]:
    """Is each row's average the mean of its three accuracies?"""
    lines = lines_of(tables.rows("rag2_table2"), ("model", "method"), "dataset")
    yield from compare_all("rag2.table2.averages", averages(lines, "Average"))


def _rag2_gains(tables: Tables) -> Iterator[Finding]:
    """Are the gains that the text quotes those of the tables?"""
    yield from compare_all("rag2.text.gains", formulas(tables, "rag2.text.gains"), spec=".1f")


def _order_of_gains(tables: Tables) -> Iterator[Finding]:
    """Are three gains given "respectively" in the order of the models they are said of?

    The text on Table 2 names each with its model, so the right gains in a wrong order are a slip.
    """
    models = (_GPT, _LLAMA, _MEERKAT)
    printed = [tables.text_number(f"rag2.order.{model}") for model in models]
    gains = [_gain(tables, model, "Average") for model in models]

    def fits(order: Iterable[Range]) -> bool:
        return all(said.may_equal(gain) for said, gain in zip(printed, order, strict=True))

    verdict = MISPRINT if any(map(fits, permutations(gains))) else IMPOSSIBLE
    if fits(gains):
        verdict = CONSISTENT
    lines = [
        f"{model}: {said} said, {gain:.1f} in Table 2"
        for model, said, gain in zip(models, printed, gains, strict=True)
    ]
    values = {
        "printed": ", ".join(f"{said:.1f}" for said in printed),
        "recomputed": ", ".join(f"{gain:.1f}" for gain in gains),
        "working": "; ".join(lines),
    }
    yield Finding("rag2.text.order", verdict, values)


def _every_gain(tables: Tables) -> Iterator[Finding]:
    """Does every model gain on every data set, and are the best gains those of Figure 3?"""
    cases = {}
    for model, dataset in product(_MODELS, ("MedQA", "MedMCQA", "MMLU-Med")):
        gain = _gain(tables, model, dataset)
        cases[f"{model}, {dataset}"] = f"{gain:+.1f}", gain.high >= 0
    yield holds_for_all("rag2.text.every", cases, IN_TENSION)
    in_figure = formulas(tables, "rag2.figure3")
    yield from compare_all("rag2.figure3", in_figure, spec=".1f", otherwise=IN_TENSION)


def _balanced(tables: Tables) -> Iterator[Finding]:
    """Is balanced retrieval above MedRAG's everywhere?"""
    lines = lines_of(tables.rows("rag2_table4"), ("model", "dataset"), "retrieval")
    pairs = {name: (line["balanced retrieval"], line["MedRAG"]) for name, line in lines.items()}
    yield holds_for_all("rag2.table4.best", first_is_higher(pairs))


def _corpus_totals(tables: Tables) -> Iterator[Finding]:
    """Are Table A1's totals the sums of the corpora?"""
    pairs = {}
    for collection in ("MedCorp", "RAG2 corpus"):
        for metric in ("raw_documents", "chunks", "index_size"):
            keys = {"collection": collection, "metric": metric}
            numbers = tables.numbers("rag2_tableA1", "corpus", **keys)
            printed = numbers.pop("Total")
            units = {row["corpus"]: row["unit"] for row in tables.rows("rag2_tableA1", **keys)}
            parts = [part * _IN_MILLIONS.get(units[name], 1) for name, part in numbers.items()]
            pairs[f"{collection}, {metric}"] = printed, total(parts)
    yield from compare_all("rag2.tableA1.totals", pairs)


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
_BY_TASK = (("configuration", "method"), "task")
_TABLES = {
    "2": (("part", "model"), "dataset"),
    "8": (("model",), "dataset"),
    "12": (("model",), "dataset"),
    "13": (("configuration", "method"), "dataset"),
    **dict.fromkeys("3456", _BY_TASK),
}
"""By number of a table with averages: what names its lines, and its columns."""


def _lines(tables: Tables, n: str) -> dict[str, dict[str, Range]]:
    """Table ``n`` as it is printed, without its lines of improvements."""
    rows = tables.rows(f"slhyde_table{n}")
    scores = [row for row in rows if row["metric"] != "relative_improvement"]
    return lines_of(scores, *_TABLES[n])


def _slhyde_averages(tables: Tables) -> Iterator[Finding]:
    """Is each average the mean of the data sets?"""
    pairs = {}
    sizes = {task: len(datasets) for task, datasets in _TASKS.items()}
    for n, layout in _TABLES.items():
        weighted = ("Average(All)", sizes) if layout == _BY_TASK else ("Average",)
        found = averages(_lines(tables, n), *weighted)
        pairs |= {f"Table {n}, {name}": pair for name, pair in found.items()}
    yield from compare_all("slhyde.averages", pairs)


def _tasks(tables: Tables) -> Iterator[Finding]:
    """Is each task's number the mean of its data sets, which stand in other tables?"""
    table2, table13 = _lines(tables, "2"), _lines(tables, "13")
    pairs = {}
    for n in "3456":
        for name, line in _lines(tables, n).items():
            method = name.split(", ", 1)[1]
            in_table2 = table2.get(f"{_WITH_HYPOTHESES}, {method}")
            by_dataset = table13.get(name) if n in "34" else in_table2
            if by_dataset is None:  # a variant that no table shows by data set
                continue
            for task, datasets in _TASKS.items():
                again = mean([by_dataset[dataset] for dataset in datasets])
                pairs[f"Table {n}, {name}, {task}"] = line[task], again
    yield from compare_all("slhyde.tasks", pairs)


def _improvements(tables: Tables) -> Iterator[Finding]:
    """Do the relative improvements follow from the scores of HyDE and SL-HyDE?"""
    pairs = {}
    for n in ("2", "3", "4", "13"):
        (group, method), column = _TABLES[n]
        lines = _lines(tables, n)
        for row in tables.rows(f"slhyde_table{n}", metric="relative_improvement"):
            cell = {key: row[key] for key in (group, column, method)}
            printed = tables.number(f"slhyde_table{n}", **cell)
            old, new = (lines[f"{row[group]}, {name}"][row[column]] for name in ("HyDE", "SL-HyDE"))
            pairs[f"Table {n}, {row[group]}, {row[column]}"] = printed, relative_change(old, new)
    pairs |= formulas(tables, "slhyde.improvements")
    yield from compare_all("slhyde.improvements", pairs)


def _highest(scores: Mapping[str, Range]) -> str:
    return max(scores, key=lambda name: scores[name].middle)


def _best_retrievers(tables: Tables) -> Iterator[Finding]:
    """On how many data sets is each base retriever the best?"""
    winners = [
        _highest(tables.numbers("slhyde_table2", "model", part="base retrievers", dataset=dataset))
        for dataset in _DATASETS
    ]
    prefix = "slhyde.best."
    counted = [id for id in tables.values("claims", "id") if id.startswith(prefix)]
    pairs = {}
    for id in counted:
        model = id.removeprefix(prefix)
        pairs[model] = tables.text_number(id), exactly(winners.count(model))
    yield from compare_all("slhyde.best", pairs, spec=".0f")


def _above_hyde(tables: Tables) -> Iterator[Finding]:
    """Is SL-HyDE above HyDE on every data set?"""
    ours, hyde = (
        tables.numbers("slhyde_table2", "dataset", part=_WITH_HYPOTHESES, model=model)
        for model in ("SL-HyDE", "HyDE")
    )
    improvements = tables.rows("slhyde_table13", metric="relative_improvement")
    others = [row["value"] for row in improvements if row["dataset"] != "Average"]
    falls = sum(value.startswith("-") for value in others)
    yield holds_for_all(
        "slhyde.every",
        first_is_higher({dataset: (ours[dataset], hyde[dataset]) for dataset in _DATASETS}),
        note=f"with other models (Table 13) lower on {falls} of {len(others)}, as printed there",
    )


def _bold(tables: Tables) -> Iterator[Finding]:
    """Does Table 12 print the highest number of each column in bold? The numbers say which is."""
    pairs = {}
    for dataset in (*_DATASETS, "Average"):
        column = tables.numbers("slhyde_table12", "model", dataset=dataset)
        in_bold = tables.text_number(f"slhyde.bold.{dataset}")
        pairs[dataset] = in_bold, column[_highest(column)]
    yield from compare_all("slhyde.table12.bold", pairs, otherwise=MISPRINT)


def fingerprint(text: str) -> str:
    """Two texts have the same fingerprint if they are the same word for word.

    The sha256 of the words (letters and digits, in lower case, one space between them), so that
    line breaks, punctuation and markup do not count. The prompts of ``slhyde_prompts.csv`` are
    known by it: a paper's text may be compared here, but not reprinted.
    """
    words = re.findall(r"[a-z0-9]+", text.lower())
    return hashlib.sha256(" ".join(words).encode()).hexdigest()


def prompts(tables: Tables) -> Iterator[Finding]:
    """Has each step of SL-HyDE's data processing a prompt of its own?"""
    names: dict[str, list[str]] = {}
    for row in tables.rows("slhyde_prompts", metric="fingerprint"):
        names.setdefault(row["value"], []).append(f"{row['prompt']} (Figure {row['figure']})")
    words = tables.numbers("slhyde_prompts", "prompt", metric="words")
    same = [" and ".join(equal) for equal in names.values() if len(equal) > 1]
    working = "number of words: " + "; ".join(f"{name} {n}" for name, n in words.items())
    if same:
        working += f". Word for word the same: {'; '.join(same)}"
    values = {"prompts": len(words), "texts": len(names), "working": working}
    yield Finding("slhyde.prompts", judge(True, strained=bool(same)), values)


# the contradiction study -------------------------------------------------------------------------

_STATISTICS = "contradiction_table1"
_SCORES = "contradiction_table2"
_FREQUENCIES = "contradiction_table3"
_HEATMAP = "contradiction_fig2_heatmap"
_SIMILAR, _CONTRADICTORY = "most_similar", "most_contradictory"
"""Two of the three conditions: which documents a model was given."""
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


def _means(tables: Tables, metric: str) -> tuple[Range, Range]:
    """The models' mean of a measure, with the most similar and most contradictory documents."""
    scores = _scores(tables, metric).values()
    similar, contradictory = (
        mean(score[condition] for score in scores) for condition in (_SIMILAR, _CONTRADICTORY)
    )
    return similar, contradictory


def _documents(tables: Tables, name: str) -> Counter[str]:
    """How many documents a table has, by bin of CNT."""
    documents: Counter[str] = Counter()
    for row in tables.rows(name):
        documents[row["cnt_bin"]] += int(row["value"])
    return documents


def documents_per_query(tables: Tables) -> Iterator[Finding]:
    """Do medicines, queries and documents of Table 1 fit each other?"""
    count = tables.numbers(_STATISTICS, "statistic", metric="count")
    each = tables.text_number("contra.queries_each").middle
    queries = count["medicines_tga"].middle * each
    pairs = {"": (count["queries"], exactly(queries))}
    yield from compare_all("contra.queries", pairs, spec=".0f")

    printed = tables.number(_STATISTICS, metric="mean")
    selected, medicines = count["pmids_after_selection"], count["medicines_with_documents"]
    pool = tables.text_number("contra.pool").middle
    most_queries = int(medicines.middle * each)
    least_mean = selected.middle / most_queries
    # Table 3 and Figure 2 count fewer documents than were selected; the mean may count theirs.
    in_table, in_figure = (
        least_mean * _documents(tables, name).total() / count["unique_pmids"].middle
        for name in (_FREQUENCIES, _HEATMAP)
    )
    possible = printed.low <= pool and min(in_table, in_figure) <= printed.high
    values = {
        "printed": printed,
        "least": float(least_mean),
        "medicines": medicines,
        "each": each,
        "most_queries": most_queries,
        "selected": selected,
        "in_table": float(in_table),
        "in_figure": float(in_figure),
        "of": selected / printed,
        "queries": count["queries"],
        "over_all": float(selected.middle / queries),
        "pool": pool,
    }
    yield Finding("contra.documents", judge(possible, least_mean > printed.high), values)


def _years(tables: Tables) -> Iterator[Finding]:
    """Do twenty years, three years apart, fit into the span of the abstracts?"""
    first, last = (
        tables.number(_STATISTICS, statistic=f"abstract_year_{end}").middle
        for end in ("first", "last")
    )
    gap, years = (tables.text_number(f"contra.{name}").middle for name in ("gap", "years"))
    values = {"first": first, "last": last, "gap": gap, "years": years}
    values |= {"fitting": 1 + (last - first) // gap, "span": 1 + last - first}
    values |= {"needed": 1 + (years - 1) * gap}
    yield Finding("contra.years", judge(True, strained=values["fitting"] < years), values)


def _average_falls(tables: Tables) -> Iterator[Finding]:
    """Is the average fall that the text quotes an average of the five models' falls?

    CONSISTENT if it is the mean of the five falls, or the fall of the five models' mean. If it is
    neither, but lies between the smallest and the largest fall, some weighting of the models gives
    it: IN TENSION, for the paper names no weighting. Outside, no weighting does: IMPOSSIBLE.
    """
    for metric in ("rouge1", "bert_cosine"):
        printed = tables.text_number(f"contra.drop.{metric}")
        falls = _falls(tables, metric)
        plain = mean(falls.values())
        of_means = relative_change(*_means(tables, metric)) * -1
        least, *_, most = sorted(falls, key=lambda model, falls=falls: falls[model].middle)
        between = printed.may_equal(Range(falls[least].low, falls[most].high))
        is_plain = printed.may_equal(plain) or printed.may_equal(of_means)
        more = ""
        if between and not is_plain:
            more = (
                f". {printed} is not below the fall of {least} nor above that of {most}, so it is "
                "a mean in which some models count more. Or the mean of every query's own fall, "
                "which Table 2 does not fix"
            )
            alone = [model for model, fall in falls.items() if printed.may_equal(fall)]
            if alone:
                more += f". It is the fall of {' and of '.join(alone)} alone"
        values = {"metric": metric, "printed": printed, "plain": plain, "of_means": of_means}
        values |= {"plain_span": plain.span(".1f"), "of_means_span": of_means.span(".1f")}
        values |= {"falls": "; ".join(f"{m} {fall:.1f}" for m, fall in falls.items()), "more": more}
        verdict = judge(between, strained=not is_plain)
        yield Finding("contra.drop.average", verdict, values, name=metric)


def _falls_of_models(tables: Tables) -> Iterator[Finding]:
    """Are the falls quoted of single models those of Table 2, and is GPT-OSS the most consistent?

    The text quotes its fall of ROUGE-1. CONSISTENT if no model falls less by that measure. IN
    TENSION if one does, but GPT-OSS changes least by another measure of Table 2: the sentence may
    mean that one. IMPOSSIBLE if it changes least by none.
    """
    quoted = formulas(tables, "contra.drop.models")
    yield from compare_all("contra.drop.models", quoted, spec=".1f")

    falls = _falls(tables, "rouge1")
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
    cases = {
        model: (f"{fall:.1f} %", fall.high >= falls[_OSS].low)
        for model, fall in falls.items()
        if model != _OSS
    }
    otherwise = judge(bool(first_by), strained=True)
    yield holds_for_all("contra.most_stable", cases, otherwise, note, f"{quoted[_OSS][0]} %")


def _changes_least(tables: Tables, model: str, metric: str) -> bool:
    """Whether no model's measure changes less, up or down, between the two conditions.

    Of the printed numbers as they stand; rounding is not allowed for.
    """
    change = {name: abs(fall.middle) for name, fall in _falls(tables, metric).items()}
    return change[model] == min(change.values())


def _divergence(tables: Tables) -> Iterator[Finding]:
    """Is KLD "consistently" higher with contradictory documents?

    It is not for every model. IN TENSION if the models' mean is higher, as the statement may mean
    that; IMPOSSIBLE if not even the mean is higher.
    """
    cases = {}
    for model, score in _scores(tables, "kld").items():
        similar, contradictory = score[_SIMILAR], score[_CONTRADICTORY]
        cases[model] = f"{similar} to {contradictory}", contradictory.may_exceed(similar)
    similar, contradictory = _means(tables, "kld")
    rises = contradictory.may_exceed(similar)
    so = "higher, so it holds on average" if rises else "not higher on average either"
    note = f"mean of the models {similar:.3f} to {contradictory:.3f}: {so}"
    yield holds_for_all("contra.kld", cases, judge(rises, strained=True), note)


def _other_conditions(tables: Tables) -> Iterator[Finding]:
    """Does the third condition lie between the two others, and is Mixtral the best?"""
    cases = {}
    for model, score in _scores(tables, "rouge1").items():
        similar, contradictory = score[_SIMILAR], score[_CONTRADICTORY]
        least = score["least_contradictory"]
        in_order = similar.may_exceed(least) and least.may_exceed(contradictory)
        cases[model] = f"{similar}, {least}, {contradictory}", in_order
    yield holds_for_all("contra.least", cases)

    cases = {}
    for metric in tables.values(_SCORES, "metric"):
        scores = tables.numbers(_SCORES, "model", metric=metric, retrieval=_SIMILAR)
        choose = min if metric in ("jsd", "kld") else max
        best = choose(scores, key=lambda model, scores=scores: scores[model].middle)
        cases[metric] = f"best {best} {scores[best]}", best == _MIXTRAL
    yield holds_for_all("contra.mixtral", cases, IN_TENSION)


def _totals(tables: Tables) -> Iterator[Finding]:
    """Do Table 3 and Figure 2 count the same documents, and are these all there are?"""
    in_table, in_figure = (_documents(tables, name) for name in (_FREQUENCIES, _HEATMAP))
    fewer = [n - in_figure[cnt_bin] for cnt_bin, n in in_table.items()]
    documents = in_table.total()
    values = {"table": documents, "figure": in_figure.total(), "fewer": sum(fewer)}
    values |= {"by_row": ", ".join(map(str, fewer))}
    verdict = judge(min(fewer) >= 0, strained=sum(fewer) != 0)
    yield Finding("contra.figure2.total", verdict, values)

    unique = tables.number(_STATISTICS, statistic="unique_pmids")
    selected = tables.number(_STATISTICS, statistic="pmids_after_selection")
    values = {"table": documents, "unique": unique, "selected": selected}
    values |= {"less": int(unique.middle) - documents}
    verdict = judge(documents <= selected.middle, strained=documents != selected.middle)
    yield Finding("contra.table3.unique", verdict, values)


def _largest_cell(tables: Tables) -> Iterator[Finding]:
    """Is Table 3's largest cell the number that the text calls pairs?"""
    largest = max(tables.rows(_FREQUENCIES), key=lambda row: int(row["value"]))
    documents = int(largest["value"])
    pairs = {"": (tables.text_number("contra.peak"), exactly(documents))}
    yield from compare_all("contra.table3.peak", pairs, spec=".0f")

    said = tables.text_number("contra.pairs")
    verdict = judge(True, strained=0 <= documents - said.middle < 100)
    yield Finding("contra.pairs", verdict, largest | {"said": said, "documents": documents})


def _shares_over_time(tables: Tables) -> Iterator[Finding]:
    """Does the share of the highest bins rise as the text says?"""
    low, high = {}, {}
    for period in tables.values(_HEATMAP, "year_bin"):
        numbers = tables.numbers(_HEATMAP, "cnt_bin", year_bin=period)
        percent = Fraction(100) / total(list(numbers.values())).middle
        low[period] = percent * (numbers["[0,0.2)"].middle + numbers["[0.2,0.4)"].middle)
        high[period] = percent * (numbers["[0.6,0.8)"].middle + numbers["[0.8,1]"].middle)
    first, *later = high
    values = {"low": float(low[first]), "high": float(high[first])}
    values |= {"middle": float(100 - low[first] - high[first])}
    verdict = judge(high[first] < 50, strained=low[first] <= 50)
    yield Finding("contra.figure2.before", verdict, values)

    start = later[0]
    shown = {period: f"{float(share):.1f} %" for period, share in high.items()}
    cases = {
        period: (shown[period], high[period] >= high[before])
        for before, period in zip(later, later[1:], strict=False)
    }
    note = f"{first}: {shown[first]}; {start}: {shown[start]}"
    yield holds_for_all("contra.figure2.rises", cases, IN_TENSION, note=note)

    cases = {period: (shown[period], high[period] >= 45) for period in later if period >= "2010"}
    yield holds_for_all("contra.figure2.half", cases)


CHECKS = (
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
)
