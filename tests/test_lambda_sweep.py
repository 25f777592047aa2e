"""The lambda study: its arms, its one table of outcomes, and what follows from that table."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import lib.study
from lib import benchmarks
from lib.base import paths, provenance
from lib.benchmarks import benchmark_makers, ddx_mini
from lib.embed import HashEncoder
from lib.profiles import Profile, load_profile
from lib.query_spec import DRAWS, SearchSpec
from lib.search.adaptive import drift_budget
from lib.search.compressed import CompressedIndex
from lib.search.contrast import matched_rotation
from lib.stats import METRICS, measure
from lib.studies.lambda_sweep import study as sweep
from lib.studies.lambda_sweep.arms import (
    H_PLUS,
    OpenBenchmark,
    arms_on_test,
    at_zero,
    candidates,
    chosen_arms,
    families,
    family_of,
    is_control,
    name_of,
)
from lib.studies.lambda_sweep.qa_eval import read_benchmark
from lib.studies.lambda_sweep.study import (
    Benchmarks,
    exchanged,
    measured,
    open_benchmark,
)
from lib.study import declared_pairs, make, primary_tests, search_arm
from tests.made_study import DEV, QIDS, N, made, relabelled, vectors_of

LAMBDAS = (0.0, 0.4, 1.0)


def profile_of(**changes) -> Profile:
    return load_profile("mini", **({"lambdas": LAMBDAS} | changes))


def found_by(bench: OpenBenchmark, spec: SearchSpec, qids, depth: int = 10) -> dict:
    """What one search finds, without the draws of a control."""
    return search_arm(replace(bench.arm(spec), draws=1), qids, bench.retriever, depth)[0]


def made_results(bench: OpenBenchmark) -> dict:
    """Every table of a benchmark, as stored."""
    found = make(sweep.study_of(bench), profile_of(), bench)
    kinds = ("values", "questions", "choices", "curves", "claims")
    return dict(zip(kinds, found.values(), strict=True))


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """Folders of this module's own, for the cache and for results."""
    folder = tmp_path_factory.mktemp("lam")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHR_CACHE", str(folder / "cache"))
        patch.setenv("CHR_OUT", str(folder / "out"))
        yield folder


@pytest.fixture(scope="module")
def bench(here) -> OpenBenchmark:
    return replace(made(here), lambdas=LAMBDAS)


@pytest.fixture(scope="module")
def results(bench) -> dict:
    return made_results(bench)


@pytest.fixture(scope="module")
def stored(results) -> pd.DataFrame:
    """The one table of outcomes, read from its file."""
    return provenance.read_result("values_made_up", profile_of().name)[0]


def means_of(stored: pd.DataFrame, arm: str, qids) -> pd.Series:
    """The mean of every metric of an arm over some questions: a few lines of pandas."""
    rows = stored[(stored["arm"] == arm) & stored["qid"].isin(set(qids))]
    return rows.groupby("metric")["value"].mean()


# arms --------------------------------------------------------------------------------------------

NAMES = {
    "hplus": SearchSpec(),
    "question": SearchSpec(form="question"),
    "random": SearchSpec(form="random"),
    "chr@0.4": SearchSpec(lam=0.4),
    "chr+by_name@0.4": SearchSpec(lam=0.4, mimic="by name"),
    "chr+stranger@0.4": SearchSpec(lam=0.4, mimic="stranger"),
    "chr+rotation@1": SearchSpec(lam=1.0, rotation=True),
    "chr+pool100@0.4": SearchSpec(lam=0.4, pool=100),
    "chr+question1@0.4": SearchSpec(lam=0.4, question_weight=1.0),
    "hplus+question1": SearchSpec(question_weight=1.0),
    "hplus+centred": SearchSpec(space="centred"),
    "chr+white0.3@0.4": SearchSpec(lam=0.4, space="whitened", shrink=0.3),
    "hplus+white0.3": SearchSpec(space="whitened", shrink=0.3),
    "margin+margin0.05@0.4": SearchSpec(form="margin", lam=0.4, margin=0.05),
    "lda+several+shrink0.1@0.4": SearchSpec(form="lda", mimic="several", lam=0.4, shrink=0.1),
    "csls@0.4": SearchSpec(form="csls", lam=0.4),
    "lexical@0": SearchSpec(form="lexical"),
    "fused@0.4": SearchSpec(form="fused", lam=0.4),
    "max@0.4": SearchSpec(form="max", mimic="several", lam=0.4),
    "softmax+tau0.02@0.4": SearchSpec(form="softmax", mimic="several", lam=0.4, tau=0.02),
}


