"""Extraction: run a teacher over every image and write its states a_0..a_L, shard by shard.

`prepare` makes the empty store, `write_shards` fills any of its shards (one writer each, in any
order, in one job or many), `seal` writes the manifest. `extract` does the three; `extract_part`
the first two, for some of the shards.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import zarr
from zarr.storage import WrapperStore

from raptor.activations import ledger
from raptor.activations.ledger import Entry
from raptor.activations.manifest import (
    ZARR_DTYPE,
    Grid,
    Manifest,
    Precision,
    Rounding,
    Shard,
    TeacherFile,
)
from raptor.activations.place import Place
from raptor.activations.precision import Rounder
from raptor.errors import RaptorError
from raptor.files import digest, room_for, sha256, write_json
from raptor.provenance import code_digest

if TYPE_CHECKING:
    from filelock import FileLock
    from zarr.abc.store import Store
    from zarr.core.buffer import Buffer

    from raptor.config.activations import ActivationsConfig
    from raptor.config.data import DataConfig

log = logging.getLogger(__name__)

LOG_SECONDS = 5.0
SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Source:
    """Where states come from: a teacher (on its device) and the splits, in the store's order."""

    teacher: Any  # `states(images_BCHW) -> (B, S, T, D)`, `layout`
    file: TeacherFile
    splits: Mapping[str, Any]  # `len`, `.images(indices)`, `.labels`, `.sample_ids`
    data: dict[str, Any]
    device: torch.device

    @property
    def spans(self) -> dict[str, tuple[int, int]]:
        """Split -> first image of the store and the one after its last."""
        ends = list(itertools.accumulate(len(split) for split in self.splits.values()))
        return dict(zip(self.splits, zip([0, *ends], ends, strict=False), strict=True))

    @property
    def sample_ids(self) -> list[str]:
        return [str(name) for split in self.splits.values() for name in split.sample_ids]

    @property
    def labels(self) -> list[int]:
        return [int(label) for split in self.splits.values() for label in split.labels]

    def images(self, start: int, stop: int) -> torch.Tensor:
        """Images [start, stop) of the store, (B, C, H, W) on the device."""
        parts = [
            self.splits[name].images(list(range(max(start, a) - a, min(stop, b) - a)))
            for name, (a, b) in self.spans.items()
            if max(start, a) < min(stop, b)
        ]
        return torch.cat(parts).to(self.device)

    @torch.inference_mode()
    def states(self, start: int, stop: int) -> torch.Tensor:
        return self.teacher.states(self.images(start, stop))


def extract(
    *,
    teacher: Path,
    data: DataConfig,
    config: ActivationsConfig,
    output: Path,
    device: torch.device,
    store: str | None = None,
    samples: Path | None = None,
) -> None:
    """Store the states of every image, unless they are streamed; write the manifest `output` last.

    The array lies beside the manifest, or at the URL `store`.
    Images stand in the order train, val, test. Shards that an earlier run, or other jobs, finished
    for the same teacher, data, code and dtype are verified and kept. Raises `RaptorError` where a
    state is not finite or overflows the dtype, where the disk is too small, and where another job
    is writing a shard that is missing, or where the images are not those of the list `samples`.
    """
    source = _open(teacher, data, output, device, samples)
    grid = plan(source, config)
    if config.mode == "stream":
        _manifest(source, grid, "stream", [], None).save(output)
        return
    place = Place(output, store)
    prepare(source, grid, place)
    entries = write_shards(source, grid, place, grid.shards)
    seal(source, grid, place, entries)


def extract_part(
    *,
    teacher: Path,
    data: DataConfig,
    config: ActivationsConfig,
    manifest: Path,
    part: int,
    parts: int,
    output: Path,
    device: torch.device,
    store: str | None = None,
    samples: Path | None = None,
) -> None:
    """Write every `parts`-th shard of the store of `manifest`, from number `part` on.

    `output` holds the records of these shards; otherwise as `extract`, which is to follow.
    """
    source = _open(teacher, data, manifest, device, samples)
    grid, place = plan(source, config), Place(manifest, store)
    prepare(source, grid, place)
    entries = write_shards(source, grid, place, grid.shards[part::parts])
    write_json(output, {index: entry.model_dump(mode="json") for index, entry in entries.items()})


def _open(
    teacher: Path, data: DataConfig, manifest: Path, device: torch.device, samples: Path | None
) -> Source:
    from raptor.data import open_split
    from raptor.data.samples import refuse_redrawn
    from raptor.teachers.files import load_teacher

    splits = {name: open_split(data, name) for name in SPLITS}
    if samples is not None:
        refuse_redrawn(splits, samples)
    return Source(
        teacher=load_teacher(teacher, device),
        file=TeacherFile(
            name=Path(teacher).stem,
            sha256=sha256(teacher),
            path=os.path.relpath(teacher, Path(manifest).parent),
        ),
        splits=splits,
        data=data.model_dump(mode="json"),
        device=device,
    )


