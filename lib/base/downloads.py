"""Every download of this project: requested by name, checked by sha256, kept, never partial.

``data/registry.toml`` lists them. If ``CHR_MIRROR`` names a folder that holds the same files, they
are read from there, and nothing is downloaded or written there. Otherwise pooch downloads a file
once, under a temporary name until its hash is right, so a run that is killed is simply run again.

Some sources are folders of small files in a public repository. A mirror has an archive of each;
else they are read from the host's archive of the whole repository. The host does not promise that
this archive keeps its bytes, so the files inside are checked.
"""

from __future__ import annotations

import tarfile
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from http.client import HTTPException
from pathlib import Path
from ssl import SSLCertVerificationError
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from lib.base.command import refuse_broken_passwords
from lib.base.files import atomic_write, is_sound, sha256_bytes, sha256_file
from lib.base.paths import REGISTRY, cache, mirror_folder

_NEXT_COMMAND = "run: make data PROFILE=open"
_ANSWERS_S = 10


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
    select: Sequence[str] = ()
    members: int = 0
    members_bytes: int = 0
    members_sha256: str = ""


class DownloadError(RuntimeError):
    """A file could not be had, or is not the file the registry describes."""


def load_registry(prefix: str = "") -> dict[str, Resource]:
    """The downloads of ``data/registry.toml`` whose names start with ``prefix``, in its order."""
    items = _resources(REGISTRY, REGISTRY.stat().st_mtime_ns)
    return {item.name: item for item in items if item.name.startswith(prefix)}


@lru_cache
def _resources(registry: Path, changed: int) -> list[Resource]:
    """All entries; the file is read again only when ``changed``, its modification time, differs.

    Every result asks for the hashes of its data, so this is called often.
    """
    rows = tomllib.loads(registry.read_text("utf-8"))["download"]
    return [Resource(**row) for row in rows]


def fetch(name: str) -> Path:
    """The local file of a download, from the mirror or downloaded at the first call, verified.

    A verified file is not hashed again while its path, size and modification time stay the same,
    unless ``CHR_VERIFY`` is set (``make VERIFY=1``). For a folder download, the path is that of the
    archive with the folder; a downloaded archive is verified by ``members``.
    Raises DownloadError with the file, what was expected, what was found and the next command.
    """
    item = load_registry()[name]
    mirror = mirror_folder()
    if item.archive and not mirror:
        source = cache("downloads", "archives") / f"{item.commit}.tar.gz"
        download(item.archive, source, known_hash=None)
        return source
    path = (mirror or cache("downloads")) / item.path
    verified = cache("verified") / f"{name}.json"
    if path.is_file() and is_sound(path, item.sha256, verified):
        return path
    if mirror:
        found = f"has sha256 {sha256_file(path)}" if path.is_file() else "is missing"
        raise DownloadError(
            f"{name}: CHR_MIRROR is set, but {path} {found}, expected {item.sha256}; put the "
            f"file there, or unset CHR_MIRROR to download it from {item.url}, "
            f"then {_NEXT_COMMAND}"
        )
    if item.form == "zip-member":
        _unzip(item, path)
    else:
        download(item.url, path, f"sha256:{item.sha256}")
    is_sound(path, item.sha256, verified)  # noted, so that it is not hashed again
    return path


def members(name: str) -> Iterator[tuple[str, bytes]]:
    """The files of a folder download, a few MB: (path inside the folder, bytes), sorted by path.

    They are read from the archive, and nothing is unpacked to disk. DownloadError where they are
    not the registered ones.
    """
    item, source, downloaded = load_registry()[name], fetch(name), not mirror_folder()
    try:
        # The host puts everything in one more folder, named after the commit.
        found = _files_inside(source, item.select, strip=1 if downloaded else 0)
        listing = "".join(f"{sha256_bytes(data)}  {path}\n" for path, data in found.items())
        digest = sha256_bytes(listing.encode())
        if digest != item.members_sha256:
            raise ValueError(
                f"{len(found)} of {item.members} files found, members_sha256 {digest}, "
                f"expected {item.members_sha256}"
            )
    except (tarfile.TarError, OSError, EOFError, ValueError) as error:
        if downloaded:
            source.unlink()  # of no use: the next run downloads it again
        raise DownloadError(f"{name}: {source}: {error}; {_NEXT_COMMAND}") from error
    for path, data in found.items():
        yield path.removeprefix(f"{item.folder}/"), data


