"""The class: exercises checked in their notebook, a method of one's own, plan and slides."""

from __future__ import annotations

import base64
import re

import nbformat
import numpy as np
import pandas as pd
import pytest

from lib.base import paths
from lib.exercises import EXERCISES, check
from lib.explorer.rows import Place, read_rows
from lib.pages.render import slides

TEACH = paths.ROOT / "docs" / "teach"
SOLUTIONS = re.findall(r"```python\n(.*?)```", (TEACH / "solutions.md").read_text("utf-8"), re.S)
OPEN = "answer = None"


def cells_of(name: str) -> list[str]:
    """The code cells of a notebook."""
    book = nbformat.read(paths.ROOT / "notebooks" / f"{name}.ipynb", 4)
    return [cell.source for cell in book.cells if cell.cell_type == "code"]


def performed(monkeypatch, capsys, answered, names: dict | None = None) -> list[str]:
    """What the checks say when ``answered(number, names)`` follows each cell with an answer."""
    monkeypatch.chdir(paths.ROOT / "notebooks")
    names = {} if names is None else names
    said, number = [], 0
    for source in cells_of("17_exercises"):
        capsys.readouterr()
        exec(compile(source, "17_exercises", "exec"), names)
        if source.startswith("check("):
            said.append(capsys.readouterr().out.splitlines()[0])
        if OPEN in source:
            answered(number, names)
            number += 1
    return said


def solve(number: int, names: dict) -> None:
    exec(SOLUTIONS[number], names)


def test_every_exercise_is_checked_and_its_solution_is_right(monkeypatch, capsys):
    assert len(SOLUTIONS) == len(EXERCISES) == 8
    names: dict = {}
    assert performed(monkeypatch, capsys, solve, names) == ["Right."] * 8
    assert set(names["tests"]["verdict"]) == {"SUPPORTED", "AGAINST", "INCONCLUSIVE"}
    assert len(names["tests"]) == 3 and len(names["shares"]) == 4


def test_a_wrong_answer_is_refused_with_the_hint_of_its_exercise(monkeypatch, capsys):
    """Near the truth, and in the right form: nothing but its value is wrong."""

    def nearly(number: int, names: dict) -> None:
        solve(number, names)
        answer, name = names["answer"], list(EXERCISES)[number]
        if isinstance(np.asarray(answer).ravel()[0], str):
            names["answer"] = [*answer[:-1], "AGAINST" if answer[-1] != "AGAINST" else "SUPPORTED"]
        else:
            off = max(1.5 * EXERCISES[name].within, 1.0 if name == "predict" else 0.0)
            *before, last = np.asarray(answer, float).ravel()
            wrong = [*before, last + off]
            names["answer"] = wrong if before else wrong[0]

    said = performed(monkeypatch, capsys, nearly)
    assert said == [f"Not yet. {one.hint}" for one in EXERCISES.values()]


def test_what_nobody_has_answered_is_neither_right_nor_wrong(monkeypatch, capsys):
    assert performed(monkeypatch, capsys, lambda *_: None) == ["Not answered yet."] * 8
    for half in ((0.5, None, 0.1), [None]):
        check("paired", half, first=pd.Series([1, 0]), second=pd.Series([0, 0]))
        assert capsys.readouterr().out == "Not answered yet.\n"


@pytest.mark.parametrize("odd", ["sixty", [60.0], {}, [[1], [1, 2]], float("nan"), True])
def test_an_answer_of_another_form_is_wrong_and_no_error(odd, capsys):
    h_plus, h_minus = np.eye(2, dtype=np.float32)
    check("turn", 45, h_plus=h_plus, h_minus=h_minus, lam=1.0)
    check("turn", odd, h_plus=h_plus, h_minus=h_minus, lam=1.0)
    right, wrong = capsys.readouterr().out.splitlines()
    assert right == "Right." and wrong.startswith("Not yet. ")
    with pytest.raises(ValueError, match="no exercise 'tern'.*did you mean 'turn'"):
        check("tern", 1)


