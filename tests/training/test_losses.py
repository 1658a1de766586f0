"""The losses, written down again in numpy from their definitions (paper §Method 4–5)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from raptor.config.students import Stage, Stage1, Stage2, TokenWeights
from raptor.errors import RaptorError
from raptor.models.block import BlockSpec, RecurrentBlock
from raptor.models.raptor import Raptor
from raptor.tokens import TokenLayout
from raptor.training.losses import loss_weights, mean_square, stage1_losses, stage2_loss

WIDTH, BATCH = 6, 3
WITH_REGISTERS = TokenLayout(cls=1, registers=2, patches=4)
LAYOUTS = {
    "registers": WITH_REGISTERS,
    "no registers": TokenLayout(cls=1, registers=0, patches=4),
    "no cls": TokenLayout(cls=0, registers=2, patches=4),
}
WEIGHTS = TokenWeights(cls=0.45, registers=0.1, patches=0.45)
PARTITIONS = {"contiguous": [0, 0, 1, 1, 1], "scattered": [1, 0, 0, 1, 0]}


def raptor_of(labels) -> Raptor:
    torch.manual_seed(0)
    spec = BlockSpec.swiglu(WIDTH, 2, 0.5, depth_scaling=True)
    raptor = Raptor([RecurrentBlock(spec) for _ in range(max(labels) + 1)], labels).double()
    for parameter in raptor.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return raptor


def states_of(layout: TokenLayout, depth: int = 5) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    shape = (BATCH, depth + 1, layout.total, WIDTH)
    return torch.randn(shape, generator=generator, dtype=torch.double)


def call(raptor, state, layer):
    with torch.no_grad():
        return raptor.blocks[raptor.labels[layer - 1]](torch.from_numpy(state), layer).numpy()


def numpy_error(predicted, target, layout, weights, scaled):
    """Error of one layer: plain, or averaged by token type and weighted; scaled by its square."""
    error, square = (predicted - target) ** 2, target**2
    if weights is None:
        return error.mean() / (square.mean() if scaled else 1)
    spans = {"cls": layout.cls, "registers": layout.registers, "patches": layout.patches}
    total = norm = start = 0.0
    for name, count in spans.items():
        span = slice(int(start), int(start) + count)
        start += count
        if count:
            part = error[:, span].mean() / (square[:, span].mean() if scaled else 1)
            total += getattr(weights, name) * part
            norm += getattr(weights, name)
    return total / norm


def numpy_stage1(raptor, states, layout, stage, forcing, scaled):
    """Both terms in passes of their own, block by block, run by run."""
    a, labels = states.numpy(), raptor.labels
    losses = []
    for block in range(len(raptor.blocks)):
        layers = [layer for layer, label in enumerate(labels, 1) if label == block]
        last = stage.weighted_layers == "all" or labels[-1] == block
        weights = stage.token_weights if last else None
        loss = 0.0
        for layer in layers:
            if layer - 1 not in layers:
                free = a[:, layer - 1]  # the true state before the run
            free = call(raptor, free, layer)
            forced = call(raptor, a[:, layer - 1], layer)
            ar = numpy_error(free, a[:, layer], layout, weights, scaled)
            tf = numpy_error(forced, a[:, layer], layout, weights, scaled)
            loss += forcing * tf + (1 - forcing) * ar
        losses.append(loss / len(layers))
    return losses


@pytest.mark.parametrize("scaled", [False, True], ids=["unscaled", "layer_mean_square"])
@pytest.mark.parametrize("forcing", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("labels", PARTITIONS.values(), ids=PARTITIONS)
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_stage1_equals_the_formula(layout, labels, forcing, scaled):
    raptor, states = raptor_of(labels), states_of(layout)
    stage = Stage1(steps=1, token_weights=WEIGHTS)
    scale = mean_square(states) if scaled else None
    weights_LT = loss_weights(labels, layout, stage, scale)
    found = stage1_losses(raptor, states, weights_LT, forcing)
    expected = numpy_stage1(raptor, states, layout, stage, forcing, scaled)
    np.testing.assert_allclose(found.detach(), expected, rtol=1e-6)  # weights are in float32


@pytest.mark.parametrize("scaled", [False, True], ids=["unscaled", "layer_mean_square"])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["plain", "weighted"])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_stage2_equals_the_formula(layout, weights, scaled):
    raptor, states = raptor_of(PARTITIONS["scattered"]), states_of(layout)
    stage = Stage(steps=1, token_weights=weights)
    scale = mean_square(states) if scaled else None
    found = stage2_loss(raptor, states, loss_weights(raptor.labels, layout, stage, scale))
    a, state, expected = states.numpy(), states[:, 0].numpy(), []
    for layer in range(1, 6):
        state = call(raptor, state, layer)
        expected.append(numpy_error(state, a[:, layer], layout, weights, scaled))
    assert found.item() == pytest.approx(np.mean(expected), rel=1e-6)


@pytest.mark.parametrize("scaled", [False, True], ids=["unscaled", "layer_mean_square"])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["plain", "weighted"])
def test_output_distillation_is_the_error_of_the_last_layer(weights, scaled):
    layout, raptor = WITH_REGISTERS, raptor_of(PARTITIONS["scattered"])
    states = states_of(layout)
    stage = Stage2(steps=1, token_weights=weights, target="output")
    scale = mean_square(states) if scaled else None
    found = stage2_loss(raptor, states, loss_weights(raptor.labels, layout, stage, scale))
    state = states[:, 0].numpy()
    for layer in range(1, 6):
        state = call(raptor, state, layer)
    expected = numpy_error(state, states[:, 5].numpy(), layout, weights, scaled)
    assert found.item() == pytest.approx(expected, rel=1e-6)


def test_output_distillation_does_not_look_at_the_states_on_the_way():
    raptor, states = raptor_of(PARTITIONS["scattered"]), states_of(WITH_REGISTERS)
    stage = Stage2(steps=1, target="output")
    weights_LT = loss_weights(raptor.labels, WITH_REGISTERS, stage)
    other = states.clone()
    other[:, 1:-1] = 7.0
    assert stage2_loss(raptor, other, weights_LT) == stage2_loss(raptor, states, weights_LT)
    other[:, -1] = 7.0
    assert stage2_loss(raptor, other, weights_LT) != stage2_loss(raptor, states, weights_LT)


def test_one_batch_for_both_terms_has_the_gradient_of_two_passes():
    raptor, states = raptor_of(PARTITIONS["scattered"]), states_of(WITH_REGISTERS)
    weights_LT = loss_weights(raptor.labels, WITH_REGISTERS, Stage1(steps=1)).double()
    together, apart = (
        torch.autograd.grad(loss, list(raptor.parameters()))
        for loss in (
            stage1_losses(raptor, states, weights_LT, 0.3).sum(),
            (
                0.3 * stage1_losses(raptor, states, weights_LT, 1.0)
                + 0.7 * stage1_losses(raptor, states, weights_LT, 0.0)
            ).sum(),
        )
    )
    for one, other in zip(together, apart, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_each_block_learns_from_its_own_loss_alone():
    raptor, states = raptor_of(PARTITIONS["contiguous"]), states_of(WITH_REGISTERS)
    losses = stage1_losses(raptor, states, torch.ones(5, 7), 0.5)
    losses[0].backward()
    own, other = ([p.grad for p in block.parameters()] for block in raptor.blocks)
    assert all(gradient.any() for gradient in own)
    assert not any(gradient.any() for gradient in other)


def test_a_term_without_weight_costs_nothing(monkeypatch):
    raptor, states = raptor_of(PARTITIONS["contiguous"]), states_of(WITH_REGISTERS)
    rows = []
    step = raptor.step
    monkeypatch.setattr(raptor, "step", lambda x, layer: rows.append(len(x)) or step(x, layer))
    for forcing in (0.0, 1.0, 0.5):
        stage1_losses(raptor, states, torch.ones(5, 7), forcing)
    single, both = BATCH, 2 * BATCH
    assert rows == [single] * 10 + [single, both, single, both, both]


def test_rows_average_and_absent_types_are_dropped():
    stage = Stage(steps=1, token_weights=WEIGHTS)
    for layout in LAYOUTS.values():
        torch.testing.assert_close(loss_weights([0, 1], layout, stage).sum(dim=1), torch.ones(2))
    row = loss_weights([0], LAYOUTS["no registers"], stage)[0]
    torch.testing.assert_close(row, torch.tensor([0.5, 0.125, 0.125, 0.125, 0.125]))


def test_last_segment_is_the_block_of_the_last_layer():
    stage = Stage1(steps=1, token_weights=WEIGHTS)
    rows = loss_weights([1, 0, 1], WITH_REGISTERS, stage)
    plain = torch.full((7,), 1 / 7)
    torch.testing.assert_close(rows[1], plain)
    assert rows[0, 0] == rows[2, 0] == pytest.approx(0.45)


def test_a_type_of_weight_zero_is_left_out_of_the_scale():
    stage = Stage(steps=1, token_weights=TokenWeights(cls=1, registers=0, patches=0))
    squares = torch.tensor([[4.0, 0.0, 0.0, 9.0, 9.0, 9.0, 9.0]])
    row = loss_weights([0], WITH_REGISTERS, stage, squares)[0]
    torch.testing.assert_close(row, torch.tensor([0.25, 0, 0, 0, 0, 0, 0]))


def test_weight_only_on_absent_tokens_is_an_error():
    stage = Stage(steps=1, token_weights=TokenWeights(cls=1, registers=0, patches=0))
    with pytest.raises(RaptorError, match="token_weights"):
        loss_weights([0], LAYOUTS["no cls"], stage)
