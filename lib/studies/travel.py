"""Does the loss at lambda = 1 travel? One thing at a time is changed, and the same arms searched.

The reference is all-MiniLM-L6-v2 by cosine among ``SHARED`` passages, H- as it is written. From
there: another encoder; the inner product of vectors as long as the model makes them; 5,000 to all
passages; less of H-. Whatever the size, the passages that are relevant to the set are there, and
the others are the first by the hash of their ids: a larger corpus holds every smaller one.

Outcomes are measured by a command for each encoder, and kept; the table follows from what is kept.
``mpnet`` and ``e5`` are extras (``make mpnet``, ``make chinese``), and read a sample alone: all
passages would take each of them more than two hours on one core.

    python -m lib.studies.travel minilm mpnet e5      measure again; then the table

All of it is exploratory: intervals, and no tests.
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from lib.base.downloads import load_registry
from lib.base.files import sha256_bytes
from lib.base.paths import RECORDINGS
from lib.base.provenance import make_all_or_reuse, read_result
from lib.benchmarks import load_benchmark
from lib.data.looks import Look
from lib.data.store import PassageStore
from lib.datasets import Question, in_full, load_real
from lib.embed import Encoder, load_encoder
from lib.index_build import build_index, corpus_store, files_of
from lib.llm.chat import tag
from lib.llm.recorder import Recorder
from lib.methods.base import Method
from lib.model_files import minilm_folder, pack_linear_layers, quiet
from lib.profiles import Profile, load_profile
from lib.query_spec import DRAWS, Hypotheses, SearchSpec, with_random_mimics
from lib.run import Retriever
from lib.search.choose import open_dense
from lib.search.contrast import rotation
from lib.search.index import DenseIndex
from lib.search.vectors import encode_small
from lib.stats import long_values, mean_interval, measure, paired
from lib.studies.contradiction.nli import sentences
from lib.studies.lambda_sweep.arms import QUESTION, is_control, name_of
from lib.studies.lambda_sweep.study import hypotheses_of
from lib.studies.masked.pubmedqa import abstracts_of, load_pubmedqa
from lib.studies.masked.texts import KINDS as MASKED
from lib.studies.masked.texts import PUBMEDQA
from lib.studies.real.arms import gold_passages
from lib.studies.real.expansions import KINDS, WRITER
from lib.studies.slhyde.cmedir import E5Encoder
from lib.study import MADE_BY, Arm, Found, Study, make, search_and_measure

CODE = "lib.studies.travel"

SHARED = 5_000
"""The size of the corpus at which encoders, spaces and forms of H- are compared."""

ENCODERS: Mapping[str, tuple[Callable[[], Encoder], Sequence[int]]] = {
    "minilm": (lambda: load_encoder("minilm"), (SHARED, 10_000, 20_000, 40_000, 0)),
    "mpnet": (lambda: load_encoder("mpnet"), (SHARED,)),
    "e5": (E5Encoder, (SHARED,)),
}
"""What opens each encoder, and the sizes of the corpora that it is measured on; 0: all passages."""

COSINE, INNER = "cosine", "inner product"
WRITTEN, FIRST, NAME = "as written", "first sentence", "name"
"""How much of H- is subtracted."""

LAMBDAS = (0.2, 0.4, 0.6, 0.8, 1.0)


def specs() -> list[SearchSpec]:
    """What is compared: the question, H+, contrast, the mimic added, and the two controls at 1."""
    contrast = [SearchSpec(lam=lam) for lam in (*LAMBDAS, -1.0)]
    controls = [SearchSpec(lam=1.0, rotation=True), SearchSpec(lam=1.0, mimic="stranger")]
    return [QUESTION, SearchSpec(), *contrast, *controls]


K = 5
KEYS = ["dataset", "encoder", "space", "size", "mimic"]
PAIR = "H+ and H-"
"""The rows of outcomes that are about no search: c = cos(h+, h-) of each question."""


# the sets -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Questions:
    """A set by question id: hypotheses, relevant passages and, where it is known, the name of what
    H- is about."""

    hypotheses: Mapping[str, Hypotheses]
    targets: Mapping[str, frozenset[str]]
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def gold(self) -> frozenset[str]:
        """The passages that are relevant to any of the questions."""
        return frozenset().union(*self.targets.values())


def recorded_pairs(
    questions: Sequence[Question], method: Method, recording: str
) -> dict[str, Hypotheses]:
    """What a recording has as H+ and H- of each question; RecordingMiss where one is missing."""
    llm = Recorder(None, RECORDINGS / recording, "replay", name=WRITER)
    found = {}
    for question in questions:
        with tag(method=method.name, qid=question.qid):
            request = method.expand(question, llm, lambda request, k: []).request
        if not isinstance(request, Hypotheses):
            raise ValueError(f"{recording} has no usable H+ and H- for {question.qid}")
        found[question.qid] = replace(request, qid=question.qid)
    return found


def bioasq(store: PassageStore) -> Questions:
    """150 yes/no questions with a language model's hypotheses and the experts' snippets.

    H- is the other answer about the same subject, so its subject's name would be the question's
    own: there is no form of the name alone.
    """
    asked = [question for question in in_full(load_real("test")) if question.dataset == "bioasq"]
    pairs = recorded_pairs(asked, KINDS["hypotheses"].method, "real-hypotheses.jsonl.gz")
    gold = gold_passages(store)
    return Questions(pairs, {question.qid: gold[question.qid] for question in asked})


def ddx_fresh(store: PassageStore) -> Questions:
    """173 diseases: H+ is one institute's text, H- that on the disease most like it by MiniLM.

    The pairs are the same for every encoder; the name is the title of the text behind H-.
    """
    benchmark = load_benchmark("ddx-fresh", load_encoder("minilm"))
    title_of = {
        text: benchmark.names[qid][0]
        for text, qid in zip(benchmark.h_plus, benchmark.qids, strict=True)
    }
    nearest = zip(benchmark.qids, benchmark.h_minus["nearest"], strict=True)
    names = {qid: title_of[text] for qid, text in nearest}
    return Questions(hypotheses_of(benchmark), benchmark.targets, names)


def pubmedqa(store: PassageStore) -> Questions:
    """500 titles of abstracts with a language model's hypotheses; an abstract has about two
    passages, so P@5 is .4 at best for most questions."""
    asked = load_pubmedqa()
    pairs = recorded_pairs(asked, MASKED["described"], PUBMEDQA.name)
    return Questions(pairs, abstracts_of(list(pairs), store.ids()))


SETS: Mapping[str, Callable[[PassageStore], Questions]] = {
    "bioasq": bioasq,
    "ddx-fresh": ddx_fresh,
    "pubmedqa": pubmedqa,
}
"""A further set is a function of the passages here; its recording is added to ``RECORDED``."""

RECORDED = ("recordings/real-hypotheses.jsonl.gz", f"recordings/{PUBMEDQA.name}")


def in_form(questions: Questions, form: str) -> dict[str, Hypotheses]:
    """Every question's texts with so much of H-, and random mimics drawn among these."""
    found = {}
    for qid, hypotheses in questions.hypotheses.items():
        target, mimic, question = (
            hypotheses.of(role)[0] for role in ("target", "mimic", "question")
        )
        if form == FIRST:
            mimic = replace(mimic, text=sentences(str(mimic.text))[0])
        elif form == NAME:
            mimic = replace(mimic, text=questions.names[qid])
        found[qid] = replace(hypotheses, texts=(target, mimic, question))
    return with_random_mimics(found)


