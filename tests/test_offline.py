"""Models that generate in this process: batches across threads, and what each reply is."""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from types import ModuleType, SimpleNamespace

import pytest

from lib.datasets import Question
from lib.llm.chat import LLMError, in_parallel, ledger, sample_seed
from lib.llm.connect import connect, writer_of
from lib.llm.engines import Drawing, TransformersEngine, VllmEngine, offline_model
from lib.llm.offline import Asked, OfflineChat, Written
from lib.llm.recorder import Recorder
from lib.readers import ChatReader, ChoiceReader
from tests.tiny_models import NUMBERED, save_causal

ASK = [{"role": "user", "content": "word1 word2"}]
PROMPTS = [[{"role": "user", "content": " ".join(NUMBERED[: 1 + 3 * i])}] for i in range(8)]
QUESTION = Question("q1", "word3 word4", {"A": "word5", "B": "word6"}, "A", "own")


class Told:
    """An engine that answers as it is told, and keeps its batches."""

    def __init__(self, answer=lambda asked: "fine", most=64):
        self.answer, self.most = answer, most
        self.batches, self.closed = [], 0

    def write(self, asked):
        self.batches.append(list(asked))
        return [Written(self.answer(one), "stop", 7, 3) for one in asked]

    def close(self):
        self.closed += 1


def chat(engine, name="m", patience_s=0.2) -> OfflineChat:
    return OfflineChat(name, lambda: engine, patience_s)


