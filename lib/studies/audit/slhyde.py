"""The derived numbers of SL-HyDE: averages over ten data sets and five tasks, relative gains."""

from __future__ import annotations

from collections.abc import Iterable

from lib.studies.audit.arithmetic import Range, change, exactly, mean
from lib.studies.audit.reported import Tables, family, holds

__all__ = ["CHECKS"]

_TASKS = {
    "Knowledge": ("MedExam", "DuBaike", "DXYDisease"),
    "Consultation": ("MedicalRetrieval", "CmedqaRetrieval", "DXYConsult"),
    "News": ("CovidRetrieval",),
    "Post": ("IIYiPost",),
    "Literature": ("CSLCite", "CSLRel"),
}
_SETS = [d for some in _TASKS.values() for d in some]
_WITH, _BASE = "with hypothetical documents", "base retrievers"
_RUN = {"2": ["part", "model"], "8": ["model"], "12": ["model"], "13": ["configuration", "method"]}
"""Tables with a column a data set, and what names a row; Tables 3 to 6 have a column a task."""


def _scores(t: Tables, n: str, by: str, keys: list[str]) -> dict[tuple[str, ...], dict[str, Range]]:
    """Every row of Table ``n``: its names, and its scores by data set or task."""
    name, rows = f"slhyde_table{n}", t.rows(f"slhyde_table{n}")
    scored = (r for r in rows if r["metric"] != "relative_improvement")
    names = dict.fromkeys(tuple(r[k] for k in keys) for r in scored)
    return {own: t.numbers(name, by, **dict(zip(keys, own, strict=True))) for own in names}


def _averages(t: Tables) -> Iterable[dict]:
    averages, tasks, by_set = [], [], {n: _scores(t, n, "dataset", k) for n, k in _RUN.items()}
    for n, rows in by_set.items():
        for names, row in rows.items():
            again = mean([x for d, x in row.items() if d != "Average"])
            averages.append((f"Table {n}, {', '.join(names)}", row["Average"], again))
    for n in "3456":
        for (model, method), row in _scores(t, n, "task", ["configuration", "method"]).items():
            label, weights = f"Table {n}, {model}, {method}", [len(d) for d in _TASKS.values()]
            again = mean([row[task] for task in _TASKS], weights)
            averages.append((label, row["Average(All)"], again))
            own = by_set["13" if n in "34" else "2"].get((model if n in "34" else _WITH, method))
            if own:
                tasks += [
                    (f"{label}, {task}", row[task], mean([own[d] for d in some]))
                    for task, some in _TASKS.items()
                ]
    yield from family(t, "slhyde.averages", averages)
    yield from family(t, "slhyde.tasks", tasks)


def _improvements(t: Tables) -> Iterable[dict]:
    members = []
    for n, by, model, method in (
        ("2", "dataset", "part", "model"),
        ("3", "task", "configuration", "method"),
        ("4", "task", "configuration", "method"),
        ("13", "dataset", "configuration", "method"),
    ):
        for r in t.rows(f"slhyde_table{n}", metric="relative_improvement"):
            keys = {model: r[model], by: r[by]}
            old, new, told = (
                t.number(f"slhyde_table{n}", **keys, **{method: m})
                for m in ("HyDE", "SL-HyDE", r[method])
            )
            members.append((f"Table {n}, {r[model]}, {r[by]}", told, change(old, new)))
    rows = {
        m: t.number("slhyde_table2", part=_WITH, model=m, dataset="Average")
        for m in ("SL-HyDE", "HyDE", "BGE(large)")
    }
    for m in ("HyDE", "BGE(large)"):
        members.append(
            (f"text, over {m}", t.said(f"slhyde.gain.{m}"), change(rows[m], rows["SL-HyDE"]))
        )
    yield from family(t, "slhyde.improvements", members)


def _best(t: Tables) -> Iterable[dict]:
    columns = {d: t.numbers("slhyde_table2", "model", part=_BASE, dataset=d) for d in _SETS}
    best = [max(c, key=lambda m, c=c: c[m].middle) for c in columns.values()]
    ids = [i for i in t.values("claims", "id") if i.startswith("slhyde.best.")]
    members = [(i.split(".")[-1], t.said(i), exactly(best.count(i.split(".")[-1]))) for i in ids]
    yield from family(t, "slhyde.best", members, spec=".0f")
    ours, hyde = (
        t.numbers("slhyde_table2", "dataset", part=_WITH, model=m) for m in ("SL-HyDE", "HyDE")
    )
    fell = t.rows("slhyde_table13", metric="relative_improvement")
    fell = [r["value"].startswith("-") for r in fell if r["dataset"] != "Average"]
    note = f"with other models (Table 13) lower on {sum(fell)} of {len(fell)}, as printed there"
    cases = {d: (f"{ours[d]} against {hyde[d]}", ours[d].may_exceed(hyde[d])) for d in _SETS}
    yield holds(t, "slhyde.every", cases, note=note)
    members = []
    for d in (*_SETS, "Average"):
        column = t.numbers("slhyde_table12", "model", dataset=d).values()
        members.append((d, t.said(f"slhyde.bold.{d}"), max(column, key=lambda x: x.middle)))
    yield from family(t, "slhyde.table12.bold", members)


CHECKS = [_averages, _improvements, _best]
