# mypy: disable-error-code="attr-defined"
"""A profile's whole experiment: its grid opened, run, measured against relevance, and kept."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from lib import index_build
from lib.base.downloads import load_registry
from lib.base.files import sha256_file
from lib.base.paths import ROOT
from lib.base.provenance import write_result
from lib.data.looks import note_look
from lib.datasets import GROUPS, question_sets
from lib.embed import load_encoder
from lib.llm.connect import connect
from lib.llm.recorder import may_ask
from lib.methods.base import Budget
from lib.open_retriever import open_retriever
from lib.profiles import Profile, methods_of
from lib.query_spec import DRAWS
from lib.readers import EvidenceReader, Reader, load_reader
from lib.run import execute
from lib.stats import METRICS, long_values, measure, summary
from lib.studies.main_tables.cells import (
    ANSWER_COLUMNS,
    DEPTH,
    EXPANDED_COLUMNS,
    NO_RETRIEVAL,
    RANDOM,
    RUN_COLUMNS,
    Grid,
    content_of,
)
from lib.studies.main_tables.controls import CONTROLS
from lib.studies.main_tables.paper_setup import same_setup
from lib.studies.main_tables.relevance import relevance

CHOSEN = "chr_given"
"""CHR at the reader's lambda, beside the paper's lambda = 1 ("chr")."""

NAMED = "named_option"
"""The row of Table 1 that nobody read: the option that H+ names."""


@dataclass
class Experiment:
    """A profile's grid with its readers; ``samples`` says how many questions a set each reads."""

    profile: Profile
    grid: Grid
    readers: Sequence[Reader]
    samples: Sequence[int]
    lam: float

    @property
    def searched(self) -> list[str]:
        """Every arm that retrieves: the methods, the controls of contrast, random passages."""
        return [*self.grid.methods, *CONTROLS, RANDOM]

    @property
    def arms(self) -> list[str]:
        """Every row of Table 1: also what is answered without retrieval."""
        return [*self.searched, *NO_RETRIEVAL]

    @property
    def visible(self) -> dict[str, bool]:
        """Whether what an arm searches with, or answers from, was written seeing the options.

        Arms that nobody wrote anything for are not in it.
        """
        seen = {name: m.options_visible for name, m in self.grid.methods.items()}
        of_chr = (*CONTROLS, NAMED, "hypotheses_as_context")
        return seen | (dict.fromkeys(of_chr, seen["chr"]) if "chr" in seen else {})

    def is_papers(self, method: str, asked: Mapping[str, int], answerer: str | None = None) -> bool:
        """Whether what ran is the paper's setup (``paper_setup.same_setup``); ``asked`` says how
        many questions of each set, ``answerer`` who answered, None for what nobody did."""
        models = {r.name: r.llm.name for r in self.readers if r.needs_llm}
        return same_setup(
            self.profile,
            asked,
            expander=getattr(self.grid.llm, "name", ""),
            method=method,
            answerer=answerer,
            answered_by=models.get(answerer, ""),
        )

    def plan(self) -> pd.DataFrame:
        """What a run asks of LLMs, before it starts: who, calls, and at most how many tokens out.

        Calls that are recorded already cost nothing; the cap is calls times ``max_tokens``. Broken
        JSON is asked for once more, which is not counted.
        """
        rows = []
        for name, budget in self.asking.items():
            n = sum(len(self.grid.questions(name, d)) for d in self.grid.sets)
            texts = budget.texts * n
            rows.append((f"expand: {name}", texts, texts * budget.max_tokens))
        for reader, sample in zip(self.readers, self.samples, strict=True):
            if reader.needs_llm:
                calls = sum(
                    len(self.grid.questions(arm, d, sample))
                    for arm in self.arms
                    for d in self.grid.sets
                )
                length = 1 if reader.style == "letter" else reader.max_tokens
                rows.append((f"answer: {reader.name}", calls, calls * length))
        return pd.DataFrame(rows, columns=["who", "generations", "output_tokens_at_most"])

    @property
    def asking(self) -> dict[str, Budget]:
        """What methods ask of an LLM, without those that make another's requests: H+ alone makes
        CHR's."""
        first: dict[Budget, str] = {}
        for name, method in self.grid.methods.items():
            budget = method.budget()
            if budget is not None and (name == "chr" or budget not in first):
                first[budget] = name
        return {name: budget for budget, name in first.items()}

    def runs(self, name: str = "runs") -> pd.DataFrame:
        """What every arm that searches retrieved, for every question (see ``Grid.run``)."""
        found = (self.grid.run(arm, d) for d in self.grid.sets for arm in self.searched)
        return self.save(_joined(found, RUN_COLUMNS), name)

    def answers(self) -> pd.DataFrame:
        """What every reader answered from every arm (see ``Grid.answers``)."""
        readers = list(zip(self.readers, self.samples, strict=True))
        found = (
            self.grid.answers(arm, d, reader, n)
            for reader, n in readers
            for d in self.grid.sets
            for arm in self.arms
        )
        answers = self.save(_joined(found, ANSWER_COLUMNS), "answers")
        for dataset, own in answers.groupby("dataset", sort=False):
            note_look("answers", dataset, own["qid"], self.profile.name, own["method"])
        return answers

    def expanded(self) -> pd.DataFrame:
        """What every method's expansions said and cost (see ``Grid.expanded``)."""
        asked = [n for n, m in self.grid.methods.items() if m.needs_llm and n != CHOSEN]
        found = (self.grid.expanded(m, d) for d in self.grid.sets for m in asked)
        table = _joined(found, EXPANDED_COLUMNS)
        failed = int((table["error"] != "").sum())
        if failed and may_ask(self.grid.llm):
            print(
                f"{failed} texts of {self.grid.llm.name} could not be used: they retrieve nothing. "
                "To ask for them once more: make again, with the same PROFILE",
                file=sys.stderr,
            )
        return table

    def relevance(self) -> tuple[Mapping, Mapping]:
        """Passages on the target and on the mimic, by question id; empty where nothing is known."""
        retriever = self.grid.retriever
        return relevance(self.profile, retriever.encoder, retriever.store)

    def quality(
        self, runs: pd.DataFrame, targets: Mapping, mimics: Mapping, name: str = "retrieval"
    ) -> pd.DataFrame:
        """Retrieval of every arm against relevance, by set: P@k with interval, classes, n.

        ``targets`` and ``mimics`` are sets of passage ids by question id; questions without any
        target are left out, so the table is empty where nothing is known.
        """
        columns = ["dataset", "method", *METRICS, "p_at_5_low", "p_at_5_high", "n"]
        rows, values = [], []
        for (d, arm), own in runs.groupby(["dataset", "method"], sort=False):
            found = {q: [p for p in r["pid"] if p] for q, r in own.groupby("qid")}
            wanted = {q: targets[q] for q in found if targets.get(q)}
            if wanted:
                table = self._measured(d, arm, found, wanted, mimics)
                rows.append({"dataset": d, "method": arm} | summary(table))
                values.append(long_values(arm, table).assign(dataset=d))
        if values:
            self.save(pd.concat(values, ignore_index=True), f"values_{name}")
        return self.save(pd.DataFrame(rows, columns=None if rows else columns), name)

    def _measured(
        self, dataset: str, arm: str, found: Mapping, wanted: Mapping, mimics: Mapping
    ) -> pd.DataFrame:
        """Per-question metrics of one arm; of a control their mean over all draws of strangers."""
        k = self.grid.k
        if arm not in CONTROLS:
            return measure(found, wanted, mimics, k)
        asked = self.grid.questions(arm, dataset)
        tables = []
        for draw in range(DRAWS):
            made = self.grid.controlled(arm, dataset, draw)
            run, _ = execute(arm, asked, made, self.grid.retriever, max(DEPTH, k))
            drawn = {q: list(rows["pid"]) for q, rows in run.groupby("qid")}
            tables.append(measure(drawn, wanted, mimics, k))
        return sum(tables) / len(tables)

    def not_run(self) -> pd.DataFrame:
        """Cells without a recording: method, reader, the command that runs them, how many sets."""
        columns = ["method", "reader", "how"]
        table = pd.DataFrame(self.grid.missing, columns=["dataset", *columns]).drop_duplicates()
        return table.groupby(columns, sort=False).size().rename("sets").reset_index()

    def save(self, table: pd.DataFrame, name: str) -> pd.DataFrame:
        """Keep a table as ``<results>/<name>.csv`` with all that it depends on; returns it."""
        grid = self.grid
        if "method" in table and "options_visible" not in table:
            table = table.assign(options_visible=table["method"].map(self.visible))
        asked = [question for questions in grid.sets.values() for question in questions]
        behind = {**grid.behind, "k": grid.k, "lam": self.lam, "questions": content_of(asked)}
        write_result(
            table, name, grid.profile, code=["lib.studies.main_tables"], data=grid.data, **behind
        )
        return table


