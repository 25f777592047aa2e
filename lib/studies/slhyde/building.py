"""How CMIRB makes a retrieval set of queries and passages with a language model: its Algorithm 1.

Every reply of the model can be recorded, so a run that was stopped goes on. Source: Li et al.,
AutoMIR, arXiv:2410.20050, Appendix B.1, Algorithm 1 and the six prompts of Figures 4 and 5, which
stand in ``building_prompts`` in our own words.

1. ``medical`` (lines 3-9): drop a query and the passage that it came with if they are not medical.
2. For queries that are to be *matched* (MedExam and DuBaike of the ten sets), lines 10-26:
   ``rank``: BM25 finds 20 passages, the model chooses 3; ``extract``: it says which sentences of
   each support the known answer; ``answer``: it answers from these alone; ``validate``: the pair
   stays if that answer agrees with the known one. The others keep their own passage (*given*).
3. ``relevance`` (lines 27-33): the model scores every pair from 1 to 5; low ones are dropped.

Where the text is silent or contradicts itself, this is what is done here:

- **A misprint.** Figure 4's "Passage Reranking Prompt" and Figure 5's "Validate Answer Prompt" are
  word for word the same, and validate an answer: the reranking prompt is missing. Ours follows
  Appendix B.1: one list of candidates, the best 3 chosen.
- The order of the candidates is not said. Here it is that of a hash, which tells nothing.
- No threshold is printed. The medical prompt gives 0 or 1, so 1 stays. The others were chosen
  before any reply was read; ``thresholds`` counts what others would have kept.
- Line 5 scores query and passage one by one, the prompt shows both. As the prompt; a passage that
  goes leaves the corpus too.
- Line 21 validates an answer against the document, Figure 5 and Appendix B.1 against a reference
  answer. As Figure 5: an answer that was made of a document agrees with it anyway.
- Figure 5 answers from "one or more" documents, lines 19-21 from each. As the algorithm.
- Figure 4 asks for copied passages, and twice for an "explanation" without a key. Here sentences
  are numbered and the reply holds numbers: nothing can be misquoted or stand in a recording.
- A document without evidence, or with too little to answer, is dropped.
- The algorithm keeps every document that validates. The published MedExam and DuBaike have one a
  query, and the text does not say which. Here all stay.
- Replies are in English, and reasons come before the score that follows from them.
- A reply that is no JSON is asked for once more, then its pair is dropped as "no usable reply".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from lib.base.files import sha256_bytes
from lib.data.judgments import shown_text
from lib.data.passages import Passage
from lib.llm.chat import ChatModel, ask_json, tag
from lib.llm.prompts import load_prompt
from lib.llm.recorder import RecordingMiss
from lib.search.bm25 import BM25Index
from lib.studies.contradiction.nli import sentences
from lib.studies.slhyde.tasks import Task

PROMPTS = Path(__file__).parent / "building_prompts"
"""A prompt for each of ``STEPS``, by its name."""

CANDIDATES, CHOSEN = 20, 3
"""Passages found by BM25, and how many of them the model chooses (both Appendix B.1)."""

LEAST_SIMILARITY, LEAST_QUALITY = 0.7, 4
"""From which similarity (0 to 1) an answer is validated, and quality (1 to 5) a pair stays."""

NO_REPLY = "no usable reply"
NOT_MEDICAL = "not medical"

Search = Callable[[str, int], list[Passage]]
"""The passages that a search by words finds for a text, best first, at most so many."""


@dataclass(frozen=True)
class Query:
    """A query: the passage it came with, the answer that is known to be right, and its route.

    A "given" query keeps the passage it came with; for a "matched" one passages are searched.
    """

    qid: str
    text: str
    source: Passage
    answer: str
    route: Literal["given", "matched"]


@dataclass(frozen=True)
class Pair:
    """A query and a passage on their way into the set.

    ``candidates``: what BM25 finds, until the model ranks it; ``place``: the passage's place in the
    model's ranking, from 1, 0 where nothing was ranked; ``evidence``: sentences; ``written``: the
    answer made of them; ``similarity`` and ``quality``: scores, None where nothing was scored.
    ``step`` is where the pair was dropped and ``dropped`` why, both empty while it is in.
    """

    query: Query
    passage: Passage
    candidates: tuple[Passage, ...] = ()
    place: int = 0
    evidence: tuple[str, ...] = ()
    written: str = ""
    similarity: float | None = None
    quality: int | None = None
    step: str = ""
    dropped: str = ""


# the steps ----------------------------------------------------------------------------------------


class _NoReply(Exception):
    """The model's reply is unusable, even after a second call."""


def _ask(llm: ChatModel, step: str, replies: dict[str, dict], **values: str) -> dict[str, Any]:
    """The model's reply to a step's prompt: a JSON object with just the keys of ``replies``."""
    schema = {
        "type": "object",
        "properties": replies,
        "required": list(replies),
        "additionalProperties": False,
    }
    messages = load_prompt(step, PROMPTS).messages(**values)
    reply = ask_json(llm, messages, schema, max_tokens=512)
    if reply.cut or reply.value is None:
        raise _NoReply
    return reply.value


