"""What is compared on the fresh sample, under the names of the lambda study.

``hplus``, ``chr@1`` and ``chr+rotation@1`` are searched with hypotheses by the paper's own request.
``-named`` says: by this companion's request, ``-held``: by a writer who holds a wrong option.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lib.datasets import Question
from lib.methods.base import Expansion, question_alone
from lib.query_spec import Fusion, Hypotheses, Request, SearchSpec, Sparse, with_random_mimics
from lib.studies.lambda_sweep.arms import name_of
from lib.study import Arm

LAMBDAS = (0.2, 0.4, 0.6, 0.8, 1.0)
"""Where contrast is read on dev, which chooses one of them."""

PAPER = (0.4, 1.0)
"""Where it is read on test whatever dev chooses: the gentle one, and the paper's."""

RECIPES = ("hplus+question1", "hyde", "rationale", "rrf+hplus", "several max@0.4", "bm25+hplus")
"""Among these dev chooses what to use instead, in the declared order."""

NOTHING = "none"
"""The arm without passages."""

NEIGHBOURS = ("query2doc", "csqe", "thinkqe")
"""The other methods of the paper's Table 1, read on test alone."""

AS_THEY_ARE = ("question", "hyde", "rationale", "rrf+hplus", "bm25+hplus", *NEIGHBOURS)
"""Bases that are searched with as they are, under their own names."""


def bases_of(
    questions: Sequence[Question], written: Mapping[str, Mapping[str, Expansion]]
) -> dict[str, dict[str, Request]]:
    """What is searched with, by base and question id: the hypotheses of each request, with a random
    mimic (another question's), and what is searched with as it is."""
    asked = {question.qid: question for question in questions}
    found: dict[str, dict[str, Request]] = {
        kind: {qid: e.request for qid, e in expansions.items() if qid in asked and e.request}
        for kind, expansions in written.items()
    }
    for kind in ("described", "named", "held"):
        pairs = {
            qid: replace(one, qid=qid)
            for qid, one in found[kind].items()
            if isinstance(one, Hypotheses)
        }
        found[kind] = dict(with_random_mimics(pairs, 1))
    found["question"] = {qid: question_alone(question) for qid, question in asked.items()}
    targets = {
        qid: Hypotheses(one.of("target"))
        for qid, one in found["described"].items()
        if isinstance(one, Hypotheses)
    }
    found["rrf+hplus"] = {
        qid: Fusion((found["question"][qid], target)) for qid, target in targets.items()
    }
    found["bm25+hplus"] = {
        qid: Fusion((target, Sparse(asked[qid].text))) for qid, target in targets.items()
    }
    return found


def specs(at: Mapping[str, Sequence[float]]) -> dict[str, tuple[str, SearchSpec]]:
    """Arms of hypotheses by name: which base, and how it is searched. ``at`` has the lambdas at
    which contrast is searched, by base; H+ alone is always there."""
    found: dict[str, tuple[str, SearchSpec]] = {}
    for base, lams in at.items():
        for lam in (0.0, *lams):
            spec = SearchSpec(lam=lam)
            family, sign, rest = name_of(spec).partition("@")
            suffix = "" if base == "described" else f"-{base}"
            found[f"{family}{suffix}{sign}{rest}"] = (base, spec)
    found["chr+rotation@1"] = ("described", SearchSpec(lam=1.0, rotation=True))
    found["hplus+question1"] = ("described", SearchSpec(question_weight=1.0))
    found["several max@0.4"] = ("differential", SearchSpec(lam=0.4, form="max"))
    found["random"] = ("described", SearchSpec(form="random"))
    return found


def arms(
    bases: Mapping[str, Mapping[str, Request]], at: Mapping[str, Sequence[float]]
) -> list[Arm]:
    """Every arm that is searched, in one order; see ``specs``."""
    made = [Arm(name, lambda qid, _, base=bases[name]: base.get(qid)) for name in AS_THEY_ARE]
    for name, (base, spec) in specs(at).items():

        def request(qid: str, _: int, base=base, spec=spec) -> Request | None:
            one = bases[base].get(qid)
            return one.by(**vars(spec)) if isinstance(one, Hypotheses) else None

        made.append(Arm(name, request))
    return made
