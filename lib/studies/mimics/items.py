"""How good is the mimic? What is measured: proxies that need no grader, a judge, worked cases.

``items`` says of every question's pair what its texts, vectors and searches say, ``judged`` asks a
model for the paper's tiers, and ``case_ranks`` ranks ddx-mini's passages for the paper's five
worked cases. ``data/mimic_cases.jsonl`` holds for each the ddx-mini question about the same pair,
hypotheses in our own words with what flaws the paper's have, and what the paper prints: of each
retrieved excerpt whether it names the target (as we read it), and whether the answer was right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from lib.base.files import read_jsonl
from lib.base.paths import DATA
from lib.benchmarks.base import shared_ngrams
from lib.benchmarks.ddx_mini import build
from lib.datasets import Question
from lib.llm.chat import ChatModel, JsonReply, ask_json, in_parallel
from lib.llm.prompts import load_prompt
from lib.llm.recorder import RecordingMiss
from lib.methods.base import Expansion, question_alone
from lib.methods.chr import written_pair
from lib.parse import YES_NO, named_option
from lib.profiles import load_profile
from lib.query_spec import Hypotheses, SearchSpec
from lib.search.contrast import cosine
from lib.stats import class_of
from lib.studies.main_tables.experiment import Experiment, open_experiment

TIERS = ("Excellent", "Good", "Poor")
"""The paper's, best first. Anything else, such as "", is a question without a grade."""

_AT = ("hplus", "chosen", "one")
"""H+ only, the reader's lambda and lambda = 1: how columns of ``items`` end."""
_EMPTY = {
    **dict.fromkeys(("dataset", "qid", "plus_option", "minus_option"), str),
    **dict.fromkeys(("exam", *(f"collapsed_{at}" for at in _AT)), bool),
    **dict.fromkeys(("plus_right", "minus_right"), object),
    **dict.fromkeys(("c", "copied", "shared", "near_standard"), float),
    **dict.fromkeys((f"{what}_{at}" for what in ("near", "p", "kept") for at in _AT), float),
}
"""The columns of a table of items without rows."""

_COPIED_WORDS = 3
"""Words in a row that count as copied from one hypothesis into the other."""


def expanded(experiment: Experiment, arm: str) -> list[tuple[str, Question, Expansion]]:
    """(set, question, expansion) of every question of an arm whose expansion did not fail.

    A set that nobody recorded, and so is NOT RUN, has none.
    """
    found = []
    for dataset in experiment.sets:
        questions = experiment.sets[dataset]
        try:
            expansions = experiment.expansions(arm, dataset)
        except RecordingMiss:
            continue
        pairs = zip(questions, expansions, strict=True)
        found += [(dataset, question, made) for question, made in pairs if made.request]
    return found


def collapses(shared: float, kept: float) -> bool:
    """Co-occurrence collapse: more than half of H+'s top k is H-'s too, and less than half is left.

    With T+, T- and T(lambda) the top k by h+, by h- and by h+ - lambda h-: shared = |T+ and T-| / k
    > 1/2 means that both hypotheses retrieve the same passages, and kept = |T+ and T(lambda)| / k
    < 1/2 that contrast loses them. No relevance judgment and no answer is used.
    """
    return shared > 0.5 and kept < 0.5


def items(experiment: Experiment, targets: Mapping[str, frozenset[str]]) -> pd.DataFrame:
    """One row a question whose hypotheses could be read, by set and id.

    dataset, qid, exam (not a yes/no question), plus_option and minus_option (the letter of the only
    option that H+ or H- names, else ""), plus_right and minus_right (is it the key? missing without
    one), c = cos(h+, h-), copied (H- out of H+, three words at a time), shared (see ``collapses``).
    Then at H+ only (hplus), the reader's lambda (chosen) and lambda = 1 (one): p (P@k; missing
    where ``targets`` knows nothing), near (mean cosine of the top k and the question; also of
    Standard RAG's), kept and collapsed. No row where no hypotheses could be read.
    """
    rows = []
    for dataset, question, expansion in expanded(experiment, "chr"):
        option_texts = {option.lower() for option in question.options.values()}
        row = {"dataset": dataset, "qid": question.qid, "exam": not option_texts <= YES_NO}
        for side in ("plus", "minus"):
            letter = named_option(expansion.trace[f"H_{side}"], question.options)
            row[f"{side}_option"] = letter
            row[f"{side}_right"] = letter == question.answer if letter else None
        relevant = targets.get(question.qid)
        rows.append(row | _measured(experiment, question, expansion.request, relevant))
    if not rows:
        return pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in _EMPTY.items()})
    return pd.DataFrame(rows)


