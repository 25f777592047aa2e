"""SL-HyDE's data: two tasks to measure on, a corpus to learn from, what was trained and written.

**Two retrieval tasks** have labels by experts, which are not complete: what no expert named was not
judged. SciFact (Wadden et al., 2020): a train claim is searched among 5,183 abstracts, title and
text; the abstracts that it cites are relevant, as BEIR has it. **all-MiniLM's training list names
S2ORC, so it may have seen these abstracts**: its numbers on SciFact are no zero-shot ones, and a
trained model can lose what it knew. BioASQ: the 618 yes/no questions among the 21,231 snippets that
experts gave for any question; those given for this question are relevant.

**The unlabelled corpus** is MedQuAD, the answers of NIH institutes to questions on health, without
their questions (the paper draws 10,000 documents from a medical encyclopedia). Two benchmarks of
this project are made of MedQuAD: no passage on a disease of theirs is used.

**The retrievers** are MiniLM with LoRA adapters that learnt from queries that SmolLM2 wrote.
They are compared with the same training on shuffled pairs, on MedQuAD's own questions (what labels
would bring), with random negatives, and on fewer pairs. At the method's learning rate shuffled
pairs ruin the retriever, so one couple of trainings has a lower rate.

Not as in the paper: a LoRA adapter of a small English encoder, not all weights of BGE-large; one
mined negative a query, not seven; 16 queries a step, not 20; 160 tokens a text, not 512; and so a
higher learning rate (``slhyde_rates``). As in the paper: one epoch, linear decay, temperature .02,
in-batch negatives, no labels. Source: Li et al., AutoMIR, arXiv:2410.20050, sections 3.3 and 5.1.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pandas as pd

from lib.base import paths
from lib.base.downloads import fetch, load_registry
from lib.base.files import read_jsonl, read_manifest, sha256_bytes
from lib.base.parameters import check_count
from lib.benchmarks import ddx_real
from lib.benchmarks.base import name_words
from lib.corpora import load_passages
from lib.data.passages import Passage
from lib.datasets import Question, load_real
from lib.embed import Encoder, HashEncoder
from lib.model_files import ADAPTERS
from lib.query_spec import Hypotheses, Text
from lib.run import Retriever
from lib.search.bm25 import BM25Index
from lib.search.choose import open_dense
from lib.search.vectors import encode_cached
from lib.stats import long_values
from lib.study import Arm, search_arm

DEPTH = 100
"""Passages retrieved: Recall looks at a hundred."""

MEASURES = ("ndcg_at_10", "recall_at_100")

HELD_OUT = "nli-head/held_out.txt"


@dataclass(frozen=True)
class Task:
    """A retrieval task: what to search with, where, and what is relevant.

    ``queries`` has texts by query id, ``qrels`` the judged passages of a query id with their score,
    0 for not relevant. ValueError for a query without a passage that scores above 0.
    """

    name: str
    queries: Mapping[str, str]
    corpus: Sequence[Passage]
    qrels: Mapping[str, Mapping[str, int]]

    def __post_init__(self) -> None:
        for qid in self.queries:
            if not any(score > 0 for score in self.qrels.get(qid, {}).values()):
                raise ValueError(f"{self.name}: query {qid} has no relevant passage")


# the two tasks ------------------------------------------------------------------------------------


def scifact() -> Task:
    """All 809 train claims by their id, the abstracts, and which of them each claim cites."""
    passages = []
    for row in _table("scifact-corpus").itertuples():
        text = f"{row.title} {_plain(row.abstract)}"
        passages.append(Passage(f"scifact:{row.doc_id}", "", text, "scifact", {}))
    queries: dict[str, str] = {}
    qrels: dict[str, dict[str, int]] = {}
    for claim in _table("scifact-claims").itertuples():  # one row for each abstract with evidence
        queries[claim.id] = claim.claim
        cited = [f"scifact:{number}" for number in re.findall(r"\d+", claim.cited_doc_ids)]
        qrels.setdefault(claim.id, {}).update(dict.fromkeys(cited, 1))
    return Task("scifact", queries, passages, qrels)


def folds() -> dict[str, str]:
    """By a claim's id, on which side of ``data/nli-head/held_out.txt`` it is: "held out" or "the
    others". Claims that share an abstract are on one side; nothing here was trained on either."""
    text = (paths.DATA / HELD_OUT).read_text(encoding="utf-8")
    held_out = re.findall(r"^\d+$", text, re.MULTILINE)
    claims = _table("scifact-claims")["id"]
    return {claim: "held out" if claim in held_out else "the others" for claim in claims.unique()}


