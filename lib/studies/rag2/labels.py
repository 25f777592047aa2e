"""Perplexity labels: how much likelier one passage makes a rationale (RAG2, Equations 3 and 4).

For a question and one passage, the log-likelihood of the rationale is taken twice: in a prompt with
the passage before the question, and in the same prompt without it. A passage is labelled helpful
where the difference is among the greatest of the training questions. ``python -m
lib.studies.rag2.labels`` makes the labels with the bundled model, and can be killed and run again.

Where the paper is silent or contradicts itself: the perplexity is of the rationale alone (the
equation writes the question's); a rationale is scored up to 96 tokens; both differences are kept,
because that of perplexities is ruled by rationales that are unlikely under any prompt; and
thresholds are of one set and one kind of rationale, as the paper trains a filter for each set.
"""

from __future__ import annotations

import json
import lzma
import math
import re
import sys
import tomllib
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import date
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from lib.base.files import (
    atomic_write,
    canonical_json,
    read_jsonl,
    sha256_bytes,
    sha256_file,
    write_jsonl_gz,
)
from lib.base.paths import DATA, cache, shown
from lib.data.passages import Passage
from lib.datasets import Question
from lib.llm.causal import BUNDLED, Causal, Sampling, open_causal
from lib.llm.prompts import load_prompt
from lib.llm.small_model import NAME, SHA256
from lib.methods.base import question_alone
from lib.readers import answer_messages
from lib.run import Retriever
from lib.studies.rag2.portions import in_portions
from lib.studies.rag2.rationales import Rationale, load_rationales

FOLDER = DATA / "perplexity"
_LABELS, _OWN, _CARD = "labels.csv.xz", "own_rationales.jsonl.gz", "card.toml"
_COMMAND = "python -m lib.studies.rag2.labels"

COLUMNS = (
    "dataset",
    "part",
    "qid",
    "pid",
    "rank",
    "rationale",
    "tokens",
    "log_p_without",
    "log_p_with",
    "p_right_without",
    "p_right_with",
    "right_without",
    "right_with",
)
"""A row for each question, passage and kind of rationale.

``part`` is "train" or "held", ``rank`` that of the passage, from 1, ``rationale`` "expert" or
"own". ``log_p_without`` and ``log_p_with`` (the passage) are natural log-likelihoods of all
``tokens`` of the rationale. The last four are empty where a question has no options: how probable
the right letter is among all letters, and 1 where it is the likeliest, else 0.
"""

FRACTIONS = (0.25, 0.05)
"""Which share is helpful: in RAG2's text, and in the one sample of its labels that is public."""

PASSAGES = 6
"""Passages of each question: the nearest to it."""

REPLY_TOKENS = 96
"""A rationale is scored to the end of a word, up to here; the model's own is as long at most."""

_OWN_QUESTIONS = {"bioasq": 150, "medmcqa": 100}
"""For how many questions to train on the model writes a rationale itself: the first of each set."""

_PROMPTS = Path(__file__).parent / "prompts"
_CONTEXT_TOKENS = 8192
_PORTION = 64
_WRITTEN_AT_ONCE = 16
_REPEATED = 25


# what is asked ------------------------------------------------------------------------------------


def rationale_messages(rationale: Rationale, passage: Passage | None = None) -> list[dict]:
    """The request for a rationale: a passage if there is one, then the question and its options."""
    if passage is None:
        return load_prompt("rationale_alone", _PROMPTS).messages(question=rationale.asked)
    prompt = load_prompt("rationale_with_passage", _PROMPTS)
    document = f"{passage.title}\n{passage.text}".strip()
    return prompt.messages(document=document, question=rationale.asked)


def first_words(text: str, tokens_of: Callable[[str], Sequence[int]], most: int) -> str:
    """The first words of a text, as many as make at most ``most`` tokens; at least one word."""
    words = text.split()

    def tokens_in(count: int) -> int:
        return len(tokens_of(" ".join(words[:count])))

    fitting = bisect_right(range(len(words) + 1), most, key=tokens_in) - 1
    return " ".join(words[: max(fitting, 1)])


