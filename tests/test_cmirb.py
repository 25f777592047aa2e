"""CMIRB in hub form and cMedIR: what is read, what is refused, and measures by brute force."""

from __future__ import annotations

import inspect
import json
import math
import subprocess
import sys
import tracemalloc
from itertools import islice
from unittest.mock import create_autospec

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.base import paths
from lib.base.downloads import DownloadError
from lib.search.bm25 import words
from lib.studies.slhyde import cmirb
from lib.studies.slhyde.cmedir import BASELINES, bigrams, characters, load_cmedir
from lib.studies.slhyde.cmirb import TASKS, Task, estimate, load_task, measure_task
from lib.studies.slhyde.evaluate import bm25_run

NAME = "DuBaikeRetrieval"
CORPUS = [{"id": "p1", "text": "痛风是嘌呤代谢病。"}, {"id": "p2", "text": "流感由病毒引起。"}]
QUERIES = [{"id": "q1", "text": "什么是痛风"}, {"id": "q2", "text": "流感的病因"}]
QRELS = [
    {"q_id": "q1", "p_id": "p1", "score": 1},
    {"q_id": "q1", "p_id": "p2", "score": 0},
    {"q_id": "q2", "p_id": "p2", "score": 2},
]
FILES = {"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES, "qrels/test.jsonl": QRELS}


@pytest.fixture(autouse=True)
def no_mirror(request, monkeypatch):
    """Only the tests of real files read a mirror."""
    if "mirror" not in request.fixturenames:
        monkeypatch.delenv("CHR_MIRROR", raising=False)


def lines(rows) -> str:
    """Records as JSON Lines; a row that is a text stays as it is."""
    texts = (
        row if isinstance(row, str) else json.dumps(row, ensure_ascii=False, allow_nan=True)
        for row in rows
    )
    return "".join(f"{text}\n" for text in texts)


def copy_of_the_hub(folder, **changed):
    """A folder with one good set, some of its files changed: name of the file -> rows or None."""
    for file, rows in (FILES | changed).items():
        path = folder / NAME / file
        path.parent.mkdir(parents=True, exist_ok=True)
        if rows is not None:
            path.write_text(lines(rows), encoding="utf-8")
    return folder


# what the ten are ---------------------------------------------------------------------------------


def test_the_ten_sets_are_those_of_the_papers_tables():
    printed = pd.read_csv(paths.REPORTED / "slhyde_table1.csv")
    kinds = printed.groupby("dataset", sort=False)["task"].first().to_dict()
    assert {info.paper: info.kind for info in TASKS.values()} == kinds
    assert [info.paper for info in TASKS.values()] == list(kinds), "in the paper's order"
    scores = pd.read_csv(paths.REPORTED / "slhyde_table12.csv")
    assert set(scores["dataset"]) - {"Average"} == set(kinds)
    by_template = {}
    for name, info in TASKS.items():
        by_template.setdefault(info.template, []).append(name)
    assert by_template["title to passage"] == ["IIYIPostRetrieval", "CSLCiteRetrieval"]
    assert by_template["text to similar text"] == ["CSLRelatedRetrieval"]
    assert len(by_template["question to passage"]) == 7


def test_estimates_come_near_what_the_hub_shows():
    # MB of the corpus and the queries, as the hub's pages list them
    shown = {
        "MedicalRetrieval": 39.0,
        "CmedqaRetrieval": 87.3,
        "DXYDiseaseRetrieval": 31.3,
        "DXYConsultRetrieval": 14.6,
    }
    for name, size in shown.items():
        assert estimate(name).download_mb == pytest.approx(size, rel=0.1)
    assert (estimate(NAME).queries, estimate(NAME).passages) == (318, 56_441)


def test_import_brings_in_nothing_heavy():
    code = (
        "import sys, lib.studies.slhyde.cmirb, lib.studies.slhyde.cmedir\n"
        "heavy = {'torch', 'transformers', 'huggingface_hub', 'bm25s', 'ir_measures'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=paths.ROOT, capture_output=True)
    assert found.returncode == 0, found.stderr


# reading ------------------------------------------------------------------------------------------


def test_a_set_is_read_as_it_stands(tmp_path):
    task = load_task(copy_of_the_hub(tmp_path), NAME)
    assert task.queries == {"q1": "什么是痛风", "q2": "流感的病因"}
    assert task.qrels == {"q1": {f"{NAME}:p1": 1, f"{NAME}:p2": 0}, "q2": {f"{NAME}:p2": 2}}
    first, second = task.corpus
    assert (first.pid, first.title, first.text) == (f"{NAME}:p1", "", "痛风是嘌呤代谢病。")
    assert second.source == NAME
    assert [p.pid for p in task.corpus] == [first.pid, second.pid], "a second pass is the first"


def test_a_mirror_is_read_before_the_hub(tmp_path, monkeypatch):
    copy_of_the_hub(tmp_path / "cmirb")
    monkeypatch.setenv("CHR_MIRROR", str(tmp_path))
    assert len(list(load_task(None, NAME).corpus)) == 2


def test_the_corpus_streams(tmp_path):
    # 16 MB; the last line is broken, so that nothing may read ahead
    long = "长" * 3_000
    rows = [*CORPUS, *({"id": f"x{i}", "text": f"{i}{long}"} for i in range(1_800)), "{"]
    task = load_task(copy_of_the_hub(tmp_path, **{"corpus.jsonl": rows}), NAME)
    tracemalloc.start()
    count = sum(1 for _ in islice(task.corpus, 1_802))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 1_802 and peak < 1_000_000
    with pytest.raises(DownloadError, match=r"corpus\.jsonl, line 1803"):
        list(task.corpus)


@pytest.mark.parametrize("file", FILES)
def test_a_missing_file_names_the_next_command(tmp_path, file):
    copy_of_the_hub(tmp_path, **{file: None})
    command = f"hf download CMIRB/{NAME} --repo-type dataset"
    with pytest.raises(DownloadError, match=f"no {file} in .*{command}"):
        load_task(tmp_path, NAME)


def test_an_unknown_set_is_answered_with_the_ten(tmp_path):
    with pytest.raises(ValueError, match="MedExamRetrieval, .*CSLRelatedRetrieval"):
        load_task(tmp_path, "cMedIR")


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 3: no record"),
        ("", "line 3: no record"),
        ("[1]", "line 3: no record"),
        ('{"id": 7, "text": "x", "q_id": 7, "p_id": "p1", "score": 1}', "line 3: q?_?id is 7"),
        ('{"id": "a", "q_id": "q1", "score": 1}', "line 3: (text|p_id) is None"),
        ("version https://git-lfs.github.com/spec/v1", "LFS pointer.*git lfs pull"),
    ],
)
def test_a_broken_line_is_named_with_its_number(tmp_path, file, line, message):
    good = FILES[file][:2]
    folder = copy_of_the_hub(tmp_path, **{file: [*good, line]})
    with pytest.raises(DownloadError, match=f"{NAME}.*{message}"):
        list(load_task(folder, NAME).corpus)


