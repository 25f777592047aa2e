"""What a run costs: tokens, GB, GPUs and hours at the scale of the paper, and what a recording did.

    python -m lib.cost                                           the whole estimate
    python -m lib.cost data/recordings/live/paper.jsonl          what was spent, by method and model

What is counted and measured is in ``data/results/scale/needs.csv`` (``tools.measure_needs``);
sizes follow from printed numbers; what GPUs do is assumed, here and nowhere else. The page of the
estimate is docs/_templates/needs.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd

from lib.base.files import read_jsonl
from lib.base.paths import RECORDINGS, ROOT
from lib.base.provenance import read_result
from lib.data.medrag import NAMES, estimate, local_files
from lib.data.passages import CORPORA
from lib.datasets import SIZES, question_sets
from lib.limit import PASSAGES
from lib.llm.chat import Reply, ledger
from lib.llm.connect import is_called, live_of, writer_of
from lib.methods.base import Budget, asked_once
from lib.profiles import Profile, load_profile, methods_of
from lib.readers import ChatReader
from lib.report import reported
from lib.studies.contradiction.answers import PROMPT
from lib.studies.contradiction.answers import reported as of_contradiction
from lib.studies.contradiction.evidence import HEADINGS, files_of, load_needs
from lib.studies.contradiction.pools import CONDITIONS, MATCHED
from lib.studies.contradiction.pubmed import BATCH
from lib.studies.main_tables.experiment import CONTROLS, further_lambdas

PASSAGE = 221
"""Tokens of a MedCorp passage, mean (Xiong et al. 2024)."""
CHARACTERS = 4
"""Assumed: characters of a token, to compare MedCorp's passages with those of ``words``."""
ENCODER = 12 * 12 * 768**2
"""Parameters that a token meets in one of MedCPT's towers: twelve layers of BERT-base."""
PEAK, GIGABYTES = 312e12, 80
"""NVIDIA's data sheet of the A100 80 GB: dense bfloat16 operations a second, memory."""
SPEED = 84.28 * 7.61
"""Tokens a second of one request to Qwen2.5-7B, by its billions of parameters: as published
(Qwen2.5's speed benchmark). Other models on one GPU are scaled from it by parameters."""
MODELS = {
    "Qwen/Qwen2.5-72B-Instruct": (72.7, 72.7, 4, 31.37),
    "meta-llama/Meta-Llama-3-8B-Instruct": (8.03, 8.03, 1, SPEED / 8.03),
    "Qwen/Qwen2.5-7B-Instruct": (7.61, 7.61, 1, SPEED / 7.61),
    "google/gemma-2-9b-it": (9.24, 9.24, 1, SPEED / 9.24),
    "tiiuae/Falcon3-7B-Instruct": (7.46, 7.46, 1, SPEED / 7.46),
    "mistralai/Mixtral-8x7B-Instruct-v0.1": (46.7, 12.9, 2, SPEED / 12.9),
    "openai/gpt-oss-20b": (20.9, 3.6, 1, SPEED / 3.6),
    "google/gemma-3-270m-it": (0.27, 0.27, 1, SPEED / 0.27),
    "YBXL/Med-LLaMA3-8B": (8.03, 8.03, 1, SPEED / 8.03),
}
"""Billions of parameters in all, and of those that a token meets (model cards); GPUs, and tokens a
second of one request on these: of the 72B as published, else see ``SPEED``."""
TOWERS_GB, NLI_GB = 0.88, 0.44
"""Weights of MedCPT's two towers, and of the paper's NLI model: BERT-base in float32."""
READ, TOGETHER = 0.4, 0.5
"""Assumed: the share of the peak that reading reaches, and the share of one request's speed that
each of many in flight keeps."""

JUDGED, WORDS, ANSWERED = 200, 100, 256
"""A judge's reply, at its cap; the words that the contradiction study's prompt allows an answer,
and its cap in tokens."""
SENTENCES, ABSTRACT, PAIR, READ_PAIRS = 10, 300, 60, 0.1
"""Assumed of PubMed's abstracts: sentences, tokens, tokens of a pair of sentences; the share of the
pairs that are read is what the filter of notebook 09 leaves."""
SEARCHES, REPLY_S, LIMIT_S = 9, 0.5, 1 / 3
"""Different searches a medicine (its six questions ask three things, in three tiers), seconds of a
reply (assumed), and between two requests to NCBI without a key."""