def find_passages(
    rationales: Sequence[Rationale], retriever: Retriever, k: int = PASSAGES
) -> list[list[Passage]]:
    """For each question the ``k`` nearest passages, searched with the question alone."""
    questions = [Question(r.qid, r.question, {}, "", r.dataset) for r in rationales]
    found = retriever.search_many([question_alone(question) for question in questions], k)
    return [retriever.store.get_many(hits.ids[0].tolist()) for hits in found]


# what is measured ---------------------------------------------------------------------------------


class Labeller:
    """One model that scores rationales; what it has finished is kept in ``folder``.

    ``model_id`` names the model and its weights: other weights begin anew. ``seconds`` is how long
    everything took, also what an earlier run had done.
    """

    def __init__(self, causal: Causal, model_id: str, folder: Path, portion: int = _PORTION):
        self.causal, self.model_id, self.folder, self.portion = causal, model_id, folder, portion
        self.seconds = 0.0

    def texts(
        self,
        name: str,
        rationales: Sequence[Rationale],
        texts: Sequence[str],
        passages: Sequence[Sequence[Passage]],
    ) -> pd.DataFrame:
        """Log-likelihoods of one text for each question, alone and with each of its passages.

        Columns: dataset, part, qid, pid, rank, tokens, log_p_without, log_p_with.
        """
        asked = []
        for rationale, text, own in zip(rationales, texts, passages, strict=True):
            scored = first_words(text, self.causal.text_tokens, REPLY_TOKENS)
            requests = [rationale_messages(rationale, passage) for passage in (None, *own)]
            asked += [[messages, scored] for messages in requests]
        lengths = [
            len(self.causal.prompt_tokens(messages)) + len(self.causal.text_tokens(text))
            for messages, text in asked
        ]

        def measure(portion: list) -> list:
            return self.causal.log_likelihoods(portion).tolist()

        values = iter(self._measured(name, asked, lengths, measure, self.portion))
        rows = []
        for rationale, own in zip(rationales, passages, strict=True):
            without, tokens = next(values)
            for row in _pairs(rationale, own):
                row |= {"tokens": int(tokens), "log_p_without": without}
                rows.append(row | {"log_p_with": next(values)[0]})
        return pd.DataFrame(rows)

    def letters(
        self, name: str, rationales: Sequence[Rationale], passages: Sequence[Sequence[Passage]]
    ) -> pd.DataFrame:
        """How probable the right letter is, alone and with each passage; questions with options.

        Columns: dataset, part, qid, pid, rank, p_right_without, p_right_with, right_without,
        right_with. The requests are those of ``lib.readers``' letter prompts.
        """
        asked = []
        for rationale, own in zip(rationales, passages, strict=True):
            question = Question(rationale.qid, rationale.question, rationale.options, "", "")
            for context in ([], *([passage] for passage in own)):
                messages, _ = answer_messages(
                    question, context, context_tokens=_CONTEXT_TOKENS, max_tokens=1, style="letter"
                )
                asked.append(messages)
        lengths = [len(self.causal.prompt_tokens(messages)) for messages in asked]
        letters = sorted(rationales[0].options)
        if any(sorted(rationale.options) != letters for rationale in rationales):
            raise ValueError("questions whose options have other letters are compared apart")

        def measure(portion: list) -> list:
            return self.causal.next_log_p(portion, letters).tolist()

        values = iter(self._measured(name, asked, lengths, measure, self.portion))
        rows = []
        for rationale, own in zip(rationales, passages, strict=True):
            right = letters.index(rationale.answer)
            without = _of_letters(next(values), right)
            for row in _pairs(rationale, own):
                with_passage = _of_letters(next(values), right)
                row |= {"p_right_without": without[0], "p_right_with": with_passage[0]}
                rows.append(row | {"right_without": without[1], "right_with": with_passage[1]})
        return pd.DataFrame(rows)

    def written(self, name: str, rationales: Sequence[Rationale]) -> list[str]:
        """The model's own rationale for each question, without a passage, always the likeliest."""
        asked = [rationale_messages(rationale) for rationale in rationales]
        lengths = [len(self.causal.prompt_tokens(messages)) + REPLY_TOKENS for messages in asked]
        sampling = Sampling(max_tokens=REPLY_TOKENS, temperature=0.0)

        def measure(portion: list) -> list:
            replies = self.causal.write(portion, sampling)
            return [" ".join(reply.split()) for reply in replies]

        # What is kept is found by its name: replies that are drawn otherwise have another.
        drawn = canonical_json(asdict(sampling))
        return self._measured(f"{name}, {drawn}", asked, lengths, measure, _WRITTEN_AT_ONCE)

    def _measured(
        self, name: str, asked: list, lengths: list[int], measure: Callable, size: int
    ) -> list:
        values, seconds = in_portions(
            f"{name}, {self.model_id}", asked, lengths, measure, self.folder, size, _say
        )
        self.seconds += seconds
        return values


