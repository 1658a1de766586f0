"""Which images each step of a training sees, where it goes over them again and again."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

import torch

from raptor.seeds import derive_seed


class Batch(NamedTuple):
    """The images of one step, by number."""

    epoch: int
    images: list[int]


@dataclass(frozen=True)
class Epochs:
    """Every image once in each of `epochs` epochs, in an order that `seed`, `name` and it give.

    The last batch of an epoch may be smaller.
    """

    images: int
    batch_size: int
    epochs: int
    seed: int
    name: str

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.images // self.batch_size)

    @property
    def steps(self) -> int:
        return self.epochs * self.steps_per_epoch

    def batch(self, step: int) -> Batch | None:
        """Of `step`, from 0; None after the last."""
        if step >= self.steps:
            return None
        epoch, position = divmod(step, self.steps_per_epoch)
        first = position * self.batch_size
        order = _order(self.images, derive_seed(self.seed, self.name, epoch))
        return Batch(epoch, order[first : first + self.batch_size].tolist())


@functools.lru_cache(maxsize=2)  # a step asks for its own batch and the next one's
def _order(images: int, seed: int) -> torch.Tensor:
    return torch.randperm(images, generator=torch.Generator().manual_seed(seed))
