"""The methods of the tables of record, in their order; one that a reader adds is not here."""

from __future__ import annotations

SHIPPED = (
    "standard",
    "bm25",
    "rrf",
    "hyde",
    "query2doc",
    "csqe",
    "thinkqe",
    "fusion",
    "hplus",
    "chr",
)
