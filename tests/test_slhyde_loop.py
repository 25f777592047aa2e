"""SL-HyDE's loop by a file of settings: tiny models through all of it, killed and resumed."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lib import beir
from lib.base import paths
from lib.base.files import read_jsonl
from lib.embed import load_encoder
from lib.llm.prompts import load_prompt
from lib.model_files import WEIGHTS
from tests.tiny_models import NUMBERED, WORDS, save_bert, save_causal, save_sentence_model
from tools import slhyde_loop
from tools.causal import Causal, Penalised
from tools.slhyde_loop import STAGES, Run, train_loop, write_stages
from tools.training import WHOLE

SETTINGS = """
corpus = "{home}/corpus.jsonl"
documents = 20
shown_tokens = 12
out = "{home}/{name}"

[queries]
model = "{home}/writer"
temperature = 1.0
max_tokens = 6
batch = 3

[passages]
model = "{home}/writer"
each = 2
temperature = 1.2
top_k = 50
presence_penalty = 1.0
max_tokens = 8
batch = 3

[generator]
rank = 2
learning_rate = 1e-2
batch_size = 4
save_steps = 2

[tuned]
temperature = 0.7
max_tokens = 8

[retriever]
base = "{home}/base"
query_prompt = "sign of "
learning_rate = 1e-2
batch_size = 4
max_tokens = 32
negatives = 3
first_rank = 2
last_rank = 12
save_steps = 2
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A corpus in JSON lines, a tiny writer and a tiny sentence model."""
    home = tmp_path_factory.mktemp("loop")
    save_causal(home / "writer")
    save_sentence_model(home / "base", save_bert(home / "bert", seed=0), {})
    generator, rows = random.Random(1), []
    for i in range(24):
        text = " ".join(generator.sample(WORDS, 5) + generator.sample(NUMBERED, 8))
        rows.append({"id": f"d{i}", "title": WORDS[i % 9], "contents": text})
    rows.append({**rows[0], "id": "again"})
    (home / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return home


@pytest.fixture(autouse=True, scope="module")
def own_cache(home):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHR_CACHE", str(home / "cache"))
        yield


def write_loop(file: Path) -> None:
    """All stages of a loop's writer."""
    write_stages(Run(file), STAGES, ["all"])


def settings(home: Path, name: str, more: str = "") -> Path:
    """A file of settings whose folder is ``name``; ``more`` is added to the retriever's."""
    file = home / f"{name}.toml"
    file.write_text(SETTINGS.format(home=home, name=name) + more)
    return file


@pytest.fixture(scope="module")
def written(home) -> Path:
    """What the writer's command leaves that was killed among the passages, and then goes on."""
    file, out = settings(home, "killed"), home / "killed"
    command = [sys.executable, "-m", "tools.slhyde_writer", "--loop", str(file)]
    child = subprocess.Popen(command, cwd=paths.ROOT, stderr=subprocess.DEVNULL)
    while child.poll() is None and not (out / "queries.jsonl.gz").exists():
        time.sleep(0.002)
    child.kill()
    assert child.wait() < 0 and not (out / "tuned.jsonl.gz").exists()
    write_loop(file)
    return out


