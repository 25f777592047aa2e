"""Which passages have a word, and what each scores for it by BM25, in files that are searched as
they lie.

A score depends on all passages: on how many have the word, and on how long they are. So passages
are read once, part by part, and counted; then the scores are worked out. bm25s, whose words and
formula these are, does both in memory, of which it takes 3 GB for a million passages.
"""

from __future__ import annotations

import errno
import math
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from importlib.metadata import version
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import numpy as np

from lib.base.files import locked

K1, B = 0.9, 0.4
"""How soon a repeated word counts no more, and how much a long passage loses: Pyserini's."""

PART = 2**17
"""Passages that are read, and searched, at a time: memory does not grow with the corpus."""

Found = tuple[str, np.ndarray, np.ndarray]
"""A word, the passages of a part that have it (int32; 0 is the part's first), and their scores
(float32)."""

_TABLES = """
CREATE TABLE about (content TEXT, finished INTEGER);
CREATE TABLE part (first INTEGER PRIMARY KEY, lengths BLOB);
CREATE TABLE posting (first INTEGER, word TEXT, start INTEGER, n INTEGER, PRIMARY KEY (first, word))
    WITHOUT ROWID;
"""
"""``finished``: how many postings there are, once all have scores. ``lengths`` (int32): words of
each passage of the part that begins with row ``first``. In the other files the ``n`` passages of
the part that have a word are from ``start`` on."""

_FREQUENCIES = """
CREATE TEMP TABLE frequency (word TEXT PRIMARY KEY, passages INTEGER) WITHOUT ROWID;
INSERT INTO frequency SELECT word, sum(n) FROM posting GROUP BY word;
"""


