"""Fig. 7: how far a layer turns the states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from raptor.figures.along_depth import (
    curves,
    depth_of,
    facts,
    labels_of,
    largest_gap,
    layer_axis,
    legend,
    panels,
    profile,
    rows_of,
    teachers_of,
    token_types,
    verdicts,
)
from raptor.figures.vocabulary import MODELS, TOKENS, label, ordered, term

MOST_COLUMNS = 3
STEADY = 0.25  # sd of the speed inside phases over its mean: near-stationary, as in the scorecard


def draw(table: pd.DataFrame, settings: Mapping[str, Any]) -> Figure:
    """A panel per teacher and model; mean over images with its 95 % interval."""
    shown = [
        (teacher, model)
        for teacher in teachers_of(table)
        for model in ordered(MODELS, rows_of(table, "profile", teacher=teacher)["model"])
    ]
    columns = min(len(shown), MOST_COLUMNS)
    rows = -(-len(shown) // columns)
    figure, grid = panels(rows, columns, settings, sharey=True)
    for axes in grid.flat[len(shown) :]:
        axes.remove()
    drawn = rows_of(table, "profile")
    drawn = drawn[drawn["tokens"] != "all"]
    for axes, (teacher, model) in zip(grid.flat, shown, strict=False):
        curves(axes, drawn[(drawn["teacher"] == teacher) & (drawn["model"] == model)])
        phases = rows_of(table, "segment", teacher=teacher)
        layer_axis(axes, depth_of(table, teacher), 1, phases)
        axes.set_title(f"{label(teacher)}: {term(MODELS, model).label}")
        axes.set_ylim(bottom=0)
    for row in grid:
        row[0].set_ylabel("angular speed (rad)")
    legend(figure, table, token_types(table))
    return figure


def numbers(table: pd.DataFrame) -> dict[str, Any]:
    """Speeds by token type, in and before the last phase, inside phases and where they meet."""
    found = {teacher: _of(table, teacher) for teacher in teachers_of(table)}
    claims = {teacher: _claims(one) for teacher, one in found.items()}
    tokens = token_types(table)
    gaps = {teacher: largest_gap(table, teacher, "speed", tokens) for teacher in found}
    return {
        **facts(table),
        "results": [{"name": label(teacher), **one} for teacher, one in found.items()],
        "words": {name: one.label for name, one in TOKENS.items()},
        "steady": STEADY,
        "gaps": [
            {"name": label(name), "gap": gap} for name, gap in gaps.items() if gap is not None
        ],
        **verdicts(table, claims),
    }


def _of(table: pd.DataFrame, teacher: str) -> dict[str, Any]:
    """Without the first step, out of the embedding, which belongs to no phase."""
    speeds = {
        name: profile(table, teacher, "teacher", name, "speed")[1:]
        for name in ("all", "cls", "registers", "patches")
    }
    labels = labels_of(table, teacher)
    across, last = np.diff(labels) != 0, labels[1:] == labels[-1:]
    cut = bool(across.any())  # with one phase there is no boundary
    within = [speeds["all"][~across & (labels[1:] == one)] for one in set(labels[1:])]
    within = [some for some in within if len(some) > 1]
    inside = float(speeds["all"][~across].mean()) if cut and not across.all() else None
    return {
        "mean": {name: float(some.mean()) for name, some in speeds.items() if len(some)},
        "sd": {name: float(some.std()) for name, some in speeds.items() if len(some)},
        "cut": cut,
        "last": {
            name: (float(some[last].mean()), float(some[~last].mean()))
            for name, some in speeds.items()
            if cut and len(some) and not last.all()
        },
        "across": float(speeds["all"][across].mean()) if cut else None,
        "inside": inside,
        "spread": _spread(within, inside),
    }


def _spread(within: list[np.ndarray], inside: float | None) -> float | None:
    """Pooled sd of the speed inside phases over its mean there; None without several layers."""
    if not within or inside is None:
        return None
    squares = sum(((some - some.mean()) ** 2).sum() for some in within)
    freedom = sum(len(some) - 1 for some in within)
    return float(np.sqrt(squares / freedom) / inside)


def _claims(one: Mapping[str, Any]) -> dict[str, bool | None]:
    mean, sd, last = one["mean"], one["sd"], one["last"]
    rise = {name: late - before for name, (late, before) in last.items()}
    others = [name for name in ("cls", "patches") if name in mean]
    slow = "registers" in mean
    return {
        "cls turns faster in the last phase than before it, and gains more than patches": None
        if "cls" not in rise
        else rise["cls"] > max(rise["patches"], 0),
        "registers turn more slowly than other tokens": all(
            mean["registers"] < mean[name] for name in others
        )
        if slow
        else None,
        "registers turn more steadily": all(sd["registers"] < sd[name] for name in others)
        if slow
        else None,
        "the speed is higher where phases meet than inside": None
        if one["inside"] is None
        else one["across"] > one["inside"],
        "the speed is near-stationary inside phases": None
        if not one["cut"] or one["spread"] is None
        else one["spread"] <= STEADY,
    }
