"""Claims about the dynamics of states: direction, speed, updates, perturbations, linear modes.

Images are the units: their spread says how sure a number of this teacher is, not how another
teacher would fare.
"""

from __future__ import annotations

import numpy as np

from raptor.scorecard.evidence import Evidence
from raptor.scorecard.intervals import mean, of_mean_profile, smallest
from raptor.scorecard.thresholds import (
    DIP,
    FITS,
    IMAGES,
    INFLECTION,
    LATE,
    SMALL,
    SPECTRAL_RADIUS,
)
from raptor.scorecard.verdicts import Finding, NotTested, Part

TOKENS = ("cls", "patches", "registers")
SLOPES = np.geomspace(0.02, 1.0, 16)  # of the logistic curves tried, as shares of the depth
MIDDLES = np.linspace(-0.5, 1.5, 101)
TINY = 1e-12  # residual below which a fit is exact


def converges_in_s_curve(evidence: Evidence) -> Finding:
    """Claim 9: γ_l = ⟨x̂_l, x̂_L⟩ rises to 1 in an S-curve, and norms keep growing.

    For cls and patches: (a) no step of the mean curve is a dip (`smallest`); (b) a logistic
    curve fits it better than a straight line by AIC; (c) its inflection lies inside the depth,
    by its distance from the nearer end (0 for one outside); (d) the norm at L over that at
    layer 1, log, by image. (b) and (c) with a bootstrap over images, (d) a t interval; γ_L = 1 by
    definition.
    """
    parts = []
    for tokens in _present(evidence, ("cls", "patches")):
        gamma_NS = evidence.profile(tokens, "direction", first=0)
        norm_NL = evidence.profile(tokens, "norm")
        depth = gamma_NS.shape[1] - 1
        curves = {
            "AIC of a line minus that of an S-curve": (lambda rows: _s_curve(rows)[0], 0.0),
            "layers from inflection to an end": (_inflection_inside(depth), INFLECTION),
        }
        steps = smallest(np.diff(gamma_NS, axis=1))
        parts.append(Part(f"{tokens}: smallest step", steps, -DIP))
        parts += [
            Part(f"{tokens}: {name}", of_mean_profile(gamma_NS, statistic, tokens, name), threshold)
            for name, (statistic, threshold) in curves.items()
        ]
        growth = np.log(norm_NL[:, -1] / norm_NL[:, 0])
        parts.append(Part(f"{tokens}: log growth of the norm", mean(growth, IMAGES, "images")))
    return Finding(
        "bootstrap over images of the mean curve, t intervals over images of its steps and of the "
        "norm",
        tuple(parts),
        len(gamma_NS),
        "images",
    )


def cls_turns_last(evidence: Evidence) -> Finding:
    """Claim 10: cls turns sharply in the last phase, patches do not.

    Angular speed in the last phase minus before it: (a) of cls; (b) by how much that of cls
    exceeds that of patches. Paired by image, t intervals.
    """
    labels = np.array(evidence.labels(evidence.teacher))
    last_L = labels[1:] == labels[-1]  # the speeds of layers 2..L
    cls, patches = (evidence.profile(tokens, "speed", first=2) for tokens in ("cls", "patches"))
    if cls.shape[1] != len(last_L) or cls.shape != patches.shape:
        raise NotTested("the speeds are not of the layers that the phases have")
    rise, other = (
        speeds[:, last_L].mean(axis=1) - speeds[:, ~last_L].mean(axis=1)
        for speeds in (cls, patches)
    )
    return Finding(
        f"angular speed (rad) in the last of {evidence.k} phases minus before it, paired by image",
        (
            Part("cls", mean(rise, IMAGES, "images")),
            Part("cls minus patches", mean(rise - other, IMAGES, "images")),
        ),
        len(rise),
        "images",
    )


