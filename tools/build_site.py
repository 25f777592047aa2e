"""The site: README.md, docs/ and notebooks/ as pages that can be read and searched (``make site``).

The files stay where they are. Here they are put together in build/site-src, with links that fit,
and Sphinx makes build/site of them. Nothing is run: notebooks are shown with their committed
outputs. docs/site/site.toml says what stands where, docs/site/conf.py how it looks.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

from lib.base import paths
from lib.base.files import atomic_write
from lib.pages.render import reading_order

SITE = paths.ROOT / "docs" / "site"
BUILD = paths.ROOT / "build"
README, STORY, START = "README.md", "index.md", "start.md"
EXPLORER = "docs/explorer.html"

_LINK = re.compile(r'(\]\(|(?:href|src)=")(?![a-z]+:|[#/])([^)"#\s]+)(#[^)"\s]*)?(?=[)"])')
_TO_HTML = re.compile(r"\[([^\]]+)\]\(((?![a-z]+:)[^)\s]+\.html(?:#[^)\s]*)?)\)")


class Assembly:
    """The pages of the site, and the files that they link to.

    ``pages`` are texts by their place in the site, which is the place of their file in the project;
    ``files`` are places of files that are shown or downloaded as they are; ``whole`` those of
    whole HTML pages, with what they show.
    """

    def __init__(self) -> None:
        self.plan = tomllib.loads((SITE / "site.toml").read_text(encoding="utf-8"))
        self.pages: dict[str, str] = {}
        self.files: set[str] = set()
        self.whole: set[str] = {EXPLORER}
        self._waiting = ["explorer.md", "reference.md", *sources()]
        story, start = self._readme()
        self.pages[START] = self._linked(start, START)
        story = self._linked(story, STORY)
        while self._waiting:  # a page that is linked to becomes one of the site's
            name = self._waiting.pop()
            if name not in self.pages:
                self.pages[name] = self._page(name)
        self.pages[STORY] = f"{story}\n{self._navigation()}"

    def _readme(self) -> tuple[str, str]:
        """README.md as the story, and as what ``[start]`` takes of it."""
        text = (paths.ROOT / README).read_text(encoding="utf-8")
        parts = re.split(r"^(?=## )", text, flags=re.MULTILINE)
        by_title = {part.partition("\n")[0].removeprefix("## ").strip(): part for part in parts}
        wanted = self.plan["start"]["sections"]
        if missing := [title for title in wanted if title not in by_title]:
            raise ValueError(f"{README} has no section {missing}, which site.toml names")
        story = "".join(part for title, part in by_title.items() if title not in wanted)
        start = "".join(by_title[title] for title in wanted)
        return story, f"# {self.plan['start']['title']}\n\n{start}"

    def _page(self, name: str) -> str:
        own = SITE / name
        path = own if own.is_file() else paths.ROOT / name
        text = path.read_text(encoding="utf-8")
        if path.suffix != ".ipynb":
            return self._linked(text, name)
        book = json.loads(text)
        for cell in book["cells"]:
            cell["source"] = self._prose(cell, "source", name, cell["cell_type"] == "markdown")
            for output in cell.get("outputs", []):
                data = output.get("data", {})
                for kind in data.keys() & {"text/markdown", "text/html"}:
                    data[kind] = self._prose(data, kind, name)
        return json.dumps(book)

    def _prose(self, holder: dict, key: str, page: str, prose: bool = True) -> str:
        text = "".join(holder[key])
        return self._linked(text, page) if prose else text

    def _linked(self, text: str, page: str) -> str:
        """The text with links that lead to their place in the site, which is taken along."""
        folder = posixpath.dirname(page)

        def to_html(match: re.Match) -> str:
            target = posixpath.normpath(posixpath.join(folder, match[2].partition("#")[0]))
            if target == EXPLORER and "#" not in match[2]:
                return f"[{match[1]}]({posixpath.relpath('explorer.md', folder or '.')})"
            # Sphinx would offer a page that is not one of its own as a file to download.
            return f'<a href="{match[2]}">{match[1]}</a>'

        def to_file(match: re.Match) -> str:
            target = posixpath.normpath(posixpath.join(folder, match[2]))
            place = self._placed(target)
            return f"{match[1]}{posixpath.relpath(place, folder or '.')}{match[3] or ''}"

        return _LINK.sub(to_file, _TO_HTML.sub(to_html, text))

    def _placed(self, target: str) -> str:
        """Where a file of the project is in the site; it is taken along. A link to what there is
        not stays as it is: Sphinx says so, or the test of links."""
        path = paths.ROOT / target
        if target == README:
            return STORY
        if path.is_dir():
            about = f"{target}/README.md"
            return self._placed(about) if (paths.ROOT / about).is_file() else STORY
        if not path.is_file():
            return target
        if path.suffix in (".md", ".ipynb"):
            self._waiting.append(target)
        elif path.suffix == ".html":
            self._take_whole(target)
        else:
            self.files.add(target)
        return target

    def _take_whole(self, page: str) -> None:
        """An HTML page as it is, with the pictures and files that it has."""
        if page in self.whole:
            return
        self.whole.add(page)
        text = (paths.ROOT / page).read_text(encoding="utf-8")
        for match in _LINK.finditer(text):
            target = posixpath.normpath(posixpath.join(posixpath.dirname(page), match[2]))
            if (paths.ROOT / target).is_file():
                self.whole.add(target)

    def sections(self) -> list[tuple[str, list[str]]]:
        """The navigation: titles of sections, each with its pages."""
        plan = self.plan["section"]
        named = [name for section in plan for name in self._own(section)]
        left = sorted(self.pages.keys() - {*named, STORY})
        found = []
        for section in plan:
            own = self._own(section)
            own += [name for name in left if fnmatch(name, section.get("rest", ""))]
            left = [name for name in left if name not in own]
            if own:
                found.append((section.get("title", ""), own))
        if left:
            raise ValueError(f"no section of site.toml takes {left}")
        return found

    def _own(self, section: dict) -> list[str]:
        """The pages that a section names, and the notebooks of its ``part`` of the README."""
        order = reading_order()
        part = order.loc[order["part"] == section.get("part"), "notebook"]
        return self._named(
            [*section.get("pages", []), *(f"notebooks/{name}.ipynb" for name in part)]
        )

    def _named(self, patterns: Iterable[str]) -> list[str]:
        found: list[str] = []
        for pattern in patterns:
            fitting = sorted(name for name in self.pages if fnmatch(name, pattern))
            if not fitting and "*" not in pattern:
                raise ValueError(f"there is no page {pattern}, which site.toml names")
            found += fitting
        return found

    def _navigation(self) -> str:
        trees = []
        for title, names in self.sections():
            places = [posixpath.splitext(name)[0] for name in names]
            if not title:
                places = ["Story <self>", *places]
            caption = [f":caption: {title}"] if title else []
            trees += ["```{toctree}", ":hidden:", *caption, "", *places, "```", ""]
        return "\n".join(trees)

    def write(self) -> tuple[Path, Path]:
        """The folder of sources for Sphinx, and that of whole pages; what was there before goes."""
        source, whole = BUILD / "site-src", BUILD / "site-whole"
        _fill(source, {name: text.encode() for name, text in self.pages.items()}, self.files)
        made = {name: self.whole_page(name) for name in self.whole if name.endswith(".html")}
        _fill(whole, {name: text.encode() for name, text in made.items()}, self.whole - {*made})
        return source, whole

    def whole_page(self, name: str) -> str:
        """A whole page, whose links to texts of the project lead to the pages made of them."""
        folder = posixpath.dirname(name)

        def to_page(match: re.Match) -> str:
            place = self._placed(posixpath.normpath(posixpath.join(folder, match[2])))
            if place not in self.pages:
                return match[0]
            shown = f"{posixpath.splitext(place)[0]}.html"
            return f"{match[1]}{posixpath.relpath(shown, folder or '.')}{match[3] or ''}"

        return _LINK.sub(to_page, (paths.ROOT / name).read_text(encoding="utf-8"))


def sources() -> list[str]:
    """Every notebook and every page of docs/, by its place in the project."""
    found = [*paths.ROOT.glob("notebooks/*.ipynb"), *paths.ROOT.glob("docs/*.md")]
    found += paths.ROOT.glob("docs/teach/*.md")
    return sorted(path.relative_to(paths.ROOT).as_posix() for path in found)


def _fill(folder: Path, made: dict[str, bytes], copied: Iterable[str]) -> None:
    """The folder with these files and no others. Equal ones stay, so Sphinx reads only the rest."""
    wanted = made | {name: (paths.ROOT / name).read_bytes() for name in copied}
    for path in folder.rglob("*"):
        if path.is_file() and path.relative_to(folder).as_posix() not in wanted:
            path.unlink()
    for name, content in wanted.items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != content:
            atomic_write(path, content)


def main() -> int:
    """Put the sources together and run Sphinx, which fails at any warning."""
    source, whole = Assembly().write()
    built = BUILD / "site"
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    command += [
        "-c",
        str(SITE),
        "-d",
        str(BUILD / "site-doctrees"),
        "-D",
        f"html_extra_path={whole}",
    ]
    done = subprocess.run(
        [*command, str(source), str(built)], env=os.environ | {"PYTHONPATH": str(paths.ROOT)}
    )
    if not done.returncode:
        print(f"{paths.shown(built)}/index.html; make serve shows it")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
