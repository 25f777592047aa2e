"""The name readers know for ``lib.data.corpora``."""

from lib.data.corpora import load_passages as load_passages
from lib.data.passages import CORPORA as CORPORA
from lib.data.passages import Passage as Passage