def registers_move_slowly(evidence: Evidence) -> Finding:
    """Claim 11: registers move more slowly and more steadily than cls and patches.

    (a) mean angular speed over layers 2..L, paired by image, t interval; (b) its sd along the
    depth, of the mean over images, with a bootstrap over images.
    """
    registers = evidence.profile("registers", "speed", first=2)
    parts = []
    for tokens in _present(evidence, ("cls", "patches")):
        others = evidence.profile(tokens, "speed", first=2)
        if others.shape != registers.shape:
            raise NotTested(f"registers and {tokens} are measured on different images")
        slower = others.mean(axis=1) - registers.mean(axis=1)
        both = np.concatenate([others, registers], axis=1)
        steadier = of_mean_profile(
            both,
            lambda rows: np.subtract(*(half.std(axis=1) for half in np.split(rows, 2, axis=1))),
            "registers",
            tokens,
        )
        parts += [
            Part(f"speed of {tokens} minus registers (rad)", mean(slower, IMAGES, "images")),
            Part(f"sd along depth of {tokens} minus registers (rad)", steadier),
        ]
    return Finding(
        "angular speed paired by image, and bootstrap over images of its sd along the depth",
        tuple(parts),
        len(registers),
        "images",
    )


def updates_become_coherent(evidence: Evidence) -> Finding:
    """Claim 13: updates of patches point more alike in the last third of layers than in the middle.

    Paired by image, t interval.
    """
    late, early = _late_and_early(evidence.profile("patches", "coherence"))
    return Finding(
        "coherence of patch updates in the last third of the layers minus the third before it, "
        "paired by image",
        (Part("late minus middle", mean(late - early, IMAGES, "images")),),
        len(late),
        "images",
    )


def update_rank_falls(evidence: Evidence) -> Finding:
    """Claim 14: the effective rank of the update falls late.

    Of patch updates in one image (no more than there are patches): the middle third of the
    layers minus the last third, paired by image, t interval.
    """
    late, early = _late_and_early(evidence.profile("patches", "effective_rank"))
    return Finding(
        "effective rank of patch updates, the middle third of the layers minus the last, paired by "
        "image",
        (Part("middle minus late", mean(early - late, IMAGES, "images")),),
        len(late),
        "images",
        f"late rank {late.mean():.3g}",
    )


def perturbations_shrink(evidence: Evidence) -> Finding:
    """Claim 15: a small perturbation of a state turns it by a smaller angle at the last layer.

    By token type: log(deviation at the source layer / deviation at L) per layer in between, of
    the teacher, for sizes up to SMALL; mean over sizes and source layers of each image, t
    interval over images.
    """
    table = evidence.of_teacher("perturbation")
    table = table[(table["model"] == "teacher") & table["tokens"].isin(TOKENS)]
    table = table[(table["relative_size"] <= SMALL) & (table["deviation"] > 0)]
    if table.empty:
        raise NotTested(f"there is no perturbation of at most {100 * SMALL:.0f} % of the norm")
    ends = table.sort_values("layer", kind="stable").groupby(
        ["tokens", "image", "relative_size", "source_layer"]
    )[["layer", "deviation"]]
    first, last = ends.first(), ends.last()
    whole = (last["layer"] == table["layer"].max()) & (last["layer"] > first["layer"])
    rate = np.log(first["deviation"] / last["deviation"]) / (last["layer"] - first["layer"])
    by_image = rate[whole].groupby(["tokens", "image"]).mean()
    return Finding(
        "contraction of the angle between perturbed and unperturbed tokens (not of their distance, "
        "which grows with the norm) from the source layer to the last, log per layer, "
        f"over sizes up to {100 * SMALL:.0f} % of the norm, t interval over images",
        tuple(
            Part(tokens, mean(rates, IMAGES, "images"))
            for tokens, rates in by_image.groupby("tokens", sort=True)
        ),
        table["image"].nunique(),
        "images",
    )


