"""A corpus of your own is read, searched, saved, opened without encoding, and added to."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lib.base import paths
from lib.corpus import Corpus, contrast
from lib.embed import HashEncoder, load_encoder
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
    assert (saved.folder / "bm25" / "scores").exists()


def test_added_passages_are_found_and_they_alone_are_encoded(tmp_path):
    corpus = Corpus.read(jsonl(tmp_path / "c.jsonl", TEXTS)).save("mine")
    found(corpus.retriever(Counting()))
    encoder = Counting()
    more = corpus.add(jsonl(tmp_path / "m.jsonl", ["word3 word9"], start=60))
    one, other = found(more.retriever(encoder))
    assert one[0] == other[0] == "d:60" and encoder.encoded == 1 and len(more) == 61
    assert len(Corpus.open("mine")) == 61
    # Like a corpus that was read whole.
    whole = Corpus.read(jsonl(tmp_path / "w.jsonl", [*TEXTS, "word3 word9"]))
    assert found(whole.retriever(HashEncoder())) == [one, other]
    moved, encoder = Corpus.open("mine").save(tmp_path / "moved"), Counting()
    assert found(moved.add(jsonl(tmp_path / "n.jsonl", ["x"], start=61)).retriever(encoder))
    assert encoder.encoded == 1


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


# passages longer than the window ------------------------------------------------------------------

FACT = "Zanzibarine calms the hippocampus within a minute."
LONG = " ".join(f"Sentence {i} is about the {i % 7}th cranial nerve." for i in range(40))


@pytest.fixture(scope="module")
def minilm():
    return load_encoder("minilm", device="cpu")


def test_what_stands_at_the_end_of_a_long_passage_is_found_once_it_is_cut(tmp_path, minilm, capsys):
    texts = [f"{LONG} {FACT}", LONG, "A short note about urate."]
    file = jsonl(tmp_path / "c.jsonl", texts)
    asked = Hypotheses((Text(FACT, tower="query"),))
    whole = Corpus.read(file, encoder=minilm)
    said = capsys.readouterr().err
    assert "minilm reads only the beginning of 2 of 3 passages (66.7%)" in said
    assert "at most" in said and "cut=256" in said
    cut = Corpus.read(file, encoder=minilm, cut=128, overlap=16)
    said = capsys.readouterr().err
    assert f"minilm reads all {len(cut)} passages whole" in said
    (hits,) = cut.retriever(minilm, progress=False).search_many([asked], 1)
    assert capsys.readouterr().err == "", "it was said before"
    best = cut.store.get(hits.ids[0][0])
    assert FACT in best.text and best.pid.startswith("d:0#") and best.meta["whole"] == "d:0"
    (plain,) = whole.retriever(minilm, progress=False).search_many([asked], 1)
    assert plain.scores[0][0] < hits.scores[0][0] - 0.3
    kept = [passage.pid for passage in cut.store if "#" not in passage.pid]
    assert kept == ["d:2"] and len({passage.pid for passage in cut.store}) == len(cut)


def test_pieces_keep_their_title_and_are_saved_and_added_to(tmp_path, minilm):
    rows = [{"id": "a", "title": "Nerves", "text": LONG}, {"id": "b", "text": "Urate."}]
    (tmp_path / "c.jsonl").write_text("\n".join(map(json.dumps, rows)))
    corpus = Corpus.read(tmp_path / "c.jsonl", encoder=minilm, cut=200).save("mine")
    assert "".join(p.text for p in corpus.store if p.pid != "b") == LONG
    pids = [passage.pid for passage in corpus.store]
    assert pids == [*(f"a#{i}" for i in range(1, len(pids))), "b"]
    assert {p.title for p in corpus.store} == {"Nerves", ""}
    more = corpus.add(jsonl(tmp_path / "m.jsonl", [LONG]), encoder=minilm, cut=200)
    assert len(more) > len(pids) + 1 and more.store.get("d:0#1").meta["whole"] == "d:0"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"cut": 256}, "no encoder counts tokens.*encoder=load_encoder"),
        ({"cut": 256, "encoder": HashEncoder()}, "hash counts tokens|hash"),
        ({"cut": 257, "encoder": "minilm"}, "reads 256 tokens, not 257"),
        ({"cut": 128, "overlap": -1, "encoder": "minilm"}, "overlap of -1"),
    ],
)
def test_a_cut_that_cannot_be_made_is_refused(options, says, tmp_path, minilm):
    file = jsonl(tmp_path / "c.jsonl", [LONG])
    if options.get("encoder") == "minilm":
        options = options | {"encoder": minilm}
    with pytest.raises(ValueError, match=says):
        Corpus.read(file, **options)


def test_a_piece_never_takes_the_id_of_another_passage(tmp_path, minilm):
    rows = [{"id": "a", "contents": LONG}, {"id": "a#2", "contents": "Urate."}]
    (tmp_path / "c.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(ValueError, match="'a#2' is the id of a piece"):
        Corpus.read(tmp_path / "c.jsonl", encoder=minilm, cut=128)


def test_an_encoder_that_does_not_know_what_it_reads_says_so(tmp_path, capsys):
    class Unknowing(HashEncoder):
        def unread(self, items, tower="article"):
            return np.full(len(items), -1)

    Corpus.read(jsonl(tmp_path / "c.jsonl", TEXTS), encoder=Unknowing())
    assert "does not say how much it reads" in capsys.readouterr().err


class Lengths(HashEncoder):
    """The words' vectors, as long as a text says: not of length 1."""

    def encode(self, items, tower="query", progress=True):
        rows = super().encode(items, tower, progress)
        texts = [item if isinstance(item, str) else item[1] for item in items]
        lengths = [5 + 3 * len(text) % 23 for text in texts]
        return rows * np.array(lengths, dtype=np.float32)[:, None]


@pytest.mark.parametrize("metric", ["dot", "l2"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("backend", ["faiss", "compressed"])
def test_an_encoders_own_metric_decides_what_is_near(metric, dtype, backend, tmp_path):
    """Contriever's inner product and SPECTER's distance, by brute force."""
    encoder = Lengths(32)
    encoder.metric = metric
    random = np.random.default_rng(0)
    texts = [" ".join(f"w{i}" for i in random.integers(30, size=n % 9 + 3)) for n in range(80)]
    corpus = Corpus.read(jsonl(tmp_path / "c.jsonl", texts))
    retriever = corpus.retriever(encoder, dtype=dtype, backend=backend, progress=False)
    stored = encoder.encode(texts, "article").astype(dtype).astype(np.float64)

    def nearness(text):
        query = encoder.encode([text])[0].astype(np.float64)
        if metric == "dot":
            return stored @ query
        return -np.square(stored - query).sum(axis=1) / 2

    def check(request, near):
        (hits,) = retriever.search_many([request], 8)
        ranked = near[[int(pid.removeprefix("d:")) for pid in hits.ids[0]]]
        assert np.allclose(ranked, np.sort(near)[::-1][:8], rtol=2e-3, atol=0.05)

    for question in ("w1 w2 w3", "w4 w9", "w20 w21 w22 w23 w1"):
        check(Hypotheses((Text(question, tower="query"),)), nearness(question))
        # Contrast: the nearness to H+ less lambda times that to H-, in each metric.
        near = nearness(question) - 0.6 * nearness("w5 w6 w7")
        check(contrast(question, "w5 w6 w7", 0.6), near)
        stored_passage = Hypotheses((Text(pid="d:7"),))
        check(stored_passage, stored @ stored[7] if metric == "dot" else nearness(texts[7]))
