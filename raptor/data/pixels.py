"""From decoded pixels to the square the model sees."""

from __future__ import annotations

import torch
from torchvision.transforms.v2 import functional as transform

from raptor.config.data import DataConfig


def fit_pixels(pixels_BCHW: torch.Tensor, config: DataConfig) -> torch.Tensor:
    """uint8 images (B, 1 or 3, H, W) -> (B, channels, image_size, image_size), uint8.

    Grey becomes three equal channels, colour becomes luma; the shorter side is resized to
    `resize`, or else to `image_size` (bilinear, antialiased), and the centre kept. Images whose
    shorter side has that length are not resampled.
    """
    shorter = config.resize or config.image_size
    if pixels_BCHW.shape[1] < config.channels:
        pixels_BCHW = pixels_BCHW.expand(-1, config.channels, -1, -1)
    elif pixels_BCHW.shape[1] > config.channels:
        pixels_BCHW = transform.rgb_to_grayscale(pixels_BCHW)
    if min(pixels_BCHW.shape[2:]) != shorter:
        pixels_BCHW = transform.resize(pixels_BCHW, [shorter], antialias=True)
    return transform.center_crop(pixels_BCHW, [config.image_size])
