"""Dynamic mode decomposition of linear maps whose eigenvalues are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import ortho_group

from raptor.dynamics.dmd import LinearDynamics, PhaseMoments, TransitionMoments, fit_dynamics
from raptor.tokens import TokenLayout

LAYOUT = TokenLayout(cls=1, registers=0, patches=2)
WIDTH = 6


def pairs(operator_DD: np.ndarray, count: int = 400, seed: int = 0) -> TransitionMoments:
    """Pairs (x, Ax) of a linear map; for once not of unit norm, so that the answer is exact."""
    before = np.random.default_rng(seed).normal(size=(count, len(operator_DD)))
    moments = TransitionMoments(len(operator_DD))
    for part in np.array_split(before, 3):
        moments.add(torch.from_numpy(part), torch.from_numpy(part @ operator_DD.T))
    return moments


def with_eigenvalues(blocks: list[np.ndarray], seed: int = 0) -> np.ndarray:
    """A matrix, not symmetric, with the given real blocks on the diagonal of its normal form."""
    width = sum(len(block) for block in blocks)
    normal = np.zeros((width, width))
    at = 0
    for block in blocks:
        normal[at : at + len(block), at : at + len(block)] = block
        at += len(block)
    basis = np.random.default_rng(seed).normal(size=(width, width))
    return basis @ normal @ np.linalg.inv(basis)


def spiral(modulus: float, theta: float) -> np.ndarray:
    return modulus * np.array([[np.cos(theta), -np.sin(theta)], [np.sin(theta), np.cos(theta)]])


def rotation(theta: float) -> np.ndarray:
    return np.kron(np.eye(WIDTH // 2), spiral(1.0, theta))


def test_real_eigenvalues_and_complex_pairs_are_found():
    operator = with_eigenvalues([np.array([[0.95]]), spiral(0.8, 0.4), np.array([[-0.3]])])
    found = fit_dynamics(pairs(operator), rank=None, ridge=0.0)
    pair = 0.8 * np.exp(0.4j)
    expected = [0.95, pair, pair.conjugate(), -0.3]
    np.testing.assert_allclose(found.eigenvalues, expected, atol=1e-9)
    np.testing.assert_allclose(found.operator_DD, operator, atol=1e-9)
    assert found.spectral_radius == pytest.approx(0.95)
    lives = np.log(0.5) / np.log([0.95, 0.8, 0.8, 0.3])
    np.testing.assert_allclose(found.half_lives(), lives, rtol=1e-6)
    residual, persistence = found.residual(pairs(operator, seed=1))
    assert residual == pytest.approx(0, abs=1e-12)
    assert persistence == pytest.approx(0, abs=1e-12)


def test_modes_that_do_not_decay_have_no_half_life():
    found = fit_dynamics(pairs(np.diag([1.1, 1.0, 0.5, 0.0])), rank=None, ridge=0.0)
    lives = found.half_lives()
    assert lives[0] == np.inf
    assert lives[1] > 1e9  # 1 up to rounding
    np.testing.assert_allclose(lives[2:], [1, 0], atol=0.03)


def test_residuals_against_rows():
    rng = np.random.default_rng(3)
    operator = with_eigenvalues([spiral(0.9, 0.2), np.diag([0.5, 0.2])])
    before = rng.normal(size=(300, 4))
    after = before @ operator.T + 0.1 * rng.normal(size=(300, 4))
    train, test = TransitionMoments(4), TransitionMoments(4)
    train.add(torch.from_numpy(before[:200]), torch.from_numpy(after[:200]))
    test.add(torch.from_numpy(before[200:]), torch.from_numpy(after[200:]))
    found = fit_dynamics(train, rank=None, ridge=0.0)
    expected = np.linalg.lstsq(before[:200], after[:200], rcond=None)[0].T
    np.testing.assert_allclose(found.operator_DD, expected, atol=1e-9)
    error = ((after[200:] - before[200:] @ expected.T) ** 2).sum()
    moved = ((after[200:] - before[200:]) ** 2).sum()
    np.testing.assert_allclose(
        found.residual(test), [error / (after[200:] ** 2).sum(), error / moved], rtol=1e-9
    )


def test_truncation_is_least_squares_inside_the_leading_directions():
    operator = with_eigenvalues([spiral(0.9, 0.2), np.diag([0.5, 0.2])])
    scales = np.array([10.0, 5.0, 0.1, 0.01])
    before = np.random.default_rng(0).normal(size=(500, 4)) * scales
    moments = TransitionMoments(4)
    moments.add(torch.from_numpy(before), torch.from_numpy(before @ operator.T))
    found = fit_dynamics(moments, rank=2, ridge=0.0)
    basis = np.linalg.svd(before, full_matrices=False)[2][:2]
    expected = np.linalg.lstsq(before @ basis.T, before @ operator.T, rcond=None)[0].T @ basis
    np.testing.assert_allclose(found.operator_DD, expected, atol=1e-9)
    full = np.linalg.eigvals(expected)
    np.testing.assert_allclose(
        np.abs(found.eigenvalues), np.sort(np.abs(full))[::-1][:2], atol=1e-9
    )
    assert found.rank == 2


def test_directions_without_extent_are_left_out():
    before = np.random.default_rng(0).normal(size=(50, 2)) @ ortho_group.rvs(5, random_state=0)[:2]
    moments = TransitionMoments(5)
    moments.add(torch.from_numpy(before), torch.from_numpy(0.7 * before))
    found = fit_dynamics(moments, rank=None, ridge=0.0)
    np.testing.assert_allclose(found.eigenvalues, [0.7, 0.7], atol=1e-9)


def test_ridge_shrinks_the_map():
    free, damped = (fit_dynamics(pairs(np.eye(4)), rank=None, ridge=r) for r in (0.0, 1.0))
    np.testing.assert_allclose(free.eigenvalues, 1, atol=1e-9)
    np.testing.assert_allclose(damped.eigenvalues.real, 0.5, atol=0.05)


def test_pairs_with_a_zero_vector_do_not_count():
    before, after = torch.randn(20, 3).double(), torch.randn(20, 3).double()
    one, other = TransitionMoments(3), TransitionMoments(3)
    one.add(before, after)
    other.add(torch.cat([before, torch.full((1, 3), torch.nan)]), torch.cat([after, after[:1]]))
    np.testing.assert_array_equal(one.gram_DD, other.gram_DD)
    assert one.target == other.target


def phased_states(images: int, seed: int) -> torch.Tensor:
    """Layers 1–2 turn by 0.2, layers 3–5 by 0.7: rotations keep the norm, so x̂ obeys them too."""
    states = [np.random.default_rng(seed).normal(size=(images, LAYOUT.total, WIDTH))]
    for theta in (0.2, 0.2, 0.7, 0.7, 0.7):
        states.append(states[-1] @ rotation(theta).T)
    return torch.from_numpy(np.stack(states, axis=1))


@pytest.mark.parametrize("size", [1, 7, 40])
def test_each_phase_and_type_has_its_own_map(size):
    moments = PhaseMoments([(1, 2), (3, 5)], LAYOUT, WIDTH)
    for block in phased_states(40, 0).split(size):
        moments.add(block)
    assert moments.images == 40
    assert set(moments.moments) == {(t, s) for t in ("cls", "patches") for s in ((1, 2), (3, 5))}
    for (_, segment), one in moments.moments.items():
        found = fit_dynamics(one, rank=None, ridge=0.0)
        theta = 0.2 if segment == (1, 2) else 0.7
        np.testing.assert_allclose(found.eigenvalues[:3], np.exp(1j * theta), atol=1e-9)
        np.testing.assert_allclose(found.eigenvalues[3:], np.exp(-1j * theta), atol=1e-9)
        assert one.moved / one.target == pytest.approx(4 * np.sin(theta / 2) ** 2)


def test_counted_pairs_are_images_times_tokens_times_transitions():
    moments = PhaseMoments([(1, 2), (3, 5)], LAYOUT, WIDTH)
    moments.add(phased_states(40, 0))
    counted = {key: one.target for key, one in moments.moments.items()}  # unit vectors
    assert counted["cls", (1, 2)] == pytest.approx(40 * 2)
    assert counted["patches", (3, 5)] == pytest.approx(40 * 2 * 3)


def test_the_eigenvalue_nearest_to_one_is_sought_among_all():
    """Also where others are larger."""
    found = LinearDynamics(np.eye(3), np.array([1.5, -1.2, 0.95 + 0.0j]))
    assert found.nearest_to_one == pytest.approx(0.05)
