"""PubMed and iCite: the queries, and a client that a server lies to, cuts off and keeps waiting.

Every reply here is written for the test; NCBI itself is never asked.
"""

from __future__ import annotations

import json
import time
from http.client import IncompleteRead, RemoteDisconnected
from io import BytesIO
from unittest.mock import Mock
from urllib.error import HTTPError
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.studies.contradiction import pubmed
from lib.studies.contradiction.evidence import HEADINGS, UNKNOWN, Need
from lib.studies.contradiction.pubmed import PubMed, PubMedError, Query, gather, terms, tiers

KEY = "0123456789abcdefSECRET"


# the server --------------------------------------------------------------------------------------


def article(pmid, *parts: str, date: str = "<Year>2001</Year>", title: str = "A title") -> str:
    """One PubmedArticle; ``parts`` are AbstractText elements or plain texts."""
    texts = "".join(p if p.startswith("<") else f"<AbstractText>{p}</AbstractText>" for p in parts)
    return f"""<PubmedArticle><MedlineCitation><PMID Version="1">{pmid}</PMID><Article>
      <Journal><JournalIssue><PubDate>{date}</PubDate></JournalIssue></Journal>
      <ArticleTitle>{title}</ArticleTitle>{f"<Abstract>{texts}</Abstract>" if parts else ""}
      </Article></MedlineCitation></PubmedArticle>"""


def article_set(*articles: str, head: str = "") -> str:
    return f'<?xml version="1.0" ?>{head}<PubmedArticleSet>{"".join(articles)}</PubmedArticleSet>'


class NCBI:
    """Stands in for urlopen: esearch, efetch and iCite over ``articles`` {pmid: (xml, year)}.

    It plays ``steps`` first: "ok", a status, "drop" (no answer), "cut" (fewer bytes than promised),
    "slow" (no answer in time), or a text to send instead of the reply. ``finds`` maps a search's
    term to its PMIDs (default: all).
    """

    def __init__(self):
        self.articles: dict[str, tuple[str, int]] = {}
        self.finds: dict[str, list[str]] = {}
        self.cited: dict[str, int | None] = {}
        self.steps: list[str] = []
        self.padding = ""
        self.asked: list[tuple[str, dict, str]] = []
        self.extra: dict = {}

    def hold(self, years: dict[int, int]) -> None:
        """Articles with the PMIDs given, of the years given."""
        for pmid, year in years.items():
            date = f"<Year>{year}</Year>"
            self.articles[str(pmid)] = (article(pmid, f"Text of {pmid}.", date=date), year)

    def kinds(self) -> list[str]:
        return [kind for kind, _, _ in self.asked]

    def reply(self, kind: str, params: dict) -> str:
        if kind == "pubs":
            wanted = [p for p in params["pmids"].split(",") if p in self.cited]
            rows = [{"pmid": int(p), "citation_count": self.cited[p]} for p in wanted]
            return json.dumps({"data": rows})
        if kind == "efetch":
            return article_set(*(self.articles[i][0] for i in params["id"].split(",")))
        first, last = (int(params[side]) for side in ("mindate", "maxdate"))
        found = self.finds.get(params["term"], list(self.articles))
        ids = [pmid for pmid in found if first <= self.articles[pmid][1] <= last]
        result = {"count": str(len(ids)), "idlist": ids[: pubmed.LIMIT]}
        return json.dumps({"esearchresult": result | self.extra})

    def __call__(self, request, timeout):
        url = urlsplit(request.full_url)
        kind = url.path.rsplit("/", 1)[1].removesuffix(".fcgi")
        params = dict(parse_qsl((request.data or b"").decode() or url.query))
        self.asked.append((kind, params, request.full_url))
        step = self.steps.pop(0) if self.steps else "ok"
        if step in ("drop", "slow"):
            raise {"drop": RemoteDisconnected, "slow": TimeoutError}[step](step)
        if step.isdigit():
            headers = {"Retry-After": "7"} if step == "429" else {}
            told = {"error": "planned" + self.padding, "key": params.get("api_key")}
            body = BytesIO(json.dumps(told).encode())
            raise HTTPError(request.full_url, int(step), "planned", headers, body)
        body = BytesIO((self.reply(kind, params) if step in ("ok", "cut") else step).encode())
        if step == "cut":
            body.read = Mock(side_effect=IncompleteRead(b"half"))
        return body


