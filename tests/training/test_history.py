"""The history as a tidy table."""

from __future__ import annotations

import pandas as pd
import torch

from raptor.training.history import COLUMNS, error_names, write_history


def test_one_number_a_row(tmp_path):
    errors = {"cls": torch.tensor([0.5, 0.25]), "patches": torch.tensor([1.0, 2.0])}
    rows = [{"step": 10, "loss": 0.3, "lambda": 0.5, "r2": 0.9, **error_names(errors)}]
    path = tmp_path / "seed0.history.csv"
    write_history(path, {"stage1": rows, "stage2": [{"step": 5, "loss": 0.125}]})
    table = pd.read_csv(path, dtype={"layer": "Int64"})
    assert list(table) == COLUMNS
    assert len(table) == 8
    errors = table[table["metric"] == "error"]
    found = {(row.tokens, row.layer): row.value for row in errors.itertuples()}
    assert found == {("cls", 1): 0.5, ("cls", 2): 0.25, ("patches", 1): 1.0, ("patches", 2): 2.0}
    whole = table[table["metric"] != "error"]
    assert whole["layer"].isna().all()
    assert whole["tokens"].isna().all()
    assert list(whole["stage"]) == ["stage1"] * 3 + ["stage2"]
    assert list(whole["value"]) == [0.3, 0.5, 0.9, 0.125]
    assert list(whole["step"]) == [10, 10, 10, 5]
