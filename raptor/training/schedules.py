"""Learning-rate and teacher-forcing schedules, as functions of the step."""

from __future__ import annotations

import math


def warmup_cosine(step: int, *, steps: int, warmup_steps: int, lr: float, min_lr: float) -> float:
    """Linear warm-up from `lr / warmup_steps` to `lr`, then a half cosine to `min_lr` (paper §4–5).

    `step` counts from 0; the last step (`steps - 1`) has `min_lr`.
    """
    if step < warmup_steps:
        return lr * (step + 1) / warmup_steps
    progress = (step - warmup_steps) / max(1, steps - 1 - warmup_steps)
    return min_lr + 0.5 * (lr - min_lr) * (1 + math.cos(math.pi * min(1.0, progress)))


def warmup_linear(step: int, *, steps: int, warmup_steps: int, lr: float) -> float:
    """Linear warm-up to `lr`, then linear decay towards zero at `steps`."""
    if step < warmup_steps:
        return lr * (step + 1) / warmup_steps
    return lr * (steps - step) / max(1, steps - warmup_steps)


def teacher_forcing(step: int, *, steps: int, start: float, end: float, anneal: float) -> float:
    """λ at `step`: `start`, linear to `end` over the first `anneal` of `steps` (paper §4)."""
    reach = anneal * steps
    if step >= reach:
        return end
    return start + (end - start) * step / reach