def test_a_name_is_made_of_the_specification_and_stays():
    assert [name_of(spec) for spec in NAMES.values()] == list(NAMES)
    # Which draw a control is on is no part of its name.
    assert [name_of(replace(spec, draw=3)) for spec in NAMES.values()] == list(NAMES)


ALIKE_AT_ZERO = [
    SearchSpec(form="mean", mimic="several"),
    SearchSpec(form="max", mimic="several"),
    SearchSpec(form="softmax", mimic="several", tau=0.02),
    SearchSpec(form="margin", margin=0.1),
    SearchSpec(form="lda", shrink=0.1),
    SearchSpec(form="csls"),
    SearchSpec(mimic="stranger"),
    SearchSpec(rotation=True),
    SearchSpec(pool=100),
]


def test_at_lambda_0_every_form_is_h_plus_alone_by_name_and_by_what_it_finds(bench):
    alone = found_by(bench, H_PLUS, QIDS)
    for spec in ALIKE_AT_ZERO:
        assert name_of(spec) == "hplus" and not is_control(spec) and at_zero(spec) == SearchSpec()
        assert found_by(bench, spec, QIDS) == alone, spec


def test_two_searches_may_not_share_a_name(bench):
    chosen = {"one mimic": bench.arm(SearchSpec(form="max", lam=0.4))}  # of the nearest alone
    with pytest.raises(ValueError, match="two searches have the name max@0.4"):
        arms_on_test(bench, chosen)


def test_a_rule_gives_each_question_its_own_lambda(bench):
    rule = drift_budget(1.0, 0.9)
    lams = rule(np.array([bench.cosines[qid] for qid in QIDS]))
    assert len(set(lams.round(6))) > 10
    (found,) = search_arm(bench.arm(H_PLUS, rule), QIDS, bench.retriever, 10)
    for qid, lam in zip(QIDS, lams, strict=True):
        assert found[qid] == found_by(bench, SearchSpec(lam=float(lam)), [qid])[qid]


# controls ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec", [SearchSpec(lam=0.4, mimic="stranger"), SearchSpec(lam=0.4, rotation=True)]
)
def test_a_control_is_the_mean_over_its_draws(bench, spec):
    """Every draw searched by hand, passage by passage."""
    qids, b, index = bench.benchmark.test[:6], bench.benchmark, bench.retriever.index
    names = index.ids
    passages = index.vectors(np.arange(len(names))).astype(np.float64)
    plus = vectors_of(bench, [b.h_plus[QIDS.index(q)] for q in qids])
    minus = vectors_of(bench, [b.h_minus["nearest"][QIDS.index(q)] for q in qids])
    drawn = {qid: bench.hypotheses[qid].of("mimic", "stranger") for qid in qids}
    total = 0
    for draw in range(DRAWS):
        texts = [drawn[qid][draw % len(drawn[qid])].text for qid in qids]
        other = vectors_of(bench, texts)
        if spec.rotation:
            other = matched_rotation(plus, minus, other).astype(np.float64)
        found = {}
        for i, qid in enumerate(qids):
            scores = np.round(passages @ (plus[i] - spec.lam * other[i]), 5)
            found[qid] = [str(names[j]) for j in np.lexsort((names, -scores))[:10]]
        total = total + measure(found, {q: b.targets[q] for q in qids}, b.mimics)
    table = measured(bench, bench.arm(spec), qids)
    assert bench.arm(spec).draws == DRAWS and (table["unranked"] == 0).all()
    pd.testing.assert_frame_equal(table[list(METRICS)], total / DRAWS, atol=1e-9)
    single = measure(found_by(bench, spec, qids), {q: b.targets[q] for q in qids}, b.mimics)
    assert not np.allclose(single, table[list(METRICS)])  # one draw would not do


def test_random_mimics_of_dev_are_dev_and_of_test_are_test(bench):
    b = bench.benchmark
    qid_of = dict(zip(b.h_minus["nearest"], b.qids, strict=True))
    for qid in QIDS:
        drawn = [qid_of[text.text] for text in bench.hypotheses[qid].of("mimic", "stranger")]
        others = (b.dev if qid in b.dev else set(b.test)) - {qid}
        assert set(drawn) == others and len(drawn) == len(others)


