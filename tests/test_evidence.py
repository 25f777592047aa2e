"""The evidence of the contradiction study: the bundled set, real abstracts, folders of leaflets."""

from __future__ import annotations

from collections import Counter

import pytest

from lib.base.files import read_jsonl
from lib.base.paths import DATA
from lib.benchmarks.base import ngrams
from lib.profiles import load_profile
from lib.studies.contradiction import evidence, pubmed
from lib.studies.contradiction.evidence import HEADINGS, UNKNOWN

FOLDER = DATA / "evidence-mini"
LABELS = ("contradiction", "entailment", "neutral")


def read(name: str) -> list[dict]:
    """Rows of one file of evidence-mini."""
    return list(read_jsonl(FOLDER / f"{name}.jsonl"))


def test_evidence_mini_is_loaded_whole_and_fit_to_be_measured_on():
    found, needs = evidence.load_evidence("evidence-mini"), evidence.load_needs("evidence-mini")
    assert [d.id for d in found] == sorted(d["id"] for d in read("abstracts")) and len(found) == 174
    medicines = {d.medicine for d in found}
    asked = {(need.medicine, need.heading): need for need in needs}
    assert asked.keys() == {(m, h) for m in medicines for h in HEADINGS} and len(needs) == 72
    for (medicine, heading), need in asked.items():
        assert need.question.lower() == HEADINGS[heading].format(medicine).lower()
        assert 60 <= len(need.answer.split()) <= 120, need.qid
    owner: dict[tuple, str] = {}
    for d in found:
        assert 120 <= len(d.text.split()) <= 200 and 1975 <= d.year <= 2025, d.id
        assert d.meta["stance"] in ("for", "against", "mixed", "background")
        assert {owner.setdefault(gram, d.id) for gram in ngrams(d.text)} == {d.id}, "retold twice"


def test_its_pairs_stand_in_their_abstracts_and_its_labels_are_what_both_readers_say():
    abstracts = {d["id"]: d for d in read("abstracts")}
    pairs, labels = read("pairs"), read("labels")
    for pair in pairs:
        a, b = abstracts[pair["a_id"]], abstracts[pair["b_id"]]
        assert pair["a"] in a["text"] and pair["b"] in b["text"], pair["pid"]
        assert a["id"] != b["id"] and a["medicine"] == b["medicine"]
    assert [row["pid"] for row in labels] == [pair["pid"] for pair in pairs]
    for row in labels:
        assert {row["first"], row["second"]} <= set(LABELS)
        assert row["label"] == (row["first"] if row["first"] == row["second"] else "")
    card = " ".join((FOLDER / "README.md").read_text(encoding="utf-8").split())
    counts = Counter(row["label"] for row in labels)
    assert "(contradiction {}, entailment {}, neutral {})".format(*map(counts.get, LABELS)) in card


def leaflets(folder, *names: str) -> str:
    for name in names:
        text = f"Why am I using {name}?\nIt treats HIV.\nHow do I use {name}?\nTwice a day.\n"
        (folder / f"{name}.txt").write_text(text)
    (folder / "old.txt").write_text("What Abacavir is used for\nIt treats HIV.\n")
    return f"tga:{folder}"


def test_a_folder_of_leaflets_is_a_set_of_needs_and_an_old_format_is_left_out(
    tmp_path, monkeypatch, capsys
):
    name = leaflets(tmp_path, "abacavir", "pfizer")
    needs = evidence.load_needs(name)
    assert [(n.medicine, n.heading, n.answer) for n in needs[:2]] == [
        ("abacavir", 1, "It treats HIV."),
        ("abacavir", 4, "Twice a day."),
    ]
    told = capsys.readouterr().err
    assert "1 of 3 leaflets are left out: old.txt; the first because old: found no heading" in told
    read_from = [path.rpartition("/")[2] for path in evidence.files_of(name)]
    assert read_from == ["abacavir.txt", "old.txt", "pfizer.txt"]

    class Client:
        counts = Counter(searches=2)

    asked = []
    monkeypatch.setattr(pubmed, "PubMed", lambda email: Client())
    monkeypatch.setattr(pubmed, "gather", lambda _, need, queries: asked.append(need.qid) or [])
    assert pubmed.evidence_for(needs) == []
    assert asked == ["abacavir-1", "abacavir-4"], "a maker is no medicine"
    told = capsys.readouterr().err
    assert "2 of 4 questions are left out: pfizer-1, pfizer-4; the first because" in told
    assert "PubMed: {'searches': 2}" in told


def test_what_there_is_not_is_said(tmp_path):
    leaflets(tmp_path)
    wrong = {
        "mini": (evidence.load_evidence, ValueError, "no evidence 'mini'; there are: evidence-mi"),
        "tga:data/none": (
            evidence.load_needs,
            FileNotFoundError,
            "[*].txt or [*].pdf into data/none",
        ),
        f"tga:{tmp_path}": (evidence.load_needs, ValueError, "none of 1 leaflets can be read; the"),
    }
    for name, (load, error, message) in wrong.items():
        with pytest.raises(error, match=message):
            load(name)
    names = [load_profile(name).evidence["name"] for name in ("mini", "open", "paper")]
    assert names == ["evidence-mini", "open", "tga:data/leaflets"]


@pytest.mark.mirror
def test_the_open_evidence_is_dated_real_abstracts(mirror):
    found = evidence.load_evidence("open")
    by = Counter(d.source for d in found)
    assert by == {"PubMedQA": 942, "Evidence Inference": 479}
    years = {s: sorted(d.year for d in found if d.source == s) for s in by}
    assert (years["PubMedQA"][0], years["PubMedQA"][-1]) == (1989, 2017)
    assert (years["Evidence Inference"][0], years["Evidence Inference"][-1]) == (2004, 2018)
    assert {d.citations for d in found} == {UNKNOWN} and len({d.id for d in found}) == 1421
    assert all(len(d.text.split()) > 15 and d.title and "<" not in d.title for d in found)
    effects = [e for d in found for e in d.meta.get("effects", [])]
    assert {e["effect"] for e in effects} == set(evidence.DIRECTIONS.values())
    asked = evidence.load_needs("open")
    assert [n.qid for n in asked] == [d.id for d in found]
    for d in found[-3:]:
        assert d.text.endswith(d.meta["conclusion"])
