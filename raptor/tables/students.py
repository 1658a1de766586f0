"""Raptors by k and partition: behind Figs 3 and 5, the training curves and Table 2."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from raptor.errors import RaptorError
from raptor.files import sha256
from raptor.student import read_index
from raptor.tables import published
from raptor.tables.files import read_table, read_tables, write_table
from raptor.tables.gather import STUDENT
from raptor.tables.summary import summarise

COMPARED = (
    "r2_mean accuracy accuracy_head accuracy_teacher accuracy_teacher_head "
    "recovered recovered_head n_test"
)
METRICS = ["recovered", "recovered_head", "r2_mean", "r2_cls", "r2_registers", "r2_patch"]
BASELINES = {"r2_identity": "identity", "r2_layer_mean": "layer_mean", "r2_linear": "linear"}
INDEX = ["teacher", "recipe", "method", "k", "seed"]  # what an index calls the STUDENT columns
HISTORY = "stage step metric layer tokens value"


Study = Sequence[Sequence[Any]]  # the STUDENT columns of each student that a figure is about


def students_of(study: Study, students: Sequence[Path], columns: str) -> pd.DataFrame:
    """The rows of `students` that are in `study`; RaptorError where one is missing."""
    table = read_tables(students, " ".join([*STUDENT, columns]))
    wanted = pd.DataFrame(study, columns=STUDENT)
    found = wanted.merge(table, on=STUDENT, how="left", indicator=True)
    if (found["_merge"] != "both").any():
        absent = found.loc[found["_merge"] != "both", STUDENT].iloc[0].to_dict()
        raise RaptorError(f"the student {absent} is in none of the tables read; probe it again")
    return found.drop(columns="_merge")


def partition_comparison(*, students: Sequence[Path], study: Study, output: Path) -> None:
    """One row per student of the study: its `segments` and what it keeps, by partition and k."""
    table = students_of(study, students, f"segments {COMPARED}")
    table = table[[*STUDENT, "segments", *COMPARED.split()]]
    write_table(table.sort_values(STUDENT, kind="stable"), output)


def fidelity_by_k(
    *,
    students: Sequence[Path],
    study: Study,
    probes: Sequence[Path],
    reference: Path | None,
    output: Path,
) -> None:
    """Long table `part, teacher, recipe, partition, k, seed, metric, value, n_test`.

    `part`: `student` (one row per student and metric), `baseline` (R² of a trivial prediction,
    named in `partition`; mean over layers) or `reference` (accuracy of a smaller teacher, named
    in `partition`, as a share of this teacher's). `probes` holds the probe of each teacher.
    """
    table = students_of(study, students, " ".join([*METRICS, "n_test"]))
    own = _probes_of(table, probes)
    _write_fidelity(table, METRICS, own, reference, output)


def saturation(
    *,
    students: Sequence[Path],
    study: Study,
    probes: Sequence[Path],
    reference: Path | None,
    output: Path,
) -> None:
    """The table of `fidelity_by_k` with one metric more for each student.

    `parameters`: those of its blocks, as a share of those of the teacher's blocks.
    """
    table = students_of(study, students, " ".join([*METRICS, "n_test", "parameters"]))
    own = _probes_of(table, probes, "blocks_parameters")
    whole = own.set_index("teacher")["blocks_parameters"]
    table["parameters"] = table["parameters"] / table["teacher"].map(whole)
    _write_fidelity(table, [*METRICS, "parameters"], own, reference, output)


def _probes_of(students: pd.DataFrame, probes: Sequence[Path], columns: str = "") -> pd.DataFrame:
    """The probes of the teachers of these students."""
    needed = ["teacher accuracy accuracy_head n_test", *BASELINES, columns]
    own = read_tables(probes, " ".join(needed))
    return own[own["teacher"].isin(students["teacher"])]


def _write_fidelity(
    table: pd.DataFrame,
    metrics: Sequence[str],
    own: pd.DataFrame,
    reference: Path | None,
    output: Path,
) -> None:
    long = table.melt([*STUDENT, "n_test"], metrics, "metric", "value").assign(part="student")
    trivial = own.rename(columns=BASELINES).melt(
        ["teacher", "n_test"], list(BASELINES.values()), "partition", "value"
    )
    parts = [long, trivial.assign(part="baseline", metric="r2_mean")]
    if reference is not None:
        parts.append(_reference_rows(read_table(reference).iloc[0], own))
    both = pd.concat(parts, ignore_index=True).convert_dtypes()
    columns = ["part", *STUDENT, "metric", "value", "n_test"]
    write_table(both[columns].sort_values(columns[:-2], kind="stable"), output)


def _reference_rows(smaller: pd.Series, teachers: pd.DataFrame) -> pd.DataFrame:
    """The smaller teacher's accuracy as a share of each teacher's."""
    metrics = {"recovered": "accuracy", "recovered_head": "accuracy_head"}
    return pd.concat(
        [
            pd.DataFrame(
                {
                    "part": "reference",
                    "teacher": teachers["teacher"],
                    "partition": smaller["teacher"],
                    "metric": metric,
                    "value": smaller[column] / teachers[column],
                    "n_test": teachers["n_test"],
                }
            )
            for metric, column in metrics.items()
        ]
    )


def training_curves(*, students: Sequence[Path], study: Study, output: Path) -> None:
    """Loss, R² (mean over layers, by token type) and λ by step, one line per student and stage.

    `students`: the indices written by the training jobs; each student's history lies beside its
    weights. Columns: STUDENT, then `stage, step, metric, tokens, value`.
    """
    wanted = set(map(tuple, study))
    tables = [
        _history(Path(index).parent / entry["file"], entry)
        for index in students
        for entry in read_index(index)
        if tuple(entry[key] for key in INDEX) in wanted
    ]
    if not tables:
        raise RaptorError(
            "no student to draw; check that figures.training_curves.studies names one"
        )
    write_table(pd.concat(tables, ignore_index=True), output)


def _history(student: Path, entry: dict[str, Any]) -> pd.DataFrame:
    path = student.with_suffix(".history.csv")
    if not path.is_file() or sha256(path) != entry["history_sha256"]:
        raise RaptorError(
            f"{path}: missing, damaged or edited, its checksum is not the one in the index of "
            "students; delete the index and run again"
        )
    history = read_table(path, HISTORY)
    history = history[history["metric"].isin(("loss", "r2", "lambda"))]
    # Loss and λ belong to no token type; `all` keeps them through the grouping.
    history = history.assign(tokens=history["tokens"].fillna("all"))
    keys = ["stage", "step", "metric", "tokens"]
    mean = history.groupby(keys, sort=True)["value"].mean().reset_index()
    names = {column: entry[key] for column, key in zip(STUDENT, INDEX, strict=True)}
    return mean.assign(**names)[[*STUDENT, *keys, "value"]]


def table_probes(
    *,
    students: Sequence[Path],
    study: Study,
    probes: Sequence[Path],
    reference: Path | None,
    output: Path,
) -> None:
    """One row per teacher and group of students that differ in nothing but the seed (Table 2).

    `model` is `raptor`, `teacher` or `smaller teacher`. For each measure the mean, `_sd`
    (ddof = 1) and 95 % t interval over `n_seeds`. `paper_*`: what the paper gives for DINOv2
    ViT-B on ImageNet-1k with Max-Cut partitions of the same k.
    """
    table = students_of(study, students, COMPARED)
    own = read_tables(probes, "teacher accuracy accuracy_head n_test")
    rows = [
        _raptor_row(key, group)
        for key, group in table.groupby(["teacher", "recipe", "partition", "k"], sort=True)
    ]
    teachers = own[own["teacher"].isin(table["teacher"])]
    rows += [_teacher_row(one, "teacher", published.TOP1_TEACHER) for _, one in teachers.iterrows()]
    if reference is not None:
        smaller = read_table(reference, "teacher accuracy accuracy_head n_test").iloc[0]
        rows.append(_teacher_row(smaller, "smaller teacher", published.TOP1_SMALLER_TEACHER))
    write_table(pd.DataFrame(rows).convert_dtypes(), output)


def _raptor_row(key: tuple, group: pd.DataFrame) -> dict[str, object]:
    teacher, recipe, partition, k = key
    row = {"model": "raptor", "teacher": teacher, "recipe": recipe, "partition": partition, "k": k}
    row |= {"n_seeds": len(group), "n_test": group["n_test"].iloc[0]}
    for name in ("accuracy", "accuracy_head", "recovered", "recovered_head", "r2_mean"):
        found = summarise(group[name])
        row |= {name: found.mean, f"{name}_sd": found.sd}
        row |= {f"{name}_low": found.ci_low, f"{name}_high": found.ci_high}
    is_published = partition == "maxcut" and k in published.TOP1
    top1, sd = published.TOP1[k] if is_published else (np.nan, np.nan)
    kept = published.recovered(k) if is_published else np.nan
    return row | {"paper_top1": top1, "paper_top1_sd": sd, "paper_recovered": kept}


def _teacher_row(probe: pd.Series, model: str, top1: float) -> dict[str, object]:
    row = {"model": model, "n_seeds": 1}
    row |= {key: probe[key] for key in ("teacher", "n_test", "accuracy", "accuracy_head")}
    return row | {"paper_top1": top1, "paper_recovered": top1 / published.TOP1_TEACHER}
