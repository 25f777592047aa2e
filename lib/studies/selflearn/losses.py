"""The two losses of the retriever: the query alone, and the mean of query and written passage.

Both are Eq. 6 of SL-HyDE (Li et al., AutoMIR, arXiv:2410.20050): of all passages in a batch, the
others' and the mined ones, a query is to be nearest to its own. They differ in what stands for the
query. The paper trains on (query, written passage; document); its released code has the branch with
the passage commented out and takes the query alone. Imported only where something is trained.

Both turn dropout off (``without_dropout``): on one core drawing it takes two fifths of the time,
and one epoch of small adapters leaves little to overfit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor, nn

SCALE = 50.0
"""One over the paper's temperature, .02."""


def without_dropout(model: nn.Module) -> None:
    """Set every dropout of the model, its adapter's too, to 0."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0


def query_alone(model: Any) -> MultipleNegativesRankingLoss:
    """Columns: query, its passage, negatives. The cosine, with the others' passages and negatives
    of the batch as further negatives."""
    without_dropout(model)
    return MultipleNegativesRankingLoss(model, scale=SCALE)


class MeanAnchorLoss(nn.Module):
    """Columns: query, written passage, the query's own passage, negatives.

    As Eq. 8 and 9 search at inference: v = (u(query) + u(written)) / 2, where u makes a vector one
    of length 1 and v stays as long as it comes out; the score of a passage d is <v, u(d)>.
    """

    def __init__(self, model: Any):
        super().__init__()
        without_dropout(model)
        self.model = model

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor) -> Tensor:
        """The mean loss of the batch; ``labels`` is what trainers hand over, and is not read."""
        columns = [self.model(features)["sentence_embedding"] for features in sentence_features]
        return self.of_vectors(columns)

    def of_vectors(self, columns: list[Tensor]) -> Tensor:
        """The loss, given a tensor (n, d) for each column: -log softmax(SCALE <v, u(d)>) of the
        own passage among all n times (1 + negatives) of the batch, averaged over the n."""
        query, written, *passages = [nn.functional.normalize(rows, dim=1) for rows in columns]
        anchors = (query + written) / 2
        scores = SCALE * anchors @ torch.cat(passages).T
        own = torch.arange(len(anchors), device=scores.device)
        return nn.functional.cross_entropy(scores, own)
