"""The tables of the lambda study: every outcome of every arm, and what follows from them.

``values`` is the one table that is measured. Curves, choices and claims are functions of it, so
anyone can recompute them from the stored file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from lib.base.files import Unfinished
from lib.base.provenance import code_hash, data_hash, make_or_reuse
from lib.benchmarks.base import Benchmark
from lib.data.looks import note_look
from lib.profiles import Profile
from lib.query_spec import SearchSpec
from lib.search.contrast import hardest_tenth, spectrum
from lib.stats import CLASSES, claims, class_of, long_values, summary
from lib.studies.lambda_sweep.arms import (
    CONTROL_LAMBDAS,
    QUESTION,
    RANDOM,
    Arm,
    at_zero,
    candidates,
    families,
    family_of,
    rules,
)
from lib.studies.lambda_sweep.claims import chosen_arms, exploratory_pairs
from lib.studies.lambda_sweep.study import Study, measured
from lib.study import declared_pairs, primary_tests

CODE = ("lib.studies.lambda_sweep", "lib.index_build")
"""The modules that every result of the study depends on, with what they import."""

CHOICE = "p_at_5"
"""The metric by which dev chooses."""


def question_table(study: Study) -> pd.DataFrame:
    """What is known of each question: qid, split, c = cos(h+, h-), and who would leave it out.

    ``copied``, ``shared``, ``doubtful``, ``errata`` and ``hardest`` (the tenth of the test
    questions with the highest c) are 0 or 1.
    """
    b = study.benchmark
    table = pd.DataFrame({"qid": b.qids, "c": study.cosines(b.qids)})
    table.insert(1, "split", ["dev" if qid in b.dev else "test" for qid in b.qids])
    for mark in ("copied", "shared", "doubtful", "errata"):
        table[mark] = [int(qid in getattr(b, mark)) for qid in b.qids]
    tested = table["split"] == "test"
    table["hardest"] = 0
    table.loc[tested, "hardest"] = hardest_tenth(table.loc[tested, "c"].to_numpy()).astype(int)
    return table


def values_table(
    study: Study,
    lambdas: Sequence[float],
    dev: Mapping | None = None,
    *,
    progress: bool = False,
    unfinished: Unfinished | None = None,
) -> pd.DataFrame:
    """``arm, qid, metric, value``: what every arm scores on every question it is measured on.

    On dev questions the metric that chooses alone, for every arm that could be chosen; on test
    questions all metrics. ``dev`` names the arms chosen elsewhere, for a benchmark without dev
    questions of its own. ``progress`` shows a bar over the arms; ``unfinished`` has those that an
    earlier run measured.
    """
    from tqdm.auto import tqdm

    b = study.benchmark

    def outcomes(arm: Arm, half: str) -> pd.DataFrame:
        def make() -> list[list]:
            if half == "dev":
                table = measured(study, arm, own_dev, [CHOICE])[[CHOICE]]
            else:
                table = measured(study, arm, b.test)
            return long_values(arm.name, table).to_numpy().tolist()

        rows = unfinished.piece(f"{half} {arm.name}", make) if unfinished else make()
        return pd.DataFrame(rows, columns=["arm", "qid", "metric", "value"])

    tried, own_dev = _tried(study, lambdas), sorted(b.dev)
    parts = []
    if own_dev:
        every = {arm.name: arm for arms in tried.values() for arm in arms}
        for arm in tqdm(every.values(), f"{b.name}, dev", disable=not progress):
            parts.append(outcomes(arm, "dev"))
        dev = choose(pd.concat(parts), tried, own_dev)
    arms = test_arms(b, lambdas, dev or {})
    for arm in tqdm(arms.values(), f"{b.name}, test", disable=not progress):
        parts.append(outcomes(arm, "test"))
    return pd.concat(parts, ignore_index=True)


def _tried(study: Study, lambdas: Sequence[float]) -> dict[str, list[Arm]]:
    """Every arm that dev may choose, by form and rule."""
    tried = candidates(study.benchmark, lambdas)
    own_dev = sorted(study.benchmark.dev)
    if own_dev:
        tried |= rules(study.cosines(own_dev))
    return tried


def choose(
    values: pd.DataFrame, tried: Mapping[str, Sequence[Arm]], dev: Iterable[str]
) -> dict[str, Arm]:
    """For each form the arm with the best mean on the dev questions, the first of equals.

    Values count as the stored table has them, with 3 decimals, so that whoever chooses from the
    file chooses the same.
    """
    chosen = values[(values["metric"] == CHOICE) & values["qid"].isin(set(dev))]
    means = chosen["value"].round(3).groupby(chosen["arm"]).mean().round(9)
    return {form: max(arms, key=lambda arm: means[arm.name]) for form, arms in tried.items()}


def test_arms(
    benchmark: Benchmark, lambdas: Sequence[float], dev: Mapping[str, Arm]
) -> dict[str, Arm]:
    """Every arm that is measured on test questions, by name.

    The question alone, random passages, every family at every lambda, and what dev chose for each
    form, also at lambda 0, with the two controls at the lambda that dev chose for one mimic. Raises
    ValueError where two different ways would stand under one name.
    """
    arms = [QUESTION, RANDOM]
    for spec in families(benchmark).values():
        arms += [Arm(replace(spec, lam=float(lam))) for lam in _steps(spec, lambdas)]
    if "one mimic" in dev:
        lam = dev["one mimic"].spec.lam
        arms += [
            Arm(SearchSpec(lam=lam, rotation=True)),
            Arm(SearchSpec(lam=lam, mimic="stranger")),
        ]
    for arm in dev.values():
        arms += [arm, arm.without_mimic]
    named: dict[str, Arm] = {}
    for arm in arms:
        other = named.setdefault(arm.name, arm)
        if arm.rule is None and at_zero(arm.spec) != at_zero(other.spec):
            raise ValueError(f"two ways have the name {arm.name}: {arm.spec} and {other.spec}")
    return named


def _steps(spec: SearchSpec, lambdas: Sequence[float]) -> list[float]:
    """The lambdas at which a family is measured: a control's are fewer."""
    if Arm(replace(spec, lam=1.0)).is_control:
        return [lam for lam in lambdas if lam in CONTROL_LAMBDAS]
    return list(lambdas)


