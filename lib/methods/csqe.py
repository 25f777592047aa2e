"""CSQE (Lei et al. 2024): the LLM's own passages, and key sentences out of a first search."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar, Literal

from lib.data.questions import Question
from lib.llm.chat import sample_seed
from lib.llm.prompts import load_prompt
from lib.llm.quotes import checked, quoted
from lib.llm.replies import ask_json
from lib.methods import base
from lib.methods.base import Budget, Expansion, Search, Sparse
from lib.search.embed import Tower
from lib.ways import Hypotheses, Text

__all__ = ["CSQE", "KEY_SENTENCES"]

_TEXT = {"type": "string"}
KEY_SENTENCES = {
    "type": "object",
    "required": ["passage", "sentences"],
    "additionalProperties": False,
    "properties": {"passage": _TEXT, "sentences": {"type": "array", "items": _TEXT}},
}
"""JSON schema of the reply to a single call."""


@dataclass(frozen=True)
class CSQE:
    """The question (weight n), n passages and n extracts of key sentences (weight 1 each).

    Defaults are the original's; the weighted mean stands for its BM25 text. Empty parts are dropped
    and counted; with none left the expansion fails. ``single_call`` asks once for both (n = 1), as
    CHR's Table 3 counts it; ``verify_extracts`` drops quotes that ``is_in`` does not find.
    """

    name: str = "csqe"
    mode: Literal["original", "single_call"] = "original"
    samples: int = 2
    first_stage: Literal["dense", "bm25"] = "dense"
    depth: int = 10
    words: int = 128
    verify_extracts: bool = False
    tower: Tower = "article"
    temperature: float = 1.0
    max_tokens: int = 1024
    seed: int = 0
    options_visible: bool = False
    needs_llm: bool = True
    paper_name: ClassVar[str] = "CSQE"
    colour: ClassVar[str] = "#009E73"
    __post_init__ = base.check_choices

    @property
    def needs_bm25(self) -> bool:
        """Whether its first search is by words."""
        return self.first_stage == "bm25"

    def budget(self) -> Budget:
        """Passages and extracts in two requests, or both in one."""
        prompts = (("csqe_knowledge", 0), ("csqe_extract", self.depth))
        texts = 2 * self.samples
        if self.mode == "single_call":
            prompts, texts = (("csqe_single_call", self.depth),), 1
        return Budget(
            prompts,
            texts,
            self.max_tokens,
            self.words,
            temperature=self.temperature,
            seed=self.seed,
            length_as=self.paper_name,
        )

    def expand(self, question: Question, llm, search: Search) -> Expansion:
        """Search, let the LLM answer and quote, and search with all of it."""
        bm25 = self.first_stage == "bm25"
        first = Sparse(question.text) if bm25 else base.question_alone(question)
        documents = base.first_words(search(first, self.depth), self.words)
        shown = base.stem(question, self.options_visible)
        passages, quotes, trace = self._ask(llm, shown, base.numbered(documents))
        spans = [checked(own, question.text, dict(documents).values()) for own in quotes]
        kept = [[s for s, found in own if found or not self.verify_extracts] for own in spans]
        extracts = [" ".join(own) for own in kept]
        trace |= {
            "documents": documents,
            "passages": passages,
            "spans": spans,
            "extracts": extracts,
            "found_share": fmean(ok for own in spans for _, ok in own) if any(spans) else None,
            "empty_passages": passages.count(""),
            "empty_extracts": extracts.count(""),
            "cut": sum(r.finish_reason == "length" for r in trace["replies"]),
        }
        parts = [Text(p, 1.0, self.tower, "passage") for p in passages if p]
        parts += [Text(e, 1.0, self.tower, "extract") for e in extracts if e]
        if not parts:
            return Expansion(None, {"error": "every passage and extract was empty"} | trace)
        parts.insert(0, Text(question.text, float(len(passages)), "query", "question"))
        return Expansion(Hypotheses(tuple(parts)), trace)

    def _ask(self, llm, question: str, documents: str) -> tuple[list, list, dict]:
        """Passages, quoted spans and trace: of two prompts, or of one JSON object."""
        options = {"temperature": self.temperature, "max_tokens": self.max_tokens}
        if self.mode == "single_call":
            asked = load_prompt("csqe_single_call").messages(question=question, documents=documents)
            reply = ask_json(llm, asked, KEY_SENTENCES, seed=self.seed, **options)
            value = reply.value or {"passage": "", "sentences": []}
            trace = {"replies": [*reply.replies], "repaired": reply.repaired, "error": reply.error}
            return [value["passage"].strip()], [value["sentences"]], trace
        options |= {"n": self.samples, "top_p": 1.0}
        asked = load_prompt("csqe_knowledge").messages(question=question)
        said = llm.generate(asked, seed=self.seed, **options)
        asked = load_prompt("csqe_extract").messages(question=question, documents=documents)
        cited = llm.generate(asked, seed=sample_seed(self.seed, self.samples), **options)
        passages = [r.text.strip() for r in said]
        return passages, [quoted(r.text) for r in cited], {"replies": [*said, *cited]}
