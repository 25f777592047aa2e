"""From corpora to a searchable index: passages in a store, their vectors in shards, one index."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lib.base import paths
from lib.base.files import atomic_write, canonical_json, read_manifest, sha256_bytes, sha256_of
from lib.base.parameters import one_of
from lib.base.provenance import code_hash, data_hash
from lib.corpora import load_passages
from lib.data import medrag
from lib.data.medrag import NAMES
from lib.data.passages import CORPORA, Passage
from lib.data.store import PassagesInMemory, PassageStore
from lib.datasets import few
from lib.embed import Encoder, unread_summary
from lib.search.choose import open_dense
from lib.search.index import DenseIndex
from lib.search.vectors import encode_cached, open_vectors

READERS = (
    "lib.corpora",
    "lib.data.medrag",
    "lib.data.openstax",
    "lib.data.passages",
    "lib.data.questions",
    "lib.datasets",
)
"""The modules that make passages of files; where one changes, the files are read again."""

MOST_COUNTED = 1_000_000
"""Passages of a store whose tokens are counted: a few minutes. MedCorp's take hours."""

_COUNTED = 1000  # passages whose tokens are counted at a time


def files_of(corpora: Sequence[str]) -> list[str]:
    """Names of all files behind the corpora, as ``lib.base.provenance.data_hash`` takes them.

    None of your own: those count by what was read of them.
    """
    names = [name for name in corpora if not paths.is_own(name)]
    what = "no corpus (a file of your own has a suffix, a folder a slash)"
    return [file for name in names for file in one_of(what, name, CORPORA).files]


def named(corpora: Sequence[str]) -> list[str]:
    """The corpora by name, whatever the files of your own are called."""
    return [paths.OWN if paths.is_own(name) else name for name in corpora]


def corpus_store(
    corpora: Sequence[str],
    limit: int = 0,
    keep: Callable[[], Container[str]] = frozenset,
    **behind: Any,
) -> PassageStore:
    """The passages of the corpora in one store, built once and reused while data and readers hold.

    ``limit`` takes so many passages of each corpus by the hash of their ids (0 = all), and those
    whose ids ``keep()`` gives. ``keep`` is called only when the store is built; ``behind`` are the
    settings that its answer depends on. Files of a local copy of MedCorp count as unchanged while
    their sizes and times of change are; your own count by their content, wherever they stand.
    """
    if own := [sha256_of(paths.existing(name)) for name in corpora if paths.is_own(name)]:
        behind |= {"own": own, "forms": code_hash(["lib.forms"], core=())}
    settings = {
        "corpora": named(corpora),
        "limit": limit,
        "data": data_hash(files_of(corpora)),
        "local": [medrag.local_files(name) for name in corpora],
        "code": code_hash(READERS, core=()),
        **behind,
    }
    key = sha256_bytes(canonical_json(settings).encode())[:16]
    path = paths.cache("passages") / f"{key}.sqlite"
    if read_manifest(path, verify=False) is None:
        print(f"reading {', '.join(map(paths.shown, corpora))} ...", file=sys.stderr)
        kept = keep() if limit else frozenset()
        passages = chain.from_iterable(_passages(name, limit, kept) for name in corpora)
        return PassageStore.build(path, passages, settings)
    return PassageStore.open(path)


def _passages(corpus: str, limit: int, kept: Container[str]) -> Iterable[Passage]:
    """The passages of a corpus in their order: all, or ``limit`` by hash and those ``kept``.

    A corpus that is read from the hub gives its first ``limit``: hashing ids needs all of it.
    """
    if not limit:
        return load_passages(corpus)
    if corpus in NAMES:
        return load_passages(corpus, limit)
    everything = list(load_passages(corpus))
    chosen = set(few((passage.pid for passage in everything), limit))
    return (p for p in everything if p.pid in chosen or p.pid in kept)


def corpus_table(store: PassageStore, encoder=None) -> pd.DataFrame:
    """Passages, mean and 95th percentile of characters, and licence of each corpus in the store.

    With an encoder also ``cut``, passages of which it reads only the beginning; it is missing where
    there are more than ``MOST_COUNTED`` passages.
    """
    counted = store.lengths()
    rows = {}
    for corpus in dict.fromkeys(source for source, _ in counted):
        own = [(length, n) for (source, length), n in counted.items() if source == corpus]
        lengths = np.repeat(*np.array(own).T)
        rows[corpus] = (len(lengths), lengths.mean(), np.quantile(lengths, 0.95))
    columns = ["passages", "mean_chars", "p95_chars"]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=columns).round(0).astype(int)
    if encoder is not None:
        table["cut"] = np.nan
        if len(store) <= MOST_COUNTED:
            tokens, sources = unread_tokens(store, encoder), store.sources()
            table["cut"] = [unread_summary(tokens[sources == name])["cut"] for name in table.index]
    table = table.rename_axis("corpus").reset_index()
    table["licence"] = [CORPORA[c].licence if c in CORPORA else "" for c in table["corpus"]]
    return table


