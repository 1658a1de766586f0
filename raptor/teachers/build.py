"""From configuration to a Vision Transformer with its initial weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import timm
import torch
from timm.layers import DropPath, PatchEmbed
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from raptor.config.data import DataConfig
from raptor.config.teachers import Architecture
from raptor.seeds import derive_seed
from raptor.teachers.adapter import Teacher
from raptor.teachers.stem import ConvStem

_STEMS = {"patch": PatchEmbed, "conv": ConvStem}


def build_teacher(spec: Architecture, data: DataConfig, num_classes: int) -> Teacher:
    """A `Teacher` for images of `data` with initial weights that follow from `spec.seed` alone.

    `[cls | registers | patches]`, class token pooled, stochastic depth at the same rate in every
    layer (paper §Method 7).
    """
    architecture = spec.model_dump(exclude={"kind", "seed", "training"}) | {
        "image_size": data.image_size,
        "channels": data.channels,
        "num_classes": num_classes,
    }
    return assemble(architecture, seed=spec.seed)


def assemble(architecture: Mapping[str, Any], *, seed: int) -> Teacher:
    """A `Teacher` of that architecture with random weights: timm's `model`, or one of its parts.

    The global random state is left as it was.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive_seed(seed, "teacher", "weights"))
        model = _timm_model(architecture) if "model" in architecture else _own_model(architecture)
    return Teacher(model, architecture)


def _timm_model(architecture: Mapping[str, Any]) -> nn.Module:
    return timm.create_model(
        architecture["model"],
        pretrained=False,
        img_size=architecture["image_size"],
        in_chans=architecture["channels"],
        num_classes=architecture["num_classes"],
    )


def _own_model(architecture: Mapping[str, Any]) -> VisionTransformer:
    model = VisionTransformer(
        img_size=architecture["image_size"],
        in_chans=architecture["channels"],
        num_classes=architecture["num_classes"],
        depth=architecture["depth"],
        embed_dim=architecture["width"],
        num_heads=architecture["heads"],
        mlp_ratio=architecture["mlp_ratio"],
        patch_size=architecture["patch_size"],
        embed_layer=_STEMS[architecture["stem"]],
        reg_tokens=architecture["registers"],
        init_values=architecture["layer_scale"],
        global_pool="token",
    )
    _set_stochastic_depth(model, architecture["stochastic_depth"])
    return model


def _set_stochastic_depth(model: VisionTransformer, rate: float) -> None:
    """Drop both branches of every block at `rate`; timm's `drop_path_rate` grows with depth."""
    if rate > 0:
        for block in model.blocks:
            block.drop_path1, block.drop_path2 = DropPath(rate), DropPath(rate)
