"""Benchmarks: one contract for all of them, and what each is made of."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.base.provenance import code_hash, data_hash
from lib.benchmarks import benchmark_makers, ddx_real, load_benchmark
from lib.benchmarks.base import Benchmark, name_words, neighbour_ranks, ngrams, pick, shared_ngrams
from lib.corpora import load_passages
from lib.data.passages import OPEN_CORPUS
from lib.embed import HashEncoder
from tests.made_study import unit
from tests.test_entity_masking import names_left

GARD, PLUS, NINDS = "2_GARD_QA", "4_MPlus_Health_Topics_QA", "6_NINDS_QA"
GHR = ddx_real.HYPOTHESIS_SUBSET

# neighbours and shared words ---------------------------------------------------------------------


@given(st.integers(2, 70), st.integers(0, 10**6), st.integers(0, 5))
@settings(max_examples=40, deadline=None)
def test_nobody_is_their_own_neighbour_or_mimic(n, vectors_seed, seed):
    rng = np.random.default_rng(vectors_seed)
    vectors = unit(rng.integers(-1, 2, size=(n, 3)) + np.array([0.1, 0.2, 0.3]))  # many twins
    ranks = neighbour_ranks(vectors)
    rows = np.arange(n)
    assert ranks.shape == (n, min(50, n - 1)) and (ranks != rows[:, None]).all()
    for distance, chosen in pick(ranks, seed).items():
        assert chosen.shape == (n,) and (chosen != rows).all()
        assert ((chosen >= 0) & (chosen < n)).all()
        assert (chosen == pick(ranks, seed)[distance]).all()


def test_near_and_middle_are_what_they_say():
    vectors = unit(np.random.default_rng(1).normal(size=(120, 5)))
    ranks = neighbour_ranks(vectors)
    cosines = np.round(vectors @ vectors.T, 5)
    place = np.empty((120, 120), dtype=int)
    for i in range(120):
        order = sorted((j for j in range(120) if j != i), key=lambda j: (-cosines[i, j], j))
        assert ranks[i].tolist() == order[:50]
        place[i, order] = np.arange(1, 120)
    rows = np.arange(120)
    assert (place[rows, pick(ranks)["nearest"]] == 1).all()
    middle = np.concatenate([place[rows, pick(ranks, seed)["middle"]] for seed in range(40)])
    assert set(middle) == set(range(10, 50))


def test_shared_words_are_counted_without_case_and_punctuation():
    text = "One two, three (four) five-six seven eight; nine."
    assert len(ngrams(text)) == 2 and ngrams("seven words are too few for one") == set()
    assert shared_ngrams(text, ["ONE TWO THREE FOUR FIVE SIX SEVEN EIGHT"]) == 0.5
    assert shared_ngrams(text, [text, "other"]) == 1.0
    assert shared_ngrams(text, []) == shared_ngrams("short", [text]) == 0.0
    halves = ["one two three four", "five six seven eight nine"]
    assert shared_ngrams(text, halves) == 0.0  # a sequence does not run from text to text


# a benchmark is checked --------------------------------------------------------------------------


def a_benchmark(**changes) -> Benchmark:
    qids = ("q0", "q1", "q2")
    fields = {
        "name": "made-up",
        "title": "made up",
        "corpora": ("ddx-mini",),
        "qids": qids,
        "questions": qids,
        "h_plus": qids,
        "h_minus": {"nearest": qids, "middle": qids},
        "targets": {q: frozenset({f"{q}-t"}) for q in qids},
        "mimics": {q: frozenset({f"{q}-m"}) for q in qids},
        "dev": frozenset({"q1"}),
    }
    return Benchmark(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"h_plus": ("a", "b")}, "made-up: h_plus has 2 rows, qids 3"),
        ({"h_minus": {"nearest": ("a",)}}, "made-up: nearest has 1 rows, qids 3"),
        ({"several": (("a", "b"),)}, "made-up: several has 1 rows, qids 3"),
        ({"targets": {"q0": frozenset("a"), "q2": frozenset("b")}}, "no target passage for q1"),
        ({"excluded": {"q2": frozenset({"q2-t"})}}, "q2-t is a target of q2 and excluded for it"),
    ],
)
def test_a_benchmark_with_missing_rows_or_targets_is_refused(changes, why):
    with pytest.raises(ValueError, match=why):
        a_benchmark(**changes)


# the real benchmarks -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def medquad(mirror, tmp_path_factory):
    """MedQuAD's passages, read once for the module, in one cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHR_CACHE", str(tmp_path_factory.mktemp("cache")))
        passages = list(load_passages("medquad"))
        patch.setattr(ddx_real, "load_passages", lambda name: iter(passages))
        yield {p.pid: p for p in passages}


