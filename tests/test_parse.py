"""Both parsers on one table of model outputs, and what ours promises for any text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.parse import named_option, parse_answer, parse_mirage

EXAM = {
    "A": "Myocardial infarction",
    "B": "Pulmonary embolism",
    "C": "Aortic dissection",
    "D": "A febrile seizure",
}
FIVE = EXAM | {"E": "Pericarditis"}
YES_NO = {"A": "yes", "B": "no"}

THINKS = '{"step_by_step_thinking": "...", "answer_choice": '

OUTPUTS = [
    # reply, options, our letter ("" = failure), our rule, MIRAGE's letter
    ("**B**", EXAM, "B", "letter", "A"),
    ("**B. Pulmonary embolism**", EXAM, "B", "letter", "A"),
    (r"\boxed{B}", EXAM, "B", "marked", "A"),
    (r"\boxed{A}? No: \boxed{B}", EXAM, "B", "marked", "A"),
    ("Not A. <answer> (B) Pulmonary embolism </answer>", EXAM, "B", "marked", "A"),
    ("It is an embolism.\n#### B", EXAM, "B", "marked", "A"),
    ('{"answer_choice": ["B"]}', EXAM, "B", "json", "A"),
    ('{"answer_choice": ["A", "B"]}', EXAM, "", "none", "A"),
    ('{"Answer_choice": "B"}', EXAM, "B", "json", "A"),
    ('{"Final Answer": "b) pulmonary embolism"}', EXAM, "B", "json", "A"),
    ('{"answer": "A", "answer_choice": "B"}', EXAM, "B", "json", "B"),
    ("**B.** Pulmonary embolism", EXAM, "B", "letter", "A"),
    ("B\n\nExplanation: aortic dissection is wrong.", EXAM, "B", "letter", "A"),
    ("A. Gout\nB. Pulmonary embolism\nC. Sepsis\n\nThe answer is:\nB.", EXAM, "B", "letter", "B"),
    ("A. Gout is the likeliest here.\n\nThe answer is:\nB. It is not.", EXAM, "B", "letter", "B"),
    ("It is no aortic dissection.\n\nB", EXAM, "B", "last letter", "A"),
    ("Not myocardial infarction.\n\n**B. Pulmonary embolism**", EXAM, "B", "last line", "A"),
    ("- A: wrong\n- B: right", EXAM, "", "none", "A"),
    (r"\boxed{yes}", YES_NO, "A", "marked", "A"),
    ("<answer>no</answer>", YES_NO, "B", "option text", "A"),
    ("【B】", EXAM, "B", "letter", "A"),
    ("B is correct.", EXAM, "B", "announced", "A"),
    ("First: the answer is A. No, the answer is B, it seems.", EXAM, "B", "announced", "A"),
    ("Hepatitis B is right to be thought of.", EXAM, "", "none", "A"),
    ("答案：B", EXAM, "B", "announced", "A"),
    (THINKS + '"C"}', EXAM, "C", "json", "C"),
    (THINKS + '"C. Aortic dissection"}', EXAM, "C", "json", "C"),
    (THINKS + '"c"}', EXAM, "C", "json", "A"),
    (THINKS + '"E"}', FIVE, "E", "json", "A"),
    ('{"step_by_step_thinking": "...", "answer_choice":"D"}', EXAM, "D", "json", "A"),
    (
        '{"step_by_step_thinking": "...", "answer_choice":"aortic dissection"}',
        EXAM,
        "C",
        "json",
        "A",
    ),
    (THINKS + '"D. A febrile seizure"}', EXAM, "D", "json", "D"),
    (THINKS + '"A febrile seizure"}', EXAM, "D", "json", "A"),
    ("{'step_by_step_thinking': '...', 'answer_choice': 'C'}", EXAM, "C", "mended json", "A"),
    (
        '```json\n{"step_by_step_thinking": "...", "answer_choice": "B",}\n```',
        EXAM,
        "B",
        "mended json",
        "B",
    ),
    ('First {"answer_choice": "A"}, no: {"answer_choice": "D"}', EXAM, "D", "mended json", "D"),
    ("The answer is C.", EXAM, "C", "announced", "A"),
    ("The answer is (b).", EXAM, "B", "announced", "A"),
    ("So the correct option is B, pulmonary embolism.", EXAM, "B", "announced", "A"),
    ("I would first say option A, but the final answer is option D.", EXAM, "D", "announced", "A"),
    ("**Final Answer:** **(C)**", EXAM, "C", "announced", "A"),
    ("The answer is C, not option D.", EXAM, "C", "announced", "D"),
    (
        "The best answer is C) Aortic dissection, for option A is excluded.",
        EXAM,
        "C",
        "announced",
        "A",
    ),
    ("Option B fits, option A does not.", EXAM, "", "none", "B"),
    ('{"answer_choice": "C or D"}', EXAM, "", "none", "C"),
    ("I would choose option B.", EXAM, "B", "announced", "B"),
    ("C.", EXAM, "C", "letter", "C"),
    ("B. Pulmonary embolism", EXAM, "B", "letter", "B"),
    ("Pulmonary embolism", EXAM, "B", "option text", "A"),
    ("A febrile seizure", EXAM, "D", "letter", "A"),
    ("This is most likely pulmonary embolism because of the calf.", EXAM, "B", "option text", "A"),
    ("Pulmonary embolism or aortic dissection", EXAM, "", "none", "A"),
    ("Diabetes: A common disease", EXAM, "", "none", "A"),
    ("The answer is a disease of the lung", EXAM, "", "none", "A"),
    ("No, it does not.", YES_NO, "B", "yes or no", "A"),
    ("Yes", YES_NO, "A", "option text", "A"),
    ("The trial was small. The answer is no.", YES_NO, "B", "yes or no", "A"),
    ("Yes, perhaps, but my final answer is: 'no'", YES_NO, "B", "yes or no", "A"),
    ("The answer is not known", YES_NO, "", "none", "A"),
    ("There is no evidence that yes is right", YES_NO, "", "none", "A"),
    ("The answer is F.", EXAM, "", "none", "A"),
    ('{"step_by_step_thinking": "The patient has', EXAM, "", "none", "A"),
    ("", EXAM, "", "none", "A"),
]


def test_every_reply_is_read_by_both_parsers():
    for reply, options, ours, rule, mirage in OUTPUTS:
        assert (*parse_answer(reply, options), parse_mirage(reply)) == (ours, rule, mirage), reply


@pytest.mark.parametrize(
    ("text", "options", "letter"),
    [
        ("It is GOUT, in the toe.", {"A": "Gout", "B": "Gou"}, "A"),
        ("Gouty arthritis", {"A": "Gout"}, ""),
        ("Gout, not Lyme disease", {"A": "Gout", "B": "Lyme disease"}, ""),
        ("No, the diagnosis is another one: yes", YES_NO, "B"),
        ("There is no doubt", YES_NO, ""),
        ("The diagnosis is known.", YES_NO, ""),
    ],
)
def test_an_option_is_named_by_whole_words_and_alone(text, options, letter):
    assert named_option(text, options) == letter


texts = st.text(max_size=60) | st.lists(
    st.sampled_from(
        [
            "The answer is ",
            "A",
            "b",
            "(C)",
            "E",
            "answer_choice",
            '"',
            "'",
            "{",
            "}",
            ": ",
            ", ",
            "yes",
            "no",
            "option ",
            "\n",
            "Pulmonary embolism",
            "a ",
            ".",
        ]
    ),
    max_size=14,
).map("".join)


@given(texts, st.sampled_from([EXAM, FIVE, YES_NO, {"B": "no", "C": "maybe"}]))
@settings(max_examples=300, deadline=None)
def test_our_parser_never_returns_what_is_not_an_option(text, options):
    found = parse_answer(text, options)
    assert found.letter in {"", *options} and (found.rule == "none") == (found.letter == "")
    assert parse_mirage(text) in "ABCD"


@given(st.sampled_from("ABCD"), st.text(max_size=40))
def test_a_well_formed_reply_is_read_alike_whatever_the_reasoning(letter, thinking):
    import json

    reply = json.dumps({"step_by_step_thinking": thinking, "answer_choice": letter})
    assert parse_answer(reply, EXAM) == (letter, "json")


def test_a_star_in_an_options_text_is_part_of_it_and_small_letters_may_name_options():
    alleles = {"A": "HLA-DR4", "B": "HLA-B*27"}
    for text in ('{"answer_choice": "HLA-B*27"}', "**B. HLA-B*27**", "HLA-B*27"):
        assert parse_answer(text, alleles).letter == "B"
    for text in ('{"answer_choice": "b"}', "B"):
        assert parse_answer(text, {"a": "gout", "b": "sepsis"}).letter == "b"
