"""The generated blocks of README.md, each a function that reads committed results and no other."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from lib import paths
from lib.pages.committed import PROFILES, markdown, read, whole
from lib.profiles import Profile, load_profile

__all__ = ["BLOCKS"]

CLAIMS = (
    ("mini", "claims"), ("mini", "ddx_mini_claims"), ("open", "claims"), ("open", "bioasq_claims"),
    ("open", "ddx_real_claims"), ("open", "ddx_real_reading_claims"),
)  # fmt: skip
VERDICTS = ("SUPPORTED", "AGAINST", "INCONCLUSIVE")


def _between(value: float, low: float, high: float, digits: int = 3, sign: str = "") -> str:
    return f"{value:{sign}.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"


def story() -> str:
    """ddx-real on ``open``: what each way to search retrieves, and what is answered from it."""
    curves, _ = read("ddx_real_lambda", "open")
    told, behind = read("ddx_real_reading_table", "open")
    claims, _ = read("ddx_real_reading_claims", "open")
    star, rows = behind["star"], []
    ways = [("random passages", "none", "random passages", 0.0, "random passages"),
            ("the question alone", "none", "question alone", 0.0, "question, dense"),
            ("H+ alone (λ = 0)", "nearest", "full search", 0.0, "H+ alone")]  # fmt: skip
    said = {star: "chosen on dev", 1.0: "the paper's"}
    for lam in sorted({star, 0.4, 1.0}):
        note = f" ({said[lam]})" if lam in said else ""
        arm = f"contrast, λ = {lam:g}"
        ways.append((arm + note, "nearest", "full search", lam, arm))
    arm = f"matched rotation, λ = {star:g}"
    ways.append((f"{arm}: the same turn, a wrong mimic", "nearest", "matched rotation", star, arm))
    arm = "maximum over 5 mimics, λ = 0.5"
    ways.append((arm, "5 nearest", "maximum over mimics", 0.5, arm))
    for label, hypotheses, mode, lam, arm in ways:
        same = (curves["hypotheses"] == hypotheses) & (curves["mode"] == mode)
        (own,) = curves[same & (curves["lambda"].round(6) == lam)].to_dict("records")
        (answer,) = told[told["arm"] == arm].to_dict("records")
        found = _between(own["p_at_5"], own["p_at_5_low"], own["p_at_5_high"])
        shares = (f"{own[c]:.3f}" for c in ("contamination_at_5", "neither_at_5"))
        rows.append((label, found, *shares, _between(*(answer[c] for c in (
            "accuracy", "low", "high")))))  # fmt: skip
    head = ("searched with", f"P@{behind['k']}", "on the mimic", "on neither", "answers right")
    tests = claims[claims["claim"].str.endswith("> H+ alone")].to_dict("records")
    lines = [f"- {_claim(row)}" for row in tests]
    n = f"{int(told['n'].iloc[0])} diseases, 95 % intervals. Answers, paired on the same diseases:"
    return "\n\n".join((markdown(head, rows), n, "\n".join(lines)))


def _claim(row: dict) -> str:
    where = ", ".join(str(row[c]) for c in ("dataset", "answerer") if c in row)
    difference = _between(row["difference"], row["low"], row["high"], sign="+")
    claim = row["claim"] + (f" ({where})" if where else "")
    return f"{claim}: {difference}, n = {row['n']}, {row['verdict']}"


def table1() -> str:
    """Per profile: method x question set, the reader without an LLM, beside the paper's Table 1."""
    parts = [_table1(load_profile(name)) for name in PROFILES]
    paper = load_profile("paper")
    return "\n\n".join([*parts, f"**{paper.title}**: NOT RUN. It needs: {paper.needs}."])


def _table1(profile: Profile) -> str:
    table, behind = read("table1", profile.name)
    k, lam = behind["k"], behind["lam"]
    reader = next(a["name"] for a in profile.answerers if a["kind"] == "evidence")
    shown = table[(table["metric"] == "accuracy") & table["answerer"].isin([reader, "no reader"])]
    shown = shown.merge(read("retrieval", profile.name)[0][["dataset", "method", "p_at_5"]], "left")
    shares = (100 * shown[["value", "low", "high"]]).itertuples(index=False)
    shown["right, %"] = [f"{value:.1f} ({low:.0f}–{high:.0f})" for value, low, high in shares]
    shown["paper, %"] = [None if pd.isna(x) else f"{100 * x:.1f}" for x in shown["reported"]]
    shown[f"P@{k}"] = [None if pd.isna(x) else f"{x:.2f}" for x in shown["p_at_5"]]
    sets, heads, rows = shown["dataset"].unique(), ("right, %", f"P@{k}", "paper, %"), []
    for method, own in shown.groupby("method", sort=False):
        n = " / ".join(f"{x:,}" for x in own["n"].unique())
        at = own.set_index("dataset").reindex(sets)
        verdict = " / ".join(own["verdict"].dropna().unique())
        rows.append((method, n, *at[list(heads)].to_numpy().ravel(), verdict))
    named = [f"{d.split()[-1]}: {h}" if h == heads[0] else h for d in sets for h in heads]
    text = markdown(("method", "n", *named, "verdict"), rows)
    note = f"{reader}; chr is λ = 1 as in the paper, the chosen λ is {lam:g}"
    return f"**{profile.title}** ({note})\n\n{text}"


