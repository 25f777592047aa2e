# mypy: disable-error-code="attr-defined"
"""A profile's experiment: what every arm retrieves, and what every reader makes of it.

It is a grid. Each cell is one file with a manifest (``data/results/<profile>/cells/``), made once
and kept while the code, data and settings behind it hold, so a run that was stopped goes on where
it was. Among them are hashes of the questions and passages as they were read and, where a model may
still be asked, of the replies: they are read from the recording each time, and only what it lacks
is asked for. A cell whose generations nobody recorded is NOT RUN, with the command that records
them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, partial

import pandas as pd

from lib import index_build
from lib.base.downloads import load_registry
from lib.base.files import canonical_json, sha256_bytes, sha256_file
from lib.base.paths import ROOT
from lib.base.provenance import make_or_reuse, write_result
from lib.benchmarks import load_benchmark
from lib.benchmarks.base import Benchmark
from lib.corpora import load_passages
from lib.data.looks import note_look
from lib.data.passages import Passage
from lib.data.store import PassageStore
from lib.datasets import GROUPS, Question, question_sets, sampled
from lib.embed import load_encoder
from lib.limit import LABELLED_IN
from lib.llm.chat import REFERENCE, ChatModel, Reply
from lib.llm.connect import connect
from lib.llm.recorder import RecordingMiss, may_ask
from lib.methods.base import Budget, Expansion, Method
from lib.open_retriever import open_retriever
from lib.profiles import Profile, methods_of
from lib.query_spec import DRAWS, Hypotheses, SearchSpec, Text, with_random_mimics
from lib.readers import Answer, EvidenceReader, Reader, load_reader
from lib.run import Retriever, execute, expand_all
from lib.stats import METRICS, long_values, measure, summary
from lib.studies.main_tables.accuracy import same_setup
from lib.study import mean_of_draws

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
NO_RETRIEVAL = ("closed_book", "hypotheses_as_context")
"""Arms whose context is no passage at all, and CHR's H+ and H- without any search."""
RANDOM = "random"
"""The arm of random passages."""
DEPTH = 10
"""Passages kept per question, or k if that is more: readers see the first k, measures ten."""

RUN_COLUMNS = ["dataset", "method", "qid", "rank", "pid", "score"]
_COSTS = ["calls", "prompt_tokens", "output_tokens", "latency_s"]
EXPANDED_COLUMNS = [
    *("dataset", "method", "qid", "error", "cut"),
    *(*_COSTS, "retrieval_rounds", "H_plus", "H_minus"),
]
_ANSWER = ["letter", "rule", "mirage", "documents_cut"]
ANSWER_COLUMNS = ["qid", "gold", *_ANSWER, "dataset", "method", "reader"]

_CODE = ("lib.studies.main_tables.experiment", "lib.readers", "lib.parse")
"""What makes a cell, beside its method."""
_TEXT_COLUMNS = ("qid", "pid", "letter", "error", "H_plus", "H_minus")

Judged = Mapping[str, frozenset[str]]
"""Passage ids by question id."""


