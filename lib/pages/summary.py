"""What was found, in a few lines made from the results: the same words in README and ``00``."""

from __future__ import annotations

import pandas as pd

from lib.pages.committed import between, folded, read
from lib.pages.real import tests_of, verdict
from lib.studies.lam.claims import primary_tests

__all__ = ["summary"]

FRESH, REAL, BLIND = "ddx_fresh", "ddx_real", "ddx_real_blind"
P = "p_at_5"


def summary() -> str:
    """The answer first; what was tested, and what was only looked at, on a click; in Markdown."""
    tested = folded("The tests on diseases, one by one", _tested())
    looked_at = folded("What was looked at many times before", _looked_at())
    return "\n\n".join((verdict(), _diseases(), tested, looked_at))


def _claims(study: str, profile: str = "open") -> pd.DataFrame:
    return read(f"claims_{study}", profile)[0]


def _row(table: pd.DataFrame, arm: str, against: str, metric: str = P) -> dict:
    same = (table["arm"] == arm) & (table["against"] == against) & (table["metric"] == metric)
    return table[same & (table["status"] == "exploratory")].iloc[0].to_dict()


def _chosen(study: str) -> float:
    table = read(f"choices_{study}", "open")[0].set_index("form")
    return float(table.loc["one mimic", "lambda"])


def _diseases() -> str:
    """The second act in a sentence: hypotheses that nobody had to guess."""
    primary = _claims(FRESH)
    primary = primary[primary["status"] == "primary"]
    return (
        f"**And where H+ is right by construction?** On {int(primary['n'].max())} diseases that "
        f"nothing was tuned on, {len(primary)} statements about contrast were declared beforehand "
        f"and tested once: {tests_of(primary['verdict'])}."
    )


def _tested() -> str:
    """Every primary test, one line each."""
    primary = _claims(FRESH)
    lines = []
    for row in primary[primary["status"] == "primary"].to_dict("records"):
        difference = between(row["difference"], row["low"], row["high"], sign="+")
        lines.append(
            f"- {row['claim']} (`{row['arm']}` against `{row['against']}`): P@5 "
            f"{row['value']:.3f} against {row['value_against']:.3f}, {difference}: "
            f"**{row['verdict']}**"
        )
    declared = primary_tests()["ddx-fresh"]["declared"]
    head = (
        f"*ddx-fresh, tests declared on {declared}; Holm over them. P@5 is the share of the five "
        "best passages that are on the disease. H+ is an institute's own description of the right "
        "disease: nobody had to guess it.*"
    )
    return "\n".join((head, "", *lines))


def _looked_at() -> str:
    """What was looked at many times before: differences with intervals, and no verdict."""
    lam = _chosen(REAL)
    real, blind = _claims(REAL), _claims(BLIND)
    bioasq = _claims("bioasq")
    lines = [
        _line("ddx-real, contrast over H+ alone", _row(real, f"chr@{lam:g}", "hplus")),
        _line("the same at the paper's λ = 1", _row(real, "chr@1", "hplus")),
        _line("ddx-real, the question added to H+ alone", _row(real, "hplus+question1", "hplus")),
    ]
    named_alone, struck_alone = (_row(t, "hplus", "question")["value"] for t in (real, blind))
    lines.append(
        f"- ddx-real with every disease's name struck from every text: H+ alone finds "
        f"{struck_alone:.3f} where it found {named_alone:.3f}, and dev chooses "
        f"λ = {_chosen(BLIND):g}"
    )
    lines.append(_line("the same, contrast at λ = 0.4", _row(blind, "chr@0.4", "hplus")))
    lines.append(
        _line("BioASQ at λ = 1, experts' ideal answers as H+", _row(bioasq, "chr@1", "hplus"))
    )
    head = (
        "*Looked at many times before, so an interval and no verdict (differences in P@5; λ chosen "
        "on dev where none is named):*"
    )
    return "\n".join((head, "", *lines))


def _line(what: str, row: dict) -> str:
    difference = between(row["difference"], row["low"], row["high"], sign="+")
    return f"- {what} (`{row['arm']}` against `{row['against']}`): {difference}, n = {row['n']}"
