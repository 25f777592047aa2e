"""Contradiction that was judged: which pairs of texts, whether the judge is an instrument, and what
it says.

Pairs were chosen by rules that were written down before any was judged, in four groups, told apart
by the first part of a pool's name: ``mini`` (evidence-mini, every pair of abstracts on one topic),
``query`` (60 stated queries of ``open``, every pair among the seven abstracts nearest to each),
``near`` (abstracts of ``open`` drawn by period, each with its nearest neighbour) and ``real`` (60
questions of the real sample, the pairs within the top five of each of three arms). All draws follow
the hash of an id, so nothing was hand-picked. ``tools.pools`` drew, ``tools.judging`` asked.

Judged contradiction carries a result only if kappa of *disagree* between the passes is at least .6
and planted errors are at most .05: that is read before any result is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from lib.base.downloads import load_registry
from lib.base.files import read_jsonl, sha256_bytes
from lib.base.paths import DATA, RECORDINGS
from lib.base.provenance import make_all_or_reuse, make_or_reuse, read_result
from lib.data import judgments
from lib.data.judgments import Verdict, read_judgments, read_pair_judgments, verdicts
from lib.data.looks import Look, note_look
from lib.datasets import EXAMS, GROUPS, Question, load_real
from lib.embed import Encoder
from lib.index_build import files_of as files_of_corpora
from lib.limit import makes_real
from lib.open_retriever import open_retriever
from lib.profiles import Profile
from lib.report import nine_digits
from lib.run import Retriever
from lib.stats import Pair, agreement_table, auroc, claims, mean_interval, ratio_interval
from lib.studies.contradiction.answers import reported
from lib.studies.contradiction.evidence import Evidence, files_of, load_evidence
from lib.studies.contradiction.labelled import with_sentences
from lib.studies.contradiction.nli import Backend, score_pairs, sentences
from lib.studies.contradiction.pools import Pools
from lib.studies.contradiction.study import BINS, CODE, PERIODS, beside
from lib.studies.real.arms import Sample, exam_outcome, runs_of
from lib.studies.real.expansions import recorded, written_for

NEAR = 340
"""Abstracts drawn by period, each with its nearest neighbour: 1,600 pairs with the queries'."""

REAL_QUESTIONS = 30
"""Questions of each exam set, the first by the hash of their ids."""

ARMS = ("hplus", "chr@0.4", "chr@1")
"""Whose top five are compared, each within itself."""

IN_POOLS = ("stranger", "order", "repeat")
"""Control pairs in pools: a text from another pool, one that tells the judge what to say, and a
text of the pool once more. ``tools.judging`` made them."""

PLANTS = DATA / "judgments" / "contradiction_plants.jsonl.gz"

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

Found = Mapping[tuple[str, str, str], Verdict]


# which pairs --------------------------------------------------------------------------------------


def by_hash(what: str, ids: Iterable[str]) -> list[str]:
    """The ids in the order of their hashes."""
    return sorted(ids, key=lambda i: sha256_bytes(f"{what} {i}".encode()))


