"""The benchmarks of training run, at toy size, and count what they say."""

from __future__ import annotations

import pandas as pd
import pytest

from benchmarks import phase_mean, training_step
from raptor.errors import RaptorError

COLUMNS = {"name", "ours", "reference", "ratio", "n", "spread"}


def history(r2, stages):
    """A history with a validation every 10 steps."""
    steps = [(stage, 10 * (i + 1)) for stage, count in stages for i in range(count)]
    rows = [(*step, "r2", None, None, value) for step, value in zip(steps, r2, strict=True)]
    return pd.DataFrame(rows, columns=["stage", "step", "metric", "layer", "tokens", "value"])


def test_steps_are_counted_over_both_stages():
    paper = history([0.1, 0.5, 0.6, 0.8], [("stage1", 2), ("stage2", 2)])
    better = history([0.85, 0.9], [("stage2", 2)])
    worse = history([0.7, 0.79], [("stage2", 2)])
    assert phase_mean.steps_to_reach(better, paper) == (10, 40)
    assert phase_mean.steps_to_reach(worse, paper) == (float("inf"), 40)
    row = phase_mean._row("vit", [(10, 40), (20, 40), (10, 40)])
    assert set(row) == COLUMNS
    assert (row["ratio"], row["n"], row["spread"]) == (0.25, 3, 0.25)


def test_without_a_run_the_benchmark_says_what_to_do(tmp_path):
    with pytest.raises(RaptorError, match="run make figures"):
        phase_mean.rows(tmp_path, tmp_path)


def test_training_step_compares_equal_numbers(monkeypatch):
    for name, value in {"BATCH": 4, "REPEATS": 3, "WIDTH": 8}.items():
        monkeypatch.setattr(training_step, name, value)
    rows = training_step.rows()
    assert len(rows) == len(training_step.PARTITIONS)
    for row in rows:
        assert set(row) == COLUMNS
        assert row["n"] == 2
        assert row["ratio"] > 0
