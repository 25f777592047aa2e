"""The one client: models behind any OpenAI-compatible server, asked by the ``openai`` package.

Requests run on one event loop in a thread of its own, because a notebook already runs a loop. The
calling thread waits for the reply; Ctrl-C ends the wait and the request.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import re
import ssl
import sys
import time
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from threading import Event, Thread
from typing import Any

from lib.base.command import redacted, refuse_broken_passwords
from lib.base.files import canonical_json
from lib.llm.chat import ChatModel, LLMError, Message, Reply, sample_seed, wait_for
from lib.llm.replies import part

_AROUND_A_LETTER = " \t\n\u2581\u0120\u010a()[]{}\"'*.:"
"""What may stand around a letter in its token: blanks, as tokenizers spell them, and brackets."""

_MOST_SAID = 500
"""Characters of what a server says that an error repeats."""

_CLOSING_S = 5
"""Seconds that a request has to close its connection after Ctrl-C."""

_LOCAL = re.compile(r"https?://(localhost|127\.[\d.]+|0\.0\.0\.0|\[::1?\])(?=[:/]|\Z)")
"""Servers on this machine."""


# what a server refuses ---------------------------------------------------------------------------

NOTES = {
    "max_tokens": "max_completion_tokens in place of max_tokens",
    "seed": "seed refused",
    "top_p": "top_p refused",
    "temperature": "temperature refused",
    "stop": "stop refused",
    "system": "system turn refused, put before the question",
    "response_format": "schema not enforced",
    "n": "",
}
"""Fields that a server may refuse, and the note on a reply to a request without them."""

_OTHER_NAMES = {
    "system": r"\bsystem\b|developer instruction|roles must alternate",
    "response_format": "response_format|json_schema",
    "n": r"\bparameter:? ['\"`]?n\b",
}
"""Patterns that find these fields in an error, where the field's own name is not enough."""

_REFUSES = re.compile(
    r"(?i)support|unknown|unrecogni[sz]ed|extra|permitted|allowed|unexpected|instead|enabled|"
    r"cannot both|must (?:be|alternate)|no (?:such )?(?:field|parameter|argument)"
)
_OF_ITS_SIZE = re.compile(r"(?i)too (?:large|long|high)|at most|maximum|exceed")
"""The server knows the setting but refuses its value, which the user has to change."""

_OF_ANOTHER_KIND = (401, 403, 408, 409, 429)
"""Statuses of errors that leaving a field out of the request cannot fix."""


@dataclass(frozen=True)
class _Failure:
    """Why a try gave no answer; ``wait_s``: how long the server says to wait before another."""

    problem: str
    status: int | None = None
    may_pass: bool = False
    wait_s: float | None = None


def _holds(request: dict, field: str) -> bool:
    if field == "system":
        return any(message["role"] == "system" for message in request["messages"])
    return field in request


def _refused_field(failure: _Failure, sent: dict, is_last_try: bool) -> str | None:
    """The field of a request that its failure names; else one that many servers do not know.

    A server error (500 and above) that names no field may pass by itself, so fields are left out
    only for the last try.
    """
    status, problem = failure.status or 0, failure.problem
    if status < 400 or status in _OF_ANOTHER_KIND:
        return None
    if _REFUSES.search(problem) and not _OF_ITS_SIZE.search(problem):
        for field in NOTES:
            name = _OTHER_NAMES.get(field, rf"\b{field}\b")
            if _holds(sent, field) and re.search(name, problem, re.IGNORECASE):
                return field
    if status < 500 and "n" in sent:
        return "n"
    if "response_format" in sent and (status < 500 or is_last_try):
        return "response_format"
    return None


def _without(request: dict, fields: Iterable[str]) -> dict:
    """The request rewritten for a server that refuses these fields."""
    request = dict(request)
    for field in fields:
        if field == "system":
            request["messages"] = without_system(request["messages"])
        elif field == "max_tokens":
            request["max_completion_tokens"] = request.pop("max_tokens")
        else:
            del request[field]
    return request


def without_system(messages: list[Message]) -> list[Message]:
    """The messages with what the system turn said before the first user's turn."""
    system = [message["content"] for message in messages if message["role"] == "system"]
    first, *others = [message for message in messages if message["role"] != "system"]
    return [first | {"content": "\n\n".join([*system, first["content"]])}, *others]


