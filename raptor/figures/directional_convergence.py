"""Fig. 6: where states head over depth, how long they grow, and how classes part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from raptor.figures.along_depth import (
    LINES,
    curves,
    depth_of,
    facts,
    largest_gap,
    layer_axis,
    legend,
    panels,
    profile,
    rows_of,
    teachers_of,
    titled,
    token_types,
    verdicts,
)
from raptor.figures.panels import logarithmic
from raptor.figures.vocabulary import CLASSES, MODELS, TOKENS, label, ordered, term

JUDGED = ("cls", "patches")  # what the paper's claim about γ and norms is tested on
MOST_CLASSES = 10  # whose trajectories are drawn, the first ones
DOT_IN = 0.11  # of the end of a trajectory, which holds the number of the class


def draw(table: pd.DataFrame, settings: Mapping[str, Any]) -> Figure:
    """Two rows per teacher: γ, norms, angles to classes; accuracy of these, trajectories."""
    teachers = teachers_of(table)
    figure, grid = panels(2 * len(teachers), 3, settings)
    for row, teacher in enumerate(teachers):
        here = table[table["teacher"] == teacher]
        above, below = grid[2 * row], grid[2 * row + 1]
        _profiles(above[:2], here)
        _angles(above[2], rows_of(here, "basin"))
        _accuracy(below[0], rows_of(here, "basin"))
        for axes in (*above, below[0]):
            layer_axis(axes, depth_of(table, teacher), 0, rows_of(here, "segment"))
        _trajectories(below[1:], rows_of(here, "trajectory"))
        titled(above[0], "direction", teacher, len(teachers) > 1)
    legend(figure, table, token_types(table))
    return figure


def _profiles(panels: np.ndarray, here: pd.DataFrame) -> None:
    direction, norm = panels
    rows = rows_of(here, "profile")
    rows = rows[rows["tokens"] != "all"]
    curves(direction, rows[rows["metric"] == "direction"])
    direction.set_ylabel(r"$\gamma_l=\langle\hat{x}_l,\hat{x}_L\rangle$")
    curves(norm, rows[rows["metric"] == "norm"])
    logarithmic(norm)
    norm.set_ylabel(r"norm $\|x_l\|$")
    norm.set_title("norm")


def _angles(axes: Axes, rows: pd.DataFrame) -> None:
    """Angle from tokens to the centroid of their own class and to the others'."""
    for model in ordered(MODELS, rows["model"]):
        for metric, (name, colour) in CLASSES.items():
            some = rows[(rows["model"] == model) & (rows["metric"] == metric)].sort_values("layer")
            style = {"color": colour, "linestyle": LINES[model], "linewidth": 1.1}
            style["label"] = name if model == "teacher" else None
            axes.plot(some["layer"], some["value"], **style)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("angle to centroid (rad)")
    axes.set_title("class basins")
    axes.legend(loc="upper left", bbox_to_anchor=(-0.1, -0.2), ncols=2, borderaxespad=0,
                handlelength=1.4, columnspacing=1)  # fmt: skip


def _accuracy(axes: Axes, rows: pd.DataFrame) -> None:
    for model in ordered(MODELS, rows["model"]):
        where = (rows["model"] == model) & (rows["metric"] == "nearest_centroid_accuracy")
        some = rows[where].sort_values("layer")
        axes.plot(some["layer"], 100 * some["value"], color="0.15", linestyle=LINES[model])
    axes.set_ylim(0, 103)
    axes.set_ylabel("accuracy (%)")
    axes.set_title("nearest centroid")


