"""HyDE as a lesson teaches it, on the 618 questions of BioASQ, with recorded passages.

The lesson embeds one passage and leaves the question out; it merges both searches by reciprocal
rank (k = 60, lists of twice the depth) where the passage may be wrong. A wrong passage is another
question's: one that shares no expert's passage with this question. With a share s of wrong passages
a question's outcome is what is to be expected of it, (1 - s) right + s wrong, the wrong one a mean
over ``DRAWS`` other questions: nothing is left to which questions happened to be drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from lib.base.files import sha256_bytes
from lib.datasets import Question
from lib.methods.base import Fusion, Request, question_alone
from lib.run import Retriever, Unranked
from lib.stats import Pair, claims, long_values, measure
from lib.ways import Hypotheses, Text

DEPTH = 5
"""Passages that are looked at; the merged lists are twice as deep."""

DRAWS = 20
"""Other questions whose passages stand in for a wrong one."""

SHARES = (0.0, 0.1, 0.2, 0.4)
"""How many of a hundred questions get a wrong passage: 0, 10, 20, 40."""

METRICS = ("p_at_5", "hit_at_5")

ARMS = ("question", "passage", "hyde", "fusion")
"""The question alone; one passage alone, as the lesson has it; the mean of the question and all
passages, as Gao et al. have it; and the first two merged."""

KINDS = ("lookup", "reasoning")
"""What a question asks for; see data/judgments/question_kinds_rule.md."""

NEAR = "cosine with the experts' passages"

_WRONG = " (wrong)"


def requests_of(question: Question, passages: Sequence[str]) -> dict[str, Request]:
    """What each arm searches with for a question, given passages that answer it."""
    asked = question_alone(question)
    written = tuple(Text(passage, role="passage") for passage in passages)
    one = Hypotheses(written[:1])
    return {
        "question": asked,
        "passage": one,
        "hyde": Hypotheses((*asked.texts, *written)),
        "fusion": Fusion((asked, one), depth=2 * DEPTH),
    }


def strangers_of(
    qids: Sequence[str], targets: Mapping[str, frozenset[str]], draws: int = DRAWS
) -> dict[str, list[str]]:
    """Other questions of each question, ``draws`` of them, in the order of a hash of both ids.

    A question that shares an expert's passage is no stranger. ValueError where there are too few.
    """
    found = {}
    for qid in qids:
        others = [other for other in qids if not targets[other] & targets[qid]]
        others.sort(key=lambda other, qid=qid: sha256_bytes(f"lesson {qid} {other}".encode()))
        if len(others) < draws:
            raise ValueError(f"{qid} has {len(others)} other questions, fewer than {draws}")
        found[qid] = others[:draws]
    return found


def lesson_values(
    questions: Sequence[Question],
    passages: Mapping[str, Sequence[str]],
    targets: Mapping[str, frozenset[str]],
    retriever: Retriever,
) -> pd.DataFrame:
    """``arm, qid, metric, value`` of every arm with its own passages and with wrong ones.

    Arms with wrong ones are named ``<arm> (wrong)``. ``passages`` are the recorded ones by question
    id, ``targets`` those that experts gave.
    """
    own = {q.qid: requests_of(q, passages[q.qid]) for q in questions}
    strangers = strangers_of([q.qid for q in questions], targets)
    parts = []
    for arm in ARMS:
        requests = {qid: by_arm[arm] for qid, by_arm in own.items()}
        parts.append(long_values(arm, _measured(requests, targets, retriever)))
        if arm == "question":
            continue
        tables = []
        for draw in range(DRAWS):
            wrong = {
                q.qid: requests_of(q, passages[strangers[q.qid][draw]])[arm] for q in questions
            }
            tables.append(_measured(wrong, targets, retriever))
        parts.append(long_values(arm + _WRONG, sum(tables) / DRAWS))
    return pd.concat(parts, ignore_index=True)


def _measured(
    requests: Mapping[str, Request], targets: Mapping[str, frozenset[str]], retriever: Retriever
) -> pd.DataFrame:
    """``METRICS`` by question; a question that cannot be ranked finds nothing."""
    hits = retriever.search_many(list(requests.values()), DEPTH)
    found = {
        qid: [] if isinstance(hit, Unranked) else hit.ids[0].tolist()
        for qid, hit in zip(requests, hits, strict=True)
    }
    return measure(found, {qid: targets[qid] for qid in requests}, {}, DEPTH)[list(METRICS)]


def under(values: pd.DataFrame, share: float) -> pd.DataFrame:
    """The outcomes of every arm where a ``share`` of the questions has a wrong passage."""
    wide = values.pivot(index=["qid", "metric"], columns="arm", values="value")
    mixed = {}
    for arm in ARMS:
        wrong = wide[arm] if arm == "question" else wide[arm + _WRONG]
        mixed[arm] = (1 - share) * wide[arm] + share * wrong
    table = pd.DataFrame(mixed).rename_axis(columns="arm")
    return table.stack().rename("value").reset_index()


def closeness(
    questions: Sequence[Question],
    passages: Mapping[str, Sequence[str]],
    targets: Mapping[str, frozenset[str]],
    retriever: Retriever,
) -> pd.DataFrame:
    """How near a question, and its passage, are to what experts gave and to other passages.

    Columns ``qid, searched_with`` (question, passage), ``expert`` (mean cosine with the experts'
    passages), ``other`` (with as many that they gave for the question's first stranger).
    """
    strangers = strangers_of([q.qid for q in questions], targets, 1)
    texts = {}
    for question in questions:
        (asked,) = question_alone(question).texts
        texts[question.qid] = {"question": asked, "passage": Text(passages[question.qid][0])}
    known = retriever.vectors(text for both in texts.values() for text in both.values())
    rows = []
    for qid, both in texts.items():
        for name, text in both.items():
            vector = known[text.tower, text.text][None]
            near, far = (
                float(retriever.index.score(vector, sorted(targets[of])).mean())
                for of in (qid, strangers[qid][0])
            )
            rows.append((qid, name, near, far))
    return pd.DataFrame(rows, columns=["qid", "searched_with", "expert", "other"])


def mixed_name(arm: str, share: float) -> str:
    """The name of an arm under a share of wrong passages: "passage, 40 % wrong"."""
    return f"{arm}, {100 * share:.0f} % wrong"


def arms_under(values: pd.DataFrame) -> pd.DataFrame:
    """``values`` with what is expected of every arm under each share of wrong passages, as arms of
    their own: "passage, 40 % wrong". A share of 0 is the arm itself."""
    parts = [values]
    for share in SHARES[1:]:
        table = under(values, share)
        parts.append(table.assign(arm=[mixed_name(arm, share) for arm in table["arm"]]))
    return pd.concat(parts, ignore_index=True)


def lesson_claims(
    values: pd.DataFrame, near: pd.DataFrame, kinds: Mapping[str, str]
) -> pd.DataFrame:
    """The lesson's claims, each as paired differences with intervals; no verdict, because these
    questions have been looked at.

    ``near`` as ``closeness`` makes it; ``kinds`` says of a question "lookup" or "reasoning", and
    leaves out those on which the readers differed. Columns as ``lib.stats.claims`` has them, and
    ``kind``: which questions were compared ("all" for all).
    """
    gap = near.rename(columns={"searched_with": "arm", "expert": "value"}).assign(metric=NEAR)
    everything = pd.concat([arms_under(values), gap[["arm", "qid", "metric", "value"]]])
    p = METRICS[0]
    pairs = [
        Pair("a passage is nearer to the documents than the question", NEAR, "passage", "question"),
        Pair("a passage finds more than the question", p, "passage", "question"),
        Pair("the mean of both finds more than the question", p, "hyde", "question"),
        Pair("a wrong passage finds less than the question", p, "passage (wrong)", "question"),
        Pair("merging is better than the question", p, "fusion", "question"),
        Pair("merging is better than the passage", p, "fusion", "passage"),
    ]
    for share in SHARES[1:]:
        passage, fusion = (mixed_name(arm, share) for arm in ("passage", "fusion"))
        told = f"with {100 * share:.0f} % wrong passages,"
        pairs += [
            Pair(f"{told} a passage is still better than the question", p, passage, "question"),
            Pair(f"{told} merging is still better than the question", p, fusion, "question"),
            Pair(f"{told} merging is better than the passage", p, fusion, passage),
        ]
    tables = [claims(everything, pairs).assign(kind="all")]
    for kind in KINDS:
        own = everything[everything["qid"].map(kinds) == kind]
        of_kind = [pairs[0], pairs[1]]
        tables.append(claims(own, of_kind).assign(kind=kind))
    return pd.concat(tables, ignore_index=True)


def gain_by_kind(values: pd.DataFrame, kinds: Mapping[str, str], seed: int = 0) -> dict:
    """Is what a passage gains over the question larger on reasoning than on lookups?

    The difference of the two mean gains in P@5 with a 95 % bootstrap interval over the questions of
    each kind: ``difference, low, high, n_lookup, n_reasoning``.
    """
    p = values[values["metric"] == METRICS[0]]
    wide = p.pivot(index="qid", columns="arm", values="value")
    gains = wide["passage"] - wide["question"]
    generator = np.random.default_rng(seed)
    drawn = {}
    for kind in KINDS:
        own = gains[gains.index.map(kinds) == kind].to_numpy()
        counts = generator.multinomial(len(own), np.full(len(own), 1 / len(own)), size=2000)
        drawn[kind] = own.mean(), counts @ own / len(own), len(own)
    low, high = np.percentile(drawn["reasoning"][1] - drawn["lookup"][1], [2.5, 97.5])
    return {
        "difference": drawn["reasoning"][0] - drawn["lookup"][0],
        "low": float(low),
        "high": float(high),
        "n_lookup": drawn["lookup"][2],
        "n_reasoning": drawn["reasoning"][2],
    }
