"""The one client: a model behind any OpenAI-compatible server, by the ``openai`` package.

The server's key comes from the environment variable CHR_LLM_KEY and nowhere else.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lib.llm import LLMError, Message, Reply, current_tag, sample_seed, tag

__all__ = ["OpenAIChat"]

_REFUSED = (400, 404, 415, 422, 501)


class OpenAIChat:
    """A model behind an OpenAI-compatible server (vLLM, Ollama, llama.cpp, hosted).

    429, 5xx, timeouts and dropped connections are retried ``max_retries`` times by the ``openai``
    client (exponential back-off with jitter, Retry-After honoured), then raise LLMError.
    ``timeout_s`` bounds one try. A server that refuses ``n`` > 1 is asked n times with the seeds
    of ``sample_seed``; one that refuses schemas is asked without, and the replies' notes say so.
    """

    tag = staticmethod(tag)

    def __init__(self, model: str, base_url: str, *, timeout_s: float = 300, max_retries: int = 5):
        import openai

        if "@" in base_url:
            raise ValueError("no user or password in the base URL: set CHR_LLM_KEY instead")
        self.name, self.base_url = model, base_url
        self._several = self._schemas = True
        # A proxy in the environment is for the outside world, not for a server on this machine.
        local = re.match(r"https?://(localhost|127\.|\[::1\])", base_url)
        http = openai.DefaultHttpxClient(trust_env=not local)
        key = os.environ.get("CHR_LLM_KEY") or "none"
        self._client = openai.OpenAI(
            base_url=base_url, api_key=key, timeout=timeout_s, max_retries=max_retries,
            http_client=http,
        )  # fmt: skip

    def generate(
        self, messages: Sequence[Message], *, n: int = 1, temperature: float = 0.0,
        top_p: float = 1.0, max_tokens: int = 512, seed: int = 0,
        stop: str | Sequence[str] | None = None, schema: dict | None = None,
    ) -> list[Reply]:  # fmt: skip
        """``n`` replies, in one request where the server can; LLMError when it cannot answer."""
        options = dict(
            messages=messages, temperature=temperature, top_p=top_p, max_tokens=max_tokens,
            **({"stop": stop} if stop else {}),
        )  # fmt: skip
        replies: list[Reply] = []
        while len(replies) < n:
            wanted = n - len(replies) if self._several else 1
            options["seed"] = sample_seed(seed, len(replies))
            got = self._negotiate(options, wanted, schema)
            self._several &= len(got) >= wanted
            replies += got
        return replies[:n]

    def _negotiate(self, options: dict, n: int, schema: dict | None) -> list[Reply]:
        """Ask; if that is refused, with n = 1; if that too, without the schema, with a note."""
        sent = schema if self._schemas else None
        try:
            got = self._post(options, n, sent)
        except LLMError as error:
            if error.status not in _REFUSED or (n == 1 and not sent):
                raise
            if n > 1:
                got = self._negotiate(options, 1, schema)
                self._several = False
                return got
            got = self._post(options, 1, None)
            self._schemas, sent = False, None
        return [replace(r, note="schema not enforced") for r in got] if schema and not sent else got

    def _post(self, options: dict, n: int, schema: dict | None) -> list[Reply]:
        if n > 1:
            options = options | {"n": n}
        if schema:
            form = {"name": "reply", "strict": True, "schema": schema}
            options = options | {"response_format": {"type": "json_schema", "json_schema": form}}
        start = time.perf_counter()
        answer = self._answer(options)
        spent = time.perf_counter() - start
        usage, method = answer.usage, current_tag()["method"]
        cost = (usage and usage.prompt_tokens, usage and usage.completion_tokens, spent)
        return [
            Reply(
                _utf8(choice.message.content), choice.finish_reason or "unknown",
                *((0, 0, 0.0) if i else cost), answer.model or self.name, i, method=method,
            )
            for i, choice in enumerate(answer.choices)
        ]  # fmt: skip

    def _answer(self, options: dict) -> Any:
        """The server's answer, checked to have choices; after a garbled one, asked once more."""
        import openai

        for _ in range(2):
            try:
                answer = self._client.chat.completions.create(model=self.name, **options)
            except openai.APIError as error:
                raise self._error(str(error), getattr(error, "status_code", None)) from error
            except ValueError as error:
                problem = f"the answer is not JSON ({error})"
                continue
            choices = getattr(answer, "choices", None)
            if choices and all(choice.message for choice in choices):
                return answer
            problem = f"the answer has no choices: {str(answer)[:200]!r}"
        raise self._error(problem)

    def _error(self, problem: str, status: int | None = None) -> LLMError:
        if status in (400, 413, 422) and re.search("context|too long|too large", problem):
            advice = "shorten the prompt (fewer passages), or serve with a longer context"
        elif status in (401, 403):
            advice = "set the server's key: export CHR_LLM_KEY=..."
        elif status == 429:
            advice = "wait, or use fewer workers"
        else:
            advice = f"see whether it is up and serves this model: curl {self.base_url}/models"
        return LLMError(f"{self.name} at {self.base_url}: {problem}. Next: {advice}", status)


def _utf8(text: str | None) -> str:
    """Text that can be written to a file: half a surrogate pair becomes "?", None is empty."""
    return (text or "").encode("utf-8", "replace").decode("utf-8")
