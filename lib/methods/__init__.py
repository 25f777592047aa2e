"""The retrieval methods, one file each, on one interface (see ``base``).

Whatever a file of this folder registers is in ``METHODS``, and so in every table and figure. With
the environment variable ``CHR_METHODS=shipped`` the methods of the committed tables alone are: so
committed tables and notebooks are checked, whatever a reader has added.
"""

import os
from importlib import import_module
from pkgutil import iter_modules

from lib.methods.base import METHODS, Budget, Expansion, Method, Search, register
from lib.query_spec import Fusion, Hypotheses, SearchSpec, Sparse, Text

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
"""The methods of the committed tables, in their order; those that a reader adds follow."""


def load_methods() -> None:
    """Import every file of this folder, which registers its methods, and order ``METHODS``.

    ValueError for a ``CHR_METHODS`` that is not "shipped".
    """
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    wanted = os.environ.get("CHR_METHODS") or "all"
    if wanted not in ("all", "shipped"):
        raise ValueError(f"CHR_METHODS is {wanted!r}: it can only be 'shipped', or not be set")
    found = dict(METHODS)
    METHODS.clear()
    for name in dict.fromkeys(SHIPPED if wanted == "shipped" else [*SHIPPED, *found]):
        METHODS[name] = found[name]


load_methods()
