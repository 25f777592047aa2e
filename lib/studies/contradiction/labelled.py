"""Labelled sentence pairs, and how well an NLI model tells the contradictions among them.

SciFact (Wadden et al., 2020): a claim with the sentences of an abstract that support or contradict
it, or, for a claim without evidence, with the nearest sentence of each abstract it cites. BioClaim
(Kim et al., 2023; not for commercial use, so only measured on): sentences of cardiology abstracts.
Both were labelled by people; evidence-mini's pairs by two readers that are language models, and the
judged ones by the judge of contradiction (``data/judgments/README.md``).

Evidence Inference (DeYoung et al., 2020; annotations MIT) says of an intervention, a comparator and
an outcome whether the outcome went up, down, or neither, and quotes the sentence. A grammar of ours
states the same, or another direction, in many wordings: with the arms in either order and with
denials. Beside a quoted sentence a statement is as often true as not in every wording, so that
alone it does not tell whether it is true.
"""

from __future__ import annotations

import ast
import io
import random
import re
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lib.base.downloads import fetch
from lib.base.files import read_jsonl, sha256_bytes
from lib.base.paths import DATA
from lib.data.judgments import read_findings, read_pair_judgments
from lib.stats import auroc, auroc_interval
from lib.studies.contradiction.nli import Backend, score_pairs, sentences

NEAREST = DATA / "nli-head" / "nearest.csv"
"""claim, doc, sentence: in each abstract that a claim without evidence cites, the number (from 0)
of the sentence nearest to the claim by MiniLM's cosine (``tools.train_contradiction``)."""

_LABELS = {"SUPPORT": "entailment", "CONTRADICT": "contradiction", "": "neutral"}
"""SciFact's names of the labels, and ours."""

_WITHOUT_NEUTRAL = ", no neutral"


class LabelledPair(NamedTuple):
    """Two sentences; contradiction, entailment or neutral; and what they are resampled with."""

    a: str
    b: str
    label: str
    group: str


# SciFact ------------------------------------------------------------------------------------------


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


def scifact(held_out: bool) -> list[LabelledPair]:
    """SciFact's pairs held out from training (``data/nli-head/held_out.txt``), or the others.

    Pairs of one group share a claim or an abstract, directly or by way of other pairs; a group is
    on one side only, so no claim and no abstract is on both.
    """
    from scipy.cluster.hierarchy import DisjointSet

    groups = DisjointSet()  # claims and abstracts, joined where a claim cites an abstract
    for claim in _table("scifact-claims").itertuples():
        groups.add(claim.claim)
        for doc in _numbers(f"{claim.cited_doc_ids} {claim.evidence_doc_id}"):
            groups.add(doc)
            groups.merge(claim.claim, doc)
    listed = (DATA / "nli-head" / "held_out.txt").read_text(encoding="utf-8")
    held_out_claims = set(_numbers(listed))
    nearest = pd.read_csv(NEAREST, dtype=str).set_index(["claim", "doc"])["sentence"]
    pairs = []
    for claim, doc, parts in cited_abstracts():
        if (claim.id in held_out_claims) != held_out:
            continue
        chosen = claim.evidence_sentences if claim.evidence_doc_id else nearest[claim.id, doc]
        text = " ".join(parts[int(number)] for number in _numbers(chosen))
        group = min(groups.subset(claim.claim))
        pairs.append(LabelledPair(claim.claim, text, _LABELS[claim.evidence_label], group))
    return pairs


def _table(name: str) -> pd.DataFrame:
    return pd.read_csv(fetch(name), dtype=str, keep_default_na=False)


def _numbers(text: str) -> list[str]:
    return re.findall(r"\d+", text)


def _sentences(printed: str) -> list[str]:
    """The sentences of an abstract that is stored as a printed numpy array of strings."""
    tokens = tokenize.generate_tokens(io.StringIO(printed).readline)
    return [ast.literal_eval(t.string) for t in tokens if t.type == tokenize.STRING]


# findings of trials, and statements of them -------------------------------------------------------

_TRUE_OF = {"up": {1}, "down": {-1}, "neither": {0}, "not up": {-1, 0}, "not down": {0, 1}}


class Finding(NamedTuple):
    """A sentence of an article and what it finds; ``direction`` is 1 (more with the intervention),
    -1 (less) or 0 (no difference)."""

    article: str
    prompt: str
    sentence: str
    intervention: str
    comparator: str
    outcome: str
    direction: int


class Wording(NamedTuple):
    """A way to state something: its template, what it says, and whether the arms are swapped."""

    template: str
    says: str
    swapped: bool

    def label(self, direction: int) -> str:
        """Is the statement true of a finding of that direction? entailment or contradiction."""
        seen = -direction if self.swapped else direction
        return "entailment" if seen in _TRUE_OF[self.says] else "contradiction"


