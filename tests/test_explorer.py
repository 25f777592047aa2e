"""The explorer: its rows give lib/'s order, its page and its widget give the rows'."""

from __future__ import annotations

import base64
import gzip
import html
import io
import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.text import Text

from lib.base.files import StaleInput, read_manifest
from lib.base.provenance import read_result
from lib.data.passages import Passage
from lib.data.store import PassagesInMemory
from lib.embed import load_encoder
from lib.explorer import rows as rows_module
from lib.explorer.make import CHECKED, EXCERPT, QuestionSet, check_rows, make_explored
from lib.explorer.page import LIMIT, PAGE, kept_records, page
from lib.explorer.rows import (
    CLASSES,
    FILES,
    FOLDER,
    GOOD,
    LAM_MAX,
    Place,
    breakpoints,
    candidates,
    order_at,
    read_rows,
)
from lib.explorer.sets import benchmark_set, real_sets
from lib.explorer.widget import explore
from lib.explorer.worked import lines_table, plot_worked, worked_table
from lib.open_retriever import open_retriever
from lib.profiles import load_profile
from lib.query_spec import Hypotheses
from lib.query_spec import Text as Written
from lib.run import Retriever
from lib.search import lambda_path
from lib.search.index import DenseIndex


@pytest.fixture(scope="module")
def explored():
    return read_rows()


# lines -------------------------------------------------------------------------------------------


class Words:
    """An encoder of made vectors: a text is the number of its row."""

    name, dim = "made", 6

    def __init__(self, vectors, seed):
        self.vectors = vectors
        # Vectors are kept by what made them: another seed makes others.
        self.fingerprint = f"made {seed}"
        self.fingerprints = {"query": self.fingerprint, "article": self.fingerprint}

    def encode(self, items, tower="query", progress=True):
        return self.vectors[[int(item) for item in items]]


def made(seed: int, passages: int = 40):
    """A retriever on random passages, and the hypotheses of a question."""
    generator = np.random.default_rng(seed)
    vectors = generator.normal(size=(passages + 6, Words.dim)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    index = DenseIndex([vectors[:passages]], [f"p{i:03d}" for i in generator.permutation(passages)])
    names = [str(passages + i) for i in range(6)]
    texts = (
        Written(names[0], 1.0, "article", "target"),
        Written(names[1], 1.0, "article", "mimic"),
        Written(names[2], 0.0, "query", "question"),
        Written(names[3], 1.0, "article", "mimic", "stranger"),
        Written(names[4], 1.0, "article", "mimic", "several"),
        Written(names[5], 1.0, "article", "mimic", "several"),
    )
    hypotheses = Hypotheses(texts, qid="q", excluded=frozenset({"p003"}))
    store = PassagesInMemory(Passage(pid, "", "", "", {}) for pid in index.ids.tolist())
    return Retriever(index, Words(vectors, seed), store), hypotheses


@pytest.mark.parametrize("depth", [1000, 12])
def test_the_rows_give_the_order_of_the_search_without_what_is_excluded(
    depth, own_folders, monkeypatch
):
    monkeypatch.setattr(lambda_path, "DEPTH", depth)
    retriever, hypotheses = made(0, passages=200)
    about = {"name": "made", "means": {}}
    shown = {"q": {"text": "", "options": {}, "answer": ""}}
    asked = QuestionSet(about, retriever, {"q": hypotheses}, shown, lambda qid, pid: "neither")
    rows = make_explored([asked], lambda passage: {})
    assert check_rows(asked, rows) == {"compared": 7 * len(CHECKED), "tied": 0, "differ": 0}


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(7, 60), st.booleans())
def test_the_candidates_hold_every_top_and_breakpoints_are_all_changes(seed, k, n, coarse):
    generator = np.random.default_rng(seed)
    height, slope = generator.uniform(-1, 1, size=(2, n))
    if coarse:  # many ties
        height, slope = height.round(1), slope.round(1)
    height[generator.integers(n)] = np.nan
    ranks = generator.permutation(n)
    few = candidates(height, slope, k)
    changes = [0.0, *breakpoints(height[few], slope[few], k), LAM_MAX]
    for lam in (*np.linspace(0, LAM_MAX, 41), *changes):
        assert set(order_at(height, slope, lam, k, ranks).tolist()) <= set(few.tolist())
    assert changes == sorted(changes)
    if not coarse:
        for start, end in zip(changes, changes[1:], strict=False):
            inside = np.linspace(start, end, 5)[1:-1] if end - start > 1e-4 else []
            tops = {frozenset(order_at(height, slope, at, k, ranks).tolist()) for at in inside}
            assert len(tops) <= 1


