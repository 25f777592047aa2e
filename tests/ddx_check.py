"""The validator of ddx-mini: what must hold for the bundled set to be worth measuring on."""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pandas as pd

from lib.base import paths
from lib.base.files import read_jsonl, sha256_file
from lib.benchmarks.base import ngrams, shared_ngrams
from lib.benchmarks.ddx_mini import FILES, build, read

FIELDS = {
    "passages": {"pid", "source", "title", "text", "topic", "aspect", "check"},
    "questions": {
        "qid",
        "style",
        "question",
        "options",
        "answer",
        "target",
        "mimic",
        "split",
        "check",
    },
    "hypotheses": {"qid", "author", "H_plus", "H_minus"},
    "expansions": {"qid", "author", "hyde", "query2doc", "csqe_knowledge", "rationale"},
    "qrels": {"qid", "pid", "class"},
}
KNOWN_ERROR_FIELDS = {"qid", "part", "describes", "meant", "why"}
MEANT_TOPIC = {"H_plus": "target", "H_minus": "mimic"}
"""Which field of the question names what each part of a hypothesis was meant to describe."""
STYLES = {"medqa": "ABCD", "mmlu": "ABCD", "bioasq": "AB"}
WORDS = (50, 130)
BRITISH = re.compile(
    r"\b(an|isch|leuk|hypovol|hypoglyc|hyperglyc|bacter|ur|hypox)aemi|\bhaem(o(?!philus)|at)"
    r"|\boedema|\btumour|\bpaediatr|\bleucocyt|\bcolour|diarrhoea|\boestrogen|\bbehaviour"
    r"|\bfibre|\bcentre|\bfavour|\blabour|\bgynaecol|\banaesth|\bfoetus|\bcaec|\boesoph"
    r"|(organ|hospital|character|recogn|local|general|stabil|neutral|minim)is(e|ed|es|ing|ation)\b",
    re.IGNORECASE,
)


def validate(folder: Path = paths.DDX_MINI) -> list[str]:
    """Everything that is wrong with the set, as sentences; empty when it is fit to use."""
    rows = {name: read(name, folder) for name in FILES}
    problems = [
        f"{name}, row {i}: fields {sorted(row)}, wanted {sorted(FIELDS[name])}"
        for name in FILES
        for i, row in enumerate(rows[name], 1)
        if set(row) != FIELDS[name]
    ]
    if problems:
        return problems
    return [
        *_passages(rows["passages"]),
        *_questions(rows["questions"], {p["topic"] for p in rows["passages"]}),
        *_hypotheses(rows["hypotheses"], rows["questions"]),
        *_expansions(rows["expansions"], rows["questions"]),
        *_qrels(rows["qrels"], rows["questions"], rows["passages"]),
        *_spelling(rows),
        *_known_errors(read("known_errors", folder), rows["questions"]),
        *frozen_problems(folder),
    ]


def _passages(passages: list[dict]) -> list[str]:
    problems, owner = [], {}
    for p in passages:
        words = len(p["text"].split())
        if not WORDS[0] <= words <= WORDS[1]:
            problems.append(f"{p['pid']}: {words} words, wanted {WORDS[0]} to {WORDS[1]}")
        if len(p["check"].split()) < 2:
            problems.append(f"{p['pid']}: names no source its facts can be checked in")
        for gram in _grams(p["text"]):
            first = owner.setdefault(gram, p["pid"])
            if first != p["pid"]:
                problems.append(f"{first} and {p['pid']} share the words '{' '.join(gram)}'")
    sizes = Counter(p["source"] for p in passages)
    if len(sizes) != 4 or len(set(sizes.values())) != 4:
        problems.append(f"wanted four sources of unequal size, found {dict(sizes)}")
    return problems + _repeated("passage", [p["pid"] for p in passages])


def _repeated(what: str, ids: list[str]) -> list[str]:
    return [f"{what} id {i} stands {n} times" for i, n in Counter(ids).items() if n > 1]


