"""The one client: a model behind any OpenAI-compatible server, by the ``openai`` package."""

from __future__ import annotations

import math
import os
import random
import re
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from threading import Lock
from typing import Any

from lib.base.files import canonical_json
from lib.base.secrets import redacted, refuse_broken_passwords
from lib.llm.chat import ChatModel, LLMError, Message, Reply, sample_seed
from lib.llm.thinking import part
from lib.llm.waiting import pause, within

_AROUND_A_LETTER = " \t\n\u2581\u0120\u010a()[]{}\"'*.:"
"""What may stand around a letter in its token: blanks, as tokenizers spell them, and brackets."""

_MOST_SAID = 500
"""Characters of what a server says that an error repeats."""


_LOCAL = re.compile(r"https?://(localhost|127\.[\d.]+|0\.0\.0\.0|\[::1?\])(?=[:/]|\Z)")
"""Servers on this machine."""

_REFUSED = (400, 404, 415, 422, 501)
"""With these statuses a server refuses a request that it might take in another form."""

_NO_SCHEMA = "schema not enforced"

_WITHOUT = {
    "max_tokens": "max_completion_tokens in place of max_tokens",
    "seed": "seed refused",
    "top_p": "top_p refused",
    "temperature": "temperature refused",
    "stop": "stop refused",
    "system": "system turn refused, put before the question",
}
"""What a server may refuse, in the order in which it is left out, and what a note says of it."""

_NAMED = {field: rf"\b{field}\b" for field in _WITHOUT} | {
    "system": r"\bsystem\b|developer instruction|roles must alternate"
}
"""How an error names it."""

_REFUSES = re.compile(
    r"(?i)support|unknown|unrecogni[sz]ed|extra|permitted|allowed|unexpected|instead|enabled|"
    r"cannot both|must (?:be|alternate)|no (?:such )?(?:field|parameter|argument)"
)
_OF_ITS_SIZE = re.compile(r"(?i)too (?:large|long|high)|at most|maximum|exceed")
"""The setting is known, and its value is the user's to change."""


def _refused_setting(error: LLMError, sent: dict) -> str | None:
    """The setting of a request that the error says the server does not take; None for others."""
    said = str(error)
    if not _REFUSES.search(said) or _OF_ITS_SIZE.search(said):
        return None
    has_system = any(message["role"] == "system" for message in sent["messages"])
    # llama.cpp fails (500) where the model's template has no system turn.
    if error.status not in (_REFUSED if not has_system else (*_REFUSED, 500)):
        return None
    for field in _WITHOUT:
        is_sent = has_system if field == "system" else field in sent
        if is_sent and re.search(_NAMED[field], said, re.IGNORECASE):
            return field
    return None


def _without(request: dict, fields: Iterable[str]) -> dict:
    """The request as a server takes it that refuses these fields."""
    request = dict(request)
    for field in fields:
        if field == "system":
            request["messages"] = _without_system(request["messages"])
        elif field == "max_tokens":
            request["max_completion_tokens"] = request.pop("max_tokens")
        else:
            request.pop(field, None)
    return request


def server_address(said: str) -> str:
    """The base URL of an OpenAI-compatible server, from what a user has of it.

    Blanks and the path of an endpoint are taken off; a server without any path has /v1. ValueError
    for what is no address, and for a user, password or key in it.
    """
    url = re.sub(r"/(?:chat/)?completions/?\Z", "", said.strip()).rstrip("/")
    if "@" in url or "?" in url:
        raise ValueError("no user, password or key in the base URL: export CHR_LLM_KEY=... instead")
    if not re.fullmatch(r"https?://[^\s/]+(/[^\s]*)?", url, re.IGNORECASE):
        raise ValueError(
            f"{url[:100]!r} is no address of a server. Next: write it as http://localhost:8000/v1"
        )
    return url if url.count("/") > 2 else f"{url}/v1"


def _certificates() -> Any:
    """Who vouches for servers: whom SSL_CERT_FILE or SSL_CERT_DIR name, else the usual ones."""
    import ssl

    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if not (file or folder):
        return True
    return ssl.create_default_context(cafile=file or None, capath=folder or None)


def _without_system(messages: list[Message]) -> list[Message]:
    """The messages with what the system turn said before the first user's turn."""
    said = [message["content"] for message in messages if message["role"] == "system"]
    others = [message for message in messages if message["role"] != "system"]
    first = others[0] | {"content": "\n\n".join([*said, others[0]["content"]])}
    return [first, *others[1:]]


