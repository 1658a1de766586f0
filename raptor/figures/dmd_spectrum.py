"""Fig. 9: the eigenvalues of linear maps from layer to layer, by phase and token type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from raptor.figures.along_depth import (
    facts,
    look,
    panels,
    rows_of,
    teachers_of,
    token_types,
    verdicts,
)
from raptor.figures.panels import grid_lines, logarithmic
from raptor.figures.vocabulary import MODELS, TOKENS, label, ordered, spans, term

FRAME = 1.8  # real and imaginary parts that are drawn where they are
OUTSIDE = {"marker": "*", "markersize": 5}
RADIUS = 1.0  # of the circle that the paper finds all eigenvalues in
DODGE = 0.75  # of the room of a phase that its points take
LONGEST = 1000.0  # layers; a half-life beyond is drawn with those that never end


def draw(table: pd.DataFrame, settings: Mapping[str, Any]) -> Figure:
    """Two rows per teacher: the complex plane by phase; radius, residual, half-lives by phase."""
    teachers, tokens = teachers_of(table), token_types(table)
    columns = max(3, rows_of(table, "mode")["phase"].max())
    figure, grid = panels(2 * len(teachers), columns, settings)
    for row, teacher in enumerate(teachers):
        modes, fits = (rows_of(table, part, teacher=teacher) for part in ("mode", "fit"))
        planes, (radius, residual, memory, *spare) = grid[2 * row], grid[2 * row + 1]
        phases = sorted(modes["phase"].unique())
        for axes in (*planes[len(phases) :], *spare):
            axes.remove()
        for axes, phase in zip(planes, phases, strict=False):
            some = modes[modes["phase"] == phase]
            _plane(axes, some, tokens)
            axes.set_title(_title(teacher, some, len(teachers) > 1 and phase == phases[0]))
        planes[0].set_ylabel("imaginary part")
        _by_phase(radius, fits, "spectral_radius", tokens)
        radius.axhline(RADIUS, color="0.3", linestyle="--", linewidth=0.8)
        radius.set_title("spectral radius")
        _by_phase(residual, fits, "residual_persistence", tokens)
        residual.axhline(1, color="0.3", linestyle="--", linewidth=0.8)
        logarithmic(residual)
        residual.set_title("test error / persistence")
        _memory(memory, modes, tokens)
    _legend(figure, table, tokens)
    return figure


def _title(teacher: str, some: pd.DataFrame, named: bool) -> str:
    layers = spans(f"{some['first'].iloc[0]}-{some['last'].iloc[0]}")
    name = f"{label(teacher)}: " if named else ""
    return f"{name}layer{'s' if '–' in layers else ''} {layers}"


def _plane(axes: Axes, some: pd.DataFrame, tokens: list[str]) -> None:
    """Eigenvalues of one phase; those outside the frame lie as stars on its border."""
    turn = np.linspace(0, 2 * np.pi, 200)
    axes.plot(RADIUS * np.cos(turn), RADIUS * np.sin(turn), color="0.3", linewidth=0.8)
    for side in (axes.axhline, axes.axvline):
        side(0, color="0.88", linewidth=0.6, zorder=0)
    for model in ordered(MODELS, some["model"]):
        for name in tokens:
            rows = some[(some["model"] == model) & (some["tokens"] == name)]
            x, y = rows["real"].to_numpy(), rows["imag"].to_numpy()
            outside = np.maximum(np.abs(x), np.abs(y)) > FRAME
            style = look(name, model) | {"linestyle": "", "markersize": 2.6}
            axes.plot(x[~outside], y[~outside], **style)
            beyond = x[outside].clip(-FRAME, FRAME), y[outside].clip(-FRAME, FRAME)
            axes.plot(*beyond, **style | OUTSIDE)
    axes.set_aspect("equal")
    room = (-1.08 * FRAME, 1.08 * FRAME)
    axes.set(xlim=room, ylim=room, xticks=[-1, 0, 1], yticks=[-1, 0, 1])
    axes.set_xlabel("real part", labelpad=1)


def _places(rows: pd.DataFrame, tokens: list[str]) -> list[tuple[str, str, pd.DataFrame, float]]:
    """Each model and token type with its rows, and where it stands beside the middle of a phase."""
    models = ordered(MODELS, rows["model"])
    pairs = [(model, name) for name in tokens for model in models]
    beside = (np.arange(len(pairs)) - (len(pairs) - 1) / 2) * DODGE / len(pairs)
    return [
        (model, name, rows[(rows["model"] == model) & (rows["tokens"] == name)], shift)
        for (model, name), shift in zip(pairs, beside, strict=True)
    ]


def _by_phase(axes: Axes, fits: pd.DataFrame, column: str, tokens: list[str]) -> None:
    for model, name, rows, shift in _places(fits, tokens):
        style = look(name, model) | {"linestyle": "", "markersize": 4}
        axes.plot(rows["phase"] + shift, rows[column], **style)
    _phase_axis(axes, fits)


def _memory(axes: Axes, modes: pd.DataFrame, tokens: list[str]) -> None:
    """The half-life of every mode; at the top those that do not decay."""
    for model, name, rows, shift in _places(modes, tokens):
        style = look(name, model) | {"linestyle": "", "alpha": 0.7}
        axes.plot(rows["phase"] + shift, rows["half_life"].clip(upper=LONGEST), **style)
    logarithmic(axes)
    low = modes["half_life"].min()
    axes.set_ylim(min(low, 1) / 1.5, 2 * LONGEST)
    powers = 10.0 ** np.arange(np.ceil(np.log10(min(low, 1) / 1.5)), np.log10(LONGEST))
    axes.set_yticks([*powers, LONGEST], [*(f"{tick:g}" for tick in powers), "∞"])
    axes.set_title("half-life (layers)")
    _phase_axis(axes, modes)


def _phase_axis(axes: Axes, rows: pd.DataFrame) -> None:
    phases = sorted(rows["phase"].unique())
    for phase in phases[1:]:
        axes.axvline(phase - 0.5, color="0.88", linewidth=0.6, zorder=0)
    axes.set_xticks(phases)
    axes.set_xlim(min(phases) - 0.5, max(phases) + 0.5)
    axes.set_xlabel("phase", labelpad=1)
    grid_lines(axes)


def _legend(figure: Figure, table: pd.DataFrame, tokens: list[str]) -> None:
    blank = {"linestyle": ""}
    handles = [
        Line2D([], [], **look(name, "teacher") | blank, label=term(TOKENS, name).label)
        for name in tokens
    ]
    for model, filling in (("teacher", "filled"), ("raptor", "open")):
        if (table["model"] == model).any():
            style = look("all", model) | blank
            handles.append(
                Line2D([], [], **style, label=f"{term(MODELS, model).label} ({filling})")
            )
    handles.append(Line2D([], [], color="0.15", **OUTSIDE | blank, label="outside the frame"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles),
                  columnspacing=1.0, handletextpad=0.2)  # fmt: skip


def numbers(table: pd.DataFrame) -> dict[str, Any]:
    """Spectral radii, memory and test error, and whether cls remembers longest."""
    found = {teacher: _of(table, teacher) for teacher in teachers_of(table)}
    fits = rows_of(table, "fit")
    modes = rows_of(table, "mode")
    return {
        **facts(table),
        "results": list(found.values()),
        "n_train_low": int(fits["n_train"].min()),
        "n_train_high": int(fits["n_train"].max()),
        "n_modes": int(modes["mode"].max()),
        "n_outside": int((modes[["real", "imag"]].abs().max(axis=1) > FRAME).sum()),
        "frame": FRAME,
        "radius": RADIUS,
        "longest": LONGEST,
        **verdicts(table, {teacher: _claims(one) for teacher, one in found.items()}),
    }


def _of(table: pd.DataFrame, teacher: str) -> dict[str, Any]:
    fits = rows_of(table, "fit", teacher=teacher)
    own, raptor = fits[fits["model"] == "teacher"], fits[fits["model"] == "raptor"]
    nearest = own.pivot_table(
        index="phase", columns="tokens", values="nearest_to_one", aggfunc="first"
    )
    return {
        "name": label(teacher),
        "radius": (float(own["spectral_radius"].min()), float(own["spectral_radius"].max())),
        "inside": int((own["spectral_radius"] < RADIUS).sum()),
        "fits": len(own),
        "raptor": None
        if raptor.empty
        else (float(raptor["spectral_radius"].min()), float(raptor["spectral_radius"].max())),
        "error": (
            float(own["residual_persistence"].min()),
            float(own["residual_persistence"].max()),
        ),
        "cls_nearest": _in_every_phase(nearest),
        "nearest": [
            {"name": term(TOKENS, name).label, "token": name, "away": float(nearest[name].mean())}
            for name in ordered(TOKENS, nearest)
        ],
    }


def _claims(one: Mapping[str, Any]) -> dict[str, bool | None]:
    return {
        "every eigenvalue lies inside the unit circle": one["inside"] == one["fits"],
        "the eigenvalues of cls come nearest to one in every phase": one["cls_nearest"],
    }


def _in_every_phase(nearest: pd.DataFrame) -> bool | None:
    """Whether cls is the nearest; None where it has nothing beside it.

    The order of means over two or three phases turns with the sample of images.
    """
    if "cls" not in nearest or nearest.shape[1] < 2:
        return None
    return bool((nearest["cls"] < nearest.drop(columns="cls").min(axis=1)).all())
