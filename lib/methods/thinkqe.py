"""ThinkQE (Lei et al. 2025): rounds of search and rewriting, each with passages not shown yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from lib.data.questions import Question
from lib.llm.chat import Reply, sample_seed
from lib.llm.prompts import load_prompt
from lib.methods import base
from lib.methods.base import Budget, Expansion, Hit, Search
from lib.search.embed import Tower
from lib.ways import Hypotheses, Text

__all__ = ["ThinkQE", "new_passages"]


@dataclass(frozen=True)
class ThinkQE:
    """A mean of the question (``question_share``) and all that was written in every round.

    Defaults are the original's (which thinks, in 32,768 tokens); Table 3 of CHR fits ``samples=1``.
    Texts empty, or cut while still thinking, are dropped and counted; with none left it fails.
    """

    name: str = "thinkqe"
    rounds: int = 3
    shown: int = 5
    samples: int = 2
    thinking: Literal["none", "prompted", "native"] = "none"
    question_share: float = 0.25
    words: int = 128
    tower: Tower = "article"
    temperature: float = 0.7
    max_tokens: int = 512
    seed: int = 0
    options_visible: bool = False
    needs_llm: bool = True
    paper_name: ClassVar[str] = "ThinkQE"
    colour: ClassVar[str] = "#CC79A7"
    __post_init__ = base.check_choices

    def budget(self) -> Budget:
        """A request for ``samples`` texts in every round."""
        kind = "think" if self.thinking == "prompted" else "passage"
        return Budget(
            ((f"thinkqe_{kind}", self.shown),) * self.rounds,
            self.rounds * self.samples,
            self.max_tokens,
            self.words,
            temperature=self.temperature,
            seed=self.seed,
            length_as=self.paper_name,
        )

    def expand(self, question: Question, llm, search: Search) -> Expansion:
        """Search, show the LLM what is new, add what it writes to the query; again."""
        prompt = load_prompt(f"thinkqe_{'think' if self.thinking == 'prompted' else 'passage'}")
        asked, request = base.stem(question, self.options_visible), base.question_alone(question)
        texts, replies, rounds, previous, blacklist = [], [], [], {}, set()
        for i in range(self.rounds):
            # Deep enough for the filter, which skips at most ``shown`` more with every round.
            ranking = search(request, self.shown * self.rounds)
            new = new_passages(ranking, previous, blacklist, self.shown)
            shown, previous = base.first_words(new, self.words), dict(ranking[: self.shown])
            said = llm.generate(
                prompt.messages(question=asked, documents=base.numbered(shown)),
                n=self.samples,
                temperature=self.temperature,
                top_p=1.0,
                max_tokens=self.max_tokens,
                seed=sample_seed(self.seed, i * self.samples),
            )
            written = [self._written(reply) for reply in said]
            rounds.append({"shown": shown, "texts": written})
            texts, replies = texts + [t for t in written if t], replies + said
            if texts:
                each = (1 - self.question_share) / len(texts)
                own = Text(question.text, self.question_share, "query", "question")
                request = Hypotheses(
                    (own, *(Text(t, each, self.tower, "expansion") for t in texts))
                )
        trace = base.counted(replies, len(texts)) | {"rounds": rounds}
        if not texts:
            return Expansion(None, trace | {"error": f"all empty, {trace['cut']} replies were cut"})
        return Expansion(request, trace)

    def _written(self, reply: Reply) -> str:
        """What follows the thinking; nothing when the reply ended before that did."""
        if self.thinking == "none":
            return reply.text.strip()
        _, mark, after = reply.text.rpartition("</think>")
        done = mark or (reply.finish_reason != "length" and "<think>" not in reply.text)
        return after.strip() if done else ""


def new_passages(ranking: list[Hit], previous: dict, blacklist: set, shown: int) -> list[Hit]:
    """The redundancy filter: walk a ranking from the top until ``shown`` new ones are found.

    An id of ``previous``, the unfiltered top of the retrieval before, that comes again goes to the
    ``blacklist`` (changed in place), and is skipped for good.
    """
    new = []
    for pid, text in ranking:
        if pid in previous:
            blacklist.add(pid)
        if pid not in blacklist:
            new.append((pid, text))
        if len(new) == shown:
            break
    return new
