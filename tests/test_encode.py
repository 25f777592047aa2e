"""The passages of a profile, encoded by several processes: the same files as by one."""

from __future__ import annotations

import importlib.util
import json

import pytest

from lib.base.files import sha256_file
from lib.embed import HashEncoder
from lib.encode import encode_profile, main, on_ray, parts_of, read_shard
from lib.index_build import build_index, corpus_store
from lib.profiles import load_profile
from lib.search.vectors import BLOCK_ROWS


@pytest.fixture
def profile(tmp_path):
    """A profile of your own whose passages are two files of vectors."""
    words = ["fever", "pain", "heart", "kidney", "drug"]
    rows = BLOCK_ROWS + 3000
    lines = (json.dumps({"id": f"p{i}", "text": words[i % 5]}) for i in range(rows))
    (tmp_path / "c.jsonl").write_text("\n".join(lines))
    text = 'base = "mini"\ncorpora = ["c.jsonl"]\nencoder = "hash"\nencoder_options = {dim = 4}\n'
    (tmp_path / "mine.toml").write_text(text)
    return tmp_path / "mine.toml"


def vectors(cache) -> dict[str, str]:
    return {path.name: sha256_file(path) for path in (cache / "vectors").glob("[!.]*")}


def test_shards_make_what_one_process_makes_and_it_is_found(profile, tmp_path, monkeypatch, capsys):
    caches = [tmp_path / name for name in ("alone", "shards")]
    monkeypatch.setenv("CHR_CACHE", str(caches[0]))
    main([str(profile)])
    assert "shard 1/1: 68,536 of 68,536 passages are encoded" in capsys.readouterr().out
    monkeypatch.setenv("CHR_CACHE", str(caches[1]))
    main([str(profile), "--shard", "2/2"])
    assert "shard 2/2: 3,000 of 68,536" in capsys.readouterr().out
    assert len(list((caches[1] / "vectors").glob("[!.]*.npy"))) == 1
    main([str(profile), "--shard", "1/2"])
    alone, shards = map(vectors, caches)
    assert len(alone) == 4 and shards == alone

    class Never(HashEncoder):
        def encode(self, *_, **__):
            raise AssertionError("it is all there")

    store = corpus_store(load_profile(str(profile)).corpora)
    assert len(build_index(store, Never(4), progress=False)) == BLOCK_ROWS + 3000


def test_the_parts_of_a_shard_are_the_shard():
    blocks = list(range(100))
    for shard in ((1, 1), (2, 3), (3, 3)):
        parts = [blocks[place - 1 :: count] for place, count in parts_of(shard, 4)]
        assert sorted(sum(parts, [])) == blocks[shard[0] - 1 :: shard[1]]
    for wrong in ("0/2", "3/2", "1", "a/b", "1/", "-1/2"):
        with pytest.raises(ValueError, match="--shard is i/n"):
            read_shard(wrong)


def test_ray_that_is_missing_is_refused_with_what_to_do(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install ray"):
        on_ray("mini", (1, 1))


def test_actors_of_ray_make_the_same_files(profile, tmp_path, monkeypatch):
    pytest.importorskip("ray")
    for name, encode in (("alone", encode_profile), ("ray", None)):
        monkeypatch.setenv("CHR_CACHE", str(tmp_path / name))
        if encode:
            encode(load_profile(str(profile)))
        else:
            on_ray(str(profile), (1, 1))
    assert vectors(tmp_path / "ray") == vectors(tmp_path / "alone")
