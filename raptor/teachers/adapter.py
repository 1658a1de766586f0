"""The one place that knows timm: a Vision Transformer seen as a sequence of states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from timm.models.vision_transformer import Block, VisionTransformer
from torch import nn

from raptor.errors import RaptorError
from raptor.tokens import TokenLayout


class Teacher(nn.Module):
    """A timm `VisionTransformer` with L = `depth` blocks.

    State 0 is the embedding (after position embedding, cls and register tokens); state l is the
    output of block l, before the final norm (paper, Definitions). `architecture` holds what
    `raptor.teachers.build.assemble` needs to make the same model again.
    """

    def __init__(self, model: VisionTransformer, architecture: Mapping[str, Any]) -> None:
        super().__init__()
        self.model = model
        self.architecture = dict(architecture)
        self.depth = len(model.blocks)
        self.width: int = model.embed_dim
        self.num_heads: int = model.blocks[0].attn.num_heads
        self.num_classes: int = model.num_classes
        self.layout = TokenLayout(
            cls=int(model.has_class_token),
            registers=model.num_reg_tokens,
            patches=model.patch_embed.num_patches,
        )

    @property
    def blocks(self) -> nn.Sequential:
        """The L blocks; layer l is `blocks[l - 1]`."""
        return self.model.blocks

    def embed(self, images_BCHW: torch.Tensor) -> torch.Tensor:
        """State 0 (B, T, D) of normalised images."""
        tokens = self.model._pos_embed(self.model.patch_embed(images_BCHW))
        return self.model.norm_pre(self.model.patch_drop(tokens))

    def states(self, images_BCHW: torch.Tensor) -> torch.Tensor:
        """All states a_0..a_L, (B, L + 1, T, D)."""
        states = [self.embed(images_BCHW)]
        for block in self.blocks:
            states.append(block(states[-1]))
        return torch.stack(states, dim=1)

    def continue_from(self, state_BTD: torch.Tensor, layer: int) -> torch.Tensor:
        """State L (B, T, D) from the state of `layer` in 0..L: blocks `layer + 1`..L applied."""
        if not 0 <= layer <= self.depth:
            raise RaptorError(f"layer {layer}: this teacher has the states 0..{self.depth}")
        for block in self.blocks[layer:]:
            state_BTD = block(state_BTD)
        return state_BTD

    def branches(self, state_BTD: torch.Tensor, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """What the attention and the MLP of `layer` in 1..L add to the state before it.

        Both (B, T, D), LayerScale and stochastic depth included: the state after the layer is
        `(state + attention) + mlp`. RaptorError for blocks of another make, whose branches are
        not one after the other.
        """
        if not 1 <= layer <= self.depth:
            raise RaptorError(f"layer {layer}: this teacher has the layers 1..{self.depth}")
        block = self.blocks[layer - 1]
        if type(block) is not Block:
            raise RaptorError(
                f"layer {layer}: a {type(block).__name__} of timm has no attention and MLP branch "
                "one after the other; leave this teacher out of branches.teachers"
            )
        attention = block.drop_path1(block.ls1(block.attn(block.norm1(state_BTD))))
        middle = state_BTD + attention
        return attention, block.drop_path2(block.ls2(block.mlp(block.norm2(middle))))

    def normed(self, state_BTD: torch.Tensor) -> torch.Tensor:
        """The final norm applied to a state (B, T, D)."""
        return self.model.norm(state_BTD)

    def logits(self, aL_BTD: torch.Tensor) -> torch.Tensor:
        """(B, classes) from state L: final norm, pooling, and the teacher's own head."""
        return self.model.forward_head(self.normed(aL_BTD))

    def forward(self, images_BCHW: torch.Tensor) -> torch.Tensor:
        """(B, classes) logits."""
        return self.logits(self.continue_from(self.embed(images_BCHW), 0))
