"""The tables of judged contradiction, kept as results of a profile. Labels are bundled, so every
profile can make them; only periods of real abstracts need the open data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from lib.base.downloads import load_registry
from lib.base.paths import DATA, RECORDINGS
from lib.base.provenance import make_or_reuse, read_result
from lib.data.judgments import JUDGMENTS, PAIR_JUDGMENTS, read_pair_judgments, verdicts
from lib.data.looks import note_look
from lib.datasets import GROUPS
from lib.embed import Encoder
from lib.index_build import files_of as files_of_corpora
from lib.limit import makes_real
from lib.open_retriever import open_retriever
from lib.profiles import Profile
from lib.report import nine_digits
from lib.studies.contradiction.study import BINS, PERIODS, reported
from lib.studies.evidence.load import files_of, load_evidence
from lib.studies.judged.contrast import contrast_values, filter_table
from lib.studies.judged.quality import PLANTS, pair_quality, read_plants
from lib.studies.judged.sample import ARMS, share_drawn
from lib.studies.judged.study import beside
from lib.studies.judged.tables import arms_table, by_period, reasons, shares

JUDGED_GROUPS = {"evidence-mini": "mini", "open": "near"}
"""Which judged group tells of the periods of which evidence."""


def judged_tables(profile: Profile, evidence: str, encoder: Encoder) -> dict[str, pd.DataFrame]:
    """What the judge says, by name; every table has the column ``contradiction``, "judged".

    ``contradiction_judge`` (is the judge an instrument?), ``contradiction_judged`` (how much
    contradiction there is), ``contradiction_reasons`` (why); for evidence-mini and open
    ``contradiction_periods``; and where a profile makes the real sample, ``contradiction_arms`` and
    ``contradiction_filter`` (see ``contrast``), from ``values_contradiction_arms``.
    """
    rows = read_pair_judgments()
    found = verdicts(rows)
    files = [path.relative_to(DATA).as_posix() for path in (PAIR_JUDGMENTS, PLANTS)]
    origin = {
        "code": ["lib.studies.judged"],
        "data": [*files, *files_of("evidence-mini")],
        "judged": True,
    }
    makers = {
        "contradiction_judge": lambda: pair_quality(rows, read_plants()),
        "contradiction_judged": lambda: shares(found),
        "contradiction_reasons": lambda: reasons(rows),
    }
    made = {name: _kept(make, name, profile, origin) for name, make in makers.items()}
    if group := JUDGED_GROUPS.get(evidence):
        origin["data"] = [*files, *files_of(evidence)]
        name = "contradiction_periods"
        made[name] = _kept(lambda: _periods(found, evidence, group), name, profile, origin)
    if makes_real(profile):
        made |= _contrast(found, profile, encoder, files)
    return made


def _kept(make: Callable[[], pd.DataFrame], name: str, profile: Profile, origin: Mapping) -> Any:
    return make_or_reuse(lambda: beside({"judged": make()}), name, profile.name, **origin)


def _contrast(
    found: Mapping, profile: Profile, encoder: Encoder, files: Sequence[str]
) -> dict[str, pd.DataFrame]:
    """``arms_table`` and ``filter_table``, from outcomes by question that are kept first."""
    recordings = [path.relative_to(DATA).as_posix() for path in RECORDINGS.glob("real-*.jsonl.gz")]
    sets = [name for group in GROUPS.values() for d in group for name in load_registry(f"{d}-")]
    judged = JUDGMENTS.relative_to(DATA).as_posix()
    origin = {
        "code": ["lib.studies.judged"],
        "data": sorted({*files, judged, *recordings, *sets, *files_of_corpora(profile.corpora)}),
        "encoder": encoder.fingerprint,
    }

    def looked_at() -> pd.DataFrame:
        outcomes = contrast_values(found, open_retriever(profile, encoder))
        asked = {key.removeprefix("real/") for key, *_ in found if key.startswith("real/")}
        note_look("contradiction, judged", "real", asked, profile.name, ARMS)
        return nine_digits(outcomes)

    values = make_or_reuse(
        looked_at, "values_contradiction_arms", profile.name, dear=True, **origin
    )
    makers = {"contradiction_arms": arms_table, "contradiction_filter": filter_table}
    return {
        name: _kept(lambda make=make: make(values), name, profile, origin)
        for name, make in makers.items()
    }


def figure2(periods: pd.DataFrame | None, evidence: str) -> pd.DataFrame:
    """What ``plot_periods`` draws: judged shares of evidence-mini and ``open``, and the paper's.

    ``periods`` are this profile's own ``contradiction_periods``, if it has any; others are the
    committed ones. The paper has no such share: beside them stands that of its documents with a
    modelled CNT of .6 or more. Columns: source, label, period, value, low, high, n.
    """
    labels = {
        "paper": "the paper: scores of .6 or more",
        "evidence-mini": "evidence-mini, judged",
        "open": "real abstracts, judged",
    }
    cells = reported("fig2_heatmap").rename(columns={"year_bin": "period"})
    n = cells.groupby("period")["value"].sum()
    share = cells[cells["cnt_bin"].isin(BINS[3:])].groupby("period")["value"].sum() / n
    paper = pd.DataFrame({"value": share, "n": n}).reindex(PERIODS).rename_axis("period")
    parts = [paper.reset_index().assign(source="paper")]
    for source, profile in (("evidence-mini", "mini"), ("open", "open")):
        own = periods
        if source != evidence:
            own = read_result("contradiction_periods", profile, committed=True)[0]
        parts.append(own.assign(source=source))
    table = pd.concat(parts, ignore_index=True)
    n = table[table["period"] != "all"].groupby("source")["n"].sum()
    labels = {source: f"{label}, n = {n[source]:,.0f}" for source, label in labels.items()}
    table["label"] = table["source"].map(labels)
    return table[["source", "label", "period", "value", "low", "high", "n"]]


def with_judgments(settings: Mapping) -> dict:
    """What a table of both studies depends on: the modelled one's settings and the judgments."""
    judgments = PAIR_JUDGMENTS.relative_to(DATA).as_posix()
    return dict(settings) | {
        "code": [*settings["code"], "lib.studies.judged"],
        "data": sorted({*settings["data"], judgments}),
    }


def _periods(found: Mapping, evidence: str, group: str) -> pd.DataFrame:
    """``by_period`` of these abstracts; those of ``open`` were drawn by period."""
    abstracts = load_evidence(evidence)
    drawn = share_drawn(abstracts) if group == "near" else None
    return by_period(found, {e.id: e.year for e in abstracts}, group, drawn)
