"""The study of masked answers: the answerer is validated, dev chooses, the test half is read once.

Every arm of a half is searched and measured by what its five passages name; those that the answerer
read have accuracy too. ``masked-answers.jsonl.gz`` has what it said, request by request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pandas as pd

from lib.base.downloads import load_registry
from lib.base.paths import DATA, JUDGMENTS
from lib.data.judgments import shown_text
from lib.data.looks import Look
from lib.data.passages import Passage
from lib.datasets import EXAMS, Question
from lib.embed import load_encoder
from lib.index_build import files_of
from lib.llm.chat import ChatModel
from lib.llm.recorder import RecordingMiss
from lib.methods.base import Expansion
from lib.open_retriever import open_retriever
from lib.profiles import Profile, load_profile
from lib.run import Retriever
from lib.stats import Pair, claims, mean_interval
from lib.studies.masked import TABLES
from lib.studies.masked.answering import METRICS, answer, answer_openly, mask_of
from lib.studies.masked.arms import (
    LAMBDAS,
    NEIGHBOURS,
    NOTHING,
    PAPER,
    RECIPES,
    arms,
    bases_of,
)
from lib.studies.masked.instrument import (
    AGAIN,
    instrument_table,
    instrument_values,
    is_instrument,
    items,
    unmasked,
)
from lib.studies.masked.mask import NAMES
from lib.studies.masked.sample import SAMPLE, Part, load_masked
from lib.studies.masked.texts import files, recorded, written_for
from lib.study import DECLARATIONS, Found, Study, declared_pairs, means, search_arms

TOP = 5
"""Passages that the answerer reads."""

CHOICES = DATA / "masked" / "choices.csv"
"""What dev chose: name, value. Written before a text about a test question was."""

DEV_LAMBDAS: Mapping[str, Sequence[float]] = {"described": LAMBDAS, "held": LAMBDAS}
NOT_ON_DEV = (NOTHING, "random")
"""Arms that choose nothing, and are not read on dev."""


@dataclass(frozen=True)
class Half:
    """One half of the sample: questions, what was written about them, and where to search."""

    questions: Sequence[Question]
    retriever: Retriever
    at: Mapping[str, Sequence[float]]
    written: Mapping[str, Mapping[str, Expansion]] = field(default_factory=dict)

    @classmethod
    def open(cls, part: Part, retriever: Retriever, at: Mapping[str, Sequence[float]]) -> Half:
        """A half, with contrast at the lambdas ``at``, by who wrote the hypotheses."""
        questions = load_masked(part)
        return cls(questions, retriever, at, written_for(questions, search=retriever.search))

    @cached_property
    def found(self) -> dict[str, Found]:
        """What each arm finds, by arm and question id."""
        qids = [question.qid for question in self.questions]
        asked = arms(bases_of(self.questions, self.written), self.at)
        every = search_arms(asked, qids, self.retriever, TOP)
        return {name: found for name, (found,) in every.items()}

    def shown(self) -> Iterator[tuple[str, Question, list[Passage]]]:
        """Every arm's passages of every question that it found some for; ``none`` has none."""
        store = self.retriever.store
        for question in self.questions:
            yield NOTHING, question, []
        for arm, found in self.found.items():
            for question in self.questions:
                if question.qid in found:
                    yield arm, question, store.get_many(found[question.qid])


def search_in(profile: Profile) -> Retriever:
    """The profile's passages and encoder."""
    return open_retriever(profile, load_encoder(profile.encoder, **profile.encoder_options))


# what the answerer is asked -----------------------------------------------------------------------


def validation(_: Part) -> Iterator[tuple[Question, Sequence[Passage]]]:
    """The requests that validate the answerer."""
    for item in items(search_in(load_profile("open")).store):
        yield item.question, item.passages


def readings(part: Part) -> Iterator[tuple[Question, Sequence[Passage]]]:
    """What is read of a half: on test also what dev chose."""
    retriever = search_in(load_profile("open"))
    on_dev = part == "dev"
    half = Half.open(part, retriever, DEV_LAMBDAS if on_dev else test_lambdas())
    read = {NOTHING, *half.found} - set(NOT_ON_DEV) if on_dev else set(test_arms())
    for arm, question, passages in half.shown():
        if arm in read - set(NEIGHBOURS):
            yield question, passages