def curves(
    values: pd.DataFrame, questions: pd.DataFrame, benchmark: Benchmark, lambdas: Sequence[float]
) -> pd.DataFrame:
    """Every curve over lambda on the test questions: a row for each family, subset and lambda.

    Columns: family, subset, lambda, arm, then means as ``lib.stats.summary`` gives them,
    ``unranked`` (the share of questions whose query had no direction) and n. ``subset`` is "all",
    or for plain CHR what is left without copied texts, shared documents, known errors, or the
    hardest tenth alone.
    """
    tested = questions[questions["split"] == "test"]
    wide = values[values["qid"].isin(tested["qid"])].pivot(
        index=["arm", "qid"], columns="metric", values="value"
    )
    rows = []
    for family, lam, subset, arm, kept in _points(benchmark, tested, lambdas):
        table = wide.loc[arm.name]
        table = table[table.index.isin(kept)]
        label = {"family": family, "subset": subset, "lambda": lam, "arm": arm.name}
        rows.append(label | summary(table) | {"unranked": table["unranked"].mean()})
    return pd.DataFrame(rows)


def _points(benchmark: Benchmark, tested: pd.DataFrame, lambdas: Sequence[float]) -> Iterable:
    """(family, lambda, subset, arm, question ids) of every row of the curves."""
    everyone = set(tested["qid"])
    for arm in (QUESTION, RANDOM):
        yield arm.name, 0.0, "all", arm, everyone
    for family, spec in families(benchmark).items():
        for lam in _steps(spec, lambdas):
            yield family, lam, "all", Arm(replace(spec, lam=float(lam))), everyone
    for subset, mark, wanted in (
        ("copied text left out", "copied", 0),
        ("shared documents left out", "shared", 0),
        ("doubtful targets left out", "doubtful", 0),
        ("known errors left out", "errata", 0),
        ("hardest tenth", "hardest", 1),
    ):
        kept = set(tested.loc[tested[mark] == wanted, "qid"])
        if kept and kept != everyone:
            for lam in lambdas:
                yield family_of(SearchSpec()), lam, subset, Arm(SearchSpec(lam=float(lam))), kept


