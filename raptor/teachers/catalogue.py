"""Makes `raptor/config/catalogue.json`: python -m raptor.teachers.catalogue > THAT FILE."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from importlib import import_module

import timm
import torch
from torch import nn

from raptor.config.shape import Shape
from raptor.errors import RaptorError
from raptor.models.block import BlockSpec
from raptor.teachers.adapter import OF_ANOTHER_KIND, Teacher, why_not_plain


def describe(name: str) -> Shape | str:
    """The shape of a model of timm, or why it is not a plain Vision Transformer."""
    with torch.device("meta"):  # no weights: only their shapes
        model = timm.create_model(name, pretrained=False, num_classes=0)
    reason = why_not_plain(model)
    if reason is not None:
        return reason
    teacher, block = Teacher(model, {"model": name}), model.blocks[0]
    matrices = _count(p for p in block.parameters() if p.ndim == 2)
    return Shape(
        depth=teacher.depth,
        width=teacher.width,
        heads=teacher.num_heads,
        patch_size=int(model.patch_embed.feat_ratio()),
        cls=teacher.layout.cls,
        registers=teacher.layout.registers,
        mlp_products=matrices - 4 * teacher.width**2,
        block_parameters=_count(block.parameters()),
        plain_block=_is_plain(block),
    )


def _is_plain(block: nn.Module) -> bool:
    try:
        BlockSpec.like(block, depth_scaling=False)
    except RaptorError:
        return False
    return True


def _count(parameters: Iterable[nn.Parameter]) -> int:
    return sum(parameter.numel() for parameter in parameters)


def _knows_plain_models(module: str) -> bool:
    """Whether a module of timm can make one: building its thousand others takes a quarter hour."""
    return not {"VisionTransformer", "Eva"}.isdisjoint(vars(import_module(f"timm.models.{module}")))


def main() -> None:
    """Print the catalogue: a row of numbers for each plain model, a reason for all others."""
    plain: dict[str, Shape] = {}
    refused: dict[str, list[str]] = {}
    for module in timm.list_modules():
        for name in timm.list_models(module=module):
            found = describe(name) if _knows_plain_models(module) else OF_ANOTHER_KIND
            if isinstance(found, Shape):
                plain[name] = found
            else:
                refused.setdefault(found, []).append(name)
    rows = ",\n".join(
        f"    {json.dumps(name)}: {json.dumps(row[:-1])}" for name, row in plain.items()
    )
    reasons = json.dumps(refused, indent=1)
    print(f'{{"timm": "{timm.__version__}", "refused": {reasons}, "plain": {{\n{rows}\n}}}}')
    print(f"{len(plain)} plain, {sum(map(len, refused.values()))} refused", file=sys.stderr)


if __name__ == "__main__":
    main()
