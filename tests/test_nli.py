"""NLI models: each against an independent computation, kept once, measured honestly."""

from __future__ import annotations

import csv
import json
import re
import shutil
import zlib
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from lib.base import paths
from lib.base.downloads import load_registry
from lib.base.files import read_jsonl, sha256_file
from lib.embed import load_encoder
from lib.search.vectors import encode_small
from lib.studies.contradiction import nli
from lib.studies.contradiction.labelled import (
    AGAINST_AGREEMENT,
    FILES,
    MEASURED,
    SETS,
    LabelledPair,
    instruments,
    quality,
    quality_table,
    quality_values,
    scifact,
)
from lib.studies.contradiction.nli import (
    HEAD,
    FeatureBackend,
    features,
    load_backend,
    score_pairs,
    sentences,
)
from tests.tiny_models import save_nli

settings = hypothesis_settings(max_examples=25, deadline=None)
MINI = paths.DATA / "evidence-mini"
ORDERS = [("contradiction", "entailment", "neutral"), ("ENTAILMENT", "NEUTRAL", "CONTRADICTION")]
PAIRS = [
    ("Aspirin reduces mortality.", "Aspirin increases mortality in older people."),
    ("Aspirin reduces mortality.", "Aspirin does not increase mortality in older people."),
    ("Oxygen helped 12 of 30 patients.", "Oxygen helped 25 of 40 patients."),
    ("Vitamin E is safe.", "The kidney test was a sign of fever."),
]


