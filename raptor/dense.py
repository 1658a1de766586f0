"""The dense probing stage: what a teacher, or a Raptor of it, says of every pixel (paper §6)."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from raptor.config.data import DataConfig
from raptor.data.dense import DenseTask
from raptor.files import replacing
from raptor.probes import depth, segmentation
from raptor.probes.backbone import Backbone
from raptor.probes.inputs import find_student
from raptor.seeds import derive_seed
from raptor.student import Student
from raptor.teachers.files import load_teacher, teacher_facts
from raptor.teachers.resize import teacher_at_size
from raptor.training.checkpoint import Checkpoint
from raptor.training.finished import note_finished
from raptor.weights import save_weights

log = logging.getLogger(__name__)

# Each with `input_size`, `fit`, `predict` and `evaluate`.
MODULES: dict[str, Any] = {"segmentation": segmentation, "depth": depth}


@dataclass(frozen=True)
class Model:
    """A teacher on disk, or the Raptor of it that `student` names in the index `students`."""

    teacher: Path
    student: Student | None = None
    students: Path | None = None

    @property
    def title(self) -> str:
        name = self.teacher.stem
        return f"{name} {self.student.path}" if self.student else name

    @property
    def facts(self) -> dict[str, Any]:
        """The columns that say which model a row is about."""
        row: dict[str, Any] = {"teacher": self.teacher.stem, "model": "teacher"}
        if self.student is not None:
            recipe, method, k, seed = self.student
            row |= {"model": "raptor", "recipe": recipe, "partition": method, "k": k, "seed": seed}
        return row

    def backbone(self, task: DenseTask, device: torch.device) -> Backbone:
        """The model for images of the size that the probe gives them."""
        patch_size = load_teacher(self.teacher).patch_size
        size = MODULES[task.name].input_size(task.probe, patch_size)
        teacher = teacher_at_size(self.teacher, *size, device)
        raptor = None
        if self.student is not None:
            raptor = find_student(self.students, self.student, teacher, device)
        data = DataConfig.model_validate(teacher_facts(self.teacher)["data"])
        return Backbone(teacher, data.mean, data.std, raptor)


def probe_model(
    *,
    model: Model,
    task: DenseTask,
    seed: int,
    output: Path,
    head: Path,
    state: Path,
    identity: str,
    device: torch.device,
) -> None:
    """Train one head on the frozen model and measure it on the test split.

    Writes `head`, the JSON beside it, and `output`: one row with the model's name, `n_train` and
    what `evaluate` of the probe gives. The training is kept in `state`. The order of the
    images follows from `seed`, the task and the teacher: its Raptors' heads see the same batches.
    """
    train, test = task.split("train"), task.split("test")
    module, backbone = MODULES[task.name], model.backbone(task, device)
    title = f"{task.name} probe of {model.title}"
    checkpoint = Checkpoint(state, identity)
    trained = module.fit(
        backbone=backbone,
        train=train,
        config=task.probe,
        seed=derive_seed(seed, task.name, model.teacher.stem),
        title=title,
        checkpoint=checkpoint,
    )
    found = module.evaluate(
        backbone=backbone, head=trained, test=test, config=task.probe, title=title
    )
    n_train = min(len(train), task.probe.train_images or len(train))
    size = {"features": trained.in_channels, "outputs": trained.out_channels}
    save_weights(trained, head, {**model.facts, **size})
    with replacing(output) as temporary:
        row = pd.DataFrame([{**model.facts, "n_train": n_train, **found}])
        row.to_csv(temporary, index=False, lineterminator="\n", float_format="%.12g")
    note_finished(state, output)
    log.info("%s: %s", title, {name: round(value, 4) for name, value in found.items()})