def _pairs(rationale: Rationale, passages: Sequence[Passage]) -> list[dict]:
    """The columns that say which question and which passage."""
    asked = {"dataset": rationale.dataset, "part": rationale.part, "qid": rationale.qid}
    return [asked | {"pid": p.pid, "rank": rank} for rank, p in enumerate(passages, 1)]


def _of_letters(log_p: Sequence[float], right: int) -> tuple[float, int]:
    """The right letter's probability among all letters; 1 where it is the likeliest."""
    probabilities = np.exp(np.array(log_p) - max(log_p))
    return float(probabilities[right] / probabilities.sum()), int(np.argmax(log_p) == right)


def make_labels(
    labeller: Labeller,
    rationales: Sequence[Rationale],
    passages: Sequence[Sequence[Passage]],
    own_questions: Mapping[str, int] = _OWN_QUESTIONS,
) -> tuple[pd.DataFrame, list[dict]]:
    """The table of ``COLUMNS``, and the model's own rationales (dataset, qid, text; see ``_told``).

    What is of use first is measured first: experts' rationales to train on, the held ones, the
    letters, and at last the model's own rationales. An own rationale without a word has no rows;
    one that repeats the words of others is measured as it was written, and kept as "".
    """
    near = {(r.dataset, r.qid): own for r, own in zip(rationales, passages, strict=True)}
    datasets = list(dict.fromkeys(r.dataset for r in rationales))
    groups = [(part, dataset) for part in ("train", "held") for dataset in datasets]
    members = {
        (part, dataset): [r for r in rationales if (r.part, r.dataset) == (part, dataset)]
        for part, dataset in groups
    }

    def near_to(chosen: Sequence[Rationale]) -> list[Sequence[Passage]]:
        return [near[r.dataset, r.qid] for r in chosen]

    scored = []
    for part, dataset in groups:
        chosen = members[part, dataset]
        experts = [r.expert for r in chosen]
        table = labeller.texts(f"expert, {part}, {dataset}", chosen, experts, near_to(chosen))
        scored.append(table.assign(rationale="expert"))
    letters = []
    for part, dataset in groups:
        chosen = [r for r in members[part, dataset] if r.options]
        if chosen:
            letters.append(labeller.letters(f"letters, {part}, {dataset}", chosen, near_to(chosen)))
    own = []
    for dataset, count in own_questions.items():
        first = members["train", dataset][:count]
        replies = labeller.written(f"written, {dataset}", first)
        chosen = [r for r, reply in zip(first, replies, strict=True) if reply]
        texts = [reply for reply in replies if reply]
        own += [_told(r, text) for r, text in zip(chosen, texts, strict=True)]
        table = labeller.texts(f"own, {dataset}", chosen, texts, near_to(chosen))
        scored.append(table.assign(rationale="own"))
    labels = pd.concat(scored, ignore_index=True)
    pair = ["dataset", "part", "qid", "pid", "rank"]
    labels = labels.merge(pd.concat(letters), "left", pair)
    return _rounded(labels[list(COLUMNS)]), own


