"""Training: killed and resumed to the same weights, adapters that are what their cards say."""

from __future__ import annotations

import importlib.util
import json
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from lib import model_files
from lib.embed import load_encoder
from lib.studies.nli import findings
from lib.studies.nli.adapters import LABELS, PLANS, cards, part
from lib.studies.nli.agreement import AgreementBackend
from lib.studies.nli.labelled import SETS, scifact
from lib.studies.nli.models import load_backend
from lib.train.batches import ByLength
from lib.train.fit import Plan, fit
from tests import kill_train
from tests.tiny_models import save_bert, save_sentence_model

CHILD = Path(kill_train.__file__)
SHIPPED = sorted(path.parent.name for path in model_files.ADAPTERS.glob(f"*/{model_files.CARD}"))


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    return save_bert(tmp_path_factory.mktemp("base") / "bert", seed=0)


@pytest.fixture(scope="module")
def undisturbed(base, tmp_path_factory) -> tuple[Path, Path]:
    """What a run that nobody kills makes: its checkpoints, and its adapter."""
    folder = tmp_path_factory.mktemp("undisturbed")
    work, out = folder / "work", folder / "out"
    fit(kill_train.plan(base), kill_train.examples(), kill_train.loss(0), out, work)
    return work, out


def trained(work: Path) -> bytes:
    """The float32 weights after the last of 30 steps."""
    (folder,) = work.iterdir()
    return (folder / "checkpoint-30" / "trained.safetensors").read_bytes()


# fit ---------------------------------------------------------------------------------------------