def _content(message: Any) -> tuple[str, str]:
    """The text of a server's message and, where it is told apart, the thinking."""
    thinking = getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None)
    text = message.content or ""
    if isinstance(text, list):  # parts, each with its type
        thinking = "".join(_part(part) for part in text if part["type"] == "thinking")
        text = "".join(_part(part) for part in text if part["type"] == "text")
    return text, thinking if isinstance(thinking, str) else ""


def _part(part: dict) -> str:
    """The text of one part of a message, which may be made of parts itself."""
    said = part[part["type"]]
    return said if isinstance(said, str) else "".join(map(_part, said))


def _writable(text: str) -> str:
    """A text without the key, that can be written to a file: half a surrogate pair becomes "?"."""
    return redacted(text.encode("utf-8", "replace").decode())


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

    A server that refuses ``n`` > 1 is asked n times with the seeds of ``sample_seed``. One that
    refuses a schema, a setting or a system turn is asked without it from then on, and the replies'
    notes say so.
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

        base_url = server_address(base_url)
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
        self._left_out: list[str] = []
        self._said_until, self._lock = 0.0, Lock()
        # A proxy in the environment is for the outside world, not for a server on this machine.
        local = _LOCAL.match(base_url)
        if not local:
            refuse_broken_passwords()
        self._client = openai.OpenAI(
            base_url=base_url,
            api_key=key,
            max_retries=0,  # ``_create`` does that
            http_client=BoundedClient(trust_env=not local, verify=_certificates()),
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
        """Ask; without what the server says it refuses; with n = 1; without the schema.

        The replies' notes say what was left out. What one request has found holds for the next.
        """
        sent = schema if self._schemas else None
        try:
            got = self._as_taken(request, lambda taken: self._post(taken, n, sent))
        except LLMError as error:
            if error.status not in _REFUSED or (n == 1 and not sent):
                raise
            if n > 1:
                return self._negotiate(request, 1, schema)
            got = self._as_taken(request, lambda taken: self._post(taken, 1, None))
            self._schemas, sent = False, None
        if schema and not sent:
            got = [replace(r, note="; ".join(filter(None, [_NO_SCHEMA, r.note]))) for r in got]
        return got

    def _as_taken(self, request: dict, send: Callable[[dict], Any]) -> Any:
        """What ``send`` gives for the request without each setting that the server refuses."""
        while True:
            left_out = tuple(self._left_out)
            sent = _without(request, left_out)
            try:
                got = send(sent)
            except LLMError as error:
                field = _refused_setting(error, sent)
                if field is None:
                    raise
                # Another thread may have been told the same meanwhile.
                with self._lock:
                    if field not in self._left_out:
                        self._left_out.append(field)
                continue
            if left_out and isinstance(got, list):
                note = "; ".join(_WITHOUT[field] for field in left_out)
                got = [replace(reply, note=note) for reply in got]
            return got

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
        """Log-probabilities of those choices that are among the 20 likeliest first tokens.

        None are where the model begins to think. LLMError when the server gives no
        log-probabilities.
        """
        asked = {"messages": messages, "max_tokens": 1, "temperature": 0.0, "logprobs": True}
        asked["top_logprobs"] = 20
        try:
            answer, spent = self._as_taken(asked, self._create)
            listed = answer.choices[0].logprobs.content[0].top_logprobs
            if not all(math.isfinite(entry.logprob) for entry in listed):
                raise ValueError("one is no number")
            found: dict[str, float] = {}
            for entry in listed:  # likeliest first; " B", "(B" and "B" are the same letter
                found.setdefault(entry.token.strip(_AROUND_A_LETTER), round(entry.logprob, 4))
            begins = max(listed, key=lambda entry: entry.logprob).token
            reply = self._replies(answer, spent)[0]
        except (AttributeError, IndexError, TypeError, ValueError) as error:
            raise self._error(f"the answer has no log-probabilities ({error})") from None
        # What a model that begins to think might have written in its place says little.
        thinks = part(begins).text != begins
        told = {} if thinks else {c: found[c] for c in choices if c in found}
        return replace(reply, text=canonical_json(told))

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
            text, thinking = map(_writable, _content(choice.message))
            finish = _plain(choice.finish_reason or "unknown")
            replies.append(Reply(text, finish, *cost, model, i, thinking=thinking))
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
    # openai drops the body of what a client of one's own has read.
    said = error.response.text.strip()
    problem = str(error) if " - " in str(error) or not said else f"Error code: {status} - {said}"
    return _Failure(problem, status, may_pass, _wait_s(headers.get("retry-after", "")))


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
