"""The order of training images: shuffled well enough for SGD, read in large pieces.

An epoch permutes the rows of chunks (all states of `chunk_images` images) that a split touches,
takes them in windows of `WINDOW_ROWS`, and permutes the images inside a window. Reading one
window at a time, an epoch reads each byte once, and neighbours in a batch come from
`WINDOW_ROWS` random places. A split of at most one window gets a plain random permutation.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from raptor.seeds import derive_seed

WINDOW_ROWS = 8


def windows(
    span: tuple[int, int], chunk_images: int, seed: int, epoch: int
) -> Iterator[np.ndarray]:
    """The images [first, last) of one epoch, each once: one array of indices per window."""
    start, stop = span
    rng = np.random.default_rng(derive_seed(seed, "batches", epoch))
    rows = rng.permutation(np.arange(start // chunk_images, -(-stop // chunk_images)))
    for first in range(0, len(rows), WINDOW_ROWS):
        images = np.concatenate(
            [
                np.arange(max(start, row * chunk_images), min(stop, (row + 1) * chunk_images))
                for row in rows[first : first + WINDOW_ROWS]
            ]
        )
        yield rng.permutation(images)


def pieces(
    span: tuple[int, int], chunk_images: int, batch_size: int, seed: int, first_step: int
) -> Iterator[np.ndarray]:
    """Endless arrays of image indices, each inside one window.

    Joined and cut every `batch_size` images they are the batches `first_step`, `first_step` + 1,
    … The images of an epoch beyond its last whole batch (other ones in each epoch) are dropped.
    """
    images = span[1] - span[0]
    used = images - images % batch_size
    first_epoch, skip = divmod(first_step * batch_size, used)
    for epoch in itertools.count(first_epoch):
        left = used
        for window in windows(span, chunk_images, seed, epoch):
            piece = window[:left]
            left -= len(piece)
            if skip < len(piece):
                yield piece[skip:]
            skip = max(0, skip - len(piece))
