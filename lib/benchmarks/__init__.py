"""Target/mimic benchmarks: questions with H+, H- and passages known to be on target or mimic."""

from lib.benchmarks.base import Benchmark

__all__ = ["Benchmark", "load_benchmark"]


def load_benchmark(name: str, encoder=None) -> Benchmark:
    """One of ddx-mini, ddx-real and bioasq; the real ones use ``encoder`` to find near mimics."""
    from lib.benchmarks import bioasq, ddx_mini, ddx_real

    makers = {"ddx-mini": ddx_mini.build, "ddx-real": ddx_real.build, "bioasq": bioasq.build}
    if name not in makers:
        raise ValueError(f"no benchmark {name!r}; there are: {', '.join(makers)}")
    return makers[name](encoder)
