"""The name readers know for ``lib.studies.nli.models``."""

from lib.studies.nli.models import load_backend as load_backend
