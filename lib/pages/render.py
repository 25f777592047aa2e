"""Sentences and blocks made from committed results: the templates in docs/_templates.

``blocks.j2`` has the generated blocks of README.md and docs/, ``notebooks.j2`` what a notebook
found, ``slides.j2`` the slides of docs/teach. A template reads results, and a number that was not
measured is no number: it raises.
"""

from __future__ import annotations

import base64
import re
from functools import cache
from pathlib import Path
from statistics import median

import pandas as pd
from jinja2.environment import TemplateModule
from jinja2.runtime import Macro

from lib.base import paths
from lib.base.files import read_jsonl
from lib.base.provenance import read_result
from lib.pages.readable import chance, plain, words
from lib.plots.captions import Lookup, template_environment
from lib.profiles import load_profile
from lib.report import pivot, reported
from lib.search.contrast import rotation

PROFILES = ("mini", "open")
"""Profiles with committed results; ``paper`` needs GPUs and a model hub, and is shown NOT RUN."""
_HERE = Path(__file__).parents[2]
TEMPLATES = _HERE / "docs" / "_templates"
PAPERS = paths.DATA / "papers.csv"
"""What of each paper is here: a row an item."""


def read(name: str, profile: str = "open") -> Lookup:
    """A committed result; FileNotFoundError with the command that makes it."""
    return Lookup(read_result(name, profile, committed=True)[0])


def interval(row, column: str = "value", ends: str = "", sign: str = "", places: int = 3) -> str:
    """A number with its interval: "0.150 (0.110 to 0.190)", the ends ``<ends>low`` and high."""
    low, high = (round(getattr(row, f"{ends}{end}"), places) + 0.0 for end in ("low", "high"))
    return f"{getattr(row, column):{sign}.{places}f} ({low:.{places}f} to {high:.{places}f})"


def cell(value: object) -> str:
    """A value as a cell of a Markdown table: on one line, with a bar as text, "–" for none."""
    if value is None or value == "" or (isinstance(value, float) and pd.isna(value)):
        return "–"
    return re.sub(r"\s*[\n\r]\s*", " ", str(value)).replace("|", "\\|")


def finding(name: str, /, **values) -> str:
    """What a notebook found, by the name of a macro of notebooks.j2; tables as DataFrames."""
    looked_up = {
        key: Lookup(value) if isinstance(value, pd.DataFrame) else value
        for key, value in values.items()
    }
    return _reflow(getattr(_module("notebooks.j2"), name)(**looked_up))


def block(name: str) -> str:
    """A block of the pages, or of a notebook, by the name of a macro of blocks.j2."""
    return _reflow(getattr(_module("blocks.j2"), name)())


def slides() -> str:
    """The slides of docs/teach, a page of HTML."""
    made = vars(_module("slides.j2"))["slides"]()
    return f"{made.strip()}\n"


def drawn(name: str) -> str:
    """A committed figure as an address that holds it; the reader's lambda is named by its value."""
    text = (_HERE / "figures" / f"{name}.svg").read_text(encoding="utf-8")
    table = csv_of(f"figures/{name}.csv").table
    if "lambda_marked" in table:
        text = text.replace(">yours<", f">λ = {table['lambda_marked'].iloc[0]:g}<")
    return f"data:image/svg+xml;base64,{base64.b64encode(text.encode()).decode()}"


@cache
def turned(cosine: str, lam: float) -> float:
    """Degrees by which the exam questions' mimics turn the query from h+, by the median of their
    ``c_own``, or of another question's ``c_random``."""
    _, *asked = read_jsonl(_HERE / "data" / "explorer" / "questions.jsonl.gz")
    c = [question[cosine] for question in asked if question["set"] in ("medqa", "mmlu")]
    return abs(float(rotation(median(c), lam)))


def _reflow(text: str) -> str:
    """A paragraph or an item of a list on one line each, rows of tables as they are."""
    lines: list[str] = []
    for line in text.splitlines():
        continues = line.strip() and lines and lines[-1] and lines[-1][0] not in "|<"
        if continues and line.lstrip()[0] != "|" and not line.startswith(("- ", "<")):
            lines[-1] += f" {line.strip()}"
        elif line.strip() or (lines and lines[-1]):
            lines.append(line.strip())
    return "\n".join(lines).strip()


