"""The two stages of a Raptor's training (paper §Method 4–5), one step at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

from raptor.activations.read import Activations
from raptor.config.students import Recipe, Stage, Stage1
from raptor.device import autocasting
from raptor.models.raptor import Raptor
from raptor.training import distributed
from raptor.training.history import error_names
from raptor.training.losses import loss_weights, mean_square, stage1_losses, stage2_loss
from raptor.training.schedules import teacher_forcing, warmup_cosine
from raptor.training.validation import Rollout, closed_loop, measure, open_segments

_VALIDATION_BATCH = 256  # images


class Losses(nn.Module):
    """The losses of a Raptor as one forward pass, which is what torch makes parallel."""

    def __init__(self, raptor: Raptor, losses: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.raptor, self._losses = raptor, losses

    def forward(self, *arguments: Any) -> torch.Tensor:
        return self._losses(self.raptor, *arguments)


class Training(ABC):
    """What both stages share: data order, optimiser, schedule, validation.

    AdamW, linear warm-up, cosine to `min_lr` (paper §Method 5). The random state is not used: a
    step depends on its number, the weights and the optimiser alone.
    """

    losses: Callable[..., torch.Tensor]  # of the Raptor, states, weights and what else there is
    # Metric -> how the states are predicted whose R² on the validation split it is.
    rollouts: Mapping[str, Rollout] = {"r2": closed_loop}

    def __init__(
        self,
        raptor: Raptor,
        store: Activations,
        recipe: Recipe,
        settings: Stage,
        seed: int,
        device: torch.device,
        autocast: str = "none",
    ) -> None:
        self.raptor, self.store, self.settings = raptor, store, settings
        self.seed, self.device = seed, device
        self.autocasting = autocasting(device, autocast)
        # One optimiser for all blocks: AdamW treats each number by itself, so that this is the
        # same as one for each block.
        self.optimizer = torch.optim.AdamW(
            raptor.parameters(), lr=settings.lr, weight_decay=settings.weight_decay, fused=True
        )
        scale_LT = None
        if recipe.loss_scale == "layer_mean_square":
            # From the whole first batch: the same after an interruption, and in each process.
            scale_LT = mean_square(next(self._train_states(0, part=(0, 1)))).cpu()
        weights_LT = loss_weights(raptor.labels, store.layout, settings, scale_LT)
        self.weights_LT = weights_LT.to(device)
        self.parallel = distributed.parallel(Losses(raptor, type(self).losses))
        self._states: Iterator[torch.Tensor] | None = None

    @abstractmethod
    def accumulate(self, states_BSTD: torch.Tensor, index: int) -> dict[str, float]:
        """Compute gradients, clipped, of the loss on a batch; returns its metrics."""

    def step(self, index: int) -> dict[str, float]:
        """Optimiser step `index`, from 0, on batch `index`; returns its metrics."""
        if self._states is None:
            self._states = self._train_states(index, (distributed.rank(), distributed.world()))
        metrics = self.accumulate(next(self._states), index)
        for group in self.optimizer.param_groups:
            group["lr"] = warmup_cosine(
                index,
                steps=self.settings.steps,
                warmup_steps=self.settings.warmup_steps,
                lr=self.settings.lr,
                min_lr=self.settings.min_lr,
            )
        self.optimizer.step()
        self.optimizer.zero_grad()
        return metrics

    def validate(self) -> dict[str, float]:
        """Mean R² over layers for each of `rollouts`; errors by layer and token type, of `r2`."""
        metrics: dict[str, float] = {}
        for name, rollout in self.rollouts.items():
            fidelity = measure(self.raptor, self._val_states(), self.store.layout, rollout)
            metrics[name] = float(fidelity.r2()["all"].mean())
            if name == "r2":
                metrics |= error_names(fidelity.mean_squared_errors())
        return metrics

    def _train_states(self, first: int, part: tuple[int, int]) -> Iterator[torch.Tensor]:
        size = self.settings.batch_size
        batches = self.store.batches("train", size, self.seed, first, part=part)
        device = self.device  # not `self`, which would keep itself and the batches alive
        return (batch.states.to(device) for batch in batches)

    def _val_states(self) -> Iterator[torch.Tensor]:
        for _, states_BSTD, _ in self.store.blocks("val", _VALIDATION_BATCH):
            yield torch.from_numpy(states_BSTD).to(self.device)

    def _clip(self, module: nn.Module) -> float:
        """Scale the gradients of `module` down to `clip_norm`; returns the norm they had."""
        return clip_grad_norm_(module.parameters(), self.settings.clip_norm).item()


class SegmentTraining(Training):
    """Stage 1: each block alone on its own layers, its own loss, its own clipping (§Method 4)."""

    settings: Stage1
    losses = staticmethod(stage1_losses)
    rollouts: Mapping[str, Rollout] = {"r2": closed_loop, "r2_open": open_segments}

    def accumulate(self, states_BSTD: torch.Tensor, index: int) -> dict[str, float]:
        """The loss shown is the mean over blocks; each block's gradient is that of its own."""
        forcing = teacher_forcing(
            index, steps=self.settings.steps, **self.settings.teacher_forcing.model_dump()
        )
        with self.autocasting:
            losses_K = self.parallel(states_BSTD, self.weights_LT, forcing)
        losses_K.sum().backward()
        norm = max(self._clip(block) for block in self.raptor.blocks)
        return {"loss": losses_K.mean().item(), "lambda": forcing, "gradient_norm": norm}


class ClosedLoopTraining(Training):
    """Stage 2: all blocks joined, closed loop from a_0 over all layers (§Method 5)."""

    losses = staticmethod(stage2_loss)

    def accumulate(self, states_BSTD: torch.Tensor, index: int) -> dict[str, float]:
        with self.autocasting:
            loss = self.parallel(states_BSTD, self.weights_LT)
        loss.backward()
        norm = self._clip(self.raptor)
        return {"loss": loss.item(), "lambda": 0.0, "gradient_norm": norm}
