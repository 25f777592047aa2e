"""Passages, questions and relevance judgments of your own, by path, in the forms the field has.

Passages: JSON Lines (``{"id", "contents"}`` as Pyserini and FlashRAG have it), a folder of BEIR or
of MedRAG's chunks, CSV, TSV, Parquet, or a folder of text, Markdown and PDF files. Questions: JSON
Lines, BEIR, MIRAGE's ``benchmark.json``, TREC topics, CSV, TSV, Parquet. Judgments: TREC's and
BEIR's. Names of fields are found by the lists below, in their order.

A file is read to its end before anything is refused, and one error then lists everything that is
wrong in it, with file and line. Empty records are left out, passages without ids are called by
file and place; the ``Report`` counts both.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import shlex
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lib.base.files import atomic_write
from lib.base.paths import OWN, existing
from lib.data.passages import Passage, cut, parse_xml, tidy
from lib.data.questions import Question

IDS = ("pid", "qid", "id", "_id", "docid", "doc_id", "question_id", "query-id")
TEXTS = ("content", "contents", "text", "passage", "body", "abstract")
TITLES = ("title", "heading")
QUESTIONS = ("question", "query", "text", "stem", "contents", "QUESTION")
OPTIONS = ("options", "choices")
ANSWERS = ("answer", "answer_idx", "golden_answers", "answers", "label", "final_decision")

TABLES = (".csv", ".tsv", ".parquet")
RECORDS = (".jsonl", ".jsonl.gz", ".json", *TABLES)
DOCUMENTS = (".txt", ".md", ".pdf")
_CONVERTED = {
    **dict.fromkeys(
        (".docx", ".odt", ".rtf", ".epub", ".html", ".htm"), "pandoc {0} -t plain -o {0}.txt"
    ),
    **dict.fromkeys((".xlsx", ".xls", ".ods"), "save it as CSV (id, title, text)"),
    ".doc": "save it as text",
}
"""Files that are not read, and what makes of each a file that is."""

_LISTED = 20
"""Faults that one error lists; further ones are counted."""


@dataclass
class Report:
    """What was read of a path, and what was not."""

    path: Path
    read: int = 0
    empty: int = 0
    """Records and pieces of documents without a word: left out."""
    repeated: int = 0
    """Pieces of documents that an earlier file has: left out."""
    numbered: int = 0
    """Records without an id, of files that have none: called by their file and place."""
    passed_over: list[str] = field(default_factory=list)
    """Files in another form than those that are read, with the next command where there is one."""
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        parts = [f"{self.path}: {self.read:,} read"]
        if self.empty:
            parts.append(f"{self.empty:,} without a text left out")
        if self.repeated:
            parts.append(f"{self.repeated:,} that came before left out")
        if self.numbered:
            parts.append(f"{self.numbered:,} without an id, called by file and place")
        if self.passed_over:
            some = ", ".join(self.passed_over[:3])
            more = ", ..." if len(self.passed_over) > 3 else ""
            files = "file" if len(self.passed_over) == 1 else "files"
            parts.append(f"{len(self.passed_over)} {files} passed over ({some}{more})")
        return "; ".join(parts)

    def check(self) -> None:
        """ValueError that lists all faults, where there is one."""
        if not self.faults:
            return
        shown = self.faults[:_LISTED]
        if len(self.faults) > _LISTED:
            shown.append(f"... and {len(self.faults) - _LISTED:,} more")
        lines = "\n  ".join(shown)
        raise ValueError(f"{self.path} has {len(self.faults):,} faults:\n  {lines}")


# records ------------------------------------------------------------------------------------------

Record = tuple[str, dict[str, Any]]
"""Where it stands ("file:line") and what it says."""


def _decoded(data: bytes, name: str) -> str:
    """The text of a file: UTF-8, or UTF-16 with its mark; ValueError for anything else."""
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ValueError(
            f"{name}:{line}: not UTF-8. Next: save it again as UTF-8 "
            "(iconv -f latin1 -t utf-8 OLD > NEW)"
        ) from None
    if "\0" in text:
        raise ValueError(f"{name}: it holds zero bytes, so it is no text")
    return text


def _records(path: Path, report: Report) -> Iterator[Record]:
    """The records of one file in any form; what cannot be read is added to the report."""
    name = path.name
    try:
        if name.endswith((".jsonl", ".jsonl.gz")):
            yield from _json_lines(path, report)
        elif name.endswith(".json"):
            whole = json.loads(_decoded(path.read_bytes(), name))
            rows = whole if isinstance(whole, list) else _of_mirage(whole)
            yield from ((f"{name}, record {i}", row) for i, row in enumerate(rows, 1))
        elif name.endswith(".parquet"):
            rows = pd.read_parquet(path).to_dict("records")
            yield from ((f"{name}, row {i}", row) for i, row in enumerate(rows, 1))
        else:
            yield from _table_rows(path, report)
    except (ValueError, OSError, EOFError, csv.Error, RecursionError) as error:
        message = str(error)
        report.faults.append(message if message.startswith(name) else f"{name}: {message}")


def _table_rows(path: Path, report: Report) -> Iterator[Record]:
    """The rows of a CSV or TSV file; semicolons part the cells where its first line has them."""
    text = _decoded(path.read_bytes(), path.name)
    first = text.partition("\n")[0]
    delimiter = max("\t" if path.suffix == ".tsv" else ",", ";", key=first.count)
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    for row in rows:
        where = f"{path.name}:{rows.line_num}"
        if None in row:
            report.faults.append(f"{where}: more cells than the first line has names")
        else:
            yield where, row


def _json_lines(path: Path, report: Report) -> Iterator[Record]:
    """The records of a file with one JSON object in each line, read line by line."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rb") as stream:
        start = stream.read(2)
        stream.seek(0)
        if start in (b"\xff\xfe", b"\xfe\xff"):
            stream = io.BytesIO(_decoded(stream.read(), path.name).encode())
        for number, line in enumerate(stream, 1):
            where = f"{path.name}:{number}"
            if line.startswith(b"version https://git-lfs"):
                report.faults.append(f"{where}: a Git LFS pointer, not the data; run: git lfs pull")
                return
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                row = json.loads(text) if text.strip() else None
            except (ValueError, RecursionError) as error:
                report.faults.append(f"{where}: {error}")
                continue
            if isinstance(row, dict):
                yield where, row
            elif row is not None:
                report.faults.append(f"{where}: no object but {json.dumps(row):.40}")


