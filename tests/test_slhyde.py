"""SL-HyDE: what is searched and measured by brute force, its tables and figures, its documents."""

from __future__ import annotations

import math
import random

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.base.paths import REPORTED
from lib.benchmarks import ddx_real, load_benchmark
from lib.corpora import load_passages
from lib.data.passages import Passage
from lib.datasets import load_questions
from lib.embed import HashEncoder, load_encoder
from lib.pages.render import finding
from lib.pages.tables import slhyde_beside, slhyde_declared
from lib.profiles import load_profile
from lib.query_spec import Hypotheses, Text
from lib.search.vectors import encode_cached
from lib.stats import holm
from lib.studies.slhyde import study, tasks
from lib.studies.slhyde.tasks import MEASURES, TRAININGS, Task, measure_task, open_task, read_texts
from lib.study import primary_tests
from tools.slhyde_retriever import RECIPES
from tools.slhyde_writer import bank, repeats
from tools.slhyde_writer import test_queries as queries_of

# measures -----------------------------------------------------------------------------------------


def by_formula(ranked: list[str], scores: dict[str, int]) -> tuple[float, float]:
    """nDCG@10 with the score as gain, and Recall@100 of what scores above 0."""

    def dcg(gains) -> float:
        return sum(gain / math.log2(place + 1) for place, gain in enumerate(gains[:10], 1))

    relevant = {pid for pid, score in scores.items() if score > 0}
    ndcg = dcg([scores.get(pid, 0) for pid in ranked])
    best = dcg(sorted(scores.values(), reverse=True))
    return ndcg / best, len(relevant & set(ranked[:100])) / len(relevant)


PIDS = [f"p{i:03d}" for i in range(130)]
SCORES = st.dictionaries(st.sampled_from(PIDS), st.integers(0, 4), min_size=1, max_size=25).filter(
    lambda scores: max(scores.values()) > 0
)


@given(
    st.dictionaries(st.sampled_from("abc"), SCORES),
    st.dictionaries(st.sampled_from("abcd"), st.permutations(PIDS)),
    st.integers(0, 130),
)
def test_measures_are_their_formulas(qrels, run, length):
    run = {qid: pids[:length] for qid, pids in run.items()}
    table = measure_task(run, qrels)
    assert set(table.index) == set(qrels) and tuple(table.columns) == MEASURES
    for qid, scores in qrels.items():
        wanted = by_formula(run.get(qid, []), scores)
        assert table.loc[qid].to_list() == pytest.approx(wanted, abs=1e-9)


# arms ---------------------------------------------------------------------------------------------

WORDS = [f"word{i}" for i in range(40)]


@pytest.fixture
def toy(own_folders):
    """A task of 150 passages and eight queries, two relevant passages each, two passages written
    for most; and H+ and H- for three."""
    generator = random.Random(5)
    texts = {f"p{i:03d}": " ".join(generator.sample(WORDS, 6)) for i in range(150)}
    queries, qrels, written = {}, {}, {}
    for number in range(8):
        relevant = generator.sample(sorted(texts), 2)
        words = texts[relevant[0]].split()
        queries[f"q{number}"] = " ".join(words[:2] + generator.sample(WORDS, 2))
        qrels[f"q{number}"] = dict.fromkeys(relevant, 1)
        more = generator.sample(WORDS, 3)
        written[f"q{number}"] = [" ".join(words[1:4] + more), " ".join(words[2:5])]
    written["q7"] = ["  ", ""]
    del written["q6"]
    pair = Hypotheses((Text(texts["p001"], role="target"), Text(texts["p002"], role="mimic")))
    passages = [Passage(pid, "", text, "toy", {}) for pid, text in texts.items()]
    writers = dict.fromkeys(("base", "tuned", "capable"), written)
    return Task("toy", queries, passages, qrels), writers, dict.fromkeys(queries, pair)


