"""The history of a training as a tidy table: one number a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from raptor.files import replacing

COLUMNS = ["stage", "step", "metric", "layer", "tokens", "value"]
_SEPARATOR = "/"


def error_names(errors: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Token type -> errors (L,), flattened to `error/<tokens>/<layer>` -> error."""
    return {
        _SEPARATOR.join(["error", tokens, str(layer)]): value
        for tokens, errors_L in errors.items()
        for layer, value in enumerate(errors_L.tolist(), 1)
    }


def write_history(path: Path, stages: Mapping[str, Iterable[Mapping[str, float]]]) -> None:
    """Write the rows of `raptor.training.loop.fit`, by stage, as `COLUMNS`.

    `metric` is `loss`, `lambda` and `gradient_norm` (before clipping, the largest of the blocks in
    stage 1), means since the row before, `r2` (validation, closed loop,
    mean over layers), `r2_open` (stage 1: closed loop within each segment only) or `error`
    (validation mean squared error in closed loop, one row for each layer and token type);
    `layer` and `tokens` are empty where a number is over all of them.
    """
    table = pd.DataFrame(
        [
            (stage, int(row["step"]), *_split(name), value)
            for stage, rows in stages.items()
            for row in rows
            for name, value in row.items()
            if name != "step"
        ],
        columns=COLUMNS,
    )
    with replacing(path) as temporary:
        table.astype({"layer": "Int64"}).to_csv(temporary, index=False)


def _split(name: str) -> tuple[str, int | None, str | None]:
    """`error/<tokens>/<layer>` -> metric, layer, tokens."""
    metric, *rest = name.split(_SEPARATOR)
    return (metric, int(rest[1]), rest[0]) if rest else (metric, None, None)
