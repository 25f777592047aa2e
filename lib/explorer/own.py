"""A question of your own: typed, or written by a model, and searched in any passages, also yours.

Nobody has judged a passage for it, so every passage is "not judged". What a folder holds stays
where it is: passages are in memory, and only their vectors go to the cache.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten

import numpy as np
import pandas as pd

from lib.base.files import sha256_bytes
from lib.base.parameters import check_k, check_lam
from lib.base.paths import RECORDINGS
from lib.benchmarks import ddx_mini
from lib.corpora import cut
from lib.data.passages import Passage
from lib.datasets import Question
from lib.embed import Encoder
from lib.explorer.lines import LAM_MAX, SEVERAL, Mimic, breakpoints, order_at
from lib.explorer.rows import (
    DEPTH,
    EXCERPT,
    Explored,
    QuestionSet,
    put_together,
    rows_of,
    shown_passage,
)
from lib.llm.connect import connect
from lib.llm.recorder import Recorder
from lib.llm.small_model import NAME as BUNDLED
from lib.methods.chr import CHR
from lib.pages.readable import plain
from lib.query_spec import Hypotheses, Text
from lib.run import Retriever, expand_all
from lib.search.contrast import TINY
from lib.search.index import DenseIndex
from lib.search.vectors import encode_cached

OWN = "own"
"""The name of the set, of its one question, and of the source of a folder's passages."""

NONE = "none of these"
"""The column of passages about none of the names that are watched."""

MOST_SEARCHED = 2_000_000
"""Passages of the largest corpus: all of its vectors are held in memory at once."""

SUFFIXES = (".txt", ".md")
"""Files of a folder that are read, in capitals too."""

LARGEST_FILE = 5_000_000
"""Bytes of the largest file that is read: about 5,000 passages."""

MOST_PASSAGES = 20_000
"""Passages of the largest folder: a quarter of an hour on two cores."""

_BEGINS = 90
"""Characters of a passage in a table."""

_MEANS = {"not judged": "not judged: nobody has read it for your question"}
_LIVE = RECORDINGS / "live" / "own-question.jsonl"
_WRITERS = {"bundled": "small", "server": None}
"""What ``lib.llm.connect`` is given for each."""


# the question ------------------------------------------------------------------------------------


def hypotheses_of(
    question: str, h_plus: str, h_minus: str = "", several: Sequence[str] = (), another: str = ""
) -> Hypotheses:
    """Your texts with their roles, as every search of this project takes them.

    Without ``h_minus`` there is nothing to subtract. ``several`` are all mimics of the form that
    takes many; ``another`` is another question's mimic, for the controls. Raises ValueError when
    the question or H+ is empty, or where there are several mimics and no ``h_minus``.
    """
    typed = {"question": question, "h_plus": h_plus, "h_minus": h_minus, "another": another}
    typed |= {f"several[{i}]": text for i, text in enumerate(several)}
    for name, text in typed.items():
        if not isinstance(text, str):
            raise ValueError(f"{name} must be a text, not {text!r}; for none, leave it empty: ''")
        if found := re.search("[\ud800-\udfff]", text):
            raise ValueError(f"{name} holds {found[0]!r}, half a character. Next: leave it out")
    if not question.strip():
        raise ValueError("question is empty. Next: type one in the cell of parameters")
    if not h_plus.strip():
        raise ValueError(
            "h_plus is empty: there is nothing to search with. Next: type what you believe is the "
            "answer, or let a model write it: write_with = 'bundled' or 'server'"
        )
    if any(text.strip() for text in several) and not h_minus.strip():
        raise ValueError("several mimics, but no h_minus. Next: put the nearest one into h_minus")
    roles = [
        (h_plus, 1.0, "article", "target"),
        (h_minus, 1.0, "article", "mimic"),
        (question, 0.0, "query", "question"),
        *((text, 1.0, "article", "mimic", SEVERAL) for text in several),
        (another, 1.0, "article", "mimic", "stranger"),
    ]
    texts = [Text(text.strip(), *role) for text, *role in roles if text.strip()]
    return Hypotheses(tuple(texts), qid=OWN)


