"""Dense probes: the rows of Table 2 that are about pixels, and the examples that are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from raptor.qualitative import Examples, agreement
from raptor.tables import published
from raptor.tables.files import read_tables, write_table
from raptor.tables.summary import summarise

MODEL = ["teacher", "model", "recipe", "partition", "k"]
RAPTOR = ["teacher", "recipe", "partition", "k", "seed"]  # names one in the examples
METRICS = {
    "segmentation": ("miou", "miou_authors", "pixel_accuracy"),
    "depth": ("rmse_m", "rmse_pooled_m", "abs_rel", "delta1"),
}
# metric -> k -> mean and sd of the paper's Raptors; its teacher; its smaller one. The metrics are
# those that the authors' code computes: theirs of the mIoU, and the RMSE over all pixels together.
PAPER = {
    "miou_authors": (published.MIOU, published.MIOU_TEACHER, published.MIOU_SMALLER_TEACHER),
    "rmse_pooled_m": (published.RMSE, published.RMSE_TEACHER, published.RMSE_SMALLER_TEACHER),
}


def table_dense(
    *,
    segmentation: Sequence[Path] = (),
    depth: Sequence[Path] = (),
    untrained: Mapping[str, str],
    reference: str | None,
    output: Path,
) -> None:
    """Long table: one row per task, metric, and teacher or group of Raptors that differ in seed.

    And, of the model `constant`, one for the same `answer` everywhere, a class or a depth.

    `value` is the mean over `n_seeds`, with `value_sd` (ddof = 1) and the 95 % t interval;
    `of_teacher` its ratio to the teacher's own, NaN where that is not above 0. `untrained`:
    whether the teacher is, and `like` the one whose architecture it then has. `paper`,
    `paper_sd`: what the paper gives for DINOv2 ViT-B and Max-Cut partitions of the same k, on
    ADE20K and NYU Depth v2; of `reference`, the smaller teacher, what it gives for ViT-S.
    """
    rows = []
    for task, paths in (("segmentation", segmentation), ("depth", depth)):
        if paths:
            found = read_tables(paths, " ".join(["model n_train n_test", *METRICS[task]]))
            found = found.reindex(columns=list(dict.fromkeys([*MODEL, "answer", *found])))
            rows += _rows(task, found, untrained, reference)
    write_table(pd.DataFrame(rows).convert_dtypes(), output)


def _rows(
    task: str, found: pd.DataFrame, untrained: Mapping[str, str], reference: str | None
) -> list[dict[str, object]]:
    own = found[found["model"] == "teacher"].set_index("teacher")
    rows = []
    for key, group in found.groupby(MODEL, sort=False, dropna=False):
        named = dict(zip(MODEL, key, strict=True))
        counts = {"n_train": group["n_train"].iloc[0], "n_test": group["n_test"].iloc[0]}
        for metric in METRICS[task]:
            summary = summarise(group[metric])
            teacher = own[metric].get(named["teacher"], np.nan)
            paper, paper_sd = _paper(metric, named, untrained, reference)
            rows.append(
                {
                    "task": task,
                    "metric": metric,
                    **named,
                    "untrained": named["teacher"] in untrained,
                    "like": untrained.get(named["teacher"]),
                    "answer": group["answer"].iloc[0],
                    "value": summary.mean,
                    "value_sd": summary.sd,
                    "value_low": summary.ci_low,
                    "value_high": summary.ci_high,
                    "of_teacher": summary.mean / teacher if teacher > 0 else np.nan,
                    "n_seeds": len(group),
                    **counts,
                    "paper": paper,
                    "paper_sd": paper_sd,
                }
            )
    return rows


def _paper(
    metric: str, named: dict[str, object], untrained: Mapping[str, str], reference: str | None
) -> tuple[float, float]:
    """Mean and sd; NaN where the paper has no such number."""
    if metric not in PAPER or named["model"] == "constant" or named["teacher"] in untrained:
        return np.nan, np.nan
    raptors, teacher, smaller = PAPER[metric]
    if named["model"] == "teacher":
        return (smaller if named["teacher"] == reference else teacher), np.nan
    known = named["partition"] == "maxcut" and named["teacher"] != reference
    return raptors.get(named["k"], (np.nan, np.nan)) if known else (np.nan, np.nan)


def segmentation_panels(*, examples: Path, output: Path) -> None:
    """One row per image shown and model: `right`, the share of its labelled pixels, in [0, 1].

    `classes` that there are, and `classes_shown`: those in some map, true or said.
    """
    _write_examples(examples, "right", output)


def depth_panels(*, examples: Path, output: Path) -> None:
    """One row per image shown and model: `rmse_m` over its measured pixels, wherever they are."""
    _write_examples(examples, "rmse_m", output)


def _write_examples(examples: Path, name: str, output: Path) -> None:
    shown = Examples.load(examples)
    facts = {
        "raptor": {name: shown.model.get(name) for name in RAPTOR},
        "teacher": {"teacher": shown.model.get("teacher")},
    }
    counts = {
        "classes": len(shown.class_names),
        "classes_shown": len(shown.classes_by_area) if shown.class_names else 0,
    }
    rows = [
        {"sample_id": sample_id, "model": model, **facts[model], name: agreement(example, model)}
        | {"pixels": example.known.sum(), **counts}
        for sample_id, example in zip(shown.sample_ids, shown.examples, strict=True)
        for model in ("teacher", "raptor")
    ]
    columns = ["sample_id", "teacher", "model", *RAPTOR[1:], name, "pixels", *counts]
    write_table(pd.DataFrame(rows, columns=columns).convert_dtypes(), output)
