"""Your own folder of text or Markdown files, cut into passages and searched where it is.

Nothing of it is copied into the project: passages are in memory, and only their vectors go to the
cache.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd

from lib.corpora import cut
from lib.data.passages import Passage
from lib.embed import Encoder
from lib.run import Retriever
from lib.search.index import DenseIndex
from lib.search.vectors import encode_cached

SOURCE = "own"
"""The source of a folder's passages."""

SUFFIXES = (".txt", ".md")
"""Files of a folder that are read, in capitals too."""

LARGEST_FILE = 5_000_000
"""Bytes of the largest file that is read: about 5,000 passages."""

MOST_PASSAGES = 20_000
"""Passages of the largest folder: a quarter of an hour on two cores."""

_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(\S.*)")
_NOT_UTF8 = (
    "is not UTF-8 text. Next: save it again as UTF-8 (iconv -f latin1 -t utf-8 OLD > NEW), or move "
    "it out of the folder"
)


class FolderPassages:
    """The passages of a folder, in memory: what ``lib.data.store.PassageStore`` offers.

    ``files`` has a row for each file: file, title, passages, equal (pieces left out because an
    earlier file, or an earlier place of this one, says the same).
    """

    def __init__(self, passages: Sequence[Passage], files: Sequence[Mapping]) -> None:
        self._by_pid = {passage.pid: passage for passage in passages}
        self.files = tuple(files)

    def __len__(self) -> int:
        return len(self._by_pid)

    def __iter__(self) -> Iterator[Passage]:
        return iter(self._by_pid.values())

    def ids(self) -> list[str]:
        """All passage ids in row order."""
        return list(self._by_pid)

    def get(self, pid: str) -> Passage:
        """One passage by id; KeyError when it is not here."""
        return self._by_pid[pid]

    def get_many(self, pids: Sequence[str]) -> list[Passage]:
        """Passages by id, in the order asked; KeyError names the first unknown id."""
        return [self._by_pid[pid] for pid in pids]


def read_folder(folder: str | Path) -> FolderPassages:
    """The text of every .txt and .md file in a folder and below, cut as all documents here are.

    A passage's id is the path of its file, from the folder on, with ``#0``, ``#1``, ... where the
    file is longer than a passage. Its title is the first heading of a Markdown file, or the file's
    name. Hidden files and folders, whatever has another ending, links to folders, and files without
    a word are passed over; of equal passages the first is kept, in the order of the files. Raises
    FileNotFoundError or NotADirectoryError for a folder that is none, and ValueError for a file
    that cannot be read as UTF-8 or is too large, and for a folder with too much text or none.
    """
    if not isinstance(folder, (str, Path)):
        raise ValueError(f"folder is {folder!r}. Next: give a path, such as folder = '~/notes'")
    home = Path(folder).expanduser()
    if not home.exists():
        raise FileNotFoundError(
            f"there is no folder {home}, seen from {Path.cwd()}. Next: give its whole path, such "
            "as folder = '~/notes'"
        )
    if not home.is_dir():
        raise NotADirectoryError(f"{home} is a file. Next: give the folder that it is in")
    kept: list[Passage] = []
    files = []
    first_with: dict[str, str] = {}
    for file in _text_files(home):
        name = file.relative_to(home).as_posix()
        here = _passages_of(file, name)
        new = [p for p in here if first_with.setdefault(p.text, p.pid) == p.pid]
        kept += new
        if len(kept) > MOST_PASSAGES:
            raise ValueError(
                f"{home} has more than {MOST_PASSAGES:,} passages ({name!r} was read last). Next: "
                "give a folder inside it"
            )
        if here:
            row = {"file": name, "title": here[0].title, "passages": len(new)}
            files.append(row | {"equal": len(here) - len(new)})
    if not kept:
        raise ValueError(
            f"no text in {home}: it has no file that ends with {' or '.join(SUFFIXES)} and has "
            "words (hidden ones do not count). Next: save what you want searched as such files"
        )
    return FolderPassages(kept, files)


