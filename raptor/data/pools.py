"""A pool: all the images of one source from which splits are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from PIL import Image
from torchvision.transforms.v2.functional import pil_to_tensor

from raptor.data.pixels import fit_pixels
from raptor.errors import RaptorError


class Pool(Protocol):
    """Images with labels (int64, in [0, len(class_names))) and names that never change."""

    origin: str  # where the images are, for error messages
    labels: np.ndarray
    sample_ids: Sequence[str]
    class_names: list[str]

    def pixels(self, indices: np.ndarray, size: int, channels: int) -> torch.Tensor:
        """(B, channels, size, size) uint8 of the images at `indices`."""
        ...


@dataclass(frozen=True)
class ArrayPool:
    """Images held in memory as uint8 (N, C, H, W)."""

    origin: str
    images: torch.Tensor
    labels: np.ndarray
    sample_ids: Sequence[str]
    class_names: list[str]

    def pixels(self, indices: np.ndarray, size: int, channels: int) -> torch.Tensor:
        return fit_pixels(self.images[torch.from_numpy(indices)], size, channels)


@dataclass(frozen=True)
class FilePool:
    """Image files, decoded when asked for; `sample_ids` are their paths below `root`."""

    origin: str
    root: Path
    labels: np.ndarray
    sample_ids: Sequence[str]
    class_names: list[str]

    def pixels(self, indices: np.ndarray, size: int, channels: int) -> torch.Tensor:
        decoded = (_decode(self.root / self.sample_ids[i], channels) for i in indices)
        return torch.cat([fit_pixels(image[None], size, channels) for image in decoded])


def _decode(path: Path, channels: int) -> torch.Tensor:
    """(channels, H, W) uint8; a file that is no whole image is a `RaptorError` naming it."""
    try:
        if path.stat().st_size == 0:
            raise RaptorError(f"{path}: is empty; replace the image or remove it")
        with Image.open(path) as image:
            return pil_to_tensor(image.convert("L" if channels == 1 else "RGB"))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        # Pillow reports damage as any of these, depending on the format.
        raise RaptorError(
            f"{path}: cannot be decoded as an image ({error}); replace it or remove it"
        ) from None
