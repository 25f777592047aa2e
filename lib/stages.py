"""The language models that a profile asks: what for, where each is served, and by which command.

What a run needs (``lib.doctor``) and who is served when (``lib.serve``) follow from it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from lib.cost import MODELS
from lib.llm.chat import LLMError
from lib.llm.connect import is_called, live_of, model_at, writer_of
from lib.llm.openai_chat import OpenAIChat
from lib.profiles import Profile

COMMAND = "vllm serve {model} --tensor-parallel-size {gpus} --max-model-len {context} --port {port}"
"""What starts a server; a reader's own may leave out any of these."""

_URL = "http://localhost:8000/v1"
_CONTEXT = 16384
"""Tokens that an expander or a judge is served with."""
ANSWER_S = 120
"""Seconds that a server may take for its one tiny reply: it may still be at what a run that was
killed had asked. One that is not there says so at once."""


@dataclass(frozen=True)
class Stage:
    """What is asked of one model: ``live`` stands behind "record:<file>=" in the profile, ``files``
    are those recordings, ``uses`` says what for, ``context`` is its window in tokens."""

    live: str
    files: tuple[str, ...]
    uses: tuple[str, ...]
    context: int

    @property
    def model(self) -> str:
        """What recordings call it."""
        return writer_of(self.live)

    @property
    def address(self) -> str:
        """Where the profile, or CHR_LLM_URL, says that it is served; empty where neither does."""
        kind, _, rest = self.live.partition(":")
        return model_at(rest)[1] if kind == "openai" else ""

    @property
    def url(self) -> str:
        """Where it is served, or will be; empty for a model in this process."""
        return self.address or (_URL if self.live.startswith("openai:") else "")

    def command(self, form: str = COMMAND) -> list[str]:
        """The words of the command that serves it."""
        port = re.search(r":(\d+)(?=/|$)", self.url)
        known = {
            "model": self.model,
            "gpus": MODELS[self.model][-2] if self.model in MODELS else 1,
            "context": self.context,
            "port": port[1] if port else "8000",
        }
        return [word.format(**known) for word in shlex.split(form)]


def stages(p: Profile) -> list[Stage]:
    """The models that a profile asks and records, in the order in which one needs another's texts:
    the expander, who really writes, the answerers, the judge, the contradiction study's."""
    uses = [(p.llm, "texts of every method that asks a model", _CONTEXT)]
    uses += [(p.generated["llm"], "06_token_cost", _CONTEXT)] if "llm" in p.generated else []
    for one in (one for one in p.answerers if "llm" in one):
        also = " and Figure 5" if one["name"] == p.sweep.get("answerer") else ""
        use = f"answers of {one['name']}{also}"
        uses.append((one["llm"], use, one.get("context_tokens", 8192)))
    uses += [(p.judge, "the judge's rows in 07", _CONTEXT)]
    evidence = p.evidence.get("answerers", [])
    uses += [(one["llm"], f"answers of {one['name']} in 09", 8192) for one in evidence]
    found: dict[str, list[tuple[str, str, int]]] = {}
    for spec, use, context in uses:
        if live := live_of(spec):
            file = spec.removeprefix("record:").partition("=")[0]
            found.setdefault(live, []).append((file, use, context))
    made = []
    for live, entries in found.items():
        files, named, contexts = (tuple(dict.fromkeys(part)) for part in zip(*entries, strict=True))
        made.append(Stage(live, files, named, max(contexts)))
    return made


class AnotherModel(LLMError):
    """A server answers, and not as the model that is asked for."""


def ask(model: str, url: str) -> str:
    """Ask a server for one token: where it answers. LLMError, with what to do, where nobody does;
    AnotherModel where another model does."""
    server = OpenAIChat(model, url, timeout_s=ANSWER_S, max_retries=0)
    try:
        (reply,) = server.generate([{"role": "user", "content": "Say yes."}], max_tokens=1)
    except LLMError as error:
        if error.status != 404:
            raise
        raise AnotherModel(f"{server.base_url} does not serve {model}: {error}", 404) from None
    names = [reply.model, *server.listed()]
    if not any(is_called(model, name) for name in names):
        raise AnotherModel(
            f"{server.base_url} answers as {reply.model!r:.80}, not as {model}. Next: give the "
            f"address of {model}, or name what is served: openai:{reply.model}@{url}"
        )
    return f"answers at {server.base_url}"


def encoding_on(p: Profile) -> Sequence[str]:
    """The devices that the profile names for its encoder."""
    given = p.encoder_options.get("device", ())
    return [given] if isinstance(given, str) else given


def cards_of(named: Sequence[str], count: int) -> set[int]:
    """The cards among these devices, by number; all ``count`` where no device is named."""
    parts = [device.partition(":") for device in named]
    cards = {int(number or 0) for kind, _, number in parts if kind == "cuda"}
    return cards if named else set(range(count))
