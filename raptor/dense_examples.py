"""What the dense probes of a teacher and of its Raptor say of a few images, for the eye."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch

from raptor.data.dense import DenseTask
from raptor.dense import MODULES, Model, load_head
from raptor.errors import RaptorError
from raptor.probes.examples import Predict, collect_examples


def show_examples(
    *,
    teacher: Model,
    raptor: Model,
    heads: Path,
    task: DenseTask,
    images: int,
    output: Path,
    device: torch.device,
) -> None:
    """Write what a teacher and a Raptor, with their heads in the folder `heads`, say of images.

    `images` of them, of the test split.
    """
    collect_examples(
        split=task.split("test"),
        images=images,
        teacher=_predictor(teacher, heads, task, device),
        raptor=_predictor(raptor, heads, task, device),
        model=raptor.facts,
    ).save(output)


def _predictor(model: Model, heads: Path, task: DenseTask, device: torch.device) -> Predict:
    try:
        head = load_head(heads / f"{model.path}.safetensors").to(device)
    except RaptorError as error:
        # The tables say that the heads are trained; without them the others are kept as they are.
        raise RaptorError(f"{error} (for that, delete {heads}/heads-*.csv)") from None
    backbone = model.backbone(task, device)
    return partial(MODULES[task.name].predict, backbone, head, config=task.probe)
