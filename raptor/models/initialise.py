"""The first weights of a Raptor: random, or the mean of the teacher's blocks of each phase."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from timm.models.vision_transformer import init_weights_vit_timm
from torch import nn

from raptor.config.students import Recipe
from raptor.models.block import BlockSpec, RecurrentBlock
from raptor.models.raptor import Raptor

if TYPE_CHECKING:
    from raptor.teachers.adapter import Teacher


def build_raptor(recipe: Recipe, labels: Sequence[int], teacher: Teacher, seed: int) -> Raptor:
    """An untrained Raptor; `labels[l - 1]` in 0..k-1 is the block of layer l.

    `random`: the published block's initial weights (`swiglu`) or a ViT's (`teacher`).
    `phase_mean`: each block's weights are the mean over the teacher's blocks of its layers.
    Depth scaling starts near 1 in both. The result depends on `seed`, the global random state
    is left as it was. RaptorError where the teacher's blocks are of an unknown make.
    """
    if recipe.block == "swiglu":
        spec = BlockSpec.swiglu(
            teacher.width, teacher.num_heads, recipe.layer_scale, recipe.depth_scaling
        )
    else:
        spec = BlockSpec.like(teacher.blocks[0], recipe.depth_scaling)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        blocks = [_random_block(spec) for _ in range(max(labels) + 1)]
    raptor = Raptor(blocks, labels)
    if recipe.initialisation == "phase_mean":
        for index, block in enumerate(raptor.blocks):
            layers = [layer for layer, label in enumerate(raptor.labels) if label == index]
            _set_to_mean(block, [teacher.blocks[layer] for layer in layers])
    return raptor


def _random_block(spec: BlockSpec) -> RecurrentBlock:
    block = RecurrentBlock(spec)
    if spec.kind == "swiglu":  # as nn.MultiheadAttention does, which the published block holds
        nn.init.xavier_uniform_(block.attn.qkv.weight)
        nn.init.zeros_(block.attn.qkv.bias)
        nn.init.zeros_(block.attn.proj.bias)
    else:
        for part in (block.attn, block.mlp):
            part.apply(init_weights_vit_timm)
    return block


@torch.no_grad()
def _set_to_mean(block: RecurrentBlock, sources: list[nn.Module]) -> None:
    """Every parameter of `block` but depth scaling's becomes the mean over `sources`."""
    weights = [dict(source.named_parameters()) for source in sources]
    for name, parameter in block.named_parameters():
        if not name.startswith("depth_scaling."):
            parameter.copy_(torch.stack([w[name].double() for w in weights]).mean(dim=0))