def bioasq_questions() -> list[Question]:
    """The 618 questions of BioASQ, in the order of the hashes of their ids."""
    return [question for question in load_real("test") if question.dataset == "bioasq"]


def bioasq() -> Task:
    """The 618 questions by their id, every expert's snippet, and whose snippets they are."""
    passages = list(load_passages("bioasq"))
    queries = {question.qid: question.text for question in bioasq_questions()}
    qrels: dict[str, dict[str, int]] = {qid: {} for qid in queries}
    for passage in passages:
        for qid in queries.keys() & set(passage.meta["qids"]):
            qrels[qid][passage.pid] = 1
    return Task("bioasq", queries, passages, qrels)


TASKS = {"scifact": scifact, "bioasq": bioasq}
"""Every task, by name."""

FILES = ("scifact-corpus", "scifact-claims", HELD_OUT, *load_registry("bioasq-"))
"""What they are read from, as ``lib.base.provenance.data_hash`` takes it."""


def _table(name: str) -> pd.DataFrame:
    return pd.read_csv(fetch(name), dtype=str, keep_default_na=False)


def _plain(printed: str) -> str:
    """An abstract that is stored as a printed numpy array of its sentences, as one text."""
    tokens = tokenize.generate_tokens(io.StringIO(printed).readline)
    sentences = [ast.literal_eval(t.string) for t in tokens if t.type == tokenize.STRING]
    return " ".join(sentences)


# searching and measuring a task -------------------------------------------------------------------


def query_alone(query: str) -> Hypotheses:
    """What a query is searched with when nothing was written for it."""
    return Hypotheses((Text(query, 1.0, "query", "question"),))


def query_arm(name: str, task: Task) -> Arm:
    """An arm that searches with every query alone."""
    return Arm(name, lambda qid, _: query_alone(task.queries[qid]))


def open_task(task: Task, encoder: Encoder, dtype: str, backend: str = "faiss") -> Retriever:
    """The task's passages in an index, by one encoder; their vectors are cached once."""
    items = [(passage.title, passage.text) for passage in task.corpus]
    label = f"{task.name} by {encoder.name}"
    shards = encode_cached(items, encoder, "article", dtype=dtype, label=label)
    index = open_dense(shards, [passage.pid for passage in task.corpus], backend=backend)
    return Retriever(index, encoder)


def task_values(task: Task, retriever: Retriever, arms: Sequence[Arm]) -> pd.DataFrame:
    """``arm, qid, metric, value``: every arm on the queries that it has something to search with.

    A query that cannot be ranked scores 0.
    """
    parts = []
    for arm in arms:
        qids = [qid for qid in task.queries if arm.request(qid, 0) is not None]
        (found,) = search_arm(arm, qids, retriever, DEPTH)
        qrels = {qid: task.qrels[qid] for qid in qids}
        parts.append(long_values(arm.name, measure_task(found, qrels)))
    return pd.concat(parts, ignore_index=True)


