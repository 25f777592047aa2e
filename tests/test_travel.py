"""Does the loss travel: samples of a corpus, less of a mimic, and vectors of unequal length."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from lib.base.provenance import differences, read_result
from lib.data.looks import look_key, read_looks
from lib.embed import HashEncoder
from lib.profiles import load_profile
from lib.query_spec import DRAWS, Hypotheses, SearchSpec, Text
from lib.run import Retriever
from lib.search.index import DenseIndex
from lib.studies import travel
from lib.studies.lambda_sweep.arms import name_of

WORDS = [f"word{i}" for i in range(40)]
ENCODER = HashEncoder(64)


def texts(generator: np.random.Generator, count: int) -> list[str]:
    """Different texts of twelve words each."""
    return [f"{i}x " + " ".join(generator.choice(WORDS, 12)) for i in range(count)]


def pair(qid: str, target: str, mimic: str) -> Hypotheses:
    """A question with its two hypotheses."""
    asked = Text(f"is it {qid}", 0.0, "query", "question")
    return Hypotheses((Text(target, role="target"), Text(mimic, role="mimic"), asked), qid=qid)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Vectors of made texts are kept apart."""
    monkeypatch.setenv("CHR_CACHE", str(tmp_path))


def test_inner_product_of_unequal_lengths_is_what_brute_force_finds():
    """The search with unit texts at a scaled lambda is that of h+ - lambda h- as long as they are,
    against passages as long as they are."""
    generator = np.random.default_rng(0)
    ids = [f"p{i:03d}" for i in range(80)]
    unit = ENCODER.encode(texts(generator, 80), "article")
    long = unit * generator.uniform(0.3, 3, (80, 1)).astype(np.float32)
    pairs = {f"q{i}": pair(f"q{i}", *texts(generator, 2)) for i in range(8)}
    questions = travel.Questions(pairs, {qid: frozenset(ids[:3]) for qid in pairs})
    hypotheses = travel.in_form(questions, travel.WRITTEN)
    every = sorted({str(t.text) for h in hypotheses.values() for t in h.texts})
    lengths = dict(zip(every, generator.uniform(0.3, 3, len(every)).tolist(), strict=True))
    index = travel.of_length(
        DenseIndex([unit], ids), ids, np.linalg.norm(long, axis=1).astype(np.float64)
    )
    setting = travel.Setting(Retriever(index, ENCODER), hypotheses, questions.targets, lengths)

    def vector(text: Text) -> np.ndarray:
        return ENCODER.encode([text.text])[0].astype(float) * lengths[str(text.text)]

    for qid, own in hypotheses.items():
        for spec in (SearchSpec(), *(SearchSpec(lam=lam) for lam in travel.LAMBDAS)):
            (target,), (mimic,) = own.of("target"), own.of("mimic")
            query = vector(target) - spec.lam * vector(mimic)
            (hits,) = setting.retriever.search_many([setting.request(spec, qid, 0)], 5)
            assert hits.ids[0].tolist() == brute_force(long, ids, query), (qid, spec.lam)
        for draw, stranger in enumerate(own.of("mimic", "stranger")):
            query = vector(own.of("target")[0]) - vector(stranger)
            asked = setting.request(SearchSpec(lam=1.0, mimic="stranger"), qid, draw)
            (hits,) = setting.retriever.search_many([asked], 5)
            assert hits.ids[0].tolist() == brute_force(long, ids, query), (qid, draw)


def brute_force(passages: np.ndarray, ids: list[str], query: np.ndarray) -> list[str]:
    """The five passages with the largest inner product, each computed on its own."""
    scores = [float(np.dot(passage.astype(float), query)) for passage in passages]
    return [ids[i] for i in np.argsort(-np.array(scores), kind="stable")[:5]]


def test_a_larger_corpus_holds_every_smaller_one_and_what_is_relevant():
    pids = [f"c:{i}" for i in range(400)]
    gold = set(pids[7:400:29])
    sizes = (20, 60, 61, 200, 0)
    corpora = [travel.nested(pids, gold, size) for size in sizes]
    assert [len(corpus) for corpus in corpora] == [20, 60, 61, 200, 400]
    for smaller, larger in zip(corpora, corpora[1:], strict=False):
        assert gold <= smaller <= larger
    # Neither the order of the corpus nor another set's relevant passages move a draw.
    assert travel.nested(reversed(pids), gold, 60) == corpora[1]
    others = travel.nested(pids, {pids[0]}, 200) - gold - {pids[0]}
    assert len(others ^ (corpora[3] - gold - {pids[0]})) <= len(gold) + 1
    with pytest.raises(ValueError, match="too small"):
        travel.nested(pids, gold, len(gold) - 1)


