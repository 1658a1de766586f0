"""What the dense probes of a teacher and of its Raptor say of a few images, pixel by pixel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from raptor.figures.vocabulary import METHODS, MODELS, label, term
from raptor.qualitative import Example, Examples, agreement

COLUMNS = {
    "image": "image",
    "truth": "truth",
    "teacher": term(MODELS, "teacher").label,
    "raptor": term(MODELS, "raptor").label,
}
# The strong colours first, then their pale neighbours; the greys (14, 15) are of no named class.
_TAB20 = matplotlib.color_sequences["tab20"]
_HUES = (*_TAB20[:14], *_TAB20[16:])
COLOURS = [to_rgb(colour) for colour in (*_HUES[0::2], *_HUES[1::2])]
UNKNOWN = (1.0, 1.0, 1.0)
NOT_NAMED = (0.6, 0.6, 0.6)  # the classes that are not in the legend, all alike
MOST_NAMED = 12  # classes in the legend, those of most pixels
TITLES_IN, LEGEND_IN = 0.25, 0.6  # above and below the panels


def draw(examples: Examples, settings: Mapping[str, Any]) -> Figure:
    """A row per image: itself, the truth, and what each model says of it."""
    shapes = [example.truth.shape for example in examples.examples]
    room = settings["width_in"] / len(COLUMNS)
    heights = [room * height / width for height, width in shapes]
    figure, grid = plt.subplots(
        len(shapes),
        len(COLUMNS),
        figsize=(settings["width_in"], sum(heights) + 0.2 * len(shapes) + TITLES_IN + LEGEND_IN),
        height_ratios=heights,
        squeeze=False,
    )
    paint = _classes if examples.class_names else _depth
    paint(figure, grid, examples, settings)
    for row, example in zip(grid, examples.examples, strict=True):
        row[0].imshow(example.image)
        for axes, model in zip(row[2:], ("teacher", "raptor"), strict=True):
            axes.set_xlabel(
                _said(agreement(example, model), bool(examples.class_names)), labelpad=2
            )
    for axes, title in zip(grid[0], COLUMNS.values(), strict=True):
        axes.set_title(title)
    for axes in grid.flat:
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    return figure


def _maps(row: np.ndarray, example: Example) -> list[tuple[Axes, np.ndarray]]:
    return [
        (axes, getattr(example, name))
        for axes, name in zip(row, COLUMNS, strict=True)
        if name != "image"
    ]


def _classes(
    figure: Figure, grid: np.ndarray, examples: Examples, settings: Mapping[str, Any]
) -> None:
    """Colours go to the named classes in order of their pixels, true and predicted."""
    named = examples.classes_by_area[:MOST_NAMED]
    colour_of = np.tile(NOT_NAMED, (len(examples.class_names) + 1, 1))
    colour_of[-1] = UNKNOWN  # NO_CLASS
    colour_of[named] = COLOURS[: len(named)]
    for row, example in zip(grid, examples.examples, strict=True):
        for axes, classes_HW in _maps(row, example):
            axes.imshow(colour_of[classes_HW])
    figure.legend(
        [Patch(facecolor=colour_of[one], edgecolor="0.5", linewidth=0.5) for one in named],
        [label(examples.class_names[one].split(",")[0]) for one in named],
        loc="outside lower center",
        ncols=6,
        handlelength=1.0,
    )


def _depth(
    figure: Figure, grid: np.ndarray, examples: Examples, settings: Mapping[str, Any]
) -> None:
    """One colour scale: that of the true depths."""
    truths = [example.truth for example in examples.examples]
    known = [truth[np.isfinite(truth)] for truth in truths]
    values = np.concatenate(known)
    low, high = (values.min(), values.max()) if len(values) else (0.0, 1.0)
    for row, example in zip(grid, examples.examples, strict=True):
        for axes, depth_HW in _maps(row, example):
            image = axes.imshow(depth_HW, vmin=low, vmax=high, cmap=settings["cmap"])
    bar = figure.colorbar(
        image, ax=list(grid[-1]), location="bottom", aspect=60, shrink=0.6, pad=0.03
    )
    bar.set_label("depth (m)")
    bar.outline.set_visible(False)


def _said(value: float, classes: bool) -> str:
    if np.isnan(value):
        return ""
    return f"{100 * value:.0f} % right" if classes else f"RMSE {value:.2f} m"


def numbers(table: pd.DataFrame, measure: str) -> dict[str, Any]:
    """For the caption: the images and models shown, and the means of `measure` over the images."""
    return {
        "n": table["sample_id"].nunique(),
        "of": _models(table[table["model"] == "raptor"].iloc[0]),
        "classes": int(table["classes_shown"].iloc[0]),
        "sample_ids": table["sample_id"].unique().tolist(),
        "named": MOST_NAMED,
        **table.groupby("model")[measure].mean().to_dict(),
    }


def _models(raptor: pd.Series) -> dict[str, Any]:
    """Which teacher, and which Raptor of it; empty where the examples do not say."""
    if pd.isna(raptor["teacher"]):
        return {}
    return {
        "teacher": label(raptor["teacher"]),
        "recipe": label(raptor["recipe"]),
        "partition": term(METHODS, raptor["partition"]).label,
        "k": int(raptor["k"]),
        "seed": int(raptor["seed"]),
    }
