"""The name readers know for ``lib.studies.nli``."""
