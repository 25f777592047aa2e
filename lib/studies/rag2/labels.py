"""Which passages are helpful: perplexity labels (RAG2, Equations 3 and 4), and what is trained on.

For a question and one passage, the log-likelihood of the rationale is taken twice: in a prompt with
the passage before the question, and in the same prompt without it. A passage is labelled helpful
where the difference is among the greatest of the training questions. ``tools.label_passages`` made
the labels with the bundled model; ``tools.train_filters`` trains each filter by its recipe.

Where the paper is silent or contradicts itself: the perplexity is of the rationale alone (the
equation writes the question's); a rationale is scored up to 96 tokens; both differences are kept,
because that of perplexities is dominated by rationales that are unlikely under any prompt; and
thresholds are of one set and one kind of rationale, as the paper trains a filter for each set.
"""

from __future__ import annotations

import lzma
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from lib.base.files import sha256_bytes
from lib.base.paths import DATA, shown
from lib.data.store import PassageStore
from lib.datasets import Question, load_bioasq_dev, load_questions
from lib.embed import Encoder, load_encoder
from lib.index_build import corpus_store
from lib.profiles import load_profile

FOLDER = DATA / "perplexity"
LABELS, CARD = "labels.csv.xz", "card.toml"
_COMMAND = "python -m tools.label_passages"

COLUMNS = (
    "dataset",
    "part",
    "qid",
    "pid",
    "rank",
    "rationale",
    "tokens",
    "log_p_without",
    "log_p_with",
    "p_right_without",
    "p_right_with",
    "right_without",
    "right_with",
)
"""A row for each question, passage and kind of rationale.

``part`` is "train" or "held", ``rank`` that of the passage, from 1, ``rationale`` "expert" or
"own". ``log_p_without`` and ``log_p_with`` (the passage) are natural log-likelihoods of all
``tokens`` of the rationale. The last four are empty where a question has no options: how probable
the right letter is among all letters, and 1 where it is the likeliest, else 0.
"""

FRACTIONS = (0.25, 0.05)
"""Which share is helpful: in RAG2's text, and in the one sample of its labels that is public."""


def read_labels(folder: Path = FOLDER) -> pd.DataFrame:
    """The kept labels: ``COLUMNS``, then delta_ppl and delta_log_ppl (``with_differences``).

    FileNotFoundError or ValueError, with the command that makes them, where they are missing or are
    not those of the card.
    """
    for path in (folder / LABELS, folder / CARD):
        if not path.exists():
            raise FileNotFoundError(f"{shown(path)} is missing; run: {_COMMAND}")
    card = tomllib.loads((folder / CARD).read_text(encoding="utf-8"))
    content = (folder / LABELS).read_bytes()
    if sha256_bytes(content) != card["labels_sha256"]:
        raise ValueError(f"{shown(folder / LABELS)} is not the one of its card; run: {_COMMAND}")
    texts = dict.fromkeys(("dataset", "part", "qid", "pid", "rationale"), str)
    whole = {"right_without": "Int64", "right_with": "Int64"}
    labels = pd.read_csv(BytesIO(lzma.decompress(content)), dtype=texts | whole)
    return with_differences(labels)


def with_differences(labels: pd.DataFrame) -> pd.DataFrame:
    """The labels with both differences; above 0 where the passage makes the rationale likelier.

    ``delta_ppl`` is the perplexity without the passage minus that with it (Equation 3);
    ``delta_log_ppl`` the same of their natural logarithms, so nats for each token.
    """
    log_without = -labels["log_p_without"] / labels["tokens"]
    log_with = -labels["log_p_with"] / labels["tokens"]
    return labels.assign(
        delta_ppl=np.exp(log_without) - np.exp(log_with), delta_log_ppl=log_without - log_with
    )


def threshold(differences: Sequence[float], fraction: float) -> float:
    """The greatest difference that at least ``fraction`` of all reach.

    With ties, more than that reach it. ValueError without differences, for one that is no number,
    and for a fraction that is not above 0 and at most 1.
    """
    ordered = np.sort(np.asarray(differences, float))[::-1]
    if not len(ordered) or not np.isfinite(ordered).all():
        raise ValueError("a threshold needs differences, all of them finite")
    if not 0 < fraction <= 1:
        raise ValueError(f"a fraction is above 0 and at most 1, not {fraction!r}")
    # 0.05 * 60 is 3.0000000000000004: the third is meant, not the fourth.
    count = math.ceil(round(fraction * len(ordered), 9))
    return float(ordered[count - 1])


