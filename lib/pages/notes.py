"""What each notebook found, in a sentence made from its results, and the audit as a reader has it.

Every sentence is made from the tables of the run that shows it, so it is right for any profile, any
lambda and any k. Each function returns Markdown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from html import escape

import pandas as pd

from lib.pages.committed import between
from lib.pages.rag2 import found as rag2_found  # noqa: F401 - notebook 10
from lib.pages.readable import words
from lib.pages.selflearn import found as slhyde_found  # noqa: F401 - notebook 11
from lib.plots.labels import label_of
from lib.report import pooled
from lib.studies.paper_audit.printed import VERDICTS

PAPER, GIVEN = "chr", "chr_given"
"""CHR at the paper's lambda, 1, and at the reader's own: the keys of the grid."""


def _not_run(needed: Iterable[str], there: Iterable[str]) -> str:
    """A sentence that names what a finding needs and a run does not have; "" if it has all."""
    missing = [label_of(method) for method in needed if method not in set(there)]
    return f"**NOT RUN here: {'; '.join(missing)}**, so there is no finding." if missing else ""


def question_found(table: pd.DataFrame, profile: str, passages: int, k: int) -> str:
    """What the question alone brings; ``table`` as ``lib.stats.compare`` makes it."""
    said = [
        f"{between(row.p_at_5, row.p_at_5_low, row.p_at_5_high)} with "
        f"{'the dense encoder' if row.method == 'dense' else row.method}"
        for row in table.itertuples()
    ]
    first = table.iloc[0]
    return (
        f"**The question alone, searched among {passages:,} passages, has a P@{k} of "
        f"{' and '.join(said)}.** That is the share of the first {k} passages that are on the "
        f"target; a perfect ranking would have {first['ceiling']:.3f}. Profile `{profile}`, "
        f"{first['n']:,} test questions, 95 % intervals."
    )


def likeness_found(pairs: pd.DataFrame, name: str, lam: float) -> str:
    """How alike H+ and H- are; ``pairs`` as ``lib.studies.lam.views.pair_table`` makes it."""
    middle = pairs.median(numeric_only=True)
    return (
        f"**H+ and H− say much of the same: half of the pairs have a cosine of "
        f"{middle['c']:.2f} or more.** Subtracting one from the other turns the query away from "
        f"H+: by {middle[f'turn at {lam:g}']:.0f}° at your λ = {lam:g}, by "
        f"{middle['turn at 1']:.0f}° at the paper's λ = 1 (medians of {len(pairs):,} questions, "
        f"{name})."
    )


def retrieval_found(quality: pd.DataFrame, profile: str, lam: float, k: int) -> str:
    """What each way to search brought; ``quality`` as ``Experiment.quality`` makes it."""
    every = pooled(quality, ["p_at_5"])
    means = every["p_at_5"]
    if missing := _not_run(("standard", "hplus", PAPER, GIVEN), means.index):
        return missing
    n = int(every["n"].max())
    others = means[[method for method in means.index if not method.startswith(PAPER)]]
    best = others.idxmax()
    which = "less" if means[PAPER] < means["hplus"] else "more"
    also = "No other method has more than H+ alone."
    if best != "hplus":
        also = f"The best without contrast is {label_of(best)}, with {means[best]:.3f}."
    return (
        f"**Contrast at the paper's λ = 1 brings {which} on the target than H+ alone: P@{k} "
        f"{means[PAPER]:.3f} against {means['hplus']:.3f}.** At your λ = {lam:g} it is "
        f"{means[GIVEN]:.3f}; the question alone has {means['standard']:.3f}. {also} Profile "
        f"`{profile}`, {n:,} questions whose passages are judged."
    )


def accuracy_found(table: pd.DataFrame, profile: str, lam: float) -> str:
    """How often a reader without an LLM is right; ``table`` is Table 1 in long form."""
    rows = table[table["metric"] == "accuracy"]
    readers = [name for name in rows["answerer"].unique() if name != "no reader"]
    reader = readers[0] if readers else ""
    read = rows[(rows["answerer"] == reader) & (rows["method"] == PAPER)]
    # What nobody read is compared on the same sets.
    rows = rows[rows["answerer"].isin([reader, "no reader"])]
    rows = rows[rows["dataset"].isin(read["dataset"])]
    shares = pooled(rows, ["value"])["value"]
    if missing := _not_run(("standard", "hplus", PAPER, GIVEN, "majority"), shares.index):
        return missing
    guessed = table[(table["metric"] == "accuracy_or_guess") & (table["answerer"] == reader)]
    guesses = (guessed["value"] * guessed["n"]).groupby(guessed["method"]).sum()
    guesses /= guessed["n"].groupby(guessed["method"]).sum()
    return (
        f"**The {reader} is right in {shares[PAPER]:.3f} of the questions with CHR's passages at "
        f"λ = 1, in {shares['hplus']:.3f} with those of H+ alone, in {shares['standard']:.3f} with "
        f"those of the question.** No answer of a language model is in that: this reader restates "
        f"what it is made of. May it guess where it abstains, it is right in {guesses[PAPER]:.3f}, "
        f"{guesses['hplus']:.3f} and {guesses['standard']:.3f}. At your λ = {lam:g}: "
        f"{shares[GIVEN]:.3f}. Without reading "
        f"anything, always the commonest letter is right in {shares['majority']:.3f}. Profile "
        f"`{profile}`, {read['n'].sum():,} questions of {len(read)} sets. These questions were "
        "looked at many times, so no difference has a verdict."
    )


def shift_found(table: pd.DataFrame, profile: str, k: int) -> str:
    """How far CHR's passages differ from others'; ``table`` is Table 2 as ``tables.table2`` has
    it, with a row a set, method, reader and outcome."""
    own = table[table["reader"] == ""]
    means = pooled(own, ["count", "zero"])
    if missing := _not_run(("hyde", "hplus"), means.index):
        return missing
    n = int(means.loc["hyde", "n"])
    said = (
        f"**Of {k} passages CHR at λ = 1 shares {means.loc['hyde', 'count']:.1f} with HyDE, and "
        f"{means.loc['hplus', 'count']:.1f} with H+ alone, the text it is made from.** It shares "
        f"nothing at all with HyDE on {means.loc['hyde', 'zero']:.0%} of the questions"
    ).replace("%", " %")
    if "noise floor" in means.index:
        said += f"; HyDE shares {means.loc['noise floor', 'count']:.1f} with itself, sampled anew"
    return f"{said}. Profile `{profile}`, {n:,} questions."


def cost_found(table: pd.DataFrame, who: str) -> str:
    """Calls and tokens of CHR beside HyDE's; ``table`` is Table 3, a row a method."""
    rows = table.set_index("method")
    if missing := _not_run((PAPER, "hyde"), rows.index):
        return missing

    def said(method: str) -> str:
        row = rows.loc[method]
        tokens = row["output_tokens"]
        known = pd.notna(tokens) and tokens > 0  # recorded texts without a tokenizer have none
        counted = f"{tokens:,.0f} output tokens" if known else "tokens NOT RUN"
        return f"{_calls(row['calls'])} and {counted}"

    return (
        f"**A question costs CHR {said(PAPER)}, HyDE {said('hyde')}.** Written by {who}, "
        f"n = {rows.loc[PAPER, 'n']:,.0f}."
    )


