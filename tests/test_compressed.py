"""The compressed index: what its codes miss is measured, all that it finds is scored exactly."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import faiss
import numpy as np
import pytest

from lib.base.files import write_manifest
from lib.base.paths import say_once
from lib.search import choose, compressed, scoring, whitening
from lib.search.candidates import multiplies_int8
from lib.search.compressed import CompressedIndex
from lib.search.contrast import shifted_query
from lib.search.index import DenseIndex

N, DIM = 4_000, 64


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def clustered(n, seed):
    """Vectors with near neighbours in a few strong directions, as those of texts."""
    generator = np.random.default_rng(seed)
    centres = np.random.default_rng(0).normal(size=(200, DIM)) / np.sqrt(1 + np.arange(DIM))
    return unit(centres[generator.integers(200, size=n)] + 0.15 * generator.normal(size=(n, DIM)))


ROWS = clustered(N, 1)
IDS = [f"p{i:05d}" for i in np.random.default_rng(2).permutation(N)]
PLUS = clustered(60, 3)
NEAREST = ROWS[np.argsort(-(PLUS @ ROWS.T), axis=1)[:, 20]]
"""A mimic each: a passage near to H+, whose subtraction leaves the passages' distribution."""
SHIFTED = {lam: shifted_query(PLUS, NEAREST, lam) for lam in (0.0, 0.4, 1.0)}
LEAST = {0.0: 0.97, 0.4: 0.97, 1.0: 0.9}
"""The recall that 200 candidates of these 4,000 must have. At lambda 1 what is left of a mimic
with a median cosine of 0.6 is mostly this corpus' noise, and codes of 8 bytes miss more of it."""
SHARDS = [ROWS[:1500], ROWS[1500:1501], ROWS[1501:]]


@pytest.fixture(scope="module")
def index():
    return CompressedIndex(SHARDS, IDS, candidates=200)


@pytest.fixture(scope="module")
def exact():
    return DenseIndex(SHARDS, IDS)


def mapped(folder, rows=ROWS):
    """The vectors as memory-mapped files of 16-bit numbers."""
    for i, shard in enumerate(np.split(rows.astype(np.float16), [1500])):
        np.save(folder / f"{i}.npy", shard)
    return [np.load(folder / f"{i}.npy", mmap_mode="r") for i in range(2)]


def codes_in(folder):
    (file,) = folder.glob("*.pq4")
    return file


# searching ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("lam", SHIFTED)
def test_shifted_queries_find_what_brute_force_does_and_score_it_the_same(index, exact, lam):
    queries = SHIFTED[lam]
    found, wanted = index.search(queries, 5), exact.search(queries, 5)
    everything = exact.search(queries, N)
    shares = []
    for i in range(len(queries)):
        shares.append(np.isin(wanted.rows[i], found.rows[i]).mean())
        kept = np.isin(everything.rows[i], found.rows[i])
        assert found.ids[i].tolist() == everything.ids[i][kept].tolist()
        assert found.scores[i].tolist() == everything.scores[i][kept].tolist()
    assert np.mean(shares) >= LEAST[lam]
    assert index.recall(queries, 5) == pytest.approx(np.mean(shares))


def test_fewer_candidates_miss_more_and_recall_says_so():
    few = CompressedIndex(SHARDS, IDS, candidates=6)
    recall = [few.recall(SHIFTED[lam], 5) for lam in (0.0, 1.0)]
    assert 0.2 < recall[1] < 0.95 and few.approximate


def test_a_subset_finds_only_what_it_keeps_deeper_or_exactly(index, exact):
    for share in (2, 150):  # 2,000 of 4,000 passages among candidates; 27 are all scored
        keep = np.arange(N) % share == 0
        found = index.subset(keep).search(SHIFTED[1.0], 5)
        wanted = exact.subset(keep).search(SHIFTED[1.0], 5)
        assert keep[found.rows].all() and found.ids.shape == (60, 5)
        assert np.mean(np.sort(found.rows) == np.sort(wanted.rows)) >= 0.97
    assert found.ids.tolist() == wanted.ids.tolist()
    # Kept are those that these queries would find last: all candidates of the first list go.
    last = np.ones(N, dtype=bool)
    last[exact.search(SHIFTED[1.0], 700).rows[0]] = False
    whole = CompressedIndex(SHARDS, IDS, candidates=100)
    view = whole.subset(last)
    assert (last[view.search(SHIFTED[1.0], 5).rows]).all()
    assert view.recall(SHIFTED[1.0], 5) > whole.recall(SHIFTED[1.0], 5) - 0.05


def test_more_than_the_candidates_can_be_asked_for(index, exact):
    hits = index.search(SHIFTED[0.4], 300)
    assert hits.ids.shape == (60, 300) and len(set(hits.ids[0])) == 300
    everything = index.search(SHIFTED[0.4], 2 * N)
    assert everything.ids.tolist() == exact.search(SHIFTED[0.4], N).ids.tolist()