@pytest.fixture(autouse=True, scope="module")
def folders(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHR_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def scifact_read(mirror, monkeypatch) -> Path:
    """The mirror, with the usual cache: SciFact's sentences are encoded once, not every time."""
    monkeypatch.delenv("CHR_CACHE")
    return mirror


# sentences ---------------------------------------------------------------------------------------


def test_every_sentence_that_was_cut_out_of_an_abstract_is_found():
    texts = {row["id"]: sentences(row["text"]) for row in read_jsonl(MINI / "abstracts.jsonl")}
    pairs = list(read_jsonl(MINI / "pairs.jsonl"))
    wanted = {(row[f"{side}_id"], row[side]) for row in pairs for side in "ab"}
    assert len(wanted) > 300 and [w for w in sorted(wanted) if w[1] not in texts[w[0]]] == []


def test_abbreviations_and_numbers_end_no_sentence():
    one, two = (
        "Risk fell (0.63, 95% CI 0.46 to 0.87; p = 0.016). It was 2.5 mg vs. 5 mg daily.",
        "Patients were seen by Smith et al. in 1998. E. coli was found in Fig. 2, i.e. twice.",
    )
    assert (len(sentences(one)), len(sentences(two)), sentences("  ")) == (2, 2, [])


@given(st.text(max_size=200))
@settings
def test_nothing_is_lost_between_sentences(text):
    assert "".join("".join(sentences(text)).split()) == "".join(text.split())


# cross-encoders ----------------------------------------------------------------------------------


def relabelled(model: Path, folder: Path, labels: tuple[str, ...]) -> Path:
    """A copy whose config claims other labels."""
    shutil.copytree(model, folder)
    config = json.loads((folder / "config.json").read_text())
    config["id2label"] = {str(i): label for i, label in enumerate(labels)}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module", params=ORDERS, ids=["paper's order", "MNLI's order"])
def model(request, tmp_path_factory):
    return save_nli(tmp_path_factory.mktemp("nli") / "model", request.param), request.param


def test_batches_give_what_single_pairs_give(model, monkeypatch):
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder, order = model
    monkeypatch.setattr(nli, "_BATCH", 3)
    backend = load_backend(f"hub:{folder}")
    net = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    read = AutoTokenizer.from_pretrained(folder)
    column = [name.lower() for name in order].index("contradiction")
    texts = ["fever", "the dose of a drug treats the pain", "kidney", "a sign of the heart"]
    pairs = list(product(texts, texts))
    with torch.no_grad():
        alone = [
            float(net(**read(a, b, return_tensors="pt")).logits.softmax(-1)[0, column])
            for a, b in pairs
        ]
    found = backend.contradiction(pairs)
    assert found.shape == (16,) and found == pytest.approx(alone, abs=1e-5)
    assert not backend.symmetric and len({round(float(x), 6) for x in found}) > 8
    assert backend.contradiction([]).shape == (0,)
    assert backend.contradiction([("pain " * 900, "fever")]).shape == (1,)  # cut, not refused


def test_wrong_or_unknown_label_orders_are_refused(model, tmp_path):
    folder, order = model
    turned = (*order[1:], order[0])
    for name, labels in (("wrong", turned), ("nameless", ("LABEL_0", "LABEL_1", "LABEL_2"))):
        other = relabelled(folder, tmp_path / name, labels)
        with pytest.raises(ValueError, match=f"{labels[0].lower()}.* in another order"):
            load_backend(f"hub:{other}")


def test_the_papers_model_is_asked_from_the_hub_by_its_name(model, monkeypatch):
    asked = []
    monkeypatch.setattr(nli, "model_folder", lambda name: asked.append(name) or model[0])
    assert load_backend("pubmedbert").name == "pubmedbert"
    assert asked == ["pritamdeka/PubMedBERT-MNLI-MedNLI"]
    with pytest.raises(ValueError, match="no NLI model 'bert': pubmedbert, hub:<name>, head"):
        load_backend("bert")


# the head and the baselines ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def minilm():
    return load_encoder("minilm", precision="float32")


@pytest.mark.parametrize("name", ["head", "cosine", "cues"])
def test_the_baselines_keep_the_contract(name):
    backend = load_backend(name)
    there = backend.contradiction(PAIRS)
    back = backend.contradiction([(b, a) for a, b in reversed(PAIRS)])[::-1]
    assert backend.symmetric and there.dtype == np.float64 and there.shape == (4,)
    assert (there >= 0).all() and (there <= 1).all() and there == pytest.approx(back, abs=1e-7)
    assert backend.contradiction([]).shape == (0,)


def test_features_and_head_against_a_plain_computation(minilm):
    backend = load_backend("head")
    with np.load(HEAD, allow_pickle=False) as saved:
        weight, bias = saved["weight"], float(saved["bias"])
    rows, scores = features(PAIRS, minilm), backend.contradiction(PAIRS)
    assert rows.shape == (4, 13 + 2 * 384) and weight.shape == (13 + 2 * 384,)
    for (a, b), row, score in zip(PAIRS, rows, scores, strict=True):
        u, v = encode_small([a, b], minilm, "article")
        assert row[0] == pytest.approx((1 + float(u @ v)) / 2, abs=1e-6)
        assert np.allclose(row[13:], [*(u * v), *abs(u - v)], atol=1e-7)
        logit = sum(float(x) * float(w) for x, w in zip(row, weight, strict=True)) + bias
        assert score == pytest.approx(1 / (1 + np.exp(-logit)), abs=1e-6)


def test_cues_of_pairs_that_can_be_read_off(minilm):
    opposed, agree, one_denies = (features(PAIRS, minilm)[:, i].tolist() for i in (1, 2, 3))
    assert opposed == [1, 0, 0, 0]  # reduces, increases
    assert agree == [0, 1, 0, 0]  # reduces, does not increase
    assert one_denies == [0, 1, 0, 0]
    assert features(PAIRS, minilm)[:, 10].tolist() == [0, 0, 1, 0]  # numbers, none shared
    assert load_backend("cues").contradiction(PAIRS).tolist() == opposed


def test_the_weights_belong_to_this_encoder_and_change_the_fingerprint(minilm, tmp_path):
    assert sha256_file(HEAD).startswith("4770721452049518"), "other weights: was it trained anew?"
    with np.load(HEAD, allow_pickle=False) as saved:
        parts = dict(saved)
    other = tmp_path / "weights.npz"
    np.savez(other, **parts | {"sees": "another encoder"})
    wanted = "another encoder.*run: python -m tools.train_contradiction head"
    with pytest.raises(ValueError, match=wanted):
        FeatureBackend("head", minilm, other)
    np.savez(other, **parts | {"bias": 9.0})
    changed = FeatureBackend("head", minilm, other)
    assert changed.fingerprint != load_backend("head").fingerprint


# kept scores -------------------------------------------------------------------------------------


class Fake:
    """Decides by a checksum, counts what it is asked, and may die at its n-th call."""

    name, symmetric = "fake", False

    def __init__(self, fingerprint="fake 1", dies_at=0):
        self.fingerprint, self.dies_at, self.asked, self.calls = fingerprint, dies_at, [], 0

    def contradiction(self, pairs):
        self.calls += 1
        if self.calls == self.dies_at:
            raise RuntimeError("killed")
        self.asked += pairs
        return np.array([p(*pair) for pair in pairs])


def p(a: str, b: str) -> float:
    return zlib.crc32(f"{a}|{b}".encode()) / 2**32


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from("abcde")), max_size=12))
@settings
def test_each_pair_is_scored_once_in_every_direction(tmp_path_factory, pairs):
    fake = Fake(str(tmp_path_factory.mktemp("kept")))
    there, back = np.array([p(a, b) for a, b in pairs]), np.array([p(b, a) for a, b in pairs])
    assert (score_pairs(pairs, fake, direction="forward") == there).all()
    assert sorted(fake.asked) == sorted(set(pairs))
    assert (score_pairs(pairs, fake) == np.maximum(there, back)).all()
    mean = score_pairs(pairs, fake, direction="mean")
    assert mean == pytest.approx((there + back) / 2) and mean.shape == (len(pairs),)
    assert sorted(fake.asked) == sorted({*pairs, *((b, a) for a, b in pairs)})


