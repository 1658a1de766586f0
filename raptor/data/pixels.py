"""From decoded pixels to the square the model sees."""

from __future__ import annotations

import torch
from torchvision.transforms.v2 import functional as transform


def fit_pixels(pixels_BCHW: torch.Tensor, size: int, channels: int) -> torch.Tensor:
    """uint8 images (B, 1 or 3, H, W) -> (B, channels, size, size), uint8.

    Grey becomes three equal channels, colour becomes luma; the shorter side is resized to
    `size` (bilinear, antialiased) and the centre kept. Images of that size are left untouched.
    """
    if pixels_BCHW.shape[1] < channels:
        pixels_BCHW = pixels_BCHW.expand(-1, channels, -1, -1)
    elif pixels_BCHW.shape[1] > channels:
        pixels_BCHW = transform.rgb_to_grayscale(pixels_BCHW)
    if min(pixels_BCHW.shape[2:]) != size:
        pixels_BCHW = transform.resize(pixels_BCHW, [size], antialias=True)
    return transform.center_crop(pixels_BCHW, [size])
