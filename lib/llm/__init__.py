"""Chat models behind one interface, the recorder, the prompts, and reading replies."""

from lib.llm.connect import connect
