"""A question of your own: typed, or written by a model, and searched in any passages, also yours.

Nobody has judged a passage for it, so every passage is "not judged". What a folder holds stays
where it is: passages are in memory, and only their vectors go to the cache.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path
from textwrap import shorten

import pandas as pd

from lib.base.files import sha256_bytes
from lib.base.paths import OWN, RECORDINGS
from lib.benchmarks import ddx_mini
from lib.data.passages import Passage
from lib.datasets import Question
from lib.expansion import expand_all
from lib.explorer.make import EXCERPT, QuestionSet, make_explored, shown_passage
from lib.explorer.rows import LAM_MAX, Explored, Mimic, Place
from lib.llm.connect import connect
from lib.llm.recorder import Recorder
from lib.llm.small_model import NAME as BUNDLED
from lib.methods.chr import CHR
from lib.query_spec import Hypotheses, Sparse, Text
from lib.run import RetrievalFailure, Retriever
from lib.search.bm25 import words

NONE = "none of these"
"""The column of passages about none of the names that are watched."""

_LIVE = RECORDINGS / "live" / "own-question.jsonl"


# the question ------------------------------------------------------------------------------------


def hypotheses_of(question: str, h_plus: str, h_minus: str = "", another: str = "") -> Hypotheses:
    """Your texts with their roles, as every search of this project takes them.

    Without ``h_minus`` there is nothing to subtract; ``another`` is another question's mimic, for
    the controls. Raises ValueError when a text is none, or the question or H+ is empty.
    """
    typed = {"question": question, "h_plus": h_plus, "h_minus": h_minus, "another": another}
    for name, text in typed.items():
        if not isinstance(text, str):
            raise ValueError(f"{name} must be a text, not {text!r}; for none, leave it empty: ''")
    if not question.strip():
        raise ValueError("question is empty. Next: type one in the cell of parameters")
    if not h_plus.strip():
        raise ValueError(
            "h_plus is empty: there is nothing to search with. Next: type what you believe is the "
            "answer, or let a model write it: write_with = 'bundled' or 'server'"
        )
    texts = (
        Text(h_plus.strip(), 1.0, "article", "target"),
        Text(h_minus.strip(), 1.0, "article", "mimic"),
        Text(question.strip(), 0.0, "query", "question"),
        Text(another.strip(), 1.0, "article", "mimic", "stranger"),
    )
    return Hypotheses(tuple(text for text in texts if text.text), qid=OWN)


def own_question(
    question: str,
    h_plus: str,
    h_minus: str,
    retriever: Retriever,
    another: str = "",
    options: Mapping[str, str] | None = None,
) -> Explored:
    """Your question on a retriever's passages: rows from which the order at every lambda follows.

    See ``hypotheses_of`` for the texts; ``options`` are only shown. With no mimic at all the rows
    are the best passages by H+, and no form of contrast is offered. Every vector is read once.
    Raises ValueError when the mimic says what H+ says (no query is left at lambda 1).
    """
    hypotheses = hypotheses_of(question, h_plus, h_minus, another)
    if h_minus.strip():
        (found,) = retriever.search_many([hypotheses.by(lam=1.0)], 1)
        if isinstance(found, RetrievalFailure):
            raise ValueError(
                f"H+ and this mimic are the same text to the encoder: {h_minus[:60]!r}. At "
                "lambda = 1 no query is left, and any order would be noise. Next: type a mimic "
                "that says something else, or h_minus = '' for H+ alone"
            )
    shown = {"text": question.strip(), "options": _checked_options(options), "answer": ""}
    about = {"name": OWN, "title": "your question", "written": "", "judged_at": [], "dev": None}
    about["means"] = {"not judged": "nobody has read it for your question"}
    mine = QuestionSet(
        about, retriever, {OWN: hypotheses}, {OWN: shown}, lambda qid, pid: "not judged"
    )
    return make_explored([mine], _shown)


def _shown(passage: Passage) -> dict:
    """What is kept of a passage: of a folder's its file in place of a source, and no link."""
    if passage.source != OWN:
        about = {"source": passage.source, "about": _about(passage)}
        return shown_passage(passage) | about
    text = shorten(passage.text, EXCERPT, placeholder=" …")
    return {"title": passage.title, "text": text, "source": passage.meta["doc"], "link": ""}


def _checked_options(options: Mapping[str, str] | None) -> dict[str, str]:
    """The options; ValueError for what gives no letter a text."""
    options = options or {}
    texts = [*options, *options.values()] if isinstance(options, Mapping) else [None]
    if not all(isinstance(text, str) for text in texts):
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


# what the passages hold --------------------------------------------------------------------------

_SHARE, _WORDS = 0.22, 3
"""A passage mentions the topic of H+ when it has this share of H+'s words, stop words aside, and at
least so many of them; fewer than two such passages are too few. Both were chosen on ddx-mini's
questions, with and without the passages that they ask for (tests/test_own.py has how often)."""

