"""Which of timm's models are plain Vision Transformers, and the shape of each.

`catalogue.json` is made by `python -m raptor.teachers.catalogue`, so that checking a
configuration and a dry run need neither torch nor timm.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from raptor.config.fields import did_you_mean
from raptor.config.shape import Shape


def look_up(model: str) -> Shape:
    """The shape of timm's `model`, with or without the tag of its weights after a dot.

    ValueError, one sentence, for a model that timm does not have or that is refused.
    """
    name, catalogue = model.split(".")[0], _catalogue()
    if name in catalogue["plain"]:
        return Shape(*catalogue["plain"][name])
    for reason, names in catalogue["refused"].items():
        if name in names:
            raise ValueError(f"{model!r} is not a plain Vision Transformer, {reason}; choose one")
    hint = did_you_mean(name, catalogue["plain"])
    raise ValueError(
        f"{model!r} is not a model of timm {catalogue['timm']}" + (f"; {hint}" if hint else "")
    )


@cache
def _catalogue() -> dict[str, Any]:
    return json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
