"""The one place that knows timm: a Vision Transformer seen as a sequence of states."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from timm.models.eva import Eva, EvaBlock
from timm.models.vision_transformer import (
    Block,
    DiffParallelScalingBlock,
    ParallelScalingBlock,
    ParallelThingsBlock,
    VisionTransformer,
)
from torch import nn

from raptor.errors import RaptorError
from raptor.tokens import TokenLayout

OF_ANOTHER_KIND = "its tokens, or what they attend to, change from block to block"
PARALLEL = (ParallelScalingBlock, ParallelThingsBlock, DiffParallelScalingBlock)


def why_not_plain(model: nn.Module) -> str | None:
    """None for a Vision Transformer whose states keep one shape, else the reason, a clause.

    Plain are timm's `VisionTransformer` (ViT, DeiT, DINOv2, MAE, CLIP, SigLIP, ...) and `Eva`
    (EVA-02, DINOv3, Perception Encoder), whose blocks run attention and MLP one after the other.
    """
    if not isinstance(model, VisionTransformer | Eva):
        return OF_ANOTHER_KIND
    if isinstance(model.blocks[0], PARALLEL):
        blocks = type(model.blocks[0]).__name__
        return f"attention and MLP run side by side in its blocks ({blocks})"
    if not model.patch_embed.num_patches:
        return "its number of patches is not fixed"
    return None


class Teacher(nn.Module):
    """A plain Vision Transformer of timm with L = `depth` blocks.

    State 0 is the embedding (after position embedding, cls and register tokens); state l is the
    output of block l, before the final norm (paper, Definitions). `architecture` holds what
    `raptor.teachers.build.assemble` needs to make the same model again.
    """

    def __init__(self, model: VisionTransformer | Eva, architecture: Mapping[str, Any]) -> None:
        super().__init__()
        reason = why_not_plain(model)
        if reason is not None:
            raise RaptorError(
                f"{architecture.get('model', 'teacher')}: timm's {type(model).__name__} is not a "
                f"plain Vision Transformer, {reason}; choose one of its classes VisionTransformer "
                "and Eva (DINOv2, DINOv3, CLIP, EVA-02, ...)"
            )
        self.model = model
        self.architecture = dict(architecture)
        self.depth = len(model.blocks)
        self.width: int = model.embed_dim
        self.num_heads: int = model.blocks[0].attn.num_heads
        self.linear_head: nn.Linear | None = None  # on [cls ; mean patch], in place of its own
        cls = int(model.cls_token is not None)
        self.layout = TokenLayout(
            cls=cls,
            registers=model.num_prefix_tokens - cls,  # DeiT's distillation token is one of them
            patches=model.patch_embed.num_patches,
        )

    @property
    def num_classes(self) -> int:
        """How many classes its head tells apart; 0 where it has none."""
        return self.linear_head.out_features if self.linear_head else self.model.num_classes

    @property
    def pools_patches(self) -> bool:
        """Whether its own head reads the mean patch, not cls."""
        return self.model.global_pool == "avg"

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches, which stand row by row."""
        return self.model.patch_embed.grid_size

    @property
    def patch_size(self) -> tuple[int, int]:
        """Height and width, in pixels, from one patch to the next."""
        return self.model.patch_embed.feat_ratio(as_scalar=False)

    def at_size(self, height: int, width: int) -> Teacher:
        """A copy for images of that size in pixels, its position embedding resampled (bicubic).

        RaptorError for a size that is no multiple of the patch size.
        """
        if height % self.patch_size[0] or width % self.patch_size[1]:
            raise RaptorError(
                f"image size {height} × {width}: is no multiple of this teacher's patches of "
                f"{self.patch_size[0]} × {self.patch_size[1]} px; give one that is"
            )
        model = copy.deepcopy(self.model)
        model.set_input_size(img_size=(height, width))
        other = Teacher(model, {**self.architecture, "image_size": [height, width]})
        other.linear_head = self.linear_head
        return other.train(self.training)

    @property
    def blocks(self) -> nn.Sequential:
        """The L blocks; layer l is `blocks[l - 1]`."""
        return self.model.blocks

    def embed(self, images_BCHW: torch.Tensor) -> torch.Tensor:
        """State 0 (B, T, D) of normalised images."""
        tokens = self.model._pos_embed(self.model.patch_embed(images_BCHW))
        if isinstance(self.model, Eva):
            tokens, _ = tokens  # the rotary embedding, which `block` asks for again
        else:
            tokens = self.model.patch_drop(tokens)
        return self.model.norm_pre(tokens)

    def block(self, state_BTD: torch.Tensor, layer: int) -> torch.Tensor:
        """The state of `layer` in 1..L from the state before it, both (B, T, D)."""
        return self.blocks[layer - 1](state_BTD, **self._beside_the_state(layer))

    def states(self, images_BCHW: torch.Tensor) -> torch.Tensor:
        """All states a_0..a_L, (B, L + 1, T, D)."""
        states = [self.embed(images_BCHW)]
        for layer in range(1, self.depth + 1):
            states.append(self.block(states[-1], layer))
        return torch.stack(states, dim=1)

    def continue_from(self, state_BTD: torch.Tensor, layer: int) -> torch.Tensor:
        """State L (B, T, D) from the state of `layer` in 0..L: blocks `layer + 1`..L applied."""
        if not 0 <= layer <= self.depth:
            raise RaptorError(f"layer {layer}: this teacher has the states 0..{self.depth}")
        for following in range(layer + 1, self.depth + 1):
            state_BTD = self.block(state_BTD, following)
        return state_BTD

    def _beside_the_state(self, layer: int) -> dict[str, torch.Tensor]:
        """What the block of `layer` in 1..L is given beside the state: EVA's rotary embedding."""
        if not 1 <= layer <= self.depth:
            raise RaptorError(f"layer {layer}: this teacher has the layers 1..{self.depth}")
        if getattr(self.model, "rope", None) is None:
            return {}
        rope, grid = self.model.rope, self.model.patch_embed.grid_size
        made_for_this_grid = hasattr(rope, "feat_shape") and not self.model.dynamic_img_size
        embedding = rope.get_embed() if made_for_this_grid else rope.get_embed(shape=grid)
        return {"rope": embedding[layer - 1] if self.model.rope_mixed else embedding}

    def branches(self, state_BTD: torch.Tensor, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """What the attention and the MLP of `layer` in 1..L add to the state before it.

        Both (B, T, D), LayerScale and stochastic depth included: the state after the layer is
        `(state + attention) + mlp`. RaptorError for blocks of another make, whose branches are
        not one after the other.
        """
        beside, block = self._beside_the_state(layer), self.blocks[layer - 1]
        if type(block) is Block:
            scale_attention, scale_mlp = block.ls1, block.ls2
        elif type(block) is EvaBlock:
            scale_attention, scale_mlp = _scaled(block.gamma_1), _scaled(block.gamma_2)
        else:
            raise RaptorError(
                f"layer {layer}: a {type(block).__name__} of timm has no attention and MLP branch "
                "one after the other; leave this teacher out of branches.teachers"
            )
        attention = scale_attention(block.attn(block.norm1(state_BTD), **beside))
        attention = block.drop_path1(attention)
        mlp = scale_mlp(block.mlp(block.norm2(state_BTD + attention)))
        return attention, block.drop_path2(mlp)

    def normed(self, state_BTD: torch.Tensor) -> torch.Tensor:
        """The final norm applied to a state (B, T, D); nothing where it comes after pooling."""
        return self.model.norm(state_BTD)

    def pooled_norm(self, features: torch.Tensor) -> torch.Tensor:
        """The norm (..., D) of models that pool before they normalise; nothing in the others."""
        return getattr(self.model, "fc_norm", nn.Identity())(features)

    def pooled(self, aL_BTD: torch.Tensor) -> torch.Tensor:
        """`[cls ; mean patch]` (B, 2D) of state L after the final norm; (B, D) without cls."""
        normed_BTD = self.normed(aL_BTD)
        patches_BD = self.pooled_norm(normed_BTD[:, self.layout.slices()["patches"]].mean(dim=1))
        if not self.layout.cls:
            return patches_BD
        return torch.cat([self.pooled_norm(normed_BTD[:, 0]), patches_BD], dim=1)

    def logits(self, aL_BTD: torch.Tensor) -> torch.Tensor:
        """(B, classes) from state L, by the head that stands in for its own, or its own."""
        if self.linear_head is not None:
            return self.linear_head(self.pooled(aL_BTD))
        if not self.num_classes:
            raise RaptorError("this teacher has no head; give the probe that was fitted on it")
        return self.model.forward_head(self.normed(aL_BTD))

    def forward(self, images_BCHW: torch.Tensor) -> torch.Tensor:
        """(B, classes) logits."""
        return self.logits(self.continue_from(self.embed(images_BCHW), 0))


def _scaled(gamma_D: torch.Tensor | None) -> Callable[[torch.Tensor], torch.Tensor]:
    """EVA's LayerScale, which is a bare parameter, as a function."""
    return nn.Identity() if gamma_D is None else gamma_D.mul
