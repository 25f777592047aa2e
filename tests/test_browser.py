"""A real browser opens the page, the site and JupyterLab, and moves what a reader would move.

``make browser-test``; needs chromium and its driver (Debian: chromium, chromium-driver). What was
seen is kept in build/browser.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from lib import lab
from lib.base import paths
from lib.base.provenance import read_result
from lib.explorer.make import checked
from lib.explorer.page import PAGE, TOP, kept_records
from lib.explorer.rows import CHOICES, CLASSES, Explored, Place, order_at, read_rows
from lib.explorer.steps import said, share

pytestmark = pytest.mark.browser

SEEN = paths.ROOT / "build" / "browser"
SIZES = {"wide": (1280, 800), "phone": (390, 844)}
HARMLESS = ("favicon.ico",)


@pytest.fixture(scope="module")
def explored():
    return read_rows()


@pytest.fixture(scope="module")
def browse() -> Iterator[Callable]:
    """browse(width, height, scheme, motion): a browser window of that size; all are closed at the
    end. ``motion``: what the reader prefers, "no-preference" or "reduce". A ``scheme`` holds in
    frames, too, whatever a page says of them; with "" it is the machine's."""
    from selenium import webdriver

    programs = {
        name: next(filter(None, map(shutil.which, names)), None)
        for name, names in {
            "browser": ("chromium", "chromium-browser", "google-chrome"),
            "driver": ("chromedriver",),
        }.items()
    }
    if None in programs.values():
        pytest.fail(
            "no chromium or no chromedriver. On Debian: apt install chromium chromium-driver"
        )
    opened = []

    def window(width: int, height: int, scheme: str = "light", motion: str = "no-preference"):
        options = webdriver.ChromeOptions()
        options.binary_location = programs["browser"]
        for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        service = webdriver.ChromeService(executable_path=programs["driver"])
        driver = webdriver.Chrome(options=options, service=service)
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        prefers = {"prefers-color-scheme": scheme, "prefers-reduced-motion": motion}
        features = [{"name": name, "value": it} for name, it in prefers.items() if it]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        opened.append(driver)
        return driver

    SEEN.mkdir(parents=True, exist_ok=True)
    yield window
    for driver in opened:
        driver.quit()


def until(what: Callable, seconds: float = 30.0):
    """What ``what`` gives as soon as it gives something; fails after some seconds without."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = what()
        if found:
            return found
        time.sleep(0.1)
    pytest.fail(f"nothing after {seconds:g} s")


def complaints(driver) -> list[str]:
    """What the console has at the level of an error."""
    found = [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    return [message for message in found if not any(one in message for one in HARMLESS)]


def opened_page(driver, place: str = ""):
    driver.get("about:blank")
    driver.get(f"{PAGE.as_uri()}{place}")
    until(lambda: driver.execute_script("return document.body.dataset.ready"))
    return driver


def texts_at(driver, selector: str) -> list[str]:
    """What is written at a selector: nothing as long as it is not there."""
    return [found.text for found in driver.find_elements("css selector", selector)]


def address_lambda(driver) -> float:
    """The lambda that the page's address has."""
    return float(re.search(r"lam=(-?[\d.]+)", driver.current_url)[1])


def listed(driver, which: str = "after") -> list[str]:
    """The titles in one of the page's two lists."""
    items = driver.find_elements("css selector", f"#{which} .title")
    return [re.sub(r"^\d+\. ", "", item.text) for item in items]


def expected(view: Explored, place: Place) -> list[str]:
    """The same titles from the rows."""
    titles = []
    for passage in view.list_at(place):
        chapter, *sections = passage["title"].split(" -- ")
        titles.append(" › ".join(sections) or chapter or passage["text"][:30])
    return titles


def same_titles(seen: list[str], wanted: list[str]) -> bool:
    pairs = zip(seen, wanted, strict=True)
    # A passage without a title is shown by how it begins, shorter on the page.
    return all(" ".join(a.split())[:30] == " ".join(b.split())[:30] for a, b in pairs)


