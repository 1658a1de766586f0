"""Shuffled training batches, read window by window (`raptor.activations.order`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch

from raptor.activations.order import WINDOW_ROWS
from raptor.activations.shards import Shards

READERS = 2  # threads; they work only while a window is read


class Batch(NamedTuple):
    """Images of the store: `indices` and `labels` int64 (B,), `states` float32 (B, S', T, D)."""

    indices: torch.Tensor
    states: torch.Tensor
    labels: torch.Tensor


class Window:
    """Memory for `WINDOW_ROWS` rows of chunks, filled with images in the order they are wanted.

    States stay in the stored dtype. A chunk goes to the places of its images while the processor
    still has it in its cache, and the memory is allocated once: a second pass over a window, or
    fresh pages, would cost more than the reading.
    """

    def __init__(self, shards: Shards, layers: Sequence[int]) -> None:
        grid = shards.grid
        self._shards, self._layers, self._size = shards, layers, grid.chunk_images
        # One place more, for images of a chunk that nobody wants.
        shape = (WINDOW_ROWS * self._size + 1, len(layers), *grid.shape[2:])
        self._stored = torch.empty(shape, dtype=getattr(torch, grid.dtype))
        item = torch.int16 if self._stored.itemsize == 2 else torch.int32
        self._bits = self._stored.flatten(2).view(item).numpy()  # as `Shards.chunks` gives them
        self._reading: list[Future[None]] = []
        self.images = np.empty(0, dtype=np.int64)

    def load(self, images: np.ndarray, pool: ThreadPoolExecutor) -> None:
        """Begin to read `images`, which lie in at most `WINDOW_ROWS` rows of chunks."""
        self.images = images
        rows, places = np.divmod(images, self._size)
        self._reading = []
        for row in np.unique(rows).tolist():
            positions = np.flatnonzero(rows == row)
            self._reading.append(pool.submit(self._read, row, places[positions], positions))

    def ready(self) -> Window:
        """Wait until all is read; raises what went wrong."""
        for part in self._reading:
            part.result()
        return self

    @property
    def states(self) -> torch.Tensor:
        """(n, S', T, D) of `images`, in the stored dtype."""
        return self._stored[: len(self.images)]

    def _read(self, row: int, places: np.ndarray, positions: np.ndarray) -> None:
        """Images at `places` of a row of chunks to their `positions` in the window."""
        first, last = int(places.min()), int(places.max()) + 1
        target = np.full(last - first, -1)
        target[places - first] = positions
        for column, chunk in enumerate(self._shards.chunks(row, first, last, self._layers)):
            self._bits[target, column] = chunk


def batches(
    shards: Shards,
    labels: torch.Tensor,
    order: Iterator[np.ndarray],
    batch_size: int,
    layers: Sequence[int],
) -> Iterator[Batch]:
    """Cut the endless `order` of images, in pieces of one window each, into batches."""
    shape = (batch_size, len(layers), *shards.grid.shape[2:])
    indices, filled = np.empty(batch_size, dtype=np.int64), 0
    for window in _windows(shards, order, layers):
        used = 0
        while used < len(window.images):
            count = min(batch_size - filled, len(window.images) - used)
            part = slice(filled, filled + count)
            if filled == 0:
                states = torch.empty(shape)
            indices[part] = window.images[used : used + count]
            states[part] = window.states[used : used + count]
            used, filled = used + count, filled + count
            if filled == batch_size:
                chosen, filled = torch.from_numpy(indices.copy()), 0
                yield Batch(chosen, states, labels[chosen])
                del states  # so that the memory of a batch that is done with serves the next


def _windows(
    shards: Shards, order: Iterator[np.ndarray], layers: Sequence[int]
) -> Iterator[Window]:
    """Each piece of `order`, the next one being read meanwhile over the one before."""
    ahead, free = Window(shards, layers), Window(shards, layers)
    with ThreadPoolExecutor(READERS, thread_name_prefix="window-reader") as pool:
        ahead.load(next(order), pool)
        for images in order:
            window = ahead.ready()
            free.load(images, pool)
            yield window
            ahead, free = free, window
