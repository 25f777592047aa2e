"""Long answers to open questions (RAG2's appendix A.5 and Figure A2), rebuilt on MedQuAD.

The paper has 25 clinicians' questions, ClinicalQA25, whose reference answers are not open. Here 25
questions of MedQuAD are asked, and the reference is what the institute itself answered. SmolLM2
answers without documents, with the three best of stacked retrieval (MedRAG's way), of balanced and
re-ranked retrieval, and of the same filtered. All search with the question. The document that holds
the reference is in the corpus, so there are two settings: it may be found, or it may not.
``tools.record_small`` records the answers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from lib.base.files import sha256_bytes
from lib.data.passages import OPEN_CORPUS, Passage
from lib.data.store import PassageStore
from lib.datasets import Question
from lib.llm.chat import ChatModel, Message, tag
from lib.llm.prompts import load_prompt
from lib.llm.small_model import NAME
from lib.methods.base import Expansion, Fusion, Request, first_words, numbered
from lib.methods.postprocess import Scorer
from lib.methods.rag2 import RAG2
from lib.run import Retriever, execute
from lib.stats import Pair, claims
from lib.studies.rag2.filters import Filter
from lib.studies.rag2.long_scores import SCORES, TokenScorer, rouge_l, same_question
from lib.studies.rag2.shared import without_verdicts
from lib.studies.rag2.small_writer import Replayed, copied
from lib.studies.rag2.strategies import DEPTH, MemoizedScorer
from lib.study import means_table

RECORDING = "rag2-long-answers"
RESULT = "rag2_long_answers"
COMMAND = "python -m tools.record_small long-answers"

FILTER = "cross-ppl-25"
SHARE = 0.25
"""The filter, and which share of its training pairs its line keeps."""

K = 3
"""Passages that the model is shown, each cut to its first 120 words."""

CLOSED = "no documents"
STACKED = "stacked"
BALANCED = "balanced, re-ranked"
FILTERED = "balanced, re-ranked, filtered"

FIRST = "the first passage as the answer"
CHANCE = "an answer to another question"
"""Two lines to hold the arms against: no model at all, and chance."""

SETTINGS = ("without its own document", "with it")

TYPES = (
    "treatment",
    "symptoms",
    "causes",
    "exams and tests",
    "prevention",
    "outlook",
    "complications",
)
"""What is asked. MedQuAD's other types are definitions, genes and numbers."""

_QUESTIONS = 25
_WORDS = 120
_MAX_TOKENS = 128
_SHORTEST, _LONGEST = 60, 160
_TWIN_WORDS = 25

# Genetics Home Reference answers all questions on treatment with one list of links.
_LEFT_OUT = "3_GHR_QA"
_PROMPTS = Path(__file__).parent / "prompts"


# the questions ------------------------------------------------------------------------------------


def long_questions(store: PassageStore, count: int = _QUESTIONS) -> list[Question]:
    """Questions of MedQuAD in the order of a hash; ``ideal_answer`` is the institute's own answer.

    The id is that of the passage which holds the answer. Its answer is one passage of 60 to 160
    words, the question is of ``TYPES`` and asked nowhere else in MedQuAD, and no document gives two
    questions. Leaflets' names that make no question ("How to diagnose What I need to know about
    ...") are left out. ValueError where there are too few.
    """
    medquad = [passage for passage in store if passage.source == "medquad"]
    times_asked = Counter(
        question for question, _ in {(p.meta["question"], p.meta["doc"]) for p in medquad}
    )
    fit = _whole_answers(medquad, _SHORTEST, _LONGEST)
    fit = [p for p in fit if times_asked[p.meta["question"]] == 1]
    fit = [p for p in fit if "what i need to know" not in p.meta["question"].casefold()]
    fit.sort(key=lambda passage: sha256_bytes(f"long answer {passage.pid}".encode()))
    chosen: dict[str, Question] = {}
    for passage in fit:
        question = Question(
            passage.pid, passage.meta["question"], {}, "", "medquad", ideal_answer=passage.text
        )
        chosen.setdefault(passage.meta["document"], question)
    if len(chosen) < count:
        raise ValueError(f"{len(chosen)} questions fit, {count} are asked for")
    return list(chosen.values())[:count]


def _whole_answers(medquad: Sequence[Passage], shortest: int, longest: int) -> list[Passage]:
    """Answers of one passage, of ``shortest`` to ``longest`` words, to questions of ``TYPES``."""
    return [
        passage
        for passage in medquad
        if passage.meta["subset"] != _LEFT_OUT
        and passage.meta["question_type"] in TYPES
        and passage.pid == passage.meta["doc"]
        and shortest <= len(passage.text.split()) <= longest
    ]


