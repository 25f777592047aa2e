"""A profile is what its file says, merged with its base, and nothing it names is passed over."""

from __future__ import annotations

import math
import re
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from lib import profiles
from lib.base import paths
from lib.base.parameters import LARGEST_LAM, check_k, check_lam, check_limit, one_of
from lib.benchmarks import benchmark_makers
from lib.data.passages import CORPORA
from lib.embed import HashEncoder
from lib.methods import METHODS
from lib.profiles import ROWS, load_profile, methods_of, profile_names, profile_table
from lib.query_spec import SearchSpec
from lib.search.index import DenseIndex
from lib.studies.lambda_sweep.study import pair_table, spectrum_table
from lib.studies.main_tables.cells import NO_RETRIEVAL, RANDOM
from lib.studies.main_tables.controls import CONTROLS
from lib.studies.main_tables.experiment import CHOSEN, NAMED
from lib.studies.rag2.steps import one_question

# the built-in profiles ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", profile_names())
def test_every_profile_names_only_what_there_is(name):
    p = load_profile(name)
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


def test_the_environment_chooses_and_overrides_replace(monkeypatch):
    monkeypatch.delenv("CHR_PROFILE", raising=False)
    assert load_profile().name == "mini"
    monkeypatch.setenv("CHR_PROFILE", "open")
    assert load_profile().name == "open" and load_profile("mini").name == "mini"
    p = load_profile("mini", k=7, lambdas=[0.0, 0.5], limit=None)
    assert (p.k, p.lambdas, p.limit) == (7, (0.0, 0.5), 0)


def test_unknown_profiles_and_fields_say_what_there_is():
    with pytest.raises(ValueError, match="'tiny'; there are: mini, open, paper. Run: make"):
        load_profile("tiny")
    with pytest.raises(ValueError, match="no field 'lamda'.*'lambdas'"):
        load_profile("mini", lamda=1)


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


def test_what_a_notebook_leaves_none_is_the_profiles_own(own):
    mine = own('base = "mini"\nk = 3\nlimit = 40\n')
    p = load_profile(mine, k=None, limit=None)
    assert (p.name, p.k, p.limit) == ("mine", 3, 40)
    assert load_profile(mine, k=9).k == 9
    assert load_profile(mine, limit=7).name == "mine-7"


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
    named = {"corpora", "methods", "generated", "evidence", "name"}
    for field, value in vars(base).items():
        if field not in named:
            assert getattr(mine, field) == value
    found = methods_of(mine)
    assert found["hyde"] == replace(METHODS["hyde"], samples=3, max_tokens=99)
    assert load_profile("mini") == base, "the base is as it was"


OWN = "record:mine.jsonl=openai:org/my-model@http://127.0.0.1:8000/v1"


@pytest.mark.parametrize("base", ["mini", "open"])
def test_an_own_writer_is_never_replaced_by_what_the_base_generated(base, own):
    mine = load_profile(own(f'base = "{base}"\nllm = "{OWN}"\n'))
    assert (mine.llm, mine.generated) == (OWN, {})
    assert mine.title == f"mine: as {base}, texts by org/my-model"
    assert load_profile(base, llm=OWN).generated == {}
    assert load_profile(base, llm=OWN).title == f"{base}, texts by org/my-model"
    said = f'base = "{base}"\ntitle = "ours"\nllm = "{OWN}"\n[generated]\nsample = 3\n'
    assert load_profile(own(said)).generated == {"sample": 3}
    assert load_profile(own(said)).title == "ours"


@pytest.mark.parametrize(
    ("spec", "writer"),
    [
        (OWN, "org/my-model"),
        ("record:a.jsonl=openai:@cf/a:b@https://host/v1?x=y@z", "@cf/a:b"),
        ("record:a.jsonl=small", "small"),
        ("replay:data/recordings/a.jsonl", "data/recordings/a.jsonl"),
        ("record:a.jsonl=openai:", "of the environment"),
    ],
)
def test_a_title_names_the_writer_and_never_its_address(spec, writer, monkeypatch):
    monkeypatch.setenv("CHR_LLM_MODEL", "of the environment")
    assert load_profile("mini", llm=spec).title == f"mini, texts by {writer}"


