"""Contradiction that was judged: is the judge an instrument, and what does it say?

Pairs were chosen by rules that were written down before any was judged, in four groups, told apart
by the first part of a pool's name: ``mini`` (evidence-mini, every pair of abstracts on one topic),
``query`` (60 stated queries of ``open``, every pair among the seven abstracts nearest to each),
``near`` (abstracts of ``open`` drawn by period, each with its nearest neighbour) and ``real`` (60
questions of the real sample, the pairs within the top five of each of three arms). All draws follow
the hash of an id, so nothing was hand-picked.

Judged contradiction carries a result only if kappa of *disagree* between the passes is at least .6
and planted errors are at most .05: that is read before any result is. A table of ``pairs`` is
always one of ``labelled.judged_pairs``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from lib.base.downloads import load_registry
from lib.base.files import read_jsonl, sha256_bytes
from lib.base.paths import DATA, RECORDINGS
from lib.base.provenance import read_result
from lib.data import judgments
from lib.data.looks import Look
from lib.datasets import EXAMS, GROUPS, Question, load_real
from lib.embed import Encoder
from lib.index_build import files_of as files_of_corpora
from lib.limit import makes_real
from lib.open_retriever import open_retriever
from lib.profiles import Profile
from lib.report import nine_digits
from lib.stats import Pair, agreement_table, auroc, claims, mean_interval, ratio_interval
from lib.studies.contradiction.answers import reported
from lib.studies.contradiction.evidence import (
    PERIODS,
    Evidence,
    files_of,
    load_evidence,
    period_of,
)
from lib.studies.contradiction.labelled import PAIR, judged_pairs, with_sentences
from lib.studies.contradiction.nli import Backend, score_pairs, sentences
from lib.studies.contradiction.pools import Pools
from lib.studies.contradiction.study import BINS, CODE, beside
from lib.studies.real.arms import Sample, exam_outcome, runs_of
from lib.studies.real.expansions import recorded, written_for
from lib.study import Study, make

NEAR = 340
"""Abstracts drawn by period, each with its nearest neighbour: 1,600 pairs with the queries'."""

REAL_QUESTIONS = 30
"""Questions of each exam set, the first by the hash of their ids."""

ARMS = ("hplus", "chr@0.4", "chr@1")
"""Whose top five are compared, each within itself."""

IN_POOLS = ("stranger", "order", "repeat")
"""Control pairs in pools: a text from another pool, one that tells the judge what to say, and a
text of the pool once more."""

PLANTS = DATA / "judgments" / "contradiction_plants.jsonl.gz"
"""The control pairs: kind, pool, a, b, and the label that each ``must`` get: other, agree,
disagree, neither (anything but the two), or the id of the text that ``a`` or ``b`` repeats."""

FRESH = DATA / "judgments" / "fresh_pairs.jsonl"
"""Twenty pairs by a role that saw neither the code nor any training text, one a row: pid, a and b
(invented study summaries), intended (what the writer was asked for: disagree, agree or other), the
numbers of the sentences that carry it, and what each pass of the judge said, who saw the texts
alone."""

MEASURES = ("same", "agree", "disagree")

RULES = ("both passes", "any pass")
"""Which pairs are filtered: those of which both passes say that they disagree, or either."""

SUPPORT = ("share_correct_at_5", "share_wrong_at_5", "supports_correct", "supports_wrong")
"""What of ``exam_outcome`` is looked at before and after the filter."""

_AGAIN = 10
"""One pair on other questions in so many was judged again."""

_GROUPS = {"evidence-mini": "mini", "open": "near"}
"""The group of judged pairs from which the periods of each evidence set are computed."""


# which abstracts ----------------------------------------------------------------------------------


def by_hash(what: str, ids: Iterable[str]) -> list[str]:
    """The ids in the order of their hashes."""
    return sorted(ids, key=lambda i: sha256_bytes(f"{what} {i}".encode()))


def drawn_by_period(evidence: Sequence[Evidence]) -> list[str]:
    """Of each period in turn the next abstract by hash, ``NEAR`` in all."""
    year_of = {abstract.id: abstract.year for abstract in evidence}
    waiting = defaultdict(list)
    for i in by_hash("judged near", year_of):
        waiting[period_of(year_of[i])].append(i)
    found = []
    while len(found) < min(NEAR, len(evidence)):
        for period in PERIODS:
            if waiting[period] and len(found) < NEAR:
                found.append(waiting[period].pop(0))
    return found