# rows --------------------------------------------------------------------------------------------


def test_the_rows_are_whole_and_small(explored):
    counts = {some["name"]: len(explored.of(some["name"])) for some in explored.sets}
    assert counts == {"mmlu": 150, "medqa": 150, "bioasq": 618, "ddx-fresh": 173, "ddx-mini": 96}
    pids = [passage["pid"] for passage in explored.passages]
    assert pids == sorted(set(pids))
    settings = read_manifest(FOLDER / "scores.npy")["settings"]
    compared = settings["compared_with_lib"]
    assert all(c["differ"] == 0 and c["compared"] > 1000 * c["tied"] for c in compared.values())
    lists = sum(len(explored.choices_of(q)) * len(CHECKED) for q in explored.questions)
    assert sum(c["compared"] for c in compared.values()) == lists


def test_the_rows_give_the_outcomes_that_were_measured_on_real_questions(explored):
    values, _ = read_result("values_real", "open", committed=True)
    for lam, form, arm in (
        (0.0, "one mimic", "hplus"),
        (1.0, "one mimic", "chr@1"),
        (0.4, "question added", "chr+question1@0.4"),
        (0.4, "several mimics", "max@0.4"),
    ):
        wide = values[values["arm"] == arm].pivot(index="qid", columns="metric", values="value")
        for name, metric in (("medqa", "share_correct_at_5"), ("bioasq", "p_at_5")):
            for question in explored.of(name):
                if (form, "own") not in explored.choices_of(question):
                    continue
                place = Place(name, question["qid"], form, lam=lam)
                (good,) = explored.rights(place, [lam])
                assert good / 5 == pytest.approx(wide.loc[question["qid"], metric], abs=1e-3)


def test_the_bundled_rows_give_the_order_of_lib_and_a_wrong_row_is_found(explored):
    profile = load_profile("mini")
    encoder = load_encoder(profile.encoder, **profile.encoder_options)
    bundled = benchmark_set("ddx-mini", "mini", encoder)
    counts = check_rows(bundled, explored)
    assert counts["compared"] == 96 * 6 * len(CHECKED) and counts["differ"] == 0
    made = make_explored([bundled])
    kept = explored.of("ddx-mini")
    assert [q["mimic"] for q in made.questions] == [q["mimic"] for q in kept]
    for ours, theirs in zip(made.questions, kept, strict=True):
        np.testing.assert_allclose(
            made.records_of(ours)["score"], explored.records_of(theirs)["score"], atol=2e-6
        )
    records = explored.records.copy()
    start = explored.of("ddx-mini")[0]["start"]
    records["score"][start, 1] += 0.2
    assert check_rows(bundled, replace(explored, records=records))["differ"] > 0


@pytest.mark.open_profile
def test_the_open_rows_give_the_order_of_lib_over_the_whole_corpus(mirror, explored):
    profile = load_profile("open")
    encoder = load_encoder(profile.encoder, **profile.encoder_options)
    sets = [
        *real_sets(open_retriever(profile, encoder)),
        benchmark_set("ddx-fresh", "open", encoder),
    ]
    assert [check_rows(some, explored)["differ"] for some in sets] == [0, 0, 0, 0]


def test_broken_rows_are_named_with_the_next_command(tmp_path, monkeypatch):
    folder = tmp_path / "explorer"
    shutil.copytree(FOLDER, folder)
    monkeypatch.setattr(rows_module, "FOLDER", folder)
    file = folder / FILES[1]
    file.write_bytes(file.read_bytes()[:-7])
    with pytest.raises(StaleInput, match=f"{FILES[1]}.*git checkout data/explorer"):
        read_rows()


# licences ----------------------------------------------------------------------------------------


def test_texts_are_short_and_kept_only_where_the_licence_permits(explored):
    closed = ("openstax:anatomy-and-physiology", "openstax:microbiology")
    seen = set()
    for passage in explored.passages:
        assert len(passage["text"]) <= EXCERPT + 2
        assert passage["title"] or passage["text"]
        assert passage["link"].startswith("http") or passage["source"] == "ddx-mini"
        if passage["pid"].startswith(closed):
            assert not passage["text"]
        seen.add(passage["source"])
    notice = (FOLDER / "NOTICE").read_text()
    names = {"bioasq": "BioASQ", "pubmedqa": "PubMedQA", "medquad": "MedQuAD"}
    names |= {"openstax": "OpenStax", "ddx-mini": "ddx-mini"}
    assert seen == set(names) and all(names[source] in notice for source in seen)


# view and widget ---------------------------------------------------------------------------------


