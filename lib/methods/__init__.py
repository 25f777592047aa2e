"""The retrieval methods, one file each, on one interface (see ``base``)."""

from lib.methods import chr, csqe, fusion, hyde, query2doc, standard, thinkqe
from lib.methods.base import Dense, Expansion, Forms, Fusion, Method, Search, Sparse, Text

METHODS: dict[str, Method] = {
    m.name: m
    for m in (
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

__all__ = ["METHODS", "Dense", "Expansion", "Forms", "Fusion", "Method", "Search", "Sparse", "Text"]
