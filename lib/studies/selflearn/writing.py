"""Everything that SmolLM2 writes for SL-HyDE, in five stages; may be stopped at any time.

    python -m lib.studies.selflearn.writing [STAGE ...]

``data/selflearn/README.md`` says what each file holds. A stage whose file is there, made with the
same settings, is not run again; one that was killed goes on with its first unwritten batch.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lib.base import paths
from lib.base.downloads import fetch
from lib.base.files import (
    read_jsonl,
    read_manifest,
    sha256_bytes,
    sha256_file,
    write_jsonl_gz,
    write_manifest,
)
from lib.datasets import load_real
from lib.embed import Encoder, load_encoder
from lib.index_build import build_index, corpus_store
from lib.llm.causal import Causal, Sampling
from lib.llm.small_model import NAME
from lib.model_files import WEIGHTS, adapter_folder, read_card
from lib.search.index import DenseIndex
from lib.search.vectors import encode_small
from lib.studies.selflearn.batches import write_all
from lib.studies.selflearn.choosing import (
    NOT_FOUND,
    best,
    mean_vectors,
    repeats,
    source_ranks,
)
from lib.studies.selflearn.documents import CORPUS, check_no_leak, sample, unlabelled
from lib.studies.selflearn.generator import (
    ADAPTER,
    ANSWERING,
    ASKING,
    PASSAGES,
    PLAN,
    PROMPTS,
    TUNED,
    asks_for_passage,
    asks_for_query,
    asks_with_document,
    one_question,
    open_writer,
    train,
)

FOLDER = paths.DATA / "selflearn"

WITH_PASSAGES = 200
"""Queries that the generator is tuned on."""

WITH_TUNED = 1000
"""Queries that the tuned generator writes a passage for."""

TEST_QUERIES = 300
"""Queries of each test set that both generators write a passage for."""

Rows = list[dict[str, Any]]


def read_texts(name: str) -> Rows:
    """The rows of ``data/selflearn/<name>.jsonl.gz``: queries, passages, tuned, hyde-scifact or
    hyde-bioasq.

    FileNotFoundError, with the command that writes it, where it is not there whole.
    """
    path = FOLDER / f"{name}.jsonl.gz"
    if read_manifest(path) is None:
        command = "python -m lib.studies.selflearn.writing"
        raise FileNotFoundError(f"{paths.shown(path)} is missing or not whole; run: {command}")
    return list(read_jsonl(path))


# the stages --------------------------------------------------------------------------------------


def write_queries() -> None:
    """One question for each document of the sample."""
    documents = sample(unlabelled())
    check_no_leak(documents)

    def make(writer: Causal, folder: Path) -> Rows:
        asked = [asks_for_query(document) for document in documents]
        texts = write_all(writer, asked, ASKING, folder)
        return [
            {"pid": document.pid, "query": one_question(text, document.title)}
            for document, text in zip(documents, texts, strict=True)
        ]

    _keep("queries", make, ASKING, ("query.txt", "examples.jsonl"))


def write_passages() -> None:
    """``PASSAGES`` passages for each of the first queries, their ranks, and the one chosen."""
    queries = read_texts("queries")[:WITH_PASSAGES]
    by_id = {document.pid: document for document in sample(unlabelled())}

    def make(writer: Causal, folder: Path) -> Rows:
        asked = [asks_with_document(row["query"], by_id[row["pid"]]) for row in queries]
        drawn = [write_all(writer, asked, ANSWERING, folder, seed) for seed in range(PASSAGES)]
        # Who repeats the document has written nothing of their own.
        shown = [by_id[row["pid"]].text for row in queries]
        passages = [
            ["" if repeats(text, document) else text for text in texts]
            for *texts, document in zip(*drawn, shown, strict=True)
        ]
        encoder = load_encoder("minilm")
        return chosen_rows(queries, passages, encoder, allowed_index(encoder))

    _keep("passages", make, ANSWERING, ("passage_from_document.txt",), ("queries",))


def tune_generator() -> None:
    """The adapter, if there is none of this plan and these passages."""
    rows = read_texts("passages")
    wanted = asdict(PLAN) | {"data_sha256": _sha256("passages")}
    try:
        card = read_card(adapter_folder(str(ADAPTER)))
    except FileNotFoundError:
        card = {}
    if any(card.get(key) != value for key, value in wanted.items()):
        train(rows, ADAPTER, data_sha256=wanted["data_sha256"])


def write_tuned() -> None:
    """A passage by the tuned generator for each of the first queries, which is all it is shown."""
    queries = read_texts("queries")[:WITH_TUNED]

    def make(writer: Causal, folder: Path) -> Rows:
        asked = [asks_for_passage(row["query"]) for row in queries]
        texts = write_all(writer, asked, TUNED, folder)
        return [row | {"passage": text} for row, text in zip(queries, texts, strict=True)]

    _keep("tuned", make, TUNED, ("passage.txt",), ("queries",), tuned=True)


def write_hyde() -> None:
    """A passage by the base and by the tuned generator for each test query."""
    for dataset, kind, prompt in _TESTED:
        queries = test_queries(dataset)

        def make(
            writer: Causal, folder: Path, queries: Mapping[str, str] = queries, kind: str = kind
        ) -> Rows:
            rows = []
            for name, one in (("base", open_writer()), ("tuned", writer)):
                asked = [asks_for_passage(text, kind) for text in queries.values()]
                texts = write_all(one, asked, TUNED, folder)
                for qid, text in zip(queries, texts, strict=True):
                    rows.append({"qid": qid, "writer": name, "passage": text})
            return rows

        _keep(f"hyde-{dataset}", make, TUNED, (prompt,), tuned=True)


_TESTED = (("scifact", "claim", "passage_claim.txt"), ("bioasq", "question", "passage.txt"))

STAGES: Mapping[str, Callable[[], None]] = {
    "queries": write_queries,
    "passages": write_passages,
    "generator": tune_generator,
    "tuned": write_tuned,
    "hyde": write_hyde,
}
"""What is done, in this order."""


# their parts -------------------------------------------------------------------------------------


def test_queries(dataset: str) -> dict[str, str]:
    """The test queries by id: "scifact", train claims by the hash of their ids; "bioasq", the first
    of the 618 yes/no questions in the order of ``lib.datasets.load_real``."""
    if dataset == "bioasq":
        questions = [q for q in load_real("test") if q.dataset == "bioasq"]
        return {q.qid: q.text for q in questions[:TEST_QUERIES]}
    claims = pd.read_csv(fetch("scifact-claims"), dtype=str, keep_default_na=False)
    texts = dict(zip(claims["id"], claims["claim"], strict=True))
    ordered = sorted(texts, key=lambda qid: sha256_bytes(f"selflearn scifact {qid}".encode()))
    return {qid: texts[qid] for qid in ordered[:TEST_QUERIES]}


def allowed_index(encoder: Encoder) -> DenseIndex:
    """The passages of the unlabelled corpus, to be searched; what is tested cannot be found."""
    index = build_index(corpus_store([CORPUS]), encoder, backend="torch")
    return index.subset(np.isin(index.ids, [passage.pid for passage in unlabelled()]))


def chosen_rows(
    queries: Sequence[Mapping[str, str]],
    passages: Sequence[Sequence[str]],
    encoder: Encoder,
    index: DenseIndex,
) -> Rows:
    """The rows of ``passages.jsonl.gz``: each query with its passages, ranks, and which is chosen.

    An empty passage finds nothing, so its rank is the last.
    """
    pids = [row["pid"] for row in queries]
    asked = encode_small([row["query"] for row in queries], encoder, "query")
    alone = source_ranks(asked, pids, index)
    columns = []
    for texts in zip(*passages, strict=True):
        written = encode_small([text or "nothing" for text in texts], encoder, "article")
        ranks = source_ranks(mean_vectors(asked, written), pids, index)
        columns.append(np.where([bool(text) for text in texts], ranks, NOT_FOUND))
    rows = []
    for i, row in enumerate(queries):
        ranks = [int(column[i]) for column in columns]
        found = {"passages": list(passages[i]), "ranks": ranks, "query_rank": int(alone[i])}
        rows.append({"pid": row["pid"], "query": row["query"], **found, "chosen": best(ranks)})
    return rows


def _keep(
    name: str,
    make: Callable[[Causal, Path], Rows],
    sampling: Sampling,
    prompts: Sequence[str],
    inputs: Sequence[str] = (),
    tuned: bool = False,
) -> None:
    """Write ``<name>.jsonl.gz`` with its manifest, unless it is there and made by the same."""
    adapter = adapter_folder(str(ADAPTER)) if tuned else None
    path = FOLDER / f"{name}.jsonl.gz"
    settings = {
        "model": NAME,
        "adapter": sha256_file(adapter / WEIGHTS) if adapter else "",
        "sampling": asdict(sampling),
        "prompts": {prompt: sha256_file(PROMPTS / prompt) for prompt in prompts},
        "inputs": {other: _sha256(other) for other in inputs},
    }
    manifest = read_manifest(path)
    if manifest and {k: manifest["settings"].get(k) for k in settings} == settings:
        return
    writer = open_writer(adapter)
    rows = make(writer, paths.cache("selflearn"))
    write_jsonl_gz(path, rows)
    write_manifest(path, rows=len(rows), settings=settings | {"writer": writer.name})


def _sha256(name: str) -> str:
    return sha256_file(FOLDER / f"{name}.jsonl.gz")


def main() -> None:
    """Run the stages that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m lib.studies.selflearn.writing")
    parser.add_argument("stages", nargs="*", help=f"of {', '.join(STAGES)}; default: all")
    told = parser.parse_args().stages
    unknown = sorted(set(told) - STAGES.keys())
    if unknown:
        sys.exit(f"error: no stage {unknown[0]!r}; there are: {', '.join(STAGES)}")
    for name, stage in STAGES.items():
        if told and name not in told:
            continue
        print(name, flush=True)
        started = time.monotonic()
        stage()
        print(f"  {(time.monotonic() - started) / 60:.1f} min", flush=True)


if __name__ == "__main__":
    main()
