"""From questions to a run: a method's expansions, their search, and what the LLM wrote as a table.

A method says what to search with; ``lib.run`` searches; here the two meet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace

import pandas as pd

from lib.datasets import Question
from lib.llm.chat import REFERENCE, ChatModel, in_parallel, ledger
from lib.llm.recorder import RecordingMiss
from lib.methods.base import Expansion, Method
from lib.parse import YES_NO, names_option
from lib.query_spec import By, Fusion, Hit, Hypotheses, Request, Sparse
from lib.run import RUN_COLUMNS, RetrievalFailure, Retriever
from lib.search.index import Hits

_COSTS = ("calls", "prompt_tokens", "output_tokens")


def expand_all(
    method: Method,
    questions: Sequence[Question],
    llm=None,
    retriever: Retriever | None = None,
    *,
    workers: int = 8,
    progress: bool = False,
) -> list[Expansion]:
    """``method.expand`` for every question, several LLM calls in flight, order kept.

    Every LLM call is tagged with method and question, so a recording or a miss names both. The
    trace says how often it searched (``searches``), before the search that is its result. An
    expansion with an empty text to search with has failed. TypeError, naming method and question,
    for what is no Expansion.
    """
    if method.needs_llm and llm is None:
        raise ValueError(f"method {method.name} needs an LLM: pass llm=lib.llm.connect(...)")
    search = retriever.search if retriever else _no_search

    def one(question: Question) -> Expansion:
        searched = []

        def counted(request: Request, k: int) -> list[tuple[str, str]]:
            searched.append(k)
            return search(request, k)

        with llm.tag(method=method.name, qid=question.qid) if llm else nullcontext():
            made = method.expand(question, llm, counted)
        if not isinstance(made, Expansion):
            raise TypeError(
                f"method {method.name}, question {question.qid}: expand gave {made!r:.80}, "
                "it must give an Expansion"
            )
        request = made.request
        trace = made.trace | {"searches": len(searched)}
        if request is not None and _has_empty_text(request):
            return replace(made, request=None, trace=trace | {"error": "a text to search is empty"})
        if isinstance(request, Hypotheses):
            topics = frozenset(filter(None, (question.target, question.mimic)))
            request = replace(request, qid=question.qid, topics=topics)
        return replace(made, request=request, trace=trace)

    return in_parallel(one, questions, workers=workers, label=method.name, progress=progress)


def _has_empty_text(request: Request) -> bool:
    """Whether any text that is to be searched with says nothing."""
    if isinstance(request, Fusion):
        return any(_has_empty_text(part) for part in request.requests)
    if isinstance(request, By):
        return _has_empty_text(request.request)
    texts = [request.text] if isinstance(request, Sparse) else _said(request)
    # An article is a title and a text.
    return not all("".join(text).strip() for text in texts)


def _said(request: Hypotheses) -> list[str | tuple[str, str]]:
    """The texts of a request that name no passage."""
    return [text.text for text in request.texts if not text.pid]


def _no_search(request: Request, k: int) -> list[tuple[str, str]]:
    raise ValueError("this method reads first results: pass retriever=lib.run.Retriever(...)")


def execute(
    name: str,
    questions: Sequence[Question],
    expansions: Sequence[Expansion],
    retriever: Retriever,
    k: int = 5,
) -> tuple[pd.DataFrame, dict[str, dict]]:
    """Search for every expansion and take its steps: the run, labelled ``name``, traces by qid.

    A question whose expansion failed, or whose search finds nothing, has no rows in the run and an
    ``error`` in its trace: it counts as retrieving nothing, and is never answered some other way.
    After steps, ranks are those of the last step and scores still those of the search; the trace
    lists under ``after`` what each step was given and left, and how many pairs it had scored.
    """
    traces = {q.qid: dict(e.trace) for q, e in zip(questions, expansions, strict=True)}
    ready = [i for i, e in enumerate(expansions) if e.request is not None]
    by_depth = defaultdict(list)
    for i in ready:
        by_depth[max(k, expansions[i].depth)].append(i)
    found: dict[int, Hits | RetrievalFailure] = {}
    for depth, members in by_depth.items():
        hits_of = retriever.search_many([expansions[i].request for i in members], depth)
        found |= dict(zip(members, hits_of, strict=True))
    rows = []
    for i in ready:
        question, hits = questions[i], found[i]
        trace = traces[question.qid]
        if isinstance(hits, RetrievalFailure):
            trace["error"] = hits
            continue
        scores = dict(zip(hits.ids[0].tolist(), hits.scores[0].tolist(), strict=True))
        left = list(scores)
        if expansions[i].after and left:
            texts = retriever.texts_of(left, expansions[i].titles)
            left, trace["after"] = postprocess(expansions[i], question, texts, k)
        if not left:
            trace["error"] = "every passage was filtered out" if scores else "no passage was found"
        for rank, pid in enumerate(left[:k], 1):
            rows.append((name, question.qid, rank, pid, scores[pid]))
    return pd.DataFrame(rows, columns=list(RUN_COLUMNS)), traces


def postprocess(
    expansion: Expansion, question: Question, hits: Sequence[Hit], k: int
) -> tuple[list[str], list[dict]]:
    """The passage ids that an expansion's steps leave of a list, and a record of every step.

    A step that says ``after_cut`` is given the best ``k`` of what is left by then. A record:
    ``step`` (its name), ``given`` and ``left`` (passage ids), ``pairs`` (texts that it had a model
    score) and what the step tells besides. ValueError for a step that makes up a passage or repeats
    one.
    """
    records = []
    for step in expansion.after:
        if getattr(step, "after_cut", False):
            hits = hits[:k]
        given = [pid for pid, _ in hits]
        taken = step(question, hits)
        hits = taken.hits
        left = [pid for pid, _ in hits]
        if len(set(left)) < len(left) or not set(left) <= set(given):
            raise ValueError(f"the step {step.name!r} repeats passages or made some up: {left}")
        records.append(
            {"step": step.name, "given": given, "left": left, "pairs": taken.pairs}
            | dict(taken.info)
        )
    return [pid for pid, _ in hits], records


def hypotheses(method: Method, questions: Sequence[Question], llm: ChatModel) -> pd.DataFrame:
    """One row per question: qid, H_plus, H_minus, repaired, cut, error, names_answer, replies.

    ``names_answer``: H+ has a right option's text as whole words. It is missing for yes/no
    questions, whose options are no names, and without options. A failed question has empty
    hypotheses and its error.
    """
    rows = []
    for question, expansion in zip(questions, expand_all(method, questions, llm), strict=True):
        row = {"qid": question.qid, "H_plus": "", "H_minus": ""} | expansion.trace
        right = [question.options[letter] for letter in question.right]
        row["names_answer"] = None
        if any(option.lower() not in YES_NO for option in right):
            row["names_answer"] = any(names_option(row["H_plus"], option) for option in right)
        rows.append(row)
    return pd.DataFrame(rows)


def by_set(
    method: Method, sets: Mapping[str, Sequence[Question]], llm: ChatModel
) -> dict[str, pd.DataFrame]:
    """``hypotheses`` of each question set; a set without a recording is reported as NOT RUN."""
    replies = {}
    for name, questions in sets.items():
        try:
            replies[name] = hypotheses(method, questions, llm)
        except RecordingMiss as miss:
            print(f"NOT RUN, {name}: {miss}")
    return replies


def validity(replies: Mapping[str, pd.DataFrame], author: str) -> pd.DataFrame:
    """Per question set: n, valid, repaired, cut, names_answer, calls, prompt_tokens, output_tokens.

    ``replies`` has a table of ``hypotheses`` for each set, and ``author`` is who wrote them.
    ``names_answer`` is a share, and the last three columns are sums, empty for reference text.
    Latency is left to the ledger: it is never the same twice.
    """
    rows = []
    for dataset, table in replies.items():
        row = {
            "dataset": dataset,
            "author": author,
            "n": len(table),
            "valid": int((table["error"] == "").sum()),
            "repaired": int(table["repaired"].sum()),
            "cut": int(table["cut"].sum()),
            "names_answer": table["names_answer"].dropna().mean(),
        }
        all_replies = [reply for of_question in table["replies"] for reply in of_question]
        cost = ledger(all_replies).sum(numeric_only=True)
        for name in _COSTS:
            row[name] = None if author == REFERENCE else cost[name]
        rows.append(row)
    return pd.DataFrame(rows)
