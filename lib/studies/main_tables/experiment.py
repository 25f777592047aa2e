# mypy: disable-error-code="attr-defined"
"""A profile's experiment: what every arm retrieves, and what every reader makes of it.

It is a grid. Each cell is one file with a manifest (``data/results/<profile>/cells/``), made once
and kept while the code, data and settings behind it hold, so a run that was stopped goes on where
it was. Among the settings are hashes of the questions as they were read and, where a model may
still be asked, of its replies: they are read from the recording each time, and only what it lacks
is asked for. A cell whose generations nobody recorded is NOT RUN, with the command that records
them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property, partial
from itertools import product

import pandas as pd

from lib import index_build
from lib.base import paths
from lib.base.downloads import load_registry
from lib.base.files import canonical_json, sha256_bytes, sha256_file
from lib.base.provenance import make_or_reuse, write_result
from lib.benchmarks import load_benchmark
from lib.benchmarks.base import Benchmark
from lib.corpora import load_passages
from lib.data.looks import Look, note_look
from lib.data.passages import Passage
from lib.data.store import PassageStore
from lib.datasets import GROUPS, Question, question_sets
from lib.embed import load_encoder
from lib.expansion import execute, expand_all
from lib.forms import read_qrels, write_qrels, write_trec_run
from lib.limit import LABELLED_IN
from lib.llm.chat import REFERENCE, ChatModel, Reply
from lib.llm.connect import connect
from lib.llm.recorder import RecordingMiss, may_ask
from lib.methods import SHIPPED
from lib.methods.base import Budget, Expansion, Method, asked_once, code_of
from lib.model_files import ModelMissing
from lib.open_retriever import open_retriever
from lib.profiles import Profile, methods_of
from lib.query_spec import DRAWS, Hypotheses, Request, SearchSpec, Text, with_random_mimics
from lib.readers import Answer, EvidenceReader, Reader, load_reader
from lib.run import Retriever
from lib.stats import METRICS, gains, long_values, measure, summary
from lib.study import Arm, Found, mean_of_draws, search_arm

CONTROLS: dict[str, dict] = {
    "chr+stranger": {"mimic": "stranger"},
    "chr+rotation": {"rotation": True},
}
"""Controls of CHR by name, and how their search differs: h- is replaced by a random mimic (another
question's), or by that mimic rotated until its cosine with h+ equals that of the right mimic. Add a
control: one line here."""
CHOSEN = "chr_given"
"""CHR at the reader's lambda, beside the paper's lambda = 1 ("chr")."""
NAMED = "named_option"
"""The row of Table 1 without a reader: the answer is the option that H+ names."""
HYPOTHESES = "hypotheses_as_context"
NO_RETRIEVAL = ("closed_book", HYPOTHESES)
"""Arms whose context is no passage at all, and CHR's H+ and H- without any search."""
RANDOM = "random"
"""The arm of random passages."""
DEPTH = 10
"""Passages kept per question, or k if that is more: readers see the first k, measures ten."""

RUN_COLUMNS = ["dataset", "method", "qid", "rank", "pid", "score"]
EXPANDED_COLUMNS = ["dataset", "method", "qid", "error", "retrieval_rounds"]
EXPANDED_COLUMNS += ["calls", "prompt_tokens", "output_tokens", "latency_s"]
_ANSWER = ["qid", "letter", "rule", "mirage", "documents_cut"]
ANSWER_COLUMNS = ["qid", "gold", *_ANSWER[1:], "dataset", "method", "reader"]

_CODE = ["lib.studies.main_tables.experiment", "lib.readers", "lib.parse"]
"""What makes a cell, beside its method."""
_TEXT_COLUMNS = ("qid", "pid", "letter")

Judged = Mapping[str, Collection[str]]
"""Passage ids by question id, or their grades by id."""


@dataclass
class Experiment:
    """One profile's grid; every cell depends on the settings ``behind`` and the ``data`` files."""

    profile: Profile
    sets: Mapping[str, Sequence[Question]]
    retriever: Retriever
    llm: ChatModel | None
    methods: Mapping[str, Method]
    readers: Sequence[Reader] = ()
    lam: float = 0.4
    behind: Mapping[str, object] = field(default_factory=dict)
    data: Sequence[str] = ()
    missing: dict[tuple[str, str, str], str] = field(default_factory=dict)
    """The command that would run what is NOT RUN, by set, arm and what of it."""
    _expanded: dict = field(default_factory=dict, repr=False)

    @property
    def k(self) -> int:
        """Passages that a reader sees."""
        return self.profile.k

    @property
    def depth(self) -> int:
        """Passages that a search keeps."""
        return max(DEPTH, self.k)

    @property
    def answerable(self) -> dict[str, list[Question]]:
        """The questions of each set that have options and an answer."""
        return {name: [q for q in asked if q.right] for name, asked in self.sets.items()}

    @property
    def searched(self) -> list[str]:
        """Every arm that retrieves: the methods, the controls of contrast, random passages."""
        return [*self.methods, *CONTROLS, RANDOM]

    @property
    def own(self) -> list[str]:
        """The methods that a reader has added."""
        return [name for name in self.methods if name not in (*SHIPPED, CHOSEN)]

    @property
    def arms(self) -> list[str]:
        """Every row of Table 1: also what is answered without retrieval."""
        return [*self.searched, *NO_RETRIEVAL]

    def method_of(self, arm: str) -> Method | None:
        """The method whose texts an arm searches with, or answers from: CHR for its controls, None
        where nothing is written."""
        of_chr = (*CONTROLS, NAMED, HYPOTHESES)
        return self.methods.get("chr" if arm in of_chr else arm)

    @property
    def visible(self) -> dict[str, bool]:
        """Whether an arm's texts were written seeing the options; only for arms that have texts."""
        methods = {arm: self.method_of(arm) for arm in (*self.arms, NAMED)}
        return {arm: method.options_visible for arm, method in methods.items() if method}

    # what an arm searches with -------------------------------------------------------------------

    def expansions(self, arm: str, dataset: str) -> list[Expansion]:
        """What the arm searches with, for each of its questions. RecordingMiss if NOT RUN."""
        if arm == HYPOTHESES:
            arm = "chr"
        if (arm, dataset) not in self._expanded:
            if arm == RANDOM:
                made = [_random_passages(question) for question in self.sets[dataset]]
            elif arm in CONTROLS:
                made = self._controlled(arm, dataset)
            else:
                made = self.expand(arm, self.sets[dataset], self.llm)
            self._expanded[arm, dataset] = made
        return self._expanded[arm, dataset]

    def expand(
        self, name: str, questions: Sequence[Question], llm: ChatModel | None
    ) -> list[Expansion]:
        """A method's expansions of some questions, written by ``llm``."""
        return self._expand(self.methods[name], questions, llm)

    def _expand(
        self, method: Method, questions: Sequence[Question], llm: ChatModel | None
    ) -> list[Expansion]:
        return expand_all(method, questions, llm, self.retriever, workers=self.profile.workers)

    def requests(self, arm: str, dataset: str) -> dict[str, Request | None]:
        """What the arm searches with by question id, None where its expansion failed."""
        pairs = zip(self.sets[dataset], self.expansions(arm, dataset), strict=True)
        return {question.qid: expansion.request for question, expansion in pairs}

    def _controlled(self, control: str, dataset: str) -> list[Expansion]:
        """CHR's expansions searched as a control says. NOT RUN where a question has no control."""
        made = []
        for expansion in self.expansions("chr", dataset):
            if expansion.request is not None:
                request = self._with_random_mimics[expansion.request.qid]
                if not request.of("mimic", "stranger"):
                    raise RecordingMiss(
                        f"no other question has a mimic for {request.qid}. Next: ask more questions"
                    )
                expansion = replace(expansion, request=request.by(**CONTROLS[control]))
            made.append(expansion)
        return made

    @cached_property
    def _with_random_mimics(self) -> dict[str, Hypotheses]:
        """CHR's requests with random mimics: those of all sets, of real ones those that are
        measured together."""
        groups = GROUPS.values() if "real" in self.profile.questions else [tuple(self.sets)]
        found = {}
        for group in groups:
            written: dict = {}
            for dataset in (name for name in group if name in self.sets):
                written |= self.requests("chr", dataset)
            pairs = {qid: request for qid, request in written.items() if request is not None}
            found |= with_random_mimics(pairs, DRAWS)
        return found

    def search(
        self,
        arm: str,
        dataset: str,
        changed: Callable[[Request, int], Request | None],
        depth: int,
        draws: int = 1,
    ) -> list[Found]:
        """What an arm finds, ``depth`` passages a question, by draw, when each of its requests is
        ``changed(request, draw)``."""
        requests = self.requests(arm, dataset)

        def request(qid: str, draw: int) -> Request | None:
            before = requests[qid]
            return None if before is None else changed(before, draw)

        return search_arm(Arm(arm, request, draws), requests, self.retriever, depth)

    def found_at(self, lam: float, name: str, dataset: str) -> Found:
        """The first k passages that a method finds when its lambda is ``lam``, by question id."""
        questions, method = self.sets[dataset], replace(self.methods[name], lam=lam)
        made = self._expand(method, questions, self.llm)
        run, _ = execute(name, questions, made, self.retriever, self.k)
        return ids_by_question(run)

    # cells ---------------------------------------------------------------------------------------

    def run_of(self, arm: str, dataset: str) -> pd.DataFrame | None:
        """``RUN_COLUMNS``: ``depth`` rows a question, None if NOT RUN.

        A question for which nothing was retrieved has one row of rank 0, without a passage.
        """

        def make() -> pd.DataFrame:
            questions, expansions = self.sets[dataset], self.expansions(arm, dataset)
            found, _ = execute(arm, questions, expansions, self.retriever, self.depth)
            none = sorted({q.qid for q in questions}.difference(found["qid"]))
            empty = {"method": arm, "qid": none, "rank": 0, "pid": "", "score": 0.0}
            table = pd.concat([found, pd.DataFrame(empty)], ignore_index=True)
            return table.assign(dataset=dataset)[RUN_COLUMNS]

        return self._cell(make, arm, dataset)

    def found(self, arm: str, dataset: str) -> Found:
        """What an arm found by question id, from its run; empty if it is NOT RUN."""
        run = self.run_of(arm, dataset)
        return {} if run is None else ids_by_question(run)

    def answers_of(self, arm: str, dataset: str, reader: Reader) -> pd.DataFrame | None:
        """``ANSWER_COLUMNS``: a reader's answers, a row a question; None if NOT RUN.

        Readers without an LLM have no closed book, and questions without an answer no row.
        """
        questions = self.answerable[dataset]
        if not questions or (arm == "closed_book" and not reader.needs_llm):
            return None

        @cache
        def answered() -> list[Answer]:
            return reader.answer_all(questions, self.contexts(arm, dataset, questions))

        def make() -> pd.DataFrame:
            table = pd.DataFrame([vars(answer) for answer in answered()], columns=_ANSWER)
            table["gold"] = [question.right for question in questions]
            table = table.assign(dataset=dataset, method=arm, reader=reader.name)
            return table[ANSWER_COLUMNS]

        recorded = answered if may_ask(getattr(reader, "llm", None)) else tuple
        return self._cell(make, arm, dataset, reader.name, recorded, reader=_settings(reader))

    def contexts(self, arm: str, dataset: str, questions: Sequence[Question]) -> list[list]:
        """The k passages that each of the questions is answered from, best first."""
        if arm == "closed_book":
            return [[] for _ in questions]
        if arm == HYPOTHESES:
            pairs = zip(self.sets[dataset], self.expansions(arm, dataset), strict=True)
            read = {question.qid: _hypotheses_as_passages(made) for question, made in pairs}
            return [read[question.qid] for question in questions]
        run = self.run_of(arm, dataset)
        if run is None:
            raise RecordingMiss(self.missing[dataset, arm, ""])
        found = ids_by_question(run)
        store = self.retriever.store
        return [store.get_many(found.get(q.qid, [])[: self.k]) for q in questions]

    def _cell(
        self,
        make: Callable[[], pd.DataFrame],
        arm: str,
        dataset: str,
        kind: str = "",
        answers: Callable[[], Sequence[Answer]] = tuple,
        **more,
    ) -> pd.DataFrame | None:
        """A cell from its file or made; it depends on the replies of what ``answers`` gives."""
        method = self.method_of(arm)
        code = [*_CODE, *code_of(method)] if method else _CODE
        author = getattr(self.llm, "name", REFERENCE)
        # Random mimics come from all sets.
        sets = list(self.sets) if arm in CONTROLS else [dataset]
        try:
            settings = {
                **self.behind,
                **more,
                "k": self.k,
                "arm": arm,
                "llm": getattr(self.llm, "name", ""),
                "method": _settings(method) if method else "",
                "questions": content_of(q for name in sets for q in self.sets[name]),
            }
            replies = [reply for answer in answers() for reply in answer.replies]
            if may_ask(self.llm) and method is not None and method.needs_llm:
                writer = arm if arm in self.methods else "chr"
                for expansion in (e for name in sets for e in self.expansions(writer, name)):
                    replies += expansion.trace.get("replies", ())
            if replies:
                settings["replies"] = content_of(replies)
            parts = (arm, dataset, kind, "" if author == REFERENCE else author)
            name = "-".join(filter(None, parts)).replace("'", "")
            name = "cells/" + name.replace(" ", "-").replace("/", "-")
            table = make_or_reuse(
                make, name, self.profile.name, code=code, data=self.data, **settings
            )
        except (RecordingMiss, ModelMissing) as miss:
            how = str(miss).rsplit("Next: ", 1)[-1]
            if isinstance(miss, RecordingMiss) and self.behind.get("limit"):
                # Texts and labels are those that the whole profile's passages called for.
                how = "the same command without LIMIT"
            self.missing[dataset, arm, kind] = how
            return None
        return table.fillna(dict.fromkeys(_TEXT_COLUMNS, ""))

    # all cells -----------------------------------------------------------------------------------

    def plan(self) -> pd.DataFrame:
        """What a run asks of LLMs, before it starts: who, calls, and at most how many tokens out.

        Calls that are recorded already cost nothing; the cap is calls times ``max_tokens``. Broken
        JSON is asked for once more, which is not counted.
        """
        n = sum(map(len, self.sets.values()))
        rows = []
        for name, budget in self.asking.items():
            rows.append((f"expand: {name}", n * budget.texts, n * budget.texts * budget.max_tokens))
        for reader in (reader for reader in self.readers if reader.needs_llm):
            calls = n * len(self.arms)
            length = 1 if reader.style == "letter" else reader.max_tokens
            rows.append((f"answer: {reader.name}", calls, calls * length))
            if reader.name == self.profile.sweep.get("answerer"):
                calls = sum(len(self.sets[name]) for name in self.swept)
                calls *= len(further_lambdas(self.profile, self.lam))
                rows.append((f"answer over lambda: {reader.name}", calls, calls * length))
        return pd.DataFrame(rows, columns=["who", "generations", "output_tokens_at_most"])

    @property
    def swept(self) -> list[str]:
        """The sets that the profile's ``sweep`` is of: "medqa", or what stands for it."""
        wanted = self.profile.sweep.get("dataset")
        named = {name: name.split()[-1] for name, asked in self.answerable.items() if asked}
        return [name for name, last in named.items() if last == wanted]

    @property
    def asking(self) -> dict[str, Budget]:
        """What methods ask of an LLM (``asked_once``)."""
        return asked_once(self.methods)

    def runs(self, name: str = "runs") -> pd.DataFrame:
        """What every arm that searches retrieved, for every question (see ``run_of``)."""
        found = (self.run_of(arm, dataset) for dataset, arm in product(self.sets, self.searched))
        return self.save(_joined(found, RUN_COLUMNS), name)

    def answers(self) -> pd.DataFrame:
        """What every reader answered from every arm (see ``answers_of``)."""
        for name, questions in self.answerable.items():
            if len(questions) < (n := len(self.sets[name])):
                paths.say_once(
                    f"{name}: NOT RUN with a reader, {n - len(questions)} of {n} questions, "
                    "which have no options or no answer"
                )
        cells = product(self.readers, self.sets, self.arms)
        found = (self.answers_of(arm, dataset, reader) for reader, dataset, arm in cells)
        answers = self.save(_joined(found, ANSWER_COLUMNS), "answers")
        for dataset, group in answers.groupby("dataset", sort=False):
            look = Look(dataset, group["qid"], group["method"])
            note_look("answers", self.profile.name, look)
        return answers

    def expanded(self) -> pd.DataFrame:
        """``EXPANDED_COLUMNS``: what a question's expansion cost, by method and set.

        Costs are missing where they were not measured, as for reference text. The last search is
        one of the ``retrieval_rounds``. A method that is NOT RUN has no rows.
        """
        rows = []
        written = [name for name, m in self.methods.items() if m.needs_llm and name != CHOSEN]
        for dataset, name in product(self.sets, written):
            try:
                expansions = self.expansions(name, dataset)
            except RecordingMiss:
                continue
            for question, made in zip(self.sets[dataset], expansions, strict=True):
                row = {"dataset": dataset, "method": name, "qid": question.qid}
                row["error"] = made.trace.get("error", "")
                last_search = float(made.request is not None)
                row["retrieval_rounds"] = made.trace.get("searches", 0) + last_search
                rows.append(row | _cost(made.trace.get("replies", ())))
        table = pd.DataFrame(rows, columns=EXPANDED_COLUMNS)
        failed = int((table["error"] != "").sum())
        if failed and may_ask(self.llm):
            print(
                f"{failed} texts of {self.llm.name} could not be used: they retrieve nothing. "
                "To ask for them once more: make again, with the same PROFILE",
                file=sys.stderr,
            )
        return table

    def quality(
        self, runs: pd.DataFrame, targets: Mapping, mimics: Mapping, name: str = "retrieval"
    ) -> pd.DataFrame:
        """Retrieval of every arm against relevance, by set: P@k with interval, classes, n.

        ``targets`` and ``mimics`` are sets of passage ids by question id; questions without any
        target are left out, so the table is empty where nothing is known. Of a control the outcome
        of a question is the mean over all draws of random mimics. Beside the table stand runs and
        judgments in TREC's form, for other programs: ``trec/<name>/<dataset>``.
        """
        self._write_trec(runs, targets, name)
        rows, values = [], []
        for (dataset, arm), run in runs.groupby(["dataset", "method"], sort=False):
            draws = [ids_by_question(run)]
            wanted = {qid: targets[qid] for qid in draws[0] if targets.get(qid)}
            if not wanted:
                continue
            if arm in CONTROLS:
                draws = self.search(arm, dataset, _drawn, self.depth, DRAWS)
            measured = partial(measure, targets=wanted, mimics=mimics, k=self.k)
            table = mean_of_draws(draws, measured)
            rows.append({"dataset": dataset, "method": arm} | summary(table))
            values.append(long_values(arm, table).assign(dataset=dataset))
        if not rows:
            columns = ["dataset", "method", *METRICS, "p_at_5_low", "p_at_5_high", "n"]
            return self.save(pd.DataFrame(columns=columns), name)
        self.save(pd.concat(values, ignore_index=True), f"values_{name}")
        return self.save(pd.DataFrame(rows), name)

    def _write_trec(self, runs: pd.DataFrame, targets: Mapping, name: str) -> None:
        for dataset, of_set in runs.groupby("dataset", sort=False):
            folder = paths.results(self.profile.name) / "trec" / name / str(dataset)
            for method, run in of_set.groupby("method", sort=False):
                write_trec_run(folder / f"{method}.run", run)
            judged = {qid: gains(targets[qid]) for qid in of_set["qid"].unique() if qid in targets}
            write_qrels(folder / "qrels.txt", judged)

    def relevance(self) -> tuple[Judged, Judged]:
        """Passages on the target and on the mimic: ddx-mini's judgments, or BioASQ's gold snippets.

        They name passages of their own corpus. In any other a passage counts when it is of the same
        PubMed document (MedRAG's records have PMIDs), which costs one pass through the store. Where
        there is no such passage nothing is known: a question without judged passages is left out.
        The profile's own ``qrels`` give targets and their grades, and no mimics.
        """
        targets, mimics = self._known_relevance()
        return {**targets, **self._own_relevance()}, mimics

    def _known_relevance(self) -> tuple[Judged, Judged]:
        for asked, name in LABELLED_IN.items():
            if asked in self.profile.questions:
                known = load_benchmark(name, self.retriever.encoder)
                if set(known.corpora) <= set(self.profile.corpora):
                    return known.targets, known.mimics
                return _by_document(known, self.retriever.store)
        return {}, {}

    def _own_relevance(self) -> Judged:
        """Grades above 0 of the profile's ``qrels``. ValueError where no question has one; how many
        of their passages are not there is printed."""
        if not self.profile.qrels:
            return {}
        judged, report = read_qrels(self.profile.qrels)
        qids = {question.qid for asked in self.sets.values() for question in asked}
        found = {
            qid: {pid: grade for pid, grade in grades.items() if grade > 0}
            for qid, grades in judged.items()
            if qid in qids
        }
        if not found:
            raise ValueError(
                f"{report.path}: no judgment of a question that is asked: ids are "
                f"{', '.join(list(judged)[:3])} there and {', '.join(sorted(qids)[:3])} here"
            )
        pids = {pid for grades in found.values() for pid in grades}
        absent = (self.retriever.store.ids().find(sorted(pids)) < 0).sum()
        paths.say_once(
            f"judgments: {report}, of {len(found)} of {len(qids)} questions; "
            f"{absent} of {len(pids)} relevant passages are not in the corpora"
        )
        return found

    def not_run(self) -> pd.DataFrame:
        """Cells without a recording: method, reader, the command that runs them, how many sets."""
        rows = [(arm, kind, how) for (_, arm, kind), how in self.missing.items()]
        columns = ["method", "reader", "how"]
        table = pd.DataFrame(rows, columns=columns)
        return table.groupby(columns, sort=False).size().rename("sets").reset_index()

    def save(self, table: pd.DataFrame, name: str) -> pd.DataFrame:
        """Keep a table as ``<results>/<name>.csv`` with all that it depends on; returns it."""
        if "method" in table and "options_visible" not in table:
            table = table.assign(options_visible=table["method"].map(self.visible))
        asked = content_of(question for questions in self.sets.values() for question in questions)
        settings = {**self.behind, "k": self.k, "lam": self.lam, "questions": asked}
        modules = {module for method in self.methods.values() for module in code_of(method)}
        own = sorted(module for module in modules if not module.startswith("lib."))
        code = ["lib.studies.main_tables", *own]
        write_result(table, name, self.profile.name, code=code, data=self.data, **settings)
        return table


def further_lambdas(profile: Profile, lam: float = 0.4) -> list[float]:
    """The lambdas of a ``sweep`` at which nobody answers but for it: H+ alone (0), the reader's
    ``lam`` and the paper's 1 are rows of the grid, and the same requests."""
    return [at for at in profile.lambdas if at not in (0.0, lam, 1.0)] if profile.sweep else []


def ids_by_question(run: pd.DataFrame) -> Found:
    """Passage ids of a run by question id; an empty id stands for "nothing was found"."""
    return {qid: [pid for pid in rows["pid"] if pid] for qid, rows in run.groupby("qid")}


def _joined(parts: Iterable[pd.DataFrame | None], columns: Sequence[str]) -> pd.DataFrame:
    """The cells that were run, in one table; without any it has its columns and no row."""
    found = [part for part in parts if part is not None]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=columns)


