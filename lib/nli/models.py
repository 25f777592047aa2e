"""The name readers know for ``lib.studies.nli.models``."""

from lib.studies.nli.models import load_backend

__all__ = ["load_backend"]
