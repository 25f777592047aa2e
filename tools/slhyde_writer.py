"""Everything that SmolLM2 writes for SL-HyDE, in five stages; may be stopped at any time.

    python -m tools.slhyde_writer [STAGE ...]
    python -m tools.slhyde_writer --loop FILE.toml [STAGE ...]    another loop: tools.slhyde_loop

``data/selflearn/README.md`` says what each file holds. A stage whose file is there, made with the
same settings, is not run again; one that was killed goes on with its first unwritten batch.
Source: Li et al., AutoMIR, arXiv:2410.20050, section 3.3, equations 2 to 4, 7 and 8; the settings
of its sampling are those of its repository, but for what is said here.
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lib.base import paths
from lib.base.files import (
    read_jsonl,
    read_manifest,
    sha256_bytes,
    sha256_file,
    write_jsonl_gz,
    write_manifest,
)
from lib.data.passages import Passage
from lib.embed import Encoder, load_encoder
from lib.index_build import build_index, corpus_store
from lib.llm.prompts import load_prompt
from lib.llm.small_model import NAME
from lib.model_files import CARD, WEIGHTS, adapter_folder, merged, read_card
from lib.search.index import DenseIndex
from lib.search.vectors import encode_small
from lib.studies.slhyde.tasks import (
    ADAPTER,
    CORPUS,
    NOT_FOUND,
    PASSAGES,
    TASKS,
    read_texts,
    sample,
    unlabelled,
)
from tools.causal import BUNDLED, Causal, Sampling, in_batches, plain_causal
from tools.training import Plan, add_names, base_digest, fit

FOLDER = paths.DATA / "selflearn"
PROMPTS = paths.ROOT / "lib" / "studies" / "slhyde" / "prompts"

WITH_PASSAGES, WITH_TUNED, TEST_QUERIES = 200, 1000, 300
"""Queries that the generator is tuned on, that the tuned one writes a passage for, and of each test
set."""

SHOWN_WORDS = 80
"""How much of a document the writer is shown: so small a model goes off topic with more."""

COPIED = 25
"""Words in a row of the document that make a passage a copy."""

BATCH = 24
"""Chats written at a time: more are slower on two cores, fewer as well."""

ASKING = Sampling(24, temperature=0.3, top_p=0.8, repetition_penalty=1.05)
"""Of questions. The paper's temperature is 1.0, its writer 240 times as large; at 1.0 this one asks
about something else more often than not."""

ANSWERING = Sampling(80, temperature=1.2, top_p=0.9, top_k=50)
"""Of passages whose writer sees the document. The paper's presence penalty is left out."""

TUNED = Sampling(64, temperature=0.7, top_p=0.8, repetition_penalty=1.05)
"""Of passages whose writer sees the query alone, for training and for inference."""

PLAN = Plan(
    BUNDLED,
    "chats",
    learning_rate=2e-4,
    batch_size=2,
    max_tokens=1024,
    warmup=0.05,
    schedule="cosine",
    save_steps=20,
    log_steps=5,
)
"""Chosen before the first run. The paper's learning rate, 1e-5, is for 10,000 examples: after the
100 steps of this run nothing would have moved."""

Rows = list[dict[str, Any]]
Chat = list[dict[str, str]]


# what is asked -----------------------------------------------------------------------------------


def asks_for_query(document: Passage) -> Chat:
    """Equation 2: one question that the document answers, after one example drawn by its id.

    The examples were written for this project, and none is of a set that is measured on. (The
    paper's are ordered by its own test sets.)
    """
    examples = list(read_jsonl(PROMPTS / "examples.jsonl"))
    example = random.Random(document.pid).choice(examples)
    return load_prompt("query", PROMPTS).messages(
        title=document.title,
        text=_shown(document),
        example_title=example["title"],
        example_text=example["text"],
        example_question=example["question"],
    )


def asks_for_passage(query: str, prompt: str = "passage") -> Chat:
    """Equation 7: a passage for a query alone; the prompt is "passage_claim" for a claim."""
    return load_prompt(prompt, PROMPTS).messages(query=query)


def one_question(reply: str, title: str) -> str:
    """What was asked, up to the first question mark; an empty reply is the document's title."""
    asked = re.match(r"[^?？]*[?？]?", reply)[0]
    return " ".join(asked.split()) or title


def repeats(passage: str, document: str, least: int = COPIED) -> bool:
    """Whether a passage has ``least`` or more words in a row of the document it was written from.

    Case and punctuation do not count.
    """
    return not runs_of(passage, least).isdisjoint(runs_of(document, least))