WORDINGS = tuple(
    Wording(row.template, row.says, swapped)
    for row in pd.read_csv(Path(__file__).with_name("statements.csv")).itertuples()
    for swapped in (False, True)
)
"""Every template of ``statements.csv`` with the arms in either order."""


def findings(held_out: bool) -> list[Finding]:
    """The findings of the articles held out from training (three tenths, by hash), or the others.

    Only prompts on whose direction every accepted reading agrees, quoted in one sentence of
    prose of at most 280 letters, with arms and outcome of at most 60: a grammar cannot state more.
    """
    found = []
    for row in read_findings():
        named = tuple(row[key].strip(" .;,") for key in ("intervention", "comparator", "outcome"))
        quote = row["quote"].strip()
        short = 40 <= len(quote) <= 280 and all(0 < len(name) <= 60 for name in named)
        prose = "\n" not in quote and re.search(r"[a-z]{3,} [a-z]{2,} ", quote)
        if short and prose and is_held_out(row["article"]) == held_out:
            quote = " ".join(quote.split())
            found.append(Finding(row["article"], row["prompt"], quote, *named, row["direction"]))
    return found


def is_held_out(article: str) -> bool:
    """Whether an article, by its PMC number, is kept out of training."""
    return int(sha256_bytes(f"finding {article}".encode())[:12], 16) / 16**12 < 0.3


def stated(finding: Finding, wording: Wording) -> str:
    """The finding's arms and outcome in a wording, whether or not it is true of the finding."""
    arms = (finding.intervention, finding.comparator)
    one, other = arms[::-1] if wording.swapped else arms
    names = {"outcome": finding.outcome, "Outcome": _upper(finding.outcome)}
    return _upper(wording.template.format(one=one, other=other, **names))


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def statements(used: Sequence[Finding], times: int, swapped: float, seed: int) -> list:
    """``LabelledPair``s of sentences with statements, as many true as not in every wording.

    About ``times`` statements a finding, of which the share ``swapped`` has the arms swapped.
    """
    rng = random.Random(seed)
    pairs = []
    for wording in WORDINGS:
        share = 2 * (swapped if wording.swapped else 1 - swapped)
        of_label = defaultdict(list)
        for finding in used:
            of_label[wording.label(finding.direction)].append(finding)
        n = round(times * len(used) * share / len(WORDINGS) / 2)
        n = min(n, *(len(of_label[label]) for label in ("entailment", "contradiction")))
        for label in ("entailment", "contradiction"):
            for finding in rng.sample(of_label[label], n):
                statement = stated(finding, wording)
                pairs.append(LabelledPair(finding.sentence, statement, label, finding.article))
    return pairs


# the other sets -----------------------------------------------------------------------------------


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
    return [
        LabelledPair(row["a"], row["b"], labels[row["pid"]], row["a_id"].rpartition("-")[0])
        for row in read_jsonl(folder / "pairs.jsonl")
        if labels[row["pid"]]  # empty where the two readers disagree
    ]


PAIR = ["pool", "a", "b"]
"""What a judged pair is known by."""


PASSES = ("first", "second", "single")


def judged_pairs(rows: Iterable[Mapping] | None = None) -> pd.DataFrame:
    """Every pair of texts that a judge read, in the order of ``rows`` (default: the committed ones;
    see ``lib.data.judgments``), and what its passes say.

    Columns: pool, group (the first part of the pool's name), a, b, ``control`` (is it one whose
    label is known?); first, second, single: what each pass says ("other" for texts on two
    questions, else the stance; missing where it did not judge the pair). What the first and second
    pass say together: ``same``, True where all that saw the pair say so; ``stance``, empty where
    not same, "unclear" where they differ; ``disagree_any``, True where either says that the texts
    disagree. Of the first pass ``reason`` and the numbers of the two sentences that carry it (from
    1; 0 where it gave none), of the second ``reason_again``.
    """
    table = pd.DataFrame(read_pair_judgments() if rows is None else rows).dropna(subset="same")
    table["said"] = table["stance"].where(table["same"].astype(bool), "other")
    by_pair = table.set_index(PAIR)
    of_pass = {judge: by_pair[by_pair["judge"] == judge] for judge in PASSES}
    read = by_pair["judge"].isin(PASSES[:2])
    pairs = pd.DataFrame(index=by_pair.index[read].unique())
    for judge in PASSES:
        pairs[judge] = of_pass[judge]["said"]
    one = pairs["first"].fillna(pairs["second"])
    two = pairs["second"].fillna(pairs["first"])
    pairs["same"] = one.ne("other") & two.ne("other")
    pairs["stance"] = one.where(one == two, "unclear").where(pairs["same"], "")
    pairs["disagree_any"] = one.eq("disagree") | two.eq("disagree")
    for column in ("reason", "sentence_a", "sentence_b"):
        pairs[column] = of_pass["first"][column]
    pairs["reason_again"] = of_pass["second"]["reason"]
    pairs = pairs.reset_index()
    pairs["group"] = pairs["pool"].str.partition("/")[0]
    planted = (pairs["a"] + pairs["b"]).str.contains("plant:")
    return pairs.assign(control=planted | (pairs["group"] == "scifact"))


