"""The BioASQ curve: real questions, the experts' ideal answers standing in for hypotheses.

H+ is the question's own ideal answer, H- the ideal answer of another question: near or middle
by the cosine of the question embeddings. Targets are the question's own gold snippets,
mimic passages the other question's. Read it for what it is: a near-oracle H+ (many ideal answers
copy their snippets) against an adversarial H-.
"""

from __future__ import annotations

from collections import defaultdict

from lib.benchmarks.base import Benchmark, neighbour_ranks, pick, shared_ngrams
from lib.corpora import load_passages
from lib.data.passages import CORPORA
from lib.datasets import load_bioasq_all, load_bioasq_dev
from lib.search.vectors import encode_small


def build(encoder) -> Benchmark:
    """The benchmark: 618 yes/no questions as test, and other types of question as dev.

    A dev question shares no document with a test question. Mimics come from all 2,310 questions.
    """
    everything = load_bioasq_all()
    passages_of = defaultdict(set)
    for passage in load_passages("bioasq"):
        for qid in passage.meta["qids"]:
            passages_of[qid].add(passage.pid)
    dev = {question.qid for question in load_bioasq_dev()}

    # Row i of ``ranks`` is about question i of ``everything``, so positions are kept beside it.
    ranks = neighbour_ranks(encode_small([q.text for q in everything], encoder, "query"))
    positions = []
    for i, question in enumerate(everything):
        has_role = bool(question.options) or question.qid in dev
        if has_role and question.ideal_answer and passages_of[question.qid]:
            positions.append(i)
    questions = [everything[i] for i in positions]
    mimics_at = {}
    for distance, rows in pick(ranks).items():
        mimics_at[distance] = [everything[rows[i]] for i in positions]
    with_nearest = list(zip(questions, mimics_at["nearest"], strict=True))
    five_nearest = [[everything[j].ideal_answer for j in ranks[i][:5]] for i in positions]

    return Benchmark(
        name="bioasq",
        title="BioASQ yes/no questions, ideal answers as hypotheses",
        corpora=("bioasq",),
        code=("lib.benchmarks.bioasq",),
        files=CORPORA["bioasq"].files,
        questions=tuple(q.text for q in questions),
        qids=tuple(q.qid for q in questions),
        h_plus=tuple(q.ideal_answer for q in questions),
        h_minus={
            distance: tuple(mimic.ideal_answer for mimic in mimics)
            for distance, mimics in mimics_at.items()
        },
        several=tuple(tuple(answers) for answers in five_nearest),
        targets={q.qid: frozenset(passages_of[q.qid]) for q in questions},
        mimics={q.qid: frozenset(passages_of[mimic.qid]) for q, mimic in with_nearest},
        dev=frozenset(q.qid for q in questions if q.qid in dev),
        # Copied: eight words of the ideal answer in a row stand in one of its snippets.
        copied=frozenset(
            q.qid for q in questions if shared_ngrams(q.ideal_answer, q.gold_snippets) > 0
        ),
        shared=frozenset(
            q.qid for q, mimic in with_nearest if {*q.snippet_pmids} & {*mimic.snippet_pmids}
        ),
        counts={
            "all": len(everything),
            "yes_no": sum(bool(q.options) for q in everything),
            "dev_candidates": len(dev),
        },
    )
