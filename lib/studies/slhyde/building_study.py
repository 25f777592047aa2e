"""Algorithm 1 of CMIRB on a small open set, with a large language model that replied on request.

The passages are MedQuAD's (CC BY 4.0), on no disease of ddx-real or ddx-fresh, and of no page that
a retriever of this project is taught to find. Each comes with MedQuAD's own question: the algorithm
is given its queries, and none of its six prompts writes one. There is something to drop: some
passages are lists of links, or say how a table is to be read, and answer no question.
``tools.texts`` gave the requests out. Among a judging step's requests are some whose right reply is
known (``planted``); they enter no set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from lib.base.files import read_jsonl, sha256_bytes
from lib.base.paths import RECORDINGS
from lib.corpora import load_passages
from lib.data.passages import Passage
from lib.embed import load_encoder
from lib.index_build import build_index, corpus_store, files_of
from lib.llm.chat import ChatModel
from lib.llm.recorder import Recorder
from lib.profiles import Profile
from lib.run import Retriever
from lib.studies.real.expansions import WRITER
from lib.studies.slhyde.building import (
    NO_REPLY,
    PROMPTS,
    Pair,
    Query,
    build,
    counts,
    search_in,
    take_step,
    task_of,
    thresholds,
)
from lib.studies.slhyde.tasks import (
    BASE,
    CORPUS,
    DOCUMENTS,
    Task,
    bm25_values,
    query_arm,
    sample,
    task_values,
    unlabelled,
)
from lib.study import Study, means_table

BUILDING = RECORDINGS / "building.jsonl.gz"

NAME = "medquad-30"
"""What the set is called in the tables; it is none of CMIRB's."""

QUERIES, MATCHED = 30, 10
"""How many queries there are, and for how many of them passages are searched."""

PLANTED = 6
"""Requests of each judging step whose right reply is known."""


def open_queries(passages: Sequence[Passage], allowed: Sequence[Passage]) -> list[Query]:
    """``QUERIES`` passages with the questions that they came with, the first to be matched.

    They are the pages after those that retrievers learn from, in the order of ``sample``.
    ``allowed`` are those of ``passages`` that are on no tested disease. The known answer is the
    first passage of what MedQuAD answers; where an answer was cut into several, the query's own
    passage may be any of them.
    """
    begins: dict[str, Passage] = {}
    for passage in passages:
        begins.setdefault(passage.meta["doc"], passage)
    queries = []
    for place, source in enumerate(sample(allowed, DOCUMENTS + QUERIES)[DOCUMENTS:]):
        qid, text = source.meta["doc"], source.meta["question"]
        route = "matched" if place < MATCHED else "given"
        queries.append(Query(qid, text, source, begins[qid].text, route))
    return queries


def planted(queries: Sequence[Query]) -> dict[str, list[Pair]]:
    """Pairs that a judging step has to drop, by step; none enters a set.

    ``medical``: everyday questions with their answers, written for this project. ``validate``: the
    known answer of the next query in place of a written one. ``relevance``: the passage of the next
    query. Both are of given queries, so that nothing has to be written first.
    """
    everyday = []
    for number, row in enumerate(read_jsonl(PROMPTS / "everyday.jsonl"), 1):
        text = Passage(f"everyday:{number}", "", row["answer"], "everyday", {})
        query = Query(text.pid, row["question"], text, row["answer"], "given")
        everyday.append(Pair(query, text))
    given = [query for query in queries if query.route == "given"]
    answers, sources = [], []
    for query, other in zip(given[:PLANTED], given[1:], strict=False):
        # On the route that goes through this step, with another's answer.
        matched = replace(query, route="matched")
        answers.append(Pair(matched, query.source, written=other.answer))
        sources.append(Pair(query, other.source))
    return {"medical": everyday[:PLANTED], "validate": answers, "relevance": sources}


def caught(queries: Sequence[Query], llm: ChatModel) -> pd.DataFrame:
    """How many plants each judging step dropped: step, planted, dropped, unusable.

    ``unusable`` counts replies that were no JSON: they dropped their pair, and say nothing.
    """
    rows = []
    for step, pairs in planted(queries).items():
        why = [pair.dropped for pair in take_step(step, pairs, llm) if pair.dropped]
        unusable = why.count(NO_REPLY)
        rows.append((step, len(pairs), len(why) - unusable, unusable))
    return pd.DataFrame(rows, columns=["step", "planted", "dropped", "unusable"])


