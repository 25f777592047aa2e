"""What is generated to be read: README, docs/, the page of results, the log."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess

import pandas as pd
import pytest

from lib.base import paths
from lib.base.files import read_manifest, write_manifest
from lib.base.provenance import write_result
from lib.explorer.rows import Place, read_rows
from lib.pages import __main__ as weave
from lib.pages import render
from lib.pages.render import block, cell, one_family, read
from lib.pages.tables import KS, rag2_over_k, rag2_table_2
from lib.plots.captions import Lookup
from lib.profiles import load_profile, methods_of
from lib.studies.contradiction.labelled import LEAST, TRAINED_ON
from lib.studies.slhyde.study import MARGIN
from lib.studies.slhyde.tasks import LOW_RATE


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A copy of the pages and the committed results, as the whole project of one test."""
    shutil.copytree(paths.ROOT / "docs", tmp_path / "docs")
    for name in ("README.md", "CITATION.cff"):
        shutil.copy(paths.ROOT / name, tmp_path)
    shutil.copytree(
        paths.DATA / "results",
        tmp_path / "data" / "results",
        ignore=shutil.ignore_patterns("cells", "*-[0-9]*"),
    )
    (tmp_path / "notebooks").symlink_to(paths.ROOT / "notebooks")
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(paths, "DATA", tmp_path / "data")
    monkeypatch.delenv("CHR_OUT", raising=False)
    monkeypatch.delenv("CHR_PROFILE", raising=False)
    return tmp_path


def run(monkeypatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["lib.pages", *arguments])
    return weave.main()


def changed(project, name: str, change) -> None:
    """One committed result altered, as if the code had made another one: with its manifest."""
    path = project / "data" / "results" / f"{name}.csv"
    settings = read_manifest(path)["settings"]
    table = pd.read_csv(path)
    change(table)
    table.to_csv(path, index=False)
    write_manifest(path, rows=len(table), settings=settings)


def more(table: pd.DataFrame) -> None:
    table["value_baseline"] += 0.1


def impossible(table: pd.DataFrame) -> None:
    table.loc[table["verdict"] == "CONSISTENT", "verdict"] = "IMPOSSIBLE"


def texts_of(project) -> dict[str, str]:
    """Every page of the project of one test, by its name."""
    files = [project / "README.md", *(project / "docs").glob("*.md")]
    return {paths.shown(path): path.read_text(encoding="utf-8") for path in files}


# README.md and docs/ ------------------------------------------------------------------------------


def test_the_committed_pages_are_what_the_result_files_say():
    assert weave.stale() == []


CHANGES = [
    ("answer", "open/claims_real", more),
    ("cost", "open/passages", lambda table: table.drop(index=0, inplace=True)),
]


@pytest.mark.parametrize("part, name, change", CHANGES, ids=[f"{b}-{n}" for b, n, _ in CHANGES])
def test_a_changed_number_fails_the_check_by_the_name_of_its_page_and_block(
    part, name, change, project, monkeypatch, capsys
):
    changed(project, name, change)
    before = texts_of(project)
    on = [page for page, text in before.items() if f"<!-- begin: {part} -->" in text]
    assert on
    assert run(monkeypatch, "--check") == 1
    told = capsys.readouterr().out.splitlines()
    for page in on:
        assert f"{page}, block {part}: not what the result files say; run: make readme" in told
    assert texts_of(project) == before, "a check writes nothing"


def test_writing_mends_the_blocks_of_every_page_and_leaves_the_prose(project, monkeypatch):
    changed(project, "audit", impossible)
    changed(project, "open/claims_real", more)
    before = texts_of(project)
    assert run(monkeypatch) == 0
    after = texts_of(project)
    mended = {page for page in after if after[page] != before[page]}
    assert mended == {"README.md", "docs/results.md", "docs/audit.md", "docs/letter.md"}
    for page in after:
        assert weave._BLOCK.sub("", after[page]) == weave._BLOCK.sub("", before[page])
    assert weave.stale() == []


