"""Is the finding the encoder's or the rule's? The same arms on BioASQ's own snippets, encoder by
encoder.

On BioASQ the experts' passages are the labels, so nothing has to be judged. The 21,231 snippets are
embedded by another encoder, and the texts of the real sample searched there: ``make figures
PROFILE=open ENCODER=mpnet``.
"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from lib.base.provenance import read_result
from lib.data.looks import note_look
from lib.datasets import Split, load_real
from lib.embed import load_encoder
from lib.open_retriever import open_retriever
from lib.profiles import Profile
from lib.stats import Pair, claims
from lib.studies.real.arms import arms_of
from lib.studies.real.choice import choices
from lib.studies.real.measures import values_of
from lib.studies.real.study import gold_passages, keep, recorded
from lib.studies.real.tables import arm_table
from lib.studies.real.written import runs_of, written_for


def bioasq_values(profile: Profile, encoder: str, split: Split, chosen: float) -> pd.DataFrame:
    """Outcomes of every arm on BioASQ's snippets alone (see ``measures.values_of``).

    ``chosen`` is the lambda that dev chose with the profile's own encoder: nothing is tuned anew.
    CSQE and ThinkQE are left out: their requests hold what the profile's own encoder found, and
    nobody wrote for what another one finds.
    """
    retriever = _snippets(profile, encoder)
    questions = [q for q in load_real(split) if q.dataset == "bioasq"]
    written = written_for(questions, recorded(), retriever)
    arms = {"exams": [], "bioasq": arms_of(chosen)}
    runs = runs_of(questions, written, arms, retriever)
    return values_of(questions, runs, {}, gold_passages(retriever.store))


def compared(values: pd.DataFrame) -> pd.DataFrame:
    """Every arm's mean, and its paired difference from H+ alone: arm, metric, value, low, high, n,
    difference, difference_low, difference_high."""
    table = arm_table(values).drop(columns="dataset")
    pairs = [
        Pair("", row.metric, row.arm, "hplus") for row in table.itertuples() if row.arm != "hplus"
    ]
    tested = claims(values, pairs)[["arm", "metric", "difference", "low", "high"]]
    tested = tested.rename(columns={"low": "difference_low", "high": "difference_high"})
    return table.merge(tested, on=["arm", "metric"], how="left")


def measure_encoder(profile: Profile, encoder: str) -> pd.DataFrame:
    """``compared`` of the profile's own encoder and of another, by ``encoder``; kept as
    ``real_<encoder>``, and every outcome as ``values_real_<encoder>``."""
    chosen = choices(read_result("real_dev_lambda", profile.name)[0])["bioasq"]
    parts, outcomes = [], []
    for name in (profile.encoder, encoder):
        values = bioasq_values(profile, name, "test", chosen)
        note_look(f"real, {encoder}", "bioasq", values["qid"], profile.name, values["arm"])
        parts.append(compared(values).assign(encoder=name))
        outcomes.append(values.assign(encoder=name))
    table = pd.concat(parts, ignore_index=True)
    searched = _snippets(profile, encoder)
    keep(pd.concat(outcomes, ignore_index=True), f"values_real_{encoder}", profile, searched)
    keep(table, f"real_{encoder}", profile, searched)
    return table


def _snippets(profile: Profile, encoder: str):
    whole = replace(profile, limit=0)
    return open_retriever(whole, load_encoder(encoder), ("bioasq",))