def test_codes_in_parts_for_several_cores_propose_what_they_do_in_one(index, monkeypatch):
    monkeypatch.setattr(compressed, "_PART", 512)
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(3)
    try:
        parted = CompressedIndex(SHARDS, IDS, candidates=200)
    finally:
        faiss.omp_set_num_threads(threads)
    keep = np.arange(N) % 2 == 0
    for some in (SHIFTED[1.0][:1], SHIFTED[1.0]):  # a thread a part, and one after the other
        for views in ((index, parted), (index.subset(keep), parted.subset(keep))):
            one, several = (list(view._proposed(some, 200)) for view in views)
            for rows, others in zip(one, several, strict=True):
                # Of equal codes at the end of a list, another may come first.
                assert len(others) == 200 and np.isin(rows, others).mean() > 0.97
            found, wanted = (view.search(some, 5).ids.tolist() for view in views)
            assert found == wanted


def test_what_cannot_be_searched_is_refused(index):
    with pytest.raises(ValueError, match="query row 1 "):
        index.search(np.stack([PLUS[0], 0 * PLUS[0]]), 2)
    assert index.search(np.zeros((0, DIM)), 2).ids.shape == (0, 2)
    with pytest.raises(ValueError, match="multiple of 4"):
        CompressedIndex([ROWS[:, :33]], IDS)
    with pytest.raises(ValueError, match="candidates"):
        CompressedIndex(SHARDS, IDS, candidates=0)


def test_few_passages_and_odd_numbers_of_groups():
    for n, dim in ((1, 4), (20, 12), (70, 20)):
        rows = unit(np.random.default_rng(n).normal(size=(n, dim)))
        ids = [f"{i:02d}" for i in range(n)]
        hits = CompressedIndex([rows], ids, candidates=1).search(rows, 1)
        assert hits.ids.shape == (n, 1) and (hits.ids[:, 0] == ids).mean() > 0.5


def test_scores_of_every_passage_are_refused_and_forms_take_their_candidates(index, exact, capsys):
    vectors = np.stack([PLUS, 2 * PLUS - NEAREST], axis=1)
    offsets = np.zeros((60, 2))
    say_once.cache_clear()
    found = scoring.search_forms(index, vectors, offsets, 5)
    wanted = scoring.search_forms(exact, vectors, offsets, 5)
    assert np.mean([np.isin(a, b).mean() for a, b in zip(wanted.ids, found.ids, strict=True)]) > 0.9
    assert "candidates" in capsys.readouterr().err
    penalty = np.zeros(N)
    space = whitening.centred(whitening.moments(index))
    for refused in (
        lambda: scoring.search_scored(index, vectors, scoring.log_sum_exp(1.0, 0.1), 5),
        lambda: scoring.hubness(index, PLUS),
        lambda: scoring.search_with_penalty(index, PLUS, penalty, 0.5, 5),
        lambda: whitening.transformed(index, space),
    ):
        with pytest.raises(ValueError, match='compressed.*backend = "torch"'):
            refused()


