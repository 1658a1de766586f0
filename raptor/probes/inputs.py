"""Students from disk, checked against their teacher."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from raptor.errors import RaptorError
from raptor.files import sha256
from raptor.models.files import load_raptor
from raptor.student import Student, read_index
from raptor.teachers.adapter import Teacher


def load_student(path: Path, checksum: str, teacher: Teacher, device: torch.device) -> nn.Module:
    """The student in `path`, in evaluation mode.

    RaptorError where it is not the one with that checksum, or does not predict states of the
    teacher's shape.
    """
    if not path.is_file() or sha256(path) != checksum:
        raise RaptorError(
            f"{path}: missing or not the student in its index; delete the index and run again"
        )
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


def find_student(
    index: Path, student: Student, teacher: Teacher, device: torch.device
) -> nn.Module:
    """The one that `student` names, from the index that lists it; RaptorError if it does not."""
    for entry in read_index(index):
        if Student(*(entry[key] for key in ("recipe", "method", "k", "seed"))) == student:
            return load_student(
                Path(index).parent / entry["file"], entry["sha256"], teacher, device
            )
    raise RaptorError(f"{index}: lists no student {student.path}; delete it and run again")