_TEXT = {"type": "string"}


def _numbers_to(last: int) -> dict[str, Any]:
    """The schema of a JSON list of different numbers from 1 to ``last``."""
    number = {"type": "integer", "minimum": 1, "maximum": last}
    return {"type": "array", "items": number, "uniqueItems": True}


def _numbered(texts: Sequence[str]) -> list[str]:
    return [f"[{number}] {text}" for number, text in enumerate(texts, 1)]


def medical(pair: Pair, llm: ChatModel) -> list[Pair]:
    """Step 1: a query and the passage it came with stay if the model calls them medical."""
    replies = {"reason": _TEXT, "label": {"enum": [0, 1]}}
    values = {"question": pair.query.text, "answer": pair.passage.text}
    reply = _ask(llm, "medical", replies, **values)
    return [pair if reply["label"] else replace(pair, dropped=NOT_MEDICAL)]


def rank(pair: Pair, llm: ChatModel) -> list[Pair]:
    """Step 2, lines 14 and 15: a query to be matched gets the passages that the model chooses.

    Its one pair becomes as many as were chosen, the best first.
    """
    if not pair.candidates:
        return [replace(pair, dropped="no candidates")]

    def shown_place(passage: Passage) -> str:
        return sha256_bytes(f"shown {pair.query.qid} {passage.pid}".encode())

    shown = sorted(pair.candidates, key=shown_place)
    wanted = min(CHOSEN, len(shown))
    ranking = _numbers_to(len(shown)) | {"minItems": wanted, "maxItems": wanted}
    listed = "\n\n".join(_numbered([shown_text(passage) for passage in shown]))
    values = {"question": pair.query.text, "passages": listed, "wanted": str(wanted)}
    chosen = _ask(llm, "rank", {"ranking": ranking}, **values)["ranking"]
    return [
        Pair(pair.query, shown[int(number) - 1], place=place)
        for place, number in enumerate(chosen, 1)
    ]


def extract(pair: Pair, llm: ChatModel) -> list[Pair]:
    """Line 17: the sentences of a chosen passage that support the known answer."""
    parts = sentences(pair.passage.text)
    document = "\n".join([pair.passage.title, *_numbered(parts)]).strip()
    values = {"question": pair.query.text, "answer": pair.query.answer, "document": document}
    reply = _ask(llm, "extract", {"sentences": _numbers_to(len(parts))}, **values)
    in_order = sorted(int(number) for number in reply["sentences"])
    evidence = tuple(parts[number - 1] for number in in_order)
    return [replace(pair, evidence=evidence, dropped="" if evidence else "no evidence")]


def answer(pair: Pair, llm: ChatModel) -> list[Pair]:
    """Line 19: an answer from the evidence of one passage alone.

    The model is shown the passage's title above its sentences, which seldom name their subject.
    """
    replies = {"reason": _TEXT, "enough": {"type": "boolean"}, "answer": _TEXT}
    evidence = "\n".join([pair.passage.title, *pair.evidence]).strip()
    reply = _ask(llm, "answer", replies, question=pair.query.text, evidence=evidence)
    if not reply["enough"]:
        return [replace(pair, dropped="too little evidence")]
    return [replace(pair, written=reply["answer"])]


def validate(pair: Pair, llm: ChatModel) -> list[Pair]:
    """Lines 20 to 24: a pair stays if the answer made of its passage agrees with the known one."""
    replies = {"reason": _TEXT, "similarity": {"type": "number", "minimum": 0, "maximum": 1}}
    values = {"reference": pair.query.answer, "answer": pair.written}
    reply = _ask(llm, "validate", replies, question=pair.query.text, **values)
    similarity = float(reply["similarity"])
    dropped = "another answer" if similarity < LEAST_SIMILARITY else ""
    return [replace(pair, similarity=similarity, dropped=dropped)]


def relevance(pair: Pair, llm: ChatModel) -> list[Pair]:
    """Step 3: a pair stays if the model's score of it is high enough."""
    replies = {"reason": _TEXT, "quality": {"type": "integer", "minimum": 1, "maximum": 5}}
    values = {"query": pair.query.text, "passage": shown_text(pair.passage)}
    quality = int(_ask(llm, "relevance", replies, **values)["quality"])
    dropped = "low quality" if quality < LEAST_QUALITY else ""
    return [replace(pair, quality=quality, dropped=dropped)]


STEPS: dict[str, Callable[[Pair, ChatModel], list[Pair]]] = {
    "medical": medical,
    "rank": rank,
    "extract": extract,
    "answer": answer,
    "validate": validate,
    "relevance": relevance,
}
"""Every step by name, in their order: what becomes of one pair."""

_MATCHING = ("rank", "extract", "answer", "validate")
"""Steps that "given" queries leave out."""


# the whole ----------------------------------------------------------------------------------------


