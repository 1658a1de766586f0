"""What an experiment makes: its students, in which jobs and files, its figures and its tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from raptor.config.experiment import Experiment
from raptor.config.teachers import UntrainedTeacher
from raptor.student import Student

# In the order in which they are drawn, printed and reported.
DYNAMICS = (
    "directional_convergence",
    "angular_speed",
    "low_rank_updates",
    "dmd_spectrum",
    "perturbation",
)
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
    "scorecard",
)
PRINTED = ("table_partitions", "table_probes", "table_ablations", "table_cost")
TABLES = ("teachers", "fidelity", "layers")  # without a page and a caption


@dataclass(frozen=True)
class StudentJob:
    """The students of one teacher and recipe that one job trains, and another one probes."""

    teacher: str
    recipe: str
    part: int
    students: tuple[Student, ...]

    @property
    def path(self) -> str:
        """Path below `raptor/` and `probes/`, without suffix."""
        return f"{self.teacher}/{self.recipe}/part{self.part}"

    @property
    def partitions(self) -> list[str]:
        """Names of the partitions that its students follow."""
        return list(dict.fromkeys(student.partition for student in self.students))


def study_students(
    config: Experiment, studies: Iterable[str]
) -> dict[tuple[str, str], list[Student]]:
    """(teacher, recipe) -> the students of these grids; a student of several grids stands once."""
    found: dict[tuple[str, str], dict[Student, None]] = {}
    for grid in (config.students[name] for name in studies):
        for teacher in grid.teachers:
            for recipe in grid.recipes:
                group = found.setdefault((teacher, recipe), {})
                for method in grid.partitions:
                    for k in grid.k:
                        group |= dict.fromkeys(
                            Student(method, k, seed) for seed in range(grid.seeds)
                        )
    return {key: list(group) for key, group in found.items()}


def students_like(
    config: Experiment, teachers: Iterable[str], recipes: Iterable[str], partition: str, k: int
) -> dict[tuple[str, str], list[Student]]:
    """(teacher, recipe) -> the students of any grid with this partition and k, of every seed."""
    trained = study_students(config, config.students)
    return {
        (teacher, recipe): [
            student
            for student in trained.get((teacher, recipe), [])
            if (student.method, student.k) == (partition, k)
        ]
        for teacher in teachers
        for recipe in recipes
    }


def student_jobs(config: Experiment, studies: Iterable[str] | None = None) -> list[StudentJob]:
    """All jobs of the experiment, or those with a student of one of these studies (grids)."""
    return jobs_with(
        config, study_students(config, config.students if studies is None else studies)
    )


def jobs_with(
    config: Experiment, wanted: Mapping[tuple[str, str], Iterable[Student]]
) -> list[StudentJob]:
    """The jobs with one of the students `wanted`, by (teacher, recipe).

    The students of a teacher and recipe, from all grids, are cut into parts of `students_per_job`
    (the smallest of those grids). A student that is trained already is kept, in whichever part it
    comes to stand: changing a grid costs no more than the students it adds.
    """
    jobs = []
    for (teacher, recipe), students in study_students(config, config.students).items():
        size = min(
            grid.students_per_job
            for grid in config.students.values()
            if teacher in grid.teachers and recipe in grid.recipes
        )
        parts = [tuple(students[start : start + size]) for start in range(0, len(students), size)]
        here = set(wanted.get((teacher, recipe), ()))
        jobs += [
            StudentJob(teacher, recipe, number, part)
            for number, part in enumerate(parts, start=1)
            if here & set(part)
        ]
    return jobs


def partitioned_teachers(config: Experiment) -> list[str]:
    """The teachers deep enough to be cut into the largest k of `partition.k`."""
    layers = max(config.partition.k) * config.partition.min_size
    return [name for name in config.teachers if config.architecture(name).depth >= layers]


def optional(config: Experiment) -> dict[str, object]:
    """What a target is drawn from, where an experiment may do without it; None where it does."""
    figures = ("stochastic_depth", "training_paradigms", "overfitting", "saturation")
    drawn = {name: getattr(config.figures, name) for name in (*figures, "table_ablations")}
    drawn |= {"branch_similarity": config.branches, "table_cost": config.cost}
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
