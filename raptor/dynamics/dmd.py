"""Dynamic mode decomposition: the linear map that takes a phase's states one layer on (Fig. 9).

With unit-norm states x̂ as columns of X (layer l − 1) and Y (layer l), over the transitions of a
phase, its tokens and images: A = Y Xᵀ (X Xᵀ)⁻¹ (Schmid 2010; Tu et al. 2014). Only X Xᵀ and Y Xᵀ
are kept, D × D each. States are not centred, so a direction that all of them share is a mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from raptor.dynamics.directions import unit
from raptor.tokens import TokenLayout


class TransitionMoments:
    """Streamed second moments of pairs (x, y) of unit vectors, in float64."""

    def __init__(self, width: int) -> None:
        self.gram_DD = np.zeros((width, width))  # X Xᵀ
        self.cross_DD = np.zeros((width, width))  # Y Xᵀ
        self.target = 0.0  # ‖Y‖_F²
        self.moved = 0.0  # ‖Y − X‖_F²

    def add(self, before_ND: Tensor, after_ND: Tensor) -> None:
        """Add pairs, one a row; a pair with a vector that is NaN (of norm 0) is left out."""
        kept_N = (before_ND + after_ND).isfinite().all(dim=1)
        before_ND, after_ND = before_ND[kept_N], after_ND[kept_N]
        self.gram_DD += (before_ND.mT @ before_ND).cpu().numpy()
        self.cross_DD += (after_ND.mT @ before_ND).cpu().numpy()
        self.target += float(after_ND.square().sum())
        self.moved += float((after_ND - before_ND).square().sum())


class PhaseMoments:
    """`moments[tokens, phase]` of every token type and segment `(first, last)` of layers.

    The transitions of a segment are those into its layers: l − 1 → l, l = first..last.
    """

    def __init__(self, segments: Sequence[tuple[int, int]], layout: TokenLayout, width: int):
        self.segments = tuple(segments)
        self.layout = layout
        self.images = 0
        self.moments = {
            (tokens, segment): TransitionMoments(width)
            for tokens in layout.slices()
            for segment in self.segments
        }

    def add(self, states_BSTD: Tensor) -> None:
        """Add a block of images with their states a_0..a_L."""
        self.images += len(states_BSTD)
        before_BTD = unit(states_BSTD[:, 0])
        for layer in range(1, states_BSTD.shape[1]):
            now_BTD = unit(states_BSTD[:, layer])
            for segment in self.segments:
                if segment[0] <= layer <= segment[1]:
                    for tokens, span in self.layout.slices().items():
                        pair = before_BTD[:, span].flatten(0, 1), now_BTD[:, span].flatten(0, 1)
                        self.moments[tokens, segment].add(*pair)
            before_BTD = now_BTD


@dataclass(frozen=True)
class LinearDynamics:
    """A fitted map: `operator_DD` takes a column x̂ one layer on.

    `eigenvalues`: its r eigenvalues inside the subspace kept, complex, by falling modulus, of a
    pair the one above the real axis first. The other D − r are 0.
    """

    operator_DD: np.ndarray
    eigenvalues: np.ndarray

    @property
    def rank(self) -> int:
        return len(self.eigenvalues)

    @property
    def spectral_radius(self) -> float:
        return float(np.abs(self.eigenvalues).max(initial=0.0))

    @property
    def nearest_to_one(self) -> float:
        """Distance from +1 of the eigenvalue nearest to it, of all of them; at +1 nothing fades."""
        return float(np.abs(self.eigenvalues - 1).min(initial=np.inf))

    def half_lives(self) -> np.ndarray:
        """Layers after which each mode has halved, ln(1/2) / ln|λ|; infinite where |λ| ≥ 1."""
        modulus = np.abs(self.eigenvalues)
        with np.errstate(divide="ignore"):
            return np.where(modulus < 1, np.log(0.5) / np.log(np.minimum(modulus, 1)), np.inf)

    def residual(self, moments: TransitionMoments) -> tuple[float, float]:
        """‖Y − AX‖_F² of these pairs over ‖Y‖_F², and over ‖Y − X‖_F².

        The second compares with persistence, the guess that nothing moves: below 1 the map
        predicts better. NaN where the denominator is 0.
        """
        explained = 2 * (self.operator_DD * moments.cross_DD).sum()
        predicted = (self.operator_DD @ moments.gram_DD * self.operator_DD).sum()
        error = max(moments.target - explained + predicted, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = np.float64(error) / [moments.target, moments.moved]
        return float(relative[0]), float(relative[1])


def fit_dynamics(moments: TransitionMoments, *, rank: int | None, ridge: float) -> LinearDynamics:
    """Least squares in the span of the `rank` leading eigenvectors of X Xᵀ (None: all of them).

    `ridge` · trace(X Xᵀ) / D is added to its eigenvalues. Directions in which the states do not
    extend at all are left out whatever the rank.
    """
    squares_D, vectors_DD = np.linalg.eigh(moments.gram_DD)
    width = len(squares_D)
    extent = int((squares_D > width * np.finfo(float).eps * squares_D[-1]).sum())
    kept = min(extent, rank or width)
    basis_DR = vectors_DD[:, width - kept :]
    damped_R = squares_D[width - kept :] + ridge * squares_D.sum() / width
    image_DR = moments.cross_DD @ basis_DR / damped_R
    eigenvalues = np.linalg.eigvals(basis_DR.T @ image_DR).astype(complex)
    # Rounded, the two of a pair have one modulus and keep their order on any machine.
    order = np.lexsort([-eigenvalues.imag, -np.abs(eigenvalues).round(12)])
    return LinearDynamics(image_DR @ basis_DR.T, eigenvalues[order])
