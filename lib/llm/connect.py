"""From a short text, a *spec*, to the chat model that it names."""

from __future__ import annotations

import os
import re

from lib.base.paths import ROOT
from lib.llm.chat import ChatModel, LLMError
from lib.llm.openai_chat import OpenAIChat
from lib.llm.recorder import Recorder
from lib.llm.small_model import small_model

_MODEL_AT = re.compile(r"(?is)(.*?)(?:@(https?://.*))?")


def connect(spec: str | None = None) -> ChatModel:
    """The model a spec names; relative files are relative to the project's root.

    "small" (bundled) | "openai:<model>@<base_url>" | "replay:<file>" | "record:<file>=<spec>".
    What None or "openai:" leave out comes from CHR_LLM_MODEL and CHR_LLM_URL.
    """
    kind, _, rest = (spec or "openai:").partition(":")
    file, _, live = rest.partition("=")
    if spec == "small":
        return small_model()
    if kind == "replay" and rest:
        return Recorder(None, ROOT / rest, "replay")
    if kind == "record" and live:
        return Recorder(connect(live), ROOT / file)
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
    if kind == "openai":
        return _MODEL_AT.fullmatch(rest)[1] or os.getenv("CHR_LLM_MODEL") or "your server"
    return rest or kind
