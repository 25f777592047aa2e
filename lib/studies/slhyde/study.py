"""SL-HyDE measured: every retriever, every way of searching, on SciFact and BioASQ, and the claims.

``slhyde_results`` makes the tables of ``TABLES`` and keeps them as results of a profile. Four
tests on SciFact are primary (``data/primary_tests.toml``), one of them void because its control
collapsed; all others are exploratory and get an interval without p and verdict, those on BioASQ
because the set had been looked at before. Three seeds
stand behind "slhyde" and "shuffled": a query's outcome is its mean over them, and the spread of the
three means stands beside the interval, which is over queries alone. Who was trained with one seed
is compared with the same seed, not with the mean of three.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from lib.base.provenance import make_all_or_reuse, make_or_reuse, read_result, write_result
from lib.data.looks import note_look
from lib.embed import load_encoder
from lib.model_files import ADAPTERS, CARD, WEIGHTS, cards
from lib.profiles import Profile, load_profile
from lib.stats import Pair, claims, long_values, mean_interval
from lib.studies.slhyde.cases import case_counts, case_rows, first_ranks
from lib.studies.slhyde.cmirb import measure_task
from lib.studies.slhyde.evaluate import (
    HOW,
    Arm,
    bm25_run,
    capable_hypotheses,
    capable_passages,
    generated_passages,
    open_task,
    task_values,
)
from lib.studies.slhyde.tasks import FILES, TASKS, asked, folds
from lib.studies.slhyde.trained import (
    ADAPTER,
    BASE,
    CARD_COLUMNS,
    NOT_FOUND,
    PASSAGES,
    TRAININGS,
    read_texts,
)
from lib.study import COLUMNS, declared_pairs, primary_tests

TABLES = (
    "slhyde_values",
    "slhyde_table",
    "slhyde_claims",
    "slhyde_trainings",
    "slhyde_cases",
    "slhyde_case_counts",
    "slhyde_ranks",
)
"""Every outcome; means in the form of Table 1; paired differences; what each training cost; single
claims and how many rise and fall; and the ranks by which the generator's passages were chosen."""

RANKS = "values_slhyde_cases"
"""At which rank either way finds the first abstract that a claim of SciFact cites."""

SEEDS = {
    "slhyde": ("slhyde-query", "slhyde-query-1", "slhyde-query-2"),
    "shuffled": ("slhyde-shuffled", "slhyde-shuffled-1", "slhyde-shuffled-2"),
}
"""What is averaged over seeds, under which name."""

GENERATED = ("base", "tuned")
LAMBDAS = ("0", "0.4", "1")

BM25 = "bm25"
"""The arm that searches by words, without any training."""

METHOD, HYDE = "slhyde, mean, tuned", f"{BASE}, mean, base"
"""SL-HyDE as a whole, and HyDE with neither side trained."""

PRINTED = {
    BM25: "BM25",
    BASE: "BGE(large)",
    HYDE: "HyDE",
    METHOD: "SL-HyDE",
    "slhyde, passage, tuned": "w/ D.",
    "slhyde, concatenation, tuned": "w/ con.",
    f"{BASE}, mean, tuned": "w/o BGE-FT",
    "slhyde, mean, base": "w/o Qwen-FT",
}
"""Our arms by what stands in their place in Tables 2, 5, 6 and 12 of the paper: other models,
another language, other sets. "w/ K-D." has five passages; here only the capable writer has two."""

COLLAPSED = 0.1
"""A control that finds less than this share of what the untrained retriever finds is broken, and a
test against it void: whatever is not broken beats it."""

MARGIN = 0.02
"""Of nDCG@10: the low-rate pair was to differ by less to be called no larger difference. Written
down before that pair was measured."""

RIGHT_LOW, DISORDER_LOW = "slhyde-query-low", "slhyde-shuffled-low"
"""The same pairs, right and in disorder, learnt from at a rate at which the latter ruin nothing."""

_NDCG = "ndcg_at_10"
_RECALL = "recall_at_100"
_WITH_PASSAGES = ", with passages"


