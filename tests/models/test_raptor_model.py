"""The Raptor: which block makes which layer, closed loop."""

from __future__ import annotations

import pytest
import torch

from raptor.models.block import BlockSpec, RecurrentBlock
from raptor.models.raptor import Raptor, Run

SPEC = BlockSpec.swiglu(8, 2, 0.5, depth_scaling=True)


def raptor_of(labels) -> Raptor:
    torch.manual_seed(0)
    return Raptor([RecurrentBlock(SPEC) for _ in range(max(labels) + 1)], labels).eval()


@pytest.mark.parametrize(
    "labels", [[0, 0, 1, 1, 1], [0, 1, 0, 2, 1]], ids=["contiguous", "scattered"]
)
def test_forward_is_the_blocks_in_turn(labels):
    raptor = raptor_of(labels)
    state = a0_BTD = torch.randn(3, 4, 8)
    states_BLTD = raptor(a0_BTD)
    assert states_BLTD.shape == (3, 5, 4, 8)
    for layer, label in enumerate(labels, 1):
        state = raptor.blocks[label](state, layer)
        torch.testing.assert_close(states_BLTD[:, layer - 1], state, rtol=0, atol=0)


def test_runs_are_the_maximal_stretches_of_one_block():
    assert raptor_of([0, 0, 1, 1, 1]).runs() == [Run(0, 1, 2), Run(1, 3, 5)]
    assert raptor_of([1, 0, 0, 1]).runs() == [Run(1, 1, 1), Run(0, 2, 3), Run(1, 4, 4)]


def test_parameters_do_not_depend_on_depth():
    count = lambda raptor: sum(p.numel() for p in raptor.parameters())
    assert count(raptor_of([0, 1])) == count(raptor_of([0, 0, 0, 0, 1, 1, 1, 1]))


@pytest.mark.parametrize("layer", [0, 6, -1])
def test_a_layer_that_is_not_made_is_an_error(layer):
    with pytest.raises(ValueError, match=r"1\.\.5"):
        raptor_of([0, 0, 1, 1, 1]).step(torch.zeros(1, 4, 8), layer)


@pytest.mark.parametrize("labels", [[0, 0], [0, 1, 2], [0, -1], []])
def test_labels_must_use_every_block(labels):
    with pytest.raises(ValueError, match="labels"):
        Raptor([RecurrentBlock(SPEC), RecurrentBlock(SPEC)], labels)