def grid_readings(_: Part) -> Iterator[tuple[Question, Sequence[Passage]]]:
    """What is read of the methods of Table 1 beside the arms of ``readings``."""
    half = Half.open("test", search_in(load_profile("open")), test_lambdas())
    for arm, question, passages in half.shown():
        if arm in NEIGHBOURS:
            yield question, passages


OPEN_ARMS = (NOTHING, "question", "hplus", "chr@1")
OPEN_QUESTIONS = 60
"""Answered without a mask, too: these arms of the first so many questions of the test half."""


def open_items(half: Half) -> Iterator[tuple[str, Question, Sequence[Passage]]]:
    """What is answered without a mask, with its arm."""
    asked = {question.qid for question in half.questions[:OPEN_QUESTIONS]}
    for arm, question, passages in half.shown():
        if arm in OPEN_ARMS and question.qid in asked:
            yield arm, question, passages


def open_readings(_: Part) -> Iterator[tuple[Question, Sequence[Passage]]]:
    """The requests without a mask."""
    half = Half.open("test", search_in(load_profile("open")), test_lambdas())
    for _arm, question, passages in open_items(half):
        yield question, passages


def open_values(half: Half, llm: ChatModel) -> pd.DataFrame:
    """Whether answers without a mask are right: dataset, arm, qid, metric ("right"), value."""
    rows = []
    for arm, question, found in open_items(half):
        right = answer_openly(question, found, llm).metrics(question)["right"]
        rows.append((question.dataset, arm, question.qid, "right", right))
    return pd.DataFrame(rows, columns=["dataset", "arm", "qid", "metric", "value"])


ANSWERS: Mapping[str, tuple[Callable, Callable]] = {
    "validation": (validation, answer),
    "answers": (readings, answer),
    "grid-answers": (grid_readings, answer),
    "openly": (open_readings, answer_openly),
}
"""What the answerer is asked, and how, by the name of its recording, ``masked-<name>.jsonl.gz``."""


# what dev chooses ---------------------------------------------------------------------------------


def choices() -> dict[str, str]:
    """What dev chose, by the names that the declaration has in braces."""
    table = pd.read_csv(CHOICES, dtype=str)
    return dict(zip(table["name"], table["value"], strict=True))


def choose(values: pd.DataFrame) -> pd.DataFrame:
    """Dev's accuracy by candidate, and which of them is taken: choice, arm, picks (what the choice
    is then called in an arm's name), value, n, chosen. Of equals the first."""
    accuracy = values[values["metric"] == "accuracy"].groupby("arm")["value"].agg(["mean", "size"])
    offered = {
        "masked:lambda": {f"chr@{lam:g}": f"{lam:g}" for lam in LAMBDAS},
        "held:lambda": {f"chr-held@{lam:g}": f"{lam:g}" for lam in LAMBDAS},
        "recipe": {arm: arm for arm in RECIPES},
    }
    rows = []
    for choice, candidates in offered.items():
        means_of = accuracy["mean"].reindex(list(candidates)).round(12)
        best = means_of.idxmax()  # the first of equals
        for arm, picks in candidates.items():
            row = {"choice": choice, "arm": arm, "picks": picks, "value": means_of[arm]}
            rows.append(row | {"n": accuracy["size"][arm], "chosen": arm == best})
    return pd.DataFrame(rows)


def test_lambdas() -> dict[str, list[float]]:
    """Where contrast is searched on test, by who wrote the hypotheses."""
    chosen = choices()
    at = {kind: sorted({*PAPER, float(chosen[f"{kind}:lambda"])}) for kind in ("masked", "held")}
    return {"described": at["masked"], "held": at["held"], "named": list(PAPER)}


def test_arms() -> list[str]:
    """The arms that the answerer reads on test."""
    chosen = choices()
    read = [NOTHING, "random", "question", "hyde", *NEIGHBOURS, chosen["recipe"], "chr+rotation@1"]
    for kind, lams in test_lambdas().items():
        suffix = "" if kind == "described" else f"-{kind}"
        read += [f"hplus{suffix}", *(f"chr{suffix}@{lam:g}" for lam in lams)]
    return list(dict.fromkeys(read))


# outcomes -----------------------------------------------------------------------------------------


