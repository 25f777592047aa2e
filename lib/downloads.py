"""Every download of this project: asked for by name, checked by sha256, kept, never half there.

``data/registry.toml`` says where each file is, its size, hash and licence. If ``CHR_MIRROR`` names
a folder that holds the same files, they are read from there, nothing is downloaded and nothing is
written there. Otherwise pooch downloads a file once, under a temporary name until its hash is
right, so a run that is killed is simply run again.

Some sources are folders of many small files in a public repository. ``members`` gives those files,
the same bytes in the same order, from the mirror's archive of the folder or from the host's archive
of the whole repository. The host does not promise the bytes of an archive, so the files inside are
checked, not the archive; nothing is unpacked to disk by the names that an archive contains.
"""

from __future__ import annotations

import os
import tarfile
import time
import tomllib
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from lib.files import (
    atomic_write,
    canonical_json,
    read_manifest,
    sha256_bytes,
    sha256_file,
    write_manifest,
)
from lib.paths import REGISTRY, cache

__all__ = ["Resource", "DownloadError", "load_registry", "fetch", "members", "download"]

_AGAIN = "run: make data PROFILE=open"


@dataclass(frozen=True)
class Resource:
    """One entry of the registry; ``data/registry.toml`` explains every field in its head."""

    name: str
    path: str
    url: str
    sha256: str
    bytes: int
    licence: str
    citation: str
    form: str
    commit: str = ""
    archive: str = ""
    folder: str = ""
    select: tuple[str, ...] = ()
    members: int = 0
    members_bytes: int = 0
    members_sha256: str = ""


class DownloadError(RuntimeError):
    """A file could not be had, or is not the file the registry describes."""


def load_registry() -> dict[str, Resource]:
    """All downloads of ``data/registry.toml`` by name, in the file's order."""
    rows = tomllib.loads(REGISTRY.read_text(encoding="utf-8"))["download"]
    return {r["name"]: Resource(**r | {"select": tuple(r.get("select", ()))}) for r in rows}


def fetch(name: str) -> Path:
    """The verified local file of a download, from the mirror or downloaded at the first call.

    A file that was verified once is not hashed again while its path, size and time of change stay.
    Raises DownloadError with the file, what was expected, what was found and the next command.
    """
    item, mirror = _resource(name), os.environ.get("CHR_MIRROR")
    if not mirror and item.form == "folder-archive":
        raise DownloadError(f"{name} is a folder of files, not one file; use members({name!r})")
    path = Path(mirror) / item.path if mirror else cache("downloads") / item.path
    note = cache("verified") / f"{name}.json"
    if path.is_file() and note.is_file() and note.read_text() == _mark(path, item):
        return path
    if not mirror:
        download(item.url, path, f"sha256:{item.sha256}")
    elif not path.is_file():
        raise DownloadError(
            f"{name}: CHR_MIRROR is set, but it holds no {item.path}; "
            f"unset CHR_MIRROR to download the file from {item.url}, then {_AGAIN}"
        )
    found = sha256_file(path)
    if found != item.sha256:
        raise DownloadError(
            f"{name}: {path} has sha256 {found}, expected {item.sha256}; "
            f"replace the file in the folder that CHR_MIRROR names (or unset it), then {_AGAIN}"
        )
    atomic_write(note, _mark(path, item))
    return path


def members(name: str) -> Iterator[tuple[str, bytes]]:
    """The files of a folder download: (path inside the folder, bytes), sorted by path, one by one.

    At the first call they are read from their archive, checked (number, size and sha256 of all)
    and kept as one zip file in the cache, whose manifest remembers the verdict.
    """
    item = _resource(name)
    if item.form != "folder-archive":
        raise DownloadError(f"{name} is one file, not a folder; use fetch({name!r})")
    pack = cache("members") / f"{name}.zip"
    settings = {"members_sha256": item.members_sha256}
    manifest = read_manifest(pack)
    if manifest is None or manifest["settings"] != settings:
        found = _checked_members(item)
        atomic_write(pack, lambda path: _write_zip(path, found))
        write_manifest(pack, rows=len(found), settings=settings)
    return _read_zip(pack, f"{item.folder}/" if item.folder else "")


