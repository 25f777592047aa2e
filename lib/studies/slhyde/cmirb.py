"""CMIRB, the ten Chinese medical retrieval sets that SL-HyDE is measured on, read in hub form.

On the hub each set is a data set of the organisation CMIRB with three files of JSON Lines:
``corpus.jsonl`` and ``queries.jsonl`` (id, text), ``qrels/test.jsonl`` (q_id, p_id, score). They
are read from a local copy, or from the hub. **The hub was out of reach where this was written**:
the reading is tested on hand-made records, and the download on a folder that stands in for it.
Source: Li et al., AutoMIR, arXiv:2410.20050, Table 1 and Appendices A.2 and B.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from lib.base.downloads import DownloadError
from lib.base.paths import REPORTED, mirror_folder
from lib.data.passages import Passage

_CORPUS = "corpus.jsonl"
_QUERIES = "queries.jsonl"
_QRELS = "qrels/test.jsonl"
_BYTES_PER_CHARACTER = 3  # of Chinese in UTF-8; four corpora come within 10 % of the hub's sizes

MEASURES = ("ndcg_at_10", "recall_at_100")


@dataclass(frozen=True)
class TaskInfo:
    """One of the ten sets.

    ``name`` is its name on the hub, ``paper`` its name in ``data/reported/slhyde_*.csv``, ``kind``
    the group it stands in, ``template`` what the generator is asked to do: "question to passage",
    "title to passage" or "text to similar text".
    """

    name: str
    paper: str
    kind: str
    template: str


_QUESTION = "question to passage"
_TITLE = "title to passage"
_TEXT = "text to similar text"

_ALL = (
    TaskInfo("MedExamRetrieval", "MedExam", "Knowledge", _QUESTION),
    TaskInfo("DuBaikeRetrieval", "DuBaike", "Knowledge", _QUESTION),
    TaskInfo("DXYDiseaseRetrieval", "DXYDisease", "Knowledge", _QUESTION),
    TaskInfo("MedicalRetrieval", "MedicalRetrieval", "Consultation", _QUESTION),
    TaskInfo("CmedqaRetrieval", "CmedqaRetrieval", "Consultation", _QUESTION),
    TaskInfo("DXYConsultRetrieval", "DXYConsult", "Consultation", _QUESTION),
    TaskInfo("CovidRetrieval", "CovidRetrieval", "News", _QUESTION),
    TaskInfo("IIYIPostRetrieval", "IIYiPost", "Post", _TITLE),
    TaskInfo("CSLCiteRetrieval", "CSLCite", "Literature", _TITLE),
    TaskInfo("CSLRelatedRetrieval", "CSLRel", "Literature", _TEXT),
)
TASKS = {info.name: info for info in _ALL}
"""The ten sets by their name on the hub, in the paper's order."""


@dataclass(frozen=True)
class Estimate:
    """What a set will cost: rows as the paper counts them, and its download in MB of 10^6 bytes."""

    name: str
    queries: int
    passages: int
    download_mb: float


@dataclass(frozen=True)
class Corpus:
    """The passages of one set, streamed from its file: each ``iter`` is one pass over it.

    Passage ids are ``<set>:<id>``. Only ids are kept, to find one that occurs twice. Raises
    DownloadError at a broken line, with its number, and at the end of the pass where a passage of
    ``judged`` was not there; who stops before the end does not learn that.
    """

    name: str
    path: Path
    judged: frozenset[str]

    def __iter__(self) -> Iterator[Passage]:
        seen = set()
        for number, row in _rows(self.path, self.name):
            where = f"{self.name}: {self.path.name}, line {number}"
            pid = f"{self.name}:{_string(row, 'id', where)}"
            text = _string(row, "text", where)
            if pid in seen:
                raise DownloadError(f"{where}: id {pid} occurs twice")
            seen.add(pid)
            yield Passage(pid, "", text, self.name, {})
        missing = sorted(self.judged - seen)
        if missing:
            raise DownloadError(
                f"{self.name}: {len(missing)} judged passages are not in {self.path}, the first is "
                f"{missing[0]}; {_again(self.name)}"
            )


