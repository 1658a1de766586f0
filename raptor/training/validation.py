"""R² and errors of a Raptor on the validation split, while it trains."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from raptor.models.raptor import Raptor
from raptor.tokens import TokenLayout

Rollout = Callable[[Raptor, torch.Tensor], torch.Tensor]  # states (B, L + 1, T, D) -> (B, L, T, D)


class Fidelity:
    """Squared errors by layer and token, gathered batch by batch, and the R² they amount to.

    R² of a layer = 1 − SSE / SST over images × tokens × width; SST is about the mean vector (D,)
    of that layer over images and tokens. Sums are in double precision.
    """

    def __init__(self) -> None:
        self.images = 0
        self._error_LT: torch.Tensor | float = 0.0
        self._square_L: torch.Tensor | float = 0.0
        self._sum_LD: torch.Tensor | float = 0.0

    def update(self, predicted_BLTD: torch.Tensor, teacher_BLTD: torch.Tensor) -> None:
        """Add a batch of predicted states and the teacher's, layers 1..L."""
        if predicted_BLTD.device.type == "mps":  # has no double precision
            predicted_BLTD, teacher_BLTD = predicted_BLTD.cpu(), teacher_BLTD.cpu()
        predicted, teacher = predicted_BLTD.double(), teacher_BLTD.double()
        if not self.images:
            # Sums are taken about a vector near the mean, so that squares of a large mean
            # do not drown the spread.
            self._near_L1D = teacher.mean(dim=(0, 2)).unsqueeze(1)
        teacher_centred = teacher - self._near_L1D
        self.images += len(teacher)
        self._error_LT = self._error_LT + (predicted - teacher).square().sum(dim=(0, 3))
        self._square_L = self._square_L + teacher_centred.square().sum(dim=(0, 2, 3))
        self._sum_LD = self._sum_LD + teacher_centred.sum(dim=(0, 2))

    def r2(self) -> torch.Tensor:
        """R² of each layer (L,), over all tokens."""
        vectors = self.images * self._error_LT.shape[1]
        total_L = self._square_L - self._sum_LD.square().sum(dim=1) / vectors
        return 1 - self._error_LT.sum(dim=1) / total_L

    def mean_squared_errors(self, layout: TokenLayout) -> dict[str, torch.Tensor]:
        """Token type -> mean squared error of each layer (L,), over images, tokens and width."""
        error_LT = self._error_LT / (self.images * self._sum_LD.shape[1])
        return {name: error_LT[:, span].mean(dim=1) for name, span in layout.slices().items()}


def open_segments(raptor: Raptor, states_BSTD: torch.Tensor) -> torch.Tensor:
    """States (B, L, T, D) in closed loop within each run, from the teacher's state before it."""
    predicted = []
    for run in raptor.runs():
        predicted += raptor.rollout(states_BSTD[:, run.first - 1], run.first, run.last)
    return torch.stack(predicted, dim=1)


def closed_loop(raptor: Raptor, states_BSTD: torch.Tensor) -> torch.Tensor:
    """States (B, L, T, D) in closed loop from a_0."""
    return raptor(states_BSTD[:, 0])


@torch.no_grad()
def measure(
    raptor: Raptor,
    batches: Iterable[torch.Tensor],
    rollout: Rollout,
) -> Fidelity:
    """The fidelity of what `rollout` predicts, over batches of states (B, L + 1, T, D)."""
    fidelity = Fidelity()
    for states_BSTD in batches:
        fidelity.update(rollout(raptor, states_BSTD), states_BSTD[:, 1:])
    return fidelity
