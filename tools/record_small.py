"""What the bundled SmolLM2 writes for the studies, recorded and packed into ``data/recordings``.

    python -m tools.record_small rationales
    python -m tools.record_small long-answers [--filter NAME|none] [--share .25]
    python -m tools.record_small open-questions

A model that is shown a passage repeats it. A packed recording holds the place of copied words in
place of them, and requests by their keys alone; ``lib.studies.rag2.writers`` replays it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from lib.base.files import atomic_write, canonical_json, read_jsonl, write_jsonl_gz
from lib.base.paths import RECORDINGS, shown
from lib.data.store import PassageStore
from lib.embed import load_encoder
from lib.index_build import corpus_store
from lib.llm.chat import ChatModel, Message, Reply
from lib.llm.recorder import Recorder, recording_key
from lib.llm.small_model import small_model
from lib.open_retriever import open_retriever
from lib.profiles import load_profile
from lib.studies import open_questions
from lib.studies.rag2 import long_answers, writers
from lib.studies.rag2.filters import (
    RERANKERS,
    card_of,
    load_filter,
    load_rerankers,
    threshold_key,
)
from lib.studies.rag2.writers import copied, packed_file, with_words
from lib.studies.real.arms import gold_passages


def as_places(text: str, passages: Mapping[str, str]) -> str:
    """The text with ⟨passage id, start, length⟩ for every copied stretch.

    ValueError for a text that has the mark of a place already.
    """
    if "⟨" in text or "⟩" in text:
        raise ValueError(f"a reply has a mark of its own that means a place: {text[:60]!r}")
    parts = []
    done = 0
    for stretch in copied(text, passages):
        length = stretch.end - stretch.start
        parts.append(text[done : stretch.start])
        parts.append(f"⟨{stretch.pid} {stretch.at} {length}⟩")
        done = stretch.end
    return "".join([*parts, text[done:]])


class _Noted(ChatModel):
    """A recorder that notes the keys of all it is asked, in ``keys``."""

    def __init__(self, recorder: Recorder):
        self.name = recorder.name
        self.keys: set[str] = set()
        self._recorder = recorder

    def _say(self, messages: list[Message], n: int, options: dict) -> list[Reply]:
        request = {"messages": messages, "options": options}
        self.keys |= {recording_key(self.name, request, i) for i in range(n)}
        return self._recorder._say(messages, n, options)


def record(
    name: str,
    ask: Callable[[ChatModel], None],
    store: PassageStore,
    passages: Mapping[str, str],
    model: ChatModel | None = None,
    folder: Path = RECORDINGS,
) -> Path:
    """Have SmolLM2 answer whatever ``ask`` asks and no recording has yet; the packed file.

    A killed run goes on where it stopped. The packed file holds what ``ask`` asked and nothing that
    was asked for an earlier state of the code. ``passages`` are those that a reply may have copied.
    """
    live = folder / "live" / f"{name}.jsonl"
    file = folder / packed_file(name).name
    if file.is_file() and not live.exists():
        rows = list(read_jsonl(file))
        for row in rows:
            row["reply"]["text"] = with_words(row["reply"]["text"], store)
        atomic_write(live, "".join(canonical_json(row) + "\n" for row in rows))
    with Recorder(model or small_model(), live) as recorder:
        llm = _Noted(recorder)
        ask(llm)
    return pack(live, file, passages, llm.keys)


def pack(live: Path, file: Path, passages: Mapping[str, str], keys: Collection[str]) -> Path:
    """Write the rows with these keys without their requests, with places for copied words."""
    rows = []
    for row in read_jsonl(live):
        if row["key"] not in keys:
            continue
        row.pop("request", None)
        row["reply"]["text"] = as_places(row["reply"]["text"], passages)
        rows.append(row)
    write_jsonl_gz(file, sorted(rows, key=lambda row: row["key"]))
    print(f"{shown(file)}: {len(rows)} replies", file=sys.stderr)
    return file


def record_rationales() -> None:
    """SmolLM2's rationales, searched with in place of a capable model's."""
    store = corpus_store(load_profile("open").corpora)
    questions = writers.writer_questions()

    def ask(llm: ChatModel) -> None:
        writers.rationales_by(writers.WRITTEN_BY_SMALL, questions, llm)

    # It is shown no passage, but it may know some by heart.
    targets = gold_passages(store)
    pids = sorted({pid for question in questions for pid in targets[question.qid]})
    given = {passage.pid: passage.text for passage in store.get_many(pids)}
    record(writers.RECORDING, ask, store, given)


def record_long_answers(filter_name: str, share: float) -> None:
    """SmolLM2's answers to MedQuAD's questions, by every way to retrieve."""
    profile = load_profile("open")
    retriever = open_retriever(profile, load_encoder(profile.encoder, **profile.encoder_options))
    store = retriever.store
    judge = None if filter_name == "none" else load_filter(filter_name)
    line = card_of(filter_name)[threshold_key(share)] if judge else 0.5
    questions = long_answers.long_questions(store)
    everything = [passage.text for passage in store]
    (reranker,) = load_rerankers(RERANKERS[0], retriever.encoder, everything)
    arms = long_answers.pipelines(reranker, judge, line)
    twins = long_answers.twins_of(questions, store)
    listed = long_answers.shown_passages(questions, arms, retriever, twins)
    seen = store.get_many(sorted({*listed["pid"], *(q.qid for q in questions)}))
    texts = {passage.pid: passage.text for passage in seen}

    def ask(llm: ChatModel) -> None:
        long_answers.answers_to(questions, arms, listed, store, llm)

    record(long_answers.RECORDING, ask, store, texts)


def record_open_questions() -> None:
    """SmolLM2's hypotheses and passages for MedQuAD's questions, of which it sees nothing else."""
    passages, questions, _ = open_questions.medquad()

    def ask(llm: ChatModel) -> None:
        open_questions.ask(questions, llm)

    # It is shown no passage, but it may know some by heart.
    given = {passage.pid: passage.text for passage in passages}
    record(open_questions.RECORDING, ask, corpus_store(["medquad"]), given)


def main() -> None:
    """Record what is named."""
    parser = argparse.ArgumentParser(prog="python -m tools.record_small")
    parser.add_argument("what", choices=["rationales", "long-answers", "open-questions"])
    parser.add_argument("--filter", default=long_answers.FILTER, help='a filter\'s name, or "none"')
    parser.add_argument("--share", type=float, default=long_answers.SHARE)
    given = parser.parse_args()
    if given.what == "rationales":
        record_rationales()
    elif given.what == "open-questions":
        record_open_questions()
    else:
        record_long_answers(given.filter, given.share)


if __name__ == "__main__":
    main()