def _drawn(request: Request, draw: int) -> Request:
    return request.by(draw=draw)


def _hypotheses_as_passages(expansion: Expansion) -> list[Passage]:
    """H+ and H- as if they had been retrieved; none of a failed expansion."""
    texts = {name: expansion.trace.get(name) for name in ("H_plus", "H_minus")}
    return [Passage(name, "", text, "hypothesis", {}) for name, text in texts.items() if text]


def _random_passages(question: Question) -> Expansion:
    text = Text(question.text, 1.0, "query", "question")
    return Expansion(Hypotheses((text,), SearchSpec(form="random"), qid=question.qid))


def _cost(replies: Sequence[Reply]) -> dict[str, float]:
    """Texts, tokens and seconds of one expansion; NaN where one reply was not measured."""
    cost = {"calls": float(len(replies))}
    for name in ("prompt_tokens", "output_tokens", "latency_s"):
        of_replies = [getattr(reply, name) for reply in replies]
        cost[name] = float("nan") if None in of_replies else float(sum(of_replies))
    return cost


def content_of(things: Iterable[Question | Reply]) -> str:
    """A hash of questions or replies by what they say; not of how long a reply took."""
    said = [{k: v for k, v in vars(thing).items() if k != "latency_s"} for thing in things]
    return sha256_bytes(canonical_json(said).encode())[:16]


