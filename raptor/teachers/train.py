"""Training a teacher, and the teachers that come from one without training."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from timm.optim import param_groups_weight_decay
from torch.nn import functional as F

from raptor.config.data import DataConfig
from raptor.config.teachers import Architecture, TeacherTraining, TrainedTeacher
from raptor.data.split import ImageSplit, open_split
from raptor.device import autocasting, compile_modules
from raptor.errors import RaptorError
from raptor.files import replacing
from raptor.seeds import derive_seed
from raptor.teachers.adapter import Teacher
from raptor.teachers.augment import augment
from raptor.teachers.build import build_teacher
from raptor.teachers.evaluate import evaluate
from raptor.teachers.files import load_teacher, save_teacher, teacher_facts
from raptor.training import distributed
from raptor.training.checkpoint import Checkpoint
from raptor.training.finished import note_finished
from raptor.training.loop import fit
from raptor.training.schedules import warmup_linear

log = logging.getLogger(__name__)

_VALIDATIONS = 20  # at most, per training

Splits = dict[str, ImageSplit]


def train_teacher(
    *,
    spec: TrainedTeacher,
    data: DataConfig,
    output: Path,
    history: Path,
    state: Path,
    identity: str,
    device: torch.device,
    autocast: str = "none",
    compiled: bool = False,
) -> None:
    """Train the teacher of `spec` from scratch and write its weights, facts and history.

    An interrupted training continues from `state` when its `identity` is the same, to the same
    weights bit for bit on a CPU; one that has ended stays there (`raptor.training.finished`).
    `history` gets `step, epoch, loss, val_loss, val_accuracy`: `loss` is the mean training loss
    (augmented, smoothed) since the row before. The weights after each of
    `training.checkpoint_epochs` go to `epoch-<e>.safetensors` in a folder named as `output`
    without its suffix.
    """
    splits = _open_splits(data, spec.training.train_images)
    if not splits["train"].class_names:
        raise RaptorError(
            f"data.root: {data.root} holds images without labels, which train no teacher; "
            "give class folders, or a teacher of kind timm"
        )
    per_epoch = spec.training.steps_per_epoch(len(splits["train"]))
    teacher = build_teacher(spec, data, splits["train"].num_classes).to(device)
    compile_modules([teacher], device, compiled)
    optimizer = _optimizer(teacher, spec.training)
    # `fit` keeps it. Each process draws which of its own images skip a block.
    own = [distributed.rank()] if distributed.rank() else []
    torch.manual_seed(derive_seed(spec.seed, "teacher", "stochastic depth", *own))
    checkpoint = Checkpoint(state, identity)
    rows = fit(
        title=output.stem,
        steps=spec.training.epochs * per_epoch,
        step=_step(teacher, optimizer, spec, splits["train"], device, state, autocast),
        parts={"teacher": teacher, "optimizer": optimizer},
        checkpoint=checkpoint,
        validate=lambda: {
            f"val_{name}": value for name, value in evaluate(teacher, splits["val"], device).items()
        },
        validate_every=per_epoch * math.ceil(spec.training.epochs / _VALIDATIONS),
    )
    if distributed.rank() > 0:
        return
    _keep(teacher, spec.training.epochs, spec, state)
    for epoch in sorted(set(spec.training.checkpoint_epochs)):
        kept = load_teacher(_epoch_file(state, epoch), device)
        facts = _facts(kept, spec, data, splits, device)
        save_teacher(kept, _epoch_file(output.with_suffix(""), epoch), **facts, epoch=epoch)
    save_teacher(
        teacher,
        output,
        **_facts(teacher, spec, data, splits, device),
        epoch=spec.training.epochs,
        kept_epochs=sorted(set(spec.training.checkpoint_epochs)),
    )
    _write_history(rows, per_epoch, history)
    note_finished(state, output)


def make_untrained(
    *,
    spec: Architecture,
    data: DataConfig,
    output: Path,
    device: torch.device,
) -> None:
    """Write the initial weights of `spec`, no step taken, with the facts of a trained teacher."""
    splits = _open_splits(data)
    teacher = build_teacher(spec, data, splits["train"].num_classes).to(device)
    save_teacher(teacher, output, **_facts(teacher, spec, data, splits, device), epoch=0)


def make_checkpoint(*, source: Path, epoch: int, output: Path) -> None:
    """Copy the weights that the teacher `source` kept after `epoch`, with their facts.

    `source` is the trained teacher's weights or the JSON beside them.

    An epoch that was not kept, or a kept file that is missing or damaged, is a `RaptorError`.
    """
    kept = teacher_facts(source).get("kept_epochs", [])
    if epoch not in kept:
        raise RaptorError(
            f"{source}: kept no weights after epoch {epoch} (it has {kept}); "
            "add the epoch to training.checkpoint_epochs of that teacher"
        )
    path = _epoch_file(source.with_suffix(""), epoch)
    save_teacher(load_teacher(path), output, **teacher_facts(path))


def _open_splits(data: DataConfig, wanted: int | None = None) -> Splits:
    """The three splits; `train` reduced to its first `wanted` images where that is given."""
    splits = {name: open_split(data, name) for name in ("train", "val", "test")}
    if wanted is not None:
        if wanted > len(splits["train"]):
            raise RaptorError(
                f"teachers.*.training.train_images: {wanted} is more than the "
                f"{len(splits['train'])} images of data.splits.train"
            )
        splits["train"] = splits["train"].first(wanted)
    return splits


def _optimizer(teacher: Teacher, training: TeacherTraining) -> torch.optim.AdamW:
    """AdamW; biases, norms, LayerScale, position embedding and extra tokens do not decay."""
    groups = param_groups_weight_decay(
        teacher.model,
        weight_decay=training.weight_decay,
        no_weight_decay_list=teacher.model.no_weight_decay(),
    )
    return torch.optim.AdamW(groups, lr=training.lr, betas=tuple(training.betas), fused=True)


def _step(
    teacher: Teacher,
    optimizer: torch.optim.AdamW,
    spec: TrainedTeacher,
    train: ImageSplit,
    device: torch.device,
    state: Path,
    autocast: str,
) -> Callable[[int], dict[str, float]]:
    """The function that takes optimiser step `index`; its images depend on (seed, index) alone."""
    training, parameters = spec.training, list(teacher.parameters())
    parallel, casting = distributed.parallel(teacher), autocasting(device, autocast)
    per_epoch = training.steps_per_epoch(len(train))
    schedule = functools.partial(
        warmup_linear,
        steps=training.epochs * per_epoch,
        warmup_steps=training.warmup_steps,
        lr=training.lr,
    )
    labels = torch.from_numpy(train.labels)

    @functools.lru_cache(maxsize=1)
    def order(epoch: int) -> torch.Tensor:
        return torch.randperm(len(train), generator=_generator(spec.seed, "order", epoch))

    def step(index: int) -> dict[str, float]:
        """One optimiser step; returns the loss it descended."""
        epoch, position = divmod(index, per_epoch)
        if position == 0:
            _keep(teacher, epoch, spec, state)
        teacher.train()
        start = position * training.batch_size
        chosen = order(epoch)[start : start + training.batch_size]
        generator = _generator(spec.seed, "augmentation", index)
        # Of the whole batch, so that an image is changed as it would be in one process.
        images = augment(train.images(chosen).to(device), training.augmentation, generator)
        images, truth = distributed.share(images), distributed.share(labels[chosen]).to(device)
        with casting:
            logits = parallel(images)
            loss = F.cross_entropy(logits, truth, label_smoothing=training.label_smoothing)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, training.clip_norm)
        for group in optimizer.param_groups:
            group["lr"] = schedule(index)
        optimizer.step()
        return {"loss": loss.item()}

    return step


def _generator(seed: int, purpose: str, number: int) -> torch.Generator:
    return torch.Generator().manual_seed(derive_seed(seed, "teacher", purpose, number))


def _keep(teacher: Teacher, epoch: int, spec: TrainedTeacher, state: Path) -> None:
    """Put aside the weights after `epoch` if they are asked for.

    They wait in the state folder: what a job has already put in its output folder is gone when
    the job is interrupted and run again.
    """
    if epoch in spec.training.checkpoint_epochs and distributed.rank() == 0:
        save_teacher(teacher, _epoch_file(state, epoch))


def _epoch_file(folder: Path, epoch: int) -> Path:
    return folder / f"epoch-{epoch}.safetensors"


def _facts(
    teacher: Teacher, spec: Architecture, data: DataConfig, splits: Splits, device: torch.device
) -> dict[str, Any]:
    """Accuracy, loss and number of images of each split, and the configuration behind them."""
    measured = {name: evaluate(teacher, split, device) for name, split in splits.items()}
    log.info("accuracy: %s", {name: round(m["accuracy"], 4) for name, m in measured.items()})
    return {
        "accuracy": {name: m["accuracy"] for name, m in measured.items()},
        "loss": {name: m["loss"] for name, m in measured.items()},
        "images": {name: len(split) for name, split in splits.items()},
        "class_names": splits["train"].class_names,
        "spec": spec.model_dump(mode="json"),
        "data": data.model_dump(mode="json"),
    }


def _write_history(rows: list[dict[str, float]], per_epoch: int, path: Path) -> None:
    table = pd.DataFrame(rows)
    table["epoch"] = table["step"] // per_epoch
    with replacing(path) as temporary:
        table[["step", "epoch", "loss", "val_loss", "val_accuracy"]].to_csv(
            temporary, index=False, lineterminator="\n"
        )
