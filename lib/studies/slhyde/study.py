"""SL-HyDE measured: every retriever, every way of searching, on SciFact and BioASQ, and the claims.

An arm is a retriever, what is searched with, and who wrote the passage, such as "slhyde-query,
mean, tuned". Writers: ``base``, the small generator as it is; ``tuned``, the same after its
self-learning; ``capable``, a large language model, for BioASQ alone, which is the most that a
better generator could bring. "contrast@0.4" is its H+ less 0.4 times its H-.

Four tests on SciFact are primary (``data/primary_tests.toml``), one of them void because its
control collapsed; all others are exploratory and get an interval without p and verdict, those on
BioASQ because the set had been looked at before. Three seeds stand behind "slhyde" and "shuffled":
a query's outcome is its mean over them, and the spread of the three means stands beside the
interval, which is over queries alone. A retriever that was trained with one seed is compared with
the same seed of the other, not with the mean of three.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lib.base.parameters import one_of
from lib.benchmarks import load_benchmark
from lib.data.looks import Look
from lib.datasets import load_questions
from lib.embed import load_encoder
from lib.llm.chat import tag
from lib.model_files import ADAPTERS, CARD, WEIGHTS, cards
from lib.open_retriever import open_retriever
from lib.profiles import Profile
from lib.query_spec import Fusion, Hypotheses, Request, Text
from lib.run import Retriever
from lib.stats import Pair, claims, class_of
from lib.studies.real.expansions import KINDS, writers_of
from lib.studies.real.study import recorded
from lib.studies.slhyde.tasks import (
    ADAPTER,
    BASE,
    DEPTH,
    FILES,
    TASKS,
    TRAININGS,
    Task,
    bioasq_questions,
    bm25_values,
    chosen_ranks,
    folds,
    open_task,
    query_alone,
    query_arm,
    read_texts,
    task_values,
)
from lib.study import Arm, Study, declared_pairs, means_table, primary_tests, search_arm

SEEDS = {
    "slhyde": ("slhyde-query", "slhyde-query-1", "slhyde-query-2"),
    "shuffled": ("slhyde-shuffled", "slhyde-shuffled-1", "slhyde-shuffled-2"),
}
"""What is averaged over seeds, under which name."""

USES = ("mean", "passage", "concatenation", "rrf")
"""What is searched with beside the query alone: the mean of query and passages (Eq. 8); the
passages alone (Table 5, "w/ D."); both as one text ("w/ con."); or both lists merged by their
ranks, which the paper does not have."""

GENERATED = ("base", "tuned")
LAMBDAS = ("0", "0.4", "1")

BM25 = "bm25"
"""The arm that searches by words, without any training."""

COLLAPSED = 0.1
"""A control below this share of the untrained retriever's score has collapsed. A test against it is
void, because any retriever that has not collapsed beats it."""

MARGIN = 0.02
"""Of nDCG@10: the low-rate pair counts as no larger difference where it differs by less. Declared
before that pair was measured."""

_WITH_PASSAGES = ", with passages"

Written = Mapping[str, Mapping[str, Sequence[str]]]
"""Passages by writer and query id. A text may be empty: then the query is searched alone."""


# what is compared ---------------------------------------------------------------------------------


def request_of(use: str, query: str, passages: Sequence[str]) -> Request:
    """What one of ``USES`` searches with; without a passage that holds anything, the query."""
    asked = query_alone(query)
    full = [passage for passage in passages if passage.strip()]
    if not full:
        return asked
    texts = tuple(Text(passage, role="passage") for passage in full)
    if use == "mean":
        return Hypotheses((*asked.texts, *texts))
    if use == "passage":
        return Hypotheses(texts)
    if use == "concatenation":
        return Hypotheses((Text(" ".join([query, *full]), role="passage"),))
    return Fusion((asked, Hypotheses(texts)), depth=2 * DEPTH)


def arms_of(
    retriever: str, task: Task, written: Written, hypotheses: Mapping[str, Hypotheses]
) -> list[Arm]:
    """The arms of one retriever on one task: all for the base and the method, few for the rest.

    ``hypotheses`` are the capable writer's H+ and H- by query id.
    """

    def with_passages(use: str, writer: str, count: int = 1) -> Arm:
        def request(qid: str, draw: int) -> Request | None:
            if qid not in written[writer]:
                return None
            return request_of(use, task.queries[qid], written[writer][qid][:count])

        several = f" x {count}" if count > 1 else ""
        return Arm(f"{retriever}, {use}, {writer}{several}", request)

    def contrast(lam: str) -> Arm:
        name = f"{retriever}, contrast@{lam}, capable"
        return Arm(name, lambda qid, draw: hypotheses[qid].by(lam=float(lam)))

    arms = [query_arm(retriever, task)]
    if retriever != BASE and retriever not in SEEDS["slhyde"]:
        return arms + [with_passages("mean", writer) for writer in GENERATED]
    if "capable" in written:
        arms.append(with_passages("mean", "capable", 2))
        arms += [contrast(lam) for lam in LAMBDAS]
    return arms + [with_passages(use, writer) for writer in written for use in USES]


def generated_passages(task: str) -> dict[str, dict[str, list[str]]]:
    """What the small generator wrote for the queries of a task, before and after its tuning:
    passages by writer ("base", "tuned") and query id."""
    found: dict[str, dict[str, list[str]]] = {writer: {} for writer in GENERATED}
    for row in read_texts(f"hyde-{task}"):
        found[row["writer"]].setdefault(row["qid"], []).append(row["passage"])
    return found


def capable_texts(kind: str) -> dict[str, Hypotheses]:
    """What a large language model wrote for BioASQ's questions, by question id: a recorded kind of
    ``lib.studies.real.expansions.KINDS``."""
    llm = recorded()
    requests = {}
    for question in bioasq_questions():
        method = writers_of(KINDS[kind], question)
        with tag(method=method.name, qid=question.qid):
            expansion = method.expand(question, llm, lambda request, k: [])
        requests[question.qid] = expansion.request
    return requests


# what is measured ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trained:
    """What the outcomes depend on. Retrievers are opened one at a time, when they are measured."""

    profile: Profile
    data: Sequence[str]

    def open(self, name: str, task: Task) -> Retriever:
        """A task's passages by ``BASE`` or by the adapter of this name; vectors are cached, so a
        run that was killed goes on."""
        encoder = load_encoder(BASE if name == BASE else f"{BASE}+{name}", precision="float32")
        return open_task(task, encoder, self.profile.vectors, self.profile.backend)


def outcomes(trained: Trained) -> pd.DataFrame:
    """``dataset, arm, qid, metric, value`` of BM25, of all retrievers, and of means over seeds."""
    tables = []
    for name, load in TASKS.items():
        task = load()
        written: dict[str, Mapping] = dict(generated_passages(name))
        hypotheses = {}
        if name == "bioasq":
            hypotheses = capable_texts("hypotheses")
            written["capable"] = {
                qid: [text.text for text in request.of("passage")]
                for qid, request in capable_texts("hyde").items()
            }
        parts = [bm25_values(task, BM25)]
        for retriever in (BASE, *TRAININGS):
            print(f"{name}: {retriever}", file=sys.stderr, flush=True)
            arms = arms_of(retriever, task, written, hypotheses)
            parts.append(task_values(task, trained.open(retriever, task), arms))
        table = over_seeds(pd.concat(parts, ignore_index=True))
        tables.append(table.assign(dataset=name))
    return pd.concat(tables, ignore_index=True)[["dataset", "arm", "qid", "metric", "value"]]


def over_seeds(values: pd.DataFrame) -> pd.DataFrame:
    """``values`` with an arm of its own for the mean over seeds of every arm of ``SEEDS``."""
    parts = [values]
    names = values["arm"].str.partition(",")
    for name, seeds in SEEDS.items():
        renamed = values.assign(arm=name + names[1] + names[2])[names[0].isin(seeds)]
        mean = renamed.groupby(["arm", "qid", "metric"], sort=False)["value"].mean()
        parts.append(mean.reset_index())
    return pd.concat(parts, ignore_index=True)


DEEP = 1000
"""Ranks beyond it count as not found, and 1 / rank as 0."""


def case_ranks(trained: Trained) -> pd.DataFrame:
    """``qid, rank, writer`` of SciFact: where HyDE ("base") and SL-HyDE's first seed ("tuned"), by
    the mean of query and passage, find the first abstract that a claim cites."""
    task = TASKS["scifact"]()
    written = generated_passages("scifact")
    parts = []
    for name, writer in ((BASE, "base"), (SEEDS["slhyde"][0], "tuned")):
        ranks = first_ranks(task, trained.open(name, task), written[writer])
        parts.append(ranks.rename_axis("qid").reset_index().assign(writer=writer))
    return pd.concat(parts, ignore_index=True)


def first_ranks(
    task: Task, retriever: Retriever, passages: Mapping[str, Sequence[str]]
) -> pd.Series:
    """The rank from 1 of the first relevant passage, by query id; ``DEEP`` + 1 if not found."""

    def request(qid: str, draw: int) -> Request:
        return request_of("mean", task.queries[qid], passages[qid])

    (found,) = search_arm(Arm("mean", request), passages, retriever, DEEP)
    ranks = {}
    for qid in passages:
        relevant = [task.qrels[qid].get(pid, 0) > 0 for pid in found.get(qid, [])]
        ranks[qid] = relevant.index(True) + 1 if True in relevant else DEEP + 1
    return pd.Series(ranks, name="rank", dtype=int)


# means and claims ---------------------------------------------------------------------------------


def parts_of(values: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The values by set and part of a set: all queries, those for which a passage was generated
    (on which every arm can be compared), and the two sides of SciFact."""
    parts = {}
    for dataset, group in values.groupby("dataset", sort=False):
        parts[dataset] = group
        generated = group["arm"].str.endswith(", base")
        parts[f"{dataset}{_WITH_PASSAGES}"] = group[group["qid"].isin(group["qid"][generated])]
        if dataset == "scifact":
            side_of = group["qid"].map(folds())
            for side in ("held out", "the others"):
                parts[f"{dataset}, {side}"] = group[side_of == side]
    return parts


