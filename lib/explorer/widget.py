"""The explorer in a notebook: ipywidgets where they are, a picture of the same place elsewhere."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from html import escape
from pathlib import Path

import numpy as np

from lib.explorer.rows import (
    CHOICES,
    CLASSES,
    GOOD,
    LAM_MAX,
    Explored,
    Form,
    Place,
    begins,
    read_rows,
)
from lib.explorer.steps import STEPS, UNSEEN, could, right, said, share
from lib.explorer.why import reasons
from lib.pages.readable import NO_FORMULAS

STARTS: Mapping[Form, str] = {
    "one mimic": "H+ alone",
    "question added": "H+, question added",
    "several mimics": "H+ alone",
}
"""What the search with lambda 0 is called, by form."""

COLOURS = {
    "right": "#0072B2",
    "both": "#56B4E9",
    "wrong": "#882255",
    "on topic": "#C9A227",
    "neither": "#B5B5BD",
    "not judged": "#E2E2E8",
}
"""Of the classes; each is also named, so that nobody has to tell colours apart."""

QUERY = "#D55E00"
"""Of the query and of lambda; h+ has the colour of text, h- that of ``wrong``."""
HEADS = {
    "own": "H−",
    "random": "H− of another question",
    "rotation": "H−: its angle is kept, its direction comes from another question's",
}
"""What is written above the mimic's text, by mimic."""

MIMICS = {
    "own": "the question's own",
    "random": "another question's",
    "rotation": "matched rotation (same turn, wrong mimic)",
}

_ALL = 10**9
"""More letters than any text has."""

_KEPT_LETTERS = 100
"""Letters of a passage or question in a picture that stays in a notebook."""


# what is shown -----------------------------------------------------------------------------------


@cache
def _template(name: str):
    """A template of this folder. Whatever is put into it is escaped: texts stay texts."""
    import jinja2

    loader = jinja2.FileSystemLoader(Path(__file__).parent / "template")
    options = {"trim_blocks": True, "lstrip_blocks": True, "undefined": jinja2.StrictUndefined}
    return jinja2.Environment(loader=loader, autoescape=True, **options).get_template(name)


def _rendered(name: str, **values) -> str:
    """HTML of a template; where a line ends between two tags nothing is left of it."""
    text = _template(name).render(no_formulas=NO_FORMULAS, **values)
    return re.sub(r">\n+(?=<)", ">", text).strip()


def picture(explored: Explored, place: Place, letters: int = _ALL, tells: bool = True) -> str:
    """Everything that changes with lambda, for one place; ``letters`` shortens passages to that.
    What comes of it over the set is left out where a reader is still to guess (``tells``)."""
    described, low = explored.set_named(place.set), _low(explored)
    before, after = explored.list_at(place, 0.0), explored.list_at(place)
    ids = [{passage["record"] for passage in found} for found in (before, after)]
    marks = {1.0: "the paper's"}
    if described["dev"] is not None and (place.form, place.mimic) == ("one mimic", "own"):
        best = "the best on other questions"
        marks[described["dev"]] = best if described["dev"] else f"no contrast, {best}"
    return _rendered(
        "picture.html",
        place=place,
        start=STARTS[place.form],
        described=described,
        colours=COLOURS,
        accent=QUERY,
        ticks=[(at, _x(at, low)) for at in (-1, -0.5, 0, 0.5, 1, 1.5, 2) if at >= low],
        rights=[right(explored, replace(place, lam=lam)) for lam in (0.0, place.lam)],
        changes=[(at, _x(at, low)) for at in explored.changes(place)],
        marks=[(at, name, _x(at, low)) for at, name in marks.items()],
        curve=_curve(explored, place) if tells else None,
        turn=_turn(explored, place),
        before=[_listed(passage, letters, described, place.qid) for passage in before],
        after=[_listed(passage, letters, described, place.qid) for passage in after],
        gone=ids[0] - ids[1],
        new=ids[1] - ids[0],
    )


def _listed(passage: Mapping, letters: int, described: Mapping, qid: str) -> dict:
    """What is shown of a passage of a list; ``options`` are those that its judges say it supports,
    where a set's classes are judgments."""
    chapter, *sections = passage["title"].split(" -- ")
    text = begins(passage["text"], letters)
    said = reasons() if described["judged_at"] else {}
    return passage | {
        "title": " › ".join(sections) or chapter or text,
        "text": text if passage["title"] else "",
        "about": passage.get("about", ""),
        "link": passage["link"] if passage["link"].startswith("https://") else "",
        "options": list(said.get((qid, passage["pid"]), ())),
    }