@pytest.mark.parametrize("how", ["missing", "altered"])
def test_a_result_that_is_not_whole_names_the_page_the_block_and_the_command(
    how, project, monkeypatch, capsys
):
    path = project / "data/results/open/ddx_fresh_lambda.csv"
    before = texts_of(project)
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes() + b"\n")
    assert run(monkeypatch) == 1
    told = capsys.readouterr().err
    assert "docs/results.md, block story" in told and path.name in told
    assert told.strip().endswith("run: make figures PROFILE=open")
    assert texts_of(project) == before, "all pages are made before one is written"


BEGUN = "<!-- begin: audit -->\n"
MARKERS = [
    (BEGUN, "", "docs/audit.md: .*begun and ended once"),
    (BEGUN, BEGUN.replace("\n", " "), "docs/audit.md: .*begun and ended once"),
    ("audit -->", "audits -->", "docs/audit.md: no block is called audits"),
]


def test_a_block_that_is_not_marked_as_it_must_be_is_named(project, monkeypatch, capsys):
    path = project / "docs" / "audit.md"
    text = path.read_text()
    for old, new, told in MARKERS:
        path.write_text(text.replace(old, new))
        assert run(monkeypatch, "--check") == 1
        assert re.search(told, capsys.readouterr().err)


# what a reader of the pages meets -----------------------------------------------------------------

FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"")


def words_of(text: str) -> int:
    """How many words a page has outside code blocks: tables and generated text, but no address."""
    prose = re.sub(r"<!--.*?-->|\]\([^)]*\)", " ", FENCED.sub("", text), flags=re.DOTALL)
    return len([word for word in prose.split() if re.search(r"\w", word)])


def test_the_readme_has_at_most_a_thousand_words():
    assert words_of((paths.ROOT / "README.md").read_text(encoding="utf-8")) <= 1000


def links_of(page) -> list[str]:
    """Every address on a page that is no other site's."""
    found = LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8")))
    return [a or b for a, b in found if not re.match(r"[a-z]+:", a or b)]


def anchors_of(page) -> set[str]:
    """The names by which the headings of a page are linked to."""
    heads = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_every_link_and_picture_of_a_page_is_there():
    for page, link in [(one, link) for one in weave.pages() for link in links_of(one)]:
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{paths.shown(page)} links to {link}"
        if anchor and "=" not in anchor:  # "#set=…" is a place in the explorer: test_exercises
            assert anchor in anchors_of(target), f"{paths.shown(page)} links to {link}"


def test_every_page_is_reached_from_the_readme_and_leads_back():
    front, *others = weave.pages()
    reached, ahead = set(), [front]
    while ahead:
        page = ahead.pop()
        reached.add(page)
        linked = {(page.parent / link.partition("#")[0]).resolve() for link in links_of(page)}
        ahead += [other for other in others if other in linked - reached]
    assert reached == {front, *others}
    for page in others:
        back = os.path.relpath(front, page.parent)
        assert back in links_of(page), paths.shown(page)


# what the blocks say ------------------------------------------------------------------------------


def rows_of(text: str) -> list[list[str]]:
    """The cells of every table row in a block."""
    lines = (line for line in text.splitlines() if line.startswith("| "))
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


VERDICTS = ("SUPPORTED", "AGAINST", "INCONCLUSIVE")


def declared(study: str) -> pd.DataFrame:
    """The committed primary tests of a study."""
    return read(f"claims_{study}").where(status="primary").table


@pytest.mark.parametrize(
    "study, metric, said",
    [
        (None, None, "Not as tested here"),
        ("open/claims_real", "supports_correct", "In part"),
        ("open/claims_ddx_fresh", "p_at_5", "In part"),
        ("open/claims_real", "supports_wrong", "Not as tested here"),
    ],
)
def test_whether_it_works_follows_from_the_declared_tests(study, metric, said, project):
    """Fewer passages for wrong options alone, without exclusion, are not what is claimed."""

    def held(table):
        primary = table["status"] == "primary"
        table.loc[primary, "verdict"] = "AGAINST"
        some = table.index[primary & (table["metric"] == metric)]
        table.loc[some[:1], "verdict"] = "SUPPORTED"

    for name in ("open/claims_real", "open/claims_ddx_fresh"):
        changed(project, name, held if name == study else lambda table: None)
    assert f"**Does it work? {said}.**" in block("answer")


