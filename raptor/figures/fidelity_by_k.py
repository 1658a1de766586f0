"""Fig. 5: what a Raptor of k blocks keeps of its teacher."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from raptor.figures.panels import grid_lines, groups, k_ticks, open_towards_one
from raptor.figures.vocabulary import BASELINES, MARKERS, TOKENS, label, ordered, term
from raptor.tables import published
from raptor.tables.summary import summarise, summarise_by

KEYS = ["teacher", "recipe", "partition"]
PROBES = {
    "recovered": ("fine-tuned probe", "C0", "o", "-"),
    "recovered_head": ("teacher's own head", "C1", "s", "--"),
}
FEW = 3  # of fewer seeds a t interval says nothing
R2 = {"r2_mean": "all", "r2_cls": "cls", "r2_registers": "registers", "r2_patch": "patches"}


def draw(table: pd.DataFrame, settings: Mapping[str, Any]) -> Figure:
    """A row per teacher, recipe and partition; left accuracy kept, right R²; bars: sd."""
    rows = groups(table[table["part"] == "student"], KEYS)
    figure, grid = plt.subplots(
        len(rows),
        2,
        figsize=(settings["width_in"], settings["row_height_in"] * len(rows)),
        squeeze=False,
    )
    for (title, group), (left, right) in zip(rows, grid, strict=True):
        beside = table[table["teacher"] == group["teacher"].iloc[0]]
        accuracy_panel(left, group, beside[beside["part"] == "reference"])
        r2_panel(right, group, beside[beside["part"] == "baseline"])
        left.set_title(title)
    return figure


def _points(
    axes: Axes, group: pd.DataFrame, metric: str, scale: float, shift: float, **look: Any
) -> None:
    """Mean ± sd over the seeds, at each k."""
    found = summarise_by(group[group["metric"] == metric].sort_values("k"), ["k"], "value")
    found = found[found["n"] > 0]  # a teacher without registers has no R² for them
    if len(found):
        axes.errorbar(
            found["k"] + shift,
            scale * found["mean"],
            yerr=scale * found["sd"].fillna(0.0),
            capsize=2.5,
            elinewidth=0.9,
            **look,
        )


def accuracy_panel(axes: Axes, group: pd.DataFrame, reference: pd.DataFrame) -> None:
    """Accuracy kept by the students of `group`, by k, beside a smaller teacher's."""
    for rank, (metric, (name, colour, marker, line)) in enumerate(PROBES.items()):
        look = {"color": colour, "marker": marker, "linestyle": line, "label": name}
        _points(axes, group, metric, 100, 0.08 * (rank - 0.5), **look)
    axes.axhline(100, color="0.3", linestyle="--", linewidth=0.8, label="teacher")
    for row in reference[reference["metric"] == "recovered"].itertuples():
        name = f"smaller teacher ({label(row.partition)})"
        axes.axhline(100 * row.value, color="0.5", linestyle=":", linewidth=1.2, label=name)
    axes.set_ylabel("accuracy, % of the teacher's")
    _finish(axes, group)


def r2_panel(axes: Axes, group: pd.DataFrame, baselines: pd.DataFrame) -> None:
    """R² of the students of `group`, by k and token type, beside trivial predictions."""
    for rank, (metric, tokens) in enumerate(R2.items()):
        look = {"color": TOKENS[tokens].colour, "marker": MARKERS[tokens], "label": tokens}
        look["label"] = TOKENS[tokens].label
        _points(axes, group, metric, 1, 0.06 * (rank - 1.5), **look)
    styles = {"linear": "-.", "layer_mean": ":", "identity": "--"}
    values = baselines.set_index("partition")["value"]
    for name in ordered(BASELINES, values.index):
        # A baseline far below what is drawn would squeeze the rest: it is told, not drawn.
        text, colour = term(BASELINES, name)
        if values[name] >= 0:
            line = {"color": colour, "linestyle": styles.get(name, "-"), "linewidth": 1.0}
            axes.axhline(values[name], label=text, **line)
        else:
            axes.plot([], [], " ", label=f"{text}: R² = {values[name]:.2g}".replace("-", "−"))
    axes.set_ylabel("R², mean over layers")
    open_towards_one(axes)
    _finish(axes, group)


def _finish(axes: Axes, group: pd.DataFrame) -> None:
    ks = sorted(group["k"].unique())
    k_ticks(axes, ks)
    axes.set_xlim(min(ks) - 0.4, max(ks) + 0.4)
    grid_lines(axes)
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.22), ncols=2, borderaxespad=0)


def numbers(table: pd.DataFrame) -> dict[str, Any]:
    """Accuracy kept and R² by k, beside the paper's claim and the trivial baselines."""
    students = table[table["part"] == "student"]
    results = [
        _result(title, int(k), some)
        for title, group in groups(students, KEYS)
        for k, some in group.groupby("k")
    ]
    judged = [one for one in results if one["claimed"] is not None and one["recovered"].n]
    kept = [one["recovered"].mean >= one["claimed"] for one in judged]
    baselines = table[table["part"] == "baseline"]
    references = table[(table["part"] == "reference") & (table["metric"] == "recovered")]
    best = baselines.loc[baselines["value"].idxmax()] if len(baselines) else None
    return {
        "results": results,
        "labelled": any(one["recovered"].n for one in results),
        "all_kept": bool(kept) and all(kept),
        "judged": sorted({one["k"] for one in judged}),
        "missed": [one for one, good in zip(judged, kept, strict=True) if not good],
        "claims": sorted(published.KEPT_AT_LEAST.items()),
        "paper_kept": [(k, published.recovered(k)) for k in sorted(published.TOP1)],
        "paper": published.LABEL,
        "seeds_low": min(one["r2"].n for one in results),
        "seeds_high": max(one["r2"].n for one in results),
        "n_test_low": int(table["n_test"].min()),
        "n_test_high": int(table["n_test"].max()),
        "baseline": None
        if best is None
        else {
            "name": term(BASELINES, best["partition"]).label.replace("$a_0$", "a₀"),
            "r2": best["value"],
        },
        "above_baseline": best is not None
        and all(one["r2"].mean > best["value"] for one in results),
        "smaller": [
            {"name": label(row.partition), "of": label(row.teacher), "share": row.value}
            for row in references.itertuples()
        ],
    }


def _result(title: str, k: int, some: pd.DataFrame) -> dict[str, Any]:
    def of(metric: str):
        return summarise(some.loc[some["metric"] == metric, "value"])

    return {
        "title": title,
        "k": k,
        "recovered": of("recovered"),
        "head": of("recovered_head"),
        "r2": of("r2_mean"),
        "claimed": published.KEPT_AT_LEAST.get(k),
        "few_seeds": of("recovered").n < FEW,
    }
