"""The linear probe: trained on features of a frozen model, started from a head that fits."""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from raptor.config.analysis import ClassificationProbe
from raptor.training.checkpoint import Checkpoint
from raptor.training.epochs import Batch, Epochs
from raptor.training.loop import fit
from raptor.training.schedules import warmup_cosine


class Source(Protocol):
    """What a probe is trained on: the features that a frozen model has for N images."""

    labels: Tensor  # (N,)

    def batch(self, wanted: Batch, following: Batch | None) -> Tensor:
        """Features (B, F) float32 of one batch; `following` is what will be asked for next."""
        ...


@dataclass(frozen=True)
class Features:
    """Features (N, F) float32 of a split and its labels (N,)."""

    inputs: Tensor
    labels: Tensor

    def batch(self, wanted: Batch, following: Batch | None = None) -> Tensor:
        return self.inputs[wanted.images]

    @classmethod
    def of(cls, inputs_NF: np.ndarray, labels_N: np.ndarray) -> Features:
        return cls(torch.from_numpy(inputs_NF), torch.from_numpy(labels_N.astype(np.int64)))

    def first(self, images: int | None) -> Features:
        """Of the first `images` alone; of all for None."""
        return Features(self.inputs[:images], self.labels[:images])


def initial_probe(
    head: nn.Module | None, *, width: int, features: int, classes: int, first: int = 0
) -> nn.Linear:
    """A linear layer (features → classes) that computes what the teacher's own head does.

    A head on all features as it is. The weights of one on `width` features stand on those from
    `first` on (0 for the cls half, `width` for the mean patch), zeros on the rest. All zeros where
    the head is no linear layer of either shape.
    """
    probe = nn.utils.skip_init(nn.Linear, features, classes)
    nn.init.zeros_(probe.weight)
    nn.init.zeros_(probe.bias)
    if isinstance(head, nn.Linear) and head.weight.shape in ((classes, width), (classes, features)):
        if head.in_features == features:
            first = 0
        with torch.no_grad():
            probe.weight[:, first : first + head.in_features].copy_(head.weight)
            if head.bias is not None:
                probe.bias.copy_(head.bias)
    return probe


def fit_probe(
    *,
    start: nn.Linear,
    train: Source,
    val: Features,
    config: ClassificationProbe,
    seed: int,
    device: torch.device | str = "cpu",
    title: str = "probe",
    checkpoint: Checkpoint | None = None,
) -> nn.Linear:
    """Train a copy of `start` by cross-entropy (paper §6) and return its best epoch.

    AdamW with linear warm-up and cosine to zero, order reshuffled from `seed` each epoch. The
    epoch with the highest accuracy on `val` is kept (ties: lower loss, then earlier), the start
    itself counting as epoch 0. The test split plays no part. Without classes there is nothing to
    learn. An interrupted training continues from `checkpoint`, to the same probe.
    """
    if not start.out_features:
        return start
    probe = copy.deepcopy(start).to(device)
    best = _Best(probe, val)
    optimizer = torch.optim.AdamW(
        probe.parameters(), config.lr, weight_decay=config.weight_decay, fused=True
    )
    epochs = Epochs(len(train.labels), config.batch_size, config.epochs, seed, "probe order")
    schedule = functools.partial(
        warmup_cosine,
        steps=epochs.steps,
        warmup_steps=config.warmup_steps,
        lr=config.lr,
        min_lr=0.0,
    )

    def step(index: int) -> dict[str, float]:
        batch = epochs.batch(index)
        inputs_BF = train.batch(batch, epochs.batch(index + 1)).to(device)
        loss = F.cross_entropy(probe(inputs_BF), train.labels[batch.images].to(device))
        optimizer.param_groups[0]["lr"] = schedule(index)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return {"loss": loss.item()}

    fit(
        title=title,
        steps=epochs.steps,
        step=step,
        parts={"probe": probe, "optimizer": optimizer, "best": best},
        checkpoint=checkpoint,
        validate=best.look,
        validate_every=epochs.steps_per_epoch,
    )
    probe.load_state_dict(best.weights)
    return probe.cpu()


class _Best:
    """The weights that a probe had when it did best on `val`, from its start on."""

    def __init__(self, probe: nn.Linear, val: Features) -> None:
        self._probe, self._val = probe, val
        self.score = (-1.0, 0.0)  # accuracy, and less loss; below any that there is
        self.look()

    def look(self) -> dict[str, float]:
        """Take the weights of now where they are better; what `val` says of them."""
        logits_NC = predict(self._probe, self._val)
        accuracy = top1(logits_NC, self._val.labels)
        loss = float(F.cross_entropy(logits_NC, self._val.labels))
        if (accuracy, -loss) > self.score:
            self.score, self.weights = (accuracy, -loss), copy.deepcopy(self._probe.state_dict())
        return {"val_accuracy": accuracy, "val_loss": loss}

    def state_dict(self) -> dict[str, Any]:
        return {"score": list(self.score), "weights": self.weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.score, self.weights = tuple(state["score"]), state["weights"]


@torch.no_grad()
def predict(probe: nn.Linear, features: Features) -> Tensor:
    """Logits (N, C)."""
    return probe(features.inputs.to(probe.weight.device)).cpu()


def top1(logits_NC: Tensor, labels_N: Tensor) -> float:
    """Share of images whose largest logit is their label, in [0, 1]; NaN without classes."""
    if not logits_NC.shape[1]:
        return float("nan")
    return float((logits_NC.argmax(dim=1) == labels_N).double().mean())
