"""Does contrast help the answer? The diseases of a benchmark, read by the reader without an LLM.

Each disease is asked for by its own description, the words of its name struck out, among five
options. This reader is no instrument that a headline can rest on: H+ mostly contains the right
option's name, its encoder is the retriever's, and it is often right where nothing relevant was
retrieved. So every accuracy stands beside the same one where a target was retrieved and where none
was, beside options that are near and options drawn at random, and beside answers that need no
retrieval at all.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lib.base.provenance import make_or_reuse
from lib.benchmarks.base import Benchmark
from lib.data.looks import note_look
from lib.data.passages import Passage
from lib.datasets import Question
from lib.methods import standard
from lib.parse import named_option
from lib.profiles import Profile
from lib.query_spec import DRAWS, SearchSpec
from lib.readers import EvidenceReader
from lib.run import execute, expand_all
from lib.stats import long_values, mean_interval, measure
from lib.studies.lambda_sweep.arms import RANDOM, Arm
from lib.studies.lambda_sweep.corruption import exchanged
from lib.studies.lambda_sweep.study import Study, found_by, found_in_draws

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

EXCHANGES = 5
"""Random choices of whose hypotheses are exchanged."""


def asked(
    study: Study, options: str, number: int = 5, named: Benchmark | None = None
) -> list[Question]:
    """The test diseases as questions, in order: ``number`` names, letters drawn by id.

    ``named`` is the benchmark with its names unstruck, for one whose texts name nothing: the
    options are drawn by its texts.
    """
    b, named = study.benchmark, named or study.benchmark
    _check_readable(named, number)
    texts = zip(named.qids, named.h_plus, strict=True)
    name_of = {text: named.names[qid][0] for qid, text in texts}
    everyone = sorted({b.names[qid][0] for qid in b.qids})
    questions = []
    for i, qid in enumerate(b.qids):
        if qid in b.dev:
            continue
        right = b.names[qid][0]
        if options == "near":
            wrong = [name_of[text] for text in named.several[i]]
        else:
            wrong = random.Random(f"options {qid}").sample(everyone, number + 1)
        others = [name for name in dict.fromkeys(wrong) if name != right]
        shown = [right, *others[: number - 1]]
        random.Random(qid).shuffle(shown)
        letters = dict(zip("ABCDEFGH", shown, strict=False))
        (answer,) = (letter for letter, name in letters.items() if name == right)
        text = f"Which condition is this? {_struck(b.h_plus[i], right)}"
        questions.append(Question(qid, text, letters, answer, b.name))
    return questions


def _check_readable(b: Benchmark, number: int) -> None:
    """ValueError where the benchmark lacks what makes its diseases questions with options."""
    if unnamed := [qid for qid in b.qids if not b.names.get(qid)]:
        raise ValueError(f"{b.name} cannot be read: no names for {', '.join(unnamed[:3])}")
    if not b.several:
        raise ValueError(f"{b.name} cannot be read: no several mimics, the near options")
    described = set(b.h_plus)
    for qid, mimics in zip(b.qids, b.several, strict=True):
        if not described.issuperset(mimics):
            raise ValueError(f"{b.name} cannot be read: a mimic of {qid} is no other one's H+")
    if len({names[0] for names in b.names.values()}) <= number:
        raise ValueError(f"{b.name} cannot be read: too few diseases for {number} options")


def _struck(text: str, name: str) -> str:
    """The description without the words of the disease's name (four letters or more)."""
    words = "|".join(re.escape(word) for word in re.findall(r"\w{4,}", name))
    return re.sub(rf"\b(?:{words})\w*", "…", text, flags=re.IGNORECASE) if words else text


@dataclass(frozen=True)
class _Contexts:
    """What an arm gives the reader: the passages of each question, one mapping for each draw."""

    name: str
    draws: Sequence[Mapping[str, Sequence[Passage]]]
    retrieved: bool = True


def read_arms(
    study: Study,
    lambdas: Sequence[float],
    best: Sequence[Arm],
    named: Benchmark | None = None,
) -> pd.DataFrame:
    """``arm, qid, metric, value``: right with near and with random options, and what was found.

    Metrics: ``right_near`` and ``right_random`` (0 or 1, or the mean over draws), ``p_at_5``,
    ``mimic_at_5`` and ``found`` (1 where a target is among the k passages). ``lambdas`` are those
    of contrast and its controls, ``best`` further arms that dev chose; ``named`` as for ``asked``.
    """
    b, reader = study.benchmark, EvidenceReader(study.retriever.encoder)
    reader.use_vectors_of(study.index)
    questions = {kind: asked(study, kind, named=named) for kind in OPTIONS}
    targets = {question.qid: b.targets[question.qid] for question in questions["near"]}
    parts = []
    for arm in _contexts(study, questions["near"], lambdas, best):
        tables = []
        for contexts in arm.draws:
            table = _outcomes(contexts, targets, b.mimics, study.k)
            if not arm.retrieved:
                table = table.iloc[:, :0]
            for kind in OPTIONS:
                given = [list(contexts.get(q.qid, [])) for q in questions[kind]]
                answers = reader.answer_all(questions[kind], given)
                pairs = zip(answers, questions[kind], strict=True)
                table[f"right_{kind}"] = [float(a.letter == q.answer) for a, q in pairs]
            tables.append(table)
        parts.append(long_values(arm.name, sum(tables) / len(tables)))
    parts += [_named(study, questions)]
    return pd.concat(parts, ignore_index=True)


