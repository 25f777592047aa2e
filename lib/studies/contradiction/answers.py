"""What choosing by contradiction does to answers: contexts, answerers, Table 2 and its differences.

The six questions of a medicine share its abstracts, and choosing by CNT gives all six the same
five: the unit of every interval is therefore the medicine.

How near an answer is to the leaflet's own is measured as in the paper's Table 2 (section 4). ROUGE
comes from rouge-score (F1, no stemming); cosines are of unit sentence vectors; Word2Vec is trained
on the corpus at hand. JSD and KLD compare unigrams; their base, direction and smoothing, which the
paper does not state, are arguments. The paper prints cosine and dot product side by side: of BERT's
unit vectors they are the same, of word vectors (VSIM) they are not, and the dot product, 34.07
where the cosine is .708, also grows with the vectors' lengths.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lib.base.paths import REPORTED
from lib.embed import Encoder
from lib.llm.chat import in_parallel
from lib.llm.connect import connect
from lib.llm.prompts import load_prompt
from lib.llm.recorder import RecordingMiss
from lib.report import verdict
from lib.search.vectors import encode_small
from lib.stats import mean_interval, paired
from lib.studies.contradiction.nli import sentences
from lib.studies.contradiction.pools import CONDITIONS, MATCHED, Pools, conditions

METRICS = (
    "rouge1",
    "rouge2",
    "rougeL",
    "bert_cosine",
    "vsim_cosine",
    "vsim_dot",
    "jsd",
    "kld",
    "bertscore",
)
"""The measures of an answer; of JSD and KLD the lower is the closer."""

EXTRACT = "extractive, no LLM"
"""The name of the answerer of ``extracts``."""

KINDS = ("answer", "truncated", "echo", "insufficient", "empty", "not run")
"""What an answer is: see ``kind_of_answer``; "not run" where nobody recorded it."""

PROMPT = "evidence_answer"
"""What answerers are asked with: at most 100 words. ``evidence_answer_any_length`` sets no limit,
as the paper states none."""

WORD2VEC = {"vector_size": 100, "window": 5, "min_count": 2, "sg": 1, "epochs": 20}
"""Settings of gensim's Word2Vec: skip-gram, words seen twice. The paper names no settings: with
``{}`` they are gensim's own (CBOW, words seen five times, five epochs)."""

_SIMILAR, _MOST, _LEAST = CONDITIONS
_COMPARED = ((_MOST, _SIMILAR), (_MOST, _LEAST), (_LEAST, _SIMILAR), MATCHED)
"""The conditions that are compared: the first of each couple against the second."""

_CLAIMED = dict.fromkeys(METRICS, "lower") | {"kld": "higher", "jsd": ""}
"""What the paper says of each first condition of _COMPARED against the second (section 4): JSD is
said to be stable; that it holds at the same relevance is our reading of it."""


def reported(table: str) -> pd.DataFrame:
    """One of the paper's tables, such as "table2", with its values as numbers."""
    rows = pd.read_csv(REPORTED / f"contradiction_{table}.csv")
    return rows.assign(value=pd.to_numeric(rows["value"], errors="coerce"))


# contexts and answers -----------------------------------------------------------------------------


def contexts(pools: Pools, k: int = 5) -> pd.DataFrame:
    """Each question's contexts: qid, medicine, condition, ids; means of relevance, year, cnt."""
    rows = []
    for qid, pool in pools.ranked.groupby("qid", sort=False):
        by_id = pool.set_index("id")
        for name, ids in conditions(pool, by_id["cnt"], k).items():
            row = {"qid": qid, "medicine": pools.needs[qid].medicine, "condition": name, "ids": ids}
            means = by_id.loc[ids, ["relevance", "year", "cnt"]].mean()
            rows.append(row | means.to_dict())
    return pd.DataFrame(rows)