_COUNTS = ["prompt_tokens", "output_tokens", "at_most"]


def recorded(recording: Path) -> pd.DataFrame:
    """The ledger of a recording (see ``lib.llm.chat.ledger``), by method and the model asked for.

    A generation is charged to the method that asked for it first; other methods that need the same
    one reuse it at no cost.
    """
    beside = recording.with_suffix(".times.jsonl")
    times = {row["key"]: row for row in read_jsonl(beside)} if beside.exists() else {}
    replies = []
    for row in read_jsonl(recording):
        time = times.get(row["key"], {})
        latency, method = time.get("latency_s"), time.get("method", "")
        replies.append(Reply(**row["reply"], model=row["model"], latency_s=latency, method=method))
    return ledger(replies)


def _measured(dataset: str | None = None) -> dict[str, float]:
    """Means over the questions of all sets, or of one, and this machine's speeds."""
    table, _ = read_result("needs", "scale", committed=True)
    if dataset in set(table["set"]):
        table = table[table["set"].isin([dataset, "this machine"])]
    sums = table.assign(value=table["value"] * table["n"]).groupby("what")[["value", "n"]].sum()
    return (sums["value"] / sums["n"]).to_dict()


def tokens(p: Profile) -> pd.DataFrame:
    """who, model, requests, prompt_tokens, output_tokens, at_most: totals of a whole run.

    A text is as long as Table 3 says (tokens by calls), an answer as the bundled model's in JSON,
    neither longer than its cap; ``at_most`` fills every cap. What is replayed costs nothing.
    Prompts are in SmolLM2's tokens; one that nobody has counted, of a method of your own, is taken
    to be as long as the longest.
    """
    measured = _measured()
    printed = reported("table3_cost").pivot(index="method", columns="metric", values="value")
    text = (printed["output_tokens"] / printed["llm_calls"]).to_dict()
    asked = asked_once(methods_of(p))
    prompts = {prompt for budget in asked.values() for prompt, _ in budget.prompts}
    longest = max(measured[prompt] for prompt in prompts & measured.keys())
    lengths = dict.fromkeys(prompts, longest) | measured
    rows = [
        (f"expand: {name}", p.llm, *_expansion(budget, text, lengths))
        for name, budget in asked.items()
    ]
    answer = _answer(p, text["CHR"], measured)
    rows += [(f"answer: {s['name']}", s["llm"], *answer) for s in p.answerers if "llm" in s]
    judge = measured["chr_hypotheses"] + text["CHR"], JUDGED, JUDGED
    rows.append(("judge of mimics", p.judge, 1, *judge))
    rows = [row for row in rows if live_of(row[1])]
    table = pd.DataFrame(rows, columns=["who", "model", "requests", *_COUNTS])
    counts = ["requests", *_COUNTS]
    table[counts] *= questions(p) if rows else 0
    parts = [table, _sweep_tokens(p), _evidence_tokens(p, measured)]
    table = pd.concat(parts, ignore_index=True)
    table["model"] = [writer_of(spec) for spec in table["model"]]
    return table.astype(dict.fromkeys(counts, int))


def questions(p: Profile) -> int:
    """How many questions a profile asks, of all its sets together."""
    known = [SIZES[name] for name in p.questions if name in SIZES]
    others = question_sets([name for name in p.questions if name not in SIZES], p.per_set)
    return sum(min(size, p.per_set or size) for size in [*known, *map(len, others.values())])


def needs_of(p: Profile) -> int:
    """The contradiction study's questions: of the leaflets that are there, else as many as the
    paper's."""
    name = p.evidence["name"]
    if name.startswith("tga:") and not files_of(name):
        n = int(of_contradiction("table1").set_index("statistic")["value"]["queries"])
    else:
        n = len(load_needs(name))
    return min(n, p.limit or n)


