"""Pairs for dense probes whose answer is known, and features that hold it."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from types import SimpleNamespace

import torch
from torch.nn import functional as F

from raptor.probes.backbone import FeatureMaps
from raptor.tokens import TokenLayout

PATCH, LEVELS, STEP = 8, 5, 50  # a pixel of level n has the value STEP * n


class Pairs:
    """A `DenseSplit` in memory."""

    origin = "made-up pairs"

    def __init__(self, images, targets, class_names: Sequence[str] = ()) -> None:
        self.images, self.targets = images, targets
        self.class_names = list(class_names)
        self.sample_ids = [f"pair/{index}" for index in range(len(images))]
        self.read = 0

    def __len__(self) -> int:
        return len(self.images)

    def pair(self, index: int):
        self.read += 1
        return self.images[index], self.targets[index]


def painted(levels_HW: torch.Tensor) -> torch.Tensor:
    """Level of each pixel -> uint8 RGB (3, H, W)."""
    return (STEP * levels_HW).to(torch.uint8).expand(3, -1, -1)


class StopAt:
    """A function that asks the process to stop when it is called for the n-th time, once."""

    def __init__(self, function, number: int) -> None:
        self.function, self.number, self.calls = function, number, 0

    def __call__(self, *arguments):
        self.calls += 1
        if self.calls == self.number:
            os.kill(os.getpid(), signal.SIGTERM)
        return self.function(*arguments)


class Oracle:
    """In place of a backbone: features are which level a patch is painted in."""

    device = torch.device("cpu")
    width = joined_width = LEVELS
    teacher = SimpleNamespace(patch_size=(PATCH, PATCH), layout=TokenLayout(0, 0, 1))

    def normalised(self, pixels_CHW: torch.Tensor) -> torch.Tensor:
        return pixels_CHW[:1] / STEP

    def features(self, images_BCHW: torch.Tensor) -> FeatureMaps:
        levels_Bhw = F.avg_pool2d(images_BCHW, PATCH)[:, 0].round().long()
        return FeatureMaps(F.one_hot(levels_Bhw, LEVELS).permute(0, 3, 1, 2).float(), None)
