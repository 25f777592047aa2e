"""SL-HyDE's self-learning on any corpus, with any writers and any retriever, by a file of settings.

    python -m tools.slhyde_writer --loop docs/slhyde-paper.toml [STAGE ...]
    python -m tools.slhyde_retriever --loop docs/slhyde-paper.toml

A language model asks a question of each document; another answers it, and is tuned on the answers
that find their documents best; the retriever is tuned on the questions. ``docs/slhyde-paper.toml``
has the paper's values, ``Loop`` says what each setting is. Everything lies in the folder ``out``:
the texts of each stage, ``generator`` (the writer's adapter), ``retriever`` (an adapter, or the
whole model) and ``encoder``, a model of sentence-transformers that is the tuned retriever, with its
prompts. A stage whose file is there, made with the same settings, is not run again; one that was
killed goes on. ``slhyde_laptop.toml`` is the loop of what this project ships, whose retrievers
``slhyde_retriever`` trains beside their controls. Source: Li et al., AutoMIR, arXiv:2410.20050,
sections 3.3 and 5.1.
"""

from __future__ import annotations

import random
import re
import shutil
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from lib.base import paths
from lib.base.files import (
    canonical_json,
    read_jsonl,
    read_manifest,
    sha256_bytes,
    sha256_file,
    write_jsonl_gz,
    write_manifest,
)
from lib.base.parameters import first_error
from lib.data.passages import Passage
from lib.embed import Encoder, load_encoder
from lib.forms import read_passages
from lib.llm.prompts import Prompt, load_prompt
from lib.model_files import CARD, WEIGHTS, base_folder, merged, read_card
from lib.search.choose import open_dense
from lib.search.index import DenseIndex
from lib.search.vectors import encode_cached, encode_small
from lib.studies.slhyde.tasks import CORPUS, NOT_FOUND, unlabelled
from tools.causal import BUNDLED, Causal, Penalised, Sampling, in_batches, plain_causal
from tools.training import WHOLE, Plan, base_digest, fit, multiplies_bf16, write_card

PROMPTS = paths.ROOT / "lib" / "studies" / "slhyde" / "prompts"

Rows = list[dict[str, Any]]
Chat = list[dict[str, str]]

_STRICT = ConfigDict(extra="forbid", frozen=True)


class Drawn(BaseModel):
    """How texts are drawn: as ``tools.causal.Penalised``, ``batch`` chats at a time; for how many
    queries, the ``first`` (0: all)."""

    model_config = _STRICT
    temperature: float
    top_p: float = 1.0
    top_k: int = 0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    max_tokens: int = 512
    batch: int = Field(24, ge=1)
    first: int = Field(0, ge=0)

    @property
    def sampling(self) -> Sampling:
        """As a writer takes it; draws depend on which class it is."""
        kind = Penalised if self.presence_penalty else Sampling
        return kind(**self.model_dump(include={*kind.__dataclass_fields__}))


class Queries(Drawn):
    """``model``: "bundled" (SmolLM2), or a causal model of the hub or a folder."""

    model: str


class Passages(Queries):
    """``each``: passages for a query, the paper's L. ``copied``: words in a row of its document
    that make a passage count as empty; 0, as in the paper: copies are let pass."""

    each: int = Field(5, ge=1)
    copied: int = Field(0, ge=0)


class Tuning(BaseModel):
    """What a training has of ``tools.training.Plan``; LoRA's alpha is twice its ``rank``."""

    model_config = _STRICT
    learning_rate: float
    rank: int = Field(8, ge=1)
    epochs: float = 1
    batch_size: int = Field(2, ge=1)
    max_tokens: int = 1024
    dropout: float = 0.0
    warmup: float = 0.05
    schedule: str = "linear"
    save_steps: int = 50
    log_steps: int = 5

    def plan(self, base: str, reads: Any, seed: int) -> Plan:
        """The whole plan."""
        return Plan(base, reads, seed=seed, **self.model_dump(include={*Tuning.model_fields}))


