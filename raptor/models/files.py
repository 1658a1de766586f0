"""Raptors on disk: their weights, and what rebuilds them without their teacher."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from raptor.errors import RaptorError
from raptor.models.block import BlockSpec, RecurrentBlock
from raptor.models.raptor import Raptor
from raptor.weights import load_weights, read_description, save_weights

_STAGE = "raptor"
_OWN_KEYS = ("block", "labels", "sha256")


def save_raptor(raptor: Raptor, path: str | Path, **facts: Any) -> None:
    """Write `path` (`.safetensors`) and, last, the `.json` beside it.

    The JSON holds the spec of the blocks, `labels` (for each layer its block, counted from 1)
    and `facts`.
    """
    own = {
        "block": asdict(raptor.blocks[0].spec),
        "labels": [label + 1 for label in raptor.labels],
    }
    save_weights(raptor, Path(path), {**facts, **own})


def load_raptor(path: str | Path, device: torch.device | str = "cpu") -> Raptor:
    """The Raptor in `path`, in evaluation mode and frozen.

    A file that is missing, damaged, does not fit the other, or is no Raptor's is a RaptorError.
    """
    description = read_description(Path(path), _STAGE)
    if not description.keys() >= {"block", "labels"}:
        raise RaptorError(f"{path}: is not a Raptor; give the .safetensors of one")
    spec = BlockSpec(**description["block"])
    labels = [label - 1 for label in description["labels"]]
    raptor = Raptor([RecurrentBlock(spec) for _ in range(max(labels) + 1)], labels)
    load_weights(raptor, Path(path), description["sha256"], _STAGE)
    return raptor.to(device).eval().requires_grad_(False)


def raptor_facts(path: str | Path) -> dict[str, Any]:
    """The facts given to `save_raptor` for the Raptor in `path`."""
    description = read_description(Path(path), _STAGE)
    return {key: value for key, value in description.items() if key not in _OWN_KEYS}
