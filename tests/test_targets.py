"""Which students are trained, and in which job."""

import copy
from pathlib import Path

import yaml

from raptor.config.load import load
from raptor.student import Student
from raptor.targets import (
    DenseJob,
    covered,
    dense_examples,
    dense_jobs,
    partitioned_teachers,
    student_jobs,
    students_like,
    study_students,
)

RAW = yaml.safe_load((Path(__file__).parents[1] / "config/laptop.yaml").read_text())
WHOLE = load(copy.deepcopy(RAW))
del RAW["dynamics"], RAW["dense"]  # their Raptors would have to be among the students


def config(**grids):
    base = {"teachers": ["vit"], "recipes": ["phase_mean"], "k": [2]}
    figures = {
        f: {"studies": [next(iter(grids))]}
        for f in ("fidelity_by_k", "partition_comparison", "training_curves")
    }
    students = {n: base | g for n, g in grids.items()}
    return load(RAW | {"students": students, "figures": figures, "cost": None})


def test_students_alike_are_found_in_every_study():
    found = config(
        a={"k": [2, 3], "students_per_job": 4}, b={"k": [3], "seeds": 5, "partitions": ["maxcut"]}
    )
    alike = students_like(found, ["vit", "vit_p01"], ["phase_mean", "paper"], "maxcut", 3)
    assert alike == {
        "vit": [Student("phase_mean", "maxcut", 3, seed) for seed in range(5)],
        "vit_p01": [],
    }
    # Parts of 4 in a: k = 2 and the first seed of k = 3; its others. In b: seeds 3 and 4.
    paths = [job.path for job in student_jobs(found, alike)]
    assert paths == ["vit/a-1", "vit/a-2", "vit/b-1"]
    assert students_like(found, ["vit"], ["phase_mean"], "maxcut", [2, 3]) == study_students(found)


def test_a_study_is_every_combination():
    (job,) = student_jobs(
        config(
            a={
                "recipes": ["phase_mean", "paper"],
                "k": [2, 3],
                "partitions": ["maxcut", "uniform"],
                "students_per_job": 40,
            }
        )
    )
    assert job.path == "vit/a-1"
    assert job.partitions == ["maxcut-k2", "maxcut-k3", "uniform-k2", "uniform-k3"]
    assert job.recipes == ["phase_mean", "paper"]
    assert len(set(job.students)) == len(job.students) == 24
    assert Student("paper", "uniform", 3, 2) in job.students


def test_students_are_cut_into_jobs():
    jobs = student_jobs(config(a={"seeds": 7, "students_per_job": 3}))
    assert [[s.seed for s in job.students] for job in jobs] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [job.part for job in jobs] == [1, 2, 3]


def test_a_student_of_two_studies_is_trained_in_the_first():
    shared = config(a={"seeds": 3, "students_per_job": 3}, b={"seeds": 10, "students_per_job": 5})
    everything = student_jobs(shared)
    assert [(job.study, len(job.students)) for job in everything] == [("a", 3), ("b", 5), ("b", 2)]
    assert student_jobs(shared, study_students(shared, ["a"])) == everything[:1]
    assert student_jobs(shared, study_students(shared, ["b"])) == everything
    assert student_jobs(shared, {}) == []
    rows = study_students(shared, ["a", "b"])
    assert [student.seed for student in rows["vit"]] == list(range(10))


def test_another_teacher_is_another_job():
    jobs = student_jobs(config(a={"teachers": ["vit", "vit_p01"], "students_per_job": 9}))
    assert [job.path for job in jobs] == ["vit/a-1", "vit_p01/a-1"]


def test_a_shallow_teacher_is_not_cut():
    assert "shallow" not in partitioned_teachers(load(RAW))
    assert "vit" in partitioned_teachers(load(RAW))


def test_dense_probes_are_of_each_teacher_and_of_its_raptors():
    jobs = dense_jobs(WHOLE)
    raptors = [Student("phase_mean", "maxcut", 3, seed) for seed in range(3)]
    own = [("vit", 1, (None, *raptors)), ("untrained", 1, (None,))]
    assert jobs == [DenseJob(task, *one) for task in ("segmentation", "depth") for one in own]
    assert jobs[0].path == "segmentation/vit/heads-1"
    assert jobs[0].students == {"vit": raptors}
    assert dense_examples(WHOLE) == ("vit", raptors[0])
    assert dense_jobs(load(RAW)) == []


def test_models_of_dense_probes_are_spread_over_jobs():
    dense = WHOLE.dense.model_copy(update={"models_per_job": 3})
    jobs = dense_jobs(WHOLE.model_copy(update={"dense": dense}))
    assert [(job.part, len(job.models)) for job in jobs] == [(1, 3), (2, 1), (1, 1)] * 2
    assert jobs[1].models == (Student("phase_mean", "maxcut", 3, 2),)


def test_pictures_of_dense_probes_are_drawn_where_there_is_the_probe():
    targets = ("segmentation_panels", "depth_panels", "table_dense")
    without = WHOLE.model_copy(update={"dense": WHOLE.dense.model_copy(update={"depth": None})})
    assert covered(WHOLE, targets) == list(targets)
    assert covered(without, targets) == ["segmentation_panels", "table_dense"]
    assert covered(load(RAW), targets) == []
