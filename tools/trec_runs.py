"""Makes data/trec: what was judged and what was found, ids alone. ``python -m tools.trec_runs``.

It searches again (profile ``open``), so it needs the open data and, the first time, embeds them. Of
controls with twenty draws those of declared tests are kept, of the lambda study the curves of plain
contrast and of the question added: more would be many megabytes.
"""

from __future__ import annotations

import argparse
import lzma
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

import pandas as pd

from lib import trec
from lib.base import files
from lib.base.paths import committed
from lib.base.provenance import read_result
from lib.benchmarks import load_benchmark
from lib.data.judgments import HELPFUL, evidence, read_judgments, read_pair_judgments
from lib.datasets import Question
from lib.embed import load_encoder
from lib.expansion import execute
from lib.profiles import load_profile
from lib.studies import hyde_study
from lib.studies.lambda_sweep.arms import arms_on_test
from lib.studies.lambda_sweep.study import Benchmarks, dev_choice, names_of
from lib.studies.main_tables.experiment import CONTROLS, open_experiment
from lib.studies.masked import pubmedqa
from lib.studies.masked import study as masked
from lib.studies.masked.arms import arms as masked_arms
from lib.studies.masked.arms import bases_of
from lib.studies.rag2 import retrieval
from lib.studies.rag2.filters import RERANKERS, load_rerankers
from lib.studies.rag2.results import open_collection
from lib.studies.real import study as real
from lib.studies.real.arms import Sample, added_searches, gold_passages, searches
from lib.studies.slhyde.tasks import TASKS
from lib.study import Arm, primary_tests, search_arm

Labels = dict[tuple[str, str], dict[str, int]]
"""What was judged, by question id and passage id: a relevance by label."""

Row = tuple[str, str, str, str]
"""Of a run: arm, draw ("" where there is one), question id, passage ids."""

PASSES = ("first", "second")
CURVES = re.compile(r"question|random|hplus(\+question1)?|chr(\+question1)?@[\d.]+")
"""Arms of the lambda study that are kept."""


@cache
def halves() -> real.Halves:
    """The real sample, opened."""
    return real.load(load_profile("open"))


@cache
def benchmarks() -> Benchmarks:
    """The benchmarks of the lambda study, opened when they are asked for."""
    profile = load_profile("open")
    return Benchmarks(profile, load_encoder(profile.encoder, **profile.encoder_options))


def part(half: str, group: str) -> Sample:
    """A part of the real sample."""
    return getattr(halves(), half).groups[group]


# judgments ----------------------------------------------------------------------------------------


def exams(questions: Sequence[Question]) -> Labels:
    """Support for the right and for a wrong option and the topic, by pass; "both" as the studies
    count it (a label of all passes that saw the passage), "any" as their upper bound."""
    asked = {question.qid: question for question in questions}
    rows = [row for row in read_judgments() if row["qid"] in asked]
    rows = [row for row in rows if not row["pid"].startswith("plant:")]
    labels: Labels = {}
    for row in rows:
        if row["judge"] in PASSES and row["on_topic"] is not None:
            of = labels.setdefault((row["qid"], row["pid"]), {})
            of |= _sides(asked[row["qid"]], row["supports"], row["judge"])
            of[f"topic.{row['judge']}"] = row["on_topic"]
    for (qid, pid), known in evidence(rows).items():
        of = labels[qid, pid]
        of |= _sides(asked[qid], known.supports, "both")
        of |= _sides(asked[qid], known.supports_any, "any")
        of["topic.both"] = int(known.on_topic)  # the mean of the passes, rounded down
    return labels


def _sides(question: Question, supports: Iterable[str], by: str) -> dict[str, int]:
    right = question.answer in supports
    wrong = bool(set(supports) - {question.answer})
    return {f"right.{by}": int(right), f"wrong.{by}": int(wrong)}


def snippets(questions: Sequence[Question]) -> Labels:
    """Passages that BioASQ's experts gave, and those that a language model was asked about."""
    asked = {question.qid for question in questions}
    gold = gold_passages(halves().retriever.store)
    labels = {(qid, pid): {"experts": 1} for qid in asked for pid in gold.get(qid, ())}
    for row in pd.read_csv(HELPFUL, dtype=str).itertuples():
        if row.qid in asked:
            labels.setdefault((row.qid, row.pid), {})["helpful"] = int(row.helpful)
    return labels


def on_what(name: str) -> Labels:
    """A benchmark's passages on the target and on the nearest mimic, of its test questions."""
    benchmark = load_benchmark(name, benchmarks().encoder)
    labels: Labels = {}
    for qid in benchmark.test:
        for label, pids in (("target", benchmark.targets), ("mimic", benchmark.mimics)):
            for pid in pids.get(qid, ()):
                labels.setdefault((qid, pid), {})[label] = 1
    return labels


@cache
def fresh() -> masked.Half:
    """The test half of the study of masked answers, opened."""
    return masked.load(load_profile("open")).test


