"""The sets that the explorer offers, opened on their corpora.

python -m lib.explorer.sets: make the explorer's rows from the open data, and its page from them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from lib.base import paths
from lib.base.provenance import code_hash, data_hash, read_result
from lib.benchmarks import load_benchmark
from lib.data.judgments import JUDGMENTS, Evidence, evidence, read_judgments
from lib.data.looks import Look, note_look
from lib.datasets import GROUPS, Question, load_questions, load_real
from lib.embed import Encoder, load_encoder
from lib.explorer.make import QuestionSet, check_rows, make_explored, write_rows
from lib.explorer.page import write_page
from lib.explorer.rows import FOLDER, Explored
from lib.index_build import files_of
from lib.open_retriever import open_retriever, retriever_for
from lib.profiles import load_profile
from lib.query_spec import DRAWS, SearchSpec
from lib.run import Retriever
from lib.stats import class_of
from lib.studies.lambda_sweep.study import open_benchmark
from lib.studies.real.arms import ON_TOPIC, bases_of, gold_passages, searches
from lib.studies.real.expansions import recorded, written_for
from lib.studies.real.study import choices

_ABOUT = json.loads(Path(__file__).with_name("sets.json").read_text(encoding="utf-8"))
"""What each class means in a group of sets, and whose texts H+ and the mimics are. MedQuAD's
documents are filed under concepts by machine."""


REAL = (
    ("mmlu", "MMLU-Med, a sample", "exams"),
    ("medqa", "MedQA, a sample", "exams"),
    ("bioasq", "BioASQ", "bioasq"),
)
"""Sets of the real sample in the paper's order: name, title, and the group that is tuned alike."""


def class_on_exam(question: Question, found: Evidence | None) -> str:
    """What a judged passage is for an exam question; "not judged" where nobody saw it."""
    if found is None:
        return "not judged"
    right = question.answer in found.supports
    wrong = bool(found.supports - {question.answer})
    if right and wrong:
        return "both"
    if right or wrong:
        return "right" if right else "wrong"
    return "on topic" if found.on_topic >= ON_TOPIC else "neither"


def real_sets(retriever: Retriever) -> list[QuestionSet]:
    """MedQA, MMLU-Med and BioASQ as the real sample has them, in the paper's order."""
    questions = load_real("test")
    by_qid = {question.qid: question for question in questions}
    written = written_for(questions, recorded(), retriever)
    judged = evidence(read_judgments())
    experts = gold_passages(retriever.store)
    chosen = choices(read_result("real_dev_lambda", "open", committed=True)[0])

    def classify(qid: str, pid: str) -> str:
        if by_qid[qid].dataset == "bioasq":
            return "right" if pid in experts[qid] else "not judged"
        return class_on_exam(by_qid[qid], judged.get((qid, pid)))

    hypotheses = {}
    for group in GROUPS.values():  # random mimics are drawn among the questions of a group
        of_group = [question for question in questions if question.dataset in group]
        hypotheses |= bases_of(of_group, written, DRAWS)["hypotheses"]
    sets = []
    for name, title, group in REAL:
        asked = [question for question in questions if question.dataset == name]
        of_set = {question.qid: hypotheses[question.qid] for question in asked}
        about = _ABOUT[group] | {"name": name, "title": title, "dev": chosen[group]}
        about["judged_at"] = _judged_at() if group == "exams" else []
        shown = {question.qid: _asked(question) for question in asked}
        sets.append(QuestionSet(about, retriever, of_set, shown, classify))
    return sets


def _judged_at() -> list[float]:
    """The lambdas at which one mimic was searched with, so that its top fives were judged."""
    specs = [spec for _, spec in searches().values() if spec]
    return sorted({spec.lam for spec in specs if spec == SearchSpec(lam=spec.lam)})


def _asked(question: Question) -> dict:
    options = {} if question.dataset == "bioasq" else dict(question.options)
    return {"text": question.text, "options": options, "answer": question.answer}


def benchmark_set(name: str, profile_name: str, encoder: Encoder) -> QuestionSet:
    """The test questions of a target and mimic benchmark, such as ddx-mini."""
    profile = load_profile(profile_name)
    benchmark = load_benchmark(name, encoder)
    study = open_benchmark(benchmark, retriever_for(benchmark, profile, encoder), profile.k)
    bundled = name == "ddx-mini"
    filed = set() if bundled else {p.pid for p in study.retriever.store if p.meta.get("cuis")}

    def classify(qid: str, pid: str) -> str:
        found = class_of(pid, benchmark.targets[qid], benchmark.mimics[qid])
        if found == "neither" and not bundled and pid not in filed:
            return "not judged"
        return {"target": "right", "mimic": "wrong"}.get(found, found)

    texts = dict(zip(benchmark.qids, benchmark.questions, strict=True))
    shown = {qid: {"text": texts[qid], "options": {}, "answer": ""} for qid in benchmark.test}
    if bundled:
        shown = {question.qid: _asked(question) for question in load_questions(name)}
    # Where a set has no dev questions, another's chose for it.
    table = f"choices_{(benchmark.chosen_on or name).replace('-', '_')}"
    dev = read_result(table, profile_name, committed=True)[0].set_index("form")
    about = _ABOUT[name] | {"name": name, "title": name, "judged_at": []}
    about["dev"] = float(dev.loc["one mimic", "lambda"])
    hypotheses = {qid: study.hypotheses[qid] for qid in benchmark.test}
    return QuestionSet(about, study.retriever, hypotheses, shown, classify)


# making ------------------------------------------------------------------------------------------

CODE = (
    "lib.explorer.rows",
    "lib.explorer.make",
    "lib.explorer.sets",
    "lib.search.contrast",
    "lib.search.scoring",
)
"""The modules behind the rows. The rest of the numeric core is compared with every row."""


def make_rows() -> Explored:
    """Make all rows from the open data, compare them with lib/, and write them.

    Takes minutes once the open corpora are embedded. Raises ValueError if any order differs; then
    nothing is written.
    """
    profile = load_profile("open")
    encoder = load_encoder(profile.encoder, **profile.encoder_options)
    sets = [
        *real_sets(open_retriever(profile, encoder)),
        benchmark_set("ddx-fresh", "open", encoder),
        benchmark_set("ddx-mini", "mini", encoder),
    ]
    explored = make_explored(sets)
    counts = {each.about["name"]: check_rows(each, explored) for each in sets}
    print(json.dumps(counts), file=sys.stderr)
    if any(count["differ"] for count in counts.values()):
        raise ValueError(f"the rows do not give lib/'s order: {counts}")
    for each in sets:
        look = Look(each.about["name"], each.hypotheses, each.about["means"])
        note_look("explorer", "open", look)
    files = {*files_of(profile.corpora), *files_of(("ddx-mini",)), f"judgments/{JUDGMENTS.name}"}
    files |= {f"recordings/real-{kind}.jsonl.gz" for kind in ("hypotheses", "differential")}
    settings = {
        "profile": "open",
        "encoder": encoder.fingerprint,
        "code_roots": list(CODE),
        "code": code_hash(CODE, core=()),
        "data_files": sorted(files),
        "data": data_hash(sorted(files)),
        "compared_with_lib": counts,
    }
    write_rows(explored, settings)
    return explored


if __name__ == "__main__":
    made = make_rows()
    print("written:", paths.shown(FOLDER), f"{len(made.records):,} rows")
    print("written:", paths.shown(write_page()))