def choice_table(values: pd.DataFrame, dev: Mapping[str, Arm], qids: Iterable[str]) -> pd.DataFrame:
    """What dev chose: form, arm, lambda (missing for rules), the dev mean it was chosen for, n."""
    qids = set(qids)
    mine = values[(values["metric"] == CHOICE) & values["qid"].isin(qids)]
    means = mine.groupby("arm")["value"].mean()
    rows = [
        {
            "form": form,
            "arm": arm.name,
            "lambda": np.nan if arm.rule is not None else arm.spec.lam,
            "dev_p_at_5": means.get(arm.name, np.nan),
            "n": len(qids),
        }
        for form, arm in dev.items()
    ]
    return pd.DataFrame(rows, columns=["form", "arm", "lambda", "dev_p_at_5", "n"])


def study_results(
    study: Study, profile: Profile, elsewhere: Mapping | None = None, *, progress: bool = False
) -> dict:
    """All tables of a benchmark, kept in the profile's results and reused while they hold.

    ``values``, ``questions``, ``choices``, ``curves`` (as ``<benchmark>_lambda.csv``) and
    ``claims``; ``dev`` maps each form to the arm that was chosen. ``elsewhere`` is the ``dev`` of
    another study, for a benchmark without dev questions.
    """
    b, lambdas = study.benchmark, profile.lambdas
    stem = b.name.replace("-", "_")
    settings = {
        "k": study.k,
        "lambdas": list(lambdas),
        "encoder": study.retriever.encoder.fingerprint,
        "limit": profile.limit,
        "counts": dict(b.counts),
        "chosen": {form: arm.name for form, arm in (elsewhere or {}).items()},
        "code": [*CODE, *b.code],
        "data": b.files,
    }

    measuring = Unfinished(
        f"lambda study: {profile.name} {b.name}",
        **settings,
        made_by=[code_hash(settings["code"]), data_hash(b.files)],
    )

    def kept(make, name: str, dear: bool = False) -> pd.DataFrame:
        return make_or_reuse(make, name, profile.name, dear=dear, **settings)

    def looked_at() -> pd.DataFrame:
        table = values_table(study, lambdas, elsewhere, progress=progress, unfinished=measuring)
        declared = b.name in primary_tests()
        note_look("lambda", b.name, b.test, profile.name, table["arm"], declared)
        return table

    values = kept(looked_at, f"values_{stem}", dear=True)
    measuring.end()
    questions = kept(lambda: question_table(study), f"questions_{stem}")
    own_dev = sorted(b.dev)
    dev = choose(values, _tried(study, lambdas), own_dev) if own_dev else dict(elsewhere or {})
    choices = kept(lambda: choice_table(values, dev, own_dev), f"choices_{stem}")
    tested = values[values["qid"].isin(set(b.test))]
    pairs = [*declared_pairs(b.name, chosen_arms(dev)), *exploratory_pairs(set(tested["arm"]), dev)]
    return {
        "values": values,
        "questions": questions,
        "choices": choices,
        "dev": dev,
        "curves": kept(lambda: curves(values, questions, b, lambdas), f"{stem}_lambda"),
        "claims": kept(lambda: claims(tested, pairs), f"claims_{stem}"),
    }


def spectrum_table(study: Study, qids: Sequence[str], lam_max: float) -> pd.DataFrame:
    """The lambda spectrum of chosen questions: ``question, start, end`` and a count per class."""
    b, index, rows = study.benchmark, study.index, []
    order = np.argsort(index.ranks)
    order = order[index.kept[order]]
    for qid in qids:
        hypotheses = study.hypotheses[qid]
        texts = [hypotheses.of("target")[0], hypotheses.of("mimic")[0]]
        known = study.retriever.vectors(texts)
        pair = np.stack([known[text.tower, text.text] for text in texts])
        s_plus, s_minus = index.score(pair, order)
        for segment in spectrum(s_plus, s_minus, study.k, lam_max):
            pids = index.ids[order[list(segment.rows)]]
            counts = Counter(class_of(p, b.targets[qid], b.mimics[qid]) for p in pids)
            row = {"question": qid, "start": segment.start, "end": segment.end}
            rows.append(row | {name: counts[name] for name in CLASSES})
    return pd.DataFrame(rows)