def orders_by_hand(task: Task, written, use: str, count: int) -> dict[str, list[str]]:
    """Ranked lists by brute force, by query id, for the queries that have something written."""
    encoder = HashEncoder()
    ids = [passage.pid for passage in task.corpus]
    rows = encoder.encode([p.text for p in task.corpus], "article").astype(np.float64)

    def vector(text: str) -> np.ndarray:
        return encoder.encode([text])[0].astype(np.float64)

    def ranked(query: np.ndarray) -> list[str]:
        scores = np.round(rows @ query, 5) + 0.0
        return [ids[i] for i in sorted(range(len(ids)), key=lambda i: (-scores[i], ids[i]))]

    found = {}
    for qid, query in task.queries.items():
        if use.startswith("contrast"):
            lam = float(use.removeprefix("contrast@"))
            plus, minus = (vector(task.corpus[i].text) for i in (1, 2))
            found[qid] = ranked(plus - lam * minus)
            continue
        full = [p for p in written.get(qid, [])[:count] if p.strip()]
        if use == "query" or not full:
            if use == "query" or qid in written:
                found[qid] = ranked(vector(query))
            continue
        total = sum(vector(p) for p in full)
        if use == "rrf":
            points: dict[str, float] = {}
            for order in (ranked(vector(query)), ranked(total)):
                for rank, pid in enumerate(order[:200], 1):
                    points[pid] = points.get(pid, 0) + 1 / (60 + rank)
            rounded = {pid: round(p, 12) for pid, p in points.items()}
            found[qid] = sorted(rounded, key=lambda pid, of=rounded: (-of[pid], pid))
        else:
            joined = vector(" ".join([query, *full]))
            means = {"mean": vector(query) + total, "passage": total, "concatenation": joined}
            found[qid] = ranked(means[use])
    return found


def test_every_arm_is_what_brute_force_finds_and_measures(toy):
    task, written, hypotheses = toy
    opened = open_task(task, HashEncoder(), "float32")
    arms = study.arms_of("minilm", task, written, hypotheses)
    assert len({arm.name for arm in arms}) == len(arms) == 1 + 3 * 4 + 1 + 3
    values = tasks.task_values(task, opened, arms)
    for arm in arms:
        _, use, writer = [*arm.name.split(", "), "query", ""][:3]
        count = 2 if writer.endswith(" x 2") else 1
        orders = orders_by_hand(task, written["base"], use, count)
        table = values[values["arm"] == arm.name].pivot(
            index="qid", columns="metric", values="value"
        )
        assert sorted(table.index) == sorted(orders)
        for qid, order in orders.items():
            wanted = by_formula(order, task.qrels[qid])
            assert table.loc[qid, list(MEASURES)].to_list() == pytest.approx(wanted, abs=1e-9)
    few = study.arms_of("slhyde-half", task, written, hypotheses)
    assert [arm.name.removeprefix("slhyde-half") for arm in few] == [
        "",
        ", mean, base",
        ", mean, tuned",
    ]


def test_a_query_without_a_relevant_passage_cannot_be_measured():
    with pytest.raises(ValueError, match="toy: query q has no relevant passage"):
        Task("toy", {"q": "asked"}, [], {"q": {"p": 0}})


# tables -------------------------------------------------------------------------------------------


@pytest.fixture
def values(monkeypatch) -> pd.DataFrame:
    """Outcomes that are drawn, of every arm of both sets, on 40 queries, 20 with passages."""
    sides = {str(i): "held out" if i < 8 else "the others" for i in range(40)}
    monkeypatch.setattr(study, "folds", lambda: sides)
    generator, parts = np.random.default_rng(0), []
    for dataset in ("scifact", "bioasq"):
        writers = study.GENERATED + ("capable",) * (dataset == "bioasq")
        nothing = Task(dataset, {}, [], {})
        arms = [study.BM25]
        for name in (study.BASE, *TRAININGS):
            made = study.arms_of(name, nothing, dict.fromkeys(writers, {}), {})
            arms += [arm.name for arm in made]
        rows = [
            (arm, str(i), metric, generator.integers(0, 1001) / 1000)
            for arm in arms
            for i in range(20 if ", " in arm else 40)
            for metric in MEASURES
        ]
        table = pd.DataFrame(rows, columns=["arm", "qid", "metric", "value"])
        parts.append(study.over_seeds(table).assign(dataset=dataset))
    return pd.concat(parts, ignore_index=True)


