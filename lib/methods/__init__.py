"""The retrieval methods, one file each, on one interface (see ``base``)."""

from lib.methods import chr, csqe, fusion, hyde, query2doc, standard, thinkqe
from lib.methods.base import Budget, Expansion, Fusion, Method, Search, Sparse
from lib.ways import Hypotheses, Text, Way

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
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
}
"""Every method by name, with its default settings. Add yours: one file, one line here."""

__all__ = [
    "METHODS",
    "Budget",
    "Expansion",
    "Fusion",
    "Hypotheses",
    "Method",
    "Search",
    "Sparse",
    "Text",
    "Way",
]
