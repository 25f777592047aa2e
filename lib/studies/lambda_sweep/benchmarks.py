"""The lambda study of a profile: each of its benchmarks, with what dev questions chose for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from lib.benchmarks import load_benchmark
from lib.embed import Encoder
from lib.open_retriever import retriever_for
from lib.profiles import Profile
from lib.studies.lambda_sweep.reading import reading_results
from lib.studies.lambda_sweep.study import Study, open_study
from lib.studies.lambda_sweep.tables import study_results


@dataclass
class Benchmarks:
    """A profile's benchmarks, opened and measured when they are first asked for.

    ``progress`` shows a bar while one is measured, which takes minutes on the open corpora.
    """

    profile: Profile
    encoder: Encoder
    progress: bool = False
    _studies: dict = field(default_factory=dict, repr=False)
    _results: dict = field(default_factory=dict, repr=False)

    def study(self, name: str) -> Study:
        """The benchmark of that name on the passages it is searched in."""
        if name not in self._studies:
            benchmark = load_benchmark(name, self.encoder)
            retriever = retriever_for(benchmark, self.profile, self.encoder)
            study = open_study(benchmark, retriever, self.profile.k, self.profile.limit)
            self._studies[name] = study
        return self._studies[name]

    def results(self, name: str) -> dict:
        """All tables of a benchmark (see ``study_results``); what is stored and holds is reused."""
        if name not in self._results:
            study = self.study(name)
            chosen_on = study.benchmark.chosen_on
            elsewhere = self.results(chosen_on)["dev"] if chosen_on else None
            self._results[name] = study_results(
                study, self.profile, elsewhere, progress=self.progress
            )
        return self._results[name]

    def reading(self, name: str) -> dict:
        """What the reader without an LLM makes of a benchmark's diseases."""
        # Options have names, also where the texts have none.
        named = self.study(name.removesuffix("-blind")).benchmark
        return reading_results(self.study(name), self.profile, self.results(name)["dev"], named)
