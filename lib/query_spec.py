"""What is written for a question, kept apart from how it is searched with.

A method, a benchmark or a reader yields *hypotheses*: texts, each with a role. A ``SearchSpec``
says how they are searched with: how much of the mimic is subtracted, which mimic, in which space.
Every control of contrast is a spec, so it shares texts, index and measures with what it controls.
"""

from __future__ import annotations

import hashlib
import math
import numbers
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from lib.base.parameters import check_count, check_lam
from lib.embed import Tower

DRAWS = 20
"""Draws of another question's mimic over which a control's value is averaged."""

Form = Literal[
    "single",
    "mean",
    "max",
    "softmax",
    "margin",
    "lda",
    "csls",
    "lexical",
    "fused",
    "question",
    "random",
]
Space = Literal["cosine", "centred", "whitened"]

_MANY = ("mean", "max", "softmax", "lda")
"""Forms that use every text of the mimics they are given, not the first alone."""


@dataclass(frozen=True)
class Text:
    """One text of a question's hypotheses.

    ``text`` may be a (title, text) or (question, text) pair. ``pid`` names a passage of the index
    instead, whose stored vector is then used: ``Text(pid="p1", weight=0.5)`` encodes nothing.
    ``tower`` says which side of a two-tower encoder reads it: a hypothesis reads like a passage, so
    it goes to the article tower. ``role`` is "question", "target" (H+), "mimic" (H-), "passage" or
    another name for traces. ``kind`` tells mimics apart: "" is the question's own, "stranger" a
    random mimic (another's).
    """

    text: str | tuple[str, str] = ""
    weight: float = 1.0
    tower: Tower = "article"
    role: str = ""
    kind: str = ""
    pid: str = ""

    def __post_init__(self) -> None:
        if self.pid and (self.text or self.tower != "article"):
            raise ValueError(
                f"Text(pid={self.pid!r}) is searched with by the passage's stored vector: give it "
                "no text, and no other tower"
            )

    def __repr__(self) -> str:
        """Its fields; of ``text`` and ``pid`` the one that it has."""
        left_out = "text" if self.pid else "pid"
        said = (f"{name}={value!r}" for name, value in vars(self).items() if name != left_out)
        return f"Text({', '.join(said)})"


@dataclass(frozen=True)
class SearchSpec:
    """How hypotheses become a search. The default is the weighted sum of all that is no mimic.

    ``form``
        ``single``: h+ - lam h- (CHR, eq. 2). ``mean``, ``max``: several mimics, by their mean or,
        for each passage, by the nearest one. ``softmax``: between the two, lam tau log mean
        exp(cos / tau). ``margin``: only passages nearer to H- than to H+ (less ``margin``) lose
        score. ``lda``: h+ + lam unit(S^-1 (h+ - mean h-)), S the corpus covariance shrunk by
        ``shrink``. ``csls``: no mimic; a passage near to many questions' H+ (a hub) loses score.
        ``lexical``: BM25 with the words of H+, weighted by how typical they are of H+ against H-.
        ``fused``: the ranks of ``single`` and ``lexical`` merged. ``question``: the question alone.
        ``random``: any passages.
    ``mimic``
        the ``kind`` of mimic text: "" the question's own, "stranger" a random mimic.
    ``lam``
        the weight of the mimic. A negative one adds it: a control.
    ``space``, ``shrink``
        where cosines are taken: as the encoder gives them, ``centred`` on the corpus mean, or
        ``whitened`` by the corpus covariance, shrunk towards a multiple of the identity by
        ``shrink`` in (0, 1].
    ``rotation``
        h- is replaced by c h+ + sqrt(1 - c^2) r, as near to h+ as h- but turned towards a random
        mimic (``lib.search.contrast.matched_rotation``).
    ``draw``
        which random mimic, or which random passages.
    ``pool``
        only the best ``pool`` passages by H+ are ranked (0 = all).
    ``question_weight``
        how much of the question is added to the vector.
    """

    form: Form = "single"
    mimic: str = ""
    lam: float = 0.0
    space: Space = "cosine"
    rotation: bool = False
    pool: int = 0
    question_weight: float = 0.0
    draw: int = 0
    shrink: float = 0.5
    tau: float = 0.1
    margin: float = 0.0

    def __post_init__(self) -> None:
        if self.form not in get_args(Form):
            raise ValueError(f"no form {self.form!r}; there are: {', '.join(get_args(Form))}")
        check_lam(self.lam)
        if self.space not in get_args(Space):
            raise ValueError(f"no space {self.space!r}; there are: {', '.join(get_args(Space))}")
        for name in ("question_weight", "margin", "tau", "shrink"):
            value = getattr(self, name)
            if not isinstance(value, numbers.Real) or not math.isfinite(value):
                raise ValueError(f"{name} is {value!r}: it must be a finite number")
        check_count("pool", self.pool, least=0)
        check_count("draw", self.draw, least=0)
        if not 0 < self.shrink <= 1 or self.tau <= 0:
            raise ValueError(f"shrink {self.shrink} is to be in (0, 1], tau {self.tau} above 0")
        if self.pool and self.form not in ("single", "mean", "lda", "question"):
            raise ValueError(f"a pool is re-ranked by one vector; the form {self.form!r} has more")
        if self.rotation and self.form in ("lexical", "fused"):
            raise ValueError(f"a turned vector has no words for the form {self.form!r}")
        if self.lam < 0 and self.form in ("max", "margin"):
            # With lambda below 0 they are no longer a minimum of inner products.
            raise ValueError(f"lambda is {self.lam}: the form {self.form!r} needs lambda >= 0")

    @property
    def needs_every_passage(self) -> bool:
        """Whether it scores or moves all passages, which an index of candidates cannot do."""
        return self.form in ("softmax", "csls") or self.space != "cosine"

    @property
    def searches_many(self) -> bool:
        """Whether the form takes every mimic text of its kind."""
        return self.form in _MANY

    @property
    def is_line(self) -> bool:
        """Whether it searches with one vector, which is a straight line in lambda."""
        return self.form in ("single", "mean", "lda") and not self.pool


