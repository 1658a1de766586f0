"""The tables over a whole experiment: every student, every layer, every teacher."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from raptor.tables.files import read_tables, write_table

STUDENT = ["teacher", "recipe", "partition", "k", "seed"]
FIDELITY = [
    *STUDENT,
    *["r2_mean", "r2_cls", "r2_patch", "accuracy", "accuracy_teacher", "recovered"],
]


def fidelity(*, students: Sequence[Path], output: Path) -> None:
    """One row per student: FIDELITY first, then what else was measured; accuracies in [0, 1]."""
    table = read_tables(students, " ".join(FIDELITY))
    rest = [name for name in table if name not in FIDELITY]
    write_table(table[[*FIDELITY, *rest]].sort_values(STUDENT, kind="stable"), output)


def layers(*, students: Sequence[Path], baselines: Sequence[Path], output: Path) -> None:
    """R² and ε of each student, and R² of the trivial baselines, by layer and token type.

    A row has either `recipe … seed` (a student) or `baseline` (a baseline of that teacher).
    """
    parts = [read_tables(students, " ".join([*STUDENT, "layer tokens r2"]))] if students else []
    parts.append(read_tables(baselines, "teacher baseline layer tokens r2"))
    table = pd.concat(parts, ignore_index=True).convert_dtypes()
    first = ["teacher", "baseline", *STUDENT[1:], "layer", "tokens"]
    table = table.reindex(columns=[*first, *[name for name in table if name not in first]])
    write_table(table.sort_values(first, kind="stable"), output)


def teachers(*, probes: Sequence[Path], output: Path) -> None:
    """One row per teacher: accuracies, parameters, R² of the trivial baselines."""
    write_table(read_tables(probes, "teacher accuracy").sort_values("teacher"), output)
