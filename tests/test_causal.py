"""A causal model that is asked: likelihoods one token at a time, letters, texts it writes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.corpora import load_passages
from lib.llm import causal as module
from lib.llm.causal import Causal, Sampling, open_causal, plain_causal
from lib.studies.rag2.labels import rationale_messages, read_labels
from lib.studies.rag2.rationales import load_rationales
from tests.kill_labels import WORDS, tiny_causal


def chat(text: str, system: str = "Be brief.") -> list[dict[str, str]]:
    return [{"role": "system", "content": system}, {"role": "user", "content": text}]


PAIRS = [
    (chat("What is asthma?"), "A chronic disease of the airways."),
    (chat("Why?"), "Yes"),
    (chat("Which drug lowers an overdose of heparin, and how?"), "Protamine binds it."),
]


def one_token_at_a_time(model, prompt: list[int], reply: list[int]) -> float:
    """The log-likelihood of a reply, each token read alone after those before it."""
    import torch

    total, cache, logits = 0.0, None, None
    for place, token in enumerate([*prompt, *reply]):
        if place >= len(prompt):
            scores = logits.double()
            total += float(scores[token] - torch.logsumexp(scores, dim=0))
        with torch.inference_mode():
            read = model(torch.tensor([[token]]), past_key_values=cache, use_cache=True)
        cache, logits = read.past_key_values, read.logits[0, -1]
    return total


@pytest.fixture(scope="module")
def opened() -> tuple[Causal, list[float]]:
    """The bundled model as ``open_causal`` opens it, and what it said before anything was packed.

    The weights are unpacked once for both.
    """
    model, tokenizer = plain_causal()
    plain = Causal("plain", model, tokenizer)
    reference = [
        one_token_at_a_time(model, plain.prompt_tokens(messages), plain.text_tokens(text))
        for messages, text in PAIRS
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "plain_causal", lambda name: (model, tokenizer))
        return open_causal(device="cpu"), reference


@pytest.fixture(scope="module")
def tiny() -> Causal:
    return tiny_causal()


# likelihoods --------------------------------------------------------------------------------------


def test_the_bundled_model_against_one_token_at_a_time(opened):
    causal, reference = opened
    found = causal.log_likelihoods(PAIRS)
    tokens = [len(causal.text_tokens(text)) for _, text in PAIRS]
    assert found[:, 1].tolist() == tokens and min(tokens) == 1
    log_perplexity = -found[:, 0] / tokens
    expected = -np.array(reference) / tokens
    assert np.abs(log_perplexity - expected).max() < 1e-4
    assert np.abs(np.exp(log_perplexity - expected) - 1).max() < 1e-4


def test_padding_and_order_change_nothing(opened):
    causal, _ = opened
    together = causal.log_likelihoods(PAIRS)
    alone = np.concatenate([causal.log_likelihoods([pair]) for pair in PAIRS])
    turned = causal.log_likelihoods(PAIRS[::-1])[::-1]
    assert np.abs(together - alone).max() < 1e-4
    assert np.abs(together - turned).max() < 1e-4
    assert together.dtype == np.float64 and together.shape == (3, 2)


def test_a_reply_follows_its_prompt(opened):
    causal, _ = opened
    (messages, text), (other, _), _ = PAIRS
    right, wrong = causal.log_likelihoods([(messages, text), (other, text)])
    assert right[0] > wrong[0]
    prompt = causal.tokenizer.decode(causal.prompt_tokens(messages))
    assert prompt.endswith("<|im_start|>assistant\n") and "What is asthma?" in prompt


words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=30).map(" ".join)


@settings(max_examples=25)
@given(pairs=st.lists(st.tuples(words, words), min_size=1, max_size=6), budget=st.integers(1, 120))
def test_any_texts_in_any_batches_against_one_pass_each(tiny, pairs, budget):
    import torch

    asked = [(chat(question, "word1"), reply) for question, reply in pairs]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BATCH_TOKENS", budget)
        found = tiny.log_likelihoods(asked)
    for (messages, text), (total, count) in zip(asked, found, strict=True):
        prompt, reply = tiny.prompt_tokens(messages), tiny.text_tokens(text)
        with torch.inference_mode():
            log_p = tiny.model(torch.tensor([prompt + reply])).logits[0].double().log_softmax(-1)
        expected = sum(float(log_p[len(prompt) - 1 + i, t]) for i, t in enumerate(reply))
        assert count == len(reply) and abs(total - expected) < 1e-4 * len(reply)


@pytest.mark.parametrize("text", ["", " "])
def test_a_text_without_a_token_has_no_perplexity(tiny, text):
    with pytest.raises(ValueError, match="without a token"):
        tiny.log_likelihoods([(chat("word1"), "word2"), (chat("word1"), text)])


def test_nothing_asked_is_nothing_found(tiny):
    assert tiny.log_likelihoods([]).shape == (0, 2)
    assert tiny.next_log_p([], ["A", "B"]).shape == (0, 2)


@given(lengths=st.lists(st.integers(1, 3000), max_size=60))
def test_batches_hold_each_once_the_longest_first_and_few_tokens(lengths):
    batches = list(module._batches(lengths))
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    in_order = [lengths[i] for batch in batches for i in batch]
    assert in_order == sorted(lengths, reverse=True)
    for batch in batches:
        padded = len(batch) * max(lengths[i] for i in batch)
        assert len(batch) == 1 or padded <= module._BATCH_TOKENS


# letters ------------------------------------------------------------------------------------------


def test_letters_in_one_pass_are_replies_of_one_token(opened):
    causal, _ = opened
    letters = ["A", "B", "C", "D"]
    asked = [messages for messages, _ in PAIRS]
    found = causal.next_log_p(asked, letters)
    for row, messages in zip(found, asked, strict=True):
        expected = causal.log_likelihoods([(messages, letter) for letter in letters])
        assert np.abs(row - expected[:, 0]).max() < 1e-4 and (expected[:, 1] == 1).all()
    assert (np.exp(found).sum(axis=1) < 1).all()


@pytest.mark.parametrize("replies", [["A", "word1 word2"], ["A", ""], ["A", "B", "A"]])
def test_letters_must_be_one_token_each_and_different(tiny, replies):
    with pytest.raises(ValueError, match="not one token each"):
        tiny.next_log_p([chat("word1")], replies)


# writing ------------------------------------------------------------------------------------------


def likeliest_chain(causal: Causal, messages: list[dict], most: int) -> str:
    """The likeliest token each time, all that is there read anew for each."""
    import torch

    tokens = causal.prompt_tokens(messages)
    start = len(tokens)
    for _ in range(most):
        with torch.inference_mode():
            token = int(causal.model(torch.tensor([tokens])).logits[0, -1].argmax())
        if token == causal.tokenizer.eos_token_id:
            break
        tokens.append(token)
    return causal.tokenizer.decode(tokens[start:], skip_special_tokens=True).strip()


def test_greedy_is_the_likeliest_chain_also_behind_padding(opened):
    causal, _ = opened
    asked = [messages for messages, _ in PAIRS]
    expected = [likeliest_chain(causal, messages, 4) for messages in asked]
    assert causal.write(asked, Sampling(max_tokens=4)) == expected
    assert len(set(expected)) == 3 and all(expected)


def test_what_is_drawn_depends_on_the_seed_alone(tiny):
    import torch

    asked = [chat("word1 word2"), chat("word3")]
    sampling = Sampling(max_tokens=12, temperature=1.0)
    torch.manual_seed(5)
    expected_next = torch.rand(1)
    torch.manual_seed(5)
    first = tiny.write(asked, sampling, seed=1)
    assert torch.rand(1) == expected_next  # chance elsewhere goes on as if nothing had been drawn
    assert tiny.write(asked, sampling, seed=1) == first
    assert tiny.write(asked, sampling, seed=2) != first
    greedy = Sampling(max_tokens=12)
    assert tiny.write(asked, greedy, seed=1) == tiny.write(asked, greedy, seed=2)


def test_a_text_is_no_longer_than_asked(tiny):
    for most in (1, 5):
        written = tiny.write([chat("word1"), chat("word2")], Sampling(most, temperature=1.0))
        assert all(len(tiny.text_tokens(text)) <= most for text in written)


def test_what_is_thought_is_not_written(tiny, monkeypatch):
    """The marks of most models are no special tokens, so that decoding leaves them in."""
    texts = iter(["<think>Sepsis?</think>\n\nGout.", "<think>Sepsis?"])
    monkeypatch.setattr(tiny.tokenizer, "decode", lambda *_, **__: next(texts))
    assert tiny.write([chat("word1"), chat("word2")], Sampling(2)) == ["Gout.", ""]


@pytest.mark.mirror
def test_a_kept_perplexity_label_measured_again(opened, mirror):
    """Two passages of a question to train on, with the model of the labels, all the way."""
    causal, _ = opened
    found = read_labels()
    snippets = {passage.pid: passage for passage in load_passages("bioasq")}
    chosen = found["pid"].isin(list(snippets)) & (found["tokens"] < 30)
    rows = found[chosen & (found["rationale"] == "expert") & (found["part"] == "train")][:2]
    rationales = {rationale.qid: rationale for rationale in load_rationales()}
    assert len(rows) == 2
    for row in rows.itertuples():
        rationale = rationales[row.qid]
        prompts = [rationale_messages(rationale, p) for p in (None, snippets[row.pid])]
        measured = causal.log_likelihoods([(prompt, rationale.expert) for prompt in prompts])
        kept = [row.log_p_without, row.log_p_with]
        assert np.abs(measured[:, 0] - kept).max() < 1e-3 * row.tokens
        assert (measured[:, 1] == row.tokens).all()
