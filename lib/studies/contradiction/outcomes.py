"""What choosing by contradiction does to answers: contexts, answerers, Table 2 and its tests.

The six questions of a medicine share its abstracts, and choosing by CNT gives all six the same
five: the unit of every interval and test is therefore the medicine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from lib.llm.chat import in_parallel
from lib.llm.connect import connect
from lib.llm.prompts import load_prompt
from lib.llm.recorder import RecordingMiss
from lib.report import verdict
from lib.search.vectors import encode_small
from lib.stats import mean_interval, paired
from lib.studies.contradiction.quality import METRICS, score_answers, word_vectors, words
from lib.studies.contradiction.select import CONDITIONS, MATCHED, conditions
from lib.studies.contradiction.study import Study, reported
from lib.studies.nli.models import sentences

EXTRACT = "extractive, no LLM"
"""The name of the answerer of ``extracts``."""

KINDS = ("answer", "truncated", "echo", "insufficient", "empty", "not run")
"""What an answer is: see ``kind_of_answer``; "not run" where nobody recorded it."""

_SIMILAR, _MOST, _LEAST = CONDITIONS
_COMPARED = ((_MOST, _SIMILAR), (_MOST, _LEAST), (_LEAST, _SIMILAR), MATCHED)
"""The conditions that are compared: the first of each couple against the second."""

_CLAIMED = dict.fromkeys(METRICS, "lower") | {"kld": "higher", "jsd": ""}
"""What the paper says of each first condition of _COMPARED against the second (section 4): JSD is
said to be stable; that it holds at the same relevance is our reading of it."""


def contexts(study: Study, k: int = 5) -> pd.DataFrame:
    """Each question's contexts: qid, medicine, condition, ids; means of relevance, year, cnt."""
    rows = []
    for qid, pool in study.ranked.groupby("qid", sort=False):
        by_id = pool.set_index("id")
        for name, ids in conditions(pool, by_id["cnt"], k).items():
            row = {"qid": qid, "medicine": study.needs[qid].medicine, "condition": name, "ids": ids}
            means = by_id.loc[ids, ["relevance", "year", "cnt"]].mean()
            rows.append(row | means.to_dict())
    return pd.DataFrame(rows)


def describe_contexts(study: Study, chosen: pd.DataFrame) -> pd.DataFrame:
    """What distinguishes the conditions: condition, contexts, mean relevance, CNT and year, and
    the years below which 10, 50 and 90 % of the contexts' abstracts are (S prefers new ones)."""
    by_condition = chosen.groupby("condition", sort=False)
    table = by_condition[["relevance", "cnt", "year"]].mean()
    table.insert(0, "contexts", by_condition.size())
    abstracts = chosen[["condition", "ids"]].explode("ids")
    year = abstracts["ids"].map(lambda i: study.evidence[i].year)
    years = year.groupby(abstracts["condition"])
    for percent in (10, 50, 90):
        table[f"year_{percent}"] = years.quantile(percent / 100)
    return table.reset_index()


def extracts(study: Study, chosen: pd.DataFrame, encoder: Any, words: int = 100) -> pd.DataFrame:
    """Answers without an LLM: of the context's sentences, those nearest to the question by cosine.

    They are taken nearest first while they fill at most ``words`` words together (at least one),
    and stand in the order of the context.
    """
    answers = []
    for qid, ids in zip(chosen["qid"], chosen["ids"], strict=True):
        available = [sentence for i in ids for sentence in sentences(study.evidence[i].text)]
        (query,) = encode_small([study.needs[qid].question], encoder, "query")
        cosines = encode_small(available, encoder, "article") @ query
        nearest_first = np.argsort(-cosines, kind="stable")
        words_so_far = np.cumsum([len(available[i].split()) for i in nearest_first])
        n_taken = max(1, (words_so_far <= words).sum())
        answers.append(" ".join(available[i] for i in sorted(nearest_first[:n_taken])))
    return chosen.assign(answerer=EXTRACT, answer=answers, kind="answer", how="")


def kind_of_answer(text: str, question: str, finish: str = "stop") -> str:
    """empty (no word), insufficient (the prompt's token for that), echo (no word that is not in the
    question or in "the answer is"), truncated (cut at the token limit), or answer."""
    answer_words = words(text)
    if not answer_words:
        return "empty"
    if answer_words[:2] == ["insufficient", "evidence"] or "INSUFFICIENT EVIDENCE" in text:
        return "insufficient"
    if set(answer_words) <= {*words(question), "the", "answer", "is", "question"}:
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
    if not every:
        chosen = chosen[_one_question_a_medicine(study, chosen)]
    model = connect(llm)
    prompt = load_prompt("evidence_answer")

    def ask(context: tuple[str, list[str]]) -> tuple[str | None, str, str]:
        qid, ids = context
        question = study.needs[qid].question
        abstracts = []
        for n, i in enumerate(ids, 1):
            abstract = study.evidence[i]
            abstracts.append(f"[{n}] ({abstract.year}) {abstract.text}")
        request = prompt.messages(abstracts="\n".join(abstracts), question=question)
        try:
            with model.tag("contradiction", qid):
                reply = model.generate(request, max_tokens=256)[0]
        except RecordingMiss as miss:
            return None, "not run", str(miss).partition("Next: ")[2]
        return reply.text, kind_of_answer(reply.text, question, reply.finish_reason), ""

    replies = in_parallel(ask, zip(chosen["qid"], chosen["ids"], strict=True), workers)
    return chosen.assign(
        answerer=name,
        answer=[answer for answer, _, _ in replies],
        kind=[kind for _, kind, _ in replies],
        how=[how for _, _, how in replies],
    )