def likelihoods(listed: Sequence[dict], choices: Sequence[str]) -> dict[str, float]:
    """Log-probabilities of those choices that are among the listed first tokens of a reply.

    ``listed``: "token" and "logprob" of each, the likeliest first. None are where the model begins
    to think. Raises what reading something else raises.
    """
    if not all(math.isfinite(entry["logprob"]) for entry in listed):
        raise ValueError("one is no number")
    likely: dict[str, float] = {}
    for entry in listed:  # " B", "(B" and "B" are the same letter
        letter = entry["token"].strip(_AROUND_A_LETTER)
        likely.setdefault(letter, round(entry["logprob"], 4))
    begins = max(listed, key=lambda entry: entry["logprob"])["token"]
    # If the likeliest token begins thinking, the other tokens say little about the answer.
    thinks = part(begins).text != begins
    return {} if thinks else {c: likely[c] for c in choices if c in likely}


# the client --------------------------------------------------------------------------------------


def server_address(given: str) -> str:
    """The base URL of an OpenAI-compatible server, from what a user has of it.

    Blanks and the path of an endpoint are taken off; a server without any path has /v1. ValueError
    for what is no address, and for a user, password or key in it.
    """
    url = re.sub(r"/(?:(?:chat/)?completions|embeddings)/?\Z", "", given.strip()).rstrip("/")
    if "@" in url or "?" in url:
        raise ValueError("no user, password or key in the base URL: export CHR_LLM_KEY=... instead")
    if not re.fullmatch(r"https?://[^\s/]+(/[^\s]*)?", url, re.IGNORECASE):
        raise ValueError(
            f"{url[:100]!r} is no address of a server. Next: write it as http://localhost:8000/v1"
        )
    return url if url.count("/") > 2 else f"{url}/v1"


def is_local(url: str) -> bool:
    """Whether a server's address is on this machine."""
    return bool(_LOCAL.match(url))


@lru_cache(maxsize=1)
def _requests_loop() -> asyncio.AbstractEventLoop:
    """The loop that all requests run on; it ends with the process."""
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, name="LLM requests", daemon=True).start()
    return loop


def _key() -> str:
    """CHR_LLM_KEY; ValueError for what no header can hold."""
    key = os.environ.get("CHR_LLM_KEY", "").strip() or "none"
    if not (key.isascii() and key.isprintable()):
        raise ValueError(
            "CHR_LLM_KEY holds what no key can, such as a curly quotation mark or a line break. "
            "Next: export CHR_LLM_KEY=... again, typed or copied as plain text"
        )
    return key


def _certificates() -> ssl.SSLContext | bool:
    """Trusted certificate authorities: of SSL_CERT_FILE or SSL_CERT_DIR, else the usual ones."""
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if not (file or folder):
        return True
    return ssl.create_default_context(cafile=file or None, capath=folder or None)