def _passages_of(file: Path, name: str) -> list[Passage]:
    """The passages of one file, cut as ``lib.corpora`` cuts; pieces without a word left out.

    ``name`` is its path from the folder on.
    """
    text = _read(file, name)
    title = _heading(text) if file.suffix.lower() == ".md" else ""
    pieces = cut(text)
    found = []
    for i, piece in enumerate(pieces):
        pid = name if len(pieces) == 1 else f"{name}#{i}"
        if any(letter.isalnum() for letter in piece):
            found.append(Passage(pid, title or file.stem, piece, SOURCE, {"doc": name}))
    return found


def folder_retriever(folder: str | Path, encoder: Encoder, progress: bool = True) -> Retriever:
    """A search in your own folder (see ``read_folder``).

    Nothing of it is copied: texts stay in memory, and the vectors, which the cache keeps by a hash
    of the texts, are made once for as long as no file changes. How many passages are longer than
    the encoder reads is said.
    """
    store = read_folder(folder)
    items = [(passage.title, passage.text) for passage in store]
    name = Path(folder).expanduser().resolve().name
    shards = encode_cached(items, encoder, "article", label=name, progress=progress)
    retriever = Retriever(DenseIndex(shards, store.ids()), encoder, store)
    if cut := folder_table(retriever)["cut"].sum():
        print(
            f"{name}: {encoder.name} reads only the beginning of {cut} of {len(store)} passages; "
            "their ends are never found (column cut). Next: cut those files into shorter ones",
            file=sys.stderr,
        )
    return retriever


def folder_table(retriever: Retriever) -> pd.DataFrame:
    """What was read of a folder: file, title, passages, equal (see ``FolderPassages``), and cut:
    passages of which the encoder reads only the beginning."""
    passages = list(retriever.store)
    unread = retriever.encoder.unread([(passage.title, passage.text) for passage in passages])
    cut = Counter(p.meta["doc"] for p, tokens in zip(passages, unread, strict=True) if tokens)
    return pd.DataFrame([row | {"cut": cut[row["file"]]} for row in retriever.store.files])


def _text_files(home: Path) -> Iterator[Path]:
    """Files to be read, in the order of their paths."""
    found = []
    for folder, inner, names in os.walk(home, onerror=_raise):
        inner[:] = [name for name in inner if not name.startswith(".")]
        for name in names:
            file = Path(folder, name)
            wanted = file.suffix.lower() in SUFFIXES and not name.startswith(".")
            if wanted and file.is_file():
                found.append(file)
    return iter(sorted(found, key=lambda file: file.relative_to(home).as_posix()))


def _raise(error: OSError) -> None:
    """A folder that may not be read is said, not passed over."""
    raise error


def _read(file: Path, name: str) -> str:
    """The text of a file; ``name`` stands for it in errors."""
    size = file.stat().st_size
    if size > LARGEST_FILE:
        raise ValueError(
            f"{name!r} has {size:,} bytes; files of up to {LARGEST_FILE:,} are read. Next: cut it "
            "into several, or move it out of the folder"
        )
    try:
        text = file.read_bytes().decode("utf-8-sig")
        name.encode()
    except UnicodeError as error:
        raise ValueError(f"{name!r} {_NOT_UTF8} ({error})") from error
    if "\0" in text:  # UTF-16, or no text at all
        raise ValueError(f"{name!r} {_NOT_UTF8} (it holds zero bytes)")
    return text


def _heading(text: str) -> str:
    """The first heading of a Markdown text ("# Title"), "" where it has none; code has none."""
    in_code = False
    for line in text.splitlines():
        if line.lstrip().startswith(("```", "~~~")):
            in_code = not in_code
        found = _HEADING.fullmatch(line)
        if found and not in_code:
            # Number signs after a blank close a heading, and are none of it.
            title = found[1].rstrip(" \t")
            unclosed = title.rstrip("#")
            return unclosed.rstrip(" \t") if unclosed.endswith((" ", "\t")) else title
    return ""