# the page ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_the_page_opens_from_the_file_system_at_any_width(browse, explored, size, scheme):
    driver = opened_page(browse(*SIZES[size], scheme))
    view = explored
    for which in ("before", "after"):  # a reader who has no link guesses first
        assert same_titles(listed(driver, which), expected(view, view.start("medqa", lam=0.0)))
    check_edges(driver, size)
    wide = driver.execute_script("return document.documentElement.scrollWidth")
    assert wide <= SIZES[size][0], "something is wider than the window"
    paper = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    for picture in driver.find_elements("css selector", "svg[role=img]"):
        assert picture.get_attribute("aria-label")
    height = driver.execute_script("return document.documentElement.scrollHeight")
    shot = {"captureBeyondViewport": True, "format": "png"}
    shot["clip"] = {"x": 0, "y": 0, "width": SIZES[size][0], "height": height, "scale": 1}
    save(driver.execute_cdp_cmd("Page.captureScreenshot", shot)["data"], f"page_{size}_{scheme}")
    opened_page(driver, "#set=medqa&q=0890&lam=1.98&step=4")
    check_edges(driver, size)
    assert complaints(driver) == []


def check_edges(driver, size: str) -> None:
    """One axis for slider and charts; two orders beside each other, above the fold."""
    edges = driver.execute_script(EDGES)
    assert edges["slider"] == edges["curve"] == edges["ticks"] == edges["bands"]
    assert edges["cards"] <= SIZES[size][1] and edges["columns"] == 2


EDGES = """
const box = (id) => document.getElementById(id).getBoundingClientRect();
const edges = (id) => [Math.round(box(id).left), Math.round(box(id).right)];
const cards = [...document.querySelectorAll(".lists li")].map((one) => one.getBoundingClientRect());
return {
  slider: edges("lam"), curve: edges("curve"), ticks: edges("ticks"), bands: edges("bands"),
  cards: Math.max(...cards.map((one) => one.bottom)),
  columns: new Set(cards.map((one) => Math.round(one.left))).size,
};
"""


@pytest.mark.parametrize("size", SIZES)
def test_the_grey_area_is_named_in_the_chart_at_every_lambda_and_no_line_is_drawn_there(
    browse, size
):
    """As are the steps, also on a phone; the word that matters of an outlined passage is seen."""
    driver = browse(*SIZES[size])
    for place in ("#lam=0.5", "#lam=2&step=4", "#lam=1&mimic=rotation", "#set=mmlu&lam=-1"):
        opened_page(driver, place)
        assert texts_at(driver, "#curve text.inside") == ["not judged"]
        ends = "const box = document.querySelector(arguments[0]).getBoundingClientRect();"
        line = driver.execute_script(f"{ends} return box.right", "#curve path[stroke-width='2']")
        name = driver.execute_script(f"{ends} return [box.left, box.right]", "#curve text.inside")
        assert line < name[0] and name[1] <= driver.execute_script("return innerWidth")
        assert bool(driver.find_elements("id", "dot")) == ("lam=2" not in place)
    opened_page(driver, "#set=bioasq&lam=1")  # what the experts did not choose is not right
    assert texts_at(driver, "#curve text.inside") == []
    opened_page(driver, "#set=medqa&q=0890&lam=1.98&step=4")
    names = ["1 Predict", "2 Drag to 1", "3 Swap mimics", "4 −1 and 2"]
    assert [one.strip() for one in texts_at(driver, "#steps button")] == names
    tops = "return [...document.querySelectorAll('#steps button')].map((one) => one.offsetTop)"
    assert len(set(driver.execute_script(tops))) == 1
    cut = "const one = document.querySelector('#after li.found .title');"
    assert driver.execute_script(f"{cut} return one.scrollHeight <= one.clientHeight + 1")
    assert "thelaziasis" in driver.find_element("css selector", "#after li.found .title").text


def test_a_copy_of_the_page_alone_has_no_link_to_files_that_are_not_there(browse, tmp_path):
    def links(driver) -> list[str]:
        shown = driver.find_elements("css selector", "header nav a")
        return [one.get_attribute("href") for one in shown if one.is_displayed()]

    driver = opened_page(browse(*SIZES["wide"]))
    ours = [one for one in links(driver) if one.startswith("file:")]
    assert len(ours) == 3 and all(Path(one.removeprefix("file://")).is_file() for one in ours)
    assert not driver.find_element("id", "alone").is_displayed()
    shutil.copy(PAGE, tmp_path)
    driver.get((tmp_path / PAGE.name).as_uri())
    until(lambda: driver.execute_script("return document.body.dataset.ready"))
    assert [one.split(":")[0] for one in links(driver)] == ["https"]
    assert "without its project" in driver.find_element("id", "alone").text
    assert complaints(driver) == []


