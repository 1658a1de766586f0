"""Which students are trained, and in which job."""

from pathlib import Path

import yaml

from raptor.config.load import load
from raptor.student import Student
from raptor.targets import (
    jobs_with,
    partitioned_teachers,
    student_jobs,
    students_like,
    study_students,
)

RAW = yaml.safe_load((Path(__file__).parents[1] / "config/laptop.yaml").read_text())
del RAW["dynamics"]  # its Raptor would have to be among the students


def config(**grids):
    base = {"teachers": ["vit"], "recipes": ["phase_mean"], "k": [2]}
    figures = {
        f: {"studies": [next(iter(grids))]}
        for f in ("fidelity_by_k", "partition_comparison", "training_curves")
    }
    students = {n: base | g for n, g in grids.items()}
    return load(RAW | {"students": students, "figures": figures, "cost": None})


def test_students_alike_are_found_in_every_grid():
    found = config(
        a={"k": [2, 3], "students_per_job": 4}, b={"k": [3], "seeds": 5, "partitions": ["maxcut"]}
    )
    alike = students_like(found, ["vit"], ["phase_mean", "paper"], "maxcut", 3)
    assert alike["vit", "phase_mean"] == [Student("maxcut", 3, seed) for seed in range(5)]
    assert alike["vit", "paper"] == []
    # Parts of 3: k = 2; k = 3, seeds 0 to 2; k = 3, seeds 3 and 4.
    assert [job.part for job in jobs_with(found, alike)] == [2, 3]


def test_a_grid_is_every_combination():
    (job,) = student_jobs(
        config(a={"k": [2, 3], "partitions": ["maxcut", "uniform"], "students_per_job": 20})
    )
    assert job.path == "vit/phase_mean/part1"
    assert job.partitions == ["maxcut-k2", "maxcut-k3", "uniform-k2", "uniform-k3"]
    assert len(set(job.students)) == len(job.students) == 12
    assert Student("uniform", 3, 2) in job.students


def test_students_are_cut_into_jobs():
    jobs = student_jobs(config(a={"seeds": 7, "students_per_job": 3}))
    assert [[s.seed for s in job.students] for job in jobs] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [job.part for job in jobs] == [1, 2, 3]


def test_grids_that_share_students_share_jobs():
    shared = config(a={"seeds": 3, "students_per_job": 3}, b={"seeds": 10, "students_per_job": 5})
    everything = student_jobs(shared)
    assert [len(job.students) for job in everything] == [3, 3, 3, 1]
    assert student_jobs(shared, ["a"]) == everything[:1]
    assert student_jobs(shared, ["b"]) == everything
    rows = study_students(shared, ["a", "b"])
    assert list(rows) == [("vit", "phase_mean")]
    assert [student.seed for student in rows["vit", "phase_mean"]] == list(range(10))


def test_another_recipe_is_another_job():
    jobs = student_jobs(config(a={"recipes": ["phase_mean", "paper"], "students_per_job": 9}))
    assert [job.recipe for job in jobs] == ["phase_mean", "paper"]


def test_a_shallow_teacher_is_not_cut():
    assert "shallow" not in partitioned_teachers(load(RAW))
    assert "vit" in partitioned_teachers(load(RAW))