def test_what_the_first_page_calls_the_surprise_is_in_the_tables():
    """The nearer the mimic that is subtracted, the fewer questions keep support, or are right."""
    found = read("real_arms").where(dataset="exams", metric="supports_correct")
    arms = ("chr@1", "chr+rotation@1", "chr+stranger@1", "hplus")
    kept = [found.get(arm=arm) for arm in arms]
    assert kept == sorted(kept) and len(set(kept)) == 4
    answers = declared("masked").set_index(["arm", "baseline"])
    assert answers.loc[("chr@1", "chr+rotation@1"), "high"] < 0
    fresh = read("ddx_real_lambda").where(subset="all")
    assert fresh.get("p_at_5", arm="chr@1") > fresh.get("p_at_5", arm="chr+rotation@1")


@pytest.mark.parametrize("study", ["masked", "real", "ddx_fresh"])
def test_no_declared_test_finds_a_gain_at_a_small_lambda(study):
    tests = declared(study)
    small = tests[tests["arm"].str.fullmatch(r"chr@0\.\d+") & (tests["baseline"] == "hplus")]
    assert len(small) and "SUPPORTED" not in set(small["verdict"])


def test_declared_tests_are_counted_by_their_verdicts():
    counted = [row for row in rows_of(block("tests")) if row[1].isdecimal()]
    for row, study in zip(counted, ("real", "ddx_fresh", "masked", "masked_pubmedqa"), strict=True):
        counts = declared(study)["verdict"].value_counts()
        wanted = [counts.sum(), *(counts.get(verdict, 0) for verdict in VERDICTS)]
        assert [int(cell) for cell in row[1:]] == wanted


def test_what_one_family_of_tests_would_change_is_said(project):
    """Of all tests on accuracy as one family, instead of three by when they were declared."""
    tests = one_family(Lookup(declared("masked"))).table
    changed_by_it = tests[tests["verdict"] != tests["was"]]
    assert changed_by_it["baseline"].tolist() == ["chr+rotation@1"]
    assert set(changed_by_it["verdict"]) == {"INCONCLUSIVE"}
    assert "1 verdict would change: CHR, λ = 1 against matched rotation" in block("tests")


@pytest.mark.parametrize("page", ["README.md", "docs/letter.md"])
def test_readme_and_letter_count_what_the_first_picture_is_an_example_of(page):
    text = " ".join((paths.ROOT / page).read_text(encoding="utf-8").split())
    words = r"right for (\d+) of 300 exam questions; λ = 1 loses all of it for (\d+)\."
    found, lost = map(int, re.search(words, text).groups())
    view = read_rows()
    counts = [
        view.rights(Place(name, question["qid"]), (0.0, 1.0))
        for name in ("mmlu", "medqa")
        for question in view.of(name)
    ]
    counts = [one for one in counts if one[0]]
    assert (found, lost) == (len(counts), sum(not after for _, after in counts))


def test_the_letter_names_the_address_once_the_owner_has_filled_it_in(project):
    """At one place; until then it says how to answer without one."""
    told, file = block("answering"), project / "CITATION.cff"
    assert "open an issue where you found" in told and "://" not in told
    text = file.read_text(encoding="utf-8")
    own = "https://example.org/chr"
    empty, filled = '# repository-code: "https://..."', f'repository-code: "{own}"'
    file.write_text(text.replace(empty, filled), encoding="utf-8")
    assert f"open an issue at [{own}]({own})" in block("answering")


def test_settings_in_templates_are_those_of_the_code():
    text = (render.TEMPLATES / "notebooks.j2").read_text(encoding="utf-8")
    assert f"low_rate={LOW_RATE:g}, margin={MARGIN:g})" in text
    text = (render.TEMPLATES / "blocks.j2").read_text(encoding="utf-8")
    assert f"interval is above {LEAST}" in text and f'"{TRAINED_ON[1]}" in best["names"]' in text