# is the judge an instrument? ----------------------------------------------------------------------


def pass_agreement(pairs: pd.DataFrame, other: str = "second") -> pd.DataFrame:
    """Kappa and raw agreement of the first pass with another on *same*, *agree* and *disagree*.

    Control pairs are left out. Pairs on other questions have weight 10: one in ten was judged
    again. The interval resamples pools.
    """
    read = pairs[~pairs["control"]].dropna(subset=["first", other])
    again = read["first"].eq("other") & (other == "second")
    read = read.assign(group=read["pool"], weight=np.where(again, _AGAIN, 1))
    one, two = read["first"], read[other]
    parts = [read.assign(label="same", one=one.ne("other"), two=two.ne("other"))]
    for stance in ("agree", "disagree"):
        parts.append(read.assign(label=stance, one=one.eq(stance), two=two.eq(stance)))
    return agreement_table(pd.concat(parts), f"first and {other} pass")


def planted_pairs(pairs: pd.DataFrame, plants: pd.DataFrame) -> pd.DataFrame:
    """How often the first pass did not give a control pair the label it must get, by kind.

    SciFact's pairs are left out: their human labels come from other judges (``known_pairs``).
    An unjudged pair is an error.
    """
    first = pairs.set_index(PAIR)["first"]
    own = plants[plants["kind"].isin([*IN_POOLS, "turned"])]
    wrong = []
    for one in own.itertuples():
        must = one.must
        if one.kind == "repeat":
            beside_it = one.b if one.a == "plant:repeat" else one.a
            must = first.get((one.pool, *sorted((beside_it, one.must))))
        said = first.get((one.pool, one.a, one.b))
        wrong.append(must is None or said != must)
    own = own.assign(check="planted: " + own["kind"], label="error", holds=wrong)
    in_order = own.assign(kind=pd.Categorical(own["kind"], own["kind"].unique()))
    together = in_order.sort_values("kind", kind="stable", ignore_index=True)
    return _shares(pd.concat([own, together.assign(check="planted: all planted pairs")]))


def known_pairs(pairs: pd.DataFrame, plants: pd.DataFrame) -> pd.DataFrame:
    """What both passes say of SciFact's pairs, by what people said of them."""
    known = plants[plants["kind"] == "scifact"].merge(pairs, on=PAIR)
    return _stance_shares(known.assign(check="SciFact, people say " + known["must"]))


def stances(pairs: pd.DataFrame) -> pd.DataFrame:
    """What both passes say of evidence-mini's pairs, by the stances their writers gave them."""
    stance_of = {e.id: e.meta["stance"] for e in load_evidence("evidence-mini")}
    one, two = pairs["a"].map(stance_of), pairs["b"].map(stance_of)
    sides = ("for", "against")
    known = (pairs["group"] == "mini") & one.isin(sides) & two.isin(sides)
    opposite = np.where(one == two, "one stance", "opposite stances")
    return _stance_shares(pairs.assign(check="evidence-mini, " + pd.Series(opposite))[known])


def _stance_shares(pairs: pd.DataFrame) -> pd.DataFrame:
    """Of the pairs of each ``check`` the shares that agree and that disagree, by both passes."""
    agree, disagree = (
        pairs.assign(label=stance, holds=pairs["stance"] == stance)
        for stance in ("agree", "disagree")
    )
    both = pd.concat([agree, disagree])
    return _shares(both.sort_values(["check", "label"], kind="stable"))


def _shares(rows: pd.DataFrame) -> pd.DataFrame:
    """The mean of ``holds`` by check and label: check, label, value, low, high, n."""
    table = []
    for key, own in rows.groupby(["check", "label"], sort=False):
        table.append((*key, *mean_interval(own["holds"].to_numpy()), len(own)))
    return pd.DataFrame(table, columns=["check", "label", "value", "low", "high", "n"])


# how much contradiction there is ------------------------------------------------------------------