@pytest.mark.parametrize("size", SIZES)
def test_question_options_and_colours_stay_in_sight(browse, size):
    driver = opened_page(browse(*SIZES[size]), "#lam=1")
    script = """
    document.querySelector("#after li:last-child").scrollIntoView({block: "end"});
    const high = window.innerHeight;
    const seen = ["text", "options", "key", "lam"].map((id) => {
      const box = document.getElementById(id).getBoundingClientRect();
      const at = document.elementFromPoint(box.left + 4, box.top + Math.min(8, box.height / 2));
      const name = document.getElementById(id);
      return [id, box.top >= 0 && box.top < high && (name.contains(at) || at?.contains(name))];
    });
    window.scrollTo(0, 600);
    return seen.concat(["text", "options", "key", "lam"].map((id) => {
      const box = document.getElementById(id).getBoundingClientRect();
      return [id, box.top >= 0 && box.top < high / 2 + 200];
    }));
    """
    assert [name for name, is_seen in driver.execute_script(script) if not is_seen] == []


def press(driver, name: str) -> None:
    """Press the button of the essay, or of its steps, that has this name."""
    buttons = driver.find_elements("css selector", "#do button, #steps button")
    (button,) = [one for one in buttons if one.text == name]
    button.click()


def says(driver) -> str:
    return driver.find_element("id", "says").text


def test_the_essay_lets_a_reader_guess_and_then_tells_what_came(browse, explored):
    """Four steps, with the words and numbers of the notebook."""
    driver, view = opened_page(browse(*SIZES["wide"], motion="reduce")), explored
    place = view.start("medqa", lam=0.0)
    at_one, at_minus, at_two = (replace(place, lam=lam) for lam in (1.0, -1.0, 2.0))
    assert says(driver) == said(view, place, "predict")
    assert not driver.find_element("id", "lead").is_displayed(), "the answer comes later"
    assert share(view, at_one) not in driver.find_element("id", "over").text
    press(driver, "more")
    assert "guess: more" in says(driver) and not driver.find_element("id", "lead").is_displayed()
    press(driver, "step 2 →")
    press(driver, "take me to λ = 1")
    until(lambda: "you guessed more" in says(driver))
    assert driver.find_element("id", "lead").is_displayed()
    assert says(driver).replace("; you guessed more", "") == said(view, at_one, "drag")
    press(driver, "3 Swap mimics")
    press(driver, "swap the mimic")
    swapped = replace(at_one, mimic="random")
    until(lambda: same_titles(listed(driver), expected(view, swapped)))
    assert says(driver) == said(view, swapped, "swap")
    press(driver, "the same turn")
    turned = replace(at_one, mimic="rotation")
    until(lambda: says(driver) == said(view, turned, "swap"))
    press(driver, "step 4 →")
    press(driver, "λ = −1")
    until(lambda: says(driver) == said(view, at_minus, "ends"))
    assert same_titles(listed(driver), expected(view, at_minus))
    right, of_all = measured(place, "chr@-1")
    assert f"{100 * of_all:.0f} % have a right passage with the mimic added" in says(driver)
    assert f"it is the other way round: {right} of 5 right, and" in says(driver)
    press(driver, "λ = 2")
    until(lambda: says(driver) == said(view, at_two, "ends"))
    assert "at least 1 % (most passages not judged)" in says(driver), "unjudged is not wrong"
    press(driver, "a worm in an eye")
    until(lambda: driver.find_elements("css selector", "#after li.found"))
    found = driver.find_element("css selector", "#after li.found").text
    assert "thelaziasis" in found and "worm in an eye" in says(driver)
    assert complaints(driver) == []


def measured(place: Place, arm: str) -> tuple[int, float]:
    """How many of a question's five were right under an arm, and the share of its set's questions
    with a right one: from the committed results."""
    values, _ = read_result("values_real", "open", committed=True)
    values = values[(values["arm"] == arm) & (values["dataset"] == place.set)]
    right = values[values["metric"] == "share_correct_at_5"].set_index("qid")["value"]
    return round(5 * right[place.qid]), (right > 0).mean()


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_cards_move_to_their_places_unless_the_reader_prefers_stillness(browse, motion):
    driver = opened_page(browse(*SIZES["wide"], motion=motion), "#lam=0.9")
    script = """
    place.lam = 1.1; showLambda();
    const cards = [...document.querySelectorAll("#after li")];
    const moving = cards.filter((one) => one.getAnimations().length);
    return [moving.length, document.getAnimations().length];
    """
    cards, everything = driver.execute_script(script)
    assert (cards > 0) == (motion == "no-preference") and (everything == 0) == (motion == "reduce")


