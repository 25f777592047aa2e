"""Query2Doc (Wang et al. 2023): search with the question and one pseudo-document behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from lib.datasets import Question
from lib.llm.prompts import load_prompt
from lib.methods import base
from lib.methods.base import Budget, Expansion, Search
from lib.query_spec import Hypotheses, Sparse, Text


@dataclass(frozen=True)
class Query2Doc:
    """One sampled pseudo-document, read together with the question.

    Defaults are the original's (four examples, temperature 1, 128 tokens); CHR's Table 3 counts
    512. ``dense`` says how the two become one vector: a (question, document) pair on the query
    tower, where the question survives a cut, the same pair on the article tower (encoders that know
    no pairs take the question for a title there, and do not read it), or the ``mean`` of each on
    its own tower. ``sparse`` is the original for BM25: the question ``repeats`` times, then the
    document.
    """

    name: str = "query2doc"
    shots: Literal[0, 4] = 4
    dense: Literal["pair_query", "pair_article", "mean"] = "pair_query"
    sparse: bool = False
    repeats: int = 5
    temperature: float = 1.0
    max_tokens: int = 128
    seed: int = 0
    options_visible: bool = False
    needs_llm: bool = True
    paper_name: ClassVar[str] = "Query2Doc"
    __post_init__ = base.check_choices

    def budget(self) -> Budget:
        """One request for one passage."""
        prompts = ((f"query2doc_{self.shots}shot", 0),)
        return Budget(prompts, 1, **base.sampling(self), length_as=self.paper_name)

    def expand(self, question: Question, llm, search: Search) -> Expansion:
        """Ask once for one passage and put it behind the question."""
        prompt = load_prompt(f"query2doc_{self.shots}shot")
        messages = prompt.messages(question=base.stem(question, self.options_visible))
        replies = llm.generate(messages, n=1, top_p=1.0, **base.sampling(self))
        passages, trace = base.passages_of(replies)
        if not passages:
            return Expansion(None, trace | {"error": "the sampled passage was empty"})
        if self.sparse:
            repeated = [question.text] * self.repeats
            return Expansion(Sparse(" ".join([*repeated, *passages])), trace)
        if self.dense == "mean":
            texts = [
                Text(question.text, 1.0, "query", "question"),
                Text(passages[0], 1.0, "article", "passage"),
            ]
        else:
            pair = (question.text, passages[0])
            texts = [Text(pair, 1.0, self.dense.removeprefix("pair_"), "question and passage")]
        return Expansion(Hypotheses(tuple(texts)), trace)


base.register(Query2Doc())
