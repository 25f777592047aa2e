"""The studies of the real sample: dev, which chooses lambda; the judge; the test half.

Dev chooses lambda from ``LAMBDAS``: on exams by the mean share of the top five that supports the
right option, on BioASQ by P@5; with equal means it takes the smaller lambda. A bootstrap shows how
stable the choice is: the share of resampled dev sets in which each lambda would have been chosen.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from lib.base.downloads import load_registry
from lib.base.paths import DATA, RECORDINGS
from lib.base.provenance import read_result
from lib.data.judgments import HELPFUL, JUDGMENTS, Evidence
from lib.data.looks import Look
from lib.datasets import EXAMS, GROUPS, Split, asks_for_the_exception, load_real
from lib.embed import load_encoder
from lib.index_build import files_of
from lib.methods.base import Expansion
from lib.open_retriever import open_retriever
from lib.profiles import Profile
from lib.query_spec import SearchSpec
from lib.run import Retriever
from lib.search.contrast import rotation
from lib.stats import Pair, claims, ratio_interval, resampled_sums
from lib.studies.real import TABLES
from lib.studies.real.arms import (
    EXAM_DRAWS,
    LAMBDAS,
    MAJORITY,
    OWN_ANSWER,
    POOL,
    TOP,
    Sample,
    added_searches,
    headroom,
    outcomes,
    own_answers,
    runs_of,
    searches,
)
from lib.studies.real.expansions import (
    known_by_heart,
    options_read,
    recorded,
    texts_table,
    written_for,
)
from lib.studies.real.quality import judge_quality, passes_quality_gate
from lib.study import DECLARATIONS, Study, declared_pairs, make, means, primary_tests

CODE = "lib.studies.real"


def open_sample(split: Split, profile: Profile, retriever: Retriever) -> Sample:
    """One half of the sample with the recorded texts."""
    questions = load_real(split)
    recordings = sorted(RECORDINGS.glob("real-*.jsonl.gz"))
    ours = [path.relative_to(DATA).as_posix() for path in (*recordings, JUDGMENTS, HELPFUL)]
    sets = [name for group in GROUPS.values() for d in group for name in load_registry(f"{d}-")]
    data = [*files_of(profile.corpora), *sets, *ours]
    return Sample(questions, written_for(questions, recorded(), retriever), retriever, data)


@dataclass(frozen=True)
class Halves:
    """Both halves of the sample: the study's collection."""

    dev: Sample
    test: Sample
    profile: Profile

    @property
    def retriever(self) -> Retriever:
        """What both are searched in."""
        return self.dev.retriever

    @property
    def data(self) -> Sequence[str]:
        """The files behind both."""
        return self.dev.data


def load(profile: Profile) -> Halves:
    """Both halves, searched in the profile's passages."""
    encoder = load_encoder(profile.encoder, **profile.encoder_options)
    retriever = open_retriever(profile, encoder)
    dev = open_sample("dev", profile, retriever)
    return Halves(dev, open_sample("test", profile, retriever), profile)


# dev ----------------------------------------------------------------------------------------------

CHOSEN_BY = {"exams": "share_correct_at_5", "bioasq": "p_at_5"}
"""The dev metric that chooses lambda, by group of sets."""

_RESAMPLES = 2000


def dev_values(halves: Halves) -> pd.DataFrame:
    """Every outcome of every arm on dev."""
    values = outcomes(halves.dev, dict.fromkeys(GROUPS, searches()))
    # On BioASQ nothing has to be judged, so the controls at the chosen lambda are measured too.
    chosen = choices(lambda_table(values))["bioasq"]
    more = {k: search for k, search in searches(chosen).items() if k not in searches()}
    return pd.concat([values, outcomes(halves.dev, {"bioasq": more})], ignore_index=True)


