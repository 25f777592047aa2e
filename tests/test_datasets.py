"""Question sets: one contract for all, facts of the real files, each form, and the real sample."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from lib import datasets
from lib.datasets import (
    EXAMS,
    SIZES,
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


@pytest.fixture(scope="module")
def bioasq(cached):
    """All BioASQ questions, read once; only tests that have the mirror ask for it."""
    return load_bioasq_all()


# real files --------------------------------------------------------------------------------------

ANSWERS = {
    "mmlu": {"A": 235, "B": 254, "C": 248, "D": 352},
    "medqa": {"A": 353, "B": 309, "C": 346, "D": 265},
    "bioasq": {"A": 395, "B": 223},
    "medmcqa": {"A": 1348, "B": 1085, "C": 925, "D": 825},
    "pubmedqa": {"A": 276, "B": 169, "C": 55},
    "ddx-mini": {"A": 40, "B": 40, "C": 20, "D": 20},
}

SUBJECTS = {
    "anatomy": 135,
    "clinical_knowledge": 265,
    "college_biology": 144,
    "college_medicine": 173,
    "medical_genetics": 100,
    "professional_medicine": 272,
}

# (set, qid, start of the text, answer), read in MIRAGE's own benchmark.json
KNOWN = [
    ("mmlu", "college_biology-118", "Proteins were shown to move about", "A"),
    ("mmlu", "professional_medicine-270", "A 40-year-old man with paranoid", "D"),
    ("medqa", "0000", "A junior orthopaedic surgery resident", "B"),
    ("medqa", "0012", "A 20-year-old man comes to the physician", "B"),
    ("medmcqa", "ebc97f5c-aba4-4d9b-9051-b6177ee1a94d", "Best index to measure cardiac", "D"),
    ("medmcqa", "e192d2c5-03ce-4e51-a043-89a27a3144ce", "Type I collagen is present in", "D"),
    ("medmcqa", "62b2a82d-7ad9-4417-8319-645c25d0e5a3", "All of the following are true", "A"),
    ("pubmedqa", "19398929", "Can the growth rate of a gallbladder polyp", "B"),
    ("pubmedqa", "11570976", "Is it Crohn's disease?", "C"),
    ("bioasq", "5c56fd7407647bbc4b000013", "Does epidural anesthesia for pain", "B"),
    ("bioasq", "63f73f1b33942b094c000008", "Is erenumab effective", "B"),
]

# neighbours in benchmark.json, at the ends of batches and of the whole set
BIOASQ_ORDER = [
    ["6411b4a8201352f04a000035", "641357bc201352f04a000039", "641ad941690f196b5100003d"],
    ["61f7cb37882a024a10000029", "64041f38201352f04a00001f", "63f73f1b33942b094c000008"],
    ["5e31d181fbd6abf43b000053", "5e323780fbd6abf43b000055", "5e41620648dab47f2600000e"],
    ["5c6583117c78d69471000002", "5c629fffe842deac67000009", "5c6da11e7c78d69471000042"],
    ["5c6df86b7c78d69471000045", "5c73acf27c78d6947100008a", "5c840daf617e120c34000007"],
]


@pytest.mark.mirror
@pytest.mark.parametrize("name", ANSWERS)
def test_every_question_set_keeps_the_contract(name, mirror, cached):
    questions = load_questions(name)
    assert len(questions) == SIZES.get(name, 120) == len({q.qid for q in questions})
    assert Counter(q.answer for q in questions) == ANSWERS[name]
    if name == "mmlu":
        assert Counter(q.subset for q in questions) == SUBJECTS
    for q in questions:
        assert q.text and all(q.options.values()) and list(q.options) == sorted(q.options)
        assert q.dataset == name and q.text == q.text.strip() and "  " not in q.text
        assert q.answer in q.options and len(q.gold_snippets) == len(q.snippet_pmids)
    labels = question_sets([name], n=20, seed=1)
    assert all(len(asked) == 20 and asked == sampled(asked, 20) for asked in labels.values())
    assert not any(q.split == "dev" for asked in labels.values() for q in asked)


@pytest.mark.mirror
def test_what_mirage_says_of_single_questions(mirror, bioasq):
    names = [name for name in SIZES if name != "bioasq"]
    questions = {(name, q.qid): q for name in names for q in load_questions(name)}
    questions |= {("bioasq", q.qid): q for q in bioasq}
    for name, qid, start, answer in KNOWN:
        assert questions[name, qid].text.startswith(start)
        assert questions[name, qid].answer == answer


@pytest.mark.mirror
def test_order_is_that_of_benchmark_json(mirror, bioasq):
    qids = [q.qid for q in bioasq if q.options]
    for run in BIOASQ_ORDER:
        start = qids.index(run[0])
        assert qids[start : start + 3] == run
    assert [q.qid for q in load_questions("pubmedqa")][333:336] == [
        "19398929",
        "25614468",
        "11926574",
    ]
    for name in ("mmlu", "medqa"):
        found = [q.qid for q in load_questions(name)]
        assert found == sorted(found)


@pytest.mark.mirror
def test_bioasq_gold(mirror, bioasq):
    assert Counter(q.question_type for q in bioasq) == {
        "factoid": 740,
        "yesno": 618,
        "summary": 543,
        "list": 409,
    }
    assert sum(len(q.gold_snippets) for q in bioasq) == 21_998
    assert len({p for q in bioasq for p in q.gold_pmids}) == 14_151
    yes_no = [q for q in bioasq if q.options]
    assert sum(len(q.gold_snippets) for q in yes_no) == 5_449
    assert len({p for q in yes_no for p in q.gold_pmids}) == 3_467
    for q in bioasq:
        assert q.ideal_answer and q.gold_pmids and q.gold_snippets
        assert len(q.gold_snippets) == len(q.snippet_pmids)
        assert all(p.isdigit() for p in q.gold_pmids + q.snippet_pmids)
        assert bool(q.options) == (q.question_type == "yesno") == bool(q.answer)


@pytest.mark.mirror
def test_bioasq_dev_shares_no_document_with_the_test_questions(mirror, cached):
    raw = {}
    for path in (mirror / "mirage/rawdata/bioasq").glob("*/*.json"):
        for q in json.loads(path.read_text())["questions"]:
            documents = set(q["documents"]) | {s["document"] for s in q["snippets"]}
            raw[q["id"]] = (q["type"], documents)
    tested = set().union(*(docs for kind, docs in raw.values() if kind == "yesno"))
    free = {qid for qid, (kind, docs) in raw.items() if kind != "yesno" and not docs & tested}
    assert {q.qid for q in load_bioasq_dev()} == free
    assert len(free) == 1_556


@pytest.mark.mirror
def test_subset_depends_on_ids_and_seed_only(mirror, cached, monkeypatch):
    all_ids = {q.qid for q in load_questions("pubmedqa")}
    first = [q.qid for q in load_questions("pubmedqa", n=50, seed=3)]
    assert len(first) == 50 and first == sorted(first) and set(first) <= all_ids
    assert first != [q.qid for q in load_questions("pubmedqa", n=50, seed=4)]
    assert set(first) < {q.qid for q in load_questions("pubmedqa", n=60, seed=3)}
    monkeypatch.setitem(datasets._LOADERS, "pubmedqa", lambda: list(datasets._pubmedqa())[::-1])
    assert first == [q.qid for q in load_questions("pubmedqa", n=50, seed=3)]
    for n in (0, 501):
        with pytest.raises(ValueError, match="pubmedqa has 500 questions"):
            load_questions("pubmedqa", n=n)


# hand-made files ---------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Give a text to ``fetch`` by name; sizes are not those of MIRAGE."""
    texts: dict[str, str] = {}

    def fetch(name):
        path = tmp_path / name
        path.write_text(texts[name], encoding="utf-8")
        return path

    monkeypatch.setattr(datasets, "fetch", fetch)
    monkeypatch.setattr(
        datasets, "load_registry", lambda prefix: [n for n in texts if n.startswith(prefix)]
    )
    monkeypatch.setattr(datasets, "SIZES", {})
    return texts


