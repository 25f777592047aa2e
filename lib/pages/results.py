"""A page of settings beside the numbers (data/results/README.md), and the log of reproductions."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path

import pandas as pd

from lib.base import paths
from lib.base.compare import differences, tables
from lib.base.files import atomic_write
from lib.pages.committed import PROFILES, markdown, whole

COLUMNS = ("date", "machine", "python", "profile", "command", "compared", "equal", "note")
"""Of the log: ``compared`` and ``equal`` count result files, made afresh against committed."""

HOLDS = {
    "answers": "what every reader answered from every arm, a row a question",
    "audit": "the papers' printed numbers against each other",
    "baselines": "the question alone: dense against BM25",
    "claims": "CHR against every other method, paired by question",
    "contradiction_answers": "every answer from every kind of context, measured, without its text",
    "contradiction_arms": "judged pairs within a top five, contrast against H+ alone",
    "contradiction_checks": "whether CNT finds disagreement that is known",
    "contradiction_conditions": "relevance, year and CNT of the kinds of context",
    "contradiction_filter": "a top five without what disagrees with something better",
    "contradiction_heatmap": "documents by contradiction and period, as that paper's Figure 2",
    "contradiction_hnsw": "what the paper's index finds of the abstracts nearest to a question",
    "contradiction_judge": "is the judge of contradiction an instrument: passes, planted, people",
    "contradiction_judged": "judged pairs: the same question, agree, disagree, by group",
    "contradiction_mimics_*": "contradiction among what CHR retrieves, paired",
    "contradiction_periods": "abstracts that another judged one contradicts, by period",
    "contradiction_reasons": "why judged pairs disagree",
    "contradiction_table1": "statistics of the evidence, beside that paper's",
    "contradiction_table2": "answers by kind of context, beside that paper's",
    "contradiction_table3": "documents by contradiction and score S, beside that paper's",
    "contradiction_tests": "paired differences between kinds of context",
    "hyde_lesson_values": "HyDE's lesson: what every arm finds, with own and with wrong passages",
    "hyde_lesson_claims": "HyDE's lesson: its claims as paired differences",
    "hyde_lesson_gap": "HyDE's lesson: how near questions and passages are to experts' passages",
    "hyde_lesson": "HyDE's lesson: the mean of every arm, of all questions and by kind",
    "mimic_items": "one row a question: what its pair of hypotheses is like",
    "mimic_claims": "tests between the tiers of mimics",
    "mimic_proxies": "what predicts a good mimic without a grader",
    "mimic_collapse": "whether collapse tells wrong answers from right ones",
    "rag2_strategies": "RAG²: what single, stacked and balanced sources find, re-ranked or not",
    "rag2_strategies_claims": "RAG²: the same as paired differences",
    "rag2_filters": "RAG²: what is found, and read right, after each filter",
    "rag2_filters_claims": "RAG²: filtered against unfiltered, paired; the rationale as H+",
    "rag2_filters_auroc": "RAG²: how well each filter tells helpful passages from others",
    "rag2_filters_kept": "RAG²: which share of each kind of passage a filter keeps",
    "rag2_filters_judge": "RAG²: a language model's judgment of 200 pairs beside every filter",
    "rag2_by_k": "RAG²: what a reader gets right with 1 to 10 passages",
    "rag2_top_1": "RAG²: one passage, filtered against unfiltered, paired",
    "rag2_held": "RAG²: every filter against held labels and experts, by set",
    "rag2_held_shuffled": "RAG²: twenty filters trained on labels in disorder",
    "rag2_held_kept": "RAG²: which share of the held pairs a filter keeps",
    "rag2_labels": "RAG²: are labels by perplexity an instrument: against experts",
    "rag2_trainings": "RAG²: what each filter and re-ranker cost to train",
    "rag2_writers": "RAG²: what rationales of two writers find, beside question and experts",
    "rag2_writers_claims": "RAG²: the same as paired differences",
    "rag2_long_answers": "RAG²: long answers of a small model, against the institute's own",
    "rag2_long_answers_claims": "RAG²: the same as paired differences",
    "rag2_long_answers_instrument": "RAG²: what the scores of long answers give on known truth",
    "rag2_case": "RAG²: one case by eye, what three queries find and a filter keeps",
    "rag2_case_named": "RAG²: how many passages name each option of that case",
    "slhyde_values": "SL-HyDE: what every retriever finds in every way, query by query",
    "slhyde_table": "SL-HyDE: the means of it, with intervals and the spread of seeds",
    "slhyde_claims": "SL-HyDE: paired differences; four on SciFact are primary",
    "slhyde_cases": "SL-HyDE: three claims of SciFact by a rule: a gain, no change, a loss",
    "slhyde_case_counts": "SL-HyDE: how many claims rise and fall against HyDE",
    "slhyde_ranks": "SL-HyDE: where the generator's passages find their document",
    "slhyde_trainings": "SL-HyDE: what each training cost",
    "slhyde_rates": "SL-HyDE: how the learning rate was chosen, on MedQuAD",
    "slhyde_rates_disorder": "SL-HyDE: at which rate pairs in disorder ruin nothing, on MedQuAD",
    "slhyde_building": "a set built by CMIRB's Algorithm 1: what the base retriever finds in it",
    "slhyde_building_counts": "Algorithm 1: what each step kept, and why it dropped the rest",
    "slhyde_building_pairs": "Algorithm 1: every pair with what each step said of it",
    "slhyde_building_planted": "Algorithm 1: pairs whose right reply is known, and what was said",
    "slhyde_building_thresholds": "Algorithm 1: what other thresholds would have kept",
    "slhyde_building_values": "Algorithm 1: every query's outcome",
    "slhyde_cmedir": "cMedIR in Chinese: BM25 and multilingual-e5-small, with intervals",
    "slhyde_cmedir_claims": "cMedIR in Chinese: the same as paired differences",
    "values_*_reading": "ddx diseases read: right or wrong, a row an arm, question and metric",
    "values_retrieval*": "what every arm of the grid scores on every question",
    "values_rag2_strategies": "RAG²: outcomes by question of each way to retrieve",
    "values_rag2_filters": "RAG²: what each arm found, with every filter's score",
    "values_rag2_crossed": "RAG²: contrast with the rationale as H+, by question",
    "values_rag2_held": "RAG²: every filter's score of each pair held out of training",
    "values_rag2_labels": "RAG²: BioASQ's labelled pairs, with what they are held against",
    "values_rag2_writers": "RAG²: outcomes by question and writer of the rationale",
    "values_rag2_long_answers": "RAG²: scores of every long answer",
    "values_slhyde_cases": "SL-HyDE: at which rank either way finds what a claim of SciFact cites",
    "values_nli": "every model's score of every labelled pair",
    "values_contradiction_arms": "outcomes by question of judged arms, before and after the filter",
    "values_contradiction_checks": "CNT of every pair of the checks",
    "values_contradiction_mimics_*": "CNT among what CHR retrieves, by question",
    "values_*": "what every arm scores on every question: all curves, choices and claims follow",
    "questions_*": "dev or test, cos(H+, H-) and marks of every question",
    "choices_*": "what dev chose for every form of contrast",
    "claims_*": "paired tests: primary ones with a verdict, the others exploratory",
    "*_reading_table": "ddx diseases read: accuracy of every arm, by what was found",
    "judge_quality": "agreement, planted errors and known truth of whoever judged evidence",
    "real_dev_lambda": "real questions, dev: means by λ, and how often a resample chooses each",
    "real_least": "the smallest difference each primary test on real questions could show",
    "real_dev": "real questions, dev: the mean of every arm",
    "real_arms": "real questions: the mean of every arm on every metric, with intervals",
    "real_purity": "real questions: of the passages that speak, those for the right option",
    "real_where": "real questions: the difference of contrast and H+ alone, by kind of question",
    "real_cases": "real questions: single questions found by a rule, with what was found for each",
    "real_case_texts": "real questions: H+ and H− of those single questions, by a language model",
    "real_case_counts": "real questions: how many are of each kind of case",
    "real_texts": "real questions: lengths, repeats, validity and copies of what was written",
    "real_mpnet": "BioASQ's snippets with a second encoder: every arm, with intervals",
    "real_lambda": "real questions: contrast over λ, every form, mimic and metric",
    "*_lambda": "curves over λ: precision, mimic share, off-topic share",
    "faults": "what the tests do to the project on purpose, and what comes of it",
    "figure5": "accuracy and P@k over λ, as the paper's Figure 5",
    "nli_quality": "how well each model ranks contradictions, on labelled pairs",
    "needs": "lengths and speeds behind the needs of a paper-scale run",
    "passages": "size and licence of every corpus",
    "retrieval*": "P@k and classes of what every arm retrieved",
    "runs*": "every retrieved passage, by rank and score",
    "table1": "accuracy of every arm and reader, beside the paper's",
    "table2": "overlap of CHR's passages with each method's",
    "table3_seconds": "seconds a question, of one machine: not compared",
    "table3": "calls, searches and tokens a question, beside the paper's",
    "table4": "accuracy by the quality of the mimic, beside the paper's",
    "table5": "one case in full, as the paper's Table 5",
    "validity": "how many replies were valid hypotheses",
}
"""What a result file holds, by its name; the first pattern that fits."""
LOGS = ("log", "stamps")
"""Files beside the results that say what was done, row by row: no results themselves."""

TITLES = {"": "From the papers, and from the tests", "scale": "Behind what a paper-scale run needs"}
_FIRST = {
    "k": "k =",
    "lam": "given λ",
    "lambdas": "λ",
    "star": "λ from dev",
    "encoder": "",
    "llm": "",
    "recordings": "replayed",
    "sample": "questions a set",
}
_ASIDE = (
    "code",
    "data",
    "code_roots",
    "data_files",
    "versions",
    "measured_by",
    "profile",
    "corpora",
    "passages",
    "questions",
    "counts",
    "chosen",
)


def page() -> str:
    """Every committed result with rows, what it holds, settings and hashes; then the log."""
    parts = [
        "# Results, and what made them",
        "Generated by `make readme` from each file's manifest, which also holds its sha256. "
        "`data` is a hash of the files that it was made from.",
    ]
    for profile in ("", *PROFILES, "scale"):
        folder = paths.committed(profile)
        files = [*folder.glob("[!.]*.csv"), *folder.glob("[!.]*.csv.xz")]
        names = sorted(path.name.split(".")[0] for path in files)
        # Runs hold passages, not numbers, and those of large profiles are not committed.
        found = [name for name in names if name not in LOGS and not name.startswith("runs")]
        title, rows = TITLES.get(profile, f"Profile `{profile}`"), sorted(found)
        head = ("file", "rows", "holds", "settings", "data")
        parts += [f"## {title}", markdown(head, [_row(name, profile) for name in rows])]
    done = markdown(COLUMNS, log().to_numpy().tolist())
    parts += ["## Reproductions", "Fresh results against these: a row for each `make log`.", done]
    return "\n\n".join(parts) + "\n"


def _row(name: str, profile: str) -> tuple:
    manifest = whole(name, profile)
    settings = manifest["settings"]
    phrase = next((text for pattern, text in HOLDS.items() if fnmatch(name, pattern)), None)
    if phrase is None:
        raise ValueError(f"{name}.csv: say what it holds in HOLDS of lib/pages/results.py")
    keys = [c for c in _FIRST if settings.get(c)]
    keys += sorted(c for c in settings if c not in (*_FIRST, *_ASIDE) and settings[c])
    said = "; ".join(_said(_FIRST.get(key, key), _short(settings[key])) for key in keys)
    return f"`{name}.csv`", f"{manifest['rows']:,}", phrase, said, f"`{settings['data'][:8]}`"


def _said(name: str, value: str) -> str:
    """A setting with its name, which is said once where the value begins with it."""
    return value if value.startswith(name) else f"{name} {value}"


def _short(value) -> str:
    """A setting in a few words: a list by its ends, an encoder's fingerprint without its hash."""
    if isinstance(value, dict):  # of files and models the names alone
        named = {k: str(v) for k, v in value.items() if v is not None}
        return ", ".join(k if len(v) > 12 or ":" in v else f"{k} {v}" for k, v in named.items())
    if isinstance(value, list):
        return f"{value[0]} to {value[-1]}" if len(value) > 2 else ", ".join(map(str, value))
    name, *rest = str(value).split("|")
    return ", ".join((name, *(x for x in rest if "tokens" in x or "float" in x)))


