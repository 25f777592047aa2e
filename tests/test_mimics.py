"""Mimic quality: statistics against oracles, ranks by brute force, a judge that may babble."""

from __future__ import annotations

import json
from itertools import product
from math import comb, prod
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from lib.benchmarks import ddx_mini
from lib.datasets import Question
from lib.embed import HashEncoder
from lib.llm.chat import ScriptedChat
from lib.llm.prompts import load_prompt
from lib.llm.recorder import Recorder
from lib.methods.base import Expansion
from lib.methods.chr import written_pair
from lib.plots import figures
from lib.query_spec import SearchSpec
from lib.report import reported
from lib.run import Retriever
from lib.search.index import DenseIndex
from lib.studies.main_tables.experiment import CHOSEN
from lib.studies.mimics import items as cases
from lib.studies.mimics import tables
from lib.studies.mimics.items import TIERS, items, judged
from lib.studies.mimics.tables import (
    agreement,
    exact_share,
    fisher_p,
    rank_correlation,
    tier_tests,
)

# statistics --------------------------------------------------------------------------------------

COUNTS = st.tuples(st.integers(0, 12), st.integers(0, 12)).map(lambda x: (min(x), max(x)))


@settings(deadline=None)
@given(COUNTS, COUNTS)
def test_two_groups_are_scipys_fisher_test(a, b):
    ours = fisher_p([a, b])
    if not (a[1] and b[1]):
        assert np.isnan(ours)
    else:
        table = [[a[0], a[1] - a[0]], [b[0], b[1] - b[0]]]
        assert ours == pytest.approx(stats.fisher_exact(table).pvalue, rel=1e-6)


def test_three_groups_are_the_sum_over_tables_no_likelier():
    sizes, seen = (9, 30, 8), (6, 12, 3)

    def weight(table) -> int:
        return prod(comb(n, x) for n, x in zip(sizes, table, strict=True))

    tables = [t for t in product(*(range(n + 1) for n in sizes)) if sum(t) == sum(seen)]
    weights = [weight(table) for table in tables]
    wanted = sum(w for w in weights if w <= weight(seen)) / sum(weights)
    counts = [*zip(seen, sizes, strict=True), (0, 0)]
    assert fisher_p(counts) == pytest.approx(wanted, rel=1e-9)


def test_what_the_papers_own_table_shows_by_exact_test():
    """METHODS A11: intervals 30-93, 23-59 and 9-76 %, Excellent against Poor p = 0.35."""
    paper = reported("table4_mimic_quality").pivot(
        index="quality", columns="metric", values="value"
    )
    shares = [exact_share(int(paper.at[t, "correct"]), int(paper.at[t, "n"])) for t in TIERS]
    assert [round(100 * s["low"]) for s in shares] == [30, 23, 9]
    assert [round(100 * s["high"]) for s in shares] == [93, 59, 76]
    assert [round(100 * s["value"], 1) for s in shares] == paper.loc[[*TIERS], "accuracy"].tolist()
    tests = tier_tests(paper["correct"], paper["n"]).set_index("test")
    assert tests.loc["Excellent > Poor", "p"] == pytest.approx(0.347, abs=0.001)
    assert (tests["p_holm"] > 0.05).all() and tests["n"].iloc[0] == 47
    assert tests.loc["Excellent > Good", "p_holm"] == pytest.approx(3 * 0.2552, abs=0.001)


def test_a_clear_difference_has_a_sign_and_an_empty_tier_no_test():
    n = {"Excellent": 40, "Good": 40}
    up, down = (tier_tests(dict(zip(n, x, strict=True)), n) for x in ((38, 10), (10, 38)))
    for tests in (up, down):
        assert (tests["p_holm"].iloc[:2] < 0.001).all() and tests["p_holm"].iloc[2:].isna().all()
    assert down["difference"].iloc[1] == -up["difference"].iloc[1]
    row = up.iloc[1]
    assert row["difference"] == pytest.approx(0.7) and row["low"] < 0.7 < row["high"]
    assert up[["difference", "p", "mde"]].iloc[2:].isna().all(axis=None)
    assert tier_tests({}, {})["p"].isna().all()