def describe_contexts(pools: Pools, chosen: pd.DataFrame) -> pd.DataFrame:
    """What distinguishes the conditions: condition, contexts, mean relevance, CNT and year, and
    the years below which 10, 50 and 90 % of the contexts' abstracts are (S prefers new ones)."""
    by_condition = chosen.groupby("condition", sort=False)
    table = by_condition[["relevance", "cnt", "year"]].mean()
    table.insert(0, "contexts", by_condition.size())
    abstracts = chosen[["condition", "ids"]].explode("ids")
    years = abstracts["ids"].map(lambda i: pools.evidence[i].year).groupby(abstracts["condition"])
    for percent in (10, 50, 90):
        table[f"year_{percent}"] = years.quantile(percent / 100)
    return table.reset_index()


def extracts(
    pools: Pools, chosen: pd.DataFrame, encoder: Encoder, most_words: int = 100
) -> pd.DataFrame:
    """Answers without an LLM: of the context's sentences, those nearest to the question by cosine.

    They are taken nearest first while they fill at most ``most_words`` together (at least one), and
    stand in the order of the context.
    """
    answers = []
    for qid, ids in zip(chosen["qid"], chosen["ids"], strict=True):
        available = [sentence for i in ids for sentence in sentences(pools.evidence[i].text)]
        (query,) = encode_small([pools.needs[qid].question], encoder, "query")
        cosines = encode_small(available, encoder, "article") @ query
        nearest_first = np.argsort(-cosines, kind="stable")
        words_so_far = np.cumsum([len(available[i].split()) for i in nearest_first])
        n_taken = max(1, (words_so_far <= most_words).sum())
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
    pools: Pools,
    chosen: pd.DataFrame,
    llm: str,
    name: str,
    *,
    every: bool = False,
    workers: int = 8,
    prompt: str = PROMPT,
) -> pd.DataFrame:
    """The same by a chat model, at temperature 0 and at most 256 tokens, as in the paper.

    ``llm`` is a ``connect`` spec. One question a medicine is asked, the next heading each time, or
    ``every`` one. What is not recorded is a missing answer, and ``how`` says how to record it.
    """
    if not every:
        medicines = list(dict.fromkeys(chosen["medicine"]))
        heading_of = {medicine: 1 + i % 6 for i, medicine in enumerate(medicines)}
        needs = [pools.needs[qid] for qid in chosen["qid"]]
        chosen = chosen[[need.heading == heading_of[need.medicine] for need in needs]]
    model = connect(llm)
    asked_with = load_prompt(prompt)

    def ask(context: tuple[str, list[str]]) -> tuple[str | None, str, str]:
        qid, ids = context
        question = pools.needs[qid].question
        abstracts = [pools.evidence[i] for i in ids]
        shown = [f"[{n}] ({own.year}) {own.text}" for n, own in enumerate(abstracts, 1)]
        request = asked_with.messages(abstracts="\n".join(shown), question=question)
        try:
            with model.tag("contradiction", qid):
                reply = model.generate(request, max_tokens=256)[0]
        except RecordingMiss as miss:
            return None, "not run", str(miss).partition("Next: ")[2]
        return reply.text, kind_of_answer(reply.text, question, reply.finish_reason), ""

    replies = in_parallel(ask, zip(chosen["qid"], chosen["ids"], strict=True), workers)
    columns = dict(zip(("answer", "kind", "how"), zip(*replies, strict=True), strict=True))
    return chosen.assign(answerer=name, **columns)


def measured_answers(
    pools: Pools,
    chosen: pd.DataFrame,
    encoder: Encoder,
    chats: Iterable[Mapping[str, Any]],
    bert: str | None = None,
    word2vec: Mapping[str, Any] = WORD2VEC,
    prompt: str = PROMPT,
    **divergence: Any,
) -> pd.DataFrame:
    """All answers, measured: qid, medicine, condition, answerer, kind, how, words, METRICS.

    ``chats`` are settings of ``chat_answers``, asked one after the other with ``prompt``. Measures
    are against the leaflet's answer; word vectors are trained on the abstracts and the leaflets'
    answers (``word_vectors``). ``bert`` and ``divergence`` as for ``score_answers``. Whatever has a
    word is measured, of whichever ``kind`` it is.
    """
    references = {qid: need.answer for qid, need in pools.needs.items()}
    vectors = word_vectors([*pools.texts.values(), *references.values()], **word2vec)
    parts = [extracts(pools, chosen, encoder)]
    parts += [chat_answers(pools, chosen, prompt=prompt, **chat) for chat in chats]
    table = pd.concat(parts, ignore_index=True)
    table["words"] = [len(words(text)) for text in table["answer"].fillna("")]
    table = score_answers(table, references, encoder, vectors, bert, **divergence)
    return table.drop(columns=["ids", "answer", "relevance", "year", "cnt"])


