"""Does contrast help the answer? The diseases of a benchmark, read by the reader without an LLM.

Each disease is asked for by its own description, without the words of its name, among five options.
No main result may rest on this reader: H+ mostly contains the right option's name, its encoder is
the retriever's, and it is often right where no target was retrieved. So every accuracy is reported
with three comparisons: the accuracy where a target was retrieved and where none was; options that
are near and options drawn at random; and answers without retrieval.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lib.benchmarks.base import Benchmark
from lib.data.looks import Look
from lib.data.passages import Passage
from lib.datasets import Question
from lib.expansion import execute, expand_all
from lib.methods import standard
from lib.parse import named_option
from lib.query_spec import SearchSpec
from lib.readers import EvidenceReader
from lib.run import Retriever
from lib.stats import long_values, mean_interval, measure
from lib.studies.lambda_sweep.arms import H_PLUS, RANDOM, OpenBenchmark, SearchArm
from lib.studies.lambda_sweep.study import CODE, EXCHANGES, Benchmarks, dev_choice, exchanged
from lib.study import Found, Study, make, mean_of_draws, search_arm, search_arms

OPTIONS = ("near", "random")
"""How the four wrong options are drawn: the diseases described most like it, or any others."""

METHODS_READ = {
    "asked_dense": standard.Standard("asked_dense"),
    "asked_bm25": standard.Standard("asked_bm25", sparse=True),
    "asked_rrf": standard.Hybrid("asked_rrf"),
}
"""The reader's own question as the search: the description, its name struck out."""

SHARES = (0.2, 0.4)
"""How many of the hypothesis pairs are exchanged, to see what good hypotheses are worth."""


@dataclass(frozen=True)
class Diseases:
    """The diseases of a benchmark, and what they are searched with.

    ``named`` is the benchmark with its names unstruck, for one whose texts name nothing: the
    options are drawn by its texts. ``lambdas`` are those of contrast and its controls, ``best``
    further arms that dev chose.
    """

    bench: OpenBenchmark
    named: Benchmark
    lambdas: Sequence[float]
    best: Sequence[SearchArm] = ()

    @property
    def retriever(self) -> Retriever:
        """What is searched."""
        return self.bench.retriever

    @property
    def data(self) -> Sequence[str]:
        """The files behind it."""
        return self.bench.data


def asked(diseases: Diseases, options: str) -> list[Question]:
    """The test diseases as questions, in order: five names, letters drawn by id."""
    b, named = diseases.bench.benchmark, diseases.named
    name_of = {
        text: named.names[qid][0] for text, qid in zip(named.h_plus, named.qids, strict=True)
    }
    everyone = sorted({b.names[qid][0] for qid in b.qids})
    questions = []
    for i, qid in enumerate(b.qids):
        if qid in b.dev:
            continue
        right = b.names[qid][0]
        if options == "near":
            wrong = [name_of[text] for text in named.several[i]]
        else:
            wrong = random.Random(f"options {qid}").sample(everyone, 6)
        others = [name for name in dict.fromkeys(wrong) if name != right]
        shown = [right, *others[:4]]
        random.Random(qid).shuffle(shown)
        letters = dict(zip("ABCDE", shown, strict=False))
        (answer,) = (letter for letter, name in letters.items() if name == right)
        text = f"Which condition is this? {_struck(b.h_plus[i], right)}"
        questions.append(Question(qid, text, letters, answer, b.name))
    return questions


def _struck(text: str, name: str) -> str:
    """The description without the words of the disease's name (four letters or more)."""
    words = "|".join(re.escape(word) for word in re.findall(r"\w{4,}", name))
    return re.sub(rf"\b(?:{words})\w*", "…", text, flags=re.IGNORECASE) if words else text


def read_arms(diseases: Diseases) -> pd.DataFrame:
    """``arm, qid, metric, value``: right with near and with random options, and what was found.

    Metrics: ``right_near`` and ``right_random`` (0 or 1, or the mean over draws), ``p_at_5``,
    ``mimic_at_5`` and ``found`` (1 where a target is among the k passages).
    """
    bench, b = diseases.bench, diseases.bench.benchmark
    reader = EvidenceReader(bench.retriever.encoder)
    reader.use_vectors_of(bench.retriever.index)
    questions = {kind: asked(diseases, kind) for kind in OPTIONS}
    targets = {qid: b.targets[qid] for qid in b.test}
    h_plus = {qid: bench.hypotheses[qid].of("target")[0].text for qid in b.test}

    def right(contexts: Mapping[str, Sequence[Passage]]) -> pd.DataFrame:
        columns = {}
        for kind, group in questions.items():
            answers = reader.answer_all(group, [list(contexts.get(q.qid, [])) for q in group])
            pairs = zip(answers, group, strict=True)
            columns[f"right_{kind}"] = [float(q.is_right(a.letter)) for a, q in pairs]
        return pd.DataFrame(columns, index=list(b.test))

    def outcomes(found: Found) -> pd.DataFrame:
        found = {qid: pids[: bench.k] for qid, pids in found.items()}
        table = measure(found, targets, b.mimics, bench.k)
        table = table[["p_at_5", "mimic_at_5"]].assign(found=table["hit_at_5"])
        store = bench.retriever.store
        return table.join(right({qid: store.get_many(pids) for qid, pids in found.items()}))

    alone = {q: [Passage(f"H+ {q}", "", text, "hypothesis", {})] for q, text in h_plus.items()}
    parts = []
    for name, draws in _searched(diseases, questions["near"]):
        if name == "random":
            parts.append(long_values("hplus_as_passage", right(alone)))
        parts.append(long_values(name, mean_of_draws(draws, outcomes)))
    # The option that H+ names, by its words alone; one that names none or two is wrong.
    naming = {
        f"right_{kind}": [float(q.is_right(named_option(h_plus[q.qid], q.options))) for q in group]
        for kind, group in questions.items()
    }
    parts.append(long_values("named_option", pd.DataFrame(naming, index=list(b.test))))
    return pd.concat(parts, ignore_index=True)


