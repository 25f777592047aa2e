"""The one client: a model behind any OpenAI-compatible server, by the ``openai`` package."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from typing import Any

from lib.base.files import canonical_json
from lib.base.secrets import redacted
from lib.llm.chat import ChatModel, LLMError, Message, Reply, sample_seed

__all__ = ["OpenAIChat"]


class OpenAIChat(ChatModel):
    """A model behind an OpenAI-compatible server; its key comes from CHR_LLM_KEY and nowhere else.

    A server that says the key again, in an error or a reply, has it blotted out there.

    429, 5xx, timeouts (``timeout_s`` a try) and dropped connections are retried ``max_retries``
    times by ``openai`` (back-off, Retry-After honoured), then raise LLMError. A server that refuses
    ``n`` > 1 is asked n times with the seeds of ``sample_seed``; one that refuses schemas is asked
    without, and the replies' notes say so.
    """

    def __init__(self, model: str, base_url: str, *, timeout_s: float = 300, max_retries: int = 5):
        import openai

        if "@" in base_url or "?" in base_url:
            raise ValueError(
                "no user, password or key in the base URL: export CHR_LLM_KEY=... instead"
            )
        self.name, self.base_url = model, base_url
        self._several = self._schemas = True
        # A proxy in the environment is for the outside world, not for a server on this machine.
        local = re.match(r"https?://(localhost|127\.|\[::1\])", base_url)
        self._client = openai.OpenAI(
            base_url=base_url,
            api_key=os.environ.get("CHR_LLM_KEY") or "none",
            timeout=timeout_s,
            max_retries=max_retries,
            http_client=openai.DefaultHttpxClient(trust_env=not local),
        )

    def _say(self, messages: list[Message], n: int, options: dict) -> list[Reply]:
        schema, seed, stop = (options.pop(name) for name in ("schema", "seed", "stop"))
        if choices := options.pop("choices", ()):
            return [self._likelihoods(messages, choices)]
        request = {"messages": messages, **options, **({"stop": stop} if stop else {})}
        replies: list[Reply] = []
        while len(replies) < n:
            wanted = n - len(replies) if self._several else 1
            request["seed"] = sample_seed(seed, len(replies))
            got = self._negotiate(request, wanted, schema)
            self._several &= len(got) >= wanted
            replies += got
        return replies[:n]

    def _negotiate(self, request: dict, n: int, schema: dict | None) -> list[Reply]:
        """Ask; if that is refused, with n = 1; if that too, without the schema, with a note."""
        sent = schema if self._schemas else None
        try:
            got = self._post(request, n, sent)
        except LLMError as error:
            if error.status not in (400, 404, 415, 422, 501) or (n == 1 and not sent):
                raise
            if n > 1:
                return self._negotiate(request, 1, schema)
            got = self._post(request, 1, None)
            self._schemas, sent = False, None
        return [replace(r, note="schema not enforced") for r in got] if schema and not sent else got

    def _post(self, request: dict, n: int, schema: dict | None) -> list[Reply]:
        """One request; after an answer that cannot be read, once more."""
        form = {"name": "reply", "strict": True, "schema": schema}
        request = request | ({"n": n} if n > 1 else {})
        if schema:
            request["response_format"] = {"type": "json_schema", "json_schema": form}
        for last in (False, True):
            try:
                return self._replies(*self._create(request))
            except (ValueError, TypeError, AttributeError) as error:
                if last:
                    raise self._error(f"the answer cannot be read ({error})") from None

    def _create(self, request: dict) -> tuple[Any, float]:
        """The server's answer and the seconds it took."""
        import openai

        start = time.perf_counter()
        try:
            answer = self._client.chat.completions.create(model=self.name, **request)
        except openai.APIError as error:
            # Not "from error": a traceback would show what the server said, and so the key.
            raise self._error(str(error), getattr(error, "status_code", None)) from None
        return answer, time.perf_counter() - start

    def _likelihoods(self, messages: list[Message], choices: list[str]) -> Reply:
        """Log-probabilities of the choices among the 20 likeliest first tokens.

        A choice that is not among them gets the least of the 20; LLMError when the server gives no
        log-probabilities.
        """
        asked = {"messages": messages, "max_tokens": 1, "temperature": 0.0, "logprobs": True}
        try:
            answer, spent = self._create(asked | {"top_logprobs": 20})
            listed = answer.choices[0].logprobs.content[0].top_logprobs
            least = round(min(entry.logprob for entry in listed), 4)
        except (AttributeError, IndexError, TypeError, ValueError) as error:
            raise self._error(f"the answer has no log-probabilities ({error})") from None
        found: dict[str, float] = {}
        for entry in listed:  # likeliest first; " B" and "B" are the same letter
            found.setdefault(entry.token.strip(), round(entry.logprob, 4))
        (reply,) = self._replies(answer, spent)
        return replace(reply, text=canonical_json({c: found.get(c, least) for c in choices}))

    def _replies(self, answer: Any, spent: float) -> list[Reply]:
        if not answer.choices:
            raise ValueError(f"no choices: {redacted(str(answer))[:200]!r}")
        usage, model = answer.usage, redacted(answer.model or self.name)
        cost = (usage and usage.prompt_tokens, usage and usage.completion_tokens, spent)
        replies = []
        for i, choice in enumerate(answer.choices):
            # Half a surrogate pair could not be written to a file: it becomes "?".
            text = (choice.message.content or "").encode("utf-8", "replace").decode()
            finish = redacted(choice.finish_reason or "unknown")
            replies.append(Reply(redacted(text), finish, *cost, model, i))
            cost = (0, 0, 0.0)
        return replies

    def _error(self, problem: str, status: int | None = None) -> LLMError:
        if status in (400, 413, 422) and re.search("context|too long|too large", problem):
            advice = "shorten the prompt (fewer passages), or serve with a longer context"
        elif status in (401, 403):
            advice = "set the server's key: export CHR_LLM_KEY=..."
        elif status == 429:
            advice = "wait, or use fewer workers"
        else:
            advice = f"see whether it is up and serves this model: curl {self.base_url}/models"
        said = f"{self.name} at {self.base_url}: {problem}. Next: {advice}"
        return LLMError(redacted(said), status)
