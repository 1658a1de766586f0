"""Stages in processes of their own, which have torch and the images before they start."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stages import STAGES, Stage

CONTEXT = multiprocessing.get_context("forkserver")
# The forkserver imports by name, and finds these files as the tests do.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
)
CONTEXT.set_forkserver_preload(["preloaded"])

Change = Callable[[], None]  # done in the child before the stage runs


@dataclass(frozen=True)
class Ended:
    """How a child ended: its exit status (negative: a signal), what it said, its seconds."""

    status: int
    said: str
    seconds: float


def run(
    stage: str | Stage, root: Path, *, after: float | None = None, change: Change | None = None
) -> Ended:
    """Run a stage in `root`; killed (SIGKILL) `after` so many seconds, where it runs for longer."""
    number, name = tempfile.mkstemp(suffix=".said")  # not in `root`, whose disk may be full
    os.close(number)
    said = Path(name)
    ready, tell = CONTEXT.Pipe(duplex=False)
    stage = STAGES[stage] if isinstance(stage, str) else stage
    child = CONTEXT.Process(target=_child, args=(stage, root, said, tell, change))
    child.start()
    tell.close()
    try:
        ready.recv()
    except EOFError:
        child.join()
        raise AssertionError(said.read_text()) from None
    started = time.monotonic()
    child.join(after)
    if child.exitcode is None:
        child.kill()
        child.join()
    seconds, text = time.monotonic() - started, said.read_text()
    said.unlink()
    return Ended(child.exitcode, text, seconds)


def _child(stage: Stage, root: Path, said: Path, tell, change: Change | None) -> None:
    with open(said, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    if change is not None:
        change()
    tell.send("ready")
    stage.run(root)
