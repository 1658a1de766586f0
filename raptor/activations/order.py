"""The order of training images: shuffled well enough for SGD, read from few places at a time.

An epoch permutes the rows of chunks (all states of `chunk_images` images) that a split touches,
takes them in windows of `WINDOW_ROWS`, and permutes the images inside a window: an epoch goes
over each byte once, window after window, and a batch draws from `WINDOW_ROWS` random places. A
split of at most one window gets a plain random permutation.

What is mixed: rows are uniformly permuted over the split, images uniformly inside a window. What
is not: two images of a row always come in the same window, so within `WINDOW_ROWS *
chunk_images` images of each other; data that lie sorted (by class, say) with runs longer than a
row reach a batch from at most `WINDOW_ROWS` rows, twice that where it crosses two windows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from raptor.seeds import derive_seed

WINDOW_ROWS = 8


def epoch_order(span: tuple[int, int], chunk_images: int, seed: int, epoch: int) -> np.ndarray:
    """The images [first, last) of a split in the order of one epoch, each once."""
    start, stop = span
    rng = np.random.default_rng(derive_seed(seed, "batches", epoch))
    rows = rng.permutation(np.arange(start // chunk_images, -(-stop // chunk_images)))
    windows = []
    for first in range(0, len(rows), WINDOW_ROWS):
        images = rows[first : first + WINDOW_ROWS, None] * chunk_images + np.arange(chunk_images)
        windows.append(rng.permutation(images[(images >= start) & (images < stop)]))
    return np.concatenate(windows)


def batch_order(
    span: tuple[int, int], chunk_images: int, batch_size: int, seed: int, first_step: int
) -> Iterator[np.ndarray]:
    """Endless: the images of batch `first_step`, `first_step` + 1, …

    The images of an epoch beyond its last whole batch (other ones in each epoch) are dropped.
    """
    steps = (span[1] - span[0]) // batch_size
    first_epoch, skipped = divmod(first_step, steps)
    for epoch in itertools.count(first_epoch):
        order = epoch_order(span, chunk_images, seed, epoch)
        for step in range(skipped, steps):
            yield order[step * batch_size : (step + 1) * batch_size]
        skipped = 0
