"""What figures say: colours that mean one thing, verdicts, n, and what has no interval."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from lib import plots
from lib.plots import grid as grid_plots
from lib.plots.palette import COLOURS, GREY, SETS, colour_of, in_order
from lib.stats import CLASSES

FAMILIES = {
    "methods": [
        "standard",
        "hyde",
        "query2doc",
        "csqe",
        "thinkqe",
        "fusion",
        "hplus",
        "chr",
        "chr, given λ",
        "chr, matched rotation",
    ],
    "contrast": [
        "hplus",
        "nearest",
        "chr, given λ",
        "by name",
        "middle",
        "random",
        "matched rotation",
        "no copied text",
        "question added",
        "pool of 100",
        "margin (L4)",
        "mean of 5 mimics",
        "maximum of 5",
    ],
    "classes": ["hplus", "chr", *CLASSES],
    "verdicts": ["SUPPORTED", "AGAINST", "p < 0.05 (Holm)", "INCONCLUSIVE"],
}


@pytest.fixture(autouse=True)
def closed_figures():
    import matplotlib.pyplot as plt

    plt.switch_backend("Agg")
    yield
    plt.close("all")


@pytest.mark.parametrize("family", FAMILIES)
def test_no_colour_has_two_meanings_in_a_family(family):
    colours = [COLOURS.get(name, GREY) for name in FAMILIES[family]]
    assert len(set(colours)) == len(colours)


def test_one_concept_has_one_colour_and_every_other_name_has_one_too():
    assert COLOURS["chr"] == COLOURS["nearest"] == COLOURS["CHR, one mimic"]
    assert colour_of("ddx-mini medqa", 3) == colour_of("medqa") == SETS["medqa"]
    assert colour_of("BioASQ") == SETS["bioasq"] and colour_of("new", 7) == colour_of("else", 1)


def test_question_sets_stand_in_the_papers_order():
    assert in_order(["z", "a", "bioasq", "medqa", "mmlu", "mmlu"]) == [
        "mmlu",
        "medqa",
        "bioasq",
        "a",
        "z",
    ]


def differences(**columns) -> pd.DataFrame:
    some = {"label": list("abcd"), "difference": [0.3, -0.3, 0.2, 0.1], "n": 9}
    table = pd.DataFrame(some | columns)
    return table.assign(low=table["difference"] - 0.1, high=table["difference"] + 0.1)


def drawn(figure) -> dict[str, tuple]:
    """By what the legend calls them: colour, the labels of the rows, and whether intervals are."""
    (axis,), (legend,) = figure.axes, figure.legends
    names = {t.get_position()[1]: t.get_text() for t in axis.get_yticklabels()}
    found = {}
    for bars in axis.containers:
        points, _, intervals = bars
        rows = [names[y] for y in points.get_ydata()]
        found[bars.get_label()] = (points.get_color(), rows, bool(intervals))
    assert {t.get_text() for t in legend.get_texts()} == set(found)
    return found


def test_differences_have_the_colour_of_their_verdict_whatever_their_interval():
    verdicts = ["SUPPORTED", "AGAINST", "INCONCLUSIVE", "TOO FEW"]
    table = differences(verdict=verdicts, p_holm=0.5, n=[9, 9, 9, 5])
    assert drawn(plots.plot_differences(table, "x")) == {
        "SUPPORTED": (COLOURS["SUPPORTED"], ["a, n = 9"], True),
        "AGAINST": (COLOURS["AGAINST"], ["b, n = 9"], True),
        "INCONCLUSIVE": (GREY, ["c, n = 9"], True),
        "TOO FEW (n < 6)": (GREY, ["d, n = 5"], False),
    }


def test_differences_without_a_verdict_have_the_colour_that_holm_leaves_them():
    figure = plots.plot_differences(differences(p_holm=[0.01, 0.2, 0.04, 0.05]), "x")
    assert drawn(figure) == {
        "p < 0.05 (Holm)": (COLOURS["p < 0.05 (Holm)"], ["a", "c"], True),
        "p ≥ 0.05 (Holm)": (GREY, ["b", "d"], True),
    }
    assert figure._supxlabel.get_text() == "x\n95 % intervals, uncorrected; n = 9"
    table = differences(dataset=["bioasq", "medqa", "mmlu", "medqa"])
    (axis,) = plots.plot_differences(table, "x").axes
    assert [t.get_text() for t in axis.get_yticklabels()] == list("cbda")


def curves(**n) -> pd.DataFrame:
    rows = [{"label": x, "lambda": lam, "n": n[x]} for x in n for lam in (0.0, 0.4, 1.0)]
    values = ("p_at_5", "p_at_5_low", "p_at_5_high", "contamination_at_5", "neither_at_5")
    return pd.DataFrame(rows).assign(**dict.fromkeys(values, 0.5))


def test_curves_say_their_n_and_what_has_a_band():
    figure = plots.plot_lambda(curves(nearest=9, random=7), "label", title="some")
    assert [len(axis.collections) for axis in figure.axes] == [2, 0, 0]
    (legend,) = figure.legends
    assert legend.get_title().get_text() == "some, n = 7 to 9; dotted: λ = 0.4"
    assert [t.get_text() for t in legend.get_texts()] == ["nearest, n = 9", "random, n = 7"]
    assert "nearest mimic" in figure.axes[1].get_ylabel() and "mean" in figure.axes[2].get_ylabel()
    (legend,) = plots.plot_trade_off(curves(nearest=9), "label").legends
    assert [t.get_text() for t in legend.get_texts()] == ["nearest", "λ = 0", "λ = 1"]


def test_the_papers_figure_5_stands_beside_bands_of_ours():
    columns = ["kind", "series", "lambda", "value"]
    rows = [("exact", "CHR", "1", "53"), ("reference_line", "HyDE", None, "51")]
    reported = pd.DataFrame(rows, columns=columns)
    left, right = plots.plot_reported_lambda(reported, {"BioASQ": curves(nearest=9)}).axes
    assert left.lines[-1].get_color() == COLOURS["hyde"]
    assert right.lines[0].get_label() == "BioASQ, n = 9" and len(right.collections) == 1


def test_passages_are_no_fraction_of_characters():
    table = pd.DataFrame({"corpus": ["a"], "passages": [1339], "mean_chars": [716.2]})
    (axis,) = plots.plot_sizes(table).axes
    told = "a\n1,339 passages, 716 characters each on average"
    assert [t.get_text() for t in axis.get_yticklabels()] == [told]


def test_a_cost_figure_without_any_point_is_drawn_and_says_so():
    table = pd.DataFrame(
        {
            "method": ["hyde"],
            "output_tokens": [10.0],
            "value": [np.nan],
            "n": [3],
            "value_n": [np.nan],
        }
    )
    (axis,) = grid_plots.plot_cost(table, "P@5").axes
    assert axis.get_title(loc="left") == "tokens: n = 3 questions; P@5: n = 0" and not axis.lines
