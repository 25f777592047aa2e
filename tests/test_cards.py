"""What says whose this is and what is in it: citation, deposit and data cards agree."""

from __future__ import annotations

import gzip
import json
import re
import tomllib

import pandas as pd
import pytest
import yaml

from lib.base import paths
from lib.base.files import read_jsonl, sha256_file
from lib.pages.render import papers
from tools.croissant import CARD, card

CROISSANT = "run: python -m tools.croissant"


@pytest.fixture(scope="module")
def cited() -> dict:
    return yaml.safe_load((paths.ROOT / "CITATION.cff").read_text(encoding="utf-8"))


def arxiv_ids(works: list[dict]) -> list[str]:
    return [one["value"] for work in works for one in work["identifiers"]]


def test_citation_deposit_and_package_say_the_same(cited):
    deposit = json.loads((paths.ROOT / ".zenodo.json").read_text(encoding="utf-8"))
    package = tomllib.loads((paths.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert cited["version"] == deposit["version"] == package["version"]
    assert cited["license"] == deposit["license"] == package["license"]
    assert cited["date-released"] == deposit["publication_date"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", cited["date-released"])
    assert cited["title"] == deposit["title"] and cited["keywords"] == deposit["keywords"]
    assert [one["name"] for one in cited["authors"]] == [one["name"] for one in deposit["creators"]]
    related = [one["identifier"] for one in deposit["related_identifiers"]]
    assert related == arxiv_ids(cited["references"])


def test_every_work_that_is_tested_is_cited_with_its_authors(cited):
    works = cited["references"]
    assert len(works) == papers()["paper"].nunique() == len(set(arxiv_ids(works)))
    pages = "".join(path.read_text(encoding="utf-8") for path in (paths.ROOT / "docs").glob("*.md"))
    linked = set(re.findall(r"arxiv\.org/abs/([\d.]+)", pages))
    assert linked <= {name.removeprefix("arXiv:") for name in arxiv_ids(works)}
    for work in works:
        assert all({"family-names", "given-names"} <= set(author) for author in work["authors"])
        assert work["year"] and (work.get("url") or work.get("doi"))


def test_the_data_card_has_what_croissant_requires():
    said = json.loads(CARD.read_text(encoding="utf-8"))
    assert said["@type"] == "sc:Dataset"
    assert said["conformsTo"] == "http://mlcommons.org/croissant/1.0"
    assert said["@context"]["cr"] == "http://mlcommons.org/croissant/"
    for name in ("name", "description", "license", "url", "creator", "datePublished", "citeAs"):
        assert said[name], name
    given = {one["@id"]: one for one in said["distribution"]}
    for one in given.values():
        assert one["@type"] == "cr:FileObject" and one["encodingFormat"] and one["contentUrl"]
        assert sha256_file(paths.DATA / one["contentUrl"]) == one["sha256"], CROISSANT
    ids = [field["@id"] for records in said["recordSet"] for field in records["field"]]
    ids += [*given, *(records["@id"] for records in said["recordSet"])]
    assert len(set(ids)) == len(ids)
    for records in said["recordSet"]:
        assert records["@type"] == "cr:RecordSet" and records["field"]
        for field in records["field"]:
            assert field["@type"] == "cr:Field" and field["dataType"].startswith("sc:")
            file = paths.DATA / given[field["source"]["fileObject"]["@id"]]["contentUrl"]
            assert field["source"]["extract"]["column"] in columns_of(file), field["@id"]


def columns_of(file) -> set[str]:
    """The names that every row of a described file has."""
    if file.suffix == ".csv":
        return set(pd.read_csv(file, nrows=0))
    open_ = gzip.open if file.suffix == ".gz" else open
    with open_(file, "rt", encoding="utf-8") as stream:
        return set(json.loads(stream.readline()))


def test_the_data_card_is_what_the_files_make_it():
    assert json.loads(CARD.read_text(encoding="utf-8")) == card(), CROISSANT


def test_every_recording_has_its_writer_and_prompts_on_the_card():
    text = (paths.RECORDINGS / "README.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| ")]
    named = re.findall(r"`([\w*-]+)`", " ".join(row[5] for row in rows if len(row) > 6))
    stems = {path.name.partition(".")[0] for path in paths.RECORDINGS.glob("*.jsonl*")}
    unnamed = {one for one in stems if not any(fits(one, name) for name in named)}
    assert not unnamed, f"say in data/recordings/README.md who wrote {sorted(unnamed)}"
    prompts = {path.stem for path in (paths.ROOT / "lib" / "llm" / "prompts").glob("*.txt")}
    for row in rows[1:]:
        missing = set(re.findall(r"`(\w+)`", row[4])) - prompts
        recorded = any(
            fits(stem, name) for stem in stems for name in re.findall(r"`([\w*-]+)`", row[5])
        )
        assert not (missing and recorded), missing


def fits(stem: str, name: str) -> bool:
    return stem == name or (name.endswith("*") and stem.startswith(name[:-1]))


def test_who_is_named_as_writer_is_who_the_recordings_name():
    models = {
        row["model"]
        for path in paths.RECORDINGS.glob("*.jsonl*")
        if ".times." not in path.name and not path.name.endswith(".json")
        for row in read_jsonl(path)
    }
    text = (paths.RECORDINGS / "README.md").read_text(encoding="utf-8").lower()
    for model in models:
        said = model.removesuffix("-Q4_1").lower()
        assert said in text, model
