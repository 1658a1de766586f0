"""The shard files of a finished store: checked, and read as they lie on disk.

Shards are uncompressed Zarr v3 files, so a chunk is a plain range of bytes whose place stands in
the index at the end of its shard (Zarr v3 specification, `sharding_indexed` codec). These ranges
are read here without `zarr`, which spends about a millisecond on each chunk whatever its
settings, twenty times what the bytes of a small teacher cost. `zarr.open` reads the same numbers.
"""

from __future__ import annotations

import itertools
import mmap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from raptor.activations.manifest import ITEM_BYTES, Manifest, store_folder
from raptor.errors import RaptorError
from raptor.files import sha256


class Mapped(NamedTuple):
    """A shard mapped into memory, as integers of the stored size: numpy lacks bfloat16.

    `states` (P, T × D) has one row per state and image; the states of `layer` of the images of
    `row` of chunks are those from `first[row, layer]` on.
    """

    states: np.ndarray
    first: np.ndarray


class Shards:
    """Every shard is there with its size when this is made; each is verified when first read."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.grid = manifest.grid
        self._shards = manifest.shards
        self._folder = store_folder(path)
        self._offsets: dict[int, np.ndarray] = {}  # of the shards that were verified
        for index in self.grid.shards:
            self._check_size(index)

    def chunks(
        self, row: int, first: int, last: int, layers: Sequence[int]
    ) -> Iterator[torch.Tensor]:
        """States (n, T, D) of each layer in turn, of the images [first, last) of a row of chunks.

        They come in the stored dtype; the memory of one is used again for the next.
        """
        index, row = divmod(row, self.grid.rows_per_shard)
        offsets, dtype = self._verified(index)[row].tolist(), getattr(torch, self.grid.dtype)
        chunk = torch.empty(last - first, *self.grid.shape[2:], dtype=dtype)
        raw = memoryview(chunk.view(torch.uint8).numpy()).cast("B")
        with open(self._file(index), "rb", buffering=0) as file:
            for layer in layers:
                file.seek(offsets[layer] + first * self.grid.image_bytes)
                left = raw
                while left:  # the system may stop anywhere, after 2 GiB at the latest
                    count = file.readinto(left)
                    if not count:
                        raise self._broken(index, "ends too early")
                    left = left[count:]
                yield chunk

    def mapped(self, index: int, rows: Iterable[int], layers: Sequence[int]) -> Mapped:
        """A shard in memory as the system pages it in; `rows` and `layers` are asked for now."""
        grid = self.grid
        self._check_size(index)  # a mapped file that has lost its end would end the process
        offsets = self._verified(index)
        with open(self._file(index), "rb") as file:
            memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        for row, layer in itertools.product(rows, layers):
            skip = int(offsets[row, layer]) % mmap.ALLOCATIONGRANULARITY
            start = int(offsets[row, layer]) - skip
            memory.madvise(mmap.MADV_WILLNEED, start, grid.chunk_bytes + skip)
        item = ITEM_BYTES[grid.dtype]
        count = (len(memory) - grid.index_bytes) // item
        states = np.frombuffer(memory, f"<i{item}", count).reshape(-1, grid.image_bytes // item)
        return Mapped(states, offsets // grid.image_bytes)

    def _verified(self, index: int) -> np.ndarray:
        """Where each chunk of a shard starts, (rows, S); its checksum is verified once."""
        if index not in self._offsets:
            self._check_size(index)
            if sha256(self._file(index)) != self._shards[index].sha256:
                raise self._broken(index, "is damaged (its checksum differs)")
            self._offsets[index] = self._chunk_offsets(index)
        return self._offsets[index]

    def _chunk_offsets(self, index: int) -> np.ndarray:
        grid = self.grid
        with open(self._file(index), "rb") as file:
            file.seek(-grid.index_bytes, 2)
            pairs = np.frombuffer(file.read(grid.index_bytes - 4), "<u8")
        offsets, sizes = np.moveaxis(pairs.reshape(grid.rows_per_shard, grid.shape[1], 2), -1, 0)
        start, stop = grid.images_of(index)
        rows = -(-(stop - start) // grid.chunk_images)
        # An absent chunk has the largest number for both.
        if (sizes[:rows] != grid.chunk_bytes).any() or (offsets[:rows] % grid.image_bytes).any():
            raise self._broken(index, "lacks chunks")
        return offsets.astype(np.int64)

    def _file(self, index: int) -> Path:
        return self._folder / self._shards[index].file

    def _check_size(self, index: int) -> None:
        path, expected = self._file(index), self._shards[index].bytes
        if not path.is_file():
            raise self._broken(index, "is missing")
        if path.stat().st_size != expected:
            raise self._broken(index, f"has {path.stat().st_size} bytes instead of {expected}")

    def _broken(self, index: int, fault: str) -> RaptorError:
        return RaptorError(
            f"{self._file(index)}: this shard of the activations {fault}; delete {self.path} "
            "and run the extraction again, which redoes only this shard"
        )
