"""The name of a student, and the index in which one job lists those that it trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from raptor.errors import RaptorError
from raptor.files import plain_path


class Student(NamedTuple):
    """Which student it is, among those of one teacher.

    `seed` seeds its weights and data order; of a random method it is also the draw, the row in
    the CSV of that partition.
    """

    recipe: str
    method: str
    k: int
    seed: int

    @property
    def partition(self) -> str:
        """Name of its partition: that of the CSV, and of the folder of the student."""
        return f"{self.method}-k{self.k}"

    @property
    def path(self) -> str:
        """Path of its files below the folder of its teacher, without suffix."""
        return f"{self.recipe}/{self.partition}/seed{self.seed}"


def read_index(path: Path) -> list[dict[str, Any]]:
    """The students that one training job lists in `path`."""
    try:
        students = json.loads(Path(path).read_text())["students"]
        for student in students:
            plain_path(student["file"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RaptorError(
            f"{path}: no index of students ({error}); delete it and run again"
        ) from None
    if not students:
        raise RaptorError(f"{path}: lists no student; delete it and run again")
    return students