@cache
def found_on_fresh() -> list[Row]:
    """The arms that the answerer read, and those that were searched beside them."""
    half = fresh()
    made = masked_arms(bases_of(half.questions, half.written), half.at)
    return searched(made, [question.qid for question in half.questions], half.retriever)


def named() -> Labels:
    """Which of the passages that were found name the right option, and a wrong one."""
    half = fresh()
    asked = {question.qid: question for question in half.questions}
    pids: dict[str, set[str]] = {}
    for _, _, qid, found in found_on_fresh():
        pids.setdefault(qid, set()).update(found.split())
    labels: Labels = {}
    for qid, of_question in pids.items():
        for passage in half.retriever.store.get_many(sorted(of_question)):
            values = masked.named_in(asked[qid], [passage])
            labels[qid, passage.pid] = {
                name: int(values[name]) for name in ("names_right", "names_wrong")
            }
    return labels


@cache
def sources() -> pubmedqa.Sources:
    """PubMedQA's questions, opened."""
    return pubmedqa.load(load_profile("open"))


def abstracts() -> Labels:
    """The passages of the abstract behind each question of PubMedQA."""
    targets = sources().targets()
    return {(qid, pid): {"source": 1} for qid, pids in targets.items() for pid in pids}


def cited() -> Labels:
    """SciFact's abstracts that a claim cites."""
    qrels = TASKS["scifact"]().qrels
    return {(q, pid): {"cited": score} for q, of in qrels.items() for pid, score in of.items()}


def pairs() -> Labels:
    """Judged pairs, without those whose label was known: on one question, agree, disagree, by pass.

    "both" is what every pass says. A pair of several pools has what was said in all of them.
    """
    labels: Labels = {}
    for row in read_pair_judgments():
        control = row["pool"].startswith(("turned", "scifact")) or "plant:" in row["a"] + row["b"]
        if control or row["judge"] not in PASSES or row["same"] is None:
            continue
        of = labels.setdefault((row["a"], row["b"]), {})
        said = {"same": row["same"]} | {s: row["stance"] == s for s in ("agree", "disagree")}
        for what, so in said.items():
            for name in (f"{what}.{row['judge']}", f"{what}.both"):
                of[name] = min(int(so), of.get(name, 1))
    return labels


# runs ---------------------------------------------------------------------------------------------


def searched(arms: Iterable[Arm], qids: Sequence[str], retriever) -> list[Row]:
    """What arms find for questions."""
    rows = []
    for arm in arms:
        print(f"  {arm.name}", flush=True)
        for draw, found in enumerate(search_arm(arm, qids, retriever, trec.DEPTH)):
            named = str(draw) if arm.draws > 1 else ""
            rows += [(arm.name, named, qid, " ".join(pids)) for qid, pids in found.items()]
    return rows


def _declared(test_set: str, lam: float) -> set[str]:
    names = {test[s] for test in primary_tests()[test_set]["test"] for s in ("arm", "baseline")}
    return {re.sub(r"\{[^}]+\}", f"{lam:g}", name) for name in names}


def of_sample(half: str, group: str) -> list[Row]:
    """The arms of the real sample; lambda is the one that dev chose."""
    on_dev, _ = read_result("values_real_dev", "open", committed=True)
    chosen = real.choices(real.lambda_table(on_dev))[group]
    wanted = searches(chosen) | (added_searches() if (half, group) == ("test", "bioasq") else {})
    kept = part(half, group)
    declared = _declared("real", chosen) if half == "test" else set()
    arms = [arm for arm in kept.arms(wanted) if arm.draws <= 3 or arm.name in declared]
    return searched(arms, kept.qids, kept.retriever)


def of_benchmark(name: str) -> list[Row]:
    """The kept arms of the lambda study on test questions."""
    bench = benchmarks().study(name)
    if other := bench.benchmark.chosen_on:
        choices, _ = read_result(names_of(other)[2], "open", committed=True)
        chosen = dict(zip(choices["form"], choices["arm"], strict=True))
        bench = replace(bench, tuned_on=benchmarks().study(other), chosen=chosen)
    values, _ = read_result(names_of(name)[0], "open", committed=True)
    dev = dev_choice(bench, values)
    kept = _declared(name, dev["one mimic"].spec.lam) if name in primary_tests() else set()
    arms = arms_on_test(bench, dev).values()
    arms = [arm for arm in arms if CURVES.fullmatch(arm.name) or arm.name in kept]
    return searched(arms, bench.benchmark.test, bench.retriever)


def of_main_tables() -> list[Row]:
    """The methods of the main tables on BioASQ's part of the sample."""
    lab = open_experiment(load_profile("open"))
    arms = [*lab.methods, "random"]
    found = {arm: run for arm in arms if (run := lab.run_of(arm, "bioasq")) is not None}
    return _of_runs(found)


def of_bundled() -> list[Row]:
    """The main tables' committed runs of ddx-mini; of controls there is one draw of twenty."""
    text = dict.fromkeys(("qid", "pid"), str)
    table = pd.read_csv(committed("mini") / "runs.csv", dtype=text, keep_default_na=False)
    found = dict(iter(table.groupby("method", sort=False)))
    return _of_runs({arm: run for arm, run in found.items() if arm not in CONTROLS})


