"""Who wrote the rationale that is searched with (RAG2's Table A2), by what is found.

The paper has three models write rationales and says how well each answerer does with them. Here two
writers get the same request: SmolLM2-135M, which anybody can run, and the large language model of
the recordings. Beside them stand the question alone and the experts' ideal answer, which should
show how far a right text gets one: they wrote it from the very snippets that count as found.

    python -m tools.record_small rationales

records what SmolLM2 writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from lib.datasets import Question, in_full, load_real
from lib.llm.chat import ChatModel, tag
from lib.methods.base import Request, question_alone
from lib.query_spec import Hypotheses, Text
from lib.run import RetrievalFailure, Retriever
from lib.stats import Pair, claims, long_values, measure
from lib.studies.hyde_study import strangers_of
from lib.studies.main_tables.long_tables import means_table
from lib.studies.rag2.shared import without_verdicts
from lib.studies.rag2.small_writer import Replayed
from lib.studies.real.arms import gold_passages
from lib.studies.real.expansions import KINDS, recorded

RECORDING = "rag2-writers"
RESULT = "rag2_writers"
COMMAND = "python -m tools.record_small rationales"

QUESTION = "question"
SMALL = "rationale by SmolLM2-135M"
LARGE = "rationale by a large language model"
LARGE_SHORT = "rationale by a large language model, as long as SmolLM2's"
IDEAL = "ideal answer by experts"
STRANGER = "rationale by SmolLM2-135M on another question (control)"

ARMS = (QUESTION, SMALL, LARGE, LARGE_SHORT, IDEAL, STRANGER)
"""What is searched with. ``LARGE_SHORT``: its first words, as many as SmolLM2's rationale has for
the same question. ``STRANGER``: a mean over 20 other questions, as in the lesson."""

METRICS = ("p_at_5", "ndcg_at_10")

_DEPTH = 10
_QUESTIONS = 60
_WRITTEN_BY_LARGE = KINDS["rationale"].method
WRITTEN_BY_SMALL = replace(_WRITTEN_BY_LARGE, max_tokens=128)
"""The same request, but that SmolLM2 stops at 128 tokens at the latest."""


def writer_questions(llm: ChatModel | None = None, count: int = _QUESTIONS) -> list[Question]:
    """The first test questions of BioASQ that have a recorded rationale.

    ``llm`` is where rationales are recorded (default: the recordings of the real sample).
    """
    asked = [q for q in in_full(load_real("test")) if q.dataset == "bioasq"]
    texts = rationales_by(_WRITTEN_BY_LARGE, asked[:count], llm or recorded())
    return [question for question in asked[:count] if texts[question.qid]]


def rationales_by(method, questions: Sequence[Question], llm: ChatModel) -> dict[str, str]:
    """What a writer wrote, by question id; empty where it wrote nothing."""
    found = {}
    for question in questions:
        with tag(method=method.name, qid=question.qid):
            written = method.expand(question, llm, _no_search).trace["passages"]
        found[question.qid] = written[0] if written else ""
    return found


def _no_search(request: Request, k: int) -> list[tuple[str, str]]:
    raise ValueError("who writes a rationale reads no passage")


def writer_texts(questions: Sequence[Question], small: ChatModel, large: ChatModel) -> pd.DataFrame:
    """The texts that are searched with: ``arm, qid, text``; the control is made of them later."""
    by_small = rationales_by(WRITTEN_BY_SMALL, questions, small)
    by_large = rationales_by(_WRITTEN_BY_LARGE, questions, large)
    rows = []
    for question in questions:
        qid = question.qid
        length = len(by_small[qid].split())
        rows += [
            (QUESTION, qid, question.text),
            (SMALL, qid, by_small[qid]),
            (LARGE, qid, by_large[qid]),
            (LARGE_SHORT, qid, " ".join(by_large[qid].split()[:length])),
            (IDEAL, qid, question.ideal_answer),
        ]
    return pd.DataFrame(rows, columns=["arm", "qid", "text"])


def requests_by(questions: Sequence[Question], texts: Mapping[str, str]) -> dict[str, Request]:
    """What is searched with, by question id: a text alone, as a passage would be embedded.

    An empty text makes no request: the question then finds nothing, and counts.
    """
    return {
        q.qid: Hypotheses((Text(texts[q.qid], role="passage"),)) for q in questions if texts[q.qid]
    }


def writer_values(
    questions: Sequence[Question],
    texts: pd.DataFrame,
    targets: Mapping[str, frozenset[str]],
    retriever: Retriever,
) -> pd.DataFrame:
    """``arm, qid, metric, value``: ``METRICS`` of every arm, and ``words`` it searches with.

    ``texts`` as ``writer_texts`` makes them, ``targets`` the passages that experts gave.
    """
    own = {q.qid: targets[q.qid] for q in questions}
    parts = []
    for arm, rows in texts.groupby("arm", sort=False):
        written = dict(zip(rows["qid"], rows["text"], strict=True))
        requests = requests_by(questions, written)
        if arm == QUESTION:
            requests = {q.qid: question_alone(q) for q in questions}
        table = _measured(requests, own, retriever)
        table["words"] = [float(len(written[qid].split())) for qid in table.index]
        parts.append(long_values(arm, table))
    small = texts[texts["arm"] == SMALL].set_index("qid")["text"].to_dict()
    parts.append(long_values(STRANGER, _of_strangers(questions, small, own, retriever)))
    return pd.concat(parts, ignore_index=True)


def _of_strangers(
    questions: Sequence[Question],
    texts: Mapping[str, str],
    targets: Mapping[str, frozenset[str]],
    retriever: Retriever,
) -> pd.DataFrame:
    """``METRICS`` of searching with other questions' texts, the mean over the draws."""
    strangers = strangers_of([q.qid for q in questions], targets)
    draws = len(next(iter(strangers.values())))
    tables = []
    for draw in range(draws):
        wrong = {q.qid: texts[strangers[q.qid][draw]] for q in questions}
        tables.append(_measured(requests_by(questions, wrong), targets, retriever))
    return sum(tables) / draws


