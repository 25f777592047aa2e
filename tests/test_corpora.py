"""Corpora: readers on hand-made files of their forms, cutting, the store, and the real counts."""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from unittest.mock import create_autospec

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lib import corpora, index_build
from lib.base import downloads
from lib.base.downloads import DownloadError
from lib.base.files import StaleInput, read_manifest, sha256_bytes
from lib.base.provenance import data_hash
from lib.corpora import cut, load_passages
from lib.data import medrag
from lib.data.medrag import cut_statpearls, estimate, load_medrag, read_records
from lib.data.openstax import read_book
from lib.data.passages import CORPORA, Passage, parse_xml, tidy
from lib.data.store import PassageStore
from lib.embed import HashEncoder
from lib.index_build import corpus_store, corpus_table


@pytest.fixture(scope="module")
def cached(tmp_path_factory):
    """One cache for the whole module: archives are checked once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHR_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


# texts and their pieces --------------------------------------------------------------------------


def letters(text: str) -> str:
    return "".join(text.split())


PROSE = st.lists(st.text("ab.?! \n\t\u2009é漢🙂", max_size=200), max_size=30).map("".join)


@given(PROSE)
@example("word " * 400)
@example("x" * 2500)
@example("One sentence. " * 100 + "y" * 1500 + " End.")
@settings(max_examples=60, deadline=None)
def test_cutting_loses_and_invents_nothing(text):
    pieces = cut(text)
    assert all(0 < len(piece) <= 1000 for piece in pieces) or tidy(text) == ""
    assert letters("".join(pieces)) == letters(text)
    assert all(piece == " ".join(piece.split()) for piece in pieces)
    if len(tidy(text)) <= 1000:
        assert pieces == [tidy(text)]


def test_cuts_are_between_sentences():
    sentences = [f"Sentence number {i} says something of no weight at all." for i in range(60)]
    pieces = cut("  ".join(sentences))
    assert len(pieces) > 2 and all(p.startswith("Sentence") and p.endswith(".") for p in pieces)


def test_tidy_decodes_drops_markup_and_collapses_white_space():
    for raw, clean in (
        (" a\t b\n\nc ", "a b c"),
        ("the &amp;quot;x&amp;quot; one", 'the "x" one'),
        ("end.<br><b>AIM</b>: 10<sup>3</sup> CO<sub>2</sub>", "end. AIM: 10^3 CO2"),
        ("<40,000 cells, a<b", "<40,000 cells, a<b"),
    ):
        assert tidy(raw) == tidy(clean) == clean
    assert tidy(" Na  140 \r\n K   4 ", keep_lines=True) == "Na 140\nK 4"


def test_xml_with_entities_or_faults_is_refused_by_name_and_may_name_a_dtd():
    for data in (
        b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>',
        '<?xml version="1.0" encoding="UTF-16"?><a/>'.encode("utf-16"),
        b"<a><b></a>",
    ):
        with pytest.raises(ValueError, match="this file"):
            parse_xml(data, "this file")
    assert parse_xml(b'<!DOCTYPE book PUBLIC "-//x" "http://x/x.dtd"><book/>', "x").tag == "book"


# readers -----------------------------------------------------------------------------------------

MEDQUAD = b"""<?xml version="1.0" encoding="UTF-8"?>
<Document id="other" source="GARD" url="https://example.org/aaa"><Focus>Aneurysm</Focus>
<FocusAnnotations><UMLS><CUIs><CUI>C01</CUI><CUI>C02</CUI></CUIs>
<SemanticGroup>Disorders</SemanticGroup></UMLS>
<Synonyms><Synonym>Bulge of  an artery</Synonym><Synonym>AN</Synonym></Synonyms></FocusAnnotations>
<QAPairs><QAPair pid="1"><Question qid="x-1" qtype="information">What is (are) Aneurysm ?</Question>
<Answer>A  bulge &quot;here&quot;.
    More.</Answer></QAPair>
