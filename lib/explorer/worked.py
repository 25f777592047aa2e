"""One question in one picture: its texts, the turn of the query, the lists, and why they change.

Everything is worked out from the explorer's rows, so no passage is embedded for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from textwrap import fill, shorten

import numpy as np
import pandas as pd

from lib.explorer.rows import CLASSES, GOOD, Explored, Place
from lib.explorer.widget import COLOURS, QUERY
from lib.plots.labels import GREY, colour_of
from lib.plots.style import (
    SMALL,
    WIDTH,
    headline,
    ink,
    label_ends,
    legend_below,
    mark_lambdas,
    pyplot,
)

_WIDE, _CELL = 5.0, 0.6
"""Inches: the picture, so narrow that it can be read on a telephone; a passage's height."""
_PLUS, _MINUS = "black", COLOURS["wrong"]

_TO = 1.4
"""The largest lambda of the lines."""


# one question and its lists -----------------------------------------------------------------------


def worked_table(explored: Explored, place: Place) -> pd.DataFrame:
    """One question with its lists at lambda 0, 1 and the place's own: a row for all that is drawn.

    Parts: ``question`` (name: its id), ``key``, ``H+``, ``H-`` (value: their cosine), ``query``
    (lambda; value: the degrees of its turn), ``passage`` (lambda, rank, class, score, and as name
    its source) and ``class`` (what a class means). Texts of others are shortened. The mimic is the
    question's own.
    """
    question = explored.question(place)
    text = " ".join(question["text"].split())
    begins, asks = re.fullmatch(r"(.*[.?!] )?(.*)", text).groups("")
    told = re.findall(r"\S.*?[.?!](?= |$)", begins)[:3]
    asked = " ".join([*(shorten(one, 72, placeholder=" …") for one in told), asks])
    key = f"{question['answer']}. {question['options'].get(question['answer'], '')}"
    rows = [
        {"part": "question", "name": question["qid"], "text": asked},
        {"part": "key", "text": key if question["options"] else ""},
        {"part": "H+", "text": question["target"]},
        {"part": "H-", "text": question["mimic"], "value": question["c_own"]},
    ]
    drawn = {"right"}
    for lam in sorted({0.0, place.lam, 1.0}):
        here = Place(place.set, place.qid, lam=lam, k=place.k)
        _, degrees = explored.turn(here)
        rows.append({"part": "query", "lambda": lam, "value": degrees})
        for rank, passage in enumerate(explored.list_at(here), 1):
            row = {"part": "passage", "lambda": lam, "rank": rank, "text": _title(passage)}
            row |= {"class": passage["class"], "score": passage["score"], "name": passage["source"]}
            rows.append(row)
            drawn.add(passage["class"])
    means = explored.set_named(place.set)["means"]
    rows += [
        {"part": "class", "class": name, "text": means[name]} for name in CLASSES if name in drawn
    ]
    columns = ["part", "lambda", "rank", "name", "text", "class", "value", "score"]
    table = pd.DataFrame(rows, columns=columns).astype({"rank": "Int64"})
    return table.fillna({"name": "", "text": "", "class": ""})


def _title(passage) -> str:
    """What a passage is called: its section, or how it begins."""
    chapter, *sections = passage["title"].split(" -- ")
    called = f"{chapter}: {sections[-1]}" if sections else chapter or passage["text"]
    return shorten(called, 90, placeholder=" …")


def plot_worked(table: pd.DataFrame):
    """The picture of a ``worked_table``: its texts, the query to scale, and the lists."""
    passages = table[table["part"] == "passage"]
    text = table.drop_duplicates("part").set_index("part")["text"]
    classes = table[table["part"] == "class"]
    meanings = [fill(f"{row['class']}: {row['text']}", 78) for _, row in classes.iterrows()]
    lists = 3.92
    below = lists + 0.05 + _CELL * int(passages["rank"].max())
    high = below + 0.15 * len(meanings) + 0.1
    figure = pyplot().figure(figsize=(_WIDE, high))
    figure.set_layout_engine("none")
    page = figure.add_axes((0, 0, 1, 1))
    page.set(xlim=(0, _WIDE), ylim=(high, 0))
    page.axis("off")
    _say(page, 0.08, 0.22, fill(_finding(passages), 56), 10, weight="bold", va="center")
    _say(page, 0.08, 0.48, _fitted(text["question"], 78, 5))
    _say(page, 0.08, 1.25, shorten(f"✓ {text['key']}", 76), weight="bold", color=COLOURS["right"])
    _hypothesis(page, 1.56, "H+, what is believed", text["H+"], _PLUS)
    _hypothesis(page, 2.46, "H−, what to rule out", text["H-"], _MINUS)
    _turn(figure.add_axes((0.64, (high - 3.3) / high, 0.35, 1.9 / high)), table)
    by_lambda = passages.groupby("lambda")
    across = (_WIDE - 0.08) / len(by_lambda)
    for place, (lam, here) in enumerate(by_lambda):
        _list(page, 0.08 + place * across, lists, across - 0.08, lam, here)
    _say(page, 0.08, below, "\n".join(meanings))
    return figure


