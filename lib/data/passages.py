"""What a passage is, and the corpora there are: licence, size and the files each is read from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lib.base.downloads import load_registry

PASSAGE_CHARS = 1000
OPEN_CORPUS = ("bioasq", "pubmedqa", "medquad", "openstax")


@dataclass(frozen=True)
class Passage:
    """A text that can be retrieved. ``pid`` is stable, and unique over all sources.

    ``source`` is the corpus, except in ddx-mini, which has four sources of its own.
    """

    pid: str
    title: str
    text: str
    source: str
    meta: dict[str, Any]


@dataclass(frozen=True)
class Corpus:
    """A source of passages: its licence, how many it has, and what it is read from.

    ``read_from`` is a path below the data folder (with a "/") or how its registry names begin.
    """

    licence: str
    passages: int
    read_from: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        """What it is read from: names in the registry, or a path below the data folder."""
        if not self.read_from:  # what is read from the hub or NCBI is not in the registry
            return ()
        if "/" in self.read_from:
            return (self.read_from,)
        return tuple(load_registry(self.read_from))


CORPORA = {
    "bioasq": Corpus("CC BY 2.5 (BioASQ terms)", 21_231, "bioasq-"),
    "pubmedqa": Corpus("MIT", 1_939, "pubmedqa-labelled"),
    "medquad": Corpus("CC BY 4.0", 30_498, "medquad-"),
    "openstax": Corpus("CC BY 4.0; Anatomy and Microbiology CC BY-NC-SA 4.0", 16_062, "openstax-"),
    "ddx-mini": Corpus("MIT", 624, "ddx-mini/passages.jsonl"),
    # The paper's corpus, MedCorp, with the numbers that its authors print (Xiong et al., ACL 2024):
    "pubmed": Corpus("NLM terms", 23_900_000),
    "textbooks": Corpus("publishers'", 125_800),
    "wikipedia": Corpus("CC BY-SA 3.0", 29_900_000),
    "statpearls": Corpus("CC BY-NC-ND 4.0", 301_200),
}
