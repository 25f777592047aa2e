"""Figures of an odd shape, and the steps that bring two notebooks' tables into a common one."""

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
    method_colours,
    method_label,
    names_of,
)
from lib.plots.primitives import (
    JUDGED,
    P_AT_5,
    TINT,
    draw_line,
    plot_curves,
    plot_dots,
    plot_heatmap,
    stack,
)
from lib.plots.style import (
    SMALL,
    WIDTH,
    count_label,
    headline,
    in_percent,
    label_ends,
    legend_below,
    mark_lambdas,
    note,
    pyplot,
    spread,
)
from lib.report import reported
from lib.search.contrast import rotation

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
        if missing:
            xlabel += f"; NOT RUN: {', '.join(missing)}"
        rows = rows[rows["dataset"].isin(asked)]
        if rows["answerer"].nunique() > 2:
            rows = rows.drop(columns="colour").assign(series=rows["answerer"])
    return plot_dots(rows, title, xlabel)


def method_rows(rows: pd.DataFrame, lam: float) -> pd.DataFrame:
    """Rows with sets and methods in the order of all figures, methods by name. Contrast, H+ alone
    and methods of your own have a colour; all else is grey."""
    methods = in_order_of_arms(rows["method"])
    names = {method: method_label(method, lam) for method in methods}
    colours = method_colours(methods)
    for method in colours.keys() & COLOURS.keys() - {"hplus", "chr", "chr_given"}:
        colours[method] = GREY
    return rows.assign(
        colour=rows["method"].map(colours),
        panel=pd.Categorical(rows["dataset"], in_order(rows["dataset"])),
        row=pd.Categorical(rows["method"].map(names), list(names.values())),
    )


def plot_cost(table: pd.DataFrame, x: str, xlabel: str, ylabel: str, title: str, log: bool = False):
    """``value`` against what it costs: columns ``method, value, n`` and ``x``.

    A method whose cost or value is missing has no point. ``n`` counts the questions behind the
    cost; a column ``value_n`` those behind the value.
    """
    from matplotlib.ticker import LogFormatter, MaxNLocator

    figure, axis = pyplot().subplots(figsize=(WIDTH - 1.4, 3.2))
    axis.set(xlabel=xlabel, ylabel=f"{ylabel}, mean", ylim=(-0.05, 1.05))
    points = table.dropna(subset=[x, "value"])
    if log:
        axis.set(xscale="log")
        axis.xaxis.set_major_formatter(LogFormatter())
        axis.xaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1, 0.5)))
    else:
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    costs = np.sort(points[x].round(6).unique())
    places = np.log(costs) if log else costs
    gaps = np.diff(places, prepend=-np.inf, append=np.inf)
    colours = method_colours(table["method"])
    for cost, left, right in zip(costs, gaps[:-1], gaps[1:], strict=True):
        # The name stands away from the nearer neighbour; of equal costs one above the other.
        side, align = (-8, "right") if right < left else (8, "left")
        same = points[points[x].round(6) == cost]
        for row, height in zip(same.itertuples(), spread(same["value"], 0.07), strict=True):
            looks = {"ms": 7, "color": colours[row.method], "mec": "black", "mew": 0.5}
            axis.plot(cost, row.value, "o", **looks)
            note(axis, cost, height, label_of(row.method), (side, 0), ha=align, va="center")
    axis.margins(x=0.25)
    counts = f"; {ylabel}: {count_label(points['value_n'])}" if "value_n" in points else ""
    axis.set_title(f"cost: {count_label(points['n'])} questions{counts}", fontsize=SMALL)
    headline(figure, title)
    return figure


# hypotheses and lambda ----------------------------------------------------------------------------


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


