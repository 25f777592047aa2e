"""Questions, passages and the benchmarks made of them: one file for each set."""

__all__ = ["load_benchmark"]


def load_benchmark(name: str, encoder=None):
    """One of ddx-mini, ddx-real and bioasq; the real ones use ``encoder`` to find near mimics."""
    from lib.data import bioasq, ddx_mini, ddx_real

    makers = {"ddx-mini": ddx_mini.build, "ddx-real": ddx_real.build, "bioasq": bioasq.build}
    if name not in makers:
        raise ValueError(f"no benchmark {name!r}; there are: {', '.join(makers)}")
    return makers[name](encoder)
