"""What choosing by contradiction does to answers: contexts, answerers, Table 2 and its tests.

The six questions of a medicine share its abstracts, and choosing by CNT gives all six the same
five: the unit of every interval and test is therefore the medicine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from lib.contradiction.quality import LOWER_IS_BETTER, METRICS, score_answers, word_vectors
from lib.contradiction.select import CONDITIONS, MATCHED, conditions
from lib.contradiction.study import Study, reported
from lib.evaluate import holm, mean_interval, paired
from lib.llm import connect, in_parallel
from lib.nli.models import sentences
from lib.prompts import load_prompt
from lib.recorder import RecordingMiss
from lib.report import verdict
from lib.vectors import encode_small

__all__ = ["EXTRACT", "answered", "chat_answers", "contexts", "extracts", "table2", "tests"]

EXTRACT = "extractive, no LLM"
_AGAINST = (CONDITIONS[1::-1], CONDITIONS[1:], CONDITIONS[2::-2], MATCHED)


def contexts(study: Study, k: int = 5) -> pd.DataFrame:
    """Each question's contexts: qid, medicine, condition, ids; means of relevance, year, cnt."""
    rows = []
    for qid, pool in study.ranked.groupby("qid", sort=False):
        own = pool.set_index("id")
        for name, ids in conditions(pool, own["cnt"], k).items():
            label = {"qid": qid, "medicine": study.needs[qid].medicine, "condition": name}
            means = own.loc[ids, ["relevance", "year", "cnt"]].mean().to_dict()
            rows.append(label | {"ids": ids} | means)
    return pd.DataFrame(rows)


def extracts(study: Study, chosen: pd.DataFrame, encoder: Any, words: int = 100) -> pd.DataFrame:
    """Answers without an LLM: of the context's sentences, those nearest to the question by cosine.

    They are taken nearest first while they fill at most ``words`` words together (at least one),
    and stand in the order of the context.
    """
    answers = []
    for qid, ids in zip(chosen["qid"], chosen["ids"], strict=True):
        said = [s for i in ids for s in sentences(study.evidence[i].text)]
        (query,) = encode_small([study.needs[qid].question], encoder, "query")
        order = np.argsort(-(encode_small(said, encoder, "article") @ query), kind="stable")
        fits = np.cumsum([len(said[i].split()) for i in order]) <= words
        answers.append(" ".join(said[i] for i in sorted(order[: max(1, fits.sum())])))
    return chosen.assign(answerer=EXTRACT, answer=answers, how="")


def chat_answers(
    study: Study, chosen: pd.DataFrame, llm: str, name: str, *, every: bool = False,
    workers: int = 8,
) -> pd.DataFrame:  # fmt: skip
    """The same by a chat model, at temperature 0 and at most 256 tokens, as in the paper.

    ``llm`` is a ``connect`` spec. One question a medicine is asked, the next heading each time, or
    ``every`` one. What is not recorded is a missing answer, and ``how`` says how to record it.
    """
    turn = {m: 1 + i % 6 for i, m in enumerate(dict.fromkeys(chosen["medicine"]))}
    asked = [every or study.needs[q].heading == turn[study.needs[q].medicine]
             for q in chosen["qid"]]  # fmt: skip
    model, prompt, chosen = connect(llm), load_prompt("evidence_answer"), chosen[asked]

    def ask(context: tuple[str, list[str]]) -> tuple[str | None, str]:
        qid, ids = context
        texts = [f"[{n}] ({study.evidence[i].year}) {study.evidence[i].text}"
                 for n, i in enumerate(ids, 1)]  # fmt: skip
        request = prompt.messages(abstracts="\n".join(texts), question=study.needs[qid].question)
        try:
            with model.tag("contradiction", qid):
                return model.generate(request, max_tokens=256)[0].text, ""
        except RecordingMiss as miss:
            return None, str(miss).partition("Next: ")[2]

    done = in_parallel(ask, zip(chosen["qid"], chosen["ids"], strict=True), workers)
    answers, how = zip(*done, strict=True)
    return chosen.assign(answerer=name, answer=answers, how=how)


def answered(
    study: Study, chosen: pd.DataFrame, encoder: Any, chats: Iterable[Mapping[str, Any]],
    bert: str | None = None,
) -> pd.DataFrame:  # fmt: skip
    """All answers, measured: qid, medicine, condition, answerer, words, how, METRICS.

    ``chats`` are settings of ``chat_answers``. Measures are against the leaflet's answer; word
    vectors are trained on the abstracts and the leaflets' answers, ``bert`` is BERTScore's model.
    """
    wanted = {q: n.answer for q, n in study.needs.items()}
    vectors = word_vectors([d.text for d in study.evidence.values()] + list(wanted.values()))
    said = [extracts(study, chosen, encoder), *(chat_answers(study, chosen, **c) for c in chats)]
    table = pd.concat(said, ignore_index=True)
    there = table.dropna(subset="answer")
    scores = score_answers(there, wanted, encoder, vectors, bert)[list(METRICS)]
    table = table.assign(words=table["answer"].fillna("").str.split().str.len()).join(scores)
    return table.drop(columns=["ids", "answer", "relevance", "year", "cnt"])


def table2(scored: pd.DataFrame) -> pd.DataFrame:
    """Table 2, macro-averaged over medicines: answerer, condition, metric, value, low, high, n, ...

    ``reported`` is the mean of the paper's five models; n counts answered questions.
    """
    told = reported("table2").groupby(["retrieval", "metric"])["value"].mean()
    rows = []
    for (who, name), own in scored.groupby(["answerer", "condition"], sort=False):
        said = own[own["words"] > 0]
        for metric in METRICS:
            means = said.groupby("medicine")[metric].mean().to_numpy()
            known = len(means) and not np.isnan(means).any()
            value, low, high = mean_interval(means) if known else (np.nan,) * 3
            row = {"answerer": who, "condition": name, "metric": metric, "value": value}
            row |= {"low": low, "high": high, "n": len(said)}
            row["reported"] = told.get((name, metric), np.nan)
            row["verdict"] = verdict(value, np.nan, row["reported"], same_setup=False)
            without = "set bert_model to a folder" if metric == "bertscore" and not known else ""
            rows.append(row | {"how": own["how"].max() or without})
    return pd.DataFrame(rows)


def tests(scored: pd.DataFrame) -> pd.DataFrame:
    """Paired tests between conditions, over medicines: answerer, metric, label, difference, ...

    A difference has the sign of the measure (JSD and KLD: lower is better); Holm over the table.
    """
    rows, said = [], scored[scored["words"] > 0]
    metrics = [m for m in METRICS if said[m].notna().all()]
    means = said.groupby(["answerer", "condition", "medicine"])[metrics].mean()
    for who, own in means.groupby("answerer"):
        for first, second in _AGAINST:
            a, b = own.loc[who, first], own.loc[who, second]
            for metric in metrics:
                label = f"{first} − {second.removesuffix(', matched')}".replace("_", " ")
                row = {"answerer": who, "metric": metric, "label": label}
                rows.append(row | paired(a[metric], b[metric]))
    table = pd.DataFrame(rows)
    table["worse"] = (table["difference"] < 0) ^ table["metric"].isin(LOWER_IS_BETTER)
    return table.assign(p_holm=holm(table["p"]))