def arms_of(retriever: str, task: str) -> list[Arm]:
    """The arms of one retriever on one task: all for the base and the method, few for the rest."""
    arms = [Arm(retriever)]
    if retriever != BASE and retriever not in SEEDS["slhyde"]:
        return arms + [Arm(retriever, "mean", writer) for writer in GENERATED]
    writers = GENERATED
    if task == "bioasq":
        writers = (*GENERATED, "capable")
        arms.append(Arm(retriever, "mean", "capable", passages=2))
        arms += [Arm(retriever, f"contrast@{lam}", "capable") for lam in LAMBDAS]
    for writer in writers:
        arms += [Arm(retriever, how, writer) for how in HOW if how != "query"]
    return arms


def slhyde_values(task_name: str, retrievers: Sequence[str], profile: Profile) -> pd.DataFrame:
    """``dataset, arm, qid, metric, value`` of BM25, of retrievers, and of the means over seeds.

    ``retrievers``: ``BASE`` or names of adapters. What an encoder makes of the task's passages is
    cached, so a run that was killed goes on.
    """
    task = TASKS[task_name]()
    written = generated_passages(task_name)
    hypotheses = {}
    if task_name == "bioasq":
        questions = asked()
        written["capable"] = capable_passages(questions)
        hypotheses = capable_hypotheses(questions)
    parts = [long_values(BM25, measure_task(bm25_run(task), task.qrels))]
    for name in retrievers:
        print(f"{task_name}: {name}", file=sys.stderr, flush=True)
        encoder = load_encoder(BASE if name == BASE else f"{BASE}+{name}", precision="float32")
        retriever = open_task(task, encoder, profile.vectors, profile.backend)
        arms = arms_of(name, task_name)
        parts.append(task_values(task, retriever, arms, written, hypotheses))
    values = over_seeds(pd.concat(parts, ignore_index=True), task_name)
    values.insert(0, "dataset", task_name)
    return values


def over_seeds(values: pd.DataFrame, task: str) -> pd.DataFrame:
    """``values`` with an arm of its own for the mean over seeds of every arm that all have."""
    parts = [values]
    there = set(values["arm"])
    for name, seeds in SEEDS.items():
        for arm in arms_of(seeds[0], task):
            own = [replace(arm, retriever=seed).name for seed in seeds]
            if there >= set(own):
                rows = values[values["arm"].isin(own)]
                mean = rows.groupby(["qid", "metric"], sort=False)["value"].mean().reset_index()
                mean.insert(0, "arm", replace(arm, retriever=name).name)
                parts.append(mean)
    return pd.concat(parts, ignore_index=True)


