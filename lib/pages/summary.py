"""What was found, made from the results: the same words in README, docs/ and ``00``."""

from __future__ import annotations

import pandas as pd

from lib.pages.committed import OUTCOMES, between, chance, folded, markdown, read
from lib.pages.real import tests_of, why, works
from lib.studies.real.measures import JUDGED_P
from lib.study import errata, primary_tests

QUESTIONS, FRESH, REAL, BLIND = "real", "ddx_fresh", "ddx_real", "ddx_real_blind"
HIT, P, SHARE = "hit_right", "p_at_5", "supports_right_at_5"


def answer() -> str:
    """The verdict in three sentences with three numbers; in Markdown.

    Two compare contrast at the paper's lambda with H+ alone, on real questions; the third gives
    contrast its best case: H+ right by construction, and the lambda that dev chose.
    """
    exams = _primary_row(QUESTIONS, HIT, "chr@1")
    bioasq = _primary_row(QUESTIONS, P, "chr@1")
    lam = _chosen(REAL)
    diseases = _primary_row(FRESH, P, f"chr@{lam:g}")
    declared = pd.concat([_primary(QUESTIONS), _primary(FRESH)])
    return "\n".join(
        (
            f"**Does it work? {works(declared)}.**",
            "",
            f"- On **{exams['n']} real exam questions**, with H+ and H− written by a large "
            "language model, contrast at the paper's λ = 1 finds support for the right option in "
            f"{_share(exams['value'])} of them, H+ alone in {_share(exams['value_against'])}: "
            f"{_points(exams)}.",
            f"- On **{bioasq['n']} questions of BioASQ**, contrast at λ = 1 fills "
            f"{_share(bioasq['value'])} of the top five (P@5) with passages that experts chose, H+ "
            f"alone {_share(bioasq['value_against'])}: {_points(bioasq)}.",
            f"- On **{diseases['n']} diseases**, where H+ is right by construction, contrast at "
            f"the λ = {lam:g} that other diseases chose fills {_share(diseases['value'])} of the "
            "top five with passages on the disease, H+ alone "
            f"{_share(diseases['value_against'])}: {_points(diseases)}.",
        )
    )


def both_sides() -> str:
    """What the controls say together, what speaks for contrast, and what BioASQ's number measures;
    in Markdown. Nothing here was declared, so there are intervals and no verdicts."""
    arms = (
        read("real_arms", "open")[0].set_index(["dataset", "metric", "arm"])["value"].sort_index()
    )
    hit, found = (arms["exams", HIT], arms["bioasq", P])
    claims = _claims(QUESTIONS)
    several = (_row(claims, "max@0.4", "hplus", metric) for metric in ("misled", HIT, SHARE))
    wrong, right, share = several
    judged = arms["bioasq", JUDGED_P]
    quality = read("judge_quality", "open")[0].set_index(["check", "label"])["value"]
    helpful = quality["bioasq: other passages", "helpful"]
    return "\n".join(
        (
            "- **The closer the mimic to the question, the more its subtraction destroys.** At "
            f"λ = 1 support for the right option remains in {_share(hit['chr@1'])} of the exam "
            "questions with their own mimic, in "
            f"{_share(hit['chr+rotation@1'])} with another turned as close, in "
            f"{_share(hit['chr+stranger@1'])} with another question's, in "
            f"{_share(hit['hplus'])} with none. *Adding* the own mimic costs far less: "
            f"{_share(hit['chr@-1'])}; on BioASQ P@5 is then {_share(found['chr@-1'])}, with H+ "
            f"alone {_share(found['hplus'])}.",
            "- **What speaks for contrast** (exploratory). The maximum over several mimics at "
            "λ = 0.4 finds support for a wrong option in "
            f"{_share(wrong['value'])} instead of {_share(wrong['value_against'])} of the exam "
            f"questions: {_change(wrong)}. Support for the right option "
            f"changes by {_change(right)}, its share of the five passages by {_change(share)}. "
            f"On BioASQ at λ = 1, P@5 is {_share(found['chr+question1@1'])} with the question "
            f"added, {_share(found['chr+pool10@1'])} where contrast only orders H+'s ten best.",
            "- **BioASQ's number measures the topic.** Its snippets state no side, and H+ and H− "
            "share their subject: contrast can hardly gain. Nor are its labels complete: a model "
            f"called {_share(helpful)} of other passages helpful. Of its own snippets experts "
            f"chose {_share(judged['hplus'])} with H+ alone, {_share(judged['chr@1'])} at λ = 1.",
        )
    )


