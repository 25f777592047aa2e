"""Does contrast help the answer? ddx-real read by the reader without an LLM.

Each disease is asked for by its own description, the words of its name struck out, among five: it
and the diseases described most like it, so what H- rules out is one of the wrong options.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pandas as pd

from lib.base.provenance import load_result, result
from lib.data import load_benchmark
from lib.data.questions import Question
from lib.methods import METHODS
from lib.readers import EvidenceReader
from lib.run import Retriever, run_retrieval
from lib.search.corpus_index import only, without
from lib.stats import holm, judged, mean_interval, measure, paired
from lib.studies.lam.corruption import exchanged
from lib.studies.lam.study import Condition, Study, prepare, retrieve
from lib.studies.lam.tables import best_lambda

__all__ = ["asked", "read_arms", "reading_claims", "reading_results", "reading_table"]

WITHOUT_LLM = {"standard": "question, dense", "bm25": "question, BM25", "rrf": "question, RRF"}
SHARES = (0.2, 0.4)
"""How many of the hypothesis pairs are exchanged, to see what good hypotheses are worth."""


def asked(study: Study, options: int = 5) -> list[Question]:
    """The test diseases as questions, in row order: ``options`` names, letters drawn by id."""
    b, out = study.benchmark, []
    names = [re.fullmatch(r"What is (.*)\?", q).group(1) for q in b.questions]
    name_of = dict(zip(b.h_plus, names, strict=True))
    for i in study.rows(b.test):
        shown = list(dict.fromkeys([names[i], *map(name_of.get, b.several[i])]))[:options]
        random.Random(b.qids[i]).shuffle(shown)
        letters = dict(zip("ABCDEFGH", shown, strict=False))
        (answer,) = (x for x, name in letters.items() if name == names[i])
        text = f"Which condition is this? {_struck(b.h_plus[i], names[i])}"
        out.append(Question(b.qids[i], text, letters, answer, b.name))
    return out


def _struck(text: str, name: str) -> str:
    """The description without the words of the disease's name (four letters or more)."""
    words = "|".join(re.escape(w) for w in re.findall(r"\w{4,}", name))
    return re.sub(rf"\b(?:{words})\w*", "…", text, flags=re.IGNORECASE) if words else text


def read_arms(
    study: Study, retriever: Retriever, star: float, k: int = 5, draws: int = 5
) -> pd.DataFrame:
    """One row per arm and question: ``arm, qid, right, p_at_5, mimic_at_5``.

    ``star`` is the lambda that dev chose. Where hypotheses are exchanged, a row is the mean over
    ``draws`` random choices of whose.
    """
    b, questions = study.benchmark, asked(study)
    reader = EvidenceReader(retriever.encoder)
    reader.know(study.index)
    targets, out = {q.qid: b.targets[q.qid] for q in questions}, []
    for arm, runs in _arms(study, retriever, questions, star, k, draws):
        tables = []
        for found in runs:
            contexts = [retriever.store.get_many(found.get(q.qid, [])[:k]) for q in questions]
            told = reader.answer_all(questions, contexts)
            right = [float(a.letter == q.answer) for a, q in zip(told, questions, strict=True)]
            table = measure(found, targets, b.mimics, k)[["p_at_5", "mimic_at_5"]]
            tables.append(table.assign(right=right))
        out.append((sum(tables) / len(tables)).reset_index().assign(arm=arm))
    return pd.concat(out, ignore_index=True)[["arm", "qid", "right", "p_at_5", "mimic_at_5"]]