def test_a_run_that_died_goes_on_where_it_stopped(tmp_path, monkeypatch):
    monkeypatch.setenv("CHR_CACHE", str(tmp_path))
    monkeypatch.setattr(nli, "_CHUNK", 10)
    pairs = [(f"sentence {i}", "other") for i in range(45)]
    first = Fake(dies_at=4)
    with pytest.raises(RuntimeError, match="killed"):
        score_pairs(pairs, first, direction="forward")
    again = Fake()
    found = score_pairs(pairs, again, direction="forward")
    assert found.tolist() == [p(*pair) for pair in pairs]
    assert len(first.asked) == 30 and len(again.asked) == 15
    assert not {*first.asked} & {*again.asked}
    other = Fake("fake 2")
    score_pairs(pairs, other, direction="forward")
    assert len(other.asked) == 45  # another model's scores are its own
    assert [f.name for f in (tmp_path / "nli").glob("*.sqlite")] == ["pairs.sqlite"]


def test_what_is_no_probability_is_refused_and_not_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("CHR_CACHE", str(tmp_path))
    broken = Fake()
    for value in (1.5, -0.1, np.nan):
        broken.contradiction = lambda pairs, value=value: np.full(len(pairs), value)
        with pytest.raises(ValueError, match=r"not in \[0, 1\]"):
            score_pairs([("a", "b")], broken)
    assert score_pairs([("a", "b")], Fake(), direction="forward")[0] == p(*"ab")


# labelled pairs, quality -------------------------------------------------------------------------


