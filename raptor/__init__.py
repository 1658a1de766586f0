"""Block-recurrent dynamics in Vision Transformers: phases, Raptors, and what they show."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

__version__ = "0.1.0"


def load(path: str | Path) -> Any:
    """A trained Raptor (`torch.nn.Module`) from a `.safetensors` file, its `.json` beside it.

    `forward(a0)` takes the embedding state (B, T, D) and returns all L states (B, L, T, D).
    """
    # Imported by name: a table or a figure must depend neither on torch nor on the models' code.
    return importlib.import_module("raptor.models.files").load_raptor(path)
