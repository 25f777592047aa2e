"""The name readers know for ``lib.data.questions``."""

from lib.data.questions import Question as Question
from lib.data.questions import load_questions as load_questions
