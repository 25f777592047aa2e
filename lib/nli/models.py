"""The name readers know for ``lib.studies.contradiction.nli``."""

from lib.studies.contradiction.nli import load_backend as load_backend