def test_the_truth_follows_the_question_that_is_given(capsys):
    """An exercise can be done on another question: its answer is worked out anew."""
    explored = read_rows()
    for name in ("medqa", "ddx-mini"):
        place = explored.start(name)
        check("predict", explored.rights(place, [1.0])[0], explored=explored, place=place)
        first = next(at for at in explored.changes(place) if at > 0)
        check("change", first, explored=explored, place=place)
    assert capsys.readouterr().out == "Right.\n" * 4
    verdicts = pd.DataFrame(
        {"difference": [0.1, -0.1, 0.1], "p_holm": [0.01, 0.01, 0.05], "n": [90, 90, 90]}
    )
    check("verdicts", ["supported", " Against", "INCONCLUSIVE"], tests=verdicts)
    check("verdicts", ["SUPPORTED", "AGAINST", "SUPPORTED"], tests=verdicts)
    right, wrong = capsys.readouterr().out.splitlines()
    assert right == "Right." and wrong.startswith("Not yet")


def committed_results() -> dict:
    """Every file below data/results, with the time of its last change."""
    files = (paths.DATA / "results").rglob("*")
    return {file: file.stat().st_mtime_ns for file in files if file.is_file()}


def test_a_method_of_ones_own_is_a_row_and_nothing_committed_changes(monkeypatch, tmp_path):
    """As ``make figures`` runs it. With weight 0 the example is H+ alone."""
    monkeypatch.setenv("CHR_OUT", "")
    monkeypatch.setattr(paths, "LAB", tmp_path)
    monkeypatch.chdir(paths.ROOT / "notebooks")
    before, names = committed_results(), {}
    for source in cells_of("18_your_own_method"):
        source = source.replace("weight: float = 0.2", "weight: float = 0.0")
        exec(compile(source, "18_your_own_method", "exec"), names)
        if source.startswith("profile = "):
            names["limit"] = 2
    written = {file.name for file in tmp_path.iterdir()}
    assert {"method_18.py", "method_18.toml", "results"} <= written
    assert committed_results() == before
    accuracy = names["table"].query("metric == 'accuracy'").set_index(["method", "dataset"])
    right = accuracy["value"]
    assert right["mine"].equals(right["hplus"]) and len(right["mine"]) >= 3
    found = names["quality"].groupby("method")["p_at_5"].mean()
    assert found["mine"] == found["hplus"] != found["standard"]


# plan and slides ----------------------------------------------------------------------------------


def test_the_plan_has_ninety_minutes_without_a_gap_and_its_slides_are_there():
    plan = (TEACH / "README.md").read_text("utf-8")
    spans = [tuple(map(int, span)) for span in re.findall(r"^\| (\d+)–(\d+) \|", plan, re.M)]
    assert spans[0][0] == 0 and spans[-1][1] == 90
    assert [end for _, end in spans[:-1]] == [start for start, _ in spans[1:]]
    used = " ".join(re.findall(r"^\| \d+–\d+ \|[^|]*\|([^|]*)\|", plan, re.M))
    shown = re.findall(r"slides? (\d+)(?: (?:to|and) (\d+))?", used)
    numbers = [n for first, last in shown for n in range(int(first), int(last or first) + 1)]
    assert numbers == list(range(1, slides().count("<section>") + 1))
    short = re.findall(r"\((\d+)\)", plan.partition("With 45 minutes: ")[2])
    assert sum(map(int, short)) == 45


def test_the_plan_and_the_exercises_open_the_explorer_at_the_question_of_the_slides():
    place = read_rows().start("mmlu")
    link = f"explorer.html#set={place.set}&q={place.qid})"
    assert link in (TEACH / "README.md").read_text("utf-8")
    assert link in (paths.ROOT / "notebooks" / "17_exercises.ipynb").read_text("utf-8")
    assert f"<b>{place.qid}</b>" in slides()
    order = ("<h2>Predict</h2>", "<h2>Predict: is it", "<h2>All questions", "<h2>Is it the")
    at = [slides().index(heading) for heading in order]
    assert at == sorted(at)
    covered = slides()[at[1] : at[2]]
    # The explorer's step 2 has shown the own mimic's row: only the controls are to be guessed.
    told = re.findall(r"<tr><td>(nothing|the question's own).*?<td>[\d.]+ %</td></tr>", covered)
    assert covered.count("<td>?</td>") == 3 and len(told) == 2


