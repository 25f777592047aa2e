"""A reader's own question: in bundled passages, in a folder, and written by a model."""

from __future__ import annotations

import json
import os
import random
import time
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.benchmarks.ddx_mini import read
from lib.corpora import cut
from lib.data.passages import PASSAGE_CHARS
from lib.embed import HashEncoder, load_encoder
from lib.explorer import folder as folder_of
from lib.explorer import own
from lib.explorer.lines import CHOICES, SEVERAL, way_of
from lib.explorer.rows import CLASSES, DEPTH
from lib.explorer.view import Place, View
from lib.explorer.widget import explore
from lib.llm.chat import LLMError
from lib.place import open_retriever
from lib.profiles import load_profile
from tests.fault_server import FaultServer

QUESTION = "Which drug stops the seizure of a child with a fever that lasts ten minutes?"
H_PLUS = "Lorazepam or rectal diazepam stops a febrile seizure that lasts longer than five minutes."
H_MINUS = (
    "Bacterial meningitis of a child also begins with fever and seizures; it needs antibiotics."
)
SEVERAL_TEXTS = (
    H_MINUS,
    "Epilepsy: seizures without fever, treated with valproate for years.",
    "Hypoglycemia: glucose is low, and sugar stops the seizure.",
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


def save(folder: Path, **texts: str | bytes) -> None:
    """Files by name, with "__" for a dot and "/" as it is."""
    for name, text in texts.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())


def notebook_parameters() -> dict:
    """What the notebook is committed with."""
    from lib.base import paths

    book = json.loads((paths.ROOT / "notebooks" / "14_your_own_question.ipynb").read_text())
    (cell,) = [c for c in book["cells"] if "parameters" in c["metadata"].get("tags", [])]
    found: dict = {}
    exec("".join(cell["source"]), found)
    return found


# the question ------------------------------------------------------------------------------------


def test_the_order_is_that_of_the_search_for_every_form_mimic_and_any_lambda(bundled):
    texts = {"several": SEVERAL_TEXTS, "another": own.another_mimic(QUESTION)}
    explored = own.own_question(QUESTION, H_PLUS, H_MINUS, bundled, **texts)
    (question,) = explored.questions
    assert set(explored.choices_of(question)) == set(CHOICES)
    asked, view = own.hypotheses_of(QUESTION, H_PLUS, H_MINUS, **texts), View(explored)
    drawn = random.Random(14)
    for form, mimic in CHOICES:
        for lam in [0.0, 1.0, 2.0, *(drawn.uniform(0, 2) for _ in range(12))]:
            way = vars(way_of(form, mimic, lam))
            (hits,) = bundled.search_many([asked.by(**way)], DEPTH)
            seen = view.list_at(Place(own.OWN, own.OWN, form, mimic, lam, DEPTH))
            assert [p["pid"] for p in seen.passages] == hits.ids[0].tolist(), (form, mimic, lam)
            assert np.abs(np.array(seen.scores) - hits.scores[0]).max() < 2e-5
            if form == "one mimic":
                assert own.order(explored, lam, DEPTH, mimic) == hits.ids[0].tolist()


def test_nobody_has_judged_a_passage_and_nothing_says_so(bundled):
    explored = own.own_question(QUESTION, H_PLUS, H_MINUS, bundled, options={"A": "lorazepam"})
    (question,) = explored.questions
    assert {CLASSES[i] for i in explored.records["class"]} == {"not judged"}
    assert list(explored.sets[0]["means"]) == ["not judged"]
    assert question["answer"] == "" and question["options"] == {"A": "lorazepam"}
    # Without other mimics the controls are not offered.
    assert explored.choices_of(question) == [("one mimic", "own"), ("question added", "own")]


def test_without_a_mimic_only_h_plus_is_searched(bundled):
    for empty in ("", "  \n"):
        explored = own.own_question(QUESTION, H_PLUS, empty, bundled, another=SEVERAL_TEXTS[1])
        (question,) = explored.questions
        assert explored.choices_of(question) == [] and question["mimic"] == ""
        alone = own.hypotheses_of(QUESTION, H_PLUS)
        (hits,) = bundled.search_many([alone], DEPTH)
        for lam in (0.0, 0.7, 2.0):
            assert own.order(explored, lam, DEPTH) == hits.ids[0].tolist()
        table = own.stretches(explored, bundled, ["seizure"], 5)
        assert table[["from", "to"]].values.tolist() == [[0.0, 2.0]]
        assert own.controls(explored, bundled, ["seizure"], 0.4, 5).index.tolist() == ["H+ alone"]
    with pytest.raises(ValueError, match="h_minus"):
        own.order(explored, 0.4, 5, "rotation")


