"""How CMIRB makes a retrieval set of queries and passages with a language model: its Algorithm 1.

Each step is a function from pairs to pairs; every reply of the model can be recorded, so a run that
was stopped goes on. Source: Li et al., AutoMIR, arXiv:2410.20050, Appendix B.1, Algorithm 1 and the
six prompts of Figures 4 and 5, which stand in ``building_prompts`` in our own words.

1. ``medical`` (lines 3-9): drop a query and the passage that it came with if they are not medical.
2. For queries that are to be *matched* (MedExam and DuBaike of the ten sets), lines 10-26:
   ``rank``: BM25 finds 20 passages, the model chooses 3; ``extract``: it says which sentences of
   each support the known answer; ``answer``: it answers from these alone; ``validate``: the pair
   stays if that answer agrees with the known one. The other queries keep the passage they came with
   (*given*).
3. ``relevance`` (lines 27-33): the model scores every pair from 1 to 5; low ones are dropped.

Where the text is silent or contradicts itself, this is what is done here:

- **A misprint.** Figure 4's "Passage Reranking Prompt" and Figure 5's "Validate Answer Prompt" are
  word for word the same, and compare two answers: that is validating. So the reranking prompt is
  the one that is missing. Ours follows Appendix B.1: one list of candidates, the best 3 chosen.
- The order in which candidates are shown is not said. Here it is that of a hash, so that the place
  in the list tells nothing of the place in the search.
- No threshold is printed. The medical prompt gives 0 or 1, so 1 stays. ``Rules`` has the others,
  which were chosen before any reply was read; ``thresholds`` counts what others would have kept.
- Line 5 scores "q/d" one by one, the prompt shows a question with its answer. As the prompt: both
  go together, and a passage that goes leaves the corpus too.
- Line 21 validates an answer against the document, Figure 5 and Appendix B.1 against a reference
  answer. As Figure 5: an answer that was made of a document agrees with it anyway.
- Figure 5 answers from "one or more" documents, lines 19-21 have one answer for each document. As
  the algorithm.
- Figure 4 asks for copied passages, and twice speaks of an "explanation" that it does not name as a
  key. Here sentences are numbered and the reply holds numbers: nothing can be misquoted, and no
  words of a document stand in a recording.
- A document without evidence, or with too little to answer, is not validated, but dropped.
- The algorithm keeps every document that validates. The published MedExam and DuBaike have one a
  query, and the text does not say which. Here all stay.
- Replies and explanations are in English, and reasons come before the score that follows from them.
- A reply that is no JSON is asked for once more, then its pair is dropped as "no usable reply".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
from lib.studies.slhyde.cmirb import Task

PROMPTS = Path(__file__).parent / "building_prompts"

STEPS = ("medical", "rank", "extract", "answer", "validate", "relevance")
"""In their order; each has a prompt of its name."""

_MATCHING = STEPS[1:5]

Search = Callable[[str, int], list[Passage]]
"""The passages that a search by words finds for a text, best first, at most so many."""


@dataclass(frozen=True)
class Rules:
    """``candidates`` found by BM25, ``chosen`` of them (both Appendix B.1); the least similarity
    (0 to 1) of a validated answer, the least quality (1 to 5) of a pair that stays."""

    candidates: int = 20
    chosen: int = 3
    least_similarity: float = 0.7
    least_quality: int = 4


RULES = Rules()


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

    ``place``: the passage's place in the model's ranking, from 1, 0 where nothing was ranked;
    ``evidence``: sentences; ``written``: the answer made of them; ``similarity`` and ``quality``:
    scores, None where nothing was scored. ``step`` is where the pair was dropped and ``dropped``
    why, both empty while it is in.
    """

    query: Query
    passage: Passage
    place: int = 0
    evidence: tuple[str, ...] = ()
    written: str = ""
    similarity: float | None = None
    quality: int | None = None
    step: str = ""
    dropped: str = ""


NO_REPLY = "no usable reply"
NOT_MEDICAL = "not medical"


# the whole ----------------------------------------------------------------------------------------


def build(
    queries: Sequence[Query], llm: ChatModel, search: Search, rules: Rules = RULES
) -> list[Pair]:
    """Algorithm 1: every pair that was made, dropped ones too.

    ValueError where there are no queries. Raises RecordingMiss where a reply is not recorded.
    """
    return finish(medical(_started(queries), llm), llm, search, rules)


def finish(
    pairs: Sequence[Pair], llm: ChatModel, search: Search, rules: Rules = RULES
) -> list[Pair]:
    """What comes after ``medical``; what that dropped is searched no more."""
    pairs = rank(pairs, llm, search, rules)
    pairs = extract(pairs, llm)
    pairs = answer(pairs, llm)
    pairs = validate(pairs, llm, rules)
    return relevance(pairs, llm, rules)


def _started(queries: Sequence[Query]) -> list[Pair]:
    """Each query with the passage that it came with."""
    if not queries:
        raise ValueError("there are no queries to build a set of")
    if len({query.qid for query in queries}) < len(queries):
        raise ValueError("two queries have the same id")
    return [Pair(query, query.source) for query in queries]


