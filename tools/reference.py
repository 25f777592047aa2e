"""ddx-mini's reference text as the recording that the mini profile replays.

    python -m tools.reference    writes data/recordings/reference.jsonl anew

Text of methods that see no documents is written by question; text that was written after reading
passages is kept by the key of the very request it answers, so it can answer no other one.
``tools.annotation.pending`` lists requests that still wait for such text.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from lib.base.files import atomic_write, canonical_json, read_jsonl, row_digest
from lib.base.paths import RECORDINGS
from lib.benchmarks.ddx_mini import read
from lib.datasets import load_questions
from lib.expansion import expand_all
from lib.llm.chat import REFERENCE, Reply, ScriptedChat
from lib.llm.prompts import load_prompt
from lib.llm.recorder import Recorder, as_recorded
from lib.profiles import load_profile, methods_of

WITHOUT_DOCUMENTS = ("hyde", "query2doc", "fusion", "chr")


def record_reference(path: Path = RECORDINGS / "reference.jsonl") -> Path:
    """Record every call of every method whose reference text exists, and nothing else, in ``path``.

    The file is written anew: a line for a request that no method makes any more goes.
    """
    with TemporaryDirectory() as folder:
        lines = _without_documents(Path(folder) / path.name)
    for row in read("readings"):
        reply = as_recorded(Reply(row["text"], "stop", None, None, None, REFERENCE))
        line = {"key": row["key"], "author": REFERENCE, "model": REFERENCE, "sample": 0}
        lines.append(line | {"reply": reply})
    lines.sort(key=lambda line: line["key"])
    return atomic_write(path, "".join(canonical_json(line) + "\n" for line in lines))


def _without_documents(file: Path) -> list[dict]:
    """Lines of the recording, made in ``file``, for text that was written by question."""
    questions, methods = load_questions("ddx-mini"), methods_of(load_profile("mini"))
    texts = _texts()
    with Recorder(ScriptedChat([]), file, "refresh") as recorder:
        for name in WITHOUT_DOCUMENTS:
            recorder.model = ScriptedChat(
                {"match": q.text, "text": texts[name, q.qid]} for q in questions
            )
            expand_all(methods[name], questions, recorder)
        csqe = methods["csqe"]
        for q in questions:
            recorder.model = ScriptedChat([{"match": q.text, "text": texts["csqe", q.qid]}])
            recorder.generate(
                load_prompt("csqe_knowledge").messages(question=q.text),
                n=csqe.samples,
                temperature=csqe.temperature,
                max_tokens=csqe.max_tokens,
                seed=csqe.seed,
            )
    return [row | {"digest": row_digest(row)} for row in read_jsonl(file)]


def _texts() -> dict[tuple[str, str], str | list[str]]:
    """Text by method and question id; a list for several samples."""
    texts: dict[tuple[str, str], str | list[str]] = {}
    for row in read("hypotheses"):
        texts["chr", row["qid"]] = json.dumps({k: row[k] for k in ("H_plus", "H_minus")})
    for row in read("expansions"):
        texts["hyde", row["qid"]], texts["fusion", row["qid"]] = row["hyde"], row["hyde"][0]
        texts["query2doc", row["qid"]] = row["query2doc"]
        texts["csqe", row["qid"]] = row["csqe_knowledge"]
    return texts


if __name__ == "__main__":
    print(record_reference())