def _finding(passages: pd.DataFrame) -> str:
    """How many of the first passages are right with H+ alone, and how many at lambda 1."""
    right = passages["class"].isin(GOOD).groupby(passages["lambda"]).sum()
    k = int(passages["rank"].max())
    return (
        f"Right passages among the first {k}: {right[0.0]} with H+ alone, "
        f"{right[1.0] or 'none'} with H− subtracted at λ = 1"
    )


def _say(axis, x: float, y: float, text: str, size: float = SMALL, va: str = "top", **looks):
    axis.text(x, y, text, fontsize=size, va=va, linespacing=1.15, **looks)


def _fitted(text: str, letters: int, lines: int) -> str:
    """A text in lines of so many letters, cut where it has more of them."""
    return fill(text, letters, max_lines=lines, placeholder=" …", break_on_hyphens=False)


def _hypothesis(page, top: float, head: str, text: str, colour: str) -> None:
    page.fill_between([0.08, 0.12], top, top + 0.78, color=colour, lw=0)
    _say(page, 0.2, top, head, weight="bold", color=colour)
    _say(page, 0.2, top + 0.17, _fitted(text, 46, 4))


def _turn(axis, table: pd.DataFrame) -> None:
    """h+ (up), h- and the query at every lambda of the table, to scale."""
    c = table.loc[table["part"] == "H-", "value"].item()
    queries = table[table["part"] == "query"]
    ends = _plane(axis, c, queries["lambda"])
    for lam, degrees, (x, y) in zip(queries["lambda"], queries["value"], ends, strict=True):
        if lam:
            label = f"λ = {lam:g}\n{degrees:.0f}°"
            _say(axis, x - 0.03, y, label, color=QUERY, ha="right", va="center")
    left, low = np.min(ends, axis=0)
    axis.set(xlim=(left - 0.5, np.sqrt(1 - c * c) + 0.15), ylim=(min(low, 0) - 0.05, 1.2))
    axis.set_title(f"the query turns, to scale\ncos(h+, h−) = {c:.2f}", fontsize=SMALL, pad=2)


def _plane(axis, c: float, lambdas: Sequence[float]) -> list[tuple[float, float]]:
    """Arrows from the origin: h+, h- and h+ - lambda h-, whose ends are returned."""
    side = np.sqrt(max(1 - c * c, 0.0))
    ends = [(-lam * side, 1 - lam * c) for lam in lambdas]
    _arrow(axis, (0, 1), _PLUS)
    _arrow(axis, (side, c), _MINUS)
    for lam, end in zip(lambdas, ends, strict=True):
        if lam:
            _arrow(axis, end, QUERY)
    _say(axis, 0.04, 1.02, "h+", color=_PLUS, va="bottom")
    _say(axis, side, c + 0.03, "h−", color=_MINUS, va="bottom", ha="center")
    axis.set_aspect("equal")
    axis.axis("off")
    return ends


def _arrow(axis, end: tuple[float, float], colour: str) -> None:
    looks = {"arrowstyle": "-|>", "color": colour, "lw": 1.8, "shrinkA": 0, "shrinkB": 0}
    axis.annotate("", end, (0, 0), arrowprops=looks)