def turn_rows(pairs: Mapping[str, Sequence[float]]) -> pd.DataFrame:
    """How far the query turns from h+ over lambda: for c = 0, and for the median c of each set.

    ``pairs`` has every question's c = cos(h+, h-) by the name of its set. Columns as for
    ``plot_curves``, ``value`` in degrees; name, c, and the query's ``cosine`` with h+. n is that of
    all pairs together.
    """
    medians = {name: float(np.median(c)) for name, c in pairs.items()}
    lambdas, rows = np.linspace(0, 2, 21).round(1), []
    for name, c in ({"unrelated texts": 0.0} | medians).items():
        value = rotation(c, lambdas)
        table = {"lambda": lambdas, "value": value, "cosine": np.cos(np.radians(value))}
        rows.append(pd.DataFrame({"name": name, "c": c, "family": f"c = {c:.2f}, {name}", **table}))
    n = sum(map(len, pairs.values()))
    return pd.concat(rows, ignore_index=True).assign(study="", low=np.nan, high=np.nan, n=n)


def plot_cosines(table: pd.DataFrame, xlabel: str, title: str = ""):
    """Distributions of c = cos(h+, h-), one box per way of choosing the mimic, with its median.

    ``table``: mimic, c.
    """
    import seaborn

    medians = table.groupby("mimic", sort=False)["c"].median()
    figure, axis = pyplot().subplots(figsize=(WIDTH - 1.2, 0.4 * len(medians) + 1.1))
    seaborn.boxplot(
        table,
        x="c",
        y="mimic",
        ax=axis,
        orient="h",
        width=0.6,
        color=GREY,
        fill=False,
        linewidth=1,
        fliersize=2,
        medianprops={"color": "black", "linewidth": 2},
    )
    for place, median in enumerate(medians):
        note(axis, median, place - 0.32, f"{median:.2f}", (0, 1), ha="center", va="bottom")
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
    for place, key in enumerate(in_order_of_arms(curves["family"])):
        rows = curves[curves["family"] == key].sort_values("lambda").set_index("mimic_at_5")
        colour = colour_of(key, place)
        label = label_of(key)
        axis.plot(rows["p_at_5"], "o-", ms=2.5, color=colour, label=label, clip_on=False)
        marked = {"ms": 7, "mec": colour, "mfc": "white", "mew": 1.4}
        axis.plot(rows.loc[np.isclose(rows["lambda"], near), "p_at_5"], "o", **marked)
        axis.plot(rows.loc[np.isclose(rows["lambda"], 1), "p_at_5"], "s", **marked)
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

    The panels have different measures on purpose: no number of one may be compared with the other.
    """
    from matplotlib.ticker import PercentFormatter

    figure, (left, right) = pyplot().subplots(1, 2, figsize=(WIDTH, 3), sharex=True)
    left.set_title("the paper on CHR: MedQA, Gemma-2-9B", pad=13)
    left.set(xlabel="λ; ● stated, ▽ below, △ above", ylabel="accuracy, %", xlim=(0, 1.4))
    left.set_xticks([0, 0.4, 0.8, 1.2])
    stated = reported.astype({"lambda": float, "value": float}).set_index("lambda")
    colour = COLOURS["chr"]
    exact = stated.loc[stated["kind"] == "exact", "value"]
    left.plot(exact, "o", color=colour, clip_on=False)
    for kind, marker in {"upper_bound": "v", "lower_bound": "^"}.items():
        bound = stated.loc[stated["kind"] == kind, "value"]
        left.plot(bound, marker, color=colour, mfc="none", clip_on=False)
    levels = []
    for row in stated[stated["kind"] == "reference_line"].itertuples():
        colour = COLOURS[row.series.split()[0].lower()]
        left.axhline(row.value, color=colour, lw=1.2, ls="--")
        levels.append((1.4, row.value, row.series, colour))
    right.set_title("measured here: another setup", pad=13)
    right.set(xlabel="λ", ylabel="P@5, 95 % band")
    ends = []
    for place, (name, curve) in enumerate(measured.items()):
        rows = curve.rename(columns=P_AT_5)
        label = f"{name}, {count_label(rows['n'])}"
        ends.append(draw_line(right, rows, "lambda", colour_of(name, place), label))
    right.set(ylim=(0, None))
    right.yaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
    mark_lambdas(left, lam)
    mark_lambdas(right, lam)
    headline(figure, title)
    label_ends(right, ends)
    label_ends(left, levels)
    return figure


# mimics -------------------------------------------------------------------------------------------


def plot_cases(ranks: pd.DataFrame, printed: pd.DataFrame, k: int, lambdas: Sequence[float]):
    """Ranks of passages for one pair of hypotheses at some ``lambdas``; a panel for each case.

    ``ranks``: case, pid, class, lambda, rank; drawn by its logarithm. Below each lambda: how many
    of the top k are on the target, and of the paper's excerpts where it ``printed`` any (case,
    lambda, class).
    """
    figure, axes = pyplot().subplots(2, 3, figsize=(WIDTH, 6.6), sharey=True)
    last = ranks["rank"].max()
    ticks = [rank for rank in (1, k, 20, 100, 500) if rank <= last]
    axes[0, 0].set(yscale="log", ylim=(1.3 * last, 0.8))
    axes[0, 0].set_yticks(ticks, map(str, ticks))
    axes[0, 0].set_yticks([], minor=True)
    for row in axes:
        row[0].set(ylabel="rank (log scale)")
    top = ranks[ranks["rank"] <= k]
    heads = [f"λ = {lam:g}" if lam else "H+ alone" for lam in lambdas]
    for axis, (name, case) in zip(axes.flat, ranks.groupby("case", sort=False), strict=False):
        _draw_case(axis, case, k)
        ours, papers = top[top["case"] == name], printed[printed["case"] == name]
        labels = [
            head + _hits("", ours, lam) + _hits("paper:\n", papers, lam)
            for head, lam in zip(heads, lambdas, strict=True)
        ]
        axis.set_xticks(range(len(lambdas)), labels, fontsize=SMALL)
        axis.set(xlim=(-0.35, len(lambdas) - 0.65), title=name)
    _explain_cases(axes[1, 2], k)
    on_target = top[top["class"].isin(["target", "both"])].groupby("lambda").size()
    counts = on_target.reindex(lambdas, fill_value=0)
    where = [
        f"at {head}" if lam else "with H+ alone" for head, lam in zip(heads, lambdas, strict=True)
    ]
    each = [f"{count} {here}" for count, here in zip(counts, where, strict=True)]
    places = k * ranks["case"].nunique()
    headline(figure, f"On the target, of {places} top places: {', '.join(each)}")
    return figure


def _draw_case(axis, case: pd.DataFrame, k: int) -> None:
    """A line a passage over the lambdas, in the colour of its class; the top k are shaded."""
    for (_, kind), line in case.sort_values("lambda").groupby(["pid", "class"]):
        axis.plot(line["rank"].tolist(), marker="o", ms=4, lw=1.4, color=COLOURS[kind])
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
    for column, (_, colour) in JUDGED.items():
        axis.plot([], [], marker="o", color=colour, label=column.removesuffix("_at_5"))
    text = (
        f"A line is a passage.\nShaded: the top {k}.\nBelow: how many of the\ntop {k} are on the "
        "target.\n\nThe passage is on"
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
OUTCOMES = pd.DataFrame(
    [
        ("exams", "supports_correct", "right option"),
        ("exams", "supports_wrong", "a wrong option"),
        ("bioasq", "p_at_5", "BioASQ: P@5"),
    ],
    columns=["dataset", "metric", "panel"],
)
"""What the panels of ``plot_outcomes`` show, by data set and metric."""


def by_arm(curves: pd.DataFrame) -> pd.DataFrame:
    """Rows of ``real_lambda`` of one form and visibility, with their arm as ``family``.

    The controls start at lambda 0, where all are H+ alone.
    """
    rows = curves[curves["mimic"].isin(ARMS_OF) & (curves["lambda"] >= 0)]
    start = rows[(rows["mimic"] == "own") & (rows["lambda"] == 0)]
    controls = [start.assign(mimic=mimic) for mimic in ARMS_OF if mimic != "own"]
    arms = pd.concat([rows, *controls])
    arms["family"] = arms["mimic"].map(ARMS_OF)
    return arms.sort_values(["family", "lambda"], kind="stable")


def outcome_rows(curves: pd.DataFrame) -> pd.DataFrame:
    """Outcomes over lambda by arm: columns panel, family, lambda, value, low, high, n.

    ``curves`` are rows of ``real_lambda`` of one form and visibility. They end where a line does.
    """
    rows = OUTCOMES.merge(by_arm(curves))
    rows = rows[rows["lambda"] <= rows.groupby("family")["lambda"].max().min()]
    rows = rows[(rows["family"] == "chr") | (rows["lambda"] > 0)]  # at 0 all are H+ alone
    return rows[["panel", "family", "lambda", "value", "low", "high", "n"]]


def plot_outcomes(rows: pd.DataFrame, lam: float, chosen: Mapping[str, float] | None = None):
    """Of how many questions the five passages support the right option, or a wrong one; P@5.

    ``rows`` is ``outcome_rows``, or the rows of some panels, a panel of exam questions among them;
    ``chosen`` are dev's lambdas by data set. A grey band is where the paper calls its accuracy a
    plateau.
    """
    sets = OUTCOMES.set_index("panel")["dataset"]
    dev = {panel: (chosen or {}).get(dataset) for panel, dataset in sets.items()}
    precision = rows["panel"].str.contains("P@5").any()
    ylabel = "of the questions; P@5" if precision else "of the questions"
    title = caption("outcomes", rows)
    rare = [panel for panel in OUTCOMES["panel"] if "wrong" in panel]
    figure = plot_curves(
        rows, title, panel="panel", ylabel=ylabel, lam=lam, dev=dev, own_scale=rare
    )
    plateau = reported("fig5_lambda").query("kind == 'lower_bound'")["lambda"]
    looks = {"color": GREY, "alpha": 0.17, "lw": 0, "zorder": 0}
    figure.axes[0].axvspan(plateau.min(), min(plateau.max(), rows["lambda"].max()), **looks)
    between = f"λ = {plateau.min():g} to {plateau.max():g}"
    figure.supxlabel(f"grey: {between}, where the paper's accuracy is on a plateau", fontsize=9)
    return in_percent(figure, "y")


def plot_support(shares: pd.DataFrame, lam: float, dev: float):
    """What the first five passages of an exam question support, over lambda: a panel an arm.

    ``shares``: family, lambda, n, and a share for each of ``SUPPORTS``. Passages for a wrong option
    are so few that they have a scale of their own below.
    """
    families = in_order_of_arms(shares["family"])
    size = {"figsize": (WIDTH, 4), "height_ratios": (2, 1)}
    figure, axes = pyplot().subplots(2, len(families), sharex=True, sharey="row", **size)
    most = shares.groupby("family").size().max()
    for (above, below), name in zip(axes.T, families, strict=True):
        group = shares[shares["family"] == name].set_index("lambda").sort_index()
        few = len(group) < 0.75 * most  # then nothing is drawn between them
        stack(above, group[list(SUPPORTS)], SUPPORTS, bars=few)
        line = "" if few else "-"
        below.plot(group["wrong"], f"o{line}", ms=3, color=SUPPORTS["wrong"][1], clip_on=False)
        below.set_facecolor(TINT)
        above.set_title(label_of(name), pad=13)
        mark_lambdas(above, lam, dev, named=name == families[0])
        mark_lambdas(below, lam, dev, named=False)
    axes[0, 0].set(xlim=(0, shares["lambda"].max()), xticks=[0, 0.5, 1], ylim=(0, 1))
    axes[0, 0].set(yticks=[0, 0.5, 1], ylabel="of the five passages")
    axes[1, 0].set(ylim=(0, 1.2 * shares["wrong"].max()))
    axes[1, 0].locator_params(axis="y", nbins=3)
    larger = 1 / (1.2 * shares["wrong"].max())
    axes[1, 0].set_ylabel(f"for a wrong\noption, × {larger:.0f}", fontsize=SMALL)
    in_percent(figure, "y")
    legend_below(figure, axes[0, :1], f"λ; {count_label(shares['n'])}")
    headline(figure, caption("support", shares))
    return figure


# does the loss travel? ----------------------------------------------------------------------------

TRAVELLERS = {
    "chr@1": ("o", COLOURS["chr"]),
    "chr+rotation@1": ("s", COLOURS["chr+rotation"]),
    "chr+stranger@1": ("^", COLOURS["chr+stranger"]),
}
"""What is drawn at lambda 1, with marker and colour: contrast, and its two controls."""

_SETTINGS = {
    "mimic": ["as written", "first sentence", "name"],
    "encoder": ["minilm", "mpnet", "e5"],
    "space": ["cosine", "inner product"],
}
"""The values of each column of a setting, the reference's first: the order of the rows."""