def _measured(
    experiment: Experiment, question: Question, pair: Hypotheses, relevant: frozenset | None
) -> dict[str, float]:
    """The proxies of one question that come from its texts, vectors and searches."""
    retriever, k = experiment.retriever, experiment.k
    (plus,), (minus,) = pair.of("target"), pair.of("mimic")
    asked = question_alone(question)
    lambdas = dict(zip(_AT, (0.0, experiment.lam, 1.0), strict=True))

    searches = {name: pair.by(lam=lam) for name, lam in lambdas.items()}
    searches["minus"] = Hypotheses((replace(minus, role="target"),))
    searches["standard"] = asked
    results = retriever.search_many([*searches.values()], k)
    top = {}
    for name, hits in zip(searches, results, strict=True):
        # A text in place of hits says why nothing could be ranked.
        top[name] = [] if isinstance(hits, str) else hits.ids[0].tolist()
    of_hplus = {name: len(set(top["hplus"]) & set(found)) / k for name, found in top.items()}

    texts = (plus, minus, asked.texts[0])
    known = retriever.vectors(texts)
    h_plus, h_minus, q = (known[text.tower, text.text][None] for text in texts)
    row = {
        "c": float(cosine(h_plus, h_minus)[0]),
        "copied": shared_ngrams(minus.text, [plus.text], _COPIED_WORDS),
        "shared": of_hplus["minus"],
    }
    for name in ("standard", *lambdas):
        near = retriever.index.score(q, top[name]).mean() if top[name] else np.nan
        row[f"near_{name}"] = float(near)
    for name in lambdas:
        hits = sum(pid in relevant for pid in top[name]) if relevant else np.nan
        row[f"p_{name}"] = hits / k
        row[f"kept_{name}"] = of_hplus[name]
        row[f"collapsed_{name}"] = collapses(row["shared"], of_hplus[name])
    return row


# a model in the physician's place -----------------------------------------------------------------

GRADE = {
    "type": "object",
    "properties": {"why": {"type": "string"}, "grade": {"enum": list(TIERS)}},
    "required": ["why", "grade"],
    "additionalProperties": False,
}
"""JSON schema of the judge's reply: the reason first, so that the grade follows from it."""


def grade_mimic(
    question: Question, h_plus: str, h_minus: str, llm: ChatModel, max_tokens: int = 200
) -> JsonReply:
    """The judge's reply on one mimic; the judge sees the key, as the paper's physician did."""
    options = "\n".join(f"{x}. {o}" for x, o in sorted(question.options.items()))
    messages = load_prompt("mimic_judge").messages(
        question=question.text,
        options=options,
        answer=f"{question.answer}. {question.options[question.answer]}",
        h_plus=h_plus,
        h_minus=h_minus,
    )
    return ask_json(llm, messages, GRADE, max_tokens=max_tokens)


def judged(experiment: Experiment, llm: ChatModel) -> pd.DataFrame:
    """The judge's grade of every question's H-: qid, grade, why, error, how.

    ``grade`` is empty where there is none: a reply that stays broken (``error``), or a generation
    that nobody recorded (``how`` records it).
    """

    def one(item: tuple) -> dict:
        _, question, expansion = item
        row = {"qid": question.qid, "grade": "", "why": "", "error": "", "how": ""}
        pair = expansion.trace["H_plus"], expansion.trace["H_minus"]
        try:
            with llm.tag(method="judge of mimics", qid=question.qid):
                reply = grade_mimic(question, *pair, llm)
        except RecordingMiss as miss:
            return row | {"how": str(miss).rsplit("Next: ", 1)[-1]}
        return row | {"error": reply.error} | (reply.value or {})

    rows = in_parallel(one, expanded(experiment, "chr"))
    return pd.DataFrame(rows, columns=["qid", "grade", "why", "error", "how"])