def own_question(
    question: str,
    h_plus: str,
    h_minus: str,
    retriever: Retriever,
    several: Sequence[str] = (),
    another: str = "",
    options: Mapping[str, str] | None = None,
) -> Explored:
    """Your question on a retriever's passages: rows from which the order at every lambda follows.

    See ``hypotheses_of`` for the texts; ``options`` are only shown. With no mimic at all the rows
    are the best ``DEPTH`` passages by H+, and no form of contrast is offered. Raises ValueError
    when a mimic says what H+ says (no query is left at some lambda), or for a corpus of more than
    ``MOST_SEARCHED`` passages.
    """
    found_in = len(retriever.index.ids)
    if found_in > MOST_SEARCHED:
        raise ValueError(
            f"{found_in:,} passages are more than the {MOST_SEARCHED:,} whose vectors are held in "
            "memory here. Next: set limit, or profile = 'open'"
        )
    hypotheses = hypotheses_of(question, h_plus, h_minus, several, another)
    _refuse_equal(hypotheses, retriever)
    mine = QuestionSet(
        OWN,
        "your question",
        retriever,
        {OWN: hypotheses},
        {OWN: {"text": question.strip(), "options": _checked_options(options), "answer": ""}},
        lambda qid, pid: "not judged",
        _MEANS,
    )
    questions, found = rows_of(mine)
    pids = sorted(pid for pid, _, _ in found[0])
    passages = dict(zip(pids, retriever.store.get_many(pids), strict=True))
    return put_together([(mine, questions, found)], lambda pid: _shown(passages[pid]))


def _refuse_equal(hypotheses: Hypotheses, retriever: Retriever) -> None:
    """ValueError when a mimic has the direction of H+: h+ - lambda h- is then nothing at lambda 1,
    and what is left of it at any other lambda is H+ alone, or H+ turned round."""
    known = retriever.vectors(hypotheses.texts)
    (target,) = hypotheses.of("target")
    plus = known[target.tower, target.text].astype(np.float64)
    for text in [text for text in hypotheses.texts if text.role == "mimic"]:
        minus = known[text.tower, text.text].astype(np.float64)
        # The shortest query of all: at lambda = cos(h+, h-).
        if np.linalg.norm(plus - (plus @ minus) * minus) < TINY:
            raise ValueError(
                f"H+ and this mimic are the same text to the encoder: {text.text[:60]!r}. At "
                "lambda = 1 no query is left, and any order would be noise. Next: type a mimic "
                "that says something else, or h_minus = '' for H+ alone"
            )


def _shown(passage: Passage) -> dict:
    """What is kept of a passage: of a folder's its file in place of a source, and no link."""
    if passage.source != OWN:
        return shown_passage(passage)
    text = shorten(passage.text, EXCERPT, placeholder=" …")
    return {"title": passage.title, "text": text, "source": passage.meta["doc"], "link": ""}


def _checked_options(options: Mapping[str, str] | None) -> dict[str, str]:
    """The options; ValueError for what gives no letter a text."""
    options = options or {}
    if not isinstance(options, Mapping) or not all(
        isinstance(text, str) for text in [*options, *options.values()]
    ):
        raise ValueError(
            f"options is {options!r}. Next: letters with texts, such as {{'A': '...'}}"
        )
    return dict(options)


def another_mimic(question: str, avoid: Sequence[str] = ()) -> str:
    """The mimic of one of ddx-mini's dev questions: the wrong mimic of the controls.

    Drawn by a hash of your question, so it stays the same; none that names one of ``avoid``, what
    your question is about.
    """
    _check_names(avoid)
    dev = {row["qid"] for row in ddx_mini.read("questions") if row["split"] == "dev"}
    offered = {
        row["qid"]: row["H_minus"]
        for row in ddx_mini.read("hypotheses")
        if row["qid"] in dev and not any(_names(row["H_minus"], name) for name in avoid)
    }
    if not offered:
        raise ValueError(f"every mimic of ddx-mini names one of {list(avoid)}: watch fewer names")
    drawn = min(offered, key=lambda qid: sha256_bytes(f"{question} {qid}".encode()))
    return offered[drawn]


# what is found -----------------------------------------------------------------------------------


def _lines(explored: Explored, mimic: Mimic) -> tuple[np.ndarray, np.ndarray]:
    """Heights and slopes of the one question's records; slopes of 0 where there is no mimic.

    ValueError for a mimic that this question has no text for.
    """
    (question,) = explored.questions
    if ("one mimic", mimic) in explored.choices_of(question):
        return explored.lines(question, "one mimic", mimic)
    if mimic != "own":
        raise ValueError(f"no text for the mimic {mimic!r}. Next: pass h_minus and another")
    plus = explored.records["score"][:, 0].astype(np.float64)
    return plus, np.zeros(len(plus))


