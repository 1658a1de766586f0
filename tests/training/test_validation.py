"""R² and errors on the validation split."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from raptor.models.block import BlockSpec, RecurrentBlock
from raptor.models.raptor import Raptor
from raptor.probes.fidelity import Fidelity as ProbeFidelity
from raptor.tokens import TokenLayout
from raptor.training.validation import Fidelity, closed_loop, measure, open_segments

LAYOUT = TokenLayout(cls=1, registers=2, patches=3)


@pytest.fixture
def pair():
    """Predicted and true states (N, L, T, D), the true ones far from zero."""
    rng = np.random.default_rng(0)
    true = rng.normal(size=(10, 2, 6, 4)) + 300
    return true + 0.5 * rng.normal(size=true.shape), true


def filled(pair, size: int) -> Fidelity:
    fidelity = Fidelity()
    for start in range(0, len(pair[0]), size):
        fidelity.update(*(torch.from_numpy(part[start : start + size]) for part in pair))
    return fidelity


@pytest.mark.parametrize("size", [10, 4, 1])
def test_r2_is_one_minus_sse_over_sst_in_any_batches(pair, size):
    predicted, true = pair
    sse = ((predicted - true) ** 2).sum(axis=(0, 2, 3))
    sst = ((true - true.mean(axis=(0, 2), keepdims=True)) ** 2).sum(axis=(0, 2, 3))
    np.testing.assert_allclose(filled(pair, size).r2(), 1 - sse / sst, rtol=1e-12)


def test_r2_known_answers(pair):
    true = pair[1]
    np.testing.assert_allclose(filled((true, true), 4).r2(), 1)
    mean = np.broadcast_to(true.mean(axis=(0, 2), keepdims=True), true.shape).copy()
    np.testing.assert_allclose(filled((mean, true), 4).r2(), 0, atol=1e-12)


def test_r2_is_the_one_that_is_reported_of_a_student(pair):
    predicted, true = map(torch.from_numpy, pair)
    probe = ProbeFidelity(LAYOUT, 2)
    probe.update(true, predicted)
    np.testing.assert_allclose(filled(pair, 3).r2(), probe.r2()["all"], rtol=1e-9)


def test_errors_by_token_type(pair):
    predicted, true = pair
    found = filled(pair, 3).mean_squared_errors(LAYOUT)
    error = (predicted - true) ** 2
    expected = {"cls": error[:, :, :1], "registers": error[:, :, 1:3], "patches": error[:, :, 3:]}
    assert list(found) == list(expected)
    for name, part in expected.items():
        np.testing.assert_allclose(found[name], part.mean(axis=(0, 2, 3)))


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
    perfect = measure(raptor, [torch.cat([states[:, :1], raptor(states[:, 0])], 1)], closed_loop)
    np.testing.assert_allclose(perfect.r2(), 1)
