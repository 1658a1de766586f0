"""The style file and the colours, switched on while a figure is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib
from cycler import cycler
from matplotlib import pyplot as plt

from raptor.errors import RaptorError

STYLE = Path(__file__).with_name("style.mplstyle")

# seaborn's palette of this name, without the three seconds that importing seaborn takes.
COLORBLIND = [
    "#0173b2",
    "#de8f05",
    "#029e73",
    "#d55e00",
    "#cc78bc",
    "#ca9161",
    "#fbafe4",
    "#949494",
    "#ece133",
    "#56b4e9",
]


@contextmanager
def style(palette: str) -> Iterator[None]:
    """Inside, the style file holds and `C0` … `C9` are the colours of `palette`."""
    with (
        plt.style.context(STYLE),
        plt.rc_context({"axes.prop_cycle": cycler(color=_colours(palette))}),
    ):
        yield


def _colours(palette: str) -> list[str]:
    if palette == "colorblind":
        return COLORBLIND
    if palette not in matplotlib.color_sequences:
        names = ", ".join(["colorblind", *sorted(matplotlib.color_sequences)])
        raise RaptorError(f"figures.palette: {palette!r} is not one of {names}")
    return list(matplotlib.color_sequences[palette])
