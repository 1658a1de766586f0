"""Teachers on disk: their weights by timm's names, and what rebuilds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from raptor.teachers.adapter import Teacher
from raptor.teachers.build import assemble
from raptor.teachers.heads import feature_width, load_head
from raptor.weights import load_weights, read_description, save_weights

_STAGE = "teacher"
_OWN_KEYS = ("architecture", "layout", "sha256")


def save_teacher(teacher: Teacher, path: str | Path, **facts: Any) -> None:
    """Write `path` (`.safetensors`) and, last, the `.json` beside it.

    The JSON holds the architecture, the token layout and `facts` (accuracies, the configuration
    it was trained with).
    """
    own = {"architecture": teacher.architecture, "layout": teacher.layout.to_dict()}
    save_weights(teacher.model, Path(path), {**facts, **own})


def load_teacher(
    path: str | Path, device: torch.device | str = "cpu", *, head: Path | None = None
) -> Teacher:
    """The teacher in `path`, in evaluation mode and frozen.

    `head`: the linear head on [cls ; mean patch] of a teacher that has none of its own. A missing
    file, weights that were damaged or exchanged, or that do not fit the architecture
    in the JSON are a `RaptorError`.
    """
    description = read_description(Path(path), _STAGE)
    # The seed is of no account: every weight is replaced.
    teacher = assemble(description["architecture"], seed=0)
    load_weights(teacher.model, Path(path), description["sha256"], _STAGE)
    if head is not None:
        classes = len(description["class_names"])
        teacher.linear_head = load_head(head, feature_width(teacher), classes)
    return teacher.to(device).eval().requires_grad_(False)


def teacher_facts(path: str | Path) -> dict[str, Any]:
    """The facts given to `save_teacher` for the teacher in `path`."""
    description = read_description(Path(path), _STAGE)
    return {key: value for key, value in description.items() if key not in _OWN_KEYS}