def slhyde_table(values: pd.DataFrame, setup: str) -> pd.DataFrame:
    """The mean of every arm on every set and part, in the columns of Table 1, then ``seeds``, how
    many trainings are behind it, and ``spread``, the standard deviation of their means."""
    parts = [part.assign(dataset=name) for name, part in parts_of(values).items()]
    table = means_table(pd.concat(parts), setup)
    means = table.set_index(["dataset", "method", "metric"])["value"]
    seeds, spreads = [], []
    for row in table.itertuples():
        retriever, comma, rest = row.method.partition(",")
        names = SEEDS.get(retriever, ())
        of_seeds = [means[row.dataset, f"{name}{comma}{rest}", row.metric] for name in names]
        seeds.append(max(1, len(names)))
        spreads.append(np.std(of_seeds, ddof=1) if of_seeds else np.nan)
    return table.assign(seeds=seeds, spread=spreads)


def slhyde_claims(values: pd.DataFrame) -> pd.DataFrame:
    """Paired differences, a row each: columns of ``lib.stats.claims``, and ``dataset``.

    A pair is measured on the queries that both arms have. What was declared for a set is primary,
    with Holm's correction over all that were declared, on the whole set alone; its verdict is VOID
    where the control is COLLAPSED. LookupError where a declared arm is missing.
    """
    tables = []
    for dataset, part in parts_of(values).items():
        declared = declared_pairs(dataset, {})
        primary = {(pair.arm, pair.baseline, pair.metric) for pair in declared}
        arms = set(part["arm"])
        others = [
            pair
            for pair in exploratory_pairs()
            if {pair.arm, pair.baseline} <= arms
            and (pair.arm, pair.baseline, pair.metric) not in primary
        ]
        table = claims(part, [*declared, *others])
        base = part[part["arm"] == BASE].groupby("metric")["value"].mean()
        collapsed = table["value_baseline"] < COLLAPSED * table["metric"].map(base)
        table["verdict"] = table["verdict"].mask(collapsed & (table["status"] == "primary"), "VOID")
        table.insert(0, "dataset", dataset)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def exploratory_pairs() -> list[Pair]:
    """The comparisons, a row of ``pairs.csv`` each: training data of retrievers; HyDE and SL-HyDE
    as a whole, with a part left out and used otherwise; and the gain from a capable writer.

    The retriever trained on labels has one seed, so it is compared with the same seed.
    """
    rows = pd.read_csv(Path(__file__).with_name("pairs.csv"))
    return [Pair(row.claim, row.metric, row.arm, row.baseline) for row in rows.itertuples()]


