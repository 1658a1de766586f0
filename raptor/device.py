"""Which device to compute on."""

from __future__ import annotations

import logging

import torch

from raptor.errors import RaptorError

log = logging.getLogger(__name__)


def resolve_device(name: str) -> torch.device:
    """`auto`, `cpu`, `cuda` or `mps` -> a device that exists; a missing one is an error."""
    present = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.mps.is_available()}
    if name == "auto":
        name = "cuda" if present["cuda"] else "cpu"
        log.info("device: auto -> %s", name)
    if not present.get(name, False):
        raise RaptorError(
            f"device: {name} was asked for but is not available here; "
            f"use one of {[n for n, there in present.items() if there]} or auto"
        )
    return torch.device(name)
