"""The name readers know for ``lib.search.embed``."""

from lib.search.embed import Encoder, load_encoder

__all__ = ["Encoder", "load_encoder"]
