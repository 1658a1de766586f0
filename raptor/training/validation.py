"""How near a Raptor's states are to the teacher's on the validation split, while it trains."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from raptor.fidelity import Fidelity
from raptor.models.raptor import Raptor
from raptor.tokens import TokenLayout

Rollout = Callable[[Raptor, torch.Tensor], torch.Tensor]  # states (B, L + 1, T, D) -> (B, L, T, D)


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
    raptor: Raptor, batches: Iterable[torch.Tensor], layout: TokenLayout, rollout: Rollout
) -> Fidelity:
    """The fidelity of what `rollout` predicts, over batches of states (B, L + 1, T, D)."""
    fidelity = Fidelity(layout, raptor.depth)
    for states_BSTD in batches:
        fidelity.update(states_BSTD[:, 1:], rollout(raptor, states_BSTD))
    return fidelity