def take_step(step: str, pairs: Sequence[Pair], llm: ChatModel) -> list[Pair]:
    """What becomes of every pair; one that was dropped, or whose route leaves this step out, stays.

    All are asked for before the first RecordingMiss is raised, so that a step's requests are known
    together.
    """
    made: list[Pair] = []
    missed: RecordingMiss | None = None
    for pair in pairs:
        if pair.dropped or (pair.query.route == "given" and step in _MATCHING):
            made.append(pair)
            continue
        try:
            with tag(method=step, qid=pair.query.qid):
                after = STEPS[step](pair, llm)
        except _NoReply:
            after = [replace(pair, dropped=NO_REPLY)]
        except RecordingMiss as miss:
            missed = missed or miss
            continue
        made += [replace(pair, step=step) if pair.dropped else pair for pair in after]
    if missed is not None:
        raise missed
    return made


def build(queries: Sequence[Query], llm: ChatModel, search: Search) -> list[Pair]:
    """Algorithm 1: every pair that was made, dropped ones too.

    Raises RecordingMiss where a reply is not recorded.
    """
    pairs = [Pair(query, query.source) for query in queries]
    return finish(take_step("medical", pairs, llm), llm, search)


def finish(pairs: Sequence[Pair], llm: ChatModel, search: Search) -> list[Pair]:
    """What comes after the medical step; passages that it dropped are candidates no more."""
    gone = _not_medical(pairs)
    made = []
    for pair in pairs:
        if pair.query.route == "matched" and not pair.dropped:
            found = search(pair.query.text, CANDIDATES + len(gone))
            left = [passage for passage in found if passage.pid not in gone]
            pair = replace(pair, candidates=tuple(left[:CANDIDATES]))
        made.append(pair)
    for step in list(STEPS)[1:]:
        made = take_step(step, made, llm)
    return made


def _not_medical(pairs: Sequence[Pair]) -> set[str]:
    """The ids of the passages that left the corpus; a broken reply says nothing of its passage."""
    return {pair.passage.pid for pair in pairs if pair.dropped == NOT_MEDICAL}


def search_in(passages: Sequence[Passage]) -> Search:
    """BM25 over titles and texts."""
    by_id = {passage.pid: passage for passage in passages}
    texts = [f"{passage.title} {passage.text}" for passage in passages]
    index = BM25Index.build(texts, list(by_id))

    def search(text: str, k: int) -> list[Passage]:
        return [by_id[pid] for pid in index.search([text], k).ids[0].tolist() if pid]

    return search


def task_of(name: str, pairs: Sequence[Pair], passages: Sequence[Passage]) -> Task:
    """The set in the form of CMIRB's: queries that kept a passage, and the corpus.

    The corpus is all ``passages`` but those that were not medical.
    """
    gone = _not_medical(pairs)
    corpus = [passage for passage in passages if passage.pid not in gone]
    queries: dict[str, str] = {}
    qrels: dict[str, dict[str, int]] = {}
    for pair in pairs:
        if not pair.dropped:
            queries[pair.query.qid] = pair.query.text
            qrels.setdefault(pair.query.qid, {})[pair.passage.pid] = 1
    return Task(name, queries, corpus, qrels)


# counting -----------------------------------------------------------------------------------------


def counts(pairs: Sequence[Pair]) -> pd.DataFrame:
    """What entered each step on each route, and what became of it.

    Columns: step, route, unit ("queries" until passages are ranked, then "pairs"), outcome ("kept",
    or why it was dropped), n. The n of a step and route add up to what was kept by the step before
    on that route; only ``rank`` turns one query into several pairs.
    """
    rows = []
    for route in ("given", "matched"):
        remaining = [pair for pair in pairs if pair.query.route == route]
        for step in STEPS:
            if step in _MATCHING and route == "given":
                continue
            unit = "queries" if step in ("medical", "rank") or route == "given" else "pairs"
            outcomes = {"kept": [pair for pair in remaining if pair.step != step]}
            for pair in remaining:
                if pair.step == step:
                    outcomes.setdefault(pair.dropped, []).append(pair)
            for outcome, group in outcomes.items():
                n = len({pair.query.qid for pair in group}) if unit == "queries" else len(group)
                rows.append((step, route, unit, outcome, n))
            remaining = outcomes["kept"]
    return pd.DataFrame(rows, columns=["step", "route", "unit", "outcome", "n"])


def thresholds(pairs: Sequence[Pair]) -> pd.DataFrame:
    """How many of the scored pairs each threshold would keep: step, least, scored, kept.

    A pair that a stricter ``validate`` would have dropped was still scored in ``relevance``, and
    one that it did drop was not: each step is counted by itself.
    """
    rows = []
    for step, field, values in (
        ("validate", "similarity", (0.5, 0.6, 0.7, 0.8, 0.9)),
        ("relevance", "quality", (2, 3, 4, 5)),
    ):
        scores = [getattr(pair, field) for pair in pairs if getattr(pair, field) is not None]
        for least in values:
            rows.append((step, least, len(scores), sum(score >= least for score in scores)))
    return pd.DataFrame(rows, columns=["step", "least", "scored", "kept"])
