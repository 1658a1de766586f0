"""What several figures share: groups of students, rows of panels, ticks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from raptor.figures.vocabulary import METHODS, label, term


def groups(table: pd.DataFrame, keys: Sequence[str]) -> list[tuple[str, pd.DataFrame]]:
    """The groups of `table` by `keys`, in order, each with a title.

    A title names the first key (the teacher) always, and of the others those that vary.
    """
    varying = [key for key in keys[1:] if len(set(table[key])) > 1]
    found = []
    for values, group in table.groupby(list(keys), sort=True):
        names = dict(zip(keys, values, strict=True))
        words = [names[keys[0]], *(names[key] for key in varying)]
        found.append((", ".join(map(_word, words)), group))
    return found


def _word(name: str) -> str:
    return term(METHODS, name).label if name in METHODS else label(name)


def layer_ticks(depth: int, most: int = 12) -> np.ndarray:
    """Layers to label, from 1, at most `most` of them and evenly spaced."""
    return np.arange(1, depth + 1, -(-depth // most))


def k_ticks(axes: Axes, ks: Sequence[int]) -> None:
    axes.set_xticks(list(ks), [f"{k:.0f}" for k in ks])
    axes.set_xlabel("number of blocks k", labelpad=1)


def grid_lines(axes: Axes) -> None:
    axes.grid(visible=True, axis="y")