def test_a_query_without_direction_finds_nothing_and_is_counted(bench):
    b = bench.benchmark
    nearest = list(b.h_minus["nearest"])
    nearest[1] = b.h_plus[1]
    twins = replace(b, h_minus={"nearest": tuple(nearest)}, several=())
    broken = open_benchmark(twins, bench.retriever)
    table = measured(broken, broken.arm(SearchSpec(lam=1.0)), b.test)
    assert table.loc["q01", "unranked"] == 1 and table["unranked"].sum() == 1
    assert (table.loc["q01", list(METRICS)] == 0).all()


# dev chooses -------------------------------------------------------------------------------------


def test_the_best_mean_is_chosen_the_smaller_lambda_of_equals_as_the_file_has_them(bench):
    def table_of(rows: dict[str, list[float]], metric: str = "p_at_5") -> pd.DataFrame:
        return pd.DataFrame(
            {"arm": arm, "qid": f"q{i}", "metric": metric, "value": value}
            for arm, values in rows.items()
            for i, value in enumerate(values)
        )

    def chosen(values: pd.DataFrame, qids: str) -> str:
        tried = {"one mimic": [bench.arm(SearchSpec(lam=lam)) for lam in LAMBDAS]}
        return sweep.choose(values, tried, qids.split())["one mimic"].name

    rows = {"hplus": [0.2, 0.4, 0.0], "chr@0.4": [0.4, 0.6, 0.0], "chr@1": [0.6, 0.4, 1.0]}
    assert chosen(table_of(rows), "q0 q1") == "chr@0.4"  # q2 is no dev question
    assert chosen(table_of(rows), "q0 q1 q2") == "chr@1"
    other = pd.concat([table_of(rows), table_of({"hplus": [9, 9, 9]}, "mrr")])
    assert chosen(other, "q0 q1") == "chr@0.4"
    # With k = 3 values are thirds: a tie must be one in the file too, which has 3 decimals.
    exact = table_of({"hplus": [1 / 3] * 3, "chr@0.4": [1.0, 0, 0], "chr@1": [0.0, 0, 0]})
    read = exact.assign(value=exact["value"].round(3))
    assert chosen(exact, "q0 q1 q2") == chosen(read, "q0 q1 q2")


def test_nothing_of_the_test_questions_enters_a_choice(bench, own_folders, monkeypatch):
    """All targets of test questions changed: every choice stays. Those of dev changed: it moves."""
    monkeypatch.setattr(sweep, "arms_on_test", lambda *_: {})

    def chosen(changed: OpenBenchmark, name: str) -> dict[str, str]:
        renamed = replace(changed, benchmark=replace(changed.benchmark, name=name))
        values = sweep.values_table(renamed)
        assert set(values["qid"]) == bench.benchmark.dev and set(values["metric"]) == {"p_at_5"}
        return {f: arm.name for f, arm in sweep.dev_choice(changed, values).items()}

    first = chosen(bench, "first")
    assert chosen(relabelled(bench, bench.benchmark.test), "second") == first
    turned = chosen(relabelled(bench, sorted(bench.benchmark.dev)), "third")
    assert turned["one mimic"] == "hplus" != first["one mimic"]


# one table of outcomes, and what follows from it -------------------------------------------------


def test_an_outcome_is_what_the_arm_finds_on_every_question_of_its_half(bench, results, stored):
    b = bench.benchmark
    assert not stored.duplicated(["arm", "qid", "metric"]).any() and stored["value"].notna().all()
    tested, on_dev = (stored[stored["qid"].isin(half)] for half in (b.test, b.dev))
    assert (tested.groupby("arm")["qid"].nunique() == N - DEV).all()
    assert set(tested["metric"]) == {*METRICS, "unranked"} and set(on_dev["metric"]) == {"p_at_5"}
    tried = [arm.name for arms in candidates(bench).values() for arm in arms]
    assert set(on_dev["arm"]) == set(tried)
    # What dev chose is measured on test, with both controls at its lambda.
    choices = results["choices"].set_index("form")
    lam = choices.loc["one mimic", "lambda"]
    controls = {f"chr+rotation@{lam:g}", f"chr+stranger@{lam:g}"}
    assert lam > 0 and {*choices["arm"], *controls} <= set(tested["arm"])
    several = SearchSpec(form="max", mimic="several", lam=1.0)
    for name, spec in (NAMES | {"max@1": several, "chr@0.4": SearchSpec(lam=0.4)}).items():
        if name not in ("hplus", "chr@0.4", "question", "max@1"):
            continue
        targets = {q: b.targets[q] for q in b.test}
        want = measure(found_by(bench, spec, b.test), targets, b.mimics)
        wide = tested[tested["arm"] == name].pivot(index="qid", columns="metric", values="value")
        for metric in METRICS:
            got = wide.loc[want.index, metric].to_numpy()
            assert got == pytest.approx(want[metric].to_numpy(), abs=5.1e-4)


