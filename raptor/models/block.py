"""The recurrent block: pre-norm attention and MLP, told by depth scaling which layer it makes."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

import torch
from timm.layers import GluMlp, LayerNorm
from timm.models.vision_transformer import Block
from torch import nn

from raptor.errors import RaptorError

ACTIVATIONS = {"gelu": nn.GELU, "silu": nn.SiLU, "relu": nn.ReLU}
_NAMES = {activation: name for name, activation in ACTIVATIONS.items()}
_SCALING_WIDTH = 16  # hidden units of the depth scaling MLP (paper §Method 3)
_SCALING_STD = 1e-4


@dataclass(frozen=True)
class BlockSpec:
    """All that is needed to build a block; its weights come apart.

    `kind` is `swiglu` (the paper's block: a gated MLP, so `hidden` counts both gates) or
    `teacher` (the plain ViT block of the teacher). `layer_scale` is the initial value, None where
    the block has none; `eps` is the layer norms'.
    """

    kind: Literal["swiglu", "teacher"]
    width: int
    heads: int
    hidden: int
    activation: str
    layer_scale: float | None
    eps: float
    qkv_bias: bool = True
    qk_norm: bool = False
    proj_bias: bool = True
    depth_scaling: bool = True

    @classmethod
    def swiglu(cls, width: int, heads: int, layer_scale: float, depth_scaling: bool) -> BlockSpec:
        """The paper's block: SwiGLU with 4 · width hidden units (paper §Method 3)."""
        return cls(
            "swiglu", width, heads, 8 * width, "silu", layer_scale, 1e-5,
            depth_scaling=depth_scaling,
        )  # fmt: skip

    @classmethod
    def like(cls, block: nn.Module, depth_scaling: bool) -> BlockSpec:
        """The spec of a timm ViT block, stochastic depth left out; RaptorError if it is another."""
        try:
            spec = cls(
                kind="teacher",
                width=block.norm1.normalized_shape[0],
                heads=block.attn.num_heads,
                hidden=block.mlp.fc1.out_features,
                activation=_NAMES[type(block.mlp.act)],
                layer_scale=getattr(block.ls1, "init_values", None),
                eps=block.norm1.eps,
                qkv_bias=block.attn.qkv.bias is not None,
                qk_norm=not isinstance(block.attn.q_norm, nn.Identity),
                proj_bias=block.attn.proj.bias is not None,
                depth_scaling=depth_scaling,
            )
            same = type(block) is Block and _described(spec.assemble()) == _described(block)
        except (AttributeError, KeyError, AssertionError):
            same = False
        if not same:
            raise RaptorError(
                f"block: teacher cannot be used with a teacher whose blocks are {type(block)}"
                " of this make; choose block: swiglu with initialisation: random"
            )
        return spec

    def assemble(self) -> Block:
        """A timm block of this spec, with timm's initial weights and without depth scaling."""
        activation = ACTIVATIONS[self.activation]
        gated = functools.partial(GluMlp, gate_last=False)  # SiLU on the first half
        return Block(
            dim=self.width,
            num_heads=self.heads,
            mlp_ratio=(self.hidden + 0.5) / self.width,  # timm rounds the product down
            qkv_bias=self.qkv_bias,
            qk_norm=self.qk_norm,
            proj_bias=self.proj_bias,
            init_values=self.layer_scale,
            act_layer=activation,
            norm_layer=functools.partial(LayerNorm, eps=self.eps),
            **({"mlp_layer": gated} if self.kind == "swiglu" else {}),
        )


def _described(block: nn.Module) -> list[str]:
    """Modules with their settings, and the shapes of the weights; stochastic depth left out."""
    modules = [f"{name} {module!r}" for name, module in block.named_children()]
    shapes = [f"{name} {tuple(value.shape)}" for name, value in block.state_dict().items()]
    return [line for line in modules + shapes if not line.startswith("drop_path")]


class DepthScaling(nn.Module):
    """`1 + S(l)`: an MLP 1 -> 16 (SiLU) -> 3D of the target layer index l, as it is, from 1."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(1, _SCALING_WIDTH)
        self.act = nn.SiLU()
        self.fc2 = nn.Linear(_SCALING_WIDTH, 3 * width)
        nn.init.normal_(self.fc2.weight, std=_SCALING_STD)
        nn.init.zeros_(self.fc2.bias)

    def forward(self, layer: int) -> tuple[torch.Tensor, ...]:
        """The three vectors (D,) that multiply the attention branch, the MLP branch, the output."""
        index = self.fc1.bias.new_full((1,), float(layer))
        return (1 + self.fc2(self.act(self.fc1(index)))).chunk(3)


class RecurrentBlock(nn.Module):
    """One block of a Raptor (paper §Method 3); without depth scaling it is autonomous."""

    def __init__(self, spec: BlockSpec) -> None:
        super().__init__()
        block = spec.assemble()
        self.spec = spec
        self.norm1, self.attn, self.ls1 = block.norm1, block.attn, block.ls1
        self.norm2, self.mlp, self.ls2 = block.norm2, block.mlp, block.ls2
        self.depth_scaling = DepthScaling(spec.width) if spec.depth_scaling else None

    def forward(self, state_BTD: torch.Tensor, layer: int) -> torch.Tensor:
        """The state of `layer` (1..L) from the state before it, both (B, T, D)."""
        if self.depth_scaling is None:
            state_BTD = state_BTD + self.ls1(self.attn(self.norm1(state_BTD)))
            return state_BTD + self.ls2(self.mlp(self.norm2(state_BTD)))
        attention, mlp, output = self.depth_scaling(layer)
        # Layer scale and depth scaling are products with vectors: multiplied with each other
        # first, they cost one pass over the branch in place of up to three.
        branch = self.attn(self.norm1(state_BTD))
        state_BTD = torch.addcmul(state_BTD, branch, self.ls1(attention))
        branch = self.mlp(self.norm2(state_BTD))
        return torch.addcmul(branch * self.ls2(mlp * output), state_BTD, output)