def test_kappa_needs_two_grades():
    a = pd.Series(dict(enumerate(["Excellent"] * 6 + ["Good"] * 3 + ["", "Poor"])))
    b = pd.Series(dict(enumerate(["Excellent"] * 5 + ["Good"] * 4 + ["Good", ""])))
    got = agreement(a, b)
    seen, chance = 8 / 9, (6 * 5 + 3 * 4) / 81
    assert got["n"] == 9 and got["agree"] == pytest.approx(seen)
    assert got["kappa"] == pytest.approx((seen - chance) / (1 - chance))
    assert np.isnan(agreement(a[:3], a[:3])["kappa"]) and agreement(a, b[:0])["n"] == 0
    always = agreement(a, pd.Series("Excellent", a.index))
    assert (always["n"], always["kappa"]) == (10, 0) and np.isnan(always["low"])


def test_rank_correlation_has_an_interval_that_covers():
    rng = np.random.default_rng(1)
    rows = [rank_correlation(rng.normal(size=30), rng.normal(size=30)) for _ in range(200)]
    # They are independent: 0 lies in about 95 % of the intervals.
    assert 180 <= sum(row["low"] < 0 < row["high"] for row in rows) <= 199
    assert rank_correlation([1, 2, 4, 3, np.nan], [1, 2, 3, 4, 5])["n"] == 4
    assert np.isnan(rank_correlation([1, 1, 1, 1, 1], range(5))["rho"])
    assert np.isnan(rank_correlation([1, 2, 3], [1, 2, 3])["rho"])


# naming, copying, collapse -----------------------------------------------------------------------


PLANE = np.array(
    [[1, 0], [0.9, 0.44], [0.8, 0.6], [0.5, 0.87], [0, 1], [-0.5, 0.87], [-1, 0], [0, -1]]
)
IDS = [f"p{i}" for i in range(len(PLANE))]


def by_hand(plus, minus, lam, k):
    order = sorted(
        range(len(PLANE)),
        key=lambda i: (-round(float(unit(PLANE)[i] @ (plus - lam * minus)), 5), IDS[i]),
    )
    return [IDS[i] for i in order[:k]]


def unit(x):
    x = np.atleast_2d(np.asarray(x, np.float32))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


class Known:
    """An encoder that knows where each text is."""

    fingerprint = "by hand"

    def __init__(self, places):
        self.places = places

    def encode(self, texts, tower):
        return unit([self.places[t] for t in texts])


def lab(places, questions, texts, lam=0.4, k=3):
    """A made-up experiment: questions with (H+, H-) on the plane, and no reader."""
    retriever = Retriever(DenseIndex([unit(PLANE)], IDS), Known(places))
    for side in ("query", "article"):
        retriever._known |= {(side, text): unit(place)[0] for text, place in places.items()}
    made = []
    for question, (plus, minus) in zip(questions, texts, strict=True):
        request = written_pair(question.text, plus, minus, SearchSpec(lam=1.0)) if plus else None
        made.append(Expansion(request, {"H_plus": plus, "H_minus": minus}))
    return SimpleNamespace(
        profile=SimpleNamespace(name="mini"),
        sets={"mine": questions},
        retriever=retriever,
        k=k,
        lam=lam,
        behind={},
        data=[],
        questions=lambda arm, d: questions,
        expansions=lambda arm, d: made,
    )


NO_OUTCOMES = pd.DataFrame(columns=["measure", "method", "qid", "value"])

QUESTIONS = [
    Question("q1", "Why?", {"A": "Gout", "B": "Lyme disease"}, "A", "mine"),
    Question("q2", "Is it?", {"A": "yes", "B": "no"}, "A", "mine"),
    Question("q3", "Failed?", {"A": "x", "B": "y"}, "A", "mine"),
]
PLACES = {
    "Why?": (1, 0),
    "Is it?": (0, 1),
    "Gout and more": (1, 0.1),
    "Lyme disease or Gout": (1, 0.3),
    "No, it is not": (0.2, 1),
    "Yes, it is": (-1, 0.3),
}
TEXTS = [("Gout and more", "Lyme disease or Gout"), ("No, it is not", "Yes, it is"), ("", "")]


