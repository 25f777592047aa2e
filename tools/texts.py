"""Texts that a capable writer wrote: what is asked for, and what is made of what comes back.

    python -m tools.texts give|take KIND FOLDER [--split test]

KIND is a kind of text of the real sample (``lib.studies.real.expansions``), a probe (there too),
"counterfactual" (passages for judges), "turned" (abstracts with their finding turned round),
"building" (Algorithm 1 of CMIRB) or "masked-..." (the fresh sample). ``give`` gives out what no
recording has yet, ``take`` adds the replies to the recording: again and again, until nothing waits.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from difflib import SequenceMatcher
from functools import cache, partial
from pathlib import Path

from lib.base.paths import RECORDINGS
from lib.corpora import load_passages
from lib.datasets import EXAMS, Question, Split, load_real
from lib.llm.chat import ChatModel, tag
from lib.llm.prompts import load_prompt
from lib.llm.recorder import RecordingMiss
from lib.llm.replies import QUOTED
from lib.methods.base import Search
from lib.profiles import load_profile
from lib.studies.contradiction.evidence import load_evidence
from lib.studies.contradiction.judged import by_hash
from lib.studies.contradiction.nli import sentences
from lib.studies.masked import texts as masked
from lib.studies.masked.pubmedqa import load_pubmedqa
from lib.studies.masked.sample import load_masked
from lib.studies.masked.study import ANSWERS
from lib.studies.masked.study import search_in as open_search
from lib.studies.real.expansions import (
    KINDS,
    PROBES,
    WRITER,
    halves,
    probe_calls,
    questions_for,
    writers_of,
)
from lib.studies.slhyde import building_study as building
from lib.studies.slhyde.building import Pair, finish, search_in, take_step
from lib.studies.slhyde.tasks import CORPUS, unlabelled
from tools.annotation import (
    READER_README,
    WRITER_README,
    Pending,
    give_texts,
    pending,
    record_texts,
    recorded,
)
from tools.judging import find_words, gets_control, wrong_option
from tools.slhyde_loop import runs_of

AUTHOR = (
    "a large language model, by this project's prompts, up to 60 requests in a conversation; not "
    "re-runnable from here"
)
"""Who wrote, as every recorded text says."""

COPIED = 20
"""Words in a row that a reply to a building request may not take over from what it was shown."""

TURNED = RECORDINGS / "contradiction-turned.jsonl.gz"

_TURNED = 20
"""Abstracts turned of either set."""

Ask = Callable[[ChatModel], object]


def recording_of(kind: str, split: Split = "test") -> Path:
    """Where texts of a kind are recorded; those of the fresh sample's dev half have a file of their
    own, so that its hash can stay."""
    files = {"turned": TURNED, "building": building.BUILDING}
    name = f"real-{kind}"
    if kind in MASKED:
        name = kind if split == "test" else kind.replace("masked-", "masked-dev-", 1)
    return files.get(kind, RECORDINGS / f"{name}.jsonl.gz")


# what is asked ------------------------------------------------------------------------------------


def asks_for(kind: str, split: Split, search: Search, llm: ChatModel) -> Iterator[Ask]:
    """What asks a model for each text of a kind, tagged; ``llm`` replays what others build on."""
    if kind in KINDS:
        for question in questions_for(KINDS[kind], load_real(split)):
            method = writers_of(KINDS[kind], question)
            with tag(method=method.name, qid=question.qid):
                yield lambda model, m=method, q=question: m.expand(q, model, search)
    elif kind in PROBES:
        method = KINDS["hypotheses"].method
        written = {q.qid: method.expand(q, llm, search) for q in load_real("test")}
        for _, ask in probe_calls(kind, written):
            yield ask
    elif kind == "counterfactual":
        for question in with_counterfactual(split):
            with tag(method=kind, qid=question.qid):
                yield lambda model, q=question: counterfactual(q, model)
    elif kind == "turned":
        for i, text in to_turn().items():
            yield lambda model, i=i, text=text: turned(i, text, model)
    elif kind == "building":
        yield from building_asks(llm)
    elif kind in MASKED:
        yield from masked_asks(kind, split, search)


MASKED = tuple(f"masked-{name}" for name in (*masked.KINDS, "pubmedqa", *ANSWERS))
"""Kinds of the fresh sample: its texts, what a reader says H+ speaks for, and answers."""


def masked_asks(kind: str, split: Split, search: Search) -> Iterator[Ask]:
    """What is asked about each question of the fresh sample. An answer needs what was written and
    a search; the validation of the answerer needs neither."""
    name = kind.removeprefix("masked-")
    if name in (*masked.KINDS, "pubmedqa"):
        method = masked.KINDS["described" if name == "pubmedqa" else name]
        for question in load_pubmedqa() if name == "pubmedqa" else load_masked(split):
            with tag(method=method.name, qid=question.qid):
                yield lambda model, q=question: method.expand(q, model, search)
    else:
        items, ask = ANSWERS[name]
        for question, passages in items(split):
            with tag(method=name, qid=question.qid):
                yield lambda model, q=question, found=passages: ask(q, found, model)


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


def with_counterfactual(split: Split) -> list[Question]:
    """The exam questions that get a counterfactual passage."""
    exams = [question for question in load_real(split) if question.dataset in EXAMS]
    return [q for place, q in enumerate(exams) if gets_control("counterfactual", place)]


def counterfactual(question: Question, llm: ChatModel) -> str:
    """A passage that supports the question's ``wrong_option``; its writer is not told the key."""
    options = "\n".join(f"{letter}. {text}" for letter, text in sorted(question.options.items()))
    messages = load_prompt("counterfactual_passage").messages(
        question=question.text,
        options=options,
        option=question.options[wrong_option(question)],
    )
    (reply,) = llm.generate(messages, max_tokens=256)
    return reply.text.strip()