def test_a_passage_opens_to_show_why_it_counts(browse, explored):
    """By keyboard: the option, and the words where the page has them."""
    from selenium.webdriver.common.keys import Keys

    driver = opened_page(browse(*SIZES["wide"]), "#set=medqa&q=0890&lam=0")
    heads = driver.find_elements("css selector", "#before summary")
    heads[0].send_keys(Keys.ENTER)
    (why,) = until(lambda: texts_at(driver, "#before .why"))
    assert "It supports A. Alendronate (the key)" in why
    assert "= 0.866" in why  # the score, as a sum of its two cosines
    script = """
    const set = data.sets.find((one) => one.name === "medqa");
    for (const question of set.questions) {
      const lit = new Set(question.said.filter((one) => one[2] > 0).map((one) => one[0]));
      const top = topAt(question, linesOf(question, "one mimic", "own"), 0, 5);
      if (top.some((i) => lit.has(i))) return [question.qid, top.findIndex((i) => lit.has(i))];
    }
    """
    qid, at = driver.execute_script(script)
    opened_page(driver, f"#set=medqa&q={qid}&lam=0")
    driver.find_elements("css selector", "#before summary")[at].click()
    assert len(until(lambda: texts_at(driver, "#before .why mark"))[0]) > 15
    # It stays open while it moves.
    driver.execute_script("place.lam = 0.1; showLambda();")
    assert driver.find_elements("css selector", "#before details[open] mark")
    assert complaints(driver) == []


def test_the_link_that_is_copied_leads_back(browse):
    driver = opened_page(
        browse(*SIZES["wide"]), "#set=mmlu&lam=0.5&mimic=random&step=3&guess=fewer"
    )
    before, said = listed(driver), says(driver)
    driver.execute_script(
        "navigator.clipboard.writeText = async (text) => { window.kept = text; };"
    )
    driver.find_element("id", "copy").click()
    link = until(lambda: driver.execute_script("return window.kept"))
    until(lambda: driver.find_element("id", "copy").text == "copied")
    opened_page(driver, link[link.index("#") :])
    assert (listed(driver), says(driver)) == (before, said)
    assert address_lambda(driver) == 0.5 and complaints(driver) == []


def test_the_chart_of_each_set_shows_what_the_lead_says(browse):
    driver = opened_page(browse(*SIZES["wide"]), "#lam=1")
    lead = driver.find_element("id", "lead").text
    told = re.findall(r"from (\d+ %) to (\d+ %)[^(]*\((\d+) of", lead)
    for name, (before, after, n) in zip(("medqa", "mmlu"), told, strict=True):
        opened_page(driver, f"#set={name}&lam=1")
        over = driver.find_element("id", "over").text
        assert over.startswith(f"{n} questions"), over
        assert f": {before} at λ = 0, {after} at λ = 1.00" in over


def save(data: str, name: str) -> None:
    import base64

    (SEEN / f"{name}.png").write_bytes(base64.b64decode(data))


def test_the_slider_moves_the_passages_by_keyboard(browse, explored):
    from selenium.webdriver.common.keys import Keys

    driver, view = opened_page(browse(*SIZES["wide"])), explored
    slider = driver.find_element("id", "lam")
    before = listed(driver)
    slider.send_keys(*[Keys.ARROW_RIGHT] * 40)
    place = view.start("medqa", lam=0.4)
    until(lambda: driver.find_element("id", "lamout").text == "0.40")
    assert same_titles(listed(driver), expected(view, place)) and listed(driver) != before
    chips = [one.text for one in driver.find_elements("css selector", "#after .chip")]
    assert chips == [p["class"] for p in view.list_at(place)]
    until(lambda: "lam=0.4" in driver.current_url)
    _, (found,), n = view.shares(place, [0.4])
    caption = driver.find_element("id", "over").text
    assert f"{n} questions" in caption and f"{100 * found:.0f} % at λ = 0.40" in caption
    c, turn = view.turn(place)
    polar = driver.find_element("id", "polartext").text
    assert f"= {c:.2f}." in polar and f"turned {turn:.0f}°" in polar
    assert complaints(driver) == []


