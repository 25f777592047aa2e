"""Long answers to open questions (RAG2's appendix A.5 and Figure A2), rebuilt on MedQuAD.

The paper has 25 clinicians' questions, ClinicalQA25, whose reference answers are not open. Here 25
questions of MedQuAD are asked, and the reference is what the institute itself answered. SmolLM2
answers without documents, with the three best of stacked retrieval (MedRAG's way), of balanced and
re-ranked retrieval, and of the same filtered. All search with the question. The document that holds
the reference is in the corpus, so there are two settings: it may be found, or it may not.
``tools.record_small`` records the answers.

Two scores measure how similar two texts are. ROUGE-L counts the longest common subsequence of
words. The BERTScore takes for each token of one text its nearest token of the other by cosine, as
the paper prints the formula: no weights for rare tokens, no rescaling. Its token vectors are the
last hidden states of MiniLM, which is also the retriever here; the paper does not name its model.
Such cosines are high for any two medical texts, so each value must be read beside the score of a
text on another question.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from rouge_score.scoring import Score, fmeasure

from lib.base.files import sha256_bytes
from lib.data.passages import OPEN_CORPUS, Passage
from lib.data.store import PassageStore
from lib.datasets import Question
from lib.expansion import execute
from lib.llm.chat import ChatModel, Message, tag
from lib.llm.prompts import load_prompt
from lib.llm.small_model import NAME
from lib.methods.base import first_words, numbered
from lib.methods.postprocess import Scorer
from lib.methods.rag2 import RAG2
from lib.model_files import minilm_folder, quiet
from lib.query_spec import Fusion, Hypotheses, Request
from lib.run import Retriever
from lib.stats import Pair, auroc, auroc_interval, claims, mean_interval
from lib.studies.rag2.filters import RERANKERS, Filter, card_of, load_rerankers, threshold_key
from lib.studies.rag2.retrieval import DEPTH, Collection, without_verdicts
from lib.studies.rag2.writers import Replayed, copied
from lib.study import means_table

RECORDING = "rag2-long-answers"
COMMAND = "python -m tools.record_small long-answers"

FILTER = "cross-ppl-25"
SHARE = 0.25
"""The filter, and which share of its training pairs it keeps."""

K = 3
"""Passages that the model is shown, each cut to its first 120 words."""

CLOSED = "no documents"
STACKED = "stacked"
BALANCED = "balanced, re-ranked"
FILTERED = "balanced, re-ranked, filtered"

FIRST = "the first passage as the answer"
CHANCE = "an answer to another question"
"""Two baselines for the arms: no model at all, and chance."""

SETTINGS = ("without its own document", "with it")

TYPES = (
    "treatment",
    "symptoms",
    "causes",
    "exams and tests",
    "prevention",
    "outlook",
    "complications",
)
"""What is asked. MedQuAD's other types are definitions, genes and numbers."""

WORDS = 120
_TWIN_WORDS = 25
_PROMPTS = Path(__file__).parent / "prompts"


# the questions ------------------------------------------------------------------------------------


def long_questions(store: PassageStore, count: int = 25) -> list[Question]:
    """Questions of MedQuAD in the order of a hash; ``ideal_answer`` is the institute's own answer.

    The id is that of the passage which holds the answer. Its answer is one passage of 60 to 160
    words, the question is of ``TYPES`` and asked nowhere else in MedQuAD, and no document gives two
    questions. Leaflets' names that make no question ("How to diagnose What I need to know about
    ...") are left out. ValueError where there are too few.
    """
    asked = {(p.meta["question"], p.meta["doc"]) for p in store if p.source == "medquad"}
    times_asked = Counter(question for question, _ in asked)
    fit = [
        passage
        for passage in whole_answers(store, 60, 160)
        if times_asked[passage.meta["question"]] == 1
        and "what i need to know" not in passage.meta["question"].casefold()
    ]
    fit.sort(key=lambda passage: sha256_bytes(f"long answer {passage.pid}".encode()))
    chosen: dict[str, Question] = {}
    for passage in fit:
        question = Question(
            passage.pid, passage.meta["question"], {}, "", "medquad", ideal_answer=passage.text
        )
        chosen.setdefault(passage.meta["document"], question)
    if len(chosen) < count:
        raise ValueError(f"{len(chosen)} questions fit, {count} are asked for")
    return list(chosen.values())[:count]


