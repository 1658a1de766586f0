"""`similarity`, `partition`, `probes`, `swaps`, `branches`, `cost`: what is measured."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from raptor.config.fields import (
    Fraction,
    Measure,
    Method,
    Name,
    NonNegativeInt,
    NonNegativeReal,
    OneCut,
    PositiveInt,
    PositiveReal,
    Section,
    Some,
    Split,
    Teachers,
)


class SimilarityConfig(Section):
    """Layer-by-layer similarity, with a bootstrap over images."""

    split: Split = "train"
    batch_images: Annotated[int, Field(ge=4)] = 128  # HSIC needs four
    bootstrap: PositiveInt = 200
    seed: NonNegativeInt = 0


class PartitionConfig(Section):
    """Phases from `1 - similarity`; `epsilon` lists the stop thresholds reported beside k."""

    measure: Measure = "cosine"
    min_size: PositiveInt = 2
    methods: Some[Method]
    k: Some[PositiveInt]
    random_seeds: PositiveInt = 10
    epsilon: list[Fraction] = []


class ClassificationProbe(Section):
    """Linear probe on `[cls ; mean patch]`, AdamW with warm-up and cosine decay.

    Trained on the images as every other stage sees them, or on another random crop of each in each
    epoch.
    """

    crops: Literal["centre", "random"] = "centre"
    train_images: PositiveInt | None = None  # the first n of the train split, else all
    epochs: PositiveInt = 15
    batch_size: PositiveInt = 64
    lr: PositiveReal = 1e-3
    weight_decay: NonNegativeReal = 1e-2
    warmup_steps: NonNegativeInt = 100


class ProbesConfig(Section):
    classification: ClassificationProbe = ClassificationProbe()
    bootstrap: PositiveInt = 200
    seed: NonNegativeInt = 0


class SwapsConfig(Section):
    """Layer swaps: exhaustive for one layer, `samples` draws per kind for more."""

    teachers: Teachers
    partition: OneCut = "maxcut"
    k: Annotated[int, Field(ge=2)] = 3  # of one phase there is no other to swap with
    sizes: Some[PositiveInt] = [1, 2, 3]
    samples: PositiveInt = 60
    split: Split = "test"
    images: PositiveInt | None = None  # the first n of the split, else all
    seed: NonNegativeInt = 0


class BranchesConfig(Section):
    """Similarity and phases of what the attention and the MLP branch add, beside the states'.

    On the images and by the measure of `similarity` and `partition`. The exact optimum follows
    from a matrix alone, so that two of them differ where the matrices do, not where a search did.
    """

    teachers: Teachers
    partition: Literal["maxcut", "maxcut_exact"] = "maxcut_exact"
    k: Some[Annotated[int, Field(ge=2)]] = [3]


class CostConfig(Section):
    """Parameters, FLOPs, time, memory and bits of a teacher and its Raptors, side by side."""

    teacher: Name
    recipe: Name
    partition: OneCut = "maxcut"
    k: Some[PositiveInt]
    images: PositiveInt = 64  # of the test split, one batch
    repeats: Annotated[int, Field(ge=2)] = 30
