"""An evaluation of your own in one call: methods, a grid of lambdas, measures, tests, kept runs.

``evaluate`` searches every method for every question, measures each ranked list with ir-measures
where judgments are given, has a reader answer from it where one is given, and compares every arm
with a baseline, question by question. With a folder, each arm's run is kept in TREC's form: a run
that was stopped goes on with the first arm that is not there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from io import StringIO
from pathlib import Path
from typing import Any, TextIO

import pandas as pd

from lib.base.files import atomic_write, canonical_json, read_manifest, sha256_bytes, write_manifest
from lib.base.parameters import check_lam, refuse_unknown
from lib.base.provenance import code_hash
from lib.corpus import contrast
from lib.datasets import Question
from lib.expansion import execute, expand_all
from lib.forms import (
    Qrels,
    read_qrels,
    read_questions,
    read_trec_run,
    write_qrels,
    write_trec_run,
)
from lib.index_build import by_codes
from lib.llm.chat import ChatModel
from lib.llm.connect import connect, is_live
from lib.methods import METHODS, Method
from lib.methods.base import Expansion, Search, check_method, code_of, has_lambda
from lib.methods.own import file_of, load_method
from lib.pages.readable import chance
from lib.plots.labels import label_of
from lib.readers import Reader
from lib.run import Retriever
from lib.stats import mean_interval, paired

CORRECTIONS = ("holm", "bonferroni", "fdr_bh", "none")
VALUES = ["arm", "qid", "metric", "value"]
TESTED = ["arm", "metric", "n", "value", "low", "high", "baseline", "difference"]
TESTED += ["difference_low", "difference_high", "p"]


@dataclass(frozen=True)
class Written:
    """A method that searches with H+ and H- of your own: ``pairs`` has both by question id.

    h+ - lam h-, as CHR; at lambda 0, and where H- is empty, H+ alone. A question without a pair
    fails, and is counted.
    """

    pairs: Mapping[str, tuple[str, str]] = field(default_factory=dict, repr=False)
    name: str = "written"
    lam: float = 1.0
    needs_llm: bool = False
    options_visible: bool = True

    def budget(self) -> None:
        """Nobody is asked."""
        return None

    def expand(self, question: Question, llm: ChatModel | None, search: Search) -> Expansion:
        """The search with the question's pair."""
        if question.qid not in self.pairs:
            return Expansion(None, {"error": "no H+ and H- are given for it"})
        return Expansion(contrast(*self.pairs[question.qid], self.lam))


_SHOWN = {name: name for name in ("arm", "metric", "n", "value", "low", "high", "difference")}
_SHOWN["p_corrected"] = "p, corrected"
_LOOK: dict[str, Any] = {"index": False, "na_rep": "", "float_format": "{:.3f}".format}
_LOOK["formatters"] = {_SHOWN["p_corrected"]: lambda p: "" if pd.isna(p) else chance(p)}


@dataclass(frozen=True, repr=False)
class Evaluation:
    """What ``evaluate`` found; in a notebook its table, without what follows from the others.

    ``table``
        a row an arm and measure; its columns are with ``evaluate``.
    ``values``
        every outcome: arm, qid, metric, value.
    ``runs``
        every ranked list, as ``lib.run.RUN_COLUMNS``.
    ``failed``
        by arm and question, why nothing was retrieved.
    """

    table: pd.DataFrame
    values: pd.DataFrame
    runs: pd.DataFrame
    failed: Mapping[str, Mapping[str, str]]

    def _shown(self) -> pd.DataFrame:
        labelled = self.table.assign(arm=self.table["arm"].map(label_of))
        return labelled[list(_SHOWN)].rename(columns=_SHOWN)

    def __repr__(self) -> str:
        return self._shown().to_string(**_LOOK)

    def _repr_html_(self) -> str:
        return self._shown().to_html(**_LOOK)


