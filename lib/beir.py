"""Any encoder on any retrieval set in the form of BEIR or of the hub: nDCG@10 and Recall@100.

    python -m lib.beir data/own/scifact --encoder minilm bm25
    python -m lib.beir hub:CMIRB/MedExamRetrieval --encoder "BGE(large)"
    python -m lib.beir cmirb --encoder all --llm openai:Qwen/Qwen2-7B-Instruct

A set is a folder or a data set of the hub with ``corpus.jsonl``, ``queries.jsonl`` and judgments in
``qrels``; "cmirb" are CMIRB's ten (``data/cmirb.csv``). An encoder is "bm25", a retriever of
SL-HyDE's Table 2 (``data/retrievers.csv``; "all" of them), "multilingual-e5-small" (after ``make
chinese``), or what ``lib.embed.load_encoder`` takes. With ``--llm`` the model writes a passage for
each query, which is then also searched with the mean of both (HyDE with one passage; SL-HyDE,
Eq. 8). Title and text of a passage are read as one, as BEIR has it.

Runs, replies and a table are kept in ``--out``: a run that was stopped goes on. What cannot be run
is named, and the rest goes on. ``--keep`` adds the table to ``data/results/open/beir.csv``. Source:
Thakur et al., BEIR, arXiv:2104.08663; Li et al., AutoMIR, arXiv:2410.20050.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from lib.base import paths
from lib.base.files import atomic_write
from lib.base.provenance import read_result, write_result
from lib.corpus import Corpus
from lib.data.questions import Question
from lib.data.store import PassagesInMemory
from lib.embed import Encoder, HashEncoder, load_encoder
from lib.evaluation import evaluate
from lib.forms import Qrels, read_passages, read_qrels, read_questions
from lib.llm.chat import LLMError
from lib.llm.connect import is_live, writer_of
from lib.methods.hyde import HyDE
from lib.run import Retriever
from lib.run_files import TextIndex
from lib.studies.slhyde import cmedir

MEASURES = {"nDCG@10": "ndcg@10", "R@100": "recall@100"}
"""As ir-measures calls them, and as the papers' tables do."""

WORDS = ("bm25", "bm25-chinese")
"""Searches by words. For the second each two Chinese characters side by side are a word."""

ALONE = ("standard", "bm25")
"""Methods that search with the query as it is, as the published numbers do."""

QUESTION = "hyde_passage"
"""The prompt for a passage, where the set names none."""

_FILES = ["corpus.jsonl*", "queries.jsonl*", "qrels/*"]
_KEYS = ["set", "split", "encoder", "precision", "method", "writer", "metric"]
"""What tells rows apart. ``writer``: who wrote the passages; empty for the query alone.
``precision``: what was asked for; empty for the encoder's own, float32 on a CPU."""


@dataclass(frozen=True)
class RetrievalSet:
    """What is searched, with what, and what is relevant; ``prompt`` asks for a passage."""

    name: str
    corpus: Corpus
    queries: Sequence[Question]
    qrels: Qrels
    prompt: str = QUESTION


def _rows(name: str) -> dict[str, dict[str, str]]:
    """The rows of ``data/<name>.csv`` by their name."""
    table = pd.read_csv(paths.DATA / f"{name}.csv", dtype=str, keep_default_na=False)
    return {row["name"]: row for row in table.to_dict("records")}


def folder_of(source: str) -> Path:
    """The folder of a set; one of the hub ("hub:<owner>/<name>") is downloaded once.

    FileNotFoundError where it is not there and the hub gives no answer.
    """
    if not source.startswith("hub:"):
        return paths.existing(source)
    from huggingface_hub import snapshot_download

    name = source.removeprefix("hub:")
    try:
        return Path(snapshot_download(name, repo_type="dataset", allow_patterns=_FILES))
    except (OSError, ValueError) as error:
        raise FileNotFoundError(
            f"the hub gave no answer for the data set {name} ({type(error).__name__}). Next: "
            "connect to the network, or give the folder of a copy"
        ) from error


