"""What is compared on the real sample, under names that stay, and what is measured of it.

An arm takes the texts of one writer and, where they are hypotheses, a way to search with them. The
names are those of the lambda study (``hplus``, ``chr@0.4``, ``chr+rotation@1``); what was written
without seeing the options says ``-stem``. The top five of an arm are measured on exam questions by
blind judging, on BioASQ by the experts' snippets.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import pandas as pd

from lib.data.judgments import Evidence, evidence, read_judgments, read_option
from lib.data.store import PassageStore
from lib.datasets import EXAMS, GROUPS, Question
from lib.methods.base import Expansion, question_alone
from lib.query_spec import (
    DRAWS,
    Fusion,
    Hypotheses,
    Request,
    SearchSpec,
    Sparse,
    Text,
    with_random_mimics,
)
from lib.run import Retriever
from lib.stats import measure
from lib.studies.lambda_sweep.arms import is_control, name_of
from lib.study import Arm, Found, search_and_measure, search_arms

LAMBDAS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2)
"""Where contrast with one mimic is measured and, on exam questions, judged."""

EXAM_DRAWS = 3
"""Draws of a control on exam questions, where every passage has to be judged."""

SEVERAL = "several"

Search = tuple[str, SearchSpec | None]
"""Whose texts are searched with (a key of ``bases_of``) and how: None is as their method means."""


def searches(chosen: float = 0.0) -> dict[str, Search]:
    """Every arm by name; the controls are also run at ``chosen``, the lambda of dev, unless 0."""
    specs = [SearchSpec(lam=lam) for lam in LAMBDAS]
    specs += [SearchSpec(lam=lam, question_weight=1.0) for lam in (0.0, 0.4)]
    specs += [SearchSpec(lam=0.4, form=form, mimic=SEVERAL) for form in ("max", "mean")]
    specs += [SearchSpec(lam=lam, space="whitened") for lam in (0.0, 0.4)]
    specs += [SearchSpec(lam=lam) for lam in (-0.4, -1.0)]
    for lam in sorted({0.4, 1.0, chosen} - {0.0}):
        specs += [SearchSpec(lam=lam, rotation=True), SearchSpec(lam=lam, mimic="stranger")]
    specs.append(SearchSpec(form="random"))
    found: dict[str, Search] = {name_of(spec): ("hypotheses", spec) for spec in specs}
    for lam in (0.0, 0.4, 1.0):
        spec = SearchSpec(lam=lam)
        family, at, rest = name_of(spec).partition("@")
        found[f"{family}-stem{at}{rest}"] = ("hypotheses-stem", spec)
    methods = ["question", "bm25", "rrf", "hyde", "hyde-options", "fusion"]
    methods += ["query2doc", "csqe", "thinkqe", "rationale"]
    sums = ["hplus+hplus-stem", "hplus+hyde"]
    return found | {name: (name, None) for name in (*methods, *sums)}


def added_searches() -> dict[str, Search]:
    """Arms that came after the exam questions' passages were judged, so for BioASQ alone.

    The question added at the paper's lambda; and contrast that only orders the ten best of H+.
    """
    specs = [SearchSpec(lam=1.0, question_weight=1.0), SearchSpec(lam=1.0, pool=10)]
    return {name_of(spec): ("hypotheses", spec) for spec in specs}


def bases_of(
    questions: Sequence[Question],
    written: Mapping[str, Mapping[str, Expansion]],
    draws: int = DRAWS,
) -> dict[str, dict[str, Request]]:
    """What each arm's texts are, by arm key and question id; a question without them is missing.

    ``written`` are the expansions by kind (see ``expansions.KINDS``) and question id. Random mimics
    are drawn among these questions, ``draws`` for each.
    """

    def requests(kind: str) -> dict[str, Request]:
        found = written.get(kind, {})
        expansions = {q.qid: found[q.qid] for q in questions if q.qid in found}
        return {qid: e.request for qid, e in expansions.items() if e.request is not None}

    bases: dict[str, dict[str, Request]] = {
        "question": {q.qid: question_alone(q) for q in questions},
        "bm25": {q.qid: Sparse(q.text) for q in questions},
    }
    bases["rrf"] = {
        qid: Fusion((request, bases["bm25"][qid])) for qid, request in bases["question"].items()
    }
    seen = {qid: replace(h, qid=qid) for qid, h in requests("hypotheses").items()}
    for qid, request in requests("differential").items():
        if qid in seen:
            mimics = tuple(replace(text, kind=SEVERAL) for text in request.of("mimic"))
            seen[qid] = replace(seen[qid], texts=(*seen[qid].texts, *mimics))
    bases["hypotheses"] = with_random_mimics(seen, draws)
    bases["hypotheses-stem"] = requests("hypotheses-stem")
    for name in ("hyde", "hyde-options", "query2doc", "csqe", "thinkqe", "rationale"):
        bases[name] = requests(name)
    passages = {qid: request.of("passage") for qid, request in requests("hyde").items()}
    bases["fusion"] = {
        qid: Fusion((bases["question"][qid], Hypotheses(texts[:1])))
        for qid, texts in passages.items()
    }
    stem = {qid: h.of("target") for qid, h in requests("hypotheses-stem").items()}
    bases["hplus+hplus-stem"] = _sums(seen, stem)
    bases["hplus+hyde"] = _sums(seen, passages)
    return bases


def _sums(
    seen: Mapping[str, Hypotheses], others: Mapping[str, tuple[Text, ...]]
) -> dict[str, Request]:
    """H+ with other texts of as much weight together: the same budget without a mimic."""
    found: dict[str, Request] = {}
    for qid in seen.keys() & others.keys():
        share = 1.0 / len(others[qid])
        more = tuple(replace(text, weight=share) for text in others[qid])
        found[qid] = Hypotheses((*seen[qid].of("target"), *more))
    return found


# a sample -----------------------------------------------------------------------------------------

Judged = Mapping[tuple[str, str], Evidence]
"""What is known of a passage for a question, by question id and passage id."""


@dataclass(frozen=True)
class Sample:
    """Questions with what was written about each (``expansions.written_for``), where they are
    searched, and what judges said of passages: a collection of arms."""

    questions: Sequence[Question]
    written: Mapping[str, Mapping[str, Expansion]]
    retriever: Retriever
    data: Sequence[str] = ()
    judged: Judged = field(default_factory=lambda: evidence(read_judgments()))

    @cached_property
    def by_qid(self) -> dict[str, Question]:
        """The questions by id."""
        return {question.qid: question for question in self.questions}

    @property
    def qids(self) -> list[str]:
        """The questions' ids."""
        return list(self.by_qid)

    @cached_property
    def groups(self) -> dict[str, Sample]:
        """The exams' part and BioASQ's. Random mimics are drawn within a part."""
        found = {}
        for name, sets in GROUPS.items():
            asked = [question for question in self.questions if question.dataset in sets]
            found[name] = replace(self, questions=asked)
        return found

    @property
    def of_exams(self) -> bool:
        """Whether this is the exams' part, where passages are judged."""
        return all(question.dataset in EXAMS for question in self.questions)

    @cached_property
    def experts(self) -> dict[str, frozenset[str]]:
        """The passages that BioASQ's experts gave, by question id."""
        return gold_passages(self.retriever.store)

    @cached_property
    def bases(self) -> dict[str, dict[str, Request]]:
        """What each arm's texts are."""
        return bases_of(self.questions, self.written)

    def arms(self, wanted: Mapping[str, Search]) -> list[Arm]:
        """These arms of a part; one for which nothing was written here is left out."""
        draws = EXAM_DRAWS if self.of_exams else DRAWS
        made = []
        for name, (of, spec) in wanted.items():
            base = self.bases.get(of, {})

            def request(qid: str, draw: int, base=base, spec=spec) -> Request | None:
                if spec is None or qid not in base:
                    return base.get(qid)
                return base[qid].by(**vars(replace(spec, draw=draw)))

            drawn = spec is not None and (is_control(spec) or spec.form == "random")
            if base:
                made.append(Arm(name, request, draws if drawn else 1))
        return made


