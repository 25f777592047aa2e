"""A profile is what its file says, merged with its base, and nothing it names is passed over."""

from __future__ import annotations

import math
import re
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lib import profiles
from lib.base import paths
from lib.base.parameters import LARGEST_LAM, check_k, check_lam, check_limit, one_of
from lib.base.provenance import code_hash
from lib.benchmarks import benchmark_makers
from lib.data.passages import CORPORA
from lib.embed import HashEncoder
from lib.methods import METHODS
from lib.profiles import ROWS, check_names, load_profile, methods_of, profile_names, profile_table
from lib.report import reported
from lib.search.index import DenseIndex
from lib.studies.contradiction.answers import PROMPT
from lib.studies.contradiction.study import settings_of
from lib.studies.main_tables.experiment import CHOSEN, CONTROLS, NAMED, NO_RETRIEVAL, RANDOM

# the built-in profiles ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", profile_names())
def test_every_profile_names_only_what_there_is(name):
    p = load_profile(name)
    check_names(p)
    assert p.name == name and p.title.startswith(f"{name}: ") and p.needs
    assert set(p.corpora) <= set(CORPORA) and set(p.benchmarks) <= set(benchmark_makers())
    assert 0.0 in p.lambdas and 1.0 in p.lambdas and list(p.lambdas) == sorted(p.lambdas)
    kind, _, rest = p.llm.partition(":")
    assert kind in ("replay", "record") and (kind == "record" or any(paths.ROOT.glob(rest)))
    assert p.vectors in ("float32", "float16")
    DenseIndex([HashEncoder(8).encode(["a"])], ["a"], backend=p.backend)
    hash(p.lambdas + p.corpora + p.questions + p.benchmarks + p.devices)  # tuples, not lists


def test_a_field_of_a_profile_is_what_its_file_says():
    text = Path(profiles.__file__).with_name("open.toml").read_text(encoding="utf-8")
    said, p = tomllib.loads(text), load_profile("open")
    assert {k: list(v) if isinstance(v, list) else v for k, v in said.items()} == {
        k: list(v) if isinstance(v, tuple) else v for k, v in vars(p).items() if k != "name"
    }


def test_a_file_beside_the_others_is_a_profile_and_nothing_else_lists_them(tmp_path, monkeypatch):
    assert {"mini", "open", "paper"} <= set(profile_names())
    for name in profile_names():
        shutil.copy(Path(profiles.__file__).with_name(f"{name}.toml"), tmp_path)
    (tmp_path / "large.toml").write_text('base = "open"\ntitle = "large: more of it"\nk = 9\n')
    monkeypatch.setattr(profiles, "_FOLDER", tmp_path)
    assert "large" in profile_names() and "large" in set(profile_table()["profile"])
    assert load_profile("large").k == 9
    with pytest.raises(ValueError, match="'larg'; there are: large, mini"):
        load_profile("larg")


def test_rag2_has_the_contradiction_study_of_mini():
    rag2, mini = load_profile("rag2"), load_profile("mini")
    assert settings_of(mini)["scoring"].items() <= settings_of(rag2)["scoring"].items()
    assert rag2.evidence["name"] == mini.evidence["name"]
    assert rag2.evidence["encoder"] == rag2.evidence["sentence_encoder"] == mini.encoder
    assert rag2.evidence["prompt"] == PROMPT


def test_the_environment_chooses_and_overrides_replace(monkeypatch):
    monkeypatch.delenv("CHR_PROFILE", raising=False)
    assert load_profile().name == "mini"
    monkeypatch.setenv("CHR_PROFILE", "open")
    assert load_profile().name == "open" and load_profile("mini").name == "mini"
    p = load_profile("mini", k=7, lambdas=[0.0, 0.5], limit=None)  # None is the profile's own
    assert (p.k, p.lambdas, p.limit) == (7, (0.0, 0.5), 0)


