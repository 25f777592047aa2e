"""How RAG2 retrieves: with what query, from which sources, re-ranked or not.

The paper's Table 4 and its Figures 4 and A3, measured by what is retrieved, not by a model's
answers. On BioASQ only BioASQ snippets are gold: a passage of any other source counts as wrong, so
balanced retrieval can only lose there. In ddx-mini all four sources were judged.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import pandas as pd

from lib.base.parameters import check_number, one_of
from lib.base.paths import DATA
from lib.benchmarks import ddx_mini, load_benchmark
from lib.datasets import Question, load_questions, load_real
from lib.expansion import execute
from lib.methods.base import Expansion, stem
from lib.methods.postprocess import Scorer
from lib.methods.rag2 import RAG2
from lib.open_retriever import open_retriever
from lib.profiles import Profile
from lib.run import Retriever
from lib.stats import Pair, claims, class_of, long_values, measure
from lib.studies.rag2.filters import (
    FILTERS,
    RERANKERS,
    SHUFFLED,
    Filter,
    Pairs,
    cached_scores,
    lines_of,
    load_filter,
    load_rerankers,
)
from lib.studies.rag2.labels import Material, open_material
from lib.studies.real.arms import Sample
from lib.studies.real.expansions import written_for
from lib.studies.real.study import recorded
from lib.study import means_table


@dataclass(frozen=True)
class Collection:
    """What all studies of RAG2 share; each part is opened when it is first asked for."""

    profile: Profile
    retriever: Retriever
    data: Sequence[str] = ()

    @property
    def setup(self) -> str:
        """The profile and the encoder, as tables say them."""
        return f"{self.profile.name}, {self.retriever.encoder.name}"

    @cached_property
    def sample(self) -> Sample:
        """The real test questions, what judges and experts said; ``written`` has their texts."""
        return Sample(load_real("test"), {}, self.retriever)

    @cached_property
    def written(self) -> dict[str, dict[str, Expansion]]:
        """The texts recorded for the real test questions, by kind and question id."""
        return written_for(self.sample.questions, recorded(), self.retriever)

    @cached_property
    def texts(self) -> dict[str, str]:
        """Every passage that is searched, by id."""
        return {passage.pid: passage.text for passage in self.retriever.store}

    @cached_property
    def material(self) -> Material:
        """What the filters were trained from."""
        return open_material()

    @cached_property
    def filters(self) -> dict[str, Filter]:
        """Every filter by name."""
        options = {"encoder": self.retriever.encoder, "texts": list(self.texts.values())}
        return {name: load_filter(name, **options) for name in FILTERS}

    def scores(self, pairs: Pairs, filters: Sequence[str] = FILTERS) -> dict[str, np.ndarray]:
        """The scores of pairs by filter, kept in the cache."""
        return {name: cached_scores(self.filters[name], pairs) for name in filters}

    def is_gold(self, pairs: pd.DataFrame) -> pd.Series:
        """Whether BioASQ's experts gave the passage ``pid`` for the question ``qid``, by row."""
        gold = self.sample.experts
        given = [
            pid in gold.get(qid, ()) for qid, pid in zip(pairs["qid"], pairs["pid"], strict=True)
        ]
        return pd.Series(given, pairs.index)


def rationale_in(expansion: Expansion) -> str:
    """The rationale that a recorded expansion searches with; ValueError unless it is one."""
    (passage,) = expansion.request.of("passage")
    return passage.text


def without_verdicts(*tested: pd.DataFrame) -> pd.DataFrame:
    """Tests of ``lib.stats.claims`` in one table, without p and verdict: none was declared."""
    table = pd.concat(tested, ignore_index=True)
    return table.drop(columns=["p", "p_holm", "verdict", "status"])


# sources and re-ranking ---------------------------------------------------------------------------

DEPTH = 32
"""Passages that are re-ranked. Every re-ranked arm scores as many pairs: balanced retrieval takes a
quarter of them from each of four sources, stacked retrieval the best of all."""

_CUTS = (1, 3, 5, 10)


