"""Thinking and template marks never reach a search or a parser, whatever form they come in."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.base.paths import RECORDINGS
from lib.datasets import Question
from lib.llm.chat import ChatModel, Reply
from lib.llm.recorder import Recorder
from lib.llm.thinking import part
from lib.methods.chr import CHR
from lib.methods.csqe import CSQE
from lib.methods.differential import Differential
from lib.methods.hyde import HyDE
from lib.methods.query2doc import Query2Doc
from lib.methods.thinkqe import ThinkQE
from lib.parse import parse_answer

QUESTION = Question(
    "q1", "What is it?", {"A": "Gout", "B": "Sepsis", "C": "Lupus", "D": "Measles"}, "A", "own"
)
HARMONY = "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>{}"

FORMS = {
    "closed": "<think>\n{}\n</think>\n\n{}",
    "opened by the prompt": "{}\n</think>\n\n{}",
    "in capitals": "<THINK>{}</THINK>{}",
    "another name": "<thinking>{}</thinking>\n{}",
    "with a prefix": "<seed:think>{}</seed:think>{}",
    "in brackets": "[THINK]{}[/THINK]{}",
    "in other signs": "◁think▷{}◁/think▷{}",
    "as special tokens": "<|START_THINKING|>{}<|END_THINKING|><|START_RESPONSE|>{}<|END_RESPONSE|>",
    "in a mark of the turn": "<|im_start|>assistant\n<think>{}</think>\n{}<|im_end|>",
    "MedGemma's": "<unused94>thought\n{}<unused95>{}",
    "Gemma 4's": "<|channel>thought\n{}<channel|>{}",
    "HuatuoGPT-o1's": "## Thinking\n\n{}\n\n## Final Response\n\n{}",
    "answer in tags": "<think>{}</think>\n<answer>{}</answer>",
    "answer in tags, cut": "<think>{}</think>\n<answer>\n{}",
    "answer in special tokens": (
        "<|begin_of_thought|>{}<|end_of_thought|><|begin_of_solution|>{}<|end_of_solution|>"
    ),
    "harmony": HARMONY,
    "harmony with its end": HARMONY + "<|return|>",
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
    "in its second thinking": "<think>a</think><think>{}",
    "in its channel": "<|channel|>analysis<|message|>{}",
    "in its channel, without its marks": "analysis{}",
    "in MedGemma's thinking": "<unused94>thought\n{}",
    "before its final response": "## Thinking\n\n{}",
    "between its channels": "<|channel|>analysis<|message|>{}<|end|><|start|>assistant",
}


@pytest.mark.parametrize("form", FORMS)
def test_what_is_said_is_parted_from_what_is_thought(form):
    thought = 'Could be sepsis. The answer is B. {"H_plus": "wrong"}'
    assert part(FORMS[form].format(thought, "Gout is urate.")) == (thought, "Gout is urate.")


@pytest.mark.parametrize("form", CUT)
def test_nothing_is_said_by_a_reply_that_is_cut_while_it_thinks(form):
    assert part(CUT[form].format("The answer is A. But")).text == ""


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<[◁")))
def test_a_text_without_marks_stays_as_it_is(text):
    if not text.strip().startswith("analysis"):
        assert part(text) == ("", text)


@pytest.mark.parametrize(
    "text",
    [
        "analysis of urate shows gout. The assistant finally left.",
        "p < 0.05 in <i>Escherichia coli</i> [THIN] and x <thinker> y",
        "analysis is the final step",
        "analysis: urate. The assistant final year student saw gout.",
        "The answer is <answer>",
        "Its ## Thinking",
    ],
)
def test_words_that_look_like_marks_are_text(text):
    assert part(text) == ("", text)


@given(st.sampled_from(sorted(FORMS)), st.sampled_from(sorted(CUT)), st.text("abc <>/|"))
def test_parting_twice_changes_nothing(form, cut, filler):
    for text in (FORMS[form].format("thought", f"said {filler}"), CUT[cut].format(filler)):
        once = part(text).text
        assert part(once).text == once


class Says(ChatModel):
    """A model with one reply."""

    name = "m"

    def __init__(self, text: str, reason: str = "stop"):
        self.text, self.reason = text, reason

    def _say(self, messages, n, options):
        return [Reply(self.text, self.reason, 1, 1, 0.1, "m", i) for i in range(n)]


def searched(method, llm) -> list[str]:
    request = method.expand(QUESTION, llm, lambda request, k: []).request
    return [] if request is None else [t.text for t in request.texts if t.role != "question"]


METHODS = [HyDE(samples=1, include_question=False), ThinkQE(rounds=1, samples=1)]


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
@pytest.mark.parametrize("form", FORMS)
def test_a_method_searches_with_the_passage_alone(form, method):
    text = FORMS[form].format("Could be sepsis.", "Gout is urate.")
    assert searched(method, Says(text)) == ["Gout is urate."]


@pytest.mark.parametrize("method", [*METHODS, Query2Doc()], ids=lambda m: m.name)
@pytest.mark.parametrize("form", CUT)
def test_a_passage_that_was_never_begun_is_a_failure(form, method):
    llm = Says(CUT[form].format("Could be sepsis."), "length")
    made = method.expand(QUESTION, llm, lambda request, k: [])
    assert made.request is None and made.trace["error"]


def test_a_prompted_thinker_that_is_cut_before_it_closes_has_written_nothing():
    """Its prompt asks for the marks: without them it never came to its passage."""
    prompted = ThinkQE(rounds=1, samples=1, thinking="prompted")
    assert searched(prompted, Says("Let me see", "length")) == []
    assert searched(prompted, Says("<think>so</think> Gout.", "length")) == ["Gout."]
    assert searched(prompted, Says("Gout.", "stop")) == ["Gout."]


DRAFTS = [
    '<think>\nThe form is {"H_plus": "...", "H_minus": "..."}. First',
    '<think>Draft {"H_plus": "wrong", "H_minus": "draft"}, no.</think> I cannot do this.',
    'Draft {"H_plus": "wrong", "H_minus": "draft"}, no.</think> I cannot do this.',
    '{"H_plus": "...", "H_minus": "..."}',
    '{"H_plus": "?", "H_minus": "42"}',
]


@pytest.mark.parametrize("text", DRAFTS)
def test_neither_a_draft_nor_the_form_of_the_prompt_is_a_hypothesis(text):
    made = CHR().expand(QUESTION, Says(text, "length"), None)
    assert made.request is None and made.trace["error"]


def test_mimics_that_say_nothing_are_left_out():
    pair = {"H_plus": "gout", "H_minus": "sepsis"}

    def mimics(*texts: str) -> list[str]:
        llm = Says(json.dumps(pair | {"mimics": texts}))
        made = Differential().expand(QUESTION, llm, None).request
        return [] if made is None else [t.text for t in made.texts if t.role == "mimic"]

    assert mimics("sepsis", "...", "lupus") == ["sepsis", "lupus"]
    assert mimics("...", "-") == []


def test_a_reply_without_text_is_repaired_without_an_empty_turn():
    """Some servers refuse one."""
    asked = []

    class Thinks(Says):
        def _say(self, messages, n, options):
            asked.append(messages)
            return super()._say(messages, n, options)

    CHR().expand(QUESTION, Thinks("<think>hm", "length"), None)
    assert len(asked) == 2 and all(message["content"].strip() for message in asked[1])


@pytest.mark.parametrize(
    "method", [*METHODS, Query2Doc(), CSQE(samples=1)], ids=lambda method: method.name
)
def test_a_passage_without_a_letter_is_a_failure(method):
    made = method.expand(QUESTION, Says("..."), lambda request, k: [])
    assert made.request is None and made.trace["error"]


@pytest.mark.parametrize("word", ["gout", "痛風", "подагра", "نقرس", "गठिया"])
def test_a_hypothesis_has_letters_of_any_script(word):
    text = json.dumps({"H_plus": word, "H_minus": word}, ensure_ascii=False)
    assert searched(CHR(), Says(text)) == [word, word]


@pytest.mark.parametrize(
    "text, letter",
    [
        ("<think>If so the answer is A. No.</think>\n\nB", "B"),
        ("<think>Maybe the answer is A. But", ""),
        ("the answer is A</think>\n\n**B**", "B"),
        (HARMONY.format("The answer is A", '{"answer_choice": "B"}'), "B"),
    ],
)
def test_no_letter_is_read_in_the_thinking(text, letter):
    assert parse_answer(text, QUESTION.options).letter == letter


def test_thinking_is_recorded_beside_the_text_and_comes_back(tmp_path):
    text = "<think>Sepsis?</think>Gout."
    path = tmp_path / "r.jsonl"
    with Recorder(Says(text), path) as recorder:
        (first,) = recorder.generate([{"role": "user", "content": "?"}])
    (row,) = map(json.loads, path.read_text().splitlines())
    assert (row["reply"]["text"], row["reply"]["thinking"]) == ("Gout.", "Sepsis?")
    (again,) = Recorder(None, path, "replay").generate([{"role": "user", "content": "?"}])
    assert (again.text, again.thinking) == (first.text, first.thinking) == ("Gout.", "Sepsis?")


def test_a_recording_made_before_is_read_rightly(tmp_path, monkeypatch):
    """It holds the thinking in its text."""
    path = tmp_path / "r.jsonl"
    asked = [{"role": "user", "content": "?"}]
    with Recorder(Says("@Sepsis?#Gout."), path) as recorder:
        recorder.generate(asked)
    row = json.loads(path.read_text())
    row["reply"]["text"] = "<think>Sepsis?</think>Gout."
    row.pop("digest", None)
    old = {name: value for name, value in row.items() if name != "sha"}
    path.write_text(json.dumps({k: v for k, v in old.items() if not k.startswith("row")}) + "\n")
    for manifest in tmp_path.glob("*.manifest.json"):
        manifest.unlink()
    (reply,) = Recorder(None, path, "replay").generate(asked)
    assert (reply.thinking, reply.text) == ("Sepsis?", "Gout.")


def test_no_committed_reply_is_another_one_for_it():
    replies = 0
    for file in [*RECORDINGS.glob("*.jsonl"), *RECORDINGS.glob("*.jsonl.gz")]:
        opened = gzip.open if file.suffix == ".gz" else open
        with opened(file, "rt", encoding="utf-8") as lines:
            for line in lines:
                if reply := json.loads(line).get("reply"):
                    replies += 1
                    assert part(reply["text"]) == ("", reply["text"])
    assert replies > 10_000
