"""`teachers`: the Vision Transformers under study, by name."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from raptor.config.fields import (
    Name,
    NonNegativeInt,
    NonNegativeReal,
    PositiveInt,
    PositiveReal,
    Rate,
    Section,
)


def conv_stem_layers(image_size: int, patch_size: int) -> int:
    """How many stride-2 convolutions make the grid of `patch_size`; 0 where none do."""
    for layers in range(1, image_size.bit_length()):
        if -(-image_size // 2**layers) * patch_size == image_size:
            return layers
    return 0


class Augmentation(Section):
    """Random affine map and flip of each training image; all zero means none."""

    shift_px: NonNegativeInt = 0
    rotate_deg: NonNegativeReal = 0.0
    scale: Rate = 0.0
    shear_deg: NonNegativeReal = 0.0
    flip: bool = False


class TeacherTraining(Section):
    """AdamW with linear warm-up and linear decay to zero."""

    epochs: PositiveInt
    batch_size: PositiveInt = 64
    lr: PositiveReal = 2e-3
    betas: list[Rate] = Field(default=[0.9, 0.98], min_length=2, max_length=2)
    weight_decay: NonNegativeReal = 0.05
    warmup_steps: NonNegativeInt = 200
    clip_norm: PositiveReal = 1.0
    label_smoothing: Rate = 0.0
    augmentation: Augmentation = Augmentation()
    train_images: PositiveInt | None = None  # only the first n of the train split (overfitting)
    checkpoint_epochs: list[NonNegativeInt] = []  # weights kept after these epochs (0: untrained)


class Architecture(Section):
    """Of a timm `VisionTransformer`, and the seed of its initial weights."""

    depth: PositiveInt
    width: PositiveInt
    heads: PositiveInt
    mlp_ratio: PositiveReal = 4.0
    patch_size: PositiveInt
    stem: Literal["patch", "conv"] = "patch"  # one patch-sized convolution, or several small ones
    registers: NonNegativeInt = 4
    stochastic_depth: Rate = 0.0  # the same drop rate at every layer
    layer_scale: PositiveReal | None = None
    seed: NonNegativeInt = 0


class TrainedTeacher(Architecture):
    """A teacher trained here from scratch."""

    kind: Literal["trained"] = "trained"
    training: TeacherTraining


class UntrainedTeacher(Section):
    """The initial weights of another teacher: same architecture, same seed, no step taken."""

    kind: Literal["untrained"]
    like: Name


class CheckpointTeacher(Section):
    """Another teacher as it was after `epoch`, which its `checkpoint_epochs` must list."""

    kind: Literal["checkpoint"]
    of: Name
    epoch: NonNegativeInt


Teacher = Annotated[
    TrainedTeacher | UntrainedTeacher | CheckpointTeacher, Field(discriminator="kind")
]
