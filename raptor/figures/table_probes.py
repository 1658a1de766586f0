"""Table 2: probe accuracy of Raptors, their teacher and a smaller one, beside the paper's."""

from __future__ import annotations

from typing import Any

import pandas as pd

from raptor.captions import ABSENT, number, percent
from raptor.figures.vocabulary import METHODS, label, term
from raptor.tables import published


def rows(table: pd.DataFrame) -> pd.DataFrame:
    """The table as text; spread is the sd over seeds."""
    return pd.DataFrame([_row(one) for one in table.to_dict("records")])


def _row(one: dict[str, Any]) -> dict[str, str]:
    raptor = one["model"] == "raptor"
    return {
        "teacher": label(one["teacher"]),
        "model": f"Raptor, k = {one['k']:.0f}" if raptor else one["model"],
        "partition": term(METHODS, one["partition"]).label if raptor else ABSENT,
        "recipe": label(one["recipe"]) if raptor else ABSENT,
        "seeds": str(one["n_seeds"]) if raptor else ABSENT,
        "accuracy": _spread(one, "accuracy"),
        "of the teacher": _spread(one, "recovered"),
        "with the teacher's head": _spread(one, "accuracy_head"),
        "mean R²": _plain_spread(one, "r2_mean"),
        f"paper: {published.LABEL}": _paper(one),
    }


def _spread(one: dict[str, Any], name: str) -> str:
    """A share with its sd, both in percent."""
    if pd.isna(one.get(name)):
        return ABSENT
    sd = one[f"{name}_sd"]
    return percent(one[name]) if pd.isna(sd) else f"{100 * one[name]:.1f} ± {percent(sd)}"


def _plain_spread(one: dict[str, Any], name: str) -> str:
    if pd.isna(one.get(name)):
        return ABSENT
    sd = one[f"{name}_sd"]
    return number(one[name]) if pd.isna(sd) else f"{number(one[name])} ± {number(sd)}"


def _paper(one: dict[str, Any]) -> str:
    if pd.isna(one["paper_top1"]):
        return ABSENT
    top1 = _spread({"top1": one["paper_top1"], "top1_sd": one["paper_top1_sd"]}, "top1")
    kept = percent(one["paper_recovered"])
    return top1 if one["model"] == "teacher" else f"{top1} ({kept} of its teacher)"


def numbers(table: pd.DataFrame) -> dict[str, Any]:
    """Seeds, images, and what is set beside the paper."""
    raptors = table[table["model"] == "raptor"]
    known = raptors.dropna(subset=["recovered"])  # none where the images have no labels
    return {
        "seeds_low": int(raptors["n_seeds"].min()),
        "seeds_high": int(raptors["n_seeds"].max()),
        "n_test_low": int(table["n_test"].min()),
        "n_test_high": int(table["n_test"].max()),
        "best": _best(known.loc[known["recovered"].idxmax()]) if len(known) else None,
        "below_paper": [
            {
                "name": f"{label(row.teacher)}, {label(row.recipe)}, k = {int(row.k)}",
                "ours": row.recovered,
                "paper": row.paper_recovered,
            }
            for row in raptors.itertuples()
            if row.recovered < row.paper_recovered
        ],
        "has_smaller": bool((table["model"] == "smaller teacher").any()),
        "paper": published.LABEL,
    }


def _best(one: pd.Series) -> dict[str, Any]:
    method = term(METHODS, one["partition"]).label
    return {
        "name": f"{label(one['teacher'])}, {method}, k = {int(one['k'])}",
        "recovered": one["recovered"],
        "low": one["recovered_low"],
        "high": one["recovered_high"],
    }
