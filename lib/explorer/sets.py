"""The sets that the explorer offers, opened on their corpora."""

from __future__ import annotations

from collections.abc import Mapping

from lib.data import load_benchmark
from lib.data.judgments import Evidence, evidence, read_judgments
from lib.data.passages import Passage
from lib.data.questions import Question, load_questions
from lib.data.real import GROUPS, load_real
from lib.explorer.rows import QuestionSet
from lib.place import retriever_for
from lib.profiles import load_profile
from lib.run import Retriever
from lib.search.embed import Encoder
from lib.stats import class_of
from lib.studies.lam.study import open_study
from lib.studies.real.arms import LAMBDAS, bases_of
from lib.studies.real.measures import ON_TOPIC
from lib.studies.real.study import experts_passages, recorded
from lib.studies.real.written import written_for
from lib.ways import DRAWS

__all__ = ["EXCERPT", "benchmark_set", "class_on_exam", "real_sets", "shown"]

EXCERPT = 280
"""Characters of a passage that are kept: enough to see what it is about."""

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

_UNUSED = {"neither": ("not judged",), "not judged": ("neither",)}
"""A set of diseases has one of the two."""


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
    means = {key: words for key, words in _ON_DISEASES.items() if key not in _UNUSED[otherwise]}
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
