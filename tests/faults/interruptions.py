"""Interruptions at a given moment, done in the child: SIGKILL after a file was written."""

from __future__ import annotations

import functools
import importlib
import itertools
import os
import signal

LONG_RUN = os.environ.get("RAPTOR_FAULTS") == "long"  # make faults: more moments, other seeds


def die_after(calls: int, module: str, name: str, owner: str = "") -> None:
    """SIGKILL to the process itself once `name`, of a module or its `owner`, ran `calls` times."""
    holder = importlib.import_module(module)
    holder = getattr(holder, owner) if owner else holder
    original, count = getattr(holder, name), itertools.count(1)

    def dying(*arguments, **named):
        result = original(*arguments, **named)
        if next(count) == calls:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(holder, name, dying)


SAVED = functools.partial(die_after, 3, "raptor.training.checkpoint", "save", "Checkpoint")
TRAINED = functools.partial(die_after, 2, "raptor.training.raptor", "save_raptor")
HEADED = functools.partial(die_after, 1, "raptor.dense", "save_weights")
WRITTEN = functools.partial(die_after, 6, "raptor.activations.ledger", "record")
PROBED = functools.partial(die_after, 2, "raptor.kept", "save", "Kept")
