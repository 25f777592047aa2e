"""The paper's Figure 1 as an overview, drawn from one question that really went through."""

from __future__ import annotations

import re
from textwrap import fill, shorten

import numpy as np
import pandas as pd

from lib.pages.trace import trace
from lib.plots.palette import COLOURS
from lib.plots.style import pyplot
from lib.stats import CLASSES

__all__ = ["plot_overview", "trace"]

_PLUS, _MINUS, _CHR, _DARK = (*map(COLOURS.get, ("hplus", "mimic", "chr")), "#222222")


def plot_overview(table: pd.DataFrame):
    """From a question to its answer, without and with contrast; ``table`` is a ``trace``."""
    figure = pyplot().figure(figsize=(7.2, 5))
    figure.set_layout_engine("none")
    boxes = (0.012, 0.63, 0.976, 0.37), (0.012, 0.01, 0.37, 0.545), (0.4, 0.01, 0.588, 0.55)
    for axis in (axes := [figure.add_axes(box) for box in boxes]):
        axis.set(xlim=(0, 1), ylim=(0, 1))
        axis.axis("off")
    one = table.drop_duplicates("part").set_index("part")
    steps = (
        (0.012, 0.967, "a question"),
        (0.4, 0.585, "one search: S(d) is one inner product"),
        (0.012, 0.822, f"two hypotheses, one call (here: {one.loc['H+', 'name']})"),
        (0.012, 0.585, "one vector: h⁺ − λh⁻"),
        (0.4, 0.128, "one reader, without an LLM"),
    )
    for number, (x, y, head) in zip((1, 4, 2, 3, 5), steps, strict=True):
        ring = {"boxstyle": "circle,pad=0.2", "fc": _DARK, "ec": "none"}
        _say(figure, x + 0.01, y, str(number), color="white", weight="bold", ha="center", bbox=ring)
        _say(figure, x + 0.027, y, head, 8.5, weight="bold")
    _words(axes[0], one["text"])
    _plane(axes[1], table[table["part"] == "passage"], one["value"])
    _lists(axes[2], table, one.loc["lambda", "value"])
    return figure


def _say(axis, x: float, y: float, text: str, size: float = 7, **looks) -> None:
    axis.text(x, y, text, **{"fontsize": size, "color": _DARK, "va": "center"} | looks)


def _words(axis, text: pd.Series) -> None:
    """The question, as it begins and what it asks; the two hypotheses, as they begin."""
    question = " ".join(text["question"].split())
    begins, asks = re.fullmatch(r"(.*[.?!] )?(.*)", question).groups("")
    shown = fill(f"{shorten(begins, 240, placeholder=' …')} {asks}", 122)
    _say(axis, 0.027, 0.86, shown, va="top")
    for x, part, what, colour in (
        (0.03, "H+", "H⁺: the target", _PLUS),
        (0.525, "H-", "H⁻: the mimic, to be ruled out", _MINUS),
    ):
        axis.plot([x, x], [0.03, 0.45], color=colour, lw=2.5, solid_capstyle="butt")
        _say(axis, x + 0.012, 0.41, what, 7.5, weight="bold", color=colour)
        _say(axis, x + 0.012, 0.33, fill(shorten(text[part], 222, placeholder=" …"), 60), va="top")