def claims() -> str:
    """How many claims are clear, by result file; those that are, one line each."""
    counts, clear = [], []
    for profile, name in CLAIMS:
        table, _ = read(name, profile)
        numbers = table["verdict"].value_counts()
        counts.append((f"`{profile}/{name}`", *(numbers.get(v, 0) for v in VERDICTS)))
        own = table[table["verdict"] != "INCONCLUSIVE"].to_dict("records")
        clear += [f"- `{profile}/{name}`: {_claim(row)}" for row in own]
    listed = _folded(f"The {len(clear)} clear ones", "\n".join(clear))
    return f"{markdown(('claims', *VERDICTS), counts)}\n\n{listed}"


def audit() -> str:
    """What the papers' printed numbers say of each other: verdicts, and what cannot be."""
    table, _ = read("audit")
    verdicts = ("IMPOSSIBLE", "IN TENSION", "CONSISTENT")
    rows = [(paper, *((own["verdict"] == v).sum() for v in verdicts))
            for paper, own in table.groupby("paper", sort=False)]  # fmt: skip
    wrong = table[table["verdict"] == "IMPOSSIBLE"].to_dict("records")
    lines = "\n".join(
        f"- {r['paper']}, {r['where']}: {r['claim']}. Printed: {r['printed']}; "
        f"recomputed: {r['recomputed']}" for r in wrong
    )  # fmt: skip
    listed = _folded(f"The {len(wrong)} that no values behind the printed ones satisfy", lines)
    return f"{markdown(('paper', *verdicts), rows)}\n\n{listed}"


def cost() -> str:
    """What each profile runs on, and what a model generated for a question, beside Table 3."""
    rows, columns = [], {}
    for name in (*PROFILES, "paper"):
        p = load_profile(name)
        size = f"{int(read('passages', name)[0]['passages'].sum()):,}" if name in PROFILES else None
        llm = p.llm.partition("=")[2] or f"replayed: {p.llm.rpartition('/')[2]}"
        rows.append((f"`{name}`", ", ".join(p.corpora), size, p.encoder, llm, p.needs))
        if name in PROFILES:
            columns[name] = read("table3", name)[0].set_index("method")
    head = ("profile", "passages", "how many", "encoder", "LLM", "needs")
    calls, tokens = "calls", "output_tokens"
    lines = []
    for method in dict.fromkeys(m for table in columns.values() for m in table.index):
        own = [t.loc[method] if method in t.index else None for t in columns.values()]
        printed = next(x for x in own if x is not None)
        cells = [_cost(printed["reported_calls"], printed["reported_output_tokens"])]
        cells += [None if x is None else f"{_cost(x[calls], x[tokens])}, n = {x['n']:.0f}"
                  for x in own]  # fmt: skip
        lines.append((method, *cells))
    spent = ("calls and output tokens a question", "the paper", *columns)
    return f"{markdown(head, rows)}\n\n{markdown(spent, lines)}"


def _cost(calls: float, tokens: float) -> str | None:
    return None if pd.isna(calls) else f"{calls:.1f}; {tokens:,.0f}".replace("nan", "–")


def notebooks() -> str:
    """Every notebook with what its title says."""
    import nbformat

    rows = []
    for path in sorted((paths.ROOT / "notebooks").glob("[0-9]*.ipynb")):
        title = nbformat.read(path, as_version=4).cells[0].source.splitlines()[0]
        rows.append((f"[`{path.stem}`](notebooks/{path.name})", title.lstrip("# 0123456789.")))
    return markdown(("notebook", "what it shows"), rows)


def needs() -> str:
    """What a run at the paper's scale needs, as ``lib.scale.needs`` works it out."""
    from lib.scale.needs import page

    whole("needs", "scale")
    return _folded("What a run at the paper's scale needs, worked out", page().strip())


BLOCKS: dict[str, Callable[[], str]] = {
    f.__name__: f for f in (story, table1, claims, audit, cost, needs, notebooks)
}
"""By the name in the README's markers."""
