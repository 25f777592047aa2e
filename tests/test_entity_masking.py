"""Names are struck from every text of a question, and nothing else is."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.benchmarks.base import Benchmark, name_words
from lib.benchmarks.entity_masking import GENERIC, mask_names, strike

CUSHING = "People with … are ill, … said."
FIBROSIS = ("cystic fibrosis", "CF", "mucoviscidosis")


def made_up(**changed) -> Benchmark:
    """Three diseases, each the mimic of another."""
    h_plus = (
        "Cystic fibrosis (CF) is inherited. In CF, mucus is thick.",
        "Cushing's disease (hypercortisolism) is rare. A tumor is the cause of Cushing's.",
        "Gout is unlike cystic-fibrosis. It hurts.",
    )
    first, second, third = h_plus
    fields = {
        "name": "made-up",
        "title": "made up",
        "corpora": ("ddx-mini",),
        "qids": ("C1", "C2", "C3"),
        "questions": ("What is CF?", "What is Cushing's disease?", "What is Gout?"),
        "h_plus": h_plus,
        "h_minus": {"nearest": (third, first, first), "random": (second, third, second)},
        "several": ((third, second), (first, third), (first, second)),
        "targets": {qid: frozenset({f"{qid}-target"}) for qid in ("C1", "C2", "C3")},
        "mimics": {},
        "names": {"C1": ("cystic fibrosis",), "C2": ("Cushing's Disease",), "C3": ("Gout",)},
    }
    return Benchmark(**(fields | changed))


# one text ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "names", "struck"),
    [
        ("Cystic fibrosis is inherited.", FIBROSIS, "… is inherited."),
        ("In CYSTIC-FIBROSIS and cysticfibrosis", FIBROSIS, "In … and …"),
        ("Cystic fibrosis (see-EF) hurts (much).", FIBROSIS, "… hurts (much)."),
        ("a fibrosis, cystic, of lungs", ["Fibrosis, cystic"], "a …, of lungs"),
        ("Anemia, sickle cell", ["sickle cell anemia"], "Anemia, sickle cell"),
        ("Sickle-cell anemias", ["Anemia, sickle cell"], "…"),
        ("the thrombosis, two thromboses", ["thrombosis"], "the …, two …"),
        ("a thalassemia", ["Thalassemias"], "a …"),
        ("Behçet's and Behcet disease", ["Behcet's disease", "Behcet"], "… and …"),
        ("Alzheimers disease", ["Alzheimer's disease"], "…"),
        ("High blood pressure", ["Hypertension (High Blood Pressure)"], "…"),
        ("childhood cancer", ["Astrocytoma (childhood)"], "childhood cancer"),
        ("dopamine beta ()-hydroxylase deficiency", ["dopamine beta-hydroxylase deficiency"], "…"),
        ('"Diabetic heart disease" (DHD)', ["diabetic heart disease"], '"…'),
        ("People with Cushing's are ill, Cushing said.", ["Cushing disease"], CUSHING),
        ("AS is as bad as ASD.", ["AS"], "… is as bad as ASD."),
        ("vitamin C", ["C"], "vitamin C"),
        (
            "a syndrome, a genetic disease",
            ["Disease", "syndromes"],
            "a syndrome, a genetic disease",
        ),
        ("gas is a gasp", ["Gas"], "… is a gasp"),
        ("Two CMs, one CM", ["CMs"], "Two …, one …"),
    ],
)
def test_what_is_struck_and_what_stays(text, names, struck):
    assert strike(text, names)[0] == struck


WORDS = st.lists(st.sampled_from(["red", "lung", "marrow", "fever", "x-ray"]), max_size=8)


@given(WORDS, WORDS, st.sampled_from(["-", " ", ", ", "/"]), st.booleans())
def test_a_name_is_found_in_any_surroundings_and_only_the_name_goes(before, after, join, upper):
    name = join.join(["grey", "spotted", "lung"])
    text = " ".join([*before, name.upper() if upper else name, *after])
    struck, n = strike(text, ["Grey spotted lung"])
    assert (struck, n) == (" ".join([*before, "…", *after]), 1)


# names that are left, found by a rule of its own -------------------------------------------------


def letters_of(text: str) -> str:
    return "".join(re.findall(r"[^\W_]", text))


def as_words(text: str) -> str:
    return f" {' '.join(name_words(text))} "


def as_written(text: str) -> str:
    words = re.findall(r"[^\W_]+", text)
    return f" {' '.join(words)} "


def is_name(name: str) -> bool:
    return len(letters_of(name)) > 1 and not GENERIC.issuperset(name_words(name))


def is_abbreviation(name: str) -> bool:
    letters = letters_of(name)
    return len(letters) < 5 and (
        sum(map(str.isupper, letters)) > 1 or any(map(str.isdigit, letters))
    )


def bracketed(text: str, names: Iterable[str]) -> list[str]:
    """Abbreviations in brackets after the words of a name, such as "(ABC)"."""
    every_name = [name_words(name) for name in names if is_name(name)]
    abbreviations = []
    for match in re.finditer(r"\(([A-Z0-9]{2,})s?\)", text):
        before = name_words(text[: match.start()])
        if any(before[-len(words) :] == words for words in every_name):
            abbreviations.append(match.group(1))
    return abbreviations


def texts_of(b: Benchmark, i: int) -> dict[str, str]:
    texts = {"question": b.questions[i], "H+": b.h_plus[i]}
    texts |= {f"H- {distance}": column[i] for distance, column in b.h_minus.items()}
    return texts | {
        f"several {j}": text for j, text in enumerate(b.several[i] if b.several else ())
    }


def names_left(masked: Benchmark, named: Benchmark) -> list[tuple[str, str, str]]:
    """Names that still stand in a text of ``masked``, which was made from ``named``: (qid, which
    text, name). A name stands there when its words follow each other, an abbreviation when its
    letters do as they are written."""
    disease_of = dict(zip(named.h_plus, named.qids, strict=True))
    every_name = {
        qid: [*named.names[qid], *bracketed(text, named.names[qid])]
        for qid, text in zip(named.qids, named.h_plus, strict=True)
    }
    words_of = cache(as_words)
    left = []
    for i, qid in enumerate(masked.qids):
        shown = {qid: None} | {disease_of.get(t): None for t in texts_of(named, i).values()}
        names = dict.fromkeys(n for other in shown if other for n in every_name[other])
        for which, text in texts_of(masked, i).items():
            for name in filter(is_name, names):
                form = as_written if is_abbreviation(name) else words_of
                if form(name) in form(text):
                    left.append((qid, which, name))
    return left


# a benchmark -------------------------------------------------------------------------------------


def test_target_and_mimics_are_struck_from_every_text_of_the_question():
    named = made_up()
    b = mask_names(named)
    assert b.name == "made-up-blind" and b.names == named.names and b.targets == named.targets
    assert b.h_plus[0] == "… is inherited. In …, mucus is thick."
    assert b.h_plus[2] == "… is unlike …. It hurts."
    assert b.h_plus[1] == "… is rare. A tumor is the cause of …."
    # A mimic loses the target's names as well as its own.
    assert b.h_minus["nearest"][0] == b.h_plus[2] and b.several[0][0] == b.h_plus[2]
    assert all(q.endswith(text) for q, text in zip(b.questions, b.h_plus, strict=True))
    assert names_left(b, named) == []
    assert b.counts["texts"] == 3 + 6 + 6 == b.counts["texts_with_a_name"]
    assert b.counts["h_plus_with_a_name"] == 3
    # 2 places in the first and the second description, 2 in the third; each is shown 5 times.
    assert b.counts["names_struck"] == 5 * (2 + 2 + 2)


def test_names_that_are_not_known_are_refused():
    with pytest.raises(ValueError, match="no names for C2"):
        mask_names(made_up(names={"C1": ("CF",), "C3": ("gout",)}))
    texts = made_up().h_plus
    with pytest.raises(ValueError, match="no other question's H"):
        mask_names(made_up(h_minus={"nearest": ("unknown", texts[0], texts[1])}))
