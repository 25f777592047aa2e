"""From what models write to checked values: thinking parted, JSON read, one repair, no guesses."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.datasets import Question
from lib.llm import replies as quotes
from lib.llm.chat import ChatModel, Reply, ask_json
from lib.llm.recorder import Recorder
from lib.llm.replies import part, read_objects
from lib.methods.chr import CHR, HYPOTHESES
from lib.methods.csqe import CSQE
from lib.methods.hyde import HyDE
from lib.methods.query2doc import Query2Doc
from lib.methods.thinkqe import ThinkQE
from lib.parse import parse_answer
from tools.texts import as_places

ASK = [{"role": "user", "content": "Which disease?"}]
OPTIONS = {"A": "Gout", "B": "Sepsis", "C": "Lupus", "D": "Measles"}
QUESTION = Question("q1", "What is it?", OPTIONS, "A", "own")


class Says(ChatModel):
    """A model that says one text after another, the last for ever, and keeps what it was asked."""

    name = "m"

    def __init__(self, *texts: str, reasons: tuple[str, ...] = ("stop",)):
        self.texts, self.reasons = list(texts), list(reasons)
        self.asked: list[tuple[list, dict]] = []

    def _say(self, messages, n, options):
        text, reason = self.texts[0], self.reasons[0]
        self.texts, self.reasons = self.texts[1:] or [text], self.reasons[1:] or [reason]
        self.asked.append((messages, options))
        return [Reply(text, reason, 1, 1, 0.1, "m", i) for i in range(n)]


# thinking ----------------------------------------------------------------------------------------

HARMONY = "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>{}"

FORMS = {
    "closed": "<think>\n{}\n</think>\n\n{}",
    "opened by the prompt": "{}\n</think>\n\n{}",
    "in brackets": "[THINK]{}[/THINK]{}",
    "in other signs": "◁think▷{}◁/think▷{}",
    "as special tokens": "<|START_THINKING|>{}<|END_THINKING|><|START_RESPONSE|>{}<|END_RESPONSE|>",
    "in a mark of the turn": "<|im_start|>assistant\n<think>{}</think>\n{}<|im_end|>",
    "MedGemma's": "<unused94>thought\n{}<unused95>{}",
    "Gemma 4's": "<|channel>thought\n{}<channel|>{}",
    "HuatuoGPT-o1's": "## Thinking\n\n{}\n\n## Final Response\n\n{}",
    "answer in tags": "<think>{}</think>\n<answer>{}</answer>",
    "answer in special tokens": (
        "<|begin_of_thought|>{}<|end_of_thought|><|begin_of_solution|>{}<|end_of_solution|>"
    ),
    "harmony": HARMONY,
    "harmony, a recipient": (
        "<|channel|>commentary to=x <|constrain|>json<|message|>{}<|call|><|start|>assistant"
        "<|channel|>final <|constrain|>json<|message|>{}"
    ),
    "harmony without its marks": "analysis{}assistantfinal{}",
    "ended as a sentence": "<think>{}</think>{}</s>",
    "and the next turn": "<think>{}</think>{}<|eot_id|><|start_header_id|>user<|end_header_id|>Hm",
}

CUT = {
    "in its thinking": "<think>\n{}",
    "in its channel": "<|channel|>analysis<|message|>{}",
    "in MedGemma's thinking": "<unused94>thought\n{}",
    "before its final response": "## Thinking\n\n{}",
    "between its channels": "<|channel|>analysis<|message|>{}<|end|><|start|>assistant",
}


WORDS_LIKE_MARKS = (
    "analysis of urate shows gout. The assistant finally left.",
    "p < 0.05 in <i>Escherichia coli</i> [THIN] and x <thinker> y",
    "analysis: urate. The assistant final year student saw gout.",
    "The answer is <answer>",
    "Its ## Thinking",
)


def test_what_is_said_is_parted_from_what_is_thought():
    thought = 'Could be sepsis. The answer is B. {"H_plus": "wrong"}'
    for form, text in FORMS.items():
        assert part(text.format(thought, "Gout is urate.")) == (thought, "Gout is urate."), form
    for form, text in CUT.items():  # nothing is said by a reply that is cut while it thinks
        assert part(text.format("The answer is A. But")).text == "", form
    for text in WORDS_LIKE_MARKS:
        assert part(text) == ("", text)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<[◁")))
def test_a_text_without_marks_stays_as_it_is(text):
    if not text.strip().startswith("analysis"):
        assert part(text) == ("", text)


METHODS = [
    HyDE(samples=1, include_question=False),
    ThinkQE(rounds=1, samples=1),
    Query2Doc(),
    CSQE(samples=1),
]


def expansion(method, llm):
    return method.expand(QUESTION, llm, lambda request, k: [])


def searched(method, llm) -> list[str]:
    request = expansion(method, llm).request
    return [] if request is None else [t.text for t in request.texts if t.role != "question"]


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_a_method_searches_with_the_passage_alone(method):
    if method in METHODS[:2]:
        for form in ("closed", "harmony", "opened by the prompt"):
            text = FORMS[form].format("Could be sepsis.", "Gout is urate.")
            assert searched(method, Says(text)) == ["Gout is urate."]
    # A passage that was never begun, or has no letter, is a failure.
    for text in (CUT["in its thinking"].format("Could be sepsis."), "..."):
        made = expansion(method, Says(text, reasons=("length",)))
        assert made.request is None and made.trace["error"]


DRAFTS = [
    '<think>\nThe form is {"H_plus": "...", "H_minus": "..."}. First',
    '<think>Draft {"H_plus": "wrong", "H_minus": "draft"}, no.</think> I cannot do this.',
    'Draft {"H_plus": "wrong", "H_minus": "draft"}, no.</think> I cannot do this.',
    '{"H_plus": "...", "H_minus": "..."}',
    '{"H_plus": "?", "H_minus": "42"}',
]


def test_neither_a_draft_nor_the_form_of_the_prompt_is_a_hypothesis():
    for text in DRAFTS:
        made = CHR().expand(QUESTION, Says(text, reasons=("length",)), None)
        assert made.request is None and made.trace["error"]
    text = json.dumps({"H_plus": "痛風", "H_minus": "गठिया"}, ensure_ascii=False)
    assert searched(CHR(), Says(text)) == ["痛風", "गठिया"]  # letters of any script


LETTERS = {
    "<think>If so the answer is A. No.</think>\n\nB": "B",
    "<think>Maybe the answer is A. But": "",
    "the answer is A</think>\n\n**B**": "B",
    HARMONY.format("The answer is A", '{"answer_choice": "B"}'): "B",
}


def test_no_letter_is_read_in_the_thinking():
    assert {text: parse_answer(text, OPTIONS).letter for text in LETTERS} == LETTERS


def test_thinking_is_recorded_beside_the_text_also_where_an_older_recording_mixed_them(tmp_path):
    path = tmp_path / "r.jsonl"
    with Recorder(Says("<think>Sepsis?</think>Gout."), path) as recorder:
        recorder.generate(ASK)
    row = json.loads(path.read_text())
    assert (row["reply"]["text"], row["reply"]["thinking"]) == ("Gout.", "Sepsis?")
    mixed = {"text": "<think>Sepsis?</think>Gout.", "thinking": ""}
    older = {name: value for name, value in row.items() if name != "digest"}
    older["reply"] = row["reply"] | mixed
    for line in (row, older):
        path.write_text(json.dumps(line) + "\n")
        (reply,) = Recorder(None, path, "replay").generate(ASK)
        assert (reply.text, reply.thinking) == ("Gout.", "Sepsis?")


# JSON --------------------------------------------------------------------------------------------

GOOD = '{"H_plus": "Gout.", "H_minus": "Pseudogout."}'
VALUE = {"H_plus": "Gout.", "H_minus": "Pseudogout."}
PIECES = [*"{}[:, \n\"'‘\\", '"a"', "'b'", "“c”", "\\u1", "tr"]
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


@pytest.mark.parametrize("spec", WAYS)
@settings(max_examples=30, deadline=None)
@given(value=st.dictionaries(NAMES, PLAIN, min_size=1, max_size=4))
def test_any_dict_of_strings_comes_back_from_every_tolerated_writing(spec, value):
    if spec == "raw line ends":  # a backslash before an n would be ambiguous
        value = {k: v.replace("\\", "/") for k, v in value.items()}
    assert read_objects(WAYS[spec](value))[0] == value


@pytest.mark.parametrize("mark", ["'", '"'])
@settings(max_examples=100, deadline=None)
@given(value=st.dictionaries(NAMES, WORDS, min_size=1, max_size=3))
def test_quotes_that_were_not_escaped_stay_in_the_text_they_are_in(mark, value):
    assert read_objects(unescaped(value, mark))[0] == value


@settings(max_examples=300, deadline=None)
@given(st.text() | st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_no_text_raises(text):
    assert all(isinstance(found, dict) for found in read_objects(text))


READ = [
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
]
UNREAD = [
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
]
"""What would have to be guessed is no object."""


def test_what_models_write_is_read_and_nothing_is_guessed():
    for text, best in READ:
        assert read_objects(text)[0] == best
    for text in UNREAD:
        assert read_objects(text) == [], text


# ask_json ----------------------------------------------------------------------------------------


def test_a_good_reply_needs_one_call_and_options_are_passed_on():
    llm = Says(GOOD)
    reply = ask_json(llm, ASK, HYPOTHESES, seed=3, max_tokens=9)
    assert (reply.value, reply.error, reply.repaired) == (VALUE, "", False)
    ((messages, options),) = llm.asked
    assert messages == ASK
    assert (options["schema"], options["seed"], options["max_tokens"]) == (HYPOTHESES, 3, 9)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("I do not know.", "no JSON object"),
        ('{"H_plus": "Gout."}', "'H_minus' is a required property"),
        ('{"H_plus": "Gout.", "H_minus": " "}', "'H_minus' is empty"),
        ('{"H_plus": "Gout.", "H_minus": 3}', "3 is not of type 'string'"),
        ("<think>hm", "no JSON object"),
    ],
)
def test_one_repair_call_says_what_was_wrong_then_the_failure_is_recorded(bad, why):
    llm = Says(bad, GOOD)
    reply = ask_json(llm, ASK, HYPOTHESES)
    assert reply.value == VALUE and reply.repaired and len(reply.replies) == 2
    turns = llm.asked[1][0]
    # Some servers refuse an empty turn, such as that of a reply that was all thinking.
    said = "(nothing)" if bad == "<think>hm" else bad
    assert turns[:2] == [*ASK, {"role": "assistant", "content": said}]
    assert why in turns[2]["content"] and "H_plus, H_minus" in turns[2]["content"]
    failed = ask_json(Says("?", bad), ASK, HYPOTHESES)
    assert failed.value is None and failed.repaired and why in failed.error


def test_a_reply_cut_by_max_tokens_is_flagged_even_when_it_parses():
    for text in (GOOD, GOOD[:-5]):
        reply = ask_json(Says(text, reasons=("length",)), ASK, HYPOTHESES)
        assert reply.value and reply.cut
    assert not ask_json(Says("{", GOOD, reasons=("length", "stop")), ASK, HYPOTHESES).cut
    failed = ask_json(Says("{", reasons=("length",)), ASK, HYPOTHESES)
    assert failed.value is None and failed.cut and "cut by max_tokens" in failed.error


# quotes ------------------------------------------------------------------------------------------

PASSAGE = "It improves with “regular\nexercise” – at any age. Rest does no good at all."


def test_quotes_kept_as_places_come_back_word_for_word():
    documents = {"a:1": "Nothing of the kind is known here.", "b:2": PASSAGE}
    reply = (
        '[2] "Rest does no good at all." "It heals by itself in a week."\n[1] “nothing of the kind”'
    )
    kept = as_places(reply, documents)
    assert "Rest" not in kept and "heals" not in kept and kept.count("⟨not found⟩") == 1
    back = quotes.with_words(kept, documents)
    assert quotes.quoted(back) == ["Rest does no good at all", "Nothing of the kind"]
    assert quotes.with_words(reply, {}) == reply  # one without places is left as it is
    with pytest.raises(LookupError, match="b:2"):
        quotes.with_words('"⟨b:2 0 4⟩"', {"a:1": "text"})
    # A quote with quotes in it stays one quote.
    plain, nested = (PASSAGE.replace("“", it).replace("”", it) for it in ("", '"'))
    kept = as_places('"improves with regular exercise"', {"p": plain})
    assert len(quotes.quoted(quotes.with_words(kept, {"p": nested}))) == 1
