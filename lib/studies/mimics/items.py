"""How good is the mimic? What is measured: proxies that need no grader, a judge, worked cases.

``items`` says of every question's pair what its texts, vectors and searches say, ``judged`` asks a
model for the paper's tiers, and ``case_ranks`` ranks ddx-mini's passages for the paper's five
worked cases. ``data/mimic_cases.jsonl`` holds for each the ddx-mini question about the same pair,
hypotheses in our own words with what flaws the paper's have, and what the paper prints: of each
retrieved excerpt whether it names the target (as we read it), and whether the answer was right.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
from lib.query_spec import Hypotheses, Request, SearchSpec
from lib.run import RetrievalFailure
from lib.search.contrast import cosine
from lib.search.merge import Hits
from lib.stats import class_of
from lib.studies.main_tables.experiment import Experiment, open_experiment

TIERS = ("Excellent", "Good", "Poor")
"""The paper's, best first. Anything else, such as "", is a question without a grade."""

_AT = ("hplus", "chosen", "one")
"""H+ only, the reader's lambda and lambda = 1: how columns of ``items`` end."""

_COLUMNS = (
    *("dataset", "qid", "exam", "plus_option", "plus_right", "minus_option", "minus_right"),
    *("c", "copied", "shared", "near_standard", *(f"near_{at}" for at in _AT)),
    *(f"{what}_{at}" for at in _AT for what in ("p", "kept", "collapsed")),
)

_COPIED_WORDS = 3
"""Words in a row that count as copied from one hypothesis into the other."""


def expanded(experiment: Experiment, arm: str) -> list[tuple[str, Question, Expansion]]:
    """(set, question, expansion) of every question of an arm whose expansion did not fail.

    A set that nobody recorded, and so is NOT RUN, has none.
    """
    found = []
    for dataset in experiment.sets:
        try:
            expansions = experiment.expansions(arm, dataset)
        except RecordingMiss:
            continue
        for question, made in zip(experiment.sets[dataset], expansions, strict=True):
            if made.request:
                found.append((dataset, question, made))
    return found


def _ids(hits: Hits | RetrievalFailure) -> list[str]:
    """The passages that a search found, best first; none where the query could not be ranked."""
    return [] if isinstance(hits, RetrievalFailure) else hits.ids[0].tolist()


def collapses(shared: float, kept: float) -> bool:
    """Co-occurrence collapse: more than half of H+'s top k is H-'s too, and less than half is left.

    With T+, T- and T(lambda) the top k by h+, by h- and by h+ - lambda h-: shared = |T+ and T-| / k
    > 1/2 means that both hypotheses retrieve the same passages, and kept = |T+ and T(lambda)| / k
    < 1/2 that contrast loses them. No relevance judgment and no answer is used.
    """
    return shared > 0.5 and kept < 0.5


def items(experiment: Experiment, targets: Mapping[str, Collection[str]]) -> pd.DataFrame:
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
        options = {option.lower() for option in question.options.values()}
        row = {"dataset": dataset, "qid": question.qid, "exam": not options <= YES_NO}
        for side in ("plus", "minus"):
            letter = named_option(expansion.trace[f"H_{side}"], question.options)
            row[f"{side}_option"] = letter
            row[f"{side}_right"] = question.is_right(letter) if letter else None
        relevant = targets.get(question.qid)
        rows.append(row | _measured(experiment, question, expansion.request, relevant))
    table = pd.DataFrame(rows, columns=list(_COLUMNS))
    if rows:
        return table
    yes_or_no = ["exam", *(f"collapsed_{at}" for at in _AT)]
    return table.astype(float).astype(dict.fromkeys(yes_or_no, bool))