def task_of(name: str, pairs: Sequence[Pair], passages: Sequence[Passage]) -> Task:
    """The set in the form of CMIRB's: queries that kept a passage, and the corpus.

    The corpus is all ``passages`` but those that were not medical. ValueError where nothing is
    left.
    """
    gone = _not_medical(pairs)
    corpus = tuple(passage for passage in passages if passage.pid not in gone)
    queries: dict[str, str] = {}
    qrels: dict[str, dict[str, int]] = {}
    for pair in pairs:
        if not pair.dropped:
            queries[pair.query.qid] = pair.query.text
            qrels.setdefault(pair.query.qid, {})[pair.passage.pid] = 1
    if not corpus or not queries:
        raise ValueError(f"{name}: {len(corpus)} passages and {len(queries)} queries are left")
    return Task(name, queries, corpus, qrels)


def _not_medical(pairs: Iterable[Pair]) -> set[str]:
    """The ids of the passages that left the corpus; a broken reply says nothing of its passage."""
    return {pair.passage.pid for pair in pairs if pair.dropped == NOT_MEDICAL}


# the steps ----------------------------------------------------------------------------------------


def medical(pairs: Sequence[Pair], llm: ChatModel) -> list[Pair]:
    """Step 1: a query and the passage it came with stay if the model calls them medical."""

    def judge(pair: Pair) -> list[Pair]:
        schema = _schema(reason={"type": "string"}, label={"enum": [0, 1]})
        said = _ask(llm, "medical", schema, question=pair.query.text, answer=pair.passage.text)
        if said is None:
            return [_drop(pair, "medical", NO_REPLY)]
        if said["label"] == 0:
            return [_drop(pair, "medical", NOT_MEDICAL)]
        return [pair]

    return _each("medical", pairs, judge)


def rank(pairs: Sequence[Pair], llm: ChatModel, search: Search, rules: Rules = RULES) -> list[Pair]:
    """Step 2, lines 14 and 15: a query to be matched gets the passages that the model chooses.

    Its one pair becomes as many as were chosen, the best first.
    """
    gone = _not_medical(pairs)

    def choose(pair: Pair) -> list[Pair]:
        found = search(pair.query.text, rules.candidates + len(gone))
        found = [passage for passage in found if passage.pid not in gone][: rules.candidates]
        if not found:
            return [_drop(pair, "rank", "no candidates")]
        shown = sorted(found, key=lambda passage: _hash(pair.query, passage))
        wanted = min(rules.chosen, len(shown))
        number = {"type": "integer", "minimum": 1, "maximum": len(shown)}
        schema = _schema(ranking=_list_of(number, minItems=wanted, maxItems=wanted))
        said = _ask(
            llm,
            "rank",
            schema,
            question=pair.query.text,
            passages="\n\n".join(f"[{i}] {shown_text(p)}" for i, p in enumerate(shown, 1)),
            wanted=str(wanted),
        )
        if said is None:
            return [_drop(pair, "rank", NO_REPLY)]
        chosen = [shown[int(number) - 1] for number in said["ranking"]]
        return [Pair(pair.query, passage, place) for place, passage in enumerate(chosen, 1)]

    return _each("rank", pairs, choose)


def extract(pairs: Sequence[Pair], llm: ChatModel) -> list[Pair]:
    """Line 17: the sentences of a chosen passage that support the known answer."""

    def find(pair: Pair) -> list[Pair]:
        numbered = sentences(pair.passage.text)
        number = {"type": "integer", "minimum": 1, "maximum": len(numbered)}
        lines = [f"[{i}] {sentence}" for i, sentence in enumerate(numbered, 1)]
        said = _ask(
            llm,
            "extract",
            _schema(sentences=_list_of(number)),
            question=pair.query.text,
            answer=pair.query.answer,
            document="\n".join([pair.passage.title, *lines]).strip(),
        )
        if said is None:
            return [_drop(pair, "extract", NO_REPLY)]
        if not said["sentences"]:
            return [_drop(pair, "extract", "no evidence")]
        in_order = sorted(int(number) for number in said["sentences"])
        return [replace(pair, evidence=tuple(numbered[number - 1] for number in in_order))]

    return _each("extract", pairs, find)


def answer(pairs: Sequence[Pair], llm: ChatModel) -> list[Pair]:
    """Line 19: an answer from the evidence of one passage alone.

    The model is shown the passage's title above its sentences, which seldom name their subject.
    """

    def write(pair: Pair) -> list[Pair]:
        text = {"type": "string"}
        schema = _schema(reason=text, enough={"type": "boolean"}, answer=text)
        evidence = "\n".join([pair.passage.title, *pair.evidence]).strip()
        said = _ask(llm, "answer", schema, question=pair.query.text, evidence=evidence)
        if said is None:
            return [_drop(pair, "answer", NO_REPLY)]
        if not said["enough"]:
            return [_drop(pair, "answer", "too little evidence")]
        return [replace(pair, written=said["answer"])]

    return _each("answer", pairs, write)


