"""What the figures of the dynamics share: curves over the layers, phases, and who is judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from raptor.captions import listing
from raptor.figures.panels import grid_lines, layer_ticks
from raptor.figures.vocabulary import MARKERS, METHODS, MODELS, TOKENS, label, ordered, spans, term

LINES = {"teacher": "-", "raptor": (0, (3, 1.5))}
BOUNDARY = {"color": "0.55", "linewidth": 0.8, "linestyle": ":", "zorder": 0}
INTEGERS = ["layer", "n", "first", "last", "source_layer", "phase", "label"]
LEGEND_IN, PAD_IN = 0.3, 0.06
LATE = 1 / 3  # share of the layers, the last ones, that are late, as in the scorecard


def panels(rows: int, columns: int, settings: Mapping[str, Any], **more: Any):
    """A figure and its panels (rows, columns), with room for a legend below."""
    height = settings["row_height_in"] * rows + LEGEND_IN
    size = (settings["width_in"], height)
    figure, grid = plt.subplots(rows, columns, figsize=size, squeeze=False, **more)
    figure.get_layout_engine().set(w_pad=PAD_IN, h_pad=PAD_IN)
    return figure, grid


def rows_of(table: pd.DataFrame, part: str, **where: Any) -> pd.DataFrame:
    """The rows of one part with these values, whole numbers whole again (blanks made them 1.0)."""
    some = table[table["part"] == part]
    for column, value in where.items():
        some = some[some[column] == value]
    present = [name for name in INTEGERS if name in some and some[name].notna().all()]
    return some.astype(dict.fromkeys(present, int))


def look(tokens: str, model: str) -> dict[str, Any]:
    """Colour and marker tell the tokens, line and filling the model."""
    colour = term(TOKENS, tokens).colour
    face = colour if model == "teacher" else "white"
    return {"color": colour, "marker": MARKERS[tokens], "markersize": 3, "markerfacecolor": face,
            "markeredgewidth": 0.8, "linestyle": LINES[model], "linewidth": 1.1}  # fmt: skip


def curves(axes: Axes, rows: pd.DataFrame, column: str = "mean") -> None:
    """`column` by layer of each token type and model, with a band from `ci_low` to `ci_high`."""
    for model in ordered(MODELS, rows["model"]):
        for tokens in ordered(TOKENS, rows["tokens"]):
            some = rows[(rows["model"] == model) & (rows["tokens"] == tokens)]
            some = some.sort_values("layer")
            axes.plot(some["layer"], some[column], **look(tokens, model))
            if column == "mean":
                colour = term(TOKENS, tokens).colour
                band = some["ci_low"], some["ci_high"]
                axes.fill_between(some["layer"], *band, color=colour, alpha=0.2, linewidth=0)


def layer_axis(axes: Axes, depth: int, first: int, phases: pd.DataFrame) -> None:
    """Layers `first`..`depth` on the x axis, a line between two phases."""
    for start in phases["first"]:
        if start > 1:
            axes.axvline(start - 0.5, **BOUNDARY)
    step = -(-depth // 6)
    axes.set_xticks(layer_ticks(depth, most=8) if first else range(0, depth + 1, step))
    axes.set_xlim(first - 0.35, depth + 0.35)
    axes.set_xlabel("layer", labelpad=1)
    grid_lines(axes)


def legend(figure: Figure, table: pd.DataFrame, tokens: Sequence[str]) -> None:
    """Below the figure: token types, models, phase boundaries."""
    handles = [
        Line2D([], [], **look(name, "teacher"), label=term(TOKENS, name).label) for name in tokens
    ]
    for model in ordered(MODELS, table["model"].dropna()):
        style = look("all", model) | {"color": "0.5"}
        style["markerfacecolor"] = "0.5" if model == "teacher" else "white"
        handles.append(Line2D([], [], **style, label=term(MODELS, model).label))
    if (rows_of(table, "segment")["first"] > 1).any():
        handles.append(Line2D([], [], **BOUNDARY, label="phase boundary"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles),
                  columnspacing=1.2, handlelength=2.6)  # fmt: skip


def teachers_of(table: pd.DataFrame) -> list[str]:
    """In the order of the table."""
    return list(dict.fromkeys(table["teacher"]))


def token_types(table: pd.DataFrame) -> list[str]:
    """Those that are drawn: `all`, of all tokens, has no type."""
    return [name for name in ordered(TOKENS, table["tokens"].dropna()) if name != "all"]


def depth_of(table: pd.DataFrame, teacher: str) -> int:
    return int(rows_of(table, "profile", teacher=teacher)["layer"].max())


def titled(axes: Axes, text: str, teacher: str, several: bool) -> None:
    """A title, with the name of the teacher where there are several."""
    axes.set_title(f"{label(teacher)}: {text}" if several else text)


# --- what captions say ---------------------------------------------------------------------------


def profile(table: pd.DataFrame, teacher: str, model: str, tokens: str, metric: str) -> np.ndarray:
    """Means by layer; empty where there are none."""
    where = {"teacher": teacher, "model": model, "tokens": tokens, "metric": metric}
    return rows_of(table, "profile", **where).sort_values("layer")["mean"].to_numpy()


def labels_of(table: pd.DataFrame, teacher: str) -> np.ndarray:
    """The phase of each layer 1..L, empty where the teacher is not cut."""
    phases = rows_of(table, "segment", teacher=teacher).sort_values("first")
    lengths = phases["last"] - phases["first"] + 1
    return np.repeat(np.arange(1, len(phases) + 1), lengths)


def late_and_early(values_L: np.ndarray) -> tuple[float, float]:
    """Mean over the last third of the layers 1..L, and over the third before it; NaN if none."""
    third = max(1, round(len(values_L) * LATE))
    halves = values_L[-third:], values_L[-2 * third : -third]
    return tuple(float(half.mean()) if len(half) else float("nan") for half in halves)


def largest_gap(
    table: pd.DataFrame, teacher: str, metric: str, tokens: Iterable[str]
) -> float | None:
    """Largest difference of the means of a teacher and its Raptor; None where it has none."""
    pairs = [
        [profile(table, teacher, model, name, metric) for model in ("teacher", "raptor")]
        for name in tokens
    ]
    gaps = [np.abs(own - other).max() for own, other in pairs if len(own) and len(other)]
    return float(max(gaps)) if gaps else None


def verdict(name: str, claims: Mapping[str, bool | None]) -> str:
    """A sentence: which claims of the paper (in words -> whether it holds) hold in the mean."""
    holding = [claim for claim, holds in claims.items() if holds]
    failing = [claim for claim, holds in claims.items() if holds is not None and not holds]
    untested = [claim for claim, holds in claims.items() if holds is None]
    if not holding and not failing:
        text = f"On {name} none of this is tested"
    elif not failing:
        text = f"{name} agrees in the mean: {listing(holding)}"
    elif not holding:
        text = f"**{name} disagrees**: it does not hold that {listing(failing, 'or')}"
    else:
        text = f"**{name} agrees only in part**: {listing(holding)}; it does not hold that "
        text += listing(failing, "or")
    if untested and (holding or failing):
        text += f" (not tested: {listing(untested)})"
    return f"{text}."


def control(name: str, claims: Mapping[str, bool | None]) -> str:
    """A sentence: which of them a teacher that was not trained shows as well."""
    holding = [claim for claim, holds in claims.items() if holds]
    tested = any(holds is not None for holds in claims.values())
    text = f"this is true: {listing(holding)}" if holding else "none of this is true"
    text = text if tested else "none of this is tested"
    return f"Of the control {name}, which was not trained, {text}."


def verdicts(
    table: pd.DataFrame, claims: Mapping[str, Mapping[str, bool | None]]
) -> dict[str, list[str]]:
    """Sentences by teacher: `verdicts` of those that were trained, `controls` of the others."""
    trained = table.drop_duplicates("teacher").set_index("teacher")["trained"].astype(bool)
    return {
        "verdicts": [verdict(label(name), claims[name]) for name in claims if trained[name]],
        "controls": [control(label(name), claims[name]) for name in claims if not trained[name]],
    }


def facts(table: pd.DataFrame) -> dict[str, Any]:
    """Teachers, images, phases and Raptors that every caption names."""
    images = table.loc[table["part"].isin(["profile", "fit"]), "n"]
    cut = rows_of(table, "segment")
    phases = [
        {
            "teacher": label(teacher),
            "segments": spans(
                " ".join(
                    f"{one.first}-{one.last}" for one in some.sort_values("first").itertuples()
                )
            ),
            "method": term(METHODS, some["method"].iloc[0]).label,
            "k": int(some["k"].iloc[0]),
        }
        for teacher in teachers_of(table)
        if len(some := cut[cut["teacher"] == teacher])
    ]
    raptors = table.loc[table["model"] == "raptor", "teacher"]
    return {
        "teachers": [label(name) for name in teachers_of(table)],
        "raptors": [label(name) for name in dict.fromkeys(raptors)],
        "n_low": int(images.min()),
        "n_high": int(images.max()),
        "phases": phases,
    }
