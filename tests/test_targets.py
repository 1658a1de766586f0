"""Which students are trained, and in which job."""

from pathlib import Path

import yaml

from raptor.config.load import load
from raptor.targets import partitioned_teachers, student_groups

RAW = yaml.safe_load((Path(__file__).parents[1] / "config/laptop.yaml").read_text())
del RAW["dynamics"]  # its Raptor would have to be among the students


def config(**grids):
    base = {"teachers": ["vit"], "recipes": ["phase_mean"], "k": [2]}
    figures = {
        f: {"studies": [next(iter(grids))]}
        for f in ("fidelity_by_k", "partition_comparison", "training_curves")
    }
    return load(RAW | {"students": {n: base | g for n, g in grids.items()}, "figures": figures})


def test_a_grid_is_every_combination():
    groups = student_groups(config(a={"k": [2, 3], "partitions": ["maxcut", "uniform"]}))
    assert len(groups) == 4
    assert groups[0].path == "vit/phase_mean/maxcut-k2/seeds0-2"


def test_seeds_are_cut_into_jobs():
    groups = student_groups(config(a={"seeds": 7, "seeds_per_job": 3}))
    assert [(g.first, g.last) for g in groups] == [(0, 2), (3, 5), (6, 6)]


def test_grids_that_share_students_share_jobs():
    shared = config(a={"seeds": 3, "seeds_per_job": 3}, b={"seeds": 10, "seeds_per_job": 5})
    everything = student_groups(shared)
    assert [(g.first, g.last) for g in everything] == [(0, 2), (3, 5), (6, 8), (9, 9)]
    assert student_groups(shared, "a") == everything[:1]
    assert student_groups(shared, "b") == everything


def test_a_shallow_teacher_is_not_cut():
    assert "shallow" not in partitioned_teachers(load(RAW))
    assert "vit" in partitioned_teachers(load(RAW))
