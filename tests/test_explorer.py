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
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.text import Text

from lib.base import paths
from lib.base.files import StaleInput, read_manifest
from lib.base.provenance import read_result
from lib.data.judgments import evidence, read_judgments
from lib.data.passages import Passage
from lib.data.store import PassagesInMemory
from lib.embed import load_encoder
from lib.explorer import rows as rows_module
from lib.explorer.make import EXCERPT, QuestionSet, check_rows, checked, make_explored
from lib.explorer.page import LIMIT, PAGE, kept_records, page
from lib.explorer.rows import (
    CLASSES,
    FILES,
    FOLDER,
    GOOD,
    LAM_MAX,
    LAM_MIN,
    Place,
    breakpoints,
    candidates,
    order_at,
    read_rows,
)
from lib.explorer.sets import benchmark_set, real_sets
from lib.explorer.steps import STEPS, right, said, share
from lib.explorer.widget import COLOURS, QUERY, explore, picture
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


@pytest.mark.filterwarnings("ignore:lam = -.*adds the mimic")
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
    lists = 3 * len(checked(LAM_MIN)) + 4 * len(checked(0.0))
    assert check_rows(asked, rows) == {"compared": lists, "tied": 0, "differ": 0}
    assert checked(LAM_MIN)[0] == LAM_MIN == -1 and len(checked(0.0)) == 21


@given(
    st.integers(0, 10**6),
    st.integers(1, 6),
    st.integers(7, 60),
    st.booleans(),
    st.sampled_from([0.0, LAM_MIN]),
)
def test_the_candidates_hold_every_top_and_breakpoints_are_all_changes(seed, k, n, coarse, low):
    generator = np.random.default_rng(seed)
    height, slope = generator.uniform(-1, 1, size=(2, n))
    if coarse:  # many ties
        height, slope = height.round(1), slope.round(1)
    height[generator.integers(n)] = np.nan
    ranks = generator.permutation(n)
    few = candidates(height, slope, k, lam_min=low)
    changes = [low, *breakpoints(height[few], slope[few], k, low), LAM_MAX]
    for lam in (*np.linspace(low, LAM_MAX, 41), *changes):
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
    lists = sum(
        len(checked(explored.least(Place(question["set"], "", form))))
        for question in explored.questions
        for form, _ in explored.choices_of(question)
    )
    assert sum(c["compared"] for c in compared.values()) == lists