def judged_couples(texts: Mapping[str, str], groups: Sequence[str]) -> pd.DataFrame:
    """The ``judged_pairs`` of ``texts`` (by id) in these groups, each once, sorted by ids, with
    ``value``: 1 where both passes say that the two disagree, else 0. Only then has it a reason."""
    pairs = judged_pairs()
    known = pairs["a"].isin(texts.keys()) & pairs["b"].isin(texts.keys())
    pairs = pairs[known & pairs["group"].isin(groups)].sort_values(["a", "b", "pool"])
    pairs = pairs.drop_duplicates(["a", "b"], keep="last", ignore_index=True)
    disagree = pairs["stance"] == "disagree"
    pairs = pairs.assign(value=disagree.astype(float), reason=pairs["reason"].where(disagree, ""))
    first = ["pool", "a", "b", "value", "same", "stance"]
    return pairs[[*first, "reason", "sentence_a", "sentence_b"]]


def with_sentences(pairs: pd.DataFrame, texts: Mapping[str, str]) -> pd.DataFrame:
    """``pairs`` with the sentences of ``texts`` in place of their numbers; empty for 0."""
    columns = {}
    for side in ("a", "b"):
        numbers = pairs[f"sentence_{side}"].astype(int)
        columns[f"sentence_{side}"] = [
            sentences(texts[i])[number - 1] if number else ""
            for i, number in zip(pairs[side], numbers, strict=True)
        ]
    return pairs.assign(**columns)


def _judged() -> list[LabelledPair]:
    """The two sentences by which the judge of contradiction says that two abstracts of
    evidence-mini disagree or agree, by topic."""
    texts = {row["id"]: row["text"] for row in read_jsonl(DATA / "evidence-mini/abstracts.jsonl")}
    labels = {"disagree": "contradiction", "agree": "entailment"}
    pairs = judged_couples(texts, ("mini",))
    pairs = with_sentences(pairs[pairs["stance"].isin(labels)], texts)
    return [
        LabelledPair(pair.sentence_a, pair.sentence_b, labels[pair.stance], pair.pool)
        for pair in pairs.itertuples()
    ]


SETS: dict[str, Callable[[], list[LabelledPair]]] = {
    "scifact held-out": lambda: scifact(held_out=True),
    "evidence inference held-out": lambda: statements(findings(True), 2, swapped=0.5, seed=1),
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
"""The sets that models are measured on. ", no neutral" leaves out pairs on different matters, which
is harder: the cosine cannot tell contradiction from agreement. The other sets have no neutral."""

AGAINST_AGREEMENT = tuple(
    name for name in MEASURED if name not in ("scifact held-out", "evidence-mini pairs")
)
"""The sets on which contradictions stand against agreements on the same matter alone."""

TRAINED_ON = ("scifact held-out", "evidence inference held-out")
"""Sets whose other claims or articles were trained on: results there are in-domain."""

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


# how good a model is ------------------------------------------------------------------------------


def quality_values(backends: Iterable[Backend], sets: Sequence[str] = tuple(SETS)) -> pd.DataFrame:
    """The score of every backend for every pair: set, group, label, backend, value.

    Pairs are in the order of their set. ``label`` is contradiction, entailment or neutral; a score
    is the higher of both directions, as CNT takes it; pairs of one ``group`` (a number) share a
    text or a topic.
    """
    backends = list(backends)
    parts = []
    for name in sets:
        pairs = SETS[name]()
        own = {
            "set": name,
            "group": pd.factorize(np.array([pair.group for pair in pairs]), sort=True)[0],
            "label": [pair.label for pair in pairs],
        }
        texts = [(pair.a, pair.b) for pair in pairs]
        for backend in backends:
            scores = pd.Series(score_pairs(texts, backend))
            parts.append(pd.DataFrame(own | {"backend": backend.name, "value": scores}))
    return pd.concat(parts, ignore_index=True)


def quality_table(values: pd.DataFrame, sets: Sequence[str] = MEASURED) -> pd.DataFrame:
    """``quality`` of every backend of ``quality_values`` on every one of ``sets``, a row each.

    A set of which nothing was scored is left out.
    """
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


def quality(own: pd.DataFrame, draws: int = 1000) -> dict[str, Any]:
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
    low, high = auroc_interval(contradicts, scores, own["group"].tolist(), draws=draws)
    bins = np.minimum((scores * 10).astype(int), 9)
    distances = pd.Series(scores - contradicts).groupby(bins).sum().abs()
    return {
        "auroc": auroc(contradicts, scores),
        "ap": float(average_precision_score(contradicts, scores)),
        "n": len(own),
        "positives": int(contradicts.sum()),
        "auroc_low": low,
        "auroc_high": high,
        "mean_p": float(scores.mean()),
        "off": float(distances.sum() / len(scores)),
    }
