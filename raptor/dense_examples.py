"""What the dense probes of a teacher and of its Raptor say of a few images, for the eye."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from torch import nn

from raptor.data.dense import DenseTask
from raptor.dense import MODULES, Model
from raptor.probes.dense import linear_head
from raptor.probes.examples import Predict, collect_examples
from raptor.weights import load_weights, read_description

STAGE = "dense_probe"  # which made the heads


def show_examples(
    *,
    teacher: tuple[Model, Path],
    raptor: tuple[Model, Path],
    task: DenseTask,
    images: int,
    output: Path,
    device: torch.device,
) -> None:
    """Write what a teacher and a Raptor, each with its head, say of some test images."""
    collect_examples(
        split=task.split("test"),
        images=images,
        teacher=_predictor(*teacher, task, device),
        raptor=_predictor(*raptor, task, device),
        model=raptor[0].facts,
    ).save(output)


def _predictor(model: Model, head: Path, task: DenseTask, device: torch.device) -> Predict:
    trained, predict = _load_head(head).to(device), MODULES[task.name].predict
    return partial(predict, model.backbone(task, device), trained, config=task.probe)


def _load_head(path: Path) -> nn.Conv2d:
    description = read_description(path, STAGE)
    head = linear_head(description["features"], description["outputs"])
    load_weights(head, path, description["sha256"], STAGE)
    return head
