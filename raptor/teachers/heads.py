"""Linear heads on `[cls ; mean patch]`: published ones, and the probes that are fitted here."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn

from raptor.errors import RaptorError
from raptor.teachers.adapter import Teacher
from raptor.weights import why_unreadable


def feature_width(teacher: Teacher) -> int:
    """How many features a linear head reads: 2D, or D of a teacher without cls."""
    return teacher.width * (2 if teacher.layout.cls else 1)


def load_head(path: Path, features: int, classes: int) -> nn.Linear:
    """The head in `path`: `weight` (classes, features) and `bias`, `.safetensors` or `.pth`.

    RaptorError where the file is none, or of another shape.
    """
    path = Path(path)
    if not path.is_file():
        raise RaptorError(
            f"{path}: the file of a linear head is not there; put it there (those of DINOv2 are "
            "below https://dl.fbaipublicfiles.com/dinov2/), or give another one as `head`"
        )
    try:
        if path.suffix in (".pth", ".pt"):
            found = torch.load(path, map_location="cpu", weights_only=True)
        else:
            found = load_file(path)
        shapes = {name: tuple(found[name].shape) for name in ("weight", "bias")}
    except Exception as error:  # safetensors, torch and pickle each have their own
        raise RaptorError(
            f"{path}: not a linear head ({why_unreadable(error)}); give a file that holds weight "
            "and bias, or delete it and run again where it was made here"
        ) from None
    needed = {"weight": (classes, features), "bias": (classes,)}
    if shapes != needed:
        raise RaptorError(
            f"{path}: a head of weight {shapes['weight']} and bias {shapes['bias']}, this teacher "
            f"and these classes need {needed['weight']} and {needed['bias']}; give one that fits"
        )
    head = nn.utils.skip_init(nn.Linear, features, classes)
    head.load_state_dict({name: found[name].float() for name in needed})
    return head
