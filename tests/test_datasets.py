"""Question sets: one contract for all, facts of the real files, each form, and the real sample."""

from __future__ import annotations

import json
from collections import Counter

import pandas as pd
import pytest

from lib import datasets
from lib.base.downloads import DownloadError
from lib.datasets import (
    EXAMS,
    SIZES,
    Question,
    asks_for_the_exception,
    in_full,
    load_bioasq_all,
    load_bioasq_dev,
    load_questions,
    load_real,
    pictures,
    question_sets,
    sampled,
)


@pytest.fixture(scope="module")
def cached(tmp_path_factory):
    """One cache for the whole module: the files are verified once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHR_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


# real files --------------------------------------------------------------------------------------

ANSWERS = {
    "mmlu": {"A": 235, "B": 254, "C": 248, "D": 352},
    "medqa": {"A": 353, "B": 309, "C": 346, "D": 265},
    "bioasq": {"A": 395, "B": 223},
    "medmcqa": {"A": 1348, "B": 1085, "C": 925, "D": 825},
    "pubmedqa": {"A": 276, "B": 169, "C": 55},
    "ddx-mini": {"A": 40, "B": 40, "C": 20, "D": 20},
}

# What MIRAGE's own benchmark.json says: qid, start of the text, answer.
KNOWN = {
    "mmlu": ("professional_medicine-270", "A 40-year-old man with paranoid", "D"),
    "medqa": ("0012", "A 20-year-old man comes to the physician", "B"),
    "bioasq": ("63f73f1b33942b094c000008", "Is erenumab effective", "B"),
    "medmcqa": ("e192d2c5-03ce-4e51-a043-89a27a3144ce", "Type I collagen is present in", "D"),
    "pubmedqa": ("11570976", "Is it Crohn's disease?", "C"),
}


@pytest.mark.mirror
@pytest.mark.parametrize("name", [name for name in SIZES if not name.endswith("-train")])
def test_every_question_set_keeps_the_contract(name, mirror, cached):
    questions = load_questions(name)
    qids = [q.qid for q in questions]
    assert len(questions) == SIZES[name] == len(set(qids))
    if name in ANSWERS:
        assert Counter(q.answer for q in questions) == ANSWERS[name]
    for q in questions:
        assert q.text and all(q.options.values()) and list(q.options) == sorted(q.options)
        assert q.dataset == name and q.text == q.text.strip() and "  " not in q.text
        assert q.answer in q.options and len(q.gold_snippets) == len(q.snippet_pmids)
    if name in KNOWN:
        qid, start, answer = KNOWN[name]
        known = questions[qids.index(qid)]
        assert known.text.startswith(start) and known.answer == answer
    labels = question_sets([name], n=20)
    for asked in labels.values():
        assert len(asked) <= 20 and asked == sampled(asked, 20)
    assert not any(q.split == "dev" for asked in labels.values() for q in asked)


@pytest.mark.mirror
def test_bioasq_has_experts_documents_and_dev_shares_none_with_the_test_questions(mirror, cached):
    bioasq = load_bioasq_all()
    kinds = {"factoid": 740, "yesno": 618, "summary": 543, "list": 409}
    assert Counter(q.question_type for q in bioasq) == kinds
    assert sum(len(q.gold_snippets) for q in bioasq) == 21_998
    assert len({p for q in bioasq for p in q.gold_pmids}) == 14_151
    for q in bioasq:
        assert q.ideal_answer and q.gold_pmids and q.gold_snippets
        assert all(p.isdigit() for p in q.gold_pmids + q.snippet_pmids)
        assert bool(q.options) == (q.question_type == "yesno") == bool(q.answer)
    dev = load_bioasq_dev()
    documents = {p for q in dev for p in q.gold_pmids + q.snippet_pmids}
    assert len(dev) == 1_556 and not any(q.options for q in dev)
    assert all(documents.isdisjoint(q.gold_pmids + q.snippet_pmids) for q in bioasq if q.options)


def test_a_sample_depends_on_ids_and_seed_only():
    questions = load_questions("ddx-mini")
    first = sampled(questions, 50, 3)
    assert first == sorted(first, key=lambda q: q.qid) == sampled(questions[::-1], 50, 3)
    assert {q.qid for q in first} < {q.qid for q in sampled(questions, 60, 3)}
    assert first != sampled(questions, 50, 4) and len(first) == 50
    assert len(sampled(questions, 0)) == len(sampled(questions, 999)) == len(questions)


# hand-made files ---------------------------------------------------------------------------------

MMLU = '"Which\nnerve?",V,"VII, then X",X,XI,B\nNext \xa0 one?,a,b,c,d,D\n'
MEDQA = {"question": "Labs show:\nNa+  140\nWhat now?", "answer_idx": "B", "meta_info": "step1"}
MEDQA |= {"options": {"B": "wait", "A": "cut"}}
MEDMCQA = {"id": "x", "question": "Q?", "opa": "1", "opb": "2", "opc": "3", "opd": "4", "cop": 3}
MEDMCQA |= {"subject_name": "Dental", "choice_type": "single"}
PUBMEDQA = {
    "QUESTION": "Is it?",
    "CONTEXTS": ["We asked.", "It was."],
    "LABELS": ["A", "B"],
    "LONG_ANSWER": "Maybe it is.",
    "final_decision": "maybe",
}
SNIPPET = " p &amp;lt; 0.05<br><b>AIM</b> 10<sup>3</sup> "
BIOASQ = {
    "id": "q1",
    "type": "yesno",
    "body": "Is  it?",
    "exact_answer": "Yes",
    "ideal_answer": ["Yes,\nit is.", "Yes."],
    "documents": ["http://www.ncbi.nlm.nih.gov/pubmed/7"],
    "snippets": [
        {"text": SNIPPET, "document": "x/pubmed/8"},
        {"text": "", "document": "x/pubmed/9"},
    ],
}
SUMMARY = BIOASQ | {"id": "s", "type": "summary", "documents": ["x/pubmed/5"]}
NO = BIOASQ | {"id": "q2", "exact_answer": "no"}


def asked(qid: str, text: str, options: str, answer: str, dataset: str, **more) -> Question:
    listed = dict(zip("ABCD", options.split("|"), strict=False))
    return Question(qid, text, listed, answer, dataset, **more)


def of_experts(pmid: str, snippets: tuple, sources: tuple, ideal: str) -> dict:
    texts = {"gold_snippets": snippets, "snippet_pmids": sources}
    return texts | {"gold_pmids": (pmid,), "ideal_answer": ideal}


QUOTED = of_experts("7", (SNIPPET,), ("8",), "Yes, it is.") | {"question_type": "yesno"}
WHOLE = of_experts("123", ("We asked.", "It was."), ("123", "123"), "Maybe it is.")
FORMS = {
    "mmlu-anatomy": (
        MMLU,
        asked("anatomy-000", "Which\nnerve?", "V|VII, then X|X|XI", "B", "mmlu", subset="anatomy"),
        asked("anatomy-001", "Next one?", "a|b|c|d", "D", "mmlu", subset="anatomy"),
    ),
    "medqa-test": (
        json.dumps(MEDQA),  # the lines of a table stay lines
        asked(
            "0000",
            "Labs show:\nNa+ 140\nWhat now?",
            "cut|wait",
            "B",
            "medqa",
            question_type="step1",
        ),
    ),
    "medmcqa-dev": (
        json.dumps(MEDMCQA),
        asked("x", "Q?", "1|2|3|4", "C", "medmcqa", subset="Dental", question_type="single"),
    ),
    "pubmedqa-test": (
        json.dumps({"123": PUBMEDQA}),
        asked("123", "Is it?", "yes|no|maybe", "C", "pubmedqa", **WHOLE),
    ),
    "bioasq-11B1": (
        json.dumps({"questions": [BIOASQ, SUMMARY, NO]}),
        asked("q1", "Is it?", "yes|no", "A", "bioasq", subset="11B1", **QUOTED),
        asked("q2", "Is it?", "yes|no", "B", "bioasq", subset="11B1", **QUOTED),
    ),
}


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Texts for ``fetch`` by name, and sets of any size."""
    texts: dict[str, str] = {}

    def fetch(name):
        path = tmp_path / name
        path.write_text(texts[name], encoding="utf-8")
        return path

    monkeypatch.setattr(datasets, "fetch", fetch)
    monkeypatch.setattr(
        datasets, "load_registry", lambda prefix: [n for n in texts if n.startswith(prefix)]
    )
    monkeypatch.setattr(datasets, "SIZES", dict.fromkeys(SIZES, 1))
    return texts


