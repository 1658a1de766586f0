"""The statistics behind the verdicts: t, bootstrap and exact permutation intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import combinations
from math import factorial, inf, sqrt

import numpy as np
from scipy.special import nctdtrinc, stdtrit

from raptor.scorecard.thresholds import CONFIDENCE, LEVEL, RESAMPLES
from raptor.scorecard.verdicts import Estimate, NotTested
from raptor.seeds import derive_seed
from raptor.tables.summary import summarise

PERCENTILES = (50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE))
NORMAL = 1.959963984540054  # its two-sided 95 % quantile


def mean(values: Sequence[float], least: int, what: str) -> Estimate:
    """Mean and 95 % t interval; NotTested with fewer than `least` values (called `what`)."""
    found = summarise(values)
    if found.n < least:
        raise NotTested(f"too few {what}: {found.n}, at least {least} are needed")
    return Estimate(found.mean, found.ci_low, found.ci_high)


def with_images(estimate: Estimate, accuracy: float, n_test: int, scale: float = 1.0) -> Estimate:
    """`estimate` (over seeds) with the binomial error of `scale` · accuracy on `n_test` images.

    The seeds share their test images, so the two errors are independent: half-widths are added
    in squares. Agresti and Coull's two hits and two misses keep the error of a perfect score
    from being zero.
    """
    share = (accuracy * n_test + 2) / (n_test + 4)
    images = NORMAL * sqrt(share * (1 - share) / (n_test + 4)) * scale
    value, low, high = estimate
    return Estimate(value, value - np.hypot(value - low, images),
                    value + np.hypot(high - value, images))  # fmt: skip


def standardised(chosen: np.ndarray, others: np.ndarray) -> Estimate:
    """Mean of `chosen` minus that of `others`, in sd of `others`, with its 95 % interval.

    Inverts the noncentral t distribution (Hedges & Olkin 1985), the variance of the mean of
    `chosen` added to that of the mean of `others`. A percentile bootstrap is no match: of ten
    others and a true distance of 1 its lower end lies above 1 in one case of eight.
    """
    sd = others.std(ddof=1)
    scale = np.sqrt(1 / len(others) + chosen.var(ddof=1) / len(chosen) / sd**2)
    t = (chosen.mean() - others.mean()) / sd / scale
    low, high = (
        nctdtrinc(len(others) - 1, (1 + sign * CONFIDENCE) / 2, t) * scale for sign in (1, -1)
    )
    return Estimate(float(t * scale), float(low), float(high))


def smallest(values_NS: np.ndarray) -> Estimate:
    """The smallest of S means over N images, for a claim about all of them.

    Lower end: the lowest of their 95 % t intervals, as all must lie above a threshold
    (intersection-union test). Upper end: the lowest upper end, at 5 % / S each, as any of S may
    lie below one (Bonferroni). A bootstrap of the minimum would be biased downwards.
    """
    n, steps = values_NS.shape
    means, errors = values_NS.mean(axis=0), values_NS.std(axis=0, ddof=1) / sqrt(n)
    tail = (1 - CONFIDENCE) / 2
    low, high = (stdtrit(n - 1, 1 - tail / m) * errors for m in (1, steps))
    return Estimate(float(means.min()), float((means - low).min()), float((means + high).min()))


def percentiles(value: float, draws: np.ndarray) -> Estimate:
    """95 % percentile interval of the draws that are defined."""
    draws = draws[~np.isnan(draws)]
    if not len(draws):
        return Estimate(value, np.nan, np.nan)
    low, high = np.percentile(draws, PERCENTILES)
    return Estimate(float(value), float(low), float(high))


def resample_counts(units: int, *names: object) -> np.ndarray:
    """(R, units): how often each unit is drawn, with replacement; the same for the same names."""
    rng = np.random.default_rng(derive_seed(0, "scorecard", *names))
    return rng.multinomial(units, np.full(units, 1 / units), size=RESAMPLES)


def of_mean_profile(
    values_NL: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray], *names: object
) -> Estimate:
    """`statistic` of the mean over images, with a percentile bootstrap over images.

    `statistic` maps profiles (R, L) to numbers (R,).
    """
    counts_RN = resample_counts(len(values_NL), *names)
    draws = statistic(counts_RN @ values_NL / len(values_NL))
    return percentiles(float(statistic(values_NL.mean(axis=0)[None])[0]), draws)


def placement(observed: float, others: Sequence[float]) -> Estimate:
    """How far `observed` lies from what other partitions give: an exact permutation test.

    Of N values, `observed` among them, all ranks are equally likely under the null; it is above
    (below) them at LEVEL when it lies strictly above (below) all but the ⌊LEVEL · N⌋ − 1 most
    extreme of the others. The interval is its distance to these; unbounded where N < 1 / LEVEL.
    """
    others = np.sort(np.asarray(others, dtype=float))
    others = others[~np.isnan(others)]
    spare = int(LEVEL * (len(others) + 1) + 1e-9) - 1
    if not len(others) or spare < 0:
        return Estimate(observed - (others.mean() if len(others) else observed), -inf, inf)
    return Estimate(
        float(observed - others.mean()),
        float(observed - others[-1 - spare]),
        float(observed - others[spare]),
    )


def theil_sen(x: Sequence[float], y: Sequence[float]) -> Estimate:
    """Median slope, with the interval from the exact permutation distribution of Kendall's S.

    Sen (1968), Hollander & Wolfe (1999, 9.3). The x must be distinct. Unbounded with fewer than
    five points, where no ordering is rarer than 2.5 % on either side.
    """
    first, second = np.triu_indices(len(x), 1)
    x, y = np.asarray(x), np.asarray(y)
    slopes = np.sort((y[second] - y[first]) / (x[second] - x[first]))
    counts = kendall_counts(len(x))
    pairs = len(slopes)
    tails = np.cumsum(counts) / factorial(len(x))  # P(at most d of the pairs are discordant)
    discordant = int(np.searchsorted(tails, (1 - CONFIDENCE) / 2, side="right")) - 1
    if discordant < 0:
        return Estimate(float(np.median(slopes)), -inf, inf)
    return Estimate(
        float(np.median(slopes)), float(slopes[discordant]), float(slopes[pairs - 1 - discordant])
    )


def kendall_counts(n: int) -> np.ndarray:
    """Permutations of n things with d = 0, 1, … discordant pairs (Mahonian numbers)."""
    counts = np.ones(1)
    for size in range(2, n + 1):
        counts = np.convolve(counts, np.ones(size))
    return counts


@lru_cache
def contiguous_partitions(depth: int, k: int, min_size: int) -> tuple[tuple[int, ...], ...]:
    """Labels of the layers 1..depth under every contiguous partition into k segments."""
    found = []
    for inner in combinations(range(1, depth), k - 1):
        sizes = np.diff([0, *inner, depth])
        if sizes.min() >= min_size:
            found.append(tuple(np.repeat(np.arange(1, k + 1), sizes).tolist()))
    return tuple(found)
