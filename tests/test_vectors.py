"""Shards: the right rows, found again, replaced when broken, the same after any number of kills."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.embed import HashEncoder
from lib.files import StaleInput, sha256_file, write_manifest
from lib.vectors import encode_cached, encode_small, open_shard
from tests.kill_embed import TEXTS, SlowHash

CHILD = Path(__file__).with_name("kill_embed.py")


class Counting(HashEncoder):
    """The hash encoder, counting the texts it was asked for."""

    def __init__(self, dim: int = 32):
        super().__init__(dim)
        self.asked = 0

    def encode(self, items, tower="query", progress=True):
        self.asked += len(items)
        return super().encode(items, tower, progress)


class Lazy:
    """The least a sequence must offer: a length, items and slices."""

    def __init__(self, n: int):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, key):
        return TEXTS[: self.n][key]


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


def test_only_slices_of_the_items_are_taken(tmp_path):
    shards = encode_cached(
        Lazy(10), Counting(), "article", cache_dir=tmp_path, shard_rows=4, progress=False
    )
    assert [len(shard) for shard in shards] == [4, 4, 2]


def test_float16_is_stored_rounded(tmp_path):
    (shard,) = encode_cached(
        TEXTS[:5], Counting(), "article", cache_dir=tmp_path, dtype="float16", progress=False
    )
    assert shard.dtype == np.float16
    assert np.array_equal(shard, HashEncoder(32).encode(TEXTS[:5]).astype(np.float16))
    with pytest.raises(ValueError, match="float32 or float16"):
        encode_cached(TEXTS[:5], Counting(), "article", cache_dir=tmp_path, dtype="int8")


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)


def cut_the_end(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def drop_the_manifest(path: Path) -> None:
    path.with_name(path.name + ".manifest.json").unlink()


def scale_a_row(path: Path) -> None:
    """Rows that are not unit length, under a manifest that fits the bytes."""
    rows = np.load(path)
    rows[1] *= 2
    np.save(path, rows)
    write_manifest(path, rows=len(rows), settings={"dim": rows.shape[1]})


def lose_a_row(path: Path) -> None:
    rows = np.load(path)
    np.save(path, rows[:-1])
    write_manifest(path, rows=len(rows), settings={"dim": rows.shape[1]})


@pytest.mark.parametrize(
    "damage", [flip_a_byte, cut_the_end, drop_the_manifest, scale_a_row, lose_a_row]
)
def test_a_broken_shard_is_deleted_with_a_message_and_encoded_again(tmp_path, damage):
    encoder, heard = Counting(), []
    options = {"cache_dir": tmp_path, "shard_rows": 4, "progress": False, "say": heard.append}
    shards = encode_cached(TEXTS[:8], encoder, "article", **options)
    before, victim = files(tmp_path), Path(shards[1].filename)
    del shards
    damage(victim)
    with pytest.raises(StaleInput, match=victim.stem):
        open_shard(victim)
    encoder.asked = 0
    encode_cached(TEXTS[:8], encoder, "article", **options)
    assert encoder.asked == 4 and files(tmp_path) == before
    assert len(heard) == 1 and victim.name in heard[0]


def test_without_verifying_only_sizes_are_compared(tmp_path):
    options = {"cache_dir": tmp_path, "progress": False, "verify": False}
    (shard,) = encode_cached(TEXTS[:4], Counting(), "article", **options)
    path = Path(shard.filename)
    encoder = Counting()
    flip_a_byte(path)
    encode_cached(TEXTS[:4], encoder, "article", **options)
    assert encoder.asked == 0
    cut_the_end(path)
    encode_cached(TEXTS[:4], encoder, "article", **options, say=lambda message: None)
    assert encoder.asked == 4


def test_vectors_that_are_not_unit_length_are_never_stored(tmp_path):
    class Broken(HashEncoder):
        def encode(self, items, tower="query", progress=True):
            return super().encode(items, tower, progress) * np.nan

    with pytest.raises(ValueError, match="texts from 0: row 0"):
        encode_cached(TEXTS[:4], Broken(), "article", cache_dir=tmp_path, progress=False)
    assert not files(tmp_path)


def test_what_is_missing_is_said_before_it_is_encoded(tmp_path):
    encoder, heard = SlowHash(1e-4), []
    options = {"cache_dir": tmp_path, "shard_rows": 300, "label": "passages", "say": heard.append}
    encode_cached(TEXTS[:300], encoder, "article", **options)
    encode_cached(TEXTS, encoder, "article", **options)
    encode_cached(TEXTS, encoder, "article", **options)
    assert heard[0] == "passages: 1 of 1 shards missing, 0.000 GB"
    assert heard[1].startswith(
        "passages: 2 of 3 shards missing, 0.000 GB, 600 texts, about 0.1 min"
    )
    assert len(heard) == 2


def test_encode_small_is_one_cached_array(tmp_path):
    encoder = Counting()
    rows = encode_small(TEXTS[:7], encoder, "query", cache_dir=tmp_path)
    assert rows.dtype == np.float32 and type(rows) is np.ndarray
    assert np.array_equal(rows, encode_small(TEXTS[:7], encoder, "query", cache_dir=tmp_path))
    assert encoder.asked == 7
    assert encode_small([], encoder, "query", cache_dir=tmp_path).shape == (0, 32)


def test_the_default_cache_is_the_projects(own_folders):
    encode_small(TEXTS[:2], Counting(), "query")
    assert list((own_folders / "cache" / "vectors").glob("*.npy"))


def kill_after(folder: Path, shards: int, seconds: float) -> None:
    """Start the child, and kill it so many seconds after it added so many shards."""
    command = [sys.executable, str(CHILD), str(folder), "0.0005"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    child.stdout.readline()
    aim = len(list(folder.glob("[0-9a-f]*.npy"))) + shards
    while child.poll() is None and len(list(folder.glob("[0-9a-f]*.npy"))) < aim:
        time.sleep(0.001)
    time.sleep(seconds)
    child.kill()
    child.stdout.close()
    assert child.wait() == -signal.SIGKILL, "the child ended before it was killed"


def test_a_run_killed_at_any_moment_ends_with_the_same_files(tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for folder in (whole, broken):
        folder.mkdir()
    encode_cached(TEXTS, SlowHash(0), "article", cache_dir=whole, shard_rows=4, progress=False)
    moments = random.Random(7)
    for _ in range(22):
        kill_after(broken, moments.randrange(4), moments.uniform(0, 0.02))
    left = set(files(whole)) - set(files(broken))
    assert left, "every kill must interrupt"
    encode_cached(TEXTS, SlowHash(0), "article", cache_dir=broken, shard_rows=4, progress=False)
    assert files(broken) == files(whole)
