"""Reading the tables of the stages, and writing ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from raptor.errors import RaptorError
from raptor.files import replacing

# Names stay text even where they look like numbers (`2`) or like a missing value (`NA`).
TEXT = dict.fromkeys(
    [
        "teacher",
        "recipe",
        "partition",
        "method",
        "baseline",
        "tokens",
        "metric",
        "part",
        "kind",
        "segments",
        "split",
        "added",
        "head",
        "paradigm",
        "site",
        "model",
        "task",
        "sample_id",
        "like",
        "answer",
    ],
    str,
)
MISSING = ["", "nan"]


def read_table(path: Path, columns: str = "") -> pd.DataFrame:
    """The CSV `path`; RaptorError if it is no table or lacks one of `columns` (names, spaced)."""
    try:
        table = pd.read_csv(
            path,
            dtype=TEXT,
            keep_default_na=False,
            na_values=MISSING,
        )
    except (OSError, ValueError) as error:
        raise RaptorError(
            f"{path}: not a readable table ({error}); delete it and run again"
        ) from None
    missing = [name for name in columns.split() if name not in table]
    if missing:
        raise RaptorError(f"{path}: has no column {', '.join(missing)}; delete it and run again")
    return table


def read_tables(paths: Sequence[Path], columns: str = "") -> pd.DataFrame:
    """The tables `paths` one below the other, in the order given; RaptorError if there is none."""
    tables = [read_table(path, columns) for path in paths]
    if not any(len(table) for table in tables):
        listed = ", ".join(map(str, paths)) or "no file given"
        raise RaptorError(f"nothing to tabulate ({listed}); check that the study names students")
    # An empty table has no types, and would turn the numbers of the others into objects.
    return pd.concat([table for table in tables if len(table)], ignore_index=True)


def write_table(table: pd.DataFrame, path: Path) -> None:
    """`table` as CSV, whole or not at all; the same table always gives the same bytes."""
    with replacing(path) as temporary:
        table.to_csv(temporary, index=False, lineterminator="\n", encoding="utf-8")