def runs_of(text: str, length: int) -> set[tuple[str, ...]]:
    """All ``length`` words in a row of a text, whatever their case and punctuation."""
    words = re.findall(r"\w+", text.casefold())
    return {tuple(words[i : i + length]) for i in range(len(words) - length + 1)}


def _shown(document: Passage) -> str:
    return " ".join(document.text.split()[:SHOWN_WORDS])


# who writes --------------------------------------------------------------------------------------


def open_writer(adapter: Path | None = None) -> Causal:
    """SmolLM2, with an adapter if there is one.

    In bfloat16 where the processor multiplies it: it writes 1.6 times as fast. The name says so,
    and has 16 digits of the hash of each file of weights: what another model or adapter of the same
    name wrote is never taken for this one's.
    """
    import torch

    model, tokenizer = plain_causal(PLAN.base)
    label = f"{PLAN.base} {base_digest(PLAN)}"
    if adapter:
        model = merged(model, adapter)
        label += f"+{adapter.name} {sha256_file(adapter / WEIGHTS)[:16]}"
    able = torch.cpu.get_capabilities()
    precision = torch.bfloat16 if able.get("avx512_bf16") or able.get("amx_bf16") else torch.float32
    name = f"{label}, {str(precision).removeprefix('torch.')}"
    return Causal(name, model.to(precision), tokenizer)


def write_all(
    writer: Causal,
    asked: Sequence[Chat],
    sampling: Sampling,
    seed: int = 0,
    folder: Path | None = None,
    batch: int = BATCH,
) -> list[str]:
    """One text for each chat, in their order; finished batches are kept in a folder, or the
    cache."""
    return in_batches(
        f"{writer.name}, {sampling}, seed {seed}",
        asked,
        [len(writer.prompt_tokens(chat)) for chat in asked],
        lambda chats: writer.write(chats, sampling, seed),
        folder or paths.cache("selflearn"),
        batch,
    )


# the stages --------------------------------------------------------------------------------------


def write_queries() -> None:
    """One question for each document of the sample."""

    def make(writer: Causal) -> Rows:
        documents = sample(unlabelled())
        texts = write_all(writer, [asks_for_query(d) for d in documents], ASKING)
        return [
            {"pid": document.pid, "query": one_question(text, document.title)}
            for document, text in zip(documents, texts, strict=True)
        ]

    _keep("queries", make, ASKING, ("query.txt", "examples.jsonl"))


def write_passages() -> None:
    """``PASSAGES`` passages for each of the first queries, whose writer sees the document (equation
    3), their ranks, and the one chosen."""

    def make(writer: Causal) -> Rows:
        queries = read_texts("queries")[:WITH_PASSAGES]
        by_id = {document.pid: document for document in unlabelled()}
        documents = [by_id[row["pid"]] for row in queries]
        prompt = load_prompt("passage_from_document", PROMPTS)
        asked = []
        for row, document in zip(queries, documents, strict=True):
            values = {"query": row["query"], "title": document.title, "text": _shown(document)}
            asked.append(prompt.messages(**values))
        drawn = [write_all(writer, asked, ANSWERING, seed) for seed in range(PASSAGES)]
        passages = []
        for document, *texts in zip(documents, *drawn, strict=True):
            # A passage that copies its document counts as empty.
            passages.append(["" if repeats(text, document.text) else text for text in texts])
        encoder = load_encoder("minilm")
        index = build_index(corpus_store([CORPUS]), encoder, backend="torch")
        inside = index.subset(np.isin(index.ids, list(by_id)))
        return chosen_rows(queries, passages, encoder, inside)

    _keep("passages", make, ANSWERING, ("passage_from_document.txt",), ("queries",))


def tune_generator() -> None:
    """Equation 4: SmolLM2 learns to write each row's chosen passage for its query.

    A row whose passages are all empty teaches nothing. Nothing is tuned where there is an adapter
    of these passages.
    """
    data = _sha256("passages")
    if (ADAPTER / CARD).exists() and read_card(ADAPTER)["data_sha256"] == data:
        return
    chosen = [(row["query"], row["passages"][row["chosen"]]) for row in read_texts("passages")]
    examples = {
        "messages": [asks_for_passage(query) for query, reply in chosen if reply],
        "reply": [reply for _, reply in chosen if reply],
    }
    fit(PLAN, examples, ADAPTER, data="data/selflearn/passages.jsonl.gz", data_sha256=data)


