"""A reader's own question: in bundled passages, in a folder, and written by a model."""

from __future__ import annotations

import json
import os
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from lib.benchmarks.ddx_mini import read
from lib.corpora import cut
from lib.corpus import Corpus
from lib.embed import HashEncoder, load_encoder
from lib.explorer import own
from lib.explorer.rows import CHOICES, DEPTH, Place, spec_of
from lib.explorer.widget import explore
from lib.forms import read_passages
from lib.llm.chat import LLMError
from lib.open_retriever import open_retriever
from lib.profiles import load_profile
from tests.fault_server import FaultServer

QUESTION = "Which drug stops the seizure of a child with a fever that lasts ten minutes?"
H_PLUS = "Lorazepam or rectal diazepam stops a febrile seizure that lasts longer than five minutes."
H_MINUS = (
    "Bacterial meningitis of a child also begins with fever and seizures; it needs antibiotics."
)


@pytest.fixture(scope="module")
def bundled():
    """The bundled passages under the encoder of the profile mini."""
    profile = load_profile("mini")
    encoder = load_encoder(profile.encoder, **profile.encoder_options)
    return open_retriever(profile, encoder)


@pytest.fixture
def notes(own_folders) -> Path:
    """An empty folder for notes; the cache is the test's own."""
    folder = own_folders / "notes"
    folder.mkdir()
    return folder


def save(folder: Path, texts: dict[str, str | bytes]) -> None:
    for name, text in texts.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())


def searched(folder: Path, texts: dict[str, str | bytes], encoder=None):
    """A search in a folder with these files."""
    save(folder, texts)
    return Corpus.read(folder).retriever(encoder or HashEncoder(), progress=False)


# the question ------------------------------------------------------------------------------------


def test_the_order_is_that_of_the_search_for_every_form_mimic_and_any_lambda(bundled):
    another = own.another_mimic(QUESTION)
    explored = own.own_question(QUESTION, H_PLUS, H_MINUS, bundled, another)
    (question,) = explored.questions
    choices = explored.choices_of(question)
    assert set(choices) == {choice for choice in CHOICES if choice[0] != "several mimics"}
    asked = own.hypotheses_of(QUESTION, H_PLUS, H_MINUS, another)
    for form, mimic in choices:
        for lam in (0.0, 0.137, 0.4, 1.0, 1.618, 2.0):
            spec = vars(spec_of(form, mimic, lam))
            (hits,) = bundled.search_many([asked.by(**spec)], DEPTH)
            seen = explored.list_at(Place(own.OWN, own.OWN, form, mimic, lam, DEPTH))
            assert [p["pid"] for p in seen] == hits.ids[0].tolist(), (form, mimic, lam)
            scores = np.array([p["score"] for p in seen])
            assert np.abs(scores - hits.scores[0]).max() < 2e-5


def test_without_a_mimic_only_h_plus_is_searched(bundled):
    explored = own.own_question(QUESTION, H_PLUS, "  \n", bundled, another=H_MINUS)
    (question,) = explored.questions
    assert explored.choices_of(question) == [] and question["mimic"] == ""
    (hits,) = bundled.search_many([own.hypotheses_of(QUESTION, H_PLUS)], DEPTH)
    for lam in (0.0, 0.7, 2.0):
        assert own.order(explored, lam, DEPTH) == hits.ids[0].tolist()
    table = own.stretches(explored, bundled, ["seizure"], 5)
    assert table[["from", "to"]].values.tolist() == [[0.0, 2.0]]
    assert own.controls(explored, bundled, ["seizure"], 0.4, 5).index.tolist() == ["H+ alone"]
    with pytest.raises(ValueError, match="no texts for"):
        own.order(explored, 0.4, 5, "rotation")


TYPED = {"question": QUESTION, "h_plus": H_PLUS, "h_minus": H_MINUS}
REFUSED = [
    ({"question": " "}, "question is empty"),
    ({"h_plus": ""}, "h_plus is empty.*write_with"),
    ({"h_minus": None}, "h_minus must be a text"),
    ({"h_minus": f" {H_PLUS}"}, "no query is left.*Next"),
    ({"options": ["A"]}, "options is .*Next: letters with texts"),
    ({"options": {"A": None}}, "options is .*Next: letters with texts"),
]


def test_wrong_texts_and_numbers_are_refused_with_what_to_do(bundled):
    for wrong, says in REFUSED:
        with pytest.raises(ValueError, match=says):
            own.own_question(retriever=bundled, **TYPED | wrong)
    explored = own.own_question(retriever=bundled, **TYPED)
    for lam, k in ((0.4, 0), (0.4, DEPTH + 1), (2.1, 5), (float("nan"), 5)):
        with pytest.raises(ValueError):
            own.order(explored, lam, k)
    for watched in ("tuberculosis", [""], ["ulnar", " - "], None, [3]):
        with pytest.raises(ValueError, match="watched.*Next"):
            own.another_mimic(QUESTION, watched)


