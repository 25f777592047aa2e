"""MedCorp, the paper's corpus: PubMed, textbooks and Wikipedia from the hub, StatPearls from NCBI.

The first three are read as MedRAG published them, one JSON record a line, already cut. StatPearls
may not be passed on, so each user cuts it from NCBI's archive by MedRAG's rule. NCBI
renews the archive often and the ids count paragraphs, so they drift from one archive to the next;
the manifest beside the downloaded archive keeps its date and sha256. Source: Xiong et al. 2024.
"""

from __future__ import annotations

import json
import sys
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from xml.etree.ElementTree import Element

from lib.base.downloads import DownloadError, download
from lib.base.files import read_manifest, sha256_bytes, write_manifest
from lib.base.paths import cache, mirror_folder
from lib.data.passages import CORPORA, Passage, parse_xml, tidy

STATPEARLS = "https://ftp.ncbi.nlm.nih.gov/pub/litarch/3d/12/statpearls_NBK430685.tar.gz"
_SHORT = 200  # characters: a shorter paragraph is appended to the passage before it
_LONG = 1000  # characters: a passage stays shorter than this
_MAX_ARTICLE = 20_000_000  # bytes of one article's XML

SOURCES = ("pubmed", "textbooks", "wikipedia", "statpearls")
TENTHS = {"pubmed-tenth": "pubmed", "wikipedia-tenth": "wikipedia"}
"""A tenth of two sources, by the hash of their ids: with all of the others 5.8 million passages, as
many as the CHR paper names. Which it searched it does not say, and of Wikipedia it had "health
articles", which MedRAG's files do not mark: this subset is ours."""
NAMES = (*SOURCES, *TENTHS)

_TOKENS = {"pubmed": 296, "textbooks": 182, "wikipedia": 162}  # mean of a passage, by MedRAG
_BYTES_PER_TOKEN = 9.3  # in the hub's files, which hold each text twice: textbooks are 212 MB
_STATPEARLS_BYTES = 1.6e9
DIM = 768
"""Numbers of MedCPT's vectors."""


def source_of(name: str) -> str:
    """The source whose files are read for one of ``NAMES``; any other name as it is."""
    return TENTHS.get(name, name)


@dataclass(frozen=True)
class Estimate:
    """What a source will cost: vectors and download in GB of 10^9 bytes, the latter roughly."""

    source: str
    rows: int
    float32_gb: float
    float16_gb: float
    download_gb: float


def estimate(source: str) -> Estimate:
    """Size of a source before anything is downloaded, with MedCPT's 768 numbers a passage. A tenth
    needs the whole download."""
    rows = CORPORA[source].passages
    read = source_of(source)
    if read in _TOKENS:
        download_bytes = CORPORA[read].passages * _TOKENS[read] * _BYTES_PER_TOKEN
    else:
        download_bytes = _STATPEARLS_BYTES
    return Estimate(
        source,
        rows,
        float32_gb=round(rows * DIM * 4 / 1e9, 2),
        float16_gb=round(rows * DIM * 2 / 1e9, 2),
        download_gb=round(download_bytes / 1e9, 2),
    )


def load_medrag(source: str, folder: Path | None = None) -> Iterator[Passage]:
    """Passages of one of ``SOURCES`` or ``TENTHS``, file by file, streaming.

    ``folder`` is a local copy: ``chunk/*.jsonl`` as on the hub, or StatPearls' archive. Without it
    ``<CHR_MIRROR>/medrag/<source>`` is read when CHR_MIRROR is set; otherwise files are downloaded
    one by one as they are needed, from the hub or from NCBI. Records without a text are left out;
    how many is printed.
    """
    if source in TENTHS:
        yield from filter(_in_tenth, load_medrag(TENTHS[source], folder))
        return
    mirror = mirror_folder()
    if folder is None and mirror:
        folder = mirror / "medrag" / source
    if source == "statpearls":
        archive = folder / STATPEARLS.rsplit("/", 1)[1] if folder else _download_statpearls()
        yield from _statpearls(archive)
        return
    empty = 0
    for path in _chunk_files(source, folder):
        with open(path, "rb") as lines:
            for passage in read_records(source, lines, path.name):
                if passage.text.strip():
                    yield passage
                else:
                    empty += 1
    if empty:
        print(f"{source}: left out, for want of a text: {empty:,} records", file=sys.stderr)


def _in_tenth(passage: Passage) -> bool:
    return int(sha256_bytes(passage.pid.encode())[:16], 16) % 10 == 0


def local_files(source: str) -> list[tuple[str, int, int]]:
    """Name, bytes and time of change of each file of a local copy; none where the hub is read.

    Hashing a hundred gigabytes at each start would take longer than most runs.
    """
    mirror, source = mirror_folder(), source_of(source)
    if source not in SOURCES or not mirror:
        return []
    states = [(p, p.stat()) for p in (mirror / "medrag" / source).rglob("*") if p.is_file()]
    return sorted((path.name, state.st_size, state.st_mtime_ns) for path, state in states)


