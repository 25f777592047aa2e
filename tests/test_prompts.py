"""Prompts: strict placeholders, braces left alone, every file says where its idea comes from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import prompts
from lib.methods import METHODS
from lib.methods.chr import HYPOTHESES
from lib.prompts import Prompt, load_prompt

FOLDER = Path(prompts.__file__).parent
NAMES = sorted(p.stem for p in FOLDER.glob("*.txt"))


def test_every_placeholder_is_filled_and_other_braces_stay():
    asked = Prompt(
        "ask", "", "About {topic}.", 'Q: {question}, {question}! Reply {"a": 1, "b": {}}.'
    )
    assert asked.messages(topic="gout", question="Why?") == [
        {"role": "system", "content": "About gout."},
        {"role": "user", "content": 'Q: Why?, Why?! Reply {"a": 1, "b": {}}.'},
    ]


@pytest.mark.parametrize("names", ["", "t", "tq", "tqxy", "Tqx"])
def test_missing_unused_and_unknown_placeholders_are_refused(names):
    asked = Prompt("ask", "our own", "You answer about {t}.", 'Is {q} {x}? Reply {"a": {}}.')
    with pytest.raises(ValueError, match=r"prompt ask takes \['q', 't', 'x'\], not"):
        asked.messages(**dict.fromkeys(names, "text"))


@given(st.text(), st.text())
def test_braces_and_placeholders_inside_values_are_left_alone(first, second):
    prompt = Prompt("two", "", "", "<{first}|{second}>")
    (message,) = prompt.messages(first=first + "{second}", second=second + "{first}\\1")
    assert message == {
        "role": "user", "content": f"<{first}{{second}}|{second}{{first}}\\1>",
    }  # fmt: skip


def test_without_a_system_part_there_is_no_system_message():
    assert [m["role"] for m in Prompt("p", "", "", "Hello").messages()] == ["user"]


@pytest.mark.parametrize("name", NAMES)
def test_every_prompt_file_says_its_source_and_shows_what_it_is_given(name):
    prompt = load_prompt(name)
    text = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    assert text.startswith(f"# {prompt.source}\n") and "our own wording" in prompt.source
    assert len(prompt.source.split()) >= 8 and prompt.name == name
    names = set(re.findall(r"\{([a-z_]+)\}", prompt.system + prompt.user))
    shown = prompt.messages(**{n: f"<<{n} {{gout}}>>" for n in names})
    asked = "\n".join(m["content"] for m in shown)
    assert names and all(f"<<{n} {{gout}}>>" in asked for n in names)
    assert all(part not in asked for part in ("[user]", "[system]", prompt.source))


def test_every_method_finds_its_prompt():
    used = [m.prompt for m in METHODS.values() if m.needs_llm]
    assert used and set(used) <= set(NAMES)


def test_the_chr_prompt_names_the_keys_of_its_schema():
    prompt = load_prompt("chr_hypotheses")
    assert all(f'"{key}"' in prompt.user for key in HYPOTHESES["required"])


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder of its own in place of the project's prompts."""
    monkeypatch.setattr(prompts, "__file__", str(tmp_path / "__init__.py"))
    return tmp_path


@pytest.mark.parametrize(
    "text", ["[user]\nno source\n", "# a source\n[system]\nonly\n", "# a source\nno part\n", ""]
)
def test_a_file_without_source_or_user_part_is_refused_by_name(folder, text):
    (folder / "mine.txt").write_text(text)
    with pytest.raises(
        ValueError, match=r"mine\.txt: needs a first line '# source' and a \[user\]"
    ):
        load_prompt("mine")


def test_parts_are_read_as_the_file_has_them(folder):
    (folder / "mine.txt").write_text("# here\n[system]\nBe brief.\n\n[user]\n{a}\n\nsecond line\n")
    assert load_prompt("mine") == Prompt("mine", "here", "Be brief.", "{a}\n\nsecond line")


def test_an_unknown_name_says_which_there_are():
    with pytest.raises(
        ValueError, match="no prompt named 'hyde'; there are: chr_hypotheses, hyde_p"
    ):
        load_prompt("hyde")
