"""A method's run and traces, as every study makes them: expand, then execute."""

from __future__ import annotations

import pandas as pd

from lib.expansion import execute, expand_all
from lib.run import Retriever


def run_retrieval(
    method, questions, retriever: Retriever, llm=None, k: int = 5, workers: int = 8
) -> tuple[pd.DataFrame, dict[str, dict]]:
    expansions = expand_all(method, questions, llm, retriever, workers=workers)
    return execute(method.name, questions, expansions, retriever, k)
