"""A causal language model opened directly: how likely it finds a text, and what it would write.

A server does not say how likely a given text is, and cannot be fine-tuned. So perplexities (RAG2)
and the tuned generator (SL-HyDE) use transformers: the bundled SmolLM2 from its GGUF file, or any
model of the hub or a folder.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lib.base.files import Unfinished, sha256_bytes
from lib.llm.engines import BUNDLED, plain_causal
from lib.llm.replies import part

_BATCH_TOKENS = 1024
"""Tokens in one batch, padding included: on a CPU larger ones are slower."""


@dataclass(frozen=True)
class Sampling:
    """How a text is drawn. A temperature of 0 takes the likeliest token each time.

    The original SL-HyDE also sets a presence penalty, which transformers does not have: here
    ``repetition_penalty`` stands in for it, and ``Penalised`` has it.
    """

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    repetition_penalty: float = 1.0


@dataclass(frozen=True)
class Penalised(Sampling):
    """Sampling with the presence penalty of servers: what is taken off the logit of a token that
    the reply has already. A class of its own, so that names of older texts stay what they are."""

    presence_penalty: float = 0.0


def open_causal(name: str = BUNDLED, device: str | None = None) -> Causal:
    """The model called ``name``, to be asked; on a GPU where there is one (then in bfloat16)."""
    import torch

    from lib.model_files import pack_linear_layers

    model, tokenizer = plain_causal(name)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cpu":
        pack_linear_layers(model.get_decoder())
    else:
        model = model.to(device, torch.bfloat16)
    return Causal(name, model, tokenizer)


class Causal:
    """A model that is asked: ``log_likelihoods`` of given texts, and ``write`` for new ones.

    ``next_log_p`` compares replies of one token, such as the letters of options.
    """

    def __init__(self, name: str, model: Any, tokenizer: Any):
        self.name, self.model, self.tokenizer = name, model, tokenizer
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token

    def prompt_tokens(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """A chat as the model reads it, up to where its reply begins."""
        text = self.tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=True
        )
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def text_tokens(self, text: str) -> list[int]:
        """A reply as the model would write it, without a mark of its end."""
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def log_likelihoods(self, asked: Sequence[tuple[Sequence[dict], str]]) -> np.ndarray:
        """How likely each text is as the reply to its messages: float64 (n, 2).

        Columns: the sum of log p of its tokens (natural logarithm), and how many tokens it has; its
        perplexity is exp(-sum / tokens). Long pairs come first, in batches of like length, so that
        a lack of memory shows at once. ValueError for a text without a token.
        """
        import torch

        pairs = [(self.prompt_tokens(m), self.text_tokens(text)) for m, text in asked]
        if not all(reply for _, reply in pairs):
            raise ValueError("a text without a token has no perplexity")
        found = np.empty((len(pairs), 2))
        for rows in _batches([len(prompt) + len(reply) for prompt, reply in pairs]):
            with torch.inference_mode():
                batch = self._states([pairs[i][0] + pairs[i][1] for i in rows])
                for states, i in zip(batch, rows, strict=True):
                    prompt, reply = pairs[i]
                    # A token is predicted from the state before it.
                    before = states[len(prompt) - 1 : len(prompt) + len(reply) - 1]
                    log_p = self.model.lm_head(before).float().log_softmax(dim=-1)
                    chosen = torch.tensor(reply, device=log_p.device)[:, None]
                    found[i] = float(log_p.gather(1, chosen).double().sum()), len(reply)
        return found

    def next_log_p(self, asked: Sequence[Sequence[dict]], replies: Sequence[str]) -> np.ndarray:
        """log p of each of several one-token replies to each chat: float64 (chats, replies).

        The natural logarithm over the whole vocabulary, as the first token of a reply; one pass
        serves all replies. ValueError for a reply of no or of several tokens, or one given twice.
        """
        import torch

        columns = [self.text_tokens(reply) for reply in replies]
        wrong = [r for r, tokens in zip(replies, columns, strict=True) if len(tokens) != 1]
        if wrong or len({tokens[0] for tokens in columns}) < len(columns):
            raise ValueError(f"not one token each, and each another: {wrong or list(replies)}")
        prompts = [self.prompt_tokens(messages) for messages in asked]
        found = np.empty((len(prompts), len(columns)))
        for rows in _batches([len(prompt) for prompt in prompts]):
            with torch.inference_mode():
                states = self._states([prompts[i] for i in rows])
                last = [len(prompts[i]) - 1 for i in rows]
                logits = self.model.lm_head(states[range(len(rows)), last]).float()
                log_p = logits.log_softmax(dim=-1)[:, [tokens[0] for tokens in columns]]
            found[rows] = log_p.double().cpu().numpy()
        return found

    def _states(self, texts: Sequence[list[int]]) -> Any:
        """The last layer's states of one batch of tokens, (texts, longest, width)."""
        # Padding stands behind the texts, and no token reads what comes after it.
        padded = self.tokenizer.pad({"input_ids": texts}, padding_side="right", return_tensors="pt")
        return self.model.get_decoder()(padded["input_ids"].to(self.model.device)).last_hidden_state

    def write(
        self, asked: Sequence[Sequence[dict]], sampling: Sampling, seed: int = 0
    ) -> list[str]:
        """One text for each chat, without thinking and white space at its ends. May be empty.

        All chats are one batch. What is drawn depends on the seed and on all chats of the batch.
        """
        import torch

        prompts = {"input_ids": [self.prompt_tokens(messages) for messages in asked]}
        padded = self.tokenizer.pad(prompts, padding_side="left", return_tensors="pt")
        options: dict[str, Any] = {"do_sample": False}
        if sampling.temperature:
            options = {
                "do_sample": True,
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "top_k": sampling.top_k,
            }
        if penalty := getattr(sampling, "presence_penalty", 0.0):
            options["logits_processor"] = [_presence(penalty, padded["input_ids"].shape[1])]
        with torch.inference_mode(), _seeded(seed, sampling, padded["input_ids"]):
            written = self.model.generate(
                **padded.to(self.model.device),
                max_new_tokens=sampling.max_tokens,
                repetition_penalty=sampling.repetition_penalty,
                pad_token_id=self.tokenizer.pad_token_id,
                **options,
            )
        replies = written[:, padded["input_ids"].shape[1] :]
        texts = [self.tokenizer.decode(r, skip_special_tokens=True).strip() for r in replies]
        return [part(text).text for text in texts]


