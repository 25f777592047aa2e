"""The writer's side of SL-HyDE, in stages that may be stopped at any time.

    python -m tools.slhyde_writer [STAGE ...]                     what SmolLM2 wrote, and is shipped
    python -m tools.slhyde_writer --loop FILE.toml [STAGE ...]    another loop: tools.slhyde_loop

``data/selflearn/README.md`` says what each shipped file holds, ``tools/slhyde_laptop.toml`` how it
was made. Source: Li et al., AutoMIR, arXiv:2410.20050, section 3.3, equations 2 to 4, 7 and 8; the
settings of its sampling are those of its repository, but for what is said there.
"""

from __future__ import annotations

import argparse
from functools import cached_property
from pathlib import Path

from lib.base import paths
from lib.base.files import sha256_bytes, sha256_file
from lib.model_files import WEIGHTS
from lib.studies.slhyde.tasks import ADAPTER, TASKS, sample, unlabelled
from tools.slhyde_loop import (
    STAGES,
    Document,
    Rows,
    Run,
    command,
    open_writer,
    write_stages,
)
from tools.training import add_names

LAPTOP = Path("tools/slhyde_laptop.toml")

TEST_QUERIES = 300
"""Of each test set."""


class Laptop(Run):
    """The loop that is shipped: MedQuAD's passages are read without their titles, and the generator
    is an adapter of the project's."""

    def __init__(self) -> None:
        super().__init__(LAPTOP)
        self.generator, self.work = ADAPTER, paths.cache("selflearn")

    @cached_property
    def corpus(self) -> dict[str, Document]:
        """The unlabelled corpus; here of one text all."""
        return {passage.pid: Document(passage, passage.text) for passage in unlabelled()}

    @cached_property
    def sample(self) -> dict[str, Document]:
        """At most one passage of a page."""
        passages = (document.passage for document in self.corpus.values())
        return {p.pid: self.corpus[p.pid] for p in sample(passages, self.loop.documents)}


def write_hyde(run: Run) -> None:
    """A passage by the base and by the tuned generator for each test query; a claim has a prompt of
    its own."""
    how = run.loop.tuned
    for dataset, prompt in (("scifact", "passage_claim"), ("bioasq", "passage")):

        def make(dataset: str = dataset, prompt: str = prompt) -> Rows:
            queries = test_queries(dataset)
            asked = [run.asks(prompt, query=text) for text in queries.values()]
            rows = []
            for name, adapter in (("base", None), ("tuned", run.generator)):
                texts = run.write(open_writer(run.loop.passages.model, adapter), asked, how)
                rows += [
                    {"qid": qid, "writer": name, "passage": text}
                    for qid, text in zip(queries, texts, strict=True)
                ]
            return rows

        behind = {"asked": how.model_dump(), "prompts": run.prompt_hashes(f"{prompt}.txt")}
        behind |= {"adapter": sha256_file(run.generator / WEIGHTS), "seed": run.loop.seed}
        run.keep(f"hyde-{dataset}", make, **behind)


def test_queries(dataset: str) -> dict[str, str]:
    """The test queries by id: "scifact", train claims by the hash of their ids; "bioasq", the first
    of the 618 yes/no questions."""
    texts = TASKS[dataset]().queries
    ordered = list(texts)
    if dataset == "scifact":
        ordered.sort(key=lambda qid: sha256_bytes(f"selflearn scifact {qid}".encode()))
    return {qid: texts[qid] for qid in ordered[:TEST_QUERIES]}


def main() -> None:
    """Run the stages that are named, or all; with ``--loop`` those of that file's loop."""
    parser = argparse.ArgumentParser(prog="python -m tools.slhyde_writer")
    add_names(parser, "stages", [*STAGES, "hyde"])
    parser.add_argument("--loop", type=Path, metavar="FILE.toml")
    given = parser.parse_args()
    if given.loop:
        command(lambda: write_stages(Run(given.loop), STAGES, given.stages))
    else:
        write_stages(Laptop(), {**STAGES, "hyde": write_hyde}, given.stages)


if __name__ == "__main__":
    main()
