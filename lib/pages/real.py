"""What was found on real questions, in three sentences made from the results."""

from __future__ import annotations

import pandas as pd

from lib.pages.committed import between, read
from lib.studies.real.measures import POOL

__all__ = ["tests_of", "verdict"]


def tests_of(verdicts: pd.Series) -> str:
    """How many tests came out how, in words."""
    held, against = ((verdicts == word).sum() for word in ("SUPPORTED", "AGAINST"))
    rest = len(verdicts) - held - against
    return (
        f"{held} held, {against} came out the other way round, {rest} could not be told from chance"
    )


def verdict() -> str:
    """The answer and its three numbers, how many tests stand behind it, and what would change it;
    in Markdown."""
    tested = read("claims_real", "open")[0]
    primary = tested[tested["status"] == "primary"].fillna({"verdict": "", "excludes": ""})
    hit, misled, precise = (
        _of(primary, metric, "chr@1", "hplus") for metric in ("hit_right", "misled", "p_at_5")
    )
    answer = "In part"
    if (primary["verdict"] == "SUPPORTED").sum() == 0:
        answer = "Not as tested here"
    elif (primary["verdict"] == "SUPPORTED").all():
        answer = "Yes, as tested here"
    excluded = "which counts as exclusion"
    if misled["excludes"] != "yes":
        excluded = "which does not count as exclusion, for support for the right option went too"
    arms = read("real_arms", "open")[0]
    pool = _of_arm(arms, POOL, "hit_right")
    return "\n\n".join(
        (
            f"**Does it work? {answer}.** A large language model wrote H+ and H− for {hit['n']} "
            "real exam questions, and blind judging said what each passage supports. Contrast at "
            "the paper's λ = 1 put a passage for the right option into the top five of "
            f"{hit['value']:.3f} of them, H+ alone of {hit['value_against']:.3f}: "
            f"{_difference(hit)}. A passage for a wrong option came to {misled['value']:.3f} "
            f"against {misled['value_against']:.3f}: {_difference(misled)}, {excluded}. On "
            f"{precise['n']} questions of BioASQ, where experts named the passages, P@5 is "
            f"{precise['value']:.3f} against {precise['value_against']:.3f}: "
            f"{_difference(precise)}.",
            f"Of {len(primary)} tests declared before any text was written, "
            f"{tests_of(primary['verdict'])} (`13_real_questions`). What would "
            "change this: passages that say more (anything that any search found supports the "
            f"right option of only {pool:.3f} of the questions), a stronger encoder, a writer or a "
            "judge of another kind.",
        )
    )


def _of(table: pd.DataFrame, metric: str, arm: str, against: str) -> dict:
    same = (table["metric"] == metric) & (table["arm"] == arm) & (table["against"] == against)
    return table[same].iloc[0].to_dict()


def _of_arm(table: pd.DataFrame, arm: str, metric: str) -> float:
    same = (table["dataset"] == "exams") & (table["arm"] == arm) & (table["metric"] == metric)
    return float(table.loc[same, "value"].iloc[0])


def _difference(row: dict) -> str:
    said = between(row["difference"], row["low"], row["high"], sign="+")
    return f"{said}, **{row['verdict']}**" if row["verdict"] else said
