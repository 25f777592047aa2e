"""One contract for every reader, and what each of them makes of its passages."""

from __future__ import annotations

import json
import string
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib import readers
from lib.data.passages import Passage
from lib.datasets import Question
from lib.embed import HashEncoder
from lib.forms import read_questions
from lib.llm.chat import ChatModel, Reply, current_tag
from lib.llm.recorder import RecordingMiss
from lib.readers import (
    CHARACTERS_PER_TOKEN,
    ChatReader,
    ChoiceReader,
    EvidenceReader,
    JudgedReader,
    answer_messages,
)

OPTIONS = {"B": "colchicine", "A": "allopurinol", "D": "febuxostat", "C": "rest in bed"}
QUESTION = Question("q1", "What stops an attack of gout?", OPTIONS, "B", "mine")
TEXTS = [
    "Rest in bed does nothing.",
    "Colchicine stops an attack of gout.",
    "Allopurinol prevents the next one.",
    "Febuxostat, too.",
    "Sepsis is something else.",
]
PASSAGES = [Passage(f"p{i}", f"Title {i}", text, "mine", {}) for i, text in enumerate(TEXTS)]


class Towers(HashEncoder):
    """The hash encoder with two different towers, which counts what it is given."""

    def __init__(self):
        super().__init__(dim=64)
        self.seen = Counter()

    def encode(self, items, tower="query", progress=True):
        self.seen.update((tower, item) for item in items)
        rows = super().encode(items, tower, progress)
        return np.roll(rows, 1, axis=1) if tower == "query" else rows


class Script(ChatModel):
    """Says the same to every question, or what a function makes of its messages."""

    name = "script"

    def __init__(self, text):
        self.text, self.asked, self.tags, self.options = text, [], [], []

    def _say(self, messages, n, options):
        self.asked.append(messages)
        self.tags.append(current_tag())
        self.options.append(options)
        if "choices" in options and not callable(self.text):
            text = json.dumps(dict.fromkeys(options["choices"], -1.0) | {"B": -0.5})
        else:
            text = self.text(messages) if callable(self.text) else self.text
        return [Reply(text, "stop", 5, 3, 0.1, self.name)]


JSON = '{"step_by_step_thinking": "...", "answer_choice": "B"}'


@pytest.fixture(params=["evidence", "chat", "choice"])
def reader(request, own_folders):
    return {
        "evidence": lambda: EvidenceReader(Towers()),
        "chat": lambda: ChatReader(Script(JSON), "chat"),
        "choice": lambda: ChoiceReader(Script(JSON), "choice"),
    }[request.param]()


# the contract ------------------------------------------------------------------------------------


def test_a_reader_gives_one_answer_a_question_in_order(reader):
    questions = [replace(QUESTION, qid=f"q{i}") for i in range(7)]
    contexts = [PASSAGES[: i % 3] for i in range(7)]
    told = reader.answer_all(questions, contexts)
    assert [a.qid for a in told] == [q.qid for q in questions]
    for answer in told:
        assert answer.letter in OPTIONS and answer.rule and answer.mirage == answer.letter
        assert bool(answer.replies) == reader.needs_llm and answer.documents_cut == 0
    assert isinstance(reader.name, str) and reader.answer_all([], []) == []


def test_a_reader_never_looks_at_the_right_answer(reader):
    sealed = replace(QUESTION, answer="?", ideal_answer="D", gold_snippets=("febuxostat",))
    (one,) = reader.answer_all([QUESTION], [PASSAGES])
    (two,) = reader.answer_all([sealed], [PASSAGES])
    assert one == two


# the evidence reader -----------------------------------------------------------------------------


def supports(question: Question, context) -> dict[str, float]:
    """The formula, one option and one passage at a time."""
    plain = HashEncoder(dim=64)

    def asked(text):
        return np.roll(plain.encode([text])[0].astype(np.float64), 1)

    def gain(option, passage):
        d = plain.encode([passage.text])[0].astype(np.float64)
        return asked(f"{question.text} {option}") @ d - asked(question.text) @ d

    return {x: max(gain(o, p) for p in context) for x, o in sorted(question.options.items())}


words = st.lists(
    st.sampled_from(["gout", "attack", "toe", "urate", "colchicine", "rest", "sepsis", "lung"]),
    min_size=1,
    max_size=6,
).map(" ".join)


@given(
    st.lists(words, min_size=2, max_size=5, unique=True),
    words,
    st.lists(words, min_size=1, max_size=5),
    st.randoms(use_true_random=False),
)
@settings(max_examples=60, deadline=None)
def test_the_evidence_reader_keeps_to_its_formula(options, asked, texts, rng):
    import tempfile

    question = Question("q", asked, dict(zip("ABCDE", options, strict=False)), "A", "mine")
    context = [Passage(f"p{i}", "", t, "mine", {}) for i, t in enumerate(texts)]
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setenv("CHR_CACHE", folder)
        reader = EvidenceReader(Towers())
        (answer,) = reader.answer_all([question], [context])
        rng.shuffle(context)
        assert reader.answer_all([question], [context]) == [answer]
    support = supports(question, context)
    best = max(support.values())
    assert answer.letter == min(x for x, value in support.items() if value > best - 1e-5)


