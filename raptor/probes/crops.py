"""What a frozen model makes of random crops of images, others in each epoch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from raptor.data.ahead import Ahead
from raptor.data.split import ImageSplit
from raptor.seeds import derive_seed
from raptor.training.epochs import Batch

Read = Callable[[Tensor], np.ndarray]  # images (B, C, H, W) -> features (B, F) float32


class RandomCrops:
    """The features that `read` finds in a crop of each image of `split`, made when asked for.

    The crop of an image in an epoch follows from `seed`, the image and the epoch alone, so that
    a training that is continued sees what it would have seen. The next batch is decoded while the
    model reads this one.
    """

    def __init__(self, split: ImageSplit, read: Read, seed: int) -> None:
        self.labels = torch.from_numpy(split.labels)
        self._read = read
        self._ahead = Ahead(partial(_pixels, split, seed))

    def batch(self, wanted: Batch, following: Batch | None = None) -> Tensor:
        """Features (B, F) float32."""
        return torch.from_numpy(self._read(self._ahead.take(wanted, following)))


def _pixels(split: ImageSplit, seed: int, batch: Batch) -> Tensor:
    """The crops of a batch (B, C, H, W)."""
    seeds = [derive_seed(seed, batch.epoch, image) for image in batch.images]
    return split.images(batch.images, seeds)
