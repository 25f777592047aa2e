"""The CHR paper's setup: what it ran, and whether what ran here is the same.

Only then is a number judged by what the paper prints (``lib.report.verdict``). Section 4.2 of the
paper names all of this; sizes are the benchmark's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lib.datasets import SIZES
from lib.methods import METHODS
from lib.profiles import Profile, methods_of

SETS = {"mmlu": "MMLU-Med", "medqa": "MedQA-US", "bioasq": "BioASQ-Y/N"}
"""The paper's question sets: ours, and what its Table 1 calls them."""
EXAMS = ("mmlu", "medqa")
"""The sets that its Table 3 averages over."""
ANSWERERS = {
    "Llama-3-8B-Instruct": "meta-llama-3-8b-instruct",
    "Qwen2.5-7B-Instruct": "qwen2.5-7b-instruct",
    "Gemma-2-9B-It": "gemma-2-9b-it",
}
"""Its generators, and their names on the model hub in lower case, without the owner."""
_CORPORA = {"pubmed", "textbooks", "wikipedia", "statpearls"}
_ENCODER = "medcpt"
_EXPANDER = "qwen2.5-72b-instruct"
_K = 5


def whole_benchmarks(datasets: Iterable[str]) -> dict[str, list[str]]:
    """The sets that stand for the paper's three, in its order, by what comes before their names.

    "" for the benchmark itself, "ddx-mini" for the three of ddx-mini; only where all three are.
    """
    there = set(datasets)
    found = {}
    for dataset in datasets:
        before = dataset.rpartition(" ")[0]
        three = [f"{before} {name}".strip() for name in SETS]
        if there >= set(three):
            found[before] = three
    return found


def same_setup(
    profile: Profile,
    asked: Mapping[str, int],
    *,
    expander: str,
    method: str,
    answerer: str | None = None,
    answered_by: str = "",
) -> bool:
    """Whether a number of ``method`` comes from the paper's setup.

    Compared are questions (``asked``: how many of each set), corpora, encoder, k, the method's
    settings (its defaults) and the model ``expander``; where somebody answered, also
    the ``answerer``, by the paper's name, and the model behind it, ``answered_by``.
    """
    same = (
        all(name in SETS and n == SIZES[name] for name, n in asked.items())
        and set(profile.corpora) == _CORPORA
        and not profile.limit
        and profile.encoder == _ENCODER
        and not profile.encoder_options
        and profile.k == _K
        and methods_of(profile).get(method) == METHODS.get(method)
        and _model(expander) == _EXPANDER
    )
    if answerer is None:
        return same
    return same and answerer in ANSWERERS and _model(answered_by) == ANSWERERS[answerer]


def _model(name: str) -> str:
    """A model's name without its owner, in lower case."""
    return name.rpartition("/")[2].lower()
