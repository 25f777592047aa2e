"""The lambda study on a set of known geometry, and the real benchmarks as they are built."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.studies.lam.statements import statements_table

from lib.base import paths, provenance
from lib.data import bioasq, ddx_real, load_benchmark
from lib.data.benchmark import Benchmark, shared_ngrams
from lib.data.corpora import load_passages
from lib.data.neighbours import neighbour_ranks, pick
from lib.data.questions import load_bioasq_all, load_bioasq_dev, load_questions
from lib.llm.connect import connect
from lib.methods import METHODS
from lib.run import Retriever, run_retrieval
from lib.search.corpus_index import build_index, corpus_store, without
from lib.search.embed import HashEncoder
from lib.search.index import DenseIndex
from lib.stats import METRICS, measure
from lib.studies.lam import study, tables, views
from lib.studies.lam.study import Condition, Study, measured, retrieve
from lib.studies.lam.tables import CURVE_COLUMNS, all_curves

N, DEV, DIM = 24, 8, 48
QIDS = tuple(f"q{i:02d}" for i in range(N))
LAMBDAS = (0.0, 0.4, 1.0)


# a set of known geometry -------------------------------------------------------------------------


def unit(x: np.ndarray) -> np.ndarray:
    return (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32)


def made(seed: int = 0) -> tuple[Study, dict[str, np.ndarray]]:
    """Five targets near h+, five mimic passages between h+ and h-, and 150 of anything.

    cos(h+, h-) is 0.5 and a mimic passage is nearer to h+ than a target is, so H+ alone retrieves
    mimic passages and a little contrast repairs that.
    """
    rng = np.random.default_rng(seed)
    plus, other = unit(rng.normal(size=(N, DIM))), rng.normal(size=(N, DIM))
    across = unit(other - np.sum(other * plus, axis=1, keepdims=True) * plus)
    minus = unit(0.5 * plus + np.sqrt(0.75) * across)
    documents = {f"z{j:03d}": v for j, v in enumerate(unit(rng.normal(size=(150, DIM))))}
    targets, mimics = {}, {}
    for i, qid in enumerate(QIDS):
        for j in range(5):
            noise = 0.5 * unit(rng.normal(size=(2, DIM)))
            documents[f"{qid}-t{j}"] = unit(plus[i] - 0.15 * across[i] + noise[0])
            documents[f"{qid}-m{j}"] = unit(plus[i] + 0.45 * across[i] + 0.6 * noise[1])
        targets[qid] = frozenset(f"{qid}-t{j}" for j in range(5))
        mimics[qid] = frozenset(f"{qid}-m{j}" for j in range(4)) | {f"{qid}-t0"}
    names = sorted(documents)
    index = DenseIndex([np.stack([documents[name] for name in names])], names)
    turn = np.roll(np.arange(N), 5)
    benchmark = Benchmark(
        name="made-up",
        title="made up",
        corpora=("ddx-mini",),
        qids=QIDS,
        questions=QIDS,
        h_plus=QIDS,
        h_minus={"nearest": QIDS, "random": QIDS},
        targets=targets,
        mimics=mimics,
        several=tuple((q,) * 3 for q in QIDS),
        dev=frozenset(QIDS[::3]),
        copied=frozenset(QIDS[:5]),
        shared=frozenset(QIDS[20:]),
        files=("ddx-mini/qrels.jsonl",),
    )
    several = np.stack([minus, minus[turn], unit(rng.normal(size=(N, DIM)))], axis=1)
    lab = Study(
        benchmark,
        index,
        unit(plus + 0.8 * unit(rng.normal(size=(N, DIM)))),
        plus,
        {"nearest": minus, "random": minus[turn]},
        "hand-made",
        several,
    )
    return lab, documents


@pytest.fixture(scope="module")
def lab() -> Study:
    return made()[0]


VECTORS = np.stack([v for _, v in sorted(made()[1].items())]).astype(np.float64)


def best(scores: np.ndarray, names: np.ndarray, k: int, among=None) -> list[str]:
    """Rounded to 1e-5, ties by name: names are sorted, so by row."""
    rows = range(len(names)) if among is None else among
    return [str(names[i]) for i in sorted(rows, key=lambda i: (-round(float(scores[i]), 5), i))[:k]]


def directly(lab: Study, condition: Condition, lam: float, i: int) -> list[str]:
    """The ten best passages of one question, passage by passage from the definitions."""
    names = lab.index.ids
    plus, minus = VECTORS @ lab.h_plus[i], VECTORS @ lab.h_minus[condition.mimic][i]
    each = VECTORS @ lab.several[i].T.astype(np.float64)
    asked = VECTORS @ lab.question[i]
    match condition.form:
        case "question":
            scores = asked
        case "mean":
            scores = plus - lam * each.mean(axis=1)
        case "max":
            scores = plus - lam * each.max(axis=1)
        case "margin":
            scores = plus - lam * np.maximum(0, minus - plus)
        case _:
            scores = plus - lam * minus + condition.question_weight * asked
    pool = None
    if condition.pool:
        pool = [names.tolist().index(n) for n in best(plus, names, condition.pool)]
    return best(scores, names, 10, pool)


CONDITIONS = {
    "single": Condition(),
    "random mimic": Condition(mimic="random"),
    "question added": Condition(question_weight=0.7),
    "pool": Condition(pool=12),
    "mean": Condition(form="mean"),
    "max": Condition(form="max"),
    "margin": Condition(form="margin"),
    "question": Condition(form="question"),
}


@pytest.mark.parametrize("name", CONDITIONS)
@pytest.mark.parametrize("lam", [0.0, 0.4, 1.0])
def test_what_is_retrieved_is_the_direct_computation(lab, name, lam):
    condition, rows = CONDITIONS[name], lab.rows(QIDS)
    found, degenerate = retrieve(lab, condition, lam, rows)
    assert degenerate == 0 and list(found) == list(QIDS)
    for i, qid in enumerate(QIDS):
        assert found[qid] == directly(lab, condition, lam, i), qid


@pytest.mark.parametrize("name", CONDITIONS)
def test_lambda_may_differ_by_question(lab, name):
    rows = lab.rows(QIDS[3:9])
    lams = np.linspace(0, 1, len(rows))
    found, _ = retrieve(lab, CONDITIONS[name], lams, rows)
    for i, lam in zip(rows, lams, strict=True):
        alone, _ = retrieve(lab, CONDITIONS[name], float(lam), np.array([i]))
        assert found[QIDS[i]] == alone[QIDS[i]]


def test_a_curve_is_the_means_over_its_questions(lab):
    rows = lab.rows(lab.benchmark.test)
    table = all_curves(lab, LAMBDAS, k=3)
    shown = (table["hypotheses"] == "nearest") & (table["mode"] == "full search")
    table = table[shown]
    assert tuple(table.columns) == CURVE_COLUMNS and table["lambda"].tolist() == list(LAMBDAS)
    assert (table["n"] == N - DEV).all() and (table["k"] == 3).all()
    for _, row in table.iterrows():
        lists = {QIDS[i]: directly(lab, Condition(), row["lambda"], i) for i in rows}
        targets = {q: lab.benchmark.targets[q] for q in lists}
        want = measure(lists, targets, lab.benchmark.mimics, 3).mean()
        assert row[list(METRICS)].to_dict() == pytest.approx(want.to_dict(), abs=1e-9)


def test_the_geometry_does_what_it_was_made_for(lab):
    """Contrast repairs H+ alone, and far too much of it leaves the topic."""
    rows = lab.rows(lab.benchmark.test)
    at = {x: measured(lab, Condition(), x, rows)[0].mean() for x in (0.0, 0.4, 3.0)}
    assert at[0.4]["p_at_5"] > at[0.0]["p_at_5"] + 0.3
    assert at[0.4]["mimic_at_5"] < at[0.0]["mimic_at_5"] - 0.3
    assert at[3.0]["neither_at_5"] > at[0.4]["neither_at_5"] + 0.3


# controls ----------------------------------------------------------------------------------------


class Spy(DenseIndex):
    """An index that keeps the queries it is asked."""

    def search(self, vectors, k, **options):
        self.asked = np.asarray(vectors)
        return super().search(vectors, k, **options)


@pytest.mark.parametrize("lam", [0.4, 1.0])
def test_the_matched_rotation_turns_as_far_but_elsewhere(lab, lam):
    spy = Spy(lab.index._shards, lab.index.ids)
    spied, rows = replace(lab, index=spy), lab.rows(QIDS)

    def turn(condition: Condition, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        retrieve(spied, condition, lam, rows, seed=seed)
        query = unit(spy.asked)
        return np.sum(query * lab.h_plus, axis=1), query

    angle, query = turn(Condition())
    control, away = turn(Condition(rotation=True))
    assert control == pytest.approx(angle, abs=1e-5) and angle.max() < 0.95
    assert np.sum(query * away, axis=1).max() < 0.999
    # Away from h+ it leans, negatively, on some other question's mimic.
    rest = unit(away - control[:, None] * lab.h_plus)
    for i in range(N):
        mimics = lab.h_minus["nearest"]
        across = unit(mimics - (mimics @ lab.h_plus[i])[:, None] * lab.h_plus[i])
        likeness = -(across @ rest[i])
        assert likeness.argmax() != i and likeness.max() == pytest.approx(1, abs=1e-4)
    assert not np.allclose(turn(Condition(rotation=True), seed=1)[1], away)


def test_random_passages_are_distinct_seeded_and_only_those_that_can_be_found(lab):
    keep = np.char.startswith(lab.index.ids, "z")
    part = replace(lab, index=lab.index.subset(keep))
    rows = lab.rows(QIDS)
    seen = set()
    for seed in range(5):
        found, degenerate = retrieve(part, Condition(form="random"), 0.0, rows, seed=seed)
        again, _ = retrieve(part, Condition(form="random"), 0.0, rows, seed=seed)
        assert found == again and degenerate == 0 and list(found) == list(QIDS)
        for pids in found.values():
            assert len(pids) == len(set(pids)) == 10 and all(p.startswith("z") for p in pids)
            seen |= set(pids)
    assert seen == set(lab.index.ids[keep].tolist())  # every passage can be drawn


def test_a_degenerate_query_retrieves_nothing_and_is_counted(lab):
    twins = lab.h_minus["nearest"].copy()
    twins[[2, 7]] = lab.h_plus[[2, 7]]
    several = lab.several.copy()
    several[[2, 7], :] = lab.h_plus[[2, 7], None]
    broken = replace(lab, h_minus={"nearest": twins, "random": twins}, several=several)
    rows = lab.rows(QIDS)
    for condition in (
        Condition(),
        Condition(pool=20),
        Condition(form="mean"),
        Condition(form="max"),
    ):
        table, degenerate = measured(broken, condition, 1.0, rows)
        assert degenerate == 2 and len(table) == N
        assert (table.loc[["q02", "q07"]] == 0).all(axis=None)
        assert measured(broken, condition, 0.9, rows)[1] == 0
        nothing, degenerate = measured(broken, condition, 1.0, np.array([2, 7]))
        assert degenerate == 2 and (nothing == 0).all(axis=None)
    table, degenerate = measured(broken, Condition(form="margin"), 1.0, rows)
    assert degenerate == 0  # h+ . d stays one of the two forms
    shown = all_curves(broken, (0.5, 1.0)).set_index(["hypotheses", "mode"])["degenerate"]
    assert shown["nearest", "full search"].tolist() == [0, 2]


def test_an_unknown_form_is_refused():
    with pytest.raises(ValueError, match="'maximum'"):
        Condition(form="maximum")


# tables ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def curves(lab) -> pd.DataFrame:
    return all_curves(lab, LAMBDAS)


def test_without_contrast_every_mode_is_h_plus_alone(curves):
    numbers = [c for c in CURVE_COLUMNS if c not in ("hypotheses", "mode", "lambda")]
    zero = curves[(curves["lambda"] == 0) & (curves["n"] == N - DEV)].set_index("mode")
    alone = zero.loc["full search"].iloc[0]
    same = {
        "matched rotation",
        "pool of 100 by H+",
        "margin per passage (L4)",
        "mean over mimics",
        "maximum over mimics",
    }
    assert same <= set(zero.index)
    for mode in same:
        assert zero.loc[mode, numbers].to_dict() == alone[numbers].to_dict(), mode
    shown = zero.loc["full search"].set_index("hypotheses")
    assert shown.loc["nearest", "p_at_5"] == shown.loc["random", "p_at_5"]
    assert zero.loc["question added, weight 1", "p_at_5"] != alone["p_at_5"]


def test_the_baselines_come_first_and_names_and_lambdas_are_complete(curves, lab):
    assert curves["mode"].tolist()[:2] == ["question alone", "random passages"]
    assert (curves["hypotheses"][:2] == "none").all() and tuple(curves.columns) == CURVE_COLUMNS
    groups = curves[2:].groupby(["hypotheses", "mode"], sort=False)["lambda"].agg(list)
    assert all(lams == list(LAMBDAS) for lams in groups) and len(groups) == 10
    rows = lab.rows(lab.benchmark.test)
    alone, _ = measured(lab, Condition(form="question"), 0.0, rows)
    assert curves["p_at_5"][0] == alone["p_at_5"].mean()
    shares = curves[[f"{c}_at_5" for c in ("target", "both", "mimic", "neither")]].sum(axis=1)
    assert shares.to_numpy() == pytest.approx(1)
    assert (curves["p_at_5_low"] <= curves["p_at_5"]).all()
    assert (curves["p_at_5"] <= curves["p_at_5_high"]).all()


def test_what_a_sceptic_leaves_out_is_left_out_of_the_test_questions(curves, lab):
    for label, out in (
        ("copied text", lab.benchmark.copied),
        ("shared documents", lab.benchmark.shared),
    ):
        kept = [q for q in lab.benchmark.test if q not in out]
        rows = curves[curves["hypotheses"] == f"nearest, {label} left out"]
        assert (rows["n"] == len(kept)).all() and 0 < len(kept) < N - DEV
        table, _ = measured(lab, Condition(), 0.4, lab.rows(kept))
        assert rows[rows["lambda"] == 0.4]["p_at_5"].iloc[0] == table["p_at_5"].mean()
    plain = replace(lab, benchmark=replace(lab.benchmark, copied=frozenset(), several=()))
    names = set(all_curves(plain, [0.0])["hypotheses"])
    assert names == {"none", "nearest", "random", "nearest, shared documents left out"}


def test_what_was_stated_of_ddx_real_is_tested_question_by_question(lab):
    table = statements_table(lab, k=3).set_index("statement")
    assert "a random mimic at 0.4 > H+ alone" in table.index and "middle" not in str(table.index)
    rows = lab.rows(lab.benchmark.test)
    c = lab.c()[rows]
    lambdas = {"contrast at λ = 1 > H+ alone": 1.0, "L2, λ = 1 > H+ alone": 1 / (1 + c)}
    zero = measured(lab, Condition(), 0.0, rows, 3)[0]["p_at_5"]
    for statement, lam in lambdas.items():
        here = measured(lab, Condition(), lam, rows, 3)[0]["p_at_5"]
        assert table.loc[statement, "difference"] == pytest.approx((here - zero).mean())
    within = (table["low"] <= table["stated"]) & (table["stated"] <= table["high"])
    assert (within == (table["stated_inside"] == "yes")).all() and (table["n"] == len(rows)).all()


def relabelled(lab: Study, qids) -> Study:
    """Targets and mimic passages exchanged for some questions."""
    b = lab.benchmark
    old, new = b.mimics, dict(b.targets)
    targets = {q: old[q] if q in qids else b.targets[q] for q in QIDS}
    mimics = {q: new[q] if q in qids else old[q] for q in QIDS}
    changed = replace(b, targets=targets, mimics=mimics)
    return replace(lab, benchmark=changed)


def test_rules_are_chosen_on_dev_questions_only(lab):
    table = tables.adaptive_table(lab)
    other_test = tables.adaptive_table(relabelled(lab, lab.benchmark.test))
    other_dev = tables.adaptive_table(relabelled(lab, lab.benchmark.dev))
    assert other_test["rule"].tolist() == table["rule"].tolist()
    assert (other_test["p_at_5"] != table["p_at_5"]).all()
    assert other_dev["rule"].tolist() != table["rule"].tolist()

    assert table.columns.tolist()[:9] == [
        "rule",
        "chosen_on",
        "p_at_5",
        "difference",
        "low",
        "high",
        "p",
        "p_holm",
        "n",
    ]
    assert table["chosen_on"].tolist() == [f"{DEV} dev"] * 5 + ["paper"]
    assert table["rule"].iloc[-1] == "fixed (lambda=1)" and (table["n"] == N - DEV).all()
    dev = lab.rows(lab.benchmark.dev)
    grid = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
    means = [measured(lab, Condition(), x, dev)[0]["p_at_5"].mean() for x in grid]
    assert table["rule"].iloc[0] == f"fixed (lambda={grid[int(np.argmax(means))]:g})"
    test = lab.rows(lab.benchmark.test)
    zero, one = (measured(lab, Condition(), x, test)[0]["p_at_5"] for x in (0.0, 1.0))
    assert table["difference"].iloc[-1] == pytest.approx((one - zero).mean())
    assert (table["p_holm"] >= table["p"]).all()


def test_without_dev_questions_nothing_is_tuned(lab):
    bare = replace(lab, benchmark=replace(lab.benchmark, dev=frozenset()))
    table = tables.adaptive_table(bare)
    assert set(table["chosen_on"]) == {"not tuned", "paper"} and (table["n"] == N).all()
    assert tables.best_lambda(bare, LAMBDAS) == 0.4
    means = [
        measured(lab, Condition(), x, lab.rows(lab.benchmark.dev))[0]["p_at_5"].mean()
        for x in LAMBDAS
    ]
    assert tables.best_lambda(lab, LAMBDAS) == LAMBDAS[int(np.argmax(means))]


def test_where_dev_chose_no_contrast_no_search_is_compared_with_itself(lab):
    table = tables.claims_table(lab, [0.0])
    assert not table["claim"].str.contains("λ = 0 ", regex=False).any() and len(table) == 5
    assert table["difference"].any()
    assert len(tables.claims_table(lab, LAMBDAS)) > 9


def test_at_lambda_0_every_mimic_measures_the_same(lab):
    rows = lab.rows(lab.benchmark.test)
    first, *others = (measured(lab, Condition(mimic=m), 0.0, rows)[0] for m in lab.h_minus)
    assert all(first.equals(other) for other in others) and first["mimic_at_5"].any()


def test_a_claim_is_supported_or_spoken_against_by_the_same_rule(lab):
    star = tables.best_lambda(lab, LAMBDAS)
    claim = f"contrast at λ = {star:g} beats H+ alone"
    table = tables.claims_table(lab, LAMBDAS).set_index("claim")
    flipped = tables.claims_table(relabelled(lab, lab.benchmark.test), LAMBDAS).set_index("claim")
    assert star > 0 and (table.loc[claim, "difference"], table.loc[claim, "verdict"]) > (0.3, "S")
    assert flipped.loc[claim, "difference"] < -0.15
    assert (table.loc[claim, "verdict"], flipped.loc[claim, "verdict"]) == ("SUPPORTED", "AGAINST")
    for shown in (table, flipped):
        assert shown.columns.tolist() == [
            "metric",
            "a",
            "b",
            "difference",
            "low",
            "high",
            "p",
            "p_holm",
            "n",
            "least",
            "verdict",
        ]
        assert shown["difference"].to_numpy() == pytest.approx((shown["a"] - shown["b"]).to_numpy())
        unclear = shown["p_holm"] >= 0.05
        assert (shown["verdict"] == "INCONCLUSIVE").tolist() == unclear.tolist()
        # Shares of the mimic and of neither are claimed to fall, P@5 to rise.
        fall = shown["metric"].isin(["mimic_at_5", "neither_at_5"])
        for row, falls in zip(shown[~unclear].itertuples(), fall[~unclear], strict=True):
            assert row.verdict == ("SUPPORTED" if (row.difference < 0) == falls else "AGAINST")


def test_the_spectrum_counts_every_passage_of_every_top_k(lab):
    part = replace(lab, index=lab.index.subset(~np.char.endswith(lab.index.ids, "-t1")))
    for this, k in ((lab, 5), (part, 3)):
        table = tables.spectrum_table(this, QIDS[:3], k, 1.4)
        counts = table[["target", "both", "mimic", "neither"]]
        assert (counts.sum(axis=1) == k).all()
        for qid, rows in table.groupby("question"):
            i = QIDS.index(qid)
            assert rows["start"].iloc[0] == 0 and rows["end"].iloc[-1] == 1.4
            assert np.allclose(rows["start"][1:], rows["end"][:-1])
            for row in rows[rows["end"] - rows["start"] > 1e-3].itertuples():
                middle = (row.start + row.end) / 2
                found, _ = retrieve(this, Condition(), middle, np.array([i]), depth=k)
                targets, mimics = (
                    {qid: m[qid]} for m in (lab.benchmark.targets, lab.benchmark.mimics)
                )
                want = measure(found, targets, mimics, k).iloc[0]
                assert row.target == round(k * want["target_at_5"])
                assert row.mimic == round(k * want["mimic_at_5"])


def test_results_are_kept_and_made_anew_only_when_a_setting_changes(lab, own_folders, monkeypatch):
    made_of = []

    def maker(kind: str):
        def make(*_) -> pd.DataFrame:
            made_of.append(kind)
            return pd.DataFrame({"x": [0.12345]})

        return make

    monkeypatch.setattr(provenance, "code_hash", lambda roots: "the same")
    kinds = {"lambda": "all_curves", "adaptive": "adaptive_table", "claims": "claims_table"}
    for kind, name in kinds.items():
        monkeypatch.setattr(tables, name, maker(kind))
    profile = {"name": "mini", "lambdas": LAMBDAS, "limit": 0}
    for _ in range(2):
        found = tables.study_results(lab, SimpleNamespace(**profile))
        assert made_of == list(kinds) == list(found)
        assert all(table["x"].tolist() == [0.123] for table in found.values())
    assert {p.name for p in paths.results("mini").glob("*.csv")} == {
        f"made_up_{kind}.csv" for kind in kinds
    }
    for this, other, k in (
        (lab, {"lambdas": (0.0, 1.0)}, 5),
        (lab, {"limit": 9}, 5),
        (lab, {}, 3),
        (replace(lab, encoder="another"), {}, 5),
    ):
        made_of.clear()
        tables.study_results(this, SimpleNamespace(**profile | other), k)
        assert made_of == list(kinds)


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


def test_near_middle_and_random_are_what_they_say():
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
    anyone = np.concatenate([place[own, pick(ranks, seed)["random"]] for seed in range(40)])
    assert set(anyone) == set(range(1, 120))


# a benchmark is checked --------------------------------------------------------------------------


def test_a_benchmark_with_missing_rows_or_targets_is_refused(lab):
    with pytest.raises(ValueError, match="made-up: h_plus has 23 rows, qids 24"):
        replace(lab.benchmark, h_plus=QIDS[1:])
    with pytest.raises(ValueError, match="random has 1 rows"):
        replace(lab.benchmark, h_minus={"nearest": QIDS, "random": ("a",)})
    with pytest.raises(ValueError, match="no target passage for q00"):
        replace(lab.benchmark, targets={**lab.benchmark.targets, "q00": frozenset()})
    with pytest.raises(ValueError, match="there are: ddx-mini, ddx-real, bioasq"):
        load_benchmark("medqa")
    assert set(lab.benchmark.test) == set(QIDS) - lab.benchmark.dev


# views, on the bundled set -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def bundled(tmp_path_factory):
    """ddx-mini with the hash encoder: (study, store, retriever)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHR_CACHE", str(tmp_path_factory.mktemp("bundled")))
        encoder, store = HashEncoder(), corpus_store(["ddx-mini"])
        index = build_index(store, encoder, progress=False)
        lab = study.prepare(load_benchmark("ddx-mini"), index, encoder)
        yield lab, store, Retriever(index, encoder, store)