@dataclass(frozen=True)
class QuestionSet:
    """Questions with their rationales (by id; some may have none), what is relevant to them, and
    where they are searched."""

    name: str
    questions: Sequence[Question]
    rationales: Mapping[str, str]
    targets: Mapping[str, frozenset[str]]
    retriever: Retriever

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources of the passages, in their order."""
        return tuple(self.retriever.store.sources().unique())


def strategies(sources: Sequence[str], rerankers: Mapping[str, Scorer]) -> dict[str, RAG2]:
    """Every arm by name, such as "question, balanced, re-ranked" or "rationale, stacked".

    ``rerankers`` by what is added to an arm's name: "" for the tuned one, " (shuffled)".
    """
    arms: dict[str, RAG2] = {}
    for query in ("question", "rationale"):
        for source in sources:
            arms[f"{query}, {source} alone"] = RAG2(query=query, sources=(source,), depth=DEPTH)
        for how, chosen in (("stacked", ()), ("balanced", tuple(sources))):
            plain = RAG2(query=query, sources=chosen, depth=DEPTH)
            arms[f"{query}, {how}"] = plain
            for added, scorer in rerankers.items():
                arms[f"{query}, {how}, re-ranked{added}"] = replace(plain, reranker=scorer)
            if query == "rationale":
                arms[f"{query}, {how}, re-ranked by the rationale"] = replace(
                    plain, reranker=rerankers[""], rerank_by="rationale"
                )
    return arms


def strategy_values(asked: QuestionSet, arms: Mapping[str, RAG2]) -> pd.DataFrame:
    """Every outcome: ``dataset, arm, qid, metric, value``.

    Metrics are precision_at_1, 3, 5 and 10, hit_at_5, ndcg_at_10, the cost, ``pairs_scored``, and
    ``share of <source>``, of the top five. An arm that reads the rationale is run on the questions
    that have one, a re-ranked one too so that all of these have the same questions.
    """
    store = asked.retriever.store
    ids, sources = store.ids(), store.sources()
    parts = []
    for name, arm in arms.items():
        questions = list(asked.questions)
        if arm.needs_llm or arm.reranker:
            questions = [q for q in questions if q.qid in asked.rationales]
        expansions = [arm.given(q, asked.rationales.get(q.qid, "")) for q in questions]
        run, traces = execute(name, questions, expansions, asked.retriever, max(_CUTS))
        found = run.groupby("qid")["pid"].agg(list).to_dict()
        gold = {q.qid: asked.targets[q.qid] for q in questions}
        columns = {f"precision_at_{k}": measure(found, gold, {}, k)["p_at_5"] for k in _CUTS}
        table = pd.DataFrame(columns)
        table = table.join(measure(found, gold, {})[["hit_at_5", "ndcg_at_10"]])
        steps = [traces[qid].get("after", ()) for qid in gold]
        table["pairs_scored"] = [float(sum(step["pairs"] for step in taken)) for taken in steps]
        for source in asked.sources:
            rows = [ids.rows_of(found.get(qid, [])[:5]) for qid in gold]
            table[f"share of {source}"] = [sum(sources[own] == source) / 5 for own in rows]
        parts.append(long_values(name, table).assign(dataset=asked.name))
    return pd.concat(parts, ignore_index=True)[["dataset", "arm", "qid", "metric", "value"]]


def strategy_outcomes(collection: Collection) -> pd.DataFrame:
    """``strategy_values`` of BioASQ and of the bundled set, which is searched in its own passages;
    of re-rankers on shuffled labels the mean over the draws."""
    encoder = collection.retriever.encoder
    values = []
    for asked in (_bioasq(collection), _ddx_mini(collection)):
        texts = [passage.text for passage in asked.retriever.store]
        (tuned,) = load_rerankers(RERANKERS[0], encoder, texts)
        rerankers = {"": tuned}
        for draw, scorer in enumerate(load_rerankers(SHUFFLED, encoder, texts)):
            rerankers[f" (shuffled {draw})"] = scorer
        measured = strategy_values(asked, strategies(asked.sources, rerankers))
        arm = measured["arm"].str.replace(r"\(shuffled \d+\)", "(shuffled)", regex=True)
        by_arm = measured.assign(arm=arm).groupby(["dataset", "arm", "qid", "metric"], sort=False)
        values.append(by_arm["value"].mean().reset_index())
    return pd.concat(values, ignore_index=True)


def _bioasq(collection: Collection) -> QuestionSet:
    """The 618 questions; the large model's rationales of 150 of them; the experts' snippets."""
    sample = collection.sample
    questions = [q for q in sample.questions if q.dataset == "bioasq"]
    rationales = {qid: rationale_in(made) for qid, made in collection.written["rationale"].items()}
    return QuestionSet("bioasq", questions, rationales, sample.experts, collection.retriever)


def _ddx_mini(collection: Collection) -> QuestionSet:
    """The bundled test questions, their reference rationales, and what was judged on the target."""
    benchmark = load_benchmark("ddx-mini")
    questions = [q for q in load_questions("ddx-mini") if q.qid in set(benchmark.test)]
    rationales = {row["qid"]: row["rationale"] for row in ddx_mini.read("expansions")}
    encoder = collection.retriever.encoder
    retriever = open_retriever(collection.profile, encoder, ("ddx-mini",))
    return QuestionSet("ddx-mini", questions, rationales, benchmark.targets, retriever)


def strategy_pairs() -> list[Pair]:
    """What is compared, each an exploratory difference: these questions have been looked at."""
    pairs = []
    for metric in ("precision_at_1", "precision_at_5"):
        for query in ("question", "rationale"):
            stacked, balanced = f"{query}, stacked", f"{query}, balanced"
            again, even = f"{stacked}, re-ranked", f"{balanced}, re-ranked"
            # Balanced lists take from each source in turn: rank 1 is the first source's best.
            if metric != "precision_at_1":
                pairs.append(Pair("balanced finds more than stacked", metric, balanced, stacked))
            tuned = "the tuned re-ranker finds more than those tuned on shuffled labels"
            pairs += [
                Pair("re-ranking a stacked list finds more", metric, again, stacked),
                Pair("balanced and re-ranked finds more than stacked", metric, even, stacked),
                Pair("so it does where stacked is re-ranked too", metric, even, again),
                Pair(tuned, metric, even, f"{even} (shuffled)"),
            ]
        found = "the rationale finds more than the question"
        pairs.append(Pair(found, metric, "rationale, stacked", "question, stacked"))
        found = "re-ranking by the rationale finds more than by the question"
        even = "rationale, balanced, re-ranked"
        pairs.append(Pair(found, metric, f"{even} by the rationale", even))
    return pairs


def strategy_tables(collection: Collection, values: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """``rag2_strategies`` in the form of Table 1, and its paired differences."""
    tested = [
        claims(group, strategy_pairs()).assign(dataset=name)
        for name, group in values.groupby("dataset", sort=False)
    ]
    # A re-ranked arm has the questions with a rationale; here the others have the same.
    bioasq = values[values["dataset"] == "bioasq"]
    with_rationale = bioasq["qid"].isin(bioasq.loc[bioasq["arm"] == "rationale, stacked", "qid"])
    same = bioasq[with_rationale].assign(dataset="bioasq, with a rationale")
    setup = f"{collection.setup}, {DEPTH} passages re-ranked"
    table = means_table(pd.concat([values, same]), setup)
    # A rationale was written by somebody who saw the options, and contains an answer.
    table["options_visible"] = table["method"].str.contains("rationale")
    return {"rag2_strategies": table, "rag2_strategies_claims": without_verdicts(*tested)}


# one bundled question, step by step ---------------------------------------------------------------


def one_question(
    qid: str, retriever: Retriever, reranker: Scorer, judge: Scorer, threshold: float, k: int = 5
) -> pd.DataFrame:
    """Every passage that is among the best ``k`` before or after some step of RAG2.

    The rationale is the query, the re-ranker reads the question, both as RAG2's paper has it.
    Columns: title, source, class, then ranks from 1, missing where a passage was not found:
    ``stacked``, ``balanced``, ``re_ranked``; ``helpful``, the filter's score of the first ``k``,
    and ``kept``, what it says of them. In the order of the last step. ValueError for a question
    that ddx-mini does not have.
    """
    threshold = check_number("threshold", threshold)
    questions = {q.qid: q for q in load_questions("ddx-mini")}
    question = one_of("ddx-mini has no question", qid, questions)
    rationale = {row["qid"]: row["rationale"] for row in ddx_mini.read("expansions")}[qid]
    sources = tuple(retriever.store.sources().unique())
    ranks = {}
    for name, arm in (("stacked", RAG2()), ("balanced", RAG2(sources=sources))):
        run, _ = execute(name, [question], [arm.given(question, rationale)], retriever, arm.depth)
        ranks[name] = dict(zip(run["pid"], run["rank"], strict=True))
    whole = RAG2(sources=sources, reranker=reranker, judge=judge, threshold=threshold)
    _, traces = execute("filtered", [question], [whole.given(question, rationale)], retriever, k)
    reranked, filtered = traces[qid]["after"]
    # Ranks before the filter, so that what it drops is seen at its place.
    ranks["re_ranked"] = {pid: rank for rank, pid in enumerate(reranked["left"], 1)}
    table = pd.DataFrame(ranks).astype("Int64")
    table["helpful"] = pd.Series(dict(zip(filtered["given"], filtered["scores"], strict=True)))
    table["kept"] = "not found"
    table.loc[reranked["left"], "kept"] = "not among the first"
    table.loc[filtered["given"], "kept"] = "dropped"
    table.loc[filtered["left"], "kept"] = "kept"
    table = table[table[list(ranks)].min(axis=1) <= k].sort_values(["re_ranked", "stacked"])
    benchmark = load_benchmark("ddx-mini")
    targets, mimics = benchmark.targets[qid], benchmark.mimics[qid]
    passages = retriever.store.get_many(list(table.index))
    table.insert(0, "class", [class_of(pid, targets, mimics) for pid in table.index])
    table.insert(0, "source", [passage.source for passage in passages])
    table.insert(0, "title", [passage.title for passage in passages])
    return table.reset_index(drop=True)


# one case by eye ----------------------------------------------------------------------------------

CASE_FILE = "rag2-case.toml"
"""The paper's Figure 4 with a vignette, options and rationales of our own: *reference text*."""


