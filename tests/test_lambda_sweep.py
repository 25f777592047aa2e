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
from lib.benchmarks import benchmark_makers, ddx_mini, load_benchmark
from lib.embed import HashEncoder
from lib.profiles import Profile, load_profile
from lib.query_spec import DRAWS, SearchSpec
from lib.search.adaptive import drift_budget
from lib.search.contrast import matched_rotation
from lib.stats import METRICS, exact_mcnemar, measure
from lib.studies.lambda_sweep import arms, claims, tables, views
from lib.studies.lambda_sweep.arms import Arm, at_zero, candidates, families, family_of, rules
from lib.studies.lambda_sweep.benchmarks import Benchmarks
from lib.studies.lambda_sweep.corruption import corruption_table, exchanged
from lib.studies.lambda_sweep.study import Study, found_by, hypotheses_of, measured, open_study
from lib.studies.main_tables.experiment import open_experiment
from lib.study import declared_pairs, primary_tests
from tests.made_study import DEV, QIDS, N, made, relabelled, unit, vectors_of

LAMBDAS = (0.0, 0.4, 1.0)
ALONE = ("p_at_5", "hit_at_5", "mimic_at_5", "neither_at_5")


def profile_of(**changes) -> Profile:
    return load_profile("mini", **({"lambdas": LAMBDAS} | changes))


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """Folders of this module's own, for the cache and for results."""
    folder = tmp_path_factory.mktemp("lam")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHR_CACHE", str(folder / "cache"))
        patch.setenv("CHR_OUT", str(folder / "out"))
        yield folder


@pytest.fixture(scope="module")
def study(here) -> Study:
    return made(here)


@pytest.fixture(scope="module")
def results(study) -> dict:
    """Every table of the made-up study, as stored."""
    return tables.study_results(study, profile_of())


@pytest.fixture(scope="module")
def stored(results) -> pd.DataFrame:
    """The one table of outcomes, read from its file."""
    table, _ = provenance.read_result("values_made_up", "mini")
    return table


def means_of(stored: pd.DataFrame, arm: str, qids) -> pd.Series:
    """The mean of every metric of an arm over some questions: a few lines of pandas."""
    own = stored[(stored["arm"] == arm) & stored["qid"].isin(set(qids))]
    return own.groupby("metric")["value"].mean()


# arms --------------------------------------------------------------------------------------------

