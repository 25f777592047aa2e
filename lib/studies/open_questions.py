"""CHR on open questions, which its paper leaves for later: how near is what is found to an answer?

Without options nothing is right by its letter: a passage is compared with the answer that an expert
wrote, by the scores of ``lib.studies.rag2.long_answers`` (its ``_instrument`` table says what they
are worth). Two sets, each searched in passages of its own kind:

``bioasq``
    60 questions for a fact, a list or a summary, on which dev chose lambda for other questions; a
    large language model's recorded texts; experts' ideal answers; BioASQ's snippets.
``medquad``
    the 25 of RAG2's long answers, with their institutes' answers; SmolLM2's texts, by the prompt of
    CHR's Figure 2; MedQuAD's answers of one passage, without a question's own and what repeats it.
    Where SmolLM2 gave no two hypotheses, CHR and H+ find nothing.

Declared before the first run, Holm over both: on ``bioasq``, by ROUGE-L of the best of five
passages, CHR at the paper's lambda = 1 is better than the question alone, and better than its own
H+. All else is exploratory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pandas as pd

from lib.base.downloads import load_registry
from lib.data.store import PassagesInMemory, PassageStore
from lib.datasets import Question, load_real
from lib.embed import load_encoder
from lib.index_build import build_index, corpus_store, files_of
from lib.llm.chat import ChatModel, tag
from lib.methods.base import Expansion, Method, first_words, question_alone
from lib.methods.chr import CHR
from lib.methods.hyde import HyDE
from lib.profiles import Profile
from lib.query_spec import Hypotheses, Request, SearchSpec, with_random_mimics
from lib.run import Retriever
from lib.stats import Pair, claims
from lib.studies.rag2 import long_answers
from lib.studies.rag2.writers import Replayed
from lib.studies.real.expansions import KINDS, recorded, writers_of
from lib.study import Arm, Study, means_table, search_arms

K = 5
MEDQUAD = "medquad"
RECORDING = "smollm2-open-questions"
COMMAND = "python -m tools.record_small open-questions"

WRITERS: Mapping[str, Method] = {
    "hypotheses": CHR(prompt="chr_hypotheses_described", options_visible=False, max_tokens=256),
    "hyde": HyDE(samples=2, max_tokens=256),
}
"""What SmolLM2 is asked for MedQuAD's questions; its texts are shorter than the methods' own."""

SPECS = {
    "hplus": SearchSpec(),
    "chr@0.4": SearchSpec(lam=0.4),
    "chr@1": SearchSpec(lam=1.0),
    "chr+rotation@1": SearchSpec(lam=1.0, rotation=True),
}
"""The searches of hypotheses; the last turns the query as far, towards another question's mimic."""

BEST, FIRST = "rouge_l_best", "rouge_l_first"
METRICS = (BEST, FIRST, "bert_score_first", "failed")
"""F1 against the expert's answer, of the best of ``K`` passages and of the first, each cut as for a
reader; and whether nothing was found, for which every score is 0."""


@dataclass(frozen=True)
class Asked:
    """One set: what was written for each question by kind, and the ids that it may not find."""

    name: str
    questions: Sequence[Question]
    written: Mapping[str, Mapping[str, Expansion]]
    retriever: Retriever
    hidden: Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class Collection:
    """Both sets, opened when they are first asked for."""

    profile: Profile
    data: Sequence[str] = ()

    @cached_property
    def sets(self) -> list[Asked]:
        """``bioasq`` and ``medquad``."""
        asked = [q for q in load_real("dev") if q.dataset == "bioasq"]
        writers = {kind: writers_of(KINDS[kind], asked[0]) for kind in WRITERS}
        texts = ask(asked, recorded(), writers)
        snippets = corpus_store(["bioasq"])
        store, questions, hidden = medquad()
        llm = Replayed(RECORDING, COMMAND, corpus_store(["medquad"]))
        return [
            Asked("bioasq, open questions", asked, texts, self._searched(snippets), {}),
            Asked(MEDQUAD, questions, ask(questions, llm), self._searched(store), hidden),
        ]

    def _searched(self, store: PassageStore | PassagesInMemory) -> Retriever:
        encoder = load_encoder(self.profile.encoder, **self.profile.encoder_options)
        return Retriever(build_index(store, encoder), encoder, store)


def medquad() -> tuple[PassagesInMemory, list[Question], dict[str, frozenset[str]]]:
    """MedQuAD's answers of one passage, the 25 questions, and what each may not find."""
    everything = corpus_store(["medquad"])
    questions = long_answers.long_questions(everything)
    store = PassagesInMemory(long_answers.whole_answers(everything, 30, 300))
    return store, questions, long_answers.twins_of(questions, store)


