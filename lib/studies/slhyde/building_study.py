"""Algorithm 1 of CMIRB on a small open set, with a large language model reached through sheets.

The passages are MedQuAD's (CC BY 4.0), on no disease of ddx-real or ddx-fresh, and of no page that
a retriever of this project is taught to find. Each comes with MedQuAD's own question: the algorithm
is given its queries, and none of its six prompts writes one. There is something to drop: some
passages are lists of links, or say how a table is to be read, and answer no question.
``tools.texts`` gave the requests out. Among a judging step's requests are some whose right reply is
known (``planted``); they enter no set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from lib.base.files import read_jsonl, sha256_bytes
from lib.base.paths import RECORDINGS
from lib.base.provenance import make_all_or_reuse
from lib.corpora import load_passages
from lib.data.passages import Passage
from lib.embed import load_encoder
from lib.index_build import build_index, corpus_store, files_of
from lib.llm.chat import ChatModel
from lib.llm.recorder import Recorder
from lib.profiles import Profile
from lib.run import Retriever
from lib.stats import long_values
from lib.studies.main_tables.long_tables import means_table
from lib.studies.real.expansions import WRITER
from lib.studies.slhyde.building import (
    NO_REPLY,
    PROMPTS,
    Pair,
    Query,
    Search,
    build,
    counts,
    medical,
    relevance,
    search_in,
    task_of,
    thresholds,
    validate,
)
from lib.studies.slhyde.cmirb import Task, measure_task
from lib.studies.slhyde.documents import CORPUS, DOCUMENTS, sample, unlabelled
from lib.studies.slhyde.evaluate import DEPTH, Arm, task_values

BUILDING = RECORDINGS / "building.jsonl.gz"

NAME = "medquad-30"
"""What the set is called in the tables; it is none of CMIRB's."""

QUERIES = 30
MATCHED = 10
"""How many queries there are, and for how many of them passages are searched."""

PLANTED = 6
"""Requests of each judging step whose right reply is known."""

TABLES = (
    "slhyde_building_values",
    "slhyde_building",
    "slhyde_building_counts",
    "slhyde_building_pairs",
    "slhyde_building_thresholds",
    "slhyde_building_planted",
)
"""Outcomes by query; their means; what each step dropped; every pair; other thresholds; plants."""

BASE = "minilm"


# the open set ------------------------------------------------------------------------------------


def open_queries(
    passages: Sequence[Passage], allowed: Sequence[Passage], first: int = DOCUMENTS
) -> list[Query]:
    """``QUERIES`` passages with the questions that they came with, the first to be matched.

    They are the pages after the ``first`` ones of ``documents.sample``, which retrievers learn
    from, in the order of hashes. ``allowed`` are those of ``passages`` that are on no tested
    disease. The known answer is the first passage of what MedQuAD answers; where an answer was cut
    into several, the query's own passage may be any of them.
    """
    begins: dict[str, Passage] = {}
    for passage in passages:
        begins.setdefault(passage.meta["doc"], passage)
    queries = []
    for place, source in enumerate(sample(allowed, first + QUERIES)[first:]):
        answer_id = source.meta["doc"]
        queries.append(
            Query(
                qid=answer_id,
                text=source.meta["question"],
                source=source,
                answer=begins[answer_id].text,
                route="matched" if place < MATCHED else "given",
            )
        )
    return queries


# what has a known reply --------------------------------------------------------------------------


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
    others = list(zip(given, given[1:], strict=False))[:PLANTED]
    return {
        "medical": everyday[:PLANTED],
        "validate": [
            # On the route that goes through this step, with another's answer.
            Pair(_matched(query), query.source, written=other.answer)
            for query, other in others
        ],
        "relevance": [Pair(query, other.source) for query, other in others],
    }


def _matched(query: Query) -> Query:
    return Query(query.qid, query.text, query.source, query.answer, "matched")


JUDGING = {"medical": medical, "validate": validate, "relevance": relevance}


