"""The bench: its vectors are the same every time, and what is exact is measured as exact."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lib.search import lambda_path
from lib.search.bm25 import words
from lib.search.candidates import multiplies_int8
from lib.search.index import DenseIndex
from tools import bench, bench_path, bench_vectors, bench_words
from tools.bench_vectors import Sample, likeness, made, widened


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def sample():
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(20, 384))

    def some(n):
        return unit(centres[generator.integers(20, size=n)] + generator.normal(size=(n, 384)))

    plus = some(200)
    minus = unit(plus + 0.5 * some(200))
    minus[7] = plus[7]  # h+ - h- is zero
    return Sample(some(500), some(200), plus, minus)


def test_made_passages_are_the_same_for_any_number_and_have_neighbours(sample, monkeypatch):
    monkeypatch.setattr(bench_vectors, "BLOCK", 400)
    few = np.concatenate(list(made(sample, 500)))
    many = np.concatenate(list(made(sample, 1000)))
    assert few.shape == (500, 768) and many.shape == (1000, 768)
    assert (many[:500] == few).all() and len(np.unique(many, axis=0)) == 1000
    assert np.allclose(np.linalg.norm(many.astype(np.float32), axis=1), 1, atol=1e-3)
    wide = widened(sample.questions)
    real, copied = (
        likeness(rows, wide) for rows in (widened(sample.passages), many.astype(np.float32))
    )
    assert copied["nearest_cosine"] == pytest.approx(real["nearest_cosine"], abs=0.25)
    assert (
        copied["nearest_cosine"]
        > likeness(unit(np.random.default_rng(1).normal(size=(1000, 768))), wide)["nearest_cosine"]
        + 0.2
    )


def test_shifted_queries_take_the_mimic_they_name_and_leave_out_what_has_no_direction(sample):
    plus, minus = widened(sample.plus), widened(sample.minus)
    own = sample.shifted("own", 1.0)
    assert np.allclose(own, np.delete(plus - minus, 7, axis=0), atol=1e-6)
    for mimic in ("own", "near", "random"):
        wide, mimics = sample.pairs(mimic)
        assert (wide == plus).all() and (mimics == minus).all() == (mimic == "own")
    cosine = {}
    for mimic in ("own", "near", "random"):
        mimics = plus - sample.shifted(mimic, 0.4) if mimic != "own" else 0.4 * minus
        cosine[mimic] = np.mean(np.sum(plus * mimics, axis=1)) / 0.4
    assert cosine["own"] > cosine["near"] > cosine["random"]


def test_exact_searches_have_recall_1_and_flat_is_once_as_fast_as_itself(sample, monkeypatch):
    shards = list(made(sample, 1000))
    sets = {"ordinary": widened(sample.questions), "own": sample.shifted("own", 1.0)}
    assert "compressed" not in bench.on_processor(shards, sets["ordinary"]), "all would be scored"
    monkeypatch.setattr(bench, "CANDIDATES", 50)
    rows = {row["search"]: row for row in bench.all_measured(shards, sets, "cpu")}
    exact = ["FlatIP", "torch float32"] + ["int8, exact"] * multiplies_int8("cpu")
    assert {*exact, "compressed", "IVF", "HNSW"} == set(rows)
    for name in exact:
        assert rows[name]["recall_ordinary"] == rows[name]["recall_own"] == 1
    assert rows["FlatIP"]["times_flat_one"] == rows["FlatIP"]["times_flat_many"] == 1
    assert rows["IVF"]["recall_ordinary"] >= 0.99 and rows["compressed"]["bytes_each"] == 96
    assert all(r["ms_one_least"] <= r["ms_one"] <= r["ms_one_most"] for r in rows.values())


def test_every_lambda_at_once_is_measured_against_one_after_another(sample, monkeypatch):
    monkeypatch.setattr(bench_path, "LAMBDAS", np.linspace(0, 2, 13)[1:])
    monkeypatch.setattr(bench_path, "MANY", 6)
    monkeypatch.setattr(lambda_path, "DEPTH", 40)
    shards = [block.astype(np.float16) for block in made(sample, 1000)]
    index = DenseIndex(shards, [f"p{i:04d}" for i in range(1000)])
    row = bench_path.measured(index, sample)
    assert (row["lambdas"], row["questions"], row["certified"]) == (12, 12, 1)
    assert 2 <= row["searches_each"] < 12 and row["times_least"] <= row["times_one_by_one"]
    monkeypatch.setattr(bench_path, "is_same", lambda *_: False)
    with pytest.raises(ValueError, match="faiss finds something else at lambda"):
        bench_path.measured(index, sample)


def test_every_engine_finds_words_among_the_same_made_passages(tmp_path):
    texts = ["fever of the kidney", "pain in the heart", "heart failure, heart attack", "a dose"]
    made = list(bench_words.passages(texts, 300))
    assert made[:4] == texts and made == list(bench_words.passages(texts, 300))
    assert len(set(" ".join(made).split())) > 20  # some are new
    for name, content in zip(bench_words.PLACES, (texts, ["kidney fever", "dose"]), strict=True):
        (tmp_path / name).write_text(json.dumps(content))
    rows = {name: bench_words.measure(name, 300, tmp_path) for name in bench_words.ENGINES}
    for row in rows.values():
        for question, found in zip(["kidney fever", "dose"], row["found"], strict=True):
            assert len(found) == 5
            assert all(set(question.split()) & set(words(made[i])) for i in found)
        assert row["ms"] > 0 and row["gb"] > 0 and row["peak_gb"] > 0