def asked(content: str = "word1", **options) -> Asked:
    usual = {"temperature": 0.0, "top_p": 1.0, "max_tokens": 12, "seed": 0, "stop": []}
    return Asked([{"role": "user", "content": content}], usual | options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_causal(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def engine(folder):
    return TransformersEngine(str(folder), device="cpu")


# batches ------------------------------------------------------------------------------------------


def test_questions_that_threads_ask_one_by_one_are_generated_in_full_batches():
    engine = Told(most=8)
    reader = ChatReader(chat(engine), "tiny", workers=16)
    answers = reader.answer_all([QUESTION] * 24, [[]] * 24)
    assert [answer.replies[0].text for answer in answers] == ["fine"] * 24
    assert max(map(len, engine.batches)) == 8 and len(engine.batches) <= 5


def test_a_request_that_nobody_joins_is_answered_after_a_short_while():
    engine = Told()
    assert chat(engine, patience_s=0.01).generate(ASK)[0].text == "fine"
    assert [len(batch) for batch in engine.batches] == [1]


def test_several_replies_have_seeds_of_their_own_and_a_cost_that_counts_once():
    engine = Told(lambda one: str(one.options["seed"]))
    replies = chat(engine).generate(ASK, n=3, seed=5)
    assert [reply.text for reply in replies] == [str(sample_seed(5, i)) for i in range(3)]
    assert [len(batch) for batch in engine.batches] == [3]
    cost = ledger(replies).iloc[0]
    assert (cost.calls, cost.replies, cost.prompt_tokens, cost.output_tokens) == (1, 3, 7, 9)
    assert replies[0].latency_s > 0


def test_thinking_is_parted_from_the_text_as_for_servers():
    said = chat(Told(lambda one: "<think>Is it gout?</think>It is gout.")).generate(ASK)[0]
    assert (said.text, said.thinking) == ("It is gout.", "Is it gout?")


def test_a_batch_too_large_for_the_memory_is_halved_and_what_fails_alone_is_named():
    class Small(Told):
        def write(self, asked):
            if len(asked) > 3:
                raise RuntimeError("CUDA out of memory")
            if any("long" in one.messages[0]["content"] for one in asked):
                raise ValueError("a prompt of 9,000 tokens is more than its context")
            return super().write(asked)

    model = chat(Small())

    def ask(text: str) -> str:
        try:
            return model.generate([{"role": "user", "content": text}])[0].text
        except LLMError as error:
            return str(error)

    said = in_parallel(ask, ["a", "b", "too long", "c", "d", "e", "f", "g"], workers=8)
    assert said[:2] + said[3:] == ["fine"] * 7
    assert "9,000 tokens" in said[2] and "Next: shorten the prompt" in said[2]
    assert all(len(batch) <= 3 for batch in model._load().batches)


def test_a_template_without_a_system_turn_gets_it_before_the_question():
    class Strict(Told):
        def write(self, asked):
            if any(one.messages[0]["role"] == "system" for one in asked):
                raise ValueError("System role not supported")
            return super().write(asked)

    engine = Strict()
    model = chat(engine)
    messages = [{"role": "system", "content": "Be short."}, *ASK]
    reply = model.generate(messages)[0]
    assert "system turn refused" in reply.note
    assert engine.batches[0][0].messages == [
        {"role": "user", "content": "Be short.\n\nword1 word2"}
    ]
    assert model.generate(ASK)[0].note == "", "a request without one is as it was"


def test_one_model_is_in_memory_at_a_time():
    engines = [Told(), Told()]
    first, second = (chat(engine, name) for engine, name in zip(engines, "ab", strict=True))
    for model in (first, first, second, first):
        model.generate(ASK)
    assert [engine.closed for engine in engines] == [1, 1]


def test_who_waits_for_a_model_that_cannot_be_loaded_is_told_why():
    def load():
        raise LLMError("vLLM is not installed. Next: make vllm")

    model = OfflineChat("m", load)
    for _ in range(2):
        with pytest.raises(LLMError, match="not installed.*Next"):
            model.generate(ASK)


def test_what_is_recorded_is_replayed_without_loading_the_model(tmp_path):
    file = tmp_path / "r.jsonl"
    with Recorder(chat(Told(lambda one: str(one.options["seed"])), "tiny"), file) as llm:
        before = llm.generate(ASK, n=2, temperature=0.7, seed=3)

    def load():
        raise AssertionError("nobody needs it")

    with Recorder(OfflineChat("tiny", load), file) as llm:
        assert llm.generate(ASK, n=2, temperature=0.7, seed=3) == before
        assert llm.asked == 0
    row = file.read_text().splitlines()[0]
    assert '"prompt_tokens":7' in row and '"seed":3' in row and "latency" not in row


def test_after_ctrl_c_what_still_waits_is_not_generated():
    begun, go_on = threading.Event(), threading.Event()

    class Slow(Told):
        def write(self, asked):
            begun.set()
            go_on.wait(10)
            return super().write(asked)

    engine = Slow(most=1)
    model = chat(engine)

    def ask(i: int) -> None:
        if i == 2:
            begun.wait(10)
            raise KeyboardInterrupt
        model.generate(ASK)

    with pytest.raises(KeyboardInterrupt):
        in_parallel(ask, range(3), workers=3)
    go_on.set()
    assert model.generate(ASK)[0].text == "fine"
    assert len(engine.batches) == 2, "the one that ran, and the new one"


# transformers -------------------------------------------------------------------------------------


def test_a_batch_writes_what_each_prompt_gets_alone(engine):
    wanted = [engine.write([Asked(m, asked().options)])[0] for m in PROMPTS]
    assert engine.write([Asked(m, asked().options) for m in PROMPTS]) == wanted
    assert len({one.text for one in wanted}) > 4, "they differ"
    assert [one.prompt_tokens for one in wanted] == [3 + 3 * i for i in range(8)]


def test_a_sample_depends_on_its_seed_and_not_on_its_batch(engine):
    drawn = [asked(temperature=1.5, seed=seed) for seed in range(6)]
    together = engine.write([asked("word9 word8 word7"), *drawn])[1:]
    assert together == [engine.write([one])[0] for one in drawn]
    assert len({one.text for one in together}) == 6


def test_a_reply_ends_where_the_model_ends_it_or_at_its_cap_or_a_stop(engine):
    rows = [asked(temperature=2.0, seed=seed, max_tokens=40) for seed in range(30)]
    written = engine.write(rows)
    ended = [one for one in written if one.finish_reason == "stop"]
    cut = [one for one in written if one.finish_reason == "length"]
    assert ended and cut and len(ended) + len(cut) == 30
    assert all(one.output_tokens == 40 for one in cut)
    # The mark of the end is a token that was written, and not part of the text.
    assert all(len(one.text.split()) < one.output_tokens <= 40 for one in ended)
    assert not any("[END]" in one.text for one in written)
    whole = max(written, key=lambda one: len(one.text))
    seed, stop = written.index(whole), whole.text.split()[3]
    short = engine.write([asked(temperature=2.0, seed=seed, max_tokens=40, stop=[stop]), asked()])
    assert short[0].finish_reason == "stop" and stop not in short[0].text
    assert whole.text.startswith(short[0].text) and len(short[0].text.split()) <= 3
    assert short[1] == engine.write([asked()])[0], "others of the batch go on"
    caps = engine.write([asked(max_tokens=3), asked(max_tokens=9)])
    assert [one.output_tokens for one in caps] == [3, 9]


def test_draws_are_those_of_the_distribution_cut_at_top_p():
    import torch

    chances = [0.5, 0.3, 0.15, 0.05]
    scores = torch.tensor([chances]).log()
    drawn = Counter()
    for seed in range(2000):
        one = asked(temperature=1.0, top_p=0.9, seed=seed, max_tokens=1)
        left = Drawing([one], None, begins=1)(torch.zeros(1, 1), scores)
        drawn[int(left.argmax())] += 1
    assert set(drawn) == {0, 1, 2}, "the last is beyond top p"
    for token, chance in enumerate(chances[:3]):
        assert abs(drawn[token] / 2000 - chance / 0.95) < 0.04


def test_a_prompt_longer_than_the_context_is_refused_by_its_length(folder):
    model = OfflineChat("tiny", lambda: TransformersEngine(str(folder), device="cpu"))
    with pytest.raises(LLMError, match="600.*512.*Next: shorten"):
        model.generate(ASK, max_tokens=600)


def test_a_spec_names_a_folder_and_its_settings(folder, tmp_path):
    spec = f"transformers:{folder}?device=cpu&batch=4"
    assert connect(spec).name == writer_of(spec) == "tiny"
    llm = connect(f"record:{tmp_path}/r.jsonl={spec}")
    replies = in_parallel(lambda m: llm.generate(m, max_tokens=5)[0], PROMPTS)
    assert all(reply.model == "tiny" and reply.output_tokens <= 5 for reply in replies)
    assert connect(spec) is connect(spec), "two uses of a model are one model"
    for wrong in ("vllm:", "vllm:m?tensor_parallel_size"):
        with pytest.raises(ValueError, match="vllm:"):
            connect(wrong)


def test_letters_are_chosen_by_their_log_probability(folder):
    reader = ChoiceReader(offline_model("transformers", f"{folder}?device=cpu"), "tiny")
    first, again = reader.answer_all([QUESTION] * 2, [[]] * 2)
    assert first.letter in ("A", "B", "") and first.letter == again.letter
    (reply,) = connect(f"transformers:{folder}?device=cpu").generate(ASK, choices=NUMBERED)
    assert json.loads(reply.text) and all(value < 0 for value in json.loads(reply.text).values())


# vLLM ---------------------------------------------------------------------------------------------


@pytest.fixture
def vllm(monkeypatch):
    """A module with the part of vLLM's interface that is used; its model says what it was told."""
    made = SimpleNamespace(opened=[], chats=[], ended=0)

    class SamplingParams:
        def __init__(self, **given):
            vars(self).update(given)

    class LLM:
        def __init__(self, model, **settings):
            made.opened.append((model, settings))
            self.llm_engine = SimpleNamespace(engine_core=self)

        def chat(self, messages, sampling_params, use_tqdm):
            made.chats.append((messages, sampling_params))
            return [self._out(*pair) for pair in zip(messages, sampling_params, strict=True)]

        def _out(self, chat, sampling):
            likely = {1: ("A", -0.5), 2: (" B", -1.5)}
            entries = {
                i: SimpleNamespace(decoded_token=t, logprob=v) for i, (t, v) in likely.items()
            }
            said = SimpleNamespace(
                text=chat[-1]["content"],
                token_ids=[1] * min(sampling.max_tokens, 9),
                finish_reason="length" if sampling.max_tokens < 9 else "stop",
                logprobs=[entries] if hasattr(sampling, "logprobs") else None,
            )
            return SimpleNamespace(prompt_token_ids=[1, 2, 3, 4], outputs=[said])

        def shutdown(self):
            made.ended += 1

    module, sampling = ModuleType("vllm"), ModuleType("vllm.sampling_params")
    module.LLM, module.SamplingParams = LLM, SamplingParams
    sampling.StructuredOutputsParams = lambda json: SimpleNamespace(json=json)
    monkeypatch.setitem(sys.modules, "vllm", module)
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", sampling)
    return made


def test_vllm_is_given_whole_batches_of_chats_each_with_its_own_sampling(vllm):
    model = OfflineChat("q", lambda: VllmEngine("org/q", tensor_parallel_size=4), 0.2)
    said = in_parallel(
        lambda i: model.generate(PROMPTS[i], seed=i, max_tokens=5 + i, stop="END")[0], range(8)
    )
    assert vllm.opened == [("org/q", {"tensor_parallel_size": 4})]
    (chats, sampling) = vllm.chats[0]
    assert len(vllm.chats) == 1 and sorted(s.seed for s in sampling) == list(range(8))
    assert {s.stop[0] for s in sampling} == {"END"} and len(chats) == 8
    assert [reply.finish_reason for reply in said] == ["length"] * 4 + ["stop"] * 4
    assert [(reply.prompt_tokens, reply.output_tokens) for reply in said[:2]] == [(4, 5), (4, 6)]
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    model.generate(ASK, schema=schema)
    assert vllm.chats[-1][1][0].structured_outputs.json == schema
    (letters,) = model.generate(ASK, choices=["A", "B", "C"])
    assert letters.text == '{"A":-0.5,"B":-1.5}'
    chat(Told(), "another").generate(ASK)
    assert vllm.ended == 1, "its process ends before another model is loaded"


def test_without_vllm_the_error_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    model = connect("vllm:org/q?max_model_len=4096")
    assert model.name == "org/q"
    with pytest.raises(LLMError, match="vLLM is not installed.*Next: make vllm"):
        model.generate(ASK)