def test_mmlu_form(files):
    files["mmlu-anatomy"] = '"Which\nnerve?",V,"VII, then X",X,XI,B\nNext \xa0 one?,a,b,c,d,D\n'
    first, second = load_questions("mmlu")
    assert (first.qid, first.subset, first.answer) == ("anatomy-000", "anatomy", "B")
    assert first.text == "Which\nnerve?"
    assert first.options == {"A": "V", "B": "VII, then X", "C": "X", "D": "XI"}
    assert second.qid == "anatomy-001" and second.text == "Next one?"


def test_a_count_that_differs_is_named(files, monkeypatch):
    monkeypatch.setattr(datasets, "SIZES", {"mmlu": 3})
    files["mmlu-anatomy"] = "Which?,a,b,c,d,A\n"
    with pytest.raises(ValueError, match="mmlu: found 1 questions, expected 3"):
        load_questions("mmlu")


def test_medqa_form(files):
    row = {
        "question": "Labs show:\nNa+  140\nWhat now?",
        "answer": "wait",
        "answer_idx": "B",
        "options": {"B": "wait", "A": "cut"},
        "meta_info": "step1",
    }
    files["medqa-test"] = json.dumps(row) + "\n"
    (question,) = load_questions("medqa")
    assert question.qid == "0000" and question.answer == "B" and question.question_type == "step1"
    assert question.text == "Labs show:\nNa+ 140\nWhat now?", "lines of a table stay lines"
    assert question.options == {"A": "cut", "B": "wait"}


