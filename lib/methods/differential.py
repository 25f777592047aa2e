"""A differential diagnosis as contrast: one H+, and several mimics in place of one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from lib.datasets import Question
from lib.llm.chat import ask_json
from lib.llm.prompts import load_prompt
from lib.methods.base import Budget, Expansion, Search, sampling, says_nothing, stem
from lib.methods.chr import CHR
from lib.query_spec import Hypotheses, Text

MIMICS = {
    "type": "object",
    "properties": {
        "mimics": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 4}
    },
    "required": ["mimics"],
    "additionalProperties": False,
}
"""JSON schema of the reply."""


@dataclass(frozen=True)
class Differential(CHR):
    """CHR's own H+, against up to four mimics asked for in a request of their own.

    A passage is penalised by its nearest mimic only (the form ``max``), so that one wrong mimic
    among several costs little. Our addition: no paper of this companion has it. Questions for which
    either reply stays broken fail and are counted.
    """

    name: str = "differential"
    lam: float = 0.4
    mimics_prompt: str = "differential"
    paper_name: ClassVar[str] = ""

    def budget(self) -> Budget:
        """CHR's request, and one for the mimics."""
        return replace(
            super().budget(), prompts=((self.prompt, 0), (self.mimics_prompt, 0)), texts=2
        )

    def expand(self, question: Question, llm, search: Search) -> Expansion:
        """CHR's hypotheses, with H- replaced by every mimic of the differential."""
        made = super().expand(question, llm, search)
        shown = stem(question, self.options_visible)
        messages = load_prompt(self.mimics_prompt).messages(question=shown)
        reply = ask_json(llm, messages, MIMICS, **sampling(self))
        replies = [*made.trace["replies"], *reply.replies]
        written = (reply.value or {}).get("mimics", [])
        trace = made.trace | {
            "replies": replies,
            "mimics": [text for text in written if not says_nothing(text)],
        }
        if made.request is None or not trace["mimics"]:
            error = made.trace["error"] or reply.error or "every mimic is empty"
            return Expansion(None, trace | {"error": error})
        others = tuple(t for t in made.request.texts if t.role != "mimic")
        mimics = tuple(Text(text, 1.0, self.tower, "mimic") for text in trace["mimics"])
        spec = replace(made.request.spec, form="max")
        return Expansion(Hypotheses((*others, *mimics), spec), trace)
