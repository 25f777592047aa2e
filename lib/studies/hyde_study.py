"""HyDE as a lesson teaches it, on the 618 questions of BioASQ, with recorded passages.

The lesson embeds one generated passage as the query and leaves the question out. Where the passage
may be wrong, it fuses both searches by reciprocal rank (k = 60, lists of twice the depth). A wrong
passage was written for another question, one that shares no gold passage with this question. With a
share s of wrong passages a question's outcome is its expected value, (1 - s) right + s wrong, where
wrong is a mean over ``DRAWS`` other questions. So no random choice of questions enters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lib.base.downloads import load_registry
from lib.base.files import sha256_bytes
from lib.base.paths import DATA
from lib.data.looks import Look
from lib.datasets import Question, load_real
from lib.embed import load_encoder
from lib.index_build import files_of
from lib.methods.base import question_alone
from lib.open_retriever import open_retriever
from lib.profiles import Profile
from lib.query_spec import Fusion, Hypotheses, Request, Text
from lib.run import Retriever
from lib.stats import Pair, claims, measure
from lib.studies.real.arms import gold_passages
from lib.studies.real.expansions import written_for
from lib.studies.real.study import recorded
from lib.study import Arm, Found, Study, means_table, search_and_measure

DEPTH = 5
"""Passages that are looked at; the merged lists are twice as deep."""

DRAWS = 20
"""Other questions whose passages stand in for a wrong one."""

SHARES = (0.1, 0.2, 0.4)
"""How many of a hundred questions get a wrong passage: 10, 20, 40."""

METRICS = ("p_at_5", "hit_at_5")

ARMS = ("question", "passage", "hyde", "fusion")
"""The question alone; one passage alone, as the lesson has it; the mean of the question and all
passages, as Gao et al. have it; and the first two merged."""

KINDS = ("lookup", "reasoning")
"""What a question asks for; see data/judgments/question_kinds_rule.md."""

KINDS_FILE = "judgments/question_kinds.csv"
NEAR = "cosine with the experts' passages"


@dataclass(frozen=True)
class Lesson:
    """The questions, the ``passages`` written for each and those that experts gave (``gold``)."""

    questions: Sequence[Question]
    passages: Mapping[str, Sequence[str]]
    gold: Mapping[str, frozenset[str]]
    retriever: Retriever
    kinds: Mapping[str, str]
    setup: str = ""
    data: Sequence[str] = ()

    @property
    def qids(self) -> list[str]:
        """The questions' ids, in order."""
        return [question.qid for question in self.questions]


def load(profile: Profile) -> Lesson:
    """The lesson's collection: BioASQ's test questions with the passages recorded for HyDE."""
    encoder = load_encoder(profile.encoder, **profile.encoder_options)
    retriever = open_retriever(profile, encoder)
    questions = [q for q in load_real("test") if q.dataset == "bioasq"]
    written = written_for(questions, recorded(), retriever)["hyde"]
    passages = {
        q.qid: [t.text for t in written[q.qid].request.texts if t.role == "passage"]
        for q in questions
    }
    recordings = "recordings/real-hyde.jsonl.gz"
    return Lesson(
        questions,
        passages,
        gold_passages(retriever.store),
        retriever,
        read_kinds(),
        f"{profile.name}, {encoder.name}, recorded passages, k = {DEPTH}",
        [*files_of(profile.corpora), *load_registry("bioasq-"), recordings, KINDS_FILE],
    )


def read_kinds() -> dict[str, str]:
    """ "lookup" or "reasoning" by question id, where both readers say the same."""
    table = pd.read_csv(DATA / KINDS_FILE, dtype=str).set_index("qid")
    return table.loc[table["first"] == table["second"], "first"].to_dict()


# what is searched with ----------------------------------------------------------------------------


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
    qids: Sequence[str], gold: Mapping[str, frozenset[str]], draws: int = DRAWS
) -> dict[str, list[str]]:
    """For each question ``draws`` other questions, in the order of a hash of both ids.

    Questions that share a gold passage with it are left out. ValueError where too few are left.
    """
    strangers = {}
    for qid in qids:
        others = [other for other in qids if not gold[other] & gold[qid]]
        others.sort(key=lambda other, qid=qid: sha256_bytes(f"lesson {qid} {other}".encode()))
        if len(others) < draws:
            raise ValueError(f"{qid} has {len(others)} other questions, fewer than {draws}")
        strangers[qid] = others[:draws]
    return strangers


