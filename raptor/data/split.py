"""One split of a data set: a fixed list of normalised images."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch.utils.data import Dataset

from raptor.config.data import DataConfig
from raptor.data.pools import Pool
from raptor.data.sources import open_pool, pool_names
from raptor.errors import RaptorError
from raptor.seeds import derive_seed

# Splits of one pool are drawn in this order, so that the size of train moves no other image.
_DRAWN = ("test", "val", "train")


class ImageSplit(Dataset):
    """`split[i]` is `(image, label)`: float32 (C, H, W), `(x / 255 - mean) / std`, and an int.

    The order of the images is fixed. In-memory sets stay uint8 and are normalised per batch;
    image files are decoded when asked for. Without labels, `class_names` is empty and every
    label is `raptor.data.pools.UNLABELLED`.
    """

    def __init__(self, pool: Pool, indices: np.ndarray, config: DataConfig) -> None:
        self.pool, self._indices, self._config = pool, indices, config
        # (x / 255 - mean) / std as one multiplication and one addition.
        std = torch.tensor(config.std).view(-1, 1, 1)
        self._factor = 1 / (255 * std)
        self._offset = -torch.tensor(config.mean).view(-1, 1, 1) / std
        self.labels: np.ndarray = pool.labels[indices]
        self.sample_ids: list[str] = [pool.sample_ids[i] for i in indices]
        self.class_names: list[str] = pool.class_names

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.images([index])[0], int(self.labels[index])

    def first(self, count: int | None) -> ImageSplit:
        """The split of the first `count` images alone; of all for None."""
        return ImageSplit(self.pool, self._indices[:count], self._config)

    def images(
        self,
        indices: Iterable[int] | np.ndarray | torch.Tensor,
        seeds: Sequence[int] | None = None,
    ) -> torch.Tensor:
        """(B, C, H, W) float32, normalised, of the images at `indices` of this split.

        As they are stored; with `seeds`, one for each, a random part of them, or its mirror image.
        """
        if not isinstance(indices, np.ndarray | torch.Tensor):
            indices = list(indices)
        chosen = self._indices[np.asarray(indices, dtype=np.int64)]
        pixels = self.pool.pixels(chosen, self._config, seeds)
        return torch.addcmul(self._offset, pixels.float(), self._factor)

    def check(self, index: int) -> None:
        """Nothing, or a `RaptorError` where the image at `index` of this split cannot be read."""
        self.pool.check(self._indices[index])


def open_split(config: DataConfig, split: str) -> ImageSplit:
    """The `train`, `val` or `test` split.

    With an official test set, `test` is drawn from it and the others from the training set;
    otherwise all three come from one pool. Draws follow from `config.seed`, without overlap.
    Asking for more images than there are is a `RaptorError`.
    """
    names = pool_names(config)
    name = names[split]
    pool = open_pool(config, name)
    sizes = {s: getattr(config.splits, s) for s in _DRAWN if names[s] == name}
    available = len(pool.labels)
    if sum(sizes.values()) > available:
        keys = " + ".join(f"data.splits.{s}" for s in ("train", "val", "test") if s in sizes)
        raise RaptorError(
            f"{keys}: {sum(sizes.values())} images asked for, there are {available} "
            f"({name}) in {pool.origin}; ask for fewer"
        )
    order = np.random.default_rng(derive_seed(config.seed, "splits", name)).permutation(available)
    bounds = np.cumsum([0, *sizes.values()])
    position = list(sizes).index(split)
    return ImageSplit(pool, order[bounds[position] : bounds[position + 1]], config)