# single claims ------------------------------------------------------------------------------------

CASES = ("the greatest gain", "no change", "the greatest loss")
"""The paper's Tables 7 and 11 show one case of each kind. Ours are those of SciFact with the
greatest, no, and the least change of 1 / rank of the first abstract that the claim cites. A case by
its extreme is no evidence: how many claims rise and fall stands beside them."""


def case_counts(before: pd.Series, after: pd.Series) -> pd.DataFrame:
    """How many queries rose, stayed and fell: columns change, n. Ranks as ``first_ranks`` has."""
    moved = before - after
    counts = {"rose": (moved > 0).sum(), "stayed": (moved == 0).sum(), "fell": (moved < 0).sum()}
    return pd.DataFrame(counts.items(), columns=["change", "n"])


def case_rows(
    queries: Mapping[str, str], before: pd.Series, after: pd.Series, written: Written
) -> pd.DataFrame:
    """One query for each of ``CASES``: case, qid, query, rank_before, rank_after, and what the
    generator wrote before its tuning and after (``base``, ``tuned``; empty where it wrote nothing).

    Ties go to the smaller id; of those that stay, the first by rank is shown, then by id.
    """
    table = pd.DataFrame({"rank_before": before, "rank_after": after}).sort_index()
    reciprocal = (1 / table).where(table <= DEEP, 0.0)
    gain = reciprocal["rank_after"] - reciprocal["rank_before"]
    still = table[table["rank_before"] == table["rank_after"]]
    still = still.sort_values("rank_before", kind="stable").index
    greatest, unchanged, least = CASES
    shown = {greatest: gain.idxmax()}
    if len(still):
        shown[unchanged] = still[0]
    shown[least] = gain.idxmin()
    rows = []
    for case, qid in shown.items():
        row = {"case": case, "qid": qid, "query": queries[qid], **table.loc[qid]}
        rows.append(row | {who: " ".join(written[who].get(qid, ())) for who in GENERATED})
    return pd.DataFrame(rows)