def travel_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Rows of ``travel`` at lambda 1 over all questions, named by what is not the reference's.

    Columns panel (the set), row, series, value (the difference to H+ alone), low, high, n, marker,
    colour.
    """
    rows = table[(table["band"] == "all") & table["arm"].isin(TRAVELLERS)]
    places = {key: rows[key].map(values.index) for key, values in _SETTINGS.items()}
    order = pd.DataFrame(
        places | {"size": rows["size"], "arm": rows["arm"].map(list(TRAVELLERS).index)}
    )
    rows = rows.loc[order.sort_values(list(order)).index]
    names = [_setting_label(row, rows["size"].min()) for _, row in rows.iterrows()]
    looks = [TRAVELLERS[arm] for arm in rows["arm"]]
    sets = {name: names_of("panel").get(name, name) for name in in_order(rows["dataset"])}
    drawn = {"value": "difference", "low": "difference_low", "high": "difference_high", "n": "n"}
    return pd.DataFrame(
        {
            "panel": pd.Categorical(rows["dataset"].map(sets), list(sets.values())),
            "row": names,
            "series": rows["arm"],
            **{name: rows[column] for name, column in drawn.items()},
            "marker": [marker for marker, _ in looks],
            "colour": [colour for _, colour in looks],
        }
    ).reset_index(drop=True)


def _setting_label(row: pd.Series, smallest: int) -> str:
    """What a setting changes of the reference, which has the ``smallest`` corpus and its name."""
    if row["mimic"] != _SETTINGS["mimic"][0]:
        return f"H−: its {row['mimic']} alone"
    if row["encoder"] != _SETTINGS["encoder"][0]:
        return names_of("column").get(row["encoder"], row["encoder"])
    if row["space"] != _SETTINGS["space"][0]:
        return row["space"]
    size = f"{row['size']:,} passages"
    return f"MiniLM, cosine, {size}" if row["size"] == smallest else size


# contradiction ------------------------------------------------------------------------------------

MODELLED = "contradiction as a model sees it, not as a judge does"
"""What a figure says whose numbers go through an NLI model."""


def plot_scores(table: pd.DataFrame, evidence: str):
    """Figure 2 as the paper draws it: of each period's documents the share in each bin of CNT.

    ``table``: contradiction (judged or modelled), period, cnt_bin, documents, reported; a panel
    each, and one for the paper. ``evidence`` is its name.
    """
    evidence = "real abstracts" if evidence == "open" else evidence
    groups = dict(iter(table.groupby("contradiction", sort=False)))
    shown = {f"{evidence}, {name}": rows for name, rows in groups.items()}
    papers = list(groups.values())[-1]
    shown["the paper, modelled"] = papers.assign(documents=papers["reported"])
    panels, high = {}, []
    for name, rows in shown.items():
        counts = rows.pivot(index="period", columns="cnt_bin", values="documents")
        counts = counts.loc[table["period"].unique()]
        in_period = counts.sum(axis=1)
        total = in_period.sum()
        panels[f"{name}\nn = {total:,.0f}"] = counts.div(in_period.where(in_period > 0), axis=0)
        is_high = rows["cnt_bin"].str.extract(r"([\d.]+),")[0].astype(float) >= 0.6
        share = 100 * rows.loc[is_high, "documents"].sum() / total
        high.append(f"{share:.0f} % ({name})")
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
    colours = colours_of("side")
    # A side without a colour (of PubMed: its own name) comes last, in black.
    sides = sorted(nodes["side"].unique(), key=lambda side: [*colours, side].index(side))
    crowd = nodes.groupby(["side", "year"]).cumcount() * 0.25  # one year's points side by side
    points = nodes.assign(y=nodes["side"].map(sides[::-1].index) + crowd).set_index("id")
    lines = _sentences(links, points["year"])
    heights = [0.9 + 0.5 * len(sides), 0.145 * len(lines) + 0.1]
    figure = pyplot().figure(figsize=(WIDTH, sum(heights) + 0.5))
    # Two subfigures: the text takes the whole width, whatever the names of the sides need.
    above, below = figure.subfigures(2, 1, height_ratios=heights)
    axis = above.subplots()
    size = 20 + 100 * points["cnt"] / (points["cnt"].max() or 1)
    colour = points["side"].map(colours).fillna("black")
    axis.scatter(points["year"], points["y"], s=size, color=colour, zorder=3)
    for number, link in enumerate(links.itertuples(), 1):
        _draw_link(axis, points.loc[link.a], points.loc[link.b], number)
    box = {"fc": "white", "ec": "none", "pad": 0.5}
    named = pd.unique(links[["a", "b"]].to_numpy().ravel())
    for point in points.loc[named].itertuples():
        name = point.Index.rpartition("-")[2]
        note(axis, point.year, point.y, name, (0, 9), ha="center", zorder=6, bbox=box)
    axis.set_yticks(range(len(sides)), sides[::-1])
    axis.set(ylim=(-0.5, len(sides) - 0.3), xlabel="published; larger: contradicted by more")
    below.text(0.01, 0.98, "\n".join(lines), va="top", fontsize=SMALL)
    counts = nodes["side"].value_counts()
    each = [f"{counts[side]}\u00a0{side}" for side in sides]
    headline(figure, f"“{question}” {len(nodes)} abstracts: {', '.join(each)}")
    return figure


def _sentences(links: pd.DataFrame, year: pd.Series) -> list[str]:
    """The lines of text under a timeline: of each link both abstracts and the two sentences."""
    lines = []
    wrapper = textwrap.TextWrapper(108, initial_indent=" " * 5, subsequent_indent=" " * 9)
    for number, link in enumerate(links.itertuples(), 1):
        reason = getattr(link, "reason", "") or f"CNT {link.value:.2f}"
        lines.append(f"{number}  {reason}")
        for name, sentence in ((link.a, link.sentence_a), (link.b, link.sentence_b)):
            lines += wrapper.wrap(f"{year[name]}, {name.rpartition('-')[2]}: “{sentence}”")
    return lines


def _draw_link(axis, start: pd.Series, end: pd.Series, number: int) -> None:
    """A numbered line between two points; between points of one side an arc below them."""
    along = np.linspace(0, 1, 40)
    x = start["year"] + (end["year"] - start["year"]) * along
    y = start["y"] + (end["y"] - start["y"]) * along
    if abs(start["y"] - end["y"]) < 0.5:
        y -= 1.4 * along * (1 - along)
    axis.plot(x, y, color="black", lw=0.9, zorder=2)
    axis.text(
        (x[0] + x[-1]) / 2,
        y[20],
        f"{number}",
        fontsize=8,
        weight="bold",
        ha="center",
        va="center",
        zorder=5,
        bbox={"boxstyle": "circle,pad=0.15", "fc": "white", "lw": 0.6},
    )


# masked answers -----------------------------------------------------------------------------------

_NO_OPTIONS = ("random", "question", "query2doc", "csqe", "hyde", "thinkqe")
_READ = (*_NO_OPTIONS, "hplus", "several max@0.4", "chr@0.2", "chr@0.4", "chr@1", "chr+rotation@1")
"""Arms of the masked study as they stand in the figure; those before H+ alone saw no options."""


def masked_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Accuracy of the arms with H+ as it was written, as ``plot_dots`` has rows: hollow where no
    options were seen."""
    read = table[(table["dataset"] == "exams") & (table["metric"] == "accuracy")]
    rows = read.set_index("arm").loc[list(_READ)].reset_index()
    families = rows["arm"].str.partition("@")[0]
    hollow = rows["arm"].isin(_NO_OPTIONS)
    return rows.assign(
        panel="",
        row=rows["arm"].map(label_of).str.replace("maximum over", "nearest of"),
        series=hollow.map({True: "options not seen", False: "writer saw the options"}),
        hollow=hollow,
        colour=families.map({name: COLOURS[name] for name in ("hplus", "chr")}).fillna(GREY),
    )[["panel", "row", "series", "value", "low", "high", "n", "colour", "hollow"]]