def _arms(
    study: Study,
    retriever: Retriever,
    questions: Sequence[Question],
    star: float,
    k: int,
    draws: int,
) -> Iterator[tuple[str, list[dict]]]:
    """(name, runs: one, or one a draw) of every way to retrieve."""
    rows = study.rows(study.benchmark.test)
    for name, label in WITHOUT_LLM.items():
        run, _ = run_retrieval(METHODS[name], questions, retriever, k=k)
        yield label, [{q: list(own["pid"]) for q, own in run.groupby("qid")}]

    def at(condition: Condition, lam: float, of: Study = study) -> dict:
        return retrieve(of, condition, lam, rows, depth=k)[0]

    yield "random passages", [at(Condition(form="random"), 0.0)]
    yield "H+ alone", [at(Condition(), 0.0)]
    for lam in sorted({star, 0.4, 1.0}):
        yield f"contrast, λ = {lam:g}", [at(Condition(), lam)]
        yield f"matched rotation, λ = {lam:g}", [at(Condition(rotation=True), lam)]
        yield f"random mimic, λ = {lam:g}", [at(Condition(mimic="random"), lam)]
    yield "maximum over 5 mimics, λ = 0.5", [at(Condition(form="max"), 0.5)]
    for share in SHARES:
        wrong = [exchanged(study, share, seed) for seed in range(draws)]
        for lam in (0.0, star, 1.0):
            yield f"{share:.0%} exchanged, λ = {lam:g}", [at(Condition(), lam, s) for s in wrong]


def reading_table(read: pd.DataFrame) -> pd.DataFrame:
    """One row an arm: ``arm, p_at_5, mimic_at_5, accuracy, low, high, n``, bootstrap intervals."""
    rows = []
    for arm, own in read.groupby("arm", sort=False):
        value, low, high = mean_interval(own["right"])
        means = own[["p_at_5", "mimic_at_5"]].mean().to_dict()
        row = {"arm": arm} | means | {"accuracy": value, "low": low, "high": high}
        rows.append(row | {"n": len(own)})
    return pd.DataFrame(rows)


def reading_claims(read: pd.DataFrame, star: float) -> pd.DataFrame:
    """Does the reader answer better? Paired on the same questions, Holm over the family.

    Columns ``claim, difference, low, high, p, n, least, p_holm, verdict``.
    """
    right = {arm: own.set_index("qid")["right"] for arm, own in read.groupby("arm")}
    several, rows = "maximum over 5 mimics, λ = 0.5", []
    for one, other in [
        *((f"contrast, λ = {lam:g}", "H+ alone") for lam in sorted({star, 0.4, 1.0})),
        *(
            (f"contrast, λ = {lam:g}", f"{control}, λ = {lam:g}")
            for lam in sorted({star, 0.4, 1.0})
            for control in ("matched rotation", "random mimic")
        ),
        (several, "H+ alone"),
        (several, "contrast, λ = 0.4"),
        (f"20% exchanged, λ = {star:g}", "20% exchanged, λ = 0"),
        ("20% exchanged, λ = 1", "20% exchanged, λ = 0"),
    ]:
        a, b = right[one].align(right[other], join="inner")
        rows.append({"claim": f"{one} > {other}"} | paired(a, b))
    table = pd.DataFrame(rows)
    table["p_holm"] = holm(table["p"])
    return table.assign(verdict=judged(table))


def reading_results(profile, retriever: Retriever) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Table and claims, kept as ``ddx_real_reading_table|claims.csv`` beside the answers.

    A profile without ddx-real gets the committed ones of ``open``.
    """
    names = ("ddx_real_reading_table", "ddx_real_reading_claims")
    if "ddx-real" not in profile.benchmarks:
        return tuple(load_result(name, "open", committed=True)[0] for name in names)
    benchmark = load_benchmark("ddx-real", retriever.encoder)
    index = without(only(retriever.index, benchmark.corpora), benchmark.excluded_sources)
    study = prepare(benchmark, index, retriever.encoder)
    own = replace(retriever, index=index, bm25=retriever.bm25.subset(index.kept))
    star = best_lambda(study, profile.lambdas, profile.k)
    behind = {
        "k": profile.k,
        "star": star,
        "encoder": study.encoder,
        "limit": profile.limit,
        "code": ["lib.studies.lam.reading", "lib.search.corpus_index"],
        "data": benchmark.files,
    }
    read = result(
        lambda: read_arms(study, own, star, profile.k), "ddx_real_reading", profile.name, **behind
    )
    makers = (lambda: reading_table(read), lambda: reading_claims(read, star))
    return tuple(
        result(make, name, profile.name, **behind) for make, name in zip(makers, names, strict=True)
    )
