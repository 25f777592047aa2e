"""What was found, in a few lines made from the results: the same words in README and ``00``."""

from __future__ import annotations

import pandas as pd

from lib.pages.committed import between, read
from lib.studies.lam.claims import primary_tests

__all__ = ["summary"]

FRESH, REAL, BLIND = "ddx_fresh", "ddx_real", "ddx_real_blind"
P = "p_at_5"


def summary() -> str:
    """The answer first, then what was tested, then what was only looked at; in Markdown."""
    return "\n\n".join((_answer(), _real_dev(), _tested(), _looked_at()))


def _claims(study: str, profile: str = "open") -> pd.DataFrame:
    return read(f"claims_{study}", profile)[0]


def _row(table: pd.DataFrame, arm: str, against: str, metric: str = P) -> dict:
    same = (table["arm"] == arm) & (table["against"] == against) & (table["metric"] == metric)
    return table[same & (table["status"] == "exploratory")].iloc[0].to_dict()


def _chosen(study: str) -> float:
    table = read(f"choices_{study}", "open")[0].set_index("form")
    return float(table.loc["one mimic", "lambda"])


def _answer() -> str:
    """One sentence on whether it works, worded by the verdicts of the primary tests."""
    primary = _claims(FRESH)
    primary = primary[primary["status"] == "primary"]
    held = (primary["verdict"] == "SUPPORTED").sum()
    against = (primary["verdict"] == "AGAINST").sum()
    open_ = len(primary) - held - against
    n = int(primary["n"].max())
    answer = "Not as tested here"
    if held:
        answer = "Yes, as tested here" if held == len(primary) else "In part"
    return (
        f"**Does it work? {answer}.** On {n} diseases that nothing was tuned on, {len(primary)} "
        f"statements about contrast were declared beforehand and tested once: {held} held, "
        f"{against} came out the other way round, {open_} could not be told from chance. This says "
        "nothing yet about hypotheses that a language model writes for exam questions, which is "
        "what the paper's claim is about."
    )


def _real_dev() -> str:
    """Where the measurement on real questions stands: what dev chose, before the test is run."""
    table = read("real_dev_lambda", "open")[0]
    exams = table[table["group"] == "exams"].set_index("lambda")
    bioasq = table[table["group"] == "bioasq"].set_index("lambda")
    chosen, share = (own[own["chosen"]].index[0] for own in (bioasq, exams))
    tests = len(primary_tests()["real"]["test"])
    return (
        f"That is under way: {tests} tests on real exam and BioASQ questions are declared, with "
        "hypotheses that a capable language model wrote. The test half is not measured yet. On the "
        f"{exams['n'].iloc[0]} exam questions of dev, where blind judging says what each passage "
        f"supports, H+ alone fills {exams.loc[0.0, 'value']:.3f} of the top five with support for "
        f"the right option, contrast at λ = 1 fills {exams.loc[1.0, 'value']:.3f}; dev chose "
        f"λ = {share:g} there and {chosen:g} on BioASQ."
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
