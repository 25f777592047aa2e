"""Keys stay where they were set: in a server's text that is shown or kept they are blotted out."""

from __future__ import annotations

import html
import json
import os
import re
from urllib.parse import quote, quote_plus

KEYS = ("CHR_LLM_KEY", "NCBI_API_KEY", "HF_TOKEN")
"""The environment variables that hold a key."""

BLOT = "[key]"

_SHORTEST = 8
_CAN_BE_CUT, _BEGINNING = 20, 12
"""Of a key so long, so many characters are no word of a text: they are a key that was cut."""

_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


def redacted(text: str) -> str:
    """``text`` with ``BLOT`` for every key of ``KEYS``, in large or small letters.

    Also found is a key in JSON, Python, HTML or an address, and one that was cut short.
    A key of fewer than 8 characters is left: it is none, such as the "none" or "EMPTY" that local
    servers ask for, and those words may stand in any text.
    """
    for variable in KEYS:
        key = os.environ.get(variable, "").strip()
        if len(key) >= _SHORTEST:
            quoted = json.dumps(key)[1:-1], repr(key)[1:-1], html.escape(key)
            coded = quote(key), quote(key, safe=""), quote_plus(key)
            forms = sorted({key, *quoted, *coded}, key=len, reverse=True)
            patterns = [re.escape(form) for form in forms]
            if len(key) >= _CAN_BE_CUT:
                patterns += [_begun(form) for form in forms]
            text = re.sub("|".join(patterns), BLOT, text, flags=re.IGNORECASE)
    return text


def _begun(form: str) -> str:
    """A pattern for its beginning, and as many of the other characters as there are."""
    others = re.escape("".join(sorted(set(form))))
    return f"{re.escape(form[:_BEGINNING])}[{others}]*"


def refuse_broken_passwords() -> None:
    """ValueError for a proxy whose user or password has a sign that ends the host of an address.

    Whoever reads such an address takes the password for a host or port, and says it in the error.
    """
    for variable in (*_PROXIES, *map(str.upper, _PROXIES)):
        user, at, _ = os.environ.get(variable, "").rpartition("@")
        if at and re.search("[#?/]", user.partition("://")[2] or user):
            raise ValueError(
                f"the user or password in {variable} has a sign that an address cannot have "
                "there. Next: write it in code (# is %23, / is %2F, ? is %3F) and export "
                f"{variable} again"
            )
