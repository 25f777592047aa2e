"""The texts of the real sample: which are written, by which method, and what is asked about them.

A kind of text is a method's request, so a recording of it replays that method anywhere. Writers see
what the prompt shows and nothing else; no conversation holds two kinds. Each probe, too, is a
request to a role that sees what its prompt shows: is H+ right, does the writer know it all?
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from lib.base.paths import RECORDINGS
from lib.benchmarks.base import shared_ngrams
from lib.datasets import EXAMS, Question, in_full, load_real
from lib.llm.chat import ChatModel, tag
from lib.llm.prompts import load_prompt
from lib.llm.recorder import Recorder, RecordingMiss
from lib.methods.base import Expansion, Method
from lib.methods.chr import CHR
from lib.methods.csqe import CSQE
from lib.methods.differential import Differential
from lib.methods.hyde import HyDE
from lib.methods.query2doc import Query2Doc
from lib.methods.thinkqe import ThinkQE
from lib.run import Retriever
from lib.studies.mimics.items import grade_mimic

WRITER = "a large language model"
"""The name under which the texts of the real sample are recorded, in place of a model's."""

_SEEN = CHR()
_HYDE_SEEN = HyDE("hyde_options", samples=1, include_question=False, options_visible=True)
_RATIONALE = HyDE(
    "rationale",
    samples=1,
    temperature=0.0,
    include_question=False,
    prompt="rationale",
    options_visible=True,
)
"""RAG2's query (Sohn et al. 2025): how one would answer, searched with in place of the question."""
_STEM = CHR("chr_stem", options_visible=False, prompt="chr_hypotheses_stem")


@dataclass(frozen=True)
class Kind:
    """One kind of text: who asks for it, of which sets, on dev or not, for all of BioASQ or not."""

    method: Method
    exams_only: bool = False
    on_dev: bool = False
    all_of_bioasq: bool = False


KINDS: Mapping[str, Kind] = {
    "hypotheses": Kind(_SEEN, on_dev=True, all_of_bioasq=True),
    "hypotheses-stem": Kind(_STEM, exams_only=True, on_dev=True),
    "hyde": Kind(HyDE(samples=2), on_dev=True, all_of_bioasq=True),
    "hyde-options": Kind(_HYDE_SEEN, exams_only=True, on_dev=True),
    "query2doc": Kind(Query2Doc(max_tokens=512), all_of_bioasq=True),
    "csqe": Kind(CSQE(samples=1)),
    "differential": Kind(Differential(), on_dev=True),
    "rationale": Kind(_RATIONALE),
    "thinkqe": Kind(ThinkQE(rounds=3, samples=1)),
}
"""Every kind by the name of its recording, ``real-<kind>.jsonl.gz``."""


def questions_for(kind: Kind, questions: Sequence[Question]) -> list[Question]:
    """The questions among these for which a kind is written.

    Dev questions of BioASQ have no options: they get the prompts that name none, and no
    differential.
    """
    if not kind.all_of_bioasq:
        questions = in_full(questions)
    chosen = []
    for question in questions:
        exam = question.dataset in EXAMS
        if question.split == "dev":
            wanted = kind.on_dev and (exam or kind.all_of_bioasq)
        else:
            wanted = exam or not kind.exams_only
        if wanted:
            chosen.append(question)
    return chosen


def writers_of(kind: Kind, question: Question) -> Method:
    """The method that asks for a kind of text about this question."""
    if kind.method is _SEEN and not question.options:
        return _STEM
    return kind.method


def recorded() -> Recorder:
    """The recordings of the real sample, as a chat model that replays them."""
    return Recorder(None, RECORDINGS / "real-*.jsonl.gz", "replay", name=WRITER)


def written_for(
    questions: Sequence[Question], llm: ChatModel, retriever: Retriever
) -> dict[str, dict[str, Expansion]]:
    """Expansions by kind and question id; a question whose text nobody recorded is missing."""
    found: dict[str, dict[str, Expansion]] = {}
    for name, kind in KINDS.items():
        made = found[name] = {}
        for question in questions_for(kind, questions):
            method = writers_of(kind, question)
            with tag(method=method.name, qid=question.qid):
                try:
                    made[question.qid] = method.expand(question, llm, retriever.search)
                except RecordingMiss:
                    continue
    return found