def download(url: str, path: Path, known_hash: str | None) -> None:
    """Let pooch put the file of ``url`` at ``path``, with a progress bar; nothing if it is there.

    ``known_hash`` is "sha256:..."; a file with another hash is downloaded anew, and refused if that
    hash is wrong too. Raises DownloadError with the reason and the next command.
    """
    import pooch

    pooch.get_logger().setLevel("WARNING")
    path.parent.mkdir(parents=True, exist_ok=True)
    for leftover in path.parent.glob("tmp*"):  # pooch's temporary files, left by a killed run
        with suppress(FileNotFoundError):  # or of another process, that is just done with it
            if time.time() - leftover.stat().st_mtime > 3600:
                leftover.unlink()
    try:
        pooch.retrieve(url, known_hash, fname=path.name, path=path.parent, progressbar=True)
    except (OSError, ValueError) as error:  # no connection, 404, cut short; or a wrong hash
        raise DownloadError(f"could not download {url} to {path}: {error}; {_AGAIN}") from error


def _resource(name: str) -> Resource:
    registry = load_registry()
    if name not in registry:
        raise DownloadError(f"no download is called {name!r}; known: {', '.join(registry)}")
    return registry[name]


def _mark(path: Path, item: Resource) -> str:
    stat = path.stat()
    return canonical_json([str(path), stat.st_size, stat.st_mtime_ns, item.sha256])


def _checked_members(item: Resource) -> dict[str, bytes]:
    """All members of one folder by their path in the archive, in memory: a few MB each."""
    mirrored = bool(os.environ.get("CHR_MIRROR"))
    if mirrored:
        source = fetch(item.name)
    else:  # one archive serves all folders of a repository
        repository = "-".join(item.archive.split("/")[-4:-2])
        source = cache("downloads", "archives") / f"{repository}-{item.commit}.tar.gz"
        download(item.archive, source, known_hash=None)
    try:
        found = _selected(source, item, strip=0 if mirrored else 1)
        listing = "".join(f"{sha256_bytes(data)}  {path}\n" for path, data in found.items())
        digest = sha256_bytes(listing.encode())
        if digest != item.members_sha256:
            raise DownloadError(
                f"{item.name}: {len(found)} of {item.members} files found in {source}, "
                f"members_sha256 {digest}, expected {item.members_sha256}; {_AGAIN}"
            )
    except DownloadError:
        if not mirrored:  # ours, and of no use: the next run downloads it again
            source.unlink(missing_ok=True)
        raise
    return found


def _selected(source: Path, item: Resource, strip: int) -> dict[str, bytes]:
    """The wanted regular files of a tar.gz, sorted by path; ``strip`` leading folders dropped."""
    found: dict[str, bytes] = {}
    room = item.members_bytes
    try:
        with tarfile.open(source, "r|gz") as archive:
            for entry in archive:
                path = "/".join(entry.name.split("/")[strip:])
                wanted = any(fnmatchcase(path, pattern) for pattern in item.select)
                if entry.isdir() or not wanted:
                    continue
                room -= entry.size
                parts = PurePosixPath(path)
                if not entry.isfile() or parts.is_absolute() or ".." in parts.parts or room < 0:
                    raise DownloadError(
                        f"{item.name}: refused {entry.name!r} in {source}: only regular files "
                        f"below the folder, {item.members_bytes} bytes in all, belong there"
                    )
                found[path] = archive.extractfile(entry).read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise DownloadError(f"{item.name}: cannot read {source}: {error}; {_AGAIN}") from error
    return dict(sorted(found.items()))


def _write_zip(path: Path, files: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as pack:
        for name, data in files.items():
            pack.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)


def _read_zip(pack: Path, folder: str) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(pack) as archive:
        for name in archive.namelist():
            yield name.removeprefix(folder), archive.read(name)