def _searched(
    diseases: Diseases, questions: Sequence[Question]
) -> Iterator[tuple[str, list[Found]]]:
    """Every arm by name, with what it finds in each of its draws."""
    bench, qids = diseases.bench, diseases.bench.benchmark.test
    for name, method in METHODS_READ.items():
        expansions = expand_all(method, questions)
        # Passages that may not be found for a question are looked up too, and dropped.
        excluded = {qid: bench.hypotheses[qid].excluded for qid in qids}
        spare = max(map(len, excluded.values()))
        run, _ = execute(name, questions, expansions, bench.retriever, bench.k + spare)
        found = {
            qid: [pid for pid in rows["pid"] if pid not in excluded[qid]]
            for qid, rows in run.groupby("qid")
        }
        yield name, [found]
    specs = [RANDOM, H_PLUS]
    for lam in diseases.lambdas:
        specs += [SearchSpec(lam=lam), SearchSpec(lam=lam, rotation=True)]
        specs.append(SearchSpec(lam=lam, mimic="stranger"))
    arms = [*map(bench.arm, specs), *diseases.best]
    named = {arm.name: arm for arm in arms}
    yield from search_arms(named.values(), qids, bench.retriever, bench.k).items()
    for share in SHARES:
        wrong = [exchanged(bench, share, seed) for seed in range(EXCHANGES)]
        for lam in (0.0, *diseases.lambdas):
            arms = [one.arm(SearchSpec(lam=lam)) for one in wrong]
            draws = [search_arm(arm, qids, bench.retriever, bench.k)[0] for arm in arms]
            yield f"{arms[0].name}+exchanged{share:g}", draws


def reading_table(values: pd.DataFrame) -> pd.DataFrame:
    """One row an arm and kind of options: accuracy, and the same by whether a target was found.

    Columns ``arm, options, accuracy, low, high, n, p_at_5, found, accuracy_found, n_found,
    accuracy_not_found, n_not_found``. A question counts as found where a target was among its
    passages in at least half of the draws. The last six are missing for what retrieves nothing.
    """
    wide = values.pivot(index=["arm", "qid"], columns="metric", values="value")
    rows = []
    for arm in dict.fromkeys(values["arm"]):
        table = wide.loc[arm]
        for kind in OPTIONS:
            right = table[f"right_{kind}"]
            accuracy, low, high = mean_interval(right.to_numpy())
            row = {"arm": arm, "options": kind, "accuracy": accuracy, "low": low, "high": high}
            rows.append(row | {"n": len(table)} | _by_found(table, right))
    return pd.DataFrame(rows)


def _by_found(table: pd.DataFrame, right: pd.Series) -> dict[str, float]:
    if table["found"].isna().any():
        return {}
    found = table["found"] >= 0.5
    return {
        "p_at_5": table["p_at_5"].mean(),
        "found": table["found"].mean(),
        "accuracy_found": right[found].mean() if found.any() else np.nan,
        "n_found": int(found.sum()),
        "accuracy_not_found": right[~found].mean() if (~found).any() else np.nan,
        "n_not_found": int((~found).sum()),
    }


def read_benchmark(benchmarks: Benchmarks, name: str) -> dict[str, pd.DataFrame]:
    """What the reader makes of a benchmark's diseases, at the lambdas that its dev chose.

    ``values_<benchmark>_reading`` and ``<benchmark>_reading_table`` by name. ValueError where dev
    chose no lambda.
    """
    bench = benchmarks.study(name)
    # Options have names, also where the texts have none.
    named = benchmarks.study(name.removesuffix("-blind")).benchmark
    dev = dev_choice(benchmarks.tuned(name), benchmarks.results(name)["values"])
    if "one mimic" not in dev:
        raise ValueError(f"{name} cannot be read: no dev questions chose a lambda")
    stem = name.replace("-", "_")
    lambdas = sorted({dev["one mimic"].spec.lam, 0.4, 1.0} - {0.0})
    best = [dev[form] for form in ("maximum of several", "question added") if form in dev]
    diseases = Diseases(bench, named, lambdas, best)
    settings = {"k": bench.k, "lambdas": lambdas, "chosen": [arm.name for arm in best]}

    def looks(_: Diseases, made: Mapping[str, pd.DataFrame]) -> list[Look]:
        values = made[f"values_{stem}_reading"]
        return [Look(name, values["qid"], values["arm"])]

    study = Study(
        name="reading",
        code=CODE[0],
        load=lambda _: diseases,
        values={f"values_{stem}_reading": read_arms},
        tables=(f"{stem}_reading_table",),
        follow=lambda _, values: {f"{stem}_reading_table": reading_table(values)},
        looks=looks,
        origin=lambda _: settings | {"code": [*CODE, *bench.benchmark.code]},
    )
    return make(study, benchmarks.profile, diseases)
