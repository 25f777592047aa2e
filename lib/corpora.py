"""The name readers know for ``lib.data.corpora``."""

from lib.data.corpora import load_passages
from lib.data.passages import CORPORA, Passage

__all__ = ["CORPORA", "Passage", "load_passages"]
