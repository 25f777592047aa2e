"""The name readers know for ``lib.studies.contradiction.nli``."""
