"""A stage 1 step of ours against one of the published block, on the same numbers.

The published block holds `nn.MultiheadAttention` and lets it return the averaged weights; the
teacher-forced and the autoregressive loss are computed in passes of their own. Ratios are
reference over ours: above 1, ours is faster.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from raptor.config.students import Stage1
from raptor.models.block import BlockSpec, RecurrentBlock
from raptor.models.raptor import Raptor
from raptor.tokens import TokenLayout
from raptor.training.losses import loss_weights, stage1_losses

LAYOUT = TokenLayout(cls=1, registers=4, patches=16)
WIDTH, HEADS, BATCH = 48, 4, 64
PARTITIONS = {"2 + 2 + 4 layers": [0, 0, 1, 1, 2, 2, 2, 2], "8 layers": [0] * 8}
FORCING = 0.5
REPEATS = 15


def rows() -> list[dict[str, object]]:
    """One row per partition: `name, ours, reference` (seconds, median), `ratio, n, spread`.

    `n` pairs of steps taken in turns; `spread` is the interquartile range of the ratio.
    """
    return [_row(name, labels) for name, labels in PARTITIONS.items()]


class PublishedBlock(nn.Module):
    """The block of paper §Method 3 as it was published, with the weights of one of ours."""

    def __init__(self, source: RecurrentBlock) -> None:
        super().__init__()
        width, hidden = source.spec.width, source.spec.hidden
        self.norm1 = nn.LayerNorm(width, eps=source.spec.eps)
        self.attn = nn.MultiheadAttention(width, source.spec.heads, batch_first=True)
        self.norm2 = nn.LayerNorm(width, eps=source.spec.eps)
        self.fc1, self.fc2 = nn.Linear(width, hidden), nn.Linear(hidden // 2, width)
        self.scale1, self.scale2 = (nn.Parameter(torch.empty(width)) for _ in range(2))
        self.depth = nn.Sequential(nn.Linear(1, 16), nn.SiLU(), nn.Linear(16, 3 * width))
        _copy(source, self)

    def forward(self, state_BTD: torch.Tensor, layers_B: torch.Tensor) -> torch.Tensor:
        """The states of `layers_B`, one for each image of the batch."""
        s_attention, s_mlp, s_output = (1 + self.depth(layers_B[:, None])).unsqueeze(1).chunk(3, -1)
        normed = self.norm1(state_BTD)
        attended, _ = self.attn(normed, normed, normed)
        state_BTD = state_BTD + s_attention * (self.scale1 * attended)
        first, second = self.fc1(self.norm2(state_BTD)).chunk(2, dim=-1)
        state_BTD = state_BTD + s_mlp * (self.scale2 * self.fc2(F.silu(first) * second))
        return s_output * state_BTD


def _paired(ours: RecurrentBlock, published: PublishedBlock) -> list[tuple[nn.Parameter, ...]]:
    """The parameters of both, each beside the one it stands for."""
    depth = ours.depth_scaling
    modules = [
        (ours.norm1, published.norm1),
        (ours.attn.proj, published.attn.out_proj),
        (ours.norm2, published.norm2),
        (ours.mlp.fc1, published.fc1),
        (ours.mlp.fc2, published.fc2),
        (depth.fc1, published.depth[0]),
        (depth.fc2, published.depth[2]),
    ]
    return [
        (ours.attn.qkv.weight, published.attn.in_proj_weight),
        (ours.attn.qkv.bias, published.attn.in_proj_bias),
        (ours.ls1.gamma, published.scale1),
        (ours.ls2.gamma, published.scale2),
        *((a.weight, b.weight) for a, b in modules),
        *((a.bias, b.bias) for a, b in modules),
    ]


@torch.no_grad()
def _copy(source: RecurrentBlock, target: PublishedBlock) -> None:
    for own, other in _paired(source, target):
        other.copy_(own)


def published_losses(
    blocks: list[PublishedBlock], raptor: Raptor, states_BSTD: torch.Tensor
) -> torch.Tensor:
    """Stage 1 loss of each block: all layers teacher-forced at once, then the rollout."""
    losses = []
    for run in raptor.runs():
        block, count = blocks[run.block], run.last - run.first + 1
        layers_L = torch.arange(run.first, run.last + 1, dtype=torch.float32)
        target_BLTD = states_BSTD[:, run.first : run.last + 1]
        before = states_BSTD[:, run.first - 1 : run.last].flatten(0, 1)
        forced = block(before, layers_L.repeat(BATCH)).unflatten(0, (BATCH, count))
        state, free = states_BSTD[:, run.first - 1], []
        for layer in layers_L:
            state = block(state, layer.expand(BATCH))
            free.append(state)
        losses.append(
            FORCING * F.mse_loss(forced, target_BLTD)
            + (1 - FORCING) * F.mse_loss(torch.stack(free, dim=1), target_BLTD)
        )
    return torch.stack(losses)


def _step(modules: list[nn.Module], losses: Callable[[], torch.Tensor]) -> Callable[[], float]:
    """A whole step: losses, gradients clipped by block, AdamW."""
    parameters = [parameter for module in modules for parameter in module.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=3e-4, weight_decay=1e-4, fused=True)

    def step() -> float:
        loss = losses().sum()
        loss.backward()
        for module in modules:
            nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def _row(name: str, labels: list[int]) -> dict[str, object]:
    torch.manual_seed(0)
    spec = BlockSpec.swiglu(WIDTH, HEADS, 0.1, depth_scaling=True)
    raptor = Raptor([RecurrentBlock(spec) for _ in range(max(labels) + 1)], labels)
    blocks = [PublishedBlock(block) for block in raptor.blocks]
    states_BSTD = torch.randn(BATCH, len(labels) + 1, LAYOUT.total, WIDTH)
    weights_LT = loss_weights(labels, LAYOUT, Stage1(steps=1))
    ours = _step(
        list(raptor.blocks), lambda: stage1_losses(raptor, states_BSTD, weights_LT, FORCING)
    )
    reference = _step(list(blocks), lambda: published_losses(blocks, raptor, states_BSTD))
    timed = []
    for _ in range(REPEATS):
        ours_s, our_loss = _seconds(ours)
        reference_s, reference_loss = _seconds(reference)
        timed.append((ours_s, reference_s))
        np.testing.assert_allclose(our_loss, reference_loss, rtol=1e-5)
    for one, other in zip(raptor.blocks, blocks, strict=True):
        for own, theirs in _paired(one, other):
            torch.testing.assert_close(own, theirs, rtol=1e-3, atol=1e-4)
    ours_s, reference_s = np.array(timed[1:]).T  # the first step of each is slower
    low, ratio, high = np.percentile(reference_s / ours_s, [25, 50, 75])
    return {
        "name": f"stage 1 step vs the published block, {name}",
        "ours": float(np.median(ours_s)),
        "reference": float(np.median(reference_s)),
        "ratio": float(ratio),
        "n": len(ours_s),
        "spread": float(high - low),
    }


def _seconds(step: Callable[[], float]) -> tuple[float, float]:
    started = time.perf_counter()
    loss = step()
    return time.perf_counter() - started, loss