def plan(source: Source, config: ActivationsConfig) -> Grid:
    """The grid of the store; its states, tokens and width are those of the first image."""
    states, tokens, width = source.states(0, 1).shape[1:]
    images = sum(len(split) for split in source.splits.values())
    return Grid(
        (images, states, tokens, width), config.dtype, config.chunk_images, config.shard_images
    )


def identity(source: Source, grid: Grid) -> str:
    """Digest of all that decides the bytes of a shard."""
    return digest(
        [
            source.file.sha256,
            source.data,
            source.sample_ids,
            source.labels,
            [grid.shape, grid.dtype, grid.chunk_images, grid.shard_images],
            code_digest("raptor/activations/write.py"),
        ]
    )


def prepare(source: Source, grid: Grid, place: Place) -> None:
    """Make the empty array, unless it is there already; one of another identity is removed.

    Jobs that start together wait here for the first of them.
    """
    name = identity(source, grid)
    description = _description(grid, name)
    with ledger.preparing(place.manifest):
        found = place.read("zarr.json")
        if found is None or _identity_in(found) != name:
            if found is not None:
                log.info("%s: belongs to another teacher, data or dtype; removing it", place)
            place.remove()
            ledger.clear(place.manifest)
        if found != description:  # or damaged, where it is this store's
            place.write("zarr.json", description)


def _description(grid: Grid, name: str) -> bytes:
    """What Zarr writes of an empty array of this grid."""
    store: dict[str, Any] = {}
    zarr.create_array(
        store,
        shape=grid.shape,
        chunks=grid.chunk,
        shards=grid.shard,
        dtype=ZARR_DTYPE[grid.dtype],
        compressors=None,
        fill_value=0,
        dimension_names=("image", "state", "token", "width"),
        attributes={"identity": name, "dtype": grid.dtype},
    )
    return store["zarr.json"].to_bytes()


def _identity_in(metadata: bytes) -> str | None:
    """What `prepare` noted among the attributes of an array."""
    try:
        return json.loads(metadata)["attributes"]["identity"]
    except (ValueError, KeyError, TypeError):  # of another program, or half of them
        return None


def write_shards(
    source: Source, grid: Grid, place: Place, shards: Iterable[int]
) -> dict[int, Entry]:
    """Write the given shards of a prepared store, those that are finished excepted.

    Returns their records. Each shard is written whole, in one piece, by this call alone; the
    teacher works on the next one meanwhile, so two shards are in memory.
    """
    name = identity(source, grid)
    found = {index: ledger.finished(place, index, name) for index in shards}
    entries = {index: entry for index, entry in found.items() if entry is not None}
    pending = [index for index, entry in found.items() if entry is None]
    log.info(
        "%s: %d images x %d states x %d tokens x %d, %s: %.3g GB in %d files, %d/%d shards to do",
        source.file.name, *grid.shape, grid.dtype, sum(map(grid.bytes_of, grid.shards)) / 1e9,
        len(grid.shards) + 1, len(pending), len(found),
    )  # fmt: skip
    # A chunk that happens to be all zero is written too: an absent one must mean damage.
    with zarr.config.set({"array.write_empty_chunks": True}), place.reached():
        array = zarr.open_array(_Digesting(place.array()), mode="r+")
    files = [_file(array, index) for index in pending]
    _check_space(place, sum(map(grid.bytes_of, pending)), files)
    images = sum(last - first for first, last in map(grid.images_of, pending))
    with ExitStack() as claims, ThreadPoolExecutor(1, thread_name_prefix="shard-writer") as pool:
        claimed = _claimed(place, name, pending, entries, claims)
        writing: tuple[int, Future[Entry]] | None = None
        for index, claim, states, cost in _computed(source, grid, claimed, images):
            if writing:  # raises what the writer raised
                entries[writing[0]] = writing[1].result()
            writing = index, pool.submit(_write, array, place, index, name, claim, states, cost)
        if writing:
            entries[writing[0]] = writing[1].result()
    return entries


def _check_space(place: Place, needed: int, files: list[str]) -> None:
    """On a disk, less what is there of these files already; nobody says what a bucket holds."""
    if place.folder is None:
        return
    left = [path for file in files for path in (place.folder / file).parent.glob("*")]
    needed -= sum(path.stat().st_size for path in left)
    free = shutil.disk_usage(place.folder).free
    if needed > free:
        raise RaptorError(
            f"activations need {needed / 1e9:.3g} GB at {place.folder.parent}, {free / 1e9:.3g} GB "
            "free; free space, set activations.store or use a 16-bit activations.dtype"
        )


def _claimed(
    place: Place, name: str, shards: list[int], entries: dict[int, Entry], claims: ExitStack
) -> Iterator[tuple[int, FileLock]]:
    """One shard after another with the claim to it, which `claims` lets go of should a job fail.

    A shard that another job has finished since this one looked goes to `entries` instead.
    """
    for index in shards:
        claim = ledger.claim(place, index)
        claims.callback(claim.release)
        entry = ledger.finished(place, index, name)
        if entry is None:
            yield index, claim
        else:
            entries[index] = entry
            claim.release()