def _plane(axis, passages: pd.DataFrame, value: pd.Series) -> None:
    """To scale: h+ (up), h-, the query, and every passage projected on their plane."""
    c, lam, turn = value["H-"], value["lambda"], value["turn"]
    side = float(np.sqrt(max(1 - c * c, 1e-9)))
    plus, minus, query = (0, 1), (side, c), (-lam * side, 1 - lam * c)
    for start, end, colour, dashes in (
        ((0, 0), plus, _PLUS, "-"),
        ((0, 0), minus, _MINUS, "-"),
        (plus, query, _MINUS, ":"),
        ((0, 0), query, _CHR, "-"),
    ):
        looks = {"arrowstyle": "-|>", "color": colour, "ls": dashes, "lw": 1.5, "shrinkA": 0}
        axis.annotate("", end, start, arrowprops=looks | {"shrinkB": 0})
    for row in passages.to_dict("records"):
        x, y = (row["s_minus"] - c * row["s_plus"]) / side, row["s_plus"]
        ring = "black" if pd.notna(row["after"]) else "white"
        axis.plot(x, y, "o", ms=5, color=COLOURS[row["class"]], mec=ring, mew=0.8)
    arc = np.radians(np.linspace(90, 90 + turn, 30))
    axis.plot(0.3 * np.cos(arc), 0.3 * np.sin(arc), color="black", lw=0.8)
    _say(axis, *(0.4 * np.array([np.cos(arc[15]), np.sin(arc[15])])), f"{turn:.0f}°", ha="center")
    for x, y, name, colour in (
        (0.06, 1.05, "h⁺", _PLUS),
        (side + 0.13, c, "h⁻", _MINUS),
        *(
            (
                (query[0] - 0.04, query[1] - 0.05, "query", _CHR),
                (query[0] / 2 - 0.02, (1 + query[1]) / 2 + 0.06, "−λh⁻", _MINUS),
            )
            if lam
            else ()
        ),
    ):
        _say(axis, x, y, name, 8, color=colour, ha="right")
    note = f"cos(H⁺, H⁻) = {c:.2f}: at λ = {lam:g} the query turns by {turn:.0f}°.\n"
    note += "Dots: the passages, projected; ringed: found by contrast."
    _say(axis, 0, -0.02, note, 6.3, va="bottom", transform=axis.transAxes)
    axis.set(xlim=(min(query[0], 0) - 0.3, side + 0.2), ylim=(min(query[1], 0) - 0.32, 1.1))
    axis.set_aspect("equal", anchor="N")


def _lists(axis, table: pd.DataFrame, lam: float) -> None:
    """Both tops with classes and scores, what moved between them, and the answers they give."""
    passages = table[table["part"] == "passage"]
    step = 0.66 / int(passages[["before", "after"]].max().max())
    answers = table[table["part"] == "answer"].set_index("name")
    for when, x, at, minus, score in (
        ("before", 0.0, 0, "", "s_plus"),
        ("after", 0.56, lam, " − λ cos(d, H⁻)", "score"),
    ):
        _say(axis, x + 0.015, 0.965, f"λ = {at:g}: cos(d, H⁺){minus}", 6.5)
        for row in passages.dropna(subset=when).to_dict("records"):
            top, bottom = (0.925 - step * (row[when] - i) for i in (1, 0.1))
            colour = COLOURS[row["class"]]
            axis.fill_between([x, x + 0.44], bottom, top, color=colour, alpha=0.13, lw=0)
            axis.fill_between([x, x + 0.01], bottom, top, color=colour, lw=0)
            title = fill(shorten(row["text"], 48, placeholder=" …"), 27)
            _say(axis, x + 0.018, (top + bottom) / 2, title, 6.3)
            _say(axis, x + 0.432, (top + bottom) / 2, f"{row[score]:.2f}", 6.5, ha="right")
        mark = {"right": " ✓", "wrong": " ✗"}[answers.loc[when, "class"]]
        _say(axis, x + 0.015, 0.15, shorten(answers.loc[when, "text"], 36, placeholder=" …") + mark)
    for row in passages.to_dict("records"):
        whole = pd.notna([row["before"], row["after"]])
        ends = [
            0.925 - step * (row[w] - 0.55) if ok else 0.25
            for w, ok in zip(("before", "after"), whole, strict=True)
        ]
        dashes = "-" if whole.all() else ":"
        axis.plot([0.445, 0.55], ends, color=COLOURS[row["class"]], lw=1.2, ls=dashes)
    for i, name in enumerate(CLASSES):
        axis.plot(0.02 + 0.13 * i, 0.03, "s", color=COLOURS[name], ms=5)
        _say(axis, 0.035 + 0.13 * i, 0.03, name, 6.5)
    _say(axis, 0.56, 0.03, "dotted: leaves or enters the top", 6.5)
