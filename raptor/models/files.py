"""Raptors on disk: safetensors weights, and a JSON beside them that says how to build them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from raptor.errors import RaptorError
from raptor.files import digest, replacing, sha256, write_json
from raptor.models.block import BlockSpec, RecurrentBlock
from raptor.models.raptor import Raptor

_OWN_KEYS = ("block", "labels", "sha256")


def save_raptor(raptor: Raptor, path: str | Path, **facts: Any) -> None:
    """Write `path` (`.safetensors`) and, last, the `.json` beside it.

    The JSON holds what rebuilds the model without its teacher (the spec of the blocks, and
    `labels`: for each layer its block, counted from 1), the checksum of the weights, `facts`,
    and a digest of all that.
    """
    path = Path(path)
    # Frozen or not, on whatever device: the file is the same.
    weights = {
        name: value.detach().cpu().contiguous() for name, value in raptor.state_dict().items()
    }
    with replacing(path) as temporary:
        save_file(weights, temporary)
    description = {
        **facts,
        "block": asdict(raptor.blocks[0].spec),
        "labels": [label + 1 for label in raptor.labels],
        "sha256": sha256(path),
    }
    write_json(path.with_suffix(".json"), {**description, "digest": digest(description)})


def load_raptor(path: str | Path, device: torch.device | str = "cpu") -> Raptor:
    """The Raptor in `path`, in evaluation mode and frozen.

    A file that is missing, damaged, or does not fit the other is a RaptorError.
    """
    path = Path(path)
    description = _description(path)
    if not path.is_file():
        raise RaptorError(f"{path}: no such student; run the raptor stage to make it")
    if sha256(path) != description["sha256"]:
        raise RaptorError(
            f"{path}: damaged or exchanged, its checksum is not the one in "
            f"{path.with_suffix('.json').name}; delete both files and run the raptor stage again"
        )
    spec = BlockSpec(**description["block"])
    labels = [label - 1 for label in description["labels"]]
    raptor = Raptor([RecurrentBlock(spec) for _ in range(max(labels) + 1)], labels)
    weights = load_file(path)
    _check_shapes(path, raptor, weights)
    raptor.load_state_dict(weights)
    return raptor.to(device).eval().requires_grad_(False)


def raptor_facts(path: str | Path) -> dict[str, Any]:
    """The facts given to `save_raptor` for the Raptor in `path`."""
    description = _description(Path(path))
    return {key: value for key, value in description.items() if key not in _OWN_KEYS}


def _check_shapes(path: Path, raptor: Raptor, weights: dict[str, torch.Tensor]) -> None:
    expected = {name: tuple(value.shape) for name, value in raptor.state_dict().items()}
    found = {name: tuple(value.shape) for name, value in weights.items()}
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            raise RaptorError(
                f"{path}: weights of another shape: {name} is {found.get(name, 'absent')}, "
                f"{path.with_suffix('.json').name} needs {expected.get(name, 'none of it')}; "
                "use the pair of files written together"
            )


def _description(path: Path) -> dict[str, Any]:
    beside = path.with_suffix(".json")
    try:
        description = json.loads(beside.read_text())
    except FileNotFoundError:
        raise RaptorError(
            f"{beside}: missing; the weights of {path.name} cannot be used without it, "
            "run the raptor stage again"
        ) from None
    except (OSError, ValueError) as error:
        raise RaptorError(
            f"{beside}: cannot be read ({error}); delete it and run the raptor stage again"
        ) from None
    if not isinstance(description, dict) or description.pop("digest", None) != digest(description):
        raise RaptorError(
            f"{beside}: damaged or edited, it does not match the digest inside it; "
            "delete it and run the raptor stage again"
        )
    return description
