"""The BioASQ curve: real questions, the experts' ideal answers standing in for hypotheses.

H+ is the question's own ideal answer, H- the ideal answer of another question: near or middle
by the cosine of the question embeddings. Targets are the question's own gold snippets,
mimic passages the other question's. Read it for what it is: a near-oracle H+ (many ideal answers
copy their snippets) against an adversarial H-.
"""

from __future__ import annotations

from collections import defaultdict

from lib.data.benchmark import Benchmark, shared_ngrams
from lib.data.corpora import load_passages
from lib.data.neighbours import neighbour_ranks, pick
from lib.data.passages import CORPORA
from lib.data.questions import load_bioasq_all, load_bioasq_dev
from lib.search.vectors import encode_small

__all__ = ["build"]


def build(encoder) -> Benchmark:
    """The 618 yes/no questions as test, and as dev those of the other types that share no document
    with them; mimics come from all 2,310 questions."""
    everything = load_bioasq_all()
    pids = defaultdict(set)
    for passage in load_passages("bioasq"):
        for qid in passage.meta["qids"]:
            pids[qid].add(passage.pid)
    ranks = neighbour_ranks(encode_small([q.text for q in everything], encoder, "query"))
    dev = {q.qid for q in load_bioasq_dev()}
    keep = [
        i
        for i, q in enumerate(everything)
        if (q.options or q.qid in dev) and q.ideal_answer and pids[q.qid]
    ]
    kept = [everything[i] for i in keep]
    mimic_of = {d: [everything[rows[i]] for i in keep] for d, rows in pick(ranks).items()}
    nearest = list(zip(kept, mimic_of["nearest"], strict=True))
    return Benchmark(
        name="bioasq",
        title="BioASQ yes/no questions, ideal answers as hypotheses",
        corpora=("bioasq",),
        code=("lib.data.bioasq",),
        files=CORPORA["bioasq"].files,
        questions=tuple(q.text for q in kept),
        qids=tuple(q.qid for q in kept),
        h_plus=tuple(q.ideal_answer for q in kept),
        h_minus={d: tuple(m.ideal_answer for m in of) for d, of in mimic_of.items()},
        several=tuple(tuple(everything[j].ideal_answer for j in ranks[i][:5]) for i in keep),
        targets={q.qid: frozenset(pids[q.qid]) for q in kept},
        mimics={q.qid: frozenset(pids[m.qid]) for q, m in nearest},
        dev=frozenset(q.qid for q in kept if q.qid in dev),
        copied=frozenset(q.qid for q in kept if shared_ngrams(q.ideal_answer, q.gold_snippets) > 0),
        shared=frozenset(q.qid for q, m in nearest if set(q.snippet_pmids) & set(m.snippet_pmids)),
        counts={
            "all": len(everything),
            "yes_no": sum(bool(q.options) for q in everything),
            "dev_candidates": len(dev),
        },
    )
