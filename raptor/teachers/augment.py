"""Augmentation: one random affine map, and flip, for each image of a batch."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from raptor.config.teachers import Augmentation


def augment(
    images_BCHW: torch.Tensor, config: Augmentation, generator: torch.Generator
) -> torch.Tensor:
    """Each image rotated, scaled, sheared, shifted and flipped by its own draw.

    Angles are uniform in ± degrees, the factor in 1 ± scale, the shift in whole pixels
    -shift_px..shift_px on each axis. Pixels from outside repeat the border. The draws come from
    `generator` (on the CPU) alone, whatever the device of the images.
    """
    if config == Augmentation():
        return images_BCHW
    count, size = len(images_BCHW), images_BCHW.shape[-1]
    uniform = torch.rand(4, count, generator=generator) * 2 - 1
    shift = torch.randint(-config.shift_px, config.shift_px + 1, (count, 2), generator=generator)
    theta_B23 = affine(
        angle=torch.deg2rad(uniform[0] * config.rotate_deg),
        scale=1 + uniform[1] * config.scale,
        shear=torch.deg2rad(uniform[2] * config.shear_deg),
        shift=shift * 2.0 / size,
        flip=(uniform[3] < 0) & config.flip,
    ).to(images_BCHW)
    grid = F.affine_grid(theta_B23, list(images_BCHW.shape), align_corners=False)
    return F.grid_sample(images_BCHW, grid, padding_mode="border", align_corners=False)


def affine(
    *,
    angle: torch.Tensor,
    scale: torch.Tensor,
    shear: torch.Tensor,
    shift: torch.Tensor,
    flip: torch.Tensor,
) -> torch.Tensor:
    """(B, 2, 3) maps from output to input coordinates in [-1, 1], as `F.affine_grid` takes them.

    The picture is flipped left to right, sheared along x, rotated by `angle` (radians,
    clockwise as seen), enlarged by `scale`, then moved by `shift` (B, 2; x, y; 2 is its width).
    """
    cos, sin, tan = angle.cos() / scale, angle.sin() / scale, shear.tan()
    # Inverse of rotation and scale, then inverse of shear, then of the flip.
    first = torch.stack([cos - tan * -sin, sin - tan * cos], dim=1)
    second = torch.stack([-sin, cos], dim=1)
    sign = torch.where(flip, -1.0, 1.0)
    linear = torch.stack([first * sign[:, None], second], dim=1)
    return torch.cat([linear, -linear @ shift.unsqueeze(2)], dim=2)
