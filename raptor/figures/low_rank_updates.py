"""Fig. 8: the rank of what a layer adds, and how far its tokens agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from raptor.figures.along_depth import (
    curves,
    depth_of,
    facts,
    largest_gap,
    late_and_early,
    layer_axis,
    legend,
    panels,
    profile,
    rows_of,
    teachers_of,
    titled,
    verdicts,
)
from raptor.figures.vocabulary import RANKS, TOKENS, label, ordered
from raptor.tables import published


def draw(table: pd.DataFrame, settings: Mapping[str, Any]) -> Figure:
    """Two rows per teacher: ranks in one image and coherence; ranks of all images together."""
    teachers = teachers_of(table)
    figure, grid = panels(2 * len(teachers), len(RANKS) + 1, settings)
    for row, teacher in enumerate(teachers):
        phases = rows_of(table, "segment", teacher=teacher)
        above, below = grid[2 * row], grid[2 * row + 1]
        below[-1].remove()
        single, pooled = (rows_of(table, part, teacher=teacher) for part in ("profile", "pooled"))
        for column, (metric, (name, _)) in enumerate(RANKS.items()):
            curves(above[column], single[single["metric"] == metric])
            curves(below[column], pooled[pooled["metric"] == metric], "value")
            above[column].set_title(name)
        curves(above[-1], single[single["metric"] == "coherence"])
        above[-1].set_title(r"coherence $\kappa_l$")
        titled(above[0], RANKS["stable_rank"].label, teacher, len(teachers) > 1)
        above[0].set_ylabel("one image")
        below[0].set_ylabel("all images together")
        for axes in (*above, *below[:-1]):
            layer_axis(axes, depth_of(table, teacher), 1, phases)
    legend(figure, table, ordered(TOKENS, table["tokens"].dropna()))
    return figure


def numbers(table: pd.DataFrame) -> dict[str, Any]:
    """Coherence and rank of patch updates late and before, and the rank of all images' updates."""
    found = {teacher: _of(table, teacher) for teacher in teachers_of(table)}
    gaps = {
        teacher: largest_gap(table, teacher, "effective_rank", ["patches"]) for teacher in found
    }
    return {
        **facts(table),
        "results": list(found.values()),
        "paper_rank": published.LATE_UPDATE_RANK,
        "gaps": [
            {"name": label(name), "gap": gap} for name, gap in gaps.items() if gap is not None
        ],
        **verdicts(table, {teacher: _claims(one) for teacher, one in found.items()}),
    }


def _of(table: pd.DataFrame, teacher: str) -> dict[str, Any]:
    where = {"teacher": teacher, "model": "teacher", "tokens": "patches"}
    pooled = rows_of(table, "pooled", **where, metric="effective_rank").sort_values("layer")
    measured = {
        metric: late_and_early(profile(table, teacher, "teacher", "patches", metric))
        for metric in ("coherence", "effective_rank")
    }
    return {"name": label(teacher), **measured} | {
        "pooled": late_and_early(pooled["value"].to_numpy())
    }


def _claims(one: Mapping[str, Any]) -> dict[str, bool | None]:
    def change(metric: str) -> float | None:
        late, early = one[metric]
        return late - early if late == late and early == early else None

    coherence, rank = change("coherence"), change("effective_rank")
    return {
        "patch updates are more alike late": None if coherence is None else coherence > 0,
        "their effective rank in one image is lower late": None if rank is None else rank < 0,
    }