def test_a_mimic_that_says_what_h_plus_says_is_named_and_not_ranked(bundled):
    (left,) = bundled.search_many([own.hypotheses_of(QUESTION, H_PLUS, H_PLUS).by(lam=1.0)], 5)
    assert isinstance(left, str)  # what the search itself says of it
    for texts in ({"h_minus": H_PLUS}, {"h_minus": H_MINUS, "several": (H_MINUS, f" {H_PLUS}")}):
        with pytest.raises(ValueError, match="no query is left.*Next"):
            own.own_question(QUESTION, H_PLUS, retriever=bundled, **texts)
    with pytest.raises(ValueError, match="no query is left"):
        own.own_question(QUESTION, H_PLUS, H_MINUS, bundled, another=H_PLUS)
    # A mimic that is merely near has a direction left, and the order is the search's.
    near = H_PLUS.replace("five minutes", "five or ten minutes")
    explored = own.own_question(QUESTION, H_PLUS, near, bundled)
    (hits,) = bundled.search_many([own.hypotheses_of(QUESTION, H_PLUS, near).by(lam=1.0)], 5)
    assert own.order(explored, 1.0, 5) == hits.ids[0].tolist()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"question": " "}, "question is empty"),
        ({"h_plus": ""}, "h_plus is empty.*write_with"),
        ({"h_plus": None}, "h_plus must be a text"),
        ({"h_minus": None}, "h_minus must be a text"),
        ({"h_minus": "", "several": ("a mimic",)}, "nearest one into h_minus"),
        ({"several": (3,)}, r"several\[0\] must be a text"),
        ({"options": ["A"]}, "options is .*Next: letters with texts"),
        ({"options": {"A": None}}, "options is .*Next: letters with texts"),
    ],
)
def test_wrong_texts_are_refused_with_what_to_do(wrong, says, bundled):
    texts = {"question": QUESTION, "h_plus": H_PLUS, "h_minus": H_MINUS} | wrong
    with pytest.raises(ValueError, match=says):
        own.own_question(retriever=bundled, **texts)


def test_a_depth_or_lambda_beyond_the_rows_is_refused(bundled):
    explored = own.own_question(QUESTION, H_PLUS, H_MINUS, bundled)
    for lam, k in ((0.4, 0), (0.4, DEPTH + 1), (2.1, 5), (float("nan"), 5)):
        with pytest.raises(ValueError):
            own.order(explored, lam, k)


def test_a_corpus_that_memory_would_not_hold_is_refused(bundled, monkeypatch):
    monkeypatch.setattr(own, "MOST_SEARCHED", 100)
    with pytest.raises(ValueError, match="more than the 100.*Next: set limit"):
        own.own_question(QUESTION, H_PLUS, H_MINUS, bundled)


def test_the_wrong_mimic_is_a_bundled_one_and_not_about_the_question():
    drawn = own.another_mimic(QUESTION)
    dev = {row["qid"] for row in read("questions") if row["split"] == "dev"}
    assert drawn in {row["H_minus"] for row in read("hypotheses") if row["qid"] in dev}
    assert own.another_mimic(QUESTION) == drawn
    name = drawn.split()[0]
    assert name.lower() not in own.another_mimic(QUESTION, [name.upper()]).lower()
    assert len({own.another_mimic(f"{i}") for i in range(40)}) > 10
    with pytest.raises(ValueError, match="watch fewer"):
        own.another_mimic(QUESTION, ["the", "and", "of", "a", "in", "is"])


@pytest.mark.parametrize("watched", ["tuberculosis", [""], ["ulnar", " - "], None, [3]])
def test_names_that_are_no_list_of_names_are_refused(bundled, watched):
    for use in (own.another_mimic, lambda _, names: own.count_about(bundled, ["p1"], names)):
        with pytest.raises(ValueError, match="watched"):
            use(QUESTION, watched)