# step by step -------------------------------------------------------------------------------------

_SHOWN = 20


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
        (hits,) = retriever.search_many([query_alone(question.text)], _SHOWN)
        ranks[when] = {pid: rank for rank, pid in enumerate(hits.ids[0].tolist(), 1)}
    best = [pid for when in ("after", "before") for pid, rank in ranks[when].items() if rank <= k]
    rows = []
    for passage in retriever.store.get_many(list(dict.fromkeys(best))):
        row = {"title": passage.title, "source": passage.source}
        row["class"] = class_of(passage.pid, benchmark.targets[qid], benchmark.mimics[qid])
        rows.append(row | {when: of.get(passage.pid) for when, of in ranks.items()})
    columns = ["title", "source", "class", "before", "after"]
    return pd.DataFrame(rows, columns=columns).astype({"before": "Int64", "after": "Int64"})


# the studies --------------------------------------------------------------------------------------


def load(profile: Profile) -> Trained:
    """The files that the outcomes depend on; nothing is opened yet."""
    weights = [f"{ADAPTERS.name}/{name}/{WEIGHTS}" for name in TRAININGS]
    texts = [f"selflearn/{name}.jsonl.gz" for name in ("hyde-scifact", "hyde-bioasq", "passages")]
    recordings = [f"recordings/real-{kind}.jsonl.gz" for kind in ("hyde", "hypotheses")]
    return Trained(profile, [*FILES, *weights, *texts, *recordings, "primary_tests.toml"])


def follow(trained: Trained, values: pd.DataFrame, ranks: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The tables that follow from all outcomes and from ``case_ranks``."""
    setup = f"{trained.profile.name}, {BASE} with and without adapters, exact search"
    of = ranks.pivot(index="qid", columns="writer", values="rank")
    queries, written = TASKS["scifact"]().queries, generated_passages("scifact")
    return {
        "slhyde_table": slhyde_table(values, setup),
        "slhyde_claims": slhyde_claims(values),
        "slhyde_cases": case_rows(queries, of["base"], of["tuned"], written),
        "slhyde_case_counts": case_counts(of["base"], of["tuned"]),
        "slhyde_ranks": chosen_ranks(),
    }


def looks(trained: Trained, made: Mapping[str, pd.DataFrame]) -> list[Look]:
    """The labels of every task's documents."""
    return [
        Look(task, values["qid"], values["arm"], declared=task in primary_tests())
        for task, values in made["slhyde_values"].groupby("dataset", sort=False)
    ]


def _settings(trained: Trained) -> dict[str, Any]:
    return {"encoder": load_encoder(BASE, precision="float32").fingerprint, "limit": None}


STUDY = Study(
    name="slhyde",
    code="lib.studies.slhyde",
    load=load,
    values={"slhyde_values": outcomes, "values_slhyde_cases": case_ranks},
    tables=("slhyde_table", "slhyde_claims", "slhyde_cases", "slhyde_case_counts", "slhyde_ranks"),
    follow=follow,
    looks=looks,
    origin=_settings,
)


def load_cards(profile: Profile) -> Trained:
    """The files that say what each training cost: outcomes do not change with them."""
    names = (*TRAININGS, ADAPTER.name)
    files = [f"{ADAPTERS.name}/{name}/{file}" for name in names for file in (CARD, WEIGHTS)]
    return Trained(profile, files)


_CARD_COLUMNS = ("examples", "negatives", "seed", "minutes", "precision")

COSTS = Study(
    name="slhyde trainings",
    code="lib.studies.slhyde",
    load=load_cards,
    values={},
    tables=("slhyde_trainings",),
    follow=lambda trained: {"slhyde_trainings": cards((*TRAININGS, ADAPTER.name), _CARD_COLUMNS)},
)
"""What each adapter cost; the generator has no negatives."""
