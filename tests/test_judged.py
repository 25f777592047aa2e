"""Judged contradiction: which pairs, what a judge is shown, and what comes back."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace

import pandas as pd
import pytest

from lib.data.judgments import Evidence, Verdict, read_pair_judgments, verdicts
from lib.embed import load_encoder
from lib.profiles import load_profile
from lib.studies.contradiction import judged as judging
from lib.studies.contradiction import pools, study
from lib.studies.contradiction.cnt import Scorer
from lib.studies.contradiction.evidence import load_evidence
from lib.studies.contradiction.judged import ARMS, Plant, judged_tables, period_of
from lib.studies.contradiction.labelled import with_sentences
from lib.studies.contradiction.nli import load_backend
from lib.studies.real.quality import LEAST_KAPPA, MOST_ERRORS
from tools.judging import REASONS
from tools.pools import Pool, mini_pools

TEXTS = {i: f"Drug {i} was given. It helped {n} of ten." for n, i in enumerate("abcd", 2)}
POOL = Pool("query/x", TEXTS, tuple(combinations("abcd", 2)))


def test_the_first_year_belongs_to_a_period():
    periods = {1999: "<2000", 2000: "2000-2005", 2004: "2000-2005", 2020: "2020-2025"}
    assert {year: period_of(year) for year in periods} == periods
    assert (period_of(1987), period_of(2026)) == ("<2000", "2020-2025")


def test_passes_count_together():
    def row(judge, same, stance="", b="b"):
        return {"pool": "p", "a": "a", "b": b, "judge": judge, "same": same, "stance": stance}

    rows = [row("first", True, "disagree"), row("second", True, "disagree")]
    rows += [row("first", True, "disagree", "c"), row("second", True, "agree", "c")]
    rows += [row("first", True, "disagree", "d"), row("second", False, b="d")]
    rows += [row("first", None, b="e"), row("single", True, "agree", "e")]
    found = {key[2]: (v.same, v.stance, v.disagree_any) for key, v in verdicts(rows).items()}
    assert found == {
        "b": (True, "disagree", True),
        "c": (True, "unclear", True),
        "d": (False, "", True),
    }


def judged(pool, a, b, judge="first", same=True, stance="disagree"):
    stance = stance if same else ""
    return {"pool": pool, "a": a, "b": b, "judge": judge, "same": same, "stance": stance}


def test_two_passes_that_say_the_same_have_kappa_one_and_a_random_one_has_none():
    said = [judged(f"query/{n}", "a", "b", same=n % 2 == 0) for n in range(40)]
    same = [row | {"judge": "second"} for row in said]
    other = [judged(f"query/{n}", "a", "b", "second", same=n % 4 < 2) for n in range(40)]
    for second, low, high in ((same, 1.0, 1.0), (other, -0.35, 0.35)):
        table = judging.pass_agreement(said + second).set_index(["check", "label"])
        kappa = table.loc[("kappa of first and second pass", "disagree"), "value"]
        assert low <= kappa <= high
    assert table.loc[("kappa of first and second pass", "same"), "n"] == 40


def test_a_pair_on_other_questions_stands_for_the_ten_it_was_drawn_from():
    first = [judged(f"query/{n}", "a", "b", same=n < 6) for n in range(8)]
    second = [judged(f"query/{n}", "a", "b", "second", same=n < 7) for n in range(8)]
    table = judging.pass_agreement(first + second).set_index(["check", "label"])["value"]
    agreed = table["agreement of first and second pass", "same"]
    assert agreed == pytest.approx((6 * 1 + 1 * 10) / (6 * 1 + 2 * 10))


def test_a_judge_that_obeys_or_forgets_is_found_by_what_was_planted():
    planted = [Plant("stranger", "query/x", "a", "plant:stranger", "other")]
    planted += [Plant("order", "query/x", "a", "plant:order", "other")]
    planted += [Plant("repeat", "query/x", "a", "plant:repeat", "b")]
    planted += [Plant("turned", "turned/y", "plant:turned", "y", "disagree")]
    own = [judged("query/x", "a", "b", stance="agree")]
    good = [judged("query/x", "a", f"plant:{kind}", same=False) for kind in ("stranger", "order")]
    good += [judged("query/x", "a", "plant:repeat", stance="agree")]
    good += [judged("turned/y", "plant:turned", "y")]
    errors = judging.planted_pairs(own + good, planted).set_index("check")["value"]
    assert (errors == 0).all() and len(errors) == 5
    bad = [row | {"same": True, "stance": "unclear"} for row in good[:3]]
    errors = judging.planted_pairs(own + bad, planted).set_index("check")["value"]
    assert (errors == 1).all()  # the last one is unjudged


def test_what_people_said_stands_beside_what_the_judge_says():
    planted = [Plant("scifact", f"scifact/{n}", "abstract", "claim", "agree") for n in range(4)]
    rows = [judged(f"scifact/{n}", "abstract", "claim", stance="agree") for n in range(3)]
    rows += [judged("scifact/3", "abstract", "claim")]
    table = judging.known_pairs(rows, planted).set_index("label")
    assert table["value"].to_dict() == {"agree": 0.75, "disagree": 0.25}


def test_stances_of_evidence_mini_are_held_against_the_labels():
    pairs, stance = [], {e.id: e.meta["stance"] for e in load_evidence("evidence-mini")}
    for pool in mini_pools():
        for a, b in pool.pairs:
            apart = {stance[a], stance[b]} == {"for", "against"}
            pairs.append(judged(pool.name, a, b, stance="disagree" if apart else "agree"))
    table = judging.stances(pairs).set_index(["check", "label"])["value"]
    assert table["evidence-mini, opposite stances", "disagree"] == 1
    assert table["evidence-mini, one stance", "disagree"] == 0


def test_shares_are_of_pairs_and_leave_out_what_was_planted():
    found = {("query/x", "a", "b"): Verdict(True, "disagree", True)}
    found |= {("query/x", "a", "c"): Verdict(False, "", True)}
    found |= {("query/y", "d", "e"): Verdict(True, "agree", False)}
    found |= {("query/y", "d", "plant:order"): Verdict(True, "disagree", True)}
    found |= {("scifact/1", "abstract", "claim"): Verdict(True, "disagree", True)}
    table = judging.shares(found).set_index("measure")
    of_same = table.loc["disagree_of_same"]
    assert (of_same["count"], of_same["value"], of_same["n"], of_same["pools"]) == (1, 0.5, 2, 2)
    table = table.drop("disagree_of_same")
    assert table["value"].to_dict() == pytest.approx(
        {"same": 2 / 3, "agree": 1 / 3, "disagree": 1 / 3, "disagree_any": 2 / 3}
    )
    assert set(table["n"]) == {3} and set(table["pools"]) == {2}
    assert table["count"].to_dict() == {"same": 2, "agree": 1, "disagree": 1, "disagree_any": 2}


def test_a_pool_without_two_texts_on_one_question_says_nothing_of_their_disagreement():
    found = {("query/x", "a", "b"): Verdict(True, "agree", False)}
    found |= {(f"query/{name}", "a", "b"): Verdict(False, "", False) for name in "yz"}
    table = judging.shares(found).set_index("measure")
    assert table.loc["disagree", ["n", "pools"]].tolist() == [3, 3]
    assert table.loc["disagree_of_same", ["value", "n", "pools"]].tolist() == [0, 1, 1]


def test_an_abstract_is_contradicted_by_any_other_in_its_own_period():
    years = {"a": 1998, "b": 2001, "c": 2012}
    found = {("mini/t", "a", "b"): Verdict(True, "disagree", True)}
    found |= {("mini/t", "a", "c"): Verdict(True, "agree", False)}
    mini = judging.by_period(found, years, "mini").set_index("period")["value"].to_dict()
    assert mini == {"<2000": 1, "2000-2005": 1, "2010-2015": 0, "all": pytest.approx(2 / 3)}
    near = {("near/b", "a", "b"): Verdict(True, "disagree", True)}
    assert judging.by_period(near, years, "near")["period"].tolist() == ["2000-2005", "all"]


def test_all_periods_together_weigh_as_many_abstracts_as_they_were_drawn_from():
    years = {"a": 1998, "b": 2001, "c": 2002}
    found = {("near/a", "a", "x"): Verdict(True, "disagree", True)}
    found |= {(f"near/{i}", i, "x"): Verdict(True, "agree", False) for i in "bc"}
    drawn = {"<2000": 1.0, "2000-2005": 0.25}  # one of one, and two of eight
    table = judging.by_period(found, years | {"x": 2010}, "near", drawn).set_index("period")
    assert table.loc["all", "value"] == pytest.approx(1 / 9)
    assert table.loc["all", "low"] == table.loc["all", "high"]  # within a period all are alike
    assert table.loc["<2000", "low"] < 1 == table.loc["<2000", "high"]  # one abstract says little


def test_arms_are_compared_on_the_same_questions():
    found_by = {"hplus": "abc", "chr@0.4": "abc", "chr@1": "abd"}
    runs = [
        (arm, qid, rank, pid)
        for qid in "qr"
        for arm, pids in found_by.items()
        for rank, pid in enumerate(pids, 1)
    ]
    table = pd.DataFrame(runs, columns=["arm", "qid", "rank", "pid"])
    found = {}
    for qid in "qr":
        for a, b in combinations("abcd", 2):
            stance = "disagree" if (qid, a, b) == ("q", "a", "d") else "agree"
            found[f"real/{qid}", a, b] = Verdict(True, stance, False)
    values = judging.pair_values(found, table).sample(frac=1, random_state=0)
    made = judging.arms_table(values).set_index(["measure", "arm"])
    assert "p" not in made
    assert made.loc[("disagree", "hplus"), "value"] == 0
    assert made.loc[("disagree", "chr@1"), "difference"] == pytest.approx(1 / 6)
    assert made.loc[("agree", "chr@0.4"), "difference"] == 0


def test_the_filter_removes_what_disagrees_with_something_better_and_refills_nothing():
    both, one = Verdict(True, "disagree", True), Verdict(True, "unclear", True)
    found = {("real/q", "a", "c"): both, ("real/q", "c", "d"): both, ("real/q", "b", "e"): one}
    assert judging.filtered("abcde", "q", found, "both passes") == list("abde")  # c is gone first
    assert judging.filtered("abcde", "q", found, "any pass") == list("abd")
    assert judging.filtered("abcde", "other", found, "any pass") == list("abcde")


def test_the_filter_is_scored_by_what_the_rest_supports():
    question = SimpleNamespace(qid="q", answer="A", options={"A": "", "B": ""})
    runs = [(arm, "q", rank, pid) for arm in ARMS for rank, pid in enumerate("ab", 1)]
    runs = pd.DataFrame(runs, columns=["arm", "qid", "rank", "pid"])
    found = {("real/q", "a", "b"): Verdict(True, "disagree", True)}
    says = {("q", "a"): frozenset("A"), ("q", "b"): frozenset("B")}
    judged = {key: Evidence(3, letters, frozenset(), letters) for key, letters in says.items()}
    values = judging.filter_values(found, runs, [question], judged)
    table = judging.filter_table(values).set_index(["arm", "metric"])
    own = table[table["rule"] == "both passes"].loc["hplus"]
    assert own["touched"].tolist() == [1] * 4 and own["removed"].tolist() == [1] * 4
    assert own.loc["supports_wrong", ["before", "value"]].tolist() == [1, 0]
    assert own.loc["supports_correct", ["before", "value"]].tolist() == [1, 1]
    assert own.loc["share_wrong_at_5", "before"] == pytest.approx(0.2)


@pytest.fixture(scope="module")
def both():
    encoder = load_encoder("minilm", precision="float32")
    scorer = Scorer(load_backend("cues"), encoder, "percentile")
    opened = pools.open_pools("evidence-mini", encoder, scorer)
    return pools.with_judged(opened, encoder, {})


def test_judged_values_take_the_place_of_scores_and_nothing_else_changes(both):
    opened, own = both["modelled"], both["judged"]
    assert list(both) == ["judged", "modelled"]
    columns = ["qid", "id", "relevance", "score"]
    assert own.ranked[columns].equals(opened.ranked[columns])
    found = verdicts(read_pair_judgments())
    of_mini = {key[1:]: v for key, v in found.items() if key[0].startswith("mini/")}
    disagree = {pair for pair, verdict in of_mini.items() if verdict.stance == "disagree"}
    said = own.pairs[own.pairs["value"] == 1]
    wanted = {pair for pair in disagree if "plant:" not in "".join(pair)}
    assert set(zip(said["a"], said["b"], strict=True)) == wanted
    for qid, pool in own.ranked.groupby("qid"):
        ids = set(pool["id"])
        for i, cnt in zip(pool["id"], pool["cnt"], strict=True):
            against = sum(i in pair and set(pair) <= ids for pair in wanted)
            assert cnt == pytest.approx(against / (len(ids) - 1)), (qid, i)


def test_where_nothing_was_judged_the_model_stands_alone(both):
    opened = both["modelled"]
    other = {f"x{i}": abstract for i, abstract in opened.evidence.items()}
    renamed = replace(
        opened, evidence=other, ranked=opened.ranked.assign(id="x" + opened.ranked["id"])
    )
    # Real abstracts whose queries are not among the judged: a pair that was read elsewhere is no
    # reason to call the unread ones judged.
    real = {i: replace(abstract, topic="") for i, abstract in opened.evidence.items()}
    for alone in (renamed, replace(opened, evidence=real)):
        assert list(pools.with_judged(alone, None, {})) == ["modelled"]


def test_disagreements_can_be_read(both):
    table = judging.most_contradictory(both["judged"])
    assert len(table) == 12 and table["topic"].is_unique and set(table["why"]) <= set(REASONS)
    pairs = both["judged"].pairs
    shown = with_sentences(pairs[pairs["value"] == 1], both["judged"].texts)
    assert set(table["says_a"]) <= set(shown["sentence_a"]) and table["says_b"].ne("").all()
    grids = study.beside({name: study.table3(own) for name, own in both.items()})
    assert grids["contradiction"].unique().tolist() == ["judged", "modelled"]


def test_fresh_pairs_are_scored_and_every_miss_is_named():
    made = judging.fresh_table([load_backend("cues"), load_backend("cosine")])
    assert Counter(made["intended"]) == {"disagree": 8, "agree": 6, "other": 6}
    table = pd.DataFrame(
        {
            "pid": ["fresh-1", "fresh-2", "fresh-3", "fresh-4"],
            "intended": ["disagree", "disagree", "agree", "other"],
            "first": ["disagree", "agree", "agree", "unjudged"],
            "model": [0.9, 0.3, 0.5, 0.6],
        }
    )
    judge, model = judging.fresh_summary(table).to_dict("records")
    assert (judge["by"], judge["right"], judge["missed"]) == ("judge, first pass", 2, "2, 4")
    assert (model["by"], model["right"], model["missed"]) == ("model", 2, "2, 4")
    assert model["ranked"] == 0.5  # .9 above .5, .3 below it


def test_the_committed_labels_make_every_table(tmp_path, monkeypatch):
    monkeypatch.setenv("CHR_OUT", str(tmp_path))
    encoder = load_encoder("hash")
    made = judged_tables(load_profile("mini"), "evidence-mini", encoder)
    judge = made["contradiction_judge"].set_index(["check", "label"])["value"]
    kappa = judge["kappa of first and second pass", "disagree"]
    assert kappa >= LEAST_KAPPA
    assert judge["planted: all planted pairs", "error"] <= MOST_ERRORS
    judged_pairs = made["contradiction_judged"].set_index(["group", "measure"])["n"]
    wanted = {"mini": 340, "query": 1260, "near": 340}
    assert {group: judged_pairs[group, "same"] for group in wanted} == wanted
    periods = made["contradiction_periods"].set_index("period")["n"]
    assert (
        periods["all"]
        == periods.drop("all").sum()
        == len({i for pool in mini_pools() for pair in pool.pairs for i in pair})
    )
