"""What the real sample's writers and judges are given, and what is made of what they return.

How sheets go out and come back is ``lib.llm.desk``'s.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from lib.base.files import canonical_json, sha256_bytes
from lib.base.paths import RECORDINGS
from lib.data.judgments import add_labels, read_judgments, shown_text
from lib.data.store import PassageStore
from lib.datasets import EXAMS, Question, Split, load_real
from lib.llm import desk
from lib.llm.batch import Nothing, Pending, add_replies, pending
from lib.llm.chat import ChatModel, tag
from lib.llm.quotes import as_places
from lib.llm.recorder import Recorder
from lib.studies.real import probes
from lib.studies.real.plants import Plant, counterfactual, is_planted, plants_for
from lib.studies.real.quality import read_again, read_alone
from lib.studies.real.sheets import (
    Sheet,
    alone_messages,
    make_sheet,
    read_alone_labels,
    read_labels,
    sheet_messages,
)
from lib.studies.real.texts import KINDS, WRITER, questions_for, writers_of

AUTHOR = (
    "a large language model, by the prompts of lib/llm/prompts, up to 25 questions in a "
    "conversation; not re-runnable from here"
)
"""Who wrote, as every recorded text of the real sample says."""

QUESTIONS = 25
"""Requests in one conversation, at most."""

WRITER_README = """\
INSTRUCTIONS. You play a language model that answers requests. The file requests.txt beside this \
one holds numbered, independent requests. Answer each one as if it were the only one you had been \
given, from your own medical knowledge, following exactly what that request asks (its form, its \
length). Write every reply yourself, word by word; no script or template may write or edit a text. \
Read no other file, search for nothing. Write all replies to replies.txt in this same folder: for \
each request a line "@@@ <number>" and below it the reply alone, in order, starting with @@@ 1, \
none left out. When the file is written, end with the single word: done.
"""

JUDGE_README = """\
INSTRUCTIONS. You are a careful judge of evidence. This folder has the files {files}. Each holds \
{what}, and says how to label them. Take the files one after the other: read one in full, judge \
its passages one by one by reading them yourself, and write your reply for it to the file of the \
same name that ends in .labels (so q1.txt gives q1.labels). No script may choose or write a \
label, no passage may be left out, and no other file may be read. Reply nothing but the blocks \
asked for. When all are written, end with the single word: done.
"""


# texts -------------------------------------------------------------------------------------------


def asked_for(
    split: Split, name: str, llm: Recorder | Nothing, search: Callable | None = None
) -> list[Pending]:
    """What no recording answers yet of a kind of text (see ``texts.KINDS``), each request once.

    Kinds that read first results need ``search``; without one they are shown nothing, which serves
    for the part of CSQE that is written before any search.
    """
    kind = KINDS[name]
    found: dict[str, Pending] = {}
    for question in questions_for(kind, load_real(split)):
        method = writers_of(kind, question)

        def expand(model: ChatModel, method=method, question=question) -> None:
            with tag(method=method.name, qid=question.qid):
                method.expand(question, model, search or _nothing)

        found |= {request.key: request for request in pending(expand, llm)}
    return list(found.values())


def _nothing(request, k: int) -> list:
    return []


def counterfactuals_asked(split: Split, llm: Recorder | Nothing) -> list[Pending]:
    """The counterfactual passages of a half that no recording has, as ``asked_for`` gives texts."""
    found: list[Pending] = []
    for question in _with_counterfactual(split):
        with tag(method="counterfactual", qid=question.qid):
            found += pending(lambda model, of=question: counterfactual(of, model), llm)
    return found


def counterfactuals(split: Split, llm: ChatModel) -> dict[str, str]:
    """The recorded counterfactual passages of a half by question id (see ``plants``)."""
    return {q.qid: counterfactual(q, llm) for q in _with_counterfactual(split)}


def probes_asked(name: str, llm: Recorder | Nothing) -> list[Pending]:
    """The replies to a probe of the test half that no recording has (see ``probes``)."""
    method = KINDS["hypotheses"].method
    written = {q.qid: method.expand(q, llm, _nothing) for q in load_real("test")}
    found: list[Pending] = []
    for _, ask in probes.calls(name, written):
        found += pending(ask, llm)
    return found


def _with_counterfactual(split: Split) -> list[Question]:
    exams = [question for question in load_real(split) if question.dataset in EXAMS]
    return [q for place, q in enumerate(exams) if is_planted("counterfactual", place)]


def give_texts(requests: Sequence[Pending], name: str, folder: Path) -> list[str]:
    """Write sheets of up to ``QUESTIONS`` requests, samples apart; the folders made."""
    made = []
    for sample in sorted({request.sample for request in requests}):
        own = [request for request in requests if request.sample == sample]
        sheets = -(-len(own) // QUESTIONS)
        for i in range(sheets):
            made.append(desk.give_requests(own[i::sheets], name, WRITER_README, folder))
    return made


def take_texts(
    name: str, folder: Path, kept: Callable[[str, Pending], str] | None = None
) -> tuple[int, list[str]]:
    """Add the replies of every answered sheet of a kind to its recording.

    ``name`` is a kind of text, or "counterfactual". ``kept`` says in what form a reply is recorded,
    as ``quotes_as_places`` does; without it the reply is recorded as it came. Returns how many
    texts were new, and the folders that have no replies yet.
    """
    new, waiting = 0, []
    for place, requests, texts in desk.answered(name, folder):
        if texts is None:
            waiting.append(place)
            continue
        if kept is not None:
            asked = {request.key: request for request in requests}
            texts = {key: kept(text, asked[key]) for key, text in texts.items()}
        file = RECORDINGS / f"real-{name}.jsonl.gz"
        new += add_replies(file, WRITER, AUTHOR, requests, texts)
    return new, waiting


def quotes_as_places(split: Split, search: Callable) -> Callable[[str, Pending], str]:
    """For ``take_texts`` of CSQE: extracts of passages are kept as places, for the words of the
    passages are not ours."""
    kind = KINDS["csqe"]
    questions = {q.qid: q for q in questions_for(kind, load_real(split))}

    def kept(reply: str, request: Pending) -> str:
        shown = kind.method.first_results(questions[request.qid], search)
        return as_places(reply, dict(shown))

    return kept


def continuations_as_runs(split: Split) -> Callable[[str, Pending], str]:
    """For ``take_texts`` of the memory probe: what is right in a continuation is the question's."""
    questions = {q.qid: q for q in load_real(split)}
    return lambda reply, request: probes.as_run(questions[request.qid], reply)


