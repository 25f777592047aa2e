"""Leaflets: the six headings of a TGA leaflet however they are printed, and six real FDA labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.studies.contradiction.evidence import (
    HEADINGS,
    Need,
    files_of,
    load_needs,
    read_cmi,
    read_label,
)
from tests.rehearsal.stand_ins import pdf

BODIES = {
    n: f"Answer {n} about the tablets.\nSee Section {n % 6 + 1}.\n\n" + "More text. " * 12
    for n in HEADINGS
}


def cmi(medicine: str = "ABACAVIR", number: str = "{}. ", change=lambda heading: heading) -> str:
    """A leaflet's text: a summary, a table of contents, the full text, and product details."""
    heads = {n: number.format(n) + change(q.format(medicine)) for n, q in HEADINGS.items()}
    summary = [
        f"{heads[n]}\nShort. For more information, see Section {n}. {HEADINGS[n]}\n"
        "in the full CMI.\n"
        for n in HEADINGS
    ]
    full = [f"{heads[n]}\n\n{BODIES[n]}\n" for n in HEADINGS]
    return "\n".join(
        [
            "Consumer Medicine Information (CMI) summary",
            *summary,
            "FULL CMI",
            *heads.values(),
            "7. Product details",
            *full,
            "7. Product details\nEach tablet is white.\nMade by somebody.",
        ]
    )


def expected(medicine: str) -> list[Need]:
    return [
        Need(f"x-{n}", medicine, n, q.format(medicine), " ".join(BODIES[n].split()))
        for n, q in HEADINGS.items()
    ]


@pytest.mark.parametrize(
    "number, change",
    [
        ("{}. ", str),
        ("{}) ", str.upper),
        ("", lambda h: h.rstrip("?")),
        ("SECTION {}. ", lambda h: h.lower() + "  "),
        ("• ", lambda h: h.replace(" ABACAVIR", "\nABACAVIR")),
        ("", lambda h: h.replace(" with ABACAVIR", "").replace("do I use", "will I be given")),
        ("{} ", lambda h: h.replace(" of ABACAVIR", "").replace("while using", "during")),
        ("", lambda h: h.replace("Are there any", "What are the possible")),
    ],
)
def test_headings_may_be_numbered_shouted_wrapped_or_reworded(number, change):
    assert read_cmi(cmi(number=number, change=change), "x", "ABACAVIR") == expected("ABACAVIR")


@pytest.mark.parametrize("medicine", ["APO-Abacavir 300 mg", "Dr. Reddy's Insulin 2.5"])
def test_the_name_is_read_from_the_first_heading(medicine):
    assert read_cmi(cmi(medicine), "x") == expected(medicine)


@settings(deadline=None)
@given(st.permutations(list(HEADINGS)), st.integers(0, 6))
def test_a_leaflet_gives_what_it_has_in_the_order_of_the_headings(order, count):
    text = "\n".join(f"{HEADINGS[n].format('X')}\n{BODIES[n]}" for n in order[:count])
    if count:
        found = read_cmi(text, "x", "X")
        assert found == [need for need in expected("X") if need.heading in order[:count]]
    else:
        with pytest.raises(ValueError, match="x: found no heading of the six"):
            read_cmi(text, "x", "X")


def test_prose_that_only_mentions_a_heading_stays_in_its_answer_and_the_longest_text_wins():
    text = (
        "1. Why am I using X?\nFor pain. Ask: how do I use it, and why am I using X? Doctors\n"
        "know.\nWhat should I know before surgery? is another matter.\n"
        "How do I use it, you wonder; ask there.\nWhy am I using X?\nShort."
    )
    (need,) = read_cmi(text, "x")
    assert need.heading == 1 and need.answer.endswith("ask there.")
    # A heading without a mark does not swallow the next.
    (need,) = read_cmi("Why am I using X\n2. How do I use X?\nWith water.", "x")
    assert (need.heading, need.answer, need.medicine) == (4, "With water.", "X")
    with pytest.raises(ValueError, match="x: found no name of the medicine; pass medicine="):
        read_cmi("What if I am taking other medicines?\nSay so.", "x")


# labels ------------------------------------------------------------------------------------------


def section(code: str, title: str, text: str, *inner: str) -> str:
    parts = "".join(f"<component>{s}</component>" for s in inner)
    return (
        f'<section><code code="{code}"/>{title and f"<title>{title}</title>"}'
        f"{text and f'<text>{text}</text>'}{parts}</section>"
    )