class Retrieving(Tuning):
    """The retriever, and what it learns from.

    ``base``: "minilm", "mpnet", or a model of the hub or a folder. ``rank`` 0 trains all weights.
    The prompts stand before every query and passage, in training and search. Of each query's
    ``negatives`` best results of the base, ``first_rank`` to ``last_rank``, found by the query
    alone, so many are drawn. ``with_passage``: the mean of query and written passage stands for the
    query, as the paper's text has it; its released code takes the query alone. ``dropout`` above 0
    leaves the base's own. ``at_once``: texts that are held in memory together, however many are
    compared in a batch (the same loss; 0: all).
    """

    base: str
    rank: int = Field(8, ge=0)
    query_prompt: str = ""
    passage_prompt: str = ""
    negatives: int = Field(7, ge=1)
    first_rank: int = Field(5, ge=1)
    last_rank: int = 100
    with_passage: bool = False
    at_once: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _fits(self) -> Retrieving:
        if self.last_rank < self.first_rank + self.negatives:
            raise ValueError(
                f"{self.negatives} negatives cannot be drawn from ranks {self.first_rank} to "
                f"{self.last_rank}"
            )
        if self.with_passage and self.dropout:
            raise ValueError("with_passage trains without dropout: set dropout = 0")
        if self.with_passage and self.at_once:
            raise ValueError("at_once is for queries alone: with_passage needs all texts together")
        return self


class Loop(BaseModel):
    """The settings of one loop.

    ``corpus``: a path that ``lib.forms`` reads, or "medquad" (without what benchmarks test).
    ``documents`` of ``least_characters`` or more are drawn from it. ``pool``: where ranks are
    counted and negatives found, among these ("sample", as in the paper) or in the whole "corpus".
    ``prompts``: a folder with ``query.txt``, ``passage.txt``, ``passage_from_document.txt`` and
    ``examples.jsonl``. ``shown_tokens``: how much of a document a writer is shown; or so
    many ``shown_words``.
    """

    model_config = _STRICT
    corpus: str
    documents: int = Field(10_000, ge=1)
    least_characters: int = 0
    pool: str = Field("sample", pattern="^(sample|corpus)$")
    prompts: Path = PROMPTS
    shown_tokens: int = Field(1024, ge=1)
    shown_words: int = Field(0, ge=0)
    out: Path
    seed: int = 0
    queries: Queries
    passages: Passages
    tuned: Drawn
    generator: Tuning
    retriever: Retrieving


@dataclass(frozen=True)
class Document:
    """A document, and ``text``, what a retriever reads of it: title and text as one."""

    passage: Passage
    text: str