@pytest.mark.parametrize("file", FORMS)
def test_a_file_of_each_form_becomes_its_questions(file, files):
    files[file], *wanted = FORMS[file]
    name = file.partition("-")[0]
    datasets.SIZES[name] = len(wanted)
    assert load_questions(name) == wanted


def test_training_sets_come_from_a_mirror_or_the_hub(tmp_path, monkeypatch):
    medqa = [
        {"question": "Why?", "answer": "b", "options": {"B": "b", "A": "a"}, "meta_info": "s1"}
    ]
    medmcqa = {"id": "m", "question": "What?", "opa": "w", "opb": "x", "opc": "y", "opd": "z"}
    medmcqa |= {"cop": 3, "subject_name": "Anatomy", "choice_type": "single"}
    file = tmp_path / "hub" / "GBaker/MedQA-USMLE-4-options" / "phrases_no_exclude_train.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("".join(json.dumps(row | {"answer_idx": "B"}) + "\n" for row in medqa))
    other = tmp_path / "hub" / "openlifescienceai/medmcqa/data/train-00000-of-00001.parquet"
    other.parent.mkdir(parents=True)
    pd.DataFrame([medmcqa]).to_parquet(other)
    monkeypatch.setenv("CHR_MIRROR", str(tmp_path))
    monkeypatch.setattr(datasets, "SIZES", dict.fromkeys(SIZES, 1))
    (one,) = load_questions("medqa-train")
    assert (one.qid, one.options, one.answer) == ("train-0000", {"A": "a", "B": "b"}, "B")
    (two,) = load_questions("medmcqa-train")
    assert (two.qid, two.answer, two.options["D"]) == ("m", "D", "z"), "the hub counts from 0"
    other.unlink()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DownloadError, match="hub/openlifescienceai"):
        load_questions("medmcqa-train")