def test_where_so_few_can_be_found_that_all_are_scored_every_score_is_exact(index, exact):
    """As many as ten times the candidates are; one more, and nothing says that none is missed."""
    vectors = np.stack([PLUS, NEAREST], axis=1)
    few = CompressedIndex(SHARDS, IDS, candidates=N // 10)
    assert not few.approximate
    assert CompressedIndex(SHARDS, IDS, candidates=N // 10 - 1).approximate
    assert index.approximate and not index.subset(np.arange(N) < 2000).approximate
    penalty = scoring.hubness(exact, PLUS)
    for search in (
        lambda on: scoring.search_scored(on, vectors, scoring.log_sum_exp(1.0, 0.1), 5),
        lambda on: scoring.search_with_penalty(on, PLUS, penalty, 0.5, 5),
        lambda on: scoring.search_forms(on, vectors, np.zeros((60, 2)), 5),
        lambda on: whitening.transformed(on, whitening.centred(whitening.moments(on))).search(
            PLUS, 5
        ),
    ):
        assert search(few).ids.tolist() == search(exact).ids.tolist()
    assert scoring.hubness(few, PLUS).tolist() == penalty.tolist()


# the file of codes -------------------------------------------------------------------------------


def test_codes_of_mapped_vectors_are_made_once(tmp_path, monkeypatch):
    first = CompressedIndex(mapped(tmp_path), IDS, candidates=200).search(SHIFTED[1.0], 5)
    assert codes_in(tmp_path).stat().st_size == 4 * 16 * DIM + N * DIM // 8
    with monkeypatch.context() as patched:
        patched.setattr(CompressedIndex, "vectors", lambda *_: pytest.fail("coded again"))
        again = CompressedIndex(mapped_again(tmp_path), IDS, candidates=200)
    assert again.search(SHIFTED[1.0], 5).ids.tolist() == first.ids.tolist()


def mapped_again(folder):
    return [np.load(folder / f"{i}.npy", mmap_mode="r") for i in range(2)]


def test_a_build_that_was_stopped_goes_on_and_gives_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(compressed, "_BLOCK", 1024)
    shards = mapped(tmp_path)
    read, asked = CompressedIndex._rows, []

    def stopped(self, start, stop):
        asked.append(start)
        if start == 2048:
            raise KeyboardInterrupt
        return read(self, start, stop)

    with monkeypatch.context() as patched:
        patched.setattr(CompressedIndex, "_rows", stopped)
        with pytest.raises(KeyboardInterrupt):
            CompressedIndex(shards, IDS)
    assert not list(tmp_path.glob("*.pq4"))
    (part,) = tmp_path.glob("*.part")
    with open(part, "ab") as stream:
        stream.write(b"torn")
    asked.clear()
    with monkeypatch.context() as patched:
        patched.setattr(
            CompressedIndex, "_rows", lambda self, *rows: asked.append(rows[0]) or read(self, *rows)
        )
        CompressedIndex(shards, IDS)
    assert asked == [2048, 3072] and not list(tmp_path.glob("*.part"))
    resumed = codes_in(tmp_path)
    whole = resumed.read_bytes()
    resumed.unlink()
    CompressedIndex(shards, IDS)
    assert codes_in(tmp_path).read_bytes() == whole


@pytest.mark.parametrize("damage", ["cut", "changed", "no manifest"])
def test_damaged_codes_are_made_again(tmp_path, damage):
    shards = mapped(tmp_path)
    CompressedIndex(shards, IDS)
    file = codes_in(tmp_path)
    sound = file.read_bytes()
    if damage == "no manifest":
        file.with_name(file.name + ".manifest.json").unlink()
    else:
        file.write_bytes(sound[:-1] if damage == "cut" else bytes([sound[0] ^ 1]) + sound[1:])
    CompressedIndex(shards, IDS)
    assert file.read_bytes() == sound


def test_other_vectors_in_a_file_of_the_same_name_get_codes_of_their_own(tmp_path):
    CompressedIndex(mapped(tmp_path), IDS)
    other = clustered(N, 9)
    index = CompressedIndex(mapped(tmp_path, other), IDS, candidates=200)
    assert index.recall(SHIFTED[1.0], 5) > 0.9 and len(list(tmp_path.glob("*.pq4"))) == 2


def test_codes_go_with_a_store_that_is_copied(tmp_path, monkeypatch):
    """A copy's files have other times of change: what they hold is in their manifests."""
    here, copy = tmp_path / "here", tmp_path / "copy"
    here.mkdir()
    for shard in mapped(here):
        write_manifest(Path(shard.filename), rows=len(shard), settings={})
    vectors = [here / "0.npy", here / "1.npy"]
    CompressedIndex([np.load(file, mmap_mode="r") for file in vectors], IDS)
    shutil.copytree(here, copy)
    for file in copy.iterdir():
        os.utime(file, (0, 0))
    monkeypatch.setattr(CompressedIndex, "_write", pytest.fail)
    CompressedIndex([np.load(copy / file.name, mmap_mode="r") for file in vectors], IDS)
    assert codes_in(copy).name == codes_in(here).name


# which index -------------------------------------------------------------------------------------


def test_codes_of_few_passages_are_not_made_and_that_is_said(monkeypatch, capsys):
    monkeypatch.setattr(choose, "say_once", lambda line: print(line, file=sys.stderr))
    assert choose.open_dense(SHARDS, IDS, backend="compressed").backend == "torch"
    assert "index: torch (exact" in capsys.readouterr().err
    assert choose.memory_of("compressed", N, DIM, "float32")[0] == "torch"


def test_every_backend_opens_by_its_name(monkeypatch):
    monkeypatch.setattr(choose, "SMALL", N - 1)
    for name in choose.NAMES:
        if name == "int8" and not multiplies_int8("cpu"):
            continue
        opened = choose.open_dense(SHARDS, IDS, backend=name)
        assert not opened.approximate  # so few are searched exactly, by codes too
        assert opened.search(PLUS, 1).ids.shape == (60, 1)
    with pytest.raises(ValueError, match="anoy.*compressed"):
        choose.open_dense(SHARDS, IDS, backend="anoy")


def test_auto_takes_what_fits_and_says_what_why_how_long_and_how_large(monkeypatch, capsys):
    gib = 2**30
    monkeypatch.setattr(choose, "multiplies_int8", lambda device: True)
    assert choose.fitting(70_000, 384, 24 * gib)[0] == "int8"
    assert choose.fitting(5_800_000, 768, 24 * gib)[0] == "compressed"
    assert choose.fitting(70_000, 384, gib // 64)[0] == "compressed"
    assert choose.fitting(5_800_000, 768, 24 * gib, card_memory=80 * gib)[0] == "torch"
    monkeypatch.setattr(choose, "multiplies_int8", lambda device: False)
    name, line = choose.fitting(70_000, 384, 24 * gib)
    assert name == "torch" and "exact" in line and "0.11 GB" in line and "ms a search" in line
    name, line = choose.fitting(54_200_000, 768, 64 * gib)
    assert name == "compressed" and "approximate" in line and "5.20 GB" in line
    choose.open_dense(SHARDS, IDS, backend="auto")
    assert "index: torch (exact" in capsys.readouterr().err
