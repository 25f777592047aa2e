"""What a run needs, before it starts: each missing thing in a line, what it stops, and the bill."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from lib import cost, doctor, notebooks
from lib.base import paths
from lib.base.files import write_manifest
from lib.datasets import SIZES
from lib.llm.connect import SET_ASIDE, connect, is_called
from lib.llm.recorder import RecordingMiss
from lib.pages.render import disk_of_a_paper_run
from lib.profiles import FIELDS, load_profile
from lib.search import choose
from lib.stages import ask, stages
from lib.studies.contradiction.evidence import HEADINGS
from lib.studies.main_tables.accuracy import same_setup
from tests.rehearsal import stand_ins
from tests.rehearsal.server import Generated, LogServer
from tests.tiny_models import save_nli

SHIPPED = paths.ROOT / "docs" / "my-paper.toml"
EXPANDER, FIRST = "Qwen/Qwen2.5-72B-Instruct", "meta-llama/Meta-Llama-3-8B-Instruct"


class Yes:
    """An engine that says yes."""

    def count(self, messages: list[dict]) -> int:
        return len(messages)

    def generate(self, body: dict) -> Generated:
        return Generated("yes", "stop", 1, 1)


def models_of(text: str) -> list[str]:
    """The models that a profile's file has addresses of."""
    return sorted(set(re.findall(r"=openai:([^@\"]+)@http", text)))


@pytest.fixture
def server(tmp_path):
    with LogServer(Yes(), tmp_path / "log.jsonl", models=models_of(SHIPPED.read_text())) as found:
        yield found


@pytest.fixture
def filled(own_folders, server, monkeypatch) -> Path:
    """The profile as it is shipped, with addresses, folders and weights of stand-ins."""
    monkeypatch.delenv("NCBI_EMAIL", raising=False)
    monkeypatch.setenv("CHR_MIRROR", str(own_folders / "mirror"))
    monkeypatch.setenv(SET_ASIDE, "")
    stand_ins.corpora(own_folders / "mirror")
    leaflet = "\n".join(f"{it.format('Zestoril')}\nSome text." for it in HEADINGS.values())
    (own_folders / "leaflets").mkdir()
    (own_folders / "leaflets" / "zestoril.txt").write_text(leaflet)
    towers = [stand_ins.tower(own_folders / it, i) for i, it in enumerate(("query", "article"))]
    of_evidence = [stand_ins.tower(own_folders / it, 2) for it in ("bge", "specter")]
    nli = save_nli(own_folders / "nli")
    text = SHIPPED.read_text()
    for was, now in (
        (r"http://localhost:\d+/v1", server.url),
        (r"data/leaflets", str(own_folders / "leaflets")),
        (r'email = ""', 'email = "somebody@example.org"'),
        (r'"pubmedbert"', f'"hub:{nli}"'),
        (r"# query_model = .*", f'query_model = "{towers[0]}"'),
        (r"# article_model = .*", f'article_model = "{towers[1]}"'),
        (r"(?m)^# (encoder = .bge-small=).*", rf'\1{of_evidence[0]}"'),
        (r"(?m)^# (sentence_encoder = .specter=).*", rf'\1{of_evidence[1]}"'),
        # No open data in a test: the bundled questions.
        (
            r'\nbase = "paper"\n',
            '\nbase = "paper"\nquestions = ["ddx-mini"]\nbenchmarks = ["ddx-mini"]\n',
        ),
    ):
        assert re.search(was, text), was
        text = re.sub(was, now, text)
    file = own_folders / "filled.toml"
    file.write_text(text)
    monkeypatch.setattr(doctor, "check_answers", only_pubmed)
    return file


def only_pubmed(url: str) -> None:
    """A network in which NCBI answers and the hub does not."""
    if url != doctor.EUTILS:
        raise doctor.DownloadError(f"{url} gives no answer. Next: connect to the network")


def run(monkeypatch, capsys, file: Path, *options: str) -> tuple[int, str]:
    """Exit status and what was printed of the command."""
    monkeypatch.setattr("sys.argv", ["doctor", "--profile", str(file), *options])
    return doctor.main(), capsys.readouterr().out


