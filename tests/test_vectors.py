"""Shards: the right rows, found again, replaced when broken, the same after any number of kills."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.base.files import read_manifest, sha256_file
from lib.embed import HashEncoder
from lib.search.vectors import encode_cached, encode_small
from tests.killed import TEXTS, SlowHash, interrupted, killed


class Counting(HashEncoder):
    """The hash encoder, counting the texts it was asked for."""

    def __init__(self, dim: int = 32):
        super().__init__(dim)
        self.asked = 0

    def encode(self, items, tower="query", progress=True):
        self.asked += len(items)
        return super().encode(items, tower, progress)


def files(folder: Path) -> dict[str, str]:
    return {p.name: sha256_file(p) for p in sorted(folder.iterdir()) if not p.name.startswith(".")}


@given(n=st.integers(0, 40), shard_rows=st.integers(1, 45))
@settings(max_examples=25, deadline=None)
def test_shards_together_are_what_the_encoder_gives(tmp_path_factory, n, shard_rows):
    folder, encoder = tmp_path_factory.mktemp("cache"), Counting()
    items = [("a title", text) for text in TEXTS[:n]]
    shards = encode_cached(
        items, encoder, "article", cache_dir=folder, shard_rows=shard_rows, progress=False
    )
    assert all(isinstance(shard, np.memmap) and len(shard) <= shard_rows for shard in shards)
    together = np.concatenate([np.zeros((0, 32), np.float32), *shards])
    assert np.array_equal(together, encoder.encode(items, "article"))
    encoder.asked = 0
    encode_cached(
        items, encoder, "article", cache_dir=folder, shard_rows=shard_rows, progress=False
    )
    assert encoder.asked == 0


def test_anything_that_moves_a_number_makes_another_file(tmp_path):
    def names(items, encoder, tower, **options):
        shards = encode_cached(items, encoder, tower, cache_dir=tmp_path, progress=False, **options)
        return [Path(s.filename).name for s in shards]

    base = names(TEXTS[:8], HashEncoder(32), "article")
    assert base == names(tuple(TEXTS[:8]), HashEncoder(32), "article")
    others = [
        names(TEXTS[:8][::-1], HashEncoder(32), "article"),
        names([("title", t) for t in TEXTS[:8]], HashEncoder(32), "article"),
        names(TEXTS[:8], HashEncoder(64), "article"),
        names(TEXTS[:8], HashEncoder(32), "query"),
        names(TEXTS[:8], HashEncoder(32), "article", dtype="float16"),
    ]
    assert len({str(n) for n in [base, *others]}) == 6


def test_equal_blocks_share_a_file_and_keep_their_places(tmp_path):
    items = [*TEXTS[:3], *TEXTS[3:6], *TEXTS[:3]]
    shards = encode_cached(
        items, Counting(), "article", cache_dir=tmp_path, shard_rows=3, progress=False
    )
    assert shards[0].filename == shards[2].filename != shards[1].filename
    assert np.array_equal(np.concatenate(shards), HashEncoder(32).encode(items))


def test_float16_is_stored_rounded(tmp_path):
    (shard,) = encode_cached(
        TEXTS[:5], Counting(), "article", cache_dir=tmp_path, dtype="float16", progress=False
    )
    assert shard.dtype == np.float16
    assert np.array_equal(shard, HashEncoder(32).encode(TEXTS[:5]).astype(np.float16))
    with pytest.raises(ValueError, match="float32 or float16"):
        encode_cached(TEXTS[:5], Counting(), "article", cache_dir=tmp_path, dtype="int8")


@pytest.mark.parametrize("left", ["no manifest", "half a file"])
def test_an_unfinished_shard_is_encoded_again(tmp_path, left):
    encoder = Counting()
    options = {"cache_dir": tmp_path, "shard_rows": 4, "progress": False}
    victim = Path(encode_cached(TEXTS[:8], encoder, "article", **options)[1].filename)
    before = files(tmp_path)
    if left == "no manifest":
        victim.with_name(f"{victim.name}.manifest.json").unlink()
    else:
        victim.write_bytes(victim.read_bytes()[:-10])
    encoder.asked = 0
    encode_cached(TEXTS[:8], encoder, "article", **options)
    assert encoder.asked == 4 and files(tmp_path) == before


class Own(HashEncoder):
    """A reader's own encoder, whose vectors come out changed."""

    def __init__(self, change):
        super().__init__(8)
        self.change = change

    def encode(self, items, tower="query", progress=True):
        return self.change(super().encode(items, tower, progress))


