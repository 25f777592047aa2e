"""CSQE (Lei et al. 2024): the LLM's own passages, and key sentences out of a first search."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar, Literal

from lib.datasets import Question
from lib.embed import Tower
from lib.llm.chat import ask_json, sample_seed
from lib.llm.prompts import load_prompt
from lib.llm.replies import checked, quoted, with_words
from lib.methods import base
from lib.methods.base import Budget, Expansion, Search
from lib.query_spec import Hypotheses, Sparse, Text

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
    __post_init__ = base.check_choices

    def budget(self) -> Budget:
        """Passages and extracts in two requests, or both in one."""
        prompts = (("csqe_knowledge", 0), ("csqe_extract", self.depth))
        texts = 2 * self.samples
        if self.mode == "single_call":
            prompts, texts = (("csqe_single_call", self.depth),), 1
        options = base.sampling(self)
        return Budget(prompts, texts, words=self.words, **options, length_as=self.paper_name)

    def expand(self, question: Question, llm, search: Search) -> Expansion:
        """Search, let the LLM answer and quote, and search with all of it."""
        documents = self.first_results(question, search)
        shown = base.stem(question, self.options_visible)
        passages, quotes, trace = self._ask(llm, shown, documents)
        texts = dict(documents).values()
        # For each reply: its quotes, and whether the documents really have them.
        spans = [checked(of_reply, question.text, texts) for of_reply in quotes]
        extracts = [self._extract(of_reply) for of_reply in spans]
        verified = [is_quote for of_reply in spans for _, is_quote in of_reply]
        trace |= {
            "documents": documents,
            "passages": passages,
            "spans": spans,
            "extracts": extracts,
            "found_share": fmean(verified) if verified else None,
            "empty_passages": sum(map(base.says_nothing, passages)),
            "empty_extracts": extracts.count(""),
            "cut": sum(reply.finish_reason == "length" for reply in trace["replies"]),
        }
        parts = [
            Text(passage, 1.0, self.tower, "passage")
            for passage in passages
            if not base.says_nothing(passage)
        ]
        parts += [Text(extract, 1.0, self.tower, "extract") for extract in extracts if extract]
        if not parts:
            return Expansion(None, {"error": "every passage and extract was empty"} | trace)
        parts.insert(0, Text(question.text, float(len(passages)), "query", "question"))
        return Expansion(Hypotheses(tuple(parts)), trace)

    def first_results(self, question: Question, search: Search) -> list[base.Hit]:
        """The documents that the extraction prompt shows: the first words of the first results."""
        by_words = self.first_stage == "bm25"
        first = Sparse(question.text) if by_words else base.question_alone(question)
        return base.first_words(search(first, self.depth), self.words)

    def _extract(self, spans: list[tuple[str, bool]]) -> str:
        """The quotes of one reply as one text, without invented ones if extracts are verified."""
        return " ".join(span for span, ok in spans if ok or not self.verify_extracts)

    def _ask(self, llm, question: str, shown: list[base.Hit]) -> tuple[list, list, dict]:
        """Passages, quoted spans and trace: of two prompts, or of one JSON object."""
        documents = base.numbered(shown)
        if self.mode == "single_call":
            prompt = load_prompt("csqe_single_call")
            messages = prompt.messages(question=question, documents=documents)
            reply = ask_json(llm, messages, KEY_SENTENCES, **base.sampling(self))
            value = reply.value or {"passage": "", "sentences": []}
            trace = {"replies": [*reply.replies], "repaired": reply.repaired, "error": reply.error}
            return [value["passage"].strip()], [value["sentences"]], trace
        messages = load_prompt("csqe_knowledge").messages(question=question)
        knowledge = llm.generate(messages, n=self.samples, top_p=1.0, **base.sampling(self))
        messages = load_prompt("csqe_extract").messages(question=question, documents=documents)
        options = base.sampling(self, sample_seed(self.seed, self.samples))
        extracts = llm.generate(messages, n=self.samples, top_p=1.0, **options)
        passages = [reply.text.strip() for reply in knowledge]
        # Where quotes were recorded by their places, the words are put back.
        quotes = [quoted(with_words(reply.text, dict(shown))) for reply in extracts]
        return passages, quotes, {"replies": [*knowledge, *extracts]}


base.register(CSQE())
