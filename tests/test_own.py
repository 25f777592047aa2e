"""A reader's own question: in bundled passages, in a folder, and written by a model."""

from __future__ import annotations

import json
import os
import re
from html import escape
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path

import nbformat
import numpy as np
import pytest

from lib.base import paths
from lib.benchmarks.ddx_mini import read
from lib.corpora import cut
from lib.corpus import Corpus
from lib.embed import HashEncoder, load_encoder
from lib.evaluation import evaluate
from lib.explorer import own, worked
from lib.explorer.rows import CHOICES, DEPTH, Place, spec_of
from lib.explorer.widget import explore
from lib.forms import read_passages
from lib.llm.chat import LLMError
from lib.open_retriever import open_retriever
from lib.profiles import load_profile
from lib.readers import EvidenceReader
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


# what the passages hold --------------------------------------------------------------------------

OTHERS = {
    "caries": (
        "Which measure best prevents dental caries in a six-year-old child?",
        "Fluoride varnish and toothpaste prevent dental caries: they remineralise enamel. White "
        "spots on teeth are early lesions, and less sugar slows the acid of plaque bacteria.",
    ),
    "penguins": (
        "Why do emperor penguins huddle in the Antarctic winter?",
        "Emperor penguins huddle to save heat. In a huddle each bird loses less warmth to wind and "
        "cold, and birds take turns at the edge while the males incubate the eggs.",
    ),
}


def typed_in_the_notebook() -> dict:
    """The parameters of notebook 14, as they are committed."""
    book = nbformat.read(paths.ROOT / "notebooks" / "14_your_own_question.ipynb", 4)
    (cell,) = [c for c in book.cells if "parameters" in c.metadata.get("tags", [])]
    typed: dict = {}
    exec(cell.source, typed)
    return typed


def test_a_question_on_what_the_passages_do_not_hold_is_said_with_what_they_hold(bundled):
    for name, (question, h_plus) in OTHERS.items():
        told = own.topic_told(question, h_plus, bundled)
        assert told.startswith("NOT HELD: 0 of 624 passages mention your topic"), told
        assert re.search(rf"No passage has: [^.]*{name}", told)
        assert re.search(r"The collection holds: Crohn disease \(5\), .*, and 232 more\.", told)
    typed = typed_in_the_notebook()
    told = own.topic_told(typed["question"], typed["h_plus"], bundled)
    assert told.startswith("5 of 624 passages mention your topic") and "CHECK" not in told
    held = own.holdings(bundled)
    assert held["passages"].sum() == 624 and len(held) == 240
    topic = held.set_index("about").loc[typed["watched"][0]]
    assert topic["passages"] == sum(p["topic"] == topic.name for p in read("passages"))


def test_an_h_plus_that_is_left_of_another_question_is_asked_about(bundled):
    typed = typed_in_the_notebook()
    for question, _ in OTHERS.values():
        told = own.topic_told(question, typed["h_plus"], bundled)
        assert told.startswith("CHECK H+: your question and H+ have no word in common")
    unlike = [
        row["qid"]
        for row, asked in zip(read("hypotheses"), read("questions"), strict=True)
        if "CHECK" in own.topic_told(asked["question"], row["H_plus"], bundled)
    ]
    assert not unlike


def test_how_often_a_topic_is_said_to_be_held_when_it_is_and_when_it_is_not(bundled):
    """On ddx-mini's dev questions: with all passages, and without those on the question's target
    and mimic, so that its neighbours are still there."""
    topics = np.array([passage.meta["topic"] for passage in bundled.store])
    h_plus = {row["qid"]: row["H_plus"] for row in read("hypotheses")}
    asked = [row for row in read("questions") if row["split"] == "dev"]
    with_them, without = [], []
    for row in asked:
        rest = bundled.subset(bundled.index.subset(~np.isin(topics, [row["target"], row["mimic"]])))
        with_them.append(own.mentions(h_plus[row["qid"]], bundled) >= 2)
        without.append(own.mentions(h_plus[row["qid"]], rest) >= 2)
    assert (len(asked), sum(with_them), sum(without)) == (24, 24, 1)