@pytest.fixture
def ncbi(monkeypatch, tmp_path):
    server = NCBI()
    monkeypatch.setenv("NCBI_EMAIL", "reader@example.org")
    monkeypatch.setenv("CHR_CACHE", str(tmp_path))
    monkeypatch.delenv("NCBI_API_KEY", raising=False)
    monkeypatch.setattr(pubmed, "urlopen", server)
    monkeypatch.setattr(pubmed, "WAIT_S", 100)
    return server


@pytest.fixture(autouse=True)
def slept(monkeypatch) -> list[float]:
    """Every pause the client asks for, none of them taken."""
    pauses: list[float] = []
    monkeypatch.setattr(pubmed, "sleep", pauses.append)
    return pauses


# queries -----------------------------------------------------------------------------------------


def need(medicine: str = "ABACAVIR", heading: int = 6, question: str = "") -> Need:
    return Need("q", medicine, heading, question or HEADINGS[heading].format(medicine), "")


def test_three_tiers_in_the_form_that_pubmed_documents():
    together = ("side", "effects", "abacavir")
    assert tiers(need()) == [
        Query(1, '"side"[tiab] AND "effects"[tiab] AND "abacavir"[tiab]', together),
        Query(2, '"side effects abacavir"[tiab:~25] AND "abacavir"[ti]'),
        Query(3, '"side effects abacavir"[tiab:~25]'),
    ]
    only_name = ['"abacavir"[tiab]', '"abacavir"[tiab] AND "abacavir"[ti]', '"abacavir"[tiab]']
    assert [query.term for query in tiers(need(heading=1))] == only_name
    with pytest.raises(ValueError, match="q: no words left of the medicine 'Pfizer'"):
        tiers(need("Pfizer"))
    question = "Do early beta-blockers prevent death in chronic heart failure?"
    assert terms(question) == ["beta-blockers", "prevent", "death", "heart", "failure"]
    assert {*terms(question, "stopwords")} == {*terms(question), "early", "chronic"}


@pytest.mark.parametrize(
    "medicine, words, title",
    [
        ("APO-Abacavir 300 mg", "abacavir", '"abacavir"[ti]'),
        ("abacavir and lamivudine", "abacavir lamivudine", '"abacavir lamivudine"[ti:~0]'),
        ("St John's wort", "st john's wort", '"st john\'s wort"[ti:~0]'),
        ("Novo Nordisk insulin 100 units/mL", "insulin", '"insulin"[ti]'),
        ("vitamin B12", "vitamin b12", '"vitamin b12"[ti:~0]'),
    ],
)
def test_names_lose_their_maker_and_no_word_of_the_medicine(medicine, words, title):
    first, second, _ = tiers(need(medicine))
    assert " ".join(first.together) == f"side effects {words}"
    assert second.term.endswith(f" AND {title}")


@settings(deadline=None)
@given(st.text(max_size=60))
def test_no_question_breaks_out_of_its_quotes(text):
    for query in tiers(need("aspirin", question=text)):
        bare = query.term.replace('"[tiab]', '"').replace('"[ti]', '"').replace('"[tiab:~25]', '"')
        quoted = bare.split('"')[1::2]
        assert bare.count('"') == 2 * len(quoted) and not set("[]()*:~") & set("".join(quoted))
        assert set(bare.split('"')[2:-1:2]) <= {" AND "} and "aspirin" in " ".join(quoted)


# records -----------------------------------------------------------------------------------------


def test_what_a_record_says_and_which_are_dropped(ncbi):
    labelled = (
        '<AbstractText Label="BACKGROUND">Cells were 10<sup>9</sup>/L &amp; <i>more</i>.'
        '</AbstractText><AbstractText Label="RESULTS">p &lt; 0.05.</AbstractText>'
    )
    book = "<PubmedBookArticle><BookDocument><PMID>6</PMID></BookDocument></PubmedBookArticle>"
    ncbi.articles = {
        "1": (article(1, labelled, title="On <i>H. pylori</i>."), 2001),
        "2": (article(2, "Text.", date="<MedlineDate>1998 Dec-1999 Jan</MedlineDate>"), 1998),
        "3": (article(3), 1990),
        "5": (article(5, "Text.", date="<MedlineDate>Winter</MedlineDate>"), 1990),
        "6": (book, 2010),
    }
    client = PubMed()
    one, two = client.records("x")
    assert one.text == "BACKGROUND: Cells were 10^9/L & more. RESULTS: p < 0.05."
    assert (one.id, one.title, one.year) == ("pubmed:1", "On H. pylori.", 2001)
    assert one.citations == UNKNOWN and two.year == 1998
    dropped = ("without abstract", "without year", "not returned")
    assert [client.counts[name] for name in dropped] == [1, 1, 1]
    # NCBI is asked by POST, so that neither key nor address ends up in a log of addresses
    assert not any("?" in path for _, _, path in ncbi.asked)


