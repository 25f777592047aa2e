"""What is committed: the same bytes on every machine, and code that runs nothing it has read."""

from __future__ import annotations

import ast
import re

from lib.base import paths
from tests.committed import git

# files -------------------------------------------------------------------------------------------


def test_no_machine_turns_line_ends_of_what_is_committed():
    """git does where it is told to (core.autocrlf): no sha256 of a manifest would hold."""
    turned = [line for line in git("ls-files", "--eol") if "attr/-text" not in line.split()]
    assert not turned, f".gitattributes leaves out {turned[:3]}"


def test_what_is_committed_can_be_unpacked_anywhere():
    """No link that leads out, one file that can be run, and no two names that differ in case."""
    rows = [line.split(maxsplit=3) for line in git("ls-files", "--stage")]
    other = {name: mode for mode, _, _, name in rows if mode != "100644"}
    assert other == {".ci/run": "100755"}
    names = [name for *_, name in rows]
    assert len({name.casefold() for name in names}) == len(names) > 1000
    assert not [name for name in names if not re.fullmatch(r"[\w./+-]+", name, re.ASCII)]


def test_ci_may_read_and_nothing_else():
    """A pull request runs its own code: with no right to write, no secret, and no token kept."""
    folder = paths.ROOT / ".github" / "workflows"
    assert {it.name for it in folder.iterdir()} == {"ci.yml", "site.yml"}
    text = (folder / "ci.yml").read_text(encoding="utf-8")
    assert re.findall(r"permissions:\n((?:  .*\n)+)", text) == ["  contents: read\n"]
    assert "on: [push, pull_request]\n" in text and "secrets" not in text
    assert text.count("uses: actions/checkout@") == text.count("persist-credentials: false") == 1


def test_only_the_job_that_publishes_the_site_may_write_and_it_runs_no_code_of_the_project():
    text = (paths.ROOT / ".github" / "workflows" / "site.yml").read_text(encoding="utf-8")
    before, publish = text.split("  publish:\n")
    assert re.findall(r"permissions:\n((?: +.*: (?:read|write)\n)+)", before) == [
        "  contents: read\n"
    ]
    assert "pull_request" not in text and "secrets" not in text and "write" not in before
    assert "persist-credentials: false" in before
    assert "run:" not in publish and re.findall(r"uses: ([\w/-]+)@", publish) == [
        "actions/deploy-pages"
    ]


# code --------------------------------------------------------------------------------------------

RUNS_WHAT_IT_READS = {
    *("eval", "exec", "compile", "__import__"),
    *("os.system", "os.popen", "torch.load", "joblib.load", "pd.read_pickle", "yaml.load"),
}
"""Calls that can run code that stands in a file or a text."""
MODULES_THAT_RUN_IT = {"pickle", "cPickle", "dill", "joblib", "cloudpickle", "marshal", "shelve"}
OPTIONS_THAT_RUN_IT = {"shell", "allow_pickle", "trust_remote_code"}


def unsafe(text: str) -> list[str]:
    """What in a module could run code that it has read, each with its line."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in RUNS_WHAT_IT_READS or called.endswith(("load_pickle", "read_pickle")):
                found.append(f"{node.lineno}: {called}")
            for option in node.keywords:
                off = isinstance(option.value, ast.Constant) and option.value.value is False
                if option.arg in OPTIONS_THAT_RUN_IT and not off:
                    found.append(f"{node.lineno}: {option.arg}")
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names]
            found += [f"{node.lineno}: {it}" for it in names if it in MODULES_THAT_RUN_IT]
    return found


UNSAFE = (
    "import pickle",
    "from joblib import load",
    "eval(text)",
    "torch.load(file)",
    "pandas.read_pickle(file)",
    "subprocess.run(command, shell=True)",
    "AutoModel.from_pretrained(name, trust_remote_code=True)",
)


def test_no_module_runs_what_it_has_read():
    files = [it for folder in ("lib", "tools") for it in (paths.ROOT / folder).rglob("*.py")]
    found = {paths.shown(it): unsafe(it.read_text()) for it in files}
    assert len(found) > 50
    assert not {name: calls for name, calls in found.items() if calls}
    assert all(map(unsafe, UNSAFE))
    assert not unsafe("np.load(file, allow_pickle=False)\nmodel.eval()\nast.literal_eval(text)")
