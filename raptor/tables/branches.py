"""Similarity and phases of the two branches beside those after the block."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from raptor.contrast import block_contrast
from raptor.partition import Partition, contiguous_count, format_segments, partition
from raptor.phases import read_distances
from raptor.tables.files import read_table, write_table
from raptor.tables.phases import PERCENTILES, SIMILARITY

SITES = ("block", "attention", "mlp")
COLUMNS = [
    *[
        "part",
        "teacher",
        "site",
        "measure",
        "layer_a",
        "layer_b",
        "value",
        "ci_low",
        "ci_high",
        "n",
    ],
    *["method", "k", "segments", "cut_fraction", "exact_share"],
    *["boundaries", "shared", "shared_low", "shared_high", "shared_by_chance"],
    *["contrast", "contrast_low", "contrast_high"],
    *["contrast_block", "contrast_block_low", "contrast_block_high", "n_resamples"],
]


def branch_similarity(
    *,
    block: Sequence[Path],
    attention: Sequence[Path],
    mlp: Sequence[Path],
    matrices: Sequence[Path],
    measure: str,
    method: str,
    k: Sequence[int],
    min_size: int,
    output: Path,
) -> None:
    """Matrices and phases of each teacher at each site, in one table.

    `block`, `attention`, `mlp`: the tidy similarities, a file per teacher and in the same order;
    `matrices`: the npz beside each of them. `part` says what a row is. `matrix`: `layer_a,
    layer_b, value` (similarity under `measure`), `ci_low`, `ci_high`, `n` images. `phases`, one
    per k: `segments` and `cut_fraction` by `method`; `exact_share` of the `n_resamples` that give
    the same partition; `shared`: how many of the `boundaries` are boundaries after the block too,
    with the 95 % percentile interval of the same count within each resample of the images, and
    `shared_by_chance`, its expectation for a random contiguous partition; `contrast` under the
    site's own phases and `contrast_block` under those found after the block, phases held fixed.
    """
    files = {Path(path).with_suffix(".csv"): path for path in matrices}
    entries, phases = [], []
    for tables in zip(block, attention, mlp, strict=True):
        sites = dict(zip(SITES, map(Path, tables), strict=True))
        for site, path in sites.items():
            found = read_table(path, SIMILARITY)
            entries.append(found[found["measure"] == measure].assign(site=site))
        distances = {site: read_distances(files[path], measure) for site, path in sites.items()}
        names = {"teacher": entries[-1]["teacher"].iloc[0], "measure": measure, "method": method}
        for one in k:
            phases += [names | row for row in _phases(distances, one, method, min_size)]
    parts = [
        pd.concat(entries).assign(part="matrix"),
        pd.DataFrame(phases).assign(part="phases"),
    ]
    write_table(pd.concat(parts).reindex(columns=COLUMNS).convert_dtypes(), output)


def _phases(
    distances: dict[str, tuple[np.ndarray, np.ndarray]], k: int, method: str, min_size: int
) -> list[dict[str, Any]]:
    """The row of each site at one k; `distances`: (L, L), and R resamples, drawn alike."""

    def cut(distance_LL: np.ndarray) -> Partition:
        return partition(distance_LL, k, method=method, min_size=min_size)

    chosen = {site: cut(whole_LL) for site, (whole_LL, _) in distances.items()}
    drawn = {site: [cut(one) for one in some] for site, (_, some) in distances.items()}
    rows = []
    for site, (whole_LL, resamples_RLL) in distances.items():
        own, reference = chosen[site], chosen["block"]
        shared_R = [_shared(*pair) for pair in zip(drawn[site], drawn["block"], strict=True)]
        rows.append(
            {
                "site": site,
                "k": k,
                "segments": format_segments(own.segments),
                "cut_fraction": own.cut_fraction,
                "exact_share": np.mean([one.labels == own.labels for one in drawn[site]]),
                "boundaries": k - 1,
                "shared": _shared(own, reference),
                **_interval("shared", shared_R),
                "shared_by_chance": shared_by_chance(reference, min_size),
                **_contrast("contrast", whole_LL, resamples_RLL, own),
                **_contrast("contrast_block", whole_LL, resamples_RLL, reference),
                "n_resamples": len(resamples_RLL),
            }
        )
    return rows


def _boundaries(cut: Partition) -> set[int]:
    """Boundary b lies between layers b and b + 1."""
    return {last for _, last in cut.segments[:-1]}


def _shared(one: Partition, other: Partition) -> int:
    return len(_boundaries(one) & _boundaries(other))


def shared_by_chance(cut: Partition, min_size: int) -> float:
    """Boundaries of `cut` that a random contiguous partition into as many segments has on average.

    Uniform over all partitions into k segments of at least `min_size` layers.
    """
    depth, k = len(cut.labels), cut.k
    there = (
        contiguous_count(boundary, before, min_size)
        * contiguous_count(depth - boundary, k - before, min_size)
        for boundary in _boundaries(cut)
        for before in range(1, k)
    )
    return sum(there) / contiguous_count(depth, k, min_size)


def _contrast(
    name: str, whole_LL: np.ndarray, resamples_RLL: np.ndarray, cut: Partition
) -> dict[str, float]:
    """Similarity within phases minus across, and its interval."""
    whole, resampled = (-block_contrast(one, cut.labels) for one in (whole_LL, resamples_RLL))
    return {name: float(whole), **_interval(name, resampled)}


def _interval(name: str, values: Sequence[float]) -> dict[str, float]:
    low, high = np.percentile(values, PERCENTILES)
    return {f"{name}_low": low, f"{name}_high": high}
