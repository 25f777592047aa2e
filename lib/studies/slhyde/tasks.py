"""Two retrieval tasks with labels by experts: SciFact's claims, and BioASQ's questions.

Neither's labels are complete: what no expert named was not judged.

SciFact (Wadden et al., 2020): a train claim is searched among 5,183 abstracts, title and text; the
abstracts that it cites are relevant, as BEIR has it. **all-MiniLM's training list names S2ORC, so
it may have seen these abstracts**: its numbers on SciFact are no zero-shot ones, and a trained
model can lose what it knew. BioASQ: the 618 yes/no questions among the 21,231 snippets that experts
gave for any question; those given for this question are relevant.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Mapping, Sequence

import pandas as pd

from lib.base.downloads import fetch, load_registry
from lib.base.paths import DATA
from lib.corpora import load_passages
from lib.data.passages import Passage
from lib.datasets import Question, load_real
from lib.studies.slhyde.cmirb import Task

HELD_OUT = "nli-head/held_out.txt"


def scifact() -> Task:
    """All 809 train claims by their id, the abstracts, and which of them each claim cites."""
    passages = []
    for row in _table("scifact-corpus").itertuples():
        text = f"{row.title} {_plain(row.abstract)}"
        passages.append(Passage(f"scifact:{row.doc_id}", "", text, "scifact", {}))
    known = {passage.pid for passage in passages}
    queries: dict[str, str] = {}
    qrels: dict[str, dict[str, int]] = {}
    for claim in _table("scifact-claims").itertuples():  # one row for each abstract with evidence
        queries[claim.id] = claim.claim
        cited = [f"scifact:{number}" for number in re.findall(r"\d+", claim.cited_doc_ids)]
        qrels.setdefault(claim.id, {}).update({pid: 1 for pid in cited if pid in known})
    return Task("scifact", queries, tuple(passages), qrels)


def folds() -> dict[str, str]:
    """By a claim's id, on which side of ``data/nli-head/held_out.txt`` it is: "held out" or "the
    others". Claims that share an abstract are on one side; nothing here was trained on either."""
    listed = re.findall(r"^\d+$", (DATA / HELD_OUT).read_text(encoding="utf-8"), re.MULTILINE)
    held_out = set(listed)
    claims = _table("scifact-claims")["id"].unique()
    return {claim: "held out" if claim in held_out else "the others" for claim in claims}


def asked() -> list[Question]:
    """The 618 questions of BioASQ, in the order of the hashes of their ids."""
    return [question for question in load_real("test") if question.dataset == "bioasq"]


def bioasq() -> Task:
    """The 618 questions by their id, every expert's snippet, and whose snippets they are."""
    passages = tuple(load_passages("bioasq"))
    queries = {question.qid: question.text for question in asked()}
    qrels: dict[str, dict[str, int]] = {qid: {} for qid in queries}
    for passage in passages:
        for qid in passage.meta["qids"]:
            if qid in qrels:
                qrels[qid][passage.pid] = 1
    return Task("bioasq", queries, passages, qrels)


TASKS = {"scifact": scifact, "bioasq": bioasq}
"""Every task, by name."""

FILES: Mapping[str, Sequence[str]] = {
    "scifact": ("scifact-corpus", "scifact-claims", HELD_OUT),
    "bioasq": tuple(load_registry("bioasq-")),
}
"""What each is read from, as ``lib.base.provenance.data_hash`` takes it."""


def _table(name: str) -> pd.DataFrame:
    return pd.read_csv(fetch(name), dtype=str, keep_default_na=False)


def _plain(printed: str) -> str:
    """An abstract that is stored as a printed numpy array of its sentences, as one text."""
    tokens = tokenize.generate_tokens(io.StringIO(printed).readline)
    sentences = [ast.literal_eval(t.string) for t in tokens if t.type == tokenize.STRING]
    return " ".join(sentences)