def helpful(
    labels: pd.DataFrame,
    difference: Literal["delta_ppl", "delta_log_ppl"],
    fraction: float = FRACTIONS[0],
) -> pd.Series:
    """Whether each passage is helpful: its difference is at least the threshold.

    The threshold is that of the rows to train on, of the same set and the same kind of rationale;
    held rows are held against it and move nothing.
    """
    is_helpful = pd.Series(False, index=labels.index)
    for _, group in labels.groupby(["dataset", "rationale"]):
        least = threshold(group.loc[group["part"] == "train", difference], fraction)
        is_helpful[group.index] = group[difference] >= least
    return is_helpful


@dataclass(frozen=True)
class Recipe:
    """What a filter calls helpful.

    ``label``: the greatest ``share`` of "delta_ppl" (the paper's) or "delta_log_ppl"; "right": the
    model answers right with the passage; "turned": and wrong without it (RAG2, section 3.2, on
    earlier work). ``rationale`` is whose text the difference is of; ``questions`` are "all", or
    those that have a rationale of the model's "own". With ``shuffled`` the labels are permuted over
    the training pairs, by seed 0.
    """

    label: Literal["delta_ppl", "delta_log_ppl", "right", "turned"]
    share: float = 0.25
    rationale: Literal["expert", "own"] = "expert"
    questions: Literal["all", "own"] = "all"
    shuffled: bool = False


RECIPES = {
    "head-ppl-25": Recipe("delta_ppl"),
    "head-log-25": Recipe("delta_log_ppl"),
    "head-ppl-05": Recipe("delta_ppl", 0.05),
    "head-log-05": Recipe("delta_log_ppl", 0.05),
    "head-own": Recipe("delta_ppl", rationale="own", questions="own"),
    "head-own-questions": Recipe("delta_ppl", questions="own"),
    "head-right": Recipe("right"),
    "head-turned": Recipe("turned"),
    "head-shuffled": Recipe("delta_ppl", shuffled=True),
    "cross-ppl-25": Recipe("delta_ppl"),
    "cross-shuffled": Recipe("delta_ppl", shuffled=True),
}
"""What each trained filter is trained on. A shuffled one is its ``ppl-25`` in all else."""


def labelled(recipe: Recipe, labels: pd.DataFrame, part: str = "train") -> pd.DataFrame:
    """The pairs of a part with their label by a recipe: dataset, part, qid, pid, is_helpful (bool).

    ``labels`` are those of ``read_labels``. What counts as a great difference is always read off
    the training pairs, of each set by itself (``labels.helpful``).
    """
    chosen = labels[labels["rationale"] == recipe.rationale]
    if recipe.questions == "own":
        has_own = labels.loc[labels["rationale"] == "own", "qid"]
        chosen = chosen[chosen["qid"].isin(has_own)]
    if recipe.label in ("right", "turned"):
        chosen = chosen[chosen["right_with"].notna()]
        is_helpful = chosen["right_with"] == 1
        if recipe.label == "turned":
            is_helpful &= chosen["right_without"] == 0
    else:
        is_helpful = helpful(chosen, recipe.label, recipe.share)
    table = chosen[["dataset", "part", "qid", "pid"]].assign(is_helpful=is_helpful.astype(bool))
    table = table[table["part"] == part].reset_index(drop=True)
    if recipe.shuffled:
        order = np.random.default_rng(0).permutation(len(table))
        table["is_helpful"] = table["is_helpful"].to_numpy()[order]
    return table


@dataclass(frozen=True)
class Material:
    """Labels, what their questions ask (by dataset and qid), the passages, which are read with
    their ``titles`` or without, and the encoder of heads and cosine."""

    labels: pd.DataFrame
    asked: Mapping[tuple[str, str], str]
    store: PassageStore
    encoder: Encoder
    titles: bool = False

    def texts(self, pairs: pd.DataFrame) -> list[tuple[str, str]]:
        """Each pair's question as it is shown and its passage, in the order of the rows."""
        passages = self.store.get_many(sorted(set(pairs["pid"])))
        text = {p.pid: p.titled if self.titles else p.text for p in passages}
        rows = zip(pairs["dataset"], pairs["qid"], pairs["pid"], strict=True)
        return [(self.asked[dataset, qid], text[pid]) for dataset, qid, pid in rows]


def open_material() -> Material:
    """The labels of the open data, with all that a filter reads of them."""
    questions = {"bioasq": load_bioasq_dev(), "medmcqa": load_questions("medmcqa")}
    asked = {(name, q.qid): asked_of(q) for name, of_set in questions.items() for q in of_set}
    store = corpus_store(load_profile("open").corpora)
    return Material(read_labels(), asked, store, load_encoder("minilm", precision="float32"))


def asked_of(question: Question) -> str:
    """The question and, where it has options, a line for each of them."""
    lines = [f"{letter}. {question.options[letter]}" for letter in sorted(question.options)]
    return "\n".join([question.text, *lines])
