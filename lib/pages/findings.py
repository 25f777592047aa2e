"""Blocks that say what was found: story, reading, claims, contradiction, audit."""

from __future__ import annotations

import re

import pandas as pd

from lib.base import paths
from lib.pages.committed import OUTCOMES, between, folded, markdown, read
from lib.pages.notes import said_of_abstracts, said_of_one_question
from lib.plots.labels import label_of
from lib.studies.nli.labelled import LEAST, TRAINED_ON, instruments
from lib.studies.paper_audit.printed import VERDICTS

STUDIES = {
    "ddx_fresh": "ddx-fresh: diseases nothing was tuned on",
    "ddx_real": "ddx-real: looked at many times",
    "ddx_real_blind": "ddx-real with every name struck: looked at many times",
    "ddx_fresh_blind": "ddx-fresh with every name struck",
    "bioasq": "BioASQ, experts' ideal answers as hypotheses: looked at many times",
}
"""Comparisons of the open profile, in reading order."""
SHOWN = ("p_at_5", "mimic_at_5", "neither_at_5")
"""Metrics of the story's table."""


def story() -> str:
    """P@5, share on the mimic and the rest, by way to search, on ddx-fresh and ddx-real."""
    parts = []
    for study, title in (("ddx_fresh", "ddx-fresh"), ("ddx_real", "ddx-real, test half")):
        curves, _ = read(f"{study}_lambda", "open")
        curves = curves[curves["subset"] == "all"].set_index("arm")
        curves = curves[~curves.index.duplicated()]
        rows = []
        for arm in _told(curves):
            row = curves.loc[arm]
            p = between(row["p_at_5"], row["p_at_5_low"], row["p_at_5_high"])
            shares = (f"{row[metric]:.3f}" for metric in SHOWN[1:])
            rows.append((label_of(arm), f"`{arm}`", p, *shares))
        head = ("searched with", "arm", "P@5", "share on the mimic", "on neither, or not judged")
        n = int(curves["n"].max())
        parts.append((f"{title}, {n} diseases, 95 % intervals", markdown(head, rows)))
    (fresh, first), (looked_at, second) = parts
    # The set that was looked at many times before is there for who asks.
    return f"**{fresh}**\n\n{first}\n\n{folded(looked_at, second)}"


def _told(curves: pd.DataFrame) -> list[str]:
    """The arms of the story: no hypotheses, H+ alone, contrast and its controls at some lambdas."""
    dev = read("choices_ddx_real", "open")[0].set_index("form")
    lambdas = sorted({float(dev.loc["one mimic", "lambda"]), 0.4, 1.0} - {0.0})
    arms = ["random", "question", "hplus", "hplus+question1"]
    for lam in lambdas:
        arms += [f"chr@{lam:g}", f"chr+rotation@{lam:g}", f"chr+stranger@{lam:g}"]
    return [arm for arm in arms if arm in curves.index]


def claims() -> str:
    """Every comparison of the open studies that was not declared, a table a study; no verdicts.

    (The declared tests are in ``lib.pages.summary.tests``.)
    """
    parts = []
    for study, title in STUDIES.items():
        table, _ = read(f"claims_{study}", "open")
        pairs = table.set_index(["arm", "against", "metric"]).index
        declared = pairs.isin(pairs[table["status"] == "primary"])
        explored = table[~declared]
        head = ("arm", "against", "outcome", "value", "the other's", "difference", "n")
        rows = [_claim(row) for row in explored.to_dict("records")]
        parts.append(folded(f"{title}: {len(rows)}", markdown(head, rows)))
    return "\n\n".join(parts)


def _claim(row: dict) -> tuple:
    difference = between(row["difference"], row["low"], row["high"], sign="+")
    values = (f"{row['value']:.3f}", f"{row['value_against']:.3f}")
    arms = (f"`{row['arm']}`", f"`{row['against']}`")
    return (*arms, OUTCOMES[row["metric"]], *values, difference, row["n"])


def reading() -> str:
    """The reader without an LLM on ddx-real, beside what shows that it is no instrument."""
    parts = []
    for study, title in (("ddx_real", "names as they stand"), ("ddx_real_blind", "names struck")):
        table, _ = read(f"{study}_reading_table", "open")
        near = table[table["options"] == "near"]
        wanted = [arm for arm in _READ if arm in set(near["arm"])]
        rows = []
        for row in near.set_index("arm").loc[wanted].reset_index().to_dict("records"):
            right = between(row["accuracy"], row["low"], row["high"])
            split = (_share(row, "found"), _share(row, "not_found"))
            rows.append((label_of(row["arm"]), f"`{row['arm']}`", right, *split))
        head = ("passages of", "arm", "right", "where a target was found", "where none was")
        parts.append(f"**ddx-real, {title}**\n\n{markdown(head, rows)}")
    return "\n\n".join(parts)