def bm25_values(task: Task, arm: str, cut: Callable[[str], list[str]] = str.split) -> pd.DataFrame:
    """``arm, qid, metric, value`` of BM25 over the words of ``cut``; title and text are one.

    The words are handed to ``lib.search.bm25`` with spaces between, where they stay what they are,
    less the English stop words. A passage that shares no word with a query is never found.
    """
    texts = [" ".join(cut(f"{passage.title} {passage.text}")) for passage in task.corpus]
    index = BM25Index.build(texts, [passage.pid for passage in task.corpus])
    hits = index.search([" ".join(cut(query)) for query in task.queries.values()], DEPTH)
    found = {qid: hits[i].ids[0].tolist() for i, qid in enumerate(task.queries)}
    return long_values(arm, measure_task(found, task.qrels))


def measure_task(
    run: Mapping[str, Sequence[str]], qrels: Mapping[str, Mapping[str, int]]
) -> pd.DataFrame:
    """One row a query of ``qrels`` (index qid), columns ``MEASURES``, values in [0, 1].

    ``run[qid]`` lists passage ids, best first; a query that is missing there scores 0, and one that
    is not in ``qrels`` does not count. The gain of a passage in nDCG@10 is its score, as trec_eval
    has it; in Recall@100 every passage that scores above 0 counts one.
    """
    import ir_measures as ir
    from ir_measures import R, nDCG

    names = {nDCG @ 10: "ndcg_at_10", R @ 100: "recall_at_100"}
    # Scores are minus the rank: the measures must not re-break ties that the index has broken.
    scored = {qid: {pid: -rank for rank, pid in enumerate(run.get(qid, ()))} for qid in qrels}
    table = pd.DataFrame(0.0, index=pd.Index(list(qrels), name="qid"), columns=list(MEASURES))
    for row in ir.iter_calc(list(names), {q: dict(s) for q, s in qrels.items()}, scored):
        table.at[row.query_id, names[row.measure]] = row.value
    return table


# the corpus ---------------------------------------------------------------------------------------

CORPUS = "medquad"

DOCUMENTS = 2000
"""Passages that a question is written for."""

LEAST_WORDS = 40
"""A shorter passage says too little to be asked about."""


@cache
def tested_diseases() -> tuple[frozenset[str], frozenset[tuple[str, ...]]]:
    """The diseases of ddx-real and ddx-fresh, dev and test, and their mimics.

    Their ids (UMLS concepts, which are question ids, and passage ids), and their names, as
    ``lib.benchmarks.base.name_words`` makes them. Mimics are diseases of the same sets.
    """
    ids: set[str] = set()
    names: set[tuple[str, ...]] = set()
    # Which diseases there are does not depend on the encoder, only which is near to which.
    for benchmark in (ddx_real.build(HashEncoder()), ddx_real.build_fresh(HashEncoder())):
        ids.update(benchmark.qids)
        for passages in (benchmark.targets, benchmark.excluded):
            ids.update(*passages.values())
        for of_disease in benchmark.names.values():
            names.update(name_words(name) for name in of_disease)
    return frozenset(ids), frozenset(names - {()})


def is_tested(passage: Passage) -> bool:
    """Whether a passage is on a disease that a benchmark tests, by its id, or any of its concepts,
    titles and synonyms."""
    ids, names = tested_diseases()
    meta = passage.meta
    if not ids.isdisjoint([passage.pid, *meta["cuis"]]):
        return True
    return any(name_words(title) in names for title in (meta["focus"], *meta["synonyms"]))


def unlabelled(passages: Iterable[Passage] | None = None) -> list[Passage]:
    """The passages that may be learnt from, in the corpus' order; by default those of MedQuAD.

    This is the corpus D: questions are asked of it, ranks are counted in it, and hard negatives
    come from it.
    """
    passages = load_passages(CORPUS) if passages is None else passages
    return [passage for passage in passages if not is_tested(passage)]


