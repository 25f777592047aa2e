"""Recordings: the same bytes whatever happened on the way, replayed exactly, and loud on a miss."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from lib.base.files import read_jsonl, read_manifest
from lib.base.paths import RECORDINGS, ROOT
from lib.llm.chat import REFERENCE, Reply, ScriptedChat, ask_json, in_parallel, ledger, sample_seed
from lib.llm.connect import connect
from lib.llm.openai_chat import OpenAIChat
from lib.llm.recorder import LONG, Recorder, RecordingMiss, recording_key
from tests.fault_server import FaultServer
from tests.kill_record import Echo

ASK = [{"role": "user", "content": "What is gout?"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}


class Counting(Echo):
    """Echo at once, keeping what it was asked; ``first`` numbers its first text."""

    def __init__(self, first: int = 1):
        self.first = first
        self.asked: list[tuple[int, int]] = []

    def generate(self, messages, *, n=1, seed=0, **options):
        text = f"{messages[0]['content']} {self.first + len(self.asked)}"
        self.asked.append((n, seed))
        return [Reply(f"{text} {sample_seed(seed, i)}", "stop", 5, 2, 0.5, "v1") for i in range(n)]


@pytest.fixture
def file(tmp_path) -> Path:
    return tmp_path / "r.jsonl"


def lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def record(file: Path, seeds: int = 3, model: Echo | None = None) -> list[str]:
    """The texts of one question with some seeds, recorded where they are not."""
    with Recorder(model or Counting(), file) as llm:
        return [llm.generate(ASK, seed=seed)[0].text for seed in range(seeds)]


# record and replay -------------------------------------------------------------------------------


def test_a_replay_gives_back_every_field_and_asks_nobody(file):
    with FaultServer("cut", refuse=("response_format",)) as server:
        with Recorder(OpenAIChat("m", server.url), file) as live, live.tag("chr", "q1"):
            said = live.generate(ASK, n=2, temperature=0.5, stop="x", schema=SCHEMA)
            again = live.generate(ASK, n=2, temperature=0.5, stop=["x"], schema=SCHEMA)
        asked = len(server.bodies)
    replay = connect(f"replay:{file}")
    with replay.tag("chr", "q1"):
        told = replay.generate(ASK, n=2, temperature=0.5, stop="x", schema=SCHEMA)
    assert replay.name == live.name == "m" and len(server.bodies) == asked
    rounded = [replace(r, latency_s=round(r.latency_s, 4)) for r in said]
    assert again == said and told == said == rounded
    assert said[0].note == "schema not enforced" and said[0].model == "served-name"
    assert ledger(told).equals(ledger(said))


def test_neither_url_nor_key_is_written(file, monkeypatch):
    monkeypatch.setenv("CHR_LLM_KEY", "sesame-1234")
    with FaultServer() as server, Recorder(OpenAIChat("m", server.url), file) as llm:
        llm.generate(ASK)
        written = "".join(path.read_text() for path in file.parent.iterdir())
    assert "gout" in written and "fine" in written
    for secret in ("sesame", "127.0.0.1", str(server.server_port)):
        assert secret not in written


def test_choices_are_recorded_and_replayed_apart_from_text(file):
    likely = {"B": -0.5, "A": -1.0}
    with FaultServer(likely=likely) as s, Recorder(OpenAIChat("m", s.url), file) as live:
        said = [live.generate(ASK, **options) for options in ({}, {"choices": "AB"})]
    replay = connect(f"replay:{file}")
    assert [replay.generate(ASK), replay.generate(ASK, choices=["A", "B"])] == said
    assert json.loads(said[1][0].text) == {"A": -1.0, "B": -0.5} and said[0][0].text == "fine"
    with pytest.raises(RecordingMiss):
        replay.generate(ASK, choices=["B", "A"])


def test_a_long_request_is_kept_by_its_key_alone_and_still_told_apart(file):
    def ask(size: int) -> list[dict]:
        return [{"role": "user", "content": "passage " * (size // 8)}]

    with Recorder(Counting(), file) as llm:
        short, long, longer = (llm.generate(ask(n))[0] for n in (LONG // 2, LONG, 2 * LONG))
    assert sorted("request" in line for line in lines(file)) == [False, False, True]
    replay = Recorder(None, file, "replay")
    for size, said in ((LONG // 2, short), (LONG, long), (2 * LONG, longer)):
        assert replay.generate(ask(size)) == [said]
    with pytest.raises(RecordingMiss):
        replay.generate(ask(3 * LONG))


def test_the_key_is_stable_and_every_part_of_the_request_counts(file):
    request = {"options": {"stop": [], "seed": 0}, "messages": [{"role": "user", "content": "é"}]}
    text = '["m",{"messages":[{"content":"é","role":"user"}],"options":{"seed":0,"stop":[]}},2]'
    assert recording_key("m", request, 2) == hashlib.sha256(text.encode()).hexdigest()
    asks = [
        {},
        {"temperature": 0.5},
        {"top_p": 0.5},
        {"max_tokens": 9},
        {"seed": 1},
        {"stop": "x"},
        {"schema": SCHEMA},
        {"n": 2},
        {"choices": ["A"]},
    ]
    with Recorder(Counting(), file) as llm:
        for options in asks:
            llm.generate(ASK, **options)
        llm.generate([{"role": "system", "content": "What is gout?"}])
        llm.generate(ASK, temperature=0, top_p=1)  # the defaults: known
    assert len({line["key"] for line in lines(file)}) == len(lines(file)) == len(asks) + 1


def test_only_missing_samples_are_asked_for_each_with_its_own_seed(file):
    model = Counting()
    with Recorder(model, file) as llm:
        two = llm.generate(ASK, n=2, seed=4)
        four = llm.generate(ASK, n=4, seed=4)
    assert four[:2] == two and llm.asked == 4
    assert model.asked == [(2, 4), (1, sample_seed(4, 2)), (1, sample_seed(4, 3))]


def test_refresh_asks_once_more_for_what_it_is_asked_and_keeps_the_rest(file):
    before = record(file, 2)
    model = Counting(first=9)
    asks_again = Recorder(model, file, "refresh")
    after = [asks_again.generate(ASK, seed=1)[0].text for _ in range(2)]
    assert after[0] == after[1] != before[1] and len(model.asked) == 1
    killed = Recorder(None, file, "replay")  # nobody has sorted the file
    assert [killed.generate(ASK, seed=s)[0].text for s in range(2)] == [before[0], after[0]]
    asks_again.close()
    assert record(file, 2) == [before[0], after[0]] and len(lines(file)) == 2


def test_a_miss_names_method_question_and_the_command_that_records_it(file):
    record(file, 1)
    replay = Recorder(None, file, "replay")
    with replay.tag(method="chr", qid="q9"), pytest.raises(RecordingMiss) as miss:
        replay.generate(ASK, n=2)
    for part in ("chr", "q9", "sample 1", "echo", f"connect('record:{file.name}=openai:echo')"):
        assert part in str(miss.value)
    absent = Recorder(None, file.with_name("absent.jsonl"), "replay")
    with pytest.raises(RecordingMiss, match="absent.jsonl.*=small"):
        absent.generate(ASK)
    assert sorted(p.name for p in file.parent.glob("*.jsonl")) == ["r.jsonl", "r.times.jsonl"]


def test_reference_text_has_an_author_and_neither_tokens_nor_latency(file):
    with Recorder(ScriptedChat([{"match": "gout", "text": '{"a": "Gout."}'}]), file) as llm:
        ask_json(llm, ASK, SCHEMA)
    (line,) = lines(file)
    assert line["author"] == line["model"] == REFERENCE
    assert line["reply"]["prompt_tokens"] is line["reply"]["output_tokens"] is None
    replay = Recorder(None, file, "replay")
    told = ask_json(replay, ASK, SCHEMA)
    assert told.value == {"a": "Gout."} and told.replies[0].latency_s is None
    with pytest.raises(RecordingMiss, match=r"connect\('small'\)"):
        replay.generate(ASK, seed=1)


def test_a_file_with_several_models_wants_a_name(file):
    record(file, 1)
    record(file, 1, ScriptedChat([{"match": "", "text": "b"}]))
    with pytest.raises(ValueError, match="echo.*reference text.*name="):
        Recorder(None, file, "replay")
    assert Recorder(None, file, "replay", name=REFERENCE).generate(ASK)[0].text == "b"


def test_several_packed_files_of_one_pattern_are_one_recording(file, tmp_path):
    said = record(file, 2)
    for i, line in enumerate(file.read_bytes().splitlines(keepends=True)):
        (tmp_path / f"packed-{i}.jsonl.gz").write_bytes(gzip.compress(line))
    both = Recorder(None, tmp_path / "packed-*.jsonl.gz", "replay")
    assert [both.generate(ASK, seed=seed)[0].text for seed in range(2)] == said
    with pytest.raises(FileNotFoundError, match="none-"):
        Recorder(None, tmp_path / "none-*.jsonl", "replay")


@pytest.mark.parametrize(
    ("model", "name", "mode"),
    [
        (None, "r.jsonl", "record"),
        (Counting(), "r.jsonl", "replay"),
        (Counting(), "r.gz", "record"),
    ],
)
def test_a_mode_that_makes_no_sense_is_refused(model, name, mode, tmp_path):
    with pytest.raises(ValueError, match=r"mode|replayed"):
        Recorder(model, tmp_path / name, mode)


# several at once ---------------------------------------------------------------------------------


def test_two_threads_that_miss_the_same_get_the_same_text(file):
    both = threading.Barrier(2)

    class Meeting(Counting):
        def generate(self, messages, **options):
            both.wait(timeout=10)
            return super().generate(messages, **options)

    model = Meeting()
    with Recorder(model, file) as llm:
        first, second = in_parallel(lambda _: llm.generate(ASK)[0], range(2), workers=2)
    assert len(model.asked) == 2 and first == second and len(lines(file)) == 1


def test_two_recorders_on_one_file_lose_nothing_and_give_what_was_written_first(file):
    one, two = (Recorder(Counting(first), file) for first in (1, 9))
    texts = []
    for seed in range(4):
        texts += [llm.generate(ASK, seed=seed)[0].text for llm in (one, two)]
    one.close()  # puts another file in the place of the one that the other has read
    texts += [llm.generate(ASK, seed=9)[0].text for llm in (two, one)]
    two.close()
    assert texts[::2] == texts[1::2] and len(lines(file)) == 5
    keys = [line["key"] for line in lines(file)]
    assert keys == sorted(keys)


def test_a_recorder_outlives_its_folder(tmp_path):
    folder = tmp_path / "short-lived"
    llm = Recorder(Counting(), folder / "r.jsonl")
    llm.generate(ASK)
    shutil.rmtree(folder)
    llm.close()
    assert not folder.exists()


# kills and damage --------------------------------------------------------------------------------


def test_a_reply_is_on_the_disk_before_it_is_given(file, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda _: synced.append(file.exists() and file.read_text()))
    llm = Recorder(Counting(), file)
    reply = llm.generate(ASK)[0]
    assert json.dumps(reply.text) in synced[-1]
    llm.close()


@pytest.mark.fault("numbers", "A run that records is killed, and at times its file is cut")
def test_killed_at_any_moment_and_resumed_the_file_is_the_same(fault, tmp_path):
    def run(name: str, kills: int) -> dict:
        done = subprocess.run(
            [sys.executable, "-m", "tests.kill_record", tmp_path / name, str(kills), "1"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    right, killed = run("undisturbed.jsonl", 0), run("killed.jsonl", 20)
    assert killed["hit"] == 20 and killed["torn"] > 3 and killed["kept"] > 30
    wrong = killed["sha256"] != right["sha256"]
    fault.came(tries=20, wrong=wrong, said="r.jsonl: dropped a torn last line (a killed run)")


@pytest.mark.parametrize("left", [1, 40, -1])
def test_a_torn_last_line_is_dropped_with_a_message_and_recorded_again(left, file):
    said = record(file)
    whole = file.read_bytes()
    start = whole[:-1].rfind(b"\n") + 1
    file.write_bytes(whole[: start + left] if left > 0 else whole[:left])
    before = file.read_bytes()
    with pytest.warns(UserWarning, match="r.jsonl: dropped a torn last line"):
        Recorder(None, file, "replay")
    assert file.read_bytes() == before  # replay never writes
    model = Counting()
    with pytest.warns(UserWarning, match="torn"):
        again = record(file, model=model)
    assert len(model.asked) == 1 and len(lines(file)) == 3
    assert sum(old == new for old, new in zip(said, again, strict=True)) >= 2


@pytest.mark.parametrize("mode", ["replay", "record"])
@pytest.mark.fault("numbers", "A line of a recording is edited")
def test_an_edited_reply_is_found_and_its_line_named(mode, fault, file):
    record(file)
    whole = file.read_text()
    for old, new in (('"text":"What', '"text":"That'), ('tokens":2', 'tokens":3'), ("v1", "v2")):
        rows = whole.splitlines(keepends=True)
        rows[1] = rows[1].replace(old, new)
        file.write_text("".join(rows))
        with pytest.raises(ValueError, match="r.jsonl, line 2: .*edited since") as error:
            Recorder(Counting() if mode == "record" else None, file, mode)
        fault.came(said=error.value)


def test_a_line_that_was_deleted_is_asked_for_again_and_nothing_else(file):
    record(file)
    rows = file.read_text().splitlines(keepends=True)
    file.write_text("".join([rows[0], rows[2]]))
    model = Counting()
    record(file, model=model)
    assert len(model.asked) == 1 and len(lines(file)) == 3


@pytest.mark.fault("numbers", "A recording has two replies to one request")
@pytest.mark.parametrize("mode", ["replay", "record"])
def test_two_replies_to_one_request_are_refused_and_both_lines_are_named(mode, fault, file):
    record(file)
    rows = file.read_text().splitlines()
    row = json.loads(rows[1])
    row["reply"]["text"] = "another text"
    del row["digest"]
    file.write_text("\n".join([*rows, json.dumps(row)]) + "\n")
    with pytest.raises(ValueError, match=r"lines 2 and 4: two replies") as error:
        Recorder(Counting() if mode == "record" else None, file, mode)
    fault.came(said=error.value)
    file.write_text("\n".join([*rows, rows[1]]) + "\n")
    with Recorder(None, file, "replay") as told:  # the same twice contradicts nothing
        assert told.generate(ASK, seed=1)


@pytest.mark.parametrize(
    "line",
    ["[" * 100_000, "9" * 10_000, "[]", "null", "{}", '{"key": []}', '{"key": "a"}', "\0", "{half"],
)
def test_a_line_that_is_no_recording_is_named(line, file):
    file.write_text(line + "\n")
    with pytest.raises(ValueError, match=f"{file.name}, line 1: no recording"):
        Recorder(None, file, "replay")


def test_every_bundled_recording_is_vouched_for():
    found = sorted(RECORDINGS.glob("*.jsonl")) + sorted(RECORDINGS.glob("*.jsonl.gz"))
    assert len(found) > 20
    for file in found:
        assert read_manifest(file) or all("digest" in row for row in read_jsonl(file)), file.name
