"""ThinkQE (Lei et al. 2025): rounds of search and rewriting, each with passages not shown yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from lib.datasets import Question
from lib.embed import Tower
from lib.llm.chat import Reply, sample_seed
from lib.llm.prompts import load_prompt
from lib.methods import base
from lib.methods.base import Budget, Expansion, Search
from lib.query_spec import Hit, Hypotheses, Text


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
    __post_init__ = base.check_choices

    def budget(self) -> Budget:
        """A request for ``samples`` texts in every round."""
        kind = "think" if self.thinking == "prompted" else "passage"
        return Budget(
            ((f"thinkqe_{kind}", self.shown),) * self.rounds,
            self.rounds * self.samples,
            words=self.words,
            **base.sampling(self),
            length_as=self.paper_name,
        )

    def expand(self, question: Question, llm, search: Search) -> Expansion:
        """Search, show the LLM what is new, add what it writes to the query; again."""
        kind = "think" if self.thinking == "prompted" else "passage"
        prompt = load_prompt(f"thinkqe_{kind}")
        stem = base.stem(question, self.options_visible)
        request = base.question_alone(question)
        texts: list[str] = []
        replies: list[Reply] = []
        rounds: list[dict] = []
        previous: dict[str, str] = {}
        blacklist: set[str] = set()
        for i in range(self.rounds):
            # Deep enough for the filter, which skips at most ``shown`` more with every round.
            ranking = search(request, self.shown * self.rounds)
            new = new_passages(ranking, previous, blacklist, self.shown)
            shown = base.first_words(new, self.words)
            previous = dict(ranking[: self.shown])
            messages = prompt.messages(question=stem, documents=base.numbered(shown))
            options = base.sampling(self, sample_seed(self.seed, i * self.samples))
            new_replies = llm.generate(messages, n=self.samples, top_p=1.0, **options)
            written = [self._written(reply) for reply in new_replies]
            rounds.append({"shown": shown, "texts": written})
            texts += [text for text in written if not base.says_nothing(text)]
            replies += new_replies
            if texts:
                request = self._request(question, texts)
        trace = base.reply_trace(replies, used=len(texts)) | {"rounds": rounds}
        if not texts:
            return Expansion(None, trace | {"error": f"all empty, {trace['cut']} replies were cut"})
        return Expansion(request, trace)

    def _request(self, question: Question, texts: list[str]) -> Hypotheses:
        """The question with its share of the weight, and all texts with equal parts of the rest."""
        weight = (1 - self.question_share) / len(texts)
        parts = [Text(question.text, self.question_share, "query", "question")]
        parts += [Text(text, weight, self.tower, "expansion") for text in texts]
        return Hypotheses(tuple(parts))

    def _written(self, reply: Reply) -> str:
        """What follows the thinking; nothing when the reply was cut before that ended."""
        still_thinking = reply.finish_reason == "length" and not reply.thinking
        if self.thinking != "none" and still_thinking:
            return ""
        return reply.text.strip()


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


base.register(ThinkQE())
