"""Search by words in a large corpus: our files beside bm25s, SQLite's FTS5 and tantivy.

    python -m tools.bench_words 1000000                     ours, bm25s and FTS5
    python -m tools.bench_words 1000000 --tantivy PYTHON    also tantivy, installed for that Python

Each has a process of its own, reads the same words and is asked the same questions of the real
sample, one at a time. The first passages are the open corpus's; in further ones a third of the
words are drawn from all passages and some are new, so that the vocabulary grows. bm25s is opened
memory-mapped once it is built. FTS5 and tantivy have k1 = 1.2 and b = 0.75, which cannot be set.
Results: ``data/results/scale/words.csv``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

K, QUESTIONS, AT_ONCE = 5, 60, 10_000
ENGINES = ("ours", "bm25s", "FTS5")
PLACES = ("texts.json", "questions.json")
Search = Callable[[str], list[int]]


def passages(texts: Sequence[str], n: int) -> Iterator[str]:
    """n passages, the same each time."""
    cut = [text.split() for text in texts]
    all_words = np.array([word for words in cut for word in words], dtype=object)
    random = np.random.default_rng(0)
    yield from islice(texts, n)
    for i in range(len(texts), n):
        words = list(cut[i % len(cut)])
        places = random.integers(len(words), size=1 + len(words) // 3)
        others = all_words[random.integers(len(all_words), size=len(places))]
        for place, other in zip(places, others, strict=True):
            words[place] = other
        if random.random() < 0.3:
            words[places[0]] = f"new{random.integers(10**7)}"
        yield " ".join(words)


def in_words(texts: Iterator[str]) -> Iterator[str]:
    """The words of each text as ours are cut, with a space between, so that all read the same."""
    from lib.search.bm25 import words

    return (" ".join(words(text)) for text in texts)


# engines ------------------------------------------------------------------------------------------


def ours(texts: Iterator[str], n: int, folder: Path) -> Search:
    from lib.search.bm25 import BM25Index

    index = BM25Index.build(texts, [f"{i:09d}" for i in range(n)], folder / "ours", "made")
    return lambda question: index.search([question], K).rows[0].tolist()


def bm25s(texts: Iterator[str], n: int, folder: Path) -> Search:
    import bm25s as library

    from lib.search.bm25 import words

    model = library.BM25(k1=0.9, b=0.4, method="lucene")
    model.index([words(text) for text in texts], show_progress=False)
    model.save(folder / "bm25s", show_progress=False)
    opened = library.BM25.load(folder / "bm25s", mmap=True)

    def search(question: str) -> list[int]:
        found, _ = opened.retrieve([words(question)], k=K, show_progress=False)
        return found[0].tolist()

    return search


def fts5(texts: Iterator[str], n: int, folder: Path) -> Search:
    from lib.search.bm25 import words

    file = sqlite3.connect(folder / "fts5.sqlite")
    file.execute("CREATE VIRTUAL TABLE passage USING fts5(words, content='')")
    rows = enumerate(in_words(texts))
    file.executemany("INSERT INTO passage (rowid, words) VALUES (?, ?)", rows)
    file.commit()

    def search(question: str) -> list[int]:
        asked = " OR ".join(f'"{word}"' for word in dict.fromkeys(words(question)))
        best = "SELECT rowid FROM passage WHERE passage MATCH ? ORDER BY rank LIMIT ?"
        return [row for (row,) in file.execute(best, (asked, K))]

    return search


def tantivy(texts: Iterator[str], n: int, folder: Path) -> Search:
    import tantivy as library

    from lib.search.bm25 import words

    builder = library.SchemaBuilder()
    builder.add_text_field("words", tokenizer_name="whitespace", index_option="freq")
    builder.add_integer_field("row", stored=True)
    schema = builder.build()
    (folder / "tantivy").mkdir()
    index = library.Index(schema, path=str(folder / "tantivy"))
    writer = index.writer(heap_size=500_000_000, num_threads=1)
    for row, text in enumerate(in_words(texts)):
        writer.add_document(library.Document(words=text, row=row))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher, either = index.searcher(), library.Occur.Should

    def search(question: str) -> list[int]:
        terms = [
            (either, library.Query.boost_query(one, float(times)))
            for word, times in Counter(words(question)).items()
            for one in [library.Query.term_query(schema, "words", word, "freq")]
        ]
        hits = searcher.search(library.Query.boolean_query(terms), K, count=False).hits
        return [searcher.doc(address)["row"][0] for _, address in hits]

    return search


def measure(engine: str, n: int, folder: Path) -> dict:
    """Build and search in this process."""
    texts, questions = (json.loads((folder / name).read_text()) for name in PLACES)
    with TemporaryDirectory(dir=folder) as own:
        begun = time.perf_counter()
        search = {"ours": ours, "bm25s": bm25s, "FTS5": fts5, "tantivy": tantivy}[engine](
            passages(texts, n), n, Path(own)
        )
        took = time.perf_counter() - begun
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        size = sum(path.stat().st_size for path in Path(own).rglob("*") if path.is_file())
        search(questions[0])
        found, times = [], []
        for question in questions:
            begun = time.perf_counter()
            found.append(search(question))
            times.append(1000 * (time.perf_counter() - begun))
    row = {"build_s": took, "gb": size / 1e9, "peak_gb": peak, "ms": float(np.median(times))}
    return row | {"ms_tenth": float(np.quantile(times, 0.9)), "found": found}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("passages", type=int)
    parser.add_argument("--tantivy", metavar="PYTHON", help="a Python that has tantivy")
    parser.add_argument("--engines", nargs="*", default=list(ENGINES), choices=ENGINES)
    parser.add_argument("--alone", nargs=2, metavar=("ENGINE", "FOLDER"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.alone:
        engine, folder = asked.alone
        print(json.dumps(measure(engine, asked.passages, Path(folder))))
        return

    import pandas as pd

    from lib.base import paths
    from lib.base.provenance import write_result
    from lib.datasets import in_full, load_real
    from lib.embed import load_encoder
    from lib.open_retriever import store_of
    from lib.profiles import load_profile
    from tools.bench import machine, with_others

    profile = load_profile("open")
    texts = [f"{p.title} {p.text}" for p in store_of(profile, load_encoder(profile.encoder))]
    questions = [question.text for question in in_full(load_real("test"))][:QUESTIONS]
    characters = float(np.mean([len(text) for text in texts]))
    pythons = dict.fromkeys(asked.engines, sys.executable)
    if asked.tantivy:
        pythons["tantivy"] = asked.tantivy
    found, rows = {}, []
    with TemporaryDirectory(dir=paths.cache()) as folder:
        for name, content in zip(PLACES, (texts, questions), strict=True):
            (Path(folder) / name).write_text(json.dumps(content))
        for engine, python in pythons.items():
            command = [python, "-m", "tools.bench_words", str(asked.passages)]
            packages = os.pathsep.join([str(paths.ROOT), *filter(None, sys.path)])
            made = subprocess.run(
                [*command, "--alone", engine, folder],
                env=os.environ | {"PYTHONPATH": packages},
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            row = json.loads(made.stdout.splitlines()[-1])
            found[engine] = row.pop("found")
            pairs = zip(found[asked.engines[0]], found[engine], strict=True)
            same = float(np.mean([np.isin(one, other).mean() for one, other in pairs]))
            about = {"engine": engine, "passages": asked.passages, "characters": characters}
            rows.append(about | row | {"same": same})
            print(rows[-1], flush=True)
    table = pd.DataFrame(rows)
    table.insert(0, "machine", machine("cpu"))
    write_result(with_others(table, "words"), "words", "scale", code=["tools.bench_words"], data=[])


if __name__ == "__main__":
    main()