def test_an_override_gives_results_a_name_of_their_own_and_one_that_changes_nothing_does_not(
    capsys, own_folders
):
    mini = load_profile("mini")
    same = {"k": mini.k, "lambdas": list(mini.lambdas), "llm": mini.llm, "limit": 0}
    assert load_profile("mini", **same) == mini and not capsys.readouterr().err
    assert load_profile("mini", limit=7).name == "mini-7"
    p = load_profile("mini", k=7, lambdas=[0, 0.5])
    assert re.fullmatch("mini-x[0-9a-f]{8}", p.name) and p.title.startswith(mini.title)
    assert "(changed: k = 7, lambdas = (0.0, 0.5))" in p.title
    assert load_profile("mini", lambdas=[0.0, 0.5], k=np.int64(7), limit=0).name == p.name
    names = {load_profile("mini", **given).name for given in ({"k": 7}, {"k": 8}, {"sample": 7})}
    assert len(names | {p.name, mini.name}) == 5
    assert load_profile("mini", k=7, lambdas=[0, 0.5], limit=3).name == f"{p.name}-3"
    assert paths.results(p.name) != paths.results("mini")
    assert str(paths.results(p.name)) in capsys.readouterr().err


PLAYED = """
from types import SimpleNamespace

import pandas as pd

from lib import plots
from lib.base.provenance import make_or_reuse, read_result
from lib.profiles import load_profile

figure = SimpleNamespace(findobj=lambda _: [], savefig=lambda file, **_: file.write_bytes(b"new"))
before, origin = read_result("table1", "mini")
assert len(before) > 100, "what is committed is read where nothing was made"
row = pd.DataFrame({"x": [lam]})
for name in (load_profile(None).name, load_profile(None, k=7).name):
    made = make_or_reuse(lambda: row, "table1", name, code=[], data=[], lam=lam)
    assert read_result("table1", name)[0]["x"].tolist() == [lam]
    plots.save(figure, "00_overview", name, made)
"""


