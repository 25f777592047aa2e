"""Which option does a text name? By its words alone: no reader, no key."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["YES_NO", "named_option"]

YES_NO = frozenset({"yes", "no", "maybe"})
"""Options that are answers only where a text begins with them."""


def named_option(text: str, options: Mapping[str, str]) -> str:
    """The letter of the only option that stands in the text as whole words, else ""."""
    found = [x for x, option in options.items() if _says(text.lower(), option.lower())]
    return found[0] if len(found) == 1 else ""


def _says(text: str, option: str) -> bool:
    start = r"^\s*" if option in YES_NO else r"(?<!\w)"  # "no" is in "diagnosis"
    return re.search(rf"{start}{re.escape(option)}(?!\w)", text) is not None
