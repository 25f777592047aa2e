"""The grid: what every method retrieves on every question set, and what every reader makes of it.

Each cell is one file with a manifest (``data/results/<profile>/cells/``), made once and kept while
the code, data and settings behind it hold, so a grid that was stopped goes on where it was. Among
them are hashes of the questions and passages as they were read and, where a model may still be
asked, of the replies: they are read from the recording each time, and only what it lacks is asked
for. A cell whose generations nobody recorded is NOT RUN, with the command that records them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache

import pandas as pd

from lib.base.files import canonical_json, sha256_bytes
from lib.base.provenance import make_or_reuse
from lib.data.passages import Passage
from lib.datasets import Question, sampled
from lib.llm.chat import REFERENCE, ChatModel, Reply
from lib.llm.recorder import RecordingMiss, may_ask
from lib.methods.base import Expansion, Method
from lib.query_spec import Hypotheses, SearchSpec, Text
from lib.readers import Answer, Reader
from lib.run import Retriever, execute, expand_all
from lib.studies.main_tables.controls import CONTROLS, controlled, with_drawn_strangers

RUN_COLUMNS = ("dataset", "method", "qid", "rank", "pid", "score")
EXPANDED_COLUMNS = (
    "dataset",
    "method",
    "qid",
    "error",
    "cut",
    "calls",
    "prompt_tokens",
    "output_tokens",
    "latency_s",
    "retrieval_rounds",
    "H_plus",
    "H_minus",
)
ANSWER_COLUMNS = (
    "qid",
    "gold",
    "letter",
    "rule",
    "mirage",
    "documents_cut",
    "dataset",
    "method",
    "reader",
)
"""Columns of what ``Grid.run``, ``Grid.expanded`` and ``Grid.answers`` give."""

DEPTH = 10
"""Passages kept per question, or k if that is more: readers see the first k, measures ten."""
NO_RETRIEVAL = ("closed_book", "hypotheses_as_context")
"""Arms whose context is no passage at all, and CHR's H+ and H- without any search."""
RANDOM = "random"
"""The arm whose passages are any."""
CODE = (
    "lib.studies.main_tables.cells",
    "lib.studies.main_tables.controls",
    "lib.readers",
    "lib.parse",
)
"""What makes a cell, beside its method."""
_TEXT_COLUMNS = ("qid", "pid", "letter", "error", "H_plus", "H_minus")


def content_of(things: Iterable[Question | Reply]) -> str:
    """A hash of questions or replies by what they say; not of how long a reply took."""
    said = [{k: v for k, v in vars(thing).items() if k != "latency_s"} for thing in things]
    return sha256_bytes(canonical_json(said).encode())[:16]


