"""What figures say: colours that mean one thing, verdicts, n, and what has no interval."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from lib import plots
from lib.benchmarks import load_benchmark
from lib.methods import METHODS
from lib.plots import grid as grid_plots
from lib.plots import real as real_plots
from lib.plots import said, style
from lib.plots.palette import COLOURS, GREY, SETS, colour_of, in_order, in_order_of_arms
from lib.stats import CLASSES
from lib.studies.grid.cells import NO_RETRIEVAL, RANDOM
from lib.studies.grid.controls import CONTROLS
from lib.studies.grid.experiment import CHOSEN, NAMED
from lib.studies.lam.arms import candidates, rules
from lib.studies.lam.tables import test_arms as arms_of
from tests.shipped import SHIPPED

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
    "support": ["target", "mimic", "on the topic", "neither"],
    "readings": ["all questions", "a target was found", "none was found"],
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
    keys = [*SHIPPED, *CONTROLS, CHOSEN, NAMED, *NO_RETRIEVAL, RANDOM, "majority", "noise floor"]
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


def test_arms_stand_in_one_order_and_others_follow_as_they_come():
    assert in_order_of_arms(["chr", "z", "hplus", "a", "chr"]) == ["hplus", "chr", "z", "a"]
    assert in_order_of_arms({"b", "a", "chr+rotation"}, ["b", "a"]) == ["chr+rotation", "b", "a"]


def test_a_row_of_the_grid_says_at_which_lambda_it_was_searched():
    told = [plots.labels.grid_label(name, 0.35) for name in ("chr", "chr_given", "hyde")]
    assert told == ["CHR, λ = 1", "CHR, λ = 0.35 (yours)", "HyDE"]


# what all figures share --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "sizes"),
    [([0.5, 0.5, 0.5], 1.0), ([3, 0, 0.1], 0.5), ([0, 1, 1.2], [2.0, 1.0, 0.5]), ([4.0], 1.0)],
)
def test_labels_do_not_overlap_and_stay_as_near_as_they_can(given, sizes):
    moved = style.spread(given, sizes)
    wide = np.broadcast_to(sizes, len(given))
    order = np.argsort(given, kind="stable")
    gaps = np.diff(moved[order])
    assert (gaps >= (wide[order][1:] + wide[order][:-1]) / 2 - 1e-9).all()
    assert np.mean(moved) == pytest.approx(np.mean(given)) or (gaps > 0).all()
    apart = style.spread([0, 10, 20], 1.0)
    assert apart.tolist() == [0, 10, 20]


def panels_of(figure) -> list:
    return [axis for axis in figure.axes if axis.axison]


def texts(axis) -> list[str]:
    return [text.get_text() for text in axis.texts]


def test_three_lambdas_are_marked_and_equal_ones_share_a_line():
    axis = style.pyplot().figure().add_subplot()
    axis.set_xlim(0, 1.4)
    style.mark_lambdas(axis, 0.4, 0.2)
    assert [line.get_xdata()[0] for line in axis.lines] == [0.2, 1.0, 0.4]
    assert texts(axis) == ["dev", "yours", "paper"]
    other = style.pyplot().figure().add_subplot()
    style.mark_lambdas(other, 1.0)
    assert len(other.lines) == 1 and texts(other) == ["paper, yours"]


def test_a_line_is_named_at_the_edge_and_colours_of_text_can_be_read():
    axis = style.pyplot().figure().add_subplot()
    axis.set(xlim=(0, 1), ylim=(0, 1))
    style.label_ends(axis, [(0.5, 0.5, "a", "#F0E442"), (1.0, 0.5, "b", "#000000")])
    assert texts(axis) == ["a", "b"] and axis.get_xlim() == (0, 1)
    (first, second) = (text.xy[1] for text in axis.texts)
    assert abs(first - second) > 0.02 and first + second == pytest.approx(1.0)
    bright = 0.299 * style.ink("#F0E442")[0] + 0.587 * style.ink("#F0E442")[1]
    assert bright < 0.45 and style.ink("#000000") == (0, 0, 0)


def test_a_title_is_broken_to_the_width_of_its_figure():
    figure = style.pyplot().figure(figsize=(4, 2))
    style.headline(figure, "word " * 20)
    lines = figure._suptitle.get_text().split("\n")
    assert len(lines) > 1 and max(map(len, lines)) <= 48
    titles = style.panel_titles(["one, n = 9", "a much longer one, n = 9"], 1.0)
    assert titles == ["one\nn\u00a0=\u00a09", "a much longer\none\nn\u00a0=\u00a09"]


# differences -------------------------------------------------------------------------------------


def differences(**columns) -> pd.DataFrame:
    some = {"label": list("abcd"), "difference": [0.3, -0.3, 0.2, 0.1], "n": 9}
    table = pd.DataFrame(some | columns)
    return table.assign(low=table["difference"] - 0.1, high=table["difference"] + 0.1)


def drawn(figure) -> dict[str, tuple]:
    """By verdict: colour, the labels of the rows, and whether intervals are drawn."""
    names = {t.get_position()[1]: t.get_text() for t in figure.axes[0].get_yticklabels()}
    found, kind = {}, ""
    for axis in figure.axes:
        for bars in axis.containers:
            points, _, intervals = bars
            label = bars.get_label()
            kind = kind if label is None or label.startswith("_") else label
            rows = [names[y] for y in points.get_ydata()]
            colour, before, _ = found.get(kind, (points.get_color(), [], False))
            assert colour == points.get_color()
            found[kind] = (colour, before + rows, bool(intervals))
    return found


def test_differences_have_the_colour_of_their_verdict_whatever_their_interval():
    verdicts = ["SUPPORTED", "AGAINST", "INCONCLUSIVE", "TOO FEW"]
    table = differences(verdict=verdicts, p_holm=0.5, n=[9, 9, 9, 5])
    figure = plots.plot_differences(table, "x", "a title")
    assert drawn(figure) == {
        "SUPPORTED": (COLOURS["SUPPORTED"], ["a, n = 9"], True),
        "AGAINST": (COLOURS["AGAINST"], ["b, n = 9"], True),
        "INCONCLUSIVE": (GREY, ["c, n = 9"], True),
        "TOO FEW (n < 6)": (GREY, ["d, n = 5"], False),
    }
    (legend,) = figure.legends
    assert {t.get_text() for t in legend.get_texts()} == set(drawn(figure))
    assert figure._suptitle.get_text() == "a title"


def test_differences_without_a_verdict_have_the_colour_that_holm_leaves_them():
    figure = plots.plot_differences(differences(p_holm=[0.01, 0.2, 0.04, 0.05]), "x")
    assert drawn(figure) == {
        "p < 0.05 (Holm)": (COLOURS["p < 0.05 (Holm)"], ["a", "c"], True),
        "p ≥ 0.05 (Holm)": (GREY, ["b", "d"], True),
    }
    (legend,) = figure.legends
    assert legend.get_title().get_text() == "x\n95 % intervals, uncorrected; n = 9"
    table = differences(dataset=["bioasq", "medqa", "mmlu", "medqa"])
    figure = plots.plot_differences(table, "x")
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == list("cbda")
    # Nothing was declared: it is said below, and there is no legend of one kind.
    assert "exploratory: no verdict" in figure._supxlabel.get_text() and not figure.legends


def test_what_nobody_declared_is_drawn_without_any_verdict():
    table = differences(
        verdict=["SUPPORTED", None, "", None], p_holm=[0.01, np.nan, np.nan, np.nan]
    )
    assert drawn(plots.plot_differences(table, "x")) == {
        "SUPPORTED": (COLOURS["SUPPORTED"], ["a"], True),
        "exploratory: no verdict": (GREY, ["b", "c", "d"], True),
    }
    arms = table.drop(columns="label").assign(arm="chr@1", against="hplus")
    figure = plots.plot_differences(arms, "x")
    names = {t.get_text() for t in figure.axes[0].get_yticklabels()}
    assert names == {"CHR, λ = 1 against H+ alone"}


def test_panels_of_differences_share_rows_and_scale():
    table = differences(label=["a", "b", "a", "b"], panel=["p", "p", "q", "q"], n=[9, 9, 7, 7])
    figure = plots.plot_differences(table, "x")
    one, two = figure.axes
    assert [axis.get_title(loc="left").replace("\u00a0", " ") for axis in (one, two)] == [
        "p, n = 9",
        "q, n = 7",
    ]
    assert one.get_xlim() == two.get_xlim() and len(one.containers) == len(two.containers) == 2
    assert [t.get_text() for t in one.get_yticklabels()] == ["a", "b"]


def test_controls_are_compared_at_one_lambda_each_in_its_panel():
    rows = [
        ("chr@0.2", "hplus"),
        ("chr@0.2", "chr+rotation@0.2"),
        ("chr+stranger@1", "hplus"),
        ("chr@1", "chr+rotation@1"),
        ("chr+question1@1", "hplus+question1"),
        ("chr+question1@0.6", "hplus+question1"),  # plain contrast is not at 0.6
        ("chr+question1@1", "hplus"),  # a form, not a control
        ("max@1", "hplus"),
        ("chr@fixed (lambda=0.2)", "hplus"),
        ("hplus", "question"),
    ]
    claims = pd.DataFrame(rows, columns=["arm", "against"])
    claims = claims.assign(metric="p_at_5", difference=0.1, low=0.0, high=0.2, n=9)
    picked = plots.control_rows(claims, 0.2)
    assert dict(zip(picked.index, picked["panel"], strict=True)) == {
        0: "λ = 0.2, dev's",
        1: "λ = 0.2, dev's",
        2: "λ = 1, the paper's",
        3: "λ = 1, the paper's",
        4: "λ = 1, the paper's",
    }
    assert picked["label"].tolist()[:2] == ["CHR − H+ alone", "CHR − matched rotation"]
    assert plots.control_rows(claims, 0.0)["panel"].iloc[0] == "λ = 0.2"
    told = said.controls(picked)
    assert told == "CHR minus the matched rotation: +0.10 at λ = 0.2 and +0.10 at λ = 1"


# what fills the top k ----------------------------------------------------------------------------


def curves(**n) -> pd.DataFrame:
    lambdas = {"question": (0.0,)}
    rows = [
        {"family": x, "lambda": lam, "n": n[x]} for x in n for lam in lambdas.get(x, (0.0, 0.4, 1))
    ]
    values = ("p_at_5", "p_at_5_low", "p_at_5_high")
    shares = {"target_at_5": 0.3, "both_at_5": 0.2, "mimic_at_5": 0.1, "neither_at_5": 0.4}
    return pd.DataFrame(rows).assign(**dict.fromkeys(values, 0.5), **shares)


def test_bands_add_up_to_one_below_a_line_with_its_band():
    table = curves(chr=9, question=9, **{"chr+rotation": 9})
    table.loc[table["family"] == "chr", "p_at_5_low"] = 0.4
    figure = plots.plot_composition(table, "a title", k=7, lam=0.35, dev={"chr": 0.2})
    one, two = panels_of(figure)
    assert [axis.get_title(loc="left") for axis in (one, two)] == ["CHR", "matched rotation"]
    assert one.get_ylim() == two.get_ylim() == (0, 1) and one.get_xlim() == (0, 1)
    *bands, interval = one.collections
    edges = [band.get_paths()[0].vertices[:, 1] for band in bands]
    assert [(y.min().round(6), y.max().round(6)) for y in edges] == [
        (0, 0.3),
        (0.3, 0.5),
        (0.5, 0.6),
        (0.6, 1),
    ]
    inside = interval.get_paths()[0].vertices[:, 1]
    assert (inside.min(), inside.max()) == (0.4, 0.5)
    lines = {tuple(np.round(line.get_xdata(), 2)): line for line in one.lines}
    assert (0.0, 0.4, 1.0) in lines and (0.2, 0.2) in lines and (0.35, 0.35) in lines
    assert (0.2, 0.2) not in {tuple(np.round(line.get_xdata(), 2)) for line in two.lines}
    told = {"dev", "yours", "paper", "on the target", "on both", "neither, or\nnot judged"}
    assert told <= set(texts(one)) and not texts(two)
    below = figure._supxlabel.get_text()
    assert below.endswith("black: P@7 with its 95 % band; dashed: the question alone; n = 9")


def test_a_thin_band_is_named_too_and_panels_say_n_where_it_differs():
    table = curves(chr=9, **{"chr+stranger": 7})
    table["mimic_at_5"], table["neither_at_5"] = 0.02, 0.48
    figure = plots.plot_composition(table, "", bands=plots.JUDGED, dev=0.4)
    one, two = panels_of(figure)
    assert "on the mimic" in texts(one) and "on neither" in texts(one)
    titles = [axis.get_title(loc="left").replace("\u00a0", " ") for axis in (one, two)]
    assert titles == ["CHR\nn = 9", "another question's mimic\nn = 7"] or titles == [
        "CHR, n = 9",
        "another question's mimic, n = 7",
    ]
    assert {"dev, yours", "paper"} <= set(texts(one))


def test_five_panels_leave_one_place_empty_and_every_column_has_its_numbers():
    families = ("chr", "chr+rotation", "chr+stranger", "chr+by_name", "chr+middle")
    figure = plots.plot_composition(curves(**dict.fromkeys(families, 9)), "")
    assert [axis.axison for axis in figure.axes] == [True] * 5 + [False]
    numbered = [axis.xaxis.get_tick_params()["labelbottom"] for axis in figure.axes[:5]]
    assert numbered == [False, False, True, True, True]


def test_dev_chooses_for_a_family_and_for_the_controls_of_plain_contrast():
    rows = [("one mimic", "hplus", 0.0), ("centred", "chr+centred@0.2", 0.2), ("L1", "x", np.nan)]
    devs = plots.dev_lambdas(pd.DataFrame(rows, columns=["form", "arm", "lambda"]))
    assert devs["chr"] == devs["chr+rotation"] == 0.0 and devs["chr+centred"] == 0.2


def test_a_spectrum_has_a_panel_a_question_and_a_line_a_change():
    rows = [("q1", 0.0, 0.5, 3, 2), ("q1", 0.5, 1.4, 1, 4), ("q2", 0.0, 1.4, 5, 0)]
    table = pd.DataFrame(rows, columns=["question", "start", "end", "target", "neither"])
    table = table.assign(both=0, mimic=0)
    told = said.changes(table, 5)
    assert told == "Up to λ = 1.4 the top 5 changes 0 to 1 times, no more"
    figure = plots.plot_spectrum(table, told, k=5, lam=0.2, names={"q1": "why " * 50, "q2": "who"})
    one, two = figure.axes
    assert one.get_title(loc="left").startswith("q1: why why") and one.get_xlim() == (0, 1.4)
    assert two.get_title(loc="left") == "q2: who" and len(one.get_title(loc="left")) < 100
    target = one.collections[0].get_paths()[0].vertices
    assert target[:, 1].max() == 3
    changes = [line.tolist() for line in one.collections[-1].get_segments()]
    assert changes == [[[0.5, 0], [0.5, 5]]]


# lines -------------------------------------------------------------------------------------------


def test_studies_stand_side_by_side_on_one_scale_each_with_its_n():
    both = [curves(chr=9, question=9).assign(study="one"), curves(chr=5).assign(study="two")]
    both[1] = curves(chr=7).assign(study="two", p_at_5=0.1)
    table = pd.concat(both)
    figure = plots.plot_studies(table, lam=0.2, dev={"one": 0.4, "two": 0.0})
    one, two = figure.axes
    assert [axis.get_title(loc="left") for axis in (one, two)] == ["one, n = 9", "two, n = 7"]
    assert one.get_ylim() == two.get_ylim()
    assert one.lines[0].get_color() == COLOURS["question"] or one.lines[0].get_label() == "CHR"
    by_label = {line.get_label(): line for axis in (one, two) for line in axis.lines}
    assert by_label["CHR"].get_ydata().tolist() == [0.1] * 3
    # Named at the right edge: CHR in the last panel, what only the first one has there.
    assert "CHR" in texts(two) and "the question alone" in texts(one) and "CHR" not in texts(one)
    marked = [{line.get_xdata()[0] for line in axis.lines} for axis in (one, two)]
    assert {0.2, 0.4, 1.0} <= marked[0] and {0.2, 0.0, 1.0} <= marked[1]
    assert figure._suptitle.get_text().startswith("At λ = 1 P@5 of one stays at 0.50")
    four = pd.concat([table.assign(study=f"{s}{i}") for i in (1, 2) for s in "a"] + both[:1])
    assert [axis.axison for axis in plots.plot_studies(four).axes] == [True] * 3


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


def values_over(x: str, **n) -> pd.DataFrame:
    rows = [(name, at, 0.5, 0.4, 0.6, n[name]) for name in n for at in (0.0, 0.4, 1.0)]
    columns = ["series", x, "value", "low", "high", "n"]
    return pd.DataFrame(rows, columns=columns).assign(metric="P@4")


def test_a_line_of_fewer_than_six_is_said_and_not_drawn():
    table = values_over("lambda", few=5, many=9)
    figure = plots.plot_curves(table, "", panel="metric", line="series", ylabel="mean", lam=0.4)
    (axis,) = figure.axes
    lines = [line for line in axis.lines if line.get_label() in ("few", "many, n = 9")]
    assert [line.get_label() for line in lines] == ["many, n = 9"] and len(axis.collections) == 1
    assert "few, n = 5: too few to draw" in texts(axis)


def test_more_series_than_colours_are_drawn_and_only_lambda_is_marked():
    table = values_over("wrong", **{f"set {i}": 9 for i in range(8)})
    figure = plots.plot_curves(table, "", panel="metric", line="series", x="wrong", ylabel="P@4")
    (axis,) = figure.axes
    named = [line for line in axis.lines if line.get_label().startswith("set ")]
    assert len(named) == 8 and "paper" not in texts(axis)
    assert [texts(axis).count(f"set {i}") for i in range(8)] == [1] * 8


def test_what_ruling_the_mimic_out_costs_is_drawn_from_h_plus_alone():
    table = curves(chr=9, **{"chr+rotation": 9})
    table.loc[(table["family"] == "chr") & (table["lambda"] == 0.4), "mimic_at_5"] = 0.02
    told = said.on_the_mimic(table, 5, 0.35)
    assert told == (
        "At λ = 0.4 CHR has 2.0 % on the mimic at P@5 0.50; "
        "matched rotation has 10.0 % on the mimic at P@5 0.50"
    )
    figure = plots.plot_trade_off(table, told, lam=0.35)
    assert "ring: λ = 0.4, nearest to yours" in figure._supxlabel.get_text()
    rings = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert [0.02] in [list(line.get_xdata()) for line in rings]


def test_the_papers_figure_5_stands_beside_bands_of_ours():
    columns = ["kind", "series", "lambda", "value"]
    rows = [("exact", "CHR", "1", "53"), ("reference_line", "HyDE", None, "51")]
    reported = pd.DataFrame(rows, columns=columns)
    table = curves(chr=9)
    table.loc[table["lambda"] == 0.4, "p_at_5"] = 0.55
    told = said.best_lambdas(reported, {"BioASQ": table}, 5)
    assert told == "The paper's accuracy is highest at λ = 1; P@5 here at λ = 0.4 (BioASQ)"
    left, right = plots.plot_reported_lambda(reported, {"BioASQ": table}, title=told).axes
    assert "HyDE" in texts(left) and "BioASQ, n = 9" in texts(right)
    assert right.lines[0].get_ydata().tolist() == [0.5, 0.55, 0.5] and len(right.collections) == 1


# dots --------------------------------------------------------------------------------------------


def methods_table() -> pd.DataFrame:
    rows = [
        ("chr", "ddx-mini b", "reads", 0.75, 32),
        ("standard", "ddx-mini b", "reads", 0.25, 32),
        ("chr", "ddx-mini a", "reads", 0.5, 4),
        ("majority", "ddx-mini c", "no reader", 0.3, 40),
        ("majority", "ddx-mini b", "no reader", 0.3, 32),
    ]
    table = pd.DataFrame(rows, columns=["method", "dataset", "answerer", "value", "n"])
    return table.assign(low=table["value"] - 0.1, high=table["value"] + 0.1)


def dots(axis) -> dict[str, tuple[float, bool]]:
    """By the name of a row: the value of its dot, and whether it has an interval."""
    names = [t.get_text() for t in axis.figure.axes[0].get_yticklabels()]
    found = {}
    for points, _, intervals in axis.containers:
        (x,), (y,) = points.get_data()
        found[names[round(y)]] = (x, bool(intervals))
    return found


def test_every_method_is_a_dot_with_its_interval_and_few_questions_have_none():
    figure = grid_plots.plot_methods(methods_table(), "accuracy", "a title", 0.4)
    a, b = figure.axes
    names = [t.get_text() for t in a.get_yticklabels()]
    assert names == ["Standard RAG", "CHR, λ = 1", "always the commonest letter"]
    assert dots(a) == {"CHR, λ = 1": (0.5, False)}
    assert dots(b) == {
        "Standard RAG": (0.25, True),
        "CHR, λ = 1": (0.75, True),
        "always the commonest letter": (0.3, True),
    }
    titles = [axis.get_title(loc="left").replace("\u00a0", " ") for axis in (a, b)]
    assert titles == ["ddx-mini a, n = 4", "ddx-mini b, n = 32"]
    # Nobody was asked on c: the letter alone makes no panel.
    assert figure._supxlabel.get_text() == "accuracy; NOT RUN: ddx-mini c"
    assert a.get_ylim()[0] > a.get_ylim()[1]  # the first method is at the top
    figure.draw_without_rendering()


def test_several_answerers_have_a_colour_each():
    table = pd.concat([methods_table(), methods_table().replace({"reads": "asks"})])
    figure = grid_plots.plot_methods(table, "accuracy", "", 0.4)
    (legend,) = figure.legends
    assert {t.get_text() for t in legend.get_texts()} == {"reads", "no reader", "asks"}


def test_shared_passages_stand_beside_the_noise_floor():
    rows = [
        ("hyde", "a", 2.0),
        ("standard", "a", 3.5),
        ("noise floor", "a", 4.0),
        ("standard", "b", 0.0),
    ]
    table = pd.DataFrame(rows, columns=["method", "dataset", "count"]).assign(n=9)
    table = table.assign(count_low=table["count"], count_high=table["count"])
    figure = grid_plots.plot_overlap(table, 5, "", 0.4)
    a, b = figure.axes
    assert dots(a) == {"Standard RAG": (3.5, True), "HyDE": (2.0, True)}
    assert dots(b) == {"Standard RAG": (0.0, True)} and texts(b) == ["0.0"]
    levels = [
        [line.get_xdata()[0] for line in x.lines if len(line.get_xdata()) == 2] for x in (a, b)
    ]
    assert levels == [[4.0], []]


def test_a_readers_accuracy_stands_beside_the_same_where_nothing_was_found():
    rows = {"arm": ["random", "hplus"], "study": "named", "n": 9, "accuracy": [0.2, 0.6]}
    table = pd.DataFrame(rows | {"accuracy_found": [np.nan, 0.8], "accuracy_not_found": [0.2, 0.5]})
    table = table.assign(low=table["accuracy"] - 0.1, high=table["accuracy"] + 0.1)
    picture = grid_plots.reading_rows(table)
    assert picture["value"].tolist() == [0.6, 0.2, 0.8, 0.5, 0.2]
    figure = grid_plots.plot_reading(picture)
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == [
        "H+ alone",
        "random passages",
    ]
    told = "With H+ alone and no target found the reader is right on 50 % (named); chance is 20 %"
    assert figure._suptitle.get_text().replace("\n", " ") == told


def test_a_cost_figure_names_every_method_that_was_measured(recwarn):
    rows = [("hyde", 900.0, 0.5), ("chr", 20.0, 0.4), ("hplus", 20.0, 0.4), ("csqe", np.nan, 0.3)]
    table = pd.DataFrame(rows, columns=["method", "tokens", "value"]).assign(n=6, value_n=2)
    told = said.cost(table, "tokens", "tokens", "P@5")
    assert told == "HyDE has the highest P@5, 0.50 for 900 tokens; CHR has 0.40 for 20"
    figure = grid_plots.plot_cost(table, "tokens", "tokens", "P@5", told, log=True)
    figure.draw_without_rendering()
    (axis,) = figure.axes
    assert sorted(texts(axis)) == ["CHR", "H+ alone", "HyDE"]
    heights = {text.get_text(): text.xy[1] for text in axis.texts}
    assert abs(heights["CHR"] - heights["H+ alone"]) >= 0.07 - 1e-9
    assert axis.get_title(loc="left") == "cost: n = 6 questions; P@5: n = 2"
    assert not [w for w in recwarn if "finite" in str(w.message)]


# what titles say ---------------------------------------------------------------------------------


def test_a_title_says_where_a_value_went():
    assert said.moved(0.31, 0.16) == "falls from 0.31 to 0.16"
    assert said.moved(0.16, 0.31) == "rises from 0.16 to 0.31"
    assert said.moved(0.314, 0.312) == "stays at 0.31"


def test_titles_follow_their_tables():
    table = curves(chr=9, **{"chr+rotation": 9, "max": 9})
    assert said.contrast(table, 5) == (
        "At λ = 1 P@5 stays at 0.50; a turn as large with a wrong mimic: 0.50"
    )
    table.loc[(table["family"] == "chr") & (table["lambda"] == 1), "p_at_5"] = 0.2
    alone = table[table["family"] == "chr"]
    assert said.contrast(alone, 7, where=" on x") == "At λ = 1 P@7 on x falls from 0.50 to 0.20"
    assert said.forms(table[table["family"] != "chr+rotation"], 5) == (
        "At λ = 1 maximum of several mimics keeps P@5 0.50, plain CHR 0.20; H+ alone has 0.50"
    )
    assert said.parts(alone.assign(label="chr"), 5) == "P@5 from λ = 0 to 1: all 0.50 to 0.20"
    rows = pd.DataFrame({"low": [0.1, -0.2, -0.3], "high": [0.2, 0.2, -0.1]})
    assert said.clear_of_zero(rows, "x") == "x: of 3 intervals 1 lie above zero, 1 below"
    verdicts = pd.Series(["AGAINST", "AGAINST", "SUPPORTED"])
    assert said.counts_of(verdicts) == "Of 3 declared tests 2 AGAINST and 1 SUPPORTED"
    wide = pd.DataFrame(
        [("a", "chr", 0.4), ("a", "hplus", 0.5), ("b", "chr", 0.7), ("b", "hplus", 0.6)],
        columns=["dataset", "method", "value"],
    )
    assert said.chr_and_hplus(wide, "P@5") == (
        "P@5 of CHR at λ = 1 is above that of H+ alone on 1 of 2 sets (0.55 against 0.55, means)"
    )
    one = wide[wide["dataset"] == "a"]
    told = "P@5 of CHR at λ = 1 is below that of H+ alone (0.40 against 0.50)"
    assert said.chr_and_hplus(one, "P@5") == told
    worse = pd.concat([one, one.assign(dataset="c")])
    assert " is below that of H+ alone on both sets (" in said.chr_and_hplus(worse, "P@5")
    readers = pd.concat([wide.assign(answerer="x"), one.assign(answerer="y")])
    assert "on 1 of 3 pairs of set and reader (" in said.chr_and_hplus(readers, "Accuracy")
    assert "not run" in said.chr_and_hplus(wide[wide["method"] == "chr"], "P@5")
    tiers = pd.DataFrame(
        [("Excellent", 0.7, 0.6, 0.8, 50), ("Good", 0.4, 0.3, 0.5, 40), ("Poor", 1, 0, 1, 1)],
        columns=["tier", "value", "low", "high", "n"],
    )
    assert said.tiers(tiers).endswith("on 40 % with Good: the intervals do not overlap")
    assert said.tiers(tiers.assign(high=0.9)).endswith("Good: the intervals overlap")
    assert said.tiers(tiers[:1]) == "Mimics of one tier only"


# real questions ----------------------------------------------------------------------------------


def real_curves() -> pd.DataFrame:
    shares = {
        "supports_right_at_5": 0.2,
        "supports_wrong_at_5": 0.1,
        "on_topic_at_5": 0.7,
        "hit_right": 0.5,
        "misled": 0.1,
    }
    rows = [("bioasq", "own", lam, "p_at_5", 0.5) for lam in (-1.0, 0.0, 1.0)]
    for mimic, lambdas in (("own", (-1.0, 0.0, 1.0)), ("matched rotation", (1.0,))):
        for lam in lambdas:
            rows += [("exams", mimic, lam, metric, value) for metric, value in shares.items()]
    table = pd.DataFrame(rows, columns=["dataset", "mimic", "lambda", "metric", "value"])
    return table.assign(low=table["value"] - 0.1, high=table["value"] + 0.1, n=9)


def test_what_five_passages_support_adds_up_and_controls_start_at_h_plus_alone():
    rows = real_plots.support_rows(real_curves())
    np.testing.assert_allclose(rows[list(real_plots.SUPPORTS)].sum(axis=1), 1)
    assert rows[["right", "wrong", "topic", "rest"]].iloc[0].round(6).tolist() == [
        0.2,
        0.1,
        0.4,
        0.3,
    ]
    turned = rows[rows["family"] == "chr+rotation"]
    assert turned["lambda"].tolist() == [0.0, 1.0]  # and nothing below 0
    figure = real_plots.plot_support(rows, 0.4, {"exams": 0.2})
    assert figure._suptitle.get_text().startswith("At λ = 1 the share for the right option stays")
    outcomes = real_plots.outcome_rows(real_curves())
    figure = real_plots.plot_outcomes(outcomes, 0.4, {"bioasq": 0.2})
    assert [axis.get_title(loc="left") for axis in figure.axes] == [
        f"{name}, n = 9" for name in real_plots.OUTCOMES.values()
    ]
    both = r"At λ = 1 support for the right option (.*) of questions, for a wrong one (.*)"
    told = figure._suptitle.get_text().replace("\n", " ")
    one = outcomes[outcomes["panel"] == "right option"]
    alone = real_plots.plot_outcomes(one, 0.4)._suptitle.get_text().replace("\n", " ")
    assert (
        alone == f"At λ = 1 support for the right option {re.fullmatch(both, told)[1]} of questions"
    )
    limits = {axis.get_ylim() for axis in figure.axes}
    assert (
        len(limits) == 1 and "dev" in texts(figure.axes[2]) and "dev" not in texts(figure.axes[0])
    )


def test_a_figure_does_not_depend_on_the_fonts_of_a_machine():
    import matplotlib

    plots.plot_cosines({"a": [0.1, 0.2]}, "c")
    assert matplotlib.rcParams["font.sans-serif"] == ["DejaVu Sans"]


def test_the_table_of_a_figure_says_the_k_it_was_made_with(tmp_path, monkeypatch):
    monkeypatch.setenv("CHR_OUT", str(tmp_path))
    figure = plots.plot_cosines({"a": [0.1, 0.2]}, "c")
    for k in (5, 7):
        path = plots.save(figure, f"some{k}", "mini", pd.DataFrame({"p_at_5": [0.5]}), k=k)
        assert path.with_suffix(".csv").read_text() == f"p_at_{k}\n0.500\n"
        assert path.stat().st_size > 1000 and path.with_suffix(".svg").exists()


def test_what_a_notebook_shows_has_twice_the_pixels_and_few_bytes():
    import io

    from PIL import Image

    figure = plots.plot_studies(curves(chr=9).assign(study="one"))
    png, size = style._sharp_and_small(figure)
    wide, high = Image.open(io.BytesIO(png)).size
    assert (wide, high) == (2 * size["width"], 2 * size["height"]) or abs(
        wide - 2 * size["width"]
    ) < 2
    whole = io.BytesIO()
    figure.savefig(whole, format="png", dpi=2 * figure.dpi)
    assert len(png) < 0.7 * len(whole.getvalue())


@pytest.mark.fault(
    "secrets", "A text of a figure is a formula, empty or a control character", "drawn as text"
)
@pytest.mark.parametrize(
    "text",
    [
        *("<script>alert(1)</script>", r"$\frac{1}$", "$$", "", "   ", "--> ]]> &lt;"),
        *("\u202eabc", "a\0b", "a\x1b[2J\x08b", "a\ud800b", "\uffff", "_hidden", "x" * 5000),
    ],
)
def test_any_text_can_stand_in_a_figure(text, own_folders, tmp_path, monkeypatch):
    monkeypatch.setenv("CHR_OUT", str(tmp_path))
    figure, axis = style.pyplot().subplots()
    axis.plot([0, 1], [0, 1], label=text or "line")
    axis.set(title=text, xlabel=text, ylabel=text)
    axis.text(0, 0, text)
    style.headline(figure, text)
    style.legend_below(figure, [axis], title=text)
    path = style.save(figure, "any", "mini", pd.DataFrame({"text": ["a"]}))
    assert path.read_bytes().startswith(b"\x89PNG")
    drawn = ElementTree.parse(path.with_suffix(".svg"))
    assert not [e.tag for e in drawn.iter() if e.tag.endswith("script")]
    if "$" in text:
        assert axis.get_title(loc="left") == text and not axis.xaxis.label.get_parse_math()
