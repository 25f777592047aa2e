"""The real sample, put together: texts, what they retrieve, labels, outcomes, and the tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from lib.base.downloads import load_registry
from lib.base.paths import DATA, RECORDINGS
from lib.base.provenance import read_result, write_result
from lib.benchmarks import ddx_mini
from lib.data.judgments import HELPFUL, JUDGMENTS, evidence, read_judgments
from lib.data.looks import note_look
from lib.data.store import PassageStore
from lib.datasets import GROUPS, Question, Split, load_questions, load_real
from lib.index_build import files_of
from lib.llm.recorder import Recorder
from lib.methods.base import Expansion
from lib.profiles import Profile
from lib.run import Retriever
from lib.studies.real.arms import Arm, added_arms, arms_of
from lib.studies.real.cases import case_counts, case_table, case_texts
from lib.studies.real.choice import choices, lambda_table, least_differences
from lib.studies.real.measures import headroom, own_answers, values_of
from lib.studies.real.probes import known_by_heart, options_read
from lib.studies.real.quality import (
    Key,
    Plant,
    Row,
    agreement,
    helpful_passages,
    is_instrument,
    known_truth,
    planted_errors,
    read_plants,
)
from lib.studies.real.tables import arm_table, claims_table, lambda_rows, purity_table
from lib.studies.real.texts import WRITER
from lib.studies.real.texts_table import texts_table
from lib.studies.real.where import about_questions, where_table
from lib.studies.real.written import runs_of, written_for


@dataclass(frozen=True)
class Sample:
    """One half of the real sample, searched and measured.

    ``written`` are the expansions by kind and question id, ``runs`` ranked lists
    (``written.RUN_COLUMNS``), ``values`` every outcome (``dataset, arm, qid, metric, value``).
    """

    split: Split
    questions: Sequence[Question]
    written: Mapping[str, Mapping[str, Expansion]]
    runs: pd.DataFrame
    values: pd.DataFrame


def recorded() -> Recorder:
    """The recordings of the real sample, as a chat model that replays them."""
    return Recorder(None, RECORDINGS / "real-*.jsonl.gz", "replay", name=WRITER)


def open_sample(split: Split, retriever: Retriever, arms: Mapping[str, Sequence[Arm]]) -> Sample:
    """Retrieve with the arms of each group whose texts are recorded, and measure."""
    questions = load_real(split)
    written = written_for(questions, recorded(), retriever)
    runs = runs_of(questions, written, arms, retriever)
    targets = gold_passages(retriever.store)
    values = values_of(questions, runs, evidence(read_judgments()), targets)
    return Sample(split, questions, written, runs, values)


def dev_results(profile: Profile, retriever: Retriever) -> dict[str, pd.DataFrame]:
    """What dev says: which lambda, how firmly, and the least difference each test could show.

    Tables by name: ``real_dev_lambda``, ``real_least``, ``real_dev`` (the mean of every arm:
    on dev nothing is tested). They are kept as results of the profile.
    """
    values = open_sample("dev", retriever, dict.fromkeys(GROUPS, arms_of())).values
    table = lambda_table(values)
    chosen = choices(table)
    # On BioASQ nothing has to be judged, so the controls at the chosen lambda are measured too.
    more = [arm for arm in arms_of(chosen["bioasq"]) if arm not in arms_of()]
    if more:
        controls = open_sample("dev", retriever, {"exams": [], "bioasq": more}).values
        values = pd.concat([values, controls], ignore_index=True)
    asked = load_real("test")
    n = {group: sum(q.dataset in sets for q in asked) for group, sets in GROUPS.items()}
    means = values.groupby(["dataset", "arm", "metric"])["value"].agg(["mean", "size"])
    tables = {
        "real_dev_lambda": table,
        "real_least": least_differences(values, chosen, n),
        "real_dev": means.reset_index().rename(columns={"mean": "value", "size": "n"}),
    }
    for name, one in tables.items():
        keep(one, name, profile, retriever)
    return tables


def results_of_test(profile: Profile, retriever: Retriever) -> dict[str, pd.DataFrame]:
    """The tables of the test half, by name, kept as results of the profile.

    ``values_real`` (every outcome), ``real_arms`` (means), ``real_purity`` (of the passages that
    speak, those for the right option), ``real_lambda`` (curves),
    ``claims_real``, ``real_where`` (the difference on parts), ``real_cases`` with
    ``real_case_texts`` and ``real_case_counts``, and ``real_texts``. Lambdas are those of the
    stored ``real_dev_lambda``; exams have verdicts only if the stored ``judge_quality`` of the test
    half allows them.
    """
    chosen = choices(read_result("real_dev_lambda", profile.name)[0])
    quality, _ = read_result("judge_quality", profile.name)
    arms = {group: arms_of(lam) for group, lam in chosen.items()}
    arms["bioasq"] += added_arms()
    sample = open_sample("test", retriever, arms)
    asked = [question.qid for question in sample.questions]
    note_look("real", "real", asked, profile.name, sample.values["arm"], declared=True)
    judged = evidence(read_judgments())
    hypotheses = sample.written["hypotheses"]
    read = options_read(hypotheses, recorded())
    beside = [headroom(sample.questions, judged), own_answers(sample.questions, read)]
    values = pd.concat([sample.values, *beside], ignore_index=True)
    table = arm_table(values)
    instrument = is_instrument(quality[quality["split"] == "test"])
    about = about_questions(
        sample.questions, hypotheses, read, known_by_heart(hypotheses, recorded()), retriever
    )
    cases = case_table(sample.questions, sample.runs, sample.values, judged)
    tables = {
        "values_real": values,
        "real_purity": purity_table(sample.values),
        "real_arms": table,
        "real_lambda": lambda_rows(table, chosen),
        "claims_real": claims_table(sample.values, chosen, instrument),
        "real_where": where_table(sample.values, about),
        "real_cases": cases,
        "real_case_texts": case_texts(cases, hypotheses),
        "real_case_counts": case_counts(sample.values),
        "real_texts": texts_table(sample.questions, sample.written),
    }
    for name, one in tables.items():
        keep(one, name, profile, retriever)
    return tables


def quality_results(profile: Profile, retriever: Retriever) -> pd.DataFrame:
    """``judge_quality`` of both halves, by ``split``, kept as a result of the profile."""
    halves = [judge_quality(half, retriever.store).assign(split=half) for half in ("dev", "test")]
    table = pd.concat(halves, ignore_index=True)
    keep(table, "judge_quality", profile, retriever)
    return table


def keep(table: pd.DataFrame, name: str, profile: Profile, retriever: Retriever) -> None:
    """Write a table as a result of the profile, with all that it depends on."""
    recordings = sorted(RECORDINGS.glob("real-*.jsonl.gz"))
    ours = [path.relative_to(DATA).as_posix() for path in (*recordings, JUDGMENTS, HELPFUL)]
    sets = [name for group in GROUPS.values() for d in group for name in load_registry(f"{d}-")]
    write_result(
        table,
        name,
        profile.name,
        code=["lib.studies.real"],
        data=[*files_of(profile.corpora), *sets, *ours],
        encoder=retriever.encoder.fingerprint,
        limit=profile.limit,
    )


def gold_passages(store: PassageStore) -> dict[str, frozenset[str]]:
    """The passages that BioASQ's experts gave, by question id."""
    found = defaultdict(set)
    for passage in store:
        if passage.pid.startswith("bioasq:"):
            for qid in passage.meta["qids"]:
                found[qid].add(passage.pid)
    return {qid: frozenset(pids) for qid, pids in found.items()}


