"""Labelled sentence pairs, and how well an NLI model tells the contradictions among them.

SciFact (Wadden et al., 2020): a claim with the sentences of an abstract that support or contradict
it, or, for a claim without evidence, with the nearest sentence of each abstract it cites. BioClaim
(Kim et al., 2023; not for commercial use, so only measured on): sentences of cardiology abstracts.
Both were labelled by people; evidence-mini's pairs by two readers that are language models, and the
judged ones by the judge of contradiction (``data/judgments/README.md``).
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from lib.base.downloads import fetch
from lib.base.files import read_jsonl
from lib.base.paths import DATA
from lib.stats import auroc, auroc_interval
from lib.studies.nli.findings import held_out_pairs
from lib.studies.nli.models import Backend
from lib.studies.nli.pairs import LabelledPair, judged_pairs, numbered
from lib.studies.nli.scores import score_pairs

if TYPE_CHECKING:
    from scipy.cluster.hierarchy import DisjointSet

NEAREST = DATA / "nli-head" / "nearest.csv"
"""claim, doc, sentence: in each abstract that a claim without evidence cites, the number (from 0)
of the sentence nearest to the claim by MiniLM's cosine (``tools.train_contradiction``)."""

_LABELS = {"SUPPORT": "entailment", "CONTRADICT": "contradiction", "": "neutral"}
"""SciFact's names of the labels, and ours."""

_WITHOUT_NEUTRAL = ", no neutral"


def scifact(held_out: bool) -> list[LabelledPair]:
    """SciFact's pairs held out from training (``data/nli-head/held_out.txt``), or the others.

    Pairs of one group share a claim or an abstract, directly or by way of other pairs; a group is
    on one side only, so no claim and no abstract is on both.
    """
    listed = (DATA / "nli-head" / "held_out.txt").read_text(encoding="utf-8")
    held_out_claims = set(_numbers(listed))
    return [pair for claim, pair in _scifact() if (claim in held_out_claims) == held_out]


@cache
def cited_abstracts() -> tuple[tuple[Any, str, list[str]], ...]:
    """(a claim's row, an abstract's id, its sentences): the abstracts with evidence on the claim,
    or, where it has none, those it cites."""
    corpus = _table("scifact-corpus").set_index("doc_id")["abstract"]
    found = []
    for claim in _table("scifact-claims").itertuples():
        in_corpus = set(_numbers(claim.cited_doc_ids)) & set(corpus.index)
        for doc in _numbers(claim.evidence_doc_id) or sorted(in_corpus):
            found.append((claim, doc, _sentences(corpus[doc])))
    return tuple(found)


@cache
def _scifact() -> tuple[tuple[str, LabelledPair], ...]:
    """Every pair with the id of its claim."""
    groups = _linked_claims()
    nearest = pd.read_csv(NEAREST, dtype=str).set_index(["claim", "doc"])["sentence"]
    pairs = []
    for claim, doc, sentences in cited_abstracts():
        if claim.evidence_doc_id:
            numbers = _numbers(claim.evidence_sentences)
        else:
            numbers = _numbers(nearest.loc[claim.id, doc])
        text = " ".join(sentences[int(number)] for number in numbers)
        group = min(groups.subset(claim.claim))
        pair = LabelledPair(claim.claim, text, _LABELS[claim.evidence_label], group)
        pairs.append((claim.id, pair))
    return tuple(pairs)


def _linked_claims() -> DisjointSet:
    """Claims and abstracts, joined where a claim cites an abstract."""
    from scipy.cluster.hierarchy import DisjointSet

    groups = DisjointSet()
    for claim in _table("scifact-claims").itertuples():
        groups.add(claim.claim)
        for doc in _numbers(f"{claim.cited_doc_ids} {claim.evidence_doc_id}"):
            groups.add(doc)
            groups.merge(claim.claim, doc)
    return groups


def _bioclaim() -> list[LabelledPair]:
    """Of each research question: a claim of either side whose words are marked as contradictory is
    a contradiction, two claims of one side answer it alike; the few unmarked pairs are left out."""
    pairs = []
    for group, rows in _table("bioclaim-val").groupby("group_no"):
        for row in rows.itertuples():
            if "1" in row.sent1_contradiction and "1" in row.sent2_contradiction:
                pairs.append(LabelledPair(row.sent1, row.sent2, "contradiction", group))
        for side in ("sent1", "sent2"):
            for a, b in combinations(sorted(set(rows[side])), 2):
                pairs.append(LabelledPair(a, b, "entailment", group))
    return pairs