def modes_are_stable(evidence: Evidence) -> Finding:
    """Claim 17: eigenvalues inside the unit circle, those of cls closest to +1.

    (a) spectral radius, t interval over the fits (phase and token type), its upper end no less
    than the largest of them, as all must lie inside; (b) per phase, how much
    nearer to +1 the nearest eigenvalue of cls is than that of any other token type, t interval.
    """
    table = evidence.of_teacher("dmd")
    table = table[(table["model"] == "teacher") & table["tokens"].isin(TOKENS)]
    radius = table.groupby(["phase", "tokens"])["spectral_radius"].first()
    nearest = table.pivot_table(
        index="phase", columns="tokens", values="nearest_to_one", aggfunc="first"
    )
    if "cls" not in nearest or nearest.shape[1] < 2:
        raise NotTested("the dynamic modes are not those of cls and of another token type")
    inside = mean(radius, FITS, "fits")
    inside = inside._replace(high=max(inside.high, radius.max()))
    others = nearest.drop(columns="cls").min(axis=1)
    nearer = others - nearest["cls"]
    return Finding(
        "t intervals over the linear fits of the spectral radius, its upper end no less than the "
        "largest of them, as all must lie inside, and over phases of how much "
        "nearer to +1 cls has an eigenvalue than other tokens",
        (
            Part("spectral radius", inside, SPECTRAL_RADIUS, above=False),
            Part("cls nearer to +1 by", mean(nearer, FITS, "phases")),
        ),
        len(radius),
        "linear fits, one for each phase and token type",
        f"largest radius {radius.max():.4g}",
    )


def _present(evidence: Evidence, tokens: tuple[str, ...]) -> list[str]:
    return [name for name in tokens if evidence.has(name)]


def _late_and_early(values_NL: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean (N,) over the last third of the layers 1..L, and over the third before it.

    What rises or falls only in the first layers is not late.
    """
    third = max(1, round(values_NL.shape[1] * LATE))
    return values_NL[:, -third:].mean(axis=1), values_NL[:, -2 * third : -third].mean(axis=1)


# --- S-curves -----------------------------------------------------------------------------------


def _s_curve(curves_RS: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How much smaller the AIC of a logistic curve is than that of a line, and its inflection.

    The logistic is a + b / (1 + exp(-(l - m) / s)): best m and s of a grid, a and b by least
    squares, so the best of the grid is found whatever the start. Inflection in layers, NaN where
    the fitted curve falls; at an end of the grid it means that there is none near the depth.
    """
    points = curves_RS.shape[1]
    layer = np.arange(points) / (points - 1)
    middles, slopes = (grid.ravel() for grid in np.meshgrid(MIDDLES, SLOPES))
    shapes_GS = 1 / (1 + np.exp(np.clip(-(layer - middles[:, None]) / slopes[:, None], -500, 500)))
    line, _ = _residual(curves_RS, layer[None])
    squares, rise = _residual(curves_RS, shapes_GS)
    best = squares.argmin(axis=1)[:, None]
    least = np.take_along_axis(squares, best, axis=1)[:, 0]
    rises = np.take_along_axis(rise, best, axis=1)[:, 0] > 0
    gain = points * np.log(np.maximum(line[:, 0], TINY) / np.maximum(least, TINY)) - 2 * (4 - 2)
    inflection = middles[best[:, 0]] * (points - 1)
    return gain, np.where(rises, inflection, np.nan)


def _residual(curves_RS: np.ndarray, shapes_GS: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(R, G): squares left after fitting a + b · shape, and b."""
    centred_RS = curves_RS - curves_RS.mean(axis=1, keepdims=True)
    centred_GS = shapes_GS - shapes_GS.mean(axis=1, keepdims=True)
    size_G = np.maximum((centred_GS**2).sum(axis=1), TINY)
    b_RG = centred_RS @ centred_GS.T / size_G
    return (centred_RS**2).sum(axis=1)[:, None] - b_RG**2 * size_G, b_RG


def _inflection_inside(depth: int):
    """Layers from the inflection to the nearer end of the depth; 0 where it lies outside.

    How far outside is not told by a curve that is only half of an S.
    """

    def statistic(curves_RS: np.ndarray) -> np.ndarray:
        _, inflection = _s_curve(curves_RS)
        return np.maximum(np.nan_to_num(np.minimum(inflection, depth - inflection)), 0.0)

    return statistic
