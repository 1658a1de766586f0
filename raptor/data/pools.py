"""A pool: all the images of one source from which splits are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from raptor.config.data import DataConfig
from raptor.data.files import check, decode, in_threads
from raptor.data.pixels import fit_pixels

UNLABELLED = -1  # the label of every image of a pool without classes


class Pool(Protocol):
    """Images with labels and names that never change.

    Labels are int64 in [0, len(class_names)); in a pool without labels `class_names` is empty and
    every label is `UNLABELLED`.
    """

    origin: str  # where the images are, for error messages
    labels: np.ndarray
    sample_ids: Sequence[str]
    class_names: list[str]

    def pixels(
        self, indices: np.ndarray, config: DataConfig, seeds: Sequence[int] | None = None
    ) -> torch.Tensor:
        """(B, channels, image_size, image_size) uint8 of the images at `indices`.

        With `seeds`, one for each, a random part of them (`raptor.data.pixels`).
        """
        ...

    def check(self, index: int) -> None:
        """Nothing, or a `RaptorError` where the image at `index` cannot be read."""
        ...


@dataclass(frozen=True)
class ArrayPool:
    """Images held in memory as uint8 (N, C, H, W)."""

    origin: str
    images: torch.Tensor
    labels: np.ndarray
    sample_ids: Sequence[str]
    class_names: list[str]

    def pixels(
        self, indices: np.ndarray, config: DataConfig, seeds: Sequence[int] | None = None
    ) -> torch.Tensor:
        return fit_pixels(self.images[torch.from_numpy(indices)], config, seeds)

    def check(self, index: int) -> None:
        """It was read when the pool was opened."""


@dataclass(frozen=True)
class FilePool:
    """Image files, decoded when asked for; `sample_ids` are their paths below `root`."""

    origin: str
    root: Path
    labels: np.ndarray
    sample_ids: Sequence[str]
    class_names: list[str]

    def pixels(
        self, indices: np.ndarray, config: DataConfig, seeds: Sequence[int] | None = None
    ) -> torch.Tensor:
        paths = (self.root / self.sample_ids[i] for i in indices)
        # All of them first: torch resizes on the same threads.
        decoded = list(in_threads(partial(decode, channels=config.channels), paths))
        return torch.cat(
            [
                fit_pixels(image_CHW[None], config, seeds and seeds[place : place + 1])
                for place, image_CHW in enumerate(decoded)
            ]
        )

    def check(self, index: int) -> None:
        check(self.root / self.sample_ids[index])
