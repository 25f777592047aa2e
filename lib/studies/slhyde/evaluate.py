"""Searching a task in every way that SL-HyDE compares, measured query by query.

An ``Arm`` is a retriever (an encoder's name), what is searched with, and who wrote the passage.
Passages: ``base``, the small generator as it is; ``tuned``, the same after its self-learning (both
in ``data/selflearn``); ``capable``, a large language model's recorded ones, for BioASQ alone, which
are the most that a better generator could bring. Metrics: nDCG@10 and Recall@100.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from lib.base.files import read_jsonl
from lib.base.paths import DATA
from lib.datasets import Question
from lib.embed import Encoder
from lib.llm.chat import tag
from lib.llm.recorder import RecordingMiss
from lib.methods.base import Fusion, Hit, Request
from lib.query_spec import Hypotheses, Text
from lib.run import RetrievalFailure, Retriever
from lib.search.bm25 import BM25Index
from lib.search.index import DenseIndex
from lib.search.vectors import encode_cached
from lib.stats import long_values
from lib.studies.real.expansions import KINDS, recorded, writers_of
from lib.studies.slhyde.cmirb import Task, measure_task

DEPTH = 100
"""Passages retrieved: Recall looks at a hundred. Merged lists are twice as deep."""

HOW = ("query", "mean", "passage", "concatenation", "rrf")
"""What is searched with: the query; the mean of query and passages (Eq. 8); the passages alone
(Table 5, "w/ D."); both as one text ("w/ con."); or both lists merged by their ranks, which the
paper does not have."""

_CONTRAST = "contrast@"

Written = Mapping[str, Mapping[str, Sequence[str]]]
"""Passages by writer and query id. A text may be empty: then the query is searched alone."""


@dataclass(frozen=True)
class Arm:
    """One way to search. ``how`` is one of ``HOW``, or ``contrast@<lambda>``: H+ less lambda times
    H-, both written by the capable writer. ``passages`` is how many of the writer's are taken."""

    retriever: str
    how: str = "query"
    writer: str = ""
    passages: int = 1

    @property
    def name(self) -> str:
        """Such as "minilm", "slhyde-query, mean, tuned" or "minilm, mean, capable x 2"."""
        several = f" x {self.passages}" if self.passages > 1 else ""
        parts = [self.retriever, self.how, self.writer + several]
        return ", ".join(part for part in parts if part not in ("query", ""))


def request_of(how: str, query: str, passages: Sequence[str]) -> Request:
    """What one of ``HOW`` searches with, given the query and the passages that were written.

    Without a passage that holds anything, the query is searched alone. ValueError for another how.
    """
    if how not in HOW:
        raise ValueError(f"no way {how!r}; there are: {', '.join(HOW)}")
    asked = Hypotheses((Text(query, 1.0, "query", "question"),))
    full = [passage for passage in passages if passage.strip()]
    if how == "query" or not full:
        return asked
    texts = tuple(Text(passage, role="passage") for passage in full)
    if how == "mean":
        return Hypotheses((*asked.texts, *texts))
    if how == "passage":
        return Hypotheses(texts)
    if how == "concatenation":
        return Hypotheses((Text(" ".join([query, *full]), role="passage"),))
    return Fusion((asked, Hypotheses(texts)), depth=2 * DEPTH)


def open_task(task: Task, encoder: Encoder, dtype: str, backend: str = "faiss") -> Retriever:
    """The task's passages in an index, by one encoder; their vectors are cached once."""
    passages = list(task.corpus)
    items = [(passage.title, passage.text) for passage in passages]
    label = f"{task.name} by {encoder.name}"
    shards = encode_cached(items, encoder, "article", dtype=dtype, label=label)
    index = DenseIndex(shards, [passage.pid for passage in passages], backend=backend)
    return Retriever(index, encoder)


