"""Rows of Table 1 without a reader: always the commonest letter, and the option that H+ names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from lib.datasets import Question
from lib.methods.base import Expansion
from lib.readers import Reader
from lib.studies.main_tables.experiment import NAMED, Experiment
from lib.studies.naming import named_option


def answers_without_reader(experiment: Experiment, fallback: Reader) -> list[pd.DataFrame]:
    """Tables like the grid's answers: for each set the majority's, then the option that H+ names.

    ``fallback`` is a reader without an LLM: it answers from H+ and H- where H+ names no option. A
    set whose hypotheses nobody recorded has the majority's answers only.
    """
    tables = []
    for dataset, questions in experiment.grid.sets.items():
        answers = pd.DataFrame(
            {
                "dataset": dataset,
                "qid": [question.qid for question in questions],
                "gold": [question.answer for question in questions],
            }
        )
        commonest = answers["gold"].mode()[0]
        tables.append(answers.assign(method="majority", letter=commonest, mirage=commonest))

        read = experiment.grid.answers("hypotheses_as_context", dataset, fallback)
        if read is not None:
            asked = experiment.grid.questions("chr", dataset)
            expansions = experiment.grid.expansions("chr", dataset)
            by_reader = dict(zip(read["qid"], read["letter"], strict=True))
            letters = named_letters(asked, expansions, by_reader)
            answers = answers[answers["qid"].isin(letters)]
            named = answers["qid"].map(letters)
            tables.append(answers.assign(method=NAMED, letter=named, mirage=named))
    return [table.assign(reader="no reader", rule="", documents_cut=0) for table in tables]


def named_letters(
    questions: Sequence[Question],
    expansions: Sequence[Expansion],
    by_reader: Mapping[str, str],
) -> dict[str, str]:
    """By question id, the letter whose option alone stands in H+; else the reader's letter.

    Yes and no are answers only where H+ begins with them. An expander that failed has no answer.
    """
    letters = {}
    for question, expansion in zip(questions, expansions, strict=True):
        h_plus = expansion.trace.get("H_plus", "")
        letter = named_option(h_plus, question.options)
        if h_plus and not letter:
            letter = by_reader.get(question.qid, "")
        letters[question.qid] = letter
    return letters
