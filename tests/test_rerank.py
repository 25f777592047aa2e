"""Cross-encoders as scorers: order, batches, what is cut where a pair is too long."""

from __future__ import annotations

import numpy as np
import pytest

from lib.search.rerank import PairScorer, load_reranker
from tests.tiny_models import save_bert


@pytest.fixture(scope="module", params=[1, 2], ids=["one logit", "two labels"])
def scorer(request, tmp_path_factory) -> PairScorer:
    """A tiny cross-encoder as the hub would store it, with one score or two labels."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    folder = save_bert(tmp_path_factory.mktemp("bert"), seed=1)
    config = BertConfig.from_pretrained(folder, num_labels=request.param)
    torch.manual_seed(2)
    net = BertForSequenceClassification(config)
    net.classifier.weight.data *= 2  # or all scores would be nearly the same
    tokenizer = AutoTokenizer.from_pretrained(folder)
    net.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return PairScorer("tiny", folder, max_tokens=32)


PAIRS = [
    ("fever of the kidney", "treat the kidney"),
    ("fever", "a drug " * 40),
    ("test the heart", "pain"),
    ("pain " * 60, "dose of a drug"),
    ("fever of the kidney", "treat the kidney"),
    ("", "a sign"),
]


def test_a_score_depends_on_its_own_pair_alone(scorer):
    together = scorer(PAIRS)
    assert together.shape == (6,)
    assert together[0] == together[4]
    assert len(set(np.round(together, 6))) > 2, "a scorer that says the same of all tells nothing"
    alone = np.array([scorer([pair])[0] for pair in PAIRS])
    assert together == pytest.approx(alone, abs=1e-5)
    assert scorer(PAIRS[::-1])[::-1] == pytest.approx(together, abs=1e-5)
    assert scorer([]).shape == (0,)


def test_the_passage_loses_its_end_and_only_a_query_that_fills_all_loses_its_beginning(scorer):
    long = "a drug " * 40
    (first, second) = scorer([("fever", long), ("fever", long + "kidney kidney")])
    assert first == pytest.approx(second, abs=1e-6)
    (first, second) = scorer(
        [("pain " * 60 + "test", "dose"), ("sign " * 9 + "pain " * 60 + "test", "dose")]
    )
    assert first == pytest.approx(second, abs=1e-6)
    (first, second) = scorer([("pain " * 60 + "test", "dose"), ("pain " * 60 + "fever", "dose")])
    assert abs(first - second) > 1e-5


def test_the_scores_are_those_of_the_model_itself(scorer):
    import torch

    tokens = scorer._tokenizer(*PAIRS[0], return_tensors="pt")
    with torch.no_grad():
        logits = scorer._net(**tokens).logits[0].double()
    want = logits[0] if len(logits) == 1 else logits.softmax(dim=0)[-1]
    assert scorer(PAIRS[:1])[0] == pytest.approx(float(want), abs=1e-5)


def test_an_unknown_reranker_is_named_with_those_there_are():
    with pytest.raises(ValueError, match="'best'.*medcpt.*minilm"):
        load_reranker("best")
    with pytest.raises(FileNotFoundError, match="no adapter 'nobody'"):
        load_reranker("minilm+nobody")
