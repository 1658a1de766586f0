"""Fig. 10: where along the depth the error arises, by what a Raptor learns from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from raptor.figures.panels import grid_lines, layer_ticks, lettered, logarithmic, open_towards_one
from raptor.figures.vocabulary import BASELINES, PARADIGMS, label, ordered, spans, term
from raptor.tables.summary import Summary, summarise, summarise_by

MARKERS = {"output": "s", "teacher_forcing": "^", "autoregressive": "o"}
LINES = {"output": "--", "teacher_forcing": ":", "autoregressive": "-"}
HEADS = {"recovered": ("fine-tuned probe", -0.12), "recovered_head": ("teacher's own head", 0.12)}


def draw(table: pd.DataFrame, settings: Mapping[str, Any]) -> Figure:
    """Relative error and R² by layer (bars: sd over seeds), and accuracy kept."""
    paradigms = ordered(PARADIGMS, table["paradigm"].dropna())
    figure, (error, r2, kept) = plt.subplots(
        1, 3, figsize=(settings["width_in"], settings["row_height_in"] + 0.3)
    )
    rows = table[table["part"] == "layer"]
    depth = int(rows["layer"].max())
    for axes, metric in ((error, "relative"), (r2, "r2")):
        for name in paradigms:
            _curve(axes, rows[(rows["paradigm"] == name) & (rows["metric"] == metric)], name)
        axes.set_xticks(layer_ticks(depth))
        axes.set_xlabel("layer")
        for boundary in _boundaries(rows):
            axes.axvline(boundary, color="0.8", linewidth=0.8, zorder=0)
        grid_lines(axes)
    logarithmic(error)
    error.set_ylabel("relative error ε / ‖a‖")
    trivial = table[table["part"] == "baseline"]
    for name in ordered(BASELINES, trivial["metric"]):
        own = trivial[trivial["metric"] == name].sort_values("layer")
        look = {"color": term(BASELINES, name).colour, "linewidth": 0.9, "linestyle": "-."}
        r2.plot(own["layer"], own["value"], label=term(BASELINES, name).label, **look)
    open_towards_one(r2)
    r2.set_ylabel("R², all tokens")
    _kept(kept, table[table["part"] == "student"], paradigms)
    for letter, axes in zip("ABC", (error, r2, kept), strict=True):
        lettered(axes, letter)
    handles, names = r2.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3)
    return figure


def _curve(axes: Axes, rows: pd.DataFrame, name: str) -> None:
    found = summarise_by(rows.sort_values("layer"), ["layer"], "value")
    axes.errorbar(
        found["layer"],
        found["mean"],
        # A bar to below 0 has no place on a logarithmic axis.
        yerr=[np.minimum(found["sd"].fillna(0), 0.9 * found["mean"].abs()), found["sd"].fillna(0)],
        color=term(PARADIGMS, name).colour,
        marker=MARKERS.get(name, "o"),
        linestyle=LINES.get(name, "-"),
        markersize=3.5,
        elinewidth=0.8,
        capsize=2,
        label=term(PARADIGMS, name).label,
    )


def _boundaries(rows: pd.DataFrame) -> list[float]:
    """Between the layers of different blocks; none where students have different blocks."""
    distinct = set(rows["segments"].dropna())
    if len(distinct) > 1:
        return []
    ends = [int(segment.split("-")[1]) for segment in distinct.pop().split()]
    return [end + 0.5 for end in ends[:-1]]


def _kept(axes: Axes, rows: pd.DataFrame, paradigms: list[str]) -> None:
    for metric, (name, shift) in HEADS.items():
        for place, paradigm in enumerate(paradigms):
            some = rows[(rows["paradigm"] == paradigm) & (rows["metric"] == metric)]
            found = summarise(100 * some["value"])
            axes.errorbar(
                place + shift,
                found.mean,
                yerr=np.nan_to_num(found.sd),
                color=term(PARADIGMS, paradigm).colour,
                marker="o" if metric == "recovered" else "D",
                markerfacecolor=None if metric == "recovered" else "white",
                capsize=2.5,
            )
        filled = "0.3" if metric == "recovered" else "white"
        marker = "o" if metric == "recovered" else "D"
        look = {"marker": marker, "markerfacecolor": filled, "color": "0.3", "linestyle": ""}
        axes.plot([], [], label=name, **look)
    axes.axhline(100, color="0.3", linestyle="--", linewidth=0.8)
    texts = [term(PARADIGMS, name).label for name in paradigms]
    texts = [text.replace(" ", "\n").replace("autor", "auto-\nr") for text in texts]
    axes.set_xticks(range(len(paradigms)), texts)
    axes.set_xlim(-0.5, len(paradigms) - 0.5)
    axes.set_ylim(0, None)
    axes.set_ylabel("accuracy, % of the teacher's")
    grid_lines(axes)
    axes.legend(loc="best", frameon=True)


def numbers(table: pd.DataFrame) -> dict[str, Any]:
    """Errors inside the depth and at its end, and which paradigm has the larger one."""
    names = ordered(PARADIGMS, table["paradigm"].dropna())
    every = {name: _result(table, name) for name in names}
    output, forced, free = (every.get(name) for name in PARADIGMS)
    first = table[table["part"] == "student"].iloc[0]
    seeds = [one["r2"].n for one in every.values()]
    trivial = table[table["part"] == "baseline"].groupby("metric")["value"].mean()
    return {
        "results": list(every.values()),
        "output": output,
        "forced": forced,
        "free": free,
        "output_worse_inside": bool(output and free)
        and output["inside"].mean > free["inside"].mean,
        "forced_worse_at_the_end": bool(forced and free) and forced["end"].mean > free["end"].mean,
        "ratio_inside": output["inside"].mean / free["inside"].mean if output and free else None,
        "ratio_end": forced["end"].mean / free["end"].mean if forced and free else None,
        "best_baseline": float(trivial.max()) if len(trivial) else None,
        "below_baseline": [
            one["name"]
            for one in every.values()
            if len(trivial) and one["r2"].mean <= trivial.max()
        ],
        "teacher": label(first["teacher"]),
        "segments": spans(first["segments"]),
        "k": int(first["k"]),
        "steps": sorted({int(steps) for steps in table["steps"].dropna()}),
        "seeds_low": min(seeds),
        "seeds_high": max(seeds),
        "n_test": int(table["n_test"].max()),
    }


def _result(table: pd.DataFrame, paradigm: str) -> dict[str, Any]:
    """Relative error inside (mean over layers 1..L-1) and at the end (layer L), by seed."""
    own = table[table["paradigm"] == paradigm]
    error = own[(own["part"] == "layer") & (own["metric"] == "relative")]
    last = error["layer"] == error["layer"].max()
    inside = error[~last].groupby(["recipe", "seed"])["value"].mean()

    def of(metric: str) -> Summary:
        return summarise(own.loc[(own["part"] == "student") & (own["metric"] == metric), "value"])

    return {
        "name": term(PARADIGMS, paradigm).label,
        "inside": summarise(inside),
        "end": summarise(error.loc[last, "value"]),
        "r2": of("r2_mean"),
        "recovered": of("recovered"),
        "head": of("recovered_head"),
    }