def test_prepared_vectors_are_those_of_the_texts(bundled):
    lab, _, _ = bundled
    encoder, b = HashEncoder(), lab.benchmark
    assert np.allclose(lab.question, encoder.encode(b.questions), atol=1e-6)
    assert np.allclose(lab.h_plus, encoder.encode(b.h_plus), atol=1e-6)
    for name in ("nearest", "random"):
        assert np.allclose(lab.h_minus[name], encoder.encode(b.h_minus[name]), atol=1e-6)
        want = np.sum(lab.h_plus * lab.h_minus[name], axis=1)
        assert lab.c(name) == pytest.approx(want, abs=1e-6)
    assert lab.encoder == encoder.fingerprint and lab.several.size == 0
    some = [b.qids[3], b.qids[1]]
    assert lab.rows(some).tolist() == [1, 3]


def test_several_mimics_keep_their_places(own_folders):
    b = load_benchmark("ddx-mini")
    b = replace(b, several=tuple((f"mimic {i} one", f"mimic {i} two") for i in range(len(b.qids))))
    lab = study.prepare(b, DenseIndex([np.eye(2, dtype=np.float32)], ["a", "b"]), HashEncoder())
    assert lab.several.shape == (len(b.qids), 2, 256)
    assert np.allclose(lab.several[5], HashEncoder().encode(["mimic 5 one", "mimic 5 two"]))