def test_shares_over_lambda_are_those_of_the_single_lists(explored):
    place = explored.start("medqa")
    shares, found, n = explored.shares(place, [0.4])
    lists = [
        [p["class"] for p in explored.list_at(replace(place, qid=q["qid"], lam=0.4))]
        for q in explored.of("medqa")
    ]
    for c, name in enumerate(CLASSES):
        assert shares[0, c] == pytest.approx(sum(one.count(name) for one in lists) / 5 / n)
    assert found[0] == pytest.approx(sum(any(c in GOOD for c in one) for one in lists) / n)
    assert n == 150 and shares.sum() == pytest.approx(1)


def test_moving_the_slider_moves_the_passages_as_the_mathematics_says(explored):
    seen = explore(explored)
    assert (seen.place.set, seen.place.lam) == ("medqa", 1.0)
    question = explored.question(seen.place)
    records = explored.records_of(question)["score"].astype(float)
    ids = explored.records_of(question)["passage"]
    for lam in (0.0, 0.4, 1.7):
        seen.lam.value = lam
        score = np.round((records[:, 0] - lam * records[:, 1]) * 1e5)
        best = sorted(range(len(score)), key=lambda i: (-score[i], ids[i]))[:5]
        titles = [explored.passages[ids[i]]["title"].split(" -- ")[-1] for i in best]
        listed = seen.shown.value.split("contrast, λ =")[1]
        found = re.findall(r"</small><br><b>(.*?)</b>", html.unescape(listed))
        assert [title.split(" › ")[-1] for title in found] == titles
        assert f"λ = {lam:.2f}" in seen.shown.value


def test_controls_offer_what_there_is_and_follow_each_other(explored):
    seen = explore(explored, lam=0.5)
    seen.forms.value = "several mimics"
    assert [value for _, value in seen.mimics.options] == ["own"]
    seen.forms.value = "one mimic"
    seen.mimics.value = "rotation"
    assert seen.place.mimic == "rotation" and seen.place.lam == 0.5
    seen.sets.value = "ddx-mini"  # nobody wrote several mimics there
    assert "several mimics" not in seen.forms.options
    assert seen.place.qid == explored.start("ddx-mini").qid == seen.questions.value
    assert "nobody" not in seen.shown.value and "on the target" in seen.shown.value


def test_a_start_that_is_not_there_is_refused(explored):
    for start, wrong in (
        ({"set": "medqaa"}, "there are: mmlu, medqa"),
        ({"form": "several"}, "there are"),
        ({"set": "ddx-mini", "form": "several mimics"}, "no texts for"),
        ({"qid": "nobody"}, "no question"),
        ({"lam": 2.5}, "from 0 to 2"),
        ({"k": 11}, "exact top 10"),
    ):
        with pytest.raises(ValueError, match=wrong):
            explore(explored, **start)


# page --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written() -> str:
    return PAGE.read_text(encoding="utf-8")


def unpacked(text: str) -> tuple[dict, bytes]:
    packed = re.search(r'<script id="data"[^>]*>([^<]+)</script>', text)[1]
    content = gzip.decompress(base64.b64decode(packed))
    length = int.from_bytes(content[:4], "big")
    return json.loads(content[4 : 4 + length]), content[4 + length :]


def test_the_committed_page_is_what_the_rows_make(explored, written):
    made = page(explored)
    assert unpacked(written) == unpacked(made), "run: make explorer"
    # Without what is packed: another zlib packs the same into other bytes.
    assert re.sub(r"[\w+/=]{1000,}", "", written) == re.sub(r"[\w+/=]{1000,}", "", made)


def test_the_page_stands_alone(written):
    assert len(written.encode()) <= LIMIT
    head = re.sub(r'<script id="data".*?</script>', "", written, flags=re.S)
    assert not re.search(r"<(link|img|iframe|script[^>]*\bsrc)|@import|url\(|fetch\(|XMLHttp", head)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', head)[1].split("; ")
    assert policy[0] == "default-src 'none'", "nothing is loaded and nothing is sent"
    assert all(re.fullmatch(r"[a-z-]+ '(none|unsafe-inline)'", it) for it in policy), policy
    assert "prefers-color-scheme: dark" in head and 'role="img"' in head and "<noscript>" in head
    notice = (FOLDER / "NOTICE").read_text()
    assert all(html.escape(line) in written for line in notice.splitlines()), "whose texts"


