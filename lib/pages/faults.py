"""The table of faults: what the tests do to the project on purpose, and what comes of it."""

from __future__ import annotations

from lib.pages.committed import markdown, read
from lib.pages.readable import plain

_GROUPS = {
    "numbers": "Wrong numbers, lost work",
    "secrets": "Secrets and hostile text",
    "waiting": "Waiting and messages",
    "supply": "What is installed and downloaded",
}
_HEAD = ("fault", "tries", "lost", "wrong", "what is said")


def faults() -> str:
    """A table a group, of the result ``faults``, which ``make faults`` writes."""
    table, _ = read("faults")
    table["said"] = table["said"].fillna("")
    parts = [
        f"{len(table)} faults, {table['tries'].sum():,} tries: {table['lost'].sum()} lost, "
        f"{table['wrong'].sum()} wrong."
    ]
    for group, title in _GROUPS.items():
        rows = table[table["group"] == group].drop(columns="group")
        cells = rows.assign(fault=rows["fault"].map(plain), said=rows["said"].map(plain))
        parts.append(f"## {title}\n\n{markdown(_HEAD, cells.itertuples(index=False))}")
    return "\n\n".join(parts)