def _list(page, x: float, y: float, wide: float, lam: float, passages: pd.DataFrame) -> None:
    """One ranked list from ``y`` on: above it its lambda and what its passages are."""
    whose = {0.0: " (H+ alone)", 1.0: " (the paper's)"}.get(lam, "")
    letters = int(wide / 0.068)
    _say(page, x, y - 0.52, f"λ = {lam:g}{whose}", SMALL + 1, weight="bold")
    counts = passages["class"].value_counts()
    shown = [name for name in CLASSES if name in counts or name == "right"]
    counted = [f"{counts.get(name, 0)} {name}".replace(" ", "\u00a0") for name in shown]
    _say(page, x, y - 0.33, fill(", ".join(counted), letters))
    for _, row in passages.iterrows():
        top = y + _CELL * (row["rank"] - 1)
        bottom = top + _CELL - 0.05
        colour = COLOURS[row["class"]]
        page.fill_between([x, x + wide], top, bottom, color=colour, alpha=0.16, lw=0)
        page.fill_between([x, x + 0.06], top, bottom, color=colour, lw=0)
        _say(page, x + 0.1, top + 0.02, row["class"], weight="bold", color=ink(colour))
        _say(page, x + wide - 0.03, top + 0.02, f"{row['score']:.2f}", ha="right")
        _say(page, x + 0.1, top + 0.15, _fitted(row["text"], letters, 3))


# why the lists change -----------------------------------------------------------------------------


def lines_table(explored: Explored, place: Place) -> pd.DataFrame:
    """Every passage that the rows have for a question: class, s_plus, s_minus, score at the place's
    lambda, best first. The mimic is the question's own."""
    records = explored.records_of(explored.question(place))
    table = pd.DataFrame(records["score"][:, :2].astype(float), columns=["s_plus", "s_minus"])
    table.insert(0, "class", [CLASSES[i] for i in records["class"]])
    table["score"] = table["s_plus"] - place.lam * table["s_minus"]
    return table.sort_values("score", ascending=False, ignore_index=True, kind="stable")


def plot_why(lines: pd.DataFrame, c: float, lam: float, k: int):
    """Why lists change: left h+, h-, the query and all passages, projected on their plane, to
    scale; right the same passages as lines over lambda, S = s_plus - lambda s_minus.

    ``lines`` is ``lines_table``, c = cos(h+, h-). Passages of ``GOOD`` among the k best with H+
    alone are larger, or bold, and so are the k best at the paper's lambda, 1. *Other* are those of
    neither, and those that nobody judged.
    """
    figure, (plane, over) = pyplot().subplots(1, 2, figsize=(WIDTH, 3.6), width_ratios=(1, 1.25))
    at_one = lines["s_plus"] - lines["s_minus"]
    best = lines.index.isin(at_one.nlargest(k).index)
    lost = lines["class"].isin(GOOD) & lines.index.isin(lines["s_plus"].nlargest(k).index)
    others = lines["class"].replace("not judged", "neither")
    lines = lines.assign(bold=lost | best, **{"class": others})
    _draw_in_plane(plane, lines, c, at_one[best].min())
    plane.set_title(
        "A dot is a passage. Large dots and thick lines:\n"
        f"the first {k} at λ = 1 (beyond the dashed line)\n"
        f"and the right ones among the first {k} of H+ alone.",
        y=-0.24,
        fontsize=SMALL,
    )
    named = _draw_over_lambda(over, lines)
    mark_lambdas(over, lam)
    slower = [(lines["s_minus"][~lost] < near).mean() for near in lines["s_minus"][lost]]
    headline(
        figure,
        "The right passages are near H− too: as λ grows, their scores fall faster than those of "
        f"{100 * np.mean(slower):.0f} % of the others",
    )
    label_ends(over, named)
    return figure


def plot_lines(lines: pd.DataFrame, lam: float, k: int):
    """Passages of an ``own.lines_table`` as lines over lambda, the last class in grey. Those that a
    list shows are bold and named; on or above the dashed line are the k best."""
    *names, none = lines["class"].cat.categories
    usual = [COLOURS["on topic"], COLOURS["wrong"], *map(colour_of, names, range(len(names)))]
    colours = dict(zip(names, usual, strict=False)) | {none: GREY}
    figure, axis = pyplot().subplots(figsize=(WIDTH, 4.6))
    to = max(_TO, lam)
    _draw_over_lambda(axis, lines, colours, to)
    grid = np.linspace(0, to, 281)
    at = lines[["s_plus"]].to_numpy() - grid * lines[["s_minus"]].to_numpy()
    kth = np.sort(at, axis=0)[-min(k, len(lines))]
    axis.plot(grid, kth, color="black", lw=1.2, ls="--", zorder=4)
    mark_lambdas(axis, lam)
    shown = {
        x: set((lines["s_plus"] - x * lines["s_minus"]).nlargest(k).index) for x in (0, lam, 1)
    }
    kept = ", ".join(f"λ = {x:g} keeps {len(shown[0] & there)}" for x, there in shown.items() if x)
    headline(figure, f"Lines cross: of the first {k} with H+ alone, {kept}")
    for name, colour in colours.items():
        axis.plot([], [], color=colour, lw=2.2, label=name)
    legend_below(figure, [axis], f"dashed: the score of number {k}")
    bold = lines[lines["bold"]]
    ends = bold["s_plus"] - to * bold["s_minus"]
    axis.set_ylim(ends.min() - 0.05, bold["s_plus"].max() + 0.05)
    texts = [shorten(text, 40, placeholder=" …") for text in bold["passage"]]
    named = zip(ends, texts, bold["class"].map(colours), strict=True)
    label_ends(axis, [(to, *end) for end in named])
    return figure


