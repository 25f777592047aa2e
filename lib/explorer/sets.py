"""The sets that the explorer offers, opened on their corpora: what ``make explorer`` makes."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

from lib.base.files import canonical_json
from lib.base.provenance import code_hash, data_hash
from lib.data import load_benchmark
from lib.data.corpus_index import files_of
from lib.data.judgments import JUDGMENTS, Evidence, evidence, read_judgments
from lib.data.passages import Passage
from lib.data.questions import Question, load_questions
from lib.data.real import GROUPS, load_real
from lib.explorer.rows import (
    Explored,
    QuestionSet,
    check_rows,
    put_together,
    rows_of,
    write_rows,
)
from lib.place import open_retriever, retriever_for
from lib.profiles import load_profile
from lib.run import Retriever
from lib.search.embed import Encoder, load_encoder
from lib.stats import class_of
from lib.studies.lam.study import open_study
from lib.studies.real.arms import LAMBDAS, bases_of
from lib.studies.real.measures import ON_TOPIC
from lib.studies.real.study import experts_passages, recorded
from lib.studies.real.written import written_for
from lib.ways import DRAWS

__all__ = ["EXCERPT", "MAKES", "benchmark_set", "class_on_exam", "make", "real_sets", "shown"]

EXCERPT = 280
"""Characters of a passage that are kept: enough to see what it is about."""

MAKES = ("lib.explorer.sets", "lib.explorer.rows", "lib.explorer.lines")
"""The modules behind the rows, with what they import."""

_TITLES_ONLY = ("openstax:anatomy-and-physiology", "openstax:microbiology")
"""Passages whose licence asks more than a line of credit (CC BY-NC-SA): title and link alone."""

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
    "right": "on the disease",
    "both": "on the disease and on its mimic",
    "wrong": "on the mimic",
    "neither": "on neither",
    "not judged": "on neither, or not judged",
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
    experts = experts_passages(retriever.store)
    hypotheses = {}
    for sets in GROUPS.values():
        asked = [question for question in questions if question.dataset in sets]
        hypotheses |= bases_of(asked, written, DRAWS)["hypotheses"]
    by_qid = {question.qid: question for question in questions}

    def of_exam(qid: str, pid: str) -> str:
        return class_on_exam(by_qid[qid], judged.get((qid, pid)))

    def of_bioasq(qid: str, pid: str) -> str:
        return "right" if pid in experts[qid] else "not judged"

    def of(name: str, title: str, classify, means: Mapping[str, str], judged_to: float | None):
        own = {q.qid: hypotheses[q.qid] for q in questions if q.dataset == name}
        seen = {qid: _asked(by_qid[qid]) for qid in own}
        return QuestionSet(name, title, retriever, own, seen, classify, means, judged_to)

    last = max(LAMBDAS)
    return [
        of("mmlu", "MMLU-Med", of_exam, _ON_EXAMS, last),
        of("medqa", "MedQA", of_exam, _ON_EXAMS, last),
        of("bioasq", "BioASQ", of_bioasq, _ON_BIOASQ, None),
    ]


def _asked(question: Question) -> dict:
    options = {} if question.dataset == "bioasq" else dict(question.options)
    return {"text": question.text, "options": options, "answer": question.answer}


def benchmark_set(name: str, profile_name: str, encoder: Encoder) -> QuestionSet:
    """The test questions of a target and mimic benchmark, such as ddx-mini."""
    profile = load_profile(profile_name)
    benchmark = load_benchmark(name, encoder)
    study = open_study(benchmark, retriever_for(benchmark, profile, encoder), profile.k)
    place = {qid: i for i, qid in enumerate(benchmark.qids)}
    # On open corpora only the passages of the institutes that are counted say what they are about.
    otherwise = "neither" if name == "ddx-mini" else "not judged"

    def classify(qid: str, pid: str) -> str:
        found = class_of(pid, benchmark.targets[qid], benchmark.mimics[qid])
        return {"target": "right", "mimic": "wrong", "neither": otherwise}.get(found, found)

    asked = {q.qid: _asked(q) for q in load_questions(name)} if name == "ddx-mini" else {}
    shown = {
        qid: asked.get(qid)
        or {"text": benchmark.questions[place[qid]], "options": {}, "answer": ""}
        for qid in benchmark.test
    }
    means = {key: words for key, words in _ON_DISEASES.items()}
    means.pop("not judged" if otherwise == "neither" else "neither")
    own = {qid: study.hypotheses[qid] for qid in benchmark.test}
    return QuestionSet(name, name, study.retriever, own, shown, classify, means)


def shown(passage: Passage) -> dict:
    """What is kept of a passage: title, how it begins where its licence permits, source, link."""
    only_title = passage.pid.startswith(_TITLES_ONLY)
    text = "" if only_title else _beginning(passage.text)
    source, _, rest = passage.pid.partition(":")
    link = passage.meta.get("url", "")
    if passage.meta.get("pmids"):
        link = f"https://pubmed.ncbi.nlm.nih.gov/{passage.meta['pmids'][0]}/"
    if source == "openstax":
        link = f"https://openstax.org/details/books/{rest.partition('/')[0]}"
    if not rest:
        source = "ddx-mini"
    return {"title": passage.title, "text": text, "source": source, "link": link}


def _beginning(text: str) -> str:
    if len(text) <= EXCERPT:
        return text
    return text[:EXCERPT].rsplit(" ", 1)[0] + " …"


def make() -> Explored:
    """Make all rows from the open data, compare them with lib/, and write them.

    Takes minutes once the open corpora are embedded. Raises ValueError if any order differs.
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
    for some in sets:
        print(f"{some.name}: {len(some.hypotheses)} questions", file=sys.stderr, flush=True)
        made.append((some, *rows_of(some)))
    passages = {}
    for some, _, found in made:
        wanted = {pid for rows in found for pid, _, _ in rows} - passages.keys()
        passages |= {p.pid: shown(p) for p in some.retriever.store.get_many(sorted(wanted))}
    explored = put_together(made, passages.__getitem__)
    counts = {some.name: check_rows(some, explored) for some in sets}
    print(json.dumps(counts), file=sys.stderr)
    if any(count["differ"] for count in counts.values()):
        raise ValueError(f"the rows do not give lib/'s order: {counts}")
    recordings = ["recordings/real-hypotheses.jsonl.gz", "recordings/real-differential.jsonl.gz"]
    judged = [f"judgments/{JUDGMENTS.name}"]
    data = sorted({*files_of(profile.corpora), *files_of(("ddx-mini",)), *recordings, *judged})
    settings = {
        "profile": "open",
        "encoder": encoder.fingerprint,
        "code_roots": sorted(MAKES),
        "code": code_hash(MAKES),
        "data_files": data,
        "data": data_hash(data),
        "compared_with_lib": counts,
    }
    write_rows(explored, json.loads(canonical_json(settings)))
    return explored


if __name__ == "__main__":
    from lib.base.paths import shown as place_of
    from lib.explorer.rows import FOLDER

    print("written:", place_of(FOLDER), len(make().records), "rows")