def test_a_name_is_found_as_whole_words(notes):
    save(notes, **{"a.txt": "It is rarely familial.", "b.txt": "RA, or rheumatoid arthritis."})
    home = folder_of.folder_retriever(notes, HashEncoder(), progress=False)
    assert own.count_about(home, ["a.txt", "b.txt"], ["RA", "MI"]) == [1, 0, 1]


# the worked example ------------------------------------------------------------------------------


def test_the_example_is_no_question_of_ddx_mini():
    example = notebook_parameters()
    rows = read("questions")
    assert example["question"] not in {row["question"] for row in rows}
    pairs = {frozenset((row["target"], row["mimic"])) for row in rows}
    assert frozenset(example["watched"]) not in pairs
    written = {row[key] for row in read("hypotheses") for key in ("H_plus", "H_minus")}
    assert not {example["h_plus"], example["h_minus"]} & written


def test_in_the_example_contrast_rules_the_mimic_out_and_later_drops_the_topic(bundled):
    """What the notebook says of its example, counted by the topic of each bundled passage."""
    example = notebook_parameters()
    texts = [example[name] for name in ("question", "h_plus", "h_minus")]
    topic_of = {row["pid"]: row["topic"] for row in read("passages")}

    def counts(lam: float) -> list[int]:
        (hits,) = bundled.search_many([own.hypotheses_of(*texts).by(lam=lam)], 5)
        topics = [topic_of[pid] for pid in hits.ids[0]]
        return [sum(name in topic for topic in topics) for name in example["watched"]]

    alone, contrasted, paper = (counts(lam) for lam in (0.0, example["lam"], 1.0))
    assert alone[1] > 0 and contrasted[1] == 0 and contrasted[0] >= alone[0]
    assert paper[0] < alone[0]

    table = own.stretches(
        own.own_question(*texts, bundled), bundled, example["watched"], 5
    ).set_index("from")
    for start, row in table.iterrows():
        for lam in np.linspace(start, row["to"], 7)[1:-1]:
            assert row[list(example["watched"])].tolist() == counts(lam), lam
    assert table.index[0] == 0 and table["to"].iloc[-1] == 2
    assert table.index[1:].tolist() == table["to"].tolist()[:-1]


def test_what_a_passage_is_about_is_its_sources_word_where_there_is_one(bundled, notes):
    (first, *_) = [row for row in read("passages") if row["topic"] == "carpal tunnel syndrome"]
    counted = own.count_about(bundled, [first["pid"]], ["Carpal Tunnel", "median nerve", "x ray"])
    assert counted == [1, 0, 0, 0]  # its text names the nerve; its topic does not
    save(notes, **{"a.txt": "The median nerve is pressed at the wrist."})
    home = folder_of.folder_retriever(notes, HashEncoder(), progress=False)
    assert own.count_about(home, ["a.txt"], ["MEDIAN nerve", "ulnar"]) == [1, 0, 0]
    assert own.count_about(home, ["a.txt"], ["ulnar"]) == [0, 1]


# written by a model ------------------------------------------------------------------------------

PAIR = {"H_plus": "Diazepam stops it.", "H_minus": "Meningitis needs ceftriaxone."}


@pytest.fixture
def server(monkeypatch):
    """A server that writes ``PAIR``, where the environment says it is."""
    with FaultServer(text=json.dumps(PAIR)) as stands:
        monkeypatch.setenv("CHR_LLM_URL", stands.url)
        monkeypatch.setenv("CHR_LLM_MODEL", "tests-model")
        yield stands


def test_your_server_is_asked_with_the_methods_prompt_and_once(server, tmp_path):
    options = {"B": "phenytoin", "A": "diazepam"}
    file = tmp_path / "live" / "own.jsonl"
    for _ in range(2):
        written = own.write_hypotheses(QUESTION, options, "server", file)
        assert written == (PAIR["H_plus"], PAIR["H_minus"])
    (body,) = server.bodies  # the second time it was replayed
    asked = body["messages"][-1]["content"]
    assert body["model"] == "tests-model" and body["temperature"] == 0
    assert f"{QUESTION}\nA. diazepam\nB. phenytoin" in asked and "answer options" in asked
    assert "tests-model" in file.read_text()
    assert own.writer("server").startswith("tests-model")
    own.write_hypotheses(QUESTION, {}, "server", file)
    assert "answer options" not in server.bodies[-1]["messages"][-1]["content"]


