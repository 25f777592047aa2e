"""What a notebook shows of a study: one question's passages, some curves."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pandas as pd

from lib.base.parameters import check_lam, check_number, refuse_unknown
from lib.query_spec import SearchSpec
from lib.search.contrast import rotation
from lib.stats import class_of
from lib.studies.lambda_sweep.arms import Arm
from lib.studies.lambda_sweep.study import Study, found_by
from lib.studies.lambda_sweep.tables import spectrum_table


def _top(study: Study, qid: str, lam: float, depth: int) -> list[str]:
    return found_by(study, Arm(SearchSpec(lam=lam)), [qid], depth=depth).get(qid, [])


def _class(study: Study, qid: str, pid: str) -> str:
    benchmark = study.benchmark
    return class_of(pid, benchmark.targets[qid], benchmark.mimics[qid])


def top_table(study: Study, qid: str, lambdas: Sequence[float]) -> pd.DataFrame:
    """The top k of one question at several lambdas: lambda, rank, class, title, how it begins."""
    rows = []
    for lam in lambdas:
        passages = study.retriever.store.get_many(_top(study, qid, lam, study.k))
        for rank, passage in enumerate(passages, 1):
            shown = passage.title or passage.text[:60]
            rows.append((lam, rank, _class(study, qid, passage.pid), shown, passage.pid))
    return pd.DataFrame(rows, columns=["lambda", "rank", "class", "passage", "pid"])


def pair_table(study: Study, lam: float) -> pd.DataFrame:
    """Every question's pair: c = cos(h+, h-), and the query's turn in degrees at two lambdas."""
    lam = check_lam(lam)
    cosines = study.cosines(study.benchmark.qids)
    turns = {f"turn at {x:g}": rotation(cosines, x) for x in (lam, 1.0)}
    return pd.DataFrame({"qid": study.benchmark.qids, "c": cosines} | turns)


def curves_of(curves: pd.DataFrame, wanted: Mapping[str, str | tuple[str, str]]) -> pd.DataFrame:
    """Some curves under the names a figure gives them, with the name as first column, ``label``.

    ``wanted`` is {label: family}, or {label: (family, subset)}. A curve that a benchmark does not
    have is left out.
    """
    groups = dict(iter(curves.groupby(["family", "subset"])))
    parts = []
    for label, asked in wanted.items():
        key = (asked, "all") if isinstance(asked, str) else asked
        if key in groups:
            parts.append(groups[key].assign(label=label))
    return pd.concat(parts, ignore_index=True)[["label", *curves.columns]]


def mark_lambda(table: pd.DataFrame, lam: float) -> pd.DataFrame:
    """The table with the reader's lambda in a column, so that a figure's CSV says where it is."""
    return table.assign(lambda_marked=lam)


def spectrum_of(
    study: Study, qids: Sequence[str] | None, lam_max: float, lam: float
) -> pd.DataFrame:
    """``spectrum_table`` of some questions, the first three where None, with the reader's lambda.

    ValueError for a question that the study does not have, or a ``lam_max`` that is not above 0.
    """
    known = study.benchmark.qids
    asked = list(known[:3]) if qids is None else qids
    if isinstance(asked, str) or not isinstance(asked, Collection) or not len(asked):
        raise ValueError(f"questions must be ids in a list, such as {list(known[:3])}")
    refuse_unknown("this study has no question", asked, known)
    if check_number("lam_max", lam_max) <= 0:
        raise ValueError(f"lam_max must be above 0, not {lam_max!r}")
    return mark_lambda(spectrum_table(study, asked, lam_max), lam)


def story_rows(curves: pd.DataFrame) -> pd.DataFrame:
    """Plain CHR at three lambdas: H+ alone, these questions' own best, and the paper's 1."""
    rows = curves[(curves["family"] == "chr") & (curves["subset"] == "all")]
    best = rows.loc[rows["p_at_5"].idxmax()]
    alone, paper = (rows[rows["lambda"] == lam].iloc[0] for lam in (0, 1))
    names = ["H+ alone", "best on these questions", "the paper's"]
    picked = pd.DataFrame([alone, best, paper], index=names)
    shown = ["lambda", "p_at_5", "p_at_5_low", "p_at_5_high", "contamination_at_5"]
    return picked[[*shown, "neither_at_5", "n"]]
