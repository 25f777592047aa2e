"""PubMed abstracts for a need, by NCBI's E-utilities; how often each is cited, by NIH iCite.

Every good reply is kept with its date below the cache, so a run that was stopped asks for nothing
twice; delete the folder to ask anew. XML is read by ElementTree, after anything that declares
entities was refused (``lib.data.passages.parse_xml``).
"""

from __future__ import annotations

import json
import os
import re
import sys
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

from lib.base.command import redacted
from lib.base.files import atomic_write, canonical_json, sha256_bytes
from lib.base.paths import cache
from lib.data.passages import parse_xml, tidy
from lib.studies.evidence.queries import Query
from lib.studies.evidence.records import UNKNOWN, Evidence, Need, inner_text

EUTILS = "https://eutils.ncbi.nlm.nih.gov/entrez/eutils"
ICITE = "https://icite.od.nih.gov/api"
LIMIT = 9_999  # records that PubMed lists of one search at most
BATCH = 300  # records a request, as in the paper
ICITE_BATCH = 200  # iCite's most a request
# What a bad line or a broken reply raises while it is received or read.
_FAULTS = (OSError, HTTPException, ValueError, LookupError, TypeError)
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
        self._key = os.environ.get("NCBI_API_KEY", "")
        email = email or os.environ.get("NCBI_EMAIL", "")
        if not email:
            raise PubMedError("NCBI asks who asks: set NCBI_EMAIL to your address, or pass email=")
        self._who = {"tool": "chr-companion", "email": email}
        if self._key:
            self._who["api_key"] = self._key
        self._folder = folder or cache("pubmed")
        self._eutils = eutils
        self._icite = icite
        self._tries = tries
        self._wait_s = wait_s
        self._timeout_s = timeout_s
        self._next_request_at = 0.0
        self.counts: Counter[str] = Counter()

    def records(self, term: str, years: tuple[int, int] = (1975, 2025)) -> Iterator[Evidence]:
        """What a query finds, published in ``years``, once each; without abstract or year: dropped.

        A search over 9,999 records is split into halves of its years, a year into its months; of a
        month with more the first 9,999 are taken, and what is left out of such a year is counted.
        Records come from the session of the search on the history server; by id, if that is old or
        fails.
        """
        seen: set[str] = set()
        for ids, session in self._searches(term, years):
            for start in range(0, len(ids), BATCH):
                batch = ids[start : start + BATCH]
                articles, day = self._fetch(batch, start, session)
                for pmid in batch:
                    if pmid in seen or pmid not in articles:
                        continue
                    seen.add(pmid)
                    abstract = _evidence(pmid, articles[pmid], day)
                    self.counts["without abstract"] += not abstract.text
                    self.counts["without year"] += not abstract.year
                    if abstract.text and abstract.year:
                        yield abstract

    def _fetch(
        self, batch: list[str], start: int, session: dict[str, str]
    ) -> tuple[dict[str, Element], str]:
        """(articles by PMID, the day they were fetched) of the search's records from ``start`` on.

        They are named by their ids in the cache, and asked for by session where there is one.
        """
        form = {"db": "pubmed", "retmode": "xml"}
        by_id = form | {"id": ",".join(batch)}
        by_session = form | session | {"retstart": start, "retmax": len(batch)}
        send = by_session if session else by_id
        articles, day, _ = self._ask("efetch", by_id, partial(_articles, batch), send)
        self.counts["not returned"] += len(batch) - len(articles)
        return articles, day

    def citations(self, pmids: Iterable[str]) -> dict[str, tuple[int, str]]:
        """(citation count, date asked) of each PMID; UNKNOWN where iCite has no count."""
        wanted = sorted(set(pmids), key=int)
        citations = {}
        for start in range(0, len(wanted), ICITE_BATCH):
            batch = wanted[start : start + ICITE_BATCH]
            asked = {"pmids": ",".join(batch), "fl": "pmid,citation_count"}
            counts, day, _ = self._ask("icite", asked, _citation_counts, asked)
            for pmid in batch:
                citations[pmid] = (counts.get(pmid, UNKNOWN), day)
        return citations

    def _searches(self, term: str, span: tuple[int | str, int | str]) -> Iterator[tuple]:
        """(PMIDs, session) of a search, or of its parts.

        A session on the history server does not last, so that of a reply from the cache is empty.
        ``span`` are years, or months ("2001/05") when a year had to be split.
        """
        asked = {"db": "pubmed", "term": term, "retmode": "json", "usehistory": "y"}
        asked |= {"retmax": LIMIT, "datetype": "pdat", "mindate": span[0], "maxdate": span[1]}
        (count, ids, session), _, new = self._ask("esearch", asked, _found, asked)
        self.counts["searches with an unknown phrase"] += count < 0
        if count <= LIMIT or isinstance(span[0], str):
            yield ids, session if new else {}
            return
        first, last = span
        if first == last:
            months = [f"{first}/{month:02}" for month in range(1, 13)]
            parts = [(month, month) for month in months]
        else:
            middle = (first + last) // 2
            parts = [(first, middle), (middle + 1, last)]
        missing = count
        for part in parts:
            for ids, session in self._searches(term, part):
                missing -= len(ids)
                yield ids, session
        if first == last:
            self.counts[f"left out of a year with over {LIMIT:,}"] += missing

    def _ask(self, kind: str, asked: dict, parse: Callable, send: dict) -> tuple:
        """(what ``parse`` makes of the reply, its date, whether it is new) of one request.

        ``asked`` names the reply in the cache; ``send``, another way to ask for it, is tried first.
        """
        path = self._folder / kind / f"{sha256_bytes(canonical_json(asked).encode())[:32]}.json"
        if stored := _kept(path):
            return parse(stored["reply"]), stored["date"], False
        pause, problem = 0.0, ""
        for attempt in range(self._tries):
            sleep(pause)
            try:
                text = self._send(kind, asked if attempt else send)
                value = parse(text)
            except _FAULTS as error:
                problem = f"{type(error).__name__}: {error}"
                if getattr(error, "code", 500) < 500 and error.code != 429:
                    problem += f" {error.read(300).decode(errors='replace')}"
                    if attempt or send == asked:
                        break  # our fault: the same again would not help
                retry_after = str(getattr(error, "headers", {}).get("Retry-After", ""))
                asked_pause = float(retry_after) if retry_after.isdigit() else 0
                pause = max(self._wait_s * 2**attempt, asked_pause)
            else:
                day = date.today().isoformat()
                reply = redacted(text)
                stored = {"date": day, "kind": kind, "asked": asked, "reply": reply}
                stored["sha256"] = sha256_bytes(reply.encode())
                atomic_write(path, json.dumps(stored, ensure_ascii=False))
                return value, day, True
        problem = redacted(f"{kind}: no good reply ({problem}) to {canonical_json(asked)[:200]}")
        raise PubMedError(f"{problem}; run the same command later, it goes on from what is kept")

    def _send(self, kind: str, params: dict) -> str:
        """One reply; NCBI is asked by POST, since a key in a URL ends up in logs."""
        now = monotonic()
        sleep(max(0, self._next_request_at - now))
        requests_per_s = 10 if self._key else 3
        self._next_request_at = max(self._next_request_at, now) + 1 / requests_per_s
        if kind == "icite":
            url, body = f"{self._icite}/pubs?{urlencode(params)}", None
        else:
            url, body = f"{self._eutils}/{kind}.fcgi", urlencode(params | self._who).encode()
        self.counts[f"{kind} asked"] += 1
        request = Request(url, body, {"User-Agent": self._who["tool"]})
        with urlopen(request, timeout=self._timeout_s) as reply:
            return reply.read().decode("utf-8")


