"""How many FLOPs a second this machine does while it trains, as `raptor.plan` counts them."""

from __future__ import annotations

import time

import torch
from torch.nn import functional as F

from raptor.config.data import DataConfig
from raptor.config.teachers import TrainedTeacher
from raptor.plan import BACKWARD, teacher_flops
from raptor.teachers.build import build_teacher

WARM_UP = 2  # steps that are not timed


def training_flops(
    spec: TrainedTeacher, data: DataConfig, device: torch.device, *, seconds: float = 3.0
) -> float:
    """FLOP/s of optimiser steps of this teacher on random images, for so many seconds or more."""
    teacher = build_teacher(spec, data, num_classes=10).to(device).train()
    optimizer = torch.optim.AdamW(teacher.parameters(), fused=True)
    size = spec.training.batch_size
    images = torch.randn(size, data.channels, data.image_size, data.image_size, device=device)
    labels = torch.randint(10, (size,), device=device)

    def step() -> None:
        F.cross_entropy(teacher(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(WARM_UP):
        step()
    _wait(device)
    started, steps = time.perf_counter(), 0
    while steps < 3 or time.perf_counter() - started < seconds:
        step()
        _wait(device)
        steps += 1
    elapsed = time.perf_counter() - started
    return steps * size * (1 + BACKWARD) * teacher_flops(spec, data) / elapsed


def _wait(device: torch.device) -> None:
    if device.type in ("cuda", "mps"):
        getattr(torch, device.type).synchronize()
