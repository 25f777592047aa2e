"""One question in one picture: what is drawn is what a search of raw vectors gives, to scale."""

from __future__ import annotations

import io

import numpy as np
import pytest
from matplotlib.text import Text

from lib.benchmarks import ddx_mini
from lib.embed import load_encoder
from lib.explorer.rows import CLASSES, GOOD, Place, View, median_question, read_rows
from lib.explorer.worked import lines_table, median_table, plot_why, plot_worked, worked_table
from lib.index_build import build_index, corpus_store


@pytest.fixture(scope="module")
def view():
    return View(read_rows())


@pytest.fixture(scope="module")
def first(view):
    """The question of the first picture, as notebook 00 draws it."""
    return view.start("mmlu", lam=0.4)


@pytest.fixture(scope="module")
def by_hand():
    """Titles of passages, their vectors, and h+, h- of a question: without search or rows."""
    encoder, store = load_encoder("minilm"), corpus_store(("ddx-mini",))
    index = build_index(store, encoder, progress=False)
    pids, vectors = index.ids.tolist(), index.vectors(np.arange(len(index)))
    titles = [passage.title for passage in store.get_many(pids)]
    said = {h["qid"]: h for h in ddx_mini.read("hypotheses")}

    def of(qid):
        texts = [said[qid][h] for h in ("H_plus", "H_minus")]
        return pids, titles, vectors, encoder.encode(texts, "article", progress=False)

    return of


def passages_of(table):
    return table[table["part"] == "passage"]


@pytest.mark.parametrize("qid, lam, k", [("medqa-22", 0.4, 5), ("mmlu-10", 1.2, 7)])
def test_the_lists_and_the_turn_are_those_of_raw_vectors(qid, lam, k, view, by_hand):
    table = worked_table(view, Place("ddx-mini", qid, lam=lam, k=k))
    pids, titles, vectors, pair = by_hand(qid)
    plus, minus = (vectors.astype(float) @ pair.astype(float).T).T
    turns = table[table["part"] == "query"].set_index("lambda")["value"]
    assert turns.index.tolist() == sorted({0.0, lam, 1.0})
    for at, turn in turns.items():
        score = plus - at * minus
        best = np.lexsort((pids, -np.round(score, 5)))[:k]
        rows = passages_of(table)[passages_of(table)["lambda"] == at]
        assert rows["rank"].tolist() == list(range(1, k + 1))
        assert rows["text"].tolist() == [titles[i] for i in best]
        np.testing.assert_allclose(rows["score"], score[best], atol=1e-5)
        query = pair[0] - at * pair[1]
        turned = np.degrees(np.arccos(np.clip(query @ pair[0] / np.linalg.norm(query), -1, 1)))
        assert turn == pytest.approx(turned, abs=0.1)
    cosine = table.loc[table["part"] == "H-", "value"].item()
    assert cosine == pytest.approx(float(pair[0] @ pair[1]), abs=1e-5)


def test_every_list_number_and_arrow_of_the_picture_is_in_its_table(view, first):
    table = worked_table(view, first)
    figure = plot_worked(table)
    page, plane = figure.axes
    said = [text.get_text() for text in page.texts]
    rows = passages_of(table)
    assert [x for x in said if x.startswith("0.")] == [f"{s:.2f}" for s in rows["score"]]
    assert [x for x in said if x in CLASSES] == rows["class"].tolist()
    counts = {}
    for lam, group in rows.groupby("lambda"):
        counts[lam] = int(group["class"].isin(GOOD).sum())
        assert any(x.startswith(f"λ = {lam:g}") for x in said)
    assert " ".join(said[0].split()) == (
        f"Right passages among the first 5: {counts[0.0]} with H+ alone, "
        f"{counts[1.0] or 'none'} with H− subtracted at λ = 1"
    )
    ends = np.array([x.xy for x in plane.texts if not x.get_text()])
    c = table.loc[table["part"] == "H-", "value"].item()
    plus, minus, *queries = ends
    assert plus.tolist() == [0, 1] and minus @ plus == pytest.approx(c)
    assert np.linalg.norm(minus) == pytest.approx(1) and plane.get_aspect() == 1
    for lam, query in zip((0.4, 1.0), queries, strict=True):
        np.testing.assert_allclose(query, plus - lam * minus)


def test_the_first_picture_shows_the_finding(view, first):
    """Its question was found by the rule, and what H+ alone found right is gone at lambda 1."""
    assert first.qid == median_question(view, "mmlu")
    found, given, paper = view.rights(first, (0.0, 0.4, 1.0))
    assert found == given == 2 and paper == 0
    classes = view.list_at(first, 1.0).classes
    assert classes.count("neither") > view.list_at(first, 0.0).classes.count("neither")


