"""An evaluation of your own in one call: methods, a grid of lambdas, measures, tests, kept runs.

``evaluate`` searches every method for every question, measures each ranked list with ir-measures
and compares every arm with a baseline, question by question. With a folder, each arm's run is kept
in TREC's form: a run that was stopped goes on with the first arm that is not there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from lib.base.files import atomic_write, canonical_json, read_manifest, sha256_bytes, write_manifest
from lib.base.parameters import check_lam
from lib.datasets import Question
from lib.expansion import execute, expand_all
from lib.forms import Qrels, read_trec_run, write_qrels, write_trec_run
from lib.llm.chat import ChatModel
from lib.llm.connect import connect
from lib.methods import METHODS, Method
from lib.run import Retriever
from lib.stats import mean_interval, paired

CORRECTIONS = ("holm", "bonferroni", "fdr_bh", "none")


@dataclass(frozen=True)
class Evaluation:
    """``table``: a row an arm and measure; ``values``: every outcome, arm, qid, metric, value;
    ``runs``: every ranked list, as ``lib.run.RUN_COLUMNS``; ``failed``: by arm and question, why
    nothing was retrieved."""

    table: pd.DataFrame
    values: pd.DataFrame
    runs: pd.DataFrame
    failed: Mapping[str, Mapping[str, str]]

    def _repr_html_(self) -> str:
        return self.table.to_html(index=False, float_format="{:.3f}".format)


def evaluate(
    retriever: Retriever,
    questions: Sequence[Question],
    qrels: Qrels,
    *,
    methods: Iterable[str | Method] = ("standard", "bm25"),
    lambdas: Sequence[float] = (),
    measures: Sequence[str] = ("P@5", "R@10", "nDCG@10", "RR"),
    baseline: str = "",
    correction: str = "holm",
    llm: ChatModel | str | None = None,
    depth: int = 100,
    folder: str | Path | None = None,
    progress: bool = True,
) -> Evaluation:
    """Search, measure and compare; see ``Evaluation`` for what comes back.

    A method that has a lambda gives one arm for each of ``lambdas``, called "<method>@<lambda>";
    without lambdas its own. ``baseline`` is an arm (default: the first). ``llm`` writes what
    methods ask for: a model, or a spec for ``lib.llm.connect``; what it says is kept in ``folder``.
    ``measures`` are names of ir-measures. A question that retrieved nothing scores 0 and is counted
    in ``failed``; questions without a judgment are left out, and their number is printed. Of a
    corpus that was cut (``lib.corpus.cut_passages``), a piece counts as the passage it is of, once,
    where passages are judged whole; the runs name the pieces.

    The table's columns: arm, metric, n, value, low, high (95 % bootstrap over questions), baseline,
    difference, difference_low, difference_high, p (paired sign-flip test) and p_corrected, over all
    comparisons of the table. ValueError for what is unknown, before anything is searched.
    """
    arms = _arms(methods, lambdas)
    baseline = baseline or next(iter(arms))
    if baseline not in arms:
        raise ValueError(f"no arm {baseline!r} to compare with; there are: {', '.join(arms)}")
    if correction not in CORRECTIONS:
        raise ValueError(f"no correction {correction!r}; there are: {', '.join(CORRECTIONS)}")
    parsed = _measures(measures)
    asked = [question for question in questions if qrels.get(question.qid)]
    if not asked:
        raise ValueError("no question has a judgment: the ids of questions and qrels share none")
    if progress and len(asked) < len(questions):
        left = len(questions) - len(asked)
        print(f"{left:,} of {len(questions):,} questions have no judgment", file=sys.stderr)
    home = Path(folder).expanduser() if folder else None
    if home:
        write_qrels(home / "qrels.txt", qrels)
    if isinstance(llm, str):
        at = f"record:{(home / 'replies.jsonl').resolve()}=" if home and ":" in llm else ""
        llm = connect(f"{at}{llm}" if not llm.startswith(("record:", "replay:")) else llm)

    runs, failed = {}, {}
    for number, (arm, method) in enumerate(arms.items(), 1):
        if progress:
            print(f"[{number} of {len(arms)}] {arm}", file=sys.stderr, flush=True)
        runs[arm], failed[arm] = _searched(arm, method, asked, retriever, llm, depth, home)
    values = pd.concat(
        [
            _measured(arm, _as_judged(run, qrels, retriever), asked, qrels, parsed)
            for arm, run in runs.items()
        ],
        ignore_index=True,
    )
    table = _compared(values, list(arms), [str(m) for m in parsed], baseline, correction)
    if home:
        atomic_write(home / "table.csv", table.to_csv(index=False))
    return Evaluation(table, values, pd.concat(runs.values(), ignore_index=True), failed)


def _arms(methods: Iterable[str | Method], lambdas: Sequence[float]) -> dict[str, Method]:
    """The arms by name, a method with a lambda at each of the lambdas."""
    arms: dict[str, Method] = {}
    for named in methods:
        if isinstance(named, str):
            if named not in METHODS:
                raise ValueError(f"no method {named!r}; there are: {', '.join(METHODS)}")
            named = METHODS[named]
        # H+ alone is a method with a lambda, which is always 0.
        has_lambda = hasattr(named, "lam") and named.name != "hplus"
        if not (has_lambda and lambdas):
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
        "settings": {name: repr(value) for name, value in asdict(method).items()},
        "questions": sha256_bytes(canonical_json([asdict(q) for q in questions]).encode()),
        "passages": retriever.store.content,
        "encoder": retriever.encoder.fingerprint,
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
    failed = {qid: trace["error"] for qid, trace in traces.items() if trace.get("error")}
    if file:
        write_trec_run(file, run)
        write_manifest(file, rows=len(run), settings=settings | {"failed": failed})
    return run, failed


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
    qids = [question.qid for question in questions]
    found = {
        (row.query_id, str(row.measure)): row.value
        for row in ir_measures.iter_calc(measures, {qid: qrels[qid] for qid in qids}, ranked)
    }
    rows = [
        (arm, qid, str(measure), found.get((qid, str(measure)), 0.0))
        for measure in measures
        for qid in qids
    ]
    return pd.DataFrame(rows, columns=["arm", "qid", "metric", "value"])


def _compared(
    values: pd.DataFrame,
    arms: Sequence[str],
    metrics: Sequence[str],
    baseline: str,
    correction: str,
) -> pd.DataFrame:
    """Means with intervals, and every arm against the baseline (see ``evaluate``)."""
    from statsmodels.stats.multitest import multipletests

    wide = values.pivot(index="qid", columns=["metric", "arm"], values="value")
    rows = []
    for metric in metrics:
        other = wide[metric, baseline].to_numpy()
        for arm in arms:
            own = wide[metric, arm].to_numpy()
            value, low, high = mean_interval(own)
            row = {"arm": arm, "metric": metric, "n": len(own)}
            row |= {"value": value, "low": low, "high": high}
            if arm != baseline:
                test = paired(own, other)
                row |= {"baseline": baseline, "difference": test["difference"]}
                row |= {"difference_low": test["low"], "difference_high": test["high"]}
                row |= {"p": test["p"]}
            rows.append(row)
    columns = ["arm", "metric", "n", "value", "low", "high", "baseline", "difference"]
    columns += ["difference_low", "difference_high", "p"]
    table = pd.DataFrame(rows, columns=columns)
    tested = table["p"].notna()
    table["p_corrected"] = np.nan
    if tested.any():
        p = table.loc[tested, "p"]
        corrected = p if correction == "none" else multipletests(p, method=correction)[1]
        table.loc[tested, "p_corrected"] = corrected
    return table
