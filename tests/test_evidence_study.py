"""The contradiction study as the paper has it, small: the shipped profile on stand-ins in the
models' own form, leaflets as text and as PDF, killed while the answerers are asked, and resumed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import groupby

import numpy as np
import pandas as pd
import pytest

from lib.base import paths
from lib.base.files import atomic_write, read_jsonl
from lib.base.provenance import read_result
from lib.embed import HashEncoder, load_encoder
from lib.llm.prompts import load_prompt
from lib.profiles import load_profile
from lib.studies.contradiction import answers, study
from lib.studies.contradiction.evidence import HEADINGS
from lib.studies.contradiction.pools import CONDITIONS
from tests.rehearsal import stand_ins
from tests.rehearsal.run import _BUNDLED, Rehearsal, filled_in
from tests.rehearsal.server import LogServer, Scripted

HEADINGS_ASKED = 2
KILLED_AFTER = 12
"""Answers of the server; fewer than one model gives, more than are in flight."""

STUDY = """
import sys
from lib.embed import HashEncoder
from lib.profiles import load_profile
from lib.studies.contradiction import study
from lib.study import make

p = load_profile(sys.argv[1])
c = study.load(
    p, HashEncoder(), evidence=p.evidence["name"], model=p.evidence["nli"],
    answerers=p.evidence["answerers"], **study.settings_of(p)
)
make(study.TABLES, p, c)
make(study.ANSWERS, p, study.with_answers(c))
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """The shipped profile with stand-ins for all that the study needs, PubMed's replies kept."""
    made = Rehearsal(tmp_path_factory.mktemp("study"))
    with (
        LogServer(Scripted(pause=True), made.log) as server,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in made.environment().items():
            patch.setenv(name, value)
        stand_ins.leaflets(made.folder / "leaflets", HEADINGS_ASKED)
        stand_ins.pubmed(made.folder / "leaflets")
        atomic_write(made.profile, filled_in(made, server.url, _BUNDLED))
        yield made


def start(here) -> subprocess.Popen:
    """The study in a process of its own."""
    command = [sys.executable, "-c", STUDY, str(here.profile)]
    with open(here.folder / "said.txt", "w") as said:
        return subprocess.Popen(command, cwd=paths.ROOT, stderr=said, start_new_session=True)


def served(here) -> pd.DataFrame:
    return pd.DataFrame(read_jsonl(here.log) if here.log.exists() else [])


@pytest.fixture(scope="module")
def performed(here):
    """The study, killed once and resumed: how many answers were kept and served by then."""
    run = start(here)
    while len(served(here)) < KILLED_AFTER and run.poll() is None:
        time.sleep(0.01)
    assert run.poll() is None, (here.folder / "said.txt").read_text()
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    time.sleep(0.5)  # what the server still has of the killed run
    (recording,) = here.recordings
    kept, asked = len(recording.read_text().splitlines()), len(served(here))
    assert start(here).wait(timeout=600) == 0, (here.folder / "said.txt").read_text()
    return kept, asked


def test_killed_and_resumed_it_asks_no_recorded_question_twice(here, performed):
    kept, asked = performed
    log = served(here)
    assert 0 < kept <= asked < len(log)
    assert len(log) - asked == log["request"].nunique() - kept, "what was kept was not asked again"
    (recording,) = here.recordings
    assert len(recording.read_text().splitlines()) == log["request"].nunique()


def test_the_five_answerers_are_asked_one_after_the_other(here, performed):
    models = [name for name, _ in groupby(served(here)["model"])]
    specs = [one["llm"] for one in load_profile(str(here.profile)).evidence["answerers"]]
    asked_as = [spec.rpartition("openai:")[2].partition("@")[0] for spec in specs]
    assert models == asked_as and len(models) == 5
    table = read_result("contradiction_table2", load_profile(str(here.profile)).name)[0]
    papers = set(answers.reported("table2")["model"])
    assert set(table["answerer"]) == {answers.EXTRACT, *papers}
    own = table[(table["metric"] == "rouge1") & table["condition"].isin(CONDITIONS)]
    assert set(own["n"]) == {stand_ins.MEDICINES}
    assert set(own["answers"]) == {stand_ins.MEDICINES * HEADINGS_ASKED}, "text and PDF, all asked"


def test_abstracts_and_sentences_have_encoders_of_their_own(here, performed):
    p = load_profile(str(here.profile))
    encoders = [load_encoder(p.evidence[kind]) for kind in ("encoder", "sentence_encoder")]
    manifest = read_result("contradiction_table1", p.name)[1]
    assert manifest["encoder"] == encoders[0].fingerprint != manifest["sentence_encoder"]
    assert manifest["sentence_encoder"] == encoders[1].fingerprint != HashEncoder().fingerprint
    assert (
        manifest["encoder"].startswith("bge-small|") and "prompt 'Represent" in manifest["encoder"]
    )
    assert manifest["sentence_encoder"].startswith("specter|")
    assert "cls pooling|512 tokens|l2" in manifest["sentence_encoder"]
    asked = manifest["switches"]
    assert (asked["sentence_filter"], asked["theta"], asked["direction"], asked["top"]) == (
        "theta",
        0.75,
        "forward",
        1,
    )
    # S of Algorithm 2 and CNT of equations 10 to 12, by hand on the pool of one question.
    how = study.settings_of(p)
    pools = study.load(
        p,
        HashEncoder(),
        evidence=p.evidence["name"],
        model=p.evidence["nli"],
        answerers=[],
        **how,
    ).modelled
    qid, ids = next(iter(pools.ids_of.items()))
    texts = {i: pools.evidence[i].text for i in ids}
    query = encoders[0].encode([pools.needs[qid].question], "query", progress=False)[0]
    rows = dict(zip(ids, encoders[0].encode(list(texts.values()), "article", False), strict=True))
    years = {i: pools.evidence[i].year for i in ids}
    first, span = min(years.values()), max(years.values()) - min(years.values()) + 1e-5
    ranked = pools.ranked[pools.ranked["qid"] == qid].set_index("id")
    nli = study.load_backend(p.evidence["nli"])
    for a in ids[:3]:
        near = max(float(rows[a] @ rows[b]) for b in ids if b != a)
        mmr = 0.7 * float(query @ rows[a]) - 0.3 * near
        wanted = 0.7 * mmr + 0.3 * (years[a] - first) / span
        assert ranked.loc[a, "score"] == pytest.approx(wanted, abs=1e-5)
        peaks = [peak(texts[a], texts[b], encoders[1], nli) for b in ids if b != a]
        assert ranked.loc[a, "cnt"] == pytest.approx(np.mean(peaks), abs=1e-4)


def peak(a: str, b: str, encoder, nli) -> float:
    """Equation 11 of two abstracts, the sentences of the first as premises."""
    pairs = []
    for s in study.answers.sentences(a):
        for t in study.answers.sentences(b):
            u, v = encoder.encode([s, t], "article", progress=False)
            cosine = float(u @ v) / float(np.linalg.norm(u) * np.linalg.norm(v))
            if round(cosine, 6) >= 0.75:
                pairs.append((s, t))
    return max(nli.contradiction(pairs), default=0.0) if pairs else 0.0


def test_settings_are_the_profiles_then_the_callers_and_an_unknown_one_is_refused():
    usual, paper = study.settings_of(load_profile("mini")), study.settings_of(load_profile("paper"))
    assert usual == study.SETTINGS and usual is not study.SETTINGS
    assert paper["scoring"] | {"theta": 0.75, "direction": "forward"} == paper["scoring"]
    assert paper["ranking"] == {"mmr": "static", "temporal": "recency", "lam": 0.7, "alpha": 0.7}
    assert paper["measures"]["word2vec"] == {} and paper["selection"]["limit"] == 20
    assert study.settings_of(load_profile("paper"), scoring={"top": 3})["scoring"]["top"] == 3
    with pytest.raises(ValueError, match="scoring of .evidence. has no setting 'tehta'"):
        study.settings_of(load_profile("mini"), scoring={"tehta": 0.7})


def test_the_papers_prompt_is_ours_without_a_limit_of_words():
    ours, its = (load_prompt(name) for name in (answers.PROMPT, "evidence_answer_any_length"))
    assert ours.user == its.user and "at most 100 words" in ours.system
    assert ours.system.replace(", at most 100 words", "").casefold() == its.system.casefold()
    said = its.system.partition("exactly: ")[2]
    assert answers.kind_of_answer(said, f"{HEADINGS[1]}") == "insufficient"
    assert load_profile("paper").evidence["prompt"] == its.name
