"""The passage store gives back what it was given, in the order of the vectors."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lib.base.files import StaleInput, read_manifest
from lib.data.passages import Passage
from lib.data.store import PassageStore

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
META = st.dictionaries(
    TEXT, st.one_of(TEXT, st.integers(-9, 9), st.none(), st.lists(TEXT)), max_size=3
)
PASSAGES = st.lists(
    st.builds(Passage, TEXT, TEXT, TEXT, TEXT, META), unique_by=lambda p: p.pid, max_size=12
)


def some(n: int) -> list[Passage]:
    return [Passage(f"p{n - i:05d}", f"t{i}", f"text {i}", "s", {"i": i}) for i in range(n)]


@given(PASSAGES, st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_gives_back_what_it_was_given(tmp_path_factory, passages, data):
    path = tmp_path_factory.mktemp("store") / "p.sqlite"
    built = PassageStore.build(path, iter(passages), {"limit": 3})
    assert read_manifest(path)["rows"] == len(passages)
    for store in (built, PassageStore.open(path)):
        assert len(store) == len(passages)
        assert list(store) == passages
        assert store.ids() == [p.pid for p in passages]
        wanted = data.draw(st.lists(st.sampled_from(range(len(passages))))) if passages else []
        asked = [passages[i].pid for i in wanted]
        assert store.get_many(asked) == [passages[i] for i in wanted]


def test_unknown_ids_are_named(tmp_path):
    store = PassageStore.build(tmp_path / "p.sqlite", some(3))
    assert store.get("p00003") == some(3)[0]
    for call in (lambda: store.get("p9"), lambda: store.get_many(["p00001", "p9"])):
        with pytest.raises(KeyError, match="p9"):
            call()


def test_equal_ids_are_refused_and_the_old_store_stays(tmp_path):
    path = tmp_path / "p.sqlite"
    PassageStore.build(path, some(3))
    with pytest.raises(ValueError, match="id 'p0000[12]'"):
        PassageStore.build(path, some(3) + some(2))
    assert list(PassageStore.open(path)) == some(3)
    seen = {p.name for p in tmp_path.iterdir() if not p.name.startswith(".")}
    assert seen == {"p.sqlite", "p.sqlite.manifest.json"}


def test_a_build_that_stops_leaves_nothing(tmp_path):
    def broken():
        yield from some(5)
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        PassageStore.build(tmp_path / "p.sqlite", broken())
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StaleInput, match="run: make data"):
        PassageStore.open(tmp_path / "p.sqlite")


def test_several_threads_read_one_store(tmp_path):
    passages = some(400)
    store = PassageStore.build(tmp_path / "p?#%.sqlite", passages)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda p: store.get(p.pid), passages))
    assert found == passages