def test_methods_retrieve_what_the_study_retrieves(bundled):
    """A method's request and a condition's vectors are two ways to one search."""
    lab, _, retriever = bundled
    llm, asked = connect("replay:data/recordings/reference.jsonl"), load_questions("ddx-mini")[:7]
    rows = lab.rows([q.qid for q in asked])
    for name, condition, lam in (
        ("standard", Condition(form="question"), 0.0),
        ("hplus", Condition(), 0.0),
        ("chr", Condition(), 1.0),
    ):
        run, _ = run_retrieval(METHODS[name], asked, retriever, llm, 10)
        found = {q: own["pid"].tolist() for q, own in run.groupby("qid")}
        assert found == retrieve(lab, condition, lam, rows, depth=10)[0], name


def test_one_question_is_shown_as_it_is_retrieved(bundled):
    lab, store, _ = bundled
    qid = lab.benchmark.qids[4]
    table = views.top_table(lab, store, qid, [0.0, 0.5], 3)
    assert table["lambda"].tolist() == [0.0] * 3 + [0.5] * 3
    assert table["rank"].tolist() == [1, 2, 3] * 2
    for lam in (0.0, 0.5):
        found, _ = retrieve(lab, Condition(), lam, lab.rows([qid]), depth=3)
        assert table[table["lambda"] == lam]["pid"].tolist() == found[qid]
    classes = dict(zip(table["pid"], table["class"], strict=True))
    for pid, name in classes.items():
        on = pid in lab.benchmark.targets[qid], pid in lab.benchmark.mimics[qid]
        assert name == {(1, 0): "target", (1, 1): "both", (0, 1): "mimic", (0, 0): "neither"}[on]

    lines = views.lines_table(lab, qid, 0.5, 3, depth=6)
    assert set(table["pid"]) <= set(lines["pid"]) and lines["score"].is_monotonic_decreasing
    assert lines["score"].to_numpy() == pytest.approx(lines["s_plus"] - 0.5 * lines["s_minus"])
    assert lines["pid"].tolist()[:3] == table[table["lambda"] == 0.5]["pid"].tolist()
    row = lines.iloc[0]
    vector = HashEncoder().encode([store.get(row["pid"]).text])[0]
    assert row["s_plus"] == pytest.approx(float(vector @ lab.h_plus[4]), abs=1e-5)


