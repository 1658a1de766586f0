"""How soon `phase_mean` is as good as the `paper` recipe in the end.

Trains both recipes of config/laptop.yaml on the finished laptop run's teacher, Max-Cut k = 3, and
reads their histories. The ratio is steps of ours over steps of the reference: below 1, ours is
sooner. The students go to results/benchmarks/, not among those of the run.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import torch

from raptor.config.load import load_yaml
from raptor.errors import RaptorError
from raptor.provenance import code_digest
from raptor.student import Student
from raptor.training.raptor import train_raptors

OURS, REFERENCE = "phase_mean", "paper"
TEACHER, METHOD, K, SEEDS = "vit", "maxcut", 3, 3


def rows(
    results: Path = Path("results/laptop"), output: Path = Path("results/benchmarks")
) -> list[dict[str, object]]:
    """One row `name, ours, reference, ratio, n, spread`.

    `reference`: steps of both stages of the `paper` recipe; `ours`: the step of `phase_mean`'s
    first validation with at least the R² that `paper` ends with, infinite where there is none.
    All three are medians over the `n` seeds; `spread` is the range of the ratio.
    """
    histories = {name: _train(name, results, output) for name in (OURS, REFERENCE)}
    pairs = zip(histories[OURS], histories[REFERENCE], strict=True)
    return [_row(f"{TEACHER} {METHOD}-k{K}", [steps_to_reach(*pair) for pair in pairs])]


def _train(recipe: str, results: Path, output: Path) -> list[pd.DataFrame]:
    """Histories of the students of one recipe, by seed; those that are there are kept."""
    config = load_yaml("config/laptop.yaml")
    manifest = results / f"activations/{TEACHER}.json"
    if not manifest.is_file():
        raise RaptorError(f"{manifest}: is not there; run make figures before this benchmark")
    students = [Student(recipe, METHOD, K, seed) for seed in range(SEEDS)]
    train_raptors(
        teacher=results / f"teachers/{TEACHER}.safetensors",
        activations=manifest,
        partitions=[results / f"partitions/{TEACHER}/{METHOD}-k{K}.csv"],
        recipes=config.recipes,
        students=students,
        output=output / f"{recipe}.json",
        state=output / "state",
        code=code_digest("workflow/scripts/raptor.py"),
        device=torch.device("cpu"),
        seed=config.seed,
    )
    return [pd.read_csv(output / f"{student.path}.history.csv") for student in students]


def steps_to_reach(ours: pd.DataFrame, reference: pd.DataFrame) -> tuple[float, float]:
    """Steps of ours until its R² is the final one of the reference, and the reference's steps."""
    sought = _r2(reference).iloc[-1]
    curve = _r2(ours)
    reached = curve[curve >= sought]
    return float(reached.index[0]) if len(reached) else float("inf"), float(
        _r2(reference).index[-1]
    )


def _r2(history: pd.DataFrame) -> pd.Series:
    """R² on the validation split by step, the steps of both stages counted on."""
    table = history[history["metric"] == "r2"].sort_values(["stage", "step"])
    first = table.groupby("stage")["step"].max().sort_index().cumsum().shift(fill_value=0)
    return pd.Series(table["value"].to_numpy(), table["step"] + table["stage"].map(first))


def _row(name: str, pairs: list[tuple[float, float]]) -> dict[str, object]:
    ours, reference = np.array(pairs).T
    ratio = ours / reference
    return {
        "name": f"steps of {OURS} to the final R² of {REFERENCE}, {name}",
        "ours": float(np.median(ours)),
        "reference": float(np.median(reference)),
        "ratio": float(np.median(ratio)),
        "n": len(pairs),
        "spread": float(np.ptp(ratio)) if np.isfinite(ratio).all() else float("inf"),
    }
