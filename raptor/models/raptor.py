"""The Raptor: k weight-tied blocks that stand in for the L blocks of a teacher."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

import torch
from torch import nn

from raptor.models.block import RecurrentBlock


class Run(NamedTuple):
    """A maximal stretch of layers `first..last` (1-based, inclusive) made by one block."""

    block: int
    first: int
    last: int


class Raptor(nn.Module):
    """k blocks and, for each layer, which of them makes it (paper, Definitions).

    `labels[l - 1]` in 0..k-1 is the block of layer l; a block's layers need not be neighbours.
    The embedding, final norm and head stay the teacher's.
    """

    def __init__(self, blocks: Iterable[RecurrentBlock], labels: Sequence[int]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.labels = tuple(labels)
        k = len(self.blocks)
        if set(self.labels) != set(range(k)):
            raise ValueError(f"labels {self.labels} do not use the blocks 0..{k - 1}, each of them")

    @property
    def depth(self) -> int:
        """L, the number of layers made, whatever the number of blocks."""
        return len(self.labels)

    def runs(self) -> list[Run]:
        """The runs in order of depth; together they are the layers 1..L."""
        runs, first = [], 1
        for block, layers in groupby(self.labels):
            last = first + len(list(layers)) - 1
            runs.append(Run(block, first, last))
            first = last + 1
        return runs

    def step(self, state_BTD: torch.Tensor, layer: int) -> torch.Tensor:
        """The state of `layer` (1..L) from the state before it, both (B, T, D)."""
        if not 1 <= layer <= self.depth:
            raise ValueError(f"layer {layer}: this Raptor makes the layers 1..{self.depth}")
        return self.blocks[self.labels[layer - 1]](state_BTD, layer)

    def rollout(self, state_BTD: torch.Tensor, first: int, last: int) -> list[torch.Tensor]:
        """The states of the layers `first..last`, each from the one before, in closed loop."""
        states = []
        for layer in range(first, last + 1):
            state_BTD = self.step(state_BTD, layer)
            states.append(state_BTD)
        return states

    def forward(self, a0_BTD: torch.Tensor) -> torch.Tensor:
        """All L states (B, L, T, D) in closed loop from the embedding state a_0 (B, T, D)."""
        return torch.stack(self.rollout(a0_BTD, 1, self.depth), dim=1)