def nested(pids: Iterable[str], gold: Collection[str], size: int) -> frozenset[str]:
    """``size`` passages: ``gold``, and the first of the others by the hash of their ids; 0: all.

    ValueError where there are more of ``gold`` alone.
    """
    others = [pid for pid in pids if pid not in gold]
    if not size:
        return frozenset(others) | frozenset(gold)
    if size < len(gold):
        raise ValueError(f"{len(gold):,} passages are relevant: a corpus of {size:,} is too small")
    others.sort(key=lambda pid: sha256_bytes(f"travel {pid}".encode()))
    return frozenset(others[: size - len(gold)]) | frozenset(gold)


# one setting --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """Where questions are searched, and with which texts: a collection of arms.

    ``lengths`` has the length of every text's vector where passages are not of length 1 either. A
    query's own length changes no ranking, so h+ - lambda h- then searches as the unit vectors do
    at lambda times the ratio of their lengths.
    """

    retriever: Retriever
    hypotheses: Mapping[str, Hypotheses]
    targets: Mapping[str, frozenset[str]]
    lengths: Mapping[str, float] = field(default_factory=dict)

    @property
    def qids(self) -> list[str]:
        """The questions' ids."""
        return list(self.hypotheses)

    def request(self, spec: SearchSpec, qid: str, draw: int) -> Hypotheses:
        """What a question is searched with by ``spec``."""
        hypotheses = self.hypotheses[qid]
        lam = spec.lam
        if self.lengths and lam:
            mimics = hypotheses.of("mimic", spec.mimic)
            minus, plus = mimics[draw % len(mimics)], hypotheses.of("target")[0]
            lam *= self.lengths[str(minus.text)] / self.lengths[str(plus.text)]
        return replace(hypotheses, spec=replace(spec, lam=lam, draw=draw))


