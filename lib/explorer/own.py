"""A question of your own: typed, or written by a model, and searched in any passages, also yours.

Nobody has judged a passage for it, so every passage is "not judged". What a folder holds stays
where it is: passages are in memory, and only their vectors go to the cache.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import shorten

import numpy as np
import pandas as pd

from lib.base.files import sha256_bytes
from lib.base.parameters import check_k, check_lam
from lib.base.paths import RECORDINGS
from lib.benchmarks import ddx_mini
from lib.data.passages import Passage
from lib.datasets import Question
from lib.explorer.folder import SOURCE
from lib.explorer.lines import LAM_MAX, SEVERAL, Mimic, breakpoints, lines_of, order_at
from lib.explorer.rows import DEPTH, Explored, QuestionSet, put_together, rows_of
from lib.explorer.sets import EXCERPT
from lib.explorer.sets import shown as shown_here
from lib.llm.connect import connect
from lib.llm.recorder import Recorder
from lib.llm.small_model import NAME as BUNDLED
from lib.methods.chr import CHR
from lib.pages.readable import plain
from lib.run import Retriever, expand_all
from lib.search.contrast import TINY
from lib.ways import Hypotheses, Text

OWN = "own"
"""The name of the set, and of its one question."""

NONE = "none of these"
"""The column of passages about none of the names that are watched."""

MOST_SEARCHED = 2_000_000
"""Passages of the largest corpus: all of its vectors are held in memory at once."""

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
    texts = [Text(h_plus.strip(), 1.0, "article", "target")]
    if h_minus.strip():
        texts.append(Text(h_minus.strip(), 1.0, "article", "mimic"))
    texts.append(Text(question.strip(), 0.0, "query", "question"))
    texts += [Text(t.strip(), 1.0, "article", "mimic", SEVERAL) for t in several if t.strip()]
    if another.strip():
        texts.append(Text(another.strip(), 1.0, "article", "mimic", "stranger"))
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
    some = QuestionSet(
        OWN,
        "your question",
        retriever,
        {OWN: hypotheses},
        {OWN: {"text": question.strip(), "options": _letters(options or {}), "answer": ""}},
        lambda qid, pid: "not judged",
        _MEANS,
    )
    questions, found = rows_of(some)
    if not hypotheses.of("mimic"):
        found = [_rows_of_h_plus(hypotheses, retriever)]
    wanted = sorted(pid for pid, _, _ in found[0])
    passages = {passage.pid: passage for passage in retriever.store.get_many(wanted)}
    return put_together([(some, questions, found)], lambda pid: _shown(passages[pid]))


def _refuse_equal(hypotheses: Hypotheses, retriever: Retriever) -> None:
    """ValueError when a mimic has the direction of H+: h+ - lambda h- is then nothing at lambda 1,
    and what is left of it at any other lambda is H+ alone, or H+ turned round."""
    known = retriever.vectors(hypotheses.texts)
    (target,) = hypotheses.of("target")
    plus = known[target.tower, target.text].astype(np.float64)
    for text in hypotheses.texts:
        if text.role != "mimic":
            continue
        minus = known[text.tower, text.text].astype(np.float64)
        # The shortest query of all: at lambda = cos(h+, h-).
        if np.linalg.norm(plus - (plus @ minus) * minus) < TINY:
            raise ValueError(
                f"H+ and this mimic are the same text to the encoder: {text.text[:60]!r}. At "
                "lambda = 1 no query is left, and any order would be noise. Next: type a mimic "
                "that says something else, or h_minus = '' for H+ alone"
            )


def _rows_of_h_plus(
    hypotheses: Hypotheses, retriever: Retriever
) -> list[tuple[str, str, np.ndarray]]:
    """The best passages by H+ with their cosines, as ``rows_of`` gives them; NaN for no text."""
    hits = retriever.search_many([hypotheses.by(lam=0.0)], DEPTH)[0]
    known = retriever.vectors(hypotheses.texts)
    scores = np.full((hits.ids.shape[1], 5), np.nan)
    for column, role in ((0, "target"), (2, "question")):
        (text,) = hypotheses.of(role)
        vector = known[text.tower, text.text][None]
        scores[:, column] = retriever.index.score(vector, hits.rows[0])[0]
    return list(zip(hits.ids[0].tolist(), ["not judged"] * len(scores), scores, strict=True))


def another_mimic(question: str, avoid: Sequence[str] = ()) -> str:
    """The mimic of one of ddx-mini's dev questions: the wrong mimic of the controls.

    Drawn by a hash of your question, so it stays the same; none that names one of ``avoid``, what
    your question is about.
    """
    _refuse_one_text(avoid)
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
    (question,) = explored.of(OWN)
    scores = explored.records_of(question)["score"].astype(np.float64)
    if ("one mimic", mimic) in explored.choices_of(question):
        return lines_of(scores, "one mimic", mimic, question["c_own"], question["c_random"])
    if mimic != "own":
        raise ValueError(f"no text for the mimic {mimic!r}. Next: pass h_minus and another")
    return scores[:, 0], np.zeros(len(scores))


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
    (question,) = explored.of(OWN)
    places = explored.records_of(question)["passage"]
    top = order_at(*_lines(explored, mimic), lam, k, explored.order[places])
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
            begins = shorten(passage.text, _BEGINS, placeholder=" …")
            rows.append((lam, rank, passage.title, begins, _about(passage), passage.pid))
    return pd.DataFrame(rows, columns=["lambda", "rank", "passage", "begins", "about", "pid"])


def told(
    explored: Explored, retriever: Retriever, watched: Sequence[str], lam: float, k: int
) -> str:
    """How many of the k best are about each name by H+ alone, at ``lam`` and at the paper's 1.

    In Markdown, one sentence a name (see ``count_about``).
    """
    lambdas = {"by H+ alone": 0.0, f"at λ = {lam:g}": lam, "at λ = 1": 1.0}
    counts = {
        at: count_about(retriever, order(explored, x, k), watched) for at, x in lambdas.items()
    }
    sentences = []
    for i, name in enumerate(watched):
        *numbers, last = [f"{found[i]} {at}" for at, found in counts.items()]
        said = f"{', '.join(numbers)} and {last}"
        sentences.append(f"Of the first {k} passages, about **{plain(name)}** are {said}.")
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
    (question,) = explored.of(OWN)
    there = explored.choices_of(question)
    for name, mimic in named.items():
        if ("one mimic", mimic) in there:
            found[name] = order(explored, lam, k, mimic)
    rows = {name: count_about(retriever, pids, watched) for name, pids in found.items()}
    table = pd.DataFrame.from_dict(rows, orient="index", columns=[*watched, NONE])
    return table.rename_axis(f"λ = {lam:g}")


def count_about(retriever: Retriever, pids: Sequence[str], watched: Sequence[str]) -> list[int]:
    """How many of these passages are about each name, and last, about none of them.

    A passage is about a name that its source files it under; where the source does not say, a name
    that its title or text has. It may count for two names.
    """
    _refuse_one_text(watched)
    passages = retriever.store.get_many(pids)
    counts = [sum(_is_about(passage, name) for passage in passages) for name in watched]
    about_none = [not any(_is_about(passage, name) for name in watched) for passage in passages]
    return [*counts, sum(about_none)]


def _about(passage: Passage) -> str:
    """What a source files a passage under: a topic in ddx-mini, a focus in MedQuAD, or nothing."""
    return passage.meta.get("topic") or passage.meta.get("focus") or ""


def _is_about(passage: Passage, name: str) -> bool:
    return _names(_about(passage) or f"{passage.title} {passage.text}", name)


def _names(text: str, name: str) -> bool:
    """Whether a text has a name, as whole words: "RA" is not in "rarely"."""
    return bool(re.search(rf"(?<!\w){re.escape(name.strip())}(?!\w)", text, re.IGNORECASE))


def _refuse_one_text(watched: Sequence[str]) -> None:
    """ValueError for what is no list of names, or a name without a letter."""
    if isinstance(watched, str):
        raise ValueError(f"watched is one text. Next: a list of names, such as [{watched!r}]")
    if not isinstance(watched, Sequence) or not all(isinstance(name, str) for name in watched):
        raise ValueError(f"watched is {watched!r}. Next: a list of names; for none, leave it: []")
    if empty := [name for name in watched if not any(map(str.isalnum, name))]:
        raise ValueError(f"watched has the name {empty[0]!r}. Next: leave it out")


def _letters(options: Mapping[str, str]) -> dict[str, str]:
    """The options; ValueError for what gives no letter a text."""
    texts = isinstance(options, Mapping) and all(
        isinstance(x, str) for x in [*options, *options.values()]
    )
    if not texts:
        raise ValueError(
            f"options is {options!r}. Next: letters with texts, such as {{'A': '...'}}"
        )
    return dict(options)


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
    asked = Question(OWN, question.strip(), _letters(options), "", OWN)
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


def _shown(passage: Passage) -> dict:
    """What is kept of a passage: of a folder's its file in place of a source, and no link."""
    if passage.source != SOURCE:
        return shown_here(passage)
    text = shorten(passage.text, EXCERPT, placeholder=" …")
    return {"title": passage.title, "text": text, "source": passage.meta["doc"], "link": ""}
