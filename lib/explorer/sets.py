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
from lib.profiles import Profile, load_profile
from lib.query_spec import DRAWS
from lib.run import Retriever
from lib.stats import class_of
from lib.studies.lambda_sweep.study import open_benchmark
from lib.studies.real.arms import LAMBDAS, ON_TOPIC, bases_of, gold_passages
from lib.studies.real.expansions import recorded, written_for
from lib.studies.real.study import choices

_ABOUT = json.loads(Path(__file__).with_name("sets.json").read_text(encoding="utf-8"))
"""What each class means in a group of sets, and whose texts H+ and the mimics are. MedQuAD's
documents are filed under concepts by machine."""


def class_on_exam(question: Question, found: Evidence | None) -> str:
    """What a judged passage is for an exam question; "not judged" where nobody saw it."""
    if found is None:
        return "not judged"
    right = question.answer in found.supports
    wrong = bool(found.supports - {question.answer})
    if right or wrong:
        return "both" if right and wrong else "right" if right else "wrong"
    return "on topic" if found.on_topic >= ON_TOPIC else "neither"


def real_sets(retriever: Retriever) -> list[QuestionSet]:
    """MedQA, MMLU-Med and BioASQ as the real sample has them, in the paper's order."""
    questions = load_real("test")
    written = written_for(questions, recorded(), retriever)
    judged = evidence(read_judgments())
    experts = gold_passages(retriever.store)
    chosen = choices(read_result("real_dev_lambda", "open", committed=True)[0])
    hypotheses = {}
    for sets in GROUPS.values():
        asked = [question for question in questions if question.dataset in sets]
        hypotheses |= bases_of(asked, written, DRAWS)["hypotheses"]
    by_qid = {question.qid: question for question in questions}

    def of_exam(qid: str, pid: str) -> str:
        return class_on_exam(by_qid[qid], judged.get((qid, pid)))

    def of_bioasq(qid: str, pid: str) -> str:
        return "right" if pid in experts[qid] else "not judged"

    def of(name: str, title: str, group: str, class_of) -> QuestionSet:
        of_set = {q.qid: hypotheses[q.qid] for q in questions if q.dataset == name}
        seen = {qid: _asked(by_qid[qid]) for qid in of_set}
        about = _ABOUT[group] | {"name": name, "title": title, "dev": chosen[group]}
        about["judged_at"] = list(LAMBDAS) if group == "exams" else []
        return QuestionSet(about, retriever, of_set, seen, class_of)

    return [
        of("mmlu", "MMLU-Med, a sample", "exams", of_exam),
        of("medqa", "MedQA, a sample", "exams", of_exam),
        of("bioasq", "BioASQ", "bioasq", of_bioasq),
    ]


def _asked(question: Question) -> dict:
    options = {} if question.dataset == "bioasq" else dict(question.options)
    return {"text": question.text, "options": options, "answer": question.answer}


def benchmark_set(name: str, profile_name: str, encoder: Encoder) -> QuestionSet:
    """The test questions of a target and mimic benchmark, such as ddx-mini."""
    profile = load_profile(profile_name)
    benchmark = load_benchmark(name, encoder)
    study = open_benchmark(benchmark, retriever_for(benchmark, profile, encoder), profile.k)
    place = {qid: i for i, qid in enumerate(benchmark.qids)}
    bundled = name == "ddx-mini"
    filed = set() if bundled else {p.pid for p in study.retriever.store if p.meta.get("cuis")}

    def classify(qid: str, pid: str) -> str:
        found = class_of(pid, benchmark.targets[qid], benchmark.mimics[qid])
        if found == "neither" and not bundled and pid not in filed:
            return "not judged"
        return {"target": "right", "mimic": "wrong"}.get(found, found)

    asked = {q.qid: _asked(q) for q in load_questions(name)} if bundled else {}
    shown = {}
    for qid in benchmark.test:
        text = benchmark.questions[place[qid]]
        shown[qid] = asked.get(qid) or {"text": text, "options": {}, "answer": ""}
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
    retriever = open_retriever(profile, encoder)
    sets = [
        *real_sets(retriever),
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
    write_rows(explored, _origin(profile, encoder) | {"compared_with_lib": counts})
    return explored


def _origin(profile: Profile, encoder: Encoder) -> dict:
    """What the rows were made with, for their manifests."""
    data = [
        *files_of(profile.corpora),
        *files_of(("ddx-mini",)),
        "recordings/real-hypotheses.jsonl.gz",
        "recordings/real-differential.jsonl.gz",
        f"judgments/{JUDGMENTS.name}",
    ]
    return {
        "profile": "open",
        "encoder": encoder.fingerprint,
        "code_roots": list(CODE),
        "code": code_hash(CODE, core=()),
        "data_files": sorted(set(data)),
        "data": data_hash(sorted(set(data))),
    }


if __name__ == "__main__":
    made = make_rows()
    print("written:", paths.shown(FOLDER), f"{len(made.records):,} rows")
    print("written:", paths.shown(write_page()))
