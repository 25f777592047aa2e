"""From a short text, a *spec*, to the chat model that it names."""

from __future__ import annotations

import json
import os
import re

from lib.base.paths import ROOT
from lib.llm.chat import ChatModel, LLMError
from lib.llm.openai_chat import OpenAIChat
from lib.llm.recorder import Recorder
from lib.llm.small_model import small_model

OFFLINE = ("vllm", "transformers")
"""Kinds of specs whose model generates in this process."""

SET_ASIDE = "CHR_SET_ASIDE"
"""The environment variable by which a run tells its notebooks which models are not asked: in JSON,
why, by what stands behind "record:<file>="."""

_MODEL_AT = re.compile(r"(?is)(.*?)(?:@(https?://.*))?")


def connect(spec: str | None = None) -> ChatModel:
    """The model a spec names; relative files are relative to the project's root.

    "small" (bundled) | "openai:<model>@<base_url>" | "vllm:<model>" | "transformers:<model>" |
    "replay:<file>" | "record:<file>=<spec>". What None or "openai:" leave out comes from
    CHR_LLM_MODEL and CHR_LLM_URL. Those of vllm and transformers, a name of the hub or a folder,
    generate in this process (``lib.llm.engines``: ?<setting>=<value>&... may follow). A recorded
    model that CHR_SET_ASIDE names is not asked: what is missing of it is a RecordingMiss.
    """
    kind, _, rest = (spec or "openai:").partition(":")
    file, _, live = rest.partition("=")
    if spec == "small":
        return small_model()
    if kind == "replay" and rest:
        return Recorder(None, ROOT / rest, "replay")
    if kind == "record" and live:
        if live in json.loads(os.getenv(SET_ASIDE) or "{}"):
            return Recorder(None, ROOT / file, "replay", name=writer_of(live))
        return Recorder(connect(live), ROOT / file)
    if kind in OFFLINE:
        from lib.llm.engines import offline_model

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
    if kind in OFFLINE:
        from lib.llm.engines import model_name

        return model_name(rest.partition("?")[0])
    if kind == "openai":
        return _MODEL_AT.fullmatch(rest)[1] or os.getenv("CHR_LLM_MODEL") or "your server"
    return rest or kind
