"""Contrastive Hypothesis Retrieval: one call, two hypotheses, one search with h+ - lambda h-."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from lib.datasets import Question
from lib.embed import Tower
from lib.llm.chat import ask_json
from lib.llm.prompts import load_prompt
from lib.methods.base import Budget, Expansion, Search, register, sampling, says_nothing, stem
from lib.query_spec import Hypotheses, SearchSpec, Text

HYPOTHESES = {
    "type": "object",
    "properties": {"H_plus": {"type": "string"}, "H_minus": {"type": "string"}},
    "required": ["H_plus", "H_minus"],
    "additionalProperties": False,
}
"""JSON schema of the reply: the paper's two keys."""


def written_pair(
    question: str, target: str, mimic: str, spec: SearchSpec, *, tower: Tower = "article"
) -> Hypotheses:
    """H+ and H- of one question as texts with roles; the question is searched with only if the
    search specification gives it a weight."""
    texts = (
        Text(target, 1.0, tower, "target"),
        Text(mimic, 1.0, tower, "mimic"),
        Text(question, 0.0, "query", "question"),
    )
    return Hypotheses(texts, spec)


@dataclass(frozen=True)
class CHR:
    """H+ with weight 1 and H- with weight -lambda (CHR eq. 2).

    Paper defaults: lambda = 1, options visible, no question in the vector, search over the whole
    corpus. ``pool`` re-ranks the best ``pool`` passages by H+ instead, which the paper's prose also
    allows. A reply that stays broken after one repair call fails the question: it is counted, and
    never replaced.
    """

    name: str = "chr"
    lam: float = 1.0
    question_weight: float = 0.0
    pool: int = 0
    tower: Tower = "article"
    temperature: float = 0.0
    max_tokens: int = 512
    seed: int = 0
    prompt: str = "chr_hypotheses"
    options_visible: bool = True
    needs_llm: bool = True
    paper_name: ClassVar[str] = "CHR"

    def budget(self) -> Budget:
        """One request for one reply with both hypotheses."""
        return Budget(((self.prompt, 0),), 1, **sampling(self), length_as="CHR")

    def expand(self, question: Question, llm, search: Search) -> Expansion:
        """Ask once for both hypotheses and shift the query by -lambda times the mimic."""
        messages = load_prompt(self.prompt).messages(question=stem(question, self.options_visible))
        reply = ask_json(llm, messages, HYPOTHESES, **sampling(self))
        empty = [name for name, text in (reply.value or {}).items() if says_nothing(text)]
        error = reply.error or ", ".join(f"{name} is empty" for name in empty)
        state = {"repaired": reply.repaired, "cut": reply.cut, "error": error}
        trace = state | {"replies": reply.replies, **(reply.value or {})}
        if error:
            return Expansion(None, trace)
        spec = SearchSpec(lam=self.lam, question_weight=self.question_weight, pool=self.pool)
        pair = (reply.value["H_plus"], reply.value["H_minus"])
        return Expansion(written_pair(question.text, *pair, spec, tower=self.tower), trace)


@dataclass(frozen=True)
class HPlus(CHR):
    """The control: CHR's own H+ with identical text, lambda = 0."""

    name: str = "hplus"
    lam: float = 0.0
    paper_name: ClassVar[str] = ""

    @classmethod
    def of(cls, chr: CHR) -> HPlus:
        """The control of CHR with these settings: whatever is set for CHR holds for both."""
        settings = {field.name: getattr(chr, field.name) for field in fields(CHR)}
        return cls(**settings | {"name": cls.name, "lam": cls.lam})


register(CHR())
register(HPlus())