def whole_answers(store: PassageStore, shortest: int, longest: int) -> list[Passage]:
    """MedQuAD's answers of one passage, of so many words, to questions of ``TYPES``."""
    return [
        passage
        for passage in store
        if passage.source == "medquad"
        # Genetics Home Reference answers all questions on treatment with one list of links.
        and passage.meta["subset"] != "3_GHR_QA"
        and passage.meta["question_type"] in TYPES
        and passage.pid == passage.meta["doc"]
        and shortest <= len(passage.text.split()) <= longest
    ]


def twins_of(questions: Sequence[Question], store: PassageStore) -> dict[str, frozenset[str]]:
    """Passages that may not be found "without its own document", by question id.

    Its own, and every other one that has 25 words in a row of the reference: institutes copy.
    """
    owners: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for question in questions:
        for run in word_runs(question.ideal_answer):
            owners[run].add(question.qid)
    found: dict[str, set[str]] = {question.qid: {question.qid} for question in questions}
    for passage in store:
        for run in word_runs(passage.text):
            for qid in owners.get(run, ()):
                found[qid].add(passage.pid)
    return {qid: frozenset(pids) for qid, pids in found.items()}


def word_runs(text: str) -> Iterator[tuple[str, ...]]:
    """All 25 words in a row of a text, in lower case."""
    words = re.findall(r"\w+", text.casefold())
    for i in range(len(words) - _TWIN_WORDS + 1):
        yield tuple(words[i : i + _TWIN_WORDS])


# what the model is shown --------------------------------------------------------------------------


def pipelines(
    reranker: Scorer,
    judge: Filter | None,
    threshold: float,
    sources: Sequence[str] = OPEN_CORPUS,
) -> dict[str, RAG2]:
    """The three ways to retrieve, by the arm's name; without a ``judge`` the filtered one lacks."""
    even = RAG2(query="question", sources=tuple(sources), depth=DEPTH, reranker=reranker)
    arms = {STACKED: RAG2(query="question"), BALANCED: even}
    if judge:
        arms[FILTERED] = replace(even, judge=judge.scores, threshold=threshold)
    return arms


def shown_passages(
    questions: Sequence[Question],
    arms: Mapping[str, RAG2],
    retriever: Retriever,
    twins: Mapping[str, frozenset[str]],
) -> pd.DataFrame:
    """What each arm shows the model: ``setting, arm, qid, rank, pid``, at most ``K`` a question.

    A question of which the filter leaves nothing has no rows: it is answered without documents.
    """
    parts = []
    for setting in SETTINGS:
        hidden = twins if setting == SETTINGS[0] else {}
        for name, arm in arms.items():
            expansions = []
            for question in questions:
                made = arm.given(question)
                request = _excluding(made.request, hidden.get(question.qid, frozenset()))
                expansions.append(replace(made, request=request))
            run, _ = execute(name, questions, expansions, retriever, K)
            parts.append(run.assign(setting=setting, arm=name))
    return pd.concat(parts, ignore_index=True)[["setting", "arm", "qid", "rank", "pid"]]


def _excluding(request: Request, pids: frozenset[str]) -> Request:
    """The same request, but that these passages may not be found."""
    if isinstance(request, Fusion):
        return replace(request, requests=tuple(_excluding(r, pids) for r in request.requests))
    if isinstance(request, Hypotheses):
        return replace(request, excluded=request.excluded | pids)
    raise ValueError(f"a {type(request).__name__} leaves no passages out")


