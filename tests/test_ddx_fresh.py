"""ddx-fresh: who describes, what is a target, and what may not be found. Nothing is searched."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace

import pytest

from lib.benchmarks import ddx_fresh, ddx_real, load_benchmark
from lib.benchmarks.base import Benchmark, name_words, shared_ngrams
from lib.data.passages import OPEN_CORPUS
from lib.embed import HashEncoder

GARD, PLUS, NINDS, GHR = (
    "2_GARD_QA",
    "4_MPlus_Health_Topics_QA",
    "6_NINDS_QA",
    ddx_real.HYPOTHESIS_SUBSET,
)


def passage(cui: str, subset: str, text: str, focus: str, synonyms=(), kind="information"):
    pid = f"medquad:{subset}/{cui}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"
    meta = {
        "cuis": [cui],
        "subset": subset,
        "focus": focus,
        "synonyms": list(synonyms),
        "question_type": kind,
        "doc": pid,
    }
    return SimpleNamespace(pid=pid, text=text, meta=meta)


def sentence(cui: str, subset: str) -> str:
    """Ten words, so three sequences of 8, each with the disease and the institute."""
    return f"A text that is on {cui} by {subset} and ends here."


COPY = "This very sentence has more than eight words and two institutes have all of them."


def corpus() -> list:
    """Nine diseases for ddx-fresh, two of ddx-real, and some that neither may have."""
    made = []
    for i in range(9):
        cui = f"C{i}"
        for subset in (GARD, PLUS, NINDS):
            made.append(passage(cui, subset, sentence(cui, subset), f"Disease number {i}"))
            made.append(passage(cui, subset, f"Cure: {subset} {i}.", f"N{i}", kind="treatment"))
    for i in range(2):
        for subset in (GHR, GARD):
            made.append(
                passage(f"G{i}", subset, sentence(f"G{i}", subset), f"known {i}", [f"K {i}"])
            )
    for subset in (GARD, PLUS):
        made.append(passage("COPIED", subset, COPY, "copied"))
        made.append(passage("CURED", subset, sentence("CURED", subset), "cured", kind="treatment"))
        made.append(passage("AGAIN", subset, sentence("AGAIN", subset), "k 1"))
    made.append(passage("ALONE", GARD, sentence("ALONE", GARD), "alone"))
    return made


@pytest.fixture
def fresh(own_folders, monkeypatch) -> Benchmark:
    monkeypatch.setattr(ddx_real, "load_passages", lambda name: iter(corpus()))
    return ddx_fresh.build(HashEncoder())


def test_one_institute_describes_and_the_others_are_targets(fresh):
    assert fresh.qids == tuple(f"C{i}" for i in range(9)) == fresh.test
    assert fresh.corpora == OPEN_CORPUS and not fresh.excluded_sources
    for cui, text in zip(fresh.qids, fresh.h_plus, strict=True):
        (subset,) = (s for s in (GARD, PLUS, NINDS) if text == sentence(cui, s))
        own = {p.pid for p in corpus() if p.meta["cuis"] == [cui]}
        institute = {pid for pid in own if pid.startswith(f"medquad:{subset}/")}
        assert fresh.excluded[cui] & own == institute and len(institute) == 2
        assert fresh.targets[cui] == own - institute
        assert (
            fresh.names[cui][0] == f"Disease number {cui[1:]}" and f"N{cui[1:]}" in fresh.names[cui]
        )
    assert len({text.split(" by ")[1] for text in fresh.h_plus}) > 1, "institutes take turns"


def test_the_set_and_its_blind_form_have_names_of_their_own(fresh):
    assert load_benchmark("ddx-fresh", HashEncoder()) == fresh
    b = load_benchmark("ddx-fresh-blind", HashEncoder())
    assert b.name == "ddx-fresh-blind" and b.targets == fresh.targets
    assert load_benchmark("ddx-real-blind", HashEncoder()).name == "ddx-real-blind"
    with pytest.raises(ValueError, match="ddx-fresh-blind"):
        load_benchmark("ddx-stale")


def test_what_is_left_out_is_counted(fresh):
    counts = fresh.counts
    assert counts["candidates"] == 12 and counts["described"] == 11
    assert counts["copied_left_out"] == 1 and counts["in_ddx_real_left_out"] == 1
    assert counts["diseases"] == 9 and counts["median_targets"] == 4
    assert sum(n for name, n in counts.items() if name.startswith("h_plus_from_")) == 9


def test_a_description_that_is_copied_or_a_form_gives_the_turn_to_another(own_folders, monkeypatch):
    copied = passage("X", GARD, COPY, "x")
    own = passage("X", PLUS, "A text of its own that nobody has ever had.", "x")
    form = passage("Y", GARD, "A form that somebody filled in.", "y", kind="symptoms")
    plain = passage("Y", PLUS, "Plain words about it.", "y")
    copy = passage("X", PLUS, COPY, "x", kind="treatment")
    read = [*corpus(), copied, own, copy, form, plain]
    monkeypatch.setattr(ddx_real, "load_passages", lambda name: iter(read))
    b = ddx_fresh.build(HashEncoder())
    on_x = {copied.pid, own.pid, copy.pid}
    assert "X" in b.qids and b.excluded["X"] & on_x == {own.pid, copy.pid}
    assert b.h_plus[b.qids.index("X")] == own.text and b.targets["X"] == {copied.pid}
    assert b.h_plus[b.qids.index("Y")] == plain.text and b.targets["Y"] == {form.pid}


def test_doubtful_are_those_whose_targets_have_another_name(own_folders, monkeypatch):
    other = [
        passage("D", GARD, sentence("D", GARD), "Loin pain hematuria"),
        passage("D", PLUS, sentence("D", PLUS), "Hematuria"),
        passage("E", GARD, sentence("E", GARD), "Injuries", ["Harm"]),
        passage("E", PLUS, sentence("E", PLUS), "harm", ["x"]),
    ]
    read = [*corpus(), *other]
    monkeypatch.setattr(ddx_real, "load_passages", lambda name: iter(read))
    b = ddx_fresh.build(HashEncoder())
    assert b.doubtful == {"D"} and b.counts["doubtful"] == 1


def test_what_h_plus_and_any_mimic_were_taken_from_may_not_be_found(fresh, monkeypatch):
    """The set as it is made, against the same without the passages behind the mimics."""
    apart_from_mimics = ddx_fresh.apart_from_mimics
    monkeypatch.setattr(ddx_fresh, "apart_from_mimics", lambda benchmark: benchmark)
    plain = ddx_fresh.build(HashEncoder())
    assert apart_from_mimics(plain) == fresh
    disease_of = dict(zip(fresh.h_plus, fresh.qids, strict=True))
    assert set(fresh.h_minus) == {"nearest", "middle", "by name"}
    for i, cui in enumerate(fresh.qids):
        assert len(fresh.several[i]) == 5
        nearest = disease_of[fresh.h_minus["nearest"][i]]
        assert nearest == disease_of[fresh.several[i][0]] != cui
        assert fresh.mimics[cui] == fresh.targets[nearest]
        shown = {disease_of[texts[i]] for texts in fresh.h_minus.values()}
        shown |= {cui, *(disease_of[text] for text in fresh.several[i])}
        assert fresh.excluded[cui] == {pid for other in shown for pid in plain.excluded[other]}
        assert plain.excluded[cui] < fresh.excluded[cui]
        assert not fresh.excluded[cui] & (fresh.targets[cui] | fresh.mimics[cui])


def test_a_target_may_not_be_excluded():
    with pytest.raises(ValueError, match="p1 is a target of q1 and excluded"):
        Benchmark(
            name="made-up",
            title="made up",
            corpora=("ddx-mini",),
            qids=("q1",),
            questions=("?",),
            h_plus=("text",),
            h_minus={},
            targets={"q1": frozenset({"p1", "p2"})},
            mimics={},
            excluded={"q1": frozenset({"p1"})},
        )


@pytest.mark.mirror
def test_the_real_set_is_fresh(mirror, own_folders, monkeypatch):
    read = list(ddx_real.load_passages("medquad"))
    monkeypatch.setattr(ddx_real, "load_passages", lambda name: iter(read))
    known, b = ddx_real.build(HashEncoder()), load_benchmark("ddx-fresh", HashEncoder())
    assert b.counts["candidates"] == 237 and len(b.qids) > 160 and not b.dev
    # No disease of ddx-real, by concept or by name, and no text of its institute.
    assert not set(b.qids) & set(known.qids)
    titles = {name_words(names[0]) for names in known.names.values()}
    for names in b.names.values():
        assert not titles & set(map(name_words, names))
    passages = {p.pid: p for p in read}
    source = f"medquad:{GHR}/"
    assert not any(text in known.h_plus for text in b.h_plus)
    for cui, text in zip(b.qids, b.h_plus, strict=True):
        own = {p.pid for p in read if p.meta["cuis"][:1] == [cui]}
        assert b.targets[cui] | (b.excluded[cui] & own) == own
        assert not b.targets[cui] & b.excluded[cui]
        assert not any(pid.startswith(source) for pid in own)
        (institute,) = {passages[pid].meta["subset"] for pid in b.excluded[cui] & own}
        assert institute not in {passages[pid].meta["subset"] for pid in b.targets[cui]}
        texts = [passages[pid].text for pid in b.targets[cui]]
        assert shared_ngrams(text, texts) <= ddx_real.COPIED
        # H+ is from its own institute's passages, which keep their order.
        assert text[:60] in " ".join(p.text for p in read if p.pid in b.excluded[cui] & own)
    shares = [n for name, n in b.counts.items() if name.startswith("h_plus_from_")]
    assert sum(shares) == len(b.qids) and max(shares) < len(b.qids) / 3
