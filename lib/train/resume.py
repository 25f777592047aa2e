"""Going on where a killed training stopped, and how long it took in all."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lib.base.files import atomic_write

_TRAINED = "trained.safetensors"


class KeepsTrained:
    """Mixed into a trainer: its checkpoints keep the weights that are trained, and no others.

    The trainers' own way back from a checkpoint wants a whole model, not one with an adapter.
    """

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        from safetensors.torch import save_file

        super()._save(output_dir, state_dict)
        trained = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        save_file(trained, Path(output_dir) / _TRAINED)

    def _load_from_checkpoint(self, checkpoint: str, *_: Any) -> None:
        from safetensors.torch import load_file

        trained = load_file(Path(checkpoint) / _TRAINED)
        unknown = self.model.load_state_dict(trained, strict=False).unexpected_keys
        if unknown:
            raise ValueError(f"{checkpoint} is of another model: {unknown[0]}; remove its folder")


def go_on(trainer: Any, work: Path) -> None:
    """Train from the last whole checkpoint in ``work`` on, which is said; from the start if there
    is none."""
    last = _last_whole_checkpoint(work)
    if last:
        print(f"going on from {last}", file=sys.stderr)
    trainer.train(resume_from_checkpoint=str(last) if last else None)


def _last_whole_checkpoint(work: Path) -> Path | None:
    """The newest checkpoint whose last file is there and readable; a torn one is passed over."""
    numbered = [(int(path.name.split("-")[1]), path) for path in work.glob("checkpoint-*")]
    for _, path in sorted(numbered, reverse=True):
        try:
            json.loads((path / "trainer_state.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        return path
    return None


@contextmanager
def minutes_counted(work: Path) -> Iterator[None]:
    """Add what is done within to the minutes of ``work``, finished or stopped.

    What a kill -9 took is not known.
    """
    started = time.monotonic()
    before = minutes_so_far(work)
    try:
        yield
    finally:
        atomic_write(work / "minutes", f"{before + (time.monotonic() - started) / 60:.2f}")


def minutes_so_far(work: Path) -> float:
    """The minutes that all calls have taken together; 0 before the first."""
    file = work / "minutes"
    return float(file.read_text()) if file.is_file() else 0.0