def _settings(thing: Method | Reader) -> dict[str, str]:
    """What a method or reader is set to, as a manifest holds it: its kind and fields, an encoder by
    its fingerprint, an LLM by its name."""
    settings = {"kind": type(thing).__name__}
    for name in (one.name for one in fields(thing) if one.repr):
        value = getattr(thing, name)
        is_llm = hasattr(value, "generate")
        settings[name] = value.name if is_llm else str(getattr(value, "fingerprint", value))
    return settings


# opening ------------------------------------------------------------------------------------------


def open_experiment(
    profile: Profile, *, lam: float = 0.4, live: bool = False, generated: bool = False
) -> Experiment:
    """Everything a profile's grid needs, opened.

    ``live`` lets the bundled small model say what its recordings lack. ``generated`` opens what a
    model really wrote in place of reference text: the profile's ``generated`` settings.
    """
    if generated:
        profile = replace(profile, **profile.generated)
    methods = methods_of(profile)
    methods[CHOSEN] = replace(methods["chr"], name=CHOSEN, lam=lam)
    encoder = load_encoder(profile.encoder, **profile.encoder_options)
    retriever = open_retriever(profile, encoder)
    readers = [load_reader(spec, encoder, live=live) for spec in profile.answerers]
    for reader in readers:
        if reader.needs_llm:
            reader.workers = profile.workers
        elif isinstance(reader, EvidenceReader):
            reader.use_vectors_of(retriever.index)
    sets = question_sets(profile.questions, profile.per_set)
    asked = [file for name in sets for file in load_registry(f"{name}-")]
    if "ddx-mini" in profile.questions:
        asked.append("ddx-mini/questions.jsonl")
    behind = {
        "encoder": encoder.fingerprint,
        "limit": profile.limit,
        "corpora": index_build.named(profile.corpora),
        "passages": retriever.store.content,
        "recordings": _recordings(profile),
        **index_build.by_codes(retriever.index),
    }
    return Experiment(
        profile,
        sets,
        retriever,
        connect(_small(profile.llm) if live else profile.llm),
        methods,
        readers,
        lam,
        behind,
        [*index_build.files_of(profile.corpora), *asked],
    )


