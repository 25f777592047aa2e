"""PubMed abstracts for a need, by NCBI's E-utilities; how often each is cited, by NIH iCite.

A need is asked in three tiers of queries (*When Evidence Contradicts*, section 3.2). PubMed has no
sentence operator and no NEAR. Its proximity form is ``"w1 w2"[tiab:~N]``: all words, in any order,
at most N others between them, in the title (ti), title or abstract (tiab); nothing inside is an
operator or a wildcard (NLM Technical Bulletin 2022, 449:e4). ``~0`` finds neighbours.

Every good reply is kept with its date below the cache, so a run that was stopped asks for nothing
twice; delete the folder to ask anew.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from http.client import HTTPException
from pathlib import Path
from time import sleep
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen
from xml.etree.ElementTree import Element

from lib.base.command import redacted
from lib.base.files import atomic_write, canonical_json, sha256_bytes
from lib.base.paths import cache
from lib.data.passages import parse_xml, tidy
from lib.studies.contradiction.evidence import (
    UNKNOWN,
    Evidence,
    Need,
    inner_text,
    readable,
)
from lib.studies.contradiction.nli import sentences

EUTILS = "https://eutils.ncbi.nlm.nih.gov/entrez/eutils"
ICITE = "https://icite.od.nih.gov/api"
LIMIT = 9_999
"""Records that PubMed lists of one search at most."""
BATCH = 300
"""Records a request, as in the paper."""
ICITE_BATCH = 200
"""iCite's most a request."""
TRIES, WAIT_S, TIMEOUT_S = 6, 1.0, 60
"""How often a request is tried, the first pause in seconds (doubled each time), and how long a
reply may take."""

_YEARS = (1975, 2025)
# What a bad line or a broken reply raises while it is received or read.
_FAULTS = (OSError, HTTPException, ValueError, LookupError, TypeError)
_DATES = ("PubDate/Year", "PubDate/MedlineDate", "ArticleDate/Year")


# queries ------------------------------------------------------------------------------------------

# As they stand in the names of medicines, a pattern a line; not "GH", which is a hormone too.
_NAMES = Path(__file__).with_name("makers.txt").read_text(encoding="utf-8").splitlines()
_MAKERS = re.compile(rf"\b(?:{'|'.join(_NAMES)})\b[\s-]*", re.IGNORECASE)
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


def terms(question: str, by: str = "pos") -> list[str]:
    """T of a question: its nouns (NN*), verbs (VB*) and proper nouns, in lower case, once each.

    ``by="pos"`` asks the tagger inside TextBlob (the paper's spaCy has no English model on PyPI);
    of a word with a hyphen it tags the last part. ``by="stopwords"``: all words. Left out are the
    179 stop words of bm25s and a leaflet's own verbs (use, take, know), which the paper keeps.
    """
    from bm25s.stopwords import STOPWORDS_EN_PLUS as STOP

    found = _nouns_and_verbs(question) if by == "pos" else _WORD.findall(question)
    words = dict.fromkeys(word.lower() for word in found)
    return [word for word in words if word not in STOP and not _USE.fullmatch(word)]


def _nouns_and_verbs(question: str) -> list[str]:
    from textblob.en.taggers import PatternTagger

    tag = PatternTagger().tag
    found = []
    for word, kind in tag(question):
        if "-" in word[1:-1]:  # the tagger takes every word with a hyphen for an adjective
            kind = tag(word.rpartition("-")[2])[0][1]
        if _WORD.fullmatch(word) and kind.startswith(("NN", "VB")):
            found.append(word)
    return found


