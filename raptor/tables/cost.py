"""Cost of a teacher and its Raptors, side by side."""

from __future__ import annotations

from pathlib import Path

from raptor.tables.files import read_table, write_table

NAMES = ["model", "teacher", "recipe", "partition", "k"]
# What a clock or an allocator says: two clean runs differ in these columns and in no other.
MEASURED = [
    *["latency_ms", "latency_sd", "peak_memory_mb", "activation_memory_mb"],
    *["training_seconds", "training_seconds_sd"],
]
COLUMNS = [
    *NAMES,
    *["depth", "parameters", "parameters_share", "block_applications", "flops"],
    *["latency_ms", "latency_sd", "peak_memory_mb", "activation_memory_mb"],
    *["description_bits", "levin_bits"],
    *["training_steps", "training_seconds", "training_seconds_sd", "n_trained"],
    *["n", "images", "device", "threads"],
]


def table_cost(*, cost: Path, timing: Path, output: Path) -> None:
    """One row for the teacher and one per k: COLUMNS, of which only MEASURED are measured.

    FLOPs per image, latency in ms per batch of `images`, median and sd of `n` passes; memory in
    MiB; bits of the blocks as stored, and Kt (`raptor.cost`); seconds of training, mean and sd
    over `n_trained` seeds.
    """
    fixed, timed = (read_table(path, " ".join(NAMES)) for path in (cost, timing))
    table = fixed.merge(timed, on=NAMES, how="left", validate="one_to_one")
    write_table(table[COLUMNS].convert_dtypes(), output)
