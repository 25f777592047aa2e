"""Three tiers of PubMed queries for one need (*When Evidence Contradicts*, section 3.2).

PubMed has no sentence operator and no NEAR. Its proximity form is ``"w1 w2"[tiab:~N]``: all words,
in any order, at most N others between them, in the title (ti), title or abstract (tiab) or the
affiliation (ad); nothing inside is an operator or a wildcard (NLM Technical Bulletin 2022, 449:e4).
``~0`` finds neighbours, also those that PubMed's index of phrases does not know.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lib.studies.evidence.records import Need

_MAKERS = re.compile(  # as they stand in the names of medicines; not "GH", which is a hormone too
    r"\b(?:abbvie|accord|alphapharm|amgen|amneal|apo|apotex|arrow|aspen|astellas|astrazeneca|"
    r"aurobindo|bayer|biocon|boehringer ingelheim|bristol[- ]myers squibb|chemmart|cipla|"
    r"dr\.? ?reddy['’]?s|(?:eli )?lilly|fresenius(?: kabi)?|generic health|genrx|gilead|"
    r"glaxosmithkline|glenmark|gsk|hospira|intas|janssen(?:[- ]cilag)?|lundbeck|lupin|"
    r"merck(?: sharp (?:&|and) dohme)?|msd|mylan|novartis|novo nordisk|organon|pfizer|pharmacor|"
    r"ranbaxy|roche|sandoz|sanofi(?:[- ]aventis)?|servier|sun pharma|takeda|terry white|teva|"
    r"torrent|viatris|wockhardt|zydus)\b[\s-]*",
    re.IGNORECASE,
)
_DOSE = re.compile(
    r"\b\d+(?:[.,]\d+)*\s*(?:mg|mcg|[µμ]g|micrograms?|g|ml|iu|units?)\b"
    r"(?:\s*/\s*(?:\d+(?:[.,]\d+)*\s*)?(?:mg|ml|g|hours?|dose)\b)?|\b\d+(?:[.,]\d+)*\s*%",
    re.IGNORECASE,
)
_USE = re.compile(r"use[ds]?|using|take[ns]?|taking|took|know[ns]?|knew")  # leaflets' own verbs
_WORD = re.compile(r"\w[\w'’-]*")


@dataclass(frozen=True)
class Query:
    """One search: its tier, PubMed's text, and words that must then share one sentence."""

    tier: int
    term: str
    together: tuple[str, ...] = ()


def terms(question: str, by: str = "pos", drop_stop_verbs: bool = True) -> list[str]:
    """T of a question: its nouns (NN*), verbs (VB*) and proper nouns, in lower case, once each.

    ``by="pos"`` asks the tagger inside TextBlob (the paper's spaCy has no English model on PyPI);
    of a word with a hyphen it tags the last part. ``by="stopwords"``: all words but the 179 stop
    words of bm25s. The paper keeps auxiliaries, use, take and know. Raises ImportError without
    TextBlob, ValueError for another ``by``.
    """
    from bm25s.stopwords import STOPWORDS_EN_PLUS as STOP

    found = _WORD.findall(question)
    if by == "pos":
        try:
            from textblob.en.taggers import PatternTagger
        except ImportError as error:
            remedy = "run: pip install -r requirements.txt, or choose by='stopwords'"
            raise ImportError(f"terms by part of speech need textblob; {remedy}") from error
        tag = PatternTagger().tag
        found = []
        for word, kind in tag(question):
            if not _WORD.fullmatch(word):
                continue
            if "-" in word[1:-1]:  # the tagger takes every word with a hyphen for an adjective
                last_part = word.rpartition("-")[2]
                kind = tag(last_part)[0][1]
            if kind.startswith(("NN", "VB")):
                found.append(word)
    elif by != "stopwords":
        raise ValueError(f"terms by {by!r}: choose 'pos' or 'stopwords'")
    words = dict.fromkeys(word.lower() for word in found)
    if drop_stop_verbs or by == "stopwords":
        words = [word for word in words if word not in STOP]
    return [word for word in words if not (drop_stop_verbs and _USE.fullmatch(word))]


def tiers(
    need: Need,
    *,
    by: str = "pos",
    drop_stop_verbs: bool = True,
    exact_sentence: bool = True,
    near: int = 25,
) -> list[Query]:
    """Q1, Q2 and Q3 of a need, without makers' names and doses, the medicine's words always in T.

    Q1: all of T in one sentence; exact, it asks for all of T and leaves ``together`` to be checked
    in the text, else for at most 15 words between them. Q2: T within ``near`` words, and the
    medicine in the title. Q3: all words of the question but stop words, within ``near``. Without
    stop verbs nothing but the medicine is left of headings 1, 2, 4 and 5: those four then ask the
    same. Raises ValueError for a medicine whose name is nothing but a maker's.
    """
    question = _without_maker_and_dose(need.question)
    name = _without_maker_and_dose(need.medicine.lower())
    medicine = [word for word in _WORD.findall(name) if word not in ("and", "with")]
    if not medicine:
        raise ValueError(f"{need.qid}: no words left of the medicine {need.medicine!r}")
    parts_of_name = {*medicine, *re.findall(r"\w+", name)}  # a tagger cuts John's in two

    def with_name(kind: str) -> list[str]:
        words = terms(question, kind, drop_stop_verbs)
        others = [word for word in words if word not in parts_of_name]
        return [*others, *dict.fromkeys(medicine)]

    wanted = with_name(by)
    if exact_sentence:
        every_word = " AND ".join(f'"{word}"[tiab]' for word in wanted)
        first = Query(1, every_word, together=tuple(wanted))
    else:
        first = Query(1, _near(wanted, "tiab", 15))
    second = Query(2, f"{_near(wanted, 'tiab', near)} AND {_near(medicine, 'ti', 0)}")
    third = Query(3, _near(with_name("stopwords"), "tiab", near))
    return [first, second, third]


def _without_maker_and_dose(text: str) -> str:
    return _MAKERS.sub("", _DOSE.sub("", text))


def _near(words: list[str], field: str, distance: int) -> str:
    """Words near each other in PubMed's form, which needs two; one word is asked for as it is."""
    proximity = f":~{distance}" if len(words) > 1 else ""
    return f'"{" ".join(words)}"[{field}{proximity}]'