def tiers(need: Need) -> list[Query]:
    """Q1, Q2 and Q3 of a need, without makers' names and doses, the medicine's words always in T.

    Q1: all of T in one sentence: it asks for all of T and leaves ``together`` to be checked in the
    text. Q2: T within 25 words, and the medicine in the title. Q3: all words of the question but
    stop words, within 25. Nothing but the medicine is left of headings 1, 2, 4 and 5: those four
    ask the same. ValueError for a medicine whose name is nothing but a maker's.
    """
    question = _without_maker_and_dose(need.question)
    name = _without_maker_and_dose(need.medicine.lower())
    medicine = [word for word in _WORD.findall(name) if word not in ("and", "with")]
    if not medicine:
        raise ValueError(f"{need.qid}: no words left of the medicine {need.medicine!r}")
    parts_of_name = {*medicine, *re.findall(r"\w+", name)}  # a tagger cuts John's in two

    def with_name(by: str) -> list[str]:
        others = [word for word in terms(question, by) if word not in parts_of_name]
        return [*others, *dict.fromkeys(medicine)]

    wanted = with_name("pos")
    every_word = " AND ".join(f'"{word}"[tiab]' for word in wanted)
    return [
        Query(1, every_word, together=tuple(wanted)),
        Query(2, f"{_near(wanted, 'tiab', 25)} AND {_near(medicine, 'ti', 0)}"),
        Query(3, _near(with_name("stopwords"), "tiab", 25)),
    ]


def _without_maker_and_dose(text: str) -> str:
    return _MAKERS.sub("", _DOSE.sub("", text))


def _near(words: list[str], field: str, distance: int) -> str:
    """Words near each other in PubMed's form, which needs two; one word is asked for as it is."""
    proximity = f":~{distance}" if len(words) > 1 else ""
    return f'"{" ".join(words)}"[{field}{proximity}]'


# the client ---------------------------------------------------------------------------------------


class PubMedError(RuntimeError):
    """A request that failed to the end: which, why, and what to do."""