def test_after_ctrl_c_the_same_command_searches_only_what_is_left_and_says_so(
    bench, own_folders, monkeypatch, capsys
):
    """The whole study is stopped twice, in a half each; every arm is measured once."""
    real, searched = sweep.measured, []

    def run(stop_at: int) -> None:
        def measured(bench, arm, qids, found):
            searched.append((arm.name, len(qids)))
            if len(searched) == stop_at:
                searched.pop()
                raise KeyboardInterrupt
            return real(bench, arm, qids, found=found)

        monkeypatch.setattr(sweep, "measured", measured)
        opened = replace(bench)  # as another process opens it
        benchmarks = Benchmarks(profile_of(), HashEncoder(), _opened={"made up": opened})
        benchmarks.results("made up")

    n_dev = len({arm.name for arms in candidates(bench).values() for arm in arms})
    for stop_at in (5, n_dev + 4):
        with pytest.raises(KeyboardInterrupt):
            run(stop_at)
    run(0)
    said = capsys.readouterr().err
    assert f"made-up, dev: 4 of {n_dev} arms were kept" in said and "made-up, test: 3 of" in said
    assert len(searched) == len(set(searched)) > n_dev + 4
    values = provenance.read_result("values_made_up", profile_of().name)[0]
    assert {arm for arm, _ in searched} == set(values["arm"])


def test_on_codes_what_needs_every_passage_is_not_run_by_name_and_the_rest_is(
    bench, results, own_folders, capsys
):
    """Of 390 passages codes give 30 candidates; where they give 39, all are scored."""
    before = bench.retriever
    vectors = before.index.vectors(np.arange(len(before.index)))

    def on_codes(candidates: int) -> dict:
        index = CompressedIndex([vectors], before.index.ids, candidates=candidates)
        retriever = replace(before, index=index, _spaces={})
        return shown(made_results(replace(bench, retriever=retriever)))

    def shown(found: dict) -> dict:
        return {kind: set(found[kind][name]) for kind, name in columns.items()}

    columns = {"choices": "form", "curves": "family"}
    whole = shown(results)
    paths.say_once.cache_clear()
    assert on_codes(39) == whole and "NOT RUN" not in capsys.readouterr().err
    left = on_codes(30)
    absent = {"CSLS, no mimic", "softmax of several", "centred", "whitened"}
    assert whole["choices"] - left["choices"] == absent
    assert whole["curves"] - left["curves"] == {"chr+centred"}
    said = capsys.readouterr().err
    for name in ("csls", "softmax+tau0.05", "chr+centred", "chr+white0.1"):
        assert f"made-up, {name}: NOT RUN, " in said


def test_curves_follow_from_the_outcomes_on_every_subset(bench, results, stored):
    b, curves = bench.benchmark, results["curves"]
    hardest = sorted(b.test, key=lambda q: -bench.cosines[q])[: math.ceil(len(b.test) / 10)]
    subsets = {
        "all": list(b.test),
        "copied text left out": [q for q in b.test if q not in b.copied],
        "shared documents left out": [q for q in b.test if q not in b.shared],
        "doubtful targets left out": [q for q in b.test if q not in b.doubtful],
        "known errors left out": [q for q in b.test if q not in b.errata],
        "hardest tenth": hardest,
    }
    assert set(curves["subset"]) == set(subsets) and len(hardest) == 2
    assert not curves.duplicated(["family", "subset", "lambda"]).any()
    for row in curves.to_dict("records"):
        kept = subsets[row["subset"]]
        means = means_of(stored, row["arm"], kept)
        assert row["n"] == len(kept) and row["contamination_at_5"] == row["mimic_at_5"]
        assert row["p_at_5_low"] <= row["p_at_5"] <= row["p_at_5_high"]
        for metric in METRICS:
            assert row[metric] == pytest.approx(means[metric], abs=1.01e-3), row["arm"]
    whole = curves[curves["subset"] == "all"][2:]
    assert set(whole["family"]) == {family_of(spec) for spec in families(bench)}
    assert all(group == list(LAMBDAS) for group in whole.groupby("family")["lambda"].agg(list))
    assert set(curves.loc[curves["subset"] != "all", "family"]) == {"chr"}
    marks = results["questions"].set_index("qid")
    for mark in ("copied", "shared", "doubtful", "errata"):
        assert set(marks.index[marks[mark] == 1]) == getattr(b, mark)
    assert set(marks.index[marks["hardest"] == 1]) == set(hardest)
    assert set(marks.index[marks["split"] == "dev"]) == b.dev