def test_a_relative_folder_for_results_is_one_of_the_project():
    """Kernels run in notebooks/, where a relative one would be another folder."""
    told = ["make", "-s", "--eval", "told: ; @echo $$CHR_OUT $(CHR_OUT)", "told"]
    run = subprocess.run(
        [*told, "CHR_OUT=build/check"], cwd=paths.ROOT, capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == [str(paths.ROOT / "build" / "check")] * 2


# the page of results, the log ---------------------------------------------------------------------


def test_a_result_nobody_described_is_asked_for(project):
    source = project / "data/results/mini/validity.csv"
    shutil.copy(source, source.with_name("novel.csv"))
    write_manifest(source.with_name("novel.csv"), rows=1, settings={"code": "", "data": ""})
    with pytest.raises(ValueError, match="novel.csv: say what it holds"):
        weave.results_page()


def test_the_log_says_what_was_compared_and_what_was_equal(project, monkeypatch, tmp_path):
    committed, out = project / "data/results/mini", tmp_path / "out"
    made = out / "results" / "mini"
    made.mkdir(parents=True)
    for name in ("validity", "passages", "baselines"):
        shutil.copy(committed / f"{name}.csv", made)
    table = pd.read_csv(made / "baselines.csv")
    table.loc[0, "p_at_5"] += 0.01
    table.to_csv(made / "baselines.csv", index=False)
    monkeypatch.setenv("CHR_OUT", str(out))
    assert run(monkeypatch, "log", "--note", "a test") == 0
    row = weave.log().iloc[-1]
    assert (row["profile"], row["compared"], row["equal"]) == ("mini", "3", "2")
    assert row["note"] == "a test; differ: baselines"
    text = (project / "data/results/log.csv").read_text()
    assert platform.node() not in text and str(tmp_path) not in text
    assert "a test; differ: baselines" in (project / "data/results/README.md").read_text()
    assert run(monkeypatch, "--check") == 0


def test_a_cell_stays_one_cell_of_its_row():
    for text in ("a|b", "a\nb", "a\r\n\r\n| --- |\r# b", "`|`"):
        shown = cell(text)
        assert not re.search(r"[\n\r]", shown) and not re.search(r"(?<!\\)\|", shown)


def test_table_2_of_rag2_is_that_of_the_profile_that_has_its_rows(own_folders):
    columns = {"answerer": "Llama-3-8B-Instruct", "metric": "accuracy"}
    rows = [
        columns | {"dataset": "medqa", "method": method, "value": value}
        for method, value in (("rag2", 0.6), ("medcpt", 0.5))
    ]
    assert set(rag2_table_2("mine")["MedQA, here"]) == {"NOT RUN"}
    write_result(pd.DataFrame(rows), "table1", "mine", code=["lib.pages"], data=[])
    shown = rag2_table_2("mine").set_index("method")
    assert shown["MedQA, here"]["RAG2"] == 60 and shown["MedQA, here"]["MedCPT"] == 50
    assert shown["MedQA, here"]["MedRAG"] == shown["MMLU-Med, here"]["RAG2"] == "NOT RUN"
    assert shown["MedQA, printed"]["RAG2"] == 64.6 and shown["the paper's"]["MedCPT"] == "k=1"


def test_the_figures_over_k_are_rows_of_the_shipped_profile(own_folders):
    shipped = load_profile(str(paths.ROOT / "docs" / "rag2-k.toml"))
    rows = set(methods_of(shipped)) - {*shipped.skip, "chr"}
    assert rows == {f"{method}_k{k}" for method in ("rag2", "rag2_unfiltered") for k in KS}
    assert shipped.k == max(KS)
    columns = {"answerer": "Llama-3-8B-Instruct", "metric": "accuracy", "dataset": "medqa"}
    found = [
        columns | {"method": "rag2_k1", "value": 0.5},
        columns | {"method": "rag2_k8", "value": 0.6},
    ]
    assert (rag2_over_k("mine").filter(like="k = ") == "NOT RUN").all(axis=None)
    write_result(pd.DataFrame(found), "table1", "rag2-k", code=["lib.pages"], data=[])
    shown = rag2_over_k("mine").set_index(["method", "dataset"])
    assert (
        shown.loc[("RAG2", "MedQA"), "k = 1"] == 50 and shown.loc[("RAG2", "MedQA"), "k = 8"] == 60
    )
    assert (shown.filter(like="k = ") == "NOT RUN").sum(axis=None) == 6 * len(KS) - 2