def test_the_buttons_go_from_change_to_change(browse, explored):
    driver = opened_page(browse(*SIZES["wide"]), "#set=medqa&lam=0")
    view = explored
    place = view.start("medqa", lam=0.0)
    every = view.changes(place)
    changes = [at for at in every if at > 0]
    for at, after in zip(changes[:4], changes[1:5], strict=True):
        before = {passage["record"] for passage in view.list_at(place)}
        driver.find_element("id", "next").click()
        place = replace(place, lam=at + min(0.002, (after - at) / 2))
        # The page's cosines have six decimals, so its changes are a little elsewhere.
        until(lambda lam=place.lam: abs(address_lambda(driver) - lam) < 5e-4)
        assert same_titles(listed(driver), expected(view, place))
        assert {passage["record"] for passage in view.list_at(place)} != before
    assert len(driver.find_elements("css selector", "#ticks line[y2='7']")) == len(every)
    # Past the last change the button does nothing, and keeps the focus.
    driver.execute_script("for (let i = 0; i < 60; i++) document.getElementById('next').click();")
    driver.find_element("id", "next").click()
    last = driver.find_element("id", "next")
    until(lambda: last.get_attribute("aria-disabled") == "true")
    assert driver.switch_to.active_element.get_attribute("id") == "next"
    assert "NaN" not in driver.current_url and complaints(driver) == []


def test_a_link_leads_to_its_place_and_nonsense_to_the_start(browse, explored):
    view = explored
    place = Place("ddx-fresh", view.of("ddx-fresh")[5]["qid"], "one mimic", "rotation", 0.7)
    link = f"#set=ddx-fresh&q={place.qid}&lam=0.7&mimic=rotation"
    driver = opened_page(browse(*SIZES["wide"]), link)
    assert same_titles(listed(driver), expected(view, place))
    opened_page(driver, "#set=nothing&q=no&lam=77&form=x&mimic=y&step=9&guess=none")
    assert same_titles(listed(driver), expected(view, view.start("medqa", lam=0.0)))
    opened_page(driver, "#set=ddx-mini&form=several+mimics")
    assert driver.find_element("id", "form").get_attribute("value") == "one mimic"
    opened_page(driver, "#lam=1&form=toString&mimic=constructor")
    assert same_titles(listed(driver), expected(view, view.start("medqa")))
    assert complaints(driver) == []


def test_a_reader_can_choose_another_set_form_and_mimic(browse, explored):
    from selenium.webdriver.support.select import Select

    driver, view = opened_page(browse(*SIZES["phone"]), "#lam=1"), explored
    driver.find_element("css selector", "#controls summary").click()
    Select(driver.find_element("id", "form")).select_by_value("several mimics")
    place = view.start("medqa", form="several mimics")
    until(lambda: same_titles(listed(driver), expected(view, place)))
    shares, _, _ = view.shares(place, [1.0])
    unseen = driver.find_element("id", "unseen").text
    assert f"nobody saw {100 * shares[0, CLASSES.index('not judged')]:.1f} %" in unseen
    first = view.question(place)["several"][0][:30]
    assert first in driver.find_element("id", "mimictext").text
    Select(driver.find_element("id", "form")).select_by_value("question added")
    assert driver.find_element("id", "start").text == "H+, question added"
    assert "by H+, question added" in driver.find_element("id", "told").text
    Select(driver.find_element("id", "form")).select_by_value("several mimics")
    Select(driver.find_element("id", "set")).select_by_value("bioasq")
    Select(driver.find_element("id", "mimic")).select_by_value("random")
    assert driver.find_element("id", "form").get_attribute("value") == "one mimic"
    assert same_titles(listed(driver), expected(view, view.start("bioasq", mimic="random")))
    assert complaints(driver) == []


def test_the_page_gives_the_rows_order_for_every_question(browse, explored):
    """At every tenth of lambda, every form and mimic; what rounding ties may differ."""
    driver = opened_page(browse(*SIZES["wide"]))
    kept, _ = kept_records(explored)
    compared = tied = 0
    for some in explored.sets:
        questions = explored.of(some["name"])
        for form, mimic in CHOICES:
            lambdas = checked(explored.least(Place(some["name"], "", form)))
            lists = driver.execute_script(ALL_LISTS, some["name"], form, mimic, lambdas, TOP)
            for question, by_lambda in zip(questions, lists, strict=True):
                offered = (form, mimic) in explored.choices_of(question)
                assert offered == (by_lambda is not None)
                if offered:
                    counts = differences(explored, question, form, mimic, kept, by_lambda)
                    compared, tied = compared + len(by_lambda), tied + counts
    assert compared > 160_000 and tied < compared / 1000


