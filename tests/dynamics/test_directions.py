"""Directions and speeds of trajectories whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from raptor.dynamics.directions import angle, directions, token_types, unit
from raptor.tokens import TokenLayout

LAYOUT = TokenLayout(cls=1, registers=2, patches=3)
K = {name: index for index, name in enumerate(token_types(LAYOUT))}


def rotation(width: int, theta: float) -> np.ndarray:
    """A rotation of every plane (0, 1), (2, 3), … by `theta`, so of every vector."""
    cos, sin = np.cos(theta), np.sin(theta)
    return np.kron(np.eye(width // 2), np.array([[cos, -sin], [sin, cos]]))


def trajectory(operator_DD: np.ndarray, start_BTD: np.ndarray, depth: int) -> torch.Tensor:
    states = [start_BTD]
    for _ in range(depth):
        states.append(states[-1] @ operator_DD.T)
    return torch.from_numpy(np.stack(states, axis=1))


def start(images: int = 4, width: int = 6, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(images, LAYOUT.total, width))


def test_a_rotation_turns_by_its_angle_at_every_layer():
    found = directions(trajectory(rotation(6, 0.3), start(), 5), LAYOUT)
    assert np.isnan(found["speed"][:, 0]).all()
    np.testing.assert_allclose(found["speed"][:, 1:], 0.3, rtol=1e-12)
    expected = np.cos(0.3 * np.arange(5, -1, -1))
    np.testing.assert_allclose(
        found["direction"], np.broadcast_to(expected[:, None], (4, 6, 4)), atol=1e-12
    )


def test_norms_do_not_bear_on_directions():
    states = trajectory(rotation(6, 0.3), start(), 5)
    scaled = states * torch.arange(1, 7)[None, :, None, None]
    one, other = directions(states, LAYOUT), directions(scaled, LAYOUT)
    for name in ("direction", "speed"):
        np.testing.assert_allclose(one[name], other[name], rtol=1e-12)
    np.testing.assert_allclose(other["norm"], one["norm"] * np.arange(1, 7)[:, None], rtol=1e-12)


def test_a_contraction_to_one_direction_gives_a_rising_gamma():
    operator = np.diag([1.0, 0.5, 0.5, 0.5, 0.5, 0.5])
    gamma = directions(trajectory(operator, np.abs(start()), 20), LAYOUT)["direction"]
    assert (np.diff(gamma, axis=1) > 0).all()
    np.testing.assert_allclose(gamma[:, -1], 1)


def test_each_type_is_the_mean_of_its_own_tokens():
    begin = np.ones((1, LAYOUT.total, 2)) * [1.0, 0.0]
    turned = np.stack([[np.cos(a), np.sin(a)] for a in (0.1, 0.2, 0.4, 0.5, 0.6, 1.0)])[None]
    found = directions(torch.from_numpy(np.stack([begin, turned], axis=1)), LAYOUT)
    speed = found["speed"][0, 1]
    assert speed[K["cls"]] == pytest.approx(0.1)
    assert speed[K["registers"]] == pytest.approx(0.3)
    assert speed[K["patches"]] == pytest.approx(0.7)
    assert speed[K["all"]] == pytest.approx(2.8 / 6)
    assert found["direction"][0, 0, K["cls"]] == pytest.approx(np.cos(0.1))


@pytest.mark.parametrize("theta", [1e-9, 1e-5, 1.0, np.pi - 1e-7])
def test_small_and_large_angles_keep_their_digits(theta):
    a = torch.tensor([1.0, 0.0], dtype=torch.float64)
    b = torch.tensor([np.cos(theta), np.sin(theta)], dtype=torch.float64)
    assert float(angle(a, b)) == pytest.approx(theta, rel=1e-8)


def test_a_zero_vector_has_no_direction_and_spoils_only_its_type():
    states = trajectory(rotation(6, 0.3), start(), 3)
    states[0, 1, 0] = 0
    found = directions(states, LAYOUT)
    assert np.isnan(found["speed"][0, 1:3, K["cls"]]).all()
    assert np.isfinite(found["speed"][0, 1:, K["patches"]]).all()
    assert np.isfinite(found["speed"][1:, 1:]).all()
    assert found["norm"][0, 1, K["cls"]] == 0


vectors = arrays(np.float64, (3, 4), elements=st.floats(-5, 5, allow_subnormal=False)).filter(
    lambda v: (np.linalg.norm(v, axis=1) > 1e-3).all()
)


@settings(max_examples=60, deadline=None)
@given(vectors)
def test_angles_are_a_metric(abc):
    a, b, c = unit(torch.from_numpy(abc))
    ab, bc, ac = (float(angle(x, y)) for x, y in ((a, b), (b, c), (a, c)))
    assert min(ab, bc, ac) >= 0
    assert max(ab, bc, ac) <= np.pi
    assert ac <= ab + bc + 1e-12
    assert ab == float(angle(b, a))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_the_way_is_never_shorter_than_the_distance(seed):
    """Σ speeds ≥ the angle between first and last state, and γ is its cosine."""
    layout = TokenLayout(1, 0, 1)
    states = torch.from_numpy(np.random.default_rng(seed).normal(size=(2, 5, 2, 3)))
    found = directions(states, layout)
    way = np.nansum(found["speed"], axis=1)[:, 1:]
    assert (way >= np.arccos(found["direction"][:, 0, 1:]) - 1e-9).all()
    assert np.nanmax(found["speed"]) <= np.pi
