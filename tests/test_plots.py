"""What figures say: colours that mean one thing, verdicts, n, and what has no interval."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from lib import plots
from lib.data import load_benchmark
from lib.methods import METHODS
from lib.plots import grid as grid_plots
from lib.plots.palette import COLOURS, GREY, SETS, colour_of, in_order
from lib.stats import CLASSES
from lib.studies.grid.cells import NO_RETRIEVAL, RANDOM
from lib.studies.grid.controls import CONTROLS
from lib.studies.grid.experiment import CHOSEN, NAMED
from lib.studies.lam.arms import candidates, rules
from lib.studies.lam.tables import test_arms as arms_of

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
        "chr_given",
        "chr+rotation",
        "chr+stranger",
        "random",
    ],
    "contrast": [
        "hplus",
        "question",
        "chr",
        "chr+by_name",
        "chr+middle",
        "chr+stranger",
        "chr+rotation",
        "copied text left out",
        "shared documents left out",
    ],
    "forms": [
        "chr",
        "chr_given",
        "chr+question1",
        "chr+pool100",
        "chr+centred",
        "margin",
        "mean",
        "max",
    ],
    "subsets": ["chr", "known errors left out", "doubtful targets left out", "hardest tenth"],
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


def test_an_arm_has_its_familys_colour_and_every_other_name_has_one_too():
    assert colour_of("chr@0.4") == colour_of("chr") == COLOURS["chr"]
    assert colour_of("chr+rotation@1") == COLOURS["chr+rotation"] != COLOURS["chr"]
    assert colour_of("ddx-mini medqa", 3) == colour_of("medqa") == SETS["medqa"]
    assert colour_of("BioASQ") == SETS["bioasq"] and colour_of("new", 7) == colour_of("else", 1)


def test_every_arm_that_a_study_can_have_has_words_of_its_own():
    benchmark = load_benchmark("ddx-mini")
    benchmark = replace(benchmark, several=tuple((text,) for text in benchmark.h_plus))
    tried = candidates(benchmark, (0.0, 0.4, 1.0)) | rules(np.linspace(0, 1, 5))
    arms = {arm.name: arm for some in tried.values() for arm in some}
    arms |= arms_of(benchmark, (0.0, 0.4, 1.0), {})
    labels = {name: plots.label_of(name) for name in arms}
    # A key would be read as words if nobody had words for it.
    assert not [label for label in labels.values() if re.search(r"[@+_](?!,| )", label[2:])]
    alike = {name for name in labels if list(labels.values()).count(labels[name]) > 1}
    assert not alike


def test_every_row_of_the_grid_has_words_of_its_own():
    keys = [*METHODS, *CONTROLS, CHOSEN, NAMED, *NO_RETRIEVAL, RANDOM, "majority", "noise floor"]
    labels = [plots.label_of(key) for key in keys]
    assert len(set(labels)) == len(keys) and not set(labels) & (set(keys) - {"closed book"})


@pytest.mark.parametrize(
    ("key", "label"),
    [
        ("chr@0.4", "CHR, λ = 0.4"),
        ("chr@-0.4", "CHR, λ = -0.4"),
        ("hplus", "H+ alone"),
        ("hplus+question1", "H+, question added"),
        ("chr+rotation@1", "matched rotation, λ = 1"),
        ("max@0.5", "maximum of several mimics, λ = 0.5"),
        ("chr+white0.3@0.2", "CHR, whitened, ρ = 0.3, λ = 0.2"),
        (
            "chr@L1 linear (lambda_max=0.4, gamma=1, c0=0.625653)",
            "CHR, L1 linear (λ at most = 0.4, γ = 1, c0 = 0.626)",
        ),
        ("chr@0.2+exchanged0.4", "CHR, λ = 0.2, 40 % of the pairs exchanged"),
        ("hplus+exchanged0.2", "H+ alone, 20 % of the pairs exchanged"),
        ("lda+several+shrink0.1@1", "LDA contrast, several mimics, ρ = 0.1, λ = 1"),
        ("chr+my_own_kind@1", "CHR, my own kind, λ = 1"),
        ("one mimic", "one mimic"),
        ("ddx-real", "ddx-real"),
    ],
)
def test_a_key_becomes_words_and_other_names_stay(key, label):
    assert plots.label_of(key) == label


def test_a_method_that_somebody_adds_is_called_what_it_says(monkeypatch):
    monkeypatch.setitem(METHODS, "mine", SimpleNamespace(name="mine", paper_name="My Method"))
    monkeypatch.setitem(METHODS, "other", SimpleNamespace(name="other"))
    assert plots.label_of("mine") == "My Method" and plots.label_of("other") == "other"


def test_rows_are_called_by_what_they_compare_or_are():
    pairs = pd.DataFrame({"arm": ["chr@1"], "against": ["hplus"], "claim": ["chr@1 > hplus"]})
    assert plots.with_labels(pairs)["label"].tolist() == ["CHR, λ = 1 against H+ alone"]
    families = pd.DataFrame({"family": ["chr+rotation"], "arm": ["chr+rotation@1"]})
    assert plots.with_labels(families)["label"].tolist() == ["matched rotation, λ = 1"]
    with pytest.raises(ValueError, match="nothing to call the rows by"):
        plots.with_labels(pd.DataFrame({"value": [1]}))


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


def test_what_nobody_declared_is_drawn_without_any_verdict():
    table = differences(
        verdict=["SUPPORTED", None, "", None], p_holm=[0.01, np.nan, np.nan, np.nan]
    )
    assert drawn(plots.plot_differences(table, "x")) == {
        "SUPPORTED": (COLOURS["SUPPORTED"], ["a"], True),
        "exploratory: no verdict": (GREY, ["b", "c", "d"], True),
    }
    arms = table.drop(columns="label").assign(arm="chr@1", against="hplus")
    (axis,) = plots.plot_differences(arms, "x").axes
    assert {t.get_text() for t in axis.get_yticklabels()} == {"CHR, λ = 1 against H+ alone"}


def curves(**n) -> pd.DataFrame:
    lambdas = {"question": (0.0,)}
    rows = [
        {"family": x, "lambda": lam, "n": n[x]} for x in n for lam in lambdas.get(x, (0.0, 0.4, 1))
    ]
    values = ("p_at_5", "p_at_5_low", "p_at_5_high", "contamination_at_5", "neither_at_5")
    return pd.DataFrame(rows).assign(**dict.fromkeys(values, 0.5))


def test_curves_say_their_n_and_what_has_a_band():
    figure = plots.plot_lambda(curves(chr=9, question=7), title="some")
    first = figure.axes[0]
    assert [len(axis.collections) for axis in figure.axes] == [1, 0, 0]
    assert [len(line.get_xdata()) for line in first.lines] == [3, 2, 2]  # the last is the dotted
    (legend,) = figure.legends
    assert legend.get_title().get_text() == "some, n = 7 to 9; dotted: λ = 0.4"
    told = ["CHR, n = 9", "the question alone, n = 7"]
    assert [t.get_text() for t in legend.get_texts()] == told
    assert first.lines[0].get_color() == COLOURS["chr"]
    assert "nearest mimic" in figure.axes[1].get_ylabel() and "mean" in figure.axes[2].get_ylabel()
    assert "not judged" in figure.axes[2].get_ylabel()
    (legend,) = plots.plot_trade_off(curves(chr=9)).legends
    assert [t.get_text() for t in legend.get_texts()] == ["CHR", "λ = 0", "λ = 1"]


def test_studies_stand_side_by_side_on_one_scale_each_with_its_n():
    both = [curves(chr=9, question=9).assign(study="one"), curves(chr=5).assign(study="two")]
    both[1]["p_at_5"] = 0.1
    figure = plots.plot_studies(pd.concat(both), lam=0.2)
    one, two = figure.axes
    assert [one.get_title(), two.get_title()] == ["one, n = 9", "two, n = 5"]
    assert one.get_ylim() == two.get_ylim()
    assert one.lines[0].get_color() == two.lines[0].get_color() == COLOURS["chr"]
    assert two.lines[0].get_ydata().tolist() == [0.1] * 3
    assert all(0.2 in axis.lines[-1].get_xdata() for axis in figure.axes)
    three = pd.concat([*both, both[0].assign(study="three")])
    assert [axis.axison for axis in plots.plot_studies(three).axes] == [True, True, True, False]


def test_a_readers_accuracy_stands_beside_the_same_where_nothing_was_found():
    rows = {"label": ["H+ alone", "no passages"], "study": "named", "n": 9, "accuracy": [0.6, 0.9]}
    table = pd.DataFrame(
        rows | {"accuracy_found": [0.8, np.nan], "accuracy_not_found": [0.5, np.nan]}
    )
    table = table.assign(low=table["accuracy"] - 0.1, high=table["accuracy"] + 0.1)
    (axis,) = plots.plot_reading(table).axes
    drawn = {line.get_label(): np.array(line.get_xdata(), float).tolist() for line in axis.lines}
    assert drawn["a target was found"][0] == 0.8 and drawn["none was"][0] == 0.5
    assert np.isnan(drawn["none was"][1]) and drawn["chance"] == [0.2, 0.2]
    assert [t.get_text() for t in axis.get_yticklabels()] == ["H+ alone", "no passages"]


def test_the_papers_figure_5_stands_beside_bands_of_ours():
    columns = ["kind", "series", "lambda", "value"]
    rows = [("exact", "CHR", "1", "53"), ("reference_line", "HyDE", None, "51")]
    reported = pd.DataFrame(rows, columns=columns)
    left, right = plots.plot_reported_lambda(reported, {"BioASQ": curves(chr=9)}).axes
    assert left.lines[-1].get_color() == COLOURS["hyde"]
    assert right.lines[0].get_label() == "BioASQ, n = 9" and len(right.collections) == 1


def test_the_heat_map_shows_every_cell_and_no_colour_for_what_rests_on_few():
    columns = ["method", "dataset", "answerer", "value", "n"]
    rows = [
        ("standard", "ddx-mini b", "reads", 0.25, 32),
        ("chr", "ddx-mini b", "reads", 0.75, 32),
        ("chr", "ddx-mini a", "reads", 0.5, 4),
        ("majority", "ddx-mini b", "no reader", 0.3, 40),
    ]
    figure = grid_plots.plot_accuracy(pd.DataFrame(rows, columns=columns).assign(metric="accuracy"))
    axis = figure.axes[0]
    names = [t.get_text() for t in axis.get_yticklabels()]
    assert names == ["Standard RAG", "CHR", "always the commonest letter"]
    assert [t.get_text() for t in axis.get_xticklabels()] == ["a\nn = 4", "b\nn = 32"]
    places = {(int(t.get_position()[1]), int(t.get_position()[0])): t for t in axis.texts}
    told = {at: text.get_text() for at, text in places.items() if text.get_text()}
    assert told == {(0, 1): "0.25", (1, 1): "0.75", (1, 0): "2 of 4", (2, 1): "0.30\nn = 40"}
    coloured = axis.collections[0].get_array().reshape(3, 2).filled(np.nan)
    expected = [[np.nan, 0.25], [np.nan, 0.75], [np.nan, 0.3]]
    np.testing.assert_array_equal(coloured, expected)
    assert axis.get_ylim()[0] > axis.get_ylim()[1]  # the first method is at the top
    figure.draw_without_rendering()


def test_a_figure_does_not_depend_on_the_fonts_of_a_machine():
    import matplotlib

    plots.plot_sizes(pd.DataFrame({"corpus": ["a"], "passages": [9], "mean_chars": [7.0]}))
    assert matplotlib.rcParams["font.sans-serif"] == ["DejaVu Sans"]


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


def test_panels_that_share_a_scale_show_all_of_every_study():
    """The second study is higher than the first: its band must not be cut off."""
    rows = [
        {"study": study, "family": "chr", "lambda": lam, "p_at_5": p, "n": 9}
        | {"p_at_5_low": p - 0.05, "p_at_5_high": p + 0.05}
        for study, p in (("low", 0.2), ("high", 0.6))
        for lam in (0.0, 1.0)
    ]
    figure = plots.plot_studies(pd.DataFrame(rows))
    for axis in figure.axes[:2]:
        bottom, top = axis.get_ylim()
        assert bottom == 0 and top >= 0.65