class Run:
    """A loop at work in its folder; ``file`` is named in the commands that errors give.

    ValueError for settings that are wrong, by their name.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        try:
            given = tomllib.loads(paths.existing(file).read_text(encoding="utf-8"))
            self.loop = Loop.model_validate(given)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"{file}: {error}") from None
        except ValidationError as error:
            raise ValueError(f"{file}: {first_error(error)}") from None
        self.out = paths.ROOT / self.loop.out
        self.generator, self.work = self.out / "generator", self.out / "batches"
        self.prompts = paths.existing(self.loop.prompts)
        self.out.mkdir(parents=True, exist_ok=True)

    # the corpus

    @cached_property
    def corpus(self) -> dict[str, Document]:
        """Every document that may be learnt from, by id; of one text the first alone."""
        if self.loop.corpus == CORPUS:
            passages = unlabelled()
        else:
            passages, report = read_passages(self.loop.corpus)
            print(report, file=sys.stderr)
        first: dict[str, Document] = {}
        for passage in passages:
            text = f"{passage.title} {passage.text}".strip()
            first.setdefault(text, Document(passage, text))
        return {document.passage.pid: document for document in first.values()}

    @cached_property
    def sample(self) -> dict[str, Document]:
        """The documents that are asked about, in the order of the hashes of their ids."""

        def order(pid: str) -> str:
            return sha256_bytes(f"selflearn {pid}".encode())

        least, wanted = self.loop.least_characters, self.loop.documents
        long = [pid for pid, one in self.corpus.items() if len(one.text) >= least]
        if len(long) < wanted:
            raise ValueError(
                f"{self.loop.corpus} has {len(long)} different documents of {least} characters, "
                f"{self.file} asks for {wanted}. Next: documents = {len(long)}"
            )
        return {pid: self.corpus[pid] for pid in sorted(long, key=order)[:wanted]}

    @cached_property
    def pool(self) -> dict[str, Document]:
        """Where ranks are counted and negatives found."""
        return self.sample if self.loop.pool == "sample" else self.corpus

    def base(self) -> Encoder:
        """The retriever before it is tuned, with the loop's prompts."""
        how = self.loop.retriever
        return load_encoder(
            how.base if how.base in ("minilm", "mpnet") else f"st:{how.base}",
            query_prompt=how.query_prompt,
            passage_prompt=how.passage_prompt,
            max_tokens=how.max_tokens,
        )

    def searched(self, encoder: Encoder) -> DenseIndex:
        """The pool, by that encoder; its vectors are kept in the cache."""
        texts = [document.text for document in self.pool.values()]
        shards = encode_cached(texts, encoder, "article", label=self.file.stem, progress=False)
        return open_dense(shards, list(self.pool))

    # texts and their files

    def rows(self, name: str) -> Rows:
        """The rows of a stage's file; FileNotFoundError, with the command, where there is none."""
        return list(read_jsonl(self._there(name)))

    def hash_of(self, name: str) -> str:
        """The hash of a stage's file; FileNotFoundError as for ``rows``."""
        return sha256_file(self._there(name))

    def _there(self, name: str) -> Path:
        path = self._file(name)
        if read_manifest(path) is None:
            raise FileNotFoundError(
                f"{paths.shown(path)} is missing or not whole; run: "
                f"python -m tools.slhyde_writer --loop {self.file} {name}"
            )
        return path

    def keep(self, name: str, make: Callable[[], Rows], **behind: Any) -> None:
        """Write a stage's file, unless it is there and was made by the same."""
        path = self._file(name)
        told = [[pid, document.text] for pid, document in self.sample.items()]
        behind["documents"] = sha256_bytes(canonical_json(told).encode())
        behind["shown"] = [self.loop.shown_tokens, self.loop.shown_words]
        manifest = read_manifest(path)
        if manifest and behind.items() <= manifest["settings"].items():
            return
        rows = make()
        write_jsonl_gz(path, rows)
        write_manifest(path, rows=len(rows), settings=behind)

    def write(self, writer: Causal, asked: Sequence[Chat], how: Drawn, seed: int = 0) -> list[str]:
        """One text a chat; finished batches are kept."""
        self.work.mkdir(exist_ok=True)
        sampling, seed = how.sampling, self.loop.seed + seed
        return in_batches(
            f"{writer.name}, {sampling}, seed {seed}",
            asked,
            [len(writer.prompt_tokens(chat)) for chat in asked],
            lambda chats: writer.write(chats, sampling, seed),
            self.work,
            how.batch,
        )

    def asks(self, prompt: str, **values: str) -> Chat:
        """A prompt of the loop's folder with those of the values that it names.

        ValueError where it names a title, and no document of the sample has one.
        """
        template = load_prompt(prompt, self.prompts)
        given = {name: value for name, value in values.items() if names(template, name)}
        titles = (document.passage.title for document in self.sample.values())
        if given.get("title") == "" and not any(titles):
            raise ValueError(
                f"{self.prompts / prompt}.txt names title, and no document has one. Next: prompts "
                f"without it, in a folder that {self.file} names"
            )
        return template.messages(**given)

    def prompt_hashes(self, *files: str) -> dict[str, str]:
        """The hash of each of these files of prompts."""
        return {name: sha256_file(self.prompts / name) for name in files}

    def shown(self, document: Document, writer: Causal) -> dict[str, str]:
        """Title and text of a document as a writer is shown them."""
        text = document.passage.text
        tokens = writer.text_tokens(text)[: self.loop.shown_tokens]
        if self.loop.shown_words:
            text = " ".join(text.split()[: self.loop.shown_words])
        elif len(tokens) == self.loop.shown_tokens:
            text = writer.tokenizer.decode(tokens)
        return {"title": document.passage.title, "text": text}

    def _file(self, name: str) -> Path:
        return self.out / f"{name}.jsonl.gz"