def test_quality_is_what_counting_pairs_says(monkeypatch, tmp_path):
    monkeypatch.setenv("CHR_CACHE", str(tmp_path))
    kinds = ("contradiction", "entailment", "neutral")
    pairs = [LabelledPair(f"a{i}", f"b{i % 3}", kinds[i * 7 % 3], f"g{i // 4}") for i in range(40)]
    monkeypatch.setitem(SETS, "small", lambda: pairs)
    values = quality_values([Fake()], ["small"])
    row, score = quality(values, draws=200), lambda x: max(p(x.a, x.b), p(x.b, x.a))
    yes = [score(x) for x in pairs if x.label == "contradiction"]
    no = [score(x) for x in pairs if x.label != "contradiction"]
    wins = np.mean([1.0 if y > n else 0.5 if y == n else 0.0 for y in yes for n in no])
    ranked = sorted(pairs, key=score, reverse=True)
    hits = [i for i, x in enumerate(ranked, 1) if x.label == "contradiction"]
    assert row["auroc"] == pytest.approx(wins)
    assert row["ap"] == pytest.approx(np.mean([k / i for k, i in enumerate(hits, 1)]))
    assert (row["n"], row["positives"]) == (40, len(yes))
    scores = np.array([score(x) for x in pairs])
    found = np.array([x.label == "contradiction" for x in pairs])
    off = [abs((scores - found)[scores // 0.1 == bin].sum()) for bin in range(10)]
    assert row["off"] == pytest.approx(sum(off) / 40)
    assert row["mean_p"] == pytest.approx(scores.mean())
    groups = [pair.group for pair in pairs]
    assert values["group"].tolist() == [sorted(set(groups)).index(group) for group in groups]
    assert row["auroc_low"] < row["auroc"] < row["auroc_high"]


def test_the_harder_half_has_no_neutral(monkeypatch, tmp_path):
    monkeypatch.setenv("CHR_CACHE", str(tmp_path))
    assert {name.removesuffix(", no neutral") for name in MEASURED} == set(SETS)
    kinds = ["contradiction", "entailment", "neutral"] * 5
    pairs = [LabelledPair(f"a{i}", f"b{i}", kind, f"g{i}") for i, kind in enumerate(kinds)]
    monkeypatch.setitem(SETS, "small", lambda: pairs)
    one, two = Fake("one"), Fake("two")
    one.name, two.name = "head", "cosine"
    table = quality_table(quality_values([one, two], ["small"]), ["small", "small, no neutral"])
    assert table["backend"].tolist() == ["head", "cosine"] * 2
    assert table["n"].tolist() == [15, 15, 10, 10] and set(table["positives"]) == {5}


def test_bundled_sets_are_what_readers_and_the_judge_agree_on():
    pairs, judged = SETS["evidence-mini pairs"](), SETS["judged"]()
    rows = list(read_jsonl(MINI / "labels.jsonl"))
    agreed = [row for row in rows if row["first"] == row["second"]]
    assert len(pairs) == len(agreed) > 190 and len({x.group for x in pairs}) == 12
    texts = " ".join(" ".join(row["text"].split()) for row in read_jsonl(MINI / "abstracts.jsonl"))
    assert {pair.label for pair in judged} == {"contradiction", "entailment"} and len(judged) > 250
    assert all(pair.a in texts and pair.b in texts for pair in judged[:40])
    known = load_registry()
    assert set(FILES) == set(SETS)
    for name in (f for files in FILES.values() for f in files):
        assert name in known or (paths.DATA / name).is_file(), name


def table(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


@pytest.mark.mirror
def test_no_claim_and_no_abstract_is_on_both_sides(scifact_read):
    used = {}
    for row in table(scifact_read / "scifact/data/scifact/claims_train.csv"):
        docs = re.findall(r"\d+", row["cited_doc_ids"] + " " + row["evidence_doc_id"])
        used.setdefault(row["claim"], set()).update(docs)
    sides = [scifact(held_out) for held_out in (False, True)]
    claims = [{x.a for x in side} for side in sides]
    abstracts = [set().union(*(used[claim] for claim in side)) for side in claims]
    assert not claims[0] & claims[1] and not abstracts[0] & abstracts[1]
    assert not {x.group for x in sides[0]} & {x.group for x in sides[1]}
    labels = [x.label for side in sides for x in side]
    assert (labels.count("entailment"), labels.count("contradiction")) == (616, 341)
    assert 0.2 < len(sides[1]) / len(labels) < 0.35


@pytest.mark.mirror
def test_the_note_of_the_head_is_what_is_measured(scifact_read, minilm):
    backend = load_backend("head")
    row = quality(quality_values([backend], ["scifact held-out"]))
    wanted = f"AUROC {row['auroc']:.2f} [{row['auroc_low']:.2f}, {row['auroc_high']:.2f}]"
    assert backend.note.startswith(wanted) and f"on {row['n']} pairs" in backend.note
    card = HEAD.with_name("README.md").read_text(encoding="utf-8")
    assert f"{row['auroc']:.3f}" in card and str(row["n"]) in card


@pytest.mark.mirror
def test_bioclaim_pairs_opposite_sides_and_like_sides(mirror):
    rows = table(mirror / "bioclaim/BioClaim/val.csv")
    marked = {(r["sent1"], r["sent2"]) for r in rows if "1" in r["sent1_contradiction"]}
    sides = {(r[side], r["group_no"], side) for r in rows for side in ("sent1", "sent2")}
    pairs = SETS["bioclaim"]()
    for pair in pairs:
        if pair.label == "contradiction":
            assert (pair.a, pair.b) in marked
        else:
            one, other = ({key[1:] for key in sides if key[0] == text} for text in pair[:2])
            assert one & other and pair.a != pair.b
    assert len({pair.group for pair in pairs}) == 11


def test_a_model_is_an_instrument_where_its_interval_clears_the_bar():
    lows, aurocs = (0.7, 0.65, 0.6, 0.66, 0.5), (0.9, 0.75, 0.74, 0.7, 0.6)
    rows = []
    for name, low, auroc in zip(AGAINST_AGREEMENT, lows, aurocs, strict=True):
        rows.append({"backend": "one", "set": name, "auroc": auroc, "auroc_low": low})
    rows.append({"backend": "one", "set": "scifact held-out", "auroc": 1.0, "auroc_low": 1.0})
    rows.append({"backend": "two", "set": "judged", "auroc": 0.5, "auroc_low": 0.4})
    one, two = instruments(pd.DataFrame(rows)).to_dict("records")
    assert (one["sets"], one["reach_goal"], one["cleared"]) == (5, 2, 2)
    assert one["names"] == "scifact held-out; evidence-mini pairs"  # a bound of .65 is not above it
    assert (two["sets"], two["reach_goal"], two["cleared"], two["names"]) == (1, 0, 0, "")
