"""Vectors of texts from a server with OpenAI's endpoint for embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lib.llm.openai_chat import OpenAIServer


class OpenAIEmbeddings(OpenAIServer):
    """An embedding model behind a server (see ``OpenAIServer``)."""

    _answers_in = "data"

    async def _request(self, request: dict) -> Any:
        # Floats as numbers: not every server knows the package's default, base64.
        ask = self._client.embeddings.with_raw_response.create
        return await ask(model=self.name, encoding_format="float", **request)

    def vectors(self, texts: Sequence[str]) -> np.ndarray:
        """float32 (n, dim), a row a text in their order, as long as the server makes them.

        Raises LLMError where the server fails, and for anything but one finite vector, not zero and
        as long as the others, for each text.
        """
        answer, *_ = self._wait_for(self._ask({"input": list(texts)}))
        try:
            row_of = {entry["index"]: entry["embedding"] for entry in answer["data"]}
            if len(answer["data"]) != len(texts) or sorted(row_of) != list(range(len(texts))):
                raise ValueError(f"{len(answer['data'])} vectors for {len(texts)} texts")
            rows = np.array([row_of[i] for i in range(len(texts))], dtype=np.float32)
            if rows.ndim != 2:
                raise ValueError("a vector that is none")
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise self._error(f"the answer cannot be used ({error})") from None
        norms = np.linalg.norm(rows, axis=1)
        if not (np.isfinite(norms) & (norms > 0)).all():
            raise self._error("a vector is zero or not finite")
        return rows
