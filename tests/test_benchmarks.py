"""What benchmarks are made of: neighbours, descriptions, and the real sets as they are built."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.benchmarks import bioasq, ddx_real, load_benchmark
from lib.benchmarks.base import Benchmark, neighbour_ranks, pick, shared_ngrams
from lib.corpora import load_passages
from lib.datasets import load_bioasq_all, load_bioasq_dev
from lib.embed import HashEncoder
from lib.index_build import without
from lib.search.index import DenseIndex
from tests.made_study import unit

# neighbours --------------------------------------------------------------------------------------


@given(st.integers(2, 70), st.integers(0, 10**6), st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_nobody_is_their_own_neighbour_or_mimic(n, vectors_seed, seed):
    rng = np.random.default_rng(vectors_seed)
    vectors = unit(rng.integers(-1, 2, size=(n, 3)) + np.array([0.1, 0.2, 0.3]))  # many twins
    ranks = neighbour_ranks(vectors)
    own = np.arange(n)[:, None]
    assert ranks.shape == (n, min(50, n - 1)) and (ranks != own).all()
    for distance, chosen in pick(ranks, seed).items():
        assert chosen.shape == (n,) and (chosen != own[:, 0]).all()
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
    own = np.arange(120)
    assert (place[own, pick(ranks)["nearest"]] == 1).all()
    middle = np.concatenate([place[own, pick(ranks, seed)["middle"]] for seed in range(40)])
    assert set(middle) == set(range(10, 50))


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
        ({"questions": ()}, "made-up: questions has 0 rows, qids 3"),
        ({"h_minus": {"nearest": ("a",)}}, "made-up: nearest has 1 rows, qids 3"),
        ({"several": (("a", "b"),)}, "made-up: several has 1 rows, qids 3"),
        ({"targets": {"q0": frozenset("a"), "q2": frozenset("b")}}, "no target passage for q1"),
        ({"excluded": {"q2": frozenset({"q2-t"})}}, "q2-t is a target of q2 and excluded for it"),
    ],
)
def test_a_benchmark_with_missing_rows_or_targets_is_refused(changes, why):
    with pytest.raises(ValueError, match=why):
        a_benchmark(**changes)


def test_results_are_on_what_is_not_dev_in_order():
    assert a_benchmark().test == ("q0", "q2") and a_benchmark(dev=frozenset()).test[1] == "q1"


def test_an_unknown_benchmark_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match="no benchmark 'medqa'; there are: ddx-mini, ddx-real"):
        load_benchmark("medqa")


# the real benchmarks -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cached(tmp_path_factory):
    """One cache for the module: downloads are verified and folders packed once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHR_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.mark.mirror
def test_bioasq_has_its_618_questions_and_a_dev_set_of_its_own(mirror, cached):
    b = bioasq.build(HashEncoder())
    questions = {q.qid: q for q in load_bioasq_all()}
    assert len(b.test) == 618 and len(b.dev) > 1500
    assert {questions[q].question_type for q in b.test} == {"yesno"}
    assert b.dev <= {q.qid for q in load_bioasq_dev()}

    def documents(qid: str) -> set[str]:
        return {*questions[qid].gold_pmids, *questions[qid].snippet_pmids}

    tested = set().union(*map(documents, b.test))
    assert all(tested.isdisjoint(documents(q)) for q in b.dev)
    answers, pids = {}, {}
    for p in load_passages("bioasq"):
        for qid in p.meta["qids"]:
            pids.setdefault(qid, set()).add(p.pid)
    for qid, q in questions.items():
        answers.setdefault(q.ideal_answer, set()).add(qid)
    for i, qid in list(enumerate(b.qids))[::37]:
        q = questions[qid]
        assert (b.questions[i], b.h_plus[i]) == (q.text, q.ideal_answer)
        assert b.targets[qid] == pids[qid]
        for distance in ("nearest", "middle"):
            others = answers[b.h_minus[distance][i]] - {qid}
            assert others, "H- is another question's ideal answer"
            assert distance != "nearest" or b.mimics[qid] in [pids[o] for o in others]
        assert b.several[i][0] == b.h_minus["nearest"][i] and len(b.several[i]) == 5
        copied = shared_ngrams(q.ideal_answer, q.gold_snippets) > 0
        assert (qid in b.copied) == copied
    assert 0 < len(b.shared) < len(b.copied) < len(b.qids) and all(b.mimics.values())


@pytest.mark.mirror
def test_ddx_real_keeps_hypotheses_and_targets_of_different_institutes(mirror, cached, monkeypatch):
    read = list(load_passages("medquad"))
    monkeypatch.setattr(ddx_real, "load_passages", lambda name: iter(read))
    b = ddx_real.build(HashEncoder())
    counts = b.counts
    assert len(b.qids) == counts["diseases"] > 300
    assert counts["copied_left_out"] > 0
    assert counts["described"] == counts["diseases"] + counts["copied_left_out"]
    assert 0.35 < len(b.dev) / len(b.qids) < 0.65 and b.files
    passages = {p.pid: p for p in read}
    source = f"medquad:{ddx_real.HYPOTHESIS_SUBSET}"
    assert b.excluded_sources == {source}
    written = {}
    for p in passages.values():
        if p.pid.startswith(source) and p.meta["cuis"]:
            written.setdefault(p.meta["cuis"][0], []).append(p.text)
    for i, cui in enumerate(b.qids):
        assert not any(pid.startswith(source) for pid in b.targets[cui])
        assert {passages[pid].meta["cuis"][0] for pid in b.targets[cui]} == {cui}
        assert b.h_plus[i] in " ".join(written[cui]) and len(b.h_plus[i]) <= ddx_real.CHARACTERS
        texts = [passages[pid].text for pid in b.targets[cui]]
        assert shared_ngrams(b.h_plus[i], texts) <= ddx_real.COPIED
    # What the benchmark excludes is what its hypotheses are from, and nothing else.
    few = [pid for pid in passages if pid.startswith(source)][:20] + sorted(b.targets[b.qids[0]])
    index = without(
        DenseIndex([np.eye(len(few), dtype=np.float32)], few), sorted(b.excluded_sources)
    )
    assert set(index.ids[index.kept].tolist()) == b.targets[b.qids[0]]
    place = {text: cui for cui, text in zip(b.qids, b.h_plus, strict=True)}
    for name, texts in b.h_minus.items():
        for cui, mimic in zip(b.qids, texts, strict=True):
            assert place[mimic] != cui
            assert name != "nearest" or b.mimics[cui] == b.targets[place[mimic]]
    assert set(b.h_minus) == {"nearest", "middle", "by name"} and all(
        len(s) == 5 for s in b.several
    )


def chunks(*texts: str, kind: str = "information") -> list:
    meta = {"question_type": kind, "doc": "d1", "focus": "Gout"}
    return [SimpleNamespace(text=t, meta=meta) for t in texts]


def test_a_description_is_whole_words_of_one_answer():
    described = ddx_real.description
    assert described(chunks("Gout is an arthritis."), 700) == ("Gout is an arthritis.", "Gout")
    assert described(chunks("Gout is", "an arthritis."), 700)[0] == "Gout is an arthritis."
    assert described(chunks("Gout is an arthritis."), 13)[0] == "Gout is an"
    assert described(chunks("Gout is.", kind="treatment"), 700) is None
    both = chunks("It hurts.", kind="symptoms") + chunks("Gout is.")
    assert described(both, 700)[0] == "Gout is."
