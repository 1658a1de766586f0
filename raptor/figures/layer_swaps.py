"""Fig. 15: accuracy after layers are replaced by others, of their own phase or of another."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from raptor.figures.panels import grid_lines
from raptor.figures.vocabulary import KINDS, METHODS, label, ordered, spans, term
from raptor.tables.summary import Summary, summarise
from raptor.tables.swap_gap import cross_products, gap

MOST_COLUMNS = 3
HARMLESS = 0.1  # share of the accuracy above chance whose loss the caption calls harmful
DODGE = 0.8


def draw(table: pd.DataFrame, settings: Mapping[str, Any]) -> Figure:
    """A panel per teacher; a point per swap, beside it the mean with its 95 % interval."""
    teachers = list(dict.fromkeys(table["teacher"]))
    columns = min(len(teachers), MOST_COLUMNS)
    rows = -(-len(teachers) // columns)
    figure, grid = plt.subplots(
        rows,
        columns,
        figsize=(settings["width_in"], settings["row_height_in"] * rows + 0.3),
        sharey=True,
        squeeze=False,
    )
    for axes in grid.flat[len(teachers) :]:
        axes.remove()
    kinds = ordered(KINDS, table["kind"])
    for axes, teacher in zip(grid.flat, teachers, strict=False):
        _panel(axes, table[table["teacher"] == teacher], kinds)
        axes.set_title(label(teacher))
        axes.set_xlabel("layers replaced")
    for row in grid:
        row[0].set_ylabel("accuracy (%)" if labelled(table) else "relative error of a$_L$ (%)")
    _legend(figure, kinds, lines=labelled(table))
    return figure


def labelled(table: pd.DataFrame) -> bool:
    """Whether accuracy is known; else the error of the last state is drawn."""
    return bool(table["accuracy"].notna().any())


def _panel(axes: Axes, here: pd.DataFrame, kinds: list[str]) -> None:
    metric = "accuracy" if labelled(here) else "relative_error"
    import seaborn  # slow to import; places the points of a swarm so that none hides another

    sizes = sorted(here["size"].unique())
    with warnings.catch_warnings():  # the caption gives n: a point that overlaps is not lost
        warnings.filterwarnings("ignore", message=".*points cannot be placed", category=UserWarning)
        seaborn.swarmplot(
            here.assign(percent=100 * here[metric]),
            x="size",
            y="percent",
            hue="kind",
            order=sizes,
            hue_order=kinds,
            palette={kind: term(KINDS, kind).colour for kind in kinds},
            dodge=True,
            size=2.2,
            alpha=0.55,
            legend=False,
            ax=axes,
        )
        axes.figure.canvas.draw()  # the swarm is placed when drawn: now, while it may not warn
    for place, size in enumerate(sizes):
        for rank, kind in enumerate(kinds):
            found = _of(here, size, kind, metric)
            middle = place + DODGE * ((rank + 0.5) / len(kinds) - 0.5)
            if found.n:
                _mean(axes, middle, found, term(KINDS, kind).colour)
    axes.axhline(100 * here["accuracy_teacher"].iloc[0], color="0.3", linestyle="--", linewidth=0.8)
    axes.axhline(100 * here["chance"].iloc[0], color="0.5", linestyle=":", linewidth=1.2)
    axes.set_ylim(0, 103 if labelled(here) else None)
    axes.set_ylabel("")
    grid_lines(axes)


def _of(here: pd.DataFrame, size: int, kind: str, metric: str) -> Summary:
    return summarise(here.loc[(here["size"] == size) & (here["kind"] == kind), metric])


def _mean(axes: Axes, middle: float, found: Summary, colour: str) -> None:
    half = 0.0 if np.isnan(found.ci_high) else found.ci_high - found.mean
    axes.errorbar(
        middle,
        100 * found.mean,
        yerr=100 * half,
        fmt="D",
        markersize=4.2,
        color=colour,
        markeredgecolor="0.1",
        markeredgewidth=0.7,
        ecolor="0.1",
        elinewidth=1.1,
        capsize=3,
        zorder=4,
    )


def _legend(figure: Figure, kinds: list[str], *, lines: bool) -> None:
    handles = [
        Line2D([], [], color=term(KINDS, kind).colour, marker="D", linestyle="", mec="0.1", mew=0.7)
        for kind in kinds
    ]
    names = [f"weights from {article} {term(KINDS, kind).label}"
             for kind in kinds
             for article in ["the" if kind == "intra" else "an"]]  # fmt: skip
    names = [name.replace("an other", "another") for name in names]
    if lines:
        handles.append(Line2D([], [], color="0.3", linestyle="--", linewidth=0.8))
        handles.append(Line2D([], [], color="0.5", linestyle=":", linewidth=1.2))
        names += ["teacher", "chance"]
    figure.legend(handles, names, loc="outside lower center", ncols=len(handles))


def numbers(table: pd.DataFrame) -> dict[str, Any]:
    """Mean accuracy after swaps by kind and size, and the gap, like with like."""
    results = []
    for (teacher, size), here in table.groupby(["teacher", "size"], sort=True):
        intra, inter = (_of(here, size, kind, "accuracy") for kind in KINDS)
        errors = [_of(here, size, kind, "relative_error") for kind in KINDS]
        results.append(
            {
                "teacher": label(teacher),
                "size": int(size),
                "intra": intra,
                "inter": inter,
                "gap": intra.mean - inter.mean,
                "error_intra": errors[0],
                "error_inter": errors[1],
                "apart": bool(intra.ci_low > inter.ci_high),
                "harmful_inside": bool(
                    intra.n
                    and here["accuracy_teacher"].iloc[0] - intra.mean
                    > (here["accuracy_teacher"].iloc[0] - here["chance"].iloc[0]) * HARMLESS
                ),
            }
        )
    compared = [one for one in results if not np.isnan(one["gap"])]
    first = table.drop_duplicates("teacher")
    return {
        "results": results,
        "labelled": labelled(table),
        "teachers": [
            {
                "name": label(row.teacher),
                "accuracy": row.accuracy_teacher,
                "partition": term(METHODS, row.partition).label,
                "k": int(row.k),
                "segments": spans(row.segments),
            }
            for row in first.itertuples()
        ],
        "chance": first["chance"].iloc[0],
        "harmless": HARMLESS,
        "n_swaps": len(table),
        "n_low": int(table["n"].min()),
        "n_high": int(table["n"].max()),
        "all_gaps_positive": bool(compared) and all(one["gap"] > 0 for one in compared),
        "no_gap_positive": bool(compared) and not any(one["gap"] > 0 for one in compared),
        "n_apart": sum(one["apart"] for one in compared),
        "n_compared": len(compared),
        "harmful_inside": [one for one in results if one["harmful_inside"]],
        "matched": [
            {"teacher": label(teacher), "gap": float(matched)}
            for teacher, here in table.groupby("teacher", sort=True)
            if not np.isnan(matched := gap(*(part.sum(axis=0) for part in cross_products(here))))
        ],
    }