@pytest.fixture(scope="module")
def real(medquad) -> dict[str, Benchmark]:
    """Every benchmark, made once."""
    return {name: load_benchmark(name, HashEncoder()) for name in benchmark_makers()}


@pytest.mark.mirror
@pytest.mark.parametrize("name", benchmark_makers())
def test_every_benchmark_keeps_the_contract(name, real):
    b = real[name]
    assert b.name == name and b.title and len(set(b.qids)) == len(b.qids)
    assert b.chosen_on in real if b.chosen_on else b.dev
    assert code_hash(b.code) != code_hash(()) and data_hash(b.files)
    prefixes = tuple(f"{corpus}:" for corpus in b.corpora) if b.corpora != ("ddx-mini",) else ("",)
    h_plus_of = dict(zip(b.h_plus, b.qids, strict=True))
    for i, qid in enumerate(b.qids):
        assert all(pid.startswith(prefixes) for pid in b.targets[qid] | b.mimics[qid])
        mimics = [column[i] for column in b.h_minus.values()]
        mimics += b.several[i] if b.several else ()
        assert all(mimics) and b.mimics[qid]
        if b.several:
            assert b.several[i][0] == b.h_minus["nearest"][i] and len(b.several[i]) == 5
        if b.names and not name.endswith("-blind"):
            nearest = h_plus_of[b.h_minus["nearest"][i]]
            assert b.mimics[qid] == b.targets[nearest] and nearest != qid


@pytest.mark.mirror
def test_ddx_real_keeps_hypotheses_and_targets_of_different_institutes(real, medquad):
    b = real["ddx-real"]
    counts, source = b.counts, f"medquad:{GHR}"
    assert len(b.qids) == counts["diseases"] > 300
    assert counts["described"] == counts["diseases"] + counts["copied_left_out"]
    assert counts["copied_left_out"] > 0 and 0.35 < len(b.dev) / len(b.qids) < 0.65
    assert b.excluded_sources == {source}
    assert set(b.h_minus) == {"nearest", "middle", "by name"}
    written = {}
    for p in medquad.values():
        if p.pid.startswith(source) and p.meta["cuis"]:
            written.setdefault(p.meta["cuis"][0], []).append(p.text)
    for i, cui in enumerate(b.qids):
        targets = [medquad[pid] for pid in b.targets[cui]]
        assert not any(p.pid.startswith(source) for p in targets)
        assert {p.meta["cuis"][0] for p in targets} == {cui}
        assert b.h_plus[i] in " ".join(written[cui]) and len(b.h_plus[i]) <= ddx_real.CHARACTERS
        assert shared_ngrams(b.h_plus[i], [p.text for p in targets]) <= ddx_real.COPIED


@pytest.mark.mirror
def test_ddx_fresh_has_no_disease_of_ddx_real_by_concept_or_by_name(real):
    known, b = real["ddx-real"], real["ddx-fresh"]
    assert b.counts["candidates"] == 237 and len(b.qids) > 160 and not b.dev
    assert not set(b.qids) & set(known.qids) and not set(b.h_plus) & set(known.h_plus)
    titles = {name_words(names[0]) for names in known.names.values()}
    assert not any(titles & set(map(name_words, names)) for names in b.names.values())
    shares = [n for name, n in b.counts.items() if name.startswith("h_plus_from_")]
    assert sum(shares) == len(b.qids) and max(shares) < len(b.qids) / 3


