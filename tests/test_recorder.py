"""Recordings: the same bytes whatever happened on the way, replayed exactly, and loud on a miss."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
from fault_server import FaultServer
from kill_record import Echo

from lib.base.files import canonical_json, read_jsonl, read_manifest, write_manifest
from lib.base.paths import RECORDINGS, ROOT
from lib.llm.chat import (
    MOST_CHARACTERS,
    REFERENCE,
    Reply,
    ScriptedChat,
    in_parallel,
    ledger,
    sample_seed,
)
from lib.llm.connect import connect
from lib.llm.openai_chat import OpenAIChat
from lib.llm.recorder import LONG, Recorder, RecordingMiss, recording_key
from lib.llm.replies import ask_json
from lib.methods.base import passages_of

ASK = [{"role": "user", "content": "What is gout?"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}


class Counting(Echo):
    """Echo at once, keeping what it was asked."""

    def __init__(self):
        self.asked: list[tuple[int, int]] = []

    def generate(self, messages, *, n=1, seed=0, **options):
        self.asked.append((n, seed))
        text = f"{messages[0]['content']} {len(self.asked)}"
        return [Reply(f"{text} {sample_seed(seed, i)}", "stop", 5, 2, 0.5, "v1") for i in range(n)]


@pytest.fixture
def file(tmp_path) -> Path:
    return tmp_path / "r.jsonl"


def lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def run_script(name: str, *arguments) -> dict:
    """What a script beside this file prints: one JSON object."""
    script = Path(__file__).with_name(name)
    done = subprocess.run(
        [sys.executable, script, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


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


@pytest.mark.fault("numbers", "A recording has two replies to one request")
@pytest.mark.parametrize("mode", ["replay", "record"])
def test_two_replies_to_one_request_are_refused_and_both_lines_are_named(mode, fault, file):
    with Recorder(Counting(), file) as llm:
        for seed in range(3):
            llm.generate(ASK, seed=seed)
    lines = file.read_text().splitlines()
    row = json.loads(lines[1])
    row["reply"]["text"] = "another text"
    del row["digest"]  # as an older version wrote it
    file.write_text("\n".join([*lines, json.dumps(row)]) + "\n")
    with pytest.raises(ValueError, match=r"lines 2 and 4: two replies") as error:
        Recorder(Counting() if mode == "record" else None, file, mode)
    fault.came(said=error.value)
    file.write_text("\n".join([*lines, lines[1]]) + "\n")
    with Recorder(None, file, "replay") as told:  # the same twice contradicts nothing
        assert told.generate(ASK, seed=1)


def test_a_refresh_that_is_killed_before_it_sorts_leaves_what_it_asked_for(file):
    with Recorder(Counting(), file) as llm:
        before = [llm.generate(ASK, seed=seed)[0].text for seed in range(2)]
    asks_again = Recorder(Counting(), file, "refresh")
    after = asks_again.generate(ASK, seed=1)[0].text
    assert after != before[1] and len(file.read_text().splitlines()) == 3
    with Recorder(None, file, "replay") as told:  # nobody has sorted the file
        assert [told.generate(ASK, seed=s)[0].text for s in range(2)] == [before[0], after]
    asks_again.close()
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(rows) == 2 and not any("again" in row for row in rows)


@pytest.mark.fault("secrets", "A reply of megabytes")
def test_a_reply_of_megabytes_is_an_empty_one_and_its_text_is_not_kept(fault, file):
    for text, kept in (("x" * MOST_CHARACTERS, True), ("x" * 20_000_000, False)):
        with FaultServer(text=text) as server, Recorder(OpenAIChat("m", server.url), file) as llm:
            (reply,) = llm.generate(ASK, seed=int(kept))
        assert (reply.text == text) is kept
        with Recorder(None, file, "replay") as told:
            assert told.generate(ASK, seed=int(kept)) == [reply]
    fault.came(wrong=file.stat().st_size > 2 * MOST_CHARACTERS, said=reply.note)
    assert reply.finish_reason == "too long" and reply.note == "20,000,000 characters, dropped"
    assert passages_of([reply]) == ([], {"replies": [reply], "empty": 1, "cut": 0, "passages": []})


@pytest.mark.fault("waiting", "A reply is signs without end", "signs without end, dropped")
@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"a":' * 30_000, f"The answer{'*' * 100_000} ?", " \n" * 50_000],
    ids=["lists", "objects", "asterisks", "blanks"],
)
def test_a_reply_of_signs_without_end_is_an_empty_one(text, file):
    with FaultServer(text=text) as server, Recorder(OpenAIChat("m", server.url), file) as llm:
        (reply,) = llm.generate(ASK)
    assert (reply.text, reply.finish_reason) == ("", "no text")
    assert reply.note == "signs without end, dropped"
    assert file.stat().st_size < 1000


@pytest.mark.parametrize("text", ["[1] " * 200, "a " + "-" * 900 + " b", '{"a": [1, 2]}' * 100])
def test_a_reply_with_many_signs_is_left(text, file):
    with FaultServer(text=text) as server, Recorder(OpenAIChat("m", server.url), file) as llm:
        assert llm.generate(ASK)[0].text == text


def test_a_reply_is_on_the_disk_before_it_is_given(file, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda _: synced.append(file.exists() and file.read_text()))
    llm = Recorder(Counting(), file)
    reply = llm.generate(ASK)[0]
    assert json.dumps(reply.text) in synced[-1]
    llm.close()


def test_choices_are_recorded_and_replayed_apart_from_text(file):
    with FaultServer(likely={"B": -0.5, "A": -1.0}) as server:
        with Recorder(OpenAIChat("m", server.url), file) as live:
            text = live.generate(ASK)
            weighed = live.generate(ASK, choices=["A", "B"])
            fewer = live.generate(ASK, choices=["A"])
            live.generate(ASK, choices=["A", "B"])
        assert len(server.bodies) == 3
    replay = connect(f"replay:{file}")
    for said, options in ((text, {}), (weighed, {"choices": "AB"}), (fewer, {"choices": "A"})):
        assert [r.text for r in replay.generate(ASK, **options)] == [r.text for r in said]
    assert json.loads(weighed[0].text) == {"A": -1.0, "B": -0.5} and text[0].text == "fine"
    with pytest.raises(RecordingMiss):
        replay.generate(ASK, choices=["B", "A"])


def test_a_long_request_is_kept_by_its_key_alone_and_still_told_apart(file):
    def ask(size: int) -> list[dict]:
        return [{"role": "user", "content": "passage " * (size // 8)}]

    with Recorder(Counting(), file) as llm:
        short, long, longer = (llm.generate(ask(n))[0] for n in (LONG // 2, LONG, 2 * LONG))
    kept = sorted(len(line.get("request", {}).get("messages", [])) for line in lines(file))
    assert kept == [0, 0, 1] and file.stat().st_size < 4 * LONG + 2000
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
    assert four[:2] == two
    assert model.asked == [(2, 4), (1, sample_seed(4, 2)), (1, sample_seed(4, 3))]


def test_refresh_asks_once_more_for_what_it_is_asked_and_keeps_the_rest(file):
    other = [{"role": "user", "content": "Other"}]
    with Recorder(Counting(), file) as llm:
        old, kept = llm.generate(ASK)[0], llm.generate(other)[0]
    model = Counting()
    model.asked = [(0, 0)] * 9
    with Recorder(model, file, "refresh") as llm:
        new = llm.generate(ASK)[0]
        assert llm.generate(ASK)[0] == new != old and len(model.asked) == 10
    replay = Recorder(None, file, "replay")
    assert replay.generate(ASK)[0] == new and replay.generate(other)[0] == kept
    assert len(lines(file)) == 2


def test_a_miss_names_method_question_and_the_command_that_records_it(file):
    with Recorder(Counting(), file) as llm:
        llm.generate(ASK)
    replay = Recorder(None, file, "replay")
    with replay.tag(method="chr", qid="q9"), pytest.raises(RecordingMiss) as miss:
        replay.generate(ASK, seed=1)
    for part in ("chr", "q9", "sample 0", "echo", f"connect('record:{file.name}=openai:echo')"):
        assert part in str(miss.value)
    with pytest.raises(RecordingMiss, match="sample 1. Next: llm = lib.llm.connect"):
        replay.generate(ASK, n=2)
    absent = Recorder(None, file.with_name("absent.jsonl"), "replay")
    with pytest.raises(RecordingMiss, match="absent.jsonl.*=small"):
        absent.generate(ASK)
    assert sorted(p.name for p in file.parent.glob("*.jsonl")) == ["r.jsonl", "r.times.jsonl"]


def test_reference_text_has_an_author_and_neither_tokens_nor_latency(file):
    written = [{"match": "gout", "text": '{"a": "Gout."}'}]
    with Recorder(ScriptedChat(written), file) as llm:
        ask_json(llm, ASK, SCHEMA)
    line = lines(file)[0]
    assert line["author"] == line["model"] == REFERENCE
    assert line["reply"]["prompt_tokens"] is line["reply"]["output_tokens"] is None
    assert not file.with_suffix(".times.jsonl").exists()
    replay = Recorder(None, file, "replay")
    told = ask_json(replay, ASK, SCHEMA)
    assert told.value == {"a": "Gout."} and told.replies[0].latency_s is None
    with pytest.raises(RecordingMiss, match=r"connect\('small'\)"):
        replay.generate(ASK, seed=1)


def test_a_file_with_several_models_wants_a_name(file):
    for model in (Counting(), ScriptedChat([{"match": "", "text": "b"}])):
        with Recorder(model, file) as llm:
            llm.generate(ASK)
    with pytest.raises(ValueError, match="echo.*reference text.*name="):
        Recorder(None, file, "replay")
    assert Recorder(None, file, "replay", name=REFERENCE).generate(ASK)[0].text == "b"


@pytest.mark.parametrize("wrong", [(None, "record"), (Counting(), "replay"), (Counting(), "both")])
def test_a_mode_that_makes_no_sense_is_refused(wrong, file):
    with pytest.raises(ValueError, match="mode"):
        Recorder(wrong[0], file, wrong[1])


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


def test_two_recorders_on_one_file_lose_nothing(file):
    one, two = Recorder(Counting(), file), Recorder(Counting(), file)
    for i, llm in enumerate([one, two, one, two]):
        llm.generate([{"role": "user", "content": f"question {i}"}])
    one.close()
    two.generate([{"role": "user", "content": "question 4"}])
    two.close()
    assert {line["request"]["messages"][0]["content"] for line in lines(file)} == {
        f"question {i}" for i in range(5)
    }


def test_two_recorders_that_ask_the_same_both_give_what_was_written_first(file):
    one, two, slow = (Recorder(Counting(), file) for _ in range(3))
    for llm in (two, slow):
        llm.model.asked = [(0, 0)] * 9  # so that it says something else
    first = one.generate(ASK)[0]
    assert two.generate(ASK)[0] == first
    one.close()  # puts another file in the place of the one that the others read
    assert slow.generate(ASK)[0] == first and len(lines(file)) == 1
    for llm in (two, slow):
        llm.close()


def test_a_line_that_another_process_left_half_written_costs_nothing_but_itself(file):
    with Recorder(Counting(), file) as llm:
        before = llm.generate(ASK)[0]
        with open(file, "ab") as stream:
            stream.write(b'{"author":"killed while it wr')
        after = llm.generate(ASK, seed=1)[0]
    replay = Recorder(None, file, "replay")
    assert [replay.generate(ASK, seed=seed)[0] for seed in (0, 1)] == [before, after]
    assert len(lines(file)) == 2


def test_a_recorder_outlives_its_folder(tmp_path):
    folder = tmp_path / "short-lived"
    llm = Recorder(Counting(), folder / "r.jsonl")
    llm.generate(ASK)
    shutil.rmtree(folder)
    llm.close()
    assert not folder.exists()


@pytest.mark.fault("numbers", "One or both of two processes that record into one file are killed")
def test_processes_that_share_a_file_and_are_killed_lose_no_reply_that_was_given(fault, tmp_path):
    got = run_script("kill_together.py", tmp_path / "r.jsonl", 20, 1)
    assert got["killed"] > 5 and got["rows"] > 50, "kills must hit processes at work"
    wrong = got["failed"] + got["twice"] + got["without_time"] + (not got["sorted"])
    fault.came(tries=20, lost=got["lost"], wrong=wrong, said="nothing: the next run goes on")


# kills and damage --------------------------------------------------------------------------------


@pytest.mark.fault("numbers", "A run that records is killed, and at times its file is cut")
def test_killed_at_any_moment_and_resumed_the_file_is_the_same(fault, tmp_path):
    right = run_script("kill_record.py", tmp_path / "undisturbed.jsonl", 0, 0)["sha256"]
    for seed in (1, 2):
        got = run_script("kill_record.py", tmp_path / f"{seed}.jsonl", 25, seed)
        assert got["hit"] == 25 and got["torn"] > 3 and got["kept"] > 30
        fault.came(
            tries=25,
            wrong=got["sha256"] != right,
            said="r.jsonl: dropped a torn last line (a killed run)",
        )


@pytest.mark.parametrize("left", [1, 40, -1])
def test_a_torn_last_line_is_dropped_with_a_message_and_recorded_again(left, file):
    with Recorder(Counting(), file) as llm:
        llm.generate(ASK, n=3)
    whole = file.read_bytes()
    start = whole[:-1].rfind(b"\n") + 1
    file.write_bytes(whole[: start + left] if left > 0 else whole[:left])
    with pytest.warns(UserWarning, match="r.jsonl: dropped a torn last line"):
        torn = Recorder(None, file, "replay")
    with pytest.raises(RecordingMiss):
        torn.generate(ASK, n=3)
    assert file.read_bytes() != whole[:start]  # replay never writes
    model = Counting()
    with pytest.warns(UserWarning, match="torn"), Recorder(model, file) as llm:
        assert file.read_bytes() == whole[:start]
        llm.generate(ASK, n=3)
    assert len(model.asked) == 1 and len(lines(file)) == 3


def test_damage_that_no_kill_can_do_is_an_error(file):
    with Recorder(Counting(), file) as llm:
        llm.generate(ASK, n=2)
    whole = file.read_text()
    file.write_text("{half\n" + whole)
    with pytest.raises(ValueError, match="r.jsonl, line 1: no recording"):
        Recorder(None, file, "replay")
    file.write_text(whole.replace('"content":"What', '"content":"Who', 1))
    with pytest.raises(ValueError, match="edited by hand"):
        Recorder(None, file, "replay")


# edited replies ----------------------------------------------------------------------------------


def recorded_and_edited(file: Path, old: str, new: str) -> str:
    """Record three replies, and change one word of the second line; the lines as they were."""
    with Recorder(Counting(), file) as llm:
        for seed in range(3):
            llm.generate(ASK, seed=seed)
    before = file.read_text()
    rows = before.splitlines(keepends=True)
    assert old in rows[1]
    rows[1] = rows[1].replace(old, new)
    file.write_text("".join(rows))
    return before


@pytest.mark.parametrize(
    ("old", "new"),
    [('"text":"What', '"text":"That'), ('"output_tokens":2', '"output_tokens":3'), ("v1", "v2")],
    ids=["its text", "its tokens", "its author"],
)
@pytest.mark.parametrize("mode", ["replay", "record"])
@pytest.mark.fault("numbers", "A line of a recording is edited")
def test_an_edited_reply_is_found_and_its_line_named(mode, old, new, fault, file):
    recorded_and_edited(file, old, new)
    edited = "r.jsonl, line 2: .*edited since it was recorded"
    with pytest.raises(ValueError, match=edited) as error:
        Recorder(Counting() if mode == "record" else None, file, mode)
    fault.came(said=error.value)


@pytest.mark.fault("numbers", "A line of a recording is something else", "the file and the line")
@pytest.mark.parametrize(
    "line",
    [
        *("[" * 100_000, "9" * 10_000, "[]", "null", '"key"', "{}", '{"key": []}', '{"key": "a"}'),
        *('{"key": "a", "author": "b", "model": "c"}', '{"key": "a", "digest": []}', "\0"),
    ],
)
def test_a_line_that_is_no_recording_is_named(line, file):
    file.write_text(line + "\n")
    with pytest.raises(ValueError, match=f"{file.name}, line 1: no recording"):
        Recorder(None, file, "replay")


def test_a_line_that_was_deleted_is_asked_for_again_and_nothing_else(file):
    before = recorded_and_edited(file, '"text":"What', '"text":"That')
    rows = file.read_text().splitlines(keepends=True)
    file.write_text("".join([rows[0], rows[2]]))
    model = Counting()
    with Recorder(model, file) as llm:
        for seed in range(3):
            llm.generate(ASK, seed=seed)
    assert len(model.asked) == 1 and len(lines(file)) == 3
    assert {row["key"] for row in lines(file)} == {json.loads(b)["key"] for b in rows}
    assert before.count("digest") == file.read_text().count("digest") == 3


def without_digests(file: Path) -> None:
    """Make it a recording of an older version."""
    rows = lines(file)
    for row in rows:
        del row["digest"]
    file.write_text("".join(canonical_json(row) + "\n" for row in rows))


def test_lines_without_a_digest_are_vouched_for_by_a_manifest(file, capsys):
    with Recorder(Counting(), file) as llm:
        said = [llm.generate(ASK, seed=seed)[0].text for seed in range(2)]
    without_digests(file)
    write_manifest(file, rows=2, settings={})
    whole = file.read_bytes()
    with Recorder(Counting(), file) as llm:  # replaying all of it changes nothing
        assert [llm.generate(ASK, seed=seed)[0].text for seed in range(2)] == said
    assert file.read_bytes() == whole
    with Recorder(Counting(), file) as llm:
        said.append(llm.generate(ASK, seed=2)[0].text)
        half_way = Recorder(None, file, "replay")  # as after a kill: nobody has sorted the file
        assert [half_way.generate(ASK, seed=seed)[0].text for seed in range(3)] == said
    sorted_one = Recorder(None, file, "replay")
    assert [sorted_one.generate(ASK, seed=seed)[0].text for seed in range(3)] == said

    file.write_bytes(whole.replace(b'"text":"What', b'"text":"That', 1))
    with pytest.raises(ValueError, match=r"line 1: .*python -m tools.annotation seal .*r.jsonl"):
        Recorder(None, file, "replay")


@pytest.mark.fault("numbers", "A bit of a recording is flipped")
def test_no_damage_to_one_byte_of_a_recording_gives_another_reply(fault, file):
    with Recorder(Counting(), file) as llm:
        said = [llm.generate(ASK, seed=s)[0].text for s in range(3)]
    whole = file.read_bytes()
    for seed in fault.tries(40):
        chance = random.Random(seed)
        damaged = bytearray(whole)
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        file.write_bytes(damaged)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                told = Recorder(None, file, "replay")
                heard = [told.generate(ASK, seed=s)[0].text for s in range(3)]
            except (ValueError, RecordingMiss) as error:
                fault.came(said=error)
            else:
                fault.came(wrong=heard != said or bool(warned))


def test_every_bundled_recording_is_vouched_for():
    found = sorted(RECORDINGS.glob("*.jsonl")) + sorted(RECORDINGS.glob("*.jsonl.gz"))
    assert len(found) > 20
    for file in found:
        assert read_manifest(file) or all("digest" in row for row in read_jsonl(file)), file.name
