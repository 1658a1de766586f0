"""The shard files of a finished store, read as they lie on disk.

Shards are uncompressed Zarr v3 files, so a chunk is a plain range of bytes whose place stands in
the index at the end of its shard (Zarr v3 specification, `sharding_indexed` codec). They are
mapped into memory here without `zarr`, which spends about a millisecond on each chunk whatever
its settings, twenty times what the bytes of a small teacher cost; copying chunks to memory of
our own took twice as long as taking states from the map. `zarr.open` reads the same numbers.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from raptor.activations.cache import CachedFiles
from raptor.activations.files import ShardFiles
from raptor.activations.manifest import ITEM_BYTES, Manifest
from raptor.activations.place import Place

# Pages of a map count as memory of the process, though the system may take them back: let go of
# all maps after this many bytes, whatever the size of the store.
MAPPED_BYTES = 256 * 2**20


class Shards:
    """Every shard is there with its size when this is made; each is verified when first read."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.grid = manifest.grid
        rows = -(-self.grid.shape[0] // self.grid.chunk_images)
        self._first = np.zeros((rows, self.grid.shape[1]), dtype=np.int64)
        self._placed: set[int] = set()  # shards whose chunks are in `_first`
        self._maps: dict[int, np.ndarray] = {}
        self._touched = 0  # bytes taken from the present maps
        self._lock = threading.Lock()
        self._memory = threading.local()
        place = Place(path, manifest.store)
        if place.folder is None:
            self._files: ShardFiles = CachedFiles(place, manifest.shards, self._maps.clear)
        else:
            self._files = ShardFiles(place, manifest.shards)

    def gather(self, images: np.ndarray, layers: Sequence[int], out: torch.Tensor) -> None:
        """Put the states of `images` (k, n), each row sorted, into float32 `out` (k, n, S', T, D).

        A row at a time, through memory that stays in the processor's cache.
        """
        rows, places = np.divmod(images.ravel(), self.grid.chunk_images)
        shards = rows // self.grid.rows_per_shard
        new = np.append(True, shards[1:] != shards[:-1])
        new[:: images.shape[1]] = True
        starts = np.flatnonzero(new)
        row_states = images.shape[1] * len(layers)
        stored, integers = self._scratch(row_states)
        maps = self._mapped(shards[starts].tolist(), len(images) * integers.nbytes)
        wanted = (self._first[rows].take(layers, axis=1) + places[:, None]).ravel()
        borders = [*(starts * len(layers)).tolist(), len(wanted)]
        for states, start, stop in zip(maps, borders, borders[1:], strict=False):
            row, first = divmod(start, row_states)
            last = stop - row * row_states
            # `clip` lets numpy write to `out` directly; no index is out of bounds.
            states.take(wanted[start:stop], axis=0, out=integers[first:last], mode="clip")
            if last == row_states:
                out[row].copy_(stored.view(out[row].shape))

    def _scratch(self, count: int) -> tuple[torch.Tensor, np.ndarray]:
        """Memory for `count` states of this thread, also as rows of integers of the stored size.

        Fresh pages would cost more than the copies.
        """
        if getattr(self._memory, "count", None) != count:
            item = ITEM_BYTES[self.grid.dtype]
            integers = np.empty((count, self.grid.image_bytes // item), f"i{item}")
            stored = torch.from_numpy(integers).view(getattr(torch, self.grid.dtype))
            self._memory.count, self._memory.arrays = count, (stored, integers)
        return self._memory.arrays

    def _mapped(self, shards: list[int], wanted_bytes: int) -> list[np.ndarray]:
        with self._lock:
            if self._touched > MAPPED_BYTES:
                self._maps.clear()  # a thread that still reads keeps its own
                self._touched = 0
            self._touched += wanted_bytes
            found: dict[int, np.ndarray] = {}
            for index in shards:
                if index not in found:
                    if index not in self._maps:
                        self._maps[index] = self._map(index)  # which may let go of others
                    found[index] = self._maps[index]
            return [found[index] for index in shards]

    def _map(self, index: int) -> np.ndarray:
        """A shard as integers of the stored size, a row (T × D) for each state of each image."""
        item = ITEM_BYTES[self.grid.dtype]
        # Reading a map beyond the end of its file ends the process: the size is checked before.
        with self._files.opened(index) as file:
            memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if index not in self._placed:
            self._place(index, memory)
        count = (len(memory) - self.grid.index_bytes) // item
        states = np.frombuffer(memory, f"i{item}", count)
        return states.reshape(-1, self.grid.image_bytes // item)

    def _place(self, index: int, memory: mmap.mmap) -> None:
        """Note the row of `_map` where each chunk begins, (rows of chunks, S)."""
        grid = self.grid
        pairs = np.frombuffer(memory[-grid.index_bytes : -4], "<u8")
        offsets, sizes = np.moveaxis(pairs.reshape(grid.rows_per_shard, grid.shape[1], 2), -1, 0)
        start, stop = grid.images_of(index)
        first, rows = start // grid.chunk_images, -(-(stop - start) // grid.chunk_images)
        if (sizes[:rows] != grid.chunk_bytes).any():  # an absent chunk has the largest number
            raise self._files.broken(index, "lacks chunks")
        self._first[first : first + rows] = offsets[:rows] // grid.image_bytes
        self._placed.add(index)
