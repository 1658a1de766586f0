"""The benchmarks of training run, at toy size, and count what they say."""

from __future__ import annotations

import pandas as pd
import pytest

from benchmarks import phase_mean, training_step
from raptor.errors import RaptorError

COLUMNS = {"name", "ours", "reference", "ratio", "n", "spread"}


def history(path, r2, stages):
    """A history with a validation every 10 steps."""
    path.parent.mkdir(parents=True)
    steps = [(stage, 10 * (i + 1)) for stage, count in stages for i in range(count)]
    rows = [(*step, "r2", None, None, value) for step, value in zip(steps, r2, strict=True)]
    columns = ["stage", "step", "metric", "layer", "tokens", "value"]
    pd.DataFrame(rows, columns=columns).to_csv(path, index=False)


def test_steps_are_counted_over_both_stages(tmp_path):
    student = "maxcut-k3/seed0.history.csv"
    history(
        tmp_path / "raptor/vit/paper" / student, [0.1, 0.5, 0.6, 0.8],
        [("stage1", 2), ("stage2", 2)],
    )  # fmt: skip
    ours = tmp_path / "raptor/vit/phase_mean" / student
    with pytest.raises(RaptorError, match="both"):
        phase_mean.rows(tmp_path)
    history(ours, [0.85, 0.9], [("stage2", 2)])
    (row,) = phase_mean.rows(tmp_path)
    assert set(row) == COLUMNS
    assert (row["ours"], row["reference"], row["ratio"], row["n"]) == (10, 40, 0.25, 1)
    ours.unlink()
    ours.parent.rmdir()
    history(ours, [0.7, 0.79], [("stage2", 2)])
    assert phase_mean.rows(tmp_path)[0]["ratio"] == float("inf")


def test_training_step_compares_equal_numbers(monkeypatch):
    for name, value in {"BATCH": 4, "REPEATS": 3, "WIDTH": 8}.items():
        monkeypatch.setattr(training_step, name, value)
    rows = training_step.rows()
    assert len(rows) == len(training_step.PARTITIONS)
    for row in rows:
        assert set(row) == COLUMNS
        assert row["n"] == 2
        assert row["ratio"] > 0