def test_the_page_has_the_rows(explored, written):
    """Every record of the page, decoded again here: its cosines, its class and its passage."""
    texts, numbers = unpacked(written)
    planes = np.frombuffer(numbers, np.uint8).reshape(-1, texts["rows"]).astype(np.int64)
    steps = planes[0:15:3] + (planes[1:15:3] << 8) + (planes[2:15:3] << 16)
    scores = np.where(steps == 0xFFFFFF, np.nan, (steps - 2e6) / 1e6)
    places, classes = planes[15] + (planes[16] << 8), planes[17]
    kept, _ = kept_records(explored)
    for some in texts["sets"]:
        assert some["median"] == explored.median_question(some["name"])
        for question in some["questions"]:
            here = slice(question["start"], question["start"] + question["length"])
            ours = explored.records[kept[some["name"], question["qid"]]]
            theirs = scores[:, here].T
            theirs[:, 0] = theirs[:, 0].cumsum()
            assert np.allclose(theirs, ours["score"], atol=2e-6, equal_nan=True)
            assert classes[here].tolist() == ours["class"].tolist()
            for place, passage in zip(places[here], ours["passage"], strict=True):
                title, begun, *_ = texts["passages"][place]
                assert title == explored.passages[passage]["title"]
                assert explored.passages[passage]["text"].startswith(begun.removesuffix(" …"))


@pytest.mark.fault(
    "secrets", "A text that is shown is markup, a script or a formula", "text, no link"
)
def test_no_text_or_link_of_a_page_or_picture_is_more_than_text(explored):
    """The page's data are one stretch of base64; links are addresses of the web."""
    text = "</script><script>alert(1)</script> <!-- --> ]]> $\\frac{1}$ \u202ea\0b"
    passages = [
        {**one, "title": text, "text": text, "link": "javascript:alert(1)", "source": "medquad"}
        for one in explored.passages
    ]
    fields = ("text", "target", "mimic", "random")
    questions = [
        {**one, **dict.fromkeys(fields, text), "several": [text], "options": {"A": text, text: "b"}}
        for one in explored.questions
    ]
    hostile = replace(explored, passages=passages, questions=questions)
    made = page(hostile)
    assert made.count("</script>") == 2 and "alert(1)" not in made
    told, _ = unpacked(made)
    assert {(title, link) for title, _, _, link in told["passages"]} == {(text, "")}
    shown = explore(hostile, set="ddx-mini").html()
    tags = set(re.findall(r"<(\w+)", shown))
    assert not tags & {"script", "a", "img"} and "javascript:" not in shown
    assert text in html.unescape(shown)


# one question in one picture ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def first(explored):
    """The question of the first picture, as notebook 00 draws it."""
    return explored.start("mmlu", lam=0.4)


def test_the_picture_has_the_lists_and_the_turn_at_every_lambda(explored, first):
    table = worked_table(explored, first)
    c = explored.question(first)["c_own"]
    for lam in (0.0, 0.4, 1.0):
        here = table[table["lambda"] == lam]
        listed = explored.list_at(first, lam)
        passages = here[here["part"] == "passage"]
        assert passages["class"].tolist() == [passage["class"] for passage in listed]
        assert passages["score"].tolist() == [passage["score"] for passage in listed]
        turn = here.loc[here["part"] == "query", "value"].item()
        cosine = (1 - lam * c) / np.sqrt(1 - 2 * lam * c + lam * lam)
        assert turn == pytest.approx(np.degrees(np.arccos(cosine)), abs=0.1)


def test_why_the_right_passages_are_lost_is_as_it_is_told(explored, first):
    """They start highest, near both texts, and fall fast; what overtakes them is less like H-."""
    lines = lines_table(explored, first)
    best = lines.nlargest(first.k, "s_plus")
    lost = best[best["class"].isin(GOOD)]
    assert lost["s_plus"].min() > best.drop(lost.index)["s_plus"].max()
    at_one = lines.loc[(lines["s_plus"] - lines["s_minus"]).nlargest(first.k).index]
    assert at_one["s_minus"].max() < lost["s_minus"].min()
    assert at_one["s_minus"].min() < 0.1 and at_one["s_plus"].min() < 0.3  # near to neither text


def test_the_picture_takes_any_text_and_shows_it_as_it_is(explored, first):
    table = worked_table(explored, Place(first.set, first.qid, lam=1.3, k=10))
    for text in ("", r"$\frac{1}$ of $x$", "a\n\nb" + "x" * 500):
        table.loc[table["part"].isin(["question", "H+", "H-", "passage", "key"]), "text"] = text
        figure = plot_worked(table)
        figure.savefig(io.BytesIO(), format="png")
        drawn = [shown.get_text() for shown in figure.findobj(Text)]
        assert sum(shown.startswith(text[:1]) for shown in drawn) > 5