ALL_LISTS = """
const [name, form, mimic, lambdas, k] = arguments;
const set = data.sets.find((one) => one.name === name);
return set.questions.map((question) => {
  if (!offers(question, form, mimic)) return null;
  const lines = linesOf(question, form, mimic);
  return lambdas.map((lam) => topAt(question, lines, lam, k));
});
"""


def differences(explored, question, form, mimic, kept, by_lambda) -> int:
    """How many of one question's lists are equal but for ties; fails where one is not."""
    records = explored.records_of(question)
    height, slope = explored.lines(question, form, mimic)
    ranks = records["passage"]
    own = kept[question["set"], question["qid"]] - question["start"]
    tied = 0
    lambdas = checked(explored.least(Place(question["set"], "", form)))
    for lam, top in zip(lambdas, by_lambda, strict=True):
        ours, theirs = order_at(height, slope, lam, TOP, ranks), own[top]
        if ours.tolist() != theirs.tolist():
            score = height - lam * slope
            assert np.abs(score[ours] - score[theirs]).max() < 2e-5, (question["qid"], lam)
            tied += 1
    return tied


def test_an_update_of_the_page_takes_less_than_50_ms(browse):
    driver = opened_page(browse(*SIZES["wide"]), "#set=bioasq")
    script = """
    const times = [];
    for (let i = 0; i < 30; i++) {
      const start = performance.now();
      place.lam = (i * 0.37) % 2;
      showLambda();
      times.push(performance.now() - start);
    }
    return times;
    """
    times = sorted(driver.execute_script(script))
    (SEEN / "page_update_ms.json").write_text(json.dumps(times))
    assert times[len(times) // 2] < 50


# the site -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """The address of the site that ``make site`` has built."""
    built = paths.ROOT / "build" / "site"
    assert (built / "index.html").is_file(), "run: make site"
    handler = partial(QuietHandler, directory=str(built))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_the_explorers_frame_follows_the_sites_own_switch_of_colours(browse, site):
    driver = browse(*SIZES["wide"], scheme="")
    driver.get(f"{site}/explorer.html")
    for scheme in ("dark", "light"):
        driver.find_element("css selector", ".theme-switch-button").click()
        choice = f".dropdown-menu.show [data-mode={scheme}]"
        until(lambda it=choice: driver.find_elements("css selector", it))[0].click()
        until(lambda wanted=scheme: paper_in_frame(driver) == wanted)
        driver.save_screenshot(str(SEEN / f"site_explorer_switched_{scheme}.png"))
    assert complaints(driver) == []


def paper_in_frame(driver) -> str:
    """Whether the explorer in its frame is light or dark."""
    driver.switch_to.frame(driver.find_element("css selector", "iframe.explorer"))
    until(lambda: driver.execute_script("return document.body.dataset.ready"))
    paper = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
    driver.switch_to.default_content()
    return "light" if paper == "rgb(255, 255, 255)" else "dark"


RESULTS = "#search-results ul.search li"


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *args) -> None:
        pass


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_the_site_is_read_at_any_width_in_light_and_dark(browse, site, size, scheme):
    driver = browse(*SIZES[size], scheme)
    for place in ("index", "explorer", "notebooks/13_real_questions", "docs/results"):
        driver.get(f"{site}/{place}.html")
        until(lambda: driver.execute_script("return document.readyState") == "complete")
        wide = driver.execute_script("return document.documentElement.scrollWidth")
        assert wide <= SIZES[size][0], f"{place}: something is wider than the window"
        paper = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", paper)[:3])) > 600) == (scheme == "light"), place
        shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
        save(shot["data"], f"site_{place.rpartition('/')[2]}_{size}_{scheme}")
    assert complaints(driver) == []


def test_the_site_shows_the_explorer_and_finds_a_sentence(browse, site):
    driver = browse(*SIZES["wide"])
    driver.get(f"{site}/explorer.html")
    driver.switch_to.frame(driver.find_element("css selector", "iframe.explorer"))
    until(lambda: driver.execute_script("return document.body.dataset.ready"))
    driver.get(f"{site}/search.html?q=matched+rotation")
    until(lambda: len(driver.find_elements("css selector", f"{RESULTS} p")) > 5)
    titles = [it.text for it in driver.find_elements("css selector", f"{RESULTS} a")]
    assert any("Real questions" in title for title in titles)
    shown = [it.text for it in driver.find_elements("css selector", f"{RESULTS} p")]
    assert not [text for text in shown if '["' in text], "code in an excerpt"
    assert complaints(driver) == []


