"""Phases: depth cut into k groups of layers so that much of the distance lies across the cuts.

Source: paper, "Max-Cut phases". `maxcut` is the best-first bisection behind the published splits,
`maxcut_exact` the global optimum over contiguous partitions; the two differ (k = 3, DINOv2-B).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import index

import numpy as np

from raptor.errors import RaptorError
from raptor.seeds import derive_seed

METHODS = ("maxcut", "maxcut_exact", "uniform", "random", "random_scattered")
OPTIMISED = ("maxcut", "maxcut_exact")  # the methods that look at the distances
Segments = tuple[tuple[int, int], ...]

# Sums of the same numbers in another order differ by rounding; weights this close, as a fraction
# of the total, count as equal, so that ties are broken by the rule and not by the last bit.
_TIE = 1e-12


@dataclass(frozen=True)
class Partition:
    """The layers 1..L in k groups.

    `segments`: maximal runs of one group in depth order, `(first, last)`, 1-based, inclusive; a
    scattered partition has more than k of them. `labels`: the group, 1..k, of each layer, counted
    in order of first appearance. `cut_weight`: sum of the distance over the pairs l < m in
    different groups; `cut_fraction`: the same over the sum of all pairs (0 if that sum is 0).
    """

    segments: Segments
    labels: tuple[int, ...]
    cut_weight: float
    cut_fraction: float
    k: int
    method: str


@dataclass(frozen=True)
class Stability:
    """How a partition fares over bootstrap resamples of the images.

    `frequency[b - 1]`: share of the resamples with a boundary between layers b and b + 1,
    b = 1..L-1, in [0, 1]. `exact_share`: share whose partition equals `chosen` in every layer.
    """

    chosen: Partition
    frequency: tuple[float, ...]
    exact_share: float
    n_resamples: int


def partition(
    distance: np.ndarray,
    k: int | None = None,
    *,
    method: str = "maxcut",
    epsilon: float | None = None,
    min_size: int = 2,
    seed: int = 0,
) -> Partition:
    """Cut the layers of a symmetric distance matrix (L, L) into k groups (its diagonal is unused).

    - `maxcut`: best-first bisection. Of all segments and all split points that leave `min_size`
      layers on both sides, take the one that puts most weight across; repeat. A split that
      would leave too little room for the k-th segment is not taken.
    - `maxcut_exact`: most weight across among all contiguous partitions, by dynamic programming.
    - `uniform`: sizes as equal as possible, larger segments first.
    - `random`: uniform over all contiguous partitions.
    - `random_scattered`: group sizes of `random` with the same seed, layers assigned at random,
      never contiguous unless every assignment is (k = 1 or k = L).

    Instead of k the two Max-Cut methods take `epsilon` in [0, 1]: cut while one more segment adds
    more than `epsilon` of the total weight. Equal weights: `maxcut` takes the earliest split
    point, `maxcut_exact` the partition whose first, then second, … boundary is the earliest.
    Raises RaptorError for an unusable matrix, k, epsilon, min_size or method.
    """
    distance_LL = _checked_distance(distance)
    depth = len(distance_LL)
    k = _checked_request(depth, k, method, epsilon, min_size)
    if method in OPTIMISED:
        sums = _prefix_sums(distance_LL)
        tie = _TIE * np.abs(distance_LL).sum()
        find = _best_first if method == "maxcut" else _exact
        sizes = np.diff(find(sums, tie, min_size, k, epsilon))
    elif method == "uniform":
        sizes = depth // k + (np.arange(k) < depth % k)
    else:
        rng = np.random.default_rng(seed)
        sizes = _random_sizes(rng, depth, k, min_size)
    labels = np.repeat(np.arange(1, len(sizes) + 1), sizes)
    if method == "random_scattered":
        labels = _scattered(rng, labels)
    return _describe(distance_LL, labels, method)


def cut_weight(distance: np.ndarray, labels: Sequence[int]) -> float:
    """Sum of the distance over the pairs of layers l < m with different labels."""
    labels_L = np.asarray(labels)
    across_LL = labels_L[:, None] != labels_L
    return float((np.asarray(distance) * across_LL).sum() / 2)


def boundary_stability(
    distance: np.ndarray, resamples_RLL: np.ndarray, k: int, *, method: str, min_size: int
) -> Stability:
    """Partition `distance` (L, L) and each of R resampled matrices alike, and compare."""
    chosen = partition(distance, k, method=method, min_size=min_size)
    labels_RL = np.array(
        [partition(one, k, method=method, min_size=min_size).labels for one in resamples_RLL]
    )
    frequency = (np.diff(labels_RL, axis=1) != 0).mean(axis=0)
    exact = (labels_RL == np.array(chosen.labels)).all(axis=1).mean()
    return Stability(chosen, tuple(frequency.tolist()), float(exact), len(labels_RL))


def runs(labels: Iterable[int]) -> Segments:
    """Maximal runs of equal labels as `(first, last)`, 1-based, inclusive."""
    edges = np.cumsum([0, *(len(list(run)) for _, run in groupby(labels))]).tolist()
    return tuple((start + 1, stop) for start, stop in pairwise(edges))


def format_segments(segments: Segments) -> str:
    """`((1, 7), (8, 12))` -> `1-7 8-12`."""
    return " ".join(f"{first}-{last}" for first, last in segments)


def is_random(method: str) -> bool:
    """Whether the partitions of `method` differ between seeds."""
    return method.startswith("random")


def contiguous_count(depth: int, k: int, min_size: int) -> int:
    """How many contiguous partitions into k segments of at least `min_size` layers there are."""
    if k * min_size > depth:
        return 0
    return math.comb(depth - k * (min_size - 1) - 1, k - 1)


def distinct_seeds(depth: int, k: int, *, draws: int, min_size: int, seed: int) -> list[int]:
    """Seeds of `draws` random contiguous partitions, each as often as any other or once
    more: where there are enough, all are distinct. Raising `draws` keeps those before."""
    possible = contiguous_count(depth, k, min_size)
    seeds: list[int] = []
    drawn: set[tuple[int, ...]] = set()
    for draw in itertools.count():
        if len(seeds) == draws:
            return seeds
        own = derive_seed(seed, "partition", k, draw)
        sizes = tuple(_random_sizes(np.random.default_rng(own), depth, k, min_size))
        if sizes not in drawn:
            drawn.add(sizes)
            seeds.append(own)
        if len(drawn) == possible:
            drawn.clear()


# --- the methods ---------------------------------------------------------------------------------


def _prefix_sums(distance_LL: np.ndarray) -> np.ndarray:
    """(L + 1, L + 1): entry (i, j) is the sum over the first i rows and j columns."""
    depth = len(distance_LL)
    sums = np.zeros((depth + 1, depth + 1))
    sums[1:, 1:] = distance_LL.cumsum(0).cumsum(1)
    return sums


def _best_first(
    sums: np.ndarray, tie: float, min_size: int, k: int | None, epsilon: float | None
) -> list[int]:
    """Segment edges 0 = e_0 < e_1 < … = L of the best-first bisection."""
    edges = [0, len(sums) - 1]
    least_gain = -np.inf if epsilon is None else epsilon * sums[-1, -1] / 2
    while len(edges) - 1 != k:
        gains, cuts = _splits(sums, edges, min_size, k)
        if not len(cuts) or gains.max() <= least_gain + tie:
            break
        edges = sorted([*edges, int(cuts[np.argmax(gains >= gains.max() - tie)])])
    return edges


def _splits(
    sums: np.ndarray, edges: list[int], min_size: int, k: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Every allowed split point, ascending, and the weight that it puts across."""
    gains, cuts = [], []
    spare = sum((b - a) // min_size for a, b in pairwise(edges)) - (k or 0)
    for a, b in pairwise(edges):
        cut = np.arange(a + min_size, b - min_size + 1)
        # A segment of n layers holds at most n // min_size of the k segments.
        lost = (b - a) // min_size - (cut - a) // min_size - (b - cut) // min_size
        cut = cut[lost <= spare]
        cuts.append(cut)
        gains.append(sums[cut, b] - sums[a, b] - sums[cut, cut] + sums[a, cut])
    return np.concatenate(gains), np.concatenate(cuts)


def _exact(
    sums: np.ndarray, tie: float, min_size: int, k: int | None, epsilon: float | None
) -> list[int]:
    """Segment edges of the contiguous partition with least weight inside its segments.

    `least[j - 1][a]` is the least weight inside j segments that cover layers a + 1 … L:
    `least[j - 1][a] = min over b of inside[a, b] + least[j - 2][b]`, O(k L²) in all.
    """
    depth = len(sums) - 1
    diagonal = sums.diagonal()
    inside = (diagonal + diagonal[:, None] - sums - sums.T) / 2
    start = np.arange(depth + 1)
    inside[start - start[:, None] < min_size] = np.inf
    least = [inside[:, depth]]
    for _ in range(1, k or depth // min_size):
        least.append((inside + least[-1]).min(axis=1))
    if k is None:
        added = -np.diff([weight[0] for weight in least])
        short = np.append(added, -np.inf) <= epsilon * sums[-1, -1] / 2 + tie
        k = int(short.argmax()) + 1
    edges = [0]
    for rest in reversed(least[: k - 1]):
        weight = inside[edges[-1]] + rest
        edges.append(int(np.argmax(weight <= weight.min() + tie)))
    return [*edges, depth]


def _random_sizes(rng: np.random.Generator, depth: int, k: int, min_size: int) -> np.ndarray:
    """Sizes of a contiguous partition, uniform over all: k - 1 bars among the spare layers."""
    spare = depth - k * min_size
    bars = np.sort(rng.choice(spare + k - 1, k - 1, replace=False))
    return np.diff([-1, *bars, spare + k - 1]) - 1 + min_size


def _scattered(rng: np.random.Generator, labels: np.ndarray) -> np.ndarray:
    """A random assignment with the same group sizes, renumbered by first appearance."""
    k = labels[-1]
    shuffled = rng.permutation(labels)
    while 1 < k < len(labels) and len(runs(shuffled.tolist())) == k:
        shuffled = rng.permutation(labels)
    number = {label: i for i, label in enumerate(dict.fromkeys(shuffled.tolist()), start=1)}
    return np.array([number[label] for label in shuffled.tolist()])


def _describe(distance_LL: np.ndarray, labels_L: np.ndarray, method: str) -> Partition:
    weight, total = cut_weight(distance_LL, labels_L), distance_LL.sum() / 2
    labels = tuple(labels_L.tolist())
    fraction = float(weight / total) if total else 0.0
    return Partition(runs(labels), labels, weight, fraction, max(labels), method)


# --- what is refused -----------------------------------------------------------------------------


def _checked_distance(distance: np.ndarray) -> np.ndarray:
    """A float64 copy with an exactly symmetric body and a zero diagonal."""
    matrix = np.array(distance, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise RaptorError(
            f"partition: the distance has shape {matrix.shape}; give a square (L, L) matrix"
        )
    if not np.isfinite(matrix).all():
        row, column = np.argwhere(~np.isfinite(matrix))[0] + 1
        raise RaptorError(
            f"partition: the distance between layers {row} and {column} is "
            f"{matrix[row - 1, column - 1]}; check the activations of these layers for NaN or "
            "overflow"
        )
    asymmetry = np.abs(matrix - matrix.T)
    if asymmetry.max() > 1e-6 * np.abs(matrix).max():
        row, column = np.array(np.unravel_index(asymmetry.argmax(), matrix.shape)) + 1
        raise RaptorError(
            f"partition: the distance is not symmetric at layers {row} and {column} "
            f"({matrix[row - 1, column - 1]:g} against {matrix[column - 1, row - 1]:g}); "
            "give a symmetric matrix"
        )
    matrix = (matrix + matrix.T) / 2
    np.fill_diagonal(matrix, 0.0)
    return matrix


def _checked_request(
    depth: int, k: int | None, method: str, epsilon: float | None, min_size: int
) -> int | None:
    """k as an int, or None where epsilon decides."""
    if method not in METHODS:
        raise RaptorError(f"partition: method {method!r} is not one of {list(METHODS)}")
    if (k is None) == (epsilon is None):
        given = "neither" if k is None else "both"
        raise RaptorError(f"partition: {given} of k and epsilon given; give exactly one of them")
    if min_size < 1:
        raise RaptorError(f"partition: min_size = {min_size}; give 1 or more layers")
    if min_size > depth:
        raise RaptorError(
            f"partition: min_size = {min_size} is more than the {depth} layers; lower min_size"
        )
    if epsilon is not None:
        return _checked_epsilon(epsilon, method)
    if k < 1:
        raise RaptorError(f"partition: k = {k}; give the number of segments, 1 to {depth}")
    if k > depth:
        raise RaptorError(f"partition: k = {k} is more than the {depth} layers; lower k")
    if min_size * k > depth:
        raise RaptorError(
            f"partition: k = {k} segments of at least min_size = {min_size} layers need "
            f"{min_size * k} layers, there are {depth}; lower k or min_size"
        )
    return index(k)


def _checked_epsilon(epsilon: float, method: str) -> None:
    if method not in OPTIMISED:
        raise RaptorError(
            f"partition: epsilon does not stop method {method}; give k, or use {list(OPTIMISED)}"
        )
    if not 0 <= epsilon <= 1:
        raise RaptorError(f"partition: epsilon = {epsilon}; give a fraction in [0, 1]")
