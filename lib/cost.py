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
from pathlib import Path

import pandas as pd

from lib.base.files import read_jsonl
from lib.base.paths import RECORDINGS, ROOT
from lib.base.provenance import read_result
from lib.data.medrag import estimate
from lib.datasets import SIZES
from lib.llm.chat import Reply, ledger
from lib.methods.base import Budget, Method
from lib.profiles import Profile, load_profile, methods_of
from lib.readers import ChatReader
from lib.report import reported
from lib.studies.main_tables.experiment import CONTROLS

PASSAGE = 221
"""Tokens of a MedCorp passage, mean (Xiong et al. 2024)."""
ENCODER = 12 * 12 * 768**2
"""Parameters that a token meets in one of MedCPT's towers: twelve layers of BERT-base."""
PEAK, GIGABYTES = 312e12, 80
"""NVIDIA's data sheet of the A100 80 GB: dense bfloat16 operations a second, memory."""
MODELS = {
    "Qwen/Qwen2.5-72B-Instruct": (72.7, 4, 31.37),
    "meta-llama/Meta-Llama-3-8B-Instruct": (8.03, 1, 84.28 * 7.61 / 8.03),
    "Qwen/Qwen2.5-7B-Instruct": (7.61, 1, 84.28),
    "google/gemma-2-9b-it": (9.24, 1, 84.28 * 7.61 / 9.24),
}
"""Billions of parameters (model cards), GPUs, and tokens a second of one request on these: for the
Qwen as published (Qwen2.5's speed benchmark), for the others scaled from the 7B by parameters."""
READ, TOGETHER = 0.4, 0.5
"""Assumed: the share of the peak that reading reaches, and the share of one request's speed that
each of many in flight keeps."""

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


def _measured() -> dict[str, float]:
    """Means over the questions of all sets, and this machine's speeds."""
    table, _ = read_result("needs", "scale", committed=True)
    sums = table.assign(value=table["value"] * table["n"]).groupby("what")[["value", "n"]].sum()
    return (sums["value"] / sums["n"]).to_dict()


def tokens(p: Profile) -> pd.DataFrame:
    """who, model, requests, prompt_tokens, output_tokens, at_most: totals of a whole run.

    A text is as long as Table 3 says (tokens by calls), an answer as the bundled model's in JSON,
    neither longer than its cap; ``at_most`` fills every cap. Prompts are in SmolLM2's tokens; one
    that nobody has counted, of a method of your own, is taken to be as long as the longest.
    """
    measured = _measured()
    printed = reported("table3_cost").pivot(index="method", columns="metric", values="value")
    text = (printed["output_tokens"] / printed["llm_calls"]).to_dict()
    asked = _asked_once(methods_of(p))
    prompts = {prompt for budget in asked.values() for prompt, _ in budget.prompts}
    longest = max(measured[prompt] for prompt in prompts & measured.keys())
    lengths = dict.fromkeys(prompts, longest) | measured
    rows = [
        (f"expand: {name}", p.llm, *_expansion(budget, text, lengths))
        for name, budget in asked.items()
    ]
    answer = _answer(p, text["CHR"], measured)
    rows += [(f"answer: {s['name']}", s["llm"], *answer) for s in p.answerers if "llm" in s]
    table = pd.DataFrame(rows, columns=["who", "model", "requests", *_COUNTS])
    table["model"] = table["model"].str.rpartition("openai:")[2]
    counts = ["requests", *_COUNTS]
    table[counts] = (table[counts] * sum(SIZES[name] for name in p.questions)).astype(int)
    return table


def _asked_once(methods: Mapping[str, Method]) -> dict[str, Budget]:
    """The budgets of methods that ask an LLM. Methods with the same requests share their replies,
    so only one of them is kept: CHR, else the first."""
    by_budget: dict[Budget, str] = {}
    for name, method in methods.items():
        budget = method.budget()
        if budget is not None and (budget not in by_budget or name == "chr"):
            by_budget[budget] = name
    return {name: budget for budget, name in by_budget.items()}


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
    prompt = measured["answer_with_documents"]
    # Without passages: the expander's own text, and closed book.
    read = searched * (prompt + p.k * PASSAGE) + chr_text
    read += prompt + measured["answer_closed_book"]
    answers = recorded(RECORDINGS / "smollm2-answers.jsonl")
    answers = answers[answers["method"].str.endswith("JSON")].sum(numeric_only=True)
    asked = searched + 2
    written = asked * answers["output_tokens"] / answers["calls"]
    return asked, read, written, asked * ChatReader.max_tokens


def hours(p: Profile) -> pd.DataFrame:
    """By model: GPUs, GB of weights, tokens a second, hours expected and with every cap filled."""
    total = tokens(p).groupby("model")[_COUNTS].sum()
    rows = []
    for model, (billions, gpus, alone) in MODELS.items():
        reads = gpus * PEAK * READ / (2e9 * billions)
        writes = alone * p.workers * TOGETHER
        read, *written = total.loc[model]
        spent = [(read / reads + n / writes) / 3600 for n in written]
        rows.append((model, gpus, 2 * billions, reads, writes, *spent))
    columns = ["model", "gpus", "weights_gb", "reads_per_s", "writes_per_s", "hours", "at_most"]
    return pd.DataFrame(rows, columns=columns)


def page() -> str:
    """The estimate in Markdown: the template with every number filled in."""
    p, measured = load_profile("paper"), _measured()
    by_who, by_model = tokens(p), hours(p)
    sizes = pd.DataFrame([vars(estimate(name)) for name in p.corpora]).sum(numeric_only=True)
    encoded = sizes["rows"] * PASSAGE
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
