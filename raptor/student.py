"""The name of a student: all that tells it from the others of its teacher and recipe."""

from __future__ import annotations

from typing import NamedTuple


class Student(NamedTuple):
    """Which student it is, among those of one teacher and recipe.

    `seed` is its row in the CSV of that partition, and seeds its weights and data order.
    """

    method: str
    k: int
    seed: int

    @property
    def partition(self) -> str:
        """Name of its partition: that of the CSV, and of the folder of the student."""
        return f"{self.method}-k{self.k}"
