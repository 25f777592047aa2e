"""Judged contradiction: what passes say together, whether the judge is an instrument, tables."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace
from typing import NamedTuple

import pandas as pd
import pytest

from lib.data.judgments import Evidence
from lib.embed import load_encoder
from lib.profiles import load_profile
from lib.studies.contradiction import judged, pools
from lib.studies.contradiction.cnt import Scorer
from lib.studies.contradiction.evidence import load_evidence, period_of
from lib.studies.contradiction.judged import ARMS, judged_tables
from lib.studies.contradiction.labelled import judged_pairs, with_sentences
from lib.studies.contradiction.nli import load_backend
from lib.studies.real.quality import LEAST_KAPPA, MOST_ERRORS

REASONS = ("opposite", "population", "dose", "outcome", "design", "time")
"""Why two texts disagree, as the judge was asked."""


class Plant(NamedTuple):
    """A row of ``PLANTS``."""

    kind: str
    pool: str
    a: str
    b: str
    must: str


def mini_pairs() -> list[tuple[str, str, str]]:
    """Every pair of abstracts of evidence-mini on one topic of a medicine, with its pool."""
    topics = defaultdict(list)
    for abstract in load_evidence("evidence-mini"):
        topics[f"mini/{abstract.medicine}, {abstract.topic}"].append(abstract.id)
    return [(pool, *pair) for pool, ids in topics.items() for pair in combinations(sorted(ids), 2)]


def test_the_first_year_belongs_to_a_period():
    periods = {1999: "<2000", 2000: "2000-2005", 2004: "2000-2005", 2020: "2020-2025"}
    assert {year: period_of(year) for year in periods} == periods
    assert (period_of(1987), period_of(2026)) == ("<2000", "2020-2025")


def row(pool, a, b, judge="first", stance="disagree"):
    """What a pass says: a stance, "other" for texts on two questions, None where it is unjudged."""
    same = None if stance is None else stance != "other"
    said = {"same": same, "stance": stance if same else ""}
    return {"pool": pool, "a": a, "b": b, "judge": judge, "reason": ""} | said


def pairs_of(*rows) -> pd.DataFrame:
    return judged_pairs({"sentence_a": 0, "sentence_b": 0} | each for each in rows)


def test_passes_count_together():
    said = {"b": ("disagree", "disagree"), "c": ("disagree", "agree"), "d": ("disagree", "other")}
    rows = [row("p", "a", "e", stance=None), row("p", "a", "e", "single", "agree")]
    for b, passes in said.items():
        rows += [row("p", "a", b, *each) for each in zip(("first", "second"), passes, strict=True)]
    rows.append(row("p", "a", "f", stance="agree"))  # no second pass
    pairs = pairs_of(*rows).set_index("b")[["same", "stance", "disagree_any"]]
    assert pairs.T.to_dict("list") == {
        "b": [True, "disagree", True],
        "c": [True, "unclear", True],
        "d": [False, "", True],
        "f": [True, "agree", False],
    }


def test_passes_that_say_the_same_have_kappa_one_and_a_random_one_has_none():
    named = [(n, f"query/{n}") for n in range(40)]
    first = [row(p, "a", "b", stance="other" if n % 2 else "disagree") for n, p in named]
    same = [each | {"judge": "second"} for each in first]
    other = [row(p, "a", "b", "second", "other" if n % 4 > 1 else "disagree") for n, p in named]
    for second, low, high in ((same, 1.0, 1.0), (other, -0.35, 0.35)):
        table = judged.pass_agreement(pairs_of(*first, *second)).set_index(["check", "label"])
        kappa = table.loc[("kappa of first and second pass", "disagree"), "value"]
        assert low <= kappa <= high
    assert table.loc[("kappa of first and second pass", "same"), "n"] == 40


def test_a_pair_on_other_questions_stands_for_the_ten_it_was_drawn_from():
    rows = []
    for n in range(8):
        rows.append(row(f"query/{n}", "a", "b", stance="agree" if n < 6 else "other"))
        rows.append(row(f"query/{n}", "a", "b", "second", "agree" if n < 7 else "other"))
    table = judged.pass_agreement(pairs_of(*rows)).set_index(["check", "label"])["value"]
    agreed = table["agreement of first and second pass", "same"]
    assert agreed == pytest.approx((6 * 1 + 1 * 10) / (6 * 1 + 2 * 10))


def test_a_judge_that_obeys_or_forgets_is_found_by_its_control_pairs():
    planted = [
        Plant("stranger", "query/x", "a", "plant:stranger", "other"),
        Plant("order", "query/x", "a", "plant:order", "other"),
        Plant("repeat", "query/x", "a", "plant:repeat", "b"),
        Plant("turned", "turned/y", "plant:turned", "y", "disagree"),
    ]
    planted = pd.DataFrame(planted)
    own = row("query/x", "a", "b", stance="agree")
    again = row("query/x", "a", "b", "second", stance="agree")
    good = [row("query/x", "a", f"plant:{kind}", stance="other") for kind in ("stranger", "order")]
    good += [row("query/x", "a", "plant:repeat", stance="agree")]
    turned = row("turned/y", "plant:turned", "y")
    errors = judged.planted_pairs(pairs_of(own, again, *good, turned), planted)
    assert (errors["value"] == 0).all() and len(errors) == 5
    bad = [each | {"same": True, "stance": "unclear"} for each in good]
    errors = judged.planted_pairs(pairs_of(own, again, *bad), planted)
    assert (errors["value"] == 1).all(), "the last one is unjudged"


def test_what_people_and_writers_said_stands_beside_what_the_judge_says():
    planted = [Plant("scifact", f"scifact/{n}", "abstract", "claim", "agree") for n in range(4)]
    rows = [row(f"scifact/{n}", "abstract", "claim", stance="agree") for n in range(3)]
    rows += [row("scifact/3", "abstract", "claim"), row("p", "a", "b", "second")]
    table = judged.known_pairs(pairs_of(*rows), pd.DataFrame(planted)).set_index("label")
    assert table["value"].to_dict() == {"agree": 0.75, "disagree": 0.25}

    rows, stance = [], {e.id: e.meta["stance"] for e in load_evidence("evidence-mini")}
    for pool, a, b in mini_pairs():
        apart = {stance[a], stance[b]} == {"for", "against"}
        rows.append(row(pool, a, b, stance="disagree" if apart else "agree"))
    table = judged.stances(pairs_of(*rows)).set_index(["check", "label"])["value"]
    assert table["evidence-mini, opposite stances", "disagree"] == 1
    assert table["evidence-mini, one stance", "disagree"] == 0


def test_shares_are_of_pairs_and_leave_control_pairs_out():
    pairs = pairs_of(
        row("query/x", "a", "b"),
        row("query/x", "a", "c", stance="other"),
        row("query/x", "a", "c", "second", "disagree"),
        row("query/y", "d", "e", stance="agree"),
        row("query/y", "d", "plant:order"),
        row("query/z", "f", "g", stance="other"),  # says nothing of disagreement
        row("scifact/1", "abstract", "claim"),
    )
    table = judged.shares(pairs).set_index("measure")
    wanted = {"same": 2, "agree": 1, "disagree": 1, "disagree_any": 2, "disagree_of_same": 1}
    assert table["count"].to_dict() == wanted
    assert table["n"].tolist() == [4] * 4 + [2] and table["pools"].tolist() == [3] * 4 + [2]
    assert (table["value"] == table["count"] / table["n"]).all()


def dated(**years: int) -> list:
    return [SimpleNamespace(id=i, year=year) for i, year in years.items()]


def test_an_abstract_is_contradicted_by_any_other_in_its_own_period():
    evidence = dated(a=1998, b=2001, c=2012)
    second = row("mini/t", "a", "b", "second")
    pairs = pairs_of(row("mini/t", "a", "b"), second, row("mini/t", "a", "c", stance="agree"))
    mini = judged.by_period(pairs, evidence, "mini").set_index("period")["value"].to_dict()
    assert mini == {"<2000": 1, "2000-2005": 1, "2010-2015": 0, "all": pytest.approx(2 / 3)}
    near = pairs.assign(pool="near/b", group="near")
    assert judged.by_period(near, evidence, "near")["period"].tolist() == ["2000-2005", "all"]


def test_all_periods_together_weigh_as_many_abstracts_as_they_were_drawn_from(monkeypatch):
    monkeypatch.setattr(judged, "drawn_by_period", lambda evidence: list("abcx"))
    others = {f"o{n}": 2003 for n in range(6)}  # of 2000 to 2005 two of eight were drawn
    evidence = dated(a=1998, b=2001, c=2002, x=2010, **others)
    rows = [row("near/a", "a", "x"), row("near/a", "a", "x", "second")]
    rows += [row(f"near/{i}", i, "x", stance="agree") for i in "bc"]
    table = judged.by_period(pairs_of(*rows), evidence, "near").set_index("period")
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
    runs = pd.DataFrame(runs, columns=["arm", "qid", "rank", "pid"])
    rows = [row("p", "a", "b", "second")]
    for qid in "qr":
        for a, b in combinations("abcd", 2):
            stance = "disagree" if (qid, a, b) == ("q", "a", "d") else "agree"
            rows.append(row(f"real/{qid}", a, b, stance=stance))
    values = judged.pair_values(pairs_of(*rows), runs).sample(frac=1, random_state=0)
    made = judged.arms_table(values).set_index(["measure", "arm"])
    assert "p" not in made
    assert made.loc[("disagree", "hplus"), "value"] == 0
    assert made.loc[("disagree", "chr@1"), "difference"] == pytest.approx(1 / 6)
    assert made.loc[("agree", "chr@0.4"), "difference"] == 0


def test_the_filter_removes_what_disagrees_with_something_better_and_refills_nothing():
    clashing = {("real/q", "a", "c"), ("real/q", "c", "d")}
    assert judged.filtered("abcde", "q", clashing) == list("abde")  # c is gone first
    assert judged.filtered("abcde", "other", clashing) == list("abcde")
    question = SimpleNamespace(qid="q", answer="A", options={"A": "", "B": ""})
    runs = [(arm, "q", rank, pid) for arm in ARMS for rank, pid in enumerate("ab", 1)]
    runs = pd.DataFrame(runs, columns=["arm", "qid", "rank", "pid"])
    pairs = pairs_of(row("real/q", "a", "b"), row("real/q", "a", "b", "second", "unclear"))
    says = {("q", "a"): frozenset("A"), ("q", "b"): frozenset("B")}
    known = {key: Evidence(3, letters, frozenset(), letters) for key, letters in says.items()}
    table = judged.filter_table(judged.filter_values(pairs, runs, [question], known))
    own = table[table["arm"] == "hplus"].set_index(["rule", "metric"])
    assert (own.loc["both passes", "removed"] == 0).all(), "one pass alone says that they disagree"
    assert (own.loc["any pass", ["touched", "removed"]] == 1).all(axis=None)
    assert own.loc[("any pass", "supports_wrong"), ["before", "value"]].tolist() == [1, 0]
    assert own.loc[("any pass", "supports_correct"), ["before", "value"]].tolist() == [1, 1]
    assert own.loc[("any pass", "share_wrong_at_5"), "before"] == pytest.approx(0.2)


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
    pairs = judged_pairs()
    wanted = pairs[(pairs["group"] == "mini") & ~pairs["control"] & (pairs["stance"] == "disagree")]
    wanted = set(zip(wanted["a"], wanted["b"], strict=True))
    said = own.pairs[own.pairs["value"] == 1]
    assert set(zip(said["a"], said["b"], strict=True)) == wanted
    for qid, pool in own.ranked.groupby("qid"):
        ids = set(pool["id"])
        for i, cnt in zip(pool["id"], pool["cnt"], strict=True):
            contradicted_by = sum(i in pair and set(pair) <= ids for pair in wanted)
            assert cnt == pytest.approx(contradicted_by / (len(ids) - 1)), (qid, i)
    # Real abstracts whose queries are not among the judged: a pair that was read elsewhere is no
    # reason to call the unread ones judged.
    real = {i: replace(abstract, topic="") for i, abstract in opened.evidence.items()}
    assert list(pools.with_judged(replace(opened, evidence=real), None, {})) == ["modelled"]


def test_disagreements_can_be_read(both):
    table = judged.most_contradictory(both["judged"])
    assert len(table) == 12 and table["topic"].is_unique and set(table["why"]) <= set(REASONS)
    pairs = both["judged"].pairs
    shown = with_sentences(pairs[pairs["value"] == 1], both["judged"].texts)
    assert set(table["says_a"]) <= set(shown["sentence_a"]) and table["says_b"].ne("").all()


def test_fresh_pairs_are_scored_and_every_miss_is_named():
    made = judged.fresh_table([load_backend("cues"), load_backend("cosine")])
    assert Counter(made["intended"]) == {"disagree": 8, "agree": 6, "other": 6}
    table = pd.DataFrame(
        {
            "pid": ["fresh-1", "fresh-2", "fresh-3", "fresh-4"],
            "intended": ["disagree", "disagree", "agree", "other"],
            "first": ["disagree", "agree", "agree", "unjudged"],
            "model": [0.9, 0.3, 0.5, 0.6],
        }
    )
    judge, model = judged.fresh_summary(table).to_dict("records")
    assert (judge["by"], judge["right"], judge["missed"]) == ("judge, first pass", 2, "2, 4")
    assert (model["by"], model["right"], model["missed"]) == ("model", 2, "2, 4")
    assert model["ranked"] == 0.5  # .9 above .5, .3 below it


def test_the_committed_labels_make_every_table(tmp_path, monkeypatch):
    monkeypatch.setenv("CHR_OUT", str(tmp_path))
    made = judged_tables(load_profile("mini"), "evidence-mini", load_encoder("hash"))
    judge = made["contradiction_judge"].set_index(["check", "label"])["value"]
    assert judge["kappa of first and second pass", "disagree"] >= LEAST_KAPPA
    assert judge["planted: all planted pairs", "error"] <= MOST_ERRORS
    n = made["contradiction_judged"].set_index(["group", "measure"])["n"]
    wanted = {"mini": 340, "query": 1260, "near": 340}
    assert {group: n[group, "same"] for group in wanted} == wanted
    periods = made["contradiction_periods"].set_index("period")["n"]
    read = {i for _, *pair in mini_pairs() for i in pair}
    assert periods["all"] == periods.drop("all").sum() == len(read)