def tests() -> str:
    """How the declared tests came out and what would change that; every test, and what was only
    looked at, on a click; in Markdown."""
    real, fresh = _primary(QUESTIONS), _primary(FRESH)
    counted = (
        f"Of {len(real)} tests on real questions, declared before these texts were written, "
        f"{tests_of(real['verdict'])}. Of {len(fresh)} on diseases that nothing was tuned on, "
        f"{tests_of(fresh['verdict'])}."
    )
    listed = "\n\n".join((_listed(QUESTIONS), _listed(FRESH)))
    every = folded("Every declared test", listed)
    looked_at = folded("What was looked at many times before", _looked_at())
    return "\n\n".join((counted, _ruled_out(), _dev_chose(), why(), every, looked_at))


def _change(row: dict) -> str:
    """A difference of two shares in points with its interval."""
    difference, low, high = (100 * row[column] for column in ("difference", "low", "high"))
    return f"{difference:+.1f} points ({low:.1f} to {high:.1f})"


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _points(row: dict) -> str:
    """A difference of two shares with its interval and verdict."""
    return f"{_change(row)}, **{row['verdict']}**"


def _primary(study: str) -> pd.DataFrame:
    """The declared tests of a study; ``excludes`` is empty where nothing could be excluded."""
    table = _claims(study)
    if "excludes" not in table:
        table = table.assign(excludes="")
    return table[table["status"] == "primary"].fillna({"verdict": "", "excludes": ""})


def _primary_row(study: str, metric: str, arm: str) -> dict:
    """The declared test of an arm against H+ alone; LookupError where none was."""
    table = _primary(study)
    same = (table["arm"] == arm) & (table["against"] == "hplus") & (table["metric"] == metric)
    if same.sum() != 1:
        raise LookupError(f"{study}: {same.sum()} declared tests of {arm} against hplus, {metric}")
    return table[same].iloc[0].to_dict()


def _ruled_out() -> str:
    """Does contrast keep passages for wrong options out, and at what price?"""
    misled = _primary_row(QUESTIONS, "misled", "chr@1")
    counts = "This counts as exclusion."
    if misled["excludes"] != "yes":
        counts = "This does not count as exclusion: support for the right option went too."
    difference = between(misled["difference"], misled["low"], misled["high"], sign="+")
    return (
        "Does contrast at λ = 1 rule the wrong options out? It finds support for a wrong option "
        f"in {misled['value']:.3f} of the exam questions, H+ alone in "
        f"{misled['value_against']:.3f}: {difference}, **{misled['verdict']}**. {counts} "
        f"{purer()}"
    )


def purer() -> str:
    """Whether what still speaks, speaks for the right option; and what the judge cannot see."""
    purity = read("real_purity", "open")[0].set_index("arm")
    with_mimic, alone = purity.loc["chr@1"], purity.loc["hplus"]
    quality = read("judge_quality", "open")[0].set_index(["check", "label"])
    seen, missed = (
        quality.loc[(f"ddx-mini: {one}", f"supports {side}")]
        for one, side in (("target", "right"), ("mimic", "wrong"))
    )
    spoken = f"{with_mimic['wrong']:.0f} of {with_mimic['wrong'] + with_mimic['right']:.0f}"
    return (
        f"Of the passages that speak for an option, {_share(with_mimic['value'])} speak for the "
        f"right one, with H+ alone {_share(alone['value'])}; {spoken} still speak for a wrong "
        "one. *Misled* sees only what the judge calls support: on ddx-mini it found support in "
        f"{_share(seen['value'])} of {seen['n']:.0f} passages on the target, and for a wrong "
        f"option in {missed['value'] * missed['n']:.0f} of {missed['n']:.0f} on the mimic."
    )


