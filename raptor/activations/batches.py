"""Shuffled training batches, taken from the shard files window by window.

The files of a window are mapped into memory, so that each byte is copied once, from the system's
cache into its batch: reading windows into memory of our own took twice as long.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from raptor.activations.shards import Shards


class Batch(NamedTuple):
    """Images of the store: `indices` and `labels` int64 (B,), `states` float32 (B, S', T, D)."""

    indices: torch.Tensor
    states: torch.Tensor
    labels: torch.Tensor


def batches(
    shards: Shards,
    labels: torch.Tensor,
    order: Iterator[np.ndarray],
    batch_size: int,
    layers: Sequence[int],
) -> Iterator[Batch]:
    """Cut the endless `order` of images, in pieces of one window each, into batches."""
    dtype, tokens = getattr(torch, shards.grid.dtype), shards.grid.shape[2:]
    # Allocated once: fresh pages would cost more than the copy.
    stored = torch.empty(batch_size, len(layers), *tokens, dtype=dtype)
    indices, filled = np.empty(batch_size, dtype=np.int64), 0
    for window in _one_ahead(Window(shards, images, layers) for images in order):
        used = 0
        while used < len(window.images):
            count = min(batch_size - filled, len(window.images) - used)
            part = slice(filled, filled + count)
            indices[part] = window.take(window.images[used : used + count], stored[part])
            used, filled = used + count, filled + count
            if filled == batch_size:
                chosen = torch.from_numpy(indices.copy())
                # Not kept here, so that the memory of a batch that is done with serves the next.
                yield Batch(chosen, torch.empty(stored.shape).copy_(stored), labels[chosen])
                filled = 0


class Window:
    """`images`, in the order in which they are wanted, and the shards that hold them."""

    def __init__(self, shards: Shards, images: np.ndarray, layers: Sequence[int]) -> None:
        grid = shards.grid
        self.images = images
        self._grid, self._layers = grid, np.asarray(layers)
        rows = np.unique(images // grid.chunk_images)
        self._shards = {
            index: shards.mapped(index, [row for _, row in group], layers)
            for index, group in itertools.groupby(
                (divmod(row, grid.rows_per_shard) for row in rows.tolist()), lambda pair: pair[0]
            )
        }

    def take(self, images: np.ndarray, out: torch.Tensor) -> np.ndarray:
        """States of `images` into `out` (n, S', T, D) of the stored dtype, grouped by shard.

        Returns the images in the order in which they stand in `out`.
        """
        grid = self._grid
        index = images // grid.shard_images
        by_shard = np.argsort(index, kind="stable")
        images, index = images[by_shard], index[by_shard]
        rows, places = np.divmod(images, grid.chunk_images)
        bits = torch.int32 if out.itemsize == 4 else torch.int16
        target, ends = out.view(bits).flatten(0, 1).flatten(1).numpy(), 0
        for shard, group in itertools.groupby(index.tolist()):
            start, ends = ends, ends + len(list(group))
            mapped = self._shards[shard]
            first = mapped.first[rows[start:ends, None] % grid.rows_per_shard, self._layers]
            wanted = (first + places[start:ends, None]).ravel()
            part = slice(start * len(self._layers), ends * len(self._layers))
            # `clip` lets numpy write to `out` directly; no index is out of bounds.
            np.take(mapped.states, wanted, axis=0, out=target[part], mode="clip")
        return images


def _one_ahead(windows: Iterator[Window]) -> Iterator[Window]:
    """Each window once the next is asked for, so that the disk works meanwhile."""
    window = next(windows)
    for following in windows:
        yield window
        window = following