def missing(said: str) -> list[str]:
    return [line for line in said.splitlines() if line.startswith("MISSING")]


# the profile that is shipped ----------------------------------------------------------------------


def test_the_shipped_profile_is_the_papers_with_an_address_for_every_model():
    paper, shipped = load_profile("paper"), load_profile(str(SHIPPED))
    places = {"name", "title", "llm", "judge", "answerers", "evidence"}
    for field in set(FIELDS) - places:
        assert getattr(shipped, field) == getattr(paper, field), field
    asked = {stage.live: stage.uses for stage in stages(paper)}
    addressed = {stage.live.partition("@")[0]: stage.uses for stage in stages(shipped)}
    assert addressed == asked and len(asked) == 9
    assert models_of(SHIPPED.read_text()) == sorted(stage.model for stage in stages(paper))
    said = tomllib.loads(SHIPPED.read_text())
    assert {"leaflets" in said["evidence"]["name"], said["evidence"]["email"]} == {True, ""}
    assert {"workers", "devices", "encoder_options"} <= said.keys()


def test_the_shipped_profile_is_the_papers_setup_wherever_its_models_are():
    """What it measures is judged by what the paper prints; what differs in a model is not."""
    shipped = load_profile(str(SHIPPED))
    asked = {name: SIZES[name] for name in shipped.questions}
    where = {"device": ["cuda:1"], "query_model": "/models/MedCPT-Query-Encoder"}
    moved = replace(shipped, encoder_options=where, workers=2, backend="faiss")
    for profile in (shipped, moved):
        for method in ("standard", "hyde", "thinkqe_table3", "chr"):
            assert same_setup(profile, asked, expander=EXPANDER, method=method)
        # What the paper prints is judged in the budget that it prints.
        assert not same_setup(profile, asked, expander=EXPANDER, method="thinkqe")
    for field, other in (
        ("encoder_options", {"query_model": "/models/other"}),
        ("encoder_options", {"article_tokens": 64}),
        ("k", 3),
        ("methods", {"hyde": {"samples": 2}}),
        ("limit", 5),
    ):
        changed = replace(shipped, **{field: other})
        assert not same_setup(changed, asked, expander=EXPANDER, method="hyde"), field


def test_a_profile_with_everything_passes(filled, monkeypatch, capsys, server):
    status, said = run(monkeypatch, capsys, filled)
    assert status == 0 and not missing(said), said
    asked = [json.loads(line) for line in server.log.read_text().splitlines()]
    assert sorted(row["model"] for row in asked) == server.models
    assert all(row["max_tokens"] == 1 for row in asked)


# what is missing ----------------------------------------------------------------------------------


def without(pattern: str, by: str):
    return lambda file: file.write_text(re.sub(pattern, by, file.read_text(), flags=re.M))


ABSENT = {
    "a corpus": (
        lambda file: (file.parent / "mirror/medrag/textbooks/chunk/Textbook_01.jsonl").unlink(),
        r"corpus textbooks: .*Next: put a copy.*NOT RUN without it: every notebook",
    ),
    "a tower": (
        without(r'^query_model = ".*"', 'query_model = "/nowhere/tower"'),
        r"encoder /nowhere/tower: .*Next: .*NOT RUN without it: every notebook",
    ),
    "a hub that answers": (
        without(r'^query_model = ".*"', 'query_model = "ncbi/a-tower"'),
        r"encoder ncbi/a-tower: no folder, and .*Next: connect.*without it: every notebook",
    ),
    "the NLI model": (
        without(r'^nli = ".*?"', 'nli = "hub:/nowhere/nli"'),
        r"NLI model /nowhere/nli: .*Next: .*NOT RUN without it: 09_contradictions",
    ),
    "the encoder of sentences": (
        without(r"^(sentence_encoder = .specter)=.*", r'\1=/no/sp"'),
        r"encoder /no/sp: .*Next: .*NOT RUN without it: 09_contradictions",
    ),
    "leaflets": (
        lambda file: (file.parent / "leaflets" / "zestoril.txt").unlink(),
        r"leaflets in .*: put TGA leaflets as .*NOT RUN without it: 09_contradictions",
    ),
    "an e-mail": (
        without(r"^email = .*", 'email = ""'),
        r"PubMed: NCBI asks who asks: .*email in the profile.*without it: 09_contradictions",
    ),
    "an address": (
        without(rf"(openai:{FIRST})@[^\"]*", r"\1"),
        rf"server of {FIRST}: no address. Next: .*@http.*without it: answers of Llama-3-8B",
    ),
    "another model's server": (
        without(rf"openai:{FIRST}@", "openai:org/other@"),
        r"server of org/other: .*404.*without it: answers of Llama-3-8B-Instruct",
    ),
}