def lambda_table(values: pd.DataFrame) -> pd.DataFrame:
    """The dev mean at each lambda, and the share of resamples in which it would be chosen.

    ``values`` are dev's outcomes. Columns: group, metric, lambda, value, chosen_in (share of
    resampled dev sets), chosen, n.
    """
    rows = []
    for group, metric in CHOSEN_BY.items():
        kept = values[(values["metric"] == metric) & values["dataset"].isin(GROUPS[group])]
        wide = kept.pivot(index="qid", columns="arm", values="value")
        table = wide[["hplus" if lam == 0 else f"chr@{lam:g}" for lam in LAMBDAS]].sort_index()
        n = len(table)
        # Rounded, so that equal means are equal: the first of them is the smallest lambda.
        drawn = np.round(resampled_sums(table.to_numpy(), _RESAMPLES) / n, 12)
        shares = np.bincount(drawn.argmax(axis=1), minlength=len(LAMBDAS)) / _RESAMPLES
        value = table.mean()
        best = value.round(12).to_numpy().argmax()
        for i, lam in enumerate(LAMBDAS):
            row = {"group": group, "metric": metric, "lambda": lam, "value": value.iloc[i]}
            rows.append(row | {"chosen_in": shares[i], "chosen": i == best, "n": n})
    return pd.DataFrame(rows)


def choices(table: pd.DataFrame) -> dict[str, float]:
    """The chosen lambda of each group, from ``lambda_table``."""
    chosen = table[table["chosen"].astype(bool)]
    return dict(zip(chosen["group"], chosen["lambda"], strict=True))


def real_pairs(chosen: Mapping[str, float]) -> list[Pair]:
    """The declared tests, given the lambda that dev chose for each group."""
    return declared_pairs("real", {f"{group}:lambda": f"{lam:g}" for group, lam in chosen.items()})


def least_differences(
    values: pd.DataFrame, chosen: Mapping[str, float], n: Mapping[str, int]
) -> pd.DataFrame:
    """The smallest difference that each primary test can detect, from the spread on dev.

    ``n`` are the test questions by group. A difference of 2.8 standard errors is detected with 80 %
    power at 5 %, before Holm; ``least_holm`` takes the strictest level of Holm's procedure, 5 %
    over the number of tests. Arms that dev does not have are left out.
    """
    from scipy.stats import norm

    pairs = real_pairs(chosen)
    strict = norm.ppf(1 - 0.025 / len(pairs)) + norm.ppf(0.8)
    on_dev = set(values["arm"])
    table = claims(values, [pair for pair in pairs if {pair.arm, pair.baseline} <= on_dev])
    table = table.rename(columns={"n": "dev_n"})
    table["test_n"] = np.where(table["metric"] == "p_at_5", n["bioasq"], n["exams"])
    table["dev_sd"] = table["mde"] * np.sqrt(table["dev_n"]) / 2.8
    error = table["dev_sd"] / np.sqrt(table["test_n"])
    table = table.assign(mde=2.8 * error, mde_holm=strict * error)
    shown = ["claim", "metric", "arm", "baseline", "dev_n", "test_n", "dev_sd", "mde", "mde_holm"]
    return table[shown]


# test ---------------------------------------------------------------------------------------------


def test_values(halves: Halves) -> pd.DataFrame:
    """Every outcome of every arm, and those of rows without retrieval.

    The controls are measured at the lambda that dev chose: its outcomes are on file by now.
    """
    sample = halves.test
    on_dev, _ = read_result("values_real_dev", halves.profile.name)
    wanted = {group: searches(lam) for group, lam in choices(lambda_table(on_dev)).items()}
    wanted["bioasq"] |= added_searches()
    read = options_read(sample.written["hypotheses"], recorded())
    parts = [outcomes(sample, wanted), headroom(sample.questions, sample.judged)]
    return pd.concat([*parts, own_answers(sample.questions, read)], ignore_index=True)