def order(explored: Explored, lam: float, k: int, mimic: Mimic = "own") -> list[str]:
    """Ids of the k best passages at a lambda, best first: by H+ and one mimic, or by H+ alone where
    you gave no mimic.

    Lambda may be what the rows hold, 0 to 2; ValueError beyond, and for a k above ``DEPTH``.
    """
    if not 1 <= check_k(k) <= DEPTH or not 0 <= check_lam(lam) <= LAM_MAX:
        raise ValueError(
            f"k = {k}, lambda = {lam}: the rows hold the exact top {DEPTH} for lambda from 0 to "
            f"{LAM_MAX:g}, and no more"
        )
    places = explored.records["passage"]
    top = order_at(*_lines(explored, mimic), lam, k, places)
    return [explored.passages[place]["pid"] for place in places[top]]


def top_table(
    explored: Explored, retriever: Retriever, lambdas: Sequence[float], k: int
) -> pd.DataFrame:
    """The k best at several lambdas: lambda, rank, passage, begins, about, pid.

    ``passage`` is the title, ``begins`` how the text does, and ``about`` what its source files it
    under, where it says so. That is no judgment of the passage for your question.
    """
    rows = []
    for lam in lambdas:
        passages = retriever.store.get_many(order(explored, lam, k))
        for rank, passage in enumerate(passages, 1):
            text = shorten(passage.text, _BEGINS, placeholder=" …")
            rows.append((lam, rank, passage.title, text, _about(passage), passage.pid))
    return pd.DataFrame(rows, columns=["lambda", "rank", "passage", "begins", "about", "pid"])


def told(
    explored: Explored, retriever: Retriever, watched: Sequence[str], lam: float, k: int
) -> str:
    """How many of the k best are about each name by H+ alone, at ``lam`` and at the paper's 1.

    In Markdown, one sentence a name (see ``count_about``).
    """
    alone, given, paper = (
        count_about(retriever, order(explored, at, k), watched) for at in (0.0, lam, 1.0)
    )
    sentences = [
        f"Of the first {k} passages, about **{plain(name)}** are {alone[i]} by H+ alone, "
        f"{given[i]} at λ = {lam:g} and {paper[i]} at λ = 1."
        for i, name in enumerate(watched)
    ]
    return "\n\n".join(sentences)


def stretches(
    explored: Explored, retriever: Retriever, watched: Sequence[str], k: int
) -> pd.DataFrame:
    """How many of the k best are about each of the ``watched`` names, over lambda in [0, 2].

    One row for each stretch of lambda on which the counts stay the same, from one exact breakpoint
    to another: from, to, a column for each name, "none of these". See ``count_about``.
    """
    edges = [0.0, *breakpoints(*_lines(explored, "own"), k), LAM_MAX]
    rows: list[list] = []
    for start, end in zip(edges[:-1], edges[1:], strict=True):
        counts = count_about(retriever, order(explored, (start + end) / 2, k), watched)
        if rows and rows[-1][2:] == counts:
            rows[-1][1] = end
        else:
            rows.append([start, end, *counts])
    return pd.DataFrame(rows, columns=["from", "to", *watched, NONE])


def controls(
    explored: Explored, retriever: Retriever, watched: Sequence[str], lam: float, k: int
) -> pd.DataFrame:
    """The same counts at one lambda under H+ alone, your mimic, and the two wrong mimics.

    One row for each that there is a text for. Each wrong mimic is one draw: on one question that
    shows what the controls are, and settles nothing.
    """
    named = {"your mimic": "own", "matched rotation": "rotation", "another question's": "random"}
    found = {"H+ alone": order(explored, 0.0, k)}
    (question,) = explored.questions
    offered = explored.choices_of(question)
    for name, mimic in named.items():
        if ("one mimic", mimic) in offered:
            found[name] = order(explored, lam, k, mimic)
    rows = {name: count_about(retriever, pids, watched) for name, pids in found.items()}
    table = pd.DataFrame.from_dict(rows, orient="index", columns=[*watched, NONE])
    return table.rename_axis(f"λ = {lam:g}")


def count_about(retriever: Retriever, pids: Sequence[str], watched: Sequence[str]) -> list[int]:
    """How many of these passages are about each name, and last, about none of them.

    A passage is about a name that its source files it under; where the source does not say, a name
    that its title or text has. It may count for two names.
    """
    _check_names(watched)
    texts = [
        _about(passage) or f"{passage.title} {passage.text}"
        for passage in retriever.store.get_many(pids)
    ]
    counts = [sum(_names(text, name) for text in texts) for name in watched]
    about_none = [not any(_names(text, name) for name in watched) for text in texts]
    return [*counts, sum(about_none)]


def _about(passage: Passage) -> str:
    """What a source files a passage under: a topic in ddx-mini, a focus in MedQuAD, or nothing."""
    return passage.meta.get("topic") or passage.meta.get("focus") or ""


