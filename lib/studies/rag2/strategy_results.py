"""How RAG2 retrieves, measured: sources and re-ranking, on BioASQ and on the bundled set."""

from __future__ import annotations

import pandas as pd

from lib.benchmarks import ddx_mini, load_benchmark
from lib.datasets import load_questions, load_real
from lib.open_retriever import open_retriever
from lib.profiles import Profile
from lib.run import Retriever
from lib.stats import claims
from lib.studies.main_tables.long_tables import means_table
from lib.studies.rag2.reranker import RERANKERS, Reranker, shuffled_rerankers
from lib.studies.rag2.shared import rationale_in, without_verdicts
from lib.studies.rag2.strategies import (
    DEPTH,
    MemoizedScorer,
    Set,
    strategies,
    strategy_pairs,
    strategy_values,
)
from lib.studies.real.arms import gold_passages
from lib.studies.real.expansions import recorded, written_for


def strategy_outcomes(profile: Profile, retriever: Retriever) -> pd.DataFrame:
    """``strategy_values`` of BioASQ, searched by the retriever, and of the bundled set, searched in
    its own passages; of re-rankers on shuffled labels the mean over the draws."""
    own = open_retriever(profile, retriever.encoder, ("ddx-mini",))
    values = []
    for asked, where in ((_bioasq(retriever), retriever), (_ddx_mini(), own)):
        texts = [passage.text for passage in where.store]
        rerankers = {"tuned": MemoizedScorer(Reranker(RERANKERS[0], retriever.encoder, texts))}
        for draw, scorer in enumerate(shuffled_rerankers(retriever.encoder, texts)):
            rerankers[f"shuffled {draw}"] = scorer
        measured = strategy_values(asked, strategies(asked.sources, rerankers), where)
        values.append(_over_draws(measured))
    return pd.concat(values, ignore_index=True)


def strategy_tables(values: pd.DataFrame, setup: str) -> dict[str, pd.DataFrame]:
    """``rag2_strategies`` in the form of Table 1, and its paired differences."""
    tested = [
        claims(own, strategy_pairs()).assign(dataset=name)
        for name, own in values.groupby("dataset", sort=False)
    ]
    # A re-ranked arm has the questions with a rationale; here the others have the same.
    bioasq = values[values["dataset"] == "bioasq"]
    with_rationale = bioasq["qid"].isin(bioasq.loc[bioasq["arm"] == "rationale, stacked", "qid"])
    same = bioasq[with_rationale].assign(dataset="bioasq, with a rationale")
    table = means_table(pd.concat([values, same]), f"{setup}, {DEPTH} passages re-ranked")
    # A rationale was written by somebody who saw the options, and contains an answer.
    table["options_visible"] = table["method"].str.contains("rationale")
    return {"rag2_strategies": table, "rag2_strategies_claims": without_verdicts(*tested)}


def _over_draws(values: pd.DataFrame) -> pd.DataFrame:
    """Arms of re-rankers on shuffled labels as one, each question's mean over the draws."""
    arms = values["arm"].str.replace(r"\(shuffled \d+\)", "(shuffled)", regex=True)
    key = ["dataset", "arm", "qid", "metric"]
    return values.assign(arm=arms).groupby(key, sort=False, as_index=False)["value"].mean()


def _bioasq(retriever: Retriever) -> Set:
    """The 618 questions; the large model's rationales of 150 of them; the experts' snippets."""
    questions = [q for q in load_real("test") if q.dataset == "bioasq"]
    written = written_for(questions, recorded(), retriever)["rationale"]
    rationales = {qid: rationale_in(made.request) for qid, made in written.items()}
    targets = gold_passages(retriever.store)
    sources = tuple(dict.fromkeys(retriever.store.sources()))
    return Set("bioasq", questions, rationales, targets, sources)


def _ddx_mini() -> Set:
    """The bundled test questions, their reference rationales, and what was judged on the target."""
    benchmark = load_benchmark("ddx-mini")
    tested = set(benchmark.test)
    questions = [q for q in load_questions("ddx-mini") if q.qid in tested]
    rationales = {row["qid"]: row["rationale"] for row in ddx_mini.read("expansions")}
    sources = tuple(dict.fromkeys(row["source"] for row in ddx_mini.read("passages")))
    return Set("ddx-mini", questions, rationales, benchmark.targets, sources)
