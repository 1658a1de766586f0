"""Panels that two figures share: students and similarity of several teachers along one axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from raptor.figures.panels import grid_lines, open_towards_one
from raptor.figures.vocabulary import BASELINES, ordered, term
from raptor.tables.summary import Summary, summarise

Places = Mapping[str, float]  # where on the x axis a teacher stands
STYLES = {"linear": "-.", "layer_mean": ":", "identity": "--"}


def accuracy_panel(axes: Axes, table: pd.DataFrame, places: Places, apart: Sequence[str]) -> None:
    """Accuracy of teachers and students; those of `apart` are not joined to the others."""
    of_teacher, of_student = (table[table["part"] == part] for part in ("probe", "student"))
    look: dict[str, Any] = {"color": "0.3", "marker": "s", "linestyle": "--"}
    _series(axes, of_teacher, "accuracy", places, apart, 100, **look, label="teacher (probe)")
    look = {"color": "C0", "marker": "o", "linestyle": "-"}
    name = "Raptor (fine-tuned probe)"
    _series(axes, of_student, "accuracy", places, apart, 100, **look, label=name)
    look = {"color": "C1", "marker": "^", "linestyle": ":"}
    name = "Raptor (teacher's head)"
    _series(axes, of_student, "accuracy_head", places, apart, 100, **look, label=name)
    axes.set_ylabel("test accuracy, %")
    grid_lines(axes)
    axes.legend(loc="upper left", bbox_to_anchor=(-0.15, -0.3), borderaxespad=0)


def r2_panel(axes: Axes, table: pd.DataFrame, places: Places, apart: Sequence[str]) -> None:
    """Mean R² of the students beside the trivial predictions of the same states."""
    trivial = table[table["part"] == "baseline"]
    for name in ordered(BASELINES, trivial["metric"]):
        text, colour = term(BASELINES, name)
        look = {"color": colour, "marker": ".", "linestyle": STYLES.get(name, "-"), "label": text}
        _series(axes, trivial, name, places, apart, 1, **look)
    look = {"color": "C0", "marker": "o", "linestyle": "-", "label": "Raptor"}
    _series(axes, table[table["part"] == "student"], "r2_mean", places, apart, 1, **look)
    axes.set_ylabel("R², mean over layers")
    open_towards_one(axes)
    grid_lines(axes)
    axes.legend(loc="upper left", bbox_to_anchor=(-0.15, -0.3), ncols=2, borderaxespad=0)


def similarity_panel(
    axes: Axes, table: pd.DataFrame, metric: str, places: Places, apart: Sequence[str]
) -> None:
    """`similarity` or `contrast` of the teachers, with the interval over resampled images."""
    rows = table[(table["part"] == "similarity") & (table["metric"] == metric)]
    rows = rows.assign(x=rows["teacher"].map(places)).dropna(subset="value").sort_values("x")
    joined = rows[~rows["teacher"].isin(apart)]
    axes.plot(joined["x"], joined["value"], color="C2")
    for row in rows.itertuples():
        ends = [[np.nan_to_num(row.value - row.low)], [np.nan_to_num(row.high - row.value)]]
        filled = "white" if row.teacher in apart else "C2"
        look = {"color": "C2", "marker": "D", "markerfacecolor": filled, "markersize": 4}
        axes.errorbar(row.x, row.value, yerr=np.maximum(ends, 0), capsize=2.5, **look)
    names = {"similarity": "mean similarity", "contrast": "block contrast"}
    axes.set_ylabel(names[metric])
    grid_lines(axes)


def _series(
    axes: Axes,
    rows: pd.DataFrame,
    metric: str,
    places: Places,
    apart: Sequence[str],
    scale: float,
    **look: Any,
) -> None:
    """Mean ± sd (over the rows of one teacher) of a metric; hollow where a teacher is apart."""
    rows = rows[rows["metric"] == metric]
    found = [(teacher, summarise(some["value"])) for teacher, some in rows.groupby("teacher")]
    found.sort(key=lambda one: places[one[0]])
    joined = [one for one in found if one[0] not in apart]
    axes.errorbar(
        [places[teacher] for teacher, _ in joined],
        [scale * one.mean for _, one in joined],
        yerr=[scale * np.nan_to_num(one.sd) for _, one in joined],
        capsize=2.5,
        elinewidth=0.9,
        **look,
    )
    look |= {"linestyle": "", "markerfacecolor": "white", "label": None}
    for teacher, one in found:
        if teacher in apart:
            at, sd = places[teacher], scale * np.nan_to_num(one.sd)
            axes.errorbar(at, scale * one.mean, yerr=sd, capsize=2.5, elinewidth=0.9, **look)


def of_teacher(table: pd.DataFrame, teacher: str) -> dict[str, Any]:
    """What the captions say of one teacher: similarity, contrast, its students, its baselines."""
    here = table[table["teacher"] == teacher]
    similar = here[here["part"] == "similarity"].set_index("metric")
    probe = here[here["part"] == "probe"].set_index("metric")["value"]
    trivial = here[here["part"] == "baseline"].set_index("metric")["value"]
    return {
        "similarity": similar.loc["similarity", ["value", "low", "high"]].astype(float).to_dict(),
        "contrast": similar.loc["contrast", ["value", "low", "high"]].astype(float).to_dict(),
        "accuracy": float(probe["accuracy"]),
        "r2": students(here, "r2_mean"),
        "recovered": students(here, "recovered"),
        "baseline": float(trivial.max()),
        "baseline_name": term(BASELINES, trivial.idxmax()).label.replace("$a_0$", "a₀"),
    }


def students(here: pd.DataFrame, metric: str) -> Summary:
    rows = here[(here["part"] == "student") & (here["metric"] == metric)]
    return summarise(rows["value"])


def counts(table: pd.DataFrame) -> dict[str, Any]:
    """Seeds, test images, images of the similarity, and what kind of student it is."""
    student = table[(table["part"] == "student") & (table["metric"] == "r2_mean")]
    similar = table[table["part"] == "similarity"]
    seeds = student.groupby("teacher").size()
    return {
        "k": int(student["k"].iloc[0]),
        "seeds_low": int(seeds.min()),
        "seeds_high": int(seeds.max()),
        "n_test_low": int(student["n"].min()),
        "n_test_high": int(student["n"].max()),
        "n_low": int(similar["n"].min()),
        "n_high": int(similar["n"].max()),
    }


def judged(changes: Mapping[str, float]) -> dict[str, list[str]]:
    """Names of what rises, what falls, and what does neither by more than its spread.

    `changes`: by name in standard deviations, NaN where they are not known.
    """
    verdict = {name: "rising" if s > 1 else "falling" if s < -1 else "unclear"
               for name, s in changes.items()}  # fmt: skip
    return {
        kind: [name for name in changes if verdict[name] == kind]
        for kind in ("rising", "falling", "unclear")
    }


def sigmas_between(before: Summary, after: Summary) -> float:
    """A difference of means in sd of the difference of two students; NaN where there is no sd."""
    spread = np.hypot(before.sd, after.sd)
    return float((after.mean - before.mean) / spread) if spread > 0 else float("nan")
