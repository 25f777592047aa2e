"""Requests answered elsewhere: what is missing is asked for, what comes back replays."""

from __future__ import annotations

import gzip

import pytest

from lib.base.files import read_jsonl
from lib.datasets import Question
from lib.llm.batch import Nothing, add_replies, pending, read_sheet, sheet
from lib.llm.chat import ScriptedChat, tag
from lib.llm.recorder import Recorder, RecordingMiss
from lib.methods.chr import CHR
from lib.methods.differential import Differential
from lib.methods.hyde import HyDE
from lib.methods.thinkqe import ThinkQE

QUESTION = Question("q1", "Why does a toe hurt at night?", {"A": "gout", "B": "sprain"}, "A", "x")
NAME = "a writer"
PAIR = '{"H_plus": "Gout: urate crystals.", "H_minus": "Sprain: torn fibres."}'


@pytest.fixture
def path(tmp_path):
    return tmp_path / "real-x.jsonl.gz"


def asked(method, llm, search=lambda request, k: []):
    def expand(model):
        with tag(method=method.name, qid=QUESTION.qid):
            method.expand(QUESTION, model, search)

    return pending(expand, llm)


def answer(path, requests, texts):
    return add_replies(
        path, NAME, "who", requests, dict(zip([r.key for r in requests], texts, strict=True))
    )


def test_what_is_answered_replays_as_if_a_model_had_been_asked(path):
    requests = asked(CHR(), Nothing(NAME))
    assert [(r.method, r.qid, r.sample) for r in requests] == [("chr", "q1", 0)]
    assert answer(path, requests, [PAIR]) == 1
    llm = Recorder(None, path, "replay")
    assert asked(CHR(), llm) == []
    made = CHR().expand(QUESTION, llm, None)
    assert made.trace["H_plus"] == "Gout: urate crystals."
    assert made.trace["replies"][0].model == "who" and made.trace["replies"][0].latency_s is None


def test_samples_are_requests_of_their_own(path):
    requests = asked(HyDE(samples=2), Nothing(NAME))
    assert [r.sample for r in requests] == [0, 1]
    assert requests[0].messages == requests[1].messages
    answer(path, requests[:1], ["one"])
    with pytest.raises(RecordingMiss):
        HyDE(samples=2).expand(QUESTION, Recorder(None, path, "replay"), None)


def test_a_method_that_asks_after_reading_is_asked_round_by_round(path):
    method = ThinkQE(rounds=3, samples=1)
    llm, rounds = Nothing(NAME), 0
    while requests := asked(method, llm, search=lambda request, k: [("p", "a passage")]):
        rounds += 1
        answer(path, requests, [f"text {rounds}"] * len(requests))
        llm = Recorder(None, path, "replay")
    # Rounds 2 and 3 show nothing new, so their requests are alike and one reply serves both.
    assert 2 <= rounds <= 3


def test_a_differential_takes_chrs_own_hypotheses_and_several_mimics(path):
    answer(path, asked(CHR(), Nothing(NAME)), [PAIR])
    requests = asked(Differential(), Recorder(None, path, "replay"))
    answer(path, requests, ['{"mimics": ["Sprain.", "Cellulitis."]}'])
    made = Differential().expand(QUESTION, Recorder(None, path, "replay"), None)
    assert [t.text for t in made.request.of("target")] == ["Gout: urate crystals."]
    assert [t.text for t in made.request.of("mimic")] == ["Sprain.", "Cellulitis."]
    assert made.request.way.form == "max" and len(made.trace["replies"]) == 2


def test_a_recording_keeps_no_word_of_the_question_and_is_the_same_bytes_again(path):
    requests = asked(CHR(), Nothing(NAME))
    answer(path, requests, [PAIR])
    first = path.read_bytes()
    assert b"toe" not in gzip.decompress(first) and len(list(read_jsonl(path))) == 1
    assert answer(path, requests, [PAIR]) == 0 and path.read_bytes() == first


def test_another_text_for_the_same_request_and_a_text_nobody_asked_for_are_refused(path):
    requests = asked(CHR(), Nothing(NAME))
    answer(path, requests, [PAIR])
    with pytest.raises(ValueError, match="another text"):
        answer(path, requests, ["{}"])
    with pytest.raises(LookupError, match="nobody asked"):
        add_replies(path, NAME, "who", requests, {"abc": "text"})


def test_a_sheet_is_read_back_number_by_number():
    requests = asked(HyDE(samples=2), Nothing(NAME))
    text = sheet(requests)
    assert text.count("===== request") == 2 and "q1" not in text and "hyde" not in text
    replies = read_sheet("@@@ 1\none\n\nstill one\n@@@ 2\ntwo\n", requests)
    assert list(replies.values()) == ["one\n\nstill one", "two"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("@@@ 1\none\n", "answers"),
        ("@@@ 1\none\n@@@ 1\ntwo\n", "answers"),
        ("@@@ 1\n\n@@@ 2\ntwo\n", "reply 1 is empty"),
        ("Here you are.\n@@@ 1\none\n@@@ 2\ntwo\n", "begins with"),
    ],
)
def test_a_sheet_that_is_not_whole_is_refused(text, what):
    with pytest.raises(ValueError, match=what):
        read_sheet(text, asked(HyDE(samples=2), Nothing(NAME)))


def test_a_pattern_replays_several_files_and_a_gzipped_one_is_never_written(path):
    requests = asked(HyDE(samples=2), Nothing(NAME))
    for i, request in enumerate(requests):
        answer(path.with_name(f"real-{i}.jsonl.gz"), [request], [f"text {i}"])
    llm = Recorder(None, path.with_name("real-*.jsonl.gz"), "replay")
    assert HyDE(samples=2).expand(QUESTION, llm, None).trace["passages"] == ["text 0", "text 1"]
    with pytest.raises(ValueError, match="replayed, not written"):
        Recorder(ScriptedChat([]), path)
    with pytest.raises(FileNotFoundError):
        Recorder(None, path.with_name("none-*.jsonl.gz"), "replay")


def test_only_the_samples_that_nobody_recorded_are_asked_for(path):
    method = HyDE(samples=3)
    requests = asked(method, Nothing(NAME))
    answer(path, requests[1:2], ["the second alone"])
    llm = Recorder(None, path, "replay")
    assert [request.sample for request in asked(method, llm)] == [0, 2]