def names(prompt: Prompt, value: str) -> bool:
    """Whether a prompt has a place for a value of that name."""
    return any(f"{{{value}}}" in text for text in (prompt.system, *prompt.examples, prompt.user))


def model_called(name: str) -> str:
    """What "bundled" stands for; any other name as it is."""
    return BUNDLED if name == "bundled" else name


def open_writer(name: str, adapter: Path | None = None) -> Causal:
    """A causal model, on a GPU where there is one; its name has the hashes of its files.

    In bfloat16 where that is multiplied: a processor then writes 1.6 times as fast. On a GPU an
    adapter stays beside the weights: added to weights of 16 bits, a small change would be lost.
    """
    import torch
    from peft import PeftModel

    on_card = torch.cuda.is_available()
    name, precision = model_called(name), "bfloat16" if multiplies_bf16() else "float32"
    model, tokenizer = plain_causal(name, precision if on_card else "float32")
    label = f"{name} {base_digest(Plan(name, 'chats'))}"
    if adapter:
        beside = PeftModel.from_pretrained if on_card else merged
        model = beside(model, adapter)
        label += f"+{adapter.name} {sha256_file(adapter / WEIGHTS)[:16]}"
    model = model.eval().to("cuda" if on_card else "cpu", getattr(torch, precision))
    return Causal(f"{label}, {precision}", model, tokenizer)


# what is kept of replies --------------------------------------------------------------------------


def one_question(reply: str, title: str) -> str:
    """What was asked, up to the first question mark; an empty reply is the document's title."""
    asked = re.match(r"[^?？]*[?？]?", reply)[0]
    return " ".join(asked.split()) or title


def repeats(passage: str, document: str, least: int) -> bool:
    """Whether a passage has ``least`` or more words in a row of the document it was written from.

    Case and punctuation do not count.
    """
    return not runs_of(passage, least).isdisjoint(runs_of(document, least))


def runs_of(text: str, length: int) -> set[tuple[str, ...]]:
    """All ``length`` words in a row of a text, whatever their case and punctuation."""
    words = re.findall(r"\w+", text.casefold())
    return {tuple(words[i : i + length]) for i in range(len(words) - length + 1)}


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


# the writer's stages ------------------------------------------------------------------------------


def write_queries(run: Run) -> None:
    """A question for each document, after one example that its id draws (equation 2)."""
    how = run.loop.queries
    examples = list(read_jsonl(run.prompts / "examples.jsonl"))

    def make() -> Rows:
        writer = open_writer(how.model)
        asked = []
        for pid, document in run.sample.items():
            drawn = random.Random(pid).choice(examples)
            example = {f"example_{name}": drawn[name] for name in ("title", "text", "question")}
            asked.append(run.asks("query", **run.shown(document, writer), **example))
        texts = run.write(writer, asked, how)
        return [
            {"pid": pid, "query": one_question(text, document.passage.title or document.text[:80])}
            for (pid, document), text in zip(run.sample.items(), texts, strict=True)
        ]

    prompts = run.prompt_hashes("query.txt", "examples.jsonl")
    run.keep("queries", make, asked=how.model_dump(), prompts=prompts, seed=run.loop.seed)


