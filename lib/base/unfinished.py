"""Long work kept piece by piece: stopped or killed, and started again, it goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from lib.base import paths
from lib.base.files import canonical_json, sha256_bytes


class Unfinished:
    """The finished pieces of one piece of work, by name, in one file of the cache.

    ``behind`` is all that the pieces depend on; whoever has other settings begins anew.
    """

    def __init__(self, work: str, **behind: Any) -> None:
        digest = sha256_bytes(canonical_json([work, behind]).encode())[:16]
        self._path = paths.cache("unfinished") / f"{digest}.jsonl"
        self._pieces = dict(self._read())

    def piece(self, name: str, make: Callable[[], Any]) -> Any:
        """What ``make()`` gives (anything that JSON can hold), made once for a name."""
        if name not in self._pieces:
            line = json.dumps([name, make()])
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with open(self._path, "ab") as stream:
                # What a kill tore off ends before this line, and is passed over.
                stream.write(f"\n{line}\n".encode())
            self._pieces[name] = json.loads(line)[1]
        return self._pieces[name]

    def end(self) -> None:
        """All of it is kept elsewhere by now: forget the pieces."""
        self._path.unlink(missing_ok=True)

    def _read(self) -> list[list]:
        pieces = []
        for line in self._path.read_bytes().splitlines() if self._path.exists() else ():
            try:
                pieces.append(json.loads(line))
            except ValueError:  # torn, or empty
                continue
        return pieces
