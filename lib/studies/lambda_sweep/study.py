"""The lambda study: what contrast retrieves on a benchmark, over lambda, and what dev chooses.

Nothing here needs an LLM: a benchmark brings its hypotheses. One table is measured, every outcome
of every arm; curves, choices and claims follow from it.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from lib.base.files import Unfinished
from lib.base.parameters import check_lam, check_number, refuse_unknown
from lib.base.provenance import code_hash, data_hash
from lib.benchmarks import load_benchmark
from lib.benchmarks.base import Benchmark
from lib.data.looks import Look
from lib.embed import Encoder
from lib.index_build import by_codes
from lib.limit import limited
from lib.open_retriever import retriever_for
from lib.profiles import Profile
from lib.query_spec import Hypotheses, SearchSpec, Text, with_random_mimics
from lib.run import Retriever
from lib.search.contrast import hardest_tenth, rotation, spectrum
from lib.search.lambda_path import rows_on_path
from lib.stats import (
    CLASSES,
    METRICS,
    claims,
    class_of,
    long_values,
    mean_interval,
    measure,
    summary,
)
from lib.studies.lambda_sweep.arms import (
    H_PLUS,
    QUESTION,
    RANDOM,
    OpenBenchmark,
    SearchArm,
    arms_on_test,
    candidates,
    chosen_arms,
    exploratory_pairs,
    families,
    family_of,
    name_of,
    steps,
)
from lib.study import (
    Arm,
    Found,
    Study,
    declared_pairs,
    make,
    mean_of_draws,
    primary_tests,
    search_arm,
    search_arms,
)

CODE = ("lib.studies.lambda_sweep", "lib.index_build")
"""The modules that every result of the study depends on, beside the benchmark's own."""

CHOICE = "p_at_5"
"""The metric by which dev chooses."""

DEPTH = 10
"""Passages retrieved for each question, or k if that is more: nDCG and recall look at ten."""

# a benchmark, opened ------------------------------------------------------------------------------


def hypotheses_of(benchmark: Benchmark) -> dict[str, Hypotheses]:
    """Every question's texts, by id: the question, H+, and H- of every kind there is; "nearest" is
    the mimic of plain contrast."""
    found = {}
    for i, qid in enumerate(benchmark.qids):
        texts = [
            Text(benchmark.h_plus[i], 1.0, "article", "target"),
            Text(benchmark.h_minus["nearest"][i], 1.0, "article", "mimic"),
            Text(benchmark.questions[i], 0.0, "query", "question"),
        ]
        for kind, mimics in benchmark.h_minus.items():
            if kind != "nearest":
                texts.append(Text(mimics[i], 1.0, "article", "mimic", kind))
        if benchmark.several:
            several = benchmark.several[i]
            texts += [Text(mimic, 1.0, "article", "mimic", "several") for mimic in several]
        found[qid] = Hypotheses(
            tuple(texts),
            excluded=benchmark.excluded.get(qid, frozenset()),
            qid=qid,
            topics=benchmark.topics.get(qid, frozenset()),
        )
    return found


def open_benchmark(
    benchmark: Benchmark,
    retriever: Retriever,
    k: int = 5,
    limit: int = 0,
    lambdas: Sequence[float] = (),
) -> OpenBenchmark:
    """The benchmark on the retriever's index.

    Random mimics are drawn among the test questions for test questions, among dev for dev, so that
    nothing of the test set enters a choice. With a ``limit`` few questions are searched
    (``lib.limit``); their random mimics are those of the whole set.
    """
    written = hypotheses_of(benchmark)
    drawn = {}
    for part in (benchmark.test, sorted(benchmark.dev)):
        drawn |= with_random_mimics({qid: written[qid] for qid in part})
    asked = limited(benchmark, limit)
    hubs = retriever.with_hub_queries(written[qid] for qid in asked.qids)
    return OpenBenchmark(asked, hubs, drawn, k, lambdas)


def measured(
    bench: OpenBenchmark,
    arm: Arm,
    qids: Sequence[str],
    metrics: Sequence[str] = METRICS,
    found: Sequence[Found] | None = None,
) -> pd.DataFrame:
    """Per-question metrics of one arm, index qid; of a control their mean over its draws. ``found``
    is what it finds by draw, where it was searched before.

    Mimic passages are those of the nearest mimic, whatever was searched with: at lambda 0 all
    forms are one search, and measure the same. ``unranked`` is 1 where the query was zero or tiny,
    so that nothing was retrieved and every metric is 0.
    """
    targets = {qid: bench.benchmark.targets[qid] for qid in qids}

    def outcomes(found: Found) -> pd.DataFrame:
        table = measure(found, targets, bench.benchmark.mimics, bench.k)[list(metrics)]
        return table.assign(unranked=[float(qid not in found) for qid in table.index])

    if found is None:
        found = search_arm(arm, qids, bench.retriever, max(DEPTH, bench.k))
    return mean_of_draws(found, outcomes)


