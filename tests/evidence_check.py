"""The validator of evidence-mini: what must hold for the bundled set to be worth measuring on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from lib.base.files import read_jsonl
from lib.base.paths import DATA
from lib.benchmarks.base import ngrams
from lib.studies.contradiction.evidence import HEADINGS

FOLDER = DATA / "evidence-mini"
FIELDS = {
    "questions": ("qid", "medicine", "heading", "question", "answer"),
    "abstracts": (
        "id",
        "title",
        "text",
        "year",
        "medicine",
        "topic",
        "stance",
        "retells",
        "citations",
    ),
    "pairs": ("pid", "a_id", "a", "b_id", "b"),
    "labels": ("pid", "first", "second", "label"),
}
ROWS = {"questions": 72, "abstracts": 174, "pairs": 210, "labels": 210}
LABELS = ("contradiction", "entailment", "neutral")
PERIODS = (1975, 2000, 2005, 2010, 2015, 2020, 2026)


def read(name: str, folder: Path = FOLDER) -> list[dict]:
    """Rows of one file of the set."""
    return list(read_jsonl(folder / f"{name}.jsonl"))


def kappa(labels: list[dict]) -> float:
    """Cohen's kappa of the two readers."""
    n = len(labels)
    first = Counter(row["first"] for row in labels)
    second = Counter(row["second"] for row in labels)
    same = sum(row["first"] == row["second"] for row in labels) / n
    chance = sum(first[name] * second[name] for name in LABELS) / n**2
    return (same - chance) / (1 - chance)


def validate(folder: Path = FOLDER) -> list[str]:
    """Everything that is wrong with the set, as sentences; empty when it is fit to use."""
    rows = {name: read(name, folder) for name in FIELDS}
    problems = [
        f"{name}: {len(rows[name])} rows, wanted {n}"
        for name, n in ROWS.items()
        if len(rows[name]) != n
    ]
    for name, fields in FIELDS.items():
        ids = Counter(row.get(fields[0]) for row in rows[name])
        problems += [f"{name}: {i} stands {n} times" for i, n in ids.items() if n > 1]
        problems += [
            f"{name}, row {i}: fields {sorted(row)}, wanted {sorted(fields)}"
            for i, row in enumerate(rows[name], 1)
            if set(row) != set(fields)
        ]
    if problems:
        return problems
    return [
        *_questions(rows["questions"], {d["medicine"] for d in rows["abstracts"]}),
        *_abstracts(rows["abstracts"]),
        *_pairs(rows["pairs"], {d["id"]: d for d in rows["abstracts"]}),
        *_labels(rows["labels"], {p["pid"] for p in rows["pairs"]}),
    ]


def _questions(questions: list[dict], medicines: set[str]) -> list[str]:
    problems = []
    asked = Counter((q["medicine"], q["heading"]) for q in questions)
    if set(asked) != {(m, h) for m in medicines for h in HEADINGS} or set(asked.values()) != {1}:
        problems.append("not every medicine has each of the six questions once")
    for q in questions:
        if q["question"].lower() != HEADINGS.get(q["heading"], "").format(q["medicine"]).lower():
            problems.append(f"{q['qid']}: not the question of heading {q['heading']}")
        if not 60 <= len(q["answer"].split()) <= 120:
            problems.append(f"{q['qid']}: answer of {len(q['answer'].split())} words")
    return problems


def _abstracts(abstracts: list[dict]) -> list[str]:
    problems = []
    first_with: dict[tuple[str, ...], str] = {}  # eight words, and the abstract that has them first
    for d in abstracts:
        if not 120 <= len(d["text"].split()) <= 200:
            problems.append(f"{d['id']}: {len(d['text'].split())} words")
        if not 1975 <= d["year"] <= 2025 or d["citations"] < 0 or len(d["retells"].split()) < 2:
            problems.append(f"{d['id']}: year, citations or source is not plausible")
        if d["stance"] not in ("for", "against", "mixed", "background"):
            problems.append(f"{d['id']}: stance {d['stance']!r}")
        for gram in ngrams(d["text"]):
            first = first_with.setdefault(gram, d["id"])
            if first != d["id"]:
                problems.append(f"{first} and {d['id']} share the words '{' '.join(gram)}'")
    for medicine in sorted({d["medicine"] for d in abstracts}):
        years = {d["year"] for d in abstracts if d["medicine"] == medicine}
        if len(years) < 9:
            problems.append(f"{medicine}: {len(years)} distinct years, wanted 9")
    periods = {max((p for p in PERIODS if p <= d["year"]), default=0) for d in abstracts}
    return problems + [f"no abstract from {p} on" for p in PERIODS[:-1] if p not in periods]


def _pairs(pairs: list[dict], abstracts: dict[str, dict]) -> list[str]:
    problems = []
    for p in pairs:
        a, b = abstracts.get(p["a_id"]), abstracts.get(p["b_id"])
        if a is None or b is None or p["a"] not in a["text"] or p["b"] not in b["text"]:
            problems.append(f"{p['pid']}: a sentence does not stand in its abstract")
        elif p["a_id"] == p["b_id"] or a["medicine"] != b["medicine"]:
            problems.append(f"{p['pid']}: wanted two abstracts of one medicine")
    return problems


def _labels(labels: list[dict], pids: set[str]) -> list[str]:
    problems = [] if {row["pid"] for row in labels} == pids else ["labels are not for the pairs"]
    for row in labels:
        both = row["first"] if row["first"] == row["second"] else ""
        if not {row["first"], row["second"]} <= set(LABELS) or row["label"] != both:
            problems.append(f"{row['pid']}: label {row['label']!r} is not what both readers say")
    return problems