def bm25_run(
    task: Task, cut: Callable[[str], list[str]] = str.split, k: int = DEPTH
) -> dict[str, list[str]]:
    """The k best passages of each query of a task by BM25 over the words of ``cut``, best first.

    Title and text are one. The words are handed to ``lib.search.bm25`` with spaces between, where
    they stay what they are, less the English stop words. A passage that shares no word with a query
    is not in its list.
    """
    texts = [" ".join(cut(f"{passage.title} {passage.text}")) for passage in task.corpus]
    index = BM25Index.build(texts, [passage.pid for passage in task.corpus])
    hits = index.search([" ".join(cut(query)) for query in task.queries.values()], k)
    return {qid: hits[i].ids[0].tolist() for i, qid in enumerate(task.queries)}


def task_values(
    task: Task,
    retriever: Retriever,
    arms: Sequence[Arm],
    written: Written,
    hypotheses: Mapping[str, Hypotheses],
) -> pd.DataFrame:
    """``arm, qid, metric, value`` of every arm: all must be of this retriever.

    An arm is measured on the queries for which its writer has passages. LookupError for a writer
    or hypotheses that are not there at all.
    """
    requests = {arm.name: _requests(task, arm, written, hypotheses) for arm in arms}
    asked = [request for by_query in requests.values() for request in by_query.values()]
    found = iter(retriever.search_many(asked, DEPTH))
    parts = []
    for name, by_query in requests.items():
        run = {qid: _ids(next(found)) for qid in by_query}
        qrels = {qid: task.qrels[qid] for qid in by_query}
        parts.append(long_values(name, measure_task(run, qrels)))
    return pd.concat(parts, ignore_index=True)


def _requests(
    task: Task, arm: Arm, written: Written, hypotheses: Mapping[str, Hypotheses]
) -> dict[str, Request]:
    """What an arm searches with, by query id."""
    if arm.how.startswith(_CONTRAST):
        lam = float(arm.how.removeprefix(_CONTRAST))
        found = {qid: h.by(lam=lam) for qid, h in hypotheses.items() if qid in task.queries}
    elif arm.how == "query":
        found = {qid: request_of("query", query, ()) for qid, query in task.queries.items()}
    else:
        found = {
            qid: request_of(arm.how, task.queries[qid], passages[: arm.passages])
            for qid, passages in written.get(arm.writer, {}).items()
        }
    if not found:
        raise LookupError(f"{task.name}: there is nothing written for the arm {arm.name!r}")
    return found


def _ids(hits: object) -> list[str]:
    """The ids that a search found; none where the request could not be ranked."""
    return [] if isinstance(hits, RetrievalFailure) else hits.ids[0].tolist()  # type: ignore[attr-defined]


# who wrote passages -------------------------------------------------------------------------------


def generated_passages(name: str) -> dict[str, dict[str, list[str]]]:
    """What the small generator wrote for the queries of a task, before and after its tuning:
    passages by writer ("base", "tuned") and query id."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for row in read_jsonl(DATA / "selflearn" / f"hyde-{name}.jsonl.gz"):
        found[row["writer"]][row["qid"]].append(row["passage"])
    return {writer: dict(by_query) for writer, by_query in found.items()}


def capable_passages(questions: Sequence[Question]) -> dict[str, list[str]]:
    """The passages that a large language model wrote for BioASQ's questions, by question id."""
    requests = _recorded("hyde", questions)
    return {
        qid: [text.text for text in request.texts if text.role == "passage"]
        for qid, request in requests.items()
    }


def capable_hypotheses(questions: Sequence[Question]) -> dict[str, Hypotheses]:
    """H+ and H- that a large language model wrote for BioASQ's questions, by question id."""
    return _recorded("hypotheses", questions)


def _recorded(kind: str, questions: Sequence[Question]) -> dict[str, Hypotheses]:
    """The requests of a recorded kind of text; a question whose text nobody recorded is missing."""
    llm = recorded()
    found = {}
    for question in questions:
        method = writers_of(KINDS[kind], question)
        with tag(method=method.name, qid=question.qid):
            try:
                expansion = method.expand(question, llm, _no_search)
            except RecordingMiss:
                continue
        if expansion.request is not None:
            found[question.qid] = expansion.request
    return found


def _no_search(request: Request, k: int) -> list[Hit]:
    """These methods look at no first results."""
    raise AssertionError("a recorded passage was written without a search")
