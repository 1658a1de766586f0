"""Intervals and tests against other libraries, enumeration, and their error rates."""

from __future__ import annotations

from itertools import permutations
from math import comb

import numpy as np
import pandas as pd
import planted
import pytest
from scipy import stats

from raptor.partition import contiguous_count, partition
from raptor.scorecard import dynamics, phases
from raptor.scorecard.intervals import (
    contiguous_partitions,
    kendall_counts,
    mean,
    placement,
    smallest,
    standardised,
    theil_sen,
    with_images,
)

RNG = np.random.default_rng


@pytest.mark.parametrize("n", [3, 4, 5, 6])
def test_kendall_counts_are_those_of_all_orders(n):
    discordant = [
        sum(order[i] > order[j] for i in range(n) for j in range(i + 1, n))
        for order in permutations(range(n))
    ]
    assert kendall_counts(n).tolist() == np.bincount(discordant).tolist()


def test_theil_sen_agrees_with_scipy_and_reaches_no_further_than_its_permutations_allow():
    x, y = np.arange(8.0), np.array([0.0, 1.1, 1.9, 3.2, 3.9, 5.1, 5.8, 7.2])
    found = theil_sen(x, y)
    assert found.value == pytest.approx(stats.theilslopes(y, x).slope)
    assert 0 < found.low < found.value < found.high
    assert np.isinf(theil_sen(x[:4], y[:4])[1:]).all()  # 1 of 24 orders is more than 2.5 %
    five = theil_sen(x[:5], y[:5])
    slopes = [(y[j] - y[i]) / (j - i) for i in range(5) for j in range(i + 1, 5)]
    assert five[1:] == (min(slopes), max(slopes))


def test_theil_sen_rarely_finds_a_slope_in_noise():
    rng, x = RNG(0), np.arange(7.0)
    wrong = [theil_sen(x, rng.normal(size=7)) for _ in range(400)]
    assert np.mean([one.low > 0 or one.high < 0 for one in wrong]) < 0.07


def test_placement_counts_ranks():
    others = list(range(20))  # 21 values: one of them may be the most extreme at 5 %
    assert placement(20.0, others).low > 0
    assert placement(18.5, others)[1:] == (-0.5, 18.5)
    assert placement(-1.0, others).high < 0
    assert np.isinf(placement(100.0, others[:18])[1:]).all()  # 1 / 19 is more than 5 %
    assert placement(38.5, range(40)).low > 0  # the second of 41: 2 / 41
    assert placement(37.5, range(40)).low < 0


def test_contiguous_partitions_are_all_of_them():
    found = contiguous_partitions(8, 3, 1)
    assert len(set(found)) == len(found) == comb(7, 2)
    assert all(sorted(labels) == list(labels) and set(labels) == {1, 2, 3} for labels in found)
    assert len(contiguous_partitions(12, 3, 2)) == comb(12 - 6 + 2, 2)


def test_the_smallest_mean_is_neither_missed_nor_made_up():
    rng, wrong_for, wrong_against = RNG(3), 0, 0
    for _ in range(300):
        flat = smallest(rng.normal(0, 1, (40, 10)))
        wrong_against += flat.high < 0
        low = smallest(rng.normal(0, 1, (40, 10)) + np.array([0.0] + [3.0] * 9))
        wrong_for += low.low > 0
    assert wrong_against / 300 < 0.05
    assert wrong_for / 300 < 0.05


# --- error rates: how often a claim that is just not true, or just true, is called -----------


def test_sigmas_cover_the_true_distance():
    """At a true distance of one sigma neither end lies beyond it more often than 5 %."""
    rng, above, below = RNG(4), 0, 0
    for _ in range(400):
        found = standardised(rng.normal(1, 0.3, 3), rng.normal(0, 1, 10))
        above, below = above + (found.low > 1), below + (found.high < 1)
    assert above / 400 < 0.05
    assert below / 400 < 0.05


def test_accuracy_kept_covers_the_true_share():
    """Three students, each on the same 1,000 images as its teacher, on which errors agree."""
    rng, missed = RNG(5), 0
    for _ in range(300):
        hard = rng.random(1000)  # the teacher errs on the hardest 4 %, students on 6 %
        teacher = (hard < 0.96).mean()
        truth, kept, accuracy = 0.94 / 0.96, [], []
        for _ in range(3):
            accuracy.append((hard + rng.normal(0, 0.01, 1000) < 0.94).mean())
            kept.append(accuracy[-1] / teacher)
        found = with_images(mean(kept, 3, ""), float(np.mean(accuracy)), 1000, 1 / teacher)
        missed += not found.low <= truth <= found.high
    assert missed / 300 < 0.07


def test_blocks_are_rarely_found_where_there_are_none():
    """Claim 1 on 200 teachers whose layers differ by their distance alone, cut by Max-Cut."""
    found = []
    for seed in range(200):
        layers = planted.resampled(planted.toeplitz(0.01), 0.2, seed, n=40, resamples=25)
        finding = phases.blocks(planted.similar(layers))
        found.append([part.verdict == "supported" for part in finding.parts])
    assert np.mean(np.all(found, axis=1)) <= 0.07
    # Nor is its size alone: what Max-Cut gains by choosing is taken off.
    assert np.mean(found, axis=0)[1] <= 0.12


def test_jumps_are_rarely_found_where_speeds_have_no_order():
    """Claim 12 on 200 teachers whose speed differs by layer, but not by phase."""
    rng, found = RNG(6), []
    index = {"image": np.repeat(range(12), planted.DEPTH), "tokens": "all", "model": "teacher"}
    index |= {"layer": np.tile(planted.LAYERS[1:], 12), "teacher": "vit"}
    for _ in range(200):
        speeds = rng.normal(0.5, 0.05, planted.DEPTH) + rng.normal(0, 0.01, (12, planted.DEPTH))
        images = pd.DataFrame(index).assign(speed=speeds.ravel())
        finding = phases.speed_jumps(planted.evidence(images=images, partitions=planted.cuts()))
        found.append([part.verdict == "supported" for part in finding.parts[:2]])
    by_image, placed = np.mean(found, axis=0)
    assert by_image > 0.3  # images alone would be no test
    assert placed <= 0.07
    assert np.mean(np.all(found, axis=1)) <= 0.07


# --- S-curves ------------------------------------------------------------------------------------


def test_the_s_curve_is_found_where_it_is():
    layer = np.arange(13.0)
    curve = 0.1 + 0.9 / (1 + np.exp(-(layer - 7.2) / 1.5))
    gain, inflection = dynamics._s_curve(np.stack([curve, 0.05 * layer]))
    assert gain[0] > 20
    assert gain[1] < 0
    assert inflection[0] == pytest.approx(7.2, abs=0.13)  # of the grid
    assert np.isnan(dynamics._s_curve(-curve[None])[1][0])
    ends = dynamics._inflection_inside(12)(np.stack([curve, -curve, 1 - np.exp(-layer / 3)]))
    # A curve that falls has none; one that is steepest at the first layer has none inside.
    assert ends == pytest.approx([12 - 7.2, 0, 0], abs=0.13)


def test_how_many_partitions_there_are():
    for k in (2, 3, 4):
        for least in (1, 2, 3):
            there = len(contiguous_partitions(planted.DEPTH, k, least))
            assert contiguous_count(planted.DEPTH, k, least) == there
    assert planted.maxcut_beats_random("true").depth == planted.DEPTH
    assert partition(planted.phases(), 3, min_size=1).labels == planted.LABELS