# judging -----------------------------------------------------------------------------------------


Work = tuple[Sheet, Question, dict[str, str]]
"""A sheet, its question, and the texts of its items by id."""


def pool_of(
    questions: Sequence[Question], runs: Iterable[tuple[str, str]], more: dict[str, list[str]]
) -> dict[str, set[str]]:
    """The passages to be judged, by exam question: of ``runs`` (question id, passage id) and the
    searches with each option (``written.option_runs``)."""
    pools = {q.qid: set(more.get(q.qid, ())) for q in questions if q.dataset in EXAMS}
    for qid, pid in runs:
        if qid in pools:
            pools[qid].add(pid)
    return pools


def first_sheets(
    questions: Sequence[Question],
    pools: dict[str, set[str]],
    store: PassageStore,
    counterfactuals: dict[str, str],
) -> tuple[list[Work], list[Plant]]:
    """A sheet for each question with its pool and what is planted in it, and the plants.

    Passages that the first pass has judged already are left out, with no plants beside them.
    """
    judged = {(row["qid"], row["pid"]) for row in read_judgments() if row["judge"] == "first"}
    exams = [q for q in questions if q.qid in pools]
    every = sorted({pid for pool in pools.values() for pid in pool})
    texts = {passage.pid: shown_text(passage) for passage in store.get_many(every)}
    drawn = random.Random(f"strangers {exams[0].split}").sample(every, min(400, len(every)))
    work, planted = [], []
    for place, question in enumerate(exams):
        new = {pid for pid in pools[question.qid] if (question.qid, pid) not in judged}
        if not new:
            continue
        shown = {pid: texts[pid] for pid in sorted(new)}
        if len(new) == len(pools[question.qid]):
            strangers = [texts[pid] for pid in drawn if pid not in pools[question.qid]]
            own = plants_for(
                question, place, shown, strangers, counterfactuals.get(question.qid, "")
            )
            planted += own
            shown |= {plant.item: plant.text for plant in own}
        work.append((_sheet("first", question, shown), question, shown))
    return work, planted


