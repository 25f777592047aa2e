"""Runs on file: what is replayed is what was found, and nothing else is ever made up."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from lib import run_files
from lib.base.files import read_manifest
from lib.data.passages import Passage
from lib.data.store import PassageStore
from lib.embed import HashEncoder
from lib.query_spec import Fusion, Hypotheses, SearchSpec, Sparse, Text
from lib.run import Retriever
from lib.search.bm25 import BM25Index
from lib.search.index import DenseIndex
from lib.search.lambda_path import search_path

TEXTS = [f"passage {name} on {topic}" for name in "abcdefgh" for topic in ("gout", "sepsis")]


@pytest.fixture
def store(tmp_path) -> PassageStore:
    passages = [Passage(f"p{i:02d}", "", text, "s", {}) for i, text in enumerate(TEXTS)]
    return PassageStore.build(tmp_path / "store.sqlite", passages, {})


@pytest.fixture
def retriever(store, tmp_path, monkeypatch) -> Retriever:
    monkeypatch.setenv("CHR_CACHE", str(tmp_path / "cache"))
    encoder = HashEncoder()
    vectors = encoder.encode([("", text) for text in TEXTS], "article")
    words = BM25Index.build(TEXTS, store.ids())
    return Retriever(DenseIndex([vectors], store.ids()), encoder, store, words)


def hypotheses(plus: str, minus: str, qid: str = "q", **spec) -> Hypotheses:
    texts = (Text(plus, role="target"), Text(minus, role="mimic"))
    return Hypotheses(texts, SearchSpec(**spec), qid=qid)


CONTRAST = hypotheses("passage e on gout", "passage b on sepsis", lam=0.4)
REQUESTS = [
    CONTRAST,
    CONTRAST.by(lam=1.0),
    Sparse("passage c on sepsis"),
    Fusion((CONTRAST, Sparse("passage c")), depth=4),
    hypotheses("passage e on gout", "passage e on gout", lam=1.0),  # no direction is left
]


def lists(found) -> list:
    return [f if isinstance(f, str) else (f.ids[0].tolist(), f.scores[0].tolist()) for f in found]


def recorded(retriever, path, requests=REQUESTS, k=5) -> list:
    with run_files.using(run_files.RunFile()) as file:
        found = lists(retriever.search_many(requests, k))
    file.write(path, {"study": "made up"})
    return found


def replayed(store, path, requests, k=5, encoder=None) -> list:
    encoder = encoder or HashEncoder()
    with run_files.using(run_files.RunFile.read(path)):
        place = Retriever(run_files.TextIndex(store, encoder), encoder, store)
        return lists(place.search_many(requests, k))


def test_a_replayed_search_is_the_one_that_was_recorded(retriever, store, tmp_path):
    found = recorded(retriever, tmp_path / "a.csv.xz")
    again = replayed(store, tmp_path / "a.csv.xz", REQUESTS)
    for one, other in zip(found, again, strict=True):
        assert one[0] == other[0]
        if not isinstance(one, str):
            assert one[1] == pytest.approx(other[1], rel=1e-3)
    assert isinstance(again[-1], str)
    # In any order, some of them, together or apart.
    assert replayed(store, tmp_path / "a.csv.xz", REQUESTS[1::-1]) == [again[1], again[0]]


def test_the_file_is_a_run_of_the_fields_columns_and_the_same_every_time(retriever, tmp_path):
    recorded(retriever, tmp_path / "a.csv.xz")
    recorded(retriever, tmp_path / "b.csv.xz", REQUESTS[::-1])
    assert (tmp_path / "a.csv.xz").read_bytes() == (tmp_path / "b.csv.xz").read_bytes()
    table = pd.read_csv(tmp_path / "a.csv.xz", keep_default_na=False)
    assert list(table) == list(run_files.COLUMNS)
    assert read_manifest(tmp_path / "a.csv.xz")["rows"] == len(table) == 4 * 5 + 1
    by_tag = table[table["rank"] > 0].groupby("tag")
    assert (by_tag["rank"].agg(list).map(lambda ranks: ranks == [1, 2, 3, 4, 5])).all()


def test_a_search_on_file_must_be_made_and_found_again_and_others_may_be_made_too(
    retriever, tmp_path
):
    recorded(retriever, tmp_path / "some.csv.xz", REQUESTS[:3])
    recorded(retriever, tmp_path / "all.csv.xz")
    some, whole = map(run_files.RunFile.read, (tmp_path / "some.csv.xz", tmp_path / "all.csv.xz"))
    assert some.differences(whole) == "" and whole.differences(some)
    tag, (qid, hits) = next((t, kept) for t, kept in some.found.items() if len(kept[1].ids))
    some.found[tag] = (qid, replace(hits, ids=hits.ids[:, ::-1]))
    assert tag in some.differences(whole)


CHANGES = {
    "a text": lambda h: hypotheses("passage f on gout", "passage b on sepsis", lam=0.4),
    "lambda": lambda h: h.by(lam=0.5),
    "the form": lambda h: h.by(form="max"),
    "the draw": lambda h: h.by(mimic="stranger", draw=1),
    "a weight": lambda h: Hypotheses((Text("passage e on gout", 2.0, role="target"),), h.spec),
    "what may not be found": lambda h: Hypotheses(h.texts, h.spec, excluded=frozenset({"p01"})),
    "the sources": lambda h: Hypotheses(h.texts, h.spec, sources=("s",)),
}


def test_another_search_k_encoder_or_corpus_is_not_answered_from_the_file(
    retriever, store, tmp_path
):
    path = tmp_path / "a.csv.xz"
    recorded(retriever, path, [CONTRAST])
    fewer = PassageStore.build(tmp_path / "fewer.sqlite", list(store)[:-1], {})
    for change in CHANGES.values():
        with pytest.raises(run_files.NeedsIndex):
            replayed(store, path, [change(CONTRAST)])
    for place, changed in (
        (store, {"encoder": HashEncoder(dim=32)}),
        (store, {"k": 6}),
        (fewer, {}),
    ):
        with pytest.raises(run_files.NeedsIndex):
            replayed(place, path, [CONTRAST], **changed)


def test_scores_of_a_few_passages_need_no_index(retriever, store):
    asked = retriever.encoder.encode(["gout"], "query")
    pids = ["p03", "p00", "p03"]
    without = run_files.TextIndex(store, retriever.encoder)
    assert without.score(asked, pids) == pytest.approx(retriever.index.score(asked, pids))
    with pytest.raises(run_files.NeedsIndex):
        without.search(asked, 1)
    view = [index.subset(retriever.index.ids[:] != "p03") for index in (without, retriever.index)]
    (rows, worst), (wanted, least) = (index.longlist(asked, 3) for index in view)
    assert set(rows[0]) == set(wanted[0]) and worst == pytest.approx(least)


def test_a_sweep_that_is_not_on_file_needs_an_index_as_one_search_does(store):
    """Without one it would embed every passage, unasked."""
    index = run_files.TextIndex(store, HashEncoder(dim=16))
    lam = np.linspace(0, 2, 20)
    plus, minus = HashEncoder(dim=16).encode(["gout", "fever"], "query")
    queries = (plus - lam[:, None] * minus).astype(np.float32)
    for asked in (1, len(lam)):
        with pytest.raises(run_files.NeedsIndex):
            search_path(index, queries[:asked], np.zeros(asked), lam[:asked], 2)


def test_random_passages_need_neither_an_index_nor_a_file(retriever, store, tmp_path):
    drawn = [CONTRAST.by(form="random", draw=draw) for draw in range(3)]
    recorded(retriever, tmp_path / "a.csv.xz", [CONTRAST])
    assert replayed(store, tmp_path / "a.csv.xz", drawn) == lists(retriever.search_many(drawn, 5))


def test_a_request_that_names_a_passage_is_recorded_and_older_keys_stay(retriever, store, tmp_path):
    named = Hypotheses((Text("gout", 1.0, "query", "question"), Text(pid="p04", weight=0.5)))
    other = Hypotheses((named.texts[0], Text(pid="p05", weight=0.5)))
    path = tmp_path / "a.csv.xz"
    found = recorded(retriever, path, [named, other])
    assert [ids for ids, _ in replayed(store, path, [named, other])] == [ids for ids, _ in found]
    with pytest.raises(run_files.NeedsIndex):
        replayed(store, path, [Hypotheses((named.texts[0], Text(pid="p06", weight=0.5)))])
    # As committed runs have them: a field that a text does not use is not part of its key.
    texts = (
        Text("passage e on gout", role="target"),
        Text(("a title", "passage b"), 0.5, "article", "mimic", "stranger"),
    )
    request = Hypotheses(texts, SearchSpec(lam=0.4), qid="q")
    assert run_files._tag(request, 5, "here") == "single own lam=0.4 949dd324f99f2ddb"
    index = DenseIndex([HashEncoder(dim=8).encode(["a", "b"], "article")], ["p1", "p2"])
    encoder = SimpleNamespace(fingerprint="an encoder")
    assert run_files.place_of(index, encoder, texts).startswith("df329b284b7237db")