def outcome(values: pd.DataFrame, arm: str, dataset: str = "scifact") -> pd.Series:
    rows = values[(values["dataset"] == dataset) & (values["arm"] == arm)]
    return rows[rows["metric"] == MEASURES[0]].set_index("qid")["value"].sort_index()


def test_a_mean_over_seeds_is_taken_query_by_query(values):
    for rest in ("", ", mean, tuned", ", rrf, base"):
        seeds = [outcome(values, name + rest) for name in study.SEEDS["slhyde"]]
        assert np.allclose(outcome(values, f"slhyde{rest}"), sum(seeds) / 3)
    assert "shuffled, mean, tuned" in set(values["arm"])


def test_the_table_has_means_with_the_spread_of_seeds_on_every_part(values):
    table = study.slhyde_table(values, "made").set_index(["dataset", "method", "metric"])
    whole = table.loc[("scifact", "slhyde", "ndcg_at_10")]
    assert whole["value"] == pytest.approx(outcome(values, "slhyde").mean())
    assert whole["low"] < whole["value"] < whole["high"]
    assert (whole["n"], whole["seeds"]) == (40, 3)
    means = [outcome(values, name).mean() for name in study.SEEDS["slhyde"]]
    assert whole["spread"] == pytest.approx(np.std(means, ddof=1))
    base = table.loc[("scifact, with passages", study.BASE, "ndcg_at_10")]
    with_passages = outcome(values, study.BASE)[[str(i) for i in range(20)]]
    assert base["n"] == 20 and base["seeds"] == 1 and np.isnan(base["spread"])
    assert base["value"] == pytest.approx(with_passages.mean())
    assert table.loc[("scifact, held out", study.BASE, "ndcg_at_10"), "n"] == 8
    assert table.loc[("scifact, the others", study.BASE, "ndcg_at_10"), "n"] == 32


def test_claims_are_paired_and_what_was_declared_is_primary(values):
    claims = study.slhyde_claims(values)
    by_arms = claims.set_index(["dataset", "arm", "baseline", "metric"])
    assert by_arms.index.is_unique
    row = by_arms.loc[("scifact", "slhyde, mean, tuned", study.BASE, "ndcg_at_10")]
    difference = outcome(values, "slhyde, mean, tuned") - outcome(values, study.BASE)
    assert row["n"] == 20 and row["difference"] == pytest.approx(difference.dropna().mean())
    assert row["low"] < row["difference"] < row["high"]
    primary = claims[claims["status"] == "primary"]
    assert primary[["arm", "baseline", "metric"]].to_dict("records") == [
        {side: test[side] for side in ("arm", "baseline", "metric")}
        for test in primary_tests()["scifact"]["test"]
    ]
    assert set(primary["dataset"]) == {"scifact"} and set(primary["n"]) == {20, 40}
    assert np.allclose(primary["p_holm"], holm(primary["p"]))
    others = claims[claims["status"] != "primary"]
    assert others[["p", "p_holm"]].isna().all(axis=None) and not others["verdict"].any()
    with pytest.raises(LookupError, match="shuffled"):
        study.slhyde_claims(values[values["arm"] != "shuffled"])


def test_a_test_against_a_control_that_collapsed_is_void_and_others_are_not(values):
    values.loc[values["arm"].isin(["shuffled", *study.SEEDS["shuffled"]]), "value"] *= 0.01
    claims = study.slhyde_claims(values)
    void = claims[claims["verdict"] == "VOID"]
    assert void[["dataset", "arm", "baseline"]].to_numpy().tolist() == [
        ["scifact", "slhyde", "shuffled"]
    ]


def test_a_mean_over_seeds_is_compared_with_the_same():
    """One seed has its own luck: it is held against one of the same seed, or the untrained base."""

    def seeds_of(arm: str) -> set[int]:
        name = arm.partition(",")[0]
        if name in (study.BASE, study.BM25):
            return set()
        return {RECIPES[one].seed for one in study.SEEDS.get(name, (name,))}

    for pair in study.exploratory_pairs():
        one, other = seeds_of(pair.arm), seeds_of(pair.baseline)
        assert not one or not other or one == other, pair.claim


# page and figures ---------------------------------------------------------------------------------


