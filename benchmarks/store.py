"""The activation store: extraction and shuffled batches, on a teacher of laptop size.

Batches are measured on states of ViT-Tiny size too. They are compared with what `np.memmap` takes
for the same images in the same order: to deliver what training needs, a new float32 tensor for
each batch, and only to copy the stored bytes, which is less work. The memmap holds all states of
an image in one piece, in the store they lie in one piece for each state.

Ratios are reference over ours: above 1, ours is faster. Files are in the page cache, as they are
in training after the first epoch, so this measures the reader and not the disk.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
import zarr

from raptor.activations import write
from raptor.activations.manifest import TeacherFile
from raptor.activations.place import Place
from raptor.activations.read import Activations
from raptor.config.activations import ActivationsConfig
from raptor.config.data import DataConfig, Splits
from raptor.config.teachers import TeacherTraining, TrainedTeacher
from raptor.teachers.build import build_teacher
from raptor.tokens import TokenLayout

TEACHER = TrainedTeacher(
    depth=8, width=48, heads=4, mlp_ratio=2.0, patch_size=7, registers=4,
    training=TeacherTraining(epochs=1),
)  # fmt: skip
DATA = DataConfig(splits=Splits(train=2, val=2, test=2), image_size=28, mean=[0.0], std=[1.0])
IMAGES, BATCH, REPEATS = 5000, 64, 7
EXTRACTED, EXTRACTIONS = 2560, 4  # images and repetitions of the extraction benchmark
LARGE, LARGE_IMAGES = (13, 65, 192), 1280  # states, tokens, width
# Epochs in one turn. Against the memmap there are enough of them that the batches made ahead
# (about 14 and 1), which belong to the next turn, are 2 % of a turn.
EPOCHS, LARGE_EPOCHS, PUBLISHED_EPOCHS = 10, 2, 3
PUBLISHED_CHUNK, PUBLISHED_THREADS = 128, 8


def rows() -> list[dict[str, object]]:
    """`name, ours, reference` (seconds, medians), `ratio, n, spread`.

    `n` repetitions in turns; `spread` is the interquartile range of the ratio.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the jobs of the pipeline run
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder)
            return [_extraction(path), *_batches(path), *_large_batches(path)]
    finally:
        torch.set_num_threads(threads)


class Pixels:
    """`n` random images, as `raptor.data.open_split` gives them."""

    def __init__(self, n: int) -> None:
        self.pixels = torch.randn(n, DATA.channels, DATA.image_size, DATA.image_size)
        self.labels = np.arange(n) % 10
        self.sample_ids = [str(i) for i in range(n)]

    def __len__(self) -> int:
        return len(self.pixels)

    def images(self, indices: list[int]) -> torch.Tensor:
        return self.pixels[indices]


class Noise:
    """States of the shape `LARGE`, without the time that a teacher of this size takes."""

    layout = TokenLayout(cls=1, registers=0, patches=LARGE[1] - 1)

    def states(self, images: torch.Tensor) -> torch.Tensor:
        return torch.randn(len(images), *LARGE)


def _source(images: int, teacher: Any = None) -> write.Source:
    torch.manual_seed(0)
    small = build_teacher(TEACHER, DATA, num_classes=10).eval().requires_grad_(False)
    return write.Source(
        teacher=teacher or small,
        file=TeacherFile(name="bench", sha256="0" * 64, path="bench"),
        splits={"train": Pixels(images)},
        data={},
        device=torch.device("cpu"),
    )


def _extract(source: write.Source, output: Path) -> None:
    grid = write.plan(source, ActivationsConfig())
    write.prepare(source, grid, Place(output))
    write.seal(
        source, grid, Place(output), write.write_shards(source, grid, Place(output), grid.shards)
    )


def _extraction(folder: Path) -> dict[str, object]:
    source, output = _source(EXTRACTED), folder / "extraction" / "t.json"

    def ours() -> None:
        _extract(source, output)

    def bare() -> None:
        for start in range(0, EXTRACTED, BATCH):
            source.states(start, min(start + BATCH, EXTRACTED))

    def clean() -> None:
        shutil.rmtree(output.parent, ignore_errors=True)
        output.parent.mkdir()

    timed = _in_turns(ours, bare, repeats=EXTRACTIONS, before=clean)
    return _row("extraction, the store being written, vs the bare forward pass", timed)