def _names(text: str, name: str) -> bool:
    """Whether a text has a name, as whole words: "RA" is not in "rarely"."""
    return bool(re.search(rf"(?<!\w){re.escape(name.strip())}(?!\w)", text, re.IGNORECASE))


def _check_names(watched: Sequence[str]) -> None:
    """ValueError for what is no list of names, or a name without a letter."""
    is_list = isinstance(watched, (list, tuple))
    if not is_list or not all(isinstance(n, str) and any(map(str.isalnum, n)) for n in watched):
        raise ValueError(f"watched is {watched!r}. Next: a list of names; for none, leave it: []")


# written by a model ------------------------------------------------------------------------------


def writer(with_: str | None) -> str:
    """Who wrote H+ and H-, in words, to stand beside them."""
    if with_ == "bundled":
        return f"{BUNDLED}, a very small model: often wrong, and here to show how it is done"
    if with_ == "server":
        return f"{os.environ.get('CHR_LLM_MODEL')}, on your server"
    return "typed in this notebook"


def write_hypotheses(
    question: str, options: Mapping[str, str], with_: str, recording: Path = _LIVE
) -> tuple[str, str]:
    """H+ and H- by a model, asked with CHR's prompt; without options, with the one that names none.

    ``with_`` is "bundled" (the small model that comes with the project) or "server" (CHR_LLM_URL,
    CHR_LLM_MODEL, CHR_LLM_KEY). What was said is recorded, so the same question is asked once; a
    recorded reply that cannot be used is asked for again. Raises ValueError for another ``with_``
    or when no two texts came back, and LLMError when the server fails.
    """
    if with_ not in _WRITERS:
        raise ValueError(f"write_with is {with_!r}; there are: None, 'bundled', 'server'")
    if not isinstance(question, str) or not question.strip():
        raise ValueError("question is empty. Next: type one in the cell of parameters")
    asked = Question(OWN, question.strip(), _checked_options(options), "", OWN)
    method = CHR() if options else CHR(options_visible=False, prompt="chr_hypotheses_stem")
    with Recorder(connect(_WRITERS[with_]), recording) as llm:
        (made,) = expand_all(method, [asked], llm, workers=1)
        if made.request is None and not llm.asked:
            with llm.again() as once_more:
                (made,) = expand_all(method, [asked], once_more, workers=1)
    if made.request is None:
        raise ValueError(
            f"{llm.name} wrote no H+ and H- that can be used ({made.trace['error']}). Next: run "
            "this again to ask once more, ask another model, or type them yourself and set "
            "write_with = None"
        )
    return made.trace["H_plus"], made.trace["H_minus"]


# your own folder ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class FolderPassages:
    """The passages of a folder, by id, in memory: what ``lib.data.store.PassageStore`` offers.

    ``files`` has a row for each file: file, title, passages, equal (pieces left out because an
    earlier file, or an earlier place of this one, says the same).
    """

    by_pid: Mapping[str, Passage]
    files: Sequence[Mapping]

    def __len__(self) -> int:
        return len(self.by_pid)

    def __iter__(self) -> Iterator[Passage]:
        return iter(self.by_pid.values())

    def ids(self) -> list[str]:
        """All passage ids in row order."""
        return list(self.by_pid)

    def get_many(self, pids: Sequence[str]) -> list[Passage]:
        """Passages by id, in the order asked; KeyError names the first unknown id."""
        return [self.by_pid[pid] for pid in pids]


def read_folder(folder: str | Path) -> FolderPassages:
    """The text of every .txt and .md file in a folder and below, cut as all documents here are.

    A passage's id is the path of its file, from the folder on, with ``#0``, ``#1``, ... where the
    file is longer than a passage. Its title is the first heading of a Markdown file, or the file's
    name. Hidden files and folders, whatever has another ending, links to folders, and files without
    a word are passed over; of equal passages the first is kept, in the order of the files. Raises
    ValueError for a folder that is none, for a file that cannot be read as UTF-8 or is too large,
    and for a folder with too much text or none.
    """
    if not isinstance(folder, (str, Path)) or not Path(folder).expanduser().is_dir():
        raise ValueError(
            f"folder is {folder!r}: no such folder, seen from {Path.cwd()}. Next: give its "
            "whole path, such as folder = '~/notes'"
        )
    home = Path(folder).expanduser()
    kept: dict[str, Passage] = {}
    files = []
    first_with: dict[str, str] = {}
    for file in _text_files(home):
        name = file.relative_to(home).as_posix()
        here = _passages_of(file, name)
        new = [p for p in here if first_with.setdefault(p.text, p.pid) == p.pid]
        kept |= {passage.pid: passage for passage in new}
        if len(kept) > MOST_PASSAGES:
            raise ValueError(
                f"{home} has more than {MOST_PASSAGES:,} passages ({name!r} was read last). Next: "
                "give a folder inside it"
            )
        if here:
            row = {"file": name, "title": here[0].title, "passages": len(new)}
            files.append(row | {"equal": len(here) - len(new)})
    if not kept:
        raise ValueError(
            f"no text in {home}: it has no file that ends with {' or '.join(SUFFIXES)} and has "
            "words (hidden ones do not count). Next: save what you want searched as such files"
        )
    return FolderPassages(kept, files)