def read_set(folder: Path, split: str = "test") -> RetrievalSet:
    """The set in a folder. ValueError lists what is wrong in its files."""
    passages, report = read_passages(folder)
    print(report, file=sys.stderr)
    whole = [replace(p, title="", text=f"{p.title} {p.text}".strip()) for p in passages]
    queries, _ = read_questions(folder)
    qrels, _ = read_qrels(folder, split)
    name = folder.name if folder.parent.name != "snapshots" else _hub_name(folder)
    prompt = _rows("cmirb").get(name, {}).get("prompt", QUESTION)
    return RetrievalSet(name, Corpus(name, PassagesInMemory(whole)), queries, qrels, prompt)


def _hub_name(snapshot: Path) -> str:
    """The set's name, from the hub's folder "datasets--<owner>--<name>/snapshots/<commit>"."""
    return snapshot.parent.parent.name.rpartition("--")[2]


def opened(name: str, precision: str = "") -> str | Encoder:
    """The encoder of that name, or one of ``WORDS``, which has no precision.

    ValueError for a name that is unknown, or a precision that an encoder does not take.
    """
    row = _rows("retrievers").get(name, {"encoder": name})
    if row["encoder"] in WORDS:
        return row["encoder"]
    if row["encoder"] == cmedir.ENCODER and not precision:
        return cmedir.E5Encoder()
    given = {
        option: row[option] for option in ("query_prompt", "passage_prompt") if row.get(option)
    }
    if precision:
        given["precision"] = precision
    return load_encoder(row["encoder"], **given)


def retriever_of(one: RetrievalSet, encoder: str | Encoder) -> tuple[Retriever, Sequence[Question]]:
    """The set searched by an encoder, or by words; and its queries as that search reads them."""
    if not isinstance(encoder, str):
        return one.corpus.retriever(encoder), one.queries
    corpus, queries = one.corpus, one.queries
    if encoder == "bm25-chinese":
        corpus = Corpus(one.name, PassagesInMemory(map(_cut, corpus.store)))
        queries = list(map(_cut, queries))
    nothing = HashEncoder(dim=8)  # reads no passage: there is no vector to be searched
    return Retriever(
        TextIndex(corpus.store, nothing), nothing, corpus.store, corpus._words
    ), queries


def _cut(item: Any) -> Any:
    """A passage or question with its Chinese cut into words."""
    return replace(item, text=" ".join(cmedir.cut(item.text, 2)))


def measured(
    one: RetrievalSet, name: str, folder: Path, llm: str | None = None, precision: str = ""
) -> Iterator[dict[str, object]]:
    """A row a method and measure of one encoder on one set. Its runs stay in ``folder``; what
    ``llm`` says beside it, for every encoder of the set."""
    encoder = opened(name, precision)
    if isinstance(encoder, str):
        precision = ""
    if llm and is_live(llm):
        llm = f"record:{(folder.parent / 'replies.jsonl').resolve()}={llm}"
    retriever, queries = retriever_of(one, encoder)
    if isinstance(encoder, str):
        methods: list = ["bm25"]
    else:
        methods = ["standard"]
        if llm:
            methods.append(HyDE(samples=1, prompt=one.prompt))
    found = evaluate(
        retriever,
        queries,
        one.qrels,
        methods=methods,
        measures=tuple(MEASURES),
        llm=llm,
        depth=100,
        folder=folder,
    )
    for row in found.table.itertuples():
        writer = "" if row.arm in ALONE else writer_of(llm)
        told = {
            "encoder": name,
            "precision": precision,
            "method": row.arm,
            "writer": writer,
            "n": row.n,
        }
        scores = {"value": row.value, "low": row.low, "high": row.high}
        percent = {column: 100 * score for column, score in scores.items()}
        yield told | {"metric": MEASURES[row.metric]} | percent