def block_names() -> list[str]:
    """The macros of blocks.j2 that are whole blocks; those that begin with "_" are parts."""
    macros = vars(_module("blocks.j2")).items()
    return [name for name, macro in macros if isinstance(macro, Macro)]


@cache
def _module(template: str) -> TemplateModule:
    environment = template_environment(TEMPLATES)
    environment.filters |= {"plain": plain, "cell": cell}
    helpers = (interval, chance, words, load_profile, declared, together, one_family, papers)
    helpers += (instruments, disk_of_a_paper_run, gpu_checks, drawn, turned)
    helpers += (beats_the_next_best, reading_order, repository, csv_of)
    environment.globals |= {helper.__name__: helper for helper in helpers}
    # Looked up when it is called: a test may have results of its own.
    environment.globals["read"] = lambda name, profile="open": read(name, profile)
    return environment.get_template(template).module


# what the blocks read besides results -------------------------------------------------------------


def declared(study: str) -> Lookup:
    """The declared tests of a study; ``excludes`` is empty where nothing could be excluded."""
    tests = read(f"claims_{study}").where(status="primary").table
    if "excludes" not in tests:
        tests = tests.assign(excludes="")
    return Lookup(tests.fillna({"verdict": "", "excludes": ""}))


def together(*tables: Lookup) -> Lookup:
    """The rows of several tables."""
    return Lookup(pd.concat(table.table for table in tables))


def one_family(tests: Lookup) -> Lookup:
    """Declared tests as if they were one family: Holm's p over all, and the verdict ``was``."""
    from lib.stats import holm, judged

    table = tests.table.assign(was=tests.table["verdict"], p_holm=holm(tests.table["p"]))
    return Lookup(table.assign(verdict=judged(table)))


def instruments(table: pd.DataFrame) -> pd.DataFrame:
    """Which models tell a contradiction from an agreement, and on which sets."""
    from lib.studies.contradiction import labelled

    return labelled.instruments(table)


def beats_the_next_best() -> pd.Series:
    """CHR's accuracy in the paper's Table 1 less the best of the others', in points, by setting."""
    printed = reported("table1_accuracy")
    wide = pivot(printed[printed["kind"] == "exact"], ["generator", "dataset"], "method")
    return wide["CHR"] - wide.drop(columns="CHR").max(axis="columns")


def csv_of(file: str) -> Lookup:
    """A committed CSV that is no result, by its path: what a paper printed, what a figure draws."""
    return Lookup(pd.read_csv(_HERE / file))


def reading_order() -> pd.DataFrame:
    """The notebooks in the order to read them: part, notebook, minutes, finds."""
    return pd.read_csv(TEMPLATES / "notebooks.csv", dtype=str)


def repository() -> str:
    """The address of this repository, which its owner puts into CITATION.cff; "" until then."""
    text = (paths.ROOT / "CITATION.cff").read_text(encoding="utf-8")
    found = re.search(r'^repository-code: *"?([^"\s]+)', text, re.MULTILINE)
    return found[1] if found else ""


def papers() -> pd.DataFrame:
    """The list behind docs/papers.md: what of each paper is here."""
    return pd.read_csv(PAPERS, dtype=str, keep_default_na=False)


def disk_of_a_paper_run() -> dict[str, int]:
    """Gigabytes that a run at the paper's scale needs, in all and by what they hold."""
    from lib import cost
    from lib.data.medrag import estimate

    sizes = [estimate(name) for name in load_profile("paper").corpora]
    stored = read("needs", "scale").get(what="bytes of a stored passage")
    parts = {
        "downloads": round(sum(size.download_gb for size in sizes)),
        "vectors": round(sum(size.float16_gb for size in sizes)),
        "texts": round(sum(size.rows for size in sizes) * stored / 1e9),
        "words": round(cost.words(sum(size.rows for size in sizes))[1]),
    }
    weights = round(sum(2 * billions for billions, *_ in cost.MODELS.values()))
    return parts | {"all": sum(parts.values()), "weights": weights}


def gpu_checks() -> pd.DataFrame:
    """What ``make gpu-check`` found, by card its last time; no rows until somebody has run it."""
    file = paths.committed("scale") / "gpu_check.csv"
    if not file.exists():
        return pd.DataFrame(columns=["card", "what", "date"])
    rows = pd.read_csv(file, dtype=str, keep_default_na=False)
    return rows.drop_duplicates(["card", "what"], keep="last")
