"""The one client: a model behind any OpenAI-compatible server, by the ``openai`` package."""

from __future__ import annotations

import math
import os
import random
import re
import sys
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from threading import Lock
from typing import Any

from lib.base.files import canonical_json
from lib.base.secrets import redacted, refuse_broken_passwords
from lib.llm.chat import ChatModel, LLMError, Message, Reply, sample_seed
from lib.llm.waiting import pause, within

__all__ = ["OpenAIChat"]

_MOST_SAID = 500
"""Characters of what a server says that an error repeats."""


@dataclass(frozen=True)
class _Failure:
    """Why a try gave no answer; ``wait_s``: how long the server says to wait before another."""

    problem: str
    status: int | None = None
    may_pass: bool = False
    wait_s: float | None = None


class OpenAIChat(ChatModel):
    """A model behind an OpenAI-compatible server; its key comes from CHR_LLM_KEY and nowhere else.

    A server that says the key again, in an error or a reply, has it blotted out there.

    A try takes at most ``timeout_s``, however slowly its answer comes. 408, 409, 429, 5xx,
    timeouts and dropped connections are retried ``max_retries`` times, after a back-off or as long
    as Retry-After says; each wait is said on stderr. A request with its waits takes at most
    ``deadline_s`` (None = ``timeout_s`` for every try), then raises LLMError, as does at once a
    wait that would end later. Ctrl-C ends waits and tries at once (see ``lib.llm.waiting``).

    A server that refuses ``n`` > 1 is asked n times with the seeds of ``sample_seed``; one that
    refuses schemas is asked without, and the replies' notes say so.
    """

    def __init__(
        self,
        model: str,
        base_url: str,
        *,
        timeout_s: float = 300,
        max_retries: int = 5,
        deadline_s: float | None = None,
    ):
        import openai

        from lib.llm.http import BoundedClient

        if "@" in base_url or "?" in base_url:
            raise ValueError(
                "no user, password or key in the base URL: export CHR_LLM_KEY=... instead"
            )
        key = os.environ.get("CHR_LLM_KEY", "").strip() or "none"
        if not (key.isascii() and key.isprintable()):
            raise ValueError(
                "CHR_LLM_KEY holds what no key can, such as a curly quotation mark or a line "
                "break. Next: export CHR_LLM_KEY=... again, typed or copied as plain text"
            )
        self.name, self.base_url = model, base_url
        self.timeout_s, self.tries = timeout_s, max_retries + 1
        self.deadline_s = timeout_s * self.tries if deadline_s is None else deadline_s
        self._several = self._schemas = True
        self._said_until, self._lock = 0.0, Lock()
        # A proxy in the environment is for the outside world, not for a server on this machine.
        local = re.match(r"https?://(localhost|127\.|\[::1\])", base_url)
        if not local:
            refuse_broken_passwords()
        self._client = openai.OpenAI(
            base_url=base_url,
            api_key=key,
            max_retries=0,  # ``_create`` does that
            http_client=BoundedClient(trust_env=not local),
        )
        # What OPENAI_ORG_ID, OPENAI_PROJECT_ID and OPENAI_CUSTOM_HEADERS hold, perhaps another key,
        # is not for this server.
        self._client.organization = self._client.project = None
        self._client._custom_headers = {}

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
        """The server's answer and the seconds it took, tries that failed and waits included."""
        start = time.monotonic()
        for tried in range(1, self.tries + 1):
            left = self.deadline_s - (time.monotonic() - start)
            answer = self._try(request, min(self.timeout_s, max(left, 0.1)))
            spent = time.monotonic() - start
            if not isinstance(answer, _Failure):
                return answer, spent
            if not answer.may_pass:
                break
            left = self.deadline_s - spent
            wait = answer.wait_s or min(8, 0.5 * 2 ** (tried - 1)) * random.uniform(0.75, 1)
            if tried == self.tries or wait >= left:
                raise self._gave_up(answer, tried, spent, left)
            self._say_wait(answer, wait, tried + 1)
            pause(wait)
        raise self._error(answer.problem, answer.status)

    def _try(self, request: dict, seconds: float) -> Any | _Failure:
        """One request, its answer whole within so many seconds, or why there is none."""
        import openai

        from lib.llm.http import Connection, TooLong

        connection = Connection()

        def ask() -> Any:
            with connection:
                chats = self._client.chat.completions
                return chats.create(model=self.name, timeout=seconds, **request)

        # What openai raises is dropped here: in a traceback it would show what the server said,
        # and so the key.
        try:
            return within(seconds, ask)
        except (TimeoutError, openai.APITimeoutError):
            return _Failure(f"timed out, no whole answer in {seconds:.3g} s", None, True)
        except TooLong as error:
            return _Failure(str(error))
        except openai.APIConnectionError as error:
            return _Failure(f"Connection error ({error.__cause__})", None, True)
        except openai.APIStatusError as error:
            return _failure(error)
        except openai.APIError as error:
            return _Failure(str(error))
        except RecursionError:
            raise ValueError("lists in lists without end") from None
        finally:
            connection.close()

    def _gave_up(self, failure: _Failure, tried: int, spent: float, left: float) -> LLMError:
        """The error after the last try, or for a wait that is longer than the time left."""
        problem = f"{failure.problem} (try {tried} of {self.tries}, after {spent:.1f} s)"
        if failure.wait_s and failure.wait_s >= left:
            problem = (
                f"{failure.problem}; the server says wait: {failure.wait_s:,.0f} s, "
                f"and {max(left, 0):,.0f} s are left of {self.deadline_s:,.0f} s a request"
            )
        return self._error(problem, failure.status)

    def _say_wait(self, failure: _Failure, wait: float, following: int) -> None:
        """Say a wait on stderr, unless another thread is in one, and said so, that ends as late."""
        now = time.monotonic()
        until = now + wait
        with self._lock:
            if now < self._said_until and until <= self._said_until + 1:
                return
            self._said_until = until
        who = "the server says wait" if failure.wait_s else "waiting"
        seconds = f"{wait:.0f}" if wait >= 10 else f"{wait:.1f}"
        line = (
            f"{self.name} at {self.base_url}: {who}: {seconds} s before try {following} of "
            f"{self.tries} ({_plain(failure.problem)})"
        )
        print(redacted(line), file=sys.stderr, flush=True)

    def _likelihoods(self, messages: list[Message], choices: list[str]) -> Reply:
        """Log-probabilities of the choices among the 20 likeliest first tokens.

        A choice that is not among them gets the least of the 20; LLMError when the server gives no
        log-probabilities.
        """
        asked = {"messages": messages, "max_tokens": 1, "temperature": 0.0, "logprobs": True}
        try:
            answer, spent = self._create(asked | {"top_logprobs": 20})
            listed = answer.choices[0].logprobs.content[0].top_logprobs
            if not all(math.isfinite(entry.logprob) for entry in listed):
                raise ValueError("one is no number")
            least = round(min(entry.logprob for entry in listed), 4)
            found: dict[str, float] = {}
            for entry in listed:  # likeliest first; " B" and "B" are the same letter
                found.setdefault(entry.token.strip(), round(entry.logprob, 4))
            reply = self._replies(answer, spent)[0]
        except (AttributeError, IndexError, TypeError, ValueError) as error:
            raise self._error(f"the answer has no log-probabilities ({error})") from None
        return replace(reply, text=canonical_json({c: found.get(c, least) for c in choices}))

    def _replies(self, answer: Any, spent: float) -> list[Reply]:
        if said := getattr(answer, "error", None):
            raise ValueError(f"an error instead of a reply: {said}")
        if not answer.choices:
            raise ValueError(f"no choices: {redacted(str(answer))[:200]!r}")
        usage, model = answer.usage, _plain(answer.model or self.name)
        cost = (usage and usage.prompt_tokens, usage and usage.completion_tokens, spent)
        if not all(isinstance(tokens, int | None) for tokens in cost[:2]):
            raise TypeError("a number of tokens that is none")
        replies = []
        for i, choice in enumerate(answer.choices):
            # Half a surrogate pair could not be written to a file: it becomes "?".
            text = (choice.message.content or "").encode("utf-8", "replace").decode()
            finish = _plain(choice.finish_reason or "unknown")
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
        elif status and 300 <= status < 400:
            advice = "if that is the right server: export CHR_LLM_URL=..., with its address"
        else:
            advice = f"see whether it is up and serves this model: curl {self.base_url}/models"
            if "timed out" in problem:
                advice = f"use fewer workers, or {advice}"
        said = f"{self.name} at {self.base_url}: {_plain(problem)}. Next: {advice}"
        return LLMError(redacted(said), status)