def arms(lesson: Lesson) -> list[Arm]:
    """Every arm with its own passages and, as "<arm> (wrong)", with other questions'."""
    asked = {question.qid: question for question in lesson.questions}
    strangers = strangers_of(lesson.qids, lesson.gold)
    made = []
    for name in ARMS:

        def right(qid: str, draw: int, name: str = name) -> Request:
            return requests_of(asked[qid], lesson.passages[qid])[name]

        def wrong(qid: str, draw: int, name: str = name) -> Request:
            return requests_of(asked[qid], lesson.passages[strangers[qid][draw]])[name]

        made.append(Arm(name, right))
        if name != "question":
            made.append(Arm(f"{name} (wrong)", wrong, DRAWS))
    return made


def outcomes(lesson: Lesson, found: Found) -> pd.DataFrame:
    """``METRICS`` by question; a query that cannot be ranked retrieves nothing."""
    gold = {qid: lesson.gold[qid] for qid in lesson.qids}
    return measure(found, gold, {}, DEPTH)[list(METRICS)]


# what follows -------------------------------------------------------------------------------------


def mixed_name(arm: str, share: float) -> str:
    """The name of an arm under a share of wrong passages: "passage, 40 % wrong"."""
    return f"{arm}, {100 * share:.0f} % wrong"


def with_mixed(values: pd.DataFrame) -> pd.DataFrame:
    """``values`` and, as further arms, the expected values of every arm under each share of wrong
    passages: "passage, 40 % wrong"."""
    wide = values.pivot(index=["qid", "metric"], columns="arm", values="value")
    parts = [values]
    for share in SHARES:
        mixed = {}
        for arm in ARMS:
            wrong = wide.get(f"{arm} (wrong)", wide[arm])
            mixed[mixed_name(arm, share)] = (1 - share) * wide[arm] + share * wrong
        table = pd.DataFrame(mixed).rename_axis(columns="arm")
        parts.append(table.stack().rename("value").reset_index())
    return pd.concat(parts, ignore_index=True)


def lesson_table(lesson: Lesson, values: pd.DataFrame) -> pd.DataFrame:
    """The mean of every arm, right, wrong and mixed, of all questions and of each kind.

    One value a row, in the columns of Table 1 (``main_tables.long_tables.COLUMNS``): the
    dataset is "bioasq", or "bioasq, lookup" and "bioasq, reasoning".
    """
    everything = with_mixed(values)
    parts = [everything.assign(dataset="bioasq")]
    for kind in KINDS:
        of_kind = everything[everything["qid"].map(lesson.kinds) == kind]
        parts.append(of_kind.assign(dataset=f"bioasq, {kind}"))
    return means_table(pd.concat(parts), lesson.setup)


def closeness(lesson: Lesson) -> pd.DataFrame:
    """How near a question, and its generated passage, are to its gold passages and to others.

    Columns ``qid, searched_with`` (question, passage), ``expert`` (mean cosine with the question's
    gold passages), ``other`` (the same with the gold passages of the first of ``strangers_of``).
    """
    strangers = strangers_of(lesson.qids, lesson.gold, 1)
    texts = {}
    for question in lesson.questions:
        (asked,) = question_alone(question).texts
        passage = Text(lesson.passages[question.qid][0])
        texts[question.qid] = {"question": asked, "passage": passage}
    known = lesson.retriever.vectors(text for both in texts.values() for text in both.values())
    rows = []
    for qid, both in texts.items():
        for name, text in both.items():
            vector = known[text.tower, text.text][None]
            near, far = (
                float(lesson.retriever.index.score(vector, sorted(lesson.gold[of])).mean())
                for of in (qid, strangers[qid][0])
            )
            rows.append((qid, name, near, far))
    return pd.DataFrame(rows, columns=["qid", "searched_with", "expert", "other"])