# how near an answer is ----------------------------------------------------------------------------


def words(text: str) -> list[str]:
    """Lower-case words of a text."""
    return re.findall(r"\w+", text.lower())


def divergences(
    answer: str,
    reference: str,
    *,
    direction: str = "reference",
    epsilon: float = 1e-9,
    base: float = 2,
) -> dict[str, float]:
    """``jsd`` in [0, 1] for base 2, and ``kld``, of the unigrams of two texts; lower is closer.

    KLD is KL(reference || answer), or the other way round for ``direction="answer"``; every word of
    either text gets ``epsilon`` added to its count before normalising. ValueError for another
    direction.
    """
    from scipy.spatial.distance import jensenshannon
    from scipy.stats import entropy

    if direction not in ("reference", "answer"):
        raise ValueError(f"no direction {direction!r}; there are: reference, answer")
    of_reference, of_answer = Counter(words(reference)), Counter(words(answer))
    vocabulary = sorted(of_reference | of_answer)
    p = np.array([of_reference[word] for word in vocabulary], float)
    q = np.array([of_answer[word] for word in vocabulary], float)
    one, other = (p, q) if direction == "reference" else (q, p)
    # scipy normalises the counts to shares
    kld = entropy(one + epsilon, other + epsilon, base=base)
    return {"jsd": float(jensenshannon(p, q, base=base) ** 2), "kld": float(kld)}


def word_vectors(texts: Sequence[str], **how: Any) -> Any:
    """gensim's Word2Vec vectors of a corpus; ``how`` are its settings, such as ``WORD2VEC``.

    One worker and a seed, so that the same texts give the same vectors. Trained on what is at hand,
    they know few words; the paper does not name its vectors.
    """
    from gensim.models import Word2Vec

    return Word2Vec([words(text) for text in texts], **{"seed": 0, "workers": 1, **how}).wv


def vsim(answer: str, reference: str, vectors: Any) -> dict[str, float]:
    """``vsim_cosine`` and ``vsim_dot``, the dot product, of the mean word vectors of two texts.

    The cosine is what gensim's ``n_similarity`` gives. Means are over the words that have a vector;
    both are NaN where a text has none.
    """
    rows_a = [vectors[word] for word in words(answer) if word in vectors]
    rows_b = [vectors[word] for word in words(reference) if word in vectors]
    if not rows_a or not rows_b:
        return {"vsim_cosine": float("nan"), "vsim_dot": float("nan")}
    a, b = np.mean(rows_a, axis=0), np.mean(rows_b, axis=0)
    cosine = a @ b / (np.linalg.norm(a) * np.linalg.norm(b))
    return {"vsim_cosine": float(cosine), "vsim_dot": float(a @ b)}


def bertscore(answers: Sequence[str], references: Sequence[str], model: str) -> np.ndarray:
    """BERTScore F1 (Zhang et al. 2020) with the token vectors of a sentence-transformers folder.

    Greedy matching, no idf, no rescaling, without [CLS] and [SEP]. Its usual model: roberta-large.
    """
    from sentence_transformers import SentenceTransformer

    texts = sorted({*answers, *references})
    encoded = SentenceTransformer(model, device="cpu").encode(
        texts, output_value="token_embeddings", show_progress_bar=False, batch_size=8
    )
    tokens = {}
    for text, rows in zip(texts, encoded, strict=True):
        rows = rows.numpy()[1:-1]  # without [CLS] and [SEP]
        tokens[text] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    f1 = []
    for answer, reference in zip(answers, references, strict=True):
        cosines = tokens[answer] @ tokens[reference].T
        precision = cosines.max(axis=1).mean()  # of each token of the answer, its nearest
        recall = cosines.max(axis=0).mean()
        f1.append(2 * precision * recall / (precision + recall))
    return np.array(f1)