def _files_inside(source: Path, select: Sequence[str], strip: int) -> dict[str, bytes]:
    """The files of a tar.gz that a pattern selects, sorted by path, without the first folders."""
    found = {}
    with tarfile.open(source, "r|gz") as archive:
        for entry in archive:
            path = entry.name.split("/", strip)[-1]
            if any(fnmatchcase(path, pattern) for pattern in select):
                content = archive.extractfile(entry) if entry.isfile() else None
                if content is not None:
                    found[path] = content.read()
    return dict(sorted(found.items()))


def _unzip(item: Resource, path: Path) -> None:
    """Take the one selected file out of the zip at the item's url, if it is the registered one."""
    wanted = item.select[0]
    source = cache("downloads", "archives") / f"{sha256_bytes(item.url.encode())[:16]}.zip"
    download(item.url, source, known_hash=None)
    try:
        with zipfile.ZipFile(source) as archive:
            (name,) = [name for name in archive.namelist() if name.endswith(wanted)]
            data = archive.read(name)
        if sha256_bytes(data) != item.sha256:
            raise ValueError(f"its {wanted} is not the registered one")
    except (zipfile.BadZipFile, ValueError) as error:
        source.unlink()  # of no use: the next run downloads it again
        raise DownloadError(f"{item.name}: {source}: {error}; {_NEXT_COMMAND}") from error
    atomic_write(path, data)


def download(url: str, path: Path, known_hash: str | None) -> None:
    """Let pooch put the file of ``url`` at ``path``, with a progress bar; nothing if it is there.

    ``known_hash`` is "sha256:..."; a file with another hash is downloaded anew, and refused if that
    hash is wrong too. Raises DownloadError with the reason and the next command.
    """
    import pooch

    pooch.get_logger().setLevel("WARNING")
    path.parent.mkdir(parents=True, exist_ok=True)
    take = pooch.HTTPDownloader(progressbar=True)
    try:
        refuse_broken_passwords()
        pooch.retrieve(url, known_hash, fname=path.name, path=path.parent, downloader=take)
    except (OSError, ValueError) as error:  # no connection, 404, cut short; or a wrong hash
        # requests wraps urllib3's reason for a failed connection in a long message: unwrap it.
        reason = getattr(error.args[0] if error.args else None, "reason", None) or error
        raise DownloadError(
            f"could not download {url} to {path}: {reason}; connect to the network, or name a "
            f"folder that has the file: MIRROR=folder; then {_NEXT_COMMAND}"
        ) from error


def check_answers(url: str) -> None:
    """Raises DownloadError, within seconds, where no server answers at ``url``; any answer is fine.

    Called before hours of work that would end at a client with long retries of its own.
    """
    try:
        urlopen(Request(url, method="HEAD"), timeout=_ANSWERS_S).close()
    except (HTTPError, HTTPException):
        pass
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        # The real client may trust a certificate authority that Python does not, as on macOS.
        if not isinstance(reason, SSLCertVerificationError):
            raise DownloadError(
                f"{url} gives no answer ({reason}). Next: connect to the network, or name a folder "
                "with copies: MIRROR=folder"
            ) from error


if __name__ == "__main__":
    for download_name, resource in load_registry().items():
        print(f"{download_name}: {fetch(download_name)}")
        if resource.archive:
            list(members(download_name))  # verified