def test_printed_and_measured_differences_stand_side_by_side(values):
    table = slhyde_beside(study.slhyde_table(values, "made")).set_index("change")
    # Table 5, "w/ D." less SL-HyDE, by task: -1.26, -7.40, -5.01, -5.79, -6.39.
    assert table.loc["the passage alone instead of the mean", "printed"] == "-5.2 (-7.4 to -1.3)"
    printed = pd.read_csv(REPORTED / "slhyde_table12.csv")
    wide = printed.pivot(index="model", columns="dataset", values="value")
    gains = (wide.loc["BGE(large)"] - wide.loc["BM25"]).drop("Average")
    wanted = f"{gains.mean():+.1f} ({gains.min():+.1f} to {gains.max():+.1f})"
    assert table.loc[table["table"] == "12", "printed"].item() == wanted
    for dataset in ("scifact", "bioasq"):
        ways = ("slhyde, mean, tuned", "minilm, mean, base")
        one, other = (outcome(values, arm, dataset).mean() for arm in ways)
        gain = float(table.loc["SL-HyDE instead of HyDE", dataset])
        assert gain == pytest.approx(100 * (one - other), abs=0.051)


def test_the_finding_has_the_words_of_the_verdicts_and_says_what_is_void(values):
    """Holm may leave open what the interval alone would not."""
    claims = study.slhyde_claims(values)
    declared = slhyde_declared(claims)
    assert len(declared) == 4
    assert all(
        f"{row.difference:+.3f}" in finding("slhyde", claims=claims)
        for row in declared.itertuples()
    )
    on_scifact = (claims["dataset"] == "scifact") & (claims["metric"] == "ndcg_at_10")

    def told(arm: str, baseline: str, **changed) -> str:
        row = on_scifact & (claims["arm"] == arm) & (claims["baseline"] == baseline)
        assert row.sum() == 1
        claims.loc[row, list(changed)] = list(changed.values())
        return finding("slhyde", claims=claims)

    for verdict, difference, words in (
        ("SUPPORTED", 0.02, "the retriever that taught itself finds more: "),
        ("AGAINST", -0.02, "the retriever that taught itself finds less: "),
        ("INCONCLUSIVE", 0.02, "chance could explain what self-learning changed: "),
    ):
        text = told("slhyde", study.BASE, verdict=verdict, difference=difference)
        assert f"claims of SciFact {words}nDCG@10 " in text
    text = told("slhyde", "shuffled", verdict="VOID", value_baseline=0.0)
    assert "is void: that control collapsed, to nDCG@10 0.000." in text
    low = ("slhyde-query-low", "slhyde-shuffled-low")
    text = told(*low, difference=0.004, low=-0.006, high=0.014, value_baseline=0.655)
    assert "keep 0.655" in text and "+0.004 (-0.006 to 0.014), no difference larger" in text
    assert "no difference larger" not in told(*low, high=0.03)


# single claims ------------------------------------------------------------------------------------


def test_the_rank_is_that_of_the_first_relevant_passage(toy):
    task, written, _ = toy
    ranks = study.first_ranks(task, open_task(task, HashEncoder(), "float32"), written["base"])
    orders = orders_by_hand(task, written["base"], "mean", 2)
    for qid, order in orders.items():
        assert ranks[qid] == min(order.index(pid) for pid in task.qrels[qid]) + 1


RANKS = st.lists(st.tuples(st.integers(1, 1001), st.integers(1, 1001)), min_size=1)


@given(RANKS)
def test_cases_have_the_greatest_and_the_least_change(ranks):
    qids = [f"q{i:03d}" for i in range(len(ranks))]
    before, after = (pd.Series([pair[i] for pair in ranks], qids) for i in (0, 1))
    written = {"base": {qid: ["first"] for qid in qids}, "tuned": {}}
    rows = study.case_rows(dict.fromkeys(qids, "asked"), before, after, written).set_index("case")

    def gain(qid: str) -> float:
        one, other = (0 if of[qid] > study.DEEP else 1 / of[qid] for of in (before, after))
        return other - one

    for case, best in ((study.CASES[0], max), (study.CASES[2], min)):
        wanted = best(map(gain, qids))
        assert rows.loc[case, "qid"] == next(qid for qid in qids if gain(qid) == wanted)
    still = [qid for qid in qids if before[qid] == after[qid]]
    shown = [rows.loc[study.CASES[1], "qid"]] if study.CASES[1] in rows.index else []
    assert shown == sorted(still, key=lambda qid: (before[qid], qid))[:1]
    assert set(rows["base"]) == {"first"} and set(rows["tuned"]) == {""}
    counts = study.case_counts(before, after).set_index("change")["n"]
    assert counts.sum() == len(qids) and counts["stayed"] == len(still)
    assert counts["rose"] == sum(other < one for one, other in ranks)


