"""Retrieval sets in the forms of BEIR and CMIRB: what an encoder finds, against brute force."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest

from lib import beir
from lib.base import paths
from lib.base.provenance import read_result, write_result
from lib.embed import HashEncoder
from lib.forms import read_qrels
from tests.fault_server import FaultServer, completion

PASSAGES = [
    ("p1", "Gout", "uric acid crystals in a joint"),
    ("p2", "Sepsis", "fever and a low blood pressure"),
    ("p3", "Measles", "fever and a rash of the face"),
    ("p4", "", "a rash without fever"),
]
QUERIES = {"q1": "fever with a rash", "q2": "crystals of uric acid", "unjudged": "fever"}
JUDGED = {"q1": {"p3": 2, "p4": 1, "p1": 0}, "q2": {"p1": 1}}


def lines(rows) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def write(folder, form="beir"):
    """The set above as BEIR or as the hub has it."""
    own_id = "_id" if form == "beir" else "id"
    rows = [{own_id: pid, "title": title, "text": text} for pid, title, text in PASSAGES]
    asked = [{own_id: qid, "text": text} for qid, text in QUERIES.items()]
    pairs = [(qid, pid, score) for qid, of in JUDGED.items() for pid, score in of.items()]
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(lines(rows))
    (folder / "queries.jsonl").write_text(lines(asked))
    if form == "beir":
        told = "".join(f"{qid}\t{pid}\t{score}\n" for qid, pid, score in pairs)
        (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + told)
    else:
        names = ("q_id", "p_id", "score")
        told = lines(dict(zip(names, pair, strict=True)) for pair in pairs)
        (folder / "qrels" / "test.jsonl").write_text(told)
    return folder


def ndcg(ranked, judged) -> float:
    """nDCG@10 from its definition, gains as trec_eval has them."""
    gain = sum(judged.get(pid, 0) / math.log2(i + 2) for i, pid in enumerate(ranked[:10]))
    best = sorted(judged.values(), reverse=True)[:10]
    return gain / sum(score / math.log2(i + 2) for i, score in enumerate(best))


def by_hand(vectors_of) -> float:
    """Mean nDCG@10 of all passages ranked by the cosine with ``vectors_of(query)``."""
    encoder = HashEncoder()
    texts = [f"{title} {text}".strip() for _, title, text in PASSAGES]
    stored = encoder.encode(texts, "article")
    scores = []
    for qid, judged in JUDGED.items():
        cosines = stored @ vectors_of(encoder, QUERIES[qid])
        ranked = [PASSAGES[i][0] for i in np.argsort(-cosines, kind="stable")]
        scores.append(ndcg(ranked, judged))
    return 100 * float(np.mean(scores))


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CHR_CACHE", str(tmp_path / "cache"))


def command(*arguments, out) -> pd.DataFrame:
    beir.main([*map(str, arguments), "--out", str(out)])
    return pd.read_csv(out / "table.csv").set_index(["encoder", "method", "metric"])


@pytest.mark.parametrize("form", ["beir", "hub"])
def test_an_encoder_finds_what_brute_force_finds_in_either_form(form, tmp_path):
    table = command(write(tmp_path / "a", form), "--encoder", "hash", "bm25", out=tmp_path / "out")
    alone = by_hand(lambda encoder, query: encoder.encode([query])[0])
    assert table.loc[("hash", "standard", "ndcg@10"), "value"] == pytest.approx(alone, abs=0.01)
    assert table.loc[("hash", "standard", "recall@100"), "value"] == 100
    assert table.loc[("bm25", "bm25", "recall@100"), "value"] == 100
    assert (table["n"] == 2).all(), "the query that nobody judged is not asked"


def test_the_precision_that_was_asked_for_is_in_the_table(tmp_path, capsys):
    folder, out = write(tmp_path / "a"), tmp_path / "out"
    asked = [folder, "--encoder", "minilm", "bm25", "hash", "--precision", "bfloat16"]
    with pytest.raises(SystemExit, match="1 NOT RUN"):
        command(*asked, out=out)
    assert "hash" in capsys.readouterr().err
    table = pd.read_csv(out / "table.csv", keep_default_na=False).set_index("encoder")
    assert set(table.loc["minilm", "precision"]) == {"bfloat16"}
    assert set(table.loc["bm25", "precision"]) == {""}
    whole = command(folder, "--encoder", "minilm", out=tmp_path / "whole")["value"].to_numpy()
    assert table.loc["minilm", "value"].astype(float).to_numpy() == pytest.approx(whole, abs=1)


def test_with_a_written_passage_the_mean_is_searched_and_a_stopped_run_asks_nothing_twice(
    tmp_path, monkeypatch
):
    passage = "crystals"
    folder, out = write(tmp_path / "CSLCiteRetrieval", "hub"), tmp_path / "out"
    with FaultServer(answer=lambda body: completion(passage)) as server:
        asked = [folder, "--encoder", "hash", "--llm", f"openai:m@{server.url}"]
        stopped = beir.evaluate

        def stop(*args, **kwargs):
            stopped(*args, **kwargs)
            raise KeyboardInterrupt

        monkeypatch.setattr(beir, "evaluate", stop)
        with pytest.raises(KeyboardInterrupt):
            command(*asked, out=out)
        monkeypatch.setattr(beir, "evaluate", stopped)
        table = command(*asked, out=out)
    assert len(server.bodies) == len(JUDGED)
    assert all("标题" in body["messages"][-1]["content"] for body in server.bodies), (
        "its own prompt"
    )

    def mean(encoder, query):
        return encoder.encode([query])[0] + encoder.encode([passage])[0]

    found = table.loc[("hash", "hyde", "ndcg@10"), "value"]
    assert found == pytest.approx(by_hand(mean), abs=0.01)


def test_chinese_is_cut_into_pairs_of_characters_to_be_searched_by_words(tmp_path):
    folder = tmp_path / "MedExamRetrieval"
    (folder / "qrels").mkdir(parents=True)
    texts = {"p1": "痛风是嘌呤代谢病", "p2": "流感由病毒引起", "p3": "风痛"}
    (folder / "corpus.jsonl").write_text(lines({"id": k, "text": v} for k, v in texts.items()))
    (folder / "queries.jsonl").write_text(lines([{"id": "q", "text": "什么是痛风"}]))
    (folder / "qrels" / "test.jsonl").write_text(lines([{"q_id": "q", "p_id": "p1", "score": 1}]))
    table = command(folder, "--encoder", "BM25", out=tmp_path / "out")
    row = table.loc[("BM25", "bm25", "ndcg@10")]
    assert row["value"] == 100
    assert row["published"] == 31.95, "SL-HyDE's Table 2"


def test_each_retriever_of_the_papers_table_has_a_row_and_each_set_a_prompt():
    printed = pd.read_csv(paths.REPORTED / "slhyde_table2.csv")
    base = printed[printed["part"] == "base retrievers"]
    retrievers = pd.read_csv(paths.DATA / "retrievers.csv")
    sets = pd.read_csv(paths.DATA / "cmirb.csv")
    assert set(retrievers["name"]) == set(base["model"])
    assert set(sets["paper"]) == set(base["dataset"]) - {"Average"}
    assert all((paths.ROOT / "lib/llm/prompts" / f"{name}.txt").exists() for name in sets["prompt"])


def test_what_is_kept_joins_rows_that_knew_no_precision(tmp_path, own_folders):
    table = command(write(tmp_path / "a"), "--encoder", "bm25", out=tmp_path / "out").reset_index()
    older = table.drop(columns="precision").assign(set="other")
    write_result(older, "beir", "open", code=["lib.beir"], data=[])
    for _ in range(2):
        beir.keep(table.fillna(""))
    found = read_result("beir", "open")[0]
    assert found["set"].tolist() == ["other", "other", "a", "a"]
    assert list(found.columns) == list(table.columns)


def test_a_set_that_is_not_there_is_an_error_with_the_next_step(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for source, says in ((str(tmp_path / "none"), "none"), ("hub:CMIRB/NoSuchSet", "the hub gave")):
        with pytest.raises(SystemExit, match="1 NOT RUN"):
            command(source, "--encoder", "hash", out=tmp_path)
        assert says in capsys.readouterr().err


def test_what_cannot_be_run_is_named_and_the_rest_goes_on(tmp_path, capsys):
    with (
        FaultServer(answer=lambda body: completion("crystals")) as server,
        pytest.raises(SystemExit, match="1 NOT RUN"),
    ):
        asked = ("--encoder", "hash", "st:/nowhere", "bm25", "--llm", f"openai:m@{server.url}")
        command(write(tmp_path / "a"), *asked, out=tmp_path / "out")
    assert "NOT RUN: a, st:/nowhere" in capsys.readouterr().err
    table = pd.read_csv(tmp_path / "out" / "table.csv", keep_default_na=False)
    assert set(table["encoder"]) == {"hash", "bm25"}
    assert set(table.loc[table["method"] == "hyde", "writer"]) == {"m"}
    assert set(table.loc[table["method"] != "hyde", "writer"]) == {""}
    assert len(server.bodies) == len(JUDGED)


def test_judgments_in_json_lines_name_what_cannot_be_read(tmp_path):
    good = {"query-id": "q", "corpus-id": "p", "score": 1.0}
    bad = [{"query-id": "q", "score": 1}, good | {"score": 0.5}, good | {"score": True}]
    file = tmp_path / "test.jsonl"
    file.write_text(lines([good]))
    assert read_qrels(file)[0] == {"q": {"p": 1}}
    file.write_text(lines([good, *bad]))
    with pytest.raises(ValueError, match="3 faults") as refused:
        read_qrels(file)
    assert all(f"test.jsonl:{number}" in str(refused.value) for number in (2, 3, 4))


def test_the_committed_numbers_of_scifact_are_the_published_ones():
    """The committed table: what was measured with the encoders that can be installed."""
    table = pd.read_csv(paths.committed("open") / "beir.csv")
    told = table.dropna(subset=["published"])
    assert {"minilm", "mpnet", "bm25"} <= set(told["encoder"]) and len(told) >= 6
    assert (told["value"] - told["published"]).abs().max() < 0.5
