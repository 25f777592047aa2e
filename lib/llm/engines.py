"""The two ways to generate in this process: transformers on any device, and vLLM's offline mode.

``lib.llm.offline`` gathers what they answer. vLLM is an extra: it brings its own torch.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lib.base.files import canonical_json
from lib.llm.chat import LLMError
from lib.llm.offline import Asked, OfflineChat, Written

BUNDLED = "smollm2"

VLLM_MISSING = (
    "vLLM is not installed. Next: make vllm (CUDA cards, some GB), or serve the model "
    "elsewhere and name it openai:<model>@<address>"
)


@lru_cache(maxsize=16)
def offline_model(kind: str, rest: str) -> OfflineChat:
    """The model of "vllm:<rest>" or "transformers:<rest>", <model>?<setting>=<value>&...

    ``model`` is a name of the hub or a folder, and what recordings call it: of a folder its name.
    Settings go to vLLM's LLM (such as ``tensor_parallel_size=4&max_model_len=16384``); transformers
    has ``device``, ``dtype`` and ``batch``. ValueError for a setting without a value.
    """
    model, _, settings = rest.partition("?")
    if not model:
        raise ValueError(f"no model in the LLM spec {kind}:{rest}. Next: {kind}:<model or folder>")
    pairs = [setting.partition("=") for setting in settings.split("&") if setting]
    if any(not value for _, _, value in pairs):
        raise ValueError(f"{kind}:{rest}: write settings as name=value, with & between them")
    options = {name: _read(value) for name, _, value in pairs}
    return OfflineChat(model_name(model), partial(ENGINES[kind], model, **options))


def model_name(model: str) -> str:
    """What recordings call a model: its name at the hub, or the name of its folder."""
    folder = Path(model).expanduser()
    return folder.resolve().name if folder.is_dir() else model


def weights_of(spec: str) -> str:
    """The folder or the name at the hub of the weights behind a spec of ``ENGINES``. LLMError, with
    the command, where the spec needs vLLM and that is not installed."""
    kind, _, rest = spec.partition(":")
    if ENGINES[kind] is VllmEngine and find_spec("vllm") is None:
        raise LLMError(VLLM_MISSING)
    return rest.partition("?")[0]


def _read(value: str) -> Any:
    """A number or true and false as such, other values as text."""
    with suppress(ValueError):
        return json.loads(value)
    return value


def free_card() -> None:
    """Give back what torch keeps of a card's memory for what no longer is there."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


# transformers -------------------------------------------------------------------------------------