def test_a_server_that_writes_no_pair_is_named_with_what_to_do(server, tmp_path):
    server.text = '{"H_plus": "Diazepam stops it.", "H_minus": " "}'
    with pytest.raises(ValueError, match="tests-model wrote no H.*write_with = None"):
        own.write_hypotheses(QUESTION, {}, "server", tmp_path / "own.jsonl")
    assert len(server.bodies) == 2  # asked, and asked once to repair


@pytest.mark.parametrize("bad", ["", "I cannot say.", '{"H_plus": "Diazepam.", "H_minus": ""}'])
def test_a_reply_that_cannot_be_used_is_asked_for_again_and_a_good_one_is_not(
    bad, server, tmp_path
):
    file = tmp_path / "own.jsonl"
    server.text = bad
    for asked in (2, 4):  # once, and once to repair; then the same again, for nothing has changed
        with pytest.raises(ValueError, match="run this again to ask once more"):
            own.write_hypotheses(QUESTION, {}, "server", file)
        assert len(server.bodies) == asked
    server.text = json.dumps(PAIR)
    for _ in range(2):
        written = own.write_hypotheses(QUESTION, {}, "server", file)
        assert written == (PAIR["H_plus"], PAIR["H_minus"]) and len(server.bodies) == 5


def test_a_server_that_is_not_there_is_named(monkeypatch, tmp_path):
    monkeypatch.delenv("CHR_LLM_URL", raising=False)
    monkeypatch.delenv("CHR_LLM_MODEL", raising=False)
    with pytest.raises(LLMError, match="export CHR_LLM_URL"):
        own.write_hypotheses(QUESTION, {}, "server", tmp_path / "own.jsonl")


def test_a_key_is_sent_and_never_recorded(server, tmp_path, monkeypatch):
    monkeypatch.setenv("CHR_LLM_KEY", "secret-of-the-test")
    file = tmp_path / "own.jsonl"
    own.write_hypotheses(QUESTION, {}, "server", file)
    assert "secret-of-the-test" in server.headers[0]["authorization"]
    left = "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    assert "secret" not in left and server.url not in left


def test_an_unknown_writer_and_an_empty_question_are_refused(tmp_path):
    for wrong in ("gpt", None, ""):
        with pytest.raises(ValueError, match="'bundled', 'server'"):
            own.write_hypotheses(QUESTION, {}, wrong, tmp_path / "own.jsonl")
    with pytest.raises(ValueError, match="question is empty"):
        own.write_hypotheses(" ", {}, "bundled", tmp_path / "own.jsonl")
    assert own.writer(None) != own.writer("bundled")
    assert "small" in own.writer("bundled")


# a folder ----------------------------------------------------------------------------------------

LONG = " ".join(f"Sentence number {i} is about the {i % 7}th cranial nerve." for i in range(90))


def test_a_folder_is_cut_as_all_documents_are(notes):
    texts = {
        "b.md": f"Some words first.\n\n## The *second* nerve ##\n\n{LONG}",
        "deep/er/a.TXT": "One <b>short</b>   note &amp; no more.",
        "deep/c.md": "```\n# no heading\n```\nNothing else.",
        "Ärger/ß 日本.md": "# 脳神経\n\nÜber den Nerven.",
        "bom.txt": b"\xef\xbb\xbfBegins with a mark.",
    }
    save(notes, **texts)
    store = folder_of.read_folder(notes)
    wanted = {}
    for name, text in texts.items():
        plain = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        pieces = cut(plain)
        for i, piece in enumerate(pieces):
            wanted[f"{name}#{i}" if len(pieces) > 1 else name] = piece
    assert {p.pid: p.text for p in store} == wanted and len(store) == len(wanted)
    assert max(len(p.text) for p in store) <= PASSAGE_CHARS < len(LONG)
    assert store.get("deep/er/a.TXT").text == "One short note & no more."
    titles = {p.pid.partition("#")[0]: p.title for p in store}
    assert titles == {
        "b.md": "The *second* nerve",
        "deep/er/a.TXT": "a",
        "deep/c.md": "c",
        "Ärger/ß 日本.md": "脳神経",
        "bom.txt": "bom",
    }
    assert store.ids() == sorted(store.ids(), key=lambda pid: pid.partition("#")[0])
    with pytest.raises(KeyError):
        store.get_many(["b.md#0", "no.md"])


