"""Findings that doctors read off real articles, and statements that agree with them or do not.

Evidence Inference (DeYoung et al., 2020; annotations MIT) says of an intervention, a comparator and
an outcome whether the outcome went up, down, or neither, and quotes the sentence. A grammar states
the same, or another direction, in many wordings: with the arms in either order and with denials.
Beside a quoted sentence a statement is as often true as not in every wording, so that alone it does
not tell whether it is true. The grammar is ours.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from lib.base.files import sha256_bytes
from lib.data.judgments import read_findings
from lib.studies.nli.pairs import LabelledPair

_HELD_OUT = 0.3
_MOST_LETTERS = 280  # of a quoted sentence; longer ones are paragraphs or tables
_MOST_NAMED = 60  # of an arm or outcome

_SAYS = {
    "up": (
        "{one} significantly increased {outcome} compared with {other}.",
        "{Outcome} was higher with {one} than with {other}.",
        "Compared with {other}, {one} led to more {outcome}.",
        "{Outcome} rose under {one} relative to {other}.",
        "There was greater {outcome} in the {one} group than in the {other} group.",
        "{one} raised {outcome} more than {other} did.",
    ),
    "down": (
        "{one} significantly decreased {outcome} compared with {other}.",
        "{Outcome} was lower with {one} than with {other}.",
        "Compared with {other}, {one} led to less {outcome}.",
        "{Outcome} fell under {one} relative to {other}.",
        "There was smaller {outcome} in the {one} group than in the {other} group.",
        "{one} reduced {outcome} more than {other} did.",
    ),
    "neither": (
        "{one} and {other} did not differ in {outcome}.",
        "There was no significant difference in {outcome} between {one} and {other}.",
        "{Outcome} was similar with {one} and with {other}.",
        "{one} had no effect on {outcome} compared with {other}.",
        "{one} did not change {outcome} relative to {other}.",
    ),
    "not up": (
        "{one} did not increase {outcome} compared with {other}.",
        "{Outcome} was not higher with {one} than with {other}.",
    ),
    "not down": (
        "{one} did not reduce {outcome} compared with {other}.",
        "{Outcome} was not lower with {one} than with {other}.",
    ),
}
_TRUE_OF = {"up": {1}, "down": {-1}, "neither": {0}, "not up": {-1, 0}, "not down": {0, 1}}


class Finding(NamedTuple):
    """A sentence of an article and what it finds; ``direction`` is 1 (more with the intervention),
    -1 (less) or 0 (no difference)."""

    article: str
    prompt: str
    sentence: str
    intervention: str
    comparator: str
    outcome: str
    direction: int


class Wording(NamedTuple):
    """A way to state something: its template, what it says, and whether the arms are swapped."""

    template: str
    says: str
    swapped: bool

    def label(self, direction: int) -> str:
        """Is the statement true of a finding of that direction? entailment or contradiction."""
        seen = -direction if self.swapped else direction
        return "entailment" if seen in _TRUE_OF[self.says] else "contradiction"


WORDINGS = tuple(
    Wording(template, says, swapped)
    for says, templates in _SAYS.items()
    for template, swapped in product(templates, (False, True))
)
"""Every template with the arms in either order."""


def findings(held_out: bool) -> list[Finding]:
    """The findings of the articles held out from training (three tenths, by hash), or the others.

    Only prompts on whose direction every accepted reading agrees, quoted in one sentence of
    prose of at most 280 letters, with arms and outcome of at most 60: a grammar cannot state more.
    """
    found = []
    for row in read_findings():
        named = tuple(row[key].strip(" .;,") for key in ("intervention", "comparator", "outcome"))
        if not all(0 < len(name) <= _MOST_NAMED for name in named) or not _is_prose(row["quote"]):
            continue
        if is_held_out(row["article"]) == held_out:
            quote = " ".join(row["quote"].split())
            found.append(Finding(row["article"], row["prompt"], quote, *named, row["direction"]))
    return found


def _is_prose(quote: str) -> bool:
    """One line that reads as words, not a row of a table."""
    text = quote.strip()
    return (
        "\n" not in text
        and 40 <= len(text) <= _MOST_LETTERS
        and bool(re.search(r"[a-z]{3,} [a-z]{2,} ", text))
    )


def is_held_out(article: str) -> bool:
    """Whether an article, by its PMC number, is kept out of training."""
    share = int(sha256_bytes(f"finding {article}".encode())[:12], 16) / 16**12
    return share < _HELD_OUT


def stated(finding: Finding, wording: Wording) -> str:
    """The finding's arms and outcome in a wording, whether or not it is true of the finding."""
    arms = (finding.intervention, finding.comparator)
    one, other = arms[::-1] if wording.swapped else arms
    return _upper(
        wording.template.format(
            one=one, other=other, outcome=finding.outcome, Outcome=_upper(finding.outcome)
        )
    )


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def held_out_pairs() -> list[LabelledPair]:
    """Each held-out finding with a statement that is true of it and one that is not.

    The statements' kinds are drawn so that each is as often true as not; a group is an article.
    """
    return balanced(findings(held_out=True), times=2, swapped=0.5, seed=1)


def balanced(own: Sequence[Finding], times: int, swapped: float, seed: int) -> list[LabelledPair]:
    """Sentences with statements, as many true as not in every wording."""
    rng = random.Random(seed)
    pairs = []
    for wording in WORDINGS:
        share = 2 * (swapped if wording.swapped else 1 - swapped)
        of_label = defaultdict(list)
        for finding in own:
            of_label[wording.label(finding.direction)].append(finding)
        n = round(times * len(own) * share / len(WORDINGS) / 2)
        n = min(n, *(len(of_label[label]) for label in ("entailment", "contradiction")))
        for label in ("entailment", "contradiction"):
            for finding in rng.sample(of_label[label], n):
                said = stated(finding, wording)
                pairs.append(LabelledPair(finding.sentence, said, label, finding.article))
    return pairs
