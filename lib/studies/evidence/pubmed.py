"""PubMed abstracts for a need, by NCBI's E-utilities; how often each is cited, by NIH iCite.

Every good reply is kept with its date below the cache, so a run that was stopped asks for nothing
twice; delete the folder to ask anew. XML is read by ElementTree, after anything that declares
entities was refused (``lib.data.documents.parse_xml``).
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import date
from functools import partial
from http.client import HTTPException
from pathlib import Path
from time import monotonic, sleep
from urllib.parse import urlencode
from urllib.request import Request, urlopen
from xml.etree.ElementTree import Element

from lib.base.files import atomic_write, canonical_json, sha256_bytes
from lib.base.paths import cache
from lib.data.documents import parse_xml, tidy
from lib.studies.evidence.queries import Query
from lib.studies.evidence.records import UNKNOWN, Evidence, Need, inner_text

__all__ = ["PubMed", "PubMedError", "gather"]

EUTILS = "https://eutils.ncbi.nlm.nih.gov/entrez/eutils"
ICITE = "https://icite.od.nih.gov/api"
LIMIT, BATCH, ICITE_BATCH = 9_999, 300, 200  # PubMed's most a search, the paper's, iCite's most
_FAULTS = (OSError, HTTPException, ValueError, LookupError, TypeError)  # of the line or the reply
_DATES = ("PubDate/Year", "PubDate/MedlineDate", "ArticleDate/Year")


class PubMedError(RuntimeError):
    """A request that failed to the end: which, why, and what to do."""


class PubMed:
    """The E-utilities and iCite, asked politely: 3 requests a second, 10 with NCBI_API_KEY.

    The key is sent in the body of requests to NCBI and written nowhere. NCBI wants ``email`` (or
    NCBI_EMAIL). 429, 5xx, timeouts, dropped connections and broken replies are asked again, up to
    ``tries`` times, after ``wait_s`` doubled each time or what Retry-After says. ``counts`` has
    what was asked, and what was dropped and why.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        email: str = "",
        eutils: str = EUTILS,
        icite: str = ICITE,
        tries: int = 6,
        wait_s: float = 1,
        timeout_s: float = 60,
    ):
        self._key, email = os.environ.get("NCBI_API_KEY", ""), email or os.environ.get("NCBI_EMAIL")
        if not email:
            raise PubMedError("NCBI asks who asks: set NCBI_EMAIL to your address, or pass email=")
        self._who = {"tool": "chr-companion", "email": email}
        self._who |= {"api_key": self._key} if self._key else {}
        self._folder, self._eutils, self._icite = folder or cache("pubmed"), eutils, icite
        self._tries, self._wait_s, self._timeout_s, self._next = tries, wait_s, timeout_s, 0.0
        self.counts: Counter[str] = Counter()

    def records(self, term: str, years: tuple[int, int] = (1975, 2025)) -> Iterator[Evidence]:
        """What a query finds, published in ``years``, once each; without abstract or year: dropped.

        A search over 9,999 records is split into halves of its years, a year into its months; of a
        month with more the first 9,999 are taken, and what is left out of such a year is counted.
        Records come from the session of the search on the history server; by id, if that is old or
        fails.
        """
        seen, form = set(), {"db": "pubmed", "retmode": "xml"}
        for ids, session in self._searches(term, years):
            for start in range(0, len(ids), BATCH):
                part = ids[start : start + BATCH]
                asked = form | {"id": ",".join(part)}
                page = form | session | {"retstart": start, "retmax": len(part)}
                read, send = partial(_articles, part), page if session else asked
                found, day, _ = self._ask("efetch", asked, read, send)
                self.counts["not returned"] += len(part) - len(found)
                for pmid in (pmid for pmid in part if pmid in found and pmid not in seen):
                    seen.add(pmid)
                    one = _evidence(pmid, found[pmid], day)
                    self.counts["without abstract"] += not one.text
                    self.counts["without year"] += not one.year
                    yield from [one] * bool(one.text and one.year)

    def citations(self, pmids: Iterable[str]) -> dict[str, tuple[int, str]]:
        """(citation count, date asked) of each PMID; UNKNOWN where iCite has no count."""
        wanted, counted = sorted(set(pmids), key=int), {}
        for start in range(0, len(wanted), ICITE_BATCH):
            part = wanted[start : start + ICITE_BATCH]
            asked = {"pmids": ",".join(part), "fl": "pmid,citation_count"}
            found, day, _ = self._ask("icite", asked, _citation_counts, asked)
            counted |= {pmid: (found.get(pmid, UNKNOWN), day) for pmid in part}
        return counted

    def _searches(self, term: str, span: tuple[int | str, int | str]) -> Iterator[tuple]:
        """(PMIDs, session) of a search, or of its parts; the session of a kept reply is empty."""
        asked = {"db": "pubmed", "term": term, "retmode": "json", "usehistory": "y"}
        asked |= {"retmax": LIMIT, "datetype": "pdat", "mindate": span[0], "maxdate": span[1]}
        (count, ids, session), _, new = self._ask("esearch", asked, _found, asked)
        self.counts["searches with an unknown phrase"] += count < 0
        if count <= LIMIT or isinstance(span[0], str):
            yield ids, session if new else {}
            return
        first, last, middle = *span, sum(span) // 2
        parts, left = [(first, middle), (middle + 1, last)], count
        if first == last:
            parts = [(f"{first}/{m:02}", f"{first}/{m:02}") for m in range(1, 13)]
        for part in parts:
            for ids, session in self._searches(term, part):
                left -= len(ids)
                yield ids, session
        self.counts[f"left out of a year with over {LIMIT:,}"] += left * (first == last)

    def _ask(self, kind: str, asked: dict, read: Callable, send: dict) -> tuple:
        """(what ``read`` makes of the reply, its date, whether it is new) of one request.

        ``asked`` names the reply in the cache; ``send``, another way to ask for it, is tried first.
        """
        path = self._folder / kind / f"{sha256_bytes(canonical_json(asked).encode())[:32]}.json"
        if path.is_file():
            kept = json.loads(path.read_text(encoding="utf-8"))
            return read(kept["reply"]), kept["date"], False
        pause, problem = 0.0, ""
        for attempt in range(self._tries):
            sleep(pause)
            try:
                text = self._send(kind, asked if attempt else send)
                value, day = read(text), date.today().isoformat()
            except _FAULTS as error:
                problem = f"{type(error).__name__}: {error}"
                if getattr(error, "code", 500) < 500 and error.code != 429:
                    problem += f" {error.read(300).decode(errors='replace')}"
                    if attempt or send == asked:
                        break  # our fault: the same again would not help
                after = str(getattr(error, "headers", {}).get("Retry-After", ""))
                pause = max(self._wait_s * 2**attempt, float(after) if after.isdigit() else 0)
            else:
                kept = {"date": day, "kind": kind, "asked": asked, "reply": self._clean(text)}
                atomic_write(path, json.dumps(kept, ensure_ascii=False))
                return value, day, True
        problem = self._clean(f"{kind}: no good reply ({problem}) to {canonical_json(asked)[:200]}")
        raise PubMedError(f"{problem}; run the same command later, it goes on from what is kept")

    def _send(self, kind: str, params: dict) -> str:
        """One reply; NCBI is asked by POST, since a key in a URL ends up in logs."""
        now = monotonic()
        sleep(max(0, self._next - now))
        self._next = max(self._next, now) + 1 / (10 if self._key else 3)
        url, body = f"{self._icite}/pubs?{urlencode(params)}", None
        if kind != "icite":
            url, body = f"{self._eutils}/{kind}.fcgi", urlencode(params | self._who).encode()
        self.counts[f"{kind} asked"] += 1
        request = Request(url, body, {"User-Agent": self._who["tool"]})
        with urlopen(request, timeout=self._timeout_s) as reply:
            return reply.read().decode("utf-8")

    def _clean(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


def gather(
    client: PubMed,
    need: Need,
    queries: Iterable[Query],
    *,
    years: tuple[int, int] = (1975, 2025),
    sentences: Callable[[str], list[str]] | None = None,
) -> list[Evidence]:
    """What the queries of a need find, once each, by PMID, with iCite's counts; ``meta`` has the
    tiers and the dates. ``sentences`` (default: that of ``lib.studies.nli``) cuts a text, so that
    words of ``Query.together`` can be seen to share a sentence; other records are dropped and
    counted.
    """
    if sentences is None:
        from lib.studies.nli.models import sentences
    found: dict[str, Evidence] = {}
    for query in queries:
        words = [re.compile(rf"(?<!\w){re.escape(w)}(?!\w)", re.I) for w in query.together]
        for one in client.records(query.term, years):
            lines = (one.title, *sentences(one.text)) if words else ("",)
            if not any(all(word.search(line) for word in words) for line in lines):
                client.counts["not in one sentence"] += 1
                continue
            known = found.get(one.meta["pmid"], one)
            tiers = [*known.meta.get("tiers", []), query.tier]
            found[one.meta["pmid"]] = replace(known, meta=known.meta | {"tiers": tiers})
    return [
        replace(
            found[pmid],
            citations=count,
            medicine=need.medicine,
            topic=need.qid,
            meta=found[pmid].meta | {"cited": day},
        )
        for pmid, (count, day) in client.citations(found).items()
    ]


def _found(text: str) -> tuple[int, list[str], dict[str, str]]:
    """(count, PMIDs, session) of an esearch reply; count -1 if PubMed does not know a phrase: it
    would leave it out and find too much, where every term is needed and nothing is the answer."""
    reply = json.loads(text, strict=False)["esearchresult"]  # its errors hold bare line breaks
    if "ERROR" in reply:
        raise ValueError(f"esearch says {reply['ERROR']}")
    unknown = reply.get("errorlist", {}).get("phrasesnotfound")
    if unknown or reply.get("warninglist", {}).get("quotedphrasesnotfound"):
        return -1, [], {}
    count, ids = int(reply["count"]), reply["idlist"]
    if len(ids) != min(count, LIMIT):
        raise ValueError(f"esearch counts {count} records and lists {len(ids)}")
    return count, ids, {"WebEnv": reply["webenv"], "query_key": reply["querykey"]} if ids else {}


def _articles(wanted: list[str], text: str) -> dict[str, Element]:
    """The articles of an efetch reply by PMID; books and deleted records are not among them."""
    root = parse_xml(text.encode(), "efetch reply")
    found = {e.findtext("MedlineCitation/PMID", ""): e for e in root.iterfind("PubmedArticle")}
    if root.tag != "PubmedArticleSet" or not len(root) or not found.keys() <= set(wanted):
        raise ValueError(f"efetch sent {root.tag} of {len(root)}, not the records asked for")
    return found


def _evidence(pmid: str, article: Element, day: str) -> Evidence:
    """An article's record, labels of structured abstracts kept; "" or 0 for what it has not."""
    texts = []
    for part in article.iterfind("MedlineCitation/Article/Abstract/AbstractText"):
        label, text = part.get("Label", "UNLABELLED"), tidy(inner_text(part))
        texts += [text if label == "UNLABELLED" else f"{label}: {text}"] * bool(text)
    dates = " ".join(article.findtext(f".//{path}", "") for path in _DATES)
    year = re.search(r"\b(?:18|19|20)\d\d\b", dates)
    title = article.find("MedlineCitation/Article/ArticleTitle")
    kinds = [e.text for e in article.iterfind(".//PublicationType")]
    return Evidence(
        f"pubmed:{pmid}",
        "" if title is None else tidy(inner_text(title)),
        " ".join(texts),
        int(year[0]) if year else 0,
        UNKNOWN,
        source="pubmed",
        meta={"pmid": pmid, "fetched": day, "types": kinds},
    )


def _citation_counts(text: str) -> dict[str, int]:
    rows = json.loads(text)["data"]
    return {str(r["pmid"]): r["citation_count"] for r in rows if r["citation_count"] is not None}
