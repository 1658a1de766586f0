"""The whole experiment: every section of the configuration."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from raptor.config.activations import ActivationsConfig
from raptor.config.analysis import (
    BranchesConfig,
    CostConfig,
    PartitionConfig,
    ProbesConfig,
    SimilarityConfig,
    SwapsConfig,
)
from raptor.config.consistency import inconsistencies
from raptor.config.data import DataConfig
from raptor.config.dense import DenseConfig
from raptor.config.dynamics import DynamicsConfig
from raptor.config.fields import EVERY, Name, NonNegativeInt, PositiveInt, Section
from raptor.config.figures import FiguresConfig
from raptor.config.shape import Shape
from raptor.config.students import Recipe, StudentGrid
from raptor.config.teachers import (
    CheckpointTeacher,
    Teacher,
    TimmTeacher,
    TrainedTeacher,
    UntrainedTeacher,
)


class Experiment(Section):
    """One experiment; its results live in `results/<experiment>/`."""

    experiment: Name
    seed: NonNegativeInt = 0
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    gpus: PositiveInt = 1  # of one training, a process each
    autocast: Literal["none", "bfloat16"] = "none"  # of trainings, on CUDA
    compile: bool = False  # what is trained, on CUDA
    data: DataConfig
    teachers: dict[Name, Teacher] = Field(min_length=1)
    activations: ActivationsConfig = ActivationsConfig()
    similarity: SimilarityConfig = SimilarityConfig()
    partition: PartitionConfig
    recipes: dict[Name, Recipe]
    students: dict[Name, StudentGrid]
    probes: ProbesConfig = ProbesConfig()
    swaps: SwapsConfig
    dense: DenseConfig | None = None
    dynamics: DynamicsConfig | None = None
    branches: BranchesConfig | None = None
    cost: CostConfig | None = None
    figures: FiguresConfig = FiguresConfig()

    def origin(self, teacher: str) -> TrainedTeacher | TimmTeacher:
        """The teacher whose architecture (and initial weights) `teacher` has: itself, mostly."""
        spec = self.teachers[teacher]
        if isinstance(spec, UntrainedTeacher):
            spec = self.teachers[spec.like]
        elif isinstance(spec, CheckpointTeacher):
            spec = self.teachers[spec.of]
        assert isinstance(spec, TrainedTeacher | TimmTeacher)
        return spec

    def shape(self, teacher: str) -> Shape:
        return self.origin(teacher).shape

    def images(self, teacher: str) -> DataConfig:
        """The data as this teacher sees them: normalised as it was trained."""
        own = self.origin(teacher).model_dump(include={"mean", "std"}, exclude_none=True)
        return self.data.model_copy(update=own)

    def store(self, teacher: str) -> str | None:
        """URL of the states of this teacher, or None where they lie beside their manifest."""
        prefix = self.activations.store
        return f"{prefix}/{self.experiment}/{teacher}.zarr" if prefix else None

    def trains(self, teacher: str, recipe: str, partition: str, k: int) -> bool:
        """Whether some grid has these students."""
        return any(
            teacher in grid.teachers
            and recipe in grid.recipes
            and partition in grid.partitions
            and k in grid.k
            for grid in self.students.values()
        )

    @model_validator(mode="before")
    @classmethod
    def _name_every_teacher(cls, raw: Any) -> Any:
        """`teachers: all` in any section -> the names of the section `teachers`."""
        named = raw.get("teachers") if isinstance(raw, dict) else None
        if not isinstance(named, dict):
            return raw
        return {key: _expanded(part, list(named)) for key, part in raw.items()}

    @model_validator(mode="after")
    def _consistent(self) -> Experiment:
        faults = inconsistencies(self)
        if faults:
            raise ValueError("\n".join(dict.fromkeys(faults)))
        return self


def _expanded(part: Any, names: list[str]) -> Any:
    if not isinstance(part, dict):
        return part
    return {
        key: names if key == "teachers" and value == EVERY else _expanded(value, names)
        for key, value in part.items()
    }
