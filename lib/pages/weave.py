"""README.md and docs/: prose by hand, and between markers what the committed result files say.

``<!-- begin: x -->`` and ``<!-- end: x -->``, each on a line of its own, stand around block ``x``
of docs/_templates/blocks.j2. Which blocks a page has is found from its markers.
"""

from __future__ import annotations

import re
from pathlib import Path

from lib.base import paths
from lib.base.files import atomic_write
from lib.pages import render, results

_BLOCK = re.compile(r"<!-- begin: (\w+) -->\n(.*?)<!-- end: \1 -->", re.DOTALL)
_MARKER = re.compile(r"<!-- (?:begin|end): *(\S*)")


def pages() -> list[Path]:
    """README.md, then the pages of docs/ by name."""
    return [paths.ROOT / "README.md", *sorted((paths.ROOT / "docs").glob("*.md"))]


def blocks_on(text: str, page: str) -> list[str]:
    """The names of a page's blocks, in order.

    Raises ValueError, naming the page, when a marker has no partner or a block is not known.
    """
    names = [match[1] for match in _BLOCK.finditer(text)]
    marked = _MARKER.findall(text)
    if marked != [name for name in names for _ in range(2)]:
        raise ValueError(
            f"{page}: markers of {', '.join(marked)}: each block must be begun and ended once, on "
            "lines of their own"
        )
    if unknown := set(names) - set(render.block_names()):
        known = ", ".join(sorted(render.block_names()))
        raise ValueError(f"{page}: no block is called {', '.join(unknown)}. There are: {known}")
    return names


def woven(text: str, page: str) -> str:
    """A page's text with every block made anew.

    Raises ValueError as ``blocks_on`` does; FileNotFoundError, naming page, block and command, when
    a result behind a block is missing.
    """
    blocks_on(text, page)

    def made(match: re.Match) -> str:
        name = match[1]
        try:
            return f"<!-- begin: {name} -->\n{render.block(name)}\n<!-- end: {name} -->"
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{page}, block {name}: {error}") from error

    return _BLOCK.sub(made, text)


def stale() -> list[str]:
    """What is no longer what the result files say, each with the command that mends it."""
    found = []
    for path in pages():
        page, old = paths.shown(path), path.read_text(encoding="utf-8")
        pairs = zip(_BLOCK.finditer(old), _BLOCK.finditer(woven(old, page)), strict=True)
        found += [f"{page}, block {was[1]}" for was, now in pairs if was[2] != now[2]]
    listed = _page_of_results()
    if not listed.exists() or listed.read_text(encoding="utf-8") != results.page():
        found.append(paths.shown(listed))
    return [f"{what}: not what the result files say; run: make readme" for what in found]


def write() -> tuple[Path, ...]:
    """Write every page, each whole, once all of them are made; returns their paths."""
    made = {path: woven(path.read_text(encoding="utf-8"), paths.shown(path)) for path in pages()}
    made[_page_of_results()] = results.page()
    return tuple(atomic_write(path, text) for path, text in made.items())


def _page_of_results() -> Path:
    return paths.DATA / "results" / "README.md"
