"""How soon `phase_mean` is as good as the `paper` recipe in the end, from their histories.

Both recipes must have been trained in the results folder on the same teacher, partition, k and
seed. The ratio is steps of ours over steps of the reference: below 1, ours is sooner.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from raptor.errors import RaptorError

OURS, REFERENCE = "phase_mean", "paper"


def rows(results: Path = Path("results/laptop")) -> list[dict[str, object]]:
    """One row per teacher, partition and k: `name, ours, reference, ratio, n, spread`.

    `reference`: steps of both stages of the `paper` recipe; `ours`: the step of `phase_mean`'s
    first validation with at least the R² that `paper` ends with, infinite where there is none.
    Both and `ratio` are medians over the `n` seeds; `spread` is the range of the ratio. RaptorError
    where no student was trained by both recipes.
    """
    groups: dict[str, list[tuple[float, float]]] = {}
    for reference in sorted(results.glob(f"raptor/*/{REFERENCE}/*/seed*.history.csv")):
        teacher, partition = reference.parents[2].name, reference.parent.name
        ours = results / "raptor" / teacher / OURS / partition / reference.name
        if ours.is_file():
            pair = steps_to_reach(pd.read_csv(ours), pd.read_csv(reference))
            groups.setdefault(f"{teacher} {partition}", []).append(pair)
    if not groups:
        raise RaptorError(
            f"{results}: has no student trained by both {OURS} and {REFERENCE}; "
            "give the results folder of a run whose students use both recipes"
        )
    return [_row(name, pairs) for name, pairs in groups.items()]


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
