"""The score rows behind the explorer: made of a set of questions, kept as files, looked into.

The passages of a question are those that stand among its ten best at some lambda in [0, 2] under
some form and mimic, and no others are needed: ``check_rows`` compares the order with that of lib/
over the whole corpus. From them follows what the explorer shows, exactly, for any lambda.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from lib.base import paths
from lib.base.files import (
    StaleInput,
    atomic_write,
    canonical_json,
    read_jsonl,
    read_manifest,
    write_manifest,
)
from lib.data.passages import Passage
from lib.explorer.lines import (
    CHOICES,
    COLUMNS,
    LAM_MAX,
    NEEDS,
    SEVERAL,
    Form,
    Mimic,
    breakpoints,
    candidates,
    lines_of,
    order_at,
    way_of,
)
from lib.query_spec import Hypotheses
from lib.run import RetrievalFailure, Retriever
from lib.search.contrast import cosine, rotation
from lib.search.index import DenseIndex

DEPTH = 10
"""The rows hold the exact top this deep."""

CHECKED = tuple(i / 10 for i in range(21))
"""The lambdas at which the order is compared with that of lib/."""

CLASSES = ("right", "both", "wrong", "on topic", "neither", "not judged")
"""What a passage is for a question; what that means in a set is in ``QuestionSet.means``."""

GOOD = ("right", "both")
"""Classes that count as found: P@k of ddx and BioASQ, support for the right option on exams."""

RECORD = np.dtype([("passage", "<i4"), ("class", "u1"), ("score", "<f4", (len(COLUMNS),))])
"""One record: the place of the passage in ``passages.jsonl.gz``, of its class in ``CLASSES``, and
its cosines (``COLUMNS``)."""

EXCERPT = 280
"""Characters of a passage that are kept: enough to see what it is about."""

_TITLES_ONLY = ("openstax:anatomy-and-physiology", "openstax:microbiology")
"""Passages whose licence asks more than a line of credit (CC BY-NC-SA): title and link alone."""

FOLDER = paths.DATA / "explorer"
FILES = ("scores.npy", "questions.jsonl.gz", "passages.jsonl.gz")
"""One record a question and passage (``RECORD``); the sets, then a line a question; a line a
passage, in the order of their ids."""


@dataclass(frozen=True)
class Explored:
    """Everything the explorer shows: sets, questions (with the place of their records), passages
    in the order of their ids."""

    sets: Sequence[Mapping]
    questions: Sequence[Mapping]
    passages: Sequence[Mapping]
    records: np.ndarray

    def of(self, name: str) -> list[Mapping]:
        """The questions of a set, in order."""
        return [question for question in self.questions if question["set"] == name]

    def records_of(self, question: Mapping) -> np.ndarray:
        """The records of a question."""
        return self.records[question["start"] : question["start"] + question["length"]]

    def choices_of(self, question: Mapping) -> list[tuple[Form, Mimic]]:
        """The pairs of form and mimic that this question has texts for."""
        known = ~np.isnan(self.records_of(question)["score"]).all(axis=0)
        there = {column for column, is_known in zip(COLUMNS, known, strict=True) if is_known}
        return [choice for choice in CHOICES if there.issuperset(NEEDS[choice])]

    def lines(self, question: Mapping, form: Form, mimic: Mimic) -> tuple[np.ndarray, np.ndarray]:
        """Height and slope of each record of a question (see ``lines_of``)."""
        scores = self.records_of(question)["score"]
        return lines_of(scores, form, mimic, question["c_own"], question["c_random"])


# files -------------------------------------------------------------------------------------------


def write_rows(explored: Explored, settings: Mapping) -> None:
    """Write the three files, each whole, with a manifest that holds ``settings``."""
    buffer = io.BytesIO()
    np.save(buffer, explored.records, allow_pickle=False)
    asked = [{"sets": list(explored.sets)}, *explored.questions]
    contents = (
        (buffer.getvalue(), len(explored.records)),
        (_gzipped(asked), len(explored.questions)),
        (_gzipped(explored.passages), len(explored.passages)),
    )
    for name, (content, rows) in zip(FILES, contents, strict=True):
        atomic_write(FOLDER / name, content)
        write_manifest(FOLDER / name, rows=rows, settings=dict(settings))


def _gzipped(rows: Iterable[Mapping]) -> bytes:
    text = "".join(canonical_json(row) + "\n" for row in rows)
    return gzip.compress(text.encode(), mtime=0)


def read_rows() -> Explored:
    """What is committed; StaleInput, with the command that makes it, where a file is not whole."""
    broken = [paths.shown(FOLDER / name) for name in FILES if read_manifest(FOLDER / name) is None]
    if broken:
        raise StaleInput(
            f"{', '.join(broken)}: missing, or not what the manifest says; run: git checkout "
            "data/explorer, or with the open data: make explorer"
        )
    scores, asked, texts = (FOLDER / name for name in FILES)
    head, *questions = read_jsonl(asked)
    records = np.load(scores, allow_pickle=False)
    return Explored(head["sets"], questions, list(read_jsonl(texts)), records)


# making ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class QuestionSet:
    """A set of questions with what is searched: its hypotheses by id, in order, and a retriever.

    ``shown`` has what a reader sees of each question (text, options, answer); ``class_of`` says
    what a passage is for a question, ``means`` what each class is in this set; ``written`` says
    whose texts H+ and the mimics are. ``judged_at`` are the lambdas at which the top fives were
    judged, where judging was by lambda; ``dev`` is the lambda that dev questions chose for plain
    contrast, None where none chose.
    """

    name: str
    title: str
    retriever: Retriever
    hypotheses: Mapping[str, Hypotheses]
    shown: Mapping[str, Mapping]
    class_of: Callable[[str, str], str]
    means: Mapping[str, str]
    written: str = ""
    judged_at: tuple[float, ...] = ()
    dev: float | None = None

    def described(self) -> dict:
        """What is kept of the set itself."""
        return {
            "name": self.name,
            "title": self.title,
            "means": dict(self.means),
            "written": self.written,
            "judged_at": list(self.judged_at),
            "dev": self.dev,
        }


Rows = list[tuple[str, str, np.ndarray]]
"""Of one question: passage id, class and scores (columns,) of each passage that is needed."""


def rows_of(questions: QuestionSet) -> tuple[list[dict], list[Rows]]:
    """The questions of a set as they are kept, and the rows of each."""
    index = questions.retriever.index
    vectors = index.vectors(np.arange(len(index.ids)))
    kept, found = [], []
    for qid, hypotheses in questions.hypotheses.items():
        texts = _texts(hypotheses)
        embedded = _embedded(texts, questions.retriever)
        cosines = {"c_own": None, "c_random": None}
        for column in ("own", "random"):
            if column in embedded:
                pair = embedded["plus"][:1], embedded[column][:1]
                cosines[f"c_{column}"] = float(cosine(*pair)[0])
        places = _needed(embedded, cosines, vectors, hypotheses, index)
        scores = np.full((len(places), len(COLUMNS)), np.nan)
        for column, rows in embedded.items():
            # In double precision, as lib/ scores the passages it has found.
            scores[:, COLUMNS.index(column)] = index.score(rows, places).max(axis=0)
        pids = index.ids[places].tolist()
        classes = [questions.class_of(qid, pid) for pid in pids]
        found.append(list(zip(pids, classes, scores, strict=True)))
        first = {column: group[0].text if group else "" for column, group in texts.items()}
        said = {
            "target": first["plus"],
            "mimic": first["own"],
            "random": first["random"],
            "several": [text.text for text in texts["several"]],
        }
        kept.append({"set": questions.name, "qid": qid, **questions.shown[qid], **said, **cosines})
    return kept, found


def _texts(hypotheses: Hypotheses) -> dict[str, tuple]:
    """The texts behind each column."""
    return {
        "plus": hypotheses.of("target")[:1],
        "own": hypotheses.of("mimic")[:1],
        "question": hypotheses.of("question")[:1],
        "random": hypotheses.of("mimic", "stranger")[:1],
        "several": hypotheses.of("mimic", SEVERAL),
    }


def _embedded(texts: Mapping[str, tuple], retriever: Retriever) -> dict[str, np.ndarray]:
    """The vectors (texts, d) behind each column that there are texts for."""
    known = retriever.vectors(text for group in texts.values() for text in group)
    return {
        column: np.stack([known[text.tower, text.text] for text in group])
        for column, group in texts.items()
        if group
    }


def _needed(
    embedded: Mapping[str, np.ndarray],
    cosines: Mapping[str, float | None],
    vectors: np.ndarray,
    hypotheses: Hypotheses,
    index: DenseIndex,
) -> np.ndarray:
    """Rows of the passages that are needed for one question, in the order of H+ alone, which is
    what most readers look at first."""
    scores = np.full((len(vectors), len(COLUMNS)), np.nan)
    for column, rows in embedded.items():
        scores[:, COLUMNS.index(column)] = (vectors @ rows.T).max(axis=1)
    scores[~index.kept] = np.nan
    scores[np.isin(index.ids, list(hypotheses.excluded))] = np.nan
    chosen = np.zeros(len(vectors), dtype=bool)
    for (form, mimic), needs in NEEDS.items():
        if embedded.keys() >= set(needs):
            height, slope = lines_of(scores, form, mimic, cosines["c_own"], cosines["c_random"])
            chosen[candidates(height, slope, DEPTH)] = True
    # Without a mimic nothing is subtracted: the best by H+ are all that is needed.
    chosen[order_at(scores[:, 0], np.zeros(len(vectors)), 0.0, DEPTH, index.ranks)] = True
    places = np.flatnonzero(chosen & ~np.isnan(scores[:, 0]))
    return places[np.lexsort((index.ranks[places], -scores[places, 0]))]


def shown_passage(passage: Passage) -> dict:
    """What is kept of a passage: title, how it begins where its licence permits, source, link."""
    only_title = passage.pid.startswith(_TITLES_ONLY)
    source, _, rest = passage.pid.partition(":")
    link = passage.meta.get("url", "")
    if passage.meta.get("pmids"):
        link = f"https://pubmed.ncbi.nlm.nih.gov/{passage.meta['pmids'][0]}/"
    if source == "openstax":
        link = f"https://openstax.org/details/books/{rest.partition('/')[0]}"
    return {
        "title": passage.title,
        "text": begins(passage.text, 0 if only_title else EXCERPT),
        "source": source if rest else "ddx-mini",
        "link": link,
    }


def begins(text: str, letters: int) -> str:
    """How a text begins: at most so many letters, of whole words, then "…"; nothing for 0."""
    if len(text) <= letters:
        return text
    return text[:letters].rsplit(" ", 1)[0] + " …" if letters else ""


def put_together(
    sets: Iterable[tuple[QuestionSet, list[dict], list[Rows]]],
    shown: Callable[[str], Mapping],
) -> Explored:
    """Several sets as one: every passage once, in the order of its id, as ``shown`` gives it."""
    sets = list(sets)
    pids = sorted({pid for _, _, found in sets for rows in found for pid, _, _ in rows})
    place = {pid: i for i, pid in enumerate(pids)}
    questions, records = [], []
    for _, kept, found in sets:
        for question, rows in zip(kept, found, strict=True):
            questions.append(question | {"start": len(records), "length": len(rows)})
            records += [(place[pid], CLASSES.index(name), score) for pid, name, score in rows]
    passages = [{"pid": pid} | dict(shown(pid)) for pid in pids]
    described = [questions.described() for questions, _, _ in sets]
    return Explored(described, questions, passages, np.array(records, RECORD))


def check_rows(questions: QuestionSet, explored: Explored) -> dict[str, int]:
    """The order of every question under every form and mimic at the lambdas ``CHECKED``, compared
    with what lib/ finds in the whole corpus: how many were ``compared``, how many ``differ``.

    Passages whose scores lib/ rounds to neighbouring steps of 1e-5 may change places: those lists
    are counted as ``tied``, and are no difference.
    """
    counts = {"compared": 0, "tied": 0, "differ": 0}
    pids = np.array([passage["pid"] for passage in explored.passages])
    for form, mimic in CHOICES:
        asked = [q for q in explored.of(questions.name) if (form, mimic) in explored.choices_of(q)]
        for lam in CHECKED:
            spec = vars(way_of(form, mimic, lam))
            requests = [questions.hypotheses[q["qid"]].by(**spec) for q in asked]
            found = questions.retriever.search_many(requests, DEPTH)
            for question, hits in zip(asked, found, strict=True):
                if isinstance(hits, RetrievalFailure):
                    continue
                places = explored.records_of(question)["passage"]
                height, slope = explored.lines(question, form, mimic)
                top = order_at(height, slope, lam, DEPTH, places)
                counts["compared"] += 1
                if pids[places[top]].tolist() != hits.ids[0].tolist():
                    score = (height - lam * slope)[top]
                    near = np.abs(score - hits.scores[0]).max() < 2e-5
                    counts["tied" if near else "differ"] += 1
    return counts


# looking -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """Where a reader is: a question of a set, a form, a mimic, a lambda and how many passages."""

    set: str
    qid: str
    form: Form = "one mimic"
    mimic: Mimic = "own"
    lam: float = 1.0
    k: int = 5


@dataclass(frozen=True)
class Seen:
    """One ranked list. ``records`` are places among the question's records, best first; ``scores``
    are S(d), ``classes`` names of ``CLASSES``; ``passages`` as they are kept."""

    records: Sequence[int]
    scores: Sequence[float]
    classes: Sequence[str]
    passages: Sequence[Mapping]


@dataclass
class View:
    """What the explorer shows of its rows: one question at one lambda, a whole set over lambda.

    What is worked out for a whole set is kept.
    """

    explored: Explored
    _padded: dict = field(default_factory=dict, repr=False)
    _over: dict = field(default_factory=dict, repr=False)

    @cached_property
    def sets(self) -> dict[str, Mapping]:
        """The sets by name, in order."""
        return {described["name"]: described for described in self.explored.sets}

    @cached_property
    def questions(self) -> dict[tuple[str, str], Mapping]:
        """The questions by set and id, in order."""
        return {(q["set"], q["qid"]): q for q in self.explored.questions}

    def start(self, name: str, **changes) -> Place:
        """A set's median question at the paper's lambda, 1."""
        return replace(Place(name, median_question(self, name)), **changes)

    def question(self, place: Place) -> Mapping:
        """The question of a place; KeyError where there is none."""
        return self.questions[place.set, place.qid]

    def lines(self, place: Place) -> tuple[np.ndarray, np.ndarray]:
        """Height and slope of each record of a place's question."""
        return self.explored.lines(self.question(place), place.form, place.mimic)

    def list_at(self, place: Place, lam: float | None = None) -> Seen:
        """The k best at the place's lambda, or at another.

        ValueError for a k above ``DEPTH`` or a lambda outside [0, 2]: the rows hold no more.
        """
        at = place.lam if lam is None else lam
        if not 1 <= place.k <= DEPTH:
            raise ValueError(f"k is {place.k}: the rows hold the exact top {DEPTH} and no more")
        if not 0 <= at <= LAM_MAX:
            raise ValueError(f"lambda is {at}: the rows hold the order from 0 to {LAM_MAX:g}")
        records = self.explored.records_of(self.question(place))
        height, slope = self.lines(place)
        top = order_at(height, slope, at, place.k, records["passage"])
        return Seen(
            top.tolist(),
            (height - at * slope)[top].tolist(),
            [CLASSES[i] for i in records["class"][top]],
            [self.explored.passages[i] for i in records["passage"][top]],
        )

    def rights(self, place: Place, lambdas: Sequence[float]) -> list[int]:
        """How many of the k best are of ``GOOD``, at each lambda."""
        lists = (self.list_at(place, lam) for lam in lambdas)
        return [sum(name in GOOD for name in seen.classes) for seen in lists]

    def changes(self, place: Place) -> list[float]:
        """Every lambda at which the set of the k best changes, exactly, in order."""
        return breakpoints(*self.lines(place), place.k)

    def turn(self, place: Place) -> tuple[float, float] | None:
        """cos(h+, h-) and the degrees by which the query has turned; None where it is no single
        vector in their plane: with the question added, or with several mimics."""
        if place.form != "one mimic":
            return None
        question = self.question(place)
        c = question["c_random" if place.mimic == "random" else "c_own"]
        return c, float(rotation(c, place.lam))

    def shares(self, place: Place, lambdas: Sequence[float]) -> tuple[np.ndarray, np.ndarray, int]:
        """Of all questions of the set under the place's form and mimic, at each lambda: the mean
        share of each class among the k best, (lambdas, classes); the share of questions with a
        passage of ``GOOD`` among them, (lambdas,); and how many questions there are.

        A question without texts for this form is left out.
        """
        height, slope, classes, passages = self._set(place)
        shares = np.zeros((len(lambdas), len(CLASSES)))
        found = np.zeros(len(lambdas))
        good = [CLASSES.index(name) for name in GOOD]
        for i, lam in enumerate(lambdas):
            top = order_at(height, slope, float(lam), place.k, passages)
            of_top = np.take_along_axis(classes, top, axis=1)
            shares[i] = [(of_top == c).mean() for c in range(len(CLASSES))]
            found[i] = np.isin(of_top, good).any(axis=1).mean()
        return shares, found, len(height)

    def over_lambda(self, place: Place) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
        """Lambdas from 0 to 2 and ``shares`` there; worked out once for each set and form."""
        key = place.set, place.form, place.mimic, place.k
        if key not in self._over:
            lambdas = np.linspace(0, LAM_MAX, 41)
            self._over[key] = (lambdas, *self.shares(place, lambdas))
        return self._over[key]

    def _set(self, place: Place) -> tuple[np.ndarray, ...]:
        """Heights, slopes, classes and passages of a set, each (questions, most passages)."""
        choice = place.form, place.mimic
        if (place.set, choice) not in self._padded:
            questions = self.explored.of(place.set)
            asked = [q for q in questions if choice in self.explored.choices_of(q)]
            if not asked:
                raise ValueError(f"{place.set} has no texts for {place.form}, {place.mimic}")
            shape = len(asked), max(q["length"] for q in asked)
            height, slope = np.full(shape, np.nan), np.zeros(shape)
            classes, passages = np.full(shape, -1), np.zeros(shape, np.int64)
            for row, question in enumerate(asked):
                here = slice(0, question["length"])
                records = self.explored.records_of(question)
                height[row, here], slope[row, here] = self.explored.lines(question, *choice)
                classes[row, here] = records["class"]
                passages[row, here] = records["passage"]
            self._padded[place.set, choice] = height, slope, classes, passages
        return self._padded[place.set, choice]


def median_question(view: View, name: str, k: int = 5) -> str:
    """The question of a set that is shown first, by a rule that looks at nothing else.

    Of the questions for which H+ alone has a passage of ``GOOD`` among its k best, in the order of
    how many such passages are lost at lambda 1, then of how many there were, then of their ids: the
    one in the middle. Where H+ alone finds none for any question, the first question.
    """
    questions = view.explored.of(name)
    ordered = []
    for question in questions:
        if ("one mimic", "own") not in view.explored.choices_of(question):
            continue
        before, after = view.rights(Place(name, question["qid"], k=k), (0.0, 1.0))
        if before:
            ordered.append((after - before, before, question["qid"]))
    if not ordered:
        return questions[0]["qid"]
    return sorted(ordered)[(len(ordered) - 1) // 2][2]
