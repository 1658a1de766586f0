"""A convolutional patch embedding: small ViTs learn about twice as fast behind one."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from raptor.config.teachers import conv_stem_layers


class ConvStem(nn.Module):
    """3×3 convolutions of stride 2 with GELU between, as timm's `embed_layer`.

    Replaces the single patch-sized convolution (Xiao et al., "Early Convolutions Help
    Transformers See Better", 2021); the channels double up to `embed_dim`. (B, C, H, W) ->
    (B, patches, D) with as many patches as `patch_size` would cut.
    """

    def __init__(
        self, img_size: int, patch_size: int, in_chans: int, embed_dim: int, **_: Any
    ) -> None:
        super().__init__()
        depth = conv_stem_layers(img_size, patch_size)
        widths = [in_chans, *(embed_dim // 2 ** (depth - 1 - i) for i in range(depth))]
        layers: list[nn.Module] = []
        for i in range(depth):
            layers += [nn.Conv2d(widths[i], widths[i + 1], 3, stride=2, padding=1), nn.GELU()]
        self.layers = nn.Sequential(*layers[:-1])
        self.stride = 2**depth  # pixels from one patch to the next: 8 for a `patch_size` of 7
        self.set_input_size((img_size, img_size))

    def set_input_size(self, img_size: tuple[int, int], patch_size: None = None) -> None:
        """Expect images of another height and width, as timm's patch embeddings do."""
        self.img_size = img_size
        rows, columns = (-(-side // self.stride) for side in img_size)
        self.grid_size, self.num_patches = (rows, columns), rows * columns

    def feat_ratio(self, as_scalar: bool = True) -> tuple[int, int] | int:
        """Pixels from one patch to the next, by timm's name for it."""
        return self.stride if as_scalar else (self.stride, self.stride)

    def forward(self, images_BCHW: torch.Tensor) -> torch.Tensor:
        """Patch tokens (B, patches, D), row by row."""
        return self.layers(images_BCHW).flatten(2).transpose(1, 2)