def caught(queries: Sequence[Query], llm: ChatModel) -> pd.DataFrame:
    """How many plants each judging step dropped: step, planted, dropped, unusable.

    ``unusable`` counts replies that were no JSON: they dropped their pair, and say nothing.
    """
    rows = []
    for step, pairs in planted(queries).items():
        made = JUDGING[step](pairs, llm)
        unusable = sum(pair.dropped == NO_REPLY for pair in made)
        dropped = sum(bool(pair.dropped) for pair in made) - unusable
        row = {"step": step, "planted": len(made), "dropped": dropped, "unusable": unusable}
        rows.append(row)
    return pd.DataFrame(rows)


# what came of it ---------------------------------------------------------------------------------


def pair_rows(pairs: Sequence[Pair]) -> pd.DataFrame:
    """Every pair without its words.

    Columns: qid, route, pid, own (whether the passage is of the page's own answer to this query),
    place, evidence (sentences), similarity, quality, step (where it was dropped), dropped (why);
    what a pair did not come to is missing.
    """
    rows = []
    for pair in pairs:
        own = pair.passage.meta["doc"] == pair.query.qid
        row = {"qid": pair.query.qid, "route": pair.query.route, "pid": pair.passage.pid}
        row |= {"own": own, "place": pair.place or None, "evidence": len(pair.evidence) or None}
        row |= {"similarity": pair.similarity, "quality": pair.quality}
        rows.append(row | {"step": pair.step, "dropped": pair.dropped})
    whole = {"place": "Int64", "evidence": "Int64", "quality": "Int64"}
    return pd.DataFrame(rows).astype(whole | {"similarity": float})


def measured(
    task: Task, routes: Mapping[str, str], retriever: Retriever, search: Search
) -> pd.DataFrame:
    """nDCG@10 and Recall@100 of the base retriever and of BM25: dataset, arm, qid, metric, value.

    The dataset is the set's name, and that with a route for the queries of one. BM25 also found
    the candidates of the matched queries, so it is at home there.
    """
    found = {qid: [p.pid for p in search(text, DEPTH)] for qid, text in task.queries.items()}
    values = pd.concat(
        [
            task_values(task, retriever, [Arm(BASE)], {}, {}),
            long_values("BM25", measure_task(found, task.qrels)),
        ],
        ignore_index=True,
    )
    parts = [values.assign(dataset=task.name)]
    for route in sorted(set(routes.values())):
        own = values[values["qid"].map(routes) == route]
        parts.append(own.assign(dataset=f"{task.name}, {route}"))
    return pd.concat(parts, ignore_index=True)[["dataset", "arm", "qid", "metric", "value"]]


def building_results(profile: Profile) -> dict[str, pd.DataFrame]:
    """``TABLES`` by name, kept as results of the profile; what is stored and holds is reused.

    RecordingMiss where a reply is not recorded (``tools.texts`` gives it out).
    """
    prompts = sorted(PROMPTS.iterdir())
    origin = {
        "code": ["lib.studies.slhyde"],
        "data": [*files_of([CORPUS]), f"recordings/{BUILDING.name}"],
        "encoder": load_encoder(BASE, precision="float32").fingerprint,
        "prompts": sha256_bytes(b"".join(path.read_bytes() for path in prompts))[:16],
    }

    def make() -> dict[str, pd.DataFrame]:
        passages = list(load_passages(CORPUS))
        queries = open_queries(passages, unlabelled(passages))
        llm = Recorder(None, BUILDING, "replay", name=WRITER)
        pairs = build(queries, llm, search_in(passages))
        task = task_of(NAME, pairs, passages)
        routes = {query.qid: query.route for query in queries}
        values = measured(task, routes, _base(task, profile), search_in(task.corpus))
        setup = f"{profile.name}, built by {WRITER}, exact search in {len(task.corpus)} passages"
        tables = (
            values,
            means_table(values, setup),
            counts(pairs),
            pair_rows(pairs),
            thresholds(pairs),
            caught(queries, llm),
        )
        return dict(zip(TABLES, tables, strict=True))

    return make_all_or_reuse(make, TABLES, profile.name, **origin)


def _base(task: Task, profile: Profile) -> Retriever:
    """The task's passages by the base encoder, out of the vectors of the whole corpus."""
    encoder = load_encoder(BASE, precision="float32")
    index = build_index(
        corpus_store((CORPUS,)), encoder, backend=profile.backend, dtype=profile.vectors
    )
    left = {passage.pid for passage in task.corpus}
    return Retriever(index.subset([pid in left for pid in index.ids.tolist()]), encoder)
