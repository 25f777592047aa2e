"""python -m lib.explorer: make the explorer's rows from the open data, and its page from them."""

from __future__ import annotations

import json
import sys

from lib.base import paths
from lib.base.files import canonical_json
from lib.base.provenance import code_hash, data_hash
from lib.data.judgments import JUDGMENTS
from lib.data.looks import note_look
from lib.embed import load_encoder
from lib.explorer.page import write_page
from lib.explorer.rows import Explored, check_rows, put_together, rows_of
from lib.explorer.sets import benchmark_set, real_sets, shown
from lib.explorer.store import FOLDER, write_rows
from lib.index_build import files_of
from lib.place import open_retriever
from lib.profiles import load_profile

CODE = ("lib.explorer.rows", "lib.explorer.sets", "lib.search.contrast", "lib.search.scoring")
"""The modules behind the rows. The rest of the numeric core is compared with every row."""


def make_rows() -> Explored:
    """Make all rows from the open data, compare them with lib/, and write them.

    Takes minutes once the open corpora are embedded. Raises ValueError if any order differs; then
    nothing is written.
    """
    profile = load_profile("open")
    encoder = load_encoder(profile.encoder, **profile.encoder_options)
    retriever = open_retriever(profile, encoder)
    sets = [
        *real_sets(retriever),
        benchmark_set("ddx-fresh", "open", encoder),
        benchmark_set("ddx-mini", "mini", encoder),
    ]
    made = []
    for some in sets:
        print(f"{some.name}: {len(some.hypotheses)} questions", file=sys.stderr, flush=True)
        made.append((some, *rows_of(some)))
    passages = {}
    for some, _, found in made:
        wanted = {pid for rows in found for pid, _, _ in rows} - passages.keys()
        passages |= {p.pid: shown(p) for p in some.retriever.store.get_many(sorted(wanted))}
    explored = put_together(made, passages.__getitem__)
    counts = {some.name: check_rows(some, explored) for some in sets}
    print(json.dumps(counts), file=sys.stderr)
    if any(count["differ"] for count in counts.values()):
        raise ValueError(f"the rows do not give lib/'s order: {counts}")
    recordings = ["recordings/real-hypotheses.jsonl.gz", "recordings/real-differential.jsonl.gz"]
    judged = [f"judgments/{JUDGMENTS.name}"]
    data = sorted({*files_of(profile.corpora), *files_of(("ddx-mini",)), *recordings, *judged})
    settings = {
        "profile": "open",
        "encoder": encoder.fingerprint,
        "code_roots": list(CODE),
        "code": code_hash(CODE, core=()),
        "data_files": data,
        "data": data_hash(data),
        "compared_with_lib": counts,
    }
    for some in sets:
        note_look("explorer", some.name, some.hypotheses, "open", some.means)
    write_rows(explored, json.loads(canonical_json(settings)))
    return explored


if __name__ == "__main__":
    made = make_rows()
    print("written:", paths.shown(FOLDER), f"{len(made.records):,} rows")
    print("written:", paths.shown(write_page()))
