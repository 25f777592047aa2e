"""One question of ddx-mini through the whole pipeline, as a table: what the overview draws."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from lib.base.parameters import one_of
from lib.data import load_benchmark
from lib.data.corpus_index import build_index, corpus_store
from lib.data.passages import Passage
from lib.data.questions import Question, load_questions
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
    s = cos(d, H+), cos(d, H-) and score = s_plus - lambda s_minus. ValueError for an unknown
    ``qid``.
    """
    benchmark, store = load_benchmark("ddx-mini"), corpus_store(("ddx-mini",))
    retriever = Retriever(build_index(store, encoder, progress=False), encoder, store)
    questions = {q.qid: q for q in load_questions("ddx-mini")}
    question = one_of("ddx-mini has no question", qid, questions)
    llm = connect(load_profile("mini").llm)
    ranks, answers, trace_of = {}, [], {}
    for when, lam_here in (("before", 0.0), ("after", lam)):
        method = replace(METHODS["chr"], lam=lam_here)
        found, trace_of = run_retrieval(method, [question], retriever, llm, k)
        ranks[when] = dict(zip(found["pid"], found["rank"], strict=True))
        answers.append(_answer(question, when, store.get_many(found["pid"]), encoder))
    written = trace_of[qid]
    author = written["replies"][0].model
    target, mimic = (Text(written[side], tower=method.tower) for side in ("H_plus", "H_minus"))
    known = retriever.vectors([target, mimic])
    pair = np.stack([known[text.tower, text.text] for text in (target, mimic)])
    c = float(cosine(pair[:1], pair[1:])[0])
    rows = [
        {"part": "question", "name": qid, "text": question.text},
        {"part": "H+", "name": author, "text": target.text, "class": "target", "value": 1.0},
        {"part": "H-", "name": author, "text": mimic.text, "class": "mimic", "value": c},
        {"part": "lambda", "value": lam},
        {"part": "turn", "value": float(rotation(c, lam))},
        *answers,
    ]
    pids = list(ranks["before"] | ranks["after"])
    titles = {p.pid: p.title or p.text for p in store.get_many(pids)}
    scores = zip(pids, *retriever.index.score(pair, pids), strict=True)
    for pid, s_plus, s_minus in scores:
        row = {"part": "passage", "name": pid, "text": titles[pid]}
        row["class"] = class_of(pid, benchmark.targets[qid], benchmark.mimics[qid])
        row |= {"s_plus": s_plus, "s_minus": s_minus, "score": s_plus - lam * s_minus}
        rows.append(row | {when: rank.get(pid) for when, rank in ranks.items()})
    table = pd.DataFrame(rows, columns=COLUMNS)
    # What draws these rows writes every text of them: what has none is empty, not missing.
    table[["name", "text", "class"]] = table[["name", "text", "class"]].fillna("")
    table = table.astype(dict.fromkeys(("value", "s_plus", "s_minus", "score"), float))
    return table.astype({"before": "Int64", "after": "Int64"})


def _answer(question: Question, when: str, passages: list[Passage], encoder) -> dict[str, str]:
    """What the reader without an LLM takes from these passages, and whether it is right."""
    (answer,) = EvidenceReader(encoder).answer_all([question], [passages])
    right = "right" if answer.letter == question.answer else "wrong"
    shown = f"{answer.letter}. {question.options[answer.letter]}"
    return {"part": "answer", "name": when, "text": shown, "class": right}