@pytest.mark.parametrize(("lam", "k"), [(0.4, 3), (0.8, 2)])
def test_items_are_the_definitions(lam, k):
    targets = {"q1": frozenset({"p0", "p7"})}
    table = items(lab(PLACES, QUESTIONS, TEXTS, lam, k), targets).set_index("qid")
    assert table.index.tolist() == ["q1", "q2"]  # q3 has no hypotheses
    for qid, (a, b) in zip(("q1", "q2"), TEXTS, strict=False):
        plus, minus = unit(PLACES[a])[0], unit(PLACES[b])[0]
        top = {
            at: by_hand(plus, minus, x, k) for at, x in (("hplus", 0), ("chosen", lam), ("one", 1))
        }
        other = by_hand(minus, minus, 0, k)
        row = table.loc[qid]
        assert row["c"] == pytest.approx(float(plus @ minus), abs=1e-6)
        assert row["shared"] == len({*top["hplus"]} & {*other}) / k
        for at, found in top.items():
            kept = len({*top["hplus"]} & {*found}) / k
            assert row[f"kept_{at}"] == kept
            assert row[f"collapsed_{at}"] == (row["shared"] > 0.5 and kept < 0.5)
            if qid == "q1":
                assert row[f"p_{at}"] == sum(p in targets["q1"] for p in found) / k
            asked = unit(PLACES["Why?" if qid == "q1" else "Is it?"])[0]
            near = np.mean([unit(PLANE)[IDS.index(p)] @ asked for p in found])
            assert row[f"near_{at}"] == pytest.approx(near, abs=1e-5)
    assert table["exam"].tolist() == [True, False] and np.isnan(table.loc["q2", "p_one"])
    assert table["plus_option"].tolist() == ["A", "B"]
    assert table["plus_right"].tolist() == [True, False]
    assert table["minus_option"].tolist() == ["", "A"]
    assert table["minus_right"].tolist() == [None, True]
    assert table.loc["q1", "collapsed_one"] or k == 2


def test_without_hypotheses_there_is_nothing_to_measure_and_a_judge_is_not_run(tmp_path):
    nothing = items(lab(PLACES, QUESTIONS[2:], TEXTS[2:]), {})
    assert nothing.empty and len(tables.collapse(nothing, NO_OUTCOMES)) == 8
    assert tables.proxies(nothing, NO_OUTCOMES, {}).empty
    silent = Recorder(None, tmp_path / "none.jsonl", "replay")
    table = judged(lab(PLACES, QUESTIONS, TEXTS), silent)
    assert (table["grade"] == "").all() and (table["error"] == "").all()
    assert table["how"].str.contains("connect('record:", regex=False).all()


def test_equal_hypotheses_have_no_direction_and_retrieve_nothing():
    same = [("Gout and more", "Gout and more")]
    row = items(lab(PLACES, QUESTIONS[:1], same), {"q1": frozenset({"p0"})}).iloc[0]
    assert (row["shared"], row["kept_one"], row["p_one"]) == (1, 0, 0) and np.isnan(row["near_one"])
    assert row["kept_chosen"] == 1 and row["collapsed_one"] and not row["collapsed_chosen"]


def test_the_judge_sees_the_key_and_both_hypotheses_and_a_broken_reply_is_counted():
    good = json.dumps({"why": "closest", "grade": "Good"})
    bad = json.dumps({"why": "closest", "grade": "Superb"})
    # The first reply is given only to a request that has the key and both texts.
    seen = "answer: A. Gout\n\nTarget: Gout and more\n\nMimic: Lyme disease or Gout"
    model = ScriptedChat([{"match": seen, "text": good}, {"match": "Is it?", "text": bad}])
    table = judged(lab(PLACES, QUESTIONS, TEXTS), model)
    assert table["qid"].tolist() == ["q1", "q2"] and table["grade"].tolist() == ["Good", ""]
    assert table["error"].tolist()[0] == "" and "Superb" in table["error"].tolist()[1]
    prompt = load_prompt("mimic_judge").messages(
        question="", options="", answer="", h_plus="", h_minus=""
    )
    assert all(tier in prompt[1]["content"] for tier in TIERS)


