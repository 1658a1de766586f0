"""The shards of a finished store as files of this machine, each verified when first opened."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from raptor.activations.manifest import Shard
from raptor.activations.place import Place
from raptor.errors import RaptorError


class ShardFiles:
    """Shards that lie on a disk; each is there with its size when this is made."""

    def __init__(self, place: Place, shards: Sequence[Shard]) -> None:
        self.place, self.shards = place, shards
        self._verified: set[int] = set()
        self._check_all()

    @contextmanager
    def opened(self, index: int) -> Iterator[FileIO]:
        """The file of a shard, of the right size, and as it was written when first opened."""
        try:
            file = FileIO(self._path(index))
        except (FileNotFoundError, IsADirectoryError):
            raise self.broken(index, "is missing") from None
        with file:
            self._check_size(index, os.fstat(file.fileno()).st_size)
            if index not in self._verified:
                self._check_sum(index, file)
                file.seek(0)
                self._verified.add(index)
            yield file

    def broken(self, index: int, fault: str) -> RaptorError:
        """What to say, and to do, about a shard that is not as it was written."""
        return RaptorError(
            f"{self.place.name(self.shards[index].file)}: this shard of the activations {fault}; "
            f"delete {self.place.manifest} and run the extraction again, which redoes only this "
            "shard"
        )

    def _check_all(self) -> None:
        for index in range(len(self.shards)):
            path = self._path(index)
            self._check_size(index, path.stat().st_size if path.is_file() else None)

    def _path(self, index: int) -> Path:
        assert self.place.folder is not None
        return self.place.folder / self.shards[index].file

    def _check_size(self, index: int, size: int | None) -> None:
        expected = self.shards[index].bytes
        if size is None:
            raise self.broken(index, "is missing")
        if size != expected:
            raise self.broken(index, f"has {size} bytes instead of {expected}")

    def _check_sum(self, index: int, file: FileIO) -> None:
        if hashlib.file_digest(file, "sha256").hexdigest() != self.shards[index].sha256:
            raise self.broken(index, "is damaged (its checksum differs)")
