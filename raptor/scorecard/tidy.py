"""Reading the tables of a run into the shapes that the claims are tested on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from raptor.tables.files import read_table, read_tables

# Table -> what it is called in a reason, and the columns it must have.
TABLES = {
    "similarity": ("similarity of layers", "teacher measure n"),
    "partitions": ("partitions", "teacher method k seed labels"),
    "fidelity": (
        "students",
        "teacher recipe partition k seed accuracy accuracy_head recovered accuracy_teacher n_test",
    ),
    "teachers": ("teachers", "teacher accuracy_head n_test"),
    "comparison": ("students by partition", "teacher recipe partition k seed recovered"),
    "swaps": ("layer swaps", "teacher size kind targets distance drop accuracy_teacher chance"),
    "ablations": ("ablations", "teacher recipe partition k added head"),
    "stochastic_depth": ("stochastic depth", "part teacher p trained value seed metric"),
    "overfitting": ("overfitting", "part teacher epoch value split seed metric"),
    "cost": ("costs", "model k depth parameters block_applications"),
    "images": (
        "dynamics by image",
        "teacher model image layer tokens direction norm speed coherence effective_rank",
    ),
    "perturbation": (
        "perturbations",
        "teacher model image source_layer layer relative_size tokens deviation",
    ),
    "dmd": ("dynamic modes", "teacher model tokens phase spectral_radius nearest_to_one"),
}
# What a step of the ablation adds -> its number; the fine-tuned probe is no other training.
STEPS = {
    name: number
    for number, name in enumerate(
        ("teacher_forcing", "autoregressive", "depth_scaling", "token_weights", "stage2")
    )
}


def read_tidy(paths: Mapping[str, Path | Sequence[Path]]) -> dict[str, pd.DataFrame]:
    """TABLES by name, each from a file or from several; RaptorError for one without its columns.

    Three are made tidy: `ablations` (one row per student), `stochastic_depth`, `overfitting`.
    """
    found = {
        name: read_table(Path(path), TABLES[name][1])
        if isinstance(path, str | Path)
        else read_tables([Path(one) for one in path], TABLES[name][1])
        for name, path in paths.items()
    }
    if "ablations" in found:
        students = found.get("fidelity")
        steps = found.pop("ablations")
        if students is not None:
            found["ablations"] = ablations(steps, students)
    if "stochastic_depth" in found:
        found["stochastic_depth"] = stochastic_depth(found["stochastic_depth"])
    if "overfitting" in found:
        found["overfitting"] = overfitting(found["overfitting"])
    return found


def ablations(steps: pd.DataFrame, students: pd.DataFrame) -> pd.DataFrame:
    """`teacher, step, seed, accuracy_head`: the students behind each row of `table_ablations`."""
    steps = steps[(steps["head"] == "own") & steps["added"].isin(STEPS)]
    keys = ["teacher", "recipe", "partition", "k"]
    steps = steps[keys].assign(step=steps["added"].map(STEPS))
    return steps.merge(students, on=keys)[["teacher", "step", "seed", "accuracy_head"]]


def stochastic_depth(table: pd.DataFrame) -> pd.DataFrame:
    """`teacher, p, seed, r2_mean, mean_similarity` of the trained teachers of the figure."""
    table = table[table["trained"] == 1]
    alike = _values(table, "similarity", "similarity")
    return _values(table, "student", "r2_mean").merge(
        alike[["teacher", "mean_similarity"]], on="teacher"
    )[["teacher", "p", "seed", "r2_mean", "mean_similarity"]]


def overfitting(table: pd.DataFrame) -> pd.DataFrame:
    """`teacher, epoch, train_loss, val_loss, seed, r2_mean` by checkpoint of the figure."""
    tidy = _values(table, "student", "r2_mean")
    for split in ("train", "val"):
        loss = _values(table[table["split"] == split], "teacher", "loss")
        loss = loss[["teacher", "loss"]].rename(columns={"loss": f"{split}_loss"})
        tidy = tidy.merge(loss, on="teacher", how="left")
    return tidy[["teacher", "epoch", "train_loss", "val_loss", "seed", "r2_mean"]]


def _values(table: pd.DataFrame, part: str, metric: str) -> pd.DataFrame:
    """The rows of one part and metric, `value` called as the metric is (or mean_similarity)."""
    name = "mean_similarity" if metric == "similarity" else metric
    rows = table[(table["part"] == part) & (table["metric"] == metric)]
    return rows.rename(columns={"value": name})
