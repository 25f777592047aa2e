"""What was found on real questions: every arm, the judge, and the verdict in words."""

from __future__ import annotations

import pandas as pd

from lib.pages.committed import between, folded, markdown, read
from lib.plots.labels import label_of
from lib.studies.real.cases import SHOWN
from lib.studies.real.measures import JUDGED_P, ON_TOPIC, OWN_ANSWER, POOL

_SAW = ("hplus", "chr", "max", "mean", "hyde-options", "rationale", OWN_ANSWER, POOL)
"""What begins so was written by somebody who saw the options, unless it ends in -stem; the pool
holds what such searches found."""
_ARMS = (
    "random",
    "question",
    "bm25",
    "rrf",
    "hyde",
    "query2doc",
    "csqe",
    "thinkqe",
    "fusion",
    "hplus-stem",
    "chr-stem@0.4",
    "chr-stem@1",
    "hyde-options",
    "rationale",
    "hplus",
    "hplus+question1",
    "chr@0.2",
    "chr@0.4",
    "chr+rotation@0.4",
    "chr@1",
    "chr+rotation@1",
    "chr+stranger@1",
    "chr@-1",
    "chr+question1@1",
    "chr+pool10@1",
    "max@0.4",
    "hplus+hplus-stem",
    OWN_ANSWER,
    POOL,
)
_SIDES = ("right", "wrong")
_FEW = ("question", "hyde", "hyde-options", "hplus", "chr@0.4", "chr@1", "chr+rotation@1")
"""What stands on the first screen; the rest is folded."""
_COLUMNS = {
    ("exams", "hit_right"): "some passage for the right option",
    ("exams", "misled"): "some passage for a wrong option",
    ("exams", "supports_right_at_5"): "share for the right option",
    ("exams", "on_topic_at_5"): "share on the topic",
    ("exams", "reads_right"): "judged reader right",
    ("bioasq", "p_at_5"): "BioASQ: P@5",
    ("bioasq", JUDGED_P): "the same, snippets alone",
}


def real() -> str:
    """What every arm brought on real questions, and whether the judge is an instrument; in
    Markdown."""
    table = read("real_arms", "open")[0]
    arms = table.set_index(["dataset", "metric", "arm"])
    few = _table(arms, _FEW)
    every = folded("Every arm", _table(arms, _ARMS))
    return "\n\n".join((few, _asked(table), _labels(), every, judged(), written()))


def _asked(arms: pd.DataFrame) -> str:
    """How many questions stand behind the table, and which arms were written for fewer."""
    exams = arms.loc[arms["dataset"] == "exams", "n"].max()
    bioasq = arms[(arms["dataset"] == "bioasq") & (arms["metric"] == "p_at_5")]
    fewer = bioasq[(bioasq["n"] < bioasq["n"].max()) & bioasq["arm"].isin(_ARMS)]
    for_some = [f"{n} for {_families(own['arm'])}" for n, own in fewer.groupby("n")]
    aside = f" ({'; '.join(for_some)})" if for_some else ""
    return (
        f"Profile `open`. Means over {exams} exam questions, and over {bioasq['n'].max()} of "
        f"BioASQ{aside}, with 95 % bootstrap intervals."
    )


def _families(arms: pd.Series) -> str:
    """What arms are called at any lambda, each once, in the order of the table."""
    own = set(arms)
    return ", ".join(dict.fromkeys(label_of(a.partition("@")[0]) for a in _ARMS if a in own))


def _table(arms: pd.DataFrame, shown: tuple[str, ...]) -> str:
    rows = []
    for arm in shown:
        cells = [_cell(arms, (*column, arm)) for column in _COLUMNS]
        rows.append((label_of(arm), f"`{arm}`", "yes" if _saw(arm) else "no", *cells))
    return markdown(("searched with", "arm", "options seen", *_COLUMNS.values()), rows)


def _saw(arm: str) -> bool:
    return arm.startswith(_SAW) and "-stem" not in arm.partition("+")[0].partition("@")[0]


def _cell(arms: pd.DataFrame, key: tuple) -> str | None:
    if key not in arms.index:
        return None
    row = arms.loc[key]
    return f"{row['value']:.3f} ({row['low']:.2f}–{row['high']:.2f})"


def _labels() -> str:
    """What the two kinds of label cannot say."""
    return (
        "BioASQ's passages show the topic and not which side they take; experts did not judge the "
        "passages that they did not give. *Snippets alone* leaves out what no expert could have "
        "chosen, the passages of other corpora."
    )


def written() -> str:
    """What is recorded of writer and judge, and what is not."""
    return (
        "Writer and judge are a large language model in separate roles. Recorded are its kind, the "
        "prompts, and every text and label; when they were added, the project's history says. "
        "Several questions stood in a conversation, up to 25 with the writer. Not recorded are the "
        "model's version, how it decoded, and which questions shared a conversation: nobody can "
        "ask the same model again."
    )