def of_lesson() -> list[Row]:
    """The lesson on HyDE with the questions' own passages."""
    lesson = hyde_study.load(load_profile("open"))
    arms = [arm for arm in hyde_study.arms(lesson) if arm.draws == 1]
    return searched(arms, lesson.qids, lesson.retriever)


def of_rag2() -> list[Row]:
    """RAG2's strategies on BioASQ, without the re-rankers on shuffled labels."""
    collection = open_collection(load_profile("open"))
    asked = retrieval._bioasq(collection)
    texts = [passage.text for passage in asked.retriever.store]
    (tuned,) = load_rerankers(RERANKERS[0], asked.retriever.encoder, texts)
    found = {}
    for name, arm in retrieval.strategies(asked.sources, {"": tuned}).items():
        print(f"  {name}", flush=True)
        questions = list(asked.questions)
        if arm.needs_llm or arm.reranker:
            questions = [q for q in questions if q.qid in asked.rationales]
        made = [arm.given(q, asked.rationales.get(q.qid, "")) for q in questions]
        found[name], _ = execute(name, questions, made, asked.retriever, trec.DEPTH)
    return _of_runs(found)


def _of_runs(found: Mapping[str, pd.DataFrame]) -> list[Row]:
    rows = []
    for arm, run in found.items():
        lists = run[(run["pid"] != "") & (run["rank"] <= trec.DEPTH)].sort_values("rank")
        by_question = lists.groupby("qid", sort=False)["pid"].agg(" ".join)
        rows += [(arm, "", qid, pids) for qid, pids in by_question.items()]
    return rows


# files --------------------------------------------------------------------------------------------

JUDGED: Mapping[str, Callable[[], Labels]] = {
    "exams-test": lambda: exams(part("test", "exams").questions),
    "exams-dev": lambda: exams(part("dev", "exams").questions),
    "bioasq-test": lambda: snippets(part("test", "bioasq").questions),
    "bioasq-dev": lambda: snippets(part("dev", "bioasq").questions),
    "bioasq-ideal": lambda: on_what("bioasq"),
    "ddx-fresh": lambda: on_what("ddx-fresh"),
    "ddx-real": lambda: on_what("ddx-real"),
    "ddx-mini": lambda: on_what("ddx-mini"),
    "masked": named,
    "pubmedqa": abstracts,
    "scifact": cited,
    "contradiction": pairs,
}
FOUND: Mapping[str, Callable[[], list[Row]]] = {
    **{f"exams-{half}": lambda half=half: of_sample(half, "exams") for half in ("test", "dev")},
    **{f"bioasq-{half}": lambda half=half: of_sample(half, "bioasq") for half in ("test", "dev")},
    "bioasq-ideal": lambda: of_benchmark("bioasq"),
    **{
        f"ddx-{name}": lambda name=name: of_benchmark(f"ddx-{name}")
        for name in ("fresh", "fresh-blind", "real", "real-blind")
    },
    "ddx-mini": of_bundled,
    "masked": found_on_fresh,
    "pubmedqa": lambda: searched(pubmedqa.arms_of(sources()), sources().qids, sources().retriever),
    "bioasq-main": of_main_tables,
    "bioasq-lesson": of_lesson,
    "bioasq-rag2": of_rag2,
}
"""What makes a set's judgments and runs. A new study: a line each, and a block of sets.toml."""


def pack(name: str, table: pd.DataFrame) -> None:
    """Write a packed file with its manifest: the same rows give the same bytes."""
    path = trec.FOLDER / name
    content = lzma.compress(table.to_csv(index=False, lineterminator="\n").encode(), preset=9)
    files.atomic_write(path, content)
    files.write_manifest(path, rows=len(table), settings={"profile": "open"}, content=content)
    print(f"{name}: {len(table)} rows, {len(content) // 1024} KiB", flush=True)


def main() -> None:
    """Command line: all sets, or some."""
    parser = argparse.ArgumentParser(prog="python -m tools.trec_runs", description=__doc__)
    parser.add_argument("sets", nargs="*", metavar="set", help="such as exams-test; default all")
    given = parser.parse_args()
    for name in given.sets or dict.fromkeys([*JUDGED, *FOUND]):
        if name in JUDGED:
            rows = [{"qid": q, "pid": p} | of for (q, p), of in sorted(JUDGED[name]().items())]
            table = pd.DataFrame(rows).set_index(["qid", "pid"]).astype("Int64")
            pack(f"{name}.qrels.csv.xz", table.sort_index(axis=1).reset_index())
        if name in FOUND:
            table = pd.DataFrame(FOUND[name](), columns=["arm", "draw", "qid", "pids"])
            order = ["qid", "arm", "draw"]
            pack(f"{name}.runs.csv.xz", table.sort_values(order, kind="stable"))


if __name__ == "__main__":
    main()