class Postings:
    """The postings of n passages, in a folder of their own; without one they go with the process.

    The folder has a table (SQLite) and, of one length, ``rows`` and ``scores``; until these are
    worked out, ``counts``. A part is in the table once its rows and counts are on the disk, so a
    killed run loses no more than a part. ``content`` names the passages.
    """

    def __init__(self, folder: Path | None, content: str, n: int):
        if folder is None:
            self._temporary = TemporaryDirectory(prefix="words-")
            folder = Path(self._temporary.name)
        self.folder, self.n = folder, n
        words = f"words by bm25s {version('bm25s')}, k1 {K1}, b {B}, {PART} passages a part"
        self._content = f"{content}, {words}"
        self._mapped: dict[str, np.ndarray] = {}

    def find(self, words: Collection[str]) -> Iterator[tuple[slice, list[Found]]]:
        """For each part that has one of the words: its rows, and each of those words."""
        place = "SELECT start, start + n FROM posting WHERE first = ? AND word = ?"
        rows, scores = self._read("rows"), self._read("scores")
        with closing(self._table("ro")) as table:
            for first in range(0, self.n, PART):
                found = []
                for word in words:
                    for start, end in table.execute(place, (first, word)):
                        found.append((word, rows[start:end], scores[start:end]))
                if found:
                    yield slice(first, min(first + PART, self.n)), found

    def write(self, texts: Iterable[str], tokenized: Callable) -> None:
        """Write what is not there yet; of another content, or damaged, all anew. No text is read
        where all is there. ``tokenized`` numbers the words of texts, as bm25s.tokenize does.
        OSError where it cannot be written."""
        if self._is_whole():
            return
        try:
            with locked(self.folder):
                if self._is_whole():  # by another process, meanwhile
                    return
                if self._about() != (self._content, None):
                    self._begin()
                with closing(self._table("rw")) as table:
                    self._count(table, texts, tokenized)
                    self._score(table)
            self._mapped.clear()
            (self.folder / "counts").unlink(missing_ok=True)
        except sqlite3.OperationalError as error:
            what = f"{error}. Make room, or name another folder (CHR_CACHE), and run it again"
            raise OSError(errno.ENOSPC, what, str(self.folder)) from error

    def _begin(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        for name in ("rows", "counts", "scores"):
            (self.folder / name).touch()
        with closing(self._table("rwc")) as table, table:
            table.executescript(_TABLES)
            table.execute("INSERT INTO about VALUES (?, NULL)", (self._content,))

    def _count(self, table: sqlite3.Connection, texts: Iterable[str], tokenized: Callable) -> None:
        """Append to ``rows`` and ``counts`` the parts that they lack."""
        from tqdm import tqdm

        (done,) = table.execute("SELECT count(*) FROM part").fetchone()
        (start,) = table.execute("SELECT ifnull(max(start + n), 0) FROM posting").fetchone()
        firsts = range(0, self.n, PART)[done:]
        left = islice(texts, done * PART, None) if firsts else iter(())
        quiet = True if self.n <= PART else None
        for first in tqdm(firsts, "words", unit="part", disable=quiet, file=sys.stderr):
            cut = tokenized(islice(left, min(PART, self.n - first)), return_ids=True)
            lengths = np.array([len(numbers) for numbers in cut.ids], dtype=np.int32)
            rows, counts, ends = _counted(cut.ids, lengths)
            self._append("rows", start, rows)
            self._append("counts", start, counts)
            places = [
                (first, word, start + int(ends[number]), int(ends[number + 1] - ends[number]))
                for word, number in sorted(cut.vocab.items())
            ]
            with table:
                table.execute("INSERT INTO part VALUES (?, ?)", (first, lengths.tobytes()))
                table.executemany("INSERT INTO posting VALUES (?, ?, ?, ?)", places)
            start += len(rows)

    def _score(self, table: sqlite3.Connection) -> None:
        """Append to ``scores`` what it lacks: of each posting Lucene's BM25."""
        table.executescript(_FREQUENCIES)
        all_lengths = table.execute("SELECT first, lengths FROM part ORDER BY first").fetchall()
        lengths = {first: np.frombuffer(stored, np.int32) for first, stored in all_lengths}
        n = sum(map(len, lengths.values()))
        if n != self.n:
            raise ValueError(f"{n} texts and {self.n} passage ids")
        mean_length = sum(int(own.sum()) for own in lengths.values()) / max(n, 1)
        done = (self.folder / "scores").stat().st_size // 4
        rows, counts = self._read("rows"), self._read("counts")
        for first, own in lengths.items():
            words = table.execute(
                "SELECT start, n, passages FROM posting JOIN frequency USING (word) "
                "WHERE first = ? ORDER BY start",
                (first,),
            ).fetchall()
            if not words or words[-1][0] + words[-1][1] <= done:
                continue
            start, end = words[0][0], words[-1][0] + words[-1][1]
            idf = [math.log(1 + (n - df + 0.5) / (df + 0.5)) for _, _, df in words]
            # Each in float32, as in bm25s.
            idf = np.repeat(np.array(idf, dtype=np.float32), [size for _, size, _ in words])
            norms = K1 * ((1 - B) + B * own / mean_length)
            counted = counts[start:end]
            scores = idf * (counted / (norms[rows[start:end]] + counted))
            self._append("scores", start, scores.astype(np.float32))
        with table:
            table.execute("UPDATE about SET finished = ?", (len(rows),))

    def _append(self, name: str, start: int, values: np.ndarray) -> None:
        """Put values of four bytes each behind the first ``start``; they are on the disk then."""
        with open(self.folder / name, "r+b") as file:
            file.truncate(4 * start)  # what a killed run left of this part
            file.seek(4 * start)
            file.write(values.data)
            file.flush()
            os.fsync(file.fileno())

    def _read(self, name: str) -> np.ndarray:
        if name not in self._mapped:
            path, kind = self.folder / name, np.float32 if name == "scores" else np.int32
            empty = not path.stat().st_size
            values = np.zeros(0, kind) if empty else np.memmap(path, kind, mode="r")
            self._mapped[name] = values.view(np.ndarray)
        return self._mapped[name]

    def _table(self, mode: str) -> sqlite3.Connection:
        """A connection of its own for every call: threads must not share one."""
        path = (self.folder / "words.sqlite").resolve()
        return sqlite3.connect(f"file:{quote(str(path))}?mode={mode}", uri=True)

    def _is_whole(self) -> bool:
        content, finished = self._about()
        if content != self._content or finished is None:
            return False
        files = (self.folder / name for name in ("rows", "scores"))
        return all(file.exists() and file.stat().st_size == 4 * finished for file in files)

    def _about(self) -> tuple[str | None, int | None]:
        """Of which passages the files are, and how many postings, None while they are written."""
        with suppress(sqlite3.DatabaseError), closing(self._table("ro")) as table:
            return table.execute("SELECT content, finished FROM about").fetchone() or (None, None)
        return None, None


def _counted(
    numbers: Sequence[Sequence[int]], lengths: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Passages that have word 0, then those that have word 1, ..., and how often, both int32; and
    where each word's begin and the last one's end."""
    n = max(len(lengths), 1)
    words = np.fromiter(chain.from_iterable(numbers), np.int64, int(lengths.sum()))
    pairs, counts = np.unique(
        words * n + np.repeat(np.arange(len(lengths)), lengths), return_counts=True
    )
    words, rows = np.divmod(pairs, n)
    ends = np.searchsorted(words, np.arange(words.max(initial=-1) + 2))
    return rows.astype(np.int32), counts.astype(np.int32), ends