def _evidence_tokens(p: Profile, measured: Mapping[str, float]) -> pd.DataFrame:
    """As ``tokens``, of the contradiction study's answerers; every condition shows abstracts, and
    an answer whose prompt has no limit of words is costed at its cap."""
    asked = needs_of(p) * len([*CONDITIONS, *MATCHED])
    read = asked * (measured["answer_closed_book"] + p.k * ABSTRACT)
    most = asked * ANSWERED
    limited = p.evidence.get("prompt", PROMPT) == PROMPT
    written = asked * WORDS * measured["tokens a word"] if limited else most
    rows = [
        (f"evidence: {s['name']}", s["llm"], *(n // (1 if s.get("every") else 6) for n in counts))
        for s in p.evidence.get("answerers", [])
        if live_of(s["llm"])
        for counts in [(asked, read, written, most)]
    ]
    return pd.DataFrame(rows, columns=["who", "model", "requests", *_COUNTS])


def _expansion(budget: Budget, text: Mapping[str, float], measured: Mapping[str, float]) -> tuple:
    """Of one question: requests, prompt tokens, output tokens, and these at most.

    A method whose length the paper does not print is costed at its cap.
    """
    document = min(PASSAGE, budget.words * measured["tokens a word"])
    read = sum(measured[prompt] + shown * document for prompt, shown in budget.prompts)
    most = budget.max_tokens
    each = min(text.get(budget.length_as, most), most)
    return len(budget.prompts), read, budget.texts * each, budget.texts * most


def _answer(p: Profile, chr_text: float, measured: Mapping[str, float]) -> tuple:
    """As ``_expansion``, for one question's answers by one model, with and without passages."""
    searched = len(methods_of(p)) + len(CONTROLS) + 2  # and CHR at the chosen lambda, random ones
    # Without passages: the expander's own text, and closed book.
    asked, read, written, most = _answers(searched + 2, p, measured)
    read += chr_text + measured["answer_closed_book"] - measured["answer_with_documents"]
    return asked, read - 2 * p.k * PASSAGE, written, most


def _answers(count: float, p: Profile, measured: Mapping[str, float]) -> tuple:
    """As ``_expansion``, for so many answers from k passages each."""
    answers = recorded(RECORDINGS / "smollm2-answers.jsonl")
    answers = answers[answers["method"].str.endswith("JSON")].sum(numeric_only=True)
    read = count * (measured["answer_with_documents"] + p.k * PASSAGE)
    written = count * answers["output_tokens"] / answers["calls"]
    return count, read, written, count * ChatReader.max_tokens


def _sweep_tokens(p: Profile) -> pd.DataFrame:
    """As ``tokens``, of the answers over lambda that are no rows of the grid."""
    named, dataset = p.sweep.get("answerer"), p.sweep.get("dataset")
    asked = questions(replace(p, questions=tuple(one for one in p.questions if one == dataset)))
    answers = _answers(asked * len(further_lambdas(p)), p, _measured(dataset))
    rows = [
        (f"answer over λ: {one['name']}", one["llm"], *answers)
        for one in p.answerers
        if one["name"] == named and live_of(one.get("llm", ""))
    ]
    return pd.DataFrame(rows, columns=["who", "model", "requests", *_COUNTS])


def hours(p: Profile) -> pd.DataFrame:
    """By model: GPUs, GB of weights, tokens a second, hours expected and with every cap filled."""
    total = tokens(p).groupby("model")[_COUNTS].sum()
    rows = []
    for model, (billions, met, gpus, alone) in MODELS.items():
        for name in (one for one in total.index if is_called(model, one)):
            reads = gpus * PEAK * READ / (2e9 * met)
            writes = alone * p.workers * TOGETHER
            read, *written = total.loc[name]
            spent = [(read / reads + n / writes) / 3600 for n in written]
            rows.append((name, gpus, 2 * billions, reads, writes, *spent))
    columns = ["model", "gpus", "weights_gb", "reads_per_s", "writes_per_s", "hours", "at_most"]
    return pd.DataFrame(rows, columns=columns)


def sizes(p: Profile) -> pd.DataFrame:
    """By source of MedCorp: rows, float16_gb, download_gb, text_gb; no rows for other corpora.

    Of a local copy (a mirror) as many rows as its bytes hold, and nothing to download; with a limit
    the first of each source.
    """
    found = []
    for source in (name for name in p.corpora if name in NAMES):
        whole, local = estimate(source), sum(size for _, size, _ in local_files(source))
        share = local / (whole.download_gb * 1e9) if local else 1.0
        rows = round(min(1.0, share) * whole.rows)
        rows = min(rows, PASSAGES * p.limit or rows)
        part = rows / whole.rows
        downloaded = 0.0 if local else whole.download_gb * part
        found.append((source, rows, whole.float16_gb * part, downloaded))
    table = pd.DataFrame(found, columns=["source", "rows", "float16_gb", "download_gb"])
    return table.assign(text_gb=table["rows"] * _measured()["bytes of a stored passage"] / 1e9)


def words(n: float) -> tuple[float, float]:
    """Hours and GB of the index of words of n of MedCorp's passages, as at the largest size that
    ``tools.bench_words`` measured, by their characters."""
    table, _ = read_result("words", "scale", committed=True)
    ours = table[table["engine"] == "ours"].sort_values("passages").iloc[-1]
    share = n / ours["passages"] * PASSAGE * CHARACTERS / ours["characters"]
    return share * ours["build_s"] / 3600, share * ours["gb"]


def rows(p: Profile) -> int:
    """How many passages a profile searches, but for those of your own."""
    others = [CORPORA[name].passages for name in p.corpora if name in {*CORPORA} - {*NAMES}]
    limited = [min(n, PASSAGES * p.limit or n) for n in others]
    return int(sizes(p)["rows"].sum()) + sum(limited)


BILL = ["what", "hours", "gpus", "disk_gb", "million_in", "million_out"]


def bill(p: Profile, gpus: int) -> pd.DataFrame:
    """``BILL``: what a run takes, a row a part; encoding is on ``gpus``, or on this processor.

    A part of the time that is not known is missing: of other encoders, or of models that are not in
    ``MODELS``.
    """
    measured, corpus = _measured(), sizes(p).sum(numeric_only=True)
    encoded = corpus.get("rows", 0) * PASSAGE
    speed = gpus * PEAK * READ / (2 * ENCODER) if gpus else measured["encoder tokens a second"]
    storing = corpus.get("rows", 0) / measured["passages stored a second"]
    towers = TOWERS_GB if p.encoder == "medcpt" else 0.0
    by_words = not {"bm25", "rrf"} <= set(p.skip)
    counting, words_gb = words(corpus.get("rows", 0)) if by_words else (0.0, 0.0)
    rows = [
        ("downloads", None, 0, corpus.get("download_gb", 0), None, None),
        ("texts", storing / 3600, 0, corpus.get("text_gb", 0), None, None),
        ("words", counting, 0, words_gb, None, None),
        ("vectors", encoded / speed / 3600, gpus, corpus.get("float16_gb", 0), None, None),
        ("the encoder's weights", None, 0, towers, None, None),
        *_study(p, speed, gpus),
    ]
    total, spent = tokens(p).groupby("model")[_COUNTS].sum() / 1e6, hours(p).set_index("model")
    for model in total.index[total.index != ""]:
        at, known = total.loc[model], model in spent.index
        time = spent.loc[model, ["hours", "gpus", "weights_gb"]] if known else (None, 0, 0.0)
        rows.append((model, *time, at["prompt_tokens"], at["output_tokens"]))
    table = pd.DataFrame(rows, columns=BILL)
    table[BILL[1:]] = table[BILL[1:]].astype(float)
    return table[table[BILL[1:]].fillna(0).ne(0).any(axis=1)].reset_index(drop=True)


def _study(p: Profile, speed: float, gpus: int) -> list[tuple]:
    """Rows of ``BILL`` for the contradiction study of leaflets: PubMed's replies, pairs read."""
    if not p.evidence["name"].startswith("tga:"):
        return []
    statistics = of_contradiction("table1").set_index("statistic")["value"]
    asked = needs_of(p)
    medicines = asked / len(HEADINGS)
    # Each search is followed by its records, and each question by their citations.
    requests = medicines * 2 * SEARCHES + asked
    records = statistics["pubmed_documents_raw"] / statistics["queries"] * asked
    requests += records / BATCH
    each = statistics["avg_documents_per_query"]
    pairs = asked * each * (each - 1) / 2 * SENTENCES**2 * READ_PAIRS
    return [
        ("PubMed", requests * (REPLY_S + LIMIT_S) / 3600, 0, 0.0, None, None),
        ("NLI", pairs * PAIR / speed / 3600, gpus, NLI_GB, None, None),
    ]


def page() -> str:
    """The estimate in Markdown: the template with every number filled in."""
    p, measured = load_profile("paper"), _measured()
    by_who, by_model = tokens(p), hours(p)
    sizes = pd.DataFrame([vars(estimate(name)) for name in p.corpora]).sum(numeric_only=True)
    encoded = sizes["rows"] * PASSAGE
    on_one_gpu = bill(p, gpus=1).set_index("what")["hours"]
    in_millions = by_who.drop(columns="model").assign(**by_who[_COUNTS] / 1e6)
    derived = {
        "questions": sum(SIZES[name] for name in p.questions),
        "rows": int(sizes["rows"]),
        "sets": " + ".join(f"{SIZES[name]:,} {name}" for name in p.questions),
        "workers": p.workers,
        "download": sizes["download_gb"],
        "vectors": sizes["float16_gb"],
        "PASSAGE": PASSAGE,
        "search": -(-sizes["float16_gb"] // GIGABYTES),
        "stored": measured["bytes of a stored passage"],
        "texts": sizes["rows"] * measured["bytes of a stored passage"] / 1e9,
        "words": words(sizes["rows"])[1],
        "counting": words(sizes["rows"])[0],
        "CHARACTERS": CHARACTERS,
        "rate": measured["passages stored a second"],
        "ID": measured["bytes of an id in memory"],
        "storing": sizes["rows"] / measured["passages stored a second"] / 3600,
        "ids": sizes["rows"] * measured["bytes of an id in memory"] / 1e9,
        "encoded": encoded / 1e9,
        "encoder": ENCODER / 1e6,
        "PEAK": PEAK / 1e12,
        "READ": READ,
        "encoding": 2 * ENCODER * encoded / (PEAK * READ) / 3600,
        "TOGETHER": TOGETHER,
        "here": measured["encoder tokens a second"],
        "speed": measured["SmolLM2 prompt tokens a second"],
        "encoded_here": encoded / measured["encoder tokens a second"] / 86400 / 365,
        "read_here": by_who["prompt_tokens"].sum()
        / measured["SmolLM2 prompt tokens a second"]
        / 86400,
        "by_who": _table(in_millions),
        "by_model": _table(by_model),
        "gpus": by_model["gpus"].sum(),
        "needs": needs_of(p),
        "SEARCHES": SEARCHES,
        "pubmed": on_one_gpu["PubMed"],
        "nli": on_one_gpu["NLI"],
        "weights": by_model["weights_gb"].sum(),
        "towers": TOWERS_GB,
        "nli_gb": NLI_GB,
        "hours": by_model["hours"].sum(),
    }
    template = ROOT / "docs" / "_templates" / "needs.md"
    return template.read_text(encoding="utf-8").format(**derived)


def _table(table: pd.DataFrame) -> str:
    """A table in Markdown; numbers below 100 with a decimal, unless they are whole."""
    heads = [column.replace("_", " ") for column in table]
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)]]
    for row in table.itertuples(index=False):
        lines.append([value if isinstance(value, str) else _number(value) for value in row])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _number(value: float) -> str:
    return f"{value:,.1f}" if value < 100 and value % 1 else f"{value:,.0f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m lib.cost")
    parser.add_argument("recording", type=Path, nargs="?")
    given = parser.parse_args()
    print(recorded(given.recording).to_string(index=False) if given.recording else page())