def test_pairs_show_how_far_the_query_turns(bundled):
    lab, _, _ = bundled
    table = views.pair_table(lab, 0.4)
    query = unit(lab.h_plus - 0.4 * lab.h_minus["nearest"])
    turned = np.degrees(np.arccos(np.sum(query * lab.h_plus, axis=1)))
    assert table["turn at 0.4"].to_numpy() == pytest.approx(turned, abs=0.05)
    assert (table["turn at 1"] > table["turn at 0.4"]).all()
    assert table["qid"].tolist() == list(lab.benchmark.qids)


def test_curves_are_picked_marked_and_told_in_three_rows(curves):
    wanted = {"a": ("random", "full search"), "b": ("nearest", "full search"), "c": ("x", "y")}
    table = views.pick(curves, wanted)
    assert table["label"].tolist() == ["a"] * 3 + ["b"] * 3 and table.columns[0] == "label"
    assert (views.mark(table, 0.4)["lambda_marked"] == 0.4).all()
    told = views.story(curves)
    assert told.index.tolist() == ["H+ alone", "best on these questions", "the paper's"]
    nearest = table[table["label"] == "b"].set_index("lambda")
    assert told["lambda"].tolist() == [0.0, nearest["p_at_5"].idxmax(), 1.0]
    assert told["p_at_5"].tolist() == [nearest["p_at_5"][x] for x in told["lambda"]]


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
        for distance in ("nearest", "middle", "random"):
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
    assert set(b.h_minus) == {"nearest", "middle", "random", "by name"} and all(
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