def sample(passages: Iterable[Passage], n: int = DOCUMENTS) -> list[Passage]:
    """``n`` passages of ``LEAST_WORDS`` or more, at most one of a page, in the order of hashes.

    ValueError where there are fewer such pages.
    """

    def order(passage: Passage) -> str:
        return sha256_bytes(f"selflearn {passage.pid}".encode())

    firsts: dict[tuple[str, str], Passage] = {}
    long = [passage for passage in passages if len(passage.text.split()) >= LEAST_WORDS]
    for passage in sorted(long, key=order):
        firsts.setdefault((passage.meta["subset"], passage.meta["document"]), passage)
    if len(firsts) < n:
        raise ValueError(f"{len(firsts)} pages have a passage of {LEAST_WORDS} words, wanted {n}")
    return list(firsts.values())[:n]


# what was trained and written ---------------------------------------------------------------------

BASE = "minilm"

LOW_RATE = 1e-4
"""The learning rate of a control that does not collapse (``slhyde_rates_disorder``)."""

TRAININGS = (
    "slhyde-query",
    "slhyde-query-1",
    "slhyde-query-2",
    "slhyde-shuffled",
    "slhyde-shuffled-1",
    "slhyde-shuffled-2",
    "slhyde-query-low",
    "slhyde-shuffled-low",
    "slhyde-supervised",
    "slhyde-supervised-shuffled",
    "slhyde-random",
    "slhyde-half",
    "slhyde-quarter",
    "slhyde-mean",
)
"""Every retriever's adapter. The one for the mean is trained on half of the passages, because the
tuned generator wrote for these alone, so compare it with ``slhyde-half``."""

ADAPTER = ADAPTERS / "slhyde-generator"

PASSAGES = 3
"""L, the passages written for a query to choose from; the paper's code writes 5."""

NOT_FOUND = 1000
"""How deep a passage's document is searched, and its rank where it is not found there."""


def read_texts(name: str) -> list[dict[str, Any]]:
    """The rows of ``data/selflearn/<name>.jsonl.gz``: queries, passages, tuned, hyde-scifact or
    hyde-bioasq.

    FileNotFoundError, with the command that writes it, where it is not there whole.
    """
    path = paths.DATA / "selflearn" / f"{name}.jsonl.gz"
    if read_manifest(path) is None:
        command = "python -m tools.slhyde_writer"
        raise FileNotFoundError(f"{paths.shown(path)} is missing or not whole; run: {command}")
    return list(read_jsonl(path))


def chosen_ranks() -> pd.DataFrame:
    """At which rank a document is found by its query and by each passage written for it.

    Columns: searched_with, mrr, first (the share at rank 1), not_found (beyond 1,000), n. The last
    row is the chosen passage. It was selected as the best of three, so it cannot be compared fairly
    with a single passage.
    """
    rows = read_texts("passages")
    ranks = pd.DataFrame({"the query alone": [row["query_rank"] for row in rows]})
    for i in range(PASSAGES):
        ranks[f"query and passage {i + 1}"] = [row["ranks"][i] for row in rows]
    ranks["query and the chosen passage"] = [row["ranks"][row["chosen"]] for row in rows]
    columns = {"mrr": (1 / ranks).mean(), "first": (ranks == 1).mean()}
    columns |= {"not_found": (ranks >= NOT_FOUND).mean(), "n": len(ranks)}
    return pd.DataFrame(columns).rename_axis("searched_with").reset_index()


def written_rows(count: int) -> pd.DataFrame:
    """The first questions that the generator wrote, with the passages it wrote for them.

    Columns: query, passage (the first words), rank (at which question and passage find the
    document), rank_of_query (the question alone), chosen.
    """
    rows = []
    for row in read_texts("passages")[: check_count("shown_rows", count, least=0)]:
        for i, text in enumerate(row["passages"]):
            words = text.split()
            shown = {
                "query": row["query"],
                "passage": " ".join(words[:20]) + (" …" if len(words) > 20 else ""),
                "rank": row["ranks"][i],
                "rank_of_query": row["query_rank"],
                "chosen": "chosen" if i == row["chosen"] else "",
            }
            rows.append(shown)
    return pd.DataFrame(rows)
