"""SL-HyDE's generator: what it is asked, how it is tuned, and how it is opened.

Source: Li et al., AutoMIR, arXiv:2410.20050, section 3.3, equations 2 to 4; the settings of its
sampling are those of its repository, but for what is said here.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from lib.base.files import read_jsonl, sha256_file
from lib.data.passages import Passage
from lib.llm.causal import Causal, Sampling, plain_causal
from lib.llm.prompts import load_prompt
from lib.model_files import ADAPTERS, WEIGHTS, merged
from lib.train.causal import CausalPlan, Example, causal_digest, fit_causal

PROMPTS = Path(__file__).parent / "prompts"
ADAPTER = ADAPTERS / "slhyde-generator"

PASSAGES = 3
"""L, the passages written for a query to choose from; the paper's code writes 5."""

SHOWN_WORDS = 80
"""How much of a document the writer is shown: a model this small loses its thread in more."""

ASKING = Sampling(24, temperature=0.3, top_p=0.8, repetition_penalty=1.05)
"""Of questions. The paper's temperature is 1.0, its writer 240 times as large; at 1.0 this one asks
about something else more often than not."""

ANSWERING = Sampling(80, temperature=1.2, top_p=0.9, top_k=50)
"""Of passages whose writer sees the document. The paper's presence penalty is left out."""

TUNED = Sampling(64, temperature=0.7, top_p=0.8, repetition_penalty=1.05)
"""Of passages whose writer sees the query alone, for training and for inference."""

PLAN = CausalPlan()
"""Chosen before the first run. The paper's learning rate, 1e-5, is for 10,000 examples: after the
100 steps of this run nothing would have moved."""

Chat = list[dict[str, str]]


def asks_for_query(document: Passage) -> Chat:
    """Equation 2: one question that the document answers, after one example drawn by its id."""
    example = random.Random(document.pid).choice(bank())
    return load_prompt("query", PROMPTS).messages(
        title=document.title,
        text=_shown(document),
        example_title=example["title"],
        example_text=example["text"],
        example_question=example["question"],
    )


def asks_with_document(query: str, document: Passage) -> Chat:
    """Equation 3: a passage that answers the query, with the document at hand."""
    prompt = load_prompt("passage_from_document", PROMPTS)
    return prompt.messages(query=query, title=document.title, text=_shown(document))


def asks_for_passage(query: str, kind: str = "question") -> Chat:
    """Equation 7: a passage for a query alone, which is a "question" or a "claim"."""
    prompt = load_prompt({"question": "passage", "claim": "passage_claim"}[kind], PROMPTS)
    return prompt.messages(query=query)


@cache
def bank() -> tuple[dict[str, str], ...]:
    """The examples that questions are asked after: ``title, text, question``.

    They were written for this project, and none is of a set that is measured on. (The paper's bank
    is ordered by its own test sets.)
    """
    return tuple(read_jsonl(PROMPTS / "examples.jsonl"))


def one_question(reply: str, title: str) -> str:
    """What was asked, up to the first question mark; an empty reply is the document's title."""
    asked, mark, _ = reply.partition("?")
    return " ".join((asked + mark).split()) or title


def open_writer(adapter: Path | None = None) -> Causal:
    """SmolLM2, with an adapter if there is one.

    In bfloat16 where the processor multiplies it: it writes 1.6 times as fast. The name says so,
    and has 16 digits of the hash of each file of weights: what another model or adapter of the same
    name wrote is never taken for this one's (``lib.studies.selflearn.batches``).
    """
    import torch

    model, tokenizer = plain_causal(PLAN.base)
    if adapter:
        model = merged(model, adapter)
    able = torch.cpu.get_capabilities()
    precision = torch.bfloat16 if able.get("avx512_bf16") or able.get("amx_bf16") else torch.float32
    label = f"{PLAN.base} {causal_digest(PLAN.base)}"
    if adapter:
        label += f"+{adapter.name} {sha256_file(adapter / WEIGHTS)[:16]}"
    name = f"{label}, {str(precision).removeprefix('torch.')}"
    return Causal(name, model.to(precision), tokenizer)


def train(
    rows: Sequence[Mapping[str, Any]], out: Path = ADAPTER, **trained_on: Any
) -> dict[str, Any]:
    """Equation 4: tune SmolLM2 to write each row's chosen passage for its query; gives the card.

    ``rows`` are those of ``data/selflearn/passages.jsonl.gz``. A row whose passages are all empty
    teaches nothing and is left out. ``trained_on`` is added to the card.
    """
    examples = []
    for row in rows:
        reply = row["passages"][row["chosen"]]
        if reply:
            examples.append(Example(tuple(asks_for_passage(row["query"])), reply))
    return fit_causal(PLAN, examples, out, data="data/selflearn/passages.jsonl.gz", **trained_on)


def _shown(document: Passage) -> str:
    return " ".join(document.text.split()[:SHOWN_WORDS])