@settings(max_examples=25)
@given(texts=st.lists(st.text(st.characters(codec="utf-8"), max_size=2500), min_size=1, max_size=4))
def test_whatever_is_written_is_found_again_or_refused(texts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("any")
    save(folder, **{f"{i}.md": text for i, text in enumerate(texts)})
    words = [text for text in texts if any(c.isalnum() for piece in cut(text) for c in piece)]
    if any("\0" in text for text in texts):
        with pytest.raises(ValueError, match="zero bytes"):
            folder_of.read_folder(folder)
    elif not words:
        with pytest.raises(ValueError, match="no text in"):
            folder_of.read_folder(folder)
    else:
        pieces = {p for text in words for p in cut(text) if any(c.isalnum() for c in p)}
        assert {p.text for p in folder_of.read_folder(folder)} == pieces


def test_passages_that_the_encoder_does_not_read_whole_are_counted_and_said(notes, capsys):
    values = "K 4.1 mmol/L (3.5-5.1); Na 139 mmol/L (136-145); Cl 103; ALT 23 U/L; AST 19 U/L. "
    save(notes, **{"lab.txt": values * 20, "short.md": "# Gout\n\nUrate in the toe."})
    found = folder_of.folder_retriever(notes, load_encoder("minilm"), progress=False)
    table = folder_of.folder_table(found).set_index("file")
    assert table.loc["short.md", "cut"] == 0 < table.loc["lab.txt", "cut"]
    assert table.loc["lab.txt", "cut"] <= table.loc["lab.txt", "passages"]
    said = f"minilm reads only the beginning of {table['cut'].sum()} of {len(found.store)} passages"
    assert said in capsys.readouterr().err
    words = folder_of.folder_retriever(notes, HashEncoder(dim=64), progress=False)
    assert folder_of.folder_table(words)["cut"].sum() == 0 and capsys.readouterr().err == ""


def test_hidden_and_other_files_are_passed_over(notes):
    save(
        notes,
        **{
            "a.md": "A word.",
            ".hidden.md": "Hidden.",
            ".git/x.md": "Hidden too.",
            "b.pdf": b"\xff\xfe\0",
            "c.markdown": "Another ending.",
            "empty.txt": "",
            "rule.md": "---\n\n***",
        },
    )
    (notes / "gone.md").symlink_to(notes / "nowhere.md")
    (notes / "round").symlink_to(notes, target_is_directory=True)
    assert folder_of.read_folder(notes).ids() == ["a.md"]


def test_of_equal_passages_the_first_is_kept_and_the_others_are_counted(notes):
    save(notes, **{"b.md": "The same  words.", "a/z.txt": "The same words.\n", "c.md": "Others."})
    home = folder_of.folder_retriever(notes, HashEncoder(), progress=False)
    assert home.store.ids() == ["a/z.txt", "c.md"]
    table = folder_of.folder_table(home)
    assert table.to_dict("list") == {
        "file": ["a/z.txt", "b.md", "c.md"],
        "title": ["z", "b", "c"],
        "passages": [1, 0, 1],
        "equal": [0, 1, 0],
        "cut": [0, 0, 0],
    }


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("für".encode("latin1"), "UTF-8.*Next.*iconv"),
        ("für".encode("utf-16"), "UTF-8"),
        ("words".encode("utf-16-le"), "zero bytes"),
    ],
)
def test_a_file_that_is_not_utf8_is_named(content, says, notes):
    save(notes, **{"good.md": "Good.", "in/bad one.txt": content})
    with pytest.raises(ValueError, match=says) as refused:
        folder_of.read_folder(notes)
    assert "in/bad one.txt" in str(refused.value)


def test_folders_that_are_none_or_empty_say_what_to_do(notes):
    with pytest.raises(ValueError, match="folder is 5. Next: give a path"):
        folder_of.read_folder(5)
    for wrong in (notes / "none", "no such folder"):
        with pytest.raises(FileNotFoundError, match="no folder .*Next"):
            folder_of.read_folder(wrong)
    with pytest.raises(ValueError, match="no text in .*Next"):
        folder_of.read_folder(notes)
    save(notes, **{"a.md": "A word."})
    with pytest.raises(NotADirectoryError, match="is a file. Next"):
        folder_of.read_folder(notes / "a.md")