<QAPair pid="2"><Question qid="x-2" qtype="causes">Why ?</Question><Answer> </Answer></QAPair>
<QAPair pid="3"><Question qid="x-3" qtype="outlook">And ?</Question><Answer>Good.</Answer></QAPair>
</QAPairs></Document>"""


def test_medquad_form(monkeypatch):
    registered = {"medquad-2_GARD_QA": None}
    monkeypatch.setattr("lib.data.passages.load_registry", lambda prefix: registered)
    monkeypatch.setattr(corpora, "members", lambda name: [("0000006.xml", MEDQUAD)])
    first, third = corpora._READERS["medquad"]()
    assert (first.pid, first.title) == ("medquad:2_GARD_QA/0000006-1", "Aneurysm")
    assert first.text == 'A bulge "here". More.'
    assert first.meta == {
        "focus": "Aneurysm",
        "cuis": ["C01", "C02"],
        "synonyms": ["Bulge of an artery", "AN"],
        "group": "Disorders",
        "subset": "2_GARD_QA",
        "document": "0000006",
        "url": "https://example.org/aaa",
        "question": "What is (are) Aneurysm ?",
        "question_type": "information",
    }
    assert third.pid.endswith("-3") and third.text == "Good."  # no answer, no document


COLLECTION = b"""<col:collection xmlns:col="http://cnx.rice.edu/collxml"
 xmlns:md="http://cnx.rice.edu/mdml"><col:metadata><md:title>Body 2e</md:title></col:metadata>
<col:content><col:module document="m0"/><col:subcollection><md:title>Blood</md:title><col:content>
<col:module document="m1"/></col:content></col:subcollection></col:content></col:collection>"""

MODULE = """<document xmlns="http://cnx.rice.edu/cnxml" xmlns:m="http://www.w3.org/1998/Math/MathML">
<title>Plasma</title><metadata>not prose</metadata><content>
<section class="learning-objectives"><title>Learning Outcomes</title><para>Define it.</para>
</section>
<para>Plasma is <term>fluid</term> (<link target-id="f1"/>), 10<sup>3</sup>
 mL of Ca<sup>2+</sup>.<footnote>A book.</footnote></para>
