"""Is the finding the encoder's or the rule's? The same arms on BioASQ's own snippets, encoder by
encoder.

BioASQ's labels are complete, so nothing has to be judged: the 21,231 snippets are embedded by
another encoder, and the texts of the real sample searched there.
"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from lib.data.real import Split, load_real
from lib.profiles import Profile
from lib.search.embed import load_encoder
from lib.studies.real.arms import arms_of
from lib.studies.real.measures import values_of
from lib.studies.real.study import experts_passages, recorded, retriever_for
from lib.studies.real.written import runs_of, written_for

__all__ = ["bioasq_values"]


def bioasq_values(profile: Profile, encoder: str, split: Split, chosen: float) -> pd.DataFrame:
    """Outcomes of every arm on BioASQ's snippets alone (see ``measures.values_of``).

    ``chosen`` is the lambda that dev chose with the profile's own encoder: nothing is tuned anew.
    CSQE and ThinkQE are left out: their requests hold what the profile's own encoder found, and
    nobody wrote for what another one finds.
    """
    alone = replace(profile, corpora=("bioasq",), limit=0)
    retriever = retriever_for(alone, load_encoder(encoder))
    questions = [q for q in load_real(split) if q.dataset == "bioasq"]
    written = written_for(questions, recorded(), retriever)
    arms = {"exams": [], "bioasq": arms_of(chosen)}
    runs = runs_of(questions, written, arms, retriever)
    return values_of(questions, runs, {}, experts_passages(retriever.store)).assign(encoder=encoder)