def _pairs() -> list[Pair]:
    p = METRICS[0]
    pairs = [
        Pair("a passage is nearer to the documents than the question", NEAR, "passage", "question"),
        Pair("a passage finds more than the question", p, "passage", "question"),
        Pair("the mean of both finds more than the question", p, "hyde", "question"),
        Pair("a wrong passage finds less than the question", p, "passage (wrong)", "question"),
        Pair("merging is better than the question", p, "fusion", "question"),
        Pair("merging is better than the passage", p, "fusion", "passage"),
    ]
    for share in SHARES:
        passage, fusion = (mixed_name(arm, share) for arm in ("passage", "fusion"))
        under = f"with {100 * share:.0f} % wrong passages,"
        pairs += [
            Pair(f"{under} a passage is still better than the question", p, passage, "question"),
            Pair(f"{under} merging is still better than the question", p, fusion, "question"),
            Pair(f"{under} merging is better than the passage", p, fusion, passage),
        ]
    return pairs


def lesson_claims(lesson: Lesson, values: pd.DataFrame) -> pd.DataFrame:
    """The lesson's claims, each as a paired difference with its interval; no verdict, because these
    questions have been looked at.

    Columns as ``lib.stats.claims`` has them, and ``kind``: which questions were compared ("all" for
    all). The last row is ``gain_by_kind``.
    """
    near = closeness(lesson).rename(columns={"searched_with": "arm", "expert": "value"})
    near = near.assign(metric=NEAR)[["arm", "qid", "metric", "value"]]
    everything = pd.concat([with_mixed(values), near])
    pairs = _pairs()
    tables = [claims(everything, pairs).assign(kind="all")]
    for kind in KINDS:
        of_kind = everything[everything["qid"].map(lesson.kinds) == kind]
        tables.append(claims(of_kind, pairs[:2]).assign(kind=kind))
    table = pd.concat(tables, ignore_index=True)
    table = table.drop(columns=["p", "p_holm", "verdict", "status", "mde"])
    more = pd.DataFrame([gain_by_kind(values, lesson.kinds)])
    return pd.concat([table, more], ignore_index=True)


def gain_by_kind(values: pd.DataFrame, kinds: Mapping[str, str]) -> dict:
    """Is what a passage gains over the question larger on reasoning than on lookups?

    The difference of the two mean gains in P@5 with a 95 % bootstrap interval over the questions of
    each kind, as a row of ``lesson_claims``.
    """
    p = values[values["metric"] == METRICS[0]]
    wide = p.pivot(index="qid", columns="arm", values="value")
    gains = wide["passage"] - wide["question"]
    generator = np.random.default_rng(0)
    of = {kind: gains[gains.index.map(kinds) == kind].to_numpy() for kind in KINDS}
    drawn = {}
    for kind, own in of.items():
        counts = generator.multinomial(len(own), np.full(len(own), 1 / len(own)), size=2000)
        drawn[kind] = counts @ own / len(own)
    low, high = np.percentile(drawn["reasoning"] - drawn["lookup"], [2.5, 97.5])
    return {
        "claim": "a passage gains more on reasoning than on lookups",
        "metric": METRICS[0],
        "arm": "passage",
        "baseline": "question",
        "difference": of["reasoning"].mean() - of["lookup"].mean(),
        "low": float(low),
        "high": float(high),
        "n": sum(map(len, of.values())),
        "kind": "reasoning minus lookup",
    }


def follow(lesson: Lesson, values: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The lesson's tables by name."""
    return {
        "hyde_lesson": lesson_table(lesson, values),
        "hyde_lesson_claims": lesson_claims(lesson, values),
        "hyde_lesson_gap": closeness(lesson).melt(
            ["qid", "searched_with"], var_name="to", value_name="cosine"
        ),
    }


def looks(lesson: Lesson, made: Mapping[str, pd.DataFrame]) -> list[Look]:
    """The labels of every arm's passages."""
    values = made["hyde_lesson_values"]
    return [Look("bioasq", values["qid"], values["arm"])]


STUDY = Study(
    name="hyde lesson",
    code="lib.studies.hyde_study",
    load=load,
    values={"hyde_lesson_values": search_and_measure(arms, outcomes, DEPTH)},
    tables=("hyde_lesson", "hyde_lesson_claims", "hyde_lesson_gap"),
    follow=follow,
    looks=looks,
    origin=lambda _: {"k": DEPTH},
)
