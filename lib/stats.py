"""Retrieval measured per question, with intervals and paired tests.

What is retrieved is counted in four classes: *target* (relevant to the answer), *both* (target and
mimic), *mimic*, *neither*. Contamination alone flatters a method that leaves the topic, so
``neither`` (off-topic) always stands beside it.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd

CLASSES = ("target", "both", "mimic", "neither")
METRICS = (
    "p_at_5",
    "hit_at_5",
    "ndcg_at_10",
    "mrr",
    "recall_at_10",
    "target_at_5",
    "both_at_5",
    "mimic_at_5",
    "neither_at_5",
)
"""Per-question metrics. ``<class>_at_5`` is the share of the top five in that class, so the four
add up to 1 (less where fewer than five came back); p_at_5 = target + both."""


def measure(
    retrieved: Mapping[str, Sequence[str]],
    targets: Mapping[str, Collection[str]],
    mimics: Mapping[str, frozenset[str]],
    k: int = 5,
) -> pd.DataFrame:
    """One row per question of ``targets`` (index qid), columns ``METRICS``, values in [0, 1].

    ``retrieved[qid]`` lists passage ids, best first; a question that is missing there scores 0.
    P@k, hit@k, nDCG@10, reciprocal rank and recall@10 come from ir-measures (gains 0/1, or those of
    targets that map ids to grades); with another ``k`` the "5" of the column names is that k.
    """
    import ir_measures as ir
    from ir_measures import RR, P, R, Success, nDCG

    names = dict(zip((P @ k, Success @ k, nDCG @ 10, RR, R @ 10), METRICS, strict=False))
    qrels = {q: gains(pids) for q, pids in targets.items() if pids}
    # Scores are minus the rank: the measures must not re-break ties that the index has broken.
    run = {q: {p: -i for i, p in enumerate(pids)} for q, pids in retrieved.items() if q in qrels}
    rows = {q: dict.fromkeys(METRICS, 0.0) for q in targets}
    for row in ir.iter_calc(list(names), qrels, run):
        rows[row.query_id][names[row.measure]] = row.value
    for qid, row in rows.items():
        for pid in list(retrieved.get(qid, ()))[:k]:
            row[f"{class_of(pid, targets[qid], mimics.get(qid, ()))}_at_5"] += 1 / k
    return pd.DataFrame.from_dict(rows, orient="index", columns=list(METRICS)).rename_axis("qid")


def gains(targets: Collection[str]) -> Mapping[str, int]:
    """What each relevant passage counts: its grade where targets have grades, else 1."""
    return targets if isinstance(targets, Mapping) else dict.fromkeys(sorted(targets), 1)


def ceiling(targets: Mapping[str, frozenset[str]], k: int = 5) -> float:
    """The mean P@k that a perfect ranking would have: min(k, relevant) / k."""
    return float(np.mean([min(k, len(pids)) / k for pids in targets.values()]))


def compare(tables: Mapping[str, pd.DataFrame], k: int, best: float) -> pd.DataFrame:
    """One row per name: means of the metrics, P@k with its interval and ceiling, n."""
    rows = [{"method": name} | summary(table) for name, table in tables.items()]
    shown = ["method", "p_at_5", "p_at_5_low", "p_at_5_high", "hit_at_5", "ndcg_at_10", "mrr"]
    return pd.DataFrame(rows)[[*shown, "n"]].assign(ceiling=best, k=k)


def class_of(pid: str, target: Container[str], mimic: Container[str]) -> str:
    """The class of a passage, given those on the target and those on the mimic."""
    if pid in target:
        return "both" if pid in mimic else "target"
    return "mimic" if pid in mimic else "neither"


def mean_interval(values: np.ndarray, *, seed: int = 0) -> tuple[float, float, float]:
    """Mean with its 95 % percentile bootstrap interval over questions: (mean, low, high)."""
    values = np.asarray(values, dtype=np.float64)
    if len(values) == 0:
        raise ValueError("no questions to average")
    drawn = resampled_sums(values, seed=seed) / len(values)
    low, high = np.percentile(drawn, [2.5, 97.5])
    return float(values.mean()), float(low), float(high)


def resampled_sums(values: np.ndarray, draws: int = 2000, seed: int = 0) -> np.ndarray:
    """Sums over n rows drawn again with replacement, shape (draws, ...); ``values`` (n, ...)."""
    return _drawn_counts(len(values), draws, seed) @ values


@lru_cache(maxsize=8)
def _drawn_counts(n: int, draws: int, seed: int) -> np.ndarray:
    """How often each draw has each row, (draws, n). Drawn once: it takes far longer than a sum."""
    counts = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=draws)
    return counts.astype(np.float64)


def auroc(positive: np.ndarray, scores: np.ndarray) -> float:
    """The share of (positive, negative) couples in the right order, ties half.

    ``positive`` bool (n,), ``scores`` float (n,). NaN without both kinds. It is computed from
    ranks: sklearn's takes milliseconds to check its input, and a bootstrap asks a thousand times.
    """
    from scipy.stats import rankdata

    positives = positive.sum()
    negatives = (~positive).sum()
    if not positives or not negatives:
        return float("nan")
    wins = rankdata(scores)[positive].sum() - positives * (positives + 1) / 2
    return float(wins / (positives * negatives))


def auroc_interval(
    positive: np.ndarray,
    scores: np.ndarray,
    group_of: Sequence[str],
    *,
    draws: int = 1000,
    seed: int = 0,
) -> tuple[float, float]:
    """The 95 % bootstrap interval of the AUROC, resampling whole groups with replacement.

    Draws that lack one kind are left out. (NaN, NaN) where the whole lacks one.
    """
    if positive.all() or not positive.any():
        return float("nan"), float("nan")
    names, group = np.unique(list(group_of), return_inverse=True)
    rng = np.random.default_rng(seed)
    drawn = [rng.integers(0, len(names), len(names)) for _ in range(draws)]
    order = np.argsort(scores, kind="stable")
    ties = np.flatnonzero(np.diff(scores[order], prepend=np.nan))  # where a new score begins
    found = []
    for chosen in drawn:
        weight = np.bincount(chosen, minlength=len(names))[group[order]]
        positives = np.add.reduceat(weight * positive[order], ties)
        negatives = np.add.reduceat(weight * ~positive[order], ties)
        couples = positives.sum() * negatives.sum()
        if couples:  # else there is nothing to rank
            below = np.cumsum(negatives) - negatives / 2
            found.append((positives * below).sum() / couples)
    low, high = np.percentile(found, [2.5, 97.5])
    return float(low), float(high)


def ratio_interval(over: np.ndarray, under: np.ndarray) -> tuple[float, float, float]:
    """sum(over) / sum(under) with its 95 % bootstrap interval over rows; both (n,).

    Draws in which ``under`` is 0 are left out.
    """
    drawn = resampled_sums(np.stack([over, under], axis=1))
    drawn = drawn[drawn[:, 1] > 0]
    low, high = np.percentile(drawn[:, 0] / drawn[:, 1], [2.5, 97.5])
    return float(np.sum(over) / np.sum(under)), float(low), float(high)


def paired(
    a: np.ndarray, b: np.ndarray, *, tested: bool = True, resamples: int = 9999, seed: int = 0
) -> dict[str, float]:
    """Mean of a - b over the same questions, 95 % bootstrap interval, and a two-sided p-value.

    p is from the sign-flip permutation test: exact where outcomes take few values (right or
    wrong, shares of five, means of some draws), else by scipy's resampling. NaN where
    the difference is not to be ``tested``.
    ``mde`` is the smallest mean difference this n would have shown at 5 % with 80 % power
    (2.8 standard errors).
    """
    difference = np.asarray(a, np.float64) - np.asarray(b, np.float64)
    mean, low, high = mean_interval(difference, seed=seed)
    p = _flipped_p(difference, resamples, seed) if tested else np.nan
    error = np.nan
    if len(difference) > 1:
        error = difference.std(ddof=1) / np.sqrt(len(difference))
    return {
        "difference": mean,
        "low": low,
        "high": high,
        "p": p,
        "n": len(difference),
        "mde": float(2.8 * error),
    }


_FINEST = 100
"""The exact test needs steps of at least 1/100, as means of 20 shares of five have."""

_ROUNDED = 1e-3
"""How far a difference may be from a multiple of its unit: results hold three decimals."""

_MOST_STEPS = 200_000
"""The widest exact distribution: it takes half a second for 618 questions."""


def _steps(difference: np.ndarray) -> np.ndarray | None:
    """Differences as whole numbers of their common unit; None where outcomes take many values."""
    for parts in range(1, _FINEST + 1):
        steps = np.round(parts * difference)
        if np.allclose(difference, steps / parts, rtol=0, atol=1.001 * _ROUNDED):
            return steps.astype(int) if np.abs(steps).sum() <= _MOST_STEPS else None
    return None


def sign_flip_p(steps: np.ndarray) -> float:
    """Exact two-sided p of sum(steps) if each sign is a fair coin flip; whole numbers (n,).

    The distribution of the sum is built step by step. With steps of 0 and 1 it is McNemar's test.
    """
    chances = np.ones(1)  # of the sums so far, the lowest first
    for size in np.sort(np.abs(steps)):
        grown = np.zeros(len(chances) + 2 * size)
        grown[: len(chances)] += chances / 2
        grown[2 * size :] += chances / 2
        chances = grown
    reach = len(chances) // 2
    tail = chances[: reach - abs(int(steps.sum())) + 1].sum()
    return min(1.0, 2 * float(tail))


def mcnemar_p(wins: int, losses: int) -> float:
    """Exact two-sided p of McNemar's test: could a fair coin have split wins and losses so?"""
    return sign_flip_p(np.repeat([1, -1], [wins, losses]))


