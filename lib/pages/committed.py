"""Committed results as the generated pages read them, and numbers and tables as they print them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import pandas as pd

from lib.base import paths
from lib.base.files import read_manifest
from lib.base.provenance import read_result

PROFILES = ("mini", "open")
"""Whose results are committed; ``paper`` needs GPUs and a model hub, and is shown as NOT RUN."""
OUTCOMES = {
    "hit_right": "some passage for the right option",
    "misled": "some passage for a wrong option",
    "p_at_5": "P@5",
    "mimic_at_5": "share on the mimic",
}
"""What a comparison is about, in words, by the metric of its table."""
_MAKES = {
    "": "make notebooks (faults: make faults)",
    "scale": "make setup && .venv/bin/python -m tools.measure_needs",
}
"""What makes results of no profile."""


def whole(name: str, profile: str = "") -> dict:
    """The manifest of a committed result; FileNotFoundError with the command that makes it."""
    path = paths.committed(profile) / f"{name}.csv"
    for stored in (path, path.with_suffix(".csv.xz")):
        manifest = read_manifest(stored)
        if manifest is not None:
            return manifest
    how = _MAKES.get(profile, f"make figures PROFILE={profile}")
    raise FileNotFoundError(
        f"{path.relative_to(paths.DATA.parent)} is missing or does not match its manifest; "
        f"run: {how}"
    )


def read(name: str, profile: str = "") -> tuple[pd.DataFrame, dict]:
    """A committed result and its settings; raises as ``whole`` does."""
    whole(name, profile)
    return read_result(name, profile, committed=True)


def markdown(head: Sequence[str], rows: Iterable[Sequence]) -> str:
    """A Markdown table; every cell as ``str`` has it, on one line, what is missing as a dash."""
    lines = [head, ["---"] * len(head), *rows]
    cells = (["–" if _gone(v) else _on_one_line(v) for v in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def between(value: float, low: float, high: float, sign: str = "") -> str:
    """A number with its interval."""
    return f"{value:{sign}.3f} ({low:.3f} to {high:.3f})"


def chance(p: float) -> str:
    """A p-value with three decimals; results hold no more, so 0.000 is less than a thousandth."""
    return "< 0.001" if p < 0.0005 else f"{p:.3f}"


def folded(title: str, text: str) -> str:
    """Text that opens on a click."""
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"


def _on_one_line(value) -> str:
    return re.sub(r"\s*[\n\r]\s*", " ", str(value)).replace("|", "\\|")


def _gone(value) -> bool:
    return value is None or value == "" or (isinstance(value, float) and pd.isna(value))
