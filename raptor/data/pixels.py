"""From decoded pixels to the square the model sees."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as transform

from raptor.config.data import DataConfig


def fit_pixels(
    pixels_BCHW: torch.Tensor, config: DataConfig, seeds: Sequence[int] | None = None
) -> torch.Tensor:
    """`centred`, or `randomly_cropped` by the seed of each image where these are given."""
    if seeds is None:
        return centred(pixels_BCHW, config)
    return randomly_cropped(pixels_BCHW, config, seeds)


def centred(pixels_BCHW: torch.Tensor, config: DataConfig) -> torch.Tensor:
    """uint8 images (B, 1 or 3, H, W) -> (B, channels, image_size, image_size), uint8.

    Grey becomes three equal channels, colour becomes luma; the shorter side is resized to
    `resize`, or else to `image_size` (bilinear, antialiased), and the centre kept. Images whose
    shorter side has that length are not resampled.
    """
    shorter = config.resize or config.image_size
    pixels_BCHW = _with_channels(pixels_BCHW, config.channels)
    if min(pixels_BCHW.shape[2:]) != shorter:
        pixels_BCHW = transform.resize(pixels_BCHW, [shorter], antialias=True)
    return transform.center_crop(pixels_BCHW, [config.image_size])


def randomly_cropped(
    pixels_BCHW: torch.Tensor, config: DataConfig, seeds: Sequence[int]
) -> torch.Tensor:
    """As `centred`, but a random part of each image, resized, and flipped with probability ½.

    torchvision's `RandomResizedCrop` (8 to 100 % of the area, sides 3:4 to 4:3) and
    `RandomHorizontalFlip`, the paper's training of its ImageNet probe (§6). What becomes of an
    image follows from its seed. The draws are those of torch's own generator on the CPU, which is
    as it was afterwards: meanwhile no other thread may draw from it.
    """
    crop = v2.Compose([v2.RandomResizedCrop(config.image_size), v2.RandomHorizontalFlip()])
    cropped = []
    with torch.random.fork_rng(devices=[]):
        for pixels_CHW, seed in zip(
            _with_channels(pixels_BCHW, config.channels), seeds, strict=True
        ):
            torch.default_generator.manual_seed(seed)
            cropped.append(crop(pixels_CHW))
    return torch.stack(cropped)


def _with_channels(pixels_BCHW: torch.Tensor, channels: int) -> torch.Tensor:
    if pixels_BCHW.shape[1] < channels:
        return pixels_BCHW.expand(-1, channels, -1, -1)
    if pixels_BCHW.shape[1] > channels:
        return transform.rgb_to_grayscale(pixels_BCHW)
    return pixels_BCHW
