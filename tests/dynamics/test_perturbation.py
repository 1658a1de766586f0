"""Noise of known size and shape, through maps whose contraction is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from raptor.dynamics.contraction import contraction_rate
from raptor.dynamics.perturbation import deviations, noise_directions, perturbed
from raptor.tokens import TokenLayout

LAYOUT = TokenLayout(cls=1, registers=2, patches=3)


def test_noise_is_uniform_on_the_sphere():
    noise_ND = noise_directions(range(2000), 2, 3).flatten(0, 1).double()
    torch.testing.assert_close(noise_ND.norm(dim=-1), torch.ones(4000).double())
    # Archimedes: on the sphere of three dimensions every coordinate is uniform on [-1, 1].
    for axis in (*torch.eye(3).double(), torch.full((3,), 3**-0.5).double()):
        assert kstest((noise_ND @ axis).numpy(), "uniform", args=(-1, 2)).pvalue > 1e-3


def test_the_noise_of_an_image_depends_on_its_seed_alone():
    together = noise_directions([5, 6, 7], 4, 8)
    torch.testing.assert_close(together[1:2], noise_directions([6], 4, 8), rtol=0, atol=0)
    assert not torch.allclose(together[0], together[1])


def test_each_token_moves_by_a_fraction_of_its_own_norm():
    state = torch.randn(3, 6, 8).double() * torch.arange(1, 7)[:, None]
    noise = noise_directions(range(3), 6, 8).double()
    moved = perturbed(state, noise, 0.2) - state
    torch.testing.assert_close(moved.norm(dim=-1), 0.2 * state.norm(dim=-1))


def contracting(factor: float):
    """The first coordinate stays, the rest shrinks: tan of the angle to it shrinks by `factor`."""

    def step(state_BTD, layer):
        scale = torch.full((state_BTD.shape[-1],), factor, dtype=state_BTD.dtype)
        scale[0] = 1.0
        return state_BTD * scale

    return step


@pytest.mark.parametrize(("factor", "depth"), [(0.5, 8), (0.9, 5), (1.25, 6)])
def test_a_linear_block_contracts_by_its_factor(factor, depth):
    state = torch.zeros(4, LAYOUT.total, 6, dtype=torch.float64)
    state[..., 0] = 3.0
    noise = noise_directions(range(4), LAYOUT.total, 6).double()
    found = deviations(
        contracting(factor), state, noise, [1e-4, 1e-3], range(2, depth + 1), LAYOUT
    ).numpy()
    assert found.shape == (2, depth - 1, 4, 3)
    rates = contraction_rate(found.mean(axis=(2, 3)))
    np.testing.assert_allclose(rates, np.log(factor), atol=3e-3)
    np.testing.assert_allclose(found[1] / found[0], 10, rtol=1e-2)  # linear in ε
    sine = 1e-3 * np.sqrt(1 - noise[..., 0].numpy() ** 2)
    np.testing.assert_allclose(found[1, 0, :, 0], sine[:, 0], rtol=2e-3)
    np.testing.assert_allclose(found[1, 0, :, 2], sine[:, 3:].mean(axis=1), rtol=2e-3)


def test_a_rotation_keeps_every_deviation():
    turn = torch.from_numpy(np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0])
    state = torch.randn(4, LAYOUT.total, 6).double()
    noise = noise_directions(range(4), LAYOUT.total, 6).double()
    found = deviations(lambda x, layer: x @ turn, state, noise, [0.3], range(5), LAYOUT)
    torch.testing.assert_close(found, found[:, :1].expand_as(found))
    assert contraction_rate(found[0, :, 0, 0].numpy()) == pytest.approx(0, abs=1e-9)


def test_steps_are_told_their_layer():
    asked = []
    state, noise = torch.ones(1, LAYOUT.total, 4), noise_directions([0], LAYOUT.total, 4)
    step = lambda x, layer: (asked.append(layer), x)[1]
    deviations(step, state, noise, [0.1], range(3, 7), LAYOUT)
    assert asked == [4, 5, 6]


@settings(max_examples=40, deadline=None)
@given(
    start=st.floats(1e-6, 1.0), rate=st.floats(-2, 2), n=st.integers(2, 12), seed=st.integers(0, 99)
)
def test_the_rate_of_an_exponential_is_its_exponent(start, rate, n, seed):
    values = start * np.exp(rate * np.arange(n))
    assert contraction_rate(values) == pytest.approx(rate, abs=1e-9)
    noisy = values * np.random.default_rng(seed).uniform(0.5, 2, size=n)
    slope = np.polyfit(np.arange(n), np.log(noisy), 1)[0]
    assert contraction_rate(noisy) == pytest.approx(slope, abs=1e-9)


def test_no_rate_from_one_layer_or_from_nothing():
    assert np.isnan(contraction_rate(np.array([0.1])))
    assert np.isnan(contraction_rate(np.array([[0.1, 0.0, 0.1]]))).all()