def _questions(questions: list[dict], topics: set[str]) -> list[str]:
    problems = _repeated("question", [q["qid"] for q in questions])
    letters = defaultdict(Counter)
    for q in questions:
        wanted = STYLES.get(q["style"], "")
        if "".join(sorted(q["options"])) != wanted or q["answer"] not in q["options"]:
            problems.append(f"{q['qid']}: options and answer do not fit style {q['style']!r}")
        if q["target"] == q["mimic"] or not {q["target"], q["mimic"]} <= topics:
            problems.append(f"{q['qid']}: target and mimic must be two topics of the passages")
        if len(set(q["options"].values())) != len(q["options"]):
            problems.append(f"{q['qid']}: two options are the same")
        if q["split"] not in ("dev", "test"):
            problems.append(f"{q['qid']}: split is {q['split']!r}, not dev or test")
        letters[q["style"]][q["answer"]] += 1
    pairs = {
        s: {frozenset((q["target"], q["mimic"])) for q in questions if q["split"] == s}
        for s in ("dev", "test")
    }
    if pairs["dev"] & pairs["test"]:
        problems.append("a pair of look-alikes stands in dev and in test")
    for style, count in letters.items():
        seen = [count[letter] for letter in STYLES.get(style, "")]
        if seen and max(seen) - min(seen) > 1:
            problems.append(f"style {style}: answer letters are not balanced: {dict(count)}")
    return problems


def _hypotheses(hypotheses: list[dict], questions: list[dict]) -> list[str]:
    problems = _repeated("hypothesis for", [h["qid"] for h in hypotheses])
    if {h["qid"] for h in hypotheses} != {q["qid"] for q in questions}:
        problems.append("hypotheses and questions are not for the same ids")
    for h in hypotheses:
        for key in ("H_plus", "H_minus"):
            if not 15 <= len(h[key].split()) <= 120:
                problems.append(f"{h['qid']}: {key} has {len(h[key].split())} words, not 15 to 120")
        if h["author"] != "reference text":
            problems.append(f"{h['qid']}: author is {h['author']!r}, not 'reference text'")
    return problems


def _expansions(expansions: list[dict], questions: list[dict]) -> list[str]:
    problems = _repeated("expansion for", [e["qid"] for e in expansions])
    if {e["qid"] for e in expansions} != {q["qid"] for q in questions}:
        problems.append("expansions and questions are not for the same ids")
    for e in expansions:
        texts = [*e["hyde"], e["query2doc"], e["csqe_knowledge"], e["rationale"]]
        if len(set(texts)) != 6 or not all(30 <= len(t.split()) <= 120 for t in texts):
            problems.append(f"{e['qid']}: expansions are not six texts of 30 to 120 words")
        if e["author"] != "reference text":
            problems.append(f"{e['qid']}: author is {e['author']!r}, not 'reference text'")
    return problems


def _qrels(qrels: list[dict], questions: list[dict], passages: list[dict]) -> list[str]:
    pids, qids = {p["pid"] for p in passages}, {q["qid"] for q in questions}
    problems = _repeated("qrel", [f"{r['qid']}/{r['pid']}" for r in qrels])
    classes = defaultdict(Counter)
    for r in qrels:
        if r["pid"] not in pids or r["qid"] not in qids:
            problems.append(f"qrel {r['qid']}/{r['pid']} names something that does not exist")
        if r["class"] not in ("target", "both", "mimic"):
            problems.append(f"qrel {r['qid']}/{r['pid']}: class {r['class']!r}")
        classes[r["qid"]][r["class"]] += 1
    for qid in sorted(qids):
        for name in ("target", "mimic"):
            if not classes[qid][name]:
                problems.append(f"{qid}: no {name} passage")
    return problems


def _known_errors(errors: list[dict], questions: list[dict]) -> list[str]:
    by_qid = {q["qid"]: q for q in questions}
    problems = []
    for i, error in enumerate(errors, 1):
        if set(error) != KNOWN_ERROR_FIELDS:
            wanted = sorted(KNOWN_ERROR_FIELDS)
            problems.append(f"known_errors, row {i}: fields {sorted(error)}, wanted {wanted}")
            continue
        name = f"known error {error['qid']}/{error['part']}"
        empty = [key for key in sorted(error) if not str(error[key] or "").strip()]
        if empty:
            problems.append(f"{name}: nothing stands in {', '.join(empty)}")
        elif error["qid"] not in by_qid:
            problems.append(f"{name}: no question has this id")
        elif error["part"] not in MEANT_TOPIC:
            problems.append(f"{name}: the part is not one of {', '.join(MEANT_TOPIC)}")
        else:
            topic = by_qid[error["qid"]][MEANT_TOPIC[error["part"]]]
            if error["meant"] != topic:
                problems.append(f"{name}: meant is {error['meant']!r}, the question says {topic!r}")
            if error["describes"] == topic:
                problems.append(f"{name}: what it describes is what was meant, so it is no error")
    ids = [f"{e['qid']}/{e['part']}" for e in errors if {"qid", "part"} <= set(e)]
    return problems + _repeated("known error", ids)


