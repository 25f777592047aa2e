"""RAG2's result tables, by brute force on small made-up sets; and that what is stored is whole."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from lib.studies.rag2 import filter_results
from lib.studies.rag2.filters import card_of

TARGETS = {"b1": frozenset({"p0", "p1"}), "b2": frozenset({"p3"})}


@pytest.fixture
def helpful(tmp_path, monkeypatch, own_folders):
    file = tmp_path / "helpful.csv"
    rows = ["qid,pid,helpful", "b1,p0,1", "b1,p1,0", "b1,p2,0", "b2,p3,1", "b2,p4,1", "b2,p5,0"]
    file.write_text("\n".join(rows) + "\n")
    monkeypatch.setattr(filter_results, "HELPFUL", file)


def test_the_judge_and_every_filter_are_held_against_the_experts(helpful):
    lines = {("numbered", "likelier than not"): 0.5, ("numbered", "as 5 % of training"): 2.0}
    pairs = filter_results._asked()
    pairs["given"] = [row.pid in TARGETS[row.qid] for row in pairs.itertuples()]
    pairs["numbered"] = [int(pid[1:]) / 5 for pid in pairs["pid"]]
    table = filter_results.judge_table(pairs, ["numbered"], lines)
    judge, filtered, empty = table.to_dict("records")
    # Helpful says p0, p3, p4; the experts gave p0, p1, p3.
    assert judge["filter"] == "a large language model"
    assert (judge["precision"], judge["recall"], judge["kept"]) == pytest.approx(
        (2 / 3, 2 / 3, 0.5)
    )
    assert judge["auroc"] == pytest.approx(2 / 3)
    # p3, p4 and p5 are kept; of couples (given, other) only p3 against p2 is in order.
    assert (filtered["precision"], filtered["recall"]) == pytest.approx((1 / 3, 1 / 3))
    assert filtered["auroc"] == pytest.approx(1 / 9)
    assert np.isnan(empty["precision"])
    assert empty["recall"] == empty["kept"] == 0
    assert set(table["n"]) == {6}


def test_lines_are_those_of_the_set_that_is_measured():
    both, exams, bioasq = (
        filter_results.lines_of(("cosine",), on) for on in ("", "medmcqa", "bioasq")
    )
    card = card_of("cosine")
    for lines, ending in ((both, ""), (exams, "_medmcqa"), (bioasq, "_bioasq")):
        assert lines == {
            ("cosine", "as 25 % of training"): card[f"threshold_25{ending}"],
            ("cosine", "as 5 % of training"): card[f"threshold_05{ending}"],
        }
    assert len(filter_results.lines_of(("head-ppl-25",), "bioasq")) == 3


def test_labels_are_held_against_what_the_experts_gave():
    rows = []
    differences = {"p0": 1.0, "p1": 0.2, "p2": -0.5, "p3": 2.0, "p4": 0.3, "p5": 0.1}
    for pid, difference in differences.items():
        for rationale, sign in (("expert", 1), ("own", -1)):
            rows.append(
                {
                    "dataset": "bioasq",
                    "part": "train",
                    "qid": "b1" if pid < "p3" else "b2",
                    "pid": pid,
                    "given": int(pid in ("p0", "p1", "p3")),
                    "rationale": rationale,
                    "delta_ppl": sign * difference,
                    "delta_log_ppl": sign * difference**3,
                    "cosine": difference,
                    "bm25": -difference,
                }
            )
    labels = pd.DataFrame(rows)
    table = filter_results.label_table(labels).set_index(["rationale", "score"])
    # given: 1.0, .2, 2.0; others: -.5, .3, .1; only .2 against .3 is out of order.
    assert table.loc[("expert", "delta_ppl"), "value"] == pytest.approx(8 / 9)
    assert table.loc[("own", "delta_ppl"), "value"] == pytest.approx(1 / 9)
    assert table.loc[("expert", "delta_log_ppl"), "value"] == pytest.approx(8 / 9)
    # Within b1 both given passages come before the other one; b2 has p3 before p4 and p5.
    assert table.loc[("expert", "delta_ppl"), "within"] == 1
    assert table.loc[("own", "cosine"), "value"] == pytest.approx(8 / 9)
    assert table.loc[("own", "bm25"), "value"] == pytest.approx(1 / 9)
    assert "expert, own's questions" in table.index.get_level_values("rationale")
    assert set(table["n"]) == {6}
    assert set(table["positives"]) == {3}
    assert table.loc[("expert", "delta_ppl"), "positive_share"] == pytest.approx(5 / 6)