def judge_quality(split: Split, store: PassageStore) -> pd.DataFrame:
    """Everything that tells whether the judge of a half is an instrument (see ``quality``).

    Columns: check, label, value, low, high, n. The sets of known truth were judged once, with dev,
    and stand there alone; whether BioASQ's labels are complete stands with test.
    """
    rows = read_judgments()
    of_split = {question.qid: question for question in load_real(split)}
    own = [row for row in rows if row["qid"] in of_split]
    plants: list[Plant] = [plant for plant in read_plants() if plant.qid in of_split]
    alone = agreement(own, of_split, "single")
    parts = [agreement(own, of_split), alone, planted_errors(own, plants)]
    if split == "test":
        parts.append(helpful_passages(gold_passages(store)))
    else:
        known, classes = _known(rows, store)
        judged = [row for row in rows if (row["qid"], row["pid"]) in classes]
        parts.append(known_truth(judged, known, classes))
    return pd.concat(parts, ignore_index=True)


def _known(
    rows: Sequence[Row], store: PassageStore
) -> tuple[dict[str, Question], Mapping[Key, str]]:
    """Questions whose passages have known classes, and the class of each one judged."""
    questions = {q.qid: q for q in load_questions("ddx-mini") + load_questions("bioasq")}
    of_mini = {(row["qid"], row["pid"]): row["class"] for row in ddx_mini.read("qrels")}
    experts = gold_passages(store)
    classes = {}
    for row in rows:
        key = (row["qid"], row["pid"])
        question = questions.get(row["qid"])
        if question is None:
            continue
        if question.dataset == "bioasq":
            classes[key] = "expert" if row["pid"] in experts[row["qid"]] else "other"
        else:
            classes[key] = of_mini.get(key, "neither")
    return questions, classes