def evaluate(
    retriever: Retriever,
    questions: Sequence[Question] | str | Path,
    qrels: Qrels | str | Path | None = None,
    *,
    methods: str | Method | Iterable[str | Method] = ("standard", "bm25"),
    lambdas: Sequence[float] = (),
    measures: Sequence[str] = ("P@5", "R@10", "nDCG@10", "RR"),
    reader: Reader | None = None,
    k: int = 5,
    baseline: str = "",
    correction: str = "holm",
    llm: ChatModel | str | None = None,
    depth: int = 100,
    folder: str | Path | None = None,
    progress: bool = True,
) -> Evaluation:
    """Search, measure and compare; see ``Evaluation`` for what comes back.

    ``questions``, ``qrels``
        files that ``lib.forms`` reads, or what it gave.
    ``methods``
        each by name (``lib.methods.METHODS``), one of your own, or the file and class of one,
        "mine.py:Mine".
    ``lambdas``
        of each method that has a lambda, one arm for each: "<method>@<lambda>"; without, its own.
    ``measures``
        names of ir-measures, taken over the questions that have a judgment; the number of the
        others is printed. A question that retrieved nothing scores 0 and is counted in ``failed``.
        Of a corpus that was cut (``cut_passages``), a piece counts as the passage it is of, once,
        where passages are judged whole; the runs name the pieces.
    ``reader``, ``k``
        with one of ``lib.readers`` "accuracy" is the share of all questions that it answers rightly
        from the first ``k`` passages.
    ``baseline``
        an arm; by default the first.
    ``llm``
        writes what methods ask for: a model, or a spec for ``connect``; what it says is kept in
        ``folder``.
    ``folder``
        keeps every run, which is made anew when its method's file, the questions, passages or the
        encoder change; not when only a file that the method imports does.

    The table's columns: arm, metric, n, value, low, high (95 % bootstrap over questions), baseline,
    difference, difference_low, difference_high, p (paired sign-flip test) and p_corrected, over all
    comparisons of the table. ValueError for what is unknown, before anything is searched.
    """
    arms = _arms(methods, lambdas)
    baseline = baseline or next(iter(arms))
    refuse_unknown("no arm", [baseline], tuple(arms))
    refuse_unknown("no correction", [correction], CORRECTIONS)
    parsed = _measures(measures)
    told = sys.stderr if progress else StringIO()
    questions, qrels = _read(questions, qrels, told)
    judged = [question for question in questions if qrels.get(question.qid)]
    _check_asked(questions, judged, reader)
    told.write(_of_judgments(questions, judged, qrels, retriever) if progress else "")
    asked = questions if reader else judged
    home = Path(folder).expanduser() if folder else None
    if home and qrels:
        write_qrels(home / "qrels.txt", qrels)
    llm = _connected(llm, home)

    runs, failed, values = {}, {}, []
    for number, (arm, method) in enumerate(arms.items(), 1):
        print(f"[{number} of {len(arms)}] {arm}", file=told, flush=True)
        runs[arm], failed[arm] = _searched(arm, method, asked, retriever, llm, depth, home)
        told.write(_of_failures(arm, failed[arm], len(asked)))
        if judged:
            whole = _as_judged(runs[arm], qrels, retriever)
            values.append(_measured(arm, whole, judged, qrels, parsed))
        if reader:
            values.append(_answered(arm, runs[arm], asked, retriever, reader, k))
    outcomes = pd.concat(values, ignore_index=True)
    table = _compared(outcomes, list(arms), baseline, correction)
    if home:
        atomic_write(home / "table.csv", table.to_csv(index=False))
    return Evaluation(table, outcomes, pd.concat(runs.values(), ignore_index=True), failed)


def _read(
    questions: Sequence[Question] | str | Path, qrels: Qrels | str | Path | None, told: TextIO
) -> tuple[Sequence[Question], Qrels]:
    """Questions and judgments, from their files where paths are given."""
    if isinstance(questions, str | Path):
        questions, report = read_questions(questions)
        print(report, file=told)
    if isinstance(qrels, str | Path):
        qrels, report = read_qrels(qrels)
        print(report, file=told)
    return questions, qrels or {}


def _connected(llm: ChatModel | str | None, home: Path | None) -> ChatModel | None:
    """The model that a spec names; what a server says is recorded in ``home``."""
    if not isinstance(llm, str):
        return llm
    if home and is_live(llm):
        llm = f"record:{(home / 'replies.jsonl').resolve()}={llm}"
    return connect(llm)


