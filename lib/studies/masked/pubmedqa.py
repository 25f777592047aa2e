"""PubMedQA's questions: the source of each is known, so its rank needs no judge.

Each of MIRAGE's 500 test questions is the title of one abstract; passages are embedded without
titles, so no arm can match it. Hypotheses by the paper's own request, with yes, no and maybe as
options. ``mrr`` is one over the rank of the abstract's first passage among ten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from lib.base.paths import DATA
from lib.data.looks import Look
from lib.datasets import Question, load_questions
from lib.index_build import files_of
from lib.methods.base import Expansion
from lib.profiles import Profile
from lib.run import Retriever
from lib.stats import claims, measure
from lib.studies.masked.arms import arms, bases_of
from lib.studies.masked.study import CHOICES, choices, search_in, test_lambdas
from lib.studies.masked.texts import PUBMEDQA, written_for
from lib.study import DECLARATIONS, Arm, Found, Study, declared_pairs, means, search_and_measure

ARMS = ("question", "hplus", "hplus+question1", "rrf+hplus", "chr+rotation@1")
"""What is searched beside contrast at every lambda that is read on the exams' test half. Nothing by
words: BM25 reads titles, and here they are the questions."""

METRICS = ("mrr", "hit_at_5")


def load_pubmedqa() -> list[Question]:
    """The 500 test questions."""
    return load_questions("pubmedqa")


@dataclass(frozen=True)
class Sources:
    """The questions with their hypotheses and the passages of their abstracts."""

    questions: Sequence[Question]
    retriever: Retriever
    profile: Profile
    written: Mapping[str, Mapping[str, Expansion]] = field(default_factory=dict)

    @property
    def qids(self) -> list[str]:
        """The questions' ids: PubMed ids."""
        return [question.qid for question in self.questions]

    @property
    def data(self) -> Sequence[str]:
        """The files behind it."""
        ours = [path.relative_to(DATA).as_posix() for path in (PUBMEDQA, CHOICES)]
        return [*files_of(self.profile.corpora), "pubmedqa-test", *ours]

    def targets(self) -> dict[str, frozenset[str]]:
        """The passages of each question's abstract."""
        return abstracts_of(self.qids, self.retriever.store.ids())


def abstracts_of(qids: Sequence[str], pids: Iterable[str]) -> dict[str, frozenset[str]]:
    """The passages of the abstract behind each question."""
    pieces: dict[str, set[str]] = {qid: set() for qid in qids}
    for pid in pids:
        source, _, rest = pid.partition(":")
        pmid = rest.partition("#")[0]
        if source == "pubmedqa" and pmid in pieces:
            pieces[pmid].add(pid)
    return {qid: frozenset(found) for qid, found in pieces.items()}


def load(profile: Profile) -> Sources:
    """The questions, searched in the profile's passages."""
    questions = load_pubmedqa()
    return Sources(questions, search_in(profile), profile, written_for(questions, ["described"]))


def arms_of(sources: Sources) -> list[Arm]:
    """What is searched."""
    at = {"described": test_lambdas()["described"]}
    lams = {f"chr@{lam:g}" for lam in at["described"]}
    made = arms(bases_of(sources.questions, sources.written), at)
    return [arm for arm in made if arm.name in {*ARMS, *lams}]


def _measured(sources: Sources, found: Found) -> pd.DataFrame:
    targets = sources.targets()
    return measure(found, {qid: targets[qid] for qid in found}, {}, 5)[list(METRICS)]


def follow(sources: Sources, values: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Means, and the declared tests."""
    pairs = declared_pairs("masked-pubmedqa", choices())
    return {
        "masked_pubmedqa": means(values, ("arm", "metric"), sort=True),
        "claims_masked_pubmedqa": claims(values, pairs),
    }


def looks(_: Sources, made: Mapping[str, pd.DataFrame]) -> list[Look]:
    """The sources of the test questions."""
    values = made["values_masked_pubmedqa"]
    return [Look("masked-pubmedqa", values["qid"], values["arm"], declared=DECLARATIONS[1])]


STUDY = Study(
    name="masked, pubmedqa",
    code="lib.studies.masked",
    load=load,
    values={"values_masked_pubmedqa": search_and_measure(arms_of, _measured)},
    tables=("masked_pubmedqa", "claims_masked_pubmedqa"),
    follow=follow,
    looks=looks,
)