def _recordings(profile: Profile) -> dict[str, str]:
    """A hash of each file that is replayed; a spec may be a pattern that several files fit."""
    specs = [profile.llm, *(spec.get("llm", "") for spec in profile.answerers)]
    patterns = [paths.ROOT / spec.partition(":")[2] for spec in specs if spec.startswith("replay:")]
    files = [file for path in patterns for file in sorted(path.parent.glob(path.name))]
    return {file.name: sha256_file(file)[:16] for file in files}


def _small(spec: str) -> str:
    """A replay of what the bundled small model wrote becomes one that asks it for the rest."""
    file = spec.removeprefix("replay:")
    return f"record:{file}=small" if file != spec and "smollm2" in file else spec


def _by_document(known: Benchmark, store: PassageStore) -> tuple[Judged, Judged]:
    """The judgments of a benchmark, carried over to passages of the same PubMed documents."""
    judged = frozenset().union(*known.targets.values(), *known.mimics.values())
    documents = {
        p.pid: p.meta["pmids"]
        for corpus in known.corpora
        for p in load_passages(corpus)
        if p.pid in judged and p.meta.get("pmids")
    }
    passages: dict[str, list[str]] = {pmid: [] for pmids in documents.values() for pmid in pmids}
    # Without any document the pass through the store would be for nothing.
    for passage in store if passages else ():
        for pmid in passage.meta.get("pmids", ()):
            if pmid in passages:
                passages[pmid].append(passage.pid)

    def carried_over(judgments: Judged) -> Judged:
        found = {}
        for qid, pids in judgments.items():
            pmids = [pmid for pid in pids for pmid in documents.get(pid, ())]
            found[qid] = frozenset(pid for pmid in pmids for pid in passages[pmid])
        return found

    return carried_over(known.targets), carried_over(known.mimics)
