"""What choosing by contradiction does to answers: contexts, answerers, Table 2 and its tests.

The six questions of a medicine share its abstracts, and choosing by CNT gives all six the same
five: the unit of every interval and test is therefore the medicine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from lib.llm.chat import in_parallel
from lib.llm.connect import connect
from lib.llm.prompts import load_prompt
from lib.llm.recorder import RecordingMiss
from lib.report import verdict
from lib.search.vectors import encode_small
from lib.stats import holm, judged, mean_interval, paired
from lib.studies.contradiction.quality import METRICS, score_answers, word_vectors, words
from lib.studies.contradiction.select import CONDITIONS, MATCHED, conditions
from lib.studies.contradiction.study import Study, reported
from lib.studies.nli.models import sentences

__all__ = [
    "EXTRACT",
    "KINDS",
    "answered",
    "chat_answers",
    "contexts",
    "described",
    "extracts",
    "kind_of",
    "kinds",
    "table2",
    "tests",
]

EXTRACT = "extractive, no LLM"
KINDS = ("answer", "truncated", "echo", "insufficient", "empty", "not run")
"""What an answer is: see ``kind_of``; "not run" where nobody recorded it."""

_AGAINST = (CONDITIONS[1::-1], CONDITIONS[1:], CONDITIONS[2::-2], MATCHED)
_CLAIMED = dict.fromkeys(METRICS, "lower") | {"kld": "higher", "jsd": ""}
"""What the paper says of each first condition of _AGAINST against the second (section 4): JSD is
said to be stable; that it holds at the same relevance is our reading of it."""


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


def described(study: Study, chosen: pd.DataFrame) -> pd.DataFrame:
    """What distinguishes the conditions: condition, contexts, mean relevance, CNT and year, and
    the years below which 10, 50 and 90 % of the contexts' abstracts are (C2)."""
    kinds = chosen.groupby("condition", sort=False)
    table = kinds[["relevance", "cnt", "year"]].mean()
    table.insert(0, "contexts", kinds.size())
    every = chosen[["condition", "ids"]].explode("ids")
    years = every["ids"].map(lambda i: study.evidence[i].year).groupby(every["condition"])
    for share in (10, 50, 90):
        table[f"year_{share}"] = years.quantile(share / 100)
    return table.reset_index()


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
    return chosen.assign(answerer=EXTRACT, answer=answers, kind="answer", how="")


def kind_of(text: str, question: str, finish: str = "stop") -> str:
    """empty (no word), insufficient (the prompt's token for that), echo (no word that is not in the
    question or in "the answer is"), truncated (cut at the token limit), or answer."""
    said = words(text)
    if not said:
        return "empty"
    if said[:2] == ["insufficient", "evidence"] or "INSUFFICIENT EVIDENCE" in text:
        return "insufficient"
    if {*said} <= {*words(question), "the", "answer", "is", "question"}:
        return "echo"
    return "truncated" if finish == "length" else "answer"


def chat_answers(
    study: Study,
    chosen: pd.DataFrame,
    llm: str,
    name: str,
    *,
    every: bool = False,
    workers: int = 8,
) -> pd.DataFrame:
    """The same by a chat model, at temperature 0 and at most 256 tokens, as in the paper.

    ``llm`` is a ``connect`` spec. One question a medicine is asked, the next heading each time, or
    ``every`` one. What is not recorded is a missing answer, and ``how`` says how to record it.
    """
    turn = {m: 1 + i % 6 for i, m in enumerate(dict.fromkeys(chosen["medicine"]))}
    asked = [
        every or study.needs[q].heading == turn[study.needs[q].medicine] for q in chosen["qid"]
    ]
    model, prompt, chosen = connect(llm), load_prompt("evidence_answer"), chosen[asked]

    def ask(context: tuple[str, list[str]]) -> tuple[str | None, str, str]:
        (qid, ids), question = context, study.needs[context[0]].question
        texts = [
            f"[{n}] ({study.evidence[i].year}) {study.evidence[i].text}"
            for n, i in enumerate(ids, 1)
        ]
        request = prompt.messages(abstracts="\n".join(texts), question=question)
        try:
            with model.tag("contradiction", qid):
                reply = model.generate(request, max_tokens=256)[0]
            return reply.text, kind_of(reply.text, question, reply.finish_reason), ""
        except RecordingMiss as miss:
            return None, "not run", str(miss).partition("Next: ")[2]

    done = in_parallel(ask, zip(chosen["qid"], chosen["ids"], strict=True), workers)
    answers, kind, how = zip(*done, strict=True)
    return chosen.assign(answerer=name, answer=answers, kind=kind, how=how)


