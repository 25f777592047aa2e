"""What the explorer shows in a notebook, as HTML: lists, breakpoints, the turn, the whole set.

Plain HTML and SVG without a script, so that it also stands where widgets are absent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from lib.explorer.lines import LAM_MAX
from lib.explorer.rows import CLASSES
from lib.explorer.view import STARTS, Place, Seen, View
from lib.pages.readable import NO_FORMULAS

COLOURS = {
    "right": "#0072B2",
    "both": "#56B4E9",
    "wrong": "#882255",
    "on topic": "#C9A227",
    "neither": "#B5B5BD",
    "not judged": "#E2E2E8",
}
"""Of the classes; each is also named, so that nobody has to tell colours apart."""

_HEADS = {
    "own": "H−",
    "random": "H− of another question",
    "rotation": "H−: its angle is kept, its direction comes from another question's",
}
_ACCENT = "#009E73"
_BOX = (
    "border:1px solid #bbb;border-left:6px solid {};border-radius:5px;padding:3px 8px;margin:4px 0"
)
_WIDE = "max-width:960px;line-height:1.35"
_SIDE = "display:flex;flex-wrap:wrap;gap:14px;align-items:flex-start"
_TEXT = "font-family:sans-serif;font-size:11px;fill:currentColor"


def picture(view: View, place: Place, letters: int | None = None) -> str:
    """Everything that changes with lambda, for one place; ``letters`` shortens passages to that."""
    before, after = view.list_at(place, 0.0), view.list_at(place)
    figures = f"{_curve(view, place)}{_turn(view, place)}"
    gone = set(before.records) - set(after.records)
    new = set(after.records) - set(before.records)
    lists = _list(f"{STARTS[place.form]}, λ = 0", before, gone, "leaves", letters)
    lists += _list(f"contrast, λ = {place.lam:.2f}", after, new, "new", letters)
    told = _told(view, place)
    return (
        f'<div {NO_FORMULAS} style="{_WIDE}">{told}{_ticks(view, place)}'
        f'<div style="{_SIDE}">{figures}</div><div style="{_SIDE}">{lists}</div></div>'
    )


def _told(view: View, place: Place) -> str:
    """How many of the k are right, before and after; nothing where nobody judged."""
    means = view.sets[place.set]["means"].get("right")
    if means is None:
        return ""
    counts = view.rights(place, (0.0, place.lam))
    return (
        f"<b>“right” ({escape(means)}): {counts[0]} of {place.k} by "
        f"{STARTS[place.form]}, {counts[1]} of {place.k} at λ = {place.lam:.2f}</b>"
    )


def _list(head: str, seen: Seen, marked: set[int], mark: str, letters: int | None) -> str:
    """A ranked list; the records in ``marked`` carry a word."""
    items = []
    rows = zip(seen.records, seen.scores, seen.classes, seen.passages, strict=True)
    for rank, (record, score, name, passage) in enumerate(rows, 1):
        chapter, *sections = passage["title"].split(" -- ")
        begins = _short(passage["text"], letters)
        title = " › ".join(sections) or chapter or begins
        text = begins if passage["title"] else ""
        where = escape(passage["source"])
        if passage["link"].startswith("https://"):
            where = f'<a href="{escape(passage["link"])}">{where}</a>'
        said = f" · {mark}" if record in marked else ""
        items.append(
            f'<div style="{_BOX.format(COLOURS[name])}"><small>{rank}. <b>{escape(name)}</b>'
            f"{said} · S = {score:.3f}</small><br><b>{escape(title)}</b><br>"
            f"<small>{escape(text)} {where}</small></div>"
        )
    return f'<div style="flex:1 1 260px;min-width:0"><b>{escape(head)}</b>{"".join(items)}</div>'


def _short(text: str, letters: int | None) -> str:
    """How a text begins; all of it where ``letters`` is None."""
    if letters is None or len(text) <= letters:
        return text
    return text[:letters].rsplit(" ", 1)[0] + " …"


def _unseen(judged_at: Sequence[float], share: float, k: int) -> str:
    """Where judging was by lambda: how much of what is counted here nobody saw."""
    if not judged_at or share < 0.0005:
        return ""
    listed = ", ".join(f"{lam:g}" for lam in judged_at)
    return (
        f" <i>Judged were the top fives at λ = {listed}. Here nobody saw {100 * share:.1f} % of "
        f"the {k}, on average over the set: they do not count as right.</i>"
    )


def _ticks(view: View, place: Place) -> str:
    """The lambdas at which the set changes, with the paper's and, for plain contrast, dev's."""
    changes = view.changes(place)
    marks = {1.0: "the paper's"}
    dev = view.sets[place.set]["dev"]
    if dev is not None and (place.form, place.mimic) == ("one mimic", "own"):
        marks[dev] = "chosen on other questions"
    lines = [(at, 8, 1, "currentColor") for at in changes]
    lines += [(at, 14, 3, _ACCENT) for at in marks]
    drawn = "".join(
        f'<line x1="{500 * at:.1f}" x2="{500 * at:.1f}" y1="0" y2="{down}" stroke="{colour}" '
        f'stroke-width="{wide}" vector-effect="non-scaling-stroke"/>'
        for at, down, wide, colour in lines
    )
    told = "; ".join(f"λ = {at:g}, {name}" for at, name in marks.items())
    said = f"The set of {place.k} changes {len(changes)} times between λ = 0 and {LAM_MAX:g}"
    at = ", ".join(f"{x:.2f}" for x in changes)
    return (
        # Below the slider: as far in as its name and its number push it.
        '<div style="padding:0 83px 0 95px"><svg viewBox="0 0 1000 16" preserveAspectRatio="none" '
        f'style="width:100%;height:16px" role="img" aria-label="{said}: {at}">{drawn}</svg></div>'
        f"<small>{said}: at the marks. Green: {told}.</small>"
    )


def _turn(view: View, place: Place) -> str:
    """The query in the plane of h+ and the mimic, to scale."""
    turned = view.turn(place)
    if turned is None:
        return (
            '<div style="flex:0 1 220px"><small>The turn of the query is drawn for one mimic '
            "alone: with the question added, or several mimics, it leaves this plane.</small></div>"
        )
    c, degrees = turned
    side, radius = math.sqrt(max(1 - c * c, 0.0)), 62
    x, y = -place.lam * side, 1 - place.lam * c
    scale = min(1.0, 1.4 / max(math.hypot(x, y), 1e-9))
    arrows = [
        (0.0, 1.0, COLOURS["right"], "h+", 0, -6),
        (side, c, COLOURS["wrong"], "mimic", 22, -2),
        (x * scale, y * scale, _ACCENT, "query", -6, 14 if y < 0 else -6),
    ]
    drawn = "".join(
        f'<line x1="0" y1="0" x2="{a * radius:.1f}" y2="{-b * radius:.1f}" stroke="{colour}" '
        f'stroke-width="3"/><text x="{a * radius + dx:.1f}" y="{-b * radius + dy:.1f}" '
        f'text-anchor="middle" style="{_TEXT}">{name}</text>'
        for a, b, colour, name, dx, dy in (arrows if place.lam else arrows[:2])
    )
    said = f"cos(h+, mimic) = {c:.2f}; the query has turned by {degrees:.0f}°"
    return (
        f'<div style="flex:0 1 220px"><svg viewBox="-110 -88 220 168" style="width:100%" '
        f'role="img" aria-label="{said}"><circle r="{radius}" fill="none" stroke="#ccc"/>'
        f"{drawn}</svg>"
        f"<small>{said}.</small></div>"
    )


def _curve(view: View, place: Place) -> str:
    """What the k best are, on average over the set, at every lambda; a dot at the place's."""
    some = view.sets[place.set]
    if list(some["means"]) == ["not judged"]:
        return ""
    lambdas, shares, found, n = view.over_lambda(place)
    (here,), (now,), _ = view.shares(place, [place.lam])
    unseen = _unseen(some["judged_at"], here[CLASSES.index("not judged")], place.k)
    left, top, width, height = 36, 8, 430, 170

    def at(lam: float, share: float) -> str:
        return f"{left + width * lam / LAM_MAX:.1f},{top + height * (1 - share):.1f}"

    bands, base, names = "", [0.0] * len(lambdas), []
    for c, name in enumerate(CLASSES):
        if not shares[:, c].any():
            continue
        above = [low + share for low, share in zip(base, shares[:, c], strict=True)]
        low = [at(lam, share) for lam, share in zip(lambdas, base, strict=True)]
        high = [at(lam, share) for lam, share in zip(lambdas, above, strict=True)]
        points = " ".join([*low, *reversed(high)])
        bands += f'<polygon points="{points}" fill="{COLOURS[name]}"/>'
        square = f'<span style="color:{COLOURS[name]}">■</span>'
        names.append(f"{square} {escape(name)}: {escape(some['means'].get(name, name))}")
        base = above
    line = " ".join(at(lam, share) for lam, share in zip(lambdas, found, strict=True))
    x, y = at(place.lam, now).split(",")
    axis = "".join(
        f'<text x="{left - 4}" y="{at(0, s).split(",")[1]}" text-anchor="end" style="{_TEXT}">'
        f"{100 * s:.0f}%</text>"
        for s in (0, 0.5, 1)
    ) + "".join(
        f'<text x="{at(lam, 0).split(",")[0]}" y="{top + height + 14}" text-anchor="middle" '
        f'style="{_TEXT}">{lam:g}</text>'
        for lam in (0, 0.5, 1, 1.5, 2)
    )
    said = (
        f"{some['title']}, {n} questions. Line and dot: a right one among the {place.k} in "
        f"{_percent(found[0])} of them at λ = 0, in {_percent(now)} at λ = {place.lam:.2f}"
    )
    if place.mimic != "own":
        said += ". One draw of another question: the results have means over several"
    return (
        f'<div style="flex:1 1 420px;min-width:0"><svg viewBox="0 0 480 200" style="width:100%" '
        f'role="img" aria-label="{escape(said)}">{bands}'
        f'<polyline points="{line}" fill="none" stroke="white" stroke-width="4"/>'
        f'<polyline points="{line}" fill="none" stroke="black" stroke-width="1.6"/>'
        f'<line x1="{x}" x2="{x}" y1="{top}" y2="{top + height}" stroke="black" '
        f'stroke-dasharray="3 3"/><circle cx="{x}" cy="{y}" r="5" fill="{_ACCENT}" '
        f'stroke="white"/>{axis}</svg><small>{escape(said)}. Bands, the share of the {place.k}: '
        f"{'; '.join(names)}.{unseen}</small></div>"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def texts(view: View, place: Place, letters: int | None = None) -> str:
    """The question, its options with the key, H+ and the mimic that is subtracted; ``letters``
    shortens the question to that."""
    question = view.question(place)
    options = "".join(
        f"<li><b>{escape(letter)}. {escape(option)} ✓ (the key)</b></li>"
        if letter == question["answer"]
        else f"<li>{escape(letter)}. {escape(option)}</li>"
        for letter, option in question["options"].items()
    )
    head, mimics = _HEADS[place.mimic], [question["mimic"]]
    if place.form == "several mimics":
        head, mimics = "Several H−", question["several"]
    elif place.mimic == "random":
        mimics = [question["random"]]
    cells = (
        (
            f"Question {question['qid']}",
            f"{escape(_short(question['text'], letters))}<ul>{options}</ul>",
        ),
        ("H+", escape(question["target"])),
        (head, "<br>".join(map(escape, mimics))),
    )
    columns = "".join(
        f'<div style="flex:1 1 240px;min-width:0"><b>{escape(head)}</b><br>'
        f"<small>{text}</small></div>"
        for head, text in cells
    )
    written = escape(view.sets[place.set]["written"])
    shown = f'<div style="{_SIDE};{_WIDE}">{columns}</div><small>{written}</small>'
    return f"<div {NO_FORMULAS}>{shown}</div>"