def _presence(penalty: float, start: int) -> Any:
    """What takes ``penalty`` off the logits of tokens that stand at ``start`` or later."""
    import torch
    from transformers import LogitsProcessor

    class Presence(LogitsProcessor):
        def __call__(self, input_ids: Any, scores: Any) -> Any:
            said = torch.zeros_like(scores).scatter(1, input_ids[:, start:], penalty)
            return scores - said

    return Presence()


@contextmanager
def _seeded(seed: int, sampling: Sampling, tokens: Any) -> Iterator[None]:
    """Chance that depends on the seed, the settings and what is asked; left as it was after."""
    import torch

    told = f"{seed} {sampling} {tokens.tolist()}"
    with torch.random.fork_rng():
        torch.manual_seed(int(sha256_bytes(told.encode())[:15], 16))
        yield


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Positions in batches of at most ``_BATCH_TOKENS`` tokens with padding, the longest first."""
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    batch: list[int] = []
    for i in order:
        if batch and (len(batch) + 1) * lengths[batch[0]] > _BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


# long work ----------------------------------------------------------------------------------------


def in_batches(
    name: str,
    asked: Sequence[Any],
    lengths: Sequence[int],
    measure: Callable[[list[Any]], list[Any]],
    folder: Path,
    size: int,
) -> list[Any]:
    """``measure(asked)`` in the order asked; killed and run again, it comes to the same values.

    A batch is ``size`` items of like length (in tokens), the longest first, and depends on nothing
    but all that is asked. Each finished one is kept in ``folder`` for this ``name``, ``size`` and
    ``asked``: another model, which ``name`` must tell, begins anew. What is asked and measured must
    be JSON.
    """
    work = Unfinished(name, folder, size=size, asked=list(asked))
    order = sorted(range(len(asked)), key=lambda i: (-lengths[i], i))
    batches = [order[start : start + size] for start in range(0, len(order), size)]
    measured: list[Any] = [None] * len(asked)
    for number, rows in enumerate(batches, 1):
        values = work.piece(str(number), partial(measure, [asked[i] for i in rows]))
        print(f"{name}: {number} of {len(batches)}", file=sys.stderr, flush=True)
        for i, value in zip(rows, values, strict=True):
            measured[i] = value
    return measured