def _calls(calls: float) -> str:
    return f"{calls:g} call{'' if calls == 1 else 's'}"


def tiers_found(table: pd.DataFrame, tests: pd.DataFrame) -> str:
    """Whether answers are better where the mimic is; Table 4 and its tests (``tier_claims``).

    The paper's own counts come first, then the first grader of this run.
    """
    tests = tests[(tests["test"] == "any difference") & (tests["method"] == PAPER)]
    told = []
    for row in tests.itertuples():
        same = (table["grader"] == row.grader) & (table["measure"] == row.measure)
        own = table[same & (table["method"] == PAPER)]
        counts = [f"{tier.hits:.0f} of {tier.n} {tier.tier}" for tier in own.itertuples() if tier.n]
        told.append((row.grader, row.p, ", ".join(counts)))
    (_, paper_p, paper), *ours = told
    clear = "differ" if paper_p < 0.05 else "could be chance"
    text = (
        f"**The paper's own grades: CHR is right in {paper}. The differences {clear}: "
        f"p = {paper_p:.2f}.**"
    )
    if ours and ours[0][2]:
        grader, _, counts = ours[0]
        text += f" Here, by the grader called *{grader}*: {counts}."
    return text


def collapse_found(table: pd.DataFrame) -> str:
    """How many wrong and right answers collapse holds for, at the paper's lambda; a line for the
    criterion and one for the lower bar. ``table`` as ``lib.studies.mimics.tables.collapse``."""
    own = table[table["method"] == PAPER].set_index("criterion")
    said = []
    for criterion in ("shared > 1/2, kept < 1/2", "shared > 1/4, kept < 1/2"):
        row = own.loc[criterion]
        wrong, right = (
            between(*(row[f"{side}_{part}"] for part in ("value", "low", "high")))
            for side in ("wrong", "right")
        )
        said.append(
            f"*{criterion}* holds for {wrong} of the {row['wrong_n']:,} wrong answers and for "
            f"{right} of the {row['right_n']:,} right ones."
        )
    return "\n".join(f"- At λ = 1 {line}" for line in said)