def twins_of(questions: Sequence[Question], store: PassageStore) -> dict[str, frozenset[str]]:
    """Passages that may not be found "without its own document", by question id.

    Its own, and every other one that has 25 words in a row of the reference: institutes copy.
    """
    owners: dict[tuple[str, ...], set[str]] = {}
    for question in questions:
        for run in _runs(question.ideal_answer):
            owners.setdefault(run, set()).add(question.qid)
    found: dict[str, set[str]] = {question.qid: {question.qid} for question in questions}
    for passage in store:
        for run in _runs(passage.text):
            for qid in owners.get(run, ()):
                found[qid].add(passage.pid)
    return {qid: frozenset(pids) for qid, pids in found.items()}


def _runs(text: str) -> Iterator[tuple[str, ...]]:
    words = re.findall(r"\w+", text.casefold())
    for i in range(len(words) - _TWIN_WORDS + 1):
        yield tuple(words[i : i + _TWIN_WORDS])


def instrument_couples(store: PassageStore) -> list[tuple[str, str]]:
    """Answers of two institutes to one question: what the measures are tried on.

    They may be of 30 to 300 words, or there would be too few.
    """
    medquad = [passage for passage in store if passage.source == "medquad"]
    couples = same_question(_whole_answers(medquad, 30, 300), TYPES)
    return [(one.text, other.text) for one, other in couples]


# what the model is shown --------------------------------------------------------------------------


def pipelines(
    reranker: Scorer, judge: Filter | None, sources: Sequence[str] = OPEN_CORPUS
) -> dict[str, RAG2]:
    """The three ways to retrieve, by the arm's name; without a ``judge`` the filtered one lacks."""
    scored_once = MemoizedScorer(reranker)
    even = {"query": "question", "sources": tuple(sources), "depth": DEPTH, "reranker": scored_once}
    arms = {STACKED: RAG2(STACKED, query="question"), BALANCED: RAG2(BALANCED, **even)}
    if judge:
        arms[FILTERED] = RAG2(FILTERED, **even, judge=judge.scores, threshold=judge.threshold)
    return arms


def shown_passages(
    questions: Sequence[Question],
    arms: Mapping[str, RAG2],
    retriever: Retriever,
    twins: Mapping[str, frozenset[str]],
) -> pd.DataFrame:
    """What each arm shows the model: ``setting, arm, qid, rank, pid``, at most ``K`` a question.

    A question of which the filter leaves nothing has no rows: it is answered without documents.
    """
    parts = []
    for setting in SETTINGS:
        for name, arm in arms.items():
            expansions = [arm.given(question) for question in questions]
            if setting == SETTINGS[0]:
                expansions = [
                    _excluding(expansion, twins[question.qid])
                    for question, expansion in zip(questions, expansions, strict=True)
                ]
            run, _ = execute(name, questions, expansions, retriever, K)
            parts.append(run.assign(setting=setting, arm=name))
    return pd.concat(parts, ignore_index=True)[["setting", "arm", "qid", "rank", "pid"]]


def _excluding(expansion: Expansion, pids: frozenset[str]) -> Expansion:
    """The same expansion, but that these passages may not be found."""
    return replace(expansion, request=_without(expansion.request, pids))


def _without(request: Request, pids: frozenset[str]) -> Request:
    if isinstance(request, Fusion):
        return replace(request, requests=tuple(_without(part, pids) for part in request.requests))
    return replace(request, excluded=request.excluded | pids)


def messages_for(question: Question, passages: Sequence[Passage]) -> list[Message]:
    """The request for an answer; without passages another prompt, otherwise in the same words."""
    if not passages:
        return load_prompt("long_answer", _PROMPTS).messages(question=question.text)
    hits = first_words([(passage.pid, passage.text) for passage in passages], _WORDS)
    titled = []
    for passage, (pid, text) in zip(passages, hits, strict=True):
        titled.append((pid, f"{passage.title}: {text}" if passage.title else text))
    prompt = load_prompt("long_answer_with_documents", _PROMPTS)
    return prompt.messages(documents=numbered(titled), question=question.text)


# the answers --------------------------------------------------------------------------------------


def answers_to(
    questions: Sequence[Question],
    arms: Iterable[str],
    shown: pd.DataFrame,
    store: PassageStore,
    llm: ChatModel,
) -> pd.DataFrame:
    """Every answer: ``setting, arm, qid, answer, cut, pids``, of ``CLOSED`` and then the ``arms``.

    ``cut``: it reached 128 tokens; ``pids``: what was shown, which may be nothing. ``CLOSED`` has
    its answers in both settings, and they are the same.
    """
    lists = shown.sort_values("rank").groupby(["setting", "arm", "qid"])["pid"].agg(list)
    rows = []
    for setting in SETTINGS:
        for arm in (CLOSED, *arms):
            for question in questions:
                pids = lists.get((setting, arm, question.qid), [])
                with tag(method=arm, qid=question.qid):
                    (reply,) = llm.generate(
                        messages_for(question, store.get_many(pids)),
                        temperature=0.0,
                        max_tokens=_MAX_TOKENS,
                    )
                is_cut = reply.finish_reason == "length"
                rows.append((setting, arm, question.qid, reply.text.strip(), is_cut, tuple(pids)))
    return pd.DataFrame(rows, columns=["setting", "arm", "qid", "answer", "cut", "pids"])


