"""Predictions that need no recurrence: what a trained Raptor has to be set beside.

An untrained teacher barely moves its state, so a high R² alone proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from raptor.fidelity import as_float64

RIDGE = 1e-10  # of the mean variance of a_0; keeps the normal equations solvable, no more

Predictor = Callable[[Tensor], Tensor]  # a_0 (B, T, D) -> states a_1..a_L (B, L, T, D)


class TrainMoments:
    """Streamed first and second moments of the training states, in float64.

    The mean of each layer and token position, and over images × tokens the covariance of a_0
    with itself and with a_1..a_L; blocks are centred before they are merged.
    """

    def __init__(self) -> None:
        self._images = 0
        self._mean_STD: Tensor | float = 0.0
        self._rows = 0
        self._row_mean_SD: Tensor | float = 0.0
        self._scatter_SDD: Tensor | float = 0.0  # Σ (a_0 − mean)ᵀ (a_l − mean), l = 0..L

    def update(self, states_BSTD: Tensor) -> None:
        """Add a block of images with all their states a_0..a_L."""
        images, depth_and_one, tokens, _ = states_BSTD.shape
        rows = images * tokens
        share = rows / (self._rows + rows)
        mean_STD = torch.stack(
            [as_float64(states_BSTD[:, layer]).mean(dim=0) for layer in range(depth_and_one)]
        )
        mean_SD = mean_STD.mean(dim=1)
        delta_SD = mean_SD - self._row_mean_SD
        centred_0 = as_float64(states_BSTD[:, 0]).flatten(0, 1) - mean_SD[0]
        within = [
            centred_0.T @ (as_float64(states_BSTD[:, layer]).flatten(0, 1) - mean_SD[layer])
            for layer in range(depth_and_one)
        ]
        between = torch.einsum("d,se->sde", delta_SD[0], delta_SD) * (self._rows * share)
        self._scatter_SDD = self._scatter_SDD + torch.stack(within) + between
        self._row_mean_SD = self._row_mean_SD + delta_SD * share
        self._rows += rows
        self._images += images
        self._mean_STD = self._mean_STD + (mean_STD - self._mean_STD) * (images / self._images)

    def predictors(self) -> dict[str, Predictor]:
        """`identity` (ã_l = a_0), `layer_mean` (mean state per layer and token position) and
        `linear` (an affine map of a_0 per layer, D → D, shared over tokens, least squares)."""
        depth = len(self._mean_STD) - 1
        weight_LDD, bias_LD = self._affine()

        def linear(a0_BTD: Tensor) -> Tensor:
            mapped = torch.einsum("btd,lde->blte", as_float64(a0_BTD), weight_LDD)
            return mapped + bias_LD[:, None]

        return {
            "identity": lambda a0_BTD: a0_BTD[:, None].expand(-1, depth, -1, -1),
            "layer_mean": lambda a0_BTD: self._mean_STD[1:].expand(len(a0_BTD), -1, -1, -1),
            "linear": linear,
        }

    def _affine(self) -> tuple[Tensor, Tensor]:
        gram_DD, cross_LDD = self._scatter_SDD[0], self._scatter_SDD[1:]
        ridge = RIDGE * gram_DD.diagonal().mean()
        damped = gram_DD + ridge * torch.eye(len(gram_DD), dtype=gram_DD.dtype).to(gram_DD.device)
        weight_LDD = torch.linalg.solve(damped, cross_LDD)
        bias_LD = self._row_mean_SD[1:] - torch.einsum(
            "d,lde->le", self._row_mean_SD[0], weight_LDD
        )
        return weight_LDD, bias_LD