def test_bioasq_batches_come_in_the_order_of_the_registry_and_some_have_no_options(files):
    for batch, rows in {"11B1": [BIOASQ, SUMMARY], "7B1": [NO]}.items():
        files[f"bioasq-{batch}"] = json.dumps({"questions": rows})
    everything = load_bioasq_all()
    assert [(q.qid, q.subset) for q in everything] == [("q1", "11B1"), ("s", "11B1"), ("q2", "7B1")]
    assert (everything[1].options, everything[1].answer) == ({}, "")
    assert load_bioasq_dev() == []  # a snippet of it is from a yes/no question's document


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "medqa: found 0 questions, expected 1"),
        ([MEDQA | {"options": dict.fromkeys(range(27), "x")}], "question '0000' has 27 options"),
        ([MEDQA | {"answer_idx": "C"}], "question '0000' has the answer 'C', .* A, B"),
    ],
)
def test_a_set_that_would_be_read_wrongly_is_refused(rows, says, files):
    files["medqa-test"] = "\n".join(map(json.dumps, rows))
    with pytest.raises(ValueError, match=says):
        load_questions("medqa")


@pytest.mark.fault("numbers", "A question stands twice in a file")
def test_a_question_that_stands_twice_is_refused(fault, monkeypatch):
    monkeypatch.setattr(datasets, "SIZES", {})
    monkeypatch.setattr(datasets, "_READERS", {})

    @datasets.question_set("mine", 3)
    def mine():
        return [Question(qid, qid, {}, "", "mine") for qid in ("a", "b", "a")]

    with pytest.raises(ValueError, match="mine: question 'a' stands twice") as error:
        load_questions("mine")
    fault.came(said=error.value)
    with pytest.raises(ValueError, match="known: mine"):
        load_questions("usmle")


# the real sample ----------------------------------------------------------------------------------


@pytest.mark.mirror
def test_the_sample_has_the_declared_sizes_and_its_halves_share_nothing(mirror, cached):
    dev, test = load_real("dev"), load_real("test")
    assert Counter(q.dataset for q in test) == {"medqa": 150, "mmlu": 150, "bioasq": 618}
    assert Counter(q.dataset for q in dev) == {"medqa": 40, "mmlu": 40, "bioasq": 60}
    assert {q.split for q in dev} == {"dev"} and {q.split for q in test} == {"test"}
    for kind in ("qid", "text"):
        assert not {getattr(q, kind) for q in dev} & {getattr(q, kind) for q in test}
    of_bioasq = {q.qid for q in dev if q.dataset == "bioasq"}
    assert of_bioasq <= {q.qid for q in load_bioasq_dev()}
    for name in EXAMS:
        assert pictures(name) <= {q.qid for q in load_questions(name)}  # none is misspelt
        assert not {q.qid for q in dev + test if q.dataset == name} & pictures(name)
    kept = in_full(test)
    assert Counter(q.dataset for q in kept) == dict.fromkeys(("medqa", "mmlu", "bioasq"), 150)
    assert kept == [q for q in test if q in kept]
    counts = {name: sum(map(asks_for_the_exception, load_questions(name))) for name in EXAMS}
    assert counts == {"medqa": 2, "mmlu": 31}
    with pytest.raises(ValueError, match="dev and test"):
        load_real("train")
