"""Tables that one notebook shows, shaped for a reader: the audit's, and printed beside measured.

RAG² and SL-HyDE print accuracies and scores of other models. So printed and measured values are
compared by what one step adds: the steps are rows of docs/_templates/steps.csv.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from html import escape

import numpy as np
import pandas as pd

from lib.base.paths import REPORTED
from lib.base.provenance import read_result
from lib.pages.readable import words
from lib.pages.render import TEMPLATES
from lib.plots.labels import colours_of, names_of
from lib.report import pivot

VERDICTS = colours_of("audit verdict")
"""The audit's verdicts, IMPOSSIBLE first, with their colours (labels.csv)."""
FILTERS = names_of("filter", "score")


# printed beside measured --------------------------------------------------------------------------


def _steps(paper: str) -> Iterator:
    """The steps of a paper with the gain that its table prints: mean, least and most, and cells."""
    steps = pd.read_csv(TEMPLATES / "steps.csv", dtype=str, keep_default_na=False)
    for step in steps[steps["paper"] == paper].itertuples():
        printed = pd.read_csv(REPORTED / f"{step.printed}.csv")
        printed = printed[~printed[step.of].str.startswith("Average")]
        keys = [key for key in (step.of, step.among) if key]
        # One printed table has a row twice, in both of its parts.
        printed = printed.drop_duplicates([*keys, step.by, "value"])
        wide = pivot(printed, keys, step.by)
        yield step, (wide[step.row] - wide[step.baseline_row]).dropna()


