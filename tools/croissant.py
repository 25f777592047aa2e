"""Makes data/croissant.json: judgments and recordings as a Croissant data card (MLCommons, 1.0).

``python -m tools.croissant``, after a file of either was added or changed: it holds their sha256.
Version and date are those of CITATION.cff; every address is a place in the project, which has none.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from lib.base.files import atomic_write, sha256_file
from lib.base.paths import DATA, ROOT

CARD = DATA / "croissant.json"

_TERMS = """arrayShape citeAs column data dataType equivalentProperty examples extract field
fileObject fileProperty fileSet format includes isArray isLiveDataset jsonPath key md5 parentField
path rai recordSet references regex repeated replace samplingRate separator source subField
transform"""
_ELSEWHERE = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "dct": "http://purl.org/dc/terms/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
}
CONTEXT = {name: f"cr:{name}" for name in _TERMS.split()} | _ELSEWHERE
"""Croissant's names, expanded as its specification does."""

RECORDS = {
    "judgments/real.jsonl.gz": (
        "What a passage says for a question, by pass (data/judgments/README.md)",
        {
            "qid": ("sc:Text", "the question"),
            "pid": ("sc:Text", "the passage, or a planted item"),
            "judge": ("sc:Text", "the pass: first, second, or single (one passage by itself)"),
            "on_topic": ("sc:Integer", "0 to 3; missing where it could not be read"),
            "supports": ("sc:Text", "letters of the options that it supports"),
            "contradicts": ("sc:Text", "letters of the options that it contradicts"),
        },
    ),
    "judgments/contradiction.jsonl.gz": (
        "Do two texts on one question agree or disagree, by pass",
        {
            "pool": ("sc:Text", "among which texts they were judged"),
            "a": ("sc:Text", "one text"),
            "b": ("sc:Text", "the other"),
            "judge": ("sc:Text", "the pass"),
            "same": ("sc:Boolean", "whether both are on one question"),
            "stance": ("sc:Text", "agree, disagree, unclear; empty if not on one question"),
        },
    ),
    "judgments/helpful.csv": (
        "Does a passage contribute to answering a question of BioASQ",
        {
            "qid": ("sc:Text", "the question"),
            "pid": ("sc:Text", "the passage"),
            "helpful": ("sc:Integer", "1 or 0"),
        },
    ),
}
"""Files whose rows are described: what they are, and each field's type and meaning."""

REPLY = {
    "key": ("sc:Text", "a hash of model, messages and options"),
    "model": ("sc:Text", "who wrote it, as far as it is known"),
    "text": ("sc:Text", "what was said"),
}
"""The fields of every recording (data/recordings/README.md)."""


def files() -> list[Path]:
    """The described files: judgments, then recordings, without running times."""
    recordings = sorted((DATA / "recordings").glob("*.jsonl*"))
    kept = [p for p in recordings if not p.name.endswith((".manifest.json", ".times.jsonl"))]
    return [DATA / name for name in RECORDS] + kept


def card() -> dict:
    """The card as JSON-LD."""
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    version, date, title = (
        re.search(rf'^{name}: "?([^"\n]+)', cited, re.M)[1]
        for name in ("version", "date-released", "title")
    )
    described = [_records(path) for path in files()]
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "name": "chr-companion",
        "description": f"{title}: judgments of passages and recorded texts of language models. "
        "Ids of questions and passages, no text of theirs. Not medical advice.",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "citeAs": f"The CHR companion authors, {title}, version {version}, {date[:4]}",
        "creator": {"@type": "sc:Organization", "name": "The CHR companion authors"},
        "datePublished": date,
        "license": "https://spdx.org/licenses/MIT.html",
        "url": "../README.md",
        "version": version,
        "distribution": [_file(path) for path in files()],
        "recordSet": described,
    }


def _id(path: Path) -> str:
    return path.relative_to(DATA).as_posix()


def _file(path: Path) -> dict:
    return {
        "@type": "cr:FileObject",
        "@id": _id(path),
        "name": _id(path),
        "contentUrl": _id(path),
        "contentSize": f"{path.stat().st_size} B",
        "encodingFormat": "text/csv" if path.suffix == ".csv" else "application/jsonlines",
        "sha256": sha256_file(path),
    }


def _records(path: Path) -> dict:
    what, fields = RECORDS.get(_id(path), ("What a language model replied", REPLY))
    name = f"{path.parent.name}-{path.name.partition('.')[0]}"
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": what,
        "field": [_field(name, field, path, *about) for field, about in fields.items()],
    }


def _field(records: str, field: str, path: Path, kind: str, what: str) -> dict:
    source: dict = {"fileObject": {"@id": _id(path)}, "extract": {"column": field}}
    if field == "text":  # stands within the reply
        source |= {"extract": {"column": "reply"}, "transform": {"jsonPath": "$.text"}}
    return {
        "@type": "cr:Field",
        "@id": f"{records}/{field}",
        "name": f"{records}/{field}",
        "description": what,
        "dataType": kind,
        "source": source,
    }


def main() -> None:
    """Command line: write the card."""
    atomic_write(CARD, json.dumps(card(), indent=1, ensure_ascii=False) + "\n")
    print(f"{CARD.relative_to(ROOT)}: {len(files())} files")


if __name__ == "__main__":
    main()
