"""Algorithm 1 of CMIRB on a small open set, with a large language model reached through sheets.

The passages are MedQuAD's (CC BY 4.0), on no disease of ddx-real or ddx-fresh, and of no page that
a retriever of this project is taught to find. Each comes with MedQuAD's own question: the algorithm
is given its queries, and none of its six prompts writes one. There is something to drop: some
passages are lists of links, or say how a table is to be read, and answer no question.

    python -m lib.studies.selflearn.building_study give FOLDER   the next sheets of requests
    python -m lib.studies.selflearn.building_study take FOLDER   replies into the recording
    python -m lib.studies.selflearn.building_study               the tables, once all is recorded

A sheet ``<name>.jsonl`` has one kind of request, each with ``number`` and ``prompt``; its replies
come as ``<name>.replies.jsonl`` with ``number`` and ``reply``. Among a judging step's requests are
some whose right reply is known (``planted``); they enter no set.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from lib.base.files import atomic_write, canonical_json, read_jsonl, sha256_bytes
from lib.base.paths import RECORDINGS, shown
from lib.base.provenance import make_all_or_reuse
from lib.corpora import load_passages
from lib.data.passages import Passage
from lib.embed import load_encoder
from lib.index_build import build_index, corpus_store, files_of
from lib.llm.batch import Collector, Nothing, Pending, add_replies
from lib.llm.chat import ChatModel
from lib.llm.recorder import Recorder, RecordingMiss
from lib.profiles import Profile, load_profile
from lib.run import Retriever
from lib.stats import long_values
from lib.studies.grid.long_tables import means_table
from lib.studies.real.texts import WRITER
from lib.studies.selflearn.building import (
    NO_REPLY,
    PROMPTS,
    Pair,
    Query,
    Search,
    build,
    counts,
    finish,
    medical,
    relevance,
    search_in,
    task_of,
    thresholds,
    validate,
)
from lib.studies.selflearn.cmirb import Task, measure_task
from lib.studies.selflearn.documents import CORPUS, DOCUMENTS, sample, unlabelled
from lib.studies.selflearn.evaluate import DEPTH, Arm, task_values

BUILDING = RECORDINGS / "building.jsonl.gz"

AUTHOR = (
    "a large language model, by the prompts of lib/studies/selflearn/building_prompts, up to 36 "
    "requests of one kind in a conversation; not re-runnable from here"
)

NAME = "medquad-30"
"""What the set is called in the tables; it is none of CMIRB's."""

QUERIES = 30
MATCHED = 10
"""How many queries there are, and for how many of them passages are searched."""

PLANTED = 6
"""Requests of each judging step whose right reply is known."""

COPIED = 20
"""Words in a row that a reply may not take over from what it was shown."""

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


_JUDGING = {"medical": medical, "validate": validate, "relevance": relevance}


def caught(queries: Sequence[Query], llm: ChatModel) -> pd.DataFrame:
    """How many plants each judging step dropped: step, planted, dropped, unusable.

    ``unusable`` counts replies that were no JSON: they dropped their pair, and say nothing.
    """
    rows = []
    for step, pairs in planted(queries).items():
        made = _JUDGING[step](pairs, llm)
        unusable = sum(pair.dropped == NO_REPLY for pair in made)
        dropped = sum(bool(pair.dropped) for pair in made) - unusable
        row = {"step": step, "planted": len(made), "dropped": dropped, "unusable": unusable}
        rows.append(row)
    return pd.DataFrame(rows)


# the desk ----------------------------------------------------------------------------------------


def asked(
    queries: Sequence[Query], search: Search, recorded: Recorder | Nothing
) -> dict[str, list[Pending]]:
    """What can be asked next, by step, in the order of hashes; nothing once all is recorded.

    The medical step is asked for all queries first, since what it drops is searched no more. After
    it every query goes its own way, so steps of several kinds may be asked at once. Plants are
    mixed into the requests of their step.
    """
    collector = Collector(recorded)
    first: list[Pair] = []
    with suppress(RecordingMiss):
        first = medical([Pair(query, query.source) for query in queries], collector)
    gone = [pair for pair in first if pair.dropped]
    for pair in first:
        if not pair.dropped:
            with suppress(RecordingMiss):
                finish([pair, *gone], collector, search)
    by_step = _by_step(collector)
    among_plants = Collector(recorded)
    for step, pairs in planted(queries).items():
        with suppress(RecordingMiss):
            _JUDGING[step](pairs, among_plants)
    for step, requests in _by_step(among_plants).items():
        # Plants go out with what they hide among, or by themselves when all else is answered.
        if step in by_step or not collector.asked:
            by_step.setdefault(step, []).extend(requests)
    return {step: sorted(own, key=lambda request: request.key) for step, own in by_step.items()}


def _by_step(collector: Collector) -> dict[str, list[Pending]]:
    found: dict[str, list[Pending]] = {}
    for request in collector.asked.values():
        found.setdefault(request.method, []).append(request)
    return found