RUN_COLUMNS = ("dataset", "arm", "qid", "rank", "pid")


def runs_of(
    sample: Sample, names: Collection[str], qids: Collection[str] | None = None
) -> pd.DataFrame:
    """What some arms that are no controls retrieve, columns ``RUN_COLUMNS``: ``DEPTH`` passages a
    question, of all questions or of ``qids``.

    A question for which an arm has no text, or no direction to search in, has no rows there.
    """
    wanted = {name: search for name, search in searches().items() if name in names}
    rows = []
    for group in sample.groups.values():
        asked = [qid for qid in group.qids if qids is None or qid in qids]
        every = search_arms(group.arms(wanted), asked, sample.retriever, DEPTH)
        for name, (found,) in every.items():
            rows += [
                (sample.by_qid[qid].dataset, name, qid, rank, pid)
                for qid, pids in found.items()
                for rank, pid in enumerate(pids, 1)
            ]
    return pd.DataFrame(rows, columns=list(RUN_COLUMNS))


def gold_passages(store: PassageStore) -> dict[str, frozenset[str]]:
    """The passages that BioASQ's experts gave, by question id."""
    found = defaultdict(set)
    for passage in store:
        if passage.pid.startswith("bioasq:"):
            for qid in passage.meta["qids"]:
                found[qid].add(passage.pid)
    return {qid: frozenset(pids) for qid, pids in found.items()}


