"""Prompts as text files, in our own words, with strict placeholders.

A file has a first line ``# ...`` that says what it asks and where the idea comes from, then
``[system]`` (may be missing) and ``[user]`` parts, between them perhaps a demonstration: more
``[user]`` parts, each with its ``[assistant]``. Placeholders are ``{name}``; a missing, unknown or
unused one is an error, and braces inside values are left alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_PART = re.compile(r"^\[(system|user|assistant)\]\n", re.MULTILINE)


@dataclass(frozen=True)
class Prompt:
    """One prompt file: ``name``, ``source`` (its first line), ``system`` and ``user`` templates.

    ``examples`` are the turns of a demonstration before the user's, user and assistant by turns.
    """

    name: str
    source: str
    system: str
    user: str
    examples: tuple[str, ...] = ()

    def messages(self, **values: str) -> list[dict[str, str]]:
        """Chat messages with every placeholder filled; ValueError on a missing or unused one."""
        turns = [*self.examples, self.user]
        wanted = set(_PLACEHOLDER.findall("\n".join([self.system, *turns])))
        if wanted != set(values):
            raise ValueError(f"prompt {self.name} takes {sorted(wanted)}, not {sorted(values)}")
        parts = [("system", self.system), *zip(cycle(("user", "assistant")), turns, strict=False)]
        return [
            {"role": role, "content": _PLACEHOLDER.sub(lambda m: values[m[1]], text)}
            for role, text in parts
            if text
        ]


def load_prompt(name: str, folder: Path | None = None) -> Prompt:
    """Read ``<name>.txt`` of a folder: of this one, or of a study that has prompts of its own."""
    path = (folder or Path(__file__).parent) / f"{name}.txt"
    if not path.exists():
        known = ", ".join(sorted(p.stem for p in path.parent.glob("*.txt")))
        raise ValueError(f"no prompt named {name!r}; there are: {known}")
    first, _, body = path.read_text(encoding="utf-8").partition("\n")
    before, *parts = _PART.split(body)
    roles, texts = parts[::2], [text.strip() for text in parts[1::2]]
    system = texts.pop(0) if roles[:1] == ["system"] else ""
    turns = roles[len(roles) - len(texts) :]
    shape = ["user", "assistant"] * (len(turns) // 2) + ["user"]
    if not first.startswith("# ") or before.strip() or turns != shape:
        raise ValueError(f"{path.name}: needs a first line '# source' and a [user] part at the end")
    return Prompt(name, first[2:], system, texts[-1], tuple(texts[:-1]))
