"""The arithmetic of the paper's tables: accuracy and its claims, overlap, cost; and its setup.

Only what ran in the paper's own setup is judged by what the paper prints (``same_setup``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from lib import stats
from lib.datasets import SIZES
from lib.methods import METHODS
from lib.methods.base import Method
from lib.profiles import Profile, load_profile, methods_of
from lib.report import reported
from lib.stats import Pair, mean_interval, ratio_interval

IN_TABLE_3 = "_table3"
"""How the profile ``paper`` ends the name of a method in the budget of the paper's Table 3, where
that is not the original's."""
PAPER_NAMES: dict[str, str] = {
    f"{name}{budget}": method.paper_name  # type: ignore[attr-defined]
    for budget in ("", IN_TABLE_3)
    for name, method in METHODS.items()
    if getattr(method, "paper_name", "")
}
"""Our names of the methods, and the paper's; each method brings its own."""

COSTS = ("calls", "retrieval_rounds", "prompt_tokens", "output_tokens", "latency_s")
"""Of a question's expansion: texts asked for, searches, tokens, seconds of waiting for replies. The
paper counts HyDE's eight texts as eight calls, though some servers are asked for all at once."""
MEASURED = (*COSTS, "token_reduction")
"""What a table of costs has an interval of."""
PRINTED_COSTS = {
    "calls": "llm_calls",
    "output_tokens": "output_tokens",
    "token_reduction": "token_reduction_vs_hyde",
}
"""The columns of Table 3 that the paper prints, and what they are called among its numbers."""

AVERAGE = "average"
"""The metric, and the last word of the set, of what Table 1 calls Avg."""

# the paper's setup: section 4.2 names all of this -------------------------------------------------

SETS = {"mmlu": "MMLU-Med", "medqa": "MedQA-US", "bioasq": "BioASQ-Y/N"}
"""The paper's question sets: ours, and what its Table 1 calls them."""
EXAMS = ("mmlu", "medqa")
"""The sets that its Table 3 averages over."""
ANSWERERS = {
    "Llama-3-8B-Instruct": "meta-llama-3-8b-instruct",
    "Qwen2.5-7B-Instruct": "qwen2.5-7b-instruct",
    "Gemma-2-9B-It": "gemma-2-9b-it",
}
"""Its generators, and their names on the model hub in lower case, without the owner."""
_CORPORA = {"pubmed", "textbooks", "wikipedia", "statpearls"}
_EXPANDER = "qwen2.5-72b-instruct"
_PLACES = ("device", "batch_size", "processes")
"""Options of an encoder that say how it runs, not what it reads."""
_TOWERS = {"query_model": "MedCPT-Query-Encoder", "article_model": "MedCPT-Article-Encoder"}


def same_setup(
    profile: Profile,
    asked: Mapping[str, int],
    *,
    expander: str,
    method: str,
    answerer: str | None = None,
    answered_by: str = "",
) -> bool:
    """Whether a number of ``method`` comes from the paper's setup.

    Compared are questions (``asked``: how many of each set), corpora, encoder, k, the method's
    settings (the profile ``paper``'s; of two budgets that of Table 3) and the model ``expander``;
    where somebody answered, also the ``answerer``, by the paper's name, and the model behind it,
    ``answered_by``.
    """
    same = (
        all(name in SETS and n == SIZES[name] for name, n in asked.items())
        and set(profile.corpora) == _CORPORA
        and not profile.limit
        and _encodes_as_published(profile)
        and profile.k == 5
        and methods_of(profile).get(method) == _of_paper().get(method)
        and f"{method}{IN_TABLE_3}" not in _of_paper()
        and _model(expander) == _EXPANDER
    )
    if answerer is None:
        return same
    return same and answerer in ANSWERERS and _model(answered_by) == ANSWERERS[answerer]


@cache
def _of_paper() -> dict[str, Method]:
    return methods_of(load_profile("paper"))


def _encodes_as_published(profile: Profile) -> bool:
    """MedCPT, on whatever device, from the hub or from folders that are called like its towers."""
    options = {
        name: value for name, value in profile.encoder_options.items() if name not in _PLACES
    }
    towers = all(_TOWERS.get(name) == Path(str(value)).name for name, value in options.items())
    return profile.encoder == "medcpt" and towers


def _model(name: str) -> str:
    """A model's name without its owner, in lower case."""
    return name.rpartition("/")[2].lower()


