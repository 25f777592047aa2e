"""Brings data/croissant.json up to date: judgments and recordings as a data card (Croissant 1.0).

``python -m tools.croissant``, after a file of either was added or changed: it holds their sha256.
What files and fields are is written in the card itself, by hand; a recording that is new there has
the fields of every recording. Version and date are those of CITATION.cff.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from lib.base.files import atomic_write, sha256_file
from lib.base.paths import DATA, ROOT

CARD = DATA / "croissant.json"
_PATTERN = "recordings/reference.jsonl"
"""The recording whose block a new one's is copied from."""


def card() -> dict:
    """The card as JSON-LD, with the files as they are now."""
    said = json.loads(CARD.read_text(encoding="utf-8"))
    blocks = {one["field"][0]["source"]["fileObject"]["@id"]: one for one in said["recordSet"]}
    recordings = sorted((DATA / "recordings").glob("*.jsonl*"))
    kept = [p for p in recordings if not p.name.endswith((".manifest.json", ".times.jsonl"))]
    names = [name for name in blocks if not name.startswith("recordings/")]
    names += [path.relative_to(DATA).as_posix() for path in kept]
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    version, date, title = (
        re.search(rf'^{name}: "?([^"\n]+)', cited, re.M)[1]
        for name in ("version", "date-released", "title")
    )
    about = {
        "citeAs": f"The CHR companion authors, {title}, version {version}, {date[:4]}",
        "datePublished": date,
        "version": version,
    }
    files = [_file(DATA / name) for name in names]
    described = [blocks.get(name) or _like(blocks[_PATTERN], name) for name in names]
    return said | about | {"distribution": files, "recordSet": described}


def _file(path: Path) -> dict:
    name = path.relative_to(DATA).as_posix()
    return {
        "@type": "cr:FileObject",
        "@id": name,
        "name": name,
        "contentUrl": name,
        "contentSize": f"{path.stat().st_size} B",
        "encodingFormat": "text/csv" if path.suffix == ".csv" else "application/jsonlines",
        "sha256": sha256_file(path),
    }


def _like(block: dict, name: str) -> dict:
    """The block of a new recording: that of another, with its own name."""
    text = json.dumps(block).replace(_PATTERN, name)
    own = f"recordings-{Path(name).name.partition('.')[0]}"
    return json.loads(text.replace("recordings-reference", own))


def main() -> None:
    """Command line: write the card."""
    made = card()
    atomic_write(CARD, json.dumps(made, indent=1, ensure_ascii=False) + "\n")
    print(f"{CARD.relative_to(ROOT)}: {len(made['distribution'])} files")


if __name__ == "__main__":
    main()
