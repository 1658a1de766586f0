"""`dense`: heads that say something of every pixel, and the scenes that try them offline."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from raptor.config.data import Several
from raptor.config.fields import (
    Fraction,
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

Task = Literal["segmentation", "depth"]

# Official images to train and to test; of NYUv2 those of the layout with files.
OFFICIAL_IMAGES = {"ade20k": (20_210, 2_000), "nyuv2": (50_688, 654)}

UPSAMPLING = 4  # of the features of the depth probe, each side (paper §Method 6)
KEPT_BYTES = 2**29  # features of so many bytes are kept, and not computed again in each epoch


class DenseProbe(Section):
    """AdamW with linear warm-up and cosine decay to zero; batches of full images."""

    epochs: PositiveInt
    batch_size: PositiveInt
    lr: PositiveReal = 1e-3
    weight_decay: NonNegativeReal
    warmup_steps: NonNegativeInt = 100
    train_images: PositiveInt | None = None  # the first n of the train split, else all

    def trained_on(self, images: int) -> int:
        """How many of so many images."""
        return min(images, self.train_images or images)

    def steps(self, images: int) -> int:
        """Of the whole training on so many images; the last batch of an epoch may be smaller."""
        return self.epochs * -(-images // self.batch_size)


class SegmentationProbe(DenseProbe):
    """Linear on patch tokens (paper §Method 6); images are resized to a square."""

    source: Literal["ade20k", "scenes"] = "ade20k"
    image_size: PositiveInt = 518  # a multiple of the patch size
    epochs: PositiveInt = 10
    batch_size: PositiveInt = 32
    weight_decay: NonNegativeReal = 1e-2


class DepthProbe(DenseProbe):
    """Linear on `[patch ; cls]` to bins of depth (paper §Method 6)."""

    source: Literal["nyuv2", "scenes"] = "nyuv2"
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

    Those of `train` have digits of one split of the embedded digits alone, those of `test` of
    another: of `data`'s own splits where `data` are digits.
    """

    image_size: Annotated[int, Field(ge=40)] = 80  # side, px; the nearest digit has 37
    digits: PositiveInt = 4  # in each scene
    train: Several
    test: Several
    seed: NonNegativeInt = 0


class DenseConfig(Section):
    """Dense probes of teachers, and of those of their Raptors that some grid of students trains."""

    teachers: Teachers
    recipe: Name
    partition: OneCut = "maxcut"
    k: Some[PositiveInt]
    segmentation: SegmentationProbe | None = None
    depth: DepthProbe | None = None
    scenes: ScenesConfig | None = None
    models_per_job: PositiveInt = 1
    examples: PositiveInt = 4  # images drawn, with the Raptor of the last k
    seed: NonNegativeInt = 0  # of the order of the images

    @property
    def probes(self) -> dict[Task, SegmentationProbe | DepthProbe]:
        """The probes asked for, by task."""
        asked = {"segmentation": self.segmentation, "depth": self.depth}
        return {task: probe for task, probe in asked.items() if probe is not None}

    def images(self, task: Task) -> tuple[int, int]:
        """How many a probe is trained and tested on; of official sets, as they are published."""
        probe = self.probes[task]
        if probe.source == "scenes":
            train, test = self.scenes.train, self.scenes.test
        else:
            train, test = OFFICIAL_IMAGES[probe.source]
        return probe.trained_on(train), test

    @model_validator(mode="after")
    def _images_for_each(self) -> DenseConfig:
        if not self.probes:
            raise ValueError("asks for no probe; add segmentation or depth")
        composed = any(probe.source == "scenes" for probe in self.probes.values())
        if composed and self.scenes is None:
            raise ValueError("scenes: is missing, and a probe has source: scenes; say how many")
        return self
