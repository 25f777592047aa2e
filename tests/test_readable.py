"""Tables and findings as notebooks show them: in words, with their k, from what was measured."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from lib.base.provenance import read_result
from lib.pages.readable import (
    NAMES,
    by_method,
    plain,
    readable,
    show,
    show_texts,
    wide,
    words,
)
from lib.pages.render import finding
from lib.pages.tables import VERDICTS, audit_list, audit_rows
from lib.plots.figures import turn_rows

TABLE = pd.DataFrame(
    {
        "dataset": ["bioasq", "medqa", "mmlu"],
        "method": ["hplus", "hplus", "chr"],
        "p_at_5": [0.5, 0.25, np.nan],
        "p_at_5_low": [0.4, 0.2, np.nan],
        "p_at_5_high": [0.6, 0.3, np.nan],
        "n": [60.0, 60.0, 60.0],
    }
)


def of(profile: str, name: str) -> pd.DataFrame:
    return read_result(name, profile, committed=True)[0]


def test_a_table_is_shown_in_words_and_stays_as_it_is():
    before = TABLE.copy()
    shown = readable(TABLE)
    assert list(shown) == ["question set", "method", "P@5 (95 % interval)", "n"]
    assert shown["method"].tolist() == ["CHR", "H+ alone", "H+ alone"]
    assert shown["P@5 (95 % interval)"].tolist()[1:] == [
        "0.250 (0.200 to 0.300)",
        "0.500 (0.400 to 0.600)",
    ]
    assert shown["n"].tolist() == ["60", "60", "60"]
    pd.testing.assert_frame_equal(TABLE, before)


def test_question_sets_come_in_the_papers_order_in_rows_and_columns():
    assert readable(TABLE)["question set"].tolist() == ["MMLU-Med", "MedQA", "BioASQ"]
    grid = TABLE.pivot(index="method", columns="dataset", values="n")
    assert list(readable(grid)) == ["MMLU-Med", "MedQA", "BioASQ"]
    two = TABLE.pivot(index="method", columns="dataset", values=["n", "p_at_5"])
    assert list(readable(two).columns)[:3] == [("n", x) for x in ("MMLU-Med", "MedQA", "BioASQ")]


def test_another_k_is_in_the_name():
    for key in NAMES:
        assert "{" not in words(key, 10)
    assert not [name for name in readable(TABLE, k=10) if "@5" in name]


def test_numbers_are_told_as_what_they_are():
    table = pd.DataFrame(
        {
            "lambda": [0.0, 0.4],
            "p": [0.0001, 0.25],
            "hits": [3.0, np.nan],
            "seen": [True, False],
            "year": [1988, 2001],
            "tokens": [147456, 12],
            "difference": [-0.0001, 0.5],
            "low": [-0.2, 0.1],
            "high": [0.2, 0.9],
        }
    )
    first, second = readable(table).to_dict("records")
    assert list(first.values()) == [
        "0",
        "< 0.001",
        "3",
        "yes",
        "1988",
        "147,456",
        "+0.000 (-0.200 to 0.200)",
    ]
    assert second["hits"] == "–" and second["tokens"] == "12"


def test_shares_are_told_in_percent_and_their_differences_in_points():
    table = pd.DataFrame(
        {
            "lambda": [0.0, 1.0],
            "value": [0.517, 0.15],
            "value_low": [0.46, np.nan],
            "value_high": [0.573, np.nan],
            "mimic_at_5": [1.0, 0.035],
            "difference": [-0.0001, 0.367],
            "low": [-0.2, 0.31],
            "high": [0.2, 0.423],
            "p": [0.25, 0.0],
            "n": [300, 300],
        }
    )
    shown = readable(table, percent=True)
    assert "difference, points (95 % interval)" in shown
    first, second = shown.to_dict("split")["data"]
    assert first == [
        "0",
        "51.7 % (46.0 to 57.3)",
        "100.0 %",
        "+0.0 (-20.0 to 20.0)",
        "0.250",
        "300",
    ]
    assert second[1:4] == ["15.0 %", "3.5 %", "+36.7 (31.0 to 42.3)"]
    long = table.assign(arm=["hplus", "chr@1"], set="exams")
    least = readable(pd.DataFrame({"mde": [0.036, 0.079]}), percent=True)
    assert least["smallest detectable difference, points"].tolist() == ["3.6", "7.9"]
    cells = wide(long, "arm", "set", percent=True)["exams"].tolist()
    assert cells == ["51.7 % (46.0 to 57.3)", "15.0 %"]
    points = wide(long, "arm", "set", "difference", percent=True)["exams"].tolist()
    assert points == ["+0.0 (-20.0 to 20.0)", "+36.7 (31.0 to 42.3)"]


def test_methods_stand_in_one_order_and_what_is_no_method_last():
    arms = ["closed_book", "chr+rotation@1", "chr@1", "chr@0.2", "hplus", "hyde", "question"]
    table = pd.DataFrame({"arm": arms})
    ordered = ["question", "hyde", "hplus", "chr@1", "chr@0.2", "chr+rotation@1", "closed_book"]
    assert by_method(table, "arm")["arm"].tolist() == ordered
    assert list(by_method(table.set_index("arm"), "arm").index) == ordered


def test_what_is_found_follows_the_results():
    """Turned round, the same tables say the opposite."""
    profile = "mini"
    quality = of(profile, "retrieval")
    said = finding("retrieval", quality=quality, profile=profile, at=0.4, k=5)
    means = quality.groupby("method")["p_at_5"].mean()
    assert f"P@5 {means['chr']:.3f} against {means['hplus']:.3f}" in said and "finds fewer" in said
    turned = {"chr": "hplus", "hplus": "chr"}
    other = finding(
        "retrieval", quality=quality.replace({"method": turned}), profile=profile, at=0.4, k=7
    )
    assert "finds more" in other and "P@7" in other and "P@5" not in other


def test_the_audit_shows_what_cannot_be_first_and_no_id():
    audit = of("", "audit")
    rows = audit_rows(audit)
    order = [list(VERDICTS).index(verdict) for verdict in rows["verdict"]]
    assert order == sorted(order) and "id" not in rows and len(rows) == len(audit)
    told = audit_list(audit)
    places = [told.index(verdict) for verdict in VERDICTS]
    assert len(places) == 5 and places == sorted(places)
    assert not [name for name in audit["id"] if f">{name}<" in told]
    assert "rouge1" not in told and "ROUGE-1" in told
    assert told.count("<details>") == len(audit)
    # What cannot be is open, the long rest opens on a click.
    folds = re.findall(r'<details( open)? class="verdict"><summary>.*?(\d+) rows', told)
    assert [opened for opened, _ in folds] == [" open"] + [""] * (len(VERDICTS) - 1)
    assert sum(int(rows) for _, rows in folds) == len(audit)


def test_a_finding_without_its_methods_is_not_run():
    quality = of("mini", "retrieval").query("method != 'hplus'")
    said = finding("retrieval", quality=quality, profile="mini", at=0.4, k=5)
    assert said == "**NOT RUN here: H+ alone**, so there is no finding."
    table = of("mini", "table1").query("method != 'chr'")
    assert "NOT RUN here: " in finding("accuracy", table=table, profile="mini", at=0.4)
    assert "NOT RUN" in finding("accuracy", table=table.iloc[:0], profile="mini", at=0.4)
    costs = pd.DataFrame({"method": ["hyde"], "calls": [8.0], "output_tokens": [None], "n": 6})
    assert "NOT RUN here: CHR" in finding("cost", table=costs, who="a model")


def test_how_far_the_query_turns_is_told_of_the_median_pair():
    exams, asked = [0.2, 0.5, 0.9], [0.5, 0.8, 0.8]
    turns = turn_rows({"ddx-mini": [0.1], "real exam questions": exams, "BioASQ": asked})
    said = finding("turns", turns=turns, turned=pd.Series([40.0, 60.0, 80.0]))
    assert "of 3 real exam questions turns away from h+ by 60°" in said  # c = 0.5
    assert "falls from 1 to 0.50" in said and "the query turns by 72°" in said  # c = 0.8
    assert said.endswith("it would turn by 45°.") and set(turns["n"]) == {7}


def test_what_was_declared_of_contrast_and_h_plus_is_counted_by_its_verdicts():
    verdicts = ["AGAINST", "INCONCLUSIVE", "SUPPORTED", "AGAINST"]
    arms, others = ["chr@1", "chr@0.2", "chr@1", "hplus"], ["hplus", "hplus", "hplus", "question"]
    tests = pd.DataFrame({"claim": list("abcd"), "arm": arms, "baseline": others})
    said = finding("tested", tests=tests.assign(verdict=verdicts))
    assert said.startswith("**3 of the 4 declared tests") and "1 came out AGAINST, 1 INC" in said
    assert "1 SUPPORTED (*c*)" in said
    none = finding("tested", tests=tests.assign(verdict="AGAINST"))
    assert "3 came out AGAINST, none INCONCLUSIVE, none SUPPORTED.**" in none


def test_another_form_is_said_to_find_more_only_where_its_interval_leaves_out_0():
    forms = pd.DataFrame({"arm": ["chr@0.2", "margin@0.4"], "lambda": [0.2, 0.4], "n": 9})
    rows = forms.assign(difference=[0.1, 0.2], low=[0.05, -0.1], high=[0.15, 0.5])
    said = finding("variants", forms=rows, rules=rows.iloc[1:], name="mine", k=7)
    assert "Of 2 forms" in said and "1 clearly finds more" in said and "none clearly less" in said
    assert "By P@7 the best is *margin for each passage, λ = 0.4*, +20.0 points" in said
    assert "Of 1 rules for λ none clearly finds more" in said
    nothing = finding(
        "variants", forms=rows.assign(difference=np.nan), rules=rows, name="mine", k=5
    )
    assert "NOT MEASURED" in nothing


# hostile texts ------------------------------------------------------------------------------------

HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</p><iframe src='javascript:alert(1)'>",
    "[click](javascript:alert(1)) ![x](y)",
    "`code` *bold* __strong__ ~~gone~~ | $x$ \\[y\\] &lt;b&gt;",
    "a\n\n# heading\n- item\n\n    code\r\n***",
    "see https://example.org or www.example.org",
    "$$",
    r"$\frac{1}$",
)
ODD = ("", "\u202eright to left", "x" * 100_000)
"""No markup, but unusual."""


class _Seen(HTMLParser):
    """The tags of a page, and the text between them."""

    def __init__(self):
        super().__init__()
        self.tags, self.text = [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def page_of(markup: str) -> _Seen:
    seen = _Seen()
    seen.feed(markup)
    return seen


@pytest.fixture
def shown(monkeypatch) -> list:
    """What is displayed, as objects."""
    found = []
    monkeypatch.setattr("IPython.display.display", found.append)
    return found


@pytest.mark.fault("secrets", "A text that is shown is markup, a script or a formula")
def test_a_text_is_shown_character_for_character(fault, shown):
    for text in HOSTILE + ODD:
        show_texts({"H+": text, text: "a name may be hostile too"})
        seen = page_of(shown[-1].data)
        live = {tag for tag, _ in seen.tags} != {"div", "p", "b"}
        live |= any("src" in attributes for _, attributes in seen.tags)
        fault.came(lost=seen.text.count(text) < 2, wrong=live, said="shown as it is")


@pytest.mark.fault("secrets", "A text that is shown is markup, a script or a formula")
def test_no_cell_of_a_table_and_nothing_above_it_is_markup(fault, shown):
    harmless = {"details", "summary", "table", "thead", "tbody", "tr", "th", "td"}
    for text in HOSTILE:
        shown.clear()
        table = pd.DataFrame({"title": [text, text], "note": [text, "other"], "n": [1, 2]})
        show(table, fold=f"what {text} says")
        markdown, page = (output.data for output in shown)
        assert text not in markdown, "it says one thing in every row, so it stands above"
        live = any(part in markdown for part in ("<", "](", "`", "$", "__", "~~"))
        live |= {tag for tag, _ in page_of(page).tags} != harmless
        fault.came(wrong=live, said="shown as it is")


def test_texts_are_to_the_left_and_numbers_to_the_right(shown):
    table = pd.DataFrame({"method": ["chr", "hplus"], "value": [0.1, np.nan], "n": [3, 4]})
    table = table.assign(low=0.0, high=0.3)
    for one, rows in ((table, 1), (table.set_index("method"), 2)):
        show(one)
        cells = [(tag, a) for tag, a in page_of(shown[-1].data).tags if tag in ("td", "th")]
        left = ["left" in attributes.get("style", "") for _, attributes in cells]
        width = 3 + (one is table)  # what counts the rows, the method, the value, the number
        ours = [True] * (width - 2) + [False] * 2
        assert left == ours * (rows + len(one))


def test_a_price_in_a_table_is_no_formula(monkeypatch):
    seen = []
    monkeypatch.setattr(
        "IPython.display.display",
        lambda it: seen.append(it._repr_html_() if hasattr(it, "_repr_html_") else it.data),
    )
    for text in ("costs $5, not $6", r"\(x\)", r"\[x\]"):
        for table in (pd.DataFrame({"title": [text]}), pd.DataFrame({"n": [1]}, index=[text])):
            for fold in ("", "more"):
                show(table, fold=fold)
                assert "mathjax_ignore" in seen.pop()


def test_plain_is_the_text_once_entities_are_read():
    for text in HOSTILE + ODD:
        assert page_of(plain(text)).text == text
        assert len(plain(text).splitlines()) <= 1 and "://" not in plain(text)
