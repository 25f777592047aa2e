"""Run files: stored search results, so that everything computed from them needs no index.

The searches are the expensive part of a study: passages must be embedded first. Their results are
stored as a run file, one row per passage: ``data/runs/<profile>/<study>.csv.xz``. ``make verify``
replays it: measures, tests and tables are then made anew on a machine that has embedded nothing.
The first five columns are TREC's, without its constant; ``tag`` describes the search, with a hash
of the whole request, of k and of the passages that could be found. A request that could not be
ranked has one row of rank 0, whose ``error`` says why.
"""

from __future__ import annotations

import json
import lzma
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd

from lib.base import files, paths
from lib.data.store import PassageStore
from lib.embed import Encoder, for_search
from lib.query_spec import By, Fusion, Hypotheses, Request, Sparse
from lib.search.index import DenseIndex, PassageIndex
from lib.search.merge import Hits
from lib.search.vectors import encode_small

COLUMNS = ("qid", "rank", "pid", "score", "tag", "error")

MOST_VECTORS = 20_000
"""Passages embedded one by one, at most, where there is no index; more would take too long."""

Searched = list[Hits | str]
"""For each request its Hits (one row), or why it could not be ranked."""


class NeedsIndex(RuntimeError):
    """Something that no run file holds: it needs the passages embedded."""


def run_file(profile: str, study: str) -> Path:
    """Where the committed runs of a study are."""
    return paths.DATA / "runs" / profile / f"{study}.csv.xz"


class RunFile:
    """The searches of one study, to be recorded or replayed.

    ``found`` has, by tag, the question's id and its Hits, or why it could not be ranked.
    """

    def __init__(self, found: dict[str, tuple[str, Hits | str]] | None = None):
        self.replays = found is not None
        self.found = found or {}
        self._lock = threading.Lock()

    @classmethod
    def read(cls, path: Path) -> RunFile:
        """A committed file of runs, to be replayed. FileNotFoundError where it is not whole."""
        if files.read_manifest(path) is None:
            raise FileNotFoundError(f"{paths.shown(path)} is missing or not what its manifest says")
        texts = dict.fromkeys(("qid", "pid", "tag", "error"), str)
        table = pd.read_csv(path, dtype=texts, keep_default_na=False, lineterminator="\n")
        found = {}
        for tag, rows in table.groupby("tag", sort=False):
            error = rows["error"].iloc[0]
            ids = rows["pid"].to_numpy(str)[None]
            scores = rows["score"].to_numpy(np.float32)[None]
            hits = Hits(scores, np.full(ids.shape, -1), ids)
            found[tag] = (rows["qid"].iloc[0], error or hits)
        return cls(found)

    def write(self, path: Path, settings: dict) -> None:
        """Keep what was recorded, with its manifest. The same searches give the same bytes."""
        rows = []
        for tag, (qid, found) in sorted(self.found.items()):
            if isinstance(found, str):
                rows.append((qid, 0, "", 0.0, tag, found))
                continue
            pairs = zip(found.ids[0].tolist(), found.scores[0].tolist(), strict=True)
            rows += [(qid, rank, pid, score, tag, "") for rank, (pid, score) in enumerate(pairs, 1)]
        table = pd.DataFrame(rows, columns=list(COLUMNS))
        path.parent.mkdir(parents=True, exist_ok=True)
        text = table.to_csv(index=False, float_format="%.4g", lineterminator="\n")
        content = lzma.compress(text.encode(), preset=6)
        files.atomic_write(path, content)
        files.write_manifest(path, rows=len(table), settings=settings, content=content)

    def differences(self, other: RunFile) -> str:
        """How another record, which may hold further searches, differs; "" if it does not.

        Searches behind outcomes that are committed question by question are not on file.
        """
        if gone := self.found.keys() - other.found.keys():
            return f"{len(gone)} searches on file were not made"
        wrong = [tag for tag, (_, mine) in self.found.items() if _list(mine) != other.list_of(tag)]
        return f"{len(wrong)} searches found something else, such as {wrong[0]}" if wrong else ""

    def list_of(self, tag: str) -> list[str] | str:
        """The passage ids that a search found, best first, or why it could not."""
        return _list(self.found[tag][1])

    def search(
        self, search: Callable[[Sequence[Request]], Searched], requests: Sequence[Request], tags
    ) -> Searched:
        """What ``search`` finds for these requests, recorded by tag; in replay, what was recorded.

        NeedsIndex, when replaying, for a request that is not in the file.
        """
        if not self.replays:
            found = search(requests)
            with self._lock:
                for request, tag, hits in zip(requests, tags, found, strict=True):
                    self.found[tag] = (_qid(request), hits)
            return found
        missing = [tag for tag in tags if tag not in self.found]
        if missing:
            raise NeedsIndex(f"not among the runs on file: {len(missing)} searches ({missing[0]})")
        return [self.found[tag][1] for tag in tags]