def test_what_is_too_large_is_refused_before_it_is_embedded(notes, monkeypatch):
    save(notes, **{"a.md": "A word.", "big/b.txt": LONG})
    monkeypatch.setattr(folder_of, "MOST_PASSAGES", 3)
    with pytest.raises(ValueError, match="more than 3 passages.*big/b.txt.*Next"):
        folder_of.read_folder(notes)
    monkeypatch.setattr(folder_of, "LARGEST_FILE", 500)
    with pytest.raises(ValueError, match="big/b.txt' has 4,[0-9]{3} bytes.*Next"):
        folder_of.read_folder(notes)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read all")
def test_a_folder_that_may_not_be_read_is_not_passed_over(notes):
    save(notes, **{"a.md": "A word.", "in/b.md": "Another."})
    (notes / "in").chmod(0)
    try:
        with pytest.raises(PermissionError, match="in"):
            folder_of.read_folder(notes)
    finally:
        (notes / "in").chmod(0o755)


def test_a_question_is_asked_of_a_folder_and_nothing_of_it_is_copied(notes, own_folders):
    secret = "Zanzibarine calms the hippocampus within a minute."
    save(notes, **{"plan.md": f"# My plan\n\n{secret}", "long.txt": LONG})
    home = folder_of.folder_retriever(notes, HashEncoder(), progress=False)
    explored = own.own_question(QUESTION, "Zanzibarine calms it.", "A cranial nerve.", home)
    lambdas = [0.0, 0.3, 1.0, 2.0]
    asked = own.hypotheses_of(QUESTION, "Zanzibarine calms it.", "A cranial nerve.")
    for lam, hits in zip(
        lambdas, home.search_many([asked.by(lam=lam) for lam in lambdas], DEPTH), strict=True
    ):
        assert own.order(explored, lam, DEPTH) == hits.ids[0].tolist()
    (shown,) = [p for p in explored.passages if p["pid"] == "plan.md"]
    assert (shown["title"], shown["source"], shown["link"]) == ("My plan", "plan.md", "")
    table = own.top_table(explored, home, [0.0], 1)
    assert table[["passage", "begins", "about", "pid"]].values.tolist() == [
        ["My plan", f"# My plan {secret}", "", "plan.md"]
    ]
    written = [file for file in own_folders.rglob("*") if file.is_file()]
    kept = [file for file in written if notes not in file.parents]
    assert kept and not [f for f in kept if b"anzibarine" in f.read_bytes()]


HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</div><script>alert(1)</script>",
    "[click](javascript:alert(1)) ![x](y)",
    "$\\frac{1}$ and $$",
    "&lt;b&gt; \u202e \x1b[2J",
    "x" * 100_000,
)


@pytest.mark.fault(
    "secrets", "A reader's question, file or file name is markup or a script", "shown as text"
)
@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_that_a_reader_has_is_markup(text, notes):
    """Neither names and texts of files, nor what is typed."""
    name = text.replace("/", "")[:100]
    save(notes, **{f"{name}.txt": f"{text} one", "b.md": f"# {text}\n\n{text} two"})
    home = folder_of.folder_retriever(notes, HashEncoder(), progress=False)
    typed = [f"{text} {role}" for role in ("asked", "believed", "ruled out", "another")]
    *typed, another = typed
    mine = own.own_question(*typed, home, another=another, options={text: text})
    watched = [f"{text} word"]
    told = own.told(mine, home, watched, 1.0, 2)
    assert "<" not in told and "](" not in told and "$" not in told
    seen = explore(mine)
    seen.move(mimic="random", lam=1.5)
    tables = [
        folder_of.folder_table(home),
        own.top_table(mine, home, [0.0, 1.0], 2),
        own.stretches(mine, home, watched, 2),
        own.controls(mine, home, watched, 1.0, 2),
    ]
    pages = [seen.html(), seen.texts.value, seen.shown.value]
    for page in (*pages, *(table.to_html() for table in tables)):
        tags = {tag for tag, _ in _tags(page)}
        assert not tags & {"script", "img", "a", "iframe"} and tags <= _HARMLESS, tags
        assert not [name for _, names in _tags(page) for name in names if name.startswith("on")]
    for page in pages[1:]:
        assert page.startswith("<div") and page.endswith("</div>")
        assert "mathjax_ignore" in page.partition(">")[0]