def judged() -> str:
    """One paragraph on the judge's quality on the test half, in Markdown."""
    quality = read("judge_quality", "open")[0]
    own = quality[quality["split"] == "test"].set_index(["check", "label"])

    def said(check: str, label: str) -> str:
        row = own.loc[(check, label)]
        return f"{row['value']:.2f} ({row['low']:.2f} to {row['high']:.2f})"

    passes, alone = "kappa of first and second pass", "kappa of first and single pass"
    right, wrong = (own.loc[("confirmed by the second pass", f"supports {x}")] for x in _SIDES)
    few = own.loc[("confirmed by the single pass", "supports wrong")]
    planted = own.loc[("planted: all planted items", "error")]
    counter = own.loc[("planted: counterfactual", "error")]
    return (
        "**Is the judge an instrument?** Kappa of *supports* between two independent passes: "
        f"{said(passes, 'supports right')} for the right option, {said(passes, 'supports wrong')} "
        f"for wrong ones. The second pass confirms {100 * right['value']:.1f} % of the first's "
        f"{right['n']:.0f} labels for the right option, and {100 * wrong['value']:.1f} % of its "
        f"{wrong['n']:.0f} for a wrong one; what one pass alone says counts as silent. A passage "
        f"among others against the passage alone: kappa {said(alone, 'supports')}, "
        f"{said(alone, 'supports right')} for the right option and, with "
        f"{few['n']:.0f} labels, {said(alone, 'supports wrong')} for wrong ones. Of "
        f"*contradicts* {said(passes, 'contradicts')}, of on topic {said(passes, 'on_topic')}; "
        f"errors on {planted['n']:.0f} planted items "
        f"{100 * planted['value']:.1f} %, on the {counter['n']:.0f} counterfactual ones among them "
        f"{100 * counter['value']:.1f} %."
    )


def stories(cases: pd.DataFrame, texts: pd.DataFrame) -> str:
    """What was written and what it found, case by case; in Markdown.

    ``cases`` and ``texts`` as ``lib.studies.real.cases`` makes them.
    """
    told = []
    for case in texts.itertuples():
        same = (cases["kind"] == case.kind) & (cases["qid"] == case.qid)
        rows = []
        for arm in SHOWN:
            own = cases[same & (cases["arm"] == arm)]
            says = own["says"].fillna("")
            counts = [says.isin([word, "both"]).sum() for word in ("right", "wrong")]
            rows.append((label_of(arm), *counts, (own["on_topic"] >= ON_TOPIC).sum()))
        head = ("of five passages", "for the right option", "for a wrong one", "on the topic")
        told.append(
            f"**{case.kind[0].upper()}{case.kind[1:]}** (`{case.qid}`)\n\n*H+* {case.h_plus}\n\n"
            f"*H−* {case.h_minus}\n\n{markdown(head, rows)}"
        )
    return "\n\n".join(told)


def tests_of(verdicts: pd.Series) -> str:
    """How many tests came out how, in words."""
    held, against = ((verdicts == word).sum() for word in ("SUPPORTED", "AGAINST"))
    rest = len(verdicts) - held - against
    return (
        f"{held} held, {against} came out the other way round, {rest} could not be told from chance"
    )


def works(primary: pd.DataFrame) -> str:
    """Does contrast work? In words, by the verdicts of the primary tests (a row a test).

    Fewer passages for wrong options are what is claimed only if those for the right one stay.
    """
    counts = (primary["verdict"] == "SUPPORTED") & (
        (primary["metric"] != "misled") | (primary["excludes"] == "yes")
    )
    if counts.all():
        return "Yes, as tested here"
    return "In part" if counts.any() else "Not as tested here"


def why() -> str:
    """What the result is not for want of, and what would change it; in Markdown."""
    arms = read("real_arms", "open")[0]
    pool = _of_arm(arms, POOL, "hit_right")
    said = _of_arm(arms, OWN_ANSWER, "reads_right")
    return (
        f"It is not for want of a good writer: H+ speaks for the right option in {said:.3f} of the "
        "questions. What would change this: passages that say more (anything that any search "
        f"found supports the right option of only {pool:.3f} of the questions), a stronger "
        "encoder, a writer or a judge of another kind."
    )


def verdict() -> str:
    """The answer and its three numbers, how many tests stand behind it, and what would change it;
    in Markdown."""
    primary = _primary()
    hit, misled, precise = (
        _of(primary, metric, "chr@1", "hplus") for metric in ("hit_right", "misled", "p_at_5")
    )
    excluded = "which counts as exclusion"
    if misled["excludes"] != "yes":
        excluded = "which does not count as exclusion, for support for the right option went too"
    return "\n\n".join(
        (
            f"**Does it work? {works(primary)}.** A large language model wrote H+ and H− for "
            f"{hit['n']} real exam questions, and blind judging said what each passage supports. "
            "Contrast at the paper's λ = 1 put a passage for the right option into the top five of "
            f"{hit['value']:.3f} of them, H+ alone of {hit['value_against']:.3f}: "
            f"{_difference(hit)}. A passage for a wrong option came to {misled['value']:.3f} "
            f"against {misled['value_against']:.3f}: {_difference(misled)}, {excluded}. On "
            f"{precise['n']} questions of BioASQ, where experts named the passages, P@5 is "
            f"{precise['value']:.3f} against {precise['value_against']:.3f}: "
            f"{_difference(precise)}.",
            f"Of {len(primary)} tests declared before these texts were written, "
            f"{tests_of(primary['verdict'])} (`13_real_questions`). {why()}",
        )
    )


def _primary() -> pd.DataFrame:
    """The declared tests on real questions, a row a test."""
    tested = read("claims_real", "open")[0]
    return tested[tested["status"] == "primary"].fillna({"verdict": "", "excludes": ""})


def _of(table: pd.DataFrame, metric: str, arm: str, against: str) -> dict:
    same = (table["metric"] == metric) & (table["arm"] == arm) & (table["against"] == against)
    return table[same].iloc[0].to_dict()


def _of_arm(table: pd.DataFrame, arm: str, metric: str) -> float:
    same = (table["dataset"] == "exams") & (table["arm"] == arm) & (table["metric"] == metric)
    return float(table.loc[same, "value"].iloc[0])


def _difference(row: dict) -> str:
    said = between(row["difference"], row["low"], row["high"], sign="+")
    return f"{said}, **{row['verdict']}**" if row["verdict"] else said