def give(requests: Mapping[str, Sequence[Pending]], folder: Path) -> list[Path]:
    """One sheet a step into ``folder``, numbered on from those there; what is in them into
    ``folder/keys``.

    ValueError while a sheet waits for its replies.
    """
    waiting = [sheet for sheet in _sheets(folder) if not _replies(folder, sheet).exists()]
    if waiting:
        raise ValueError(f"{_replies(folder, waiting[0])} is not there yet: it comes first")
    number = 1 + max((_number(sheet) for sheet in _sheets(folder)), default=0)
    made = []
    for step, own in requests.items():
        name = f"step{number}" if len(requests) == 1 else f"step{number}-{step}"
        rows = [{"number": i, "prompt": _as_shown(one)} for i, one in enumerate(own, 1)]
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        key = {"kind": step, "requests": [asdict(request) for request in own]}
        atomic_write(folder / "keys" / f"{name}.json", canonical_json(key))
        made.append(atomic_write(folder / f"{name}.jsonl", lines))
    return made


def _as_shown(request: Pending) -> str:
    """One request as text: a single turn as it is, several each below who speaks."""
    if len(request.messages) == 1:
        return request.messages[0]["content"]
    return "\n\n".join(f"[{turn['role']}]\n{turn['content']}" for turn in request.messages)


def take(folder: Path, recording: Path = BUILDING) -> tuple[int, list[str]]:
    """Add the replies of every answered sheet to the recording.

    Returns how many were new, and the sheets that have no replies yet. ValueError where a sheet's
    replies are not just one for each number, each a text that copies no ``COPIED`` words in a row
    from its prompt: a recording may hold no passages.
    """
    new, waiting = 0, []
    for sheet in _sheets(folder):
        file = _replies(folder, sheet)
        if not file.exists():
            waiting.append(sheet)
            continue
        key = json.loads((folder / "keys" / f"{sheet}.json").read_text(encoding="utf-8"))
        requests = [Pending(**request) for request in key["requests"]]
        texts = _texts(file, requests)
        new += add_replies(recording, WRITER, AUTHOR, requests, texts)
    return new, waiting


def _texts(file: Path, requests: Sequence[Pending]) -> dict[str, str]:
    """The replies of one sheet by the keys of its requests."""
    by_number: dict[int, str] = {}
    for row in read_jsonl(file):
        number, text = row.get("number"), row.get("reply")
        if not isinstance(text, str) or not text.strip() or number in by_number:
            raise ValueError(f"{file}: reply {number} is empty, no text, or there twice")
        by_number[number] = text.strip()
    if sorted(by_number) != list(range(1, len(requests) + 1)):
        raise ValueError(f"{file}: wanted replies 1 to {len(requests)}, not {sorted(by_number)}")
    for number, request in enumerate(requests, 1):
        prompt = " ".join(turn["content"] for turn in request.messages)
        if _runs(prompt) & _runs(by_number[number]):
            raise ValueError(
                f"{file}: reply {number} copies {COPIED} words in a row; ask once more"
            )
    return {request.key: by_number[number] for number, request in enumerate(requests, 1)}


def _runs(text: str) -> set[tuple[str, ...]]:
    """All ``COPIED`` words in a row."""
    words = re.findall(r"\w+", text.casefold())
    return {tuple(words[i : i + COPIED]) for i in range(len(words) - COPIED + 1)}


def _sheets(folder: Path) -> list[str]:
    return sorted((path.stem for path in (folder / "keys").glob("step*.json")), key=_number)


def _number(sheet: str) -> int:
    return int(sheet.removeprefix("step").partition("-")[0])


def _replies(folder: Path, sheet: str) -> Path:
    return folder / f"{sheet}.replies.jsonl"


def _recorded(recording: Path = BUILDING) -> Recorder | Nothing:
    return Recorder(None, recording, "replay") if recording.exists() else Nothing(WRITER)


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

    RecordingMiss where a reply is not recorded: then ``give`` has more sheets.
    """
    prompts = sorted(PROMPTS.iterdir())
    origin = {
        "code": ["lib.studies.selflearn"],
        "data": [*files_of([CORPUS]), f"recordings/{BUILDING.name}"],
        "encoder": load_encoder(BASE, precision="float32").fingerprint,
        "prompts": sha256_bytes(b"".join(path.read_bytes() for path in prompts))[:16],
    }

    def make() -> dict[str, pd.DataFrame]:
        passages = list(load_passages(CORPUS))
        queries = open_queries(passages, unlabelled(passages))
        llm = _recorded()
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


def main(arguments: Iterable[str] | None = None) -> None:
    """``python -m lib.studies.selflearn.building_study [give|take FOLDER] [--profile open]``"""
    parser = argparse.ArgumentParser(prog="python -m lib.studies.selflearn.building_study")
    parser.add_argument("what", nargs="?", choices=("give", "take"))
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--profile", default="open")
    given = parser.parse_args(None if arguments is None else list(arguments))
    if given.what and not given.folder:
        sys.exit(f"error: {given.what} needs a folder")
    if given.what == "take":
        new, waiting = take(given.folder)
        print(f"{new} new replies in {shown(BUILDING)}; waiting for: {waiting or 'nothing'}")
    elif given.what == "give":
        passages = list(load_passages(CORPUS))
        queries = open_queries(passages, unlabelled(passages))
        requests = asked(queries, search_in(passages), _recorded())
        for path in give(requests, given.folder):
            print(path)
        print({step: len(own) for step, own in requests.items()} or "all is recorded")
    else:
        tables = building_results(load_profile(given.profile))
        for name in TABLES[1:]:
            print(f"{name}\n{tables[name].to_string(index=False)}\n")


if __name__ == "__main__":
    main()
