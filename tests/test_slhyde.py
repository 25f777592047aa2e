"""SL-HyDE: what is searched and measured by brute force, its tables and figures, its documents."""

from __future__ import annotations

import math
import random

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.base.files import read_jsonl
from lib.benchmarks import load_benchmark
from lib.corpora import load_passages
from lib.data.passages import Passage
from lib.datasets import load_questions
from lib.embed import HashEncoder, load_encoder
from lib.pages.render import finding
from lib.pages.tables import slhyde_beside, slhyde_declared
from lib.profiles import load_profile
from lib.query_spec import Hypotheses, Text
from lib.search.vectors import encode_cached
from lib.stats import class_of, holm
from lib.studies.slhyde import study, tasks
from lib.studies.slhyde.tasks import MEASURES, TRAININGS, Task, measure_task, open_task, read_texts
from lib.study import primary_tests
from tools.slhyde_loop import PROMPTS, repeats
from tools.slhyde_retriever import RECIPES
from tools.slhyde_writer import Laptop
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
    values = tasks.task_values(task, opened, arms).set_index(["arm", "qid", "metric"])["value"]
    for arm in arms:
        _, use, writer = [*arm.name.split(", "), "query", ""][:3]
        count = 2 if writer.endswith(" x 2") else 1
        orders = orders_by_hand(task, written["base"], use, count)
        assert set(values[arm.name].index.get_level_values("qid")) == set(orders)
        for qid, order in orders.items():
            wanted = by_formula(order, task.qrels[qid])
            measured = [values[arm.name, qid, metric] for metric in MEASURES]
            assert measured == pytest.approx(wanted, abs=1e-9)
    few = [arm.name for arm in study.arms_of("slhyde-half", task, written, hypotheses)]
    assert few == [f"slhyde-half{use}" for use in ("", ", mean, base", ", mean, tuned")]
    ranks = study.first_ranks(task, opened, written["base"])
    for qid, order in orders_by_hand(task, written["base"], "mean", 2).items():
        assert ranks[qid] == min(order.index(pid) for pid in task.qrels[qid]) + 1


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


def test_the_table_has_means_over_queries_and_the_spread_of_seeds(values):
    for rest in ("", ", mean, tuned", ", rrf, base"):
        seeds = [outcome(values, name + rest) for name in study.SEEDS["slhyde"]]
        assert np.allclose(outcome(values, f"slhyde{rest}"), sum(seeds) / 3)
    table = study.slhyde_table(values, "made").set_index(["dataset", "method", "metric"])
    whole = table.loc[("scifact", "slhyde", "ndcg_at_10")]
    assert whole["value"] == pytest.approx(outcome(values, "slhyde").mean())
    assert whole["low"] < whole["value"] < whole["high"]
    assert (whole["n"], whole["seeds"]) == (40, 3)
    means = [outcome(values, name).mean() for name in study.SEEDS["slhyde"]]
    assert whole["spread"] == pytest.approx(np.std(means, ddof=1))
    base = table.loc[("scifact, with passages", study.BASE, "ndcg_at_10")]
    with_passages = outcome(values, study.BASE)[[str(i) for i in range(20)]]
    assert base["value"] == pytest.approx(with_passages.mean())
    assert base["n"] == 20 and base["seeds"] == 1 and np.isnan(base["spread"])
    for side, n in (("held out", 8), ("the others", 32)):
        assert table.loc[(f"scifact, {side}", study.BASE, "ndcg_at_10"), "n"] == n


def test_claims_are_paired_and_what_was_declared_is_primary(values):
    broken = values["arm"].isin(["shuffled", *study.SEEDS["shuffled"]])
    values.loc[broken, "value"] *= 0.01
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
    void = claims[claims["verdict"] == "VOID"]
    assert void[["arm", "baseline"]].to_numpy().tolist() == [["slhyde", "shuffled"]]
    with pytest.raises(LookupError, match="shuffled"):
        study.slhyde_claims(values[values["arm"] != "shuffled"])


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
    for dataset in ("scifact", "bioasq"):
        arms = ("slhyde, mean, tuned", "minilm, mean, base")
        one, other = (outcome(values, arm, dataset).mean() for arm in arms)
        gain = float(table.loc["SL-HyDE instead of HyDE", dataset])
        assert gain == pytest.approx(100 * (one - other), abs=0.051)