class OpenAIServer:
    """A model behind an OpenAI-compatible server; its key comes from CHR_LLM_KEY and nowhere else.

    Where a server repeats the key in an error or a reply, it is masked. A redirect is not followed:
    the user did not choose to send the questions to that server.

    A try takes at most ``timeout_s``, however slowly its answer comes. 408, 409, 429, 5xx,
    timeouts, dropped connections and answers that cannot be read are retried ``max_retries`` times,
    after a back-off or as long as Retry-After says; each wait is reported on stderr. A request and
    its waits take at most ``timeout_s`` times the number of tries, then raise LLMError; a wait that
    would end later raises it at once.
    """

    _answers_in = ""
    """The field of an answer that holds what was asked for."""

    def __init__(self, model: str, base_url: str, *, timeout_s: float = 300, max_retries: int = 5):
        import openai

        self.name, self.base_url = model, server_address(base_url)
        self.timeout_s, self.tries = timeout_s, max_retries + 1
        self.deadline_s = timeout_s * self.tries
        self._left_out: list[str] = []
        self._said_until = 0.0
        self._loop = _requests_loop()
        key = _key()
        # A proxy in the environment is for the outside world, not for a server on this machine.
        local = is_local(self.base_url)
        if not local:
            refuse_broken_passwords()
        self._client = openai.AsyncOpenAI(
            base_url=self.base_url,
            api_key=key,
            max_retries=0,  # ``_ask`` does that
            timeout=None,  # ``_try`` has one for the whole answer
            http_client=openai.DefaultAsyncHttpxClient(
                follow_redirects=False,
                trust_env=not local,
                verify=_certificates(),
                headers={"Connection": "close"},
            ),
        )
        # What OPENAI_ORG_ID, OPENAI_PROJECT_ID and OPENAI_CUSTOM_HEADERS hold, perhaps another key,
        # is not for this server.
        self._client.organization = self._client.project = None
        self._client._custom_headers = {}

    def listed(self) -> list[str]:
        """The models that the server says it serves; none where it does not say."""
        import openai

        async def ask() -> list[str]:
            async with asyncio.timeout(self.timeout_s):
                return [str(model.id) for model in (await self._client.models.list()).data]

        try:
            return self._wait_for(ask())
        except (openai.OpenAIError, TimeoutError, AttributeError, TypeError, ValueError):
            return []

    async def _request(self, request: dict) -> Any:
        """The server's raw response to one request at the endpoint of its kind."""
        raise NotImplementedError

    def _refused(self, failure: _Failure, sent: dict, is_last_try: bool) -> str | None:
        """The field of a request to leave out in the next, None where that would not help."""
        return None

    def _wait_for(self, answer: Coroutine[Any, Any, Any]) -> Any:
        """The result of what runs on the requests' loop; Ctrl-C ends it."""
        closed = Event()

        async def whole() -> Any:
            try:
                return await answer
            finally:
                closed.set()

        try:
            return wait_for(asyncio.run_coroutine_threadsafe(whole(), self._loop))
        finally:
            # After Ctrl-C: a server in this process ends only once its request is closed.
            closed.wait(_CLOSING_S)

    async def _ask(self, request: dict) -> tuple[dict, float, str]:
        """The server's answer, the seconds that all tries and waits took, and a note.

        The note names what had to be left out of the request. Later requests leave it out from the
        start.
        """
        start, tried = time.monotonic(), 0
        left_out = [field for field in self._left_out if _holds(request, field)]
        while True:
            tried += 1
            sent = _without(request, left_out)
            left_s = self.deadline_s - (time.monotonic() - start)
            answer = await self._try(sent, min(self.timeout_s, max(left_s, 0.1)))
            spent = time.monotonic() - start
            if isinstance(answer, dict):
                self._left_out += [field for field in left_out if field not in self._left_out]
                return answer, spent, "; ".join(filter(None, map(NOTES.get, left_out)))
            if field := self._refused(answer, sent, tried == self.tries):
                left_out.append(field)
                tried = 0
            else:
                await self._wait(answer, tried, spent)

    async def _try(self, request: dict, seconds: float) -> dict | _Failure:
        """One request, its answer whole within so many seconds, or why there is none."""
        import openai

        # What openai raises is dropped here: in a traceback it would show what the server said,
        # and so the key.
        try:
            async with asyncio.timeout(seconds):
                response = await self._request(request)
            answer = json.loads(response.content)
            if answer.get("error") or not answer[self._answers_in]:
                return _Failure(f"no {self._answers_in}: {response.text}", may_pass=True)
            return answer
        except TimeoutError:
            return _Failure(f"timed out, no whole answer in {seconds:.3g} s", may_pass=True)
        except openai.APIConnectionError as error:
            return _Failure(f"Connection error ({error.__cause__})", may_pass=True)
        except openai.APIStatusError as error:
            return _status_failure(error)
        except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
            return _Failure(f"the answer cannot be read ({error!r})", may_pass=True)

    async def _wait(self, failure: _Failure, tried: int, spent: float) -> None:
        """Wait before another try, and say so; LLMError where none is left or none would help."""
        if not failure.may_pass:
            raise self._error(failure.problem, failure.status)
        left_s = self.deadline_s - spent
        seconds = failure.wait_s or min(8, 0.5 * 2 ** (tried - 1)) * random.uniform(0.75, 1)
        if tried == self.tries or seconds >= left_s:
            why = f"(try {tried} of {self.tries}, after {spent:.1f} s)"
            if failure.wait_s and seconds >= left_s:
                why = (
                    f"; the server says wait: {seconds:,.0f} s, and {max(left_s, 0):,.0f} s are "
                    f"left of {self.deadline_s:,.0f} s a request"
                )
            raise self._error(f"{failure.problem} {why}", failure.status)
        # Print nothing if another request has already reported a wait that ends as late.
        now = time.monotonic()
        if now >= self._said_until or now + seconds > self._said_until + 1:
            self._said_until = now + seconds
            who = "the server says wait" if failure.wait_s else "waiting"
            line = (
                f"{self.name} at {self.base_url}: {who}: {seconds:.1f} s before try {tried + 1} of "
                f"{self.tries} ({_plain(failure.problem)})"
            )
            print(redacted(line), file=sys.stderr, flush=True)
        await asyncio.sleep(seconds)

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
        told = f"{self.name} at {self.base_url}: {_plain(problem)}. Next: {advice}"
        return LLMError(redacted(told), status)


