"""What a question is, wherever it is from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """One question; ``options`` maps letters to texts and ``answer`` is the right letter.

    What experts found relevant (BioASQ, PubMedQA): documents ``gold_pmids``, pieces of abstracts
    ``gold_snippets``, and beside each piece the document it is from, ``snippet_pmids``. The last
    four are ddx-mini's: the right topic, its mimic, dev or test, and the book to check in.
    """

    qid: str
    text: str
    options: dict[str, str]
    answer: str
    dataset: str
    subset: str = ""
    gold_pmids: tuple[str, ...] = ()
    gold_snippets: tuple[str, ...] = ()
    snippet_pmids: tuple[str, ...] = ()
    ideal_answer: str = ""
    question_type: str = ""
    target: str = ""
    mimic: str = ""
    split: str = ""
    check: str = ""
    also_right: tuple[str, ...] = ()
    """Further letters that count as right, where a question has several right answers."""

    @property
    def right(self) -> str:
        """All right letters, one after the other; empty without an answer."""
        return "".join((self.answer, *self.also_right))

    def is_right(self, letter: str) -> bool:
        """Whether this letter is a right answer."""
        return letter == self.answer or letter in self.also_right
