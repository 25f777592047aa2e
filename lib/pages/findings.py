"""README blocks that say what was found: story, claims, audit, contradiction."""

from __future__ import annotations

import re

import pandas as pd

from lib.base import paths
from lib.pages.committed import between, folded, markdown, read
from lib.report import PAPER_NAMES

__all__ = ["audit", "claims", "contradiction", "story"]

CLAIMS = (
    ("mini", "claims"),
    ("mini", "ddx_mini_claims"),
    ("open", "claims"),
    ("open", "bioasq_claims"),
    ("open", "ddx_real_claims"),
    ("open", "ddx_real_reading_claims"),
)
VERDICTS = ("SUPPORTED", "AGAINST", "INCONCLUSIVE", "TOO FEW")
VERDICTS_OF_AUDIT = ("IMPOSSIBLE", "IN TENSION", "CONSISTENT")
METRICS = {
    "p_at_5": ("P@{k}", "higher"),
    "mimic_at_5": ("share on the mimic", "lower"),
    "neither_at_5": ("off-topic share", "lower"),
}
"""What a claim is about, and which way is better; where a file names no metric, it is accuracy."""
CONTROLS = ("H+ alone", "matched rotation", "random mimic")
MOST = "maximum over 5 mimics, λ = 0.5"


def story() -> str:
    """ddx-real on ``open``: what each way to search retrieves, what is answered from it, tests."""
    curves, _ = read("ddx_real_lambda", "open")
    told, behind = read("ddx_real_reading_table", "open")
    lams, rows = sorted({behind["star"], 0.4, 1.0}), []
    for label, curve, arm in _ways(behind["star"], lams):
        found, answer = _curve(curves, *curve) if curve else None, _arm(told, arm) if arm else None
        # The reader's own questions have no curve: P@k and the mimic's share are in its table.
        own = found or answer
        right = answer and between(answer["accuracy"], answer["low"], answer["high"])
        at = found and between(own["p_at_5"], own["p_at_5_low"], own["p_at_5_high"])
        neither = found and f"{own['neither_at_5']:.3f}"
        rows.append(
            (label, at or f"{own['p_at_5']:.3f}", f"{own['mimic_at_5']:.3f}", neither, right)
        )
    head = (
        "searched with",
        f"P@{behind['k']}",
        "on the mimic",
        "on neither, or not judged",
        "answers right",
    )
    n = f"{int(told['n'].iloc[0])} diseases, 95 % intervals."
    return "\n\n".join((markdown(head, rows), n, _answers(lams)))


def _ways(star: float, lams: list[float]) -> list[tuple]:
    """(label, curve or None, the reader's arm or None) of every row."""
    none, full, added = "none", ("nearest", "full search"), ("nearest", "question added, weight 1")
    said = {star: " (chosen on dev)", 1.0: " (the paper's)"}
    ways = [
        ("random passages", (none, "random passages", 0.0), "random passages"),
        ("the question: *What is (name)?*", (none, "question alone", 0.0), None),
        ("the question: the description, its name struck out", None, "question, dense"),
        ("the same, by BM25", None, "question, BM25"),
        ("H+ alone (λ = 0)", (*full, 0.0), "H+ alone"),
        ("H+ and *What is (name)?* (λ = 0)", (*added, 0.0), None),
    ]
    for x in lams:
        arms = [f"{arm}, λ = {x:g}" for arm in ("contrast", *CONTROLS[1:])]
        ways += [
            (f"**{arms[0]}**{said.get(x, '')}", (*full, x), arms[0]),
            (f"{arms[1]}: the same turn, a wrong mimic", ("nearest", CONTROLS[1], x), arms[1]),
            (f"{arms[2]}", ("random", full[1], x), arms[2]),
        ]
    ways.append((f"contrast and *What is (name)?*, λ = {star:g}", (*added, star), None))
    ways.append((MOST, ("5 nearest", "maximum over mimics", 0.5), MOST))
    for x in sorted({0.0, star, 1.0}):
        wrong = f"H+ and H− exchanged in 20 % of the questions, λ = {x:g}"
        ways.append((wrong, None, f"20% exchanged, λ = {x:g}"))
    return ways


