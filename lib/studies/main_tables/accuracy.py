"""The arithmetic of the paper's tables: accuracy and its claims, overlap, cost; and its setup.

Only what ran in the paper's own setup is judged by what the paper prints (``same_setup``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from lib import stats
from lib.datasets import SIZES
from lib.methods import METHODS
from lib.profiles import Profile, methods_of
from lib.report import reported
from lib.stats import Pair, mean_interval, ratio_interval

PAPER_NAMES: dict[str, str] = {
    name: method.paper_name  # type: ignore[attr-defined]
    for name, method in METHODS.items()
    if getattr(method, "paper_name", "")
}
"""Our names of the methods, and the paper's; each method brings its own."""

COSTS = ("calls", "retrieval_rounds", "prompt_tokens", "output_tokens", "latency_s")
"""Of a question's expansion: LLM requests, searches, tokens, seconds of waiting for replies."""
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
    settings (its defaults) and the model ``expander``; where somebody answered, also
    the ``answerer``, by the paper's name, and the model behind it, ``answered_by``.
    """
    same = (
        all(name in SETS and n == SIZES[name] for name, n in asked.items())
        and set(profile.corpora) == _CORPORA
        and not profile.limit
        and profile.encoder == "medcpt"
        and not profile.encoder_options
        and profile.k == 5
        and methods_of(profile).get(method) == METHODS.get(method)
        and _model(expander) == _EXPANDER
    )
    if answerer is None:
        return same
    return same and answerer in ANSWERERS and _model(answered_by) == ANSWERERS[answerer]


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
    right: dict[tuple, dict[str, np.ndarray]] = {}
    for (dataset, *who), of_cell in answers.groupby(["dataset", "reader", "method"], sort=False):
        metrics = _metrics(of_cell)
        for metric, parts in metrics.items():
            rows.append(_row(dataset, who, metric, _share(parts), sum(map(len, parts))))
        right.setdefault(tuple(who), {})[dataset] = metrics["accuracy"][0]
        if chance is not None:
            guessed = mean_interval(_or_guess(of_cell, chance[dataset]))
            rows.append(_row(dataset, who, "accuracy_or_guess", guessed, len(of_cell)))
    for who, by_set in right.items():
        for before, three in whole_benchmarks(by_set).items():
            share = _share([by_set[name] for name in three])
            asked = {name: len(by_set[name]) for name in three}
            row = _row(f"{before} {AVERAGE}".strip(), who, AVERAGE, share, sum(asked.values()))
            rows.append(row | {"asked": asked})
    return pd.DataFrame(rows)


def _row(
    dataset: str, who: Sequence[str], metric: str, interval: Sequence[float], n: int
) -> dict[str, object]:
    """A row of Table 1; what the paper prints stands beside its own metrics alone."""
    reader, method = who
    row = {"dataset": dataset, "answerer": reader, "method": method, "metric": metric}
    row |= dict(zip(("value", "low", "high"), interval, strict=True)) | {"n": n}
    is_printed = metric in ("accuracy", AVERAGE)
    printed = _printed(method, dataset, reader) if is_printed else np.nan
    return row | {"reported": printed, "asked": {dataset: n}}


def _printed(method: str, dataset: str, reader: str) -> float:
    """What Table 1 prints, as a share: for its own answerer, or the mean of its three."""
    rows = reported("table1_accuracy")
    column = {**SETS, AVERAGE: "Avg."}.get(dataset.split()[-1])
    # The paper's Table 1 calls its row "HyDE (H+ only)"; elsewhere HyDE is eight texts.
    name = PAPER_NAMES.get("hyde" if method == "hplus" else method)
    rows = rows[(rows["method"] == name) & (rows["dataset"] == column)]
    of_reader = rows[rows["generator"] == reader]
    return (of_reader if len(of_reader) else rows)["value"].mean() / 100


def _or_guess(answers: pd.DataFrame, chance: float) -> np.ndarray:
    """1 where an answer is right, 0 where it is wrong, ``chance`` where none can be read."""
    letter = answers["letter"].fillna("")
    right = (letter == answers["gold"]).astype(float)
    return right.mask(letter == "", chance).to_numpy()


def _metrics(answers: pd.DataFrame) -> dict[str, list[np.ndarray]]:
    """A metric's hits by its name, a bool a question; for balanced accuracy, by right letter."""
    gold = answers["gold"].to_numpy()
    letter = answers["letter"].fillna("").to_numpy()
    right = letter == gold
    parsed = letter != ""
    hits = {
        "accuracy": [right],
        "accuracy_answered": [right[parsed]],
        "accuracy_mirage": [answers["mirage"].to_numpy() == gold],
        "unparsed": [~parsed],
    }
    if answers["dataset"].iloc[0].split()[-1] == "bioasq":
        hits["yes_rate"] = [letter == "A"]
        hits["balanced_accuracy"] = [right[gold == answer] for answer in np.unique(gold)]
    return hits


