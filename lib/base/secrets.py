"""Keys stay where they were set: in a server's text that is shown or kept they are blotted out."""

from __future__ import annotations

import json
import os
from urllib.parse import quote

__all__ = ["BLOT", "KEYS", "redacted"]

KEYS = ("CHR_LLM_KEY", "NCBI_API_KEY", "HF_TOKEN")
"""The environment variables that hold a key."""

BLOT = "[key]"

_SHORTEST = 8


def redacted(text: str) -> str:
    """``text`` with ``BLOT`` for every key of ``KEYS``, as it is, in JSON or in an address.

    A key of fewer than 8 characters is left: it is none, such as the "none" or "EMPTY" that local
    servers ask for, and those words may stand in any text.
    """
    for variable in KEYS:
        key = os.environ.get(variable, "").strip()
        if len(key) >= _SHORTEST:
            for form in (key, json.dumps(key)[1:-1], quote(key, safe="")):
                text = text.replace(form, BLOT)
    return text