def _trajectories(panels: np.ndarray, rows: pd.DataFrame) -> None:
    """Class means in one plane, a panel per model on the same scale."""
    models = ordered(MODELS, rows["model"])
    for axes in panels[len(models) :]:
        axes.remove()
    rows = rows[rows["label"].isin(_classes(rows))]
    for axes, model in zip(panels, models, strict=False):
        for rank, (name, path) in enumerate(rows[rows["model"] == model].groupby("label")):
            path = path.sort_values("layer")
            x, y, colour = path["x"].to_numpy(), path["y"].to_numpy(), f"C{rank}"
            axes.plot(x, y, color=colour, linewidth=0.9, marker=".", markersize=2.5)
            axes.plot(
                x[0], y[0], "o", color="0.15", markerfacecolor="white", markersize=5, zorder=4
            )
            axes.plot(x[-1], y[-1], "o", color=colour, markersize=72 * DOT_IN, mew=0, zorder=5)
            number = axes.text(x[-1], y[-1], str(name), fontsize=6, weight="bold", zorder=6)
            number.set(color=_on(colour), ha="center", va="center_baseline")
        axes.set_aspect("equal", adjustable="datalim")
        axes.set(xlabel="first axis", title=f"class means: {term(MODELS, model).label}")
        axes.plot(rows["x"], rows["y"], " ")  # the same scale for both models
        axes.margins(0.12)
    panels[0].set_ylabel("second axis")


def _on(colour: str) -> str:
    """Black or white, whichever is read on `colour`."""
    return "black" if np.dot(to_rgb(colour), [0.299, 0.587, 0.114]) > 0.6 else "white"


def _classes(rows: pd.DataFrame) -> list[int]:
    return sorted(rows["label"].unique())[:MOST_CLASSES]


def numbers(table: pd.DataFrame) -> dict[str, Any]:
    """γ, norms and class basins in the mean, and what of the paper's claim about them holds."""
    found = {teacher: _of(table, teacher) for teacher in teachers_of(table)}
    tokens = token_types(table)
    gaps = {teacher: largest_gap(table, teacher, "direction", tokens) for teacher in found}
    classes = rows_of(table, "trajectory")["label"].unique()
    return {
        **facts(table),
        "results": list(found.values()),
        "gaps": [
            {"name": label(name), "gap": gap} for name, gap in gaps.items() if gap is not None
        ],
        "n_classes": len(classes),
        "n_shown": min(len(classes), MOST_CLASSES),
        **verdicts(table, {teacher: _claims(one) for teacher, one in found.items()}),
    }


def _of(table: pd.DataFrame, teacher: str) -> dict[str, Any]:
    tokens = []
    for name in JUDGED:
        gamma = profile(table, teacher, "teacher", name, "direction")
        norm = profile(table, teacher, "teacher", name, "norm")
        if len(gamma):
            steps = np.diff(gamma)
            tokens.append(
                {
                    "name": term(TOKENS, name).label,
                    "start": float(gamma[0]),
                    "rises": bool((steps > 0).all()),
                    "steepest": int(steps.argmax()) + 1,  # the layer that turns it most
                    "inside": 0 < steps.argmax() < len(steps) - 1,
                    "growth": float(norm[-1] / norm[1]),  # the first block starts from nothing
                    "grows": bool((np.diff(norm[1:]) > 0).all()),
                }
            )
    rows = rows_of(table, "basin", teacher=teacher, model="teacher")
    basins = rows.pivot_table(index="layer", columns="metric", values="value")
    # Of one class alone there is no angle to others, and no row for it.
    basins = basins.reindex(columns=["within_angle", "between_angle", "nearest_centroid_accuracy"])
    first, last = basins.loc[1], basins.iloc[-1]
    return {
        "name": label(teacher),
        "tokens": tokens,
        "depth": int(basins.index[-1]),
        "within": float(last["within_angle"]),
        "between": float(last["between_angle"]),
        "ratio": (_ratio(first), _ratio(last)),
        "accuracy": tuple(float(one["nearest_centroid_accuracy"]) for one in (first, last)),
    }


def _ratio(basins: pd.Series) -> float:
    """How much further the other classes are than the own one."""
    return float(basins["between_angle"] / basins["within_angle"])


def _claims(one: Mapping[str, Any]) -> dict[str, bool | None]:
    tokens = one["tokens"]
    return {
        "γ rises at every layer": all(token["rises"] for token in tokens),
        "γ rises fastest at an inner layer (an S-curve)": all(t["inside"] for t in tokens),
        "norms grow at every layer after the first": all(token["grows"] for token in tokens),
        "classes part along depth": _more(one["ratio"]),
        "the nearest centroid is more often the right one": _more(one["accuracy"]),
    }


def _more(ends: tuple[float, float]) -> bool | None:
    """Whether the last is larger than the first; None where that is not known."""
    return None if np.isnan(ends).any() else ends[1] > ends[0]
