"""The trivial predictions against whole-array numpy derivations."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from raptor.probes.baselines import TrainMoments

IMAGES, STATES, TOKENS, WIDTH = 60, 4, 5, 6


@pytest.fixture
def states() -> np.ndarray:
    """States (N, S, T, D) with means that are large and differ by token and layer."""
    rng = np.random.default_rng(0)
    a0 = rng.normal(size=(IMAGES, TOKENS, WIDTH)) + 50 * rng.normal(size=(TOKENS, WIDTH))
    later = [
        np.tanh(a0) @ rng.normal(size=(WIDTH, WIDTH)) + 30 * layer for layer in range(1, STATES)
    ]
    return np.stack([a0, *later], axis=1)


def predictions(states: np.ndarray, sizes=(11, 19, 30)) -> dict[str, np.ndarray]:
    moments, start = TrainMoments(), 0
    for size in sizes:
        moments.update(torch.from_numpy(states[start : start + size]))
        start += size
    a0 = torch.from_numpy(states[:, 0])
    return {name: predict(a0).numpy() for name, predict in moments.predictors().items()}


def test_identity_repeats_the_embedding(states):
    found = predictions(states)["identity"]
    assert (found == np.repeat(states[:, :1], STATES - 1, axis=1)).all()


def test_layer_mean_is_the_mean_of_each_layer_and_token_position(states):
    found = predictions(states)["layer_mean"]
    expected = states[:, 1:].mean(axis=0)
    np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), rtol=1e-12)


def test_linear_is_numpys_least_squares_with_an_intercept(states):
    found = predictions(states)["linear"]
    rows = states[:, 0].reshape(-1, WIDTH)
    design = np.hstack([rows, np.ones((len(rows), 1))])
    for index in range(STATES - 1):
        target = states[:, index + 1].reshape(-1, WIDTH)
        solution = np.linalg.lstsq(design, target, rcond=None)[0]
        np.testing.assert_allclose(
            found[:, index].reshape(-1, WIDTH), design @ solution, rtol=1e-6, atol=1e-5
        )


def test_linear_recovers_a_planted_affine_map(states):
    rng = np.random.default_rng(1)
    states[:, 2] = states[:, 0] @ rng.normal(size=(WIDTH, WIDTH)) + rng.normal(size=WIDTH)
    np.testing.assert_allclose(predictions(states)["linear"][:, 1], states[:, 2], atol=1e-4)


def test_streamed_in_blocks_equals_all_at_once(states):
    whole = predictions(states, sizes=(IMAGES,))
    for name, streamed in predictions(states).items():
        np.testing.assert_allclose(streamed, whole[name], rtol=1e-9, atol=1e-9)


def test_a_width_beyond_the_rank_of_the_embedding_is_still_solved():
    rng = np.random.default_rng(2)
    a0 = rng.normal(size=(50, 3, 2)) @ rng.normal(size=(2, 8))  # rank 2 in 8 dimensions
    states = np.stack([a0, a0 @ rng.normal(size=(8, 8))], axis=1)
    found = predictions(states, sizes=(50,))["linear"]
    np.testing.assert_allclose(found[:, 0], states[:, 1], atol=1e-5)
