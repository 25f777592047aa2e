"""Adapters are read, of any base; statements by grammar are true of their findings."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from lib import model_files
from lib.embed import load_encoder
from lib.studies.contradiction import labelled as findings
from lib.studies.contradiction.labelled import SETS
from lib.studies.contradiction.nli import AgreementBackend, load_backend
from tests.tiny_models import WORDS, save_bert, save_sentence_model
from tools.train_contradiction import LABELS, finding_pairs
from tools.training import Plan, fit


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    return save_bert(tmp_path_factory.mktemp("base") / "bert", seed=0)


# adapters as doors -------------------------------------------------------------------------------


def examples(labels: list) -> dict[str, list]:
    """Pairs of words of the tiny vocabulary."""
    one = [WORDS[i % 7] for i in range(len(labels))]
    return {"one": one, "other": [WORDS[i * 5 % 9] for i in range(len(labels))], "label": labels}


@pytest.fixture(scope="module")
def cross_adapter(base, tmp_path_factory) -> Path:
    from sentence_transformers.cross_encoder.losses import CrossEntropyLoss

    folder = tmp_path_factory.mktemp("cross")
    plan = Plan(str(base), "pairs", LABELS, rank=4, batch_size=4)
    fit(plan, examples([i % 3 for i in range(20)]), folder / "adapter", CrossEntropyLoss, folder)
    return folder / "adapter"


@pytest.fixture(scope="module")
def sentence_adapter(base, tmp_path_factory) -> tuple[Path, Path]:
    """A tiny bi-encoder, and an adapter of it."""
    from sentence_transformers.sentence_transformer.losses import CoSENTLoss

    folder = tmp_path_factory.mktemp("bi")
    model = save_sentence_model(folder / "model", base, {})
    plan = Plan(str(model), "texts", rank=4, batch_size=4, max_tokens=32)
    fit(plan, examples([float(i % 2) for i in range(20)]), folder / "adapter", CoSENTLoss, folder)
    return model, folder / "adapter"


def test_an_encoder_takes_an_adapter_and_says_so(sentence_adapter):
    model, adapter = sentence_adapter
    plain, tuned = load_encoder(f"st:{model}"), load_encoder(f"st:{model}+{adapter}")
    texts = ["fever pain", "kidney drug"]
    rows = tuned.encode(texts, "article", progress=False)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
    assert np.abs(rows - plain.encode(texts, "article", progress=False)).max() > 1e-3
    assert tuned.fingerprint != plain.fingerprint
    assert model_files.read_card(adapter)["sha256"][:16] in tuned.fingerprint


def test_models_of_contradiction_take_an_adapter_of_any_base(
    sentence_adapter, cross_adapter, tmp_path
):
    pairs = [("fever pain", "kidney drug"), ("drug dose", "drug test")]
    with pytest.raises(ValueError, match="is not calibrated.*make train"):
        load_backend(f"bi:{sentence_adapter[1]}")
    whole = tmp_path / "whole"
    shutil.copytree(sentence_adapter[1], whole)
    with (whole / model_files.CARD).open("a") as card:
        card.write("calibration = [0.5, 1.0, -2.0]\n")
    for spec in (f"bi:{whole}", f"cross:{cross_adapter}"):
        backend = load_backend(spec)
        scores = backend.contradiction(pairs)
        assert backend.name == spec and ((scores >= 0) & (scores <= 1)).all()
        assert scores[0] != scores[1]


def test_an_adapter_that_is_not_there_or_not_whole_or_of_another_model_is_refused(
    sentence_adapter, tmp_path
):
    model, adapter = sentence_adapter
    with pytest.raises(FileNotFoundError, match="no adapter 'nobody'; there are: contradiction"):
        load_encoder("minilm+nobody")
    torn = tmp_path / "torn"
    shutil.copytree(adapter, torn)
    weights = torn / model_files.WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(ValueError, match="is not what its card says.*make train"):
        load_encoder(f"st:{model}+{torn}")
    with pytest.raises(ValueError, match="trained on another model"):
        load_encoder(f"minilm+{adapter}")


# what is shipped ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bi", "shuffled", "claim only", "cross"])
def test_a_model_with_an_adapter_gives_probabilities_whatever_the_batch(name):
    pairs = [(pair.a, pair.b) for pair in SETS["evidence-mini pairs"]()[:6]]
    backend = load_backend(name)
    together = backend.contradiction(pairs)
    assert together.shape == (6,) and ((together >= 0) & (together <= 1)).all()
    assert np.allclose(together, [backend.contradiction([p])[0] for p in pairs], atol=1e-5)
    assert backend.contradiction([]).shape == (0,)
    if backend.symmetric:
        assert np.allclose(together, backend.contradiction([p[::-1] for p in pairs]), atol=1e-6)


def test_what_is_not_read_is_not_seen():
    backend = AgreementBackend("claim only", "contradiction-one-text")
    one, other = "Aspirin reduces mortality.", "Aspirin raises mortality."
    tuned = backend.cosines([(one, other), (one, one), (other, other)])[:, 1]
    assert tuned[0] == pytest.approx(min(tuned[1], tuned[2]))


# findings ----------------------------------------------------------------------------------------


def test_a_statement_is_true_of_what_it_says():
    finding = findings.Finding("1", "1", "Aspirin cut deaths.", "aspirin", "placebo", "death", -1)
    said = {
        w: findings.stated(finding, w) for w in findings.WORDINGS if w.label(-1) == "entailment"
    }
    texts = set(said.values())
    assert "Death was lower with aspirin than with placebo." in texts
    assert "Death was higher with placebo than with aspirin." in texts
    assert "Aspirin did not increase death compared with placebo." in texts
    false = {
        findings.stated(finding, w) for w in findings.WORDINGS if w.label(-1) == "contradiction"
    }
    assert "Aspirin and placebo did not differ in death." in false
    assert "Death was higher with aspirin than with placebo." in false
    assert not texts & false


def test_no_statement_alone_tells_its_label(mirror):
    """Of every wording as many are true as not: by its template nobody can guess."""
    statements = {w.template.split("{")[0] or w.template: w for w in findings.WORDINGS}
    assert len(statements) > 3
    counts = Counter(pair.label for pair in SETS["evidence inference held-out"]())
    assert counts["entailment"] == counts["contradiction"] > 300
    trained_on = [p for p in finding_pairs() if p.label != "neutral"]
    share = np.mean([p.label == "contradiction" for p in trained_on])
    assert abs(share - 0.5) < 0.02
    for word in ("did not", "higher", "lower", "similar"):
        own = [p.label for p in SETS["evidence inference held-out"]() if word in p.b.lower()]
        assert abs(np.mean([label == "contradiction" for label in own]) - 0.5) < 0.12, word
