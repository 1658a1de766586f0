"""The benchmark runs, and compares the same batches."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks import store


@pytest.fixture(autouse=True)
def small(monkeypatch):
    sizes = {"IMAGES": 256, "LARGE_IMAGES": 128, "EXTRACTED": 64}
    sizes |= {"EPOCHS": 1, "LARGE_EPOCHS": 1, "PUBLISHED_EPOCHS": 1}
    sizes |= {"REPEATS": 1, "EXTRACTIONS": 1}
    for name, value in sizes.items():
        monkeypatch.setattr(store, name, value)
    shallow = {"depth": 2, "width": 8, "heads": 2}
    monkeypatch.setattr(store, "TEACHER", store.TEACHER.model_copy(update=shallow))


def test_rows_of_time(tmp_path):
    rows = [
        store._extraction(tmp_path),
        *store._batches(tmp_path),
        *store._large_batches(tmp_path),
    ]
    assert len({row["name"] for row in rows}) == 6
    for row in rows:
        assert list(row) == ["name", "ours", "reference", "ratio", "n", "spread"]
        # One repetition: the median of the ratio is the ratio of the medians.
        assert row["ratio"] == pytest.approx(row["reference"] / row["ours"])


def test_references_hold_what_the_store_holds(tmp_path):
    output = tmp_path / "t.json"
    store._extract(store._source(256), output)
    states = store.Activations(output)
    expected = states.read(0, 256)
    np.testing.assert_array_equal(store._memmap(states, tmp_path), expected)
    np.testing.assert_array_equal(store._published(states, tmp_path)[:], expected)


@pytest.mark.parametrize("count", [0, 1, 8, 21])
def test_reading_ahead_keeps_the_order(count):
    with store.ThreadPoolExecutor(store.PUBLISHED_THREADS) as pool:
        read = store._ahead(pool, lambda start: torch.tensor(start), list(range(count)))
        assert [int(value) for value in read] == list(range(count))
