"""Students from disk, checked against their teacher."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

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
    indices: Iterable[Path], student: Student, teacher: Teacher, device: torch.device
) -> nn.Module:
    """The one that `student` names, from the index that lists it; RaptorError if none does."""
    index, entry = find_entry(indices, student)
    return load_student(index.parent / entry["file"], entry["sha256"], teacher, device)


def find_entry(indices: Iterable[Path], student: Student) -> tuple[Path, dict[str, Any]]:
    """The index that lists `student`, and what it says of it; RaptorError if none does."""
    indices = list(map(Path, indices))
    for index in indices:
        for entry in read_index(index):
            if Student(*(entry[key] for key in Student._fields)) == student:
                return index, entry
    named = ", ".join(map(str, indices))
    raise RaptorError(f"{named}: lists no student {student.path}; delete it and run again")