@cache
def read_case() -> dict[str, Any]:
    """The case: its ``question``, the ``rationales`` that are searched with, and, by letter, the
    ``terms``, by which a passage names what an option proposes; it need not agree."""
    case = tomllib.loads((DATA / CASE_FILE).read_text(encoding="utf-8"))
    return case | {"question": Question(**case["question"])}


def options_named(text: str) -> str:
    """Letters of the case's options that a text names, such as "AC"."""
    plain, terms = text.casefold(), read_case()["terms"]
    return "".join(letter for letter, words in terms.items() if re.search(words, plain))


def case_tables(collection: Collection) -> dict[str, pd.DataFrame]:
    """What is found and what the recipe's filter keeps, and what there was to be found."""
    return {
        "rag2_case": case_found(collection.retriever, load_filter("cross-ppl-25")),
        "rag2_case_named": case_named(collection.retriever),
    }


def case_found(retriever: Retriever, judge: Filter, k: int = 8) -> pd.DataFrame:
    """What question and rationales find, and what a filter makes of it: a row for each query,
    passage and threshold.

    The filter reads the question with its options. ``names`` are the letters of the options whose
    terms stand in the passage or its title.
    """
    question, rationales = read_case()["question"], read_case()["rationales"]
    asked = stem(question, options_visible=True)
    thresholds = list(lines_of([judge.name]).values())[:2]
    rows = []
    for query, rationale in {"question": "", **rationales}.items():
        arm = RAG2(query="rationale" if rationale else "question")
        run, _ = execute(query, [question], [arm.given(question, rationale)], retriever, k)
        passages = retriever.store.get_many(run["pid"].tolist())
        scores = judge.scores([(asked, passage.text) for passage in passages])
        for rank, (passage, score) in enumerate(zip(passages, scores, strict=True), 1):
            found = {"searched_with": query, "rank": rank, "pid": passage.pid}
            found |= {"source": passage.source, "title": passage.title or "(no title)"}
            found["names"] = options_named(f"{passage.title} {passage.text}")
            found["filter"] = judge.name
            for threshold in thresholds:
                verdict = {"threshold": threshold, "score": score, "kept": score >= threshold}
                rows.append(found | verdict)
    return pd.DataFrame(rows)


def case_named(retriever: Retriever) -> pd.DataFrame:
    """How much of the corpus could speak of each option: letter, option, passages, with_copd.

    ``passages`` have its terms; ``with_copd`` of them also name COPD.
    """
    about_copd = re.compile(r"\bcopd\b|chronic obstructive pulmonary")
    options = read_case()["question"].options
    named, with_copd = Counter(), Counter()
    for passage in retriever.store:
        text = f"{passage.title} {passage.text}"
        letters = options_named(text)
        named.update(letters)
        if about_copd.search(text.casefold()):
            with_copd.update(letters)
    rows = [
        (letter, option, named[letter], with_copd[letter]) for letter, option in options.items()
    ]
    return pd.DataFrame(rows, columns=["letter", "option", "passages", "with_copd"])
