"""The retrieval methods, one file each, on one interface (see ``base``).

Whatever a file of this folder registers is in ``METHODS``, and so in every table and figure.
"""

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
    """Import every file of this folder, which registers its methods, and order ``METHODS``."""
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    for name in dict.fromkeys([*SHIPPED, *METHODS]):
        METHODS[name] = METHODS.pop(name)


load_methods()