@dataclass(frozen=True)
class Task:
    """A retrieval task: what to search with, where, and what is relevant.

    ``queries`` maps a query id to its text, ``qrels`` a query id to its judged passages with their
    score, 0 for not relevant. ``corpus`` gives every passage, once a pass. Every query has a
    passage that scores above 0.
    """

    name: str
    queries: Mapping[str, str]
    corpus: Iterable[Passage]
    qrels: Mapping[str, Mapping[str, int]]

    def __post_init__(self) -> None:
        """Raise DownloadError for a query without a relevant passage."""
        for qid in self.queries:
            if not any(score > 0 for score in self.qrels.get(qid, {}).values()):
                raise DownloadError(f"{self.name}: query {qid} has no relevant passage")


def estimate(name: str) -> Estimate:
    """Size of a set before anything is downloaded, from the counts and mean lengths of Table 1."""
    info = _info(name)
    counts = {}
    with open(REPORTED / "slhyde_table1.csv", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            if row["dataset"] == info.paper:
                counts[row["metric"]] = float(row["value"])
    characters = counts["documents"] * counts["document_avg_length"]
    characters += counts["queries"] * counts["query_avg_length"]
    return Estimate(
        name,
        queries=int(counts["queries"]),
        passages=int(counts["documents"]),
        download_mb=round(characters * _BYTES_PER_CHARACTER / 1e6, 1),
    )


def load_task(folder: Path | None, name: str, revision: str = "main") -> Task:
    """One set of ``TASKS``; queries and judgments are read and checked, the corpus is streamed.

    ``folder`` is a local copy, with a folder for each set as on the hub. Where it is None,
    ``<CHR_MIRROR>/cmirb`` is read when CHR_MIRROR is set; otherwise the set is downloaded from the
    hub at ``revision``, a branch or, for numbers that are to stay, a commit. What came down stays,
    so a run that was killed goes on where it stopped. Raises DownloadError with the file, the line
    and, where a file is missing, the next command.
    """
    _info(name)
    mirror = mirror_folder()
    if folder is None and mirror:
        folder = mirror / "cmirb"
    task_folder = _download(name, revision) if folder is None else Path(folder) / name

    for file in (_CORPUS, _QUERIES, _QRELS):
        if not (task_folder / file).is_file():
            raise DownloadError(f"{name}: no {file} in {task_folder}; {_again(name)}")
    queries = _read_queries(task_folder / _QUERIES, name)
    qrels = _read_qrels(task_folder / _QRELS, name, queries)
    judged = frozenset(pid for scores in qrels.values() for pid in scores)
    return Task(name, queries, Corpus(name, task_folder / _CORPUS, judged), qrels)


def _info(name: str) -> TaskInfo:
    if name not in TASKS:
        raise ValueError(f"no set {name!r}; CMIRB has: {', '.join(TASKS)}")
    return TASKS[name]


def _again(name: str) -> str:
    """The next command, for a set that is not there or not complete."""
    return (
        f"run: hf download CMIRB/{name} --repo-type dataset --local-dir cmirb/{name}, "
        f"then load_task(Path('cmirb'), '{name}')"
    )


def _download(name: str, revision: str) -> Path:
    """The folder of the hub's snapshot: three files of one commit, only what is not there yet."""
    from huggingface_hub import snapshot_download

    size = estimate(name)
    print(
        f"CMIRB/{name} at {revision}: {size.passages} passages, about {size.download_mb} MB",
        flush=True,
    )
    try:
        folder = snapshot_download(
            repo_id=f"CMIRB/{name}",
            repo_type="dataset",
            revision=revision,
            allow_patterns=[_CORPUS, _QUERIES, _QRELS],
        )
    except OSError as error:  # no connection, no such revision, cut short
        raise DownloadError(
            f"could not download CMIRB/{name} at {revision}: {error}; "
            f"run this again where the hub can be reached: it goes on where it stopped"
        ) from error
    return Path(folder)


def _read_queries(path: Path, name: str) -> dict[str, str]:
    queries = {}
    for number, row in _rows(path, name):
        where = f"{name}: {path.name}, line {number}"
        qid = _string(row, "id", where)
        if qid in queries:
            raise DownloadError(f"{where}: id {qid} occurs twice")
        queries[qid] = _string(row, "text", where)
    return queries


def _read_qrels(path: Path, name: str, queries: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """Scores by query and passage; whether the passages are there, only a pass can tell."""
    qrels = {}
    for number, row in _rows(path, name):
        where = f"{name}: {_QRELS}, line {number}"
        qid = _string(row, "q_id", where)
        pid = f"{name}:{_string(row, 'p_id', where)}"
        score = row.get("score")
        # bool is an int in Python, and "score": true is no score.
        if type(score) is not int or score < 0:
            raise DownloadError(f"{where}: score is {score!r}, wanted a whole number from 0")
        if qid not in queries:
            raise DownloadError(f"{where}: query {qid} is not in {_QUERIES}; {_again(name)}")
        scores = qrels.setdefault(qid, {})
        if pid in scores:
            raise DownloadError(f"{where}: query {qid} and passage {pid} occur twice")
        scores[pid] = score
    return qrels


def _rows(path: Path, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, record) of a file of JSON Lines, one at a time."""
    # As bytes, so that what is no UTF-8 is found on its own line.
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.startswith(b"version https://git-lfs"):
                raise DownloadError(
                    f"{name}: {path.name} is a Git LFS pointer, not the data; "
                    f"run: git lfs pull (in that folder), or read from the hub without a folder"
                )
            try:
                row = json.loads(line.decode("utf-8"))
            except ValueError as error:
                raise DownloadError(
                    f"{name}: {path.name}, line {number}: no record ({error}); {_again(name)}"
                ) from error
            if not isinstance(row, dict):
                raise DownloadError(f"{name}: {path.name}, line {number}: no record, but {row!r}")
            yield number, row


def _string(row: Mapping[str, Any], field: str, where: str) -> str:
    value = row.get(field)
    if not isinstance(value, str) or not value.strip():
        raise DownloadError(f"{where}: {field} is {value!r}, wanted a text")
    return value


def measure_task(
    run: Mapping[str, Sequence[str]], qrels: Mapping[str, Mapping[str, int]]
) -> pd.DataFrame:
    """One row a query of ``qrels`` (index qid), columns ``MEASURES``, values in [0, 1].

    ``run[qid]`` lists passage ids, best first; a query that is missing there scores 0, and one that
    is not in ``qrels`` does not count. The gain of a passage in nDCG@10 is its score, as trec_eval
    has it; in Recall@100 every passage that scores above 0 counts one. Raises ValueError for a
    passage that is twice in a list, or a query without a relevant passage.
    """
    import ir_measures as ir
    from ir_measures import R, nDCG

    names = {nDCG @ 10: "ndcg_at_10", R @ 100: "recall_at_100"}
    scored = {}
    for qid, scores in qrels.items():
        if not any(score > 0 for score in scores.values()):
            raise ValueError(f"query {qid} has no relevant passage: nothing can be measured")
        pids = list(run.get(qid, ()))
        if len(set(pids)) < len(pids):
            raise ValueError(f"query {qid}: a passage is twice in its list")
        # Scores are minus the rank: the measures must not re-break ties that the index has broken.
        scored[qid] = {pid: -rank for rank, pid in enumerate(pids)}
    rows = {qid: dict.fromkeys(MEASURES, 0.0) for qid in qrels}
    for row in ir.iter_calc(list(names), {q: dict(s) for q, s in qrels.items()}, scored):
        rows[row.query_id][names[row.measure]] = row.value
    return pd.DataFrame.from_dict(rows, orient="index", columns=list(MEASURES)).rename_axis("qid")