@pytest.mark.parametrize(
    "options, answer, says",
    [
        (dict.fromkeys("ABCDEF", "x"), "A", "medqa: question 0000 has 6 options"),
        ({"A": "x", "B": "y"}, "C", "medqa: question 0000 has the answer 'C', .* A, B"),
        ({"1": "x", "2": "y"}, "1", "answer '1'"),
    ],
)
def test_options_that_are_not_read_and_answers_that_are_none_are_refused(
    options, answer, says, files
):
    """A sixth option fell out, and an answer that is none was wrong for every reader."""
    row = {"question": "Q?", "answer_idx": answer, "options": options, "meta_info": ""}
    files["medqa-test"] = json.dumps(row) + "\n"
    with pytest.raises(ValueError, match=says):
        load_questions("medqa")


def test_medmcqa_form_counts_options_from_one(files):
    row = {
        "id": "x",
        "question": "Q?",
        "opa": "1",
        "opb": "2",
        "opc": "3",
        "opd": "4",
        "cop": 3,
        "subject_name": "Dental",
        "choice_type": "single",
    }
    files["medmcqa-dev"] = json.dumps(row) + "\n"
    (question,) = load_questions("medmcqa")
    assert (question.answer, question.options["C"], question.subset) == ("C", "3", "Dental")


def test_pubmedqa_form(files):
    row = {
        "QUESTION": "Is it?",
        "CONTEXTS": ["We asked.", "It was."],
        "LABELS": ["A", "B"],
        "LONG_ANSWER": "Maybe it is.",
        "final_decision": "maybe",
    }
    files["pubmedqa-test"] = json.dumps({"123": row})
    (question,) = load_questions("pubmedqa")
    assert question.options == {"A": "yes", "B": "no", "C": "maybe"} and question.answer == "C"
    assert question.gold_pmids == ("123",) and question.ideal_answer == "Maybe it is."
    assert question.gold_snippets == ("We asked.", "It was.")


def bioasq_row(qid: str, kind: str, **more) -> dict:
    return {
        "id": qid,
        "type": kind,
        "body": "Is  it?",
        "ideal_answer": ["Yes,\nit is.", "Yes."],
        "documents": ["http://www.ncbi.nlm.nih.gov/pubmed/7"],
        "snippets": [
            {"text": " p &amp;lt; 0.05<br><b>AIM</b> 10<sup>3</sup> ", "document": "x/pubmed/8"},
            {"text": "", "document": "x/pubmed/9"},
        ],
    } | more