# JupyterLab --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def jupyter(tmp_path_factory) -> Iterator[tuple[str, Path]]:
    """The address of a JupyterLab as ``make lab`` starts it, and the copy that it is on."""
    folder = tmp_path_factory.mktemp("lab")
    lab.seed(folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [*lab.COMMAND, "--no-browser", "--allow-root"]
    command += [
        f"--port={port}",
        "--ip=127.0.0.1",
        "--IdentityProvider.token=",
        "--expose-app-in-browser",
    ]
    own = {"JUPYTER_CONFIG_DIR": str(folder / ".config"), "IPYTHONDIR": str(folder / ".ipython")}
    with open(SEEN / "jupyter.log", "w") as log:
        server = subprocess.Popen(
            command,
            cwd=folder,
            env=lab.environment_of(folder) | own,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    address = f"http://127.0.0.1:{port}"
    try:
        until(lambda: server.poll() is None and _answers(address), 60)
        yield address, folder
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(20)


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/api", timeout=2) as reply:
            return reply.status == 200
    except OSError:
        return False


def test_in_jupyterlab_the_first_notebook_runs_from_the_menu_and_its_slider_moves(
    browse, jupyter, explored
):
    from selenium.webdriver.common.keys import Keys

    address, folder = jupyter
    committed = (folder / "notebooks" / "00_start_here.ipynb").read_bytes()
    driver, view = browse(1280, 1000), explored
    driver.get(address)  # what make lab opens
    until(lambda: driver.current_url.endswith(lab.FIRST), 60)
    until(lambda: driver.find_elements("css selector", ".jp-Notebook .jp-Cell"), 90)
    # A click before the kernel has started runs nothing.
    until(lambda: "Idle" in driver.find_element("id", "jp-bottom-panel").text, 60)
    until(lambda: menu(driver, "Run", "Run All Cells"), 60)
    until(lambda: scrolled_to(driver, ".jupyter-widgets .noUi-handle"), 240)
    until(lambda: "λ = 1.00" in shown(driver), 60)
    before = widget_titles(driver)
    assert same_titles(before, expected(view, view.start("mmlu")))
    # The kernel answers a slider when the cells below have run, and while they run the page moves.
    until(lambda: dragged(driver) and "contrast, λ = 1.00" not in shown(driver), 120)
    lam = float(re.search(r"contrast, λ = ([\d.]+)", shown(driver))[1])
    assert lam < 0.99
    place = view.start("mmlu", lam=lam)
    assert same_titles(widget_titles(driver), expected(view, place))
    driver.save_screenshot(str(SEEN / "jupyterlab_00.png"))
    assert not driver.find_elements("css selector", ".jp-RenderedText[data-mime-type*=error]")
    assert "official Jupyter news" not in driver.find_element("tag name", "body").text
    assert complaints(driver) == []
    driver.find_element("css selector", ".jp-Notebook").send_keys(Keys.CONTROL, "s")
    copy = folder / "notebooks" / "00_start_here.ipynb"
    until(lambda: copy.read_bytes() != committed, 30)
    assert (paths.ROOT / "notebooks" / "00_start_here.ipynb").read_bytes() == committed


def menu(driver, name: str, item: str) -> bool:
    """Click an item of JupyterLab's menu bar; False while it is not there."""
    for label in driver.find_elements("css selector", ".lm-MenuBar-itemLabel"):
        if label.text == name:
            label.click()
            time.sleep(0.5)
            for one in driver.find_elements("css selector", ".lm-Menu-itemLabel"):
                if one.text == item:
                    one.click()
                    return True
    return False


def scrolled_to(driver, selector: str):
    """An element of the notebook, brought into view; cells far away are not in the page yet."""
    found = driver.find_elements("css selector", selector)
    if found:
        return found[0]
    driver.execute_script(
        "const panel = document.querySelector('.jp-WindowedPanel-outer');"
        "panel.scrollTop = (panel.scrollTop + 300) % Math.max(panel.scrollHeight, 1);"
    )
    return None


def dragged(driver) -> bool:
    """Drag the slider to the left, once; whether it stands elsewhere than at 1."""
    from selenium.webdriver.common.action_chains import ActionChains

    if slider_text(driver) == "1.00":
        handle = driver.find_element("css selector", ".jupyter-widgets .noUi-handle")
        driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", handle)
        ActionChains(driver).click_and_hold(handle).move_by_offset(-60, 0).release().perform()
        time.sleep(1)
    return slider_text(driver) != "1.00"


def slider_text(driver) -> str:
    """What stands beside the slider."""
    return driver.find_element("css selector", ".jupyter-widgets .widget-readout").text


def shown(driver) -> str:
    """The text of the widgets."""
    return " ".join(
        one.text for one in driver.find_elements("css selector", ".widget-html-content")
    )


def widget_titles(driver) -> list[str]:
    """The titles of the list under contrast, in the picture that follows the slider."""
    script = """
    const heads = [...document.querySelectorAll('.widget-html-content b')];
    const head = heads.find((one) => one.textContent.startsWith('contrast, λ'));
    return [...head.parentElement.querySelectorAll('div > b')]
      .filter((one) => one !== head).map((one) => one.textContent);
    """
    return driver.execute_script(script)


# the class ---------------------------------------------------------------------------------------

SLIDES = paths.ROOT / "docs" / "teach" / "slides.html"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_every_slide_fits_its_window_and_keys_turn_it(browse, size, scheme):
    from selenium.webdriver.common.keys import Keys

    width, height = SIZES[size]
    driver = browse(width, height, scheme)
    driver.get(SLIDES.as_uri())
    run = driver.execute_script
    until(lambda: run("return [...document.images].every((one) => one.complete)"))
    assert run("return [...document.images].every((one) => one.naturalWidth > 0)")
    assert run("return document.documentElement.scrollWidth") <= width
    high = run("return [...document.querySelectorAll('section')].map((one) => one.offsetHeight)")
    assert max(high) <= (height if size == "wide" else 1.3 * height), high
    at = "return Math.round(scrollY / innerHeight)"
    for key, slide in ((Keys.ARROW_RIGHT, 1), (Keys.SPACE, 2), (Keys.ARROW_LEFT, 1)):
        driver.find_element("css selector", "body").send_keys(key)
        until(lambda wanted=slide: run(at) == wanted, 5)
    for number in range(len(high)) if scheme == "light" else (8,):
        run("document.querySelectorAll('section')[arguments[0]].scrollIntoView()", number)
        driver.save_screenshot(str(SEEN / f"slide_{size}_{scheme}_{number + 1}.png"))
    assert complaints(driver) == []


def test_in_jupyterlab_an_answer_is_checked_and_the_others_wait(browse, jupyter):
    """The first exercise is answered in the copy, as its student would."""
    address, folder = jupyter
    copy = folder / "notebooks" / "17_exercises.ipynb"
    committed = copy.read_text(encoding="utf-8")
    formula = "np.degrees(np.arctan2(lam * np.sqrt(1 - c**2), 1 - lam * c))"
    answered = committed.replace(
        "answer = None   # degrees", f"c = h_plus @ h_minus\\nanswer = {formula}"
    )
    assert answered != committed
    copy.write_text(answered, encoding="utf-8")
    driver = browse(1280, 1000)
    driver.get(f"{address}/lab/tree/notebooks/17_exercises.ipynb")
    until(lambda: driver.find_elements("css selector", ".jp-Notebook .jp-Cell"), 90)
    until(lambda: "Idle" in driver.find_element("id", "jp-bottom-panel").text, 60)
    until(lambda: menu(driver, "Run", "Run All Cells"), 60)
    until(lambda: saved_with(driver, copy, '"Right.\\n"'), 120)
    # Those below are still running when the first is saved.
    waiting = '"Not answered yet.\\n"'
    until(lambda: saved_with(driver, copy, waiting) and copy.read_text().count(waiting) == 7, 120)
    driver.save_screenshot(str(SEEN / "jupyterlab_17.png"))


def saved_with(driver, file: Path, text: str) -> bool:
    """Save the notebook; whether its file then has a text."""
    from selenium.webdriver.common.keys import Keys

    driver.find_element("css selector", "body").send_keys(Keys.CONTROL, "s")
    time.sleep(2)
    return text in file.read_text(encoding="utf-8")