def half_values(half: Half, llm: ChatModel) -> pd.DataFrame:
    """Every outcome of a half: dataset, arm, qid, metric, value.

    ``names_any``, ``names_right`` and ``names_wrong``: whether the five passages name any option,
    the right one, a wrong one. Where the answerer read all of an arm also ``answering.METRICS`` and
    ``names_left``, how many names the mask missed in the request.
    """
    rows = []
    unread = set()
    for arm, question, passages in half.shown():
        values = named_in(question, passages)
        try:
            values |= answer(question, passages, llm).metrics(question)
            values["names_left"] = unmasked(question, passages)
        except RecordingMiss:
            unread.add(arm)  # though another arm may have found the same for some question
        key = (question.dataset, arm, question.qid)
        rows += [(*key, metric, value) for metric, value in values.items()]
    table = pd.DataFrame(rows, columns=["dataset", "arm", "qid", "metric", "value"])
    return table[~(table["arm"].isin(unread) & table["metric"].isin([*METRICS, "names_left"]))]


def named_in(question: Question, passages: Sequence[Passage]) -> dict[str, float]:
    """Whether the passages name any option, the right one, or a wrong one."""
    mask = mask_of(question)
    hidden = " ".join(mask.hide([question.text, *map(shown_text, passages)])[1:])
    letters = {letter for code, letter in mask.letter_of.items() if code in hidden}
    right = any(question.is_right(letter) for letter in letters)
    wrong = any(not question.is_right(letter) for letter in letters)
    found = {"names_any": bool(letters), "names_right": right, "names_wrong": wrong}
    return {name: float(value) for name, value in found.items()}


# the study ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fresh:
    """Both halves: the study's collection."""

    dev: Half
    test: Half
    profile: Profile

    @property
    def retriever(self) -> Retriever:
        """What both are searched in."""
        return self.dev.retriever

    @property
    def data(self) -> Sequence[str]:
        """The files behind both."""
        ours = [*files(), JUDGMENTS, SAMPLE, NAMES, CHOICES, AGAIN]
        sets = [name for dataset in EXAMS for name in load_registry(f"{dataset}-")]
        return [
            *files_of(self.profile.corpora),
            *sets,
            *(path.relative_to(DATA).as_posix() for path in ours),
        ]


def load(profile: Profile) -> Fresh:
    """Both halves, searched in the profile's passages."""
    retriever = search_in(profile)
    dev = Half.open("dev", retriever, DEV_LAMBDAS)
    return Fresh(dev, Half.open("test", retriever, test_lambdas()), profile)


BLOCKS = ("masked", "masked-after-dev", "masked-grid")
"""Families of declared tests, by block of the declaration."""


def masked_pairs(block: str = "masked") -> list[Pair]:
    """The declared tests of a block, with what dev chose."""
    return declared_pairs(block, choices())


def least_differences(values: pd.DataFrame, n: int) -> pd.DataFrame:
    """The smallest difference that each primary test can show on ``n`` test questions with 80 %
    power, from dev's spread: at 5 %, and at the strictest level of Holm's procedure."""
    from scipy.stats import norm

    pairs = masked_pairs()
    strict = norm.ppf(1 - 0.025 / len(pairs)) + norm.ppf(0.8)
    on_dev = set(values.loc[values["metric"] == "accuracy", "arm"])
    table = claims(values, [pair for pair in pairs if {pair.arm, pair.baseline} <= on_dev])
    sd = table["mde"] * np.sqrt(table["n"]) / 2.8
    table = table.assign(dev_n=table["n"], test_n=n, dev_sd=sd)
    table["mde"], table["mde_holm"] = 2.8 * sd / np.sqrt(n), strict * sd / np.sqrt(n)
    return table[["claim", "arm", "baseline", "dev_n", "test_n", "dev_sd", "mde", "mde_holm"]]


def exploratory_pairs(arms_read: Sequence[str]) -> list[Pair]:
    """Every arm that was read against H+ alone and against the question, and the two requests."""
    pairs = [
        Pair(f"{arm} against {other}", metric, arm, other)
        for metric in ("accuracy", "right")
        for other in ("hplus", "question")
        for arm in arms_read
        if arm != other
    ]
    # Declared tests once more as the answers fell.
    pairs += [
        replace(pair, metric="right", primary=False)
        for block in BLOCKS
        for pair in masked_pairs(block)
        if pair.baseline not in ("hplus", "question")
    ]
    same = [("hplus-named", "hplus"), ("chr-named@0.4", "hplus-named")]
    same += [("chr-named@1", "hplus-named"), ("chr-held@0.4", "hplus-held")]
    known = {(pair.arm, pair.baseline) for pair in pairs}
    pairs += [
        Pair(f"{a} against {b}", "accuracy", a, b)
        for a, b in same
        if (a, b) not in known and {a, b} <= set(arms_read)
    ]
    return pairs