@pytest.mark.fault(
    "numbers",
    "An encoder gives NaN, too few rows, or vectors not of length 1",
    "the encoder, and the row or the shape",
)
@pytest.mark.parametrize("encode", [encode_small, encode_cached])
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda rows: rows * np.nan, "texts: row 0 is not of length 1"),
        (lambda rows: rows * np.float32([[1], [1], [0], [1]]), "texts: row 2 is not of length 1"),
        (lambda rows: rows * np.float32(2), "texts: row 0 is not of length 1"),
        (lambda rows: (rows * 127).astype(np.int8), "texts: row 0 is not of length 1"),
        (lambda rows: rows[:-1], r"the shape \(3, 8\), not \(4, 8\)"),
        (lambda rows: rows[:, :5], r"the shape \(4, 5\), not \(4, 8\)"),
        (lambda rows: rows[0], r"the shape \(8,\), not \(4, 8\)"),
    ],
)
def test_what_is_no_vector_of_length_1_is_never_stored(encode, change, says, tmp_path):
    for _ in range(2):  # a second time it is not read back from the cache
        with pytest.raises(ValueError, match=f"hash on .*{says}"):
            encode(TEXTS[:4], Own(change), "article", cache_dir=tmp_path)
    assert not list(tmp_path.glob("*.npy"))


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.astype(np.float64),
        lambda rows: rows.astype(">f4"),
        lambda rows: rows.tolist(),
        lambda rows: np.asfortranarray(rows),
    ],
)
def test_vectors_of_another_type_come_back_as_they_are(change, tmp_path):
    """In float64 a row has twice the bytes: read back as float32, it would be other numbers."""
    told = HashEncoder(8).encode(TEXTS[:4])
    for _ in range(2):
        rows = encode_small(TEXTS[:4], Own(change), "article", cache_dir=tmp_path)
        assert rows.dtype == np.float32 and np.array_equal(rows, told)


def test_what_is_missing_is_said_before_it_is_encoded(tmp_path, capsys):
    options = {"cache_dir": tmp_path, "shard_rows": 300, "label": "passages"}
    for some in (TEXTS[:300], TEXTS, TEXTS):
        encode_cached(some, SlowHash(1e-4), "article", **options)
    out, err = capsys.readouterr()
    heard = [line for line in err.splitlines() if "missing" in line]
    assert heard == [
        "passages: 1 of 1 shards missing, 0.000 GB",
        "passages: 2 of 3 shards missing, 0.000 GB, 600 texts, about 0.1 min",
    ]
    assert out == ""


def test_another_selection_of_known_texts_is_not_encoded_again(tmp_path):
    encoder = Counting()
    first = encode_small(TEXTS[:7], encoder, "query", cache_dir=tmp_path)
    again = encode_small([TEXTS[5], TEXTS[2], TEXTS[5]], encoder, "query", cache_dir=tmp_path)
    assert encoder.asked == 7 and np.array_equal(again, first[[5, 2, 5]])
    encode_small(TEXTS[5:9], encoder, "query", cache_dir=tmp_path)
    assert encoder.asked == 9
    encode_small(TEXTS[:2], encoder, "article", cache_dir=tmp_path)  # another tower, other vectors
    assert encoder.asked == 11


@pytest.mark.fault("numbers", "A run that embeds is killed")
def test_a_run_killed_at_any_moment_ends_with_the_same_files(fault, tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    killed("embed", whole, 0)
    hit = killed("embed", broken, 12)["hit"]
    right, found = files(whole), files(broken)
    lost = len(right.keys() - found.keys())
    wrong = sum(right.get(name) != digest for name, digest in found.items())
    fault.came(tries=hit, lost=lost, wrong=wrong, said="nothing: the next run goes on")


INTERRUPTED = """
import sys
from pathlib import Path
import lib.base  # as every command does; it sets up how one ends
from tests.killed import TEXTS, SlowHash, encode_cached
print("started", flush=True)
encode_cached(TEXTS, SlowHash(0.001), "article", cache_dir=Path(sys.argv[1]), shard_rows=8)
"""


@pytest.mark.fault("waiting", "Ctrl-C at a random moment of embedding")
def test_ctrl_c_ends_an_embedding_within_seconds_and_keeps_every_shard(fault, tmp_path):
    moments, kept = random.Random(3), set()
    for _ in fault.tries(20):
        ended = interrupted(INTERRUPTED, tmp_path, moments.uniform(0, 0.35))
        # Once all is made, Python has no handler any more, and the signal ends the process itself.
        assert ended.status in (0, 130, -signal.SIGINT) and "Traceback" not in ended.said
        whole = {path.name for path in tmp_path.glob("*.npy") if read_manifest(path)}
        said = ended.said.rpartition("]")[2]
        fault.came(lost=len(kept - whole), wrong=ended.seconds > 10, said=said)
        kept = whole
    assert len(kept) > 3, "some were made before"