def _dev_chose() -> str:
    """Which lambda the dev questions chose on real questions."""
    table = read("real_dev_lambda", "open")[0]
    chosen = table[table["chosen"]].set_index("group")["lambda"]
    words = [f"λ = {lam:g}{' (H+ alone)' if lam == 0 else ''}" for lam in chosen]
    names = ["exam questions" if name == "exams" else "BioASQ" for name in chosen.index]
    each = [f"{word} for {name}" for word, name in zip(words, names, strict=True)]
    return f"Left to choose λ, the dev questions took {' and '.join(each)}."


def _listed(study: str) -> str:
    """Every declared test of a study as a table, under what was declared when."""
    rows = []
    for row in _primary(study).to_dict("records"):
        arms = f"`{row['arm']}` against `{row['against']}`"
        difference = between(row["difference"], row["low"], row["high"], sign="+")
        outcome = OUTCOMES[row["metric"]]
        p = chance(row["p_holm"])
        rows.append((row["claim"], outcome, arms, difference, p, row["n"], row["verdict"]))
    head = ("statement", "outcome", "arms", "difference", "p (Holm)", "n", "verdict")
    title = {QUESTIONS: "Real questions", FRESH: "Diseases (ddx-fresh)"}[study]
    name = study.replace("_", "-")
    declared = primary_tests()[name]["declared"]
    said = f"*{title}, declared on {declared}; Holm over them.*\n\n{markdown(head, rows)}"
    return "\n\n".join((said, *(f"Erratum: {erratum}" for erratum in errata(name))))


def _claims(study: str, profile: str = "open") -> pd.DataFrame:
    return read(f"claims_{study}", profile)[0]


def _row(table: pd.DataFrame, arm: str, against: str, metric: str = P) -> dict:
    same = (table["arm"] == arm) & (table["against"] == against) & (table["metric"] == metric)
    return table[same & (table["status"] == "exploratory")].iloc[0].to_dict()


def _chosen(study: str) -> float:
    table = read(f"choices_{study}", "open")[0].set_index("form")
    return float(table.loc["one mimic", "lambda"])


def _looked_at() -> str:
    """What was looked at many times before: differences with intervals, and no verdict."""
    lam = _chosen(REAL)
    real, blind = _claims(REAL), _claims(BLIND)
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
    lines.append(_two_numbers(_row(_claims("bioasq"), "chr@1", "hplus")))
    head = (
        "*Looked at many times before, so an interval and no verdict (differences in P@5; λ chosen "
        "on dev where none is named):*"
    )
    return "\n".join((head, "", *lines))


def _two_numbers(ideal: dict) -> str:
    """BioASQ at lambda 1 with experts' answers as texts, and why a model's texts find less."""
    written = read("real_mpnet", "open")[0]
    written = written[(written["encoder"] == "minilm") & (written["metric"] == P)]
    found = written.set_index("arm")["value"]
    what = "BioASQ at λ = 1, experts' ideal answers: H+ the question's own, H− another question's"
    return (
        f"{_line(what, ideal)}. P@5 is {ideal['value']:.3f}. On the same passages, with a model's "
        f"texts, it is {found['chr@1']:.3f} when H− is about the same question, and "
        f"{found['chr+stranger@1']:.3f} when it is another question's: the nearer H− is to H+, the "
        "more is lost with it"
    )


def _line(what: str, row: dict) -> str:
    difference = between(row["difference"], row["low"], row["high"], sign="+")
    return f"- {what} (`{row['arm']}` against `{row['against']}`): {difference}, n = {row['n']}"