def follow(halves: Halves, on_dev: pd.DataFrame, values: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The tables of both halves by name. Nothing is tested on dev."""
    sample, store = halves.test, halves.retriever.store
    quality = {half: judge_quality(half, store).assign(split=half) for half in ("dev", "test")}
    n = {group: len(part.questions) for group, part in sample.groups.items()}
    of_lambda = lambda_table(on_dev)
    chosen = choices(of_lambda)
    mean = on_dev.groupby(["dataset", "arm", "metric"])["value"].agg(["mean", "size"])
    searched = _searched(values)
    table, hypotheses = arm_table(values), sample.written["hypotheses"]
    fits = fitting(searched)
    cases = case_table(sample, fits)
    return {
        "judge_quality": pd.concat(quality.values(), ignore_index=True),
        "real_dev_lambda": of_lambda,
        "real_least": least_differences(on_dev, chosen, n),
        "real_dev": mean.reset_index().rename(columns={"mean": "value", "size": "n"}),
        "real_arms": table,
        "real_purity": purity_table(searched),
        "real_lambda": lambda_rows(table, chosen),
        "claims_real": claims_table(searched, chosen, passes_quality_gate(quality["test"])),
        "real_where": subgroup_table(searched, about_questions(sample)),
        "real_cases": cases,
        "real_case_texts": case_texts(cases, hypotheses),
        "real_case_counts": case_counts(fits),
        "real_texts": texts_table(sample.questions, sample.written),
    }


def _searched(values: pd.DataFrame) -> pd.DataFrame:
    """The outcomes of arms that retrieve."""
    return values[~values["arm"].isin([POOL, OWN_ANSWER, MAJORITY])]


def arm_table(values: pd.DataFrame) -> pd.DataFrame:
    """Every arm's mean with its 95 % interval: dataset, arm, metric, value, low, high, n.

    Beside the sets there is ``exams``, both exam sets together.
    """
    both = values[values["dataset"].isin(EXAMS)].assign(dataset="exams")
    every = pd.concat([values, both], ignore_index=True)
    return means(every, sort=True)


def purity_table(values: pd.DataFrame) -> pd.DataFrame:
    """Of the passages in exam top fives that support an option, the share that support the right
    one. A row an arm: arm, right, wrong (passages), value, low, high, n (questions).

    ``supports_wrong`` falls with every such passage that is lost; this share need not. The interval
    resamples questions. An arm with several draws counts as the mean of its draws.
    """
    exams = values[values["dataset"].isin(EXAMS)]
    metrics = ["share_correct_at_5", "share_wrong_at_5"]
    spoken = exams[exams["metric"].isin(metrics)]
    rows = []
    for arm, group in spoken.groupby("arm", sort=True):
        shares = group.pivot(index="qid", columns="metric", values="value")[metrics].to_numpy()
        # A mean of draws is kept with three decimals, and was a whole number over their number.
        counts = np.round(TOP * EXAM_DRAWS * shares) / EXAM_DRAWS
        right, wrong = counts.sum(axis=0)
        if right + wrong == 0:
            continue
        value, low, high = ratio_interval(counts[:, 0], counts.sum(axis=1))
        row = {"arm": arm, "right": right, "wrong": wrong, "value": value}
        rows.append(row | {"low": low, "high": high, "n": len(counts)})
    return pd.DataFrame(rows)


def lambda_rows(table: pd.DataFrame, chosen: Mapping[str, float]) -> pd.DataFrame:
    """The arms of ``arm_table`` that are contrast at some lambda, described.

    Columns: dataset, form, mimic, visibility (whether who wrote the hypotheses saw the options),
    lambda, metric, value, low, high, n.
    """
    named = added_searches()
    for lam in (0.0, *chosen.values()):
        named |= searches(lam)
    known = {name: about for name, search in named.items() if (about := _described(*search))}
    rows = table[table["arm"].isin(known)]
    about = pd.DataFrame([known[arm] for arm in rows["arm"]], index=rows.index)
    described = ["form", "mimic", "visibility", "lambda"]
    joined = pd.concat([rows, about], axis=1)
    joined = joined.sort_values(["dataset", "metric", *described], ignore_index=True)
    return joined[["dataset", *described, "metric", "value", "low", "high", "n"]]


def _described(of: str, spec: SearchSpec | None) -> dict:
    """Form, mimic, visibility and lambda of a search; empty for one that is no contrast."""
    if spec is None or spec.form == "random":
        return {}
    form = {"max": "maximum of several", "mean": "mean of several"}.get(spec.form, "one mimic")
    if spec.question_weight:
        form = "question added"
    if spec.pool:
        form = f"pool of {spec.pool}"
    if spec.space == "whitened":
        form = "whitened"
    mimic = {"several": "several", "stranger": "another question's"}.get(spec.mimic, "own")
    if spec.rotation:
        mimic = "matched rotation"
    visibility = "options" if of == "hypotheses" else "stem"
    return {"form": form, "mimic": mimic, "visibility": visibility, "lambda": spec.lam}


def claims_table(values: pd.DataFrame, chosen: Mapping[str, float], verdicts: bool) -> pd.DataFrame:
    """Every declared test with its verdict, then what is exploratory (see ``stats.claims``).

    On exams there are no ``verdicts`` where the judge was no instrument. The column ``excludes``
    is for tests of ``supports_wrong``: whether a fall counts as exclusion, that is whether
    ``supports_correct`` of the same two arms did not fall by more than the declared margin.
    """
    arms = {metric: set(group["arm"]) for metric, group in values.groupby("metric")}
    declared = real_pairs(chosen)
    declared = [p for p in declared if {p.arm, p.baseline} <= arms.get(p.metric, set())]
    table = claims(values, [*declared, *exploratory_pairs(arms)])
    if not verdicts:
        table.loc[table["metric"] != "p_at_5", "verdict"] = ""
    return table.assign(excludes=_excludes(values, table))


def exploratory_pairs(arms: Mapping[str, Collection[str]]) -> list[Pair]:
    """Every arm against H+ alone and against the question; contrast against its controls."""
    pairs = []
    for metric in (
        "supports_correct",
        "supports_wrong",
        "share_correct_at_5",
        "reads_right",
        "p_at_5",
    ):
        measured = arms.get(metric, ())
        for arm in sorted(measured):
            baseline = ["hplus", "question"]
            lam = arm.partition("@")[2]
            if arm.startswith("chr@"):
                baseline += [f"chr+rotation@{lam}", f"chr+stranger@{lam}"]
            if arm == f"chr-stem@{lam}":
                baseline.append("hplus-stem")
            pairs += [
                Pair(f"{arm} against {other}", metric, arm, other)
                for other in baseline
                if other in measured and arm != other
            ]
    return pairs


def _excludes(values: pd.DataFrame, table: pd.DataFrame) -> pd.Series:
    margin = primary_tests()["real"]["margin"]
    excludes = pd.Series("", index=table.index)
    asked = table[(table["metric"] == "supports_wrong") & (table["status"] == "primary")]
    pairs = [Pair("", "supports_correct", row.arm, row.baseline) for row in asked.itertuples()]
    keeps = claims(values, pairs)["low"].to_numpy() > -margin
    excludes[asked.index] = np.where(keeps & (asked["verdict"] == "SUPPORTED"), "yes", "no")
    return excludes


# subgroups ----------------------------------------------------------------------------------------

COMPARED = (("chr@0.4", "hplus"), ("chr@1", "hplus"))
"""The differences that are broken down by subgroup: arm, against."""

SUBGROUP_METRICS = ("supports_correct", "supports_wrong", "share_correct_at_5")

_KNOWN = {True: "known", False: "not known", None: "too short to tell"}


def about_questions(sample: Sample) -> pd.DataFrame:
    """The subgroups of each exam question, all known before retrieval: index qid, a column for each
    way to divide the questions: set, likeness, h_plus, asks_for, by_heart.

    Likeness is c = cos(h+, h-) in thirds; each boundary is labelled with the query's rotation.
    """
    hypotheses, llm = sample.written["hypotheses"], recorded()
    options, by_heart = options_read(hypotheses, llm), known_by_heart(hypotheses, llm)
    exams = [q for q in sample.groups["exams"].questions if hypotheses[q.qid].request is not None]
    cosines = sample.retriever.cosines([hypotheses[q.qid].request for q in exams])
    edges = np.quantile(cosines, (1 / 3, 2 / 3))
    low, high = (f"{edge:.2f} (turned by {rotation(edge, 1.0):.0f}° at λ = 1)" for edge in edges)
    thirds = (f"1: c up to {low}", f"2: c up to {high}", f"3: c above {high}")
    rows = []
    for question, c in zip(exams, cosines, strict=True):
        letter = options.get(question.qid, "")
        right = "right" if question.is_right(letter) else "wrong"
        rows.append(
            {
                "qid": question.qid,
                "set": question.dataset,
                "likeness": thirds[np.searchsorted(edges, c)],
                "h_plus": right if letter else "speaks for no option",
                "asks_for": "exception" if asks_for_the_exception(question) else "what fits",
                "by_heart": _KNOWN[by_heart.get(question.qid)],
            }
        )
    return pd.DataFrame(rows).set_index("qid")


def subgroup_table(values: pd.DataFrame, about: pd.DataFrame) -> pd.DataFrame:
    """``COMPARED`` on every subgroup of the questions: metric, arm, baseline, part, level,
    value, value_baseline, difference, low, high, n. All of it is exploratory."""
    pairs = [Pair("", metric, *pair) for metric in SUBGROUP_METRICS for pair in COMPARED]
    made = []
    for part in about.columns:
        for level, members in about.groupby(part, sort=True):
            group = values[values["qid"].isin(members.index)]
            made.append(claims(group, pairs).assign(part=part, level=level))
    shown = ["metric", "arm", "baseline", "part", "level", "value", "value_baseline"]
    table = pd.concat(made, ignore_index=True)
    return table[[*shown, "difference", "low", "high", "n"]]


# single questions, by a rule that was written down before anything was judged -------------------

CASES: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "contrast finds the right option": ("supports_correct", {"hplus": 0, "chr@1": 1}),
    "contrast loses the right option": ("supports_correct", {"hplus": 1, "chr@1": 0}),
    "contrast rules a wrong option out": ("supports_wrong", {"hplus": 1, "chr@1": 0}),
    "contrast brings a wrong option in": ("supports_wrong", {"hplus": 0, "chr@1": 1}),
    "HyDE has it, contrast has not": ("supports_correct", {"hyde": 1, "chr@1": 0}),
}
"""What must be true of a question to be a case of the kind: a metric, and its value by arm. The
last one is the kind of the paper's Table 5."""

SHOWN = ("hplus", "chr@0.4", "chr@1", "hyde")
"""The arms whose passages are shown of a single question."""


def fitting(values: pd.DataFrame) -> pd.DataFrame:
    """Which exam questions are of which kind: index dataset and qid, a column of bool a kind."""
    of_exams = values[values["dataset"].isin(EXAMS)]
    supports = of_exams[of_exams["metric"].isin(["supports_correct", "supports_wrong"])]
    wide = supports.pivot(index=["dataset", "qid"], columns=["arm", "metric"], values="value")
    fits = pd.DataFrame(True, index=wide.index, columns=list(CASES))
    for kind, (metric, wanted) in CASES.items():
        for arm, value in wanted.items():
            fits[kind] &= wide[arm, metric] == value
    return fits


def case_counts(fits: pd.DataFrame) -> pd.DataFrame:
    """How many questions are of each kind: kind, dataset, questions, n."""
    counts = fits.groupby(level="dataset").agg(["sum", "size"])
    rows = [(kind, d, *counts.loc[d, kind]) for kind in CASES for d in counts.index]
    return pd.DataFrame(rows, columns=["kind", "dataset", "questions", "n"])


def case_table(sample: Sample, fits: pd.DataFrame) -> pd.DataFrame:
    """What ``SHOWN`` found for the case of each kind and set, by rank, with its labels.

    The case is the set's first question in the order of the hashed ids, so it is not hand-picked.
    Columns: kind, dataset, qid, arm, rank, pid, on_topic, says: "right", "wrong", "both" or
    "". A kind that has no question has no case.
    """
    cases = []
    for kind in CASES:
        fit = set(fits.index[fits[kind]])
        for dataset in EXAMS:
            # ``questions`` come in the order of the hashes.
            found = [q.qid for q in sample.questions if (dataset, q.qid) in fit]
            cases += [(kind, dataset, qid) for qid in found[:1]]
    table = pd.DataFrame(cases, columns=["kind", "dataset", "qid"])
    runs = runs_of(sample, SHOWN, set(table["qid"])).drop(columns="dataset")
    runs = runs[runs["rank"] <= TOP].sort_values(["arm", "rank"])
    table = table.merge(runs, on="qid")
    labels = [sample.judged.get(key) for key in zip(table["qid"], table["pid"], strict=True)]
    answers = [sample.by_qid[qid].answer for qid in table["qid"]]
    table["on_topic"] = [label and label.on_topic for label in labels]
    table["says"] = [_says(*pair) for pair in zip(labels, answers, strict=True)]
    return table


def _says(label: Evidence | None, answer: str) -> str:
    supports = label.supports if label else frozenset()
    if supports > {answer}:
        return "both"
    return "right" if answer in supports else "wrong" if supports else ""


def case_texts(cases: pd.DataFrame, hypotheses: Mapping[str, Expansion]) -> pd.DataFrame:
    """What was written about the question of each case: kind, dataset, qid, h_plus, h_minus."""
    table = cases[["kind", "dataset", "qid"]].drop_duplicates(ignore_index=True)
    for column, part in (("h_plus", "target"), ("h_minus", "mimic")):
        table[column] = [hypotheses[qid].request.of(part)[0].text for qid in table["qid"]]
    return table


# a second encoder ---------------------------------------------------------------------------------


def encoder_table(values: pd.DataFrame) -> pd.DataFrame:
    """Every arm's mean, and its paired difference from H+ alone, by encoder: arm, metric, value,
    low, high, n, difference, difference_low, difference_high, encoder."""
    parts = []
    for name, group in values.groupby("encoder", sort=False):
        table = means(group, ("arm", "metric"), sort=True)
        others = table[table["arm"] != "hplus"]
        pairs = [Pair("", row.metric, row.arm, "hplus") for row in others.itertuples()]
        tested = claims(group, pairs)[["arm", "metric", "difference", "low", "high"]]
        tested = tested.rename(columns={"low": "difference_low", "high": "difference_high"})
        table = table.merge(tested, on=["arm", "metric"], how="left")
        parts.append(table.assign(encoder=name))
    return pd.concat(parts, ignore_index=True)


def measure_encoder(profile: Profile, encoder: str) -> dict[str, pd.DataFrame]:
    """Does the finding depend on the encoder? The same arms on BioASQ's own snippets, per encoder.

    On BioASQ the experts' passages are the labels, so nothing has to be judged. Lambda is what dev
    chose with the profile's own encoder: nothing is tuned anew. CSQE and ThinkQE are left out:
    their requests hold what that encoder found, and nobody wrote for what another finds. Kept as
    ``real_<encoder>`` and ``values_real_<encoder>``; ``make figures PROFILE=open ENCODER=mpnet``.
    """
    outcome, table = f"values_real_{encoder}", f"real_{encoder}"
    wanted = {
        "bioasq": searches(choices(read_result("real_dev_lambda", profile.name)[0])["bioasq"])
    }
    samples = {}
    for name in (profile.encoder, encoder):
        retriever = open_retriever(replace(profile, limit=0), load_encoder(name), ("bioasq",))
        samples[name] = open_sample("test", profile, retriever)

    def by_encoder(_: Sample) -> pd.DataFrame:
        parts = [outcomes(one, wanted).assign(encoder=name) for name, one in samples.items()]
        return pd.concat(parts, ignore_index=True)

    def looks(_: Sample, made: Mapping[str, pd.DataFrame]) -> list[Look]:
        return [Look("bioasq", made[outcome]["qid"], made[outcome]["arm"])]

    study = Study(
        name=f"real, {encoder}",
        code=CODE,
        load=lambda _: samples[encoder],
        values={outcome: by_encoder},
        tables=(table,),
        follow=lambda _, values: {table: encoder_table(values)},
        looks=looks,
    )
    return make(study, profile, samples[encoder])


# the study ----------------------------------------------------------------------------------------


def looks(_: Halves, made: Mapping[str, pd.DataFrame]) -> list[Look]:
    """The labels of the test half."""
    values = _searched(made["values_real"])
    return [Look("real", values["qid"], values["arm"], declared=DECLARATIONS[0])]


STUDY = Study(
    name="real",
    code=CODE,
    load=load,
    values={"values_real_dev": dev_values, "values_real": test_values},
    tables=TABLES,
    follow=follow,
    looks=looks,
)
