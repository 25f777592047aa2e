"""The sets that the explorer offers, opened on their corpora."""

from __future__ import annotations

from lib.base.provenance import read_result
from lib.benchmarks import load_benchmark
from lib.data.judgments import Evidence, evidence, read_judgments
from lib.data.passages import Passage
from lib.datasets import GROUPS, Question, load_questions, load_real
from lib.embed import Encoder
from lib.explorer.rows import QuestionSet
from lib.place import retriever_for
from lib.profiles import load_profile
from lib.run import Retriever
from lib.stats import class_of
from lib.studies.lam.study import open_study
from lib.studies.real.arms import LAMBDAS, bases_of
from lib.studies.real.choice import choices
from lib.studies.real.measures import ON_TOPIC
from lib.studies.real.study import experts_passages, recorded
from lib.studies.real.written import written_for
from lib.ways import DRAWS

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
    experts = experts_passages(retriever.store)
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
    study = open_study(benchmark, retriever_for(benchmark, profile, encoder), profile.k)
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
