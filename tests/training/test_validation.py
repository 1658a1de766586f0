"""What is validated: closed loop from a_0, and within each segment."""

from __future__ import annotations

import numpy as np
import torch

from raptor.models.block import BlockSpec, RecurrentBlock
from raptor.models.raptor import Raptor
from raptor.tokens import TokenLayout
from raptor.training.validation import closed_loop, measure, open_segments

LAYOUT = TokenLayout(cls=1, registers=2, patches=3)


def test_rollouts():
    torch.manual_seed(0)
    spec = BlockSpec.swiglu(4, 2, 0.5, depth_scaling=True)
    raptor = Raptor([RecurrentBlock(spec), RecurrentBlock(spec)], [0, 1, 1]).eval()
    states = torch.randn(2, 4, 6, 4)
    first = raptor.step(states[:, 0], 1)
    second = raptor.step(states[:, 1], 2)
    expected = torch.stack([first, second, raptor.step(second, 3)], dim=1)
    assert torch.equal(open_segments(raptor, states), expected)
    assert torch.equal(closed_loop(raptor, states), raptor(states[:, 0]))
    perfect = measure(
        raptor, [torch.cat([states[:, :1], raptor(states[:, 0])], 1)], LAYOUT, closed_loop
    )
    np.testing.assert_allclose(perfect.r2()["all"], 1)