def log() -> pd.DataFrame:
    """The log of reproductions, oldest first, columns ``COLUMNS``, all text."""
    path = paths.DATA / "results" / "log.csv"
    if not path.exists():
        return pd.DataFrame(columns=list(COLUMNS), dtype=str)
    return pd.read_csv(path, dtype=str, keep_default_na=False)


def add_row(profile: str, made: Path, note: str = "") -> dict[str, str]:
    """Compare the results in ``made`` with the committed ones and add what was found to the log.

    Nothing of the machine is kept but cores, system, processor family and Python. Raises
    FileNotFoundError when there is nothing to compare, naming the command that makes it.
    """
    command = f"make figures PROFILE={profile}"
    fresh = [p for p in tables(paths.committed(profile)) if (made / p.name).exists()]
    if not fresh:
        how = f'{command} CHR_OUT="$PWD/build/check"'
        raise FileNotFoundError(f"nothing to compare in {paths.shown(made)}; run: {how}")
    differ = [p.stem for p in fresh if differences(pd.read_csv(p), pd.read_csv(made / p.name))]
    notes = [note, f"differ: {', '.join(differ)}" if differ else ""]
    row = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.system()}, {platform.machine()}",
        "python": platform.python_version(),
        "profile": profile,
        "command": command,
        "compared": str(len(fresh)),
        "equal": str(len(fresh) - len(differ)),
        "note": "; ".join(filter(None, notes)),
    }
    table = pd.concat([log(), pd.DataFrame([row])], ignore_index=True)
    path = paths.DATA / "results" / "log.csv"
    atomic_write(path, table.to_csv(index=False, lineterminator="\n"))
    return row
