"""Which students an experiment trains, and where their files are."""

from __future__ import annotations

from dataclasses import dataclass

from raptor.config.experiment import Experiment


@dataclass(frozen=True, order=True)
class StudentGroup:
    """The students of one job: seeds `first..last` of one teacher, recipe and partition."""

    teacher: str
    recipe: str
    method: str
    k: int
    first: int
    last: int

    @property
    def path(self) -> str:
        """Path below `raptor/` and `probes/`, without suffix."""
        partition = f"{self.method}-k{self.k}"
        return f"{self.teacher}/{self.recipe}/{partition}/seeds{self.first}-{self.last}"


def student_groups(config: Experiment, study: str | None = None) -> list[StudentGroup]:
    """All groups of the experiment, or those that hold the students of one study (grid).

    Grids that share a student share its file: for each (teacher, recipe, method, k) the seeds are
    0 .. the largest `seeds` of any grid, cut into jobs of the smallest `seeds_per_job`.
    """
    seeds: dict[tuple[str, str, str, int], int] = {}
    per_job: dict[tuple[str, str, str, int], int] = {}
    wanted: dict[tuple[str, str, str, int], int] = {}
    for name, grid in config.students.items():
        for key in _keys(grid):
            seeds[key] = max(seeds.get(key, 0), grid.seeds)
            per_job[key] = min(per_job.get(key, grid.seeds_per_job), grid.seeds_per_job)
            if study in (None, name):
                wanted[key] = max(wanted.get(key, 0), grid.seeds)
    return [
        StudentGroup(*key, first, min(first + per_job[key], seeds[key]) - 1)
        for key, count in wanted.items()
        for first in range(0, seeds[key], per_job[key])
        if first < count
    ]


def _keys(grid):
    for teacher in grid.teachers:
        for recipe in grid.recipes:
            for method in grid.partitions:
                for k in grid.k:
                    yield teacher, recipe, method, k


def partitioned_teachers(config: Experiment) -> list[str]:
    """The teachers deep enough to be cut into the largest k of `partition.k`."""
    layers = max(config.partition.k) * config.partition.min_size
    return [name for name in config.teachers if config.architecture(name).depth >= layers]