def messages_for(question: Question, passages: Sequence[Passage]) -> list[Message]:
    """The request for an answer; without passages another prompt, otherwise in the same words."""
    if not passages:
        return load_prompt("long_answer", _PROMPTS).messages(question=question.text)
    hits = first_words([(passage.pid, passage.text) for passage in passages], WORDS)
    titled = [
        (pid, f"{passage.title}: {text}" if passage.title else text)
        for passage, (pid, text) in zip(passages, hits, strict=True)
    ]
    prompt = load_prompt("long_answer_with_documents", _PROMPTS)
    return prompt.messages(documents=numbered(titled), question=question.text)


# the answers --------------------------------------------------------------------------------------


def answers_to(
    questions: Sequence[Question],
    arms: Iterable[str],
    shown: pd.DataFrame,
    store: PassageStore,
    llm: ChatModel,
) -> pd.DataFrame:
    """Every answer: ``setting, arm, qid, answer, cut, pids``, of ``CLOSED`` and then the ``arms``.

    ``cut``: it reached 128 tokens; ``pids``: what was shown, which may be nothing. ``CLOSED`` has
    its answers in both settings, and they are the same.
    """
    lists = shown.sort_values("rank").groupby(["setting", "arm", "qid"])["pid"].agg(list)
    rows = []
    for setting in SETTINGS:
        for arm in (CLOSED, *arms):
            for question in questions:
                pids = lists.get((setting, arm, question.qid), [])
                messages = messages_for(question, store.get_many(pids))
                with tag(method=arm, qid=question.qid):
                    (reply,) = llm.generate(messages, temperature=0.0, max_tokens=128)
                is_cut = reply.finish_reason == "length"
                rows.append((setting, arm, question.qid, reply.text.strip(), is_cut, tuple(pids)))
    return pd.DataFrame(rows, columns=["setting", "arm", "qid", "answer", "cut", "pids"])


def long_answer_values(
    questions: Sequence[Question], answers: pd.DataFrame, store: PassageStore, scorers: Scorers
) -> pd.DataFrame:
    """Every outcome: ``setting, arm, qid, metric, value``.

    A metric called as a scorer is the F1 against the reference, beside it stand its ``_precision``
    and ``_recall``. Of each answer also ``words``, ``cut`` (1.0 where it reached its end by
    length), ``copied`` (the share of its characters that stand in a shown passage, ten words or
    more in a row), ``own`` (its own document was shown), ``documents`` (how many were) and
    ``emptied`` (none was, where some might have been: the filter left none). Arms are those of
    ``answers``; ``FIRST`` after a colon is the arm's first passage itself, and ``CHANCE`` the mean
    over all other questions' answers without documents.
    """
    reference = {question.qid: question.ideal_answer for question in questions}

    def scores(candidate: str, qid: str) -> dict[str, float]:
        row = {}
        for name, scorer in scorers.items():
            score = scorer(candidate, reference[qid])
            row |= {name: score.fmeasure, f"{name}_precision": score.precision}
            row |= {f"{name}_recall": score.recall}
        return row

    rows = []
    for answer in answers.itertuples():
        passages = store.get_many(list(answer.pids))
        row = {"setting": answer.setting, "qid": answer.qid, "arm": answer.arm}
        repeated = copied(answer.answer, {passage.pid: passage.text for passage in passages})
        letters = sum(stretch.end - stretch.start for stretch in repeated)
        facts = {
            "words": float(len(answer.answer.split())),
            "copied": letters / max(1, len(answer.answer)),
            "cut": float(answer.cut),
            "own": float(answer.qid in answer.pids),
            "documents": float(len(passages)),
            "emptied": float(not passages and answer.arm != CLOSED),
        }
        rows.append(row | facts | scores(answer.answer, answer.qid))
        if passages:
            first = " ".join(passages[0].text.split()[:WORDS])
            row["arm"] = f"{answer.arm}: {FIRST}"
            rows.append(row | scores(first, answer.qid))
    for setting, group in answers[answers["arm"] == CLOSED].groupby("setting", sort=False):
        closed = dict(zip(group["qid"], group["answer"], strict=True))
        for qid in closed:
            others = [scores(closed[other], qid) for other in sorted(closed) if other != qid]
            row = {"setting": setting, "qid": qid, "arm": CHANCE}
            rows.append(row | pd.DataFrame(others).mean().to_dict())
    long = pd.DataFrame(rows).melt(["setting", "arm", "qid"], var_name="metric")
    return long.dropna(subset=["value"]).reset_index(drop=True)


