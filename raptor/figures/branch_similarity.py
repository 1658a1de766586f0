"""How alike the layers are in what their branches add, beside the states after the blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib import patheffects
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from raptor.figures.panels import layer_ticks
from raptor.figures.vocabulary import MEASURES, METHODS, SITES, label, ordered, spans, term
from raptor.tables.phases import DISTANCES

BAR_IN, MARGIN_IN, TITLE_IN = 0.7, 0.5, 0.55
LARGEST_PANEL_IN = 1.9
TICK_IN = 0.2  # room for the number of a layer
OWN, AFTER = ("-", "C3"), ((0, (2, 1.5)), "C0")  # cuts found at the site, and after the block


def draw(table: pd.DataFrame, settings: Mapping[str, Any]) -> Figure:
    """A row per teacher and k, a column per site; one colour scale per row."""
    rows = _rows(table)
    sites = ordered(SITES, table["site"])
    side = min((settings["width_in"] - BAR_IN - MARGIN_IN) / len(sites), LARGEST_PANEL_IN)
    figure, grid = plt.subplots(
        len(rows),
        len(sites),
        figsize=(
            side * len(sites) + BAR_IN + MARGIN_IN,
            len(rows) * (side + TITLE_IN) + MARGIN_IN,
        ),
        squeeze=False,
    )
    for row, (teacher, k) in zip(grid, rows, strict=True):
        here = table[table["teacher"] == teacher]
        values = here["value"].dropna()
        limits = values.min(), max(values.max(), values.min() + 1e-9)
        after = _phases(here, "block", k)
        for axes, site in zip(row, sites, strict=True):
            matrix = here[(here["part"] == "matrix") & (here["site"] == site)]
            image = _matrix(axes, matrix, limits, settings, side)
            own = _phases(here, site, k)
            if own["segments"] != after["segments"]:
                _cuts(axes, after["segments"], *AFTER)
            _cuts(axes, own["segments"], *OWN)
            axes.set_title(_title(site, own), fontsize=7)
            axes.tick_params(labelleft=site == sites[0])
        row[0].set_ylabel(f"{label(teacher)}, k = {k}\nlayer")
        bar = figure.colorbar(image, ax=list(row), shrink=0.8, pad=0.01, aspect=15)
        bar.set_label(_measure(table).replace(" (", "\n("))
        bar.outline.set_visible(False)
    for axes in grid[-1]:
        axes.set_xlabel("layer")
    figure.legend(
        [Line2D([], [], color=colour, linestyle=dashes) for dashes, colour in (OWN, AFTER)],
        ["phases found here", "phases after the block, where they differ"],
        loc="outside lower center",
        ncols=2,
    )
    return figure


def _rows(table: pd.DataFrame) -> list[tuple[str, int]]:
    """Teacher and k of each row, in the order of the table."""
    cuts = table[table["part"] == "phases"]
    pairs = zip(cuts["teacher"], cuts["k"].astype(int), strict=True)
    return list(dict.fromkeys(pairs))


def _phases(here: pd.DataFrame, site: str, k: int) -> pd.Series:
    cuts = here[(here["part"] == "phases") & (here["site"] == site) & (here["k"] == k)]
    return cuts.iloc[0]


def _measure(table: pd.DataFrame) -> str:
    return term(MEASURES, table["measure"].iloc[0]).label


def _matrix(
    axes: Axes,
    entries: pd.DataFrame,
    limits: tuple[float, float],
    settings: Mapping[str, Any],
    side: float,
):
    """One matrix; its image, for the colour bar."""
    matrix = entries.pivot_table(index="layer_a", columns="layer_b", values="value")
    depth = len(matrix)
    image = axes.imshow(
        matrix,
        vmin=limits[0],
        vmax=limits[1],
        cmap=settings["cmap"],
        extent=(0.5, depth + 0.5, depth + 0.5, 0.5),
    )
    ticks = layer_ticks(depth, most=max(2, int(side / TICK_IN)))
    axes.set_xticks(ticks)
    axes.set_yticks(ticks)
    axes.spines[:].set_visible(False)
    if settings["annotate"]:
        for entry in entries.itertuples():
            red, green, blue, _ = matplotlib.colormaps[settings["cmap"]](image.norm(entry.value))
            axes.text(
                entry.layer_b,
                entry.layer_a,
                f"{entry.value:.2f}".replace("0.", ".", 1),
                ha="center",
                va="center",
                fontsize=max(3.0, min(6.0, 26 * side / depth)),
                color="white" if 0.3 * red + 0.6 * green + 0.1 * blue < 0.5 else "black",
            )
    return image


def _cuts(axes: Axes, segments: str, dashes: Any, colour: str) -> None:
    """A square around each segment, on a white ground."""
    for segment in segments.split():
        first, last = map(int, segment.split("-"))
        square = Rectangle((first - 0.5,) * 2, *[last - first + 1] * 2, fill=False, lw=1.4)
        square.set(edgecolor=colour, linestyle=dashes, zorder=3, clip_on=False)
        square.set_path_effects(
            [patheffects.Stroke(linewidth=2.6, foreground="white"), patheffects.Normal()]
        )
        axes.add_patch(square)


def _title(site: str, own: pd.Series) -> str:
    lines = [term(SITES, site).label, spans(own["segments"])]
    contrast = own["contrast"]
    return "\n".join([*lines, "" if pd.isna(contrast) else f"contrast {contrast:.3g}"])


def numbers(table: pd.DataFrame) -> dict[str, Any]:
    """Phases and contrasts by teacher, k and site, and whether the sites agree."""
    cuts, entries = table[table["part"] == "phases"], table[table["part"] == "matrix"]
    results = []
    for teacher, k in _rows(table):
        here = cuts[cuts["teacher"] == teacher]
        after = _phases(here, "block", k)
        sites = [_site(_phases(here, site, k)) for site in ordered(SITES, here["site"])]
        results.append(
            {
                "title": f"{label(teacher)}, k = {k}",
                "boundaries": k - 1,
                "by_chance": after["shared_by_chance"],
                "block": sites[0],
                "branches": sites[1:],
            }
        )
    branches = [one for result in results for one in result["branches"]]
    return {
        "results": results,
        "measure": _measure(table),
        "is_distance": table["measure"].iloc[0] in DISTANCES,
        "method": term(METHODS, cuts["method"].iloc[0]).label,
        "n_low": int(entries["n"].min()),
        "n_high": int(entries["n"].max()),
        "n_resamples": int(cuts["n_resamples"].max()),
        "all_shared": all(one["shared"] == one["boundaries"] for one in branches),
        "none_shared": all(one["shared"] == 0 for one in branches),
        "disagreeing": [
            f"{result['title']} ({one['name']})"
            for result in results
            for one in result["branches"]
            if one["shared"] < one["boundaries"]
        ],
        "no_contrast": [
            f"{result['title']} ({one['name']})"
            for result in results
            for one in result["branches"]
            if not np.isnan(one["low"]) and one["low"] <= 0
        ],
    }


def _site(cut: pd.Series) -> dict[str, Any]:
    """`contrast`, `low`, `high` are those under the phases found after the block."""
    return {
        "name": term(SITES, cut["site"]).label,
        "segments": spans(cut["segments"]),
        "boundaries": int(cut["boundaries"]),
        "shared": int(cut["shared"]),
        "shared_low": cut["shared_low"],
        "shared_high": cut["shared_high"],
        "exact_share": cut["exact_share"],
        "contrast": cut["contrast_block"],
        "low": cut["contrast_block_low"],
        "high": cut["contrast_block_high"],
    }
