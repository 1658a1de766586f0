"""The name of a student: all that tells it from the others of its teacher."""

from __future__ import annotations

from typing import NamedTuple


class Student(NamedTuple):
    """Which student it is, among those of one teacher.

    `seed` is its row in the CSV of that partition, and seeds its weights and data order.
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
