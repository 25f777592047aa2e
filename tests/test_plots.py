"""What figures show: all of their table, colours that mean one thing, n, and no interval of few."""

from __future__ import annotations

import io
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
from lib.plots import caption, figures, labels, style
from lib.plots.captions import moved
from lib.plots.labels import COLOURS, GREY, SETS, colour_of, in_order, in_order_of_arms
from lib.stats import CLASSES
from lib.studies.lambda_sweep.arms import OpenBenchmark, arms_on_test, candidates, rules
from lib.studies.main_tables.cells import NO_RETRIEVAL, RANDOM
from lib.studies.main_tables.controls import CONTROLS
from lib.studies.main_tables.experiment import CHOSEN, NAMED
from tests.drawn import dots, levels, panel_titles_of, texts, title_of
from tests.shipped import SHIPPED

FAMILIES = {
    "methods": "standard hyde query2doc csqe thinkqe fusion hplus chr chr_given chr+rotation "
    "chr+stranger random",
    "mimics": "hplus question chr chr+by_name chr+middle chr+stranger chr+rotation",
    "forms": "chr chr_given chr+question1 chr+pool100 chr+centred margin mean max",
    "classes": f"hplus chr {' '.join(CLASSES)}",
    "verdicts": "SUPPORTED AGAINST INCONCLUSIVE",
}


@pytest.fixture(autouse=True)
def closed_figures():
    import matplotlib.pyplot as plt

    plt.switch_backend("Agg")
    yield
    plt.close("all")


# labels and colours -------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_no_colour_has_two_meanings_in_a_family(family):
    colours = [COLOURS.get(name, GREY) for name in FAMILIES[family].split()]
    assert len(set(colours)) == len(colours)


def test_an_arm_has_its_familys_colour_and_every_other_name_has_one_too():
    assert colour_of("chr+rotation@1") == COLOURS["chr+rotation"] != COLOURS["chr"]
    assert colour_of("ddx-mini medqa", 3) == colour_of("medqa") == SETS["medqa"]
    assert colour_of("new", 7) == colour_of("else", 1)


def test_every_arm_and_row_has_words_of_its_own():
    benchmark = load_benchmark("ddx-mini")
    benchmark = replace(benchmark, several=tuple((text,) for text in benchmark.h_plus))
    bench = OpenBenchmark(benchmark, None, {})
    tried = candidates(bench, (0.0, 0.4, 1.0)) | rules(bench, np.linspace(0, 1, 5))
    arms = {arm.name: arm for group in tried.values() for arm in group}
    arms |= arms_on_test(bench, (0.0, 0.4, 1.0), {})
    named = {name: plots.label_of(name) for name in arms}
    # A key would be read as words if nobody had words for it.
    assert not [label for label in named.values() if re.search(r"[@+_](?!,| )", label[2:])]
    assert len(set(named.values())) == len(named)
    rows = [*SHIPPED, *CONTROLS, CHOSEN, NAMED, *NO_RETRIEVAL, RANDOM, "majority", "noise floor"]
    words = [plots.label_of(key) for key in rows]
    assert len(set(words)) == len(rows) and not set(words) & set(rows) - {"closed book"}