@pytest.mark.mirror
@pytest.mark.parametrize("name", ["ddx-real", "ddx-fresh"])
def test_no_name_is_left_in_the_masked_sets(name, real):
    named, masked = real[name], real[f"{name}-blind"]
    assert names_left(masked, named) == []
    assert (masked.qids, masked.dev) == (named.qids, named.dev)
    assert (masked.targets, masked.excluded) == (named.targets, named.excluded)
    # The check sees names where there are some.
    seen = {qid for qid, which, _ in names_left(named, named) if which == "H+"}
    assert len(seen) > 0.9 * len(named.qids)
    # Texts are still descriptions.
    kept = [len(x) / len(y) for x, y in zip(masked.h_plus, named.h_plus, strict=True)]
    assert min(kept) > 0.4 and masked.counts["h_plus_with_a_name"] > 0.9 * len(masked.qids)


# a made corpus of diseases -----------------------------------------------------------------------


def passage(cui: str, subset: str, text: str, focus: str, synonyms=(), kind="information"):
    pid = f"medquad:{subset}/{cui}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"
    meta = {
        "cuis": [cui],
        "subset": subset,
        "focus": focus,
        "synonyms": list(synonyms),
        "question_type": kind,
        "doc": pid,
    }
    return SimpleNamespace(pid=pid, text=text, meta=meta)


def sentence(cui: str, subset: str) -> str:
    """Ten words, so three sequences of 8, each with the disease and the institute."""
    return f"A text that is on {cui} by {subset} and ends here."


COPY = "This very sentence has more than eight words and two institutes have all of them."


def corpus() -> list:
    """Nine diseases for ddx-fresh, two of ddx-real, and some that neither may have."""
    made = []
    for i in range(9):
        cui = f"C{i}"
        for subset in (GARD, PLUS, NINDS):
            made.append(passage(cui, subset, sentence(cui, subset), f"Disease number {i}"))
            made.append(passage(cui, subset, f"Cure: {subset} {i}.", f"N{i}", kind="treatment"))
    for i in range(2):
        for subset in (GHR, GARD):
            text = sentence(f"G{i}", subset)
            made.append(passage(f"G{i}", subset, text, f"known {i}", [f"K {i}"]))
    for subset in (GARD, PLUS):
        made.append(passage("COPIED", subset, COPY, "copied"))
        made.append(passage("CURED", subset, sentence("CURED", subset), "cured", kind="treatment"))
        made.append(passage("AGAIN", subset, sentence("AGAIN", subset), "k 1"))
    made.append(passage("ALONE", GARD, sentence("ALONE", GARD), "alone"))
    return made


@pytest.fixture
def fresh_of(own_folders, monkeypatch):
    """ddx-fresh made of the corpus above and of more passages."""

    def build(*more) -> Benchmark:
        monkeypatch.setattr(ddx_real, "load_passages", lambda name: iter([*corpus(), *more]))
        return ddx_real.build_fresh(HashEncoder())

    return build


def test_one_institute_describes_the_others_are_targets_and_the_rest_is_counted(fresh_of):
    b = fresh_of()
    assert b.qids == tuple(f"C{i}" for i in range(9)) == b.test
    assert b.corpora == OPEN_CORPUS and not b.excluded_sources
    for cui, text in zip(b.qids, b.h_plus, strict=True):
        (subset,) = (s for s in (GARD, PLUS, NINDS) if text == sentence(cui, s))
        pids = {p.pid for p in corpus() if p.meta["cuis"] == [cui]}
        institute = {pid for pid in pids if pid.startswith(f"medquad:{subset}/")}
        assert b.excluded[cui] & pids == institute and len(institute) == 2
        assert b.targets[cui] == pids - institute
        assert b.names[cui][0] == f"Disease number {cui[1:]}" and f"N{cui[1:]}" in b.names[cui]
    assert len({text.split(" by ")[1] for text in b.h_plus}) > 1, "institutes take turns"
    counts = b.counts
    assert (counts["candidates"], counts["described"], counts["diseases"]) == (12, 11, 9)
    assert counts["copied_left_out"] == counts["in_ddx_real_left_out"] == 1
    assert counts["median_targets"] == 4
    assert sum(n for name, n in counts.items() if name.startswith("h_plus_from_")) == 9