def test_a_phrase_that_pubmed_left_out_means_nothing_was_found(ncbi):
    ncbi.hold({1: 1999})
    client = PubMed()
    ncbi.extra = {"errorlist": {"phrasesnotfound": ["zzyzx"]}}
    assert list(client.records("x")) == []
    ncbi.extra = {"warninglist": {"quotedphrasesnotfound": ['"zzyzx"[tiab]']}}
    assert list(client.records("y")) == [] and ncbi.kinds() == ["esearch"] * 2
    assert client.counts["searches with an unknown phrase"] == 2


@settings(deadline=None, max_examples=60)
@given(held=st.dictionaries(st.integers(1, 99), st.integers(1975, 1990), max_size=40))
def test_too_many_records_are_found_by_halves_of_the_years_once_each(held):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NCBI_EMAIL", "x")
        patch.setattr(pubmed, "LIMIT", 4)
        patch.setattr(pubmed, "BATCH", 3)
        server = NCBI()
        server.hold(held)
        client = PubMed()
        client._ask = lambda kind, asked, parse: (parse(server.reply(kind, asked)), "2025-01-01")
        found = [int(d.meta["pmid"]) for d in client.records("x", 1975, 1990)]
        assert len(found) == len(set(found)) and set(found) <= set(held)
        lost = client.counts["left out of a year with over 4"]
        years = list(held.values())
        over = sum(max(0, years.count(year) - 4) for year in set(years))
        assert lost in (0, over) and len(found) == len(held) - lost


# faults ------------------------------------------------------------------------------------------

SHORT = '{"esearchresult": {"count": "2", "idlist": ["1"]}}'
DOWN = '{"esearchresult": {"ERROR": "Search Backend failed: \n down"}}'  # not strict JSON
BROKEN = {
    "esearch": ["429", "drop", DOWN, "<html>busy</html>", SHORT],
    "efetch": ["502", "cut", article_set(), article_set(article(99, "Another."))],
    "pubs": ["cut", '{"error": "down"}'],
}


@pytest.mark.parametrize("kind, fault", [(k, f) for k, faults in BROKEN.items() for f in faults])
def test_a_fault_is_asked_again_and_leaves_no_trace(ncbi, slept, kind, fault):
    ncbi.hold({1: 1999, 2: 2000})
    ncbi.cited = {"1": 5, "2": 0}
    ncbi.steps = ["ok"] * list(BROKEN).index(kind) + [fault, fault]
    client = PubMed()
    found = list(client.records("x"))
    assert [d.year for d in found] == [1999, 2000]
    cited = client.citations(d.meta["pmid"] for d in found)
    assert {pmid: count for pmid, (count, _) in cited.items()} == {"1": 5, "2": 0}
    assert ncbi.kinds().count(kind) == 3 and len(ncbi.asked) == 5
    assert [p for p in slept if p >= 7] == [100, 200]  # WAIT_S, and its double


def test_a_server_may_say_how_long_to_wait(ncbi, slept, monkeypatch):
    monkeypatch.setattr(pubmed, "WAIT_S", 1)
    ncbi.steps = ["429", "slow"]
    assert list(PubMed().records("x")) == [] and 7 in slept and len(ncbi.asked) == 3


@pytest.mark.parametrize("padding", [0, 260])  # the key whole, and where the message is cut off
def test_giving_up_says_what_failed_and_what_next_but_never_the_key(ncbi, monkeypatch, padding):
    monkeypatch.setenv("NCBI_API_KEY", KEY)
    monkeypatch.setattr(pubmed, "TRIES", 3)
    ncbi.padding = "x" * padding
    ncbi.steps = ["500"] * 3
    with pytest.raises(PubMedError, match=r"esearch: no good reply \(HTTPError.* 500.*later") as e:
        list(PubMed().records("x"))
    assert len(ncbi.asked) == 3 and KEY[:12] not in str(e.value)
    ncbi.steps = ["400"]
    with pytest.raises(PubMedError, match="400.*planned") as e:
        list(PubMed().records("x"))
    assert len(ncbi.asked) == 4 and KEY[:12] not in str(e.value)  # a refusal is not repeated


def test_a_reply_that_declares_entities_is_refused(ncbi, monkeypatch):
    bomb = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]>'
    monkeypatch.setattr(pubmed, "TRIES", 1)
    ncbi.hold({1: 1999})
    ncbi.steps = ["ok", article_set(article(1, "&b;"), head=bomb)]
    with pytest.raises(PubMedError, match="refused, it declares entities"):
        list(PubMed().records("x"))