def _told(rationale: Rationale, text: str) -> dict:
    """An own rationale as it is kept: "" where it repeats the words of others.

    A small model at times says the question again; 25 words in a row are not its own.
    """
    theirs = _runs(rationale.asked) | _runs(rationale.expert)
    kept = text if theirs.isdisjoint(_runs(text)) else ""
    return {"dataset": rationale.dataset, "qid": rationale.qid, "text": kept}


def _runs(text: str) -> set[tuple[str, ...]]:
    """All 25 words in a row of a text."""
    words = re.findall(r"\w+", text.casefold())
    return {tuple(words[i : i + _REPEATED]) for i in range(len(words) - _REPEATED + 1)}


def _rounded(labels: pd.DataFrame) -> pd.DataFrame:
    """As the file has them: no machine's last digits; whole numbers, where there are any."""
    labels = labels.round(
        {"log_p_without": 4, "log_p_with": 4, "p_right_without": 5, "p_right_with": 5}
    )
    whole = {"right_without": "Int64", "right_with": "Int64"}
    return labels.astype(whole)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


# what is helpful ----------------------------------------------------------------------------------


def with_differences(labels: pd.DataFrame) -> pd.DataFrame:
    """The labels with both differences; above 0 where the passage makes the rationale likelier.

    ``delta_ppl`` is the perplexity without the passage minus that with it (Equation 3);
    ``delta_log_ppl`` the same of their natural logarithms, so nats for each token.
    """
    log_without = -labels["log_p_without"] / labels["tokens"]
    log_with = -labels["log_p_with"] / labels["tokens"]
    return labels.assign(
        delta_ppl=np.exp(log_without) - np.exp(log_with), delta_log_ppl=log_without - log_with
    )


def threshold(differences: Sequence[float], fraction: float) -> float:
    """The greatest difference that at least ``fraction`` of all reach.

    With ties, more than that reach it. ValueError without differences, for one that is no number,
    and for a fraction that is not above 0 and at most 1.
    """
    ordered = np.sort(np.asarray(differences, float))[::-1]
    if not len(ordered) or not np.isfinite(ordered).all():
        raise ValueError("a threshold needs differences, all of them finite")
    if not 0 < fraction <= 1:
        raise ValueError(f"a fraction is above 0 and at most 1, not {fraction!r}")
    # 0.05 * 60 is 3.0000000000000004: the third is meant, not the fourth.
    count = math.ceil(round(fraction * len(ordered), 9))
    return float(ordered[count - 1])


def helpful(
    labels: pd.DataFrame,
    difference: Literal["delta_ppl", "delta_log_ppl"],
    fraction: float = FRACTIONS[0],
) -> pd.Series:
    """Whether each passage is helpful: its difference is at least the threshold.

    The threshold is that of the rows to train on, of the same set and the same kind of rationale;
    held rows are held against it and move nothing.
    """
    found = pd.Series(False, index=labels.index)
    for _, own in labels.groupby(["dataset", "rationale"]):
        least = threshold(own.loc[own["part"] == "train", difference], fraction)
        found[own.index] = own[difference] >= least
    return found


# files --------------------------------------------------------------------------------------------


def write_labels(
    labels: pd.DataFrame, own: Sequence[dict], folder: Path, made: Mapping[str, object]
) -> None:
    """Write the labels, the model's own rationales and a card: the same labels, the same bytes.

    ``made`` is what the card says besides: numbers and texts.
    """
    content = labels.to_csv(index=False, lineterminator="\n").encode()
    atomic_write(folder / _LABELS, lzma.compress(content, preset=6))
    write_jsonl_gz(folder / _OWN, own)
    card = {
        "rows": len(labels),
        "labels_sha256": sha256_file(folder / _LABELS),
        "own_rationales_sha256": sha256_file(folder / _OWN),
        **made,
    }
    lines = [f"{name} = {json.dumps(value)}" for name, value in card.items()]
    atomic_write(folder / _CARD, "\n".join(lines) + "\n")


