"""What the titles say: sentences made from the tables that are drawn, so that they hold.

A student who changes lambda, k or the profile gets another sentence, never a false one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from lib.plots.labels import label_of
from lib.report import pivot, pooled


def moved(before: float, after: float) -> str:
    """From one value to another: "falls from 0.31 to 0.16", "stays at 0.31"."""
    first, last = f"{before:.2f}", f"{after:.2f}"
    if first == last:
        return f"stays at {first}"
    return f"{'rises' if after > before else 'falls'} from {first} to {last}"


def _at(curves: pd.DataFrame, name: str, lam: float, column: str = "p_at_5", by: str = "family"):
    """One arm's value at one lambda, missing where it was not measured."""
    rows = curves[(curves[by] == name) & np.isclose(curves["lambda"], lam)]
    return rows[column].iloc[0] if len(rows) else np.nan


def contrast(curves: pd.DataFrame, k: int, by: str = "family", where: str = "") -> str:
    """What the paper's lambda does to P@k, and what the matched rotation does.

    ``where`` follows P@k, such as " on BioASQ".
    """
    alone, one = _at(curves, "chr", 0, by=by), _at(curves, "chr", 1, by=by)
    turned = _at(curves, "chr+rotation", 1, by=by)
    told = f"At λ = 1 P@{k}{where} {moved(alone, one)}"
    return told if np.isnan(turned) else f"{told}; a turn as large with a wrong mimic: {turned:.2f}"


def nearest(curves: pd.DataFrame, lam: float) -> float:
    """The lambda above 0 nearest to ``lam`` at which the controls were measured too."""
    measured = curves.loc[(curves["family"] == "chr+rotation") & (curves["lambda"] > 0), "lambda"]
    return min(measured, key=lambda at: abs(at - lam))


def on_the_mimic(curves: pd.DataFrame, k: int, lam: float) -> str:
    """How much of the top k is on the mimic, at the measured lambda nearest to the reader's."""
    near = nearest(curves, lam)
    told = []
    for name in ("chr", "chr+rotation"):
        share, precise = (_at(curves, name, near, column) for column in ("mimic_at_5", "p_at_5"))
        told.append(f"{label_of(name)} has {share:.1%} on the mimic at P@{k} {precise:.2f}")
    return f"At λ = {near:g} {'; '.join(told)}".replace("%", " %")


def forms(curves: pd.DataFrame, k: int) -> str:
    """Which way to use the mimic keeps most at the paper's lambda, beside CHR and H+ alone."""
    one = curves[np.isclose(curves["lambda"], 1)].set_index("family")["p_at_5"]
    best, alone = one.idxmax(), _at(curves, "chr", 0)
    return (
        f"At λ = 1 {label_of(best)} keeps P@{k} {one[best]:.2f}, plain CHR {one['chr']:.2f}; "
        f"H+ alone has {alone:.2f}"
    )


def parts(curves: pd.DataFrame, k: int) -> str:
    """P@k of all questions and of each part, from H+ alone to the paper's lambda."""
    told = []
    for name in dict.fromkeys(curves["label"]):
        alone, one = (_at(curves, name, lam, by="label") for lam in (0, 1))
        told.append(f"{'all' if name == 'chr' else name} {alone:.2f} to {one:.2f}")
    return f"P@{k} from λ = 0 to 1: {'; '.join(told)}"


def sets(curves: pd.DataFrame, studies: Sequence[str], k: int) -> str:
    """P@k of contrast from H+ alone to the paper's lambda, on each of some studies."""
    told = []
    for name in studies:
        own = curves[curves["study"] == name]
        told.append(f"{name} {moved(_at(own, 'chr', 0), _at(own, 'chr', 1))}")
    return f"At λ = 1 P@{k} of {'; '.join(told)}"


def best_lambdas(reported: pd.DataFrame, measured: Mapping[str, pd.DataFrame], k: int) -> str:
    """At which lambda the paper's accuracy is highest, and P@k on each set here."""
    stated = reported[reported["kind"] == "exact"].astype({"lambda": float, "value": float})
    paper = stated.loc[stated["value"].idxmax(), "lambda"]
    here = []
    for name, rows in measured.items():
        best = rows.loc[rows["p_at_5"].idxmax(), "lambda"]
        here.append(f"{best:g} ({name})")
    return f"The paper's accuracy is highest at λ = {paper:g}; P@{k} here at λ = {_listed(here)}"


def changes(spectrum: pd.DataFrame, k: int) -> str:
    """How often the top k changes as lambda grows."""
    often = spectrum.groupby("question").size() - 1
    few, many = often.min(), often.max()
    times = f"{few}" if few == many else f"{few} to {many}"
    return f"Up to λ = {spectrum['end'].max():g} the top {k} changes {times} times, no more"


def exchanged(table: pd.DataFrame, k: int) -> str:
    """What exchanging the most pairs costs, without contrast and at the paper's lambda."""
    most = table["wrong"].max()
    told = []
    for lam in (0.0, 1.0):
        own = table[np.isclose(table["lambda"], lam)].set_index("wrong")["p_at_5"]
        told.append(moved(own[0.0], own[most]))
    share = f"{most:.0%}".replace("%", " %")
    return f"With {share} of the pairs exchanged P@{k} of H+ alone {told[0]}; at λ = 1 it {told[1]}"


