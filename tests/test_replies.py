"""From what models write to checked values: round trips, examples, one repair call, no guesses."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.llm.chat import Reply, ScriptedChat, ask_json
from lib.llm.replies import read_objects
from lib.methods.chr import HYPOTHESES

ASK = [{"role": "user", "content": "Which disease?"}]
GOOD = '{"H_plus": "Gout.", "H_minus": "Pseudogout."}'
VALUE = {"H_plus": "Gout.", "H_minus": "Pseudogout."}
PIECES = [
    "{",
    "}",
    "[",
    ":",
    ",",
    '"a"',
    "'b'",
    "“c”",
    '"',
    "'",
    "‘",
    "\\",
    "\\u1",
    " ",
    "\n",
    "tr",
]
PROSE = st.text(st.characters(exclude_characters="{}", exclude_categories=["Cs"]), max_size=40)
PLAIN = st.text(st.characters(exclude_characters="“”‘’", exclude_categories=["Cs"]), max_size=30)
WORDS = st.text(st.sampled_from("ab 5.,()/é'\"’“"), max_size=30)
NAMES = st.text("abH_9 ", min_size=1, max_size=9)


def quoted(value: dict, left: str, right: str, tail: str = "") -> str:
    """As a model writes it that escapes its own quotes, but only these."""

    def string(text: str) -> str:
        text = text.replace("\\", "\\\\").replace("\n", "\\n")
        return left + text.replace(right, "\\" + right) + right

    return "{" + ", ".join(f"{string(k)}: {string(v)}" for k, v in value.items()) + tail + "}"


def unescaped(value: dict, mark: str) -> str:
    return "{" + ", ".join(f"{mark}{k}{mark}: {mark}{v}{mark}" for k, v in value.items()) + "}"


WAYS = {
    "strict": json.dumps,
    "unicode": lambda v: json.dumps(v, ensure_ascii=False),
    "fence": lambda v: f"```json\n{json.dumps(v, indent=2)}\n```",
    "trailing comma": lambda v: json.dumps(v)[:-1] + ",\n}",
    "single quotes": lambda v: quoted(v, "'", "'"),
    "single quotes, trailing comma": lambda v: quoted(v, "'", "'", ","),
    "typographic quotes": lambda v: quoted(v, "“", "”"),
    "typographic single quotes": lambda v: quoted(v, "‘", "’"),
    "raw line ends": lambda v: quoted(v, '"', '"').replace("\\n", "\n"),
    "no comma": lambda v: json.dumps(v, indent=1).replace(",\n", "\n"),
    "cut before the brace": lambda v: json.dumps(v)[:-1],
    "cut in the last quote": lambda v: json.dumps(v)[:-2],
    "after an example": lambda v: 'Not {"a": "b"} but ' + json.dumps(v)[:-1] + ",}",
    "then started anew": lambda v: quoted(v, "'", "'") + ' or {"a": "b", "c": "d',
}


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=60, deadline=None)
@given(value=st.dictionaries(NAMES, PLAIN, min_size=1, max_size=4))
def test_any_dict_of_strings_comes_back_from_every_tolerated_writing(way, value):
    if way == "raw line ends":  # a backslash before an n would be ambiguous
        value = {k: v.replace("\\", "/") for k, v in value.items()}
    assert read_objects(WAYS[way](value))[0] == value


@pytest.mark.parametrize("mark", ["'", '"'])
@settings(max_examples=200, deadline=None)
@given(value=st.dictionaries(NAMES, WORDS, min_size=1, max_size=3))
def test_quotes_that_were_not_escaped_stay_in_the_text_they_are_in(mark, value):
    assert read_objects(unescaped(value, mark))[0] == value


@settings(max_examples=150, deadline=None)
@given(value=st.dictionaries(PLAIN, PLAIN, min_size=1, max_size=3), before=PROSE, after=PROSE)
def test_prose_around_the_object_does_not_matter(value, before, after):
    assert read_objects(f"{before}{json.dumps(value)}{after}")[0] == value


@settings(max_examples=300, deadline=None)
@given(st.text() | st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_no_text_raises(text):
    assert all(isinstance(found, dict) for found in read_objects(text))


@pytest.mark.parametrize("opening", ["{", '{"a":', '{"', "[", "{'", '{"a":[', '{"a":"b",'])
def test_deep_or_endless_openings_neither_raise_nor_hang(opening):
    start = time.perf_counter()
    assert all(isinstance(found, dict) for found in read_objects(opening * 2_000))
    assert time.perf_counter() - start < 10


@pytest.mark.parametrize(
    ("text", "best"),
    [
        ('Think: {"a": "1"}. Final: {"a": "2"}', {"a": "2"}),
        ('{"a": "the "old" name", "b": "x"}', {"a": 'the "old" name', "b": "x"}),
        ('{"a": "stage "II": late"}', {"a": 'stage "II": late'}),
        ("{'a': 'the patient's gout'}", {"a": "the patient's gout"}),
        ('Use {this form}: {"a": "1"}', {"a": "1"}),
        ('{"a": "1", "b": "half a sen', {"a": "1", "b": "half a sen"}),
        ('{"a": "1"}, {"a": "2", "b": "hal', {"a": "1"}),
        ('<think>{"a": "x"</think>{"a": "1", "b": "2"}', {"a": "1", "b": "2"}),
        ('{"a": “1”, "b": \'2\'}', {"a": "1", "b": "2"}),
        ('{"a": {"b": ["c", null]}}', {"a": {"b": ["c", None]}}),
        ("{'a': null, 'b': [\"c, d\", 2], 'e': 1.5,}", {"a": None, "b": ["c, d", 2], "e": 1.5}),
        ('{"a": "\\u00e9\\ud83d\\ude00",}', {"a": "é😀"}),
    ],
)
def test_what_models_write(text, best):
    assert read_objects(text)[0] == best


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no object",
        "null",
        '["a"]',
        "{a: b}",
        '{"a" "b"}',
        '{"a"{',
        "{}",
        '{"a": b}',
        '{"a": 1,000}',
        '{"a": "1", "b": 12',
        '{"a": "1", "b": ["2", "3',
        '{"a": "1", "half a k',
        '{"a": "1", "b":',
        '{"a": "1", "b": tru',
        '{"a": "1, "b": "2"}',
        '{"a": "x "y", "b": z", "c": "d"}',
        '{"a": "1", "b": "2"\n\nNote: it is "2".',
        'Not {"a": "1"} but {"a": [2,}',
        '{"a": "1\\',
        '{"a": "\\x41",}',
    ],
)
def test_what_would_have_to_be_guessed_is_no_object(text):
    assert read_objects(text) == []


# ask_json ----------------------------------------------------------------------------------------


class Says:
    """A model that says one text after another, and keeps what it was asked."""

    name = "says"

    def __init__(self, *texts: str, reasons: tuple[str, ...] = ("stop", "stop")):
        self.texts, self.reasons, self.asked = list(texts), list(reasons), []

    def generate(self, messages, **options):
        self.asked.append((messages, options))
        return [Reply(self.texts.pop(0), self.reasons.pop(0), 1, 1, 0.1, self.name)]


def test_a_good_reply_needs_one_call_and_options_are_passed_on():
    llm = Says(GOOD)
    reply = ask_json(llm, ASK, HYPOTHESES, seed=3, max_tokens=9)
    assert (reply.value, reply.error, reply.repaired) == (VALUE, "", False)
    assert llm.asked == [(ASK, {"schema": HYPOTHESES, "seed": 3, "max_tokens": 9})]


@pytest.mark.parametrize(
    "text",
    [
        f"Sure: {GOOD}",
        GOOD[:-2],
        GOOD[:-1] + ', "why": 3}',
        GOOD[:-1] + ', "why": null}',
        '{"x": {}} ' + GOOD + ' {"x": 1}',
    ],
)
def test_the_object_that_fits_is_taken_without_a_second_call(text):
    reply = ask_json(Says(text), ASK, HYPOTHESES)
    assert reply.value["H_plus"] == "Gout." and set(reply.value) == set(VALUE)
    assert not reply.repaired


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("I do not know.", "no JSON object"),
        ('{"H_plus": "Gout."}', "'H_minus' is a required property"),
        ('{"H_plus": "Gout.", "H_minus": " "}', "'H_minus' is empty"),
        ('{"H_plus": "Gout.", "H_minus": 3}', "3 is not of type 'string'"),
    ],
)
def test_one_repair_call_says_what_was_wrong_then_the_failure_is_recorded(bad, why):
    llm = Says(bad, GOOD)
    reply = ask_json(llm, ASK, HYPOTHESES)
    assert reply.value == VALUE and reply.repaired and len(reply.replies) == 2
    turns = llm.asked[1][0]
    assert turns[:2] == [*ASK, {"role": "assistant", "content": bad}]
    assert why in turns[2]["content"] and "H_plus, H_minus" in turns[2]["content"]
    failed = ask_json(Says("?", bad), ASK, HYPOTHESES)
    assert failed.value is None and failed.repaired and why in failed.error


def test_a_reply_cut_by_max_tokens_is_flagged_even_when_it_parses():
    for text in (GOOD, GOOD[:-5]):
        reply = ask_json(Says(text, reasons=("length",)), ASK, HYPOTHESES)
        assert reply.value and reply.cut
    assert not ask_json(Says("{", GOOD, reasons=("length", "stop")), ASK, HYPOTHESES).cut
    failed = ask_json(Says("{", "{", reasons=("length", "length")), ASK, HYPOTHESES)
    assert failed.value is None and failed.cut and "cut by max_tokens" in failed.error
    assert not ask_json(ScriptedChat([{"match": "", "text": GOOD}]), ASK, HYPOTHESES).cut


def test_the_caller_s_messages_are_left_alone():
    asked = [dict(m) for m in ASK]
    ask_json(Says("?", "?"), asked, HYPOTHESES)
    assert asked == ASK