# what was declared -------------------------------------------------------------------------------


def dev_at(bench: OpenBenchmark, lam: float) -> dict:
    forms = {
        "one mimic": SearchSpec(lam=lam),
        "question added": SearchSpec(lam=lam, question_weight=1.0),
        "maximum of several": SearchSpec(form="max", mimic="several", lam=lam),
    }
    return {form: bench.arm(spec) for form, spec in forms.items()}


def test_every_declared_arm_is_measured_whatever_dev_chooses(bench):
    lambdas = load_profile("open").lambdas
    for lam in lambdas:
        dev = dev_at(bench, lam)
        arms = arms_on_test(replace(bench, lambdas=lambdas), dev)
        for name in primary_tests().keys() & benchmark_makers().keys():
            for pair in declared_pairs(name, chosen_arms(dev)):
                assert pair.primary and {pair.arm, pair.baseline} <= set(arms), pair


def test_a_declared_test_is_void_at_lambda_0_and_counts_once_at_the_papers(bench):
    def pairs_at(lam: float) -> list[tuple[str, str]]:
        pairs = declared_pairs("ddx-fresh", chosen_arms(dev_at(bench, lam)))
        return [(pair.arm, pair.baseline) for pair in pairs]

    paper = [("chr@1", "hplus"), ("chr@1", "chr+rotation@1")]
    forms = [("chr+question1@{}", "hplus+question1"), ("max@{}", "hplus")]
    at_dev = [("chr@0.4", "hplus"), ("chr@0.4", "chr+rotation@0.4")]
    assert pairs_at(0.4) == [*at_dev, *paper, *((arm.format(0.4), b) for arm, b in forms)]
    assert pairs_at(1.0) == [*paper, *((arm.format(1), b) for arm, b in forms)]
    assert pairs_at(0.0) == paper and declared_pairs("bioasq", {}) == []
    with pytest.raises(KeyError, match="question added"):
        declared_pairs("ddx-fresh", chosen_arms({"one mimic": bench.arm(SearchSpec(lam=0.4))}))


def test_only_what_was_declared_gets_a_verdict(bench, own_folders, monkeypatch):
    """The same outcomes, once with primary tests, with Holm over those alone."""
    test = {"statement": "helps", "metric": "p_at_5", "arm": "chr@{one mimic:lambda}"}
    other = {"statement": "not", "metric": "p_at_5", "arm": "hplus", "baseline": "chr@1"}
    declared = {"made-up": {"test": [test | {"baseline": "hplus"}, other]}}
    monkeypatch.setattr(lib.study, "primary_tests", lambda: declared)
    shown = made_results(bench)["claims"]
    primary = shown[shown["status"] == "primary"].set_index("claim")
    assert primary["verdict"].to_dict() == {"helps": "SUPPORTED", "not": "AGAINST"}
    assert (primary["p_holm"] >= primary["p"]).all() and (primary["p_holm"] < 0.05).all()
    rest = shown[shown["status"] == "exploratory"]
    assert len(rest) > 20 and rest["verdict"].isna().all() and rest["p_holm"].isna().all()


# one file more -----------------------------------------------------------------------------------


def a_small_set(encoder=None):
    """What a newcomer's file would hold: 24 bundled questions under a new name."""
    b = ddx_mini.build(encoder)

    def every_fifth(column):
        return tuple(column[::5])

    qids = every_fifth(b.qids)
    return replace(
        b,
        name="newcomer",
        title="a newcomer's questions",
        qids=qids,
        questions=every_fifth(b.questions),
        h_plus=every_fifth(b.h_plus),
        h_minus={"nearest": every_fifth(b.h_minus["nearest"])},
        dev=frozenset(qids[::3]),
        errata=frozenset(),
    )


@pytest.fixture
def newcomer(own_folders, monkeypatch):
    """Registers a maker of benchmarks: the one line that a new question set needs."""
    makers = benchmark_makers()

    def register(make) -> Benchmarks:
        more = {"newcomer": make, "known": lambda encoder: replace(a_small_set(), name="known")}
        monkeypatch.setattr(benchmarks, "benchmark_makers", lambda: makers | more)
        return Benchmarks(profile_of(lambdas=(0.0, 1.0)), HashEncoder())

    return register