def _kept(path: Path) -> dict:
    """A reply that is kept with its date; empty where there is none, or, said, a damaged one."""
    if not path.is_file():
        return {}
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if sha256_bytes(stored["reply"].encode()) == stored["sha256"] and stored["date"]:
            return stored
    except (ValueError, LookupError, TypeError, AttributeError):
        pass
    print(f"{path} is damaged, or of an older version: asked again", file=sys.stderr)
    return {}


def gather(
    client: PubMed,
    need: Need,
    queries: Iterable[Query],
    *,
    years: tuple[int, int] = (1975, 2025),
    sentences: Callable[[str], list[str]] | None = None,
) -> list[Evidence]:
    """What the queries of a need find, once each, by PMID, with iCite's counts.

    ``meta`` has the tiers of the queries that found it, and the dates of the requests.
    ``sentences`` (default: that of ``lib.studies.nli``) cuts a text, so that words of
    ``Query.together`` can be seen to share a sentence; other records are dropped and counted.
    """
    if sentences is None:
        from lib.studies.nli.models import sentences
    found: dict[str, Evidence] = {}
    for query in queries:
        for record in client.records(query.term, years):
            if query.together:
                lines = [record.title, *sentences(record.text)]
                if not any(_has_all_words(line, query.together) for line in lines):
                    client.counts["not in one sentence"] += 1
                    continue
            pmid = record.meta["pmid"]
            abstract = found.get(pmid, record)
            tiers = [*abstract.meta.get("tiers", []), query.tier]
            found[pmid] = replace(abstract, meta=abstract.meta | {"tiers": tiers})
    with_citations = []
    for pmid, (count, day) in client.citations(found).items():
        abstract = replace(
            found[pmid],
            citations=count,
            medicine=need.medicine,
            topic=need.qid,
            meta=found[pmid].meta | {"cited": day},
        )
        with_citations.append(abstract)
    return with_citations


def _has_all_words(line: str, words: Iterable[str]) -> bool:
    """Whether each of the words stands in the line as a whole word, in any case."""
    return all(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", line, re.I) for word in words)


def _found(text: str) -> tuple[int, list[str], dict[str, str]]:
    """(count, PMIDs, session) of an esearch reply; count -1 if PubMed does not know a phrase.

    PubMed leaves such a phrase out and finds too much. Here every term is needed, so the right
    answer is that nothing was found.
    """
    reply = json.loads(text, strict=False)["esearchresult"]  # its errors hold bare line breaks
    if "ERROR" in reply:
        raise ValueError(f"esearch says {reply['ERROR']}")
    unknown = reply.get("errorlist", {}).get("phrasesnotfound")
    if unknown or reply.get("warninglist", {}).get("quotedphrasesnotfound"):
        return -1, [], {}
    count, ids = int(reply["count"]), reply["idlist"]
    if len(ids) != min(count, LIMIT):
        raise ValueError(f"esearch counts {count} records and lists {len(ids)}")
    session = {"WebEnv": reply["webenv"], "query_key": reply["querykey"]} if ids else {}
    return count, ids, session


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
        citations=UNKNOWN,
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