def building_asks(llm: ChatModel) -> Iterator[Ask]:
    """The steps of Algorithm 1, and control items for its judging steps.

    The medical step is asked for all queries first, since what it drops is searched no more; after
    it every query goes its own way.
    """
    passages = list(load_passages(CORPUS))
    queries = building.open_queries(passages, unlabelled(passages))
    search = search_in(passages)
    pairs = [Pair(query, query.source) for query in queries]
    for step, planted in building.planted(queries).items():
        yield lambda model, s=step, p=planted: take_step(s, p, model)
    yield lambda model: take_step("medical", pairs, model)
    judged: list[Pair] = []
    with suppress(RecordingMiss):
        judged = take_step("medical", pairs, llm)
    gone = [pair for pair in judged if pair.dropped]
    for pair in judged:
        if not pair.dropped:
            yield lambda model, pair=pair: finish([pair, *gone], model, search)


# in what form a reply is kept ---------------------------------------------------------------------


def as_places(reply: str, documents: Mapping[str, str]) -> str:
    """The reply with ⟨passage id, start, length⟩ for the words of every quote.

    So a reply that quotes others' texts can be kept without them. ``documents`` are what it was
    shown, by passage id. A quote that stands in none of them word for word is kept as ⟨not found⟩.
    """

    def place(match: re.Match) -> str:
        words = (match[1] or match[2]).strip()
        for pid, text in documents.items():
            if span := find_words(words, text):
                return f'"⟨{pid} {span[0]} {span[1]}⟩"'
        return '"⟨not found⟩"'

    return QUOTED.sub(place, reply)


def as_run(question: Question, continuation: str) -> str:
    """A continuation as it is recorded: how many words in a row are those that really follow.

    Its words are not kept: where they are right they are the question's, which is not ours.
    """
    _, rest = halves(question)
    written, words = (re.findall(r"\w+", text.casefold()) for text in (continuation, rest))
    matcher = SequenceMatcher(None, written, words, autojunk=False)
    return str(matcher.find_longest_match().size)


def own_words(reply: str, request: Pending) -> str:
    """A reply that copies nothing from its prompt; ValueError for ``COPIED`` words in a row."""
    prompt = " ".join(turn["content"] for turn in request.messages)
    if runs_of(prompt, COPIED) & runs_of(reply, COPIED):
        raise ValueError(f"{request.qid}: the reply copies {COPIED} words in a row; ask once more")
    return reply


def kept_form(kind: str, split: Split, search: Search) -> Callable[[str, Pending], str] | None:
    """In what form replies of a kind are recorded; None for as they came."""
    questions = {question.qid: question for question in load_real(split)}
    if kind in ("csqe", "masked-csqe"):
        questions |= {question.qid: question for question in load_masked("test")}
        shown = KINDS["csqe"].method.first_results
        return lambda text, asked: as_places(text, dict(shown(questions[asked.qid], search)))
    if kind == "memory":
        return lambda text, asked: as_run(questions[asked.qid], text)
    return own_words if kind == "building" else None


def main(arguments: Iterable[str] | None = None) -> None:
    """Give requests out, or take replies."""
    kinds = [*KINDS, *PROBES, "counterfactual", "turned", "building", *MASKED]
    parser = argparse.ArgumentParser(prog="python -m tools.texts")
    parser.add_argument("do", choices=["give", "take"])
    parser.add_argument("kind", choices=kinds)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--split", choices=["dev", "test"], default="test")
    given = parser.parse_args(arguments)
    retriever = cache(partial(open_search, load_profile("open")))

    def search(request: object, k: int) -> list[tuple[str, str]]:
        return retriever().search(request, k)  # opened only where a method reads first results

    path = recording_of(given.kind, given.split)
    if given.do == "give":
        basis = "hypotheses" if given.kind in PROBES else given.kind
        written = recorded(recording_of(basis), WRITER)
        asks = asks_for(given.kind, given.split, search, written)
        known = recorded(masked.FILES if given.kind in MASKED else path, WRITER)
        readme = READER_README if given.kind.removeprefix("masked-") in ANSWERS else WRITER_README
        made = give_texts(given.kind, pending(asks, known), given.folder, readme)
        print(*made or ["all is recorded"], sep="\n")
    else:
        kept = kept_form(given.kind, given.split, search)
        new, waiting = record_texts(given.kind, given.folder, path, WRITER, AUTHOR, kept)
        print(f"{new} new texts; waiting for: {', '.join(waiting) or 'nothing'}")


if __name__ == "__main__":
    main()