def long_answer_outcomes(collection: Collection) -> pd.DataFrame:
    """``long_answer_values`` of recorded answers.

    ``RecordingMiss`` with the command where an answer is not recorded.
    """
    retriever, store = collection.retriever, collection.retriever.store
    texts = list(collection.texts.values())
    (reranker,) = load_rerankers(RERANKERS[0], retriever.encoder, texts)
    line = card_of(FILTER)[threshold_key(SHARE)]
    arms = pipelines(reranker, collection.filters[FILTER], line)
    questions = long_questions(store)
    shown = shown_passages(questions, arms, retriever, twins_of(questions, store))
    answers = answers_to(questions, arms, shown, store, Replayed(RECORDING, COMMAND, store))
    return long_answer_values(questions, answers, store, open_scorers())


def long_answer_tables(collection: Collection, values: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """``rag2_long_answers`` in the form of Table 1, its ``_claims`` in each setting without a
    verdict, because nothing was declared before, and what the scores are worth."""
    table = means_table(values.rename(columns={"setting": "dataset"}), f"{NAME}, k = {K}")
    couples = [(one.text, other.text) for one, other in same_question(collection.retriever.store)]
    compared = [
        ("documents help", STACKED, CLOSED),
        ("balanced and re-ranked documents help", BALANCED, CLOSED),
        ("they help more than stacked ones", BALANCED, STACKED),
        ("the model adds to its first passage", BALANCED, f"{BALANCED}: {FIRST}"),
        ("an answer without documents is about its question", CLOSED, CHANCE),
        ("filtered documents help", FILTERED, CLOSED),
        ("filtering adds", FILTERED, BALANCED),
    ]
    metrics = ("rouge_l", "bert_score")
    pairs = [Pair(claim, m, arm, other) for m in metrics for claim, arm, other in compared]
    tested = [
        claims(values[values["setting"] == setting], pairs).assign(dataset=setting)
        for setting in SETTINGS
    ]
    return {
        "rag2_long_answers": table.assign(answerer=NAME),
        "rag2_long_answers_claims": without_verdicts(*tested),
        "rag2_long_answers_instrument": instrument(couples, open_scorers()),
    }


# how like two texts are ---------------------------------------------------------------------------

TextScorer = Callable[[str, str], Score]
"""Of a candidate and a reference: how much of the candidate is in the reference (``precision``),
the other way round (``recall``), and their harmonic mean (``fmeasure``)."""

Scorers = Mapping[str, TextScorer]


def open_scorers() -> Scorers:
    """Both scores by name. ROUGE-L is that of the package ``rouge-score``: words in lower case,
    without stemming. Each text is embedded once for the BERTScore."""
    from rouge_score.rouge_scorer import RougeScorer

    rouge, vectors = RougeScorer(["rougeL"]), cache(token_vectors())

    def rouge_l(candidate: str, reference: str) -> Score:
        return rouge.score(reference, candidate)["rougeL"]

    def bert_score(candidate: str, reference: str) -> Score:
        return greedy(vectors(candidate), vectors(reference))

    return {"rouge_l": rouge_l, "bert_score": bert_score}


def token_vectors() -> Callable[[str], np.ndarray]:
    """A function that gives the unit vectors of a text's first 512 tokens, float32 (tokens, 384).

    The model's marks of beginning and end are no tokens of a text.
    """
    import torch
    from transformers import AutoModel, AutoTokenizer

    quiet()
    tokenizer = AutoTokenizer.from_pretrained(minilm_folder())
    net = AutoModel.from_pretrained(minilm_folder()).eval()

    def vectors(text: str) -> np.ndarray:
        tokens = tokenizer(text, return_tensors="pt", truncation=True, max_length=512)
        with torch.inference_mode():
            states = net(**tokens).last_hidden_state[0, 1:-1]
        return torch.nn.functional.normalize(states, dim=-1).numpy()

    return vectors


def greedy(candidate: np.ndarray, reference: np.ndarray) -> Score:
    """Each token with its nearest of the other text, unit vectors (n, d) and (m, d).

    A text without tokens is like no other: 0.
    """
    if not len(candidate) or not len(reference):
        return Score(0.0, 0.0, 0.0)
    cosines = candidate @ reference.T
    precision, recall = (float(cosines.max(axis=axis).mean()) for axis in (1, 0))
    return Score(precision, recall, fmeasure(precision, recall))


# the scores themselves, on known truth ------------------------------------------------------------


def same_question(store: PassageStore) -> list[tuple[Passage, Passage]]:
    """Couples of answers of two MedQuAD institutes to one question, in the order of a hash.

    One question: of one of the ``TYPES``, on topics that share a UMLS concept or their name, and at
    least half of the words of both names: MedQuAD's concepts take PMD for periodontal disease. No
    passage is in two couples. They have 30 to 300 words, or there would be too few.
    """
    about: dict[tuple[str, str], dict[str, Passage]] = defaultdict(dict)
    for passage in whole_answers(store, 30, 300):
        for topic in (*passage.meta["cuis"], passage.title.casefold()):
            about[topic, passage.meta["question_type"]][passage.pid] = passage
    couples = {}
    for answers in about.values():
        for one, other in combinations([answers[pid] for pid in sorted(answers)], 2):
            if one.meta["subset"] != other.meta["subset"] and _alike(one.title, other.title):
                couples[one.pid, other.pid] = (one, other)
    chosen: list[tuple[Passage, Passage]] = []
    used: set[str] = set()
    for pids in sorted(couples, key=lambda pids: sha256_bytes(f"same {pids}".encode())):
        if not used & set(pids):
            used |= set(pids)
            chosen.append(couples[pids])
    return chosen


def _alike(name: str, other: str) -> bool:
    one, two = (set(re.findall(r"\w+", text.casefold())) for text in (name, other))
    return 2 * len(one & two) >= len(one | two)


def instrument(couples: Sequence[tuple[str, str]], scorers: Scorers) -> pd.DataFrame:
    """What both scores give where the truth is known, F1, a row each.

    ``couples`` are two answers to one question each. Columns: check, score, value, low, high, n
    (couples). Checks say what a text is compared with; another question is chance, a mean over all
    other couples' second answers. The AUROC: how well a score tells an answer to the same question
    from one to another, .5 is chance. Intervals draw couples.
    """
    numbers = range(len(couples))
    others = [(i, j) for i in numbers for j in numbers if i != j]
    is_same = np.arange(len(couples) + len(others)) < len(couples)
    groups = [str(i) for i in numbers] + [str(i) for i, _ in others]
    rows = []
    for name, scorer in scorers.items():
        texts = {
            "itself": [(one, one) for one, _ in couples],
            "its own words in disorder": [(_in_disorder(one), one) for one, _ in couples],
            _SAME: couples,
            _OTHER: [(couples[i][0], couples[j][1]) for i, j in others],
        }
        f1 = {
            check: np.array([scorer(*couple).fmeasure for couple in of_check])
            for check, of_check in texts.items()
        }
        scores = np.concatenate([f1[_SAME], f1[_OTHER]])
        f1[_OTHER] = f1[_OTHER].reshape(len(couples), -1).mean(axis=1)
        table = [(check, *mean_interval(values)) for check, values in f1.items()]
        interval = auroc_interval(is_same, scores, groups)
        check = "AUROC, the same question against another"
        table.append((check, auroc(is_same, scores), *interval))
        rows += [(check, name, *values, len(couples)) for check, *values in table]
    return pd.DataFrame(rows, columns=["check", "score", "value", "low", "high", "n"])


_SAME, _OTHER = "another institute on the same question", "another question"


def _in_disorder(text: str) -> str:
    words = text.split()
    random.Random(sha256_bytes(text.encode())).shuffle(words)
    return " ".join(words)
