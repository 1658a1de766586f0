"""Appendix: loss, R² and λ over the steps of both training stages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from raptor.figures.panels import grid_lines, groups, logarithmic
from raptor.figures.vocabulary import label
from raptor.tables import published
from raptor.tables.summary import summarise, summarise_by

KEYS = ["teacher", "recipe", "partition"]
STAGES = {
    "stage1": "stage 1: each block on its own segment",
    "stage2": "stage 2: joined, closed loop",
}
METRICS = {"loss": "loss", "r2": "R² (validation)", "lambda": "λ"}
HEIGHTS = {"loss": 1.0, "r2": 1.0, "lambda": 0.5}
LOWEST_R2 = -0.25  # the start of a random block can be far below: not drawn
LAST = 0.2  # the share of stage 2 over which flatness is measured
FLAT = 0.01  # relative change of R² over it that the caption still calls flat


def draw(table: pd.DataFrame, settings: Mapping[str, Any]) -> Figure:
    """Columns: stages. Rows: metrics, for each teacher, recipe and partition. Bands: ± sd."""
    parts, stages, metrics = groups(table, KEYS), _stages(table), _metrics(table)
    heights = [HEIGHTS[metric] for metric in metrics] * len(parts)
    figure, grid = plt.subplots(
        len(heights),
        len(stages),
        figsize=(settings["width_in"], settings["row_height_in"] * sum(heights) + 0.4),
        height_ratios=heights,
        sharex="col",
        sharey="row",
        squeeze=False,
    )
    colours = _colours(table)
    for number, (title, group) in enumerate(parts):
        rows = grid[number * len(metrics) : (number + 1) * len(metrics)]
        for row, metric in zip(rows, metrics, strict=True):
            for axes, stage in zip(row, stages, strict=True):
                some = group[(group["metric"] == metric) & (group["stage"] == stage)]
                if len(some):
                    _panel(axes, some, metric, colours)
                else:
                    _absent(axes, f"no {_short(stage)} in this recipe")
            row[0].set_ylabel(METRICS[metric])
        for axes, stage in zip(rows[0], stages, strict=True):
            name = STAGES.get(stage, label(stage))
            axes.set_title(f"{title} – {name}" if len(parts) > 1 else name)
    for axes in grid[-1]:
        axes.set_xlabel("step")
    figure.align_ylabels()
    handles, names = _handles(grid, len(colours))
    figure.legend(handles, names, loc="outside lower center", ncols=len(names))
    return figure


def _stages(table: pd.DataFrame) -> list[str]:
    return sorted(table["stage"].unique())


def _metrics(table: pd.DataFrame) -> list[str]:
    """λ is left out where it is 0 from beginning to end."""
    forced = table.loc[table["metric"] == "lambda", "value"].gt(0).any()
    return [metric for metric in METRICS if metric != "lambda" or forced]


def _colours(table: pd.DataFrame) -> dict[int, Any]:
    ks = sorted(table["k"].unique())
    shades = matplotlib.colormaps["viridis"](np.linspace(0.1, 0.8, len(ks)))
    return dict(zip(ks, shades, strict=True))


def _panel(axes: Axes, some: pd.DataFrame, metric: str, colours: dict[int, Any]) -> None:
    for k, colour in colours.items():
        found = summarise_by(some[some["k"] == k].sort_values("step"), ["step"], "value")
        if found.empty:
            continue
        sd = found["sd"].fillna(0.0)
        marker = "o" if len(found) == 1 else None  # a single row has no line
        axes.plot(found["step"], found["mean"], color=colour, marker=marker, label=f"k = {k}")
        low, high = found["mean"] - sd, found["mean"] + sd
        if metric == "loss":
            low = low.clip(lower=found["mean"] / 10)  # a band to below 0 has no place on a log axis
        axes.fill_between(found["step"], low, high, color=colour, alpha=0.2, linewidth=0)
    if metric == "loss":
        logarithmic(axes)
    elif metric == "r2" and len(some):
        axes.set_ylim(max(LOWEST_R2, some["value"].min() - 0.02), 1.01)
    else:
        axes.set_ylim(-0.05, 1.05)
    grid_lines(axes)


def _absent(axes: Axes, why: str) -> None:
    axes.text(0.5, 0.5, why, transform=axes.transAxes, ha="center", va="center", color="0.4")
    axes.grid(visible=False)


def _short(stage: str) -> str:
    """`stage1` -> `stage 1`."""
    return label(stage.replace("stage", "stage "))


def _handles(grid: np.ndarray, most: int) -> tuple[list[Any], list[str]]:
    """One legend entry per k, wherever it was drawn."""
    found: dict[str, Any] = {}
    for axes in grid.flat:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(name, handle)
        if len(found) == most:
            break
    return [found[name] for name in sorted(found)], sorted(found)


def numbers(table: pd.DataFrame) -> dict[str, Any]:
    """How flat R² was at the end of the last stage, by teacher, recipe, partition and k."""
    final = table[table["metric"] == "r2"]
    last_stage = final.groupby("recipe")["stage"].transform("max")
    final = final[final["stage"] == last_stage]
    results = []
    for title, group in groups(final, KEYS):
        for k, some in group.groupby("k"):
            seeds = [one.sort_values("step") for _, one in some.groupby("seed")]
            last = summarise(one["value"].iloc[-1] for one in seeds)
            change = summarise(last_change(one["step"], one["value"]) for one in seeds)
            results.append({"title": title, "k": int(k), "r2": last, "change": change})
    known = [one for one in results if not np.isnan(one["change"].mean)]
    return {
        "results": results,
        "last": LAST,
        "flat": FLAT,
        "not_flat": [one for one in known if abs(one["change"].mean) > FLAT],
        "measured": bool(known),
        "stages": [STAGES.get(stage, label(stage)) for stage in _stages(table)],
        "steps": [
            (
                label(recipe),
                [(_short(stage), int(one["step"].max())) for stage, one in some.groupby("stage")],
            )
            for recipe, some in table.groupby("recipe", sort=False)
        ],
        "forced": "lambda" in _metrics(table),
        "lowest_drawn": LOWEST_R2,
        "paper_steps": f"{published.STEPS:,}",
        "cut_off": bool((table.loc[table["metric"] == "r2", "value"] < LOWEST_R2).any()),
        "n_students": len(table.drop_duplicates([*KEYS, "k", "seed"])),
        "seeds_low": int(table.groupby([*KEYS, "k"])["seed"].nunique().min()),
        "seeds_high": int(table.groupby([*KEYS, "k"])["seed"].nunique().max()),
    }


def last_change(steps: pd.Series, r2: pd.Series) -> float:
    """Relative change of R² over the last LAST of the steps, from a linear interpolation.

    (R²_end − R²_(1 − LAST) end) / |R²_end|; NaN where nothing was measured before the last part.
    """
    steps_, values = np.asarray(steps, dtype=float), np.asarray(r2, dtype=float)
    start = (1 - LAST) * steps_[-1]
    if steps_[0] > start or values[-1] == 0:
        return float("nan")
    return float((values[-1] - np.interp(start, steps_, values)) / abs(values[-1]))
