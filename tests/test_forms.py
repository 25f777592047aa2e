"""Data of your own, by path: every form of the field, and everything that is wrong at once."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import ir_measures
import pandas as pd
import pytest

from lib.forms import (
    Report,
    read_passages,
    read_qrels,
    read_questions,
    read_trec_run,
    stream_passages,
    write_qrels,
    write_trec_run,
)
from tests.rehearsal.stand_ins import pdf

GOUT = "Needle-shaped crystals that are negatively birefringent."
SEPSIS = "Fever, a fast pulse and low blood pressure."


def lines(*rows: dict) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def two(text: str, title: str | None = "title") -> str:
    rows = [{"id": "a", text: GOUT}, {"id": "b", text: SEPSIS}]
    return lines(*(row | ({title: "T"} if title else {}) for row in rows))


PASSAGES = {
    "pyserini.jsonl": two("contents", None),
    "beir.jsonl": two("text").replace('"id"', '"_id"'),
    "medrag.jsonl": lines(
        {"id": "a", "title": "T", "content": GOUT, "contents": "T. " + GOUT},
        {"id": "b", "title": "T", "content": SEPSIS, "contents": "T. " + SEPSIS},
    ),
    "flashrag.jsonl": lines(
        {"id": "a", "contents": f'"T"\n{GOUT}'}, {"id": "b", "contents": f'"T"\n{SEPSIS}'}
    ),
    "table.csv": f'id,title,text\na,T,"{GOUT}"\nb,T,"{SEPSIS}"\n',
    "table.tsv": f"id\ttitle\ttext\na\tT\t{GOUT}\nb\tT\t{SEPSIS}\n",
    "list.json": json.dumps([{"id": "a", "text": GOUT}, {"id": "b", "text": SEPSIS}]),
}


@pytest.mark.parametrize("name", PASSAGES)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_passages_are_read_in_every_form_and_encoding(name, encoding, tmp_path):
    file = tmp_path / name
    file.write_bytes(PASSAGES[name].encode(encoding))
    passages, report = read_passages(file)
    assert [(p.pid, p.text) for p in passages] == [("a", GOUT), ("b", SEPSIS)]
    assert {p.title for p in passages} <= {"T", ""} and report.read == 2


def test_packed_files_parquet_and_the_folders_of_beir_and_medrag_give_the_same(tmp_path):
    text = PASSAGES["beir.jsonl"]
    packed = tmp_path / "c.jsonl.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    table = tmp_path / "c.parquet"
    pd.DataFrame([json.loads(line) for line in text.splitlines()]).to_parquet(table)
    for folder, name in ((tmp_path / "beir", "corpus.jsonl"), (tmp_path / "m/chunk", "1.jsonl")):
        folder.mkdir(parents=True)
        (folder / name).write_text(text)
    (tmp_path / "beir" / "queries.jsonl").write_text(lines({"_id": "q", "text": "why?"}))
    for path in (packed, table, tmp_path / "beir", tmp_path / "m"):
        passages, _ = read_passages(path)
        assert [(p.pid, p.title, p.text) for p in passages] == [
            ("a", "T", GOUT),
            ("b", "T", SEPSIS),
        ]


def test_everything_that_is_wrong_with_passages_is_listed_at_once_with_its_line(tmp_path):
    file = tmp_path / "c.jsonl"
    rows = [
        '{"id": "a", "contents": "good"}',
        '{"id": "b", "contents": null}',
        '{"id": "c", "contents": ["a", "list"]}',
        '{"id": "d", "contents": "half \\ud83d"}',
        '{"id": "a", "contents": "again"}',
        '{"contents": "no id"}',
        '{"id": "e", "body_text": "no text"}',
        '{"id": "f", "contents": "cut o',
        "[1, 2]",
        '{"id": "g", "title": 3, "contents": "good"}',
        '{"id": "h", "contents": "  "}',
    ]
    file.write_bytes("\n".join(rows).encode() + b'\n{"id": "i", "contents": "caf\xe9"}\n')
    with pytest.raises(ValueError, match="10 faults") as refused:
        read_passages(file)
    message = str(refused.value)
    assert all(f"c.jsonl:{number}:" in message for number in (2, 3, 4, 5, 6, 7, 8, 9, 10, 12))
    assert "c.jsonl:11" not in message  # an empty one is left out, and counted
    report = Report(file)
    with pytest.raises(ValueError, match="faults"):
        list(stream_passages(report))
    assert report.read == 1 and report.empty == 1


def test_a_folder_of_documents_is_cut_into_passages_and_other_files_are_named(tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "gout.md").write_text(f"# Gout\n{GOUT}")
    (tmp_path / "long.txt").write_text(
        " ".join(f"Sentence {i} is about fever." for i in range(150))
    )
    (tmp_path / "page.pdf").write_bytes(pdf("Fever and rash"))
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    (tmp_path / ".hidden.txt").write_text("nothing")
    passages, report = read_passages(tmp_path)
    by_pid = {p.pid: p for p in passages}
    assert by_pid["notes/gout.md"].title == "Gout"
    assert by_pid["page.pdf"].text == "Fever and rash"
    pieces = [pid for pid in by_pid if pid.startswith("long.txt#")]
    assert len(pieces) >= 3 and all(len(by_pid[pid].text) <= 1000 for pid in pieces)
    assert report.passed_over == ["picture.png"] and "picture.png" in str(report)
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.4 and no more")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    with pytest.raises(ValueError, match="2 faults") as refused:
        read_passages(tmp_path)
    assert "broken.pdf" in str(refused.value) and "latin.txt:1" in str(refused.value)


CONVERTED = {
    "a b.docx": "pandoc 'a b.docx' -t plain -o 'a b.docx'.txt",
    "page.html": "pandoc page.html -t plain -o page.html.txt",
    "sheet.XLSX": "save it as CSV",
    "scan.pdf": "ocrmypdf",
}


@pytest.mark.parametrize("name", CONVERTED)
def test_a_file_that_is_not_read_is_named_with_the_next_command(name, tmp_path):
    """Alone it is an error; in a folder the others are read, and it is in the report."""
    file = tmp_path / name
    file.write_bytes(pdf("") if name == "scan.pdf" else b"PK\x03\x04\xff")
    with pytest.raises(ValueError, match="no text in .*Next: a file or folder of") as refused:
        read_passages(file)
    assert CONVERTED[name] in str(refused.value) and "UTF-8" not in str(refused.value)
    (tmp_path / "gout.txt").write_text(GOUT)
    passages, report = read_passages(tmp_path)
    assert [p.pid for p in passages] == ["gout.txt"] and CONVERTED[name] in str(report)


def test_records_without_ids_are_called_by_their_place_and_that_is_said(tmp_path):
    """A folder as a reader has it: a table and a file of lines, neither with ids, beside a PDF."""
    (tmp_path / "a.csv").write_text(f'title,text\nGout,"{GOUT}"\nSepsis,"{SEPSIS}"\n')
    (tmp_path / "b.jsonl").write_text(lines({"text": GOUT}, {"text": "Fever."}))
    (tmp_path / "c.pdf").write_bytes(pdf("Fever and rash"))
    passages, report = read_passages(tmp_path)
    assert [p.pid for p in passages] == ["a.csv:1", "a.csv:2", "b.jsonl:1", "b.jsonl:2", "c.pdf"]
    assert report.numbered == 4 and "4 without an id, called by file and place" in str(report)
    (tmp_path / "d.csv").write_text("id,text\n,Fever.\n")  # it has ids, and one is missing
    with pytest.raises(ValueError, match="d.csv:2: no id"):
        read_passages(tmp_path)


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ({"options": {"A": "gout", "B": "sepsis"}, "answer": "B"}, "B"),
        ({"options": {"a": "gout", "b": "sepsis"}, "answer": "B"}, "b"),
        ({"options": ["gout", "sepsis"], "answer": "Sepsis"}, "B"),
        ({"choices": {"label": ["P", "Q"], "text": ["gout", "sepsis"]}, "answer": "Q"}, "Q"),
        ({"A": "gout", "B": "sepsis", "answer": "B"}, "B"),
        ({"options": '{"A": "gout", "B": "sepsis"}', "answer_idx": "B"}, "B"),
        ({"final_decision": "no"}, "B"),
        ({"options": list("pqrstuvwxyz"), "answer": "z"}, "K"),
    ],
)
def test_options_and_answers_are_read_in_every_form(given, answer, tmp_path):
    file = tmp_path / "q.jsonl"
    file.write_text(lines({"id": 7, "question": "Which?"} | given))
    (question,), _ = read_questions(file)
    assert question.qid == "7" and question.answer == answer
    assert question.options[answer] in ("sepsis", "no", "z")


def test_places_count_from_what_the_file_shows_and_are_refused_where_it_shows_nothing(tmp_path):
    file = tmp_path / "q.jsonl"

    def letters(*places) -> list[str]:
        options = ["gout", "sepsis", "stroke"]
        rows = [
            {"id": i, "question": "Which?", "options": options, "answer": place}
            for i, place in enumerate(places)
        ]
        file.write_text(lines(*rows))
        return [question.answer for question in read_questions(file)[0]]

    assert letters(0, 1, 2) == ["A", "B", "C"]
    assert letters(1, 3, 2) == ["A", "C", "B"]
    with pytest.raises(ValueError, match="count from 0 or from 1"):
        letters(1, 2)
    with pytest.raises(ValueError, match="none of the options"):
        letters(0, 4)
    table = tmp_path / "q.csv"
    table.write_text("id,question,A,B,answer\n1,Which?,gout,sepsis,2\n2,Which?,gout,sepsis,1\n")
    assert [question.answer for question in read_questions(table)[0]] == ["B", "A"]


def test_several_right_answers_and_answers_without_options(tmp_path):
    file = tmp_path / "q.jsonl"
    rows = [
        {"id": "m", "question": "Which?", "options": ["x", "y", "z"], "answer": ["x", "C"]},
        {"id": "f", "question": "What?", "golden_answers": ["gout", "podagra"]},
    ]
    file.write_text(lines(*rows))
    (several, free), _ = read_questions(file)
    assert [several.is_right(letter) for letter in "ABC"] == [True, False, True]
    assert not free.options and free.ideal_answer == "gout"
    (tmp_path / "q.csv").write_text(
        "id,question,A,B,C,answer\n"
        "1,?,x,y,z,A; C\n"
        '2,?,x,y,z,"[""B"", ""z""]"\n'
        '3,?,"A, B",y,z,"A, B"\n'
    )
    first, second, text = read_questions(tmp_path / "q.csv")[0]
    assert [(q.answer, *q.also_right) for q in (first, second, text)] == [
        ("A", "C"),
        ("B", "C"),
        ("A",),
    ]


TOPICS = {
    "xml": '<topics><topic number="7"><note>Fever</note> for days</topic></topics>',
    "old": "<top>\n<num> Number: 7\n<title> Fever for days\n<desc> More\n</top>\n",
    "tsv": "7\tFever for days\n",
    "mirage": json.dumps({"medqa": {"7": {"question": "Fever for days", "answer": "yes"}}}),
    "pubmedqa": json.dumps({"7": {"QUESTION": "Fever for days", "final_decision": "yes"}}),
    "csv": "qid,question\n7,Fever for days\n",
}


@pytest.mark.parametrize("form", TOPICS)
def test_topics_of_trec_mirage_and_tables_are_read(form, tmp_path):
    ending = {"old": "txt", "mirage": "json", "pubmedqa": "json"}.get(form, form)
    file = tmp_path / f"topics.{ending}"
    file.write_text(TOPICS[form])
    (question,), _ = read_questions(file)
    assert (question.qid, question.text) == ("7", "Fever for days")


def test_everything_that_is_wrong_with_questions_is_listed_at_once(tmp_path):
    file = tmp_path / "q.jsonl"
    good = {"question": "Which?", "options": {"A": "x", "B": "y"}}
    rows = [
        good | {"id": 1, "answer": "A"},
        good | {"id": 1, "answer": "A"},
        good | {"id": 2, "answer": "C"},
        {"id": 3, "options": ["x"], "answer": "A"},
        good | {"id": 4, "options": {"first": "x"}, "answer": "x"},
        good | {"id": 5, "options": {"A": None, "B": 3}, "answer": "B"},
    ]
    file.write_text(lines(*rows))
    with pytest.raises(ValueError, match="5 faults") as refused:
        read_questions(file)
    assert all(f"q.jsonl:{number}:" in str(refused.value) for number in (2, 3, 4, 5, 6))


def test_judgments_of_trec_and_beir_are_the_same_and_faults_have_their_line(tmp_path):
    want = {"q": {"a": 2, "b": 0}}
    trec = write_qrels(str(tmp_path / "qrels.txt"), want)
    (tmp_path / "beir" / "qrels").mkdir(parents=True)
    beir = "query-id\tcorpus-id\tscore\nq\ta\t2\nq\tb\t0\n"
    (tmp_path / "beir" / "qrels" / "test.tsv").write_text(beir)
    assert read_qrels(trec)[0] == read_qrels(tmp_path / "beir")[0] == want
    assert {
        (q.query_id, q.doc_id, q.relevance) for q in ir_measures.read_trec_qrels(str(trec))
    } == {
        ("q", "a", 2),
        ("q", "b", 0),
    }
    trec.write_text("q 0 a 2\nq 0 a 1\nq a\n")
    with pytest.raises(ValueError, match="2 faults") as refused:
        read_qrels(trec)
    assert "qrels.txt:2" in str(refused.value) and "qrels.txt:3" in str(refused.value)


def test_a_run_comes_back_and_other_programs_keep_its_order_where_scores_are_equal(tmp_path):
    rows = [("my method", "q", rank, pid, 0.5) for rank, pid in enumerate("zmaby", 1)]
    run = pd.DataFrame(rows, columns=["method", "qid", "rank", "pid", "score"])
    file = write_trec_run(tmp_path / "run.txt", run)
    back = read_trec_run(file)
    assert back["pid"].tolist() == run["pid"].tolist() and back["rank"].tolist() == [1, 2, 3, 4, 5]
    by_score = sorted(ir_measures.read_trec_run(str(file)), key=lambda row: -row.score)
    assert [row.doc_id for row in by_score] == list("zmaby")
    with pytest.raises(ValueError, match="white space"):
        write_trec_run(file, run.assign(pid="a b"))


@pytest.mark.parametrize("read", [read_passages, read_questions, read_qrels])
def test_a_path_without_anything_is_refused(read, tmp_path):
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(ValueError):
            read(path)


def test_content_alone_counts_not_the_form(tmp_path: Path):
    one, other = tmp_path / "x.jsonl", tmp_path / "y.csv"
    one.write_text(PASSAGES["beir.jsonl"])
    other.write_text(PASSAGES["table.csv"])
    first, second = (read_passages(path)[0] for path in (one, other))
    assert [(p.pid, p.title, p.text) for p in first] == [(p.pid, p.title, p.text) for p in second]


def test_a_table_may_be_utf_16_or_parted_by_semicolons(tmp_path):
    rows = "id,question,A,B,answer\n1,Which drug?,colchicine,insulin,A\n"
    for name, text, encoding in (
        ("a.tsv", rows.replace(",", "\t"), "utf-16"),
        ("b.csv", rows.replace(",", ";"), "utf-8"),
        ("c.csv", rows, "utf-16"),
    ):
        (tmp_path / name).write_text(text, encoding=encoding)
        (question,), _ = read_questions(tmp_path / name)
        assert (question.qid, question.text, question.answer) == ("1", "Which drug?", "A")
    (tmp_path / "d.csv").write_text("id,title,contents\n1,Gout,urate, crystals\n")
    with pytest.raises(ValueError, match="d.csv:2: more cells than the first line has names"):
        read_passages(tmp_path / "d.csv")


def test_a_first_line_of_judgments_with_a_number_in_it_is_no_line_of_names(tmp_path):
    (tmp_path / "q.txt").write_text("q1 0 g1\nq2 0 g2 1\n")
    with pytest.raises(ValueError, match="q.txt:1: not question, passage and a whole number"):
        read_qrels(tmp_path / "q.txt")
