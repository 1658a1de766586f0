"""A teacher together with its stored states, checked to belong together."""

from __future__ import annotations

from pathlib import Path

import torch

from raptor.activations.read import Activations
from raptor.errors import RaptorError
from raptor.files import sha256
from raptor.teachers.adapter import Teacher
from raptor.teachers.files import load_teacher


def open_teacher(
    teacher: Path,
    activations: Path,
    device: torch.device | str = "cpu",
    *,
    head: Path | None = None,
) -> tuple[Teacher, Activations]:
    """The teacher on `device`, with `head` if it has none, and the reader of its states.

    RaptorError where the states were extracted from other weights.
    """
    model, store = load_teacher(teacher, device, head=head), Activations(activations, device)
    if store.manifest.teacher.sha256 != sha256(teacher):
        raise RaptorError(
            f"{activations}: holds the states of other weights ({store.manifest.teacher.name}) "
            f"than {teacher}; extract the activations of this teacher again"
        )
    return model, store
