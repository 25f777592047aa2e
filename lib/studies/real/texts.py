"""Which texts are written for the real sample, by which method, for which questions.

A kind of text is a method's request, so a recording of it replays that method anywhere. Writers see
what the prompt shows and nothing else; no conversation holds two kinds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lib.datasets import EXAMS, Question, in_full
from lib.methods.base import Method
from lib.methods.chr import CHR
from lib.methods.csqe import CSQE
from lib.methods.differential import Differential
from lib.methods.hyde import HyDE
from lib.methods.query2doc import Query2Doc
from lib.methods.thinkqe import ThinkQE

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
