"""From one block to as many as there are layers: where does one block more stop to help?"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from raptor.figures.fidelity_by_k import KEYS, accuracy_panel, r2_panel
from raptor.figures.panels import groups
from raptor.tables import published
from raptor.tables.summary import Summary, summarise

ABOVE_IN = 0.5  # room for the parameters


def draw(table: pd.DataFrame, settings: Mapping[str, Any]) -> Figure:
    """A row per teacher, recipe and partition; left accuracy kept, right R²; bars: sd.

    Above, the parameters of the k blocks as a share of those of the teacher's.
    """
    rows = groups(table[table["part"] == "student"], KEYS)
    figure, grid = plt.subplots(
        len(rows),
        2,
        figsize=(settings["width_in"], (settings["row_height_in"] + ABOVE_IN) * len(rows)),
        squeeze=False,
    )
    for (title, group), (left, right) in zip(rows, grid, strict=True):
        beside = table[table["teacher"] == group["teacher"].iloc[0]]
        accuracy_panel(left, group, beside[beside["part"] == "reference"])
        r2_panel(right, group, beside[beside["part"] == "baseline"])
        for axes in (left, right):
            _parameters(axes, group)
        if len(rows) > 1:
            left.set_title(title)
    return figure


def _parameters(axes: Axes, group: pd.DataFrame) -> None:
    share = group[group["metric"] == "parameters"].groupby("k")["value"].mean()
    above = axes.secondary_xaxis("top")
    above.set_xticks(list(share.index), [f"{100 * value:.0f}" for value in share])
    above.set_xlabel("parameters, % of the teacher's blocks")
    above.spines["top"].set_visible(False)


def numbers(table: pd.DataFrame) -> dict[str, Any]:
    """What each block more adds to R² and accuracy, against the spread over seeds."""
    students = table[table["part"] == "student"]
    results = [_result(title, group) for title, group in groups(students, KEYS)]
    seeds = [step["r2"].n for one in results for step in one["by_k"]]
    baselines = table.loc[table["part"] == "baseline", "value"]
    return {
        "results": results,
        "several": len(results) > 1,
        "paper_k": max(published.TOP1),
        "best_baseline": baselines.max() if len(baselines) else None,
        "seeds_low": min(seeds),
        "seeds_high": max(seeds),
        "n_test_low": int(table["n_test"].min()),
        "n_test_high": int(table["n_test"].max()),
    }


def _result(title: str, group: pd.DataFrame) -> dict[str, Any]:
    by_k = [
        {
            "k": int(k),
            "r2": _of(some, "r2_mean"),
            "recovered": _of(some, "recovered"),
            "parameters": _of(some, "parameters").mean,
        }
        for k, some in group.groupby("k")
    ]
    steps = [
        {
            "k": after["k"],
            "before": before["k"],
            "gain": after["r2"].mean - before["r2"].mean,
            # Of the difference of two students, one of each k.
            "spread": float(np.hypot(after["r2"].sd, before["r2"].sd)),
            "spread_recovered": float(np.hypot(after["recovered"].sd, before["recovered"].sd)),
            "gain_recovered": after["recovered"].mean - before["recovered"].mean,
        }
        for before, after in pairwise(by_k)
    ]
    clear = [step["k"] for step in steps if step["gain"] > step["spread"]]
    return {
        "title": title,
        "by_k": by_k,
        "last": steps[-1] if steps else None,
        "known": bool(steps) and not np.isnan(steps[-1]["spread"]),
        "still_rises": bool(steps) and steps[-1]["k"] in clear,
        "falls": bool(steps) and steps[-1]["gain"] < -steps[-1]["spread"],
        # As many parameters as the teacher: what is lacking then is training, not blocks.
        "whole": [step for step in by_k if step["parameters"] >= 1],
        # The last k that is clearly better than the one before it.
        "last_clear": clear[-1] if clear else by_k[0]["k"],
    }


def _of(some: pd.DataFrame, metric: str) -> Summary:
    return summarise(some.loc[some["metric"] == metric, "value"])