def _outcomes(contexts: Mapping, targets: Mapping, mimics: Mapping, k: int) -> pd.DataFrame:
    found = {qid: [passage.pid for passage in passages] for qid, passages in contexts.items()}
    table = measure(found, targets, mimics, k)
    return table[["p_at_5", "mimic_at_5"]].assign(found=table["hit_at_5"])


def _contexts(
    study: Study, questions: Sequence[Question], lambdas: Sequence[float], best: Sequence[Arm]
) -> Iterator[_Contexts]:
    """Every arm with the passages it gives the reader."""
    store, qids, k = study.retriever.store, [q.qid for q in questions], study.k
    known: dict[str, Passage] = {}

    def passages(found: Mapping[str, Sequence[str]]) -> dict[str, list[Passage]]:
        tops = {qid: list(pids)[:k] for qid, pids in found.items()}
        new = {pid for top in tops.values() for pid in top} - known.keys()
        known.update((passage.pid, passage) for passage in store.get_many(sorted(new)))
        return {qid: [known[pid] for pid in top] for qid, top in tops.items()}

    for name, method in METHODS_READ.items():
        expansions = expand_all(method, questions)
        # Passages that may not be found for a question are looked up too, and dropped.
        excluded = {qid: study.hypotheses[qid].excluded for qid in qids}
        spare = max(map(len, excluded.values()))
        run, _ = execute(name, questions, expansions, study.retriever, k + spare)
        found = {
            qid: [pid for pid in rows["pid"] if pid not in excluded[qid]]
            for qid, rows in run.groupby("qid")
        }
        yield _Contexts(name, [passages(found)])
    h_plus = {qid: study.hypotheses[qid].of("target")[0].text for qid in qids}
    alone = {q: [Passage(f"H+ {q}", "", text, "hypothesis", {})] for q, text in h_plus.items()}
    yield _Contexts("hplus_as_passage", [alone], retrieved=False)
    for arm in _searched(lambdas, best):
        draws = range(DRAWS if arm.is_control else 1)
        found = found_in_draws(study, arm, qids, draws, depth=k)
        yield _Contexts(arm.name, [passages(own) for own in found])
    for share in SHARES:
        wrong = [exchanged(study, share, seed) for seed in range(EXCHANGES)]
        for lam in (0.0, *lambdas):
            arm = Arm(SearchSpec(lam=lam))
            found = [found_by(some, arm, qids, depth=k) for some in wrong]
            yield _Contexts(f"{arm.name}+exchanged{share:g}", [passages(own) for own in found])


def _searched(lambdas: Sequence[float], best: Sequence[Arm]) -> list[Arm]:
    arms = [RANDOM, Arm(SearchSpec())]
    for lam in lambdas:
        specs = (
            SearchSpec(lam=lam),
            SearchSpec(lam=lam, rotation=True),
            SearchSpec(lam=lam, mimic="stranger"),
        )
        arms += [Arm(spec) for spec in specs]
    arms += best
    return list({arm.name: arm for arm in arms}.values())


def _named(study: Study, questions: Mapping[str, Sequence[Question]]) -> pd.DataFrame:
    """The option that H+ names, by its words alone; one that names none or two is wrong."""
    table = pd.DataFrame(index=[q.qid for q in questions["near"]])
    for kind, some in questions.items():
        texts = [str(study.hypotheses[q.qid].of("target")[0].text) for q in some]
        letters = [named_option(text, q.options) for text, q in zip(texts, some, strict=True)]
        pairs = zip(letters, some, strict=True)
        table[f"right_{kind}"] = [float(letter == q.answer) for letter, q in pairs]
    return long_values("named_option", table)


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


def reading_results(
    study: Study, profile: Profile, dev: Mapping[str, Arm], named: Benchmark | None = None
) -> dict[str, pd.DataFrame]:
    """``values`` and ``table`` of a benchmark's reading, kept as ``values_<benchmark>_reading`` and
    ``<benchmark>_reading_table``.

    ``dev`` says what dev chose for each form; ValueError where it chose no lambda. ``named`` as for
    ``asked``.
    """
    if "one mimic" not in dev:
        raise ValueError(f"{study.benchmark.name} cannot be read: no dev questions chose a lambda")
    stem = study.benchmark.name.replace("-", "_")
    chosen = dev["one mimic"].spec.lam
    lambdas = sorted({chosen, 0.4, 1.0} - {0.0})
    best = [dev[form] for form in ("maximum of several", "question added") if form in dev]
    settings = {
        "k": study.k,
        "lambdas": lambdas,
        "chosen": [arm.name for arm in best],
        "encoder": study.retriever.encoder.fingerprint,
        "limit": profile.limit,
        "code": ["lib.studies.lambda_sweep", "lib.index_build", *study.benchmark.code],
        "data": study.benchmark.files,
    }

    def looked_at() -> pd.DataFrame:
        table = read_arms(study, lambdas, best, named)
        name = study.benchmark.name
        note_look("reading", name, study.benchmark.test, profile.name, table["arm"])
        return table

    values = make_or_reuse(looked_at, f"values_{stem}_reading", profile.name, dear=True, **settings)
    table = make_or_reuse(
        lambda: reading_table(values), f"{stem}_reading_table", profile.name, **settings
    )
    return {"values": values, "table": table}
