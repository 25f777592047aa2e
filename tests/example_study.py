"""Does contrast take away the mimic's passages, or the target's too? A whole study in one file.

It asks the bundled diseases. To try it, copy it to ``lib/studies/``: ``make verify`` and
``make figures`` find it there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from lib.benchmarks import load_benchmark
from lib.benchmarks.base import Benchmark
from lib.embed import load_encoder
from lib.open_retriever import retriever_for
from lib.plots.primitives import plot_curves
from lib.profiles import Profile
from lib.query_spec import Hypotheses, SearchSpec, Text
from lib.run import Retriever
from lib.stats import measure
from lib.study import Arm, Found, Study, means, search_and_measure

LAMBDAS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
METRICS = {"p_at_5": "on the target", "mimic_at_5": "on the mimic"}


@dataclass(frozen=True)
class Collection:
    """The questions, what was written for each, and where it is searched."""

    benchmark: Benchmark
    retriever: Retriever
    hypotheses: Mapping[str, Hypotheses]

    @property
    def qids(self) -> Sequence[str]:
        return self.benchmark.test

    @property
    def data(self) -> Sequence[str]:
        return self.benchmark.files


def load(profile: Profile) -> Collection:
    """The bundled diseases with H+ and the nearest mimic."""
    encoder = load_encoder(profile.encoder, **profile.encoder_options)
    benchmark = load_benchmark("ddx-mini", encoder)
    pairs = zip(benchmark.h_plus, benchmark.h_minus["nearest"], strict=True)
    written = [
        Hypotheses((Text(plus, role="target"), Text(minus, role="mimic"))) for plus, minus in pairs
    ]
    hypotheses = dict(zip(benchmark.qids, written, strict=True))
    return Collection(benchmark, retriever_for(benchmark, profile, encoder), hypotheses)


def arms(collection: Collection) -> list[Arm]:
    """CHR at each lambda."""
    made = []
    for lam in LAMBDAS:

        def request(qid: str, draw: int, lam: float = lam) -> Hypotheses:
            texts = collection.hypotheses[qid].texts
            return Hypotheses(texts, SearchSpec(lam=lam), qid=qid)

        made.append(Arm(f"{lam:g}", request))
    return made


def outcomes(collection: Collection, found: Found) -> pd.DataFrame:
    """P@5 and the share of the five that is on the mimic alone, by question."""
    b = collection.benchmark
    targets = {qid: b.targets[qid] for qid in collection.qids}
    return measure(found, targets, b.mimics, k=5)[[*METRICS]]


def follow(collection: Collection, values: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Means with their intervals, by lambda."""
    return {"swap": means(values.assign(dataset="ddx-mini"))}


def draw(tables: Mapping[str, pd.DataFrame]):
    """Both shares over lambda."""
    rows = tables["swap"].assign(study="ddx-mini")
    rows["family"] = rows["metric"].map(METRICS)
    rows["lambda"] = rows["arm"].astype(float)
    figure = plot_curves(rows, "What contrast takes away", ylabel="share of the five")
    return figure, rows


STUDY = Study(
    name="what contrast takes",
    code=__name__,
    load=load,
    values={"values_swap": search_and_measure(arms, outcomes, depth=5)},
    tables=("swap",),
    follow=follow,
)
