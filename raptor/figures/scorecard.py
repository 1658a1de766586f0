"""The scorecard as a picture: each claim, its interval beside its threshold, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from raptor.captions import UNIT
from raptor.figures.vocabulary import VERDICTS, label, term

# Told apart without colour too: by shape, by filling, by the word.
MARKERS = {"supported": "o", "contradicted": "X", "inconclusive": "D", "not tested": "_"}
HOLLOW = ("inconclusive",)
WIDTHS = (0.34, 0.21, 0.235, 0.065, 0.15)  # of the columns, as shares
HEADERS = ("claim", "", "effect (95 % CI)", "n", "verdict")
BEYOND = 1.15  # where an end without a bound is drawn; the longest arm of the others is 1


def draw(table: pd.DataFrame, settings: Mapping[str, Any]) -> Figure:
    """A row per claim; every interval on a scale of its own, 0 being the claim's threshold."""
    height = settings["row_height_in"] * (len(table) + 2)
    figure, axes = plt.subplots(
        1,
        len(WIDTHS),
        sharey=True,
        figsize=(settings["width_in"], height),
        gridspec_kw={"width_ratios": WIDTHS},
    )
    figure.get_layout_engine().set(wspace=0, w_pad=0.02)
    claims, plot, effects, numbers_, verdicts = axes
    for place, row in enumerate(table.itertuples()):
        look = term(VERDICTS, row.verdict)
        grey = "0.5" if row.verdict == "not tested" else "0.1"
        _write(claims, 0.085, place, f"{row.claim}", grey, ha="right")
        _write(claims, 0.12, place, row.title, grey)
        _interval(plot, place, row, look.colour)
        _write(effects, 0.5, place, _effect(row), grey, ha="center")
        _write(numbers_, 0.95, place, f"{row.n:,}" if row.n else "–", grey, ha="right")
        face = "white" if row.verdict in HOLLOW else look.colour
        badge = {"marker": MARKERS[row.verdict], "mfc": face, "mec": look.colour, "ms": 5}
        verdicts.add_line(Line2D([0.2], [place], linestyle="", clip_on=False, **badge))
        _write(verdicts, 0.29, place, look.label, look.colour)
    for one, header in zip(axes, HEADERS, strict=True):
        _column(one, len(table))
        where = {"claim": (0.12, "left"), "n": (0.95, "right"), "verdict": (0.29, "left")}
        x, side = where.get(header, (0.5, "center"))
        one.text(x, -1, header, transform=one.get_yaxis_transform(), ha=side, va="center",
                 fontsize=7, fontweight="bold")  # fmt: skip
    _threshold(plot, len(table))
    return figure


def _write(axes: Axes, x: float, place: int, text: str, colour: str, ha: str = "left") -> None:
    transform = axes.get_yaxis_transform()
    axes.text(x, place, text, transform=transform, color=colour, ha=ha, va="center", fontsize=7)


def _column(axes: Axes, rows: int) -> None:
    axes.set_ylim(rows - 0.3, -1.5)
    axes.set_xlim(0, 1)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    for place in range(rows + 1):
        axes.axhline(place - 0.5, color="0.3" if place == 0 else "0.9", linewidth=0.6, zorder=0)


def _threshold(axes: Axes, rows: int) -> None:
    axes.set_xlim(-1.25, 1.25)
    axes.plot([0, 0], [-0.5, rows - 0.5], color="0.3", linewidth=0.8, zorder=1)
    for x, text in ((-0.62, "against"), (0.62, "for")):
        axes.text(x, -1, text, ha="center", va="center", fontsize=7, color="0.3")


def _interval(axes: Axes, place: int, row: Any, colour: str) -> None:
    """The interval, as long as the room allows; an end without a bound is an arrow."""
    if np.isnan(row.effect):
        return
    ends = np.array([row.ci_low, row.effect, row.ci_high])
    finite = ends[np.isfinite(ends)]
    scale = np.abs(finite).max() or 1.0
    low, middle, high = np.clip(ends / scale, -BEYOND, BEYOND)
    axes.plot([low, high], [place, place], color=colour, linewidth=1.4, solid_capstyle="butt")
    for end, value, tip in ((low, row.ci_low, "<"), (high, row.ci_high, ">")):
        marker, size = ("|", 5) if np.isfinite(value) else (tip, 3.5)
        axes.plot(end, place, marker, color=colour, markersize=size)
    face = "white" if row.verdict in HOLLOW else colour
    axes.plot(middle, place, MARKERS[row.verdict], mfc=face, mec=colour, ms=4.5, zorder=3)


def _effect(row: Any) -> str:
    if np.isnan(row.effect):
        return "–"
    if row.ci_low == row.ci_high:
        return _short(row.effect)
    return f"{_short(row.effect)} ({_short(row.ci_low)} to {_short(row.ci_high)})"


def _short(value: float) -> str:
    """Two significant digits, a real minus sign."""
    if np.isinf(value):
        return "−∞" if value < 0 else "∞"
    text = f"{value:.2g}" if abs(value) < 100 else f"{value:.0f}"
    return text.replace("-", "−")


def numbers(table: pd.DataFrame) -> dict[str, Any]:
    """How many claims have each verdict, and those that are not supported, with the reason."""
    chosen = {verdict: table[table["verdict"] == verdict] for verdict in VERDICTS}
    missing = chosen["not tested"].groupby("reason", sort=False)["claim"].agg(list)
    return {
        "n_claims": len(table),
        "counts": [(verdict, len(some)) for verdict, some in chosen.items() if len(some)],
        "contradicted": [
            {"claim": row.claim, "title": row.title}
            | {"paper": _plain(row.paper), "reason": _plain(row.reason)}
            for row in chosen["contradicted"].itertuples()
        ],
        "inconclusive": [
            {"claim": row.claim, "title": row.title} for row in chosen["inconclusive"].itertuples()
        ],
        "not_tested": [
            {"claims": claims, "reason": _plain(reason)} for reason, claims in missing.items()
        ],
    }


def _plain(text: str) -> str:
    """A sentence without its full stop, for the middle of another; reST reads no markup in it."""
    return label(text).replace("*", "×").replace(" %", UNIT).removesuffix(".")