def _of_failures(arm: str, failed: Mapping[str, str], asked: int) -> str:
    """How many questions of an arm failed, and why the first did, in a line; empty for none."""
    if not failed:
        return ""
    first, why = next(iter(failed.items()))
    return (
        f"{arm}: {len(failed):,} of {asked:,} questions failed and count 0, first {first}: {why}\n"
    )


def _of_judgments(
    questions: Sequence[Question], judged: Sequence[Question], qrels: Qrels, retriever: Retriever
) -> str:
    """What of questions, judgments and passages does not fit together, in lines; often nothing."""
    if not qrels:
        return ""
    known = {q.qid for q in questions}
    relevant = {pid for q in judged for pid, grade in qrels[q.qid].items() if grade > 0}
    there = relevant.intersection(
        name for pid in retriever.store.ids() for name in (pid, pid.partition("#")[0])
    )
    counts = {
        f"of {len(questions):,} questions have no judgment": len(questions) - len(judged),
        f"of {len(qrels):,} judged questions are not asked": len(qrels.keys() - known),
        f"of {len(relevant):,} relevant passages are not in the corpus": len(relevant - there),
    }
    return "".join(f"{count:,} {what}\n" for what, count in counts.items() if count)


def _check_asked(
    questions: Sequence[Question], judged: Sequence[Question], reader: Reader | None
) -> None:
    """ValueError where there is nothing to count, or a question that no reader can answer."""
    if reader is None and not judged:
        raise ValueError(
            "no question has a judgment. Next: qrels whose ids are those of the questions, or "
            "reader=, which answers questions that have options"
        )
    without = [q.qid for q in questions if not (q.options and q.answer)]
    if reader and without:
        raise ValueError(
            f"accuracy needs options and an answer; {len(without)} of {len(questions)} questions "
            f"lack them, first {without[0]!r}"
        )


def _arms(
    methods: str | Method | Iterable[str | Method], lambdas: Sequence[float]
) -> dict[str, Method]:
    """The arms by name, a method with a lambda at each of the lambdas."""
    arms: dict[str, Method] = {}
    one = isinstance(methods, str) or hasattr(methods, "expand")
    for named in [methods] if one else methods:
        if isinstance(named, str) and ".py:" in named:
            named = load_method(file_of(named, Path.cwd()))
        elif isinstance(named, str):
            if named not in METHODS:
                raise ValueError(
                    f"no method {named!r}; there are: {', '.join(METHODS)}, and yours, by its file "
                    "and class: mine.py:Mine"
                )
            named = METHODS[named]
        check_method(named)
        if named.name in {method.name for method in arms.values()}:
            raise ValueError(f"two methods are called {named.name!r}: give one another name")
        if not (has_lambda(named) and lambdas):
            arms[named.name] = named
            continue
        for lam in lambdas:
            arms[f"{named.name}@{check_lam(lam):g}"] = replace(named, lam=float(lam))
    if not arms:
        raise ValueError(f"no method to evaluate; there are: {', '.join(METHODS)}")
    return arms


def _measures(names: Sequence[str]) -> list:
    """The measures of these names; ValueError for one that ir-measures does not know."""
    import ir_measures

    parsed = []
    for name in names:
        try:
            parsed.append(ir_measures.parse_measure(str(name)))
        except (ValueError, NameError, KeyError) as error:
            raise ValueError(f"no measure {name!r}, such as P@5, R@10, nDCG@10, RR, AP") from error
    return parsed


def _searched(
    arm: str,
    method: Method,
    questions: Sequence[Question],
    retriever: Retriever,
    llm: ChatModel | None,
    depth: int,
    home: Path | None,
) -> tuple[pd.DataFrame, dict[str, str]]:
    """The run of one arm, kept in ``home`` and read from there while nothing behind it changed."""
    settings = {
        "method": type(method).__qualname__,
        "code": code_hash(code_of(method)),
        "settings": {one.name: _short(getattr(method, one.name)) for one in fields(method)},
        "questions": sha256_bytes(canonical_json([asdict(q) for q in questions]).encode()),
        "passages": retriever.store.content,
        "encoder": retriever.encoder.fingerprint,
        **by_codes(retriever.index),
        "llm": llm.name if llm and method.needs_llm else "",
        "depth": depth,
    }
    file = home / "runs" / f"{arm.replace('/', '_')}.run" if home else None
    if file:
        kept = read_manifest(file)
        if kept and all(kept["settings"].get(name) == value for name, value in settings.items()):
            return read_trec_run(file), kept["settings"]["failed"]
    expansions = expand_all(method, questions, llm, retriever)
    run, traces = execute(arm, questions, expansions, retriever, depth)
    pairs = zip(questions, expansions, strict=True)
    nothing = {q.qid: "the method gave no request" for q, made in pairs if made.request is None}
    told = {qid: trace["error"] for qid, trace in traces.items() if trace.get("error")}
    failed = nothing | told
    if file:
        write_trec_run(file, run)
        write_manifest(file, rows=len(run), settings=settings | {"failed": failed})
    return run, failed


