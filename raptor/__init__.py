"""Block-recurrent dynamics in Vision Transformers: phases, Raptors, and what they show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raptor.models.raptor import Raptor

__version__ = "0.1.0"


def load(path: str | Path) -> Raptor:
    """A trained Raptor from `path` (`.safetensors`, with its `.json` beside it).

    `forward(a0)` takes the embedding state (B, T, D) and returns all L states (B, L, T, D).
    """
    from raptor.models.files import load_raptor  # torch is imported only when a model is asked for

    return load_raptor(path)
