"""Recordings: the same bytes whatever happened on the way, replayed exactly, and loud on a miss."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from lib.base.files import read_jsonl, read_manifest
from lib.base.paths import RECORDINGS
from lib.llm.chat import Reply, ledger, sample_seed
from lib.llm.connect import connect
from lib.llm.openai_chat import OpenAIChat
from lib.llm.recorder import LONG, Recorder, RecordingMiss, recording_key
from tests.fault_server import FaultServer
from tests.killed import Echo, killed

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
    assert all("request" in line for line in lines(file))
    with Recorder(Counting(), file) as llm:  # a prompt with passages is kept by its key alone
        (said,) = llm.generate([{"role": "user", "content": "passage " * LONG}])
    (line,) = [line for line in lines(file) if "request" not in line]
    assert line["reply"]["text"] == said.text


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


# several at once ---------------------------------------------------------------------------------


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


# kills and damage --------------------------------------------------------------------------------


@pytest.mark.fault("numbers", "A run that records is killed, and at times its file is cut")
def test_killed_at_any_moment_and_resumed_the_file_is_the_same(fault, tmp_path):
    right, other = tmp_path / "undisturbed", tmp_path / "killed"
    killed("record", right, 0)
    hit = killed("record", other, 12)["hit"]
    wrong = (right / "r.jsonl").read_bytes() != (other / "r.jsonl").read_bytes()
    fault.came(tries=hit, wrong=wrong, said="r.jsonl: dropped a torn last line (a killed run)")


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


@pytest.mark.fault("numbers", "A line of a recording is edited")
def test_an_edited_reply_is_found_and_its_line_named(fault, file):
    record(file)
    whole = file.read_text()
    for old, new in (('"text":"What', '"text":"That'), ('tokens":2', 'tokens":3'), ("v1", "v2")):
        rows = whole.splitlines(keepends=True)
        rows[1] = rows[1].replace(old, new)
        file.write_text("".join(rows))
        with pytest.raises(ValueError, match="r.jsonl, line 2: .*edited since") as error:
            Recorder(None, file, "replay")
        fault.came(said=error.value)


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


def test_a_line_that_is_no_recording_is_named(file):
    for line in ("[" * 100_000, "9" * 10_000, "[]", "{}", '{"key": "a"}', "\0", "{half"):
        file.write_text(line + "\n")
        with pytest.raises(ValueError, match=f"{file.name}, line 1: no recording"):
            Recorder(None, file, "replay")


def test_every_bundled_recording_is_vouched_for():
    found = sorted(RECORDINGS.glob("*.jsonl")) + sorted(RECORDINGS.glob("*.jsonl.gz"))
    assert len(found) > 20
    for file in found:
        assert read_manifest(file) or all("digest" in row for row in read_jsonl(file)), file.name