def test_chosen_ranks_are_means_over_documents():
    rows = [
        {"query_rank": 2, "ranks": [1, 4, 1000], "chosen": 0},
        {"query_rank": 1000, "ranks": [5, 2, 2], "chosen": 1},
    ]
    table = tasks.chosen_ranks(rows).set_index("searched_with")
    assert table.loc["the query alone", "mrr"] == pytest.approx((1 / 2 + 1 / 1000) / 2)
    assert table.loc["the query alone", "not_found"] == 0.5
    assert table.loc["query and passage 1", "first"] == 0.5
    assert table.loc["query and the chosen passage", "mrr"] == pytest.approx((1 + 1 / 2) / 2)
    assert set(table["n"]) == {2}


# step by step -------------------------------------------------------------------------------------


def test_what_was_written_is_shown_as_it_was_chosen():
    kept, shown = read_texts("passages")[:4], tasks.written_rows(4)
    each = len(kept[0]["passages"])
    assert len(shown) == 4 * each
    for number, row in enumerate(kept):
        rows = shown[number * each : (number + 1) * each]
        assert set(rows["query"]) == {row["query"]} and rows["rank"].tolist() == row["ranks"]
        assert rows.loc[rows["chosen"] == "chosen", "rank"].tolist() == [min(row["ranks"])]
        for text, start in zip(row["passages"], rows["passage"], strict=True):
            assert " ".join(text.split()).startswith(start.removesuffix(" …"))


def test_one_question_before_and_after_is_what_sorting_everything_gives():
    qid, k = "medqa-22", 5
    passages = {passage.pid: passage for passage in load_passages("ddx-mini")}
    texts = [(passage.title, passage.text) for passage in passages.values()]
    question = {q.qid: q.text for q in load_questions("ddx-mini")}[qid]
    orders = []
    for name in ("minilm", "minilm+slhyde-query"):
        encoder = load_encoder(name, precision="float32")
        vectors = np.concatenate(list(encode_cached(texts, encoder, "article", label="ddx-mini")))
        scores = dict(zip(passages, vectors @ encoder.encode([question], "query")[0], strict=True))
        orders.append(sorted(passages, key=lambda pid, of=scores: -of[pid]))
    before, after = orders
    benchmark = load_benchmark("ddx-mini")
    kinds = {(True, False): "target", (False, True): "mimic", (True, True): "both"}
    rows = []
    for pid in dict.fromkeys(after[:k] + before[:k]):
        about = pid in benchmark.targets[qid], pid in benchmark.mimics[qid]
        row = [passages[pid].title, passages[pid].source, kinds.get(about, "neither")]
        places = [order.index(pid) + 1 for order in orders]
        rows.append(row + [place if place <= 20 else None for place in places])
    found = study.before_and_after(qid, load_profile("mini"), k)
    assert list(found.columns) == ["title", "source", "class", "before", "after"]
    # A bundled question on which training changed something, or it would show nothing.
    assert len(rows) > k and before != after
    assert found.astype(object).replace({pd.NA: None}).to_numpy().tolist() == rows


def test_wrong_parameters_are_refused_in_one_line():
    with pytest.raises(ValueError, match="no such question.* there are: "):
        study.before_and_after("no such question", load_profile("mini"))
    for count in ("3", -1, 2.5, None):
        with pytest.raises(ValueError, match="shown_rows must be a whole number of at least 0"):
            tasks.written_rows(count)


# the documents ------------------------------------------------------------------------------------