class PubMed:
    """The E-utilities and iCite, asked politely: 3 requests a second, 10 with NCBI_API_KEY.

    NCBI wants to know who asks: ``email``, else NCBI_EMAIL. The key is sent in the body of requests
    to NCBI and written nowhere. 429, 5xx, timeouts, dropped connections and broken replies are
    asked again, after a pause that doubles, or what Retry-After says. ``counts`` has what was
    asked, and what was dropped and why.
    """

    def __init__(self, email: str = "") -> None:
        email = email or os.environ.get("NCBI_EMAIL", "")
        key = os.environ.get("NCBI_API_KEY", "")
        if not email:
            raise PubMedError(
                "NCBI asks who asks: set NCBI_EMAIL to your address, or email in the profile's "
                "[evidence]"
            )
        self._who = {"tool": "chr-companion", "email": email} | ({"api_key": key} if key else {})
        self._pause_s = 1 / (10 if key else 3)
        self.counts: Counter[str] = Counter()

    def records(self, term: str, first: int = _YEARS[0], last: int = _YEARS[1]) -> Iterator:
        """The Evidence a query finds, published from ``first`` to ``last`` (years), once each.

        Without abstract or year a record is dropped. A search over 9,999 records is split into
        halves of its years; of a year with more the first 9,999 are taken, and what is left out is
        counted.
        """
        seen: set[str] = set()
        for ids in self._searches(term, first, last):
            new = [pmid for pmid in dict.fromkeys(ids) if pmid not in seen]
            seen.update(new)
            for start in range(0, len(new), BATCH):
                yield from self._fetched(new[start : start + BATCH])

    def _searches(self, term: str, first: int, last: int) -> Iterator[list[str]]:
        """The PMIDs of a search, or of its parts."""
        asked = {"db": "pubmed", "term": term, "retmode": "json", "retmax": LIMIT}
        asked |= {"datetype": "pdat", "mindate": first, "maxdate": last}
        (count, ids), _ = self._ask("esearch", asked, _found)
        self.counts["searches with an unknown phrase"] += count < 0
        if count > LIMIT and first < last:
            middle = (first + last) // 2
            yield from self._searches(term, first, middle)
            yield from self._searches(term, middle + 1, last)
            return
        self.counts[f"left out of a year with over {LIMIT:,}"] += max(0, count - LIMIT)
        yield ids

    def _fetched(self, pmids: list[str]) -> Iterator[Evidence]:
        asked = {"db": "pubmed", "retmode": "xml", "id": ",".join(pmids)}
        articles, day = self._ask("efetch", asked, partial(_articles, pmids))
        self.counts["not returned"] += len(pmids) - len(articles)
        for pmid in (pmid for pmid in pmids if pmid in articles):
            abstract = _evidence(pmid, articles[pmid], day)
            self.counts["without abstract"] += not abstract.text
            self.counts["without year"] += not abstract.year
            if abstract.text and abstract.year:
                yield abstract

    def citations(self, pmids: Iterable[str]) -> dict[str, tuple[int, str]]:
        """(citation count, date asked) of each PMID; UNKNOWN where iCite has no count."""
        wanted = sorted(set(pmids), key=int)
        citations = {}
        for start in range(0, len(wanted), ICITE_BATCH):
            batch = wanted[start : start + ICITE_BATCH]
            asked = {"pmids": ",".join(batch), "fl": "pmid,citation_count"}
            counts, day = self._ask("icite", asked, _citation_counts)
            for pmid in batch:
                citations[pmid] = (counts.get(pmid, UNKNOWN), day)
        return citations

    def _ask(self, kind: str, asked: dict, parse: Callable) -> tuple:
        """(what ``parse`` makes of the reply, its date) of one request, kept or new."""
        name = sha256_bytes(canonical_json(asked).encode())[:32]
        path = cache("pubmed") / kind / f"{name}.json"
        if path.exists():
            stored = json.loads(path.read_text(encoding="utf-8"))
            return parse(stored["reply"]), stored["date"]
        pause, problem = 0.0, ""
        for attempt in range(TRIES):
            sleep(pause)
            try:
                reply = self._send(kind, asked)
                value = parse(reply)
            except _FAULTS as error:
                problem = f"{type(error).__name__}: {error}"
                pause = WAIT_S * 2**attempt
                if isinstance(error, HTTPError):
                    problem += f" {redacted(error.read().decode(errors='replace'))[:300]}"
                    if error.code < 500 and error.code != 429:
                        break  # our fault: the same again would not help
                    retry_after = str(error.headers.get("Retry-After", ""))
                    pause = max(pause, float(retry_after) if retry_after.isdigit() else 0)
            else:
                day = date.today().isoformat()
                stored = {"date": day, "kind": kind, "asked": asked, "reply": redacted(reply)}
                atomic_write(path, json.dumps(stored, ensure_ascii=False))
                return value, day
        problem = redacted(f"{kind}: no good reply ({problem}) to {canonical_json(asked)[:200]}")
        raise PubMedError(f"{problem}; run the same command later, it goes on from what is kept")

    def _send(self, kind: str, asked: dict) -> str:
        """One reply; NCBI is asked by POST, since a key in a URL ends up in logs."""
        sleep(self._pause_s)
        if kind == "icite":
            url, body = f"{ICITE}/pubs?{urlencode(asked)}", None
        else:
            url, body = f"{EUTILS}/{kind}.fcgi", urlencode(asked | self._who).encode()
        self.counts[f"{kind} asked"] += 1
        request = Request(url, body, {"User-Agent": self._who["tool"]})
        with urlopen(request, timeout=TIMEOUT_S) as reply:
            return reply.read().decode("utf-8")


def evidence_for(needs: Iterable[Need], email: str = "") -> list[Evidence]:
    """What PubMed has on each need, asked by ``email``; what was asked and dropped is printed."""
    client = PubMed(email)
    found = []
    for need, queries in readable({need.qid: need for need in needs}, tiers, "questions"):
        found += gather(client, need, queries)
    print(f"PubMed: {dict(sorted(client.counts.items()))}", file=sys.stderr)
    return found