# the paper's worked cases -------------------------------------------------------------------------

CASES = "mimic_cases.jsonl"
REBUILT, OWN, HYDE, PAPER = "as in the paper", "the set's own", "HyDE", "the paper's excerpts"
"""Sources of a case's rows: hypotheses with the paper's flaws, ddx-mini's own, HyDE, the paper."""


def read_cases() -> list[dict]:
    """The cases: case, paper, qid, author, flaw, H_plus, H_minus, printed, printed_right."""
    return list(read_jsonl(DATA / CASES))


def bundled(lam: float, k: int) -> Experiment:
    """The experiment that the cases are run in, whatever the profile: ddx-mini, all of it."""
    return open_experiment(load_profile("mini", k=k), lam=lam)


def _searches(experiment: Experiment, lambdas: Sequence[float]) -> Iterator[tuple]:
    """(case, pair, question, lambda, request) of every search; lambda is missing for HyDE."""
    by_chr, by_hyde = (
        {q.qid: (q, made) for _, q, made in expanded(experiment, arm)} for arm in ("chr", "hyde")
    )
    for case in read_cases():
        question, own = by_chr[case["qid"]]
        yield case["case"], HYDE, question, np.nan, by_hyde[question.qid][1].request
        for pair, texts in ((REBUILT, case), (OWN, own.trace)):
            written = written_pair(question.text, texts["H_plus"], texts["H_minus"], SearchSpec())
            for lam in lambdas:
                yield case["case"], pair, question, lam, written.by(lam=lam)


def case_ranks(experiment: Experiment, lambdas: Sequence[float]) -> pd.DataFrame:
    """Every passage that is in a top k of its case and pair, with its rank at all ``lambdas``.

    case, pair, qid, lambda, rank, pid, class, passage (its title), right (what the evidence reader
    takes from the top k; missing for yes/no questions, which it cannot answer).
    """
    benchmark, retriever, rows = build(), experiment.retriever, []
    reader = next(reader for reader in experiment.readers if not reader.needs_llm)
    searches = list(_searches(experiment, lambdas))
    found = retriever.search_many([search[-1] for search in searches], len(retriever.index))
    for (case, pair, q, lam, _), hits in zip(searches, found, strict=True):
        ids = [] if isinstance(hits, str) else hits.ids[0].tolist()
        passages = retriever.store.get_many(ids)
        (answer,) = reader.answer_all([q], [passages[: experiment.k]])
        right = answer.letter == q.answer if len(q.options) > 2 else None
        for rank, p in enumerate(passages, 1):
            kind = class_of(p.pid, benchmark.targets[q.qid], benchmark.mimics[q.qid])
            rows.append((case, pair, q.qid, lam, rank, p.pid, kind, p.title, right))
    names = ["case", "pair", "qid", "lambda", "rank", "pid", "class", "passage", "right"]
    return crossing(pd.DataFrame(rows, columns=names), experiment.k)


def crossing(ranks: pd.DataFrame, k: int, lambdas: Sequence[float] = ()) -> pd.DataFrame:
    """The rows (at ``lambdas``, or all) of the passages that are in the top k in one of them."""
    if lambdas:
        ranks = ranks[ranks["lambda"].isin(lambdas)]
    best = ranks.groupby(["case", "pair", "pid"])["rank"].transform("min")
    return ranks[best <= k].reset_index(drop=True)


def printed() -> pd.DataFrame:
    """What the paper prints: case, source, pair, method, lambda, rank, class, right."""
    rows = [
        {
            "case": case["case"],
            "source": "the paper",
            "pair": PAPER,
            "method": method,
            "rank": rank,
            "lambda": {"hplus": 0.0, "chr": 1.0}.get(method),
            "class": "target" if hit else "",
            "right": case["printed_right"][method],
        }
        for case in read_cases()
        for method, hits in case["printed"].items()
        for rank, hit in enumerate(hits, 1)
    ]
    return pd.DataFrame(rows)
