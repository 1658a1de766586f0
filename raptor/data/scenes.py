"""Scenes with a class and a depth for every pixel, composed of digits: dense probes offline.

Digits, white on black cards, stand upright before a plane that is tilted away from the camera.
What is nearer is larger (as a pinhole sees it) and brighter (as in fog), so that depth can be
seen, and a nearer card hides a farther one. The class and the depth are those of the whole card:
strokes would be narrower than the patches of a small teacher.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as transform

from raptor.config.data import DataConfig
from raptor.config.dense import ScenesConfig
from raptor.data.pairs import DenseName
from raptor.data.split import ImageSplit, open_split
from raptor.seeds import derive_seed

BACKGROUND = 0  # its class; that of a digit is its label + 1
DIGIT_PX = 28
NEAR_M, FAR_M = 1.5, 3.0  # of digits; at REFERENCE_M one is drawn as it is
REFERENCE_M = 2.0
PLANE_BOTTOM_M, PLANE_TOP_M = 4.0, 8.0  # of the plane, at the lowest and the highest row
PLANE_REFLECTS = 0.3  # of the light that white ink does; a card none

Target = Literal["classes", "depth"]


class Placed(NamedTuple):
    """A digit in a scene: its index in its split, depth, upper left corner and side in px."""

    digit: int
    depth_m: float
    row: int
    column: int
    side: int


@dataclass(frozen=True)
class Scenes:
    """`pair(i)` as a `raptor.data.pairs.DenseSplit` has it; scene i is the same whenever asked for.

    The target is the class of each pixel, or its depth in metres.
    """

    origin: str
    target: Target
    sample_ids: Sequence[str]
    class_names: list[str]  # of `classes`, the background first; empty for `depth`
    digits: ImageSplit  # 28 px, values in [0, 1]
    config: ScenesConfig
    seed: int

    def __len__(self) -> int:
        return len(self.sample_ids)

    def pair(self, index: int) -> tuple[Tensor, Tensor]:
        image_HW, classes_HW, depth_HW = self.render(self.placed(index))
        target_HW = classes_HW if self.target == "classes" else depth_HW
        return image_HW.expand(3, -1, -1), target_HW

    def placed(self, index: int) -> list[Placed]:
        """The digits of scene `index`, from the farthest to the nearest."""
        rng = np.random.default_rng(derive_seed(self.seed, index))
        found = []
        for _ in range(self.config.digits):
            depth_m = rng.uniform(NEAR_M, FAR_M)
            side = round(DIGIT_PX * REFERENCE_M / depth_m)
            row, column = rng.integers(self.config.image_size - side + 1, size=2).tolist()
            found.append(Placed(int(rng.integers(len(self.digits))), depth_m, row, column, side))
        return sorted(found, key=lambda one: -one.depth_m)

    def render(self, placed: Sequence[Placed]) -> tuple[Tensor, Tensor, Tensor]:
        """Grey uint8, class int64 and depth float32, each (H, W); the last digit is in front."""
        size = self.config.image_size
        # Seen in perspective, it is the inverse of a plane's depth that is linear over the rows.
        plane_H = 1 / torch.linspace(1 / PLANE_TOP_M, 1 / PLANE_BOTTOM_M, size)
        depth_HW = plane_H[:, None].repeat(1, size)
        classes_HW = torch.full((size, size), BACKGROUND)
        reflected_HW = torch.full((size, size), PLANE_REFLECTS)
        for digit, depth_m, row, column, side in placed:
            card = slice(row, row + side), slice(column, column + side)
            pixels = transform.resize(self.digits.images([digit]), [side, side], antialias=True)
            reflected_HW[card] = pixels[0, 0].clamp(0, 1)
            classes_HW[card] = 1 + int(self.digits.labels[digit])
            depth_HW[card] = depth_m
        image_HW = 255 * NEAR_M / depth_HW * reflected_HW
        return image_HW.round().to(torch.uint8), classes_HW, depth_HW


def open_scenes(data: DataConfig, config: ScenesConfig, split: DenseName, target: Target) -> Scenes:
    """The scenes of a split, of the embedded digits.

    Where `data` are digits, of those that `open_split(data, split)` has: so no test scene has a
    digit that a teacher was trained on. Nor is any digit in the scenes of two splits.
    """
    # As they are: neither resized nor normalised.
    digits = open_split(data.only("digits").model_copy(update={"image_size": DIGIT_PX}), split)
    return Scenes(
        origin=f"scenes of {digits.pool.origin}",
        target=target,
        sample_ids=[f"{split}/{index:05d}" for index in range(getattr(config, split))],
        class_names=["background", *digits.class_names] if target == "classes" else [],
        digits=digits,
        config=config,
        seed=derive_seed(config.seed, "scenes", split),
    )
