"""Models that generate in this process, many requests at once: vLLM's offline mode, transformers.

Whoever asks (expansions, answers) asks one question a thread, as a server is asked. A gatherer puts
what the waiting threads ask for into batches. The recorder in front is the same as for servers.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, Protocol

from lib.base.files import canonical_json
from lib.llm.chat import ChatModel, LLMError, Message, Reply, sample_seed, wait_for
from lib.llm.openai_chat import NOTES, likelihoods, without_system

PATIENCE_S = 0.1
"""A batch is full, or nobody has asked for so long: then it is answered."""


SYSTEM = NOTES["system"]


@dataclass(frozen=True)
class Asked:
    """One text to generate: ``options`` are those of ``ChatModel.generate``, with its own seed, and
    ``choices`` where log-probabilities are wanted in place of a text."""

    messages: list[Message]
    options: dict[str, Any]


@dataclass(frozen=True)
class Written:
    """What a model wrote, why it ended ("stop", or "length" where ``max_tokens`` cut it), tokens.

    ``listed``, of a request with ``choices``: (token, log-probability), the likeliest first.
    """

    text: str
    finish_reason: str
    prompt_tokens: int
    output_tokens: int
    note: str = ""
    listed: tuple[tuple[str, float], ...] = ()


class Engine(Protocol):
    """A model in memory."""

    most: int
    """Requests in a batch at most."""

    def write(self, asked: Sequence[Asked]) -> list[Written]:
        """An answer to each request."""
        ...

    def close(self) -> None:
        """Free the memory."""
        ...


@dataclass
class _Waiting:
    """A request, and where its answer goes."""

    asked: Asked
    answer: Future = field(default_factory=Future)


class OfflineChat(ChatModel):
    """A chat model in this process. It is loaded with the first request that reaches it.

    One such model is in memory at a time: another one that is asked takes its place. A batch that
    fails, such as for want of memory, is halved until it fits; what fails alone is an LLMError. A
    template without a system turn gets that text before the question, and replies say so.
    """

    def __init__(self, name: str, load: Callable[[], Engine], patience_s: float = PATIENCE_S):
        self.name, self._load, self._patience_s = name, load, patience_s
        self._queue: SimpleQueue[_Waiting] = SimpleQueue()
        self._starting = Lock()
        self._gatherer: Thread | None = None
        self._takes_system = True

    def _say(self, messages: list[Message], n: int, options: dict) -> list[Reply]:
        start = time.monotonic()
        if choices := options.get("choices"):
            options = options | {"max_tokens": 1, "temperature": 0.0}
        seeds = [sample_seed(options["seed"], i) for i in range(n)]
        waiting = [_Waiting(Asked(messages, options | {"seed": seed})) for seed in seeds]
        self._start()
        for one in waiting:
            self._queue.put(one)
        try:
            written = [wait_for(one.answer) for one in waiting]
        finally:
            for one in waiting:
                one.answer.cancel()  # after Ctrl-C; does nothing to one that is done
        if choices:
            return [self._reply(likely(one, choices), start, written) for one in written[:1]]
        return [self._reply(one, start, written, i) for i, one in enumerate(written)]

    def _reply(self, one: Written, start: float, all_: Sequence[Written], i: int = 0) -> Reply:
        """Tokens and latency are those of the whole request, on its first choice."""
        cost: tuple[int, int, float] = (0, 0, 0.0)
        if not i:
            spent = time.monotonic() - start
            cost = (one.prompt_tokens, sum(other.output_tokens for other in all_), spent)
        return Reply(one.text, one.finish_reason, *cost, self.name, i, one.note)

    # the gatherer --------------------------------------------------------------------------------

    def _start(self) -> None:
        with self._starting:
            if self._gatherer is None:
                self._gatherer = Thread(target=self._gather, name=self.name, daemon=True)
                self._gatherer.start()

    def _gather(self) -> None:
        """Batches of what was asked, for as long as the process lives."""
        while True:
            batch = [self._queue.get()]
            try:
                with _in_memory(self) as engine:
                    self._fill(batch, engine.most)
                    # What nobody waits for any more, as after Ctrl-C, is not generated.
                    live = [one for one in batch if one.answer.set_running_or_notify_cancel()]
                    self._answer(engine, live)
            except Exception as error:  # it could not be loaded: all who wait are told
                for one in batch:
                    with suppress(InvalidStateError):  # answered, or nobody waits for it
                        one.answer.set_exception(self._error(error))

    def _fill(self, batch: list[_Waiting], most: int) -> None:
        while len(batch) < most:
            try:
                batch.append(self._queue.get(timeout=self._patience_s))
            except Empty:
                return

    def _answer(self, engine: Engine, batch: list[_Waiting]) -> None:
        """Answer all of a batch, in halves where it fails as a whole."""
        if not batch:
            return
        asked = [self._without_refused(one.asked) for one in batch]
        try:
            written = engine.write(asked)
        except Exception as error:
            if self._takes_system and _refuses_system(error, asked):
                self._takes_system = False
                self._answer(engine, batch)
            elif len(batch) == 1:
                batch[0].answer.set_exception(self._error(error))
            else:
                half = len(batch) // 2
                self._answer(engine, batch[:half])
                self._answer(engine, batch[half:])
            return
        for one, sent, answer in zip(batch, asked, written, strict=True):
            if sent is not one.asked:
                answer = replace(answer, note="; ".join(filter(None, (SYSTEM, answer.note))))
            one.answer.set_result(answer)

    def _without_refused(self, asked: Asked) -> Asked:
        if self._takes_system or not _has_system(asked):
            return asked
        return replace(asked, messages=without_system(asked.messages))

    def _error(self, error: Exception) -> LLMError:
        if isinstance(error, LLMError):
            return error
        said = " ".join(str(error).split())[:500] or type(error).__name__
        advice = "shorten the prompt (fewer passages), or load it with a longer context"
        if "memory" in said:
            advice = "give it a card of its own, or a smaller batch (docs/profiles.md)"
        return LLMError(f"{self.name}, in this process: {said}. Next: {advice}")


def _has_system(asked: Asked) -> bool:
    return any(message["role"] == "system" for message in asked.messages)


def _refuses_system(error: Exception, asked: Sequence[Asked]) -> bool:
    """Whether a model's template has failed for want of a place for the system turn."""
    told = re.search(r"(?i)system|roles? must alternate", str(error))
    return bool(told) and any(map(_has_system, asked))


def likely(one: Written, choices: Sequence[str]) -> Written:
    """The log-probabilities of the choices among the listed tokens, as a text of JSON."""
    listed = [{"token": token, "logprob": value} for token, value in one.listed]
    return replace(one, text=canonical_json(likelihoods(listed, choices)))


_ONE_AT_A_TIME = Lock()
_LOADED: dict[OfflineChat, Engine] = {}
"""The model that is in memory."""


@contextmanager
def _in_memory(model: OfflineChat) -> Iterator[Engine]:
    """The model's engine, loaded in the place of another's; nobody else has it meanwhile."""
    with _ONE_AT_A_TIME:
        for other in [held for held in _LOADED if held is not model]:
            _LOADED.pop(other).close()
        if model not in _LOADED:
            _LOADED[model] = model._load()
        yield _LOADED[model]
