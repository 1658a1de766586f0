"""Students of one teacher that differ in their training: behind Table 1 and Fig. 10."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from raptor.tables import published
from raptor.tables.files import read_table, write_table
from raptor.tables.gather import STUDENT
from raptor.tables.students import COMPARED, Study, students_of
from raptor.tables.summary import Summary, summarise


def table_ablations(
    *,
    students: Sequence[Path],
    study: Study,
    ingredients: Mapping[str, Sequence[str]],
    starts: Sequence[str],
    output: Path,
) -> None:
    """One row per recipe, in the order of `ingredients`, each with one more than the one before.

    `ingredients`: recipe -> what it has beside teacher forcing; those of `starts` begin from the
    mean of each phase, and stand behind the others. `added`: what the row before lacks.
    `accuracy` (in [0, 1], with sd (ddof = 1) and 95 % t interval over `n_seeds`) is that of the
    teacher's own head; of the last recipe, and of each start, there is a second row with the
    probe fine-tuned on the student (`added`: `probe`). `change`: to the row before it; its
    `change_sd` is the sd of a difference of two students. `paper_top1`, `paper_change`: what the
    paper gives for DINOv2 ViT-B on ImageNet-1k.
    """
    table = students_of(study, students, f"{COMPARED} steps")
    ladder = [recipe for recipe in ingredients if recipe not in starts]
    rows: list[dict[str, object]] = []
    for number, recipe in enumerate(ladder):
        some = table[table["recipe"] == recipe]
        new = [name for name in ingredients[recipe] if name not in ingredients[ladder[number - 1]]]
        rows.append(_row(some, new[0] if number else "teacher_forcing", rows[-1:]))
    rows.append(_probe_row(table[table["recipe"] == ladder[-1]], rows[-1]))
    for recipe in starts:
        some = table[table["recipe"] == recipe]
        rows.append(_row(some, "phase_mean", []))
        rows.append(_probe_row(some, rows[-1]))
    write_table(pd.DataFrame(rows).convert_dtypes(), output)


def _row(some: pd.DataFrame, added: str, before: Sequence[dict[str, object]]) -> dict[str, object]:
    """Students of one recipe, read with the teacher's own head."""
    found = summarise(some["accuracy_head"])
    own = {"added": added, "head": "own", "accuracy_teacher": some["accuracy_teacher_head"].iloc[0]}
    row = _described(some, found) | own | _paper(added)
    if before:
        row["change"] = found.mean - before[0]["accuracy"]
        row["change_sd"] = float(np.hypot(found.sd, before[0]["accuracy_sd"]))
        row |= _paper_change(added, before[0]["added"])
    return row


def _probe_row(some: pd.DataFrame, before: dict[str, object]) -> dict[str, object]:
    """The same students, read with the probe that was fine-tuned on each of them."""
    change = summarise(some["accuracy"] - some["accuracy_head"])  # student by student
    own = {"added": "probe", "head": "probe", "accuracy_teacher": some["accuracy_teacher"].iloc[0]}
    row = _described(some, summarise(some["accuracy"])) | own
    # The paper has this row for its whole recipe, not for another start.
    row |= _paper("probe" if before["added"] != "phase_mean" else "phase_mean")
    row |= _paper_change("probe", before["added"])
    return row | {"change": change.mean, "change_sd": change.sd}


def _described(some: pd.DataFrame, accuracy: Summary) -> dict[str, object]:
    first = some.iloc[0]
    row = {name: first[name] for name in ("teacher", "recipe", "partition", "k", "steps", "n_test")}
    row |= {"n_seeds": len(some), "accuracy": accuracy.mean, "accuracy_sd": accuracy.sd}
    row |= {"accuracy_low": accuracy.ci_low, "accuracy_high": accuracy.ci_high}
    r2 = summarise(some["r2_mean"])
    return row | {"r2_mean": r2.mean, "r2_mean_sd": r2.sd}


def _paper(added: str) -> dict[str, float]:
    return {"paper_top1": published.ABLATIONS.get(added, np.nan)}


def _paper_change(added: str, before: str) -> dict[str, float]:
    """From the row before it in the paper; NaN where that is not the row before it here."""
    names = list(published.ABLATIONS)
    if before not in names or names.index(added) != names.index(before) + 1:
        return {"paper_change": np.nan}
    return {"paper_change": published.ABLATIONS[added] - published.ABLATIONS[before]}


def training_paradigms(
    *,
    students: Sequence[Path],
    layers: Sequence[Path],
    baselines: Path,
    study: Study,
    paradigms: Mapping[str, str],
    output: Path,
) -> None:
    """Errors along depth by what students learn from (paper Fig. 10).

    `part`: `layer` (one row per student, `layer` and `metric`: `r2`, over all tokens, or
    `relative`: ε_l over the mean norm of a_l), `student` (accuracies and mean R²) or `baseline` (R²
    by `layer` of the trivial prediction `metric`). `paradigm`: that of the recipe in `paradigms`;
    `segments`: the layers of each block; `steps` of all its training.
    """
    table = students_of(study, students, f"{COMPARED} segments steps")
    whole = students_of(study, layers, "layer tokens r2 epsilon norm")
    whole = whole[whole["tokens"] == "all"].assign(relative=lambda one: one.epsilon / one.norm)
    about = table[[*STUDENT, "segments", "steps", "n_test"]]
    trivial = read_table(baselines, "teacher baseline layer tokens r2").query("tokens == 'all'")
    trivial = trivial.rename(columns={"baseline": "metric", "r2": "value"})
    metrics = ["r2_mean", "accuracy", "accuracy_head", "recovered", "recovered_head"]
    parts = {
        "layer": whole.melt([*STUDENT, "layer"], ["r2", "relative"], "metric").merge(about),
        "student": table.melt(list(about), metrics, "metric"),
        "baseline": trivial[["teacher", "layer", "metric", "value"]],
    }
    both = pd.concat([part.assign(part=name) for name, part in parts.items()])
    both["paradigm"] = both["recipe"].map(paradigms)
    columns = ["part", "paradigm", *about, "layer", "metric", "value"]
    write_table(both[columns].convert_dtypes(), output)
