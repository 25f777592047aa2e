"""The explorer in a notebook: ipywidgets where they are, a picture of the same place elsewhere."""

from __future__ import annotations

from dataclasses import replace
from html import escape

from lib.explorer.draw import picture, texts
from lib.explorer.lines import CHOICES, LAM_MAX
from lib.explorer.rows import Explored
from lib.explorer.store import read_rows
from lib.explorer.view import Place, View

_MIMICS = {
    "own": "the question's own",
    "random": "another question's",
    "rotation": "matched rotation",
}

_KEPT_LETTERS = 100
"""Letters of a passage or question in a picture that stays in a notebook."""


class Explorer:
    """Controls above a picture that follows them; ``place`` says where they stand.

    In a notebook it shows itself. Where widgets are absent (a page on the web, a printed notebook)
    the same place stands as a picture.
    """

    def __init__(self, view: View, place: Place):
        import ipywidgets as w

        self.view, self.place = view, place
        wide = w.Layout(width="auto", min_width="0", flex="1 1 0%")
        self.sets = w.Dropdown(description="questions", options=self._set_options())
        self.questions = w.Dropdown(description="question", layout=wide)
        self.forms = w.Dropdown(description="form")
        self.mimics = w.Dropdown(description="mimic")
        self.lam = w.FloatSlider(
            description="λ", min=0, max=LAM_MAX, step=0.01, layout=wide, readout_format=".2f"
        )
        self.texts, self.shown = w.HTML(), w.HTML()
        rows = (
            w.HBox([self.sets, self.questions]),
            w.HBox([self.forms, self.mimics]),
            self.lam,
            self.shown,
            self.texts,
        )
        self.box = w.VBox(rows, layout=w.Layout(max_width="960px"))
        self._moving = False
        self.move()
        self.sets.observe(lambda change: self.move(set=change["new"]), "value")
        self.questions.observe(lambda change: self.move(qid=change["new"]), "value")
        self.forms.observe(lambda change: self.move(form=change["new"]), "value")
        self.mimics.observe(lambda change: self.move(mimic=change["new"]), "value")
        self.lam.observe(lambda change: self.move(lam=change["new"]), "value")

    def move(self, **changes) -> None:
        """Go to another place: any of set, qid, form, mimic, lam, k. Another set begins with its
        median question; a form that the question has no texts for becomes one mimic, the own."""
        if self._moving:  # the controls are being set, by this very call
            return
        self._moving = True
        try:
            if changes.get("set", self.place.set) != self.place.set and "qid" not in changes:
                changes |= {"qid": self.view.start(changes["set"]).qid}
            before = self.place
            self.place = self._offered(replace(self.place, **changes))
            if not changes or replace(before, lam=0.0) != replace(self.place, lam=0.0):
                self._set_controls()
                self.texts.value = texts(self.view, self.place)
            self.lam.value = self.place.lam
            self.shown.value = picture(self.view, self.place)
        finally:
            self._moving = False

    def _offered(self, place: Place) -> Place:
        offered = self.view.explored.choices_of(self.view.question(place))
        if (place.form, place.mimic) in offered:
            return place
        if (place.form, "own") in offered:
            return replace(place, mimic="own")
        return replace(place, form="one mimic", mimic="own")

    def _set_options(self) -> list[tuple[str, str]]:
        counts = {name: len(self.view.explored.of(name)) for name in self.view.sets}
        titles = {name: some["title"] for name, some in self.view.sets.items()}
        return [(f"{titles[name]} ({n})", name) for name, n in counts.items()]

    def _set_controls(self) -> None:
        """Options first, then values: a value outside of the options is an error."""
        place = self.place
        own = self.view.explored.of(place.set)
        offered = self.view.explored.choices_of(self.view.question(place))
        self.sets.value = place.set
        options = [(f"{q['qid']}: {q['text'][:80]}", q["qid"]) for q in own]
        if tuple(self.questions.options) != tuple(options):
            self.questions.options = options
        self.questions.value = place.qid
        self.forms.options = list(
            dict.fromkeys(form for form, _ in CHOICES if (form, "own") in offered)
        )
        self.forms.value = place.form
        self.mimics.options = [(_MIMICS[m], m) for form, m in offered if form == place.form]
        self.mimics.value = place.mimic

    def html(self) -> str:
        """The place as a picture, for where widgets are absent; it is kept in notebooks, so texts
        that are not ours are shortened."""
        some = self.view.sets[self.place.set]
        head = f"<p><b>{escape(some['title'])}</b>, {self.place.form}, λ = {self.place.lam:.2f}</p>"
        shown = picture(self.view, self.place, _KEPT_LETTERS)
        return head + shown + texts(self.view, self.place, _KEPT_LETTERS)

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        bundle = dict(self.box._repr_mimebundle_())
        return bundle | {"text/html": self.html(), "text/plain": repr(self.place)}


def explore(explored: Explored | None = None, set: str | None = None, **start) -> Explorer:
    """The explorer on the committed rows, or on rows of your own (see ``lib.explorer.own``).

    ``set`` (MedQA where there is one, else the first) and ``start`` (qid, form, mimic, lam, k) say
    where it begins; without a qid with the set's median question. ValueError for what is not there,
    naming what is, and for a question without a mimic: nothing would move.
    """
    view = View(explored or read_rows())
    name = set or ("medqa" if "medqa" in view.sets else next(iter(view.sets)))
    if name not in view.sets:
        raise ValueError(f"no set {name!r}; there are: {', '.join(view.sets)}")
    place = Place(name, start.pop("qid"), **start) if "qid" in start else view.start(name, **start)
    if (name, place.qid) not in view.questions:
        raise ValueError(f"{name} has no question {place.qid!r}")
    offered = view.explored.choices_of(view.question(place))
    if not offered:
        raise ValueError(f"question {place.qid} has no mimic, so lambda moves nothing: write an H-")
    if (place.form, place.mimic) not in offered:
        asked = place.form, place.mimic
        raise ValueError(f"question {place.qid} has no texts for {asked}; there are: {offered}")
    return Explorer(view, place)
