"""How states move over depth: the tables behind Figs 6 to 9 and the response to noise.

In all of them `part` says what a row is, `teacher`, `trained` (0 or 1) and `model` (`teacher`, or
`raptor` for that teacher's) whose. `profile`: mean over the `n` images of a `metric`, by `tokens`
and `layer`, with `sd` and the 95 % t interval `ci_low, ci_high` (see `Summary`). `segment`: a phase
`first..last` of the teacher by `method` and `k`; none for a teacher that is a single phase.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from raptor.dynamics.contraction import contraction_rate
from raptor.seeds import derive_seed
from raptor.tables.files import read_table, read_tables, write_table
from raptor.tables.phases import PARTITION, PERCENTILES, segment_rows
from raptor.tables.summary import Summary, summarise_by

MODEL = ["teacher", "model"]
RANKS = ["stable_rank", "effective_rank", "participation_ratio"]
ANGLES = ["within_angle", "between_angle", "nearest_centroid_accuracy"]
IMAGES = "teacher model image layer tokens"
RESAMPLES = 2000


def directional_convergence(
    *,
    images: Sequence[Path],
    basins: Sequence[Path],
    trajectories: Sequence[Path],
    partitions: Sequence[Path],
    untrained: Sequence[str],
    output: Path,
) -> None:
    """Directions, norms and class basins over depth (paper Fig. 6).

    Parts: `profile` (`direction`: γ_l = ⟨x̂_l, x̂_L⟩; `norm`), `basin` (`layer, metric, value`:
    angles in rad and an accuracy; `n` images), `trajectory` (`label, layer, x, y`: mean of the `n`
    images of a class, in the plane of the teacher's last layer), `segment`.
    """
    states = read_tables(images, f"{IMAGES} direction norm")
    angles = read_tables(basins, " ".join([*MODEL, "layer", *ANGLES, "n_test"]))
    angles = angles.rename(columns={"n_test": "n"}).melt([*MODEL, "layer", "n"], ANGLES, "metric")
    means = read_tables(trajectories, "teacher model label layer x y n")
    parts = {
        "profile": profiles(states, ["direction", "norm"]),
        "basin": angles,
        "trajectory": means,
        "segment": _segments(partitions),
    }
    _write(parts, untrained, output)


def angular_speed(
    *, images: Sequence[Path], partitions: Sequence[Path], untrained: Sequence[str], output: Path
) -> None:
    """Angle (rad) between the states before and after each layer 1..L (paper Fig. 7).

    Parts: `profile` (`speed`), `segment`.
    """
    states = read_tables(images, f"{IMAGES} speed")
    parts = {"profile": profiles(states, ["speed"]), "segment": _segments(partitions)}
    _write(parts, untrained, output)


def low_rank_updates(
    *,
    images: Sequence[Path],
    pooled: Sequence[Path],
    partitions: Sequence[Path],
    untrained: Sequence[str],
    output: Path,
) -> None:
    """Ranks and coherence of what each layer 1..L adds (paper Fig. 8).

    Parts: `profile` (the ranks of the update of one image, tokens as rows, and `coherence`, the
    cosine of a token's update and the mean update), `pooled` (`value`: the ranks of the updates of
    all `n` images together), `segment`. A type of one token has no rank in one image.
    """
    states = read_tables(images, " ".join([IMAGES, "coherence", *RANKS]))
    together = read_tables(pooled, " ".join([*MODEL, "layer", "tokens", *RANKS, "n"]))
    parts = {
        "profile": profiles(states, ["coherence", *RANKS]),
        "pooled": together.melt([*MODEL, "layer", "tokens", "n"], RANKS, "metric"),
        "segment": _segments(partitions),
    }
    _write(parts, untrained, output)


def dmd_spectrum(*, dmd: Sequence[Path], untrained: Sequence[str], output: Path) -> None:
    """Linear maps of the states of each phase, one layer on (paper Fig. 9).

    Parts: `mode` (an eigenvalue `real, imag, modulus` with its `half_life` in layers, by `tokens`
    and phase `first..last`), `fit` (`spectral_radius`, `nearest_to_one`, the `residual` on
    test and the same over that of persistence, `residual_persistence`, `rank`; fitted on `n_train`
    images, `n` of test).
    """
    phase = [*MODEL, "tokens", "phase", "first", "last"]
    mode = ["mode", "real", "imag", "modulus", "half_life"]
    fit = [
        "spectral_radius",
        "nearest_to_one",
        "residual",
        "residual_persistence",
        "rank",
        "n_train",
        "n_test",
    ]
    table = read_tables(dmd, " ".join([*phase, *mode, *fit]))
    fits = table[[*phase, *fit]].drop_duplicates(phase).rename(columns={"n_test": "n"})
    _write({"mode": table[[*phase, *mode]], "fit": fits}, untrained, output)


def perturbation(
    *,
    perturbation: Sequence[Path],
    partitions: Sequence[Path],
    untrained: Sequence[str],
    output: Path,
) -> None:
    """What becomes of noise on the state of a layer (paper §5).

    Parts: `profile` (`deviation` in rad at `layer` after noise at `source_layer`, by
    `relative_size`), `rate` (`mean, ci_low, ci_high` of the contraction rate by `relative_size`
    and `tokens`, negative where noise shrinks: of each image the mean over source layers of
    `contraction_rate` from there to the last layer; 95 % percentile interval over resampled
    images), `segment`.
    """
    keys = ["source_layer", "relative_size"]
    found = read_tables(perturbation, " ".join([IMAGES, *keys, "deviation"]))
    parts = {
        "profile": profiles(found, ["deviation"], keys),
        "rate": contraction_rates(found),
        "segment": _segments(partitions),
    }
    _write(parts, untrained, output)


def profiles(
    states: pd.DataFrame, metrics: Sequence[str], keys: Sequence[str] = ()
) -> pd.DataFrame:
    """Mean over images of each metric; where none is defined (a rank of one token) no row."""
    by = [*MODEL, "tokens", *keys, "layer"]
    tables = [
        summarise_by(states, by, metric).assign(metric=metric)[[*by, "metric", *Summary._fields]]
        for metric in metrics
    ]
    table = pd.concat(tables, ignore_index=True)
    return table[table["n"] > 0]


def contraction_rates(found: pd.DataFrame) -> pd.DataFrame:
    """Rate per layer by model, token type and size: mean over images and its interval."""
    by = [*MODEL, "tokens", "relative_size"]
    rates = (
        found.sort_values("layer", kind="stable")
        .groupby([*by, "source_layer", "image"], sort=False)["deviation"]
        .agg(lambda deviations: float(contraction_rate(deviations.to_numpy())))
    )
    rows = []
    for key, group in rates.groupby(by, sort=False):
        values_N = group.groupby("image").mean().dropna().to_numpy()
        if len(values_N):
            rows.append([*key, len(values_N), values_N.mean(), *_bootstrap(values_N, *key)])
    return pd.DataFrame(rows, columns=[*by, "n", "mean", "ci_low", "ci_high"])


def _bootstrap(values_N: np.ndarray, *names: object) -> tuple[float, float]:
    """95 % percentile interval of the mean over resampled images; NaN for a single one."""
    n = len(values_N)
    if n < 2:
        return np.nan, np.nan
    rng = np.random.default_rng(derive_seed(0, "contraction", *names))
    counts_RN = rng.multinomial(n, np.full(n, 1 / n), size=RESAMPLES)
    low, high = np.percentile(counts_RN @ values_N / n, PERCENTILES)
    return low, high


def _segments(partitions: Sequence[Path]) -> pd.DataFrame:
    """The phases that the dynamics are measured with: the first seed of each partition."""
    cuts = [read_table(path, PARTITION).sort_values("seed").iloc[[0]] for path in partitions]
    columns = ["teacher", "method", "k", "first", "last"]
    return segment_rows(pd.concat(cuts))[columns] if cuts else pd.DataFrame(columns=columns)


def _write(parts: dict[str, pd.DataFrame], untrained: Sequence[str], output: Path) -> None:
    """The parts one below the other, whole numbers whole."""
    # An empty part has no types, and would turn the numbers of the others into objects.
    table = pd.concat([part.assign(part=name) for name, part in parts.items() if len(part)])
    columns = dict.fromkeys(name for part in parts.values() for name in part)
    table = table.reindex(columns=["part", *columns])
    table["trained"] = (~table["teacher"].isin(untrained)).astype(int)
    first = ["part", "teacher", "trained", "model"]
    rest = [name for name in table if name not in first]
    write_table(table[[*first, *rest]].convert_dtypes(), output)
