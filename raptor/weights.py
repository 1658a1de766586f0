"""Weights on disk: safetensors, and a JSON beside them that says what they are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from raptor.errors import RaptorError, first_line
from raptor.files import digest, replacing, sha256, write_json


def save_weights(module: nn.Module, path: Path, description: Mapping[str, Any]) -> None:
    """Write the state of `module` to `path` (`.safetensors`) and, last, the `.json` beside it.

    The JSON holds `description`, the checksum of the weights (`sha256`), and a `digest` of all
    that. The files are the same wherever the module is and whether it is frozen.
    """
    weights = {
        name: value.detach().cpu().contiguous() for name, value in module.state_dict().items()
    }
    with replacing(path) as temporary:
        save_file(weights, temporary)
    whole = {**description, "sha256": sha256(path)}
    write_json(path.with_suffix(".json"), {**whole, "digest": digest(whole)})


def read_description(path: Path, stage: str) -> dict[str, Any]:
    """The JSON beside the weights `path`, without its digest.

    One that is missing, unreadable or edited is a RaptorError that says to run `stage` again.
    """
    beside = path.with_suffix(".json")
    if not path.exists() and not beside.exists():
        raise _absent(path, stage)
    try:
        description = json.loads(beside.read_text())
    except FileNotFoundError:
        raise RaptorError(
            f"{beside}: missing; the weights of {path.name} cannot be used without it, "
            f"run the {stage} stage again"
        ) from None
    except (OSError, ValueError) as error:
        raise RaptorError(
            f"{beside}: cannot be read ({error}); delete it and run the {stage} stage again"
        ) from None
    if not isinstance(description, dict) or description.pop("digest", None) != digest(description):
        raise RaptorError(
            f"{beside}: damaged or edited, it does not match the digest inside it; "
            f"delete it and run the {stage} stage again"
        )
    return description


def load_weights(module: nn.Module, path: Path, checksum: str, stage: str) -> None:
    """Load the weights `path` into `module`.

    A file that is missing, that has another checksum, or weights of another shape are a
    RaptorError.
    """
    if not path.is_file():
        raise _absent(path, stage)
    beside = path.with_suffix(".json").name
    if sha256(path) != checksum:
        raise RaptorError(
            f"{path}: damaged or exchanged, its checksum is not the one in {beside}; "
            f"delete both files and run the {stage} stage again"
        )
    try:
        weights = load_file(path)
    except SafetensorError as error:
        raise RaptorError(
            f"{path}: holds no weights ({first_line(error)}); delete it and {beside} and run the "
            f"{stage} stage again"
        ) from None
    expected, found = module.state_dict(), weights
    for name in sorted(expected.keys() | found.keys()):
        if _shape(expected.get(name)) != _shape(found.get(name)):
            raise RaptorError(
                f"{path}: weights of another shape: {name} is {_shape(found.get(name))}, "
                f"{beside} needs {_shape(expected.get(name))}; "
                "use the pair of files written together"
            )
    module.load_state_dict(weights)


def _absent(path: Path, stage: str) -> RaptorError:
    return RaptorError(f"{path}: no such weights; run the {stage} stage to make them")


def why_unreadable(error: Exception) -> str:
    """Why a foreign file could not be read; torch's own words advise to run the code in it."""
    if isinstance(error, UnpicklingError):
        return "it is damaged or holds more than tensors"
    cut_off = isinstance(error, SafetensorError) or "zip archive" in str(error)
    return "it is cut off or damaged, fetch it again" if cut_off else first_line(error)


def _shape(value: torch.Tensor | None) -> str:
    return "absent" if value is None else str(tuple(value.shape))