def test_less_of_a_mimic_is_its_own_first_sentence_or_its_name():
    first = "C. difficile is treated by fidaxomicin, i.e. a macrolide of 3.5 kDa."
    pairs = {
        "a": pair("a", "Gout. It hurts.", f"{first} It is tempting."),
        "b": pair("b", "x", "y"),
    }
    questions = travel.Questions(pairs, {}, {"a": "Clostridium", "b": "Yersinia"})
    for form, expected in (
        (travel.WRITTEN, f"{first} It is tempting."),
        (travel.FIRST, first),
        (travel.NAME, "Clostridium"),
    ):
        found = travel.in_form(questions, form)
        assert [t.text for t in found["a"].of("mimic")] == [expected]
        assert [t.text for t in found["a"].of("target")] == ["Gout. It hurts."]
        # The control has as little of another question's mimic.
        assert [t.text for t in found["b"].of("mimic", "stranger")] == [expected]


def outcomes_of(cosines: dict[str, float], better: float) -> pd.DataFrame:
    """Outcomes of one setting, in which H+ finds ``better`` more than contrast at 1."""
    rows = []
    for qid, c in cosines.items():
        rows.append((travel.PAIR, qid, "c", c))
        for spec in travel.specs():
            value = 0.2 if name_of(spec) == "chr@1" else 0.2 + better
            rows.append((name_of(spec), qid, "p_at_5", value))
    table = pd.DataFrame(rows, columns=["arm", "qid", "metric", "value"])
    setting = {"dataset": "made", "encoder": "minilm", "space": travel.COSINE}
    return table.assign(**setting, size=travel.SHARED, mimic=travel.WRITTEN)


def test_the_table_has_every_question_in_one_quarter_and_differences_to_h_plus():
    cosines = {f"q{i:02d}": 0.5 + 0.4 * ((7 * i) % 22) / 21 for i in range(22)}
    table = travel.travel_table(outcomes_of(cosines, better=0.6))
    at_one = table[table["arm"] == "chr@1"].set_index("band")
    assert at_one["n"].to_dict() == {"all": 22} | dict(
        zip([f"quarter {i} of c" for i in (1, 2, 3, 4)], (6, 6, 5, 5), strict=True)
    )
    assert np.allclose(at_one["difference"], -0.6)
    ordered = at_one["c"].drop("all")
    assert ordered.is_monotonic_increasing
    weights = at_one["n"].drop("all")
    assert np.isclose(np.average(ordered, weights=weights), np.mean(list(cosines.values())))
    # At lambda 1 the query turns by 90 degrees less half the angle of the pair.
    turns = 90 - np.degrees(np.arccos(list(cosines.values()))) / 2
    assert np.isclose(at_one.loc["all", "turn"], turns.mean())
    assert table.loc[table["arm"] == "hplus", "difference"].isna().all()


def test_a_set_is_searched_by_every_arm_and_controls_are_means_of_their_draws():
    generator = np.random.default_rng(1)
    ids = [f"p{i:03d}" for i in range(60)]
    index = DenseIndex([ENCODER.encode(texts(generator, 60), "article")], ids)
    pairs = {f"q{i:02d}": pair(f"q{i:02d}", *texts(generator, 2)) for i in range(DRAWS + 5)}
    questions = travel.Questions(pairs, {qid: frozenset(ids[i::9]) for i, qid in enumerate(pairs)})
    place = travel.searched_in(index, ENCODER, travel.nested(ids, questions.gold, 0))
    setting = travel.Setting(place, travel.in_form(questions, travel.WRITTEN), questions.targets)
    table = travel.outcomes(setting, dataset="made", encoder="hash", space="cosine", mimic="w")
    counted = table.groupby("arm")["qid"].nunique()
    assert counted.to_dict() == dict.fromkeys([*map(name_of, travel.specs()), travel.PAIR], 25)
    drawn = table.loc[table["arm"] == "chr+stranger@1", "value"]
    assert np.allclose(drawn * 5 * DRAWS, np.round(drawn * 5 * DRAWS))
    assert (table["size"] == 60).all()


def test_the_committed_table_follows_from_what_is_kept_and_its_look_is_in_the_ledger():
    kept = travel.load(load_profile("open"))
    committed, _ = read_result("travel", "open", committed=True)
    assert not differences(committed, travel.travel_table(kept.values))
    # Every encoder was measured on every set, at the size at which they are compared.
    shared = committed[committed["size"] == travel.SHARED]
    assert set(zip(shared["dataset"], shared["encoder"], strict=True)) == {
        (dataset, encoder) for dataset in travel.SETS for encoder in travel.ENCODERS
    }
    noted = set(read_looks()["hash"])
    assert {look_key(travel.STUDY.name, look) for look in travel.looks(kept, {})} <= noted