def shares(pairs: pd.DataFrame) -> pd.DataFrame:
    """Of the judged pairs of each group, how many are on one question, agree and disagree.

    Columns: group, measure, count, value, low, high, n (pairs), pools. Both passes must say so;
    "disagree_any" is what either says. "disagree_of_same" is of the pairs on one question alone:
    no other pair could disagree, so it is what tells how much contradiction there is. Control
    pairs are left out. The interval resamples pools; where none or all are counted it has no
    width, and says nothing.
    """
    own = pairs[pairs["group"].isin(["mini", "query", "near", "real"]) & ~pairs["control"]]
    own = own.assign(pairs=1, agree=own["stance"] == "agree", disagree=own["stance"] == "disagree")
    counted = [*MEASURES, "disagree_any"]
    by_pool = own.groupby(["group", "pool"], sort=False)[["pairs", *counted]].sum()
    rows = []
    for group, pools in by_pool.groupby("group"):
        shares_of = [(measure, measure, "pairs") for measure in counted]
        for measure, hits, of in [*shares_of, ("disagree_of_same", "disagree", "same")]:
            some = pools[pools[of] > 0]
            interval = ratio_interval(some[hits].to_numpy(), some[of].to_numpy())
            row = {"group": group, "measure": measure, "count": some[hits].sum()}
            row |= dict(zip(("value", "low", "high"), interval, strict=True))
            rows.append(row | {"n": some[of].sum(), "pools": len(some)})
    return pd.DataFrame(rows)


def reasons(pairs: pd.DataFrame) -> pd.DataFrame:
    """Why pairs of evidence-mini disagree where both passes say that they do.

    Columns: reason (the first pass's), pairs, share, again (of them the share for which the second
    pass gave the same reason).
    """
    known = (pairs["group"] == "mini") & ~pairs["control"] & (pairs["stance"] == "disagree")
    own = pairs[known]
    same = own["reason"] == own["reason_again"]
    table = same.groupby(own["reason"]).agg(["size", "mean"])
    table = table.sort_values("size", ascending=False).reset_index()
    table.insert(2, "share", table["size"] / len(own))
    return table.rename(columns={"size": "pairs", "mean": "again"})


def by_period(pairs: pd.DataFrame, evidence: Sequence[Evidence], group: str) -> pd.DataFrame:
    """Of the abstracts of each period that were judged, the share that some other one contradicts.

    Columns: period, value, low, high, n; periods without any are left out, and "all" comes last.
    ``group`` is "mini" or "near". Of "near" only the drawn abstracts count, not their neighbours,
    which may be of another period. In "all" an abstract of "near" stands for as many of its period
    as there are for each that was drawn. Intervals are Wilson's, that of "all" resamples abstracts
    within their period.
    """
    from statsmodels.stats.proportion import proportion_confint

    own = pairs[(pairs["group"] == group) & ~pairs["control"]]
    ids = own[["a", "b"]].stack().droplevel(1).rename("id")
    read = own[["pool", "stance"]].join(ids)
    if group == "near":
        read = read[read["pool"] == "near/" + read["id"]]
    contradicted = (read["stance"] == "disagree").groupby(read["id"], sort=False).max()
    period = {abstract.id: period_of(abstract.year) for abstract in evidence}
    values = {name: own.to_numpy(float) for name, own in contradicted.groupby(period)}
    weights = dict.fromkeys(values, 1.0)
    if group == "near":
        drawn = pd.Series(drawn_by_period(evidence)).map(period).value_counts()
        weights = (pd.Series(period).value_counts() / drawn).to_dict()
    rows = []
    for name in (name for name in PERIODS if name in values):
        count, n = int(values[name].sum()), len(values[name])
        rows.append((name, count / n, *proportion_confint(count, n, method="wilson"), n))
    rows.append(("all", *_weighted(values, weights), len(contradicted)))
    return pd.DataFrame(rows, columns=["period", "value", "low", "high", "n"])


def _weighted(
    values: Mapping[str, np.ndarray], weights: Mapping[str, float]
) -> tuple[float, float, float]:
    """The weighted mean of all values and its 95 % interval, resampled within each period."""
    rng = np.random.default_rng(0)
    total = sum(weights[period] * len(own) for period, own in values.items())
    drawn, mean = np.zeros(2000), 0.0
    for period, own in sorted(values.items()):
        share = weights[period] * len(own) / total
        drawn += share * rng.choice(own, (2000, len(own))).mean(axis=1)
        mean += share * float(own.mean())
    low, high = np.percentile(drawn, [2.5, 97.5])
    return mean, float(low), float(high)