def claims_table(values: pd.DataFrame, verdicts: bool) -> pd.DataFrame:
    """The declared tests, then what is exploratory; no verdicts where the answerer is
    no instrument."""
    read = sorted(values.loc[values["metric"] == "accuracy", "arm"].unique())
    declared = declared_table(values)
    asked = set(zip(declared["arm"], declared["baseline"], strict=True))
    more = [
        pair
        for pair in exploratory_pairs(read)
        if pair.metric != "accuracy" or (pair.arm, pair.baseline) not in asked
    ]
    table = pd.concat([declared, claims(values, more).assign(family="")], ignore_index=True)
    return table if verdicts else table.assign(verdict="")


def declared_table(values: pd.DataFrame) -> pd.DataFrame:
    """The declared tests; Holm's correction is within each ``family``, a declared block."""
    parts = [claims(values, masked_pairs(block)).assign(family=block) for block in BLOCKS]
    return pd.concat(parts, ignore_index=True)


def without_names_left(values: pd.DataFrame) -> pd.DataFrame:
    """``declared_table`` without the questions of which a request still has a name."""
    left = values[(values["metric"] == "names_left") & (values["value"] > 0)]["qid"]
    return declared_table(values[~values["qid"].isin(left)])


def both_sets(values: pd.DataFrame) -> pd.DataFrame:
    """Means of every arm and metric: dataset (each set, and "exams" for both), arm, metric, value,
    low, high, n."""
    both = values.assign(dataset="exams")
    return means(pd.concat([values, both], ignore_index=True), sort=True)


WRONG_SHARES = tuple(round(0.1 * step, 1) for step in range(11))
"""Shares of questions whose H+ is wrong."""


def wrong_table(values: pd.DataFrame) -> pd.DataFrame:
    """Accuracy if H+ were wrong in a share of the questions: arm, share, value, low, high, n.

    Nothing is read anew: a question counts as its outcome with H+ as written, and as that with the
    wrong H+, in these shares. For H+ alone, and contrast at each lambda that both have.
    """
    accuracy = values[values["metric"] == "accuracy"].pivot(
        index="qid", columns="arm", values="value"
    )
    pairs = [
        (arm, arm.replace("hplus", "hplus-held").replace("chr", "chr-held")) for arm in accuracy
    ]
    rows = []
    for arm, held in pairs:
        if held == arm or held not in accuracy:
            continue
        for share in WRONG_SHARES:
            mixed = (1 - share) * accuracy[arm] + share * accuracy[held]
            value, low, high = mean_interval(mixed.dropna().sort_index().to_numpy())
            row = {"arm": arm, "share": share, "value": value, "low": low, "high": high}
            rows.append(row | {"n": mixed.notna().sum()})
    return pd.DataFrame(rows)


def hypotheses_table(half: Half) -> pd.DataFrame:
    """What the hypotheses are: kind, check, value, n.

    ``names_right``, ``names_wrong``: H+ names the right option, a wrong one. ``mimic_right``: H-
    names the right option; ``mimic_is_truth``: the writer who holds a wrong option says that its
    mimic is the right one. ``words``: of H+ and H- together, mean.
    """
    rows = []
    for kind in ("described", "named", "held"):
        checked = []
        for question in half.questions:
            if question.qid not in half.written[kind]:
                continue
            trace, mask = half.written[kind][question.qid].trace, mask_of(question)
            parts = mask.hide([question.text, trace["H_plus"], trace["H_minus"]])[1:]
            said = [
                {mask.letter_of[code] for code in mask.letter_of if code in one} for one in parts
            ]
            right = question.answer
            row = {"names_right": right in said[0], "names_wrong": bool(said[0] - {right})}
            row |= {"mimic_right": right in said[1]}
            row |= {"words": len(f"{trace['H_plus']} {trace['H_minus']}".split())}
            if "mimic_option" in trace:
                row |= {"mimic_is_truth": trace["mimic_option"].strip(". ").upper() == right}
            checked.append(row)
        table = pd.DataFrame(checked).astype(float)
        rows += [(kind, check, table[check].mean(), len(table)) for check in table]
    return pd.DataFrame(rows, columns=["kind", "check", "value", "n"])