def test_of_a_folder_the_titles_are_what_it_holds(notes):
    home = searched(notes, {"a.md": "# Gout\n\nUrate in the toe.", "b.csv": "id,text\n1,Fever.\n"})
    told = own.topic_told(*OTHERS["penguins"], home)
    assert told.endswith("The collection holds: Gout (1), b.csv (1).")


def test_questions_without_options_are_measured_as_the_notebook_stands(bundled, tmp_path):
    """Section 3 of notebook 14, with a file of questions put in the place of the bundled one."""
    book = nbformat.read(paths.ROOT / "notebooks" / "14_your_own_question.ipynb", 4)
    code = [c.source for c in book.cells if c.cell_type == "code"]
    (files,) = [source for source in code if source.startswith("passages = ")]
    (measured,) = [source for source in code if "done = evaluate(" in source]
    asked = [row for row in read("questions") if row["split"] == "dev"][:2]
    mine = tmp_path / "mine.csv"
    rows = [f'{row["qid"]},"{row["question"]}"' for row in asked]
    mine.write_text("\n".join(["id,question", *rows]), encoding="utf-8")
    typed = typed_in_the_notebook() | {"home": None, "retriever": bundled, "k": 5}
    typed |= {"p": load_profile("mini"), "encoder": bundled.encoder, "evaluate": evaluate}
    exec(files, typed)
    exec(measured, typed | {"questions": mine, "EvidenceReader": EvidenceReader})
    exec(files.replace("answers = False", "answers = True"), typed)
    with pytest.raises(ValueError, match="accuracy needs options"):
        exec(measured, typed | {"questions": mine, "EvidenceReader": EvidenceReader})


# what is shown -----------------------------------------------------------------------------------


def test_a_card_says_what_its_passage_is_about_and_where_it_is_from(bundled, notes):
    mine = own.own_question(QUESTION, H_PLUS, H_MINUS, bundled)
    seen = explore(mine, lam=0.4)
    for passage in bundled.store.get_many(own.order(mine, 0.4, 5)):
        beside = f"{escape(passage.meta['topic'])} · {passage.source}"
        assert f"<b>{escape(passage.title)}</b><small> · {beside}</small>" in seen.shown.value
    home = searched(notes, {"plan.md": "# My plan\n\nDiazepam.", "b.txt": "Something else."})
    there = explore(own.own_question(QUESTION, H_PLUS, H_MINUS, home))
    assert "<b>My plan</b><br>" in there.shown.value and "plan.md</small>" in there.shown.value


def test_the_lines_are_the_searchs_scores_and_bold_where_a_list_has_the_passage(bundled):
    mine = own.own_question(QUESTION, H_PLUS, H_MINUS, bundled)
    watched = ["febrile seizure", "bacterial meningitis"]
    lines = own.lines_table(mine, bundled, watched, [0.0, 0.4], 5)
    asked = own.hypotheses_of(QUESTION, H_PLUS, H_MINUS)
    found = set()
    for lam in (0.0, 0.4):
        (hits,) = bundled.search_many([asked.by(lam=lam)], 5)
        best = (lines["s_plus"] - lam * lines["s_minus"]).nlargest(5)
        assert best.to_numpy() == pytest.approx(hits.scores[0], abs=2e-5)
        assert lines.loc[best.index, "bold"].all()
        found |= set(hits.ids[0].tolist())
    assert lines["bold"].sum() == len(found)
    assert [*lines["class"].cat.categories] == [*watched, own.NONE]
    figure = worked.plot_lines(lines, 0.4, 5)
    (axis,) = figure.axes
    assert {0.4, 1.0} <= {x for line in axis.lines for x in line.get_xdata()[:1]}  # marked
    named = {text.get_text().removesuffix(" …") for text in axis.texts}
    titles = lines.loc[lines["bold"], "passage"]
    assert all(any(name and title.startswith(name) for name in named) for title in titles)
    assert re.search(r"of the first 5 with H\+ alone, λ = 0.4 keeps \d", figure.get_suptitle())


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
@pytest.mark.filterwarnings("ignore:Glyph")
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
    lines = own.lines_table(mine, home, watched, [0.0, 1.0], 5)
    worked.plot_lines(lines, 0.4, 5).savefig(BytesIO())
    told = own.topic_told(typed[0], typed[1], home)
    assert re.search(r"\d of \d passages mention", told), told
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
