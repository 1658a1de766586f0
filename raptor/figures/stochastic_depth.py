"""Fig. 4: teachers whose layers were dropped more or less often while they trained."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import inf
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from raptor.figures.along_teachers import (
    Places,
    accuracy_panel,
    counts,
    judged,
    of_teacher,
    r2_panel,
    sigmas_between,
    similarity_panel,
)
from raptor.figures.panels import (
    grid_lines,
    labels_apart,
    layer_ticks,
    lettered,
    open_towards_one,
)
from raptor.figures.vocabulary import TOKENS, label, spans
from raptor.tables.summary import summarise_by

LARGEST_PANEL_IN, SMALLEST_PANEL_IN, BAR_IN, TITLE_IN = 1.7, 1.0, 0.9, 0.6
PAD_IN = 0.08  # around each panel
CMAP = "viridis"
MARKERS = "osD^vP*"


def draw(table: pd.DataFrame, settings: Mapping[str, Any]) -> Figure:
    """A: similarity by p with its cuts; B: R² by layer; C: accuracy; D: mean R²; E: similarity."""
    teachers, apart = _teachers(table), _untrained(table)
    # The name of an untrained teacher is wider than a number.
    places = {teacher: place + 0.6 * (teacher in apart) for place, teacher in enumerate(teachers)}
    room = settings["width_in"] - BAR_IN
    lines = -(-len(teachers) // max(int(room / SMALLEST_PANEL_IN), 1))
    side = min(room / -(-len(teachers) // lines), LARGEST_PANEL_IN)
    heights = [lines * (side + TITLE_IN), settings["row_height_in"], settings["row_height_in"]]
    figure = plt.figure(figsize=(settings["width_in"], sum(heights)))
    figure.get_layout_engine().set(w_pad=PAD_IN, h_pad=PAD_IN)
    top, middle, bottom = figure.subfigures(3, 1, height_ratios=heights)
    _matrices(top, table, teachers, lines)
    cls, patches, accuracy = middle.subplots(1, 3)
    for axes, tokens in ((cls, "cls"), (patches, "patches")):
        _by_layer(axes, table, tokens, teachers)
    lettered(cls, "B", "R² by layer: cls")
    patches.set_title("patches")
    cls.legend(loc="upper left", bbox_to_anchor=(0, -0.3), ncols=2, borderaxespad=0)
    accuracy_panel(accuracy, table, places, apart)
    lettered(accuracy, "C", "accuracy")
    fidelity, similarity, contrast = bottom.subplots(1, 3)
    r2_panel(fidelity, table, places, apart)
    lettered(fidelity, "D", "mean R²")
    similarity_panel(similarity, table, "similarity", places, apart)
    lettered(similarity, "E", "layer similarity")
    similarity_panel(contrast, table, "contrast", places, apart)
    for axes in (accuracy, fidelity, similarity, contrast):
        _p_axis(axes, table, places)
    return figure


def _teachers(table: pd.DataFrame) -> list[str]:
    """By p, the untrained ones last."""
    first = table.drop_duplicates("teacher").sort_values(["trained", "p"], ascending=[False, True])
    return list(first["teacher"])


def _untrained(table: pd.DataFrame) -> list[str]:
    return list(table.loc[table["trained"] == 0, "teacher"].unique())


def _name(table: pd.DataFrame, teacher: str) -> str:
    one = table[table["teacher"] == teacher].iloc[0]
    return f"p = {one['p']:g}" if one["trained"] else label(teacher)


def _matrices(figure: Any, table: pd.DataFrame, teachers: list[str], lines: int) -> None:
    """One matrix per teacher, in so many lines, on one colour scale, the segments as squares."""
    entries = table[table["part"] == "matrix"]
    limits = {"vmin": entries["value"].min(), "vmax": entries["value"].max()}
    grid = figure.subplots(lines, -(-len(teachers) // lines), squeeze=False)
    for axes in grid.flat[len(teachers) :]:
        axes.set_axis_off()
    for axes, teacher in zip(grid.flat, teachers, strict=False):
        own = entries[entries["teacher"] == teacher]
        matrix = own.pivot_table(index="layer", columns="layer_b", values="value")
        depth = len(matrix)
        extent = (0.5, depth + 0.5, depth + 0.5, 0.5)
        image = axes.imshow(matrix, cmap=CMAP, extent=extent, **limits)
        cut = table[(table["part"] == "segment") & (table["teacher"] == teacher)]
        for segment in cut.itertuples():
            corner, width = segment.first - 0.5, segment.last - segment.first + 1
            square = Rectangle((corner, corner), width, width, fill=False, lw=1.5, ec="C3")
            square.set_clip_on(False)
            axes.add_patch(square)
        text = spans(" ".join(f"{one.first:.0f}-{one.last:.0f}" for one in cut.itertuples()))
        axes.set_title(f"{_name(table, teacher)}\n{text}", fontsize=7)
        axes.set_xticks(layer_ticks(depth, most=8))
        axes.set_yticks(layer_ticks(depth, most=8))
        axes.spines[:].set_visible(False)
        axes.set_xlabel("layer")
    for axes in grid[:, 0]:
        axes.set_ylabel("layer")
    grid[0, 0].text(-0.3, 1.16, r"$\bf{A}$", transform=grid[0, 0].transAxes, fontsize=8)
    bar = figure.colorbar(image, ax=list(grid.flat), shrink=0.8, pad=0.01, aspect=15 * lines)
    bar.set_label("cosine similarity")
    bar.outline.set_visible(False)


def _by_layer(axes: Axes, table: pd.DataFrame, tokens: str, teachers: list[str]) -> None:
    """R² of the students of each teacher by layer, mean ± sd over seeds."""
    rows = table[(table["part"] == "layer") & (table["tokens"] == tokens)]
    trained = [teacher for teacher in teachers if teacher not in _untrained(table)]
    shades = matplotlib.colormaps[CMAP](np.linspace(0.05, 0.8, max(len(trained), 1)))
    for number, teacher in enumerate(teachers):
        own = rows[rows["teacher"] == teacher].sort_values("layer")
        found = summarise_by(own, ["layer"], "value")
        look = {"color": "0.5", "linestyle": "--", "markerfacecolor": "white"}
        if teacher in trained:
            look = {"color": shades[trained.index(teacher)], "linestyle": "-"}
        look |= {"marker": MARKERS[number % len(MARKERS)], "markersize": 3}
        sd = found["sd"].fillna(0.0)
        name = _name(table, teacher)
        axes.errorbar(found["layer"], found["mean"], yerr=sd, elinewidth=0.8, label=name, **look)
    axes.set_xticks(layer_ticks(int(rows["layer"].max()), most=8))
    axes.set_xlabel("layer")
    axes.set_ylabel(f"R², {TOKENS[tokens].label}")
    open_towards_one(axes)
    grid_lines(axes)


def _p_axis(axes: Axes, table: pd.DataFrame, places: Places) -> None:
    names = [_name(table, teacher).removeprefix("p = ") for teacher in places]
    axes.set_xticks(list(places.values()), labels_apart(list(places.values()), names, 0.12))
    axes.set_xlim(-0.4, max(places.values()) + 0.4)
    axes.set_xlabel("p of the teacher")


def numbers(table: pd.DataFrame) -> dict[str, Any]:
    """Similarity and R² by p, and whether both rise from the lowest p to the highest."""
    apart = _untrained(table)
    p = table.drop_duplicates("teacher").set_index("teacher")["p"]
    every = [
        {"name": _name(table, teacher), "p": float(p[teacher]), "trained": teacher not in apart}
        | of_teacher(table, teacher)
        for teacher in _teachers(table)
    ]
    trained = [one for one in every if one["trained"]]
    untrained = [one for one in every if not one["trained"]]
    tested = len(trained) > 1
    low, high = trained[0], trained[-1]
    return {
        **counts(table),
        "teachers": every,
        "trained": trained,
        "untrained": untrained,
        "tested": tested,
        "low": low,
        "high": high,
        "similarity_change": _change(low, high, "similarity"),
        "r2_change": high["r2"].mean - low["r2"].mean,
        "r2_sigmas": sigmas_between(low["r2"], high["r2"]),
        "contrast_change": _change(low, high, "contrast"),
        **judged(
            {"the similarity": _clear(low, high), "R²": sigmas_between(low["r2"], high["r2"])}
        ),
        "steady": {
            "similarity": all(_change(a, b, "similarity") > 0 for a, b in pairwise(trained)),
            "r2": all(b["r2"].mean > a["r2"].mean for a, b in pairwise(trained)),
        },
        "below_baseline": [one["name"] for one in every if one["r2"].mean <= one["baseline"]],
        "easier_untrained": [
            one["name"] for one in untrained if one["r2"].mean > max(t["r2"].mean for t in trained)
        ],
    }


def _change(low: dict[str, Any], high: dict[str, Any], metric: str) -> float:
    return high[metric]["value"] - low[metric]["value"]


def _clear(low: dict[str, Any], high: dict[str, Any]) -> float:
    """±∞ where the intervals of the similarity lie apart, else 0: as `judged` takes it."""
    before, after = low["similarity"], high["similarity"]
    if after["low"] > before["high"]:
        return inf
    return -inf if after["high"] < before["low"] else 0.0
