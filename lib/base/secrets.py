"""Keys stay where they were set: in a server's text that is shown or kept they are blotted out."""

from __future__ import annotations

import html
import json
import os
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

KEYS = ("CHR_LLM_KEY", "NCBI_API_KEY", "HF_TOKEN")
"""The environment variables that hold a key."""

BLOT = "[key]"

_SHORTEST = 8
_CAN_BE_CUT, _BEGINNING = 20, 12
"""Of a key so long, so many characters are no word of a text: they are a key that was cut."""

_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_HOST = r"^([^@:/#?]+(\.[^@:/#?]+|:\d+)|[^/#?]+@[^@/#?]+)/[^#?]*$"
"""A host with a path: one with a dot, a port, or a user before it. Other words may be a token."""


def redacted(text: str) -> str:
    """``text`` with ``BLOT`` for every key of ``KEYS``, in large or small letters.

    Also found is a key in JSON, Python, HTML, an address or base64, and one that was cut short.
    A key of fewer than 8 characters is left: it is none, such as the "none" or "EMPTY" that local
    servers ask for, and those words may stand in any text.
    """
    for variable in KEYS:
        key = os.environ.get(variable, "").strip()
        if len(key) >= _SHORTEST:
            forms = sorted({*_written(key), *_in_base64(key.encode())}, key=len, reverse=True)
            patterns = [re.escape(form) for form in forms]
            if len(key) >= _CAN_BE_CUT:
                patterns += [_begun(form) for form in forms]
            text = re.sub("|".join(patterns), BLOT, text, flags=re.IGNORECASE)
    return text


def refuse_broken_passwords(*more: str) -> None:
    """ValueError for a proxy whose user or password has a sign that ends the host of an address.

    Whoever reads such an address takes the password for a host or port, and says it in the error.
    ``more`` are other variables that hold addresses, whose paths may hold @ too.
    """
    for variable in (*_PROXIES, *map(str.upper, _PROXIES), *more):
        for address in os.environ.get(variable, "").split():
            user, at, _ = address.rpartition("@")
            user = user.partition("://")[2] or user
            path = variable in more and re.match(_HOST, user)
            if at and not path and re.search("[#?/]", user):
                raise ValueError(
                    f"the user or password in {variable} has a sign that an address cannot have "
                    "there. Next: write it in code (# is %23, / is %2F, ? is %3F) and export "
                    f"{variable} again"
                )


def _written(key: str) -> tuple[str, ...]:
    quoted = json.dumps(key)[1:-1], repr(key)[1:-1], html.escape(key)
    return key, *quoted, quote(key), quote(key, safe=""), quote_plus(key)


def _begun(form: str) -> str:
    """A pattern for its beginning, and as many of the other characters as there are."""
    others = re.escape("".join(sorted(set(form))))
    return f"{re.escape(form[:_BEGINNING])}[{others}]*"


def _in_base64(key: bytes) -> Iterator[str]:
    """The letters that are the key's alone, whatever stands before and after it."""
    for before in range(3):
        first, end = (8 * before + 5) // 6, 8 * (before + len(key)) // 6
        for encode in (b64encode, urlsafe_b64encode):
            yield encode(bytes(before) + key).decode()[first:end]