def parts_of(values: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The values by set and part of a set: all queries, those for which a passage was generated
    (on which every arm can be compared), and the two sides of SciFact."""
    parts = {}
    for dataset, own in values.groupby("dataset", sort=False):
        parts[dataset] = own
        generated = own["arm"].str.endswith(", base")
        parts[f"{dataset}{_WITH_PASSAGES}"] = own[own["qid"].isin(own["qid"][generated])]
        if dataset == "scifact":
            side_of = own["qid"].map(folds())
            for side in sorted(set(folds().values())):
                parts[f"{dataset}, {side}"] = own[side_of == side]
    return {name: part for name, part in parts.items() if len(part)}


def slhyde_table(values: pd.DataFrame, setup: str) -> pd.DataFrame:
    """The mean of every arm on every set and part, in the columns of Table 1, then ``seeds``, how
    many trainings are behind it, and ``spread``, the standard deviation of their means."""
    rows = []
    for dataset, part in parts_of(values).items():
        means = part.groupby(["arm", "metric"])["value"].mean()
        for (arm, metric), own in part.groupby(["arm", "metric"], sort=False):
            # By id: resampling draws by position, so the order of rows would move intervals.
            outcomes = own.sort_values("qid")["value"].to_numpy()
            value, low, high = mean_interval(outcomes)
            row = {"dataset": dataset, "method": arm, "metric": metric, "value": value}
            row |= {"low": low, "high": high, "n": len(own)}
            of_seeds = [means[name, metric] for name in _each_seed(arm)]
            spread = float(np.std(of_seeds, ddof=1)) if len(of_seeds) > 1 else np.nan
            rows.append(row | {"seeds": max(len(of_seeds), 1), "spread": spread})
    table = pd.DataFrame(rows).assign(answerer="", setup=setup, options_visible=False)
    table = table.assign(reported=np.nan, verdict="")
    return table[[*COLUMNS, "seeds", "spread"]]


def _each_seed(arm: str) -> list[str]:
    """The arms that a mean over seeds is made of; none for any other arm."""
    retriever, comma, rest = arm.partition(",")
    return [f"{seed}{comma}{rest}" for seed in SEEDS.get(retriever, ())]


def slhyde_claims(values: pd.DataFrame) -> pd.DataFrame:
    """Paired differences, a row each: columns of ``lib.stats.claims``, and ``dataset``.

    A pair is measured on the queries that both arms have. What was declared for a set is primary,
    with Holm's correction over all that were declared, on the whole set alone; its verdict is VOID
    where the control is COLLAPSED. Others have no p. LookupError where a declared arm is missing.
    """
    tables = []
    for dataset, part in parts_of(values).items():
        declared = declared_pairs(dataset, {})
        named = {(pair.arm, pair.against, pair.metric) for pair in declared}
        there = set(part["arm"])
        others = [
            pair
            for pair in _pairs()
            if {pair.arm, pair.against} <= there
            and (pair.arm, pair.against, pair.metric) not in named
        ]
        tables.append(_voided(claims(part, [*declared, *others]), part).assign(dataset=dataset))
    found = pd.concat(tables, ignore_index=True)
    return found[["dataset", *(column for column in found if column != "dataset")]]


def _voided(table: pd.DataFrame, part: pd.DataFrame) -> pd.DataFrame:
    """Tests as they are stored: VOID against a broken control, no p where nothing was declared."""
    base = part[part["arm"] == BASE].groupby("metric")["value"].mean()
    declared = table["status"] == "primary"
    broken = table["value_against"] < COLLAPSED * table["metric"].map(base)
    table["verdict"] = table["verdict"].mask(declared & broken, "VOID")
    table["p"] = table["p"].where(declared)
    return table


def _pair(claim: str, arm: str, against: str, metric: str = _NDCG) -> Pair:
    return Pair(claim, metric, arm, against)


def _pairs() -> list[Pair]:
    """What is compared with what: on nDCG@10, and on Recall@100 what Table 12 compares."""
    return [*_retriever_pairs(), *_method_pairs(), *_capable_pairs()]


def _retriever_pairs() -> list[Pair]:
    """What a retriever learnt from, searched with the query alone."""
    return [
        _pair("the encoder is better than BM25", BASE, BM25),
        _pair("the encoder is better than BM25", BASE, BM25, _RECALL),
        _pair("self-learning helps the retriever", "slhyde", BASE),
        _pair("self-learning helps the retriever", "slhyde", BASE, _RECALL),
        _pair("pairs in disorder help the retriever", "shuffled", BASE),
        _pair("what helps is what belongs together", "slhyde", "shuffled"),
        _pair("so it is at a rate that ruins nothing", RIGHT_LOW, DISORDER_LOW),
        _pair("at that rate the right pairs help", RIGHT_LOW, BASE),
        _pair("at that rate pairs in disorder help", DISORDER_LOW, BASE),
        _pair("labels help the retriever", "slhyde-supervised", BASE),
        _pair("pairs with labels in disorder help", "slhyde-supervised-shuffled", BASE),
        # Labels were learnt from with one seed, so they are held against the same seed.
        _pair("labels are better than self-written queries", "slhyde-supervised", "slhyde-query"),
        _pair("mined negatives are better than random ones", "slhyde-query", "slhyde-random"),
        _pair("all pairs are better than half", "slhyde-query", "slhyde-half"),
        _pair("half of the pairs are better than a quarter", "slhyde-half", "slhyde-quarter"),
    ]


def _method_pairs() -> list[Pair]:
    """HyDE and SL-HyDE as a whole, without one of its parts, and used in another way."""
    disorder = "SL-HyDE is better than with a retriever that learnt from pairs in disorder"
    mean, labelled = "slhyde-mean, mean, tuned", "slhyde-supervised, mean, tuned"
    specs = [how for how in HOW if how not in ("query", "mean")]
    return [
        _pair("HyDE is better than the query", HYDE, BASE),
        _pair("SL-HyDE is better than HyDE", METHOD, HYDE),
        _pair("SL-HyDE is better than the query", METHOD, BASE),
        _pair("SL-HyDE is better than its retriever with the query", METHOD, "slhyde"),
        _pair(disorder, METHOD, "shuffled, mean, tuned"),
        _pair("SL-HyDE is better than without its retriever", METHOD, f"{BASE}, mean, tuned"),
        _pair("SL-HyDE is better than without its generator", METHOD, "slhyde, mean, base"),
        _pair("trained on the mean it is better", mean, "slhyde-half, mean, tuned"),
        _pair("labels are better than SL-HyDE", labelled, "slhyde-query, mean, tuned"),
        *(
            _pair(f"the mean is better than the way {how}", METHOD, f"slhyde, {how}, tuned")
            for how in specs
        ),
    ]


def _capable_pairs() -> list[Pair]:
    """With what a capable writer wrote: its passages, and its hypotheses under contrast."""
    capable, tuned = f"{BASE}, mean, capable", "slhyde, mean, capable"
    pairs = [
        _pair("a capable writer is better than the query", capable, BASE),
        _pair("a capable writer is better than the small one", capable, HYDE),
        _pair("self-learning helps with a capable writer", tuned, capable),
        _pair("two passages are better than one", f"{capable} x 2", capable),
    ]
    for retriever in (BASE, "slhyde"):
        plain = f"{retriever}, contrast@{LAMBDAS[0]}, capable"
        for lam in LAMBDAS[1:]:
            subtracted = f"{retriever}, contrast@{lam}, capable"
            pairs.append(_pair(f"contrast at {lam} is better than H+ alone", subtracted, plain))
    for lam in LAMBDAS:
        arm = f"contrast@{lam}, capable"
        pairs.append(_pair(f"self-learning helps at {lam}", f"slhyde, {arm}", f"{BASE}, {arm}"))
    return pairs


def slhyde_results(profile: Profile) -> dict[str, pd.DataFrame]:
    """``TABLES`` by name, kept as results of the profile; what is stored and holds is reused.

    Needs the adapters of ``TRAININGS`` and the generated passages; FileNotFoundError names what is
    missing.
    """
    origin = _origin()

    def measured() -> pd.DataFrame:
        names = (BASE, *TRAININGS)
        parts = []
        for task in TASKS:
            table = slhyde_values(task, names, profile)
            declared = task in primary_tests()
            note_look("slhyde", task, table["qid"], profile.name, table["arm"], declared)
            parts.append(table)
        return pd.concat(parts, ignore_index=True)

    values = make_or_reuse(measured, TABLES[0], profile.name, dear=True, **origin)
    ranks = make_or_reuse(lambda: _case_ranks(profile), RANKS, profile.name, dear=True, **origin)
    setup = f"{profile.name}, {BASE} with and without adapters, exact search"

    def told() -> dict[str, pd.DataFrame]:
        tables = (
            slhyde_table(values, setup),
            slhyde_claims(values),
            cards((*TRAININGS, ADAPTER.name), CARD_COLUMNS),
            *_cases(ranks),
            chosen_ranks(read_texts("passages")),
        )
        return dict(zip(TABLES[1:], tables, strict=True))

    # These also say what each training cost; the outcomes do not change with it.
    names = (*TRAININGS, ADAPTER.name)
    printed = [_of_adapter(name, file) for name in names for file in (CARD, WEIGHTS)]
    with_cards = origin | {"data": sorted({*origin["data"], *printed})}
    rest = make_all_or_reuse(told, TABLES[1:], profile.name, **with_cards)
    return {TABLES[0]: values} | rest


def _origin() -> dict[str, Any]:
    """What the outcomes depend on, as ``make_or_reuse`` takes it."""
    weights = [_of_adapter(name, WEIGHTS) for name in TRAININGS]
    generated = [f"selflearn/hyde-{task}.jsonl.gz" for task in TASKS]
    generated.append("selflearn/passages.jsonl.gz")
    recordings = [f"recordings/real-{kind}.jsonl.gz" for kind in ("hyde", "hypotheses")]
    files = sorted({file for own in FILES.values() for file in own})
    return {
        "code": ["lib.studies.slhyde"],
        "data": [*files, *weights, *generated, *recordings, "primary_tests.toml"],
        "encoder": load_encoder(BASE, precision="float32").fingerprint,
    }


def _of_adapter(name: str, file: str) -> str:
    """A file of a shipped adapter, below the data folder."""
    return f"{ADAPTERS.name}/{name}/{file}"


def _case_ranks(profile: Profile) -> pd.DataFrame:
    """``qid, writer, rank`` of SciFact: by HyDE ("base") and by SL-HyDE's first seed ("tuned")."""
    task = TASKS["scifact"]()
    written = generated_passages("scifact")
    parts = []
    for name, writer in ((BASE, "base"), (f"{BASE}+{SEEDS['slhyde'][0]}", "tuned")):
        encoder = load_encoder(name, precision="float32")
        retriever = open_task(task, encoder, profile.vectors, profile.backend)
        ranks = first_ranks(task, retriever, written[writer])
        parts.append(ranks.rename_axis("qid").reset_index().assign(writer=writer))
    return pd.concat(parts, ignore_index=True)


def _cases(ranks: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Single claims and how many rise and fall, from ``_case_ranks``."""
    of = {writer: own.set_index("qid")["rank"] for writer, own in ranks.groupby("writer")}
    both = of["base"], of["tuned"]
    return case_rows(TASKS["scifact"](), *both, generated_passages("scifact")), case_counts(*both)


def chosen_ranks(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """At which rank a document is found by its query and by each passage written for it.

    ``rows`` are those of ``data/selflearn/passages.jsonl.gz``. Columns: searched_with, mrr, first
    (the share at rank 1), not_found (beyond 1,000), n. The last row is the passage that was chosen,
    which is the best of three by its making, so it is no fair comparison with one.
    """
    ranks = {"the query alone": [row["query_rank"] for row in rows]}
    for i in range(PASSAGES):
        ranks[f"query and passage {i + 1}"] = [row["ranks"][i] for row in rows]
    ranks["query and the chosen passage"] = [row["ranks"][row["chosen"]] for row in rows]
    found = []
    for name, own in ranks.items():
        of = np.array(own, float)
        row = {"searched_with": name, "mrr": (1 / of).mean(), "first": (of == 1).mean()}
        found.append(row | {"not_found": (of >= NOT_FOUND).mean(), "n": len(of)})
    return pd.DataFrame(found)


def add(profile: Profile, retrievers: Sequence[str]) -> None:
    """Measure these retrievers alone, and keep their outcomes among those that are stored.

    Stored after each task, so that a run that is killed loses one at most. What is stored of others
    stays as it is; so none may be behind a mean over ``SEEDS``.
    """
    for task in TASKS:
        for name in retrievers:
            values, _ = read_result(TABLES[0], profile.name)
            new = slhyde_values(task, [name], profile)
            note_look("slhyde", task, new["qid"], profile.name, new["arm"])
            both = [own[_is_of(own, name) == kept] for own, kept in ((values, False), (new, True))]
            others_too = values[_is_of(values, name) & (values["dataset"] != task)]
            together = pd.concat([both[0], others_too, both[1]], ignore_index=True)
            write_result(together, TABLES[0], profile.name, **_origin())


def _is_of(values: pd.DataFrame, retriever: str) -> pd.Series:
    return values["arm"].str.partition(",")[0] == retriever


def main() -> None:
    """``python -m lib.studies.slhyde.study [--profile open] [--add NAME ...]``: the tables, and
    what they say; with ``--add`` these retrievers are measured first, and no others."""
    parser = argparse.ArgumentParser(prog="python -m lib.studies.slhyde.study")
    parser.add_argument("--profile", default="open")
    alone = set(TRAININGS).difference(*SEEDS.values())
    parser.add_argument("--add", nargs="+", default=[], metavar="NAME", choices=sorted(alone))
    given = parser.parse_args()
    profile = load_profile(given.profile)
    if given.add:
        add(profile, given.add)
    tables = slhyde_results(profile)
    print(tables[TABLES[2]].to_string(index=False))


if __name__ == "__main__":
    main()