def stopped_once(monkeypatch, work, steps: int):
    """Run ``work`` with Ctrl-C at a step of training, then in peace."""
    import transformers

    count, step = [0], transformers.Trainer.training_step

    def stops(self, *arguments, **options):
        count[0] += 1
        if count[0] > steps:
            raise KeyboardInterrupt
        return step(self, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(transformers.Trainer, "training_step", stops)
        with pytest.raises(KeyboardInterrupt):
            work()
    return work()


def test_a_killed_writer_goes_on_to_the_same_texts_and_nothing_is_written_twice(
    home, written, monkeypatch
):
    write_loop(settings(home, "whole"))
    for name in ("queries", "passages", "tuned"):
        one, other = (list(read_jsonl(f / f"{name}.jsonl.gz")) for f in (written, home / "whole"))
        assert one == other and len({row["pid"] for row in one}) == 20
    adapters = [(f / "generator" / WEIGHTS).read_bytes() for f in (written, home / "whole")]
    assert adapters[0] == adapters[1]
    rows = list(read_jsonl(written / "passages.jsonl.gz"))
    assert all(len(row["passages"]) == 2 for row in rows)
    assert all(row["chosen"] == int(np.argmin(row["ranks"])) for row in rows)
    assert any(row["passages"][0] != row["passages"][1] for row in rows)
    monkeypatch.setattr(slhyde_loop, "open_writer", None)
    monkeypatch.setattr(slhyde_loop, "fit", None)
    write_loop(settings(home, "whole"))
    file = settings(home, "whole")
    file.write_text(file.read_text().replace("temperature = 0.7", "temperature = 0.8"))
    with pytest.raises(TypeError):  # other settings: this stage is to be done again
        write_loop(file)


def test_negatives_are_of_the_ranks_by_brute_force_and_every_text_has_its_prompt(home, written):
    file = settings(home, "killed", 'passage_prompt = "test: "\nwith_passage = true\n')
    run = Run(file)
    made = slhyde_loop.examples_of(run)
    base = load_encoder(f"st:{home / 'base'}", max_tokens=32)
    texts = [document.text for document in run.sample.values()]
    assert len(texts) == 20 and len(run.corpus) == 24  # one document comes twice
    assert made["positive"] == [f"test: {text}" for text in texts]
    stored = base.encode([f"test: {text}" for text in texts], "article", progress=False)
    passages = [row["passage"].strip() for row in run.rows("tuned")]
    for place, anchor in enumerate(made["anchor"]):
        assert anchor == f"sign of {run.rows('queries')[place]['query']}"
        scores = stored @ base.encode([anchor], "query", progress=False)[0]
        drawn = {made[f"negative_{i}"][place].removeprefix("test: ") for i in (1, 2, 3)}
        assert len(drawn) == 3 and texts[place] not in drawn
        for text in drawn:
            score = scores[texts.index(text)]
            assert sum(scores > score + 1e-5) <= 11 and sum(scores >= score - 1e-5) >= 2
        beside = f"test: {passages[place]}" if passages[place] else anchor
        assert made["written"][place] == beside


def evaluated(home: Path, run: Run, encoder: str) -> pd.DataFrame:
    """What ``lib.beir`` finds for the loop's own queries among its documents."""
    folder = home / "own-set"
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    rows = run.rows("queries")
    asked = [{"_id": f"q{row['pid']}", "text": f"{row['query']} {row['pid']}"} for row in rows]
    known = [{"_id": pid, "text": document.text} for pid, document in run.corpus.items()]
    for name, lines in (("queries", asked), ("corpus", known)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    judged = "".join(f"q{row['pid']}\t{row['pid']}\t1\n" for row in rows)
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    beir.main([str(folder), "--encoder", encoder, "--out", str(home / "beir")])
    return pd.read_csv(home / "beir" / "table.csv").set_index("metric")


@pytest.mark.parametrize(
    "more",
    ["rank = 0\nat_once = 5\n", "rank = 2\nwith_passage = true\n"],
    ids=["all weights, query alone", "an adapter, query and passage"],
)
def test_a_stopped_retriever_comes_to_the_same_encoder_and_beir_reads_it(
    more, home, written, monkeypatch
):
    outs = []
    for name in ("stopped", "unstopped"):
        shutil.rmtree(home / name, ignore_errors=True)
        shutil.copytree(written, home / name, ignore=shutil.ignore_patterns("train"))
        file = settings(home, name, more)
        if name == "stopped":
            outs.append(stopped_once(monkeypatch, lambda file=file: train_loop(file), 4))
        else:
            outs.append(train_loop(file))
    one, other = ((out / WHOLE).read_bytes() for out in outs)
    assert one == other
    texts = ["fever pain", "kidney drug"]
    base = load_encoder(f"st:{home / 'base'}", query_prompt="sign of ")
    tuned = load_encoder(f"st:{outs[0]}")
    rows = tuned.encode(texts, "query", progress=False)
    assert np.abs(rows - base.encode(texts, "query", progress=False)).max() > 1e-3
    if "rank = 2" in more:
        adapted = f"st:{home / 'base'}+{home / 'stopped' / 'retriever'}"
        beside = load_encoder(adapted, query_prompt="sign of ")
        assert np.allclose(rows, beside.encode(texts, "query", progress=False), atol=1e-5)
    table = evaluated(home, Run(home / "stopped.toml"), f"st:{outs[0]}")
    assert table.loc["recall@100", "value"] == 100 and table.loc["ndcg@10", "n"] == 20
    monkeypatch.setattr(slhyde_loop, "fit", None)
    assert train_loop(home / "stopped.toml") == outs[0]  # nothing is trained again


def test_a_presence_penalty_keeps_a_reply_from_saying_a_token_again(home):
    from tools.causal import open_causal

    tiny: Causal = open_causal(str(home / "writer"))
    asked = [[{"role": "user", "content": f"word{i} word2"}] for i in range(4)]
    free, held = (Penalised(20, 1.0, presence_penalty=penalty) for penalty in (0.0, 1e4))
    replies = [text.split() for text in tiny.write(asked, held)]
    assert all(len(words) == len(set(words)) for words in replies)
    plain = [text.split() for text in tiny.write(asked, free)]
    assert any(len(words) > len(set(words)) for words in plain)


def test_settings_that_are_wrong_are_named(home, written):
    for wrong, says in (
        ("negatives = 3\nnegativs = 3\n", "negativs"),
        ("negatives = 30\n", "30 negatives cannot be drawn from ranks 2 to 12"),
        ("negatives = 3\nwith_passage = true\nat_once = 4\n", "at_once is for queries alone"),
    ):
        file = settings(home, "killed")
        file.write_text(file.read_text().replace("negatives = 3\n", wrong))
        with pytest.raises(ValueError, match=says):
            Run(file)
    file.write_text(SETTINGS.format(home=home, name="none").replace("= 20", "= 99"))
    with pytest.raises(FileNotFoundError, match=r"tools.slhyde_writer --loop .* queries"):
        train_loop(file)
    with pytest.raises(ValueError, match="24 different documents .* asks for 99"):
        write_loop(file)
    untitled = home / "untitled.jsonl"
    untitled.write_text('{"id": "a", "text": "fever"}\n')
    told = SETTINGS.format(home=home, name="none").replace("documents = 20", "documents = 1")
    file.write_text(told.replace("corpus.jsonl", untitled.name))
    with pytest.raises(ValueError, match="query.txt names title, and no document has one"):
        write_loop(file)


def test_the_papers_file_has_the_papers_values_and_its_prompts_fit():
    """What METHODS says of section 3.3 and 5.1, and prompts that need no title."""
    loop = slhyde_loop.Loop.model_validate(
        tomllib.loads((paths.ROOT / "docs" / "slhyde-paper.toml").read_text(encoding="utf-8"))
    )
    assert (loop.documents, loop.passages.each, loop.retriever.negatives) == (10_000, 5, 7)
    assert (loop.generator.learning_rate, loop.retriever.learning_rate) == (1e-5, 1e-5)
    assert (loop.retriever.first_rank, loop.retriever.last_rank) == (5, 100)
    retrievers = pd.read_csv(paths.DATA / "retrievers.csv").set_index("name")
    bge = retrievers.loc["BGE(large)"]
    assert f"st:{loop.retriever.base}" == bge["encoder"]
    assert loop.retriever.query_prompt == bge["query_prompt"]
    folder = paths.ROOT / loop.prompts
    asked = load_prompt("passage", folder).messages(query="什么是痛风？")
    assert asked == load_prompt("cmirb_question").messages(question="什么是痛风？")
    for name in ("query", "passage_from_document"):
        assert not slhyde_loop.names(load_prompt(name, folder), "title")
    assert all(row["question"].endswith("？") for row in read_jsonl(folder / "examples.jsonl"))