def _evidence_mini() -> list[LabelledPair]:
    """The bundled pairs on whose label both readers (language models) agree, by medicine."""
    folder = DATA / "evidence-mini"
    labels = {row["pid"]: row["label"] for row in read_jsonl(folder / "labels.jsonl")}
    pairs = []
    for row in read_jsonl(folder / "pairs.jsonl"):
        medicine = row["a_id"].rpartition("-")[0]
        label = labels[row["pid"]]  # empty where the two readers disagree
        if label:
            pairs.append(LabelledPair(row["a"], row["b"], label, medicine))
    return pairs


def _judged() -> list[LabelledPair]:
    """The two sentences by which the judge of contradiction says that two abstracts of
    evidence-mini disagree or agree, by topic."""
    texts = {row["id"]: row["text"] for row in read_jsonl(DATA / "evidence-mini/abstracts.jsonl")}
    labels = {"disagree": "contradiction", "agree": "entailment"}
    return [
        LabelledPair(pair.sentence_a, pair.sentence_b, labels[pair.stance], pair.pool)
        for pair in judged_pairs(texts, ("mini",)).itertuples()
        if pair.stance in labels
    ]


SETS: dict[str, Callable[[], list[LabelledPair]]] = {
    "scifact held-out": lambda: scifact(held_out=True),
    "evidence inference held-out": held_out_pairs,
    "bioclaim": _bioclaim,
    "evidence-mini pairs": _evidence_mini,
    "judged": _judged,
}
"""Every labelled set, by name. The last two are bundled, the others need the open data."""

MEASURED = (
    "scifact held-out",
    "scifact held-out, no neutral",
    "evidence inference held-out",
    "bioclaim",
    "evidence-mini pairs",
    "evidence-mini pairs, no neutral",
    "judged",
)
"""What a model is measured on. ", no neutral" leaves out the pairs on different matters: the harder
half, since the cosine cannot know a contradiction from an agreement. The others have no neutral."""

AGAINST_AGREEMENT = (
    "scifact held-out, no neutral",
    "evidence inference held-out",
    "bioclaim",
    "evidence-mini pairs, no neutral",
    "judged",
)
"""The sets on which contradictions stand against agreements on the same matter alone."""

TRAINED_ON = ("scifact held-out", "evidence inference held-out")
"""Sets whose other claims or articles were trained on: what a model shows there is of that kind."""

GOAL, LEAST = 0.75, 0.65
"""Declared before any adapter was trained: the AUROC that is aimed at against agreement, and what
the lower end of its interval must exceed for a model to be used on evidence of that kind."""

FILES = {
    "scifact held-out": (
        "scifact-corpus",
        "scifact-claims",
        "nli-head/held_out.txt",
        "nli-head/nearest.csv",
    ),
    "evidence inference held-out": (
        "evidence-inference-prompts",
        "evidence-inference-annotations",
    ),
    "bioclaim": ("bioclaim-val",),
    "evidence-mini pairs": ("evidence-mini/pairs.jsonl", "evidence-mini/labels.jsonl"),
    "judged": ("evidence-mini/abstracts.jsonl", "judgments/contradiction.jsonl.gz"),
}
"""What each set is read from, as ``lib.base.provenance.data_hash`` takes it."""


def quality_values(backends: Sequence[Backend], sets: Sequence[str] = SETS) -> pd.DataFrame:
    """The score of every backend for every pair: set, group, label, backend, value.

    Pairs are in the order of their set. ``label`` is contradiction, entailment or neutral; a score
    is the higher of both directions, as CNT takes it; pairs of one ``group`` (a number) share a
    text or a topic.
    """
    parts = []
    for name in sets:
        pairs = SETS[name]()
        own = {
            "set": name,
            "group": numbered([pair.group for pair in pairs]),
            "label": [pair.label for pair in pairs],
        }
        texts = [(pair.a, pair.b) for pair in pairs]
        for backend in backends:
            scores = pd.Series(score_pairs(texts, backend))
            parts.append(pd.DataFrame(own | {"backend": backend.name, "value": scores}))
    return pd.concat(parts, ignore_index=True)