def _joined(parts: Iterable[pd.DataFrame | None], columns: Sequence[str]) -> pd.DataFrame:
    """The cells that were run, in one table; without any it has its columns and no row."""
    found = [part for part in parts if part is not None]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=columns)


def open_experiment(
    profile: Profile, *, lam: float = 0.4, live: bool = False, generated: bool = False
) -> Experiment:
    """Everything a profile's grid needs, opened.

    ``live`` lets the bundled small model say what its recordings lack. ``generated`` opens what a
    model really wrote in place of reference text: the profile's ``generated`` settings.
    """
    if generated:
        profile = replace(profile, **profile.generated)
    grid = _open_grid(profile, lam, live)
    readers = [load_reader(spec, grid.retriever.encoder, live=live) for spec in profile.answerers]
    for reader in readers:
        if reader.needs_llm:
            reader.workers = profile.workers
        elif isinstance(reader, EvidenceReader):
            reader.use_vectors_of(grid.retriever.index)
    return Experiment(profile, grid, readers, [s.get("sample", 0) for s in profile.answerers], lam)


def _open_grid(profile: Profile, lam: float, live: bool) -> Grid:
    """What is asked, what is searched and who writes the expansions."""
    methods = methods_of(profile)
    methods[CHOSEN] = replace(methods["chr"], name=CHOSEN, lam=lam)
    encoder = load_encoder(profile.encoder, **profile.encoder_options)
    retriever = open_retriever(profile, encoder)
    specs = [profile.llm, *(spec.get("llm", "") for spec in profile.answerers)]
    replayed = [ROOT / s.partition(":")[2] for s in specs if s.startswith("replay:")]
    # What is replayed may be a pattern that several files fit.
    recorded = [path for p in replayed for path in sorted(p.parent.glob(p.name))]
    data = index_build.files_of(profile.corpora)
    for name in profile.questions:
        data += _files_of_questions(name)
    behind = {
        "encoder": retriever.encoder.fingerprint,
        "limit": profile.limit,
        "corpora": list(profile.corpora),
        "passages": retriever.store.content,
        "recordings": {path.name: sha256_file(path)[:16] for path in recorded},
    }
    return Grid(
        profile.name,
        question_sets(profile.questions, profile.per_set),
        retriever,
        connect(_small(profile.llm) if live else profile.llm),
        profile.k,
        methods,
        behind,
        data,
        profile.asked,
        profile.workers,
        alike=tuple(GROUPS.values()) if "real" in profile.questions else (),
    )


def _files_of_questions(name: str) -> list[str]:
    """The registered files that a question set is read from."""
    if name == "ddx-mini":
        return ["ddx-mini/questions.jsonl"]
    sets = [d for group in GROUPS.values() for d in group] if name == "real" else [name]
    return [file for one in sets for file in load_registry(f"{one}-")]


def _small(spec: str) -> str:
    """A replay of what the bundled small model wrote becomes one that asks it for the rest."""
    file = spec.removeprefix("replay:")
    return f"record:{file}=small" if file != spec and "smollm2" in file else spec