def _flipped_p(difference: np.ndarray, resamples: int, seed: int) -> float:
    """Two-sided p of mean(difference) if the sign of each is a fair coin flip."""
    from scipy.stats import permutation_test

    steps = _steps(difference)
    if steps is not None:
        return sign_flip_p(steps)
    if len(difference) < 2:
        return 1.0  # exact for a single question too, which scipy refuses
    found = permutation_test(
        (difference,),
        lambda x, axis: np.round(x.mean(axis=axis), 12),  # rounded, so that ties tie
        permutation_type="samples",
        vectorized=True,
        n_resamples=resamples,
        rng=np.random.default_rng(seed),
    )
    return float(found.pvalue)


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Holm-adjusted p-values of one family of tests (statsmodels)."""
    from statsmodels.stats.multitest import multipletests

    return multipletests(np.asarray(p_values, dtype=float), method="holm")[1]


def judged(table: pd.DataFrame, sign: float | pd.Series = 1.0) -> np.ndarray:
    """SUPPORTED or AGAINST at 5 % after Holm (``p_holm``), else INCONCLUSIVE, in every table alike.

    ``sign`` is the direction in which ``difference`` was expected. TOO FEW where n < 6: no p-value
    of a paired test can be below 0.05 there.
    """
    right = np.sign(table["difference"]) == sign
    clear = np.where(right, "SUPPORTED", "AGAINST")
    found = np.where(table["p_holm"] < 0.05, clear, "INCONCLUSIVE")
    return np.where(table["n"] < 6, "TOO FEW", found)


def summary(table: pd.DataFrame) -> dict[str, float]:
    """Means of all metrics, P@5 with its interval, contamination and n, as result files hold them.

    ``contamination_at_5`` is the share of the top five on the mimic and not on the target;
    ``contamination_ratio`` divides by what is on either topic (it also falls when retrieval leaves
    the topic, which ``neither_at_5`` shows).
    """
    mean, low, high = mean_interval(table["p_at_5"].to_numpy())
    row = {"p_at_5": mean, "p_at_5_low": low, "p_at_5_high": high}
    row |= {m: float(table[m].mean()) for m in METRICS if m != "p_at_5"}
    row["contamination_at_5"] = row["mimic_at_5"]
    topical = row["target_at_5"] + row["both_at_5"] + row["mimic_at_5"]
    row["contamination_ratio"] = row["mimic_at_5"] / topical if topical else float("nan")
    return row | {"n": len(table)}


# do two judges say the same? ----------------------------------------------------------------------


def agreement_table(said: pd.DataFrame, between: str) -> pd.DataFrame:
    """Kappa and raw agreement of two judges, label by label.

    ``said`` has a row an item and label: label, group, weight, one, two (what either said, yes or
    no). ``between`` names the judges in the table. Columns: check, label, value, low, high, n; the
    interval resamples groups.
    """
    made = []
    for label, rows in said.groupby("label", sort=True):
        one, two = rows["one"].to_numpy(bool), rows["two"].to_numpy(bool)
        cells = np.stack([one & two, one & ~two, ~one & two, ~one & ~two], axis=1)
        weighted = pd.DataFrame(cells * rows["weight"].to_numpy()[:, None])
        counts = weighted.groupby(rows["group"].to_numpy()).sum().to_numpy(float)
        drawn = resampled_sums(counts, 1000)
        for name, measured in (("kappa", _kappa), ("agreement", _agreement)):
            low, high = np.percentile([measured(c) for c in drawn if c.sum()], [2.5, 97.5])
            row = {"check": f"{name} of {between}", "label": label}
            row |= {"value": measured(counts.sum(axis=0)), "low": low, "high": high}
            made.append(row | {"n": len(rows)})
    return pd.DataFrame(made)


def _kappa(table: np.ndarray) -> float:
    """Cohen's kappa of a 2 x 2 table (4,): yes of both, of the first, of the second, of neither."""
    both, first, second, neither = table / table.sum()
    yes = (both + first) * (both + second)
    chance = yes + (1 - both - first) * (1 - both - second)
    return float((both + neither - chance) / (1 - chance)) if chance < 1 else 1.0