def _computed(
    source: Source, grid: Grid, shards: Iterable[tuple[int, FileLock]], images: int
) -> Iterator[tuple[int, FileLock, torch.Tensor, Rounding]]:
    """States (images, S, T, D) of one shard after another, as stored, of `images` in all.

    Two buffers take turns: a shard must be written before the one after the next is asked for.
    """
    sample_ids, rounder = source.sample_ids, Rounder(grid.dtype)
    buffers = itertools.cycle(torch.empty(2, *grid.shard, dtype=rounder.dtype))
    progress = _Progress(source.file.name, images)
    for (index, claim), buffer in zip(shards, buffers, strict=False):
        first, last = grid.images_of(index)
        rounder.clear()
        for start in range(first, last, grid.chunk_images):
            stop = min(start + grid.chunk_images, last)
            states = rounder(source.states(start, stop), sample_ids[start:stop])
            buffer[start - first : stop - first] = states
            progress.add(stop - start)
        yield index, claim, buffer[: last - first], rounder.rounding()


class _Progress:
    """Says every few seconds how far it is and when it ends."""

    def __init__(self, title: str, total: int) -> None:
        self._title, self._total, self._done = title, total, 0
        self._started = self._logged = time.monotonic()

    def add(self, images: int) -> None:
        """Count `images` more as done, and say so now and then."""
        self._done += images
        now = time.monotonic()
        if now - self._logged > LOG_SECONDS or self._done == self._total:
            rate = self._done / (now - self._started)
            log.info(
                "%s: %d/%d images, %.0f a second, %.0f s left",
                self._title, self._done, self._total, rate, (self._total - self._done) / rate,
            )  # fmt: skip
            self._logged = now


class _Digesting(WrapperStore):
    """Notes size and checksum of what is written: of the bytes as they are meant, not as they land.

    So a reader, or the job that verifies, notices what went wrong on the way to a disk or a bucket;
    and nothing is read back.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.written: dict[str, tuple[int, str]] = {}

    async def set(self, key: str, value: Buffer) -> None:
        checksum = hashlib.sha256(value.as_buffer_like()).hexdigest()
        self.written[key] = len(value), checksum
        await super().set(key, value)


def _write(
    array: zarr.Array, place: Place, index: int, name: str, claim: FileLock,
    states: torch.Tensor, cost: Rounding,
) -> Entry:  # fmt: skip
    start, is_bfloat16 = index * array.shards[0], states.dtype == torch.bfloat16
    stored = states.view(torch.int16).numpy().view(np.uint16) if is_bfloat16 else states.numpy()
    file = _file(array, index)
    # What an interrupted write left, and a damaged shard: Zarr would read it before it writes.
    place.remove(os.path.dirname(file))
    with place.reached(), room_for(place.folder / file) if place.folder else nullcontext():
        array[start : start + len(stored)] = stored
    size, checksum = array.store.written.pop(file)
    shard = Shard(file=file, bytes=size, sha256=checksum)
    entry = Entry(identity=name, shard=shard, rounding=cost)
    ledger.record(place.manifest, index, entry)
    claim.release()
    return entry


def _file(array: zarr.Array, index: int) -> str:
    """The file of a shard, which is alone in its folder."""
    return array.metadata.encode_chunk_key((index, 0, 0, 0))


def seal(source: Source, grid: Grid, place: Place, entries: Mapping[int, Entry]) -> None:
    """Write the manifest of a store whose shards are all there.

    `entries` are the verified records of the shards, from `write_shards` or `ledger.finished`.
    """
    missing = [index for index in grid.shards if index not in entries]
    if missing:
        raise RaptorError(f"{place}: shards {missing} are not written; run their extraction again")
    ordered = [entries[index] for index in grid.shards]
    precision = Precision.of([entry.rounding for entry in ordered])
    shards = [entry.shard for entry in ordered]
    _manifest(source, grid, "store", shards, precision, place.url).save(place.manifest)
    ledger.drop_claims(place.manifest)
    log.info(
        "%s: largest entry %.4g, relative rounding error of %s: max %.2g, rms %.2g",
        source.file.name, max(precision.max_entry), grid.dtype,
        max(precision.max_relative_error), max(precision.rms_relative_error),
    )  # fmt: skip


def _manifest(
    source: Source, grid: Grid, mode: str, shards: list[Shard], precision: Precision | None,
    store: str | None = None,
) -> Manifest:  # fmt: skip
    return Manifest(
        mode=mode,
        shape=grid.shape,
        dtype=grid.dtype,
        zarr_dtype=ZARR_DTYPE[grid.dtype],
        chunk=grid.chunk,
        shard=grid.shard,
        tokens=source.teacher.layout,
        teacher=source.file,
        data=source.data,
        splits=source.spans,
        labels=source.labels,
        sample_ids=source.sample_ids,
        store=store,
        shards=shards,
        precision=precision,
    )