def validate(pairs: Sequence[Pair], llm: ChatModel, rules: Rules = RULES) -> list[Pair]:
    """Lines 20 to 24: a pair stays if the answer made of its passage agrees with the known one."""

    def compare(pair: Pair) -> list[Pair]:
        score = {"type": "number", "minimum": 0, "maximum": 1}
        said = _ask(
            llm,
            "validate",
            _schema(reason={"type": "string"}, similarity=score),
            question=pair.query.text,
            reference=pair.query.answer,
            answer=pair.written,
        )
        if said is None:
            return [_drop(pair, "validate", NO_REPLY)]
        scored = replace(pair, similarity=float(said["similarity"]))
        if scored.similarity < rules.least_similarity:
            return [_drop(scored, "validate", "another answer")]
        return [scored]

    return _each("validate", pairs, compare)


def relevance(pairs: Sequence[Pair], llm: ChatModel, rules: Rules = RULES) -> list[Pair]:
    """Step 3: a pair stays if the model's score of it is high enough."""

    def score(pair: Pair) -> list[Pair]:
        number = {"type": "integer", "minimum": 1, "maximum": 5}
        said = _ask(
            llm,
            "relevance",
            _schema(reason={"type": "string"}, quality=number),
            query=pair.query.text,
            passage=shown_text(pair.passage),
        )
        if said is None:
            return [_drop(pair, "relevance", NO_REPLY)]
        scored = replace(pair, quality=int(said["quality"]))
        if scored.quality < rules.least_quality:
            return [_drop(scored, "relevance", "low quality")]
        return [scored]

    return _each("relevance", pairs, score)


def _each(step: str, pairs: Sequence[Pair], do: Callable[[Pair], list[Pair]]) -> list[Pair]:
    """What becomes of every pair; one that was dropped, or whose route leaves this step out, stays.

    All are asked for before the first RecordingMiss is raised, so that a step's requests are known
    together.
    """
    made: list[Pair] = []
    missed: RecordingMiss | None = None
    for pair in pairs:
        if pair.dropped or not _goes_through(step, pair.query):
            made.append(pair)
            continue
        try:
            with tag(method=step, qid=pair.query.qid):
                made += do(pair)
        except RecordingMiss as miss:
            missed = missed or miss
    if missed is not None:
        raise missed
    return made


def _goes_through(step: str, query: Query) -> bool:
    return query.route == "matched" or step not in _MATCHING


def _drop(pair: Pair, step: str, why: str) -> Pair:
    return replace(pair, step=step, dropped=why)


def _ask(llm: ChatModel, step: str, schema: dict, **values: str) -> dict[str, Any] | None:
    """The model's reply to a step's prompt; None where it is unusable, even after a second call."""
    messages = load_prompt(step, PROMPTS).messages(**values)
    reply = ask_json(llm, messages, schema, max_tokens=512)
    return None if reply.cut else reply.value


def _schema(**properties: dict) -> dict:
    """A JSON object with just these keys."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list_of(items: dict, **limits: int) -> dict:
    """A JSON list of different items."""
    return {"type": "array", "items": items, "uniqueItems": True} | limits


def _hash(query: Query, passage: Passage) -> str:
    return sha256_bytes(f"shown {query.qid} {passage.pid}".encode())


# searching by words -------------------------------------------------------------------------------


def search_in(passages: Sequence[Passage]) -> Search:
    """BM25 over titles and texts. ValueError where there are no passages."""
    if not passages:
        raise ValueError("an empty corpus cannot be searched")
    by_id = {passage.pid: passage for passage in passages}
    texts = [f"{passage.title} {passage.text}" for passage in passages]
    index = BM25Index.build(texts, list(by_id))

    def search(text: str, k: int) -> list[Passage]:
        return [by_id[pid] for pid in index.search([text], k).ids[0].tolist() if pid]

    return search


# counting -----------------------------------------------------------------------------------------


def counts(pairs: Sequence[Pair]) -> pd.DataFrame:
    """What entered each step on each route, and what became of it.

    Columns: step, route, unit ("queries" until passages are ranked, then "pairs"), outcome ("kept",
    or why it was dropped), n. The n of a step and route add up to what was kept by the step before
    on that route; only ``rank`` turns one query into several pairs.
    """
    rows = []
    for route in ("given", "matched"):
        left = [pair for pair in pairs if pair.query.route == route]
        for step in STEPS:
            if step in _MATCHING and route == "given":
                continue
            unit = "queries" if step in ("medical", "rank") or route == "given" else "pairs"
            outcomes = {"kept": [pair for pair in left if pair.step != step]}
            for pair in left:
                if pair.step == step:
                    outcomes.setdefault(pair.dropped, []).append(pair)
            for outcome, own in outcomes.items():
                n = len({pair.query.qid for pair in own}) if unit == "queries" else len(own)
                row = {"step": step, "route": route, "unit": unit, "outcome": outcome, "n": n}
                rows.append(row)
            left = outcomes["kept"]
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
            kept = sum(score >= least for score in scores)
            rows.append({"step": step, "least": least, "scored": len(scores), "kept": kept})
    return pd.DataFrame(rows)