@pytest.mark.parametrize(
    ("key", "label"),
    [
        ("chr@-0.4", "CHR, λ = -0.4"),
        ("hplus", "H+ alone"),
        ("hplus+question1", "H+, question added"),
        ("chr+rotation@1", "matched rotation, λ = 1"),
        ("chr+white0.3@0.2", "CHR, whitened, ρ = 0.3, λ = 0.2"),
        (
            "chr@L1 linear (lambda_max=0.4, gamma=1, c0=0.625653)",
            "CHR, L1 linear (λ at most = 0.4, γ = 1, c0 = 0.626)",
        ),
        ("chr@0.2+exchanged0.4", "CHR, λ = 0.2, 40 % of the pairs exchanged"),
        ("hplus+exchanged0.2", "H+ alone, 20 % of the pairs exchanged"),
        ("lda+several+shrink0.1@1", "LDA contrast, several mimics, ρ = 0.1, λ = 1"),
        ("chr+my_own_kind@1", "CHR, my own kind, λ = 1"),
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
    rows = [labels.method_label(name, 0.35) for name in ("chr", "chr_given", "hyde")]
    assert rows == ["CHR, λ = 1", "CHR, λ = 0.35 (yours)", "HyDE"]


def test_sets_and_arms_stand_in_one_order():
    assert (
        " ".join(in_order(["z", "a", "bioasq", "medqa", "mmlu", "mmlu"])) == "mmlu medqa bioasq a z"
    )
    assert in_order_of_arms(["chr", "z", "hplus", "a", "chr"]) == ["hplus", "chr", "z", "a"]
    assert in_order_of_arms({"b", "a", "chr+rotation"}, ["b", "a"]) == ["chr+rotation", "b", "a"]


# what all figures share ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "sizes"),
    [([0.5, 0.5, 0.5], 1.0), ([3, 0, 0.1], 0.5), ([0, 1, 1.2], [2.0, 1.0, 0.5]), ([0, 9, 20], 1.0)],
)
def test_labels_do_not_overlap_and_stay_as_near_as_they_can(given, sizes):
    placed = style.spread(given, sizes)
    wide = np.broadcast_to(sizes, len(given))
    order = np.argsort(given, kind="stable")
    assert (np.diff(placed[order]) >= (wide[order][1:] + wide[order][:-1]) / 2 - 1e-9).all()
    assert np.mean(placed) == pytest.approx(np.mean(given))


def test_three_lambdas_are_marked_and_equal_ones_share_a_line():
    axis = style.pyplot().figure().add_subplot()
    axis.set_xlim(0, 1.4)
    style.mark_lambdas(axis, 0.4, 0.2)
    assert levels(axis) == [0.2, 1.0, 0.4] and texts(axis) == ["dev", "yours", "paper"]
    other = style.pyplot().figure().add_subplot()
    style.mark_lambdas(other, 1.0)
    assert len(other.lines) == 1 and texts(other) == ["paper, yours"]


def test_lines_are_named_apart_at_the_edge_and_titles_fit():
    figure = style.pyplot().figure(figsize=(4, 2))
    axis = figure.add_subplot()
    axis.set(xlim=(0, 1), ylim=(0, 1))
    style.label_ends(axis, [(0.5, 0.5, "a", "#F0E442"), (1.0, 0.5, "b", "#000000")])
    first, second = (text.xy[1] for text in axis.texts)
    assert texts(axis) == ["a", "b"] and abs(first - second) > 0.02
    assert sum(style.ink("#F0E442")) < 1.3  # dark enough to be read on white
    style.headline(figure, "word " * 20)
    assert max(map(len, figure._suptitle.get_text().split("\n"))) <= 48
    titles = style.panel_titles(["one, n = 9", "a much longer one, n = 9"], 1.0)
    assert titles == ["one\nn\u00a0=\u00a09", "a much longer\none\nn\u00a0=\u00a09"]


# dots with intervals ------------------------------------------------------------------------------


def differences(**columns) -> pd.DataFrame:
    some = {"label": list("abcd"), "difference": [0.3, -0.3, 0.2, 0.1], "n": 9}
    table = pd.DataFrame(some | columns)
    return table.assign(low=table["difference"] - 0.1, high=table["difference"] + 0.1)


def colours_in(figure) -> dict[str, str]:
    """The colour of each row's dot."""
    names = [t.get_text() for t in figure.axes[0].get_yticklabels()]
    lines = [line for axis in figure.axes for line in axis.lines if len(line.get_xdata()) == 1]
    return {names[round(line.get_ydata()[0])]: line.get_color() for line in lines}


def legend_of(figure) -> set[str]:
    return {text.get_text() for legend in figure.legends for text in legend.get_texts()}


def test_differences_have_the_colour_of_their_verdict_whatever_their_interval():
    verdicts = ["SUPPORTED", "AGAINST", "INCONCLUSIVE", "TOO FEW"]
    table = differences(verdict=verdicts, p_holm=0.5, n=[9, 9, 9, 5])
    figure = plots.plot_differences(table, "x", "a title")
    assert colours_in(figure) == {
        "a": COLOURS["SUPPORTED"],
        "b": COLOURS["AGAINST"],
        "c": GREY,
        "d": GREY,
    }
    shown = dots(figure.axes[0])
    assert [shown[name][1] for name in "abcd"] == [True, True, True, False]
    assert [shown[name][0] for name in "abcd"] == table["difference"].tolist()
    assert legend_of(figure) == {*verdicts[:3], "TOO FEW (n < 6)"}
    assert title_of(figure) == "a title" and levels(figure.axes[0]) == [0.0]


def test_what_nobody_declared_is_drawn_without_any_verdict():
    table = differences(dataset=["bioasq", "medqa", "mmlu", "medqa"])
    figure = plots.plot_differences(table, "x")
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == list("cbda")
    assert set(colours_in(figure).values()) == {GREY} and not legend_of(figure)
    (legend,) = figure.legends or [None]
    below = figure._supxlabel.get_text() if figure._supxlabel else legend.get_title().get_text()
    assert "exploratory: no verdict" in below
    holm = plots.plot_differences(differences(p_holm=[0.01, 0.2, 0.04, 0.05]), "x")
    assert legend_of(holm) == {"p < 0.05 (Holm)", "p ≥ 0.05 (Holm)"}


def test_panels_of_differences_share_rows_and_scale():
    table = differences(label=["a", "b", "a", "b"], panel=["p", "p", "q", "q"], n=[9, 9, 7, 7])
    figure = plots.plot_differences(table, "x")
    one, two = figure.axes
    assert panel_titles_of(figure) == ["p, n = 9", "q, n = 7"]
    assert one.get_xlim() == two.get_xlim() and len(dots(one)) == len(dots(two)) == 2


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
    picked = figures.control_rows(claims, 0.2)
    assert picked["panel"].to_dict() == dict.fromkeys((0, 1), "λ = 0.2, dev's") | dict.fromkeys(
        (2, 3, 4), "λ = 1, the paper's"
    )
    assert picked["label"].tolist()[:2] == ["CHR − H+ alone", "CHR − matched rotation"]
    assert caption("controls", picked) == (
        "CHR minus the matched rotation: +0.10 at λ = 0.2 and +0.10 at λ = 1"
    )


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


def test_every_method_is_a_dot_with_its_interval_and_few_questions_have_none():
    figure = figures.plot_methods(methods_table(), "accuracy", "a title", 0.4)
    a, b = figure.axes
    letter = "always the commonest letter"
    assert [t.get_text() for t in a.get_yticklabels()] == ["Standard RAG", "CHR, λ = 1", letter]
    assert dots(a) == {"CHR, λ = 1": (0.5, False)}
    assert dots(b) == {
        "Standard RAG": (0.25, True),
        "CHR, λ = 1": (0.75, True),
        letter: (0.3, True),
    }
    assert panel_titles_of(figure) == ["ddx-mini a, n = 4", "ddx-mini b, n = 32"]
    # Nobody was asked on c: the letter alone makes no panel.
    assert figure._supxlabel.get_text() == "accuracy; NOT RUN: ddx-mini c"
    both = pd.concat([methods_table(), methods_table().replace({"reads": "asks"})])
    assert legend_of(figures.plot_methods(both, "", "", 0.4)) == {"reads", "no reader", "asks"}


def test_numbers_stand_beside_their_dots_and_a_level_is_that_of_its_panel():
    rows = [("hyde", "a", 2.0), ("standard", "a", 3.5), ("standard", "b", 0.0)]
    table = pd.DataFrame(rows, columns=["method", "dataset", "value"])
    table = table.assign(n=9, low=table["value"], high=table["value"])
    levels_of = {"HyDE and itself": {"a": 4.0}}
    shown = figures.method_rows(table, 0.4)
    a, b = plots.plot_dots(shown, "", "", levels=levels_of, xlim=(0, 5), numbers=True).axes
    assert dots(a) == {"Standard RAG": (3.5, True), "HyDE": (2.0, True)}
    assert dots(b) == {"Standard RAG": (0.0, True)} and texts(b) == ["0.0"]
    assert [levels(a), levels(b)] == [[4.0], []]


def test_a_readers_accuracy_stands_beside_the_same_where_nothing_was_found():
    rows = {"arm": ["random", "hplus"], "study": "named", "n": 9, "accuracy": [0.2, 0.6]}
    table = pd.DataFrame(rows | {"accuracy_found": [np.nan, 0.8], "accuracy_not_found": [0.2, 0.5]})
    table = table.assign(low=table["accuracy"] - 0.1, high=table["accuracy"] + 0.1)
    picture = figures.reading_rows(table)
    assert picture["value"].tolist() == [0.6, 0.2, 0.8, 0.5, 0.2]
    assert list(picture["row"].cat.categories) == ["H+ alone", "random passages"]
    assert caption("reading", picture, chance=0.2) == (
        "With H+ alone and no target found the reader is right on 50 % (named); chance is 20 %"
    )


def test_a_cost_figure_names_every_method_that_was_measured(recwarn):
    rows = [("hyde", 900.0, 0.5), ("chr", 20.0, 0.4), ("hplus", 20.0, 0.4), ("csqe", np.nan, 0.3)]
    table = pd.DataFrame(rows, columns=["method", "tokens", "value"]).assign(n=6, value_n=2)
    title = caption("cost", table, x="tokens", unit="tokens", measure="P@5")
    assert title == "HyDE has the highest P@5, 0.50 for 900 tokens; CHR has 0.40 for 20"
    figure = figures.plot_cost(table, "tokens", "tokens", "P@5", title, log=True)
    (axis,) = figure.axes
    assert sorted(texts(axis)) == ["CHR", "H+ alone", "HyDE"]
    assert panel_titles_of(figure) == ["cost: n = 6 questions; P@5: n = 2"]
    assert not [w for w in recwarn if "finite" in str(w.message)]


# stacked composition ------------------------------------------------------------------------------


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
    one, two = figure.axes
    assert panel_titles_of(figure) == ["CHR", "matched rotation"]
    assert one.get_ylim() == two.get_ylim() == (0, 1) and one.get_xlim() == (0, 1)
    *bands, interval = one.collections
    edges = [band.get_paths()[0].vertices[:, 1] for band in bands]
    spans = [(y.min().round(6), y.max().round(6)) for y in edges]
    assert spans == [(0, 0.3), (0.3, 0.5), (0.5, 0.6), (0.6, 1)]
    inside = interval.get_paths()[0].vertices[:, 1]
    assert (inside.min(), inside.max()) == (0.4, 0.5)
    assert {0.2, 0.35, 1.0} == set(levels(one)) and 0.2 not in levels(two)
    (legend,) = figure.legends
    below = legend.get_title().get_text()
    assert below.endswith("black: P@7 with its 95 % band; dashed: the question alone; n = 9")
    assert legend_of(figure) == {name for name, _ in plots.POOLED.values()}


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
    title = caption("changes", table, k=5)
    assert title == "Up to λ = 1.4 the top 5 changes 0 to 1 times, no more"
    figure = plots.plot_spectrum(table, title, k=5, lam=0.2, names={"q1": "why " * 50, "q2": "who"})
    one, _ = figure.axes
    assert panel_titles_of(figure)[1] == "q2: who" and len(panel_titles_of(figure)[0]) < 100
    assert one.collections[0].get_paths()[0].vertices[:, 1].max() == 3
    changes = [line.tolist() for line in one.collections[-1].get_segments()]
    assert changes == [[[0.5, 0], [0.5, 5]]]


# curves with bands --------------------------------------------------------------------------------


def test_studies_stand_side_by_side_on_one_scale_each_with_its_n():
    one = curves(chr=9, question=9).assign(study="one")
    two = curves(chr=7).assign(study="two", p_at_5=0.1, p_at_5_high=0.9)
    table = pd.concat([one, two])
    title = caption("sets", table, k=5)
    rows, dev = table.rename(columns=plots.P_AT_5), {"one": 0.4, "two": 0.0}
    figure = plots.plot_curves(rows, title, ylabel="P@5", lam=0.2, dev=dev)
    first, second = figure.axes
    assert panel_titles_of(figure) == ["one, n = 9", "two, n = 7"]
    assert first.get_ylim() == second.get_ylim() and first.get_ylim()[1] >= 0.9
    by_label = {line.get_label(): line for axis in figure.axes for line in axis.lines}
    assert by_label["CHR"].get_ydata().tolist() == [0.1] * 3
    # Named at the right edge: CHR in the last panel, what only the first one has there.
    assert "CHR" in texts(second) and "the question alone" in texts(first)
    assert "CHR" not in texts(first)
    assert {0.2, 0.4, 1.0} <= set(levels(first)) and {0.2, 0.0, 1.0} <= set(levels(second))
    assert title_of(figure).startswith("At λ = 1 P@5 of one stays at 0.50; two stays at 0.10")


def values_over(x: str, **n) -> pd.DataFrame:
    rows = [(name, at, 0.5, 0.4, 0.6, n[name]) for name in n for at in (0.0, 0.4, 1.0)]
    columns = ["series", x, "value", "low", "high", "n"]
    return pd.DataFrame(rows, columns=columns).assign(metric="P@4")


def test_a_line_of_fewer_than_six_is_said_and_not_drawn():
    table = values_over("lambda", few=5, many=9)
    figure = plots.plot_curves(table, "", panel="metric", line="series", ylabel="mean", lam=0.4)
    (axis,) = figure.axes
    assert "few, n = 5: too few to draw" in texts(axis) and len(axis.collections) == 1


def test_more_series_than_colours_are_drawn_and_only_lambda_is_marked():
    table = values_over("wrong", **{f"set {i}": 9 for i in range(8)})
    figure = plots.plot_curves(table, "", panel="metric", line="series", x="wrong", ylabel="P@4")
    (axis,) = figure.axes
    assert [texts(axis).count(f"set {i}") for i in range(8)] == [1] * 8
    assert "paper" not in texts(axis)


def test_a_line_over_names_stands_in_their_order():
    table = values_over("period", here=9).replace(
        {"period": {0.0: "<2000", 0.4: "to 2005", 1.0: "z"}}
    )
    (axis,) = plots.plot_curves(table, "", panel="metric", line="series", x="period").axes
    assert [t.get_text() for t in axis.get_xticklabels()] == ["<2000", "to 2005", "z"]
    assert axis.lines[0].get_xdata().tolist() == [0, 1, 2]


def test_what_ruling_the_mimic_out_costs_is_drawn_from_h_plus_alone():
    table = curves(chr=9, **{"chr+rotation": 9})
    table.loc[(table["family"] == "chr") & (table["lambda"] == 0.4), "mimic_at_5"] = 0.02
    title = caption("on_the_mimic", table, k=5, lam=0.35)
    assert title == (
        "At λ = 0.4 CHR has 2.0 % on the mimic at P@5 0.50; "
        "matched rotation has 10.0 % on the mimic at P@5 0.50"
    )
    figure = figures.plot_trade_off(table, title, lam=0.35)
    assert "ring: λ = 0.4, nearest to yours" in figure._supxlabel.get_text()
    assert [0.02] in [list(line.get_xdata()) for line in figure.axes[0].lines]


def test_the_papers_figure_5_stands_beside_bands_of_ours():
    rows = [("exact", "CHR", "1", "53"), ("reference_line", "HyDE", None, "51")]
    reported = pd.DataFrame(rows, columns=["kind", "series", "lambda", "value"])
    table = curves(chr=9)
    table.loc[table["lambda"] == 0.4, "p_at_5"] = 0.55
    title = caption("best_lambdas", reported, k=5, measured={"BioASQ": table})
    assert title == "The paper's accuracy is highest at λ = 1; P@5 here at λ = 0.4 (BioASQ)"
    left, right = figures.plot_reported_lambda(reported, {"BioASQ": table}, title).axes
    assert "HyDE" in texts(left) and "BioASQ, n = 9" in texts(right)
    assert right.lines[0].get_ydata().tolist() == [0.5, 0.55, 0.5] and len(right.collections) == 1


# what titles say ----------------------------------------------------------------------------------


def test_titles_follow_their_tables():
    assert moved(0.31, 0.16) == "falls from 0.31 to 0.16"
    assert moved(0.16, 0.31) == "rises from 0.16 to 0.31"
    assert moved(0.314, 0.312) == "stays at 0.31"
    table = curves(chr=9, **{"chr+rotation": 9, "max": 9})
    assert caption("contrast", table, k=5) == (
        "At λ = 1 P@5 stays at 0.50; a turn as large with a wrong mimic: 0.50"
    )
    table.loc[(table["family"] == "chr") & (table["lambda"] == 1), "p_at_5"] = 0.2
    alone = table[table["family"] == "chr"]
    assert caption("contrast", alone, k=7, where=" on x") == (
        "At λ = 1 P@7 on x falls from 0.50 to 0.20"
    )
    assert caption("forms", table[table["family"] != "chr+rotation"], k=5) == (
        "At λ = 1 maximum of several mimics keeps P@5 0.50, plain CHR 0.20; H+ alone has 0.50"
    )
    parts = caption("parts", alone.assign(label="chr"), k=5)
    assert parts == "P@5 from λ = 0 to 1: all 0.50 to 0.20"
    rows = pd.DataFrame({"low": [0.1, -0.2, -0.3], "high": [0.2, 0.2, -0.1]})
    above = caption("clear_of_zero", rows, what="x")
    assert above == "x: of 3 intervals 1 lie above zero, 1 below"
    verdicts = pd.DataFrame({"verdict": ["AGAINST", "AGAINST", "SUPPORTED"]})
    assert caption("verdicts", verdicts) == "Of 3 declared tests 2 AGAINST and 1 SUPPORTED"


def test_chr_and_h_plus_are_compared_a_set_and_reader_at_a_time():
    rows = [("a", "chr", 0.4), ("a", "hplus", 0.5), ("b", "chr", 0.7), ("b", "hplus", 0.6)]
    wide = pd.DataFrame(rows, columns=["dataset", "method", "value"])
    assert caption("chr_and_hplus", wide, measure="P@5") == (
        "P@5 of CHR at λ = 1 is above that of H+ alone on 1 of 2 sets, below it on 1 "
        "(means 0.55 and 0.55)"
    )
    one = wide[wide["dataset"] == "a"].assign(answerer="y")
    readers = pd.concat([wide.assign(answerer="x"), one])
    assert "1 of 3 pairs of set and reader," in caption("chr_and_hplus", readers, measure="x")
    only = wide[wide["method"] == "chr"]
    assert "not run" in caption("chr_and_hplus", only, measure="x")


def test_intervals_of_tiers_overlap_or_not():
    rows = [("Excellent", 0.7, 0.6, 0.8), ("Good", 0.4, 0.3, 0.5), ("Poor", 1, 0, 1)]
    tiers = pd.DataFrame(rows, columns=["tier", "value", "low", "high"])
    tiers = tiers.assign(method="chr", panel="accuracy, a reader")
    assert caption("tiers", tiers).endswith("on 40 % with Good: the intervals do not overlap")
    assert caption("tiers", tiers.assign(high=0.9)).endswith("Good: the intervals overlap")
    assert caption("tiers", tiers[:1]) == "Mimics of one tier only"


# real questions -----------------------------------------------------------------------------------


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
    rows = figures.support_rows(real_curves())
    np.testing.assert_allclose(rows[list(figures.SUPPORTS)].sum(axis=1), 1)
    first = rows[["right", "wrong", "topic", "rest"]].iloc[0]
    assert first.round(6).tolist() == [0.2, 0.1, 0.4, 0.3]
    turned = rows[rows["family"] == "chr+rotation"]
    assert turned["lambda"].tolist() == [0.0, 1.0]  # and nothing below 0
    assert caption("support", rows).startswith("At λ = 1 the share for the right option stays")
    outcomes = figures.outcome_rows(real_curves())
    figure = figures.plot_outcomes(outcomes, 0.4, {"bioasq": 0.2})
    assert panel_titles_of(figure) == [f"{name}, n = 9" for name in figures.OUTCOMES.values()]
    assert len({axis.get_ylim() for axis in figure.axes}) == 1
    assert "dev" in texts(figure.axes[2]) and "dev" not in texts(figure.axes[0])
    one = outcomes[outcomes["panel"] == "right option"]
    assert caption("outcomes", one) == (
        "At λ = 1 support for the right option stays at 0.50 of questions"
    )
    assert caption("outcomes", outcomes).endswith("of questions, for a wrong one stays at 0.10")


# files --------------------------------------------------------------------------------------------


def test_the_table_of_a_figure_says_the_k_it_was_made_with(tmp_path, monkeypatch):
    import matplotlib

    monkeypatch.setenv("CHR_OUT", str(tmp_path))
    figure = figures.plot_cosines(pd.DataFrame({"mimic": "a", "c": [0.1, 0.2]}), "c")
    assert matplotlib.rcParams["font.sans-serif"] == ["DejaVu Sans"]  # on any machine
    for k in (5, 7):
        path = plots.save(figure, f"some{k}", "mini", pd.DataFrame({"p_at_5": [0.5]}), k=k)
        assert path.with_suffix(".csv").read_text() == f"p_at_{k}\n0.500\n"
        assert path.stat().st_size > 1000 and path.with_suffix(".svg").exists()


def test_what_a_notebook_shows_has_twice_the_pixels_and_few_bytes():
    from PIL import Image

    table = curves(chr=9).assign(study="one").rename(columns=plots.P_AT_5)
    figure = plots.plot_curves(table, "", ylabel="P@5")
    png, size = style._sharp_and_small(figure)
    wide, _ = Image.open(io.BytesIO(png)).size
    assert abs(wide - 2 * size["width"]) < 2
    whole = io.BytesIO()
    figure.savefig(whole, format="png", dpi=2 * figure.dpi)
    assert len(png) < 0.7 * len(whole.getvalue())


@pytest.mark.fault(
    "secrets", "A text that is shown is markup, a script or a formula", "drawn as text"
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
