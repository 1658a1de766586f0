"""The tables of a run that the claims are tested on, each of them optional."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from raptor.phases import read_distances
from raptor.scorecard.thresholds import IMAGES
from raptor.scorecard.tidy import TABLES, read_tidy
from raptor.scorecard.verdicts import NotTested

METHOD = "maxcut"  # the phases that the claims are about
EXACT = "maxcut_exact"  # of the same cut the optimum, which bisection can miss


@dataclass(frozen=True)
class Evidence:
    """What the run left behind, and which teacher, recipe and phases the claims are tested on.

    `distances`: teacher -> distance of its layers (L, L) and bootstrap resamples (R, L, L), for
    the teacher and the untrained one. `tables`: those of TABLES that the run has.
    """

    teacher: str
    untrained: str | None = None
    recipe: str = ""
    k: int = 3  # of the phases
    min_size: int = 1  # layers of a phase, at least
    measure: str = "cosine"
    distances: Mapping[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)

    def table(self, name: str) -> pd.DataFrame:
        """A table, not empty; NotTested where the run has none."""
        table = self.tables.get(name)
        if table is None or table.empty:
            raise NotTested(f"there is no table of {TABLES[name][0]}")
        return table

    def of_teacher(self, name: str, teacher: str | None = None) -> pd.DataFrame:
        """The rows of `teacher` (the teacher under test) in a table; NotTested without any."""
        teacher, table = teacher or self.teacher, self.table(name)
        table = table[table["teacher"] == teacher]
        if table.empty:
            raise NotTested(f"the table of {TABLES[name][0]} has no row of the teacher {teacher}")
        return table

    def distance(self, teacher: str) -> tuple[np.ndarray, np.ndarray]:
        if teacher not in self.distances:
            raise NotTested(f"there is no similarity matrix of the teacher {teacher}")
        return self.distances[teacher]

    def methods(self, *teachers: str) -> list[str]:
        """Max-Cut as published, and the exact optimum where all these teachers are cut by it."""
        cut = [self.of_teacher("partitions", teacher) for teacher in teachers]
        exact = all(((table["method"] == EXACT) & (table["k"] == self.k)).any() for table in cut)
        return [METHOD, EXACT] if exact else [METHOD]

    @property
    def depth(self) -> int:
        """L, the number of layers of the teacher under study."""
        return len(json.loads(self.of_teacher("partitions")["labels"].iloc[0]))

    def labels(self, teacher: str, method: str = METHOD) -> tuple[int, ...]:
        """The phase of each layer, 1..k, by Max-Cut."""
        table = self.of_teacher("partitions", teacher)
        table = table[(table["method"] == method) & (table["k"] == self.k)]
        if table.empty:
            raise NotTested(f"the teacher {teacher} is not cut into {self.k} phases by Max-Cut")
        labels = tuple(json.loads(table.sort_values("seed")["labels"].iloc[0]))
        if len(set(labels)) in (1, len(labels)):
            raise NotTested(f"{self.k} phases of {len(labels)} layers leave nothing to compare")
        return labels

    def profile(self, tokens: str, column: str, first: int = 1) -> np.ndarray:
        """(N, L - first + 1): `column` by image and layer `first`..L, from the table `images`.

        Only images for which every layer is defined; NotTested with too few.
        """
        table = self.of_teacher("images")
        table = table[(table["model"] == "teacher") & (table["layer"] >= first)]
        table = table[table["tokens"] == tokens]
        if table.empty:
            raise NotTested(f"the teacher {self.teacher} has no {tokens}")
        wide = table.pivot_table(index="image", columns="layer", values=column, dropna=False)
        wide = wide.dropna()
        if len(wide) < IMAGES:
            raise NotTested(
                f"{column} of {tokens}: {len(wide)} images, at least {IMAGES} are needed"
            )
        return wide.to_numpy()

    def has(self, tokens: str) -> bool:
        """Whether the teacher has tokens of that type."""
        return (self.of_teacher("images")["tokens"] == tokens).any()


def read_evidence(
    *,
    teacher: str,
    untrained: str | None,
    recipe: str,
    k: int,
    min_size: int,
    measure: str,
    matrices: Sequence[Path],
    tables: Mapping[str, Path | Sequence[Path] | None],
) -> Evidence:
    """`matrices`: `similarity/<teacher>.npz`. `tables`: TABLES, each a file, files or None."""
    distances = {
        path.stem: read_distances(path, measure)
        for path in map(Path, matrices)
        if path.stem in (teacher, untrained)
    }
    found = read_tidy({name: paths for name, paths in tables.items() if paths})
    return Evidence(teacher, untrained, recipe, k, min_size, measure, distances, found)