@dataclass
class Grid:
    """One profile's grid; every cell depends on the settings ``behind`` and the ``data`` files.

    Arms that need an LLM are run on ``asked`` questions of each set (0 = all).
    """

    profile: str
    sets: Mapping[str, Sequence[Question]]
    retriever: Retriever
    llm: ChatModel | None
    k: int
    methods: Mapping[str, Method]
    behind: Mapping[str, object]
    data: Sequence[str]
    asked: int = 0
    workers: int = 8
    alike: Sequence[Sequence[str]] = ()
    """Sets among which strangers are drawn, such as exams and yes/no questions apart; () = all."""
    missing: list[dict] = field(default_factory=list)
    """Cells that are NOT RUN: dataset, method, reader and the command that would run them."""
    _expanded: dict = field(default_factory=dict, repr=False)
    _drawn: dict = field(default_factory=dict, repr=False)

    def questions(self, arm: str, dataset: str, n: int = 0) -> Sequence[Question]:
        """The questions of a set that an arm is run on, at most ``n`` (0 = all)."""
        limits = [n, self.asked if self._is_written(arm) else 0]
        least = min((limit for limit in limits if limit), default=0)
        return sampled(self.sets[dataset], least)

    def expansions(self, arm: str, dataset: str) -> list[Expansion]:
        """What the arm searches with, for each of its questions."""
        if (arm, dataset) not in self._expanded:
            asked = self.questions(arm, dataset)
            if arm == RANDOM:
                made = [_random_passages(question) for question in asked]
            elif arm in CONTROLS:
                made = self.controlled(arm, dataset)
            else:
                method = self.methods[arm]
                made = expand_all(method, asked, self.llm, self.retriever, workers=self.workers)
            self._expanded[arm, dataset] = made
        return self._expanded[arm, dataset]

    def controlled(self, control: str, dataset: str, draw: int = 0) -> list[Expansion]:
        """CHR's expansions searched as a control says, with one draw of strangers.

        Strangers come from the questions of all sets that are ``alike``. NOT RUN (RecordingMiss)
        where a question has none.
        """
        if not self._drawn:
            for group in self.alike or [list(self.sets)]:
                pairs = {name: self._chr_pairs(name) for name in group if name in self.sets}
                self._drawn |= with_drawn_strangers(pairs)
        pairs = self._chr_pairs(dataset)
        for qid, expansion in pairs:
            if expansion.request is not None and not self._drawn[qid].of("mimic", "stranger"):  # type: ignore[attr-defined]
                raise RecordingMiss(
                    f"no other question has a mimic for {qid}. Next: ask more questions"
                )
        return controlled(control, pairs, self._drawn, draw)

    def _chr_pairs(self, dataset: str) -> list[tuple[str, Expansion]]:
        qids = [question.qid for question in self.questions("chr", dataset)]
        return list(zip(qids, self.expansions("chr", dataset), strict=True))

    def run(self, arm: str, dataset: str) -> pd.DataFrame | None:
        """dataset, method, qid, rank, pid, score: ``DEPTH`` or k rows a question, None if NOT RUN.

        A question for which nothing was retrieved has one row of rank 0, without a passage.
        """

        def make() -> pd.DataFrame:
            questions = self.questions(arm, dataset)
            made = self.expansions(arm, dataset)
            found, _ = execute(arm, questions, made, self.retriever, max(DEPTH, self.k))
            none = sorted({q.qid for q in questions}.difference(found["qid"]))
            empty = {"method": arm, "qid": none, "rank": 0, "pid": "", "score": 0.0}
            table = pd.concat([found, pd.DataFrame(empty)], ignore_index=True)
            return table.assign(dataset=dataset)[["dataset", *found.columns]]

        return self._cell(make, arm, dataset, "")

    def expanded(self, arm: str, dataset: str) -> pd.DataFrame | None:
        """One row a question of what an expansion said and cost, or None if NOT RUN.

        dataset, method, qid, error, cut, calls, prompt_tokens, output_tokens, latency_s (missing
        where they were not measured, as for reference text), retrieval_rounds (the last search is
        one), H_plus, H_minus (empty for other methods).
        """

        def make() -> pd.DataFrame:
            rows = []
            asked = self.questions(arm, dataset)
            for question, expansion in zip(asked, self.expansions(arm, dataset), strict=True):
                trace = expansion.trace
                last_search = float(expansion.request is not None)
                rows.append(
                    {
                        "dataset": dataset,
                        "method": arm,
                        "qid": question.qid,
                        "error": trace.get("error", ""),
                        "cut": int(trace.get("cut", 0)),
                        **_cost(trace.get("replies", ())),
                        "retrieval_rounds": trace.get("searches", 0) + last_search,
                        "H_plus": trace.get("H_plus", ""),
                        "H_minus": trace.get("H_minus", ""),
                    }
                )
            return pd.DataFrame(rows)

        return self._cell(make, arm, dataset, "expanded")

    def answers(self, arm: str, dataset: str, reader: Reader, n: int = 0) -> pd.DataFrame | None:
        """dataset, method, reader, qid, gold, letter, rule, mirage, documents_cut; None if NOT RUN.

        ``n`` questions are read, all if 0. Readers without an LLM have no closed book.
        """
        if arm == "closed_book" and not reader.needs_llm:
            return None
        questions = self.questions(arm, dataset, n)

        @cache
        def answered() -> list[Answer]:
            return reader.answer_all(questions, self.contexts(arm, dataset, questions))

        def make() -> pd.DataFrame:
            answers = answered()
            columns = ["qid", "letter", "rule", "mirage", "documents_cut"]
            rows = [[getattr(answer, column) for column in columns] for answer in answers]
            table = pd.DataFrame(rows, columns=columns)
            table.insert(1, "gold", [q.answer for q in questions])
            return table.assign(dataset=dataset, method=arm, reader=reader.name)

        heard = answered if may_ask(getattr(reader, "llm", None)) else tuple
        return self._cell(make, arm, dataset, reader.name, heard, n=n, reader=_settings(reader))

    def contexts(self, arm: str, dataset: str, questions: Sequence[Question]) -> list[list]:
        """The k passages that each of the questions is answered from, best first."""
        if arm == "closed_book":
            return [[] for _ in questions]
        if arm == "hypotheses_as_context":
            expansions = dict(self._chr_pairs(dataset))
            return [_hypotheses_as_passages(expansions[question.qid]) for question in questions]
        run = self.run(arm, dataset)
        if run is None:
            for cell in self.missing:
                if (cell["dataset"], cell["method"], cell["reader"]) == (dataset, arm, ""):
                    raise RecordingMiss(cell["how"])
        top = run[run["rank"].between(1, self.k)]
        pids = {qid: rows["pid"].tolist() for qid, rows in top.groupby("qid")}
        return [self.retriever.store.get_many(pids.get(q.qid, [])) for q in questions]

    def _everyone_behind(self, arm: str, dataset: str) -> list[Question]:
        """The questions that a cell's values depend on: strangers come from all sets."""
        sets = list(self.sets) if arm in CONTROLS else [dataset]
        return [question for name in sets for question in self.questions(arm, name)]

    def _replies(self, arm: str, dataset: str) -> list[Reply]:
        """The replies behind a cell where a model may still be asked: those of its expansions."""
        if not may_ask(self.llm) or not self._is_written(arm):
            return []
        sets = list(self.sets) if arm in CONTROLS else [dataset]
        written = arm if arm in self.methods else "chr"
        made = [one for name in sets for one in self.expansions(written, name)]
        return [reply for expansion in made for reply in expansion.trace.get("replies", ())]

    def _is_written(self, arm: str) -> bool:
        """Whether an LLM expands an arm: one that is no method is a control of CHR, or has no
        expansion at all."""
        method = self.methods.get(arm)
        return arm not in (RANDOM, "closed_book") if method is None else method.needs_llm

    def _cell(
        self,
        make: Callable[[], pd.DataFrame],
        arm: str,
        dataset: str,
        kind: str,
        heard: Callable[[], Sequence[Answer]] = tuple,
        **more,
    ) -> pd.DataFrame | None:
        """A cell from its file or made; ``heard`` are answers whose replies it depends on."""
        author = getattr(self.llm, "name", REFERENCE)
        parts = (dataset, arm, kind, "" if author == REFERENCE else author)
        name = " ".join(filter(None, parts)).replace(" ", "-").replace("'", "").replace("/", "-")
        method = self.methods.get(arm) or self.methods.get("chr")
        settings = {
            **self.behind,
            **more,
            "k": self.k,
            "arm": arm,
            "llm": getattr(self.llm, "name", ""),
            "method": _settings(method) if method else "",
            "questions": content_of(self._everyone_behind(arm, dataset)),
        }
        try:
            replies = self._replies(arm, dataset)
            replies += [reply for answer in heard() for reply in answer.replies]
            if replies:
                settings["replies"] = content_of(replies)
            table = make_or_reuse(
                make,
                f"cells/{name}",
                self.profile,
                code=[*CODE, *_written_by(method)],
                data=self.data,
                **settings,
            )
        except RecordingMiss as miss:
            how = str(miss).rsplit("Next: ", 1)[-1]
            if self.behind.get("limit"):
                # Texts and labels are those that the whole profile's passages called for.
                how = "the same command without LIMIT"
            row = {"dataset": dataset, "method": arm, "reader": kind, "how": how}
            if row not in self.missing:
                self.missing.append(row)
            return None
        return table.fillna(dict.fromkeys(_TEXT_COLUMNS, ""))