def pair_rows(pairs: Sequence[Pair]) -> pd.DataFrame:
    """Every pair without its words.

    Columns: qid, route, pid, own (whether the passage is of the page's own answer to this query),
    place, evidence (sentences), similarity, quality, step (where it was dropped), dropped (why);
    what a pair did not come to is missing.
    """
    rows = []
    for pair in pairs:
        row = {
            "qid": pair.query.qid,
            "route": pair.query.route,
            "pid": pair.passage.pid,
            "own": pair.passage.meta["doc"] == pair.query.qid,
            "place": pair.place or None,
            "evidence": len(pair.evidence) or None,
            "similarity": pair.similarity,
            "quality": pair.quality,
            "step": pair.step,
            "dropped": pair.dropped,
        }
        rows.append(row)
    whole = {"place": "Int64", "evidence": "Int64", "quality": "Int64"}
    return pd.DataFrame(rows).astype(whole | {"similarity": float})


@dataclass(frozen=True)
class Built:
    """The open set as the recorded replies make it: its queries, every pair, and the task."""

    profile: Profile
    queries: Sequence[Query]
    pairs: Sequence[Pair]
    task: Task
    llm: ChatModel
    data: Sequence[str] = (*files_of([CORPUS]), f"recordings/{BUILDING.name}")


def load(profile: Profile) -> Built:
    """RecordingMiss where a reply is not recorded (``tools.texts`` gives it out)."""
    passages = list(load_passages(CORPUS))
    queries = open_queries(passages, unlabelled(passages))
    llm = Recorder(None, BUILDING, "replay", name=WRITER)
    pairs = build(queries, llm, search_in(passages))
    return Built(profile, queries, pairs, task_of(NAME, pairs, passages), llm)


def outcomes(built: Built) -> pd.DataFrame:
    """What the base encoder and BM25 find in the set; see ``measured``.

    The vectors are those of the whole corpus.
    """
    encoder, profile = load_encoder(BASE, precision="float32"), built.profile
    store = corpus_store((CORPUS,))
    index = build_index(store, encoder, backend=profile.backend, dtype=profile.vectors)
    inside = index.subset(np.isin(index.ids, [passage.pid for passage in built.task.corpus]))
    routes = {query.qid: query.route for query in built.queries}
    return measured(built.task, routes, Retriever(inside, encoder))


def measured(task: Task, routes: Mapping[str, str], retriever: Retriever) -> pd.DataFrame:
    """nDCG@10 and Recall@100 of the base retriever and of BM25: dataset, arm, qid, metric, value.

    The dataset is the set's name, and that with a route for the queries of one. BM25 also found
    the candidates of the matched queries, so it has an advantage there.
    """
    by_vectors = task_values(task, retriever, [query_arm(BASE, task)])
    values = pd.concat([by_vectors, bm25_values(task, "BM25")])
    parts = [values.assign(dataset=task.name)]
    for route in ("given", "matched"):
        group = values[values["qid"].map(routes) == route]
        parts.append(group.assign(dataset=f"{task.name}, {route}"))
    return pd.concat(parts, ignore_index=True)[["dataset", "arm", "qid", "metric", "value"]]


def follow(built: Built, values: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Means; what each step dropped; every pair; other thresholds; plants."""
    passages = len(built.task.corpus)
    setup = f"{built.profile.name}, built by {WRITER}, exact search in {passages} passages"
    return {
        "slhyde_building": means_table(values, setup),
        "slhyde_building_counts": counts(built.pairs),
        "slhyde_building_pairs": pair_rows(built.pairs),
        "slhyde_building_thresholds": thresholds(built.pairs),
        "slhyde_building_planted": caught(built.queries, built.llm),
    }


def _settings(built: Built) -> dict[str, Any]:
    prompts = b"".join(path.read_bytes() for path in sorted(PROMPTS.iterdir()))
    fingerprint = load_encoder(BASE, precision="float32").fingerprint
    return {"encoder": fingerprint, "prompts": sha256_bytes(prompts)[:16], "limit": None}


STUDY = Study(
    name="Algorithm 1",
    code="lib.studies.slhyde",
    load=load,
    values={"slhyde_building_values": outcomes},
    tables=(
        "slhyde_building",
        "slhyde_building_counts",
        "slhyde_building_pairs",
        "slhyde_building_thresholds",
        "slhyde_building_planted",
    ),
    follow=follow,
    origin=_settings,
)
