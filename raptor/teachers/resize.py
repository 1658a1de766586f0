"""A teacher on disk, for images of another size than it was made for."""

from __future__ import annotations

from pathlib import Path

import torch

from raptor.config.data import DataConfig
from raptor.config.teachers import TimmTeacher
from raptor.teachers.adapter import Teacher
from raptor.teachers.files import load_teacher, teacher_facts
from raptor.teachers.pretrained import load_timm


def teacher_at_size(
    path: Path, height: int, width: int, device: torch.device | str = "cpu"
) -> Teacher:
    """The teacher in `path` for images of that size in pixels, in evaluation mode and frozen.

    The weights of one that timm made are read anew from where they came, without a head: the
    position embedding in `path` is resampled already, and twice would lose detail. RaptorError for
    weights that cannot be had, or a size that is no multiple of the patch size.
    """
    teacher, facts = load_teacher(path).at_size(height, width), teacher_facts(path)
    if facts.get("spec", {}).get("kind") == "timm":
        spec = TimmTeacher.model_validate({**facts["spec"], "head": "none"})
        data = DataConfig.model_validate(facts["data"])
        teacher = load_timm(spec, data, 0, image_size=(height, width))
    return teacher.to(device).eval().requires_grad_(False)