def whole_benchmarks(datasets: Iterable[str]) -> dict[str, list[str]]:
    """The sets that stand for the paper's three, in its order, by what comes before their names.

    "" for the benchmark itself, "ddx-mini" for the three of ddx-mini; only where all three are.
    """
    datasets = list(datasets)
    found = {}
    for before in dict.fromkeys(dataset.rpartition(" ")[0] for dataset in datasets):
        three = [f"{before} {name}".strip() for name in SETS]
        if set(three) <= set(datasets):
            found[before] = three
    return found


# accuracy: Table 1 --------------------------------------------------------------------------------


def accuracy_table(
    answers: pd.DataFrame, chance: Mapping[str, float] | None = None
) -> pd.DataFrame:
    """Table 1 in long form, a value a row: dataset, answerer, method, metric, value, low, high, n.

    ``answers`` are the grid's, one row a question. Metrics: accuracy (a reply that cannot be read
    is wrong), accuracy_answered (without those), accuracy_mirage (MIRAGE's parser), unparsed, for
    yes/no sets yes_rate and balanced_accuracy, and accuracy_or_guess (what cannot be read counts as
    ``chance``, by set, where that is given); intervals are Wilson's, for balanced accuracy joined
    from those of the two recalls (Newcombe's square and add).

    Where a reader answered all three sets of the paper there is their ``average``, as Table 1 has
    it: each set counts once. Beside each: ``reported``, what the paper prints, as a share,
    and ``asked``, the number of questions by set.
    """
    rows = []
    for (dataset, reader, method), cell in answers.groupby(
        ["dataset", "reader", "method"], sort=False
    ):
        row = {"dataset": dataset, "answerer": reader, "method": method}
        row["asked"] = {dataset: len(cell)}
        for metric, parts in _metrics(cell).items():
            n = sum(map(len, parts))
            rows.append(row | {"metric": metric} | _share(parts) | {"n": n})
        if chance is not None:
            guessed = mean_interval(_or_guess(cell, chance[dataset]))
            interval = dict(zip(("value", "low", "high"), guessed, strict=True))
            rows.append(row | {"metric": "accuracy_or_guess"} | interval | {"n": len(cell)})
    for (reader, method), cells in answers.groupby(["reader", "method"], sort=False):
        by_set = dict(iter(cells.groupby("dataset", sort=False)))
        for before, three in whole_benchmarks(by_set).items():
            parts = [is_right(by_set[name]) for name in three]
            asked = {name: len(by_set[name]) for name in three}
            row = {"dataset": f"{before} {AVERAGE}".strip(), "answerer": reader, "method": method}
            row |= {"asked": asked, "metric": AVERAGE}
            rows.append(row | _share(parts) | {"n": sum(asked.values())})
    columns = ["dataset", "answerer", "method", "asked", "metric", "value", "low", "high", "n"]
    table = pd.DataFrame(rows, columns=columns)
    table["reported"] = [
        printed(row.dataset, row.method, row.answerer)
        if row.metric in ("accuracy", AVERAGE)
        else np.nan
        for row in table.itertuples()
    ]
    return table


def printed(dataset: str, method: str, answerer: str) -> float:
    """What Table 1 prints, as a share: for its own answerer, or the mean of its three; NaN where it
    prints nothing."""
    rows = reported("table1_accuracy")
    column = {**SETS, AVERAGE: "Avg."}.get(dataset.split()[-1])
    # The paper's Table 1 calls its row "HyDE (H+ only)"; elsewhere HyDE is eight texts.
    name = PAPER_NAMES.get("hyde" if method == "hplus" else method)
    rows = rows[(rows["method"] == name) & (rows["dataset"] == column)]
    of_reader = rows[rows["generator"] == answerer]
    return (of_reader if len(of_reader) else rows)["value"].mean() / 100


def is_right(answers: pd.DataFrame, column: str = "letter") -> np.ndarray:
    """Whether each answer is right, bool (n,): ``gold`` has all right letters, such as "AC"."""
    pairs = zip(answers[column].fillna(""), answers["gold"], strict=True)
    return np.array([bool(letter) and letter in gold for letter, gold in pairs], dtype=bool)


def _or_guess(answers: pd.DataFrame, chance: float) -> np.ndarray:
    """1 where an answer is right, 0 where it is wrong, ``chance`` where none can be read."""
    unread = answers["letter"].fillna("") == ""
    return np.where(unread, chance, is_right(answers).astype(float))