def _list(found: Hits | str) -> list[str] | str:
    return found if isinstance(found, str) else found.ids[0].tolist()


_active: RunFile | None = None
_inside = threading.local()


@contextmanager
def using(file: RunFile) -> Iterator[RunFile]:
    """While it is open, all searches of this process are recorded to ``file``, or replayed."""
    global _active
    before, _active = _active, file
    try:
        yield file
    finally:
        _active = before


def replaying() -> bool:
    """Whether searches are answered from a file, so that no index is needed."""
    return _active is not None and _active.replays


def through(
    search: Callable[[Sequence[Request]], Searched],
    requests: Sequence[Request],
    k: int,
    place: Callable[[], str],
) -> Searched:
    """``search(requests)``, by way of the file in use. ``place`` names what can be found and how.

    The searches that a fusion is made of are part of it, and not looked up on their own. Random
    passages are drawn by their ids, without an index, and need no file.
    """
    if _active is None or getattr(_inside, "search", False) or all(map(_is_random, requests)):
        return search(requests)
    _inside.search = True
    try:
        where = place()
        return _active.search(search, requests, [_tag(r, k, where) for r in requests])
    finally:
        _inside.search = False


def _is_random(request: Request) -> bool:
    return isinstance(request, Hypotheses) and request.spec.form == "random"


def place_of(index: DenseIndex, encoder: Encoder, more: Sequence = ()) -> str:
    """A name of what is searched: which passages can be found, and by which encoder."""
    kept = "\n".join(sorted(index.ids[index.kept].tolist()))
    return files.sha256_bytes(f"{encoder.fingerprint}\n{list(more)!r}\n{kept}".encode())


def _tag(request: Request, k: int, place: str) -> str:
    """A readable description of the search, and a hash of all that the result depends on."""
    whole = json.dumps([_plain(request), k, place], sort_keys=True, ensure_ascii=False)
    digest = files.sha256_bytes(whole.encode())[:16]
    if isinstance(request, Fusion):
        return f"{request.how} of {len(request.requests)} {digest}"
    if isinstance(request, Sparse):
        return f"bm25 {digest}"
    if isinstance(request, By):
        return f"by {request.encoder} {digest}"
    spec = request.spec
    turned = " turned" if spec.rotation else ""
    return f"{spec.form} {spec.mimic or 'own'}{turned} lam={spec.lam:g} {digest}"


def _plain(request: Request) -> object:
    """A request as JSON, without the fields that do not affect the search."""
    if isinstance(request, Fusion):
        parts = [_plain(part) for part in request.requests]
        return [parts, request.how, request.rrf_k, request.depth]
    if isinstance(request, Sparse):
        return [request.text, request.sources]
    if isinstance(request, By):
        return [request.encoder, _plain(request.request)]
    texts = [asdict(text) for text in request.texts]
    for fields in texts:
        if not fields["pid"]:
            del fields["pid"]  # tags of requests that name no passage are older than the field
    return [texts, asdict(request.spec), sorted(request.excluded), request.sources]


def _qid(request: Request) -> str:
    if isinstance(request, Fusion):
        return _qid(request.requests[0])
    if isinstance(request, By):
        return _qid(request.request)
    return getattr(request, "qid", "")


class TextIndex(DenseIndex):
    """The passages of a store without their vectors: those that are asked for are embedded.

    A few passages can be scored and listed; a search raises NeedsIndex.
    """

    def __init__(self, store: PassageStore, encoder: Encoder):
        PassageIndex.__init__(self, store.ids())
        self._store, self._encoder = store, encoder
        self.dim = for_search(encoder).dim

    def vectors(self, rows: np.ndarray) -> np.ndarray:
        """The vectors of some rows, float32 (m, d), embedded now or found in the cache."""
        pids, places = np.unique(self.ids[np.asarray(rows, dtype=np.int64)], return_inverse=True)
        if len(pids) > MOST_VECTORS:
            raise NeedsIndex(f"the vectors of {len(pids):,} passages are asked for")
        passages = self._store.get_many(pids.tolist())
        items = [(passage.title, passage.text) for passage in passages]
        return encode_small(items, self._encoder, "article", as_searched=True)[places]

    def longlist(self, queries: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray]:
        """As of ``DenseIndex``, from the vectors of all passages."""
        rows = np.flatnonzero(self.kept)
        scores = queries @ self.vectors(rows).T
        best = np.argpartition(-scores, depth - 1, axis=1)[:, :depth]
        return rows[best], np.take_along_axis(scores, best, axis=1).min(axis=1)

    def checked(self, vectors: np.ndarray, k: int) -> np.ndarray:
        """Raises NeedsIndex: what asks is a search, of one lambda or of many."""
        raise NeedsIndex("a search of all passages, which is not among the runs on file")
