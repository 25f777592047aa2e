"""The generated blocks of README.md and docs/: functions that read committed results alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pandas as pd

from lib.base import paths
from lib.methods import METHODS, Method
from lib.pages.committed import PROFILES, folded, markdown, read
from lib.pages.faults import faults
from lib.pages.findings import audit, claims, contradiction, reading, story
from lib.pages.neighbours import lesson, rag2, slhyde
from lib.pages.papers import papers, papers_found
from lib.pages.real import real
from lib.pages.summary import answer, both_sides, tests
from lib.profiles import Profile, load_profile, methods_of
from lib.studies.grid.accuracy import AVERAGE

FEW = 6
"""Below this many questions no share is shown, as no test is made (``lib.stats.judged``)."""
MAJORITY, RANDOM = "majority", "random"


def table1() -> str:
    """Per profile: method x question set, the reader without an LLM, beside the paper's Table 1."""
    parts = [_table1(load_profile(name)) for name in PROFILES]
    paper = load_profile("paper")
    return "\n\n".join([*parts, f"**{paper.title}**: NOT RUN. It needs: {paper.needs}."])


def _table1(profile: Profile) -> str:
    table, settings = read("table1", profile.name)
    k, lam = settings["k"], settings["lam"]
    reader = next(a["name"] for a in profile.answerers if a["kind"] in ("evidence", "judged"))
    shown = table[table["answerer"].isin([reader, "no reader"])]
    read_all = ((shown["metric"] == AVERAGE) & (shown["answerer"] == reader)).any()
    shown = shown[shown["metric"].isin(["accuracy", AVERAGE] if read_all else ["accuracy"])]
    retrieval = read("retrieval", profile.name)[0]
    shown = shown.merge(retrieval[["dataset", "method", "p_at_5"]], "left")
    heads = ("right, %", f"P@{k}", "paper, %")
    for head, column in zip(heads, _cells(shown), strict=True):
        shown[head] = column
    of_set = shown[["dataset", "metric"]].drop_duplicates("dataset")
    # An average is of answers alone.
    columns = [
        (row.dataset, head)
        for row in of_set.itertuples()
        for head in heads
        if row.metric != AVERAGE or head != heads[1]
    ]
    rows = []
    for method, of_method in shown.groupby("method", sort=False):
        by_set = of_method.set_index("dataset")
        cells = [by_set[head].get(dataset) for dataset, head in columns]
        of_sets = of_method.loc[of_method["metric"] == "accuracy", "n"]
        n = " / ".join(f"{x:,}" for x in of_sets.unique())
        judged = of_method.loc[of_method["n"] >= FEW, "verdict"].dropna()
        rows.append((_arm(method, lam), n, *cells, " / ".join(judged.unique())))
    # The set's name stands once, over the first of its columns.
    named = [
        f"{dataset.split()[-1]}: {head}" if head == heads[0] else head for dataset, head in columns
    ]
    text = markdown(("method", "n", *named, "verdict"), rows)
    one_set = shown[shown["metric"] != AVERAGE]
    return f"{folded(f'<b>{profile.title}</b>', text)}\n\n{_chance(one_set, reader)}"


def _cells(shown: pd.DataFrame) -> tuple[list, list, list]:
    """The three columns of Table 1, as texts: right in % with its interval, P@k, the paper's %.

    Of fewer than ``FEW`` questions neither share is shown.
    """
    right, precise, printed = [], [], []
    for row in shown.itertuples():
        enough = row.n >= FEW
        value, low, high = (100 * x for x in (row.value, row.low, row.high))
        right.append(f"{value:.1f} ({low:.0f}–{high:.0f})" if enough else f"n = {row.n}: too few")
        precise.append(f"{row.p_at_5:.2f}" if enough and pd.notna(row.p_at_5) else None)
        printed.append(None if pd.isna(row.reported) else f"{100 * row.reported:.1f}")
    return right, precise, printed


def _arm(method: str, lam: float) -> str:
    """A row's name with its lambda: the controls are the paper's CHR with another mimic."""
    if method == "chr_given":
        return f"chr, λ = {lam:g}"
    return f"{method} (λ = {METHODS['chr'].lam:g})" if method.startswith("chr") else method


def _chance(shown: pd.DataFrame, reader: str) -> str:
    """Is the reader any better with the question's own passages than without reading?"""
    shares, better = [], []
    read = shown.loc[shown["answerer"] == reader, "dataset"].unique()
    for dataset, of_set in shown[shown["dataset"].isin(read)].groupby("dataset", sort=False):
        name, by_method = dataset.split()[-1], of_set.set_index("method")
        values = [by_method.loc[method, "value"] for method in ("standard", RANDOM, MAJORITY)]
        shares.append(f"{name} {', '.join(f'{100 * value:.1f}' for value in values)}")
        if by_method.loc["standard", "low"] > by_method.loc[MAJORITY, "value"]:
            better.append(name)
    where = f"only on {' and '.join(better)}" if better else "on none of these sets"
    return (
        f"The {reader}, right in % with the passages of `standard`, with random passages, and by "
        f"always the commonest letter: {'; '.join(shares)}. "
        f"It is clearly above the commonest letter {where}."
    )


