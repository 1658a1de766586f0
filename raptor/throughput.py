"""How many FLOPs a second this machine does while it trains, as `raptor.plan` counts them."""

from __future__ import annotations

import time

import torch
from torch.nn import functional as F

from raptor.config.data import DataConfig
from raptor.config.shape import Shape
from raptor.config.teachers import Architecture
from raptor.flops import BACKWARD, teacher_flops
from raptor.teachers.build import build_teacher

WARM_UP = 2  # steps that are not timed
BATCH = 64


def training_flops(
    shape: Shape, data: DataConfig, device: torch.device, *, seconds: float = 3.0
) -> float:
    """FLOP/s of optimiser steps of a ViT of this shape, on random images, for so many seconds."""
    spec = Architecture(
        depth=shape.depth,
        width=shape.width,
        heads=shape.heads,
        mlp_ratio=shape.mlp_products / (2 * shape.width**2),
        patch_size=shape.patch_size,
        registers=shape.registers,
        stem=shape.stem,
    )
    teacher = build_teacher(spec, data, num_classes=10).to(device).train()
    optimizer = torch.optim.AdamW(teacher.parameters(), fused=True)
    images = torch.randn(BATCH, data.channels, data.image_size, data.image_size, device=device)
    labels = torch.randint(10, (BATCH,), device=device)

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
    return steps * BATCH * (1 + BACKWARD) * teacher_flops(shape, data) / elapsed


def _wait(device: torch.device) -> None:
    if device.type in ("cuda", "mps"):
        getattr(torch, device.type).synchronize()
