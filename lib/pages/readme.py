"""README.md: prose by hand, and between markers what the committed result files say."""

from __future__ import annotations

import re
from pathlib import Path

from lib.base import paths
from lib.base.files import atomic_write
from lib.pages import results
from lib.pages.blocks import BLOCKS

__all__ = ["stale", "woven", "write"]

_BLOCK = re.compile(r"<!-- begin: (\w+) -->\n(.*?)<!-- end: \1 -->", re.DOTALL)


def _files() -> tuple[Path, Path]:
    return paths.ROOT / "README.md", paths.DATA / "results" / "README.md"


def woven(text: str) -> str:
    """The README's text with every block made anew.

    Raises ValueError when a block is missing, unknown or not closed; FileNotFoundError, naming the
    block and the command, when a result behind it is missing.
    """
    there, marks = (
        [m[1] for m in _BLOCK.finditer(text)],
        len(re.findall("<!-- (begin|end): ", text)),
    )
    if sorted(there) != sorted(BLOCKS) or marks != 2 * len(there):
        raise ValueError(
            f"README.md: blocks {there}, each begun and ended once; wanted {[*BLOCKS]}"
        )
    return _BLOCK.sub(
        lambda m: f"<!-- begin: {m[1]} -->\n{_made(m[1])}\n<!-- end: {m[1]} -->", text
    )


def _made(block: str) -> str:
    try:
        return BLOCKS[block]()
    except FileNotFoundError as error:
        raise FileNotFoundError(f"README.md, block {block}: {error}") from error


def stale() -> list[str]:
    """What is no longer what the result files say, each with the command that mends it."""
    readme, page = _files()
    old = readme.read_text(encoding="utf-8")
    pairs = zip(_BLOCK.finditer(old), _BLOCK.finditer(woven(old)), strict=True)
    found = [f"README.md, block {a[1]}" for a, b in pairs if a[2] != b[2]]
    if not page.exists() or page.read_text(encoding="utf-8") != results.page():
        found.append(paths.shown(page))
    return [f"{what}: not what the result files say; run: make readme" for what in found]


def write() -> tuple[Path, Path]:
    """Write both pages, each whole; returns their paths."""
    readme, page = _files()
    made = woven(readme.read_text(encoding="utf-8")), results.page()
    return atomic_write(readme, made[0]), atomic_write(page, made[1])
