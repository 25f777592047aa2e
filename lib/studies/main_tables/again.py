"""``make again``: an own model is asked once more for what could not be used of what it said."""

from __future__ import annotations

import argparse
from dataclasses import replace
from itertools import product

import pandas as pd

from lib.llm.recorder import may_ask
from lib.profiles import load_profile
from lib.studies.main_tables.experiment import Experiment, open_experiment


def expand_again(experiment: Experiment) -> pd.DataFrame:
    """who, failed, left: expansions that failed, and how many still fail once asked for again.

    All requests of such a question are made anew, and their replies take the place of the recorded
    ones. Empty where the texts are only replayed.
    """
    rows = []
    for name in experiment.asking if may_ask(experiment.llm) else ():
        failed = []
        for dataset in experiment.sets:
            requests = experiment.requests(name, dataset)
            failed += [q for q in experiment.sets[dataset] if requests[q.qid] is None]
        with experiment.llm.again() as once_more:  # type: ignore[attr-defined]
            made = experiment.expand(name, failed, once_more)
        rows.append((f"expand: {name}", len(failed), sum(one.request is None for one in made)))
    return pd.DataFrame(rows, columns=["who", "failed", "left"])


def answer_again(experiment: Experiment) -> pd.DataFrame:
    """who, failed, left: answers without a letter, as ``expand_again`` has expansions."""
    rows = []
    for reader in experiment.readers:
        if not may_ask(getattr(reader, "llm", None)):
            continue
        answers = []
        with reader.llm.again() as once_more:  # type: ignore[attr-defined]
            for dataset, arm in product(experiment.sets, experiment.arms):
                table = experiment.answers_of(arm, dataset, reader)
                if table is None:
                    continue
                qids = set(table["qid"][table["letter"] == ""])
                asked = [q for q in experiment.sets[dataset] if q.qid in qids]
                contexts = experiment.contexts(arm, dataset, asked)
                answers += replace(reader, llm=once_more).answer_all(asked, contexts)
        left = sum(not answer.letter for answer in answers)
        rows.append((f"answer: {reader.name}", len(answers), left))
    return pd.DataFrame(rows, columns=["who", "failed", "left"])


def main() -> None:
    """Command line: ask, record, and say how many replies still cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m lib.studies.main_tables.again", description=__doc__
    )
    parser.add_argument("--profile")
    parser.add_argument("--limit", type=int)
    given = parser.parse_args()
    profile = load_profile(given.profile, limit=given.limit)
    # Opened anew in between: an answer is read from what the new texts find.
    parts = [step(open_experiment(profile)) for step in (expand_again, answer_again)]
    table = pd.concat([part for part in parts if len(part)] or parts)
    if not len(table):
        raise ValueError(
            f"profile {profile.name} only replays: there is nobody to ask. Next: name your own "
            "model, as docs/profiles.md says"
        )
    print(table.to_string(index=False))
    print("Next: make figures, with the same PROFILE")


if __name__ == "__main__":
    main()
