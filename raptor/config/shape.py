"""The shape of a teacher, whoever trained it: what its cost and its cuts follow from."""

from __future__ import annotations

from typing import NamedTuple


class Shape(NamedTuple):
    """Of a plain Vision Transformer.

    `mlp_products`: multiplications per token of one MLP; `block_parameters` of one block, all
    that it has; `plain_block`: whether `block: teacher` can build one like it; `stem`: one
    patch-sized convolution (`patch`) or several small ones (`conv`).
    """

    depth: int
    width: int
    heads: int
    patch_size: int
    cls: int
    registers: int
    mlp_products: int
    block_parameters: int
    plain_block: bool = True
    stem: str = "patch"


def block_parameters(width: int, hidden_in: int, hidden_out: int, layer_scale: bool) -> int:
    """Two norms, qkv and projection, fc1 to `hidden_in`, fc2 from `hidden_out`, LayerScale."""
    attention = 4 * width**2 + 4 * width
    mlp = width * hidden_in + hidden_in + hidden_out * width + width
    return 4 * width + attention + mlp + 2 * width * layer_scale
