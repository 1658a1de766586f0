"""Reading a store: `Activations`, the only way later stages see states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from raptor.activations.batches import Batch, States, batches
from raptor.activations.manifest import Manifest
from raptor.activations.order import batch_order
from raptor.activations.shards import Shards
from raptor.errors import RaptorError


class Activations:
    """States of one teacher, from the store beside `manifest`, or computed on `device`.

    Opening checks that the manifest is complete and that each shard is there with its size;
    the checksum of a shard is verified when it is first read. A shard that is missing or not as
    it was written raises `RaptorError`. Memory does not grow with the number of images.

    `layers` picks states by number (0 is the embedding), in the given order; None is all.
    """

    def __init__(self, manifest: str | Path, device: torch.device | str = "cpu") -> None:
        self.path = Path(manifest)
        self.manifest = Manifest.load(manifest)
        self.shape: tuple[int, int, int, int] = self.manifest.shape
        self.layout = self.manifest.tokens
        # JSON sorts names; here the splits stand as the images do.
        self.splits = dict(sorted(self.manifest.splits.items(), key=lambda item: item[1]))
        self.labels = np.array(self.manifest.labels, dtype=np.int64)
        self.sample_ids = self.manifest.sample_ids
        self.teacher = self.manifest.teacher.name
        self._states = self._source(device)

    def _source(self, device: torch.device | str) -> States:
        if self.manifest.mode == "store":
            return Shards(self.path, self.manifest)
        from raptor.activations.stream import Streamed  # timm takes seconds, a store needs none

        return Streamed(self.path, self.manifest, device)

    def read(self, start: int, stop: int, layers: Sequence[int] | None = None) -> np.ndarray:
        """States of images [start, stop), float32 (n, S', T, D)."""
        if not 0 <= start <= stop <= self.shape[0]:
            raise IndexError(f"images [{start}, {stop}) are not within the {self.shape[0]} stored")
        chosen, size = self._chosen(layers), self.manifest.grid.chunk_images
        out = torch.empty(stop - start, len(chosen), *self.shape[2:])
        for first in range(start, stop, size):
            images = np.arange(first, min(first + size, stop))
            part = out[first - start : first - start + size]
            self._states.gather(images[None], chosen, part[None])
        return out.numpy()

    def blocks(
        self,
        split: str,
        size: int,
        layers: Sequence[int] | None = None,
        images: int | None = None,
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """`(start, states_BSTD, labels_B)` of a split in order, at most `size` images at a time.

        `start` is the block's first image in the store. With `images`, only that many of the
        split, the first ones: which those are was drawn with the split.
        """
        first, last = self.splits[split]
        last = last if images is None else min(last, first + images)
        for start in range(first, last, size):
            stop = min(start + size, last)
            yield start, self.read(start, stop, layers), self.labels[start:stop]

    def batches(
        self,
        split: str,
        batch_size: int,
        seed: int,
        first_step: int = 0,
        layers: Sequence[int] | None = None,
        part: tuple[int, int] = (0, 1),
    ) -> Iterator[Batch]:
        """Endless shuffled batches, from batch `first_step` on; batch i depends on (seed, i) alone.

        With `part` (r, n), every n-th image of each batch, from its r-th on; n divides the batch.

        `raptor.activations.order` says how images are shuffled; no image comes twice in an
        epoch, and an epoch's last, partial batch is dropped. Inside a batch images stand sorted.
        A thread makes the next batches while one is used; it ends when the iterator is closed or
        collected. What is still used of a batch keeps the memory of the few batches made with it.
        """
        first, last = self.splits[split]
        if not 0 < batch_size <= last - first:
            raise RaptorError(
                f"{self.path}: split {split} has {last - first} images, which do not make a "
                f"batch of {batch_size}; lower batch_size or enlarge the split"
            )
        size = self.manifest.grid.chunk_images
        order = batch_order((first, last), size, batch_size, seed, first_step)
        number, parts = part
        mine = (images[number::parts] for images in order)
        labels, chosen = torch.from_numpy(self.labels), self._chosen(layers)
        return batches(self._states, labels, mine, batch_size // parts, chosen)

    def _chosen(self, layers: Sequence[int] | None) -> list[int]:
        states = self.shape[1]
        chosen = list(range(states)) if layers is None else [int(layer) for layer in layers]
        if not all(0 <= layer < states for layer in chosen):
            raise IndexError(f"layers {chosen}: the stored states are 0..{states - 1}")
        return chosen
