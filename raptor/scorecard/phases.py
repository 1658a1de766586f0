"""Claims about the phases: blocks of similarity, their training, jumps of speed, layer swaps."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
import pandas as pd

from raptor.contrast import block_contrast
from raptor.partition import partition
from raptor.scorecard.evidence import EXACT, Evidence
from raptor.scorecard.intervals import (
    contiguous_partitions,
    mean,
    of_mean_profile,
    percentiles,
    placement,
    resample_counts,
)
from raptor.scorecard.thresholds import HARMLESS, IMAGES, STEADY, SWAPS
from raptor.scorecard.verdicts import Estimate, Finding, NotTested, Part, joined
from raptor.tables.swap_gap import cross_products, gap

ONE_SIDED = "each end of its interval a one-sided 95 % bound"


def blocks(evidence: Evidence) -> Finding:
    """Claim 1: two layers of one phase are more alike than two of different phases.

    Similarity falls with the distance in depth whether there are blocks or not, so layers are
    compared at equal distance. Bisection can miss the best cut, and phases must not follow from
    the search: each interval also holds that of the exact optimum. Two parts: (a) an exact
    permutation test, the contrast of the Max-Cut phases among those of all contiguous partitions
    into k segments; (b) its size, with a bootstrap over images. Max-Cut chose the phases on the
    same images: what it gains by that is estimated by cutting every resample anew, and taken off
    in both (Efron's optimism).
    """
    teacher = evidence.teacher
    methods = evidence.methods(teacher)
    above, size = (
        functools.reduce(joined, found)
        for found in zip(*(_blocks(evidence, teacher, method) for method in methods), strict=True)
    )
    others = contiguous_partitions(len(evidence.labels(teacher)), evidence.k, evidence.min_size)
    n, note = _images(evidence)
    return Finding(
        f"exact permutation test ({ONE_SIDED}) over the {len(others)} contiguous partitions into "
        f"{evidence.k} segments, and bootstrap over images, of the similarity within minus across "
        f"phases at equal distance in depth{_by(methods)}",
        (Part("contrast above that of other partitions", above), Part("contrast", size)),
        n,
        "images",
        f"{note}{_told(evidence, methods, teacher)}",
    )


def training_makes_phases(evidence: Evidence) -> Finding:
    """Claim 8: the block contrast of the trained teacher exceeds that of its initial weights.

    Each is cut by Max-Cut into k phases of its own; bootstrap over images, the same draws for
    both. As the plain contrast grows with how far the states move, the contrast at equal
    distance in depth (claim 1) must exceed that of the untrained teacher too.
    """
    if evidence.untrained is None:
        raise NotTested("there is no untrained teacher")
    names = (evidence.teacher, evidence.untrained)
    methods = evidence.methods(*names)
    plain, matched = (
        functools.reduce(
            joined,
            [
                _difference(*(measure(evidence, name, method) for name in names))
                for method in methods
            ],
        )
        for measure in (_contrast, _matched_contrast)
    )
    n, note = _images(evidence)
    return Finding(
        f"bootstrap over images of the block contrast (k = {evidence.k}) of the trained "
        f"minus that of the untrained teacher{_by(methods)}",
        (
            Part("difference", plain),
            Part("difference at equal distance in depth", matched),
        ),
        n,
        "images",
        f"{note}{_told(evidence, methods, *names)}",
    )


def speed_jumps(evidence: Evidence) -> Finding:
    """Claim 12: the angular speed is near-stationary inside a phase and jumps at its boundaries.

    The speed of layer l is the angle from state l - 1 to state l; it is at a boundary when the
    two layers lie in different phases (l = 2..L, as the embedding has no phase). Three parts:
    (a) speed at boundaries minus inside, paired per image; (b) the same difference of the mean
    profile against all other places for as many boundaries, an exact permutation test, without
    which any uneven profile would pass (a); (c) the spread inside phases over the mean speed
    there, where a phase has several such layers. As in claim 1, each interval also holds that of
    the exact optimum.
    """
    methods = evidence.methods(evidence.teacher)
    cuts = [evidence.labels(evidence.teacher, method) for method in methods]
    depth, speeds_NL = len(cuts[0]), evidence.profile("all", "speed", first=2)
    if speeds_NL.shape[1] != depth - 1:
        raise NotTested(f"the speeds are of {speeds_NL.shape[1] + 1} layers, the phases of {depth}")
    partitions = contiguous_partitions(depth, evidence.k, evidence.min_size)
    found = [_speed_parts(speeds_NL, cut, partitions) for cut in cuts]
    return Finding(
        f"angular speed paired by image, and exact permutation test ({ONE_SIDED}) over "
        f"{len(partitions)} contiguous partitions{_by(methods)}",
        tuple(
            dataclasses.replace(
                part, estimate=functools.reduce(joined, [one[name].estimate for one in found])
            )
            for name, part in found[0].items()
            if all(name in one for one in found)
        ),
        len(speeds_NL),
        "images",
    )


def swaps_inside_are_harmless(evidence: Evidence) -> Finding:
    """Claim 16: swaps inside a phase are harmless, swaps across phases destructive.

    (a) Drop in accuracy across minus inside, of the same replaced layers and with the distance in
    depth allowed for; (b) for each number of layers, the drop inside against HARMLESS
    of the accuracy above chance. Bootstrap over sets of layers replaced, since swaps of the same
    layers are no independent trials; the test images are the same in all.
    """
    table = evidence.of_teacher("swaps")
    table = table[table["kind"].isin(("intra", "inter"))]
    first = table.iloc[0]
    harmless = HARMLESS * (first["accuracy_teacher"] - first["chance"])
    parts = [
        Part(
            "across minus inside, same layers replaced, distance allowed for,",
            _gap(table),
            unit="points",
        )
    ]
    inside = table[table["kind"] == "intra"]
    for size, some in inside.groupby("size", sort=True):
        drop = _mean_drop(some, int(size))
        name = f"drop inside, {size} layer{'s' if size > 1 else ''},"
        parts.append(Part(name, drop, harmless, above=False, unit="points"))
    return Finding(
        "bootstrap over sets of replaced layers",
        tuple(parts),
        len(table),
        "swaps",
        _dearest(inside),
    )


# --- block contrast -----------------------------------------------------------------------------


def _blocks(evidence: Evidence, teacher: str, method: str) -> tuple[Estimate, Estimate]:
    """The contrast at equal distance among those of all partitions, and its size."""
    labels, (distance_LL, _) = evidence.labels(teacher, method), evidence.distance(teacher)
    others = [
        float(block_contrast(-distance_LL, other, matched=True))
        for other in contiguous_partitions(len(labels), evidence.k, evidence.min_size)
        if other != labels
    ]
    size = _matched_contrast(evidence, teacher, method)
    return placement(size[0], others), percentiles(*size)


def _by(methods: Sequence[str]) -> str:
    both = ", phases by Max-Cut as published; each interval also holds that of the exact optimum"
    return both if EXACT in methods else ", phases by Max-Cut"


def _told(evidence: Evidence, methods: Sequence[str], *teachers: str) -> str:
    """The size at equal distance by each method, where their phases differ."""
    if all(
        evidence.labels(name, method) == evidence.labels(name)
        for name in teachers
        for method in methods
    ):
        return ""
    sizes = [
        " and ".join(f"{_matched_contrast(evidence, name, method)[0]:.3f}" for name in teachers)
        for method in methods
    ]
    return (
        f"; the two ways to cut differ: contrast at equal distance {sizes[0]} as published, "
        f"{sizes[1]} by the optimum"
    )


def _contrast(evidence: Evidence, teacher: str, method: str) -> tuple[float, np.ndarray]:
    """Block contrast under the teacher's own phases, and of each resample."""
    labels = evidence.labels(teacher, method)
    distance_LL, resamples_RLL = evidence.distance(teacher)
    value = float(block_contrast(-distance_LL, labels))
    return value, block_contrast(-resamples_RLL, labels)


def _matched_contrast(evidence: Evidence, teacher: str, method: str) -> tuple[float, np.ndarray]:
    """The contrast at equal distance in depth, less its optimism, and of each resample."""
    labels = evidence.labels(teacher, method)
    distance_LL, resamples_RLL = evidence.distance(teacher)
    optimism = np.mean(_gained_by_cutting(evidence, method, distance_LL, resamples_RLL))
    value = float(block_contrast(-distance_LL, labels, matched=True))
    draws = block_contrast(-resamples_RLL, labels, matched=True)
    return value - optimism, draws - optimism


def _gained_by_cutting(
    evidence: Evidence, method: str, distance_LL: np.ndarray, resamples_RLL: np.ndarray
) -> list[float]:
    """By how much the phases found on a resample do better there than on the images themselves."""
    gains = []
    for one_LL in resamples_RLL:
        found = partition(one_LL, evidence.k, method=method, min_size=evidence.min_size).labels
        gains.append(float(block_contrast(distance_LL - one_LL, found, matched=True)))
    return [gain for gain in gains if not np.isnan(gain)] or [np.nan]


def _difference(a: tuple[float, np.ndarray], b: tuple[float, np.ndarray]) -> Estimate:
    both = min(len(a[1]), len(b[1]))
    return percentiles(a[0] - b[0], a[1][:both] - b[1][:both])


def _images(evidence: Evidence) -> tuple[int, str]:
    """How many images the similarity is a mean over."""
    table = evidence.of_teacher("similarity")
    n = int(table.loc[table["measure"] == evidence.measure, "n"].max())
    if n < IMAGES:
        raise NotTested(f"{n} images, at least {IMAGES} are needed")
    return n, "phases held fixed in the bootstrap"


# --- speed --------------------------------------------------------------------------------------


def _speed_parts(
    speeds_NL: np.ndarray, labels: Sequence[int], partitions: Sequence[Sequence[int]]
) -> dict[str, Part]:
    """The parts of claim 12 for one cut, by name."""
    profile_L = speeds_NL.mean(axis=0)
    others = [_jump(profile_L, other) for other in partitions if other != labels]
    parts = [
        Part("boundary minus inside (rad)", mean(_jump(speeds_NL, labels), IMAGES, "images")),
        Part("above other boundaries (rad)", placement(float(_jump(profile_L, labels)), others)),
    ]
    phase_L = np.where(np.diff(labels) == 0, labels[1:], 0)
    if any((phase_L == phase).sum() > 1 for phase in set(labels)):
        spread = of_mean_profile(speeds_NL, lambda rows: _spread_inside(rows, phase_L), "steady")
        parts.append(Part("spread inside over mean speed", spread, STEADY, above=False))
    return {part.name: part for part in parts}


def _jump(speeds: np.ndarray, labels: Sequence[int]) -> np.ndarray:
    """Mean speed (…) at boundaries minus inside, of speeds (…, L - 1) of the layers 2..L."""
    boundary_L = np.diff(labels) != 0
    return speeds[..., boundary_L].mean(axis=-1) - speeds[..., ~boundary_L].mean(axis=-1)


def _spread_inside(speeds_RL: np.ndarray, phase_L: np.ndarray) -> np.ndarray:
    """Pooled sd inside phases over the mean; `phase_L` is 0 at a boundary."""
    squares, freedom = 0.0, 0
    for phase in sorted(set(phase_L) - {0}):
        inside_RL = speeds_RL[:, phase_L == phase]
        squares = squares + ((inside_RL - inside_RL.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
        freedom += inside_RL.shape[1] - 1
    return np.sqrt(squares / freedom) / speeds_RL[:, phase_L > 0].mean(axis=1)


# --- swaps --------------------------------------------------------------------------------------


def _gap(table: pd.DataFrame) -> Estimate:
    """Drop across minus inside, like with like (`raptor.tables.swap_gap`), over sets resampled."""
    _sets(table)  # enough of them
    squares, products = cross_products(table)
    if np.isnan(gap(squares.sum(axis=0), products.sum(axis=0))):
        raise NotTested("no layers are replaced both from inside their phase and from across")
    counts_RS = resample_counts(len(squares), "swaps", "gap").astype(float)
    draws = gap(np.einsum("rs,sij->rij", counts_RS, squares), counts_RS @ products)
    return percentiles(float(gap(squares.sum(axis=0), products.sum(axis=0))), draws)


def _mean_drop(table: pd.DataFrame, size: int) -> Estimate:
    sets, drop = _sets(table), table["drop"].to_numpy()
    counts_RN = resample_counts(sets.max() + 1, "swaps", "inside", size)[:, sets]
    return percentiles(float(drop.mean()), counts_RN @ drop / counts_RN.sum(axis=1))


def _dearest(inside: pd.DataFrame) -> str:
    """Which single layers cost most, as a mean over layers may hide that one or two cost all."""
    alone = inside[inside["size"] == 1].groupby("targets")["drop"].mean().sort_values()
    if len(alone) < 4:
        return ""
    *others, second, first = (100 * alone).items()
    return (
        f"of single layers inside, replacing layer {first[0].strip('[]')} costs {first[1]:.1f} "
        f"points, {second[0].strip('[]')} {second[1]:.1f}, any other at most {others[-1][1]:.1f}"
    )


def _sets(table: pd.DataFrame) -> np.ndarray:
    """The number of the set of layers that each swap replaces."""
    sets, names = pd.factorize(table["targets"], sort=True)
    if len(names) < SWAPS:
        raise NotTested(f"{len(names)} sets of replaced layers, at least {SWAPS} are needed")
    return sets