def _hypotheses_as_passages(expansion: Expansion) -> list[Passage]:
    """H+ and H- as if they had been retrieved; none of a failed expansion."""
    passages = []
    for name in ("H_plus", "H_minus"):
        text = expansion.trace.get(name)
        if text:
            passages.append(Passage(name, "", text, "hypothesis", {}))
    return passages


def _random_passages(question: Question) -> Expansion:
    text = Text(question.text, 1.0, "query", "question")
    return Expansion(Hypotheses((text,), SearchSpec(form="random"), qid=question.qid))


def _cost(replies: Sequence[Reply]) -> dict[str, float]:
    """Requests, tokens and seconds of one expansion; NaN where one reply was not measured."""
    cost = {"calls": float(sum(reply.choice == 0 for reply in replies))}
    for name in ("prompt_tokens", "output_tokens", "latency_s"):
        of_replies = [getattr(reply, name) for reply in replies]
        cost[name] = float("nan") if None in of_replies else float(sum(of_replies))
    return cost


def _written_by(method: Method | None) -> list[str]:
    """The module of a method, which every cell of it depends on."""
    return [type(method).__module__] if method is not None else []


def _settings(thing: Method | Reader) -> dict:
    """What a method or reader is set to: its kind and fields."""
    settings = {"kind": type(thing).__name__}
    for field_ in fields(thing):
        if field_.repr:
            settings[field_.name] = _setting(getattr(thing, field_.name))
    return settings


def _setting(value: object) -> object:
    """A setting as a manifest holds it: an encoder by its fingerprint, an LLM by its name."""
    if isinstance(value, (str, int, float, bool, type(None))):
        return value
    name = value.name if hasattr(value, "generate") else repr(value)  # type: ignore[attr-defined]
    return getattr(value, "fingerprint", name)
