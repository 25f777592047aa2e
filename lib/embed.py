"""The name readers know for ``lib.search.embed``."""

from lib.search.embed import Encoder as Encoder
from lib.search.embed import load_encoder as load_encoder