# tables ------------------------------------------------------------------------------------------


AT = ("hplus", "chosen", "one")


def graded(n=24, seed=0):
    """Made-up items, answers and grades without any Poor: two readers, the second on one."""
    rng = np.random.default_rng(seed)
    qids = [f"q{i}" for i in range(n)]
    table = pd.DataFrame({"dataset": "mine", "qid": qids, "plus_option": "A"})
    table["exam"] = table.index % 4 > 0
    table["minus_option"] = rng.choice(["", "B"], n)
    columns = [f"{name}_{at}" for name in ("p", "near", "kept") for at in AT]
    for column in ("c", "copied", "shared", "near_standard", *columns):
        table[column] = rng.random(n)
    for at in AT:
        table[f"collapsed_{at}"] = (table["shared"] > 0.5) & (table[f"kept_{at}"] < 0.5)
    asked = [("first", qid) for qid in qids] + [("second", "q1")]
    answers = pd.DataFrame(
        [(*one, method) for one in asked for method in ("chr", CHOSEN, "hplus", "hyde")],
        columns=["reader", "qid", "method"],
    )
    answers = answers.assign(gold="A", letter=rng.choice(["A", ""], len(answers)))
    grade = pd.Series(rng.choice(["Excellent", "Good"], n), qids)
    people = dict.fromkeys(("first", "second", "both agree"), grade)
    return table, answers, people | {"judge": grade[:0]}


def test_table_4_is_a_count_by_tier_and_says_what_is_not_run():
    table, answers, grades = graded()
    made = tables.table4(tables.outcomes(table, answers, 5), grades)
    rows = made.set_index(["grader", "measure", "method", "tier"])
    assert rows.index.is_unique
    exam = table[table["exam"]]["qid"]
    own = answers[(answers["reader"] == "first") & (answers["method"] == "chr")]
    own = own[own["qid"].isin(exam)]
    for tier in ("Excellent", "Good"):
        letters = own.loc[own["qid"].map(grades["first"]) == tier, "letter"]
        row = rows.loc[("first", "accuracy, first", "chr", tier)]
        assert (row["n"], row["hits"]) == (len(letters), (letters == "A").sum())
        assert row["verdict"] == "DIFFERENT SETUP"
        p = table.loc[table["qid"].map(grades["first"]) == tier, "p_one"]
        assert rows.loc[("first", "P@5", "chr", tier), "value"] == pytest.approx(p.mean())
    empty = rows.loc[("first", "accuracy, first", "chr", "Poor")]
    assert (empty["n"], empty["verdict"]) == (0, "NOT RUN") and np.isnan(empty["value"])
    assert (made.loc[made["grader"] == "judge", "n"] == 0).all()
    paper = made[made["grader"] == tables.PHYSICIAN]
    assert paper[["n", "hits"]].to_numpy().tolist() == [[9, 6], [30, 12], [8, 3]]
    claims = tables.tier_claims(made)
    assert claims["grader"].iloc[0] == tables.PHYSICIAN
    is_paper = claims["grader"] == tables.PHYSICIAN  # what was not declared has no p
    assert claims.loc[is_paper, "p"].notna().all() and claims.loc[~is_paper, "p"].isna().all()


