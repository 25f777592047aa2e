"""A corpus of your own: read from any form, searched, saved under a name, opened by it again.

A corpus that was read is in memory, and nothing of it is copied. A saved one is a folder: the
passages (``passages.sqlite``), the vectors of each encoder that it was searched with (``vectors``)
and the index of words (``bm25``). Opening it encodes nothing, and the folder may be moved.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from lib.base import paths
from lib.base.files import atomic_write, locked, read_manifest
from lib.data.passages import Passage
from lib.data.store import PassagesInMemory, PassageStore
from lib.embed import Encoder, unread_line
from lib.forms import Report, read_passages, stream_passages
from lib.index_build import Articles, unread_tokens
from lib.query_spec import Hypotheses, SearchSpec, Text
from lib.run import Retriever
from lib.search.bm25 import BM25Index
from lib.search.choose import open_dense
from lib.search.vectors import encode_cached

_PASSAGES = "passages.sqlite"
_ADDITIONS = "additions.json"


class Corpus:
    """Passages and what is needed to search them; from ``read`` or ``open``.

    ``store`` has the passages; ``folder`` is where they are saved, None while they are not.
    """

    def __init__(
        self, name: str, store: PassagesInMemory | PassageStore, folder: Path | None = None
    ) -> None:
        self.name, self.store, self.folder = name, store, folder
        self._vector_files: set[Path] = set()
        self._told: set[str] = set()  # fingerprints of encoders

    def __len__(self) -> int:
        return len(self.store)

    def __repr__(self) -> str:
        return f"Corpus({self.name!r}, {len(self):,} passages)"

    @classmethod
    def read(
        cls, path: str | Path, *, encoder: Encoder | None = None, cut: int = 0, overlap: int = 0
    ) -> Corpus:
        """The passages at a path, in any form that ``lib.forms`` knows, into memory.

        What was read, left out and passed over is printed, and with an encoder how much of the
        passages it leaves unread. With ``cut``, those that have more tokens for the encoder are cut
        (see ``cut_passages``). ValueError lists everything that is wrong in the files, and where
        there is no text.
        """
        passages, report = read_passages(path)
        print(report, file=sys.stderr)
        if cut:
            passages = list(cut_passages(passages, encoder, cut, overlap))
            pieces = sum("whole" in passage.meta for passage in passages)
            print(f"{pieces:,} of {len(passages):,} passages are pieces", file=sys.stderr)
        corpus = cls(report.path.resolve().name.partition(".")[0], PassagesInMemory(passages))
        if encoder:
            corpus._say_unread(encoder)
        return corpus

    @classmethod
    def open(cls, name: str | Path) -> Corpus:
        """A saved corpus, by its name or folder; ValueError where there is none."""
        folder = corpus_folder(name)
        if read_manifest(folder / _PASSAGES, verify=False) is None:
            there = sorted(path.parent.name for path in _home().glob(f"*/{_PASSAGES}"))
            raise ValueError(
                f"no corpus {str(name)!r} in {folder.parent}; there are: "
                f"{', '.join(there) or 'none'}. Next: Corpus.read(path).save(name)"
            )
        return cls(folder.name, PassageStore.open(folder / _PASSAGES), folder)

    def save(self, name: str | Path, *, replace: bool = False) -> Corpus:
        """The corpus in a folder of its own: ``data/own/<name>``, or a path with a slash.

        Vectors that were made so far go with it. ValueError where another corpus has the name,
        unless ``replace`` is said.
        """
        folder = corpus_folder(name)
        manifest = read_manifest(folder / _PASSAGES, verify=False)
        if manifest and manifest["settings"]["content"] != self.store.content and not replace:
            raise ValueError(
                f"{folder} holds another corpus. Next: another name, "
                f"Corpus.open({str(name)!r}).add(path), or replace=True"
            )
        (folder / "vectors").mkdir(parents=True, exist_ok=True)
        kept = (self.folder / "vectors").glob("*.npy") if self.folder else ()
        for file in {*self._vector_files, *kept}:
            if file.parent != folder / "vectors":
                for part in file.parent.glob(f"{file.name}*"):
                    shutil.copy(part, folder / "vectors")
        if not manifest or manifest["settings"]["content"] != self.store.content:
            atomic_write(folder / _ADDITIONS, json.dumps(self._starts()))
            PassageStore.build(folder / _PASSAGES, self.store)
        print(f"saved in {paths.shown(folder)}", file=sys.stderr)
        return Corpus.open(folder)

    def add(
        self, path: str | Path, *, encoder: Encoder | None = None, cut: int = 0, overlap: int = 0
    ) -> Corpus:
        """The corpus with further passages, read and cut as in ``read``; a saved one is saved so.

        Vectors of what was there stay. ValueError for an id that is there already; then nothing
        changes.
        """
        known = set(self.store.ids())
        report = Report(paths.existing(path))

        def further() -> Iterator[Passage]:
            passages: Iterable[Passage] = stream_passages(report)
            if cut:
                passages = cut_passages(passages, encoder, cut, overlap)
            for passage in passages:
                if passage.pid in known:
                    report.faults.append(f"{report.path.name}: the id {passage.pid!r} is there")
                yield passage
            report.check()
            print(report, file=sys.stderr)

        if self.folder is None:
            return Corpus(self.name, PassagesInMemory(chain(self.store, list(further()))))
        with locked(self.folder / _PASSAGES):
            # Written first: a start behind the last passage does not count.
            starts = sorted({*self._starts(), len(self.store)})
            atomic_write(self.folder / _ADDITIONS, json.dumps(starts))
            PassageStore.build(self.folder / _PASSAGES, chain(self.store, further()))
        return Corpus.open(self.folder)

    def retriever(
        self,
        encoder: Encoder,
        *,
        backend: str = "faiss",
        devices: Sequence[str] = (),
        dtype: str = "float32",
        progress: bool = True,
    ) -> Retriever:
        """Search by meaning and by words. Only passages without stored vectors are encoded.

        What the encoder is, and how much of the passages it leaves unread, is printed. BM25 is
        built when it is first searched, and kept with a saved corpus.
        """
        self._say_unread(encoder)
        shards = encode_cached(
            Articles(self.store),
            encoder,
            "article",
            starts=self._starts(),
            cache_dir=self.folder / "vectors" if self.folder else None,
            dtype=dtype,
            label=self.name,
            progress=progress,
        )
        self._vector_files |= {Path(shard.filename) for shard in shards}
        index = open_dense(shards, self.store.ids(), backend=backend, devices=devices)
        return Retriever(index, encoder, self.store, self._words)

    def _starts(self) -> list[int]:
        """The row of the first passage, and of the first of each addition: an addition has files of
        vectors of its own, so that those of what was there stay."""
        if self.folder is None or not (file := self.folder / _ADDITIONS).exists():
            return [0]
        added = json.loads(file.read_text(encoding="utf-8"))
        return [0, *(start for start in added if 0 < start < len(self.store))]

    def _say_unread(self, encoder: Encoder) -> None:
        """Print what the encoder is, once, and once a corpus what of it is not read."""
        paths.say_once(encoder.describe())
        if encoder.fingerprint in self._told:
            return
        self._told.add(encoder.fingerprint)
        told = unread_line(self.name, encoder, unread_tokens(self.store, encoder))
        if "only the beginning" in told and hasattr(encoder, "window"):
            told += f". Next: Corpus.read(path, encoder=..., cut={encoder.window()}, overlap=32)"
        print(told, file=sys.stderr)
        with_title = sum(bool(passage.title) for passage in self.store)
        if with_title and not encoder.titles:
            print(
                f"{self.name}: {encoder.name} does not read the titles of {with_title:,} passages. "
                "Next, if they matter: load_encoder(..., titles=True)",
                file=sys.stderr,
            )

    def _words(self) -> BM25Index:
        """The index of words, beside the passages where they are kept."""
        texts = (f"{passage.title} {passage.text}" for passage in self.store)
        keep = self.folder / "bm25" if self.folder else None
        return BM25Index.build(texts, self.store.ids(), keep, self.store.content)


def cut_passages(
    passages: Iterable[Passage], encoder: Encoder | None, tokens: int, overlap: int = 0
) -> Iterator[Passage]:
    """The passages, each longer than ``tokens`` in pieces that are not, as the encoder counts.

    The pieces of "id" are "id#1", "id#2", ... with its title, its meta and, in ``meta["whole"]``,
    its id, by which judgments may know it. Each begins with up to ``overlap`` tokens of the one
    before it, and every character is in one. ValueError for an encoder without tokens, more tokens
    than it reads, or a piece whose id another passage has.
    """
    pieces_of = getattr(encoder, "pieces", None)
    if pieces_of is None:
        who = encoder.name if encoder else "no encoder"
        raise ValueError(
            f"{who} counts tokens to cut by. Next: encoder=load_encoder('minilm'), or st:<model>"
        )
    if overlap < 0:
        raise ValueError(f"an overlap of {overlap} tokens is none")
    ids, cut = set(), set()
    for passage in passages:
        pieces = pieces_of((passage.title, passage.text), tokens, overlap)
        if len(pieces) == 1:
            ids.add(passage.pid)
            yield passage
            continue
        for number, piece in enumerate(pieces, 1):
            pid = f"{passage.pid}#{number}"
            cut.add(pid)
            yield replace(passage, pid=pid, text=piece, meta={**passage.meta, "whole": passage.pid})
    if both := sorted(ids & cut):
        raise ValueError(f"{both[0]!r} is the id of a piece and of another passage")


def contrast(h_plus: str, h_minus: str = "", lam: float = 1.0) -> Hypotheses:
    """The search with h+ - lam h-, for ``Retriever.search``; without ``h_minus`` with h+ alone."""
    mimic = (Text(h_minus, role="mimic"),) if h_minus else ()
    return Hypotheses((Text(h_plus, role="target"), *mimic), SearchSpec(lam=lam if mimic else 0.0))


def corpus_folder(name: str | Path) -> Path:
    """Where a corpus of that name is saved; a name with a slash is a path of its own."""
    path = Path(name).expanduser()
    if "/" in str(name) or len(path.parts) > 1 or isinstance(name, Path):
        return path
    if not path.name or path.name.startswith("."):
        raise ValueError(f"{str(name)!r} is no name for a corpus")
    return _home() / path


def _home() -> Path:
    return paths.DATA / "own"
