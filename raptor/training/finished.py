"""Training states whose result is written: kept until the workflow has seen that result.

A job that ends well may still count as failed: its time is over as it ends, or the Snakemake that
waits for it is killed. Then its outputs are removed, and only the state saves the training.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

from raptor.files import write_json

_NOTE = "finished.json"


def note_finished(state: Path, output: Path) -> None:
    """The training in `state` has led to `output`; where that is there, it may be forgotten."""
    write_json(state / _NOTE, {"output": str(output)})


def remove_finished(states: Path) -> None:
    """Remove every state below the folder `states` whose output is there."""
    for note in sorted(states.rglob(_NOTE)):
        try:
            output = Path(json.loads(note.read_text())["output"])
        except (OSError, ValueError, KeyError, TypeError):
            continue  # a state too many does no harm
        if output.is_file():
            forget(note.parent)


def forget(state: Path) -> None:
    """Remove the folder `state`, and the one above if that leaves it empty."""
    shutil.rmtree(state, ignore_errors=True)
    with contextlib.suppress(OSError):
        state.parent.rmdir()
