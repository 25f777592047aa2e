"""The arms of the real sample: what is searched with, each under a name that stays.

An arm takes the texts of one writer and, where they are hypotheses, a way to search with them. The
names are those of the lambda study (``hplus``, ``chr@0.4``, ``chr+rotation@1``); what was written
without seeing the options says ``-stem``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lib.datasets import Question
from lib.methods.base import Expansion, Fusion, Request, Sparse, question_alone
from lib.query_spec import DRAWS, Hypotheses, SearchSpec, Text, with_random_mimics
from lib.studies.lambda_sweep import arms as lam_arms

LAMBDAS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2)
"""Where contrast with one mimic is measured and, on exam questions, judged."""

EXAM_DRAWS = 3
"""Draws of a control on exam questions, where every passage has to be judged."""

SEVERAL = "several"


@dataclass(frozen=True)
class Arm:
    """One search. ``of`` says whose texts, a key of ``bases_of``; without a ``spec`` they are
    searched as their method means it."""

    name: str
    of: str
    spec: SearchSpec | None = None

    @property
    def is_control(self) -> bool:
        """Whether chance decides what is searched with: measured as a mean over draws."""
        spec = self.spec
        return spec is not None and (
            spec.rotation or spec.mimic == "stranger" or spec.form == "random"
        )

    def draws(self, group: str) -> int:
        """How many draws are averaged in a group of sets: one where nothing is drawn."""
        if not self.is_control:
            return 1
        return EXAM_DRAWS if group == "exams" else DRAWS

    def request(self, base: Request, draw: int = 0) -> Request:
        """What to search with for one question."""
        return base if self.spec is None else base.by(**vars(replace(self.spec, draw=draw)))


def arms_of(chosen: float = 0.0) -> list[Arm]:
    """Every arm; the controls are also run at ``chosen``, the lambda of dev, unless it is 0."""
    specs = [SearchSpec(lam=lam) for lam in LAMBDAS]
    specs += [SearchSpec(lam=lam, question_weight=1.0) for lam in (0.0, 0.4)]
    specs += [SearchSpec(lam=0.4, form=form, mimic=SEVERAL) for form in ("max", "mean")]
    specs += [SearchSpec(lam=lam, space="whitened") for lam in (0.0, 0.4)]
    specs += [SearchSpec(lam=lam) for lam in (-0.4, -1.0)]
    for lam in sorted({0.4, 1.0, chosen} - {0.0}):
        specs += [SearchSpec(lam=lam, rotation=True), SearchSpec(lam=lam, mimic="stranger")]
    specs.append(SearchSpec(form="random"))
    arms = [Arm(lam_arms.Arm(spec).name, "hypotheses", spec) for spec in specs]
    for lam in (0.0, 0.4, 1.0):
        name = lam_arms.Arm(SearchSpec(lam=lam)).name
        family, at, rest = name.partition("@")
        arms.append(Arm(f"{family}-stem{at}{rest}", "hypotheses-stem", SearchSpec(lam=lam)))
    methods = ["question", "bm25", "rrf", "hyde", "hyde-options", "fusion"]
    methods += ["query2doc", "csqe", "thinkqe", "rationale"]
    sums = ["hplus+hplus-stem", "hplus+hyde"]
    return arms + [Arm(name, name) for name in (*methods, *sums)]


def added_arms() -> list[Arm]:
    """Arms that came after the exam questions' passages were judged, so for BioASQ alone.

    The question added at the paper's lambda; and contrast that only orders the ten best of H+.
    """
    specs = [SearchSpec(lam=1.0, question_weight=1.0), SearchSpec(lam=1.0, pool=10)]
    return [Arm(lam_arms.Arm(spec).name, "hypotheses", spec) for spec in specs]


def bases_of(
    questions: Sequence[Question], written: Mapping[str, Mapping[str, Expansion]], draws: int
) -> dict[str, dict[str, Request]]:
    """What each arm's texts are, by arm key and question id; a question without them is missing.

    ``written`` are the expansions by kind (see ``texts.KINDS``) and question id. Strangers are
    drawn among these questions, ``draws`` for each.
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