def test_nobody_asks_without_an_address(monkeypatch):
    monkeypatch.delenv("NCBI_EMAIL", raising=False)
    with pytest.raises(PubMedError, match="set NCBI_EMAIL"):
        PubMed()


# the cache, the key and the clock ----------------------------------------------------------------


def test_a_stopped_run_goes_on_and_a_finished_one_asks_for_nothing(ncbi, monkeypatch):
    monkeypatch.setattr(pubmed, "BATCH", 2)
    monkeypatch.setattr(pubmed, "TRIES", 2)
    ncbi.hold(dict.fromkeys(range(1, 6), 1999))
    ncbi.steps = ["ok", "ok", *["drop"] * 2]
    with pytest.raises(PubMedError, match="goes on from what is kept"):
        list(PubMed().records("x"))
    ncbi.asked.clear()
    again = list(PubMed().records("x"))
    assert [d.meta["pmid"] for d in again] == list("12345")
    assert [params["id"] for _, params, _ in ncbi.asked] == ["3,4", "5"]
    ncbi.asked.clear()
    assert list(PubMed().records("x")) == again and not ncbi.asked


def test_every_reply_is_kept_with_its_date_and_without_the_key(ncbi, monkeypatch, tmp_path):
    monkeypatch.setenv("NCBI_API_KEY", KEY)
    ncbi.hold({1: 1999})
    ncbi.extra = {"querytranslation": f"echo of {KEY}"}
    client = PubMed()
    assert [d.meta["fetched"] for d in client.records("x")] == [time.strftime("%Y-%m-%d")]
    client.citations(["1"])
    files = [path for path in tmp_path.rglob("*.json") if path.is_file()]
    assert sorted(path.parent.name for path in files) == ["efetch", "esearch", "icite"]
    for path in files:
        text = path.read_text()
        assert json.loads(text)["date"] == time.strftime("%Y-%m-%d")
        assert KEY not in text and "reader@example.org" not in text
    sent = {kind: (params.get("api_key"), path) for kind, params, path in ncbi.asked}
    assert sent["esearch"][0] == sent["efetch"][0] == KEY and sent["pubs"][0] is None
    assert not any(KEY in path for _, path in sent.values())


@pytest.mark.parametrize("key, most", [("", 3), (KEY, 10)])
def test_never_more_requests_in_any_second_than_ncbi_allows(ncbi, monkeypatch, slept, key, most):
    monkeypatch.setenv("NCBI_API_KEY", key)
    client = PubMed()
    for i in range(5):
        list(client.records(f"x{i}"))
    assert len(ncbi.asked) == 5 and slept.count(1 / most) == 5


# citations and gathering -------------------------------------------------------------------------


def test_citations_come_in_batches_of_200_and_a_missing_one_is_not_zero(ncbi):
    ncbi.cited = {str(i): i for i in range(450) if i % 2} | {"10": None, "12": 0}
    found = PubMed().citations(str(i) for i in range(450))
    assert {p: n for p, (n, _) in found.items()} == {
        str(i): i if i % 2 else 0 if i == 12 else UNKNOWN for i in range(450)
    }
    assert [len(params["pmids"].split(",")) for _, params, _ in ncbi.asked] == [200, 200, 50]


def test_gathering_joins_the_tiers_and_checks_sentences_here(ncbi):
    first, second, third = queries = tiers(need())
    ncbi.articles = {
        "30": (article(30, "Mild side effects of abacavir.", date="<Year>1999</Year>"), 1999),
        "4": (article(4, "Side effects of aspirin. Abacavir is a drug."), 2001),
        "5": (article(5, "Side effects, preabacavir."), 2001),
        "6": (article(6, "Nothing.", title="Abacavir: side effects"), 2001),
    }
    ncbi.finds = {first.term: ["30", "4", "5", "6"], second.term: ["30"], third.term: ["4", "30"]}
    ncbi.cited = {"30": 12}
    client = PubMed()
    found = gather(client, need(), queries)
    assert [(d.meta["pmid"], d.meta["tiers"], d.citations) for d in found] == [
        ("4", [3], UNKNOWN),
        ("6", [1], UNKNOWN),
        ("30", [1, 2, 3], 12),
    ]
    assert client.counts["not in one sentence"] == 2
    assert {(d.medicine, d.topic) for d in found} == {("ABACAVIR", "q")}
