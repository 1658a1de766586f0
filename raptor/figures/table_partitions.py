"""Table 3: where each method cuts each teacher."""

from __future__ import annotations

from typing import Any

import pandas as pd

from raptor.captions import ABSENT, number, percent
from raptor.figures.vocabulary import METHODS, label, ordered, spans, term
from raptor.tables import published


def rows(table: pd.DataFrame) -> pd.DataFrame:
    """The table as text, methods in their usual order within each teacher and k."""
    rank = {name: place for place, name in enumerate(ordered(METHODS, table["method"]))}
    table = table.assign(rank=table["method"].map(rank)).sort_values(["teacher", "k", "rank"])
    return pd.DataFrame([_row(one) for one in table.to_dict("records")])


def _row(one: dict[str, Any]) -> dict[str, str]:
    drawn = pd.isna(one["segments"])
    return {
        "teacher": label(one["teacher"]),
        "k": str(one["k"]),
        "partition": term(METHODS, one["method"]).label,
        "segments": f"{one['n_partitions']} partitions in {one['n_draws']} draws"
        if drawn
        else spans(one["segments"]),
        "cut weight": _spread(one["cut_weight"], one["cut_weight_sd"]),
        "share of the distance": percent(one["cut_fraction"])
        if pd.isna(one["cut_fraction_sd"])
        else f"{100 * one['cut_fraction']:.1f} ± {percent(one['cut_fraction_sd'])}",
        "same in resamples": percent(one["exact_share"], 0),
        "boundaries recur": ABSENT
        if pd.isna(one["boundary_frequency"])
        else str(one["boundary_frequency"]),
        "ε": ABSENT if pd.isna(one["epsilon"]) else str(one["epsilon"]),
    }


def _spread(mean: float, sd: float) -> str:
    return number(mean) if pd.isna(sd) else f"{number(mean)} ± {number(sd)}"


def numbers(table: pd.DataFrame) -> dict[str, Any]:
    """How the methods compare, and how stable Max-Cut is."""
    share = table.loc[table["method"] == "maxcut", "exact_share"].dropna()
    both = table.pivot_table(
        index=["teacher", "k"], columns="method", values="segments", aggfunc="first"
    )
    exact = {"maxcut", "maxcut_exact"} <= set(both)
    differing = both[both["maxcut"] != both["maxcut_exact"]] if exact else both.iloc[:0]
    drawn = table[table["method"].str.startswith("random")]
    return {
        "differing": [f"{label(teacher)}, k = {k}" for teacher, k in differing.index],
        "paper_differing": sorted(published.EXACT_SEGMENTS),
        "compared": exact,
        "n_cuts": len(both),
        "n_resamples": int(table["n_resamples"].max()) if len(share) else 0,
        "least_stable": share.min() if len(share) else float("nan"),
        "n_draws": int(drawn["n_draws"].max()) if len(drawn) else 0,
        "teachers": [label(name) for name in sorted(table["teacher"].unique())],
    }