def _by_class(
    lines: pd.DataFrame, colours: Mapping[str, str]
) -> Iterator[tuple[str, pd.DataFrame]]:
    """The lines of each class; the first, such as what is right, comes last, and so is on top."""
    for name in reversed(colours):
        rows = lines[lines["class"] == name]
        if len(rows):
            yield name, rows


def _draw_in_plane(axis, lines: pd.DataFrame, c: float, level: float) -> None:
    """Passages in the plane of h+ (up) and h-; a dashed line through all that score ``level`` at
    lambda 1: the score is an inner product with the query."""
    side = np.sqrt(1 - c * c)
    _plane(axis, c, [1.0])
    for name, rows in _by_class(lines, COLOURS):
        across = (rows["s_minus"] - c * rows["s_plus"]) / side
        for bold, size, edge in ((False, 4, "white"), (True, 6, "black")):
            these = rows["bold"] == bold
            faint = 0.5 if name == "neither" and not bold else 1
            looks = {"color": COLOURS[name], "ms": size, "mec": edge, "mew": 0.7, "alpha": faint}
            axis.plot(across[these], rows["s_plus"][these], "o", **looks)
    ends = np.array([-0.9, 0.5])
    axis.plot(ends, (level + side * ends) / (1 - c), color=QUERY, lw=0.9, ls="--")
    turn = np.degrees(np.arctan2(side, 1 - c))
    _say(axis, -side, 1 - c + 0.05, f"h+ − h−\n{turn:.0f}° from h+", color=QUERY, va="bottom")
    axis.set(xlim=(-side - 0.1, side + 0.1), ylim=(-0.2, 1.15))


def _draw_over_lambda(
    axis, lines: pd.DataFrame, colours: Mapping[str, str] = COLOURS, to: float = _TO
) -> list[tuple]:
    """Passages as lines over lambda; where each class ends, and its name and colour."""
    named = []
    for name, rows in _by_class(lines, colours):
        start, end = rows["s_plus"], rows["s_plus"] - to * rows["s_minus"]
        thin, bold = ~rows["bold"], rows["bold"]
        faint = 0.25 if name == "neither" else 0.5
        axis.plot([0, to], [start[thin], end[thin]], color=colours[name], lw=0.7, alpha=faint)
        axis.plot([0, to], [start[bold], end[bold]], color=colours[name], lw=2.2, zorder=3)
        called = "other" if name == "neither" else name
        named.append((to, end.median(), f"{called} ({len(rows)})", colours[name]))
    axis.set(xlabel="λ", ylabel="S(d) = cos(d, H+) − λ cos(d, H−)", xlim=(0, to))
    return named


def median_table(explored: Explored, lam: float, k: int = 5) -> pd.DataFrame:
    """A row a set: of the questions for which H+ alone finds something right, how many lose all of
    it at a lambda and at the paper's 1; and how its median question fares, whose turn is in
    degrees."""
    lambdas = sorted({0.0, lam, 1.0})
    rows = {}
    for described in explored.sets:
        name = described["name"]
        places = [Place(name, question["qid"], k=k) for question in explored.of(name)]
        counts = np.array([explored.rights(place, lambdas) for place in places])
        counts = counts[counts[:, 0] > 0]
        row = {"H+ alone finds something": f"{len(counts)} of {len(places)}"}
        for column, at in enumerate(lambdas[1:], 1):
            row[f"lose all at λ = {at:g}"] = int((counts[:, column] == 0).sum())
        middle = explored.start(name, k=k)
        _, degrees = explored.turn(middle)
        row["the median question"] = middle.qid
        right = ", ".join(map(str, explored.rights(middle, lambdas)))
        row[f"right at λ = {', '.join(f'{at:g}' for at in lambdas)}"] = right
        row["turn at λ = 1"] = f"{degrees:.0f}°"
        rows[described["title"]] = row
    return pd.DataFrame.from_dict(rows, orient="index")
