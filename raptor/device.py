"""Which device to compute on, and how."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import AbstractContextManager

import torch
from torch import nn

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


def autocasting(device: torch.device, autocast: str) -> AbstractContextManager:
    """Where products are computed in 16 bits: inside, on CUDA, if `autocast` is `bfloat16`."""
    wanted = autocast == "bfloat16"
    if wanted and device.type != "cuda":
        log.info("autocast: %s is for CUDA, off on %s", autocast, device)
    return torch.autocast("cuda", torch.bfloat16, enabled=wanted and device.type == "cuda")


def compile_modules(modules: Iterable[nn.Module], device: torch.device, compiled: bool) -> None:
    """Compile modules in place, on CUDA, if `compiled`; their weights keep their names."""
    if compiled and device.type != "cuda":
        log.info("compile: is for CUDA, off on %s", device)
    elif compiled:
        for module in modules:
            module.compile()