def test_what_is_no_utf8_is_named_with_its_number(tmp_path):
    path = copy_of_the_hub(tmp_path) / NAME / "queries.jsonl"
    path.write_bytes(path.read_bytes() + '{"id": "q3", "text": "流感"}\n'.encode("gb18030"))
    with pytest.raises(DownloadError, match=r"queries\.jsonl, line 3: no record.*utf-8"):
        load_task(tmp_path, NAME)


@pytest.mark.parametrize("score", [True, -1, 0.5, "1", None, float("nan")])
def test_a_score_is_a_whole_number(tmp_path, score):
    bad = {"q_id": "q2", "p_id": "p1", "score": score}
    folder = copy_of_the_hub(tmp_path, **{"qrels/test.jsonl": [*QRELS, bad]})
    with pytest.raises(DownloadError, match="line 4: score is"):
        load_task(folder, NAME)


@pytest.mark.parametrize(
    ("file", "extra", "message"),
    [
        ("corpus.jsonl", {"id": "p2", "text": "x"}, "corpus.*line 3: id DuBaike.*:p2 .*twice"),
        ("queries.jsonl", {"id": "q1", "text": "x"}, "queries.*line 3: id q1 occurs twice"),
        ("queries.jsonl", {"id": "q3", "text": "x"}, "query q3 has no relevant passage"),
        ("qrels/test.jsonl", QRELS[1], "line 4: query q1 and passage .*p2 occur twice"),
        ("qrels/test.jsonl", QRELS[0] | {"q_id": "q9"}, "line 4: query q9 is not in queries"),
        ("qrels/test.jsonl", QRELS[0] | {"p_id": "p9"}, "1 judged passages .*first is .*:p9"),
    ],
)
def test_sets_that_do_not_fit_together_are_refused(tmp_path, file, extra, message):
    folder = copy_of_the_hub(tmp_path, **{file: [*FILES[file], extra]})
    with pytest.raises(DownloadError, match=message):
        list(load_task(folder, NAME).corpus)


