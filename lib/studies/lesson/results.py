"""The lesson as results of a profile: means, claims and the gap, each beside its origin."""

from __future__ import annotations

import csv
from collections.abc import Mapping

import pandas as pd

from lib.base.downloads import load_registry
from lib.base.paths import DATA
from lib.base.provenance import make_all_or_reuse, make_or_reuse
from lib.data.looks import note_look
from lib.datasets import load_real
from lib.index_build import files_of
from lib.profiles import Profile
from lib.run import Retriever
from lib.studies.grid.long_tables import means_table
from lib.studies.lesson.study import (
    DEPTH,
    KINDS,
    METRICS,
    arms_under,
    closeness,
    gain_by_kind,
    lesson_claims,
    lesson_values,
)
from lib.studies.real.study import experts_passages, recorded
from lib.studies.real.written import written_for

KINDS_FILE = "judgments/question_kinds.csv"
TABLES = ("hyde_lesson_values", "hyde_lesson", "hyde_lesson_claims", "hyde_lesson_gap")
"""Every outcome; means in the form of Table 1; the claims; what is near to what."""


def read_kinds() -> dict[str, str]:
    """ "lookup" or "reasoning" by question id, where both readers say the same."""
    with open(DATA / KINDS_FILE, encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    return {row["qid"]: row["first"] for row in rows if row["first"] == row["second"]}


def lesson_table(values: pd.DataFrame, kinds: Mapping[str, str], setup: str) -> pd.DataFrame:
    """The mean of every arm, right, wrong and mixed, of all questions and of each kind.

    One value a row, in the columns of Table 1 (``lib.studies.grid.long_tables.COLUMNS``): the
    dataset is "bioasq", or "bioasq, lookup" and "bioasq, reasoning".
    """
    everything = arms_under(values)
    parts = {"bioasq": everything}
    for kind in KINDS:
        parts[f"bioasq, {kind}"] = everything[everything["qid"].map(kinds) == kind]
    named = [part.assign(dataset=dataset) for dataset, part in parts.items()]
    return means_table(pd.concat(named), setup)


def lesson_results(profile: Profile, retriever: Retriever) -> dict[str, pd.DataFrame]:
    """``TABLES`` by name, kept as results of the profile; what is stored and holds is reused."""
    recordings = "recordings/real-hyde.jsonl.gz"
    origin = {
        "code": ["lib.studies.lesson"],
        "data": [*files_of(profile.corpora), *load_registry("bioasq-"), recordings, KINDS_FILE],
        "encoder": retriever.encoder.fingerprint,
        "limit": profile.limit,
        "k": DEPTH,
    }

    questions = [q for q in load_real("test") if q.dataset == "bioasq"]
    written = written_for(questions, recorded(), retriever)["hyde"]
    passages = {
        q.qid: [t.text for t in written[q.qid].request.texts if t.role == "passage"]
        for q in questions
    }
    targets = experts_passages(retriever.store)

    def looked_at() -> pd.DataFrame:
        table = lesson_values(questions, passages, targets, retriever)
        note_look("hyde lesson", "bioasq", table["qid"], profile.name, table["arm"])
        return table

    def told() -> dict[str, pd.DataFrame]:
        near = closeness(questions, passages, targets, retriever)
        kinds = read_kinds()
        setup = f"{profile.name}, {retriever.encoder.name}, recorded passages, k = {DEPTH}"
        tables = (
            lesson_table(values, kinds, setup),
            _claims(values, near, kinds),
            near.melt(["qid", "searched_with"], var_name="to", value_name="cosine"),
        )
        return dict(zip(TABLES[1:], tables, strict=True))

    values = make_or_reuse(looked_at, TABLES[0], profile.name, dear=True, **origin)
    return {TABLES[0]: values} | make_all_or_reuse(told, TABLES[1:], profile.name, **origin)


def _claims(values: pd.DataFrame, near: pd.DataFrame, kinds: Mapping[str, str]) -> pd.DataFrame:
    """``lesson_claims``, and below them whether reasoning gains more than lookups."""
    found = lesson_claims(values, near, kinds)
    more = gain_by_kind(values, kinds)
    n = more.pop("n_lookup") + more.pop("n_reasoning")
    claim = "a passage gains more on reasoning than on lookups"
    row = {"claim": claim, "metric": METRICS[0], "arm": "passage", "against": "question"}
    last = pd.DataFrame([row | more | {"n": n, "kind": "reasoning minus lookup"}])
    shown = [c for c in found if c not in ("p", "p_holm", "verdict", "status", "least")]
    return pd.concat([found[shown], last], ignore_index=True)