class OpenAIChat(OpenAIServer, ChatModel):
    """A chat model behind a server (see ``OpenAIServer``).

    A server that refuses ``n`` > 1 is asked n times with the seeds of ``sample_seed``. One that
    refuses a schema, a setting or a system turn is asked without it from then on, and the replies'
    notes say so.
    """

    _answers_in = "choices"

    def _say(self, messages: list[Message], n: int, options: dict) -> list[Reply]:
        choices = options.pop("choices", ())
        if choices:
            return self._wait_for(self._likelihoods(messages, choices))
        return self._wait_for(self._samples(messages, n, options))

    async def _request(self, request: dict) -> Any:
        chats = self._client.chat.completions.with_raw_response
        return await chats.create(model=self.name, **request)

    def _refused(self, failure: _Failure, sent: dict, is_last_try: bool) -> str | None:
        return _refused_field(failure, sent, is_last_try)

    async def _samples(self, messages: list[Message], n: int, options: dict) -> list[Reply]:
        schema, seed, stop = (options.pop(name) for name in ("schema", "seed", "stop"))
        request = {"messages": messages, **options}
        if stop:
            request["stop"] = stop
        if schema:
            form = {"name": "reply", "strict": True, "schema": schema}
            request["response_format"] = {"type": "json_schema", "json_schema": form}
        replies: list[Reply] = []
        while len(replies) < n:
            wanted = 1 if "n" in self._left_out else n - len(replies)
            several = {"n": wanted} if wanted > 1 else {}
            seeded = {"seed": sample_seed(seed, len(replies))}
            got = self._read(*await self._ask(request | seeded | several))
            if len(got) < wanted and "n" not in self._left_out:
                self._left_out.append("n")
            replies += got
        return replies[:n]

    async def _likelihoods(self, messages: list[Message], choices: Sequence[str]) -> list[Reply]:
        """``likelihoods`` among the 20 likeliest first tokens, as a text of JSON.

        LLMError when the server gives no log-probabilities.
        """
        request = {"messages": messages, "max_tokens": 1, "temperature": 0.0, "logprobs": True}
        answer, seconds, note = await self._ask(request | {"top_logprobs": 20})
        try:
            kept = likelihoods(
                answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"], choices
            )
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise self._error(f"the answer has no log-probabilities ({error!r})") from None
        (reply, *_) = self._read(answer, seconds, note)
        return [replace(reply, text=canonical_json(kept))]

    def _read(self, answer: dict, seconds: float, note: str) -> list[Reply]:
        """The replies of an answer; LLMError where a field is not what it should be."""
        replies = []
        try:
            usage = answer.get("usage") or {}
            tokens = [usage.get("prompt_tokens"), usage.get("completion_tokens")]
            if not all(isinstance(number, int | None) for number in tokens):
                raise TypeError("a number of tokens that is none")
            cost = (*tokens, seconds)
            model = _plain(answer.get("model") or self.name)
            for i, choice in enumerate(answer["choices"]):
                text, thinking = map(_writable, _content(choice["message"]))
                finish = _plain(choice.get("finish_reason") or "unknown")
                replies.append(Reply(text, finish, *cost, model, i, note, thinking=thinking))
                cost = (0, 0, 0.0)
        except (AttributeError, LookupError, TypeError) as error:
            raise self._error(f"the answer cannot be read ({error!r})") from None
        return replies


# what a server says ------------------------------------------------------------------------------


def _status_failure(error: Any) -> _Failure:
    """What an ``openai.APIStatusError`` says."""
    status, headers = error.status_code, error.response.headers
    if 300 <= status < 400:
        where = headers.get("location", "nowhere")
        return _Failure(f"{status}, it sends on to {where}; nothing was sent there", status)
    may_pass = status in (408, 409, 429) or status >= 500
    if headers.get("x-should-retry") == "false":  # such as a 429 for a bill that is not paid
        may_pass = False
    problem = f"Error code: {status} - {error.response.text.strip()}"
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


def _content(message: dict) -> tuple[str, str]:
    """The text of a server's message and, where the server separates it, the thinking."""
    thinking = message.get("reasoning_content") or message.get("reasoning")
    text = message.get("content") or ""
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


def _plain(text: str) -> str:
    """A server's text for a terminal: one line, no key, no control characters, not too long.

    TypeError for what is no text.
    """
    if not isinstance(text, str):
        raise TypeError("a name that is no text")
    shown = "".join(c if c.isprintable() else " " for c in redacted(text))
    shown = " ".join(shown.split()).rstrip(".")
    return shown if len(shown) <= _MOST_SAID else f"{shown[:_MOST_SAID]}..."
