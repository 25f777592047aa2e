"""The name readers know for ``lib.data.questions``."""

from lib.data.questions import Question, load_questions

__all__ = ["Question", "load_questions"]