def lambda_found(curves: pd.DataFrame, name: str, lam: float, k: int) -> str:
    """P@k over lambda, beside the control that turns as far; ``curves`` of one benchmark."""
    everyone = curves[curves["subset"] == "all"]
    own = everyone[everyone["family"] == "chr"].set_index("lambda")["p_at_5"]
    turned = everyone[everyone["family"] == "chr+rotation"].set_index("lambda")["p_at_5"]
    best, n = own.idxmax(), int(everyone["n"].max())
    nearest = (own.index.to_series() - lam).abs().idxmin()
    which = "less" if own[1.0] < turned[1.0] else "more"
    return (
        f"**At the paper's λ = 1 contrast has a P@{k} of {own[1.0]:.3f}, H+ alone of "
        f"{own[0.0]:.3f}.** The same turn towards another question's mimic, the *matched "
        f"rotation*, has {turned[1.0]:.3f}: the right mimic brings {which} than a wrong one. The "
        f"best λ on these very questions is {best:g}, with {own[best]:.3f}; at λ = {nearest:g} it "
        f"is {own[nearest]:.3f}. {name}, {n:,} test questions."
    )


def contradiction_found(judged: pd.DataFrame, arms: pd.DataFrame) -> str:
    """How much contradiction was judged, which texts are too few to ask, what contrast does.

    Only pairs on one question can contradict each other. ``judged`` and ``arms`` as
    ``lib.studies.judged`` makes them.
    """
    same = arms[arms["measure"] == "same"].set_index("arm")["value"]
    return (
        f"**{said_of_one_question(judged)}** {said_of_abstracts(judged)} Contrast changes what "
        f"passages have in common: of the pairs in one top five {same['hplus']:.3f} are on the "
        f"same question with H+ alone, {same['chr@1']:.3f} at λ = 1. (Judged on profile `open`.)"
    )


def said_of_one_question(judged: pd.DataFrame) -> str:
    """How many pairs of real passages disagree, of those on one question."""
    row = judged.set_index(["group", "measure"]).loc[("real", "disagree_of_same")]
    return (
        f"Of {row['n']:,.0f} pairs of passages on one question, which a search brought into one "
        f"top five for a real exam question, {row['count']:,.0f} disagree: "
        f"{between(row['value'], row['low'], row['high'])}."
    )


def said_of_abstracts(judged: pd.DataFrame) -> str:
    """How few of the real abstracts are on one question at all, so that nothing can be said."""
    counts = judged.set_index(["group", "measure"])
    query, near = (counts.loc[(group, "same")] for group in ("query", "near"))
    return (
        f"The collection of abstracts is too small to ask: of {query['n']:,.0f} pairs among the "
        f"nearest to one title {query['count']:,.0f} is on one question, of {near['n']:,.0f} "
        f"nearest neighbours {near['count']:,.0f}."
    )


def real_found(claims: pd.DataFrame, chosen: Mapping[str, float]) -> str:
    """What contrast did on real exam questions; ``claims`` are the declared tests and others,
    ``chosen`` the lambda that dev chose for each group of questions."""
    declared = claims[claims["status"] == "primary"]
    same = (declared["arm"] == "chr@1") & (declared["against"] == "hplus")
    hit = declared[same & (declared["metric"] == "hit_right")].iloc[0]
    wrong = declared[same & (declared["metric"] == "misled")].iloc[0]
    nothing = ", no contrast at all," if chosen["exams"] == 0 else ""
    return (
        f"**With contrast at λ = 1 some passage of the first five supports the right option in "
        f"{hit['value']:.3f} of {hit['n']} real exam questions, with H+ alone in "
        f"{hit['value_against']:.3f}.** Some passage supports a wrong option in "
        f"{wrong['value']:.3f}, against {wrong['value_against']:.3f}. On dev, the questions kept "
        f"apart to choose λ, λ = {chosen['exams']:g}{nothing} was best."
    )