def test_what_a_passage_is_about_is_its_sources_word_else_whole_words_of_its_text(bundled, notes):
    (first, *_) = [row for row in read("passages") if row["topic"] == "carpal tunnel syndrome"]
    counted = own.count_about(bundled, [first["pid"]], ["Carpal Tunnel", "median nerve", "x ray"])
    assert counted == [1, 0, 0, 0]  # its text names the nerve; its topic does not
    home = searched(notes, {"a.txt": "It is rarely familial.", "b.txt": "RA, or arthritis."})
    assert own.count_about(home, ["a.txt", "b.txt"], ["ra", "MI"]) == [1, 0, 1]


# written by a model ------------------------------------------------------------------------------

PAIR = {"H_plus": "Diazepam stops it.", "H_minus": "Meningitis needs ceftriaxone."}


@pytest.fixture
def server(monkeypatch):
    """A server that writes ``PAIR``, where the environment says it is."""
    with FaultServer(text=json.dumps(PAIR)) as stands:
        monkeypatch.setenv("CHR_LLM_URL", stands.url)
        monkeypatch.setenv("CHR_LLM_MODEL", "tests-model")
        yield stands


def test_your_server_is_asked_once_with_the_methods_prompt(server, tmp_path):
    options = {"B": "phenytoin", "A": "diazepam"}
    file = tmp_path / "live" / "own.jsonl"
    for _ in range(2):
        written = own.write_hypotheses(QUESTION, options, "server", file)
        assert written == (PAIR["H_plus"], PAIR["H_minus"])
    (body,) = server.bodies  # the second time it was replayed
    asked = body["messages"][-1]["content"]
    assert f"{QUESTION}\nA. diazepam\nB. phenytoin" in asked and "answer options" in asked
    own.write_hypotheses(QUESTION, {}, "server", file)
    assert "answer options" not in server.bodies[-1]["messages"][-1]["content"]
    assert own.writer("server").startswith("tests-model") and "small" in own.writer("bundled")


def test_a_reply_that_cannot_be_used_is_asked_for_again_and_a_good_one_is_not(server, tmp_path):
    file = tmp_path / "own.jsonl"
    server.text = '{"H_plus": "Diazepam.", "H_minus": " "}'
    for asked in (2, 4):  # once, and once to repair; then the same again, for nothing has changed
        with pytest.raises(ValueError, match="tests-model wrote no H.*ask once more.*write_with"):
            own.write_hypotheses(QUESTION, {}, "server", file)
        assert len(server.bodies) == asked
    server.text = json.dumps(PAIR)
    for _ in range(2):
        written = own.write_hypotheses(QUESTION, {}, "server", file)
        assert written == (PAIR["H_plus"], PAIR["H_minus"]) and len(server.bodies) == 5


def test_no_server_an_unknown_writer_and_an_empty_question_are_named(monkeypatch, tmp_path):
    monkeypatch.delenv("CHR_LLM_URL", raising=False)
    for question, with_, error, says in (
        (QUESTION, "server", LLMError, "export CHR_LLM_URL"),
        (QUESTION, "gpt", ValueError, "'bundled', 'server'"),
        (" ", "bundled", ValueError, "question is empty"),
    ):
        with pytest.raises(error, match=says):
            own.write_hypotheses(question, {}, with_, tmp_path / "own.jsonl")


# a folder ----------------------------------------------------------------------------------------

LONG = " ".join(f"Sentence number {i} is about the {i % 7}th cranial nerve." for i in range(90))


def test_a_folder_is_cut_as_all_documents_are(notes):
    texts = {
        "b.md": f"Some words first.\n\n## The *second* nerve ##\n\n{LONG}",
        "deep/er/a.TXT": "One <b>short</b>   note &amp; no more.",
        "deep/c.md": "#no heading\n\nNothing else.",
        "Ärger/ß 日本.md": "# C#\n\nÜber den Nerven.",
        "bom.txt": b"\xef\xbb\xbfBegins with a mark.",
    }
    passed_over = {".hidden.md": "Hidden.", ".git/x.md": "Hidden too.", "b.png": b"\xff\xfe\0"}
    passed_over |= {"empty.txt": "", "rule.md": "---\n\n***", "z.txt": texts["deep/er/a.TXT"]}
    save(notes, texts | passed_over)
    (notes / "round").symlink_to(notes, target_is_directory=True)
    os.mkfifo(notes / "pipe.txt")  # it would be waited for
    store, report = read_passages(notes)
    wanted = {}
    for name, text in texts.items():
        pieces = cut(text.decode("utf-8-sig") if isinstance(text, bytes) else text)
        for i, piece in enumerate(pieces):
            wanted[f"{name}#{i}" if len(pieces) > 1 else name] = piece
    assert {p.pid: p.text for p in store} == wanted and len(store) == len(wanted)
    assert (report.empty, report.repeated, report.passed_over) == (2, 1, ["b.png"])
    titles = {p.pid.partition("#")[0]: p.title for p in store}
    named = {"b.md": "The *second* nerve", "deep/er/a.TXT": "a", "deep/c.md": "c"}
    assert titles == named | {"Ärger/ß 日本.md": "C#", "bom.txt": "bom"}