def read_labels(folder: Path = FOLDER) -> pd.DataFrame:
    """The kept labels: ``COLUMNS``, then delta_ppl and delta_log_ppl (``with_differences``).

    FileNotFoundError or ValueError, with the command that makes them, where they are missing or are
    not those of the card.
    """
    content = lzma.decompress(_checked(folder, _LABELS, "labels_sha256"))
    texts = dict.fromkeys(("dataset", "part", "qid", "pid", "rationale"), str)
    whole = {"right_without": "Int64", "right_with": "Int64"}
    labels = pd.read_csv(BytesIO(content), dtype=texts | whole)
    if tuple(labels.columns) != COLUMNS:
        raise ValueError(f"{_LABELS} has the columns {list(labels.columns)}; run: {_COMMAND}")
    return with_differences(labels)


def read_own_rationales(folder: Path = FOLDER) -> dict[tuple[str, str], str]:
    """What the model wrote itself, by set and question id; "" where it repeated its question.

    Raises as ``read_labels`` does.
    """
    _checked(folder, _OWN, "own_rationales_sha256")
    return {(row["dataset"], row["qid"]): row["text"] for row in read_jsonl(folder / _OWN)}


def _checked(folder: Path, name: str, field: str) -> bytes:
    """The bytes of a file, if they are those that the card tells of."""
    for path in (folder / name, folder / _CARD):
        if not path.exists():
            raise FileNotFoundError(f"{shown(path)} is missing; run: {_COMMAND}")
    card = tomllib.loads((folder / _CARD).read_text(encoding="utf-8"))
    content = (folder / name).read_bytes()
    if sha256_bytes(content) != card[field]:
        raise ValueError(f"{shown(folder / name)} is not the one of its card; run: {_COMMAND}")
    return content


def main() -> None:
    """Make the labels of the open corpus with the bundled model, or go on where a run stopped."""
    import torch

    from lib.embed import load_encoder
    from lib.model_files import pack_linear_layers
    from lib.place import open_retriever
    from lib.profiles import load_profile

    profile = load_profile("open")
    encoder = load_encoder(profile.encoder, **profile.encoder_options)
    retriever = open_retriever(profile, encoder)
    rationales = load_rationales()
    passages = find_passages(rationales, retriever)
    causal = open_causal(BUNDLED, device="cpu")
    # Every token of a rationale is looked up in the whole vocabulary: a third of all the work.
    pack_linear_layers(causal.model.lm_head)
    labeller = Labeller(causal, f"{NAME} {SHA256[:8]}", cache("perplexity"))
    labels, own = make_labels(labeller, rationales, passages)
    made = {
        "date": date.today().isoformat(),
        "command": _COMMAND,
        "minutes": round(labeller.seconds / 60, 1),
        "threads": torch.get_num_threads(),
        "model": NAME,
        "model_sha256": SHA256,
        "torch": version("torch"),
        "transformers": version("transformers"),
        "passages": PASSAGES,
        "reply_tokens": REPLY_TOKENS,
        "encoder": encoder.fingerprint,
        "corpora": list(profile.corpora),
        "prompts_sha256": _prompts_sha256(),
    }
    write_labels(labels, own, FOLDER, made)
    _say(f"{len(labels)} rows in {FOLDER}")


def _prompts_sha256() -> str:
    """A hash of the four requests."""
    texts = [
        asdict(load_prompt("rationale_alone", _PROMPTS)),
        asdict(load_prompt("rationale_with_passage", _PROMPTS)),
        asdict(load_prompt("letter_closed_book")),
        asdict(load_prompt("letter_with_documents")),
    ]
    return sha256_bytes(canonical_json(texts).encode())


if __name__ == "__main__":
    main()