def score_answers(
    answers: pd.DataFrame,
    references: Mapping[str, str],
    encoder: Encoder,
    vectors: Any,
    bert: str | None = None,
    **divergence: Any,
) -> pd.DataFrame:
    """``answers`` (columns qid, answer, ...) with a column for each of METRICS.

    ``references`` are by qid. Missing values where an answer or its reference has no word. ``bert``
    is the folder of BERTScore's model, without one that column is missing values; ``divergence``
    goes to ``divergences``.
    """
    from rouge_score.rouge_scorer import RougeScorer

    both = zip(answers["qid"], answers["answer"].fillna(""), strict=True)
    measurable = answers[[bool(words(text)) and bool(words(references[q])) for q, text in both]]
    if measurable.empty:
        return answers.assign(**dict.fromkeys(METRICS, np.nan))
    given = measurable["answer"].tolist()
    wanted = [references[qid] for qid in measurable["qid"]]
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"])
    rows = []
    for answer, reference in zip(given, wanted, strict=True):
        rouge = {name: s.fmeasure for name, s in scorer.score(reference, answer).items()}
        row = rouge | divergences(answer, reference, **divergence)
        rows.append(row | vsim(answer, reference, vectors))
    measured = pd.DataFrame(rows, index=measurable.index)
    vectors_given = encode_small(given, encoder, "article")
    vectors_wanted = encode_small(wanted, encoder, "article")
    measured["bert_cosine"] = (vectors_given * vectors_wanted).sum(axis=1)
    measured["bertscore"] = bertscore(given, wanted, bert) if bert else np.nan
    return answers.join(measured[list(METRICS)])


# tables -------------------------------------------------------------------------------------------


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
        reported_of = answerer if answerer in models else f"mean of {len(models)}"
        printed = paper[paper["retrieval"] == condition]
        if answerer in models:
            printed = printed[printed["model"] == answerer]
        printed = printed.groupby("metric")["value"].mean()
        with_words = answers[answers["words"] > 0]
        by_medicine = with_words.groupby("medicine")[list(METRICS)].mean()
        for metric in METRICS:
            values = by_medicine[metric].dropna().to_numpy()
            value, low, high = mean_interval(values) if len(values) else (np.nan,) * 3
            how = answers["how"].fillna("").max()  # how to record what is missing
            if not how and metric == "bertscore" and not len(values):
                how = "set measures['bert'] to a folder"
            row = {"answerer": answerer, "condition": condition, "metric": metric}
            row |= {"value": value, "low": low, "high": high}
            row |= {"n": len(values), "answers": len(with_words)}
            row |= {"reported": printed.get(metric, np.nan), "reported_of": reported_of}
            verdict_of = verdict(value, np.nan, row["reported"], same_setup=False)
            rows.append(row | {"verdict": verdict_of, "how": how})
    return pd.DataFrame(rows)


def tests(scored: pd.DataFrame) -> pd.DataFrame:
    """Differences between conditions, paired over medicines, with intervals: none was declared.

    Columns: answerer, metric, label, claim (what the paper says of the difference), difference,
    low, high, n, least. A medicine's means are over the questions that both conditions have a value
    for; one without any drops out of that row alone. A difference has the sign of the measure (JSD
    and KLD: lower is better).
    """
    rows = []
    for answerer, answers in scored.groupby("answerer", sort=False):
        for metric in METRICS:
            wide = answers.pivot(index=["medicine", "qid"], columns="condition", values=metric)
            for first, second in _COMPARED:
                both = wide.reindex(columns=[first, second]).dropna().groupby("medicine").mean()
                if both.empty:
                    continue
                label = f"{first} − {second.removesuffix(', matched')}".replace("_", " ")
                row = {"answerer": answerer, "metric": metric, "label": label}
                difference = paired(both[first], both[second], tested=False)
                rows.append(row | {"claim": _CLAIMED[metric]} | difference)
    return pd.DataFrame(rows).drop(columns="p")
