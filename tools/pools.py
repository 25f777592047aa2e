"""Texts whose pairs are judged for contradiction, and pairs whose label is known.

Which pools were judged, and by which rules they were drawn, ``lib.studies.contradiction.judged``
says; the pairs are in ``data/judgments/contradiction.jsonl.gz``. Here are the bundled pools and the
abstracts against themselves with their finding turned round; a ``Pool`` of other texts is judged
the same way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from lib.base.paths import RECORDINGS
from lib.llm.chat import ChatModel, tag
from lib.llm.prompts import load_prompt
from lib.studies.contradiction.evidence import load_evidence
from lib.studies.contradiction.judged import by_hash
from lib.studies.contradiction.nli import sentences

TURNED = RECORDINGS / "contradiction-turned.jsonl.gz"

_TURNED = 20
"""Abstracts turned of either set."""


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


def mini_pools() -> list[Pool]:
    """evidence-mini: a pool for each topic of a medicine that has more than one abstract."""
    topics: dict[str, dict[str, str]] = defaultdict(dict)
    for abstract in load_evidence("evidence-mini"):
        # Its text alone, for titles of reviews tell the answer.
        topics[f"mini/{abstract.medicine}, {abstract.topic}"][abstract.id] = abstract.text
    pairs = {name: tuple(combinations(sorted(texts), 2)) for name, texts in topics.items()}
    return [Pool(name, topics[name], pairs[name]) for name in sorted(pairs) if pairs[name]]


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
