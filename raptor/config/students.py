"""`recipes` and `students`: how Raptors are trained, and which ones."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from raptor.config.fields import (
    Fraction,
    Method,
    Name,
    NonNegativeInt,
    NonNegativeReal,
    PositiveInt,
    PositiveReal,
    Section,
    Some,
    Teachers,
)


class TeacherForcing(Section):
    """Weight λ of the teacher-forced loss: `start`, linear to `end` over `anneal` of the steps."""

    start: Fraction = 1.0
    end: Fraction = 0.0
    anneal: Fraction = 0.25


class TokenWeights(Section):
    """Weights of the cls, register and patch errors, each averaged over its own tokens."""

    cls: NonNegativeReal
    registers: NonNegativeReal
    patches: NonNegativeReal

    @model_validator(mode="after")
    def _some_weight(self) -> TokenWeights:
        if self.cls + self.registers + self.patches <= 0:
            raise ValueError("at least one token weight must be above 0")
        return self


class Stage(Section):
    """One stage of training: AdamW, linear warm-up, cosine to `min_lr`, gradient clipping."""

    steps: PositiveInt
    batch_size: PositiveInt = 64
    lr: PositiveReal = 3e-4
    min_lr: NonNegativeReal = 1e-6
    warmup_steps: NonNegativeInt = 0
    weight_decay: NonNegativeReal = 1e-4
    clip_norm: PositiveReal = 1.0
    token_weights: TokenWeights | None = None  # None: plain mean over all tokens
    weighted_layers: Literal["all", "last_segment"] = "all"  # where token_weights apply
    validate_every: PositiveInt = 100

    @model_validator(mode="after")
    def _warm_up_ends(self) -> Stage:
        if self.warmup_steps >= self.steps:
            raise ValueError(f"warmup_steps {self.warmup_steps} is not below steps {self.steps}")
        return self


class Stage1(Stage):
    """Each block alone on its own segment (paper §Method 4)."""

    teacher_forcing: TeacherForcing = TeacherForcing()
    weighted_layers: Literal["all", "last_segment"] = "last_segment"


class Stage2(Stage):
    """All blocks in closed loop from a_0 (paper §Method 5).

    `target: output` lets the error of layer L count alone: output distillation, the control that
    may reach the teacher's output by another way (paper Fig. 10).
    """

    target: Literal["states", "output"] = "states"


Ingredient = Literal["autoregressive", "depth_scaling", "token_weights", "stage2"]
Paradigm = Literal["output", "teacher_forcing", "autoregressive"]


class Recipe(Section):
    """How a Raptor is built and trained."""

    initialisation: Literal["random", "phase_mean"] = "random"
    block: Literal["swiglu", "teacher"] = "swiglu"
    depth_scaling: bool = True
    layer_scale: PositiveReal = 1e-5  # of the swiglu block
    loss_scale: Literal["none", "layer_mean_square"] = "none"
    stage1: Stage1 | None = None
    stage2: Stage2 | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Recipe:
        if self.initialisation == "phase_mean" and self.block != "teacher":
            raise ValueError("initialisation: phase_mean needs block: teacher")
        if self.stage1 is None and self.stage2 is None:
            raise ValueError("a recipe needs stage1, stage2 or both")
        return self

    @property
    def ingredients(self) -> list[Ingredient]:
        """What it has beside teacher forcing, in the order of the paper's Table 1."""
        stages = [stage for stage in (self.stage1, self.stage2) if stage is not None]
        has = {
            "autoregressive": self.paradigm != "teacher_forcing",
            "depth_scaling": self.depth_scaling,
            "token_weights": any(stage.token_weights is not None for stage in stages),
            "stage2": self.stage2 is not None,
        }
        return [name for name, present in has.items() if present]

    @property
    def paradigm(self) -> Paradigm:
        """What its last stage learns from: only a_L, or all states, the teacher's or its own."""
        if self.stage2 is not None:
            return "output" if self.stage2.target == "output" else "autoregressive"
        forcing = self.stage1.teacher_forcing
        always = forcing.end == 1 and (forcing.start == 1 or forcing.anneal == 0)
        return "teacher_forcing" if always else "autoregressive"


class StudentGrid(Section):
    """A set of students: every combination of the lists, `seeds` times each."""

    teachers: Teachers
    recipes: Some[Name]
    partitions: Some[Method] = ["maxcut"]
    k: Some[PositiveInt]
    seeds: PositiveInt = 3
    students_per_job: PositiveInt = 3
