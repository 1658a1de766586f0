"""A frozen model as dense probes see it: from images to maps of features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as transform

from raptor.errors import RaptorError
from raptor.models.raptor import Raptor
from raptor.teachers.adapter import Teacher


class FeatureMaps(NamedTuple):
    """Tokens of state L after the teacher's final norm: patches (B, D, rows, columns), cls (B, D).

    `cls` is None where the teacher has none.
    """

    patches: Tensor
    cls: Tensor | None

    def joined(self) -> Tensor:
        """`[patch ; cls]` (B, 2D, rows, columns), cls at every patch; (B, D, ...) without cls."""
        if self.cls is None:
            return self.patches
        cls_BDhw = self.cls[:, :, None, None].expand_as(self.patches)
        return torch.cat([self.patches, cls_BDhw], dim=1)


@dataclass(frozen=True)
class Backbone:
    """A teacher, or a Raptor of it that runs closed-loop from the teacher's a_0 (paper §6).

    `teacher` is made for the images given here (`raptor.teachers.resize`); the embedding and the
    final norm are its own in either case. `mean` and `std` as in `raptor.config.data`.
    """

    teacher: Teacher
    mean: Sequence[float]
    std: Sequence[float]
    raptor: Raptor | None = None

    @property
    def device(self) -> torch.device:
        return next(self.teacher.parameters()).device

    @property
    def width(self) -> int:
        """D."""
        return self.teacher.width

    @property
    def joined_width(self) -> int:
        """Channels of `FeatureMaps.joined`."""
        return self.width * (1 + self.teacher.layout.cls)

    @torch.no_grad()  # not in inference mode: a head is trained on what comes out
    def features(self, pixels_BCHW: Tensor) -> FeatureMaps:
        """Of normalised images, as `normalised` gives them; RaptorError where not finite."""
        state_BTD = self._last_state(self.teacher.embed(pixels_BCHW.to(self.device)))
        normed_BTD = self.teacher.pooled_norm(self.teacher.normed(state_BTD)).float()
        if not normed_BTD.isfinite().all():
            raise RaptorError(
                "the last state has values that are not finite, so no probe can read it; train "
                "the model that made it again with a lower learning rate (lr)"
            )
        layout = self.teacher.layout
        patches_BPD = normed_BTD[:, layout.slices()["patches"]]
        patches_BDhw = patches_BPD.mT.unflatten(2, self.teacher.grid).contiguous()
        return FeatureMaps(patches_BDhw, normed_BTD[:, 0] if layout.cls else None)

    def _last_state(self, a0_BTD: Tensor) -> Tensor:
        if self.raptor is None:
            return self.teacher.continue_from(a0_BTD, 0)
        state_BTD = a0_BTD  # of all L states only the last is kept
        for layer in range(1, self.raptor.depth + 1):
            state_BTD = self.raptor.step(state_BTD, layer)
        return state_BTD

    def normalised(self, pixels_CHW: Tensor) -> Tensor:
        """uint8 RGB (3, H, W) -> float32 (channels, H, W), `(x / 255 - mean) / std`."""
        pixels_CHW = pixels_CHW / 255
        if self.teacher.architecture["channels"] == 1:  # of bytes it would be a level too dark
            pixels_CHW = transform.rgb_to_grayscale(pixels_CHW)
        mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (self.mean, self.std))
        return (pixels_CHW - mean) / std
