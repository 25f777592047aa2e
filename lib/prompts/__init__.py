"""Prompts as text files, in our own words, with strict placeholders.

A file has a first line ``# ...`` that says what it asks and where the idea comes from, then
``[system]`` (may be missing) and ``[user]`` parts. Placeholders are ``{name}``; a missing, unknown
or unused one is an error, and braces inside values are left alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Prompt", "load_prompt"]

_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True)
class Prompt:
    """One prompt file: ``name``, ``source`` (its first line), ``system`` and ``user`` templates."""

    name: str
    source: str
    system: str
    user: str

    def messages(self, **values: str) -> list[dict[str, str]]:
        """Chat messages with every placeholder filled; ValueError on a missing or unused one."""
        wanted = set(_PLACEHOLDER.findall(self.system + self.user))
        if wanted != set(values):
            raise ValueError(f"prompt {self.name} takes {sorted(wanted)}, not {sorted(values)}")
        parts = (("system", self.system), ("user", self.user))
        return [
            {"role": role, "content": _PLACEHOLDER.sub(lambda m: values[m[1]], text)}
            for role, text in parts
            if text
        ]


def load_prompt(name: str) -> Prompt:
    """Read ``lib/prompts/<name>.txt``."""
    path = Path(__file__).with_name(f"{name}.txt")
    if not path.exists():
        known = ", ".join(sorted(p.stem for p in path.parent.glob("*.txt")))
        raise ValueError(f"no prompt named {name!r}; there are: {known}")
    first, _, body = path.read_text(encoding="utf-8").partition("\n")
    system, found, user = body.partition("[user]\n")
    if not first.startswith("# ") or not found:
        raise ValueError(f"{path.name}: needs a first line '# source' and a [user] part")
    return Prompt(name, first[2:], system.replace("[system]\n", "").strip(), user.strip())
