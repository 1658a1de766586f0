"""Layer swaps: the table behind Fig. 15."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from raptor.errors import RaptorError
from raptor.tables.files import read_table, read_tables, write_table

SWAPS = (
    "teacher k segments size kind targets sources accuracy accuracy_teacher drop relative_error "
    "distance n"
)


def layer_swaps(*, swaps: Sequence[Path], samples: Path, split: str, output: Path) -> None:
    """Every swap of every teacher; accuracies in [0, 1].

    `chance`: what always naming the commonest class of `split` in `samples` would score; NaN where
    the images have no labels.
    """
    table, images = read_tables(swaps, SWAPS), read_table(samples, "split label")
    labels = images.loc[images["split"] == split, "label"]
    if labels.empty:
        raise RaptorError(f"{samples}: has no image of the split {split}; set swaps.split")
    known = (labels >= 0).all()
    table["chance"] = labels.value_counts(normalize=True).max() if known else np.nan
    write_table(table, output)
