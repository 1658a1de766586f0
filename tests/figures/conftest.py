"""A small study, tabulated once for all tests of the figures."""

from __future__ import annotations

import pytest
from synthetic_study import METHODS, Study

from raptor import tables


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


def tabulate(study: Study) -> None:
    """Every table of `study`, as the rules make them."""
    other = Study(study.root / "partitions_study", k=study.k, depth=study.depth)
    other.students(METHODS, seeds=4 if study.seeds > 1 else 1)
    phases = {
        "partitions": study.paths("partitions/{teacher}/*-k*.csv"),
        "stability": study.paths("partitions/{teacher}/stability.csv"),
        "epsilon": study.paths("partitions/{teacher}/epsilon.csv"),
    }
    fidelity = {
        "students": students_of(study),
        "probes": [study.path("probes/vit.csv")],
        "reference": study.path("probes/shallow.csv"),
    }
    similarity = study.paths("similarity/{teacher}.csv")
    cuts = study.paths(f"partitions/{{teacher}}/maxcut-k{study.k[-1]}.csv")
    matrices = study.paths("similarity/{teacher}.npz")
    inputs = {
        "similarity_matrices": {"similarity": similarity, "matrices": matrices}
        | {"partitions": cuts, "untrained": ["untrained"]},
        "maxcut_partitions": {"similarity": similarity, "measure": "cosine", **phases},
        "partition_comparison": {"students": students_of(other)},
        "fidelity_by_k": fidelity,
        "layer_swaps": {"swaps": study.paths("interventions/{teacher}.swaps.csv")}
        | {"samples": study.path("data/samples.csv"), "split": "test"},
        "training_curves": {"students": study.paths("raptor/{teacher}/*/*/seeds*.json")},
        "table_partitions": phases,
        "table_probes": fidelity,
    }
    for target, given in inputs.items():
        getattr(tables, target)(**given, output=study.path(f"figures/{target}.csv"))


def students_of(study: Study):
    found = study.paths("probes/{teacher}/*/*/seeds*.csv")
    return [path for path in found if not path.name.endswith(".layers.csv")]
