"""SL-HyDE step by step: what the generator wrote, and one question before and after training."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from lib.base.parameters import check_count, one_of
from lib.benchmarks import load_benchmark
from lib.datasets import load_questions
from lib.embed import load_encoder
from lib.open_retriever import open_retriever
from lib.profiles import Profile
from lib.run import Retriever
from lib.stats import class_of
from lib.studies.slhyde.evaluate import request_of
from lib.studies.slhyde.study import BASE, SEEDS
from lib.studies.slhyde.trained import read_texts

_SHOWN = 20


def written_rows(count: int) -> pd.DataFrame:
    """The first questions that the generator wrote, with the passages it wrote for them.

    Columns: query, passage (the first words), rank (at which question and passage find the
    document), rank_of_query (the question alone), chosen.
    """
    rows = []
    for row in read_texts("passages")[: check_count("shown_rows", count, least=0)]:
        for i, text in enumerate(row["passages"]):
            words = text.split()
            start = " ".join(words[:_SHOWN]) + (" …" if len(words) > _SHOWN else "")
            found = {"query": row["query"], "passage": start, "rank": row["ranks"][i]}
            found |= {"rank_of_query": row["query_rank"]}
            rows.append(found | {"chosen": "chosen" if i == row["chosen"] else ""})
    return pd.DataFrame(rows)


def open_both(profile: Profile) -> dict[str, Retriever]:
    """The bundled passages by the untrained retriever ("before") and the first trained one
    ("after"); what is not cached yet is embedded."""
    names = {"before": BASE, "after": f"{BASE}+{SEEDS['slhyde'][0]}"}
    whole = replace(profile, limit=0)
    return {
        when: open_retriever(whole, load_encoder(name, precision="float32"), ("ddx-mini",))
        for when, name in names.items()
    }


def before_and_after(qid: str, profile: Profile, k: int = 5) -> pd.DataFrame:
    """A bundled question, searched by the untrained retriever and by the first trained one.

    Columns: title, source, class, before and after (ranks from 1, missing beyond 20). All that one
    of them has among its best ``k``, by the rank after. ValueError for a question that ddx-mini
    does not have.
    """
    questions = {q.qid: q for q in load_questions("ddx-mini")}
    question = one_of("ddx-mini has no question", qid, questions)
    benchmark = load_benchmark("ddx-mini")
    ranks: dict[str, dict[str, int]] = {}
    for when, retriever in open_both(profile).items():
        (hits,) = retriever.search_many([request_of("query", question.text, ())], _SHOWN)
        ranks[when] = {pid: rank for rank, pid in enumerate(hits.ids[0].tolist(), 1)}
    shown = [pid for pid in ranks["after"] if ranks["after"][pid] <= k]
    shown += [pid for pid in ranks["before"] if ranks["before"][pid] <= k and pid not in shown]
    rows = []
    for passage in retriever.store.get_many(shown):
        row = {"title": passage.title, "source": passage.source}
        row["class"] = class_of(passage.pid, benchmark.targets[qid], benchmark.mimics[qid])
        rows.append(row | {when: of.get(passage.pid) for when, of in ranks.items()})
    columns = ["title", "source", "class", "before", "after"]
    return pd.DataFrame(rows, columns=columns).astype({"before": "Int64", "after": "Int64"})