def long_answer_values(
    questions: Sequence[Question], answers: pd.DataFrame, store: PassageStore, scorer: TokenScorer
) -> pd.DataFrame:
    """Every outcome: ``setting, arm, qid, metric, value``.

    ``SCORES`` are F1 against the reference, beside them ``<score>_precision`` and ``_recall``. Of
    each answer also ``words``, ``cut`` (1.0 where it reached its end by length), ``copied`` (the
    share of its characters that stand in a shown passage, ten words or more in a row), ``own`` (its
    own document was shown), ``documents`` (how many were) and ``emptied`` (none was, where some
    might have been: the filter left none). Arms are those of ``answers``;
    ``FIRST`` after a colon is the arm's first passage itself, and ``CHANCE`` the mean over all
    other questions' answers without documents.
    """
    reference = {question.qid: question.ideal_answer for question in questions}
    rows = []
    for row in answers.itertuples():
        passages = store.get_many(list(row.pids))
        facts = _facts(row.answer, passages) | {
            "cut": float(row.cut),
            "own": float(row.qid in row.pids),
            "documents": float(len(passages)),
            "emptied": float(not passages and row.arm != CLOSED),
        }
        key = {"setting": row.setting, "qid": row.qid}
        scores = _scores(row.answer, reference[row.qid], scorer)
        rows.append(key | {"arm": row.arm} | facts | scores)
        if passages:
            first = " ".join(passages[0].text.split()[:_WORDS])
            scores = _scores(first, reference[row.qid], scorer)
            rows.append(key | {"arm": f"{row.arm}: {FIRST}"} | scores)
    closed = answers[(answers["arm"] == CLOSED)]
    for (setting, _), own in closed.groupby(["setting", "arm"], sort=False):
        said = dict(zip(own["qid"], own["answer"], strict=True))
        for qid in said:
            others = [_scores(said[q], reference[qid], scorer) for q in sorted(said) if q != qid]
            mean = pd.DataFrame(others).mean().to_dict()
            rows.append({"setting": setting, "qid": qid, "arm": CHANCE} | mean)
    wide = pd.DataFrame(rows)
    long = wide.melt(["setting", "arm", "qid"], var_name="metric").dropna(subset=["value"])
    return long.reset_index(drop=True)


def _scores(candidate: str, reference: str, scorer: TokenScorer) -> dict[str, float]:
    (by_token,) = scorer([(candidate, reference)])
    row = {}
    for name, score in zip(SCORES, (rouge_l(candidate, reference), by_token), strict=True):
        row[name] = score.f1
        row[f"{name}_precision"] = score.precision
        row[f"{name}_recall"] = score.recall
    return row


def _facts(answer: str, passages: Sequence[Passage]) -> dict[str, float]:
    texts = {passage.pid: passage.text for passage in passages}
    repeated = sum(stretch.end - stretch.start for stretch in copied(answer, texts))
    return {"words": float(len(answer.split())), "copied": repeated / max(1, len(answer))}


# what comes of it ---------------------------------------------------------------------------------


def long_answer_claims(values: pd.DataFrame) -> pd.DataFrame:
    """Paired differences in each setting; no verdict, because nothing was declared before."""
    pairs = []
    there = set(values["arm"])
    for metric in SCORES:
        pairs += [
            Pair("documents help", metric, STACKED, CLOSED),
            Pair("balanced and re-ranked documents help", metric, BALANCED, CLOSED),
            Pair("they help more than stacked ones", metric, BALANCED, STACKED),
            Pair("the model adds to its first passage", metric, BALANCED, f"{BALANCED}: {FIRST}"),
            Pair("an answer without documents is about its question", metric, CLOSED, CHANCE),
        ]
        if FILTERED in there:
            pairs += [
                Pair("filtered documents help", metric, FILTERED, CLOSED),
                Pair("filtering adds", metric, FILTERED, BALANCED),
            ]
    tables = []
    for setting in SETTINGS:
        own = values[values["setting"] == setting]
        tables.append(claims(own, pairs).assign(dataset=setting))
    return without_verdicts(*tables)


def long_answer_outcomes(
    retriever: Retriever, reranker: Scorer, judge: Filter | None
) -> pd.DataFrame:
    """``long_answer_values`` of recorded answers.

    ``RecordingMiss`` with the command where an answer is not recorded.
    """
    store = retriever.store
    questions = long_questions(store)
    arms = pipelines(reranker, judge)
    shown = shown_passages(questions, arms, retriever, twins_of(questions, store))
    answers = answers_to(questions, arms, shown, store, Replayed(RECORDING, COMMAND, store))
    return long_answer_values(questions, answers, store, TokenScorer())


def long_answer_tables(values: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """``rag2_long_answers`` in the form of Table 1, and its ``_claims``."""
    table = means_table(values.rename(columns={"setting": "dataset"}), f"{NAME}, k = {K}")
    return {RESULT: table.assign(answerer=NAME), f"{RESULT}_claims": long_answer_claims(values)}
