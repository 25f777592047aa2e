"""The one skeleton: arms searched and measured by question, means, storing, and a study of one's
own that is found as a file."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

from lib import studies, study, verify
from lib.base import paths
from lib.embed import HashEncoder
from lib.profiles import load_profile
from lib.query_spec import Hypotheses, Text
from lib.run import Retriever
from lib.search.index import DenseIndex
from lib.stats import mean_interval
from lib.study import Arm, Study, means, search_and_measure

WORDS = [f"word{i}" for i in range(30)]


@dataclass
class Collection:
    retriever: Retriever
    qids: tuple[str, ...] = ("a", "b", "c")
    data: tuple[str, ...] = ()


@pytest.fixture
def collection(own_folders) -> Collection:
    encoder = HashEncoder()
    index = DenseIndex([encoder.encode(WORDS, "article")], WORDS)
    return Collection(Retriever(index, encoder))


def first_rank(collection, found):
    rows = {qid: {"word7": float("word7" in pids), "n": len(pids)} for qid, pids in found.items()}
    return pd.DataFrame.from_dict(rows, orient="index")


def asked(qid, draw):
    """Of "c" nothing is known; the first draw asks for the word itself, the second for another."""
    return None if qid == "c" else Hypotheses((Text(f"word{7 + draw}"),))


def test_outcomes_are_means_over_draws_of_the_questions_that_can_be_searched(collection):
    arms = [Arm("one", asked), Arm("several", asked, draws=2)]
    values = search_and_measure(lambda _: arms, first_rank, depth=1)(collection)
    wide = values.pivot(index=["arm", "qid"], columns="metric", values="value")
    assert set(wide.index) == {(arm, qid) for arm in ("one", "several") for qid in "ab"}
    assert (wide["n"] == 1).all()
    assert wide.loc["one", "word7"].tolist() == [1, 1]
    assert wide.loc["several", "word7"].tolist() == [0.5, 0.5]


def test_means_do_not_hang_on_the_order_of_rows():
    generator = np.random.default_rng(0)
    qids = [f"q{i}" for i in range(40)]
    values = pd.DataFrame({"dataset": "d", "arm": "a", "metric": "m", "qid": qids})
    values["value"] = generator.random(40)
    table = means(values)
    assert table.equals(means(values.sample(frac=1, random_state=1)))
    ordered = values.sort_values("qid")["value"].to_numpy()
    assert table.loc[0, ["value", "low", "high"]].tolist() == list(mean_interval(ordered))
    assert table.loc[0, "n"] == 40


def test_outcomes_are_measured_once_and_tables_follow_from_what_is_on_file(collection, own_folders):
    calls = []

    def outcomes(given):
        calls.append("measured")
        return search_and_measure(lambda _: [Arm("one", asked)], first_rank)(given)

    def follow(given, values):
        calls.append("followed")
        return {"made_means": means(values.assign(dataset="d"))}

    one = Study("made", "lib.study", lambda _: collection, {"made_values": outcomes}, (), follow)
    one = Study(**vars(one) | {"tables": ("made_means",)})
    profile = load_profile("mini")
    first = study.make(one, profile, collection)
    assert calls == ["measured", "followed"] and [*first] == ["made_values", "made_means"]
    again = study.make(one, profile, collection)
    assert calls == ["measured", "followed"]
    assert all(again[name].equals(first[name]) for name in first)
    other = Study(**vars(one) | {"origin": lambda _: {"k": 7}})
    study.make(other, profile, collection)
    assert calls == ["measured", "followed"] * 2


def test_a_study_of_ones_own_is_one_file(tmp_path, monkeypatch, capsys):
    """It is found, verified by name, and has a figure; until it is committed, verify says so."""
    monkeypatch.setenv("CHR_CACHE", str(paths.cache()))  # the passages' vectors are the project's
    file = paths.ROOT / "tests" / "example_study.py"
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 120
    shutil.copy(file, tmp_path / "example_study.py")
    monkeypatch.setattr(studies, "__path__", [*studies.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "lib.studies.example_study", raising=False)
    assert [*studies.further()] == ["example_study"]
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setenv("CHR_PROFILE", "mini")
    made = verify.verify("mini", ["example_study"], dear=False, record=False)
    assert [line.partition(":")[0] for line in made.different] == [
        "swap",
        "values_swap",
        "figures/example_study",
    ]
    rows = pd.read_csv(made.out / "figures" / "mini" / "example_study.csv")
    shares = rows.pivot(index="lambda", columns="metric", values="value")
    assert shares.loc[1, "mimic_at_5"] < shares.loc[0, "mimic_at_5"]
    assert (made.out / "figures" / "mini" / "example_study.png").stat().st_size > 5000
    sys.modules.pop("lib.studies.example_study")
