"""A method in a file of its own, as a reader would write one: Rocchio's relevance feedback (1971).

A profile names it: ``methods = ["tests/rocchio.py:Rocchio"]``.
"""

from __future__ import annotations

from dataclasses import dataclass

from lib.methods import Expansion, Hypotheses, Text
from lib.methods.base import question_alone


@dataclass(frozen=True)
class Rocchio:
    """The question, moved towards the mean of its first ``depth`` results, and away from the next.

    q + beta mean(first) - lam mean(next), on stored vectors: no passage is encoded. Defaults are
    those of the SMART system.
    """

    name: str = "rocchio"
    depth: int = 5
    beta: float = 0.75
    lam: float = 0.15
    needs_llm: bool = False
    options_visible: bool = False

    def budget(self) -> None:
        """Nobody is asked."""
        return None

    def expand(self, question, llm, search) -> Expansion:
        """Search once, and say where to search again."""
        asked = question_alone(question)
        found = [pid for pid, _ in search(asked, 2 * self.depth)]
        first, after = found[: self.depth], found[self.depth :]
        texts = [Text(pid=pid, weight=self.beta / len(first)) for pid in first]
        texts += [Text(pid=pid, weight=-self.lam / len(after)) for pid in after]
        return Expansion(Hypotheses((*asked.texts, *texts)), {"first": first, "next": after})
