"""Fig. 1: how similar the layers of each teacher are to one another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from raptor.figures.panels import layer_ticks
from raptor.figures.vocabulary import MEASURES, label, ordered, term
from raptor.tables.phases import DISTANCES

BAR_IN, MARGIN_IN, TITLE_IN = 0.6, 0.5, 0.3
LARGEST_PANEL_IN = 1.7


def draw(table: pd.DataFrame, settings: Mapping[str, Any]) -> Figure:
    """One row per measure, with one colour scale; one column per teacher."""
    teachers = list(dict.fromkeys(table["teacher"]))
    measures = ordered(MEASURES, table["measure"])
    room = settings["width_in"] - BAR_IN - MARGIN_IN
    side = min(room / len(teachers), LARGEST_PANEL_IN)
    figure, grid = plt.subplots(
        len(measures),
        len(teachers),
        figsize=(
            side * len(teachers) + BAR_IN + MARGIN_IN,
            len(measures) * (side + TITLE_IN) + MARGIN_IN,
        ),
        squeeze=False,
    )
    for number, (row, measure) in enumerate(zip(grid, measures, strict=True)):
        entries = table[table["measure"] == measure]
        limits = entries["value"].min(), max(entries["value"].max(), entries["value"].min() + 1e-9)
        for axes, teacher in zip(row, teachers, strict=True):
            image = _panel(axes, entries[entries["teacher"] == teacher], limits, settings, side)
            _title(axes, entries, teacher, first_row=number == 0)
        bar = figure.colorbar(image, ax=list(row), shrink=0.8, pad=0.01, aspect=15)
        bar.set_label(_short(measure))
        bar.outline.set_visible(False)
    depths = [table.loc[table["teacher"] == teacher, "layer_a"].max() for teacher in teachers]
    for (row, here), axes in np.ndenumerate(grid):
        has_own_depth = here == 0 or depths[here] != depths[here - 1]
        axes.tick_params(labelleft=has_own_depth, labelbottom=row == len(measures) - 1)
    figure.supxlabel("layer", fontsize="medium")
    figure.supylabel("layer", fontsize="medium")
    return figure


def _panel(
    axes: Axes,
    entries: pd.DataFrame,
    limits: tuple[float, float],
    settings: Mapping[str, Any],
    side: float,
):
    """One matrix; its image, for the colour bar."""
    matrix = entries.pivot_table(index="layer_a", columns="layer_b", values="value")
    depth = max(len(matrix), 1)
    image = axes.imshow(
        matrix if len(matrix) else np.full((1, 1), np.nan),
        vmin=limits[0],
        vmax=limits[1],
        cmap=settings["cmap"],
        extent=(0.5, depth + 0.5, depth + 0.5, 0.5),
    )
    ticks = layer_ticks(depth, most=max(2, int(side / 0.2)))
    axes.set_xticks(ticks)
    axes.set_yticks(ticks)
    axes.spines[:].set_visible(False)
    if settings["annotate"]:
        middle = sum(limits) / 2
        for entry in entries.itertuples():
            axes.text(
                entry.layer_b,
                entry.layer_a,
                f"{entry.value:.2f}".removeprefix("0"),
                ha="center",
                va="center",
                fontsize=max(3.0, min(7.0, 26 * side / depth)),
                color="white" if entry.value < middle else "black",
            )
    return image


def _title(axes: Axes, entries: pd.DataFrame, teacher: str, *, first_row: bool) -> None:
    lines = [label(teacher)] if first_row else []
    contrast = entries.loc[entries["teacher"] == teacher, "contrast"]
    if contrast.notna().any():
        lines.append(f"contrast {contrast.iloc[0]:.3g}")
    axes.set_title("\n".join(lines), fontsize=7)


def _short(measure: str) -> str:
    return term(MEASURES, measure).label.replace(" (", "\n(").replace("squared ", "squared\n")


def numbers(table: pd.DataFrame) -> dict[str, Any]:
    """Contrasts of the published measure, images, and what the paper's claim says about them."""
    measures = ordered(MEASURES, table["measure"])
    main = table[table["measure"] == measures[0]]
    first = main.drop_duplicates("teacher")
    teachers = [
        {
            "name": label(row.teacher),
            "trained": bool(row.trained),
            "contrast": row.contrast,
            "low": row.contrast_low,
            "high": row.contrast_high,
            "n": int(row.n),
        }
        for row in first.itertuples()
    ]
    cut = [one for one in teachers if not np.isnan(one["contrast"])]
    trained = [one for one in cut if one["trained"]]
    untrained = [one for one in cut if not one["trained"]]
    return {
        "teachers": teachers,
        "cut": cut,
        "trained": trained,
        "untrained": untrained,
        "measures": [term(MEASURES, measure).label for measure in measures],
        "distance_measures": [term(MEASURES, m).label for m in measures if m in DISTANCES],
        "k": int(first["k"].dropna().iloc[0]) if cut and "k" in first else None,
        "blocks_in_all_trained": all(one["contrast"] > 0 for one in trained),
        "clearly_above_untrained": bool(trained and untrained)
        and _lowest(trained, "low") > max(_upper(one) for one in untrained),
        "above_untrained": bool(trained and untrained)
        and _lowest(trained, "contrast") > max(one["contrast"] for one in untrained),
        "n_low": min(one["n"] for one in teachers),
        "n_high": max(one["n"] for one in teachers),
    }


def _lowest(teachers: list[dict[str, Any]], key: str) -> float:
    """The smallest value; without an interval its middle stands for it."""
    return min(one["contrast"] if np.isnan(one[key]) else one[key] for one in teachers)


def _upper(one: dict[str, Any]) -> float:
    return one["contrast"] if np.isnan(one["high"]) else one["high"]