def arms(setting: Setting) -> list[Arm]:
    """An arm for each of ``specs``."""

    def arm(spec: SearchSpec) -> Arm:
        draws = DRAWS if is_control(spec) else 1
        return Arm(name_of(spec), lambda qid, draw: setting.request(spec, qid, draw), draws)

    return [arm(spec) for spec in specs()]


def precision(setting: Setting, found: Found) -> pd.DataFrame:
    """P@5 by question; a question without a direction to search in has found nothing."""
    return measure(found, setting.targets, {}, K)[["p_at_5"]]


def outcomes(setting: Setting, **key: object) -> pd.DataFrame:
    """Every outcome of a setting, with its ``key``: columns ``KEYS``, arm, qid, metric, value."""
    values = search_and_measure(arms, precision, K)(setting)
    cosines = setting.retriever.cosines(list(setting.hypotheses.values()))
    pairs = pd.DataFrame({"c": cosines}, index=setting.qids)
    table = pd.concat([values, long_values(PAIR, pairs)], ignore_index=True)
    size = len(setting.retriever.index)
    return table.assign(**key, size=size)[[*KEYS, "arm", "qid", "metric", "value"]]


def searched_in(index: DenseIndex, encoder: Encoder, pids: Collection[str]) -> Retriever:
    """These passages of an index, to be searched."""
    return Retriever(index.subset(np.isin(index.ids, list(pids))), encoder)


# vectors as long as the model makes them ----------------------------------------------------------


def raw_lengths(texts: Sequence[str]) -> np.ndarray:
    """The lengths of MiniLM's vectors before its last step, which brings all to 1: (n,)."""
    from sentence_transformers import SentenceTransformer

    quiet()
    whole = SentenceTransformer(str(minilm_folder()), device="cpu")
    whole.max_seq_length = 256
    *parts, last = whole
    if type(last).__name__ != "Normalize":
        raise ValueError(f"MiniLM's last step is {type(last).__name__}, no Normalize")
    model = SentenceTransformer(modules=parts, device="cpu")
    pack_linear_layers(model)
    vectors = model.encode(list(texts), batch_size=8, show_progress_bar=False)
    return np.linalg.norm(vectors, axis=1)


def of_length(index: DenseIndex, pids: Sequence[str], lengths: np.ndarray) -> DenseIndex:
    """These passages of an index, their vectors made so long (n,)."""
    vectors = index.vectors(index.rows_of(pids)) * lengths[:, None].astype(np.float32)
    return open_dense([vectors], pids, backend=index.backend)


def lengths_of(
    store: PassageStore, pids: Sequence[str], written: Iterable[Hypotheses]
) -> dict[str, pd.Series]:
    """The lengths of passages by id, and of every H+ and H- by text."""
    pairs = [(one.of("target")[0], one.of("mimic")[0]) for one in written]
    texts = {
        "passages": {passage.pid: passage.text for passage in store.get_many(pids)},
        "H+": {str(plus.text): str(plus.text) for plus, _ in pairs},
        "H-": {str(minus.text): str(minus.text) for _, minus in pairs},
    }
    return {
        name: pd.Series(raw_lengths(list(by_key.values())), index=list(by_key))
        for name, by_key in texts.items()
    }


