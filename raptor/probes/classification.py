"""The linear probe: trained on features of a frozen model, started from a head that fits."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from raptor.config.analysis import ClassificationProbe
from raptor.seeds import derive_seed
from raptor.training.schedules import warmup_cosine


@dataclass(frozen=True)
class Features:
    """Features (N, F) float32 of a split and its labels (N,)."""

    inputs: Tensor
    labels: Tensor

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
    train: Features,
    val: Features,
    config: ClassificationProbe,
    seed: int,
    device: torch.device | str = "cpu",
) -> nn.Linear:
    """Train a copy of `start` by cross-entropy (paper §6) and return its best epoch.

    AdamW with linear warm-up and cosine to zero, order reshuffled from `seed` each epoch. The
    epoch with the highest accuracy on `val` is kept (ties: lower loss, then earlier), the start
    itself counting as epoch 0. The test split plays no part. Without classes there is nothing to
    learn.
    """
    if not start.out_features:
        return start
    probe = copy.deepcopy(start).to(device)
    optimizer = torch.optim.AdamW(
        probe.parameters(), config.lr, weight_decay=config.weight_decay, fused=True
    )
    per_epoch = -(-len(train.labels) // config.batch_size)
    best, kept = _score(probe, val, device), copy.deepcopy(probe.state_dict())
    for epoch in range(config.epochs):
        generator = torch.Generator().manual_seed(derive_seed(seed, "probe order", epoch))
        order = torch.randperm(len(train.labels), generator=generator)
        for index, batch in enumerate(order.split(config.batch_size)):
            optimizer.param_groups[0]["lr"] = warmup_cosine(
                epoch * per_epoch + index,
                steps=config.epochs * per_epoch,
                warmup_steps=config.warmup_steps,
                lr=config.lr,
                min_lr=0.0,
            )
            optimizer.zero_grad()
            logits_BC = probe(train.inputs[batch].to(device))
            F.cross_entropy(logits_BC, train.labels[batch].to(device)).backward()
            optimizer.step()
        score = _score(probe, val, device)
        if score > best:
            best, kept = score, copy.deepcopy(probe.state_dict())
    probe.load_state_dict(kept)
    return probe.cpu()


@torch.no_grad()
def predict(probe: nn.Linear, features: Features) -> Tensor:
    """Logits (N, C)."""
    return probe(features.inputs.to(probe.weight.device)).cpu()


def top1(logits_NC: Tensor, labels_N: Tensor) -> float:
    """Share of images whose largest logit is their label, in [0, 1]; NaN without classes."""
    if not logits_NC.shape[1]:
        return float("nan")
    return float((logits_NC.argmax(dim=1) == labels_N).double().mean())


def _score(probe: nn.Linear, val: Features, device: torch.device | str) -> tuple[float, float]:
    logits_NC = predict(probe.to(device), val)
    return top1(logits_NC, val.labels), -float(F.cross_entropy(logits_NC, val.labels))
