"""Every question's pair of hypotheses as numbers that need no grader: the automatic proxies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from lib.benchmarks.base import shared_ngrams
from lib.datasets import Question
from lib.llm.recorder import RecordingMiss
from lib.methods.base import Expansion, question_alone
from lib.query_spec import Hypotheses
from lib.search.contrast import cosine
from lib.studies.main_tables.experiment import Experiment
from lib.studies.naming import YES_NO, named_option

_EMPTY = {
    **dict.fromkeys(("dataset", "qid", "plus_option", "minus_option"), str),
    **dict.fromkeys(("exam", "collapsed_hplus", "collapsed_chosen", "collapsed_one"), bool),
    **dict.fromkeys(("plus_right", "minus_right"), object),
    **dict.fromkeys(("c", "copied", "shared", "near_standard"), float),
    **dict.fromkeys(("near_hplus", "near_chosen", "near_one"), float),
    **dict.fromkeys(("p_hplus", "p_chosen", "p_one"), float),
    **dict.fromkeys(("kept_hplus", "kept_chosen", "kept_one"), float),
}
"""The columns of a table of items without rows."""

_COPIED_WORDS = 3
"""Words in a row that count as copied from one hypothesis into the other."""


def expanded(experiment: Experiment, arm: str) -> list[tuple[str, Question, Expansion]]:
    """(set, question, expansion) of every question of an arm whose expansion did not fail.

    A set that nobody recorded, and so is NOT RUN, has none.
    """
    grid = experiment.grid
    found = []
    for dataset in grid.sets:
        questions = grid.questions(arm, dataset)
        try:
            expansions = grid.expansions(arm, dataset)
        except RecordingMiss:
            continue
        for question, expansion in zip(questions, expansions, strict=True):
            if expansion.request:
                found.append((dataset, question, expansion))
    return found


def collapses(shared: float, kept: float) -> bool:
    """Co-occurrence collapse: more than half of H+'s top k is H-'s too, and less than half is left.

    With T+, T- and T(lambda) the top k by h+, by h- and by h+ - lambda h-: shared = |T+ and T-| / k
    > 1/2, the corpus tells both stories in the same passages, and kept = |T+ and T(lambda)| / k
    < 1/2, contrast gave them up. No relevance judgment and no answer enter.
    """
    return shared > 0.5 and kept < 0.5


def items(experiment: Experiment, targets: Mapping[str, frozenset[str]]) -> pd.DataFrame:
    """One row a question whose hypotheses could be read, by set and id.

    dataset, qid, exam (not a yes/no question), plus_option and minus_option (the letter of the only
    option that H+ or H- names, else ""), plus_right and minus_right (is it the key? missing without
    one), c = cos(h+, h-), copied (H- out of H+, three words at a time), shared (see ``collapses``).
    Then at H+ only (hplus), the reader's lambda (chosen) and lambda = 1 (one): p (P@k; missing
    where ``targets`` knows nothing), near (mean cosine of the top k and the question; also of
    Standard RAG's), kept and collapsed. No row where no hypotheses could be read.
    """
    rows = []
    for dataset, question, expansion in expanded(experiment, "chr"):
        option_texts = {option.lower() for option in question.options.values()}
        row = {
            "dataset": dataset,
            "qid": question.qid,
            "exam": not option_texts <= YES_NO,
        }
        for side in ("plus", "minus"):
            letter = named_option(expansion.trace[f"H_{side}"], question.options)
            row[f"{side}_option"] = letter
            row[f"{side}_right"] = letter == question.answer if letter else None
        relevant = targets.get(question.qid)
        rows.append(row | _measured(experiment, question, expansion.request, relevant))
    if not rows:
        return pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in _EMPTY.items()})
    return pd.DataFrame(rows)


def _measured(
    experiment: Experiment, question: Question, pair: Hypotheses, relevant: frozenset | None
) -> dict[str, float]:
    """The proxies of one question that come from its texts, vectors and searches."""
    retriever, k = experiment.grid.retriever, experiment.grid.k
    (plus,) = pair.of("target")
    (minus,) = pair.of("mimic")
    asked = question_alone(question)
    lambdas = {"hplus": 0.0, "chosen": experiment.lam, "one": 1.0}

    searches = {name: pair.by(lam=lam) for name, lam in lambdas.items()}
    searches["minus"] = Hypotheses((replace(minus, role="target"),))
    searches["standard"] = asked
    results = retriever.search_many([*searches.values()], k)
    top = {}
    for name, hits in zip(searches, results, strict=True):
        # A text in place of hits says why nothing could be ranked.
        top[name] = [] if isinstance(hits, str) else hits.ids[0].tolist()

    (stem,) = asked.texts
    known = retriever.vectors([plus, minus, stem])
    h_plus = known[plus.tower, plus.text][None]
    h_minus = known[minus.tower, minus.text][None]
    q = known[stem.tower, stem.text][None]

    def kept_of_hplus(name: str) -> float:
        return len(set(top["hplus"]) & set(top[name])) / k

    row = {
        "c": float(cosine(h_plus, h_minus)[0]),
        "copied": shared_ngrams(minus.text, [plus.text], _COPIED_WORDS),
        "shared": kept_of_hplus("minus"),
    }
    for name in ("standard", *lambdas):
        near = retriever.index.score(q, top[name]).mean() if top[name] else np.nan
        row[f"near_{name}"] = float(near)
    for name in lambdas:
        hits = sum(pid in relevant for pid in top[name]) if relevant else np.nan
        row[f"p_{name}"] = hits / k
        row[f"kept_{name}"] = kept_of_hplus(name)
        row[f"collapsed_{name}"] = collapses(row["shared"], row[f"kept_{name}"])
    return row
