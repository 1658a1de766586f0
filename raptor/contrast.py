"""Block contrast: how much more alike two layers of one phase are than two of different phases."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np


def block_contrast(
    similarity: np.ndarray, labels: Sequence[int], *, matched: bool = False
) -> np.ndarray:
    """Block contrast (…) of symmetric matrices (…, L, L) whose layers have these phases.

    Mean similarity of two layers of one phase minus that of two layers of different phases, in
    the unit of `similarity`, over the pairs l < m: a layer is not compared with itself. With
    `matched` the two are compared at each distance in depth and the gaps averaged with weights
    n₁n₂ / (n₁ + n₂): the coefficient of "same phase" in a regression that has an intercept for
    each distance. NaN where there is only one kind of pair (at every distance).
    """
    return np.einsum("...lm,lm->...", similarity, _weights(tuple(labels), matched))


@lru_cache
def _weights(labels: tuple[int, ...], matched: bool) -> np.ndarray:
    """(L, L) weights whose sum with a similarity matrix is its block contrast."""
    labels_L = np.array(labels)
    layer = np.arange(len(labels))
    upper = np.triu(np.ones((len(labels),) * 2, dtype=bool), 1)
    same = labels_L[:, None] == labels_L
    distance = layer - layer[:, None]
    weights, total = np.zeros(upper.shape), 0.0
    for stratum in [distance == d for d in layer[1:]] if matched else [upper]:
        inside, across = stratum & same, stratum & ~same
        if inside.any() and across.any():
            share = inside.sum() * across.sum() / stratum.sum()
            weights += share * (inside / inside.sum() - across / across.sum())
            total += share
    return weights / total if total else np.full(upper.shape, np.nan)