<figure id="f1"><title>A tube</title><media alt="A drawing of noise"><image/></media>
<caption>Cells sink. (credit: modification of work by X (Y))</caption></figure>
<section><title>Parts</title><para>These are:</para>
<list><item>albumin</item><item>globulin</item></list>
<table><title>Shares</title><tgroup cols="2"><colspec/><thead><row><entry>Part</entry>
<entry>%</entry></row></thead><tbody><row><entry>albumin</entry><entry>60</entry></row></tbody>
</tgroup></table>
<exercise><problem><para>Which part?</para></problem><solution><para>A</para></solution></exercise>
<note class="anatomy interactive"><para>Watch this video.</para></note>
<note class="safety"><title>Care</title><para>Keep cool.</para></note>
<section><title>Ratio</title><equation><m:math><m:mi>r</m:mi><m:mo>=</m:mo><m:mfrac><m:mrow>
<m:mi>a</m:mi><m:mo>+</m:mo><m:mi>b</m:mi></m:mrow><m:msup><m:mn>10</m:mn><m:mn>2</m:mn></m:msup>
</m:mfrac></m:math></equation></section>
</section>
<section class="references"><title>References</title><para>Somebody, 1999.</para></section>
</content><glossary><definition><term>plasma</term><meaning>the fluid part</meaning></definition>
</glossary></document>"""


def book(*modules: tuple[str, str]) -> list[Passage]:
    files = [("LICENSE", b"free"), ("collections/body.collection.xml", COLLECTION)]
    files += [(f"modules/{name}/index.cnxml", text.encode()) for name, text in modules]
    return list(read_book("body", files))


def test_cnxml_form():
    found = book(("m1", MODULE))
    assert {p.title: p.text for p in found} == {
        "Plasma": "Plasma is fluid (Figure), 10^3 mL of Ca2+. A tube. Cells sink.",
        "Plasma -- Parts": (
            "These are: albumin; globulin. Shares. Part | %. albumin | 60. Care. Keep cool."
        ),
        "Plasma -- Parts -- Ratio": "r = (a + b)/10^2.",
        "Plasma -- Key terms": "plasma: the fluid part.",
    }
    assert found[0].meta == {"book": "Body 2e", "chapter": "Blood", "module": "m1"}
    assert [p.pid for p in found] == [f"openstax:body/m1/{i}" for i in range(4)]
    # Introductions are named by their chapter, and prefaces left out.
    start = MODULE.replace("<title>Plasma</title>", "<title>Introduction</title>", 1)
    assert book(("m1", start))[0].title == "Blood -- Introduction"
    assert book(("m0", start))[0].title == "Body 2e -- Introduction"
    assert book(("m0", MODULE.replace("<document ", '<document class="preface" ', 1))) == []


def records(*rows: dict) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


GOOD = {"id": "1", "title": "t", "content": "x"}


def test_medrag_records():
    abstract = {"id": "p1_0", "title": "On it", "content": "It is.", "PMID": 21}
    lines = records(abstract, GOOD).splitlines()
    assert list(read_records("pubmed", lines, "a.jsonl")) == [
        Passage("pubmed:p1_0", "On it", "It is.", "pubmed", {"pmids": ["21"]}),
        Passage("pubmed:1", "t", "x", "pubmed", {}),
    ]


def test_what_is_not_a_record_is_refused_by_name():
    for line, message in (
        (b"version https://git-lfs.github.com/spec/v1\n", r"a\.jsonl is a Git LFS.*git lfs pull"),
        (b'{"id": "1", "title"', r"a\.jsonl, line 2: no record.*mend the line"),
        (b'{"id": "a", "content": "x"}', r"line 2.*title"),
        (b'{"id": "a", "title": "t", "content": ["x"]}', r"line 2.*content is \['x'\]"),
        (b"[1]", "line 2: no record"),
        (b'{"id": "a", "title": "t", "content": "Sj\xf6gren"}', "line 2.*utf-8"),
        (b'{"id": "a", "title": "t", "content": "\\ud83d"}', "line 2.*surrogates"),
    ):
        with pytest.raises(DownloadError, match=message):
            list(read_records("textbooks", [records(GOOD), line], "a.jsonl"))


def chunk_of(folder: Path, source: str = "textbooks") -> Path:
    chunk = folder / "medrag" / source / "chunk"
    chunk.mkdir(parents=True)
    return chunk


def test_medrag_folder_is_read_file_by_file_in_order_without_empty_records(
    tmp_path, monkeypatch, capsys
):
    chunk = chunk_of(tmp_path)
    for name in "ba":
        rows = [GOOD | {"id": f"{name}_{i}"} for i in range(2)]
        (chunk / f"{name}.jsonl").write_bytes(records(*rows, GOOD | {"content": " \n"}))
    wanted = ["textbooks:a_0", "textbooks:a_1", "textbooks:b_0", "textbooks:b_1"]
    assert [p.pid for p in load_medrag("textbooks", chunk.parent)] == wanted
    assert "textbooks: left out, for want of a text: 2 records" in capsys.readouterr().err
    monkeypatch.setenv("CHR_MIRROR", str(tmp_path))
    assert [p.pid for p in load_passages("textbooks", limit=3)] == wanted[:3]
    with pytest.raises(DownloadError, match="MedRAG/wikipedia"):
        next(load_passages("wikipedia"))


def test_a_local_copy_that_is_changed_in_place_is_read_again(own_folders, monkeypatch):
    chunk = chunk_of(own_folders)
    monkeypatch.setenv("CHR_MIRROR", str(own_folders))

    def stored(text: str) -> PassageStore:
        (chunk / "a.jsonl").write_bytes(records(GOOD | {"content": text}))
        return corpus_store(["textbooks"])

    first, second = stored("Gout is urate."), stored("Gout is sugar.")
    assert [p.text for p in second] == ["Gout is sugar."]
    assert first.content != second.content == PassageStore.open(second.path).content
    reads = []
    monkeypatch.setattr(index_build, "load_passages", lambda *given: reads.append(given))
    assert corpus_store(["textbooks"]).content == second.content and not reads


def test_of_a_limited_corpus_what_is_to_be_kept_stays(own_folders):
    few = set(corpus_store(["ddx-mini"], 7).ids())
    out = next(p.pid for p in corpus_store(["ddx-mini"]) if p.pid not in few)
    assert set(corpus_store(["ddx-mini"], 7, lambda: {out}, kept=out).ids()) == few | {out}


def test_medrag_from_the_hub_one_file_at_a_time(tmp_path, monkeypatch):
    import huggingface_hub

    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_bytes(records(GOOD | {"id": name}))
    download = create_autospec(
        huggingface_hub.hf_hub_download, side_effect=lambda filename, **_: tmp_path / filename[6:]
    )
    listing = create_autospec(
        huggingface_hub.HfApi.list_repo_files,
        return_value=["README.md", "chunk/b.jsonl", "chunk/a.jsonl"],
    )
    monkeypatch.delenv("CHR_MIRROR", raising=False)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    monkeypatch.setattr(huggingface_hub.HfApi, "list_repo_files", listing)
    passages = load_medrag("textbooks")
    assert next(passages).pid == "textbooks:a" and download.call_count == 1
    assert [p.pid for p in passages] == ["textbooks:b"]


LONG = "A long paragraph about the disease. " * 8  # 288 characters
NXML = f"""<!DOCTYPE book-part-wrapper PUBLIC "-//NLM//DTD" "BITS-book2.dtd"><book-part-wrapper>
<book-part><book-part-meta><title-group><title>Gout</title></title-group></book-part-meta><body>
<sec><title>Etiology</title><p>{LONG}</p><p>Short <italic>one</italic>, H<sub>2</sub>O.</p>
<p>{LONG}</p>
<list><list-item><p>uric acid</p></list-item><list-item><p>beer</p></list-item></list></sec>
<sec><title>Treatment</title><p><bold>Acute</bold></p><p>Rest.</p><p><bold>Drugs</bold></p>
<list>{"".join(f"<list-item><p>{LONG}{i}</p></list-item>" for i in range(4))}</list>
<p>Then wait.</p></sec></body></book-part></book-part-wrapper>"""


def test_statpearls_are_cut_by_the_rule_of_medrag():
    found = list(cut_statpearls("article-1", NXML.encode()))
    text = LONG.strip()
    assert [(p.title, p.text) for p in found] == [
        ("Gout -- Etiology", f"{text} Short one, H2O."),
        ("Gout -- Etiology", f"{text} uric acid beer"),
        ("Gout -- Treatment -- Acute", "Rest."),
        *(("Gout -- Treatment -- Drugs", f"{LONG}{i}") for i in range(4)),
        ("Gout -- Treatment", "Then wait."),
    ]
    assert [p.pid for p in found] == [f"statpearls:article-1_{i}" for i in range(8)]


def test_a_short_paragraph_starts_a_passage_when_the_one_before_is_full():
    # MedRAG adds the two lengths without the space between, so a passage may reach 1,000.
    body = "".join(f"<p>{'w' * n}</p>" for n in (850, 149, 1, 900, 100, 300))
    data = f"<x><title>T</title><sec><title>S</title>{body}</sec></x>".encode()
    assert [len(p.text) for p in cut_statpearls("a", data)] == [1000, 1, 900, 100, 300]


def test_statpearls_archive(tmp_path):
    with tarfile.open(tmp_path / "statpearls_NBK430685.tar.gz", "w:gz") as tar:
        for name, data in (("a/article-1.nxml", NXML.encode()), ("a/figure.jpg", b"jpg")):
            entry = tarfile.TarInfo(f"statpearls_NBK430685/{name}")
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    assert len(list(load_medrag("statpearls", tmp_path))) == 8
    (tmp_path / "statpearls_NBK430685.tar.gz").write_bytes(gzip.compress(b"no tar"))
    with pytest.raises(DownloadError, match="make data PROFILE=paper"):
        list(load_medrag("statpearls", tmp_path))


def test_statpearls_download_is_kept_with_its_date_and_hash(own_folders, monkeypatch):
    calls = []

    def download(url, path, known_hash):
        calls.append(url)
        path.write_bytes(b"archive")

    monkeypatch.setattr(medrag, "download", download)
    path = medrag._download_statpearls()
    assert medrag._download_statpearls() == path and len(calls) == 1
    manifest = read_manifest(path)
    assert manifest["sha256"] == sha256_bytes(b"archive")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", manifest["settings"]["date"])


def test_estimates_follow_from_rows_and_fit_the_hub():
    pubmed, books = estimate("pubmed"), estimate("textbooks")
    assert (pubmed.rows, pubmed.float32_gb, pubmed.float16_gb) == (23_900_000, 73.42, 36.71)
    assert 0.19 < books.download_gb < 0.23, "the hub says 212 MB"


# passages ----------------------------------------------------------------------------------------


def test_ids_of_whole_and_of_cut_documents(monkeypatch):
    documents = [
        Passage("pubmedqa:1", "T", "Short.", "pubmedqa", {"year": 1999}),
        Passage("pubmedqa:2", "U", "A sentence of forty characters. " * 40, "pubmedqa", {}),
    ]
    monkeypatch.setitem(corpora._READERS, "pubmedqa", lambda: documents)
    first, *rest = load_passages("pubmedqa")
    assert first == replace(documents[0], meta={"doc": "pubmedqa:1", "year": 1999})
    assert [p.pid for p in rest] == ["pubmedqa:2#0", "pubmedqa:2#1"]
    assert {p.meta["doc"] for p in rest} == {"pubmedqa:2"}
    with pytest.raises(ValueError, match="known: bioasq, pubmedqa"):
        load_passages("umls")


# the store ----------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
META = st.dictionaries(
    TEXT, st.one_of(TEXT, st.integers(-9, 9), st.none(), st.lists(TEXT)), max_size=3
)
PID = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
PASSAGES = st.lists(
    st.builds(Passage, PID, TEXT, TEXT, TEXT, META), unique_by=lambda p: p.pid, max_size=12
)


def some(n: int) -> list[Passage]:
    return [Passage(f"p{n - i:05d}", f"t{i}", f"text {i}", "s", {"i": i}) for i in range(n)]


@given(PASSAGES, st.data())
@settings(max_examples=40)
def test_a_store_gives_back_what_it_was_given(tmp_path_factory, passages, data):
    path = tmp_path_factory.mktemp("store") / "p.sqlite"
    built = PassageStore.build(path, iter(passages), {"limit": 3})
    assert read_manifest(path)["rows"] == len(passages)
    for store in (built, PassageStore.open(path)):
        assert len(store) == len(passages)
        assert list(store) == passages
        assert list(store.ids()) == [p.pid for p in passages]
        assert list(store.sources()) == [p.source for p in passages]
        lengths = Counter((p.source, len(p.text)) for p in passages)
        assert list(store.lengths().items()) == list(lengths.items())
        wanted = data.draw(st.lists(st.sampled_from(range(len(passages))))) if passages else []
        asked = [passages[i].pid for i in wanted]
        assert store.get_many(asked) == [passages[i] for i in wanted]


def test_a_corpus_is_counted_by_source_without_a_list_of_its_passages(tmp_path):
    lengths = {"wikipedia": [7, 3, 900, 41], "ours": [5, 5]}
    passages = [
        Passage(f"{name}:{i}", "", "x" * n, name, {})
        for name, own in lengths.items()
        for i, n in enumerate(own)
    ]
    table = corpus_table(PassageStore.build(tmp_path / "p.sqlite", passages), HashEncoder(dim=8))
    assert table["corpus"].tolist() == ["wikipedia", "ours"] and table["cut"].tolist() == [0, 0]
    for row, own in zip(table.itertuples(), lengths.values(), strict=True):
        wanted = [len(own), round(np.mean(own)), round(np.quantile(own, 0.95))]
        assert [row.passages, row.mean_chars, row.p95_chars] == wanted
    assert table["licence"].tolist() == ["CC BY-SA 3.0", ""]


def test_unknown_ids_are_named_and_equal_ones_refused(tmp_path):
    path = tmp_path / "p.sqlite"
    store = PassageStore.build(path, some(3))
    assert store.get("p00003") == some(3)[0]
    with pytest.raises(KeyError, match="p9"):
        store.get_many(["p00001", "p9"])
    with pytest.raises(ValueError, match="id 'p0000[12]'"):
        PassageStore.build(path, some(3) + some(2))
    with pytest.raises(ValueError, match="NUL"):
        PassageStore.build(path, [Passage("p\0", "", "", "s", {})])
    assert list(PassageStore.open(path)) == some(3)  # the old one stays


def test_a_store_whose_building_stops_leaves_nothing(tmp_path):
    def broken():
        yield from some(5)
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        PassageStore.build(tmp_path / "p.sqlite", broken())
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StaleInput, match="run: make data"):
        PassageStore.open(tmp_path / "p.sqlite")


def test_several_threads_read_one_store(tmp_path):
    passages = some(400)
    store = PassageStore.build(tmp_path / "p?#%.sqlite", passages)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda p: store.get(p.pid), passages))
    assert found == passages


# real files ---------------------------------------------------------------------------------------


@pytest.mark.mirror
def test_reading_streams(mirror, cached, monkeypatch):
    opened = []
    real = downloads.members
    monkeypatch.setattr(corpora, "members", lambda name: opened.append(name) or real(name))
    assert len(list(load_passages("medquad", limit=3))) == 3
    assert opened == ["medquad-1_CancerGov_QA"]


DOCUMENTS = {
    "bioasq": 21_231,
    "pubmedqa": 1_000,
    "medquad": 16_407,
    "openstax": 6_206,
    "ddx-mini": 624,
}


@pytest.fixture(scope="module")
def everything(cached):
    """All passages by corpus; only tests that have the mirror ask for it."""
    return {source: list(load_passages(source)) for source in DOCUMENTS}


@pytest.mark.mirror
@pytest.mark.parametrize("source", DOCUMENTS)
def test_every_corpus_keeps_the_contract(source, mirror, everything):
    passages = everything[source]
    assert len(passages) == len({p.pid for p in passages}) == CORPORA[source].passages
    assert len({p.meta["doc"] for p in passages}) == DOCUMENTS[source]
    assert CORPORA[source].files and data_hash(CORPORA[source].files)
    for p in passages:
        if source == "ddx-mini":
            assert p.meta["topic"] and p.source == p.meta["source"]
        else:
            assert p.pid.startswith(f"{source}:") and p.source == source
        assert len(p.text) > 0 and (source == "bioasq" or len(p.text) <= 1000)
        assert p.text == " ".join(p.text.split())


@pytest.mark.mirror
def test_real_bioasq_keeps_every_document_and_question_of_a_snippet(mirror, everything):
    raw: dict[str, tuple[set, set]] = {}
    of_text: dict[str, list[tuple[set, set]]] = {}
    for path in (mirror / "mirage/rawdata/bioasq").glob("*/*.json"):
        for question in json.loads(path.read_text())["questions"]:
            for s in question["snippets"]:
                pmids, qids = raw.setdefault(s["text"], (set(), set()))
                pmids.add(s["document"].rsplit("/", 1)[1])
                qids.add(question["id"])
    whole = [p for p in everything["bioasq"] if "#" not in p.pid]
    assert len(raw) == len(whole) == 21_231
    for text, meta in raw.items():
        of_text.setdefault(tidy(text), []).append(meta)
    for p in whole:
        assert (set(p.meta["pmids"]), set(p.meta["qids"])) in of_text[p.text] and p.title == ""


@pytest.mark.mirror
def test_real_pubmedqa_has_years_and_hides_conclusions(mirror, everything):
    documents = {p.meta["doc"]: p for p in everything["pubmedqa"]}
    years = [p.meta["year"] for p in documents.values() if p.meta["year"]]
    assert (len(years), min(years), max(years)) == (942, 1989, 2017)
    texts: dict[str, str] = {}
    for p in everything["pubmedqa"]:
        texts[p.meta["doc"]] = texts.get(p.meta["doc"], "") + " " + p.text
    assert not any(p.meta["conclusion"] in texts[doc] for doc, p in documents.items())


@pytest.mark.mirror
def test_real_textbooks_read_as_prose(mirror, everything):
    noise = re.compile(r"</?[a-z]+>|\(\s*\)|&[a-z]+;|By the end of this section, you should|\xa0")
    assert not [p.pid for p in everything["openstax"] if noise.search(p.text)]
    assert len({p.meta["book"] for p in everything["openstax"]}) == 5
    short = [p for p in everything["openstax"] if len(p.text) < 50]
    assert len(short) < 0.005 * len(everything["openstax"])
