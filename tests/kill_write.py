"""Write files with manifests, again and again: the child that test_files.py kills.

Usage: python tests/kill_write.py FOLDER FIRST_VERSION
"""

from __future__ import annotations

import itertools
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from lib.base.files import atomic_write, write_manifest  # noqa: E402

NAMES = ("curve.csv", "vectors.npy", "plain", "deep/run.jsonl")


def body(name: str, version: int) -> bytes:
    """What a file holds at one version: all versions have the same size, so only bytes can tell."""
    return (
        b"%09d\n" % version + random.Random(f"{name} {version}").randbytes(150_000).hex().encode()
    )


def write_all(folder: Path, version: int) -> None:
    """Every file once, as bytes, as text and by a function that writes piece by piece."""
    for i, name in enumerate(NAMES):
        data = body(name, version)

        def by_pieces(temporary: Path, data: bytes = data) -> None:
            with open(temporary, "wb") as stream:
                for start in range(0, len(data), 10_000):
                    stream.write(data[start : start + 10_000])
                    stream.flush()

        path = folder / name
        atomic_write(path, (data, data.decode(), by_pieces)[i % 3])
        write_manifest(path, rows=1, settings={"version": version})


if __name__ == "__main__":
    print("started", flush=True)
    for number in itertools.count(int(sys.argv[2])):
        write_all(Path(sys.argv[1]), number)