def reader_over_lambda(table: pd.DataFrame) -> str:
    """Means over the sets from H+ alone to the paper's lambda: right answers, and P@k."""
    told = []
    for metric, rows in table.groupby("metric", sort=False):
        means = rows.groupby("lambda")["value"].mean()
        told.append(f"{metric} {moved(means[0.0], means[1.0])}")
    return f"From λ = 0 to 1, means of the sets: {'; '.join(told)}"


def chr_and_hplus(table: pd.DataFrame, measure: str) -> str:
    """On how many sets CHR at the paper's lambda is above H+ alone, and both means.

    Where several readers answered, each set counts once a reader.
    """
    keys = [key for key in ("dataset", "answerer") if key in table]
    wide = pivot(table, keys, "method")
    both = wide.reindex(columns=["chr", "hplus"]).dropna()
    if both.empty:
        return f"{measure}: CHR or H+ alone was not run"
    above, below = (both["chr"] > both["hplus"]).sum(), (both["chr"] < both["hplus"]).sum()
    several = len(both) > both.index.get_level_values("dataset").nunique()
    cells = "pairs of set and reader" if several else "sets"
    where = f"above that of H+ alone on {above} of {len(both)} {cells}"
    if len(both) in (above, below):
        every = {1: "", 2: f" on both {cells}"}.get(len(both), f" on all {len(both)} {cells}")
        where = f"{'above' if above else 'below'} that of H+ alone{every}"
    means = f"{both['chr'].mean():.2f} against {both['hplus'].mean():.2f}"
    return f"{measure} of CHR at λ = 1 is {where} ({means}{', means' * (len(both) > 1)})"


def overlap(table: pd.DataFrame, k: int) -> str:
    """How many of its top k CHR shares with H+ alone, and HyDE with itself."""
    means = pooled(table, ["count"])["count"]
    if "hplus" not in means:
        return f"Passages of {k} shared with CHR: H+ alone was not run"
    told = f"CHR at λ = 1 shares {means['hplus']:.1f} of {k} passages with H+ alone"
    if "noise floor" not in means:
        return told
    return f"{told}; HyDE shares {means['noise floor']:.1f} with itself, from other samples"


def cost(table: pd.DataFrame, x: str, unit: str, measure: str) -> str:
    """The method with the highest value and what it costs, beside CHR."""
    points = table.dropna(subset=[x, "value"]).set_index("method")
    if points.empty or "chr" not in points.index:
        return f"{measure} against {unit}"
    best, ours = points.loc[points["value"].idxmax()], points.loc["chr"]
    return (
        f"{label_of(best.name)} has the highest {measure}, {best['value']:.2f} for "
        f"{best[x]:,.0f} {unit}; CHR has {ours['value']:.2f} for {ours[x]:,.0f}"
    )


def cosines(boxes: Mapping[str, Sequence[float]]) -> str:
    """How near H- lies to H+: the first way to choose the mimic, and the last."""
    first, *_, last = boxes
    near, far = np.median(boxes[first]), np.median(boxes[last])
    return f"Median c: {near:.2f} for the {first} mimic, {far:.2f} for {last}"


def tiers(table: pd.DataFrame) -> str:
    """Accuracy of CHR in the first two tiers, and whether their intervals overlap.

    ``table``: rows of one grader and measure, columns tier, value, low, high, n.
    """
    graded = table[table["n"] > 0].set_index("tier")
    if len(graded) < 2:
        return "Mimics of one tier only"
    (_, high), (_, low) = list(graded.iterrows())[:2]
    overlap = high["low"] <= low["high"] and low["low"] <= high["high"]
    return (
        f"CHR is right on {high['value']:.0%} of questions with mimics graded {high.name}, on "
        f"{low['value']:.0%} with {low.name}: the intervals {'' if overlap else 'do not '}overlap"
    ).replace("%", " %")


def clear_of_zero(table: pd.DataFrame, what: str) -> str:
    """How many intervals of differences lie above zero, and how many below."""
    above, below = int((table["low"] > 0).sum()), int((table["high"] < 0).sum())
    return f"{what}: of {len(table)} intervals {above} lie above zero, {below} below"


def controls(rows: pd.DataFrame) -> str:
    """Contrast minus the matched rotation at each lambda; rows of ``control_rows``."""
    own = rows[rows["label"] == "CHR − matched rotation"]
    told = [
        f"{d:+.2f} at λ = {lam:g}" for d, lam in zip(own["difference"], own["lam"], strict=True)
    ]
    return f"CHR minus the matched rotation: {_listed(told)}".replace("-", "−")


def contradiction(table: pd.DataFrame) -> str:
    """What the paper's lambda does to the model's CNT; rows of ``contradiction_mimics``."""
    one = table[(table["measure"] == "cnt") & (table["arm"] == "chr@1")].iloc[0]
    return f"At λ = 1 the model's CNT {moved(one['value_against'], one['value'])}"


def baselines(table: pd.DataFrame, k: int) -> str:
    """What the question alone retrieves: columns method, p_at_5."""
    told = [f"{row.method} {row.p_at_5:.2f}" for row in table.itertuples()]
    return f"P@{k} of the question alone: {_listed(told)}"


def counts_of(verdicts: pd.Series) -> str:
    """Verdicts of declared tests, each with how often it was given."""
    counted = verdicts.value_counts()
    return f"Of {len(verdicts)} declared tests {_listed(f'{n} {v}' for v, n in counted.items())}"


def _listed(words) -> str:
    """Words as a list: "a, b and c"."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
