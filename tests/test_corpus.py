"""A corpus of your own is read, searched, saved, opened without encoding, and added to."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lib.base import paths
from lib.corpus import Corpus
from lib.embed import HashEncoder
from lib.query_spec import Hypotheses, Sparse, Text

TEXTS = [f"word{i} word{i // 7} fever" for i in range(60)]


class Counting(HashEncoder):
    """Counts the passages that it is asked to encode."""

    encoded = 0

    def encode(self, items, tower="query", progress=True):
        if tower == "article":
            self.encoded += len(items)
        return super().encode(items, tower, progress)


def jsonl(path, texts, start=0):
    rows = [{"id": f"d:{start + i}", "contents": text} for i, text in enumerate(texts)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("CHR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(paths, "DATA", tmp_path / "data")


def found(retriever) -> list:
    requests = [Hypotheses((Text("word3 word9", tower="query"),)), Sparse("word3 word9 fever")]
    return [hits.ids[0].tolist() for hits in retriever.search_many(requests, 5)]


def test_what_was_saved_is_opened_by_name_or_path_and_searched_without_encoding(tmp_path):
    corpus = Corpus.read(jsonl(tmp_path / "c.jsonl", TEXTS))
    encoder = Counting()
    want = found(corpus.retriever(encoder))
    assert encoder.encoded == 60 and want[1][0] in ("d:3", "d:9")
    saved = corpus.save("mine")
    elsewhere = corpus.save(tmp_path / "some" / "place")
    found(saved.retriever(Counting()))  # keeps the index of words
    for name in ("mine", elsewhere.folder):
        again = Counting()
        opened = Corpus.open(name)
        assert found(opened.retriever(again)) == want and len(opened) == 60
        assert again.encoded == 0
    assert (saved.folder / "bm25" / "content").exists()


def test_added_passages_are_found_and_only_the_last_shard_is_encoded_anew(tmp_path, monkeypatch):
    monkeypatch.setattr("lib.corpus._SHARD", 25)
    corpus = Corpus.read(jsonl(tmp_path / "c.jsonl", TEXTS)).save("mine")
    found(corpus.retriever(Counting()))
    encoder = Counting()
    more = corpus.add(jsonl(tmp_path / "m.jsonl", ["word3 word9"], start=60))
    one, other = found(more.retriever(encoder))
    assert one[0] == other[0] == "d:60" and encoder.encoded == 11 and len(more) == 61
    assert len(Corpus.open("mine")) == 61
    # Like a corpus that was read whole.
    whole = Corpus.read(jsonl(tmp_path / "w.jsonl", [*TEXTS, "word3 word9"]))
    assert found(whole.retriever(HashEncoder())) == [one, other]


def test_an_id_that_is_there_already_changes_nothing(tmp_path):
    corpus = Corpus.read(jsonl(tmp_path / "c.jsonl", TEXTS)).save("mine")
    with pytest.raises(ValueError, match="(?s)2 faults.*'d:58'.*'d:59'"):
        corpus.add(jsonl(tmp_path / "m.jsonl", ["a", "b", "c"], start=58))
    assert len(Corpus.open("mine")) == 60


def test_another_corpus_is_never_replaced_unasked_and_a_name_that_is_not_there_is_refused(tmp_path):
    Corpus.read(jsonl(tmp_path / "c.jsonl", TEXTS)).save("mine")
    other = Corpus.read(jsonl(tmp_path / "o.jsonl", TEXTS[:5]))
    with pytest.raises(ValueError, match="another corpus"):
        other.save("mine")
    assert len(Corpus.open("mine")) == 60
    assert len(other.save("mine", replace=True)) == 5
    for name in ("theirs", "", ".."):
        with pytest.raises(ValueError, match="no corpus|no name"):
            Corpus.open(name)


def test_ids_of_any_form_make_no_more_files_of_vectors_than_there_are_shards(tmp_path):
    corpus = Corpus.read(jsonl(tmp_path / "c.jsonl", TEXTS)).save("mine")
    corpus.retriever(HashEncoder())
    (shard,) = (corpus.folder / "vectors").glob("*.npy")
    assert np.load(shard).shape == (60, HashEncoder().dim)