def write_tuned() -> None:
    """A passage by the tuned generator for each of the first queries, which is all it is shown."""

    def make(writer: Causal) -> Rows:
        queries = read_texts("queries")[:WITH_TUNED]
        texts = write_all(writer, [asks_for_passage(row["query"]) for row in queries], TUNED)
        return [row | {"passage": text} for row, text in zip(queries, texts, strict=True)]

    _keep("tuned", make, TUNED, ("passage.txt",), ("queries",), tuned=True)


def write_hyde() -> None:
    """A passage by the base and by the tuned generator for each test query."""

    def make(dataset: str, prompt: str, tuned: Causal) -> Rows:
        queries = test_queries(dataset)
        asked = [asks_for_passage(text, prompt) for text in queries.values()]
        rows = []
        for name, writer in (("base", open_writer()), ("tuned", tuned)):
            texts = write_all(writer, asked, TUNED)
            for qid, text in zip(queries, texts, strict=True):
                rows.append({"qid": qid, "writer": name, "passage": text})
        return rows

    for dataset, prompt in (("scifact", "passage_claim"), ("bioasq", "passage")):
        made = partial(make, dataset, prompt)
        _keep(f"hyde-{dataset}", made, TUNED, (f"{prompt}.txt",), tuned=True)


STAGES: Mapping[str, Callable[[], None]] = {
    "queries": write_queries,
    "passages": write_passages,
    "generator": tune_generator,
    "tuned": write_tuned,
    "hyde": write_hyde,
}
"""What is done, in this order."""


def test_queries(dataset: str) -> dict[str, str]:
    """The test queries by id: "scifact", train claims by the hash of their ids; "bioasq", the first
    of the 618 yes/no questions."""
    texts = TASKS[dataset]().queries
    ordered = list(texts)
    if dataset == "scifact":
        ordered.sort(key=lambda qid: sha256_bytes(f"selflearn scifact {qid}".encode()))
    return {qid: texts[qid] for qid in ordered[:TEST_QUERIES]}


def chosen_rows(
    queries: Sequence[Mapping[str, str]],
    passages: Sequence[Sequence[str]],
    encoder: Encoder,
    index: DenseIndex,
) -> Rows:
    """The rows of ``passages.jsonl.gz``: each query with its passages, ranks, and which is chosen.

    A rank is that at which the query's own document is found, from 1, or ``NOT_FOUND``. Query and
    passage search together as the mean of their vectors (equation 8), not brought to length 1
    again; chosen is the first with the smallest rank. An empty passage finds nothing.
    """
    own = np.array([row["pid"] for row in queries])[:, None]

    def ranks_of(vectors: np.ndarray) -> np.ndarray:
        hits = index.search(vectors, NOT_FOUND).ids == own
        return np.where(hits.any(axis=1), hits.argmax(axis=1) + 1, NOT_FOUND)

    asked = encode_small([row["query"] for row in queries], encoder, "query")
    alone = ranks_of(asked)
    columns = []
    for texts in zip(*passages, strict=True):
        written = encode_small([text or "nothing" for text in texts], encoder, "article")
        is_empty = np.array([not text for text in texts])
        columns.append(np.where(is_empty, NOT_FOUND, ranks_of((asked + written) / 2)))
    together = np.column_stack(columns)
    rows = []
    for row, texts, ranks, rank in zip(queries, passages, together, alone, strict=True):
        made = {"pid": row["pid"], "query": row["query"], "passages": list(texts)}
        made |= {"ranks": ranks.tolist(), "query_rank": int(rank), "chosen": int(ranks.argmin())}
        rows.append(made)
    return rows


def _keep(
    name: str,
    make: Callable[[Causal], Rows],
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
    rows = make(writer)
    write_jsonl_gz(path, rows)
    write_manifest(path, rows=len(rows), settings=settings | {"writer": writer.name})


def _sha256(name: str) -> str:
    return sha256_file(FOLDER / f"{name}.jsonl.gz")


def main() -> None:
    """Run the stages that are named, or all; with ``--loop`` those of that file's loop."""
    parser = argparse.ArgumentParser(prog="python -m tools.slhyde_writer")
    add_names(parser, "stages", STAGES)
    parser.add_argument("--loop", type=Path, metavar="FILE.toml")
    given = parser.parse_args()
    if given.loop:
        from tools.slhyde_loop import command, write_loop

        return command(write_loop, given.loop, given.stages)
    for name, stage in STAGES.items():
        if name in given.stages or "all" in given.stages:
            print(name, flush=True)
            stage()


if __name__ == "__main__":
    main()