def _curve(curves: pd.DataFrame, hypotheses: str, mode: str, lam: float) -> dict:
    same = (curves["hypotheses"] == hypotheses) & (curves["mode"] == mode)
    (row,) = curves[same & (curves["lambda"].round(6) == round(lam, 6))].to_dict("records")
    return row


def _arm(told: pd.DataFrame, arm: str) -> dict:
    (row,) = told[told["arm"] == arm].to_dict("records")
    return row


def _answers(lams: list[float]) -> str:
    """Every test of the answers: contrast against each control at its λ; then the others."""
    name = "ddx_real_reading_claims"
    left = {row["claim"]: row for row in read(name, "open")[0].to_dict("records")}
    rows = []
    for x in lams:
        cells = []
        for control in CONTROLS:
            other = control if control == CONTROLS[0] else f"{control}, λ = {x:g}"
            row = left.pop(f"contrast, λ = {x:g} > {other}")
            difference = between(row["difference"], row["low"], row["high"], sign="+")
            cells.append(f"{difference} {row['verdict']}")
        rows.append((f"λ = {x:g}", *cells))
    head = (
        "answers right: contrast against",
        "H+ alone",
        "matched rotation, same λ",
        "random mimic, same λ",
    )
    values = _values(name, "open")
    lines = [f"- {_claim(row, values)}" for row in left.values()]
    return "\n\n".join((markdown(head, rows), "\n".join(lines)))


def _values(name: str, profile: str) -> dict[tuple, float]:
    """Accuracies by (arm, dataset, answerer) behind claims whose file holds only differences."""
    if name.endswith("reading_claims"):
        table, _ = read("ddx_real_reading_table", profile)
        return {(row.arm,): row.accuracy for row in table.itertuples()}
    if name != "claims":
        return {}
    table, _ = read("table1", profile)
    table = table[table["metric"] == "accuracy"]
    return {(PAPER_NAMES.get(r.method), r.dataset, r.answerer): r.value for r in table.itertuples()}


def _claim(row: dict, values: dict[tuple, float], k: int = 5) -> str:
    """One claim as a line: metric, from what to what, which way is better, n, verdict."""
    where = [str(row[c]) for c in ("dataset", "answerer") if c in row]
    ends = [values.get((arm, *where)) for arm in row["claim"].split(" > ")]
    a, b = ends if len(ends) == 2 else (row.get("a"), row.get("b"))
    metric, better = METRICS.get(row.get("metric"), ("accuracy", "higher"))
    span = "" if a is None or b is None else f" from {b:.3f} to {a:.3f},"
    difference = between(row["difference"], row["low"], row["high"], sign="+")
    claim = row["claim"] + (f" ({', '.join(where)})" if where else "")
    return (
        f"{claim}: {metric.format(k=k)}{span} {difference}; {better} is better; "
        f"n = {row['n']}, {row['verdict']}"
    )


def claims() -> str:
    """How many claims are clear, by result file; those that are, one line each."""
    counts, clear = [], []
    for profile, name in CLAIMS:
        table, behind = read(name, profile)
        numbers = table["verdict"].value_counts()
        counts.append((f"`{profile}/{name}`", *(numbers.get(v, 0) for v in VERDICTS)))
        own, values = table[table["verdict"].isin(VERDICTS[:2])], _values(name, profile)
        clear += [
            f"- `{profile}/{name}`: {_claim(row, values, behind['k'])}"
            for row in own.to_dict("records")
        ]
    listed = folded(f"The {len(clear)} clear ones", "\n".join(clear))
    return f"{markdown(('claims', *VERDICTS), counts)}\n\n{listed}"


STATEMENTS = {
    "chr.table2.ratio": "what the overlap's ratio is",
    "chr.table2.count": "what the overlap's ratio is",
    "chr.pool.p": "margins",
    "chr.margin": "margins",
    "chr.pool": "whose the 587 cases are",
}
"""Rows of the audit whose ids begin with these are readings or cases of one statement; others are
of one statement when the first three parts of their ids are the same."""
CASES = {
    "contra.most_stable": "other models",
    "contra.kld": "models",
    "contra.figure2.rises": "periods",
}
_CHANCE = "more than chance"