def test_killed_and_resumed_it_comes_to_the_same_weights(base, undisturbed, tmp_path):
    work, out = tmp_path / "work", tmp_path / "out"
    command = [sys.executable, CHILD, base, work, out, "0.05"]
    child = subprocess.Popen([*map(str, command)], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(work.glob("*/checkpoint-10")):
        assert child.poll() is None and time.monotonic() < deadline, "it wrote no checkpoint"
        time.sleep(0.02)
    child.kill()
    child.wait()
    assert not out.exists() and not list(work.glob("*/checkpoint-30"))
    fit(kill_train.plan(base), kill_train.examples(), kill_train.loss(0), out, work)
    assert trained(work) == trained(undisturbed[0])
    written = (out / model_files.WEIGHTS, undisturbed[1] / model_files.WEIGHTS)
    assert written[0].read_bytes() == written[1].read_bytes()


def test_a_loss_with_another_constant_starts_anew(base, tmp_path):
    """Else weights that were trained for one loss would be taken for another's."""
    source = (
        "from sentence_transformers.cross_encoder.losses import CrossEntropyLoss\n"
        "def loss(model):\n    return CrossEntropyLoss(model, label_smoothing={})\n"
    )
    for smoothing in ("0.0", "0.5", "0.0"):
        name = f"loss_{smoothing[-1]}"
        (tmp_path / f"{name}.py").write_text(source.format(smoothing), encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, tmp_path / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        few = {column: own[:8] for column, own in kill_train.examples().items()}
        fit(kill_train.plan(base), few, module.loss, tmp_path / name, tmp_path / "work")
    assert len(list((tmp_path / "work").iterdir())) == 2
    weights = [
        (tmp_path / name / model_files.WEIGHTS).read_bytes() for name in ("loss_0", "loss_5")
    ]
    assert weights[0] != weights[1]


@pytest.mark.parametrize("torn", ["no state", "half a state"])
def test_a_torn_checkpoint_is_passed_over(torn, base, undisturbed, tmp_path):
    work = tmp_path / "work"
    shutil.copytree(undisturbed[0], work)
    (folder,) = work.iterdir()
    state = folder / "checkpoint-30" / "trainer_state.json"
    whole = state.read_text()
    if torn == "no state":
        state.unlink()
    else:
        state.write_text(whole[: len(whole) // 2])
    fit(kill_train.plan(base), kill_train.examples(), kill_train.loss(0), tmp_path / "out", work)
    assert json.loads(state.read_text())["global_step"] == 30
    assert trained(work) == trained(undisturbed[0])


def test_other_examples_are_another_run(base, undisturbed, tmp_path):
    work = tmp_path / "work"
    shutil.copytree(undisturbed[0], work)
    other = kill_train.examples() | {"label": [0] * 60}
    fit(kill_train.plan(base), other, kill_train.loss(0), tmp_path / "out", work)
    assert len(list(work.iterdir())) == 2


def test_a_base_whose_files_changed_is_another_run(base, tmp_path):
    moved, work = tmp_path / "base", tmp_path / "work"
    shutil.copytree(base, moved)
    for note in ("one", "two"):
        config = json.loads((moved / "config.json").read_text())
        (moved / "config.json").write_text(json.dumps(config | {"note": note}))
        fit(
            kill_train.plan(moved), kill_train.examples(), kill_train.loss(0), tmp_path / note, work
        )
    assert len(list(work.iterdir())) == 2
    cards = [model_files.read_card(tmp_path / note)["base_digest"] for note in ("one", "two")]
    assert cards[0] != cards[1]


def test_the_adapter_moves_the_model_and_its_card_says_how_it_was_made(base, undisturbed):
    from transformers import AutoModelForSequenceClassification

    card = model_files.read_card(undisturbed[1])
    assert card["examples"] == 60 and card["labels"] == list(LABELS)
    assert card["peak_memory_mb"] > 50 and card["minutes"] >= 0
    plain = AutoModelForSequenceClassification.from_pretrained(base, num_labels=3)
    before = {name: tensor.clone() for name, tensor in plain.state_dict().items()}
    after = model_files.merged(plain, undisturbed[1]).state_dict()
    moved = {name for name in before if not np.array_equal(before[name], after[name])}
    assert {"classifier.weight", "bert.encoder.layer.1.output.dense.weight"} <= moved
    assert "bert.embeddings.word_embeddings.weight" not in moved


class Rows:
    """As much of a dataset as a sampler asks for."""

    column_names = ("one", "other", "label")

    def __init__(self, lengths):
        self.lengths = lengths

    def __getitem__(self, name):
        return ["x" * (n if name == "one" else 1) for n in self.lengths]


def test_every_example_comes_once_an_epoch_among_others_of_its_length():
    lengths = random.Random(0).choices(range(1, 500), k=1003)
    sampler = ByLength(Rows(lengths), batch_size=8, drop_last=False, seed=3)
    first, again = list(sampler), list(ByLength(Rows(lengths), 8, False, seed=3))
    assert first == again and len(first) == len(sampler)
    assert sorted(i for batch in first for i in batch) == list(range(1003))
    spread = [np.ptp([lengths[i] for i in batch]) for batch in first]
    assert np.mean(spread) < 40  # at random it would be about 400
    sampler.set_epoch(1)
    assert list(sampler) != first


# adapters as doors -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sentence_adapter(base, tmp_path_factory) -> tuple[Path, Path]:
    """A tiny bi-encoder, and an adapter of it."""
    from sentence_transformers.sentence_transformer.losses import CoSENTLoss

    folder = tmp_path_factory.mktemp("bi")
    model = save_sentence_model(folder / "model", base, {})
    columns = kill_train.examples()
    columns["label"] = [float(i * 7 % 5 < 2) for i in range(60)]
    plan = Plan(str(model), "texts", rank=4, batch_size=4, max_tokens=32)
    fit(plan, columns, CoSENTLoss, folder / "adapter", folder / "work")
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
    sentence_adapter, undisturbed, tmp_path
):
    pairs = [("fever pain", "kidney drug"), ("drug dose", "drug test")]
    with pytest.raises(ValueError, match="is not calibrated.*make train"):
        load_backend(f"bi:{sentence_adapter[1]}")
    whole = tmp_path / "whole"
    shutil.copytree(sentence_adapter[1], whole)
    with (whole / model_files.CARD).open("a") as card:
        card.write("calibration = [0.5, 1.0, -2.0]\n")
    for spec in (f"bi:{whole}", f"cross:{undisturbed[1]}"):
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


def test_every_planned_adapter_is_shipped_small_and_whole():
    assert set(PLANS) <= set(SHIPPED)
    size = sum(path.stat().st_size for path in model_files.ADAPTERS.rglob("*") if path.is_file())
    assert size <= 30e6
    listed = (model_files.ADAPTERS / "README.md").read_text(encoding="utf-8")
    for name in SHIPPED:
        card = model_files.read_card(model_files.adapter_folder(name))  # its hash is checked
        assert card["data"] and card["minutes"] > 0 and card["peak_memory_mb"] > 0
        assert f"`{name}`" in listed, f"data/adapters/README.md does not say what {name} is"
        # No hash of its card covers the settings; of them, these say how its changes are added.
        settings = json.loads((model_files.ADAPTERS / name / "adapter_config.json").read_text())
        assert (settings["r"], settings["lora_alpha"]) == (card["rank"], 2 * card["rank"]), name
        others = ("alpha_pattern", "rank_pattern", "use_rslora", "use_dora", "fan_in_fan_out")
        assert not any(settings[it] for it in others), name
    for name, plan in PLANS.items():
        card = model_files.read_card(model_files.adapter_folder(name))
        assert card["rank"] == plan.rank and card["seed"] == plan.seed


def test_the_table_of_cards_has_what_each_cost():
    table = cards().set_index("adapter")
    assert list(table.index) == list(PLANS) and (table[["minutes", "memory_mb"]] > 0).all().all()
    assert table["kilobytes"].sum() < 10_000


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


def test_no_article_and_no_claim_is_on_two_sides(mirror):
    held_out = {finding.article for finding in findings.findings(held_out=True)}
    own = {finding.article for finding in findings.findings(held_out=False)}
    assert 100 < len(held_out) < len(own) and not held_out & own
    fit_on, kept = (part(calibration) for calibration in (False, True))
    assert not ({p.group for p in fit_on} - {""}) & {p.group for p in kept}
    quotes = {f.sentence for f in findings.findings(held_out=True)}
    assert not {p.a for p in fit_on + kept} & (quotes | {p.a for p in scifact(True)})
    of_label = Counter(pair.label for pair in kept)  # a third is on other matters
    assert of_label["neutral"] > len(kept) // 3 and all(pair.group for pair in kept)


def test_no_statement_alone_tells_its_label(mirror):
    """Of every wording as many are true as not: by its template nobody can guess."""
    statements = {w.template.split("{")[0] or w.template: w for w in findings.WORDINGS}
    assert len(statements) > 3
    counts = Counter(pair.label for pair in findings.held_out_pairs())
    assert counts["entailment"] == counts["contradiction"] > 300
    trained_on = [p for p in findings.training_pairs() if p.label != "neutral"]
    share = np.mean([p.label == "contradiction" for p in trained_on])
    assert abs(share - 0.5) < 0.02
    for word in ("did not", "higher", "lower", "similar"):
        own = [p.label for p in findings.held_out_pairs() if word in p.b.lower()]
        assert abs(np.mean([label == "contradiction" for label in own]) - 0.5) < 0.12, word
