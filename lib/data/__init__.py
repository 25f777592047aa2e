"""Questions, passages and the benchmarks made of them: one file for each set."""

__all__ = ["load_benchmark"]


def load_benchmark(name: str, encoder=None):
    """A benchmark by name; all but ddx-mini use ``encoder`` to find near mimics.

    A new question set is one file with a ``build(encoder)`` and one line here.
    """
    from lib.data import bioasq, ddx_fresh, ddx_mini, ddx_real
    from lib.data.blind import blind

    makers = {
        "ddx-mini": ddx_mini.build,
        "ddx-real": ddx_real.build,
        "bioasq": bioasq.build,
        "ddx-fresh": ddx_fresh.build,
        "ddx-real-blind": lambda encoder: blind(ddx_real.build(encoder)),
        "ddx-fresh-blind": lambda encoder: blind(ddx_fresh.build(encoder)),
    }
    if name not in makers:
        raise ValueError(f"no benchmark {name!r}; there are: {', '.join(makers)}")
    return makers[name](encoder)
