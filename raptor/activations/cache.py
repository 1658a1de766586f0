"""The shards of a remote store, fetched whole when they are first needed.

They are kept in the folder `RAPTOR_CACHE`, which several jobs may share, or in a temporary one
that is removed with the process; of at most `RAPTOR_CACHE_GB`, those that were opened longest ago
make room for others. A shuffled epoch opens each shard several times: a cache that holds the split
fetches it once, a smaller one up to shard_images / chunk_images times.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Sequence
from io import FileIO
from pathlib import Path
from tempfile import TemporaryDirectory

from raptor.activations.files import ShardFiles
from raptor.activations.manifest import Shard
from raptor.activations.place import Place
from raptor.errors import RaptorError
from raptor.files import replacing, sha256

log = logging.getLogger(__name__)

CACHE_GB = 50.0


class CachedFiles(ShardFiles):
    """As `ShardFiles`; `let_go` is called before files are removed, whose maps keep their bytes."""

    def __init__(
        self, place: Place, shards: Sequence[Shard], let_go: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(place, shards)
        self._let_go, self._room = let_go, _room()
        largest = max((shard.bytes for shard in shards), default=0)
        if largest > self._room:
            raise RaptorError(
                f"RAPTOR_CACHE_GB: {self._room / 1e9:.3g} GB hold no shard of {place}, which has "
                f"up to {largest / 1e9:.3g} GB; allow more"
            )
        folder = os.environ.get("RAPTOR_CACHE")
        if not folder:
            self._temporary = TemporaryDirectory(prefix="raptor-", ignore_cleanup_errors=True)
        self._folder = Path(folder or self._temporary.name)
        self._folder.mkdir(parents=True, exist_ok=True)

    def _check_all(self) -> None:
        sizes = self.place.sizes()
        for index, shard in enumerate(self.shards):
            self._check_size(index, sizes.get(shard.file))

    def _path(self, index: int) -> Path:
        expected = self.shards[index].sha256
        path = self._folder / f"{expected}.shard"
        try:
            os.utime(path)  # opened last, and so removed last
            intact = index in self._verified or sha256(path) == expected
        except FileNotFoundError:
            intact = False
        if not intact:
            self._fetch(index, path)
        self._verified.add(index)
        return path

    def _fetch(self, index: int, path: Path) -> None:
        shard = self.shards[index]
        self._make_room(shard.bytes)
        with replacing(path) as temporary:
            if not self.place.fetch(shard.file, temporary):
                raise self.broken(index, "is missing")
            self._check_size(index, temporary.stat().st_size)
            with FileIO(temporary) as file:
                self._check_sum(index, file)

    def _make_room(self, needed: int) -> None:
        """Remove what was opened longest ago until the cache, and the disk, take `needed` more."""
        kept = sorted(self._kept(), reverse=True)  # the oldest last
        used = sum(size for _, size, _ in kept)
        while kept and (used + needed > self._room or needed > self._free()):
            _, size, path = kept.pop()
            self._let_go()
            path.unlink(missing_ok=True)
            used -= size
        if needed > self._free():
            raise RaptorError(
                f"{self._folder}: a shard of {self.place} takes {needed / 1e9:.3g} GB, "
                f"{self._free() / 1e9:.3g} GB are free; free space, or set RAPTOR_CACHE to a "
                "folder of a larger disk"
            )

    def _kept(self) -> list[tuple[float, int, Path]]:
        """When it was last opened, size and path of each file, also of an interrupted fetch."""
        found = []
        for path in self._folder.glob("*.shard*"):
            try:
                facts = path.stat()
            except FileNotFoundError:  # removed by another job
                continue
            found.append((facts.st_mtime, facts.st_size, path))
        return found

    def _free(self) -> int:
        return shutil.disk_usage(self._folder).free


def _room() -> float:
    given = os.environ.get("RAPTOR_CACHE_GB", CACHE_GB)
    try:
        gigabytes = float(given)
    except ValueError:
        gigabytes = 0.0
    if not gigabytes > 0:
        raise RaptorError(f"RAPTOR_CACHE_GB: {given!r} is not a number of gigabytes above 0")
    return gigabytes * 1e9