def audit() -> str:
    """What the papers' printed numbers say of each other: rows, statements, and what cannot be."""
    table, _ = read("audit")
    table["statement"] = table["id"].map(_statement)
    bad, odd, fine = (table[table["verdict"] == v] for v in VERDICTS_OF_AUDIT)
    rows = [
        (
            paper,
            *(_counted(part[part["paper"] == paper]) for part in (bad, odd)),
            (fine["paper"] == paper).sum(),
        )
        for paper in table["paper"].unique()
    ]
    notes = []
    for statement, own in bad.groupby("statement", sort=False):
        if others := (odd["statement"] == statement).sum():
            notes.append(f"{statement} ({len(own)} rows IMPOSSIBLE, {others} IN TENSION)")
    also = (
        f"Read in other ways, some of these fit, with something the paper does not say or says "
        f"otherwise: {'; '.join(notes)}. "
    )
    asked = odd[["claim", "assumption"]].apply(lambda c: c.str.contains(_CHANCE)).any(axis=1)
    tested = (
        f"{asked.sum()} of the {len(odd)} rows IN TENSION ask whether a difference is "
        "more than chance: the papers print no such test and do not claim it."
    )
    lines = "\n".join(
        f"- {r['paper']}, {r['where']}: {r['claim']}. Printed: {r['printed']}; "
        f"recomputed: {_held(r)}"
        for r in bad.to_dict("records")
    )
    listed = folded(
        f"The {len(bad)} rows that no values behind the printed ones satisfy, of "
        f"{bad['statement'].nunique()} statements",
        lines,
    )
    head = ("paper", *VERDICTS_OF_AUDIT)
    return "\n\n".join((markdown(head, rows), (also if notes else "") + tested, listed))


def _statement(id: str) -> str:
    known = (name for start, name in STATEMENTS.items() if id.startswith(start))
    return next(known, ".".join(id.split(".")[:3]))


def _counted(rows: pd.DataFrame) -> str:
    some = rows["statement"].nunique()
    return f"{len(rows)} rows, {some} statement{'s' * (some != 1)}" if len(rows) else "0"


def _held(row: dict) -> str:
    """ "so in 2 of 4" as a sentence: of what."""
    cases = CASES.get(row["id"], "cases")
    return re.sub(r"^so in (\d+ of \d+)$", rf"holds for \1 {cases}", row["recomputed"])


CHECKS = {
    "sentences": "contradictions, against entailments, as two language models labelled them",
    "length": "abstracts on one question, against ones as long on another",
    "length, as many compared": "the same, as many of their sentence pairs compared",
    "stance": "abstracts that take opposite sides, against the same side",
    "statement": "a sentence that turns an abstract's effect round, against one that states it",
}
"""What each check of CNT compares."""
HELD_OUT = "scifact held-out"


def contradiction() -> str:
    """How good the small NLI model is, and whether CNT finds disagreement that is known."""
    names = ("nli_quality", "contradiction_checks")
    folder = paths.committed("open")
    if gone := [name for name in names if not (folder / f"{name}.csv").exists()]:
        return f"NOT RUN on `open` yet: {', '.join(gone)}. Run: `make figures PROFILE=open`."
    quality, checks = (read(name, "open")[0] for name in names)
    own = quality[quality["set"] == HELD_OUT].to_dict("records")
    models = ", ".join(
        f"`{r['backend']}` {between(r['auroc'], r['auroc_low'], r['auroc_high'])}" for r in own
    )
    said = (
        f"AUROC on {own[0]['n']} sentence pairs of SciFact held out from training, "
        f"{own[0]['positives']} of them contradictions: {models}."
    )
    rows = [
        (
            r["check"],
            CHECKS.get(r["check"]),
            None if pd.isna(r["auroc"]) else between(r["auroc"], r["low"], r["high"]),
            f"{r['positives'] + r['negatives']:,}",
            r["verdict"],
        )
        for r in checks.to_dict("records")
    ]
    head = ("check, on `open`", "does CNT rank higher", "AUROC", "pairs", "verdict")
    return f"{said}\n\n{markdown(head, rows)}"
