"""The shard files of a finished store: checked, and read as they lie on disk.

Shards are uncompressed Zarr v3 files, so a chunk is a plain range of bytes whose place stands in
the index at the end of its shard (Zarr v3 specification, `sharding_indexed` codec). These ranges
are read here without `zarr`, which spends about a millisecond on each chunk whatever its
settings, twenty times what the bytes of a small teacher cost. `zarr.open` reads the same numbers.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from raptor.activations.manifest import ITEM_BYTES, Manifest, store_folder
from raptor.errors import RaptorError
from raptor.files import sha256


class Shards:
    """Every shard is there with its size when this is made; each is verified when first read."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.grid = manifest.grid
        self._shards = manifest.shards
        self._folder = store_folder(path)
        self._offsets: dict[int, np.ndarray] = {}  # of the shards that were verified
        self._memory = threading.local()
        for index in self.grid.shards:
            self._check_size(index)

    def chunks(
        self, row: int, first: int, last: int, layers: Sequence[int]
    ) -> Iterator[np.ndarray]:
        """Images [first, last) of a row of chunks: for each layer in turn (n, T × D), as stored.

        As stored is as integers of the same size, for numpy lacks bfloat16; `as_states` gives
        them back their type. The memory of one layer is used again for the next.
        """
        index, row = divmod(row, self.grid.rows_per_shard)
        offsets = self._verified(index)[row].tolist()
        chunk = self._scratch()[: last - first]
        raw, skip = memoryview(chunk).cast("B"), first * self.grid.image_bytes
        with open(self._file(index), "rb", buffering=0) as file:
            for layer in layers:
                file.seek(offsets[layer] + skip)
                count = file.readinto(raw)
                while count < len(raw):  # the system may stop anywhere, after 2 GiB at the latest
                    more = file.readinto(raw[count:])
                    if not more:
                        raise self._broken(index, "ends too early")
                    count += more
                yield chunk

    def as_states(self, chunk: np.ndarray) -> torch.Tensor:
        """A chunk as (n, T, D) in the stored dtype."""
        dtype = getattr(torch, self.grid.dtype)
        return torch.from_numpy(chunk).view(dtype).view(len(chunk), *self.grid.shape[2:])

    def _scratch(self) -> np.ndarray:
        """Memory for one chunk, kept by each thread: fresh pages cost more than the reading."""
        if not hasattr(self._memory, "chunk"):
            item = ITEM_BYTES[self.grid.dtype]
            shape = (self.grid.chunk_images, self.grid.image_bytes // item)
            self._memory.chunk = np.empty(shape, f"i{item}")
        return self._memory.chunk

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
        if (sizes[:rows] != grid.chunk_bytes).any():  # an absent chunk has the largest number
            raise self._broken(index, "lacks chunks")
        return offsets

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
