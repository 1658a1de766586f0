"""The gap between swaps across phases and inside, against an ordinary regression."""

import numpy as np
import pandas as pd
import pytest

from raptor.tables.swap_gap import cross_products, gap


def swaps(rng: np.random.Generator) -> pd.DataFrame:
    table = pd.DataFrame(
        [(1, str([target]), source) for target in range(1, 9) for source in range(1, 9)],
        columns=["size", "targets", "source"],
    )
    table["distance"] = (table["source"] - table["targets"].str[1:-1].astype(int)).abs()
    table["kind"] = np.where(rng.random(len(table)) < 0.5, "inter", "intra")
    return table.assign(drop=rng.random(len(table)))


def found(table: pd.DataFrame) -> float:
    return float(gap(*(part.sum(axis=0) for part in cross_products(table))))


def test_it_is_the_coefficient_of_a_regression_with_a_constant_for_each_set():
    table = swaps(np.random.default_rng(0))
    sets = pd.get_dummies(table["targets"]).to_numpy(dtype=float)
    across = (table["kind"] == "inter").to_numpy(dtype=float)
    columns = np.column_stack([across, table["distance"], sets])
    coefficient = np.linalg.lstsq(columns, table["drop"].to_numpy(), rcond=None)[0][0]
    assert found(table) == pytest.approx(coefficient, abs=1e-12)


def test_layers_that_none_can_replace_and_distance_make_no_gap():
    table = swaps(np.random.default_rng(1))
    fatal = table["targets"] == "[1]"
    assert found(table.assign(drop=0.5 * fatal + 0.1 * table["distance"])) == pytest.approx(0)
    true = 0.3 * (table["kind"] == "inter") + 0.5 * fatal + 0.1 * table["distance"]
    assert found(table.assign(drop=true)) == pytest.approx(0.3)


def test_without_both_kinds_for_any_set_there_is_no_gap():
    table = swaps(np.random.default_rng(2))
    assert np.isnan(found(table.assign(kind=np.where(table["targets"] < "[4]", "inter", "intra"))))