def rag2_beside(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """What each step of RAG² adds: printed (points of accuracy) and measured (shares), a row each.

    Columns: step, printed (mean; least to most over models and sets), dataset, metric, difference,
    low, high, n. ``tables`` are those of ``lib.studies.rag2.results``.
    """
    rows = []
    for step, gains in _steps("RAG²"):
        spread = f"{gains.mean():+.1f} ({gains.min():+.1f} to {gains.max():+.1f}"
        row = {"step": step.step, "printed, points": f"{spread}, {len(gains)} cells)"}
        claims = tables[step.measured].set_index(["dataset", "metric", "arm", "baseline"])
        for place in step.where.split("; "):
            dataset, metric = place.split(": ")
            claim = claims.loc[(dataset, metric, step.arm, step.baseline)]
            numbers = claim[["difference", "low", "high", "n"]].to_dict()
            rows.append(row | {"dataset": dataset, "metric": metric} | numbers)
    return pd.DataFrame(rows)


TABLE_2 = {
    "no retrieval": "closed_book",
    "MedCPT": "medcpt",
    "MedCPT+Rationale": "medcpt_rationale",
    "MedRAG": "medrag_rrf4",
    "query2doc": "query2doc",
    "RAG2": "rag2",
}
"""The rows of RAG2's Table 2 that profile rag2 has; MedRAG by its four retrievers, which is its
default. Adaptive-RAG and InstructRAG are other papers' methods and are left out."""

KS = (1, 4, 8, 16, 32)
"""Passages that are read in the rows of docs/rag2-k.toml; RAG2's figures do not list theirs."""

_OF_TABLE_2 = {"medqa": "MedQA", "medmcqa": "MedMCQA", "mmlu": "MMLU-Med"}


def rag2_table_2(profile: str, answerer: str = "Llama-3-8B-Instruct") -> pd.DataFrame:
    """RAG2's Table 2 for one answerer, in percent: of each row and set what is printed, with what
    the paper notes (its k), and what the profile measured, or rag2 where it has not these rows;
    else "NOT RUN"."""
    printed = pd.read_csv(REPORTED / "rag2_table2.csv", keep_default_na=False)
    printed = printed[printed["model"] == answerer].set_index(["method", "dataset"])
    ours = _answered(("rag2", profile), TABLE_2["RAG2"], answerer)
    rows = []
    for method, row in TABLE_2.items():
        shown = {"method": method, "the paper's": printed.loc[(method, "MedQA"), "note"]}
        for name, dataset in _OF_TABLE_2.items():
            shown[f"{dataset}, printed"] = float(printed.loc[(method, dataset), "value"])
            shown[f"{dataset}, here"] = ours.get((row, name), "NOT RUN")
        rows.append(shown)
    return pd.DataFrame(rows)


def rag2_over_k(profile: str, answerer: str = "Llama-3-8B-Instruct") -> pd.DataFrame:
    """RAG2's Figures 3 and A1 for one answerer, in percent: accuracy by the passages that are read
    (k), with and without the filter, as the profile measured it, or rag2-k (docs/rag2-k.toml) where
    it has not these rows; else "NOT RUN"."""
    ours = _answered(("rag2-k", profile), f"rag2_k{KS[0]}", answerer)
    rows = []
    for shown, method in (("RAG2", "rag2"), ("RAG2 w/o filter", "rag2_unfiltered")):
        for name, dataset in _OF_TABLE_2.items():
            by_k = {f"k = {k}": ours.get((f"{method}_k{k}", name), "NOT RUN") for k in KS}
            rows.append({"method": shown, "dataset": dataset} | by_k)
    return pd.DataFrame(rows)


def _answered(profiles: tuple[str, ...], needed: str, answerer: str) -> pd.Series:
    """Accuracy in percent by method and data set, of the last profile whose Table 1 has the method
    ``needed``; empty where none has."""
    found = pd.DataFrame(columns=["answerer", "metric", "method", "dataset", "value"])
    for name in profiles:
        with suppress(FileNotFoundError):
            measured, _ = read_result("table1", name)
            found = measured if needed in set(measured["method"]) else found
    found = found[(found["answerer"] == answerer) & (found["metric"] == "accuracy")]
    return (100 * found.set_index(["method", "dataset"])["value"].astype(float)).round(1)


def slhyde_beside(table: pd.DataFrame) -> pd.DataFrame:
    """What each change to SL-HyDE adds: printed and measured, both in points, a row each.

    ``table`` is ``slhyde_table``. Columns: change, metric, table, printed (mean; least to most over
    tasks or sets), then a column for each measured set. The measured differences are of means on
    the same queries; ``slhyde_claims`` has their intervals.
    """
    measured = table.set_index(["dataset", "method", "metric"])["value"]
    rows = []
    for step, gains in _steps("SL-HyDE"):
        printed = f"{gains.mean():+.1f} ({gains.min():+.1f} to {gains.max():+.1f})"
        number = step.printed.rpartition("table")[2]
        row = {"change": step.step, "metric": step.where, "table": number}
        row["printed"] = printed
        for name in ("scifact", "bioasq"):
            means = measured[f"{name}, with passages"]
            gain = means[step.arm, step.where] - means[step.baseline, step.where]
            row[name] = f"{100 * gain:+.1f}"
        rows.append(row)
    return pd.DataFrame(rows)


def slhyde_declared(claims: pd.DataFrame) -> pd.DataFrame:
    """The primary tests of ``slhyde_claims``, one a row, with their verdicts, in words."""
    columns = ["claim", "arm", "baseline", "value", "value_baseline", "difference", "low", "high"]
    declared = claims.loc[claims["status"] == "primary", [*columns, "p_holm", "n", "verdict"]]
    return with_retriever_names(declared)


def with_retriever_names(table: pd.DataFrame) -> pd.DataFrame:
    """The table with its retrievers in words, and with what they searched with and who wrote it."""
    names, named = names_of("retriever", "passage use", "slhyde"), table.copy()
    for column in {"arm", "baseline", "method", "adapter"} & set(table):
        named[column] = [
            "; ".join(names.get(part, part) for part in key.split(", ")) for key in table[column]
        ]
    shuffled = {
        "pairs with labels in disorder": "shuffled labels",
        "pairs in disorder": "shuffled pairs",
    }
    return named.replace(shuffled, regex=True)


def with_filter_names(table: pd.DataFrame) -> pd.DataFrame:
    """The table with filters, labels and scores called as the figures call them."""
    named = table.copy()
    for column in {"filter", "trained", "score", "truth"} & set(table):
        named[column] = named[column].replace(FILTERS)
    for column in {"arm", "baseline", "truth"} & set(table):
        # "question | cosine, as 25 % of training": an arm after a filter; or a label.
        named[column] = [
            re.sub(r"^(.* \| )?([^,|]+)", _filter_words, name) for name in named[column]
        ]
    # Where a table says how well pairs are told apart, its value is an AUROC.
    return named.rename(columns={"value": "auroc"}) if "within" in named else named


def _filter_words(match: re.Match) -> str:
    return (match[1] or "") + FILTERS.get(match[2], match[2])


# the audit ----------------------------------------------------------------------------------------


def audit_rows(audit: pd.DataFrame, ids: str | list[str] = "") -> pd.DataFrame:
    """Rows of the audit without their ids: what cannot be comes first.

    ``ids`` is how the ids begin, or a list of ids; all rows without it. Columns: paper, where,
    claim, printed, recomputed, verdict.
    """
    rows = audit
    if isinstance(ids, list):
        rows = audit.set_index("id").loc[ids].reset_index()
    elif ids:
        rows = audit[audit["id"].str.startswith(ids)]
    order = rows["verdict"].map(list(VERDICTS).index).sort_values(kind="stable").index
    shown = rows.loc[order, ["paper", "where", "claim", "printed", "recomputed", "verdict"]]
    named = {column: shown[column].map(_measures_named) for column in ("claim", "recomputed")}
    return shown.assign(**named)


def _measures_named(text: str) -> str:
    """A sentence of the audit with the paper's names for measures."""
    keys = r"\b(rouge[12L]|jsd|kld|[a-z]+(?:_[a-z]+)+)\b"
    text = re.sub(r"^so in (\d+ of \d+)$", r"holds for \1", text)
    return re.sub(keys, lambda key: words(key[0]), text)


def audit_list(audit: pd.DataFrame) -> str:
    """The whole audit as HTML, a table a verdict: what cannot be is open, the others open on a
    click; a claim opens to its working."""
    heads = "".join(f"<th>{head}</th>" for head in ("paper", "claim", "printed", "recomputed"))
    parts = []
    for verdict, colour in VERDICTS.items():
        rows = audit[audit["verdict"] == verdict]
        is_open = "" if parts else " open"
        bar = f"border-left:8px solid {colour};padding-left:4px"
        title = f'<b style="{bar}">{verdict}</b>, {len(rows)} rows'
        lines = [f'<details{is_open} class="verdict"><summary>{title}</summary>', "<table>"]
        lines += [f"<tr>{heads}</tr>", *(_audit_row(row) for row in rows.to_dict("records"))]
        parts += [*lines, "</table></details>"]
    return "\n".join(parts)


def _audit_row(row: Mapping[str, str]) -> str:
    text = {column: escape(_measures_named(value)) for column, value in row.items()}
    working = f"<b>Assumption:</b> {text['assumption']}<br><b>Working:</b> {text['working']}"
    claim = f"<details><summary>{text['claim']}</summary>{working}</details>"
    where = f"{text['paper']}, {text['where']}"
    cells = (where, claim, text["printed"], text["recomputed"])
    return "<tr>" + "".join(f'<td style="text-align:left">{cell}</td>' for cell in cells) + "</tr>"


def moved_rows(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    """The rows whose verdict or arithmetic differs between two audits, in the order of their ids.

    Columns: claim; printed, recomputed and verdict, each before and after. A side without the row
    has "".
    """
    shown = ["printed", "recomputed", "verdict"]
    ends = (" before", " after")
    both = before.merge(after, on="id", how="outer", suffixes=ends).fillna("").sort_values("id")
    differ = [both[f"{column} before"] != both[f"{column} after"] for column in shown]
    both = both[np.logical_or.reduce(differ)].reset_index(drop=True)
    claims = both["claim before"].where(both["claim before"] != "", both["claim after"])
    moved = both[[column + end for column in shown for end in ends]]
    moved.insert(0, "claim", claims.map(_measures_named))
    return moved
