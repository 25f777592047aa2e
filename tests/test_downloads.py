"""Downloads: whole and verified or not there at all, the same from a mirror and from the host."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

from lib.base import downloads
from lib.base.downloads import DownloadError, fetch, members
from lib.base.paths import ROOT
from tests.fault_server import FaultServer
from tests.killed import killed

COMMIT = "c0ffee" + "0" * 34
ARCHIVE = "/o/r/archive/x.tar.gz"
FILE = bytes(range(256)) * 400
FOLDER = {"QA/b.xml": b"<b/>", "QA/a.xml": b"<a/>", "QA/sub/c.xml": b"<c/>" * 50}


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("CHR_MIRROR", raising=False)
    with FaultServer() as running:
        yield running


def archive(files: dict[str, bytes], prefix: str = "", extra=()) -> bytes:
    """A tar.gz of files below a prefix; ``extra`` are further TarInfo entries without content.

    Equal files give equal bytes: ``w:gz`` would write the time of day into the head.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(prefix + name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
        for entry in extra:
            tar.addfile(entry)
    return gzip.compress(buffer.getvalue(), mtime=0)


def listing(files: dict[str, bytes]) -> str:
    return sha("".join(f"{sha(data)}  {path}\n" for path, data in sorted(files.items())).encode())


@pytest.fixture
def registry(own_folders, server, monkeypatch):
    """A registry of one file, and of two folders of one repository, on the local server."""
    packed = archive(FOLDER)
    folder = {
        "form": "folder-archive",
        "commit": COMMIT,
        "archive": f"{server.root}{ARCHIVE}",
        "members": 3,
        "members_bytes": sum(map(len, FOLDER.values())),
        "members_sha256": listing(FOLDER),
        "folder": "QA",
        "select": ["QA/*"],
    }
    common = {"licence": "CC0", "citation": "none"}
    file = {"name": "file", "path": "a/file.bin", "form": "original"}
    file |= {"url": f"{server.root}/file.bin", "sha256": sha(FILE), "bytes": len(FILE)}
    whole = {"name": "folder", "path": "folder.tar.gz", "url": "", "bytes": len(packed)}
    top = folder | {"folder": "", "select": ["LICENSE"]}
    top |= {"members_sha256": listing({"LICENSE": b"free"})}
    one = {"name": "top", "path": "top.tar.gz", "url": "", "sha256": "", "bytes": 0}
    rows = [file | common, folder | whole | {"sha256": sha(packed)} | common, top | one | common]
    path = own_folders / "registry.toml"
    text = ""
    for row in rows:
        text += "[[download]]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in row.items())
    path.write_text(text)
    monkeypatch.setattr(downloads, "REGISTRY", path)
    server.pages["/file.bin"] = FILE
    others = {"README": b"x", "other/d.xml": b"<d/>", "LICENSE": b"free"}
    foreign = [link(f"r-{COMMIT}/other/link", "d.xml")]
    server.pages[ARCHIVE] = archive(FOLDER | others, f"r-{COMMIT}/", foreign)
    return rows


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    return entry


def in_cache(own_folders: Path) -> set[str]:
    return {p.name for p in (own_folders / "cache" / "downloads").rglob("*") if p.is_file()}


def age(path: Path) -> None:
    """Let a file be an hour old: file systems count time in steps of some milliseconds, and what
    is changed within the same step looks unchanged."""
    os.utime(path, (time.time() - 3600,) * 2)


def mirror_of(own_folders, monkeypatch, **files: bytes) -> Path:
    folder = own_folders / "mirror"
    (folder / "a").mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        path = folder / {"file": "a/file.bin"}.get(name, f"{name}.tar.gz")
        path.write_bytes(data)
        age(path)
    monkeypatch.setenv("CHR_MIRROR", str(folder))
    return folder


# one file ----------------------------------------------------------------------------------------


def test_file_is_downloaded_once_and_not_hashed_again(registry, server, monkeypatch):
    assert fetch("file").read_bytes() == FILE
    monkeypatch.setattr(downloads, "sha256_file", lambda path: pytest.fail("hashed again"))
    assert fetch("file").read_bytes() == FILE
    assert server.asked == ["/file.bin"]


@pytest.mark.fault("supply", "A download has other bytes than registered")
def test_wrong_bytes_are_refused_and_named(registry, server, own_folders, fault):
    server.pages["/file.bin"] = b"something else"
    with pytest.raises(DownloadError) as error:
        fetch("file")
    for part in ("file.bin", sha(FILE), sha(b"something else"), "run: make data PROFILE=open"):
        assert part in str(error.value)
    fault.came(wrong=in_cache(own_folders) != set(), said=error.value)


@pytest.mark.fault("supply", "A download fails")
@pytest.mark.parametrize(
    "page",
    [(404, b"no", 0, 0), (500, b"oh", 0, 0), (200, FILE[:5000], len(FILE), 0)],
    ids=["404", "500", "cut short"],
)
def test_failed_or_cut_download_leaves_nothing_and_can_be_run_again(
    page, registry, server, own_folders, fault
):
    server.pages["/file.bin"] = page
    with pytest.raises(DownloadError, match=r"/file\.bin.*run: make data") as error:
        fetch("file")
    left = in_cache(own_folders)
    server.pages["/file.bin"] = FILE
    fault.came(wrong=left != set(), lost=fetch("file").read_bytes() != FILE, said=error.value)


@pytest.mark.fault("numbers", "A download is killed")
def test_killed_at_any_moment_then_run_again(registry, server, own_folders, fault):
    sizes = {"bin": len(FILE), "tar.gz": len(server.pages[ARCHIVE])}
    (own_folders / "sizes.json").write_text(json.dumps(sizes))
    for page in ("/file.bin", ARCHIVE):
        server.pages[page] = (200, server.pages[page], 0, 0.25)
    told = killed("download", own_folders / "killed", 20)
    wrong = told["wrong"] + (fetch("file").read_bytes() != FILE)
    wrong += dict(members("folder")) != {it.removeprefix("QA/"): FOLDER[it] for it in FOLDER}
    fault.came(tries=told["hit"], wrong=wrong, said="nothing: the next run goes on")


# mirror ------------------------------------------------------------------------------------------


def test_mirror_is_read_verified_and_left_alone(registry, server, own_folders, monkeypatch):
    folder = mirror_of(own_folders, monkeypatch, file=FILE)
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*")}
    assert fetch("file") == folder / "a" / "file.bin"
    assert {p: p.stat().st_mtime_ns for p in folder.rglob("*")} == before
    assert server.asked == []


# folders of files --------------------------------------------------------------------------------


def test_mirror_and_repository_archive_give_the_same_members(
    registry, server, own_folders, monkeypatch
):
    wanted = [("a.xml", b"<a/>"), ("b.xml", b"<b/>"), ("sub/c.xml", b"<c/>" * 50)]
    assert list(members("folder")) == wanted
    assert list(members("top")) == [("LICENSE", b"free")]
    assert server.asked == [ARCHIVE], "one download serves both folders"
    mirror_of(own_folders, monkeypatch, folder=archive(FOLDER))
    monkeypatch.setenv("CHR_CACHE", str(own_folders / "other_cache"))
    assert list(members("folder")) == wanted


OTHERS = {
    "changed": (FOLDER | {"QA/a.xml": b"<A/>"}, []),
    "missing": ({"QA/a.xml": b"<a/>"}, []),
    "more": (FOLDER | {"QA/more.xml": b""}, []),
    "climbs out": (FOLDER | {"QA/../../x.xml": b""}, []),
    "a link for a file": (
        {name: data for name, data in FOLDER.items() if name != "QA/a.xml"},
        [link(f"r-{COMMIT}/QA/a.xml", "/etc/passwd")],
    ),
}


@pytest.mark.fault("supply", "An archive has other files than registered, or a hostile one")
def test_other_members_than_registered_are_refused_and_not_kept(
    registry, server, own_folders, fault
):
    right = server.pages[ARCHIVE]
    pages = [archive(files, f"r-{COMMIT}/", extra) for files, extra in OTHERS.values()]
    for page in (right[: len(right) // 2], b"<html>busy</html>", *pages):
        server.pages[ARCHIVE] = page
        with pytest.raises(DownloadError, match=r"folder: .*\.tar\.gz: .*run: make data") as error:
            list(members("folder"))
        kept = in_cache(own_folders)
        server.pages[ARCHIVE] = right
        assert len(list(members("folder"))) == 3
        fault.came(wrong=kept != set(), said=error.value)
        (path,) = (own_folders / "cache" / "downloads" / "archives").iterdir()
        path.unlink()


def zipped(**files: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in files.items():
            archive.writestr(f"folder/{name}.csv", data)
    return out.getvalue()


def test_the_member_of_a_zip_is_taken_out_checked_and_kept(server, own_folders, monkeypatch):
    item = downloads.Resource(
        name="claims",
        path="a/claims.csv",
        url=f"{server.root}/d.zip",
        sha256=sha(FILE),
        bytes=len(FILE),
        licence="-",
        citation="-",
        form="zip-member",
        select=["claims.csv"],
    )
    monkeypatch.delenv("CHR_MIRROR", raising=False)
    monkeypatch.setattr(downloads, "load_registry", lambda: {"claims": item})
    for page in (
        b"no zip",
        zipped(claims=FILE[:-1] + b"x"),
        zipped(claims=b""),
        zipped(other=FILE),
    ):
        server.pages["/d.zip"] = page
        with pytest.raises(DownloadError, match="claims: .*run: make data"):
            fetch("claims")
        assert not list(own_folders.rglob("*.csv"))
    server.pages["/d.zip"] = zipped(claims=FILE, corpus=b"other")
    assert fetch("claims").read_bytes() == FILE
    asked = len(server.asked)
    assert fetch("claims").read_bytes() == FILE and len(server.asked) == asked


# the real registry -------------------------------------------------------------------------------


def make_data(mirror: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "lib.base.downloads"]  # what "make data" runs
    where = {"cwd": ROOT, "capture_output": True, "text": True}
    return subprocess.run(command, env=os.environ | {"CHR_MIRROR": str(mirror)}, **where)


def test_the_command_says_what_is_missing_and_fails(own_folders):
    done = make_data(own_folders)
    assert done.returncode == 1
    assert re.match("error: mmlu-anatomy: .* is missing.* run: make data", done.stderr)