def gather(client: PubMed, need: Need, queries: Iterable[Query]) -> list[Evidence]:
    """What the queries of a need find, once each, by PMID, with iCite's counts.

    ``meta`` has the tiers of the queries that found it, and the dates of the requests. Records
    without a sentence that has all of ``Query.together`` are dropped and counted.
    """
    found: dict[str, Evidence] = {}
    for query in queries:
        for record in client.records(query.term):
            whole_words = [rf"(?<!\w){re.escape(word)}(?!\w)" for word in query.together]
            lines = [record.title, *sentences(record.text)]
            if not any(all(re.search(w, line, re.I) for w in whole_words) for line in lines):
                client.counts["not in one sentence"] += 1
                continue
            pmid = record.meta["pmid"]
            abstract = found.get(pmid, record)
            in_tiers = [*abstract.meta.get("tiers", []), query.tier]
            found[pmid] = replace(abstract, meta=abstract.meta | {"tiers": in_tiers})
    with_citations = []
    for pmid, (count, day) in client.citations(found).items():
        meta = found[pmid].meta | {"cited": day}
        known = {"citations": count, "medicine": need.medicine, "topic": need.qid, "meta": meta}
        with_citations.append(replace(found[pmid], **known))
    return with_citations


# replies ------------------------------------------------------------------------------------------


def _found(text: str) -> tuple[int, list[str]]:
    """(count, PMIDs) of an esearch reply; count -1 if PubMed does not know a phrase.

    PubMed leaves such a phrase out and finds too much. Here every term is needed, so the right
    answer is that nothing was found.
    """
    reply = json.loads(text, strict=False)["esearchresult"]  # its errors hold bare line breaks
    if "ERROR" in reply:
        raise ValueError(f"esearch says {reply['ERROR']}")
    unknown = reply.get("errorlist", {}).get("phrasesnotfound")
    if unknown or reply.get("warninglist", {}).get("quotedphrasesnotfound"):
        return -1, []
    count, ids = int(reply["count"]), reply["idlist"]
    if len(ids) != min(count, LIMIT):
        raise ValueError(f"esearch counts {count} records and lists {len(ids)}")
    return count, ids


def _articles(wanted: list[str], text: str) -> dict[str, Element]:
    """The articles of an efetch reply by PMID; books and deleted records are not among them."""
    root = parse_xml(text.encode(), "efetch reply")
    articles = root.iterfind("PubmedArticle")
    found = {article.findtext("MedlineCitation/PMID", ""): article for article in articles}
    if root.tag != "PubmedArticleSet" or not len(root) or not found.keys() <= set(wanted):
        raise ValueError(f"efetch sent {root.tag} of {len(root)}, not the records asked for")
    return found


def _evidence(pmid: str, article: Element, day: str) -> Evidence:
    """An article's record, labels of structured abstracts kept; "" or 0 for what it has not."""
    texts = []
    for part in article.iterfind("MedlineCitation/Article/Abstract/AbstractText"):
        label = part.get("Label", "UNLABELLED")
        text = tidy(inner_text(part))
        if text:
            texts.append(text if label == "UNLABELLED" else f"{label}: {text}")
    dates = " ".join(article.findtext(f".//{path}", "") for path in _DATES)
    year = re.search(r"\b(?:18|19|20)\d\d\b", dates)
    title = article.find("MedlineCitation/Article/ArticleTitle")
    kinds = [e.text for e in article.iterfind(".//PublicationType")]
    return Evidence(
        id=f"pubmed:{pmid}",
        title="" if title is None else tidy(inner_text(title)),
        text=" ".join(texts),
        year=int(year[0]) if year else 0,
        source="pubmed",
        meta={"pmid": pmid, "fetched": day, "types": kinds},
    )


def _citation_counts(text: str) -> dict[str, int]:
    """Citation counts by PMID of an iCite reply; a record without one is left out."""
    counts = {}
    for row in json.loads(text)["data"]:
        if row["citation_count"] is not None:
            counts[str(row["pmid"])] = row["citation_count"]
    return counts
