"""What a run at the scale of the paper needs: tokens, GB, GPUs, hours, each with its derivation.

What is counted and measured is in ``data/results/scale/needs.csv`` (``lib.cost.measure``); sizes
follow from printed numbers; what GPUs do is assumed, here and nowhere else.
``python -m lib.cost.needs`` prints what docs/profiles.md shows, from ``needs.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from lib.base.paths import RECORDINGS
from lib.base.provenance import read_result
from lib.cost.ledger import recorded
from lib.cost.measure import ENCODER, PASSAGE
from lib.data.medrag import estimate
from lib.datasets import SIZES
from lib.methods.base import Budget, Method
from lib.profiles import Profile, load_profile, methods_of
from lib.readers import ChatReader
from lib.report import reported
from lib.studies.grid.controls import CONTROLS

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


def _measured() -> dict[str, float]:
    """Means over the questions of all sets, and this machine's speeds."""
    table, _ = read_result("needs", "scale", committed=True)
    sums = table.assign(value=table["value"] * table["n"]).groupby("what")[["value", "n"]].sum()
    return (sums["value"] / sums["n"]).to_dict()


def _read(budget: Budget, m: dict[str, float]) -> float:
    """Prompt tokens of a question's requests. KeyError for a prompt that nobody has counted."""
    document = min(PASSAGE, budget.words * m["tokens a word"])
    return sum(m[prompt] + shown * document for prompt, shown in budget.prompts)


def tokens(p: Profile) -> pd.DataFrame:
    """who, model, requests, prompt_tokens, output_tokens, at_most: totals of a whole run.

    A text is as long as Table 3 says (tokens by calls), an answer as the bundled model's in JSON,
    neither longer than its cap; ``at_most`` fills every cap. Prompts are in SmolLM2's tokens.
    """
    m, methods, rows = _measured(), methods_of(p), []
    printed = reported("table3_cost").pivot(index="method", columns="metric", values="value")
    text = (printed["output_tokens"] / printed["llm_calls"]).to_dict()
    for name, budget in _asked_once(methods).items():
        most = budget.max_tokens
        # A method whose length the paper does not print is costed at its cap.
        each = min(text.get(budget.length_as, most), most)
        counts = len(budget.prompts), _read(budget, m)
        rows.append((f"expand: {name}", p.llm, *counts, budget.texts * each, budget.texts * most))
    searched = len(methods) + len(CONTROLS) + 2  # and CHR at the chosen lambda, random passages
    told = recorded(RECORDINGS / "smollm2-answers.jsonl").set_index("method")
    told = told[told.index.str.endswith("JSON")].sum(numeric_only=True)
    read = searched * (m["answer_with_documents"] + p.k * PASSAGE) + text["CHR"]
    read += m["answer_with_documents"] + m["answer_closed_book"]
    for s in (s for s in p.answerers if "llm" in s):
        each = searched + 2, read, (searched + 2) * told["output_tokens"] / told["calls"]
        rows.append((f"answer: {s['name']}", s["llm"], *each, each[0] * ChatReader.max_tokens))
    columns = ["who", "model", "requests", "prompt_tokens", "output_tokens", "at_most"]
    table = pd.DataFrame(rows, columns=columns)
    table["model"] = table["model"].str.rpartition("openai:")[2]
    table[columns[2:]] = (table[columns[2:]] * sum(SIZES[q] for q in p.questions)).astype(int)
    return table


def _asked_once(methods: Mapping[str, Method]) -> dict[str, Budget]:
    """The budgets of methods that ask an LLM; of several with the same requests CHR's or the first
    one's."""
    by_budget: dict[Budget, str] = {}
    for name, method in methods.items():
        budget = method.budget()
        if budget is not None and (budget not in by_budget or name == "chr"):
            by_budget[budget] = name
    return {name: budget for budget, name in by_budget.items()}


def hours(p: Profile) -> pd.DataFrame:
    """By model: GPUs, GB of weights, tokens a second, hours expected and with every cap filled."""
    total = tokens(p).groupby("model")[["prompt_tokens", "output_tokens", "at_most"]].sum()
    rows = []
    for model, (billions, gpus, alone) in MODELS.items():
        reads, writes = gpus * PEAK * READ / (2e9 * billions), alone * p.workers * TOGETHER
        spent = [total.loc[model].iloc[0] / reads + n / writes for n in total.loc[model].iloc[1:]]
        rows.append((model, gpus, 2 * billions, reads, writes, *(s / 3600 for s in spent)))
    columns = ["model", "gpus", "weights_gb", "reads_per_s", "writes_per_s", "hours", "at_most"]
    return pd.DataFrame(rows, columns=columns)


def page() -> str:
    """The text of docs/profiles.md, in Markdown: ``needs.md`` with every number filled in."""
    p, m = load_profile("paper"), _measured()
    told, spent = tokens(p), hours(p)
    sizes = pd.DataFrame([vars(estimate(name)) for name in p.corpora]).sum(numeric_only=True)
    counts = ["prompt_tokens", "output_tokens", "at_most"]
    encoded = sizes["rows"] * PASSAGE
    derived = {
        "questions": sum(SIZES[q] for q in p.questions),
        "rows": int(sizes["rows"]),
        "sets": " + ".join(f"{SIZES[q]:,} {q}" for q in p.questions),
        "workers": p.workers,
        "download": sizes["download_gb"],
        "vectors": sizes["float16_gb"],
        "PASSAGE": PASSAGE,
        "search": -(-sizes["float16_gb"] // GIGABYTES),
        "stored": m["bytes of a stored passage"],
        "texts": sizes["rows"] * m["bytes of a stored passage"] / 1e9,
        "rate": m["passages stored a second"],
        "ID": m["bytes of an id in memory"],
        "storing": sizes["rows"] / m["passages stored a second"] / 3600,
        "ids": sizes["rows"] * m["bytes of an id in memory"] / 1e9,
        "encoded": encoded / 1e9,
        "encoder": ENCODER / 1e6,
        "PEAK": PEAK / 1e12,
        "READ": READ,
        "encoding": 2 * ENCODER * encoded / (PEAK * READ) / 3600,
        "TOGETHER": TOGETHER,
        "here": m["encoder tokens a second"],
        "speed": m["SmolLM2 prompt tokens a second"],
        "encoded_here": encoded / m["encoder tokens a second"] / 86400 / 365,
        "read_here": told["prompt_tokens"].sum() / m["SmolLM2 prompt tokens a second"] / 86400,
        "by_who": _table(told.drop(columns="model").assign(**told[counts] / 1e6)),
        "by_model": _table(spent),
        "gpus": spent["gpus"].sum(),
        "hours": spent["hours"].sum(),
    }
    return Path(__file__).with_suffix(".md").read_text(encoding="utf-8").format(**derived)


def _table(table: pd.DataFrame) -> str:
    heads = [c.replace("_", " ") for c in table]
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)]]
    for row in table.itertuples(index=False):
        lines.append(
            [x if isinstance(x, str) else f"{x:,.{int(x < 100 and x % 1 > 0)}f}" for x in row]
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    print(page())
