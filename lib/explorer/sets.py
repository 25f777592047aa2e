"""The sets that the explorer offers, opened on their corpora.

python -m lib.explorer.sets: make the explorer's rows from the open data, and its page from them.
"""

from __future__ import annotations

import json
import sys

from lib.base import paths
from lib.base.provenance import code_hash, data_hash, read_result
from lib.benchmarks import load_benchmark
from lib.data.judgments import JUDGMENTS, Evidence, evidence, read_judgments
from lib.data.looks import note_look
from lib.datasets import GROUPS, Question, load_questions, load_real
from lib.embed import Encoder, load_encoder
from lib.explorer.page import write_page
from lib.explorer.rows import (
    FOLDER,
    Explored,
    QuestionSet,
    check_rows,
    put_together,
    rows_of,
    shown_passage,
    write_rows,
)
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

_ON_EXAMS = {
    "right": "supports the right option",
    "both": "supports the right option and a wrong one",
    "wrong": "supports a wrong option",
    "on topic": "on the topic, supports no option",
    "neither": "judged, and none of these",
    "not judged": "not judged",
}
_ON_BIOASQ = {
    "right": "given by BioASQ's experts",
    "not judged": "not given by the experts, so not judged",
}
_ON_DISEASES = {
    "right": "filed under the disease",
    "both": "filed under the disease and its mimic",
    "wrong": "filed under the mimic",
    "neither": "filed under something else",
    "not judged": "filed under nothing, so not judged",
}
"""MedQuAD's documents are filed under concepts by machine."""
_ON_BUNDLED = {
    "right": "on the target",
    "both": "on the target and on the mimic",
    "wrong": "on the mimic",
    "neither": "on neither",
}

_BY_A_MODEL = (
    "H+ and H− were written by a large language model that saw the question and its options and no "
    "passage"
)
_WRITTEN = {
    "exams": f"{_BY_A_MODEL}. The several mimics are by one that saw no options.",
    "bioasq": f"{_BY_A_MODEL}. Several mimics were written for 150 of the questions.",
    "ddx-fresh": (
        "H+ is what one institute of MedQuAD says of the disease, H− what one says of its nearest "
        "look-alike: nobody had to guess."
    ),
    "ddx-mini": "H+ and H− were written for this companion by someone who knew the answer.",
}


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

    def of(name: str, title: str, group: str, **more) -> QuestionSet:
        own = {q.qid: hypotheses[q.qid] for q in questions if q.dataset == name}
        seen = {qid: _asked(by_qid[qid]) for qid in own}
        return QuestionSet(
            name, title, retriever, own, seen, written=_WRITTEN[group], dev=chosen[group], **more
        )

    exam = {"class_of": of_exam, "means": _ON_EXAMS, "judged_at": LAMBDAS}
    return [
        of("mmlu", "MMLU-Med, a sample", "exams", **exam),
        of("medqa", "MedQA, a sample", "exams", **exam),
        of("bioasq", "BioASQ", "bioasq", class_of=of_bioasq, means=_ON_BIOASQ),
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
    return QuestionSet(
        name,
        name,
        study.retriever,
        {qid: study.hypotheses[qid] for qid in benchmark.test},
        shown,
        classify,
        _ON_BUNDLED if bundled else _ON_DISEASES,
        written=_WRITTEN[name],
        dev=float(dev.loc["one mimic", "lambda"]),
    )


# making ------------------------------------------------------------------------------------------

CODE = (
    "lib.explorer.lines",
    "lib.explorer.rows",
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
    made = []
    for each in sets:
        print(f"{each.name}: {len(each.hypotheses)} questions", file=sys.stderr, flush=True)
        made.append((each, *rows_of(each)))
    passages = {}
    for each, _, found in made:
        wanted = {pid for rows in found for pid, _, _ in rows} - passages.keys()
        passages |= {p.pid: shown_passage(p) for p in each.retriever.store.get_many(sorted(wanted))}
    explored = put_together(made, passages.__getitem__)
    counts = {each.name: check_rows(each, explored) for each in sets}
    print(json.dumps(counts), file=sys.stderr)
    if any(count["differ"] for count in counts.values()):
        raise ValueError(f"the rows do not give lib/'s order: {counts}")
    for each in sets:
        note_look("explorer", each.name, each.hypotheses, "open", each.means)
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