# the study ----------------------------------------------------------------------------------------


def dev_choice(bench: OpenBenchmark, values: pd.DataFrame) -> dict[str, SearchArm]:
    """The arm that dev chose for each form, given all outcomes; none without dev questions."""
    tried = candidates(bench)
    if bench.benchmark.dev:
        return choose(values, tried, bench.benchmark.dev)
    named = {form: {arm.name: arm for arm in arms} for form, arms in tried.items()}
    return {form: named[form][name] for form, name in bench.chosen.items() if form in named}


def choose(
    values: pd.DataFrame, tried: Mapping[str, Sequence[SearchArm]], dev: Iterable[str]
) -> dict[str, SearchArm]:
    """For each form the arm with the best mean on the dev questions, the first of equals.

    Values count as the stored table has them, with 3 decimals, so that whoever chooses from the
    file chooses the same.
    """
    chosen = values[(values["metric"] == CHOICE) & values["qid"].isin(set(dev))]
    means = chosen["value"].round(3).groupby(chosen["arm"]).mean().round(9)
    return {form: max(arms, key=lambda arm: means[arm.name]) for form, arms in tried.items()}


def settings(bench: OpenBenchmark) -> dict:
    """What every result depends on, beside data files, encoder and limit."""
    return {
        "k": bench.k,
        "lambdas": list(bench.lambdas),
        "counts": dict(bench.benchmark.counts),
        "chosen": dict(bench.chosen),
        "code": [*CODE, *bench.benchmark.code],
        **by_codes(bench.retriever.index),
    }


def unfinished(bench: OpenBenchmark) -> Unfinished:
    """The arms that a run measured before it was stopped."""
    behind = settings(bench)
    return Unfinished(
        f"lambda study: {bench.benchmark.name}",
        **behind,
        encoder=bench.retriever.encoder.fingerprint,
        asked=list(bench.benchmark.qids),
        made_by=[code_hash(behind["code"]), data_hash(bench.data)],
    )


def values_table(bench: OpenBenchmark) -> pd.DataFrame:
    """``arm, qid, metric, value``: what every arm scores on every question it is measured on.

    On dev questions the metric that chooses alone, for every arm that could be chosen; on test
    questions all metrics.
    """
    on_dev = {}
    if bench.benchmark.dev:
        on_dev = {arm.name: arm for arms in candidates(bench).values() for arm in arms}
    dev_values = _outcomes(bench, on_dev.values(), "dev")
    arms = arms_on_test(bench, dev_choice(bench, dev_values))
    tested = _outcomes(bench, arms.values(), "test")
    return tested if dev_values.empty else pd.concat([dev_values, tested], ignore_index=True)


def _outcomes(bench: OpenBenchmark, arms: Iterable[Arm], half: str) -> pd.DataFrame:
    """What these arms score on one half of the questions; an arm that is done is kept at once, and
    a run that was stopped says how many are. Arms of one curve over lambda are one search."""
    from tqdm import tqdm

    done, parts = unfinished(bench), []
    qids, metrics = bench.benchmark.test, [*METRICS, "unranked"]
    if half == "dev":
        qids, metrics = sorted(bench.benchmark.dev), [CHOICE]
    named = {f"{half} {arm.name}": arm for arm in arms}
    curves: dict[str, dict[str, Arm]] = defaultdict(dict)
    for name, arm in named.items():
        if name not in done:
            curves[_curve_of(arm)][arm.name] = arm
    found: dict[str, list[Found]] = {}
    what, kept = f"{bench.benchmark.name}, {half}", sum(name in done for name in named)
    if kept:
        print(f"{what}: {kept} of {len(named)} arms were kept, it goes on", file=sys.stderr)
    with tqdm(total=len(named), initial=kept, desc=what, disable=None) as bar:
        for name, arm in named.items():

            def rows(arm: Arm = arm) -> list[list]:
                if arm.name not in found:
                    together = curves[_curve_of(arm)].values()
                    depth = max(DEPTH, bench.k)
                    found.update(search_arms(together, qids, bench.retriever, depth))
                table = measured(bench, arm, qids, found=found.pop(arm.name))[metrics]
                bar.update()
                return long_values(arm.name, table).to_numpy().tolist()

            parts += done.piece(name, rows)
    return pd.DataFrame(parts, columns=["arm", "qid", "metric", "value"])