COSTS: Mapping[str, tuple[int, Sequence[str]]] = {
    "question": (0, ()),
    "hyde": (1, ("hyde",)),
    "query2doc": (1, ("query2doc",)),
    "csqe": (2, ("csqe",)),
    "thinkqe": (3, ("thinkqe",)),
    "hplus": (1, ("described",)),
    "chr@0.4": (1, ("described",)),
    "chr@1": (1, ("described",)),
    "several max@0.4": (2, ("described", "differential")),
}
"""What a question costs: requests, and whose texts are written."""


def cost_table(half: Half, values: pd.DataFrame) -> pd.DataFrame:
    """Gain beside cost: arm, value (accuracy), low, high, n, right (as the answers fell), requests
    and words a question."""
    table = both_sets(values).query("dataset == 'exams'")
    told = table[table["metric"] == "accuracy"].set_index("arm")
    fell = table[table["metric"] == "right"].set_index("arm")["value"]
    rows = []
    for arm, (requests, kinds) in COSTS.items():
        written = [half.written[kind].values() for kind in kinds]
        words = [sum(_words(one) for one in part) / max(len(part), 1) for part in written]
        row = {"arm": arm} | told.loc[arm, ["value", "low", "high"]].to_dict()
        row |= {"n": int(told.loc[arm, "n"]), "right": fell[arm]}
        rows.append(row | {"requests": requests, "words": sum(words)})
    return pd.DataFrame(rows)


def _words(expansion: Expansion) -> int:
    """Words of what was written; of CSQE's quotes, which are on file as places, as they were."""
    trace = expansion.trace
    if "extracts" in trace:
        texts = [*trace["passages"], *trace["extracts"]]
    else:
        texts = [reply.text for reply in trace["replies"]]
    return sum(len(text.split()) for text in texts)


def openly_table(values: pd.DataFrame) -> pd.DataFrame:
    """Answers without a mask: arm, value, low, high, n, and the paired difference to the same
    answerer without passages: difference, difference_low, difference_high."""
    table = means(values, ("arm", "metric"))
    pairs = [Pair("", "right", arm, NOTHING) for arm in table["arm"] if arm != NOTHING]
    ends = {"low": "difference_low", "high": "difference_high"}
    tested = claims(values, pairs)[["arm", "difference", "low", "high"]].rename(columns=ends)
    return table.drop(columns="metric").merge(tested, on="arm", how="left")


def follow(
    fresh: Fresh,
    instrument: pd.DataFrame,
    on_dev: pd.DataFrame,
    values: pd.DataFrame,
    openly: pd.DataFrame,
) -> dict[str, pd.DataFrame]:
    """The tables by name."""
    validated = instrument_table(instrument)
    return {
        "masked_instrument": validated,
        "masked_choices": choose(on_dev),
        "masked_least": least_differences(on_dev, len(fresh.test.questions)),
        "masked_dev": both_sets(on_dev),
        "masked_arms": both_sets(values),
        "claims_masked": claims_table(values, is_instrument(validated)),
        "masked_clean": without_names_left(values),
        "masked_wrong": wrong_table(values),
        "masked_hypotheses": hypotheses_table(fresh.test),
        "masked_costs": cost_table(fresh.test, values),
        "masked_openly": openly_table(openly),
    }


def looks(fresh: Fresh, made: Mapping[str, pd.DataFrame]) -> list[Look]:
    """The keys of the test half."""
    values, openly = made["values_masked"], made["values_masked_openly"]
    return [
        Look("masked", values["qid"], values["arm"], declared=DECLARATIONS[1]),
        Look("masked, openly", openly["qid"], openly["arm"]),
    ]


STUDY = Study(
    name="masked",
    code="lib.studies.masked",
    load=load,
    values={
        "values_masked_instrument": lambda fresh: instrument_values(
            fresh.retriever.store, recorded()
        ),
        "values_masked_dev": lambda fresh: half_values(fresh.dev, recorded()),
        "values_masked": lambda fresh: half_values(fresh.test, recorded()),
        "values_masked_openly": lambda fresh: open_values(fresh.test, recorded()),
    },
    tables=TABLES,
    follow=follow,
    looks=looks,
)
