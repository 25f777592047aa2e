"""One question in one picture: what is drawn is what a search of raw vectors gives, to scale."""

from __future__ import annotations

import io

import numpy as np
import pytest
from matplotlib.text import Text

from lib.benchmarks import ddx_mini
from lib.embed import load_encoder
from lib.explorer.rows import GOOD, Place, read_rows
from lib.explorer.worked import lines_table, plot_worked, worked_table
from lib.index_build import build_index, corpus_store


@pytest.fixture(scope="module")
def view():
    return read_rows()


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
