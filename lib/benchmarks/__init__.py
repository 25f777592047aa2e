"""Benchmarks: questions with H+ and H- given, and which passages are on what. One file each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lib.benchmarks.base import Benchmark


def benchmark_makers() -> dict[str, Callable[..., Benchmark]]:
    """What makes each benchmark, by name: a function of an encoder.

    A new question set is one file with a ``build(encoder)`` and one line here.
    """
    from lib.benchmarks import bioasq, ddx_mini, ddx_real
    from lib.benchmarks.entity_masking import mask_names

    return {
        "ddx-mini": ddx_mini.build,
        "ddx-real": ddx_real.build,
        "bioasq": bioasq.build,
        "ddx-fresh": ddx_real.build_fresh,
        "ddx-real-blind": lambda encoder: mask_names(ddx_real.build(encoder)),
        "ddx-fresh-blind": lambda encoder: mask_names(ddx_real.build_fresh(encoder)),
    }


def load_benchmark(name: str, encoder=None) -> Benchmark:
    """A benchmark by name; all but ddx-mini use ``encoder`` to find near mimics."""
    makers = benchmark_makers()
    if name not in makers:
        raise ValueError(f"no benchmark {name!r}; there are: {', '.join(makers)}")
    return makers[name](encoder)
