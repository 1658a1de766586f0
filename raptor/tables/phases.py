"""Similarity and phases: the tables behind Figs 1 and 2 and Table 3."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from raptor.contrast import block_contrast
from raptor.partition import OPTIMISED
from raptor.tables.files import read_table, read_tables, write_table
from raptor.tables.summary import summarise

DISTANCES = ("mean_squared_difference",)  # measures that are 0, not largest, for equal layers
PERCENTILES = (2.5, 97.5)
SIMILARITY = "teacher measure layer_a layer_b value ci_low n"
PARTITION = "teacher method k seed segments labels cut_weight cut_fraction"
STABILITY = "teacher method k boundary chosen frequency exact_share n_resamples"
EPSILON = "teacher epsilon k segments"


def similarity_matrices(
    *,
    similarity: Sequence[Path],
    matrices: Sequence[Path],
    partitions: Sequence[Path],
    untrained: Sequence[str],
    output: Path,
) -> None:
    """Every entry of every teacher, with the block contrast of its matrix.

    `matrices`: the npz of each teacher, `<teacher>.npz`, for the bootstrap. `partitions`: at most
    one table per teacher; its first row gives the phases that `contrast` is about. For a distance
    the contrast is taken of its negative, so that blocks always make it positive; it is NaN for a
    teacher that is not cut, or cut into single layers. `contrast_low`,
    `contrast_high`: 95 % percentile interval over resampled images, the phases held fixed.
    """
    table = read_tables(similarity, SIMILARITY)
    cuts = {
        cut["teacher"]: cut for cut in (read_table(path, PARTITION).iloc[0] for path in partitions)
    }
    bootstraps = {Path(path).stem: path for path in matrices}
    rows = [
        {
            "teacher": teacher,
            "measure": measure,
            **contrast(entries, measure, cuts.get(teacher), bootstraps.get(teacher)),
        }
        for (teacher, measure), entries in table.groupby(["teacher", "measure"], sort=False)
    ]
    table = table.merge(pd.DataFrame(rows), on=["teacher", "measure"], how="left")
    table["trained"] = (~table["teacher"].isin(untrained)).astype(int)
    write_table(table.convert_dtypes(), output)


def contrast(
    entries: pd.DataFrame, measure: str, cut: pd.Series | None, bootstrap: Path | None
) -> dict[str, object]:
    """`contrast` of one matrix under one partition, and its interval `contrast_low, contrast_high`.

    NaN without a partition.
    """
    if cut is None:
        return {"contrast": np.nan, "contrast_low": np.nan, "contrast_high": np.nan}
    labels = json.loads(cut["labels"])
    sign = -1 if measure in DISTANCES else 1
    matrix_LL = entries.pivot_table(index="layer_a", columns="layer_b", values="value").to_numpy()
    low = high = np.nan
    # Fewer than two units to resample give no interval, of an entry or of the contrast.
    if bootstrap is not None and entries["ci_low"].notna().any():
        with np.load(bootstrap, allow_pickle=False) as arrays:
            resamples = block_contrast(sign * arrays[f"{measure}_bootstrap"], labels)
        low, high = np.percentile(resamples, PERCENTILES)
    return {
        "method": cut["method"],
        "k": cut["k"],
        "contrast": float(block_contrast(sign * matrix_LL, labels)),
        "contrast_low": low,
        "contrast_high": high,
    }


def maxcut_partitions(
    *,
    similarity: Sequence[Path],
    partitions: Sequence[Path],
    stability: Sequence[Path],
    epsilon: Sequence[Path],
    measure: str,
    output: Path,
) -> None:
    """Matrix, cuts, boundary stability and stop thresholds of each teacher, in one table.

    `part` says what a row is: `matrix` (`layer_a, layer_b, value`: distance under `measure`; `n`
    images), `segment` (`method, k, first, last, cut_fraction`), `boundary` (`method, k, boundary,
    chosen, frequency, exact_share`; `n` resamples), `epsilon` (`epsilon, k` reached by `maxcut`).
    Partitions of other methods than the two Max-Cut ones are left out, and the stability of those
    that are not in `partitions`.
    """
    entries = read_tables(similarity, SIMILARITY)
    entries = entries[entries["measure"] == measure]
    distance = entries["value"] if measure in DISTANCES else 1 - entries["value"]
    matrix = entries.assign(value=distance)[
        ["teacher", "measure", "layer_a", "layer_b", "value", "n"]
    ]
    cuts = read_tables(partitions, PARTITION)
    cuts = _first_seed(cuts[cuts["method"].isin(OPTIMISED)])
    boundaries = read_tables(stability, STABILITY).rename(columns={"n_resamples": "n"})
    boundaries = boundaries[boundaries["k"].isin(cuts["k"])]
    stops = [table for table in (read_table(path, EPSILON) for path in epsilon) if len(table)]
    parts = {
        "matrix": matrix,
        "segment": segment_rows(cuts),
        "boundary": boundaries,
        **({"epsilon": pd.concat(stops)} if stops else {}),
    }
    table = pd.concat([part.assign(part=name) for name, part in parts.items()])
    columns = [
        *[
            "part",
            "teacher",
            "measure",
            "method",
            "k",
            "layer_a",
            "layer_b",
            "value",
            "n",
            "first",
            "last",
            "cut_fraction",
        ],
        *["boundary", "chosen", "frequency", "exact_share", "epsilon", "segments"],
    ]
    write_table(table.reindex(columns=columns).convert_dtypes(), output)


def _first_seed(cuts: pd.DataFrame) -> pd.DataFrame:
    """One row per teacher, method and k, where seeds make no difference."""
    return cuts.sort_values("seed", kind="stable").drop_duplicates(["teacher", "method", "k"])


def segment_rows(cuts: pd.DataFrame) -> pd.DataFrame:
    """A row `teacher, method, k, first, last, cut_fraction` for each segment of each partition."""
    columns = ["teacher", "method", "k", "first", "last", "cut_fraction"]
    rows = [
        (cut.teacher, cut.method, cut.k, *map(int, segment.split("-")), cut.cut_fraction)
        for cut in cuts.sort_values(["teacher", "method", "k"]).itertuples()
        for segment in cut.segments.split()
    ]
    return pd.DataFrame(rows, columns=columns)


def table_partitions(
    *,
    partitions: Sequence[Path],
    stability: Sequence[Path],
    epsilon: Sequence[Path],
    output: Path,
) -> None:
    """One row per teacher, method and k (paper Table 3).

    `segments` (left empty where the draws differ), `n_partitions` distinct ones, the cut weight
    and fraction as mean and sd over the `n_draws`; for the Max-Cut methods `exact_share` of
    `n_resamples` bootstrap resamples with the same partition, and how often each of its
    boundaries came back (`7: 0.98`: between layers 7 and 8); for `maxcut` the ε that give this k.
    """
    cuts = read_tables(partitions, PARTITION)
    stable = read_tables(stability, STABILITY)
    stops = pd.concat([read_table(path, EPSILON) for path in epsilon])
    rows = []
    for (teacher, method, k), group in cuts.groupby(["teacher", "method", "k"], sort=True):
        weight, fraction = (summarise(group[name]) for name in ("cut_weight", "cut_fraction"))
        distinct = group["labels"].nunique()
        here = stops[(stops["teacher"] == teacher) & (stops["k"] == k)]
        rows.append(
            {
                "teacher": teacher,
                "method": method,
                "k": k,
                "segments": group["segments"].iloc[0] if distinct == 1 else "",
                "n_partitions": distinct,
                "n_draws": len(group),
                "cut_weight": weight.mean,
                "cut_weight_sd": weight.sd if distinct > 1 else np.nan,
                "cut_fraction": fraction.mean,
                "cut_fraction_sd": fraction.sd if distinct > 1 else np.nan,
                **_boundaries(
                    stable.query("teacher == @teacher and method == @method and k == @k")
                ),
                "epsilon": " ".join(f"{value:g}" for value in here["epsilon"])
                if method == "maxcut"
                else "",
            }
        )
    write_table(pd.DataFrame(rows).convert_dtypes(), output)


def _boundaries(stable: pd.DataFrame) -> dict[str, object]:
    if stable.empty:
        return {"exact_share": np.nan, "boundary_frequency": "", "n_resamples": np.nan}
    chosen = stable[stable["chosen"].astype(bool)]
    return {
        "exact_share": stable["exact_share"].iloc[0],
        "boundary_frequency": " ".join(
            f"{row.boundary}:{row.frequency:.2f}" for row in chosen.itertuples()
        ),
        "n_resamples": stable["n_resamples"].iloc[0],
    }
