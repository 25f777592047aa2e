"""Who wrote the rationale that is searched with (RAG2's Table A2), by what is found.

The paper has three models write rationales and says how well each answerer does with them. Here two
writers get the same request: SmolLM2-135M, which anybody can run, and the large language model of
the recordings. Beside them stand the question alone and the experts' ideal answer.

What SmolLM2 writes ``tools.record_small`` recorded once. A packed recording keeps requests by their
keys alone, because they show passages and questions of others. A model that is shown a passage
repeats it: where a reply has ``LEAST_COPIED`` or more words in a row of a passage, the recording
holds the place of these words in place of them, and a replay puts them back, letter for letter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from lib.base.paths import RECORDINGS, shown
from lib.data.store import PassageStore
from lib.datasets import Question, in_full, load_real
from lib.llm.chat import ChatModel, Message, Reply, tag
from lib.llm.recorder import Recorder, RecordingMiss
from lib.llm.small_model import NAME
from lib.methods.base import question_alone
from lib.query_spec import Hypotheses, Request, Text
from lib.run import Retriever
from lib.stats import Pair, claims, long_values, measure
from lib.studies.hyde_study import DRAWS, strangers_of
from lib.studies.rag2.retrieval import Collection, without_verdicts
from lib.studies.real.expansions import KINDS
from lib.studies.real.study import recorded
from lib.study import Arm, Found, mean_of_draws, means_table, search_arm

RECORDING = "rag2-writers"
COMMAND = "python -m tools.record_small rationales"

QUESTION = "question"
SMALL = "rationale by SmolLM2-135M"
LARGE = "rationale by a large language model"
LARGE_SHORT = "rationale by a large language model, as long as SmolLM2's"
"""The large model's rationale, cut to the number of words of SmolLM2's for the same question."""
IDEAL = "ideal answer by experts"
"""An upper bound: the experts wrote this answer from the very snippets that count as gold."""
STRANGER = "rationale by SmolLM2-135M on another question (control)"
"""A mean over 20 other questions, as in the lesson."""

WRITER_METRICS = ("p_at_5", "ndcg_at_10")

WRITTEN_BY_LARGE = KINDS["rationale"].method
WRITTEN_BY_SMALL = replace(WRITTEN_BY_LARGE, max_tokens=128)
"""The same request, but that SmolLM2 stops at 128 tokens at the latest."""


def writer_questions(count: int = 60) -> list[Question]:
    """The first test questions of BioASQ that have a recorded rationale."""
    asked = [q for q in in_full(load_real("test")) if q.dataset == "bioasq"][:count]
    texts = rationales_by(WRITTEN_BY_LARGE, asked, recorded())
    return [question for question in asked if texts[question.qid]]


def rationales_by(method, questions: Sequence[Question], llm: ChatModel) -> dict[str, str]:
    """What a writer wrote, by question id; empty where it wrote nothing."""
    found = {}
    for question in questions:
        with tag(method=method.name, qid=question.qid):
            written = method.expand(question, llm, lambda request, k: []).trace["passages"]
        found[question.qid] = written[0] if written else ""
    return found


def writer_texts(
    questions: Sequence[Question], small: ChatModel, large: ChatModel
) -> dict[str, dict[str, str]]:
    """The texts that are searched with, by arm and question id; the control has SMALL's."""
    by_small = rationales_by(WRITTEN_BY_SMALL, questions, small)
    by_large = rationales_by(WRITTEN_BY_LARGE, questions, large)
    short = {
        qid: " ".join(text.split()[: len(by_small[qid].split())]) for qid, text in by_large.items()
    }
    return {
        QUESTION: {q.qid: q.text for q in questions},
        SMALL: by_small,
        LARGE: by_large,
        LARGE_SHORT: short,
        IDEAL: {q.qid: q.ideal_answer for q in questions},
    }


def writer_values(
    questions: Sequence[Question],
    texts: Mapping[str, Mapping[str, str]],
    gold: Mapping[str, frozenset[str]],
    retriever: Retriever,
    draws: int = DRAWS,
) -> pd.DataFrame:
    """``dataset, arm, qid, metric, value``: ``WRITER_METRICS`` of every arm, and the ``words`` that
    it searches with.

    A text alone is searched with, as a passage would be embedded. Where it is empty, the question
    finds nothing, and counts. ``gold`` are the passages that experts gave.
    """
    asked = {question.qid: question for question in questions}
    wanted = {qid: gold[qid] for qid in asked}
    strangers = strangers_of(list(asked), wanted, draws)

    def request(arm: str, qid: str, draw: int) -> Request | None:
        if arm == QUESTION:
            return question_alone(asked[qid])
        text = texts[SMALL][strangers[qid][draw]] if arm == STRANGER else texts[arm][qid]
        return Hypotheses((Text(text, role="passage"),)) if text else None

    def outcomes(found: Found) -> pd.DataFrame:
        return measure(found, wanted, {})[list(WRITER_METRICS)]

    parts = []
    for name in (*texts, STRANGER):
        arm = Arm(name, partial(request, name), draws if name == STRANGER else 1)
        table = mean_of_draws(search_arm(arm, asked, retriever, 10), outcomes)
        if name in texts:
            table["words"] = [float(len(texts[name][qid].split())) for qid in table.index]
        parts.append(long_values(name, table))
    values = pd.concat(parts, ignore_index=True)
    values.insert(0, "dataset", "bioasq")
    return values


