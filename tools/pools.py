"""Which pairs of texts are judged for contradiction, by rules written down before any was.

Groups are told apart by the first part of a pool's name: ``mini`` (evidence-mini, every pair of
abstracts on one topic), ``query`` (60 stated queries of ``open``, every pair among the seven
abstracts nearest to each), ``near`` (abstracts of ``open`` drawn by period, each with its nearest
neighbour), ``real`` (30 questions of each exam set of the real sample, the pairs within the top
five of each of three arms), and pairs whose label is known: ``turned`` (an abstract against itself
with its finding turned round) and ``scifact`` (a claim against an abstract, labelled by people).
All draws follow the hash of an id, so nothing was hand-picked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

from lib.base.files import write_jsonl_gz
from lib.base.paths import RECORDINGS
from lib.data.judgments import shown_text
from lib.data.store import PassageStore
from lib.datasets import EXAMS, Question
from lib.embed import Encoder
from lib.llm.chat import ChatModel, tag
from lib.llm.prompts import load_prompt
from lib.search.vectors import encode_small
from lib.studies.contradiction.evidence import load_evidence, load_needs
from lib.studies.contradiction.judged import (
    ARMS,
    PLANTS,
    REAL_QUESTIONS,
    by_hash,
    drawn_by_period,
)
from lib.studies.contradiction.labelled import cited_abstracts
from lib.studies.contradiction.nli import sentences

QUERIES, TOP = 60, 7
"""Stated queries of ``open``, and the abstracts nearest to each: 60 x 21 pairs."""

TURNED = RECORDINGS / "contradiction-turned.jsonl.gz"

_TURNED, _SCIFACT = 20, 40
"""Abstracts turned of either set, and pairs of SciFact of each label."""

_LABELS = {"SUPPORT": "agree", "CONTRADICT": "disagree", "": "neither"}


@dataclass(frozen=True)
class Pool:
    """Texts that are judged together, by id, and those of their pairs that are; ids in order."""

    name: str
    texts: Mapping[str, str]
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Plant:
    """A pair that must get a label: ``must`` is "other", "agree", "disagree", "neither" (anything
    but the two), or the id of the text of the pool that ``a`` or ``b`` is a repetition of."""

    kind: str
    pool: str
    a: str
    b: str
    must: str


def _pool(name: str, texts: Mapping[str, str], pairs: Iterable[Sequence[str]] = ()) -> Pool:
    """A pool of all pairs of its texts, or of those given."""
    chosen = pairs or combinations(texts, 2)
    return Pool(name, dict(texts), tuple(sorted({tuple(sorted(pair)) for pair in chosen})))


def mini_pools() -> list[Pool]:
    """evidence-mini: a pool for each topic of a medicine that has more than one abstract."""
    topics: dict[str, dict[str, str]] = defaultdict(dict)
    for abstract in load_evidence("evidence-mini"):
        # Its text alone, for titles of reviews tell the answer.
        topics[f"mini/{abstract.medicine}, {abstract.topic}"][abstract.id] = abstract.text
    return [_pool(name, texts) for name, texts in sorted(topics.items()) if len(texts) > 1]


def query_pools(encoder: Encoder) -> list[Pool]:
    """``open``: 60 of its queries, each with the seven abstracts nearest to it by cosine."""
    evidence, needs = load_evidence("open"), {need.qid: need for need in load_needs("open")}
    vectors = encode_small([abstract.text for abstract in evidence], encoder, "article")
    pools = []
    for qid in by_hash("judged query", needs)[:QUERIES]:
        (query,) = encode_small([needs[qid].question], encoder, "query")
        best = np.argsort(-(vectors @ query), kind="stable")[:TOP]
        pools.append(_pool(f"query/{qid}", {evidence[i].id: evidence[i].text for i in best}))
    return pools


def near_pools(encoder: Encoder, taken: Iterable[Pool]) -> list[Pool]:
    """``open``: abstracts drawn from each period in turn, each with its nearest neighbour.

    A pair that ``taken`` or an earlier abstract has is left out, and the next neighbour is taken.
    """
    evidence = load_evidence("open")
    vectors = encode_small([abstract.text for abstract in evidence], encoder, "article")
    row_of = {abstract.id: row for row, abstract in enumerate(evidence)}
    have = {pair for pool in taken for pair in pool.pairs}
    pools = []
    for i in drawn_by_period(evidence):
        row = row_of[i]
        for other in np.argsort(-(vectors @ vectors[row]), kind="stable"):
            pair = tuple(sorted((i, evidence[other].id)))
            if other != row and pair not in have:
                break
        have.add(pair)
        pools.append(_pool(f"near/{i}", {j: evidence[row_of[j]].text for j in pair}))
    return pools


def real_pools(
    questions: Sequence[Question], runs: pd.DataFrame, store: PassageStore
) -> list[Pool]:
    """The real sample: of 30 questions of each exam set the pairs within the top five of ``ARMS``.

    ``runs`` have the columns arm, qid, rank, pid. ``questions`` come in the order of the hashes.
    """
    pools = []
    for dataset in EXAMS:
        qids = [question.qid for question in questions if question.dataset == dataset]
        for qid in qids[:REAL_QUESTIONS]:
            found = runs[(runs["qid"] == qid) & (runs["rank"] <= 5) & runs["arm"].isin(ARMS)]
            pairs = set()
            for _, rows in found.groupby("arm"):
                pairs |= {tuple(sorted(pair)) for pair in combinations(rows["pid"], 2)}
            pids = sorted(set(found["pid"]))
            texts = {passage.pid: shown_text(passage) for passage in store.get_many(pids)}
            pools.append(_pool(f"real/{qid}", texts, pairs))
    return pools


# pairs whose label is known -----------------------------------------------------------------------


def to_turn() -> dict[str, str]:
    """Texts of 20 abstracts of evidence-mini and 20 of Evidence Inference, the first by hash."""
    found = {}
    for name, source in (("evidence-mini", "evidence-mini"), ("open", "Evidence Inference")):
        texts = {e.id: e.text for e in load_evidence(name) if e.source == source}
        found |= {i: texts[i] for i in by_hash("turned", texts)[:_TURNED]}
    return found


def turned(i: str, text: str, llm: ChatModel) -> str:
    """What a writer changed in an abstract so that its finding is the opposite; its reply."""
    numbered = [f"({n}) {sentence}" for n, sentence in enumerate(sentences(text), 1)]
    messages = load_prompt("turn_effect").messages(abstract="\n".join(numbered))
    with tag(method="turned", qid=i):
        (reply,) = llm.generate(messages, max_tokens=512)
    return reply.text


def turned_pools(llm: ChatModel) -> tuple[list[Pool], list[Plant]]:
    """Abstracts against themselves with their finding turned round; both must disagree.

    ``llm`` replays ``TURNED``.
    """
    pools, controls = [], []
    for i, text in to_turn().items():
        changed = with_changes(text, turned(i, text, llm))
        pair = tuple(sorted((i, "plant:turned")))
        pools.append(Pool(f"turned/{i}", {i: text, "plant:turned": changed}, (pair,)))
        controls.append(Plant("turned", f"turned/{i}", *pair, "disagree"))
    return pools, controls


def with_changes(text: str, reply: str) -> str:
    """The text with the sentences that the reply gives by number; ValueError for any other form."""
    parts = sentences(text)
    for line in filter(None, map(str.strip, reply.splitlines())):
        number, mark, sentence = line.removeprefix("(").partition(")")
        if not (mark and number.isdigit() and 0 < int(number) <= len(parts) and sentence.strip()):
            raise ValueError(f"no numbered sentence of this text: {line[:60]!r}")
        parts[int(number) - 1] = sentence.strip()
    return " ".join(parts)


def scifact_pools() -> tuple[list[Pool], list[Plant]]:
    """SciFact's claims against the abstracts that people read them with: 40 of each label."""
    by_label: dict[str, dict[str, dict[str, str]]] = {label: {} for label in _LABELS}
    for claim, doc, abstract in cited_abstracts():
        texts = {"abstract": " ".join(abstract), "claim": claim.claim}
        by_label[claim.evidence_label].setdefault(f"{claim.id}-{doc}", texts)
    pools, controls = [], []
    for label, texts in by_label.items():
        for i in by_hash("scifact", texts)[:_SCIFACT]:
            pools.append(Pool(f"scifact/{i}", texts[i], (("abstract", "claim"),)))
            controls.append(Plant("scifact", f"scifact/{i}", "abstract", "claim", _LABELS[label]))
    return pools, controls


def save_controls(controls: Iterable[Plant], path: Path = PLANTS) -> None:
    """Write down which pairs are control items, and what each must be called."""
    rows = sorted((asdict(one) for one in controls), key=lambda row: (row["pool"], row["a"]))
    write_jsonl_gz(path, rows)
