"""Figures that only one notebook has: tables brought into the form of a picture, and odd shapes."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from lib.plots.captions import caption, nearest
from lib.plots.labels import (
    COLOURS,
    GREY,
    colour_of,
    colours_of,
    in_order,
    in_order_of_arms,
    label_of,
    method_label,
    names_of,
)
from lib.plots.primitives import (
    P_AT_5,
    draw_line,
    plot_curves,
    plot_dots,
    plot_heatmap,
)
from lib.plots.style import (
    SMALL,
    WIDTH,
    count_label,
    headline,
    label_ends,
    mark_lambdas,
    pyplot,
    spread,
)
from lib.stats import CLASSES

# tables as pictures take them ---------------------------------------------------------------------


def named_rows(table: pd.DataFrame, column: str, kind: str) -> pd.DataFrame:
    """The rows whose ``column`` has a label of this kind, in its order, with ``row`` and colour."""
    labels, colours = names_of(kind), colours_of(kind)
    place = {key: number for number, key in enumerate(labels)}
    rows = table[table[column].isin(labels)]
    rows = rows.sort_values(column, key=lambda keys: keys.map(place), kind="stable")
    rows = rows.assign(row=rows[column].map(labels))
    return rows.assign(colour=rows[column].map(colours)) if colours else rows


def control_rows(claims: pd.DataFrame, dev: float | None = None) -> pd.DataFrame:
    """Of all comparisons those of contrast and its controls at one lambda, a panel a lambda.

    ``claims``: arm, against, metric and what ``plot_differences`` needs; of P@k alone. Columns
    ``panel`` and ``label`` are added. The lambda that ``dev`` chose is called so.
    """
    plain = ("chr", "chr+rotation", "chr+stranger")
    family, _, at = (claims["arm"].str.partition("@")[part] for part in range(3))
    baseline = claims["baseline"].str.partition("@")[0]
    controls = family.isin(plain) & baseline.isin(["hplus", "question", *plain[1:]])
    with_question = (family == "chr+question1") & (baseline == "hplus+question1")
    fixed = (claims["metric"] == "p_at_5") & at.str.fullmatch(r"[\d.]+")
    wanted = (controls | with_question) & fixed
    rows = claims[wanted].assign(lam=at[wanted].astype(float))
    # What the question adds is compared where plain contrast is.
    shared = set(rows.loc[rows["arm"].str.startswith("chr@"), "lam"])
    rows = rows[rows["lam"].isin(shared)]
    whose = {1.0: ", the paper's"} | ({dev: ", dev's"} if dev else {})
    labels = family[rows.index].map(label_of) + " − " + baseline[rows.index].map(label_of)
    panels = rows["lam"].map(lambda lam: f"λ = {lam:g}{whose.get(lam, '')}")
    return rows.assign(panel=panels, label=labels).sort_values("lam", kind="stable")


def dev_lambdas(choices: pd.DataFrame) -> dict[str, float]:
    """The lambda that dev chose for each family of arms that has one, from a table of choices.

    ``choices``: form, arm, lambda. What was chosen for one mimic holds for plain contrast and for
    all its controls.
    """
    fixed = choices.dropna(subset="lambda")
    chosen = dict(zip(fixed["arm"].str.partition("@")[0], fixed["lambda"], strict=True))
    one = fixed.loc[fixed["form"] == "one mimic", "lambda"].iloc[0]
    plain = ("chr", "chr+rotation", "chr+stranger", "chr+by_name", "chr+middle")
    return chosen | dict.fromkeys(plain, one)


# the main tables ----------------------------------------------------------------------------------

NOBODY = "no reader"
"""The answerer of rows without a reader, such as the commonest letter."""


def plot_methods(table: pd.DataFrame, xlabel: str, title: str, lam: float):
    """A dot with its interval for every method, a panel a question set.

    ``table``: dataset, method, value, low, high, n, and ``answerer`` where several answered: each
    has a colour then. A set on which nobody was asked is named below as NOT RUN. ``lam`` is the
    lambda of the rows ``chr_given``.
    """
    rows = method_rows(table, lam)
    if "answerer" in rows:
        asked = set(rows.loc[rows["answerer"] != NOBODY, "dataset"])
        missing = [name for name in in_order(rows["dataset"]) if name not in asked]
        xlabel += f"; NOT RUN: {', '.join(missing)}" if missing else ""
        rows = rows[rows["dataset"].isin(asked)]
        if rows["answerer"].nunique() > 2:
            rows = rows.drop(columns="colour").assign(series=rows["answerer"])
    return plot_dots(rows, title, xlabel)


def method_rows(rows: pd.DataFrame, lam: float) -> pd.DataFrame:
    """Rows with their colours, sets and methods in the order of all figures, methods by name."""
    methods = in_order_of_arms(rows["method"], rows["method"])
    names = {method: method_label(method, lam) for method in methods}
    return rows.assign(
        colour=rows["method"].map(COLOURS).fillna(GREY),
        panel=pd.Categorical(rows["dataset"], in_order(rows["dataset"])),
        row=pd.Categorical(rows["method"].map(names), list(names.values())),
    )


_READ = ("all questions", "a target was found", "none was found")


def reading_rows(table: pd.DataFrame) -> pd.DataFrame:
    """A reader's accuracy by what was retrieved: of all questions, and with and without a target.

    ``table``: study, arm, accuracy, low, high, n, accuracy_found, accuracy_not_found. Columns:
    panel, row, series, value, low, high, n, arm.
    """
    family, _, at = (table["arm"].str.partition("@")[part] for part in range(3))
    lam = pd.to_numeric(at, errors="coerce").fillna(0)
    place = family.map(in_order_of_arms(family, family).index)
    table = table.assign(place=place, lam=lam).sort_values(["place", "lam"], kind="stable")
    table = table.assign(panel=table["study"], row=table["arm"].map(label_of), series=_READ[0])
    parts = [table.rename(columns={"accuracy": "value"})]
    for series, column in zip(_READ[1:], ("accuracy_found", "accuracy_not_found"), strict=True):
        split = table.drop(columns=["accuracy", "low", "high"]).rename(columns={column: "value"})
        parts.append(split.assign(series=series, low=np.nan, high=np.nan))
    columns = ["panel", "row", "series", "value", "low", "high", "n", "arm"]
    rows = pd.concat([part[columns] for part in parts], ignore_index=True)
    rows["row"] = pd.Categorical(rows["row"], list(dict.fromkeys(rows["row"])))
    return rows.dropna(subset="value")


def plot_cost(table: pd.DataFrame, x: str, xlabel: str, ylabel: str, title: str, log: bool = False):
    """``value`` against what it costs: columns ``method, value, n`` and ``x``.

    A method whose cost or value is missing has no point. ``n`` counts the questions behind the
    cost; a column ``value_n`` those behind the value.
    """
    from matplotlib.ticker import LogFormatter, MaxNLocator

    figure, axis = pyplot().subplots(figsize=(WIDTH - 1.4, 3.2))
    points = table.dropna(subset=[x, "value"])
    if log:
        axis.set(xscale="log")
        axis.xaxis.set_major_formatter(LogFormatter())
        axis.xaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1, 0.5)))
    costs = sorted(points[x].round(6).unique())
    gaps = np.diff(np.log(costs) if log else costs, prepend=-np.inf, append=np.inf)
    for place, cost in enumerate(costs):
        # The name stands away from the nearer neighbour; of equal costs one above the other.
        side, align = (-8, "right") if gaps[place + 1] < gaps[place] else (8, "left")
        same = points[points[x].round(6) == cost]
        for row, height in zip(same.itertuples(), spread(same["value"], 0.07), strict=True):
            colour = COLOURS.get(row.method, GREY)
            axis.plot(cost, row.value, "o", ms=7, color=colour, mec="black", mew=0.5)
            looks = {"textcoords": "offset points", "ha": align, "va": "center", "fontsize": SMALL}
            axis.annotate(label_of(row.method), (cost, height), (side, 0), **looks)
    if not log:
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.margins(x=0.25)
    axis.set(xlabel=xlabel, ylabel=f"{ylabel}, mean", ylim=(-0.05, 1.05))
    counts = f"; {ylabel}: {count_label(points['value_n'])}" if "value_n" in points else ""
    axis.set_title(f"cost: {count_label(points['n'])} questions{counts}", fontsize=SMALL)
    headline(figure, title)
    return figure


# hypotheses and lambda ----------------------------------------------------------------------------


def plot_cosines(table: pd.DataFrame, xlabel: str, title: str = ""):
    """Distributions of c = cos(h+, h-), one box per way of choosing the mimic, with its median.

    ``table``: mimic, c.
    """
    import seaborn

    boxes = table.groupby("mimic", sort=False)["c"]
    figure, axis = pyplot().subplots(figsize=(WIDTH - 1.2, 0.4 * len(boxes) + 1.1))
    middle = {"medianprops": {"color": "black", "linewidth": 2}, "linewidth": 1, "fliersize": 2}
    looks = {"orient": "h", "width": 0.6, "color": GREY, "fill": False}
    seaborn.boxplot(table, x="c", y="mimic", ax=axis, **looks, **middle)
    for place, median in enumerate(boxes.median()):
        looks = {"textcoords": "offset points", "ha": "center", "va": "bottom", "fontsize": SMALL}
        axis.annotate(f"{median:.2f}", (median, place - 0.32), (0, 1), **looks)
    axis.set(xlabel=xlabel, ylabel="")
    headline(figure, title)
    return figure


def plot_trade_off(curves: pd.DataFrame, title: str, k: int = 5, lam: float = 0.4):
    """P@k against the share on the mimic, a line an arm: what ruling the mimic out costs.

    Every line starts at H+ alone (the black dot). Squares are at the paper's 1, rings at ``lam`` or
    the lambda nearest to it at which all were measured.
    """
    near = nearest(curves, lam)
    figure, axis = pyplot().subplots(figsize=(WIDTH - 1.6, 3.4))
    for place, key in enumerate(in_order_of_arms(curves["family"], curves["family"])):
        rows = curves[curves["family"] == key].sort_values("lambda")
        colour = colour_of(key, place)
        looks = {"ms": 2.5, "color": colour, "label": label_of(key), "clip_on": False}
        axis.plot(rows["mimic_at_5"], rows["p_at_5"], "o-", **looks)
        for at, marker in ((near, "o"), (1.0, "s")):
            here = rows[np.isclose(rows["lambda"], at)]
            looks = {"ms": 7, "mec": colour, "mfc": "white", "mew": 1.4}
            axis.plot(here["mimic_at_5"], here["p_at_5"], marker, **looks)
    start = curves[curves["lambda"] == 0]
    axis.plot(start["mimic_at_5"], start["p_at_5"], "o", ms=7, color=COLOURS["hplus"])
    whose = "yours" if np.isclose(near, lam) else "nearest to yours"
    marks = f"black: H+ alone; ring: λ = {near:g}, {whose}; square: λ = 1, the paper's"
    below = f"share of the top {k} on the mimic\n{marks}; {count_label(curves['n'])}"
    figure.supxlabel(below, fontsize=9)
    axis.set(ylabel=f"P@{k}, mean", ylim=(0, None), xlim=(0, None))
    axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    headline(figure, title)
    return figure


def plot_reported_lambda(
    reported: pd.DataFrame, measured: Mapping[str, pd.DataFrame], title: str, lam: float = 0.4
):
    """The paper's Figure 5 (accuracy; only the values and bounds its text states) beside P@5 here.

    The two panels have different units on purpose: shapes may be compared, numbers may not.
    """
    figure, (left, right) = pyplot().subplots(1, 2, figsize=(WIDTH, 3), sharex=True)
    stated = reported.dropna(subset="lambda").astype({"lambda": float, "value": float})
    for kind, marker in {"exact": "o", "upper_bound": "v", "lower_bound": "^"}.items():
        rows = stated[stated["kind"] == kind]
        looks = {"color": COLOURS["chr"], "mfc": None if kind == "exact" else "none"}
        left.plot(rows["lambda"], rows["value"], marker, **looks, clip_on=False)
    levels = []
    for row in reported[reported["kind"] == "reference_line"].itertuples():
        colour, at = COLOURS[row.series.split()[0].lower()], float(row.value)
        left.axhline(at, color=colour, lw=1.2, ls="--")
        levels.append((1.4, at, row.series, colour))
    left.set(xlabel="λ; ● stated, ▽ below, △ above", ylabel="accuracy, %", xlim=(0, 1.4))
    left.set_xticks([0, 0.4, 0.8, 1.2])
    left.set_title("the paper on CHR: MedQA, Gemma-2-9B", pad=13)
    ends = []
    for place, (label, rows) in enumerate(measured.items()):
        rows, colour = rows.rename(columns=P_AT_5), colour_of(label, place)
        label = f"{label}, {count_label(rows['n'])}"
        draw_line(right, rows, "lambda", colour, label)
        ends.append((rows["lambda"].iloc[-1], rows["value"].iloc[-1], label, colour))
    right.set(xlabel="λ", ylabel="P@5, 95 % band", ylim=(0, None))
    right.set_title("measured here: another setup", pad=13)
    for axis in (left, right):
        mark_lambdas(axis, lam)
    headline(figure, title)
    label_ends(right, ends)
    label_ends(left, levels)
    return figure


# mimics -------------------------------------------------------------------------------------------


def tier_rows(table: pd.DataFrame, tiers: Sequence[str], physician: str) -> pd.DataFrame:
    """What ``plot_tiers`` draws of ``table4``: the paper's accuracy, ours, and P@k, by tier.

    Ours are by the grader that comes first after the paper's ``physician``, with the first reader.
    Columns: panel, row (the tier), series (the method), value, low, high, n.
    """
    graded = table[table["n"] > 0]
    ours = graded[graded["grader"] != physician]
    first = ours[ours["grader"] == ours["grader"].iloc[0]] if len(ours) else ours
    parts = [graded[graded["grader"] == physician].assign(panel="the paper: accuracy")]
    accuracies = [m for m in first["measure"].unique() if m.startswith("accuracy")][:1]
    for measure in [*accuracies, *(m for m in first["measure"].unique() if m.startswith("P@"))]:
        parts.append(first[first["measure"] == measure].assign(panel=measure))
    rows = pd.concat(parts, ignore_index=True)
    return rows.assign(
        row=pd.Categorical(rows["tier"], list(tiers)),
        series=pd.Categorical(rows["method"], in_order_of_arms(rows["method"])),
    ).sort_values("series", kind="stable")


def plot_cases(ranks: pd.DataFrame, printed: pd.DataFrame, k: int, lambdas: Sequence[float]):
    """Ranks of passages for one pair of hypotheses at some ``lambdas``; a panel for each case.

    ``ranks``: case, pid, class, lambda, rank. Ranks beyond twice k stand at the lower edge with
    their number. Below each lambda: how many of the top k are on the target, and of the paper's
    excerpts where it ``printed`` any (case, lambda, class).
    """
    figure, axes = pyplot().subplots(2, 3, figsize=(WIDTH, 6.6), sharey=True)
    top = ranks[ranks["rank"] <= k]
    for axis, (name, case) in zip(axes.flat, ranks.groupby("case", sort=False), strict=False):
        _draw_case(axis, case, k)
        counts = [
            _hits("", top[top["case"] == name], lam)
            + _hits("paper:\n", printed[printed["case"] == name], lam)
            for lam in lambdas
        ]
        heads = [f"λ = {lam:g}" if lam else "H+ alone" for lam in lambdas]
        labels = [f"{head}{count}" for head, count in zip(heads, counts, strict=True)]
        axis.set_xticks(range(len(lambdas)), labels, fontsize=SMALL)
        axis.set(xlim=(-0.35, len(lambdas) - 0.65), title=name)
    axes[0, 0].set(ylim=(2.95 * k + 2, 0.5), yticks=[1, k, 2 * k], ylabel="rank")
    axes[1, 0].set(ylabel="rank")
    _explain_cases(axes[1, 2], k)
    found = top[top["class"].isin(["target", "both"])].groupby("lambda").size()
    each = [
        f"{found.get(lam, 0)} {f'at λ = {lam:g}' if lam else 'with H+ alone'}" for lam in lambdas
    ]
    places = k * ranks["case"].nunique()
    headline(figure, f"On the target, of {places} top places: {', '.join(each)}")
    return figure


def _draw_case(axis, case: pd.DataFrame, k: int) -> None:
    """A line a passage over the lambdas, in the colour of its class."""
    last = 2 * k + 1
    for _, line in case.groupby("pid"):
        line = line.sort_values("lambda")
        looks = {"marker": "o", "ms": 4, "lw": 1.4, "color": COLOURS[line["class"].iloc[0]]}
        axis.plot(range(len(line)), line["rank"].clip(upper=last), **looks)
    for place, (_, here) in enumerate(case.groupby("lambda")):
        far = "\n".join(map(str, sorted(here.loc[here["rank"] >= last, "rank"])))
        axis.annotate(far, (place, last + 0.5), fontsize=SMALL, va="top", ha="center")
    axis.axhspan(0.5, k + 0.5, color="#f2f2f2", zorder=0)


def _hits(head: str, rows: pd.DataFrame, lam: float) -> str:
    """ "3 of 5": how many of the rows at this lambda are on the target; blank without rows."""
    here = rows.loc[rows["lambda"] == lam, "class"]
    if here.empty:
        return "\n\n"
    return f"\n{head}{here.isin(['target', 'both']).sum()} of {len(here)}"


def _explain_cases(axis, k: int) -> None:
    """The panel that is left over says what the others show."""
    axis.axis("off")
    for name in CLASSES:
        axis.plot([], [], marker="o", color=COLOURS[name], label=name)
    text = (
        f"A line is a passage.\nShaded: the top {k}.\nNumbers inside: ranks\nbeyond {2 * k}. "
        f"Below: how many\nof the top {k} are on the target.\n\nThe passage is on"
    )
    axis.legend(title=text, loc="upper left", alignment="left")


# real questions -----------------------------------------------------------------------------------

ARMS_OF = {
    "own": "chr",
    "matched rotation": "chr+rotation",
    "another question's": "chr+stranger",
}
"""Whose mimic it is, and the arm that it makes."""
SUPPORTS = {
    "right": ("for the right option", COLOURS["target"]),
    "wrong": ("for a wrong option", COLOURS["mimic"]),
    "topic": ("on the topic, for no option", COLOURS["on the topic"]),
    "rest": ("off the topic", COLOURS["neither"]),
}
"""Bands of what the five passages support, from the bottom."""
OUTCOMES = {
    ("exams", "supports_correct"): "right option",
    ("exams", "supports_wrong"): "a wrong option",
    ("bioasq", "p_at_5"): "BioASQ: P@5",
}
"""What the panels of ``plot_outcomes`` show, by data set and metric."""


def outcome_rows(curves: pd.DataFrame) -> pd.DataFrame:
    """Outcomes over lambda by arm: columns panel, family, lambda, value, low, high, n.

    ``curves`` are rows of ``real_lambda`` of one form and visibility. The controls start at lambda
    0, where all are H+ alone.
    """
    parts = []
    for (dataset, metric), panel in OUTCOMES.items():
        rows = curves[(curves["dataset"] == dataset) & (curves["metric"] == metric)]
        rows = rows[rows["lambda"] >= 0]
        alone = rows[(rows["mimic"] == "own") & (rows["lambda"] == 0)]
        for mimic, family in ARMS_OF.items():
            arm = rows[rows["mimic"] == mimic]
            arm = arm if mimic == "own" else pd.concat([alone, arm])
            parts.append(arm.sort_values("lambda").assign(panel=panel, family=family))
    columns = ["panel", "family", "lambda", "value", "low", "high", "n"]
    return pd.concat(parts, ignore_index=True)[columns]


def plot_outcomes(rows: pd.DataFrame, lam: float, chosen: Mapping[str, float] | None = None):
    """Of how many questions the five passages support the right option, or a wrong one; P@5.

    ``rows`` is ``outcome_rows``, or the rows of some panels, a panel of exam questions among them;
    ``chosen`` are dev's lambdas by data set.
    """
    dev = {panel: (chosen or {}).get(dataset) for (dataset, _), panel in OUTCOMES.items()}
    ylabel = "share, or P@5" if OUTCOMES["bioasq", "p_at_5"] in set(rows["panel"]) else "share"
    title = caption("outcomes", rows)
    return plot_curves(rows, title, panel="panel", ylabel=ylabel, lam=lam, dev=dev)


def support_rows(curves: pd.DataFrame) -> pd.DataFrame:
    """Shares of the top five on exam questions, adding up to one: a row an arm and lambda.

    ``curves`` are rows of ``real_lambda`` of one form and visibility. Columns: family, lambda,
    right, wrong, topic, rest, then the share for the right option with its interval as ``p_at_5``,
    ``p_at_5_low``, ``p_at_5_high``, and n. Controls start at lambda 0, where all are H+ alone.
    """
    rows = curves[(curves["dataset"] == "exams") & (curves["lambda"] >= 0)]
    wide = rows.pivot(index=["mimic", "lambda"], columns="metric", values="value").reset_index()
    right = rows[rows["metric"] == "share_correct_at_5"]
    edge = right[["mimic", "lambda", "value", "low", "high", "n"]]
    edge.columns = ["mimic", "lambda", "p_at_5", "p_at_5_low", "p_at_5_high", "n"]
    wide = wide.merge(edge, on=["mimic", "lambda"])
    wide["right"], wide["wrong"] = wide["share_correct_at_5"], wide["share_wrong_at_5"]
    wide["topic"] = (wide["on_topic_at_5"] - wide["right"] - wide["wrong"]).clip(lower=0)
    wide["rest"] = 1 - wide[["right", "wrong", "topic"]].sum(axis=1)
    alone = wide[(wide["mimic"] == "own") & (wide["lambda"] == 0)]
    wide = pd.concat([wide, *(alone.assign(mimic=mimic) for mimic in ARMS_OF if mimic != "own")])
    wide["family"] = wide["mimic"].map(ARMS_OF)
    columns = ["family", "lambda", *SUPPORTS, *edge.columns[2:]]
    return wide.sort_values(["family", "lambda"], ignore_index=True)[columns]


# contradiction ------------------------------------------------------------------------------------

MODELLED = "contradiction as a model sees it, not as a judge does"
"""What a figure says whose numbers go through an NLI model."""


def period_rows(table: pd.DataFrame) -> pd.DataFrame:
    """``contradiction_periods`` as ``plot_curves`` takes it: a line a source, without the sums.

    ``table``: source (with a colour in labels.csv), label, period, value, low, high, n.
    """
    rows = table[(table["period"] != "all") & table["source"].isin(names_of("source"))]
    label = rows["label"].str.partition(", n =")[0]
    return rows.assign(panel="", label=label, colour=rows["source"].map(colours_of("source")))


def quality_rows(table: pd.DataFrame) -> pd.DataFrame:
    """AUROC of every NLI model as ``plot_dots`` takes it, a panel a labelled set.

    ``table``: backend, set, auroc, auroc_low, auroc_high, n.
    """
    values = {"auroc": "value", "auroc_low": "low", "auroc_high": "high"}
    rows = table.rename(columns=values).assign(panel=table["set"], row=table["backend"])
    return rows.assign(colour=rows["row"].map(colours_of("nli model")).fillna("black"))


def plot_scores(table: pd.DataFrame, evidence: str):
    """Figure 2 as the paper draws it: of each period's documents the share in each bin of CNT.

    ``table``: contradiction (judged or modelled), period, cnt_bin, documents, reported; a panel
    each, and one for the paper. ``evidence`` is its name.
    """
    names = list(dict.fromkeys(table["contradiction"]))
    evidence = "real abstracts" if evidence == "open" else evidence
    shown = [(name, "documents", f"{evidence}, {name}") for name in names]
    shown.append((names[-1], "reported", "the paper, modelled"))
    periods = list(dict.fromkeys(table["period"]))
    panels, high = {}, []
    for which, column, name in shown:
        rows = table[table["contradiction"] == which]
        counts = rows.pivot(index="period", columns="cnt_bin", values=column).loc[periods]
        total = counts.sum(axis=1)
        panels[f"{name}\nn = {total.sum():,.0f}"] = counts.div(total.where(total > 0), axis=0)
        above = counts[[cell for cell in counts if float(cell[1:].split(",")[0]) >= 0.6]]
        high.append(f"{100 * above.to_numpy().sum() / total.sum():.0f} % ({name})")
    return plot_heatmap(
        panels,
        f"Documents with a score of .6 or more: {', '.join(high)}",
        xlabel="contradiction score CNT of a document",
        ylabel="published",
        scale="share of a period's documents",
    )


def plot_timeline(nodes: pd.DataFrame, links: pd.DataFrame, question: str):
    """One question's abstracts by year and side; lines join the pairs that contradict most.

    ``nodes``: id, year, cnt, side; a larger point has a higher CNT(d). ``links``, highest first:
    a, b, value, sentence_a, sentence_b, and ``reason`` where a judge gave one. The abstracts of
    the links are named, and their sentences stand below.
    """
    colours, present = colours_of("side"), list(dict.fromkeys(nodes["side"]))
    # A side without a colour (of PubMed: its own name) comes last, in black.
    sides = sorted(present, key=[*colours, *present].index)
    crowd = nodes.groupby(["side", "year"]).cumcount() * 0.25  # one year's points side by side
    points = nodes.assign(y=nodes["side"].map(sides[::-1].index) + crowd).set_index("id")
    lines = _sentences(links, points["year"])
    heights = [0.9 + 0.5 * len(sides), 0.145 * len(lines) + 0.1]
    figure = pyplot().figure(figsize=(WIDTH, sum(heights) + 0.5))
    # Two subfigures: the text takes the whole width, whatever the names of the sides need.
    above, below = figure.subfigures(2, 1, height_ratios=heights)
    axis = above.subplots()
    size = 20 + 100 * points["cnt"] / (points["cnt"].max() or 1)
    colour = [colours.get(side, "black") for side in points["side"]]
    axis.scatter(points["year"], points["y"], s=size, color=colour, zorder=3)
    for number, link in enumerate(links.itertuples(), 1):
        _draw_link(axis, points.loc[link.a], points.loc[link.b], number)
    box = {"fc": "white", "ec": "none", "pad": 0.5}
    looks = {"fontsize": SMALL, "ha": "center", "zorder": 6, "bbox": box}
    for point in points.loc[list(dict.fromkeys([*links["a"], *links["b"]]))].itertuples():
        name, at = point.Index.rpartition("-")[2], (point.year, point.y)
        axis.annotate(name, at, (0, 9), textcoords="offset points", **looks)
    axis.set_yticks(range(len(sides)), sides[::-1])
    axis.set(ylim=(-0.5, len(sides) - 0.3), xlabel="published; larger: contradicted by more")
    below.text(0.01, 0.98, "\n".join(lines), va="top", fontsize=SMALL)
    counts = nodes["side"].value_counts()[sides].items()
    each = ", ".join(f"{n}\u00a0{side}" for side, n in counts)
    headline(figure, f"“{question}” {len(nodes)} abstracts: {each}")
    return figure


def _sentences(links: pd.DataFrame, year: pd.Series) -> list[str]:
    """The lines of text under a timeline: of each link both abstracts and the two sentences."""
    lines = []
    for number, link in enumerate(links.itertuples(), 1):
        reason = getattr(link, "reason", "") or f"CNT {link.value:.2f}"
        lines.append(f"{number}  {reason}")
        for name, sentence in ((link.a, link.sentence_a), (link.b, link.sentence_b)):
            text = f"{year[name]}, {name.rpartition('-')[2]}: “{sentence}”"
            indents = {"initial_indent": " " * 5, "subsequent_indent": " " * 9}
            lines += textwrap.wrap(text, 108, **indents)
    return lines


def _draw_link(axis, start: pd.Series, end: pd.Series, number: int) -> None:
    """A numbered line between two points; between points of one side an arc below them."""
    along = np.linspace(0, 1, 40)
    bend = 1.4 * along * (1 - along) if abs(start["y"] - end["y"]) < 0.5 else np.zeros(40)
    x = start["year"] + (end["year"] - start["year"]) * along
    y = start["y"] + (end["y"] - start["y"]) * along - bend
    axis.plot(x, y, color="black", lw=0.9, zorder=2)
    circle = {"boxstyle": "circle,pad=0.15", "fc": "white", "lw": 0.6}
    looks = {"fontsize": 8, "weight": "bold", "ha": "center", "va": "center", "zorder": 5}
    middle = (x[0] + x[-1]) / 2, y[20]
    axis.text(*middle, f"{number}", bbox=circle, **looks)


# RAG², SL-HyDE and the lesson ---------------------------------------------------------------------


def filter_rows(auroc: pd.DataFrame) -> pd.DataFrame:
    """``rag2_filters_auroc`` as ``plot_dots`` takes it, a panel a truth.

    Trained filters are blue, those trained on shuffled labels grey, untrained ones black.
    """
    panel = auroc["dataset"].map(names_of("panel")) + ": " + auroc["truth"]
    return named_rows(auroc.assign(panel=panel), "filter", "filter")


def strategy_rows(table: pd.DataFrame) -> pd.DataFrame:
    """``rag2_strategies`` as ``plot_dots`` takes it: a row a strategy, question and rationale as
    series, a panel a set. Of BioASQ the questions with a rationale, on which every arm was run."""
    rows = table[(table["metric"] == "precision_at_5") & (table["dataset"] != "bioasq")].copy()
    rows["series"] = rows["method"].str.partition(", ")[0].map(names_of("query"))
    rows["row"] = rows["method"].str.partition(", ")[2]
    alone = rows["row"].str.endswith(" alone")
    order = [*rows.loc[alone, "row"].unique(), *names_of("strategy")]
    rows["row"] = pd.Categorical(rows["row"], order, ordered=True)
    rows["panel"] = rows["dataset"].map(names_of("panel"))
    return rows.sort_values(["panel", "row", "series"]).reset_index(drop=True)


def k_rows(by_k: pd.DataFrame) -> pd.DataFrame:
    """``rag2_by_k`` as ``plot_curves`` takes it, without the arms that keep a best passage."""
    rows = by_k[
        (by_k["metric"] == "reads_right_or_guess") & ~by_k["arm"].str.endswith("(best kept)")
    ]
    searched, bar, after = (rows["arm"].str.partition(" | ")[part] for part in range(3))
    filtered = searched + ", filtered (" + after.str.partition(", ")[2] + ")"
    family = searched.where(bar == "", filtered)
    return rows.assign(study=rows["dataset"].map(names_of("panel")), family=family)


_LEARNT_ON = {"scifact": "SciFact", "bioasq": "BioASQ"}


def retriever_rows(table: pd.DataFrame) -> pd.DataFrame:
    """``slhyde_table`` as ``plot_dots`` takes it: every retriever with the query alone."""
    rows = table[(table["metric"] == "ndcg_at_10") & table["dataset"].isin(_LEARNT_ON)]
    rows = named_rows(rows.assign(panel=rows["dataset"].map(_LEARNT_ON)), "method", "retriever")
    return rows.sort_values("panel", ascending=False, kind="stable")


def around(rows: pd.DataFrame) -> tuple[float, float]:
    """Limits a little wider than all intervals, so that small differences can be seen."""
    return max(0.0, rows["low"].min() - 0.02), min(1.0, rows["high"].max() + 0.02)


def passage_use_rows(table: pd.DataFrame) -> pd.DataFrame:
    """``slhyde_table`` as ``plot_dots`` takes it: each way to use a passage, base and SL-HyDE."""
    panels = {f"{dataset}, with passages": name for dataset, name in _LEARNT_ON.items()}
    uses = names_of("passage use")
    wanted = [
        (series if use == "query" else f"{series}, {use}, {writer}", series, label)
        for series, writer in (("minilm", "base"), ("slhyde", "tuned"))
        for use, label in uses.items()
    ]
    places = pd.DataFrame(wanted, columns=["method", "series", "row"])
    rows = table[(table["metric"] == "ndcg_at_10") & table["dataset"].isin(panels)]
    rows = places.merge(rows, on="method")
    rows["row"] = pd.Categorical(rows["row"], list(uses.values()), ordered=True)
    return rows.assign(panel=rows["dataset"].map(panels)).sort_values(
        ["panel", "row"], ascending=[False, True], kind="stable"
    )


def learning_rows(table: pd.DataFrame, trainings: pd.DataFrame) -> pd.DataFrame:
    """``slhyde_table`` as ``plot_curves`` takes it: over the number of pairs that were learnt from.

    ``trainings`` is ``slhyde_trainings``, which says how many each adapter had (``examples``).
    """
    examples = trainings.set_index("adapter")["examples"]
    curve = ("slhyde-quarter", "slhyde-half", "slhyde-query")
    pairs = {"minilm": 0} | {name: int(examples[name]) for name in curve}
    rows = table[(table["metric"] == "ndcg_at_10") & table["dataset"].isin(_LEARNT_ON)]
    rows = rows[rows["method"].isin(pairs)]
    rows = rows.assign(
        pairs=rows["method"].map(pairs),
        family="self-written questions",
        study=rows["dataset"].map(_LEARNT_ON),
    )
    return rows.sort_values(["study", "pairs"], ascending=[False, True], kind="stable")


def wrong_rows(table: pd.DataFrame) -> pd.DataFrame:
    """``hyde_lesson`` as ``plot_curves`` takes it: study, family, share, value, low, high, n.

    ``share`` is that of questions with a wrong passage, from 0.
    """
    kinds = names_of("panel") | {"bioasq": "all questions"}
    rows = table[(table["metric"] == "p_at_5") & ~table["method"].str.endswith("(wrong)")]
    mixed = rows["method"].str.extract(r"^(\w+), (\d+) % wrong$")
    rows = rows.assign(
        study=rows["dataset"].map(kinds),
        family=mixed[0].fillna(rows["method"]),
        share=(mixed[1].astype(float) / 100).fillna(0.0),
    )
    columns = ["study", "family", "share", "value", "low", "high", "n"]
    return rows[columns].reset_index(drop=True)


# the audit ----------------------------------------------------------------------------------------


def plot_p_values(curves: pd.DataFrame, best: pd.DataFrame):
    """Exact McNemar p over the share of discordant questions, for CHR and the next best method.

    ``curves``: dataset, line, percent, p, and whether the point is ``independent``: the discordance
    of answers that have nothing to do with each other, marked by a dot. ``best`` are the margins,
    a row a line, with the dataset and its n.
    """
    datasets = list(dict.fromkeys(curves["dataset"]))
    figure, axes = pyplot().subplots(1, len(datasets), figsize=(WIDTH, 3.6), sharey=True)
    for axis, dataset in zip(axes, datasets, strict=True):
        rows = curves[curves["dataset"] == dataset]
        looks = zip(("#0072B2", "#CC79A7", "#000000"), ("-", "-", "--"), strict=True)
        for (name, line), (colour, style) in zip(
            rows.groupby("line", sort=False), looks, strict=True
        ):
            axis.plot(line["percent"], line["p"], label=name, color=colour, ls=style)
            dot = line[line["independent"]]
            axis.plot(dot["percent"], dot["p"], "o", ms=5, color=colour)
        axis.axhline(0.05, color="black", lw=0.8, ls=":")
        axis.set(yscale="log", ylim=(1e-6, 1.5), xlim=(0, 70), xlabel="discordant questions, %")
        axis.yaxis.set_major_formatter("{x:g}")
        n = best.loc[best["dataset"] == dataset, "n"].iloc[0]
        axis.set_title(f"{dataset}, n = {n:,}")
        # Below, where it covers no curve.
        axis.legend(loc="upper center", bbox_to_anchor=(0.42, -0.2), handlelength=1.4)
    axes[0].set(ylabel="p, exact McNemar")
    axes[0].annotate("p = 0.05", (69, 0.05), ha="right", va="bottom", fontsize=SMALL)
    headline(figure, caption("p_values", best))
    return figure


def plot_discordance(margins: pd.DataFrame):
    """All margins: on how many questions the two methods may differ for p to be at most 0.05.

    ``margins``: dataset, comparison, n, fewest_discordant, most_significant, independent. The tick
    is where independent answers would be.
    """
    sure = margins["most_significant"] >= margins["independent"]
    series = np.where(sure, "discordant: sure", "discordant: unsure")
    percent = 100 / margins["n"]
    low = percent * margins["fewest_discordant"]
    rows = margins.assign(
        panel=margins["dataset"],
        row=margins["comparison"],
        series=series,
        value=percent * margins["independent"],
        low=low,
        # A line of no length would not be seen.
        high=(percent * margins["most_significant"]).clip(lower=low + 0.8),
        colour=pd.Series(series, margins.index).map(COLOURS),
        marker="|",
    )
    xlabel = "discordant questions, %; tick: if answers were independent"
    looks = {"xlim": (0, 100), "names": names_of("series"), "together": True}
    return plot_dots(rows, caption("discordance", margins), xlabel, **looks)
