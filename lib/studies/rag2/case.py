"""One case by eye (RAG2's Figure 4): an exacerbation of COPD, on open passages.

In the paper a rationale finds a text on tension pneumothorax, true and beside the point; the model
decompresses the chest, and with that text filtered out it does not. The vignette, the options and
the rationale here are our own, and no model wrote them (*reference text*): the exam's question may
not be shown, and the paper prints parts of it. Of a passage its title and its id are shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pandas as pd

from lib.data.store import PassageStore
from lib.datasets import Question
from lib.methods.base import stem
from lib.methods.rag2 import RAG2
from lib.run import Retriever, execute
from lib.studies.rag2.filters import Filter

CASE = Question(
    qid="copd-case",
    text=(
        "A 66-year-old man with long-standing COPD has had three days of worsening breathlessness "
        "and more sputum than usual. He is drowsy but can be roused, and he protects his airway. "
        "He breathes 30 times a minute with pursed lips; both lungs wheeze and the trachea is "
        "central. After bronchodilators, a steroid and controlled oxygen the arterial pH is 7.26 "
        "and the carbon dioxide tension 71 mm Hg. What is done next?"
    ),
    options={
        "A": "Bilevel positive airway pressure through a mask",
        "B": "Needle decompression of the chest",
        "C": "Intubation and mechanical ventilation",
        "D": "A higher concentration of oxygen and nothing else",
    },
    answer="A",
    dataset="our own",
)
"""Reference text: our vignette on the case that the paper describes, with our options."""

RATIONALE = (
    "Respiratory acidosis that persists under full medical treatment of a COPD exacerbation, in a "
    "patient who is awake enough to protect the airway, calls for noninvasive ventilation with two "
    "levels of pressure, which rests the respiratory muscles, lowers carbon dioxide and spares "
    "most patients a tube. Intubation is kept for failure of the mask or loss of the airway, and "
    "with breath sounds on both sides and a central trachea nothing speaks for air under tension "
    "in the pleura."
)
"""Reference text: why A is right, and what C and B would need."""

STRAYING = (
    "Sudden worsening in a patient with emphysema points to a ruptured bulla and a tension "
    "pneumothorax, in which trapped air collapses the lung and presses on the great veins. Needle "
    "decompression of the chest relieves the pressure at once, so it comes before anything else."
)
"""Reference text: a rationale that goes wrong as the paper's model did, and argues for B."""

TERMS: Mapping[str, str] = {
    "A": r"non-?invasive (?:positive|ventilat)|bi-?level|\bbipap\b|\bnippv\b|\bniv\b",
    "B": r"pneumothorax|decompression of the chest|needle decompression|chest tube",
    "C": r"\bintubat|mechanical ventilation|\bventilators?\b",
    "D": r"oxygen therapy|supplemental oxygen|high-flow oxygen",
}
"""Words, in lower case, by which a passage names what an option proposes; it need not agree."""

COLUMNS = (
    "searched_with",
    "rank",
    "pid",
    "source",
    "title",
    "names",
    "filter",
    "threshold",
    "score",
    "kept",
)

_COPD = re.compile(r"\bcopd\b|chronic obstructive pulmonary")

QUERIES: Mapping[str, str] = {
    "question": "",
    "rationale": RATIONALE,
    "straying rationale": STRAYING,
}
"""What is searched with; the question is its own text."""


def copd_case(retriever: Retriever, filters: Sequence[Filter], k: int = 8) -> pd.DataFrame:
    """What question and rationale find, and what filters make of it, columns ``COLUMNS``.

    One row for each query, passage and filter; filters read the question with its options. Give one
    filter twice, once with each of its thresholds, to see both lines. ``names`` are the
    letters of the options whose ``TERMS`` stand in the passage or its title. Without filters there
    is one row for each passage.
    """
    asked = stem(CASE, options_visible=True)
    rows = []
    for query, rationale in QUERIES.items():
        arm = RAG2(query="rationale" if rationale else "question")
        expansion = arm.given(CASE, rationale)
        run, _ = execute(query, [CASE], [expansion], retriever, k)
        passages = retriever.store.get_many(run["pid"].tolist())
        pairs = [(asked, passage.text) for passage in passages]
        scores = {position: judge.scores(pairs) for position, judge in enumerate(filters)}
        for i, passage in enumerate(passages):
            found = {
                "searched_with": query,
                "rank": i + 1,
                "pid": passage.pid,
                "source": passage.source,
                "title": passage.title or "(no title)",
                "names": _names(f"{passage.title} {passage.text}"),
            }
            if not filters:
                rows.append(found)
            for position, judge in enumerate(filters):
                score = float(scores[position][i])
                verdict = {"filter": judge.name, "threshold": judge.threshold, "score": score}
                rows.append(found | verdict | {"kept": score >= judge.threshold})
    return pd.DataFrame(rows, columns=list(COLUMNS))


def case_tables(retriever: Retriever, filters: Sequence[Filter]) -> dict[str, pd.DataFrame]:
    """``rag2_case`` and ``rag2_case_named``: what is found, and what there was to be found."""
    return {
        "rag2_case": copd_case(retriever, filters),
        "rag2_case_named": named_in(retriever.store),
    }


def named_in(store: PassageStore) -> pd.DataFrame:
    """How much of the corpus could speak of each option: letter, option, passages, with_copd.

    ``passages`` have its ``TERMS``; ``with_copd`` of them also name COPD.
    """
    counts = {letter: [0, 0] for letter in CASE.options}
    for passage in store:
        text = f"{passage.title} {passage.text}"
        for letter in _names(text):
            counts[letter][0] += 1
            counts[letter][1] += bool(_COPD.search(text.casefold()))
    rows = [(letter, CASE.options[letter], *both) for letter, both in counts.items()]
    return pd.DataFrame(rows, columns=["letter", "option", "passages", "with_copd"])


def _names(text: str) -> str:
    """Letters of the options that a text names, such as "AC"."""
    plain = text.casefold()
    return "".join(letter for letter, words in TERMS.items() if re.search(words, plain))