def test_a_question_set_and_a_control_are_each_one_thing_more_in_every_table(newcomer, monkeypatch):
    """A newcomer's file; and a stranger's mimic with half the question added, one SearchSpec."""
    control = SearchSpec(mimic="stranger", question_weight=0.5)
    whole = sweep.families
    for module in ("study", "arms"):
        target = f"lib.studies.lambda_sweep.{module}.families"
        monkeypatch.setattr(target, lambda b: [*whole(b), control])
    study, b = newcomer(a_small_set), a_small_set()
    found = study.results("newcomer")
    assert {path.name for path in paths.results(study.profile.name).glob("*.csv*")} >= {
        f"{name}.csv" for name in sweep.names_of("newcomer")
    }
    assert set(found["values"]["qid"]) == set(found["questions"]["qid"]) == set(b.qids)
    assert len(found["choices"]) == 15 and (found["choices"]["n"] > 0).all()
    rows = found["curves"][found["curves"]["family"] == "chr+stranger+question0.5"]
    assert rows["lambda"].tolist() == [0.0, 1.0] and rows["p_at_5"].notna().all()
    assert {"chr@1", "chr+rotation@1", "chr+stranger+question0.5@1"} <= set(found["claims"]["arm"])


def test_without_dev_questions_nothing_is_chosen_unless_on_another_set(newcomer):
    bare = replace(a_small_set(), dev=frozenset())
    found = newcomer(lambda encoder: bare).results("newcomer")
    assert found["choices"].empty and len(found["claims"]) > 10
    assert found["curves"]["n"].max() == len(bare.qids)
    with pytest.raises(ValueError, match="newcomer cannot be read: no dev questions"):
        read_benchmark(newcomer(lambda encoder: bare), "newcomer")
    opened = newcomer(lambda encoder: replace(bare, chosen_on="known"))
    found, known = opened.results("newcomer"), opened.results("known")
    assert found["choices"]["arm"].tolist() == known["choices"]["arm"].tolist()
    assert set(known["choices"]["arm"]) <= set(found["values"]["arm"])


# wrong hypotheses --------------------------------------------------------------------------------


def test_shares_of_exchanged_pairs_are_nested_and_search_with_the_mimic(bench):
    def turned(share: float, seed: int) -> set[str]:
        other = exchanged(bench, share, seed)
        return {q for q in QIDS if bench.hypotheses[q] != other.hypotheses[q]}

    sets = [turned(share, 7) for share in (0, 0.1, 0.3, 0.6, 1)]
    assert [len(own) for own in sets] == [round(s * (N - DEV)) for s in (0, 0.1, 0.3, 0.6, 1)]
    assert all(smaller < larger for smaller, larger in zip(sets, sets[1:], strict=False))
    assert sets[-1] == set(bench.benchmark.test) and turned(0.3, 0) != turned(0.3, 1)
    once = exchanged(bench, 0.5, 7)
    assert exchanged(once, 0.5, 7).hypotheses == bench.hypotheses
    for qid in turned(0.5, 7):
        before, after = bench.hypotheses[qid], once.hypotheses[qid]
        assert after.of("target")[0].text == before.of("mimic")[0].text
        assert after.of("mimic")[0].text == before.of("target")[0].text
        assert after.of("mimic", "stranger") == before.of("mimic", "stranger")


# what notebooks show -----------------------------------------------------------------------------


def test_the_spectrum_counts_every_passage_of_every_top_k(bench):
    index = bench.retriever.index
    part = replace(bench.retriever, index=index.subset(~np.char.endswith(index.ids, "-t1")))
    for this in (bench, open_benchmark(bench.benchmark, part, k=3)):
        table = sweep.spectrum_table(this, QIDS[:3], 1.4)
        for qid, rows in table.groupby("question"):
            assert rows["start"].iloc[0] == 0 and rows["end"].iloc[-1] == 1.4
            assert np.allclose(rows["start"][1:], rows["end"][:-1])
            for row in rows[rows["end"] - rows["start"] > 1e-3].to_dict("records"):
                spec = SearchSpec(lam=(row["start"] + row["end"]) / 2)
                found = found_by(this, spec, [qid], this.k)
                b = this.benchmark
                want = measure(found, {qid: b.targets[qid]}, b.mimics, this.k).iloc[0]
                for name in ("target", "both", "mimic", "neither"):
                    assert row[name] == round(this.k * want[f"{name}_at_5"])
