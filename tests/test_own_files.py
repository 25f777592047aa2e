"""Own files of questions, passages and judgments in a profile, and what hangs on them."""

from __future__ import annotations

import json
from pathlib import Path

import ir_measures
import pytest

from lib.base import paths
from lib.base.files import manifest_path
from lib.datasets import load_questions, question_sets
from lib.embed import HashEncoder
from lib.forms import read_qrels
from lib.open_retriever import open_retriever, store_of
from lib.profiles import Profile, load_profile
from lib.studies.main_tables import tables
from lib.studies.main_tables.experiment import open_experiment
from tests.test_limit import executed

DISEASES = ["gout", "sepsis", "stroke", "asthma", "lupus", "migraine", "colitis", "eczema"]
N = 10


def written(folder: Path) -> None:
    """Ten questions of seven options, one with two right answers, 80 passages, graded judgments."""
    questions, passages, qrels = [], [], []
    for i in range(80):
        about = DISEASES[i % 8]
        text = f"{about} is treated with drug {i}. Its sign is number {i // 8}."
        passages.append({"id": f"doc:{i}", "contents": f'"On {about}"\n{text}'})
    for i in range(N):
        about, options = DISEASES[i % 8], DISEASES[i % 8 :] + DISEASES[: i % 8]
        row = {"id": f"q{i}", "question": f"What treats {about} with sign number {i}?"}
        answer = ["A", "C"] if i == 3 else options[0]
        questions.append(row | {"options": options[:7], "answer": answer})
        judged = {f"doc:{j}": 1 + (j // 8 == i) for j in range(i % 8, 80, 24)} | {"doc:0": 0}
        qrels += [f"q{i} 0 {pid} {grade}\n" for pid, grade in judged.items()]
    for name, rows in (("questions", questions), ("corpus", passages)):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "qrels.txt").write_text("".join(qrels))
    (folder / "mine.toml").write_text(
        'base = "mini"\nencoder = "hash"\nquestions = ["questions.jsonl"]\n'
        'corpora = ["corpus.jsonl"]\nqrels = "qrels.txt"\n'
    )


@pytest.fixture
def mine(own_folders) -> Path:
    """The profile's file, beside its data."""
    written(own_folders)
    return own_folders / "mine.toml"


# where files are --------------------------------------------------------------------------------


def test_own_files_are_found_beside_the_profile_in_the_folder_at_work_and_at_the_root(
    mine, monkeypatch
):
    p = load_profile(str(mine))
    assert p.questions == (str(mine.parent / "questions.jsonl"),)
    assert p.qrels == str(mine.parent / "qrels.txt")
    assert p.title == "mine: as mini, but for encoder, questions, corpora, qrels"
    by_path = load_profile("mini", corpora=[mine.parent / "corpus.jsonl"])
    assert by_path.name != "mini" and "changed: corpora = corpus.jsonl" in by_path.title
    monkeypatch.chdir(mine.parent)
    assert load_profile("mini", corpora=["corpus.jsonl"]).corpora == p.corpora
    at_root = load_profile("mini", questions=["data/ddx-mini/questions.jsonl"]).questions
    assert at_root == (str(paths.DDX_MINI / "questions.jsonl"),)
    with pytest.raises(ValueError, match="there is no absent.jsonl, seen from .* and from"):
        load_profile("mini", questions=["absent.jsonl"])
    for named, load in (("questions", load_questions), ("corpora", _first_passage)):
        with pytest.raises(ValueError, match="known: .*A file of your own has a suffix"):
            load(getattr(load_profile("mini", **{named: ["absent"]}), named)[0])


def _first_passage(name: str):
    from lib.corpora import load_passages

    return next(load_passages(name))


def test_what_is_wrong_in_a_file_is_listed_and_an_id_in_two_files_is_refused(mine):
    p = load_profile(str(mine))
    assert {name: len(asked) for name, asked in question_sets(p.questions).items()} == {"own": N}
    twice = (*p.questions, str(mine.parent / "again.jsonl"))
    (mine.parent / "again.jsonl").write_text(json.dumps({"id": "q3", "question": "Which?"}))
    with pytest.raises(ValueError, match="own: the id 'q3' stands 2 times"):
        question_sets(twice)
    (mine.parent / "corpus.jsonl").write_text('{"id": "a"}\n{"id": "b", "contents": [1]}\n')
    with pytest.raises(ValueError, match=r"2 faults:\n.*corpus.jsonl:1: .*\n.*corpus.jsonl:2: "):
        store_of(load_profile(str(mine)), HashEncoder())


# what hangs on their content ----------------------------------------------------------------------


class Counted(HashEncoder):
    """The hash encoder, which counts what it encodes."""

    encoded = 0

    def encode(self, items, tower="query", progress=True):
        self.encoded += len(items)
        return super().encode(items, tower, progress)


def test_an_index_is_that_of_the_content_whatever_the_file_is_called(mine):
    def opened(profile: Profile):
        encoder = Counted()
        return open_retriever(profile, encoder).store, encoder.encoded

    corpus = mine.parent / "corpus.jsonl"
    store, encoded = opened(load_profile(str(mine)))
    assert (len(store), encoded) == (80, 80) and set(store.sources()) == {"own"}
    renamed = corpus.rename(mine.parent / "renamed.jsonl")
    again, encoded = opened(load_profile("mini", corpora=[str(renamed)], encoder="hash"))
    assert (again.path, again.content, encoded) == (store.path, store.content, 0)
    with open(renamed, "a") as stream:
        stream.write("\n" + json.dumps({"id": "new", "contents": "Something new."}))
    other, encoded = opened(load_profile("mini", corpora=[str(renamed)], encoder="hash"))
    assert len(other) == 81 and other.content != store.content and encoded > 0


def test_an_override_is_called_by_what_its_file_holds(mine):
    file = mine.parent / "questions.jsonl"
    name = load_profile("mini", questions=[str(file)]).name
    renamed = file.rename(mine.parent / "renamed.jsonl")
    assert load_profile("mini", questions=[str(renamed)]).name == name != "mini"
    renamed.write_text(renamed.read_text() + "\n")
    assert load_profile("mini", questions=[str(renamed)]).name != name


def test_a_profile_of_own_files_runs_is_measured_by_its_judgments_and_says_what_is_not_run(
    mine, capsys
):
    lab = open_experiment(load_profile(str(mine)))
    runs, answers = lab.runs(), lab.answers()
    assert set(runs["method"]) == {"standard", "bm25", "rrf", "random"}
    missing = lab.not_run()
    assert {"chr", "hyde"} <= set(missing["method"]) and missing["how"].str.len().min() > 0
    quality = lab.quality(runs, *lab.relevance()).set_index("method")
    qrels, _ = read_qrels(mine.parent / "qrels.txt")
    ranked = runs[runs["method"] == "bm25"]
    run = {
        q: dict(zip(rows["pid"], -rows["rank"], strict=True)) for q, rows in ranked.groupby("qid")
    }
    wanted = {"ndcg_at_10": "nDCG@10", "recall_at_10": "R@10", "p_at_5": "P@5", "mrr": "RR"}
    measures = {name: ir_measures.parse_measure(text) for name, text in wanted.items()}
    by_library = ir_measures.calc_aggregate(measures.values(), qrels, run)
    for name, measure in measures.items():
        assert quality.loc["bm25", name] == pytest.approx(by_library[measure], abs=1e-9)
    assert quality.loc["bm25", "ndcg_at_10"] > quality.loc["random", "ndcg_at_10"]
    # Seven options, and a question with two right answers.
    assert set(answers["gold"]) == {"A", "AC"} and set(answers["dataset"]) == {"own"}
    table = tables.table1(lab, answers).set_index(["method", "metric"])
    found = answers[answers["method"] == "standard"]
    right = [letter in gold for letter, gold in zip(found["letter"], found["gold"], strict=True)]
    assert table.loc[("standard", "accuracy"), "value"] == pytest.approx(sum(right) / N)
    said = capsys.readouterr().err
    assert (
        "questions.jsonl: 10 read" in said
        and "qrels.txt: 48 read, of 10 of 10 questions; 0 of" in said
    )
    manifest = manifest_path(paths.results("mine") / "runs.csv").read_text()
    assert str(mine.parent) not in manifest, "results hang on a path"
    (mine.parent / "qrels.txt").write_text("other 0 doc:1 1\n")
    with pytest.raises(ValueError, match="no judgment of a question .* other there and q0, q1"):
        lab.relevance()
    (mine.parent / "qrels.txt").write_text("q0 0 doc:0 2\nq0 0 gone 1\n")
    assert lab.relevance()[0] == {"q0": {"doc:0": 2, "gone": 1}}
    assert "1 of 2 relevant passages are not in the corpora" in capsys.readouterr().err


def test_notebooks_run_on_own_files_with_options_and_without(mine, monkeypatch, capsys):
    queries = mine.parent / "queries.jsonl"
    queries.write_text("\n".join(json.dumps({"_id": f"a{i}", "text": f"gout {i}"}) for i in "12"))
    only = mine.parent / "only.toml"
    text = mine.read_text().replace("questions.jsonl", "queries.jsonl")
    only.write_text(text.replace('qrels = "qrels.txt"\n', ""))
    monkeypatch.chdir(paths.ROOT / "notebooks")
    shown = []
    show = "lib.pages.readable.show"
    monkeypatch.setattr(show, lambda table, *_, says="", **__: shown.append((says, len(table))))
    executed("03", profile=str(mine))
    executed("04", profile=str(only))
    assert [n for says, n in shown if says == "By your judgments:"] == [4]
    assert "own: NOT RUN with a reader, 2 of 2 questions" in capsys.readouterr().err
