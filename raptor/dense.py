"""The dense probing stage: what a teacher, or a Raptor of it, says of every pixel (paper §6)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import nn

from raptor.config.data import DataConfig
from raptor.data.dense import DenseTask
from raptor.errors import RaptorError
from raptor.files import digest, replacing, sha256
from raptor.probes import depth, segmentation
from raptor.probes.backbone import Backbone
from raptor.probes.dense import linear_head
from raptor.probes.inputs import find_entry, find_student
from raptor.seeds import derive_seed
from raptor.student import Student
from raptor.teachers.files import load_teacher, teacher_facts
from raptor.teachers.resize import teacher_at_size
from raptor.training.checkpoint import Checkpoint
from raptor.training.finished import forget
from raptor.weights import load_weights, read_description, save_weights

log = logging.getLogger(__name__)

STAGE = "dense_probe"

# Each with `input_size`, `fit`, `predict` and `evaluate`.
MODULES: dict[str, Any] = {"segmentation": segmentation, "depth": depth}


@dataclass(frozen=True)
class Model:
    """A teacher on disk, or the Raptor of it that `student` names in one of `indices`."""

    teacher: Path
    student: Student | None = None
    indices: tuple[Path, ...] = ()

    @property
    def title(self) -> str:
        name = self.teacher.stem
        return f"{name} {self.student.path}" if self.student else name

    @property
    def path(self) -> str:
        """Path of its head below the folder of its teacher, without suffix."""
        return self.student.path if self.student else "teacher"

    @property
    def facts(self) -> dict[str, Any]:
        """The columns that say which model a row is about."""
        row: dict[str, Any] = {"teacher": self.teacher.stem, "model": "teacher"}
        if self.student is not None:
            recipe, method, k, seed = self.student
            row |= {"model": "raptor", "recipe": recipe, "partition": method, "k": k, "seed": seed}
        return row

    @property
    def checksums(self) -> list[Any]:
        """Of all that says what it computes."""
        own = [sha256(self.teacher), teacher_facts(self.teacher)["data"]]
        return [*own, find_entry(self.indices, self.student)[1]["sha256"]] if self.student else own

    def backbone(self, task: DenseTask, device: torch.device) -> Backbone:
        """The model for images of the size that the probe gives them."""
        patch_size = load_teacher(self.teacher).patch_size
        size = MODULES[task.name].input_size(task.probe, patch_size)
        teacher = teacher_at_size(self.teacher, *size, device)
        raptor = None
        if self.student is not None:
            raptor = find_student(self.indices, self.student, teacher, device)
        data = DataConfig.model_validate(teacher_facts(self.teacher)["data"])
        return Backbone(teacher, data.mean, data.std, raptor)


def probe_models(
    *,
    models: Iterable[Model],
    task: DenseTask,
    samples: Path,
    seed: int,
    output: Path,
    state: Path,
    code: str,
    device: torch.device,
) -> None:
    """Train a head on each frozen model, and measure it on the test split.

    Writes `output`, a row for each: the model's name, `n_train` and what `evaluate` of the probe
    gives. Its head is beside it, `teacher.safetensors` or `<recipe>/<method>-k<k>/seed<s>`, with a
    JSON that holds the row as well. A head that is there, whole, and was trained by the same `code`
    (a digest) on the images of `samples` and the same model is kept, whichever job made it; one
    that was interrupted continues from the folder `state`. The order of the images follows from
    `seed`, the task and the teacher: its Raptors' heads see the same batches.
    """
    shared = [code, seed, task.plain(), sha256(samples)]
    rows = []
    for model in models:
        head = output.parent / f"{model.path}.safetensors"
        own = state / model.path.replace("/", "-")
        identity = digest([*shared, *model.checksums])
        row = _measured(head, identity)
        if row is None:
            checkpoint = Checkpoint(own, identity)
            trained, row = _probe_model(model, task, seed, checkpoint, device)
            size = {"features": trained.in_channels, "outputs": trained.out_channels}
            ordered = list(row.items())  # a JSON sorts its keys
            save_weights(trained, head, {"row": ordered, **size, "identity": identity})
        forget(own)
        rows.append(row)
    with replacing(output) as temporary:
        table = pd.DataFrame(rows)
        table.to_csv(temporary, index=False, lineterminator="\n", float_format="%.12g")


def load_head(path: Path) -> nn.Conv2d:
    """The head in `path`; RaptorError where it is not whole."""
    description = read_description(path, STAGE)
    head = linear_head(description["features"], description["outputs"])
    load_weights(head, path, description["sha256"], STAGE)
    return head


def _measured(path: Path, identity: str) -> dict[str, Any] | None:
    """The row of the head in `path`, where it is whole and of that identity."""
    if not (path.is_file() and path.with_suffix(".json").is_file()):
        return None
    try:
        description = read_description(path, STAGE)
        if description.get("identity") != identity:
            return None
        load_head(path)
    except RaptorError as error:
        log.warning("%s; it is trained again", error)
        return None
    log.info("%s: already trained, kept", path)
    return dict(description["row"])


def _probe_model(
    model: Model, task: DenseTask, seed: int, checkpoint: Checkpoint, device: torch.device
) -> tuple[nn.Conv2d, dict[str, Any]]:
    """The head of one model, and its row."""
    train, test = task.split("train"), task.split("test")
    module, backbone = MODULES[task.name], model.backbone(task, device)
    title = f"{task.name} probe of {model.title}"
    head = module.fit(
        backbone=backbone,
        train=train,
        config=task.probe,
        seed=derive_seed(seed, task.name, model.teacher.stem),
        title=title,
        checkpoint=checkpoint,
    )
    found = module.evaluate(backbone=backbone, head=head, test=test, config=task.probe, title=title)
    log.info("%s: %s", title, {name: round(value, 4) for name, value in found.items()})
    return head, {**model.facts, "n_train": task.probe.trained_on(len(train)), **found}