def _curve_of(arm: Arm) -> str:
    """The curve over lambda that an arm is on, a rule for lambda on that of one mimic; its own name
    where its query is no straight line in lambda."""
    spec = getattr(arm, "spec", None) or H_PLUS
    return family_of(spec) if spec.is_line else arm.name


def follow(bench: OpenBenchmark, values: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Questions, choices, curves and claims, by name of the result."""
    benchmark = bench.benchmark
    dev, questions = dev_choice(bench, values), question_table(bench)
    tested = values[values["qid"].isin(set(benchmark.test))]
    pairs = declared_pairs(benchmark.name, chosen_arms(dev))
    pairs += exploratory_pairs(bench, set(tested["arm"]), dev)
    tables = (
        questions,
        choice_table(values, dev, benchmark.dev),
        curves(values, questions, bench),
        claims(tested, pairs),
    )
    return dict(zip(names_of(benchmark.name)[1:], tables, strict=True))


def looks(bench: OpenBenchmark, made: Mapping[str, pd.DataFrame]) -> list[Look]:
    """The labels of the benchmark's test questions."""
    name = bench.benchmark.name
    arms = made[names_of(name)[0]]["arm"]
    return [Look(name, bench.benchmark.test, arms, declared=name in primary_tests())]


def names_of(benchmark: str) -> tuple[str, ...]:
    """A benchmark's results: every outcome, the questions, choices, curves and claims."""
    stem = benchmark.replace("-", "_")
    patterns = ("values_{}", "questions_{}", "choices_{}", "{}_lambda", "claims_{}")
    return tuple(pattern.format(stem) for pattern in patterns)


@dataclass
class Benchmarks:
    """A profile's benchmarks, opened and measured when they are first asked for."""

    profile: Profile
    encoder: Encoder
    _opened: dict = field(default_factory=dict, repr=False)
    _results: dict = field(default_factory=dict, repr=False)

    def study(self, name: str) -> OpenBenchmark:
        """The benchmark of that name on the passages it is searched in."""
        if name not in self._opened:
            benchmark = load_benchmark(name, self.encoder)
            retriever = retriever_for(benchmark, self.profile, self.encoder)
            p = self.profile
            self._opened[name] = open_benchmark(benchmark, retriever, p.k, p.limit, p.lambdas)
        return self._opened[name]

    def tuned(self, name: str) -> OpenBenchmark:
        """The benchmark with what another one's dev questions chose, where it has none itself."""
        bench = self.study(name)
        other = bench.benchmark.chosen_on
        if not other:
            return bench
        choices = self.results(other)["choices"]
        chosen = dict(zip(choices["form"], choices["arm"], strict=True))
        return replace(bench, tuned_on=self.study(other), chosen=chosen)

    def results(self, name: str) -> dict[str, pd.DataFrame]:
        """All tables of a benchmark: ``values``, ``questions``, ``choices``, ``curves`` and
        ``claims``. What is stored and holds is reused."""
        if name not in self._results:
            bench = self.tuned(name)
            made = make(study_of(bench), self.profile, bench)
            unfinished(bench).end()
            kinds = ("values", "questions", "choices", "curves", "claims")
            self._results[name] = dict(zip(kinds, made.values(), strict=True))
        return self._results[name]


def study_of(bench: OpenBenchmark) -> Study:
    """The lambda study of a benchmark, its collection."""
    outcomes, *tables = names_of(bench.benchmark.name)
    return Study(
        name="lambda",
        code=CODE[0],
        load=lambda _: bench,
        values={outcomes: values_table},
        tables=tables,
        follow=follow,
        looks=looks,
        origin=settings,
    )


# tables -------------------------------------------------------------------------------------------


def question_table(bench: OpenBenchmark) -> pd.DataFrame:
    """What is known of each question: qid, split, c = cos(h+, h-), and reasons to leave it out.

    ``copied``, ``shared``, ``doubtful``, ``errata`` and ``hardest`` (the tenth of the test
    questions with the highest c) are 0 or 1.
    """
    b = bench.benchmark
    table = pd.DataFrame({"qid": b.qids, "c": bench.cosines.values()})
    table.insert(1, "split", ["dev" if qid in b.dev else "test" for qid in b.qids])
    for mark in ("copied", "shared", "doubtful", "errata"):
        table[mark] = [int(qid in getattr(b, mark)) for qid in b.qids]
    tested = table["split"] == "test"
    table["hardest"] = 0
    table.loc[tested, "hardest"] = hardest_tenth(table.loc[tested, "c"].to_numpy()).astype(int)
    return table


def choice_table(
    values: pd.DataFrame, dev: Mapping[str, SearchArm], qids: Iterable[str]
) -> pd.DataFrame:
    """What dev chose: form, arm, lambda (missing for rules), the dev mean it was chosen for, n."""
    qids = set(qids)
    mine = values[(values["metric"] == CHOICE) & values["qid"].isin(qids)]
    means = mine.groupby("arm")["value"].mean()
    rows = [
        {
            "form": form,
            "arm": arm.name,
            "lambda": arm.spec.lam if arm.spec else np.nan,
            "dev_p_at_5": means.get(arm.name, np.nan),
            "n": len(qids),
        }
        for form, arm in dev.items()
    ]
    return pd.DataFrame(rows, columns=["form", "arm", "lambda", "dev_p_at_5", "n"])


_SUBSETS = {
    "copied text left out": ("copied", 0),
    "shared documents left out": ("shared", 0),
    "doubtful targets left out": ("doubtful", 0),
    "known errors left out": ("errata", 0),
    "hardest tenth": ("hardest", 1),
}
"""Parts of the test questions by the mark in ``question_table`` and what it must be."""


def curves(values: pd.DataFrame, questions: pd.DataFrame, bench: OpenBenchmark) -> pd.DataFrame:
    """Every curve over lambda on the test questions: a row for each family, subset and lambda.

    Columns: family, subset, lambda, arm, then means as ``lib.stats.summary`` gives them,
    ``unranked`` (the share of questions whose query had no direction) and n. ``subset`` is "all",
    or for plain CHR what is left without copied texts, shared documents, known errors, or the
    hardest tenth alone.
    """
    tested = questions[questions["split"] == "test"]
    everyone = set(tested["qid"])
    points = [(spec.form, "all", spec, everyone) for spec in (QUESTION, RANDOM)]
    for family in families(bench):
        points += [(family_of(family), "all", s, everyone) for s in steps(family, bench.lambdas)]
    for subset, (mark, wanted) in _SUBSETS.items():
        kept = set(tested.loc[tested[mark] == wanted, "qid"])
        if kept and kept != everyone:
            points += [("chr", subset, spec, kept) for spec in steps(SearchSpec(), bench.lambdas)]
    wide = values[values["qid"].isin(everyone)].pivot(
        index=["arm", "qid"], columns="metric", values="value"
    )
    rows = []
    for family, subset, spec, kept in points:
        arm = name_of(spec)
        table = wide.loc[arm]
        table = table[table.index.isin(kept)]
        label = {"family": family, "subset": subset, "lambda": spec.lam, "arm": arm}
        rows.append(label | summary(table) | {"unranked": table["unranked"].mean()})
    return pd.DataFrame(rows)


# how good must the hypotheses be? -----------------------------------------------------------------

_OTHER = {"target": "mimic", "mimic": "target"}


def exchanged(bench: OpenBenchmark, share: float, seed: int) -> OpenBenchmark:
    """The benchmark with H+ and the nearest H- exchanged for a share of the test questions.

    If an expander takes the wrong option for the right one, its H+ describes the mimic and its H-
    the target. Shares are nested: a question exchanged at 10 % is exchanged at 20 % too.
    """
    tested = bench.benchmark.test
    order = np.random.default_rng(seed).permutation(len(tested))
    turned = dict(bench.hypotheses)
    for qid in (tested[i] for i in order[: round(share * len(tested))]):
        texts = [
            replace(text, role=_OTHER[text.role]) if text.role in _OTHER and not text.kind else text
            for text in turned[qid].texts
        ]
        turned[qid] = replace(turned[qid], texts=tuple(texts))
    return replace(bench, hypotheses=turned)


EXCHANGES = 5
"""Random choices of whose hypotheses are exchanged."""


def corruption_table(bench: OpenBenchmark, lambdas: Sequence[float]) -> pd.DataFrame:
    """P@k on the test questions over the share of exchanged pairs, one row per share and lambda.

    Columns ``wrong, lambda, p_at_5, low, high, mimic_at_5, n``; values are means over
    ``EXCHANGES``, intervals are over questions.
    """
    tested, rows = bench.benchmark.test, []
    for share in (0, 0.1, 0.2, 0.3, 0.4):
        wrong = [exchanged(bench, share, seed) for seed in range(EXCHANGES if share else 1)]
        for lam in lambdas:
            tables = [measured(one, one.arm(SearchSpec(lam=lam)), tested) for one in wrong]
            each = sum(tables) / len(tables)
            mean, low, high = mean_interval(each["p_at_5"].to_numpy())
            row = {"wrong": share, "lambda": lam, "p_at_5": mean, "low": low, "high": high}
            rows.append(row | {"mimic_at_5": each["mimic_at_5"].mean(), "n": len(tested)})
    return pd.DataFrame(rows)


# what a notebook shows ----------------------------------------------------------------------------


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


def story_rows(curves: pd.DataFrame) -> pd.DataFrame:
    """Plain CHR at three lambdas: H+ alone, these questions' own best, and the paper's 1."""
    rows = curves[(curves["family"] == "chr") & (curves["subset"] == "all")].set_index("lambda")
    picked = rows.loc[[0, rows["p_at_5"].idxmax(), 1]].reset_index()
    picked.index = ["H+ alone", "best on these questions", "the paper's"]
    shown = ["lambda", "p_at_5", "p_at_5_low", "p_at_5_high", "contamination_at_5"]
    return picked[[*shown, "neither_at_5", "n"]]


def top_table(bench: OpenBenchmark, qid: str, lambdas: Sequence[float]) -> pd.DataFrame:
    """The top k of one question at several lambdas: lambda, rank, class, title, how it begins."""
    b, rows = bench.benchmark, []
    for lam in lambdas:
        (found,) = search_arm(bench.arm(SearchSpec(lam=lam)), [qid], bench.retriever, bench.k)
        for rank, passage in enumerate(bench.retriever.store.get_many(found.get(qid, [])), 1):
            shown = passage.title or passage.text[:60]
            what = class_of(passage.pid, b.targets[qid], b.mimics[qid])
            rows.append((lam, rank, what, shown, passage.pid))
    return pd.DataFrame(rows, columns=["lambda", "rank", "class", "passage", "pid"])


def pair_table(bench: OpenBenchmark, lam: float) -> pd.DataFrame:
    """Every question's pair: c = cos(h+, h-), and the query's turn in degrees at two lambdas."""
    lam = check_lam(lam)
    table = pd.DataFrame({"qid": bench.cosines.keys(), "c": bench.cosines.values()})
    turns = {f"turn at {x:g}": rotation(table["c"].to_numpy(), x) for x in (lam, 1.0)}
    return table.assign(**turns)


def spectrum_table(
    bench: OpenBenchmark, qids: Sequence[str] | None, lam_max: float
) -> pd.DataFrame:
    """The lambda spectrum of some questions, the first three where None: ``question, start, end``
    and a count per class.

    ValueError for a question that the benchmark does not have, or a ``lam_max`` not above 0.
    """
    b = bench.benchmark
    qids = list(b.qids[:3]) if qids is None else qids
    if isinstance(qids, str) or not isinstance(qids, Collection) or not len(qids):
        raise ValueError(f"questions must be ids in a list, such as {list(b.qids[:3])}")
    refuse_unknown("this study has no question", qids, b.qids)
    if check_number("lam_max", lam_max) <= 0:
        raise ValueError(f"lam_max must be above 0, not {lam_max!r}")
    index, rows = bench.retriever.index, []
    texts = [bench.hypotheses[qid].of(role)[0] for role in ("target", "mimic") for qid in qids]
    known = bench.retriever.vectors(texts)
    plus, minus = np.split(np.stack([known[text.tower, text.text] for text in texts]), 2)
    held = rows_on_path(index, plus, minus, bench.k, lam_max)
    for qid, pair, few in zip(qids, np.stack([plus, minus], axis=1), held, strict=True):
        order = few[np.argsort(index.ranks[few])]
        for segment in spectrum(*index.score(pair, order), bench.k, lam_max):
            pids = index.ids[order[list(segment.rows)]]
            counts = Counter(class_of(p, b.targets[qid], b.mimics[qid]) for p in pids)
            row = {"question": qid, "start": segment.start, "end": segment.end}
            rows.append(row | {name: counts[name] for name in CLASSES})
    return pd.DataFrame(rows)