def texts_table(
    questions: Sequence[Question], written: Mapping[str, Mapping[str, Expansion]]
) -> pd.DataFrame:
    """What was written, measured before any result is read: a row a kind and set.

    Columns: kind, dataset, questions, texts, words (mean length), longest, repeated (texts that
    stand there more than once), invalid (replies that gave no hypotheses), copied (the mean share
    of a text's 8-word sequences that stand in its question or its options). A kind that nobody
    wrote has no row.
    """
    rows = []
    for kind, expansions in written.items():
        for dataset in dict.fromkeys(q.dataset for q in questions):
            asked = [q for q in questions if q.dataset == dataset and q.qid in expansions]
            if not asked:
                continue
            texts = [(q, text) for q in asked for text in _own_texts(expansions[q.qid])]
            lengths = [len(text.split()) for _, text in texts]
            copied = [shared_ngrams(text, [q.text, *q.options.values()]) for q, text in texts]
            counts = Counter(text for _, text in texts)
            rows.append(
                {
                    "kind": kind,
                    "dataset": dataset,
                    "questions": len(asked),
                    "texts": len(texts),
                    "words": np.mean(lengths),
                    "longest": max(lengths),
                    "repeated": sum(n for n in counts.values() if n > 1),
                    "invalid": sum(expansions[q.qid].request is None for q in asked),
                    "copied": np.mean(copied),
                }
            )
    return pd.DataFrame(rows)


def _own_texts(expansion: Expansion) -> list[str]:
    """The texts that were written for one question, without the question itself.

    A differential's H+ is another kind's, so that its mimics alone are counted; CSQE's extracts are
    quotes, and nobody's own.
    """
    trace = expansion.trace
    if "mimics" in trace:
        return list(trace["mimics"])
    if "H_plus" in trace:
        return [trace["H_plus"], trace["H_minus"]]
    rounds = [text for one in trace.get("rounds", ()) for text in one["texts"]]
    return [text for text in (*trace.get("passages", ()), *rounds) if text]


# probes: is H+ right, and is the question known by heart? -----------------------------------------

_RUN = 8
"""This many of the question's words, the same and in order, are taken as known by heart."""

_SHORTEST = 2 * _RUN
"""Words that a question must have at least, so that half of it can tell anything."""

Call = tuple[str, Callable[[ChatModel], object]]
"""A question id, and what asks a model about that question."""


def read_hypothesis(question: Question, h_plus: str, llm: ChatModel) -> str:
    """The letter of the option that H+ speaks for, to a reader who sees these two alone.

    Empty where it speaks for none, or the reply is no letter.
    """
    options = "\n".join(f"{letter}. {text}" for letter, text in sorted(question.options.items()))
    messages = load_prompt("read_hypothesis").messages(text=h_plus, options=options)
    (reply,) = llm.generate(messages, max_tokens=8)
    letter = reply.text.strip().strip(".").upper()
    return letter if letter in question.options else ""


def complete_stem(question: Question, llm: ChatModel) -> str:
    """How a model continues the first half of the question's words."""
    beginning, _ = halves(question)
    messages = load_prompt("complete_stem").messages(beginning=beginning)
    (reply,) = llm.generate(messages, max_tokens=512)
    return reply.text


def halves(question: Question) -> tuple[str, str]:
    """The two halves of a question's text by its words; the second empty if it is too short."""
    places = [match.start() for match in re.finditer(r"\S+", question.text)]
    if len(places) < _SHORTEST:
        return question.text, ""
    middle = places[len(places) // 2]
    return question.text[:middle].rstrip(), question.text[middle:]


PROBES: Mapping[str, Callable[[Question, Mapping, ChatModel], object]] = {
    "hplus-reading": lambda q, trace, llm: read_hypothesis(q, trace["H_plus"], llm),
    "mimics": lambda q, trace, llm: grade_mimic(q, trace["H_plus"], trace["H_minus"], llm),
    "memory": lambda q, trace, llm: complete_stem(q, llm),
}
"""Every probe by the name of its recording: what is asked about a question, given the trace of its
written hypotheses."""


def probe_calls(name: str, written: Mapping[str, Expansion]) -> Iterator[Call]:
    """What a probe asks about each question of the test half; only H+ is read on BioASQ too."""
    for question in in_full(load_real("test")):
        if name != "hplus-reading" and question.dataset not in EXAMS:
            continue
        if name == "memory" and not halves(question)[1]:
            continue
        trace = written[question.qid].trace
        with tag(method=name, qid=question.qid):
            yield question.qid, partial(PROBES[name], question, trace)


def options_read(written: Mapping[str, Expansion], llm: ChatModel) -> dict[str, str]:
    """The option that each H+ speaks for, by question id; empty for none."""
    return {qid: ask(llm) for qid, ask in probe_calls("hplus-reading", written)}


def known_by_heart(written: Mapping[str, Expansion], llm: ChatModel) -> dict[str, bool]:
    """Whether the writer knows each question by heart: the recording says how many words in a row
    were the question's (``tools.texts.as_run``). Those too short to tell are missing."""
    return {qid: int(ask(llm)) >= _RUN for qid, ask in probe_calls("memory", written)}