def quality_table(values: pd.DataFrame, sets: Sequence[str] = MEASURED) -> pd.DataFrame:
    """``quality`` of every backend of ``quality_values`` on every one of MEASURED, a row each."""
    rows = []
    for name in sets:
        own = values[values["set"] == name.removesuffix(_WITHOUT_NEUTRAL)]
        if name.endswith(_WITHOUT_NEUTRAL):
            own = own[own["label"] != "neutral"]
        for backend, of_model in own.groupby("backend", sort=False):
            rows.append({"backend": backend, "set": name} | quality(of_model))
    return pd.DataFrame(rows)


def instruments(table: pd.DataFrame) -> pd.DataFrame:
    """Which models of ``quality_table`` tell a contradiction from an agreement, and on which sets.

    Columns: backend, sets (of AGAINST_AGREEMENT that were measured), reach_goal (AUROC of at least
    GOAL), cleared (the lower end of the interval above LEAST), and their names.
    """
    own = table[table["set"].isin(AGAINST_AGREEMENT)]
    rows = []
    for backend, sets in own.groupby("backend", sort=False):
        cleared = sets[sets["auroc_low"] > LEAST]["set"]
        row = {"backend": backend, "sets": len(sets)}
        row |= {"reach_goal": int((sets["auroc"] >= GOAL).sum()), "cleared": len(cleared)}
        rows.append(row | {"names": "; ".join(cleared.str.removesuffix(_WITHOUT_NEUTRAL))})
    return pd.DataFrame(rows)


def side_by_side(table: pd.DataFrame) -> pd.DataFrame:
    """``quality_table`` to be read: one row a set, one column a model, "AUROC [95 % interval]"."""
    shown = []
    for row in table.itertuples():
        shown.append(f"{row.auroc:.3f} [{row.auroc_low:.3f}, {row.auroc_high:.3f}]")
    texts = table.assign(shown=shown)
    keys = ["set", "n", "positives"]
    wide = texts.pivot(index=keys, columns="backend", values="shown")
    in_order = list(dict.fromkeys(table[keys].itertuples(index=False, name=None)))
    models = list(dict.fromkeys(table["backend"]))
    wide = wide.loc[in_order, models].reset_index().rename_axis(columns=None)
    return wide.rename(columns={"positives": "contradictions"})


def quality(own: pd.DataFrame, *, draws: int = 1000, seed: int = 0) -> dict[str, Any]:
    """How well P(contradiction) ranks the contradictions of a set above its other pairs.

    ``own`` are rows of ``quality_values`` of one set and backend. Returns auroc, ap (average
    precision; its chance level is positives / n), n, positives, and auroc_low, auroc_high: the 95 %
    interval of a bootstrap over groups. ``mean_p`` is the mean score, to be held against positives
    / n, and ``off`` how far the score is from the share of contradictions on average: the mean
    distance over ten bins of equal width, by how many pairs are in each.
    """
    from sklearn.metrics import average_precision_score

    scores = own["value"].to_numpy(float)
    contradicts = (own["label"] == "contradiction").to_numpy()
    groups = own["group"].tolist()
    low, high = auroc_interval(contradicts, scores, groups, draws=draws, seed=seed)
    return {
        "auroc": auroc(contradicts, scores),
        "ap": float(average_precision_score(contradicts, scores)),
        "n": len(own),
        "positives": int(contradicts.sum()),
        "auroc_low": low,
        "auroc_high": high,
        "mean_p": float(scores.mean()),
        "off": _off(contradicts, scores),
    }


def _off(contradicts: np.ndarray, scores: np.ndarray) -> float:
    """The expected calibration error over ten bins."""
    bins = np.minimum((scores * 10).astype(int), 9)
    distances = pd.Series(scores - contradicts).groupby(bins).sum().abs()
    return float(distances.sum() / len(scores))


def _table(name: str) -> pd.DataFrame:
    return pd.read_csv(fetch(name), dtype=str, keep_default_na=False)


def _numbers(text: str) -> list[str]:
    return re.findall(r"\d+", text)


def _sentences(printed: str) -> list[str]:
    """The sentences of an abstract that is stored as a printed numpy array of strings."""
    tokens = tokenize.generate_tokens(io.StringIO(printed).readline)
    return [ast.literal_eval(t.string) for t in tokens if t.type == tokenize.STRING]