def answered(
    study: Study,
    chosen: pd.DataFrame,
    encoder: Any,
    chats: Iterable[Mapping[str, Any]],
    bert: str | None = None,
    **divergence: Any,
) -> pd.DataFrame:
    """All answers, measured: qid, medicine, condition, answerer, kind, how, words, METRICS.

    ``chats`` are settings of ``chat_answers``. Measures are against the leaflet's answer; word
    vectors are trained on the abstracts and the leaflets' answers. ``bert`` and ``divergence`` as
    for ``score_answers``. Whatever has a word is measured, of whichever ``kind`` it is.
    """
    wanted = {q: n.answer for q, n in study.needs.items()}
    vectors = word_vectors([d.text for d in study.evidence.values()] + list(wanted.values()))
    said = [extracts(study, chosen, encoder), *(chat_answers(study, chosen, **c) for c in chats)]
    table = pd.concat(said, ignore_index=True)
    table["words"] = [len(words(text)) for text in table["answer"].fillna("")]
    table = score_answers(table, wanted, encoder, vectors, bert, **divergence)
    return table.drop(columns=["ids", "answer", "relevance", "year", "cnt"])


def kinds(scored: pd.DataFrame) -> pd.DataFrame:
    """How many answers of each answerer and condition are of each of KINDS."""
    order = scored[["answerer", "condition"]].drop_duplicates()
    table = pd.crosstab([scored["answerer"], scored["condition"]], scored["kind"])
    return table.reindex(pd.MultiIndex.from_frame(order)).reindex(columns=KINDS, fill_value=0)


def table2(scored: pd.DataFrame) -> pd.DataFrame:
    """Table 2, macro-averaged over medicines: answerer, condition, metric, value, low, high, ...

    ``n`` counts the medicines behind value and interval, ``answers`` the answers with a word.
    ``reported`` is the number of the same model in the paper (``reported_of``), or else the mean
    of its five.
    """
    printed, rows = reported("table2"), []
    models = set(printed["model"])
    for (who, name), own in scored.groupby(["answerer", "condition"], sort=False):
        said, how = own[own["words"] > 0], own["how"].fillna("").max()
        told = printed[printed["model"] == who] if who in models else printed
        told = told[told["retrieval"] == name].groupby("metric")["value"].mean()
        for metric in METRICS:
            means = said.groupby("medicine")[metric].mean().dropna().to_numpy()
            value, low, high = mean_interval(means) if len(means) else (np.nan,) * 3
            row = {"answerer": who, "condition": name, "metric": metric, "value": value}
            row |= {"low": low, "high": high, "n": len(means), "answers": len(said)}
            row |= {
                "reported": told.get(metric, np.nan),
                "reported_of": who if who in models else f"mean of {len(models)}",
            }
            row["verdict"] = verdict(value, np.nan, row["reported"], same_setup=False)
            missing = metric == "bertscore" and not len(means)
            rows.append(row | {"how": how or missing * "set measures['bert'] to a folder"})
    return pd.DataFrame(rows)


def tests(scored: pd.DataFrame) -> pd.DataFrame:
    """Paired tests between conditions, over medicines: answerer, metric, label, difference, ...

    A medicine's means are over the questions that both conditions have a value for; one without
    any drops out of that test alone. A difference has the sign of the measure (JSD and KLD: lower
    is better). ``claim`` is what the paper says of it, ``verdict`` what this table says to that
    (``lib.stats.judged``); Holm over the table.
    """
    rows = []
    for (who, metric), (first, second) in product(
        product(scored["answerer"].unique(), METRICS), _AGAINST
    ):
        wide = scored[scored["answerer"] == who].pivot(
            index=["medicine", "qid"], columns="condition", values=metric
        )
        both = wide.reindex(columns=[first, second]).dropna().groupby("medicine").mean()
        if len(both):
            label = f"{first} − {second.removesuffix(', matched')}".replace("_", " ")
            row = {"answerer": who, "metric": metric, "label": label, "claim": _CLAIMED[metric]}
            rows.append(row | paired(both[first], both[second]))
    table = pd.DataFrame(rows)
    table["p_holm"] = holm(table["p"])
    sign = table["claim"].map({"lower": -1.0, "higher": 1.0, "": np.nan})
    return table.assign(verdict=np.where(sign.isna(), "", judged(table, sign)))