def _measured(
    requests: Mapping[str, Request], targets: Mapping[str, frozenset[str]], retriever: Retriever
) -> pd.DataFrame:
    """``METRICS`` by question; who cannot be searched for finds nothing."""
    hits = retriever.search_many(list(requests.values()), _DEPTH)
    found = {
        qid: [] if isinstance(hit, RetrievalFailure) else hit.ids[0].tolist()
        for qid, hit in zip(requests, hits, strict=True)
    }
    return measure(found, targets, {})[list(METRICS)]


def writer_claims(values: pd.DataFrame) -> pd.DataFrame:
    """Paired differences, without verdicts: these questions have been looked at."""
    pairs = []
    for metric in METRICS:
        pairs += [
            Pair("the larger writer's rationale finds more", metric, LARGE, SMALL),
            Pair("so it does at the same length", metric, LARGE_SHORT, SMALL),
            Pair("the small writer's finds more than the question", metric, SMALL, QUESTION),
            Pair("the large writer's finds more than the question", metric, LARGE, QUESTION),
            Pair("the small writer's is about its question", metric, SMALL, STRANGER),
            Pair("the experts' answer finds more than the large writer's", metric, IDEAL, LARGE),
        ]
    return claims(values, pairs)


def writer_outcomes(retriever: Retriever) -> pd.DataFrame:
    """``writer_values`` of recorded texts, with ``dataset``.

    ``RecordingMiss`` with the command where SmolLM2's rationales are not recorded.
    """
    large = recorded()
    questions = writer_questions(large)
    small = Replayed(RECORDING, COMMAND, retriever.store)
    texts = writer_texts(questions, small, large)
    values = writer_values(questions, texts, gold_passages(retriever.store), retriever)
    values.insert(0, "dataset", "bioasq")
    return values


def writer_tables(values: pd.DataFrame, setup: str) -> dict[str, pd.DataFrame]:
    """``rag2_writers`` in the form of Table 1 and its ``_claims``."""
    table = means_table(values, f"{setup}, recorded texts")
    # Who writes a rationale sees the options; the experts' answer is a label.
    table["options_visible"] = table["method"] != QUESTION
    tested = writer_claims(values).assign(dataset="bioasq")
    return {RESULT: table, f"{RESULT}_claims": without_verdicts(tested)}
