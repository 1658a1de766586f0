"""Self-correction: what becomes of noise on the state of a layer, in the layers that follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from raptor.captions import UNIT
from raptor.figures.along_depth import (
    depth_of,
    facts,
    layer_axis,
    legend,
    look,
    panels,
    rows_of,
    teachers_of,
    titled,
    token_types,
    verdicts,
)
from raptor.figures.panels import grid_lines, logarithmic
from raptor.figures.vocabulary import MODELS, TOKENS, label, ordered, term

MOST_SOURCES = 8  # layers whose noise is drawn
SMALL = 0.1  # largest noise that is small, as a share of the token's norm, as in the scorecard
DODGE = 0.75


def draw(table: pd.DataFrame, settings: Mapping[str, Any]) -> Figure:
    """A row per teacher: deviation by layer, a panel per token type; last the contraction rate."""
    teachers, tokens = teachers_of(table), token_types(table)
    figure, grid = panels(len(teachers), len(tokens) + 1, settings)
    for row, teacher in zip(grid, teachers, strict=True):
        here = table[table["teacher"] == teacher]
        rows = rows_of(here, "profile")
        limits = rows.loc[rows["mean"] > 0, "mean"].agg(["min", "max"]) * [0.8, 1.25]
        own = token_types(rows)
        for axes, name in zip(row, tokens, strict=False):
            if name not in own:  # another teacher has it
                axes.set_axis_off()
                continue
            _deviations(axes, rows[rows["tokens"] == name], name)
            layer_axis(axes, depth_of(table, teacher), 0, rows_of(here, "segment"))
            axes.set_ylim(*limits)
            axes.set_title(term(TOKENS, name).label)
            axes.tick_params(labelleft=name == own[0])
        first = row[tokens.index(own[0])]
        first.set_ylabel("deviation (rad)")
        titled(first, term(TOKENS, own[0]).label, teacher, len(teachers) > 1)
        _rates(row[-1], rows_of(here, "rate"), tokens)
    legend(figure, table, tokens)
    return figure


def _deviations(axes: Axes, rows: pd.DataFrame, tokens: str) -> None:
    """A curve per source layer, noise size and model, a dot where the noise is added."""
    sources = sorted(rows["source_layer"].unique())
    shown = sources[:: -(-len(sources) // MOST_SOURCES)]
    rows = rows[rows["source_layer"].isin(shown)].sort_values("layer")
    for (model, _, _), some in rows.groupby(["model", "relative_size", "source_layer"]):
        style = look(tokens, model) | {"marker": "", "linewidth": 0.9}
        axes.plot(some["layer"], some["mean"], **style)
        start = look(tokens, model) | {"linestyle": "", "marker": "o", "markersize": 2.5}
        if model == "teacher":  # the same noise on states alike: one dot for both
            axes.plot(some["layer"].iloc[0], some["mean"].iloc[0], **start)
    logarithmic(axes)


def _rates(axes: Axes, rows: pd.DataFrame, tokens: list[str]) -> None:
    """Rate by noise size, with its interval."""
    sizes, models = sorted(rows["relative_size"].unique()), ordered(MODELS, rows["model"])
    pairs = [(name, model) for name in tokens for model in models]
    for place, (name, model) in enumerate(pairs):
        some = rows[(rows["tokens"] == name) & (rows["model"] == model)]
        some = some.set_index("relative_size").reindex(sizes)
        beside = (place - (len(pairs) - 1) / 2) * DODGE / len(pairs)
        ends = [some["mean"] - some["ci_low"], some["ci_high"] - some["mean"]]
        style = look(name, model) | {"linestyle": "", "markersize": 3.5}
        axes.errorbar(np.arange(len(sizes)) + beside, some["mean"], elinewidth=0.9,
                      yerr=np.nan_to_num(np.maximum(ends, 0)), **style)  # fmt: skip
    axes.axhline(0, color="0.3", linestyle="--", linewidth=0.8)
    axes.set_xticks(range(len(sizes)), map(_share, sizes))
    axes.set_xlim(-0.5, len(sizes) - 0.5)
    axes.set_xlabel("size of the noise", labelpad=1)
    axes.set_title("log change per layer")
    grid_lines(axes)


def _share(size: float) -> str:
    return f"{100 * size:g}{UNIT}"


def numbers(table: pd.DataFrame) -> dict[str, Any]:
    """Contraction rates by size and token type, and whether small noise shrinks."""
    found = {teacher: _of(table, teacher) for teacher in teachers_of(table)}
    sources = rows_of(table, "profile")["source_layer"].unique()
    return {
        **facts(table),
        "results": [one for models in found.values() for one in models],
        "sizes": [
            _share(size) for size in sorted(rows_of(table, "rate")["relative_size"].unique())
        ],
        "small": SMALL,
        "n_sources": len(sources),
        "n_shown": len(sorted(sources)[:: -(-len(sources) // MOST_SOURCES)]),
        **verdicts(table, {teacher: _claims(models[0]) for teacher, models in found.items()}),
    }


def _of(table: pd.DataFrame, teacher: str) -> list[dict[str, Any]]:
    """Of the teacher, then of its Raptor: rates of the smallest noise, and of all that is small."""
    rows = rows_of(table, "rate", teacher=teacher)
    found = []
    for model in ordered(MODELS, rows["model"]):
        here = rows[rows["model"] == model]
        small = here[here["relative_size"] <= SMALL]
        found.append(
            {
                "name": f"{label(teacher)}, {term(MODELS, model).label}",
                "rates": [
                    {
                        "tokens": term(TOKENS, one.tokens).label,
                        "size": one.relative_size,
                        "rate": one.mean,
                        "low": one.ci_low,
                        "high": one.ci_high,
                        "factor": float(np.exp(one.mean)),
                    }
                    for one in here[
                        here["relative_size"] == here["relative_size"].min()
                    ].itertuples()
                ],
                "small": {
                    name: float(small.loc[small["tokens"] == name, "mean"].mean())
                    if (small["tokens"] == name).any()
                    else None
                    for name in ordered(TOKENS, here["tokens"])
                },
            }
        )
    return found


def _claims(one: Mapping[str, Any]) -> dict[str, bool | None]:
    return {
        f"small noise on {term(TOKENS, name).label} shrinks": None if rate is None else rate < 0
        for name, rate in one["small"].items()
    }