# what is measured ---------------------------------------------------------------------------------

DEPTH = 10
"""Passages retrieved: judging looks at ``TOP``, nDCG at ten."""

TOP = 5
ON_TOPIC = 2
"""From which label on a passage counts as on topic."""

EXAM_METRICS = (
    "share_correct_at_5",
    "share_wrong_at_5",
    "on_topic_at_5",
    "supports_correct",
    "supports_wrong",
    "supports_correct_any",
    "supports_wrong_any",
    "reads_right",
    "reads_right_or_guess",
    "abstains",
    "judged_share",
)
"""Of a question's top five. ``..._any`` also counts labels that only one judging pass gave, as the
upper bound. ``reads_right`` and ``abstains`` are the judged reader's (see ``read_option``), and
``reads_right_or_guess`` gives it chance where it abstains."""
BIOASQ_METRICS = ("p_at_5", "ndcg_at_10")

JUDGED_P = "p_at_5_snippets"
"""Precision in the condensed list (Sakai 2007): the share of the first five BioASQ snippets among
the ten passages found. Passages of other corpora were shown to no expert, and are left out; where
nothing else was found it is 0."""

POOL = "whole pool"
"""The arm that returns everything that any arm found: no ranking of it, and no arm to compare."""

OWN_ANSWER = "what H+ says"
MAJORITY = "majority"
"""Rows without retrieval: the option that H+ speaks for, and always the commonest letter."""

OUTCOME_COLUMNS = ["dataset", "arm", "qid", "metric", "value"]


def outcomes(sample: Sample, wanted: Mapping[str, Mapping[str, Search]]) -> pd.DataFrame:
    """Every outcome of the arms ``wanted`` of each group of sets, columns ``OUTCOME_COLUMNS``.

    A question for which an arm has no text, or no direction to search in, has no rows there.
    """
    parts = [pd.DataFrame(columns=["arm", "qid", "metric", "value"])]
    for name, chosen in wanted.items():
        part = sample.groups[name]
        if part.arms(chosen):
            measured = search_and_measure(lambda p, names=chosen: p.arms(names), _measured, DEPTH)
            parts.append(measured(part))
    values = pd.concat(parts[1:] or parts, ignore_index=True)
    values["dataset"] = [sample.by_qid[qid].dataset for qid in values["qid"]]
    places = {name: i for i, name in enumerate((*EXAM_METRICS, *BIOASQ_METRICS, JUDGED_P))}
    # An arm that found nothing at all has no numbers, and its empty table no type.
    values = values.assign(value=values["value"].astype(float), place=values["metric"].map(places))
    values = values.sort_values(["dataset", "arm", "place", "qid"], ignore_index=True)
    return values[OUTCOME_COLUMNS]


