"""The same kind of student of several teachers: the tables behind Figs 4 and 13."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from raptor.errors import RaptorError
from raptor.tables.files import read_table, read_tables, write_table
from raptor.tables.gather import STUDENT
from raptor.tables.phases import PARTITION, PERCENTILES, SIMILARITY, contrast, segment_rows
from raptor.tables.students import BASELINES, METRICS, Study, students_of

MEASURE = "cosine"  # the published one
ACCURACIES = ["accuracy", "accuracy_head"]
HISTORY = "step epoch loss val_loss val_accuracy"


def stochastic_depth(
    *,
    similarity: Sequence[Path],
    matrices: Sequence[Path],
    partitions: Sequence[Path],
    probes: Sequence[Path],
    students: Sequence[Path],
    layers: Sequence[Path],
    study: Study,
    p: Mapping[str, float],
    untrained: Sequence[str],
    output: Path,
) -> None:
    """Teachers that differ in `p`, the probability to drop a layer (paper Fig. 4), in one table.

    `part` says what a row is, `teacher`, `p` and `trained` (0 or 1) whose: `matrix` (`layer,
    layer_b, value`: cosine similarity), `segment` (`first, last`), `layer` (`seed, layer, tokens,
    value`: R² of a student), and the parts of `measured`.
    """
    entries = read_tables(similarity, SIMILARITY)
    entries = entries[entries["measure"] == MEASURE].rename(columns={"layer_a": "layer"})
    cuts = pd.concat([read_table(path, PARTITION).iloc[[0]] for path in partitions])
    rows = students_of(study, layers, "layer tokens r2").rename(columns={"r2": "value"})
    parts = [
        entries[["teacher", "layer", "layer_b", "value", "n"]].assign(part="matrix"),
        segment_rows(cuts)[["teacher", "k", "first", "last"]].assign(part="segment"),
        rows[[*STUDENT, "layer", "tokens", "value"]].assign(part="layer"),
        measured(similarity, matrices, partitions, probes, students, study),
    ]
    table = pd.concat(parts, ignore_index=True)
    table["p"] = table["teacher"].map(p)
    table["trained"] = (~table["teacher"].isin(untrained)).astype(int)
    first = ["part", "teacher", "p", "trained"]
    _write(table, first, output)


def overfitting(
    *,
    facts: Sequence[Path],
    history: Path,
    similarity: Sequence[Path],
    matrices: Sequence[Path],
    partitions: Sequence[Path],
    probes: Sequence[Path],
    students: Sequence[Path],
    study: Study,
    output: Path,
) -> None:
    """One teacher along its training (paper Fig. 13), in one table.

    `part` says what a row is: `curve` (`step, epoch, metric, value` of `history`), `teacher`
    (`metric`: `loss` or `accuracy` of a `split`, from the JSON of each teacher in `facts`) and the
    parts of `measured`. `epoch`: what the teacher of a row had been trained for.
    """
    own = [_facts(path) for path in facts]
    epochs = {one["teacher"]: one["epoch"] for one in own}
    wide = pd.DataFrame(
        [
            {"teacher": one["teacher"], "metric": metric, "split": split}
            | {"value": value, "n": one["images"][split]}
            for one in own
            for metric in ("loss", "accuracy")
            for split, value in one[metric].items()
        ]
    )
    curve = read_table(history, HISTORY).melt(["step", "epoch"], HISTORY.split()[2:], "metric")
    parts = [
        curve.assign(part="curve", teacher=Path(history).name.removesuffix(".history.csv")),
        wide.assign(part="teacher"),
        measured(similarity, matrices, partitions, probes, students, study),
    ]
    table = pd.concat(parts, ignore_index=True)
    table["epoch"] = table["epoch"].fillna(table["teacher"].map(epochs))
    _write(table, ["part", "teacher", "epoch"], output)


def measured(
    similarity: Sequence[Path],
    matrices: Sequence[Path],
    partitions: Sequence[Path],
    probes: Sequence[Path],
    students: Sequence[Path],
    study: Study,
) -> pd.DataFrame:
    """What the figures have in common, by `part`.

    - `similarity`: `metric` `similarity` (mean cosine of two different layers) or `contrast` (of
      phases, those of the first row of each of `partitions`); `low, high`: 95 % percentile
      interval over resampled images with the phases held fixed, `n` images;
    - `probe`: accuracies of the teacher, `n` test images;
    - `student`: accuracies and mean R² of each student, `n` test images;
    - `baseline`: mean R² of the trivial prediction `metric`.
    """
    table = students_of(study, students, " ".join([*ACCURACIES, *METRICS, "n_test"]))
    own = read_tables(probes, " ".join(["teacher", *ACCURACIES, *BASELINES, "n_test"]))
    own = own.rename(columns={"n_test": "n"} | BASELINES)
    parts = [
        _similarities(similarity, matrices, partitions),
        own.melt(["teacher", "n"], ACCURACIES, "metric").assign(part="probe"),
        own.melt(["teacher", "n"], list(BASELINES.values()), "metric").assign(part="baseline"),
        table.rename(columns={"n_test": "n"})
        .melt([*STUDENT, "n"], [*ACCURACIES, *METRICS], "metric")
        .assign(part="student"),
    ]
    return pd.concat(parts, ignore_index=True)


def _similarities(
    similarity: Sequence[Path], matrices: Sequence[Path], partitions: Sequence[Path]
) -> pd.DataFrame:
    """Mean similarity and block contrast of each teacher, with their intervals."""
    entries = read_tables(similarity, SIMILARITY)
    entries = entries[entries["measure"] == MEASURE]
    cuts = {
        cut["teacher"]: cut for cut in (read_table(path, PARTITION).iloc[0] for path in partitions)
    }
    bootstraps = {Path(path).stem: path for path in matrices}
    rows = []
    for teacher, some in entries.groupby("teacher", sort=False):
        blocks = contrast(some, MEASURE, cuts.get(teacher), bootstraps.get(teacher))
        found = {
            "similarity": mean_similarity(some, bootstraps[teacher]),
            "contrast": tuple(blocks[f"contrast{end}"] for end in ("", "_low", "_high")),
        }
        for metric, (value, low, high) in found.items():
            row = {"part": "similarity", "teacher": teacher, "metric": metric, "value": value}
            rows.append(row | {"low": low, "high": high, "n": some["n"].iloc[0]})
    return pd.DataFrame(rows)


def mean_similarity(entries: pd.DataFrame, bootstrap: Path) -> tuple[float, float, float]:
    """Mean over the pairs of different layers, and its 95 % interval over resampled images."""
    pairs = entries[entries["layer_a"] < entries["layer_b"]]
    if entries["ci_low"].isna().all():  # fewer than two images to resample
        return pairs["value"].mean(), np.nan, np.nan
    with np.load(bootstrap, allow_pickle=False) as arrays:
        resamples_RLL = arrays[f"{MEASURE}_bootstrap"]
    above = np.triu_indices(resamples_RLL.shape[1], 1)
    low, high = np.percentile(resamples_RLL[:, *above].mean(axis=1), PERCENTILES)
    return pairs["value"].mean(), low, high


def _facts(path: Path) -> dict:
    """`epoch`, and by split `loss`, `accuracy` and `images`, of the teacher in `path`."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        keys = ("epoch", "loss", "accuracy", "images")
        return {"teacher": Path(path).stem} | {key: found[key] for key in keys}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RaptorError(f"{path}: not the facts of a teacher ({error}); make it again") from None


def _write(table: pd.DataFrame, first: list[str], output: Path) -> None:
    rest = [name for name in table if name not in first]
    write_table(table[[*first, *rest]].convert_dtypes(), output)