def passage(pid: str, **meta) -> Passage:
    """A passage on a disease that nothing tests, of a page of its own, unless said otherwise."""
    own = {"cuis": ["C1"], "focus": "Hiccups", "synonyms": [], "subset": "s", "document": pid}
    text = " ".join(f"word{i}" for i in range(tasks.LEAST_WORDS))
    own |= meta
    return Passage(pid, own["focus"], own.pop("text", text), "medquad", own)


TESTED = tasks.Tested(
    cuis=frozenset({"C9"}),
    names=frozenset({("behcet", "disease")}),
    pids=frozenset({"planted"}),
)

LEAKS = [
    passage("planted"),
    passage("by-concept", cuis=["C1", "C9"]),
    passage("by-title", focus="Behçet's Diseases"),
    passage("by-synonym", synonyms=["Hiccup", "behcet disease"]),
]


@pytest.mark.parametrize("leak", LEAKS, ids=lambda leak: leak.pid)
def test_a_planted_leak_is_refused_and_left_out(leak, monkeypatch):
    monkeypatch.setattr(tasks, "tested_diseases", lambda: TESTED)
    clean = [passage("one"), passage("two")]
    tasks.check_no_leak(clean)
    with pytest.raises(ValueError, match=f"{leak.pid} .* a benchmark tests"):
        tasks.check_no_leak([*clean, leak])
    assert tasks.unlabelled([clean[0], leak, clean[1]]) == clean


def test_the_sample_has_one_long_passage_of_a_page_whatever_the_order():
    pages = [passage(f"p{i}", document=f"page{i // 3}") for i in range(30)]
    short = [passage(f"s{i}", text="too short") for i in range(5)]
    drawn = tasks.sample([*pages, *short], 8)
    assert len({p.meta["document"] for p in drawn}) == 8 and not [p for p in short if p in drawn]
    assert tasks.sample([*short, *pages[::-1]], 8) == drawn
    assert tasks.sample(pages, 10)[:8] == drawn  # a larger sample begins with the smaller
    with pytest.raises(ValueError, match="10 pages"):
        tasks.sample(pages, 11)


def test_no_tested_disease_is_learnt_from_and_what_was_written_is_on_the_sample(mirror):
    kept = tasks.unlabelled()
    text_of = {p.pid: p.text for p in kept}
    for build in (ddx_real.build, ddx_real.build_fresh):
        benchmark = build(HashEncoder())
        for on_tested in (*benchmark.targets.values(), *benchmark.excluded.values()):
            assert text_of.keys().isdisjoint(on_tested)
    assert not [e for e in bank() if tasks.tested_diseases().covers(passage("x", focus=e["title"]))]
    assert [row["pid"] for row in read_texts("queries")] == [p.pid for p in tasks.sample(kept)]
    rows = read_texts("passages")
    assert not any(repeats(t, text_of[row["pid"]]) for row in rows for t in row["passages"])
    for dataset in ("scifact", "bioasq"):
        tuned = [row["qid"] for row in read_texts(f"hyde-{dataset}") if row["writer"] == "tuned"]
        assert tuned == list(queries_of(dataset)) == list(study.generated_passages(dataset)["base"])


def test_scifact_is_what_beir_counts(mirror):
    task = tasks.scifact()
    assert len(task.queries) == 809 and len(task.corpus) == 5183
    assert sum(map(len, task.qrels.values())) == 919  # as BEIR's train judgments
    known = {p.pid for p in task.corpus}
    assert all(set(cited) <= known for cited in task.qrels.values())
    first = next(p for p in task.corpus if p.pid == "scifact:4983")
    assert first.text.startswith("Microstructural development of human newborn")
    assert "Alterations of the architecture" in first.text and "['" not in first.text
    sides = tasks.folds()
    assert set(sides) == set(task.queries) and set(sides.values()) == {"held out", "the others"}
    side_of_abstract: dict[str, str] = {}
    for qid, cited in task.qrels.items():
        for pid in cited:
            assert side_of_abstract.setdefault(pid, sides[qid]) == sides[qid]


def test_bioasq_is_the_618_among_all_snippets(mirror):
    task = tasks.bioasq()
    assert len(task.queries) == 618 and len(task.corpus) == 21_231
    of_question = {p.pid: set(p.meta["qids"]) for p in task.corpus}
    assert all(qid in of_question[pid] for qid, own in task.qrels.items() for pid in own)