def _of_mirage(whole: Mapping[str, Any]) -> list[dict[str, Any]]:
    """MIRAGE's ``benchmark.json`` (set → id → question), or one of its sets, as records."""
    rows = []
    for name, value in whole.items():
        if isinstance(value, dict) and any(field in value for field in QUESTIONS):
            rows.append({"id": name} | value)
        elif isinstance(value, dict) and all(isinstance(row, dict) for row in value.values()):
            of_set = [{"id": qid, "dataset": name} | row for qid, row in value.items()]
            rows.extend(of_set)
        else:
            raise ValueError("neither a list of records nor MIRAGE's form (set, id, question)")
    return rows


def _first(row: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The value of the first of these fields that the record has, None where it has none."""
    return next((row[name] for name in names if name in row), None)


def _text(row: Mapping[str, Any], names: Sequence[str], needed: bool = True) -> str:
    """The text of a field; ValueError where it is missing or no text that can be stored."""
    value = _first(row, names)
    if value is None or value != value:  # a missing cell of a table is NaN
        if needed and not set(names) & row.keys():
            told = f"no field {' or '.join(names[:4])}, but {', '.join(row)}"
            raise ValueError(f"{told}. Next: call one of them {names[0]}")
        if needed and value is None:
            raise ValueError("its text is null")
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.40} where a text belongs")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("half a surrogate, which is no character") from None
    return value


def _id(row: Mapping[str, Any]) -> str:
    """A record's id as a text; ValueError where it has none."""
    value = _first(row, IDS)
    if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "":
        raise ValueError(f"no id (one of {', '.join(IDS[:4])})")
    return _text({"id": str(value)}, ["id"])


# passages -----------------------------------------------------------------------------------------


def read_passages(path: str | Path) -> tuple[list[Passage], Report]:
    """All passages at a path, in its order, and a report of what was read.

    ValueError that lists everything that is wrong, or where there is no text at all.
    """
    report = Report(existing(path))
    return list(stream_passages(report)), report


def stream_passages(report: Report) -> Iterator[Passage]:
    """The passages of ``report.path`` one by one, for a corpus that does not fit into memory.

    ``report`` is filled on the way. After the last passage everything that was wrong is raised, as
    one ValueError, or that there is no text at all: a store or an index that is being written from
    them is then not kept.
    """
    where_of: dict[str, str] = {}
    documents: set[str] = set()
    for file in _passage_files(report):
        is_records = file.name.lower().endswith(RECORDS)
        found = _record_passages(file, report) if is_records else _document_passages(file, report)
        for where, passage in found:
            if passage.pid in where_of:
                first = where_of[passage.pid]
                report.faults.append(f"{where}: the id {passage.pid!r} again, as at {first}")
            elif not any(map(str.isalnum, passage.text)):
                report.empty += 1
            elif passage.text in documents:
                report.repeated += 1
            else:
                where_of[passage.pid] = where
                report.read += 1
                if not is_records:  # judged records stay, however alike they are
                    documents.add(passage.text)
                yield passage
    report.check()
    if not report.read:
        raise ValueError(
            f"no text in {report}. Next: a file or folder of {', '.join(RECORDS[:3])}, "
            f"{', '.join((*TABLES, *DOCUMENTS))}"
        )


def _passage_files(report: Report) -> list[Path]:
    """The files to be read at a path: itself, BEIR's corpus, MedRAG's chunks, or all of a folder.

    Hidden files and folders do not count, and links to folders are not followed.
    """
    home = report.path
    if home.is_file():
        if home.suffix.lower() not in _CONVERTED:
            return [home]
        report.passed_over.append(_with_next(home.name))
        return []
    for beir in ("corpus.jsonl", "corpus.jsonl.gz"):
        if (home / beir).exists():
            return [home / beir]
    if chunks := sorted(home.glob("chunk/*.jsonl")):
        return chunks
    files = []
    for folder, inner, names in os.walk(home):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        found = [Path(folder, name) for name in names if not name.startswith(".")]
        files += [file for file in found if file.is_file()]  # a pipe would be waited for
    read = [file for file in files if file.name.lower().endswith((*RECORDS, *DOCUMENTS))]
    others = sorted(file.relative_to(home).as_posix() for file in set(files) - set(read))
    report.passed_over += map(_with_next, others)
    return sorted(read)


def _with_next(name: str) -> str:
    """A file that is not read, and the next command where one makes it a file that is."""
    convert = _CONVERTED.get(Path(name).suffix.lower())
    return f"{name}: {convert.format(shlex.quote(name))}" if convert else name


def _record_passages(file: Path, report: Report) -> Iterator[tuple[str, Passage]]:
    """The passages of a file of records, each with where it stands. Where the first record has no
    id, none has: they are called by the file and their place in it."""
    without_ids = None
    for number, (where, row) in enumerate(_records(file, report), 1):
        if without_ids is None:
            without_ids = not row.keys() & set(IDS)
        try:
            title = _text(row, TITLES, needed=False)
            text = _text(row, TEXTS)
            if not title and "content" not in row:
                title, text = _title_and_text(text)
            pid = f"{file.name}:{number}" if without_ids else _id(row)
            report.numbered += without_ids
            yield where, Passage(pid, title, text, OWN, {"doc": file.name})
        except ValueError as error:
            report.faults.append(f"{where}: {error}")


def _title_and_text(contents: str) -> tuple[str, str]:
    """FlashRAG's ``contents``: the title in quotes is the first line; no title otherwise."""
    first, _, rest = contents.partition("\n")
    if rest and len(first) > 2 and first[0] == first[-1] == '"':
        return first[1:-1], rest
    return "", contents


def _document_passages(file: Path, report: Report) -> Iterator[tuple[str, Passage]]:
    """A document cut into passages; its path in the folder is the id of the whole."""
    home = report.path if report.path.is_dir() else report.path.parent
    name = file.relative_to(home).as_posix()
    try:
        if file.suffix.lower() == ".pdf":
            title, text = read_pdf(file)
        else:
            text = _decoded(file.read_bytes(), name)
            title = _heading(text) if file.suffix.lower() == ".md" else ""
        text.encode()
    except (ValueError, OSError) as error:
        message = str(error)
        report.faults.append(message if message.startswith(name) else f"{name}: {message}")
        return
    if file.suffix.lower() == ".pdf" and not any(map(str.isalnum, text)):
        report.passed_over.append(f"{name}: pictures of pages, ocrmypdf makes them text")
        return
    pieces = cut(text)
    for i, piece in enumerate(pieces):
        pid = name if len(pieces) == 1 else f"{name}#{i}"
        yield pid, Passage(pid, title or file.stem, piece, OWN, {"doc": name})


def read_pdf(file: Path) -> tuple[str, str]:
    """Title and text of a PDF; ValueError where it cannot be read (a password, a broken file)."""
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    try:
        reader = PdfReader(file)
        text = "\n".join(page.extract_text() for page in reader.pages)
        title = (reader.metadata.title or "") if reader.metadata else ""
    except (PyPdfError, ValueError, KeyError, RecursionError) as error:
        next_step = "Next: take it out, or give its text as .txt"
        raise ValueError(f"a PDF that cannot be read ({error}). {next_step}") from error
    return title, text


def _heading(text: str) -> str:
    """The first heading of a Markdown text ("# Title", "# Title #"), "" where it has none."""
    without_code = re.sub(r"^\s*(```|~~~).*?(^\s*\1|\Z)", "", text, flags=re.DOTALL | re.MULTILINE)
    found = re.search(r"^\s*#{1,6} +(\S.*?)(?: +#+)?\s*$", without_code, re.MULTILINE)
    return found[1] if found else ""


# questions ----------------------------------------------------------------------------------------

_YES_NO = ("yes", "no", "maybe")


def read_questions(path: str | Path, dataset: str = "own") -> tuple[list[Question], Report]:
    """All questions at a path, in its order, and a report of what was read.

    Options are an object of letters, a list, or columns A, B, ...; the answer is a letter, an
    option's text, its place in the list, or a list of any of these. Places count from 0 where some
    answer of the file is 0, and from 1 where some answer is the number of its options; a file that
    shows neither is refused as ambiguous. yes, no and maybe make their own options. The answer to a
    question without options is its ``ideal_answer``. Raises ValueError as ``read_passages`` does.
    """
    report = Report(existing(path))
    file = report.path
    if file.is_dir():
        named = [file / name for name in ("queries.jsonl", "queries.jsonl.gz")]
        found = [one for one in named if one.exists()]
        if not found:
            raise ValueError(f"{file} has no queries.jsonl. Next: give the file of your questions")
        file = found[0]
    is_records = file.name.endswith(RECORDS) and not _without_names(file)
    rows = list(_records(file, report) if is_records else _topics(file, report))
    base = _places_from([row for _, row in rows])
    questions: dict[str, Question] = {}
    for where, row in rows:
        try:
            question = _question(row, base, dataset)
            if not question.text.strip():
                report.empty += 1
                continue
            if question.qid in questions:
                raise ValueError(f"the id {question.qid!r} again")
        except ValueError as error:
            report.faults.append(f"{where}: {error}")
            continue
        questions[question.qid] = question
        report.read += 1
    report.check()
    if not questions:
        raise ValueError(f"{report.path} has no question")
    return list(questions.values()), report


def _without_names(file: Path) -> bool:
    """Whether a file is "id <tab> text" from its first line on, with no line of names."""
    if file.suffix != ".tsv":
        return False
    first = _decoded(file.read_bytes(), file.name).partition("\n")[0]
    return not {name.strip() for name in first.split("\t")} & {*QUESTIONS}


def _question(row: Mapping[str, Any], base: int | None, dataset: str) -> Question:
    """One record as a question; ValueError for options or an answer that cannot be read."""
    options = _options(row)
    answers = _answers(row, options)
    if not options and answers and all(str(one).lower() in _YES_NO for one in answers):
        options = dict(zip("ABC", _YES_NO, strict=True))
    letters: list[str] = []
    if options:
        letters = list(dict.fromkeys(_letter(one, options, base) for one in answers))
    return Question(
        qid=_id(row),
        text=tidy(_text(row, QUESTIONS), keep_lines=True),
        options=options,
        answer=letters[0] if letters else "",
        also_right=tuple(letters[1:]),
        dataset=str(row.get("dataset") or dataset),
        ideal_answer="" if options or not answers else str(answers[0]),
    )


def _answers(row: Mapping[str, Any], options: Mapping[str, str]) -> list:
    """What a record gives as its answers: a list, one value, or letters in one cell ("B; C")."""
    answer = _first(row, ANSWERS)
    if isinstance(answer, str) and options and answer not in options.values():
        if answer.startswith("["):
            answer = json.loads(answer)
        elif re.fullmatch(r"[A-Za-z](\s*[;,|]\s*[A-Za-z])+", answer.strip()):
            answer = re.findall("[A-Za-z]", answer)
    answers = answer if isinstance(answer, list) else [answer]
    return [one for one in answers if one is not None and one == one]


def _options(row: Mapping[str, Any]) -> dict[str, str]:
    """The options of a record under their letters, empty where it has none."""
    found = _first(row, OPTIONS)
    if isinstance(found, str):  # a cell of a table
        found = json.loads(found)
    if isinstance(found, dict) and {"label", "text"} <= found.keys():
        found = dict(zip(found["label"], found["text"], strict=True))
    if found is None:
        columns = [letter for letter in string.ascii_uppercase if letter in row]
        found = {letter: row[letter] for letter in columns if row[letter] == row[letter]}
    if isinstance(found, Mapping):
        options = {str(letter): text for letter, text in found.items() if text is not None}
    else:
        options = dict(zip(string.ascii_uppercase, found, strict=False))
        if len(found) > len(options):
            raise ValueError(f"{len(found)} options, and there are 26 letters")
    if len({letter.upper() for letter in options}) < len(options):
        raise ValueError(f"one letter for two options: {', '.join(options)}")
    for letter, text in options.items():
        if not re.fullmatch("[A-Za-z]", letter):
            raise ValueError(f"the option {letter!r} has no letter for a name")
        if not isinstance(text, str):
            raise ValueError(f"option {letter} is {text!r:.40}, no text")
    return {letter: tidy(text, keep_lines=True) for letter, text in options.items()}


def _places_from(rows: Iterable[Mapping[str, Any]]) -> int | None:
    """0 or 1: from where a file counts answers that are places in a list; None if it is unclear."""
    bases = set()
    for row in rows:
        answer = _first(row, ANSWERS)
        places = [_place(one) for one in (answer if isinstance(answer, list) else [answer])]
        if 0 in places:
            bases.add(0)
        try:
            n_options = len(_options(row))
        except ValueError:
            continue  # told with its line when the question is read
        if n_options and n_options in places:
            bases.add(1)
    return bases.pop() if len(bases) == 1 else None


def _place(answer: Any) -> int | None:
    """An answer that is a place, as a number; None for a letter, a text or nothing."""
    if isinstance(answer, float) and answer.is_integer():  # a column of a table with gaps
        answer = int(answer)
    is_place = isinstance(answer, int) or (isinstance(answer, str) and answer.strip().isdigit())
    return int(answer) if is_place and not isinstance(answer, bool) else None


def _letter(answer: Any, options: Mapping[str, str], base: int | None) -> str:
    """The letter of the option that an answer means; ValueError where that is none, or several."""
    text = tidy(str(answer)).casefold()
    by_letter = [letter for letter in options if letter.casefold() == text]
    by_text = [letter for letter, option in options.items() if tidy(option).casefold() == text]
    for meant in (by_letter, by_text):
        if len(meant) == 1:
            return meant[0]
    place = _place(answer)
    if place is not None and base is None:
        raise ValueError(
            f"the answer {answer!r} is a place, and nothing in the file shows whether places count "
            "from 0 or from 1; write letters instead"
        )
    if place is not None and 0 <= place - base < len(options):
        return list(options)[place - base]
    raise ValueError(f"the answer {answer!r:.40} is none of the options {', '.join(options)}")


def _topics(file: Path, report: Report) -> Iterator[Record]:
    """TREC topics: XML, the older form whose tags are not closed, or "id <tab> text" in lines."""
    name = file.name
    try:
        text = _decoded(file.read_bytes(), name)
        if re.search(r"<topic\b", text):
            for topic in parse_xml(text.encode(), name).iter("topic"):
                words = tidy(" ".join(topic.itertext()))
                yield (
                    f"{name}, topic {topic.get('number')}",
                    {
                        "id": topic.get("number"),
                        "question": words,
                    },
                )
        elif "<top>" in text:
            for top in re.findall(r"<top>(.*?)</top>", text, re.DOTALL):
                number = re.search(r"<num>\s*(?:Number:)?\s*([^\s<]+)", top)
                title = re.search(r"<title>\s*(?:Topic:)?\s*([^<]*)", top)
                row = {"id": number and number[1], "question": title[1] if title else None}
                yield f"{name}, topic {row['id']}", row
        else:
            for number, line in enumerate(text.splitlines(), 1):
                qid, tab, words = line.partition("\t")
                if not tab and line.strip():
                    report.faults.append(f"{name}:{number}: no tab between an id and a question")
                elif tab:
                    yield f"{name}:{number}", {"id": qid.strip(), "question": words}
    except (ValueError, OSError) as error:
        report.faults.append(f"{name}: {error}")


# relevance judgments ------------------------------------------------------------------------------

Qrels = dict[str, dict[str, int]]
"""Relevance by question id and passage id; 0 is "not relevant"."""


def read_qrels(path: str | Path, split: str = "test") -> tuple[Qrels, Report]:
    """Relevance judgments: TREC's four columns, BEIR's three with a line of names, JSON Lines as
    the hub's sets have them, or a folder.

    In a folder that is ``qrels/<split>.tsv`` or ``.jsonl``. Raises ValueError as ``read_passages``
    does.
    """
    report = Report(existing(path))
    file = report.path
    if file.is_dir():
        named = [file / "qrels" / f"{split}{form}" for form in (".tsv", ".jsonl")]
        found = [one for one in named if one.exists()]
        if not found:
            raise ValueError(f"{file} has no qrels/{split}.tsv. Next: give the file of judgments")
        file = found[0]
    rows = _judged_records if file.suffix == ".jsonl" else _judged_lines
    qrels: Qrels = {}
    for where, qid, pid, relevance in rows(file, report):
        known = qrels.setdefault(qid, {})
        if known.setdefault(pid, relevance) != relevance:
            report.faults.append(f"{where}: {qid} and {pid} were {known[pid]} before")
        report.read += 1
    report.check()
    if not qrels:
        raise ValueError(f"{file} has no judgment")
    return qrels, report


_Judged = tuple[str, str, str, int]
"""Where it stands, question id, passage id, relevance."""


def _judged_lines(file: Path, report: Report) -> Iterator[_Judged]:
    for number, line in enumerate(_decoded(file.read_bytes(), file.name).splitlines(), 1):
        columns = line.split()
        numbers = [column for column in columns if column.lstrip("-").isdigit()]
        if not columns or (number == 1 and not numbers):
            continue  # an empty line, or the names of the columns
        where = f"{file.name}:{number}"
        if len(columns) not in (3, 4) or not columns[-1].lstrip("-").isdigit():
            report.faults.append(f"{where}: not question, passage and a whole number: {line:.60}")
            continue
        yield where, columns[0], columns[-2], int(columns[-1])


def _judged_records(file: Path, report: Report) -> Iterator[_Judged]:
    for where, row in _records(file, report):
        qid, pid = (_first(row, names) for names in (("q_id", "query-id"), ("p_id", "corpus-id")))
        relevance = row.get("score")
        whole = isinstance(relevance, (int, float)) and int(relevance) == relevance
        if None in (qid, pid) or not whole or isinstance(relevance, bool):
            shown = json.dumps(row, ensure_ascii=False)
            report.faults.append(f"{where}: not question, passage and a whole number: {shown:.60}")
            continue
        yield where, str(qid), str(pid), int(relevance)


def write_qrels(path: str | Path, qrels: Qrels) -> Path:
    """Judgments in TREC's form: question, 0, passage, relevance."""
    lines = [
        f"{qid} 0 {pid} {relevance}\n"
        for qid, judged in qrels.items()
        for pid, relevance in judged.items()
    ]
    return atomic_write(Path(path), "".join(lines))


def write_trec_run(path: str | Path, run: pd.DataFrame) -> Path:
    """A run in TREC's form: question, Q0, passage, rank, score, method.

    ``run`` has the columns of ``lib.run.RUN_COLUMNS``. Programs that read runs sort by score and
    ignore ranks: a score that is not below the one before it is lowered to the next smaller float32
    number, so that the order stays. ValueError for an id with white space, which the form cannot
    hold.
    """
    lines = []
    for (method, qid), group in run.groupby(["method", "qid"], sort=False):
        before = np.float32(np.inf)
        for row in group.sort_values("rank").itertuples():
            if re.search(r"\s", f"{qid}{row.pid}"):
                raise ValueError(f"the id {qid if ' ' in qid else row.pid!r} holds white space")
            before = min(np.float32(row.score), np.nextafter(before, np.float32(-np.inf)))
            tag = re.sub(r"\s+", "_", method)
            lines.append(f"{qid} Q0 {row.pid} {row.rank} {before:.9g} {tag}\n")
    return atomic_write(Path(path), "".join(lines))


def read_trec_run(path: str | Path) -> pd.DataFrame:
    """A run in TREC's form as ``lib.run.RUN_COLUMNS``, ranked by score; ValueError as above."""
    report = Report(existing(path))
    rows = []
    text = _decoded(report.path.read_bytes(), report.path.name)
    for number, line in enumerate(text.splitlines(), 1):
        columns = line.split()
        try:
            qid, _, pid, _, score, method = columns
            rows.append((method, qid, pid, float(score)))
        except ValueError:
            if columns:
                report.faults.append(f"{report.path.name}:{number}: not six columns: {line:.60}")
    report.check()
    run = pd.DataFrame(rows, columns=["method", "qid", "pid", "score"])
    run = run.sort_values(["method", "qid", "score"], ascending=[True, True, False], kind="stable")
    rank = run.groupby(["method", "qid"]).cumcount() + 1
    return run.assign(rank=rank)[["method", "qid", "rank", "pid", "score"]].reset_index(drop=True)
