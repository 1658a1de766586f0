"""Table 1: what each part of the recipe adds."""

from __future__ import annotations

from typing import Any

import pandas as pd

from raptor.captions import ABSENT, number, percent, points
from raptor.figures.vocabulary import ADDED, METHODS, label, term
from raptor.tables import published

PARTS = ("autoregressive", "depth_scaling", "token_weights", "stage2", "probe")


def rows(table: pd.DataFrame) -> pd.DataFrame:
    """The table as text; spread is the sd over seeds."""
    return pd.DataFrame([_row(one) for one in table.to_dict("records")])


def _row(one: dict[str, Any]) -> dict[str, str]:
    return {
        "training": term(ADDED, one["added"]).label,
        "recipe": label(one["recipe"]),
        "steps": str(one["steps"]),
        "seeds": str(one["n_seeds"]),
        "accuracy": _spread(one["accuracy"], one["accuracy_sd"], percent, 100, 1),
        "change": _change(one),
        "mean R²": _spread(one["r2_mean"], one["r2_mean_sd"], number, 1, 3),
        f"paper: {published.LABEL}": percent(one["paper_top1"]),
        "paper: change": points(one["paper_change"]),
    }


def _spread(mean: float, sd: float, text: Any, scale: float, digits: int) -> str:
    if pd.isna(mean):
        return ABSENT
    return text(mean) if pd.isna(sd) else f"{number(scale * mean, digits)} ± {text(sd)}"


def _change(one: dict[str, Any]) -> str:
    """In points, with the sd of a difference of two students."""
    if pd.isna(one["change"]) or pd.isna(one["change_sd"]):
        return points(None if pd.isna(one["change"]) else one["change"])
    return f"{points(one['change'])} ± {number(100 * one['change_sd'], 1)}"


def numbers(table: pd.DataFrame) -> dict[str, Any]:
    """Which parts help here, beside the paper."""
    ladder = table[table["paper_top1"].notna()].set_index("added")
    start = table[(table["added"] == "phase_mean")]
    steps = [_step(ladder.loc[name], name) for name in PARTS if name in ladder.index]
    first = ladder.iloc[0]
    last = ladder.loc["probe"]
    started = table[(table["head"] == "probe") & table["paper_top1"].isna()]
    return {
        "teacher": label(first["teacher"]),
        "partition": term(METHODS, first["partition"]).label,
        "k": int(first["k"]),
        "forced": _kept(first),
        "paper_forced": published.ABLATIONS["teacher_forcing"] / published.TOP1_TEACHER,
        "steps": steps,
        "helping": [one for one in steps if one["change"] > 0],
        "not_helping": [one for one in steps if not one["change"] > 0],
        "unclear": [one["name"] for one in steps if abs(one["change"]) <= one["spread"]],
        "full": {"accuracy": last["accuracy"], "kept": _kept(last), "steps": int(last["steps"])},
        "start": None
        if start.empty
        else {
            "own": start.iloc[0]["accuracy"],
            "accuracy": started.iloc[0]["accuracy"],
            "kept": _kept(started.iloc[0]),
            "r2": started.iloc[0]["r2_mean"],
            "steps": int(started.iloc[0]["steps"]),
        },
        "full_r2": last["r2_mean"],
        "paper": published.LABEL,
        "seeds_low": int(table["n_seeds"].min()),
        "seeds_high": int(table["n_seeds"].max()),
        "n_test": int(table["n_test"].max()),
    }


def _kept(one: pd.Series) -> float:
    return one["accuracy"] / one["accuracy_teacher"]


def _step(one: pd.Series, added: str) -> dict[str, Any]:
    return {
        "name": term(ADDED, added).label.removeprefix("+ "),
        "change": one["change"],
        "spread": one["change_sd"],
        "paper": one["paper_change"],
    }