def test_why_the_right_passages_are_lost_is_as_it_is_told(view, first):
    """They lie between h+ and h-, start highest and fall fast; what overtakes them is less like
    H-."""
    lines, (c, _) = lines_table(view, first), view.turn(first)
    best = lines.nlargest(first.k, "s_plus")
    lost = best[best["class"].isin(GOOD)]
    assert lost["s_plus"].min() > best.drop(lost.index)["s_plus"].max()
    across = (lost["s_minus"] - c * lost["s_plus"]) / np.sqrt(1 - c * c)
    angle = np.degrees(np.arctan2(across, lost["s_plus"]))
    assert ((angle > 0) & (angle < np.degrees(np.arccos(c)))).all()
    at_one = lines.loc[(lines["s_plus"] - lines["s_minus"]).nlargest(first.k).index]
    assert at_one["s_minus"].max() < lost["s_minus"].min()
    assert at_one["s_minus"].min() < 0.1 and at_one["s_plus"].min() < 0.3  # near to neither text


@pytest.mark.parametrize("text", ["", r"$\frac{1}$ of $x$", "a\n\nb" + "x" * 500])
def test_the_picture_takes_any_text_and_shows_it_as_it_is(text, view, first):
    table = worked_table(view, Place(first.set, first.qid, lam=1.3, k=10))
    table.loc[table["part"].isin(["question", "H+", "H-", "passage", "key"]), "text"] = text
    figure = plot_worked(table)
    figure.savefig(io.BytesIO(), format="png")
    said = [shown.get_text() for shown in figure.findobj(Text)]
    assert sum(shown.startswith(text[:1]) for shown in said) > 5


def test_why_shows_every_passage_where_it_is_and_beyond_the_line_the_best(view, first):
    lines, (c, _) = lines_table(view, first), view.turn(first)
    figure = plot_why(lines, c, first.lam, first.k)
    left, right = figure.axes
    dots = [line.get_xydata() for line in left.lines if line.get_marker() == "o"]
    x, y = np.concatenate(dots).T
    back = np.array([y, c * y + np.sqrt(1 - c * c) * x]).T
    wanted = lines[["s_plus", "s_minus"]].to_numpy()
    np.testing.assert_allclose(sorted(back.tolist()), sorted(wanted.tolist()), atol=1e-9)
    (border,) = [line for line in left.lines if line.get_linestyle() == "--"]
    (x0, x1), (y0, y1) = border.get_data()
    # Both ends have the score of the last of the best; so has every point between.
    at_one = (lines["s_plus"] - lines["s_minus"]).nlargest(first.k)
    for x, y in ((x0, y0), (x1, y1)):
        assert y * (1 - c) - x * np.sqrt(1 - c * c) == pytest.approx(at_one.min())
    lost = lines.nlargest(first.k, "s_plus").query("`class` in @GOOD")[["s_plus", "s_minus"]].mean()
    told = figure._suptitle.get_text().replace("\n", " ")
    assert told == (
        f"The right passages are near H+ ({lost['s_plus']:.2f}) and near H− "
        f"({lost['s_minus']:.2f}): at λ = 1 they score {lost['s_plus'] - lost['s_minus']:.2f}, "
        f"the first 5 there {at_one.mean():.2f}"
    )
    assert lost["s_minus"] > 0.5  # near, as the title says
    drawn = [line for line in right.lines if np.isnan(line.get_ydata()).any()]
    bold = [line.get_ydata() for line in drawn if line.get_linewidth() > 2]
    assert sum(len(y) // 3 for y in bold) == first.k + view.rights(first, (0.0,))[0]
    starts = np.concatenate([line.get_ydata()[::3] for line in drawn])
    np.testing.assert_allclose(sorted(starts), sorted(lines["s_plus"]))


def test_the_table_of_medians_counts_what_a_loop_over_all_questions_counts(view):
    table = median_table(view, 0.4)
    for name, some in view.sets.items():
        row = table.loc[some["title"]]
        places = [Place(name, question["qid"]) for question in view.explored.of(name)]
        counts = [view.rights(place, (0.0, 0.4, 1.0)) for place in places]
        found = [one for one in counts if one[0]]
        assert row["H+ alone finds something"] == f"{len(found)} of {len(places)}"
        assert row["lose all at λ = 0.4"] == sum(not one[1] for one in found)
        assert row["lose all at λ = 1"] == sum(not one[2] for one in found)
        middle = view.start(name)
        kept = ", ".join(map(str, counts[places.index(Place(name, middle.qid))]))
        assert row["the median question"] == middle.qid and row["right at λ = 0, 0.4, 1"] == kept
