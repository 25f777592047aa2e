"""One question of ddx-mini through the whole pipeline, as a table: what the overview draws."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from lib.data import load_benchmark
from lib.data.corpus_index import build_index, corpus_store
from lib.data.questions import load_questions
from lib.llm.connect import connect
from lib.methods import METHODS
from lib.profiles import load_profile
from lib.readers import EvidenceReader
from lib.run import Retriever, run_retrieval
from lib.search.contrast import cosine, rotation
from lib.stats import class_of
from lib.ways import Text

__all__ = ["COLUMNS", "trace"]

COLUMNS = (
    "part",
    "name",
    "text",
    "class",
    "value",
    "s_plus",
    "s_minus",
    "score",
    "before",
    "after",
)


def trace(encoder, qid: str = "medqa-22", *, lam: float = 0.4, k: int = 5) -> pd.DataFrame:
    """What happens to one question of ddx-mini, columns ``COLUMNS``, a row for all that is drawn.

    Rows: ``question``, ``H+`` and ``H-`` (``name``: who wrote them; ``value``: cosine with h+),
    ``lambda``, ``turn`` (degrees), ``answer`` (of the reader without an LLM, before and after) and
    ``passage``: the k best by H+ alone (rank ``before``) and by contrast (rank ``after``), with
    s = cos(d, H+), cos(d, H-) and score = s_plus - lambda s_minus. KeyError for an unknown ``qid``.
    """
    b, store = load_benchmark("ddx-mini"), corpus_store(("ddx-mini",))
    index = build_index(store, encoder, progress=False)
    way, reader = Retriever(index, encoder, store), EvidenceReader(encoder)
    llm = connect(load_profile("mini").llm)
    asked = {q.qid: q for q in load_questions("ddx-mini")}[qid]
    ranks, answers = {}, []
    for when, x in (("before", 0.0), ("after", lam)):
        method = replace(METHODS["chr"], lam=x)
        found, told = run_retrieval(method, [asked], way, llm, k)
        ranks[when] = dict(zip(found["pid"], found["rank"], strict=True))
        (letter,) = (a.letter for a in reader.answer_all([asked], [store.get_many(found["pid"])]))
        right = "right" if letter == asked.answer else "wrong"
        answers.append(("answer", when, f"{letter}. {asked.options[letter]}", right))
    said = told[qid]
    texts = [Text(said[h], tower=method.tower) for h in ("H_plus", "H_minus")]
    known = way.vectors(texts)
    pair = np.stack([known[t.tower, t.text] for t in texts])
    c, author = float(cosine(pair[:1], pair[1:])[0]), said["replies"][0].model
    rows = [
        ("question", qid, asked.text),
        ("H+", author, texts[0].text, "target", 1.0),
        ("H-", author, texts[1].text, "mimic", c),
        ("lambda", "", "", "", lam),
        ("turn", "", "", "", float(rotation(c, lam))),
        *answers,
    ]
    pids = list(ranks["before"] | ranks["after"])
    titles = {p.pid: p.title or p.text for p in store.get_many(pids)}
    for pid, plus, minus in zip(pids, *index.score(pair, pids), strict=True):
        kind = class_of(pid, b.targets[qid], b.mimics[qid])
        places = ranks["before"].get(pid), ranks["after"].get(pid)
        row = ("passage", pid, titles[pid], kind, None, plus, minus, plus - lam * minus, *places)
        rows.append(row)
    table = pd.DataFrame([(*r, *[None] * (len(COLUMNS) - len(r))) for r in rows], columns=COLUMNS)
    table = table.astype(dict.fromkeys(("value", "s_plus", "s_minus", "score"), float))
    return table.astype({"before": "Int64", "after": "Int64"})