def label(*sections: str, moieties=("ASPIRIN", "ASPIRIN")) -> bytes:
    names = "".join(
        f"<activeMoiety><activeMoiety><name>{m}</name></activeMoiety></activeMoiety>"
        for m in moieties
    )
    body = "".join(f"<component>{s}</component>" for s in sections)
    return (
        f'<document xmlns="urn:hl7-org:v3">{names}<component><structuredBody>{body}'
        "</structuredBody></component></document>"
    ).encode()


def test_coded_sections_go_to_their_heading_and_uncoded_ones_stay_with_the_outer():
    data = label(
        section("34089-3", "DESCRIPTION", "White."),
        section(
            "34071-1",
            "WARNINGS",
            "Danger.",
            section("50570-1", "Do not use", "after surgery"),
            section("50567-7", "When using this product", "avoid alcohol"),
            section("42229-5", "5.1 Heart", "Rare.", section("34084-4", "", "Rash.")),
        ),
        section(
            "34068-7",
            "DOSAGE",
            "<paragraph>Take</paragraph><list><item>one</item></list>",
            section("34066-1", "", "at 10<sup>9</sup>/L"),
        ),
        section("34066-1", "WARNING", "Boxed."),
    )
    found = {need.heading: need.answer for need in read_label(data, "x")}
    assert found == {
        2: "Danger. Do not use: after surgery Heart: Rare. Boxed.",
        4: "Take one at 10^9/L",
        5: "When using this product: avoid alcohol",
        6: "Rash.",
    }


def test_the_medicine_is_each_active_moiety_once():
    rash = section("34084-4", "", "Rash.")
    (need,) = read_label(label(rash, moieties=("ASPIRIN", "CAFFEINE", "ASPIRIN")), "x")
    assert (need.qid, need.medicine) == ("x-6", "aspirin and caffeine")
    assert need.question == "Are there any side effects of aspirin and caffeine?"
    with pytest.raises(ValueError, match="x: found no name"):
        read_label(label(rash, moieties=()), "x")
    with pytest.raises(ValueError, match="x: found no heading"):
        read_label(label(section("34089-3", "", "White.")), "x")
    with pytest.raises(ValueError, match="x: refused, it declares entities"):
        read_label(b'<!DOCTYPE x [<!ENTITY a "b">]>' + label(rash), "x")


@pytest.mark.mirror
def test_six_real_labels_give_their_headings(mirror, own_folders):
    needs = load_needs("labels")
    assert all(need.question == HEADINGS[need.heading].format(need.medicine) for need in needs)
    found = {}
    for need in needs:
        name = need.qid.rpartition("-")[0].removeprefix("openfda-")
        found.setdefault((name, need.medicine), []).append(need.heading)
    assert found == {
        ("viagra", "sildenafil"): [1, 2, 3, 4, 5, 6],
        ("cough", "diphenhydramine and phenylephrine"): [1, 2, 3, 4, 5],
        ("humira", "adalimumab"): [1, 2, 3, 4, 5, 6],
        ("lipitor", "atorvastatin"): [1, 2, 3, 4, 5, 6],
        ("lipitor-repack", "atorvastatin"): [1, 2, 3, 4, 5, 6],
        ("haloperidol", "haloperidol"): [1, 2, 4, 6],
    }
    assert needs[0].answer == "VIAGRA is indicated for the treatment of erectile dysfunction."
    assert sum(len(need.answer.split()) for need in needs) == 27_958


# PDF ---------------------------------------------------------------------------------------------


def test_a_leaflet_as_a_pdf_says_what_its_text_says(tmp_path, capsys):
    (tmp_path / "abacavir.pdf").write_bytes(pdf(cmi()))
    (tmp_path / "scan.PDF").write_bytes(pdf(""))
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.4 and no more")
    (tmp_path / "notes.md").write_text(cmi("NOTES"))
    read = load_needs(f"tga:{tmp_path}")
    assert [replace(need, qid="x" + need.qid[-2:]) for need in read] == expected("ABACAVIR")
    told = capsys.readouterr().err
    assert "2 of 3 leaflets are left out: broken.pdf, scan.PDF; the first because" in told
    assert "a PDF that cannot be read" in told
    (tmp_path / "abacavir.txt").write_text(cmi("THE TEXT"))
    assert {need.medicine for need in load_needs(f"tga:{tmp_path}")} == {"THE TEXT"}
    assert [Path(name).name for name in files_of(f"tga:{tmp_path}")] == [
        "abacavir.txt",
        "broken.pdf",
        "scan.PDF",
    ]
