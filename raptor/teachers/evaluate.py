"""How well a teacher classifies with its own head."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from raptor.data.split import ImageSplit
from raptor.teachers.adapter import Teacher

_BATCH = 256


@torch.no_grad()
def evaluate(teacher: Teacher, split: ImageSplit, device: torch.device) -> dict[str, float]:
    """`accuracy` (share of images, in [0, 1]) and `loss` (mean cross-entropy, nats) on `split`.

    In evaluation mode; the mode the teacher was in is restored.
    """
    was_training = teacher.training
    teacher.eval()
    labels = torch.from_numpy(split.labels).to(device)
    correct = loss = 0.0
    for start in range(0, len(split), _BATCH):
        batch = range(start, min(start + _BATCH, len(split)))
        logits, truth = teacher(split.images(batch).to(device)), labels[start : batch.stop]
        correct += (logits.argmax(dim=1) == truth).sum().item()
        loss += F.cross_entropy(logits.float(), truth, reduction="sum").item()
    teacher.train(was_training)
    return {"accuracy": correct / len(split), "loss": loss / len(split)}