def test_the_predicted_table_says_how_far_each_mimic_turns_the_query():
    """By another's mimic less far than by the own, added half the angle between H+ and H−."""
    explored = read_rows()
    rows = re.findall(r"<tr><td>(.*?)</td><td>(\d+)°</td>", slides())
    assert len(rows) == 8 and rows[:4] == rows[4:]

    def median(mimic: str, lam: float) -> float:
        places = [
            Place(name, question["qid"], mimic=mimic, lam=lam)
            for name in ("medqa", "mmlu")
            for question in explored.of(name)
        ]
        return float(np.median([abs(explored.turn(place)[1]) for place in places]))

    turned = [("random", 1.0), ("rotation", 1.0), ("own", 1.0), ("own", -1.0)]
    assert [int(degrees) for _, degrees in rows[:4]] == [round(median(*it)) for it in turned]
    half = np.median([question["c_own"] for n in ("medqa", "mmlu") for question in explored.of(n)])
    assert int(rows[3][1]) == round(float(np.degrees(np.arccos(half))) / 2)


def test_the_class_predicts_before_the_explorer_tells():
    """Slide 9's answers are in the explorer's steps 3 and 4: they stay closed until then."""
    plan = (TEACH / "README.md").read_text("utf-8")
    first, later = re.findall(r"^\| (?:25|40)–.*$", plan, re.M)
    assert "steps 1 and 2 only" in first and "Leave steps 3 and 4 closed" in first
    covered = slides().partition("<h2>Predict: is it")[0].count("<section>")
    assert f"answers of slide {covered}" in first and "open steps 3 and 4" in later


def test_what_the_slide_says_about_the_turn_is_so():
    """Most at c = λ, by arcsin λ, where λ < 1; at λ = 1 a closer mimic turns the query further."""

    def turn(lam: float, c):
        return np.degrees(np.arctan2(lam * np.sqrt(1 - c**2), 1 - lam * c))

    c = np.linspace(0, 0.999, 1000)
    assert (np.diff(turn(1.0, c)) > 0).all() and turn(1.0, 0.0) == pytest.approx(45)
    for lam in (0.2, 0.4, 0.7):
        assert c[turn(lam, c).argmax()] == pytest.approx(lam)
        assert turn(lam, c).max() == pytest.approx(np.degrees(np.arcsin(lam)), abs=1e-3)
    lam, said = re.search(r"by arcsin λ.</b><br>At λ = ([\d.]+): (.*)</p>", slides()).groups()
    pairs = re.findall(r"(\d+)° for c = ([\d.]*\d)", said)
    assert len(pairs) == 3
    assert all(round(turn(float(lam), float(c))) == int(degrees) for degrees, c in pairs)
    told = (TEACH / "solutions.md").read_text("utf-8")
    pairs = re.findall(r"(\d+)° at\s+λ = ([\d.]*\d)", told)
    assert pairs and all(round(float(np.degrees(np.arcsin(float(x))))) == int(d) for d, x in pairs)


def test_the_slides_show_committed_figures_and_ask_no_network_for_anything():
    """They are in the page, so that a copy of the one file has them; no mark is called *yours*."""
    page = slides()
    shown = re.findall(r'<img[^>]* src="data:image/svg.xml;base64,([^"]+)" alt="[^"]{10,}"', page)
    assert len(shown) == page.count("<img") >= 5
    files = (paths.ROOT / "figures" / "mini").glob("*.svg")
    marked = {re.sub(">yours<", ">λ = 0.4<", file.read_text("utf-8")) for file in files}
    drawn = {base64.b64decode(one).decode() for one in shown}
    assert drawn <= marked and not any("yours" in one for one in drawn)
    assert not re.search(r"(src|@import|url\()\W*https?:|<link", page)