def _turn(explored: Explored, place: Place) -> dict | None:
    """The query in the plane of h+ and the mimic, to scale: arrows as x, y, colour, name, and where
    the name stands."""
    turned = explored.turn(place)
    if turned is None:
        return None
    c, degrees = turned
    side = math.sqrt(max(1 - c * c, 0.0))
    x, y = -place.lam * side, 1 - place.lam * c
    scale = min(1.0, 1.4 / max(math.hypot(x, y), 1e-9))
    arrows = [
        (0.0, 1.0, "currentColor", "h+", 0, -6),
        (side, c, COLOURS["wrong"], "mimic", 22, -2),
        (x * scale, y * scale, QUERY, "query", -22 if x <= 0 else 24, 14 if y < 0 else 4),
    ]
    return {"c": c, "degrees": degrees, "arrows": arrows if place.lam else arrows[:2]}


def _low(explored: Explored) -> float:
    """Where the slider begins: the smallest lambda that any set's rows go down to."""
    return min(described["lam_min"] for described in explored.sets)


def _x(lam: float, low: float) -> float:
    """Where a lambda is on the slider's axis, from 0 to 1000."""
    return 1000 * (lam - low) / (LAM_MAX - low)


def _lambdas(low: float) -> np.ndarray:
    """From ``low`` on in steps of .05."""
    return np.linspace(low, LAM_MAX, round((LAM_MAX - low) * 20) + 1)


@cache
def _shares_over_lambda(
    explored: Explored, place: Place, good: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray, int]:
    return explored.shares(place, _lambdas(explored.least(place)), good)