_DEEP = 100
"""Passages, the best for H+ by BM25, in which the words of H+ are counted."""

_MOST = 100_000
"""Passages that are read to say what a collection holds."""


def mentions(h_plus: str, retriever: Retriever) -> int:
    """How many passages mention the topic of H+ (see ``_SHARE``), at most ``_DEEP``."""
    wanted = set(words(h_plus))
    (hits,) = retriever.search_many([Sparse(h_plus)], _DEEP)
    found = [passage.titled for passage in retriever.store.get_many(hits.ids[0].tolist())]
    counts = [len(wanted.intersection(words(text))) for text in found]
    return sum(count >= max(_SHARE * len(wanted), _WORDS) for count in counts)


def topic_told(question: str, h_plus: str, retriever: Retriever) -> str:
    """Whether the collection holds what H+ is about, in sentences.

    "NOT HELD" where it does not, with words of H+ that no passage has and what there is instead;
    "CHECK H+" where H+ and the question have no word in common.
    """
    n, count = len(retriever.store), mentions(h_plus, retriever)
    told = (
        f"{count}{' or more' if count == _DEEP else ''} of {n:,} passages "
        f"{'mentions' if count == 1 else 'mention'} your topic "
        f"(at least {100 * _SHARE:.0f} % of the words of H+)."
    )
    if count < 2:
        known = list(dict.fromkeys(words(h_plus)))
        searched = retriever.search_many([Sparse(word) for word in known], 1)
        absent = [word for word, hits in zip(known, searched, strict=True) if not hits.ids.size]
        none = f" No passage has: {', '.join(absent)}." if absent else ""
        held = holdings(retriever)
        some = ", ".join(f"{row.about} ({row.passages})" for row in held.head(8).itertuples())
        more = f", and {len(held) - 8:,} more" if len(held) > 8 else ""
        told = (
            f"NOT HELD: {told}{none} What is found is probably about something else. "
            f"The collection holds: {some}{more}."
        )
    if not set(words(question)).intersection(words(h_plus)):
        told = (
            "CHECK H+: your question and H+ have no word in common, and only H+ and H− are "
            f"searched with. Is this the H+ of another question? {told}"
        )
    return told


def holdings(retriever: Retriever) -> pd.DataFrame:
    """What the collection holds, the most first: what its passages are about (else their title, or
    file), how many there are, and their source. Of a large one, its first ``_MOST``."""
    rows = [
        (_about(passage) or passage.title or passage.meta.get("doc", passage.pid), passage.source)
        for passage in islice(retriever.store, _MOST)
    ]
    found = pd.DataFrame(rows, columns=["about", "source"]).groupby("about")["source"]
    table = found.agg(passages="size", source=lambda of: ", ".join(sorted(set(of)))).reset_index()
    return table.sort_values(["passages", "about"], ascending=[False, True], ignore_index=True)


# what is found -----------------------------------------------------------------------------------


def order(explored: Explored, lam: float, k: int, mimic: Mimic = "own") -> list[str]:
    """Ids of the k best passages at a lambda, best first: by H+ and one mimic, or by H+ alone where
    you gave no mimic. Raises as ``Explored.list_at`` does."""
    found = explored.list_at(Place(OWN, OWN, mimic=mimic, lam=lam, k=k))
    return [passage["pid"] for passage in found]


def top_table(
    explored: Explored, retriever: Retriever, lambdas: Sequence[float], k: int
) -> pd.DataFrame:
    """The k best at several lambdas: lambda, rank, passage, about, begins, pid.

    ``passage`` is the title, ``begins`` how the text does, and ``about`` what its source files it
    under, where it says so. That is no judgment of the passage for your question.
    """
    rows = []
    for lam in lambdas:
        for rank, one in enumerate(retriever.store.get_many(order(explored, lam, k)), 1):
            text = shorten(one.text, 90, placeholder=" …")
            rows.append((lam, rank, one.title, _about(one), text, one.pid))
    return pd.DataFrame(rows, columns=["lambda", "rank", "passage", "about", "begins", "pid"])


def stretches(
    explored: Explored, retriever: Retriever, watched: Sequence[str], k: int
) -> pd.DataFrame:
    """How many of the k best are about each of the ``watched`` names, over lambda in [0, 2].

    One row for each stretch of lambda on which the counts stay the same, from one exact breakpoint
    to another: from, to, a column for each name, "none of these". See ``count_about``.
    """
    changes = [lam for lam in explored.changes(Place(OWN, OWN, k=k)) if lam > 0]
    rows: list[list] = []
    for start, end in pairwise([0.0, *changes, LAM_MAX]):
        counts = count_about(retriever, order(explored, (start + end) / 2, k), watched)
        if rows and rows[-1][2:] == counts:
            rows[-1][1] = end
        else:
            rows.append([start, end, *counts])
    return pd.DataFrame(rows, columns=["from", "to", *watched, NONE])