@dataclass
class Experiment:
    """One profile's grid; every cell depends on the settings ``behind`` and the ``data`` files."""

    profile: Profile
    sets: Mapping[str, Sequence[Question]]
    retriever: Retriever
    llm: ChatModel | None
    methods: Mapping[str, Method]
    readers: Sequence[Reader] = ()
    samples: Mapping[str, int] = field(default_factory=dict)
    """Questions of a set that a reader reads, by its name; where it is missing, all."""
    lam: float = 0.4
    behind: Mapping[str, object] = field(default_factory=dict)
    data: Sequence[str] = ()
    missing: dict[tuple[str, str, str], str] = field(default_factory=dict)
    """The command that would run what is NOT RUN, by set, arm and what of it."""
    _expanded: dict = field(default_factory=dict, repr=False)
    _drawn: dict = field(default_factory=dict, repr=False)

    @property
    def k(self) -> int:
        """Passages that a reader sees."""
        return self.profile.k

    @property
    def searched(self) -> list[str]:
        """Every arm that retrieves: the methods, the controls of contrast, random passages."""
        return [*self.methods, *CONTROLS, RANDOM]

    @property
    def arms(self) -> list[str]:
        """Every row of Table 1: also what is answered without retrieval."""
        return [*self.searched, *NO_RETRIEVAL]

    @property
    def visible(self) -> dict[str, bool]:
        """Whether what an arm searches with, or answers from, was written seeing the options.

        Arms that nobody wrote anything for are not in it.
        """
        seen = {name: method.options_visible for name, method in self.methods.items()}
        of_chr = (*CONTROLS, NAMED, "hypotheses_as_context")
        return seen | (dict.fromkeys(of_chr, seen["chr"]) if "chr" in seen else {})

    def is_papers(self, method: str, asked: Mapping[str, int], answerer: str | None = None) -> bool:
        """Whether what ran is the paper's setup (``accuracy.same_setup``); ``asked`` says how many
        questions of each set, ``answerer`` who answered, None for what nobody did."""
        models = {reader.name: reader.llm.name for reader in self.readers if reader.needs_llm}
        return same_setup(
            self.profile,
            asked,
            expander=getattr(self.llm, "name", ""),
            method=method,
            answerer=answerer,
            answered_by=models.get(answerer, ""),
        )

    # what an arm searches with -------------------------------------------------------------------

    def questions(self, arm: str, dataset: str, n: int = 0) -> Sequence[Question]:
        """The questions of a set that an arm is run on, at most ``n`` (0 = all).

        Those that a model writes for are a sample where the profile says how many are ``asked``.
        """
        limits = [n, self.profile.asked if self._is_written(arm) else 0]
        return sampled(self.sets[dataset], min(filter(None, limits), default=0))

    def _is_written(self, arm: str) -> bool:
        """Whether an LLM expands an arm: one that is no method is a control of CHR, or has no
        expansion at all."""
        method = self.methods.get(arm)
        return arm not in (RANDOM, "closed_book") if method is None else method.needs_llm

    def expansions(self, arm: str, dataset: str) -> list[Expansion]:
        """What the arm searches with, for each of its questions."""
        if (arm, dataset) not in self._expanded:
            questions = self.questions(arm, dataset)
            if arm == RANDOM:
                made = [_random_passages(question) for question in questions]
            elif arm in CONTROLS:
                made = self.controlled(arm, dataset)
            else:
                made = self.expand(arm, questions, self.llm)
            self._expanded[arm, dataset] = made
        return self._expanded[arm, dataset]

    def expand(
        self, name: str, questions: Sequence[Question], llm: ChatModel | None
    ) -> list[Expansion]:
        """A method's expansions of some questions, written by ``llm``."""
        workers = self.profile.workers
        return expand_all(self.methods[name], questions, llm, self.retriever, workers=workers)

    def controlled(self, control: str, dataset: str, draw: int = 0) -> list[Expansion]:
        """CHR's expansions searched as a control says, with one draw of random mimics.

        These come from the questions of all sets, of real ones from those that are measured
        together. NOT RUN (RecordingMiss) where a question has none.
        """
        if not self._drawn:
            is_real = "real" in self.profile.questions
            for group in GROUPS.values() if is_real else [tuple(self.sets)]:
                pairs = [pair for name in group if name in self.sets for pair in self._chr(name)]
                written = {q.qid: made.request for q, made in pairs if made.request is not None}
                self._drawn |= with_random_mimics(written, DRAWS)
        made = []
        for question, expansion in self._chr(dataset):
            if expansion.request is not None:
                request = self._drawn[question.qid]
                if not request.of("mimic", "stranger"):
                    raise RecordingMiss(
                        f"no other question has a mimic for {question.qid}. "
                        "Next: ask more questions"
                    )
                expansion = replace(expansion, request=request.by(**CONTROLS[control], draw=draw))
            made.append(expansion)
        return made

    def _chr(self, dataset: str) -> list[tuple[Question, Expansion]]:
        questions = self.questions("chr", dataset)
        return list(zip(questions, self.expansions("chr", dataset), strict=True))

    # cells ---------------------------------------------------------------------------------------

    def run_of(self, arm: str, dataset: str) -> pd.DataFrame | None:
        """``RUN_COLUMNS``: ``DEPTH`` or k rows a question, None if NOT RUN.

        A question for which nothing was retrieved has one row of rank 0, without a passage.
        """

        def make() -> pd.DataFrame:
            questions, expansions = self.questions(arm, dataset), self.expansions(arm, dataset)
            found, _ = execute(arm, questions, expansions, self.retriever, max(DEPTH, self.k))
            none = sorted({q.qid for q in questions}.difference(found["qid"]))
            empty = {"method": arm, "qid": none, "rank": 0, "pid": "", "score": 0.0}
            table = pd.concat([found, pd.DataFrame(empty)], ignore_index=True)
            return table.assign(dataset=dataset)[RUN_COLUMNS]

        return self._cell(make, arm, dataset)

    def expanded_of(self, arm: str, dataset: str) -> pd.DataFrame | None:
        """``EXPANDED_COLUMNS``: what an expansion said and cost, a row a question; None if NOT RUN.

        Costs are missing where they were not measured, as for reference text. The last search is
        one of the ``retrieval_rounds``. H_plus and H_minus are empty for other methods.
        """

        def make() -> pd.DataFrame:
            rows = []
            questions, expansions = self.questions(arm, dataset), self.expansions(arm, dataset)
            for question, expansion in zip(questions, expansions, strict=True):
                trace = expansion.trace
                row = {"dataset": dataset, "method": arm, "qid": question.qid}
                row |= {"error": trace.get("error", ""), "cut": int(trace.get("cut", 0))}
                row |= _cost(trace.get("replies", ()))
                last_search = float(expansion.request is not None)
                row["retrieval_rounds"] = trace.get("searches", 0) + last_search
                rows.append(row | {side: trace.get(side, "") for side in ("H_plus", "H_minus")})
            return pd.DataFrame(rows, columns=EXPANDED_COLUMNS)

        return self._cell(make, arm, dataset, "expanded")

    def answers_of(self, arm: str, dataset: str, reader: Reader) -> pd.DataFrame | None:
        """``ANSWER_COLUMNS``: a reader's answers, a row a question; None if NOT RUN.

        Readers without an LLM have no closed book.
        """
        if arm == "closed_book" and not reader.needs_llm:
            return None
        n = self.samples.get(reader.name, 0)
        questions = self.questions(arm, dataset, n)

        @cache
        def answered() -> list[Answer]:
            return reader.answer_all(questions, self.contexts(arm, dataset, questions))

        def make() -> pd.DataFrame:
            rows = [[getattr(answer, column) for column in _ANSWER] for answer in answered()]
            table = pd.DataFrame(rows, columns=_ANSWER)
            table.insert(0, "qid", [question.qid for question in questions])
            table.insert(1, "gold", [question.answer for question in questions])
            return table.assign(dataset=dataset, method=arm, reader=reader.name)

        heard = answered if may_ask(getattr(reader, "llm", None)) else tuple
        return self._cell(make, arm, dataset, reader.name, heard, n=n, reader=_settings(reader))

    def contexts(self, arm: str, dataset: str, questions: Sequence[Question]) -> list[list]:
        """The k passages that each of the questions is answered from, best first."""
        if arm == "closed_book":
            return [[] for _ in questions]
        if arm == "hypotheses_as_context":
            made = {question.qid: expansion for question, expansion in self._chr(dataset)}
            return [_hypotheses_as_passages(made[question.qid]) for question in questions]
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
        heard: Callable[[], Sequence[Answer]] = tuple,
        **more,
    ) -> pd.DataFrame | None:
        """A cell from its file or made; ``heard`` are answers whose replies it depends on."""
        method = self.methods.get(arm) or self.methods.get("chr")
        # Random mimics come from all sets.
        sets = list(self.sets) if arm in CONTROLS else [dataset]
        settings = {
            **self.behind,
            **more,
            "k": self.k,
            "arm": arm,
            "llm": getattr(self.llm, "name", ""),
            "method": _settings(method) if method else "",
            "questions": content_of(q for name in sets for q in self.questions(arm, name)),
        }
        try:
            replies = [reply for answer in heard() for reply in answer.replies]
            if may_ask(self.llm) and self._is_written(arm):
                written = arm if arm in self.methods else "chr"
                made = [e for name in sets for e in self.expansions(written, name)]
                replies += [reply for e in made for reply in e.trace.get("replies", ())]
            if replies:
                settings["replies"] = content_of(replies)
            code = [*_CODE, *([type(method).__module__] if method else [])]
            name = f"cells/{self._file(arm, dataset, kind)}"
            table = make_or_reuse(
                make, name, self.profile.name, code=code, data=self.data, **settings
            )
        except RecordingMiss as miss:
            how = str(miss).rsplit("Next: ", 1)[-1]
            if self.behind.get("limit"):
                # Texts and labels are those that the whole profile's passages called for.
                how = "the same command without LIMIT"
            self.missing[dataset, arm, kind] = how
            return None
        return table.fillna(dict.fromkeys(_TEXT_COLUMNS, ""))

    def _file(self, *parts: str) -> str:
        """The name of a cell's file, with the author's where a model wrote."""
        author = getattr(self.llm, "name", REFERENCE)
        name = " ".join(filter(None, (*parts, "" if author == REFERENCE else author)))
        return name.replace(" ", "-").replace("'", "").replace("/", "-")

    # all cells -----------------------------------------------------------------------------------

    def plan(self) -> pd.DataFrame:
        """What a run asks of LLMs, before it starts: who, calls, and at most how many tokens out.

        Calls that are recorded already cost nothing; the cap is calls times ``max_tokens``. Broken
        JSON is asked for once more, which is not counted.
        """
        rows = []
        for name, budget in self.asking.items():
            texts = budget.texts * sum(len(self.questions(name, d)) for d in self.sets)
            rows.append((f"expand: {name}", texts, texts * budget.max_tokens))
        for reader in self.readers:
            if reader.needs_llm:
                n = self.samples.get(reader.name, 0)
                asked = [self.questions(arm, d, n) for arm in self.arms for d in self.sets]
                calls = sum(map(len, asked))
                length = 1 if reader.style == "letter" else reader.max_tokens
                rows.append((f"answer: {reader.name}", calls, calls * length))
        return pd.DataFrame(rows, columns=["who", "generations", "output_tokens_at_most"])

    @property
    def asking(self) -> dict[str, Budget]:
        """What methods ask of an LLM, without those that make another's requests: H+ alone makes
        CHR's."""
        first: dict[Budget, str] = {}
        for name, method in self.methods.items():
            budget = method.budget()
            if budget is not None and (name == "chr" or budget not in first):
                first[budget] = name
        return {name: budget for budget, name in first.items()}

    def runs(self, name: str = "runs") -> pd.DataFrame:
        """What every arm that searches retrieved, for every question (see ``run_of``)."""
        found = (self.run_of(arm, d) for d in self.sets for arm in self.searched)
        return self.save(_joined(found, RUN_COLUMNS), name)

    def answers(self) -> pd.DataFrame:
        """What every reader answered from every arm (see ``answers_of``)."""
        found = (
            self.answers_of(arm, dataset, reader)
            for reader in self.readers
            for dataset in self.sets
            for arm in self.arms
        )
        answers = self.save(_joined(found, ANSWER_COLUMNS), "answers")
        for dataset, group in answers.groupby("dataset", sort=False):
            note_look("answers", dataset, group["qid"], self.profile.name, group["method"])
        return answers

    def expanded(self) -> pd.DataFrame:
        """What every method's expansions said and cost (see ``expanded_of``)."""
        asked = [n for n, m in self.methods.items() if m.needs_llm and n != CHOSEN]
        table = _joined(
            (self.expanded_of(m, d) for d in self.sets for m in asked), EXPANDED_COLUMNS
        )
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
        of a question is the mean over all draws of random mimics.
        """
        columns = ["dataset", "method", *METRICS, "p_at_5_low", "p_at_5_high", "n"]
        rows, values = [], []
        for (dataset, arm), run in runs.groupby(["dataset", "method"], sort=False):
            found = ids_by_question(run)
            wanted = {qid: targets[qid] for qid in found if targets.get(qid)}
            if not wanted:
                continue
            draws = self._draws(arm, dataset) if arm in CONTROLS else [found]
            measured = partial(measure, targets=wanted, mimics=mimics, k=self.k)
            table = mean_of_draws(draws, measured)
            rows.append({"dataset": dataset, "method": arm} | summary(table))
            values.append(long_values(arm, table).assign(dataset=dataset))
        if values:
            self.save(pd.concat(values, ignore_index=True), f"values_{name}")
        return self.save(pd.DataFrame(rows, columns=None if rows else columns), name)

    def _draws(self, control: str, dataset: str) -> list[dict[str, list[str]]]:
        """What a control finds, with each draw of random mimics."""
        questions, found = self.questions(control, dataset), []
        for draw in range(DRAWS):
            made = self.controlled(control, dataset, draw)
            run, _ = execute(control, questions, made, self.retriever, max(DEPTH, self.k))
            found.append(ids_by_question(run))
        return found

    def relevance(self) -> tuple[Judged, Judged]:
        """Passages on the target and on the mimic: ddx-mini's judgments, or BioASQ's gold snippets.

        They name passages of their own corpus. In any other a passage counts when it is of the same
        PubMed document (MedRAG's records have PMIDs), which costs one pass through the store. Where
        there is no such passage nothing is known: a question without judged passages is left out.
        """
        for asked, name in LABELLED_IN.items():
            if asked in self.profile.questions:
                known = load_benchmark(name, self.retriever.encoder)
                if set(known.corpora) <= set(self.profile.corpora):
                    return known.targets, known.mimics
                return _by_document(known, self.retriever.store)
        return {}, {}

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
        code = ["lib.studies.main_tables"]
        write_result(table, name, self.profile.name, code=code, data=self.data, **settings)
        return table


def ids_by_question(run: pd.DataFrame) -> dict[str, list[str]]:
    """Passage ids of a run by question id; an empty id stands for "nothing was found"."""
    return {qid: [pid for pid in rows["pid"] if pid] for qid, rows in run.groupby("qid")}


def _joined(parts: Iterable[pd.DataFrame | None], columns: Sequence[str]) -> pd.DataFrame:
    """The cells that were run, in one table; without any it has its columns and no row."""
    found = [part for part in parts if part is not None]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=columns)


def _hypotheses_as_passages(expansion: Expansion) -> list[Passage]:
    """H+ and H- as if they had been retrieved; none of a failed expansion."""
    texts = {name: expansion.trace.get(name) for name in ("H_plus", "H_minus")}
    return [Passage(name, "", text, "hypothesis", {}) for name, text in texts.items() if text]


def _random_passages(question: Question) -> Expansion:
    text = Text(question.text, 1.0, "query", "question")
    return Expansion(Hypotheses((text,), SearchSpec(form="random"), qid=question.qid))


def _cost(replies: Sequence[Reply]) -> dict[str, float]:
    """Requests, tokens and seconds of one expansion; NaN where one reply was not measured."""
    cost = {"calls": float(sum(reply.choice == 0 for reply in replies))}
    for name in _COSTS[1:]:
        of_replies = [getattr(reply, name) for reply in replies]
        cost[name] = float("nan") if None in of_replies else float(sum(of_replies))
    return cost


def content_of(things: Iterable[Question | Reply]) -> str:
    """A hash of questions or replies by what they say; not of how long a reply took."""
    said = [{k: v for k, v in vars(thing).items() if k != "latency_s"} for thing in things]
    return sha256_bytes(canonical_json(said).encode())[:16]


def _settings(thing: Method | Reader) -> dict:
    """What a method or reader is set to, as a manifest holds it: its kind and fields, an encoder by
    its fingerprint, an LLM by its name."""
    settings: dict[str, object] = {"kind": type(thing).__name__}
    for one in fields(thing):
        value = getattr(thing, one.name)
        if not isinstance(value, (str, int, float, bool, type(None))):
            name = value.name if hasattr(value, "generate") else repr(value)
            value = getattr(value, "fingerprint", name)
        if one.repr:
            settings[one.name] = value
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
    pairs = zip(readers, profile.answerers, strict=True)
    return Experiment(
        profile,
        question_sets(profile.questions, profile.per_set),
        retriever,
        connect(_small(profile.llm) if live else profile.llm),
        methods,
        readers,
        {reader.name: spec.get("sample", 0) for reader, spec in pairs},
        lam,
        {
            "encoder": encoder.fingerprint,
            "limit": profile.limit,
            "corpora": list(profile.corpora),
            "passages": retriever.store.content,
            "recordings": _recordings(profile),
        },
        index_build.files_of(profile.corpora) + _files_of_questions(profile),
    )


def _recordings(profile: Profile) -> dict[str, str]:
    """A hash of each file that is replayed; a spec may be a pattern that several files fit."""
    specs = [profile.llm, *(spec.get("llm", "") for spec in profile.answerers)]
    patterns = [ROOT / spec.partition(":")[2] for spec in specs if spec.startswith("replay:")]
    files = [file for path in patterns for file in sorted(path.parent.glob(path.name))]
    return {file.name: sha256_file(file)[:16] for file in files}


def _files_of_questions(profile: Profile) -> list[str]:
    """The data files that the profile's question sets are read from."""
    files = []
    for name in profile.questions:
        if name == "ddx-mini":
            files.append("ddx-mini/questions.jsonl")
            continue
        sets = [d for group in GROUPS.values() for d in group] if name == "real" else [name]
        files += [file for one in sets for file in load_registry(f"{one}-")]
    return files


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
    searched: dict[str, list[str]] = {pmid: [] for pmids in documents.values() for pmid in pmids}
    if searched:  # else the pass through the store would be for nothing
        for passage in store:
            for pmid in passage.meta.get("pmids", ()):
                if pmid in searched:
                    searched[pmid].append(passage.pid)

    def carried_over(judgments: Judged) -> Judged:
        found = {}
        for qid, pids in judgments.items():
            pmids = {pmid for pid in pids for pmid in documents.get(pid, ())}
            found[qid] = frozenset().union(*(searched[pmid] for pmid in pmids))
        return found

    return carried_over(known.targets), carried_over(known.mimics)