def test_proxies_and_collapse_are_tests_on_the_same_rows():
    table, answers, grades = graded(40)
    outcomes = tables.outcomes(table, answers, 5)
    found = tables.proxies(table, outcomes, grades).set_index(["outcome", "proxy"])
    gain = table["p_one"] - table["p_hplus"]
    row = found.loc[("Δ P@5, λ = 1", "c")]
    assert (row["rho"], row["n"]) == (pytest.approx(stats.spearmanr(table["c"], gain)[0]), 40)
    assert found.loc[("tier", "H− names an option"), "n"] == table["exam"].sum()
    assert np.isnan(found.loc[("tier", "H+ names an option"), "rho"])  # all do
    assert "p" not in found  # nothing of it was declared
    lost = tables.collapse(table, outcomes).set_index(["criterion", "method"])
    row = lost.loc[("shared > 1/2, kept < 1/2", "chr")]
    right = answers[(answers["reader"] == "first") & (answers["method"] == "chr")].set_index("qid")
    right = table["qid"].map(right["letter"] == "A")
    hit, exam = table["collapsed_one"], table["exam"]
    counts = [
        [(hit & exam & (right == r)).sum(), (~hit & exam & (right == r)).sum()]
        for r in (False, True)
    ]
    assert row["right_low"] <= counts[1][0] / sum(counts[1]) <= row["right_high"]
    assert row["wrong_value"] == pytest.approx(counts[0][0] / sum(counts[0]))
    assert (row["hits"], row["right_n"]) == (hit.sum(), sum(counts[1]))


# the worked cases --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bundled():
    """The real experiment of the cases, opened on hashed words in place of the encoder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "lib.studies.main_tables.experiment.load_encoder", lambda *_, **__: HashEncoder()
        )
        bundled = cases.bundled(0.4, 5)
        return bundled, cases.case_ranks(bundled, [0.0, 0.4, 1.0])


def test_case_ranks_are_those_of_every_passage_by_brute_force(bundled):
    lab, ranks = bundled
    retriever, benchmark = lab.retriever, ddx_mini.build()
    index = retriever.index
    everything = index.vectors(np.arange(len(index))).astype(np.float64)
    for case in cases.read_cases():
        own = ranks[(ranks["case"] == case["case"]) & (ranks["pair"] == cases.REBUILT)]
        plus, minus = retriever.encoder.encode([case["H_plus"], case["H_minus"]], "article")
        top = set()
        for lam in (0.0, 0.4, 1.0):
            score = np.round(everything @ (plus - np.float32(lam) * minus).astype(np.float64), 5)
            order = np.lexsort((index.ids, -score))
            place = {p: i for i, p in enumerate(index.ids[order].tolist(), 1)}
            here = own[own["lambda"] == lam].set_index("pid")["rank"]
            assert here.to_dict() == {p: place[p] for p in here.index}
            top |= set(index.ids[order[:5]].tolist())
        assert set(own["pid"]) == top
        targets = benchmark.targets[case["qid"]]
        assert (own["class"].isin(["target", "both"]) == own["pid"].isin(targets)).all()
    yes_no = ranks["qid"].str.startswith("bioasq")
    assert ranks["right"].isna().equals(yes_no) and yes_no.any()


def test_table_5_holds_what_is_measured_and_what_is_printed(bundled):
    lab, ranks = bundled
    table = tables.table5(lab, ranks, cases.read_cases()[-1]["case"])
    counts = table.groupby(["source", "pair", "method"]).size().to_dict()
    wanted = {("measured", cases.HYDE, "hyde"): 5}
    for pair in (cases.REBUILT, cases.OWN):
        wanted |= {("measured", pair, method): 5 for method in ("hplus", CHOSEN, "chr")}
    wanted |= {("the paper", cases.PAPER, method): 3 for method in ("chr", "hyde")}
    assert counts == wanted
    paper = table[table["source"] == "the paper"].groupby("method")["right"].first()
    assert paper.to_dict() == {"chr": False, "hyde": True}
    rebuilt = cases.crossing(ranks[ranks["pair"] == cases.REBUILT], 5, [0.0, 1.0])
    assert set(rebuilt["lambda"]) == {0.0, 1.0}
    assert (rebuilt.groupby(["case", "pid"])["rank"].min() <= 5).all()
    assert len(figures.plot_cases(rebuilt, cases.printed(), 5, [0.0, 1.0]).axes) == 6
