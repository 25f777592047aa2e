"""A student's copy of the notebooks: a parameter is changed in its cell, and all is run.

Run as ``python -m tests.student FOLDER NAME=VALUE``, such as ``lam=0.35``. Figures are not drawn;
the tables that they would be drawn from stand in ``FOLDER/figures/mini``, or in the folder of the
profile's other name where ``k`` was changed, and all that a notebook shows in
``FOLDER/shown/<notebook>.txt``.
"""

from __future__ import annotations

import gc
import os
import re
import sys
from pathlib import Path

import nbformat

from lib import lab, notebooks, plots
from lib.base import paths
from lib.base.files import atomic_write
from lib.base.provenance import with_true_k


def changed(book: nbformat.NotebookNode, name: str, value: str) -> list[str]:
    """The notebook's cells of code with another value of a parameter; none where it has no such."""
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    (parameters,) = [c for c in cells if "parameters" in c.metadata.get("tags", [])]
    assigned = rf"(?m)^{name} = [^#\n]*"
    if not re.search(assigned, parameters.source):
        return []
    parameters.source = re.sub(assigned, f"{name} = {value}  ", parameters.source)
    return [cell.source for cell in cells]


def only_the_table(figure, name: str, profile: str, table, k: int = 5) -> Path:
    """In place of ``lib.plots.save``: drawing takes longer than all the rest."""
    path = paths.figures(profile) / f"{name}.csv"
    text = with_true_k(table, k).to_csv(index=False, float_format="%.3f", lineterminator="\n")
    return atomic_write(path, text)


def main() -> None:
    """Run every notebook that has the parameter, in order."""
    import matplotlib
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    folder, change = Path(sys.argv[1]), sys.argv[2]
    lab.seed(folder)  # with what is committed, as the copy of make lab has it
    for file in folder.glob("figures/mini/*"):
        file.unlink()
    os.environ |= lab.environment_of(folder) | {"CHR_PROFILE": "mini"}
    os.chdir(paths.ROOT / "notebooks")
    matplotlib.use("agg")
    plots.save = only_the_table
    shell = InteractiveShell.instance()
    for name in notebooks.ORDER:
        shown = ""
        for source in changed(nbformat.read(f"{name}.ipynb", 4), *change.split("=")):
            with capture_output() as put_out:
                done = shell.run_cell(source)
            done.raise_error()
            shown += put_out.stdout + "".join(str(output.data) for output in put_out.outputs)
        gc.freeze()  # a reset looks through all that it is not told to leave alone
        shell.reset(new_session=True)
        if shown:
            atomic_write(folder / "shown" / f"{name}.txt", shown)


if __name__ == "__main__":
    main()
