"""Tiny models that tests build and save: seeded random weights, a vocabulary of a few words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tools.causal import Causal

WORDS = [
    "fever",
    "pain",
    "heart",
    "kidney",
    "drug",
    "dose",
    "treat",
    "test",
    "sign",
    "of",
    "the",
    "a",
]


def save_bert(folder: Path, seed: int, positions: int = 512, size: int = 32) -> Path:
    """A two-layer BERT with a WordPiece tokenizer, saved as the hub would store it."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder.mkdir(parents=True, exist_ok=True)
    letters = [prefix + chr(c) for prefix in ("", "##") for c in range(ord("a"), ord("z") + 1)]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *letters]
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(vocabulary)) + "\n")
    tokenizer = BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=positions)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=size,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=positions,
        initializer_range=0.5,
    )
    BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_nli(
    folder: Path, order: tuple[str, ...] = ("contradiction", "entailment", "neutral")
) -> Path:
    """A tiny cross-encoder whose last layer was taught the probe, labels in this order."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    from lib.studies.contradiction import nli

    save_bert(folder, seed=0)
    torch.manual_seed(0)
    names = {"id2label": dict(enumerate(order)), "label2id": {n: i for i, n in enumerate(order)}}
    net = BertForSequenceClassification(BertConfig.from_pretrained(folder, **names)).eval()
    read = AutoTokenizer.from_pretrained(folder)
    inputs = read(*map(list, zip(*nli._PROBE, strict=True)), padding=True, return_tensors="pt")
    places = [name.lower() for name in order]
    wanted = torch.tensor([places.index("contradiction"), places.index("entailment")])
    pooled = net.bert(**inputs).pooler_output.detach()
    steps = torch.optim.Adam(net.classifier.parameters(), lr=0.1)
    for _ in range(50):
        steps.zero_grad()
        torch.nn.functional.cross_entropy(net.classifier(pooled), wanted).backward()
        steps.step()
    net.save_pretrained(folder)
    return folder


def save_pairs(folder: Path, seed: int = 3) -> Path:
    """A tiny cross-encoder with one score, saved as MedCPT's is on the hub."""
    import torch
    from transformers import BertForSequenceClassification

    save_bert(folder, seed)
    torch.manual_seed(seed)
    BertForSequenceClassification.from_pretrained(folder, num_labels=1).save_pretrained(folder)
    return folder


def save_t5(folder: Path, words: Sequence[str], seed: int = 0) -> Path:
    """A one-layer T5 that knows these words, saved as the hub would store it."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

    named = ["<pad>", "</s>", "<unk>"]
    vocabulary = {word: i for i, word in enumerate([*named, *words, "Question", ":"])}
    plain = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    plain.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", 1)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )
    torch.manual_seed(seed)
    config = T5Config(
        vocab_size=len(vocabulary),
        d_model=32,
        d_kv=8,
        d_ff=32,
        num_layers=1,
        num_heads=2,
        dropout_rate=0.05,
        decoder_start_token_id=0,
    )
    model = T5ForConditionalGeneration(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_sentence_model(folder: Path, bert: Path, prompts: dict[str, str]) -> Path:
    """A sentence-transformers model over a saved BERT: mean pooling, and prompts per tower."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    model = Transformer(str(bert))
    parts = [model, Pooling(model.get_embedding_dimension(), pooling_mode="mean")]
    SentenceTransformer(modules=parts, prompts=prompts, device="cpu").save(str(folder))
    return folder


NUMBERED = [f"word{i}" for i in range(40)]
"""What a tiny causal model knows."""


def tiny_causal() -> Causal:
    """A two-layer Llama with seeded random weights that knows a few words."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    known = ["[END]", "[UNK]", "system", "user", "assistant", *"ABCD", *NUMBERED]
    words = Tokenizer(WordLevel({word: i for i, word in enumerate(known)}, unk_token="[UNK]"))
    words.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="[UNK]", eos_token="[END]", pad_token="[END]"
    )
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] }} {{ m['content'] }} {% endfor %}"
        "{% if add_generation_prompt %}assistant {% endif %}"
    )
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(known),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=64,
        max_position_embeddings=512,
        initializer_range=0.5,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )

    return Causal("tiny", LlamaForCausalLM(config).eval(), tokenizer)


def save_causal(folder: Path) -> Path:
    """``tiny_causal`` in a folder, as the hub would store it."""
    tiny = tiny_causal()
    tiny.model.save_pretrained(folder)
    tiny.tokenizer.save_pretrained(folder)
    return folder