def period_of(year: int) -> str:
    """The period of a year (``PERIODS``): the first year belongs to a period, the last to the next
    one."""
    return PERIODS[min(max((year - 1995) // 5, 0), len(PERIODS) - 1)]


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


def share_drawn(evidence: Sequence[Evidence]) -> dict[str, float]:
    """Of each period, the share of its abstracts that were drawn with a neighbour: what a figure
    over periods is weighted by."""
    drawn = set(drawn_by_period(evidence))
    rows = [(period_of(abstract.year), abstract.id in drawn) for abstract in evidence]
    table = pd.DataFrame(rows, columns=["period", "drawn"])
    return table.groupby("period")["drawn"].mean().to_dict()


# is the judge an instrument? ----------------------------------------------------------------------


@dataclass(frozen=True)
class Plant:
    """A pair that must get a label: ``must`` is "other", "agree", "disagree", "neither" (anything
    but the two), or the id of the text of the pool that ``a`` or ``b`` is a repetition of."""

    kind: str
    pool: str
    a: str
    b: str
    must: str


def pair_quality(rows: Sequence[Mapping], plants: Sequence[Plant]) -> pd.DataFrame:
    """All that tells whether the judge is an instrument: check, label, value, low, high, n."""
    alone = pass_agreement(rows, "single")
    parts = [pass_agreement(rows), alone, planted_pairs(rows, plants), known_pairs(rows, plants)]
    return pd.concat([*parts, stances(rows)], ignore_index=True)


def pass_agreement(rows: Iterable[Mapping], other: str = "second") -> pd.DataFrame:
    """Kappa and raw agreement of the first pass with another on *same*, *agree* and *disagree*.

    Planted pairs are left out. Pairs on other questions have weight 10: one in ten was judged
    again. The interval resamples pools.
    """
    first, again = _pass(rows, "first"), _pass(rows, other)
    said = []
    for key in sorted(first.keys() & again.keys()):
        one, two = first[key], again[key]
        planted = "plant:" in one["a"] + one["b"] or key[0].startswith("scifact/")
        if planted or one["same"] is None or two["same"] is None:
            continue
        weight = _AGAIN if other == "second" and not one["same"] else 1
        said.append(("same", key[0], weight, one["same"], two["same"]))
        for stance in ("agree", "disagree"):
            said.append((stance, key[0], weight, *(r["stance"] == stance for r in (one, two))))
    table = pd.DataFrame(said, columns=["label", "group", "weight", "one", "two"])
    return agreement_table(table, f"first and {other} pass")


def _pass(rows: Iterable[Mapping], judge: str) -> dict[tuple[str, str, str], Mapping]:
    return {(row["pool"], row["a"], row["b"]): row for row in rows if row["judge"] == judge}


def planted_pairs(rows: Iterable[Mapping], plants: Sequence[Plant]) -> pd.DataFrame:
    """How often the first pass did not give a planted pair the label it must get, by kind.

    SciFact's pairs are left out: their human labels come from other judges (``known_pairs``).
    An unjudged pair is an error.
    """
    said = {}
    for key, row in _pass(rows, "first").items():
        if row["same"] is not None:
            said[key] = row["stance"] if row["same"] else "other"
    errors = defaultdict(list)
    for one in plants:
        if one.kind not in (*IN_POOLS, "turned"):
            continue
        must = one.must
        if one.kind == "repeat":
            beside_it = one.b if one.a == "plant:repeat" else one.a
            must = said.get((one.pool, *sorted((beside_it, one.must))))
        wrong = must is None or said.get((one.pool, one.a, one.b)) != must
        errors[f"planted: {one.kind}", "error"].append(wrong)
    errors["planted: all planted pairs", "error"] = sum(errors.values(), [])
    return _means(errors)


def _means(values: Mapping[tuple[str, str], Sequence[bool]]) -> pd.DataFrame:
    """By check and label the share of what holds: check, label, value, low, high, n."""
    rows = [(*key, *mean_interval(np.array(own)), len(own)) for key, own in values.items()]
    return pd.DataFrame(rows, columns=["check", "label", "value", "low", "high", "n"])


def known_pairs(rows: Iterable[Mapping], plants: Sequence[Plant]) -> pd.DataFrame:
    """What both passes say of SciFact's pairs, by what people said of them."""
    found, values = verdicts(rows), defaultdict(list)
    for must in ("agree", "disagree", "neither"):
        keys = [(p.pool, p.a, p.b) for p in plants if p.kind == "scifact" and p.must == must]
        for verdict in (found[key] for key in keys if key in found):
            for stance in ("agree", "disagree"):
                values[f"SciFact, people say {must}", stance].append(verdict.stance == stance)
    return _means(values)


def stances(rows: Iterable[Mapping]) -> pd.DataFrame:
    """What both passes say of evidence-mini's pairs, by the stances their writers gave them."""
    stance_of = {e.id: e.meta["stance"] for e in load_evidence("evidence-mini")}
    values = defaultdict(list)
    for (pool, a, b), verdict in verdicts(rows).items():
        sides = {stance_of.get(a), stance_of.get(b)}
        if pool.startswith("mini/") and sides <= {"for", "against"}:
            known = "opposite stances" if len(sides) == 2 else "one stance"
            for stance in ("agree", "disagree"):
                values[f"evidence-mini, {known}", stance].append(verdict.stance == stance)
    return _means(dict(sorted(values.items())))


# how much contradiction there is ------------------------------------------------------------------


def shares(found: Found) -> pd.DataFrame:
    """Of the judged pairs of each group, how many are on one question, agree and disagree.

    Columns: group, measure, count, value, low, high, n (pairs), pools. Both passes must say so;
    "disagree_any" is what either says. "disagree_of_same" is of the pairs on one question alone:
    no other pair could disagree, so it is what tells how much contradiction there is. Planted
    pairs are left out. The interval resamples pools; where none or all are counted it has no
    width, and says nothing.
    """
    groups = defaultdict(lambda: defaultdict(list))
    for (pool, a, b), verdict in found.items():
        group = pool.partition("/")[0]
        if group in ("mini", "query", "near", "real") and "plant:" not in a + b:
            groups[group][pool].append(verdict)
    rows = []
    for group, pools in sorted(groups.items()):
        for measure in (*MEASURES, "disagree_any"):
            counts = [(_count(own, measure), len(own)) for own in pools.values()]
            rows.append((group, measure, *_share(counts)))
        counts = [(_count(own, "disagree"), _count(own, "same")) for own in pools.values()]
        rows.append((group, "disagree_of_same", *_share(counts)))
    columns = ["group", "measure", "count", "value", "low", "high", "n", "pools"]
    return pd.DataFrame(rows, columns=columns)


def _share(counts: Iterable[tuple[int, int]]) -> tuple[int, float, float, float, int, int]:
    """count, value, low, high, n and pools of (hits, of) by pool; pools of nothing are left out."""
    own = np.array([(hits, of) for hits, of in counts if of])
    count, n = own.sum(axis=0)
    return count, *ratio_interval(*own.T), n, len(own)


def _count(judged: Iterable[Verdict], measure: str) -> int:
    if measure in ("same", "disagree_any"):
        return sum(getattr(verdict, measure) for verdict in judged)
    return sum(verdict.stance == measure for verdict in judged)


def reasons(rows: Sequence[Mapping]) -> pd.DataFrame:
    """Why pairs of evidence-mini disagree where both passes say that they do.

    Columns: reason (the first pass's), pairs, share, again (of them the share for which the second
    pass gave the same reason).
    """
    keys = [
        key
        for key, verdict in verdicts(rows).items()
        if verdict.stance == "disagree"
        and key[0].startswith("mini/")
        and "plant:" not in key[1] + key[2]
    ]
    passes = (_pass(rows, "first"), _pass(rows, "second"))
    first, second = (
        pd.Series({key: own[key]["reason"] for key in keys if key in own}) for own in passes
    )
    same = first == second.reindex(first.index)
    table = same.groupby(first.to_numpy()).agg(["size", "mean"]).rename_axis("reason")
    table = table.sort_values("size", ascending=False).reset_index()
    table.insert(2, "share", table["size"] / len(first))
    return table.rename(columns={"size": "pairs", "mean": "again"})


def by_period(
    found: Found, years: Mapping[str, int], group: str, drawn: Mapping[str, float] | None = None
) -> pd.DataFrame:
    """Of the abstracts of each period that were judged, the share that some other one contradicts.

    Columns: period, value, low, high, n; periods without any are left out, and "all" comes last.
    ``group`` is "mini" or "near". Of "near" only the drawn abstracts count, not their neighbours,
    which may be of another period. In "all" an abstract has the weight 1 / ``drawn``, the share of
    its period that was drawn (``share_drawn``; default: all of it). Intervals are
    Wilson's, that of "all" resamples abstracts within their period.
    """
    from statsmodels.stats.proportion import proportion_confint

    contradicted: dict[str, float] = {}
    for (pool, a, b), verdict in found.items():
        kind, _, name = pool.partition("/")
        if kind != group or "plant:" in a + b:
            continue
        for i in (a, b):
            if group == "mini" or i == name:
                disagree = float(verdict.stance == "disagree")
                contradicted[i] = max(contradicted.get(i, 0.0), disagree)
    values = defaultdict(list)
    for i, value in contradicted.items():
        values[period_of(years[i])].append(value)
    rows = []
    for period in (period for period in PERIODS if period in values):
        count, n = int(sum(values[period])), len(values[period])
        rows.append((period, count / n, *proportion_confint(count, n, method="wilson"), n))
    weights = {period: 1 / (drawn or {}).get(period, 1.0) for period in values}
    rows.append(("all", *_weighted(values, weights), len(contradicted)))
    return pd.DataFrame(rows, columns=["period", "value", "low", "high", "n"])


def _weighted(
    values: Mapping[str, Sequence[float]], weights: Mapping[str, float]
) -> tuple[float, float, float]:
    """The weighted mean of all values and its 95 % interval, resampled within each period."""
    rng = np.random.default_rng(0)
    total = sum(weights[period] * len(own) for period, own in values.items())
    drawn, mean = np.zeros(2000), 0.0
    for period, own in sorted(values.items()):
        share = weights[period] * len(own) / total
        drawn += share * rng.choice(own, (2000, len(own))).mean(axis=1)
        mean += share * float(np.mean(own))
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


def contrast_values(found: Found, retriever: Retriever) -> pd.DataFrame:
    """``arm, qid, metric, value`` of the judged arms, before and after the filter.

    Of an arm the shares of its top five's pairs (``pair_values``) and ``SUPPORT``; of "<arm> |
    <rule>" ``SUPPORT`` of what the filter leaves, and ``removed``, how many it takes.
    """
    asked = []
    for dataset in EXAMS:
        asked += [q for q in load_real("test") if q.dataset == dataset][:REAL_QUESTIONS]
    written = written_for(asked, recorded(), retriever)
    runs = runs_of(Sample(asked, written, retriever), ARMS)
    known = judgments.evidence(read_judgments())
    filtered_too = filter_values(found, runs, asked, known)
    return pd.concat([pair_values(found, runs), filtered_too], ignore_index=True)


def pair_values(found: Found, runs: pd.DataFrame) -> pd.DataFrame:
    """Of the pairs within each arm's top five, the share on one question, that agree and that
    disagree: arm, qid, metric, value. ``runs``: arm, qid, rank, pid."""
    top = runs[runs["arm"].isin(ARMS) & (runs["rank"] <= 5)]
    values = []
    for (qid, arm), rows in top.groupby(["qid", "arm"]):
        pairs = [tuple(sorted(pair)) for pair in combinations(rows["pid"], 2)]
        own = [found[key] for a, b in pairs if (key := (f"real/{qid}", a, b)) in found]
        for measure in MEASURES if len(own) == len(pairs) and pairs else ():
            values.append((arm, qid, measure, _count(own, measure) / len(pairs)))
    return pd.DataFrame(values, columns=["arm", "qid", "metric", "value"])


def arms_table(values: pd.DataFrame) -> pd.DataFrame:
    """What contrast does to ``pair_values``, each arm against H+ alone on the same questions.

    Columns: arm, measure, value, difference, low, high, n, least.
    """
    pairs = [Pair("", measure, arm, ARMS[0]) for measure in MEASURES for arm in ARMS]
    table = claims(values, pairs).rename(columns={"metric": "measure"})
    table.loc[table["arm"] == ARMS[0], ["difference", "low", "high", "mde"]] = np.nan
    columns = ["arm", "measure", "value", "n", "difference", "low", "high", "mde"]
    return table[columns]


def filtered(pids: Sequence[str], qid: str, found: Found, rule: str) -> list[str]:
    """A ranked list without the passages that disagree with a kept passage of higher rank.

    The paper recommends to filter retrieved evidence by contradiction, and does not measure it.
    This filter is an upper bound, because it reads the judge's labels. Removed passages are not
    replaced.
    """

    def disagree(verdict: Verdict | None) -> bool:
        if verdict is None:
            return False
        return verdict.disagree_any if rule == "any pass" else verdict.stance == "disagree"

    stays: list[str] = []
    for pid in pids:
        keys = [(f"real/{qid}", *sorted((pid, better))) for better in stays]
        if not any(disagree(found.get(key)) for key in keys):
            stays.append(pid)
    return stays


def filter_values(
    found: Found,
    runs: pd.DataFrame,
    questions: Sequence[Question],
    known: Mapping[tuple[str, str], judgments.Evidence],
) -> pd.DataFrame:
    """What each arm's top five supports, and what is left of it after the filter by each rule."""
    by_qid = {question.qid: question for question in questions}
    rows = []
    for arm in ARMS:
        own = runs[(runs["arm"] == arm) & (runs["rank"] <= 5)].sort_values("rank")
        for qid, pids in own.groupby("qid")["pid"].agg(list).items():
            outcome = exam_outcome(by_qid[qid], pids, known)
            rows += [(arm, qid, metric, outcome[metric]) for metric in SUPPORT]
            for rule in RULES:
                stays = filtered(pids, qid, found, rule)
                outcome = exam_outcome(by_qid[qid], stays, known)
                after = {metric: outcome[metric] for metric in SUPPORT}
                after["removed"] = len(pids) - len(stays)
                rows += [(f"{arm} | {rule}", qid, *row) for row in after.items()]
    return pd.DataFrame(rows, columns=["arm", "qid", "metric", "value"])


def filter_table(values: pd.DataFrame) -> pd.DataFrame:
    """What the filter does to each arm's top five: is the right option still supported, the wrong?

    ``values`` are ``filter_values``. Columns: rule, arm, metric, before, value (after), difference,
    low, high, n (questions), least, touched (questions that lose a passage), removed (passages).
    """
    keys = [(rule, arm, metric) for rule in RULES for arm in ARMS for metric in SUPPORT]
    table = claims(values, [Pair(rule, m, f"{arm} | {rule}", arm) for rule, arm, m in keys])
    removed = values[values["metric"] == "removed"].groupby("arm")["value"]
    table["touched"] = table["arm"].map(removed.agg(lambda own: int((own > 0).sum())))
    table["removed"] = table["arm"].map(removed.sum())
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


def judged_tables(profile: Profile, evidence: str, encoder: Encoder) -> dict[str, pd.DataFrame]:
    """What the judge says, by name; every table has the column ``contradiction``, "judged".

    ``contradiction_judge`` (is the judge an instrument?), ``contradiction_judged`` (how much
    contradiction there is), ``contradiction_reasons`` (why); for evidence-mini and open
    ``contradiction_periods``; and where a profile makes the real sample, ``contradiction_arms`` and
    ``contradiction_filter``, from ``values_contradiction_arms``. Labels are bundled, so every
    profile can make them; only periods of real abstracts need the open data.
    """
    rows = read_pair_judgments()
    found = verdicts(rows)
    plants = [Plant(**row) for row in read_jsonl(PLANTS)]
    makers: dict[str, Callable[[], pd.DataFrame]] = {
        "contradiction_judge": lambda: pair_quality(rows, plants),
        "contradiction_judged": lambda: shares(found),
        "contradiction_reasons": lambda: reasons(rows),
    }
    group = _GROUPS.get(evidence)
    if group:
        makers["contradiction_periods"] = lambda: _periods(found, evidence, group)
    files = [path.relative_to(DATA).as_posix() for path in (judgments.PAIR_JUDGMENTS, PLANTS)]
    own_files = {*files, *files_of("evidence-mini"), *(files_of(evidence) if group else ())}
    made = _kept(makers, profile, {"code": [CODE], "data": sorted(own_files), "judged": True})
    return made | (_contrast(found, profile, encoder, files) if makes_real(profile) else {})


def _kept(
    makers: Mapping[str, Callable[[], pd.DataFrame]], profile: Profile, origin: Mapping
) -> dict[str, pd.DataFrame]:
    def make() -> dict[str, pd.DataFrame]:
        return {name: beside({"judged": maker()}) for name, maker in makers.items()}

    return make_all_or_reuse(make, list(makers), profile.name, **origin)


def _periods(found: Found, evidence: str, group: str) -> pd.DataFrame:
    """``by_period`` of these abstracts; those of ``open`` were drawn by period."""
    abstracts = load_evidence(evidence)
    drawn = share_drawn(abstracts) if group == "near" else None
    return by_period(found, {e.id: e.year for e in abstracts}, group, drawn)


def _contrast(
    found: Found, profile: Profile, encoder: Encoder, files: Sequence[str]
) -> dict[str, pd.DataFrame]:
    """``arms_table`` and ``filter_table``, from outcomes by question that are kept first."""
    recordings = [path.relative_to(DATA).as_posix() for path in RECORDINGS.glob("real-*.jsonl.gz")]
    sets = [name for group in GROUPS.values() for d in group for name in load_registry(f"{d}-")]
    labels = judgments.JUDGMENTS.relative_to(DATA).as_posix()
    data = sorted({*files, labels, *recordings, *sets, *files_of_corpora(profile.corpora)})
    origin = {"code": [CODE], "data": data, "encoder": encoder.fingerprint}

    def looked_at() -> pd.DataFrame:
        outcomes = contrast_values(found, open_retriever(profile, encoder))
        asked = {key.removeprefix("real/") for key, *_ in found if key.startswith("real/")}
        note_look("contradiction, judged", profile.name, Look("real", asked, ARMS))
        return nine_digits(outcomes)

    name = "values_contradiction_arms"
    values = make_or_reuse(looked_at, name, profile.name, dear=True, **origin)
    makers: dict[str, Callable[[], pd.DataFrame]] = {
        "contradiction_arms": lambda: arms_table(values),
        "contradiction_filter": lambda: filter_table(values),
    }
    return _kept(makers, profile, origin)


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
