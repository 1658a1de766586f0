"""Table 2, of pixels: what dense probes of a teacher and of its Raptors reach."""

from __future__ import annotations

from typing import Any

import pandas as pd

from raptor.captions import ABSENT, number, percent
from raptor.figures.vocabulary import METHODS, label, term
from raptor.tables import published
from raptor.tables.dense import MODEL, PAPER
from raptor.tables.summary import Summary

# metric -> column; shares are printed as percent
SHARES = {
    "miou": "mIoU",
    "miou_authors": "mIoU as the authors",
    "pixel_accuracy": "pixels right",
    "delta1": "δ₁",
}
LENGTHS = {"rmse_m": "RMSE, m", "rmse_pooled_m": "RMSE as the authors, m"}
RATIOS = {"abs_rel": "relative error"}
# The metrics that the paper has, computed as the authors' code does.
COMPARED = {"segmentation": "miou_authors", "depth": "rmse_pooled_m"}
MODELS = {"teacher": "teacher", "constant": "the same answer everywhere"}


def rows(table: pd.DataFrame) -> pd.DataFrame:
    """The table as text, a row for each model; spread is the sd over seeds."""
    groups = table.groupby(MODEL, sort=False, dropna=False)
    return pd.DataFrame([_row(group) for _, group in groups]).fillna(ABSENT)


def _row(group: pd.DataFrame) -> dict[str, str]:
    first = group.iloc[0]
    raptor, constant = first["model"] == "raptor", first["model"] == "constant"
    row = {
        "teacher": ABSENT if constant else label(first["teacher"]),
        "model": f"Raptor, k = {first['k']:.0f}" if raptor else MODELS[first["model"]],
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
    compared = table[table["metric"].isin(COMPARED.values())]
    tasks = {
        task: _task(compared[compared["task"] == task], metric)
        for task, metric in COMPARED.items()
        if (compared["task"] == task).any()
    }
    raptors = compared[compared["model"] == "raptor"]
    several = raptors.loc[raptors["n_seeds"] > 1, "n_seeds"].tolist()
    single = [_title(one) for one in raptors[raptors["n_seeds"] == 1].itertuples()]
    return {
        "tasks": tasks,
        "seeds_low": min(several, default=1),
        "seeds_high": max(several, default=1),
        "single": list(dict.fromkeys(single)),  # once, not once for each task
        "paper": published.LABEL.split(" on ")[0],
        "paper_images": [published.DENSE_LABELS[task] for task in tasks],
    }


def _task(table: pd.DataFrame, metric: str) -> dict[str, Any]:
    raptors = table[~table["untrained"] & (table["model"] == "raptor")]
    teachers = table[table["model"] == "teacher"]
    values = teachers.set_index("teacher")["value"]
    return {
        "n_train": int(table["n_train"].iloc[0]),
        "n_test": int(table["n_test"].iloc[0]),
        "raptors": [
            {
                "title": _title(one),
                "value": Summary(
                    one.n_seeds, one.value, one.value_sd, one.value_low, one.value_high
                ),
                "teacher": values[one.teacher],
                "of_teacher": one.of_teacher,
                "paper": one.paper / PAPER[metric][1],  # of the paper's own teacher
            }
            for one in raptors.itertuples()
        ],
        "controls": _controls(teachers, metric),
        "constant": _constant(table, metric),
    }


def _constant(table: pd.DataFrame, metric: str) -> dict[str, Any] | None:
    """The same answer everywhere, and the trained teachers that are no better."""
    found = table[table["model"] == "constant"]
    if found.empty:
        return None
    one, sign = found.iloc[0], 1 if metric in SHARES else -1
    trained = table[(table["model"] == "teacher") & ~table["untrained"]]
    no_better = trained.loc[sign * trained["value"] <= sign * one["value"], "teacher"]
    return {
        "value": one["value"],
        "answer": one["answer"],
        "no_better": [label(teacher) for teacher in no_better],
    }


def _controls(teachers: pd.DataFrame, metric: str) -> list[dict[str, Any]]:
    """Each trained teacher beside the untrained one of its own architecture, the best of them."""
    sign = 1 if metric in SHARES else -1  # whether more is better
    found = []
    for one in teachers[~teachers["untrained"]].itertuples():
        twins = teachers.loc[teachers["untrained"] & (teachers["like"] == one.teacher), "value"]
        if twins.notna().any():
            best = sign * (sign * twins).max()
            found.append(
                {
                    "title": label(one.teacher),
                    "trained": one.value,
                    "untrained": best,
                    # The probe then says nothing of what was learnt.
                    "no_gain": bool(sign * best >= sign * one.value),
                }
            )
    return found


def _title(one: Any) -> str:
    return f"{label(one.teacher)}, k = {int(one.k)}"
