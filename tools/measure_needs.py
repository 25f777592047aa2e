"""Counts the prompts of the paper's questions, and times this machine, for ``lib.cost``.

``python -m tools.measure_needs`` needs the questions (or CHR_MIRROR), and about ten minutes.
"""

from __future__ import annotations

import json
import time
import tracemalloc
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from lib.base.downloads import load_registry
from lib.base.provenance import write_result
from lib.cost import PASSAGE
from lib.data.medrag import read_records
from lib.data.store import PassageStore
from lib.datasets import Question, question_sets
from lib.llm.prompts import load_prompt
from lib.llm.small_model import small_model
from lib.methods.base import stem
from lib.profiles import load_profile
from lib.search.index import PassageIndex

PASSAGE_CHARACTERS = 955
"""Characters of a MedCorp passage: its 221 tokens at the 4.3 characters that are counted."""

PROMPTS = (
    "hyde_passage",
    "query2doc_4shot",
    "csqe_knowledge",
    "csqe_extract",
    "thinkqe_passage",
    "chr_hypotheses",
    "answer_closed_book",
    "answer_with_documents",
)
"""What the paper profile asks with; documents are left out here and added by their own length."""


@dataclass(frozen=True)
class Generated:
    """One reply with the engine's own count of tokens; ``reason`` is stop or length."""

    text: str
    reason: str
    prompt_tokens: int
    output_tokens: int


class SmallEngine:
    """The bundled SmolLM2, whatever model is asked for; counts are those of llama.cpp's timings."""

    def __init__(self) -> None:
        self._url = small_model().base_url.removesuffix("/v1")

    def _post(self, path: str, body: dict) -> dict:
        head = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url + path, json.dumps(body).encode(), head)
        with urllib.request.urlopen(request, timeout=3600) as answer:
            return json.load(answer)

    def count(self, messages: list[dict]) -> int:
        """See the class."""
        return self.tokens(self._post("/apply-template", {"messages": messages})["prompt"])

    def tokens(self, text: str) -> int:
        """Tokens of a text; marks of the chat template are one each."""
        return len(self._post("/tokenize", {"content": text, "parse_special": True})["tokens"])

    def generate(self, body: dict) -> Generated:
        """See the class."""
        answer = self._post("/v1/chat/completions", body)
        (choice,), spent = answer["choices"], answer["timings"]
        read = spent["cache_n"] + spent["prompt_n"]
        text, reason = choice["message"]["content"] or "", choice["finish_reason"]
        return Generated(text, reason, read, spent["predicted_n"])


def counted(name: str, question: Question, count: Callable[[list[dict]], int]) -> int:
    """Tokens of one of ``PROMPTS`` for a question, without documents."""
    values = {"question": stem(question, name.startswith("chr"))}
    if name.startswith("answer"):
        options = sorted(question.options.items())
        values["options"] = "\n".join(f"{letter}. {text}" for letter, text in options)
    if name in ("csqe_extract", "thinkqe_passage", "answer_with_documents"):
        values["documents"] = ""
    return count(load_prompt(name).messages(**values))


def speeds(engine: SmallEngine, times: int = 5) -> Iterator[tuple[str, float]]:
    """Tokens a second of this machine, the best of some ``times``: other work only slows it down.

    SmolLM2 reading and writing, and an encoder of MedCPT's size (random weights).
    """
    import torch
    from transformers import BertConfig, BertModel

    model, ids = BertModel(BertConfig()).eval(), torch.randint(1000, 2000, (4, PASSAGE))

    def talk(words: int, tokens: int) -> int:
        ask = [{"role": "user", "content": "Name the signs of gout. " * words}]
        made = engine.generate({"messages": ask, "max_tokens": tokens, "temperature": 0.0})
        return made.output_tokens if tokens > 1 else made.prompt_tokens

    def encode() -> int:
        with torch.no_grad():
            model(ids)
        return ids.numel()

    jobs = {
        "SmolLM2 prompt": lambda: talk(60, 1),
        "SmolLM2 output": lambda: talk(1, 48),
        "encoder": encode,
    }
    for what, job in jobs.items():
        found = []
        for _ in range(times):
            started = time.perf_counter()
            found.append(job() / (time.perf_counter() - started))
        yield f"{what} tokens a second", max(found)


def passages(n: int = 20_000) -> Iterator[tuple[str, float]]:
    """Bytes on disk and in memory, and seconds, of a passage of MedCorp's mean length.

    In memory are the ids: the index has them, and the arm of random passages sorts them.
    """
    names = [f"wiki20220301en{i // 1000:03d}_{i + 100_000}" for i in range(n)]
    record = {"title": "A title of some words", "content": "word " * (PASSAGE_CHARACTERS // 5)}
    lines = [json.dumps(record | {"id": name}).encode() for name in names]
    with TemporaryDirectory() as folder:
        started = time.perf_counter()
        read = read_records("wikipedia", lines, "measured")
        store = PassageStore.build(Path(folder) / "store.sqlite", read)
        yield "passages stored a second", n / (time.perf_counter() - started)
        yield "bytes of a stored passage", store.path.stat().st_size / n
        ids = store.ids()
    tracemalloc.start()
    index = PassageIndex(ids)
    sorted(index.ids[index.kept].tolist())
    yield "bytes of an id in memory", tracemalloc.get_traced_memory()[1] / n
    tracemalloc.stop()


def main() -> None:
    """Write ``data/results/scale/needs.csv``: what, set, n, value (a mean, or a speed)."""
    engine, rows = SmallEngine(), []
    sets = question_sets(load_profile("paper").questions)
    for name, questions in sets.items():
        n = len(questions)
        for prompt in PROMPTS:
            found = [counted(prompt, q, engine.count) for q in questions]
            rows.append((prompt, name, n, sum(found) / n))
        texts = [q.text for q in questions]
        tokens = sum(engine.tokens(text) for text in texts)
        rows.append(("tokens a word", name, n, tokens / sum(len(t.split()) for t in texts)))
        rows.append(("characters a token", name, n, sum(map(len, texts)) / tokens))
    for what, value in (*passages(), *speeds(engine)):
        rows.append((what, "this machine", 1, value))
    table = pd.DataFrame(rows, columns=["what", "set", "n", "value"])
    files = [file for name in sets for file in load_registry(f"{name}-")]
    write_result(table, "needs", "scale", code=["lib.llm.prompts"], data=files)


if __name__ == "__main__":
    main()