_READ = (
    "named_option",
    "hplus_as_passage",
    "random",
    "asked_dense",
    "asked_bm25",
    "hplus",
    "chr@0.2",
    "chr@0.4",
    "chr+rotation@0.4",
    "chr+stranger@0.4",
    "chr@1",
    "chr+rotation@1",
    "chr+stranger@1",
)
"""Arms of the reading that are shown."""


def _share(row: dict, side: str) -> str | None:
    value, n = row[f"accuracy_{side}"], row[f"n_{side}"]
    return None if pd.isna(value) else f"{value:.3f}, n = {n:.0f}"


STATEMENTS = {
    "chr.table2.ratio": "what the overlap's ratio is",
    "chr.table2.count": "what the overlap's ratio is",
    "chr.pool.p": "margins",
    "chr.margin": "margins",
    "chr.pool": "whose the 587 cases are",
    "chr.table1.comparisons": "what the 18 comparisons are",
}
"""Rows of the audit whose ids begin with these are readings or cases of one statement; others are
of one statement when the first three parts of their ids are the same."""
_CHANCE = "more than chance"


def audit() -> str:
    """What the papers' printed numbers say of each other: rows, statements, and what cannot be."""
    table, _ = read("audit")
    table["statement"] = table["id"].map(_statement)
    bad, slips, odd, fine = (table[table["verdict"] == v] for v in VERDICTS)
    rows = [
        (
            paper,
            *(_counted(part[part["paper"] == paper]) for part in (bad, slips, odd)),
            (fine["paper"] == paper).sum(),
        )
        for paper in table["paper"].unique()
    ]
    notes = []
    for statement, own in bad.groupby("statement", sort=False):
        if others := (odd["statement"] == statement).sum():
            notes.append(f"{statement} ({_rows(len(own))} IMPOSSIBLE, {others} IN TENSION)")
    also = (
        f"Read in other ways, some of these fit, with something the paper does not say or says "
        f"otherwise: {'; '.join(notes)}. "
    )
    asked = odd[["claim", "assumption"]].apply(lambda c: c.str.contains(_CHANCE)).any(axis=1)
    tested = (
        f"{asked.sum()} of the {len(odd)} rows IN TENSION ask whether a difference is "
        "more than chance: the papers print no such test and do not claim it."
    )
    listed = folded(
        f"The {len(bad)} rows that no values behind the printed ones satisfy, of "
        f"{bad['statement'].nunique()} statements",
        _listed(bad),
    )
    parts = [markdown(("paper", *VERDICTS), rows), (also if notes else "") + tested, listed]
    if len(slips):
        parts.append(folded(f"Misprints: {_rows(len(slips))}", _listed(slips)))
    return "\n\n".join(parts)


def _listed(rows: pd.DataFrame) -> str:
    """Rows of the audit as a list in Markdown."""
    return "\n".join(
        f"- {row.paper}, {row.where}: {row.claim}. Printed: {row.printed}; recomputed: "
        f"{_held(row.recomputed)}"
        for row in rows.itertuples()
    )


def _statement(id: str) -> str:
    known = (name for start, name in STATEMENTS.items() if id.startswith(start))
    return next(known, ".".join(id.split(".")[:3]))


def _counted(rows: pd.DataFrame) -> str:
    some = rows["statement"].nunique()
    return f"{_rows(len(rows))}, {some} statement{'s' * (some != 1)}" if len(rows) else "0"


def _rows(n: int) -> str:
    return f"{n} row{'s' * (n != 1)}"


def _held(recomputed: str) -> str:
    """ "so in 2 of 4" as a sentence."""
    return re.sub(r"^so in (\d+ of \d+)$", r"holds for \1 cases", recomputed)


CHECKS = {
    "sentences": "contradictions, against entailments, as two language models labelled them",
    "length": "abstracts on one question, against ones as long on another",
    "length, as many compared": "the same, as many of their sentence pairs compared",
    "judged": "abstracts that the judge says disagree, against those that agree",
    "stance": "abstracts that take opposite sides, against the same side",
    "statement": "a sentence that turns an abstract's effect round, against one that states it",
}
"""What each check of CNT compares."""