def again_sheets(work: Sequence[Work]) -> tuple[list[Work], list[Work]]:
    """The second pass and the items judged by themselves, for first sheets that were taken.

    One sheet a question with all that is ``read_again``; one sheet an item that is ``read_alone``.
    """
    rows = {(row["qid"], row["pid"]): row for row in read_judgments() if row["judge"] == "first"}
    second, alone = [], []
    for sheet_, question, texts in work:
        own = [rows[question.qid, item] for item in sheet_.items]
        again = {row["pid"]: texts[row["pid"]] for row in own if read_again(row)}
        if again:
            second.append((_sheet("second", question, again), question, again))
        for row in own:
            if read_alone(row):
                one = {row["pid"]: texts[row["pid"]]}
                alone.append((_sheet("single", question, one), question, one))
    return second, alone


def _sheet(judge: str, question: Question, texts: dict[str, str]) -> Sheet:
    """A sheet whose name, and so whose order, follows from the pass and what is on it."""
    what = sha256_bytes(canonical_json(sorted(texts)).encode())[:8]
    return make_sheet(f"{judge}-{question.qid}-{what}", question, list(texts), "judging")


def give_sheets(work: Sequence[Work], judge: str, folder: Path) -> list[str]:
    """Write judging sheets: some questions a conversation, each in a file of its own.

    Of the pass "single" a file holds many questions with one passage each.
    """
    files, what = [], "one question with its passages"
    if judge == "single":
        what = "many questions with one passage each"
        mixed = random.Random("alone").sample(list(work), len(work))
        for start in range(0, len(mixed), _ALONE):
            part = mixed[start : start + _ALONE]
            texts = {item: text for _, _, own in part for item, text in own.items()}
            questions = {question.qid: question for _, question, _ in part}
            asked = alone_messages([sheet_ for sheet_, _, _ in part], questions, texts)
            files.append((_joined(asked), _key(part)))
    else:
        for one in work:
            files.append((_joined(sheet_messages(*one)), _key([one])))
    readme = JUDGE_README.format(files="{files}", what=what)
    return desk.give_sheets(files, judge, readme, folder)


_ALONE = 45
"""Passages judged by themselves in one file."""


def _joined(messages: Sequence[dict]) -> str:
    return "\n\n".join(message["content"] for message in messages)


def _key(part: Sequence[Work]) -> list[dict]:
    return [{"sheet": asdict(sheet_), "texts": texts} for sheet_, _, texts in part]


def take_labels(judge: str, folder: Path) -> tuple[int, list[str]]:
    """Add the labels of every answered sheet of a pass to the judgments.

    Returns how many labels were new, and the files that have no reply yet.
    """
    found, waiting = desk.replies(judge, folder)
    taken = []
    for part, said in found:
        sheets = [_from_key(one["sheet"]) for one in part]
        texts = {item: text for one in part for item, text in one["texts"].items()}
        if judge == "single":
            taken += read_alone_labels(said, sheets, texts)
        else:
            taken.append((sheets[0], read_labels(said, sheets[0], texts)))
    labels = [(sheet_.qid, labels) for sheet_, labels in taken]
    return add_labels(labels, judge), waiting


def _from_key(fields: dict) -> Sheet:
    return Sheet(**fields | {"items": tuple(fields["items"])})
