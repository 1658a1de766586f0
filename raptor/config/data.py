"""`data`: which images, how many, and how they are normalised."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from raptor.config.fields import NonNegativeInt, PositiveInt, PositiveReal, Real, Section


class Splits(Section):
    """Number of images in each split, drawn without overlap by a seeded shuffle."""

    train: PositiveInt
    val: PositiveInt
    test: PositiveInt

    @property
    def total(self) -> int:
        return self.train + self.val + self.test


class DataConfig(Section):
    """Images and labels.

    `digits` needs no file. The others read `root`: `fashion_mnist` a folder of the four
    IDX files, `cifar10`/`cifar100` torchvision's folder, `image_folder` one subfolder per class.
    """

    source: Literal["digits", "fashion_mnist", "cifar10", "cifar100", "image_folder"] = "digits"
    root: str | None = None
    image_size: PositiveInt = 28
    channels: Literal[1, 3] = 1
    splits: Splits
    mean: list[Real] = Field(min_length=1, max_length=3)
    std: list[PositiveReal] = Field(min_length=1, max_length=3)
    seed: NonNegativeInt = 0
