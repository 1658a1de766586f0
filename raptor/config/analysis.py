"""`similarity`, `partition`, `probes` and `interventions`: what is measured on the states."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from raptor.config.fields import (
    Fraction,
    Name,
    NonNegativeInt,
    NonNegativeReal,
    PositiveInt,
    PositiveReal,
    Section,
)

Split = Literal["train", "val", "test"]
Measure = Literal["cosine", "cosine_all_tokens", "mean_squared_difference", "cka"]
Method = Literal["maxcut", "maxcut_exact", "uniform", "random", "random_scattered"]


class SimilarityConfig(Section):
    """Layer-by-layer similarity, with a bootstrap over images."""

    split: Split = "train"
    batch_images: PositiveInt = 128
    bootstrap: PositiveInt = 200
    seed: NonNegativeInt = 0


class PartitionConfig(Section):
    """Phases from `1 - similarity`; `epsilon` lists the stop thresholds reported beside k."""

    measure: Measure = "cosine"
    min_size: PositiveInt = 2
    methods: list[Method] = Field(min_length=1)
    k: list[PositiveInt] = Field(min_length=1)
    random_seeds: PositiveInt = 10
    epsilon: list[Fraction] = []


class ClassificationProbe(Section):
    """Linear probe on `[cls ; mean patch]`, AdamW with warm-up and cosine decay."""

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

    teachers: list[Name] = Field(min_length=1)
    partition: Method = "maxcut"
    k: PositiveInt = 3
    sizes: list[PositiveInt] = [1, 2, 3]
    samples: PositiveInt = 60
    split: Split = "test"
    seed: NonNegativeInt = 0
