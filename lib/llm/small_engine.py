"""The bundled model without the client: it counts tokens and generates, to be measured."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import dataclass

from lib.llm.small_model import small_model


@dataclass(frozen=True)
class Generated:
    """One reply with the engine's own count of tokens; ``reason`` is stop or length."""

    text: str
    reason: str
    prompt_tokens: int
    output_tokens: int


class SmallEngine:
    """The bundled SmolLM2, whatever model is asked for; counts are those of llama.cpp's timings."""

    def __init__(self) -> None:
        self._url = small_model().base_url.removesuffix("/v1")

    def _post(self, path: str, body: dict) -> dict:
        head = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url + path, json.dumps(body).encode(), head)
        with urllib.request.urlopen(request, timeout=3600) as answer:
            return json.load(answer)

    def count(self, messages: list[dict]) -> int:
        """See the class."""
        return self.tokens(self._post("/apply-template", {"messages": messages})["prompt"])

    def tokens(self, text: str) -> int:
        """Tokens of a text; marks of the chat template are one each."""
        return len(self._post("/tokenize", {"content": text, "parse_special": True})["tokens"])

    def generate(self, body: dict) -> Generated:
        """See the class."""
        answer = self._post("/v1/chat/completions", body)
        (choice,), spent = answer["choices"], answer["timings"]
        read = spent["cache_n"] + spent["prompt_n"]
        text, reason = choice["message"]["content"] or "", choice["finish_reason"]
        return Generated(text, reason, read, spent["predicted_n"])
