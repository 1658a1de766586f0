"""What probing reads from disk, checked: the index of students, a student, the teacher's probe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from raptor.errors import RaptorError
from raptor.files import sha256
from raptor.models.files import load_raptor
from raptor.teachers.adapter import Teacher


def read_index(path: Path) -> list[dict[str, Any]]:
    """The students that one training job lists in `path`."""
    try:
        students = json.loads(Path(path).read_text())["students"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RaptorError(f"{path}: no index of students ({error}); train them again") from None
    if not students:
        raise RaptorError(f"{path}: lists no student; train at least one")
    return students


def load_student(path: Path, checksum: str, teacher: Teacher, device: torch.device) -> nn.Module:
    """The student in `path`, in evaluation mode.

    RaptorError where it is not the one with that checksum, or does not predict states of the
    teacher's shape.
    """
    if not path.is_file() or sha256(path) != checksum:
        raise RaptorError(f"{path}: missing or not the student in its index; train it again")
    student = load_raptor(path, device).eval()
    state = (teacher.layout.total, teacher.width)
    try:
        with torch.inference_mode():
            shape = tuple(student(torch.zeros(1, *state, device=device)).shape[1:])
    except RuntimeError as error:
        shape = str(error)
    if shape != (teacher.depth, *state):
        raise RaptorError(
            f"{path}: does not predict states of shape {(teacher.depth, *state)} ({shape}); "
            "give a student of this teacher"
        )
    return student


def load_probe(path: Path, teacher: Teacher) -> nn.Linear:
    """The teacher's probe; RaptorError where the file does not fit this teacher."""
    features = teacher.width * (2 if teacher.layout.cls else 1)
    probe = nn.Linear(features, teacher.num_classes)
    try:
        probe.load_state_dict(load_file(path))
    except (OSError, SafetensorError, RuntimeError) as error:
        raise RaptorError(
            f"{path}: not a probe of {features} features and {teacher.num_classes} classes "
            f"({error}); probe the teacher again"
        ) from None
    return probe