def writer_outcomes(collection: Collection) -> pd.DataFrame:
    """``writer_values`` of recorded texts.

    ``RecordingMiss`` with the command where SmolLM2's rationales are not recorded.
    """
    questions = writer_questions()
    small = Replayed(RECORDING, COMMAND, collection.retriever.store)
    texts = writer_texts(questions, small, recorded())
    return writer_values(questions, texts, collection.sample.experts, collection.retriever)


def writer_tables(collection: Collection, values: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """``rag2_writers`` in the form of Table 1 and its ``_claims``, without verdicts: these
    questions have been looked at."""
    table = means_table(values, f"{collection.setup}, recorded texts")
    # Who writes a rationale sees the options; the experts' answer is a label.
    table["options_visible"] = table["method"] != QUESTION
    compared = [
        ("the larger writer's rationale finds more", LARGE, SMALL),
        ("so it does at the same length", LARGE_SHORT, SMALL),
        ("the small writer's finds more than the question", SMALL, QUESTION),
        ("the large writer's finds more than the question", LARGE, QUESTION),
        ("the small writer's is about its question", SMALL, STRANGER),
        ("the experts' answer finds more than the large writer's", IDEAL, LARGE),
    ]
    pairs = [Pair(claim, m, arm, other) for m in WRITER_METRICS for claim, arm, other in compared]
    tested = claims(values, pairs).assign(dataset="bioasq")
    return {"rag2_writers": table, "rag2_writers_claims": without_verdicts(tested)}


# what the small model wrote ----------------------------------------------------------------------

LEAST_COPIED = 10
"""Words in a row that are taken to be copied."""

_PLACE = re.compile(r"⟨(\S+) (\d+) (\d+)⟩")


class Stretch(NamedTuple):
    """Characters ``start`` to ``end`` of a text, which stand in a passage from character ``at``."""

    start: int
    end: int
    pid: str
    at: int


def copied(text: str, passages: Mapping[str, str], least: int = LEAST_COPIED) -> list[Stretch]:
    """The stretches of ``text`` that stand in a passage letter for letter, from left to right.

    Each begins and ends with a word and has at least ``least`` words. Where several passages go on
    alike, the longest stretch is taken; of equal ones the first passage's by id.
    """
    words = list(re.finditer(r"\S+", text))
    found: list[Stretch] = []
    first = 0
    while first + least <= len(words):
        start = words[first].start()
        longest = Stretch(start, start, "", 0)
        for pid in sorted(passages):
            for word in words[first + least - 1 :]:
                at = passages[pid].find(text[start : word.end()])
                if at < 0:
                    break
                if word.end() > longest.end:
                    longest = Stretch(start, word.end(), pid, at)
        if longest.pid:
            found.append(longest)
            first += sum(start <= word.start() < longest.end for word in words)
        else:
            first += 1
    return found


def with_words(text: str, store: PassageStore) -> str:
    """A text that was kept ``as_places``, with the words again. KeyError for an unknown passage."""

    def words(match: re.Match) -> str:
        start, length = int(match[2]), int(match[3])
        return store.get(match[1]).text[start : start + length]

    return _PLACE.sub(words, text)


class Replayed(ChatModel):
    """A packed recording as a chat model, with the words of all places.

    ``RecordingMiss`` for what is not in it, naming the ``command`` that records it.
    """

    def __init__(self, name: str, command: str, store: PassageStore, file: Path | None = None):
        self.name = NAME
        self._file = file or packed_file(name)
        self._command = command
        self._store = store
        if not self._file.is_file():
            raise RecordingMiss(f"{shown(self._file)} is missing; run: {command}")
        self._recorder = Recorder(None, self._file, "replay", name=NAME)

    def _say(self, messages: list[Message], n: int, options: dict) -> list[Reply]:
        try:
            replies = self._recorder._say(messages, n, options)
        except RecordingMiss as miss:
            what, _, _ = str(miss).partition(" Next:")
            raise RecordingMiss(f"{what} Run: {self._command}") from None
        return [replace(reply, text=with_words(reply.text, self._store)) for reply in replies]


def packed_file(name: str) -> Path:
    """Where the packed recording called ``name`` is, or is to be."""
    return RECORDINGS / f"{name}.jsonl.gz"