def plain_causal(name: str = BUNDLED, dtype: str = "float32") -> tuple[Any, Any]:
    """The model (on the CPU) and the tokenizer called ``name``: to be asked, trained or wrapped.

    The weights of SmolLM2's GGUF file are unpacked; their four bits stay what they are.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from lib.llm.small_model import weights
    from lib.model_files import model_folder, quiet

    quiet()
    if name == BUNDLED:
        file = weights()
        where, options = str(file.parent), {"gguf_file": file.name}
    else:
        where, options = str(model_folder(name)), {}
    tokenizer = AutoTokenizer.from_pretrained(where, **options)
    model = AutoModelForCausalLM.from_pretrained(where, dtype=getattr(torch, dtype), **options)
    return model.eval(), tokenizer


class TransformersEngine:
    """A causal model of transformers: bfloat16 on a card, float32 and packed on the CPU.

    A batch is padded on the left. Each request has settings and a seed of its own: what is drawn
    for it does not depend on what else is in its batch, but for the rounding of sums.
    """

    def __init__(
        self, model: str, device: str | None = None, dtype: str | None = None, batch: int = 32
    ):
        import torch

        from lib.model_files import pack_linear_layers

        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        on_card = device.startswith("cuda")
        dtype = dtype or ("bfloat16" if on_card else "float32")
        self.most = batch
        self.model, self.tokenizer = plain_causal(model, dtype)
        self.model = self.model.to(device)
        if not on_card:
            pack_linear_layers(self.model.get_decoder())
        ends = self.model.generation_config.eos_token_id
        listed = ends if isinstance(ends, list) else [ends]
        self._ends = sorted({*listed, self.tokenizer.eos_token_id} - {None})
        if self.tokenizer.pad_token_id is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token

    def write(self, asked: Sequence[Asked]) -> list[Written]:
        """See Engine."""
        import torch

        prompts = [self._prompt(one) for one in asked]
        padded = self.tokenizer.pad(
            {"input_ids": prompts}, padding_side="left", return_tensors="pt"
        ).to(self.model.device)
        drawing = Drawing(asked, self.tokenizer, padded["input_ids"].shape[1])
        with torch.inference_mode():
            out = self.model.generate(
                **padded,
                max_new_tokens=max(one.options["max_tokens"] for one in asked),
                do_sample=False,  # ``Drawing`` draws
                logits_processor=[drawing],
                stopping_criteria=[drawing.ended],
                eos_token_id=self._ends,
                pad_token_id=self.tokenizer.pad_token_id,
                repetition_penalty=1.0,  # no setting that nobody has asked for
                temperature=None,
                top_p=None,
                top_k=None,
            )
        tokens = out[:, padded["input_ids"].shape[1] :].tolist()
        rows = zip(asked, prompts, tokens, drawing.listed or [()] * len(asked), strict=True)
        return [self._written(*row) for row in rows]

    def _prompt(self, asked: Asked) -> list[int]:
        """A chat as the model reads it, up to where its reply begins."""
        text = self.tokenizer.apply_chat_template(
            asked.messages, tokenize=False, add_generation_prompt=True
        )
        tokens = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        room = getattr(self.model.config, "max_position_embeddings", None)
        if room and len(tokens) + asked.options["max_tokens"] > room:
            raise ValueError(
                f"a prompt of {len(tokens):,} tokens and {asked.options['max_tokens']:,} of reply "
                f"are more than its context of {room:,}"
            )
        return tokens

    def _written(
        self, asked: Asked, prompt: list[int], tokens: list[int], listed: tuple
    ) -> Written:
        """A reply up to where it ended: by the model, at a stop text, or at its cap."""
        cap = asked.options["max_tokens"]
        end = next((i for i, token in enumerate(tokens[:cap]) if token in self._ends), None)
        said = tokens[:cap] if end is None else tokens[:end]
        text = self.tokenizer.decode(said, skip_special_tokens=True)
        stops = [at for stop in asked.options["stop"] if (at := text.find(stop)) >= 0]
        ended = end is not None or bool(stops)
        if stops:
            text = text[: min(stops)]
        counted = len(said) + (end is not None)
        note = "schema not enforced" if asked.options.get("schema") else ""
        reason = "stop" if ended else "length"
        return Written(text, reason, len(prompt), counted, note, tuple(listed))

    def close(self) -> None:
        """See Engine."""
        del self.model
        free_card()


class Drawing:
    """The next token of every row of a batch, by its own temperature, top p and seed.

    Called by ``generate`` with the scores of each step: it leaves one token a row. A row's chances
    are drawn before the first step, one number a token, so nothing else of the batch moves them.
    """

    def __init__(self, asked: Sequence[Asked], tokenizer: Any, begins: int):
        import torch

        self._asked, self._tokenizer, self._begins = asked, tokenizer, begins
        self.listed: list[list[tuple[str, float]]] = []
        self._chances = []
        for one in asked:
            source = torch.Generator().manual_seed(one.options["seed"] % 2**63)
            most = one.options["max_tokens"]
            self._chances.append(torch.rand(most, generator=source, dtype=torch.float64))

    def __call__(self, tokens: Any, scores: Any) -> Any:
        step = tokens.shape[1] - self._begins
        if not step and any(one.options.get("choices") for one in self._asked):
            self._list(scores)
        drawn = scores.argmax(dim=-1)
        for row, one in enumerate(self._asked):
            if one.options["temperature"] > 0 and step < one.options["max_tokens"]:
                drawn[row] = _draw(scores[row], self._chances[row][step], one.options)
        left = scores.new_full(scores.shape, float("-inf"))
        return left.scatter(1, drawn[:, None], 0.0)

    def _list(self, scores: Any) -> None:
        """The 20 likeliest first tokens of each row, with the log of their probability."""
        best, at = scores.float().log_softmax(dim=-1).topk(min(20, scores.shape[1]))
        for values, tokens in zip(best.tolist(), at.tolist(), strict=True):
            texts = [self._tokenizer.decode([token]) for token in tokens]
            self.listed.append(list(zip(texts, values, strict=True)))

    def ended(self, tokens: Any, scores: Any, **_: Any) -> Any:
        """For each row, whether it is as long as it may be, or has a text at which it stops."""
        import torch

        said = tokens[:, self._begins :]
        done = []
        for row, one in enumerate(self._asked):
            stops = one.options["stop"]
            text = self._tokenizer.decode(said[row], skip_special_tokens=True) if stops else ""
            capped = said.shape[1] >= one.options["max_tokens"]
            done.append(capped or any(stop in text for stop in stops))
        return torch.tensor(done, device=tokens.device)


def _draw(scores: Any, chance: Any, options: dict) -> Any:
    """One token: of the likeliest that together have ``top_p``, the one at which their summed
    probability passes the chance."""
    p, order = (scores.double() / options["temperature"]).softmax(dim=-1).sort(descending=True)
    before = p.cumsum(dim=-1) - p
    p = p.where(before < options["top_p"], 0.0)
    passed = p.cumsum(dim=-1) > chance.to(p.device) * p.sum()
    return order[passed.int().argmax()]


# vLLM ---------------------------------------------------------------------------------------------


class VllmEngine:
    """vLLM's offline mode: ``LLM.chat`` on all requests of a batch at once.

    vLLM schedules them itself, so a batch is what all waiting threads ask for. It takes the first
    cards that CUDA_VISIBLE_DEVICES shows. Of a model's own settings it takes none, where ``vllm
    serve`` may add some (top k, a repetition penalty). LLMError, with the command, where vLLM is
    not installed.
    """

    most = 4096

    def __init__(self, model: str, **settings: Any):
        try:
            from vllm import LLM
        except ModuleNotFoundError as error:
            if error.name != "vllm":
                raise
            raise LLMError(VLLM_MISSING) from None
        self._llm: Any = LLM(model=model, **settings)

    def write(self, asked: Sequence[Asked]) -> list[Written]:
        """See Engine."""
        sampling = [_vllm_sampling(one.options) for one in asked]
        chats = [one.messages for one in asked]
        return [_vllm_written(out) for out in self._llm.chat(chats, sampling, use_tqdm=False)]

    def close(self) -> None:
        """See Engine. vLLM's engine is a process of its own, which this ends."""
        engine = getattr(getattr(self._llm, "llm_engine", None), "engine_core", None)
        end = getattr(self._llm, "shutdown", None) or getattr(engine, "shutdown", None)
        if end:
            end()
        del self._llm
        free_card()


def _vllm_sampling(options: dict) -> Any:
    from vllm import SamplingParams

    given = {name: options[name] for name in ("temperature", "top_p", "max_tokens", "seed")}
    if options["stop"]:
        given["stop"] = options["stop"]
    if options.get("choices"):
        given["logprobs"] = 20
    if options.get("schema"):
        from vllm.sampling_params import StructuredOutputsParams

        schema = json.loads(canonical_json(options["schema"]))
        given["structured_outputs"] = StructuredOutputsParams(json=schema)
    return SamplingParams(**given)


def _vllm_written(out: Any) -> Written:
    (said,) = out.outputs
    listed: list[tuple[str, float]] = []
    if said.logprobs:
        first = sorted(said.logprobs[0].values(), key=lambda entry: -entry.logprob)
        listed = [(entry.decoded_token, entry.logprob) for entry in first]
    tokens = len(out.prompt_token_ids), len(said.token_ids)
    return Written(said.text, said.finish_reason or "unknown", *tokens, listed=tuple(listed))


ENGINES = {"vllm": VllmEngine, "transformers": TransformersEngine}
"""By the kind of spec that names a model in this process."""