def test_a_notebook_that_is_played_with_overwrites_nothing_committed(tmp_path):
    """Run by papermill in a copy of the project, with another lambda and another k."""
    import nbformat
    import papermill

    for name in ("lib", "data/results", "figures"):
        shutil.copytree(paths.ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("cells"))
    for part in paths.DATA.iterdir():
        if part.name != "results":
            (tmp_path / "data" / part.name).symlink_to(part)
    cells = [nbformat.v4.new_code_cell(source) for source in ("lam = 0.4", PLAYED)]
    cells[0].metadata["tags"] = ["parameters"]
    book, out = tmp_path / "played.ipynb", tmp_path / "out.ipynb"
    kernel = {"name": "python3", "language": "python", "display_name": "Python 3"}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), book)
    before = contents_of(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CHR_OUT", raising=False)
        patch.setenv("CHR_PROFILE", "mini")
        patch.setenv("PYTHONPATH", str(tmp_path))
        how = {"progress_bar": False, "cwd": str(tmp_path)}
        papermill.execute_notebook(str(book), str(out), {"lam": 0.2}, **how)
    after = contents_of(tmp_path)
    assert before.items() <= after.items(), "a committed file was written"
    other = load_profile("mini", k=7).name
    said = out.read_text()
    assert "figures go to build/lab" in said and f"figures to figures/{other}" in said
    new = {str(path.parent.relative_to(tmp_path)) for path in after.keys() - before.keys()}
    assert new == {
        *("build/lab/results/mini", "build/lab/figures/mini"),
        *(f"data/results/{other}", f"figures/{other}"),
    }


def contents_of(project: Path) -> dict[Path, bytes]:
    """The bytes of every file of results and figures, by path."""
    folders = (project / "data" / "results", project / "figures", project / "build")
    return {path: path.read_bytes() for it in folders for path in it.rglob("*") if path.is_file()}


# a profile of one's own --------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path):
    """Write a profile of one's own; gives its path, as a reader would pass it."""

    def write(text: str, name: str = "mine.toml") -> str:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return str(path)

    return write


def test_tables_are_merged_with_the_bases_at_any_depth_and_lists_replace_it(own):
    text = """
base = "mini"
corpora = ["openstax"]
[methods.hyde]
max_tokens = 99
[methods.chr]
question_weight = 0.5
[generated.methods.chr]
max_tokens = 64
[evidence]
nli = "pubmedbert"
"""
    base, mine = load_profile("mini"), load_profile(own(text))
    assert mine.corpora == ("openstax",)
    assert mine.methods == base.methods | {
        "hyde": base.methods["hyde"] | {"max_tokens": 99},
        "chr": {"question_weight": 0.5},
    }
    assert mine.generated["methods"] == base.generated["methods"] | {"chr": {"max_tokens": 64}}
    assert mine.generated["sample"] == base.generated["sample"]
    assert mine.evidence == base.evidence | {"nli": "pubmedbert"}
    named = {"corpora", "methods", "generated", "evidence", "name", "title"}
    assert mine.title == "mine: as mini, but for corpora, methods, generated, evidence"
    for field, value in vars(base).items():
        if field not in named:
            assert getattr(mine, field) == value
    found = methods_of(mine)
    assert found["hyde"] == replace(METHODS["hyde"], samples=3, max_tokens=99)
    assert load_profile("mini") == base, "the base is as it was"


REFUSED = {
    "a field": ("kk = 3", ["'kk'", "there are", "lambdas"]),
    "a method": ("[methods.hide]\nsamples = 1", ["'hide'", "did you mean 'hyde'", "thinkqe"]),
    "a setting": ("[methods.hyde]\nsample = 1", ["'sample'", "did you mean 'samples'", "hyde"]),
    "a method without a table": ("[methods]\nhyde = 3", ["methods.hyde", "a table", "3"]),
    "a generated number": ("[generated]\nsample = -1", ["[generated]", "sample", "-1"]),
    "skip": ('skip = ["bm52"]', ["skip", "'bm52'", "did you mean 'bm25'"]),
    "skip as a text": ('skip = "bm25"', ["skip", "a list", "'bm25'"]),
    "what all is compared with": ('skip = ["bm25", "chr"]', ["skip", "chr", "compares"]),
    "another text for H+ alone": ("[methods.hplus]\nmax_tokens = 9", ["H+ alone", "methods.chr"]),
    "another lambda of the paper": ("[methods.chr]\nlam = 0.5", ["lambda, 1", "chr_given"]),
    "a kind of answerer": ('[[answerers]]\nkind = "chats"', ["'chats'", "'chat'", "choice"]),
    "an answerer's setting": ('[[answerers]]\nkind = "chat"\nmax_token = 1', ["'max_tokens'"]),
    "a part of a sweep": ("[sweep]\ndev = 0.5", ["[sweep]", "an answerer, a dataset, and dev"]),
    "a sweep without test questions": (
        '[sweep]\nanswerer = "x"\ndataset = "medqa"\ndev = 1.0',
        ["[sweep]", "share", "0.25", "1.0"],
    ),
    "a setting of a sweep": ("[sweep]\nanswer = 3", ["[sweep]", "'answer'", "'answerer'"]),
    "a word for a number": ('[methods.hyde]\nsamples = "2"', ["hyde.samples", "integer", "'2'"]),
    "a choice": ('[methods.hyde]\ntower = "doc"', ["hyde.tower", "'query' or 'article'", "'doc'"]),
    "an answerer's number": ('[[answerers]]\nkind = "judged"\nleast = "1"', ["least", "'1'"]),
    "evidence": ('[evidence]\nmodel = "head"', ["[evidence]", "'model'", "nli"]),
    "evidence answerers": ("[[evidence.answerers]]\nall = true", ["[evidence]", "'all'", "every"]),
    "a title that is a number": ("title = 3", ["title", "a text"]),
    "no k": ("k = 0", ["k must be a whole number of at least 1, not 0"]),
    "a limit below zero": ("limit = -1", ["limit must be", "-1"]),
    "no workers": ("workers = 0", ["workers must be", "at least 1"]),
    "no lambdas": ("lambdas = []", ["lambdas", "at least 1"]),
    "a lambda in words": ('lambdas = ["1"]', ["lam must be", "'1'"]),
}


def test_what_there_is_not_is_refused_in_one_line_that_says_what_there_is(own):
    for text, said in REFUSED.values():
        with pytest.raises(ValueError) as refused:
            load_profile(own(f'base = "mini"\n{text}\n'))
        message = str(refused.value)
        assert "\n" not in message and "mine" in message
        for part in said:
            assert part in message


FILES = {
    "k = 3": 'does not say title, .*begin it with: base = "mini"',
    'base = "mimi"': "'mimi'.*did you mean 'mini'.*there are: mini, open",
    "k = ": r"mine\.toml is not TOML",
    'title = "na\xefve"': r"mine\.toml is not UTF-8 .*; save it as UTF-8",
}


def test_a_file_that_is_no_profile_or_would_overwrite_anothers_results_is_named(own, tmp_path):
    for text, says in FILES.items():
        (tmp_path / "mine.toml").write_bytes(text.encode("latin-1"))
        with pytest.raises(ValueError, match=says):
            load_profile(str(tmp_path / "mine.toml"))
    for name in ("Mini.toml", "mini-50.toml", "sub/open.toml", "scale.toml"):
        with pytest.raises(ValueError, match="would overwrite.*rename the file"):
            load_profile(own('base = "mini"\nk = 3\n', name))
    assert load_profile("lib/profiles/mini.toml") == load_profile("mini")


OWN = "record:mine.jsonl=openai:org/my-model@http://127.0.0.1:8000/v1"


def test_an_own_writer_is_never_replaced_by_what_the_base_generated(own):
    base = "open"
    mine = load_profile(own(f'base = "{base}"\nllm = "{OWN}"\n'))
    assert (mine.llm, mine.generated) == (OWN, {})
    assert mine.title == f"mine: as {base}, texts by org/my-model"
    assert load_profile(base, llm=OWN).generated == {}
    assert load_profile(base, llm=OWN).title == f"{base}, texts by org/my-model"
    said = f'base = "{base}"\ntitle = "ours"\nllm = "{OWN}"\n[generated]\nsample = 3\n'
    assert load_profile(own(said)).generated == {"sample": 3}
    assert load_profile(own(said)).title == "ours"
    spec = "record:a.jsonl=openai:@cf/a:b@https://host/v1?x=y@z"  # the address is not repeated
    assert load_profile("mini", llm=spec).title == "mini, texts by @cf/a:b"


def test_h_plus_alone_is_chr_as_it_is_configured_at_lambda_0():
    changed = {"prompt": "chr_hypotheses_stem", "options_visible": False, "question_weight": 0.5}
    mini = load_profile("mini")
    in_file = replace(mini, methods={"chr": changed})
    for found in (methods_of(in_file), methods_of(mini, chr=changed)):
        assert found["chr"] == replace(METHODS["chr"], **changed)
        assert found["hplus"] == replace(METHODS["hplus"], **changed)
        assert found["hplus"].lam == 0
    with pytest.raises(ValueError, match="hyde has no setting 'sample'"):
        methods_of(mini, hyde={"sample": 2})


# a method of one's own ---------------------------------------------------------------------------

ROCCHIO = paths.ROOT / "tests" / "rocchio.py"


def test_a_profile_takes_methods_from_files_beside_it_or_in_the_project(own, tmp_path, monkeypatch):
    """As a list each is called as its class says; in a table by its key, with settings."""
    base = load_profile("mini")
    (tmp_path / "beside.py").write_text(ROCCHIO.read_text(encoding="utf-8"))
    for named in ("beside.py:Rocchio", "tests/rocchio.py:Rocchio", f"{ROCCHIO}:Rocchio"):
        mine = load_profile(own(f'base = "mini"\nmethods = ["{named}"]\n'))
        found = methods_of(mine)
        assert list(found) == [*methods_of(base), "rocchio"]
        assert found["hyde"].samples == base.methods["hyde"]["samples"], "settings are the base's"
        assert methods_of(mine, rocchio={"depth": 9})["rocchio"].depth == 9
        # What a model really writes is measured for it too.
        assert "rocchio" in methods_of(replace(mine, **mine.generated, generated={}))
    text = """
base = "mini"
skip = ["second"]
[methods.hyde]
samples = 2
[methods.first]
file = "beside.py:Rocchio"
depth = 3
[methods.second]
file = "beside.py:Rocchio"
"""
    found = methods_of(load_profile(own(text)))
    assert (found["first"].name, found["first"].depth, found["hyde"].samples) == ("first", 3, 2)
    assert "second" not in found and "rocchio" not in found
    monkeypatch.chdir(tmp_path)
    added = load_profile("mini", methods=["beside.py:Rocchio"])
    assert methods_of(added)["hyde"] == methods_of(base)["hyde"] and "rocchio" in methods_of(added)
    assert "rocchio" not in METHODS and list(methods_of(base)) == list(METHODS), "its alone"


def test_a_method_is_run_once_more_like_another_with_other_settings(own):
    """From the shipped defaults, not from what the profile sets for the other."""
    text = """
base = "mini"
[methods.hyde]
samples = 2
[methods.hyde_hot]
like = "hyde"
temperature = 1.0
"""
    mine = load_profile(own(text))
    found = methods_of(mine)
    assert list(found) == [*methods_of(load_profile("mini")), "hyde_hot"]
    assert found["hyde_hot"] == replace(METHODS["hyde"], name="hyde_hot", temperature=1.0)
    assert found["hyde"] == replace(METHODS["hyde"], samples=2) and "hyde_hot" not in METHODS
    assert "hyde_hot" in methods_of(replace(mine, **mine.generated, generated={}))
    for added, says in (
        ('[methods.hyde_hot]\nlike = "hide"', "hyde_hot is like no method 'hide'.*'hyde'"),
        ('[methods.csqe]\nlike = "hyde"', "another method is called 'csqe'.*another name"),
        ('[methods.random]\nlike = "hyde"', "'random'.*row"),
        ('[methods.hot]\nlike = "hyde"\nheat = 1', "hot has no setting 'heat'"),
    ):
        with pytest.raises(ValueError, match=says):
            load_profile(own(f'base = "mini"\n{added}\n'))


def test_a_method_like_one_that_the_profile_adds_has_its_settings_too(own):
    mine = own('base = "rag2"\n[methods.rag2_k1]\nlike = "rag2"\nread = 1')
    found = methods_of(load_profile(mine))
    assert found["rag2_k1"] == replace(found["rag2"], name="rag2_k1", read=1)
    assert found["rag2"].read is None
    with pytest.raises(ValueError, match="is like no method"):
        load_profile(own('base = "mini"\n[methods.a]\nlike = "b"\n[methods.b]\nlike = "a"'))


def test_in_paper_a_method_has_two_budgets_where_table_3_is_not_the_originals():
    """Beside the originals' a text of 512 tokens, one call, three calls without thinking."""
    found = methods_of(load_profile("paper"))
    printed = reported("table3_cost").pivot(index="method", columns="metric", values="value")
    for name, shown in (
        ("hyde", "HyDE"),
        ("query2doc_table3", "Query2Doc"),
        ("csqe_table3", "CSQE"),
        ("thinkqe_table3", "ThinkQE"),
        ("chr", "CHR"),
    ):
        budget = found[name].budget()
        calls, tokens = printed.loc[shown, ["llm_calls", "output_tokens"]]
        assert budget.texts == calls and tokens / 1.1 <= budget.texts * budget.max_tokens, name
    originals = {name: METHODS[name] for name in ("hyde", "query2doc", "csqe")}
    assert originals.items() <= found.items()
    # CHR and its H+ alone ask by the paper's Figure 2, and differ in nothing else.
    for name in ("chr", "hplus"):
        assert found[name] == replace(METHODS[name], prompt="chr_hypotheses_described")
    thinks = found["thinkqe"]
    assert (thinks.thinking, thinks.samples, thinks.rounds) == ("prompted", 2, 3)
    assert found["thinkqe_table3"].thinking == "none"


def test_a_file_that_registers_its_method_or_changes_is_taken_as_it_stands(own, tmp_path):
    file = tmp_path / "mine.py"
    text = ROCCHIO.read_text(encoding="utf-8").replace("depth: int = 5", "depth: int = 1")
    file.write_text(f"{text}\n\nfrom lib.methods import register\n\nregister(Rocchio())\n")
    profile = load_profile(own('base = "mini"\nmethods = ["mine.py:Rocchio"]\n'))
    first = methods_of(profile)["rocchio"]
    before = code_hash([type(first).__module__])
    file.write_text(text.replace("depth: int = 1", "depth: int = 2"))
    second = methods_of(profile)["rocchio"]
    assert (first.depth, second.depth) == (1, 2) and "rocchio" not in METHODS
    # Results of the one are not results of the other; those of the first are still the first's.
    assert before == code_hash([type(first).__module__]) != code_hash([type(second).__module__])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.py", "mine.toml"]


NO_METHOD = "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass Mine:\n    "
OWN_REFUSED = {
    "no file": ("", 'methods = ["other.py:Mine"]', ["no file other.py"]),
    "no class": ("a = 1", 'methods = ["mine.py:Mine"]', ["mine.py:Mine", "no class Mine"]),
    "no class named": ("", 'methods = ["mine.py"]', ["'mine.py'", '"file.py:Class"']),
    "a choice of methods": ("", 'methods = ["hyde"]', ["'hyde'", "skip"]),
    "a text": ("", 'methods = "mine.py:Mine"', ["methods", "mine.py:Mine"]),
    "an import": ("import nothing_here", 'methods = ["mine.py:Mine"]', ["mine.py", "nothing_here"]),
    "no Python": ("class Mine(", 'methods = ["mine.py:Mine"]', ["mine.py", "SyntaxError"]),
    "no dataclass": ("class Mine: pass", 'methods = ["mine.py:Mine"]', ["mine.py", "@dataclass"]),
    "fields": (
        f"{NO_METHOD}name: str = 'mine'",
        'methods = ["mine.py:Mine"]',
        ["mine.py", "needs_llm", "options_visible", "budget()", "expand()", "lib/methods/base.py"],
    ),
    "no default": (f"{NO_METHOD}name: str", 'methods = ["mine.py:Mine"]', ["mine.py", "'name'"]),
    "a name that is taken": (
        ROCCHIO.read_text(encoding="utf-8").replace('"rocchio"', '"hyde"'),
        'methods = ["mine.py:Rocchio"]',
        ["mine.py:Rocchio", "'hyde'", "another name"],
    ),
    "two of a name": (
        ROCCHIO.read_text(encoding="utf-8"),
        'methods = ["mine.py:Rocchio", "tests/rocchio.py:Rocchio"]',
        ["two methods", "'rocchio'"],
    ),
    "a row's name": (
        ROCCHIO.read_text(encoding="utf-8"),
        '[methods.random]\nfile = "mine.py:Rocchio"',
        ["'random'", "row", "another name"],
    ),
    "a setting of its own": (
        ROCCHIO.read_text(encoding="utf-8"),
        '[methods.rocchio]\nfile = "mine.py:Rocchio"\ndeep = 3',
        ["rocchio has no setting 'deep'", "depth"],
    ),
}


@pytest.mark.parametrize("case", OWN_REFUSED)
def test_an_own_method_that_cannot_be_one_is_refused_in_a_line_that_names_its_file(
    case, own, tmp_path
):
    python, toml, says = OWN_REFUSED[case]
    (tmp_path / "mine.py").write_text(python)
    with pytest.raises(ValueError) as refused:
        load_profile(own(f'base = "mini"\n{toml}\n'))
    message = str(refused.value)
    assert "\n" not in message and "profile mine" in message
    for part in says:
        assert part in message


# parameters --------------------------------------------------------------------------------------

ODD = (None, "5", True, math.nan, math.inf, -math.inf)
TRIES = {
    "k must be a whole number of at least 1": (check_k, (0, -2, 2.5, 5.0, *ODD)),
    "limit must be a whole number of at least 0": (check_limit, (-1, 1.5, *ODD[1:])),
    "lam must be a finite number": (check_lam, ODD),
    r"leaves nothing of H\+; it must be at most 1,000,000": (check_lam, (1.1e6, 1e39, -1e39)),
    "no field 'lamda'.*'lambdas'": (lambda it: load_profile(lamda=it), (1,)),
    "no question .* there are: q0, q1": (
        lambda it: one_of("no question", it, QIDS),
        ("q7", ["q0"]),
    ),
}
QIDS = {"q0": 0, "q1": 1}


@pytest.mark.fault("waiting", "A notebook's parameter is of no use", "what it has to be")
@pytest.mark.parametrize("says", TRIES)
def test_a_parameter_that_is_of_no_use_is_refused_with_what_it_has_to_be(says):
    check, values = TRIES[says]
    for value in values:
        with pytest.raises(ValueError, match=says):
            check(value)


def test_a_parameter_is_what_it_says_and_a_lambda_below_zero_is_said(recwarn):
    assert check_k(np.int64(7)) == 7 and type(check_k(np.int64(7))) is int
    assert check_limit(None) is None and check_limit(0) == 0
    for lam in (0, 1, 0.4, np.float32(0.5), LARGEST_LAM):
        assert check_lam(lam) == lam and type(check_lam(lam)) is float
    assert not recwarn
    with pytest.warns(UserWarning, match="lam = -0.4 adds the mimic"):
        assert check_lam(-0.4) == -0.4
    for checked in (lambda: load_profile(k=0), lambda: replace(load_profile(), k=0)):
        with pytest.raises(ValueError, match="k must be a whole number"):
            checked()


def test_a_method_that_is_called_like_another_row_is_refused(monkeypatch):
    """One called "random" was answered with random passages, and each of them counted twice."""
    assert set(ROWS) == {CHOSEN, NAMED, RANDOM, *NO_RETRIEVAL, *CONTROLS}
    for name in (*ROWS, "CHR", "Random"):
        with monkeypatch.context() as patch:
            patch.setitem(METHODS, name, replace(METHODS["hyde"], name=name))
            with pytest.raises(ValueError, match=f"called '{re.escape(name)}', but.* another name"):
                methods_of(load_profile("mini"))
