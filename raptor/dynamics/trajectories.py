"""The states over depth of a teacher, or of its Raptor run closed-loop, image block by block."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from raptor.activations.read import Activations
from raptor.dynamics.perturbation import Step
from raptor.errors import RaptorError
from raptor.models.raptor import Raptor
from raptor.teachers.adapter import Teacher

log = logging.getLogger(__name__)

LOG_SECONDS = 5.0

Block = tuple[int, Tensor, Tensor]  # first image in its split, states_BSTD, labels_B


@dataclass(frozen=True)
class Trajectories:
    """One model on the images of a store.

    `model`: `teacher`, whose states are read, or `raptor`, whose states are made from the
    teacher's a_0. `step` makes the state of layer l = 1..L from the one before.
    """

    model: str
    step: Step
    depth: int
    store: Activations
    device: torch.device
    batch_images: int

    @classmethod
    def of_teacher(
        cls, teacher: Teacher, store: Activations, device: torch.device, batch_images: int
    ) -> Trajectories:
        return cls("teacher", teacher.block, teacher.depth, store, device, batch_images)

    @classmethod
    def of_raptor(
        cls, raptor: Raptor, store: Activations, device: torch.device, batch_images: int
    ) -> Trajectories:
        return cls("raptor", raptor.step, raptor.depth, store, device, batch_images)

    @property
    def title(self) -> str:
        return f"dynamics of {self.store.teacher}, {self.model}"

    def blocks(self, split: str, images: int) -> Iterator[Block]:
        """The first `images` images of a split (all, where it has fewer) with states a_0..a_L.

        Raises RaptorError for a state that is not finite.
        """
        begin, end = self.store.splits[split]
        total = min(images, end - begin)
        stored = None if self.model == "teacher" else [0]
        logged = time.monotonic()
        size = self.batch_images
        for start, read_BSTD, labels_B in self.store.blocks(split, size, stored, images):
            first = start - begin
            states_BSTD = torch.from_numpy(read_BSTD).to(self.device)
            if self.model == "raptor":
                states_BSTD = self._roll_out(states_BSTD[:, 0])
            self._refuse(states_BSTD, split, first)
            yield first, states_BSTD, torch.from_numpy(labels_B)
            done = first + len(states_BSTD)
            if time.monotonic() - logged > LOG_SECONDS:
                log.info("%s: %d of %d images of %s", self.title, done, total, split)
                logged = time.monotonic()

    def _roll_out(self, a0_BTD: Tensor) -> Tensor:
        states = [a0_BTD]
        for layer in range(1, self.depth + 1):
            states.append(self.step(states[-1], layer))
        return torch.stack(states, dim=1)

    def _refuse(self, states_BSTD: Tensor, split: str, first: int) -> None:
        finite_BS = states_BSTD.isfinite().all(dim=-1).all(dim=-1)
        if not finite_BS.all():
            image, layer = (~finite_BS).nonzero()[0].tolist()
            remedy = (
                "extract again with activations.dtype: bfloat16"
                if self.model == "teacher"
                else "train it again with a lower learning rate (lr)"
            )
            raise RaptorError(
                f"{self.title}: the state of layer {layer} of image {first + image} of {split} is "
                f"not finite; {remedy}"
            )
