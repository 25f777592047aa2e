"""Label a few pairs with a tiny model, slowly: the child that test_rag2_labels.py kills.

Usage: python tests/kill_labels.py PROGRESS_FOLDER SECONDS_PER_PORTION
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from lib.data.passages import Passage  # noqa: E402
from lib.llm.causal import Causal  # noqa: E402
from lib.studies.rag2.labels import Labeller, make_labels  # noqa: E402
from lib.studies.rag2.rationales import Rationale  # noqa: E402

WORDS = [f"word{i}" for i in range(40)]
OWN = {"bioasq": 2, "medmcqa": 1}


def tiny_causal(pause: float = 0.0) -> Causal:
    """A two-layer Llama with seeded random weights that knows a few words; slow if asked to be."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    known = ["[END]", "[UNK]", "system", "user", "assistant", *"ABCD", *WORDS]
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

    class Slow(Causal):
        def log_likelihoods(self, asked):
            time.sleep(pause)
            return super().log_likelihoods(asked)

    return Slow("tiny", LlamaForCausalLM(config).eval(), tokenizer)


def some_words(seed: int, least: int = 3, most: int = 12) -> str:
    """A few words of the tiny vocabulary."""
    generator = random.Random(seed)
    return " ".join(generator.choices(WORDS, k=generator.randint(least, most)))


def rationales() -> list[Rationale]:
    """Seven questions: two sets, two parts; of some the model writes itself."""
    train = [("bioasq", "train")] * 3 + [("medmcqa", "train")] * 2
    held = [("bioasq", "held"), ("medmcqa", "held")]
    made = []
    for i, (dataset, part) in enumerate(train + held):
        options = {x: some_words(50 + i, 1, 2) for x in "ABCD"} if dataset == "medmcqa" else {}
        answer = "ABCD"[i % 4] if options else ""
        expert = some_words(100 + i, 4, 30)
        made.append(Rationale(dataset, f"q{i}", part, some_words(i), options, answer, expert))
    return made


def passages() -> list[list[Passage]]:
    """Three passages for each question, one of them without a title."""
    made = []
    for i in range(len(rationales())):
        texts = [some_words(200 + 10 * i + j, 5, 60) for j in range(3)]
        titles = ["", "word1", "word2 word3"]
        pairs = enumerate(zip(titles, texts, strict=True))
        made.append([Passage(f"p{i}{j}", title, text, "made", {}) for j, (title, text) in pairs])
    return made


def labelled(folder: Path, pause: float = 0.0):
    """The labels and own rationales, with progress kept in ``folder``."""
    labeller = Labeller(tiny_causal(pause), "tiny", folder, portion=4)
    return make_labels(labeller, rationales(), passages(), OWN)


if __name__ == "__main__":
    labelled(Path(sys.argv[1]), float(sys.argv[2]))
