"""Partitions against brute force, planted phases and the published splits."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from itertools import combinations, pairwise
from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from raptor.config.analysis import Method
from raptor.errors import RaptorError
from raptor.partition import (
    METHODS,
    boundary_stability,
    contiguous_count,
    distinct_seeds,
    format_segments,
    partition,
    runs,
)

GOLDEN = Path(__file__).parents[2] / "shared" / "data" / "dinov2_vitb14_reg_cosine_distance.csv"


# --- matrices and brute force --------------------------------------------------------------------


@st.composite
def distances(draw, least=2, most=8):
    """Symmetric matrices of small integers: sums are exact and ties are frequent."""
    depth = draw(st.integers(least, most))
    upper = draw(st.lists(st.integers(0, 6), min_size=depth**2, max_size=depth**2))
    matrix = np.triu(np.array(upper, float).reshape(depth, depth), 1)
    return matrix + matrix.T


@st.composite
def monotone(draw, least=2, most=8):
    """Distance never falls as two layers move apart (a Robinson matrix)."""
    rises = np.triu(draw(distances(least, most)), 1)
    for gap in range(2, len(rises)):
        for low in range(len(rises) - gap):
            high = low + gap
            rises[low, high] += max(rises[low + 1, high], rises[low, high - 1])
    return rises + rises.T


@st.composite
def requests(draw):
    """A matrix with a feasible k and min_size."""
    matrix = draw(distances())
    k = draw(st.integers(1, len(matrix)))
    return matrix, k, draw(st.integers(1, len(matrix) // k))


def weight_by_loops(matrix, labels):
    depth = len(matrix)
    return sum(
        matrix[a, b] for a in range(depth) for b in range(a + 1, depth) if labels[a] != labels[b]
    )


def labels_of(edges):
    return [i for i, (a, b) in enumerate(pairwise(edges), start=1) for _ in range(a, b)]


def all_edges(depth, k, min_size):
    """Every contiguous partition, in lexicographic order of its boundaries."""
    for cuts in combinations(range(1, depth), k - 1):
        edges = (0, *cuts, depth)
        if all(b - a >= min_size for a, b in pairwise(edges)):
            yield edges


def best_bisection(matrix, min_size=1):
    """Most weight over all 2^(n-1) ways to cut the layers in two, contiguous or not."""
    depth = len(matrix)
    codes = np.arange(2 ** (depth - 1))
    sides = (codes[:, None] >> np.arange(depth)) & 1
    sizes = sides.sum(axis=1)
    kept = sides[(sizes >= min_size) & (depth - sizes >= min_size)]
    return max(weight_by_loops(matrix, side) for side in kept.tolist())


def greedy_by_loops(matrix, k, min_size):
    edges = (0, len(matrix))
    while len(edges) - 1 < k:
        options = []
        for cut in range(1, len(matrix)):
            finer = tuple(sorted({*edges, cut}))
            sizes = [b - a for a, b in pairwise(finer)]
            room = sum(size // min_size for size in sizes)
            if len(finer) > len(edges) and min(sizes) >= min_size and room >= k:
                options.append((-weight_by_loops(matrix, labels_of(finer)), cut, finer))
        edges = min(options)[2]
    return edges


def segments_of(edges):
    return tuple((a + 1, b) for a, b in pairwise(edges))


# --- known answers -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def published():
    if not GOLDEN.is_file():
        pytest.skip(f"needs {GOLDEN.name}, the published DINOv2-B matrix, in ../shared/data")
    return pd.read_csv(GOLDEN, index_col="layer").to_numpy()


@pytest.mark.parametrize(
    ("method", "k", "expected"),
    [
        ("maxcut", 2, "1-7 8-12"),
        ("maxcut", 3, "1-7 8-10 11-12"),
        ("maxcut", 4, "1-4 5-7 8-10 11-12"),
        ("maxcut_exact", 3, "1-5 6-9 10-12"),
    ],
)
def test_published_splits(published, method, k, expected):
    assert format_segments(partition(published, k, method=method).segments) == expected


@pytest.mark.parametrize(("epsilon", "k"), [(0.20, 2), (0.10, 3), (0.09, 4), (0.75, 1)])
def test_published_stop_thresholds(published, epsilon, k):
    assert partition(published, epsilon=epsilon) == partition(published, k)


def test_published_gains(published):
    fractions = [partition(published, k).cut_fraction for k in (1, 2, 3, 4, 5)]
    assert np.diff(fractions) == pytest.approx([0.722, 0.108, 0.093, 0.022], abs=5e-4)


@given(st.lists(st.integers(2, 4), min_size=1, max_size=4), st.sampled_from(METHODS[:2]))
@settings(max_examples=30, deadline=None)
def test_planted_phases_are_found(sizes, method):
    """Distance 0 inside, 0.3 across: the planted phases cut all the weight, by k and by epsilon.

    Sums of 0.3 are rounded, so this also shows that rounding does not count as a gain.
    """
    labels = np.repeat(np.arange(len(sizes)), sizes)
    matrix = 0.3 * (labels[:, None] != labels)
    expected = segments_of(np.cumsum([0, *sizes]).tolist())
    by_k = partition(matrix, len(sizes), method=method)
    assert by_k.segments == expected
    assert by_k.cut_fraction == pytest.approx(1.0 if len(sizes) > 1 else 0.0)
    assert partition(matrix, epsilon=0.0, method=method) == by_k


def test_uniform_sizes_and_random_seed():
    matrix = np.ones((11, 11))
    assert format_segments(partition(matrix, 4, method="uniform").segments) == "1-3 4-6 7-9 10-11"
    drawn = [partition(matrix, 3, method="random", seed=seed) for seed in range(20)]
    assert drawn[7] == partition(matrix, 3, method="random", seed=7)
    assert len({p.segments for p in drawn}) > 5


# --- laws ----------------------------------------------------------------------------------------


@given(requests(), st.sampled_from(METHODS), st.integers(0, 99))
@settings(max_examples=150, deadline=None)
def test_every_partition_is_sound(request, method, seed):
    matrix, k, min_size = request
    cut = partition(matrix, k, method=method, min_size=min_size, seed=seed)
    sizes = Counter(cut.labels)
    assert len(cut.labels) == len(matrix)
    assert list(dict.fromkeys(cut.labels)) == list(range(1, k + 1))
    assert min(sizes.values()) >= min_size
    assert [x for a, b in cut.segments for x in range(a, b + 1)] == list(range(1, len(matrix) + 1))
    assert all(len({cut.labels[i - 1] for i in range(a, b + 1)}) == 1 for a, b in cut.segments)
    assert cut.cut_weight == weight_by_loops(matrix, cut.labels)
    assert cut.cut_fraction * np.triu(matrix).sum() == pytest.approx(cut.cut_weight)
    assert (cut.k, cut.method) == (k, method)
    assert method == "random_scattered" or len(cut.segments) == k


@given(requests())
@settings(max_examples=150, deadline=None)
def test_exact_is_the_earliest_best_contiguous_partition(request):
    matrix, k, min_size = request
    best = max(
        all_edges(len(matrix), k, min_size),
        key=lambda edges: (weight_by_loops(matrix, labels_of(edges)), [-e for e in edges]),
    )
    cut = partition(matrix, k, method="maxcut_exact", min_size=min_size)
    assert cut.segments == segments_of(best)


@given(requests())
@settings(max_examples=100, deadline=None)
def test_maxcut_is_best_first_bisection(request):
    matrix, k, min_size = request
    cut = partition(matrix, k, min_size=min_size)
    assert cut.segments == segments_of(greedy_by_loops(matrix, k, min_size))
    exact = partition(matrix, k, method="maxcut_exact", min_size=min_size)
    assert exact.cut_weight >= cut.cut_weight


@given(distances(), st.integers(1, 2), st.floats(0, 0.5))
@settings(max_examples=100, deadline=None)
def test_epsilon_stops_the_bisection_at_the_first_small_gain(matrix, min_size, epsilon):
    least = epsilon * np.triu(matrix).sum()
    cut = partition(matrix, epsilon=epsilon, min_size=min_size)
    coarser = [partition(matrix, k, min_size=min_size) for k in range(1, cut.k + 1)]
    assert cut == coarser[-1]
    assert all(np.diff([p.cut_weight for p in coarser]) > least)
    edges = [0, *(last for _, last in cut.segments)]
    for split in set(range(1, len(matrix))) - set(edges):
        finer = sorted([*edges, split])
        if min(b - a for a, b in pairwise(finer)) >= min_size:
            assert weight_by_loops(matrix, labels_of(finer)) - cut.cut_weight <= least


@given(distances(), st.integers(1, 2), st.floats(0, 0.5))
@settings(max_examples=100, deadline=None)
def test_epsilon_stops_the_exact_method_likewise(matrix, min_size, epsilon):
    most = len(matrix) // min_size
    options = {"method": "maxcut_exact", "min_size": min_size}
    weights = [partition(matrix, k, **options).cut_weight for k in range(1, most + 1)]
    small = np.diff(weights) <= epsilon * np.triu(matrix).sum()
    expected = int(np.argmax(small)) + 1 if small.any() else most
    assert partition(matrix, epsilon=epsilon, **options) == partition(matrix, expected, **options)


@given(distances(), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_exhaustive_bisection_bounds_the_contiguous_optimum(matrix, min_size):
    assume(2 * min_size <= len(matrix))
    greedy, exact = (partition(matrix, 2, method=m, min_size=min_size) for m in METHODS[:2])
    assert exact.segments == greedy.segments  # for k = 2 one split is all there is
    assert exact.cut_weight <= best_bisection(matrix, min_size) <= np.triu(matrix).sum()


@given(monotone())
@settings(max_examples=60, deadline=None)
def test_on_monotone_matrices_the_halves_cut_half_of_the_weight(matrix):
    """So the contiguous optimum is at least half of the exhaustive one.

    Left layer h - r and right layer h + 1 + c are one of h × (n - h) pairs across the halves.
    The pair (h - r, h + 1 + c) with c < r is at least as far apart as the (c + 1)-th pair inside
    the left half that starts at h - r; with r < c it likewise outweighs one pair inside the right
    half. No pair across is used twice, so inside weighs no more than across.
    """
    total = np.triu(matrix).sum()
    halves = partition(matrix, 2, method="uniform", min_size=1)
    exact = partition(matrix, 2, method="maxcut_exact", min_size=len(matrix) // 2)
    assert halves.cut_weight >= total / 2
    assert exact.cut_weight >= best_bisection(matrix) / 2


def test_monotone_does_not_make_the_best_bisection_contiguous():
    """Layers 2 and 3 alike, all others 1 apart: {1, 4 | 2, 3} cuts 4, no contiguous cut over 3."""
    matrix = 1.0 - np.eye(4)
    matrix[1, 2] = matrix[2, 1] = 0
    assert partition(matrix, 2, method="maxcut_exact", min_size=1).cut_weight == 3
    assert best_bisection(matrix) == weight_by_loops(matrix, [1, 2, 2, 1]) == 4


@pytest.mark.parametrize("depth", range(2, 12))
def test_at_constant_speed_the_best_bisection_is_the_two_halves(depth):
    layers = np.arange(depth)
    matrix = np.abs(layers[:, None] - layers).astype(float)
    cut = partition(matrix, 2, min_size=1)
    assert cut.segments == ((1, depth // 2), (depth // 2 + 1, depth))
    assert cut.cut_weight == best_bisection(matrix)


@given(requests(), st.sampled_from(METHODS[:2]))
@settings(max_examples=100, deadline=None)
def test_scale_and_diagonal_do_not_matter(request, method):
    """Tenths are rounded where integers are exact: ties are still broken alike."""
    matrix, k, min_size = request
    cut = partition(matrix, k, method=method, min_size=min_size)
    other = 0.1 * matrix + 3 * np.eye(len(matrix))
    scaled = partition(other, k, method=method, min_size=min_size)
    assert scaled.segments == cut.segments
    assert scaled.cut_weight == pytest.approx(0.1 * cut.cut_weight)


def test_random_is_uniform_over_all_contiguous_partitions():
    options = [segments_of(edges) for edges in all_edges(8, 3, 2)]
    matrix, draws = np.ones((8, 8)), 1200
    counts = Counter(partition(matrix, 3, method="random", seed=s).segments for s in range(draws))
    assert set(counts) == set(options)
    expected = draws / len(options)
    chi_square = sum((counts[o] - expected) ** 2 / expected for o in options)
    assert chi_square < 20.5  # 5 degrees of freedom, p = 0.001


@given(st.integers(2, 9), st.integers(1, 9), st.integers(0, 500))
@settings(max_examples=80, deadline=None)
def test_scattered_has_the_sizes_of_random_and_is_not_contiguous(depth, k, seed):
    assume(k <= depth)
    matrix = np.ones((depth, depth))
    scattered, contiguous = (
        partition(matrix, k, method=m, min_size=1, seed=seed)
        for m in ("random_scattered", "random")
    )
    sizes = [sorted(Counter(p.labels).values()) for p in (scattered, contiguous)]
    assert sizes[0] == sizes[1]
    assert (len(scattered.segments) > k) == (1 < k < depth)


# --- what is refused -----------------------------------------------------------------------------


def with_entry(row, column, value):
    matrix = np.ones((4, 4))
    matrix[row, column] = value
    return matrix


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((np.ones((4, 4)), 5), {}, "k = 5 is more than the 4 layers"),
        ((np.ones((4, 4)), 3), {}, "need 6 layers, there are 4"),
        ((np.ones((4, 4)), -1), {}, "k = -1; give"),
        ((np.ones((4, 4)), 0), {}, "k = 0; give"),
        ((np.ones((4, 4)),), {}, "neither of k and epsilon"),
        ((np.ones((4, 4)), 2), {"epsilon": 0.1}, "both of k and epsilon"),
        ((np.ones((4, 4)),), {"epsilon": 1.5}, r"epsilon = 1.5; give a fraction"),
        ((np.ones((4, 4)),), {"epsilon": 0.1, "method": "uniform"}, "does not stop method uniform"),
        ((np.ones((4, 4)), 2), {"method": "kmeans"}, "'kmeans' is not one of"),
        ((np.ones((4, 4)), 2), {"min_size": 0}, "min_size = 0"),
        ((np.ones((4, 4)),), {"epsilon": 0.1, "min_size": 5}, "min_size = 5 is more than the 4"),
        ((np.ones((4, 3)), 2), {}, r"shape \(4, 3\)"),
        ((np.ones((0, 0)), 1), {}, r"shape \(0, 0\)"),
        ((with_entry(1, 2, np.nan), 2), {}, "layers 2 and 3 is nan"),
        ((with_entry(3, 0, np.inf), 2), {}, "layers 4 and 1 is inf"),
        ((with_entry(0, 2, 2.0), 2), {}, r"not symmetric at layers 1 and 3 \(2 against 1\)"),
    ],
)
def test_bad_requests_are_one_clear_sentence(arguments, options, message):
    with pytest.raises(RaptorError, match=message) as error:
        partition(*arguments, **options)
    assert "\n" not in str(error.value)


# --- stability ----------------------------------------------------------------------


def planted(*labels):
    labels = np.array(labels)
    return (labels[:, None] != labels).astype(float)


@pytest.mark.parametrize("method", METHODS[:2])
def test_stability_counts_the_planted_resamples(method):
    early, late = planted(1, 1, 2, 2, 2, 2), planted(1, 1, 1, 1, 2, 2)
    resamples = np.stack([early, early, early, late])
    stable = boundary_stability(early, resamples, 2, method=method, min_size=2)
    assert stable.chosen.segments == ((1, 2), (3, 6))
    assert stable.frequency == (0.0, 0.75, 0.0, 0.25, 0.0)
    assert (stable.exact_share, stable.n_resamples) == (0.75, 4)


@pytest.mark.parametrize(
    ("depth", "k", "min_size", "possible"), [(8, 3, 1, 21), (8, 2, 1, 7), (9, 3, 2, 10)]
)
def test_random_draws_are_distinct_as_long_as_they_can_be(depth, k, min_size, possible):
    matrix = np.ones((depth, depth)) - np.eye(depth)

    def drawn(count):
        seeds = distinct_seeds(depth, k, draws=count, min_size=min_size, seed=0)
        cut = lambda seed: partition(matrix, k, method="random", min_size=min_size, seed=seed)
        return [cut(seed).labels for seed in seeds]

    assert contiguous_count(depth, k, min_size) == possible
    often = drawn(2 * possible + 3)
    assert len(set(often[:possible])) == possible
    assert set(Counter(often).values()) == {2, 3}
    assert drawn(5) == often[:5]  # more draws keep those before


def test_methods_are_those_of_the_configuration():
    assert get_args(Method) == METHODS


def test_runs_are_maximal():
    assert runs([1, 1, 2, 1, 3, 3]) == ((1, 2), (3, 3), (4, 4), (5, 6))


def test_import_is_light():
    heavy = "{'torch', 'pandas', 'pydantic'}"
    code = f"import sys, raptor.partition, raptor.phases; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