def unread_tokens(store: PassageStore | PassagesInMemory, encoder: Encoder) -> np.ndarray:
    """int (n,): tokens of each passage that the encoder does not read; -1: it does not know."""
    items = Articles(store)
    starts = range(0, len(items), _COUNTED)
    return np.concatenate([encoder.unread(items[i : i + _COUNTED], "article") for i in starts])


def build_index(
    store: PassageStore,
    encoder,
    *,
    backend: str = "faiss",
    devices: Sequence[str] = (),
    dtype: str = "float32",
    progress: bool = True,
) -> DenseIndex:
    """Encode what is not yet in the cache and open the index.

    Size, time and how much of the passages is not read are printed first. Which files an index is
    of is kept, so that it opens again without a passage being read.

    The ``torch`` and ``int8`` backends search on ``devices``, or else where the encoder runs.
    """
    made_by = [store.content, encoder.fingerprints["article"], dtype]
    key = sha256_bytes(canonical_json(made_by).encode())[:16]
    plan = paths.cache("vectors") / f"index-{key}.json"
    files = _listed(plan)
    if files is None:
        blocks = passage_vectors(store, encoder, dtype=dtype, progress=progress)
        files = [Path(block.filename) for block in blocks]
        del blocks  # each holds a file open
        with suppress(OSError):  # a place that cannot be written to: read again the next time
            atomic_write(plan, canonical_json([file.name for file in files]))
    if backend != "faiss" and not devices:
        devices = getattr(encoder, "devices", ())
    return open_dense(open_vectors(files), store.ids(), backend=backend, devices=devices)


def by_codes(index: DenseIndex) -> dict[str, int]:
    """What a result depends on beside passages and encoder: how many candidates codes propose.
    Nothing for exact search, which finds the same whatever multiplies."""
    return {"candidates": index.candidates} if index.approximate else {}


def _listed(plan: Path) -> list[Path] | None:
    """The files of an index that was built before, so that no passage has to be read; None where
    one of them is not there or not whole."""
    try:
        files = [plan.with_name(name) for name in json.loads(plan.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError):  # there is none, or it is damaged: it is made again
        return None
    whole = all(read_manifest(file, verify=False) is not None for file in files)
    return files if whole and files else None


def passage_vectors(
    store: PassageStore,
    encoder,
    *,
    dtype: str = "float32",
    progress: bool = True,
    shard: tuple[int, int] = (1, 1),
) -> list[np.memmap]:
    """The vectors of a store in blocks, or those of one shard: see ``encode_cached``.

    No block spans two corpora, so that a change in one leaves the vectors of the others.
    """
    in_order = groupby(enumerate(store), key=lambda numbered: _corpus_of(numbered[1]))
    return encode_cached(
        Articles(store),
        encoder,
        "article",
        starts=[next(rows)[0] for _, rows in in_order],
        shard=shard,
        label="passages",
        dtype=dtype,
        progress=progress,
        count_unread=len(store) <= MOST_COUNTED,
    )


class Articles(Sequence):
    """Title and text of each passage of a store, read when they are asked for."""

    def __init__(self, store: PassageStore | PassagesInMemory) -> None:
        self._store, self._rows = store, range(len(store))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place):
        rows = self._rows[place]
        if isinstance(rows, int):
            return self[rows : rows + 1][0]
        return [(p.title, p.text) for p in self._store.between(rows.start, rows.stop)]


def _corpus_of(passage: Passage) -> str:
    """The corpus that a pid begins with: "medquad:CDC/1" is of "medquad"; "" for ddx-mini's. Ids of
    your own say nothing."""
    corpus, colon, _ = passage.pid.partition(":")
    if passage.source == paths.OWN:
        return paths.OWN
    return corpus if colon else ""


def only(index: DenseIndex, corpora: Sequence[str]) -> DenseIndex:
    """The index of these corpora alone; bundled passages, whose ids have no corpus, always stay."""
    ids = index.ids
    named = ids.starting_with([f"{name}:" for name in corpora])
    return index.subset(named | (np.strings.find(ids.texts, b":") < 0))


def without(index: DenseIndex, sources: Sequence[str]) -> DenseIndex:
    """The index without passages whose id begins with one of ``sources`` (a corpus or a subset)."""
    return index.subset(~index.ids.starting_with(sources))
