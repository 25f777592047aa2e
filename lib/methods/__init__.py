"""The retrieval methods, one file each, on one interface (see ``base``)."""

from collections.abc import Iterable

from lib.methods import chr, csqe, fusion, hyde, query2doc, standard, thinkqe
from lib.methods.base import Budget, Expansion, Fusion, Method, Search, Sparse
from lib.query_spec import Hypotheses, SearchSpec, Text


def _by_name(methods: Iterable[Method]) -> dict[str, Method]:
    """The methods by name. ValueError when two have the same: one would replace the other."""
    by_name: dict[str, Method] = {}
    for method in methods:
        if method.name in by_name:
            raise ValueError(f"two methods are called {method.name!r}: give yours another name")
        by_name[method.name] = method
    return by_name


METHODS: dict[str, Method] = _by_name(
    (
        standard.Standard(),
        standard.Standard("bm25", sparse=True),
        standard.Hybrid(),
        hyde.HyDE(),
        query2doc.Query2Doc(),
        csqe.CSQE(),
        thinkqe.ThinkQE(),
        fusion.HyDEFusion(),
        chr.HPlus(),
        chr.CHR(),
    )
)
"""Every method by name, with its default settings. Add yours: one file, one line here."""
