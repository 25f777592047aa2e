"""The tables of the real sample, against sums that anyone can do."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from lib.studies.real.tables import (
    LAMBDA_COLUMNS,
    arm_table,
    claims_table,
    judged_share,
    lambda_rows,
    purity_table,
)
from lib.studies.real.texts_table import texts_table

from lib.datasets import Question
from lib.methods.base import Expansion
from lib.query_spec import Hypotheses

ARMS = ("hplus", "chr@1", "chr+rotation@1", "hyde-options", "hplus+hplus-stem", "question")


def values(outcome) -> pd.DataFrame:
    """Forty exam questions a set; ``outcome(arm, metric, i)`` is what an arm scores on the ith."""
    rows = [
        (dataset, arm, f"{dataset}-{i}", metric, float(outcome(arm, metric, i)))
        for dataset in ("medqa", "mmlu")
        for arm in ARMS
        for metric in ("hit_right", "misled")
        for i in range(40)
    ]
    return pd.DataFrame(rows, columns=["dataset", "arm", "qid", "metric", "value"])


def primary(table: pd.DataFrame, metric: str, against: str = "hplus") -> pd.Series:
    own = table[(table["status"] == "primary") & (table["metric"] == metric)]
    return own[own["against"] == against].iloc[0]


def fewer_misled(arm, metric, i):
    """Contrast misleads on no question, all else on half of them; it loses no right support."""
    return metric == "hit_right" or (arm != "chr@1" and i % 2 > 0)


def test_fewer_misled_counts_as_exclusion_when_no_right_support_is_lost():
    row = primary(claims_table(values(fewer_misled), {"exams": 0.0, "bioasq": 0.0}, True), "misled")
    assert (row["verdict"], row["excludes"]) == ("SUPPORTED", "yes")


def test_it_does_not_count_where_right_support_is_lost_too():
    def outcome(arm, metric, i):
        if metric == "hit_right":
            return arm != "chr@1" or i % 4 > 0
        return fewer_misled(arm, metric, i)

    table = claims_table(values(outcome), {"exams": 0.0, "bioasq": 0.0}, True)
    assert primary(table, "misled")["excludes"] == "no"
    assert primary(table, "hit_right")["verdict"] == "AGAINST"


def test_without_an_instrument_exams_get_no_verdict_words():
    table = claims_table(values(fewer_misled), {"exams": 0.0, "bioasq": 0.0}, False)
    assert (table["verdict"] == "").all() and (table["excludes"] != "yes").all()


def test_holm_is_over_the_declared_tests_alone():
    table = claims_table(values(fewer_misled), {"exams": 0.0, "bioasq": 0.0}, True)
    assert table["p_holm"].notna().eq(table["status"] == "primary").all()
    assert (table["status"] == "exploratory").sum() > 5


def test_both_exam_sets_are_shown_together_and_apart():
    table = arm_table(values(lambda arm, metric, i: i < 10))
    sizes = table.groupby("dataset")["n"].first().to_dict()
    assert sizes == {"exams": 80, "medqa": 40, "mmlu": 40}
    assert table["value"].to_list() == pytest.approx([0.25] * len(table))


def test_curves_hold_contrast_alone_each_described_once():
    table = arm_table(values(lambda arm, metric, i: 1))
    rows = lambda_rows(table, {"exams": 0.0, "bioasq": 0.2})
    assert tuple(rows.columns) == LAMBDA_COLUMNS
    own = rows[(rows["dataset"] == "exams") & (rows["metric"] == "misled")]
    found = set(zip(own["form"], own["mimic"], own["lambda"], strict=True))
    assert found == {
        ("one mimic", "own", 0.0),
        ("one mimic", "own", 1.0),
        ("one mimic", "matched rotation", 1.0),
    }


def test_purity_is_of_the_passages_that_speak_not_of_the_places():
    """Contrast loses nine of ten passages for either side: misled falls, and purity stays."""

    def outcome(arm, metric, i):
        few = arm != "chr@1" or i % 10 == 0
        return few * (0.8 if metric == "supports_right_at_5" else 0.2)

    parts = []
    for metric in ("supports_right_at_5", "supports_wrong_at_5"):
        own = values(lambda arm, _, i, metric=metric: outcome(arm, metric, i))
        parts.append(own.assign(metric=metric).drop_duplicates())
    table = pd.concat(parts, ignore_index=True)
    found = purity_table(table).set_index("arm")
    assert found["value"].to_list() == pytest.approx([0.8] * len(ARMS))
    assert found.loc["hplus", ["right", "wrong", "n"]].tolist() == pytest.approx([320, 80, 80])
    assert found.loc["chr@1", ["right", "wrong"]].tolist() == pytest.approx([32, 8])


def test_an_arm_that_finds_nothing_that_speaks_has_no_purity():
    nothing = values(lambda *_: 0)
    parts = [nothing.assign(metric=f"supports_{side}_at_5") for side in ("right", "wrong")]
    assert purity_table(pd.concat(parts).drop_duplicates()).empty


def test_the_least_judged_arm_comes_first():
    share = values(lambda arm, metric, i: 1).assign(metric="judged_share")
    share.loc[share["arm"] == "hplus", "value"] = np.float64(0.5)
    assert judged_share(arm_table(share))["arm"].iloc[0] == "hplus"


# what was written --------------------------------------------------------------------------------


def test_texts_are_counted_by_length_repeats_validity_and_copied_words():
    asked = [
        Question(f"q{i}", "one two three four five six seven eight nine", {}, "", "mmlu")
        for i in range(2)
    ]
    pair = {"H_plus": "gout hurts", "H_minus": "gout hurts", "replies": []}
    written = {
        "hypotheses": {"q0": Expansion(Hypotheses(()), pair), "q1": Expansion(None, {})},
        "hyde": {"q0": Expansion(Hypotheses(()), {"passages": [asked[0].text]})},
        "differential": {"q0": Expansion(Hypotheses(()), pair | {"mimics": ["a", "b c"]})},
        "csqe": {},
    }
    table = texts_table(asked, written).set_index("kind")
    assert list(table.index) == ["hypotheses", "hyde", "differential"]
    own = table.loc["hypotheses"]
    assert (own["questions"], own["texts"], own["invalid"], own["repeated"]) == (2, 2, 1, 2)
    assert own["words"] == 2 and own["copied"] == 0 and table.loc["hyde", "copied"] == 1
    assert (table.loc["differential", "texts"], table.loc["differential", "longest"]) == (2, 2)