def test_only_a_score_above_zero_is_relevant(tmp_path):
    rows = [QRELS[0], QRELS[2] | {"score": 0}]
    with pytest.raises(DownloadError, match="query q2 has no relevant passage"):
        load_task(copy_of_the_hub(tmp_path, **{"qrels/test.jsonl": rows}), NAME)


def test_from_the_hub_one_snapshot_after_its_size(tmp_path, monkeypatch, capsys):
    import huggingface_hub

    folder = copy_of_the_hub(tmp_path) / NAME
    said = []

    def snapshot(**_):
        said.append(capsys.readouterr().out)
        return str(folder)

    # By signature, because the real one is wrapped and a mock would take any argument.
    signature = inspect.signature(huggingface_hub.snapshot_download)
    download = create_autospec(huggingface_hub.snapshot_download, side_effect=snapshot)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    task = load_task(None, NAME, revision="abc")
    assert len(list(task.corpus)) == 2 and download.call_count == 1
    signature.bind(**download.call_args.kwargs)
    assert download.call_args.kwargs == {
        "repo_id": f"CMIRB/{NAME}",
        "repo_type": "dataset",
        "revision": "abc",
        "allow_patterns": list(FILES),
    }
    assert "56441 passages" in said[0] and "MB" in said[0], "the size is said first"


def test_without_the_hub_the_reason_and_the_next_step_are_said(monkeypatch):
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    def no_connection(**_):
        raise LocalEntryNotFoundError("Name or service not known")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", no_connection)
    with pytest.raises(DownloadError, match="CMIRB/DuBaike.*not known.*goes on where it stopped"):
        load_task(None, NAME)


# measures -----------------------------------------------------------------------------------------


def by_hand(ranked: list[str], scores: dict[str, int]) -> tuple[float, float]:
    """nDCG@10 with the score as gain, and Recall@100 of what scores above 0, from the formulas."""

    def dcg(gains):
        return sum(gain / math.log2(place + 1) for place, gain in enumerate(gains[:10], 1))

    relevant = {pid for pid, score in scores.items() if score > 0}
    best = dcg(sorted(scores.values(), reverse=True))
    ndcg = dcg([scores.get(pid, 0) for pid in ranked]) / best
    return ndcg, len(relevant & set(ranked[:100])) / len(relevant)


PIDS = [f"p{i:03d}" for i in range(130)]
SCORES = st.dictionaries(st.sampled_from(PIDS), st.integers(0, 4), min_size=1, max_size=25).filter(
    lambda scores: max(scores.values()) > 0
)