NAMES = {
    "hplus": SearchSpec(),
    "question": SearchSpec(form="question"),
    "random": SearchSpec(form="random"),
    "chr@0.4": SearchSpec(lam=0.4),
    "chr@1": SearchSpec(lam=1.0),
    "chr+middle@0.4": SearchSpec(lam=0.4, mimic="middle"),
    "chr+by_name@0.4": SearchSpec(lam=0.4, mimic="by name"),
    "chr+stranger@0.4": SearchSpec(lam=0.4, mimic="stranger"),
    "chr+rotation@1": SearchSpec(lam=1.0, rotation=True),
    "chr+pool100@0.4": SearchSpec(lam=0.4, pool=100),
    "chr+question1@0.4": SearchSpec(lam=0.4, question_weight=1.0),
    "hplus+question1": SearchSpec(question_weight=1.0),
    "chr+centred@0.4": SearchSpec(lam=0.4, space="centred"),
    "hplus+centred": SearchSpec(space="centred"),
    "chr+white0.3@0.4": SearchSpec(lam=0.4, space="whitened", shrink=0.3),
    "hplus+white0.3": SearchSpec(space="whitened", shrink=0.3),
    "margin@0.4": SearchSpec(form="margin", lam=0.4),
    "margin+margin0.05@0.4": SearchSpec(form="margin", lam=0.4, margin=0.05),
    "lda+shrink0.1@0.4": SearchSpec(form="lda", lam=0.4, shrink=0.1),
    "lda+several+shrink0.1@0.4": SearchSpec(form="lda", mimic="several", lam=0.4, shrink=0.1),
    "csls@0.4": SearchSpec(form="csls", lam=0.4),
    "lexical@0": SearchSpec(form="lexical"),
    "lexical@0.4": SearchSpec(form="lexical", lam=0.4),
    "fused@0": SearchSpec(form="fused"),
    "fused@0.4": SearchSpec(form="fused", lam=0.4),
    "mean@0.4": SearchSpec(form="mean", mimic="several", lam=0.4),
    "max@0.4": SearchSpec(form="max", mimic="several", lam=0.4),
    "softmax+tau0.02@0.4": SearchSpec(form="softmax", mimic="several", lam=0.4, tau=0.02),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_made_of_the_way_and_stays(name):
    assert Arm(NAMES[name]).name == name
    # Which draw a control is on is no part of its name.
    assert Arm(replace(NAMES[name], draw=3)).name == name


def test_every_family_and_candidate_has_a_name_of_its_own(study):
    b = study.benchmark
    assert list(families(b)) == [
        "chr",
        "chr+middle",
        "chr+stranger",
        "chr+rotation",
        "chr+pool100",
        "chr+question1",
        "margin",
        "chr+centred",
        "mean",
        "max",
    ]
    tried = candidates(b, (0.4, 1.0)) | rules(study.cosines(sorted(b.dev)))
    every = [arm for own in tried.values() for arm in own]
    every += [Arm(replace(spec, lam=0.4)) for spec in families(b).values()]
    specs: dict[str, set] = {}
    for arm in every:
        specs.setdefault(arm.name, set()).add((arm.spec, arm.rule and arm.rule.label))
    assert all(len(own) == 1 for own in specs.values()) and len(specs) > 90


ALIKE_AT_ZERO = [
    SearchSpec(),
    SearchSpec(form="mean", mimic="several"),
    SearchSpec(form="max", mimic="several"),
    SearchSpec(form="softmax", mimic="several", tau=0.02),
    SearchSpec(form="margin"),
    SearchSpec(form="margin", margin=0.1),
    SearchSpec(form="lda", shrink=0.1),
    SearchSpec(form="csls"),
    SearchSpec(mimic="stranger"),
    SearchSpec(mimic="middle"),
    SearchSpec(rotation=True),
    SearchSpec(pool=100),
]


@pytest.mark.parametrize("spec", ALIKE_AT_ZERO, ids=family_of)
def test_at_lambda_0_every_form_is_h_plus_alone_by_name_and_by_what_it_finds(study, spec):
    arm = Arm(spec)
    assert arm.name == "hplus" and not arm.is_control and at_zero(spec) == SearchSpec()
    assert found_by(study, arm, QIDS) == found_by(study, Arm(SearchSpec()), QIDS)


def test_two_ways_may_not_share_a_name(study, monkeypatch):
    chosen = {"one mimic": Arm(SearchSpec(form="max", lam=0.4))}  # of the nearest alone
    with pytest.raises(ValueError, match="two ways have the name max@0.4"):
        tables.test_arms(study.benchmark, LAMBDAS, chosen)
    monkeypatch.setattr(arms, "family_of", lambda spec: "chr")
    with pytest.raises(ValueError, match="two ways have one name"):
        families(study.benchmark)


def test_a_mimic_that_is_added_has_a_name_too():
    with pytest.warns(UserWarning, match="adds the mimic"):
        assert Arm(SearchSpec(lam=-0.4)).name == "chr@-0.4"


def test_a_rule_gives_each_question_its_own_lambda(study):
    rule = drift_budget(1.0, 0.9)
    lams = rule(study.cosines(QIDS))
    assert len(set(lams.round(6))) > 10
    found = found_by(study, Arm(SearchSpec(), rule), QIDS)
    for qid, lam in zip(QIDS, lams, strict=True):
        assert found[qid] == found_by(study, Arm(SearchSpec(lam=float(lam))), [qid])[qid]


def test_in_every_list_the_weaker_contrast_comes_first(study):
    b, dev = study.benchmark, sorted(study.benchmark.dev)
    for form, own in candidates(b, (1.0, 0.0, 0.4)).items():
        lams = [arm.spec.lam for arm in own]
        assert lams == sorted(lams), form
    cosines = study.cosines(dev)
    for form, own in rules(cosines).items():
        # Where only one parameter differs from the rule before, no question gets less contrast.
        for one, other in zip(own, own[1:], strict=False):
            differing = [
                key
                for key in one.rule.parameters
                if one.rule.parameters[key] != other.rule.parameters[key]
            ]
            if len(differing) == 1:
                assert (one.rule(cosines) <= other.rule(cosines) + 1e-12).all(), form


def test_lambdas_without_an_even_tenth_are_tried_all(study):
    assert all(candidates(study.benchmark, (0.3, 0.5)).values())


# controls ----------------------------------------------------------------------------------------


def drawn(study: Study, qid: str, draw: int) -> str:
    strangers = study.hypotheses[qid].of("mimic", "stranger")
    return strangers[draw % len(strangers)].text


@pytest.mark.parametrize("control", ["stranger", "rotation"])
def test_a_control_is_the_mean_over_its_draws(study, control):
    """Every draw searched by hand, passage by passage."""
    lam, qids, b = 0.4, study.benchmark.test[:6], study.benchmark
    index, names = study.index, study.index.ids
    passages = index.vectors(np.arange(len(names))).astype(np.float64)
    plus = vectors_of(study, [b.h_plus[QIDS.index(q)] for q in qids])
    minus = vectors_of(study, [b.h_minus["nearest"][QIDS.index(q)] for q in qids])
    total = 0
    for draw in range(DRAWS):
        other = vectors_of(study, [drawn(study, q, draw) for q in qids])
        if control == "rotation":
            other = matched_rotation(plus, minus, other).astype(np.float64)
        found = {}
        for i, qid in enumerate(qids):
            scores = np.round(passages @ (plus[i] - lam * other[i]), 5)
            found[qid] = [str(names[j]) for j in np.lexsort((names, -scores))[:10]]
        total = total + measure(found, {q: b.targets[q] for q in qids}, b.mimics)
    spec = (
        SearchSpec(lam=lam, rotation=True)
        if control == "rotation"
        else SearchSpec(lam=lam, mimic="stranger")
    )
    table = measured(study, Arm(spec), qids)
    assert Arm(spec).is_control and (table["unranked"] == 0).all()
    pd.testing.assert_frame_equal(table[list(METRICS)], total / DRAWS, atol=1e-9)
    single = measure(found_by(study, Arm(spec), qids), {q: b.targets[q] for q in qids}, b.mimics)
    assert not np.allclose(single, table[list(METRICS)])  # one draw would not do


def test_strangers_of_dev_are_dev_and_of_test_are_test(study):
    b = study.benchmark
    own = dict(zip(b.h_minus["nearest"], b.qids, strict=True))
    for qid in QIDS:
        strangers = [own[text.text] for text in study.hypotheses[qid].of("mimic", "stranger")]
        others = (b.dev if qid in b.dev else set(b.test)) - {qid}
        assert set(strangers) == others and len(strangers) == len(others)


def test_a_query_without_direction_finds_nothing_and_is_counted(here, study):
    b = study.benchmark
    nearest = list(b.h_minus["nearest"])
    nearest[1] = b.h_plus[1]
    twins = replace(b, h_minus={"nearest": tuple(nearest)}, several=())
    broken = open_study(twins, study.retriever)
    table = measured(broken, Arm(SearchSpec(lam=1.0)), b.test)
    assert table.loc["q01", "unranked"] == 1 and table["unranked"].sum() == 1
    assert (table.loc["q01", list(METRICS)] == 0).all()
    assert measured(broken, Arm(SearchSpec(lam=0.9)), b.test)["unranked"].sum() == 0


# dev chooses -------------------------------------------------------------------------------------


def table_of(rows: dict[str, list[float]], metric: str = "p_at_5") -> pd.DataFrame:
    return pd.DataFrame(
        {"arm": arm, "qid": f"q{i}", "metric": metric, "value": value}
        for arm, values in rows.items()
        for i, value in enumerate(values)
    )


def test_the_best_mean_is_chosen_and_the_smaller_lambda_of_equals():
    tried = {"one mimic": [Arm(SearchSpec(lam=lam)) for lam in (0.0, 0.4, 1.0)]}
    rows = {"hplus": [0.2, 0.4, 0.0], "chr@0.4": [0.4, 0.6, 0.0], "chr@1": [0.6, 0.4, 1.0]}
    chosen = tables.choose(table_of(rows), tried, ["q0", "q1"])
    assert chosen["one mimic"].name == "chr@0.4"  # q2 is no dev question
    assert tables.choose(table_of(rows), tried, ["q0", "q1", "q2"])["one mimic"].name == "chr@1"
    other = pd.concat([table_of(rows), table_of({"hplus": [9, 9, 9]}, "mrr")])
    assert tables.choose(other, tried, ["q0", "q1"]) == chosen


def test_whoever_chooses_from_the_file_chooses_the_same():
    """With k = 3 values are thirds: a tie must be one in the file too, which has 3 decimals."""
    tried = {"one mimic": [Arm(SearchSpec()), Arm(SearchSpec(lam=0.4))]}
    exact = table_of({"hplus": [1 / 3, 1 / 3, 1 / 3], "chr@0.4": [1.0, 0.0, 0.0]})
    read = exact.assign(value=exact["value"].round(3))
    for qids in (["q0", "q1", "q2"], ["q1", "q2"]):
        assert tables.choose(exact, tried, qids) == tables.choose(read, tried, qids)


def test_nothing_of_the_test_questions_enters_a_choice(study, monkeypatch):
    """All targets of test questions changed: every choice stays. Those of dev changed: it moves."""
    monkeypatch.setattr(tables, "test_arms", lambda *_: {})
    dev = sorted(study.benchmark.dev)
    tried = tables._tried(study, LAMBDAS)

    def chosen(changed: Study) -> dict[str, str]:
        values = tables.values_table(changed, LAMBDAS)
        assert set(values["qid"]) == set(dev) and set(values["metric"]) == {"p_at_5"}
        return {f: arm.name for f, arm in tables.choose(values, tried, dev).items()}

    first = chosen(study)
    assert chosen(relabelled(study, study.benchmark.test)) == first
    turned = chosen(relabelled(study, dev))
    assert turned["one mimic"] == "hplus" != first["one mimic"]
    assert tables._tried(relabelled(study, study.benchmark.test), LAMBDAS).keys() == tried.keys()


# one table of outcomes, and what follows from it -------------------------------------------------


def test_every_arm_has_every_question_it_is_measured_on(study, results, stored):
    b = study.benchmark
    assert list(stored.columns) == ["arm", "qid", "metric", "value"]
    assert not stored.duplicated(["arm", "qid", "metric"]).any() and stored["value"].notna().all()
    tested = stored[stored["qid"].isin(b.test)]
    wanted = tables.test_arms(b, LAMBDAS, results["dev"])
    assert set(tested["arm"]) == set(wanted) and set(tested["metric"]) == {*METRICS, "unranked"}
    assert (tested.groupby("arm")["qid"].nunique() == N - DEV).all()
    on_dev = stored[stored["qid"].isin(b.dev)]
    tried = [arm.name for own in tables._tried(study, LAMBDAS).values() for arm in own]
    assert set(on_dev["arm"]) == set(tried) and set(on_dev["metric"]) == {"p_at_5"}
    # What dev chose is measured on test, with both controls at its lambda.
    assert {arm.name for arm in results["dev"].values()} <= set(wanted)
    lam = results["dev"]["one mimic"].spec.lam
    assert lam > 0 and {f"chr+rotation@{lam:g}", f"chr+stranger@{lam:g}"} <= set(wanted)


def test_an_outcome_is_what_the_arm_finds(study, stored):
    b = study.benchmark
    for name in ("hplus", "chr@0.4", "question", "max@1", "chr+pool100@1", "chr+middle@0.4"):
        spec = {**NAMES, "max@1": SearchSpec(form="max", mimic="several", lam=1.0)}.get(name)
        arm = Arm(spec or SearchSpec(lam=1.0, pool=100))
        targets = {q: b.targets[q] for q in b.test}
        want = measure(found_by(study, arm, b.test), targets, b.mimics)
        own = stored[(stored["arm"] == name) & stored["qid"].isin(b.test)]
        wide = own.pivot(index="qid", columns="metric", values="value")
        for metric in METRICS:
            assert wide.loc[want.index, metric].to_numpy() == pytest.approx(
                want[metric].to_numpy(), abs=5.1e-4
            )


def test_the_curves_follow_from_the_outcomes(study, results, stored):
    curves = results["curves"]
    assert len(curves) > 40 and not curves.duplicated(["family", "subset", "lambda"]).any()
    whole = curves[curves["subset"] == "all"]
    for row in whole.to_dict("records"):
        means = means_of(stored, row["arm"], study.benchmark.test)
        for metric in METRICS:
            assert row[metric] == pytest.approx(means[metric], abs=1.01e-3), row["arm"]
        assert row["contamination_at_5"] == row["mimic_at_5"] and row["n"] == N - DEV
        assert row["p_at_5_low"] <= row["p_at_5"] <= row["p_at_5_high"]
    shares = whole[[f"{c}_at_5" for c in ("target", "both", "mimic", "neither")]].sum(axis=1)
    assert shares.to_numpy() == pytest.approx(1, abs=0.003)
    lambdas = whole[2:].groupby("family")["lambda"].agg(list)
    assert set(lambdas.index) == set(families(study.benchmark))
    assert all(own == list(LAMBDAS) for own in lambdas)


def test_every_subset_is_what_its_name_says(study, results, stored):
    b, curves = study.benchmark, results["curves"]
    c = dict(zip(b.test, study.cosines(b.test), strict=True))
    hardest = sorted(b.test, key=lambda q: -c[q])[: math.ceil(len(b.test) / 10)]
    subsets = {
        "copied text left out": [q for q in b.test if q not in b.copied],
        "shared documents left out": [q for q in b.test if q not in b.shared],
        "doubtful targets left out": [q for q in b.test if q not in b.doubtful],
        "known errors left out": [q for q in b.test if q not in b.errata],
        "hardest tenth": hardest,
    }
    assert set(curves["subset"]) == {"all", *subsets} and len(hardest) == 2
    for name, kept in subsets.items():
        rows = curves[curves["subset"] == name]
        assert set(rows["family"]) == {"chr"} and rows["lambda"].tolist() == list(LAMBDAS)
        assert 0 < len(kept) < N - DEV and (rows["n"] == len(kept)).all()
        for row in rows.to_dict("records"):
            means = means_of(stored, row["arm"], kept)
            for metric in ALONE:
                assert row[metric] == pytest.approx(means[metric], abs=1.01e-3)
    marks = results["questions"].set_index("qid")
    for mark in ("copied", "shared", "doubtful", "errata"):
        assert set(marks.index[marks[mark] == 1]) == getattr(b, mark)
    assert set(marks.index[marks["hardest"] == 1]) == set(hardest)
    assert set(marks.index[marks["split"] == "dev"]) == b.dev


def test_the_choices_follow_from_the_outcomes(study, results, stored):
    dev, choices = study.benchmark.dev, results["choices"].set_index("form")
    own = stored[stored["qid"].isin(dev)]
    means = own.groupby("arm")["value"].mean().round(9)
    for form, tried in tables._tried(study, LAMBDAS).items():
        names = [arm.name for arm in tried]
        best = means[names].max()
        first = next(name for name in names if means[name] == best)
        assert choices.loc[form, "arm"] == first == results["dev"][form].name
        assert choices.loc[form, "dev_p_at_5"] == pytest.approx(best, abs=5.1e-4)
    assert set(choices.index) == set(results["dev"]) and (choices["n"] == DEV).all()
    assert choices.loc["one mimic", "lambda"] == results["dev"]["one mimic"].spec.lam
    assert np.isnan(choices.loc["L2", "lambda"])


def test_the_claims_follow_from_the_outcomes(study, results, stored):
    tested = stored[stored["qid"].isin(study.benchmark.test)]
    wide = tested.pivot(index="qid", columns=["arm", "metric"], values="value")
    shown = results["claims"]
    assert len(shown) > 20 and not shown.duplicated(["arm", "against", "metric"]).any()
    for row in shown.to_dict("records"):
        a, b = wide[row["arm"], row["metric"]], wide[row["against"], row["metric"]]
        assert row["value"] == pytest.approx(a.mean(), abs=5.1e-4)
        assert row["value_against"] == pytest.approx(b.mean(), abs=5.1e-4)
        assert row["difference"] == pytest.approx((a - b).mean(), abs=5.1e-4)
        assert row["low"] - 5.1e-4 <= row["difference"] <= row["high"] + 5.1e-4
        assert row["n"] == len(a) == N - DEV
        if set(a) | set(b) <= {0.0, 1.0}:
            assert row["p"] == pytest.approx(exact_mcnemar(a == 1, b == 1), abs=5.1e-4)
    # Nothing was declared for this set: an interval, and no verdict on anything.
    assert set(shown["status"]) == {"exploratory"}
    assert shown["p_holm"].isna().all() and shown["verdict"].isna().all()
    for arm in results["dev"].values():
        assert arm.name == "hplus" or arm.name in set(shown["arm"])


def test_the_geometry_does_what_it_was_made_for(results):
    """Contrast repairs H+ alone; the same turn towards a wrong mimic, or a stranger's, does not."""
    rows = results["claims"].set_index(["arm", "against", "metric"])
    helped = rows.loc[("chr@0.4", "hplus", "p_at_5")]
    assert helped["difference"] > 0.3 and helped["low"] > 0.2
    for control in ("chr+rotation@0.4", "chr+stranger@0.4"):
        assert rows.loc[("chr@0.4", control, "p_at_5"), "low"] > 0.2
        assert rows.loc[(control, "hplus", "p_at_5"), "difference"] < 0.05


def test_results_are_kept_and_made_anew_only_when_what_is_behind_changes(
    study, own_folders, monkeypatch
):
    made_of = []

    def maker(name: str):
        def make(*_, **__) -> pd.DataFrame:
            made_of.append(name)
            if name == "values_table":
                rows = [("hplus", q, "p_at_5", 0.12345) for q in study.benchmark.qids]
                return pd.DataFrame(rows, columns=["arm", "qid", "metric", "value"])
            return pd.DataFrame({"x": [0.12345]})

        return make

    makers = ["values_table", "question_table", "choice_table", "curves", "claims"]
    for name in makers:
        monkeypatch.setattr(tables, name, maker(name))
    monkeypatch.setattr(provenance, "code_hash", lambda roots: "the same")
    monkeypatch.setattr(tables, "choose", lambda *_: {})
    for _ in range(2):
        found = tables.study_results(study, profile_of())
        assert made_of == makers
        assert set(found["values"]["value"]) == {0.123} and found["claims"]["x"].tolist() == [0.123]
    assert {p.name for p in paths.results("mini").glob("*.csv")} == {
        "values_made_up.csv",
        "questions_made_up.csv",
        "choices_made_up.csv",
        "made_up_lambda.csv",
        "claims_made_up.csv",
    }
    counted = replace(study, benchmark=replace(study.benchmark, counts={"all": 9}))
    for this, profile, elsewhere in (
        (study, profile_of(lambdas=(0.0, 1.0)), None),
        (replace(study, k=3), profile_of(), None),
        (counted, profile_of(), None),
        (study, profile_of(), {"one mimic": Arm(SearchSpec(lam=0.4))}),
    ):
        made_of.clear()
        tables.study_results(this, profile, elsewhere)
        assert made_of == makers


# what was declared -------------------------------------------------------------------------------


def synthetic_dev(lam: float) -> dict[str, Arm]:
    """What dev might have chosen for every form a set can have: the same lambda everywhere."""
    mini = load_benchmark("ddx-mini")
    b = replace(mini, several=tuple((text,) for text in mini.h_plus))
    tried = candidates(b, (lam,))
    return {form: own[0] for form, own in tried.items()}


def test_what_was_declared_names_arms_that_are_measured():
    declared = primary_tests()
    # Studies of their own: test_real, test_selflearn_retriever.
    assert set(declared) - set(benchmark_makers()) == {"real", "scifact"}
    declared = {name: declared[name] for name in declared if name in benchmark_makers()}
    mini = load_benchmark("ddx-mini")
    b = replace(mini, several=tuple((text,) for text in mini.h_plus))
    lambdas = load_profile("open").lambdas
    for lam in lambdas:
        dev = synthetic_dev(lam) if lam in (0.2, 0.4, 1.0) else synthetic_dev(0.4)
        dev["one mimic"] = Arm(SearchSpec(lam=lam))
        dev["question added"] = Arm(SearchSpec(lam=lam, question_weight=1.0))
        measured_arms = tables.test_arms(b, lambdas, dev)
        for name in declared:
            for pair in declared_pairs(name, claims.chosen_arms(dev)):
                assert pair.primary and pair.metric in METRICS
                assert {pair.arm, pair.against} <= set(measured_arms), pair
    for test in declared["ddx-fresh"]["test"]:
        assert set(test) == {"statement", "metric", "arm", "against"}


def test_a_declared_test_is_void_at_lambda_0_and_counts_once_at_the_papers():
    apart = declared_pairs("ddx-fresh", claims.chosen_arms(synthetic_dev(0.4)))
    assert [(p.arm, p.against) for p in apart] == [
        ("chr@0.4", "hplus"),
        ("chr@0.4", "chr+rotation@0.4"),
        ("chr@1", "hplus"),
        ("chr@1", "chr+rotation@1"),
        ("chr+question1@0.4", "hplus+question1"),
        ("max@0.4", "hplus"),
    ]
    paper = declared_pairs("ddx-fresh", claims.chosen_arms(synthetic_dev(1.0)))
    assert [(p.arm, p.against) for p in paper] == [
        ("chr@1", "hplus"),
        ("chr@1", "chr+rotation@1"),
        ("chr+question1@1", "hplus+question1"),
        ("max@1", "hplus"),
    ]
    nothing = declared_pairs("ddx-fresh", claims.chosen_arms(synthetic_dev(0.0)))
    assert [(p.arm, p.against) for p in nothing] == [
        ("chr@1", "hplus"),
        ("chr@1", "chr+rotation@1"),
    ]
    assert declared_pairs("bioasq", {}) == []


def test_a_declared_form_that_dev_did_not_choose_for_is_refused():
    dev = synthetic_dev(0.4)
    del dev["maximum of several"]
    with pytest.raises(KeyError, match="maximum of several"):
        declared_pairs("ddx-fresh", claims.chosen_arms(dev))
    ruled = {**synthetic_dev(0.4), "one mimic": Arm(SearchSpec(), drift_budget(1.0, 0.9))}
    with pytest.raises(KeyError, match="one mimic:lambda"):
        declared_pairs("ddx-fresh", claims.chosen_arms(ruled))


def test_only_what_was_declared_gets_a_verdict(study, own_folders, monkeypatch):
    """The same outcomes, once with primary tests, with Holm over those alone."""
    declared = {
        "made-up": {
            "test": [
                {
                    "statement": "helps",
                    "metric": "p_at_5",
                    "arm": "chr@{one mimic:lambda}",
                    "against": "hplus",
                },
                {"statement": "not", "metric": "p_at_5", "arm": "hplus", "against": "chr@1"},
            ]
        }
    }
    monkeypatch.setattr(lib.study, "primary_tests", lambda: declared)
    shown = tables.study_results(study, profile_of())["claims"]
    primary = shown[shown["status"] == "primary"].set_index("claim")
    assert primary.loc["helps", "verdict"] == "SUPPORTED"
    assert primary.loc["not", "verdict"] == "AGAINST" and len(primary) == 2
    assert (primary["p_holm"] >= primary["p"]).all() and (primary["p_holm"] < 0.05).all()
    rest = shown[shown["status"] == "exploratory"]
    assert len(rest) > 20 and rest["verdict"].isna().all() and rest["p_holm"].isna().all()


# one file more -----------------------------------------------------------------------------------


def a_small_set(encoder=None):
    """What a newcomer's file would hold: 24 bundled questions under a new name."""
    b = ddx_mini.build(encoder)
    kept = range(0, len(b.qids), 5)

    def some(column):
        return tuple(column[i] for i in kept)

    qids = some(b.qids)
    return replace(
        b,
        name="newcomer",
        title="a newcomer's questions",
        qids=qids,
        questions=some(b.questions),
        h_plus=some(b.h_plus),
        h_minus={"nearest": some(b.h_minus["nearest"])},
        targets={q: b.targets[q] for q in qids},
        mimics={q: b.mimics[q] for q in qids},
        dev=frozenset(qids[::3]),
        errata=frozenset(),
    )


@pytest.fixture
def newcomer(own_folders, monkeypatch):
    """Registers a maker of benchmarks: the one line that a new question set needs."""
    makers = benchmark_makers()

    def register(make) -> Benchmarks:
        own = {"newcomer": make, "known": lambda encoder: replace(a_small_set(), name="known")}
        monkeypatch.setattr(benchmarks, "benchmark_makers", lambda: makers | own)
        return Benchmarks(profile_of(lambdas=(0.0, 1.0)), HashEncoder())

    return register


def test_a_question_set_is_one_file_and_is_in_every_table(newcomer):
    found = newcomer(a_small_set).results("newcomer")
    b = a_small_set()
    assert {p.name for p in paths.results("mini").glob("*.csv*")} >= {
        "values_newcomer.csv",
        "questions_newcomer.csv",
        "choices_newcomer.csv",
        "newcomer_lambda.csv",
        "claims_newcomer.csv",
    }
    assert set(found["values"]["qid"]) == set(found["questions"]["qid"]) == set(b.qids)
    assert len(found["choices"]) == len(found["dev"]) == 15 and (found["choices"]["n"] > 0).all()
    curves = found["curves"]
    assert set(curves["family"]) == {"question", "random", *families(b)}
    assert (curves[curves["subset"] == "all"]["n"] == len(b.test)).all()
    assert {"chr@1", "chr+rotation@1"} <= set(found["claims"]["arm"])


def test_without_several_mimics_exactly_their_arms_are_missing(study):
    few, many = a_small_set(), study.benchmark
    of_several = {"mean of several", "maximum of several", "softmax of several"}
    assert set(candidates(many, LAMBDAS)) - set(candidates(few, LAMBDAS)) == of_several
    assert set(families(many)) - set(families(few)) == {"mean", "max", "chr+middle"}


def test_without_dev_questions_nothing_is_chosen_and_all_else_is_there(newcomer):
    bare = replace(a_small_set(), dev=frozenset())
    benchmarks = newcomer(lambda encoder: bare)
    found = benchmarks.results("newcomer")
    assert found["dev"] == {} and found["choices"].empty
    assert list(found["choices"].columns) == ["form", "arm", "lambda", "dev_p_at_5", "n"]
    assert set(found["curves"]["family"]) == {"question", "random", *families(bare)}
    assert (found["curves"]["n"].max() == len(bare.qids)) and len(found["claims"]) > 10
    # And again from the files.
    again = Benchmarks(benchmarks.profile, benchmarks.encoder).results("newcomer")
    pd.testing.assert_frame_equal(again["choices"], found["choices"])
    with pytest.raises(ValueError, match="newcomer cannot be read: no dev questions"):
        benchmarks.reading("newcomer")


def test_parameters_may_be_chosen_on_another_set(newcomer):
    chosen = replace(a_small_set(), dev=frozenset(), chosen_on="known")
    benchmarks = newcomer(lambda encoder: chosen)
    found = benchmarks.results("newcomer")
    dev = benchmarks.results("known")["dev"]
    assert found["dev"] == dev
    assert {arm.name for arm in dev.values()} <= set(found["values"]["arm"])
    assert found["choices"]["arm"].tolist() == [arm.name for arm in dev.values()]


def test_what_a_set_lacks_is_said():
    with pytest.raises(ValueError, match="no benchmark 'medqa'; there are: ddx-mini"):
        load_benchmark("medqa")
    bare = a_small_set()
    unmimicked = replace(bare, h_minus={"middle": bare.h_minus["nearest"]})
    with pytest.raises(ValueError, match="newcomer: h_minus has no 'nearest'"):
        hypotheses_of(unmimicked)


def test_a_control_is_one_way_and_is_in_every_table(newcomer, monkeypatch):
    """A stranger's mimic with half the question added: one SearchSpec more in ``families``."""
    control = SearchSpec(mimic="stranger", question_weight=0.5)

    def with_control(benchmark):
        return families(benchmark) | {family_of(control): control}

    monkeypatch.setattr(tables, "families", with_control)
    name = "chr+stranger+question0.5"
    found = newcomer(a_small_set).results("newcomer")
    assert f"{name}@1" in set(found["values"]["arm"])
    rows = found["curves"][found["curves"]["family"] == name]
    assert rows["lambda"].tolist() == [0.0, 1.0] and rows["p_at_5"].notna().all()
    assert f"{name}@1" in set(found["claims"]["arm"])


# the grid and the study publish one number -------------------------------------------------------


def test_the_grid_and_the_study_give_one_number_under_one_name(own_folders):
    """The controls of CHR at lambda = 1 on ddx-mini, drawn and measured in both."""
    profile = load_profile("mini", lambdas=(1.0,), encoder="hash", answerers=())
    lab = open_experiment(profile)
    runs = pd.concat(
        lab.run_of(arm, d) for d in lab.sets for arm in ("chr", "chr+rotation", "chr+stranger")
    )
    targets, mimics = lab.relevance()
    quality = lab.quality(runs, targets, mimics).groupby("method")[list(METRICS)].mean()
    values = Benchmarks(profile, lab.retriever.encoder).results("ddx-mini")["curves"]
    arms_of = {
        "chr": "chr@1",
        "chr+rotation": "chr+rotation@1",
        "chr+stranger": "chr+stranger@1",
    }
    curves = values[values["subset"] == "all"].drop_duplicates("arm").set_index("arm")
    for method, arm in arms_of.items():
        want = curves.loc[arm, list(METRICS)].astype(float).to_dict()
        assert quality.loc[method].to_dict() == pytest.approx(want, abs=1.1e-3), method
    assert quality.loc["chr+rotation", "p_at_5"] != quality.loc["chr", "p_at_5"]


# wrong hypotheses --------------------------------------------------------------------------------


def turned(study: Study, other: Study) -> set[str]:
    return {q for q in QIDS if study.hypotheses[q] != other.hypotheses[q]}


def test_shares_of_exchanged_pairs_are_nested_and_of_test_questions(study):
    for seed in range(3):
        sets = [turned(study, exchanged(study, share, seed)) for share in (0, 0.1, 0.3, 0.6, 1)]
        assert [len(own) for own in sets] == [round(s * (N - DEV)) for s in (0, 0.1, 0.3, 0.6, 1)]
        for smaller, larger in zip(sets, sets[1:], strict=False):
            assert smaller < larger
        assert sets[-1] == set(study.benchmark.test)
    assert turned(study, exchanged(study, 0.3, 0)) != turned(study, exchanged(study, 0.3, 1))


def test_exchanged_twice_is_as_before_and_once_searches_with_the_mimic(study):
    once = exchanged(study, 0.5, 7)
    assert exchanged(once, 0.5, 7).hypotheses == study.hypotheses
    for qid in turned(study, once):
        before, after = study.hypotheses[qid], once.hypotheses[qid]
        assert after.of("target")[0].text == before.of("mimic")[0].text
        assert after.of("mimic")[0].text == before.of("target")[0].text
        assert after.of("mimic", "stranger") == before.of("mimic", "stranger")


def test_without_exchange_the_table_is_the_plain_study(study):
    table = corruption_table(study, LAMBDAS, shares=(0, 0.4), draws=3)
    assert table["wrong"].tolist() == [0, 0, 0, 0.4, 0.4, 0.4] and (table["n"] == N - DEV).all()
    for row in table[table["wrong"] == 0].to_dict("records"):
        plain = measured(study, Arm(SearchSpec(lam=row["lambda"])), study.benchmark.test)
        assert row["p_at_5"] == pytest.approx(plain["p_at_5"].mean())
        assert row["mimic_at_5"] == pytest.approx(plain["mimic_at_5"].mean())
        each = [
            measured(
                exchanged(study, 0.4, seed),
                Arm(SearchSpec(lam=row["lambda"])),
                study.benchmark.test,
            )
            for seed in range(3)
        ]
        wrong = table[(table["wrong"] == 0.4) & (table["lambda"] == row["lambda"])].iloc[0]
        assert wrong["p_at_5"] == pytest.approx(np.mean([t["p_at_5"].mean() for t in each]))
        assert wrong["p_at_5"] < row["p_at_5"] and wrong["low"] <= wrong["p_at_5"] <= wrong["high"]


# what notebooks show -----------------------------------------------------------------------------


def test_the_spectrum_counts_every_passage_of_every_top_k(study):
    part = replace(
        study.retriever, index=study.index.subset(~np.char.endswith(study.index.ids, "-t1"))
    )
    for this in (study, open_study(study.benchmark, part, k=3)):
        table = tables.spectrum_table(this, QIDS[:3], 1.4)
        assert (table[["target", "both", "mimic", "neither"]].sum(axis=1) == this.k).all()
        for qid, rows in table.groupby("question"):
            assert rows["start"].iloc[0] == 0 and rows["end"].iloc[-1] == 1.4
            assert np.allclose(rows["start"][1:], rows["end"][:-1])
            for row in rows[rows["end"] - rows["start"] > 1e-3].to_dict("records"):
                arm = Arm(SearchSpec(lam=(row["start"] + row["end"]) / 2))
                found = found_by(this, arm, [qid], depth=this.k)
                b = this.benchmark
                want = measure(found, {qid: b.targets[qid]}, b.mimics, this.k).iloc[0]
                for name in ("target", "both", "mimic", "neither"):
                    assert row[name] == round(this.k * want[f"{name}_at_5"])


def test_one_question_is_shown_as_it_is_retrieved(study):
    qid = QIDS[4]
    table = views.top_table(study, qid, [0.0, 0.4])
    assert table["lambda"].tolist() == [0.0] * 5 + [0.4] * 5
    assert table["rank"].tolist() == [1, 2, 3, 4, 5] * 2
    for lam in (0.0, 0.4):
        found = found_by(study, Arm(SearchSpec(lam=lam)), [qid], depth=5)
        assert table[table["lambda"] == lam]["pid"].tolist() == found[qid]
    for pid, name in zip(table["pid"], table["class"], strict=True):
        on = pid in study.benchmark.targets[qid], pid in study.benchmark.mimics[qid]
        assert name == {(1, 0): "target", (1, 1): "both", (0, 1): "mimic", (0, 0): "neither"}[on]


def test_pairs_show_how_far_the_query_turns(study):
    table, b = views.pair_table(study, 0.4), study.benchmark
    plus, minus = vectors_of(study, b.h_plus), vectors_of(study, b.h_minus["nearest"])
    turned_by = np.degrees(np.arccos(np.sum(unit(plus - 0.4 * minus) * plus, axis=1)))
    assert table["turn at 0.4"].to_numpy() == pytest.approx(turned_by, abs=0.05)
    assert (table["turn at 1"] > table["turn at 0.4"]).all()
    assert table["c"].to_numpy() == pytest.approx(np.sum(plus * minus, axis=1), abs=1e-5)
    assert table["qid"].tolist() == list(b.qids)


def test_curves_are_chosen_marked_and_told_in_three_rows(results):
    curves = results["curves"]
    wanted = {"a": "chr+middle", "b": "chr", "c": "nobody", "d": ("chr", "hardest tenth")}
    table = views.curves_of(curves, wanted)
    assert table["label"].tolist() == ["a"] * 3 + ["b"] * 3 + ["d"] * 3
    assert (views.mark_lambda(table, 0.4)["lambda_marked"] == 0.4).all()
    told = views.story_rows(curves)
    plain = table[table["label"] == "b"].set_index("lambda")
    assert told["lambda"].tolist() == [0.0, plain["p_at_5"].idxmax(), 1.0]
    assert told["p_at_5"].tolist() == [plain["p_at_5"][x] for x in told["lambda"]]
