"""The ten names of ``lib``: they complete, load late, and work from a script elsewhere."""

from __future__ import annotations

import subprocess
import sys

import lib
from lib.base import paths

SCRIPT = """
import sys
import lib
assert "numpy" not in sys.modules and set(lib._MODULE_OF) <= set(dir(lib))
from lib import Corpus, contrast, evaluate, load_encoder, read_qrels, read_questions
retriever = Corpus.read("c.jsonl").retriever(load_encoder("hash"), progress=False)
print([pid for pid, text in retriever.search(contrast("gout toe", "sepsis pulse", lam=0.4), 2)])
done = evaluate(retriever, read_questions("q.csv")[0], read_qrels("qrels.txt")[0], progress=False)
print(len(done.table))
"""


def test_every_name_is_that_of_its_module():
    for name in lib._MODULE_OF:
        assert callable(getattr(lib, name)) and getattr(lib, name).__name__ == name


def test_a_script_outside_the_project_reads_searches_and_evaluates(tmp_path):
    (tmp_path / "c.jsonl").write_text(
        '{"id": "a", "contents": "gout of the toe"}\n{"id": "b", "contents": "sepsis and pulse"}\n'
    )
    (tmp_path / "q.csv").write_text("id,question\nq,gout\n")
    (tmp_path / "qrels.txt").write_text("q 0 a 1\n")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(paths.ROOT), "CHR_CACHE": str(tmp_path / "cache"), "PATH": ""},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["['a', 'b']", "8"]