def cost() -> str:
    """What each profile runs on, and what a model generated for a question, beside Table 3."""
    rows, spent, asked = [], {}, {"the original": {n: _asked(m) for n, m in METHODS.items()}}
    for name in (*PROFILES, "paper"):
        p = load_profile(name)
        size = f"{int(read('passages', name)[0]['passages'].sum()):,}" if name in PROFILES else None
        llm = p.llm.partition("=")[2] or f"replayed: {p.llm.rpartition('/')[2]}"
        rows.append((f"`{name}`", ", ".join(p.corpora), size, p.encoder, llm, p.needs))
        if name not in PROFILES:
            continue
        spent[name] = _wide(read("table3", name)[0])
        if p.llm.startswith("replay:"):  # text of the companion's own has no budget of tokens
            asked[f"{name}, Table 1"] = {n: _texts(m) for n, m in methods_of(p).items()}
        if p.generated:
            generated = methods_of(replace(p, **p.generated))
            also = "" if f"{name}, Table 1" in asked else " (and Table 1)"
            asked[f"{name}, generated{also}"] = {n: _asked(m) for n, m in generated.items()}
    head = ("profile", "passages", "how many", "encoder", "LLM", "needs")
    methods = list(dict.fromkeys(m for table in spent.values() for m in table.index))
    budgets = [(m, *(of.get(m) for of in asked.values())) for m in methods]
    lines = [(m, *_spent(m, list(spent.values()))) for m in methods]
    below = (
        markdown(("texts asked for × tokens at most", *asked), budgets),
        markdown(("calls; output tokens; × fewer than HyDE", "the paper", *spent), lines),
    )
    folded_tables = folded("What was asked for, and what it cost", "\n\n".join(below))
    return f"{markdown(head, rows)}\n\n{folded_tables}"


def _wide(table: pd.DataFrame) -> pd.DataFrame:
    """Table 3 with a row a method, as it is stored with a row a number."""
    wide, printed = (
        table.pivot(index="method", columns="metric", values=v) for v in ("value", "reported")
    )
    return (
        wide.join(printed.add_prefix("reported_"))
        .assign(n=table.groupby("method")["n"].first())
        .reindex(table["method"].unique())
    )


def _texts(method: Method) -> str | None:
    """How many texts a method asks an LLM for, in how many requests."""
    budget = method.budget()
    if budget is None:
        return None
    requests = len(budget.prompts)
    return f"{budget.texts}" + (f" ({requests} requests)" if requests > 1 else "")


def _asked(method: Method) -> str | None:
    """The same with the cap on the tokens of each text."""
    budget = method.budget()
    if budget is None:
        return None
    texts, space, requests = (_texts(method) or "").partition(" ")
    return f"{texts} × {budget.max_tokens:,}{space}{requests}"


def _spent(method: str, tables: list[pd.DataFrame]) -> list[str | None]:
    """The paper's calls, tokens and reduction, then each profile's, with n and how many failed."""
    own = [t.loc[method] if method in t.index else None for t in tables]
    printed = next(x for x in own if x is not None)
    cells = [_cost(printed, "reported_")]
    for x in own:
        failed = f", {x['failed']:.0f} failed" if x is not None and x["failed"] else ""
        cost = x is not None and f"{_cost(x)}, n = {x['n']:.0f}"
        cells.append(f"{cost}{failed}" if cost else None)
    return cells


def _cost(row: pd.Series, prefix: str = "") -> str | None:
    calls, *others = (row[prefix + c] for c in ("calls", "output_tokens", "token_reduction"))
    if pd.isna(calls):
        return None
    tokens, fewer = others
    return f"{calls:.1f}; {tokens:,.0f}; {fewer:.1f}".replace("nan", "–")


def notebooks() -> str:
    """Every notebook with what its title says; linked from a page in docs/."""
    import nbformat

    rows = []
    for path in sorted((paths.ROOT / "notebooks").glob("[0-9]*.ipynb")):
        title = nbformat.read(path, as_version=4).cells[0].source.splitlines()[0]
        rows.append((f"[`{path.stem}`](../notebooks/{path.name})", title.lstrip("# 0123456789.")))
    return markdown(("notebook", "what it shows"), rows)


def needs() -> str:
    """What a run at the paper's scale needs, as ``lib.cost.needs`` works it out; disk in all."""
    from lib.cost.needs import MODELS, page
    from lib.data.medrag import estimate

    sizes = [estimate(name) for name in load_profile("paper").corpora]
    table = read("needs", "scale")[0].set_index("what")["value"]
    parts = {
        "downloads": sum(s.download_gb for s in sizes),
        "vectors": sum(s.float16_gb for s in sizes),
        "texts": sum(s.rows for s in sizes) * table["bytes of a stored passage"] / 1e9,
    }
    parts = {what: round(size) for what, size in parts.items()}
    disk = f"{sum(parts.values())} GB ({', '.join(f'{k} {v}' for k, v in parts.items())})"
    weights = sum(2 * billions for billions, *_ in MODELS.values())
    first = f"**Disk in all**: {disk}, and {weights:.0f} GB for the weights of the four models."
    return f"{first}\n\n{page().strip()}"


BLOCKS: dict[str, Callable[[], str]] = {
    made.__name__: made
    for made in (
        answer,
        both_sides,
        tests,
        real,
        story,
        reading,
        table1,
        claims,
        contradiction,
        rag2,
        slhyde,
        lesson,
        audit,
        papers_found,
        papers,
        cost,
        needs,
        notebooks,
        faults,
    )
}
"""By the name in the pages' markers."""
