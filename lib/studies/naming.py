"""Which option does a text name? By its words alone: no reader, and no look at the right answer."""

from __future__ import annotations

import re
from collections.abc import Mapping

YES_NO = frozenset({"yes", "no", "maybe"})
"""Options that are answers only where a text begins with them."""


def named_option(text: str, options: Mapping[str, str]) -> str:
    """The letter of the only option that the text names (see ``names_option``).

    Empty when the text names no option, or several.
    """
    letters = [letter for letter, option in options.items() if names_option(text, option)]
    return letters[0] if len(letters) == 1 else ""


def names_option(text: str, option: str) -> bool:
    """Whether an option stands in a text as whole words, in upper or lower case.

    "Gout" does not stand in "gouty". Yes, no and maybe must be the first word of the text, since
    any text may hold a "no".
    """
    option = option.lower()
    before = r"^\s*" if option in YES_NO else r"(?<!\w)"
    return re.search(rf"{before}{re.escape(option)}(?!\w)", text.lower()) is not None