def contradiction() -> str:
    """How much contradiction was judged, and what contrast does to it; how well each model tells a
    contradiction from an agreement, and whether CNT ranks disagreement that is known."""
    tables = ("nli_quality", "contradiction_checks")
    judged = ("judged", "judge", "arms")
    names = (*tables, *(f"contradiction_{name}" for name in judged))
    folder = paths.committed("open")
    gone = [name for name in names if not (folder / f"{name}.csv").exists()]
    if gone:
        return f"NOT RUN on `open` yet: {', '.join(gone)}. Run: `make figures PROFILE=open`."
    quality, checks = (read(name, "open")[0] for name in tables)
    both = "\n\n".join((_by_model(quality), _by_check(checks)))
    models = folded("Every model of contradiction, with the checks of the instrument", both)
    return "\n\n".join((_judged(), _modelled(quality), models))


def _judged() -> str:
    """How much contradiction a judge found, what contrast does to it, what the judge is worth."""
    shares = read("contradiction_judged", "open")[0]
    judged = shares.set_index(["group", "measure"])
    judge = read("contradiction_judge", "open")[0].set_index(["check", "label"])
    arms = read("contradiction_arms", "open")[0].set_index(["measure", "arm"])

    mini = judged.loc[("mini", "disagree_of_same")]
    kappa = judge.loc[("kappa of first and second pass", "disagree")]
    planted = judge.loc[("planted: all planted pairs", "error")]
    same = arms.loc["same"]
    return (
        "**Judged** by a language model in a blind role (profile `open`). "
        f"{said_of_one_question(shares)} {said_of_abstracts(shares)} In evidence-mini, which was "
        f"written to contradict itself, {mini['count']:,.0f} of {mini['n']:,.0f} disagree. "
        "**Contrast** leaves too few disagreements to tell whether it lowers that: at λ = 1 "
        f"{same.loc['chr@1', 'value']:.3f} of the pairs in a top five are on one question at all, "
        f"of H+ alone {same.loc['hplus', 'value']:.3f}. "
        f"Kappa of *disagree* between two passes is "
        f"{between(kappa['value'], kappa['low'], kappa['high'])}; of {planted['n']:.0f} planted "
        f"pairs {planted['value'] * planted['n']:.0f} got a wrong label."
    )


def _modelled(quality: pd.DataFrame) -> str:
    """What the best small model is worth, and which of the sets are of the kind it learnt from."""
    best = instruments(quality).sort_values("cleared", ascending=False, kind="stable").iloc[0]
    learnt = [name for name in TRAINED_ON if name in best["names"].split("; ")]
    told = f" Other pairs of {' and of '.join(learnt)} were in its training." if learnt else ""
    return (
        f"**Modelled.** `{best['backend']}` tells a contradiction from an agreement on "
        f"{best['cleared']} of {best['sets']} sets of held-out sentences (the lower "
        f"end of its AUROC's interval is above {LEAST}): {best['names'] or 'none'}.{told}"
    )


def _by_model(quality: pd.DataFrame) -> str:
    """AUROC of every model on every labelled set, a row a model."""
    own, sets = quality, quality.drop_duplicates("set")
    rows = []
    for name, of_model in own.groupby("backend", sort=False):
        by_set = of_model.set_index("set")
        cells = [by_set.loc[one] for one in sets["set"]]
        rows.append([f"`{name}`", *(between(c.auroc, c.auroc_low, c.auroc_high) for c in cells)])
    names = sets["set"]
    counts = (
        f"{n:,} ({positives:,})" for n, positives in zip(sets["n"], sets["positives"], strict=True)
    )
    head = [f"{name}, {count}" for name, count in zip(names, counts, strict=True)]
    return markdown(["model; AUROC by set, pairs (contradictions)", *head], rows)


def _by_check(checks: pd.DataFrame) -> str:
    """AUROC of CNT on disagreement that is known, a row a check."""
    rows = []
    for row in checks.to_dict("records"):
        auroc = None
        if not pd.isna(row["auroc"]):
            auroc = between(row["auroc"], row["low"], row["high"])
        pairs = f"{row['positives'] + row['negatives']:,}"
        rows.append((row["check"], CHECKS.get(row["check"]), auroc, pairs))
    return markdown(("check, on `open`", "does CNT rank higher", "AUROC", "pairs"), rows)