def most_contradictory(pools: Pools) -> pd.DataFrame:
    """Twelve couples that disagree, to be read: topic, why, years and both sentences.

    One a topic at most, the first by ids; topics in order.
    """
    couples = pools.pairs[pools.pairs["value"] > 0].copy()
    a, b = ([pools.evidence[i] for i in couples[side]] for side in ("a", "b"))
    couples["topic"] = [f"{own.medicine}, {own.topic}" if own.topic else own.title for own in a]
    couples = couples.assign(year_a=[own.year for own in a], year_b=[own.year for own in b])
    couples = with_sentences(couples.drop_duplicates("topic").head(12), pools.texts)
    names = {"reason": "why", "sentence_a": "says_a", "sentence_b": "says_b"}
    shown = ["topic", "why", "year_a", "says_a", "year_b", "says_b"]
    return couples.rename(columns=names)[shown].reset_index(drop=True)


# what contrast and a filter do to it --------------------------------------------------------------


def pair_values(pairs: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Of the pairs within each arm's top five, the share on one question, that agree and that
    disagree: arm, qid, metric, value. ``runs``: arm, qid, rank, pid."""
    said = pairs.set_index(PAIR)["stance"].to_dict()  # empty for a pair on two questions
    top = runs[runs["arm"].isin(ARMS) & (runs["rank"] <= 5)]
    values = []
    for (qid, arm), rows in top.groupby(["qid", "arm"]):
        couples = [tuple(sorted(couple)) for couple in combinations(rows["pid"], 2)]
        own = [said.get((f"real/{qid}", *couple)) for couple in couples]
        if not own or None in own:
            continue
        share = {"same": np.mean([stance != "" for stance in own])}
        share |= {stance: own.count(stance) / len(own) for stance in ("agree", "disagree")}
        values += [(arm, qid, measure, share[measure]) for measure in MEASURES]
    return pd.DataFrame(values, columns=["arm", "qid", "metric", "value"])


def arms_table(values: pd.DataFrame) -> pd.DataFrame:
    """What contrast does to ``pair_values``, each arm against H+ alone on the same questions.

    Columns: arm, measure, value, n, difference, low, high, mde.
    """
    compared = [Pair("", measure, arm, ARMS[0]) for measure in MEASURES for arm in ARMS]
    table = claims(values, compared).rename(columns={"metric": "measure"})
    table.loc[table["arm"] == ARMS[0], ["difference", "low", "high", "mde"]] = np.nan
    return table[["arm", "measure", "value", "n", "difference", "low", "high", "mde"]]


def filtered(pids: Sequence[str], qid: str, clashing: Container[tuple]) -> list[str]:
    """A ranked list without the passages that disagree with a kept passage of higher rank.

    ``clashing`` has (pool, a, b) of the pairs that disagree. The paper recommends to filter
    retrieved evidence by contradiction, and does not measure it. This filter is an upper bound,
    because it reads the judge's labels. Removed passages are not replaced.
    """
    stays: list[str] = []
    for pid in pids:
        couples = [(f"real/{qid}", *sorted((pid, better))) for better in stays]
        if not any(couple in clashing for couple in couples):
            stays.append(pid)
    return stays


def filter_values(
    pairs: pd.DataFrame,
    runs: pd.DataFrame,
    questions: Sequence[Question],
    known: Mapping[tuple[str, str], judgments.Evidence],
) -> pd.DataFrame:
    """``SUPPORT`` of each arm's top five, and, as "<arm> | <rule>", of what is left of it after the
    filter by each of ``RULES``, with ``removed``, how many it takes: arm, qid, metric, value."""
    by_pair = pairs.set_index(PAIR)
    clashing = {
        "": by_pair.index[:0],
        "both passes": by_pair.index[by_pair["stance"] == "disagree"],
        "any pass": by_pair.index[by_pair["disagree_any"]],
    }
    by_qid = {question.qid: question for question in questions}
    rows = []
    for arm in ARMS:
        own = runs[(runs["arm"] == arm) & (runs["rank"] <= 5)].sort_values("rank")
        for qid, pids in own.groupby("qid")["pid"].agg(list).items():
            for rule, couples in clashing.items():
                stays = filtered(pids, qid, couples)
                outcome = exam_outcome(by_qid[qid], stays, known)
                name = f"{arm} | {rule}" if rule else arm
                rows += [(name, qid, metric, outcome[metric]) for metric in SUPPORT]
                if rule:
                    rows.append((name, qid, "removed", len(pids) - len(stays)))
    return pd.DataFrame(rows, columns=["arm", "qid", "metric", "value"])


def filter_table(values: pd.DataFrame) -> pd.DataFrame:
    """What the filter does to each arm's top five: is the right option still supported, the wrong?

    ``values`` are ``filter_values``. Columns: rule, arm, metric, before, value (after), difference,
    low, high, n (questions), mde, touched (questions that lose a passage), removed (passages).
    """
    keys = [(rule, arm, metric) for rule in RULES for arm in ARMS for metric in SUPPORT]
    table = claims(values, [Pair(rule, m, f"{arm} | {rule}", arm) for rule, arm, m in keys])
    removed = values[values["metric"] == "removed"]
    touched = (removed["value"] > 0).groupby(removed["arm"]).sum()
    table["touched"] = table["arm"].map(touched)
    table["removed"] = table["arm"].map(removed.groupby("arm")["value"].sum())
    names = {"claim": "rule", "arm": "after", "baseline": "arm", "value_baseline": "before"}
    columns = ["rule", "arm", "metric", "before", "value", "difference", "low", "high", "n"]
    return table.rename(columns=names)[[*columns, "mde", "touched", "removed"]]


# twenty fresh pairs -------------------------------------------------------------------------------


def fresh_table(backends: Sequence[Backend]) -> pd.DataFrame:
    """Every pair of ``FRESH`` with what the judge and each model say of it.

    Columns: pid, intended, first, second (passes of the judge), and a column a backend with
    P(contradiction) of the two sentences that carry the findings.
    """
    rows = list(read_jsonl(FRESH))
    table = pd.DataFrame(rows)[["pid", "intended", "first", "second"]]
    carrying = [
        (sentences(r["a"])[r["sentence_a"] - 1], sentences(r["b"])[r["sentence_b"] - 1])
        for r in rows
    ]
    return table.assign(**{own.name: score_pairs(carrying, own) for own in backends})


def fresh_summary(table: pd.DataFrame) -> pd.DataFrame:
    """Who got how many right, and which they missed: by, right, of, ranked, missed.

    A pass of the judge is right where it says what was intended. A model is right on a disagreement
    that it scores above .5, and on any other pair at or below that; as a ranking it is judged by
    ``ranked``, the share of (disagreement, agreement) couples in the right order.
    """
    disagree, agree = (table["intended"] == stance for stance in ("disagree", "agree"))
    rows = []
    for name in table.columns[2:]:
        own, ranked = table[name], float("nan")
        if name in ("first", "second"):
            by, right = f"judge, {name} pass", own == table["intended"]
        else:
            by, right = name, (own > 0.5) == disagree
            ranked = auroc(disagree[disagree | agree].to_numpy(), own[disagree | agree].to_numpy())
        missed = ", ".join(table.loc[~right, "pid"].str.removeprefix("fresh-"))
        row = {"by": by, "right": int(right.sum()), "of": len(table)}
        rows.append(row | {"ranked": ranked, "missed": missed})
    return pd.DataFrame(rows)


# results ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Readings:
    """What the judge said of ``pairs``, and what stands beside it; ``data`` are the files."""

    pairs: pd.DataFrame
    evidence: str
    profile: Profile
    encoder: Encoder
    data: Sequence[str]


def load(profile: Profile, evidence: str, encoder: Encoder) -> Readings:
    """The judge's labels, which are bundled, beside the abstracts of ``evidence``."""
    abstracts = files_of(evidence) if evidence in _GROUPS else []
    data = sorted({*_labels(), *files_of("evidence-mini"), *abstracts})
    return Readings(judged_pairs(), evidence, profile, encoder, data)


def _labels() -> list[str]:
    return [path.relative_to(DATA).as_posix() for path in (judgments.PAIR_JUDGMENTS, PLANTS)]


def judged_tables(profile: Profile, evidence: str, encoder: Encoder) -> dict[str, pd.DataFrame]:
    """What the judge says, by name; every table has the column ``contradiction``, "judged".

    ``contradiction_judge`` (is the judge an instrument?), ``contradiction_judged`` (how much
    contradiction there is), ``contradiction_reasons`` (why); for evidence-mini and open
    ``contradiction_periods``; and where a profile makes the real sample, ``contradiction_arms`` and
    ``contradiction_filter``.
    """
    readings = load(profile, evidence, encoder)
    study = READINGS
    if evidence not in _GROUPS:
        study = replace(study, tables=study.tables[:-1])
    tables = make(study, profile, readings)
    return tables | (make(REAL, profile, readings) if makes_real(profile) else {})


def _follow(c: Readings) -> dict[str, pd.DataFrame]:
    plants = pd.DataFrame(read_jsonl(PLANTS))
    quality = [
        pass_agreement(c.pairs),
        pass_agreement(c.pairs, "single"),
        planted_pairs(c.pairs, plants),
        known_pairs(c.pairs, plants),
        stances(c.pairs),
    ]
    made = {
        "contradiction_judge": pd.concat(quality, ignore_index=True),
        "contradiction_judged": shares(c.pairs),
        "contradiction_reasons": reasons(c.pairs),
    }
    if c.evidence in _GROUPS:
        periods = by_period(c.pairs, load_evidence(c.evidence), _GROUPS[c.evidence])
        made["contradiction_periods"] = periods
    return {name: beside({"judged": table}) for name, table in made.items()}


def _contrast_values(c: Readings) -> pd.DataFrame:
    """``arm, qid, metric, value`` of the judged arms: ``pair_values`` and ``filter_values``."""
    asked = []
    for dataset in EXAMS:
        asked += [q for q in load_real("test") if q.dataset == dataset][:REAL_QUESTIONS]
    retriever = open_retriever(c.profile, c.encoder)
    written = written_for(asked, recorded(), retriever)
    runs = runs_of(Sample(asked, written, retriever), ARMS)
    known = judgments.evidence(judgments.read_judgments())
    parts = [pair_values(c.pairs, runs), filter_values(c.pairs, runs, asked, known)]
    return nine_digits(pd.concat(parts, ignore_index=True))


def _follow_real(_: Readings, values: pd.DataFrame) -> dict[str, pd.DataFrame]:
    return {
        "contradiction_arms": beside({"judged": arms_table(values)}),
        "contradiction_filter": beside({"judged": filter_table(values)}),
    }


def _looks(c: Readings, _: Mapping[str, pd.DataFrame]) -> list[Look]:
    pools = c.pairs.loc[c.pairs["group"] == "real", "pool"]
    return [Look("real", pools.str.removeprefix("real/"), ARMS)]


def _origin_of_real(c: Readings) -> dict[str, Any]:
    recordings = [path.relative_to(DATA).as_posix() for path in RECORDINGS.glob("real-*.jsonl.gz")]
    sets = [name for group in GROUPS.values() for d in group for name in load_registry(f"{d}-")]
    passages = [judgments.JUDGMENTS.relative_to(DATA).as_posix()]
    data = {*_labels(), *passages, *recordings, *sets, *files_of_corpora(c.profile.corpora)}
    return {"data": sorted(data), "encoder": c.encoder.fingerprint, "limit": None}


READINGS = Study(
    name="contradiction, readings",
    code=CODE,
    load=load,
    values={},
    tables=(
        "contradiction_judge",
        "contradiction_judged",
        "contradiction_reasons",
        "contradiction_periods",
    ),
    follow=_follow,
    origin=lambda _: {"limit": None},
)

REAL = Study(
    name="contradiction, judged",
    code=CODE,
    load=load,
    values={"values_contradiction_arms": _contrast_values},
    tables=("contradiction_arms", "contradiction_filter"),
    follow=_follow_real,
    looks=_looks,
    origin=_origin_of_real,
)


def figure2(periods: pd.DataFrame | None, evidence: str) -> pd.DataFrame:
    """What is drawn of periods: judged shares of evidence-mini and ``open``, and the paper's.

    ``periods`` are this profile's own ``contradiction_periods``, if it has any; others are the
    committed ones. The paper has no such share: beside them stands that of its documents with a
    modelled CNT of .6 or more. Columns: source, label, period, value, low, high, n.
    """
    cells = reported("fig2_heatmap").rename(columns={"year_bin": "period"})
    n = cells.groupby("period")["value"].sum()
    share = cells[cells["cnt_bin"].isin(BINS[3:])].groupby("period")["value"].sum() / n
    paper = pd.DataFrame({"value": share, "n": n}).reindex(PERIODS).rename_axis("period")
    labels = {
        "paper": "the paper: scores of .6 or more",
        "evidence-mini": "evidence-mini, judged",
        "open": "real abstracts, judged",
    }
    parts = [paper.reset_index().assign(source="paper")]
    for source, profile in (("evidence-mini", "mini"), ("open", "open")):
        own = periods
        if source != evidence:
            own = read_result("contradiction_periods", profile, committed=True)[0]
        parts.append(own.assign(source=source))
    table = pd.concat(parts, ignore_index=True)
    n = table[table["period"] != "all"].groupby("source")["n"].sum()
    table["label"] = [f"{labels[source]}, n = {n[source]:,.0f}" for source in table["source"]]
    return table[["source", "label", "period", "value", "low", "high", "n"]]