def test_bioasq_form_and_order_of_the_registry(files):
    for i, batch in enumerate(["11B1", "11B2", "10B1", "7B1"]):
        rows = [bioasq_row(f"q{i}", "yesno", exact_answer="Yes"), bioasq_row(f"s{i}", "summary")]
        files[f"bioasq-{batch}"] = json.dumps({"questions": rows})
    assert [q.subset for q in load_questions("bioasq")] == ["11B1", "11B2", "10B1", "7B1"]
    everything = load_bioasq_all()
    assert [q.qid for q in everything][:3] == ["q0", "s0", "q1"]
    yes_no, summary = everything[:2]
    assert yes_no.answer == "A" and yes_no.options == {"A": "yes", "B": "no"}
    assert summary.answer == "" and summary.options == {} and summary.question_type == "summary"
    assert summary.ideal_answer == "Yes, it is." and summary.text == "Is it?"
    assert summary.gold_pmids == ("7",) and summary.snippet_pmids == ("8",)
    assert summary.gold_snippets == (" p &amp;lt; 0.05<br><b>AIM</b> 10<sup>3</sup> ",)
    assert load_bioasq_dev() == [], "all of them share document 7 with a yes/no question"


def test_unknown_set():
    with pytest.raises(ValueError, match="known: mmlu, medqa, bioasq"):
        load_questions("usmle")


@pytest.mark.fault("numbers", "A question stands twice in a file")
def test_a_question_that_stands_twice_is_refused(fault, monkeypatch):
    twice = [datasets.Question(qid, qid, {}, "", "mine") for qid in ("a", "b", "a")]
    monkeypatch.setitem(datasets._LOADERS, "mine", lambda: twice)
    with pytest.raises(ValueError, match="mine: question 'a' stands twice") as error:
        load_questions("mine")
    fault.came(said=error.value)


# the real sample ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sample(mirror) -> dict:
    return {split: load_real(split) for split in ("dev", "test")}


def test_the_sample_has_the_sizes_that_were_declared(sample):
    sizes = {split: Counter(q.dataset for q in questions) for split, questions in sample.items()}
    assert sizes["test"] == {"medqa": 150, "mmlu": 150, "bioasq": 618}
    assert sizes["dev"] == {"medqa": 40, "mmlu": 40, "bioasq": 60}
    assert all(q.split == split for split, questions in sample.items() for q in questions)


def test_dev_and_test_share_no_question_and_no_stem(sample):
    for kind in ("qid", "text"):
        dev, test = ({getattr(q, kind) for q in sample[split]} for split in ("dev", "test"))
        assert not dev & test


def test_bioasq_dev_is_of_the_questions_that_may_be_tuned_on(sample):
    allowed = {q.qid for q in load_bioasq_dev()}
    dev = [q for q in sample["dev"] if q.dataset == "bioasq"]
    assert {q.qid for q in dev} <= allowed and not any(q.options for q in dev)


def test_a_question_that_needs_a_picture_is_in_no_half(sample):
    for name in EXAMS:
        known = {q.qid for q in load_questions(name)}
        assert pictures(name) <= known  # a misspelt id would leave nothing out
        drawn = {q.qid for questions in sample.values() for q in questions if q.dataset == name}
        assert not drawn & pictures(name)


def test_in_full_keeps_every_exam_question_and_150_of_bioasq(sample):
    kept = in_full(sample["test"])
    assert Counter(q.dataset for q in kept) == {"medqa": 150, "mmlu": 150, "bioasq": 150}
    assert kept == [q for q in sample["test"] if q in kept]  # order and objects as they were


def test_questions_that_ask_for_the_exception_are_known(mirror):
    counts = {name: sum(map(asks_for_the_exception, load_questions(name))) for name in EXAMS}
    assert counts == {"medqa": 2, "mmlu": 31}


def test_an_unknown_split_is_refused():
    with pytest.raises(ValueError, match="dev and test"):
        load_real("train")
