"""Shuffled training batches, made ahead of time by a thread."""

from __future__ import annotations

import itertools
import math
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, Protocol

import numpy as np
import torch

from raptor.activations.manifest import Grid

READERS = 1  # threads, and tasks that are done ahead; a second one was no faster on two cores
# A task makes several small batches: handing over one, and finding its places, cost as much as
# its bytes.
TASK_BYTES, TASK_BATCHES = 32 * 2**20, 16


class States(Protocol):
    """Where states come from: the shards of a store, or the teacher itself."""

    grid: Grid

    def gather(self, images: np.ndarray, layers: Sequence[int], out: torch.Tensor) -> None:
        """Put the states of `images` (k, n), sorted in each row, into float32 (k, n, S', T, D)."""


class Batch(NamedTuple):
    """Images of the store: `indices` and `labels` int64 (B,), `states` float32 (B, S', T, D)."""

    indices: torch.Tensor
    states: torch.Tensor
    labels: torch.Tensor


def batches(
    source: States,
    labels: torch.Tensor,
    order: Iterator[np.ndarray],
    batch_size: int,
    layers: Sequence[int],
) -> Iterator[Batch]:
    """A batch for each array of `batch_size` images in the endless `order`, sorted by image.

    Memory is used again once no batch of a task is in use: fresh pages cost several times what
    reading does.
    """
    one = (batch_size, len(layers), *source.grid.shape[2:])
    together = min(max(1, TASK_BYTES // (4 * math.prod(one))), TASK_BATCHES)
    shape = (together, *one)
    free: deque[np.ndarray] = deque(maxlen=READERS + 2)

    def task(images: list[np.ndarray]) -> Iterator[Batch]:
        indices = np.sort(images)
        states, chosen = _lend(free, shape), torch.from_numpy(indices)
        source.gather(indices, layers, states)
        return map(Batch, chosen.unbind(), states.unbind(), labels[chosen].unbind())

    def submit() -> Future[Iterator[Batch]]:
        return pool.submit(task, list(itertools.islice(order, together)))

    pool = ThreadPoolExecutor(READERS, thread_name_prefix="batch-reader")
    try:
        ahead = deque(submit() for _ in range(READERS))
        while True:
            ready = ahead.popleft().result()
            ahead.append(submit())
            yield from ready  # keeps no batch, so that the memory of a used one serves another
            del ready
    finally:
        # Without waiting: the garbage collector may come here in any thread, one that is starting
        # included, and a thread that joins another one there can wait for ever.
        pool.shutdown(wait=False, cancel_futures=True)


def _lend(free: deque[np.ndarray], shape: tuple[int, ...]) -> torch.Tensor:
    """A float32 tensor whose memory goes back to `free` once no tensor uses it any more."""
    try:
        memory = free.pop()
    except IndexError:
        memory = np.empty(shape, np.float32)
    lent = memory.view()  # the tensor, and whatever shares its storage, keeps this object alive
    weakref.finalize(lent, free.append, memory)
    return torch.from_numpy(lent)