@given(
    st.dictionaries(st.sampled_from("abc"), SCORES, min_size=1),
    st.dictionaries(st.sampled_from("abcd"), st.permutations(PIDS)),
    st.integers(0, 130),
)
def test_measures_are_their_formulas(qrels, run, length):
    run = {qid: pids[:length] for qid, pids in run.items()}
    table = measure_task(run, qrels)
    assert set(table.index) == set(qrels) and list(table.columns) == list(cmirb.MEASURES)
    for qid, scores in qrels.items():
        wanted = by_hand(run.get(qid, []), scores)
        assert table.loc[qid].to_list() == pytest.approx(wanted, abs=1e-9)


def test_graded_scores_and_depth_move_the_measures():
    others = [f"x{i:03d}" for i in range(200)]
    qrels = {"q": {"good": 3, "fair": 1, "off": 0}}
    best = measure_task({"q": ["good", "fair", "off"]}, qrels).loc["q"]
    turned = measure_task({"q": ["fair", "good", "off"]}, qrels).loc["q"]
    assert best["ndcg_at_10"] == 1 > turned["ndcg_at_10"] == pytest.approx(0.7967, abs=1e-4)
    late = measure_task({"q": [*others[:10], "good", *others[10:99], "fair"]}, qrels).loc["q"]
    assert (late["ndcg_at_10"], late["recall_at_100"]) == (0, 0.5)


def test_a_query_that_found_nothing_counts_zero():
    qrels = {"one": {"p": 1}, "two": {"p": 1}}
    assert measure_task({"one": ["p"], "two": []}, qrels)["ndcg_at_10"].to_list() == [1, 0]
    assert measure_task({}, qrels).to_numpy().sum() == 0


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(ValueError, match="twice"):
        measure_task({"q": ["p", "x", "p"]}, {"q": {"p": 1}})
    with pytest.raises(ValueError, match="query q has no relevant"):
        measure_task({"q": ["p"]}, {"q": {"p": 0}})


# cMedIR -------------------------------------------------------------------------------------------


def page(n: int, label: str, title: str = "") -> dict[str, str]:
    return {"url": f"http://x/{n}", "label": label, "title": title or f"题目{n}"}


def cmedir_file(folder, *rows):
    path = folder / "dev.json"
    path.write_text(lines(rows), encoding="utf-8")
    return path


def test_cmedir_records_become_one_task(tmp_path):
    colon = {"query": "痛风", "documents": [page(1, "2", "痛风吃什么"), page(2, "0", ":广告")]}
    plain = {"query": "痛风", "documents": [page(1, "2", "痛风吃什么"), page(2, "0", "广告")]}
    more = {"query": "痛风", "documents": [page(3, "1", "广告"), page(2, "0", "广告")]}
    other = {"query": "流感", "documents": [page(2, "1", "广告")]}
    task = load_cmedir(cmedir_file(tmp_path, colon, plain, more, other))
    assert task.name == "cmedir" and list(task.queries.values()) == ["痛风", "流感"]
    texts = {p.pid: (p.text, p.meta["url"]) for p in task.corpus}
    # a title at two addresses is two passages; the ":" and the second record are gone
    assert sorted(texts.values()) == [
        ("广告", "http://x/2"),
        ("广告", "http://x/3"),
        ("痛风吃什么", "http://x/1"),
    ]
    first, second = task.qrels.values()
    assert sorted((texts[pid][1][-1], label) for pid, label in first.items()) == [
        ("1", 2),
        ("2", 0),
        ("3", 1),
    ]
    assert [texts[pid][1] for pid in second] == ["http://x/2"] and set(second) < set(first)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", "line 2: no record"),
        ("[]", "line 2: no record"),
        ({"documents": []}, "line 2: no record.*query"),
        ({"query": " ", "documents": [page(1, "1")]}, "line 2: query is"),
        ({"query": "x", "documents": []}, "line 2: no documents"),
        ({"query": "x", "documents": ["page"]}, "line 2: no page"),
        ({"query": "x", "documents": [page(1, "5")]}, "line 2: no page.*'5'"),
        ({"query": "x", "documents": [page(1, "1", ":")]}, "line 2: http://x/1 has no title"),
        ({"query": "痛风", "documents": [page(1, "1")]}, "line 2: '题目1' has two labels"),
        ({"query": "x", "documents": [page(1, "0")]}, "query cmedir-q0002 has no relevant"),
    ],
)
def test_broken_cmedir_records_are_refused(tmp_path, row, message):
    good = {"query": "痛风", "documents": [page(1, "2")]}
    with pytest.raises(DownloadError, match=message):
        load_cmedir(cmedir_file(tmp_path, good, row))