_HARMLESS = {
    *("div", "p", "b", "i", "br", "small", "span", "ul", "li"),
    *("svg", "line", "circle", "polygon", "polyline", "text"),
    *("table", "thead", "tbody", "tr", "th", "td"),
}


def _tags(page: str) -> list[tuple[str, list[str]]]:
    found = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: found.append((tag, [name for name, _ in attrs]))
    parser.feed(page)
    return found


@pytest.mark.fault("secrets", "A text holds half a character", "the text that holds it")
@pytest.mark.parametrize("where", ["question", "h_plus", "h_minus", "another"])
def test_half_a_character_is_named(where):
    typed = {"question": "a", "h_plus": "b", "h_minus": "c", "another": "d"}
    with pytest.raises(ValueError, match=f"{where} holds .*half a character"):
        own.hypotheses_of(**typed | {where: "a\ud800b"})


@pytest.mark.fault(
    "secrets", "A reader's file is 50,000 blanks in one heading", "nothing: it is read at once"
)
@pytest.mark.parametrize("blanks", [" " * 50_000, "\t " * 20_000, " #" * 20_000])
def test_a_heading_of_blanks_is_read_at_once(blanks, notes):
    save(notes, **{"a.md": f"# a{blanks}b\n\nWords."})
    start = time.process_time()  # not the time in which other processes run
    (first, *_) = folder_of.read_folder(notes)
    assert time.process_time() - start < 2 and first.title == f"a{blanks}b"


def test_what_is_no_file_is_passed_over(notes):
    """A pipe would be waited for; a device, or a link to itself, has no end."""
    save(notes, **{"a.md": "A word."})
    os.mkfifo(notes / "pipe.txt")
    (notes / "zero.txt").symlink_to("/dev/zero")
    (notes / "self.txt").symlink_to("self.txt")
    assert folder_of.read_folder(notes).ids() == ["a.md"]


@pytest.mark.fault(
    "secrets", "A reader's file is huge, and its name has line breaks", "the file, on one line"
)
def test_a_huge_file_is_refused_unread_and_its_name_stays_on_one_line(notes):
    with open(notes / "a\n\x1b[2Jb.txt", "wb") as file:
        file.truncate(5_000_000_000)
    with pytest.raises(ValueError, match=r"'a\\n\\x1b\[2Jb.txt' has 5,000,000,000 bytes"):
        folder_of.read_folder(notes)


def test_the_vectors_of_a_folder_are_made_once(notes):
    save(notes, **{"a.md": "A word.", "b.md": "Another one."})

    class Counting(HashEncoder):
        read = 0

        def encode(self, items, tower="query", progress=True):
            Counting.read += len(items)
            return super().encode(items, tower, progress)

    for _ in range(2):
        folder_of.folder_retriever(notes, Counting(), progress=False)
        assert Counting.read == 2
    save(notes, **{"b.md": "Another one, changed."})
    folder_of.folder_retriever(notes, Counting(), progress=False)
    assert Counting.read > 2


def test_passages_that_tie_stand_in_the_order_of_their_ids(notes):
    texts = ("A word.", "a WORD", "A, word!", "(a) word")  # one vector under this encoder
    save(notes, **{f"{name}.md": text for name, text in zip("cabd", texts, strict=True)})
    home = folder_of.folder_retriever(notes, HashEncoder(), progress=False)
    explored = own.own_question(QUESTION, H_PLUS, H_MINUS, home)
    for lam in (0.0, 0.4, 1.7):
        assert own.order(explored, lam, 4) == ["a.md", "b.md", "c.md", "d.md"]


def test_one_passage_is_enough(notes):
    save(notes, **{"a.md": "A word."})
    home = folder_of.folder_retriever(notes, HashEncoder(), progress=False)
    explored = own.own_question(QUESTION, H_PLUS, H_MINUS, home, SEVERAL_TEXTS)
    assert own.order(explored, 0.4, 5) == ["a.md"]
    assert len(own.stretches(explored, home, ["word"], 5)) == 1
    assert own.hypotheses_of(QUESTION, H_PLUS, H_MINUS, SEVERAL_TEXTS).of("mimic", SEVERAL)