def _short(value: object) -> str:
    """A setting as it is written down: what has weights by its fingerprint, a long one by hash."""
    written = repr(getattr(value, "fingerprint", value))
    return written if len(written) < 200 else sha256_bytes(written.encode())


def _as_judged(run: pd.DataFrame, qrels: Qrels, retriever: Retriever) -> pd.DataFrame:
    """The run with wholes in place of those pieces that nobody judged, each at its best rank."""
    judged = set().union(*qrels.values())
    unjudged = [pid for pid in run["pid"].unique() if pid not in judged]
    passages = retriever.store.get_many(unjudged)
    whole_of = {p.pid: p.meta["whole"] for p in passages if "whole" in p.meta}
    pids = [whole_of.get(pid, pid) for pid in run["pid"]]
    return run.assign(pid=pids).sort_values("rank").drop_duplicates(["qid", "pid"])


def _measured(
    arm: str, run: pd.DataFrame, questions: Sequence[Question], qrels: Qrels, measures: list
) -> pd.DataFrame:
    """``arm, qid, metric, value`` of every question, 0 where nothing was retrieved."""
    import ir_measures

    # Minus the rank: a measure must not re-break ties that the index has broken.
    ranked = {
        qid: dict(zip(group["pid"], -group["rank"].to_numpy(float), strict=True))
        for qid, group in run.groupby("qid")
    }
    asked = {question.qid: qrels[question.qid] for question in questions}
    found = {
        (row.query_id, str(row.measure)): row.value
        for row in ir_measures.iter_calc(measures, asked, ranked)
    }
    keys = [(qid, str(measure)) for measure in measures for qid in asked]
    rows = [(arm, *key, found.get(key, 0.0)) for key in keys]
    return pd.DataFrame(rows, columns=VALUES)


def _answered(
    arm: str,
    run: pd.DataFrame,
    questions: Sequence[Question],
    retriever: Retriever,
    reader: Reader,
    k: int,
) -> pd.DataFrame:
    """``arm, qid, metric, value``: 1 where the reader answers rightly from the first k passages."""
    first = run[run["rank"] <= k]
    found = {qid: group["pid"].tolist() for qid, group in first.groupby("qid")}
    contexts = [retriever.store.get_many(found.get(question.qid, [])) for question in questions]
    answers = reader.answer_all(questions, contexts)
    rows = [
        (arm, question.qid, "accuracy", float(question.is_right(answer.letter)))
        for question, answer in zip(questions, answers, strict=True)
    ]
    return pd.DataFrame(rows, columns=VALUES)


def _compared(
    values: pd.DataFrame, arms: Sequence[str], baseline: str, correction: str
) -> pd.DataFrame:
    """Means with intervals, and every arm against the baseline (see ``evaluate``)."""
    from statsmodels.stats.multitest import multipletests

    rows = []
    for metric, outcomes in values.groupby("metric", sort=False):
        wide = outcomes.pivot(index="qid", columns="arm", values="value")
        for arm in arms:
            own = wide[arm].to_numpy()
            row = [arm, metric, len(own), *mean_interval(own)]
            if arm != baseline:
                test = paired(own, wide[baseline].to_numpy())
                row += [baseline, *(test[name] for name in ("difference", "low", "high", "p"))]
            rows.append(dict(zip(TESTED, row, strict=False)))  # the baseline has no test
    table = pd.DataFrame(rows, columns=TESTED)
    p = table["p"].dropna().astype(float)
    adjusted = multipletests(p, method=correction)[1] if correction != "none" and len(p) else p
    table["p_corrected"] = pd.Series(adjusted, p.index)
    return table