def write_passages(run: Run) -> None:
    """Passages for each query, whose writer sees the document (equation 3), and the one chosen."""
    how = run.loop.passages

    def make() -> Rows:
        queries = run.rows("queries")[: how.first or None]
        documents = [run.sample[row["pid"]] for row in queries]
        writer = open_writer(how.model)
        asked = [
            run.asks("passage_from_document", query=row["query"], **run.shown(document, writer))
            for row, document in zip(queries, documents, strict=True)
        ]
        drawn = [run.write(writer, asked, how, number) for number in range(how.each)]
        passages = []
        for document, *texts in zip(documents, *drawn, strict=True):
            copies = [bool(how.copied) and repeats(t, document.text, how.copied) for t in texts]
            passages.append(["" if copy else t for copy, t in zip(copies, texts, strict=True)])
        del writer
        encoder = run.base()
        return chosen_rows(queries, passages, encoder, run.searched(encoder))

    how_searched = run.loop.retriever.model_dump(
        include={"base", "query_prompt", "passage_prompt", "max_tokens"}
    )
    behind = {
        "asked": how.model_dump(),
        "prompts": run.prompt_hashes("passage_from_document.txt"),
        "inputs": run.hash_of("queries"),
        "searched": how_searched | {"pool": run.loop.pool},
        "seed": run.loop.seed,
    }
    run.keep("passages", make, **behind)


def tune_generator(run: Run) -> None:
    """The writer of passages learns each query's chosen passage, without the document (equation
    4). A query whose passages are all empty teaches nothing."""
    rows = run.rows("passages")
    plan = run.loop.generator.plan(model_called(run.loop.passages.model), "chats", run.loop.seed)
    told = {"data_sha256": run.hash_of("passages")}
    told |= {"prompts_sha256": run.prompt_hashes("passage.txt")["passage.txt"]}
    if _trained(run.generator, asdict(plan) | told):
        return
    chosen = [(row["query"], row["passages"][row["chosen"]]) for row in rows]
    examples = {
        "messages": [run.asks("passage", query=query) for query, reply in chosen if reply],
        "reply": [reply for _, reply in chosen if reply],
    }
    fit(plan, examples, run.generator, work=run.work, data=str(run.loop.corpus), **told)


def write_tuned(run: Run) -> None:
    """A passage by the tuned generator for each query, which is all it is shown (equation 7)."""
    how = run.loop.tuned
    adapter = run.generator
    if not (adapter / CARD).exists():
        raise FileNotFoundError(
            f"{adapter} has no adapter; run: "
            f"python -m tools.slhyde_writer --loop {run.file} generator"
        )

    def make() -> Rows:
        queries = run.rows("queries")[: how.first or None]
        asked = [run.asks("passage", query=row["query"]) for row in queries]
        texts = run.write(open_writer(run.loop.passages.model, adapter), asked, how)
        return [row | {"passage": text} for row, text in zip(queries, texts, strict=True)]

    behind = {
        "asked": how.model_dump(),
        "prompts": run.prompt_hashes("passage.txt"),
        "inputs": run.hash_of("queries"),
        "adapter": sha256_file(adapter / WEIGHTS),
        "seed": run.loop.seed,
    }
    run.keep("tuned", make, **behind)


STAGES: Mapping[str, Callable[[Run], None]] = {
    "queries": write_queries,
    "passages": write_passages,
    "generator": tune_generator,
    "tuned": write_tuned,
}
"""What a writer does, in this order."""


def write_stages(
    run: Run, stages: Mapping[str, Callable[[Run], None]], named: Sequence[str]
) -> None:
    """Those of the stages that are named, or all. ValueError where none of them is the loop's."""
    chosen = [name for name in stages if name in named or "all" in named]
    if not chosen:
        raise ValueError(f"a loop's stages are {', '.join(stages)}: lib.beir searches and measures")
    for name in chosen:
        print(name, flush=True)
        stages[name](run)


def command(work: Callable[..., Any], *given: Any) -> Any:
    """``work`` as a command runs it: what is wrong with settings or files is told in one line."""
    try:
        return work(*given)
    except (ValueError, FileNotFoundError) as problem:
        sys.exit(f"error: {problem}")


# the retriever ------------------------------------------------------------------------------------