def _measured(
    experiment: Experiment, question: Question, pair: Hypotheses, relevant: Collection[str] | None
) -> dict[str, float]:
    """The proxies of one question that come from its texts, vectors and searches."""
    retriever, k = experiment.retriever, experiment.k
    (plus,), (minus,) = pair.of("target"), pair.of("mimic")
    asked = question_alone(question)
    searches: dict[str, Hypotheses] = {
        "standard": asked,
        "minus": Hypotheses((replace(minus, role="target"),)),
        "hplus": pair.by(lam=0.0),
        "chosen": pair.by(lam=experiment.lam),
        "one": pair.by(lam=1.0),
    }
    results = retriever.search_many(list(searches.values()), k)
    top = {name: _ids(hits) for name, hits in zip(searches, results, strict=True)}

    def shared_with_hplus(name: str) -> float:
        return len(set(top["hplus"]) & set(top[name])) / k

    texts = (plus, minus, asked.texts[0])
    vectors = retriever.vectors(texts)
    h_plus, h_minus, q = (vectors[text.tower, text.text][None] for text in texts)
    row = {
        "c": float(cosine(h_plus, h_minus)[0]),
        "copied": shared_ngrams(minus.text, [plus.text], _COPIED_WORDS),
        "shared": shared_with_hplus("minus"),
    }
    for name in ("standard", *_AT):
        scores = retriever.index.score(q, top[name]) if top[name] else np.array([np.nan])
        row[f"near_{name}"] = float(scores.mean())
    for at in _AT:
        row[f"p_{at}"] = len({*relevant} & {*top[at]}) / k if relevant else np.nan
        row[f"kept_{at}"] = shared_with_hplus(at)
        row[f"collapsed_{at}"] = collapses(row["shared"], row[f"kept_{at}"])
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


def _case_searches(
    experiment: Experiment, lambdas: Sequence[float]
) -> list[tuple[dict, Question, Request]]:
    """Every search of the cases: its case, pair, qid and lambda; the question; the request."""
    by_chr = {question.qid: (question, made) for _, question, made in expanded(experiment, "chr")}
    by_hyde = {question.qid: made for _, question, made in expanded(experiment, "hyde")}
    searches = []
    for case in read_cases():
        question, own = by_chr[case["qid"]]
        row = {"case": case["case"], "pair": HYDE, "qid": question.qid, "lambda": np.nan}
        searches.append((row, question, by_hyde[question.qid].request))
        for pair, texts in ((REBUILT, case), (OWN, own.trace)):
            written = written_pair(question.text, texts["H_plus"], texts["H_minus"], SearchSpec())
            for lam in lambdas:
                row = row | {"pair": pair, "lambda": lam}
                searches.append((row, question, written.by(lam=lam)))
    return searches


def case_ranks(experiment: Experiment, lambdas: Sequence[float]) -> pd.DataFrame:
    """Every passage that is in a top k of its case and pair, with its rank at all ``lambdas``.

    case, pair, qid, lambda (missing for HyDE), rank, pid, class, passage (its title), right (what
    the evidence reader takes from the top k; missing for yes/no questions, which it cannot answer).
    """
    retriever, benchmark = experiment.retriever, build()
    reader = next(reader for reader in experiment.readers if not reader.needs_llm)
    searches = _case_searches(experiment, lambdas)
    requests = [request for _, _, request in searches]
    results = retriever.search_many(requests, len(retriever.index))
    rows = []
    for (row, question, _), hits in zip(searches, results, strict=True):
        passages = retriever.store.get_many(_ids(hits))
        (answer,) = reader.answer_all([question], [passages[: experiment.k]])
        right = question.is_right(answer.letter) if len(question.options) > 2 else None
        targets, mimics = benchmark.targets[question.qid], benchmark.mimics[question.qid]
        for rank, passage in enumerate(passages, 1):
            kind = class_of(passage.pid, targets, mimics)
            found = {"rank": rank, "pid": passage.pid, "class": kind, "passage": passage.title}
            rows.append(row | found | {"right": right})
    return crossing(pd.DataFrame(rows), experiment.k)


def crossing(ranks: pd.DataFrame, k: int, lambdas: Sequence[float] = ()) -> pd.DataFrame:
    """The rows (at ``lambdas``, or all) of the passages that are in the top k in one of them."""
    if lambdas:
        ranks = ranks[ranks["lambda"].isin(lambdas)]
    best = ranks.groupby(["case", "pair", "pid"])["rank"].transform("min")
    return ranks[best <= k].reset_index(drop=True)


def printed() -> pd.DataFrame:
    """What the paper prints: case, source, pair, method, lambda, rank, class, right."""
    lambdas = {"hplus": 0.0, "chr": 1.0}
    rows = []
    for case in read_cases():
        for method, hits in case["printed"].items():
            row = {"case": case["case"], "source": "the paper", "pair": PAPER, "method": method}
            row |= {"lambda": lambdas.get(method), "right": case["printed_right"][method]}
            for rank, hit in enumerate(hits, 1):
                rows.append(row | {"rank": rank, "class": "target" if hit else ""})
    return pd.DataFrame(rows)
