"""`dynamics`: how states move over depth, the teacher's and those of one Raptor beside it."""

from __future__ import annotations

from raptor.config.fields import (
    Name,
    NonNegativeInt,
    NonNegativeReal,
    OneCut,
    PositiveInt,
    PositiveReal,
    Section,
    Some,
    Teachers,
)


class PerturbationConfig(Section):
    """Noise on the state of each source layer, followed to the last layer."""

    relative_sizes: Some[PositiveReal] = [0.01, 0.1]  # ε: the noise of a token x has norm ε‖x‖
    source_layers: Some[NonNegativeInt] | None = None  # None: every layer but the last
    images: PositiveInt = 100


class DmdConfig(Section):
    """Dynamic mode decomposition by token type and phase."""

    rank: PositiveInt | None = None  # None: every direction in which the states extend
    ridge: NonNegativeReal = 1e-6  # of the mean variance
    modes: PositiveInt = 10  # eigenvalues written, the largest first


class DynamicsConfig(Section):
    """Measured on `images` of the test split; centroids and linear maps are fitted on train.

    The Raptor is the student of `recipe`, `partition`, `k` and seed 0; a teacher for which the
    experiment trains none is measured by itself. `partition` and `k` also give the phases.
    """

    teachers: Teachers
    recipe: Name
    partition: OneCut = "maxcut"
    k: PositiveInt = 3
    images: PositiveInt = 500
    train_images: PositiveInt = 2000
    batch_images: PositiveInt = 64
    perturbation: PerturbationConfig = PerturbationConfig()
    dmd: DmdConfig = DmdConfig()
