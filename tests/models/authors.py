"""The published code's saved modules: read without running code from them, and made again."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import nn

import raptor

_TORCH_NN = "torch.nn.modules"
_MODULES = (
    "raptor.Raptor",
    "block.Block",
    "block.LayerScale",
    "block.SwiGLU",
    f"{_TORCH_NN}.container.Sequential",
    f"{_TORCH_NN}.container.ModuleList",
    f"{_TORCH_NN}.normalization.LayerNorm",
    f"{_TORCH_NN}.activation.MultiheadAttention",
    f"{_TORCH_NN}.activation.SiLU",
    f"{_TORCH_NN}.linear.NonDynamicallyQuantizableLinear",
    f"{_TORCH_NN}.linear.Linear",
)


class SavedModule(SimpleNamespace):
    """The attributes that a module had when it was saved; it has no behaviour."""

    def parameters(self, prefix: str = "") -> dict[str, torch.Tensor]:
        """Dotted name -> tensor, over this module and those inside it."""
        found = {prefix + k: v for k, v in self._parameters.items() if v is not None}
        for name, module in self._modules.items():
            found |= module.parameters(f"{prefix}{name}.")
        return found


def read_saved_module(path: Path) -> SavedModule:
    """A module saved whole by `torch.save`; an UnpicklingError for a class that is not known."""
    with torch.serialization.safe_globals([(SavedModule, name) for name in _MODULES]):
        return torch.load(path, weights_only=True)


# The published modules again, from their description (paper §Method 3) and with their parameter
# names, for kinds of block of which there is no published file. Attention is torch's own.


class SwiGLU(nn.Module):
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        half = hidden.shape[-1] // 2
        return nn.functional.silu(hidden[..., :half]) * hidden[..., half:]


class LayerScale(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(width))


class Block(nn.Module):
    def __init__(self, width=16, heads=2, *, gated=True, scaled=True, layer_scale=True, ratio=4):
        super().__init__()
        self.t_scale = scaled
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.ls1, self.ls2 = (LayerScale(width) if layer_scale else nn.Identity() for _ in range(2))
        hidden = ratio * width
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * hidden if gated else hidden),
            SwiGLU() if gated else nn.GELU(),
            nn.Linear(hidden, width),
        )
        if scaled:
            self.t_proj = nn.Sequential(nn.Linear(1, 16), nn.SiLU(), nn.Linear(16, 3 * width))

    def forward(self, state: torch.Tensor, layer: int) -> torch.Tensor:
        scales = torch.ones(3, state.shape[-1], dtype=state.dtype)
        if self.t_scale:
            scales = scales + self.t_proj(state.new_tensor([layer])).view(3, -1)
        normed = self.norm1(state)
        attention, _ = self.attn(normed, normed, normed, need_weights=False)
        state = state + getattr(self.ls1, "gamma", 1) * scales[0] * attention
        state = state + getattr(self.ls2, "gamma", 1) * scales[1] * self.mlp(self.norm2(state))
        return scales[2] * state


class Raptor(nn.Module):
    def __init__(self, blocks: list[nn.Module], thresholds: list[int]) -> None:
        super().__init__()
        self.blocks, self.thresholds = nn.ModuleList(blocks), thresholds

    def forward(self, state: torch.Tensor, depth: int) -> torch.Tensor:
        """The states of the layers 1..depth, stacked behind the images."""
        ends = [*self.thresholds, depth]
        states = []
        for layer in range(1, depth + 1):
            index = next(i for i, end in enumerate(ends) if layer <= end)
            state = self.blocks[index](state, layer)
            states.append(state)
        return torch.stack(states, dim=1)


Raptor.__module__ = "raptor"
Block.__module__ = SwiGLU.__module__ = LayerScale.__module__ = "block"


def save(module: object, path: Path, **options) -> None:
    """As the authors save it: pickled whole, its classes by the names of their modules."""
    sys.modules["block"] = SimpleNamespace(Block=Block, SwiGLU=SwiGLU, LayerScale=LayerScale)
    raptor.Raptor = Raptor
    try:
        torch.save(module, path, **options)
    finally:
        del sys.modules["block"], raptor.Raptor