def audit_found(audit: pd.DataFrame, margins: pd.DataFrame) -> str:
    """How many printed numbers cannot be right, and what is not tested; ``audit`` as
    ``lib.studies.paper_audit.audit`` makes it, ``margins`` CHR's over the next best method."""
    impossible = (audit["verdict"] == "IMPOSSIBLE").sum()
    slips = (audit["verdict"] == "MISPRINT").sum()
    few = margins[margins["most_significant"] < margins["independent"] / 2]
    sets = few.groupby("dataset")["generator"].count()
    most = sets.idxmax()
    points = few[few["dataset"] == most]["extra_right"]
    n = int(few[few["dataset"] == most]["n"].iloc[0])
    return (
        f"**Of {len(audit)} statements of four papers that follow from other printed numbers "
        f"{impossible} cannot be right as printed, and {slips} are misprints.** No paper prints a "
        f"test of its lead: on {most} CHR leads the next best method by {points.min()} or "
        f"{points.max()} of {n:,} questions, which may be chance."
    )


def audit_rows(audit: pd.DataFrame, ids: str | list[str] = "") -> pd.DataFrame:
    """Rows of the audit without their ids: what cannot be comes first.

    ``ids`` is how the ids begin, or a list of ids; all rows without it. Columns: paper, where,
    claim, printed, recomputed, verdict.
    """
    rows = audit
    if isinstance(ids, list):
        rows = audit.set_index("id").loc[ids].reset_index()
    elif ids:
        rows = audit[audit["id"].str.startswith(ids)]
    order = rows["verdict"].map(VERDICTS.index).sort_values(kind="stable").index
    shown = rows.loc[order, ["paper", "where", "claim", "printed", "recomputed", "verdict"]]
    told = {column: shown[column].map(_in_words) for column in ("claim", "recomputed")}
    return shown.assign(**told)


def _in_words(text: str) -> str:
    """A sentence of the audit with the paper's names for measures."""
    keys = r"\b(rouge[12L]|jsd|kld|[a-z]+(?:_[a-z]+)+)\b"
    text = re.sub(r"^so in (\d+ of \d+)$", r"holds for \1", text)
    return re.sub(keys, lambda key: words(key[0]), text)


def audit_list(audit: pd.DataFrame, colours: Mapping[str, str]) -> str:
    """The whole audit as HTML: by verdict, what cannot be first; a claim opens to its working.

    ``colours`` is a colour for each verdict.
    """
    heads = "".join(f"<th>{head}</th>" for head in ("paper", "claim", "printed", "recomputed"))
    lines = ["<table>"]
    for verdict in VERDICTS:
        rows = audit[audit["verdict"] == verdict]
        bar = f"border-left:8px solid {colours[verdict]};padding-left:4px"
        title = f'<b style="{bar}">{verdict}</b>, {len(rows)} rows'
        lines.append(f'<tr><th colspan="4" style="text-align:left">{title}</th></tr>')
        lines.append(f"<tr>{heads}</tr>")
        lines += [_audit_row(row) for row in rows.to_dict("records")]
    lines.append("</table>")
    return "\n".join(lines)


def _audit_row(row: Mapping[str, str]) -> str:
    text = {column: escape(_in_words(value)) for column, value in row.items()}
    working = f"<b>Assumption:</b> {text['assumption']}<br><b>Working:</b> {text['working']}"
    claim = f"<details><summary>{text['claim']}</summary>{working}</details>"
    where = f"{text['paper']}, {text['where']}"
    cells = (where, claim, text["printed"], text["recomputed"])
    return "<tr>" + "".join(f'<td style="text-align:left">{cell}</td>' for cell in cells) + "</tr>"


def moved_rows(moved: pd.DataFrame, *audits: pd.DataFrame) -> pd.DataFrame:
    """What moved between audits (``paper_audit.what_moved``), by claim and not by id."""
    known = pd.concat(audits).drop_duplicates("id").set_index("id")["claim"]
    claims = [_in_words(known[name]) for name in moved.index]
    shown = moved.reset_index(drop=True)
    shown.insert(0, "claim", claims)
    return shown