def test_the_finding_follows_the_verdicts_and_says_what_is_void(values):
    claims = study.slhyde_claims(values)
    differences = [f"{row.difference:+.3f}" for row in slhyde_declared(claims).itertuples()]
    assert len(differences) == 4
    on_scifact = (claims["dataset"] == "scifact") & (claims["metric"] == "ndcg_at_10")
    retriever = on_scifact & (claims["arm"] == "slhyde")
    for baseline, verdict, difference, words in (
        (study.BASE, "SUPPORTED", 0.02, "the retriever that taught itself finds more: "),
        (study.BASE, "AGAINST", -0.02, "the retriever that taught itself finds less: "),
        (study.BASE, "INCONCLUSIVE", 0.02, "chance could explain what self-learning changed: "),
        ("shuffled", "VOID", 0.5, "is void: that control collapsed, to nDCG@10 "),
    ):
        assert all(number in finding("slhyde", claims=claims) for number in differences[1:])
        row = retriever & (claims["baseline"] == baseline)
        claims.loc[row, ["verdict", "difference"]] = [verdict, difference]
        assert words in finding("slhyde", claims=claims)


# single claims ------------------------------------------------------------------------------------

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


# step by step -------------------------------------------------------------------------------------


def test_what_was_written_is_shown_as_it_was_chosen():
    rows = read_texts("passages")
    shown = tasks.written_rows(4)
    assert shown["rank"].tolist() == [rank for row in rows[:4] for rank in row["ranks"]]
    chosen = shown[shown["chosen"] == "chosen"]
    assert chosen["query"].tolist() == [row["query"] for row in rows[:4]]
    assert chosen["rank"].tolist() == [min(row["ranks"]) for row in rows[:4]]
    table = tasks.chosen_ranks().set_index("searched_with")
    best = np.array([min(row["ranks"]) for row in rows])
    assert table.loc["query and the chosen passage", "mrr"] == pytest.approx((1 / best).mean())


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
    rows = []
    for pid in dict.fromkeys(after[:k] + before[:k]):
        kind = class_of(pid, benchmark.targets[qid], benchmark.mimics[qid])
        places = [order.index(pid) + 1 for order in orders]
        places = [place if place <= 20 else None for place in places]
        rows.append([passages[pid].title, passages[pid].source, kind, *places])
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


LEAKS = {
    "its own id": passage("C8"),
    "a concept": passage("p", cuis=["C1", "C9"]),
    "a title": passage("p", focus="Behçet's Diseases"),
    "a synonym": passage("p", synonyms=["Hiccup", "behcet disease"]),
}


@pytest.mark.parametrize("by", LEAKS)
def test_a_planted_leak_is_left_out(by, monkeypatch):
    tested = frozenset({"C8", "C9"}), frozenset({("behcet", "disease")})
    monkeypatch.setattr(tasks, "tested_diseases", lambda: tested)
    clean = [passage("one"), passage("two")]
    assert tasks.unlabelled([clean[0], LEAKS[by], clean[1]]) == clean


def test_the_sample_has_one_long_passage_of_a_page_whatever_the_order():
    pages = [passage(f"p{i}", document=f"page{i // 3}") for i in range(30)]
    short = [passage(f"s{i}", text="too short") for i in range(5)]
    drawn = tasks.sample([*pages, *short], 8)
    assert len({p.meta["document"] for p in drawn}) == 8 and not [p for p in short if p in drawn]
    assert tasks.sample([*short, *pages[::-1]], 8) == drawn
    assert tasks.sample(pages, 10)[:8] == drawn  # a larger sample begins with the smaller
    with pytest.raises(ValueError, match="10 pages"):
        tasks.sample(pages, 11)


def test_what_was_written_is_on_the_sample_and_copies_nothing(mirror):
    kept = tasks.unlabelled()
    text_of = {p.pid: p.text for p in kept}
    for example in read_jsonl(PROMPTS / "examples.jsonl"):
        assert not tasks.is_tested(passage("x", focus=example["title"]))
    assert [row["pid"] for row in read_texts("queries")] == [p.pid for p in tasks.sample(kept)]
    rows = read_texts("passages")
    copied = Laptop().loop.passages.copied
    assert not any(repeats(t, text_of[row["pid"]], copied) for row in rows for t in row["passages"])
    for dataset in ("scifact", "bioasq"):
        for passages in study.generated_passages(dataset).values():
            assert list(passages) == list(queries_of(dataset))


def test_the_tasks_have_the_counts_of_their_sources(mirror):
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
    task = tasks.bioasq()
    assert len(task.queries) == 618 and len(task.corpus) == 21_231
    of_question = {p.pid: p.meta["qids"] for p in task.corpus}
    assert all(qid in of_question[pid] for qid, cited in task.qrels.items() for pid in cited)
    with pytest.raises(ValueError, match="toy: query q has no relevant passage"):
        Task("toy", {"q": "asked"}, [], {"q": {"p": 0}})
