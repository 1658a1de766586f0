"""The exact partition against brute force, and at 48 layers against its time limit.

Ratios are reference over ours: above 1, ours is faster.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from raptor.partition import Partition, partition

LIMIT_SECONDS = 0.020  # for 48 layers, whatever the k
REPEATS = 7
CALLS = 50  # in one timing: a single call of 0.1 ms is near the noise


def rows() -> list[dict[str, object]]:
    """One row per goal: `name, ours, reference` (seconds, median), `ratio, n, spread`.

    `n` repetitions, in which the two take turns; `spread` is the interquartile range of the
    ratio over the repetitions.
    """
    small, large = _distance(12), _distance(48)
    if _cut(small, 2).cut_weight > brute_force(small) * (1 + 1e-12):
        raise AssertionError("the exact partition cuts more than the best of all cuts")
    timed = [
        (_seconds(lambda: _cut(small, 2), CALLS), _seconds(lambda: brute_force(small), 1))
        for _ in range(REPEATS)
    ]
    slowest = [
        (max(_seconds(lambda k=k: _cut(large, k), 1) for k in range(1, 49)), LIMIT_SECONDS)
        for _ in range(REPEATS)
    ]
    return [
        _row("exact partition, 12 layers in 2, vs each of 2^11 cuts", timed),
        _row("exact partition, 48 layers, slowest k, vs limit of 20 ms", slowest),
    ]


def brute_force(distance: np.ndarray) -> float:
    """Most weight over all 2^(n-1) ways to cut the layers in two, one cut after another."""
    depth, best = len(distance), 0.0
    for code in range(2 ** (depth - 1)):
        side = np.array([code >> layer & 1 for layer in range(depth)], dtype=bool)
        best = max(best, distance[side][:, ~side].sum())
    return float(best)


def _cut(distance: np.ndarray, k: int) -> Partition:
    return partition(distance, k, method="maxcut_exact", min_size=1)


def _distance(depth: int) -> np.ndarray:
    """Layers on a random walk: near in depth is near in distance."""
    walk = np.random.default_rng(0).normal(size=(depth, 16)).cumsum(axis=0)
    return np.linalg.norm(walk[:, None] - walk, axis=2)


def _seconds(call: Callable[[], object], times: int) -> float:
    started = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - started) / times


def _row(name: str, timed: list[tuple[float, float]]) -> dict[str, object]:
    ours, reference = np.array(timed).T
    low, ratio, high = np.percentile(reference / ours, [25, 50, 75])
    return {
        "name": name,
        "ours": float(np.median(ours)),
        "reference": float(np.median(reference)),
        "ratio": float(ratio),
        "n": len(timed),
        "spread": float(high - low),
    }
