"""What is written for each question of the fresh sample, and by whom it is asked.

A kind of text is a method's request, as on the real sample. ``described`` are the hypotheses by the
paper's own request; ``named`` those by this companion's, which asks for a name; ``held`` those of a
writer who is told to hold a wrong option for right.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lib.base.paths import RECORDINGS
from lib.datasets import Question
from lib.llm.chat import ChatModel, ask_json, tag
from lib.llm.prompts import load_prompt
from lib.llm.recorder import Recorder, RecordingMiss
from lib.methods.base import Expansion, Method, Search, sampling, stem
from lib.methods.chr import CHR, HYPOTHESES, written_pair
from lib.methods.csqe import CSQE
from lib.methods.differential import Differential
from lib.methods.hyde import HyDE
from lib.methods.query2doc import Query2Doc
from lib.methods.thinkqe import ThinkQE
from lib.query_spec import SearchSpec
from lib.studies.masked.sample import held_options
from lib.studies.real.expansions import KINDS as REAL_KINDS
from lib.studies.real.expansions import WRITER

DESCRIBED = "chr_hypotheses_described"
"""The paper's request: a description, and no name."""

_HELD = {
    **HYPOTHESES,
    "properties": {**HYPOTHESES["properties"], "mimic_option": {"type": "string"}},
    "required": [*HYPOTHESES["required"], "mimic_option"],
}


@dataclass(frozen=True)
class Held(CHR):
    """CHR asked of a writer who holds a wrong option for right, and says which option its mimic is.

    ``trace["mimic_option"]`` is that option's letter, "none" where it is none of them.
    """

    name: str = "chr_held"
    prompt: str = "chr_hypotheses_held"

    def expand(self, question: Question, llm: ChatModel, search: Search) -> Expansion:
        """Ask once for both hypotheses and the mimic's option."""
        option = question.options[held_options([question])[question.qid]]
        shown = stem(question, options_visible=True)
        messages = load_prompt(self.prompt).messages(question=shown, option=option)
        reply = ask_json(llm, messages, _HELD, **sampling(self))
        trace = {"replies": reply.replies, "error": reply.error, **(reply.value or {})}
        if reply.value is None:
            return Expansion(None, trace)
        pair = (reply.value["H_plus"], reply.value["H_minus"])
        return Expansion(written_pair(question.text, *pair, SearchSpec(lam=self.lam)), trace)


KINDS: Mapping[str, Method] = {
    "described": CHR("chr_described", prompt=DESCRIBED),
    "named": CHR(),
    "held": Held(),
    "hyde": HyDE(samples=1),
    "rationale": REAL_KINDS["rationale"].method,
    "differential": Differential(prompt=DESCRIBED),
    "query2doc": Query2Doc(max_tokens=512),
    "csqe": CSQE(samples=1),
    "thinkqe": ThinkQE(rounds=3, samples=1),
}
"""Every kind by the name of its recording, ``masked-<kind>.jsonl.gz``. The differential's own H+ is
``described``."""


FILES = RECORDINGS / "masked-*.jsonl.gz"
ANSWERED = RECORDINGS / "masked-answers.jsonl.gz"
PUBMEDQA = RECORDINGS / "masked-pubmedqa.jsonl.gz"


def files() -> list[Path]:
    """The recordings behind the exam questions: all but PubMedQA's."""
    return [path for path in sorted(RECORDINGS.glob(FILES.name)) if path != PUBMEDQA]


def recorded() -> Recorder:
    """All that was written for the fresh sample, and what the answerer said, to be replayed."""
    return Recorder(None, FILES, "replay", name=WRITER)


def no_search(request: object, k: int) -> list[tuple[str, str]]:
    """Given to methods in place of a search; RuntimeError if one should search."""
    raise RuntimeError("no kind of text here is written after a search")


def written_for(
    questions: Sequence[Question],
    kinds: Collection[str] = tuple(KINDS),
    search: Search = no_search,
) -> dict[str, dict[str, Expansion]]:
    """Expansions by kind and question id; a question whose text nobody recorded is missing."""
    llm = recorded()
    found: dict[str, dict[str, Expansion]] = {kind: {} for kind in KINDS}
    for kind in kinds:
        method = KINDS[kind]
        for question in questions:
            with tag(method=method.name, qid=question.qid):
                try:
                    made = method.expand(question, llm, search)
                except RecordingMiss:
                    continue
            if made.request is not None:
                found[kind][question.qid] = made
    return found
