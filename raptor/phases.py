"""The phases of a teacher as files: written by one stage, read by most of the others."""

from __future__ import annotations

import csv
import json
import logging
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from raptor.errors import RaptorError
from raptor.files import replacing
from raptor.partition import (
    OPTIMISED,
    Partition,
    Stability,
    boundary_stability,
    distinct_seeds,
    format_segments,
    is_random,
    partition,
    runs,
)

if TYPE_CHECKING:
    from raptor.config.analysis import PartitionConfig

log = logging.getLogger(__name__)

PARTITION_COLUMNS = "teacher method k seed segments labels cut_weight cut_fraction"
STABILITY_COLUMNS = "teacher method k boundary chosen frequency exact_share n_resamples"
EPSILON_COLUMNS = "teacher epsilon k segments"


def write_partitions(
    *,
    matrices: Path,
    config: PartitionConfig,
    teacher: str,
    outputs: Mapping[tuple[str, int], Path],
    stability: Path,
    epsilon: Path,
    seed: int,
) -> None:
    """Every partition of one teacher, and how stable the Max-Cut ones are.

    `matrices`: the npz of `raptor.similarity.write_similarity`. `outputs`: `(method, k)` -> CSV
    with one row, of seed 0, or for the random methods one per seed 0 … `random_seeds` - 1; seed s
    cuts at the same sizes in `random` and `random_scattered`. The draws of `random` are distinct
    until there is no other contiguous partition left. `stability`: one row per
    Max-Cut method, k (those of `outputs`) and boundary b, which lies between layers b and b + 1.
    `epsilon`: what `maxcut` stops at for each `config.epsilon`. `seed`: base of the random draws.
    """
    distance_LL, resamples_RLL = read_distances(matrices, config.measure)
    draws, min_size = config.random_seeds, config.min_size
    seeds = {
        k: distinct_seeds(len(distance_LL), k, draws=draws, min_size=min_size, seed=seed)
        for _, k in outputs
    }
    for (method, k), path in outputs.items():
        cuts = [
            partition(distance_LL, k, method=method, min_size=min_size, seed=own)
            for own in seeds[k][: None if is_random(method) else 1]
        ]
        rows = [_partition_row(teacher, cut, draw) for draw, cut in enumerate(cuts)]
        _write_csv(path, PARTITION_COLUMNS, rows)
        log.info("%s, k = %d: %s", method, k, rows[0]["segments"])
    stable = [
        boundary_stability(distance_LL, resamples_RLL, k, method=method, min_size=min_size)
        for method in OPTIMISED
        for k in sorted({k for _, k in outputs})
    ]
    rows = [row for one in stable for row in _stability_rows(teacher, one)]
    _write_csv(stability, STABILITY_COLUMNS, rows)
    rows = []
    for fraction in config.epsilon:
        cut = partition(distance_LL, epsilon=fraction, min_size=min_size)
        segments = format_segments(cut.segments)
        rows.append({"teacher": teacher, "epsilon": fraction, "k": cut.k, "segments": segments})
    _write_csv(epsilon, EPSILON_COLUMNS, rows)


def read_distances(matrices: Path, measure: str) -> tuple[np.ndarray, np.ndarray]:
    """Distance (L, L) and its bootstrap resamples (R, L, L) from the npz of `write_similarity`.

    1 - similarity, or the mean squared difference itself.
    """
    try:
        with np.load(matrices, allow_pickle=False) as arrays:
            value_LL, resamples_RLL = arrays[measure], arrays[f"{measure}_bootstrap"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise RaptorError(
            f"{matrices}: no similarity by {measure} to read ({error}); delete it and run again"
        ) from None
    if measure == "mean_squared_difference":
        return value_LL, resamples_RLL
    return 1 - value_LL, 1 - resamples_RLL


def read_partition(path: Path, seed: int = 0) -> Partition:
    """The partition of `seed` in a CSV of `write_partitions`; without chance that of any seed."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            found = {int(row["seed"]): _partition_of(row) for row in csv.DictReader(file)}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RaptorError(
            f"{path}: no partitions to read ({error}); delete it and run again"
        ) from None
    if found and not is_random(next(iter(found.values())).method):
        seed = min(found)
    if seed not in found:
        raise RaptorError(
            f"{path}: has no row for seed {seed}; raise partition.random_seeds above it"
        )
    return found[seed]


def _partition_of(row: Mapping[str, str]) -> Partition:
    labels = tuple(json.loads(row["labels"]))
    weight, fraction = float(row["cut_weight"]), float(row["cut_fraction"])
    return Partition(runs(labels), labels, weight, fraction, int(row["k"]), row["method"])


def _partition_row(teacher: str, cut: Partition, seed: int) -> dict[str, object]:
    return {
        "teacher": teacher,
        "method": cut.method,
        "k": cut.k,
        "seed": seed,
        "segments": format_segments(cut.segments),
        "labels": json.dumps(cut.labels),
        "cut_weight": cut.cut_weight,
        "cut_fraction": cut.cut_fraction,
    }


def _stability_rows(teacher: str, stable: Stability) -> list[dict[str, object]]:
    """One row per boundary b = 1..L-1; `chosen` (0 or 1): the full data have it too."""
    labels = stable.chosen.labels
    return [
        {
            "teacher": teacher,
            "method": stable.chosen.method,
            "k": stable.chosen.k,
            "boundary": boundary,
            "chosen": int(labels[boundary - 1] != labels[boundary]),
            "frequency": frequency,
            "exact_share": stable.exact_share,
            "n_resamples": stable.n_resamples,
        }
        for boundary, frequency in enumerate(stable.frequency, start=1)
    ]


def _write_csv(path: Path, columns: str, rows: Iterable[Mapping[str, object]]) -> None:
    with replacing(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns.split(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