def _metrics(answers: pd.DataFrame) -> dict[str, list[np.ndarray]]:
    """A metric's hits by its name, a bool a question; for balanced accuracy, by right letter."""
    gold, right = answers["gold"].to_numpy(), is_right(answers)
    letter = answers["letter"].fillna("").to_numpy()
    parsed = letter != ""
    hits = {
        "accuracy": [right],
        "accuracy_answered": [right[parsed]],
        "accuracy_mirage": [is_right(answers, "mirage")],
        "unparsed": [~parsed],
    }
    if answers["dataset"].iloc[0].split()[-1] == "bioasq":
        hits["yes_rate"] = [letter == "A"]
        hits["balanced_accuracy"] = [right[gold == answer] for answer in np.unique(gold)]
    return hits


def _share(parts: Sequence[np.ndarray]) -> dict[str, float]:
    """The mean of the parts' shares, ``value``, and its interval, ``low`` and ``high``."""
    from statsmodels.stats.proportion import proportion_confint

    if not all(map(len, parts)):
        return dict.fromkeys(("value", "low", "high"), np.nan)
    shares = np.array([np.mean(hits) for hits in parts])
    low, high = proportion_confint(
        [hits.sum() for hits in parts], [len(hits) for hits in parts], method="wilson"
    )
    value = float(shares.mean())
    down = float(np.linalg.norm(shares - low)) / len(parts)
    up = float(np.linalg.norm(shares - high)) / len(parts)
    return {"value": value, "low": max(value - down, 0.0), "high": min(value + up, 1.0)}


_CLAIMS = ["dataset", "answerer", "claim", "metric", "arm", "baseline", "value", "value_baseline"]
_CLAIMS += ["difference", "low", "high", "p", "n", "mde", "status", "p_holm", "verdict"]


def claims(
    answers: pd.DataFrame,
    contrasts: Sequence[str] = ("chr",),
    methods: Iterable[str] = tuple(METHODS),
) -> pd.DataFrame:
    """Each method of contrast against every other of ``methods``, by question set and answerer.

    A pair is there where both were answered from. Columns: dataset, answerer, then those of
    ``lib.stats.claims``. All are exploratory: these questions have been looked at before.
    """
    values = answers.assign(arm=answers["method"], metric="right", value=is_right(answers) * 1.0)
    parts = []
    for (dataset, reader), group in values.groupby(["dataset", "reader"], sort=False):
        measured = set(group["arm"])
        others = [name for name in methods if name in measured and name not in contrasts]
        pairs = [
            Pair(f"{arm} > {method}", "right", arm, method)
            for arm in contrasts
            if arm in measured
            for method in others
        ]
        parts.append(stats.claims(group, pairs).assign(dataset=dataset, answerer=reader))
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    return table.reindex(columns=_CLAIMS)


# overlap: Table 2 ---------------------------------------------------------------------------------

OUTCOMES = ("all", "both right", "only the first right", "only the second right", "both wrong")
"""Rows of an overlap table; the last four partition the questions."""


def rbo(a: Sequence[str], b: Sequence[str], p: float = 0.9) -> float:
    """Rank-biased overlap of two lists, extrapolated from the shorter depth (Webber et al. 2010).

    1 for equal lists, 0 where nothing is shared, as with an empty list; p weighs the first ranks.
    """
    depth = min(len(a), len(b))
    if not depth:
        return 0.0
    shared = [len(set(a[:d]) & set(b[:d])) / d for d in range(1, depth + 1)]
    weights = p ** np.arange(1, depth + 1)
    return float(shared[-1] * p**depth + (1 - p) / p * np.dot(shared, weights))


def overlap(a: Sequence[str], b: Sequence[str], k: int) -> dict[str, float]:
    """Shared passages of two top-k lists: count, fraction of k, jaccard, zero (none), rbo.

    Two empty lists share nothing.
    """
    a, b = list(a)[:k], list(b)[:k]
    count, union = len(set(a) & set(b)), len(set(a) | set(b))
    return {
        "count": count,
        "fraction": count / k,
        "jaccard": count / max(union, 1),
        "zero": float(count == 0),
        "rbo": rbo(a, b),
    }