@pytest.mark.parametrize("what", ABSENT)
def test_what_is_missing_is_one_line_with_what_to_do_and_what_it_stops(
    what, filled, monkeypatch, capsys
):
    take, says = ABSENT[what]
    take(filled)
    monkeypatch.delenv("CHR_LLM_URL", raising=False)
    status, said = run(monkeypatch, capsys, filled)
    (line,) = missing(said)
    assert status == 1 and re.search(says, line), line


def test_a_server_that_is_down_or_answers_as_another_model_is_named(filled, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(doctor.LLMError, match=r"Connection error.*Next: .*curl"):
            ask("org/model", f"http://127.0.0.1:{taken.getsockname()[1]}/v1")
    other = LogServer(Yes(), tmp_path / "other.jsonl", author="Small")
    says = "answers as 'Small as org/model', not as org/model.*Next"
    with other, pytest.raises(doctor.LLMError, match=says):
        ask("org/model", other.url)
    with LogServer(Yes(), tmp_path / "named.jsonl", author="Small", models=["org/model"]) as named:
        assert ask("org/model", named.url)


@pytest.mark.parametrize(
    ("named", "said", "same"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b-instruct", True),
        ("gpt-4o", "gpt-4o-2024-08-06", True),
        ("gpt-4", "gpt-4o", False),
        ("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-72B-Instruct", False),
    ],
)
def test_a_model_is_called_by_its_name_without_owner_or_with_a_date(named, said, same):
    assert is_called(named, said) == same


def test_weights_that_a_row_of_the_tables_names_are_looked_for(monkeypatch):
    def nobody(_):
        raise doctor.DownloadError("no answer")

    monkeypatch.setattr(doctor, "check_answers", nobody)
    found = {(need.what.split(",")[0], need.stops) for need in doctor.models(load_profile("rag2"))}
    assert ("ncbi/MedCPT-Cross-Encoder", "the row rag2_unfiltered") in found
    assert ("data/own/rag2-flan-t5", "the row rag2") in found
    assert ("allenai/specter", "the row medrag_rrf4") in found


def test_a_disk_or_a_limit_that_is_too_small_is_said(filled, monkeypatch, capsys):
    import resource
    import shutil

    usage = shutil.disk_usage(filled.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    monkeypatch.setattr(resource, "getrlimit", lambda which: (200, 300))
    status, said = run(monkeypatch, capsys, filled)
    assert status == 1 and len(missing(said)) == 2
    assert re.search(r"disk: .*free\. Next: .*CHR_CACHE", said)
    assert re.search(r"open files: 300 .*Next: .*--nofile=\d+", said)


def test_only_what_this_run_will_not_make_again_is_off_its_disk(filled):
    """Of the cache its own texts, and its encoder's vectors of passages, as it stores them."""
    p = load_profile(str(filled))
    bill = cost.bill(p, gpus=1)
    bill.loc[bill["what"] == "vectors", "disk_gb"] = 0.5

    def to_come() -> float:
        return float(re.match(r"[\d.]+", doctor._disk(p, bill))[0])

    def keep(name: str, **settings) -> None:
        with open(paths.cache("vectors") / name, "wb") as file:
            file.truncate(200_000_000)  # of zeros: it takes no room
        made = {"encoder": "medcpt|x|y", "tower": "article", "dtype": "float16", "dim": 32}
        write_manifest(Path(file.name), rows=1, settings=made | settings)

    whole = to_come()
    (paths.cache("pubmed") / "other.bin").write_bytes(b"x")
    for i, other in enumerate(({"encoder": "minilm|x"}, {"tower": "query"}, {"dtype": "float32"})):
        keep(f"{i}.npy", **other)
    assert to_come() == whole > 0.5
    keep("mine.npy")
    assert to_come() == pytest.approx(whole - 0.2, abs=0.11)


@pytest.mark.parametrize(
    ("changes", "index"),
    [
        ({}, (0, "torch")),  # float16, read where it is mapped
        ({"vectors": "float32"}, (3072, "torch")),
        ({"backend": "faiss", "vectors": "float32"}, (0, "faiss")),
        ({"backend": "int8"}, (776, "int8")),
        ({"backend": "compressed"}, (96, "compressed")),
        ({"backend": "auto"}, (96, "compressed")),
    ],
)
def test_memory_is_what_the_chosen_index_keeps(changes, index, monkeypatch):
    monkeypatch.delenv("CHR_MIRROR", raising=False)
    bytes_each, name = index
    p = replace(load_profile("paper"), devices=("cpu",), **changes)
    needed = 4 + 54_227_000 * bytes_each / 1e9
    for share, fits in ((1.01, True), (0.99, False)):
        there = int(share * needed * 1e9)
        for module in (doctor, choose):
            monkeypatch.setattr(module, "memory", lambda there=there: there)
        need = doctor.machine(p, cost.bill(p, 1))[1]
        assert bool(need.found) == fits and f"for the index ({name})" in need.found + need.missing
        assert f"needed are {needed:.1f} GB" in need.found + need.missing


def test_a_model_in_this_process_is_looked_for_and_priced(filled, monkeypatch, capsys):
    """vLLM that is not installed, weights that are not there, and those that are."""
    weights = filled.parent / "Qwen2.5-7B-Instruct"
    weights.mkdir()
    (weights / "config.json").write_text("{}")
    (weights / "model.safetensors").write_text("x")
    for name, live in (
        (EXPANDER, f"vllm:{EXPANDER}?tensor_parallel_size=4"),
        (FIRST, "transformers:/nowhere/weights"),
        ("Qwen/Qwen2.5-7B-Instruct", f"transformers:{weights}"),
    ):
        without(rf'openai:{name}@[^"]*', live)(filled)
    monkeypatch.setitem(sys.modules, "vllm", None)
    status, said = run(monkeypatch, capsys, filled)
    vllm, absent = missing(said)
    assert re.search(rf"model {EXPANDER}: vLLM is not installed.*make vllm.*texts of every", vllm)
    assert re.search("model /nowhere/weights: there is no such folder.*NOT RUN.*Llama-3-8B", absent)
    assert re.search("ok +model Qwen2.5-7B-Instruct: in a folder", said) and status == 1
    bill = cost.bill(load_profile(str(filled)), gpus=1).set_index("what")
    served = cost.bill(load_profile(str(SHIPPED)), gpus=1).set_index("what")
    spent = ["hours", "million_in", "million_out"]
    share = cost.questions(load_profile(str(filled))) / cost.questions(load_profile(str(SHIPPED)))
    for name, recorded_as in ((EXPANDER, EXPANDER), ("Qwen/Qwen2.5-7B-Instruct", weights.name)):
        whole = served.loc[name, spent] * share
        assert bill.loc[recorded_as, spent].tolist() == pytest.approx(whole.tolist(), rel=1e-3)


def test_the_bill_counts_each_model_and_is_priced(filled, monkeypatch, capsys):
    prices = ("--gpu-hour", "2", "--million-in", "0.5", "--million-out", "3", "--gpus", "2")
    status, said = run(monkeypatch, capsys, filled, *prices)
    assert status == 0 and EXPANDER in said and "PubMed" in said and "NLI" in said
    bill = cost.bill(load_profile(str(SHIPPED)), gpus=2).set_index("what")
    priced = doctor.priced(bill.reset_index(), {"gpu_hour": 2, "million_in": 0.5, "million_out": 3})
    row = priced.set_index("what").loc[EXPANDER]
    assert row["gpu"] == pytest.approx(2 * row["hours"] * 4)
    assert row["tokens"] == pytest.approx(0.5 * row["million_in"] + 3 * row["million_out"])
    one = cost.bill(load_profile(str(SHIPPED)), gpus=1).set_index("what")
    assert one.loc["vectors", "hours"] == pytest.approx(2 * bill.loc["vectors", "hours"])


def test_bundled_and_replayed_profiles_need_nothing(own_folders, monkeypatch, capsys):
    monkeypatch.delenv("CHR_MIRROR", raising=False)
    monkeypatch.setattr(doctor, "check_answers", pytest.fail)
    status, said = run(monkeypatch, capsys, "mini")
    assert status == 0 and not missing(said)


# a run --------------------------------------------------------------------------------------------


def test_a_run_leaves_out_by_name_what_has_not_what_it_needs(filled, monkeypatch, capsys):
    without(rf"(openai:{FIRST})@.*", r'\1@http://127.0.0.1:9/v1"')(filled)
    (filled.parent / "leaflets" / "zestoril.txt").unlink()
    ran = []
    monkeypatch.setattr(notebooks, "run", lambda name, *_: ran.append(name))
    monkeypatch.setattr(notebooks, "measure_benchmarks", lambda *_: None)
    notebooks.run_all(str(filled), {})
    said = capsys.readouterr().err
    assert set(notebooks.ORDER) - set(ran) == {"09_contradictions"}
    assert "[09_contradictions] NOT RUN: leaflets in" in said
    assert (
        f"NOT RUN: answers of Llama-3-8B-Instruct, but what is recorded: server of {FIRST}" in said
    )
    # The notebooks' processes are told, and only of this server.
    assert list(json.loads(os.environ[SET_ASIDE])) == [f"openai:{FIRST}@http://127.0.0.1:9/v1"]
    llms = {s["name"]: connect(s["llm"]) for s in load_profile(str(filled)).answerers if "llm" in s}
    with pytest.raises(RecordingMiss, match=f"{FIRST} is not asked: .*Next: .*curl"):
        llms["Llama-3-8B-Instruct"].generate([{"role": "user", "content": "x"}])
    (reply,) = llms["Gemma-2-9B-It"].generate([{"role": "user", "content": "x"}])
    assert reply.text == "yes"


def test_a_run_that_could_make_nothing_ends_before_anything_dear(filled, monkeypatch):
    (filled.parent / "mirror/medrag/textbooks/chunk/Textbook_01.jsonl").unlink()
    monkeypatch.setattr("lib.index_build.build_index", pytest.fail)
    with pytest.raises(RuntimeError, match=r"corpus textbooks: .*Next: put a copy"):
        notebooks.run_all(str(filled), {})


def test_a_model_without_an_address_is_not_run_and_what_is_recorded_of_it_is_read(
    server, tmp_path, monkeypatch
):
    monkeypatch.delenv("CHR_LLM_URL", raising=False)
    monkeypatch.delenv(SET_ASIDE, raising=False)
    spec, asked = (
        f"record:{tmp_path / 'kept.jsonl'}=openai:{FIRST}",
        [{"role": "user", "content": "x"}],
    )
    with connect(f"{spec}@{server.url}") as llm:
        llm.generate(asked)
    absent = connect(spec)
    assert absent.name == FIRST and absent.generate(asked)[0].text == "yes"
    with pytest.raises(RecordingMiss, match=rf"{FIRST} is not asked: .*Next: write .*@http"):
        absent.generate([{"role": "user", "content": "y"}])


def test_the_index_of_words_is_billed_by_its_passages_where_it_is_searched():
    p = load_profile("paper")
    measured = pd.read_csv(paths.committed("scale") / "words.csv")
    ours = measured[measured["engine"] == "ours"].iloc[-1]
    gb = ours["gb"] * cost.rows(p) / ours["passages"] * cost.PASSAGE * 4 / ours["characters"]
    told = cost.bill(p, 1).set_index("what")["disk_gb"]
    assert told["words"] == pytest.approx(gb)
    assert "words" not in set(cost.bill(replace(p, skip=("bm25", "rrf")), 1)["what"])
    disk = disk_of_a_paper_run()
    assert f"{disk['all']} GB of disk" in p.needs and f"words {disk['words']}" in p.needs