def _measured(part: Sample, found: Found) -> pd.DataFrame:
    if not part.of_exams:
        return bioasq_outcomes(found, {qid: part.experts[qid] for qid in found})
    rows = {qid: exam_outcome(part.by_qid[qid], pids, part.judged) for qid, pids in found.items()}
    return pd.DataFrame.from_dict(rows, orient="index", columns=list(EXAM_METRICS))


def exam_outcome(question: Question, pids: Sequence[str], judged: Judged) -> dict[str, float]:
    """``EXAM_METRICS`` of one ranked list: shares of five places, and whether there is any.

    An empty or unjudged rank supports nothing but still counts among the five; ``judged_share`` is
    the share of the filled ranks that were judged.
    """
    found = [judged.get((question.qid, pid)) for pid in pids[:TOP]]
    seen = [evidence for evidence in found if evidence is not None]
    right = sum(question.answer in evidence.supports for evidence in seen)
    wrong = sum(bool(evidence.supports - {question.answer}) for evidence in seen)
    on_topic = sum(evidence.on_topic >= ON_TOPIC for evidence in seen)
    said = frozenset[str]().union(*(evidence.supports_any for evidence in seen))
    option = read_option(found)
    values = (
        right / TOP,
        wrong / TOP,
        on_topic / TOP,
        right > 0,
        wrong > 0,
        question.answer in said,
        bool(said - {question.answer}),
        option == question.answer,
        1 / len(question.options) if option is None else option == question.answer,
        option is None,
        len(seen) / max(len(found), 1),
    )
    return dict(zip(EXAM_METRICS, map(float, values), strict=True))


def bioasq_outcomes(
    found: Mapping[str, Sequence[str]], targets: Mapping[str, frozenset[str]]
) -> pd.DataFrame:
    """``BIOASQ_METRICS`` and ``JUDGED_P`` of ranked lists, a row a question."""
    table = measure(found, targets, {}, TOP)[list(BIOASQ_METRICS)]
    condensed = {}
    for qid, pids in found.items():
        snippets = [pid for pid in pids if pid.startswith("bioasq:")][:TOP]
        condensed[qid] = sum(pid in targets[qid] for pid in snippets) / max(len(snippets), 1)
    return table.assign(**{JUDGED_P: pd.Series(condensed)})


def headroom(questions: Sequence[Question], judged: Judged) -> pd.DataFrame:
    """Whether anything in a question's whole pool supports the right option, or a wrong one.

    Outcomes (``OUTCOME_COLUMNS``) under the arm ``POOL``: what no ranking can exceed.
    """
    letters: dict[str, set[str]] = defaultdict(set)
    for (qid, pid), label in judged.items():
        if not pid.startswith("plant:"):
            letters[qid] |= label.supports
    rows = []
    for question in (q for q in questions if q.dataset in EXAMS):
        row, supported = (question.dataset, POOL, question.qid), letters[question.qid]
        rows.append((*row, "supports_correct", float(question.answer in supported)))
        rows.append((*row, "supports_wrong", float(bool(supported - {question.answer}))))
    return pd.DataFrame(rows, columns=OUTCOME_COLUMNS)


def own_answers(questions: Sequence[Question], read: Mapping[str, str]) -> pd.DataFrame:
    """Whether the option that H+ speaks for is right, and whether the commonest letter is.

    ``read`` are letters by question id, empty where H+ speaks for none: wrong. Outcomes
    (``OUTCOME_COLUMNS``), metric ``reads_right``, of the questions in ``read``.
    """
    asked = [question for question in questions if question.qid in read]
    rows = []
    for dataset in dict.fromkeys(question.dataset for question in asked):
        group = [question for question in asked if question.dataset == dataset]
        commonest = Counter(sorted(question.answer for question in group)).most_common(1)[0][0]
        for question in group:
            for arm, letter in ((OWN_ANSWER, read[question.qid]), (MAJORITY, commonest)):
                right = float(question.is_right(letter))
                rows.append((dataset, arm, question.qid, "reads_right", right))
    return pd.DataFrame(rows, columns=OUTCOME_COLUMNS)