def _failure(error: Any) -> _Failure:
    """What an ``openai.APIStatusError`` says."""
    status, headers = error.status_code, error.response.headers
    if 300 <= status < 400:
        where = headers.get("location", "nowhere")
        return _Failure(f"{status}, it sends on to {where}; nothing was sent there", status)
    may_pass = status in (408, 409, 429) or status >= 500
    if headers.get("x-should-retry") == "false":  # such as a 429 for a bill that is not paid
        may_pass = False
    return _Failure(str(error), status, may_pass, _wait_s(headers.get("retry-after", "")))


def _wait_s(said: str) -> float | None:
    """Seconds of a Retry-After header, a number or a date; None if it says none, or less than 0."""
    try:
        seconds = float(said)
    except ValueError:
        try:
            date = parsedate_to_datetime(said)
        except ValueError:
            return None
        seconds = (date - datetime.now(UTC)).total_seconds() if date.tzinfo else 0
    return seconds if seconds > 0 else None


def _plain(text: str) -> str:
    """A server's text for a terminal: one line, no key, no control characters, not too long.

    TypeError for what is no text.
    """
    if not isinstance(text, str):
        raise TypeError("a name that is no text")
    shown = "".join(c if c.isprintable() else " " for c in redacted(text))
    shown = " ".join(shown.split()).rstrip(".")
    return shown if len(shown) <= _MOST_SAID else f"{shown[:_MOST_SAID]}..."