def beside_published(table: pd.DataFrame) -> pd.DataFrame:
    """The table with "published" and "source" of searches with the query alone, in percent."""
    hub_name = {row["paper"]: row["name"] for row in _rows("cmirb").values()}
    parts = [pd.read_csv(paths.REPORTED / "beir.csv")]
    for number in (2, 12):
        printed = pd.read_csv(paths.REPORTED / f"slhyde_table{number}.csv")
        printed = printed[printed["model"].isin(_rows("retrievers"))]
        printed = printed.rename(columns={"model": "encoder"})
        parts.append(printed.assign(set=printed["dataset"].map(hub_name), split="test"))
    keys = ["set", "split", "encoder", "metric"]
    known = pd.concat(parts).rename(columns={"value": "published", "table": "source"})
    known = known[[*keys, "published", "source"]]
    alone = table["method"].isin(ALONE)
    beside = table[alone].merge(known, how="left", on=keys)
    return pd.concat([beside, table[~alone]], ignore_index=True).fillna({"source": ""})


def keep(table: pd.DataFrame) -> Path:
    """Put the rows into ``data/results/open/beir.csv``; those of other searches stay."""
    try:
        before = read_result("beir", "open")[0].reindex(columns=table.columns)
        named = ["precision", "writer"]
        before[named] = before[named].astype(object).fillna("")
        here = pd.MultiIndex.from_frame(before[_KEYS]).isin(pd.MultiIndex.from_frame(table[_KEYS]))
        table = pd.concat([before[~here], table], ignore_index=True)
    except FileNotFoundError:
        pass
    return write_result(table, "beir", "open", code=["lib.beir"], data=["reported/beir.csv"])


def main(arguments: Sequence[str] | None = None) -> None:
    """The command; its options are those of the module's examples."""
    parser = argparse.ArgumentParser(prog="python -m lib.beir", description=__doc__.split("\n")[0])
    parser.add_argument("sets", nargs="+", metavar="SET")
    parser.add_argument("--encoder", nargs="+", default=["minilm", "bm25"], metavar="NAME")
    parser.add_argument("--llm", help="who writes a passage for each query: a spec of lib.llm")
    parser.add_argument("--precision", default="", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--split", default="test")
    parser.add_argument("--out", type=Path, default=paths.DATA / "own" / "beir")
    parser.add_argument("--keep", action="store_true", help="also in data/results/open/beir.csv")
    asked = parser.parse_args(arguments)
    ten = [f"hub:CMIRB/{name}" for name in _rows("cmirb")]
    sources = [one for name in asked.sets for one in (ten if name == "cmirb" else [name])]
    ten_retrievers = list(_rows("retrievers"))
    names = [name for one in asked.encoder for name in (ten_retrievers if one == "all" else [one])]
    tables: list[pd.DataFrame] = []
    not_run: dict[str, Exception] = {}
    for source in sources:
        try:
            one = read_set(folder_of(source), asked.split)
        except (ValueError, FileNotFoundError) as problem:
            not_run[source] = problem
            continue
        for name in names:
            print(f"{one.name}, {name}", file=sys.stderr, flush=True)
            folder = "-".join(filter(None, (name.replace("/", "_"), asked.precision)))
            home = asked.out / one.name / asked.split / folder
            try:
                found = pd.DataFrame(list(measured(one, name, home, asked.llm, asked.precision)))
            except (ValueError, FileNotFoundError, LLMError) as problem:
                not_run[f"{one.name}, {name}"] = problem
                continue
            found = found.assign(set=one.name, split=asked.split)
            tables.append(found.assign(corpus=one.corpus.store.content[:8]))
    if tables:
        table = beside_published(pd.concat(tables, ignore_index=True))
        table = table[[*_KEYS, "n", "value", "low", "high", "published", "source", "corpus"]]
        atomic_write(asked.out / "table.csv", table.to_csv(index=False))
        if asked.keep:
            keep(table)
        shown = table.drop(columns=["source", "corpus"])
        print(shown.to_string(index=False, float_format="{:.2f}".format))
    for what, problem in not_run.items():
        print(f"NOT RUN: {what}: {problem}", file=sys.stderr)
    if not_run:
        sys.exit(f"error: {len(not_run)} NOT RUN; the same command goes on")


if __name__ == "__main__":
    main()
