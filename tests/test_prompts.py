"""Prompts: strict placeholders, braces left alone, every file says where its idea comes from."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.datasets import Question
from lib.llm import prompts
from lib.llm.chat import ScriptedChat
from lib.llm.prompts import Prompt, load_prompt
from lib.methods import METHODS, SHIPPED
from lib.methods.rag2 import RAG2
from lib.studies.masked.texts import KINDS as MASKED_KINDS
from lib.studies.real.expansions import KINDS as REAL_KINDS

FOLDER = Path(prompts.__file__).parent
NAMES = sorted(p.stem for p in FOLDER.glob("*.txt"))


@given(st.text(), st.text())
def test_braces_and_placeholders_inside_values_are_left_alone(first, second):
    prompt = Prompt("two", "", "", "<{first}|{second}>")
    (message,) = prompt.messages(first=first + "{second}", second=second + "{first}\\1")
    assert message == {
        "role": "user",
        "content": f"<{first}{{second}}|{second}{{first}}\\1>",
    }


def test_every_prompt_file_says_its_source_and_shows_what_it_is_given():
    for name in NAMES:
        check_prompt(load_prompt(name), name)


def check_prompt(prompt: Prompt, name: str) -> None:
    text = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    assert text.startswith(f"# {prompt.source}\n") and "our own word" in prompt.source
    assert len(prompt.source.split()) >= 8 and prompt.name == name
    names = set(re.findall(r"\{([a-z_]+)\}", prompt.system + prompt.user))
    shown = prompt.messages(**{n: f"<<{n} {{gout}}>>" for n in names})
    asked = "\n".join(m["content"] for m in shown)
    assert names and all(f"<<{n} {{gout}}>>" in asked for n in names)
    assert all(part not in asked for part in ("[user]", "[system]", prompt.source))


SETTINGS = [
    *(METHODS[name] for name in SHIPPED if METHODS[name].needs_llm),
    replace(METHODS["query2doc"], shots=0),
    replace(METHODS["csqe"], mode="single_call"),
    replace(METHODS["thinkqe"], thinking="prompted"),
    *(kind.method for kind in REAL_KINDS.values()),
    MASKED_KINDS["described"],
    RAG2(),
]


def test_every_prompt_of_a_method_is_asked_by_one_of_its_settings(monkeypatch):
    asked, fill = set(), Prompt.messages

    def messages(prompt, **values):
        asked.add(prompt.name)
        return fill(prompt, **values)

    monkeypatch.setattr(Prompt, "messages", messages)
    llm = ScriptedChat([{"match": "", "text": "a passage"}])
    for method in SETTINGS:
        method.expand(Question("q", "Why?", {}, "", "mine"), llm, lambda request, k: [])
    owners = {name.split("_")[0] for name in asked}
    assert owners == {"chr", "csqe", "hyde", "query2doc", "thinkqe", "differential", "rationale"}
    # A writer who holds an option is told which: tests/test_masked.py.
    asked.add(MASKED_KINDS["held"].prompt)
    assert asked == {name for name in NAMES if name.split("_")[0] in owners}


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder of its own in place of the project's prompts."""
    monkeypatch.setattr(prompts, "__file__", str(tmp_path / "__init__.py"))
    return tmp_path


def test_a_file_without_source_or_user_part_is_refused_by_name(folder):
    for text in (
        "[user]\nno source\n",
        "# a source\n[system]\nonly\n",
        "# a source\nlost\n[user]\nasked\n",
        "# a source\n[user]\n[user]\n",
    ):
        (folder / "mine.txt").write_text(text)
        with pytest.raises(ValueError, match=r"mine\.txt: needs a first line '# source' and a "):
            load_prompt("mine")


def test_a_demonstration_comes_before_the_question(folder):
    text = "# here\n[user]\nA?\n[assistant]\na [user]\n[user]\n{q}\n"
    (folder / "mine.txt").write_text(text)
    prompt = load_prompt("mine")
    assert prompt == Prompt("mine", "here", "", "{q}", ("A?", "a [user]"))
    assert [(m["role"], m["content"]) for m in prompt.messages(q="B?")] == [
        ("user", "A?"),
        ("assistant", "a [user]"),
        ("user", "B?"),
    ]
