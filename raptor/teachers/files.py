"""Teachers on disk: safetensors weights, and a JSON beside them that says what they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from raptor.errors import RaptorError
from raptor.files import digest, replacing, sha256, write_json
from raptor.teachers.adapter import Teacher
from raptor.teachers.build import assemble

_OWN_KEYS = ("architecture", "layout", "sha256")


def save_teacher(teacher: Teacher, path: str | Path, **facts: Any) -> None:
    """Write `path` (`.safetensors`, timm's parameter names) and the `.json` beside it.

    The JSON holds the architecture, the token layout, the checksum of the weights, `facts`
    (accuracies, the configuration it was trained with) and a digest of all that.
    """
    path = Path(path)
    weights = {name: value.contiguous() for name, value in teacher.model.state_dict().items()}
    with replacing(path) as temporary:
        save_file(weights, temporary)
    description = {
        **facts,
        "architecture": teacher.architecture,
        "layout": teacher.layout.to_dict(),
        "sha256": sha256(path),
    }
    write_json(path.with_suffix(".json"), {**description, "digest": digest(description)})


def load_teacher(path: str | Path, device: torch.device | str = "cpu") -> Teacher:
    """The teacher in `path`, in evaluation mode and frozen.

    A missing file, weights that were damaged or exchanged, or that do not fit the architecture
    in the JSON are a `RaptorError`.
    """
    path = Path(path)
    description = _description(path)
    if not path.is_file():
        raise RaptorError(f"{path}: no such teacher; run the teacher stage to make it")
    if sha256(path) != description["sha256"]:
        raise RaptorError(
            f"{path}: damaged or exchanged, its checksum is not the one in "
            f"{path.with_suffix('.json').name}; delete both files and run the teacher stage again"
        )
    # The seed is of no account: every weight is replaced.
    teacher = assemble(description["architecture"], seed=0)
    weights = load_file(path)
    _check_shapes(path, teacher, weights)
    teacher.model.load_state_dict(weights)
    return teacher.to(device).eval().requires_grad_(False)


def teacher_facts(path: str | Path) -> dict[str, Any]:
    """The facts given to `save_teacher` for the teacher in `path`."""
    description = _description(Path(path))
    return {key: value for key, value in description.items() if key not in _OWN_KEYS}


def _check_shapes(path: Path, teacher: Teacher, weights: dict[str, torch.Tensor]) -> None:
    expected = {name: value.shape for name, value in teacher.model.state_dict().items()}
    found = {name: value.shape for name, value in weights.items()}
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            raise RaptorError(
                f"{path}: checkpoint of another shape: {name} is {_shape(found.get(name))}, the "
                f"architecture in {path.with_suffix('.json').name} needs "
                f"{_shape(expected.get(name))}; use the pair of files written together"
            )


def _description(path: Path) -> dict[str, Any]:
    beside = path.with_suffix(".json")
    try:
        description = json.loads(beside.read_text())
    except FileNotFoundError:
        raise RaptorError(
            f"{beside}: missing; the weights of {path.name} cannot be understood without it, "
            "run the teacher stage again"
        ) from None
    except (OSError, ValueError) as error:
        raise RaptorError(
            f"{beside}: cannot be read ({error}); delete it and run the teacher stage again"
        ) from None
    if not isinstance(description, dict) or description.pop("digest", None) != digest(description):
        raise RaptorError(
            f"{beside}: damaged or edited, it does not match the digest inside it; "
            "delete it and run the teacher stage again"
        )
    return description


def _shape(shape: torch.Size | None) -> str:
    return "absent" if shape is None else str(tuple(shape))
