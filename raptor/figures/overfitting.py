"""Fig. 13: one teacher along its training, until it overfits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from raptor.figures.along_teachers import (
    accuracy_panel,
    counts,
    judged,
    of_teacher,
    r2_panel,
    sigmas_between,
    similarity_panel,
)
from raptor.figures.panels import grid_lines, labels_apart, lettered, logarithmic

SPLITS = {"train": ("C3", "o", "-"), "val": ("C0", "s", "--"), "test": ("C2", "^", ":")}


def draw(table: pd.DataFrame, settings: Mapping[str, Any]) -> Figure:
    """Above: loss and accuracy of the teacher, accuracy of its Raptors; below: its layers, R²."""
    epochs = _epochs(table)
    places = dict(zip(_teachers(table), epochs, strict=True))
    figure, ((loss, accuracy, kept), (similarity, contrast, r2)) = plt.subplots(
        2, 3, figsize=(settings["width_in"], 2 * settings["row_height_in"])
    )
    _of_teacher(loss, table, "loss", ("train", "val"))
    logarithmic(loss)
    loss.set_ylabel("cross-entropy of the teacher")
    _of_teacher(accuracy, table, "accuracy", ("train", "val", "test"))
    accuracy.set_ylabel("accuracy of the teacher, %")
    accuracy_panel(kept, table, places, [])
    similarity_panel(similarity, table, "similarity", places, [])
    similarity_panel(contrast, table, "contrast", places, [])
    r2_panel(r2, table, places, [])
    for letter, axes in zip(
        "ABCDEF", (loss, accuracy, kept, similarity, contrast, r2), strict=True
    ):
        lettered(axes, letter)
        axes.set_xlabel("epochs of the teacher")
        axes.set_xticks(epochs, labels_apart(epochs, [f"{epoch:g}" for epoch in epochs], 0.08))
    return figure


def _teachers(table: pd.DataFrame) -> list[str]:
    """Those that students were trained for, by epoch."""
    rows = table[table["part"] == "student"].drop_duplicates("teacher").sort_values("epoch")
    return list(rows["teacher"])


def _epochs(table: pd.DataFrame) -> list[float]:
    return sorted(table.loc[table["part"] == "student", "epoch"].unique())


def _of_teacher(axes: Axes, table: pd.DataFrame, metric: str, splits: tuple[str, ...]) -> None:
    """Lines: history; points: measured on whole splits, without augmentation."""
    scale = 100 if metric == "accuracy" else 1
    curve = table[table["part"] == "curve"].sort_values("epoch")
    points = table[(table["part"] == "teacher") & (table["metric"] == metric)]
    for split in splits:
        colour, marker, line = SPLITS[split]
        name = {"train": metric, "val": f"val_{metric}"}.get(split)
        own = curve[curve["metric"] == name]
        axes.plot(own["epoch"], scale * own["value"], color=colour, linestyle=line, linewidth=1)
        some = points[points["split"] == split].sort_values("epoch")
        look = {"color": colour, "marker": marker, "label": split}
        axes.plot(some["epoch"], scale * some["value"], linestyle="", **look)
    grid_lines(axes)
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.3), ncols=3, borderaxespad=0)


def numbers(table: pd.DataFrame) -> dict[str, Any]:
    """The checkpoints, the one of least validation loss, and what R² does from there on."""
    every = [
        {"epoch": int(epoch), **_of_splits(table, teacher), **of_teacher(table, teacher)}
        for teacher, epoch in zip(_teachers(table), _epochs(table), strict=True)
    ]
    best, first, last = min(every, key=lambda one: one["loss"]["val"]), every[0], every[-1]
    trained = [one for one in every if one["epoch"] > 0]
    return {
        **counts(table),
        "checkpoints": every,
        "best": best,
        "last": last,
        "overfits": last["loss"]["val"] > best["loss"]["val"],
        "n_train": _images(table, _teachers(table)[-1]),
        "r2_change": last["r2"].mean - best["r2"].mean,
        "r2_sigmas": sigmas_between(best["r2"], last["r2"]),
        "r2_before": best["r2"].mean - trained[0]["r2"].mean,
        "before": trained[0]["epoch"] if trained[0] is not best else None,
        **judged({"R²": sigmas_between(best["r2"], last["r2"])}),
        "similarity_change": last["similarity"]["value"] - best["similarity"]["value"],
        "contrast_change": last["contrast"]["value"] - best["contrast"]["value"],
        "untrained": first["epoch"] == 0,
        "easy_untrained": all(first["r2"].mean > one["r2"].mean for one in every[1:]),
        "below_baseline": [one["epoch"] for one in every if one["r2"].mean <= one["baseline"]],
    }


def _images(table: pd.DataFrame, teacher: str) -> int:
    """How many a teacher was trained on."""
    return int(table.loc[(table["teacher"] == teacher) & (table["split"] == "train"), "n"].iloc[0])


def _of_splits(table: pd.DataFrame, teacher: str) -> dict[str, dict[str, float]]:
    """`loss` and `accuracy`, by split."""
    rows = table[(table["part"] == "teacher") & (table["teacher"] == teacher)]
    return {
        metric: some.set_index("split")["value"].astype(float).to_dict()
        for metric, some in rows.groupby("metric")
    }