def examples_of(run: Run) -> dict[str, list[str]]:
    """The columns that ``fit`` takes, a row a query: ``anchor``, ``written`` where passages stand
    beside queries, ``positive``, ``negative_1`` and so on; each after its prompt.

    ValueError where so many negatives were not found.
    """
    from tools.slhyde_retriever import ranked_by

    how = run.loop.retriever
    queries = {row["pid"]: row["query"] for row in run.rows("queries")}
    encoder = run.base()
    ranked = ranked_by(queries, run.searched(encoder), encoder, min(how.last_rank, len(run.pool)))
    columns: list[list[str]] = [[] for _ in range(how.negatives)]
    for pid in queries:
        others = [other for other in ranked[pid][how.first_rank - 1 :] if other != pid]
        if len(others) < how.negatives:
            raise ValueError(
                f"{len(others)} documents stand at ranks {how.first_rank} to {how.last_rank} of a "
                f"query, {how.negatives} negatives are wanted. Next: fewer, or more documents"
            )
        draw = random.Random(f"negatives {run.loop.seed} {pid}").sample(others, how.negatives)
        for column, other in zip(columns, draw, strict=True):
            column.append(how.passage_prompt + run.pool[other].text)
    made = {"anchor": [how.query_prompt + query for query in queries.values()]}
    if how.with_passage:
        written = {row["pid"]: row["passage"].strip() for row in run.rows("tuned")}
        # Where the generator wrote nothing, the query stands alone.
        made["written"] = [
            how.passage_prompt + written[pid] if written[pid] else how.query_prompt + query
            for pid, query in queries.items()
        ]
    made["positive"] = [how.passage_prompt + run.sample[pid].text for pid in queries]
    return made | {f"negative_{i}": column for i, column in enumerate(columns, 1)}


def train_loop(file: Path) -> Path:
    """Tune the retriever; the folder of the whole encoder, which ``lib.beir`` reads as "st:..."."""
    from tools.slhyde_retriever import MeanAnchorLoss, query_alone

    run = Run(file)
    how = run.loop.retriever
    plan = how.plan(how.base, "texts", run.loop.seed)

    def alone(model: Any) -> Any:
        return query_alone(model, how.dropout > 0, how.at_once)

    examples = examples_of(run)
    told = {"data_sha256": sha256_bytes(canonical_json(examples).encode())}
    out = run.out / "retriever"
    if not _trained(out, asdict(plan) | told):
        about = {"data": str(run.loop.corpus), "negatives": f"{how.negatives} mined"}
        loss = MeanAnchorLoss if how.with_passage else alone
        fit(plan, examples, out, loss, run.out / "train", **about, **told)
    return _whole_encoder(run, out)


def _whole_encoder(run: Run, trained: Path) -> Path:
    """The tuned retriever with its prompts, as a folder of sentence-transformers."""
    from sentence_transformers import SentenceTransformer

    how, out = run.loop.retriever, run.out / "encoder"
    card = read_card(trained)
    if _trained(out, {"from_sha256": card["sha256"]}):
        return out
    model = SentenceTransformer(str(base_folder(how.base) if how.rank else trained), device="cpu")
    if how.rank:
        model[0].model = merged(model[0].model, trained)
    model.max_seq_length = how.max_tokens
    model.prompts = {"query": how.query_prompt, "document": how.passage_prompt}
    shutil.rmtree(out, ignore_errors=True)
    model.save_pretrained(str(out), create_model_card=False)
    told = {"base": how.base, "data": card["data"], "from_sha256": card["sha256"]}
    write_card(told, out, WHOLE)
    return out


def _trained(out: Path, behind: Mapping[str, Any]) -> bool:
    """Whether a training with these settings has ended: its card is written last."""
    if not (out / CARD).exists():
        return False
    card = read_card(out)
    plain = {key: list(v) if isinstance(v, tuple) else v for key, v in behind.items()}
    # What a card does not say is not compared: it may be older than that setting.
    return {key: card.get(key, value) for key, value in plain.items()} == plain
