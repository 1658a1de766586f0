"""Fig. 2: where depth is cut, and how surely."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib import patheffects
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from raptor.figures.panels import layer_ticks
from raptor.figures.vocabulary import MEASURES, METHODS, label, ordered, spans, term
from raptor.tables import published
from raptor.tables.phases import DISTANCES

BARS_IN, GAPS_IN, MARGIN_IN = 0.7, 0.75, 0.9
LARGEST_PANEL_IN = 2.1
TICK_IN = 0.2  # room for the number of a layer
INTEGERS = ["k", "n", "layer_a", "layer_b", "first", "last", "boundary", "chosen"]
DASHES = {"maxcut": "-", "maxcut_exact": (0, (2.5, 1.5))}


def draw(table: pd.DataFrame, settings: Mapping[str, Any]) -> Figure:
    """A row per teacher, a column per k: distances and cuts, below how often these recur."""
    ks, teachers = sorted(_part(table, "segment")["k"].unique()), _teachers(table)
    methods = ordered(METHODS, _part(table, "segment")["method"])
    side = min((settings["width_in"] - MARGIN_IN) / len(ks), LARGEST_PANEL_IN)
    figure, grid = plt.subplots(
        2 * len(teachers),
        len(ks),
        figsize=(side * len(ks) + MARGIN_IN, len(teachers) * (side + BARS_IN + GAPS_IN) + 0.3),
        height_ratios=[side, BARS_IN] * len(teachers),
        squeeze=False,
    )
    for row, teacher in enumerate(teachers):
        here = table[table["teacher"] == teacher]
        for column, k in enumerate(ks):
            matrix, bars = grid[2 * row, column], grid[2 * row + 1, column]
            image = _matrix(matrix, here, k, methods, settings)
            _bars(bars, here, k, methods)
            ticks = layer_ticks(_depth(here), most=int(side / TICK_IN))
            bars.set_xticks(ticks)
            matrix.set_yticks(ticks)
        figure.colorbar(image, ax=list(grid[2 * row]), shrink=0.8, pad=0.01, aspect=15).set_label(
            _distance_name(table)
        )
        grid[2 * row, 0].set_ylabel(f"{label(teacher)}\nlayer")
        grid[2 * row + 1, 0].set_ylabel("recurs")
    _legend(figure, methods)
    return figure


def _part(table: pd.DataFrame, part: str) -> pd.DataFrame:
    """The rows of one part, its whole numbers whole again (beside blanks they were read as 1.0)."""
    some = table[table["part"] == part]
    return some.astype({name: int for name in INTEGERS if some[name].notna().all()})


def _teachers(table: pd.DataFrame) -> list[str]:
    """Those that were cut, in the order of the table."""
    cut = set(_part(table, "segment")["teacher"])
    return [name for name in dict.fromkeys(table["teacher"]) if name in cut]


def _depth(here: pd.DataFrame) -> int:
    return int(_part(here, "matrix")["layer_a"].max())


def _distance_name(table: pd.DataFrame) -> str:
    measure = _part(table, "matrix")["measure"].iloc[0]
    name = term(MEASURES, measure).label
    return name if measure in DISTANCES else f"1 − {name.split(' (')[0]}"


def _matrix(
    axes: Axes, here: pd.DataFrame, k: int, methods: Sequence[str], settings: Mapping[str, Any]
):
    """The distances of one teacher with the segments of every method drawn as squares."""
    entries = _part(here, "matrix")
    matrix = entries.pivot_table(index="layer_a", columns="layer_b", values="value")
    depth = len(matrix)
    image = axes.imshow(matrix, cmap=settings["cmap"], extent=(0.5, depth + 0.5, depth + 0.5, 0.5))
    segments = _part(here, "segment")
    segments = segments[segments["k"] == k]
    for method in methods:
        for segment in segments[segments["method"] == method].itertuples():
            width = segment.last - segment.first + 1
            corner = segment.first - 0.5
            square = Rectangle((corner, corner), width, width, fill=False, lw=1.5, zorder=3)
            square.set(edgecolor=METHODS[method].colour, linestyle=DASHES[method])
            square.set_path_effects(
                [patheffects.Stroke(linewidth=3, foreground="white")] * (method == methods[0])
                + [patheffects.Normal()]
            )
            square.set_clip_on(False)
            axes.add_patch(square)
    axes.set_title(_cut_title(k, segments, methods), fontsize=7)
    axes.spines[:].set_visible(False)
    if settings["annotate"]:
        _annotate(axes, entries, image.norm.vmax, depth)
    axes.tick_params(bottom=False, labelbottom=False)
    return image


def _annotate(axes: Axes, entries: pd.DataFrame, largest: float, depth: int) -> None:
    for entry in entries.itertuples():
        axes.text(
            entry.layer_b,
            entry.layer_a,
            f"{entry.value:.2f}".removeprefix("0"),
            ha="center",
            va="center",
            fontsize=max(3.0, min(6.0, 50 / depth)),
            color="white" if entry.value < largest / 2 else "black",
        )


def _cut_title(k: int, segments: pd.DataFrame, methods: Sequence[str]) -> str:
    """`k = 3`, then the segments: one line where the methods agree."""
    texts = {
        method: _segments_text(segments[segments["method"] == method])
        for method in methods
        if (segments["method"] == method).any()
    }
    lines = dict.fromkeys(texts.values())
    return "\n".join([f"k = {k}", *lines] if len(lines) > 1 else [f"k = {k}", *lines, ""])


def _segments_text(segments: pd.DataFrame) -> str:
    rows = segments.sort_values("first").itertuples()
    return spans(" ".join(f"{row.first}-{row.last}" for row in rows))


def _bars(axes: Axes, here: pd.DataFrame, k: int, methods: Sequence[str]) -> None:
    """How often each boundary recurs over the resamples; full colour: the boundaries drawn."""
    boundaries = _part(here, "boundary")
    boundaries = boundaries[boundaries["k"] == k]
    width = 0.8 / len(methods)
    for rank, method in enumerate(methods):
        rows = boundaries[boundaries["method"] == method]
        offset = (rank - (len(methods) - 1) / 2) * width
        for chosen, alpha in ((True, 1.0), (False, 0.35)):
            some = rows[rows["chosen"].astype(bool) == chosen]
            axes.bar(
                some["boundary"] + 0.5 + offset,
                100 * some["frequency"],
                width,
                color=METHODS[method].colour,
                alpha=alpha,
            )
    axes.set_ylim(0, 100)
    axes.set_yticks([0, 50, 100], ["0", "50", "100 %"])
    axes.set_xlim(0.5, _depth(here) + 0.5)
    axes.set_xlabel("layer")


def _legend(figure: Figure, methods: Sequence[str]) -> None:
    lines = [Line2D([], [], color=METHODS[m].colour, linestyle=DASHES[m]) for m in methods]
    figure.legend(
        lines,
        [METHODS[m].label for m in methods],
        loc="outside lower center",
        ncols=len(methods),
    )


def numbers(table: pd.DataFrame) -> dict[str, Any]:
    """Cuts, agreement of the two methods, stability and thresholds, by teacher."""
    matrix, segments = _part(table, "matrix"), _part(table, "segment")
    boundaries, stops = _part(table, "boundary"), _part(table, "epsilon")
    teachers = []
    for teacher in _teachers(table):
        mine = segments[segments["teacher"] == teacher]
        cuts = [_cut(mine[mine["k"] == k], k) for k in sorted(mine["k"].unique())]
        own = boundaries[(boundaries["teacher"] == teacher) & (boundaries["method"] == "maxcut")]
        shares = own.groupby("k")["exact_share"].first()
        teachers.append(
            {
                "name": label(teacher),
                "cuts": cuts,
                "differing": [cut["k"] for cut in cuts if not cut["same"]],
                "exact_shares": [(int(k), share) for k, share in shares.items()],
                "thresholds": [
                    (f"{row.epsilon:g}", int(row.k))
                    for row in stops[stops["teacher"] == teacher].itertuples()
                ],
            }
        )
    shares = boundaries["exact_share"].dropna()
    return {
        "teachers": teachers,
        "distance": _distance_name(table),
        "n_low": int(matrix["n"].min()),
        "n_high": int(matrix["n"].max()),
        "n_resamples": int(boundaries["n"].max()) if len(boundaries) else 0,
        "least_stable": shares.min() if len(shares) else float("nan"),
        "paper": [(k, spans(text)) for k, text in published.SEGMENTS.items()],
        "paper_exact": [(k, spans(text)) for k, text in published.EXACT_SEGMENTS.items()],
        "any_differing": any(one["differing"] for one in teachers),
        "both_methods": len(set(segments["method"])) > 1,
    }


def _cut(segments: pd.DataFrame, k: int) -> dict[str, Any]:
    """The segments of each method at one k, and the share of the total distance they cut."""
    methods = ordered(METHODS, segments["method"])
    found = {method: segments[segments["method"] == method] for method in methods}
    texts = {method: _segments_text(group) for method, group in found.items()}
    return {
        "k": int(k),
        "segments": texts,
        "fraction": {method: group["cut_fraction"].iloc[0] for method, group in found.items()},
        "same": len(set(texts.values())) == 1,
    }
