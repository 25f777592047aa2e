"""cMedIR's dev file: Chinese medical searches, each with two pages or more, judged by their titles.

It is a set of its own, from ChineseBLUE (Zhang et al., 2020), and none of the sets of ``cmirb``. A
page is known by its title only. A search has two judged pages at a time, with different labels
from 0 to 4; all other titles are not judged for it. So a search over all titles asks whether the
judged ones are found again, and a good title that nobody judged counts as wrong.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lib.base.downloads import DownloadError
from lib.base.files import sha256_bytes
from lib.data.passages import Passage
from lib.studies.slhyde.cmirb import Task

_LABELS = {"0": 0, "1": 1, "2": 2, "3": 3, "4": 4}
_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
_RUNS = re.compile(rf"[{_HAN}]+|[^\W_{_HAN}]+")
_IS_HAN = re.compile(f"[{_HAN}]")


def load_cmedir(path: Path) -> Task:
    """The searches, titles and labels of ``dev.json``, one JSON record a line.

    A passage is a title at an address, with the title as its text, because most encoders read the
    text alone. Every record stands in the file twice, once with a ":" before its second title; the
    ":" is taken away and the second is then the same. Query ids count in the order of the file.
    Raises DownloadError for a broken line, with its number, and for a title with two labels.
    """
    if not path.is_file():
        raise DownloadError(
            f"cmedir: no {path}; put ChineseBLUE's data/cMedIR/dev.json there, "
            f"then run: load_cmedir(Path({str(path)!r}))"
        )
    qid_of: dict[str, str] = {}
    passages: dict[str, Passage] = {}
    qrels: dict[str, dict[str, int]] = {}
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            where = f"cmedir: {path.name}, line {number}"
            query, documents = _record(line, where)
            qid = qid_of.setdefault(query, f"cmedir-q{len(qid_of) + 1:04d}")
            scores = qrels.setdefault(qid, {})
            for document in documents:
                passage, label = _page(document, where)
                passages[passage.pid] = passage
                if scores.setdefault(passage.pid, label) != label:
                    raise DownloadError(f"{where}: {passage.text!r} has two labels")
    queries = {qid: query for query, qid in qid_of.items()}
    return Task("cmedir", queries, tuple(passages.values()), qrels)


def _record(line: bytes, where: str) -> tuple[str, list[Any]]:
    """The search and the pages of one line."""
    try:
        row = json.loads(line.decode("utf-8"))
        query = row["query"]
        documents = row["documents"]
    except (ValueError, KeyError, TypeError) as error:
        raise DownloadError(f"{where}: no record ({error!r})") from error
    if not isinstance(query, str) or not query.strip():
        raise DownloadError(f"{where}: query is {query!r}, wanted a text")
    if not isinstance(documents, list) or not documents:
        raise DownloadError(f"{where}: no documents")
    return query, documents


def _page(document: Mapping[str, str], where: str) -> tuple[Passage, int]:
    """A page as a passage, and its label."""
    try:
        url = document["url"]
        title = document["title"].removeprefix(":")
        label = _LABELS[document["label"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise DownloadError(f"{where}: no page with url, title and label ({error!r})") from error
    if not title.strip():
        raise DownloadError(f"{where}: {url} has no title")
    # One address has had two titles, so the address alone names no text.
    digest = sha256_bytes(f"{url}\n{title}".encode())[:16]
    return Passage(f"cmedir:{digest}", "", title, "cmedir", {"url": url}), label


# BM25 without a word list: Chinese has no spaces, so something must say what a word is -----------


def characters(text: str) -> list[str]:
    """Each Chinese character as a word, and each run of other letters or digits, lower case.

    Full-width letters become plain ones; everything else parts words.
    """
    words = []
    for run in _runs(text):
        if _IS_HAN.match(run):
            words.extend(run)
        else:
            words.append(run)
    return words


def bigrams(text: str) -> list[str]:
    """Each two Chinese characters side by side as a word; one that stands alone is one too.

    Runs of other letters or digits are words, as in ``characters``. It is how Lucene's analyzer for
    Chinese, Japanese and Korean cuts.
    """
    words = []
    for run in _runs(text):
        if _IS_HAN.match(run) and len(run) > 1:
            words.extend(run[i : i + 2] for i in range(len(run) - 1))
        else:
            words.append(run)
    return words


def _runs(text: str) -> list[str]:
    """The text's runs of Chinese characters, and of other letters and digits, in order."""
    return _RUNS.findall(unicodedata.normalize("NFKC", text).lower())


BASELINES = {"BM25, characters": characters, "BM25, bigrams": bigrams}
"""How the two baselines cut a text into words."""