def _batches(folder: Path) -> list[dict[str, object]]:
    output = folder / "batches" / "t.json"
    output.parent.mkdir()
    _extract(_source(IMAGES), output)
    states = Activations(output)
    found = _against_memmap("shuffled training batches", states, EPOCHS, folder)
    published, ours = _published(states, folder), states.batches("train", BATCH, seed=0)

    def epochs() -> None:
        for _ in range(PUBLISHED_EPOCHS * (IMAGES // BATCH)):
            next(ours)

    def from_published() -> None:
        rng = np.random.default_rng(0)
        starts = [rng.permutation(IMAGES // BATCH) * BATCH for _ in range(PUBLISHED_EPOCHS)]
        read = lambda start: torch.from_numpy(published[start : start + BATCH])
        with ThreadPoolExecutor(PUBLISHED_THREADS) as pool:
            for ready in _ahead(pool, read, np.concatenate(starts).tolist()):
                assert len(ready) == BATCH

    timed = _in_turns(epochs, from_published, repeats=REPEATS)
    ours.close()
    return [*found, _row("shuffled training batches vs the published layout", timed)]


def _large_batches(folder: Path) -> list[dict[str, object]]:
    output = folder / "large" / "t.json"
    output.parent.mkdir()
    _extract(_source(LARGE_IMAGES, Noise()), output)
    name = "shuffled training batches of {} states x {} tokens x {}".format(*LARGE)
    found = _against_memmap(name, Activations(output), LARGE_EPOCHS, output.parent)
    shutil.rmtree(output.parent)
    return found


def _against_memmap(
    name: str, states: Activations, epochs: int, folder: Path
) -> list[dict[str, object]]:
    """Each turn reads batches, and then the same images in the same order from an `np.memmap`."""
    flat = _memmap(states, folder)
    # One iterator, as in training; the turn that does not count verifies the checksums.
    batches = states.batches("train", BATCH, seed=0)
    indices: list[np.ndarray] = []

    def ours() -> None:
        steps = epochs * (len(flat) // BATCH)
        indices[:] = [next(batches).indices.numpy() for _ in range(steps)]

    def tensors() -> None:
        for chosen in indices:
            torch.from_numpy(flat[chosen]).float()

    def raw() -> None:
        for chosen in indices:
            flat[chosen]

    timed = _in_turns(ours, tensors, raw, repeats=REPEATS)
    batches.close()
    return [
        _row(f"{name} vs float32 tensors from np.memmap", timed[:, [0, 1]]),
        _row(f"{name} vs the stored bytes from np.memmap", timed[:, [0, 2]]),
    ]


def _memmap(states: Activations, folder: Path) -> np.ndarray:
    flat = np.memmap(folder / "flat.bin", np.float16, "w+", shape=states.shape)
    for start, block, _ in states.blocks("train", 512):
        flat[start : start + len(block)] = block
    flat.flush()
    return np.memmap(folder / "flat.bin", np.float16, "r", shape=states.shape)


def _published(states: Activations, folder: Path) -> zarr.Array:
    """Chunks of 128 images and one layer, float32, zstd, a file for each."""
    chunk = (PUBLISHED_CHUNK, 1, *states.shape[2:])
    array = zarr.create_array(
        folder / "published.zarr",
        shape=states.shape,
        chunks=chunk,
        dtype="float32",
        compressors=zarr.codecs.ZstdCodec(),
    )
    for start, block, _ in states.blocks("train", 4 * PUBLISHED_CHUNK):
        array[start : start + len(block)] = block
    return array


def _ahead(pool: ThreadPoolExecutor, read: Callable, starts: list[int]) -> Iterator[torch.Tensor]:
    """Batches in order, each thread at work on one that is not yet needed."""
    waiting = [pool.submit(read, start) for start in starts[:PUBLISHED_THREADS]]
    for start in [*starts[PUBLISHED_THREADS:], *itertools.repeat(None, PUBLISHED_THREADS)]:
        if not waiting:
            return
        ready = waiting.pop(0).result()
        if start is not None:
            waiting.append(pool.submit(read, start))
        yield ready


def _in_turns(
    *calls: Callable[[], None], repeats: int, before: Callable[[], None] = lambda: None
) -> np.ndarray:
    """Seconds of each call, (repeats, calls), after one turn that does not count."""
    timed = []
    for _ in range(repeats + 1):
        before()
        marks = [time.perf_counter()]
        for call in calls:
            call()
            marks.append(time.perf_counter())
        timed.append(np.diff(marks))
    return np.array(timed[1:])


def _row(name: str, timed: np.ndarray) -> dict[str, object]:
    ours, reference = timed.T
    low, ratio, high = np.percentile(reference / ours, [25, 50, 75])
    return {
        "name": name,
        "ours": float(np.median(ours)),
        "reference": float(np.median(reference)),
        "ratio": float(ratio),
        "n": len(timed),
        "spread": float(high - low),
    }