def test_passages_that_the_encoder_does_not_read_whole_are_counted_and_said(notes, capsys):
    values = "K 4.1 mmol/L (3.5-5.1); Na 139 mmol/L (136-145); Cl 103; ALT 23 U/L; AST 19 U/L. "
    texts = {"lab.txt": values * 20, "short.md": "# Gout\n\nUrate in the toe."}
    found = searched(notes, texts, load_encoder("minilm"))
    table = own.files_table(found).set_index("file")
    assert table.loc["short.md", "cut"] == 0 < table.loc["lab.txt", "cut"]
    said = f"minilm reads only the beginning of {table['cut'].sum()} of {len(found.store)} passages"
    assert said in capsys.readouterr().err


def test_a_question_is_asked_of_a_folder_and_nothing_of_it_is_copied(notes, own_folders):
    secret = "Zanzibarine calms the hippocampus within a minute."
    home = searched(notes, {"plan.md": f"# My plan\n\n{secret}", "long.txt": LONG})
    typed = (QUESTION, "Zanzibarine calms it.", "A cranial nerve.")
    explored = own.own_question(*typed, home)
    for lam in (0.0, 0.3, 1.0, 2.0):
        (hits,) = home.search_many([own.hypotheses_of(*typed).by(lam=lam)], DEPTH)
        assert own.order(explored, lam, DEPTH) == hits.ids[0].tolist()
    (shown,) = [p for p in explored.passages if p["pid"] == "plan.md"]
    assert (shown["title"], shown["source"], shown["link"]) == ("My plan", "plan.md", "")
    (row,) = own.top_table(explored, home, [0.0], 1).to_dict("records")
    assert (row["passage"], row["begins"]) == ("My plan", f"# My plan {secret}")
    written = [file for file in own_folders.rglob("*") if file.is_file()]
    kept = [file for file in written if notes not in file.parents]
    assert kept and not [f for f in kept if b"anzibarine" in f.read_bytes()]


HOSTILE = (
    "</div><script>alert(1)</script><img src=x onerror=alert(1)>",
    "[click](javascript:alert(1)) ![x](y) $\\frac{1}$ and $$",
    "&lt;b&gt; \u202e \x1b[2J \" onload=alert(1) '" + "x" * 100_000,
)


@pytest.mark.fault(
    "secrets", "A reader's question, file or file name is markup or a script", "shown as text"
)
@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_that_a_reader_has_is_markup(text, notes):
    """Neither names and texts of files, nor what is typed."""
    name = text.replace("/", "")[:100]
    home = searched(notes, {f"{name}.txt": f"{text} one", "b.md": f"# {text}\n\n{text} two"})
    *typed, another = [f"{text} {role}" for role in ("asked", "believed", "ruled out", "another")]
    mine = own.own_question(*typed, home, another=another, options={text: text})
    watched = [f"{text} word"]
    seen = explore(mine)
    seen.move(mimic="random", lam=1.5)
    tables = [
        own.files_table(home),
        own.top_table(mine, home, [0.0, 1.0], 2),
        own.stretches(mine, home, watched, 2),
        own.controls(mine, home, watched, 1.0, 2),
    ]
    shown = [seen.texts.value, seen.shown.value]
    for page in (seen.html(), *shown, *(table.to_html() for table in tables)):
        found = tags_of(page)
        assert {tag for tag, _ in found} <= HARMLESS
        assert not [name for _, names in found for name in names if name.startswith("on")]
    for page in shown:
        assert page.startswith("<div") and page.endswith("</div>")
        assert "mathjax_ignore" in page.partition(">")[0]


HARMLESS = {
    *("div", "p", "b", "i", "br", "small", "span", "ul", "li"),
    *("svg", "line", "circle", "polygon", "polyline", "path", "text", "details", "summary"),
    *("table", "thead", "tbody", "tr", "th", "td"),
}


def tags_of(page: str) -> list[tuple[str, list[str]]]:
    found = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: found.append((tag, [name for name, _ in attrs]))
    parser.feed(page)
    return found
