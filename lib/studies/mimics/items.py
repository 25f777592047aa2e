"""Every question's pair of hypotheses as numbers that need no grader: the automatic proxies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from lib.data.questions import Question
from lib.methods.base import Expansion, question_alone
from lib.search.contrast import cosine
from lib.studies.grid.experiment import Experiment
from lib.studies.naming import YES_NO, named_option
from lib.ways import Hypotheses

__all__ = ["collapses", "copied", "expanded", "items"]


def expanded(experiment: Experiment, arm: str) -> list[tuple[str, Question, Expansion]]:
    """(set, question, expansion) of every question of an arm whose expansion did not fail."""
    grid = experiment.grid
    return [
        (d, q, e)
        for d in grid.sets
        for q, e in zip(grid.questions(arm, d), grid.expansions(arm, d), strict=True)
        if e.request
    ]


def copied(text: str, source: str, n: int = 3) -> float:
    """The share of the text's n-word sequences that stand in ``source`` too; 0 for short texts."""
    split = ("".join(c.lower() if c.isalnum() else " " for c in t).split() for t in (text, source))
    own, other = ({tuple(w[i : i + n]) for i in range(len(w) - n + 1)} for w in split)
    return len(own & other) / max(len(own), 1)


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
    Standard RAG's), kept and collapsed.
    """
    rows = []
    for dataset, q, e in expanded(experiment, "chr"):
        yes_no = {o.lower() for o in q.options.values()} <= YES_NO
        row = {"dataset": dataset, "qid": q.qid, "exam": not yes_no}
        for side in ("plus", "minus"):
            text = e.trace[f"H_{side}"]
            letter = named_option(text, q.options)
            row |= {
                f"{side}_option": letter,
                f"{side}_right": letter == q.answer if letter else None,
            }
        rows.append(row | _measured(experiment, q, e.request, targets.get(q.qid)))
    if not rows:
        raise ValueError("no question has hypotheses that could be read; see 02_hypotheses")
    return pd.DataFrame(rows)


def _measured(
    experiment: Experiment, question: Question, pair: Hypotheses, relevant: frozenset | None
) -> dict[str, float]:
    """What the vectors say of one question."""
    retriever, k = experiment.grid.retriever, experiment.grid.k
    (plus,), (minus,) = pair.of("target"), pair.of("mimic")
    lambdas = {"hplus": 0.0, "chosen": experiment.lam, "one": 1.0}
    searches = {at: pair.by(lam=lam) for at, lam in lambdas.items()}
    searches["minus"] = Hypotheses((replace(minus, role="target"),))
    searches["standard"] = question_alone(question)
    top = {
        at: [] if isinstance(hits, str) else hits.rows[0].tolist()
        for at, hits in zip(searches, retriever.search_many([*searches.values()], k), strict=True)
    }
    known = retriever.vectors([])
    (stem,) = searches["standard"].texts
    h_plus, h_minus, asked = (known[t.tower, t.text][None] for t in (plus, minus, stem))
    row = {"c": float(cosine(h_plus, h_minus)[0]), "copied": copied(minus.text, plus.text)}
    row["shared"] = len({*top["hplus"]} & {*top["minus"]}) / k
    for at in ("standard", *lambdas):
        near = retriever.index.score(asked, np.array(top[at])).mean() if top[at] else np.nan
        row[f"near_{at}"] = float(near)
    for at in lambdas:
        ids = retriever.index.ids[top[at]].tolist() if top[at] else []
        row[f"p_{at}"] = sum(p in relevant for p in ids) / k if relevant else np.nan
        row[f"kept_{at}"] = kept = len({*top["hplus"]} & {*top[at]}) / k
        row[f"collapsed_{at}"] = collapses(row["shared"], kept)
    return row
