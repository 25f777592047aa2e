"""Diseases read without an LLM: the questions, their options, and accuracy by what was found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from lib.benchmarks.base import Benchmark
from lib.data.passages import Passage
from lib.data.store import PassageStore
from lib.embed import HashEncoder
from lib.query_spec import DRAWS, SearchSpec
from lib.run import Retriever
from lib.search.bm25 import BM25Index
from lib.search.index import DenseIndex
from lib.stats import measure
from lib.studies.lambda_sweep import qa_eval
from lib.studies.lambda_sweep.qa_eval import OPTIONS, Diseases, asked, read_arms
from lib.studies.lambda_sweep.study import open_benchmark
from lib.study import search_arm

N, DEV = 15, 5
LAMBDAS = [0.4, 1.0]
ENCODER = HashEncoder(dim=96)
_ITIS = ("Arbor", "Borel", "Cedar", "Dorad", "Elmor", "Finch", "Gorse", "Holly")
_OSIS = ("Ivory", "Jolly", "Karst", "Larch", "Maple", "Norse", "Olive")
NAMES = (*(f"{start}itis" for start in _ITIS), *(f"{start}osis" for start in _OSIS))
QIDS = tuple(f"C{i:02d}" for i in range(N))
SIGNS = ("fever", "rash", "cough", "tremor", "oedema", "pallor", "nausea", "vertigo", "fatigue")
STEM = "Which condition is this? "


def signs(i: int, n: int = 4) -> str:
    return " ".join(SIGNS[(i * step + step) % len(SIGNS)] for step in range(1, n + 1))


H_PLUS = tuple(f"{NAMES[i]} shows as {signs(i)} in region{i % 6} tissue{i}" for i in range(N))


@pytest.fixture(scope="module")
def diseases(tmp_path_factory) -> Diseases:
    """Fifteen diseases, three passages on each and one that its H+ is taken from."""
    folder = tmp_path_factory.mktemp("reading")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHR_CACHE", str(folder / "cache"))
        passages = [Passage(f"{q}-own", "", H_PLUS[i], "own", {}) for i, q in enumerate(QIDS)]
        for i, qid in enumerate(QIDS):
            for j, part in enumerate(("tissue", "region", "signs")):
                words = {"tissue": f"tissue{i}", "region": f"region{i % 6}", "signs": signs(i, 3)}
                text = f"Patients with {NAMES[i]} have {words[part]} and part{j} of {signs(i + j)}"
                passages.append(Passage(f"{qid}-{j}", "", text, "other", {}))
        passages.sort(key=lambda p: p.pid)
        ids, texts = [p.pid for p in passages], [p.text for p in passages]
        store = PassageStore.build(folder / "store.sqlite", passages)
        index = DenseIndex([ENCODER.encode(texts, "article")], ids)
        near = [[(i + step) % N for step in (1, 2, 3, 6, 7)] for i in range(N)]
        targets = {q: frozenset(f"{q}-{j}" for j in range(3)) for q in QIDS}
        benchmark = Benchmark(
            name="made-diseases",
            title="made-up diseases",
            corpora=("ddx-mini",),
            qids=QIDS,
            questions=tuple(f"What is {name}?" for name in NAMES),
            h_plus=H_PLUS,
            h_minus={"nearest": tuple(H_PLUS[others[0]] for others in near)},
            targets=targets,
            mimics={q: targets[QIDS[near[i][0]]] for i, q in enumerate(QIDS)},
            several=tuple(tuple(H_PLUS[j] for j in others) for others in near),
            dev=frozenset(QIDS[:DEV]),
            excluded={q: frozenset({f"{q}-own"}) for q in QIDS},
            names={q: (name, f"{name} syndrome") for q, name in zip(QIDS, NAMES, strict=True)},
            files=("ddx-mini/qrels.jsonl",),
        )
        retriever = Retriever(index, ENCODER, store, BM25Index.build(texts, ids))
        bench = open_benchmark(benchmark, retriever)
        several = SearchSpec(form="max", mimic="several", lam=0.4)
        yield Diseases(bench, benchmark, LAMBDAS, [bench.arm(several)])


@pytest.fixture(scope="module")
def values(diseases) -> pd.DataFrame:
    return read_arms(diseases)


def changed(diseases: Diseases, **fields) -> Diseases:
    """The same diseases with other fields of their benchmark."""
    b = replace(diseases.bench.benchmark, **fields)
    return Diseases(open_benchmark(b, diseases.retriever), b, LAMBDAS)


@pytest.mark.parametrize("options", OPTIONS)
def test_every_test_disease_is_asked_for_among_five_names_by_its_description(diseases, options):
    b = diseases.bench.benchmark
    name_of = dict(zip(b.h_plus, NAMES, strict=True))
    questions = asked(diseases, options)
    assert [q.qid for q in questions] == list(b.test) and asked(diseases, options) == questions
    for question in questions:
        i, shown = QIDS.index(question.qid), set(question.options.values())
        assert question.options[question.answer] == NAMES[i]
        assert sorted(question.options) == list("ABCDE") and len(shown) == 5
        nearest = {NAMES[i], *(name_of[text] for text in b.several[i][:4])}
        assert (shown == nearest) is (options == "near")
        assert question.text == STEM + H_PLUS[i].replace(NAMES[i], "…")
    assert len({q.answer for q in questions}) > 2  # the right one is not always first
    assert options == "near" or len({frozenset(q.options.values()) for q in questions}) == N - DEV


# who reads what ----------------------------------------------------------------------------------


def is_right(question, passages: list[Passage]) -> bool:
    """Whether the option that brings the question nearest to a passage, by the definition, is."""

    def embedded(text: str) -> np.ndarray:
        return ENCODER.encode([text])[0].astype(np.float64)

    stem = " ".join(question.text.split()[-60:])
    rows = [embedded(p.text) for p in passages]
    support = {}
    for letter, option in sorted(question.options.items()):
        gains = [(embedded(f"{stem} {option}") - embedded(stem)) @ row for row in rows]
        support[letter] = round(float(max(gains, default=0.0)), 5)
    return max(support, key=support.get) == question.answer


def outcome(values: pd.DataFrame, arm: str, metric: str) -> pd.Series:
    rows = values[(values["arm"] == arm) & (values["metric"] == metric)]
    return rows.set_index("qid")["value"]


def drawn(diseases: Diseases, spec: SearchSpec, qids) -> list[dict]:
    return search_arm(diseases.bench.arm(spec), qids, diseases.retriever, 5)


@pytest.mark.parametrize(
    "name, spec",
    [
        ("hplus", SearchSpec()),
        ("chr@1", SearchSpec(lam=1.0)),
        ("max@0.4", SearchSpec(form="max", mimic="several", lam=0.4)),
        ("random", SearchSpec(form="random")),
        ("chr+rotation@1", SearchSpec(lam=1.0, rotation=True)),
    ],
)
def test_an_arm_is_read_as_its_definition_says_and_a_control_as_the_mean_of_its_draws(
    diseases, values, name, spec
):
    b, store = diseases.bench.benchmark, diseases.retriever.store
    draws = drawn(diseases, spec, b.test)
    assert len(draws) == (DRAWS if spec.rotation else 1)
    for question in asked(diseases, "near")[:4]:
        rights = [is_right(question, store.get_many(found[question.qid])) for found in draws]
        right = outcome(values, name, "right_near")[question.qid]
        assert right == pytest.approx(np.mean(rights)), question.qid
    tables = [measure(found, {q: b.targets[q] for q in b.test}, b.mimics, 5) for found in draws]
    for metric, of in (("p_at_5", "p_at_5"), ("found", "hit_at_5")):
        mean = sum(table[of] for table in tables) / len(tables)
        assert outcome(values, name, metric)[mean.index].tolist() == pytest.approx(mean.tolist())


def test_what_may_not_be_found_is_read_by_nobody(diseases):
    """The passage that H+ is taken from is the likest to the question, and is left out."""
    free = changed(diseases, excluded={})
    for own, is_there in ((diseases, False), (free, True)):
        found = dict(qa_eval._searched(own, asked(own, "near")))
        assert {"asked_dense", "asked_bm25", "asked_rrf"} < set(found)
        first = found["asked_dense"][0]
        assert all((f"{qid}-own" in pids[:5]) is is_there for qid, pids in first.items())
        assert is_there or not any(
            f"{qid}-own" in pids
            for draws in found.values()
            for f in draws
            for qid, pids in f.items()
        )


# accuracy ----------------------------------------------------------------------------------------