def controls(
    explored: Explored, retriever: Retriever, watched: Sequence[str], lam: float, k: int
) -> pd.DataFrame:
    """The same counts under H+ alone, your mimic at ``lam`` and at the paper's 1, and the two wrong
    mimics at ``lam``.

    One row for each that has a text. Each wrong mimic is a single draw, so on one question the
    controls are an illustration, not evidence.
    """
    (question,) = explored.questions
    offered = [mimic for form, mimic in explored.choices_of(question) if form == "one mimic"]
    found = {"H+ alone": order(explored, 0.0, k)}
    if "own" in offered:
        for at in dict.fromkeys([lam, 1.0]):
            found[f"your mimic, λ = {at:g}"] = order(explored, at, k)
    for mimic, name in (("rotation", "matched rotation"), ("random", "another question's")):
        if mimic in offered:
            found[f"{name}, λ = {lam:g}"] = order(explored, lam, k, mimic)
    rows = {name: count_about(retriever, pids, watched) for name, pids in found.items()}
    return pd.DataFrame.from_dict(rows, orient="index", columns=[*watched, NONE])


def lines_table(
    explored: Explored,
    retriever: Retriever,
    watched: Sequence[str],
    lambdas: Sequence[float],
    k: int,
) -> pd.DataFrame:
    """Every passage that the rows have, as a line over lambda, s_plus - lambda s_minus.

    Columns: passage (its title), class (the watched names that it is about, a category), bold
    (whether it is among the k best at one of ``lambdas``), s_plus, s_minus.
    """
    (question,) = explored.questions
    height, slope = explored.lines(question)
    pids = [explored.passages[i]["pid"] for i in explored.records_of(question)["passage"]]
    shown = {pid for lam in lambdas for pid in order(explored, lam, k)}
    rows = [
        (passage.title, " and ".join(_watched_in(passage, watched)) or NONE, passage.pid in shown)
        for passage in retriever.store.get_many(pids)
    ]
    table = pd.DataFrame(rows, columns=["passage", "class", "bold"])
    several = sorted(set(table["class"]) - {*watched, NONE})
    classes = pd.Categorical(table["class"], [*dict.fromkeys(watched), *several, NONE])
    return table.assign(**{"class": classes}, s_plus=height, s_minus=slope)


def count_about(retriever: Retriever, pids: Sequence[str], watched: Sequence[str]) -> list[int]:
    """How many of these passages are about each name, and last, about none of them.

    A passage is about a name that its source files it under; where the source does not say, a name
    that its title or text has. It may count for two names.
    """
    _check_names(watched)
    about = [_watched_in(passage, watched) for passage in retriever.store.get_many(pids)]
    return [*(sum(name in names for names in about) for name in watched), about.count([])]


def _watched_in(passage: Passage, watched: Sequence[str]) -> list[str]:
    """Those of the names that a passage is about: see ``count_about``."""
    text = _about(passage) or f"{passage.title} {passage.text}"
    return [name for name in watched if _names(text, name)]


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
    writers = {
        "bundled": f"{BUNDLED}, a very small model: often wrong, and here to show how it is done",
        "server": f"{os.environ.get('CHR_LLM_MODEL')}, on your server",
    }
    return writers.get(with_ or "", "typed in this notebook")


def write_hypotheses(
    question: str, options: Mapping[str, str], with_: str, recording: Path = _LIVE
) -> tuple[str, str]:
    """H+ and H- by a model, asked with CHR's prompt; without options, with the one that names none.

    ``with_`` is "bundled" (the small model that comes with the project) or "server" (CHR_LLM_URL,
    CHR_LLM_MODEL, CHR_LLM_KEY). What was said is recorded, so the same question is asked once; a
    recorded reply that cannot be used is asked for again. Raises ValueError for another ``with_``
    or when no two texts came back, and LLMError when the server fails.
    """
    if with_ not in ("bundled", "server"):
        raise ValueError(f"write_with is {with_!r}; there are: None, 'bundled', 'server'")
    if not isinstance(question, str) or not question.strip():
        raise ValueError("question is empty. Next: type one in the cell of parameters")
    asked = Question(OWN, question.strip(), _checked_options(options), "", OWN)
    method = CHR() if options else CHR(options_visible=False, prompt="chr_hypotheses_stem")
    model = connect("small" if with_ == "bundled" else None)
    with Recorder(model, recording) as llm:
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


# your own passages -------------------------------------------------------------------------------


def files_table(retriever: Retriever) -> pd.DataFrame:
    """What was read of passages of your own (``lib.corpus``), a row a file and title: file, title,
    passages, and cut: passages of which the encoder reads only the beginning."""
    passages = list(retriever.store)
    unread = retriever.encoder.unread([(passage.title, passage.text) for passage in passages])
    rows = {
        "file": [passage.meta["doc"] for passage in passages],
        "title": [passage.title for passage in passages],
        "cut": [tokens > 0 for tokens in unread],
    }
    files = pd.DataFrame(rows).groupby(["file", "title"], sort=False)["cut"]
    return files.agg(passages="size", cut="sum").reset_index()
