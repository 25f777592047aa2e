"""README.md and docs/: prose by hand, and between markers what the committed result files say.

``<!-- begin: x -->`` and ``<!-- end: x -->``, each on a line of its own, stand around block ``x``
of ``lib.pages.blocks``. Which blocks a page has is found from its markers.
"""

from __future__ import annotations

import re
from pathlib import Path

from lib.base import paths
from lib.base.files import atomic_write
from lib.pages import results
from lib.pages.blocks import BLOCKS

SHARED = ("answer", "both_sides")
"""What may stand on more than one page: what README says first also opens the page of results."""
_BLOCK = re.compile(r"<!-- begin: (\w+) -->\n(.*?)<!-- end: \1 -->", re.DOTALL)
_BEGUN, _ENDED = (re.compile(rf"<!-- {word}: *(\S*)") for word in ("begin", "end"))


def pages() -> list[Path]:
    """README.md, then the pages of docs/ by name."""
    return [paths.ROOT / "README.md", *sorted((paths.ROOT / "docs").glob("*.md"))]


def blocks_on(text: str, page: str) -> list[str]:
    """The names of a page's blocks, in order.

    Raises ValueError, naming the page, when a marker has no partner or a block is not known.
    """
    whole = [match[1] for match in _BLOCK.finditer(text)]
    begun, ended = _BEGUN.findall(text), _ENDED.findall(text)
    if begun != whole or ended != whole:
        raise ValueError(
            f"{page}: blocks begun: {', '.join(begun)}; ended: {', '.join(ended)}. "
            "Each must be begun and ended once, on lines of their own"
        )
    unknown = [name for name in whole if name not in BLOCKS]
    if unknown:
        known = ", ".join(BLOCKS)
        raise ValueError(f"{page}: no block is called {', '.join(unknown)}. There are: {known}")
    return whole


def woven(text: str, page: str) -> str:
    """A page's text with every block made anew.

    Raises ValueError as ``blocks_on`` does; FileNotFoundError, naming page, block and command, when
    a result behind a block is missing.
    """
    blocks_on(text, page)

    def made(match: re.Match) -> str:
        name = match[1]
        try:
            return f"<!-- begin: {name} -->\n{BLOCKS[name]()}\n<!-- end: {name} -->"
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{page}, block {name}: {error}") from error

    return _BLOCK.sub(made, text)


def stale() -> list[str]:
    """What is no longer what the result files say, each with the command that mends it."""
    found = []
    for path, old in _texts().items():
        page = paths.shown(path)
        new = woven(old, page)
        pairs = zip(_BLOCK.finditer(old), _BLOCK.finditer(new), strict=True)
        found += [f"{page}, block {was[1]}" for was, now in pairs if was[2] != now[2]]
    listed = _page_of_results()
    if not listed.exists() or listed.read_text(encoding="utf-8") != results.page():
        found.append(paths.shown(listed))
    return [f"{what}: not what the result files say; run: make readme" for what in found]


def write() -> tuple[Path, ...]:
    """Write every page, each whole, once all of them are made; returns their paths."""
    made = {path: woven(text, paths.shown(path)) for path, text in _texts().items()}
    made[_page_of_results()] = results.page()
    return tuple(atomic_write(path, text) for path, text in made.items())


def _page_of_results() -> Path:
    return paths.DATA / "results" / "README.md"


def _texts() -> dict[Path, str]:
    """The text of every page; ValueError where a block stands on no page, or on too many."""
    texts = {path: path.read_text(encoding="utf-8") for path in pages()}
    where: dict[str, list[str]] = {name: [] for name in BLOCKS}
    for path, text in texts.items():
        page = paths.shown(path)
        for name in blocks_on(text, page):
            where[name].append(page)
    for name, found in where.items():
        if not found:
            raise ValueError(f"block {name} stands on no page: give it its markers on one")
        if len(found) > 1 and (name not in SHARED or len(set(found)) < len(found)):
            raise ValueError(f"block {name} stands more than once: {', '.join(found)}")
    return texts