def test_the_evidence_reader_breaks_ties_by_letter_and_has_no_opinion_without_passages(own_folders):
    twins = replace(QUESTION, options={"C": "colchicine", "B": "Colchicine", "A": "sepsis bed"})
    reader = EvidenceReader(Towers())
    told = reader.answer_all([twins, twins], [PASSAGES[1:2], []])
    assert [a.letter for a in told] == ["B", "A"]
    reader.answer_all([QUESTION, replace(QUESTION, qid="q2")], [PASSAGES, PASSAGES[::-1]])
    assert set(reader.encoder.seen.values()) == {1}, "each text is encoded once"
    long = replace(QUESTION, text="a history of nothing " * 200 + QUESTION.text)
    reader = EvidenceReader(Towers())
    reader.answer_all([long], [PASSAGES])
    texts = [item for tower, item in reader.encoder.seen if tower == "query"]
    assert len(texts) == 1 + len(OPTIONS), "an option behind a long question is still read"
    assert all(len(text.split()) < 200 and QUESTION.text in text for text in texts)


# the prompt --------------------------------------------------------------------------------------


def messages_of(context, question=QUESTION, **how):
    how = {"context_tokens": 4096, "max_tokens": 512} | how
    return answer_messages(question, context, **how)


@given(
    st.lists(st.integers(0, 900), min_size=1, max_size=8),
    st.integers(1, 1200),
    st.integers(0, 200),
    st.booleans(),
    st.sampled_from(["answer", "letter"]),
)
@settings(max_examples=200, deadline=None)
def test_the_prompt_fits_and_every_cut_is_counted(lengths, window, room, system, style):
    context = [Passage(f"p{i}", str(i), "x" * n, "", {}) for i, n in enumerate(lengths)]
    how = {"context_tokens": window + room, "max_tokens": room, "system_role": system}
    messages, cut = messages_of(context, style=style, **how)
    said = "\n\n".join(m["content"] for m in messages)
    bare = messages_of([Passage("", "", "", "", {})], style=style, **how | {"context_tokens": 0})
    least = sum(len(m["content"]) for m in bare[0])
    size = sum(len(m["content"]) for m in messages)
    assert size <= max(window * CHARACTERS_PER_TOKEN, least)
    whole = [f"Document [{i}] (Title: {i}) {'x' * n}" for i, n in enumerate(lengths)]
    body = said.partition("Documents:\n")[2].partition("\n\nQuestion:")[0]
    shown = body.split("\n") if body else []
    kept = len(whole) - cut
    assert shown[:kept] == whole[:kept] and len(shown) <= kept + 1
    assert all(w.startswith(s) and w != s for s, w in zip(shown[kept:], whole[kept:], strict=False))
    if cut:  # nothing was cut that would have fitted
        assert size - len("\n".join(shown)) + len("\n".join(whole)) > window * CHARACTERS_PER_TOKEN


# the readers with an LLM -------------------------------------------------------------------------


def test_the_chat_reader_asks_greedily_under_its_name_and_keeps_the_reply(own_folders):
    llm = Script(JSON)
    reader = ChatReader(llm, "mine", max_tokens=77)
    questions = [replace(QUESTION, qid=f"q{i}") for i in range(3)]
    told = reader.answer_all(questions, [PASSAGES, [], PASSAGES])
    assert sorted(t["qid"] for t in llm.tags) == ["q0", "q1", "q2"]
    assert {t["method"] for t in llm.tags} == {"mine"}
    for options in llm.options:
        assert (options["temperature"], options["max_tokens"], options["schema"]) == (0.0, 77, None)
    assert [(a.letter, a.rule, a.replies[0].text) for a in told] == [("B", "json", JSON)] * 3
    assert sum("Document [0]" in m[-1]["content"] for m in llm.asked) == 2
    for text in ("", "I am not sure.", "The answer is F.", '{"answer_choice": 2}'):
        llm = Script(text)
        (answer,) = ChatReader(llm, "mine", 1000, 500).answer_all([QUESTION], [PASSAGES])
        assert (answer.letter, answer.rule, answer.mirage) == ("", "none", "A")
        assert len(llm.asked) == 1 and answer.replies[0].text == text, "never replaced"


