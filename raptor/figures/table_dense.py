"""Table 2, of pixels: what dense probes of a teacher and of its Raptors reach."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from raptor.captions import ABSENT, number, percent
from raptor.figures.vocabulary import METHODS, label, term
from raptor.tables import published
from raptor.tables.dense import MODEL

# metric -> column; shares are printed as percent
SHARES = {
    "miou": "mIoU",
    "miou_absent_as_zero": "mIoU, absent as 0",
    "pixel_accuracy": "pixels right",
    "delta1": "δ₁",
}
LENGTHS = {"rmse_m": "RMSE, m", "rmse_pooled_m": "RMSE of all pixels, m"}
RATIOS = {"abs_rel": "relative error"}
COMPARED = {"segmentation": "miou", "depth": "rmse_m"}  # the metrics that the paper has


def rows(table: pd.DataFrame) -> pd.DataFrame:
    """The table as text, a row for each model; spread is the sd over seeds."""
    groups = table.groupby(MODEL, sort=False, dropna=False)
    return pd.DataFrame([_row(group) for _, group in groups]).fillna(ABSENT)


def _row(group: pd.DataFrame) -> dict[str, str]:
    first = group.iloc[0]
    raptor = first["model"] == "raptor"
    row = {
        "teacher": label(first["teacher"]),
        "model": f"Raptor, k = {first['k']:.0f}" if raptor else "teacher",
        "partition": term(METHODS, first["partition"]).label if raptor else ABSENT,
        "recipe": label(first["recipe"]) if raptor else ABSENT,
        "seeds": str(first["n_seeds"]) if raptor else ABSENT,
    }
    for one in group.to_dict("records"):
        metric = one["metric"]
        name = (SHARES | LENGTHS | RATIOS)[metric]
        row[name] = _spread(metric, one["value"], one["value_sd"])
        if metric in COMPARED.values():
            row[f"{name}: of the teacher's"] = percent(one["of_teacher"]) if raptor else ABSENT
            row[f"{name}: paper"] = _spread(metric, one["paper"], one["paper_sd"])
    return row


def _spread(metric: str, mean: float, sd: float) -> str:
    if pd.isna(mean):
        return ABSENT
    if metric in SHARES:
        return percent(mean) if pd.isna(sd) else f"{100 * mean:.1f} ± {percent(sd)}"
    return number(mean) if pd.isna(sd) else f"{number(mean)} ± {number(sd)}"


def numbers(table: pd.DataFrame) -> dict[str, Any]:
    """Of each task: images, seeds, each teacher beside its Raptors, and beside an untrained one."""
    tasks = {
        task: _task(table[(table["task"] == task) & (table["metric"] == metric)], metric)
        for task, metric in COMPARED.items()
        if (table["task"] == task).any()
    }
    seeds = table.loc[table["model"] == "raptor", "n_seeds"]
    return {
        "tasks": tasks,
        "seeds_low": int(seeds.min()),
        "seeds_high": int(seeds.max()),
        "paper": published.LABEL.split(" on ")[0],
        "paper_images": published.DENSE_LABELS,
    }


def _task(table: pd.DataFrame, metric: str) -> dict[str, Any]:
    sign = 1 if metric in SHARES else -1  # whether more is better
    trained = table[~table["untrained"]]
    teachers = trained[trained["model"] == "teacher"].set_index("teacher")["value"]
    control = table.loc[table["untrained"] & (table["model"] == "teacher"), "value"]
    best = None if control.empty else float((sign * control).max() * sign)
    return {
        "n_train": int(table["n_train"].iloc[0]),
        "n_test": int(table["n_test"].iloc[0]),
        "raptors": [
            {
                "title": f"{label(one.teacher)}, k = {int(one.k)}",
                "value": one.value,
                "sd": one.value_sd,
                "teacher": teachers[one.teacher],
                "of_teacher": one.of_teacher,
                "paper": one.paper / _paper_teacher(metric) if one.paper > 0 else np.nan,
            }
            for one in trained[trained["model"] == "raptor"].itertuples()
        ],
        "untrained": best,
        # No gain from training: the probe says nothing of what was learnt.
        "no_gain": best is not None and sign * best >= (sign * teachers).max(),
    }


def _paper_teacher(metric: str) -> float:
    return {"miou": published.MIOU_TEACHER, "rmse_m": published.RMSE_TEACHER}[metric]
