"""Fig. 3: Raptors with Max-Cut phases against other ways to cut the depth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from raptor.figures.panels import grid_lines, groups
from raptor.figures.vocabulary import METHODS, label, ordered, term
from raptor.tables import published
from raptor.tables.summary import sigmas, summarise

PANELS = {"recovered": "accuracy, % of the teacher's", "r2_mean": "mean R²"}
SCALE = {"recovered": 100.0, "r2_mean": 1.0}
WIDTH = 0.84  # of the room around one k that its points take


def draw(table: pd.DataFrame, settings: Mapping[str, Any]) -> Figure:
    """A row per teacher and recipe; left accuracy kept, right R²; one point per student."""
    rows = groups(table, ["teacher", "recipe"])
    figure, grid = plt.subplots(
        len(rows),
        len(PANELS),
        figsize=(settings["width_in"], settings["row_height_in"] * len(rows) + 0.3),
        squeeze=False,
    )
    methods = ordered(METHODS, table["partition"])
    for (title, group), row in zip(rows, grid, strict=True):
        for axes, (metric, name) in zip(row, PANELS.items(), strict=True):
            _panel(axes, group, metric, methods)
            axes.set_ylabel(name)
            axes.set_title(title if metric == "recovered" else "")
        row[0].axhline(100, color="0.3", linestyle="--", linewidth=0.8)
    _legend(figure, methods)
    return figure


def _panel(axes: Axes, group: pd.DataFrame, metric: str, methods: list[str]) -> None:
    ks = sorted(group["k"].unique())
    slot = WIDTH / len(methods)
    for rank, method in enumerate(methods):
        colour = term(METHODS, method).colour
        for place, k in enumerate(ks):
            some = group[(group["partition"] == method) & (group["k"] == k)].sort_values("seed")
            values = SCALE[metric] * some[metric]
            found = summarise(values)
            if not found.n:
                continue
            middle = place + (rank - (len(methods) - 1) / 2) * slot
            # Spread by seed, not at random: the same table always gives the same picture.
            beside = middle + slot * 0.32 * np.linspace(-1, 1, len(values) + 2)[1:-1]
            axes.plot(beside, values, "o", color=colour, markersize=2.5, alpha=0.45, mew=0)
            axes.errorbar(
                middle,
                found.mean,
                yerr=np.nan_to_num(found.sd),
                fmt="D",
                markersize=3.6,
                color=colour,
                markeredgecolor="0.15",
                markeredgewidth=0.5,
                ecolor="0.15",
                elinewidth=0.9,
                capsize=2,
                zorder=3,
            )
    for place in range(len(ks) - 1):
        axes.axvline(place + 0.5, color="0.88", linewidth=0.6, zorder=0)
    axes.set_xlim(-0.5, len(ks) - 0.5)
    axes.set_xticks(range(len(ks)), [str(k) for k in ks])
    axes.set_xlabel("number of blocks k")
    grid_lines(axes)


def _legend(figure: Figure, methods: list[str]) -> None:
    handles = [
        Line2D([], [], color=term(METHODS, m).colour, marker="D", linestyle="", mec="0.15", mew=0.5)
        for m in methods
    ]
    labels = [term(METHODS, m).label for m in methods]
    handles.append(Line2D([], [], color="0.3", linestyle="--", linewidth=0.8))
    figure.legend(
        handles,
        [*labels, "teacher"],
        loc="outside lower center",
        ncols=len(handles),
        columnspacing=1.2,
        handletextpad=0.3,
    )


def numbers(table: pd.DataFrame) -> dict[str, Any]:
    """Max-Cut against random contiguous partitions, in sd of the latter, by teacher and k."""
    comparisons = [
        comparison
        for title, group in groups(table, ["teacher", "recipe"])
        for k, some in group.groupby("k")
        if (comparison := _compare(title, int(k), some)) is not None
    ]
    distances = [one["sigmas"] for one in comparisons]
    least = published.SIGMAS_ABOVE_RANDOM
    by_method = table.groupby(["teacher", "recipe", "partition", "k"]).size()
    return {
        "comparisons": comparisons,
        "threshold": least,
        # One random partition has no spread, and a claim about spreads is then not tested.
        "all_defined": bool(distances) and not np.isnan(distances).any(),
        "all_above": bool(distances) and all(s >= least for s in distances),
        "none_above": bool(distances) and not any(s >= least for s in distances),
        "methods": [term(METHODS, m).label for m in ordered(METHODS, table["partition"])],
        "seeds_low": int(by_method.min()),
        "seeds_high": int(by_method.max()),
        "n_students": len(table),
        "n_test_low": int(table["n_test"].min()),
        "n_test_high": int(table["n_test"].max()),
        "teachers": [label(name) for name in sorted(table["teacher"].unique())],
    }


def _compare(title: str, k: int, some: pd.DataFrame) -> dict[str, Any] | None:
    """Accuracy kept and R² of Max-Cut beside random contiguous; None where one is missing."""
    chosen, random = (some[some["partition"] == name] for name in ("maxcut", "random"))
    if chosen.empty or random.empty:
        return None
    # A partition that was drawn twice is one partition with two seeds.
    drawn = random.groupby("segments")[list(PANELS)].mean()
    found = {metric: (summarise(chosen[metric]), summarise(drawn[metric])) for metric in PANELS}
    return {
        "title": title,
        "k": k,
        "maxcut": found["recovered"][0],
        "random": found["recovered"][1],
        "sigmas": sigmas(found["recovered"][0].mean, found["recovered"][1]),
        "sigmas_r2": sigmas(found["r2_mean"][0].mean, found["r2_mean"][1]),
    }