def test_the_rows_give_the_outcomes_that_were_measured_on_real_questions(explored):
    values, _ = read_result("values_real", "open", committed=True)
    for lam, form, arm in (
        (0.0, "one mimic", "hplus"),
        (1.0, "one mimic", "chr@1"),
        (-0.4, "one mimic", "chr@-0.4"),
        (-1.0, "one mimic", "chr@-1"),
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
            if name == "medqa" and form == "one mimic":
                shares, _, _ = explored.shares(Place(name, "", form), [lam])
                assert shares[0, CLASSES.index("not judged")] == 0, "judged, at these lambdas"


def test_the_bundled_rows_give_the_order_of_lib_and_a_wrong_row_is_found(explored):
    profile = load_profile("mini")
    encoder = load_encoder(profile.encoder, **profile.encoder_options)
    bundled = benchmark_set("ddx-mini", "mini", encoder)
    counts = check_rows(bundled, explored)
    low = explored.least(Place("ddx-mini", ""))
    lists = 3 * len(checked(low)) + 3 * len(checked(0.0))
    assert counts["compared"] == 96 * lists and counts["differ"] == 0
    made = make_explored([bundled], lam_min=low)
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


def test_the_steps_say_what_is_counted_and_no_curve_gives_the_answer_away(explored):
    seen = explore(explored)
    assert seen.says.value == "" and [key for _, key in seen.steps.options] == [*STEPS]
    seen.steps.value = "predict"
    before, at_one, others = (
        sum(p["class"] in GOOD for p in explored.list_at(replace(seen.place, lam=lam, mimic=mimic)))
        for lam, mimic in ((0.0, "own"), (1.0, "own"), (1.0, "random"))
    )
    assert seen.place.lam == 0 and f"{before} of 5 passages" in seen.says.value
    assert "polygon" not in seen.shown.value
    seen.steps.value = "drag"
    seen.lam.value = 1.0
    assert f"{before} of 5 were right, {at_one} of 5 are" in seen.says.value
    assert "polygon" in seen.shown.value
    seen.steps.value = "swap"
    seen.mimics.value = "random"
    assert f"{others} of 5 are right; with its own {at_one} of 5" in seen.says.value
    seen.mimics.value = "rotation"
    turned = right(explored, replace(seen.place, mimic="rotation", lam=1.0))
    assert f"Turned as far, but away from another question’s mimic, {turned}" in seen.says.value
    nothing = [{**some, "means": {"not judged": "not judged"}} for some in explored.sets]
    assert seen.steps in seen.box.children
    unjudged = explore(replace(explored, sets=nothing))
    assert unjudged.steps not in unjudged.box.children


def test_what_nobody_judged_is_not_told_as_wrong(explored):
    """Where judging was by lambda, a share is said to be at least what the judged ones give."""
    place = explored.start("medqa", lam=2.0)
    assert right(explored, place) == "0 of 5 (5 not judged)"
    lists = [
        {p["class"] for p in explored.list_at(replace(place, qid=q["qid"]))}
        for q in explored.of("medqa")
    ]
    sure = np.mean([bool(one & {*GOOD}) for one in lists])
    unsure = np.mean([bool(one & {*GOOD, "not judged"}) for one in lists])
    told = f"at least {100 * sure:.0f} % (most passages not judged)"
    assert share(explored, place) == told and unsure > sure
    assert "(some passages not judged)" in share(explored, replace(place, lam=-0.5))
    for lam in (-1.0, 1.2):
        assert "judged" not in share(explored, replace(place, lam=lam)), "judged there"
    experts = explored.start("bioasq", lam=2.0)  # what they did not choose counts as not right
    assert "judged" not in share(explored, experts) and "judged" not in right(explored, experts)


def test_the_last_step_compares_the_question_with_its_set(explored):
    """Adding the mimic keeps more over the set; of a question where it keeps less it is said."""
    shown = set()
    for question in explored.of("medqa"):
        place = Place("medqa", question["qid"], lam=-1.0)
        added, subtracted = explored.rights(place, (-1.0, 1.0))
        words = {1: "it is the same", -1: "it is the other way round", 0: "both keep as many"}
        wanted = words[int(np.sign(added - subtracted))]
        told = said(explored, place, "ends")
        assert f"On this question {wanted}: {added} of 5 right, and {subtracted} of 5." in told
        shown.add(wanted)
    _, (all_added, all_subtracted), _ = explored.shares(place, (-1.0, 1.0))
    assert len(shown) == 3 and all_added > all_subtracted


@pytest.mark.parametrize("mimic", ["own", "rotation"])
def test_what_nobody_judged_is_named_in_the_chart_and_is_no_line_at_0(explored, mimic):
    place = explored.start("medqa", mimic=mimic, lam=0.0)
    _, (sure,), _ = explored.shares(place, [2.0])
    _, (unsure,), _ = explored.shares(place, [2.0], (*GOOD, "not judged"))
    assert sure < 0.1 and unsure > 0.9
    shown = picture(explored, place)
    line = re.search(r'<path d="([^"]+)" fill="none" stroke="currentColor"', shown)[1]
    ends = [float(x) for x in re.findall(r"([\d.]+),", line)]
    assert min(ends) == 0 and max(ends) < 800
    at = float(re.search(r"left:([\d.]+)%;transform:translateX\(-50%\)\">not judged", shown)[1])
    assert 75 < at < 92
    assert ">not judged</span>" not in picture(explored, explored.start("bioasq"))


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
    assert "nobody" not in seen.shown.value and "on the target" in seen.texts.value


def test_a_start_that_is_not_there_is_refused(explored):
    for start, wrong in (
        ({"set": "medqaa"}, "there are: mmlu, medqa"),
        ({"form": "several"}, "there are"),
        ({"set": "ddx-mini", "form": "several mimics"}, "no texts for"),
        ({"qid": "nobody"}, "no question"),
        ({"lam": 2.5}, "to 2"),
        ({"lam": -0.5, "form": "several mimics"}, "from 0 to 2"),
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
    sized = base64.b85decode(packed.replace("/", "<"))
    content = gzip.decompress(sized[4 : 4 + int.from_bytes(sized[:4], "big")])
    length = int.from_bytes(content[:4], "big")
    return json.loads(content[4 : 4 + length]), content[4 + length :]


def test_the_committed_page_is_what_the_rows_make(explored, written):
    made = page(explored)
    assert unpacked(written) == unpacked(made), "run: make explorer"
    # Without what is packed: another zlib packs the same into other bytes.
    packed = r'(?<=<script id="data" type="application/octet-stream">)[^<]+'
    assert re.sub(packed, "", written) == re.sub(packed, "", made)


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


def test_the_lead_says_what_the_chart_of_each_set_shows(explored, written):
    lead = html.unescape(re.search(r'id="lead">(.*?)</p>', written, re.S)[1])
    told = re.findall(r"from (\d+) % to (\d+) %[^(]*\((\d+) of ([\w-]+)\)", lead)
    assert [name for *_, name in told] == ["MedQA", "MMLU-Med"]
    for (before, after, n, _), name in zip(told, ("medqa", "mmlu"), strict=True):
        _, found, asked = explored.shares(explored.start(name), (0.0, 1.0))
        assert [before, after, n] == [*(f"{100 * share:.0f}" for share in found), str(asked)]
        assert found[1] < found[0], "fall, the lead says"


def test_what_the_page_says_of_the_worm_is_so(explored, written):
    at = re.search(r'WORM = \{ set: "(\w+)", q: "(\w+)", lam: ([\d.]+) \}', written)
    place = Place(at[1], at[2], lam=float(at[3]))
    question = explored.question(place)
    key = question["options"][question["answer"]]
    assert key == "Alendronate" and "first-line drug therapy for" in question["target"]
    assert "osteoporosis" in question["target"]
    fifth = explored.list_at(place)[4]
    assert "human ocular thelaziasis" in fifth["text"]
    assert {passage["class"] for passage in explored.list_at(place)} == {"not judged"}
    sweep = pd.read_csv(paths.REPORTED / "chr_fig5_lambda.csv")["lambda"].max()
    told = STEPS["ends"]["worm"]
    assert "a worm in an eye" in told and f"own sweep, which ends at λ = {sweep:g}" in told
    assert sweep < place.lam and "worm" not in written.partition('class="stage"')[0], "not the lead"


def test_what_is_said_of_a_passage_is_what_its_judges_said(explored, written):
    """The options that both passes named, and no others; words only where the page has them."""
    texts, _ = unpacked(written)
    kept, _ = kept_records(explored)
    agreed, first = evidence(read_judgments()), {}
    for row in read_judgments():
        if row["judge"] == "first":
            spans = zip(row["supports"], row["start"], row["length"], strict=False)
            for option, start, length in spans:
                first[row["qid"], row["pid"], option] = start, length
    counted = lit = 0
    for some in texts["sets"]:
        for question in some["questions"]:
            qid = question["qid"]
            records = explored.records[kept[some["name"], qid]]
            said: dict[int, dict] = {}
            for i, option, start, end in question["said"]:
                said.setdefault(i, {})[option] = start, end
            if some["name"] not in ("medqa", "mmlu"):
                assert not said
                continue
            for i, record in enumerate(records):
                shown = explored.passages[record["passage"]]
                found = agreed.get((qid, shown["pid"]))
                assert set(said.get(i, ())) == set(found.supports if found else ())
                for option, (start, end) in said.get(i, {}).items():
                    counted += 1
                    if start >= 0:
                        lit += 1
                        at, length = first[qid, shown["pid"], option]
                        whole = f"{shown['title']}\n{shown['text']}".lstrip("\n")
                        text = next(one for one in texts["passages"] if shown["text"] == one[1])[1]
                        assert text[start:end] == whole[at : at + length] and length == end - start
    assert counted > 500 and lit > 100


def test_colours_are_those_of_the_figures(written):
    light = dict(re.findall(r"--(\w+): (#\w+);", re.search(r":root \{(.*?)\}", written, re.S)[1]))
    names = {"on topic": "topic", "not judged": "unjudged"}
    ours = {names.get(name, name): colour.lower() for name, colour in COLOURS.items()}
    assert ours.items() <= light.items() and light["accent"] == QUERY.lower()


def luminance(colour: str) -> float:
    """Relative luminance of #rrggbb (WCAG 2)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_text_and_controls_have_the_contrast_of_wcag_aa_in_light_and_dark(written):
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    roots = re.findall(r":root \{(.*?)\}", written, re.S)
    schemes = [dict(re.findall(r"--(\w+): (#\w+);", root)) for root in roots]
    assert len(schemes) == 2 and set(schemes[0]) == set(schemes[1])
    for colours in schemes:
        for ground in ("paper", "panel"):
            for text in ("ink", "soft", "link", "right", "wrong"):
                assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
            for part in ("accent", "edge"):  # the slider, focus, borders of controls and keys
                assert contrast(colours[part], colours[ground]) >= 3, (part, ground)
        assert contrast(colours["ink"], colours["lit"]) >= 4.5


@pytest.mark.fault(
    "secrets", "A text that is shown is markup, a script or a formula", "text, no link"
)
def test_no_text_or_link_of_a_page_or_picture_is_more_than_text(explored):
    """The page's data are one stretch of letters; links are addresses of the web."""
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