def _share(parts: Sequence[np.ndarray]) -> tuple[float, float, float]:
    """The mean of the parts' shares, with its interval."""
    from statsmodels.stats.proportion import proportion_confint

    if not all(map(len, parts)):
        return np.nan, np.nan, np.nan
    shares = np.array([np.mean(hits) for hits in parts])
    low, high = proportion_confint(
        [hits.sum() for hits in parts], [len(hits) for hits in parts], method="wilson"
    )
    down = float(np.linalg.norm(shares - low)) / len(parts)
    up = float(np.linalg.norm(shares - high)) / len(parts)
    value = float(shares.mean())
    return value, max(value - down, 0.0), min(value + up, 1.0)


def claims(answers: pd.DataFrame, contrasts: Sequence[str] = ("chr",)) -> pd.DataFrame:
    """Each method of contrast against every other method, by question set and answerer.

    A pair is there where both were answered from. Columns: dataset, answerer, then those of
    ``lib.stats.claims``. All are exploratory: these questions have been looked at before.
    """
    right = (answers["letter"] == answers["gold"]).astype(float)
    values = answers.assign(arm=answers["method"], metric="right", value=right)
    parts = []
    for (dataset, reader), own in values.groupby(["dataset", "reader"], sort=False):
        measured = set(own["arm"])
        pairs = [
            Pair(f"{arm} > {method}", "right", arm, method)
            for arm in contrasts
            for method in METHODS
            if method not in contrasts and {arm, method} <= measured
        ]
        tested = stats.claims(own, pairs)
        if len(tested):
            tested.insert(0, "answerer", reader)
            tested.insert(0, "dataset", dataset)
            parts.append(tested)
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=_CLAIMS.split())


_CLAIMS = """
dataset answerer claim metric arm against value value_against difference low high p n least
status p_holm verdict
"""


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
    masks = {"all": pd.Series(True, index=table.index)}
    if right is not None:
        a, b = (of_run.reindex(table.index).astype("boolean") for of_run in right)
        masks |= dict(zip(OUTCOMES[1:], (a & b, a & ~b, ~a & b, ~a & ~b), strict=True))
    rows = []
    for outcome, mask in masks.items():
        # A question that one run did not answer is in no outcome but "all".
        questions = table[mask.fillna(False).astype(bool)]
        row = {"outcome": outcome, "n": len(questions)} | questions.mean().to_dict()
        if len(questions):
            for measure in questions:
                _, low, high = mean_interval(questions[measure])
                row |= {f"{measure}_low": low, f"{measure}_high": high}
        rows.append(row)
    return pd.DataFrame(rows)


# cost: Table 3 ------------------------------------------------------------------------------------


def cost_table(expanded: pd.DataFrame) -> pd.DataFrame:
    """Table 3, per question: ``COSTS`` of what a model generated, beside the paper's.

    ``expanded`` are the grid's rows. As in the paper the means are over the exam questions; over
    all where there are none. ``dataset`` names the sets. Reference text has no cost: its rows hold
    calls and rounds alone, and one question that was not measured leaves its method without a mean.
    ``token_reduction`` is HyDE's output tokens divided by the method's. All but ``failed`` have the
    ends of their 95 % interval (``calls_low``, ...). The seconds are those of the machine that
    generated, and of as many requests at a time as it was asked.
    """
    is_exam = expanded["dataset"].str.split().str[-1].isin(EXAMS)
    of_exams = expanded[is_exam] if is_exam.any() else expanded
    by_method = dict(iter(of_exams.groupby("method", sort=False)))
    tokens = {m: t.set_index(["dataset", "qid"])["output_tokens"] for m, t in by_method.items()}
    rows = []
    for method, table in by_method.items():
        row = {"dataset": ", ".join(table["dataset"].unique()), "method": method}
        for cost in COSTS:
            values = table[cost].to_numpy(dtype=float)
            row |= _named(cost, mean_interval(values) if not np.isnan(values).any() else None)
        row |= _named("token_reduction", _reduction(tokens.get("hyde"), tokens[method]))
        rows.append(row | {"n": len(table), "failed": (table["error"].fillna("") != "").sum()})
    measured = [name for cost in (*COSTS, "token_reduction") for name in _named(cost, None)]
    table = pd.DataFrame(rows, columns=["dataset", "method", *measured, "n", "failed"])
    printed = reported("table3_cost").pivot(index="method", columns="metric", values="value")
    names = table["method"].map(PAPER_NAMES)
    for ours, theirs in PRINTED_COSTS.items():
        table[f"reported_{ours}"] = printed[theirs].reindex(names).to_numpy()
    return table


def _named(name: str, interval: Sequence[float] | None) -> dict[str, float]:
    """A mean and the ends of its interval as columns; NaN for a mean that there is not."""
    values = interval or (np.nan, np.nan, np.nan)
    return dict(zip((name, f"{name}_low", f"{name}_high"), values, strict=True))


def _reduction(hyde: pd.Series | None, method: pd.Series) -> Sequence[float] | None:
    """HyDE's mean tokens over the method's, with its 95 % bootstrap interval over the questions
    of both; None where either was not measured on one of them, or wrote nothing."""
    if hyde is None:
        return None
    both = pd.DataFrame({"hyde": hyde, "method": method}).dropna()
    if len(both) < max(len(hyde), len(method)) or not both["method"].sum():
        return None
    return ratio_interval(both["hyde"].to_numpy(), both["method"].to_numpy())