@pytest.mark.parametrize(
    "changed",
    [
        {"max_tokens": 256},
        {"prompt": "chr_hypotheses_stem", "options_visible": False},
        {"temperature": 0.7, "seed": 3},
        {"question_weight": 0.5, "tower": "query"},
        {"pool": 50},
    ],
    ids=lambda changed: "+".join(changed),
)
def test_h_plus_alone_is_chr_as_it_is_configured_at_lambda_0(changed):
    set_, in_code = replace(load_profile("mini"), methods={"chr": changed}), load_profile("mini")
    for found in (methods_of(set_), methods_of(in_code, chr=changed)):
        assert found["chr"] == replace(METHODS["chr"], **changed)
        assert found["hplus"] == replace(METHODS["hplus"], **changed)
        assert found["hplus"].budget() == found["chr"].budget()
    assert methods_of(replace(set_, skip=("hyde",)))["hplus"].lam == 0


REFUSED = {
    "a field": ("kk = 3", ["'kk'", "there are", "lambdas"]),
    "a field that is nearly one": ("lambdsa = [0.0]", ["'lambdsa'", "did you mean 'lambdas'"]),
    "the name": ('name = "other"', ["'name'"]),
    "a method": ("[methods.hide]\nsamples = 1", ["'hide'", "did you mean 'hyde'", "thinkqe"]),
    "a setting": ("[methods.hyde]\nsample = 1", ["'sample'", "did you mean 'samples'", "hyde"]),
    "a method's name": ('[methods.hyde]\nname = "x"', ["'name'", "hyde"]),
    "a method without a table": ("[methods]\nhyde = 3", ["methods.hyde", "a table", "3"]),
    "a generated method": ("[generated.methods.hide]\nsamples = 1", ["[generated]", "'hide'"]),
    "a generated setting": ("[generated.methods.chr]\nsamples = 2", ["[generated]", "'samples'"]),
    "a generated field": ("[generated]\nmax_tokens = 2", ["[generated]", "'max_tokens'"]),
    "a generated number": ("[generated]\nsample = -1", ["[generated]", "sample", "-1"]),
    "skip": ('skip = ["bm52"]', ["skip", "'bm52'", "did you mean 'bm25'"]),
    "skip as a text": ('skip = "bm25"', ["skip", "a list", "'bm25'"]),
    "what all is compared with": ('skip = ["bm25", "chr"]', ["skip", "chr", "compares"]),
    "another text for H+ alone": ("[methods.hplus]\nmax_tokens = 9", ["H+ alone", "methods.chr"]),
    "another lambda of the paper": ("[methods.chr]\nlam = 0.5", ["lambda, 1", "chr_given"]),
    "a kind of answerer": ('[[answerers]]\nkind = "chats"', ["'chats'", "'chat'", "choice"]),
    "an answerer's setting": ('[[answerers]]\nkind = "chat"\nmax_token = 1', ["'max_tokens'"]),
    "an answerer's workers": ('[[answerers]]\nkind = "chat"\nworkers = 1', ["'workers'"]),
    "a word for a number": ('[methods.hyde]\nsamples = "2"', ["hyde.samples", "integer", "'2'"]),
    "a choice": ('[methods.hyde]\ntower = "doc"', ["hyde.tower", "'query' or 'article'", "'doc'"]),
    "an answerer's number": ('[[answerers]]\nkind = "judged"\nleast = "1"', ["least", "'1'"]),
    "evidence": ('[evidence]\nmodel = "head"', ["[evidence]", "'model'", "nli"]),
    "evidence answerers": ("[[evidence.answerers]]\nall = true", ["[evidence]", "'all'", "every"]),
    "a title that is a number": ("title = 3", ["title", "a text"]),
    "no k": ("k = 0", ["k must be a whole number of at least 1, not 0"]),
    "a true k": ("k = true", ["k must be", "True"]),
    "half a k": ("k = 2.5", ["k must be", "2.5"]),
    "a k in words": ('k = "5"', ["k must be", "'5'"]),
    "a limit below zero": ("limit = -1", ["limit must be", "-1"]),
    "no workers": ("workers = 0", ["workers must be", "at least 1"]),
    "half a sample": ("sample = 0.5", ["sample must be", "0.5"]),
    "no lambdas": ("lambdas = []", ["lambdas", "at least 1"]),
    "an infinite lambda": ("lambdas = [0.0, inf]", ["lam must be", "inf"]),
    "a lambda in words": ('lambdas = ["1"]', ["lam must be", "'1'"]),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_there_is_not_is_refused_in_one_line_that_says_what_there_is(what, own):
    text, said = REFUSED[what]
    with pytest.raises(ValueError) as refused:
        load_profile(own(f'base = "mini"\n{text}\n'))
    message = str(refused.value)
    assert "\n" not in message and "mine" in message
    for part in said:
        assert part in message


def test_a_profile_that_is_not_utf8_is_named(own):
    path = own('base = "mini"\n')
    (paths.ROOT / path).write_bytes('title = "na\u00efve"\n'.encode("latin-1"))
    with pytest.raises(ValueError, match=r"mine\.toml is not UTF-8 .*; save it as UTF-8"):
        load_profile(path)


def test_a_base_that_there_is_not_or_none_at_all(own):
    with pytest.raises(ValueError, match="'mimi'.*did you mean 'mini'.*there are: mini, open"):
        load_profile(own('base = "mimi"\n'))
    with pytest.raises(ValueError, match='does not say title, .*begin it with: base = "mini"'):
        load_profile(own("k = 3\n"))
    for text in ("k = \n", "k = " + "[" * 10_000):
        with pytest.raises(ValueError, match=r"mine\.toml is not TOML"):
            load_profile(own(text))


@pytest.mark.parametrize(
    "name", ["mini.toml", "Mini.toml", "mini-50.toml", "sub/open.toml", "scale.toml"]
)
def test_a_file_whose_results_would_overwrite_others_is_refused(name, own):
    with pytest.raises(ValueError, match="would overwrite.*rename the file"):
        load_profile(own('base = "mini"\nk = 3\n', name))


def test_a_built_in_profile_may_be_named_by_its_file():
    assert load_profile("lib/profiles/mini.toml") == load_profile("mini")


def test_a_file_that_says_nothing_is_its_base_under_its_own_name(own):
    assert load_profile(own('base = "paper"\n')) == replace(load_profile("paper"), name="mine")


# overrides, and settings in code -----------------------------------------------------------------


@pytest.mark.parametrize("k", [0, -2, 2.5, 5.0, True, "5", math.nan])
def test_no_way_leads_around_the_check_of_k(k, own):
    for attempt in (
        lambda: check_k(k),
        lambda: load_profile("mini", k=k),
        lambda: replace(load_profile("mini"), k=k),
    ):
        with pytest.raises(ValueError, match="k must be a whole number of at least 1"):
            attempt()


def test_none_is_no_k_and_a_whole_number_of_numpy_is_one():
    with pytest.raises(ValueError, match="k must be"):
        check_k(None)
    assert check_k(np.int64(7)) == 7 and type(check_k(np.int64(7))) is int


@pytest.mark.parametrize("limit", [-1, 1.5, True, "9"])
def test_a_limit_is_a_whole_number_or_none(limit):
    for attempt in (lambda: check_limit(limit), lambda: load_profile("mini", limit=limit)):
        with pytest.raises(ValueError, match="limit must be a whole number of at least 0"):
            attempt()
    assert check_limit(None) is None and check_limit(0) == 0
    assert load_profile("mini", limit=0).name == "mini"


@pytest.mark.parametrize("lam", [None, "0.4", True, math.nan, math.inf, -math.inf])
def test_a_lambda_is_a_finite_number(lam):
    attempts = (
        lambda: check_lam(lam),
        lambda: load_profile("mini", lambdas=[0.0, lam]),
        lambda: pair_table(None, lam),  # before the study is looked at
    )
    for attempt in attempts:
        with pytest.raises(ValueError, match="lam must be a finite number"):
            attempt()
    with pytest.raises(ValueError, match="threshold must be a finite number"):
        one_question("medqa-22", None, None, None, threshold=lam)


@pytest.mark.fault("waiting", "A notebook's parameter is of no use", "what it has to be")
@pytest.mark.parametrize(
    ("qids", "lam_max", "says"),
    [
        (["nosuch"], 1.4, "no question 'nosuch'; there are: q0, q1"),
        ("q0", 1.4, "ids in a list, such as"),
        ([], 1.4, "ids in a list, such as"),
        (None, -1, "lam_max must be above 0"),
        (None, "1.4", "lam_max must be a finite number"),
    ],
)
def test_the_spectrum_of_a_question_or_lambda_that_there_is_not(qids, lam_max, says):
    study = SimpleNamespace(benchmark=SimpleNamespace(qids=["q0", "q1"]))
    with pytest.raises(ValueError, match=says):
        spectrum_table(study, qids, lam_max)


def test_a_question_that_there_is_not_is_answered_with_what_there_is():
    with pytest.raises(ValueError, match="no question 'q7'.* there are: q0, .* and 60 more$"):
        one_of("a set has no question", "q7", {f"q{i}": i for i in range(0, 200, 2)})
    with pytest.raises(ValueError, match="ddx-mini has no question None; there are: "):
        one_question(None, None, None, None, threshold=0.5)
    with pytest.raises(ValueError, match=r"no question \['medqa-22'\] \(did you mean "):
        one_question(["medqa-22"], None, None, None, threshold=0.5)


def test_a_number_for_a_list_of_questions_is_answered_with_what_a_list_looks_like():
    study = SimpleNamespace(benchmark=SimpleNamespace(qids=["q0", "q1"]))
    with pytest.raises(ValueError, match="questions must be ids in a list, such as"):
        spectrum_table(study, 5, 1.4)


@pytest.mark.parametrize("lam", [1.1e6, 1e39, 1e300, -1e39])
def test_a_lambda_that_leaves_nothing_of_h_plus_is_refused(lam):
    """At 1e39, beyond float32, passages came back in the order of their ids, scored NaN."""
    for attempt in (lambda: check_lam(lam), lambda: SearchSpec(lam=lam)):
        with pytest.raises(
            ValueError, match=r"lam = .* leaves nothing of H\+; it must be at most 1,000,000"
        ):
            attempt()
    assert check_lam(LARGEST_LAM) == 1e6


def test_a_lambda_below_zero_is_a_control_and_said(recwarn):
    for lam in (0, 1, 0.4, np.float32(0.5)):
        assert check_lam(lam) == lam and type(check_lam(lam)) is float
    assert not recwarn
    with pytest.warns(UserWarning, match="lam = -0.4 adds the mimic"):
        assert check_lam(-0.4) == -0.4


def test_settings_of_methods_in_code_are_checked_too():
    mini = load_profile("mini")
    assert methods_of(mini, hyde={"samples": 2})["hyde"].samples == 2
    with pytest.raises(ValueError, match="'hide' .did you mean 'hyde'"):
        methods_of(mini, hide={"samples": 2})
    with pytest.raises(ValueError, match="hyde has no setting 'sample'"):
        methods_of(mini, hyde={"sample": 2})
    with pytest.raises(ValueError, match="'hide'"):
        replace(mini, methods={"hide": {}})


@pytest.mark.parametrize("name", [*ROWS, "CHR", "Random"])
def test_a_method_that_is_called_like_another_row_is_refused(name, monkeypatch):
    """One called "random" was answered with random passages, and each of them counted twice."""
    monkeypatch.setitem(METHODS, name, replace(METHODS["hyde"], name=name))
    with pytest.raises(ValueError, match=f"called '{re.escape(name)}', but.* yours another name"):
        methods_of(load_profile("mini"))


def test_every_row_that_is_no_method_is_refused_as_a_name():
    assert set(ROWS) == {CHOSEN, NAMED, RANDOM, *NO_RETRIEVAL, *CONTROLS}