def _curve(explored: Explored, place: Place) -> dict | None:
    """Mean shares of the classes among the k best over the set, at every lambda and at the place's;
    None where nothing was judged."""
    described = explored.set_named(place.set)
    if list(described["means"]) == ["not judged"]:
        return None
    low, lambdas = _low(explored), _lambdas(explored.least(place))

    def points(heights: np.ndarray, top: int, height: int) -> list[str]:
        pairs = zip(lambdas, heights, strict=True)
        return [f"{_x(lam, low):.1f},{top + height * (1 - share):.1f}" for lam, share in pairs]

    everywhere = replace(place, qid="", lam=0.0)
    shares, found, n = _shares_over_lambda(explored, everywhere, GOOD)
    _, at_most, _ = _shares_over_lambda(explored, everywhere, could(explored, place))
    (here,), _, _ = explored.shares(place, [place.lam])
    bands, base = [], 0 * lambdas
    for c, name in enumerate(CLASSES):
        if shares[:, c].any():
            above = base + shares[:, c]
            edge = points(base, 0, 120) + points(above, 0, 120)[::-1]
            bands.append({"class": name, "points": " ".join(edge)})
            base = above
    # Where most questions hang on what nobody judged there is no line, only the band.
    gap = at_most - found
    seen, line = gap <= 0.5, points(found, 2, 60)
    high = np.flatnonzero(gap > 0.8 * gap.max())  # the band's name is in the middle of these
    named = high[len(high) // 2] if len(high) else 0
    return {
        "n": n,
        "first": share(explored, replace(place, lam=0.0)),
        "now": share(explored, place),
        "x": _x(place.lam, low),
        "bands": bands,
        "line": "".join(
            f"{'L' if i and seen[i - 1] else 'M'}{line[i]}" for i in np.flatnonzero(seen)
        ),
        "band": " ".join(line + points(at_most, 2, 60)[::-1]),
        "named": (_x(lambdas[named], low) / 10, 62 - 30 * (found + at_most)[named])
        if len(high)
        else None,
        "judged_at": described["judged_at"],
        "unseen": here[CLASSES.index(UNSEEN)],
    }


def texts(explored: Explored, place: Place, letters: int = _ALL) -> str:
    """The question, its options with the key, the colours, H+ and the mimic that is subtracted;
    ``letters`` shortens the question to that."""
    question = explored.question(place)
    head, mimics = HEADS[place.mimic], [question["mimic"]]
    if place.form == "several mimics":
        head, mimics = "Several H−", question["several"]
    elif place.mimic == "random":
        mimics = [question["random"]]
    described = explored.set_named(place.set)
    return _rendered(
        "texts.html",
        question=question,
        means=described["means"],
        colours=COLOURS,
        text=begins(question["text"], letters),
        head=head,
        mimics=mimics,
        written=described["written"],
    )


# the widget --------------------------------------------------------------------------------------


class Explorer:
    """Controls above a picture that follows them; ``place`` says where they stand.

    In a notebook it shows itself. Where widgets are absent (a page on the web, a printed notebook)
    the same place stands as a picture.
    """

    def __init__(self, explored: Explored, place: Place):
        import ipywidgets as w

        self.explored, self.place = explored, place
        wide = w.Layout(width="auto", min_width="0", flex="1 1 0%")
        options = [
            (f"{described['title']} ({len(explored.of(described['name']))})", described["name"])
            for described in explored.sets
        ]
        self.sets = w.Dropdown(description="questions", options=options)
        self.questions = w.Dropdown(description="question", layout=wide)
        self.forms = w.Dropdown(description="form")
        self.mimics = w.Dropdown(description="mimic")
        self.lam = w.FloatSlider(
            description="λ",
            min=_low(explored),
            max=LAM_MAX,
            step=0.01,
            layout=wide,
            readout_format=".2f",
        )
        named = [(f"{i} {step['name']}", key) for i, (key, step) in enumerate(STEPS.items(), 1)]
        self.steps = w.ToggleButtons(options=named, value=None, style={"button_width": "auto"})
        self.says, self.texts, self.shown = w.HTML(), w.HTML(), w.HTML()
        judged = "right" in explored.set_named(place.set)["means"]
        rows = (
            *((self.steps, self.says) if judged else ()),
            w.HBox([self.sets, self.questions]),
            w.HBox([self.forms, self.mimics]),
            self.texts,
            self.lam,
            self.shown,
        )
        self.box = w.VBox(rows, layout=w.Layout(max_width="960px"))
        self._moving = False
        self.move()
        controls = {"set": self.sets, "qid": self.questions, "form": self.forms}
        controls |= {"mimic": self.mimics, "lam": self.lam}
        for name, control in controls.items():
            control.observe(lambda change, name=name: self.move(**{name: change["new"]}), "value")
        self.steps.observe(lambda change: self._step(change["new"]), "value")

    def _step(self, step: str) -> None:
        """A step of the essay: the first is at lambda 0, in the others the reader moves."""
        start = {"lam": 0.0, "form": "one mimic", "mimic": "own"}
        self.move(**(start if step == "predict" else {}))

    def move(self, **changes) -> None:
        """Go to another place: any of set, qid, form, mimic, lam, k. Another set begins with its
        median question; a form that the question has no texts for becomes one mimic, the own."""
        if self._moving:  # the controls are being set, by this very call
            return
        self._moving = True
        try:
            if changes.get("set", self.place.set) != self.place.set and "qid" not in changes:
                changes |= {"qid": self.explored.start(changes["set"]).qid}
            before = self.place
            self.place = self._offered(replace(self.place, **changes))
            if not changes or replace(before, lam=0.0) != replace(self.place, lam=0.0):
                self._set_controls()
                self.texts.value = texts(self.explored, self.place)
            self.lam.value = self.place.lam
            step = self.steps.value
            self.says.value = escape(said(self.explored, self.place, step)) if step else ""
            guesses = step == "predict" and not self.place.lam
            self.shown.value = picture(self.explored, self.place, tells=not guesses)
        finally:
            self._moving = False

    def _offered(self, place: Place) -> Place:
        place = replace(place, lam=max(place.lam, self.explored.least(place)))
        offered = self.explored.choices_of(self.explored.question(place))
        if (place.form, place.mimic) in offered:
            return place
        if (place.form, "own") in offered:
            return replace(place, mimic="own")
        return replace(place, form="one mimic", mimic="own")

    def _set_controls(self) -> None:
        """Options first, then values: a value outside of the options is an error."""
        place = self.place
        offered = self.explored.choices_of(self.explored.question(place))
        self.sets.value = place.set
        questions = self.explored.of(place.set)
        options = [(f"{q['qid']}: {q['text'][:80]}", q["qid"]) for q in questions]
        if tuple(self.questions.options) != tuple(options):
            self.questions.options = options
        self.questions.value = place.qid
        forms = [form for form, _ in CHOICES if (form, "own") in offered]
        self.forms.options = list(dict.fromkeys(forms))
        self.forms.value = place.form
        self.mimics.options = [(MIMICS[m], m) for form, m in offered if form == place.form]
        self.mimics.value = place.mimic

    def html(self) -> str:
        """The place as a picture, for where widgets are absent; it is kept in notebooks, so texts
        that are not ours are shortened."""
        title = escape(self.explored.set_named(self.place.set)["title"])
        head = f"<p><b>{title}</b>, {self.place.form}, λ = {self.place.lam:.2f}</p>"
        shown = picture(self.explored, self.place, _KEPT_LETTERS)
        return head + texts(self.explored, self.place, _KEPT_LETTERS) + shown

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        bundle = dict(self.box._repr_mimebundle_())
        return bundle | {"text/html": self.html(), "text/plain": repr(self.place)}


def explore(
    explored: Explored | None = None, set: str | None = None, qid: str | None = None, **start
) -> Explorer:
    """The explorer on the committed rows, or on rows of your own (see ``lib.explorer.own``).

    ``set`` (MedQA where there is one, else the first), ``qid`` (else the set's median question) and
    ``start`` (form, mimic, lam, k) say where it begins. ValueError for what is not there, naming
    what is, and for a question without a mimic: nothing would move.
    """
    explored = explored or read_rows()
    names = [described["name"] for described in explored.sets]
    name = set or ("medqa" if "medqa" in names else names[0])
    place = Place(name, qid or explored.median_question(name), **start)
    question = explored.question(place)
    if not question["mimic"]:
        raise ValueError(f"question {place.qid} has no mimic, so lambda moves nothing: write an H-")
    explored.list_at(place)  # refuses what it has no texts for, and a lambda that it does not hold
    return Explorer(explored, place)
