"""Dense probes: heads that say something of every pixel, and the scenes that try them offline."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from raptor.config.data import Splits
from raptor.config.fields import (
    Fraction,
    NonNegativeInt,
    NonNegativeReal,
    PositiveInt,
    PositiveReal,
    Section,
)


class DenseProbe(Section):
    """AdamW with linear warm-up and cosine decay to zero; batches of full images."""

    epochs: PositiveInt
    batch_size: PositiveInt
    lr: PositiveReal = 1e-3
    weight_decay: NonNegativeReal
    warmup_steps: NonNegativeInt = 100
    train_images: PositiveInt | None = None  # the first n of the train split, else all


class SegmentationProbe(DenseProbe):
    """Linear on patch tokens (paper §Method 6); images are resized to a square."""

    image_size: PositiveInt = 518  # a multiple of the patch size
    epochs: PositiveInt = 10
    batch_size: PositiveInt = 32
    weight_decay: NonNegativeReal = 1e-2


class DepthProbe(DenseProbe):
    """Linear on `[patch ; cls]` to bins of depth (paper §Method 6)."""

    # Height and width; what is no multiple of the patch size is padded.
    image_size: list[PositiveInt] = Field(default=[480, 640], min_length=2, max_length=2)
    epochs: PositiveInt = 25
    batch_size: PositiveInt = 128
    weight_decay: NonNegativeReal = 1e-3
    bins: Annotated[int, Field(ge=2)] = 256
    min_m: PositiveReal = 0.001
    max_m: PositiveReal = 10.0
    si_log_weight: NonNegativeReal = 10.0
    si_log_lambda: Fraction = 0.85
    crop: Literal["eigen", "none"] = "eigen"  # which pixels of a test image count

    @model_validator(mode="after")
    def _far_is_beyond_near(self) -> DepthProbe:
        if self.max_m <= self.min_m:
            raise ValueError(f"max_m {self.max_m} is not above min_m {self.min_m}")
        return self


class ScenesConfig(Section):
    """Scenes composed of digits, a class and a depth for every pixel.

    A scene of a split has digits of that split of `data` alone. `splits` counts scenes.
    """

    image_size: Annotated[int, Field(ge=40)] = 80  # side, px; the nearest digit has 37
    digits: PositiveInt = 4  # in each scene
    splits: Splits
    seed: NonNegativeInt = 0
