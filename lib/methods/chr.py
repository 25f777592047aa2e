"""Contrastive Hypothesis Retrieval: one call, two hypotheses, one search with h+ - lambda h-."""

from __future__ import annotations

from dataclasses import dataclass

from lib.data.questions import Question
from lib.llm.prompts import load_prompt
from lib.llm.replies import ask_json
from lib.methods.base import Dense, Expansion, Search, Text, Tower, stem

__all__ = ["CHR", "HPlus", "HYPOTHESES"]

HYPOTHESES = {
    "type": "object",
    "properties": {"H_plus": {"type": "string"}, "H_minus": {"type": "string"}},
    "required": ["H_plus", "H_minus"],
    "additionalProperties": False,
}
"""JSON schema of the reply: the paper's two keys."""


@dataclass(frozen=True)
class CHR:
    """H+ with weight 1 and H- with weight -lambda (CHR eq. 2).

    Paper defaults: lambda = 1, options visible, no question in the vector, search over the whole
    corpus. ``pool`` re-ranks the best ``pool`` passages by H+ instead (ambiguity A3). A reply that
    stays broken after one repair call fails the question (A18): it is counted, never replaced.
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

    def expand(self, question: Question, llm, search: Search) -> Expansion:
        """Ask once for both hypotheses and shift the query by -lambda times the mimic."""
        messages = load_prompt(self.prompt).messages(question=stem(question, self.options_visible))
        reply = ask_json(
            llm,
            messages,
            HYPOTHESES,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            seed=self.seed,
        )
        state = {"repaired": reply.repaired, "cut": reply.cut, "error": reply.error}
        trace = state | {"replies": reply.replies, **(reply.value or {})}
        if reply.value is None:
            return Expansion(None, trace)
        target = Text(reply.value["H_plus"], 1.0, self.tower, "H+")
        texts = [target]
        if self.lam:
            texts.append(Text(reply.value["H_minus"], -self.lam, self.tower, "H-"))
        if self.question_weight:
            texts.append(Text(question.text, self.question_weight, "query", "question"))
        pool = Dense((target,)) if self.pool else None
        return Expansion(Dense(tuple(texts), pool, self.pool), trace)


@dataclass(frozen=True)
class HPlus(CHR):
    """The control: CHR's own H+ with identical text, lambda = 0."""

    name: str = "hplus"
    lam: float = 0.0
