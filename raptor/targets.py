"""What an experiment makes: its students, in which jobs and files, its figures and its tables."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from raptor.config.dense import Task
from raptor.config.experiment import Experiment
from raptor.config.teachers import TimmTeacher, TrainedTeacher, UntrainedTeacher
from raptor.student import Student

# In the order in which they are drawn, printed and reported.
DYNAMICS = (
    "directional_convergence",
    "angular_speed",
    "low_rank_updates",
    "dmd_spectrum",
    "perturbation",
)
DENSE = ("segmentation_panels", "depth_panels", "table_dense")
FIGURES = (
    "similarity_matrices",
    "maxcut_partitions",
    "partition_comparison",
    "fidelity_by_k",
    *DYNAMICS,
    "layer_swaps",
    "training_curves",
    "stochastic_depth",
    "overfitting",
    "training_paradigms",
    "saturation",
    "branch_similarity",
    "segmentation_panels",
    "depth_panels",
    "scorecard",
)
PRINTED = ("table_partitions", "table_probes", "table_ablations", "table_dense", "table_cost")
TABLES = ("teachers", "fidelity", "layers")  # without a page and a caption


@dataclass(frozen=True)
class StudentJob:
    """The students of one teacher and study that one job trains, and another one probes."""

    teacher: str
    study: str
    part: int
    students: tuple[Student, ...]

    @property
    def path(self) -> str:
        """Path below `raptor/` and `probes/`, without suffix."""
        return f"{self.teacher}/{self.study}-{self.part}"

    @property
    def partitions(self) -> list[str]:
        """Names of the partitions that its students follow."""
        return list(dict.fromkeys(student.partition for student in self.students))

    @property
    def recipes(self) -> list[str]:
        """Names of the recipes by which its students are trained."""
        return list(dict.fromkeys(student.recipe for student in self.students))


@dataclass(frozen=True)
class DenseJob:
    """The models whose heads for a task one job trains: a teacher (None), and Raptors of it."""

    task: Task
    teacher: str
    part: int
    models: tuple[Student | None, ...]

    @property
    def path(self) -> str:
        """Path below `dense/`, without suffix."""
        return f"{self.task}/{self.teacher}/heads-{self.part}"

    @property
    def students(self) -> Students:
        """The Raptors among them, by teacher."""
        return {self.teacher: [model for model in self.models if model]}


Students = dict[str, list[Student]]  # teacher -> students of it
Model = TypeVar("Model", Student, Student | None)


def study_students(config: Experiment, studies: Iterable[str] | None = None) -> Students:
    """The students of these studies (grids), of all by default, each once."""
    found: dict[str, dict[Student, None]] = {}
    for name in config.students if studies is None else studies:
        grid = config.students[name]
        combinations = itertools.product(grid.recipes, grid.partitions, grid.k, range(grid.seeds))
        students = [Student(*combination) for combination in combinations]
        for teacher in grid.teachers:
            found.setdefault(teacher, {}).update(dict.fromkeys(students))
    return {teacher: list(students) for teacher, students in found.items()}


def students_like(
    config: Experiment,
    teachers: Iterable[str],
    recipes: Collection[str],
    partition: str,
    k: int | Collection[int],
) -> Students:
    """The students of any study with this partition and k, of every seed."""
    trained, ks = study_students(config), [k] if isinstance(k, int) else k
    return {
        teacher: [
            student
            for student in trained.get(teacher, [])
            if student.recipe in recipes and student.method == partition and student.k in ks
        ]
        for teacher in teachers
    }


def student_jobs(
    config: Experiment, wanted: Mapping[str, Iterable[Student]] | None = None
) -> list[StudentJob]:
    """All jobs of the experiment, or those with one of the students `wanted`, by teacher.

    A student belongs to the first study that lists it; those of one study and teacher are cut
    into parts of `students_per_job`. A student that is trained already is kept, in whichever job
    it comes to stand: changing a study costs no more than the students it adds.
    """
    jobs, seen = [], set()
    for study, grid in config.students.items():
        for teacher, students in study_students(config, [study]).items():
            own = [student for student in students if (teacher, student) not in seen]
            seen |= {(teacher, student) for student in own}
            asked = set(own if wanted is None else wanted.get(teacher, ()))
            jobs += [
                StudentJob(teacher, study, number, part)
                for number, part in _cut(own, grid.students_per_job)
                if asked & set(part)
            ]
    return jobs


def _cut(models: Sequence[Model], size: int) -> list[tuple[int, tuple[Model, ...]]]:
    """Parts of so many, numbered from 1; the last may be smaller."""
    starts = range(0, len(models), size)
    return [
        (number, tuple(models[start : start + size]))
        for number, start in enumerate(starts, start=1)
    ]


def dense_jobs(config: Experiment) -> list[DenseJob]:
    """The dense probes of each teacher asked for and of its Raptors, cut as `student_jobs` are."""
    dense = config.dense
    if dense is None:
        return []
    students = students_like(config, dense.teachers, [dense.recipe], dense.partition, dense.k)
    return [
        DenseJob(task, teacher, part, models)
        for task in dense.probes
        for teacher in dense.teachers
        for part, models in _cut([None, *students[teacher]], dense.models_per_job)
    ]


def dense_examples(config: Experiment) -> tuple[str, Student]:
    """The Raptor that is shown beside its teacher: the first of the last k."""
    return next(
        (job.teacher, model)
        for job in dense_jobs(config)
        for model in job.models
        if model and model.k == config.dense.k[-1]
    )


def teachers_by_rule(config: Experiment) -> dict[str, list[str]]:
    """The rule that makes a teacher -> those that it makes."""
    rules: dict[str, list[str]] = {
        f"{name}_teacher": [] for name in ("train", "untrained", "checkpoint", "timm")
    }
    for name, spec in config.teachers.items():
        if isinstance(config.origin(name), TimmTeacher):  # random weights are timm's business too
            rules["timm_teacher"].append(name)
        else:
            kind = "train" if isinstance(spec, TrainedTeacher) else spec.kind
            rules[f"{kind}_teacher"].append(name)
    return rules


def partitioned_teachers(config: Experiment) -> list[str]:
    """The teachers deep enough to be cut into the largest k of `partition.k`."""
    layers = max(config.partition.k) * config.partition.min_size
    return [name for name in config.teachers if config.shape(name).depth >= layers]


def optional(config: Experiment) -> dict[str, object]:
    """What a target is drawn from, where an experiment may do without it; None where it does."""
    figures = (
        "partition_comparison",
        "stochastic_depth",
        "training_paradigms",
        "overfitting",
        "saturation",
    )
    drawn = {name: getattr(config.figures, name) for name in (*figures, "table_ablations")}
    drawn |= {"branch_similarity": config.branches, "table_cost": config.cost}
    drawn |= {"table_dense": config.dense}
    for task in ("segmentation", "depth"):
        drawn[f"{task}_panels"] = config.dense and config.dense.probes.get(task)
    return drawn | dict.fromkeys(DYNAMICS, config.dynamics)


def covered(config: Experiment, targets: Iterable[str]) -> list[str]:
    """Those of these targets that the experiment describes."""
    asked = optional(config)
    return [target for target in targets if asked.get(target, True)]


def judged_teachers(config: Experiment) -> tuple[str, str | None]:
    """The teacher that the scorecard is about, and the untrained one of the same architecture."""
    judged = config.students[config.figures.fidelity_by_k.studies[0]].teachers[0]
    untrained = (
        name
        for name, spec in config.teachers.items()
        if isinstance(spec, UntrainedTeacher) and spec.like == judged
    )
    return judged, next(untrained, None)