def by_inner_product(
    index: DenseIndex, encoder: Encoder, store: PassageStore, sets: Mapping[str, Questions]
) -> tuple[list[pd.DataFrame], pd.DataFrame]:
    """The outcomes of each set by the inner product, and how long the vectors are: columns text,
    mean, sd, low and high (2.5 and 97.5 %), n."""
    corpora = {name: nested(store.ids(), one.gold, SHARED) for name, one in sets.items()}
    pids = sorted(frozenset().union(*corpora.values()))
    hypotheses = {name: in_form(one, WRITTEN) for name, one in sets.items()}
    every = [one for of_set in hypotheses.values() for one in of_set.values()]
    lengths = lengths_of(store, pids, every)
    long = of_length(index, pids, lengths["passages"][pids].to_numpy())
    # Other vectors of the same passages need another name: runs are filed by it.
    other = copy.copy(encoder)
    other.fingerprint = f"{encoder.fingerprint}|before its normalisation"
    of_text = lengths["H+"].to_dict() | lengths["H-"].to_dict()
    parts = []
    for name, questions in sets.items():
        place = searched_in(long, other, corpora[name])
        setting = Setting(place, hypotheses[name], questions.targets, of_text)
        key = {"dataset": name, "encoder": "minilm", "space": INNER, "mimic": WRITTEN}
        parts.append(outcomes(setting, **key))
    rows = []
    for name, found in lengths.items():
        low, high = np.percentile(found, [2.5, 97.5])
        row = {"text": name, "mean": found.mean(), "sd": found.std(), "low": low, "high": high}
        rows.append(row | {"n": len(found)})
    return parts, pd.DataFrame(rows)


# measuring, the expensive part --------------------------------------------------------------------


def measured(profile: Profile, name: str, encoder: Encoder) -> dict[str, pd.DataFrame]:
    """The outcomes of one encoder in all its settings, and for MiniLM the lengths of vectors."""
    store, sizes = corpus_store(profile.corpora), ENCODERS[name][1]
    sets = {dataset: find(store) for dataset, find in SETS.items()}
    corpora = {
        (dataset, size): nested(store.ids(), questions.gold, size)
        for dataset, questions in sets.items()
        for size in sizes
    }
    if 0 in sizes:
        index = build_index(store, encoder, backend=profile.backend)
    else:
        pids = sorted(frozenset().union(*corpora.values()))
        items = [(passage.title, passage.text) for passage in store.get_many(pids)]
        vectors = encode_small(items, encoder, "article")
        index = open_dense([vectors], pids, backend=profile.backend)

    parts, made = [], {}
    for (dataset, size), pids_here in corpora.items():
        questions, forms = sets[dataset], [WRITTEN]
        if name == "minilm" and size == SHARED:
            forms += [FIRST, NAME] if questions.names else [FIRST]
        place = searched_in(index, encoder, pids_here)
        for form in forms:
            setting = Setting(place, in_form(questions, form), questions.targets)
            key = {"dataset": dataset, "encoder": name, "space": COSINE, "mimic": form}
            parts.append(outcomes(setting, **key))
    if name == "minilm":
        more, made["travel_lengths"] = by_inner_product(index, encoder, store, sets)
        parts += more
    return made | {f"values_travel_{name}": pd.concat(parts, ignore_index=True)}


def measure_encoder(profile: Profile, name: str) -> None:
    """Measure an encoder and keep its outcomes; what is kept and holds is not measured again."""
    results = [f"values_travel_{name}", *(["travel_lengths"] if name == "minilm" else [])]
    data = [*files_of(profile.corpora), *load_registry("bioasq-"), "pubmedqa-test", *RECORDED]
    encoder = ENCODERS[name][0]()
    origin = {"code": [CODE], "data": data, "encoder": encoder.fingerprint}
    make_all_or_reuse(lambda: measured(profile, name, encoder), results, profile.name, **origin)


# what follows -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kept:
    """The outcomes of all encoders, one table: the study's collection."""

    values: pd.DataFrame
    data: Sequence[str] = ()


def load(_: Profile) -> Kept:
    """What was measured: by this run, else as it is committed."""
    parts = []
    for name in ENCODERS:
        try:
            parts.append(read_result(f"values_travel_{name}", MADE_BY)[0])
        except FileNotFoundError:
            parts.append(read_result(f"values_travel_{name}", MADE_BY, committed=True)[0])
    return Kept(pd.concat(parts, ignore_index=True))