def overlap_table(
    first: Mapping[str, Sequence[str]],
    second: Mapping[str, Sequence[str]],
    k: int,
    right: tuple[pd.Series, pd.Series] | None = None,
) -> pd.DataFrame:
    """Mean overlap of two runs ({qid: passage ids}) by outcome: outcome, n, count, fraction, ...,
    and of each of these the ends of its 95 % interval (``count_low``, ``count_high``, ...).

    The paper looks only at questions that CHR answers and HyDE does not, and prints a "mean overlap
    ratio" that can only be a mean count. The questions are those of ``first``. ``right`` are the
    right answers (bool by qid) from the first and the second run's passages; without them only the
    row "all" is there. An outcome without questions has n = 0.
    """
    table = pd.DataFrame({q: overlap(first[q], second.get(q, ()), k) for q in first}).T
    groups = {"all": table}
    if right is not None:
        # A question that one run did not answer is in no outcome but "all".
        both = pd.DataFrame({"first": right[0], "second": right[1]}).dropna()
        both = both.reindex(table.index.intersection(both.index)).astype(bool)
        a, b = both["first"], both["second"]
        for outcome, mask in zip(OUTCOMES[1:], (a & b, a & ~b, ~a & b, ~a & ~b), strict=True):
            groups[outcome] = table.loc[both.index[mask]]
    rows = []
    for outcome, group in groups.items():
        row = {"outcome": outcome, "n": len(group)} | group.mean().to_dict()
        for measure in group if len(group) else ():
            _, row[f"{measure}_low"], row[f"{measure}_high"] = mean_interval(group[measure])
        rows.append(row)
    return pd.DataFrame(rows)


# cost: Table 3 ------------------------------------------------------------------------------------


def cost_table(expanded: pd.DataFrame) -> pd.DataFrame:
    """Table 3, per question: ``COSTS`` of what a model generated, beside the paper's.

    ``expanded`` are the grid's rows. As in the paper the means are over the exam questions; over
    all where there are none. ``dataset`` names the sets, ``asked`` counts their questions.
    Reference text has no cost: its rows hold calls and rounds alone, and one question that was not
    measured leaves its method without a mean.
    ``token_reduction`` is HyDE's output tokens divided by the method's. All but ``failed`` have the
    ends of their 95 % interval (``calls_low``, ...). The seconds are those of the machine that
    generated, and of as many requests at a time as it was asked.
    """
    is_exam = expanded["dataset"].str.split().str[-1].isin(EXAMS)
    of_exams = expanded[is_exam] if is_exam.any() else expanded
    by_method = dict(iter(of_exams.groupby("method", sort=False)))
    printed = reported("table3_cost").pivot(index="method", columns="metric", values="value")
    measured = [f"{cost}{end}" for cost in MEASURED for end in ("", "_low", "_high")]
    rows = []
    for method, table in by_method.items():
        intervals = {}
        for cost in COSTS:
            values = table[cost].to_numpy(dtype=float)
            intervals[cost] = mean_interval(values) if not np.isnan(values).any() else _NOTHING
        intervals["token_reduction"] = _reduction(by_method.get("hyde"), table)
        row = {"dataset": ", ".join(table["dataset"].unique()), "method": method}
        row |= dict(zip(measured, np.concatenate([*intervals.values()]), strict=True))
        row |= {"n": len(table), "failed": (table["error"].fillna("") != "").sum()}
        row["asked"] = table["dataset"].value_counts().to_dict()
        name = PAPER_NAMES.get(method)
        for ours, theirs in PRINTED_COSTS.items():
            row[f"reported_{ours}"] = printed[theirs].get(name, np.nan)
        rows.append(row)
    names = [*measured, "n", "failed", "asked", *(f"reported_{cost}" for cost in PRINTED_COSTS)]
    return pd.DataFrame(rows, columns=["dataset", "method", *names])


_NOTHING = (np.nan, np.nan, np.nan)
"""The mean and interval of what was not measured."""


def _reduction(hyde: pd.DataFrame | None, method: pd.DataFrame) -> Sequence[float]:
    """HyDE's mean tokens over the method's, with its 95 % bootstrap interval over the questions
    of both; ``_NOTHING`` where either was not measured on one of them, or wrote nothing."""
    if hyde is None:
        return _NOTHING
    keys = ["dataset", "qid"]
    both = hyde[[*keys, "output_tokens"]].merge(method[[*keys, "output_tokens"]], on=keys).dropna()
    tokens = both["output_tokens_x"].to_numpy(), both["output_tokens_y"].to_numpy()
    if len(both) < max(len(hyde), len(method)) or not tokens[1].sum():
        return _NOTHING
    return ratio_interval(*tokens)
