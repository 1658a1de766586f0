"""Shuffled training batches, made ahead of time by threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch

from raptor.activations.shards import Shards

READERS = 2  # threads, and batches that are made ahead


class Batch(NamedTuple):
    """Images of the store: `indices` and `labels` int64 (B,), `states` float32 (B, S', T, D)."""

    indices: torch.Tensor
    states: torch.Tensor
    labels: torch.Tensor


def batches(
    shards: Shards, labels: torch.Tensor, order: Iterator[np.ndarray], layers: Sequence[int]
) -> Iterator[Batch]:
    """A batch for each array of images in the endless `order`, sorted by image."""

    def batch(images: np.ndarray) -> Batch:
        indices = np.sort(images)
        states = shards.gather(indices, layers)
        chosen = torch.from_numpy(indices)
        return Batch(chosen, torch.empty(states.shape).copy_(states), labels[chosen])

    with ThreadPoolExecutor(READERS, thread_name_prefix="batch-reader") as pool:
        ahead = deque(pool.submit(batch, next(order)) for _ in range(READERS))
        for images in order:
            ready = ahead.popleft().result()
            ahead.append(pool.submit(batch, images))
            yield ready
            del ready  # so that the memory of a batch that is done with serves another