@dataclass(frozen=True)
class Hypotheses:
    """What was written for one question, and the specification that it is searched with.

    ``excluded`` are ids of passages that may not be found: those that H+ was taken from. ``qid``
    is the question's id, by which random passages are drawn. ``topics`` are what H+ and H- are
    about, where known: a mimic of a question that shares one is never drawn as a random mimic.
    ``sources``: searched in these alone (default: in all).
    """

    texts: tuple[Text, ...]
    spec: SearchSpec = field(default_factory=SearchSpec)
    excluded: frozenset[str] = frozenset()
    qid: str = ""
    topics: frozenset[str] = frozenset()
    sources: tuple[str, ...] = ()

    def of(self, role: str, kind: str = "") -> tuple[Text, ...]:
        """The texts of a role and kind, in order."""
        return tuple(t for t in self.texts if t.role == role and t.kind == kind)

    def by(self, **changes) -> Hypotheses:
        """The same texts searched in a changed way, such as ``by(lam=0.4, rotation=True)``."""
        return replace(self, spec=replace(self.spec, **changes))


@dataclass(frozen=True)
class Sparse:
    """A text for BM25. ``sources``: searched in these alone (default: in all)."""

    text: str
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fusion:
    """Several requests merged by reciprocal rank (``rrf``), or in turns: the first of each, the
    second of each, ... (``balanced``)."""

    requests: tuple[Request, ...]
    how: Literal["rrf", "balanced"] = "rrf"
    rrf_k: int = 60
    depth: int = 0
    """How deep each list goes; 0 means twice the k asked for."""


@dataclass(frozen=True)
class By:
    """A request that is searched by another encoder than the retriever's, called by its name
    (``lib.embed.load_encoder``)."""

    encoder: str
    request: Request


Request = Hypotheses | Sparse | Fusion | By
"""What can be searched with; ``lib.run.Retriever.search_many`` is the one place that does."""


Hit = tuple[str, str]
"""(passage id, text)."""


def with_random_mimics(
    population: Mapping[str, Hypotheses], draws: int = DRAWS, seed: int = 0
) -> dict[str, Hypotheses]:
    """Every question's hypotheses with up to ``draws`` random mimics (of other questions) added.

    ``population`` is by question id. A random mimic is neither this question's H+ nor its H-, and
    shares no topic with it: the mimic of a similar question often is this question's own answer.
    The draws of a question depend on its id, the seed and the set of questions, not on any order.
    """
    offered: dict[str, tuple[Text, frozenset[str]]] = {}
    for _, hypotheses in sorted(population.items()):
        for mimic in hypotheses.of("mimic")[:1]:
            # The same text may be the mimic of several questions: it has the topics of all.
            first, topics = offered.get(_plain(mimic), (mimic, frozenset()))
            offered[_plain(mimic)] = (first, topics | hypotheses.topics)
    found = {}
    for qid, hypotheses in population.items():
        said = {_plain(t) for t in (*hypotheses.of("target"), *hypotheses.of("mimic"))}
        fit = [
            text
            for text, (_, topics) in offered.items()
            if text not in said and not topics & hypotheses.topics
        ]
        # A generator for each question, so that no question's draws depend on another's.
        generator = random.Random(hashlib.sha256(f"{seed} {qid}".encode()).digest())
        drawn = generator.sample(sorted(fit), min(len(fit), draws))
        strangers = [replace(offered[text][0], kind="stranger") for text in drawn]
        found[qid] = replace(hypotheses, texts=(*hypotheses.texts, *strangers))
    return found


def _plain(text: Text) -> str:
    return text.pid or str(text.text).strip().lower()
