"""What several figures share: groups of students, rows of panels, ticks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from raptor.figures.vocabulary import METHODS, label, term

# In the order in which they are labelled where there is room.
R2_TICKS = [0.9, 0, 0.99, 0.999, 0.9999, -9, -99, -999, 0.5, 0.95, 0.8, 0.98, 0.995, 0.998, 0.9995]
R2_TICKS += [0.9998, -1, 0.7, -0.5]
MOST_TICKS = 8
HIGHEST_R2 = 0.99999  # the scale ends here: 1 is infinitely far


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


def labels_apart(places: Sequence[float], names: Sequence[str], share: float) -> list[str]:
    """The names of ticks at rising places, none where the one before is closer than this share."""
    least, labels, last = share * (max(places) - min(places)), [], float("-inf")
    for place, name in zip(places, names, strict=True):
        near = place - last < least
        labels.append("" if near else name)
        last = last if near else place
    return labels


def k_ticks(axes: Axes, ks: Sequence[int]) -> None:
    axes.set_xticks(list(ks), [f"{k:.0f}" for k in ks])
    axes.set_xlabel("number of blocks k", labelpad=1)


def grid_lines(axes: Axes) -> None:
    axes.grid(visible=True, axis="y")


def logarithmic(axes: Axes) -> None:
    """A logarithmic y axis with plain numbers."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())


def open_towards_one(axes: Axes) -> None:
    """A scale of R² on which 0.9, 0.99 and 0.999 are equally far apart, and 0, −9 and −99 too."""

    def spread(r2: np.ndarray) -> np.ndarray:
        return -np.log10(np.maximum(1 - np.asarray(r2), 1 - HIGHEST_R2))

    axes.set_yscale("function", functions=(spread, lambda y: 1 - 10.0**-y))
    axes.autoscale(axis="y")  # again: margins on a linear scale would reach beyond 1
    low, high = axes.get_ylim()
    low, high = min(low, 1), min(high, HIGHEST_R2)
    ticks: list[float] = []
    room = (spread(high) - spread(low)) / MOST_TICKS
    for tick in R2_TICKS:
        if low <= tick <= high and all(abs(spread(tick) - spread(t)) >= room for t in ticks):
            ticks.append(tick)
    axes.set_yticks(ticks, [f"{tick:g}".replace("-", "−") for tick in ticks])
    axes.set_yticks([], minor=True)
    axes.set_ylim(low, high)


def lettered(axes: Axes, letter: str, title: str = "") -> None:
    """A panel letter, bold, at the left of its title."""
    axes.set_title(rf"$\bf{{{letter}}}$  {title}", loc="left")