def _text_files(home: Path) -> list[Path]:
    """Files to be read, in the order of their paths."""
    found = []
    for folder, inner, names in os.walk(home, onerror=_raise):
        inner[:] = [name for name in inner if not name.startswith(".")]
        for name in names:
            file = Path(folder, name)
            wanted = file.suffix.lower() in SUFFIXES and not name.startswith(".")
            if wanted and file.is_file():
                found.append(file)
    return sorted(found, key=lambda file: file.relative_to(home).as_posix())


def _raise(error: OSError) -> None:
    """A folder that may not be read is said, not passed over."""
    raise error


def _passages_of(file: Path, name: str) -> list[Passage]:
    """The passages of one file, cut as ``lib.corpora`` cuts; pieces without a word left out.

    ``name`` is its path from the folder on.
    """
    text = _read(file, name)
    title = _heading(text) if file.suffix.lower() == ".md" else ""
    pieces = cut(text)
    found = []
    for i, piece in enumerate(pieces):
        pid = name if len(pieces) == 1 else f"{name}#{i}"
        if any(letter.isalnum() for letter in piece):
            found.append(Passage(pid, title or file.stem, piece, OWN, {"doc": name}))
    return found


def _read(file: Path, name: str) -> str:
    """The text of a file; ``name`` stands for it in errors."""
    size = file.stat().st_size
    if size > LARGEST_FILE:
        raise ValueError(
            f"{name!r} has {size:,} bytes; files of up to {LARGEST_FILE:,} are read. Next: cut it "
            "into several, or move it out of the folder"
        )
    try:
        text = file.read_bytes().decode("utf-8-sig")
        name.encode()
        if "\0" in text:  # UTF-16, or no text at all
            raise ValueError("it holds zero bytes")
    except ValueError as error:
        raise ValueError(
            f"{name!r} is not UTF-8 text ({error}). Next: save it again as UTF-8 (iconv -f latin1 "
            "-t utf-8 OLD > NEW), or move it out of the folder"
        ) from error
    return text


def _heading(text: str) -> str:
    """The first heading of a Markdown text ("# Title"), "" where it has none; code has none."""
    in_code = False
    for line in text.splitlines():
        if line.lstrip().startswith(("```", "~~~")):
            in_code = not in_code
        signs, _, title = line.strip().partition(" ")
        if signs and not signs.strip("#") and len(signs) <= 6 and title.strip() and not in_code:
            # Number signs after a blank close a heading, and are none of it.
            words, _, last = title.strip().rpartition(" ")
            return title.strip() if last.strip("#") else words.strip()
    return ""


def folder_retriever(folder: str | Path, encoder: Encoder, progress: bool = True) -> Retriever:
    """A search in your own folder (see ``read_folder``).

    Nothing of it is copied: texts stay in memory, and the vectors, which the cache keeps by a hash
    of the texts, are made once for as long as no file changes. How many passages are longer than
    the encoder reads is said.
    """
    store = read_folder(folder)
    items = [(passage.title, passage.text) for passage in store]
    name = Path(folder).expanduser().resolve().name
    shards = encode_cached(items, encoder, "article", label=name, progress=progress)
    retriever = Retriever(DenseIndex(shards, store.ids()), encoder, store)
    if too_long := folder_table(retriever)["cut"].sum():
        print(
            f"{name}: {encoder.name} reads only the beginning of {too_long} of {len(store)} "
            "passages; their ends are never found (column cut). Next: cut those files into shorter "
            "ones",
            file=sys.stderr,
        )
    return retriever


def folder_table(retriever: Retriever) -> pd.DataFrame:
    """What was read of a folder: file, title, passages, equal (see ``FolderPassages``), and cut:
    passages of which the encoder reads only the beginning."""
    passages = list(retriever.store)
    unread = retriever.encoder.unread([(passage.title, passage.text) for passage in passages])
    too_long = Counter(p.meta["doc"] for p, tokens in zip(passages, unread, strict=True) if tokens)
    return pd.DataFrame([row | {"cut": too_long[row["file"]]} for row in retriever.store.files])  # type: ignore[attr-defined]