def _spelling(rows: dict[str, list[dict]]) -> list[str]:
    problems = []
    for name in ("passages", "questions", "hypotheses", "expansions"):
        for row in rows[name]:
            text = " ".join(str(v) for k, v in row.items() if k != "check")
            problems += [
                f"{row.get('pid') or row['qid']}: '{found}' is not American spelling"
                for found in _british(text)
            ]
    return problems


@cache
def _british(text: str) -> list[str]:
    """What is not spelled as Americans do; kept, as the tests look at the same texts again."""
    return [m.group(0) for m in BRITISH.finditer(text)]


_grams = cache(ngrams)


def frozen_problems(folder: Path = paths.DDX_MINI) -> list[str]:
    """Files that are neither as frozen before the first retrieval run nor explained by the errata.

    ``freeze.jsonl`` has one row (file, sha256) per file; each row of ``errata.jsonl`` (file, id,
    what, why, sha256) says what was corrected and what the file's hash became.
    """
    folder = Path(folder)
    allowed = defaultdict(list)
    for row in [*read_jsonl(folder / "freeze.jsonl"), *read_jsonl(folder / "errata.jsonl")]:
        allowed[row["file"]].append(row["sha256"])
    problems = []
    for name in FILES:
        last = (allowed.get(f"{name}.jsonl") or ["never frozen"])[-1]
        found = sha256_file(folder / f"{name}.jsonl")
        if found != last:
            problems.append(
                f"{name}.jsonl has sha256 {found[:12]}, not the frozen or last corrected one "
                f"({last[:12]}): add the correction to errata.jsonl, with the new sha256"
            )
    return problems


def text_statistics(study, store) -> pd.DataFrame:
    """Per question: the best cos(H+, target passage), cos(H+, H-), and the share of H+'s 8-word
    sequences that stand in target passages (``store`` gives their texts)."""
    benchmark, rows = study.benchmark, []
    targets = [study.hypotheses[qid].of("target")[0] for qid in benchmark.qids]
    known = study.retriever.vectors(targets)
    for i, qid in enumerate(benchmark.qids):
        pids = sorted(benchmark.targets[qid])
        texts = [p.text for p in store.get_many(pids)]
        h_plus = known["article", targets[i].text]
        best = study.index.score(h_plus[None], pids).max()
        rows.append((best, shared_ngrams(benchmark.h_plus[i], texts)))
    table = pd.DataFrame(rows, columns=["cos(H+, gold)", "copied 8-grams"])
    return table.assign(**{"cos(H+, H-)": study.cosines(benchmark.qids)})


def real_ranges(statistics: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """What real sets show, by statistic: the least 5th and the greatest 95th percentile."""
    low = pd.DataFrame({name: t.quantile(0.05) for name, t in statistics.items()}).min(axis=1)
    high = pd.DataFrame({name: t.quantile(0.95) for name, t in statistics.items()}).max(axis=1)
    return pd.DataFrame({"low": low, "high": high}).rename_axis("statistic").reset_index()


def range_problems(found: pd.DataFrame, ranges: pd.DataFrame) -> list[str]:
    """Statistics whose median over the bundled set lies outside ``real_ranges``."""
    return [
        f"median {row.statistic} is {median:.3f}, real sets show {row.low:.3f} to {row.high:.3f}"
        for row in ranges.itertuples()
        if not row.low <= (median := found[row.statistic].median()) <= row.high
    ]


if __name__ == "__main__":
    wrong = validate()
    print("\n".join(wrong) if wrong else f"ddx-mini is valid: {build().counts}")
    sys.exit(bool(wrong))
