"""What figures show: all of their table, colours that mean one thing, n, and no interval of few."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import plots
from lib.benchmarks import load_benchmark
from lib.methods import SHIPPED
from lib.plots import caption, figures, labels, style
from lib.plots.captions import moved
from lib.plots.labels import COLOURS, GREY, in_order, in_order_of_arms
from lib.stats import CLASSES
from lib.studies.lambda_sweep.arms import OpenBenchmark, arms_on_test, candidates
from lib.studies.main_tables.accuracy import PAPER_NAMES
from lib.studies.main_tables.experiment import CHOSEN, CONTROLS, NAMED, NO_RETRIEVAL, RANDOM
from tests.drawn import dots, levels, panel_titles_of, texts, title_of

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


def test_no_colour_has_two_meanings_in_a_family():
    for names in FAMILIES.values():
        colours = [COLOURS.get(name, GREY) for name in names.split()]
        assert len(set(colours)) == len(colours)


def test_every_arm_and_row_has_words_of_its_own():
    benchmark = load_benchmark("ddx-mini")
    benchmark = replace(benchmark, several=tuple((text,) for text in benchmark.h_plus))
    searched = SimpleNamespace(index=SimpleNamespace(approximate=False))
    bench = OpenBenchmark(benchmark, searched, {}, lambdas=(0.0, 0.4, 1.0))
    bench.__dict__["cosines"] = dict.fromkeys(benchmark.qids, 0.5)
    arms = {arm.name: arm for group in candidates(bench).values() for arm in group}
    arms |= arms_on_test(bench, {})
    named = {name: plots.label_of(name) for name in arms}
    # A key would be read as words if nobody had words for it.
    assert not [label for label in named.values() if re.search(r"[@+_](?!,| )", label[2:])]
    assert len(set(named.values())) == len(named)
    rows = [*SHIPPED, *CONTROLS, CHOSEN, NAMED, *NO_RETRIEVAL, RANDOM, "majority", "noise floor"]
    words = [plots.label_of(key) for key in rows]
    assert len(set(words)) == len(rows) and not set(words) & set(rows) - {"closed book"}


def test_a_key_becomes_words_and_other_names_stay():
    for key, label in {
        "chr@-0.4": "CHR, λ = -0.4",
        "hplus+question1": "H+, question added",
        "chr+white0.3@0.2": "CHR, whitened, ρ = 0.3, λ = 0.2",
        "chr@L1 linear (lambda_max=0.4, gamma=1)": "CHR, L1 linear (λ at most = 0.4, γ = 1)",
        "hplus+exchanged0.2": "H+ alone, 20 % of the pairs exchanged",
        "chr+my_own_kind@1": "CHR, my own kind, λ = 1",
        "ddx-real": "ddx-real",
    }.items():
        assert plots.label_of(key) == label
    assert labels.method_label("chr_given", 0.35) == "CHR, λ = 0.35 (yours)"


def test_the_papers_methods_are_called_as_in_the_paper():
    for key in SHIPPED:
        assert plots.label_of(key) == PAPER_NAMES.get(key, plots.label_of(key))
    assert plots.label_of("somebodys_method") == "somebodys_method"


def test_a_method_without_a_row_of_labels_has_a_colour_that_no_row_has():
    shown = labels.method_colours(["mine", "chr", "bm25", "yours", "mine"])
    assert (shown["chr"], shown["bm25"]) == (plots.COLOURS["chr"], labels.GREY)
    taken = {labels.GREY, *plots.COLOURS.values(), *labels.SETS.values()}
    assert len({shown["mine"], shown["yours"]} - taken) == 2
    table = pd.DataFrame({"method": ["chr", "mine"], "x": [1.0, 2], "value": [0.5, 0.4], "n": 9})
    (axis,) = figures.plot_cost(table, "x", "tokens", "P@5", "a title").axes
    drawn = {line.get_color() for line in axis.lines}
    assert {plots.COLOURS["chr"], labels.method_colours(["mine"])["mine"]} <= drawn


def test_sets_and_arms_stand_in_one_order():
    assert (
        " ".join(in_order(["z", "a", "bioasq", "medqa", "mmlu", "mmlu"])) == "mmlu medqa bioasq a z"
    )
    assert in_order_of_arms(["chr", "z", "hplus", "a", "chr"]) == ["hplus", "chr", "z", "a"]
    assert in_order_of_arms(["b", "a", "chr+rotation"]) == ["chr+rotation", "b", "a"]


# what all figures share ---------------------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(0, 20), st.floats(0.1, 2)), min_size=1, max_size=9))
def test_labels_do_not_overlap_and_stay_as_near_as_they_can(labelled):
    given, sizes = zip(*labelled, strict=True)
    placed = style.spread(given, sizes)
    wide = np.broadcast_to(sizes, len(given))
    order = np.argsort(given, kind="stable")
    assert (np.diff(placed[order]) >= (wide[order][1:] + wide[order][:-1]) / 2 - 1e-6).all()
    assert np.mean(placed) == pytest.approx(np.mean(given))


def test_three_lambdas_are_marked_and_equal_ones_share_a_line():
    axis = style.pyplot().figure().add_subplot()
    axis.set_xlim(0, 1.4)
    style.mark_lambdas(axis, 0.4, 0.2)
    assert levels(axis) == [0.2, 1.0, 0.4] and texts(axis) == ["dev", "yours", "paper"]
    other = style.pyplot().figure().add_subplot()
    style.mark_lambdas(other, 1.0)
    assert len(other.lines) == 1 and texts(other) == ["paper, yours"]


def test_a_line_that_ends_early_is_named_there_and_no_thin_line_leads_across_others():
    axis = style.pyplot().figure().add_subplot()
    axis.set(xlim=(0, 1), ylim=(0, 1))
    style.label_ends(axis, [(0.5, 0.8, "early", "black"), (1, 0.2, "late", "black")])
    assert {text.get_text(): text.xy[0] for text in axis.texts} == {"early": 0.5, "late": 1}
    assert [min(line.get_xdata()) for line in axis.lines] == [1]


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
    spoken_of = plots.plot_differences(differences(accent=["black", None, None, None]), "x")
    assert list(colours_in(spoken_of).values()).count(GREY) == 3 and not legend_of(spoken_of)
    holm = plots.plot_differences(differences(p_holm=[0.01, 0.2, 0.04, 0.05]), "x")
    assert legend_of(holm) == {"p < 0.05 (Holm)", "p ≥ 0.05 (Holm)"}


def test_an_axis_of_shares_is_in_percent_and_one_of_differences_in_points():
    rows = pd.DataFrame({"panel": "", "row": ["a", "b"], "value": [0.0, 0.5], "n": 9})
    drawn = plots.plot_dots(rows.assign(low=0.0, high=0.6), "", "questions")
    plots.in_percent(drawn)
    drawn.canvas.draw()
    assert [tick.get_text() for tick in drawn.axes[0].get_xticklabels()][-1] == "100 %"
    plots.in_percent(drawn, unit="").canvas.draw()
    assert [tick.get_text() for tick in drawn.axes[0].get_xticklabels()][-1] == "100"


def test_an_axis_of_differences_says_what_its_sides_mean():
    table = differences(panel=["one", "two", "one", "two"])
    for sides in ("← worse · better →", ""):
        figure = plots.plot_differences(table, "x", sides=sides)
        assert [axis.get_xlabel() for axis in figure.axes] == [sides, sides]


def test_what_a_figure_of_methods_compares_is_in_colour_and_the_rest_grey():
    methods = ["standard", "hplus", "chr", "chr_given", "chr+rotation", "random", "my_own"]
    rows = figures.method_rows(pd.DataFrame({"method": methods, "dataset": "mmlu"}), lam=0.4)
    colours = rows.set_index("method")["colour"]
    assert set(colours[colours == GREY].index) == {"standard", "chr+rotation", "random"}
    assert colours["hplus"] == COLOURS["hplus"] and colours["chr"] == COLOURS["chr"]


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


def test_few_passages_for_a_wrong_option_have_a_scale_of_their_own():
    shares = {"right": 0.2, "wrong": 0.01, "topic": 0.49, "rest": 0.3}
    table = pd.DataFrame({"family": ["chr"] * 2 + ["chr+rotation"] * 2, "lambda": [0, 1] * 2})
    figure = figures.plot_support(table.assign(n=9, **shares), lam=0.4, dev=0.2)
    above, _, below, _ = figure.axes
    assert panel_titles_of(figure)[:2] == ["CHR", "matched rotation"]
    assert above.get_ylim() == (0, 1) and 0.01 < below.get_ylim()[1] < 0.02
    assert legend_of(figure) == {name for name, _ in figures.SUPPORTS.values()}


def test_dev_chooses_for_a_family_and_for_the_controls_of_plain_contrast():
    rows = [("one mimic", "hplus", 0.0), ("centred", "chr+centred@0.2", 0.2), ("L1", "x", np.nan)]
    devs = plots.dev_lambdas(pd.DataFrame(rows, columns=["form", "arm", "lambda"]))
    assert devs["chr"] == devs["chr+rotation"] == 0.0 and devs["chr+centred"] == 0.2


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
    assert title_of(figure).startswith(
        "λ = 1 lowers P@5 on 0 of 2 sets; no λ raises it a point above"
    )


def test_a_set_on_which_contrast_gains_is_named_and_less_than_a_point_is_no_gain():
    gains = curves(**{"chr": 9, "chr+rotation": 9, "chr+stranger": 9})
    gains.loc[(gains["family"] == "chr") & (gains["lambda"] == 1), "p_at_5"] = 0.2
    hardly = gains.copy()
    for table, value in ((gains, 0.52), (hardly, 0.505)):
        table.loc[(table["family"] == "chr") & (table["lambda"] == 0.4), "p_at_5"] = value
    both = pd.concat([gains.assign(study="one"), hardly.assign(study="two")])
    point, above = "raises it a point", "above H+ alone and both controls"
    said = (
        f"λ = 1 lowers P@5 on both sets; on one λ = 0.4 {point} or more {above}, on two no λ does"
    )
    assert caption("sets", both, k=5) == said
    # A control that is as high takes the gain away.
    gains.loc[(gains["family"] == "chr+stranger") & (gains["lambda"] == 0.4), "p_at_5"] = 0.52
    alone = caption("sets", gains.assign(study="one"), k=5)
    assert alone.endswith(f"no λ {point} {above}")


def values_over(x: str, **n) -> pd.DataFrame:
    rows = [(name, at, 0.5, 0.4, 0.6, n[name]) for name in n for at in (0.0, 0.4, 1.0)]
    columns = ["series", x, "value", "low", "high", "n"]
    return pd.DataFrame(rows, columns=columns).assign(metric="P@4")


def test_a_line_of_fewer_than_six_is_said_and_not_drawn():
    table = values_over("lambda", few=5, many=9)
    figure = plots.plot_curves(table, "", panel="metric", line="series", ylabel="mean", lam=0.4)
    (axis,) = figure.axes
    assert "few, n = 5: too few to draw" in texts(axis) and len(axis.collections) == 1


def test_a_control_of_few_lambdas_is_not_joined_and_a_scale_of_its_own_is_said():
    many = [("chr", at, 0.5, panel) for at in (0, 0.2, 0.4, 0.6, 1) for panel in ("right", "wrong")]
    few = [("chr+rotation", at, 0.4, panel) for at in (0.4, 1) for panel in ("right", "wrong")]
    table = pd.DataFrame([*many, *few], columns=["family", "lambda", "value", "study"])
    table["value"] /= table["study"].map({"right": 1, "wrong": 10})
    table = table.assign(low=table["value"] * 0.8, high=table["value"], n=9)
    left, right = plots.plot_curves(table, "", own_scale=["wrong"]).axes
    drawn = {line.get_label(): line.get_linestyle() for line in left.lines}
    assert (drawn["CHR"], drawn["matched rotation"]) == ("-", "None")
    assert panel_titles_of(left.figure) == ["right, n = 9", "wrong, scale × 10"]
    assert right.get_facecolor() != left.get_facecolor()


def test_a_cost_that_nobody_measured_is_no_point():
    table = pd.DataFrame({"method": ["chr", "hyde"], "value": [0.5, 0.4], "n": 9})
    for tokens, names in (([np.nan, np.nan], []), ([4.0, np.nan], ["CHR"])):
        for log in (False, True):
            figure = figures.plot_cost(table.assign(tokens=tokens), "tokens", "", "P@5", "", log)
            assert texts(figure.axes[0]) == names


# what titles say ----------------------------------------------------------------------------------


def test_titles_follow_their_tables():
    assert moved(0.31, 0.16) == "falls from 0.31 to 0.16"
    assert moved(0.311, 0.161, percent=True) == "falls from 31.1 % to 16.1 %"
    assert moved(0.15, 0.517, percent=True) == "rises from 15.0 % to 51.7 %"
    table = curves(chr=9, **{"chr+rotation": 9, "max": 9})
    turned = "the same turn away from another mimic leaves 50.0\u00a0%"
    assert caption("contrast", table, k=5) == f"At λ = 1 P@5 stays at 50.0\u00a0%; {turned}"
    table.loc[(table["family"] == "chr") & (table["lambda"] == 1), "p_at_5"] = 0.2
    alone = table[table["family"] == "chr"]
    assert caption("contrast", alone, k=7, where=" on x") == (
        "At λ = 1 P@7 on x falls from 50.0\u00a0% to 20.0\u00a0%"
    )
    tests = pd.DataFrame({"verdict": ["AGAINST", "AGAINST", "SUPPORTED"]})
    tests = tests.assign(arm=["chr@1", "chr@1", "hplus"])
    assert caption("verdicts", tests) == (
        "CHR at λ = 1 is clearly worse in 2 of 2 declared tests; "
        "H+ alone is clearly better in 1 of 1 declared tests"
    )


def test_the_title_of_the_declared_tests_speaks_of_all_of_them():
    tests = pd.DataFrame({"arm": ["chr@1", "chr@0.2", "chr@1", "hplus"]})
    tests["verdict"] = ["AGAINST", "AGAINST", "SUPPORTED", "INCONCLUSIVE"]
    assert caption("contrast_tested", tests) == (
        "Of 4 declared tests contrast loses 2 and wins 1; 1 without contrast: INCONCLUSIVE"
    )


def test_a_minus_in_a_title_is_one():
    lost = pd.DataFrame({"panel": "2020-2025", "method": ["slhyde", "minilm"], "value": [0.1, 0.2]})
    assert caption("retrievers", lost) == (
        "Self-learning changes nDCG@10 by up to 0.10: −0.100 on 2020-2025"
    )


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


@pytest.mark.fault(
    "secrets", "A text that is shown is markup, a script or a formula", "drawn as text"
)
def test_any_text_can_stand_in_a_figure(own_folders):
    texts = ("<script>alert(1)</script>", r"$\frac{1}$", "", "--> ]]> &lt;", "\u202eabc", "a\0b")
    for text in texts:
        drawn_with(text)


def drawn_with(text: str) -> None:
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