def _one_question_a_medicine(study: Study, chosen: pd.DataFrame) -> list[bool]:
    """Which rows are asked about: heading 1 of the first medicine, heading 2 of the second, ..."""
    medicines = list(dict.fromkeys(chosen["medicine"]))
    heading_of = {medicine: 1 + i % 6 for i, medicine in enumerate(medicines)}
    needs = [study.needs[qid] for qid in chosen["qid"]]
    return [need.heading == heading_of[need.medicine] for need in needs]


def measured_answers(
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
    references = {qid: need.answer for qid, need in study.needs.items()}
    abstracts = [abstract.text for abstract in study.evidence.values()]
    vectors = word_vectors([*abstracts, *references.values()])
    parts = [extracts(study, chosen, encoder)]
    parts += [chat_answers(study, chosen, **chat) for chat in chats]
    table = pd.concat(parts, ignore_index=True)
    table["words"] = [len(words(text)) for text in table["answer"].fillna("")]
    table = score_answers(table, references, encoder, vectors, bert, **divergence)
    return table.drop(columns=["ids", "answer", "relevance", "year", "cnt"])


def kinds_of_answers(scored: pd.DataFrame) -> pd.DataFrame:
    """How many answers of each answerer and condition are of each of KINDS."""
    in_order = scored[["answerer", "condition"]].drop_duplicates()
    table = pd.crosstab([scored["answerer"], scored["condition"]], scored["kind"])
    table = table.reindex(pd.MultiIndex.from_frame(in_order))
    return table.reindex(columns=KINDS, fill_value=0)


def table2(scored: pd.DataFrame) -> pd.DataFrame:
    """Table 2, macro-averaged over medicines: answerer, condition, metric, value, low, high, ...

    ``n`` counts the medicines behind value and interval, ``answers`` the answers with a word.
    ``reported`` is the number of the same model in the paper (``reported_of``), or else the mean
    of its five.
    """
    paper = reported("table2")
    models = set(paper["model"])
    rows = []
    for (answerer, condition), answers in scored.groupby(["answerer", "condition"], sort=False):
        with_words = answers[answers["words"] > 0]
        how_to_record = answers["how"].fillna("").max()
        in_paper = answerer in models
        printed = paper[paper["model"] == answerer] if in_paper else paper
        printed = printed[printed["retrieval"] == condition].groupby("metric")["value"].mean()
        for metric in METRICS:
            means = with_words.groupby("medicine")[metric].mean().dropna().to_numpy()
            value = low = high = np.nan
            if len(means):
                value, low, high = mean_interval(means)
            how = how_to_record
            if not how and metric == "bertscore" and not len(means):
                how = "set measures['bert'] to a folder"
            printed_value = printed.get(metric, np.nan)
            rows.append(
                {
                    "answerer": answerer,
                    "condition": condition,
                    "metric": metric,
                    "value": value,
                    "low": low,
                    "high": high,
                    "n": len(means),
                    "answers": len(with_words),
                    "reported": printed_value,
                    "reported_of": answerer if in_paper else f"mean of {len(models)}",
                    "verdict": verdict(value, np.nan, printed_value, same_setup=False),
                    "how": how,
                }
            )
    return pd.DataFrame(rows)


def tests(scored: pd.DataFrame) -> pd.DataFrame:
    """Differences between conditions, paired over medicines, with intervals: none was declared.

    Columns: answerer, metric, label, claim (what the paper says of the difference), difference,
    low, high, n, least. A medicine's means are over the questions that both conditions have a value
    for; one without any drops out of that row alone. A difference has the sign of the measure (JSD
    and KLD: lower is better).
    """
    rows = []
    for answerer in scored["answerer"].unique():
        answers = scored[scored["answerer"] == answerer]
        for metric in METRICS:
            wide = answers.pivot(index=["medicine", "qid"], columns="condition", values=metric)
            for first, second in _COMPARED:
                both = wide.reindex(columns=[first, second]).dropna().groupby("medicine").mean()
                if both.empty:
                    continue
                label = f"{first} − {second.removesuffix(', matched')}".replace("_", " ")
                row = {
                    "answerer": answerer,
                    "metric": metric,
                    "label": label,
                    "claim": _CLAIMED[metric],
                }
                rows.append(row | paired(both[first], both[second]))
    return pd.DataFrame(rows).drop(columns="p")
