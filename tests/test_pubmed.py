"""PubMed and iCite: the queries, and a client that a local server lies to, cuts off and slows down.

Every reply here is written for the test; NCBI itself is never asked.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.studies.evidence import pubmed
from lib.studies.evidence.pubmed import PubMed, PubMedError, gather
from lib.studies.evidence.queries import Query, terms, tiers
from lib.studies.evidence.records import HEADINGS, UNKNOWN, Need

KEY = "0123456789abcdefSECRET"


# the server --------------------------------------------------------------------------------------


def article(pmid, *parts: str, date: str = "<Year>2001</Year>", title: str = "A title") -> str:
    """One PubmedArticle; ``parts`` are AbstractText elements or plain texts."""
    texts = "".join(p if p.startswith("<") else f"<AbstractText>{p}</AbstractText>" for p in parts)
    return f"""<PubmedArticle><MedlineCitation><PMID Version="1">{pmid}</PMID><Article>
      <Journal><JournalIssue><PubDate>{date}</PubDate></JournalIssue></Journal>
      <ArticleTitle>{title}</ArticleTitle>{f"<Abstract>{texts}</Abstract>" if parts else ""}
      <PublicationTypeList><PublicationType>Journal Article</PublicationType></PublicationTypeList>
      </Article></MedlineCitation></PubmedArticle>"""


def article_set(*articles: str, head: str = "") -> str:
    doctype = '<!DOCTYPE PubmedArticleSet PUBLIC "-//NLM//DTD PubMedArticle//EN" "pubmed.dtd">'
    return f'<?xml version="1.0" ?>\n{head or doctype}<PubmedArticleSet>{"".join(articles)}\
</PubmedArticleSet>'


class NCBI(ThreadingHTTPServer):
    """esearch, efetch and iCite over ``articles`` {pmid: (xml, year)}; plays ``steps`` first.

    ``finds`` maps a search's term to its PMIDs (default: all). Steps: "ok", a status, "drop" (no
    answer), "cut" (fewer bytes than promised), "slow", or a text to send instead of the reply.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.articles: dict[str, tuple[str, int]] = {}
        self.finds: dict[str, list[str]] = {}
        self.cited: dict[str, int | None] = {}
        self.steps: list[str] = []
        self.padding = ""
        self.asked: list[tuple[str, dict, str]] = []
        self.sessions: dict[str, list[str]] = {}
        self.extra: dict = {}

    def hold(self, years: dict[int, int]) -> None:
        """Articles with the PMIDs given, of the years given."""
        for pmid, year in years.items():
            date = f"<Year>{year}</Year>"
            self.articles[str(pmid)] = (article(pmid, f"Text of {pmid}.", date=date), year)

    def date(self, pmid: str) -> str:
        """Year and month: the month is made from the PMID."""
        return f"{self.articles[pmid][1]}/{int(pmid) % 3 + 1:02}"

    def kinds(self) -> list[str]:
        return [kind for kind, _, _ in self.asked]

    def reply(self, kind: str, params: dict) -> str:
        if kind == "pubs":
            rows = [
                {"pmid": int(p), "citation_count": self.cited[p]}
                for p in params["pmids"].split(",")
                if p in self.cited
            ]
            return json.dumps({"meta": {"pmids": params["pmids"]}, "data": rows})
        if kind == "efetch":
            if "id" in params:
                ids = params["id"].split(",")
            else:
                start = int(params["retstart"])
                ids = self.sessions[params["WebEnv"]][start : start + int(params["retmax"])]
            return article_set(*(self.articles[i][0] for i in ids))
        first, last = (str(params[side]) for side in ("mindate", "maxdate"))
        ids = [
            p
            for p in self.finds.get(params["term"], self.articles)
            if first <= (self.date(p) if "/" in first else self.date(p)[:4]) <= last
        ]
        session = f"MCID_{len(self.sessions)}"
        self.sessions[session] = ids
        result = {
            "count": str(len(ids)),
            "retmax": "0",
            "idlist": ids[: pubmed.LIMIT],
            "querykey": "1",
            "webenv": session,
        }
        return json.dumps({"header": {"type": "esearch"}, "esearchresult": result | self.extra})


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer(urlsplit(self.path).query)

    def do_POST(self):
        self.answer(self.rfile.read(int(self.headers["Content-Length"])).decode())

    def answer(self, query: str):
        server, params = self.server, dict(parse_qsl(query))
        kind = urlsplit(self.path).path.rsplit("/", 1)[1].removesuffix(".fcgi")
        server.asked.append((kind, params, self.path))
        step = server.steps.pop(0) if server.steps else "ok"
        if step == "drop":
            return
        if step == "slow":
            time.sleep(0.6)
        other = step not in ("ok", "cut", "slow") and not step.isdigit()
        body = step if other else server.reply(kind, params)
        if step.isdigit():
            body = json.dumps(
                {
                    "error": "planned" + server.padding,
                    "api-key": params.get("api_key"),
                    "limit": "3",
                }
            )
        data = body.encode()
        self.send_response(int(step) if step.isdigit() else 200)
        self.send_header("Content-Length", str(len(data)))
        if step == "429":
            self.send_header("Retry-After", "7")
        self.end_headers()
        with suppress(OSError):  # the client gave up
            self.wfile.write(data[: len(data) // 2 if step == "cut" else len(data)])


@pytest.fixture
def ncbi(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("NCBI_API_KEY", raising=False)
    running = NCBI()
    threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
    yield running
    running.shutdown()
    running.server_close()


@pytest.fixture
def slept(monkeypatch) -> list[float]:
    """Every pause the client asks for, none of them taken."""
    pauses: list[float] = []
    monkeypatch.setattr(pubmed, "sleep", pauses.append)
    return pauses


@pytest.fixture
def client(ncbi, slept, tmp_path):
    def make(**options) -> PubMed:
        options = {"email": "reader@example.org", "wait_s": 100, "timeout_s": 10} | options
        return PubMed(
            tmp_path / "kept", eutils=f"{ncbi.url}/eutils", icite=f"{ncbi.url}/api", **options
        )

    return make


# queries -----------------------------------------------------------------------------------------


def need(medicine: str = "ABACAVIR", heading: int = 6, question: str = "") -> Need:
    return Need("q", medicine, heading, question or HEADINGS[heading].format(medicine), "")


def test_three_tiers_in_the_form_that_pubmed_documents():
    first, second, third = tiers(need())
    together = ("side", "effects", "abacavir")
    assert first == Query(1, '"side"[tiab] AND "effects"[tiab] AND "abacavir"[tiab]', together)
    assert second == Query(2, '"side effects abacavir"[tiab:~25] AND "abacavir"[ti]')
    assert third == Query(3, '"side effects abacavir"[tiab:~25]')
    assert tiers(need(), exact_sentence=False)[0] == Query(1, '"side effects abacavir"[tiab:~15]')


def test_the_paper_keeps_stop_verbs_and_one_word_needs_no_proximity():
    assert [q.term for q in tiers(need(heading=1))] == [
        '"abacavir"[tiab]',
        '"abacavir"[tiab] AND "abacavir"[ti]',
        '"abacavir"[tiab]',
    ]
    paper = tiers(need(heading=1), drop_stop_verbs=False)
    assert paper[0].together == ("am", "using", "abacavir")
    assert paper[1].term == '"am using abacavir"[tiab:~25] AND "abacavir"[ti]'


@pytest.mark.parametrize(
    "medicine, words, title",
    [
        ("APO-Abacavir", "abacavir", '"abacavir"[ti]'),
        ("Abacavir Sandoz", "abacavir", '"abacavir"[ti]'),
        ("abacavir and lamivudine", "abacavir lamivudine", '"abacavir lamivudine"[ti:~0]'),
        ("co-trimoxazole", "co-trimoxazole", '"co-trimoxazole"[ti]'),
        ("St John's wort", "st john's wort", '"st john\'s wort"[ti:~0]'),
        ("vitamin E", "vitamin e", '"vitamin e"[ti:~0]'),
        ("APO-Abacavir 300 mg", "abacavir", '"abacavir"[ti]'),
        ("Abacavir GSK 20mg/mL", "abacavir", '"abacavir"[ti]'),
        ("Novo Nordisk insulin 100 units/mL", "insulin", '"insulin"[ti]'),
        ("Dr. Reddy's Abacavir 0.5 %", "abacavir", '"abacavir"[ti]'),
        ("Dr Reddys Abacavir", "abacavir", '"abacavir"[ti]'),
        ("Eli Lilly Abacavir", "abacavir", '"abacavir"[ti]'),
        ("Abacavir Janssen-Cilag", "abacavir", '"abacavir"[ti]'),
        ("Sanofi-Aventis Abacavir", "abacavir", '"abacavir"[ti]'),
        ("Chemmart Abacavir 1,000 micrograms", "abacavir", '"abacavir"[ti]'),
        ("Abacavir Pharmacor", "abacavir", '"abacavir"[ti]'),
        ("GenRx Abacavir", "abacavir", '"abacavir"[ti]'),
        ("Abacavir Accord", "abacavir", '"abacavir"[ti]'),
        ("GlaxoSmithKline Abacavir", "abacavir", '"abacavir"[ti]'),
        ("vitamin B12", "vitamin b12", '"vitamin b12"[ti:~0]'),
        ("interferon beta 1a", "interferon beta 1a", '"interferon beta 1a"[ti:~0]'),
    ],
)
@pytest.mark.parametrize("by", ["pos", "stopwords"])
def test_names_lose_their_maker_and_no_word_of_the_medicine(by, medicine, words, title):
    first, second, _ = tiers(need(medicine), by=by)
    assert " ".join(first.together) == f"side effects {words}"
    assert second.term.endswith(f" AND {title}")


def test_without_stop_verbs_four_headings_ask_the_same():
    asked = {n: tuple(tiers(need(heading=n))) for n in HEADINGS}
    assert asked[1] == asked[2] == asked[4] == asked[5] and len(set(asked.values())) == 3
    kept = {tuple(tiers(need(heading=n), drop_stop_verbs=False)) for n in HEADINGS}
    assert len(kept) > 3


def test_a_maker_is_not_a_medicine():
    with pytest.raises(ValueError, match="q: no words left of the medicine 'Pfizer'"):
        tiers(need("Pfizer"))


def test_parts_of_speech_keep_nouns_and_verbs_and_stop_words_keep_adjectives():
    question = "Do early beta-blockers prevent death in chronic heart failure?"
    content = ["beta-blockers", "prevent", "death", "heart", "failure"]
    assert terms(question) == content
    assert terms(question, "stopwords") == ["early", *content[:3], "chronic", *content[3:]]
    with pytest.raises(ValueError, match="choose 'pos' or 'stopwords'"):
        terms(question, "spacy")


def test_a_missing_tagger_is_named_and_stop_words_need_none(monkeypatch):
    monkeypatch.setitem(sys.modules, "textblob.en.taggers", None)
    with pytest.raises(ImportError, match=r"need textblob; run: pip install -r requirements\.txt"):
        terms("Does aspirin help?")
    assert terms("Does aspirin help?", "stopwords") == ["aspirin", "help"]


@settings(deadline=None)
@given(st.text(max_size=60))
def test_no_question_breaks_out_of_its_quotes(text):
    for query in tiers(need("aspirin", question=text), by="stopwords"):
        bare = query.term.replace('"[tiab]', '"').replace('"[ti]', '"').replace('"[tiab:~25]', '"')
        quoted = bare.split('"')[1::2]
        assert bare.count('"') == 2 * len(quoted) and not set("[]()*:~") & set("".join(quoted))
        assert set(bare.split('"')[2:-1:2]) <= {" AND "} and "aspirin" in " ".join(quoted)


# records -----------------------------------------------------------------------------------------


def test_a_search_is_fetched_from_its_session_by_post_in_batches_of_300(ncbi, client):
    ncbi.hold(dict.fromkeys(range(1, 702), 1999))
    found = list(client().records('"aspirin"[ti]'))
    assert [d.id for d in found] == [f"pubmed:{i}" for i in range(1, 702)]
    assert ncbi.kinds() == ["esearch", "efetch", "efetch", "efetch"]
    search, *pages = [params for _, params, _ in ncbi.asked]
    assert search["term"] == '"aspirin"[ti]' and search["usehistory"] == "y"
    assert (search["retmode"], search["mindate"], search["maxdate"]) == ("json", "1975", "2025")
    assert [(p["retstart"], p["retmax"]) for p in pages] == [
        ("0", "300"),
        ("300", "300"),
        ("600", "101"),
    ]
    assert all(p["WebEnv"] == "MCID_0" and p["query_key"] == "1" and "id" not in p for p in pages)
    assert all(p["tool"] and p["email"] == "reader@example.org" for p in (search, *pages))
    assert not any("?" in path for _, _, path in ncbi.asked)


def test_what_a_record_says_and_which_are_dropped(ncbi, client):
    labelled = (
        '<AbstractText Label="BACKGROUND">Cells were 10<sup>9</sup>/L &amp; <i>more</i>.'
        '</AbstractText><AbstractText Label="RESULTS" NlmCategory="RESULTS">p &lt; 0.05'
        " and r &gt; 0.2.</AbstractText>"
    )
    book = "<PubmedBookArticle><BookDocument><PMID>6</PMID></BookDocument></PubmedBookArticle>"
    late = article(7, "Text.", date="<Season>Winter</Season>").replace(
        "</Article>", "<ArticleDate><Year>2016</Year></ArticleDate></Article>"
    )
    ncbi.articles = {
        "1": (article(1, labelled, title="On <i>H. pylori</i>."), 2001),
        "2": (article(2, "Text.", date="<MedlineDate>1998 Dec-1999 Jan</MedlineDate>"), 1998),
        "3": (article(3), 1990),
        "4": (article(4, "<AbstractText/>"), 1990),
        "5": (article(5, "Text.", date="<MedlineDate>Winter</MedlineDate>"), 1990),
        "6": (book, 2010),
        "7": (late, 2016),
    }
    asker = client()
    one, two, seven = asker.records("x")
    assert one.text == "BACKGROUND: Cells were 10^9/L & more. RESULTS: p < 0.05 and r > 0.2."
    assert (one.id, one.title, one.year) == ("pubmed:1", "On H. pylori.", 2001)
    assert one.citations == UNKNOWN and one.source == "pubmed"
    assert one.meta["pmid"] == "1" and one.meta["types"] == ["Journal Article"]
    assert (two.year, seven.year) == (1998, 2016)
    assert asker.counts["without abstract"] == 2 and asker.counts["without year"] == 1
    assert asker.counts["not returned"] == 1  # the book


def test_nothing_found_is_nothing_and_needs_no_fetch(ncbi, client):
    assert list(client().records("x")) == [] and ncbi.kinds() == ["esearch"]


@pytest.mark.parametrize(
    "errors",
    [
        {"errorlist": {"phrasesnotfound": ["zzyzx"], "fieldsnotfound": []}},
        {"warninglist": {"quotedphrasesnotfound": ['"zzyzx"[tiab]'], "outputmessages": []}},
    ],
)
def test_a_phrase_that_pubmed_left_out_means_nothing_was_found(ncbi, client, errors):
    ncbi.hold({1: 1999})
    ncbi.extra = errors
    asker = client()
    assert list(asker.records("x")) == []
    assert asker.counts["searches with an unknown phrase"] == 1 and ncbi.kinds() == ["esearch"]


@settings(deadline=None, max_examples=60)
@given(held=st.dictionaries(st.integers(1, 99), st.integers(1975, 1990), max_size=40))
def test_too_many_records_are_found_by_halves_and_months_once_each(held):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("LIMIT", 4), ("BATCH", 3), ("sleep", lambda _: None)):
            patch.setattr(pubmed, name, value)
        server = NCBI.__new__(NCBI)
        server.articles, server.finds, server.sessions, server.extra = {}, {}, {}, {}
        server.hold(held)
        server.finds["x"] = [*server.articles, *list(server.articles)[:1]]  # PubMed repeats one

        def ask(kind, asked, read, send):
            return read(server.reply(kind, send)), "2025-01-01", True

        asker = PubMed(email="x", folder=pubmed.Path("unused"))
        patch.setattr(asker, "_ask", ask)
        by_year, by_month = (
            Counter(server.date(pmid)[:n] for pmid in server.finds["x"]) for n in (4, 7)
        )
        over = {m: n - 4 for m, n in by_month.items() if n > 4 and by_year[m[:4]] > 4}
        found = [int(d.meta["pmid"]) for d in asker.records("x", (1975, 1990))]
        assert len(found) == len(set(found)) and set(found) <= set(held)
        lost = asker.counts["left out of a year with over 4"]
        assert lost == sum(over.values())
        assert len(held) - lost <= len(found) <= len(held)
        assert {server.date(str(pmid)) for pmid in set(held) - set(found)} <= set(over)


# faults ------------------------------------------------------------------------------------------


CLIPPED = '<?xml version="1.0"?><PubmedArticleSet><PubmedArticle>'
SHORT = '{"esearchresult": {"count": "2", "idlist": ["1"], "webenv": "w", "querykey": "1"}}'
DOWN = '{"esearchresult": {"ERROR": "Search Backend failed: \n down"}}'  # not strict JSON
BROKEN = {
    "esearch": [
        "429",
        "500",
        "503",
        "drop",
        "cut",
        '{"esearchres',
        DOWN,
        '{"error": "API rate limit exceeded"}',
        "<html>busy</html>",
        SHORT,
    ],
    "efetch": [
        "429",
        "502",
        "drop",
        "cut",
        CLIPPED,
        article_set(),
        "<eFetchResult><ERROR/></eFetchResult>",
        article_set(article(99, "Another record.")),
    ],
    "pubs": ["429", "500", "drop", "cut", '{"data": [{"pm', '{"error": "down"}'],
}


@pytest.mark.parametrize("kind, fault", [(k, f) for k, faults in BROKEN.items() for f in faults])
def test_a_fault_is_asked_again_and_leaves_no_trace(ncbi, client, slept, kind, fault):
    ncbi.hold({1: 1999, 2: 2000})
    ncbi.cited = {"1": 5, "2": 0}
    ncbi.steps = ["ok"] * list(BROKEN).index(kind) + [fault, fault]
    asker = client()
    found = list(asker.records("x"))
    assert [d.year for d in found] == [1999, 2000]
    assert {p: n for p, (n, _) in asker.citations(d.meta["pmid"] for d in found).items()} == {
        "1": 5,
        "2": 0,
    }
    assert ncbi.kinds().count(kind) == 3 and len(ncbi.asked) == 5
    assert [p for p in slept if p >= 7] == [100, 200]  # wait_s, and its double
    if kind == "efetch":
        first, second, third = (params for k, params, _ in ncbi.asked if k == kind)
        assert "WebEnv" in first and second["id"] == third["id"] == "1,2"


@pytest.mark.parametrize("code", ["400", "404", "414"])
def test_a_session_that_is_refused_is_asked_for_by_id_and_then_not_again(ncbi, client, code):
    ncbi.hold({1: 1999, 2: 2000})
    ncbi.steps = ["ok", code]  # 400: NCBI has lost the WebEnv
    assert [d.year for d in client().records("x")] == [1999, 2000]
    assert ncbi.kinds() == ["esearch", "efetch", "efetch"]
    assert "WebEnv" in ncbi.asked[1][1] and ncbi.asked[2][1]["id"] == "1,2"
    ncbi.asked.clear()
    ncbi.hold({3: 2001})  # the others are kept
    ncbi.steps = ["ok", code, code]
    with pytest.raises(PubMedError, match=f"efetch: no good reply .*{code}"):
        list(client().records("y"))
    assert ncbi.kinds() == ["esearch", "efetch", "efetch"]


def test_retry_after_is_obeyed_where_it_is_longer(ncbi, client, slept):
    ncbi.steps = ["429"]
    assert list(client(wait_s=1).records("x")) == [] and 7 in slept


def test_a_slow_server_is_a_fault(ncbi, client):
    ncbi.steps = ["slow"]
    assert list(client(timeout_s=0.2).records("x")) == []
    asked = ncbi.kinds()  # twice, and oftener where the machine itself is slow
    assert len(asked) >= 2 and set(asked) == {"esearch"}


def test_giving_up_says_what_failed_and_what_next_but_never_the_key(ncbi, client, monkeypatch):
    monkeypatch.setenv("NCBI_API_KEY", KEY)
    ncbi.steps = ["500"] * 3
    with pytest.raises(PubMedError, match=r"esearch: no good reply \(HTTPError.* 500.*later") as e:
        list(client(tries=3).records("x"))
    assert len(ncbi.asked) == 3 and KEY not in str(e.value)
    ncbi.steps = ["400"]
    with pytest.raises(PubMedError, match=r'400.*"api-key": "\[key\]"') as e:
        list(client().records("x"))
    assert len(ncbi.asked) == 4 and KEY not in str(e.value)  # a refusal is not repeated
    ncbi.steps = [DOWN] * 2
    with pytest.raises(PubMedError, match="esearch says Search Backend failed: \n down"):
        list(client(tries=2).records("x"))


@pytest.mark.parametrize("shown", range(245, 269, 3))
def test_no_part_of_the_key_is_shown_where_a_refusal_is_cut(shown, ncbi, client, monkeypatch):
    monkeypatch.setenv("NCBI_API_KEY", KEY)
    ncbi.steps, ncbi.padding = ["400"], "x" * shown
    with pytest.raises(PubMedError, match="400") as caught:
        list(client().records("x"))
    assert "xxx" in str(caught.value) and KEY[:12] not in str(caught.value)


def test_a_reply_that_declares_entities_is_never_expanded(ncbi, client):
    ncbi.hold({1: 1999})
    bomb = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]>'
    ncbi.steps = ["ok", *[article_set(article(1, "&b;"), head=bomb)] * 2]
    with pytest.raises(PubMedError, match="refused, it declares entities"):
        list(client(tries=2).records("x"))


def test_no_address_no_request(monkeypatch):
    monkeypatch.delenv("NCBI_EMAIL", raising=False)
    with pytest.raises(PubMedError, match="set NCBI_EMAIL"):
        PubMed()


# the cache, the key and the clock ----------------------------------------------------------------


def test_a_stopped_run_goes_on_by_id_and_a_finished_one_asks_for_nothing(ncbi, client, monkeypatch):
    monkeypatch.setattr(pubmed, "BATCH", 2)
    ncbi.hold(dict.fromkeys(range(1, 6), 1999))
    ncbi.steps = ["ok", "ok", *["drop"] * 2]
    with pytest.raises(PubMedError, match="goes on from what is kept"):
        list(client(tries=2).records("x"))
    ncbi.asked.clear()
    ncbi.sessions.clear()  # NCBI forgets them after some hours
    again = list(client().records("x"))
    assert [d.meta["pmid"] for d in again] == list("12345")
    assert [params["id"] for _, params, _ in ncbi.asked] == ["3,4", "5"]
    ncbi.asked.clear()
    assert list(client().records("x")) == again and not ncbi.asked


@pytest.mark.parametrize("damage", [("Title", "Tattle"), ('"date"', '"data"'), ("{", "")])
def test_a_kept_reply_that_was_damaged_is_named_and_asked_for_again(
    ncbi, client, tmp_path, capsys, damage
):
    ncbi.hold({1: 1999})
    first = list(client().records("x"))
    (kept,) = (tmp_path / "kept" / "efetch").iterdir()
    text = kept.read_text()
    assert damage[0] in text
    kept.write_text(text.replace(*damage))
    ncbi.asked.clear()
    assert list(client().records("x")) == first
    assert len(ncbi.asked) == 1 and kept.name in capsys.readouterr().err
    assert kept.read_text() == text


def test_every_reply_is_kept_raw_with_its_date_and_without_the_key(
    ncbi, client, monkeypatch, tmp_path
):
    monkeypatch.setenv("NCBI_API_KEY", KEY)
    ncbi.hold({1: 1999})
    ncbi.extra = {"querytranslation": f"echo of {KEY}"}
    asker = client()
    assert [d.meta["fetched"] for d in asker.records("x")] == [time.strftime("%Y-%m-%d")]
    asker.citations(["1"])
    files = [path for path in (tmp_path / "kept").rglob("*") if path.is_file()]
    assert sorted(path.parent.name for path in files) == ["efetch", "esearch", "icite"]
    for path in files:
        text = path.read_text()
        kept = json.loads(text)
        assert kept["date"] == time.strftime("%Y-%m-%d") and kept["reply"] and kept["asked"]
        assert KEY not in str(path) and KEY not in text and "reader@example.org" not in text
    sent = {kind: (params.get("api_key"), path) for kind, params, path in ncbi.asked}
    assert sent["esearch"][0] == sent["efetch"][0] == KEY and sent["pubs"][0] is None
    assert not any(KEY in path for _, path in sent.values())


@pytest.mark.parametrize("key, most", [("", 3), (KEY, 10)])
def test_never_more_requests_in_any_second_than_ncbi_allows(ncbi, client, monkeypatch, key, most):
    monkeypatch.setenv("NCBI_API_KEY", key)
    clock, times, ask = [50.0], [], pubmed.urlopen
    monkeypatch.setattr(pubmed, "monotonic", lambda: clock[0])
    monkeypatch.setattr(pubmed, "sleep", lambda s: clock.__setitem__(0, clock[0] + s))

    def timed(request, timeout):
        times.append(clock[0])
        clock[0] += 0.01
        return ask(request, timeout=timeout)

    monkeypatch.setattr(pubmed, "urlopen", timed)
    asker = client()
    for i in range(25):
        list(asker.records(f"x{i}"))
    assert len(times) == 25
    assert max(sum(t <= u < t + 0.999 for u in times) for t in times) <= most
    assert times[-1] - times[0] == pytest.approx(24 / most, abs=0.05)  # and no slower


# citations and gathering -------------------------------------------------------------------------


def test_citations_come_in_batches_of_200_and_a_missing_one_is_not_zero(ncbi, client):
    ncbi.cited = {str(i): i for i in range(450) if i % 2} | {"10": None, "12": 0}
    found = client().citations(str(i) for i in range(450))
    assert {p: n for p, (n, _) in found.items()} == {
        str(i): i if i % 2 else 0 if i == 12 else UNKNOWN for i in range(450)
    }
    assert [len(params["pmids"].split(",")) for _, params, _ in ncbi.asked] == [200, 200, 50]
    assert {params["fl"] for _, params, _ in ncbi.asked} == {"pmid,citation_count"}


def test_gathering_joins_the_tiers_and_checks_sentences_here(ncbi, client):
    first, second, third = queries = tiers(need())
    far = "Side effects of aspirin. Abacavir is a drug."
    ncbi.articles = {
        "30": (article(30, "Mild side effects of abacavir.", date="<Year>1999</Year>"), 1999),
        "4": (article(4, far), 2001),
        "5": (article(5, "Side effects, preabacavir."), 2001),
        "6": (article(6, "Nothing.", title="Abacavir: side effects"), 2001),
    }
    ncbi.finds = {first.term: ["30", "4", "5", "6"], second.term: ["30"], third.term: ["4", "30"]}
    ncbi.cited = {"30": 12}
    asker = client()
    found = gather(asker, need(), queries, sentences=lambda text: text.split(". "))
    assert [(d.meta["pmid"], d.meta["tiers"], d.citations) for d in found] == [
        ("4", [3], UNKNOWN),
        ("6", [1], UNKNOWN),
        ("30", [1, 2, 3], 12),
    ]
    assert asker.counts["not in one sentence"] == 2
    assert {(d.medicine, d.topic) for d in found} == {("ABACAVIR", "q")}
    assert all(d.meta["cited"] == d.meta["fetched"] for d in found)