def read_records(source: str, lines: Iterable[bytes], name: str) -> Iterator[Passage]:
    """Passages of one JSON Lines file of the hub, those without a text too; ``name`` is the file's.

    DownloadError, with file and line, for what is no record of three texts: id, title and content.
    """
    for number, line in enumerate(lines, 1):
        if line.startswith(b"version https://git-lfs"):
            raise DownloadError(
                f"{source}: {name} is a Git LFS pointer, not the data; "
                f"run: git lfs pull (in that folder), or read from the hub without a folder"
            )
        try:
            row = json.loads(line.decode())
            pid, title, text = (_checked(row, field) for field in ("id", "title", "content"))
            meta = {"pmids": [str(row["PMID"])]} if row.get("PMID") else {}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DownloadError(
                f"{source}: {name}, line {number}: no record ({error}); "
                "mend the line, or fetch the file anew"
            ) from error
        yield Passage(f"{source}:{pid}", title, text, source, meta)


def _checked(row: dict, field: str) -> str:
    """A field of a record; ValueError where it is no text, or one that cannot be stored."""
    if not isinstance(row[field], str):
        raise ValueError(f"{field} is {row[field]!r:.60}, not a text")
    row[field].encode()  # half a surrogate has no bytes
    return row[field]


def _chunk_files(source: str, folder: Path | None) -> Iterator[Path]:
    """The JSON Lines files of a source, sorted: local ones, or downloaded one after the other."""
    if folder is not None:
        paths = sorted(Path(folder).glob("chunk/*.jsonl"))
        if not paths:
            raise DownloadError(
                f"{source}: no chunk/*.jsonl in {folder}; put a copy of MedRAG/{source} there, "
                f"or unset CHR_MIRROR to read it from the hub"
            )
        yield from paths
        return
    from huggingface_hub import HfApi, hf_hub_download

    where = {"repo_id": f"MedRAG/{source}", "repo_type": "dataset"}
    for name in sorted(HfApi().list_repo_files(**where)):
        if name.startswith("chunk/") and name.endswith(".jsonl"):
            yield Path(hf_hub_download(filename=name, **where))


def _download_statpearls() -> Path:
    """NCBI's archive, downloaded once; its manifest keeps the date and the sha256."""
    path = cache("downloads", "statpearls") / STATPEARLS.rsplit("/", 1)[1]
    if read_manifest(path, verify=False) is None:
        download(STATPEARLS, path, known_hash=None)
        date = datetime.now(UTC).date().isoformat()
        write_manifest(path, rows=0, settings={"url": STATPEARLS, "date": date})
    return path


def _statpearls(archive: Path) -> Iterator[Passage]:
    """Passages of every article of NCBI's archive, in the archive's order."""
    try:
        with tarfile.open(archive, "r|gz") as entries:
            for entry in entries:
                if entry.isfile() and entry.name.endswith(".nxml") and entry.size <= _MAX_ARTICLE:
                    article = entry.name.rsplit("/", 1)[-1].removesuffix(".nxml")
                    yield from cut_statpearls(article, entries.extractfile(entry).read())
    except (tarfile.TarError, OSError, EOFError) as error:
        raise DownloadError(
            f"statpearls: cannot read {archive}: {error}; delete it, then run: "
            f"make data PROFILE=paper"
        ) from error


def cut_statpearls(article: str, data: bytes) -> Iterator[Passage]:
    """One article as MedRAG cuts it: a passage for each paragraph.

    A paragraph under 200 characters joins the passage before it while both stay under 1,000; a
    list does so too, else it is one passage if under 1,000, else one for each item. The title is
    article -- section (-- subtitle, a paragraph that is all bold).
    """
    root = parse_xml(data, f"statpearls {article}")
    name = _text(root.find(".//title"))
    count = 0
    for section in root.iter("sec"):
        for title, text in _section(section, f"{name} -- {_text(section.find('title'))}"):
            if text:
                yield Passage(f"statpearls:{article}_{count}", title, text, "statpearls", {})
                count += 1


def _section(section: Element, heading: str) -> Iterator[tuple[str, str]]:
    """(title, text) of the passages of one section, from its own children only; some are empty.

    The last passage stays open, because what follows may be appended to it.
    """
    title = heading
    open_title = open_text = ""
    after_subtitle = False
    for child in section:
        subtitle = _is_subtitle(child)
        if subtitle:
            yield open_title, open_text
            title = f"{heading} -- {_text(child)}"
            open_text = ""
        elif child.tag in ("p", "list"):
            is_list = child.tag == "list"
            parts = [_text(item) for item in child] if is_list else [_text(child)]
            text = " ".join(parts)
            may_join = is_list or len(text) < _SHORT
            if open_text and may_join and len(open_text) + len(text) < _LONG:
                open_text = f"{open_text} {text}"
            else:
                yield open_title, open_text
                open_title = title
                open_text = text
                if is_list and len(text) >= _LONG:
                    yield from ((title, part) for part in parts)
                    open_text = ""
            if is_list and after_subtitle:  # the subtitle was this list's alone
                title = heading
        after_subtitle = subtitle
    yield open_title, open_text


def _is_subtitle(element: Element) -> bool:
    """Whether it is a paragraph that is bold from its first letter to its last."""
    return (
        element.tag == "p"
        and [e.tag for e in element] == ["bold"]
        and not (element.text or "").strip()
        and not (element[0].tail or "").strip()
    )


def _text(element: Element | None) -> str:
    """All text inside an element, tidied; empty without one."""
    return "" if element is None else tidy("".join(_runs(element)))


def _runs(element: Element) -> Iterator[str]:
    """The text of an element in order, with spaces around blocks so that words stay apart."""
    yield element.text or ""
    for child in element:
        space = " " if child.tag in ("p", "list", "list-item", "title") else ""
        yield space
        yield from _runs(child)
        yield space + (child.tail or "")