def _agreement(table: np.ndarray) -> float:
    return float((table[0] + table[3]) / table.sum())


# one long table of outcomes, one function that tests ----------------------------------------------


@dataclass(frozen=True)
class Pair:
    """Two arms to compare on one metric. ``sign`` is the direction in which arm > against points.

    A ``primary`` pair was declared before its first run; only such a pair gets a p-value and a
    verdict. Any other is exploratory: an interval, and nothing is concluded from it alone.
    """

    claim: str
    metric: str
    arm: str
    baseline: str
    sign: float = 1.0
    primary: bool = False


def long_values(arm: str, table: pd.DataFrame) -> pd.DataFrame:
    """``arm, qid, metric, value``: the rows of a per-question table (index qid), one a metric."""
    long = table.rename_axis("qid").reset_index().melt("qid", var_name="metric")
    long.insert(0, "arm", arm)
    return long


def claims(values: pd.DataFrame, pairs: Iterable[Pair]) -> pd.DataFrame:
    """Every pair as one paired test over the questions that both arms have, a row each.

    ``values`` has columns ``arm, qid, metric, value``. Columns: claim, metric, arm, baseline,
    value, value_baseline, difference, low, high, p, n, mde, status, p_holm, verdict. Holm is over
    the primary pairs; exploratory ones have an interval, and neither p nor a verdict. The order of
    the rows does not matter. Raises LookupError for an arm and metric that nobody measured,
    ValueError for a question that one arm has twice.
    """
    outcomes = values.set_index(["arm", "metric"]).sort_index()
    rows = []
    for pair in pairs:
        one, other = (_outcome(outcomes, arm, pair.metric) for arm in (pair.arm, pair.baseline))
        one, other = one.align(other, join="inner")
        if one.empty:
            raise LookupError(f"{pair.arm} and {pair.baseline} share no question")
        row = {"claim": pair.claim, "metric": pair.metric, "arm": pair.arm}
        row |= {"baseline": pair.baseline, "value": one.mean(), "value_baseline": other.mean()}
        row |= paired(one.to_numpy(), other.to_numpy(), tested=pair.primary)
        status = "primary" if pair.primary else "exploratory"
        rows.append(row | {"status": status, "sign": pair.sign})
    table = pd.DataFrame(rows)
    if table.empty:
        return table
    primary = table["status"] == "primary"
    table["p_holm"] = np.nan
    table["verdict"] = ""
    if primary.any():
        table.loc[primary, "p_holm"] = holm(table.loc[primary, "p"])
        declared = table[primary]
        table.loc[primary, "verdict"] = judged(declared, declared["sign"])
    return table.drop(columns="sign")


def _outcome(outcomes: pd.DataFrame, arm: str, metric: str) -> pd.Series:
    if (arm, metric) not in outcomes.index:
        raise LookupError(f"nobody measured {metric} of {arm}")
    found = outcomes.loc[[(arm, metric)]]
    found = found.set_index("qid")["value"].dropna()
    twice = found.index[found.index.duplicated()]
    if len(twice):
        raise ValueError(f"{arm} has {metric} of {twice[0]} twice")
    # By id: resampling draws by position, so the order of a file would move intervals and p.
    return found.sort_index()