def travel_table(values: pd.DataFrame) -> pd.DataFrame:
    """Every arm's mean P@5 in every setting, and its paired difference to H+ alone.

    Columns: ``KEYS``, band, arm, value, low, high, n, difference, difference_low, difference_high,
    c, turn. ``band`` is "all", and at ``SHARED`` passages by cosine with H- as written also each
    quarter of the questions by c. ``c`` is the mean cos(h+, h-) and ``turn`` the mean degrees
    between h+ and h+ - lambda h-.
    """
    rows = []
    for key, group in values.groupby(KEYS, sort=False):
        setting = dict(zip(KEYS, key, strict=True))
        cosines = group[group["metric"] == "c"].set_index("qid")["value"].sort_index()
        found = group[group["metric"] == "p_at_5"]
        wide = found.pivot(index="qid", columns="arm", values="value").sort_index()
        bands = {"all": cosines.index}
        if setting["mimic"] == WRITTEN and setting["space"] == COSINE and setting["size"] == SHARED:
            bands |= quarters(cosines)
        for band, qids in bands.items():
            about = setting | {"band": band}
            rows += [about | row for row in compared(wide.loc[qids], cosines[qids])]
    table = pd.DataFrame(rows)
    # There lambda is another for each question, by its vectors' lengths.
    table["turn"] = table["turn"].mask(table["space"] == INNER)
    return table


def quarters(cosines: pd.Series) -> dict[str, pd.Index]:
    """The questions by quarters of c, the lowest first; ties by id."""
    order = cosines.sort_values(kind="stable").index
    parts = np.array_split(np.arange(len(order)), 4)
    return {f"quarter {place} of c": order[part] for place, part in enumerate(parts, 1)}


def compared(wide: pd.DataFrame, cosines: pd.Series) -> list[dict]:
    """A row an arm: its mean and its difference to H+ alone, with 95 % intervals.

    ``wide`` has a row a question and a column an arm, ``cosines`` c of the same questions.
    """
    wide = wide.sort_index()
    rows = []
    for spec in specs():
        arm = name_of(spec)
        value, low, high = mean_interval(wide[arm].to_numpy())
        row = {"arm": arm, "value": value, "low": low, "high": high, "n": len(wide)}
        if arm != "hplus":
            against = paired(wide[arm].to_numpy(), wide["hplus"].to_numpy(), tested=False)
            row["difference"] = against["difference"]
            row |= {f"difference_{end}": against[end] for end in ("low", "high")}
        if spec.form == "single" and spec.mimic == "":
            turn = np.abs(rotation(cosines.to_numpy(), spec.lam)).mean()
            row |= {"c": cosines.mean(), "turn": turn}
        rows.append(row)
    return rows


def looks(collection: Kept, _: Mapping[str, pd.DataFrame]) -> list[Look]:
    """The labels of each set, under every setting and arm."""
    values = collection.values[collection.values["metric"] == "p_at_5"]
    arms_of = values[[*KEYS[1:], "arm"]].astype(str).agg(" ".join, axis=1)
    sets = values.groupby("dataset", sort=False)
    return [Look(str(name), rows["qid"], arms_of[rows.index]) for name, rows in sets]


def origin(collection: Kept) -> dict[str, str | None]:
    """What the table depends on: the outcomes, by their text."""
    text = collection.values.to_csv(index=False, float_format="%.3f")
    return {"outcomes": sha256_bytes(text.encode())[:16], "limit": None}


STUDY = Study(
    name="travel",
    code=CODE,
    load=load,
    values={},
    tables=("travel",),
    follow=lambda collection: {"travel": travel_table(collection.values)},
    looks=looks,
    origin=origin,
)


def main(arguments: Sequence[str] | None = None) -> None:
    """``python -m lib.studies.travel minilm mpnet e5``: measure these, then make the table."""
    parser = argparse.ArgumentParser(prog="python -m lib.studies.travel")
    parser.add_argument("encoders", nargs="+", choices=list(ENCODERS))
    profile = load_profile(MADE_BY)
    try:
        for name in parser.parse_args(arguments).encoders:
            measure_encoder(profile, name)
    except FileNotFoundError as problem:
        sys.exit(f"error: {problem}")
    made = make(STUDY, profile, load(profile))
    print(made["travel"].to_string(index=False))


if __name__ == "__main__":
    main()
