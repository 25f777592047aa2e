"""From a short text, a *spec*, to the chat model that it names."""

from __future__ import annotations

import json
import os
import re

from lib.base.paths import ROOT
from lib.llm.chat import ChatModel, LLMError, Message, Reply
from lib.llm.engines import ENGINES, model_name, offline_model
from lib.llm.openai_chat import OpenAIChat
from lib.llm.recorder import Recorder, RecordingMiss
from lib.llm.small_model import small_model

_MODEL_AT = re.compile(r"(?is)(.*?)(?:@(https?://.*))?")

SET_ASIDE = "CHR_SET_ASIDE"
"""The environment variable by which a run tells its notebooks which servers it found missing when
it started: in JSON, why, by what stands behind "record:<file>="."""


class NotServed(ChatModel):
    """A model without a server: what is recorded of it is read, and what is not is NOT RUN.

    ``why`` ends with the next command; it is in the RecordingMiss that any other request raises.
    """

    def __init__(self, name: str, why: str):
        self.name, self.why = name, why

    def _say(self, messages: list[Message], n: int, options: dict) -> list[Reply]:
        raise RecordingMiss(f"{self.name} is not asked: {self.why}")


def connect(spec: str | None = None) -> ChatModel:
    """The model a spec names; relative files are relative to the project's root.

    ``small``
        the bundled one.
    ``openai:<model>@<base_url>``
        a server. What None or "openai:" leave out comes from CHR_LLM_MODEL and CHR_LLM_URL.
    ``vllm:<model>``, ``transformers:<model>``
        a name of the hub or a folder, which generates in this process (``lib.llm.engines``:
        ?<setting>=<value>&... may follow).
    ``replay:<file>``, ``record:<file>=<spec>``
        what was recorded; or what is recorded from now on. A model that is to be recorded and has
        no address, or is named by CHR_SET_ASIDE, is ``NotServed``.
    """
    kind, _, rest = (spec or "openai:").partition(":")
    file, _, live = rest.partition("=")
    if spec == "small":
        return small_model()
    if kind == "replay" and rest:
        return Recorder(None, ROOT / rest, "replay")
    if kind == "record" and live:
        return Recorder(_recorded_model(live), ROOT / file)
    if kind in ENGINES:
        return offline_model(kind, rest)
    if kind != "openai":
        # A user and password in an address are not repeated.
        shown = re.sub(r"//.*@", "//...@", spec)
        raise ValueError(f"no LLM spec {shown!r}; see: help(lib.llm.connect)")
    model, url = model_at(rest)
    model = model or os.getenv("CHR_LLM_MODEL", "")
    if not (model and url):
        raise LLMError("no LLM: export CHR_LLM_URL=... CHR_LLM_MODEL=..., or connect('small')")
    return OpenAIChat(model, url)


def _recorded_model(live: str) -> ChatModel:
    """The model behind a recorder: ``NotServed`` where a run has set it aside, or where its name is
    known and its address is not."""
    why = json.loads(os.getenv(SET_ASIDE) or "{}").get(live, "")
    kind, _, rest = live.partition(":")
    model, url = model_at(rest) if kind == "openai" else ("", "")
    if model and not url:
        why = f"it has no address. Next: write {live}@http://... in the profile"
    return NotServed(model or writer_of(live), why) if why else connect(live)


def is_live(spec: str) -> bool:
    """Whether a spec names a model that is asked: behind a server, or in this process."""
    return spec.partition(":")[0] in ("openai", *ENGINES)


def live_of(spec: str) -> str:
    """What a spec asks and records, the part behind "record:<file>="; empty where it asks nobody,
    or the bundled model."""
    live = spec.partition("=")[2] if spec.startswith("record:") else ""
    return live if is_live(live) else ""


def is_called(model: str, name: str) -> bool:
    """Whether a name is the model's: with or without its owner, or a date behind it."""
    model, name = model.casefold(), name.casefold()
    return name in (model, model.rpartition("/")[2]) or name.startswith(f"{model}-20")


def model_at(rest: str) -> tuple[str, str]:
    """Model and address of what follows "openai:"; the address is else CHR_LLM_URL, or empty."""
    model, url = _MODEL_AT.fullmatch(rest).groups()
    if "://" in model or re.search(r".@[\w.-]+(:\d+|/)", model):
        raise ValueError("an address in an LLM spec begins with http:// or https://")
    return model, url or os.getenv("CHR_LLM_URL", "")


def writer_of(spec: str) -> str:
    """Who writes where a spec is connected, in words: a model's name, never its address."""
    kind, _, rest = spec.partition(":")
    if kind == "record":
        return writer_of(rest.partition("=")[2])
    if kind in ENGINES:
        return model_name(rest.partition("?")[0])
    if kind == "openai":
        return _MODEL_AT.fullmatch(rest)[1] or os.getenv("CHR_LLM_MODEL") or "your server"
    return rest or kind