def ask(
    questions: Sequence[Question], llm: ChatModel, methods: Mapping[str, Method] = WRITERS
) -> dict[str, dict[str, Expansion]]:
    """What each method makes of every question, by kind and id; none of them searches for it."""
    made: dict[str, dict[str, Expansion]] = {kind: {} for kind in methods}
    for kind, method in methods.items():
        for question in questions:
            with tag(method=method.name, qid=question.qid):
                made[kind][question.qid] = method.expand(question, llm, lambda request, k: [])
    return made


def arms(asked: Asked) -> list[Arm]:
    """Standard RAG, HyDE and the searches of ``SPECS``; without a text there is no search."""
    found: dict[str, Mapping[str, Request | None]] = {
        "question": {q.qid: question_alone(q) for q in asked.questions},
        "hyde": {qid: made.request for qid, made in asked.written["hyde"].items()},
    }
    written = asked.written["hypotheses"].items()
    pairs = {qid: one.request for qid, one in written if isinstance(one.request, Hypotheses)}
    pairs = with_random_mimics({qid: replace(one, qid=qid) for qid, one in pairs.items()}, 1)
    for name, spec in SPECS.items():
        found[name] = {qid: one.by(**vars(spec)) for qid, one in pairs.items()}

    def request(qid: str, by_qid: Mapping[str, Request | None]) -> Request | None:
        one, none = by_qid.get(qid), asked.hidden.get(qid, frozenset())
        return one if one is None else replace(one, excluded=none)  # type: ignore[type-var]

    return [Arm(name, lambda qid, _, of=of: request(qid, of)) for name, of in found.items()]


def outcomes(collection: Collection) -> pd.DataFrame:
    """``dataset, arm, qid, metric, value`` of every question, also of those that found nothing."""
    scorers = long_answers.open_scorers()
    return pd.concat([values_of(asked, scorers) for asked in collection.sets], ignore_index=True)


def values_of(asked: Asked, scorers: long_answers.Scorers) -> pd.DataFrame:
    """``outcomes`` of one set."""
    qids = [question.qid for question in asked.questions]
    found = search_arms(arms(asked), qids, asked.retriever, K)
    rows = []
    for arm, (lists,) in found.items():
        for question in asked.questions:
            hits = asked.retriever.texts_of(lists.get(question.qid, []))
            shown = [text for _, text in first_words(hits, long_answers.WORDS)]
            scores = dict.fromkeys(METRICS, 0.0) | {"failed": float(not shown)}
            if shown:
                rouge = [scorers["rouge_l"](s, question.ideal_answer).fmeasure for s in shown]
                near = scorers["bert_score"](shown[0], question.ideal_answer).fmeasure
                scores |= {BEST: max(rouge), FIRST: rouge[0], "bert_score_first": near}
            rows.append({"arm": arm, "qid": question.qid} | scores)
    long = pd.DataFrame(rows).melt(["arm", "qid"], var_name="metric")
    return long.assign(dataset=asked.name)[["dataset", "arm", "qid", "metric", "value"]]


def tables(collection: Collection, values: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Means of every arm, and paired differences; the two that were declared have a verdict."""
    tested = []
    for dataset, of_set in values.groupby("dataset", sort=False):
        couples = [("chr@1", "question"), ("chr@1", "hplus"), ("chr@0.4", "hplus")]
        couples += [("hplus", "question"), ("hyde", "question"), ("chr@1", "chr+rotation@1")]
        pairs = [
            Pair(f"{a} over {b}", m, a, b, 1, dataset != MEDQUAD and m == BEST and i < 2)
            for m in METRICS[:3]
            for i, (a, b) in enumerate(couples)
        ]
        tested.append(claims(of_set, pairs).assign(dataset=dataset))
    setup = f"{collection.profile.name}, {collection.profile.encoder}, k = {K}"
    made = (means_table(values, setup), pd.concat(tested, ignore_index=True))
    return dict(zip(_KEPT, made, strict=True))


def load(profile: Profile) -> Collection:
    """The collection with the files behind it."""
    recordings = ["real-hypotheses", "real-hypotheses-stem", "real-hyde", RECORDING]
    data = [*files_of(["bioasq", "medquad"]), *load_registry("bioasq-")]
    return Collection(profile, [*data, *(f"recordings/{name}.jsonl.gz" for name in recordings)])


_KEPT = ("open_questions", "open_questions_claims")
_CODE = "lib.studies.open_questions"
STUDY = Study(
    "open questions",
    _CODE,
    load,
    {"values_open_questions": outcomes},
    _KEPT,
    tables,
    origin=lambda _: {"code": [_CODE, "lib.studies.rag2.long_answers"]},
)