def test_without_the_file_it_is_said_where_to_put_it(tmp_path):
    with pytest.raises(DownloadError, match=r"cMedIR/dev\.json there, then run: load_cmedir"):
        load_cmedir(tmp_path / "dev.json")


def test_how_chinese_is_cut():
    text = "ＣＴ检查_维生素B12 缺"
    assert characters(text) == ["ct", *"检查维生素", "b12", "缺"]
    assert bigrams(text) == ["ct", "检查", "维生", "生素", "b12", "缺"]
    assert characters("") == bigrams(" …_:") == []


STOP = {"a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is"}
STOP |= {"it", "no", "not", "of", "on", "or", "such", "that", "the", "their", "then", "there"}
STOP |= {"these", "they", "this", "to", "was", "will", "with"}


@given(st.text(st.sampled_from("痛风流感病 aAzZ09:_-。，Ｂ\U00020001é"), max_size=40))
def test_bm25_reads_the_words_as_they_are_cut(text):
    for cut in BASELINES.values():
        assert words(" ".join(cut(text))) == [w for w in cut(text) if w not in STOP]
    assert "".join(characters(text)).isalnum() or not characters(text)


def test_the_baselines_find_what_shares_a_word(tmp_path):
    documents = [page(1, "2", "痛风饮食"), page(2, "1", "风和痛"), page(3, "0", "感冒")]
    task = load_cmedir(cmedir_file(tmp_path, {"query": "痛风", "documents": documents}))
    text_of = {p.pid: p.text for p in task.corpus}
    found = {}
    for name, cut in BASELINES.items():
        (pids,) = bm25_run(task, cut).values()
        found[name] = [text_of[pid] for pid in pids]
    assert set(found["BM25, characters"]) == {"痛风饮食", "风和痛"}
    assert found["BM25, bigrams"] == ["痛风饮食"]
    (pids,) = bm25_run(task, characters, k=1).values()
    assert len(pids) == 1


def test_any_task_can_be_searched(tmp_path):
    task = load_task(copy_of_the_hub(tmp_path), NAME)
    run = bm25_run(task, bigrams)
    assert run == {"q1": [f"{NAME}:p1"], "q2": [f"{NAME}:p2"]}
    assert measure_task(run, task.qrels)["ndcg_at_10"].to_list() == [1, 1]


@pytest.mark.mirror
def test_the_real_cmedir_file(mirror):
    task = load_cmedir(mirror / "chineseblue" / "data" / "cMedIR" / "dev.json")
    assert isinstance(task, Task)
    assert (len(task.queries), len(task.corpus)) == (4_298, 9_867)
    assert len({p.pid for p in task.corpus}) == 9_867
    assert len({p.meta["url"] for p in task.corpus}) == 9_866, "one address has two titles"
    assert sum(map(len, task.qrels.values())) == 9_869
    assert set(task.qrels) == set(task.queries), "no query without a judged title"
    known = {p.pid for p in task.corpus}
    assert all(set(scores) <= known for scores in task.qrels.values())
    assert {label for scores in task.qrels.values() for label in scores.values()} == set(range(5))
    assert not any(p.text.startswith(":") for p in task.corpus)
