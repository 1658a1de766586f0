"""A teacher on disk, for images of another size than it was made for."""

from __future__ import annotations

from pathlib import Path

import torch

from raptor.config.data import DataConfig
from raptor.config.teachers import TimmTeacher
from raptor.errors import RaptorError
from raptor.teachers.adapter import Teacher
from raptor.teachers.files import load_teacher, teacher_facts
from raptor.teachers.pretrained import load_timm


def teacher_at_size(
    path: Path, height: int, width: int, device: torch.device | str = "cpu"
) -> Teacher:
    """The teacher in `path` for images of that size in pixels, in evaluation mode and frozen.

    The pretrained weights of one that timm made are read anew from where they came, without a
    head: the position embedding in `path` is resampled already, and twice would lose detail.
    RaptorError for weights that cannot be had or are other ones now, or a size that is no multiple
    of the patch size.
    """
    teacher, facts = load_teacher(path), teacher_facts(path)
    spec = facts.get("spec", {})
    if spec.get("kind") == "timm" and spec["weights"] != "random":
        anew = TimmTeacher.model_validate({**spec, "head": "none"})
        data = DataConfig.model_validate(facts["data"])
        other = load_timm(anew, data, 0, image_size=(height, width))
        _refuse_another(path, teacher, other, spec["weights"])
    else:
        other = teacher.at_size(height, width)
    return other.to(device).eval().requires_grad_(False)


def _refuse_another(path: Path, teacher: Teacher, other: Teacher, weights: str) -> None:
    """But for the position embedding, the weights must be those of `path`."""
    own, anew = teacher.model.state_dict(), other.model.state_dict()
    for name in set(own) & set(anew) - {"pos_embed"}:
        if own[name].shape == anew[name].shape and not torch.equal(own[name], anew[name]):
            raise RaptorError(
                f"{path}: was made of other weights than {weights} now gives ({name} differs); "
                "delete it and run again"
            )
