"""A key that a server says again, everywhere, is found nowhere of what a run leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys

import nbformat
import pytest
from fault_server import FaultServer

from lib.base.command import BLOT
from lib.base.paths import ROOT

KEY = "sk-planted-0123456789"

CELLS = (
    'question = "What stops a seizure?"',
    """
from pathlib import Path

import pandas as pd

from lib.base.provenance import write_result
from lib.corpus import Corpus
from lib.explorer import own
from lib.explorer.widget import explore
from lib.llm.chat import ledger
from lib.llm.connect import connect
from lib.llm.recorder import Recorder
from lib.pages.readable import show, show_texts
from lib.embed import HashEncoder

h_plus, h_minus = own.write_hypotheses(question, {}, "server", Path("own.jsonl"))
show_texts({"H+": h_plus, "H-": h_minus})
print(h_plus)
""",
    """
Path("notes").mkdir()
Path("notes/a.md").write_text(f"# {h_plus}\\n\\n{h_minus}")
home = Corpus.read("notes").retriever(HashEncoder())
explore(own.own_question(question, h_plus, h_minus, home))
""",
    """
with Recorder(connect(), Path("more.jsonl")) as llm:
    replies = llm.generate([{"role": "user", "content": question}])
said = pd.DataFrame([vars(reply) for reply in replies])
show(ledger(replies))
print(write_result(said, "said", "mini", code=(), data=(), llm=replies[0].model))
print(llm, vars(llm.model), said.to_dict())
""",
    'connect().generate([{"role": "user", "content": "to be refused"}])',
)

RUN = """
import sys, papermill
papermill.execute_notebook(*sys.argv[1:3], cwd=sys.argv[3], parameters={"question": "Which?"})
"""


@pytest.mark.fault("secrets", "A server says the key again", "[key]")
def test_a_key_that_is_said_everywhere_is_left_nowhere(tmp_path):
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    book.cells[0].metadata["tags"] = ["parameters"]
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "", "language": "python"}
    nbformat.write(book, tmp_path / "asked.ipynb")
    steps = ("echo 500", "echo", "echo")
    with FaultServer(*steps, forever="echo 401") as server:
        environment = {
            "PYTHONPATH": str(ROOT),
            "CHR_LLM_KEY": KEY,
            "CHR_LLM_URL": server.url,
            "CHR_LLM_MODEL": "m",
            "CHR_CACHE": str(tmp_path / "cache"),
            "CHR_OUT": str(tmp_path / "out"),
            "OPENAI_LOG": "debug",
        }
        done = subprocess.run(
            [sys.executable, "-c", RUN, "asked.ipynb", "done.ipynb", "."],
            cwd=tmp_path,
            env=os.environ | environment,
            capture_output=True,
            text=True,
        )
    assert [asked["authorization"] for asked in server.headers] == [f"Bearer {KEY}"] * 4
    assert "LLMError: m at http" in done.stderr and "export CHR_LLM_KEY" in done.stderr
    left = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    left |= {"stdout": done.stdout.encode(), "stderr": done.stderr.encode()}
    for name in ("done.ipynb", "own.jsonl", "more.jsonl", "said.csv", "a.md", "stderr"):
        assert BLOT.encode() in left[name], name
    assert {"own.times.jsonl", "said.csv.manifest.json"} <= set(left)
    for name, content in left.items():
        for form in (KEY, KEY[:9]):
            assert form.lower().encode() not in content.lower(), name