@pytest.mark.parametrize(
    ("scores", "letter"),
    [
        ({"A": -3, "B": -0.2, "C": -4, "D": -9}, "B"),
        ({"D": -3}, "D"),
        ({"A": -5, "B": -3, "C": -1, "D": -1}, "C"),
        ({"A": float("-inf"), "B": float("-inf"), "C": -20, "D": float("-inf")}, "C"),
        ({}, ""),
        ({"A": -9.5, "B": -9.5, "C": -9.5, "D": -9.5}, ""),  # as older recordings list nothing
    ],
)
def test_the_choice_reader_takes_the_likeliest_letter_or_abstains(scores, letter):
    llm = Script(lambda _: json.dumps(scores))
    (answer,) = ChoiceReader(llm, "c").answer_all([QUESTION], [PASSAGES])
    rule = "log-probability" if letter else "none"
    assert (answer.letter, answer.mirage, answer.rule) == (letter, letter or "A", rule)
    assert llm.options[0]["choices"] == ["A", "B", "C", "D"]
    assert "nothing else" in llm.asked[0][0]["content"]


# judged passages ---------------------------------------------------------------------------------


def judged_as(monkeypatch, said: dict[str, str]) -> JudgedReader:
    """A reader for which each passage id supports these letters of the question."""
    rows = [
        {"qid": "q1", "pid": pid, "judge": "first", "on_topic": 2, "contradicts": ""}
        | {"supports": letters}
        for pid, letters in said.items()
    ]
    monkeypatch.setattr(readers, "read_judgments", lambda: rows)
    return JudgedReader()


def test_the_judged_reader_takes_the_option_with_most_support_by_rank(monkeypatch):
    # B has 1/2 + 1/3, A has 1/1: a first place is worth more than a second and a third.
    reader = judged_as(monkeypatch, {"p0": "A", "p1": "B", "p2": "B", "p3": "", "p4": ""})
    (answer,) = reader.answer_all([QUESTION], [PASSAGES])
    assert answer.letter == "A"
    (answer,) = reader.answer_all([QUESTION], [PASSAGES[1:]])
    assert answer.letter == "B"
    reader = judged_as(monkeypatch, {"p0": "AB", "p1": ""})
    equal, none = reader.answer_all([QUESTION] * 2, [PASSAGES[:1], PASSAGES[1:2]])
    assert (equal.letter, none.letter, equal.rule) == ("", "", "abstains")
    with pytest.raises(RecordingMiss, match="50% of these passages .*Next: judge them"):
        reader.answer_all([QUESTION], [PASSAGES[1:3]])


# questions of one's own, from the file to a right answer ------------------------------------------

LETTERS = {"seven": "ABCDEFG", "all": string.ascii_uppercase, "small": "vwxyz"}


@pytest.mark.parametrize("letters", LETTERS.values(), ids=LETTERS)
def test_any_number_of_options_under_any_letters_is_read_asked_and_answered(letters, own_folders):
    options = {letter: f"disease number {i}" for i, letter in enumerate(letters)}
    row = {"id": "q", "question": "Which?", "options": options, "answer": [letters[-1], letters[1]]}
    (own_folders / "mine.jsonl").write_text(json.dumps(row))
    (question,), _ = read_questions(own_folders / "mine.jsonl")
    for said in letters:
        replies = {
            ChatReader: json.dumps({"answer_choice": said.upper()}),
            ChoiceReader: json.dumps({x: float(x == said) for x in letters}),
        }
        for kind, reply in replies.items():
            llm = Script(lambda _, reply=reply: reply)
            (answer,) = kind(llm, "it").answer_all([question], [PASSAGES])
            asked = llm.asked[0][-1]["content"]
            assert all(f"{letter}. {option}" in asked for letter, option in options.items())
            assert answer.letter == said
            assert question.is_right(answer.letter) == (said in (letters[-1], letters[1]))
    by_evidence = EvidenceReader(HashEncoder(dim=64))
    text = Passage("p", "", f"Which? {options[letters[-1]]}", "mine", {})
    assert question.is_right(by_evidence.answer_all([question], [[text]])[0].letter)


def test_yes_no_and_maybe_are_options_by_themselves(tmp_path):
    rows = [{"id": x, "question": "Is it?", "answer": x} for x in ("yes", "no", "maybe")]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    questions, _ = read_questions(tmp_path / "mine.jsonl")
    for question in questions:
        reply = f"Maybe not. The answer is {question.qid}."
        (answer,) = ChatReader(Script(reply), "it").answer_all([question], [[]])
        assert question.is_right(answer.letter) and len(question.options) == 3


def test_more_options_than_letters_and_two_under_one_letter_are_refused_by_name(tmp_path):
    tries = {"27 options": ["x"] * 27, "one letter for two options: a, A": {"a": "x", "A": "y"}}
    for says, options in tries.items():
        row = {"id": "q", "question": "Which?", "options": options, "answer": "x"}
        (tmp_path / "mine.jsonl").write_text(json.dumps(row))
        with pytest.raises(ValueError, match=rf"mine.jsonl:1: {says}"):
            read_questions(tmp_path / "mine.jsonl")
