"""A small study, tabulated once for all tests of the figures."""

from __future__ import annotations

import pytest
from synthetic_study import Study, tabulate


@pytest.fixture(scope="session")
def study(tmp_path_factory) -> Study:
    """Every table in `figures/<target>.csv` below the root, from made-up results."""
    study = Study(
        tmp_path_factory.mktemp("study"),
        teachers=("vit", "untrained"),
        depth=6,
        k=(2, 3),
        measures=("cosine", "mean_squared_difference"),
    )
    study.similarity()
    study.partitions()
    study.probes()
    study.students()
    study.swaps()
    tabulate(study)
    return study
