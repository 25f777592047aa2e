"""The ten examples of docs/examples.md run as they are printed, in a folder with such files."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from lib.base import paths
from lib.model_files import minilm_folder
from tests.rehearsal.server import LogServer
from tests.test_rehearsal import Scripted

EXAMPLES = re.findall(
    r"```python\n(.*?)```", (paths.ROOT / "docs" / "examples.md").read_text(), re.S
)
TOPICS = ("gout", "septic arthritis", "pseudogout")
WORDS = "fever pain swelling joint fluid crystals culture urate"


def lines(rows: list[dict]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The files that the examples name, and a server that writes."""
    papers = [
        {"id": f"{topic[:4]}{i}", "title": topic, "contents": f"{topic} brings {word} and fever."}
        for topic in TOPICS
        for i, word in enumerate(WORDS.split())
    ]
    (tmp_path / "papers.jsonl").write_text(lines(papers))
    (tmp_path / "more.jsonl").write_text(lines([{"id": "new", "contents": "Colchicine for gout."}]))
    (tmp_path / "long.jsonl").write_text(lines([{"id": "long", "contents": f"{WORDS}. " * 60}]))
    asked = [f"q{i},Which disease brings {topic} to mind?" for i, topic in enumerate(TOPICS)]
    rows = [f"{row},{','.join(TOPICS)},{'ABC'[i]}" for i, row in enumerate(asked)]
    (tmp_path / "questions.csv").write_text("\n".join(["id,question,A,B,C,answer", *rows]))
    judged = [f"q{i} 0 {topic[:4]}{n} 1\n" for i, topic in enumerate(TOPICS) for n in range(8)]
    (tmp_path / "qrels.txt").write_text("".join(judged))
    shutil.copy(paths.ROOT / "tests" / "rocchio.py", tmp_path)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "mine").symlink_to(minilm_folder())
    monkeypatch.chdir(tmp_path)
    with LogServer(Scripted(), tmp_path / "log.jsonl") as server:
        monkeypatch.setenv("CHR_LLM_URL", server.url)
        monkeypatch.setenv("CHR_LLM_MODEL", "stand-in")
        yield tmp_path


def test_the_ten_examples_run_as_printed(folder, capsys):
    assert len(EXAMPLES) == 10
    names: dict = {}
    for example in EXAMPLES:
        assert len(list(filter(None, example.splitlines()))) <= 5, example
        exec(example, names)
    found = {pid for pid, _ in names["retriever"].search(names["contrast"]("gout"), 3)}
    assert found <= {f"gout{i}" for i in range(8)}
    assert len(names["corpus"]) == 25 and len(names["whole"]) == 1 < len(names["pieces"])
    assert "query: " in names["mine"].describe()
    assert set(names["answered"].table["metric"]) == {"accuracy"}
    assert list(names["swept"].table["arm"].unique()) == ["chr@0", "chr@0.4", "chr@1"]
    assert list(names["compared"].table["arm"].unique()) == ["standard", "rocchio"]
    kept = {file.name for file in (folder / "kept" / "runs").glob("*.run")}
    assert kept == {f"{arm}.run" for arm in ("standard", "bm25", "chr@0", "chr@0.4", "chr@1")}
    assert "gout" in capsys.readouterr().out
