"""A question end to end: MedRAG's own retrieval path beside ours, over the same passages.

    git clone https://github.com/Teddy-XiongGZ/MedRAG
    python -m tools.bench_medrag MedRAG --sample sample.npz

MedRAG (Xiong et al. 2024) is the toolkit of MedCorp. Its ``RetrievalSystem`` is called as its
README has it, from its own repository; nothing of it is here. Both read the question with MiniLM,
search the same 100,000 made vectors (``tools.bench_vectors``, 384 numbers) and give five texts,
which lie in chunk files of 20,000 lines, as those of PubMed do, or in our store. The texts are
those of the open corpus, again and again. What is found is compared. Both have to read the
question, which is timed alone too. Results:
``data/results/scale/end_to_end.csv``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from lib.base.provenance import write_result
from lib.corpus import contrast
from lib.data.store import Passage, PassageStore
from lib.embed import load_encoder
from lib.model_files import minilm_folder
from lib.run import Retriever
from lib.search.choose import open_dense
from tools.bench import K, machine
from tools.bench_vectors import Sample, made, saved

PASSAGES, A_FILE = 100_000, 20_000
QUESTIONS, ROUNDS = 20, 5
READING = "reading the question, alone"


def of_medrag(clone: Path, folder: Path, passages: Sequence[Passage], vectors: np.ndarray) -> Any:
    """MedRAG's system over these passages, in files as it has them."""
    import faiss

    chunks = folder / "bench" / "chunk"
    chunks.mkdir(parents=True)
    index = folder / "bench" / "index" / "minilm"
    index.mkdir(parents=True)
    places = []
    for number, start in enumerate(range(0, len(passages), A_FILE)):
        source = f"bench{number:04d}"
        some = passages[start : start + A_FILE]
        lines = [
            json.dumps({"id": p.pid, "title": p.title, "content": p.text, "contents": p.text})
            for p in some
        ]
        (chunks / f"{source}.jsonl").write_text("\n".join(lines))
        places += [json.dumps({"index": i, "source": source}) for i in range(len(some))]
    (index / "metadatas.jsonl").write_text("\n".join(places))
    flat = faiss.IndexFlatIP(vectors.shape[1])
    flat.add(vectors.astype(np.float32))
    faiss.write_index(flat, str(index / "faiss.index"))

    sys.path.insert(0, str(clone / "src"))
    utils = importlib.import_module("utils")  # MedRAG's
    utils.corpus_names["Bench"], utils.retriever_names["MiniLM"] = ["bench"], ["minilm"]
    (folder / "minilm").symlink_to(minilm_folder())
    before = os.getcwd()
    os.chdir(folder)  # it names its encoder by a folder, and the index by that name
    try:
        return utils.RetrievalSystem("MiniLM", "Bench", str(folder))
    finally:
        os.chdir(before)


def of_ours(folder: Path, passages: Sequence[Passage], vectors: np.ndarray) -> Retriever:
    """Our retriever over the same, with the index that ``auto`` takes."""
    store = PassageStore.build(folder / "store.sqlite", passages)
    index = open_dense([vectors], store.ids(), backend="auto")
    return Retriever(index, load_encoder("minilm"), store)


def one_after_the_other(
    systems: dict[str, Callable[[str], list[str]]], questions: Sequence[str]
) -> tuple[dict[str, list[float]], dict[str, list[list[str]]]]:
    """Milliseconds a question in each round, in which each system has its turn, and what each
    found, by question. A question is asked once, so that nothing is remembered."""
    for search in systems.values():
        search("A first question, so that everything is open.")
    times: dict[str, list[float]] = {name: [] for name in systems}
    found: dict[str, list[list[str]]] = {name: [] for name in systems}
    for start in range(0, ROUNDS * QUESTIONS, QUESTIONS):
        some = questions[start : start + QUESTIONS]
        for name, search in systems.items():
            begun = time.perf_counter()
            found[name] += [search(question) for question in some]
            times[name].append(1000 * (time.perf_counter() - begun) / len(some))
    return times, found


def measure(
    clone: Path, sample: Sample, questions: Sequence[str], texts: Sequence[Passage]
) -> pd.DataFrame:
    """A row a system: milliseconds a question with their spread, times as fast as MedRAG, and the
    share of its passages that are found too."""
    vectors = np.concatenate(list(made(sample, PASSAGES, wide=False)))
    passages = [
        Passage(f"p{i:06d}", text.title, text.text, text.source, {})
        for i, text in enumerate(islice(cycle(texts), PASSAGES))
    ]
    with TemporaryDirectory() as folder:
        os.environ["CHR_CACHE"] = folder  # no question has been read before
        theirs = of_medrag(clone, Path(folder), passages, vectors)
        ours = of_ours(Path(folder), passages, vectors)
        systems = {
            "MedRAG": lambda question: [
                hit["content"] for hit in theirs.retrieve(question, k=K)[0]
            ],
            "ours": lambda question: [text for _, text in ours.search(contrast(question), K)],
            # A part of both: neither can be quicker.
            READING: lambda question: list(ours.encoder.encode([question], "query")[:0]),
        }
        times, found = one_after_the_other(systems, questions)
    rows = []
    for name, taken in times.items():
        ratio = np.median(np.divide(times["MedRAG"], taken))
        pairs = zip(found["MedRAG"], found[name], strict=True)
        same = np.nan if name == READING else np.mean([np.isin(a, b).mean() for a, b in pairs])
        row = {"system": name, "passages": PASSAGES, "times_medrag": ratio, "ms": np.median(taken)}
        rows.append(row | {"ms_least": min(taken), "ms_most": max(taken), "same_texts": same})
    return pd.DataFrame(rows)


def main() -> None:
    """The command."""
    from lib.datasets import in_full, load_real
    from lib.open_retriever import store_of
    from lib.profiles import load_profile

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clone", type=Path, help="a clone of MedRAG's repository")
    parser.add_argument("--sample", type=Path, required=True, help="as of tools.bench")
    asked = parser.parse_args()
    profile = load_profile("open")
    texts = list(store_of(profile, load_encoder(profile.encoder)))
    questions = [question.text for question in in_full(load_real("test"))]
    table = measure(asked.clone, saved(asked.sample), questions, texts)
    table.insert(0, "machine", machine("cpu"))
    print(table.round(3).to_string(index=False))
    write_result(table, "end_to_end", "scale", code=["tools.bench_medrag"], data=[])


if __name__ == "__main__":
    main()
