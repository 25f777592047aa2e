"""What is given to who turns findings round and to who judges pairs, and what is made of it.

How sheets go out and come back is ``lib.llm.desk``'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from lib.base.files import canonical_json, sha256_bytes
from lib.data.judgments import PairLabel, add_pair_labels, read_pair_judgments
from lib.llm import desk
from lib.llm.batch import Nothing, Pending, add_replies, pending
from lib.studies.judged.plants import TURNED, WRITER, recorded, to_turn, turned
from lib.studies.judged.quality import read_again, read_alone
from lib.studies.judged.sample import Pool
from lib.studies.judged.sheets import Pair, Sheet, make_sheet, read_pairs, sheet_messages

AUTHOR = (
    "a large language model, by the prompts of lib/llm/prompts, up to 20 abstracts in a "
    "conversation; not re-runnable from here"
)
REQUESTS = 20
"""Abstracts turned in one conversation."""

PAIRS = 20
"""Pairs of two texts of their own in one sheet, at most."""

WRITER_README = """\
INSTRUCTIONS. You play a language model that answers requests. The file requests.txt beside this \
one holds numbered, independent requests. Answer each one as if it were the only one you had been \
given, following exactly what that request asks. Write every reply yourself, word by word; no \
script or template may write or edit a text. Read no other file, search for nothing. Write all \
replies to replies.txt in this same folder: for each request a line "@@@ <number>" and below it \
the reply alone, in order, starting with @@@ 1, none left out. When the file is written, end with \
the single word: done.
"""
JUDGE_README = """\
INSTRUCTIONS. You are a careful judge of medical texts. This folder has the files {files}. Each \
holds numbered texts and a list of pairs, and says how to label them. Take the files one after the \
other: read one in full, judge its pairs one by one by reading them yourself, and write your reply \
for it to the file of the same name that ends in .labels (so q1.txt gives q1.labels). No script \
may choose or write a label, no pair may be left out, and no other file may be read. Reply nothing \
but the lines asked for. When all are written, end with the single word: done.
"""

Work = tuple[Sheet, dict[tuple[str, str], str]]
"""A sheet, and the texts of its items by pool and id."""


# findings turned round ---------------------------------------------------------------------------


def give_turned(folder: Path) -> list[str]:
    """Write the requests for findings turned round that no recording answers; the folders made."""
    llm = recorded() if TURNED.exists() else Nothing(WRITER)
    asked: list[Pending] = []
    for i, text in to_turn().items():
        asked += pending(lambda model, i=i, text=text: turned(i, text, model), llm)
    parts = [asked[start : start + REQUESTS] for start in range(0, len(asked), REQUESTS)]
    return [desk.give_requests(part, "turned", WRITER_README, folder) for part in parts]


def take_turned(folder: Path) -> int:
    """Add the replies of every answered sheet to the recording; how many were new."""
    found = [(asked, texts) for _, asked, texts in desk.answered("turned", folder) if texts]
    return sum(add_replies(TURNED, WRITER, AUTHOR, asked, texts) for asked, texts in found)


# judging -----------------------------------------------------------------------------------------


def first(pools: Sequence[Pool]) -> list[Work]:
    """A sheet for each pool of three texts or more; pools of one pair share sheets, mixed."""
    have = {_pair(row) for row in read_pair_judgments() if row["judge"] == "first"}
    left = {pool.name: [pair for pair in _pairs(pool) if pair not in have] for pool in pools}
    texts = texts_of(pools)
    large = [left[pool.name] for pool in pools if len(pool.texts) > 2]
    small = [pair for pool in pools if len(pool.texts) == 2 for pair in left[pool.name]]
    return [_work(pairs, texts, "first") for pairs in [*filter(None, large), *_mixed(small)]]


def again(pools: Sequence[Pool]) -> tuple[list[Work], list[Work]]:
    """The second pass, pool by pool, and pairs judged by themselves, mixed (see ``quality``)."""
    texts, rows = texts_of(pools), read_pair_judgments()
    own = [row for row in rows if row["judge"] == "first" and (row["pool"], row["a"]) in texts]
    by_pool: dict[str, list[Pair]] = {pool.name: [] for pool in pools}
    for row in filter(read_again, own):
        by_pool[row["pool"]].append(_pair(row))
    large = {pool.name for pool in pools if len(pool.texts) > 2}
    small = [pair for name, pairs in by_pool.items() if name not in large for pair in pairs]
    second = [pairs for name, pairs in by_pool.items() if name in large and pairs]
    alone = [_pair(row) for row in own if row["pool"] in large and read_alone(row)]
    return (
        [_work(pairs, texts, "second") for pairs in [*second, *_mixed(small)]],
        [_work(pairs, texts, "single") for pairs in _mixed(alone)],
    )


def texts_of(pools: Iterable[Pool]) -> dict[tuple[str, str], str]:
    """The text of every item by pool and id."""
    return {(pool.name, i): text for pool in pools for i, text in pool.texts.items()}


def _pairs(pool: Pool) -> list[Pair]:
    return [(pool.name, a, b) for a, b in pool.pairs]


def _pair(row: Mapping) -> Pair:
    return row["pool"], row["a"], row["b"]


def _mixed(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Pairs in the order of their hashes, ``PAIRS`` at a time."""
    order = sorted(pairs, key=lambda pair: sha256_bytes(canonical_json(list(pair)).encode()))
    return [order[start : start + PAIRS] for start in range(0, len(order), PAIRS)]


def _work(pairs: Sequence[Pair], texts: Mapping[tuple[str, str], str], judge: str) -> Work:
    made = make_sheet(pairs, judge)
    return made, {item: texts[item] for item in made.items}


def give_pairs(work: Sequence[Work], judge: str, folder: Path) -> list[str]:
    """Write judging sheets, some in a conversation; the folders made."""
    files = []
    for one, texts in work:
        text = "\n\n".join(message["content"] for message in sheet_messages(one, texts))
        shown = [[*item, text] for item, text in texts.items()]
        files.append((text, {"sheet": asdict(one), "texts": shown}))
    return desk.give_sheets(files, judge, JUDGE_README, folder)


def take_pairs(judge: str, folder: Path) -> tuple[int, list[str], list[PairLabel]]:
    """Add the labels of every answered sheet of a pass to the judgments.

    Returns how many labels were new, the files that have no reply yet, and the unjudged pairs.
    """
    found, waiting = desk.replies(judge, folder)
    labels: list[PairLabel] = []
    for key, said in found:
        parts = {part: tuple(map(tuple, rows)) for part, rows in key["sheet"].items()}
        texts = {(pool, i): text for pool, i, text in key["texts"]}
        labels += read_pairs(said, Sheet(**parts), texts)
    unjudged = [label for label in labels if label.same is None]
    return add_pair_labels(labels, judge), waiting, unjudged
